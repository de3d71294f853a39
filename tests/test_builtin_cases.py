"""Every builtin has the results and errors of its cases."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from relaxvm import get_func
from relaxvm.registry import GLOBAL
from relaxvm.values import Shape

from .builtin_cases import CASES, names, own_builtins

pytestmark = pytest.mark.usefixtures("no_builtin_state")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        kinds = isinstance(a, Shape) == isinstance(b, Shape)
        return kinds and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    for line in CASES[name].strip().splitlines():
        text, expected, *condition = line.split(" | ")
        used = names()
        args = eval(text, used)
        function = get_func(name)
        error, colon, words = expected.partition(":")
        if colon and error.endswith(("Error", "Exit")):
            with pytest.raises(Exception) as raised:
                function(*args)
            found = [each.__name__ for each in type(raised.value).__mro__]
            assert error in found, f"{name}{line}: {raised.value!r}"
            assert words.strip() in str(raised.value), f"{name}{line}: {raised.value}"
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            got = function(*args)
        if expected != "any":
            assert same(got, eval(expected, used)), f"{name}{line}: {got!r}"
        for each in condition:
            used |= {"a": args, "got": got, "printed": printed.getvalue()}
            assert eval(each, used), f"{name}{line}: {args} {got!r} {printed.getvalue()!r}"


ONLY_ERRORS = {
    "relaxvm.builtin.fatal",
    "relaxvm.builtin.match_failure", "vm.builtin.kv_cache_disagg_mark_send",
    "vm.builtin.tensor_cache.load",
}
"""Builtins whose results are tested elsewhere, or that have none."""


def test_every_builtin_has_cases() -> None:
    """Every builtin has cases of results, and of errors unless it accepts any arguments."""
    assert set(CASES) == own_builtins()
    for name, table in CASES.items():
        lines = table.strip().splitlines()
        wrong = [line for line in lines if "Error: " in line or line.endswith("Error:")]
        record = GLOBAL.lookup(name)
        assert record is not None
        signature = record.signature
        assert signature is not None
        takes_anything = not signature.params and signature.max_args is None
        assert wrong or takes_anything, f"{name}: no line for an error"
        assert len(wrong) < len(lines) or name in ONLY_ERRORS, f"{name}: only errors"
