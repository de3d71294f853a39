/* Calls of the package's C kernels with Python's objects: numpy arrays become buffers on the C stack, all
 * other arguments the fields of the kernel's parameters. */
#ifndef RELAXVM_KERNELS_TABLE_IMPL_H
#define RELAXVM_KERNELS_TABLE_IMPL_H

#include "_ufunc_impl.h"
#include "_pool.h"
#include "kernels/_numpy_dtypes.h"
#include "kernels/c/kernel_call.h"

#define RVM_MAX_BUFFERS 32    /* calls with more tensors go to the reference */
#define RVM_MAX_NUMBERS 4     /* that become buffers; no implementation has more */
#define RVM_STACK_BYTES 8192  /* a workspace that is larger is allocated */

/* ---- the host ------------------------------------------------------------------------------------ */
static RvmHost rvm_host;

/* The loop of a ufunc for inputs and result of these data types, if both are numbers of this machine. */
static RvmLoop rvm_loop_of(PyUFuncObject *ufunc, int in, int out) {
    RvmLoop loop = {NULL, NULL};
    int types[3] = {rvm_numpy_types[in], rvm_numpy_types[in], rvm_numpy_types[in]};
    types[ufunc->nin] = rvm_numpy_types[out];
    int found = rvm_find_loop(ufunc, types);
    if (found >= 0) {
        loop.call = (RvmLoopCall)ufunc->functions[found];
        loop.data = ufunc->data[found];
    }
    return loop;
}

static void rvm_offer_loops(int which, PyUFuncObject *ufunc) {
    for (int dtype = 1; dtype < RVM_NUM_DTYPES; dtype++)
        rvm_host.loops[which][dtype] = rvm_loop_of(ufunc, dtype, dtype);
}

static void rvm_offer_finders(void) {
    for (int dtype = 1; dtype < RVM_DTYPE_C64; dtype++) {
        PyArray_Descr *descr = PyArray_DescrFromType(rvm_numpy_types[dtype]);
        PyArray_ArrFuncs *functions = PyDataType_GetArrFuncs(descr);
        /* Of numbers, these do not look at the array that is their last argument. */
        rvm_host.find_greatest[dtype] = (RvmFindCall)functions->argmax;
        rvm_host.find_least[dtype] = (RvmFindCall)functions->argmin;
        Py_DECREF(descr);
    }
}

static void rvm_offer_reductions(int64_t at_once) { rvm_host.reduced_at_once = at_once; }

/* ---- arguments ---------------------------------------------------------------------------------- */
/* An array of numbers in the byte order of this machine, aligned. */
static inline int rvm_read_tensor(PyObject *object, RvmBuffer *to) {
    PyArrayObject *x = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object)) return 0;
    const PyArray_Descr *descr = PyArray_DESCR(x);
    int ndim = PyArray_NDIM(x), flags = PyArray_FLAGS(x), dtype = rvm_dtype_of(descr);
    if (ndim > RVM_MAX_DIMS || !(flags & NPY_ARRAY_ALIGNED) || dtype == RVM_DTYPE_NONE ||
        descr->byteorder == NPY_OPPBYTE)
        return 0;
    to->data = PyArray_BYTES(x);
    to->item = RVM_LIKELY(dtype < RVM_NUM_DTYPES) ? rvm_item_sizes[dtype]
                                                  : (int32_t)PyDataType_ELSIZE(descr);
    to->ndim = (uint8_t)ndim;
    to->dtype = (uint8_t)dtype;
    to->flags = (flags & NPY_ARRAY_C_CONTIGUOUS ? RVM_CONTIGUOUS : 0) |
                (flags & NPY_ARRAY_WRITEABLE ? RVM_WRITABLE : 0);
    const npy_intp *dims = PyArray_DIMS(x), *strides = PyArray_STRIDES(x);
    for (int i = 0; i < ndim; i++) {
        RVM_FEW_TURNS;
        to->dims[i] = dims[i];
        to->strides[i] = strides[i];
    }
    return 1;
}

/* A tensor that a result of this implementation may be written to; `*written` grows by its bytes. */
static inline int rvm_read_out(PyObject *object, const RvmImplementation *how, RvmBuffer *to, int64_t *written) {
    if (!rvm_read_tensor(object, to) || !(to->flags & RVM_WRITABLE)) return 0;
    int64_t bytes = to->item;
    for (int i = 0; i < to->ndim; i++) bytes *= to->dims[i];
    *written += bytes;
    return bytes < how->most_bytes && rvm_is_in(how->dtypes, to->dtype);
}

/* A number of the data type of `out` as a tensor without axes. */
static inline int rvm_read_number(PyObject *object, PyObject *out, int64_t *number, RvmBuffer *to) {
    if (!PyArray_CheckExact(out)) return 0;
    const PyArray_Descr *descr = PyArray_DESCR((PyArrayObject *)out);
    if (!rvm_put_number(object, descr->type_num, number)) return 0;
    to->data = (char *)number;
    to->dtype = (uint8_t)rvm_dtype_of(descr);
    to->item = rvm_item_sizes[to->dtype];
    to->ndim = 0;
    to->flags = RVM_CONTIGUOUS;
    return 1;
}

static inline int rvm_read_int(PyObject *object, int64_t *value) {
    int overflow;
    if (!PyLong_CheckExact(object)) return 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *value != RVM_NO_INT;
}

static inline int rvm_read_flag(PyObject *object, int64_t *flag) {
    if (object == Py_True || object == Py_False) {
        *flag = object == Py_True;
        return 1;
    }
    return rvm_read_int(object, flag) && (*flag == 0 || *flag == 1);
}

static inline int rvm_read_real(PyObject *object, RvmReal *real) {
    int64_t value;
    real->is_given = 1;
    if (PyFloat_CheckExact(object)) {
        real->value = PyFloat_AS_DOUBLE(object);
        return isfinite(real->value);
    }
    if (!rvm_read_int(object, &value) || value < -(1LL << 53) || value > 1LL << 53) return 0;
    real->value = (double)value;
    return 1;
}

static inline int rvm_read_each(PyObject *const *objects, Py_ssize_t count, RvmInts *ints) {
    if (count > RVM_MAX_DIMS) return 0;
    ints->count = count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!rvm_read_int(objects[i], &ints->values[i])) return 0;
    return 1;
}

static inline int rvm_read_ints(PyObject *object, RvmInts *ints) {
    if (!PyTuple_Check(object)) return 0;
    return rvm_read_each(&PyTuple_GET_ITEM(object, 0), PyTuple_GET_SIZE(object), ints);
}

static int rvm_read_choice(PyObject *object, const char *const *choices, int64_t *choice) {
    if (!PyUnicode_Check(object) || !PyUnicode_IS_COMPACT_ASCII(object)) return 0;
    const char *text = (const char *)PyUnicode_DATA(object);
    for (*choice = 0; choices[*choice] != NULL; ++*choice)
        if (strcmp(text, choices[*choice]) == 0)
            return (size_t)PyUnicode_GET_LENGTH(object) == strlen(text); /* no more behind a zero */
    return 0;
}

/* Of ints given one by one, as one Shape, by None, or not at all. */
static inline int rvm_read_each_int(PyObject *const *objects, Py_ssize_t count, RvmInts *ints) {
    if (count == 0 || (count == 1 && objects[0] == Py_None)) {
        ints->count = RVM_NO_INTS;
        return 1;
    }
    if (count == 1 && PyTuple_Check(objects[0])) return rvm_read_ints(objects[0], ints);
    return rvm_read_each(objects, count, ints);
}

/* What texts have been compiled to: bytes, of which the parameters get a copy; None for no program. */
static PyObject *rvm_programs;

static int rvm_read_program(PyObject *text, RvmProgram *program) {
    if (!PyUnicode_CheckExact(text)) return 0;
    PyObject *found = PyDict_GetItemWithError(rvm_programs, text);
    if (found == NULL) PyErr_Clear();
    if (found == NULL || !PyBytes_CheckExact(found)) return 0;
    Py_ssize_t length = PyBytes_GET_SIZE(found);
    if (length > RVM_PARAMS_BYTES) return 0;
    memcpy(program->bytes, PyBytes_AS_STRING(found), (size_t)length);
    return 1;
}

/* An implementation of a kernel, and whether one of its arguments is any number of them. */
typedef struct {
    const RvmImplementation *how;
    int takes_any_number;
} rvm_way;

#define RVM_MAX_WAYS 8

/* The implementations of a kernel. */
typedef struct {
    int num_ways;
    int takes_program; /* whether one of them does */
    rvm_way ways[RVM_MAX_WAYS];
    PyUFuncObject *ufunc;  /* borrowed; what the kernel is, where an implementation needs it */
    RvmLoop loop;          /* its loop for the data types of the last call: inputs and result */
    int last_in, last_out;
} rvm_ways;

static void rvm_add_way(rvm_ways *ways, const RvmImplementation *how) {
    rvm_way *way = &ways->ways[ways->num_ways++];
    way->how = how;
    way->takes_any_number = 0;
    for (int i = 0; i < how->num_arguments; i++) {
        switch (how->arguments[i].kind) {
            case RVM_ARG_TENSORS:
            case RVM_ARG_OUTS:
            case RVM_ARG_EACH_INT:
            case RVM_ARG_CHOICE_OR_NOTHING: way->takes_any_number = 1; break;
            case RVM_ARG_PROGRAM: ways->takes_program = 1; break;
            default: break;
        }
    }
}

/* The arguments of a call, as an implementation takes them. */
typedef struct {
    union {
        char bytes[RVM_PARAMS_BYTES];
        double alignment;
    } params;
    int64_t numbers[RVM_MAX_NUMBERS];
    int64_t written; /* bytes of the results */
    RvmBuffer buffers[RVM_MAX_BUFFERS];
} rvm_arguments;

#define RVM_NEED(is_read)          \
    do {                           \
        if (!(is_read)) return -1; \
    } while (0)

/* How many buffers the arguments are, or -1 if they are not what the implementation takes. */
static inline int rvm_read_arguments(const rvm_way *way, PyObject *const *args, Py_ssize_t count,
                                     rvm_arguments *read) {
    const RvmImplementation *how = way->how;
    RvmBuffer *to = read->buffers;
    int64_t *number = read->numbers;
    PyObject *const *at = args, *const *end = args + count;
    read->written = 0;
    const RvmArgument *argument = how->arguments, *last = argument + how->num_arguments;
    /* How many arguments there are for the kind that takes any number of them. */
    Py_ssize_t some = count - how->num_arguments + 1;
    if (way->takes_any_number ? some < 0 || some > RVM_MAX_BUFFERS - how->num_arguments : some != 1)
        return -1;
    for (; argument < last; argument++) {
        void *field = read->params.bytes + argument->offset;
        switch (argument->kind) {
            case RVM_ARG_TENSOR: RVM_NEED(rvm_read_tensor(*at++, to++)); break;
            case RVM_ARG_OUT: RVM_NEED(rvm_read_out(*at++, how, to++, &read->written)); break;
            case RVM_ARG_TENSORS:
                for (Py_ssize_t i = 0; i < some; i++) RVM_NEED(rvm_read_tensor(*at++, to++));
                break;
            case RVM_ARG_OUTS:
                for (Py_ssize_t i = 0; i < some; i++) RVM_NEED(rvm_read_out(*at++, how, to++, &read->written));
                break;
            case RVM_ARG_TENSOR_OR_NONE:
                if (*at == Py_None) {
                    to->data = NULL;
                    to->ndim = 0;
                    to->flags = RVM_ABSENT;
                    to++;
                } else {
                    RVM_NEED(rvm_read_tensor(*at, to++));
                }
                at++;
                break;
            case RVM_ARG_TENSOR_OR_NUMBER:
                if (PyArray_Check(*at)) RVM_NEED(rvm_read_tensor(*at, to++));
                else RVM_NEED(rvm_read_number(*at, end[-1], number++, to++));
                at++;
                break;
            case RVM_ARG_NUMBER: RVM_NEED(rvm_read_number(*at++, end[-1], number++, to++)); break;
            case RVM_ARG_INT: RVM_NEED(rvm_read_int(*at++, (int64_t *)field)); break;
            case RVM_ARG_INT_OR_NONE:
                if (*at == Py_None) *(int64_t *)field = RVM_NO_INT;
                else RVM_NEED(rvm_read_int(*at, (int64_t *)field));
                at++;
                break;
            case RVM_ARG_FLAG: RVM_NEED(rvm_read_flag(*at++, (int64_t *)field)); break;
            case RVM_ARG_REAL: RVM_NEED(rvm_read_real(*at++, (RvmReal *)field)); break;
            case RVM_ARG_REAL_OR_NONE:
                if (*at == Py_None) ((RvmReal *)field)->is_given = 0;
                else RVM_NEED(rvm_read_real(*at, (RvmReal *)field));
                at++;
                break;
            case RVM_ARG_INTS: RVM_NEED(rvm_read_ints(*at++, (RvmInts *)field)); break;
            case RVM_ARG_INTS_OR_NONE:
                if (*at == Py_None) ((RvmInts *)field)->count = RVM_NO_INTS;
                else RVM_NEED(rvm_read_ints(*at, (RvmInts *)field));
                at++;
                break;
            case RVM_ARG_INT_OR_INTS:
                if (PyTuple_Check(*at)) {
                    RVM_NEED(rvm_read_ints(*at, (RvmInts *)field));
                } else {
                    RVM_NEED(rvm_read_each(at, 1, (RvmInts *)field));
                    ((RvmInts *)field)->count = RVM_ONE_INT;
                }
                at++;
                break;
            case RVM_ARG_EACH_INT:
                RVM_NEED(rvm_read_each_int(at, some, (RvmInts *)field));
                at += some;
                break;
            case RVM_ARG_CHOICE:
                RVM_NEED(rvm_read_choice(*at++, argument->choices, (int64_t *)field));
                break;
            case RVM_ARG_CHOICE_OR_NONE:
                if (*at == Py_None) *(int64_t *)field = RVM_NO_INT;
                else RVM_NEED(rvm_read_choice(*at, argument->choices, (int64_t *)field));
                at++;
                break;
            case RVM_ARG_PROGRAM: RVM_NEED(rvm_read_program(*at++, (RvmProgram *)field)); break;
            case RVM_ARG_CHOICE_OR_NOTHING:
                RVM_NEED(some < 2);
                *(int64_t *)field = RVM_NO_INT;
                if (some) RVM_NEED(rvm_read_choice(*at, argument->choices, (int64_t *)field));
                at += some;
                break;
        }
    }
    return (int)(to - read->buffers);
}

/* ---- calls -------------------------------------------------------------------------------------- */
/* Handles signals, and raises if the run is to end. */
static int (*rvm_look)(void);

/* Between pieces of the work of an implementation that runs without Python's lock. */
static int rvm_must_stop(const RvmKernelCall *call) {
    PyThreadState **thread = (PyThreadState **)call->thread;
    PyEval_RestoreThread(*thread);
    int is_over = rvm_look();
    *thread = PyEval_SaveThread();
    return is_over;
}

/* The pool of the process, of `core._threads`. */
static int (*rvm_pool_threads)(void);
static int (*rvm_pool_take)(int threads, int waits);
static int (*rvm_pool_run)(rvm_section *section, int threads);

/* The pieces of a call. */
typedef struct {
    rvm_section section;
    const RvmKernelCall *call;
    RvmPiece piece;
    void *work;
} rvm_pieces;

/* Of the threads other than the caller's, who has no business with Python. */
static int rvm_section_is_over(const RvmKernelCall *call) {
    return rvm_is_over((const rvm_section *)call->thread);
}

static int rvm_run_piece(rvm_section *section, int64_t piece, int thread) {
    rvm_pieces *pieces = (rvm_pieces *)section;
    if (thread == 0) return pieces->piece(pieces->call, pieces->work, piece, thread);
    RvmKernelCall own = *pieces->call;
    int64_t done = 0;
    own.done = &done;
    own.must_stop = rvm_section_is_over;
    own.run_pieces = NULL;
    own.threads = 1;
    own.thread = section;
    return pieces->piece(&own, pieces->work, piece, thread);
}

static int rvm_look_of_pieces(rvm_section *section) {
    return rvm_must_stop(((rvm_pieces *)section)->call);
}

static int rvm_run_pieces(const RvmKernelCall *call, RvmPiece piece, void *work, int64_t count, int threads) {
    rvm_pieces pieces = {.section = {.run = rvm_run_piece, .look = rvm_look_of_pieces, .pieces = count, .has_ranges = 1},
                         .call = call,
                         .piece = piece,
                         .work = work};
    return rvm_pool_run(&pieces.section, rvm_pool_take(threads, 0)) ? RVM_FAILED : RVM_OK;
}

static RVM_NOINLINE int rvm_run_unlocked(const RvmImplementation *how, RvmKernelCall *call) {
    PyThreadState *thread = PyEval_SaveThread();
    int64_t done = 0;
    call->must_stop = rvm_must_stop;
    call->done = &done;
    call->run_pieces = rvm_run_pieces;
    call->thread = &thread;
    int answer = how->run(call);
    PyEval_RestoreThread(thread);
    return answer;
}

/* With so few bytes of operands, a call takes about as long as releasing the lock and taking it again. */
#define RVM_SHORT_BYTES 4096

static int rvm_is_short(const RvmBuffer *buffers, int count) {
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        if (buffers[i].flags & RVM_ABSENT) continue;
        int64_t some = buffers[i].item;
        for (int k = 0; k < buffers[i].ndim; k++) {
            RVM_FEW_TURNS;
            if (buffers[i].dims[k] > RVM_SHORT_BYTES || some > RVM_SHORT_BYTES) return 0;
            some *= buffers[i].dims[k];
        }
        bytes += some;
    }
    return bytes <= RVM_SHORT_BYTES;
}

static int rvm_must_stop_locked(const RvmKernelCall *call) {
    (void)call;
    return rvm_look();
}

/* A call without threads, with the lock. */
static int rvm_run_short(const RvmImplementation *how, RvmKernelCall *call) {
    int64_t done = 0;
    call->must_stop = rvm_must_stop_locked;
    call->done = &done;
    call->run_pieces = NULL;
    call->thread = NULL;
    return how->run(call);
}

static inline int rvm_run(const RvmImplementation *how, RvmKernelCall *call) {
    if (RVM_LIKELY(!how->is_unlocked)) return how->run(call);
    return call->is_short ? rvm_run_short(how, call) : rvm_run_unlocked(how, call);
}

/* Whether the ufunc has a loop for these data types; only where the result has the inputs' data type or is
 * bool: where numpy's table has more, such as quotients of ints, the kernel may not follow it. */
static int rvm_find_ufunc_loop(rvm_ways *ways, int in, int out) {
    if (in >= RVM_NUM_DTYPES || (out != in && out != RVM_DTYPE_BOOL)) return 0;
    if (ways->last_in != in || ways->last_out != out) {
        ways->loop = rvm_loop_of(ways->ufunc, in, out);
        ways->last_in = in;
        ways->last_out = out;
    }
    return ways->loop.call != NULL;
}

/* A workspace that no call uses, so that runs that are repeated do not ask the system for one: memory that goes
 * back and forth comes back without its pages.  Guarded by Python's lock, which is not held while a call runs; of
 * two calls at once, the second takes memory of its own. */
static struct {
    char *memory;
    int64_t bytes;
} rvm_kept_workspace;

#ifdef __SANITIZE_ADDRESS__
#define RVM_MOST_KEPT_BYTES 0 /* its bounds would not be those of the call */
#else
#define RVM_MOST_KEPT_BYTES (32 << 20)
#endif

static int rvm_run_with_kept(const RvmImplementation *how, RvmKernelCall *call) {
    char *memory = NULL;
    int64_t bytes = call->workspace_bytes;
    if (rvm_kept_workspace.bytes >= bytes) {
        memory = rvm_kept_workspace.memory;
        bytes = rvm_kept_workspace.bytes;
        rvm_kept_workspace.memory = NULL;
        rvm_kept_workspace.bytes = 0;
    } else {
        memory = (char *)PyMem_RawMalloc((size_t)bytes);
        if (memory == NULL) return RVM_ASK_REFERENCE;
    }
    call->workspace = memory;
    int answer = rvm_run(how, call);
    if (bytes > rvm_kept_workspace.bytes && bytes <= RVM_MOST_KEPT_BYTES) {
        char *smaller = rvm_kept_workspace.memory;
        rvm_kept_workspace.memory = memory;
        rvm_kept_workspace.bytes = bytes;
        memory = smaller;
    }
    PyMem_RawFree(memory);
    return answer;
}

/* Give it back to the system; its bytes. */
static int64_t rvm_release_workspace(void) {
    int64_t bytes = rvm_kept_workspace.bytes;
    PyMem_RawFree(rvm_kept_workspace.memory);
    rvm_kept_workspace.memory = NULL;
    rvm_kept_workspace.bytes = 0;
    return bytes;
}

static RVM_NOINLINE int rvm_run_with_workspace(const RvmImplementation *how, RvmKernelCall *call) {
    int64_t bytes = how->workspace(call);
    if (bytes < 0) return RVM_ASK_REFERENCE;
    call->workspace_bytes = bytes;
    if (bytes <= RVM_STACK_BYTES) {
        long double memory[RVM_STACK_BYTES / sizeof(long double)];
        call->workspace = (char *)memory;
        return rvm_run(how, call);
    }
    /* From where numpy takes the memory of arrays, so that a run with limits counts it. */
    PyObject *capsule = PyDataMem_GetHandler();
    PyDataMem_Handler *handler =
        capsule == NULL ? NULL : (PyDataMem_Handler *)PyCapsule_GetPointer(capsule, "mem_handler");
    int answer = RVM_ASK_REFERENCE;
    if (handler != NULL && strcmp(handler->name, "default_allocator") == 0) {
        answer = rvm_run_with_kept(how, call);
    } else if (handler != NULL) {
        const PyDataMemAllocator *from = &handler->allocator;
        call->workspace = (char *)from->malloc(from->ctx, (size_t)bytes);
        if (call->workspace != NULL) {
            answer = rvm_run(how, call);
            from->free(from->ctx, call->workspace, (size_t)bytes);
        }
    } else {
        PyErr_Clear(); /* the reference will run into the same */
    }
    Py_XDECREF(capsule);
    return answer;
}

/* Call the first implementation that takes the arguments: RVM_OK, with what numpy would report about the
 * result in `float_status` and, if that is of several steps, in `reports`; RVM_FAILED, or RVM_ASK_REFERENCE if there is none. */
static int rvm_dispatch(rvm_ways *ways, PyObject *const *args, Py_ssize_t count, int *float_status,
                        RvmReports *reports) {
    rvm_arguments read;
    RvmKernelCall call;
    RvmLoop loop;
    int answer = RVM_ASK_REFERENCE;
    for (int i = 0; i < ways->num_ways && answer == RVM_ASK_REFERENCE; i++) {
        const RvmImplementation *how = ways->ways[i].how;
        int buffers = rvm_read_arguments(&ways->ways[i], args, count, &read);
        if (buffers < 0) continue;
        *float_status = 0;
        reports->count = 0;
        call.buffers = read.buffers;
        call.count = buffers;
        call.params = read.params.bytes;
        call.workspace = NULL;
        call.workspace_bytes = 0;
        call.float_status = float_status;
        call.reports = reports;
        call.host = &rvm_host;
        call.is_short = how->is_unlocked && (read.written < how->locked_bytes || rvm_is_short(read.buffers, buffers));
        call.threads = how->is_unlocked && !call.is_short ? rvm_pool_threads() : 1;
        if (how->uses_ufunc) {
            if (!rvm_find_ufunc_loop(ways, read.buffers[0].dtype, read.buffers[buffers - 1].dtype))
                continue;
            loop = ways->loop; /* not the memory, which another call may change */
            call.params = &loop;
        }
        answer = how->workspace == NULL ? rvm_run(how, &call) : rvm_run_with_workspace(how, &call);
    }
    return answer;
}

/* Whether the elements of an array are apart in memory, and a copy of it takes no more: not if it repeats some. */
static int rvm_is_apart(PyObject *x) {
    if (!PyArray_CheckExact(x) || PyArray_IS_C_CONTIGUOUS((PyArrayObject *)x)) return 0;
    PyArrayObject *array = (PyArrayObject *)x;
    for (int i = 0; i < PyArray_NDIM(array); i++)
        if (PyArray_STRIDE(array, i) == 0 && PyArray_DIM(array, i) > 1) return 0;
    return !PyDataType_REFCHK(PyArray_DESCR(array));
}

#define RVM_MOST_COPIED 24 /* arguments */

/* Once more after RVM_ASK_REFERENCE, with contiguous copies of tensors that are read: kernels of a set of instructions
 * want such, and what a program computes is the same then, wherever the elements are.  The arguments, each a new
 * reference, are in `copied`; 0 if there is nothing to copy, or no such implementation. */
static RVM_NOINLINE int rvm_copy_apart(const rvm_ways *ways, PyObject *const *args, Py_ssize_t count, PyObject **copied) {
    rvm_arguments read;
    const rvm_way *way = NULL;
    int is_any = 0;
    if (count > RVM_MOST_COPIED) return 0;
    for (Py_ssize_t i = 0; i < count; i++) is_any |= rvm_is_apart(args[i]);
    if (!is_any) return 0;
    for (int i = 0; i < ways->num_ways && way == NULL; i++)
        if (ways->ways[i].how->is_unlocked && rvm_read_arguments(&ways->ways[i], args, count, &read) >= 0)
            way = &ways->ways[i];
    if (way == NULL) return 0;
    const RvmArgument *argument = way->how->arguments;
    Py_ssize_t some = count - way->how->num_arguments + 1, at = 0;
    for (Py_ssize_t i = 0; i < count; i++) copied[i] = Py_NewRef(args[i]);
    for (is_any = 0; at < count; argument++) {
        Py_ssize_t end = at + 1;
        if (argument->kind == RVM_ARG_TENSORS || argument->kind == RVM_ARG_OUTS ||
            argument->kind == RVM_ARG_EACH_INT || argument->kind == RVM_ARG_CHOICE_OR_NOTHING)
            end = at + some;
        for (; at < end; at++) {
            if (argument->kind == RVM_ARG_OUT || argument->kind == RVM_ARG_OUTS || !rvm_is_apart(args[at])) continue;
            PyObject *copy = PyArray_NewCopy((PyArrayObject *)args[at], NPY_CORDER);
            if (copy == NULL) {
                PyErr_Clear(); /* the reference needs less memory */
                continue;
            }
            Py_SETREF(copied[at], copy);
            is_any = 1;
        }
    }
    if (is_any) return 1;
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(copied[i]);
    return 0;
}

/* Whether this processor and its operating system have a set of instructions.  The functions of the compiler
 * ask both. */
static int rvm_has_set(const RvmSet *set) {
    switch (set->lanes) {
#if defined(__x86_64__) || defined(__i386__)
        case 16:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        case 8:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("bmi2");
#endif
        default: return 1; /* what all processors of the architecture have */
    }
}

/* The implementation at a place among those of a set, or among those that need none; NULL after the last
 * one. */
static const RvmImplementation *rvm_implementation_at(const RvmSet *set, int place) {
    const RvmImplementation *const *family = set == NULL ? rvm_families : set->families;
    for (; *family != NULL; family++)
        for (const RvmImplementation *how = *family; how->name != NULL; how++)
            if (place-- == 0) return how;
    return NULL;
}

#endif
