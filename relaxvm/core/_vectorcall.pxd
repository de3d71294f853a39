cdef extern from "_vectorcall.h":
    void use_vectorcall "rvm_use_vectorcall"(object cls, Py_ssize_t offset) noexcept
