"""Helpers that compare programs before and after a pass, as script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import relaxvm
from relaxvm.analysis import well_formed
from relaxvm.ir import IRModule, assert_structural_equal
from relaxvm.script import from_source


def module(*functions: str) -> IRModule:
    """A module of functions as script."""
    body = "\n\n".join(function.strip("\n") for function in functions)
    if "class Module" not in body:
        lines = [f"    {line}" if line else line for line in _dedented(body).split("\n")]
        body = "@I.ir_module\nclass Module:\n" + "\n".join(lines)
    made: IRModule = from_source(body)
    return made


def _dedented(text: str) -> str:
    lines = text.split("\n")
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines)


def apply(run: Callable[[IRModule], IRModule], before: str | IRModule) -> IRModule:
    """Apply a pass; check that its output is well-formed and that its input did not change."""
    mod = module(before) if isinstance(before, str) else before
    text = mod.script()
    result = run(mod)
    assert mod.script() == text, "the pass changed its input module"
    well_formed(result)
    return result


def check(run: Callable[[IRModule], IRModule], before: str, after: str, *,
          again: bool = False) -> None:  # fmt: skip
    """Check that a pass turns `before` into `after` and, with `again`, does not change `after`."""
    expected = module(after)
    result = apply(run, before)
    assert_structural_equal(result, expected)
    if again:
        assert_structural_equal(run(result), expected)


def unchanged(run: Callable[[IRModule], IRModule], before: str) -> None:
    """Check that a pass has nothing to do and returns the same function objects."""
    mod = module(before)
    result = apply(run, mod)
    for var, func in mod.functions.items():
        assert result[var] is func, f"{var.name_hint} is a new object"


def run(mod: IRModule, *args: Any, function: str = "main", **options: Any) -> Any:
    """Build a function with the default pipeline and return its result on the VM."""
    return relaxvm.VirtualMachine(relaxvm.build(mod), **options)[function](*args)
