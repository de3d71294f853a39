/* Three kernels in C.  Build them with `make`, run them with `python run.py`. */
#include <math.h>
#include <relaxvm/kernel.h>

/* saxpy(factor, x, y, out): out = factor * x + y, of float32 vectors. */
RVM_KERNEL(saxpy) {
  RVM_EXPECT_ARGS(4);
  double factor;
  const RvmTensor *x = rvm_tensor(args, 1, RVM_FLOAT, 32, 1);
  const RvmTensor *y = rvm_tensor(args, 2, RVM_FLOAT, 32, 1);
  RvmTensor *out = rvm_tensor(args, 3, RVM_FLOAT, 32, 1);
  if (!x || !y || !out || rvm_get_float(args, 0, &factor)) return RVM_FAILED;
  int64_t n = out->shape[0];
  if (x->shape[0] != n || y->shape[0] != n)
    return rvm_error("ValueError", "saxpy: expected vectors of %lld elements, got %lld and %lld",
                     (long long)n, (long long)x->shape[0], (long long)y->shape[0]);
  const float *restrict a = rvm_f32(x), *restrict b = rvm_f32(y);
  float *restrict c = rvm_f32(out), f = (float)factor;
  for (int64_t i = 0; i < n; i++) c[i] = f * a[i] + b[i];
  return RVM_OK;
}

/* norm(x) -> float: the square root of the sum of squares, of a float64 tensor of any rank. */
RVM_KERNEL(norm) {
  RVM_EXPECT_ARGS(1);
  const RvmTensor *x = rvm_tensor(args, 0, RVM_FLOAT, 64, -1);
  if (!x) return RVM_FAILED;
  double sum = 0;
  for (int64_t i = 0; i < rvm_numel(x); i++) sum += rvm_f64(x)[i] * rvm_f64(x)[i];
  return rvm_return_float(ret, sqrt(sum));
}

/* collatz(x, steps): the number of steps of the Collatz sequence from each element of x to 1, of
 * int64 vectors.  numpy has no function for it.  It may run for long, so it checks for Ctrl-C. */
RVM_KERNEL(collatz) {
  RVM_EXPECT_ARGS(2);
  const RvmTensor *x = rvm_tensor(args, 0, RVM_SIGNED, 64, 1);
  RvmTensor *steps = rvm_tensor(args, 1, RVM_SIGNED, 64, 1);
  if (!x || !steps) return RVM_FAILED;
  if (x->shape[0] != steps->shape[0]) return rvm_error("ValueError", "collatz: lengths differ");
  for (int64_t i = 0; i < x->shape[0]; i++) {
    uint64_t n = (uint64_t)rvm_i64(x)[i];
    int64_t count = 0;
    if (rvm_i64(x)[i] < 1)
      return rvm_error("ValueError", "collatz: expected numbers from 1 on, got %lld at %lld",
                       (long long)rvm_i64(x)[i], (long long)i);
    for (; n != 1; count++) n = n % 2 ? 3 * n + 1 : n / 2;
    rvm_i64(steps)[i] = count;
    if (i % 65536 == 0 && rvm_interrupted()) return RVM_FAILED;
  }
  return RVM_OK;
}

RVM_KERNEL_NAMES("saxpy", "norm", "collatz")
