"""MovePermutations and FoldScaleToConv: images as NHWC, and trained normalizations written out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, op
from relaxvm.ir import BlockBuilder, Call, Constant, ExprVisitor, IRModule, Op, TensorType, Var
from relaxvm.transform import (
    DeadCodeElimination,
    FoldConstant,
    FoldScaleToConv,
    MovePermutations,
    Sequential,
)

from .passes import apply, check, unchanged
from .test_onnx import FLOAT, model_of, node

RNG = np.random.default_rng(5)
TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def calls(mod: IRModule) -> list[str]:
    found: list[str] = []

    class Collect(ExprVisitor):
        def visit_call(self, call: Call) -> None:
            if isinstance(call.op, Op):
                found.append(call.op.name.removeprefix("relax."))
            super().visit_call(call)

    for func in mod.functions.values():
        Collect().visit(func)
    return found


def numbers(*shape: int) -> Constant:
    return Constant(RNG.uniform(0.5, 2, shape).astype("float32"))


def program(body: Any, *shapes: Any, dataflow: bool = True) -> IRModule:
    """A program of tensors x, y, ... of these shapes."""
    bb = BlockBuilder()
    params = [Var(name, TensorType(shape, "float32")) for name, shape in zip("xyz", shapes,
              strict=False)]  # fmt: skip
    with bb.function("main", params):
        if dataflow:
            with bb.dataflow():
                out = bb.emit_output(body(bb.emit, *params))
        else:
            out = bb.emit(body(bb.emit, *params))
        bb.emit_func_output(out)
    return bb.finalize()


def same_results(before: IRModule, after: IRModule, *shapes: Any, tolerance: float = 0) -> None:
    values = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
    one, two = (VirtualMachine(relaxvm.build(mod))["main"](*values) for mod in (before, after))
    np.testing.assert_allclose(two, one, rtol=tolerance, atol=tolerance)


# MovePermutations


@pytest.mark.parametrize("dataflow", [True, False])
def test_what_undoes_each_other_is_gone(dataflow: bool) -> None:
    """Constants of any rank follow; a residual connection and a reduction, too."""
    vector, plane, number = numbers(4), numbers(1, 1, 5, 4), numbers()

    def body(emit: Any, x: Var, y: Var) -> Any:
        moved = emit(op.permute_dims(x, TO_LAST))
        scaled = emit(op.multiply(emit(op.subtract(moved, vector)), plane))
        other = emit(op.permute_dims(y, TO_LAST))
        total = emit(op.nn.relu(emit(op.add(scaled, emit(op.divide(number, other))))))
        both = emit(op.where(emit(op.greater(total, other)), total, moved))
        back = emit(op.permute_dims(both, TO_FIRST))
        mean = emit(op.mean(total, [1, 2], keepdims=True))
        return emit(op.add(back, emit(op.permute_dims(mean, TO_FIRST))))

    shapes = [(2, 4, 3, 5)] * 2
    before = program(body, *shapes, dataflow=dataflow)
    after = apply(MovePermutations(), before)
    assert "permute_dims" not in calls(after)
    assert calls(before).count("permute_dims") == 4
    same_results(before, after, *shapes, tolerance=1e-6)
    if not dataflow:
        assert "dataflow" not in after.script()


@pytest.mark.parametrize("first", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_order_of_axes(first: tuple[int, ...], axis: int) -> None:
    """Behind concat; the second permutation undoes the first."""
    undo = [first.index(i) for i in range(3)]

    def body(emit: Any, x: Var, y: Var) -> Any:
        parts = [emit(op.exp(emit(op.permute_dims(each, list(first))))) for each in (x, y)]
        return emit(op.permute_dims(emit(op.concat(parts, axis)), undo))

    before = program(body, (2, 2, 2), (2, 2, 2))
    after = apply(MovePermutations(), before)
    assert "permute_dims" not in calls(after)
    same_results(before, after, (2, 2, 2), (2, 2, 2))


def test_what_is_not_less_stays() -> None:
    """Where one of the results is needed as it was, and where nothing is undone."""
    unchanged(
        MovePermutations(),
        """
        @R.function
        def main(x: R.Tensor((2, 3, 4), "float32")) -> R.Tensor((4, 3, 2), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, axes=[0, 2, 1])
                b = R.nn.relu(a)
                c = R.permute_dims(b, axes=[1, 2, 0])
                d = R.nn.softmax(b, axis=1)
                e = R.nn.softmax(d, axis=2)
                f = R.permute_dims(e, axes=[1, 2, 0])
                g = R.add(c, f)
                R.output(g)
            return g
        """,
    )
    # The other operand has another rank, or is in the order of the program.
    for shape in ((4, 5), (2, 3, 4, 5)):

        def body(emit: Any, x: Var, y: Var) -> Any:
            total = emit(op.add(emit(op.permute_dims(x, TO_LAST)), y))
            return emit(op.permute_dims(total, [0, 2, 1, 3]))

        mod = program(body, (2, 5, 3, 4), shape)
        assert calls(apply(MovePermutations(), mod)).count("permute_dims") == 2


def test_lengths_that_the_run_knows() -> None:
    check(
        MovePermutations(),
        """
        @R.function
        def main(x: R.Tensor(("n", 3, "m"), "float32")) -> R.Tensor(("n", 3, "m"), "float32"):
            n = T.int64()
            m = T.int64()
            with R.dataflow():
                a: R.Tensor((n, m, 3), "float32") = R.permute_dims(x, axes=[0, 2, 1])
                b: R.Tensor((n, m, 3), "float32") = R.exp(a)
                c: R.Tensor((n, 3, m), "float32") = R.permute_dims(b, axes=[0, 2, 1])
                R.output(c)
            return c
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", 3, "m"), "float32")) -> R.Tensor(("n", 3, "m"), "float32"):
            n = T.int64()
            m = T.int64()
            with R.dataflow():
                c: R.Tensor((n, 3, m), "float32") = R.exp(x)
                R.output(c)
            return c
        """,
        again=True,
    )


# FoldScaleToConv


def convolution(emit: Any, x: Var, axes: int, *, transposed: bool = False, **more: Any) -> Any:
    size = [3] * axes
    channels = x.ty.dims[1].value
    shape = (channels, 6, *size) if transposed else (6, channels // more.get("groups", 1), *size)
    name = f"conv{axes}d{'_transpose' if transposed else ''}"
    return emit(getattr(op.nn, name)(x, numbers(*shape), **more))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["plain", "groups", "transposed"])
def test_scaled_channels(axes: int, kind: str) -> None:
    ones = [1] * axes

    def body(emit: Any, x: Var) -> Any:
        y = convolution(emit, x, axes, transposed=kind == "transposed",
                        groups=2 if kind == "groups" else 1)  # fmt: skip
        y = emit(op.add(y, numbers(1, 6, *ones)))
        y = emit(op.subtract(y, numbers(6, *ones)))
        y = emit(op.multiply(numbers(1, 1, *ones), y))
        y = emit(op.subtract(numbers(), y))
        y = emit(op.divide(y, numbers(6, *ones)))
        return emit(op.nn.relu(y))

    shape = (2, 4, *[5] * axes)
    before = program(body, shape)
    after = apply(FoldScaleToConv(), before)
    name = f"nn.conv{axes}d{'_transpose' if kind == 'transposed' else ''}"
    assert calls(after) == [name, "add", "nn.relu"]
    same_results(before, after, shape, tolerance=1e-4)


def test_sums_become_one() -> None:
    def body(emit: Any, x: Var) -> Any:
        y = convolution(emit, x, 2)
        return emit(op.subtract(emit(op.add(y, numbers(6, 1, 1))), numbers(1)))

    before = program(body, (1, 2, 4, 4))
    after = apply(FoldScaleToConv(), before)
    assert calls(after) == ["nn.conv2d", "add"]
    same_results(before, after, (1, 2, 4, 4), tolerance=1e-5)


@pytest.mark.parametrize(
    "step",
    [
        lambda emit, y: op.add(emit(op.multiply(y, numbers(6, 1, 1))), y),  # used twice
        lambda emit, y: op.multiply(y, numbers(4)),  # the last axis
        lambda emit, y: op.multiply(y, numbers(1, 6, 4, 1)),
        lambda emit, y: op.multiply(y, numbers(2, 6, 1, 1)),  # more results
        lambda emit, y: op.multiply(y, numbers(1, 1, 6, 1, 1)),  # another rank
        lambda emit, y: op.divide(numbers(), y),
        lambda emit, y: op.divide(y, Constant(np.zeros((), "float32"))),
        lambda emit, y: op.multiply(y, Constant(np.array(np.inf, "float32"))),
        lambda emit, y: op.add(y, numbers(6, 1, 1)),  # one step already
        lambda emit, y: op.power(y, numbers(6, 1, 1)),
    ],
    ids=range(10),
)
def test_what_does_not_scale_channels(step: Any) -> None:
    mod = program(lambda emit, x: step(emit, convolution(emit, x, 2)), (1, 2, 6, 6))
    after = apply(FoldScaleToConv(), mod)
    assert after["main"] is mod["main"]


def test_other_layouts_types_and_weights_stay() -> None:
    for kind in ("layout", "groups", "weight"):

        def body(emit: Any, x: Var, w: Var, kind: str = kind) -> Any:
            if kind == "layout":
                y = op.nn.conv2d(x, numbers(6, 2, 3, 3), out_layout="NHWC")
            elif kind == "groups":
                y = op.nn.conv2d_transpose(x, numbers(2, 3, 3, 3), groups=2)
            else:
                y = op.nn.conv2d(x, w)
            return emit(op.multiply(emit(y), numbers()))

        mod = program(body, (1, 2, 6, 6), (6, 2, 3, 3))
        assert apply(FoldScaleToConv(), mod)["main"] is mod["main"], kind


# In a model


def test_a_model_of_images_as_nhwc() -> None:
    """Convolutions between permutations, with normalizations written out, become convolutions with
    a bias and an activation; the profile names the parts."""
    values = {
        name: RNG.uniform(0.5, 1.5, shape).astype("float32")
        for name, shape in {"w0": (8, 3, 3, 3), "w1": (8, 8, 3, 3), "m": (8,), "s": (8,),
                            "b": (8,)}.items()
    }  # fmt: skip
    nodes = []
    source = "x"
    for i in range(2):
        nodes += [
            node("Transpose", source, f"in{i}", perm=TO_FIRST),
            node("Conv", f"in{i} w{i}", f"conv{i}", pads=[1, 1, 1, 1]),
            node("Transpose", f"conv{i}", f"out{i}", perm=TO_LAST),
            node("Sub", f"out{i} m", f"sub{i}"),
            node("Mul", f"sub{i} s", f"mul{i}"),
            node("Add", f"mul{i} b", f"add{i}"),
            node("Relu", f"add{i}", f"y{i}"),
        ]
        source = f"y{i}"
    made = model_of(nodes, {"x": (FLOAT, [1, 8, 8, 3])}, ["y1"], values)
    x = RNG.standard_normal((1, 8, 8, 3)).astype("float32")
    plain = relaxvm.compile(made, precise=True)
    want = VirtualMachine(plain)["main"](x)
    executable = relaxvm.compile(made)
    np.testing.assert_allclose(VirtualMachine(executable)["main"](x), want, rtol=1e-4, atol=1e-3)
    listing = executable.as_text()
    assert listing.count("relaxvm.kernel.permute_dims in") <= 2
    for name in ("subtract", "multiply", "fused"):
        assert f"relaxvm.kernel.{name} in" not in listing


def test_the_passes_by_example() -> None:
    """A permutation of a constant is folded, and what is left is the convolution alone."""

    def body(emit: Any, x: Var) -> Any:
        y = emit(op.permute_dims(convolution(emit, x, 2), TO_LAST))
        y = emit(op.multiply(y, numbers(6)))
        return emit(op.permute_dims(y, TO_FIRST))

    before = program(body, (1, 2, 4, 4))
    passes = [MovePermutations(), FoldConstant(), FoldScaleToConv(), DeadCodeElimination()]
    after = apply(Sequential(passes), before)
    assert calls(after) == ["nn.conv2d", "add"]
    same_results(before, after, (1, 2, 4, 4), tolerance=1e-5)
