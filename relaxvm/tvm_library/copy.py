"""The private copy of a library that is loaded in its place.

Each copy has its own variables for a loader to fill, so that TVM may have the same file loaded; and
whatever becomes of the file, the copy stays.  It lacks the tree of modules, which code does not
look at: a hole takes its place.
"""

from __future__ import annotations

import json
import mmap
from typing import IO, Final

from ..errors import FormatError, LinkError
from ..executable import StoredKernels
from .elf import ElfFile
from .image import PART, LibraryImage, problems

__all__ = ["write_copy"]

_WEAK: Final = 2 << 4
"""Binding of a symbol that a library does without."""


def write_copy(stored: StoredKernels, file: IO[bytes]) -> tuple[ElfFile, dict[str, str]]:
    """Write the copy: what it asks TVM's libraries for is optional there.

    Args:
        stored: the library, as `LibraryImage.parts` gives it.
        file: empty, to be written and read.

    Returns:
        the copy, and its kernels: name -> symbol.

    Raises:
        LinkError: it cannot be run here; the message has all reasons.
        FormatError: it is not well-formed.
        OSError: the file cannot be written.
    """
    source = stored.source
    try:
        about = json.loads(stored.parts[PART])
        size, compiled, kinds = int(about["size"]), list(about["compiled"]), list(about["modules"])
        extents = [
            (int(name.removeprefix(PART + "/")), part)
            for name, part in stored.parts.items()
            if name.startswith(PART + "/")
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FormatError(f"{source}: bad kernel section (part {PART!r})") from None
    if size < 1 or any(not 0 <= start <= size - len(part) for start, part in extents):
        raise FormatError(f"{source}: bad kernel section: parts of {PART!r} beyond its size")
    file.truncate(size)
    for start, part in extents:
        file.seek(start)
        file.write(part)
    file.flush()
    image = LibraryImage(
        memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)), source, tree=False
    )
    reasons = problems(image, compiled, kinds)
    if reasons:
        raise LinkError(f"{source}: cannot be run here: {'; '.join(reasons)}")
    for name in image.host_symbols:
        symbol = image.elf.symbols[name]
        file.seek(symbol.entry + 4)
        file.write(bytes([_WEAK | symbol.info & 0xF]))
    file.flush()
    return image.elf, image.kernels
