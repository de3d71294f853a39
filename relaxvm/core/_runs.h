/* The runs in progress: what bounds each, and which of them have called the code that runs now. */
#ifndef RELAXVM_RUNS_H
#define RELAXVM_RUNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define RVM_MAX_HELPERS 255

/* When a run of stepped code pauses, and where it has. */
typedef struct {
    int64_t steps;       /* instructions that it may run before it pauses */
    const char *stops;   /* per pc of the executable whether it pauses there, or NULL */
    int64_t calls_left;  /* it pauses where calls may be nested this much deeper, or more */
    int64_t begun;       /* instructions that it has begun or paused at */
    PyObject **fp;       /* of the innermost frame */
    const int64_t *ip;   /* of the operation to go on with */
    int paused;
} rvm_pause;

/* What all code that looks for runs knows of a batch: its threads, besides that of the run, by the ids of
 * their states; 0 for one that has not come. */
typedef struct rvm_batch {
    int num_helpers;
    uint64_t helpers[RVM_MAX_HELPERS];
} rvm_batch;

enum {
    RVM_CANCELLED = 1, /* end the run */
    RVM_WARNED = 2     /* say what its kernels have warned of, with the pc */
};

/* One invocation from Python.  It is in memory from the heap, as its frames are: a program may switch C
 * stacks (greenlets) while others refer to it.
 *
 * All runs in progress are in one list, in the order in which they began; the GIL guards it.  Which of
 * them have called the code that runs now follows from the Python frames below it.  They are in chunks
 * of memory of which every thread, and every greenlet, has its own; a run keeps the chunk in which its
 * caller's frame is.  (A variable of the thread would not do: it is shared by greenlets, and looking it
 * up takes longer than all that a run does here when it begins.) */
typedef struct rvm_active_run {
    struct rvm_active_run *older, *newer;
    uint64_t thread;           /* id of the thread's state: one that has ended leaves chunks behind */
    _PyStackChunk *frames;     /* with the frame of the caller */
    PyObject *machine;         /* the caller keeps it alive */
    struct rvm_chunk *chunk;   /* of the innermost frame */
    PyObject **end;            /* of that chunk */
    int64_t words;             /* of all chunks */
    int64_t calls_left;        /* how much deeper calls may be nested */
    int64_t polls;
    int asked;                 /* RVM_CANCELLED, RVM_WARNED: what the next poll is to do */
    rvm_pause *pause;          /* set in runs of stepped code */
    rvm_batch *batch;            /* calls that wait to be run side by side, see _batch_impl.h; or NULL */
    int64_t deadline;          /* in ns of the clock; INT64_MAX if there is none */

    /* The rest is set in runs with limits. */
    PyObject *host;            /* the allocator of host memory; NULL in a run without limits */
    struct rvm_active_run *outer;     /* the run with limits that this one is in, or NULL */
    int64_t wall_ns;           /* the limit that the deadline comes from */
    int64_t fuel;
    int64_t start_fuel;
    int64_t outer_objects;     /* bytes of objects of the outer run */
    int64_t objects;           /* with those of this run, the most that there may be */
    int64_t census_at;         /* more objects call for a census */
    PyObject *array_handler;   /* where numpy took memory from before, or NULL if it still does */
} rvm_active_run;

/* A piece of the stack of frames of a run, see _core_impl.h. */
typedef struct rvm_chunk {
    struct rvm_chunk *previous;
    rvm_active_run run; /* in its first chunk */
    PyObject **end;
    int64_t words;
    PyObject *memory[1];
} rvm_chunk;

static inline PyThreadState *rvm_thread_state(void) {
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#else
    return PyThreadState_Get();
#endif
}

/* Begin a run, at the end of the circular list with this head. */
static inline void rvm_begin_run(rvm_active_run *runs, rvm_active_run *run, PyThreadState *state,
                                 PyObject *machine) {
    rvm_active_run *newest = runs->older;
    run->older = newest;
    run->newer = runs;
    newest->newer = run;
    runs->older = run;
    run->thread = state->id;
    run->frames = state->datastack_chunk;
    run->machine = machine;
    run->polls = 0;
    run->asked = 0;
    run->deadline = INT64_MAX;
    run->host = NULL;
    run->batch = NULL;
}

/* Whether a thread runs calls of a batch of the run, see _batch_impl.h. */
static inline int rvm_is_helper(const rvm_active_run *run, uint64_t thread) {
    for (int i = 0; i < run->batch->num_helpers; i++)
        if (run->batch->helpers[i] == thread) return 1;
    return 0;
}

static inline void rvm_end_run(rvm_active_run *run) {
    run->older->newer = run->newer;
    run->newer->older = run->older;
}

/* Whether there is a Python frame in this thread or greenlet, or has been one. */
static inline int rvm_has_frames(PyThreadState *state) { return state->datastack_chunk != NULL; }

static inline int rvm_is_caller(const rvm_active_run *run, const PyThreadState *state) {
    if (run->thread != state->id) return run->batch != NULL && rvm_is_helper(run, state->id);
    for (const _PyStackChunk *chunk = state->datastack_chunk; chunk != NULL; chunk = chunk->previous)
        if (chunk == run->frames) return 1;
    return 0;
}

/* The innermost run, of those before `run`, that has called the code that runs now; NULL if there is
 * none.  With the head of the list, the innermost of all. */
static inline rvm_active_run *rvm_caller(rvm_active_run *runs, rvm_active_run *run) {
    const PyThreadState *state = rvm_thread_state();
    while ((run = run->older) != runs)
        if (rvm_is_caller(run, state)) return run;
    return NULL;
}

/* Whether a run pauses before the instruction at `pc`. */
static inline int rvm_pauses(rvm_active_run *run, int64_t pc) {
    rvm_pause *pause = run->pause;
    pause->begun++;
    if (pause->steps <= 0 || (pause->stops != NULL && pause->stops[pc])
        || run->calls_left >= pause->calls_left) {
        pause->paused = 1;
        return 1;
    }
    pause->steps--;
    return 0;
}

/* ---- recursion ------------------------------------------------------------------------------- */
/* Py_EnterRecursiveCall and its opposite, without the calls where the counter is a field. */
#if PY_VERSION_HEX < 0x030C0000
#define RVM_RECURSION_LEFT(state) (state)->recursion_remaining
#elif PY_VERSION_HEX < 0x030E0000
#define RVM_RECURSION_LEFT(state) (state)->c_recursion_remaining
#endif

/* 0, or -1 with RecursionError. */
static inline int rvm_enter_recursion(PyThreadState *state) {
#ifdef RVM_RECURSION_LEFT
    if (RVM_RECURSION_LEFT(state) > 0) {
        RVM_RECURSION_LEFT(state)--;
        return 0;
    }
#else
    (void)state;
#endif
    return Py_EnterRecursiveCall(" in a relaxvm virtual machine") ? -1 : 0;
}

static inline void rvm_leave_recursion(PyThreadState *state) {
#ifdef RVM_RECURSION_LEFT
    RVM_RECURSION_LEFT(state)++;
#else
    (void)state;
    Py_LeaveRecursiveCall();
#endif
}

#endif
