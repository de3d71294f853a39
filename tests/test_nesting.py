"""Deeply nested and long programs: every entry point accepts them, or says what is too deep."""

from __future__ import annotations

import gc
import inspect
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, analysis, op, transform
from relaxvm.errors import (
    DiagnosticError,
    FormatError,
    NestingError,
    RelaxVMWarning,
    TypeSizeError,
)
from relaxvm.ir import (
    BindingBlock,
    BlockBuilder,
    Call,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    SeqExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    VarBinding,
    infer_type,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
)
from relaxvm.ir.nesting import headroom, with_headroom
from relaxvm.script import from_source

TENSOR = TensorType((2,), "float32")
BOOL = TensorType((), "bool")


def module(params: list[Var], body: Expr, ret: Any = TENSOR) -> IRModule:
    seq = body if isinstance(body, SeqExpr) else SeqExpr([], body)
    func = Function(params, seq, ret, attrs={"global_symbol": "main"})
    return IRModule({GlobalVar("main"): func})


def calls(depth: int) -> IRModule:
    x = Var("x", TENSOR)
    y: Any = x
    for _ in range(depth):
        y = op.add(y, x)
    return module([x], y)


def tuples(depth: int) -> IRModule:
    x = Var("x", TENSOR)
    y: Any = x
    for _ in range(depth):
        y = Tuple([y])
    return module([x], y, None)


def branches(depth: int) -> IRModule:
    x, c = Var("x", TENSOR), Var("c", BOOL)
    seq = SeqExpr([], x)
    for number in range(depth):
        var = Var(f"y{number}", TENSOR)
        inner = Var("z", TENSOR)
        other = SeqExpr([BindingBlock([VarBinding(inner, op.add(x, x))])], inner)
        seq = SeqExpr([BindingBlock([VarBinding(var, If(c, other, seq))])], var)
    mod = module([x, c], seq)
    infer_type(mod["main"].body)
    return mod


LIMITED = sys.version_info[:2] == (3, 12)
"""CPython 3.12 limits the frames that are called through C, and nothing raises that limit."""

DEEP: dict[str, tuple[Callable[[int], IRModule], int]] = {
    "calls": (calls, 1000),
    "tuples": (tuples, 150 if LIMITED else 500),
    "branches": (branches, 200),
}


@pytest.fixture(autouse=True)
def limit_is_kept() -> Iterator[None]:
    before, collects = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(1000)  # Python's; hypothesis may have left another one
    yield
    found = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(before)
    assert found == (1000, collects)


@pytest.mark.parametrize("kind", DEEP)
def test_deep_programs_are_fine(kind: str) -> None:
    make, depth = DEEP[kind]
    mod, same, other = make(depth), make(depth), make(depth + 1)
    assert structural_equal(mod, same)
    assert not structural_equal(mod, other)
    assert structural_hash(mod) == structural_hash(same) != structural_hash(other)
    assert structural_equal(load_json(save_json(mod)), mod)
    assert mod.script().count("\n") > 5
    normal = transform.Normalize()(mod)
    assert analysis.well_formed(normal)
    relaxvm.build(normal)


def test_a_thousand_calls_in_one_expression_run() -> None:
    for mod in (
        transform.Normalize()(calls(1000)),
        from_source(
            "@R.function\ndef main(x: R.Tensor((2,), 'float32')) -> R.Tensor((2,), 'float32'):\n"
            f"    return {' + '.join(['x'] * 1001)}"
        ),
    ):
        vm = VirtualMachine(relaxvm.build(mod))
        np.testing.assert_array_equal(vm["main"](np.ones(2, "float32")), [1001, 1001])


def test_many_elifs_run() -> None:
    text = (
        "@R.function\ndef main(x: R.Tensor((2,), 'float32'), c: R.Tensor((), 'bool')):\n"
        "    if c:\n        y = x\n"
        + "    elif c:\n        y = R.add(x, x)\n" * 150
        + "    else:\n        y = R.negative(x)\n    return y"
    )
    vm = VirtualMachine(relaxvm.build(from_source(text)))
    x = np.ones(2, "float32")
    np.testing.assert_array_equal(vm["main"](x, np.array(True)), x)
    np.testing.assert_array_equal(vm["main"](x, np.array(False)), -x)


def test_scalars_of_a_thousand_terms() -> None:
    dim = " + ".join(["n * m // 3"] * 1000)
    text = (
        "@R.function\ndef main(x: R.Tensor(('n', 'm'), 'float32')):\n    n = T.int64()\n"
        f"    m = T.int64()\n    y = R.zeros(R.shape([{dim}]), 'float32')\n    return y"
    )
    func = from_source(text)
    again = from_source(func.script())
    assert structural_equal(func, again)
    assert structural_hash(func) == structural_hash(again)


def test_prim_funcs_of_deep_expressions_run() -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        for i in range(2):
            b[i] = VALUE

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.call_tir(Module.f, (x,), out_ty=R.Tensor((2,), "float32"))
        return y
"""
    for value in (" + ".join(["a[i]"] * 600), "T.abs(" * 100 + "a[i]" + ")" * 100):
        mod = from_source(text.replace("VALUE", value))
        assert structural_equal(from_source(mod.script()), mod)
        vm = VirtualMachine(relaxvm.build(mod))
        expected = 600 if "+" in value else 1
        np.testing.assert_array_equal(vm["main"](np.ones(2, "float32")), [expected] * 2)


# Too deep

TOO_DEEP = branches(4000)
DOORS: dict[str, Callable[[], object]] = {
    "structural_equal": lambda: structural_equal(TOO_DEEP, load_json(save_json(TOO_DEEP))),
    "structural_hash": lambda: structural_hash(TOO_DEEP),
    "printing": TOO_DEEP.script,
    "well_formed": lambda: analysis.well_formed(TOO_DEEP),
    "pass DeadCodeElimination": lambda: transform.DeadCodeElimination()(TOO_DEEP),
}


@pytest.mark.parametrize("door", DOORS)
def test_errors_about_depth(door: str) -> None:
    message = (
        rf"^{door}: function 'main': binding of 'y3999': nested too deeply, about 40\d\d levels, "
        "most of them If; bind parts of it to variables or move them to functions of their own, "
        r"or raise Python's limit by sys.setrecursionlimit"
    )
    with pytest.raises(NestingError, match=message) as caught:
        DOORS[door]()
    assert isinstance(caught.value, RecursionError)  # the class before NestingError existed
    assert isinstance(caught.value, DiagnosticError)
    assert len(caught.traceback) < 10


def test_build_has_the_same_error() -> None:
    with pytest.raises(NestingError, match=r"about 40\d\d levels, most of them If"):
        relaxvm.build(TOO_DEEP)


def test_a_greater_limit_helps() -> None:
    mod = branches(1000)
    with pytest.raises(NestingError):
        structural_hash(mod)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 10000)
    try:
        assert structural_hash(mod) == structural_hash(branches(1000))
    finally:
        sys.setrecursionlimit(limit)


def function(body: str) -> str:
    return f"@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n{body}\n    return x"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            function(f"    y = x\n    x = {' + '.join(['y'] * 20000)}"),
            NestingError,
            r"^<script>:1:1: nested too deeply for the parser of Python \(.*; bind parts",
        ),
        (
            function(f"    x = {'R.abs(' * 300}x{')' * 300}"),
            DiagnosticError,
            r"^<script>:3:\d+: too many nested parentheses",
        ),
        (
            function(
                "    if R.const(True):\n        y = x\n"
                + "    elif R.const(True):\n        y = x\n" * 2500
                + "    else:\n        y = x"
            ),
            NestingError,
            # The parser or a later walk, whichever goes deeper.
            r"<script>:\d+:5: (parsing: )?nested too deeply, about \d+ levels, most of them If; ",
        ),
    ],
    ids=["sum", "parentheses", "elif"],
)
def test_texts_that_are_too_deep(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_source(text)


def test_other_recursion_errors_are_not_nesting_errors() -> None:
    """Endless recursion is a different mistake, and remains a RecursionError."""

    @with_headroom("running")
    def endless(program: Expr) -> None:
        endless(program)

    with pytest.raises(RecursionError) as caught:
        endless(Var("x", TENSOR))
    assert not isinstance(caught.value, NestingError)


# Types that share parts: every line of a program may double their size

TOO_LARGE = "a type of 131071 parts: a type has at most 65535, where shared parts count once per"


def doubled(levels: int, field: Type = TENSOR) -> Type:
    for _ in range(levels):
        field = TupleType((field, field))
    return field


def doubling(levels: int) -> str:
    lines = [f"    y{i + 1} = (y{i}, y{i})\n" for i in range(levels)]
    return (
        "@R.function\ndef main(y0: R.Tensor((2,), 'float32')):\n"
        f"{''.join(lines)}    return y{levels}"
    )


def build_doubling(levels: int) -> IRModule:
    y = Var("x", TENSOR)
    bb = BlockBuilder()
    with bb.function("main", [y]):
        for _ in range(levels):
            y = bb.emit(Tuple([y, y]))
        bb.emit_func_output(y)
    return bb.get()


@pytest.mark.parametrize("levels", [24, 60, 1000])
def test_a_type_that_is_too_large_is_refused_where_it_is_made(levels: int) -> None:
    with pytest.raises(DiagnosticError, match=rf"^<script>:18:11: {TOO_LARGE}"):
        from_source(doubling(levels))
    for make in (build_doubling, doubled, lambda n: FuncType([doubled(n - 1)] * 2, TENSOR)):
        with pytest.raises(TypeSizeError, match=f"^{TOO_LARGE}"):
            make(levels)


def test_files_cannot_have_larger_ones() -> None:
    document = json.loads(save_json(doubled(15)))
    last = document["root"]["node"]
    assert structural_equal(load_json(json.dumps(document)), doubled(15))
    document["nodes"].append({"is": "TupleType", "fields": [{"node": last}, {"node": last}]})
    with pytest.raises(FormatError, match=rf"^nodes\[{last + 1}\] \(TupleType\): {TOO_LARGE}"):
        load_json(json.dumps(document))


def test_types_of_many_parts_take_no_time() -> None:
    mod, same = build_doubling(13), build_doubling(13)
    assert structural_equal(mod, same)
    assert structural_hash(mod) == structural_hash(same)
    vm = VirtualMachine(relaxvm.build(mod))
    found = vm["main"](np.ones(2, "float32"))
    for _ in range(13):
        assert found[0] is found[1]
        found = found[0]
    np.testing.assert_array_equal(found, [1, 1])


def nested(levels: int, field: Type) -> Type:
    for _ in range(levels):
        field = TupleType([field])
    return field


def test_types_of_a_thousand_levels() -> None:
    """With every method of `BlockBuilder` that walks types."""

    def build(levels: int) -> IRModule:
        x = Var("x", TensorType((Var("n", "int64"),), "float32"))
        param = Var("param", nested(levels, x.ty))
        bb = BlockBuilder()
        with bb.function("same", [param]):
            same = bb.emit_func_output(param)
        with bb.function("main", [x]):
            y: Any = x
            for _ in range(levels):
                y = bb.emit(Tuple([y]))
            y = bb.emit(Call(same, [y]))
            y = bb.match_cast(y, nested(levels, TensorType((Var("m", "int64"),), "float32")))
            for _ in range(levels):
                y = bb.emit(TupleGetItem(y, 0))
            bb.emit_func_output(y)
        return bb.get()

    mod = build(300 if LIMITED else 1000)
    assert structural_equal(load_json(save_json(mod)), mod)
    x = np.ones(3, "float32")
    np.testing.assert_array_equal(VirtualMachine(relaxvm.build(mod))["main"](x), x)
    with pytest.raises(NestingError, match=r"nested too deeply, about 200\d\d levels, most"):
        build(20000)


def test_operands_that_are_shared_are_compared_once() -> None:
    def shared(levels: int, x: Any, double: Callable[[Any], Any]) -> Any:
        for _ in range(levels):
            x = double(x)
        return x

    n, x = Var("n", "int64"), Var("x", TENSOR)
    doubles: tuple[tuple[int, Any, Callable[[Any], Any]], ...] = (
        (60, x, lambda y: op.add(y, y)),
        (11, n, lambda d: (d // 3 + n) * (d % 7 + n)),  # scalars have a bound
    )
    for most, start, double in doubles:
        a, b, c = (shared(levels, start, double) for levels in (most, most, most + 1))
        assert structural_equal(a, b)
        assert not structural_equal(a, c)
        assert structural_hash(a) == structural_hash(b) != structural_hash(c)


# Recursion headroom


def test_nested_headroom_and_threads_leave_the_limit_as_it_was() -> None:
    limit = sys.getrecursionlimit()
    with headroom("outer"):
        raised = sys.getrecursionlimit()
        assert raised > limit
        with headroom("inner"):
            assert sys.getrecursionlimit() == raised
        assert sys.getrecursionlimit() == raised
        assert not gc.isenabled()
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(300):
            with headroom("work"):
                assert sys.getrecursionlimit() == raised

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getrecursionlimit() == limit


def test_a_limit_that_is_set_inside_stays() -> None:
    limit = sys.getrecursionlimit()
    with headroom("work"):
        sys.setrecursionlimit(limit + 7)
    assert sys.getrecursionlimit() == limit + 7
    sys.setrecursionlimit(limit)


def test_decorated_functions_keep_their_signatures() -> None:
    names = list(inspect.signature(structural_hash).parameters)
    assert names == ["value", "map_free_vars", "skip_tensor_content"]
    assert (load_json.__doc__ or "").startswith("Return the node or value that")


# Normal form


def test_a_shared_operand_is_computed_once() -> None:
    x = Var("x", TENSOR)
    y: Any = x
    for _ in range(40):
        y = op.add(y, y)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        z = bb.emit(op.multiply(y, x))
        bb.emit_func_output(bb.emit(op.add(y, z)))
    assert len(bb.get()["main"].body.blocks[0].bindings) == 42


def test_operands_are_evaluated_from_left_to_right() -> None:
    x = Var("x", TENSOR)

    def call(name: str, *args: Expr) -> Expr:
        return op.call_packed(name, *args, ty_args=TENSOR)

    bb = BlockBuilder()
    with bb.function("main", [x], pure=False):
        inner = Tuple([call("b", call("a", x)), Tuple([call("c", x), x])])
        bb.emit_func_output(call("e", inner, call("d", x)))
    names = [b.value.op.global_symbol for b in bb.get()["main"].body.blocks[0].bindings]
    assert names == ["a", "b", "c", "d", "e"]


# Long programs


def test_work_grows_with_the_size_of_a_program() -> None:
    """Measured in calls of Python functions, not in time."""

    def program(length: int) -> IRModule:
        n = Var("n", "int64")
        x = Var("x", TensorType((n, 4), "float32"))
        bb = BlockBuilder()
        with bb.function("main", [x]):
            y: Any = x
            for _ in range(length):
                y = bb.emit(op.add(y, x))
            bb.emit_func_output(y)
        return bb.get()

    def count(work: Callable[[], object]) -> int:
        seen = 0

        def profile(frame: Any, event: str, arg: Any) -> None:
            nonlocal seen
            seen += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            work()
        finally:
            sys.setprofile(None)
        return seen

    def all_counts(length: int) -> dict[str, int]:
        mod, same = program(length), program(length)
        text = save_json(mod)
        return {
            "structural_equal": count(lambda: structural_equal(mod, same)),
            "structural_hash": count(lambda: structural_hash(mod)),
            "save_json": count(lambda: save_json(mod)),
            "load_json": count(lambda: load_json(text)),
            "well_formed": count(lambda: analysis.well_formed(mod)),
            "script": count(mod.script),
            "normalize": count(lambda: transform.Normalize()(mod)),
        }

    small, large = all_counts(300), all_counts(1200)
    for work, calls_made in large.items():
        assert calls_made < 4.4 * small[work], work


# Ill-formed programs made by hand


def test_build_refuses_ill_formed_programs() -> None:
    x, y, z = Var("x", TENSOR), Var("y", TENSOR), Var("z", TENSOR)

    def body(*bindings: VarBinding) -> SeqExpr:
        return SeqExpr([BindingBlock(bindings)], y)

    once = VarBinding(y, op.add(x, x))
    nested = VarBinding(y, op.add(op.add(x, x), x))
    for mod, rule, problem in (
        (module([x, x], body(once)), "defined_once", "x is defined twice"),
        (module([x], body(once, VarBinding(y, x))), "defined_once", "y is defined twice"),
        (module([x], body(VarBinding(y, z))), "defined_before_use", "z is not defined"),
        (
            module([x], body(nested)),
            "administrative_normal_form",
            "is a Call; bind it to a variable; relaxvm.transform.Normalize does",
        ),
    ):
        for pipeline in ("default", None):
            with pytest.raises(analysis.IllFormedError, match=problem) as caught:
                relaxvm.build(mod, relax_pipeline=pipeline)
            assert [v.rule for v in caught.value.violations] == [rule]
    relaxvm.build(transform.Normalize()(module([x], body(nested))))


# TVM's text


def test_types_mention_scalar_parameters_before_them() -> None:
    text = (
        "@R.function\ndef main(n: R.Prim('int64'), x: R.Tensor((n, 4), 'float32')):\n    return x"
    )
    func = from_source(text)
    n, x = func.params
    assert x.ty.dims[0] is n
    assert structural_equal(from_source(func.script()), func)
    with pytest.raises(DiagnosticError, match=r"variable 'm'; as a dimension in quotes, \"m\", it"):
        from_source(text.replace("(n, 4)", "(m, 4)"))


def test_constants_that_a_text_leaves_out_can_be_given() -> None:
    text = (
        "@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n"
        "    w: R.Tensor((2,), dtype='float32') = metadata['ir.GenericConst'][0]\n"
        "    return R.add(x, w)"
    )
    with pytest.raises(DiagnosticError, match="TVM leaves constants out of the text"):
        from_source(text)
    data = np.array([1, 2], "float32")
    func = from_source(text, {"metadata": {"ir.GenericConst": [data]}})
    vm = VirtualMachine(relaxvm.build(func))
    np.testing.assert_array_equal(vm["main"](data), [2, 4])


def test_bounds_of_unknown_variables_are_warned_of() -> None:
    text = (
        "@R.function\ndef main(x: R.Tensor(('batch',), 'float32')):\n"
        "    R.func_attr({'tir_var_upper_bound': {'bach': 8}})\n    return R.add(x, x)"
    )
    message = (
        "^function 'main': tir_var_upper_bound names 'bach', which is not a symbolic variable of "
        "its parameters; did you mean 'batch'"
    )
    with pytest.warns(RelaxVMWarning, match=message):
        transform.StaticPlanBlockMemory()(IRModule.from_expr(from_source(text)))
