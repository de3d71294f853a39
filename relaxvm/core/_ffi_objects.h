/* Reference-counted objects of TVM's FFI: those that kernel.h does not name, and their counts. */
#ifndef RELAXVM_FFI_OBJECTS_H
#define RELAXVM_FFI_OBJECTS_H

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#define RELAXVM_KERNEL_TYPES_ONLY
#include <relaxvm/kernel.h>

/* Objects of TVM's FFI that kernel.h does not name, because no kernel is given one. */
enum { RVM_FUNCTION = 68, RVM_ARRAY = 71, RVM_PYTHON_OBJECT = 74, RVM_LIST = 75 };

typedef struct {
    RvmObject object;
    RvmAny *items;
    int64_t size;
    int64_t capacity;
    void (*end_items)(void *);  /* NULL if they stand in the object's own memory */
} RvmArray;

typedef struct {
    RvmObject object;
    PyObject *held;
} RvmPythonObject;

typedef struct {
    RvmObject object;
    RvmBytes kind;
    RvmBytes message;
    RvmBytes backtrace;  /* the last call first */
} RvmError;

/* ---- objects that are made here --------------------------------------------------------------- */

/* The counts of an object that has one reference; all strong ones count as one weak one. */
#define RVM_ONE_REFERENCE ((UINT64_C(1) << 32) | 1)

/* An object is freed by the function in its header, so it may have any memory: this here. */
static inline void *rvm_new_object(int type, size_t size, void (*destroy)(void *, int)) {
    RvmObject *object = (RvmObject *)malloc(size);
    if (object == NULL) return NULL;
    object->counts = RVM_ONE_REFERENCE;
    object->type = type;
    object->padding = 0;
    object->destroy = destroy;
    return object;
}

/* ---- counts ------------------------------------------------------------------------------------ */

/* Keep an object. */
static inline void rvm_retain_object(RvmObject *object) {
#if defined(__GNUC__) || defined(__clang__)
    __atomic_fetch_add(&object->counts, 1, __ATOMIC_RELAXED);
#else
    (void)object; /* never let go of, see below */
#endif
}

/* Let go of an object that a kernel returned. */
static inline void rvm_release_object(RvmObject *object) {
#if defined(__GNUC__) || defined(__clang__)
    const uint64_t weak = UINT64_C(1) << 32;
    uint64_t before = __atomic_fetch_sub(&object->counts, 1, __ATOMIC_ACQ_REL);
    if ((uint32_t)before != 1) return;
    if (object->destroy == NULL) return;
    if (before == weak + 1) {
        object->destroy(object, 3);
        return;
    }
    object->destroy(object, 1);
    if (__atomic_fetch_sub(&object->counts, weak, __ATOMIC_ACQ_REL) >> 32 == 1)
        object->destroy(object, 2);
#else
    (void)object; /* kept: such results need GCC's or Clang's atomics */
#endif
}

#endif
