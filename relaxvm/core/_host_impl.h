/* What libraries compiled by TVM ask of the process they run in: memory for the time of a call, threads,
 * functions by name, and a place for errors.  A library has a variable per function, which its loader
 * fills.
 *
 * Source: c_backend_api.h of TVM, c_api.h and c_env_api.h of its FFI.
 */
#ifndef RELAXVM_HOST_IMPL_H
#define RELAXVM_HOST_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_native.h"
#include "_pool.h"
#include "_sort_impl.h"

#if defined(__unix__) || defined(__APPLE__)
#define RVM_HAS_HOST 1
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#else
#define RVM_HAS_HOST 0
#endif

/* A function that a library has found by its name. */
typedef struct {
    RvmFunction native;  /* what is tried first, or NULL; RVM_NOT_MINE leaves a call to `python` */
    PyObject *python;
} rvm_callee;

/* Functions of the Cython side, called with the interpreter lock; -1 with an exception. */
static int (*rvm_find_python)(PyObject *context, const char *name, void **found);
static int (*rvm_call_python)(PyObject *function, const RvmAny *args, int32_t count, RvmAny *ret);

/* Where errors of the thread's call go, and what is told that Python raised one: of `_native`. */
static const RvmHost *rvm_error_host;

static int rvm_sort_ends(void) { return rvm_error_host->interrupted(); }
static void (*rvm_set_raised)(void);

/* ---- constants of a library ------------------------------------------------------------------- */

/* Tensors as an array object of TVM's FFI, and the function that takes it. */
typedef struct {
    RvmObject object;
    RvmAny *items;
    int64_t size, capacity;
    void (*free_items)(void *);
    RvmFunction callee;
} rvm_sequence;

enum { RVM_SEQUENCE = 71 };

/* A kernel without arguments: calls the function with the array. */
static int rvm_pass_sequence(void *self, const RvmAny *args, int32_t count, RvmAny *ret) {
    (void)args, (void)count;
    rvm_sequence *sequence = (rvm_sequence *)self;
    RvmAny array = {RVM_SEQUENCE, 0, {0}};
    array.as_object = &sequence->object;
    return sequence->callee(NULL, &array, 1, ret);
}

#if RVM_HAS_HOST

/* ---- errors ----------------------------------------------------------------------------------- */

/* What a task says of its failure; owned. */
typedef struct {
    char *kind;
    char *message;
} rvm_task_error;

static RVM_THREAD_LOCAL rvm_task_error *rvm_task; /* of the task that this thread runs for another one */
static RVM_THREAD_LOCAL int rvm_in_parallel;      /* whether it runs a task at all */

static char *rvm_join(const char *const *parts, int32_t count) {
    size_t size = 1;
    for (int32_t i = 0; i < count; i++) size += parts[i] != NULL ? strlen(parts[i]) : 0;
    char *text = (char *)malloc(size), *end = text;
    if (text == NULL) return NULL;
    for (int32_t i = 0; i < count; i++) {
        size_t length = parts[i] != NULL ? strlen(parts[i]) : 0;
        if (length > 0) memcpy(end, parts[i], length);
        end += length;
    }
    *end = 0;
    return text;
}

static void rvm_host_raise_parts(const char *kind, const char **parts, int32_t count) {
    char *message = rvm_join(parts, count);
    if (rvm_task != NULL) {
        free(rvm_task->kind);
        free(rvm_task->message);
        rvm_task->kind = rvm_join(&kind, 1);
        rvm_task->message = message;
        return;
    }
    rvm_error_host->set_error(kind, message != NULL ? message : "out of memory");
    free(message);
}

static void rvm_host_raise(const char *kind, const char *message) {
    rvm_host_raise_parts(kind, &message, 1);
}

/* ---- memory for the time of a call ------------------------------------------------------------ */

/* Bytes before a block, so that it is aligned for any vector; its size is in there. */
#define RVM_BLOCK_HEAD 64
/* Blocks that a thread keeps for its next calls, and the largest of them. */
#define RVM_KEPT_BLOCKS 4
#define RVM_KEPT_BYTES (UINT64_C(64) << 20)

typedef struct {
    char *blocks[RVM_KEPT_BLOCKS];
} rvm_blocks;

static pthread_key_t rvm_blocks_key;
static pthread_once_t rvm_blocks_once = PTHREAD_ONCE_INIT;

static inline uint64_t *rvm_block_size(char *block) { return (uint64_t *)block; }

static void rvm_free_blocks(void *kept) {
    for (int i = 0; i < RVM_KEPT_BLOCKS; i++) free(((rvm_blocks *)kept)->blocks[i]);
    free(kept);
}

static void rvm_make_blocks_key(void) { pthread_key_create(&rvm_blocks_key, rvm_free_blocks); }

static rvm_blocks *rvm_kept_blocks(void) {
    pthread_once(&rvm_blocks_once, rvm_make_blocks_key);
    rvm_blocks *kept = (rvm_blocks *)pthread_getspecific(rvm_blocks_key);
    if (kept == NULL) {
        kept = (rvm_blocks *)calloc(1, sizeof *kept);
        if (kept != NULL) pthread_setspecific(rvm_blocks_key, kept);
    }
    return kept;
}

static void *rvm_host_alloc(int device_type, int device_id, uint64_t nbytes, int code, int bits) {
    (void)device_type, (void)device_id, (void)code, (void)bits;
    rvm_blocks *kept = rvm_kept_blocks();
    int best = -1;
    for (int i = 0; kept != NULL && i < RVM_KEPT_BLOCKS; i++) {
        char *block = kept->blocks[i];
        if (block == NULL || *rvm_block_size(block) < nbytes) continue;
        if (best < 0 || *rvm_block_size(block) < *rvm_block_size(kept->blocks[best])) best = i;
    }
    /* A small request does not take a large block away from the one it was made for. */
    if (best >= 0 && *rvm_block_size(kept->blocks[best]) / 4 <= nbytes + 4096) {
        char *block = kept->blocks[best];
        kept->blocks[best] = NULL;
        return block + RVM_BLOCK_HEAD;
    }
    void *block = NULL;
    if (nbytes > (uint64_t)PTRDIFF_MAX - RVM_BLOCK_HEAD ||
        posix_memalign(&block, RVM_BLOCK_HEAD, RVM_BLOCK_HEAD + (size_t)nbytes) != 0) {
        char text[80];
        PyOS_snprintf(text, sizeof text, "no memory for a workspace of %llu bytes",
                      (unsigned long long)nbytes);
        rvm_host_raise("MemoryError", text);
        return NULL;
    }
    *rvm_block_size((char *)block) = nbytes;
    return (char *)block + RVM_BLOCK_HEAD;
}

static int rvm_host_free(int device_type, int device_id, void *data) {
    (void)device_type, (void)device_id;
    if (data == NULL) return 0;
    char *block = (char *)data - RVM_BLOCK_HEAD;
    rvm_blocks *kept = rvm_kept_blocks();
    if (kept != NULL && *rvm_block_size(block) <= RVM_KEPT_BYTES) {
        int least = 0;
        for (int i = 0; i < RVM_KEPT_BLOCKS; i++) {
            if (kept->blocks[i] == NULL) {
                kept->blocks[i] = block;
                return 0;
            }
            if (*rvm_block_size(kept->blocks[i]) < *rvm_block_size(kept->blocks[least])) least = i;
        }
        if (*rvm_block_size(kept->blocks[least]) < *rvm_block_size(block)) {
            char *smaller = kept->blocks[least];
            kept->blocks[least] = block;
            block = smaller;
        }
    }
    free(block);
    return 0;
}

/* ---- threads ---------------------------------------------------------------------------------- */

typedef struct {
    void *sync;        /* the job, for the barrier */
    int32_t num_task;
} rvm_group;

typedef int (*rvm_lambda)(int task_id, rvm_group *group, void *data);

/* Turns of waiting at a barrier before the thread lets others run: some tens of microseconds. */
#define RVM_SPINS 4000

/* The pool of the process, of `_threads`. */
static int (*rvm_pool_threads)(void);
static int (*rvm_pool_take)(int threads, int waits);
static int (*rvm_pool_run)(rvm_section *section, int threads);

typedef struct {
    rvm_section section;
    rvm_lambda lambda;
    void *data;
    int32_t num_task;
    int32_t threads;   /* that run tasks at once */
    int32_t arrived;   /* at the barrier; atomic */
    int32_t phase;     /* of the barrier; atomic */
    int32_t has_error; /* atomic; whoever sets it writes the error */
    rvm_task_error error;
} rvm_job;

static inline void rvm_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static int rvm_run_task(rvm_section *section, int64_t task, int thread) {
    rvm_job *job = (rvm_job *)section;
    rvm_task_error error = {NULL, NULL}, *outer_task = rvm_task;
    rvm_group group = {job, job->num_task};
    int outer = rvm_in_parallel;
    (void)thread;
    rvm_task = &error;
    rvm_in_parallel = 1;
    int code = job->lambda((int)task, &group, job->data);
    rvm_in_parallel = outer;
    rvm_task = outer_task;
    if (code != 0 && !__atomic_exchange_n(&job->has_error, 1, __ATOMIC_RELAXED)) {
        job->error = error;
    } else {
        free(error.kind);
        free(error.message);
    }
    return code;
}

static int rvm_end_job(rvm_job *job) {
    if (!job->has_error) return 0;
    if (job->error.kind != NULL)
        rvm_host_raise(job->error.kind, job->error.message != NULL ? job->error.message : "");
    free(job->error.kind);
    free(job->error.message);
    return RVM_FAILED;
}

/* Run a function for all tasks, on as many threads as there are; on this one alone if the threads
 * have other work.  A number of tasks of 0 leaves it to us.  Tasks of a given number may meet at
 * barriers, for which each needs a thread: they wait for their turn, others do without. */
static int rvm_host_parallel(rvm_lambda lambda, void *data, int num_task) {
    int threads = rvm_pool_threads();
    if (num_task > 0 && num_task < threads) threads = num_task;
    threads = rvm_in_parallel ? 1 : rvm_pool_take(threads, num_task > 0);
    rvm_job job = {.section = {.run = rvm_run_task},
                   .lambda = lambda,
                   .data = data,
                   .num_task = num_task > 0 ? num_task : threads,
                   .threads = threads};
    job.section.pieces = job.num_task;
    rvm_pool_run(&job.section, threads);
    return rvm_end_job(&job);
}

/* Wait until all tasks of the group are here. */
static int rvm_host_barrier(int task_id, rvm_group *group) {
    (void)task_id;
    rvm_job *job = (rvm_job *)group->sync;
    if (job->num_task == 1) return 0;
    if (job->num_task > job->threads) {
        rvm_host_raise("RuntimeError", "a barrier needs as many threads as there are tasks");
        return RVM_FAILED;
    }
    int32_t phase = __atomic_load_n(&job->phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&job->arrived, 1, __ATOMIC_ACQ_REL) == job->num_task) {
        __atomic_store_n(&job->arrived, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&job->phase, 1, __ATOMIC_RELEASE);
        return 0;
    }
    for (int i = 0; __atomic_load_n(&job->phase, __ATOMIC_ACQUIRE) == phase; i++) {
        if (rvm_is_over(&job->section)) return RVM_FAILED;
        if (i < RVM_SPINS) rvm_pause();
        else sched_yield();
    }
    return 0;
}

/* ---- functions by name ------------------------------------------------------------------------ */

/* Python cannot be called from a task: the thread that waits for it may hold the interpreter lock. */
static int rvm_refuse_in_task(const char *name) {
    if (!rvm_in_parallel) return 0;
    const char *parts[] = {"a parallel loop calls ", name, ", which is not machine code of the library"};
    rvm_host_raise_parts("RuntimeError", parts, 3);
    return RVM_FAILED;
}

/* Python is not asked again in a call in which it has raised an exception. */
static int rvm_host_lookup(void *context, const char *name, void **found) {
    *found = NULL;
    if (rvm_refuse_in_task(name)) return RVM_FAILED;
    PyGILState_STATE state = PyGILState_Ensure();
    int code = PyErr_Occurred() ? RVM_FAILED : rvm_find_python((PyObject *)context, name, found);
    if (code != 0) rvm_set_raised();
    PyGILState_Release(state);
    return code;
}

static int rvm_host_call(void *function, const RvmAny *args, int32_t count, RvmAny *ret) {
    const rvm_callee *callee = (const rvm_callee *)function;
    if (callee->native != NULL) {
        int code = callee->native(NULL, args, count, ret);
        if (code != RVM_NOT_MINE) return code;
    }
    if (rvm_refuse_in_task("a function")) return RVM_FAILED;
    PyGILState_STATE state = PyGILState_Ensure();
    int code = PyErr_Occurred() ? RVM_FAILED : rvm_call_python(callee->python, args, count, ret);
    if (code != 0) rvm_set_raised();
    PyGILState_Release(state);
    return code;
}

/* Fill a variable once.  Two threads may both make the value, which is the same for both: no lock is
 * held while Python runs. */
static int rvm_host_init_once(void **handle, int (*init)(void **)) {
    if (__atomic_load_n(handle, __ATOMIC_ACQUIRE) != NULL) return 0;
    void *made = NULL, *expected = NULL;
    int code = init(&made);
    if (code == 0)
        __atomic_compare_exchange_n(handle, &expected, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return code;
}

/* ---- a library in memory ---------------------------------------------------------------------- */

/* Put an address into a word of a library, which may be on pages that are read-only by now. */
static int rvm_write_word(uintptr_t place, uintptr_t value, int read_only) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = place & ~(page - 1), end = (place + sizeof value + page - 1) & ~(page - 1);
    if (read_only && mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) != 0) return -1;
    memcpy((void *)place, &value, sizeof value);
    if (read_only) mprotect((void *)start, end - start, PROT_READ);
    return 0;
}

static void rvm_unload(uintptr_t library) { dlclose((void *)library); }

static void *rvm_host_function(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"TVMBackendAllocWorkspace", (void *)rvm_host_alloc},
        {"TVMBackendFreeWorkspace", (void *)rvm_host_free},
        {"TVMBackendGetFuncFromEnv", (void *)rvm_host_lookup}, /* its name in TVM 0.25 */
        {"TVMBackendParallelBarrier", (void *)rvm_host_barrier},
        {"TVMBackendParallelLaunch", (void *)rvm_host_parallel},
        {"TVMFFIEnvModLookupFromImports", (void *)rvm_host_lookup},
        {"TVMFFIErrorSetRaisedFromCStr", (void *)rvm_host_raise},
        {"TVMFFIErrorSetRaisedFromCStrParts", (void *)rvm_host_raise_parts},
        {"TVMFFIFunctionCall", (void *)rvm_host_call},
        {"TVMFFIHandleInitOnce", (void *)rvm_host_init_once},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, name) == 0) return functions[i].function;
    return NULL;
}

#else

static void *rvm_host_function(const char *name) { (void)name; return NULL; }
static int rvm_write_word(uintptr_t place, uintptr_t value, int read_only) {
    (void)place, (void)value, (void)read_only;
    return -1;
}
static void rvm_unload(uintptr_t library) { (void)library; }
static int (*rvm_pool_threads)(void);
static int (*rvm_pool_take)(int, int);
static int (*rvm_pool_run)(rvm_section *, int);

#endif

#endif
