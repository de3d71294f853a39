"""Compile C sources: for this machine, for any machine of the platform, or to object files.

The code shared by all kernels is compiled once per cache and linked to them.  A source of another
version of relaxvm is self-contained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypedDict

from .c_support import HEAD, pieces_of
from .toolchain import (
    compile_c,
    compile_object,
    compile_pieces,
    for_this_machine,
    side_by_side,
)

__all__ = ["SourceState", "code_for_here", "libraries_of", "objects_of"]


class SourceState(TypedDict):
    """A C source, and the names of the functions in it."""

    text: str
    names: list[str]


_NAME: Final = "kernels"
_LINKED: Final = ("-DSUPPORT=0",)
"""Options of sources that are linked with `_support`."""


def code_for_here(sources: Sequence[SourceState]) -> Iterator[tuple[str, Path]]:
    """Yield each function and the shared library with its code for this machine.  A function is
    compiled once, also if it appears in different sources."""
    here = for_this_machine()
    names: list[str] = []
    pieces: list[str] = []
    for source in sources:
        found = pieces_of(source["text"])
        if len(found) == len(source["names"]):
            names += source["names"]
            pieces += found
        else:
            library = compile_c(source["text"], name=_NAME, flags=here)
            yield from ((name, library) for name in source["names"])
    if pieces:
        flags, objects = [*_LINKED, *here], [_support()]
        libraries = compile_pieces(HEAD, pieces, name=_NAME, flags=flags, objects=objects)
        yield from zip(names, libraries, strict=True)


def libraries_of(sources: Sequence[SourceState]) -> list[Path]:
    """Return shared libraries for any machine of the platform, one for each source."""
    support = [_support()]

    def library(source: SourceState) -> Path:
        if not source["text"].startswith(HEAD):
            return compile_c(source["text"], name=_NAME)
        return compile_c(source["text"], name=_NAME, flags=_LINKED, objects=support)

    return side_by_side(library, sources)


def objects_of(sources: Sequence[SourceState]) -> list[Path]:
    """Return object files for any machine of the platform, to be linked to a shared library."""

    def made(source: SourceState) -> Path:
        is_ours = source["text"].startswith(HEAD)
        return compile_object(source["text"], name=_NAME, flags=_LINKED if is_ours else ())

    return [*side_by_side(made, sources), _support()]


def _support() -> Path:
    return compile_object(HEAD, name="support", flags=["-DSUPPORT=1", "-O2"])
