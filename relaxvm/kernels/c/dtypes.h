/* Data types of elements, as the package's C kernels name them. */
#ifndef RELAXVM_KERNELS_DTYPES_H
#define RELAXVM_KERNELS_DTYPES_H

enum {
    RVM_DTYPE_NONE, /* not a data type that kernels take */
    RVM_DTYPE_BOOL,
    RVM_DTYPE_I8,
    RVM_DTYPE_I16,
    RVM_DTYPE_I32,
    RVM_DTYPE_I64,
    RVM_DTYPE_U8,
    RVM_DTYPE_U16,
    RVM_DTYPE_U32,
    RVM_DTYPE_U64,
    RVM_DTYPE_F16,
    RVM_DTYPE_F32,
    RVM_DTYPE_F64,
    RVM_DTYPE_LONG_DOUBLE,
    RVM_DTYPE_C64,
    RVM_DTYPE_C128,
    RVM_DTYPE_LONG_COMPLEX,
    RVM_NUM_DTYPES,
    /* From here on one number per type of another package (bfloat16, float8): elements can be copied,
     * and two buffers have the same data type if they have the same number. */
    RVM_DTYPE_OTHER = RVM_NUM_DTYPES
};

/* Sets of data types, as bits. */
#define RVM_DTYPE_BIT(dtype) (1u << (dtype))
#define RVM_FLOATS (RVM_DTYPE_BIT(RVM_DTYPE_F32) | RVM_DTYPE_BIT(RVM_DTYPE_F64))
#define RVM_BUILTIN ((RVM_DTYPE_BIT(RVM_NUM_DTYPES) - 1) & ~1u)
#define RVM_ANY_DTYPE (RVM_BUILTIN | RVM_DTYPE_BIT(RVM_DTYPE_OTHER))

static inline int rvm_is_in(unsigned set, int dtype) {
    return set >> (dtype < RVM_DTYPE_OTHER ? dtype : RVM_DTYPE_OTHER) & 1;
}

#endif
