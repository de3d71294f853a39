"""Mutants of listings: the corpus as text."""

from __future__ import annotations

import contextlib
from functools import cache

from relaxvm.errors import FormatError
from relaxvm.executable.formats import binary
from relaxvm.executable.loading import parse_text

from ..corpus import CORPUS
from .changes import Mutant, Words, as_text, change_text, seeded
from .execute import LIMITS, LONG, execute
from .mutate import bases as executables
from .outcomes import Ending

__all__ = ["bases", "mutant", "run"]


@cache
def bases() -> dict[str, str]:
    """Return the listings to mutate: complete ones with all constants, and plain ones."""
    found = {}
    for name, case in CORPUS.items():
        if len(case.executable) <= LONG:
            found[name] = case.executable.as_text(complete=True)
            if not case.executable.constants:
                found[f"{name} (plain)"] = case.executable.as_text()
    for name, data in executables().items():
        if name.endswith(" (debug)") and name.partition(" (")[0] in found:
            with contextlib.suppress(FormatError):  # it says something of missing instructions
                found[name] = binary.loads(data).as_text(complete=True)
    return found


@cache
def _names() -> list[str]:
    return sorted(bases())


@cache
def _words() -> Words:
    return Words.of([*bases().values()])


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("listing", index, seed)
    base = rng.choice(_names())
    text, steps = change_text(bases()[base], _words(), rng)
    return Mutant(base, tuple(steps), text.encode("utf-8", "surrogatepass"))


def run(mutant: Mutant, index: int) -> Ending:
    """Assemble a mutant, and run what it says."""
    text = as_text(mutant.data)
    return execute(lambda: parse_text(text, limits=LIMITS), mutant.base, index)
