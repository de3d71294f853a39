# cython: auto_pickle=False
"""The process as libraries compiled by TVM see it: functions that they call, from `_host_impl.h`, and
how those reach functions of Python."""

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from ._native cimport (RvmAny, RvmBytesObject, RvmDevice, RvmDtype, RvmFunction, RvmObject,
                       RvmTensor, set_raised)
from ._threads cimport rvm_section, run_section, take_pool, threads
from ._vm_tir cimport call_from_vm_tir, in_vm_tir, vm_tir_function

import os
import sys

import numpy as np

from ._native import copy_aligned, host_address
from ..errors import LinkError
from ..dtypes import dtype_from_dl, dtype_to_dl
from ..messages import describe, readable

cnp.import_array()

cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    #include "_host_impl.h"

    static PyObject *rvm_array_over(const RvmTensor *tensor, PyObject *dtype) {
        PyArray_Descr *descr = (PyArray_Descr *)dtype;
        npy_intp strides[NPY_MAXDIMS], *steps = NULL;
        if (tensor->ndim < 0 || tensor->ndim > NPY_MAXDIMS) {
            PyErr_Format(PyExc_ValueError, "a tensor of %d dimensions", (int)tensor->ndim);
            return NULL;
        }
        if (tensor->strides != NULL) {
            for (int i = 0; i < tensor->ndim; i++) strides[i] = tensor->strides[i] * PyDataType_ELSIZE(descr);
            steps = strides;
        }
        Py_INCREF(descr);
        return PyArray_NewFromDescr(&PyArray_Type, descr, tensor->ndim, (npy_intp *)tensor->shape, steps,
                                    (char *)tensor->data + tensor->byte_offset, NPY_ARRAY_WRITEABLE, NULL);
    }

    static void rvm_start_host(int (*find)(PyObject *, const char *, void **),
                               int (*call)(PyObject *, const RvmAny *, int32_t, RvmAny *),
                               uintptr_t errors, void (*set_raised)(void)) {
        rvm_find_python = find;
        rvm_call_python = call;
        rvm_error_host = (const RvmHost *)errors;
        rvm_set_raised = set_raised;
    }
    """
    ctypedef struct rvm_callee:
        RvmFunction native
        PyObject* python
    RvmFunction rvm_packed_function(const char*) noexcept
    ctypedef struct rvm_sequence:
        RvmObject object
        RvmAny* items
        int64_t size
        int64_t capacity
        RvmFunction callee
    int rvm_pass_sequence(void*, const RvmAny*, int32_t, RvmAny*) noexcept nogil
    object rvm_array_over(const RvmTensor*, object)
    void rvm_start_host(int (*)(PyObject*, const char*, void**) except -1,
                        int (*)(PyObject*, const RvmAny*, int32_t, RvmAny*) except -1, uintptr_t,
                        void (*)() noexcept)
    void* rvm_host_function(const char*) noexcept
    void rvm_unload(uintptr_t) noexcept
    int rvm_write_word(uintptr_t, uintptr_t, int) noexcept
    int (*rvm_pool_threads)() noexcept nogil
    int (*rvm_pool_take)(int, int) noexcept nogil
    int (*rvm_pool_run)(rvm_section*, int) noexcept nogil


cdef extern from "_native.h":
    enum:
        RVM_NONE, RVM_INT, RVM_BOOL, RVM_REAL, RVM_DTYPE, RVM_TENSOR, RVM_TEXT, RVM_BYTES
        RVM_SHORT_TEXT, RVM_SHORT_BYTES, RVM_TEXT_OBJECT, RVM_BYTES_OBJECT, RVM_TENSOR_OBJECT
        RVM_CPU
    enum:
        RVM_SEQUENCE
    ctypedef struct RvmTensorObject:
        RvmObject object
        RvmTensor tensor
    ctypedef struct tensor_fields "RvmTensor":
        void* data
        RvmDevice device
        int32_t ndim
        RvmDtype dtype
        int64_t* shape

def host_function(name):
    """Address of the function that a library asks for, None if there is none of this name."""
    cdef bytes symbol = name.encode()
    cdef void* function = rvm_host_function(symbol)
    if function is NULL:
        function = vm_tir_function(symbol)
    return None if function is NULL else <uintptr_t>function


def write_word(place, value, read_only):
    """Write an address into a loaded library.

    Raises:
        OSError: the page cannot be made writable.
    """
    if rvm_write_word(place, value, read_only) != 0:
        raise OSError("a page of the library cannot be made writable")


cdef object _is_finalizing = sys.is_finalizing


@cython.final
cdef class LoadedLibrary:
    """A library that is unloaded when nothing refers to this any more.

    This refers to nothing, so the cycle collector leaves it alone: where it finds a cycle of objects
    that use the library, those have run the last of its code before this goes.

    Args:
        handle: of ``dlopen``.
    """

    cdef readonly uintptr_t handle

    def __cinit__(self, handle):
        self.handle = handle

    def __dealloc__(self):
        if self.handle and not _is_finalizing():  # when other threads may run its code
            rvm_unload(self.handle)


@cython.final
cdef class TensorSequence:
    """Arrays as an array object of TVM's FFI, for a function that takes one.

    Args:
        arrays: contiguous, of types that C knows.
        callee: address of the function.
    """

    cdef rvm_sequence sequence
    cdef RvmTensorObject* tensors
    cdef list arrays

    def __cinit__(self, arrays, callee):
        cdef cnp.ndarray array
        cdef Py_ssize_t i
        cdef tensor_fields* tensor
        self.arrays = []
        for given in arrays:
            self.arrays.append(copy_aligned(given, 64))
        self.tensors = <RvmTensorObject*>calloc(len(self.arrays) + 1, sizeof(RvmTensorObject))
        self.sequence.items = <RvmAny*>calloc(len(self.arrays) + 1, sizeof(RvmAny))
        if self.tensors is NULL or self.sequence.items is NULL:
            raise MemoryError
        _own_object(&self.sequence.object, RVM_SEQUENCE)
        self.sequence.size = self.sequence.capacity = len(self.arrays)
        self.sequence.callee = <RvmFunction><uintptr_t>callee
        for i, array in enumerate(self.arrays):
            _own_object(&self.tensors[i].object, RVM_TENSOR_OBJECT)
            tensor = <tensor_fields*>&self.tensors[i].tensor
            tensor.data = cnp.PyArray_DATA(array)
            tensor.device.type = RVM_CPU
            tensor.ndim = cnp.PyArray_NDIM(array)
            code, bits, lanes = dtype_to_dl(array.dtype)
            tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, lanes
            tensor.shape = <int64_t*>cnp.PyArray_DIMS(array)
            self.sequence.items[i].type = RVM_TENSOR_OBJECT
            self.sequence.items[i].as_object = &self.tensors[i].object

    def __dealloc__(self):
        free(self.tensors)
        free(self.sequence.items)

    @property
    def address(self):
        """What the kernel `function` is registered with."""
        return <uintptr_t>&self.sequence

    @property
    def function(self):
        """Address of a kernel without arguments that calls the function with the arrays."""
        return <uintptr_t>&rvm_pass_sequence


cdef void _own_object(RvmObject* object, int kind) noexcept:
    """A counted object that is never let go of."""
    object.counts = (<uint64_t>1 << 32) + (<uint64_t>1 << 30)
    object.type = kind
    object.padding = 0
    object.destroy = NULL


@cython.final
cdef class _Callee:
    """A function for a library to call."""

    cdef rvm_callee callee
    cdef object python

    def __cinit__(self, python):
        self.python = python
        self.callee.python = <PyObject*>python


cdef class HostContext:
    """What a library has as its context: finds functions that its kernels call by name.

    Args:
        find: name -> callable, None if there is none.
        own: functions of relaxvm by name, in place of which their form in C may run.
        source: the library, for messages.
    """

    cdef object _find
    cdef dict _own
    cdef dict _found
    cdef readonly str source

    def __init__(self, find, source, own=None):
        self._find = find
        self._own = own or {}
        self._found = {}
        self.source = source

    @property
    def address(self):
        """What goes into the library; it has to live as long as the library."""
        return <uintptr_t><PyObject*>self

    cdef RvmFunction _native(self, str name, object function) except *:
        """The same function in C, if it is not one of the user's."""
        cdef bytes symbol = name.encode()
        return rvm_packed_function(symbol) if function is self._own.get(name) else NULL

    cdef _Callee lookup(self, str name):
        found = self._found.get(name)
        if found is None:
            function = self._find(name)
            if function is None:
                raise LinkError(
                    f"{self.source}: a kernel calls {readable(name)!r}, which relaxvm does not have; "
                    f"register a function of this name by relaxvm.register_func", (name,))
            found = _Callee(function)
            (<_Callee>found).callee.native = self._native(name, function)
            found = self._found.setdefault(name, found)
        return found


cdef int _find(PyObject* context, const char* name, void** found) except -1:
    callee = (<HostContext>context).lookup(name.decode("utf-8", "replace"))
    found[0] = &callee.callee  # the context keeps it
    return 0


cdef int _call(PyObject* function, const RvmAny* args, int32_t count, RvmAny* ret) except -1:
    cdef int32_t i
    if in_vm_tir():
        return call_from_vm_tir(<object>function, args, count, ret, _value)
    result = (<object>function)(*[_value(&args[i]) for i in range(count)])
    ret.type = RVM_NONE
    ret.short_size = 0
    ret.as_int = 0
    if result is None:
        return 0
    if isinstance(result, (bool, np.bool_)):
        ret.type = RVM_BOOL
        ret.as_int = bool(result)
    elif isinstance(result, (int, np.integer)):
        ret.type = RVM_INT
        ret.as_int = result
    elif isinstance(result, (float, np.floating)):
        ret.type = RVM_REAL
        ret.as_float = result
    else:
        raise TypeError(f"a function that a kernel calls returned {describe(result)}; expected None, "
                        f"an int, bool or float")
    return 0


cdef object _value(const RvmAny* arg):
    kind = arg.type
    if kind == RVM_NONE:
        return None
    if kind == RVM_INT:
        return arg.as_int
    if kind == RVM_BOOL:
        return arg.as_int != 0
    if kind == RVM_REAL:
        return arg.as_float
    if kind == RVM_DTYPE:
        return dtype_from_dl(arg.as_dtype.code, arg.as_dtype.bits, arg.as_dtype.lanes)
    if kind == RVM_TENSOR:
        return _array(arg.as_tensor)
    if kind == RVM_TENSOR_OBJECT:
        return _array(&(<RvmTensorObject*>arg.as_object).tensor)
    if kind == RVM_TEXT:
        return arg.as_text.decode()
    if kind == RVM_BYTES:
        return <bytes>arg.as_bytes.data[:arg.as_bytes.size]
    if kind == RVM_SHORT_TEXT and arg.short_size < 8:
        return arg.short_bytes[:arg.short_size].decode()
    if kind == RVM_SHORT_BYTES and arg.short_size < 8:
        return <bytes>arg.short_bytes[:arg.short_size]
    if kind == RVM_TEXT_OBJECT:
        return (<RvmBytesObject*>arg.as_object).bytes.data[
            :(<RvmBytesObject*>arg.as_object).bytes.size].decode()
    raise TypeError(f"a kernel passes a value of kind {kind} to a function; expected a tensor, int, "
                    f"bool, float, str, bytes, dtype or None")


cdef object _array(const RvmTensor* tensor):
    """An array over the memory of a tensor, for the time of the call."""
    cdef RvmDtype dtype = (<const tensor_fields*>tensor).dtype
    return rvm_array_over(tensor, dtype_from_dl(dtype.code, dtype.bits, dtype.lanes))


rvm_start_host(_find, _call, host_address(), set_raised)
rvm_pool_threads = threads
rvm_pool_take = take_pool
rvm_pool_run = run_section
