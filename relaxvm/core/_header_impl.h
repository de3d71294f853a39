/* A free list of array headers.
 *
 * An array over a storage is a header only: it does not own its elements.  numpy takes some forty
 * nanoseconds to make and free one, and programs free about as many as they make, so the loop keeps freed
 * headers for the next array.  A kept header holds its own memory, that of its dimensions, and a reference
 * to its last data type; the storage is released as usual.
 *
 * A header is only kept if there are no other references to it, weak references and buffers included, and
 * if it is of the kind that `rvm_new_array` makes.
 */
#ifndef RELAXVM_HEADER_IMPL_H
#define RELAXVM_HEADER_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>
#include "_code.h"

#define RVM_KEPT_HEADERS 256 /* at most, of each rank */

/* Set when the core is imported. */
static PyTypeObject *rvm_storage_type; /* relaxvm.core._storage.Storage */
static PyTypeObject *rvm_array_type;   /* of numpy, without a look into its table of functions */
static PyTypeObject *rvm_header_type;  /* the same, or NULL where array objects have another layout */

/* Kept headers by rank, a list linked through `data`; guarded by the GIL. */
static PyArrayObject_fields *rvm_kept_headers[RVM_MAX_DIMS + 1];
static int rvm_num_kept_headers[RVM_MAX_DIMS + 1];

/* Set the types.  If a version of numpy adds fields to arrays, no headers are kept. */
static inline void rvm_set_header_types(PyTypeObject *array, PyTypeObject *storage) {
    rvm_array_type = array;
    rvm_storage_type = storage;
    rvm_header_type =
        array->tp_basicsize == (Py_ssize_t)sizeof(PyArrayObject_fields) ? array : NULL;
}

/* Set the dimensions, strides and flags of a contiguous array. */
static inline void rvm_lay_out(PyArrayObject_fields *array, const npy_intp *dims, npy_intp step) {
    int wide = 0, empty = 0; /* numbers of dimensions other than 1, and equal to 0 */
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

/* A new contiguous, writable array over `data`, or NULL with numpy's exception.  It keeps `base` alive,
 * which is a storage or an exact array over one.  The caller has checked that dimensions are not negative
 * and that the size in bytes does not overflow. */
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

/* Whether an object to which there is one reference is a header of the kind that `rvm_new_array` makes,
 * and nothing else refers to its memory. */
static inline int rvm_is_plain_header(const PyArrayObject_fields *array) {
    PyObject *base;
    if (Py_TYPE((PyObject *)array) != rvm_header_type) return 0;
    base = array->base;
    return base != NULL && (Py_TYPE(base) == rvm_storage_type || Py_TYPE(base) == rvm_array_type) &&
           array->weakreflist == NULL && array->_buffer_info == NULL && array->mem_handler == NULL &&
           !(array->flags & (NPY_ARRAY_OWNDATA | NPY_ARRAY_WRITEBACKIFCOPY)) &&
           array->nd <= RVM_MAX_DIMS;
}

/* Let an array that is about to be released be one over other memory, so that no new one need be made:
 * true if `old` is a plain header of this rank and data type to which there is no other reference. */
static inline int rvm_renew_array(PyObject *old, PyObject *base, char *data, int nd,
                                  const npy_intp *dims, PyArray_Descr *descr, int is_aligned) {
    PyArrayObject_fields *array = (PyArrayObject_fields *)old;
    npy_intp size = PyDataType_ELSIZE(descr);
    if (old == NULL || Py_REFCNT(old) != 1 || !rvm_is_plain_header(array) || array->nd != nd ||
        array->descr != descr || size == 0 || !is_aligned)
        return 0;
    array->data = data;
    rvm_lay_out(array, dims, size);
    if (array->base != base) {
        PyObject *before = array->base;
        rvm_incref(base);
        array->base = base;
        Py_DECREF(before);
    }
    return 1;
}

/* Drop the last reference. */
static RVM_NOINLINE void rvm_drop_last(PyObject *object) {
    PyArrayObject_fields *array = (PyArrayObject_fields *)object;
    if (!rvm_is_plain_header(array) ||
        rvm_num_kept_headers[array->nd] >= RVM_KEPT_HEADERS) {
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

/* Drop a reference.  The caller has cleared the register before: destructors may run this machine. */
static inline void rvm_drop(PyObject *object) {
#if PY_VERSION_HEX < 0x030E0000 && !defined(Py_REF_DEBUG) && !defined(Py_GIL_DISABLED)
#if PY_VERSION_HEX >= 0x030C0000
    if (_Py_IsImmortal(object)) return;
#endif
    if (RVM_UNLIKELY(--object->ob_refcnt == 0)) {
        object->ob_refcnt = 1; /* one comparison less than looking first */
        rvm_drop_last(object);
    }
#else
    if (Py_REFCNT(object) == 1)
        rvm_drop_last(object);
    else
        Py_DECREF(object);
#endif
}

#endif
