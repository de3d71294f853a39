"""Instances of subclasses of node classes are treated as nodes of the base class."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from relaxvm import VirtualMachine, build, ir, tir, transform
from relaxvm.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    assert_structural_equal,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
)
from relaxvm.ir.expr import ExternFunc, StringImm
from relaxvm.ir.node import KINDS, class_table, node_classes
from relaxvm.script import from_source
from relaxvm.transform.pipelines import LOWERING, LOWERING_FOR_TVM
from relaxvm.values import Shape

PROGRAM = '''
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Program:
    @T.prim_func(private=True)
    def double(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            Y[i] = X[i] * T.float32(2)

    @R.function(private=True)
    def halved(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.multiply(x, R.const(0.5, "float32"))
        return y

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 3), "float32"), flag: R.Tensor((), "bool"), s: R.Shape(["k"])):
        n, k = T.int64(), T.int64()
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            p = (a, R.shape([n, k]), R.str("part"))
            c = R.reshape(p[0], (n * 3,))
            d = R.call_tir(Program.double, (c,), R.Tensor((n * 3,), "float32"))
            R.output(b, d)
        e = Program.halved(d)
        if flag:
            f: R.Tensor((n * 3,), "float32") = R.sin(e)
        else:
            f = R.negative(e)

        @R.function
        def inner(y: R.Tensor((n * 3,), "float32")) -> R.Tensor((n * 3,), "float32"):
            z = R.add(y, e)
            return z

        g = inner(f)
        h: R.Any = R.call_packed("vm.builtin.copy", b, ty_args=R.Any)
        m = R.match_cast(h, R.Tensor((n, 3), "float32"))
        return m, g, R.shape([k, n])
'''


def derived(base: type) -> Any:
    """A subclass with an additional attribute."""
    return type(f"My{base.__name__}", (base,), {"__module__": "elsewhere", "note": "mine"})


BASES = (
    Var, DataflowVar, GlobalVar, Constant, Call, Tuple, TupleGetItem, ShapeExpr, If, SeqExpr,
    Function, ExternFunc, StringImm, VarBinding, MatchCast, BindingBlock, DataflowBlock,
)  # fmt: skip
MINE: Final[dict[type, Any]] = {base: derived(base) for base in BASES}


class _Subclassing:
    """Copies expressions and replaces some nodes by instances of subclasses."""

    def __init__(self, bases: set[type]) -> None:
        self.bases = bases
        self.count = 0
        self.copies: dict[int, Any] = {}

    def copy(self, x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(self.copy, x))
        if not isinstance(x, (Expr, Binding, BindingBlock)) or self.is_kept(x):
            return x
        if id(x) not in self.copies:
            mine = type(x) in self.bases
            self.count += mine
            new = self.copies[id(x)] = object.__new__(MINE[type(x)] if mine else type(x))
            for cls in type(x).__mro__:
                for slot in getattr(cls, "__slots__", ()):
                    if hasattr(x, slot):
                        setattr(new, slot, self.copy(getattr(x, slot)))
        return self.copies[id(x)]

    @staticmethod
    def is_kept(x: Any) -> bool:
        """Whether a node is never replaced: symbolic variables and shared nodes."""
        is_scalar = isinstance(getattr(x, "ty", None), ir.PrimType)
        has_parts = isinstance(x, (Binding, Call, If, TupleGetItem, SeqExpr))
        return isinstance(x, (GlobalVar, ir.Op)) or (is_scalar and not has_parts)


def subclassed(mod: IRModule, *bases: type) -> tuple[IRModule, int]:
    """Return the module with nodes of subclasses, and their number."""
    rewriter = _Subclassing(set(bases))
    new = IRModule(dict(mod.items()), mod.attrs, mod.global_infos)
    for var, func in mod.items():
        if isinstance(func, Function):
            new[var] = rewriter.copy(func)
    return new, rewriter.count


def plain() -> IRModule:
    mod: IRModule = from_source(PROGRAM)
    return mod


CASES: dict[str, tuple[type, ...]] = {
    **{base.__name__: (base,) for base in BASES if base is not GlobalVar},
    "all": tuple(base for base in BASES if base is not GlobalVar),
}


@pytest.fixture(params=CASES)
def modules(request: pytest.FixtureRequest) -> tuple[IRModule, IRModule]:
    mod = plain()
    mine, count = subclassed(mod, *CASES[request.param])
    assert count > 0, request.param
    return mod, mine


def test_subclasses_are_printed_as_their_bases(modules: tuple[IRModule, IRModule]) -> None:
    mod, mine = modules
    assert mine.script() == mod.script()
    assert_structural_equal(from_source(mine.script()), mod)


def test_subclasses_are_equal_to_their_bases(modules: tuple[IRModule, IRModule]) -> None:
    mod, mine = modules
    assert_structural_equal(mine, mod)
    assert_structural_equal(mod, mine)
    assert structural_hash(mine) == structural_hash(mod)
    other = from_source(PROGRAM.replace("R.sin(e)", "R.cos(e)"))
    assert not structural_equal(mine, other)


def test_subclasses_are_saved_as_their_bases(modules: tuple[IRModule, IRModule]) -> None:
    mod, mine = modules
    text = save_json(mine)
    assert '"My' not in text
    assert_structural_equal(load_json(text), mod)


def test_subclasses_are_well_formed(modules: tuple[IRModule, IRModule]) -> None:
    from relaxvm.analysis import well_formed

    assert well_formed(modules[1])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("passes", [LOWERING, LOWERING_FOR_TVM], ids=["default", "tvm"])
def test_every_pass_takes_subclasses(passes: Any, case: str) -> None:
    """Before each pass, nodes are replaced by instances of subclasses."""
    mod = plain()
    for make, _ in passes:
        mine, _ = subclassed(mod, *CASES[case])
        mod = make()(mod)
        assert_structural_equal(make()(mine), mod)


def test_subclasses_are_built_and_run(modules: tuple[IRModule, IRModule]) -> None:
    mod, mine = modules
    x = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)
    args = (x, np.array(True), Shape((7,)))
    want = VirtualMachine(build(mod))["main"](*args)
    for mode in ("bytecode", "compiled"):
        got = VirtualMachine(build(mine, exec_mode=mode))["main"](*args)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_subclasses_become_loops(modules: tuple[IRModule, IRModule]) -> None:
    mod, mine = modules
    expected = transform.LegalizeToLoops()(mod)
    assert_structural_equal(transform.LegalizeToLoops()(mine), expected)


def test_a_variable_of_a_class_with_another_constructor() -> None:
    """Passes that change the type of a variable create a plain variable."""

    class Named(Var):
        __slots__ = ("owner",)

        def __init__(self, owner: str) -> None:
            super().__init__(f"{owner}_x", ir.TensorType((2, 3), "float32"))
            self.owner = owner

    x = Named("me")
    builder = ir.BlockBuilder()
    from relaxvm import op

    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.add(x, x))
        builder.emit_func_output(y)
    mod = builder.get()
    assert "me_x" in mod.script()
    assert VirtualMachine(build(mod))["main"](np.ones((2, 3), np.float32)).sum() == 12


def test_no_code_asks_for_the_exact_class() -> None:
    names = "|".join(base.__name__ for base in BASES if base is not BindingBlock)
    exact = re.compile(rf"\btype\([^()]*\) is (?:not )?(?:{names})\b(?!\()")
    package = Path(ir.__file__).parent.parent
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if exact.search(line)
    ]
    assert not found, "isinstance() takes subclasses, too"


def test_kinds() -> None:
    for base, mine in MINE.items():
        assert KINDS[mine] is base
        assert KINDS[base] is base
        assert node_classes()[base.__name__] is base
        assert mine.__name__ not in node_classes()
    assert int not in KINDS


def test_a_class_with_fields_of_its_own_is_a_kind() -> None:
    class Elsewhere(Expr):
        __slots__ = ("parts",)
        FIELDS = ("parts",)

        def __init__(self, *parts: Expr) -> None:
            self.parts = parts
            self.ty = None
            self.span = None

    try:
        assert KINDS[Elsewhere] is Elsewhere
        x, y = Var("x", ir.ANY), Var("y", ir.ANY)
        assert structural_equal(Elsewhere(x), Elsewhere(x))
        assert not structural_equal(Elsewhere(x), Elsewhere(y))
        assert not structural_equal(Elsewhere(x), Tuple((x,)))
    finally:
        from relaxvm.ir.node import _CLASSES

        del _CLASSES["Elsewhere"]


def test_a_visitor_finds_the_method_of_the_base() -> None:
    seen: list[str] = []

    class Names(ir.ExprVisitor):
        def visit_var(self, var: Var) -> None:
            seen.append(var.name)

    visit: Callable[[Expr], None] = Names().visit
    visit(MINE[Tuple]((MINE[Var]("a", ir.ANY), MINE[DataflowVar]("b", ir.ANY))))
    assert seen == ["a", "b"]


def test_a_visitor_of_tir_finds_the_method_of_the_base() -> None:
    n = MINE[Var]("n", "int64")
    doubled = tir.substitute(n * 2, {n: Var("m", "int64")})
    assert str(doubled) == "m * 2"


def test_a_table_has_classes_that_are_defined_later() -> None:
    table = class_table({Var: "variable", Tuple: "tuple"})
    assert (table[Var], table[MINE[Var]], table[MINE[Tuple]]) == ("variable", "variable", "tuple")
    assert table[type("Later", (MINE[Var],), {"__module__": "elsewhere"})] == "variable"
    assert DataflowVar not in table
