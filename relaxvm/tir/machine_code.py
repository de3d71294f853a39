"""Texts of C as machine code: of this machine, of any machine of the platform, as objects.

What kernels have in common is compiled once for a cache and linked to them.  A text of another
version of relaxvm has all that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypedDict

from ..toolchain import (
    compile_c,
    compile_object,
    compile_pieces,
    for_this_machine,
    side_by_side,
)
from .c_support import HEAD
from .lower_c import pieces_of

__all__ = ["SourceState", "code_for_here", "libraries_of", "objects_of"]


class SourceState(TypedDict):
    """A text of C, and the names of the functions in it."""

    text: str
    names: list[str]


_NAME: Final = "kernels"
_LINKED: Final = ("-DSUPPORT=0",)
"""Options of texts that are linked with `_support`."""


def code_for_here(sources: Sequence[SourceState]) -> Iterator[tuple[str, Path]]:
    """Each function, and the shared library with its code for this machine.  A function is compiled
    once, whatever else is in its text."""
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
    """Shared libraries for any machine of the platform, one for each text."""
    support = [_support()]

    def library(source: SourceState) -> Path:
        if not source["text"].startswith(HEAD):
            return compile_c(source["text"], name=_NAME)
        return compile_c(source["text"], name=_NAME, flags=_LINKED, objects=support)

    return side_by_side(library, sources)


def objects_of(sources: Sequence[SourceState]) -> list[Path]:
    """Objects for any machine of the platform, which make a shared library together."""

    def made(source: SourceState) -> Path:
        is_ours = source["text"].startswith(HEAD)
        return compile_object(source["text"], name=_NAME, flags=_LINKED if is_ours else ())

    return [*side_by_side(made, sources), _support()]


def _support() -> Path:
    return compile_object(HEAD, name="support", flags=["-DSUPPORT=1", "-O2"])
