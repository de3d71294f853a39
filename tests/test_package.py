"""The package as it is installed: public names, import cost, files, wheel and sdist."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import relaxvm

ROOT = Path(__file__).parent.parent
INSTALLED = Path(relaxvm.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def python(code: str, cwd: Path) -> str:
    """What a fresh interpreter prints that imports the same relaxvm as this one."""
    env = {**os.environ, "PYTHONPATH": str(INSTALLED.parent)}
    command = [sys.executable, "-P", "-c", code]
    run = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def loaded_by(statement: str, tmp_path: Path) -> set[str]:
    """Modules that a statement loads, those that numpy needs apart."""
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
def test_verify_stays_the_function(statement: str, tmp_path: Path) -> None:
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
    assert loaded_by("import relaxvm", tmp_path) - {"__future__"} == {"relaxvm"}


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
    """Import time, counted in modules of others; the bound leaves room for a few more."""
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
    assert not {"relaxvm.kernels", "relaxvm.notes", "relaxvm.formats.text"} & loaded
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
    """``install relaxvm[extra]`` in an error is advice that works."""
    named = {
        extra
        for path in (ROOT / "relaxvm").rglob("*.py*")
        if path.suffix in (".py", ".pyx")
        for extra in re.findall(r"relaxvm\[([\w-]+)\]", path.read_text(encoding="utf-8"))
    }
    assert "ml-dtypes" in named
    assert named <= set(PROJECT["optional-dependencies"])


# Distributions


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A copy of this checkout, its sdist, and the wheel that is built from the unpacked sdist."""
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
    # -O0: what is built is looked at, not run for speed.
    env = {**os.environ, "CFLAGS": "-O0", "PYTHONPATH": ""}
    run = subprocess.run(
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
    assert {"py.typed", "_core.pyi", "_isa.pxd", "include/relaxvm/isa.h"} <= inside
    assert not [name for name in inside if name.endswith((".pyx", ".c", ".cpp", ".html"))]
    package = source / "relaxvm"
    assert {p.relative_to(package).as_posix() for p in package.rglob("*.py")} <= inside
    for path in package.glob("*.pyx"):
        assert [n for n in inside if n.startswith(f"{path.stem}.") and n.endswith((".so", ".pyd"))]


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
    """The wheel above was built from it, so it lacks nothing that a build needs."""
    _, sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md", "Makefile"} <= names
    assert {"relaxvm/_core.pyx", "include/relaxvm/isa.h", "tests/test_package.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]
    assert "relaxvm/_core.c" not in names


def test_the_extra_for_tests_brings_what_the_tests_import() -> None:
    """At their top; what else some of them need, they skip without."""
    extra = {
        re.split(r"\W", requirement)[0] for requirement in PROJECT["optional-dependencies"]["test"]
    }
    imported = set()
    modules = Path(__file__).parent.rglob("*.py")
    for path in (path for path in modules if "tvm" not in path.name):  # these skip without TVM
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.partition(".")[0])
    assert imported - sys.stdlib_module_names <= extra | {"numpy", "relaxvm"}
