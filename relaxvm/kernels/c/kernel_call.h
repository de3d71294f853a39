/* The interface of the package's own C kernels.
 *
 * A kernel of the package is a Python function, the reference, which takes every case.  It may have
 * implementations in C, which take some cases; `relaxvm.kernels.implementations` lists them.  This file
 * says how an implementation is described and called.  docs/adding-a-c-kernel.md is the guide.
 * Kernels that users write have another interface, include/relaxvm/kernel.h.
 *
 * Nothing here depends on Python or numpy: an implementation gets buffers and plain parameters.
 */
#ifndef RELAXVM_KERNEL_CALL_H
#define RELAXVM_KERNEL_CALL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "dtypes.h"

#ifndef RVM_MAX_DIMS
#define RVM_MAX_DIMS 8
#endif

/* In a loop over dims or strides: keeps the compiler from loading several at once.  A processor waits when
 * one load reads what several stores have just written, and such loops have few turns. */
#if defined(__GNUC__) || defined(__clang__)
#define RVM_FEW_TURNS __asm__ volatile("")
#else
#define RVM_FEW_TURNS (void)0
#endif

/* ---- a call ------------------------------------------------------------------------------------- */
/* What an implementation returns. */
enum {
    RVM_OK = 0,
    RVM_FAILED = -1,       /* there is an exception */
    RVM_ASK_REFERENCE = 1, /* the case is not one of its cases; it has not written anything */
};

/* Flags of a buffer. */
enum {
    RVM_CONTIGUOUS = 1, /* elements follow each other, the last axis fastest */
    RVM_WRITABLE = 2,
    RVM_ABSENT = 4,     /* the argument is None; `data` is NULL, and ndim 0 */
};

/* A tensor.  Elements are aligned and in the byte order of the machine. */
typedef struct {
    char *data;
    int64_t dims[RVM_MAX_DIMS], strides[RVM_MAX_DIMS]; /* the first `ndim`, in bytes; the rest is not set */
    int32_t item;                                      /* bytes of an element */
    uint8_t ndim, dtype, flags;
} RvmBuffer;

/* An inner loop of numpy: `dims` begins with the number of elements, `steps` are in bytes, one for each
 * of `args`.  A step of 0 stands for one element for all. */
typedef void (*RvmLoopCall)(char **args, const intptr_t *dims, const intptr_t *steps, void *data);

typedef struct {
    RvmLoopCall call; /* NULL where numpy has none */
    void *data;
} RvmLoop;

/* Set `*index` to the position of the greatest or least of `count` elements; negative on failure. */
typedef int (*RvmFindCall)(void *elements, intptr_t count, intptr_t *index, void *unused);

/* Functions whose loops the host offers. */
enum {
    RVM_ADD,
    RVM_SUBTRACT,
    RVM_MULTIPLY,
    RVM_DIVIDE,
    RVM_MAXIMUM,
    RVM_MINIMUM,
    RVM_EXP,
    RVM_LOG,
    RVM_SQUARE,
    RVM_MATMUL,
    RVM_EXPM1,
    RVM_LOG1P,
    RVM_FLOOR,
    RVM_CEIL,
    RVM_RINT,
    RVM_TRUNC,
    RVM_NUM_LOOPS
};

typedef struct RvmKernelCall RvmKernelCall;

/* What numpy would report about the steps of a call, in their order. */
#define RVM_MOST_REPORTS 64
typedef struct {
    int count;
    uint8_t names[RVM_MOST_REPORTS]; /* places in the host's list of names */
    uint8_t statuses[RVM_MOST_REPORTS];
} RvmReports;

/* One of the pieces of a call's work, which several threads may be at at once.  `call` is this thread's, for
 * must_stop; `thread` is below the number of threads.  RVM_OK or RVM_FAILED. */
typedef int (*RvmPiece)(const struct RvmKernelCall *call, void *work, int64_t piece, int thread);

/* What the program around the kernels offers. */
typedef struct {
    RvmLoop loops[RVM_NUM_LOOPS][RVM_NUM_DTYPES]; /* by the data type that operands and result have */
    RvmFindCall find_greatest[RVM_NUM_DTYPES], find_least[RVM_NUM_DTYPES];
    int64_t reduced_at_once; /* elements that numpy reduces by one call of a loop, at most */
} RvmHost;

typedef struct RvmKernelCall {
    const RvmBuffer *buffers; /* the tensors among the arguments, in their order */
    int32_t count;            /* of buffers */
    const void *params;       /* the other arguments, in the implementation's own struct */
    char *workspace;          /* memory for the time of the call, aligned to 16 bytes */
    int64_t workspace_bytes;
    int *float_status;        /* 0; an implementation adds what numpy would report about the result */
    RvmReports *reports;      /* empty; for implementations of several steps, which add up in float_status */
    const RvmHost *host;
    /* For implementations that run without Python's lock: called between pieces of the work, each of some
     * milliseconds; whether the call has to end with RVM_FAILED.  `done` counts the work of this thread since
     * it was last called. */
    int (*must_stop)(const struct RvmKernelCall *);
    int64_t *done;
    /* For these, too: run a number of pieces on several threads, and wait for all of them; see `pieces.h`.
     * Not for use in a piece. */
    int (*run_pieces)(const struct RvmKernelCall *, RvmPiece, void *work, int64_t pieces, int threads);
    int threads;  /* of the call, at most; at least 1 */
    int is_short; /* there are few bytes: an implementation of `is_unlocked` runs with the lock */
    void *thread; /* the host's */
} RvmKernelCall;

typedef int (*RvmKernel)(const RvmKernelCall *);

/* Bytes of workspace for a call with these buffers, parameters and number of threads, or -1 for a case that
 * the implementation does not take.  A pure function of these, which is called before the implementation
 * has checked anything. */
typedef int64_t (*RvmWorkspace)(const RvmKernelCall *call);

/* ---- arguments ---------------------------------------------------------------------------------- */
/* Kinds of arguments.  A tensor becomes the next buffer, all else a field of the parameters. */
typedef enum {
    RVM_ARG_TENSOR,
    RVM_ARG_TENSOR_OR_NONE,   /* None: a buffer that is RVM_ABSENT */
    RVM_ARG_TENSOR_OR_NUMBER, /* a number: a buffer without axes, of the last argument's data type */
    RVM_ARG_NUMBER,           /* the same, and not a tensor */
    RVM_ARG_TENSORS,          /* any number of them */
    RVM_ARG_OUT,              /* a tensor that is written */
    RVM_ARG_OUTS,             /* any number of them */
    RVM_ARG_INT,              /* int64_t */
    RVM_ARG_INT_OR_NONE,      /* int64_t, RVM_NO_INT for None */
    RVM_ARG_FLAG,             /* int64_t; a bool, or 0 or 1 */
    RVM_ARG_REAL,             /* RvmReal; a finite float or an int */
    RVM_ARG_REAL_OR_NONE,     /* RvmReal */
    RVM_ARG_INTS,             /* RvmInts; a Shape */
    RVM_ARG_INTS_OR_NONE,     /* RvmInts, `count` is RVM_NO_INTS for None */
    RVM_ARG_INT_OR_INTS,      /* RvmInts, `count` is RVM_ONE_INT for an int */
    RVM_ARG_EACH_INT,         /* RvmInts; any number of ints, or a Shape, or RVM_NO_INTS for None or
                                 nothing */
    RVM_ARG_CHOICE,           /* int64_t; the place of a text in `choices` */
    RVM_ARG_CHOICE_OR_NONE,   /* int64_t, RVM_NO_INT for None */
    RVM_ARG_CHOICE_OR_NOTHING, /* int64_t, RVM_NO_INT where the argument is left out */
    RVM_ARG_PROGRAM           /* RvmProgram; a text that the host has compiled */
} RvmArgumentKind;

#define RVM_NO_INT INT64_MIN

typedef struct {
    int64_t count;
    int64_t values[RVM_MAX_DIMS];
} RvmInts;
enum { RVM_NO_INTS = -1, RVM_ONE_INT = -2 };

typedef struct {
    double value;
    int32_t is_given; /* 0 for None */
} RvmReal;

#define RVM_PARAMS_BYTES 512 /* at most */

typedef struct {
    RvmArgumentKind kind;
    uint32_t offset;            /* of the field in the parameters */
    const char *const *choices; /* NULL after the last one */
} RvmArgument;

/* What the host has made of a text, and offers to implementations in place of it. */
typedef struct {
    _Alignas(8) char bytes[RVM_PARAMS_BYTES];
} RvmProgram;

#define RVM_BUFFER(kind) {RVM_ARG_##kind, 0, NULL}
#define RVM_FIELD(kind, params, field) {RVM_ARG_##kind, (uint32_t)offsetof(params, field), NULL}
#define RVM_FIELD_OF(choices, kind, params, field) \
    {RVM_ARG_##kind, (uint32_t)offsetof(params, field), choices}

/* ---- an implementation --------------------------------------------------------------------------- */
typedef struct {
    const char *name;   /* "family.method" */
    const char *kernel; /* the name of the kernel, without its prefix */
    RvmKernel run;
    RvmWorkspace workspace;       /* NULL if it needs none */
    const RvmArgument *arguments; /* of the kernel's signature; at most one kind takes several */
    int num_arguments;
    int uses_ufunc;     /* whether the parameters are the RvmLoop of the kernel's ufunc */
    unsigned dtypes;    /* set of the data types that results may have */
    int64_t most_bytes; /* each result has fewer */
    int is_unlocked;    /* runs without Python's lock: other threads may run, and change elements */
    int64_t locked_bytes; /* with the lock, though, and on one thread, where results have fewer bytes together */
    double ulp;         /* how far a result may be from the reference's; 0: the same bits */
} RvmImplementation;

#define RVM_ARGUMENTS(array) .arguments = array, .num_arguments = sizeof array / sizeof *array

#define RVM_ANY_RESULT INT64_MAX
/* Sums of products: terms of both signs cancel, so that no number of ulps is a bound.  The file of the
 * implementation says what is. */
#define RVM_SUM_ULP INFINITY

/* Results with fewer bytes are computed with Python's lock held; larger ones are left to the reference,
 * which lets other threads run meanwhile. */
#define RVM_SMALL_RESULT 65536
/* The same for what passes over the elements once and is done within some 200 us: the modules with the
 * references take several milliseconds to import, which is much of a program's start. */
#define RVM_QUICK_RESULT (1 << 20)
/* For the same reasons an implementation reads fewer elements than this for a call, ... */
#define RVM_SMALL_INPUT (1 << 16)
#define RVM_QUICK_INPUT (1 << 18)
/* ... and multiplies less often: some 30 us. */
#define RVM_SMALL_WORK (1 << 19)

/* The implementations of a family, with an entry without a name at the end. */
extern const RvmImplementation rvm_elementwise[];
extern const RvmImplementation rvm_movement[];
extern const RvmImplementation rvm_reductions[];
extern const RvmImplementation rvm_norms[];
extern const RvmImplementation rvm_products[];
extern const RvmImplementation rvm_attention[];

/* All of them, NULL after the last family. */
extern const RvmImplementation *const rvm_families[];

/* ---- sets of instructions ------------------------------------------------------------------------ */
/* The files of the folder `sets` are compiled once for each set. */
typedef struct {
    const char *name;                              /* "avx2" */
    int lanes;                                     /* floats of a vector */
    const RvmImplementation *const *families;      /* NULL after the last one */
} RvmSet;

/* The sets that were compiled, the best one first; one without a name at the end. */
extern const RvmSet rvm_sets[];

#endif
