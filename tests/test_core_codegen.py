"""The dispatch loop compiles to one C switch, without operations on Python objects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relaxvm.core.operations import OPERATIONS

PACKAGE = Path(__file__).parent.parent / "relaxvm"


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The C code of the function that contains the loop."""
    compiler = pytest.importorskip("Cython.Compiler.Main")
    if not (PACKAGE / "_core.pyx").exists():
        pytest.skip("the sources of the core are not here")
    target = tmp_path_factory.mktemp("core") / "_core.c"
    options = compiler.CompilationOptions(
        compiler.default_options,
        include_path=[str(PACKAGE.parent)],
        compiler_directives={"language_level": 3, "wraparound": False, "boundscheck": False,
                             "initializedcheck": False, "nonecheck": False, "cdivision": True},
        output_file=str(target),
    )  # fmt: skip
    result = compiler.compile_single(str(PACKAGE / "_core.pyx"), options, "relaxvm._core")
    assert result.num_errors == 0
    text = target.read_text(encoding="utf-8")
    start = re.search(r"^static PyObject \*__pyx_f_7relaxvm_5_core__run\([^;]*?\{$", text, re.M)
    assert start is not None
    return text[start.start() : text.index("\n}\n", start.start())]


def operations() -> list[str]:
    return [f"OP_{operation.name.upper()}" for operation in OPERATIONS]


def test_one_switch_with_a_case_per_operation(loop: str) -> None:
    assert loop.count("switch (__pyx_v_op)") == 1
    cases = re.findall(r"case __pyx_e_7relaxvm_4core_11_operations_(OP_\w+):", loop)
    assert sorted(cases) == sorted(operations())


def test_no_python_objects_are_made_in_the_loop(loop: str) -> None:
    code = re.sub(r"/\*.*?\*/", "", loop, flags=re.S)
    for call in ("__Pyx_PyObject_", "PyTuple_Pack", "__Pyx_GetAttr", "__Pyx_GetModuleGlobalName",
                 "__Pyx_AddTraceback", "PyUnicode_", "__Pyx_ExceptionSave"):  # fmt: skip
        assert call not in code, call


def test_no_comprehension_binds_objects() -> None:
    """Cython 3.3.1 releases the variable of a comprehension twice if an allocation fails in it.  A
    number of C, as in ``for i in range(n)``, has nothing to release."""
    found = []
    for path in sorted(PACKAGE.rglob("*.pyx")):
        text = re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text())
        for match in re.finditer(r"[\[{][^\[\]{}()]*(?:[(\[][^()\[\]]*[)\]][^\[\]{}()]*)*?"
                                 r"\bfor\s+[\w, ]+\s+in\s+(\w+)", text):  # fmt: skip
            if match[1] != "range":
                found.append(f"{path.name}: {' '.join(match[0].split())}")
    assert not found
