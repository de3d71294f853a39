"""Bitwise operations take integers, and bools where that is meaningful.  Other operands must be
rejected before the C compiler sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import tir
from relaxvm.errors import DiagnosticError, FormatError
from relaxvm.ir import prim
from relaxvm.ir.json import load_json, save_json
from relaxvm.script import from_source
from relaxvm.tir.build import compile_prim_func

SOURCE = """
@T.prim_func
def f(A: T.Buffer((4,), "{dtype}"), B: T.Buffer((4,), "{dtype}"), C: T.Buffer((4,), "{dtype}")):
    for i in range(4):
        C[i] = {value}
"""

ALLOWED = {
    "A[i] & B[i]": ("int32", "uint8", "int64", "bool"),
    "A[i] | B[i]": ("int32", "uint8", "int64", "bool"),
    "A[i] ^ B[i]": ("int32", "uint8", "int64", "bool"),
    "A[i] << B[i]": ("int32", "uint8", "int64"),
    "A[i] >> B[i]": ("int32", "uint8", "int64"),
    "~A[i]": ("int32", "uint8", "int64", "bool"),
}
PYTHON: dict[str, Any] = {
    "A[i] & B[i]": lambda a, b: a & b,
    "A[i] | B[i]": lambda a, b: a | b,
    "A[i] ^ B[i]": lambda a, b: a ^ b,
    "A[i] << B[i]": lambda a, b: a << b,
    "A[i] >> B[i]": lambda a, b: a >> b,
    "~A[i]": lambda a, b: (not a) if isinstance(a, bool) else ~a,
}
DTYPES = ("int32", "uint8", "int64", "bool", "float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", ALLOWED)
def test_allowed_operations_run_and_others_are_refused(value: str, dtype: str) -> None:
    source = SOURCE.format(dtype=dtype, value=value)
    if dtype not in ALLOWED[value]:
        with pytest.raises(DiagnosticError, match=r"expected (an )?integers?") as error:
            from_source(source)
        assert ":5:16:" in str(error.value)
        assert dtype in str(error.value)
        return
    func = from_source(source)
    a = np.array([0, 1, 1, 1]).astype(dtype)
    b = np.array([1, 0, 1, 2]).astype(dtype)
    expected = [PYTHON[value](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    for prefer in ("c", "python"):
        out = np.empty_like(a)
        compile_prim_func(func, prefer=prefer)(a, b, out)  # type: ignore[arg-type]
        np.testing.assert_array_equal(out, np.array(expected).astype(dtype))


@pytest.mark.parametrize(
    "cls", [prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor, prim.LShift, prim.RShift]
)
def test_nodes_made_by_hand(cls: Any) -> None:
    buffer = tir.decl_buffer((4,), "float32", "A")
    load = tir.BufferLoad(buffer, [0])
    store = tir.BufferStore(buffer, cls(load, load), [0])
    func = tir.PrimFunc([buffer], store)
    with pytest.raises(FormatError, match=r"expected integers.*float32 and float32"):
        load_json(save_json(func))
    for prefer in ("c", "python"):
        with pytest.raises(ValueError, match=r"main: A\[.*expected integers.*float32 and float32"):
            compile_prim_func(func, prefer=prefer)  # type: ignore[arg-type]


def test_the_complement_made_by_hand() -> None:
    buffer = tir.decl_buffer((4,), "float32", "A")
    value = prim.BitwiseNot(tir.BufferLoad(buffer, [0]))
    func = tir.PrimFunc([buffer], tir.BufferStore(buffer, value, [0]))
    with pytest.raises(ValueError, match=r"main: ~.*expected an integer or a bool, got float32"):
        compile_prim_func(func)
