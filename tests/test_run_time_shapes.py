"""Results whose shapes are known only when the program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import BlockBuilder, TensorType, Type, Var, VirtualMachine, build, const, get_func, op
from relaxvm.registry import RESULT_PREFIX
from relaxvm.values import Shape

X = np.arange(12, dtype="float32").reshape(3, 4)
SHAPES = [TensorType((2,), "int64"), TensorType(dtype="int64", ndim=1)]
MATRIX = TensorType((3, 4), "float32")


def machine(result: Callable[..., Any], *types: Type) -> VirtualMachine:
    """A VM with a function `main` of parameters of these types; `result` takes the builder and the
    parameters."""
    builder = BlockBuilder()
    params = [Var(f"p{i}", ty) for i, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(result(builder, *params))
        builder.emit_func_output(out)
    return VirtualMachine(build(builder.get()))


def shape_in(builder: BlockBuilder, tensor: Var) -> Var:
    return builder.emit(op.tensor_to_shape(tensor))


@pytest.mark.parametrize("ty", SHAPES, ids=["rank", "no rank"])
def test_a_shape_in_a_tensor(ty: TensorType) -> None:
    vm = machine(lambda b, x, s: op.reshape(x, shape_in(b, s)), MATRIX, ty)
    np.testing.assert_array_equal(vm.main(X, np.array([4, 3])), X.reshape(4, 3))
    with pytest.raises(ValueError, match=r"(12 elements|expected 12)"):
        vm.main(X, np.array([5, 3]))
    vm = machine(lambda b, x, s: op.broadcast_to(x, shape_in(b, s)), MATRIX, ty)
    np.testing.assert_array_equal(vm.main(X, np.array([3, 4])), X)
    vm = machine(lambda b, s: op.zeros(shape_in(b, s), "int32"), ty)
    np.testing.assert_array_equal(vm.main(np.array([2, 5])), np.zeros((2, 5), "int32"))
    vm = machine(lambda b, s: op.full(shape_in(b, s), const(2.5, "float32")), ty)
    np.testing.assert_array_equal(vm.main(np.array([2, 0])), np.full((2, 0), 2.5, "float32"))


@pytest.mark.parametrize("ty", SHAPES, ids=["rank", "no rank"])
def test_what_follows_an_unknown_shape(ty: TensorType) -> None:
    vm = machine(
        lambda b, x, s: op.sum(
            b.emit(op.add(b.emit(op.reshape(x, shape_in(b, s))), const(1.0, "float32"))),
            axis=-1,
            keepdims=True,
        ),
        MATRIX,
        ty,
    )
    for dims in ((2, 6), (12, 1)):
        want = (X.reshape(dims) + 1).sum(-1, keepdims=True)
        np.testing.assert_array_equal(vm.main(X, np.array(dims)), want)


def test_shapes_that_differ_by_name() -> None:
    n, m = Var("n", "int64"), Var("m", "int64")
    types = TensorType((n,), "float32"), TensorType((m,), "float32")
    vm = machine(lambda b, x, y: op.stack([x, y], axis=0), *types)
    np.testing.assert_array_equal(vm.main(X[0], X[1]), X[:2])
    with pytest.raises(ValueError, match="stack"):
        vm.main(X[0], X[1, :2].copy())


def test_a_squeeze_of_what_has_length_1() -> None:
    n, m = Var("n", "int64"), Var("m", "int64")
    vm = machine(lambda b, x: op.squeeze(x), TensorType((n, m), "float32"))
    assert vm.main(X[:1]).shape == (4,)
    assert vm.main(X).shape == (3, 4)
    assert vm.main(X[:1, :1].copy()).shape == ()


def test_memory_of_results_counts() -> None:
    builder = BlockBuilder()
    shape = Var("shape", TensorType(dtype="int64", ndim=1))
    with builder.function("main", [shape]):
        with builder.dataflow():
            out = builder.emit_output(op.zeros(shape_in(builder, shape), "float64"))
        builder.emit_func_output(out)
    vm = VirtualMachine(build(builder.get()), limits=relaxvm.Limits(live_bytes=1 << 20))
    assert vm.main(np.array([100, 100])).shape == (100, 100)
    with pytest.raises(relaxvm.errors.LimitError, match="live_bytes"):
        vm.main(np.array([1000, 1000]))


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("add", (X, X[0, :3], None, "float32"), ValueError, "add: expected shapes that broadcast"),
        ("add", (X, X, None, "float64"), ValueError, "add: results: expected float32 at"),
        ("add", (X, X, None, "nothing"), ValueError, "results: dtype: 'nothing' is not a data"),
        ("add", (X, X, None, ""), ValueError, "results: expected data types separated by commas"),
        ("add", (X, X, None, 3), TypeError, "results: expected a string, got int 3"),
        ("add", (X,), TypeError, "add: expected inputs, shape and results, got 1 arguments"),
        ("cast", (X, None, "?"), ValueError, "expected a data type, since the inputs do not"),
        ("full", (1, None, "int8"), ValueError, "full: shape: expected the shape of the result"),
        ("full", (1, Shape([-1]), "int8"), ValueError, "shape: expected ints of at least 0"),
        ("full", (1, Shape([2]), "object"), ValueError, "expected a data type of numbers"),
        ("reshape", (X, Shape([5, -1]), 0), ValueError, r"has 12 elements, which \[5, -1\] does"),
        ("reshape", (X, Shape([-1, -1]), 0), ValueError, "of which one may be -1"),
        ("reshape", (X, Shape([0, 4, 0]), 0), ValueError, "0 at place 2 of .* has 2 dimensions"),
        ("squeeze", (X, Shape([0])), ValueError, "expected axes of length 1, got axis 0"),
        ("expand_dims", (X, Shape([3])), ValueError, "expected axes of a tensor of rank 3"),
        ("flatten", (X, 3), ValueError, "expected an axis of .*, or its rank, got 3"),
    ],
)
def test_mistakes(
    name: str, args: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        get_func(RESULT_PREFIX + name)(*args)


def test_several_results() -> None:
    values, indices = get_func(RESULT_PREFIX + "topk")(X, 2, 1, "both", 1, None, "float32,int64")
    np.testing.assert_array_equal(values, X[:, :1:-1])
    np.testing.assert_array_equal(indices, [[3, 2]] * 3)
    first, second = get_func(RESULT_PREFIX + "split")(X, 2, 1, None, "float32,float32")
    np.testing.assert_array_equal(np.concatenate([first, second], 1), X)
