"""The installed package: public names, import cost, files, wheel and sdist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import runpy
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import relaxvm
from relaxvm import aliases
from relaxvm.op import OPERATORS

from . import children

ROOT = Path(__file__).parent.parent
INSTALLED = Path(relaxvm.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def python(code: str, cwd: Path) -> str:
    """Return the output of a new interpreter, which imports the same relaxvm as this one."""
    env = {**os.environ, "PYTHONPATH": str(INSTALLED.parent)}
    command = [sys.executable, "-P", "-c", code]
    run = children.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def loaded_by(statement: str, tmp_path: Path) -> set[str]:
    """Return the modules that a statement loads, without those of numpy."""
    code = (
        "import sys, json, numpy\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    return set(json.loads(python(code, tmp_path)))


# Names


@pytest.mark.parametrize("name", relaxvm.__all__)
def test_public_name(name: str) -> None:
    assert getattr(relaxvm, name) is not None
    assert name in dir(relaxvm)


def test_lazy_names_are_the_public_ones() -> None:
    assert set(relaxvm._HOME) | relaxvm._SUBMODULES | {"__version__"} == set(relaxvm.__all__)
    assert len(relaxvm.__all__) == len(set(relaxvm.__all__))


@pytest.mark.parametrize(("old", "new"), aliases.MODULES.items())
def test_old_name_of_a_module(old: str, new: str) -> None:
    assert importlib.import_module(f"relaxvm.{old}") is importlib.import_module(f"relaxvm.{new}")


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in aliases.NAMES.items() for name in names],
)
def test_old_name_in_a_module(module: str, name: str) -> None:
    home, _, new_name = aliases.NAMES[module][name].rpartition(".")
    new = getattr(importlib.import_module(f"relaxvm.{home}"), new_name)
    assert getattr(importlib.import_module(f"relaxvm.{module}"), name) is new


@pytest.mark.parametrize("order", [1, -1])
def test_submodules_of_an_old_name_are_imported_once(order: int, tmp_path: Path) -> None:
    names = ["relaxvm.formats.text", "relaxvm.executable.formats.text"][::order]
    code = f"import sys, {', '.join(names)}; print(*(sys.modules[n].__name__ for n in {names}))"
    assert python(code, tmp_path).split() == ["relaxvm.executable.formats.text"] * 2


@pytest.mark.parametrize("name", ["formats.nope", "formats.text.nope", "pipeline.nope"])
def test_a_submodule_that_an_old_name_does_not_have(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module(f"relaxvm.{name}")
    assert raised.value.name == f"relaxvm.{name}"
    if name.count(".") == 1 and not name.startswith("pipeline"):
        assert importlib.util.find_spec(f"relaxvm.{name}") is None


@pytest.mark.parametrize("old", aliases.MODULES)
def test_spec_of_an_old_name(old: str) -> None:
    spec = importlib.util.find_spec(f"relaxvm.{old}")
    module = importlib.import_module(f"relaxvm.{old}")
    assert spec is not None
    assert spec.origin == module.__file__
    assert module.__spec__ is not None
    assert module.__spec__.name == module.__name__ == f"relaxvm.{aliases.MODULES[old]}"


def test_an_old_name_is_not_a_script(tmp_path: Path) -> None:
    code = (
        "import runpy\ntry: runpy.run_module('relaxvm.pipeline')\nexcept ImportError as e: print(e)"
    )
    expected = "relaxvm.pipeline is an old name; run relaxvm.transform.pipelines instead\n"
    assert python(code, tmp_path) == expected


def test_formulas_by_their_old_name() -> None:
    from relaxvm.te.operators import FORMULAS  # type: ignore[attr-defined]

    dtypes, formula = FORMULAS["exp"]
    assert "float32" in dtypes
    assert callable(formula)
    assert set(FORMULAS) == {name for name, record in OPERATORS.items() if record.loops}


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'relaxvm' has no attribute 'nope'"):
        relaxvm.nope  # noqa: B018


def test_star_import(tmp_path: Path) -> None:
    code = "from relaxvm import *\nprint(ExecBuilder.__name__, callable(verify), callable(load))"
    assert python(code, tmp_path) == "ExecBuilder True True\n"


@pytest.mark.parametrize(
    "statement",
    ["import relaxvm.verify", "from relaxvm.verify import Report", "relaxvm.VirtualMachine"],
)
def test_verify_is_the_function(statement: str, tmp_path: Path) -> None:
    """A module of the package has the same name."""
    code = f"import relaxvm\n{statement}\nprint(type(relaxvm.verify).__name__)"
    assert python(code, tmp_path) == "function\n"


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc\d+|\.dev\d+)?", relaxvm.__version__)


def test_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{relaxvm.__version__}]" in text


# Imports


def test_import_loads_almost_nothing(tmp_path: Path) -> None:
    assert loaded_by("import relaxvm", tmp_path) - {"__future__"} == {"relaxvm", "relaxvm.aliases"}


def test_import_does_not_need_numpy(tmp_path: Path) -> None:
    assert python("import sys, relaxvm\nprint('numpy' in sys.modules)", tmp_path) == "False\n"


HEAVY = {
    "asyncio",
    "http",
    "hypothesis",
    "ml_dtypes",
    "scipy",
    "setuptools",
    "sklearn",
    "tvm",
    "xml",
}


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("from relaxvm import ExecBuilder", 20),
        ("from relaxvm import VirtualMachine, load, verify", 45),
        ("import relaxvm.cli", 35),
    ],
)
def test_modules_loaded(statement: str, most: int, tmp_path: Path) -> None:
    """Import time, measured in modules of other packages; the bound allows for a few more."""
    others = {name for name in loaded_by(statement, tmp_path) if not name.startswith("relaxvm")}
    assert not {name.partition(".")[0] for name in others} & HEAVY
    assert len(others) <= most, sorted(others)


RUN_ONE = """
import numpy as np, relaxvm
ib = relaxvm.ExecBuilder()
with ib.function("main", 1):
    ib.emit_call({name!r}, [ib.r(0), ib.r(0)], dst=ib.r(1))
    ib.emit_ret(ib.r(0))
x = np.full(3, 4.0)
relaxvm.VirtualMachine(relaxvm.loads(ib.get().to_bytes()), functions={functions}).main(x)
"""
"""A start of a program that names one function."""


def test_a_program_without_kernels_starts_without_them(tmp_path: Path) -> None:
    statement = RUN_ONE.format(name="it", functions="{'it': np.add}")
    loaded = loaded_by(statement, tmp_path)
    unneeded = {"relaxvm.kernels", "relaxvm.vm.error_notes", "relaxvm.executable.formats.text"}
    assert not unneeded & loaded
    assert not {"difflib", "hashlib", "html", "pathlib", "tempfile"} & loaded


@pytest.mark.parametrize("functions", ["None", "{}", "[]"])
def test_kernels_are_found_when_a_program_names_one(functions: str, tmp_path: Path) -> None:
    code = RUN_ONE.format(name="relaxvm.kernel.sqrt", functions=functions) + "print(x)"
    assert python(code, tmp_path) == "[2. 2. 2.]\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("register_func('relaxvm.kernel.sqrt', print)", "'relaxvm.kernel.sqrt' is already"),
        ("GLOBAL.register('relaxvm.kernel.sqrt', print)", "'relaxvm.kernel.sqrt' is already"),
        ("get_func('relaxvm.kernel.sqr')", "did you mean 'relaxvm.kernel.sqrt'"),
        ("get_func('kernel.softmax')", "did you mean 'relaxvm.kernel.nn.softmax'"),
        ("print('relaxvm.kernel.sqrt' in GLOBAL)", "True"),
        ("print('relaxvm.kernel.sqrt' in list_funcs())", "True"),
        ("print('relaxvm.kernel.sqrt' in Registry(parent=GLOBAL))", "True"),
        ("register_func('relaxvm.kernel.sqrt', print, override=True); "
         "print(get_func('relaxvm.kernel.sqrt') is print)", "True"),
        ("GLOBAL.remove('relaxvm.kernel.sqrt'); print('relaxvm.kernel.sqrt' in GLOBAL)", "False"),
    ],
)
def test_kernels_are_registered_when_first_asked_for(
    code: str, printed: str, tmp_path: Path
) -> None:
    start = "from relaxvm.registry import *\ntry: "
    assert printed in python(f"{start}{code}\nexcept Exception as error: print(error)", tmp_path)


# Files and metadata


def test_headers(tmp_path: Path) -> None:
    include = Path(relaxvm.get_include())
    assert "RELAXVM_OP_CALL = 1" in (include / "relaxvm" / "isa.h").read_text(encoding="utf-8")


def test_typed() -> None:
    assert (INSTALLED / "py.typed").is_file()
    for path in INSTALLED.glob("*.pyx"):
        assert path.with_suffix(".pyi").is_file(), f"{path.name} lacks a stub"


def test_show_versions(capsys: pytest.CaptureFixture[str]) -> None:
    relaxvm.show_versions()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:4])
    assert lines["relaxvm"].startswith(relaxvm.__version__)
    assert lines["python"].startswith(".".join(map(str, sys.version_info[:3])))
    import numpy as np

    assert lines["numpy"] == np.__version__


def test_numpy_is_the_only_dependency() -> None:
    assert [re.split(r"\W", item)[0] for item in PROJECT["dependencies"]] == ["numpy"]


def test_extras_that_messages_name_exist() -> None:
    """``install relaxvm[extra]`` in an error names an extra that exists."""
    named = {
        extra
        for path in (ROOT / "relaxvm").rglob("*.py*")
        if path.suffix in (".py", ".pyx")
        for extra in re.findall(r"relaxvm\[([\w-]+)\]", path.read_text(encoding="utf-8"))
    }
    assert "ml-dtypes" in named
    assert named <= set(PROJECT["optional-dependencies"])


# Distributions


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The namespace of setup.py."""
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    if not (ROOT / "setup.py").is_file():
        pytest.skip("no checkout")
    monkeypatch.delenv("RELAXVM_BUILD_JOBS", raising=False)
    return runpy.run_path(str(ROOT / "setup.py"))


def test_build_jobs(setup: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= setup["build_jobs"]() <= (os.cpu_count() or 1)
    monkeypatch.setenv("RELAXVM_BUILD_JOBS", "7")
    assert setup["build_jobs"]() == 7
    for wrong in ("0", "-1", "all"):
        monkeypatch.setenv("RELAXVM_BUILD_JOBS", wrong)
        with pytest.raises(SystemExit, match=f"expected a number from 1, got '{wrong}'"):
            setup["build_jobs"]()


def test_extensions_are_built_side_by_side(
    setup: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from setuptools import Distribution

    monkeypatch.setenv("RELAXVM_BUILD_JOBS", "7")
    for given, used in ((None, 7), (1, 1), ("3", 3)):
        command = setup["BuildExt"](Distribution())
        command.parallel = given
        command.finalize_options()
        assert command.parallel == used


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A copy of this checkout, its sdist, and the wheel built from the unpacked sdist."""
    pytest.importorskip("build")
    pytest.importorskip("Cython")
    if not (ROOT / "setup.py").is_file() or shutil.which("cc") is None:
        pytest.skip("no checkout, or no C compiler")
    out = tmp_path_factory.mktemp("dist")
    source = out / "source"
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", "*.so", "*.egg-info", "__pycache__", ".*_cache"
    )
    shutil.copytree(ROOT, source, ignore=ignored)
    # -O0: only the contents of the build are checked, not its speed.
    env = {**os.environ, "CFLAGS": "-O0", "PYTHONPATH": ""}
    run = children.run(
        [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", out, source],
        cwd=out,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return source, sdist, wheel


def test_wheel(distributions: tuple[Path, Path, Path]) -> None:
    source, _, wheel = distributions
    assert wheel.stat().st_size < 5 << 20
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"relaxvm", f"relaxvm-{relaxvm.__version__}.dist-info"}
    inside = {name.removeprefix("relaxvm/") for name in names}
    assert {"py.typed", "_core.pyi", "core/_isa.pxd", "include/relaxvm/isa.h"} <= inside
    assert not [name for name in inside if name.endswith((".pyx", ".c", ".cpp", ".html"))]
    package = source / "relaxvm"
    assert {p.relative_to(package).as_posix() for p in package.rglob("*.py")} <= inside
    for path in package.rglob("*.pyx"):
        stem = path.relative_to(package).with_suffix("").as_posix()
        assert [n for n in inside if n.startswith(f"{stem}.") and n.endswith((".so", ".pyd"))]


def test_wheel_metadata(distributions: tuple[Path, Path, Path]) -> None:
    _, _, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        folder = f"relaxvm-{relaxvm.__version__}.dist-info"
        metadata = archive.read(f"{folder}/METADATA").decode()
        scripts = archive.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in archive.namelist()
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert [line for line in required if "extra ==" not in line] == ["numpy>=1.26"]
    assert "License-Expression: Apache-2.0" in metadata
    assert "relaxvm = relaxvm.cli:main" in scripts


def test_sdist(distributions: tuple[Path, Path, Path]) -> None:
    """The wheel above was built from it, so it has everything that a build needs."""
    _, sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md", "Makefile"} <= names
    assert {"relaxvm/_core.pyx", "include/relaxvm/isa.h", "tests/test_package.py"} <= names
    assert {"relaxvm/kernels/c/kernel_call.h", "relaxvm/kernels/c/table.c"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]
    assert "relaxvm/_core.c" not in names


def test_the_extra_for_tests_brings_what_the_tests_import() -> None:
    """Imports at the top of modules; tests that need other packages are skipped without them, and
    what makes fixtures of PyTorch, and programs of packages that use onnxruntime, run in
    environments of their own."""
    extra = {
        re.split(r"\W", requirement)[0] for requirement in PROJECT["optional-dependencies"]["test"]
    }
    imported = set()
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        folder = path.relative_to(tests).parts[0]
        if "tvm" in path.name or folder.startswith(("torch_", "onnxruntime_programs")):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.partition(".")[0])
    imported -= sys.stdlib_module_names | {"_testcapi"}  # a private module of CPython
    assert imported <= extra | {"numpy", "relaxvm"}
