/* The implementations in C that this package has, by family: one C file each. */
#include "kernel_call.h"

const RvmImplementation *const rvm_families[] = {
    rvm_elementwise, rvm_movement, rvm_reductions, rvm_norms, rvm_products, rvm_attention, NULL,
};
