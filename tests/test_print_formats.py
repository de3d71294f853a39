"""Formats and texts of `print` and `assert_op`, which come from files: output is bounded and does
not reveal addresses of the process."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.builtins.run import assert_op, print_formatted
from relaxvm.errors import LinkError


def printed(*args: Any) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print_formatted(*args)
    return out.getvalue()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("{} and {}", 1, "two"), "1 and two"),
        (("{1} {0} {1}", 1, 2), "2 1 2"),
        (("{{{}}}", 1), "{1}"),
        (("no field", 1), "no field"),
        (("", 1, (2, "x")), "1 (2, 'x')"),
        (("{}", {"a": 1}), "{'a': 1}"),
    ],
)
def test_fields(args: tuple[Any, ...], text: str) -> None:
    assert printed(*args) == text + "\n"
    with pytest.raises(AssertionError) as error:
        assert_op(False, *args)
    assert str(error.value) == (text if args[0] else ", ".join(["1", "(2, 'x')"]))


@pytest.mark.parametrize(
    "template",
    ["{0:>4000000000}", "{0.__class__}", "{0.__class__.__subclasses__}", "{0[0]}", "{x}", "{!r}",
     "{:}", "}", "{", "{0", "{ }", "{-1}", "{0000000000}"],
)  # fmt: skip
def test_other_fields_are_refused(template: str) -> None:
    shown = re.escape(repr(template[:17]))[:-1]
    for function, args in ((print_formatted, ()), (assert_op, (False,))):
        with pytest.raises(ValueError, match=r"format: expected \{\}, \{NUMBER\}") as error:
            function(*args, template, "value")
        assert re.search(shown, str(error.value))


def test_a_field_without_a_value() -> None:
    with pytest.raises(IndexError, match=r"print: format: field \{2\} has no value, there are 2"):
        print_formatted("{2}", 1, 2)
    with pytest.raises(IndexError, match=r"format: field \{\} has no value, there are 1"):
        assert_op(False, "{}{}", 1)


def test_long_texts_are_cut() -> None:
    value = "x" * (1 << 20)
    assert len(printed("{0}{0}{0}", value)) < (1 << 20) + 10
    assert len(printed("", *[value] * 10)) < (1 << 20) + 100
    assert printed("{}" * 3, "a", "b", "c") == "abc\n"


def test_no_addresses_are_printed() -> None:
    values = (object(), print, lambda: 0, (object(),), {1: object()}, 10**5000, object)
    for value in values:
        text = printed("{}", value)
        assert "0x" not in text, text
        assert len(text) < 100
    assert printed("", np.arange(3), relaxvm.Shape([1])) == "[0 1 2] Shape(1)\n"


def program(name: str, *args: Any) -> relaxvm.VMExecutable:
    builder = ExecBuilder()
    with builder.function("main", num_inputs=1):
        operands = [builder.convert_constant(arg) for arg in args]
        builder.emit_call(name, [*operands, builder.r(0)])
        builder.emit_ret(builder.r(0))
    return builder.get()


@pytest.mark.parametrize(
    ("name", "args"),
    [("relax.run.print", ("{}",)), ("vm.builtin.print", ()), ("vm.builtin.debug_print", ("line",))],
)
def test_printing_has_to_be_allowed(name: str, args: tuple[Any, ...]) -> None:
    """Writing to the standard output is an effect, which an untrusted program may not have."""
    executable = program(name, *args)
    with pytest.raises(LinkError, match=re.escape(name)):
        VirtualMachine(executable, functions={}, limits=Limits.untrusted())
    vm = VirtualMachine(executable, functions=[name], limits=Limits.untrusted())
    out = io.StringIO()
    with redirect_stdout(out):
        vm["main"](np.float32([1.5]))
    assert "1.5" in out.getvalue()
