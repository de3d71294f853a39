"""Read-only arguments of kernels of which it is not known what they write, such as TVM's.

``python bench/bench_read_only.py`` times the product of 64 MiB of weights and a vector by a C
kernel that is called in a program.  The weights are an argument.
"""

from __future__ import annotations

import platform
import time

import clean
import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine, toolchain

SIZE = 4096
CALLS = 100
ROUNDS = 5

SOURCE = """
#include <relaxvm/kernel.h>

RVM_KERNEL(product) {
  RVM_EXPECT_ARGS(3);
  RvmTensor *w = rvm_tensor(args, 0, RVM_FLOAT, 32, 2), *x = rvm_tensor(args, 1, RVM_FLOAT, 32, 1);
  RvmTensor *out = rvm_tensor(args, 2, RVM_FLOAT, 32, 1);
  if (!w || !x || !out) return RVM_FAILED;
  const float *a = rvm_f32(w), *b = rvm_f32(x);
  float *c = rvm_f32(out);
  for (int64_t i = 0; i < w->shape[0]; i++, a += w->shape[1]) {
    float sum[16] = {0};
    for (int64_t k = 0; k < w->shape[1]; k += 16)
      for (int j = 0; j < 16; j++) sum[j] += a[k + j] * b[k + j];
    c[i] = 0;
    for (int j = 0; j < 16; j++) c[i] += sum[j];
  }
  return RVM_OK;
}
"""


def machine() -> VirtualMachine:
    library = toolchain.compile_c(SOURCE, name="bench_read_only")
    kernel = relaxvm.load_kernels(library, names=["product"], writes=None)["product"]
    builder = ExecBuilder()
    with builder.function("main", num_inputs=3):
        builder.emit_call("product", [builder.r(i) for i in range(3)])
        builder.emit_ret(builder.r(2))
    return VirtualMachine(builder.get(), functions={"product": kernel})


def milliseconds(vm: VirtualMachine, weights: np.ndarray, x: np.ndarray) -> float:
    """Return the time of a call."""
    out = np.empty(SIZE, np.float32)
    vm["main"](weights, x, out)
    start = time.perf_counter()
    for _ in range(CALLS):
        vm["main"](weights, x, out)
    return (time.perf_counter() - start) * 1000 / CALLS


def main() -> None:
    print(f"relaxvm {relaxvm.__version__}, CPython {platform.python_version()}, "
          f"numpy {np.__version__}, {clean.machine()}")
    vm = machine()
    weights, x = np.ones((SIZE, SIZE), np.float32), np.ones(SIZE, np.float32)
    frozen = weights[:]
    frozen.flags.writeable = False
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, given in (("writable", weights), ("read-only", frozen)):
            best[name] = min(best.get(name, float("inf")), milliseconds(vm, given, x))
    for name, time_ms in best.items():
        print(f"{name:10} {time_ms:8.1f} ms per call with {weights.nbytes >> 20} MiB")


if __name__ == "__main__":
    main()
