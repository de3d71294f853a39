from libc.stdint cimport int32_t

from ._native cimport RvmAny


cdef bint in_vm_tir() noexcept
cdef int call_from_vm_tir(object function, const RvmAny* args, int32_t count, RvmAny* result,
                          object (*value)(const RvmAny*)) except -1
cdef void* vm_tir_function(const char* name) noexcept
