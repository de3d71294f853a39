/* The pool of threads of the process.
 *
 * There is one, which all kernels, virtual machines and threads of Python share.  It is made when it is
 * first used, and grows to the greatest number of threads that was asked for.
 *
 * A section is work in pieces.  Its caller publishes it; workers take the numbers of pieces, and so does
 * the caller, until none is left.  A worker that comes too late finds nothing, and is not waited for.  Only
 * one section has the pool at a time: a second caller, or a piece that has pieces itself, does its work
 * alone, so that there are never more threads at work than there are for one section besides those of
 * Python.
 *
 * A worker that has nothing to do looks for the next section for a while, since kernels follow each other, and
 * then sleeps: to wake it takes 30 us and more on virtual machines, and the caller's time for a call to the
 * system.  Where that was in vain, it looks for a shorter time after the next section.  A caller that has no
 * more pieces looks for the end of the others' in the same way.  (The workers of onnxruntime look for tens of
 * milliseconds.)
 *
 * A caller may fork in the middle of its section: it looks at signals, and a handler of Python may do anything.
 * The child has no workers, so what these have begun ends before the fork, and both processes go on with the
 * rest of the pieces.
 */
#ifndef RELAXVM_POOL_IMPL_H
#define RELAXVM_POOL_IMPL_H

#include "_clock.h"
#include "_pool.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Nanoseconds that a thread looks for work before it sleeps: at most and at least, and at most where there are
 * more threads than processors, so that it may take time from the one that it waits for. */
#define RVM_LONGEST_LOOK 1000000
#define RVM_SHORTEST_LOOK 2000
#define RVM_CROWDED_LOOK 50000
/* Milliseconds between looks at the clock and at signals, for a caller that waits. */
#define RVM_WAIT_MS 10

static struct {
    pthread_mutex_t busy;  /* held by whoever has a section run */
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t work, done;
    int wanted;            /* threads, the caller's among them; 0 for as many as processors; atomic */
    int found;             /* processors; 0: not asked yet; atomic */
    int knows_forks;       /* whether this module's functions are called when the process forks */
    int quota;             /* processors that a group of processes has; 0: any number */
    int processors;        /* when the first worker was started */
    int workers;           /* started */
    int asleep;
    uint32_t round;        /* counts sections; atomic */
    int64_t published;     /* when the last of them began, in nanoseconds */
    rvm_section *section;
} rvm_pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
              .mutex = PTHREAD_MUTEX_INITIALIZER,
              .work = PTHREAD_COND_INITIALIZER,
              .done = PTHREAD_COND_INITIALIZER};

static __thread int rvm_in_section;         /* whether this thread runs a piece */
static __thread rvm_section *rvm_published; /* the section on several threads that is this thread's */
static __thread int rvm_is_stopped;         /* whether nobody begins its pieces, while the process forks */
static __thread int64_t rvm_next_at_fork[RVM_MAX_RANGES]; /* its next pieces then */

static inline void rvm_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static int64_t rvm_end_of_range(const rvm_section *s, int range) {
    return s->pieces * (range + 1) / s->ranges;
}

/* The next piece for a thread: of its range, or else of the next one that has any left; -1: there is none. */
static int64_t rvm_take_piece(rvm_section *s, int thread) {
    for (int i = 0; i < s->ranges; i++) {
        int range = (thread + i) % s->ranges;
        int64_t end = rvm_end_of_range(s, range), *next = s->next + range;
        if (__atomic_load_n(next, __ATOMIC_RELAXED) >= end) continue;
        int64_t piece = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
        if (piece < end) return piece;
    }
    return -1;
}

static void rvm_run_pieces_of(rvm_section *s, int thread) {
    int outer = rvm_in_section;
    int64_t piece;
    rvm_in_section = 1;
    while (!rvm_is_over(s) && (piece = rvm_take_piece(s, thread)) >= 0)
        if (s->run(s, piece, thread) != 0) __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
    rvm_in_section = outer;
}

/* Look for a new round until some time is over. */
static int rvm_look_for(const uint32_t *round, uint32_t seen, int64_t nanoseconds) {
    int64_t end = rvm_clock_ns() + nanoseconds;
    do {
        for (int i = 0; i < 16; i++) {
            if (__atomic_load_n(round, __ATOMIC_ACQUIRE) != seen) return 1;
            rvm_relax();
        }
    } while (rvm_clock_ns() < end);
    return 0;
}

/* How long a thread looks for others, at most. */
static int64_t rvm_longest_look(void) {
    int is_crowded = __atomic_load_n(&rvm_pool.wanted, __ATOMIC_RELAXED) > rvm_pool.processors;
    return is_crowded ? RVM_CROWDED_LOOK : RVM_LONGEST_LOOK;
}

static void *rvm_worker(void *unused) {
    uint32_t seen = 0;
    int64_t look = RVM_LONGEST_LOOK;
    (void)unused;
    for (;;) {
        int64_t begin = rvm_clock_ns(), longest = rvm_longest_look();
        rvm_look_for(&rvm_pool.round, seen, look < longest ? look : longest);
        pthread_mutex_lock(&rvm_pool.mutex);
        rvm_pool.asleep++;
        while (rvm_pool.round == seen) pthread_cond_wait(&rvm_pool.work, &rvm_pool.mutex);
        rvm_pool.asleep--;
        /* Not how long it slept: to wake takes time, too. */
        if (rvm_pool.published - begin < longest) look = longest;
        else if (look > RVM_SHORTEST_LOOK) look /= 2;
        seen = rvm_pool.round;
        rvm_section *s = rvm_pool.section;
        int thread = s != NULL && s->joined + 1 < s->threads ? ++s->joined : 0;
        /* The caller does not leave the section while somebody is inside. */
        if (thread) __atomic_add_fetch(&s->inside, 1, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&rvm_pool.mutex);
        if (!thread) continue;
        rvm_run_pieces_of(s, thread);
        pthread_mutex_lock(&rvm_pool.mutex);
        if (__atomic_sub_fetch(&s->inside, 1, __ATOMIC_RELEASE) == 0) pthread_cond_signal(&rvm_pool.done);
        pthread_mutex_unlock(&rvm_pool.mutex);
    }
    return NULL;
}

/* Let nobody begin a piece of this thread's section, and wait until all workers have left it. */
static void rvm_stop_section(void) {
    rvm_section *s = rvm_published;
    if (s == NULL) return;
    if (!rvm_is_stopped) {
        for (int i = 0; i < s->ranges; i++)
            rvm_next_at_fork[i] = __atomic_exchange_n(&s->next[i], s->pieces, __ATOMIC_RELAXED);
        rvm_is_stopped = 1;
    }
    pthread_mutex_lock(&rvm_pool.mutex);
    rvm_pool.section = NULL;
    while (__atomic_load_n(&s->inside, __ATOMIC_RELAXED) > 0)
        pthread_cond_wait(&rvm_pool.done, &rvm_pool.mutex);
    pthread_mutex_unlock(&rvm_pool.mutex);
}

/* Pieces that take Python's lock have been stopped before, by Python's own function: see `stop_for_fork`. */
static void rvm_before_fork(void) {
    if (rvm_published != NULL && !rvm_published->takes_gil) rvm_stop_section();
}

/* Go on without the workers, in the parent and in the child. */
static void rvm_resume_section(void) {
    if (rvm_published == NULL || !rvm_is_stopped) return;
    rvm_is_stopped = 0;
    for (int i = 0; i < rvm_published->ranges; i++)
        __atomic_store_n(&rvm_published->next[i], rvm_next_at_fork[i], __ATOMIC_RELAXED);
}

/* In a child process there are no workers, whatever the parent was doing. */
static void rvm_after_fork(void) {
    pthread_mutex_init(&rvm_pool.busy, NULL);
    if (rvm_published != NULL) pthread_mutex_lock(&rvm_pool.busy); /* as in the parent */
    pthread_mutex_init(&rvm_pool.mutex, NULL);
    pthread_cond_init(&rvm_pool.work, NULL);
    pthread_cond_init(&rvm_pool.done, NULL);
    rvm_pool.found = 0;
    rvm_pool.workers = 0;
    rvm_pool.asleep = 0;
    rvm_pool.round = 0;
    rvm_pool.section = NULL;
    rvm_resume_section();
}

/* Before the pool is used: a child must not begin with a pool that a thread of the parent has taken. */
static void rvm_prepare_forks(void) {
    rvm_pool.knows_forks = pthread_atfork(rvm_before_fork, rvm_resume_section, rvm_after_fork) == 0;
}

static int rvm_processors(void) {
    int count = 0;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
#endif
    if (count < 1) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (rvm_pool.quota > 0 && count > rvm_pool.quota) count = rvm_pool.quota;
    return count < 1 ? 1 : count > RVM_MAX_THREADS ? RVM_MAX_THREADS : count;
}

/* How many threads a section may have, the caller's among them. */
static int rvm_threads(void) {
    int threads = __atomic_load_n(&rvm_pool.wanted, __ATOMIC_RELAXED);
    if (threads > 0) return threads;
    threads = __atomic_load_n(&rvm_pool.found, __ATOMIC_RELAXED);
    if (threads > 0) return threads;
    threads = rvm_processors();
    __atomic_store_n(&rvm_pool.found, threads, __ATOMIC_RELAXED);
    return threads;
}

static void rvm_set_threads(int threads) {
    __atomic_store_n(&rvm_pool.wanted, threads, __ATOMIC_RELAXED);
}

static void rvm_set_quota(int processors) { rvm_pool.quota = processors; }

static uint32_t rvm_count_sections(void) { return __atomic_load_n(&rvm_pool.round, __ATOMIC_RELAXED); }

/* Start workers up to a number; how many there are. */
static int rvm_start_workers(int count) {
    if (rvm_pool.workers >= count) return rvm_pool.workers;
    if (!rvm_pool.knows_forks) return 0;
    if (rvm_pool.workers == 0) rvm_pool.processors = rvm_processors();
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
        int failed = pthread_create(&thread, &attributes, rvm_worker, NULL);
        pthread_attr_destroy(&attributes);
        if (failed) break;
        rvm_pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rvm_pool.workers;
}

/* Take the pool for a section of some threads.  How many there will be: 1 where another section has the
 * pool, unless `waits` is set, or where this thread has a section or runs a piece of one.  Above 1,
 * rvm_run_section must follow. */
static int rvm_take_pool(int threads, int waits) {
    if (threads > RVM_MAX_THREADS) threads = RVM_MAX_THREADS;
    if (threads < 2 || rvm_in_section || rvm_published != NULL) return 1;
    if (waits) pthread_mutex_lock(&rvm_pool.busy);
    else if (pthread_mutex_trylock(&rvm_pool.busy) != 0) return 1;
    int workers = rvm_start_workers(threads - 1);
    if (workers > 0) return threads < workers + 1 ? threads : workers + 1;
    pthread_mutex_unlock(&rvm_pool.busy);
    return 1;
}

static void rvm_publish(rvm_section *s, int threads) {
    s->threads = threads;
    pthread_mutex_lock(&rvm_pool.mutex);
    rvm_pool.section = s;
    rvm_pool.published = rvm_clock_ns();
    __atomic_add_fetch(&rvm_pool.round, 1, __ATOMIC_RELEASE);
    int awake = rvm_pool.workers - rvm_pool.asleep, missing = threads - 1 - awake;
    if (missing >= rvm_pool.asleep) pthread_cond_broadcast(&rvm_pool.work);
    else
        for (; missing > 0; missing--) pthread_cond_signal(&rvm_pool.work);
    pthread_mutex_unlock(&rvm_pool.mutex);
}

/* Wait for those who are inside of a section that is no longer published. */
static void rvm_wait_for(rvm_section *s) {
    int64_t end = rvm_clock_ns() + rvm_longest_look();
    while (__atomic_load_n(&s->inside, __ATOMIC_ACQUIRE) > 0 && rvm_clock_ns() < end)
        for (int i = 0; i < 16; i++) rvm_relax();
    pthread_mutex_lock(&rvm_pool.mutex); /* who was inside has let go of it */
    while (__atomic_load_n(&s->inside, __ATOMIC_RELAXED) > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += RVM_WAIT_MS * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&rvm_pool.done, &rvm_pool.mutex, &until);
        if (s->inside == 0 || s->look == NULL || rvm_is_over(s)) continue;
        pthread_mutex_unlock(&rvm_pool.mutex);
        if (s->look(s) != 0) __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
        pthread_mutex_lock(&rvm_pool.mutex);
    }
    pthread_mutex_unlock(&rvm_pool.mutex);
}

/* Run all pieces on the threads that rvm_take_pool gave, and let go of the pool; whether one failed. */
static int rvm_run_section(rvm_section *s, int threads) {
    s->ranges = !s->has_ranges ? 1 : threads < RVM_MAX_RANGES ? threads : RVM_MAX_RANGES;
    for (int i = 0; i < s->ranges; i++) s->next[i] = s->pieces * i / s->ranges;
    if (threads > 1) {
        rvm_published = s;
        rvm_publish(s, threads);
    }
    rvm_run_pieces_of(s, 0);
    if (threads > 1) {
        pthread_mutex_lock(&rvm_pool.mutex);
        rvm_pool.section = NULL; /* who has not come yet is not waited for */
        pthread_mutex_unlock(&rvm_pool.mutex);
        rvm_wait_for(s);
        rvm_published = NULL;
        pthread_mutex_unlock(&rvm_pool.busy);
    }
    return s->failed;
}

#else

static void rvm_prepare_forks(void) {}
static void rvm_stop_section(void) {}
static int rvm_threads(void) { return 1; }
static void rvm_set_threads(int threads) { (void)threads; }
static void rvm_set_quota(int processors) { (void)processors; }
static uint32_t rvm_count_sections(void) { return 0; }

static int rvm_take_pool(int threads, int waits) {
    (void)threads, (void)waits;
    return 1;
}

static int rvm_run_section(rvm_section *s, int threads) {
    (void)threads;
    s->ranges = 1;
    for (s->next[0] = 0; !s->failed && s->next[0] < s->pieces; s->next[0]++)
        if (s->run(s, s->next[0], 0) != 0) s->failed = 1;
    return s->failed;
}

#endif

#endif
