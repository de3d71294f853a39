"""Zip files whose members are stored, not compressed, as views of memory.

A file of unknown origin is bounded by its own size: nothing is decompressed, and members may not
overlap.  Source: APPNOTE.TXT, the specification of .ZIP files, sections 4.3 and 4.5.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from typing import Final, NamedTuple

from ...errors import FormatError
from ...messages import readable

__all__ = ["Member", "members"]

_END: Final = struct.Struct("<4sHHHHIIH")
_END64_PLACE: Final = struct.Struct("<4sIQI")
_END64: Final = struct.Struct("<4sQHHIIQQQQ")
_ENTRY: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_MOST_COMMENT: Final = 0xFFFF
_SHORT: Final = 0xFFFFFFFF
"""A number that a record of 64 bits has in its place."""
_ZIP64: Final = 1
"""The record of 64 bits among the extra fields."""
_ENCRYPTED: Final = 1
_STORED: Final = 0


class Member(NamedTuple):
    """A file in a zip file.

    Attributes:
        name: with "/" between folders.
        data: a view of its bytes.
        crc: the checksum that the zip file states.
    """

    name: str
    data: memoryview
    crc: int

    def checked(self, subject: str) -> memoryview:
        """The bytes, whose checksum is right.

        Raises:
            FormatError: it is not.
        """
        found = zlib.crc32(self.data)
        if found != self.crc:
            raise FormatError(
                f"{subject}: {self.name}: expected the checksum {self.crc:#010x}, "
                f"got {found:#010x}: the file is damaged"
            )
        return self.data


def members(data: memoryview, subject: str) -> dict[str, Member]:
    """The members of a zip file by name, folders left out.

    Args:
        data: the whole file.
        subject: begins messages of errors.

    Raises:
        FormatError: it is not a zip file, is damaged, or a member is compressed or encrypted.
    """
    count, start, size = _directory(data, subject)
    found: dict[str, Member] = {}
    places: list[tuple[int, int, str]] = []
    at, end = start, start + size
    for _ in range(count):
        if at + _ENTRY.size > end:
            raise FormatError(f"{subject}: the directory of the zip file is truncated")
        (sign, _, _, flags, method, _, _, crc, packed, length, name_size, extra_size,
         comment_size, _, _, _, local) = _ENTRY.unpack_from(data, at)  # fmt: skip
        after = at + _ENTRY.size + name_size + extra_size + comment_size
        if sign != b"PK\1\2" or after > end:
            raise FormatError(f"{subject}: the directory of the zip file is damaged")
        name = _name(data[at + _ENTRY.size :][:name_size], subject)
        extra = data[at + _ENTRY.size + name_size :][:extra_size]
        length, packed, local = _long(extra, [length, packed, local], f"{subject}: {name}")
        at = after
        if flags & _ENCRYPTED:
            raise FormatError(f"{subject}: {name}: expected no encryption")
        if method != _STORED or packed != length:
            raise FormatError(f"{subject}: {name}: expected a stored member, it is compressed")
        first = _data_place(data, local, f"{subject}: {name}")
        if first + length > start:
            raise FormatError(f"{subject}: {name}: {length} bytes at {first} are not in the file")
        if name in found:
            raise FormatError(f"{subject}: {name}: there are two members of this name")
        places.append((local, first + length, name))
        if not name.endswith("/"):
            found[name] = Member(name, data[first : first + length], crc)
    places.sort()
    for (_, stop, one), (begin, _, other) in itertools.pairwise(places):
        if begin < stop:
            raise FormatError(f"{subject}: {one} and {other} overlap")
    return found


def _directory(data: memoryview, subject: str) -> tuple[int, int, int]:
    """The number of members, and offset and size of the directory."""
    begin = max(0, len(data) - _END.size - _MOST_COMMENT)
    at = begin + bytes(data[begin:]).rfind(b"PK\5\6")
    if at < begin or at + _END.size > len(data):
        raise FormatError(f"{subject}: expected a zip file, found no end of its directory")
    _, disk, first_disk, here, count, size, start, comment = _END.unpack_from(data, at)
    if at + _END.size + comment != len(data):
        raise FormatError(f"{subject}: bytes follow the end of the zip file")
    place = at - _END64_PLACE.size
    if place >= 0 and bytes(data[place : place + 4]) == b"PK\6\7":
        _, disk64, end64, _ = _END64_PLACE.unpack_from(data, place)
        if end64 + _END64.size > place or bytes(data[end64 : end64 + 4]) != b"PK\6\6":
            raise FormatError(f"{subject}: the directory of the zip file is damaged")
        _, _, _, _, disk, first_disk, here, count, size, start = _END64.unpack_from(data, end64)
        disk |= disk64
        at = end64
    if disk or first_disk or here != count:
        raise FormatError(f"{subject}: expected a zip file of one part")
    if start + size > at or count * _ENTRY.size > size:
        raise FormatError(f"{subject}: the directory of the zip file is truncated")
    return count, start, size


def _name(raw: memoryview, subject: str) -> str:
    try:
        name = str(raw, "utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"{subject}: the name of a member is not UTF-8") from None
    parts = name.removesuffix("/").split("/")
    if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise FormatError(f"{subject}: {readable(name)!r} is no name of a member")
    return name


def _long(extra: memoryview, numbers: list[int], subject: str) -> list[int]:
    """Sizes and offset of a member, of which those that do not fit are in a record of 64 bits."""
    if _SHORT not in numbers:
        return numbers
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == _ZIP64:
            record = extra[at + 4 : at + 4 + size]
            wanted = [i for i, number in enumerate(numbers) if number == _SHORT]
            if len(record) < 8 * len(wanted):
                break
            values = struct.unpack_from(f"<{len(wanted)}Q", record)
            for i, value in zip(wanted, values, strict=True):
                numbers[i] = value
            return numbers
        at += 4 + size
    raise FormatError(f"{subject}: expected a record with sizes of 64 bits")


def _data_place(data: memoryview, local: int, subject: str) -> int:
    """Where the bytes of a member begin."""
    if local + _LOCAL.size > len(data) or bytes(data[local : local + 4]) != b"PK\3\4":
        raise FormatError(f"{subject}: expected a member at byte {local}, found something else")
    *_, name_size, extra_size = _LOCAL.unpack_from(data, local)
    return local + _LOCAL.size + int(name_size) + int(extra_size)
