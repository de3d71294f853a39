cdef extern from "_pool.h":
    ctypedef struct rvm_section:
        pass

# How many threads a section of work may have; take the pool for one; run it there.  See `_pool_impl.h`.
cdef int threads() noexcept nogil
cdef int take_pool(int, int) noexcept nogil
cdef int run_section(rvm_section*, int) noexcept nogil
