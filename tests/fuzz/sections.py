"""Mutants of the sections behind TVM's stream: of their frames, and of their contents."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from relaxvm.errors import RelaxVMError
from relaxvm.executable import StoredKernels
from relaxvm.executable.formats import binary
from relaxvm.executable.formats.sections import SECTIONS, _digest
from relaxvm.verify.verified import ensure_verified

from ..sections import plain, with_sections
from .changes import BYTES, Mutant, change_bytes, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described

__all__ = ["bases", "mutant", "run"]

_FRAME: Final = struct.Struct("<8sIIQ")

Piece = tuple[bytes, int, int, int | None, bytes | None, bytes]
"""Magic, version, flags, size and checksum of a section, and its content; None for the size and the
checksum that fit the content."""


@cache
def bases() -> dict[str, bytes]:
    """Return files with each section, and with all."""
    alone = {name: with_sections(name) for name in SECTIONS}
    return alone | {"all": with_sections(*SECTIONS), "none": plain()}


@cache
def _pieces(base: str) -> tuple[Piece, ...]:
    data, pieces = bases()[base], []
    for place in binary.read_buffer(data).sections:
        section = SECTIONS[place.name]
        start = place.offset + _FRAME.size + 32 * section.checksum
        content = data[start : place.offset + place.nbytes]
        checksum = None if section.checksum else b""
        pieces.append((section.magic, section.version, section.flags, None, checksum, content))
    return tuple(pieces)


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("sections", index, seed)
    base = rng.choice(sorted(bases()))
    pieces = [*_pieces(base)]
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(_CHANGES)
        change(pieces, rng)
        steps.append(change.__name__)
    data = plain() + b"".join(map(_joined, pieces))
    if rng.random() < 0.1:
        tail, more = change_bytes(data[len(plain()) :], rng)
        data = plain() + tail
        steps += more
    return Mutant(base, tuple(steps), data)


def _joined(piece: Piece) -> bytes:
    magic, version, flags, size, checksum, content = piece
    size = len(content) if size is None else size
    checksum = _digest(content) if checksum is None else checksum
    return _FRAME.pack(magic, version, flags, size) + checksum + content


def _change(pieces: list[Piece], rng: random.Random, field: int, value: Any) -> None:
    """Replace a field of some section."""
    if pieces:
        at = rng.randrange(len(pieces))
        piece: Any = [*pieces[at]]
        piece[field] = value(piece[field]) if callable(value) else value
        pieces[at] = tuple(piece)


def change_content(pieces: list[Piece], rng: random.Random) -> None:
    """Change bytes; the size and the checksum fit them."""
    _change(pieces, rng, 5, lambda content: rng.choice(BYTES)(content, rng))


def change_magic(pieces: list[Piece], rng: random.Random) -> None:
    known = [section.magic for section in SECTIONS.values()]
    _change(pieces, rng, 0, rng.choice((*known, b"rvmzzzzz", b"rvmDEBUG", bytes(8))))


def change_version(pieces: list[Piece], rng: random.Random) -> None:
    _change(pieces, rng, 1, number(rng) & 0xFFFFFFFF)


def change_flags(pieces: list[Piece], rng: random.Random) -> None:
    _change(pieces, rng, 2, rng.choice((0, 1, 2, 3, 4, number(rng) & 0xFFFFFFFF)))


def change_size(pieces: list[Piece], rng: random.Random) -> None:
    size = number(rng) & ((1 << 64) - 1)
    length = len(pieces[0][5]) if pieces else 0
    _change(pieces, rng, 3, rng.choice((size, max(0, length + rng.randrange(-9, 10)))))


def change_checksum(pieces: list[Piece], rng: random.Random) -> None:
    _change(pieces, rng, 4, rng.choice((b"", bytes(32), rng.randbytes(32), None)))


def swap(pieces: list[Piece], rng: random.Random) -> None:
    rng.shuffle(pieces)


def drop(pieces: list[Piece], rng: random.Random) -> None:
    if pieces:
        del pieces[rng.randrange(len(pieces))]


def copy(pieces: list[Piece], rng: random.Random) -> None:
    """Add a section of any base, mostly one that is there already."""
    others: Sequence[Piece] = pieces if rng.random() < 0.5 else _pieces("all")
    if others:
        pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(others))


def add_unknown(pieces: list[Piece], rng: random.Random) -> None:
    flags = rng.choice((0, 1, 2, 3))
    checksum = None if flags & 2 else b""
    content = rng.randbytes(rng.randrange(20))
    pieces.insert(
        rng.randrange(len(pieces) + 1), (b"rvmaaaaa", 1, flags, None, checksum, content)
    )


def splice(pieces: list[Piece], rng: random.Random) -> None:
    """Give a section the content of another one, or a part of it."""
    content = rng.choice(_pieces("all"))[5]
    _change(pieces, rng, 5, content[rng.randrange(len(content)) :])


_CHANGES: Final[tuple[Callable[[list[Piece], random.Random], None], ...]] = (
    change_content, change_content, change_content, change_content, change_magic, change_version,
    change_flags, change_size, change_checksum, swap, drop, copy, add_unknown, splice,
)  # fmt: skip


def run(mutant: Mutant, index: int) -> Ending:
    """Read and verify a file; what is accepted is written back to the same bytes.  Of a file with
    the section of tensors, which may have some of the tensors, at other places, it is enough that
    an equal executable is read back."""
    try:
        executable = binary.loads(mutant.data, limits=LIMITS)
        ensure_verified(executable, limits=LIMITS)
        places = binary.read_buffer(mutant.data).sections
        is_aligned = "tensors" in [place.name for place in places]
        written = _written(executable, is_aligned)
        if written != mutant.data:
            again = binary.loads(written, limits=LIMITS) if is_aligned else None
            if again != executable or _written(again, is_aligned) != written:
                return Outcome.STRAY_ERROR, "differs: after reading and writing"
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)
    return Outcome.RESULT, "read"


def _written(executable: Any, is_aligned: bool) -> bytes:
    stored = executable.kernels
    parts = stored.parts if isinstance(stored, StoredKernels) else None
    stream = io.BytesIO()
    binary.save(executable, stream, kernels=parts, aligned=is_aligned)
    return stream.getvalue()
