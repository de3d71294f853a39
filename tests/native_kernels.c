/* Kernels of tests/test_native.py. */
#define _DEFAULT_SOURCE /* usleep */
#include <relaxvm/kernel.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

RVM_KERNEL(noop) { return RVM_OK; }

/* Kind of each argument, as digits of a number in base 100, the first as the highest. */
RVM_KERNEL(kinds) {
  int64_t digits = 0;
  for (int32_t i = 0; i < num_args; i++) digits = 100 * digits + args[i].type;
  return rvm_return_int(ret, digits);
}

RVM_KERNEL(count) { return rvm_return_int(ret, num_args); }

/* sum(*ints) */
RVM_KERNEL(sum) {
  int64_t total = 0, value;
  for (int32_t i = 0; i < num_args; i++) {
    if (rvm_get_int(args, i, &value)) return RVM_FAILED;
    total += value;
  }
  return rvm_return_int(ret, total);
}

/* What a tensor looks like: describe(x, out), out: int64[6 + 2 * rank]: code, bits, lanes, rank, whether
 * strides are given, address modulo 256, lengths, steps. */
RVM_KERNEL(describe) {
  RVM_EXPECT_ARGS(2);
  const RvmTensor *x = rvm_any_tensor(args, 0);
  RvmTensor *out = rvm_tensor(args, 1, RVM_SIGNED, 64, 1);
  if (!out) return RVM_FAILED;
  int64_t *o = rvm_i64(out);
  if (!x || x->device.type != RVM_CPU || x->device.index != 0 ||
      x->byte_offset != 0 || out->shape[0] < 6 + 2 * x->ndim)
    return rvm_error("AssertionError", "describe");
  *o++ = x->dtype.code;
  *o++ = x->dtype.bits;
  *o++ = x->dtype.lanes;
  *o++ = x->ndim;
  *o++ = x->strides != NULL;
  *o++ = (int64_t)((uintptr_t)x->data % 256);
  for (int i = 0; i < x->ndim; i++) *o++ = x->shape[i];
  for (int i = 0; i < x->ndim; i++) *o++ = x->strides ? x->strides[i] : -1;
  return RVM_OK;
}

/* copy(x, out): bytes of a contiguous tensor. */
RVM_KERNEL(copy) {
  RVM_EXPECT_ARGS(2);
  const RvmTensor *x = args[0].as_tensor, *out = args[1].as_tensor;
  memcpy(out->data, x->data, (size_t)(rvm_numel(x) * x->dtype.bits / 8));
  return RVM_OK;
}

/* strided_sum(x) of float64[n, m] with any strides. */
RVM_KERNEL(strided_sum) {
  const RvmTensor *x = rvm_tensor(args, 0, RVM_FLOAT, 64, 2);
  double total = 0;
  if (!x) return RVM_FAILED;
  for (int64_t i = 0; i < x->shape[0]; i++)
    for (int64_t k = 0; k < x->shape[1]; k++)
      total += rvm_f64(x)[i * x->strides[0] + k * x->strides[1]];
  return rvm_return_float(ret, total);
}

/* bump(x): x += 1 for float64, so that writing can be seen. */
RVM_KERNEL(bump) {
  RvmTensor *x = rvm_tensor(args, 0, RVM_FLOAT, 64, -1);
  if (!x) return RVM_FAILED;
  for (int64_t i = 0; i < rvm_numel(x); i++) rvm_f64(x)[i] += 1;
  return RVM_OK;
}

/* where(x): the address of the data. */
RVM_KERNEL(where) {
  const RvmTensor *x = rvm_any_tensor(args, 0);
  if (!x) return RVM_FAILED;
  return rvm_return_int(ret, (int64_t)(uintptr_t)x->data);
}

/* half(x): x / 2 of a float or an int. */
RVM_KERNEL(half) {
  double value;
  if (rvm_get_float(args, 0, &value)) return RVM_FAILED;
  return rvm_return_float(ret, value / 2);
}

/* negate(b) of a bool */
RVM_KERNEL(negate) { return rvm_return_bool(ret, !args[0].as_int); }

/* length(text or bytes): number of bytes. */
RVM_KERNEL(length) {
  RvmBytes text;
  if (rvm_get_bytes(args, 0, &text)) return RVM_FAILED;
  return rvm_return_int(ret, (int64_t)text.size);
}

/* volume(shape): product of its dimensions. */
RVM_KERNEL(volume) {
  const RvmShape *shape = (const RvmShape *)args[0].as_object;
  int64_t product = 1;
  for (size_t i = 0; i < shape->ndim; i++) product *= shape->dims[i];
  return rvm_return_int(ret, product);
}

/* same(value): itself, for values that are no objects. */
RVM_KERNEL(same) {
  *ret = args[0];
  return RVM_OK;
}

/* short_text(): "abc" */
RVM_KERNEL(short_text) {
  ret->type = RVM_SHORT_TEXT;
  ret->short_size = 3;
  memcpy(ret->short_bytes, "abc", 4);
  return RVM_OK;
}

static int objects_alive;

static void destroy(void *self, int what) {
  if (what & 2) {
    objects_alive--;
    free(self);
  }
}

static RvmObject *new_object(int32_t type, size_t size) {
  RvmObject *object = (RvmObject *)calloc(1, size);
  object->counts = (UINT64_C(1) << 32) + 1;
  object->type = type;
  object->destroy = destroy;
  objects_alive++;
  return object;
}

/* object(type): a new object: text, bytes, a shape (2, 3), a tensor of that shape over static memory
 * (on another device if there is a second argument), or something unknown. */
RVM_KERNEL(object) {
  static const int64_t dims[] = {2, 3};
  int32_t type = (int32_t)args[0].as_int;
  ret->type = type;
  if (type == RVM_SHAPE) {
    RvmShape *shape = (RvmShape *)new_object(type, sizeof *shape);
    shape->dims = dims;
    shape->ndim = 2;
    ret->as_object = &shape->object;
  } else if (type == RVM_TENSOR_OBJECT) {
    static float numbers[] = {1, 2, 3, 4, 5, 6};
    static int64_t across[] = {1, 2};
    RvmTensorObject *tensor = (RvmTensorObject *)new_object(type, sizeof *tensor);
    tensor->tensor.data = numbers;
    tensor->tensor.device.type = num_args > 1 ? 2 : RVM_CPU;
    tensor->tensor.ndim = 2;
    tensor->tensor.dtype.code = RVM_FLOAT;
    tensor->tensor.dtype.bits = 32;
    tensor->tensor.dtype.lanes = 1;
    tensor->tensor.shape = (int64_t *)dims;
    tensor->tensor.strides = across;
    ret->as_object = &tensor->object;
  } else {
    RvmBytesObject *text = (RvmBytesObject *)new_object(type, sizeof *text);
    text->bytes.data = "some text";
    text->bytes.size = 9;
    ret->as_object = &text->object;
  }
  return RVM_OK;
}

RVM_KERNEL(alive) { return rvm_return_int(ret, objects_alive); }

/* fail(kind, message) */
RVM_KERNEL(fail) {
  RvmBytes kind, message;
  char name[64] = {0};
  if (rvm_get_bytes(args, 0, &kind) || rvm_get_bytes(args, 1, &message)) return RVM_FAILED;
  memcpy(name, kind.data, kind.size < 63 ? kind.size : 63);
  return rvm_error(name, "%.*s", (int)message.size, message.data);
}

/* spoil(x): writes float64s, then fails. */
RVM_KERNEL(spoil) {
  RvmTensor *x = rvm_tensor(args, 0, RVM_FLOAT, 64, -1);
  if (!x) return RVM_FAILED;
  for (int64_t i = 0; i < rvm_numel(x); i++) rvm_f64(x)[i] = -1;
  return rvm_error("ValueError", "spoilt");
}

/* fail_twice(): the second reason is the one that counts. */
RVM_KERNEL(fail_twice) {
  rvm_error("TypeError", "first");
  return rvm_error("ValueError", "second");
}

/* think_better(): an error that is taken back, on which nothing may be left behind. */
RVM_KERNEL(think_better) {
  rvm_error("TypeError", "no");
  return RVM_OK;
}

/* code(n): returns n and says nothing. */
RVM_KERNEL(code) { return (int)args[0].as_int; }

/* wait(flag, patience, fail): until flag, an int64[1], is not 0: the number of rounds.  On Ctrl-C fails,
 * or returns as if nothing were the matter. */
RVM_KERNEL(wait) {
  volatile int64_t *flag = rvm_i64(args[0].as_tensor);
  for (int64_t i = 0; i < args[1].as_int; i++) {
    if (*flag) return rvm_return_int(ret, i);
    if (rvm_interrupted()) return args[2].as_int ? RVM_FAILED : RVM_OK;
    usleep(1000);
  }
  return rvm_error("AssertionError", "nobody came");
}

/* call(f, depth): calls back the function at an address, int f(int64_t). */
RVM_KERNEL(call) {
  int (*f)(int64_t) = (int (*)(int64_t))(uintptr_t)args[0].as_int;
  return f(args[1].as_int) ? rvm_error("RuntimeError", "outer %d", (int)args[1].as_int) : RVM_OK;
}

/* A function that RVM_KERNEL has nothing to do with. */
RVM_EXPORT int plain(void *self, const RvmAny *args, int32_t num_args, RvmAny *ret) {
  (void)args;
  return rvm_return_int(ret, num_args + (int64_t)(intptr_t)self);
}

RVM_KERNEL_NAMES("noop", "kinds", "count", "sum", "describe", "copy", "strided_sum", "bump", "where", "half",
                 "negate", "length", "volume", "same", "short_text", "object", "alive", "fail", "spoil",
                 "fail_twice", "think_better", "code", "wait", "call")
