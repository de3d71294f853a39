"""Operators of com.microsoft: the results are those of onnxruntime, stored in a file."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxvm
from relaxvm import VirtualMachine, build
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import OPERATORS, from_onnx
from relaxvm.kernels.cpu import SETS

from .kernel_methods import by_method
from .microsoft_cases import CASES, RESULTS, Case, model_of
from .onnx_suite import with_known


@pytest.fixture(scope="module")
def results() -> Any:
    return np.load(RESULTS)


@pytest.mark.parametrize("known", ["shapes", "ranks", "nothing"])
@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, known: str, results: Any) -> None:
    each = CASES[name]
    model = model_of(each)
    stated = model if known == "shapes" else with_known(model, known)
    vm = VirtualMachine(build(from_onnx(stated)))
    got = vm["main"](*[array for array in each.arrays.values() if array is not None])
    got = got if isinstance(got, tuple) else (got,)
    for i, found in zip(each.outputs, got, strict=True):
        want = results[f"{zlib.crc32(name.encode()):08x}_{i}"]
        assert found.dtype == want.dtype
        assert found.shape == want.shape
        if want.dtype.kind in "iu":
            assert np.abs(found.astype(int) - want).max() <= each.exact
        else:
            np.testing.assert_allclose(found, want, each.exact, each.exact)


def test_every_case_has_results(results: Any) -> None:
    keys = {f"{zlib.crc32(name.encode()):08x}_{i}" for name, each in CASES.items()
            for i in each.outputs}  # fmt: skip
    assert keys == set(results.files)


def changed(name: str, attributes: dict[str, Any] | None = None, **arrays: Any) -> Any:
    each = CASES[name]
    return model_of(
        each._replace(arrays={**each.arrays, **arrays},
                      attributes={**each.attributes, **(attributes or {})})
    )  # fmt: skip


F = np.ones((2, 3, 8), np.float32)
I32 = np.int32


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (changed("FusedConv", {"activation": "Mish"}), "activation: 'Mish' with 0 parameters"),
        (changed("MultiHeadAttention", {"num_heads": 3}), "query: expected 3 heads of equal size"),
        (changed("MultiHeadAttention", k=None), "packed ones are not supported"),
        (changed("Attention", {"qkv_hidden_sizes": [8, 8]}), "qkv_hidden_sizes: expected three"),
        (changed("Attention", {"do_rotary": 1}), "rotary positions and shared buffers"),
        (changed("GroupQueryAttention of a step", {"smooth_softmax": 1}),
         "smooth_softmax, head_sink"),
        (changed("GroupQueryAttention of a step", {"do_rotary": 1}),
         "do_rotary: expected cos_cache and sin_cache"),
        (changed("GroupQueryAttention of a step", pv=None), "expected past_key and past_value"),
        (changed("RotaryEmbedding", {"is_packed_batching": 1}),
         "is_packed_batching is not supported"),
        (changed("MatMulNBits of 4 bits", {"bits": 3}), "expected bits 2, 4 or 8, got 3"),
        (changed("MatMulNBits of 4 bits", {"K": 48}), "A: expected 48 columns, got"),
        (changed("MatMulNBits of 4 bits", z=np.zeros(5, I32)), "zero_points: expected uint8 or"),
        (changed("QLinearConcat", extra=F), "expected a tensor, a scale and a zero point each"),
        (changed("QLinearSoftmax", {"opset": 11, "axis": 0}),
         "for versions below 13 the last axis"),
        (model_of(Case("Rfft", {"x": F}, {"onesided": 0})), "expected normalized 0 and onesided 1"),
        (model_of(Case("Rfft", {"x": F}, {"normalized": 1})), "got normalized 1, onesided 1"),
        (model_of(Case("Rfft", {"x": F}, {"signal_ndim": 4})),
         "signal_ndim: expected a number from 1 to 3, got 4"),
        (model_of(Case("Rfft", {"x": F[0]}, {"signal_ndim": 3})),
         "X: expected a tensor of rank 3 or more"),
        (model_of(Case("Irfft", {"x": F}, {})), "com.microsoft.Irfft, version 1: there is no such"),
    ],
)  # fmt: skip
def test_what_is_refused(model: Any, message: str) -> None:
    with pytest.raises(RelaxVMError, match=re.escape(message)):
        from_onnx(model)


def test_every_operator_has_a_case() -> None:
    covered = {(each.domain, each.op_type) for each in CASES.values()}
    elsewhere = {
        # As operators of ai.onnx, whose functions they call.
        "LayerNormalization", "Pad", "Trilu", "ExpandDims", "QuantizeLinear", "DequantizeLinear",
        "SimplifiedLayerNormalization", "TransposeMatMul",
        # onnxruntime has no kernel of it for float32 on the CPU.
        "NhwcFusedConv", "QLinearWhere",
        # onnxruntime has it only for CUDA: compared with numpy below.
        "Rfft",
        # Of strings: in test_onnx_sklearn.
        "Tokenizer",
    }  # fmt: skip
    ours = {name for domain, name in OPERATORS if domain == "com.microsoft"}
    assert ours - {name for _, name in covered} <= elsewhere


@pytest.mark.parametrize("signal_ndim", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 7, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_known", [True, False])
def test_spectra_of_real_signals(
    signal_ndim: int, length: int, dtype: Any, is_known: bool
) -> None:
    x = np.random.default_rng(length).standard_normal((2, 3, 4, length)).astype(dtype)
    model = model_of(Case("Rfft", {"x": x}, {"signal_ndim": signal_ndim}))
    if not is_known:
        model.graph.input[0].type.tensor_type.ClearField("shape")
    want = np.fft.rfftn(x, axes=range(4 - signal_ndim, 4))
    got = VirtualMachine(build(from_onnx(model)))["main"](x)
    assert got.dtype == dtype
    assert got.shape == (*want.shape, 2)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-5)


@pytest.mark.parametrize("dims", [None, ["a", "b", "b"], ["a", 3, 3]])
def test_inverses_of_matrices_whose_shapes_the_run_knows(dims: Any) -> None:
    x = np.random.default_rng(7).standard_normal((5, 3, 3)).astype(np.float32)
    model = model_of(Case("Inverse", {"x": x}, {}))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, dims))
    vm = VirtualMachine(build(from_onnx(model)))
    np.testing.assert_allclose(vm["main"](x) @ x, np.broadcast_to(np.eye(3), x.shape), atol=1e-4)
    with pytest.raises(ValueError, match="expected matrices with an inverse, got a singular one"):
        vm["main"](np.ones_like(x))


def test_channels_last() -> None:
    rng = np.random.default_rng(3)
    x, w = rng.random((1, 3, 6, 5), np.float32), rng.random((4, 3, 3, 3), np.float32)
    settings = {"activation": "Relu", "strides": [2, 1]}
    first = model_of(Case("FusedConv", {"x": x, "w": w}, settings))
    last = model_of(Case("NhwcFusedConv", {"x": x.transpose(0, 2, 3, 1), "w": w}, settings))
    want = VirtualMachine(build(from_onnx(first)))["main"](x, w)
    got = VirtualMachine(build(from_onnx(last)))["main"](x.transpose(0, 2, 3, 1), w)
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), 1e-6)


# The kernels


def cache(**given: Any) -> list[Any]:
    arguments = {
        "past": np.ones((2, 1, 3, 2), np.float32), "new": np.full((2, 1, 1, 2), 7, np.float32),
        "lengths": np.array([1, 3]), "total": np.array(4),
        "out": np.empty((2, 1, 4, 2), np.float32),
    }  # fmt: skip
    return list({**arguments, **given}.values())


def test_the_cache() -> None:
    run = relaxvm.get_func("relaxvm.kernel.extend_cache")
    arguments = cache()
    run(*arguments)
    assert arguments[-1][:, 0, :, 0].tolist() == [[1, 7, 0, 0], [1, 1, 1, 7]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"new": np.ones((2, 2, 1, 2), np.float32)}, "new: expected batch, heads and size of past"),
        ({"lengths": np.array([1])}, "lengths: expected 2 numbers"),
        ({"lengths": np.array([1, 4])}, "lengths: expected up to 3, and room for 1 more in 4"),
        ({"lengths": np.array([-1, 3])}, "lengths: expected up to 3"),
        ({"total": np.array(9)}, "out: expected float32[2, 1, 9, 2], got"),
    ],
)
def test_the_cache_refuses(given: Any, message: str) -> None:
    run = relaxvm.get_func("relaxvm.kernel.extend_cache")
    with pytest.raises(ValueError, match=re.escape(f"extend_cache: {message}")):
        run(*cache(**given))


def packed(**given: Any) -> list[Any]:
    arguments = {
        "x": np.ones((2, 3), np.float32), "packed": np.full((5, 2, 1), 0xA9, np.uint8),
        "scales": np.ones(10, np.float32), "zeros": None, "bits": 4, "block": 2,
        "out": np.empty((2, 5), np.float32),
    }  # fmt: skip
    return list({**arguments, **given}.values())


def test_the_product_with_a_packed_matrix() -> None:
    run = relaxvm.get_func("relaxvm.kernel.matmul_packed")
    arguments = packed(scales=np.arange(10, dtype=np.float32))
    run(*arguments)  # each row of the matrix has 1 * a, 2 * a, 1 * b
    rows = [(1 + 2) * (2 * i) + 1 * (2 * i + 1) for i in range(5)]
    assert arguments[-1].tolist() == [rows, rows]
    two = packed(packed=np.full((5, 1, 1), 0b11100100, np.uint8), scales=np.ones(5, np.float32),
                 bits=2, block=4)  # fmt: skip
    run(*two)
    assert two[-1].tolist() == [[-2 - 1 + 0] * 5] * 2


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("zeros", [None, "packed", "floats"])
def test_the_product_with_a_packed_matrix_in_c(which: str, zeros: str | None) -> None:
    """Beside float64: rows and columns around the edges of tiles and panels, lines that are cut."""
    run = by_method(which, "nbits.product")
    rng = np.random.default_rng(0)
    for rows in (1, 3, 4, 5, 13, 14, 15, 29, 40):
        for columns in (1, 15, 16, 17, 33, 130):
            block = int(rng.choice([32, 64, 128]))
            terms = int(rng.integers(1, 200))
            blocks = -(-terms // block)
            x = rng.standard_normal((rows, terms)).astype(np.float32)
            numbers = rng.integers(0, 16, (columns, blocks, block))
            bytes_ = (numbers[..., ::2] + 16 * numbers[..., 1::2]).astype(np.uint8)
            scales = rng.random((columns, blocks)).astype(np.float32)
            points = rng.integers(0, 16, (columns, blocks + blocks % 2))
            given = {
                None: None, "floats": points[:, :blocks].astype(np.float32).reshape(-1),
                "packed": (points[:, ::2] + 16 * points[:, 1::2]).astype(np.uint8).reshape(-1),
            }[zeros]  # fmt: skip
            less = points[:, :blocks, None] if zeros else 8
            matrix = ((numbers - less) * scales[..., None].astype("float64")).reshape(columns, -1)
            out = np.full((rows, columns), np.nan, np.float32)
            run(x, bytes_, scales.reshape(-1), given, 4, block, out)
            want = x.astype("float64") @ matrix[:, :terms].T
            size = np.abs(x).astype("float64") @ np.abs(matrix[:, :terms]).T
            assert (np.abs(out - want) <= 1e-5 * size + 1e-6).all(), (rows, columns, terms, block)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bits": 3}, "bits: expected 2, 4 or 8, got 3"),
        ({"packed": np.zeros((5, 2), np.uint8)}, "expected x with axes, and packed of uint8"),
        ({"block": 4}, "packed: expected blocks of 4 for 3 columns, got"),
        ({"scales": np.ones(5, np.float32)}, "scales: expected 10 numbers, got"),
        ({"zeros": np.zeros(9, np.uint8)}, "zeros: expected 5 numbers, got"),
        ({"out": np.empty((2, 4), np.float32)}, "out: expected float32[2, 5], got"),
    ],
)
def test_the_product_refuses(given: Any, message: str) -> None:
    run = relaxvm.get_func("relaxvm.kernel.matmul_packed")
    with pytest.raises(ValueError, match=re.escape(f"matmul_packed: {message}")):
        run(*packed(**given))
