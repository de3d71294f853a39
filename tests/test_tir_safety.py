"""Adversarial PrimFuncs: indices for which a naive bounds proof would be wrong, numbers that
overflow, variables with two values, names that contain code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ir, tir
from relaxvm.ir import prim
from relaxvm.ir.expr import Expr, IntImm, Var
from relaxvm.native.c_support import c_string
from relaxvm.native.toolchain import compiler
from relaxvm.tir import Bind, BufferLoad, BufferStore, For, PrimFunc, SeqStmt, decl_buffer
from relaxvm.tir.build import compile_prim_func

BACKENDS = [
    pytest.param("c", marks=pytest.mark.skipif(compiler() is None, reason="needs a C compiler")),
    "python",
]

pytestmark = pytest.mark.parametrize("prefer", BACKENDS)

FAR = 100_000_000
OUT = "is out of bounds for length"


def i32(value: int) -> IntImm:
    return IntImm("int32", value)


def loop(var: Var, extent: Any, body: Any, *, least: Any = 0, step: Any = None) -> For:
    return For(var, least, extent, 0, body, step=step)


def compiled(params: list[Var], body: Any, prefer: Any) -> Callable[..., Any]:
    return compile_prim_func(PrimFunc(params, body), "f", prefer=prefer)


# Indices that are within bounds only for integers of unlimited width


def _back(i: Var) -> Expr:
    """`i` for small values; a different number from 2 on, because the product overflows."""
    return prim.FloorDiv(prim.Mul(i, i32(2**30)), i32(2**30))


def _chosen(condition: Expr) -> Expr:
    return tir.if_then_else(condition, i32(FAR), i32(0))


INDICES: dict[str, Callable[[Var], Expr]] = {
    "shifts": lambda i: prim.RShift(prim.LShift(i, i32(30)), i32(30)),
    "condition of a choice": lambda i: prim.Select(
        prim.EQ(_back(i), i), i32(0), i32(FAR)
    ),
    "conditions of calls": lambda i: prim.Sub(
        _chosen(prim.EQ(i, i32(3))), _chosen(prim.EQ(_back(i), i32(3)))
    ),
    "through a float": lambda i: prim.Mul(
        prim.Sub(
            prim.Cast("int32", prim.Cast("float32", i)),
            prim.Cast("int32", prim.Cast("float32", _back(i))),
        ),
        i32(FAR // 8),
    ),
    "logic": lambda i: prim.Select(
        prim.And(prim.EQ(_back(i), i), prim.GE(i, i32(0))), i32(0), i32(FAR)
    ),
}  # fmt: skip


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_overflow_in_an_index_proves_nothing(
    prefer: str, index: Callable[[Var], Expr]
) -> None:
    A, i = decl_buffer((8,), "int32", "A"), Var("i", "int32")
    function = compiled([A], loop(i, 8, BufferStore(A, 1, [index(i)])), prefer)
    with pytest.raises(IndexError, match=OUT):
        function(np.zeros(8, "int32"))


def test_overflow_in_the_index_of_an_index_proves_nothing(prefer: str) -> None:
    A, B, i = (
        decl_buffer((8,), "int32", "A"),
        decl_buffer((2**19,), "int32", "B"),
        Var("i", "int32"),
    )
    shifted = prim.RShift(prim.LShift(i, i32(20)), i32(20))
    masked = prim.BitwiseAnd(shifted, i32(2**19 - 1))
    difference = prim.Sub(
        BufferLoad(B, [prim.BitwiseAnd(i, i32(2**19 - 1))]), BufferLoad(B, [masked])
    )
    function = compiled([A, B], loop(i, 4096, BufferStore(A, 1, [difference])), prefer)
    with pytest.raises(IndexError, match=OUT):
        function(np.zeros(8, "int32"), np.arange(2**19, dtype="int32"))


# Variables


def test_variables_with_the_same_name_are_distinguished_in_checks(prefer: str) -> None:
    A, B = decl_buffer((4, 4), "int32", "A"), decl_buffer((4, 4), "int32", "B")
    n, x, y = Var("n", "int64"), Var("x1", "int64"), Var("x1", "int64")
    body = BufferStore(B, BufferLoad(A, [x + n, y]), [x, y])
    function = compiled([A, n, B], loop(x, 4, loop(y, 4, body)), prefer)
    a, b = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((4, 4), "int32")
    function(a, 0, b)
    np.testing.assert_array_equal(b, a)


def _bound_within(A: tir.Buffer, i: Var) -> Any:
    far = IntImm("int64", FAR)
    return loop(i, 8, SeqStmt([Bind(i, far), BufferStore(A, 1, [i])]))


def _let_within(A: tir.Buffer, i: Var) -> Any:
    far = IntImm("int64", FAR)
    return loop(i, 8, BufferStore(A, prim.Let(i, far, BufferLoad(A, [i])), [0]))


def _loop_within(A: tir.Buffer, i: Var) -> Any:
    n = A.ty.shape[0]
    return loop(n, FAR, loop(i, n, BufferStore(A, 1, [i])))


@pytest.mark.parametrize("body", [_bound_within, _let_within, _loop_within])
def test_a_variable_has_one_value(prefer: str, body: Callable[..., Any]) -> None:
    A, i = decl_buffer((Var("n", "int64"),), "int32", "A"), Var("i", "int64")
    with pytest.raises(ValueError, match="is defined again where it already has a value"):
        compiled([A], body(A, i), prefer)


def test_facts_about_a_loop_are_forgotten_after_it(prefer: str) -> None:
    A, i = decl_buffer((8,), "int32", "A"), Var("i", "int64")
    store = BufferStore(A, 1, [i])
    body = SeqStmt([loop(i, 8, store), Bind(i, IntImm("int64", FAR)), store])
    with pytest.raises(IndexError, match=OUT):
        compiled([A], body, prefer)(np.zeros(8, "int32"))
    value = prim.Let(i, IntImm("int64", FAR), BufferLoad(A, [i]))
    body = SeqStmt([loop(i, 8, store), BufferStore(A, value, [0])])
    with pytest.raises(IndexError, match=OUT):
        compiled([A], body, prefer)(np.zeros(8, "int32"))


def test_a_variable_of_a_branch_is_not_visible_after_it(prefer: str) -> None:
    A, n, v = decl_buffer((8,), "int32", "A"), Var("n", "int32"), Var("v", "int32")
    body = SeqStmt([tir.IfThenElse(n > 0, Bind(v, i32(1))), BufferStore(A, v, [0])])
    with pytest.raises(ValueError, match="f: variable v has no value where it is used"):
        compiled([A, n], body, prefer)


def test_a_loop_within_another_of_the_same_variable(prefer: str) -> None:
    A, B, i = (
        decl_buffer((4,), "int32", "A"),
        decl_buffer((4,), "int32", "B"),
        Var("i", "int32"),
    )
    inner = loop(i, 4, BufferStore(B, BufferLoad(B, [i]) + 1, [i]))
    body = loop(i, 4, SeqStmt([inner, BufferStore(A, i, [i])]))
    a, b = np.zeros(4, "int32"), np.zeros(4, "int32")
    compiled([A, B], body, prefer)(a, b)
    assert a.tolist() == [0, 1, 2, 3]
    assert b.tolist() == [4] * 4


def test_a_buffer_has_one_memory(prefer: str) -> None:
    A = decl_buffer((8,), "int32", "A")
    with pytest.raises(ValueError, match="f: two of the parameters and local buffers are the same"):
        compiled([A, A], BufferStore(A, 1, [0]), prefer)
    with pytest.raises(ValueError, match="f: two of the parameters and local buffers are the same"):
        compiled([A], SeqStmt([tir.AllocBuffer(A), BufferStore(A, 1, [0])]), prefer)


# Loops


def test_a_step_that_overflows(prefer: str) -> None:
    A, i, s = decl_buffer((8,), "int32", "A"), Var("i", "int64"), Var("s", "int64")
    function = compiled([A, s], loop(i, 3, BufferStore(A, 1, [i]), least=5, step=s), prefer)
    a = np.zeros(8, "int32")
    function(a, 2**63 - 1)
    assert a.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    function(a, 2)
    assert a.tolist() == [0, 0, 0, 0, 0, 1, 0, 1]


def test_an_index_within_a_step_is_checked(prefer: str) -> None:
    A, S = decl_buffer((8,), "int32", "A"), decl_buffer((4,), "int32", "S")
    i, n = Var("i", "int32"), Var("n", "int32")
    step = prim.Max(BufferLoad(S, [n]), i32(1))
    function = compiled([A, S, n], loop(i, 8, BufferStore(A, 1, [i]), step=step), prefer)
    a = np.zeros(8, "int32")
    with pytest.raises(IndexError, match=f"buffer S, dimension 0: index 100 {OUT} 4"):
        function(a, np.ones(4, "int32"), 100)
    assert not a.any()


# Numbers


def test_a_narrow_unsigned_number_that_becomes_a_wide_one(prefer: str) -> None:
    U, P = decl_buffer((2,), "uint16", "U"), decl_buffer((1,), "float64", "P")
    a, b = (prim.Cast("uint32", BufferLoad(U, [k])) for k in range(2))
    body = BufferStore(P, prim.Cast("float64", prim.Mul(a, b)), [0])
    out = np.zeros(1)
    compiled([U, P], body, prefer)(np.array([65535, 65535], "uint16"), out)
    assert out[0] == 65535**2


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_an_unsigned_number_that_becomes_a_signed_one(prefer: str, dtype: str) -> None:
    A, U, i = decl_buffer((5,), "int32", "A"), decl_buffer((5,), dtype, "U"), Var("i", "int64")
    small = prim.Cast("int32", prim.FloorMod(BufferLoad(U, [i]), IntImm(dtype, 10)))
    below = prim.Cast("int64", prim.Sub(small, i32(5)))
    body = loop(i, 5, BufferStore(A, 1, [prim.Add(below, IntImm("int64", 5))]))
    a = np.zeros(5, "int32")
    compiled([A, U], body, prefer)(a, np.arange(5, dtype=dtype))
    assert a.tolist() == [1] * 5


def test_sums_of_bools_are_bools(prefer: str) -> None:
    A, M = decl_buffer((2,), "int32", "A"), decl_buffer((2,), "bool", "M")
    total = prim.Add(BufferLoad(M, [0]), BufferLoad(M, [1]))
    body = SeqStmt([
        BufferStore(A, 7, [prim.Cast("int32", total)]),
        BufferStore(M, prim.BitwiseNot(BufferLoad(M, [0])), [1]),
    ])  # fmt: skip
    a, m = np.zeros(2, "int32"), np.array([True, True])
    compiled([A, M], body, prefer)(a, m)
    assert a.tolist() == [0, 7]
    assert m.view("uint8").tolist() == [1, 0]


def test_the_least_int32_as_an_int64(prefer: str) -> None:
    A, least = decl_buffer((1,), "int64", "A"), IntImm("int64", -(2**31))
    a = np.zeros(1, "int64")
    compiled([A], BufferStore(A, prim.Add(least, least), [0]), prefer)(a)
    assert a[0] == -(2**32)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (IntImm("int64", 2**64 + 5), "f: 18446744073709551621 does not fit int64"),
        (IntImm("uint8", -1), "f: -1 does not fit uint8"),
        (prim.Add(IntImm("int32", 1), IntImm("int64", 1)), "f: Add of int32 and int64"),
    ],
)
def test_numbers_are_of_their_data_types(prefer: str, index: Any, message: str) -> None:
    A = decl_buffer((8,), "int32", "A")
    with pytest.raises(ValueError, match=message):
        compiled([A], BufferStore(A, 1, [index]), prefer)


# Names

ESCAPES = [
    '"',
    "\\",
    "a\\\n",
    "*/ %s /*",
    "*\\\n/ %s /*",
    "*??/\n/ %s /*",
    '???/"); %s //',
    '"); %s //',
    "\n#error\n",
    "{%s}",
    "'+%s+'",
    "\x7f\x80\U0001f600\ud800",
    "RELAXVM_KERNEL_H",
    "while",
    "",
]


@pytest.mark.parametrize("name", ESCAPES)
def test_names_cannot_inject_code(prefer: Any, name: str, tmp_path: Path) -> None:
    found = tmp_path / "ran"
    code = f"fopen({str(found)!r}, 'w')" if prefer == "c" else f"open({str(found)!r}, 'w')"
    name = name.replace("%s", code)
    A = decl_buffer((2,), "int32", name)
    n, i = Var(name, "int32"), Var(name, "int32")
    check = tir.AssertStmt(ir.StringImm("ValueError"), n < 5, [ir.StringImm(name)])
    body = SeqStmt([check, loop(i, 2, BufferStore(A, i, [i]), step=n), BufferStore(A, 7, [n])])
    function = compile_prim_func(PrimFunc([A, n], body), name, prefer=prefer)
    a = np.zeros(2, "int32")
    function(a, 1)
    assert a.tolist() == [0, 7]
    for value, error in ((5, ValueError), (4, IndexError), (0, ValueError)):
        with pytest.raises(error):
            function(a, value)
    assert not found.exists()


def test_bounds_of_divisions_within_divisions_are_checked(prefer: Any) -> None:
    """The greatest index is 93, which sums of nested divisions hide."""
    x, y, z = (Var(name, "int64") for name in "xyz")
    A, B = decl_buffer((76,), "float32", "A"), decl_buffer((101, 101, 5), "float32", "B")
    index = (x // 4 * 3 + y) // 4 + (z + 96) // 4 + x // 4
    body = loop(x, 101, loop(y, 101, loop(z, 5, BufferStore(B, A[index], [x, y, z]))))
    function = compile_prim_func(PrimFunc([A, B], body), prefer=prefer)
    with pytest.raises(IndexError, match="buffer A, dimension 0: index 76 is out of bounds"):
        function(np.zeros(76, "f"), np.zeros((101, 101, 5), "f"))


@pytest.mark.parametrize("text", ["what?", 'a "b" \\ ???/ \n%d \x00', "\u00e4\U0001f600"])
def test_literals_are_escaped(prefer: str, text: str) -> None:
    literal = c_string(text)
    assert literal[0] == literal[-1] == '"'
    assert literal.isascii()
    assert "?" not in literal
    plain = eval("b" + literal)  # C's octal escapes are Python's
    assert plain.decode() == text
