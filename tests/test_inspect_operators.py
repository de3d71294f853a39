"""Operators ``relax.inspect.*``: what a tensor is, known to the compiler or to the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import BlockBuilder, op, tir
from relaxvm.ir import Var
from relaxvm.script import relax as R

DLPACK = {
    "bool": (6, 8), "int8": (0, 8), "uint16": (1, 16), "float32": (2, 32), "float64": (2, 64),
    "bfloat16": (4, 16), "complex64": (5, 64),
}  # fmt: skip
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def inspected(call: Any, x: Any, ty: Any, *more: int) -> Any:
    """The numbers that calls of an operator return for a tensor."""
    builder = BlockBuilder()
    tensor = Var("x", ty)
    numbers = [Var(f"k{i}", R.Prim("int64")) for i in range(len(more))]
    with builder.function("main", [tensor, *numbers]):
        builder.emit_func_output(builder.emit(call(tensor, *numbers)))
    return relaxvm.VirtualMachine(relaxvm.compile(builder.get())).main(x, *more)


TYPES = {
    "known": lambda x: R.Tensor(x.shape, x.dtype.name),
    "symbolic": lambda x: R.Tensor([tir.Var("n", "int64") for _ in x.shape], x.dtype.name),
    "rank": lambda x: R.Tensor(ndim=x.ndim),
    "nothing": lambda x: R.Tensor(),
}


@pytest.mark.parametrize("known", TYPES)
def test_rank_lengths_and_strides(known: str) -> None:
    ty = TYPES[known](X)
    assert inspected(op.inspect.tensor_ndim, X, ty) == 3
    for axis in range(3):
        for name, expected in (("shape_i", X.shape[axis]), ("stride_i", X.strides[axis] // 4)):
            operator = getattr(op.inspect, f"tensor_{name}")
            assert inspected(lambda x, call=operator, i=axis: call(x, i), X, ty) == expected
            assert inspected(operator, X, ty, axis) == expected  # an axis that only the run knows
    assert inspected(op.inspect.tensor_byte_offset, X[1:], TYPES[known](X[1:])) == 0
    assert inspected(op.inspect.tensor_elem_offset, X[1:], TYPES[known](X[1:])) == 0


@pytest.mark.parametrize("known", ["known", "nothing"])
@pytest.mark.parametrize("dtype", DLPACK)
def test_data_types(known: str, dtype: str) -> None:
    if dtype == "complex64" and known == "known":
        pytest.skip("elements of tensors in programs are no complex numbers")
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = np.zeros((2,), relaxvm.dtypes.as_dtype(dtype))
    ty = TYPES[known](x)
    code, bits = DLPACK[dtype]
    assert inspected(op.inspect.tensor_dtype_code, x, ty) == code
    assert inspected(op.inspect.tensor_dtype_bits, x, ty) == bits
    assert inspected(op.inspect.tensor_dtype_lanes, x, ty) == 1


def test_strides_of_views() -> None:
    ty = R.Tensor(ndim=3)
    stride = op.inspect.tensor_stride_i
    assert inspected(stride, X[:, ::-1], ty, 1) == -4
    assert inspected(stride, X.T, ty, 0) == 1
    records = np.zeros(3, "f4, i1")["f0"][:, None, None]
    with pytest.raises(ValueError, match=r"the stride of axis 0 .* is 5 bytes"):
        inspected(stride, records, ty, 0)


def test_an_axis_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="axis: expected one of the 3 axes of float32"):
        inspected(op.inspect.tensor_shape_i, X, R.Tensor(ndim=3), 3)
    with pytest.raises(ValueError, match="axis: expected one of the 3 axes of float32"):
        inspected(op.inspect.tensor_stride_i, X, R.Tensor(ndim=3), -1)


def test_in_a_script() -> None:
    from relaxvm.script import from_source

    mod = from_source('''
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor) -> R.Tuple(R.Prim("int32"), R.Prim("int64")):
        ndim = R.inspect.tensor_ndim(x)
        first = R.inspect.tensor_shape_i(x, 0)
        return (ndim, first)
''')
    assert relaxvm.VirtualMachine(relaxvm.compile(mod)).main(X) == (3, 2)
    assert "R.inspect.tensor_ndim(x)" in mod.script()
