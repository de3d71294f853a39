"""Products of bytes: exact on all sets and by all methods, and the models that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import Shape, VirtualMachine
from relaxvm.compiler.build import build
from relaxvm.kernels import _table, integers
from relaxvm.kernels.cpu import SETS, has_amx

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from relaxvm.frontend.onnx import from_onnx  # noqa: E402

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")

RANGES = ((-128, 127), (-115, 140), (0, 255), (-64, 63))
"""Of weights less their zero point."""


def methods(kernel: str) -> list[tuple[str, str]]:
    """The implementations of a kernel that this processor has, with their sets."""
    return [(which, row[0]) for which in SETS for row in _table.rows(which) if row[1] == kernel]


def by_method(which: str, method: str) -> Callable[..., bool]:
    """A method by itself, which answers whether it has taken a case."""
    refused: list[Any] = []
    run = _table.DispatchedKernel(lambda *args: refused.append(args), (method,), None, which)

    def call(*args: Any) -> bool:
        refused.clear()
        run(*args)
        return not refused

    return call


_CHOOSY = ("integers.amx_linear", "integers.amx_conv2d", "integers.vnni_depthwise")
_CPU_INFO = Path("/proc/cpuinfo")


def is_lacking(method: str) -> bool:
    """Whether the processor may lack what a method needs beyond the instructions of its set."""
    if "vnni" in method:
        return not _CPU_INFO.exists() or "avx512_vnni" not in _CPU_INFO.read_text()
    return "amx" in method and not has_amx()


def need_some(taken: int, of: int, method: str) -> None:
    """All cases are taken, but those that are too small for AMX, and of windows that VNNI slides
    along, which may be dilated; or the processor lacks the instructions."""
    if not taken and is_lacking(method):
        pytest.skip("this processor lacks the instructions")
    assert taken == of or (method in _CHOOSY and taken > of // 4)


def extremes(rng: np.random.Generator, low: int, high: int, *shape: int) -> np.ndarray:
    """Integers of a range, often its ends."""
    drawn = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice([low, high], shape), drawn)


@pytest.mark.parametrize("weights", RANGES)
@pytest.mark.parametrize(("which", "method"), methods("nn.integer_linear_blocks"))
def test_linear_is_exact(which: str, method: str, weights: tuple[int, int]) -> None:
    """Beside 64-bit integers: extremes in all pairs, zero points at both ends, odd sizes."""
    run, taken = by_method(which, method), 0
    for seed, dtype in enumerate([np.uint8, np.int8] * 20):
        rng = np.random.default_rng(seed)
        rows, inputs, outputs = (int(n) for n in rng.integers(1, (40, 70, 70)))
        bounds = np.iinfo(dtype)
        weight = extremes(rng, *weights, inputs, outputs)
        x = extremes(rng, bounds.min, bounds.max, rows, inputs).astype(dtype)
        zero = np.array(rng.choice([bounds.min, bounds.max, 3]), dtype)
        bias = rng.integers(-9999, 9999, outputs).astype(np.int32)
        packed = integers.pack_integers(weight)
        assert packed is not None
        out = np.empty((rows, outputs), np.int32)
        args = (x, zero, packed.weight, packed.sums, packed.shift, bias, *[None] * 5, out)
        if run(*args):
            taken += 1
            np.testing.assert_array_equal(out, (x.astype(np.int64) - int(zero)) @ weight + bias)
    need_some(taken, 40, method)


@pytest.mark.parametrize(("which", "method"), methods("nn.integer_linear_blocks"))
def test_long_sums_are_exact(which: str, method: str) -> None:
    """65,536 products of the greatest numbers are nearly 2 ** 31."""
    weight = np.full((65536, 3), 127)
    weight[:, 1] = -128
    weight[::2, 2] = -128
    packed = integers.pack_integers(weight)
    assert packed is not None
    out = np.empty((9, 3), np.int32)
    x = np.full((9, 65536), 255, np.uint8)
    args = (x, None, packed.weight, packed.sums, packed.shift, *[None] * 6, out)
    need_some(by_method(which, method)(*args), 1, method)
    np.testing.assert_array_equal(out, x.astype(np.int64) @ weight)


@pytest.mark.parametrize("weights", RANGES)
@pytest.mark.parametrize(("which", "method"), methods("nn.integer_conv2d_blocks"))
def test_windows_are_exact(which: str, method: str, weights: tuple[int, int]) -> None:
    """Channels that fill a block have any values; padding is the zero point."""
    run, is_depthwise, taken = by_method(which, method), method.endswith("depthwise"), 0
    for seed, dtype in enumerate([np.uint8, np.int8] * 10):
        rng = np.random.default_rng(seed)
        outputs, inputs, tall, wide = (int(n) for n in rng.integers(1, (40, 40, 4, 4)))
        strides, dilation = ([int(n) for n in rng.integers(1, 3, 2)] for _ in range(2))
        pad = [int(n) for n in rng.integers(0, 3, 4)]
        if is_depthwise:
            outputs = inputs
        weight, bounds = extremes(rng, *weights, outputs, inputs, tall, wide), np.iinfo(dtype)
        if is_depthwise:  # each channel by itself
            weight *= np.eye(inputs, dtype=int)[:, :, None, None]
        x = extremes(rng, bounds.min, bounds.max, 2, -(-inputs // 16), 9, 8, 16).astype(dtype)
        zero = np.array(rng.choice([bounds.min, bounds.max, 3]), dtype)
        planes = x.transpose(0, 1, 4, 2, 3).reshape(2, -1, 9, 8)[:, :inputs].astype(np.int64)
        image = np.pad(planes - int(zero), [(0, 0), (0, 0), pad[::2], pad[1::2]])
        rows = (image.shape[2] - dilation[0] * (tall - 1) - 1) // strides[0] + 1
        columns = (image.shape[3] - dilation[1] * (wide - 1) - 1) // strides[1] + 1
        want = np.zeros((2, -(-outputs // 16) * 16, rows, columns), np.int64)
        for i in range(tall):
            for j in range(wide):
                top, left = i * dilation[0], j * dilation[1]
                part = image[:, :, top:, left:][:, :, :: strides[0], :: strides[1]]
                want[:, :outputs] += np.einsum(
                    "bchw,oc->bohw", part[:, :, :rows, :columns], weight[:, :, i, j]
                )
        packed = integers.pack_integer_windows(weight)
        if is_depthwise:
            own = weight[np.arange(inputs), np.arange(inputs)][:, None]
            packed = integers.pack_integer_depthwise(own)
        assert packed is not None
        out = np.empty((2, want.shape[1] // 16, rows, columns, 16), np.int32)
        if not run(x, zero, packed.weight, packed.sums, packed.shift, Shape(strides), Shape(pad),
                   Shape(dilation), *[None] * 6, out):  # fmt: skip
            continue
        taken += 1
        found = out.transpose(0, 1, 4, 2, 3).reshape(want.shape)
        np.testing.assert_array_equal(found, want)
    if method == "integers.vnni_depthwise" and weights[1] > 127:
        assert taken == 0  # weights of nine bits
    else:
        need_some(taken, 20, method)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("which", "method"), methods("nn.integer_conv2d_blocks"))
def test_wide_windows_are_exact(which: str, method: str, dtype: Any) -> None:
    """Windows of up to nine pixels, steps of up to four, more padding than image; narrow lines."""
    run, is_depthwise, taken = by_method(which, method), method.endswith("depthwise"), 0
    cases = [(wide, step) for wide in (1, 3, 4, 5, 8, 9) for step in (1, 2, 3, 4)]
    for seed, (wide, step) in enumerate(cases):
        rng = np.random.default_rng(seed)
        channels, pad = (int(n) for n in rng.integers(1, (20, 9)))
        columns, bounds = int(rng.integers(max(1, wide - 2 * pad), 30)), np.iinfo(dtype)
        weight = extremes(rng, -128, 127, channels, 1 if is_depthwise else channels, 3, wide)
        x = extremes(rng, bounds.min, bounds.max, 1, -(-channels // 16), 5, columns, 16)
        x, zero = x.astype(dtype), np.array(rng.choice([bounds.min, bounds.max, 3]), dtype)
        plane = x.transpose(0, 1, 4, 2, 3).reshape(-1, 5, columns)[:channels].astype(np.int64)
        image = np.pad(plane - int(zero), [(0, 0), (1, 1), (pad, pad)])
        windows = np.lib.stride_tricks.sliding_window_view(image, (3, wide), (1, 2))[:, :, ::step]
        pack = integers.pack_integer_depthwise if is_depthwise else integers.pack_integer_windows
        packed = pack(weight)
        assert packed is not None
        product = "chwij,ckij->chw" if is_depthwise else "chwij,ocij->ohw"
        want = np.einsum(product, windows, weight)
        out = np.empty((1, x.shape[1], *want.shape[1:], 16), np.int32)
        if not run(x, zero, packed.weight, packed.sums, packed.shift, Shape([1, step]),
                   Shape([1, pad, 1, pad]), Shape([1, 1]), *[None] * 6, out):  # fmt: skip
            continue
        taken += 1
        found = out.transpose(0, 1, 4, 2, 3).reshape(-1, *want.shape[1:])[:channels]
        np.testing.assert_array_equal(found, want, err_msg=f"{wide} {step}")
    need_some(taken, len(cases), method)


FACTORS: dict[str, list[float]] = {
    "below one": [1e-3, 0.5, 2e-5, np.nextafter(np.float32(1), np.float32(0))],
    "of ties": [0.5, 0.25, 0.125],
    "great": [1e-3, 1.0, 3e5, -2.5],
    "beyond numbers": [1e-3, np.inf, np.nan, 1e38],
}


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize(
    ("which", "method"),
    methods("nn.integer_linear_blocks") + methods("nn.integer_conv2d_blocks"),
)
def test_sums_become_bytes(which: str, method: str, factors: str) -> None:
    """Rounded to the even neighbour and saturated, beside numpy; NaN is 0."""
    run, taken = by_method(which, method), 0
    is_linear, is_depthwise = "linear" in method, method.endswith("depthwise")
    cases = [(rows, to, more) for rows in (8, 9, 23, 40) for to in (np.uint8, np.int8)
             for more in (False, True)]  # fmt: skip
    for seed, (rows, to, has_more) in enumerate(cases):
        rng, bounds = np.random.default_rng(seed), np.iinfo(to)
        weight = extremes(rng, -3, 3, 32, 32) * (np.eye(32, dtype=int) if is_depthwise else 1)
        x = rng.integers(0, 256, (rows, 32)).astype(np.uint8)
        factor = rng.choice(FACTORS[factors], 32).astype(np.float32)
        more = rng.standard_normal(32).astype(np.float32) * 20 if has_more else None
        bias = rng.integers(-99, 99, 32).astype(np.int32)
        zero = np.array(rng.choice([bounds.min, bounds.max, 0, 3]), to)
        with np.errstate(all="ignore"):
            real = (x.astype(np.int32) @ weight.astype(np.int32) + bias).astype(np.float32) * factor
            real = real if more is None else real + more
            whole = np.clip(np.rint(real) + np.float32(zero), bounds.min, bounds.max)
        want = np.where(np.isnan(real), 0, whole).astype(to)
        if is_linear:
            packed = integers.pack_integers(weight)
        elif is_depthwise:
            packed = integers.pack_integer_depthwise(np.diag(weight)[:, None, None, None])
        else:
            packed = integers.pack_integer_windows(weight.T[:, :, None, None])
        assert packed is not None
        operands = packed.weight, packed.sums, packed.shift
        afterwards = bias, factor, more, None, None, zero
        if is_linear:
            found = np.empty((rows, 32), to)
            is_taken = run(x, None, *operands, *afterwards, found)
        else:
            image = np.ascontiguousarray(x.reshape(rows, 2, 16).swapaxes(0, 1)[None, :, None])
            out = np.empty((1, 2, 1, rows, 16), to)
            is_taken = run(image, None, *operands, Shape([1, 1]), Shape([0] * 4), Shape([1, 1]),
                           *afterwards, out)  # fmt: skip
            found = out[0, :, 0].swapaxes(0, 1).reshape(rows, 32)
        taken += is_taken
        if is_taken:
            np.testing.assert_array_equal(found, want, err_msg=f"{rows} {to} {has_more}")
    need_some(taken, len(cases), method)


def test_weights_of_more_than_256_numbers_are_not_packed() -> None:
    assert integers.pack_integers(np.array([[-128, 128]])) is None
    assert integers.pack_integers(np.array([[-129, 0]])) is not None
    assert integers.pack_integers(np.array([[256, 0]])) is None  # 0 is among them


# Models

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8
rng = np.random.default_rng(7)


def model(nodes: list[Any], inits: dict[str, Any], shape: list[Any], of: int = FLOAT) -> Any:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", of, shape)],
        [helper.make_tensor_value_info("y", helper.TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(value, name) for name, value in inits.items()],
    )  # fmt: skip
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    del found.graph.output[:]
    found.graph.output.append(helper.make_empty_tensor_value_info("y"))
    return found


def node(kind: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attrs)


def number(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def drawn(dtype: Any, *shape: int) -> np.ndarray:
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


DYNAMIC = [
    node("Cast", "i", "f", to=FLOAT), node("Mul", "s ws", "fs"), node("Mul", "f fs", "y0"),
    node("Add", "y0 b", "y1"), node("Relu", "y1", "y"),
]  # fmt: skip
"""What follows a product of a tensor that is quantized at run time."""

PER_CHANNEL = rng.random(40).astype(np.float32) / 300 + np.float32(1e-4)

MODELS: dict[str, tuple[Any, np.ndarray, list[str]]] = {
    "dynamic matmul": (
        model(
            [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z wz", "i"),
             *DYNAMIC],
            {"w": drawn(np.uint8, 256, 40), "wz": number(120, np.uint8), "ws": number(0.01),
             "b": rng.standard_normal(40).astype(np.float32)}, ["n", 256],
        ),
        rng.standard_normal((5, 256)).astype(np.float32),
        ["quantization_range", "quantize_bytes", "nn.integer_linear_blocks"],
    ),
    "dynamic matmul of one output": (
        model(
            [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z wz", "i"),
             *DYNAMIC],
            {"w": drawn(np.uint8, 256, 1), "wz": number(120, np.uint8), "ws": number(0.01),
             "b": rng.standard_normal(1).astype(np.float32)}, ["n", 256],
        ),
        rng.standard_normal((5, 256)).astype(np.float32),
        ["quantization_range", "quantize_bytes", "nn.integer_linear_blocks"],
    ),
    "dynamic convolution": (
        model(
            [node("DynamicQuantizeLinear", "x", "q s z"),
             node("ConvInteger", "q w z wz", "i", pads=[1, 1, 1, 1], strides=[2, 1]), *DYNAMIC],
            {"w": drawn(np.uint8, 40, 24, 3, 3), "wz": number(120, np.uint8), "ws": number(0.01),
             "b": rng.standard_normal((1, 40, 1, 1)).astype(np.float32)}, ["n", 24, 9, "w"],
        ),
        rng.standard_normal((2, 24, 9, 8)).astype(np.float32),
        ["quantization_range", "quantize_bytes", "nn.to_blocks", "nn.integer_conv2d_blocks",
         "nn.from_blocks"],
    ),
    "QLinearMatMul": (
        model(
            [node("QLinearMatMul", "x s z w ws wz ys yz", "y")],
            {"s": number(0.02), "z": number(9, np.int8), "w": drawn(np.int8, 256, 40),
             "ws": PER_CHANNEL, "wz": np.zeros(40, np.int8), "ys": number(0.2),
             "yz": number(-5, np.int8)}, [3, 256], TensorProto.INT8,
        ),
        drawn(np.int8, 3, 256),
        ["nn.integer_linear_blocks"],
    ),
    "QLinearConv": (
        model(
            [node("QLinearConv", "x s z w ws wz ys yz b", "q", pads=[1, 0, 1, 2]),
             node("QLinearConv", "q ys yz v ws vz ys yz", "y", dilations=[2, 1])],
            {"s": number(0.02), "z": number(130, np.uint8), "w": drawn(np.int8, 40, 24, 3, 3),
             "ws": PER_CHANNEL, "wz": np.zeros(40, np.int8), "ys": number(0.3),
             "yz": number(100, np.uint8), "b": rng.integers(-9999, 9999, 40).astype(np.int32),
             "v": drawn(np.int8, 40, 40, 3, 1), "vz": np.zeros(40, np.int8)},
            [2, 24, 9, 8], UINT8,
        ),
        drawn(np.uint8, 2, 24, 9, 8),
        ["nn.to_blocks", "nn.integer_conv2d_blocks", "nn.integer_conv2d_blocks",
         "nn.from_blocks"],
    ),
}  # fmt: skip


def kernels_of(vm: VirtualMachine) -> list[str]:
    text = str(vm["main"].translated).partition("fallbacks:")[0]
    return [part.split(":")[0].split("]")[0] for part in text.split("f[relaxvm.kernel.")[1:]]


def compiled(program: Any) -> VirtualMachine:
    return VirtualMachine(build(from_onnx(program)))


@pytest.mark.parametrize("name", MODELS)
def test_models_are_exactly_as_onnx_has_them(name: str) -> None:
    program, x, kernels = MODELS[name]
    (want,) = ReferenceEvaluator(program).run(None, {"x": x})
    vm = compiled(program)
    np.testing.assert_array_equal(vm["main"](x), want)
    assert kernels_of(vm) == kernels


def quantized_pair(name: str, dtype: Any, scale: float, zero: int) -> tuple[list[Any], Any]:
    nodes = [node("QuantizeLinear", f"{name} {name}s {name}z", f"{name}q"),
             node("DequantizeLinear", f"{name}q {name}s {name}z", f"{name}d")]  # fmt: skip
    return nodes, {f"{name}s": number(scale), f"{name}z": number(zero, dtype)}


@pytest.mark.parametrize(("zero", "relu"), [(-7, False), (-7, True), (-128, True)])
@pytest.mark.parametrize("kind", ["MatMul", "Conv"])
def test_pairs_of_quantization_are_folded(kind: str, zero: int, relu: bool) -> None:
    """Floats that were quantized, and weights that were, are multiplied as integers; results are
    quantized by the same call.  They differ from those of floats by rounding."""
    is_conv = kind == "Conv"
    before, of_x = quantized_pair("x", np.uint8, 0.02, 120)
    after, of_m = quantized_pair("m", np.int8, 0.3, zero)
    weight = drawn(np.int8, 40, 24, 3, 3) if is_conv else drawn(np.int8, 256, 40)
    nodes = [*before, node("DequantizeLinear", "w ws wz", "wd", axis=0 if is_conv else 1),
             node(kind, "xd wd bias" if is_conv else "xd wd", "sum"),
             node("Relu" if relu else "Identity", "sum", "m"), *after[:1],
             node("Identity", "mq", "y")]  # fmt: skip
    inits = {**of_x, **of_m, "w": weight, "ws": PER_CHANNEL, "wz": np.zeros(40, np.int8)}
    if is_conv:
        inits["bias"] = rng.standard_normal(40).astype(np.float32)
    shape = [2, 24, 9, 8] if is_conv else [6, 256]
    x = rng.standard_normal(shape).astype(np.float32)
    program = model(nodes, inits, shape)
    (want,) = ReferenceEvaluator(program).run(None, {"x": x})
    vm = compiled(program)
    got = vm["main"](x)
    assert got.dtype == want.dtype
    differences = np.abs(got.astype(int) - want.astype(int))
    assert differences.max() <= 1
    assert (differences > 0).mean() < 0.01
    names = kernels_of(vm)
    if is_conv:
        assert names == ["quantize_bytes", "nn.to_blocks", "nn.integer_conv2d_blocks",
                         "nn.from_blocks"]  # fmt: skip
    else:
        assert names == ["quantize_bytes", "nn.integer_linear_blocks"]


def test_sums_that_may_not_fit_are_left_to_floats() -> None:
    """The kernels add up in 32 bits; what may need more is computed in float64, as before."""
    length = 70000
    inits = {"w": np.full((length, 2), 255, np.uint8), "zz": number(0, np.uint8)}
    program = model([node("MatMulInteger", "x w zz zz", "y")], inits, [1, length], UINT8)
    x = np.full((1, length), 255, np.uint8)
    vm = compiled(program)
    assert "nn.integer_linear_blocks" not in kernels_of(vm)
    wrapped = (255 * 255 * length + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(vm["main"](x), np.full((1, 2), wrapped, np.int32))
