/* What is known of a native function: shared by the modules that call one. */
#ifndef RELAXVM_NATIVE_H
#define RELAXVM_NATIVE_H

#include <stdint.h>

#define RELAXVM_KERNEL_TYPES_ONLY
#include <relaxvm/kernel.h>

enum { RVM_HOLD_GIL = 0, RVM_RELEASE_GIL = 1, RVM_GIL_BY_SIZE = 2 };

typedef struct {
    RvmFunction call;
    void *self;
    int needs;             /* flags of numpy that a tensor must have to be passed as it is */
    uintptr_t misaligned;  /* bits of an address that must be 0 */
    uint64_t writes;       /* positions that the kernel writes: bit i for argument i */
    uint64_t writes_last;  /* the same from the end: bit 63 for the last argument, 62 before it */
    int strided;           /* whether it is told the strides of tensors */
    int gil;
} rvm_kernel;

#endif
