/* Batches of calls: the dataflow executor.
 *
 * The loop does not make a deferred call.  It adds it to the batch of the run, with references to the
 * arguments, and goes on.  Where the program needs what such calls have written, or ends a function, it runs
 * the batch.  Only kernels that write to their last arguments are deferred, so all arguments exist when the
 * call is added.
 *
 * A call depends on an earlier one if one of the two writes to bytes that the other reads or writes.  That
 * follows from the addresses of the arrays, whatever aliases the program makes: views, storages that hold one
 * tensor after another, arguments that are the same array.
 *
 * A batch is cut where all later calls depend on all earlier ones.  Between two cuts there is a group of
 * calls, of which some are independent if it has more than one.  Such a group runs on several threads if that
 * is worth while, by the times that its calls took before; else it runs in order, where a kernel may use
 * several threads itself.  In a group, each thread takes the call that most work depends on, of those whose
 * operands are ready.  The threads are those of the pool.  They hold the interpreter lock but for the time
 * that kernels release it.
 *
 * What a user sees is what the sequential machine shows: of calls that fail, the first one in the order of the
 * program counts, and calls after one that has failed no longer begin.
 */
#ifndef RELAXVM_BATCH_IMPL_H
#define RELAXVM_BATCH_IMPL_H

#include "_clock.h"
#include "_code.h"
#include "_pool.h"
#include "_runs.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#define RVM_HAS_BATCHES 1
#else
#define RVM_HAS_BATCHES 0
#endif

#define RVM_MAX_TASKS 256
#define RVM_MAX_TASK_ARGS 32
#define RVM_TASK_WORDS (RVM_MAX_TASKS / 64)
#define RVM_ARGS_AT_ONCE 4096 /* references that a batch has room for */

/* More pieces than threads ever take.  Each thread that finds none left adds one to the number of those that
 * were taken, which must not overflow. */
#define RVM_GROUP_PIECES (INT64_MAX / 2)

/* What it costs to run a group on several threads, and each of its calls, in nanoseconds. */
#define RVM_GROUP_COST 15000
#define RVM_TASK_COST 2000

/* Batches in a row without a gain, of which those that are too short for any count as several, after which the calls at this place of the program are no longer deferred, and
 * calls after which that is tried again. */
#define RVM_VAIN_BATCHES 32
#define RVM_SHORT_BATCH 8
#define RVM_PLAIN_CALLS (1 << 16)

/* What the site of a deferred call remembers, in `dims`: nanoseconds in order, and side by side with others;
 * the bytes of its arrays then.  `data` is a site that the calls of a batch share; in that, `dims[0]` counts
 * batches in vain and `count` the calls that are not to be deferred. */
enum { RVM_TIME_ALONE, RVM_TIME_BESIDE, RVM_TIMED_BYTES };
enum { RVM_IN_VAIN };

typedef uint64_t rvm_tasks[RVM_TASK_WORDS]; /* a set of tasks */

typedef struct {
    const char *first, *end;
} rvm_span;

/* A call. */
typedef struct {
    const int64_t *ip;      /* of the operation */
    rvm_site *site;
    PyObject *callee;       /* the pool of constants keeps it */
    PyObject **args;        /* owned */
    int count;
    int spans, written;     /* of `memory`; the written ones come first */
    rvm_span memory[RVM_MAX_TASK_ARGS];
    int64_t bytes;
    rvm_tasks before;       /* the earlier tasks that it depends on, by whatever way */
    int64_t work;           /* nanoseconds from its begin to the end of all that depends on it */
    PyObject *kind, *error, *traceback; /* owned, if it has failed */
    PyObject *warnings;     /* owned; NULL if there are none */
    int64_t begin, end;     /* in nanoseconds of the clock; 0 if it has not run */
    int thread;             /* that has run it: 0 is that of the run */
} rvm_task;

typedef struct {
    rvm_batch shared;       /* what all of the core sees; first */
    rvm_active_run *run;
    rvm_site *place;        /* the site that its calls share */
    int count;
    int used_args;
    int has_gained;         /* whether a group ran on several threads, or is to be timed */
    int is_short;           /* whether no group takes as long as it takes to wake a thread */
    PyObject *kind, *error, *traceback; /* owned; why the run ends while calls are waited for, such as Ctrl-C */
    int was_asked;          /* what the run was asked for before that */
    PyObject *args[RVM_ARGS_AT_ONCE];
    rvm_task tasks[RVM_MAX_TASKS];
} rvm_calls;

/* The calls between two cuts, on several threads.  All but `finished` is guarded by the interpreter lock. */
typedef struct {
    rvm_section section;    /* first */
    rvm_calls *calls;
    int first, stop;        /* the tasks */
    int limit;              /* tasks from here on no longer begin: one has failed */
    rvm_tasks begun, done;
    uint32_t finished;      /* counts tasks that have ended; atomic */
    int is_over;            /* atomic */
    PyThreadState *state;   /* of the run's thread */
    PyObject *context;      /* of Python, such as what numpy does about floating-point errors */
#if RVM_HAS_BATCHES
    pthread_mutex_t mutex;
    pthread_cond_t change;
#endif
} rvm_group;

/* Of other modules: the pool, and what kernels of a run have warned of, as a list or NULL with an exception. */
static int (*rvm_batch_take_pool)(int threads, int waits);
static int (*rvm_batch_run_section)(rvm_section *section, int threads);
static PyObject *(*rvm_batch_warnings)(rvm_active_run *run);
/* Looks at signals, cancellation and deadlines; -1 with an exception. */
static int (*rvm_batch_look)(void);

/* Whether groups run on several threads at all events, for which the caller waits for another one, for tests. */
static int rvm_batch_always;

static rvm_calls *rvm_idle_calls; /* guarded by the interpreter lock */

/* ---- sets ---------------------------------------------------------------------------------------- */

static inline int rvm_has_task(const uint64_t *set, int i) { return set[i >> 6] >> (i & 63) & 1; }

static inline void rvm_put_task(uint64_t *set, int i) { set[i >> 6] |= UINT64_C(1) << (i & 63); }

static inline int rvm_is_within(const uint64_t *set, const uint64_t *other) {
    for (int k = 0; k < RVM_TASK_WORDS; k++)
        if (set[k] & ~other[k]) return 0;
    return 1;
}

static inline int rvm_count_tasks(const uint64_t *set) {
    int count = 0;
    for (int k = 0; k < RVM_TASK_WORDS; k++)
        for (uint64_t word = set[k]; word != 0; word &= word - 1) count++;
    return count;
}

/* ---- adding a call ------------------------------------------------------------------------------- */

/* The bytes of an array: from the first to the last one of its elements. */
static rvm_span rvm_span_of(PyArrayObject *array) {
    rvm_span span = {PyArray_BYTES(array), PyArray_BYTES(array)};
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        npy_intp dim = PyArray_DIM(array, i), step = PyArray_STRIDE(array, i);
        if (dim == 0) return (rvm_span){NULL, NULL};
        if (step < 0) span.first += (dim - 1) * step;
        else span.end += (dim - 1) * step;
    }
    span.end += PyArray_ITEMSIZE(array);
    return span;
}

static inline int rvm_meets(const rvm_span *a, int num_a, const rvm_span *b, int num_b) {
    for (int i = 0; i < num_a; i++)
        for (int k = 0; k < num_b; k++)
            if (a[i].first < b[k].end && b[k].first < a[i].end) return 1;
    return 0;
}

static inline int rvm_conflicts(const rvm_task *a, const rvm_task *b) {
    return rvm_meets(a->memory, a->written, b->memory, b->spans) ||
           rvm_meets(b->memory, b->written, a->memory + a->written, a->spans - a->written);
}

/* Whether a value that is no array has no memory that a kernel may share with others: numbers, text, data types,
 * shapes.  Tuples and objects of other libraries may have arrays in them. */
static int rvm_has_no_array(PyObject *value) {
    if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value) ||
        PyBytes_Check(value) || PyArray_DescrCheck(value) || PyArray_IsScalar(value, Generic))
        return 1;
    if (!PyTuple_Check(value) || PyTuple_CheckExact(value)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++)
        if (!PyLong_Check(PyTuple_GET_ITEM(value, i))) return 0;
    return 1;
}

/* Note the arrays among the operands: the last `outs` are written, and the others that are in registers are
 * read; constants are never written.  False where an operand is neither an array nor something without one. */
static int rvm_note_memory(rvm_task *task, const int64_t *words, int outs) {
    task->spans = task->written = 0;
    task->bytes = 0;
    for (int i = task->count - 1; i >= 0; i--) {
        PyObject *value = task->args[i];
        int is_written = i >= task->count - outs;
        if (!is_written && words[i] < 0) continue;
        if (PyArray_CheckExact(value)) {
            rvm_span span = rvm_span_of((PyArrayObject *)value);
            task->memory[task->spans++] = span;
            task->written += is_written;
            task->bytes += span.end - span.first;
        } else if (is_written || !rvm_has_no_array(value)) {
            return 0;
        }
    }
    return 1;
}

/* An empty batch for a run; NULL if there is no memory. */
static rvm_calls *rvm_new_calls(rvm_active_run *run, rvm_site *place) {
    rvm_calls *calls = rvm_idle_calls;
    rvm_idle_calls = NULL;
    if (calls == NULL) calls = (rvm_calls *)PyMem_RawMalloc(sizeof *calls);
    if (calls == NULL) return NULL;
    calls->shared.num_helpers = 0;
    calls->run = run;
    calls->place = place;
    calls->count = calls->used_args = 0;
    calls->has_gained = 0;
    calls->is_short = 1;
    calls->kind = calls->error = calls->traceback = NULL;
    run->batch = &calls->shared;
    return calls;
}

/* Add a call of `callee` with operands; it writes to its last `outs`.  False if it cannot be added: what is in
 * the batch must run first, and then the call itself. */
static int rvm_defer(rvm_active_run *run, const int64_t *ip, rvm_site *site, PyObject *callee,
                     PyObject *const *fp, PyObject *const *pool_end, const int64_t *words, int64_t count,
                     int64_t outs) {
    rvm_calls *calls = (rvm_calls *)run->batch;
    if (count > RVM_MAX_TASK_ARGS) return 0;
    if (calls == NULL && (calls = rvm_new_calls(run, (rvm_site *)site->data)) == NULL) return 0;
    if (calls->count == RVM_MAX_TASKS || calls->used_args + count > RVM_ARGS_AT_ONCE) return 0;
    rvm_task *task = &calls->tasks[calls->count];
    task->ip = ip;
    task->site = site;
    task->callee = callee;
    task->args = calls->args + calls->used_args;
    task->count = (int)count;
    for (int64_t i = 0; i < count; i++) task->args[i] = rvm_load(fp, pool_end, words[i]);
    if (!rvm_note_memory(task, words, (int)outs)) return 0;
    for (int64_t i = 0; i < count; i++) rvm_incref(task->args[i]);
    task->kind = task->error = task->traceback = task->warnings = NULL;
    task->begin = task->end = 0;
    task->thread = 0;
    memset(task->before, 0, sizeof task->before);
    for (int i = calls->count - 1; i >= 0; i--) {
        const rvm_task *earlier = &calls->tasks[i];
        if (rvm_has_task(task->before, i) || !rvm_conflicts(task, earlier)) continue;
        rvm_put_task(task->before, i);
        for (int k = 0; k < RVM_TASK_WORDS; k++) task->before[k] |= earlier->before[k];
    }
    calls->used_args += (int)count;
    calls->count++;
    return 1;
}

/* ---- running a call ------------------------------------------------------------------------------ */

/* How long a call is going to take, by what it took before; 0 if that is not known. */
static int64_t rvm_time_of(const rvm_task *task, int which) {
    const rvm_site *site = task->site;
    int64_t time = site->dims[which], bytes = site->dims[RVM_TIMED_BYTES];
    if (time == 0 || bytes == 0 || bytes == task->bytes) return time;
    return 1 + (int64_t)((double)time * (double)task->bytes / (double)bytes);
}

static void rvm_learn_time(rvm_task *task, int which) {
    rvm_site *site = task->site;
    int64_t time = task->end - task->begin;
    if (site->dims[RVM_TIMED_BYTES] != task->bytes) {
        site->dims[RVM_TIME_ALONE] = site->dims[RVM_TIME_BESIDE] = 0;
        site->dims[RVM_TIMED_BYTES] = task->bytes;
    }
    /* Other work on the machine makes a call slow, nothing makes it fast: the lower one counts more. */
    int64_t old = site->dims[which];
    /* The first time beside others, in which the threads may have had to start, does not count as much. */
    int64_t alone = site->dims[RVM_TIME_ALONE];
    if (which == RVM_TIME_BESIDE && old == 0 && alone != 0 && time > alone + alone / 8) time = alone + alone / 8;
    site->dims[which] = 1 + (old == 0 ? time : time < old ? (time + old) / 2 : (time + 15 * old) / 16);
}

/* Make a call; with the interpreter lock. */
static void rvm_run_task(rvm_calls *calls, rvm_task *task, int thread, int which) {
    task->thread = thread;
    task->begin = rvm_clock_ns();
    PyObject *value = PyObject_Vectorcall(task->callee, task->args, (size_t)task->count, NULL);
    task->end = rvm_clock_ns();
    if (value != NULL) {
        Py_DECREF(value);
        rvm_learn_time(task, which);
    } else {
        PyErr_Fetch(&task->kind, &task->error, &task->traceback);
    }
    if (calls->run->asked & RVM_WARNED) {
        task->warnings = rvm_batch_warnings(calls->run);
        if (task->warnings == NULL) PyErr_Clear(); /* no memory for warnings */
    }
}

/* Make calls one after the other: false if one fails. */
static int rvm_run_in_order(rvm_calls *calls, int first, int stop) {
    for (int i = first; i < stop; i++) {
        rvm_run_task(calls, &calls->tasks[i], 0, RVM_TIME_ALONE);
        if (calls->tasks[i].kind != NULL) return 0;
    }
    return 1;
}

/* ---- groups -------------------------------------------------------------------------------------- */

/* Nanoseconds that a call takes beside others, as far as that is known. */
static int64_t rvm_time_beside(const rvm_task *task) {
    int64_t time = rvm_time_of(task, RVM_TIME_BESIDE);
    return time != 0 ? time : rvm_time_of(task, RVM_TIME_ALONE);
}

/* Find out how much work depends on each call of a group; returns the longest path. */
static int64_t rvm_find_work(rvm_calls *calls, int first, int stop) {
    int64_t most = 0;
    for (int i = stop - 1; i >= first; i--) {
        rvm_task *task = &calls->tasks[i];
        int64_t longest = 0;
        for (int k = i + 1; k < stop; k++)
            if (rvm_has_task(calls->tasks[k].before, i) && calls->tasks[k].work > longest)
                longest = calls->tasks[k].work;
        task->work = longest + rvm_time_beside(task) + RVM_TASK_COST;
        if (task->work > most) most = task->work;
    }
    return most;
}

/* The most nanoseconds that a group takes on so many threads of which none is idle while a call is ready
 * (Graham, "Bounds on multiprocessing timing anomalies", 1969). */
static int64_t rvm_plan_group(rvm_calls *calls, int first, int stop, int threads) {
    int64_t total = 0, longest = rvm_find_work(calls, first, stop);
    for (int i = first; i < stop; i++) total += rvm_time_beside(&calls->tasks[i]) + RVM_TASK_COST;
    return (total + (threads - 1) * longest) / threads + RVM_GROUP_COST;
}

/* Whether several threads are likely to be done with a group earlier than one. */
static int rvm_is_worth_while(rvm_calls *calls, int first, int stop, int threads) {
    int64_t in_order = 0, beside;
    if (rvm_batch_always) {
        rvm_find_work(calls, first, stop);
        return calls->has_gained = 1;
    }
    for (int i = first; i < stop; i++) {
        int64_t time = rvm_time_of(&calls->tasks[i], RVM_TIME_ALONE);
        if (time == 0) {
            calls->has_gained = 1; /* not known yet */
            return 0;
        }
        in_order += time;
    }
    if (in_order > RVM_GROUP_COST) calls->is_short = 0;
    beside = rvm_plan_group(calls, first, stop, threads);
    if (beside < in_order - in_order / 16) {
        calls->has_gained = 1;
        return 1;
    }
    /* What made the calls slow may not last: now and then they get another chance. */
    for (int i = first; i < stop; i++) {
        rvm_site *site = calls->tasks[i].site;
        if (site->dims[RVM_TIME_BESIDE] > site->dims[RVM_TIME_ALONE])
            site->dims[RVM_TIME_BESIDE] -= site->dims[RVM_TIME_BESIDE] / 64;
    }
    return 0;
}

#if RVM_HAS_BATCHES

/* The call to make next, of those whose operands are ready; -1 if there is none. */
static int rvm_next_task(rvm_group *group) {
    rvm_calls *calls = group->calls;
    int best = -1;
    for (int i = group->first; i < group->limit; i++) {
        if (rvm_has_task(group->begun, i) || !rvm_is_within(calls->tasks[i].before, group->done)) continue;
        if (best < 0 || calls->tasks[i].work > calls->tasks[best].work) best = i;
    }
    return best;
}

/* Whether all calls that are to be made have ended. */
static int rvm_is_done(const rvm_group *group) {
    for (int i = group->first; i < group->limit; i++)
        if (!rvm_has_task(group->done, i)) return 0;
    return 1;
}

static void rvm_tell(rvm_group *group) {
    pthread_mutex_lock(&group->mutex);
    __atomic_add_fetch(&group->finished, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&group->change);
    pthread_mutex_unlock(&group->mutex);
}

/* Wait, without the interpreter lock, until a call has ended, or for some milliseconds. */
static void rvm_wait_for_task(rvm_group *group, uint32_t seen) {
    int64_t end = rvm_clock_ns() + 20000;
    while (rvm_clock_ns() < end)
        if (__atomic_load_n(&group->finished, __ATOMIC_ACQUIRE) != seen) return;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 5000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&group->mutex);
    if (group->finished == seen) pthread_cond_timedwait(&group->change, &group->mutex, &until);
    pthread_mutex_unlock(&group->mutex);
}

/* Whether an exception is not the program's, such as a `KeyboardInterrupt`: the run ends with it, whatever
 * calls fail with. */
static int rvm_is_interrupt(PyObject *kind) { return !PyErr_GivenExceptionMatches(kind, PyExc_Exception); }

/* The run is to end with the exception that is set: no call begins any more, and those in progress on other
 * threads are cancelled. */
static void rvm_interrupt_group(rvm_group *group) {
    rvm_calls *calls = group->calls;
    if (calls->kind != NULL) { /* the first one counts */
        PyErr_Clear();
        return;
    }
    PyErr_Fetch(&calls->kind, &calls->error, &calls->traceback);
    calls->was_asked = calls->run->asked;
    calls->run->asked |= RVM_CANCELLED;
    group->limit = group->first;
}

/* Make calls until none is left, or the process forks.  With the interpreter lock. */
static void rvm_work_on(rvm_group *group, int thread) {
    rvm_calls *calls = group->calls;
    const rvm_section *section = &group->section;
    while (!group->is_over && __atomic_load_n(&section->next[0], __ATOMIC_RELAXED) < section->pieces) {
        uint32_t seen = __atomic_load_n(&group->finished, __ATOMIC_RELAXED);
        int i = rvm_next_task(group);
        if (i >= 0) {
            rvm_put_task(group->begun, i);
            rvm_run_task(calls, &calls->tasks[i], thread, RVM_TIME_BESIDE);
            rvm_put_task(group->done, i);
            rvm_task *task = &calls->tasks[i];
            if (task->kind != NULL && i < group->limit) group->limit = i;
            if (task->kind != NULL && rvm_is_interrupt(task->kind)) {
                PyErr_Restore(Py_NewRef(task->kind), Py_XNewRef(task->error), Py_XNewRef(task->traceback));
                rvm_interrupt_group(group);
            }
        } else if (!rvm_is_done(group)) {
            PyThreadState *state = PyEval_SaveThread();
            rvm_wait_for_task(group, seen);
            PyEval_RestoreThread(state);
            if (thread == 0 && rvm_batch_look() < 0) rvm_interrupt_group(group);
            continue;
        }
        if (rvm_is_done(group)) __atomic_store_n(&group->is_over, 1, __ATOMIC_RELEASE);
        rvm_tell(group);
    }
}

/* In tests: wait until a thread of the pool has come. */
static void rvm_wait_for_helper(rvm_group *group) {
    int64_t end = rvm_clock_ns() + 100000000;
    while (group->calls->shared.helpers[0] == 0 && rvm_clock_ns() < end) {
        PyThreadState *state = PyEval_SaveThread();
        sched_yield();
        PyEval_RestoreThread(state);
    }
}

/* The part of a thread of the pool. */
static void rvm_help(rvm_group *group, int thread) {
    PyGILState_STATE gil = PyGILState_Ensure();
    rvm_batch *shared = &group->calls->shared;
    PyObject *context = group->is_over || group->context == NULL ? NULL : PyContext_Copy(group->context);
    if (context != NULL && PyContext_Enter(context) == 0) {
        shared->helpers[thread - 1] = rvm_thread_state()->id;
        rvm_work_on(group, thread);
        if (!rvm_batch_always) shared->helpers[thread - 1] = 0;
        PyContext_Exit(context);
    }
    PyErr_Clear(); /* without memory for a context, the others do the work */
    Py_XDECREF(context);
    PyGILState_Release(gil);
}

static int rvm_run_group_piece(rvm_section *section, int64_t piece, int thread) {
    rvm_group *group = (rvm_group *)section;
    (void)piece;
    if (thread == 0) {
        PyEval_RestoreThread(group->state);
        if (rvm_batch_always) rvm_wait_for_helper(group);
        rvm_work_on(group, thread);
        group->state = PyEval_SaveThread();
    } else if (!__atomic_load_n(&group->is_over, __ATOMIC_ACQUIRE)) {
        rvm_help(group, thread);
    }
    return __atomic_load_n(&group->is_over, __ATOMIC_ACQUIRE);
}

/* Make the calls of a group on the threads that rvm_take_pool gave: false if one fails. */
static int rvm_run_group(rvm_calls *calls, int first, int stop, int threads) {
    rvm_group group = {.section = {.run = rvm_run_group_piece, .pieces = RVM_GROUP_PIECES, .takes_gil = 1},
                       .calls = calls,
                       .first = first,
                       .stop = stop,
                       .limit = stop,
                       .mutex = PTHREAD_MUTEX_INITIALIZER,
                       .change = PTHREAD_COND_INITIALIZER};
    for (int i = 0; i < first; i++) rvm_put_task(group.done, i);
    memset(calls->shared.helpers, 0, (size_t)(threads - 1) * sizeof calls->shared.helpers[0]);
    calls->shared.num_helpers = threads - 1;
    group.context = PyContext_CopyCurrent();
    if (group.context == NULL) PyErr_Clear();
    group.state = PyEval_SaveThread();
    rvm_batch_run_section(&group.section, threads);
    PyEval_RestoreThread(group.state);
    calls->shared.num_helpers = 0;
    Py_XDECREF(group.context);
    pthread_cond_destroy(&group.change);
    pthread_mutex_destroy(&group.mutex);
    if (calls->kind != NULL) calls->run->asked = calls->was_asked;
    return group.limit == stop;
}

#endif

/* Make the calls between two cuts: false if one fails. */
static int rvm_run_between(rvm_calls *calls, int first, int stop, int threads) {
#if RVM_HAS_BATCHES
    if (stop - first > 1 && threads > 1 && rvm_is_worth_while(calls, first, stop, threads)) {
        int taken = rvm_batch_take_pool(threads < stop - first ? threads : stop - first, 0);
        if (taken > 1) {
            return rvm_run_group(calls, first, stop, taken);
        }
    }
#endif
    return rvm_run_in_order(calls, first, stop);
}

/* ---- batches ------------------------------------------------------------------------------------- */

/* Make all calls of a batch.  The tasks then say which failed: the first one in order counts. */
static void rvm_run_batch(rvm_calls *calls, int threads) {
    rvm_tasks common; /* what all calls from some position on depend on */
    rvm_tasks cuts = {0};
    int first = 0;
    memset(common, 0xFF, sizeof common);
    for (int i = calls->count - 1; i >= 0; i--) {
        for (int k = 0; k < RVM_TASK_WORDS; k++) common[k] &= calls->tasks[i].before[k];
        if (rvm_count_tasks(common) == i) rvm_put_task(cuts, i);
    }
    for (int i = 1; i <= calls->count; i++) {
        if (i < calls->count && !rvm_has_task(cuts, i)) continue;
        if (!rvm_run_between(calls, first, i, threads)) return;
        first = i;
    }
    rvm_site *place = calls->place;
    if (calls->has_gained) {
        place->dims[RVM_IN_VAIN] = 0;
        return;
    }
    place->dims[RVM_IN_VAIN] += calls->is_short ? RVM_SHORT_BATCH : 1;
    if (place->dims[RVM_IN_VAIN] >= RVM_VAIN_BATCHES) {
        place->dims[RVM_IN_VAIN] = 0;
        place->count = RVM_PLAIN_CALLS;
    }
}

/* Whether the calls at a place of the program are to be deferred now. */
static inline int rvm_defers(const rvm_site *site) {
    rvm_site *place = (rvm_site *)site->data;
    if (RVM_LIKELY(place->count == 0)) return 1;
    place->count--;
    return 0;
}

/* Let a batch go that has run. */
static void rvm_drop_calls(rvm_calls *calls) {
    calls->run->batch = NULL;
    Py_XDECREF(calls->kind);
    Py_XDECREF(calls->error);
    Py_XDECREF(calls->traceback);
    for (int i = 0; i < calls->count; i++) {
        rvm_task *task = &calls->tasks[i];
        Py_XDECREF(task->kind);
        Py_XDECREF(task->error);
        Py_XDECREF(task->traceback);
        Py_XDECREF(task->warnings);
    }
    for (int i = 0; i < calls->used_args; i++) Py_DECREF(calls->args[i]);
    if (rvm_idle_calls == NULL) rvm_idle_calls = calls;
    else PyMem_RawFree(calls);
}

#endif
