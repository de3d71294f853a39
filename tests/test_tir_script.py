"""The text of PrimFuncs: printing and parsing round-trip, and errors show the location."""

from __future__ import annotations

from typing import Any

import pytest

from relaxvm import ir, te, tir, topi
from relaxvm.errors import DiagnosticError
from relaxvm.ir.equality import assert_structural_equal, structural_equal
from relaxvm.ir.json import load_json, save_json
from relaxvm.script import from_source
from relaxvm.script import tir as T

from .test_tir_lowering import FUNCS


@pytest.mark.parametrize("name", sorted(FUNCS))
def test_print_and_parse(name: str) -> None:
    func = FUNCS[name]
    text = func.script()
    again = from_source(text)
    assert_structural_equal(again, func)
    assert again.script() == text


@pytest.mark.parametrize("name", sorted(FUNCS))
def test_json(name: str) -> None:
    assert_structural_equal(load_json(save_json(FUNCS[name])), FUNCS[name])


def test_forms() -> None:
    text = """@T.prim_func(private=True, s_tir=True)
def main(
    A: T.Buffer(("n", "n + 1"), "float32", scope="shared"),
    n: T.int32,
    B: T.Buffer((T.int64(4),), "int8", strides=(2,), elem_offset=8, align=16, offset_factor=4),
    h: T.handle,
):
    T.func_attr({"tirx.noalias": True, "list": [1, "two", (3.5,)], "number": T.int32(3)})
    for i, j in T.grid(n, n):
        for k in T.parallel(n, annotations={"pragma": 1}):
            for l in range(i, i + n):
                with T.sblock("block"):
                    vi = T.axis.opaque(n, i)
                    vj = T.axis.scan((1, 5), j)
                    vk = T.axis.reduce(n, k + l)
                    T.where(i < 3 and not j == 2)
                    T.reads(A[vi, 0:n])
                    T.writes()
                    T.sblock_attr({"key": "value"})
                    C = T.sblock_alloc_buffer((n, 2), "int64")
                    part = T.match_buffer(A[vi, 0:n], (n,), "float32")
                    with T.init():
                        C[0, 0] = T.int64(0)
                    part[vk] = T.Select(vi < vk, part[vk], T.float32("inf"))
                    T.call_packed("f", C[0, 1], "text")
    with T.attr("node", "key", "value"):
        if T.bool(True):
            T.evaluate(0)
        else:
            D = T.alloc_buffer((2, 2), "uint16", scope="local")
            D[0, 1] = T.uint16(3) * D[1, 1] + T.Mul(T.uint16(2), T.uint16(2))
    T.evaluate(T.likely(n < 3))
"""
    func = from_source(text)
    assert_structural_equal(from_source(func.script()), func)
    assert func.script() + "\n" == text


def test_assignments_of_scalars() -> None:
    @T.prim_func(private=True)
    def named(A: T.Buffer((4,), "int32")):
        x = A[0]
        x = x + 1
        x += 2
        y: T.int32 = 7
        z: T.let = y
        A[1], A[2] = x, z
        two = 2
        A[3] -= two * 3

    @T.prim_func(private=True)
    def plain(A: T.Buffer((4,), "int32")):
        x = T.alloc_buffer((1,), "int32", scope="local")
        x[0] = A[0]
        x[0] = x[0] + 1
        x[0] = x[0] + 2
        y = T.alloc_buffer((1,), "int32", scope="local")
        y[0] = 7
        z: T.let[T.int32] = y[0]
        A[1] = x[0]
        A[2] = z
        A[3] = A[3] - 6

    assert_structural_equal(named, plain)


def test_python_variables_can_be_used() -> None:
    size, name = 8, "block of the test"

    @T.prim_func
    def around(A: T.Buffer((size, size), "float32")):
        for i in range(size // 2):
            if size > 4:
                with T.sblock(name):
                    A[i, size - 1] = T.float32(size)

    assert [int(d) for d in around.params[0].shape] == [8, 8]
    assert 'T.sblock("block of the test")' in around.script()
    assert around.attrs == {"global_symbol": "around"}


def test_a_module_with_functions_of_both_kinds() -> None:
    module = from_source(
        """
@I.ir_module
class Module:
    @T.prim_func
    def double(x: T.Buffer(("n",), "float32"), y: T.Buffer(("n",), "float32")):
        n = T.int64()
        for i in range(n):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
        return R.call_tir(cls.double, (x,), out_ty=R.Tensor((n,), "float32"))
"""
    )
    assert isinstance(module, ir.IRModule)
    assert_structural_equal(from_source(module.script()), module)
    assert str(module["double"].ty) == (
        'R.Callable((R.Tensor((n,), dtype="float32"), R.Tensor((n,), dtype="float32")), '
        "R.Tuple, False)"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i in [1, 2]:\n    A[0] = 1.0", "expected range"),
        ("for i, j in range(3):\n    A[0] = 1.0", "expected 1 loop variables, got 2"),
        ("A[0, 1] = 1.0", "buffer A has 1 dimensions, got 2 indices"),
        ("A[0] = B", "undefined variable 'B'"),
        ("n[0] = 1.0", "only elements of buffers can be assigned"),
        ("A[1.5] = 1.0", "expected an integer scalar, got float"),
        ("vi = T.axis.spatial(3, 0)", "T.axis is for blocks"),
        ("T.where(n > 3)", "T.where is for blocks"),
        ("with open('x'):\n    pass", r"FileNotFoundError|expected T.sblock"),
        ("x = T.Buffer((3,))", "buffer 'x' has no memory"),
        ("try:\n    pass\nexcept ValueError:\n    pass", "try: not a statement of TIR"),
        ("T.exp(n)", "exp: expected a float scalar, got n"),
        ("T.exq(n)", "T has no 'exq'"),
        ("while n:\n    pass", "while: the condition is a bool, got n"),
        ("B = T.match_buffer(A, (3,))", "a region of a buffer|of a region is for blocks"),
        ("for i in range(0, 5, 0):\n    A[i] = 1.0", "loop i: the step is 0"),
        ("x, y = T.axis.remap('SSX', [n, n])", "expected one of S and R"),
    ],
)
def test_mistakes_are_shown_with_their_location(body: str, message: str) -> None:
    lines = "\n".join("    " + line for line in body.split("\n"))
    text = f'@T.prim_func\ndef f(A: T.Buffer((4,), "float32"), n: T.int32):\n{lines}\n'
    with pytest.raises(DiagnosticError, match=message) as caught:
        from_source(text)
    assert "<script>:" in str(caught.value)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("A", "parameter 'A' has no type"),
        ("A: 3", "parameter 'A': expected T.Buffer"),
        ("A: T.int32 = 3", "cannot have a default"),
        ("*A: T.int32", "only positional parameters"),
        ('A: T.Buffer(("n + 1",), "float32")', "'n' is not defined"),
    ],
)
def test_mistakes_in_signatures(signature: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        from_source(f"@T.prim_func\ndef f({signature}):\n    T.evaluate(0)\n")


# Nodes


def test_types_of_functions() -> None:
    n = ir.Var("n", "int64")
    A = tir.decl_buffer((n, 4), "int8", "A")
    s = ir.Var("s", "float32")
    func = tir.PrimFunc([A, s], tir.Evaluate(0))  # it does nothing, so it is pure
    assert (
        str(func.ty)
        == 'R.Callable((R.Tensor((n, 4), dtype="int8"), R.Prim("float32")), R.Tuple, True)'
    )
    assert func.buffer_map == {A: A}
    with pytest.raises(TypeError, match="is a buffer or a scalar"):
        tir.PrimFunc([ir.Var("x", ir.TensorType((3,), "float32"))], tir.Evaluate(0))


def test_specialize() -> None:
    func = FUNCS["concat"]
    n = func.params[0].shape[0]
    special = func.specialize({n: 3})
    assert str(special.params[2].shape[0]) == "m + 3"
    assert "n" not in {p.name for p in special.params}
    text = special.script()
    assert "range(m + T.int64(3))" in text or "range(T.int64(3) + m)" in text
    with pytest.raises(TypeError, match="specialize: A is not a scalar"):
        func.specialize({func.params[0]: 3})


def test_substitution_keeps_what_does_not_change() -> None:
    func = FUNCS["matmul"]
    other = ir.Var("other", "int64")
    assert tir.substitute(func.body, {other: 3}) is func.body


def test_buffers() -> None:
    n = ir.Var("n", "int32")
    A = tir.decl_buffer((n, 4), "float32", "A")
    assert str(A[n - 1, 2]) == "A[n - 1, 2]"
    assert str(A[0:n, 2]) == "A[0:n, 2]"
    assert A.scope() == "global"
    with pytest.raises(ValueError, match="buffer A has 2 dimensions, got 1 index"):
        A[0]
    with pytest.raises(TypeError, match=r"store into buffer A of float32: got n of type"):
        tir.BufferStore(A, n, (0, 0))
    with pytest.raises(ValueError, match="2 dimensions has 1 strides"):
        tir.decl_buffer((2, 2), strides=[1])


def test_constants_and_limits() -> None:
    assert tir.max_value("int8").value == 127
    assert tir.min_value("uint8").value == 0
    assert tir.max_value("float16").value == 65504
    assert str(tir.infinity("float32")) == 'T.float32("inf")'
    assert (
        str(tir.ceildiv(ir.Var("n", "int32"), 4)) == "(n + T.int32(4) - T.int32(1)) // T.int32(4)"
    )
    with pytest.raises(TypeError, match=r"exp: expected a float scalar, got .* of type"):
        tir.exp(ir.IntImm("int32", 1))
    with pytest.raises(TypeError, match="different sizes"):
        tir.reinterpret("int64", ir.FloatImm("float32", 1.0))


# Tensor expressions


def _tensors(*shapes: Any, dtype: str = "float32") -> list[te.Tensor]:
    return [te.placeholder(s, dtype, f"x{i}") for i, s in enumerate(shapes)]


def test_te_and_script_make_the_same_functions() -> None:
    n = te.var("n", "int64")
    (x,) = _tensors((n, 4))
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), "total")
    out = te.compute((n,), lambda i: total[i] + te.compute((1,), lambda j: x[0, 0])[0], "out")

    @T.prim_func
    def main(a: T.handle, b: T.handle):
        T.func_attr({"tirx.noalias": True})
        n = T.int64()
        x = T.match_buffer(a, (n, 4), "float32")
        out = T.match_buffer(b, (n,), "float32")
        total = T.sblock_alloc_buffer((n,), "float32")
        compute = T.sblock_alloc_buffer((1,), "float32")
        for i, k in T.grid(n, 4):
            with T.sblock("total"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + x[vi, vk]
        for j in range(1):
            with T.sblock("compute"):
                vj = T.axis.spatial(1, j)
                compute[vj] = x[0, 0]
        for i in range(n):
            with T.sblock("out"):
                vi = T.axis.spatial(n, i)
                out[vi] = total[vi] + compute[0]

    assert_structural_equal(te.create_prim_func([x, out]), main)


def test_te_mistakes() -> None:
    (x,) = _tensors((3, 4))
    with pytest.raises(ValueError, match="tensor x0 has 2 dimensions, got 1 index"):
        te.compute((3,), lambda i: x[i])
    with pytest.raises(TypeError, match="takes 1 indices, the shape has 2 dimensions"):
        te.compute((3, 4), lambda i: x[i, 0])
    with pytest.raises(ValueError, match="input x0 is not a parameter"):
        te.create_prim_func([te.compute((3,), lambda i: x[i, 0])])
    with pytest.raises(ValueError, match=r"dimensions .*4.* and .*5.* do not broadcast"):
        topi.add(x, te.placeholder((3, 5)))
    k = te.reduce_axis((0, 4))
    with pytest.raises(ValueError, match="has to be the whole formula"):
        te.create_prim_func([x, te.compute((3,), lambda i: te.sum(x[i, k], k) + 1.0)])


def test_an_unequal_function_is_unequal() -> None:
    assert not structural_equal(FUNCS["matmul"], FUNCS["transposed_matmul"])


def test_data_types_of_scalar_functions_may_be_given() -> None:
    """As in older programs of TVM: it has to be the one that the value has anyway."""
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.if_then_else(i > 1, T.rsqrt(A[i]{0}), T.floor(A[i]{0}){0}{1})
"""
    plain = from_source(text.format("", ""))
    given = from_source(text.format(', dtype="float32"', ""))
    assert_structural_equal(plain, given)
    with pytest.raises(DiagnosticError, match=r"dtype: .* is of float32, got float16; cast it"):
        from_source(text.format(', dtype="float16"', ""))
