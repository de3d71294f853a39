"""Run the tests on every supported Python and on the oldest numpy, lint, and check types.

``nox`` runs everything with the interpreters that are installed and says which it skips;
``nox -s tests-3.13 -- tests/test_vm.py`` runs a part.
"""

from __future__ import annotations

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
