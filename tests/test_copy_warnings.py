"""`CopyWarning`: large arguments that are copied for a kernel are reported by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, VirtualMachine
from relaxvm.core._native import LARGE_COPY, NativeFunction
from relaxvm.errors import CopyWarning
from relaxvm.native import toolchain
from relaxvm.native.functions import load_function

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="needs a C compiler")

SOURCE = Path(__file__).parent / "native_kernels.c"


@pytest.fixture
def noop() -> NativeFunction:
    library = toolchain.compile_c(SOURCE.read_text("utf-8"), name="kernels")
    return load_function(library, "noop", writes=None, alignment=64)


def machine(noop: NativeFunction) -> VirtualMachine:
    """A machine whose function `main(x, w)` gives `w`, `x` and a part of `x` to a kernel."""
    builder = ExecBuilder()
    with builder.function("main", num_inputs=2, param_names=["x", "w"]):
        builder.emit_call("part", [builder.r(0)], dst=builder.r(2))
        builder.emit_call("kernel", [builder.r(1), builder.r(0), builder.r(2)])
        builder.emit_ret(builder.r(1))
    return VirtualMachine(builder.get(), functions={"kernel": noop, "part": lambda x: x[::2]})


def numbers(offset: int = 0, size: int = LARGE_COPY // 4) -> Any:
    room = np.zeros(size + 32, np.float32)
    start = -room.ctypes.data % 64 // 4 + offset
    return room[start : start + size]


def reports(call: Any, *args: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args)
    assert all(each.category is CopyWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)  # the user's line
    return [str(each.message) for each in caught]


def test_arguments_by_name(noop: NativeFunction) -> None:
    main = machine(noop)["main"]
    x, w = numbers(), numbers(1)
    found = reports(main, x, w)
    assert len(found) == 1
    assert found[0].startswith("main: argument 'w', float32[16384]")
    assert "copied for noop in every call: its address is not a multiple of 64" in found[0]
    assert reports(main, x, w) == []  # once
    frozen = numbers()
    frozen.flags.writeable = False
    (found_again,) = reports(main, frozen, numbers())
    assert "main: argument 'x'" in found_again
    assert "read-only" in found_again


def test_arrays_that_are_no_arguments(noop: NativeFunction) -> None:
    (found,) = reports(machine(noop)["main"], numbers(size=LARGE_COPY), numbers())
    assert "main: noop: argument 2" in found
    assert "not contiguous" in found


def test_calls_from_python(noop: NativeFunction) -> None:
    (found,) = reports(noop, numbers(), numbers(3))
    assert found.startswith("noop: argument 1, float32[16384]")
    assert reports(noop, numbers(), numbers(3)) == []


def test_small_arrays_and_arrays_that_fit_are_not_reported(noop: NativeFunction) -> None:
    main = machine(noop)["main"]
    assert reports(main, numbers(), numbers()) == []
    assert reports(main, numbers(), numbers(1, LARGE_COPY // 4 - 1)) == []


def test_a_warning_that_is_an_error_is_raised_by_the_call(noop: NativeFunction) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CopyWarning)
        with pytest.raises(CopyWarning, match="argument 'w'"):
            machine(noop).main(numbers(), numbers(1))
