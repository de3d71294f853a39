"""The script printer: properties of random modules, golden text, exact constants."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import op
from relaxvm.errors import DiagnosticError
from relaxvm.ir import (
    BlockBuilder,
    Call,
    Constant,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    Op,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    VDevice,
    assert_structural_equal,
    const,
    prim,
    prim_value,
    structural_equal,
)
from relaxvm.script import as_script, from_source
from relaxvm.script.names import Names, identifier, quoted
from relaxvm.script.source import Source

from . import relax_generator
from . import script_programs as programs

N, M = Var("n", "int64"), Var("m", "int64")


def parsed(text: str) -> IRModule:
    module: IRModule = from_source(text, check_well_formed=False)
    return module


# Properties


@settings(max_examples=150)
@given(programs.modules())
def test_printing_and_parsing_round_trip(module: IRModule) -> None:
    text = module.script()
    again = parsed(text)
    assert_structural_equal(module, again)
    assert again.script() == text


@pytest.mark.parametrize("seed", range(40))
def test_runnable_programs_round_trip(seed: int) -> None:
    """Random programs of operators and kernels, from the generator of the compiler's tests."""
    module = relax_generator.generate(seed).module
    text = module.script()
    again = parsed(text)
    assert_structural_equal(module, again)
    assert again.script() == text


@settings(max_examples=50)
@given(programs.modules())
def test_text_depends_on_structure_and_names_alone(module: IRModule) -> None:
    """A copy, made by saving as JSON and loading, shares no object with the module."""
    from relaxvm.ir.json import load_json, save_json

    assert load_json(save_json(module)).script() == module.script()


@settings(max_examples=300)
@given(st.data())
def test_scalars(data: st.DataObject) -> None:
    expr = data.draw(programs.scalars([N, M], 4))
    module = from_source(
        "@R.function\ndef f(n: R.Prim('int64'), m: R.Prim('int64')):\n"
        f"    return R.shape([{as_script(expr)}])"
    )
    n, m = module.params
    (value,) = module.body.body.values
    want = Function([N, M], ShapeExpr([expr]), ShapeType(ndim=1))
    assert_structural_equal(Function([n, m], ShapeExpr([value]), ShapeType(ndim=1)), want)


@given(st.text())
def test_strings(text: str) -> None:
    assert eval(quoted(text)) == text


FLOATS = ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", [*FLOATS, "bool", "int8", "uint64", "int64"])
@given(data=st.data())
def test_constants_keep_every_bit(dtype: str, data: st.DataObject) -> None:
    from relaxvm.dtypes import as_dtype

    if dtype in ("bfloat16", "float8_e4m3fn"):
        pytest.importorskip("ml_dtypes")
    found = as_dtype(dtype)
    shape = data.draw(st.sampled_from([(), (1,), (2, 3), (0,), (3, 0), (0, 3), (33,), (5, 7)]))
    raw = data.draw(st.binary(min_size=found.itemsize * math.prod(shape),
                              max_size=found.itemsize * math.prod(shape)))  # fmt: skip
    array = np.frombuffer(bytes(b & 1 for b in raw) if dtype == "bool" else raw, found)
    array = array.reshape(shape)
    text = f"@R.function\ndef f():\n    return {as_script(Constant(array))}"
    back = from_source(text).body.body.data
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_small_constants_are_readable() -> None:
    array = np.array([[0.1, -np.inf], [np.nan, 3]], "float32")
    expected = 'R.const([[0.1, float("-inf")], [float("nan"), 3.0]], "float32")'
    assert as_script(Constant(array)) == expected
    assert as_script(const(True)) == 'R.const(True, "bool")'
    assert as_script(Constant(np.zeros(3, "uint8"))) == 'R.const([0, 0, 0], "uint8")'


def test_large_constants_are_bytes_which_str_leaves_out() -> None:
    func = Function([], Constant(np.arange(100, dtype="int8")))
    text = func.script()
    assert 'R.const_bytes("AAECAwQFBgcICQ' in text
    assert structural_equal(from_source(text), func)
    assert 'return R.const_bytes("...", (100,), "int8")' in str(func)
    with pytest.raises(RuntimeError, match="left out when the program was printed; print it with"):
        from_source(str(func))


# Text


def golden_module() -> IRModule:
    """A module with most kinds of nodes."""
    bb = BlockBuilder()
    device = VDevice("llvm", 1)
    bb.get()
    mod = IRModule(attrs={"version": 2}, global_infos={"vdevice": [VDevice("llvm"), device]})
    bb = BlockBuilder(mod)
    x = Var("x", TensorType((N, M), "float32"))
    c = Var("c", TensorType((), "bool"))
    k = Var("k", "int64")
    with bb.function("branches", [x, c, k], {"num_input": 1}, pure=False):
        bb.emit(op.print(x, k, format="x is {}"), "_")
        bb.begin_scope()
        wide = bb.emit(op.call_packed("wide", x, ty_args=TensorType((N, M * 2), "float32")), "w")
        then = bb.end_scope(bb.emit(op.call_packed("cut", wide, ty_args=x.ty), "w"))
        bb.begin_scope()
        orelse = bb.end_scope(x)
        y = bb.emit(If(c, then, orelse), "y")
        rows = Var("rows", "int64")
        z = bb.match_cast(y, TensorType((rows, rows), "float32"), "z")
        bb.emit_func_output(Tuple([z, ShapeExpr([rows + 1, k]), prim_value(3), const(0.5)]))
    a = Var("a", TensorType((4,), "float32", device))
    f = Var("f", FuncType([a.ty], a.ty))
    with bb.function("closures", [a, f], private=True):
        inner = Var("x", TensorType((N,), "float32"))
        bb.begin_scope([inner])
        body = bb.end_scope(op.call_pure_packed("vm.add", inner, 1.5, "s", ty_args=inner.ty))
        g = bb.emit(Function([inner], body), "g")
        with bb.dataflow():
            first = bb.emit(Call(g, [a]), "first")
            pair = bb.emit_output(Tuple([first, a]), "pair")
        bb.emit_func_output(Call(f, [bb.emit(TupleGetItem(pair, 1), "second")]))
    s = Var("s", ShapeType(ndim=2))
    with bb.function("memory", [s], pure=False):
        storage = bb.emit(op.memory.alloc_storage(ShapeExpr([64]), 0, "global", "uint8"), "st")
        tensor = bb.emit(op.memory.alloc_tensor(storage, 0, ShapeExpr([4, 4]), "float32"), "t")
        bb.emit(op.memory.kill_tensor(tensor), "_")
        nothing = bb.emit(op.null_value(), "nothing")
        bb.emit(op.call_builtin_with_ctx("vm.builtin.f", [tensor, s, nothing]), "_")
        bb.emit_func_output(Tuple([]))
    return bb.get()


def test_golden(golden: Callable[[str, str | bytes], None]) -> None:
    module = golden_module()
    text = module.script()
    golden("script.txt", text + "\n")
    assert structural_equal(parsed(text), module)


def test_printed_modules_are_python_files(tmp_path: object) -> None:
    """Python can also run the printed text; its decorators then make the module."""
    import importlib.util
    import pathlib

    module = golden_module()
    path = pathlib.Path(str(tmp_path)) / "printed.py"
    path.write_text(
        module.script().replace("@I.ir_module", "@I.ir_module(check_well_formed=False)")
    )
    spec = importlib.util.spec_from_file_location("printed", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert_structural_equal(made.Module, module)


TYPES: list[tuple[Type, str]] = [
    (TensorType(), "R.Tensor"),
    (TensorType(dtype="int8"), 'R.Tensor(dtype="int8")'),
    (TensorType(ndim=2), "R.Tensor(ndim=2)"),
    (TensorType((), "float32"), 'R.Tensor((), dtype="float32")'),
    (TensorType((N,)), "R.Tensor((n,))"),
    (TensorType((N + 1, N * (M - 1)), "bool"), 'R.Tensor((n + 1, n * (m - 1)), dtype="bool")'),
    (TensorType((2,), "int8", VDevice("cuda", 1, "local")),
     'R.Tensor((2,), dtype="int8", vdevice=I.vdevice("cuda", 1, "local"))'),
    (ShapeType(), "R.Shape"),
    (ShapeType(ndim=3), "R.Shape(ndim=3)"),
    (ShapeType((N, 3)), "R.Shape([n, 3])"),
    (ShapeType(()), "R.Shape([])"),
    (PrimType("float64"), 'R.Prim("float64")'),
    (TupleType(), "R.Tuple"),
    (TupleType([TensorType(), PrimType("bool")]), 'R.Tuple(R.Tensor, R.Prim("bool"))'),
    (FuncType.opaque_func(), "R.Callable"),
    (FuncType.opaque_func(ret=TensorType(), purity=True),
     "R.Callable(ret=R.Tensor, purity=True)"),
    (FuncType([], TupleType()), "R.Callable((), R.Tuple, True)"),
    (FuncType([TensorType()], TensorType(), False),
     "R.Callable((R.Tensor,), R.Tensor, False)"),
]  # fmt: skip


@pytest.mark.parametrize(("ty", "text"), TYPES, ids=[text for _, text in TYPES])
def test_types(ty: Type, text: str) -> None:
    assert as_script(ty) == str(ty) == text


A = Var("a", "bool")
SCALARS: list[tuple[Expr, str]] = [
    (N * (M + 1) // 2 % 3, "n * (m + 1) // 2 % 3"),
    (N - (M - 1), "n - (m - 1)"),
    (N - M - 1, "n - m - 1"),
    (N * (M // 2), "n * (m // 2)"),
    (prim_value(-1) * N, "-1 * n"),
    (prim.Mul(N, prim_value(1)), "T.Mul(n, T.int64(1))"),
    (prim.Add(prim_value(1), prim_value(2)), "T.Add(T.int64(1), T.int64(2))"),
    (prim.minimum(N, 3) + prim.maximum(N, M), "T.min(n, 3) + T.max(n, m)"),
    (prim.Min(N, N), "T.Min(n, n)"),
    (prim.truncdiv(N, 2) + prim.truncmod(N, 2), "T.truncdiv(n, 2) + T.truncmod(n, 2)"),
    (prim.logical_or(N < 1, prim.logical_and(A, prim.logical_not(N.__eq__(M)))),
     "n < 1 or a and not n == m"),
    (prim.logical_and(prim.logical_or(A, N > M), A), "(a or n > m) and a"),
    ((N & M) | (N ^ 1) << 2, "n & m | (n ^ 1) << 2"),
    (~N, "~n"),
    (prim.cast(N, "int32") + prim.as_scalar(1, "int32"), 'T.Cast("int32", n) + T.int32(1)'),
    (prim.select(N < M, N, 0), "T.Select(n < m, n, T.int64(0))"),
    (prim_value(1.5), "T.float64(1.5)"),
    (prim_value(float("inf")), 'T.float64("inf")'),
    (prim_value(True), "True"),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "text"), SCALARS, ids=[text for _, text in SCALARS])
def test_scalars_are_written_with_the_fewest_parentheses(expr: Expr, text: str) -> None:
    assert as_script(expr) == text


def test_functions_alone() -> None:
    x = Var("x", TensorType((2,), "float32"))
    call = Call(GlobalVar("other", FuncType([x.ty], x.ty)), [x])
    bb = BlockBuilder()
    bb.begin_scope([x])
    func = Function([x], bb.end_scope(call), x.ty, attrs={"global_symbol": "here"})
    ty = 'R.Tensor((2,), dtype="float32")'
    assert str(func).splitlines() == [
        "@R.function",
        f"def here(x: {ty}) -> {ty}:",
        f'    gv: {ty} = I.GlobalVar("other")(x)',
        "    return gv",
    ]
    # Parsing a call needs the type of the callee.
    other = f'I.GlobalVar("other", R.Callable(({ty},), {ty}, True))'
    assert func.script() == str(func).replace('I.GlobalVar("other")', other)
    assert_structural_equal(from_source(func.script()), func)


CALLS = parsed("""
@I.ir_module
class Calls:
    @T.prim_func(private=True)
    def copy(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = a[i]

    @R.function(private=True)
    def first(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        return R.abs(x)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), z: R.Tensor((4,), "float32")):
        cls = Calls
        y = cls.first(x)
        w = R.call_tir(cls.copy, (z,), out_ty=R.Tensor((4,), "float32"))
        return (cls.first(y), w)
""")


def test_a_function_that_calls_others_is_read_without_them() -> None:
    func = CALLS["main"]
    read = from_source(func.script())
    assert_structural_equal(read, func)
    assert read.script() == func.script()
    callees = {b.value.op for b in read.body.blocks[0].bindings if type(b.value.op) is GlobalVar}
    assert len(callees) == 1  # one GlobalVar per name


HOST = from_source("""
@R.function
def host(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return x
""")


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    "value",
    [
        b"ab'\"",
        np.dtype("float16"),
        CALLS,
        CALLS["first"],
        {"inner": [CALLS["copy"], None]},
        TensorType((2,), "float32"),
    ],
    ids=["bytes", "dtype", "module", "function", "nested", "type"],
)
def test_attributes_that_are_objects(value: Any) -> None:
    func = HOST.with_attrs({"what": value})
    read = from_source(func.script())
    assert_structural_equal(read, func)
    assert read.script() == func.script()
    str(func)


def test_numbers_of_other_classes_are_written_as_numbers() -> None:
    attrs = {"a": np.float32(1.5), "b": np.int64(3), "c": Colour.RED, "d": np.bool_(True)}
    read = from_source(HOST.with_attrs(attrs).script())
    assert {k: read.attrs[k] for k in attrs} == {"a": 1.5, "b": 3, "c": 3, "d": True}


def test_an_object_that_cannot_be_written_is_refused_when_it_is_read() -> None:
    text = HOST.with_attrs({"what": object()}).script()
    with pytest.raises(DiagnosticError, match="an attribute of class object, which script"):
        from_source(text)


def test_parts_of_programs() -> None:
    func = golden_module()["branches"]
    block = func.body.blocks[0]
    assert str(block.bindings[0]) == 'R.print(x, k, format="x is {}")'
    text = str(block.bindings[1].value)
    assert text.startswith("if c:\n    w")
    assert str(func.body).splitlines()[-1].startswith("(z, R.shape([rows + 1, k]), 3, ")
    assert str(Op.get("relax.add")) == 'I.Op("relax.add")'
    assert repr(N) == "<Var n>"
    assert str(VDevice("llvm", 2)) == 'I.vdevice("llvm", 2)'
    assert str(block).count("\n") > 5


def test_the_type_of_a_result_of_if_is_printed_before_it() -> None:
    text = """@R.function(private=True)
def main(c: R.Tensor((), dtype="bool")) -> R.Any:
    y: R.Any
    if c:
        y = R.const(1, "int32")
    else:
        y = R.const(2, "int32")
    return y"""
    func = from_source(text)
    assert func.script() == text
    assert str(func.body.blocks[0].bindings[0].var.ty) == "R.Any"


def test_bodies_that_are_not_in_normal_form_can_be_printed() -> None:
    x = Var("x", TensorType((2,), "float32"))
    nested = Call(GlobalVar("f"), [If(const(True), SeqExpr([], x), SeqExpr([], x)), x])
    assert str(nested) == 'I.GlobalVar("f")(<If>, x)'


# Names


def test_names_differ() -> None:
    names = Names(["taken"])
    first, second, third = object(), object(), object()
    assert names.define(first, "x") == "x"
    names.push()
    assert names.define(second, "x") == "x_1"
    assert names.define(third, "taken") == "taken_1"
    names.pop()
    assert (names.get(first), names.get(second)) == ("x", None)
    assert names.define(third, "x") == "x_1"
    assert names.define(object(), "x_1") == "x_1_1"


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        ("x", "x"),
        ("x.y", "x_y"),
        ("3d", "v3d"),
        ("", "v"),
        ("for", "for_"),
        ("é", "_"),
        ("_x", "_x"),
    ],
)
def test_identifiers(hint: str, name: str) -> None:
    assert identifier(hint) == name


def test_names_do_not_shadow_names_of_the_script() -> None:
    hints = ["R", "T", "I", "cls", "float", "True", "Module", "int"]
    variables = [Var(hint, TensorType((1,), "float32")) for hint in hints]
    bb = BlockBuilder()
    with bb.function("main", variables):
        bb.emit_func_output(Tuple([*variables, const(float("nan"))]))
    text = bb.get().script()
    assert structural_equal(parsed(text), bb.get())
    assert [p.name for p in parsed(text)["main"].params] == [f"{h}_1" for h in hints[:5]] + [
        "True_", "Module_1", "int_1"]  # fmt: skip


def test_a_deep_module_is_printed_in_linear_time() -> None:
    """Names of many variables with one hint, each looked up once."""
    bb = BlockBuilder()
    x = Var("x", TensorType((2,), "float32"))
    with bb.function("main", [x]):
        y: Expr = x
        for _ in range(2000):
            y = bb.emit(op.call_pure_packed("f", y, ty_args=x.ty), "x")
        bb.emit_func_output(y)
    text = bb.get().script()
    assert text.count("\n") == 2007
    assert Source(text).tree.body


NAMES = ("a.b", "a_b", "class", "1", "a-b", "\u00e9")


def _module_of(names: tuple[str, ...], *, private: bool = False) -> IRModule:
    """A module of functions that call those before them, and a PrimFunc "k.0"."""
    kernel = """
@T.prim_func(s_tir=True)
def k(x: T.Buffer((2,), "float32")):
    for i in range(2):
        x[i] = x[i] + T.float32(1)
"""
    builder = BlockBuilder()
    builder.add_func(from_source(kernel).with_attr("global_symbol", "k.0"), "k.0")
    for name in names:
        x = Var("x", TensorType((2,), "float32"))
        with builder.function(name, [x], private=private):
            y: Any = x
            for var, func in builder.get().items():
                if isinstance(func, Function):
                    y = builder.emit(Call(var, [y]))
            builder.emit_func_output(y)
    return builder.get()


def test_functions_whose_names_cannot_be_defined() -> None:
    module = _module_of(NAMES)
    text = module.script()
    defined = re.findall("def (.*?)\\(", text)
    assert defined == ["k_0", "a_b_1", "a_b", "class_", "v1", "a_b_2", "\u00e9"]
    assert 'T.func_attr({"global_symbol": "k.0"})' in text
    again = from_source(text)
    assert_structural_equal(again, module)
    assert [var.name_hint for var in again] == ["k.0", *NAMES]
    assert again.script() == text


def test_private_functions_whose_names_cannot_be_defined() -> None:
    again = from_source(_module_of(NAMES, private=True).script())
    names = [var.name_hint for var in again]
    assert names == ["k.0", "a_b_1", "a_b", "class_", "v1", "a_b_2", "\u00e9"]


def test_two_functions_of_one_symbol_are_refused() -> None:
    text = _module_of(NAMES).script().replace('"a-b"', '"a.b"')
    with pytest.raises(DiagnosticError, match=r"the module already has a function 'a\.b'"):
        from_source(text)


def test_names_with_dots_in_tvms_text() -> None:
    pytest.importorskip("tvm")
    from tvm import relax

    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("a.b", [x]):
        builder.emit_func_output(x)
    assert [var.name_hint for var in from_source(builder.get().script())] == ["a.b"]


def test_a_function_of_a_module_has_a_name() -> None:
    x = Var("x", TensorType((2,), "float32"))
    builder = BlockBuilder()
    message = "expected the name of a function, got an empty string"
    with pytest.raises(ValueError, match=message), builder.function("", [x]):
        builder.emit_func_output(x)
