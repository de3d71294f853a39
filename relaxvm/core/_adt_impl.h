/* Values of algebraic data types.
 *
 * A value has a tag, the name of its constructor and a number of fields; it does not change.  The type is
 * written in C, since an object with a variable number of fields is one block of memory, as a tuple is.
 * Everything that walks nested values is in relaxvm/deep.py: it does not recurse.
 */
#ifndef RELAXVM_ADT_IMPL_H
#define RELAXVM_ADT_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include "_code.h"

typedef struct {
    PyObject_VAR_HEAD
    PyObject *constructor; /* its name, an interned string */
    int64_t tag;
    PyObject *fields[1];
} rvm_adt;

static PyTypeObject rvm_adt_type;

/* Freed values with so many fields, linked through `constructor`; guarded by the GIL. */
#define RVM_ADT_SIZES 5
#define RVM_KEPT_ADTS 2000

#ifndef Py_GIL_DISABLED
static rvm_adt *rvm_kept_adts[RVM_ADT_SIZES];
static int rvm_num_kept_adts[RVM_ADT_SIZES];
#endif

/* A new value whose fields the caller sets before it tracks it; NULL with an exception. */
static inline rvm_adt *rvm_alloc_adt(PyObject *constructor, int64_t tag, Py_ssize_t count) {
    rvm_adt *adt;
#ifndef Py_GIL_DISABLED
    if (RVM_LIKELY(count < RVM_ADT_SIZES && rvm_kept_adts[count] != NULL)) {
        adt = rvm_kept_adts[count];
        rvm_kept_adts[count] = (rvm_adt *)adt->constructor;
        rvm_num_kept_adts[count]--;
        Py_SET_REFCNT((PyObject *)adt, 1);
    } else
#endif
    {
        adt = PyObject_GC_NewVar(rvm_adt, &rvm_adt_type, count);
        if (adt == NULL) return NULL;
    }
    rvm_incref(constructor);
    adt->constructor = constructor;
    adt->tag = tag;
    return adt;
}

static inline int rvm_is_adt(PyObject *value) { return Py_TYPE(value) == &rvm_adt_type; }

/* Make a value that is about to be released into another one, so that no new one need be made: true if
 * `old` is a value of as many fields, to which there is no other reference, and that is none of the
 * operands.  See rvm_renew_tuple. */
static inline int rvm_renew_adt(PyObject *old, PyObject *constructor, int64_t tag, PyObject **fp,
                                PyObject **pool_end, const int64_t *words, int64_t count) {
    if (old == NULL || Py_REFCNT(old) != 1 || !rvm_is_adt(old) || Py_SIZE(old) != count) return 0;
    for (int64_t i = 0; i < count; i++)
        if (rvm_load(fp, pool_end, words[i]) == old) return 0;
    rvm_adt *adt = (rvm_adt *)old;
    adt->tag = tag;
    if (adt->constructor != constructor) {
        PyObject *name = adt->constructor;
        rvm_incref(constructor);
        adt->constructor = constructor;
        Py_DECREF(name); /* a string: no code runs */
    }
    for (int64_t i = 0; i < count; i++) {
        PyObject *value = rvm_load(fp, pool_end, words[i]);
        PyObject *field = adt->fields[i];
        if (value == field) continue;
        rvm_incref(value);
        adt->fields[i] = value;
        rvm_drop(field);
    }
    return 1;
}

static inline PyObject *rvm_new_adt(PyObject *constructor, int64_t tag, PyObject **fp,
                                    PyObject **pool_end, const int64_t *words, int64_t count) {
    rvm_adt *adt = rvm_alloc_adt(constructor, tag, (Py_ssize_t)count);
    if (RVM_UNLIKELY(adt == NULL)) return NULL;
    for (int64_t i = 0; i < count; i++) {
        PyObject *value = rvm_load(fp, pool_end, words[i]);
        rvm_incref(value);
        adt->fields[i] = value;
    }
    PyObject_GC_Track((PyObject *)adt);
    return (PyObject *)adt;
}


/* A borrowed field, or NULL where there is none. */
static inline PyObject *rvm_adt_field(PyObject *value, int64_t index) {
    if (RVM_UNLIKELY(!rvm_is_adt(value) || index >= Py_SIZE(value))) return NULL;
    return ((rvm_adt *)value)->fields[index];
}

/* Small tags as ints, made when the core is imported. */
#define RVM_SMALL_TAGS 64
static PyObject *rvm_small_tags[RVM_SMALL_TAGS];

/* A tag as an int; a new reference, or NULL with an exception. */
static inline PyObject *rvm_tag_object(int64_t tag) {
    PyObject *number = tag < RVM_SMALL_TAGS ? rvm_small_tags[tag] : NULL;
    if (RVM_UNLIKELY(number == NULL)) return PyLong_FromLongLong(tag);
    rvm_incref(number);
    return number;
}

/* The tag as an int, or NULL, perhaps with an exception. */
static inline PyObject *rvm_adt_tag(PyObject *value) {
    return RVM_LIKELY(rvm_is_adt(value)) ? rvm_tag_object(((rvm_adt *)value)->tag) : NULL;
}

/* Whether the value is made by one of the constructors that a match knows: per tag the operand of its
 * name, which is interned, and its number of fields. */
static inline int rvm_matches_tag(PyObject *value, PyObject **pool_end, const int64_t *words,
                                  int64_t count) {
    if (RVM_UNLIKELY(!rvm_is_adt(value))) return 0;
    rvm_adt *adt = (rvm_adt *)value;
    if (RVM_UNLIKELY(adt->tag >= count)) return 0;
    words += 2 * adt->tag;
    return RVM_LIKELY(adt->constructor == pool_end[words[0]] && Py_SIZE(value) == words[1]);
}

/* Its tag then; a new reference, or NULL. */
static inline PyObject *rvm_match_tag(PyObject *value, PyObject **pool_end, const int64_t *words,
                                      int64_t count) {
    if (RVM_UNLIKELY(!rvm_matches_tag(value, pool_end, words, count))) return NULL;
    return rvm_tag_object(((rvm_adt *)value)->tag);
}

/* Whether a tag is a number: 1, 0, or -1 where it is not a small int. */
static inline int rvm_tag_is(PyObject *tag, int64_t number) {
    if (RVM_UNLIKELY(!PyLong_CheckExact(tag))) return -1;
#if PY_VERSION_HEX >= 0x030C0000
    if (RVM_UNLIKELY(!PyUnstable_Long_IsCompact((PyLongObject *)tag))) return -1;
    return PyUnstable_Long_CompactValue((PyLongObject *)tag) == number;
#else
    Py_ssize_t size = Py_SIZE(tag);
    if (RVM_UNLIKELY(size < -1 || size > 1)) return -1;
    return (int64_t)size * (int64_t)((PyLongObject *)tag)->ob_digit[0] == number;
#endif
}

/* ---- the type ------------------------------------------------------------------------------- */

/* Call a function of relaxvm.deep; a new reference, or NULL with an exception. */
static PyObject *rvm_call_deep(const char *name, PyObject *a, PyObject *b) {
    PyObject *module = PyImport_ImportModule("relaxvm.deep");
    if (module == NULL) return NULL;
    PyObject *function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    if (function == NULL) return NULL;
    PyObject *result = PyObject_CallFunctionObjArgs(function, a, b, NULL);
    Py_DECREF(function);
    return result;
}

static PyObject *rvm_adt_from_fields(PyObject *constructor, int64_t tag, PyObject *fields) {
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    rvm_adt *adt = rvm_alloc_adt(constructor, tag, count);
    if (adt == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        adt->fields[i] = PyTuple_GET_ITEM(fields, i);
        Py_INCREF(adt->fields[i]);
    }
    PyObject_GC_Track((PyObject *)adt);
    return (PyObject *)adt;
}

/* Whether fields are values as they are: no conversion is needed, and none is a tuple, which might have
 * another owner. */
static int rvm_are_own_fields(PyObject *fields) {
    if (!PyTuple_CheckExact(fields)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); i++) {
        PyObject *item = PyTuple_GET_ITEM(fields, i);
        if (!(rvm_is_adt(item) || PyArray_CheckExact(item) || item == Py_None ||
              PyLong_CheckExact(item) || PyFloat_CheckExact(item) || PyBool_Check(item) ||
              PyUnicode_CheckExact(item)))
            return 0;
    }
    return 1;
}

static PyObject *rvm_adt_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"constructor", "tag", "fields", NULL};
    PyObject *constructor, *fields = NULL;
    long long tag;
    (void)type; /* it has no subclasses */
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UL|O:Adt", names, &constructor, &tag, &fields))
        return NULL;
    if (tag < 0 || tag > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "Adt: tag: expected a number from 0 to %d, got %lld",
                            INT32_MAX, tag);
    PyObject *values;
    if (fields == NULL)
        values = PyTuple_New(0);
    else if (rvm_are_own_fields(fields))
        values = Py_NewRef(fields);
    else
        values = rvm_call_deep("own_fields", fields, NULL);
    if (values == NULL) return NULL;
    PyObject *made = NULL;
    PyObject *name = PyUnicode_FromObject(constructor); /* of a subclass, a string of its own */
    if (name == NULL) {
        Py_DECREF(values);
        return NULL;
    }
    PyUnicode_InternInPlace(&name);
    if (PyTuple_CheckExact(values))
        made = rvm_adt_from_fields(name, tag, values);
    else
        PyErr_SetString(PyExc_TypeError, "Adt: fields: expected a tuple");
    Py_DECREF(name);
    Py_DECREF(values);
    return made;
}

static void rvm_adt_dealloc(PyObject *self) {
    rvm_adt *adt = (rvm_adt *)self;
    Py_ssize_t count = Py_SIZE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, rvm_adt_dealloc) /* programs nest values to any depth */
    for (Py_ssize_t i = count; --i >= 0;) Py_XDECREF(adt->fields[i]);
    Py_DECREF(adt->constructor);
#ifndef Py_GIL_DISABLED
    if (count < RVM_ADT_SIZES && rvm_num_kept_adts[count] < RVM_KEPT_ADTS) {
        adt->constructor = (PyObject *)rvm_kept_adts[count];
        rvm_kept_adts[count] = adt;
        rvm_num_kept_adts[count]++;
    } else
#endif
        PyObject_GC_Del(self);
    Py_TRASHCAN_END
}

static int rvm_adt_traverse(PyObject *self, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_VISIT(((rvm_adt *)self)->fields[i]);
    return 0;
}

static PyObject *rvm_adt_compare(PyObject *a, PyObject *b, int op) {
    if ((op != Py_EQ && op != Py_NE) || !rvm_is_adt(a) || !rvm_is_adt(b)) Py_RETURN_NOTIMPLEMENTED;
    PyObject *result = rvm_call_deep("equal", a, b);
    if (result == NULL || op == Py_EQ) return result;
    int is_equal = PyObject_IsTrue(result);
    Py_DECREF(result);
    return is_equal < 0 ? NULL : PyBool_FromLong(!is_equal);
}

static Py_hash_t rvm_adt_hash(PyObject *self) {
    PyObject *result = rvm_call_deep("hash_of", self, NULL);
    if (result == NULL) return -1;
    Py_hash_t value = PyObject_Hash(result); /* of an int */
    Py_DECREF(result);
    return value;
}

static PyObject *rvm_adt_repr(PyObject *self) { return rvm_call_deep("show", self, NULL); }

static PyObject *rvm_adt_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return rvm_call_deep("reduce", self, NULL);
}

static PyObject *rvm_adt_get_tag(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(((rvm_adt *)self)->tag);
}

static PyObject *rvm_adt_get_constructor(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef(((rvm_adt *)self)->constructor);
}

static PyObject *rvm_adt_get_fields(PyObject *self, void *unused) {
    (void)unused;
    PyObject *fields = PyTuple_New(Py_SIZE(self));
    if (fields == NULL) return NULL;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        PyTuple_SET_ITEM(fields, i, Py_NewRef(((rvm_adt *)self)->fields[i]));
    return fields;
}

static PyGetSetDef rvm_adt_getset[] = {
    {"tag", rvm_adt_get_tag, NULL, "The number of the constructor in its data type.", NULL},
    {"constructor", rvm_adt_get_constructor, NULL, "The name of the constructor.", NULL},
    {"fields", rvm_adt_get_fields, NULL, "The fields, as a new tuple.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef rvm_adt_methods[] = {
    {"__reduce__", rvm_adt_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject rvm_adt_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "relaxvm._core.Adt",
    .tp_doc = "Adt(constructor, tag, fields=())\n--\n\n"
              "A value of an algebraic data type: the name of its constructor, such as \"List.Cons\",\n"
              "its tag and its fields.  It does not change.\n\n"
              "Values are equal if constructors, tags and fields are, tensors by data type, shape and\n"
              "elements.  A value is hashable if its fields are.",
    .tp_basicsize = offsetof(rvm_adt, fields),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = rvm_adt_new,
    .tp_dealloc = rvm_adt_dealloc,
    .tp_traverse = rvm_adt_traverse,
    .tp_free = PyObject_GC_Del,
    .tp_richcompare = rvm_adt_compare,
    .tp_hash = rvm_adt_hash,
    .tp_repr = rvm_adt_repr,
    .tp_getset = rvm_adt_getset,
    .tp_methods = rvm_adt_methods,
};

/* The type, a borrowed reference; NULL with an exception. */
static PyObject *rvm_ready_adt(void) {
    for (int64_t tag = 0; tag < RVM_SMALL_TAGS; tag++) {
        rvm_small_tags[tag] = PyLong_FromLongLong(tag);
        if (rvm_small_tags[tag] == NULL) return NULL;
    }
    return PyType_Ready(&rvm_adt_type) < 0 ? NULL : (PyObject *)&rvm_adt_type;
}

#endif
