/* What functions in machine code that TVM made of Relax functions work on: lists of values, which they
 * pass to functions of their host by position, and do not look into.
 *
 * Source: TVMBackendAnyList* in c_backend_api.h of TVM.
 */
#ifndef RELAXVM_VM_TIR_IMPL_H
#define RELAXVM_VM_TIR_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <numpy/arrayobject.h>

#include "_ffi_objects.h"
#include "_native.h"

#if defined(_MSC_VER)
#define RVM_EACH_THREAD __declspec(thread)
#else
#define RVM_EACH_THREAD __thread
#endif

/* ---- values as objects of TVM's FFI ----------------------------------------------------------- */

/* Any value of Python; the machine code only passes it on. */
typedef struct {
    RvmObject object;
    PyObject *held;
} rvm_held_value;

/* A tensor over an array.  It has its own dimensions, since a function of Python may give the array
 * others. */
typedef struct {
    RvmObject object;
    RvmTensor tensor;
    PyObject *array;
    int64_t dims[];
} rvm_held_array;

static void rvm_end_held_value(void *self, int what) {
    if (what & 1) Py_DECREF(((rvm_held_value *)self)->held);
    if (what & 2) free(self);
}

static void rvm_end_held_array(void *self, int what) {
    if (what & 1) Py_DECREF(((rvm_held_array *)self)->array);
    if (what & 2) free(self);
}

static void rvm_begin_held(RvmObject *object, int type, void (*destroy)(void *, int)) {
    object->counts = (UINT64_C(1) << 32) | 1;
    object->type = type;
    object->padding = 0;
    object->destroy = destroy;
}

/* NULL if there is no memory. */
static RvmObject *rvm_hold_value(PyObject *value) {
    rvm_held_value *made = (rvm_held_value *)malloc(sizeof *made);
    if (made == NULL) return NULL;
    rvm_begin_held(&made->object, RVM_PYTHON_OBJECT, rvm_end_held_value);
    made->held = Py_NewRef(value);
    return &made->object;
}

/* A contiguous array of a data type.  NULL if there is no memory. */
static RvmObject *rvm_hold_array(PyArrayObject *array, RvmDtype dtype) {
    int ndim = PyArray_NDIM(array);
    rvm_held_array *made =
        (rvm_held_array *)malloc(sizeof *made + (size_t)ndim * sizeof made->dims[0]);
    if (made == NULL) return NULL;
    rvm_begin_held(&made->object, RVM_TENSOR_OBJECT, rvm_end_held_array);
    memset(&made->tensor, 0, sizeof made->tensor);
    made->tensor.data = PyArray_DATA(array);
    made->tensor.device.type = RVM_CPU;
    made->tensor.ndim = ndim;
    made->tensor.dtype = dtype;
    made->tensor.shape = made->dims;
    for (int i = 0; i < ndim; i++) made->dims[i] = PyArray_DIM(array, i);
    made->array = Py_NewRef((PyObject *)array);
    return &made->object;
}

/* The value in an object that was made above, borrowed; NULL for any other. */
static PyObject *rvm_held(const RvmObject *object) {
    if (object->destroy == rvm_end_held_value) return ((const rvm_held_value *)object)->held;
    if (object->destroy == rvm_end_held_array) return ((const rvm_held_array *)object)->array;
    return NULL;
}

/* A new reference for Cython. */
static inline PyObject *rvm_own_value(PyObject *made) { return made; }

/* ---- lists ------------------------------------------------------------------------------------ */

/* Values by position.  The machine code has its address alone. */
typedef struct {
    RvmAny *items;   /* owned; NULL if there are none yet */
    int64_t size;
    PyObject *run;   /* borrowed: makes items that are missing; or NULL */
} rvm_list;

/* Functions of the Cython side. */
static int (*rvm_make_item)(PyObject *run, int64_t index);
static void (*rvm_wrong_index)(int64_t index, int64_t size);

static void rvm_drop_value(RvmAny *value) {
    RvmAny before = *value;
    memset(value, 0, sizeof *value); /* None; what is freed may run code */
    if (before.type >= RVM_OBJECT) rvm_release_object(before.as_object);
}

static void rvm_clear_list(rvm_list *list) {
    for (int64_t i = 0; list->items != NULL && i < list->size; i++) rvm_drop_value(&list->items[i]);
    free(list->items);
    list->items = NULL;
}

static RvmAny *rvm_item(rvm_list *list, int64_t index) {
    if (index < 0 || index >= list->size) {
        rvm_wrong_index(index, list->size);
        return NULL;
    }
    if (list->run != NULL && (list->items == NULL || list->items[index].type == RVM_NONE) &&
        rvm_make_item(list->run, index) != 0)
        return NULL;
    return &list->items[index];
}

/* Each of these is called with the interpreter lock.  The code does not look at what they return: a
 * failure is found at the next call of a function of Python, or when the run ends. */
static int rvm_list_pass(void *list, int index, RvmAny *args, int position) {
    const RvmAny *item = rvm_item((rvm_list *)list, index);
    if (item == NULL) {
        memset(&args[position], 0, sizeof args[position]);
        return -1;
    }
    args[position] = *item; /* lent */
    return 0;
}

static int rvm_list_reset(void *list, int index) {
    RvmAny *item = rvm_item((rvm_list *)list, index);
    if (item == NULL) return -1;
    rvm_drop_value(item);
    return 0;
}

/* The result that a function of the host returned last, until a list takes it over. */
static RVM_EACH_THREAD RvmObject *rvm_pending;

static int rvm_list_take(void *list, int index, RvmAny *results, int position) {
    RvmAny *item = rvm_item((rvm_list *)list, index), *result = &results[position];
    if (item == NULL) return -1;
    if (result->type >= RVM_OBJECT && result->as_object == rvm_pending) rvm_pending = NULL;
    rvm_drop_value(item);
    *item = *result;
    memset(result, 0, sizeof *result);
    return 0;
}

/* The run whose machine code this thread is in, borrowed; NULL outside of any. */
static RVM_EACH_THREAD PyObject *rvm_current_run;

/* Let go of a result that nobody has taken. */
static void rvm_drop_pending(void) {
    RvmObject *pending = rvm_pending;
    rvm_pending = NULL;
    if (pending != NULL) rvm_release_object(pending);
}

static void *rvm_list_function(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"TVMBackendAnyListMoveFromPackedReturn", (void *)rvm_list_take},
        {"TVMBackendAnyListResetItem", (void *)rvm_list_reset},
        {"TVMBackendAnyListSetPackedArg", (void *)rvm_list_pass},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, name) == 0) return functions[i].function;
    return NULL;
}

#endif
