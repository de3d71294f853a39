/* What the native code of compiled functions calls, as far as it needs no classes of the core: see
 * relaxvm/compiled.h. */
#ifndef RELAXVM_COMPILED_IMPL_H
#define RELAXVM_COMPILED_IMPL_H

#include "_adt_impl.h"
#include "_core_impl.h"
#include "_ufunc_impl.h"

#include <relaxvm/compiled.h>

/* Bytes of the C stack for compiled functions that call each other.  The least stack of a thread is
 * 128 KiB; deeper calls run in the loop, which needs none. */
#define RVM_COMPILED_STACK (64 << 10)

enum { RVM_ITEMS_IN_A_ROW = 16 };
static const int64_t rvm_item_words[RVM_ITEMS_IN_A_ROW] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                           8, 9, 10, 11, 12, 13, 14, 15};

static void rvm_compiled_incref(RvmRef value) { rvm_incref(value); }
static void rvm_compiled_decref(RvmRef value) { rvm_drop(value); }

/* The last reference is gone. */
static void rvm_compiled_dealloc(RvmRef value) {
    Py_SET_REFCNT(value, 1);
    rvm_drop(value);
}

static void rvm_hold_error(RvmActivation *a) { PyErr_Fetch(&a->error[0], &a->error[1], &a->error[2]); }

static void rvm_release_error(RvmActivation *a) {
    PyErr_Restore(a->error[0], a->error[1], a->error[2]);
}

static RvmRef rvm_from_int(int64_t value) { return PyLong_FromLongLong((long long)value); }

static RvmRef rvm_from_scalar(const RvmScalar *scalar) {
    switch (scalar->type) {
        case RVM_SCALAR_INT: return PyLong_FromLongLong((long long)scalar->as_int);
        case RVM_SCALAR_BOOL: return PyBool_FromLong(scalar->as_int != 0);
        case RVM_SCALAR_REAL: return PyFloat_FromDouble(scalar->as_float);
        default: return NULL;
    }
}

static int rvm_as_int(RvmRef value, int64_t *number) {
    return value != NULL && rvm_exact_int64(value, number);
}

static int rvm_as_scalar(RvmRef value, RvmScalar *scalar) {
    scalar->padding = 0;
    if (value == NULL || value == Py_None) {
        scalar->type = RVM_SCALAR_NONE;
        scalar->as_int = 0;
    } else if (PyBool_Check(value)) {
        scalar->type = RVM_SCALAR_BOOL;
        scalar->as_int = value == Py_True;
    } else if (PyFloat_CheckExact(value)) {
        scalar->type = RVM_SCALAR_REAL;
        scalar->as_float = PyFloat_AS_DOUBLE(value);
    } else if (rvm_exact_int64(value, &scalar->as_int)) {
        scalar->type = RVM_SCALAR_INT;
    } else {
        return 0;
    }
    return 1;
}

static RvmRef rvm_tuple_of(RvmRef *items, int64_t count) {
    RvmRef tuple = PyTuple_New((Py_ssize_t)count);
    if (tuple == NULL) return NULL;
    for (int64_t i = 0; i < count; i++) {
        RvmRef item = items[i] != NULL ? items[i] : Py_None;
        rvm_incref(item);
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, item);
    }
    return tuple;
}

static RvmRef rvm_compiled_make_adt(RvmRef old, RvmRef constructor, int64_t tag, RvmRef *items,
                                    int64_t count) {
    if (rvm_renew_adt(old, constructor, tag, items, NULL, rvm_item_words, count)) return old;
    return rvm_new_adt(constructor, tag, items, NULL, rvm_item_words, count);
}

static int rvm_compiled_adt_tag(RvmRef x, int64_t *tag) {
    if (!rvm_is_adt(x)) return 0;
    *tag = ((rvm_adt *)x)->tag;
    return 1;
}

static int rvm_compiled_match_tag(RvmRef x, RvmRef *pool_end, const int64_t *constructors,
                                  int64_t count, int64_t *tag) {
    return rvm_matches_tag(x, pool_end, constructors, count) && rvm_compiled_adt_tag(x, tag);
}

static RvmRef rvm_compiled_adt_field(RvmRef x, int64_t index) {
    RvmRef field = rvm_adt_field(x, index);
    if (field != NULL) rvm_incref(field);
    return field;
}

static int rvm_compiled_tag_is(RvmRef tag, int64_t number) { return rvm_tag_is(tag, number); }

static RvmRef rvm_item(RvmRef tuple, int64_t index) {
    if (!PyTuple_CheckExact(tuple) || index >= PyTuple_GET_SIZE(tuple)) return NULL;
    RvmRef item = PyTuple_GET_ITEM(tuple, (Py_ssize_t)index);
    rvm_incref(item);
    return item;
}

static int rvm_compiled_truth(RvmRef value) {
    int truth = rvm_truth(value);
    if (truth < 0) PyErr_Clear(); /* the loop asks again, and raises */
    return truth;
}
static int rvm_compiled_read_cond(RvmRef value) { return rvm_read_cond(value); }

static int rvm_compiled_check_tensor(RvmRef x, int64_t ndim, int64_t dtype) {
    return rvm_check_tensor(x, ndim, (PyArray_Descr *)dtype);
}
static int rvm_compiled_check_shape(RvmRef x, int64_t ndim) { return rvm_check_shape(x, ndim); }
static int rvm_compiled_check_tuple(RvmRef x, int64_t size) { return rvm_check_tuple(x, size); }
static int rvm_compiled_check_prim(RvmRef x, int64_t floats) { return rvm_check_prim(x, floats); }

static int rvm_compiled_match_shape(RvmRef x, RvmRef heap, int64_t last_slot, int64_t count,
                                    const int64_t *pattern) {
    int64_t *slots;
    return rvm_heap_slots(heap, last_slot, &slots) &&
           rvm_match_shape(x, slots, count, pattern) != NULL;
}

/* The same with slots that are not in an array. */
static int rvm_match_slots(RvmRef x, int64_t *slots, int64_t count, const int64_t *pattern) {
    return rvm_match_shape(x, slots, count, pattern) != NULL;
}

static int rvm_compiled_match_prim(RvmRef x, RvmRef heap, int64_t code, int64_t value) {
    return rvm_match_prim(x, heap, code, value);
}
static int rvm_compiled_compute_shape(RvmRef heap, int64_t last_slot, const int64_t *steps) {
    int64_t *slots;
    return rvm_heap_slots(heap, last_slot, &slots) && rvm_compute_shape(slots, steps);
}

static int rvm_load_heap(int64_t site, RvmRef heap_object, int64_t *slots, int64_t count) {
    if (heap_object == NULL || !rvm_is_heap(heap_object, count - 1) ||
        PyArray_SIZE((PyArrayObject *)heap_object) != count)
        return 0;
    const int is_remembered = ((const rvm_site *)site)->object == heap_object;
    if (Py_REFCNT(heap_object) != 1 + is_remembered) return 0; /* others would see its slots change */
    memcpy(slots, rvm_slots(heap_object), (size_t)count * sizeof *slots);
    return 1;
}

static RvmRef rvm_compiled_make_prim(RvmRef heap, int64_t code, int64_t value) {
    return rvm_make_prim(heap, code, value);
}
static RvmRef rvm_compiled_shape_of(int64_t site, RvmRef x) {
    return rvm_shape_of((rvm_site *)site, x);
}
static RvmRef rvm_compiled_make_shape(int64_t site, RvmRef heap, int64_t last_slot, int64_t count,
                                      const int64_t *pattern) {
    int64_t *slots;
    if (!rvm_heap_slots(heap, last_slot, &slots)) return NULL;
    return rvm_make_shape((rvm_site *)site, slots, count, pattern);
}
static RvmRef rvm_shape_from(int64_t site, int64_t count, const int64_t *dims) {
    return rvm_site_shape((rvm_site *)site, count, (const npy_intp *)dims);
}
static RvmRef rvm_compiled_alloc_heap(int64_t site, int64_t slots) {
    return rvm_site_heap((rvm_site *)site, slots);
}
static RvmRef rvm_heap_from(int64_t site, const int64_t *slots, int64_t count) {
    RvmRef heap = rvm_site_heap((rvm_site *)site, count);
    if (heap != NULL)
        memcpy(PyArray_DATA((PyArrayObject *)heap), slots, (size_t)count * sizeof *slots);
    return heap;
}
static void *rvm_elements(RvmRef x, int64_t dtype, int64_t ndim, const int64_t *dims,
                          int is_written) {
    PyArrayObject *array = (PyArrayObject *)x;
    if (!rvm_is_plain(x, is_written ? NPY_ARRAY_CARRAY : RVM_INPUT_FLAGS) ||
        PyArray_DESCR(array) != (PyArray_Descr *)dtype || PyArray_NDIM(array) != ndim)
        return NULL;
    for (int64_t i = 0; i < ndim; i++)
        if (PyArray_DIM(array, (int)i) != dims[i]) return NULL;
    return PyArray_DATA(array);
}

static void *rvm_single(RvmRef x, int64_t dtype, int64_t ndim) {
    PyArrayObject *array = (PyArrayObject *)x;
    if (!rvm_is_plain(x, RVM_INPUT_FLAGS) || PyArray_DESCR(array) != (PyArray_Descr *)dtype ||
        PyArray_NDIM(array) > ndim || rvm_size(array) != 1)
        return NULL;
    return PyArray_DATA(array);
}

static void *rvm_data(RvmRef array) { return PyArray_DATA((PyArrayObject *)array); }

static int rvm_take_float_status(void) {
    if (RVM_LIKELY(!rvm_float_status())) return 0;
    rvm_clear_float_status();
    return 1;
}

static RvmRef rvm_compiled_reshape(RvmRef x, RvmRef shape) { return rvm_reshape(x, shape); }

/* Those that are NULL are set when the core is imported. */
static RvmServices rvm_services = {
    .incref = rvm_compiled_incref,
    .decref = rvm_compiled_decref,
    .dealloc = rvm_compiled_dealloc,
    .clear_error = PyErr_Clear,
    .hold_error = rvm_hold_error,
    .release_error = rvm_release_error,
    .from_int = rvm_from_int,
    .from_scalar = rvm_from_scalar,
    .as_int = rvm_as_int,
    .as_scalar = rvm_as_scalar,
    .tuple_of = rvm_tuple_of,
    .item = rvm_item,
    .make_adt = rvm_compiled_make_adt,
    .adt_tag = rvm_compiled_adt_tag,
    .match_tag = rvm_compiled_match_tag,
    .adt_field = rvm_compiled_adt_field,
    .tag_is = rvm_compiled_tag_is,
    .truth = rvm_compiled_truth,
    .read_cond = rvm_compiled_read_cond,
    .check_tensor = rvm_compiled_check_tensor,
    .check_shape = rvm_compiled_check_shape,
    .check_tuple = rvm_compiled_check_tuple,
    .check_prim = rvm_compiled_check_prim,
    .match_shape = rvm_compiled_match_shape,
    .match_prim = rvm_compiled_match_prim,
    .match_slots = rvm_match_slots,
    .compute_shape = rvm_compiled_compute_shape,
    .load_heap = rvm_load_heap,
    .make_prim = rvm_compiled_make_prim,
    .shape_of = rvm_compiled_shape_of,
    .make_shape = rvm_compiled_make_shape,
    .shape_from = rvm_shape_from,
    .alloc_heap = rvm_compiled_alloc_heap,
    .heap_from = rvm_heap_from,
    .reshape = rvm_compiled_reshape,
    .elements = rvm_elements,
    .single = rvm_single,
    .data = rvm_data,
    .float_status = rvm_take_float_status,
};

/* Run the native code of a site, from `a->ip` on, with what the loop gives it.  Not inlined: the loop
 * would have to keep more in registers. */
static RVM_NOINLINE int rvm_run_compiled(RvmActivation *a, const rvm_site *site,
                                         rvm_active_run *run, PyObject *machine, PyObject *image,
                                         PyObject **pool_end) {
    char here;
    const rvm_func *func = (const rvm_func *)a->fp[RVM_FUNC];
    a->services = &rvm_services;
    a->value = NULL;
    a->pool_end = pool_end;
    a->end = run->end;
    a->calls_left = &run->calls_left;
    a->fuel = &run->fuel;
    a->objects = &run->objects;
    a->census_at = &run->census_at;
    a->stack = (uintptr_t)&here - RVM_COMPILED_STACK;
    a->run = run;
    a->machine = machine;
    a->image = image;
    if (((RvmCompiled)site->data)(a, a->fp, a->ip - func->code) != RVM_FAILED_AT) return 0;
    a->ticks = 0; /* no poll: there is an exception */
    return -1;
}

#endif
