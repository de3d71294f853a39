/* Between the core and the native code of compiled functions.  Not for users: it changes with the core.
 *
 * The source of a compiled program begins with this text, so that it needs no other header: neither
 * Python's nor numpy's.  What the code knows of Python objects is a pointer; all it does with them
 * goes through `RvmServices`, but for counting references where the layout of objects is known
 * (RVM_REFCOUNT, see relaxvm/native/vm_code/source.py).
 */
#ifndef RELAXVM_COMPILED_H_
#define RELAXVM_COMPILED_H_

#include <stdint.h>

struct _object; /* PyObject */
typedef struct _object *RvmRef;

/* A scalar: as RvmAny of kernel.h. */
typedef struct {
    int32_t type;
    uint32_t padding;
    union {
        int64_t as_int;
        double as_float;
    };
} RvmScalar;

enum { RVM_SCALAR_NONE = 0, RVM_SCALAR_INT = 1, RVM_SCALAR_BOOL = 2, RVM_SCALAR_REAL = 3 };

/* A tensor that only kernels use, of which no array is made: as RvmTensor of kernel.h. */
typedef struct {
    void *data;
    int32_t device, device_index;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
} RvmLocalTensor;

enum { RVM_LOCAL_ALIGNMENT = 64 }; /* of its elements */

/* How a compiled function ends. */
enum {
    RVM_EXITED = 0,  /* the loop goes on at `ip` in the frame at `fp`; all frames are complete */
    RVM_DONE = 1,    /* it returned: the result is `value` or `number`, its registers are cleared */
    RVM_TAIL = 2,    /* its frame has become that of another function: call `target` with it */
    RVM_FAILED_AT = -1  /* an exception is set, raised at `ip` in the frame at `fp` */
};

/* Parameters of a function that are passed as int64_t are no more than these. */
enum { RVM_MAX_NUMBERS = 16 };

struct RvmActivation;
typedef int (*RvmCompiled)(struct RvmActivation *, RvmRef *fp, int64_t position);

/* What runs now: made when the loop enters native code. */
typedef struct RvmActivation {
    const struct RvmServices *services;
    RvmRef *fp;
    const int64_t *ip;
    RvmRef value;
    int64_t number;
    int64_t ticks;          /* until the next poll */
    RvmRef *pool_end;       /* of the constants; the machine stands before it */
    RvmRef *end;            /* of the memory for frames */
    int64_t *calls_left;    /* how much deeper calls may be nested */
    int64_t *fuel;
    int64_t *objects;
    const int64_t *census_at;
    uintptr_t stack;        /* the address below which C functions must not call others */
    void *run, *machine, *image;
    RvmRef error[3];        /* an exception that is put aside */
    RvmCompiled target;     /* of a tail call, and its numbers */
    int64_t numbers[RVM_MAX_NUMBERS];
} RvmActivation;

/* Functions that return RvmRef return a new reference, or NULL: perhaps with an exception where the
 * operation has a fallback, else with one. */
typedef struct RvmServices {
    RvmRef none, true_, false_;
    void (*incref)(RvmRef);
    void (*decref)(RvmRef);
    void (*dealloc)(RvmRef);
    void (*clear_error)(void);
    void (*hold_error)(RvmActivation *);   /* puts the exception aside, and sets it again */
    void (*release_error)(RvmActivation *);
    int (*poll)(RvmActivation *);          /* after the operation at `ip`; -1 with an exception */
    int (*check_deadline)(RvmActivation *);
    /* values */
    RvmRef (*from_int)(int64_t);
    RvmRef (*from_scalar)(const RvmScalar *);  /* NULL without an exception for None */
    int (*as_int)(RvmRef, int64_t *);          /* whether it is an int of 64 bits */
    int (*as_scalar)(RvmRef, RvmScalar *);     /* whether it is one, or NULL */
    RvmRef (*tuple_of)(RvmRef *, int64_t);     /* of borrowed items, of which NULL is None */
    RvmRef (*closure_of)(RvmActivation *, int64_t index, RvmRef *, int64_t);
    RvmRef (*item)(RvmRef tuple, int64_t index);   /* NULL: no such item, or not a tuple */
    int (*truth)(RvmRef);                      /* -1: neither */
    int (*read_cond)(RvmRef);
    /* checks: whether they hold */
    int (*check_tensor)(RvmRef, int64_t ndim, int64_t dtype);
    int (*check_shape)(RvmRef, int64_t ndim);
    int (*check_tuple)(RvmRef, int64_t size);
    int (*check_func)(RvmRef);
    int (*check_prim)(RvmRef, int64_t floats);
    int (*match_shape)(RvmRef, RvmRef heap, int64_t last_slot, int64_t count, const int64_t *);
    int (*match_prim)(RvmRef, RvmRef heap, int64_t code, int64_t value);
    int (*tag_is)(RvmRef, int64_t number);     /* -1: no int */
    int (*match_slots)(RvmRef, int64_t *slots, int64_t count, const int64_t *);
    int (*compute_shape)(RvmRef heap, int64_t last_slot, const int64_t *);
    /* whether it has just these, and nothing but a register refers to it */
    int (*load_heap)(int64_t site, RvmRef heap, int64_t *slots, int64_t count);
    /* objects */
    /* `old` itself, of which no new reference is made, if it could become the value */
    RvmRef (*make_adt)(RvmRef old, RvmRef constructor, int64_t tag, RvmRef *, int64_t count);
    int (*adt_tag)(RvmRef, int64_t *);         /* whether it is of a data type */
    /* whether it is made by one of these constructors */
    int (*match_tag)(RvmRef, RvmRef *pool_end, const int64_t *constructors, int64_t count,
                     int64_t *);
    RvmRef (*adt_field)(RvmRef, int64_t index);
    RvmRef (*make_prim)(RvmRef heap, int64_t code, int64_t value);
    RvmRef (*shape_of)(int64_t site, RvmRef);
    RvmRef (*make_shape)(int64_t site, RvmRef heap, int64_t last_slot, int64_t count,
                         const int64_t *);
    RvmRef (*shape_from)(int64_t site, int64_t count, const int64_t *dims);
    RvmRef (*alloc_heap)(int64_t site, int64_t slots);
    RvmRef (*heap_from)(int64_t site, const int64_t *slots, int64_t count);
    RvmRef (*alloc_storage)(int64_t allocator, int64_t nbytes);
    RvmRef (*alloc_storage_dyn)(int64_t allocator, RvmRef shape, int64_t itemsize);
    RvmRef (*alloc_tensor)(RvmRef storage, int64_t offset, RvmRef shape, int64_t dtype);
    RvmRef (*alloc_tensor_of)(RvmRef storage, int64_t offset, int64_t end, int64_t dtype,
                              int64_t count, const int64_t *dims);
    RvmRef (*alloc_static)(const int64_t *ip);
    RvmRef (*reshape)(RvmRef, RvmRef shape);
    RvmRef (*load_function)(RvmActivation *, int64_t index);
    /* The elements of a contiguous array of just this type, NULL if it is another; those of an
     * array of one element and at most `ndim` dimensions. */
    void *(*elements)(RvmRef, int64_t dtype, int64_t ndim, const int64_t *dims, int is_written);
    void *(*single)(RvmRef, int64_t dtype, int64_t ndim);
    void *(*data)(RvmRef array);
    int (*float_status)(void);  /* whether something has happened; if so, it is cleared */
    /* calls */
    RvmRef (*call)(RvmActivation *, RvmRef callee, RvmRef *args, int64_t count);
    int (*call_void)(RvmActivation *, RvmRef callee, RvmRef *args, int64_t count);
    int (*call_native)(RvmActivation *, RvmRef *fp, const int64_t *ip);
    /* The same, where some operands are tensors of `nbytes` together; the others are NULL in `locals`.
     * 1: the kernel does not take them so, and nothing has been done. */
    int (*call_local)(RvmActivation *, RvmRef *fp, const int64_t *ip, RvmLocalTensor *const *locals,
                      int64_t nbytes);
    /* 1 with a scalar; 0 with another result in `value`; -1 with an exception */
    int (*call_scalars)(RvmActivation *, RvmRef callee, const RvmScalar *, int64_t count,
                        RvmScalar *);
    int (*ufunc_1)(RvmActivation *, const int64_t *words, RvmRef, RvmRef out);  /* 0: fallback */
    int (*ufunc_2)(RvmActivation *, const int64_t *words, RvmRef, RvmRef, RvmRef out);
    /* The compiled function that a closure of `given` arguments runs, NULL if there is none. */
    RvmCompiled (*target)(RvmActivation *, RvmRef closure, int64_t given, int64_t *index,
                          int64_t *frame_words, int64_t *registers);
    RvmRef (*captured)(RvmRef closure, int64_t i);  /* borrowed */
    int64_t (*func_address)(RvmActivation *, int64_t index);
} RvmServices;

#endif
