/* The implementations in C that this package has, by family: one C file each. */
#include "kernel_call.h"

const RvmImplementation *const rvm_families[] = {
    rvm_elementwise, rvm_movement, rvm_reductions, rvm_norms, rvm_products, rvm_attention, NULL,
};

/* The same families for each set that setup.py compiles: it defines RVM_WITH_AVX2 and so on. */
#define RVM_DECLARE_SET(set)                                                              \
    extern const RvmImplementation rvm_blocks_##set[], rvm_convolution_##set[], rvm_linear_##set[], \
        rvm_norm_##set[], rvm_attention_##set[], rvm_resize_##set[], rvm_trees_##set[], \
        rvm_integers_##set[], rvm_nbits_##set[], rvm_halves_##set[], rvm_bfloat16_##set[], \
        rvm_chain_##set[]

#define RVM_FAMILIES_OF(set)                                  \
    static const RvmImplementation *const families_##set[] = { \
        rvm_blocks_##set, rvm_convolution_##set, rvm_linear_##set, rvm_norm_##set, \
        rvm_attention_##set, rvm_resize_##set, rvm_trees_##set, rvm_integers_##set, rvm_nbits_##set, \
        rvm_halves_##set, rvm_bfloat16_##set, rvm_chain_##set, NULL}

#ifdef RVM_WITH_AVX512
RVM_DECLARE_SET(avx512);
RVM_FAMILIES_OF(avx512);
#endif
#ifdef RVM_WITH_AVX2
RVM_DECLARE_SET(avx2);
RVM_FAMILIES_OF(avx2);
#endif
#ifdef RVM_WITH_SSE2
RVM_DECLARE_SET(sse2);
RVM_FAMILIES_OF(sse2);
#endif
#ifdef RVM_WITH_NEON
RVM_DECLARE_SET(neon);
RVM_FAMILIES_OF(neon);
#endif

const RvmSet rvm_sets[] = {
#ifdef RVM_WITH_AVX512
    {"avx512", 16, families_avx512},
#endif
#ifdef RVM_WITH_AVX2
    {"avx2", 8, families_avx2},
#endif
#ifdef RVM_WITH_SSE2
    {"sse2", 4, families_sse2},
#endif
#ifdef RVM_WITH_NEON
    {"neon", 4, families_neon},
#endif
    {NULL, 0, NULL},
};
