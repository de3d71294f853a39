"""Arguments over the memory of other objects: it cannot go away while an array refers to it.

What numpy and Python allow nevertheless is in ``docs/trust.md``.
"""

from __future__ import annotations

import array
import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, VirtualMachine, VMExecutable

SIZE = 1 << 14


def program() -> VMExecutable:
    """``main(x)``: a packed function is called between two uses of x."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("total", [b.r(0)], dst=b.r(1))
        b.emit_call("take_away", [], dst=b.r(2))
        b.emit_call("total", [b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(1))
        b.emit_ret(b.r(1))
    return b.get()


def run(x: Any, take_away: Callable[[], object]) -> Any:
    functions = {"total": lambda x: int(x.view(np.uint8).sum()), "take_away": take_away}
    return VirtualMachine(program(), functions=functions).main(x)


def mapped(path: Path) -> mmap.mmap:
    path.write_bytes(bytes([1]) * SIZE)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def resized(x: bytearray) -> None:
    x.extend(bytes(1 << 20))


def appended(x: array.array[int]) -> None:
    x.extend([0] * (1 << 18))


@pytest.mark.parametrize("as_array", [False, True], ids=["itself", "an array over it"])
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (mapped, mmap.mmap.close),
        (mapped, lambda x: x.resize(4096)),
        (lambda _: bytearray([1]) * SIZE, resized),
        (lambda _: bytearray([1]) * SIZE, bytearray.clear),
        (lambda _: array.array("B", [1] * SIZE), appended),
    ],
    ids=["close a map", "resize a map", "resize", "clear", "append"],
)
def test_memory_in_use_is_not_taken_away(
    tmp_path: Path, make: Callable[[Path], Any], change: Callable[[Any], None], as_array: bool
) -> None:
    owner = make(tmp_path / "file")
    refused: list[str] = []

    def take_away() -> None:
        try:  # pytest would keep the exception, and with its frames the array
            change(owner)
        except BufferError as error:
            refused.append(str(error))

    x = np.asarray(owner) if as_array else owner
    result = run(x, take_away)
    assert result == (SIZE, SIZE)
    assert len(refused) == 1
    del x
    change(owner)  # nothing refers to it after the call


def test_a_released_memoryview_keeps_its_memory() -> None:
    owner = bytearray([1]) * SIZE
    view = memoryview(owner)

    def release() -> None:
        view.release()
        with pytest.raises(BufferError):
            owner.clear()

    assert run(view, release) == (SIZE, SIZE)
    owner.clear()


def test_an_array_in_use_is_not_resized() -> None:
    x = np.ones(SIZE, np.uint8)

    def resize() -> None:
        with pytest.raises(ValueError, match="cannot resize"):
            x.resize(1 << 20)

    assert run(x, resize) == (SIZE, SIZE)


def test_ctypes_arrays_may_go() -> None:
    """The array keeps the object alive."""
    held = [(ctypes.c_uint8 * SIZE)(*[1] * SIZE)]
    x = np.asarray(held[0])
    assert run(x, held.clear) == (SIZE, SIZE)
