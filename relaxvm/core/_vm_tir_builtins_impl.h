/* Builtins that machine code of TVM calls in every function, in C: memory, shapes, checks of arguments.
 *
 * A form does what its builtin does for ordinary arguments, and leaves all others to it, those among
 * them for which the builtin raises.  It takes no Python code, so a run cannot change under it.
 *
 * Source: relaxvm/builtins, which are the reference.
 */
#ifndef RELAXVM_VM_TIR_BUILTINS_IMPL_H
#define RELAXVM_VM_TIR_BUILTINS_IMPL_H

#include "_vm_tir_impl.h"

#define RVM_FORM_DIMS 16

/* The codes of relaxvm/executable/shape_codes.py, as they stand in files. */
enum { RVM_MATCH_EQUAL, RVM_MATCH_STORE, RVM_MATCH_ANY, RVM_MATCH_EQUAL_SLOT };
enum { RVM_MAKE_IMMEDIATE, RVM_MAKE_SLOT };

/* What the forms of a machine work on. */
typedef struct {
    PyObject *allocators;   /* a tuple, borrowed: one for each device, the host's last */
    PyObject *shape_type;   /* borrowed */
    PyTypeObject *storage_type;
    uintptr_t misaligned;   /* bits of an address that tensors do not have */
} rvm_form_context;

/* The functions of storages, from `_storage`. */
static struct {
    PyObject *(*take)(PyObject *allocator, int64_t nbytes);
    PyObject *(*array)(PyObject *storage, int64_t offset, int nd, const npy_intp *dims,
                       PyArray_Descr *descr);
    int64_t (*nbytes)(PyObject *storage);
    uintptr_t (*data)(PyObject *storage);
} rvm_storages;

/* What a form has done. */
enum {
    RVM_FORM_FAILED = -1,  /* with an exception */
    RVM_FORM_LEFT = 0,     /* to the builtin */
    RVM_FORM_DONE = 1,     /* the result is written */
    RVM_FORM_VALUE = 2,    /* `as_pointer` of the result is a new reference to the value */
    RVM_FORM_ARRAY = 3,    /* the same, and it is a new array that machine code can take as it is */
};
typedef int (*rvm_form)(const rvm_form_context *context, const RvmAny *args, int32_t count,
                        RvmAny *result);

/* ---- arguments: NULL, or false, for what a form leaves ---------------------------------------- */

static PyArrayObject *rvm_form_array(const RvmAny *arg) {
    if (arg->type != RVM_TENSOR_OBJECT || arg->as_object->destroy != rvm_end_held_array) return NULL;
    return (PyArrayObject *)((const rvm_held_array *)arg->as_object)->array;
}

/* A value that is neither an array nor a number. */
static PyObject *rvm_form_value(const RvmAny *arg) {
    if (arg->type != RVM_PYTHON_OBJECT || arg->as_object->destroy != rvm_end_held_value) return NULL;
    return ((const rvm_held_value *)arg->as_object)->held;
}

static PyArray_Descr *rvm_form_dtype(const RvmAny *arg) {
    PyObject *value = rvm_form_value(arg);
    return value != NULL && PyArray_DescrCheck(value) ? (PyArray_Descr *)value : NULL;
}

static int rvm_form_text(const RvmAny *arg) {
    PyObject *value = rvm_form_value(arg);
    return (value != NULL && PyUnicode_CheckExact(value)) || arg->type == RVM_TEXT;
}

/* Whether it is the scope of host memory. */
static int rvm_form_scope(const RvmAny *arg) {
    PyObject *value = rvm_form_value(arg);
    if (value != NULL)
        return PyUnicode_CheckExact(value) && PyUnicode_CompareWithASCIIString(value, "global") == 0;
    return arg->type == RVM_TEXT && strcmp(arg->as_text, "global") == 0;
}

/* The dimensions of a Shape, none of them negative: how many, -1 for what is left. */
static int rvm_form_dims(const rvm_form_context *context, const RvmAny *arg, npy_intp *dims) {
    PyObject *value = rvm_form_value(arg);
    if (value == NULL || (PyObject *)Py_TYPE(value) != context->shape_type) return -1;
    Py_ssize_t ndim = PyTuple_GET_SIZE(value);
    if (ndim > RVM_FORM_DIMS) return -1;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        int overflow;
        dims[i] = (npy_intp)PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(value, i), &overflow);
        if (overflow || dims[i] < 0) return -1;
    }
    return (int)ndim;
}

/* Bytes of so many items; false if they do not fit a word. */
static int rvm_form_bytes(npy_intp itemsize, const npy_intp *dims, int ndim, int64_t *nbytes) {
    int64_t total = itemsize;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] != 0 && total > INT64_MAX / dims[i]) return 0;
        total *= dims[i];
    }
    *nbytes = total;
    return 1;
}

/* The slots of a shape heap, and how many there are. */
static int64_t *rvm_form_heap(const RvmAny *arg, int64_t *slots) {
    PyArrayObject *heap = rvm_form_array(arg);
    if (heap == NULL || PyArray_NDIM(heap) != 1 || PyArray_DESCR(heap)->kind != 'i' ||
        PyArray_ITEMSIZE(heap) != sizeof(int64_t) || !PyArray_ISNOTSWAPPED(heap) ||
        !PyArray_CHKFLAGS(heap, NPY_ARRAY_CARRAY))
        return NULL;
    *slots = PyArray_DIM(heap, 0);
    return (int64_t *)PyArray_DATA(heap);
}

/* ---- results ---------------------------------------------------------------------------------- */

static int rvm_form_none(RvmAny *result) {
    memset(result, 0, sizeof *result);
    return RVM_FORM_DONE;
}

/* Takes over the object. */
static int rvm_form_object(RvmAny *result, int type, RvmObject *object) {
    if (object == NULL) {
        PyErr_NoMemory();
        return RVM_FORM_FAILED;
    }
    result->type = type;
    result->short_size = 0;
    result->as_object = object;
    return RVM_FORM_DONE;
}

/* Takes over the reference; NULL is an exception. */
static int rvm_form_give(RvmAny *result, PyObject *value) {
    if (value == NULL) return RVM_FORM_FAILED;
    RvmObject *object = rvm_hold_value(value);
    Py_DECREF(value);
    return rvm_form_object(result, RVM_PYTHON_OBJECT, object);
}

/* Takes over the reference, as rvm_form_give. */
static int rvm_form_give_array(RvmAny *result, PyObject *array) {
    result->as_pointer = array;
    return array == NULL ? RVM_FORM_FAILED : RVM_FORM_ARRAY;
}

/* The value in a list again: numbers and objects of the lists. */
static int rvm_form_same(const RvmAny *arg, RvmAny *result) {
    if (arg->type >= RVM_OBJECT) {
        if (rvm_held(arg->as_object) == NULL) return RVM_FORM_LEFT;
        rvm_retain_object(arg->as_object);
    } else if (arg->type != RVM_NONE && arg->type != RVM_INT && arg->type != RVM_BOOL &&
               arg->type != RVM_REAL) {
        return RVM_FORM_LEFT;
    }
    *result = *arg;
    return RVM_FORM_DONE;
}

/* ---- the forms -------------------------------------------------------------------------------- */

static int rvm_form_null_value(const rvm_form_context *context, const RvmAny *args, int32_t count,
                               RvmAny *result) {
    (void)context, (void)args;
    return count == 0 ? rvm_form_none(result) : RVM_FORM_LEFT;
}

static int rvm_form_copy(const rvm_form_context *context, const RvmAny *args, int32_t count,
                         RvmAny *result) {
    (void)context;
    return count == 1 ? rvm_form_same(&args[0], result) : RVM_FORM_LEFT;
}

static int rvm_form_alloc_storage(const rvm_form_context *context, const RvmAny *args, int32_t count,
                                  RvmAny *result) {
    npy_intp dims[RVM_FORM_DIMS];
    int64_t nbytes;
    if (count < 4 || count > 5 || args[0].type != RVM_POINTER || args[2].type != RVM_INT) return RVM_FORM_LEFT;
    int ndim = rvm_form_dims(context, &args[1], dims);
    PyArray_Descr *dtype = rvm_form_dtype(&args[3]);
    Py_ssize_t devices = PyTuple_GET_SIZE(context->allocators);
    int64_t device = args[2].as_int == -1 ? devices - 1 : args[2].as_int;
    if (args[0].as_pointer == NULL || ndim < 0 || dtype == NULL || device < 0 || device >= devices ||
        (count == 5 && !rvm_form_scope(&args[4])) ||
        !rvm_form_bytes(PyDataType_ELSIZE(dtype), dims, ndim, &nbytes))
        return RVM_FORM_LEFT;
    PyObject *storage = rvm_storages.take(PyTuple_GET_ITEM(context->allocators, device), nbytes);
    return storage == NULL ? RVM_FORM_LEFT : rvm_form_give(result, storage);
}

static int rvm_form_alloc_tensor(const rvm_form_context *context, const RvmAny *args, int32_t count,
                                 RvmAny *result) {
    npy_intp dims[RVM_FORM_DIMS];
    int64_t nbytes;
    if (count < 4 || count > 5 || args[1].type != RVM_INT) return RVM_FORM_LEFT;
    PyObject *storage = rvm_form_value(&args[0]);
    int ndim = rvm_form_dims(context, &args[2], dims);
    PyArray_Descr *dtype = rvm_form_dtype(&args[3]);
    int64_t offset = args[1].as_int;
    if (storage == NULL || Py_TYPE(storage) != context->storage_type || ndim < 0 || dtype == NULL ||
        PyDataType_REFCHK(dtype) || (count == 5 && !rvm_form_text(&args[4])) ||
        !rvm_form_bytes(PyDataType_ELSIZE(dtype), dims, ndim, &nbytes) || offset < 0 ||
        offset > rvm_storages.nbytes(storage) || nbytes > rvm_storages.nbytes(storage) - offset ||
        (rvm_storages.data(storage) + (uintptr_t)offset) & context->misaligned)
        return RVM_FORM_LEFT;
    return rvm_form_give_array(result, rvm_storages.array(storage, offset, ndim, dims, dtype));
}

static int rvm_form_alloc_shape_heap(const rvm_form_context *context, const RvmAny *args,
                                     int32_t count, RvmAny *result) {
    if (count != 2 || args[0].type != RVM_POINTER || args[0].as_pointer == NULL ||
        args[1].type != RVM_INT || args[1].as_int < 0 || args[1].as_int > INT32_MAX)
        return RVM_FORM_LEFT;
    (void)context;
    npy_intp slots = (npy_intp)args[1].as_int, room = slots + 7;
    PyObject *memory = PyArray_ZEROS(1, &room, NPY_INT64, 0);
    if (memory == NULL) return RVM_FORM_FAILED;
    char *data = PyArray_BYTES((PyArrayObject *)memory);
    PyObject *heap = PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(NPY_INT64), 1, &slots,
                                          NULL, data + (-(uintptr_t)data & 63), NPY_ARRAY_CARRAY,
                                          NULL);
    if (heap == NULL || PyArray_SetBaseObject((PyArrayObject *)heap, Py_NewRef(memory)) < 0)
        Py_CLEAR(heap);
    Py_DECREF(memory);
    return rvm_form_give_array(result, heap);
}

static int rvm_form_check_tensor_info(const rvm_form_context *context, const RvmAny *args,
                                      int32_t count, RvmAny *result) {
    (void)context;
    if (count < 3 || count > 4 || args[1].type != RVM_INT) return RVM_FORM_LEFT;
    PyArrayObject *array = rvm_form_array(&args[0]);
    const RvmAny *error = &args[count - 1];
    if (array == NULL || (args[1].as_int != -1 && args[1].as_int != PyArray_NDIM(array)) ||
        (error->type != RVM_NONE && !rvm_form_text(error)) ||
        (count == 4 && args[2].type != RVM_NONE &&
         rvm_form_dtype(&args[2]) != PyArray_DESCR(array)))
        return RVM_FORM_LEFT;
    return rvm_form_none(result);
}

static int rvm_form_match_shape(const rvm_form_context *context, const RvmAny *args, int32_t count,
                                RvmAny *result) {
    npy_intp room[RVM_FORM_DIMS];
    const npy_intp *dims = room;
    int64_t slots = 0, *heap = NULL;
    int ndim;
    if (count < 3 || args[2].type != RVM_INT || args[2].as_int < 0) return RVM_FORM_LEFT;
    PyArrayObject *array = rvm_form_array(&args[0]);
    if (array != NULL) {
        dims = PyArray_DIMS(array);
        ndim = PyArray_NDIM(array);
    } else if ((ndim = rvm_form_dims(context, &args[0], room)) < 0) {
        return RVM_FORM_LEFT;
    }
    if (args[1].type != RVM_NONE && (heap = rvm_form_heap(&args[1], &slots)) == NULL) return RVM_FORM_LEFT;
    if (args[2].as_int != ndim || (count != 3 + 2 * ndim && count != 4 + 2 * ndim)) return RVM_FORM_LEFT;
    if (count == 4 + 2 * ndim && args[count - 1].type != RVM_NONE && !rvm_form_text(&args[count - 1]))
        return RVM_FORM_LEFT;
    for (int i = 0; i < ndim; i++) {
        const RvmAny *code = &args[3 + 2 * i], *value = code + 1;
        if (code->type != RVM_INT || value->type != RVM_INT) return RVM_FORM_LEFT;
        int uses_heap = code->as_int == RVM_MATCH_STORE || code->as_int == RVM_MATCH_EQUAL_SLOT;
        if (uses_heap && (heap == NULL || value->as_int < 0 || value->as_int >= slots)) return RVM_FORM_LEFT;
        /* What is left after this has stored dimensions stores them again. */
        if (code->as_int == RVM_MATCH_STORE)
            heap[value->as_int] = dims[i];
        else if (code->as_int == RVM_MATCH_EQUAL ? value->as_int != dims[i]
                 : code->as_int == RVM_MATCH_EQUAL_SLOT ? heap[value->as_int] != dims[i]
                                                        : code->as_int != RVM_MATCH_ANY)
            return RVM_FORM_LEFT;
    }
    return rvm_form_none(result);
}

static int rvm_form_make_shape(const rvm_form_context *context, const RvmAny *args, int32_t count,
                               RvmAny *result) {
    int64_t slots = 0, *heap = NULL;
    if (count < 2 || args[1].type != RVM_INT || args[1].as_int < 0 ||
        args[1].as_int > RVM_FORM_DIMS || count != 2 + 2 * args[1].as_int)
        return RVM_FORM_LEFT;
    if (args[0].type != RVM_NONE && (heap = rvm_form_heap(&args[0], &slots)) == NULL) return RVM_FORM_LEFT;
    PyTypeObject *type = (PyTypeObject *)context->shape_type;
    PyObject *shape = type->tp_alloc(type, (Py_ssize_t)args[1].as_int);
    for (Py_ssize_t i = 0; shape != NULL && i < PyTuple_GET_SIZE(shape); i++) {
        const RvmAny *code = &args[2 + 2 * i], *value = code + 1;
        int known = code->type == RVM_INT && value->type == RVM_INT;
        int64_t dim = known ? value->as_int : 0;
        if (known && code->as_int == RVM_MAKE_SLOT) {
            known = heap != NULL && dim >= 0 && dim < slots;
            if (known) dim = heap[dim];
        } else if (known) {
            known = code->as_int == RVM_MAKE_IMMEDIATE;
        }
        PyObject *number = known ? PyLong_FromLongLong(dim) : NULL;
        if (number == NULL) {
            Py_DECREF(shape);
            return known ? RVM_FORM_FAILED : RVM_FORM_LEFT;
        }
        PyTuple_SET_ITEM(shape, i, number);
    }
    return rvm_form_give(result, shape);
}

/* A value in a list as one of Python, a new reference; NULL without an exception for what is left. */
static PyObject *rvm_form_item(const RvmAny *arg) {
    if (arg->type == RVM_NONE) return Py_NewRef(Py_None);
    PyObject *held = arg->type >= RVM_OBJECT ? rvm_held(arg->as_object) : NULL;
    return Py_XNewRef(held);
}

static int rvm_form_make_tuple(const rvm_form_context *context, const RvmAny *args, int32_t count,
                               RvmAny *result) {
    (void)context;
    PyObject *made = PyTuple_New(count);
    for (int32_t i = 0; made != NULL && i < count; i++) {
        PyObject *item = rvm_form_item(&args[i]);
        if (item == NULL) {
            Py_DECREF(made);
            return RVM_FORM_LEFT;
        }
        PyTuple_SET_ITEM(made, i, item);
    }
    return rvm_form_give(result, made);
}

static int rvm_form_tuple_getitem(const rvm_form_context *context, const RvmAny *args,
                                  int32_t count, RvmAny *result) {
    (void)context;
    PyObject *items = count == 2 ? rvm_form_value(&args[0]) : NULL;
    if (items == NULL || !PyTuple_CheckExact(items) || args[1].type != RVM_INT ||
        args[1].as_int < 0 || args[1].as_int >= PyTuple_GET_SIZE(items))
        return RVM_FORM_LEFT;
    result->as_pointer = Py_NewRef(PyTuple_GET_ITEM(items, (Py_ssize_t)args[1].as_int));
    return RVM_FORM_VALUE;
}

static int rvm_form_reshape(const rvm_form_context *context, const RvmAny *args, int32_t count,
                            RvmAny *result) {
    npy_intp room[RVM_FORM_DIMS];
    if (count != 2) return RVM_FORM_LEFT;
    PyArrayObject *array = rvm_form_array(&args[0]);
    PyArray_Dims dims = {room, rvm_form_dims(context, &args[1], room)};
    int64_t nbytes;
    if (array == NULL || !PyArray_CheckExact((PyObject *)array) || dims.len < 0 ||
        !rvm_form_bytes(PyArray_ITEMSIZE(array), room, dims.len, &nbytes) ||
        nbytes != PyArray_NBYTES(array))
        return RVM_FORM_LEFT;
    result->as_pointer = PyArray_Newshape(array, &dims, NPY_CORDER);
    return result->as_pointer == NULL ? RVM_FORM_FAILED : RVM_FORM_VALUE;
}

static int rvm_form_shape_of(const rvm_form_context *context, const RvmAny *args, int32_t count,
                             RvmAny *result) {
    PyArrayObject *array = count == 1 ? rvm_form_array(&args[0]) : NULL;
    if (array == NULL) return RVM_FORM_LEFT;
    PyTypeObject *type = (PyTypeObject *)context->shape_type;
    PyObject *shape = type->tp_alloc(type, PyArray_NDIM(array));
    for (int i = 0; shape != NULL && i < PyArray_NDIM(array); i++) {
        PyObject *dim = PyLong_FromLongLong(PyArray_DIM(array, i));
        if (dim == NULL)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, i, dim);
    }
    return rvm_form_give(result, shape);
}

static int rvm_form_read_if_cond(const rvm_form_context *context, const RvmAny *args, int32_t count,
                                 RvmAny *result) {
    (void)context;
    PyArrayObject *array = count == 1 ? rvm_form_array(&args[0]) : NULL;
    int64_t read;
    if (count != 1) return RVM_FORM_LEFT;
    if (args[0].type == RVM_BOOL || args[0].type == RVM_INT)
        read = args[0].as_int != 0;
    else if (array != NULL && PyArray_DESCR(array)->kind == 'b' && PyArray_SIZE(array) > 0)
        read = *(const npy_bool *)PyArray_DATA(array) != 0;
    else
        return RVM_FORM_LEFT;
    result->type = RVM_BOOL;
    result->short_size = 0;
    result->as_int = read;
    return RVM_FORM_DONE;
}

/* The builtins that have a form. */
static const struct {
    const char *name;
    rvm_form form;
} rvm_forms[] = {
    {"vm.builtin.alloc_shape_heap", rvm_form_alloc_shape_heap},
    {"vm.builtin.alloc_storage", rvm_form_alloc_storage},
    {"vm.builtin.alloc_tensor", rvm_form_alloc_tensor},
    {"vm.builtin.check_tensor_info", rvm_form_check_tensor_info},
    {"vm.builtin.copy", rvm_form_copy},
    {"vm.builtin.make_shape", rvm_form_make_shape},
    {"vm.builtin.make_tuple", rvm_form_make_tuple},
    {"vm.builtin.match_shape", rvm_form_match_shape},
    {"vm.builtin.null_value", rvm_form_null_value},
    {"vm.builtin.read_if_cond", rvm_form_read_if_cond},
    {"vm.builtin.reshape", rvm_form_reshape},
    {"vm.builtin.shape_of", rvm_form_shape_of},
    {"vm.builtin.tuple_getitem", rvm_form_tuple_getitem},
};
enum { RVM_NUM_FORMS = sizeof rvm_forms / sizeof rvm_forms[0] };

#endif
