"""Exception classes: their bases, attributes, and their page in the documentation."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from relaxvm import errors
from relaxvm.errors import did_you_mean

DOCS = Path(__file__).parent.parent / "docs"
CLASSES = [getattr(errors, name) for name in errors.__all__ if name != "did_you_mean"]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_bases(cls: type[Exception]) -> None:
    assert cls.__doc__
    if cls is errors.MissingExtraError:
        assert issubclass(cls, ImportError)
    elif cls is errors.RelaxVMWarning:
        assert issubclass(cls, UserWarning)
    elif cls.__name__.endswith("Warning"):
        assert issubclass(cls, errors.RelaxVMWarning)
    else:
        assert issubclass(cls, errors.RelaxVMError)
        assert issubclass(cls, RuntimeError)


def test_bases_that_programs_for_tvm_rely_on() -> None:
    assert issubclass(errors.LinkError, errors.InternalError)
    assert issubclass(errors.ArityError, errors.InternalError)
    assert issubclass(errors.ParseError, errors.DiagnosticError)
    assert not issubclass(errors.BugError, errors.InternalError)
    for cls in (errors.ParseError, errors.FormatError, errors.BindError):
        assert issubclass(cls, ValueError)


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (errors.LinkError("text", ("a", "b")), {"missing": ("a", "b")}),
        (errors.LimitError("text", "fuel"), {"limit": "fuel"}),
        (errors.CompilerError("text", "more"), {"output": "more"}),
        (errors.ParseError("text", line=3, column=7), {"line": 3, "column": 7}),
        (errors.VerifyError("text", "a report"), {"report": "a report"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_attributes_survive_pickling(error: Exception, attributes: dict[str, object]) -> None:
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert type(each) is type(error)
        assert str(each) == "text"
        assert {name: getattr(each, name) for name in attributes} == attributes


def test_messages_of_internal_errors() -> None:
    assert str(errors.BugError("1 is 2")) == "this is a bug in relaxvm: 1 is 2"


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("mian", ["main", "other"], "; did you mean 'main'?"),
        ("add", ["add1", "add2", "zzz"], "; did you mean 'add2' or 'add1'?"),
        ("mian", [], ""),
        ("qqq", ["main"], ""),
    ],
)
def test_did_you_mean(name: str, known: list[str], hint: str) -> None:
    assert did_you_mean(name, known) == hint


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not shipped")
def test_every_class_has_its_section() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    sections = {
        name
        for title in re.findall(r"^## (.*Error.*|.*Warning.*)$", page, re.M)
        for name in title.split(", ")
    }
    tree = set(re.findall(r"── (\w+)", page))
    assert sections == {cls.__name__ for cls in CLASSES} - {"RelaxVMError"}
    assert tree == {cls.__name__ for cls in CLASSES}
