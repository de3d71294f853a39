/* How many bytes the objects take that a set of references leads to. */
#ifndef RELAXVM_CENSUS_IMPL_H
#define RELAXVM_CENSUS_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>

#include <stdint.h>
#include <string.h>

#include "_header_impl.h" /* rvm_storage_type */

#define RVM_CENSUS_STEPS 4096 /* references that are followed between pauses */

/* Objects found.  An object of one reference is found once; the others are in a hash table of addresses.
 * Containers that have not been looked into are on a stack.  Both own references, since a pause may run
 * any code. */
typedef struct {
    PyTypeObject *closure; /* what a closure is, */
    PyTypeObject *adt;     /* a value of a data type, */
    PyTypeObject *ref;     /* and a reference */
    int (*pause)(void *);  /* -1 with an exception to end the census */
    void *context;         /* its argument */
    PyObject **table;      /* NULL where free; the size is a power of two */
    size_t size;
    size_t used;
    PyObject **waiting;
    size_t room;
    size_t count;
    size_t steps;
    int64_t bytes;
} rvm_census;

/* Of a storage beside the bytes asked for: alignment, the size class of small ones, and malloc's share. */
#define RVM_STORAGE_BYTES 192
/* Of an instance of a class of Python, such as a key-value cache: what its attributes hold. */
#define RVM_INSTANCE_BYTES 1024

/* Of an entry of a dict: hash, key, value, and its share of the index and of what is free. */
#define RVM_ENTRY_BYTES 64

/* The digits of an int. */
static Py_ssize_t rvm_int_digits(PyObject *object) {
#if PY_VERSION_HEX >= 0x030C0000
    return (Py_ssize_t)(((PyLongObject *)object)->long_value.lv_tag >> 3);
#else
    Py_ssize_t digits = ((PyVarObject *)object)->ob_size; /* below 0 for a negative number */
    return digits < 0 ? -digits : digits;
#endif
}

/* The bytes of the characters of a string. */
static int64_t rvm_text_bytes(PyObject *object) {
#if PY_VERSION_HEX < 0x030C0000
    if (!PyUnicode_IS_READY(object)) return 4 * (int64_t)PyUnicode_GET_DATA_SIZE(object);
#endif
    return (int64_t)PyUnicode_KIND(object) * (int64_t)PyUnicode_GET_LENGTH(object);
}

/* The array that owns the elements of an array of objects, NULL if there is none. */
static PyObject *rvm_owner_of_objects(PyObject *object) {
    while (object != NULL && PyArray_Check(object) &&
           PyArray_DESCR((PyArrayObject *)object)->type_num == NPY_OBJECT) {
        if (PyArray_CHKFLAGS((PyArrayObject *)object, NPY_ARRAY_OWNDATA)) return object;
        object = PyArray_BASE((PyArrayObject *)object);
    }
    return NULL;
}

/* Approximately the bytes of an object, without the data of an array. */
static int64_t rvm_object_bytes(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    int64_t bytes = (int64_t)type->tp_basicsize + 16; /* of the collector, or of malloc */
    if (PyArray_Check(object)) {
        /* Dimensions and steps; what stands before data of its own, and malloc's share. */
        int64_t data = PyArray_CHKFLAGS((PyArrayObject *)object, NPY_ARRAY_OWNDATA) ? 64 : 0;
        return bytes + 16 * (int64_t)PyArray_NDIM((PyArrayObject *)object) + 16 + data;
    }
    if (PyTuple_Check(object)) {
        /* A shape is a tuple of ints that belong to it. */
        int64_t item = PyTuple_CheckExact(object) ? 8 : 8 + 32;
        return bytes + item * (int64_t)PyTuple_GET_SIZE(object);
    }
    if (PyUnicode_Check(object)) return bytes + rvm_text_bytes(object);
    if (PyDict_Check(object)) return bytes + RVM_ENTRY_BYTES * (int64_t)PyDict_GET_SIZE(object);
    if (type == rvm_storage_type) return bytes + RVM_STORAGE_BYTES;
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) bytes += RVM_INSTANCE_BYTES;
    if (type->tp_itemsize > 0) {
        Py_ssize_t items =
            PyLong_Check(object) ? rvm_int_digits(object) : ((PyVarObject *)object)->ob_size;
        bytes += (int64_t)type->tp_itemsize * (int64_t)items;
    }
    return bytes;
}

/* The place of an object in a table, or the free one that it is to have. */
static PyObject **rvm_census_place(PyObject **table, size_t size, PyObject *object) {
    size_t at = ((uintptr_t)object >> 4) * (size_t)UINT64_C(0x9E3779B97F4A7C15) >> 20;
    while (table[at & (size - 1)] != NULL && table[at & (size - 1)] != object) at++;
    return &table[at & (size - 1)];
}

static int rvm_census_grow(rvm_census *census) {
    size_t size = census->size ? 2 * census->size : 1024;
    PyObject **table = (PyObject **)PyMem_RawCalloc(size, sizeof *table);
    if (table == NULL) return -1;
    for (size_t i = 0; i < census->size; i++) {
        PyObject *object = census->table[i];
        if (object != NULL) *rvm_census_place(table, size, object) = object;
    }
    PyMem_RawFree(census->table);
    census->table = table;
    census->size = size;
    return 0;
}

/* Enter an object that may have been found before: 1 if it is new, -1 if memory is out. */
static int rvm_census_enter(rvm_census *census, PyObject *object) {
    PyObject **place;
    if (2 * census->used >= census->size && rvm_census_grow(census) < 0) return -1;
    place = rvm_census_place(census->table, census->size, object);
    if (*place == object) return 0;
    *place = object;
    Py_INCREF(object);
    census->used++;
    return 1;
}

static int rvm_census_push(rvm_census *census, PyObject *object) {
    if (census->count == census->room) {
        size_t room = census->room ? 2 * census->room : 256;
        PyObject **waiting =
            (PyObject **)PyMem_RawRealloc(census->waiting, room * sizeof *waiting);
        if (waiting == NULL) return -1;
        census->waiting = waiting;
        census->room = room;
    }
    Py_INCREF(object);
    census->waiting[census->count++] = object;
    return 0;
}

/* Only tuples, arrays of strings, maps, closures, values of data types and references hold further
 * values of a program: what functions and machines refer to was there before.  Whether Python's way to
 * look into an object serves for it: */
static inline int rvm_is_traversed(const rvm_census *census, const PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    return type == census->adt || type == census->closure || type == census->ref ||
           type == &PyDict_Type;
}

/* Count an object if it is new: a visitproc of Python's.  -1 without an exception if memory is out. */
static int rvm_census_visit(PyObject *object, void *arg) {
    rvm_census *census = (rvm_census *)arg;
    if (object == NULL || object == Py_None) return 0;
    if (Py_REFCNT(object) > 1) {
        int entered = rvm_census_enter(census, object);
        if (entered <= 0) return entered;
    }
    census->bytes += rvm_object_bytes(object);
    if (PyTuple_CheckExact(object) || rvm_is_traversed(census, object))
        return rvm_census_push(census, object);
    if (PyArray_Check(object)) {
        PyObject *owner = rvm_owner_of_objects(object);
        if (owner == object) return rvm_census_push(census, object);
        if (owner != NULL) return rvm_census_visit(owner, arg);
    }
    return 0;
}

/* Count the objects in so many registers, and pause now and then. */
static int rvm_census_registers(rvm_census *census, PyObject **registers, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (rvm_census_visit(registers[i], census) < 0) return -1;
        if (++census->steps % RVM_CENSUS_STEPS == 0 && census->pause(census->context) < 0) return -1;
    }
    return 0;
}

/* Look at the elements of an array that owns them.  A pause may run code that changes the array. */
static int rvm_census_elements(rvm_census *census, PyArrayObject *array) {
    for (npy_intp i = 0; i < PyArray_SIZE(array); i++) {
        if (rvm_census_visit(((PyObject **)PyArray_DATA(array))[i], census) < 0) return -1;
        if (++census->steps % RVM_CENSUS_STEPS == 0 && census->pause(census->context) < 0) return -1;
    }
    return 0;
}

/* Look into one object. */
static int rvm_census_items(rvm_census *census, PyObject *object) {
    if (PyArray_Check(object)) return rvm_census_elements(census, (PyArrayObject *)object);
    if (rvm_is_traversed(census, object))
        return Py_TYPE(object)->tp_traverse(object, rvm_census_visit, census) == 0 ? 0 : -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
        if (rvm_census_visit(PyTuple_GET_ITEM(object, i), census) < 0) return -1;
        if (++census->steps % RVM_CENSUS_STEPS == 0 && census->pause(census->context) < 0) return -1;
    }
    return 0;
}

/* Look into what was found.  -1 if memory is out, or with the exception of a pause. */
static int rvm_census_finish(rvm_census *census) {
    while (census->count > 0) {
        PyObject *object = census->waiting[--census->count];
        int done = rvm_census_items(census, object);
        Py_DECREF(object);
        if (done < 0) return -1;
        if (++census->steps % RVM_CENSUS_STEPS == 0 && census->pause(census->context) < 0) return -1;
    }
    return 0;
}

static void rvm_census_free(rvm_census *census) {
    PyObject *kind, *error, *traceback;
    PyErr_Fetch(&kind, &error, &traceback); /* the last reference to an object may be here */
    while (census->count > 0) Py_DECREF(census->waiting[--census->count]);
    for (size_t i = 0; i < census->size; i++) Py_XDECREF(census->table[i]);
    PyErr_Restore(kind, error, traceback);
    PyMem_RawFree(census->table);
    PyMem_RawFree(census->waiting);
}

#endif
