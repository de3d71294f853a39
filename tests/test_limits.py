"""Limits on the contents of files: exact, named in errors, and checked wherever a file is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import LimitError
from relaxvm.executable import VMExecutable
from relaxvm.executable.debug_info import Span
from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.limits import Limits
from relaxvm.registry import Registry
from relaxvm.values import Shape
from relaxvm.verify import verify

LOAD = ("functions", "instructions", "registers", "call_args", "constants", "name_bytes", "rank",
        "shape_dims")  # fmt: skip


def program(
    *,
    name: str = "main",
    param: str = "x",
    registers: int = 1,
    args: int = 0,
    calls: int = 0,
    constants: tuple[Any, ...] = (),
    span: Span | None = None,
    var: str | None = None,
) -> VMExecutable:
    builder = ExecBuilder()
    with builder.function(name, num_inputs=1, param_names=[param]):
        builder.at(span, var)
        for i in range(1, registers):
            builder.emit_call("f", [builder.r(0)], dst=builder.r(i))
        for _ in range(calls):
            builder.emit_call("f", [builder.r(0)] * args)
        builder.emit_ret(builder.r(registers - 1))
    for constant in constants:
        builder.convert_constant(constant)
    return builder.get()


CASES: list[tuple[str, Callable[[], VMExecutable], int]] = [
    ("functions", lambda: program(calls=1), 2),
    ("instructions", lambda: program(calls=6), 7),
    ("registers", lambda: program(registers=5), 5),
    ("call_args", lambda: program(calls=2, args=9), 9),
    ("constants", lambda: program(constants=("a", "b", 1.5)), 3),
    ("name_bytes", lambda: program(name="n" * 40), 40),
    ("name_bytes", lambda: program(name="é" * 20), 40),
    ("name_bytes", lambda: program(param="p" * 30), 30),
    ("name_bytes", lambda: program(var="é" * 15), 30),
    ("name_bytes", lambda: program(span=Span("f" * 30, 1, 1)), 30),
    ("rank", lambda: program(constants=(np.zeros((1, 2, 1, 0)),)), 4),
    ("shape_dims", lambda: program(constants=(Shape([5, 6, 7]),)), 3),
]


@pytest.mark.parametrize(("field", "build", "size"), CASES)
def test_a_bound_is_exact_when_verifying(field, build, size):
    executable, registry = build(), Registry()
    for limit in (size, size + 1, None):
        assert verify(executable, limits=Limits().but(**{field: limit}), registry=registry).ok
    with pytest.raises(LimitError, match=f"{size} is above the limit {field}={size - 1}") as caught:
        verify(executable, limits=Limits().but(**{field: size - 1}), registry=registry)
    assert caught.value.limit == field


@pytest.mark.parametrize(("field", "build", "size"), CASES)
def test_a_bound_is_exact_when_loading(field, build, size, tmp_path):
    executable = build()
    data = executable.to_bytes()
    path = tmp_path / "it.vmexec"
    path.write_bytes(data)
    readers = (
        lambda limits: relaxvm.loads(data, limits=limits),
        lambda limits: relaxvm.load(path, limits=limits),
        lambda limits: relaxvm.load(path, limits=limits, mmap=True),
    )
    for read in readers:
        assert read(Limits().but(**{field: size})) == executable
        with pytest.raises(LimitError, match=field) as caught:
            read(Limits().but(**{field: size - 1}))
        assert caught.value.limit == field


def test_the_bytes_of_a_file(tmp_path):
    executable = program(constants=(np.arange(1000),))
    data = executable.to_bytes()
    path = tmp_path / "it.vmexec"
    path.write_bytes(data)
    tight, wide = (Limits().but(file_bytes=len(data) - 1), Limits().but(file_bytes=len(data)))
    for source in (data, path):
        assert relaxvm.load(source, limits=wide) == executable
        with pytest.raises(LimitError, match="file_bytes") as caught:
            relaxvm.load(source, limits=tight)
        assert caught.value.limit == "file_bytes"
    assert relaxvm.load(path, limits=tight, mmap=True) == executable


def test_every_bound_on_files_has_a_case():
    assert {field for field, *_ in CASES} == set(LOAD)


def test_limits_come_before_rules():
    """A count above its limit stops verification; other problems are not reported."""
    executable = program(calls=3)
    broken = VMExecutable(executable.functions, (), executable.instr_offset + 1, [9] * 99)
    with pytest.raises(LimitError, match="code: 4 is above the limit instructions=3"):
        verify(broken, limits=Limits().but(instructions=3), registry=Registry())


def test_the_message_names_the_function():
    with pytest.raises(LimitError, match="function 'main': 300 is above the limit registers=200"):
        verify(program(registers=300), limits=Limits().but(registers=200), registry=Registry())


def test_untrusted_limits_are_stricter_and_bound_everything():
    default, untrusted = Limits(), Limits.untrusted()
    for field in fields(Limits):
        bound, usual = getattr(untrusted, field.name), getattr(default, field.name)
        assert bound is not None, field.name
        assert usual is None or bound < usual, field.name


def test_the_preset_for_untrusted_files_refuses_what_the_default_takes():
    executable = program(name="n" * 2000)
    assert verify(executable, registry=Registry()).ok
    with pytest.raises(LimitError, match="name_bytes=1024"):
        verify(executable, limits=Limits.untrusted(), registry=Registry())


@pytest.mark.parametrize("value", [-1, True, "1", 1.5, [1]])
@pytest.mark.parametrize("field", ["functions", "fuel", "call_depth"])
def test_bounds_are_numbers(field, value):
    with pytest.raises(ValueError, match=rf"Limits\.{field}: expected a number >= 0 or None, got"):
        Limits(**{field: value})


def test_call_depth_is_always_bounded():
    with pytest.raises(ValueError, match="call_depth"):
        Limits(call_depth=None)  # type: ignore[arg-type]


def test_wall_time_may_be_a_fraction_but_not_nan():
    assert Limits(wall_time=0.25).wall_time == 0.25
    with pytest.raises(ValueError, match="got nan"):
        Limits(wall_time=float("nan"))


def test_but_changes_a_copy():
    limits = Limits.untrusted()
    other = limits.but(fuel=None, rank=3)
    assert (other.fuel, other.rank, other.registers) == (None, 3, limits.registers)
    assert limits.fuel == 10_000_000
    with pytest.raises(TypeError, match="nonsense"):
        limits.but(nonsense=1)
