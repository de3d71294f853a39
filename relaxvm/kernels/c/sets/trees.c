/* Ensembles of decision trees.
 *
 * Rows are followed through a tree a few at a time, whose steps do not wait for each other: a step of one row
 * is a chain of loads.  Blocks of rows go through all the trees in turn, so that a tree stays in the cache.
 *
 * Tables may change during the call, so that each number is read once, checked, and used.  What is wrong is
 * left to the reference, which raises the error.
 *
 * Sums are those of the reference, in float64, but a leaf's weights are added up at once: where several of them
 * are for the same target, the last bits of sums of float64 differ.
 */
#include "blocks.h"
#include "../pieces.h"

enum { LEAF, LESS_EQUAL, LESS, EQUAL, IF_MISSING };
enum { SUM, AVERAGE, MIN, MAX };
static const char *const aggregates[] = {"SUM", "AVERAGE", "MIN", "MAX", NULL};

typedef struct {
    int64_t aggregate, count;
} TreeParams;

typedef struct {
    const char *x, *thresholds, *weights;
    char *out;
    const volatile int32_t *features, *branches, *roots, *starts, *targets;
    const volatile int8_t *modes;
    int64_t rows, columns, nodes, trees, num_targets, count;
    int aggregate;
    char *sums;            /* of the rows of a block, for each thread */
    int is_left;           /* to the reference */
    RvmGrid grid;
} Trees;

#define TOGETHER 8          /* rows of a tree */
#define BLOCK_ROWS 256      /* of all trees */
#define BLOCK_NUMBERS 16384 /* sums of a block, about, and of a row, at most */
#define NS_OF_STEP 4

static int64_t block_rows(const Trees *t) {
    int64_t rows = BLOCK_NUMBERS / t->count;
    return rows > BLOCK_ROWS ? BLOCK_ROWS : rows < TOGETHER ? TOGETHER : rows;
}

static int64_t sums_bytes(const Trees *t) { return rvm_apart(block_rows(t) * t->count * (int64_t)sizeof(double)); }

/* Other threads read it, for which one that is a little late does no harm. */
static void leave(Trees *t) { __atomic_store_n(&t->is_left, 1, __ATOMIC_RELAXED); }
static int is_left(const Trees *t) { return __atomic_load_n(&t->is_left, __ATOMIC_RELAXED); }

static int is_vector(const RvmBuffer *x, int dtype, int64_t length) {
    return x->dtype == dtype && x->ndim == 1 && rvm_is_contiguous(x) && x->dims[0] == length;
}

static int get_trees(const RvmKernelCall *call, Trees *t) {
    const RvmBuffer *x = call->buffers, *thresholds = x + 1, *features = x + 2, *modes = x + 3, *branches = x + 4;
    const RvmBuffer *roots = x + 5, *starts = x + 6, *targets = x + 7, *weights = x + 8, *out = x + 9;
    const TreeParams *p = (const TreeParams *)call->params;
    if (x->ndim != 2 || thresholds->ndim != 1 || roots->ndim != 1 || targets->ndim != 1 || branches->ndim != 2 ||
        out->ndim != 2 || p->count < 1 || p->count > BLOCK_NUMBERS || x->dims[0] == 0)
        return 0;
    *t = (Trees){
        .x = x->data, .thresholds = thresholds->data, .weights = weights->data, .out = out->data,
        .features = (const int32_t *)features->data, .branches = (const int32_t *)branches->data,
        .roots = (const int32_t *)roots->data, .starts = (const int32_t *)starts->data,
        .targets = (const int32_t *)targets->data, .modes = (const int8_t *)modes->data,
        .rows = x->dims[0], .columns = x->dims[1], .nodes = thresholds->dims[0], .trees = roots->dims[0],
        .num_targets = targets->dims[0], .count = p->count, .aggregate = (int)p->aggregate,
    };
    if (t->nodes >= INT32_MAX || t->num_targets > INT32_MAX || t->columns > INT32_MAX) return 0;
    if (!is_vector(thresholds, out->dtype, t->nodes) || !is_vector(features, RVM_DTYPE_I32, t->nodes) ||
        !is_vector(modes, RVM_DTYPE_I8, t->nodes) || !is_vector(roots, RVM_DTYPE_I32, t->trees) ||
        !is_vector(starts, RVM_DTYPE_I32, t->nodes + 1) || !is_vector(targets, RVM_DTYPE_I32, t->num_targets) ||
        !is_vector(weights, out->dtype, t->num_targets))
        return 0;
    if (branches->dtype != RVM_DTYPE_I32 || !rvm_is_contiguous(branches) || branches->dims[0] != t->nodes ||
        branches->dims[1] != 2 || out->dims[0] != t->rows || out->dims[1] != t->count ||
        !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_is_input(x, out))
        return 0;
    for (int i = 1; i < 9; i++)
        if (!rvm_no_overlap(x + i, out)) return 0;
    return 1;
}

static RvmGrid trees_grid(const RvmKernelCall *call, const Trees *t) {
    double steps = (double)t->rows * (double)t->trees * log2(2.0 + (double)t->nodes / (double)(t->trees + 1));
    int64_t blocks = (t->rows + block_rows(t) - 1) / block_rows(t);
    return rvm_divide(call, steps < 1e15 ? (int64_t)steps * NS_OF_STEP : INT64_MAX / 2, blocks, 1);
}

static int64_t trees_workspace(const RvmKernelCall *call) {
    Trees t;
    if (!get_trees(call, &t)) return -1;
    return trees_grid(call, &t).threads * sums_bytes(&t) + RVM_ALIGNMENT;
}

/* ---- by the data type of x ----------------------------------------------------------------------- */
#define TREES_OF(type, suffix)                                                                                      \
    /* The leaves that rows get to in a tree. */                                                                    \
    static int follow_##suffix(const RvmKernelCall *call, const Trees *t, const type *x, int64_t rows,              \
                               int32_t root, int32_t *at) {                                                         \
        const volatile type *thresholds = (const volatile type *)t->thresholds;                                     \
        const uint32_t nodes = (uint32_t)t->nodes, columns = (uint32_t)t->columns;                                  \
        int64_t left = t->nodes;                                                                                    \
        for (int64_t r = 0; r < rows; r++) at[r] = root;                                                            \
        for (unsigned inner = 1; inner; left--) {                                                                   \
            inner = 0;                                                                                              \
            for (int64_t r = 0; r < rows; r++) {                                                                    \
                const int32_t node = at[r];                                                                         \
                const uint8_t mode = (uint8_t)t->modes[node];                                                       \
                if (mode == LEAF || mode == IF_MISSING) continue;                                                   \
                const uint32_t feature = (uint32_t)t->features[node];                                               \
                if (mode > IF_MISSING + EQUAL || feature >= columns) return RVM_ASK_REFERENCE;                      \
                const type given = x[r * t->columns + feature], bound = thresholds[node];                           \
                const unsigned kind = mode & 3, same = given == bound;                                              \
                unsigned passes = (given <= bound) & ((kind != LESS) | !same);                                      \
                passes = (kind == EQUAL ? same : passes) | ((mode >= IF_MISSING) & (given != given));               \
                const uint32_t next = (uint32_t)t->branches[2 * (int64_t)node + !passes];                           \
                if (next >= nodes) return RVM_ASK_REFERENCE;                                                        \
                at[r] = (int32_t)next;                                                                              \
                inner = 1;                                                                                          \
            }                                                                                                       \
            if (left < 0) return RVM_ASK_REFERENCE; /* a cycle */                                                   \
            if (rvm_must_stop(call, rows * STEP_WORK)) return RVM_FAILED;                                           \
        }                                                                                                           \
        return RVM_OK;                                                                                              \
    }                                                                                                               \
                                                                                                                    \
    /* Add what the leaf of a row has to its sums. */                                                               \
    static int collect_##suffix(const RvmKernelCall *call, const Trees *t, int32_t leaf, double *sums) {            \
        const volatile type *weights = (const volatile type *)t->weights;                                           \
        const int64_t first = t->starts[leaf], last = t->starts[(int64_t)leaf + 1];                                 \
        if (first < 0 || first > last || last > t->num_targets) return RVM_ASK_REFERENCE;                           \
        for (int64_t i = first; i < last; i++) {                                                                    \
            const uint32_t target = (uint32_t)t->targets[i];                                                        \
            if (target >= t->count) return RVM_ASK_REFERENCE;                                                       \
            const double weight = weights[i], sum = sums[target];                                                   \
            if (t->aggregate == MIN) sums[target] = weight < sum || weight != weight ? weight : sum;                \
            else if (t->aggregate == MAX) sums[target] = weight > sum || weight != weight ? weight : sum;           \
            else sums[target] = sum + weight;                                                                       \
            if (rvm_must_stop(call, STEP_WORK)) return RVM_FAILED;                                                  \
        }                                                                                                           \
        return RVM_OK;                                                                                              \
    }                                                                                                               \
                                                                                                                    \
    static int block_##suffix(const RvmKernelCall *call, const Trees *t, int64_t row, int64_t rows, double *sums) { \
        const type *x = (const type *)t->x + row * t->columns;                                                      \
        type *out = (type *)t->out + row * t->count;                                                                \
        const double none = t->aggregate == MIN ? INFINITY : t->aggregate == MAX ? -INFINITY : 0;                   \
        for (int64_t i = 0; i < rows * t->count; i++) sums[i] = none;                                               \
        for (int64_t tree = 0; tree < t->trees; tree++) {                                                           \
            const int32_t root = t->roots[tree];                                                                    \
            if (root < 0 || root >= t->nodes) return RVM_ASK_REFERENCE;                                             \
            for (int64_t r = 0; r < rows; r += TOGETHER) {                                                          \
                const int64_t group = rows - r < TOGETHER ? rows - r : TOGETHER;                                    \
                int32_t leaves[TOGETHER];                                                                           \
                int how = follow_##suffix(call, t, x + r * t->columns, group, root, leaves);                        \
                for (int64_t i = 0; how == RVM_OK && i < group; i++)                                                \
                    how = collect_##suffix(call, t, leaves[i], sums + (r + i) * t->count);                          \
                if (how != RVM_OK) return how;                                                                      \
            }                                                                                                       \
        }                                                                                                           \
        for (int64_t i = 0; i < rows * t->count; i++) {                                                             \
            double sum = sums[i];                                                                                   \
            if (t->aggregate == AVERAGE) sum /= t->trees > 1 ? (double)t->trees : 1.0;                              \
            if (t->aggregate >= MIN && isinf(sum)) sum = 0;                                                         \
            out[i] = (type)sum;                                                                                     \
            if (isinf(out[i]) && !isinf(sum)) return RVM_ASK_REFERENCE; /* it warns */                              \
        }                                                                                                           \
        return RVM_OK;                                                                                              \
    }

/* Of a step, in the unit of rvm_must_stop, of which there are some 50 in a nanosecond. */
#define STEP_WORK (NS_OF_STEP * 64)

TREES_OF(float, f32)
TREES_OF(double, f64)

static int some_blocks(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    Trees *t = (Trees *)work;
    RvmPart part = rvm_part(&t->grid, piece);
    double *sums = (double *)(t->sums + thread * sums_bytes(t));
    const int64_t step = block_rows(t);
    const int is_single = call->buffers[0].dtype == RVM_DTYPE_F32;
    for (int64_t block = part.outer; block < part.outer_end && !is_left(t); block++) {
        const int64_t row = block * step, rows = t->rows - row < step ? t->rows - row : step;
        const int how = is_single ? block_f32(call, t, row, rows, sums) : block_f64(call, t, row, rows, sums);
        if (how == RVM_FAILED) return how;
        if (how == RVM_ASK_REFERENCE) leave(t);
    }
    return RVM_OK;
}

static int tree_ensemble(const RvmKernelCall *call) {
    Trees t;
    if (!get_trees(call, &t)) return RVM_ASK_REFERENCE;
    char *workspace = call->workspace;
    t.sums = rvm_take(&workspace, 0);
    t.grid = trees_grid(call, &t);
    const int how = rvm_run_grid(call, &t.grid, some_blocks, &t);
    /* What has been written does not matter: the reference writes all of it, or raises an exception. */
    return how == RVM_OK && t.is_left ? RVM_ASK_REFERENCE : how;
}

static const RvmArgument tree_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
    RVM_FIELD_OF(aggregates, CHOICE, TreeParams, aggregate),
    RVM_FIELD(INT, TreeParams, count),
    RVM_BUFFER(OUT),
};

const RvmImplementation RVM_NAME(rvm_trees)[] = {
    {.name = "trees.rows", .kernel = "tree_ensemble", .run = tree_ensemble, .workspace = trees_workspace,
     RVM_ARGUMENTS(tree_arguments), .dtypes = RVM_FLOATS, .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1,
     .ulp = RVM_SUM_ULP},
    {.name = NULL},
};
