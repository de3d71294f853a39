"""The binary format: writing, reading, and malformed files."""

from __future__ import annotations

import copy
import io
import mmap
import os
import pickle
import stat
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import Limits
from relaxvm.dtypes import as_dtype
from relaxvm.errors import FormatError, LimitError, RelaxVMWarning
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.formats import binary
from relaxvm.executable.formats._tensors import tensor_over
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from .corpus import CORPUS
from .format_strategies import OWN_DTYPES, STREAM_DTYPES, by_hand, odd_executables, stream_constants
from .strategies import executables

SAVABLE = [case for case in CORPUS.values() if case.savable]


def with_constants(*constants: Any, scopes: dict[int, str] | None = None) -> VMExecutable:
    """An executable with one function that ignores the constants."""
    return VMExecutable(
        [FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 1, 1)], constants, [0], [2, 0], scopes
    )


# A second writer, by docs/format.md, for files that the first one would not write


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def i64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def i32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def string(data: bytes) -> bytes:
    return u64(len(data)) + data


def section(*entries: bytes) -> bytes:
    return u64(len(entries)) + b"".join(entries)


NEW = u64(0xD225DE2F4214151E) + string(b"0.14")
OLD = u64(0xD225DE2F4214151D) + string(b"0.14")
MAIN = i32(1) + string(b"main") + i64(0, 1, 1, 1) + u64(0)
CODE = section(i64(0)) + section(i64(2), i64(0))


def tensor(dims: tuple[int, ...], nbytes: int, data: bytes, dtype: bytes = b"\x02\x20\x01\x00",
           magic: int = 0xDD5E40F096B4A13F, reserved: int = 0, device: tuple[int, int] = (1, 0),
           rank: int | None = None) -> bytes:
    rank = len(dims) if rank is None else rank
    head = i32(70) + u64(magic, reserved) + i32(*device, rank) + dtype
    return head + i64(*dims, nbytes) + data


def stream(functions: bytes = section(MAIN), scopes: bytes = section(),
           constants: bytes = section(), code: bytes = CODE) -> bytes:
    return NEW + functions + scopes + constants + code


def constant(data: bytes) -> bytes:
    return stream(constants=section(data))


# Round trips


@given(executables())
def test_bytes_round_trip(ex: VMExecutable) -> None:
    data = binary.dumps(ex)
    again = binary.loads(data)
    assert again == ex
    assert hash(again) == hash(ex)
    assert binary.dumps(again) == data


@given(odd_executables(stream_constants()))
def test_bytes_round_trip_of_any_structure(ex: VMExecutable) -> None:
    data = binary.dumps(ex)
    for share in (False, True):
        again = binary.loads(data, mmap=share)
        assert again == ex
        assert again.debug == ex.debug
    assert binary.dumps(binary.loads(data)) == data


@pytest.mark.parametrize("case", SAVABLE, ids=str)
def test_corpus_round_trips(case: Any) -> None:
    data = case.executable.to_bytes()
    assert binary.loads(data) == case.executable
    assert binary.dumps(case.build()) == data


def test_golden_bytes(golden: Callable[[str, bytes], None]) -> None:
    golden("everything.bin", by_hand().to_bytes())


def test_the_bytes_follow_the_format_by_the_letter() -> None:
    floats = np.array([1, 2], np.float32)
    ex = VMExecutable(
        [FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 1, 1, ("x",)),
         FunctionInfo(FuncKind.PACKED, "f")],
        [floats, Shape((3,)), "ab", np.dtype("int8"), -5, 0.5],
        [0], [2, 0], {1: "local", 0: "global"},
    )  # fmt: skip
    assert ex.to_bytes() == b"".join([
        NEW,
        section(i32(1) + string(b"main") + i64(0, 1, 1, 1) + section(string(b"x")),
                i32(0) + string(b"f") + i64(0, 0, -2, 0) + section()),
        section(i64(0) + string(b"global"), i64(1) + string(b"local")),
        section(tensor((2,), 8, floats.tobytes()), i32(69) + section(i64(3)),
                i32(65) + string(b"ab"), i32(5) + b"\x00\x08\x01\x00", i32(1) + i64(-5),
                i32(3) + struct.pack("<d", 0.5)),
        CODE,
    ])  # fmt: skip


def test_a_data_type_that_may_be_any_is_none() -> None:
    """apache-tvm 0.25 writes one where later versions pass nothing."""
    ex = binary.loads(stream(constants=section(i32(5) + b"\x03\0\0\0")))
    assert ex.constants == (None,)


def test_the_older_magic_has_no_memory_scopes() -> None:
    data = OLD + section(MAIN) + section(i32(1) + i64(7)) + CODE
    ex = binary.loads(data)
    assert ex.constants == (7,)
    assert ex.memory_scopes == {}
    assert ex.to_bytes() == stream(constants=section(i32(1) + i64(7)))


@pytest.mark.parametrize("name", STREAM_DTYPES + OWN_DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 3)], ids=str)
def test_tensors_of_every_dtype_keep_every_bit(name: str, shape: tuple[int, ...]) -> None:
    dtype = as_dtype(name)
    size = int(np.prod(shape)) * dtype.itemsize
    bits = np.random.default_rng(size).integers(0, 2 if name == "bool" else 256, size)
    array = bits.astype(np.uint8).view(dtype).reshape(shape)
    for share in (False, True):
        (got,) = binary.loads(binary.dumps(with_constants(array)), mmap=share).constants
        assert got.dtype == dtype
        assert got.shape == shape
        assert got.tobytes() == array.tobytes()
        assert not got.flags.writeable


def test_nan_payloads_and_signs_survive() -> None:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32)
    number = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    ex = binary.loads(binary.dumps(with_constants(bits.view(np.float32), number)))
    assert ex.constants[0].view(np.uint32).tolist() == bits.tolist()
    assert struct.pack("<d", ex.constants[1]) == struct.pack("<d", number)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
        np.arange(12, dtype=np.int32).reshape(2, 6)[:, ::2] // 2,
        np.arange(6, dtype=np.int32).reshape(2, 3)[::-1][::-1],
        np.ndarray((2, 3), "<i4", b"x" + np.arange(6, dtype="<i4").tobytes(), 1),
        np.broadcast_to(np.arange(6, dtype=np.int32).reshape(2, 3), (1, 2, 3))[0],
    ],
    ids=["big endian", "column-major", "strided", "reversed twice", "unaligned", "broadcast"],
)
def test_layout_and_byte_order_are_normalised(array: np.ndarray) -> None:
    plain = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert binary.dumps(with_constants(array)) == binary.dumps(with_constants(plain))


def test_tensors_come_in_the_byte_order_of_the_machine() -> None:
    other = np.dtype(np.int32).newbyteorder("S")
    got = tensor_over(memoryview(np.array([1, 2], other).view(np.uint8)), other, [2])
    assert got.dtype == np.int32
    assert got.dtype.isnative
    assert got.tolist() == [1, 2]
    assert not got.flags.writeable


def test_a_large_tensor_in_another_layout() -> None:
    array = np.arange(20_000, dtype=">f8").reshape(100, 200).T
    (got,) = binary.loads(binary.dumps(with_constants(array))).constants
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, array)


def test_equal_executables_give_equal_bytes() -> None:
    first = with_constants(1, 2, scopes={0: "a", 1: "b"})
    second = with_constants(1, 2, scopes={1: "b", 0: "a"})
    assert first == second
    assert first.to_bytes() == second.to_bytes()


def test_pickle_and_copy() -> None:
    ex = CORPUS["tensor_constants"].executable
    again = pickle.loads(pickle.dumps(ex))
    assert again == ex
    assert again is not ex
    assert copy.copy(ex) is ex
    assert copy.deepcopy(ex) is ex


# Sources


def sources(data: bytes, folder: Path) -> dict[str, Any]:
    path = folder / "it.vmexec"
    path.write_bytes(data)
    return {
        "str": str(path), "path": path, "bytes": data, "bytearray": bytearray(data),
        "memoryview": memoryview(data), "words": memoryview(data + bytes(-len(data) % 8)).cast("q"),
        "array": np.frombuffer(data, np.uint8), "BytesIO": io.BytesIO(data),
        "unbuffered": open(path, "rb", 0), "buffered": open(path, "rb"),
    }  # fmt: skip


def test_every_kind_of_source(tmp_path: Path) -> None:
    ex = with_constants("12345", np.arange(50_000), np.arange(3, dtype=np.int8))
    data = ex.to_bytes()
    for name, source in sources(data, tmp_path).items():
        strict = name != "words"
        assert binary.load(source, strict=strict) == ex, name
        if hasattr(source, "close"):
            assert source.read() == b"", name
            source.close()


def test_a_file_is_read_from_its_position(tmp_path: Path) -> None:
    ex = with_constants(np.arange(10_000))
    path = tmp_path / "two"
    path.write_bytes(b"head" + ex.to_bytes())
    for share in (False, True):
        with open(path, "rb") as file:
            file.seek(4)
            assert binary.load(file, mmap=share) == ex
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        with pytest.raises(FormatError, match=r"truncated at byte \d+: 8 bytes needed, 0 left"):
            binary.load(file)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes(tmp_path: Path) -> None:
    ex = with_constants(np.arange(1000))
    read, write = os.pipe()
    os.write(write, ex.to_bytes())
    os.close(write)
    with open(read, "rb") as pipe:
        assert binary.load(pipe) == ex


@pytest.mark.parametrize("source", [None, 7, 1.5, np.arange(4)[::2], io.StringIO("text")])
def test_other_sources_are_a_type_error(source: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a (path, a file or a|contiguous|file of)"):
        binary.load(source)


def test_tensors_are_aligned_and_read_only(tmp_path: Path) -> None:
    arrays = [np.full(n, n, np.float32) for n in (0, 1, 3, 17, 1000, 5000, 100_000)] * 3
    path = tmp_path / "it.vmexec"
    ex = with_constants(*arrays)
    ex.save(path)
    for got in (binary.load(path), binary.loads(ex.to_bytes())):
        assert got == ex
        for array in got.constants:
            assert array.ctypes.data % 64 == 0 or array.size == 0
            assert not array.flags.writeable


# Mapping


def test_mapped_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    ex = with_constants("odd", np.arange(1000.0), np.arange(5))
    ex.save(path)
    mapped = binary.load(path, mmap=True)
    assert mapped == ex
    for array in mapped.constants[1:]:
        base: Any = array
        while isinstance(base, (np.ndarray, memoryview)):
            base = base.base if isinstance(base, np.ndarray) else base.obj
        assert isinstance(base, mmap.mmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    # After the strings, the tensor is unaligned, which numpy handles.
    assert not mapped.constants[1].flags.aligned
    assert mapped.constants[1].sum() == 499_500.0


@pytest.mark.skipif(sys.platform == "win32", reason="there a mapped file cannot be replaced")
def test_a_mapping_outlives_the_replacement_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    ex = with_constants(np.arange(10_000))
    ex.save(path)
    mapped = binary.load(path, mmap=True)
    with_constants(np.zeros(10_000, int)).save(path)
    assert mapped == ex
    path.unlink()
    assert mapped.constants[0][-1] == 9999


def test_the_code_is_never_shared() -> None:
    data = bytearray(with_constants(np.arange(4)).to_bytes())
    ex = binary.loads(memoryview(data).toreadonly(), mmap=True)
    before = ex.instr_data.tolist(), ex.instr_offset.tolist()
    data[:] = bytes(len(data))
    assert (ex.instr_data.tolist(), ex.instr_offset.tolist()) == before
    assert ex.constants[0].tolist() == [0, 0, 0, 0]


def test_mapping_needs_a_file(tmp_path: Path) -> None:
    data = by_hand().to_bytes()
    with pytest.raises(ValueError, match="expected a read-only buffer, got a writable one"):
        binary.loads(bytearray(data), mmap=True)
    with pytest.raises(ValueError, match="expected a file on disk"):
        binary.load(io.BytesIO(data), mmap=True)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(FormatError, match="truncated at byte 0"):
        binary.load(empty, mmap=True)


def test_reading_does_not_double_memory(tmp_path: Path) -> None:
    size = 16 << 20
    path = tmp_path / "large.vmexec"
    with_constants(np.zeros(size, np.uint8), np.zeros(size, np.uint8)).save(path)
    peaks = {}
    for share in (False, True):
        tracemalloc.start()
        try:
            binary.load(path, mmap=share)
            peaks[share] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peaks[False] < 2 * size + (2 << 20)
    assert peaks[True] < 2 << 20


# Errors of reading


NOT_EXECUTABLE = r"header: expected the magic 0xd225de2f4214151e or 0xd225de2f4214151d, got "

_IN_FIRST = "constant 0: "

MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", r"header: truncated at byte 0: 8 bytes needed, 0 left"),
    "magic": (u64(7) + NEW[8:], NOT_EXECUTABLE + "0x7"),
    "ELF": (b"\x7fELF" + bytes(60), NOT_EXECUTABLE + "a shared library.*write_to_file"),
    "ar": (b"!<arch>\n" + bytes(60), NOT_EXECUTABLE + r"an archive.*to \.so"),
    "gzip": (b"\x1f\x8b\x08" + bytes(60), NOT_EXECUTABLE + r"an archive.*to \.so"),
    "PE": (b"MZ\x90\x00" + bytes(60), NOT_EXECUTABLE + "a shared library"),
    "version": (u64(0xD225DE2F4214151E) + string(b"0.15"),
                r"header: expected version b'0.14', got b'0.15'"),
    "version length": (u64(0xD225DE2F4214151E, 2**63),
                       r"header: truncated at byte 16: \d+ bytes needed, 0 left"),
    "function count": (NEW + u64(2**61),
                       r"function table: truncated at byte 28: \d+ bytes needed, 0"),
    "function kind": (stream(section(i32(3) + MAIN[4:])), r"function 0: unknown kind 3"),
    "negative kind": (stream(section(i32(-1) + MAIN[4:])), r"function 0: unknown kind -1"),
    "name length": (stream(section(MAIN, i32(0) + u64(2**62) + i64(0, 0, 0, 0) + u64(0))),
                    r"function 1: truncated at byte \d+: 4611686018427387904 bytes needed"),
    "name not UTF-8": (stream(section(i32(0) + string(b"\xff") + MAIN[16:])),
                       r"function 0: string at byte 40: not UTF-8 \(invalid start byte\)"),
    "name with NUL": (stream(section(i32(0) + string(b"a\0b") + MAIN[16:])),
                      r"function 0: name at byte 40: contains a NUL character"),
    "parameter count": (stream(section(MAIN[:-8] + u64(2**60))),
                        r"function 0: truncated at byte 84: 9223372036854775808 bytes needed"),
    "parameter name": (stream(section(MAIN[:-8] + section(string(b"x"), string(b"\0")))),
                       r"function 0: name at byte \d+: contains a NUL"),
    "scope count": (NEW + section() + u64(2**60), r"memory scopes: truncated at byte 36"),
    "scope twice": (stream(scopes=section(*[i64(0) + string(b"a")] * 2), constants=section(i32(1))),
                    r"memory scope 1: constant 0 has two memory scopes"),
    "scope index": (stream(scopes=section(i64(1) + string(b"a")),
                           constants=section(i32(1) + i64(5))),
                    r"constant pool: memory scope of constant 1: there are 1 constants"),
    "negative scope index": (stream(scopes=section(i64(-1) + string(b"a"))),
                             r"constant pool: memory scope of constant -1: there are 0"),
    "constant count": (NEW + section() + section() + u64(2**61),
                       r"constant pool: truncated at byte"),
    "constant type": (constant(i32(2) + i64(0)),
                      r"constant 0: unknown type 2, expected 70 \(tensor\)"),
    "second constant": (stream(constants=section(i32(1) + i64(0), i32(64) + i64(0))),
                        r"constant 1: unknown type 64"),
    "tensor magic": (constant(tensor((1,), 4, bytes(4), magic=1)),
                     r"constant 0: expected the magic 0xdd5e40f096b4a13f of a tensor, got 0x1"),
    "reserved": (constant(tensor((1,), 4, bytes(4), reserved=1)),
                 r"constant 0: expected 0 in the reserved field, got 1"),
    "device type": (constant(tensor((1,), 4, bytes(4), device=(2, 0))),
                    r"constant 0: expected a tensor on device \(1, 0\), got \(2, 0\)"),
    "device index": (constant(tensor((1,), 4, bytes(4), device=(1, 1))),
                     _IN_FIRST + r".*got \(1, 1\)"),
    "negative rank": (constant(tensor((1,), 4, bytes(4), rank=-1)),
                      _IN_FIRST + r"expected a rank >= 0, got -1"),
    "huge rank": (constant(tensor((1,), 4, bytes(4), rank=2**31 - 1)),
                  r"constant 0: truncated at byte \d+: 17179869184 bytes needed"),
    "negative dimension": (constant(tensor((-1,), 4, bytes(4))),
                           _IN_FIRST + r"expected dimensions >= 0, got -1"),
    "two negative dimensions": (constant(tensor((-1, -1), 4, bytes(4))),
                                _IN_FIRST + r".*dimensions >= 0, got -1"),
    "wrapping product": (constant(tensor((2**32, 2**32), 0, b"")),
                         _IN_FIRST + r"the dimensions multiply to more than 2\*\*63 - 1 bytes"),
    "wrapping product times zero": (constant(tensor((2**32, 2**32, 0), 0, b"")),
                                    _IN_FIRST + r"the dimensions multiply to more than"),
    "wrapping byte count": (constant(tensor((2**61 + 1,), 4, bytes(4))),
                            _IN_FIRST + r"the dimensions multiply"),
    "more bytes": (constant(tensor((1,), 8, bytes(8))),
                   _IN_FIRST + r"float32\[1\] takes 4 bytes, the file says 8"),
    "fewer bytes": (constant(tensor((2,), 4, bytes(4))),
                    _IN_FIRST + r"float32\[2\] takes 8 bytes, the file says 4"),
    "negative bytes": (constant(tensor((1,), -4, bytes(4))),
                       _IN_FIRST + r".*takes 4 bytes, the file says -4"),
    "missing bytes": (stream(constants=section(tensor((2**40,), 2**42, b"")), code=b""),
                      r"constant 0: truncated at byte 152: 4398046511104 bytes needed, 0 left"),
    "vector lanes": (constant(tensor((1,), 16, bytes(16), b"\x02\x20\x04\x00")),
                     _IN_FIRST + r"data type \(code 2, bits 32, lanes 4\): no numpy dtype"),
    "no lanes": (constant(tensor((1,), 4, bytes(4), b"\x02\x20\x00\x00")),
                 _IN_FIRST + r".*lanes 0\): no numpy dtype"),
    "handle": (constant(tensor((1,), 8, bytes(8), b"\x03\x40\x01\x00")),
               _IN_FIRST + r".*code 3, bits 64"),
    "four bits": (constant(tensor((1,), 1, bytes(1), b"\x00\x04\x01\x00")),
                  _IN_FIRST + r".*code 0, bits 4"),
    "long double": (constant(tensor((1,), 16, bytes(16), b"\x02\x80\x01\x00")),
                    _IN_FIRST + r".*(layout differs from machine to machine|no numpy dtype)"),
    "bool byte": (constant(tensor((3,), 3, b"\x00\x01\x02", b"\x06\x08\x01\x00")),
                  r"constant 0: bool tensor: expected bytes 0 and 1, got a larger one"),
    "dtype constant": (constant(i32(5) + b"\x03\x40\x01\x00"), r"constant 0: data type \(code 3"),
    "shape length": (constant(i32(69) + u64(2**61)),
                     r"constant 0: truncated at byte \d+: 18446744073"),
    "string length": (constant(i32(65) + u64(2**63) + b"abc"), r"constant 0: truncated at byte"),
    "string not UTF-8": (constant(i32(65) + string(b"a\xc3")),
                         r"constant 0: string at byte \d+: not UTF-8"),
    "offset count": (stream(code=u64(2**61)), r"instruction offsets: truncated at byte"),
    "word count": (stream(code=section() + u64(2**64 - 1)),
                   r"instruction words: truncated at byte"),
    "trailing byte": (stream() + b"\0", r"end: 1 bytes follow at byte 140"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_streams_are_refused(name: str, tmp_path: Path) -> None:
    data, message = MALFORMED[name]
    path = tmp_path / "model.vmexec"
    path.write_bytes(data)
    pattern = rf"^{{}}: bad executable \({message}"
    with pytest.raises(FormatError, match=pattern.format("<bytes>")):
        binary.loads(data)
    for share in (False, True):
        with pytest.raises(FormatError, match=r"model\.vmexec: bad executable \(" + message):
            binary.load(path, mmap=share)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_streams_allocate_no_memory(name: str) -> None:
    data, _ = MALFORMED[name]
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            binary.loads(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_streams_above_have_only_one_defect() -> None:
    assert binary.loads(stream()).functions[0].name == "main"
    assert binary.loads(constant(tensor((1,), 4, bytes(4)))).constants[0] == 0


def test_every_truncated_prefix_is_refused(tmp_path: Path) -> None:
    data = by_hand().to_bytes()
    path = tmp_path / "cut"
    for size in range(len(data)):
        with pytest.raises(FormatError, match=r"bad executable \(.*truncated at byte \d+: \d"):
            binary.loads(data[:size])
        if size % 7 == 0:
            path.write_bytes(data[:size])
            for share in (False, True):
                with pytest.raises(FormatError, match="truncated at byte"):
                    binary.load(path, mmap=share)


def test_a_file_that_shrinks_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it"
    data = with_constants(np.arange(100_000)).to_bytes()
    monkeypatch.setattr(binary, "size_on_disk", lambda file: len(data))
    for size in (100, 200, 400_000, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(FormatError, match="truncated at byte"):
            binary.load(path)


def test_bytes_after_the_end() -> None:
    data = by_hand().to_bytes()
    with pytest.raises(FormatError, match=rf"end: 3 bytes follow at byte {len(data)}"):
        binary.loads(data + b"abc")
    with pytest.warns(RelaxVMWarning, match=rf"3 bytes follow at byte {len(data)}"):
        assert binary.loads(data + b"abc", strict=False) == by_hand()


def test_a_file_is_positioned_after_the_executable(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(by_hand().to_bytes() + b"abc")
    with open(path, "rb") as file:
        with pytest.warns(RelaxVMWarning, match="3 bytes follow"):
            assert binary.load(file, strict=False) == by_hand()
        assert file.read() == b"abc"


def read_or_refuse(data: bytes) -> bool:
    """Return whether bytes can be read; any error but a FormatError is a failure.  An executable
    that was read must be written to the same bytes."""
    try:
        ex = binary.loads(data)
    except (FormatError, LimitError):
        return False
    again = binary.loads(binary.dumps(ex))
    assert again == ex
    return True


def test_mutants_are_read_or_refused() -> None:
    """Change every byte and every word of a small file to interesting values."""
    data = by_hand().to_bytes()
    read = 0
    for i in range(len(data)):
        for value in {0, 1, 0x7F, 0x80, 0xFF, data[i] ^ 1, (data[i] + 1) & 0xFF}:
            read += read_or_refuse(data[:i] + bytes([value]) + data[i + 1 :])
    rng = np.random.default_rng(1)
    for _ in range(2000):
        i = int(rng.integers(0, len(data) - 8))
        word = int(rng.choice([-1, 0, 1, 7, 2**31, 2**32, 2**40, 2**62, -(2**63), 2**63 - 1]))
        read += read_or_refuse(data[:i] + i64(word) + data[i + 8 :])
    assert read > 100  # otherwise the mutants are too crude to test anything


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_random_bytes_after_a_good_header(data: bytes) -> None:
    read_or_refuse(NEW + data)


@pytest.mark.parametrize(
    ("limit", "bound"),
    [("functions", 4), ("constants", 9), ("instructions", 7), ("name_bytes", 12), ("rank", 1),
     ("shape_dims", 1), ("file_bytes", 100)],
)  # fmt: skip
def test_limits(limit: str, bound: int, tmp_path: Path) -> None:
    ex = by_hand()
    path = tmp_path / "it.vmexec"
    ex.save(path)
    limits = Limits().but(**{limit: bound})
    roomy = Limits().but(**{limit: 10_000})
    for source in (path, ex.to_bytes(), io.BytesIO(ex.to_bytes())):
        with pytest.raises(LimitError, match=rf"above the limit {limit}={bound}") as caught:
            binary.load(source, limits=limits)
        assert caught.value.limit == limit
    assert binary.load(path, limits=roomy) == ex


def test_the_size_of_a_mapped_file_is_not_limited(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    by_hand().save(path)
    assert binary.load(path, mmap=True, limits=Limits().but(file_bytes=1)) == by_hand()


def test_the_dimensions_of_a_shape_are_limited() -> None:
    data = with_constants(Shape(range(2000))).to_bytes()
    with pytest.raises(LimitError, match="constant 0: dimensions of a shape: 2000 is above"):
        binary.loads(data, limits=Limits.untrusted())


# Errors of writing


class Strange:
    pass


UNSAVABLE: dict[str, tuple[Any, str]] = {
    "None": (None, "None cannot be stored in TVM's stream"),
    "bool": (True, "a bool cannot be stored in TVM's stream"),
    "object": (Strange(), "a Strange cannot be stored"),
    "complex": (1j, "a complex cannot be stored"),
    "bytes": (b"abc", "a bytes cannot be stored"),
    "large int": (2**63, "expected an int of 64 bits, got a larger one"),
    "objects": (np.array([None]), "dtype object"),
    "strings": (np.array(["a"]), "dtype <U1"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), r"dtype datetime64\[D\]"),
    "record": (np.zeros(2, [("a", "f4")]), r"dtype \[\('a', '<f4'\)\]"),
    "long double": (np.zeros(2, np.longdouble), "its layout differs from machine to machine"),
    "surrogate": ("\ud800", r"string '\\ud800': has no UTF-8 form"),
    "bool byte": (np.frombuffer(b"\x02", bool), "expected bytes 0 and 1"),
    "dtype": (np.dtype("U5"), "dtype <U5"),
}


@pytest.mark.parametrize("name", UNSAVABLE)
def test_errors_name_what_the_stream_cannot_hold(name: str, tmp_path: Path) -> None:
    value, message = UNSAVABLE[name]
    ex = with_constants(1, value)
    path = tmp_path / "it.vmexec"
    path.write_bytes(b"old")
    target = io.BytesIO()
    pattern = rf"^cannot save executable \(constant 1: .*{message}"
    for save in (lambda: ex.save(path), lambda: ex.save(target), ex.to_bytes):
        with pytest.raises(FormatError, match=pattern):
            save()
    assert path.read_bytes() == b"old"
    assert target.getvalue() == b""
    assert os.listdir(tmp_path) == ["it.vmexec"]


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (FunctionInfo(FuncKind.PACKED, "a\0b"), r"function 0: name 'a\\x00b': contains a NUL"),
        (FunctionInfo(FuncKind.PACKED, "\udfff"), r"function 0: name '\\udfff': has no UTF-8 form"),
        (FunctionInfo(FuncKind.PACKED, "f", 2**63), r"function 0: f: expected numbers of 64 bits"),
        (FunctionInfo(FuncKind.BYTECODE, "f", param_names=("\0",)), r"function 0: parameter name"),
    ],
)
def test_headers_that_the_stream_cannot_hold(info: FunctionInfo, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        VMExecutable([info], [], [], []).to_bytes()


def test_memory_scopes_of_constants_that_do_not_exist() -> None:
    with pytest.raises(FormatError, match="memory scope of constant 1: there are 1 constants"):
        with_constants(5, scopes={1: "global"}).to_bytes()


# Files are written atomically


def test_saving_replaces_and_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    by_hand().save(path)
    if sys.platform != "win32":
        umask = os.umask(0)
        os.umask(umask)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
        path.chmod(0o640)
    with_constants(5).save(str(path))
    assert binary.load(path) == with_constants(5)
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["it.vmexec"]


@pytest.mark.parametrize("step", ["write_all", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_file(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.vmexec"
    by_hand().save(path)

    def fail(*args: Any) -> None:
        if step == "write_all":
            args[0].write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(binary if step == "write_all" else os, step, fail)
    with pytest.raises(OSError, match="no space left"):
        with_constants(5).save(path)
    monkeypatch.undo()
    assert binary.load(path) == by_hand()
    assert os.listdir(tmp_path) == ["it.vmexec"]


def test_a_save_that_is_interrupted_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        by_hand().save(tmp_path / "it.vmexec")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need privileges there")
def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "data" / "it.vmexec")
    by_hand().save(link)
    assert link.is_symlink()
    assert binary.load(tmp_path / "data" / "it.vmexec") == by_hand()


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev")
def test_a_device_is_written_directly() -> None:
    by_hand().save("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    by_hand().save(path)
    by_hand().save(path)
    assert binary.load(path) == by_hand()


def test_the_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        by_hand().save(tmp_path / "no" / "it.vmexec")


class Trickle(io.RawIOBase):
    """A file that accepts only a few bytes per write."""

    def __init__(self, step: int) -> None:
        self.got = bytearray()
        self.step = step

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.got += bytes(data[: self.step])
        return min(len(data), self.step)


def test_saving_to_file_objects() -> None:
    ex = with_constants(np.arange(5000), "x")
    target = io.BytesIO()
    ex.save(target)
    assert target.getvalue() == ex.to_bytes()
    slow = Trickle(1000)
    ex.save(slow)
    assert bytes(slow.got) == ex.to_bytes()
    with pytest.raises(OSError, match="wrote 0 of"):
        ex.save(Trickle(0))
