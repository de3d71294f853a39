/* What is known of a native function, and variables of a thread: shared by the modules that call
 * one. */
#ifndef RELAXVM_NATIVE_H
#define RELAXVM_NATIVE_H

#include <stdint.h>

#define RELAXVM_KERNEL_TYPES_ONLY
#include <relaxvm/kernel.h>

/* glibc keeps room for a few words of libraries that are loaded late, which are found without a
 * call. */
#if defined(_MSC_VER)
#define RVM_THREAD_LOCAL __declspec(thread)
#elif defined(__GLIBC__)
#define RVM_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#else
#define RVM_THREAD_LOCAL __thread
#endif

typedef struct {
    RvmFunction call;
    void *self;
    int needs;             /* flags of numpy that a tensor must have to be passed as it is; writable
                              only if it is exposed to being written */
    uintptr_t misaligned;  /* bits of an address that must be 0 */
    uint64_t writes;       /* positions that the kernel writes: bit i for argument i */
    uint64_t writes_last;  /* the same from the end: bit 63 for the last argument, 62 before it */
    int unsure;            /* whether it is not known what it writes */
    int strided;           /* whether it is told the strides of tensors */
    uint64_t unlock_from;  /* bytes of tensors from which a call releases the interpreter lock */
    uint64_t quick_bytes;  /* the most of a quick call of at least `unlock_from` bytes, and a count, */
    int quick_calls;       /* see `rvm_call_big` */
} rvm_kernel;

#endif
