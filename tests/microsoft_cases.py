"""Models of one operator of com.microsoft, and the results that onnxruntime has for them.

``python -m tests.microsoft_cases`` runs them by onnxruntime and writes golden/microsoft.npz; the
tests compare relaxvm with that file, and do not need onnxruntime.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

__all__ = ["CASES", "RESULTS", "Case", "model_of"]

RESULTS = Path(__file__).parent / "golden" / "microsoft.npz"


class Case(NamedTuple):
    """A call of an operator.

    Attributes:
        op_type: its name.
        arrays: the inputs, by name; None for one that is left out.
        attributes: of the node.
        outputs: how many outputs are compared.
        exact: by how much elements may differ: relatively, or in steps of integers.
        domain: of the operator.
    """

    op_type: str
    arrays: dict[str, Any]
    attributes: dict[str, Any]
    outputs: tuple[int, ...] = (0,)
    exact: float = 1e-4
    domain: str = "com.microsoft"


CASES: dict[str, Case] = {}


def case(name: str, outputs: tuple[int, ...] = (0,), exact: float = 1e-4,
         domain: str = "com.microsoft", attributes: dict[str, Any] | None = None,
         **arrays: Any) -> None:  # fmt: skip
    """Add a case; the operator's name is what stands before the first space."""
    CASES[name] = Case(name.split()[0], arrays, attributes or {}, outputs, exact, domain)


def model_of(each: Case) -> Any:
    """The model of a case."""
    names = [name if array is not None else "" for name, array in each.arrays.items()]
    last = max(each.outputs)
    outputs = [f"y{i}" if i in each.outputs else "" for i in range(last + 1)]
    graph = helper.make_graph(
        [helper.make_node(each.op_type, names, outputs, domain=each.domain, **each.attributes)],
        "graph",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in each.arrays.items() if a is not None],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


_seed = np.random.default_rng(11)


def f(*shape: int) -> np.ndarray:
    return _seed.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return _seed.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return _seed.integers(-127, 128, shape).astype(np.int8)


def one(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


BYTE = np.uint8

# Activations and products
case("Gelu", x=f(3, 4))
case("BiasGelu", x=f(3, 4), b=f(4))
case("FastGelu", x=f(3, 4))
case("FastGelu with a bias", x=f(3, 4), b=f(4))
case("QuickGelu", x=f(3, 4), attributes={"alpha": 1.5})
case("FusedMatMul", a=f(2, 4, 3), b=f(2, 5, 4), attributes={"transA": 1, "transB": 1, "alpha": 0.5})
case("FusedMatMul of batches", a=f(4, 2, 3), b=f(2, 3, 5), attributes={"transBatchA": 1})
case("FusedGemm", a=f(3, 4), b=f(5, 4), c=f(5),
     attributes={"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2})  # fmt: skip
case("FusedConv", x=f(1, 3, 6, 6), w=f(4, 3, 3, 3), b=f(4), attributes={"activation": "Relu"})
case("FusedConv with a sum", x=f(1, 3, 6, 6), w=f(4, 3, 3, 3), b=f(4), z=f(1, 4, 4, 4),
     attributes={"activation": "Relu"})  # fmt: skip
case("FusedConv with bounds", x=f(1, 3, 6, 6), w=f(4, 3, 3, 3),
     attributes={"activation": "Clip", "activation_params": [-1.0, 2.0],
                 "pads": [1, 1, 1, 1]})  # fmt: skip

# Normalizations
case("SkipLayerNormalization", (0, 3), x=f(2, 3, 8), s=f(2, 3, 8), g=f(8), b=f(8), c=f(8),
     attributes={"epsilon": 1e-5})  # fmt: skip
case("SkipLayerNormalization without biases", x=f(2, 3, 8), s=f(2, 3, 8), g=f(8))
case("SkipSimplifiedLayerNormalization", (0, 3), x=f(2, 3, 8), s=f(2, 3, 8), g=f(8), c=f(8))
case("SimplifiedLayerNormalization", domain="", x=f(2, 3, 8), s=f(8))
case("EmbedLayerNormalization", (0, 1), i=np.array([[1, 4, 2], [0, 3, 3]], np.int32),
     s=np.array([[0, 1, 1], [0, 0, 1]], np.int32), w=f(6, 8), p=f(5, 8), t=f(2, 8), g=f(8), b=f(8),
     m=np.array([[1, 1, 0], [1, 1, 1]], np.int32))  # fmt: skip

# Positions
case("RotaryEmbedding", x=f(2, 3, 16), p=np.array([[0, 1, 2], [4, 5, 6]]), c=f(9, 4), s=f(9, 4))
case("RotaryEmbedding of heads", x=f(2, 2, 3, 8), p=np.array([3]), c=f(9, 4), s=f(9, 4),
     attributes={"interleaved": 1})  # fmt: skip
case("RotaryEmbedding of a part", x=f(2, 3, 16), p=np.array([[0, 1, 2], [4, 5, 6]]), c=f(9, 2),
     s=f(9, 2), attributes={"rotary_embedding_dim": 4, "num_heads": 2})  # fmt: skip

# Attention
HEADS = {"num_heads": 2}
case("Attention", x=f(2, 3, 8), w=f(8, 24), b=f(24), attributes=HEADS)
case("Attention with lengths", x=f(2, 3, 8), w=f(8, 24), b=f(24), m=np.array([2, 3], np.int32),
     attributes=HEADS)  # fmt: skip
case("Attention with flags", x=f(2, 3, 8), w=f(8, 24), b=f(24),
     m=np.array([[1, 1, 0], [1, 0, 1]], np.int32), attributes=HEADS)  # fmt: skip
case("Attention of one direction", (0, 1), x=f(1, 3, 8), w=f(8, 24), b=f(24), m=None,
     p=f(2, 1, 2, 4, 4), attributes={**HEADS, "unidirectional": 1})  # fmt: skip
case("Attention of other sizes", x=f(2, 3, 8), w=f(8, 20), b=f(20),
     attributes={**HEADS, "qkv_hidden_sizes": [8, 8, 4]})  # fmt: skip
case("MultiHeadAttention", q=f(2, 3, 8), k=f(2, 5, 8), v=f(2, 5, 8), attributes=HEADS)
case("MultiHeadAttention with a bias", q=f(2, 3, 8), k=f(2, 5, 8), v=f(2, 5, 8), b=f(24),
     attributes={**HEADS, "scale": 0.3})  # fmt: skip
case("MultiHeadAttention with masks", q=f(2, 3, 8), k=f(2, 5, 8), v=f(2, 5, 8), b=None,
     m=np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 1]], np.int32), a=f(1, 2, 3, 5),
     attributes=HEADS)  # fmt: skip
case("MultiHeadAttention with a cache", (0, 1, 2), q=f(2, 1, 8), k=f(2, 1, 8), v=f(2, 1, 8), b=None,
     m=None, a=None, pk=f(2, 2, 4, 4), pv=f(2, 2, 4, 4),
     attributes={**HEADS, "unidirectional": 1})  # fmt: skip
case("MultiHeadAttention across", q=f(2, 3, 8), k=f(2, 2, 5, 4), v=f(2, 2, 5, 4), attributes=HEADS)

GROUPS = {"num_heads": 4, "kv_num_heads": 2}
LENGTHS = {"l": np.array([4, 4], np.int32), "t": one(5, np.int32)}
case("GroupQueryAttention of a prompt", (0, 1, 2), q=f(2, 5, 64), k=f(2, 5, 32), v=f(2, 5, 32),
     pk=np.zeros((2, 2, 0, 16), np.float32), pv=np.zeros((2, 2, 0, 16), np.float32), **LENGTHS,
     attributes=GROUPS)  # fmt: skip
case("GroupQueryAttention of a step", (0, 1, 2), q=f(2, 1, 64), k=f(2, 1, 32), v=f(2, 1, 32),
     pk=f(2, 2, 4, 16), pv=f(2, 2, 4, 16), **LENGTHS,
     attributes={**GROUPS, "softcap": 2.0})  # fmt: skip
case("GroupQueryAttention in a buffer", (0, 1, 2), q=f(1, 1, 64), k=f(1, 1, 32), v=f(1, 1, 32),
     pk=f(1, 2, 9, 16), pv=f(1, 2, 9, 16), l=np.array([4], np.int32), t=one(5, np.int32),
     attributes={**GROUPS, "scale": 0.5})  # fmt: skip
case("GroupQueryAttention with rotation", (0, 1, 2), q=f(1, 2, 64), k=f(1, 2, 32), v=f(1, 2, 32),
     pk=f(1, 2, 3, 16), pv=f(1, 2, 3, 16), l=np.array([4], np.int32), t=one(5, np.int32), c=f(9, 8),
     s=f(9, 8), attributes={**GROUPS, "do_rotary": 1})  # fmt: skip
case("GroupQueryAttention in a window", (0,), q=f(2, 5, 128), k=None, v=None, pk=None, pv=None,
     **LENGTHS, attributes={**GROUPS, "local_window_size": 2})  # fmt: skip

# Quantized operators
SCALES = {"xs": one(0.03), "xz": one(120, BYTE)}
case("QLinearAdd", exact=1, x=u8(3, 4), **SCALES, b=u8(4), bs=one(0.05), bz=one(99, BYTE),
     ys=one(0.07), yz=one(128, BYTE))  # fmt: skip
case("QLinearMul", exact=1, x=u8(3, 4), **SCALES, b=u8(3, 4), bs=one(0.05), bz=one(99, BYTE),
     ys=one(0.1), yz=one(100, BYTE))  # fmt: skip
case("QLinearSigmoid", exact=1, x=u8(3, 4), **SCALES, ys=one(0.004), yz=one(0, BYTE))
case("QLinearLeakyRelu", exact=1, x=u8(3, 4), **SCALES, ys=one(0.03), yz=one(50, BYTE),
     attributes={"alpha": 0.3})  # fmt: skip
case("QLinearSoftmax", exact=1, x=u8(3, 4), **SCALES, ys=one(0.004), yz=one(0, BYTE),
     attributes={"axis": -1, "opset": 13})  # fmt: skip
case("QLinearConcat", exact=1, ys=one(0.05), yz=one(128, BYTE), a=u8(2, 3), as_=one(0.03),
     az=one(120, BYTE), b=u8(2, 2), bs=one(0.06), bz=one(10, BYTE),
     attributes={"axis": 1})  # fmt: skip
case("QLinearGlobalAveragePool", exact=1, x=u8(2, 3, 4, 5), **SCALES, ys=one(0.01),
     yz=one(128, BYTE))  # fmt: skip
case("QLinearAveragePool", exact=1, x=u8(2, 3, 4, 6), **SCALES, ys=one(0.02), yz=one(128, BYTE),
     attributes={"kernel_shape": [2, 2], "strides": [2, 2]})  # fmt: skip
case("QGemm", exact=1, x=u8(3, 6), **SCALES, b=i8(4, 6), bs=f(4) * 0.01, bz=np.zeros(4, np.int8),
     c=_seed.integers(-500, 500, 4).astype(np.int32), ys=one(0.5), yz=one(128, BYTE),
     attributes={"transB": 1, "alpha": 1.0})  # fmt: skip
case("QGemm to floats", x=u8(3, 6), **SCALES, b=i8(6, 4), bs=one(0.01), bz=one(3, np.int8))
case("MatMulIntegerToFloat", x=u8(3, 6), b=i8(6, 4), xs=one(0.03), bs=abs(f(4)) + 0.1,
     xz=one(120, BYTE), bz=np.array([1, 0, -3, 2], np.int8), c=f(4))  # fmt: skip
case("DynamicQuantizeMatMul", x=f(3, 6), b=i8(6, 4), bs=one(0.03), bz=one(5, np.int8), c=f(4))
for bits in (4, 8):
    per = 8 // bits
    case(f"MatMulNBits of {bits} bits", x=f(2, 3, 40), b=u8(5, 3, 16 // per), s=f(15),
         attributes={"K": 40, "N": 5, "bits": bits, "block_size": 16})  # fmt: skip
    case(f"MatMulNBits of {bits} bits with zero points", x=f(3, 64), b=u8(6, 2, 32 // per), s=f(12),
         z=u8(6 * -(-2 // per)), attributes={"K": 64, "N": 6, "bits": bits,
                                             "block_size": 32})  # fmt: skip
case("Range", a=np.array(2, np.float32), b=np.array(7, np.float32), c=np.array(1.5, np.float32))
case("GatherND", x=f(3, 4, 2), i=np.array([[0, 3], [2, 1]]))
case("DynamicQuantizeLSTM", (0, 1, 2), x=f(4, 2, 6), w=i8(1, 6, 16), r=i8(1, 4, 16),
     b=f(1, 32) * 0.1, l=None, h=None, c=None, p=None, ws=np.array([0.005], np.float32),
     wz=np.zeros(1, np.int8), rs=np.array([0.004], np.float32), rz=np.zeros(1, np.int8),
     attributes={"hidden_size": 4})  # fmt: skip
case("Inverse", x=f(2, 4, 4))
case("Inverse of float64", x=f(3, 3).astype(np.float64))


def main() -> None:
    """Write the results of onnxruntime, with one thread: with several, each quantizes its part of
    the states of `DynamicQuantizeLSTM`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    results: dict[str, Any] = {}
    for name, each in CASES.items():
        model = model_of(each).SerializeToString()
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        given = {n: a for n, a in each.arrays.items() if a is not None}
        for i, array in zip(each.outputs, session.run(None, given), strict=True):
            results[f"{zlib.crc32(name.encode()):08x}_{i}"] = array
    with RESULTS.open("wb") as file:
        np.savez_compressed(file, **results)
    print(f"{len(CASES)} cases, {len(results)} results", file=sys.stderr)


if __name__ == "__main__":
    main()
