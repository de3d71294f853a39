"""Programs as script.  Type checkers object to their types, which are calls and variables, and to
operators that do not exist; ``E`` marks these lines with the error codes of mypy."""

from __future__ import annotations

import numpy as np

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:  # E: valid-type
        for i in range(8):
            with T.sblock("double"):
                v = T.axis.spatial(8, i)
                b[v] = a[v] * T.float32(2)

    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),  # E: valid-type
        w: R.Tensor((4, 4), "float32"),  # E: valid-type
    ) -> R.Tensor(("n", 4), "float32"):  # E: valid-type
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z

    @R.function(private=True)
    def inner(x: R.Object) -> R.Object:  # E: valid-type
        return x


@R.function
def alone(x: R.Object) -> R.Object:  # E: valid-type
    return x


vm = relaxvm.VirtualMachine(relaxvm.build(Module))
result = vm.main(np.ones((2, 4), np.float32), np.eye(4, dtype=np.float32))
assert result.shape == (2, 4)
assert alone.script()
if not vm:
    print(R.rellu)  # E: attr-defined
    print(R.nn.gellu)  # E: attr-defined
