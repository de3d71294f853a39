/* Chains of elementwise functions, interpreted tile by tile.
 *
 * A chain is a program of `relaxvm.kernels._tiles`: steps, each of one function, whose operands are inputs,
 * numbers and the results of earlier steps.  It runs on one tile of the result after the other.  Results
 * between steps are in registers, arrays of a tile's length, so they stay in the first-level cache; each step
 * is one switch and one loop over vectors.  A tile of 1,024 floats is long enough for the switch not to
 * count, and short enough for eight registers to fit.
 *
 * All inputs are float32, or bool where a step asks for truth, which a register holds as 1 and 0, or int8 or
 * uint8 where all that is asked for is the number as a float.  An input
 * that lies over the result in some other way than element by element is copied to a register, or is one
 * number where a tile has just one element of it.
 *
 * Results are those of the kernels called one by one, bit for bit: arithmetic is rounded once per step,
 * functions are those of math.h, as `nn.apply` has them, or numpy's own loops.
 */
#include "../loops.h"
#include "blocks.h"
#include "../pieces.h"

#define TILE 1024
#define MOST_INPUTS 30
#define MOST_STEPS 64
#define MOST_NUMBERS 24
#define MOST_REGISTERS 8

/* Operands of a step: inputs, then numbers, then registers. */
#define FIRST_NUMBER 32
#define FIRST_REGISTER 64
#define TO_RESULT 255

/* In the order of `STEPS` in kernels/_tiles.py; after the last one, the functions of math.h. */
enum {
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    MAXIMUM,
    MINIMUM,
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_NOT,
    WHERE,
    NEGATIVE,
    ABSOLUTE,
    SQUARE_ROOT,
    SQUARE,
    RECIPROCAL,
    COPY,
    FIRST_LOOP,                   /* numpy's loops of one operand */
    FIRST_FUNCTION = FIRST_LOOP + 8,
};

/* numpy's loops, in the order of `STEPS`. */
static const int host_loops[] = {RVM_EXP,   RVM_LOG,  RVM_EXPM1, RVM_LOG1P,
                                 RVM_FLOOR, RVM_CEIL, RVM_RINT,  RVM_TRUNC};

typedef struct {
    uint8_t name, to, from[3];
} Step;

/* As `_tiles.py` packs it. */
typedef struct {
    uint8_t inputs, steps, numbers, registers;
    uint32_t least; /* shorter results are left to the reference, which is as fast for them */
    uint32_t bools; /* which inputs are bool */
    uint32_t bytes; /* which of these may be int8 or uint8 as well */
    float number[MOST_NUMBERS];
    Step step[MOST_STEPS];
} Program;

/* How an input lies over the result. */
typedef struct {
    const char *data;
    enum { EACH, ONE, SPREAD } mode;
    int item, ndim;                                 /* bytes of an element; for SPREAD: the joined axes */
    int dtype;
    int64_t dims[RVM_MAX_DIMS], steps[RVM_MAX_DIMS]; /* of these, in bytes */
} Input;

typedef struct {
    const Program *program;
    Input inputs[MOST_INPUTS];
    float *out;
    int64_t count;
    RvmGrid grid;                /* of tiles */
    uint8_t statuses[MOST_STEPS]; /* what numpy would report of a step */
} Chain;

/* An operand for a tile: elements, up to a whole vector of them, or one for all. */
typedef struct {
    const float *each;
    float one;
} Value;

typedef float Register[TILE] __attribute__((aligned(64)));

static inline float one_of(const Input *x, const char *at) {
    float single;
    if (x->item == 1) {
        uint8_t byte = *(const volatile uint8_t *)at;
        return x->dtype == RVM_DTYPE_U8 ? byte : x->dtype == RVM_DTYPE_I8 ? (int8_t)byte : byte != 0;
    }
    memcpy(&single, at, 4);
    return single;
}

/* Copy `count` elements whose places are `step` bytes apart. */
static void copy_run(const Input *x, const char *from, int64_t step, int64_t count, float *to) {
    if (step == 4 && x->item == 4) {
        memcpy(to, from, (size_t)count * 4);
        return;
    }
    if (step == 0) {
        float one = one_of(x, from);
        for (int64_t i = 0; i < count; i++) to[i] = one;
        return;
    }
    if (x->item == 1 && step == 1) {
        if (x->dtype == RVM_DTYPE_U8)
            for (int64_t i = 0; i < count; i++) to[i] = ((const uint8_t *)from)[i];
        else if (x->dtype == RVM_DTYPE_I8)
            for (int64_t i = 0; i < count; i++) to[i] = ((const int8_t *)from)[i];
        else
            for (int64_t i = 0; i < count; i++) to[i] = ((const uint8_t *)from)[i] != 0;
        return;
    }
    for (int64_t i = 0; i < count; i++, from += step) to[i] = one_of(x, from);
}

/* The elements of an input for `count` elements of the result from `at` on, in `to` or as one number. */
static Value spread(const Input *x, int64_t at, int64_t count, float *to) {
    int64_t place[RVM_MAX_DIMS];
    const char *from = x->data;
    int last = x->ndim - 1;
    for (int i = last; i >= 0; i--) {
        place[i] = at % x->dims[i];
        at /= x->dims[i];
        from += place[i] * x->steps[i];
    }
    if (x->steps[last] == 0 && x->dims[last] - place[last] >= count) return (Value){NULL, one_of(x, from)};
    for (int64_t done = 0;;) {
        int64_t run = x->dims[last] - place[last];
        if (run > count - done) run = count - done;
        copy_run(x, from, x->steps[last], run, to + done);
        done += run;
        if (done == count) return (Value){to, 0};
        from -= place[last] * x->steps[last];
        place[last] = 0;
        for (int i = last - 1; i >= 0; i--) {
            from += x->steps[i];
            if (++place[i] < x->dims[i]) break;
            from -= place[i] * x->steps[i];
            place[i] = 0;
        }
    }
}

/* Repeat the last element up to a whole vector, so that no step reports anything of what is no element. */
static void fill_up(float *x, int64_t count) {
    for (int64_t i = count; i % RVM_LANES; i++) x[i] = x[count - 1];
}

static Value operand(const Chain *chain, int code, int64_t at, int64_t count, Register *registers,
                     float *room) {
    if (code >= FIRST_REGISTER) return (Value){registers[code - FIRST_REGISTER], 0};
    if (code >= FIRST_NUMBER) return (Value){NULL, chain->program->number[code - FIRST_NUMBER]};
    const Input *x = &chain->inputs[code];
    Value value;
    if (x->mode == ONE) return (Value){NULL, one_of(x, x->data)};
    if (x->mode == EACH) {
        const char *from = x->data + at * x->item;
        if (x->item == 4 && count % RVM_LANES == 0) return (Value){(const float *)(const void *)from, 0};
        copy_run(x, from, x->item, count, room);
        value = (Value){room, 0};
    } else {
        value = spread(x, at, count, room);
    }
    if (value.each != NULL) fill_up(room, count);
    return value;
}

/* 1 where a comparison holds. */
static inline vf truth(vi mask) { return (vf)(mask & (vi)rvm_all(1.0f)); }

static inline vf choose(vf condition, vf a, vf b) {
    vi chosen = condition != rvm_all(0);
    return (vf)(((vi)a & chosen) | ((vi)b & ~chosen));
}

#define SIGN ((vi)rvm_all(-0.0f))

#define EACH_VECTOR(value) \
    for (int64_t i = 0; i < count; i += RVM_LANES) rvm_store(to + i, value)

#define STEP_OF_1(step, value)        \
    case step:                        \
        EACH_VECTOR(({                \
            vf x = rvm_load(a + i);   \
            value;                    \
        }));                          \
        break;

#define STEP_OF_2(step, value)                                          \
    case step:                                                          \
        if (a != NULL && b != NULL)                                     \
            EACH_VECTOR(({                                              \
                vf x = rvm_load(a + i), y = rvm_load(b + i);            \
                value;                                                  \
            }));                                                        \
        else if (a != NULL)                                             \
            EACH_VECTOR(({                                              \
                vf x = rvm_load(a + i), y = all_b;                      \
                value;                                                  \
            }));                                                        \
        else                                                            \
            EACH_VECTOR(({                                              \
                vf x = all_a, y = rvm_load(b + i);                      \
                value;                                                  \
            }));                                                        \
        break;

/* One step for `count` elements, whole vectors of them.  At least one operand has an element for each, the
 * only operand of a step of one always. */
static void run_step(int name, const Value *from, float *to, int64_t count, const RvmHost *host) {
    const float *a = from[0].each, *b = from[1].each;
    vf all_a = rvm_all(from[0].one), all_b = rvm_all(from[1].one);
    switch (name) {
        STEP_OF_2(ADD, x + y)
        STEP_OF_2(SUBTRACT, x - y)
        STEP_OF_2(MULTIPLY, x *y)
        STEP_OF_2(DIVIDE, x / y)
        STEP_OF_2(MAXIMUM, rvm_greater(x, y))
        STEP_OF_2(MINIMUM, rvm_lesser(x, y))
        STEP_OF_2(EQUAL, truth(x == y))
        STEP_OF_2(NOT_EQUAL, truth(x != y))
        STEP_OF_2(LESS, truth(x < y))
        STEP_OF_2(LESS_EQUAL, truth(x <= y))
        STEP_OF_2(GREATER, truth(x > y))
        STEP_OF_2(GREATER_EQUAL, truth(x >= y))
        STEP_OF_2(LOGICAL_AND, (vf)((vi)x & (vi)y))
        STEP_OF_2(LOGICAL_OR, (vf)((vi)x | (vi)y))
        STEP_OF_1(LOGICAL_NOT, (vf)((vi)x ^ (vi)rvm_all(1.0f)))
        STEP_OF_1(NEGATIVE, (vf)((vi)x ^ SIGN))
        STEP_OF_1(ABSOLUTE, (vf)((vi)x & ~SIGN))
        STEP_OF_1(SQUARE_ROOT, rvm_sqrt(x))
        STEP_OF_1(SQUARE, x *x)
        STEP_OF_1(RECIPROCAL, rvm_all(1.0f) / x)
        STEP_OF_1(COPY, x)
        STEP_OF_1(FIRST_FUNCTION + RVM_RELU, rvm_relu(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_GELU, rvm_gelu(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_GELU_TANH, rvm_gelu_tanh(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_SILU, rvm_silu(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_SIGMOID, rvm_sigmoid(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_TANH, rvm_tanh(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_ERF, rvm_erf(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_EXPONENTIAL, rvm_exp(x))
        STEP_OF_1(FIRST_FUNCTION + RVM_HARD_SWISH, rvm_hard_swish(x))
        case WHERE: {
            const float *c = from[2].each;
            vf all_c = rvm_all(from[2].one);
            EACH_VECTOR(choose(a == NULL ? all_a : rvm_load(a + i), b == NULL ? all_b : rvm_load(b + i),
                               c == NULL ? all_c : rvm_load(c + i)));
            break;
        }
        default: {
            const RvmLoop *loop = &host->loops[host_loops[name - FIRST_LOOP]][RVM_DTYPE_F32];
            char *args[2] = {(char *)a, (char *)to};
            intptr_t length = (intptr_t)count, steps[2] = {4, 4};
            loop->call(args, &length, steps, loop->data);
        }
    }
}

/* Whether numpy reports divisions by zero, overflows and the like of a step. */
static inline int is_reported(int name) {
    return name <= DIVIDE || (name >= SQUARE_ROOT && name <= RECIPROCAL) ||
           (name >= FIRST_LOOP && name < FIRST_FUNCTION);
}

static void run_tile(Chain *chain, const RvmHost *host, int64_t at, int64_t count, Register *registers) {
    const Program *program = chain->program;
    Register *rooms = registers + MOST_REGISTERS;
    int64_t whole = (count + RVM_LANES - 1) / RVM_LANES * RVM_LANES;
    for (int i = 0; i < program->steps; i++) {
        const Step *step = &program->step[i];
        Value from[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
        int operands = step->name == WHERE ? 3 : step->name < LOGICAL_NOT ? 2 : 1;
        for (int k = 0; k < operands; k++)
            from[k] = operand(chain, step->from[k], at, count, registers, rooms[k]);
        if (from[0].each == NULL && from[1].each == NULL && operands < 3) {
            for (int64_t j = 0; j < whole; j++) rooms[0][j] = from[0].one;
            from[0].each = rooms[0];
        }
        int is_result = step->to == TO_RESULT;
        float *to = !is_result ? registers[step->to] : whole == count ? chain->out + at : rooms[3];
        if (step->name >= FIRST_LOOP && step->name < FIRST_FUNCTION && from[0].each == to) {
            memcpy(rooms[0], to, (size_t)whole * 4); /* apart: numpy may choose a loop by the places */
            from[0].each = rooms[0];
        }
        run_step(step->name, from, to, whole, host);
        if (is_result && to == rooms[3]) memcpy(chain->out + at, to, (size_t)count * 4);
        int status = rvm_float_status();
        if (status) {
            rvm_clear_float_status();
            if (is_reported(step->name)) __atomic_fetch_or(&chain->statuses[i], status, __ATOMIC_RELAXED);
        }
    }
}

static int run_tiles(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    Chain *chain = (Chain *)work;
    Register registers[MOST_REGISTERS + 4]; /* the last four: of a step's operands and result */
    RvmPart part = rvm_part(&chain->grid, piece);
    (void)thread;
    rvm_clear_float_status();
    for (int64_t tile = part.outer; tile < part.outer_end; tile++) {
        int64_t at = tile * TILE, count = chain->count - at < TILE ? chain->count - at : TILE;
        run_tile(chain, call->host, at, count, registers);
        if (rvm_must_stop(call, count * chain->program->steps * 6)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* How an input lies over the result; false if it does not, or if writing the result would change it before
 * it is read. */
static int set_input(Input *to, const RvmBuffer *x, const RvmBuffer *out, int is_bool, int is_byte) {
    int64_t steps[RVM_MAX_DIMS];
    int n = 0;
    int is_number = is_byte && (x->dtype == RVM_DTYPE_U8 || x->dtype == RVM_DTYPE_I8);
    if (!is_number && x->dtype != (is_bool ? RVM_DTYPE_BOOL : RVM_DTYPE_F32)) return 0;
    if (!rvm_broadcast(x, out, steps)) return 0;
    to->dtype = x->dtype;
    to->data = x->data;
    to->item = x->item;
    int is_each = rvm_same_shape(x, out) && rvm_is_contiguous(x);
    if (!rvm_no_overlap(x, out) && !(is_each && x->data == out->data && !is_bool)) return 0;
    for (int i = 0; i < out->ndim; i++) {
        RVM_FEW_TURNS;
        int64_t dim = out->dims[i];
        if (dim == 1) continue;
        int joins = n > 0 && to->steps[n - 1] == dim * steps[i];
        to->dims[joins ? n - 1 : n] = joins ? to->dims[n - 1] * dim : dim;
        n += !joins;
        to->steps[n - 1] = steps[i];
    }
    to->ndim = n;
    to->mode = n == 0 || (n == 1 && to->steps[0] == 0) ? ONE : is_each ? EACH : SPREAD;
    return 1;
}

/* Whether each axis of the result is an axis of an input. */
static int is_covered(const RvmBuffer *inputs, int count, const RvmBuffer *out) {
    int has_axes = 0;
    for (int k = 0; k < count; k++) has_axes |= inputs[k].ndim == out->ndim;
    for (int i = 0; i < out->ndim; i++) {
        int found = out->dims[i] == 1;
        for (int k = 0; k < count && !found; k++) {
            int axis = i - (out->ndim - inputs[k].ndim);
            found = axis >= 0 && inputs[k].dims[axis] == out->dims[i];
        }
        if (!found) return 0;
    }
    return has_axes;
}

/* No memory; asked before the lock is released, it turns short results away at once. */
static int64_t tiles_workspace(const RvmKernelCall *call) {
    const Program *program = (const Program *)((const RvmProgram *)call->params)->bytes;
    return rvm_length(&call->buffers[call->count - 1]) < program->least ? -1 : 0;
}

static int tiles(const RvmKernelCall *call) {
    const Program *program = (const Program *)((const RvmProgram *)call->params)->bytes;
    const RvmBuffer *out = &call->buffers[call->count - 1];
    Chain chain;
    if (call->count != program->inputs + 1 || !rvm_is_contiguous(out)) return RVM_ASK_REFERENCE;
    chain.count = rvm_length(out);
    for (int i = 0; i < program->inputs; i++)
        if (!set_input(&chain.inputs[i], &call->buffers[i], out, program->bools >> i & 1, program->bytes >> i & 1))
            return RVM_ASK_REFERENCE;
    if (!is_covered(call->buffers, program->inputs, out)) return RVM_ASK_REFERENCE;
    if (chain.count == 0) return RVM_OK;
    chain.program = program;
    chain.out = (float *)out->data;
    memset(chain.statuses, 0, sizeof chain.statuses);
    int64_t all = (chain.count + TILE - 1) / TILE;
    chain.grid = rvm_divide(call, rvm_time_for(chain.count * program->steps * 3,
                                               chain.count * 4 * (program->inputs + 1)), all, 1);
    int answer = rvm_run_grid(call, &chain.grid, run_tiles, &chain);
    for (int i = 0; i < program->steps; i++) {
        if (!chain.statuses[i]) continue;
        RvmReports *reports = call->reports;
        *call->float_status |= chain.statuses[i];
        reports->names[reports->count] = program->step[i].name;
        reports->statuses[reports->count++] = chain.statuses[i];
    }
    return answer;
}

static const RvmArgument tiles_arguments[] = {
    RVM_BUFFER(TENSORS), {RVM_ARG_PROGRAM, 0, NULL}, RVM_BUFFER(OUT)};

const RvmImplementation RVM_NAME(rvm_chain)[] = {
    {.name = "chain.tiles", .kernel = "fused", .run = tiles, .workspace = tiles_workspace,
     RVM_ARGUMENTS(tiles_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1},
    {.name = NULL},
};
