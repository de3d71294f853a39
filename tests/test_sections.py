"""The table of sections that may follow TVM's stream."""

from __future__ import annotations

import dataclasses
import io
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import relaxvm
from relaxvm import Limits
from relaxvm.errors import FormatError, LimitError, RelaxVMWarning
from relaxvm.executable.formats import binary, sections
from relaxvm.executable.formats.sections import SECTIONS, Section
from relaxvm.verify import RULES

from .sections import EXAMPLES, PROGRAM, alone, plain, with_sections

NAMES = sorted(SECTIONS, key=list(SECTIONS).index)
FRAME = 24


def frame(magic: bytes, version: int = 1, flags: int = 0, size: int = 0) -> bytes:
    return magic + struct.pack("<IIQ", version, flags, size)


# The table


def test_every_section_has_an_example() -> None:
    assert EXAMPLES.keys() == SECTIONS.keys(), "add an example to tests/sections.py"
    for name, section in SECTIONS.items():
        assert EXAMPLES[name].limits.keys() == set(section.limits)


def test_entries_are_distinct_and_complete() -> None:
    assert len({section.magic for section in SECTIONS.values()}) == len(SECTIONS)
    fields = {field.name for field in dataclasses.fields(Limits)}
    for name, section in SECTIONS.items():
        assert section.name == name
        assert sections._MAGIC.fullmatch(section.magic)
        assert section.rule is None or section.rule in RULES
        assert set(section.limits) <= fields
        assert section.about


# Reading and writing


COUNTS = (0, 1, 2, 3, len(NAMES) - 1, len(NAMES))
SUBSETS = [names for count in COUNTS for names in combinations(NAMES, count)]


@pytest.mark.parametrize("names", SUBSETS, ids="+".join)
def test_round_trip(names: tuple[str, ...], tmp_path: Path) -> None:
    data = with_sections(*names)
    path = tmp_path / "it"
    path.write_bytes(data)
    assert data.startswith(plain())
    for decoded in (
        binary.read_buffer(data),
        binary.read(path),
        binary.read(path, mmap=True),
        binary.read(io.BytesIO(data)),
    ):
        ex, places = decoded
        assert tuple(place.name for place in places) == names
        assert sum(place.nbytes for place in places) == len(data) - len(plain())
        for place in places:
            assert data[place.offset :].startswith(SECTIONS[place.name].magic)
        kernels = getattr(ex.kernels, "parts", None)
        again = io.BytesIO()
        binary.save(ex, again, kernels=kernels, aligned="tensors" in names)
        assert again.getvalue() == data
    with open(path, "rb") as file:
        binary.read(file)
        assert file.read() == b""


@pytest.mark.parametrize("name", NAMES)
def test_golden_bytes(name: str, golden: Callable[[str, bytes], None]) -> None:
    golden(f"section_{name}.bin", alone(name))


def test_tvm_reads_the_stream_in_front(tmp_path: Path) -> None:
    tvm = pytest.importorskip("tvm")
    pytest.importorskip("tvm.relax")
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    for names in (*((name,) for name in NAMES), tuple(NAMES)):
        module = read(with_sections(*names))
        path = tmp_path / "by_tvm"
        module.write_to_file(str(path), "")
        assert path.read_bytes() == plain()


def test_a_name_that_is_not_in_the_table_is_not_written() -> None:
    with pytest.raises(FormatError, match=r"cannot save .*sections: unknown section 'weights'"):
        PROGRAM.with_section("weights", b"").to_bytes()


def test_sections_are_content() -> None:
    one, other = PROGRAM.with_section("a", 1), PROGRAM.with_section("a", 2)
    assert one != other
    assert one == PROGRAM.with_section("a", 1)
    assert hash(one) == hash(PROGRAM.with_section("a", 1))
    assert one.with_section("a", None) == PROGRAM
    assert one.strip().with_kernels({}).sections == {"a": 1}


# Broken sections


def refusal(data: bytes, tmp_path: Path, **options: Any) -> str:
    """The message with which data is refused, from memory and from a file."""
    path = tmp_path / "it"
    path.write_bytes(data)
    messages = set()
    for read in (
        lambda: binary.loads(data, name=str(path), **options),
        lambda: binary.load(path, **options),
        lambda: binary.load(path, mmap=True, **options),
    ):
        with pytest.raises(FormatError) as caught:
            read()
        messages.add(str(caught.value))
    (message,) = messages
    return message


@pytest.mark.parametrize("name", NAMES)
def test_every_truncated_prefix_is_refused(name: str, tmp_path: Path) -> None:
    data, start = with_sections(name), len(plain())
    for size in range(start + 1, len(data)):
        message = refusal(data[:size], tmp_path)
        if size < start + 8:
            assert f"end: {size - start} bytes follow at byte {start}" in message
        else:
            assert f"({SECTIONS[name].title}: truncated at byte {start}" in message or (
                f"({SECTIONS[name].title}: truncated at byte {start + FRAME}" in message
            )


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_byte_is_refused_or_read(name: str, tmp_path: Path) -> None:
    """With a checksum every change is refused; a section that is read is written back equal."""
    data, start = with_sections(name), len(plain())
    section = SECTIONS[name]
    rng = random.Random(0)
    for at in range(start, len(data)):
        mutant = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        try:
            ex = binary.loads(mutant)
        except (FormatError, LimitError):
            continue
        assert not section.checksum
        assert at >= start + FRAME
        again = io.BytesIO()
        binary.save(ex, again, aligned=name == "tensors")
        assert again.getvalue() == mutant


@pytest.mark.parametrize("name", [name for name in NAMES if SECTIONS[name].checksum])
def test_changed_content_is_named_with_its_place(name: str, tmp_path: Path) -> None:
    data = bytearray(with_sections(name))
    data[-1] ^= 1
    start = len(plain()) + FRAME + 32
    assert refusal(bytes(data), tmp_path).endswith(
        f"({SECTIONS[name].title}: its content has changed: the checksum of bytes {start} to "
        f"{len(data) - 1} differs)"
    )


@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_are_wrong(name: str, tmp_path: Path) -> None:
    data, start = with_sections(name), len(plain())
    for size in (2**63, 2**64 - 1, len(data)):
        changed = data[: start + 16] + struct.pack("<Q", size) + data[start + 24 :]
        tracemalloc.start()
        try:
            assert f"{SECTIONS[name].title}: truncated at byte" in refusal(changed, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", NAMES)
def test_content_that_goes_on(name: str, tmp_path: Path) -> None:
    section = SECTIONS[name]
    start = len(plain())
    old = with_sections(name)[start:]
    content = old[FRAME + 32 * section.checksum :] + b"more"
    head = frame(section.magic, section.version, section.flags, len(content))
    digest = sections._digest(content) if section.checksum else b""
    data = plain() + head + digest + content
    end = len(data)
    assert f"{section.title}: expected its end at byte {end}, got it at {end - 4}" in refusal(
        data, tmp_path
    )


@pytest.mark.parametrize("name", NAMES)
def test_another_version(name: str, tmp_path: Path) -> None:
    section = SECTIONS[name]
    data, start = bytearray(with_sections(name)), len(plain())
    data[start + 8] = 99
    fault = f"expected version {section.version}, got 99"
    assert f"{section.title}: {fault}" in refusal(bytes(data), tmp_path)
    if section.required:
        assert f"{section.title}: {fault}; the program" in refusal(
            bytes(data), tmp_path, strict=False
        )
    else:
        with pytest.warns(RelaxVMWarning, match=f"{section.title} left out: {fault}"):
            assert binary.loads(bytes(data), strict=False) == PROGRAM


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flags", [1, 2, 4, 1 << 31])
def test_flags_are_those_of_the_table(name: str, flags: int, tmp_path: Path) -> None:
    section = SECTIONS[name]
    data, start = bytearray(with_sections(name)), len(plain())
    data[start + 12 : start + 16] = struct.pack("<I", section.flags ^ flags)
    expected = f"{section.title}: expected flags {section.flags}, got {section.flags ^ flags}"
    for strict in (True, False):
        assert expected in refusal(bytes(data), tmp_path, strict=strict)


UNKNOWN = b"rvmzzzzz"


def test_unknown_sections(tmp_path: Path) -> None:
    """An optional one is left out on request, wherever it is; a required one is refused."""
    for flags, size, content in ((0, 3, b"abc"), (2, 3, bytes(32) + b"abc"), (0, 0, b"")):
        unknown = frame(UNKNOWN, 7, flags, size) + content
        for before, after in ((), NAMES), (NAMES, ()), (NAMES[:1], NAMES[1:]):
            start = len(with_sections(*before))
            tail = with_sections(*after)[len(plain()) :]
            data = with_sections(*before) + unknown + tail
            message = refusal(data, tmp_path)
            assert message.endswith(
                "(section 'rvmzzzzz': unknown, of version 7; strict=False leaves it out)"
            )
            with pytest.warns(RelaxVMWarning, match="section 'rvmzzzzz' left out: unknown, of ver"):
                decoded = binary.read_buffer(data, strict=False)
            assert [place.name for place in decoded.sections] == NAMES
            assert "truncated at byte" in refusal(data[: start + 12], tmp_path, strict=False)
    required = plain() + frame(UNKNOWN, 2, 1)
    for strict in (True, False):
        message = refusal(required, tmp_path, strict=strict)
        assert message.endswith("(section 'rvmzzzzz': unknown, of version 2; the program needs it)")
        message = refusal(plain() + frame(UNKNOWN, 2, 4), tmp_path, strict=strict)
        assert message.endswith("unknown, of version 2, with unknown flags 4)")
    too_long = plain() + frame(UNKNOWN, 1, 2, 5) + b"12345"
    assert "truncated at byte" in refusal(too_long, tmp_path, strict=False)


def test_order_and_number(tmp_path: Path) -> None:
    first, second = NAMES[:2]
    tails = [with_sections(name)[len(plain()) :] for name in (first, second)]
    message = refusal(plain() + tails[1] + tails[0], tmp_path, strict=False)
    titles = [SECTIONS[name].title for name in (first, second)]
    assert message.endswith(f"({titles[0]}: expected it before the {titles[1]})")
    at = len(plain()) + len(tails[0])
    message = refusal(plain() + tails[0] * 2, tmp_path, strict=False)
    assert message.endswith(f"({titles[0]}: there is another one before byte {at})")


def test_bytes_that_are_no_section() -> None:
    for tail in (b"abc", b"rvm", b"rvmDEBUG" * 4, b"rvmdebu\0", b"\0" * 30):
        at = len(with_sections(*NAMES))
        with pytest.raises(FormatError, match=rf"end: {len(tail)} bytes follow at byte {at}"):
            binary.loads(with_sections(*NAMES) + tail)


# Limits


@pytest.mark.parametrize(
    ("name", "limit"), [(name, limit) for name in NAMES for limit in SECTIONS[name].limits]
)
def test_limits(name: str, limit: str) -> None:
    limits = Limits().but(**{limit: EXAMPLES[name].limits[limit]})
    assert binary.loads(plain(), limits=limits) == PROGRAM
    with pytest.raises(LimitError, match=rf"{SECTIONS[name].title}.* above the limit") as caught:
        binary.loads(with_sections(name, large=True), limits=limits)
    assert caught.value.limit == limit


def test_the_bytes_of_sections_count_for_the_file() -> None:
    data = with_sections(*NAMES)
    with pytest.raises(LimitError) as caught:
        binary.loads(data, limits=Limits().but(file_bytes=len(data) - 1))
    assert caught.value.limit == "file_bytes"


# An entry more


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Section:
    """A section that is added to the table: a required one, with a text."""
    module: Any = ModuleType("_notes_section")
    module.save = lambda to, text: to.string(text, "note")
    module.load = lambda read: read.string(read.count(1))
    monkeypatch.setitem(sys.modules, f"{sections.__package__}._notes_section", module)
    section = Section(
        "notes", "section of notes", b"rvmnotes", 3, "a text", "notes", required=True
    )
    monkeypatch.setitem(SECTIONS, "notes", section)
    monkeypatch.setitem(sections._BY_MAGIC, section.magic, section)
    monkeypatch.setitem(sections._ORDER, section, len(SECTIONS))
    return section


def test_a_section_costs_an_entry(notes: Section, tmp_path: Path) -> None:
    ex = PROGRAM.with_section("notes", "about it")
    path = tmp_path / "it"
    ex.save(path)
    for loaded in (relaxvm.load(path), relaxvm.load(path, mmap=True), relaxvm.loads(ex.to_bytes())):
        assert loaded.sections == {"notes": "about it"}
        assert loaded == ex
        assert loaded != PROGRAM
    (place,) = binary.read(path).sections
    assert place == ("notes", 3, True, len(plain()), len(ex.to_bytes()) - len(plain()))


def test_programs_that_need_an_unknown_section_are_refused(
    notes: Section, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = PROGRAM.with_section("notes", "x").to_bytes()
    monkeypatch.delitem(sections._BY_MAGIC, notes.magic)
    message = refusal(data, tmp_path, strict=False)
    assert message.endswith("(section 'rvmnotes': unknown, of version 3; the program needs it)")
