"""How the compiled modules were built."""

cdef extern from *:
    """
    #define RELAXVM_STRING_(x) #x
    #define RELAXVM_STRING(x) RELAXVM_STRING_(x)
    #if defined(__clang__)
    #define RELAXVM_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define RELAXVM_COMPILER "gcc " __VERSION__
    #elif defined(_MSC_VER)
    #define RELAXVM_COMPILER "msvc " RELAXVM_STRING(_MSC_VER)
    #else
    #define RELAXVM_COMPILER "unknown"
    #endif
    #ifdef RELAXVM_DEBUG
    #define RELAXVM_IS_DEBUG 1
    #else
    #define RELAXVM_IS_DEBUG 0
    #endif
    """
    const char* RELAXVM_COMPILER
    int RELAXVM_IS_DEBUG
    int CYTHON_HEX_VERSION

compiler = RELAXVM_COMPILER.decode("ascii", "replace").strip()
cython = f"{CYTHON_HEX_VERSION >> 24}.{CYTHON_HEX_VERSION >> 16 & 255}.{CYTHON_HEX_VERSION >> 8 & 255}"
debug = bool(RELAXVM_IS_DEBUG)
