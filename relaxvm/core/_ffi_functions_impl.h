/* C helpers of _ffi_functions.pyx: what TVM's FFI calls, and what is called of it.
 *
 * Nothing is linked with the FFI: its functions are found by `attach` in a process that has loaded it.
 */
#ifndef RELAXVM_FFI_FUNCTIONS_IMPL_H
#define RELAXVM_FFI_FUNCTIONS_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

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
    PyGILState_STATE state = PyGILState_Ensure();
    int code = rvm_run_callee(self, args, count, result);
    if (code != 0) {
        if (state == PyGILState_LOCKED)
            rvm_ffi.set_raised(RVM_ALREADY_SET, "");
        else
            rvm_report_raised();
    }
    PyGILState_Release(state);
    return code;
}

/* Lets go of the callee of a function that nothing refers to any more. */
static void rvm_end_function(void *self) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback); /* the caller's */
    rvm_forget((PyObject *)self);
    Py_DECREF((PyObject *)self);
    PyErr_Restore(type, error, traceback);
    PyGILState_Release(state);
}

#endif
