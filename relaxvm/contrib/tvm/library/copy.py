"""The private copy of a library that is loaded instead of the library itself.

Each copy has its own variables for a loader to fill, so TVM may have loaded the same file; and the
copy is independent of later changes to the file.  It does not contain the tree of modules, which
the code does not read: the copy has a hole in its place.
"""

from __future__ import annotations

import json
import mmap
from typing import IO, Final

from ....errors import FormatError, LinkError
from ....executable import LIBRARY_PART, StoredKernels
from .elf import ElfFile
from .image import LibraryImage, problems

__all__ = ["write_copy"]

_WEAK: Final = 2 << 4
"""The binding of an optional symbol."""


def write_copy(stored: StoredKernels, file: IO[bytes]) -> tuple[ElfFile, dict[str, str]]:
    """Write the copy, in which all symbols that TVM's libraries would provide are optional.

    Args:
        stored: the library, as returned by `LibraryImage.parts`.
        file: an empty file that can be written and read.

    Returns:
        the copy, and its kernels: name -> symbol.

    Raises:
        LinkError: the library cannot be run here; the message has all reasons.
        FormatError: the library is not well-formed.
        OSError: the file cannot be written.
    """
    source = stored.source
    try:
        about = json.loads(stored.parts[LIBRARY_PART])
        size, compiled, kinds = int(about["size"]), list(about["compiled"]), list(about["modules"])
        extents = [
            (int(name.removeprefix(LIBRARY_PART + "/")), part)
            for name, part in stored.parts.items()
            if name.startswith(LIBRARY_PART + "/")
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FormatError(f"{source}: bad kernel section (part {LIBRARY_PART!r})") from None
    if size < 1 or any(not 0 <= start <= size - len(part) for start, part in extents):
        raise FormatError(
            f"{source}: bad kernel section: parts of {LIBRARY_PART!r} beyond its size"
        )
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
