"""Recursion headroom for walks of deeply nested programs, and a clear error if it is exhausted.

Walks of a program recurse into nested nodes, and Python's recursion limit is 1000 frames by
default.  Frames of Python functions that call each other directly take no C stack, so many more are
safe: inside `headroom` the recursion limit is raised by `HEADROOM`.  If that is still not enough, a
`NestingError` says what is nested, how deeply and where.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from ..errors import NestingError
from .node import Node

__all__ = ["deepest_chain", "gc_paused", "has_headroom", "headroom", "too_deep", "with_headroom"]

HEADROOM: Final = 9000
"""In frames.  A frame that is called through C, as by `map`, takes up to 700 bytes of the C stack,
which has 8 MB in most threads; few frames of our walks are.  CPython 3.12 counts those
by themselves, up to a limit that cannot be raised: it takes some 300 levels of tuples."""

_LARGEST_LIMIT: Final = 2**31 - 1

_MIN_LEVELS: Final = 100
"""A program with fewer levels was not the reason that Python ran out of frames."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _SharedSetting:
    """Context manager that changes a process-wide setting while any thread is inside.  `change`
    makes the change and returns a function that undoes it."""

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._lock = threading.RLock()  # reentrant, since a finalizer may run at any time
        self._inside = 0
        self._undo: Callable[[], object] = int

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._undo = self._change()
            self._inside += 1

    @property
    def is_inside(self) -> bool:
        return self._inside > 0

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._undo()


def _stop_collecting() -> Callable[[], object]:
    if not gc.isenabled():
        return int  # nothing to undo
    gc.disable()
    return gc.enable


def _raise_limit() -> Callable[[], object]:
    limit = sys.getrecursionlimit()
    raised = min(limit + HEADROOM, _LARGEST_LIMIT)
    sys.setrecursionlimit(raised)

    def undo() -> None:
        if sys.getrecursionlimit() == raised:
            # Refused if this thread is deeper than the lower limit.
            with contextlib.suppress(RecursionError):
                sys.setrecursionlimit(limit)

    return undo


gc_paused: Final = _SharedSetting(_stop_collecting)
"""Context manager that pauses the garbage collector.  Programs are large graphs without garbage
cycles; the collector would walk them again and again as they grow, for half of the total time."""

_RAISED: Final = _SharedSetting(_raise_limit)


class headroom:
    """Context manager that raises the recursion limit by `HEADROOM` for walks of `programs`.

    Raises:
        NestingError: one of them is nested too deeply even so; the message begins with `doing`.
    """

    __slots__ = ("_doing", "_programs")

    def __init__(self, doing: str, *programs: Any) -> None:
        self._doing = doing
        self._programs = programs

    def __enter__(self) -> None:
        gc_paused.__enter__()
        _RAISED.__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        found = None
        try:
            _RAISED.__exit__()
            if isinstance(exc, RecursionError) and not isinstance(exc, NestingError):
                found = too_deep(self._doing, self._programs)
        finally:
            gc_paused.__exit__()
        if found is not None:
            raise found from None


def has_headroom() -> bool:
    """Check whether any thread is inside `headroom`: it cannot be raised further."""
    return _RAISED.is_inside


def with_headroom(doing: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: the function runs inside `headroom` for its arguments."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with headroom(doing, *args):
                return function(*args, **kwargs)

        return guarded

    return decorate


# The error message

_NOT_COUNTED: Final = frozenset({"SeqExpr", "BindingBlock", "DataflowBlock", "VarBinding",
                               "ShapeExpr", "IRModule"})  # fmt: skip
"""Classes that are not counted as levels: a reader of the program does not see them."""


def too_deep(doing: str, program: Any) -> NestingError | None:
    """Return the error for a program that is too deep to be walked, or None if it is not deep."""
    chain = deepest_chain(program)
    counts = Counter(type(x).__name__ for x in chain if type(x).__name__ not in _NOT_COUNTED)
    levels = sum(counts.values())
    if levels < _MIN_LEVELS:
        return None
    place = "".join([f"{text}: " for text in _places(chain)])
    most = max(counts, key=counts.__getitem__)
    return NestingError(
        f"{doing}: {place}nested too deeply, about {levels} levels, most of them {most}; bind "
        "parts of it to variables or move them to functions of their own, or raise Python's limit "
        "by sys.setrecursionlimit"
    )


def _places(chain: list[Any]) -> Iterator[str]:
    """Yield the function, the binding and the source line where a chain begins."""
    for node in chain:
        symbol = getattr(node, "attrs", None) if hasattr(node, "params") else None
        if symbol and "global_symbol" in symbol:
            yield f"function {symbol['global_symbol']!r}"
            break
    for node in chain:
        if hasattr(node, "var") and hasattr(node, "value"):
            yield f"binding of {node.var.name!r}"
            break
    for node in chain:
        span = getattr(node, "span", None)
        if span is not None and not hasattr(node, "params"):
            yield str(span)
            break


def deepest_chain(root: Any) -> list[Any]:
    """Return the nodes on the longest path from a program or a syntax tree down to a leaf."""
    depths: dict[int, int] = {}
    nexts: dict[int, tuple[Any, list[Any]]] = {}  # keeps the parts alive, so that ids are unique
    work: list[tuple[Any, list[Any] | None]] = [(root, None)]
    while work:
        x, parts = work.pop()
        if parts is not None:
            longest = max(parts, key=lambda part: depths[id(part)], default=None)
            depths[id(x)] = 1 if longest is None else 1 + depths[id(longest)]
            nexts[id(x)] = longest, parts
        elif id(x) not in depths:
            depths[id(x)] = 0
            parts = _parts(x)
            work.append((x, parts))
            work += [(part, None) for part in parts]
    chain = []
    while root is not None:
        if isinstance(root, (Node, ast.AST)):
            chain.append(root)
        root = nexts[id(root)][0]
    return chain


def _parts(x: Any) -> list[Any]:
    if isinstance(x, Node):
        parts = [getattr(x, field, None) for field in x.FIELDS]
        parts.append(getattr(x, "ty", None))
    elif isinstance(x, ast.AST):
        parts = list(ast.iter_child_nodes(x))
    elif isinstance(x, Mapping):
        parts = [*x, *x.values()]
    else:
        parts = list(x)
    return [p for p in parts if isinstance(p, (Node, ast.AST, tuple, list, Mapping))]
