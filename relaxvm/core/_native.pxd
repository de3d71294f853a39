from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint8_t, uint64_t, uintptr_t


cdef extern from "_native.h":
    ctypedef struct RvmDtype:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct RvmDevice:
        int32_t type
        int32_t index
    ctypedef struct RvmTensor:
        void* data
        RvmDevice device
        int32_t ndim
        RvmDtype dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset
    ctypedef struct RvmTensorObject:
        RvmTensor tensor
    enum:
        RVM_NONE, RVM_INT, RVM_BOOL, RVM_REAL, RVM_POINTER, RVM_DTYPE, RVM_DEVICE, RVM_TENSOR
        RVM_TEXT, RVM_BYTES, RVM_SHORT_TEXT, RVM_SHORT_BYTES, RVM_OBJECT, RVM_TEXT_OBJECT
        RVM_BYTES_OBJECT, RVM_SHAPE, RVM_TENSOR_OBJECT, RVM_CPU
    ctypedef struct RvmBytes:
        const char* data
        size_t size
    ctypedef struct RvmObject:
        uint64_t counts
        int32_t type
        uint32_t padding
        void (*destroy)(void*, int)
    ctypedef struct RvmShape:
        RvmObject object
        const int64_t* dims
        size_t ndim
    ctypedef struct RvmBytesObject:
        RvmBytes bytes
    ctypedef struct RvmAny:
        int32_t type
        uint32_t short_size
        int64_t as_int
        double as_float
        void* as_pointer
        const char* as_text
        const RvmBytes* as_bytes
        RvmObject* as_object
        RvmTensor* as_tensor
        RvmDtype as_dtype
        RvmDevice as_device
        char short_bytes[8]
    ctypedef int (*RvmFunction)(void*, const RvmAny*, int32_t, RvmAny*) noexcept nogil
    ctypedef struct rvm_kernel:
        RvmFunction call
        void* self
        int needs
        uintptr_t misaligned
        uint64_t writes
        uint64_t writes_last
        int unsure
        int strided
        uint64_t unlock_from


cdef extern from "_ffi_objects.h":
    enum:
        RVM_FUNCTION, RVM_ARRAY, RVM_PYTHON_OBJECT, RVM_LIST

    ctypedef struct RvmArray:
        RvmObject object
        RvmAny* items
        int64_t size
    ctypedef struct RvmPythonObject:
        PyObject* held
    ctypedef struct RvmError:
        RvmBytes kind
        RvmBytes message
        RvmBytes backtrace

    void retain "rvm_retain_object"(RvmObject*) noexcept
    void release "rvm_release_object"(RvmObject*) noexcept


cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char*) noexcept
    void leave_recursion "Py_LeaveRecursiveCall"() noexcept


cdef inline int enter_recursion(const char* where) except -1:
    # Python's function returns 1 on failure.
    return -1 if Py_EnterRecursiveCall(where) else 0


cdef class NativeFunction:
    cdef void* _vectorcall
    cdef rvm_kernel kernel
    cdef readonly str name
    cdef readonly tuple writes
    cdef readonly int alignment
    cdef object _keepalive
    cdef uint64_t reported  # positions of arguments of which a copy was reported


cdef void set_raised() noexcept

cdef PyObject* call_native(PyObject* self, PyObject* const* fp, PyObject* const* pool_end,
                           const int64_t* words, Py_ssize_t count, uint64_t* nbytes) except NULL

cdef int report_copy(NativeFunction function, Py_ssize_t position, object array, object caller,
                     Py_ssize_t parameter) except -1
cdef int call_with(NativeFunction function, const RvmAny* args, Py_ssize_t count) except -1
cdef RvmDtype dl_dtype(object dtype) except *
cdef int call_locals(PyObject* self, PyObject* const* fp, PyObject* const* pool_end,
                     const int64_t* words, Py_ssize_t count, RvmTensor* const* locals_,
                     uint64_t* nbytes, PyObject** value) except -1
cdef int call_scalars(PyObject* self, const RvmAny* args, Py_ssize_t count, RvmAny* ret,
                      PyObject** value) except -1

cdef object array_over(RvmObject* object, str subject, NativeFunction owner=*)
cdef object value_of(const RvmAny* given, str subject, NativeFunction owner=*, dict done=*)
cdef void keep_under(object array, RvmObject* object) except *
cdef bint point_at(PyObject* array, const RvmTensor* tensor) noexcept
cdef bint is_unmarked(PyObject* array) noexcept
cdef bint is_whole(PyObject* array, const RvmTensor* tensor) noexcept
cdef object error_elsewhere()
cdef RvmObject* object_under(object array) noexcept
cdef void* export_array(object array) except NULL
cdef RvmObject* tensor_object(object array) except NULL
cdef bint has_dtype(const RvmTensor* tensor) except -1
cdef object fresh_array(const RvmTensor* tensor, str subject)
