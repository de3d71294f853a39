/* What translated code refers to: functions, and what single sites remember. */
#ifndef RELAXVM_CODE_H
#define RELAXVM_CODE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <numpy/arrayobject.h>

#if NPY_SIZEOF_INTP != 8
#error "relaxvm needs a 64-bit platform: dimensions and pointers stand in 64-bit code words"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define RVM_LIKELY(x) __builtin_expect(!!(x), 1)
#define RVM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RVM_NOINLINE __attribute__((noinline))
#else
#define RVM_LIKELY(x) (x)
#define RVM_UNLIKELY(x) (x)
#define RVM_NOINLINE
#endif

#define RVM_MAX_DIMS 8 /* more dimensions than this take the fallback */

/* Py_INCREF of CPython 3.12 and 3.13 writes half of the counter, and Py_DECREF reads all of it.  Where one
 * follows the other closely, as here, that stalls the processor for a dozen cycles. */
static inline void rvm_incref(PyObject *object) {
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
    if (!_Py_IsImmortal(object)) object->ob_refcnt++;
#else
    Py_INCREF(object);
#endif
}

/* An operand word >= 0 is a register of the frame; a word < 0 counts back from the end of the pool of
 * constants.  A register that holds NULL reads as None. */
static inline PyObject *rvm_load(PyObject *const *fp, PyObject *const *pool_end, int64_t word) {
    PyObject *const *base = word < 0 ? pool_end : fp;
    PyObject *value = base[word];
    return RVM_LIKELY(value != NULL) ? value : Py_None;
}

/* The same for an operand that is a register. */
static inline PyObject *rvm_read(PyObject *const *fp, int64_t word) {
    PyObject *value = fp[word];
    return RVM_LIKELY(value != NULL) ? value : Py_None;
}

/* What a site remembers: an object, and the dimensions and memory it was made with. */
typedef struct {
    PyObject *object;
    const void *data;
    int64_t count;
    npy_intp dims[RVM_MAX_DIMS];
} rvm_site;

/* Codes of match_shape and match_prim_value, and of make_shape and make_prim_value. */
enum { RVM_MATCH_IMM = 0, RVM_MATCH_STORE = 1, RVM_MATCH_ANY = 2, RVM_MATCH_SLOT = 3 };
enum { RVM_MAKE_IMM = 0, RVM_MAKE_SLOT = 1 };

/* In the place of the greatest slot that an operation uses: that none is used, and that the heap is one
 * that the function has made, with room for them, so that nothing needs to be checked. */
enum { RVM_NO_SLOT = -1, RVM_OWN_HEAP = -2 };

/* Operations of shape programs, see relaxvm/shape_program.py. */
enum {
    RVM_SHAPE_CONST, RVM_SHAPE_LOAD, RVM_SHAPE_STORE, RVM_SHAPE_ADD, RVM_SHAPE_SUB, RVM_SHAPE_MUL,
    RVM_SHAPE_FLOORDIV, RVM_SHAPE_FLOORMOD, RVM_SHAPE_MIN, RVM_SHAPE_MAX, RVM_SHAPE_EQ,
    RVM_SHAPE_NE, RVM_SHAPE_LT, RVM_SHAPE_LE, RVM_SHAPE_GT, RVM_SHAPE_GE, RVM_SHAPE_AND,
    RVM_SHAPE_OR, RVM_SHAPE_NOT, RVM_SHAPE_SELECT, RVM_SHAPE_END
};
#define RVM_MAX_STACK 32  /* programs that need more values at once are plain calls, ... */
#define RVM_MAX_STORES 64 /* ... and so do those with more assignments */

/* A register of the source, and the one in the frame that holds its values where they may be needed:
 * from one pc to another.  Before and after, it may hold values of other registers. */
typedef struct {
    int64_t source;
    int64_t frame;
    int64_t first, last;
} rvm_place;

/* The place of a register among those of its function, which are sorted; NULL if it has none. */
static inline const rvm_place *rvm_find_place(const rvm_place *places, int64_t count,
                                              int64_t source) {
    int64_t low = 0, high = count;
    if (source < count && places[source].source == source) return places + source; /* all are used */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (places[middle].source < source) low = middle + 1;
        else high = middle;
    }
    return low < count && places[low].source == source ? places + low : NULL;
}

/* A function, as the loop sees it; 64 bytes, so that its number follows from its address by a shift. */
typedef struct rvm_func {
    int64_t *code;
    int64_t num_params;
    int64_t num_registers; /* of the frame, all included */
    int64_t frame_words;   /* header excluded */
    PyObject *name;        /* borrowed from the executable */
    rvm_place *places;     /* NULL where the registers of the source are those of the frame */
    int64_t num_places;
    int64_t num_shared;    /* registers of the frame that hold those of the source */
} rvm_func;

/* The rest of it, for listings and for calls of native code. */
typedef struct {
    int64_t *fallbacks;    /* where the main part of the code ends, and the fallbacks begin */
    int64_t *end;          /* of the code */
    int64_t scratch;       /* the scratch register, after those of functions as values */
    int64_t heap;          /* the register of the source that holds its shape heap, -1 if none does */
    const void *compiled;  /* its native code, an RvmCompiled; NULL if there is none */
} rvm_extent;

/* What stands before the registers of a frame, and how many words that takes. */
enum { RVM_RETURN_IP = -4, RVM_CALLER = -3, RVM_FUNC = -2, RVM_RETURN_DST = -1, RVM_HEADER = 4 };

#endif
