"""The kernels compared with TVM's, which legalizes and builds each operator for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX
from relaxvm.values import Shape

from .kernel_examples import counts, normal, positive, seeded  # noqa: F401

tvm = pytest.importorskip("tvm")
relax = pytest.importorskip("tvm.relax")
op = relax.op


def by_tvm(build: Callable[..., Any], *inputs: np.ndarray) -> list[np.ndarray]:
    """Return TVM's results of an operator."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(inputs)
    ]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(build(*params)))
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm"), tvm.cpu())
    found = vm["main"](*[tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs])
    return [found.numpy()] if hasattr(found, "numpy") else [each.numpy() for each in found]


def agree(
    name: str, build: Callable[..., Any], inputs: Any, *attributes: Any, results: int | None = None
) -> None:
    """Compare the first `results` results of a kernel with those of TVM's operator: data type,
    shape, elements."""
    wanted = by_tvm(build, *inputs)[:results]
    outs = [np.full(want.shape, 77).astype(want.dtype) for want in wanted]
    assert relaxvm.get_func(PREFIX + name)(*inputs, *attributes, *outs) is None
    for out, want in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)


def floats(*shape: int) -> np.ndarray:
    return normal(*shape, dtype=np.float32)


def fractions(*shape: int) -> np.ndarray:
    return positive(*shape).astype(np.float32)


@pytest.mark.parametrize(
    "name",
    ["abs", "negative", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "floor", "ceil",
     "round", "trunc", "sign", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh",
     "atanh", "square", "isnan", "isinf", "isfinite", "nn.relu", "nn.silu", "nn.gelu",
     "nn.gelu_tanh"],
)  # fmt: skip
def test_unary(name: str) -> None:
    build = getattr(op.nn if name.startswith("nn.") else op, name.removeprefix("nn."))
    agree(name, build, [fractions(40)])
    if name not in ("log", "sqrt", "rsqrt", "asin", "acos", "atanh"):
        agree(name, build, [floats(5, 8) * 3])
    if name in ("abs", "negative", "sign", "floor", "ceil", "round", "isnan"):
        agree(name, build, [counts(9, dtype=np.int32) - 5])


@pytest.mark.parametrize(
    "name",
    ["add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "maximum",
     "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"],
)  # fmt: skip
def test_binary(name: str) -> None:
    agree(name, getattr(op, name), [floats(4, 5), floats(5)])
    b = counts(5, dtype=np.int32) * np.array([1, -1, 1, -1, 1], np.int32)
    agree(name, getattr(op, name), [counts(4, 5, dtype=np.int32) - 4, b])


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise(name: str) -> None:
    agree(name, getattr(op, name), [counts(4, 5) - 4, counts(5)])
    flags = counts(4, 5) > 4
    agree(name, getattr(op, name), [flags, flags[::-1]])
    agree(name.replace("bitwise", "logical"), getattr(op, name.replace("bitwise", "logical")),
          [flags, flags[::-1]])  # fmt: skip


def test_power_and_clip() -> None:
    agree("power", op.power, [fractions(4, 5), floats(5)])
    for bounds in ((-1, 1), (1, -1)):
        agree("clip", lambda x, bounds=bounds: op.clip(x, *bounds), [floats(9) * 3], *bounds)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_an_axis(axis: int) -> None:
    x, ties = floats(2, 5, 3), counts(2, 5, 3, dtype=np.float32)
    agree("nn.softmax", lambda x: op.nn.softmax(x, axis), [x], axis)
    agree("nn.log_softmax", lambda x: op.nn.log_softmax(x, axis), [x], axis)
    agree("flip", lambda x: op.flip(x, axis), [x], axis)
    agree("repeat", lambda x: op.repeat(x, 3, axis), [x], 3, axis)
    agree("stack", lambda x, y: op.stack([x, y], axis), [x, x + 1], axis)
    agree("concat", lambda x, y: op.concat([x, y], axis), [x, x + 1], axis)
    for name in ("argmax", "argmin"):
        agree(name, lambda x, name=name: getattr(op, name)(x, axis), [ties], axis)
    for name in ("sum", "prod", "mean", "max", "min"):
        for keep in (False, True):
            agree(name, lambda x, name=name, keep=keep: getattr(op, name)(x, axis, keep), [x],
                  Shape([axis]))  # fmt: skip
    for flag in (False, True):
        agree("sort", lambda x, flag=flag: op.sort(x, axis, flag), [x], axis, flag)
        agree("argsort", lambda x, flag=flag: op.argsort(x, axis, flag), [ties], axis, flag)
        agree("cumsum", lambda x, flag=flag: op.cumsum(x, axis, None, flag), [x], axis, flag)
        agree("cumprod", lambda x, flag=flag: op.cumprod(x, axis, None, flag), [x], axis, flag)
        agree("topk", lambda x, flag=flag: op.topk(x, 2, axis, "both", flag), [ties],
              2, axis, "both", flag)  # fmt: skip


def test_without_an_axis() -> None:
    x = floats(2, 3, 4)
    agree("cumsum", op.cumsum, [x], None, False)
    agree("repeat", lambda x: op.repeat(x, 2), [x], 2, None)
    agree("argmax", lambda x: op.argmax(x, None, True), [x], None)
    agree("sum", op.sum, [x], None)
    agree("sum", lambda x: op.sum(x, []), [x], Shape())
    agree("sum", op.sum, [x > 0], None)


def test_movement() -> None:
    x = floats(2, 3, 4)
    agree("permute_dims", lambda x: op.permute_dims(x, [2, 0, 1]), [x], Shape([2, 0, 1]))
    agree("tile", lambda x: op.tile(x, (2, 1, 3, 1)), [x], Shape([2, 1, 3, 1]))
    agree("split", lambda x: op.split(x, 3, 2), [x], 3, 2)
    agree("split", lambda x: op.split(x, [1, 3], 2), [x], Shape([1, 3]), 2)
    agree("arange", lambda: op.arange(1, 8, 3), [], 1, 8, 3)
    agree("arange", lambda: op.arange(0.0, 1.0, 0.3), [], 0.0, 1.0, 0.3)
    slices = ([2, 0], [-1, 0], [-9, 1], [-2, 1])
    agree("strided_slice", lambda x: op.strided_slice(x, *slices), [x], *map(Shape, slices))
    width = [0, 1, 2, 1, 1, 3]
    for mode in ("constant", "reflect", "replicate", "circular"):
        agree("nn.pad", lambda x, mode=mode: op.nn.pad(x, width, mode, 2.5), [x],
              Shape(width), mode, 2.5)  # fmt: skip
    for mode in ("wrap", "clip", "nan"):
        agree("take", lambda x, i, mode=mode: op.take(x, i, 1, mode),
              [x, np.array([[0, 5], [-1, 2]])], 1, mode)  # fmt: skip


def test_products() -> None:
    agree("matmul", op.matmul, [floats(4), floats(2, 4, 3)])
    agree("matmul", op.matmul, [floats(2, 3, 4), floats(4)])
    octets = counts(3, 3, dtype=np.int8) * 12
    agree("matmul", lambda a, b: op.matmul(a, b, "int32"), [octets, octets])
    agree("einsum", lambda a, b: op.einsum((a, b), "ij,jk"), [floats(2, 3), floats(3, 4)], "ij,jk")
    inputs = [floats(2, 3, 4), floats(5, 4), floats(5)]
    agree("linear", lambda x, w, b: op.linear(x, w, b), inputs)


def test_norms_and_loss() -> None:
    x, v = floats(2, 3, 4), [floats(3), floats(3), floats(3), fractions(3)]
    for axes in ([2], [1, 2], [-1]):
        over = [x.shape[axis] for axis in axes]
        gamma, beta = floats(*over), floats(*over)
        agree("nn.layer_norm", lambda x, g, b, axes=axes: op.nn.layer_norm(x, g, b, axes, 1e-3),
              [x, gamma, beta], Shape(axes), 1e-3, True, True)  # fmt: skip
        agree("nn.rms_norm", lambda x, g, axes=axes: op.nn.rms_norm(x, g, axes, 1e-3), [x, gamma],
              Shape(axes), 1e-3)  # fmt: skip
    for flags in ((True, True), (True, False), (False, True)):
        agree("nn.batch_norm",
              lambda *a, flags=flags: op.nn.batch_norm(*a, 1, 1e-3, *flags, training=False),
              [x, *v], 1, 1e-3, *flags, results=1)  # fmt: skip
    for shape in ((3, 5), (5,)):
        agree("nn.cross_entropy_with_logits", op.nn.cross_entropy_with_logits,
              [floats(*shape), fractions(*shape)])  # fmt: skip


@pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(mask: str | None, scale: float | None) -> None:
    q, k, v = floats(2, 3, 2, 4), floats(2, 5, 2, 4), floats(2, 5, 2, 6)
    agree("nn.attention", lambda q, k, v: op.nn.attention(q, k, v, None, scale, mask), [q, k, v],
          None, scale, mask)  # fmt: skip
    agree("nn.attention_bias", lambda q, k, v, b: op.nn.attention(q, k, v, b, scale, mask),
          [q, k, v, floats(1, 2, 3, 5)], scale, mask)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_images(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, inputs, outputs = rng.integers(1, 4, 3).tolist()
    size, strides, dilation = (rng.integers(1, 4, 2).tolist() for _ in range(3))
    padding = rng.integers(0, 3, 4).tolist()
    image = [d * (k - 1) + 1 + int(rng.integers(0, 5)) for d, k in zip(dilation, size, strict=True)]
    x, weight = floats(2, groups * inputs, *image), floats(groups * outputs, inputs, *size)
    agree("nn.conv2d", lambda x, w: op.nn.conv2d(x, w, strides, padding, dilation, groups),
          [x, weight], *map(Shape, (strides, padding, dilation)), groups)  # fmt: skip
    agree("nn.conv1d",
          lambda x, w: op.nn.conv1d(x, w, strides[:1], padding[:2], dilation[:1], groups),
          [x[..., 0], weight[..., 0]],
          *map(Shape, (strides[:1], padding[:2], dilation[:1])), groups)  # fmt: skip
    padding = [min(p, k - 1) for p, k in zip(padding, size * 2, strict=True)]
    shapes = [*map(Shape, (size, strides, padding, dilation))]
    ceil_mode, include = rng.integers(0, 2, 2).astype(bool).tolist()
    agree("nn.max_pool2d",
          lambda x: op.nn.max_pool2d(x, size, strides, padding, dilation, ceil_mode), [x],
          *shapes, ceil_mode)  # fmt: skip
    agree("nn.avg_pool2d",
          lambda x: op.nn.avg_pool2d(x, size, strides, padding, dilation, ceil_mode, include), [x],
          *shapes, ceil_mode, include)  # fmt: skip
