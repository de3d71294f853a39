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
#include "_sort_impl.h"

#if defined(__unix__) || defined(__APPLE__)
#define RVM_HAS_HOST 1
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

/* Turns of waiting before a thread goes to sleep: some tens of microseconds. */
#define RVM_SPINS 4000
#define RVM_MAX_THREADS 256

typedef struct {
    rvm_lambda lambda;
    void *data;
    int32_t num_task;
    int32_t threads;   /* that may run it at once */
    int32_t next;      /* task that nobody has taken; atomic */
    int32_t inside;    /* threads other than the caller that run tasks of it; written under the mutex */
    int32_t arrived;   /* at the barrier; atomic */
    int32_t phase;     /* of the barrier; atomic */
    int32_t failed;    /* atomic; the error is written under the mutex, once */
    rvm_task_error error;
} rvm_job;

static struct {
    pthread_mutex_t busy;   /* held by whoever has a job run */
    pthread_mutex_t mutex;  /* of what follows */
    pthread_cond_t work, done;
    int threads;            /* that may run, the caller's among them; 0: not known yet */
    int workers;            /* started */
    uint32_t round;         /* counts jobs; atomic */
    rvm_job *job;
} rvm_pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
              PTHREAD_COND_INITIALIZER, 0, 0, 0, NULL};

static inline void rvm_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* Run tasks until all are taken. */
static void rvm_run_tasks(rvm_job *job) {
    rvm_task_error error = {NULL, NULL}, *outer_task = rvm_task;
    rvm_group group = {job, job->num_task};
    int outer = rvm_in_parallel, code = 0, task;
    rvm_task = &error;
    rvm_in_parallel = 1;
    while (code == 0 && (task = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->num_task)
        code = job->lambda(task, &group, job->data);
    rvm_in_parallel = outer;
    rvm_task = outer_task;
    if (code != 0) {
        pthread_mutex_lock(&rvm_pool.mutex);
        if (!job->failed) {
            job->error = error;
            error.kind = error.message = NULL;
            __atomic_store_n(&job->failed, 1, __ATOMIC_RELEASE);
            __atomic_store_n(&job->next, job->num_task, __ATOMIC_RELAXED); /* no more of it */
        }
        pthread_mutex_unlock(&rvm_pool.mutex);
    }
    free(error.kind);
    free(error.message);
}

static void *rvm_worker(void *argument) {
    uint32_t seen = 0;
    (void)argument;
    for (;;) {
        for (int i = 0; i < RVM_SPINS; i++) {
            if (__atomic_load_n(&rvm_pool.round, __ATOMIC_ACQUIRE) != seen) break;
            rvm_pause();
        }
        pthread_mutex_lock(&rvm_pool.mutex);
        while (rvm_pool.round == seen) pthread_cond_wait(&rvm_pool.work, &rvm_pool.mutex);
        seen = rvm_pool.round;
        rvm_job *job = rvm_pool.job;
        int joins = job != NULL && job->inside + 1 < job->threads;
        /* The caller does not leave the job while somebody is inside. */
        if (joins) __atomic_add_fetch(&job->inside, 1, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&rvm_pool.mutex);
        if (!joins) continue;
        rvm_run_tasks(job);
        pthread_mutex_lock(&rvm_pool.mutex);
        if (__atomic_sub_fetch(&job->inside, 1, __ATOMIC_RELEASE) == 0)
            pthread_cond_signal(&rvm_pool.done);
        pthread_mutex_unlock(&rvm_pool.mutex);
    }
    return NULL;
}

/* In a child process there are no workers, whatever the parent was doing. */
static void rvm_after_fork(void) {
    pthread_mutex_init(&rvm_pool.busy, NULL);
    pthread_mutex_init(&rvm_pool.mutex, NULL);
    pthread_cond_init(&rvm_pool.work, NULL);
    pthread_cond_init(&rvm_pool.done, NULL);
    rvm_pool.workers = 0;
    rvm_pool.round = 0;
    rvm_pool.job = NULL;
}

static int rvm_processors(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

static int rvm_threads(void) {
    int threads = __atomic_load_n(&rvm_pool.threads, __ATOMIC_RELAXED);
    return threads > 0 ? threads : rvm_processors();
}

/* Start workers up to a number; how many there are. */
static int rvm_start_workers(int count) {
    static int prepared = 0;
    if (!prepared) prepared = pthread_atfork(NULL, NULL, rvm_after_fork) == 0;
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    sigset_t all, before;
    sigfillset(&all); /* signals are for Python's threads, ... */
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&all, own[i]); /* but for faults */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (rvm_pool.workers < count) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, (size_t)8 << 20);
        int failed = pthread_create(&thread, &attributes, rvm_worker,
                                    NULL);
        pthread_attr_destroy(&attributes);
        if (failed) break;
        rvm_pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rvm_pool.workers;
}

static int rvm_end_job(rvm_job *job) {
    if (!job->failed) return 0;
    if (job->error.kind != NULL)
        rvm_host_raise(job->error.kind, job->error.message != NULL ? job->error.message : "");
    free(job->error.kind);
    free(job->error.message);
    return RVM_FAILED;
}

/* Take the threads.  Tasks of a given number may meet at barriers, for which each needs a thread: they
 * wait for their turn, others do without. */
static int rvm_take_pool(int num_task) {
    if (num_task > 0) return pthread_mutex_lock(&rvm_pool.busy) == 0;
    return pthread_mutex_trylock(&rvm_pool.busy) == 0;
}

/* Run a function for all tasks, on as many threads as there are; on this one alone if the threads
 * have other work.  A number of tasks of 0 leaves it to us. */
static int rvm_host_parallel(rvm_lambda lambda, void *data, int num_task) {
    int threads = rvm_threads();
    if (threads > RVM_MAX_THREADS) threads = RVM_MAX_THREADS;
    if (num_task > 0 && num_task < threads) threads = num_task;
    rvm_job job = {lambda, data, num_task > 0 ? num_task : 1, 1, 0, 0, 0, 0, 0, {NULL, NULL}};
    if (threads < 2 || rvm_in_parallel || !rvm_take_pool(num_task)) {
        rvm_run_tasks(&job);
        return rvm_end_job(&job);
    }
    int workers = rvm_start_workers(threads - 1);
    if (threads > workers + 1) threads = workers + 1;
    job.threads = threads;
    if (num_task <= 0) job.num_task = threads;
    pthread_mutex_lock(&rvm_pool.mutex);
    rvm_pool.job = &job;
    __atomic_add_fetch(&rvm_pool.round, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&rvm_pool.work);
    pthread_mutex_unlock(&rvm_pool.mutex);
    rvm_run_tasks(&job);
    /* Who has not come yet is not waited for. */
    pthread_mutex_lock(&rvm_pool.mutex);
    rvm_pool.job = NULL;
    pthread_mutex_unlock(&rvm_pool.mutex);
    for (int i = 0; i < RVM_SPINS && __atomic_load_n(&job.inside, __ATOMIC_ACQUIRE) > 0; i++)
        rvm_pause();
    pthread_mutex_lock(&rvm_pool.mutex); /* who was inside has let go of it */
    while (job.inside > 0) pthread_cond_wait(&rvm_pool.done, &rvm_pool.mutex);
    pthread_mutex_unlock(&rvm_pool.mutex);
    pthread_mutex_unlock(&rvm_pool.busy);
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
        if (__atomic_load_n(&job->failed, __ATOMIC_ACQUIRE)) return RVM_FAILED;
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

static void rvm_set_threads(int threads) {
    __atomic_store_n(&rvm_pool.threads, threads, __ATOMIC_RELAXED);
}

#else

static void *rvm_host_function(const char *name) { (void)name; return NULL; }
static int rvm_write_word(uintptr_t place, uintptr_t value, int read_only) {
    (void)place, (void)value, (void)read_only;
    return -1;
}
static void rvm_unload(uintptr_t library) { (void)library; }
static int rvm_threads(void) { return 1; }
static void rvm_set_threads(int threads) { (void)threads; }

#endif

#endif
