# cython: auto_pickle=False
"""Storage on 64-byte-aligned memory, and the allocators that hand it out.

A `Storage` owns its bytes; the arrays that `Storage.view` makes refer to it, so memory goes back to
its allocator when the storage and every view of it are gone.  Memory that comes from the system is
zeroed: a program cannot read what the process left behind.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, int64_t, uintptr_t

from operator import index as as_index

import numpy as np

from ..errors import LimitError
from ..values import cpu

cimport numpy as cnp

cnp.import_array()

cdef extern from "_storage_impl.h":
    PyObject* rvm_array_over(PyObject* base, char* data, int nd, const cnp.npy_intp* dims,
                             cnp.PyArray_Descr* descr, bint check_alignment) noexcept
    object rvm_own(PyObject*)
    PyObject* rvm_array_handler(PyObject* allocator, rvm_account*) noexcept
    void rvm_ask_for_huge_pages(char* block, int64_t nbytes) noexcept

cdef extern from "Python.h":
    ctypedef void (*destructor)(PyObject*) noexcept
    PyObject* PyObject_Init(PyObject*, PyTypeObject*) noexcept
    ctypedef struct _typeobject "PyTypeObject":
        newfunc tp_new
        destructor tp_dealloc
        void* tp_vectorcall
    void PyType_Modified(PyTypeObject*) noexcept
    void PyErr_Clear() noexcept
    PyObject* PyExc_MemoryError
    bint PyErr_ExceptionMatches(PyObject*) noexcept
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**) noexcept
    void PyErr_Restore(PyObject*, PyObject*, PyObject*) noexcept

cdef enum:
    ALIGNMENT = 64      # bytes; the widest vector registers
    MAX_RANK = 64       # numpy's own bound
    SMALL = 1024        # up to here size classes are multiples of ALIGNMENT
    WIDE = 16 * 1024    # between this and WIDEST size classes are powers of two
    WIDEST = 1 << 20
    PER_DOUBLE = 4      # classes above it, per power of two
    NUM_CLASSES = 16 + 4 * 53
    KEPT_STORAGES = 256


cdef char* _system_alloc(int64_t nbytes) noexcept:
    """Zeroed memory aligned to ALIGNMENT; the block's own address stands in the word before it."""
    if nbytes > INT64_MAX - 2 * ALIGNMENT:
        return NULL
    cdef char* block = <char*>PyMem_RawCalloc(1, <size_t>nbytes + ALIGNMENT + sizeof(void*))
    if block is NULL:
        return NULL
    rvm_ask_for_huge_pages(block, nbytes)
    cdef uintptr_t start = (<uintptr_t>block + sizeof(void*) + ALIGNMENT - 1) & ~<uintptr_t>(
        ALIGNMENT - 1)
    (<void**>start - 1)[0] = block
    return <char*>start


cdef void _system_free(char* data) noexcept:
    PyMem_RawFree((<void**>data - 1)[0])


cdef class Allocator:
    """Hands out storages and counts them.  Base of the two kinds.

    Args:
        device: the `relaxvm.Device` the memory is for.
        live_bytes: most bytes that may be alive at once, or None.
        alloc_bytes: most bytes of one allocation, or None.
    """

    def __cinit__(self):
        self._account.max_live = self._account.max_alloc = INT64_MAX
        self._account.refused = -1

    def __init__(self, device=None, *, live_bytes=None, alloc_bytes=None):
        self.device = cpu() if device is None else device
        if live_bytes is not None:
            self._account.max_live = live_bytes
        if alloc_bytes is not None:
            self._account.max_alloc = alloc_bytes

    cdef char* _acquire(self, int64_t nbytes, int64_t* capacity) noexcept:
        """Memory from the system, for which cached memory is given up if need be."""
        cdef char* data
        capacity[0] = nbytes
        if self._idle is not NULL:
            if nbytes > INT64_MAX >> 2:
                return NULL
            capacity[0] = _class_bytes(_size_class(nbytes))
        data = _system_alloc(capacity[0])
        if data is NULL and self._cached:
            self._drop_idle()
            data = _system_alloc(capacity[0])
        return data

    cdef void _drop_idle(self) noexcept:
        cdef int index
        cdef char* data
        if self._idle is NULL:
            return
        for index in range(NUM_CLASSES):
            while self._idle[index] is not NULL:
                data = self._idle[index]
                self._idle[index] = (<char**>data)[0]
                _system_free(data)
        self._cached = 0

    def alloc(self, nbytes, scope="global"):
        """A storage of `nbytes` bytes.

        Raises:
            ValueError: `nbytes` is negative.
            LimitError: the allocator's limits do not allow it.
            MemoryError: the system has not got it.
        """
        cdef PyObject* made
        cdef Storage storage
        nbytes = as_index(nbytes)
        if nbytes < 0:
            raise ValueError(f"alloc: expected a size >= 0, got {nbytes}")
        error = self._excess(nbytes, self._live_bytes())
        if error is not None:
            raise error
        made = NULL
        if nbytes <= INT64_MAX:
            made = take_storage(<PyObject*>self, nbytes)
        if made is NULL:
            raise MemoryError(f"cannot allocate a storage of {nbytes} bytes on {self.device}")
        storage = rvm_own(made)
        if scope != "global":
            if not isinstance(scope, str):
                raise TypeError(f"alloc: expected a memory scope, got {type(scope).__name__}")
            Py_INCREF(scope)
            storage._scope = <PyObject*>scope
        return storage

    cdef int64_t _live_bytes(self) noexcept:
        return self._account.live + self._account.arrays

    cdef object _excess(self, nbytes, int64_t live):
        """The `LimitError` for so many more bytes, an int, where `live` are live; None if they are
        within the limits."""
        cdef int64_t max_alloc = self._account.max_alloc
        cdef int64_t max_live = self._account.max_live
        if nbytes > max_alloc and max_alloc != INT64_MAX:
            return LimitError(f"allocation of {nbytes} bytes: above the limit "
                              f"alloc_bytes={max_alloc}", "alloc_bytes")
        if nbytes > max_live - live and max_live != INT64_MAX:
            return LimitError(f"allocation of {nbytes} bytes: {live} are live, the limit is "
                              f"live_bytes={max_live}", "live_bytes")
        return None

    cdef object array_handler(self):
        """What makes numpy take the memory of arrays from here, within the limits."""
        return rvm_own(rvm_array_handler(<PyObject*>self, &self._account))

    cdef object _refusal(self):
        """The `LimitError` of the array that was refused last in this run; None if none was."""
        cdef int64_t refused = self._account.refused
        self._account.refused = -1
        return None if refused < 0 else self._excess(refused, self._account.refused_live)

    cdef void name_the_limit(self) noexcept:
        """Set `LimitError` in the place of a MemoryError, if an array was refused in this run."""
        cdef PyObject* kind
        cdef PyObject* error
        cdef PyObject* traceback
        if self._account.refused < 0 or not PyErr_ExceptionMatches(PyExc_MemoryError):
            return
        PyErr_Fetch(&kind, &error, &traceback)
        try:
            found = self._refusal()
        except BaseException:  # no memory for it
            found = None
        if found is not None:
            Py_XDECREF(kind)
            Py_XDECREF(error)
            kind = <PyObject*>LimitError
            error = <PyObject*>found
            Py_INCREF(LimitError)
            Py_INCREF(found)
        PyErr_Restore(kind, error, traceback)

    def stats(self):
        """Bytes live, at their peak and cached, and the number of storages live and ever made."""
        return {
            "live_bytes": self._live_bytes(),
            "peak_bytes": self._account.peak,
            "cached_bytes": self._cached,
            "live_storages": self._num_live,
            "allocations": self._num_allocs,
        }

    def reset_peak(self):
        """Start a new measurement of the peak at the bytes that are live now."""
        self._account.peak = self._live_bytes()

    def trim(self):
        """Give cached memory back to the system; answers the number of bytes."""
        cdef int64_t freed = self._cached
        self._drop_idle()
        return freed

    def __repr__(self):
        return (f"<{type(self).__name__} on {self.device}: {self._live_bytes()} bytes live, "
                f"{self._cached} cached>")


@cython.final
cdef class NaiveAllocator(Allocator):
    """Asks the system for every storage and gives it back at once."""


cdef inline int _size_class(int64_t nbytes) noexcept:
    """Index of the smallest class that holds `nbytes`: multiples of 64 up to 1024, then four classes
    per power of two, and one between WIDE and WIDEST.

    A tensor that grows by a row in each call, as the cache of a decoder, goes through all classes,
    and each asks the system for new pages; a wide class asks for those that its rows reach.
    """
    cdef int64_t step
    cdef int shift = 0
    if WIDE < nbytes <= WIDEST:
        step = 2 * WIDE
        while step < nbytes:
            step *= 2
        nbytes = step
    if nbytes <= SMALL:
        return <int>((nbytes + ALIGNMENT - 1) // ALIGNMENT) - 1 if nbytes > 0 else 0
    step = (nbytes - 1) >> 8  # 4 steps per doubling of 1024
    while step >= 8:
        step >>= 1
        shift += 1
    return 16 + 4 * shift + <int>(step - 4)


cdef inline int64_t _class_bytes(int index) noexcept:
    if index < 16:
        return (index + 1) * ALIGNMENT
    return (<int64_t>(5 + (index - 16) % 4) << 8) << ((index - 16) // 4)


@cython.final
cdef class PooledAllocator(Allocator):
    """Keeps freed storages by size class and hands them out again.  For one of more than 1 MiB, one
    of up to twice the size will do: sizes that differ little, as of dynamic shapes, share memory.

    Args:
        cached_bytes: most bytes to keep when they are not in use, or None for any amount.
    """

    def __cinit__(self):
        self._idle = <char**>PyMem_RawCalloc(NUM_CLASSES, sizeof(char*))
        if self._idle is NULL:
            raise MemoryError

    def __init__(self, device=None, *, live_bytes=None, alloc_bytes=None, cached_bytes=None):
        Allocator.__init__(self, device, live_bytes=live_bytes, alloc_bytes=alloc_bytes)
        self._max_cached = INT64_MAX
        if cached_bytes is not None:
            self._max_cached = cached_bytes

    def __dealloc__(self):
        self._drop_idle()
        PyMem_RawFree(self._idle)


cdef PyObject* take_storage(PyObject* self, int64_t nbytes) noexcept:
    """A new storage of an allocator; NULL, without an exception, where `alloc` would raise."""
    global _kept_storages, _num_kept_storages
    cdef rvm_account* account = &(<Allocator>self)._account
    cdef int64_t capacity
    cdef char* data = NULL
    cdef int index, wider
    cdef PyObject* made
    if nbytes > account.max_alloc or (
            nbytes > account.max_live - account.live - account.arrays):
        return NULL
    if (<Allocator>self)._idle is not NULL and nbytes <= INT64_MAX >> 2:
        index = _size_class(nbytes)
        data = (<Allocator>self)._idle[index]
        if data is NULL and nbytes > WIDEST:
            for wider in range(index + 1, index + 1 + PER_DOUBLE):
                if wider < NUM_CLASSES and (<Allocator>self)._idle[wider] is not NULL:
                    index = wider
                    data = (<Allocator>self)._idle[index]
                    break
        if data is not NULL:
            capacity = _class_bytes(index)
            (<Allocator>self)._idle[index] = (<char**>data)[0]
            (<char**>data)[0] = NULL  # no address of this process gets out
            (<Allocator>self)._cached -= capacity
    if data is NULL:
        data = (<Allocator>self)._acquire(nbytes, &capacity)
        if data is NULL:
            return NULL
    made = _kept_storages
    if made is not NULL:
        _kept_storages = <PyObject*>(<Storage>made).data
        _num_kept_storages -= 1
        PyObject_Init(made, <PyTypeObject*>Storage)
    else:
        made = _new_storage(<PyTypeObject*>Storage, <PyObject*>_no_args, NULL)
        if made is NULL:
            PyErr_Clear()
            _system_free(data)
            return NULL
    (<Storage>made).data = data
    (<Storage>made)._scope = NULL
    (<Storage>made).capacity = capacity
    (<Storage>made).nbytes = nbytes
    (<Storage>made).allocator = self
    if (<Allocator>self)._num_live == 0:
        Py_INCREF(<object>self)  # one reference for all storages
    (<Allocator>self)._num_live += 1
    (<Allocator>self)._num_allocs += 1
    account.live += nbytes
    if account.live + account.arrays > account.peak:
        account.peak = account.live + account.arrays
    return made


cdef inline void _release(PyObject* self, char* data, int64_t capacity) noexcept:
    """Take back the memory of a storage."""
    cdef int index
    if (<Allocator>self)._idle is NULL or (
            capacity > (<Allocator>self)._max_cached - (<Allocator>self)._cached):
        _system_free(data)
        return
    index = _size_class(capacity)
    (<char**>data)[0] = (<Allocator>self)._idle[index]
    (<Allocator>self)._idle[index] = data
    (<Allocator>self)._cached += capacity


@cython.final
@cython.no_gc
cdef class Storage:
    """A run of bytes from an allocator.  Tensors are views of it and keep it alive.

    Attributes:
        nbytes: bytes asked for.
    """

    @property
    def device(self):
        """The device of the allocator."""
        return (<Allocator>self.allocator).device

    @property
    def scope(self):
        """Memory scope, ``"global"`` unless another was asked for."""
        return "global" if self._scope is NULL else <str>self._scope

    def view(self, offset, shape, dtype):
        """An array over part of the storage.

        Args:
            offset: byte at which the array starts.
            shape: its dimensions.
            dtype: its numpy dtype.

        Raises:
            ValueError: the array does not lie within the storage, or a dimension is negative.
            TypeError: the dtype holds Python objects, or a number is not an integer.
        """
        cdef cnp.npy_intp dims[MAX_RANK]
        cdef int i, rank
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"Storage.view: dtype {dtype} holds Python objects")
        # Integers of Python's own from here on: what is checked is what is used.
        offset = as_index(offset)
        sizes = list(map(as_index, shape))
        if len(sizes) > MAX_RANK:
            raise ValueError(f"Storage.view: expected at most {MAX_RANK} dimensions, "
                             f"got {len(sizes)}")
        total = dtype.itemsize
        for dim in sizes:
            if dim < 0:
                raise ValueError(f"Storage.view: expected dimensions >= 0, got {tuple(sizes)}")
            total *= dim
        if not 0 <= offset <= self.nbytes or total > self.nbytes - offset:
            raise ValueError(
                f"Storage.view: {dtype}{sizes} at byte {offset} needs {total} bytes, "
                f"the storage has {self.nbytes}"
            )
        rank = len(sizes)
        for i in range(rank):
            dims[i] = sizes[i]
        cdef PyObject* made = storage_array(<PyObject*>self, offset, rank, dims,
                                            <cnp.PyArray_Descr*><PyObject*>dtype)
        return rvm_own(made)

    def __repr__(self):
        return f"<Storage of {self.nbytes} bytes on {self.device}>"


# A list of the objects of storages that are gone, linked by their data; guarded by the GIL.
cdef PyObject* _kept_storages = NULL
cdef int _num_kept_storages = 0


cdef void _dealloc_storage(PyObject* self) noexcept:
    """In the place of Cython's way, which looks at more than there is to a storage."""
    global _kept_storages, _num_kept_storages
    cdef PyObject* allocator = (<Storage>self).allocator
    cdef PyObject* scope = (<Storage>self)._scope
    cdef bint last = False
    if (<Storage>self).data is not NULL:
        (<Allocator>allocator)._account.live -= (<Storage>self).nbytes
        (<Allocator>allocator)._num_live -= 1
        last = (<Allocator>allocator)._num_live == 0
        _release(allocator, (<Storage>self).data, (<Storage>self).capacity)
    if _num_kept_storages < KEPT_STORAGES:
        (<Storage>self).data = <char*>_kept_storages
        _kept_storages = self
        _num_kept_storages += 1
    else:
        _free_storage(self)
    if last:
        Py_DECREF(<object>allocator)
    Py_XDECREF(scope)


cdef PyObject* storage_array(PyObject* storage, int64_t offset, int nd, const cnp.npy_intp* dims,
                             cnp.PyArray_Descr* descr) noexcept:
    """The array of `Storage.view`, with everything checked by the caller; a new reference, or NULL
    with numpy's exception."""
    return rvm_array_over(storage, (<Storage>storage).data + offset, nd, dims, descr,
                          offset & (ALIGNMENT - 1) != 0)


cdef newfunc set_new(type cls, newfunc new) noexcept:
    """Let instances of a class be made by `new` where Python asks for one; answers what did so before.

    Cython's own ``cls.__new__(cls)`` goes past that slot.  Without this, Python could get at instances
    that nobody has filled in, from ``cls.__new__`` or a pickle.
    """
    cdef _typeobject* slots = <_typeobject*><PyObject*>cls
    cdef newfunc old = slots.tp_new
    slots.tp_new = new
    slots.tp_vectorcall = NULL  # of the class itself, the short cut past tp_new
    PyType_Modified(<PyTypeObject*>slots)
    return old


cdef PyObject* _refuse(PyTypeObject* cls, PyObject* args, PyObject* kwargs) except NULL:
    raise TypeError("Storage: made by an allocator's alloc(nbytes)")

cdef tuple _no_args = ()
cdef newfunc _new_storage = set_new(Storage, <newfunc>_refuse)
cdef destructor _free_storage = (<_typeobject*><PyObject*>Storage).tp_dealloc
(<_typeobject*><PyObject*>Storage).tp_dealloc = _dealloc_storage
