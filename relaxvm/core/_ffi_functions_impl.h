/* C helpers of _ffi_functions.pyx: what TVM's FFI calls, and what is called of it.
 *
 * Nothing is linked with the FFI: its functions are found by `attach` in a process that has loaded it.
 */
#ifndef RELAXVM_FFI_FUNCTIONS_IMPL_H
#define RELAXVM_FFI_FUNCTIONS_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#include "_ffi_objects.h"
#include "_gil.h"
#include "_native.h"

/* Arguments whose arrays are kept from call to call. */
#define RVM_KEPT_ARGS 16

/* TVM's FFI for C, by the names of its functions. */
typedef struct {
    int (*function_create)(void *self, RvmFunction call, void (*deleter)(void *), void **out);
    int (*function_call)(void *function, const RvmAny *args, int32_t count, RvmAny *result);
    int (*tensor_from_dlpack)(void *managed, int32_t alignment, int32_t contiguous, void **out);
    int (*text_from_bytes)(const RvmBytes *bytes, RvmAny *out);
    int (*bytes_from_bytes)(const RvmBytes *bytes, RvmAny *out);
    void (*set_raised)(const char *kind, const char *message);
} rvm_ffi_api;

static rvm_ffi_api rvm_ffi;

/* ---- objects that are made here --------------------------------------------------------------- */

static void rvm_end_array(void *self, int what) {
    RvmArray *array = (RvmArray *)self;
    if (what & 1)
        for (int64_t i = 0; i < array->size; i++)
            if (array->items[i].type >= RVM_OBJECT) rvm_release_object(array->items[i].as_object);
    if (what & 2) free(array);
}

/* An array without items, and with room for some: NULL if there is no memory. */
static RvmArray *rvm_new_array_object(int64_t capacity) {
    RvmArray *array = (RvmArray *)rvm_new_object(
        RVM_ARRAY, sizeof(RvmArray) + (size_t)capacity * sizeof(RvmAny), rvm_end_array);
    if (array == NULL) return NULL;
    array->items = (RvmAny *)(array + 1);
    array->size = 0;
    array->capacity = capacity;
    array->end_items = NULL;
    return array;
}

static void rvm_end_shape(void *self, int what) {
    if (what & 2) free(self);
}

/* A shape whose dimensions are to be set: NULL if there is no memory. */
static RvmShape *rvm_new_shape_object(int64_t ndim, int64_t **dims) {
    RvmShape *shape = (RvmShape *)rvm_new_object(
        RVM_SHAPE, sizeof(RvmShape) + (size_t)ndim * sizeof(int64_t), rvm_end_shape);
    if (shape == NULL) return NULL;
    *dims = (int64_t *)(shape + 1);
    shape->dims = *dims;
    shape->ndim = (size_t)ndim;
    return shape;
}

/* Whether an array of the FFI's own has the layout above. */
static int rvm_is_plain_array(const RvmArray *array, int64_t size) {
    return array->object.counts == RVM_ONE_REFERENCE && array->object.type == RVM_ARRAY &&
           array->object.destroy != NULL && array->items == (const RvmAny *)(array + 1) &&
           array->size == size && array->capacity >= size && array->end_items == NULL;
}

/* Whether a tensor of the FFI's own has the layout of RvmTensorObject. */
static int rvm_is_plain_tensor(const RvmTensorObject *tensor) {
    return tensor->object.counts == RVM_ONE_REFERENCE && tensor->object.type == RVM_TENSOR_OBJECT &&
           tensor->object.destroy != NULL && tensor->tensor.strides != NULL;
}

/* Whether a shape of the FFI's own has the layout above. */
static int rvm_is_plain_shape(const RvmShape *shape, size_t ndim) {
    return shape->object.counts == RVM_ONE_REFERENCE && shape->object.type == RVM_SHAPE &&
           shape->object.destroy != NULL && shape->dims == (const int64_t *)(shape + 1) &&
           shape->ndim == ndim;
}

/* ---- calls ------------------------------------------------------------------------------------ */

/* Runs a function on arguments of the FFI: -1 with an exception. */
static int (*rvm_run_callee)(void *self, const RvmAny *args, int32_t count, RvmAny *result);

/* Forgets the handle of a function that is freed. */
static void (*rvm_forget)(PyObject *callee);

/* Makes an exception the error of the FFI that the call in progress ends with. */
static void (*rvm_report)(PyObject *error);

/* The kind of error that stands for the exception that is set in this thread. */
#define RVM_ALREADY_SET "EnvErrorAlreadySet"

static void rvm_report_raised(void) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) PyException_SetTraceback(error, traceback);
    rvm_report(error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* The code of every function that is made here.  A caller that holds the interpreter lock is Python
 * code, and gets the exception itself. */
static int rvm_ffi_function(void *self, const RvmAny *args, int32_t count, RvmAny *result) {
    if (!Py_IsInitialized()) { /* static objects of C++ end after the interpreter */
        rvm_ffi.set_raised("RuntimeError", "a function of relaxvm needs Python, which has ended");
        return -1;
    }
    rvm_gil gil = rvm_take_gil();
    int code = rvm_run_callee(self, args, count, result);
    if (code != 0) {
        if (gil.held)
            rvm_ffi.set_raised(RVM_ALREADY_SET, "");
        else
            rvm_report_raised();
    }
    rvm_leave_gil(gil);
    return code;
}

/* Lets go of the callee of a function that nothing refers to any more. */
static void rvm_end_function(void *self) {
    if (!Py_IsInitialized()) return;
    rvm_gil gil = rvm_take_gil();
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback); /* the caller's */
    rvm_forget((PyObject *)self);
    Py_DECREF((PyObject *)self);
    PyErr_Restore(type, error, traceback);
    rvm_leave_gil(gil);
}

#endif
