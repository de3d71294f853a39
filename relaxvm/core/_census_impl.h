/* How many bytes the objects take that a set of references leads to. */
#ifndef RELAXVM_CENSUS_IMPL_H
#define RELAXVM_CENSUS_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>

#include <stdint.h>
#include <string.h>

/* Objects found: each once in a hash table of addresses, and those not yet looked into on a stack. */
typedef struct {
    PyObject **table; /* NULL where free; the size is a power of two */
    size_t size;
    size_t used;
    PyObject **waiting;
    size_t room;
    size_t count;
    int64_t bytes;
} rvm_census;

/* Approximately the bytes of an object, without the data of an array. */
static int64_t rvm_object_bytes(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    int64_t bytes = (int64_t)type->tp_basicsize + 16; /* of the collector, or of malloc */
    if (PyArray_Check(object)) return bytes + 16 * (int64_t)PyArray_NDIM((PyArrayObject *)object) + 16;
    if (PyTuple_Check(object)) {
        /* A shape is a tuple of ints that belong to it. */
        int64_t item = PyTuple_CheckExact(object) ? 8 : 8 + 32;
        return bytes + item * (int64_t)PyTuple_GET_SIZE(object);
    }
    if (type->tp_itemsize > 0) {
        Py_ssize_t items = ((PyVarObject *)object)->ob_size;
        bytes += (int64_t)type->tp_itemsize * (int64_t)(items < 0 ? -items : items);
    }
    return bytes;
}

static int rvm_census_grow(rvm_census *census) {
    size_t size = census->size ? 2 * census->size : 1024;
    PyObject **table = (PyObject **)PyMem_RawCalloc(size, sizeof *table);
    if (table == NULL) return -1;
    for (size_t i = 0; i < census->size; i++) {
        PyObject *object = census->table[i];
        if (object == NULL) continue;
        size_t at = ((uintptr_t)object >> 4) * (size_t)UINT64_C(0x9E3779B97F4A7C15) >> 20;
        while (table[at & (size - 1)] != NULL) at++;
        table[at & (size - 1)] = object;
    }
    PyMem_RawFree(census->table);
    census->table = table;
    census->size = size;
    return 0;
}

/* Count an object if it is new: a visitproc of Python's.  -1 without an exception if memory is out. */
static int rvm_census_visit(PyObject *object, void *arg) {
    rvm_census *census = (rvm_census *)arg;
    if (object == NULL || object == Py_None) return 0;
    if (2 * census->used >= census->size && rvm_census_grow(census) < 0) return -1;
    size_t at = ((uintptr_t)object >> 4) * (size_t)UINT64_C(0x9E3779B97F4A7C15) >> 20;
    for (;; at++) {
        PyObject **place = &census->table[at & (census->size - 1)];
        if (*place == object) return 0;
        if (*place != NULL) continue;
        *place = object;
        census->used++;
        break;
    }
    census->bytes += rvm_object_bytes(object);
    if (census->count == census->room) {
        size_t room = census->room ? 2 * census->room : 256;
        PyObject **waiting =
            (PyObject **)PyMem_RawRealloc(census->waiting, room * sizeof *waiting);
        if (waiting == NULL) return -1;
        census->waiting = waiting;
        census->room = room;
    }
    census->waiting[census->count++] = object;
    return 0;
}

/* Count what a root leads to: a value, or a suspended generator, whose variables are visited. */
static int rvm_census_root(PyObject *root, rvm_census *census) {
    if (!PyGen_CheckExact(root)) return rvm_census_visit(root, census);
    return Py_TYPE(root)->tp_traverse(root, rvm_census_visit, census);
}

/* Look into what was found.  Only tuples, lists and closures hold further values of a program: what
 * functions and machines refer to was there before. */
static int rvm_census_finish(rvm_census *census, PyTypeObject *closure) {
    while (census->count > 0) {
        PyObject *object = census->waiting[--census->count];
        if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object) && Py_TYPE(object) != closure)
            continue;
        if (Py_TYPE(object)->tp_traverse(object, rvm_census_visit, census) != 0) return -1;
    }
    return 0;
}

static void rvm_census_free(rvm_census *census) {
    PyMem_RawFree(census->table);
    PyMem_RawFree(census->waiting);
    memset(census, 0, sizeof *census);
}

#endif
