/* Kernels of compare_programs.py, for both VMs: elementwise float32, flags and counters. */
#include <relaxvm/kernel.h>

#define BINARY(name, expression)                                                   \
  RVM_KERNEL(name) {                                                               \
    const RvmTensor *x = rvm_any_tensor(args, 0), *y = rvm_any_tensor(args, 1);                \
    RvmTensor *out = rvm_any_tensor(args, 2);                                            \
    const float *a = rvm_f32(x), *b = rvm_f32(y);                                  \
    float *c = rvm_f32(out);                                                       \
    for (int64_t i = 0, n = rvm_numel(out); i < n; i++) c[i] = expression;         \
    return RVM_OK;                                                                 \
  }

BINARY(add, a[i] + b[i])
BINARY(mul, a[i] * b[i])

/* less(i, n, flag): flag = i < n; counters are int64 scalars. */
RVM_KERNEL(less) {
  *(uint8_t *)rvm_any_tensor(args, 2)->data =
      *(int64_t *)rvm_any_tensor(args, 0)->data < *(int64_t *)rvm_any_tensor(args, 1)->data;
  return RVM_OK;
}

/* next(i, out): out = i + 1 */
RVM_KERNEL(next) {
  *(int64_t *)rvm_any_tensor(args, 1)->data = *(int64_t *)rvm_any_tensor(args, 0)->data + 1;
  return RVM_OK;
}

/* rows(x, out): out[i] = x[i mod rows of x], of float32 matrices. */
RVM_KERNEL(rows) {
  const RvmTensor *x = rvm_any_tensor(args, 0);
  RvmTensor *out = rvm_any_tensor(args, 1);
  int64_t m = out->shape[1];
  for (int64_t i = 0; i < out->shape[0]; i++)
    for (int64_t j = 0; j < m; j++)
      rvm_f32(out)[i * m + j] = rvm_f32(x)[i % x->shape[0] * m + j];
  return RVM_OK;
}

/* matmul(x, w, out), of float32 matrices with 64 columns.  Sums a row in a local array, because the
 * speed of sums in memory depends on the addresses that the allocator of each side returns. */
RVM_KERNEL(matmul) {
  enum { M = 64 };
  const RvmTensor *x = rvm_any_tensor(args, 0), *w = rvm_any_tensor(args, 1);
  RvmTensor *out = rvm_any_tensor(args, 2);
  int64_t n = x->shape[0], k = x->shape[1];
  if (w->shape[1] != M) return rvm_error("ValueError", "matmul: expected %d columns", M);
  for (int64_t i = 0; i < n; i++) {
    float row[M] = {0};
    for (int64_t p = 0; p < k; p++) {
      float f = rvm_f32(x)[i * k + p];
      for (int j = 0; j < M; j++) row[j] += f * rvm_f32(w)[p * M + j];
    }
    for (int j = 0; j < M; j++) rvm_f32(out)[i * M + j] = row[j];
  }
  return RVM_OK;
}

RVM_KERNEL_NAMES("add", "mul", "less", "next", "rows", "matmul")
