/* C helpers of the storages. */
#ifndef RELAXVM_MEMORY_IMPL_H
#define RELAXVM_MEMORY_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "_account.h"

/* From so many bytes on, as numpy does for its arrays, memory is asked for in huge pages: the addresses of
 * more pages of 4 KiB than the processor remembers are looked up again and again. */
#define RVM_LARGE_BLOCK (1 << 20)

/* Ask for huge pages for a block that nobody has written to.  The system may refuse, to no harm. */
static inline void rvm_ask_for_huge_pages(char *block, int64_t nbytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (nbytes < RVM_LARGE_BLOCK) return;
    uintptr_t page = 4096, start = ((uintptr_t)block + page - 1) & ~(page - 1);
    madvise((void *)start, (size_t)((uintptr_t)block + (uintptr_t)nbytes - start) & ~(size_t)(page - 1),
            MADV_HUGEPAGE);
#else
    (void)block, (void)nbytes;
#endif
}

/* An array over `data` that keeps `base` alive; a new reference, or NULL with an exception. */
static inline PyObject *rvm_array_over(PyObject *base, char *data, int nd, const npy_intp *dims,
                                       PyArray_Descr *descr, int check_alignment) {
    Py_INCREF(descr); /* stolen */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, nd, (npy_intp *)dims, NULL, data,
                                           NPY_ARRAY_CARRAY, NULL);
    if (array == NULL) return NULL;
    Py_INCREF(base); /* stolen, also on failure */
    if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    if (check_alignment) PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_ALIGNED);
    return array;
}

/* ---- arrays that count -----------------------------------------------------------------------
 * While a run with limits is on, numpy asks the allocator of the host for the memory of arrays: of all
 * that kernels, builtins and numpy itself make.  numpy's interface for that is a handler in a capsule,
 * which every array keeps that it gave memory to.
 *
 * numpy may call the functions without the GIL, so what they count is atomic. */

/* What stands before the memory of an array: numpy does not always know the size when it frees. */
typedef union {
    int64_t nbytes;
    max_align_t alignment;
} rvm_array_head;

/* So far arrays may go beyond max_live: numpy makes small ones for numbers, everywhere. */
#define RVM_ARRAY_SLACK (64 * 1024)

static int rvm_charge(rvm_account *account, size_t size) {
    const int64_t nbytes = size < (size_t)INT64_MAX / 4 ? (int64_t)size : INT64_MAX / 4;
    const int64_t live = __atomic_load_n(&account->live, __ATOMIC_RELAXED) +
                         __atomic_add_fetch(&account->arrays, nbytes, __ATOMIC_RELAXED);
    int64_t peak = __atomic_load_n(&account->peak, __ATOMIC_RELAXED);
    if (nbytes > account->max_alloc || nbytes == INT64_MAX / 4 ||
        live - RVM_ARRAY_SLACK > account->max_live) {
        __atomic_sub_fetch(&account->arrays, nbytes, __ATOMIC_RELAXED);
        /* For the message alone: of two threads that are refused at once, either may be told. */
        __atomic_store_n(&account->refused_live, live - nbytes, __ATOMIC_RELAXED);
        __atomic_store_n(&account->refused, nbytes, __ATOMIC_RELAXED);
        return 0;
    }
    while (live > peak && !__atomic_compare_exchange_n(&account->peak, &peak, live, 1,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return 1;
}

static void rvm_discharge(rvm_account *account, int64_t nbytes) {
    __atomic_sub_fetch(&account->arrays, nbytes, __ATOMIC_RELAXED);
}

static void *rvm_array_calloc(void *account, size_t count, size_t size) {
    rvm_array_head *head;
    size_t nbytes = count * size;
    if (size != 0 && count > SIZE_MAX / size) nbytes = SIZE_MAX;
    if (!rvm_charge((rvm_account *)account, nbytes)) return NULL;
    head = (rvm_array_head *)PyMem_RawCalloc(1, sizeof *head + nbytes);
    if (head == NULL) {
        rvm_discharge((rvm_account *)account, (int64_t)nbytes);
        return NULL;
    }
    head->nbytes = (int64_t)nbytes;
    return head + 1;
}

static void *rvm_array_malloc(void *account, size_t nbytes) {
    rvm_array_head *head;
    if (!rvm_charge((rvm_account *)account, nbytes)) return NULL;
    head = (rvm_array_head *)PyMem_RawMalloc(sizeof *head + nbytes);
    if (head == NULL) {
        rvm_discharge((rvm_account *)account, (int64_t)nbytes);
        return NULL;
    }
    head->nbytes = (int64_t)nbytes;
    return head + 1;
}

static void rvm_array_free(void *account, void *data, size_t size) {
    rvm_array_head *head;
    (void)size;
    if (data == NULL) return;
    head = (rvm_array_head *)data - 1;
    rvm_discharge((rvm_account *)account, head->nbytes);
    PyMem_RawFree(head);
}

static void *rvm_array_realloc(void *account, void *data, size_t nbytes) {
    rvm_array_head *head;
    int64_t before;
    if (data == NULL) return rvm_array_malloc(account, nbytes);
    head = (rvm_array_head *)data - 1;
    before = head->nbytes;
    if (!rvm_charge((rvm_account *)account, nbytes)) return NULL; /* both are there while it copies */
    head = (rvm_array_head *)PyMem_RawRealloc(head, sizeof *head + nbytes);
    rvm_discharge((rvm_account *)account, head == NULL ? (int64_t)nbytes : before);
    if (head == NULL) return NULL;
    head->nbytes = (int64_t)nbytes;
    return head + 1;
}

#define RVM_HANDLER_NAME "mem_handler" /* as numpy wants it */

static void rvm_drop_handler(PyObject *capsule) {
    PyObject *allocator = (PyObject *)PyCapsule_GetContext(capsule);
    PyMem_RawFree(PyCapsule_GetPointer(capsule, RVM_HANDLER_NAME));
    Py_XDECREF(allocator);
}

/* numpy's handler for the account of `allocator`, which it keeps alive; NULL with an exception. */
static PyObject *rvm_array_handler(PyObject *allocator, rvm_account *account) {
    PyObject *capsule;
    PyDataMem_Handler *handler = (PyDataMem_Handler *)PyMem_RawCalloc(1, sizeof *handler);
    if (handler == NULL) return PyErr_NoMemory();
    strcpy(handler->name, "relaxvm");
    handler->version = 1;
    handler->allocator.ctx = account;
    handler->allocator.malloc = rvm_array_malloc;
    handler->allocator.calloc = rvm_array_calloc;
    handler->allocator.realloc = rvm_array_realloc;
    handler->allocator.free = rvm_array_free;
    capsule = PyCapsule_New(handler, RVM_HANDLER_NAME, rvm_drop_handler);
    if (capsule == NULL) {
        PyMem_RawFree(handler);
        return NULL;
    }
    Py_INCREF(allocator);
    PyCapsule_SetContext(capsule, allocator);
    return capsule;
}

/* A new reference for Cython, which takes NULL for the exception that is set. */
static inline PyObject *rvm_own(PyObject *made) { return made; }

#endif
