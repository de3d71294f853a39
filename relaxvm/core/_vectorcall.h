/* Calls of an extension type through a function pointer in its instances, which Cython has no way to
 * declare. */
#ifndef RELAXVM_VECTORCALL_H
#define RELAXVM_VECTORCALL_H

#include <Python.h>

/* Make calls of a class's instances go through the vectorcallfunc at `offset`. */
static void rvm_use_vectorcall(PyObject *cls, Py_ssize_t offset) {
    PyTypeObject *type = (PyTypeObject *)cls;
    type->tp_vectorcall_offset = offset;
    type->tp_call = PyVectorcall_Call;
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    PyType_Modified(type);
}

#endif
