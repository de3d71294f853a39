"""The lowering passes compared with apache-tvm's: the output of each pass for the same script, and
the results of both VMs for the same arguments."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, transform
from relaxvm.ir import (
    Binding,
    ExprMutator,
    Function,
    IRModule,
    StringImm,
    assert_structural_equal,
    structural_equal,
)
from relaxvm.script import from_source
from relaxvm.tir import PrimFunc, SeqStmt
from relaxvm.values import Shape

from . import children
from .lowering_programs import EVERY_STAGE, FUNCTIONS, PROGRAMS, RESULTS_UNCHECKED, SKIPPED

pytest.importorskip("tvm")

PLANNED_ELSEWHERE = {"StaticPlanBlockMemory"}
"""Our planner is another one on purpose, and has tests of its own."""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """TVM's output for the programs; in another process, because TVM stays in memory."""
    path = tmp_path_factory.mktemp("tvm") / "lowered.pickle"
    children.run(
        [sys.executable, "-m", "tests.tvm_lowering", str(path)],
        cwd=Path(__file__).parent.parent,
        check=True,
        capture_output=True,
    )
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    return found


def read(text: str) -> IRModule:
    """Parse a module that TVM printed."""
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    text = re.sub(r"ErrorContext.*", _as_ours, text)
    module: IRModule = from_source(text, check_well_formed=False)
    return module


def comparable(mod: IRModule, *, return_checks: bool) -> IRModule:
    """Return the module in a form that can be compared: the stores of a shape function, which are
    independent, in one order; and, unless wanted, without checks of results.  TVM checks dimensions
    of results even if the function itself allocated the result with them; relaxvm does not."""
    mod = mod.copy()
    for var, func in list(mod.functions.items()):
        if isinstance(func, PrimFunc) and type(func.body) is SeqStmt:
            stores = sorted(func.body.seq, key=lambda store: int(store.indices[0]))
            mod[var] = PrimFunc(func.params, SeqStmt(stores), func.ret_type, attrs=func.attrs)
        elif isinstance(func, Function) and not return_checks:
            mod[var] = _WithoutReturnChecks().visit(func)
    return mod


class _WithoutReturnChecks(ExprMutator):
    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        args = getattr(binding.value, "args", ())
        if any(type(arg) is StringImm and "loc=return" in arg.value for arg in args):
            return []
        return super().visit_binding(binding)


def _as_ours(context: re.Match[str]) -> str:
    """Return an error context with types as our printer writes them: TVM writes integers, tuples
    and scalars in two ways each."""
    text = re.sub(r"T\.int64\((\d+)\)", r"\1", context[0]).replace("T.Tuple", "R.Tuple")
    text = re.sub(r"(annotation|ty)=T\.(\w+)\)", r'\1=R.Prim(\\"\2\\"))', text)
    return text.replace("R.Shape(ndim=-1)", "R.Shape")


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if EVERY_STAGE not in SKIPPED.get(name, ())]
)
def test_each_pass_has_the_output_of_tvms(name: str, theirs: dict[str, Any]) -> None:
    stages = theirs[name]["stages"]
    assert len(stages) == 12, theirs[name]["error"]
    before = read(stages[0][1])
    for stage, text in stages[1:]:
        after = read(text)
        if stage not in PLANNED_ELSEWHERE and stage not in SKIPPED.get(name, ()):
            ours = getattr(transform, stage)()(before)
            every = stage != "VMShapeLower" or name not in RESULTS_UNCHECKED
            try:
                assert_structural_equal(
                    comparable(ours, return_checks=every), comparable(after, return_checks=every)
                )
            except ValueError as error:
                error.add_note(f"after {stage}; TVM's text:\n{text}")
                raise
        before = after


def test_skipped_programs_still_differ(theirs: dict[str, Any]) -> None:
    for name, skipped in SKIPPED.items():
        if EVERY_STAGE in skipped:
            continue
        stages = theirs[name]["stages"]
        names = [stage for stage, _ in stages]
        for stage in skipped:
            before = read(stages[names.index(stage) - 1][1])
            after = comparable(read(stages[names.index(stage)][1]), return_checks=False)
            ours = comparable(getattr(transform, stage)()(before), return_checks=False)
            assert not structural_equal(ours, after), (name, stage)


@pytest.mark.parametrize("name", [name for name, p in PROGRAMS.items() if p.calls is not None])
def test_both_vms_have_the_same_results(name: str, theirs: dict[str, Any]) -> None:
    assert "error" not in theirs[name], theirs[name]["error"]
    program = PROGRAMS[name]
    assert program.calls is not None
    built = relaxvm.build(from_source(program.text))
    machine = VirtualMachine(built, functions=FUNCTIONS)
    for (function, *args), expected in zip(program.calls, theirs[name]["results"], strict=True):
        got = machine[function](*[_value(arg) for arg in args])
        assert _same(got, expected), (function, args, got, expected)


def _value(arg: Any) -> Any:
    if isinstance(arg, list):
        return Shape(arg)
    if isinstance(arg, tuple):
        return tuple(map(_value, arg))
    return arg.copy() if isinstance(arg, np.ndarray) else arg


def _same(a: Any, b: Any) -> bool:
    """Return whether a value is equal to TVM's, in which a shape is a list."""
    if isinstance(b, list):
        return isinstance(a, Shape) and list(a) == b
    if isinstance(b, tuple):
        return type(a) is tuple and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(b, np.ndarray):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bool(np.array_equal(a, b))
    return type(a) is type(b) and bool(a == b)
