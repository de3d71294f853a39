/* Array headers that are used again.
 *
 * An array over a storage is a header: it owns no elements.  numpy takes some forty nanoseconds to make
 * one and to take it apart, most programs kill as many as they make, and so the loop keeps those that it
 * kills.  A header that is kept holds nothing but its own memory, that of its dimensions and its last
 * data type: the storage goes back to its allocator as it would have.
 *
 * Only a header is kept that nobody else refers to, weakly or as a buffer, and that is just what
 * `rvm_new_array` makes.
 */
#ifndef RELAXVM_HEADER_IMPL_H
#define RELAXVM_HEADER_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>
#include "_code.h"

#define RVM_KEPT_HEADERS 256 /* of each rank */

static PyTypeObject *rvm_storage_type; /* relaxvm._memory.Storage; set when the core is imported */

/* Headers that are kept, by rank, each linked to the next by its `data`; guarded by the GIL. */
static PyArrayObject_fields *rvm_kept_headers[RVM_MAX_DIMS + 1];
static int rvm_num_kept_headers[RVM_MAX_DIMS + 1];

/* Whether arrays are what this file was compiled for: a numpy that adds to them switches it off. */
static inline int rvm_knows_headers(void) {
    return PyArray_Type.tp_basicsize == (Py_ssize_t)sizeof(PyArrayObject_fields);
}

/* Dimensions of a contiguous array, its strides and its flags. */
static inline void rvm_lay_out(PyArrayObject_fields *array, const npy_intp *dims, npy_intp step) {
    int wide = 0, empty = 0; /* dimensions other than 1, and those of 0 */
    for (int i = array->nd - 1; i >= 0; i--) {
        npy_intp dim = dims[i];
        array->dimensions[i] = dim;
        array->strides[i] = step;
        if (dim != 0) step *= dim;
        wide += dim != 1;
        empty += dim == 0;
    }
    array->flags = NPY_ARRAY_CARRAY | (wide < 2 || empty ? NPY_ARRAY_F_CONTIGUOUS : 0);
}

/* A contiguous, writable array over `data` that keeps `base` alive, a storage or an exact array over one;
 * a new reference, or NULL with numpy's exception.  What is known of the dimensions: they are not
 * negative, and their product with the size of an item does not overflow. */
static inline PyObject *rvm_new_array(PyObject *base, char *data, int nd, const npy_intp *dims,
                                      PyArray_Descr *descr, int is_aligned) {
    PyArrayObject_fields *array = rvm_kept_headers[nd];
    PyObject *made = (PyObject *)array;
    npy_intp size = PyDataType_ELSIZE(descr);
    if (RVM_LIKELY(array != NULL && size > 0)) {
        PyArray_Descr *old = array->descr;
        rvm_kept_headers[nd] = (PyArrayObject_fields *)array->data;
        rvm_num_kept_headers[nd]--;
        array->data = data;
        rvm_lay_out(array, dims, size);
        rvm_incref(base);
        array->base = base;
        if (old != descr) {
            rvm_incref((PyObject *)descr);
            array->descr = descr;
            Py_DECREF(old);
        }
    } else {
        Py_INCREF(descr); /* stolen */
        made = PyArray_NewFromDescr(&PyArray_Type, descr, nd, (npy_intp *)dims, NULL, data,
                                    NPY_ARRAY_CARRAY, NULL);
        if (made == NULL) return NULL;
        Py_INCREF(base); /* stolen, also on failure */
        if (PyArray_SetBaseObject((PyArrayObject *)made, base) < 0) {
            Py_DECREF(made);
            return NULL;
        }
    }
    if (RVM_UNLIKELY(!is_aligned)) PyArray_UpdateFlags((PyArrayObject *)made, NPY_ARRAY_ALIGNED);
    return made;
}

/* Whether the last reference to an array is one to a header that may be kept. */
static inline int rvm_is_plain_header(const PyArrayObject_fields *array) {
    PyObject *base = array->base;
    return base != NULL && (Py_TYPE(base) == rvm_storage_type || PyArray_CheckExact(base)) &&
           array->weakreflist == NULL && array->_buffer_info == NULL && array->mem_handler == NULL &&
           !(array->flags & (NPY_ARRAY_OWNDATA | NPY_ARRAY_WRITEBACKIFCOPY)) &&
           array->nd <= RVM_MAX_DIMS && rvm_num_kept_headers[array->nd] < RVM_KEPT_HEADERS;
}

/* Give up the last reference. */
static RVM_NOINLINE void rvm_drop_last(PyObject *object) {
    PyArrayObject_fields *array = (PyArrayObject_fields *)object;
    if (!PyArray_CheckExact(object) || !rvm_knows_headers() || !rvm_is_plain_header(array)) {
        Py_DECREF(object);
        return;
    }
    PyObject *base = array->base;
    array->base = NULL;
    array->data = (char *)rvm_kept_headers[array->nd];
    rvm_kept_headers[array->nd] = array;
    rvm_num_kept_headers[array->nd]++;
    Py_DECREF(base);
}

/* Give up a reference.  It has left the register: what this runs may run this very machine. */
static inline void rvm_drop(PyObject *object) {
    if (Py_REFCNT(object) == 1)
        rvm_drop_last(object);
    else
        Py_DECREF(object);
}

#endif
