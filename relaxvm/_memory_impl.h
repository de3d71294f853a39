/* C helpers of the storages. */
#ifndef RELAXVM_MEMORY_IMPL_H
#define RELAXVM_MEMORY_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>

/* An array over `data` that keeps `base` alive; a new reference, or NULL with an exception. */
static inline PyObject *rvm_array_over(PyObject *base, char *data, int nd, const npy_intp *dims,
                                       PyArray_Descr *descr, int check_alignment) {
    Py_INCREF(descr); /* stolen */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, nd, (npy_intp *)dims, NULL, data,
                                           NPY_ARRAY_CARRAY, NULL);
    if (array == NULL) return NULL;
    Py_INCREF(base); /* stolen, also on failure */
    if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    if (check_alignment) PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_ALIGNED);
    return array;
}

/* A new reference for Cython, which takes NULL for the exception that is set. */
static inline PyObject *rvm_own(PyObject *made) { return made; }

#endif
