/* Attention: shares of values by the softmax of scores. */
#include "loops.h"

typedef struct {
    RvmReal scale;
    int64_t mask; /* the place in `masks`, or RVM_NO_INT */
} AttentionParams;

enum { TOP_LEFT, BOTTOM_RIGHT };
static const char *const masks[] = {"TopLeft", "BottomRight", NULL};

enum { QUERY, KEY, VALUE, BIAS, OUT };

typedef struct {
    int64_t batch, queries, keys, heads, width, depth, item;
    int64_t hidden;      /* query i does not see the keys after i + hidden, if it is masked */
    int64_t bias[4];     /* steps along batch, heads, queries, keys */
    const char *bias_data;
    RvmNumber factor;
    int dtype, masked;
} Attention;

/* The softmax of a row of scores; a row of -infinity becomes zeros. */
static void weigh_row(const RvmKernelCall *call, char *row, int dtype, int64_t item, int64_t n) {
    RvmNumber peak, total;
    memcpy(peak.bytes, row, (size_t)item);
    if (n > 1) rvm_reduce(call, RVM_MAXIMUM, dtype, peak.bytes, row + item, item, n - 1);
    if (dtype == RVM_DTYPE_F32 ? peak.single == -INFINITY : peak.full == -INFINITY)
        rvm_set_real(&peak, dtype, 0);
    rvm_apply_2(call, RVM_SUBTRACT, dtype, row, item, peak.bytes, 0, row, item, n);
    rvm_apply_1(call, RVM_EXP, dtype, row, row, item, n);
    rvm_set_real(&total, dtype, 0);
    rvm_reduce(call, RVM_ADD, dtype, total.bytes, row, item, n);
    if (dtype == RVM_DTYPE_F32 ? total.single == 0 : total.full == 0) rvm_set_real(&total, dtype, 1);
    rvm_apply_2(call, RVM_DIVIDE, dtype, row, item, total.bytes, 0, row, item, n);
}

static void hide(char *row, int dtype, int64_t from, int64_t to) {
    for (int64_t i = from < 0 ? 0 : from; i < to; i++) {
        if (dtype == RVM_DTYPE_F32) ((float *)row)[i] = -INFINITY;
        else ((double *)row)[i] = -INFINITY;
    }
}

/* Turn the scores of element i of the batch into shares. */
static void weigh(const RvmKernelCall *call, const Attention *a, int64_t i, char *scores) {
    rvm_apply_2(call, RVM_MULTIPLY, a->dtype, scores, a->item, a->factor.bytes, 0, scores, a->item,
                a->heads * a->queries * a->keys);
    for (int64_t h = 0; h < a->heads; h++) {
        for (int64_t q = 0; q < a->queries; q++) {
            char *row = scores + (h * a->queries + q) * a->keys * a->item;
            if (a->bias_data != NULL)
                rvm_apply_2(call, RVM_ADD, a->dtype, row, a->item,
                            a->bias_data + i * a->bias[0] + h * a->bias[1] + q * a->bias[2],
                            a->bias[3], row, a->item, a->keys);
            if (a->masked) hide(row, a->dtype, q + a->hidden + 1, a->keys);
            weigh_row(call, row, a->dtype, a->item, a->keys);
        }
    }
}

/* The dims of a call; false if they do not fit each other, are 0, or are too many. */
static int get_dims(const RvmBuffer *b, Attention *a) {
    for (int i = QUERY; i <= VALUE; i++)
        if (b[i].ndim != 4) return 0;
    if (b[OUT].ndim != 4) return 0;
    a->batch = b[QUERY].dims[0];
    a->queries = b[QUERY].dims[1];
    a->heads = b[QUERY].dims[2];
    a->width = b[QUERY].dims[3];
    a->keys = b[KEY].dims[1];
    a->depth = b[VALUE].dims[3];
    const int64_t key_dims[4] = {a->batch, a->keys, a->heads, a->width};
    const int64_t value_dims[4] = {a->batch, a->keys, a->heads, a->depth};
    const int64_t out_dims[4] = {a->batch, a->queries, a->heads, a->depth};
    if (!rvm_same_dims(b[KEY].dims, key_dims, 4) || !rvm_same_dims(b[VALUE].dims, value_dims, 4) ||
        !rvm_same_dims(b[OUT].dims, out_dims, 4) || a->depth == 0)
        return 0;
    int64_t left = RVM_SMALL_WORK; /* keys that repeat in memory may be any number */
    const int64_t factors[5] = {a->batch, a->heads, a->queries, a->keys, a->width};
    for (int i = 0; i < 5; i++) {
        if (factors[i] == 0) return 0;
        left /= factors[i];
    }
    int64_t scores = a->heads * a->queries * a->keys;
    return left > 0 && a->batch * (a->width + a->depth) <= RVM_SMALL_WORK / scores;
}

static int get_attention(const RvmKernelCall *call, Attention *a) {
    const RvmBuffer *b = call->buffers, *bias = &b[BIAS], *out = &b[OUT];
    const AttentionParams *params = (const AttentionParams *)call->params;
    if (!get_dims(b, a)) return 0;
    for (int i = QUERY; i <= VALUE; i++)
        if (!rvm_is_input(&b[i], out)) return 0;
    a->item = out->item;
    a->dtype = out->dtype;
    if (!params->scale.is_given) rvm_set_real(&a->factor, a->dtype, 1 / sqrt((double)a->width));
    else if (!rvm_narrow(&params->scale, a->dtype, &a->factor)) return 0;
    a->masked = params->mask != RVM_NO_INT;
    a->hidden = params->mask == BOTTOM_RIGHT ? a->keys - a->queries : 0;
    a->bias_data = NULL;
    if (bias->flags & RVM_ABSENT) return 1;
    if (bias->ndim != 4 || !rvm_is_input(bias, out)) return 0;
    const int64_t bias_dims[4] = {a->batch, a->heads, a->queries, a->keys};
    for (int i = 0; i < 4; i++) {
        if (bias->dims[i] != 1 && bias->dims[i] != bias_dims[i]) return 0;
        a->bias[i] = bias->dims[i] == 1 ? 0 : bias->strides[i];
    }
    a->bias_data = bias->data;
    return 1;
}

/* The scores of an element of the batch. */
static int64_t workspace(const RvmKernelCall *call) {
    Attention a;
    if (!get_dims(call->buffers, &a)) return -1;
    return a.heads * a.queries * a.keys * call->buffers[OUT].item;
}

/* attention(query, key, value, bias or None, scale or None, causal mask or None, out) */
static int attention(const RvmKernelCall *call) {
    Attention a;
    const RvmBuffer *b = call->buffers;
    char *scores = call->workspace;
    if (!get_attention(call, &a)) return RVM_ASK_REFERENCE;
    const int64_t *q_steps = b[QUERY].strides, *k_steps = b[KEY].strides;
    const int64_t *v_steps = b[VALUE].strides, *out_steps = b[OUT].strides;
    rvm_clear_float_status();
    for (int64_t i = 0; i < a.batch; i++) {
        RvmMatrices q = {b[QUERY].data + i * q_steps[0], q_steps[2], q_steps[1], q_steps[3]};
        RvmMatrices k = {b[KEY].data + i * k_steps[0], k_steps[2], k_steps[3], k_steps[1]};
        RvmMatrices v = {b[VALUE].data + i * v_steps[0], v_steps[2], v_steps[1], v_steps[3]};
        RvmMatrices out = {b[OUT].data + i * out_steps[0], out_steps[2], out_steps[1], out_steps[3]};
        RvmMatrices s = {scores, a.queries * a.keys * a.item, a.keys * a.item, a.item};
        rvm_multiply(call, a.dtype, a.heads, a.queries, a.width, a.keys, &q, &k, &s);
        weigh(call, &a, i, scores);
        rvm_multiply(call, a.dtype, a.heads, a.queries, a.keys, a.depth, &s, &v, &out);
    }
    return RVM_OK;
}

static const RvmArgument attention_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD(REAL_OR_NONE, AttentionParams, scale),
    RVM_FIELD_OF(masks, CHOICE_OR_NONE, AttentionParams, mask),
    RVM_BUFFER(OUT),
};

const RvmImplementation rvm_attention[] = {
    {.name = "attention.by_batch", .kernel = "nn.attention", .run = attention,
     .workspace = workspace, RVM_ARGUMENTS(attention_arguments), .dtypes = RVM_FLOATS,
     .most_bytes = RVM_SMALL_RESULT},
    {.name = NULL},
};
