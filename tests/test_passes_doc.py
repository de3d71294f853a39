"""docs/passes.md: its table is the pipeline, and its examples are up to date."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from relaxvm import dpl, ir, transform
from relaxvm.script import from_source
from relaxvm.transform.pipelines import LOWERING

from .passes import check

PAGE = (Path(__file__).parent.parent / "docs" / "passes.md").read_text(encoding="utf-8")
IN_DEPTH_ELSEWHERE = {"AlterOpImpl", "Normalize", "NormalizeGlobalVar", "VMBuiltinLower"}
"""Passes that take PrimFuncs or whose effect a script cannot show, and the older name of one."""


class Example(NamedTuple):
    """A program before and after a pass.

    Attributes:
        call: Python code that creates the pass.
    """

    call: str
    before: str
    after: str


def examples() -> dict[str, Example]:
    found = {}
    for section in re.split(r"^### ", PAGE, flags=re.M)[1:]:
        name = section.split("\n", 1)[0]
        blocks = re.findall(r"```python\n(.*?)```", section, re.S)
        call = re.search(r"^`(\w+\(.*\))`$", section, re.M)
        if blocks:
            before, after = blocks
            found[name] = Example(call[1] if call else f"{name}()", before, after)
    return found


EXAMPLES = examples()


def test_the_table_is_the_pipeline() -> None:
    rows = re.findall(r"^\| (\w+) \| (.*) \|$", PAGE, re.M)
    assert rows[1:] == [(make().name, why) for make, why in LOWERING]


def test_every_pass_has_an_example() -> None:
    made = {
        name for name, value in vars(transform).items()
        if inspect.isfunction(value) and name[0].isupper()
    }  # fmt: skip
    assert made - IN_DEPTH_ELSEWHERE == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(name: str) -> None:
    example = EXAMPLES[name]
    names = {**vars(ir), **vars(transform), **vars(dpl)}
    check(eval(example.call, names), example.before, example.after)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_as_it_is_printed(name: str) -> None:
    for text in EXAMPLES[name][1:]:
        module: ir.IRModule = from_source(text)
        assert str(module).split("\n\n\n", 1)[1] + "\n" == text
