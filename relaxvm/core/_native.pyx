# cython: auto_pickle=False
"""Native functions: C functions in the calling convention of ``relaxvm/kernel.h``, as Python
callables.

Arguments become C values on the stack, arrays without a copy: a call with a few arrays allocates
nothing.  What does not fit this way (an array to be copied, a string, more than 16 arguments) takes
the fallback.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t, uintptr_t
from libc.string cimport memchr, memcmp

from operator import index as as_index

import numpy as np

from ..errors import BugError, CopyWarning, FormatError, InternalError, RelaxVMError
from ..dtypes import dtype_from_dl, dtype_to_dl
from ..messages import describe, readable, warn
from ..values import Device, Shape, to_value

cimport numpy as cnp

from ._deadlines cimport Run, all_runs, look, rvm_caller
from ._vectorcall cimport use_vectorcall

cnp.import_array()

cdef extern from "_code.h":
    enum:
        RVM_FUNC
    ctypedef struct rvm_func:
        int64_t num_params
        PyObject* name

cdef extern from "_native_impl.h":
    enum:
        RVM_STACK_ARGS, RVM_FEW_DIMS
        RVM_SAID_WHY, RVM_RAISED, RVM_IGNORED
    uint64_t RVM_BIG_CALL
    int RVM_QUICK_CALLS

    ctypedef struct RvmHost:
        pass

    ctypedef struct rvm_slot:
        RvmTensor tensor
        RvmShape shape
        RvmBytes bytes
    ctypedef struct rvm_call:
        char* kind
        char* message
        int said

    const RvmHost rvm_host
    int (*rvm_look)() except -1
    PyObject* rvm_argument(PyObject* const*, PyObject* const*, const int64_t*, Py_ssize_t) noexcept
    bint rvm_is_written(const rvm_kernel*, Py_ssize_t, Py_ssize_t) noexcept
    bint rvm_is_exposed(const rvm_kernel*, const PyObject*, PyObject* const*,
                        const int64_t*, Py_ssize_t, Py_ssize_t) noexcept
    const int64_t* rvm_in_a_row
    object rvm_new_array(PyObject*, const RvmTensor*)
    object rvm_new_shape(object, const RvmShape*)
    PyObject* rvm_known_dtype(RvmDtype) noexcept
    void rvm_meet_dtype(RvmDtype, PyObject*) noexcept
    bint rvm_get_dtype(object, RvmDtype*) noexcept
    void rvm_learn_dtype(int, RvmDtype) noexcept
    int rvm_put(const rvm_kernel*, PyObject* const*, PyObject* const*, const int64_t*, Py_ssize_t,
                RvmAny*, rvm_slot*, uint64_t*) noexcept
    bint rvm_put_locals(const rvm_kernel*, PyObject* const*, PyObject* const*, const int64_t*,
                        Py_ssize_t, RvmTensor* const*, RvmAny*, rvm_slot*, uint64_t*) noexcept
    bint rvm_suits(const rvm_kernel*, int, PyObject* const*, PyObject* const*, const int64_t*,
                  Py_ssize_t) noexcept
    void rvm_put_int(RvmAny*, int, int64_t) noexcept
    bint rvm_get_strides(cnp.ndarray, int64_t*) noexcept
    int rvm_run(rvm_kernel*, const RvmAny*, rvm_slot*, Py_ssize_t, uint64_t*, RvmAny*,
                rvm_call*) noexcept
    void rvm_clear_call(rvm_call*) noexcept
    void rvm_set_raised() noexcept
    int rvm_reraise() except -1
    object rvm_own(PyObject*)
    bint rvm_is_known(cnp.ndarray) noexcept
    object rvm_capsule(cnp.ndarray)
    void* rvm_export_array(cnp.ndarray) except NULL
    RvmObject* rvm_new_tensor_object(cnp.ndarray) except NULL
    PyObject* rvm_base(cnp.ndarray) noexcept
    bint rvm_point_at(cnp.ndarray, const RvmTensor*) noexcept
    bint rvm_is_unmarked(cnp.ndarray) noexcept
    bint rvm_is_whole(cnp.ndarray, const RvmTensor*) noexcept

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject*) noexcept
    PyObject* PyErr_Occurred() noexcept
    PyObject* Py_None
    void Py_INCREF(PyObject*) noexcept
    PyObject* Py_NewRef(object) noexcept
    PyTypeObject* Py_TYPE(PyObject*) noexcept
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

BIG_CALL = RVM_BIG_CALL
"""Bytes of all tensors of a call from which ``release_gil="auto"`` releases the interpreter lock."""

QUICK_CALLS = RVM_QUICK_CALLS
"""If so many of these calls of a kernel in a row took less than 20 microseconds, the next ones, with no
more bytes, keep the lock."""

cdef dict _UNLOCK_FROM = {False: UINT64_MAX, True: 0, "auto": RVM_BIG_CALL}

cdef dict _KINDS = {
    cls.__name__: cls
    for cls in (
        ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, FloatingPointError,
        IndexError, InternalError, KeyError, LookupError, MemoryError, NotImplementedError, OSError,
        OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError,
    )
}

rvm_look = look


def host_address():
    """Address of the ``RvmHost`` that a library's ``relaxvm_attach`` takes."""
    return <uintptr_t>&rvm_host


cdef void set_raised() noexcept:
    """Let the call in progress end with Python's exception that is set, whatever the kernel returns."""
    rvm_set_raised()


@cython.final
@cython.no_gc_clear  # what an object runs when the cycle collector is at it may call this
cdef class NativeFunction:
    """A C function ``int f(void *self, const RvmAny *args, int32_t num_args, RvmAny *ret)``, callable
    from Python and from programs.

    =====================  ================================================================
    argument               the kernel gets
    =====================  ================================================================
    array, of any number   a tensor over the same memory; over a copy if the array is not
    type                   contiguous, aligned and in the machine's byte order
    int, bool, float, None themselves
    str, bytes             UTF-8 text, bytes
    dtype, Device, Shape   themselves
    anything else          what `relaxvm.values.to_value` makes of it, if that is above
    =====================  ================================================================

    The result is None, or an int, bool, float, str, bytes, dtype, device or shape; an object of
    TVM's FFI that is a tensor becomes an array over its memory, which lives as long as the array,
    and an array or list becomes a tuple.

    A kernel that returns other than 0 raises the exception that it has named by ``rvm_error``, or a
    `RelaxVMError` if it has named none; a note on the exception has the kernel's name.  What it has
    told TVM's FFI is raised as TVM would, once `set_error_source` was called.

    A kernel may read its arguments and write to the tensors at the positions `writes`, and must keep
    no pointer after it has returned.  Nothing protects the process from a kernel that goes astray.

    Args:
        address: of the function.
        name: for messages.
        keepalive: an object that is to live as long as this one, such as the library.
        self_address: what is passed as ``self``.
        release_gil: whether other Python threads run during a call: True, False, or ``"auto"``, that
            is if the tensors of the call have `BIG_CALL` bytes or more together, unless the last such
            calls have all been quick.
        writes: positions of arguments that the kernel writes, negative ones from the last.  They
            must be writable; if one has to be copied, the copy is written back.  None if it is not
            known: every argument may be written then, and a copy is written back if the kernel has
            changed it.  Read-only arrays are copied in this case, but for constants of a program.
        strided: whether the kernel reads ``strides``.  It then gets views as they are, and strides
            with every tensor.
        alignment: bytes to which the data of tensors is aligned, a power of two; the element's own
            alignment holds in any case.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has an impossible value.
    """

    def __cinit__(self, address, name, keepalive=None, *, self_address=0, release_gil="auto",
                  writes=(-1,), strided=False, alignment=1):
        if not isinstance(name, str):
            raise TypeError(f"NativeFunction: expected a name, got {describe(name)}")
        address, alignment = as_index(address), as_index(alignment)
        if address <= 0:
            raise ValueError(f"NativeFunction {name!r}: expected an address, got {address}")
        if not 0 < alignment <= 4096 or alignment & (alignment - 1):
            raise ValueError(f"NativeFunction {name!r}: expected an alignment that is a power of two "
                             f"up to 4096, got {alignment}")
        if not isinstance(release_gil, (bool, str)) or release_gil not in _UNLOCK_FROM:
            raise ValueError(f"NativeFunction {name!r}: expected release_gil True, False or 'auto', "
                             f"got {release_gil!r}")
        self.writes = None if writes is None else tuple(map(as_index, writes))
        for position in self.writes or ():
            if not -64 <= position < 64:
                raise ValueError(f"NativeFunction {name!r}: expected positions in writes from -64 to "
                                 f"63, got {position}")
            if position >= 0:
                self.kernel.writes |= <uint64_t>1 << <int>position
            else:
                self.kernel.writes_last |= <uint64_t>1 << <int>(64 + position)
        self.name = name
        self.alignment = alignment
        self._keepalive = keepalive
        self.kernel.call = <RvmFunction><uintptr_t>address
        self.kernel.self = <void*><uintptr_t>as_index(self_address)
        self.kernel.needs = cnp.NPY_ARRAY_ALIGNED | cnp.NPY_ARRAY_WRITEABLE
        if not strided:
            self.kernel.needs |= cnp.NPY_ARRAY_C_CONTIGUOUS
        self.kernel.misaligned = <uintptr_t>(alignment - 1)
        self.kernel.unsure = writes is None
        self.kernel.strided = bool(strided)
        self.kernel.unlock_from = _UNLOCK_FROM[release_gil]
        self._vectorcall = <void*>_vectorcall

    @property
    def address(self):
        """Address of the C function."""
        return <uintptr_t>self.kernel.call

    @property
    def release_gil(self):
        """Whether other Python threads run during a call: True, False or ``"auto"``."""
        return next(policy for policy, bound in _UNLOCK_FROM.items()
                    if bound == self.kernel.unlock_from)

    @property
    def strided(self):
        """Whether the kernel gets views as they are."""
        return bool(self.kernel.strided)

    @property
    def __name__(self):
        return self.name

    def __repr__(self):
        return f"<NativeFunction {readable(self.name)}>"

    def __reduce__(self):
        raise TypeError(f"cannot pickle native function {self.name!r}: its code is in this process "
                        f"only; load the library again")


cdef PyObject* _vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) except NULL:
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    cdef PyObject* result
    cdef uint64_t nbytes
    if kwnames is not NULL and PyTuple_GET_SIZE(kwnames):
        return _refuse_keywords(self)
    if count > RVM_STACK_ARGS:
        result = _call_fallback(self, args, NULL, NULL, count, &nbytes)
    else:
        result = call_native(self, args, NULL, rvm_in_a_row, count, &nbytes)
    if result is Py_None:
        Py_INCREF(result)
    return result


cdef PyObject* _refuse_keywords(PyObject* self) except NULL:
    raise TypeError(f"{(<NativeFunction>self).name}: a native function takes no keyword arguments")


cdef PyObject* call_native(PyObject* self, PyObject* const* fp, PyObject* const* pool_end,
                           const int64_t* words, Py_ssize_t count, uint64_t* nbytes) except NULL:
    """Call a NativeFunction with `count` operands, the registers and constants that `words` name: a
    new reference, or None as a borrowed one, or NULL with an exception.  `nbytes`: of its tensors, or
    fewer where it is known to be quick."""
    cdef rvm_kernel* kernel = &(<NativeFunction>self).kernel
    cdef RvmAny args[RVM_STACK_ARGS]
    cdef rvm_slot slots[RVM_STACK_ARGS]
    cdef RvmAny ret
    cdef rvm_call call
    cdef int flags, code
    if count > RVM_STACK_ARGS:
        return _call_fallback(self, fp, pool_end, words, count, nbytes)
    flags = rvm_put(kernel, fp, pool_end, words, count, args, slots, nbytes)
    if not rvm_suits(kernel, flags, fp, pool_end, words, count):
        return _call_fallback(self, fp, pool_end, words, count, nbytes)
    code = rvm_run(kernel, args, slots, count, nbytes, &ret, &call)
    if code != 0:
        return _fail(self, code, &call)
    if ret.type == RVM_NONE:
        return Py_None
    return _take_result(self, &ret)


cdef int call_locals(PyObject* self, PyObject* const* fp, PyObject* const* pool_end,
                     const int64_t* words, Py_ssize_t count, RvmTensor* const* locals_,
                     uint64_t* nbytes, PyObject** value) except -1:
    """`call_native` where some operands are tensors of no array, see `rvm_put_locals`.

    Returns:
        0 if the kernel does not take them so; else 1, and in `value` None as a borrowed reference, or
        a new reference.
    """
    cdef rvm_kernel* kernel = &(<NativeFunction>self).kernel
    cdef RvmAny args[RVM_STACK_ARGS]
    cdef rvm_slot slots[RVM_STACK_ARGS]
    cdef RvmAny ret
    cdef rvm_call call
    cdef int code
    if count > RVM_STACK_ARGS or not rvm_put_locals(kernel, fp, pool_end, words, count, locals_, args,
                                                    slots, nbytes):
        return 0
    code = rvm_run(kernel, args, slots, count, nbytes, &ret, &call)
    if code != 0:
        _fail(self, code, &call)
    value[0] = Py_None if ret.type == RVM_NONE else _take_result(self, &ret)
    return 1


cdef int call_scalars(PyObject* self, const RvmAny* args, Py_ssize_t count, RvmAny* ret,
                      PyObject** value) except -1:
    """Call a NativeFunction with scalars.

    Returns:
        1 if the result in `ret` is None, an int, a bool or a float; else 0, and a new reference to it
        is in `value`.
    """
    cdef rvm_call call
    cdef uint64_t nbytes = 0
    cdef int code = rvm_run(&(<NativeFunction>self).kernel, args, NULL, count, &nbytes, ret, &call)
    if code != 0:
        _fail(self, code, &call)
    if ret.type in (RVM_NONE, RVM_INT, RVM_BOOL, RVM_REAL):
        return 1
    value[0] = _take_result(self, ret)
    return 0


cdef PyObject* _call_fallback(PyObject* self, PyObject* const* fp, PyObject* const* pool_end,
                            const int64_t* words, Py_ssize_t count, uint64_t* nbytes) except NULL:
    """`call_native` for any number of arguments, of any kind; `words` may be NULL for those in a
    row."""
    cdef _Call call = _Call(<NativeFunction>self, count)
    cdef PyObject* value
    cdef Py_ssize_t i
    if pool_end is not NULL:
        call.frame, call.words = fp, words
    for i in range(count):
        call.position = i
        call.written = rvm_is_written(&call.function.kernel, i, count)
        value = rvm_argument(fp, pool_end, words, i)
        call.exposed = rvm_is_exposed(&call.function.kernel, value, pool_end, words, i, count)
        call.put(<object>value)
    result = call.run()
    nbytes[0] = call.nbytes
    return Py_None if result is None else Py_NewRef(result)


cdef int call_with(NativeFunction function, const RvmAny* args, Py_ssize_t count) except -1:
    """Call with arguments that are no tensors, and let go of the result.  The interpreter lock is kept,
    unless the function always releases it."""
    cdef RvmAny ret
    cdef rvm_call call
    cdef uint64_t nbytes = 0
    cdef int code = rvm_run(&function.kernel, args, NULL, count, &nbytes, &ret, &call)
    if code != 0:
        _fail(<PyObject*>function, code, &call)
    if ret.type >= RVM_OBJECT and ret.as_object is not NULL:
        release(ret.as_object)
    return 0


@cython.final
cdef class _Call:
    """The arguments of one call, and what they point into."""

    cdef NativeFunction function
    cdef RvmAny* values
    cdef rvm_slot* slots
    cdef Py_ssize_t count
    cdef uint64_t nbytes
    cdef list keep      # objects that the arguments point into
    cdef list arrays    # (position, whether exposed, array that is passed)
    cdef list copies    # (array, copy that the kernel writes in its place, the copy before that if
                        # it is not known whether the kernel writes)
    cdef PyObject* const* frame  # of the program that calls, or NULL
    cdef const int64_t* words    # and its operands
    cdef Py_ssize_t position    # of the argument at hand
    cdef bint written           # whether the kernel is known to write it
    cdef bint exposed           # whether it has to be writable to be passed as it is

    def __cinit__(self, NativeFunction function, Py_ssize_t count):
        if count > 0x7FFFFFFF:
            raise ValueError(f"{readable(function.name)}: {count} arguments are too many")
        self.function = function
        self.count = count
        self.keep = []
        self.arrays = []
        self.copies = []
        self.values = <RvmAny*>PyMem_RawMalloc(<size_t>count * sizeof(RvmAny) + 1)
        self.slots = <rvm_slot*>PyMem_RawMalloc(<size_t>count * sizeof(rvm_slot) + 1)
        if self.values is NULL or self.slots is NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_RawFree(self.values)
        PyMem_RawFree(self.slots)

    cdef object run(self):
        cdef RvmAny ret
        cdef rvm_call call
        cdef int code
        self.put_arrays_again()
        code = rvm_run(&self.function.kernel, self.values, self.slots, self.count, &self.nbytes,
                       &ret, &call)
        if code != 0:
            _fail(<PyObject*>self.function, code, &call)
        for position, array, copy, before in self.copies:
            if before is None or not _same_bytes(before, copy):
                self.position = position
                self.check_writable(array)
                np.copyto(array, copy)
        return rvm_own(_take_result(<PyObject*>self.function, &ret))

    cdef int put_arrays_again(self) except -1:
        """Python code that ran while other arguments were converted, in this thread or another, may
        have given an array another shape, which moves its dimensions."""
        self.nbytes = 0
        for position, exposed, array in self.arrays:
            self.position, self.exposed = position, exposed
            if not self.put_as_it_is(array):
                raise ValueError(f"{self.place()}: the array was changed while other arguments were "
                                 f"converted")
        return 0

    cdef bint put_fast(self, object value) noexcept:
        return self.put_for(&self.function.kernel, value)

    cdef bint put_for(self, const rvm_kernel* kernel, object value) noexcept:
        cdef PyObject* argument = <PyObject*>value
        cdef uint64_t nbytes
        cdef int flags = rvm_put(kernel, &argument, NULL, rvm_in_a_row, 1, &self.values[self.position],
                                 &self.slots[self.position], &nbytes)
        cdef int lacks = kernel.needs & ~flags
        if lacks and (self.exposed or lacks != cnp.NPY_ARRAY_WRITEABLE):
            return False
        self.nbytes += nbytes
        return True

    cdef int put(self, object value) except -1:
        cdef RvmAny* arg = &self.values[self.position]
        if type(value) is np.ndarray:
            return self.put_array(value)
        if self.put_fast(value):
            return 0
        if type(value) is int:
            raise ValueError(f"{self.place()}: {describe(value)} does not fit 64 bits")
        rvm_put_int(arg, RVM_NONE, 0)
        if isinstance(value, str):
            return self.put_text(value)
        if isinstance(value, bytes):
            return self.put_bytes(value)
        if isinstance(value, Shape):
            return self.put_shape(value)
        if isinstance(value, np.dtype):
            arg.as_dtype = self.dtype(value)
            arg.type = RVM_DTYPE
        elif isinstance(value, Device):
            arg.as_device.type = value.dlpack_device_type()
            arg.as_device.index = value.index
            arg.type = RVM_DEVICE
        else:
            self.put_converted(value)
        return 0

    cdef int put_text(self, str value) except -1:
        cdef RvmAny* arg = &self.values[self.position]
        cdef Py_ssize_t size
        arg.as_text = PyUnicode_AsUTF8AndSize(value, &size)  # kept with the str
        if memchr(arg.as_text, 0, size) is not NULL:
            raise ValueError(f"{self.place()}: C cannot take a str with a zero character; pass bytes")
        self.keep.append(value)
        arg.type = RVM_TEXT
        return 0

    cdef int put_bytes(self, bytes value) except -1:
        cdef RvmBytes* run = &self.slots[self.position].bytes
        self.keep.append(value)
        run.data = value
        run.size = len(value)
        self.values[self.position].as_bytes = run
        self.values[self.position].type = RVM_BYTES
        return 0

    cdef int put_shape(self, object value) except -1:
        cdef RvmShape* shape = &self.slots[self.position].shape
        cdef cnp.ndarray dims = np.array(value, np.int64)
        self.keep.append(dims)
        shape.object.counts = (<uint64_t>1 << 32) + 1  # the call holds it, strongly and weakly
        shape.object.type = RVM_SHAPE
        shape.object.padding = 0
        shape.object.destroy = NULL
        shape.dims = <const int64_t*>cnp.PyArray_DATA(dims)
        shape.ndim = cnp.PyArray_SIZE(dims)
        self.values[self.position].as_object = &shape.object
        self.values[self.position].type = RVM_SHAPE
        return 0

    cdef int put_converted(self, object value) except -1:
        """An object that has a value of the VM in it: a numpy scalar, a tensor of another library,
        a number of a subclass."""
        plain = to_value(value)
        if isinstance(plain, (bool, int)) and type(plain) is not bool:
            plain = int(plain)
        elif isinstance(plain, float):
            plain = float(plain)
        if plain is value or isinstance(plain, (tuple, list)) or callable(plain):
            raise TypeError(f"{self.place()}: expected a tensor, number, str, bytes, dtype, device, "
                            f"shape or None, got {describe(value)}")
        shared = isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")
        if self.written and isinstance(plain, np.ndarray) and not shared:
            raise TypeError(f"{self.place()}: the kernel writes it; expected an array, got "
                            f"{describe(value)}")
        self.keep.append(plain)
        return self.put(plain)

    cdef int put_array(self, cnp.ndarray array) except -1:
        """An array, or a copy where it cannot be passed."""
        cdef cnp.ndarray passed = array
        if not self.put_fast(array):
            self.dtype(array.dtype)
            if self.written:
                self.check_writable(array)
            if not self.put_as_it_is(array):
                self.report(array)
                passed = _aligned_copy(array, max(self.function.alignment, 64))
                if self.written:
                    self.copies.append((self.position, array, passed, None))
                elif self.function.writes is None:
                    self.copies.append((self.position, array, passed, _before(array, passed)))
                if not self.put_as_it_is(passed):
                    raise BugError(f"{self.place()}: a copy of {describe(array)} does not do")
        self.arrays.append((self.position, self.exposed, passed))
        return 0

    cdef int report(self, cnp.ndarray array) except -1:
        """Warn once of a large argument that is copied, by the name that the program's function has
        for it, if that is the caller."""
        cdef const rvm_func* func = NULL
        cdef Py_ssize_t parameter = -1
        cdef Run* run
        info = None
        if self.function.reported >> (self.position & 63) & 1 or array.nbytes < LARGE_COPY:
            return 0
        if self.frame is not NULL:
            func = <const rvm_func*>self.frame[RVM_FUNC]
            run = rvm_caller(all_runs(), all_runs())
            if run is not NULL:
                info = (<object>run.machine)._info(<str>func.name)
            if 0 <= self.words[self.position] < func.num_params:
                parameter = self.words[self.position]
        return report_copy(self.function, self.position, array, info, parameter)

    cdef int check_writable(self, cnp.ndarray array) except -1:
        if not array.flags.writeable:
            raise ValueError(f"{self.place()}: the kernel writes it, and the array is read-only")
        return 0

    cdef bint put_as_it_is(self, cnp.ndarray array) except -1:
        return self.put_fast(array) or self.put_many_dims(array)

    cdef bint put_many_dims(self, cnp.ndarray array) except -1:
        """An array for a strided kernel whose strides have no room in the slot; false if that is not
        what is in the way."""
        cdef bytes strides = bytes(8 * array.ndim)
        cdef rvm_kernel kernel = self.function.kernel
        if not kernel.strided or not rvm_get_strides(array, <int64_t*><char*>strides):
            return False
        kernel.strided = False
        if not self.put_for(&kernel, array):
            return False
        self.keep.append(strides)
        self.slots[self.position].tensor.strides = <int64_t*><char*>strides
        return True

    cdef RvmDtype dtype(self, object dtype) except *:
        try:
            return _dl_dtype(dtype)
        except TypeError as error:
            raise TypeError(f"{self.place()}: {error}") from None

    cdef str place(self):
        return f"{readable(self.function.name)}: argument {self.position}"


LARGE_COPY = 1 << 16
"""Bytes from which a copy of an argument is reported."""


cdef int report_copy(NativeFunction function, Py_ssize_t position, object array, object caller,
                     Py_ssize_t parameter) except -1:
    """Warn that an argument of a kernel is copied, once for each position, if it is large.

    Args:
        caller: table entry of the function of the program that calls, or None.
        parameter: of the caller: which one it is, or -1.
    """
    if function.reported >> (position & 63) & 1 or array.nbytes < LARGE_COPY:
        return 0
    function.reported |= <uint64_t>1 << (position & 63)
    name = readable(function.name)
    if parameter >= 0:
        names = caller.param_names
        what = repr(names[parameter]) if parameter < len(names) else str(parameter)
        what = f"{readable(caller.name)}: argument {what}"
    else:
        what = f"{name}: argument {position}"
        if caller is not None:
            what = f"{readable(caller.name)}: {what}"
    warn_of_copy(what, name, array, function.alignment)
    return 0


def warn_of_copy(what, name, array, alignment):
    """Warn that a function copies an argument in every call.

    Args:
        what: which argument of what.
        name: of the function that is given the copy.
        alignment: in bytes, that it requires.
    """
    if not is_contiguous(array, 1):
        why = "it is not contiguous"
    elif not is_contiguous(array, alignment):
        why = f"its address is not a multiple of {alignment}"
    else:
        why = "it is read-only, and the kernel may write to it"
    warn(f"{what}, {describe(array)}, is copied for {name} in every call: {why}", CopyWarning)


cdef object _before(cnp.ndarray array, cnp.ndarray copy):
    """What to compare a copy with after the call: the array itself if nobody may write to it."""
    if not cnp.PyArray_ISWRITEABLE(array) and is_contiguous(array, 1):
        return array
    return copy.copy()


cdef bint _same_bytes(cnp.ndarray a, cnp.ndarray b) noexcept:
    return memcmp(cnp.PyArray_DATA(a), cnp.PyArray_DATA(b), cnp.PyArray_NBYTES(a)) == 0


cdef object _aligned_copy(object array, Py_ssize_t alignment):
    """A contiguous copy in the machine's byte order, at an aligned address."""
    cdef cnp.ndarray room
    cdef Py_ssize_t start
    dtype = array.dtype.newbyteorder("=")
    nbytes = array.size * dtype.itemsize
    room = np.empty(nbytes + alignment, np.uint8)
    start = -<Py_ssize_t>cnp.PyArray_DATA(room) & (alignment - 1)
    copy = np.ndarray(array.shape, dtype, room, start)  # a slice of nothing starts anywhere
    np.copyto(copy, array)
    return copy


# ---- results and errors ---------------------------------------------------------------------------


cdef PyObject* _take_result(PyObject* self, RvmAny* ret) except NULL:
    cdef int kind = ret.type
    try:
        result = value_of(ret, (<NativeFunction>self).name, <NativeFunction>self)
    finally:
        if kind >= RVM_OBJECT and ret.as_object is not NULL:
            release(ret.as_object)
    return Py_NewRef(result)


cdef object _sequence(const RvmArray* array, str subject, NativeFunction owner, dict done):
    """The tuple for an array or list object.  One that stands in others many times is made once."""
    cdef Py_ssize_t i
    address = <uintptr_t>array
    made = done.get(address, done)
    if made is None:
        raise ValueError(f"{subject}: the kernel returned a list that contains itself")
    if made is not done:
        return made
    done[address] = None
    enter_recursion(b" in the result of a native function")
    try:
        made = tuple([value_of(&array.items[i], subject, owner, done) for i in range(array.size)])
    finally:
        leave_recursion()
    done[address] = made
    return made


cdef object value_of(const RvmAny* ret, str subject, NativeFunction owner=None, dict done=None):
    """A value that a kernel returned, or that a program in C passes.  An array over a tensor keeps
    the tensor and `owner`."""
    cdef const RvmBytesObject* text
    kind = ret.type
    if kind == RVM_NONE:
        return None
    if kind == RVM_INT:
        return ret.as_int
    if kind == RVM_BOOL:
        return ret.as_int != 0
    if kind == RVM_REAL:
        return ret.as_float
    if kind == RVM_DTYPE:
        return dtype_from_dl(ret.as_dtype.code, ret.as_dtype.bits, ret.as_dtype.lanes)
    if kind == RVM_DEVICE:
        return Device(ret.as_device.type, ret.as_device.index)
    if kind == RVM_SHORT_TEXT and ret.short_size < 8:
        return ret.short_bytes[:ret.short_size].decode()
    if kind == RVM_SHORT_BYTES and ret.short_size < 8:
        return <bytes>ret.short_bytes[:ret.short_size]
    if ret.as_object is not NULL:
        if kind == RVM_TENSOR_OBJECT:
            return array_over(ret.as_object, subject, owner)
        if kind == RVM_ARRAY or kind == RVM_LIST:
            return _sequence(<const RvmArray*>ret.as_object, subject, owner,
                             {} if done is None else done)
        if kind == RVM_PYTHON_OBJECT:
            return <object>(<const RvmPythonObject*>ret.as_object).held
        text = <const RvmBytesObject*>ret.as_object
        if kind == RVM_TEXT_OBJECT:
            return text.bytes.data[:text.bytes.size].decode()
        if kind == RVM_BYTES_OBJECT:
            return <bytes>text.bytes.data[:text.bytes.size]
        if kind == RVM_SHAPE:
            return rvm_new_shape(Shape, <const RvmShape*>ret.as_object)
    raise TypeError(f"{subject}: the kernel returned a value of kind {kind}; expected None, an int, "
                    f"bool, float, str, bytes, dtype, device, shape, tensor or array")


@cython.final
@cython.freelist(16)
@cython.no_gc_clear  # the owner goes after the object
cdef class _Held:
    """A counted object that is kept alive, and what has the code that frees it."""

    cdef RvmObject* object
    cdef object owner

    def __dealloc__(self):
        if self.object is not NULL:
            release(self.object)


cdef object array_over(RvmObject* object, str subject, NativeFunction owner=None):
    """An array over the memory of a tensor object, which it keeps alive, as it does its owner."""
    cdef _Held held
    cdef cnp.ndarray array = fresh_array(&(<RvmTensorObject*>object).tensor, subject)
    held = _Held.__new__(_Held)
    retain(object)
    held.object = object
    held.owner = owner
    cnp.set_array_base(array, held)
    return array


cdef object fresh_array(const RvmTensor* tensor, str subject):
    """An array over the memory of a tensor, which nothing keeps alive."""
    cdef PyObject* dtype
    if tensor.device.type != RVM_CPU:
        raise TypeError(f"{subject}: expected a tensor in host memory, got one on "
                        f"{Device(tensor.device.type, tensor.device.index)}")
    dtype = rvm_known_dtype(tensor.dtype)
    if dtype is NULL:
        dtype = _learn_dtype(subject, tensor.dtype)
    if tensor.ndim > 64:
        raise TypeError(f"{subject}: a tensor of {tensor.ndim} dimensions; arrays have at most 64")
    return rvm_new_array(dtype, tensor)


cdef void keep_under(object array, RvmObject* object) except *:
    """Let an array of `fresh_array` keep the tensor object that it is over."""
    cdef _Held held = _Held.__new__(_Held)
    retain(object)
    held.object = object
    cnp.set_array_base(array, held)


cdef bint point_at(PyObject* array, const RvmTensor* tensor) noexcept:
    """Let an array of `fresh_array` point at another tensor of the same type, dimensions, strides and
    alignment; false if the tensor differs in these."""
    return tensor.device.type == RVM_CPU and rvm_point_at(<object>array, tensor)


cdef bint is_unmarked(PyObject* array) noexcept:
    """Whether an array of `fresh_array` still is one, and no weak reference can find it."""
    return rvm_is_unmarked(<object>array)


cdef bint is_whole(PyObject* array, const RvmTensor* tensor) noexcept:
    """Whether an array is over all of a tensor."""
    return rvm_is_whole(<object>array, tensor)


cdef RvmObject* object_under(object array) noexcept:
    """The tensor object that an array of `array_over` is over, if it still is the whole tensor and
    writable."""
    cdef PyObject* base = rvm_base(array)
    cdef RvmObject* held
    if base is NULL or Py_TYPE(base) is not <PyTypeObject*>_Held:
        return NULL
    held = (<_Held>base).object
    if not cnp.PyArray_ISWRITEABLE(array) or not rvm_is_whole(array, &(<RvmTensorObject*>held).tensor):
        return NULL
    return held


cdef dict _dtypes = {}
"""Data types of numpy by those of DLPack, as far as they were met."""


cdef PyObject* _learn_dtype(str subject, RvmDtype wanted) except NULL:
    """The data type of numpy, which is borrowed."""
    key = wanted.code, wanted.bits, wanted.lanes
    if key not in _dtypes:
        try:
            _dtypes[key] = dtype_from_dl(*key)
        except FormatError as error:
            raise TypeError(f"{subject}: {error}") from None
        rvm_learn_dtype(_dtypes[key].num, wanted)
    rvm_meet_dtype(wanted, <PyObject*>_dtypes[key])
    return <PyObject*>_dtypes[key]


cdef bint has_dtype(const RvmTensor* tensor) except -1:
    """Whether numpy has the data type of a tensor."""
    if rvm_known_dtype(tensor.dtype) is NULL:
        try:
            _learn_dtype("tensor", tensor.dtype)
        except TypeError:
            return False
    return True


def array_of(handle):
    """The array over a tensor of TVM's FFI, without a copy; None if numpy does not have its data type.

    Args:
        handle: address of the tensor object, which lives as long as the array.

    Raises:
        TypeError: it is not in host memory.
    """
    cdef RvmObject* object = <RvmObject*><uintptr_t>handle
    if not has_dtype(&(<RvmTensorObject*>object).tensor):
        return None
    return array_over(object, "tensor")


def is_contiguous(cnp.ndarray array not None, alignment):
    """Whether an array is contiguous, in the machine's byte order and aligned to so many bytes."""
    return (
        cnp.PyArray_CHKFLAGS(array, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_ALIGNED)
        and cnp.PyArray_ISNOTSWAPPED(array)
        and (<uintptr_t>cnp.PyArray_DATA(array) & <uintptr_t>(alignment - 1)) == 0
    )


cdef void* export_array(object array) except NULL:
    """DLPack's managed tensor over an array, which it keeps.

    Raises as `to_dlpack`.
    """
    check_exportable(array)
    return rvm_export_array(array)


cdef RvmObject* tensor_object(object array) except NULL:
    """A tensor object of TVM's FFI over an array, which it keeps.

    Raises as `to_dlpack`.
    """
    check_exportable(array)
    return rvm_new_tensor_object(array)


cdef int check_exportable(cnp.ndarray array) except -1:
    if not cnp.PyArray_ISNOTSWAPPED(array):
        raise BufferError(f"dlpack: data type {array.dtype.str} is not in the machine's byte order")
    if not rvm_is_known(array):
        _dl_dtype(array.dtype)
    return 0


def to_dlpack(cnp.ndarray array not None):
    """A capsule of DLPack over an array, of any data type that DLPack has and whether it may be
    written or not.

    Raises:
        TypeError: DLPack has no such data type.
        BufferError: the array's steps are not whole elements, or its byte order is not the machine's.
    """
    check_exportable(array)
    return rvm_capsule(array)


def copy_aligned(array, alignment):
    """A contiguous copy of an array, in the machine's byte order and at an aligned address."""
    return _aligned_copy(array, alignment)


cdef RvmDtype dl_dtype(object dtype) except *:
    """A data type in C.

    Raises:
        TypeError: DLPack has no such data type.
    """
    cdef RvmDtype found
    return found if rvm_get_dtype(dtype, &found) else _dl_dtype(dtype)


cdef RvmDtype _dl_dtype(object dtype) except *:
    """A data type in C; the fast path knows it from then on."""
    cdef RvmDtype found
    try:
        code, bits, lanes = dtype_to_dl(dtype)
    except FormatError:
        code = bits = lanes = 0
    if not 0 < bits < 256:
        raise TypeError(f"data type {readable(str(dtype))} cannot be passed to C")
    found.code = code
    found.bits = bits
    found.lanes = lanes
    rvm_learn_dtype(dtype.num, found)
    return found


ctypedef void (*_MoveError)(RvmObject**) noexcept

cdef _MoveError _move_error = NULL
cdef object _exception_of = None


def set_error_source(address, exception_of):
    """Where kernels that fail may have left the reason, if they have not told relaxvm.

    Args:
        address: of ``TVMFFIErrorMoveFromRaised``.
        exception_of: makes an exception of kind, message and backtrace.
    """
    global _move_error, _exception_of
    _exception_of = exception_of
    _move_error = <_MoveError><void*><uintptr_t>address


cdef object error_elsewhere():
    """The exception that TVM's FFI has to say of the failure of this thread, or None."""
    cdef RvmObject* raised = NULL
    cdef RvmError* error
    if _move_error is NULL:
        return None
    _move_error(&raised)
    if raised is NULL:
        return None
    error = <RvmError*>raised
    try:
        return _exception_of(_text(&error.kind), _text(&error.message), _text(&error.backtrace))
    finally:
        release(raised)


cdef str _text(const RvmBytes* run):
    return run.data[:run.size].decode("utf-8", "replace")


cdef PyObject* _fail(PyObject* self, int code, rvm_call* call) except NULL:
    """Raise what the kernel said, once, and clear it."""
    cdef NativeFunction function = <NativeFunction>self
    kind = message = None
    if call.said & RVM_SAID_WHY and call.kind is not NULL and call.message is not NULL:
        kind = call.kind.decode("utf-8", "replace")
        message = call.message.decode("utf-8", "replace")
    rvm_clear_call(call)
    try:
        if PyErr_Occurred() is not NULL:  # a Ctrl-C, or Python code that the kernel called
            rvm_reraise()
        if kind is None:
            error = error_elsewhere()
            if error is not None:
                raise error
            raise RelaxVMError(f"{function.name}: the kernel failed with code {code} and did not say "
                               f"why")
        if kind not in _KINDS:
            raise RelaxVMError(f"{kind}: {message}" if kind else message)
        raise _KINDS[kind](message)
    except BaseException as error:
        ignored = code == RVM_IGNORED and call.said & RVM_RAISED
        note = (f"in native function {readable(function.name)}"
                f"{', which returned as if nothing had failed' if ignored else ''}")
        notes = getattr(error, "__notes__", None)
        if not notes or notes[len(notes) - 1] != note:  # else of a function that calls itself
            error.add_note(note)
        raise


cdef NativeFunction _some = NativeFunction(1, "")
use_vectorcall(NativeFunction, <char*>&_some._vectorcall - <char*><PyObject*>_some)
_some = None
