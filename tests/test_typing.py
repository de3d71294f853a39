"""What type checkers and editors see."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import relaxvm
from relaxvm.op import CONSTRUCTORS

from . import children

TYPED = Path(__file__).parent / "typed"


def public() -> Iterator[tuple[str, Any]]:
    """Classes, their methods and properties, and functions, by name."""
    for name in relaxvm.__all__:
        value = getattr(relaxvm, name)
        inside = getattr(value, "__all__", []) if inspect.ismodule(value) else []
        found = {name: value, **{f"{name}.{key}": getattr(value, key) for key in inside}}
        for key, each in found.items():
            if inspect.isclass(each) or inspect.isfunction(each):
                yield key, each
            if inspect.isclass(each):
                for method, member in vars(each).items():
                    function = member.fget if isinstance(member, property) else member
                    function = getattr(function, "__func__", function)  # of a class method
                    own = not method.startswith("_") or method in ("__init__", "__call__")
                    if inspect.isfunction(function) and own:
                        yield f"{key}.{method}", function


def test_type_hints_of_public_objects() -> None:
    wrong, seen = [], set()
    for name, value in public():
        seen.add(name)
        try:
            typing.get_type_hints(value)
        except (AttributeError, NameError) as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
    assert {"VMExecutable.data_types", "VirtualMachine.__init__", "load_run"} <= seen


@pytest.mark.parametrize(("what", "found"), [
    ("VMExecutable.data_types.fget", "dict[str, relaxvm.adt.DataType]"),
    ("VMExecutable.signatures.fget", "dict[str, relaxvm.field_types.FunctionField]"),
    ("VMExecutable.mod.fget", "<class 'relaxvm.contrib.tvm.module.ExecutableModule'>"),
    ("VMExecutable.jit", "<class 'relaxvm.contrib.tvm.module.ExecutableModule'>"),
    ("VirtualMachine.data_types.fget", "dict[str, relaxvm.adt.DataType]"),
    ("VirtualMachine.module.fget", "<class 'relaxvm.contrib.tvm.module.VMModule'>"),
    ("IRModule.data_types.fget", "dict[str, relaxvm.adt.DataType]"),
    ("load_run", "<class 'relaxvm.vm.runs.Run'>"),
])  # fmt: skip
def test_types_of_later_layers_are_found_on_first_use(what: str, found: str) -> None:
    """In a new process, which has imported nothing but what is asked for."""
    code = f"import relaxvm, typing; print(typing.get_type_hints(relaxvm.{what})['return'])"
    done = children.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == found


def test_dir_of_script_names_every_operator_in_a_new_process() -> None:
    code = "from relaxvm.script import relax as R; print(*dir(R)); print(*dir(R.nn))"
    done = children.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    names, nn = (set(line.split()) for line in done.stdout.splitlines())
    assert {name for name in CONSTRUCTORS if "." not in name} <= names
    assert {name.removeprefix("nn.") for name in CONSTRUCTORS if name.startswith("nn.")} <= nn
    assert {"Tensor", "function", "str", "emit"} <= names


def test_stubs_have_every_operator() -> None:
    folder = Path(relaxvm.__file__).parent / "script" / "_operators"
    text = {path.stem: path.read_text() for path in folder.glob("*.pyi")}
    for name in CONSTRUCTORS:
        module, _, own = name.rpartition(".")
        if module or own not in relaxvm.script.relax.__all__:  # else it is declared there
            assert f"def {own}(" in text[module or "__init__"]


def test_mypy_accepts_code_around_scripts_and_in_them(tmp_path: Path) -> None:
    """It objects to what the files say, and to nothing else."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental",
               "--follow-imports=silent", "--hide-error-context", "--no-pretty",
               f"--cache-dir={tmp_path}", str(TYPED)]  # fmt: skip
    done = children.run(command, text=True, capture_output=True, cwd=tmp_path)
    found = {
        (Path(path).name, int(line), code)
        for path, line, code in re.findall(r"^(.*?):(\d+): error: .*\[(.*)\]$", done.stdout, re.M)
    }
    expected = {
        (path.name, number, code)
        for path in TYPED.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for code in re.findall(r"  # E: (.*)$", line)
    }
    assert len(expected) == 8
    assert found == expected, done.stdout + done.stderr


@pytest.mark.parametrize("name", [path.name for path in sorted(TYPED.glob("*.py"))])
def test_typed_programs_run(name: str) -> None:
    children.run([sys.executable, "-P", str(TYPED / name)], capture_output=True, check=True)
