"""Conversions between data types, and quantized operators, of ONNX models."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import relaxvm
from relaxvm import VirtualMachine, build, load
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(5)


def code(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def inputs_of(**arrays: Any) -> dict[str, tuple[int, Any]]:
    return {name: (code(array.dtype), list(array.shape)) for name, array in arrays.items()}


def check(
    nodes: list[Any], arrays: dict[str, Any], constants: dict[str, Any] | None = None,
    opset: int = 25, outputs: tuple[str, ...] = ("y",), rtol: float = 1e-6,
) -> Any:  # fmt: skip
    """Run a model by relaxvm and by the reference evaluator of onnx, and compare."""
    model = model_of(nodes, inputs_of(**arrays), list(outputs), constants, opset, ir_version=13)
    want = ReferenceEvaluator(model).run(None, arrays)
    got = run(model, *arrays.values())
    got = got if isinstance(got, tuple) else (got,)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), np.asarray(b).astype(np.float64), rtol)
    return got[0]


# Conversions

SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.4999, 0.5, 1.5, 2.5, 3.4, -3.6, 7.5, 100, 239, 241, 447, 449, 463, 465,
     57000, 57345, 61440, 1e5, -1e5, 1e-3, 2e-9, np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
)
@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_to_float8(source: str, name: str, saturate: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    with np.errstate(over="ignore"):
        x = SPECIAL.astype(source)
    cast = node("Cast", "x", "y", to=code(dtype), saturate=saturate)
    y = run(model_of([cast], inputs_of(x=x), ["y"], opset=25), x).astype(np.float64)
    most = float(ml_dtypes.finfo(dtype).max)
    bounded = np.clip(x, x.dtype.type(-most), x.dtype.type(most)) if saturate else x
    np.testing.assert_array_equal(y, bounded.astype(dtype).astype(np.float64))
    assert np.isnan(y[-1])
    overflow = np.inf if name == "float8_e5m2" else np.nan
    assert y[-3] == most if saturate else np.array_equal(y[-3], overflow, equal_nan=True)


def test_integers_and_narrow_floats_become_float8_saturated() -> None:
    for dtype in (np.int16, ml_dtypes.float8_e5m2):
        x = np.array([3, -900, 1000], dtype)
        cast = node("Cast", "x", "y", to=TensorProto.FLOAT8E4M3FN)
        y = run(model_of([cast], inputs_of(x=x), ["y"]), x)
        assert y.dtype == ml_dtypes.float8_e4m3fn
        assert y.astype(float).tolist() == [3, -448, 448]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_to_powers_of_two(mode: str, saturate: int) -> None:
    numbers = [1, 1.2, 1.5, 1.7, 3, -3, 3e38, 1e-45, 1e-39, 0, 2**-126, np.inf, np.nan]
    x = np.array(numbers, np.float32)
    cast = node("Cast", "x", "y", to=TensorProto.FLOAT8E8M0, saturate=saturate, round_mode=mode)
    y = run(model_of([cast], inputs_of(x=x), ["y"], opset=25), x)
    want = onnx.numpy_helper.to_float8e8m0(x, bool(saturate), mode)
    assert y.view(np.uint8).tolist() == want.view(np.uint8).tolist()


@pytest.mark.parametrize(
    "name", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn", "bfloat16", "float8_e8m0fnu"]
)
def test_casts_there_and_back(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    count = 4 if "2" in name[-2:] else 16
    bits = np.arange(count, dtype=np.uint8)
    x = np.array([0, 1, 2, 4, 8] if name[0] in "bf" else bits, np.float32)
    if name.startswith("int"):
        x -= count // 2
    if name == "float4_e2m1fn":
        x = np.array([0, 0.5, -1, 1.5, 2, 3, -4, 6], np.float32)
    if name == "float8_e8m0fnu":
        x = x[1:]
    nodes = [node("Cast", "x", "n", to=code(dtype)), node("CastLike", "n x", "y")]
    assert run(model_of(nodes, inputs_of(x=x), ["y"], opset=25), x).tolist() == x.tolist()
    narrow = run(model_of(nodes[:1], inputs_of(x=x), ["n"], opset=25), x)
    assert narrow.dtype == dtype


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
def test_packed_constants(name: str, tmp_path: Any) -> None:
    """Of five elements: the last byte is not full.  The constant goes through a file."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    values = {"int4": [-8, 7, 1, 0, -1], "uint4": [15, 0, 9, 3, 1], "int2": [-2, 1, 0, -1, 1],
              "uint2": [3, 0, 2, 1, 3], "float4_e2m1fn": [6, -0.5, 1.5, 0, -6]}[name]  # fmt: skip
    constant = np.array(values, np.float32).astype(dtype)
    nodes = [node("Cast", "w", "f", to=FLOAT), node("Add", "f x", "y")]
    x = np.zeros(5, np.float32)
    model = model_of(nodes, inputs_of(x=x), ["y"], {"w": constant}, 25)
    assert len(model.graph.initializer[0].raw_data) == (2 if "2" in name[-2:] else 3)
    assert run(model, x).tolist() == values
    build(from_onnx(model)).save(tmp_path / "model.rvm")
    assert VirtualMachine(load(tmp_path / "model.rvm"))["main"](x).tolist() == values


def test_bits_as_another_data_type() -> None:
    x = np.array([1.5, -0.0, np.inf], np.float32)
    model, wrong = [
        model_of([node("BitCast", "x", "y", to=to)], inputs_of(x=x), ["y"], opset=26)
        for to in (TensorProto.INT32, INT64)
    ]
    assert run(model, x).tolist() == x.view(np.int32).tolist()
    message = "to: expected a data type of 4 bytes, got int64, which has 8"
    with pytest.raises(RelaxVMError, match=message):
        from_onnx(wrong)


@pytest.mark.parametrize(
    ("cast", "message"),
    [
        (node("Cast", "x", "y", to=TensorProto.FLOAT8E8M0, round_mode="even"),
         "round_mode: expected up, down or nearest, got 'even'"),
        (node("Cast", "x", "y", to=TensorProto.COMPLEX64),
         "conversions to complex64 are not supported"),
        (node("Cast", "x", "y", to=99), "there is no data type 99"),
    ],
)  # fmt: skip
def test_casts_that_are_refused(cast: Any, message: str) -> None:
    with pytest.raises(RelaxVMError, match=re.escape(message)):
        from_onnx(model_of([cast], {"x": (FLOAT, [2])}, ["y"], opset=25))


# Quantization


@pytest.mark.parametrize(
    "name", ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"]
)
@pytest.mark.parametrize("form", ["tensor", "axis", "blocks"])
@pytest.mark.parametrize("constant", [True, False])
def test_quantize_and_dequantize(name: str, form: str, constant: bool) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name)) if name[-1] in "24" else np.dtype(name)
    x = (RNG.standard_normal((3, 5, 2)) * 9).astype(np.float32)
    shape, settings = {
        "tensor": ((), {}),
        "axis": ((5,), {"axis": -2}),
        "blocks": ((3, 3, 2), {"axis": 1, "block_size": 2}),
    }[form]
    scale = RNG.uniform(0.1, 3, shape).astype(np.float32)
    zero = RNG.integers(0, 2, shape).astype(dtype)
    nodes = [node("QuantizeLinear", "x s z", "q", **settings),
             node("DequantizeLinear", "q s z", "y", **settings)]  # fmt: skip
    parameters = {"s": scale, "z": zero}
    if constant:
        check(nodes, {"x": x}, parameters, outputs=("q", "y"))
    else:
        check(nodes, {"x": x, **parameters}, outputs=("q", "y"))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_quantize_to_narrow_floats(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.array([[1, 3, 1e4], [-0.2, 700, -5]], np.float32)
    nodes = [node("QuantizeLinear", "x s", "q", axis=0, output_dtype=code(dtype)),
             node("DequantizeLinear", "q s", "y", axis=0)]  # fmt: skip
    check(nodes, {"x": x}, {"s": np.array([2, 0.5], np.float32)}, outputs=("q", "y"))


def test_quantize_of_other_floats() -> None:
    x = (RNG.standard_normal((4, 6)) * 9).astype(np.float16)
    scale = np.array(0.25, np.float16)
    check([node("QuantizeLinear", "x s z", "y")], {"x": x, "s": scale},
          {"z": np.array(7, np.uint8)})  # fmt: skip
    check([node("QuantizeLinear", "x s z", "y", precision=FLOAT)], {"x": x, "s": scale},
          {"z": np.array(7, np.uint8)})  # fmt: skip
    q = RNG.integers(-99, 99, (4, 6)).astype(np.int8)
    y = check([node("DequantizeLinear", "q s", "y", output_dtype=FLOAT)], {"q": q, "s": scale})
    assert y.dtype == np.float32


def test_dequantize_large_integers() -> None:
    """float32 does not hold them, but their distance from the zero point."""
    q = np.array([2**30 + 1, 2**30 - 3], np.int32)
    nodes = [node("DequantizeLinear", "q s z", "y")]
    model = model_of(nodes, inputs_of(q=q), ["y"],
                     {"s": np.array(2, np.float32), "z": np.array(2**30, np.int32)})  # fmt: skip
    assert run(model, q).tolist() == [2, -6]


@pytest.mark.parametrize("name", ["int8", "uint8"])
@pytest.mark.parametrize("opset", [19, 25])
def test_quantize_a_number(name: str, opset: int) -> None:
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    parameters = {"s": np.array(0.5, np.float32), "z": np.array(3, name)}
    for number in (1.3, -300, 300):
        x = np.array(number, np.float32)
        check(nodes, {"x": x}, parameters, opset, outputs=("q", "y"))


def test_quantize_with_a_symbolic_batch() -> None:
    nodes = [node("QuantizeLinear", "x s z", "q", axis=1),
             node("DequantizeLinear", "q s z", "y", axis=1)]  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"],
                     {"s": np.array([1, 2, 4], np.float32), "z": np.zeros(3, np.int8)})  # fmt: skip
    vm = VirtualMachine(build(from_onnx(model)))
    for n in (1, 4):
        x = np.full((n, 3), 5, np.float32)
        assert vm["main"](x).tolist() == [[5, 4, 4]] * n


@pytest.mark.parametrize("low", [-3, 1, 0])
def test_dynamic_quantization(low: float) -> None:
    x = RNG.uniform(low, low + 4, (5, 7)).astype(np.float32)
    nodes = [node("DynamicQuantizeLinear", "x", "y s z")]
    check(nodes, {"x": x}, outputs=("y", "s", "z"))


def test_dynamic_quantization_of_zeros() -> None:
    x = np.zeros((2, 3), np.float32)
    model = model_of([node("DynamicQuantizeLinear", "x", "y s z")], inputs_of(x=x), ["y", "s", "z"])
    y, scale, zero = run(model, x)
    assert (y.tolist(), scale, zero) == ([[0] * 3] * 2, 1, 0)


@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8")])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("depth", [5, 3000])
def test_products_of_integers(dtypes: tuple[str, str], constant: bool, depth: int) -> None:
    """The sums of the long ones need float64."""
    a = RNG.integers(*_range(dtypes[0]), (2, 3, depth)).astype(dtypes[0])
    b = RNG.integers(*_range(dtypes[1]), (depth, 4)).astype(dtypes[1])
    zeros = {"za": np.array(7, dtypes[0]), "zb": np.array([1, 0, 5, 2], dtypes[1])}
    nodes = [node("MatMulInteger", "a b za zb", "y")]
    arrays, constants = {"a": a, **zeros, "b": b}, {}
    if constant:
        arrays, constants = {"a": a}, {"b": b, **zeros}
    check(nodes, arrays, constants, rtol=0)


def _range(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return info.min, info.max + 1


def test_products_of_integers_whose_zero_points_differ_by_row() -> None:
    a = RNG.integers(0, 256, (3, 6)).astype(np.uint8)
    b = RNG.integers(0, 256, (6, 2)).astype(np.uint8)
    zero = np.array([3, 200, 0], np.uint8)
    model = model_of([node("MatMulInteger", "a b z", "y")], inputs_of(a=a, b=b, z=zero), ["y"])
    want = (a.astype(int) - zero[:, None]) @ b.astype(int)
    assert run(model, a, b, zero).tolist() == want.tolist()


def test_integer_convolutions_of_images_are_exact() -> None:
    """Of a size that others would be computed for by Winograd's algorithm, which rounds."""
    x = RNG.integers(0, 256, (1, 32, 20, 20)).astype(np.uint8)
    w = RNG.integers(0, 256, (32, 32, 3, 3)).astype(np.uint8)
    constants = {"w": w, "xz": np.uint8(120), "wz": np.uint8(131)}
    check([node("ConvInteger", "x w xz wz", "y", pads=[1, 1, 1, 1])], {"x": x}, constants, rtol=0)


@pytest.mark.parametrize("constant", [True, False])
def test_convolutions_of_integers(constant: bool) -> None:
    x = RNG.integers(0, 256, (1, 4, 7, 6)).astype(np.uint8)
    w = RNG.integers(-128, 128, (6, 2, 3, 3)).astype(np.int8)
    arrays, constants = {"x": x, "z": np.array(9, np.uint8)}, {"w": w}
    if not constant:
        arrays, constants = {**arrays, **constants}, {}
    nodes = [node("ConvInteger", "x w z", "y", pads=[1, 1, 1, 1], strides=[2, 1], group=2)]
    check(nodes, arrays, constants, rtol=0)


@pytest.mark.parametrize("channels", [False, True])
def test_quantized_convolutions(channels: bool) -> None:
    x = RNG.integers(0, 256, (2, 3, 7, 7)).astype(np.uint8)
    w = RNG.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    w_scale = RNG.uniform(0.001, 0.01, 4).astype(np.float32) if channels else np.float32(0.005)
    bias = RNG.integers(-900, 900, 4).astype(np.int32)
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "w": w, "ws": w_scale,
        "wz": np.zeros(4 if channels else (), np.int8), "ys": np.float32(0.05), "yz": np.uint8(128),
        "b": bias,
    }  # fmt: skip
    model = model_of([node("QLinearConv", "x xs xz w ws wz ys yz b", "y")], inputs_of(x=x), ["y"],
                     constants)  # fmt: skip
    got = run(model, x)
    floats = x.astype(np.float64) - 120
    windows = np.lib.stride_tricks.sliding_window_view(floats, (3, 3), (2, 3))
    sums = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.float64)) + bias[:, None, None]
    factor = np.float64(0.02) / 0.05 * np.asarray(w_scale, np.float64).reshape(-1, 1, 1)
    want = np.clip(np.rint(sums * factor) + 128, 0, 255)
    assert got.dtype == np.uint8
    assert np.abs(got - want).max() <= 1  # the factor is rounded to float32
    assert (got == want).mean() > 0.99


@pytest.mark.parametrize("function", [None, "Relu"])
def test_a_convolution_with_a_bias_between_quantizations_by_numbers(function: str | None) -> None:
    """The factor of the sums is a tensor without axes."""
    x = RNG.integers(-128, 128, (1, 3, 6, 5)).astype(np.int8)
    w = RNG.integers(-128, 128, (2, 3, 3, 3)).astype(np.int8)
    bias = RNG.integers(-900, 900, 2).astype(np.int32)
    constants = {
        "xs": np.float32(0.5), "xz": np.int8(3), "w": w, "ws": np.float32(0.25), "wz": np.int8(0),
        "b": bias, "bs": np.float32(0.125), "bz": np.int32(0), "ys": np.float32(4),
        "yz": np.int8(-5),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "x xs xz", "xf"), node("DequantizeLinear", "w ws wz", "wf"),
        node("DequantizeLinear", "b bs bz", "bf"), node("Conv", "xf wf bf", "sum"),
        *([] if function is None else [node(function, "sum", "more")]),
        node("QuantizeLinear", f"{'sum' if function is None else 'more'} ys yz", "y"),
    ]  # fmt: skip
    model = model_of(nodes, inputs_of(x=x), ["y"], constants, 17)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 3, (3, 3), (2, 3))
    sums = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.int64)) + bias[:, None, None]
    if function is not None:
        sums = np.maximum(sums, 0)
    want = np.clip(np.rint(sums / 32) - 5, -128, 127)  # powers of two are exact
    got = VirtualMachine(relaxvm.compile(model)).main(x)
    assert got.dtype == np.int8
    assert got.tolist() == want.tolist()


def test_quantized_products() -> None:
    a = RNG.integers(0, 256, (2, 5, 8)).astype(np.uint8)
    b = RNG.integers(0, 256, (8, 3)).astype(np.uint8)
    constants = {
        "as": np.float32(0.0066), "az": np.uint8(113), "b": b, "bs": np.float32(0.00705),
        "bz": np.uint8(114), "ys": np.float32(0.0107), "yz": np.uint8(118),
    }  # fmt: skip
    check([node("QLinearMatMul", "a as az b bs bz ys yz", "y")], {"a": a}, constants, rtol=0)


@pytest.mark.parametrize(
    ("nodes", "constants", "message"),
    [
        ([node("QuantizeLinear", "x s", "y", axis=3)], {"s": np.ones(3, np.float32)},
         "axis: expected an axis of a tensor of rank 2, got 3"),
        ([node("QuantizeLinear", "x s", "y", axis=0, block_size=2)],
         {"s": np.ones((3, 3), np.float32)}, "y_scale: expected 1 blocks of 2 for length 2, got 3"),
        ([node("QuantizeLinear", "x s", "y", axis=0, block_size=-1)],
         {"s": np.ones((2, 3), np.float32)}, "block_size: expected at least 0, got -1"),
        ([node("QuantizeLinear", "x s", "y", output_dtype=INT64)], {"s": np.ones((), np.float32)},
         "quantization to int64 is not supported"),
        ([node("QuantizeLinear", "x s z", "y", output_dtype=TensorProto.UINT8)],
         {"s": np.ones((), np.float32), "z": np.zeros((), np.int8)},
         "output_dtype: expected int8, as y_zero_point has, got uint8"),
        ([node("Cast", "x", "q", to=TensorProto.INT8), node("DequantizeLinear", "q s z", "y")],
         {"s": np.ones((), np.float32), "z": np.zeros((), np.uint8)},
         "x_zero_point: expected int8, as x has, got uint8"),
    ],
)  # fmt: skip
def test_quantization_that_is_refused(nodes: Any, constants: Any, message: str) -> None:
    with pytest.raises(RelaxVMError, match=re.escape(message)):
        from_onnx(model_of(nodes, {"x": (FLOAT, [2, 3])}, ["y"], constants, 25))
