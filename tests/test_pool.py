"""Pools of many small tensors, which are read and checked in one pass, without a call for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaxvm
from relaxvm import FunctionInfo, Limits, Shape, VMExecutable
from relaxvm.errors import LimitError, RelaxVMError
from relaxvm.executable.formats import _streams, binary
from relaxvm.isa import FuncKind

from .counting import python_calls

RANDOM = np.random.default_rng(0)
SMALL: list[Any] = [
    RANDOM.integers(0, 2, (2, 3)).astype(dtype)
    for dtype in ("f4", "f8", "i1", "u2", "i8", "c8", "?", "f2", ">f4")
]
SHAPES = [(), (0,), (3, 0), (1,), (7,), (2, 1, 3), (1,) * 31, (1,) * 32, (4097,), (1 << 14,)]
ODD: list[Any] = ["text", Shape((1, 2)), 7, 0.5, np.dtype("int8")]
MIXED = [*SMALL, *(RANDOM.random(shape).astype("f4") for shape in SHAPES), *ODD, *SMALL[:3] * 9]


def executable(constants: list[Any]) -> VMExecutable:
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 1, 1)
    return VMExecutable([main], constants, [0], [2, 0])


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read every constant by itself from now on."""

    def nothing(data: Any, position: int, *args: Any) -> tuple[list[Any], int, int]:
        return [], position, 0

    monkeypatch.setattr(_streams, "read_tensors", nothing)


def outcome(data: Any, **options: Any) -> tuple[Any, ...]:
    """Return the bytes of the executable that was read, or the error."""
    try:
        ex = relaxvm.load(data, **options)
    except RelaxVMError as error:
        return type(error), str(error)
    for value in ex.constants:
        if isinstance(value, np.ndarray):
            assert type(value) is np.ndarray
            assert value.flags.c_contiguous
            assert not value.flags.writeable
            assert options.get("mmap") or value.ctypes.data % 64 == 0
            address, size = value.ctypes.data, value.dtype.alignment
            assert value.flags.aligned == (address % size == 0)
    return (binary.dumps(ex),)


@pytest.mark.parametrize("mmap", [False, True], ids=["copied", "mapped"])
def test_the_same_as_one_by_one(mmap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = binary.dumps(executable(MIXED))
    assert outcome(data, mmap=mmap) == (data,)
    one_by_one(monkeypatch)
    assert outcome(data, mmap=mmap) == (data,)


def test_files_are_read_through_a_window(tmp_path: Any) -> None:
    path = tmp_path / "many.vmexec"
    data = binary.dumps(executable(MIXED * 20))
    path.write_bytes(data)
    assert len(data) > 4 * _streams._WINDOW
    assert relaxvm.load(path) == relaxvm.load(path, mmap=True) == relaxvm.load(data)


def test_many_take_as_many_calls_as_few() -> None:
    calls = []
    for count in (2, 25_000):
        data = binary.dumps(executable([np.full(4, i, "f4") for i in range(count)]))
        calls.append(python_calls(lambda data=data: binary.loads(data)))
    assert calls[0] == calls[1]


DATA = binary.dumps(executable(SMALL + ODD + SMALL))


@settings(max_examples=300)
@given(st.integers(0, len(DATA) - 1), st.integers(0, 255), st.integers(0, len(DATA)))
def test_damaged_streams_have_the_same_outcome(at: int, byte: int, end: int) -> None:
    data = bytearray(DATA)
    data[at] = byte
    for damaged in (bytes(data), bytes(data[:end])):
        together = outcome(damaged)
        with pytest.MonkeyPatch.context() as patch:
            one_by_one(patch)
            assert outcome(damaged) == together


def test_ranks_are_limited() -> None:
    """The first constant of too high a rank is named, however it is read."""
    data = binary.dumps(executable([np.ones(3), np.ones((1, 1, 1)), np.ones((1,) * 4)]))
    with pytest.raises(LimitError, match=r"constant 1: rank of a tensor: 3 is above .*rank=2"):
        relaxvm.load(data, limits=Limits(rank=2))
    ex = relaxvm.load(data, limits=Limits(rank=4))
    with pytest.raises(LimitError, match=r"constant 2: 4 is above the limit rank=3"):
        relaxvm.verify(ex, limits=Limits(rank=3))
