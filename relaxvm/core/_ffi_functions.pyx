# cython: auto_pickle=False
"""Functions that take and return values of a VM, as functions of TVM's FFI.

`new_function` returns the handle of a ``tvm_ffi.Function``.  Its arguments arrive in C, so that a
tensor becomes an array without Python's part of the FFI:

* A tensor that is passed again and again is seen through the same array, if nothing but this module
  refers to it after the call; otherwise the array keeps the tensor.
* A result that is an argument, or an array over a whole tensor, is that tensor; any other array
  becomes a tensor that keeps the array.  Any other object that is an argument, such as a function or a
  map, is that object.
* Tensors and data types that numpy does not have, such as those of four bits, are TVM's objects.
* A tuple that an array or list of the FFI has become is that object as a result, also in other tuples.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t

import numpy as np

from ..errors import FormatError
from ..values import Shape
from . import ffi

cimport numpy as cnp

from ._native cimport (
    RVM_ARRAY, RVM_BOOL, RVM_BYTES, RVM_DTYPE, RVM_FUNCTION, RVM_INT, RVM_LIST, RVM_NONE, RVM_OBJECT,
    RVM_POINTER, RVM_REAL, RVM_SHAPE, RVM_TENSOR, RVM_TENSOR_OBJECT, RVM_TEXT,
    RvmAny, RvmArray, RvmBytes, RvmFunction, RvmObject, RvmShape, RvmTensorObject,
    array_over, enter_recursion, error_elsewhere, export_array, fresh_array, has_dtype, is_unmarked,
    is_whole, keep_under, leave_recursion, object_under, point_at, release, retain, tensor_object,
    value_of,
)

cnp.import_array()

ctypedef void (*_Deleter)(void*) noexcept
ctypedef int (*_Create)(void*, RvmFunction, _Deleter, void**) noexcept
ctypedef int (*_Call)(void*, const RvmAny*, int32_t, RvmAny*) noexcept
ctypedef int (*_Tensor)(void*, int32_t, int32_t, void**) noexcept
ctypedef int (*_Text)(const RvmBytes*, RvmAny*) noexcept
ctypedef void (*_Raise)(const char*, const char*) noexcept

cdef extern from "_ffi_functions_impl.h":
    enum:
        RVM_KEPT_ARGS

    ctypedef struct rvm_ffi_api:
        _Create function_create
        _Call function_call
        _Tensor tensor_from_dlpack
        _Text text_from_bytes
        _Text bytes_from_bytes
        _Raise set_raised

    rvm_ffi_api rvm_ffi
    RvmArray* rvm_new_array_object(int64_t capacity) noexcept
    RvmShape* rvm_new_shape_object(int64_t ndim, int64_t** dims) noexcept
    bint rvm_is_plain_array(const RvmArray*, int64_t size) noexcept
    bint rvm_is_plain_shape(const RvmShape*, size_t ndim) noexcept
    bint rvm_is_plain_tensor(const RvmTensorObject*) noexcept
    int (*rvm_run_callee)(void*, const RvmAny*, int32_t, RvmAny*) except -1
    void (*rvm_forget)(PyObject*) noexcept
    void (*rvm_report)(PyObject*) noexcept
    int rvm_ffi_function(void*, const RvmAny*, int32_t, RvmAny*) noexcept nogil
    void rvm_end_function(void*) noexcept

cdef extern from "Python.h":
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) except NULL
    bint PyLong_CheckExact(PyObject*) noexcept
    bint PyFloat_CheckExact(PyObject*) noexcept
    bint PyTuple_CheckExact(PyObject*) noexcept
    tuple PyTuple_New(Py_ssize_t)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t) noexcept
    void PyTuple_SET_ITEM(PyObject*, Py_ssize_t, PyObject*) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject*) noexcept
    int64_t PyLong_AsLongLong(PyObject*) except? -1
    int64_t PyLong_AsLongLongAndOverflow(PyObject*, int*) except? -1
    double PyFloat_AS_DOUBLE(PyObject*) noexcept
    Py_ssize_t Py_REFCNT(PyObject*) noexcept
    PyTypeObject* Py_TYPE(PyObject*) noexcept
    PyObject* Py_NewRef(object) noexcept
    void Py_DECREF(PyObject*)
    void Py_XDECREF(PyObject*)
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*) except NULL

cdef extern from "numpy/arrayobject.h":
    PyTypeObject PyArray_Type

cdef PyTypeObject* _array = &PyArray_Type
cdef PyTypeObject* _shape = <PyTypeObject*>Shape


@cython.final
@cython.no_gc_clear  # an argument's deallocation may call the function
cdef class _Callee:
    """What a function of the FFI calls, and the arrays of its arguments between calls."""

    cdef object function
    cdef object handle  # an int, so that it is forgotten without memory for another one
    cdef PyObject* kept[RVM_KEPT_ARGS]

    def __dealloc__(self):
        for array in self.kept:
            Py_XDECREF(array)


cdef dict _callees = {}
"""Functions by the handles that were made for them, as long as the handles are valid."""


cdef void _forget(PyObject* callee) noexcept:
    _callees.pop((<_Callee>callee).handle, None)


cdef tuple _functions = ()
cdef object _kept = None
cdef void* _new_array_handle = NULL
cdef void* _new_shape_handle = NULL
cdef bint _plain = False


def attach(library, functions, new_array, new_shape, known):
    """Set what is called of TVM's FFI.

    Args:
        library: returns the address of a function of the FFI for C, by name.
        functions: classes of functions of the VM.
        new_array, new_shape: functions of the FFI that create an array and a shape of their
            arguments.
        known: whether arrays, shapes and tensors of this version of the FFI may be made here, if they
            look as expected.

    Returns:
        Whether they are made here; otherwise `new_array` and `new_shape` are called.
    """
    global _functions, _kept, _new_array_handle, _new_shape_handle, _plain
    rvm_ffi.function_create = <_Create><void*><uintptr_t>library("TVMFFIFunctionCreate")
    rvm_ffi.function_call = <_Call><void*><uintptr_t>library("TVMFFIFunctionCall")
    rvm_ffi.tensor_from_dlpack = <_Tensor><void*><uintptr_t>library("TVMFFITensorFromDLPack")
    rvm_ffi.text_from_bytes = <_Text><void*><uintptr_t>library("TVMFFIStringFromByteArray")
    rvm_ffi.bytes_from_bytes = <_Text><void*><uintptr_t>library("TVMFFIBytesFromByteArray")
    rvm_ffi.set_raised = <_Raise><void*><uintptr_t>library("TVMFFIErrorSetRaisedFromCStr")
    _functions = functions
    _kept = new_array, new_shape  # so that the handles stay valid
    _new_array_handle = <void*><uintptr_t>new_array.__chandle__()
    _new_shape_handle = <void*><uintptr_t>new_shape.__chandle__()
    _plain = known and _are_plain()
    return _plain


cdef bint _are_plain() except *:
    """Whether the FFI's arrays, shapes and tensors have the layout that this module knows."""
    cdef RvmAny values[3]
    cdef RvmAny array, shape, tensor
    for i in range(3):
        values[i].type, values[i].short_size, values[i].as_int = RVM_INT, 0, i
    _call(_new_array_handle, values, 3, &array)
    _call(_new_shape_handle, values, 3, &shape)
    numbers = np.zeros((2, 3), np.float32)
    _export(numbers, &tensor)
    plain = (
        rvm_is_plain_array(<RvmArray*>array.as_object, 3)
        and rvm_is_plain_shape(<RvmShape*>shape.as_object, 3)
        and [(<RvmArray*>array.as_object).items[i].as_int for i in range(3)] == [0, 1, 2]
        and [(<RvmShape*>shape.as_object).dims[i] for i in range(3)] == [0, 1, 2]
        and rvm_is_plain_tensor(<RvmTensorObject*>tensor.as_object)
        and is_whole(<PyObject*>numbers, &(<RvmTensorObject*>tensor.as_object).tensor)
    )
    release(array.as_object)
    release(shape.as_object)
    release(tensor.as_object)
    return plain


def new_function(function):
    """Create a function of TVM's FFI that calls `function` with values.

    Returns:
        Its handle, which the caller owns.
    """
    cdef _Callee callee = _Callee()
    cdef void* handle
    callee.function = function
    if rvm_ffi.function_create(<void*>callee, rvm_ffi_function, rvm_end_function, &handle) != 0:
        raise MemoryError("no memory for a function of TVM's FFI")
    Py_NewRef(callee)  # the FFI's
    try:
        callee.handle = <uintptr_t>handle
        _callees[callee.handle] = function
    except MemoryError:
        release(<RvmObject*>handle)
        raise
    return callee.handle


def release_handle(handle):
    """Let go of an object of TVM's FFI that the caller owns."""
    release(<RvmObject*><uintptr_t>handle)


# ---- a call ---------------------------------------------------------------------------------------


cdef int _run(void* self, const RvmAny* args, int32_t count, RvmAny* result) except -1:
    cdef _Callee callee = <_Callee>self
    cdef PyObject* few[RVM_KEPT_ARGS + 1]
    cdef PyObject** values = few
    cdef PyObject* returned
    cdef rvm_given given
    cdef uint64_t lent = 0  # arguments whose arrays do not keep their tensors
    cdef Py_ssize_t i, taken = 0
    if count > RVM_KEPT_ARGS:
        values = <PyObject**>PyMem_Malloc((<size_t>count + 1) * sizeof(PyObject*))
        if values is NULL:
            raise MemoryError
    values += 1  # the place before is the callee's to use
    try:
        while taken < count:
            values[taken] = _argument(callee, taken, &args[taken], &lent)
            taken += 1
        returned = PyObject_Vectorcall(<PyObject*>callee.function, values,
                                       <size_t>count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        try:
            given.values, given.args, given.count = values, args, count
            _give(returned, result, &given)
        finally:
            Py_DECREF(returned)
    finally:
        for i in range(taken):
            if i < RVM_KEPT_ARGS and lent >> i & 1:
                _take_back(callee, i, values[i], args[i].as_object)
            else:
                Py_DECREF(values[i])
        if count > RVM_KEPT_ARGS:
            PyMem_Free(values - 1)
    return 0


cdef PyObject* _argument(_Callee callee, Py_ssize_t i, const RvmAny* arg, uint64_t* lent) except NULL:
    """An argument as a value: a new reference."""
    cdef PyObject* kept
    if arg.type != RVM_TENSOR_OBJECT or i >= RVM_KEPT_ARGS:
        return Py_NewRef(_value(arg, None))
    lent[0] |= <uint64_t>1 << i
    kept = callee.kept[i]
    callee.kept[i] = NULL
    if kept is not NULL:
        if point_at(kept, &(<RvmTensorObject*>arg.as_object).tensor):
            return kept
        Py_DECREF(kept)
    if not has_dtype(&(<RvmTensorObject*>arg.as_object).tensor):
        lent[0] ^= <uint64_t>1 << i
        return Py_NewRef(_value(arg, None))
    return Py_NewRef(fresh_array(&(<RvmTensorObject*>arg.as_object).tensor, "tensor"))


cdef void _take_back(_Callee callee, Py_ssize_t i, PyObject* array, RvmObject* tensor) noexcept:
    """Keep an array that was lent to a call for the next; or let it keep its tensor, if it is still
    referred to."""
    if Py_REFCNT(array) > 1:
        try:
            keep_under(<object>array, tensor)
        except BaseException:
            retain(tensor)  # for good: the array's memory must stay
    elif callee.kept[i] is NULL and is_unmarked(array):
        callee.kept[i] = array
        return
    Py_DECREF(array)


# ---- values of the FFI ----------------------------------------------------------------------------


cdef object _value(const RvmAny* given, dict known):
    """A value of the FFI as a value of the VM.  `known` is as in `_tuple`."""
    cdef uintptr_t handle
    kind = given.type
    if kind == RVM_TENSOR:  # lent by the caller
        return fresh_array(given.as_tensor, "tensor").copy()
    if kind == RVM_TEXT:
        return given.as_text.decode()
    if kind == RVM_BYTES:
        return <bytes>given.as_bytes.data[:given.as_bytes.size]
    if kind == RVM_DTYPE:
        return _data_type(given)
    if kind == RVM_TENSOR_OBJECT and not has_dtype(&(<RvmTensorObject*>given.as_object).tensor):
        return ffi.object_at(<uintptr_t>given.as_object, kind)
    if kind == RVM_SHAPE or kind == RVM_TENSOR_OBJECT or kind < RVM_OBJECT and kind != RVM_POINTER:
        return value_of(given, "relaxvm")
    if kind == RVM_ARRAY or kind == RVM_LIST:
        return _tuple(<const RvmArray*>given.as_object, known)
    handle = <uintptr_t>given.as_object
    if kind == RVM_FUNCTION and handle in _callees:
        return _callees[handle]
    return ffi.from_ffi(ffi.as_function(ffi.object_at(handle, kind)))


cdef object _data_type(const RvmAny* given):
    """A data type; one that numpy does not have, such as a vector, is TVM's object."""
    try:
        return value_of(given, "relaxvm")
    except FormatError:
        return ffi.object_at(<uintptr_t>given.as_object, RVM_DTYPE)


cdef bint _is_sequence(const RvmAny* given) noexcept:
    return given.type == RVM_ARRAY or given.type == RVM_LIST


cdef bint _is_short(const RvmArray* array) noexcept:
    """Whether an array has few items and none of them is a sequence.  To convert it twice costs less
    than to find out that it is met again."""
    cdef Py_ssize_t i
    for i in range(array.size):
        if i == RVM_KEPT_ARGS or _is_sequence(&array.items[i]):
            return False
    return True


cdef bint _has_long(const RvmArray* array) noexcept:
    """Whether an array has sequences in it that are not short."""
    cdef Py_ssize_t i
    for i in range(array.size):
        if _is_sequence(&array.items[i]) and not _is_short(<RvmArray*>array.items[i].as_object):
            return True
    return False


cdef tuple _tuple(const RvmArray* array, dict known):
    """An array of the FFI as a tuple.  `known` has the tuples of arrays that were met and are not
    short, None for those that are not complete; it is None at first."""
    cdef Py_ssize_t i, size = array.size
    cdef bint is_kept = _has_long(array) if known is None else not _is_short(array)
    cdef tuple items
    if is_kept:
        if known is None:
            known = {}
        elif <uintptr_t>array in known:
            items = known[<uintptr_t>array]
            if items is None:
                raise ValueError("relaxvm: a list contains itself")
            return items
        known[<uintptr_t>array] = None
    enter_recursion(b" in an argument of relaxvm")
    try:
        items = PyTuple_New(size)
        for i in range(size):
            if i >= array.size:
                raise ValueError("relaxvm: a list changed while it was converted")
            PyTuple_SET_ITEM(<PyObject*>items, i, Py_NewRef(_value(&array.items[i], known)))
    finally:
        leave_recursion()
    if is_kept:
        known[<uintptr_t>array] = items
    return items


ctypedef struct rvm_given:
    # The arguments of a call, and the values that were made of them.
    PyObject* const* values
    const RvmAny* args
    Py_ssize_t count


cdef int _give(PyObject* value, RvmAny* result, const rvm_given* given, dict known=None) except -1:
    """Write a result.  `known` has the arrays that were made of tuples, by the addresses of these."""
    cdef Py_ssize_t i
    if Py_TYPE(value) is _array:
        for i in range(given.count):
            if (given.values[i] is value and given.args[i].type == RVM_TENSOR_OBJECT
                    and is_whole(value, &(<RvmTensorObject*>given.args[i].as_object).tensor)):
                return _give_object(given.args[i].as_object, RVM_TENSOR_OBJECT, result)
    elif PyTuple_CheckExact(value):
        return _give_tuple(value, result, given, known)
    else:
        for i in range(given.count):
            if given.args[i].type >= RVM_OBJECT and _is_value_of(value, given.values[i],
                                                                 &given.args[i]):
                return _give_object(given.args[i].as_object, given.args[i].type, result)
    return _give_value(value, result)


cdef bint _is_value_of(PyObject* value, PyObject* given, const RvmAny* arg) except -1:
    """Whether a value is what was made of an argument.  The machine copies a dict, and a function of
    Python may change it."""
    if type(<object>value) is not dict:
        return value is given
    return type(<object>given) is dict and ffi.is_same(<object>value, _value(arg, None))


cdef int _give_object(RvmObject* object, int kind, RvmAny* result) noexcept:
    retain(object)
    return _hand_over(object, kind, result)


cdef int _hand_over(RvmObject* object, int kind, RvmAny* result) noexcept:
    result.type = kind
    result.short_size = 0
    result.as_object = object
    return 0


cdef int _give_value(PyObject* value, RvmAny* result) except -1:
    """Write a result that is not a tuple."""
    cdef int overflow
    result.short_size = 0
    if Py_TYPE(value) is _array:
        return _give_array(<object>value, result)
    if value is Py_None:
        result.type = RVM_NONE
        result.as_int = 0
    elif PyLong_CheckExact(value):
        result.as_int = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return _give_other(<object>value, result)
        result.type = RVM_INT
    elif PyFloat_CheckExact(value):
        result.as_float = PyFloat_AS_DOUBLE(value)
        result.type = RVM_REAL
    elif value is Py_True or value is Py_False:
        result.as_int = value is Py_True
        result.type = RVM_BOOL
    elif Py_TYPE(value) is _shape:
        _give_shape(<object>value, result)
    else:
        _give_other(<object>value, result)
    return 0


cdef int _give_array(object array, RvmAny* result) except -1:
    cdef RvmObject* tensor = object_under(array)
    if tensor is not NULL:
        return _give_object(tensor, RVM_TENSOR_OBJECT, result)
    if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>array):
        array = array.copy()  # a constant of the program must not be changed
    if _plain:
        return _hand_over(tensor_object(array), RVM_TENSOR_OBJECT, result)
    return _export(array, result)


cdef int _export(object array, RvmAny* result) except -1:
    """Let the FFI make a tensor over an array."""
    cdef void* made
    if rvm_ffi.tensor_from_dlpack(export_array(array), 0, 0, &made) != 0:
        raise MemoryError("no memory for a tensor of TVM's FFI")
    return _hand_over(<RvmObject*>made, RVM_TENSOR_OBJECT, result)


cdef int _give_shape(object shape, RvmAny* result) except -1:
    cdef Py_ssize_t i, ndim = len(shape)
    cdef int64_t* dims
    cdef RvmShape* made = rvm_new_shape_object(ndim, &dims)
    if made is NULL:
        raise MemoryError
    try:
        for i in range(ndim):
            dims[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i))
        if not _plain:
            return _call_shape(made, result)
    except BaseException:
        release(&made.object)
        raise
    return _hand_over(&made.object, RVM_SHAPE, result)


cdef int _call_shape(const RvmShape* shape, RvmAny* result) except -1:
    """Let the FFI make a shape, from one of this module, which is freed."""
    cdef _Owned owned = _Owned()
    cdef RvmArray* dims = _new_array(<Py_ssize_t>shape.ndim)
    _hand_over(&dims.object, RVM_ARRAY, &owned.given)
    for size in shape.dims[:shape.ndim]:
        dims.items[dims.size].type = RVM_INT
        dims.items[dims.size].short_size = 0
        dims.items[dims.size].as_int = size
        dims.size += 1
    _call(_new_shape_handle, dims.items, dims.size, result)
    release(<RvmObject*>shape)
    return 0


cdef int _give_other(object value, RvmAny* result) except -1:
    cdef RvmBytes run
    cdef Py_ssize_t size
    if type(value) is str:
        run.data = PyUnicode_AsUTF8AndSize(<PyObject*>value, &size)
        run.size = size
        if rvm_ffi.text_from_bytes(&run, result) != 0:
            raise MemoryError
    elif type(value) is bytes:
        run.data = value
        run.size = len(value)
        if rvm_ffi.bytes_from_bytes(&run, result) != 0:
            raise MemoryError
    elif isinstance(value, _functions):
        _hand_over(<RvmObject*><uintptr_t>new_function(value), RVM_FUNCTION, result)
    else:
        # Python's part of the FFI knows all other objects: let it return this one.
        returns = ffi.as_function(_Returns(ffi.to_ffi(value)))
        _call(<void*><uintptr_t>returns.__chandle__(), NULL, 0, result)
    return 0


@cython.final
cdef class _Returns:
    """A function of no arguments."""

    cdef object value

    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value


@cython.final
cdef class _Owned:
    """An object of the FFI with a reference to it."""

    cdef RvmAny given

    def __dealloc__(self):
        if self.given.type >= RVM_OBJECT:
            release(self.given.as_object)


cdef int _give_tuple(PyObject* value, RvmAny* result, const rvm_given* given, dict known) except -1:
    """Write a tuple as an array of the FFI.  A tuple that stands in others many times is converted
    once."""
    cdef Py_ssize_t i, size = PyTuple_GET_SIZE(value)
    cdef PyObject* item
    cdef _Owned owned
    cdef RvmArray* made
    for i in range(given.count if size else 0):  # there is only one tuple without items
        if given.values[i] is value and _is_sequence(&given.args[i]):
            return _give_object(given.args[i].as_object, given.args[i].type, result)
    made = _new_array(size)
    try:
        enter_recursion(b" in a result of relaxvm")
        try:
            for i in range(size):
                item = PyTuple_GET_ITEM(<object>value, i)
                if not PyTuple_CheckExact(item):
                    _give(item, &made.items[i], given)
                elif _is_short_tuple(item):
                    _give_tuple(item, &made.items[i], given, known)
                else:
                    if known is None:
                        known = {}
                    owned = known.get(<uintptr_t>item)
                    if owned is None:
                        owned = _Owned.__new__(_Owned)
                        _give_tuple(item, &owned.given, given, known)
                        known[<uintptr_t>item] = owned
                    _give_object(owned.given.as_object, owned.given.type, &made.items[i])
                made.size += 1
        finally:
            leave_recursion()
        if not _plain:
            _call(_new_array_handle, made.items, size, result)
    except BaseException:
        release(&made.object)
        raise
    if _plain:
        return _hand_over(&made.object, RVM_ARRAY, result)
    release(&made.object)
    return 0


cdef bint _is_short_tuple(PyObject* value) noexcept:
    """`_is_short`, of a tuple."""
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(value)):
        if i == RVM_KEPT_ARGS or PyTuple_CheckExact(PyTuple_GET_ITEM(<object>value, i)):
            return False
    return True


cdef RvmArray* _new_array(Py_ssize_t size) except NULL:
    cdef RvmArray* made = rvm_new_array_object(size)
    if made is NULL:
        raise MemoryError
    return made


cdef int _call(void* function, const RvmAny* args, Py_ssize_t count, RvmAny* result) except -1:
    """Call a function of the FFI."""
    result.type = RVM_NONE
    result.as_int = 0
    if rvm_ffi.function_call(function, args, <int32_t>count, result) != 0:
        raise error_elsewhere()
    return 0


@cython.final
cdef class _Raises:
    """A function of no arguments that raises an exception."""

    cdef object error

    def __init__(self, error):
        self.error = error

    def __call__(self):
        raise self.error


cdef void _report(PyObject* error) noexcept:
    """Let the FFI make an exception its own error, as it does when a function of Python raises it."""
    cdef RvmAny result
    result.type = RVM_NONE
    result.as_int = 0
    # The error if there is no memory for another, or if the exception cannot be made text.
    rvm_ffi.set_raised(b"RuntimeError", b"relaxvm: an exception that cannot be passed on")
    try:
        raises = ffi.as_function(_Raises(<object>error))
        rvm_ffi.function_call(<void*><uintptr_t>raises.__chandle__(), NULL, 0, &result)
    except BaseException:
        pass  # the caller is told the error above


rvm_run_callee = _run
rvm_forget = _forget
rvm_report = _report
