/* Runs the package's C kernels without Python, so that a sanitizer can look at them alone.
 *
 *     kernel_driver CALLS RESULTS
 *     kernel_driver wrong            does what a sanitizer must report
 *
 * `tests/kernel_driver.py` writes the calls, compiles this file together with the kernels and compares the
 * results.  Each array has memory of exactly its size, from malloc, and so has the workspace.  A call runs on
 * 1, 2 and 3 threads of the package's own pool, and all results must be the same.
 *
 * A call: the set, the method, the number of arguments; each argument is a letter and what follows it (`read_argument`).
 * Integers have 8 bytes, texts and bytes their length first.  A result: 8 bytes for what the kernel returned and, if
 * it has run, the bytes of the last argument.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/_pool_impl.h"
#include "kernels/c/kernel_call.h"

#define MOST_ARGUMENTS 64

typedef struct {
    char letter;
    int64_t number;           /* I */
    double real;              /* R */
    RvmInts ints;             /* S */
    char *bytes;              /* C, P: a text, a program; T: elements */
    int64_t length;           /* of the bytes */
    int64_t first;            /* T: bytes before the first element */
    RvmBuffer buffer;         /* T */
} Argument;

typedef struct {
    const RvmImplementation *how;
    int count;
    Argument arguments[MOST_ARGUMENTS];
    union {
        char bytes[RVM_PARAMS_BYTES];
        double alignment;
    } params;
    int64_t numbers[MOST_ARGUMENTS];
    int num_buffers, num_written;
    RvmBuffer buffers[MOST_ARGUMENTS];
    int from[MOST_ARGUMENTS];    /* the argument of a buffer, -1 for a number */
    int written[MOST_ARGUMENTS]; /* the arguments that the kernel writes */
} Call;

static FILE *calls;

static void die(const char *what) {
    fprintf(stderr, "kernel_driver: %s\n", what);
    exit(2);
}

static void take(void *to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, calls) != bytes) die("the file of calls ends early");
}

static int64_t take_int(void) {
    int64_t value;
    take(&value, sizeof value);
    return value;
}

static char *take_bytes(int64_t *length) {
    *length = take_int();
    char *bytes = malloc((size_t)*length + 1);
    if (!bytes) die("no memory");
    take(bytes, (size_t)*length);
    bytes[*length] = 0;
    return bytes;
}

static void take_ints(int64_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = take_int();
}

static void read_argument(Argument *a) {
    take(&a->letter, 1);
    switch (a->letter) {
        case 'N': break; /* None */
        case 'I': a->number = take_int(); break;
        case 'R': take(&a->real, sizeof a->real); break;
        case 'S':
            a->ints.count = take_int();
            take_ints(a->ints.values, a->ints.count);
            break;
        case 'C':
        case 'P': a->bytes = take_bytes(&a->length); break;
        case 'T': {
            RvmBuffer *b = &a->buffer;
            b->dtype = (uint8_t)take_int();
            b->item = (int32_t)take_int();
            b->flags = (uint8_t)take_int();
            b->ndim = (uint8_t)take_int();
            take_ints(b->dims, b->ndim);
            take_ints(b->strides, b->ndim);
            a->first = take_int();
            a->bytes = take_bytes(&a->length);
            break;
        }
        default: die("an unknown argument");
    }
}

static const RvmImplementation *find(const char *set, const char *method) {
    for (const RvmSet *s = rvm_sets; s->name; s++)
        for (const RvmImplementation *const *f = s->families; *f; f++)
            for (const RvmImplementation *how = *f; how->name; how++)
                if (!strcmp(s->name, set) && !strcmp(how->name, method)) return how;
    for (const RvmImplementation *const *f = rvm_families; *f; f++) /* of any set */
        for (const RvmImplementation *how = *f; how->name; how++)
            if (!strcmp(how->name, method)) return how;
    return NULL;
}

/* ---- arguments as an implementation takes them; 0 where it does not ----------------------------- */
static int add_tensor(Call *call, int i) {
    if (call->arguments[i].letter != 'T') return 0;
    call->from[call->num_buffers] = i;
    call->buffers[call->num_buffers++] = call->arguments[i].buffer;
    return 1;
}

static int64_t bytes_of(const RvmBuffer *b) {
    int64_t bytes = b->item;
    for (int k = 0; k < b->ndim; k++) bytes *= b->dims[k];
    return bytes;
}

static int add_out(Call *call, int i) {
    if (!add_tensor(call, i)) return 0;
    const RvmBuffer *b = &call->arguments[i].buffer;
    call->written[call->num_written++] = i;
    return b->flags & RVM_WRITABLE && bytes_of(b) < call->how->most_bytes && rvm_is_in(call->how->dtypes, b->dtype);
}

/* A number as a float32 without axes: the last argument of all kernels of the sets that take one. */
static int add_number(Call *call, int i) {
    const Argument *a = &call->arguments[i], *out = &call->arguments[call->count - 1];
    if ((a->letter != 'I' && a->letter != 'R') || out->buffer.dtype != RVM_DTYPE_F32) return 0;
    float value = a->letter == 'I' ? (float)a->number : (float)a->real;
    if (isinf(value) && !(a->letter == 'R' && isinf(a->real))) return 0; /* it does not fit */
    RvmBuffer *b = &call->buffers[call->num_buffers];
    call->from[call->num_buffers] = -1;
    memcpy(&call->numbers[call->num_buffers], &value, sizeof value);
    b->data = (char *)&call->numbers[call->num_buffers++];
    b->dtype = RVM_DTYPE_F32;
    b->item = 4;
    b->ndim = 0;
    b->flags = RVM_CONTIGUOUS;
    return 1;
}

static int put_choice(const Argument *a, const char *const *choices, int64_t *field) {
    if (a->letter != 'C') return 0;
    for (*field = 0; choices[*field]; ++*field)
        if (!strcmp(choices[*field], a->bytes)) return a->length == (int64_t)strlen(a->bytes);
    return 0;
}

static int put_real(const Argument *a, RvmReal *field) {
    field->is_given = 1;
    field->value = a->letter == 'I' ? (double)a->number : a->real;
    if (a->letter == 'I' && (a->number < -(1LL << 53) || a->number > 1LL << 53)) return 0;
    return a->letter == 'I' || (a->letter == 'R' && isfinite(a->real));
}

static int put_ints(const Argument *a, int count, RvmInts *field) {
    if (count == 1 && a->letter == 'S') {
        *field = a->ints;
        return 1;
    }
    field->count = count ? count : RVM_NO_INTS;
    if (count == 1 && a->letter == 'N') field->count = RVM_NO_INTS;
    if (count > RVM_MAX_DIMS) return 0;
    for (int i = 0; i < count && field->count != RVM_NO_INTS; i++) {
        if (a[i].letter != 'I') return 0;
        field->values[i] = a[i].number;
    }
    return 1;
}

static int arrange(Call *call) {
    const RvmImplementation *how = call->how;
    int i = 0, some = call->count - how->num_arguments + 1, any = 0;
    for (int k = 0; k < how->num_arguments; k++) {
        RvmArgumentKind kind = how->arguments[k].kind;
        any |= kind == RVM_ARG_TENSORS || kind == RVM_ARG_OUTS || kind == RVM_ARG_EACH_INT ||
               kind == RVM_ARG_CHOICE_OR_NOTHING;
    }
    if (any ? some < 0 : some != 1) return 0;
    for (int k = 0; k < how->num_arguments; k++) {
        const RvmArgument *argument = &how->arguments[k];
        void *field = call->params.bytes + argument->offset;
        const Argument *a = &call->arguments[i];
        int is_none = i < call->count && a->letter == 'N', fits = 1;
        switch (argument->kind) {
            case RVM_ARG_TENSOR: fits = add_tensor(call, i++); break;
            case RVM_ARG_OUT: fits = add_out(call, i++); break;
            case RVM_ARG_TENSORS:
                for (int n = 0; n < some; n++) fits &= add_tensor(call, i++);
                break;
            case RVM_ARG_OUTS:
                for (int n = 0; n < some; n++) fits &= add_out(call, i++);
                break;
            case RVM_ARG_TENSOR_OR_NONE:
                if (is_none) {
                    RvmBuffer *b = &call->buffers[call->num_buffers];
                    call->from[call->num_buffers++] = -1;
                    b->data = NULL;
                    b->ndim = 0;
                    b->flags = RVM_ABSENT;
                } else {
                    fits = add_tensor(call, i);
                }
                i++;
                break;
            case RVM_ARG_TENSOR_OR_NUMBER:
                fits = a->letter == 'T' ? add_tensor(call, i) : add_number(call, i);
                i++;
                break;
            case RVM_ARG_NUMBER: fits = add_number(call, i++); break;
            case RVM_ARG_INT_OR_NONE:
            case RVM_ARG_INT:
            case RVM_ARG_FLAG:
                *(int64_t *)field = is_none ? RVM_NO_INT : a->number;
                fits = a->letter == 'I' || (is_none && argument->kind == RVM_ARG_INT_OR_NONE);
                if (argument->kind == RVM_ARG_FLAG) fits &= a->number == 0 || a->number == 1;
                i++;
                break;
            case RVM_ARG_REAL: fits = put_real(a, field); i++; break;
            case RVM_ARG_REAL_OR_NONE:
                if (is_none) ((RvmReal *)field)->is_given = 0;
                else fits = put_real(a, field);
                i++;
                break;
            case RVM_ARG_INTS: fits = a->letter == 'S' && put_ints(a, 1, field); i++; break;
            case RVM_ARG_INTS_OR_NONE: fits = (is_none || a->letter == 'S') && put_ints(a, 1, field); i++; break;
            case RVM_ARG_INT_OR_INTS:
                fits = !is_none && put_ints(a, 1, field);
                if (a->letter == 'I') ((RvmInts *)field)->count = RVM_ONE_INT;
                i++;
                break;
            case RVM_ARG_EACH_INT: fits = put_ints(a, some, field); i += some; break;
            case RVM_ARG_CHOICE: fits = put_choice(a, argument->choices, field); i++; break;
            case RVM_ARG_CHOICE_OR_NONE:
                if (is_none) *(int64_t *)field = RVM_NO_INT;
                else fits = put_choice(a, argument->choices, field);
                i++;
                break;
            case RVM_ARG_CHOICE_OR_NOTHING:
                *(int64_t *)field = RVM_NO_INT;
                fits = some == 0 || (some == 1 && put_choice(a, argument->choices, field));
                i += some;
                break;
            case RVM_ARG_PROGRAM:
                fits = a->letter == 'P' && a->length <= RVM_PARAMS_BYTES;
                if (fits) memcpy(field, a->bytes, (size_t)a->length);
                i++;
                break;
        }
        if (!fits) return 0;
    }
    return 1;
}

/* ---- pieces ------------------------------------------------------------------------------------- */
typedef struct {
    rvm_section section;
    const RvmKernelCall *call;
    RvmPiece piece;
    void *work;
} Pieces;

static int never(const RvmKernelCall *call) {
    (void)call;
    return 0;
}

static int run_piece(rvm_section *section, int64_t piece, int thread) {
    Pieces *pieces = (Pieces *)section;
    RvmKernelCall own = *pieces->call;
    int64_t done = 0;
    own.done = &done;
    own.run_pieces = NULL;
    own.threads = 1;
    return pieces->piece(&own, pieces->work, piece, thread);
}

static int run_pieces(const RvmKernelCall *call, RvmPiece piece, void *work, int64_t count, int threads) {
    Pieces pieces = {.section = {.run = run_piece, .pieces = count, .has_ranges = 1},
                     .call = call, .piece = piece, .work = work};
    return rvm_run_section(&pieces.section, rvm_take_pool(threads, 0)) ? RVM_FAILED : RVM_OK;
}

/* ---- calls -------------------------------------------------------------------------------------- */
/* What numpy's loops of float32 do, which chains call for some functions. */
#define LOOP_OF_1(name, value)                                                                           \
    static void name(char **args, const intptr_t *dims, const intptr_t *steps, void *data) {             \
        (void)data;                                                                                      \
        for (intptr_t i = 0; i < dims[0]; i++) {                                                         \
            float x = *(const float *)(args[0] + i * steps[0]);                                          \
            *(float *)(args[1] + i * steps[1]) = value;                                                  \
        }                                                                                                \
    }
#define LOOP_OF_2(name, value)                                                                           \
    static void name(char **args, const intptr_t *dims, const intptr_t *steps, void *data) {             \
        (void)data;                                                                                      \
        for (intptr_t i = 0; i < dims[0]; i++) {                                                         \
            float x = *(const float *)(args[0] + i * steps[0]), y = *(const float *)(args[1] + i * steps[1]); \
            *(float *)(args[2] + i * steps[2]) = value;                                                  \
        }                                                                                                \
    }
LOOP_OF_2(add, x + y)
LOOP_OF_2(subtract, x - y)
LOOP_OF_2(multiply, x * y)
LOOP_OF_2(divide, x / y)
LOOP_OF_2(maximum, isnan(x) || x > y ? x : y)
LOOP_OF_2(minimum, isnan(x) || x < y ? x : y)
LOOP_OF_1(exponential, expf(x))
LOOP_OF_1(logarithm, logf(x))
LOOP_OF_1(square, x * x)
LOOP_OF_1(exponential_less_1, expm1f(x))
LOOP_OF_1(logarithm_of_1_more, log1pf(x))
LOOP_OF_1(round_down, floorf(x))
LOOP_OF_1(round_up, ceilf(x))
LOOP_OF_1(round_to_even, rintf(x))
LOOP_OF_1(round_to_zero, truncf(x))

static RvmHost host;

static void set_loops(void) {
    RvmLoopCall loops[RVM_NUM_LOOPS] = {
        [RVM_ADD] = add, [RVM_SUBTRACT] = subtract, [RVM_MULTIPLY] = multiply, [RVM_DIVIDE] = divide,
        [RVM_MAXIMUM] = maximum, [RVM_MINIMUM] = minimum, [RVM_EXP] = exponential, [RVM_LOG] = logarithm,
        [RVM_SQUARE] = square, [RVM_EXPM1] = exponential_less_1, [RVM_LOG1P] = logarithm_of_1_more,
        [RVM_FLOOR] = round_down, [RVM_CEIL] = round_up, [RVM_RINT] = round_to_even, [RVM_TRUNC] = round_to_zero,
    };
    for (int i = 0; i < RVM_NUM_LOOPS; i++) host.loops[i][RVM_DTYPE_F32].call = loops[i];
}

/* Whether operands have so few bytes that a call keeps Python's lock, see `_table_impl.h`. */
static int is_short(const Call *call) {
    int64_t bytes = 0;
    for (int i = 0; i < call->num_buffers; i++) {
        const RvmBuffer *b = &call->buffers[i];
        if (b->flags & RVM_ABSENT) continue;
        int64_t some = b->item;
        for (int k = 0; k < b->ndim; k++) {
            if (b->dims[k] > 4096 || some > 4096) return 0;
            some *= b->dims[k];
        }
        bytes += some;
    }
    return bytes <= 4096;
}

static int run(Call *call, int threads) {
    const RvmImplementation *how = call->how;
    int64_t done = 0;
    int status = 0;
    static RvmReports reports;
    reports.count = 0;
    RvmKernelCall given = {.buffers = call->buffers, .count = call->num_buffers, .params = call->params.bytes,
                           .float_status = &status, .reports = &reports, .host = &host, .must_stop = never,
                           .done = &done, .run_pieces = run_pieces,
                           .threads = how->is_unlocked ? threads : 1};
    int64_t written = 0;
    for (int k = 0; k < call->num_written; k++) written += bytes_of(&call->arguments[call->written[k]].buffer);
    if (threads == 1 && how->is_unlocked && (written < how->locked_bytes || is_short(call))) {
        given.is_short = 1;
        given.run_pieces = NULL;
    }
    char *workspace = NULL;
    if (how->workspace) {
        given.workspace_bytes = how->workspace(&given);
        if (given.workspace_bytes < 0) return RVM_ASK_REFERENCE;
        workspace = given.workspace = malloc((size_t)given.workspace_bytes);
        if (!workspace) return RVM_ASK_REFERENCE; /* as without Python's memory */
    }
    int answer = how->run(&given);
    free(workspace);
    return answer;
}

/* Copies of the arrays, of exactly their size. */
static void give_memory(Call *call, char **memory) {
    for (int i = 0; i < call->count; i++) {
        const Argument *a = &call->arguments[i];
        memory[i] = NULL;
        if (a->letter != 'T') continue;
        memory[i] = malloc((size_t)a->length);
        if (!memory[i] && a->length) die("no memory");
        if (a->length) memcpy(memory[i], a->bytes, (size_t)a->length);
    }
    for (int k = 0; k < call->num_buffers; k++)
        if (call->from[k] >= 0)
            call->buffers[k].data = memory[call->from[k]] + call->arguments[call->from[k]].first;
}

static void put(FILE *results, const void *from, size_t bytes) {
    if (bytes && fwrite(from, 1, bytes, results) != bytes) die("cannot write the results");
}

/* What each sanitizer must report: two threads write a number, which gets too large, and one reads beyond the
 * end of its memory. */
static int wrong_sum = 0x7fffff00;

static int wrong_piece(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    (void)call, (void)work, (void)thread;
    char *memory = malloc(8);
    if (!memory) die("no memory");
    memset(memory, 1, 8);
    for (int i = 0; i < 100; i++) wrong_sum += memory[7 + (piece & 1)] + (int)piece;
    free(memory);
    struct timespec wait = {0, 20000000}; /* so that the other thread gets a piece */
    nanosleep(&wait, NULL);
    return RVM_OK;
}

static int run_wrong(void) {
    RvmKernelCall call = {.threads = 2};
    rvm_set_threads(2);
    run_pieces(&call, wrong_piece, NULL, 16, 2);
    return wrong_sum == 0;
}

int main(int argc, char **argv) {
    rvm_prepare_forks(); /* without that the pool has no threads */
    if (argc == 2 && !strcmp(argv[1], "wrong")) return run_wrong();
    if (argc != 3 || !(calls = fopen(argv[1], "rb"))) die("expected a file of calls and one for results");
    FILE *results = fopen(argv[2], "wb");
    if (!results) die("cannot write the results");
#if defined(__linux__) && defined(__x86_64__)
    syscall(SYS_arch_prctl, 0x1023, 18); /* tiles of AMX, where there are any */
#endif
    set_loops();
    int64_t count = take_int(), differences = 0;
    static Call call;
    for (int64_t n = 0; n < count; n++) {
        int64_t length;
        char *set = take_bytes(&length), *method = take_bytes(&length);
        memset(&call, 0, sizeof call);
        call.count = (int)take_int();
        if (call.count > MOST_ARGUMENTS) die("too many arguments");
        for (int i = 0; i < call.count; i++) read_argument(&call.arguments[i]);
        call.how = find(set, method);
        if (!call.how) die("no such method");
        int64_t answer = arrange(&call) ? RVM_OK : RVM_ASK_REFERENCE;
        char *memory[3][MOST_ARGUMENTS] = {{NULL}};
        for (int threads = 1; threads <= 3 && answer == RVM_OK; threads++) {
            rvm_set_threads(threads);
            give_memory(&call, memory[threads - 1]);
            answer = run(&call, threads);
            for (int k = 0; k < call.num_written && answer == RVM_OK; k++) {
                int i = call.written[k];
                if (memcmp(memory[0][i], memory[threads - 1][i], (size_t)call.arguments[i].length)) {
                    fprintf(stderr, "kernel_driver: %s, %s: %d threads give other bits\n", method, set, threads);
                    differences++;
                }
            }
        }
        put(results, &answer, sizeof answer);
        if (answer == RVM_OK) put(results, memory[0][call.count - 1], (size_t)call.arguments[call.count - 1].length);
        for (int i = 0; i < call.count; i++) {
            free(call.arguments[i].bytes);
            for (int t = 0; t < 3; t++) free(memory[t][i]);
        }
        free(set);
        free(method);
    }
    printf("%u sections on several threads\n", rvm_count_sections());
    return fclose(results) || differences ? 1 : 0;
}
