"""What type checkers and editors see."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator
from typing import Any

import relaxvm
from relaxvm.op import CONSTRUCTORS

from . import children

OF_OTHER_PARTS = {"VMExecutable.native_program", "VMExecutable.jit"}
"""Their types are in parts that executables do not import."""


def public() -> Iterator[tuple[str, Any]]:
    """Classes, their methods, and functions, by name."""
    for name in relaxvm.__all__:
        value = getattr(relaxvm, name)
        inside = getattr(value, "__all__", []) if inspect.ismodule(value) else []
        found = {name: value, **{f"{name}.{key}": getattr(value, key) for key in inside}}
        for key, each in found.items():
            if inspect.isclass(each) or inspect.isfunction(each):
                yield key, each
            if inspect.isclass(each):
                for method, function in vars(each).items():
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield f"{key}.{method}", function


def test_type_hints_of_public_objects() -> None:
    wrong = set()
    for name, value in public():
        try:
            typing.get_type_hints(value)
        except NameError as error:
            wrong.add(f"{name}: {error}")
    assert {line.partition(":")[0] for line in wrong} == OF_OTHER_PARTS, wrong


def test_dir_of_script_names_every_operator_in_a_new_process() -> None:
    code = "from relaxvm.script import relax as R; print(*dir(R)); print(*dir(R.nn))"
    done = children.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    names, nn = (set(line.split()) for line in done.stdout.splitlines())
    assert {name for name in CONSTRUCTORS if "." not in name} <= names
    assert {name.removeprefix("nn.") for name in CONSTRUCTORS if name.startswith("nn.")} <= nn
    assert {"Tensor", "function", "str", "emit"} <= names


def test_stubs_have_every_operator() -> None:
    from pathlib import Path

    folder = Path(relaxvm.__file__).parent / "script" / "_operators"
    text = {path.stem: path.read_text() for path in folder.glob("*.pyi")}
    for name in CONSTRUCTORS:
        module, _, own = name.rpartition(".")
        if module or own not in relaxvm.script.relax.__all__:  # else it is declared there
            assert f"def {own}(" in text[module or "__init__"]
