"""The garbage collector of Python, where it would look for garbage that cannot be there."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collection_paused"]


@contextmanager
def collection_paused() -> Iterator[None]:
    """Run a block without the garbage collector, unless it is off already.

    For blocks that make many objects which stay: imports, and reading a program.  Each collection
    among them looks at all objects so far, in vain; they took a tenth of the time of a start.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
