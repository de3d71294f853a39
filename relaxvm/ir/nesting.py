"""Programs that are nested deeply: room to walk them, and a clear error where it does not suffice.

Walks recurse by nesting, and Python allows 1000 frames by default.  Most of ours call each other
without taking any of C's stack, so that many more are safe: a function that is a `roomy` door to
walks has `ROOM` frames more than the caller may use.  Where these are not enough either, the error
tells what is nested, how deeply and where.
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

__all__ = ["deepest_chain", "has_room", "room", "roomy", "too_deep", "uncollected"]

ROOM: Final = 9000
"""Frames.  One that is called through C, as by `map`, takes up to 700 bytes of C's stack, which is
of 8 MB for most threads; few of ours are."""

_LARGEST_LIMIT: Final = 2**31 - 1

_LEAST_LEVELS: Final = 100
"""A program that is nested less is not what made Python run out of frames."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Shared:
    """Context manager: a setting of the process is changed while any thread is inside.  `change`
    does it and returns what undoes it."""

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._lock = threading.RLock()  # a finalizer may come in at any time
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
    raised = min(limit + ROOM, _LARGEST_LIMIT)
    sys.setrecursionlimit(raised)

    def undo() -> None:
        if sys.getrecursionlimit() == raised:
            # Refused where this thread came in below frames of another one's room.
            with contextlib.suppress(RecursionError):
                sys.setrecursionlimit(limit)

    return undo


uncollected: Final = _Shared(_stop_collecting)
"""Context manager: cycles are not collected.  Programs are large graphs without garbage cycles; the
collector would walk them over and over as they grow, which takes half of the time."""

_RAISED: Final = _Shared(_raise_limit)


class room:
    """Context manager: walks of `programs` have room.

    Raises:
        NestingError: not enough for these; begins with `doing`.
    """

    __slots__ = ("_doing", "_programs")

    def __init__(self, doing: str, *programs: Any) -> None:
        self._doing = doing
        self._programs = programs

    def __enter__(self) -> None:
        uncollected.__enter__()
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
            uncollected.__exit__()
        if found is not None:
            raise found from None


def has_room() -> bool:
    """Whether we are in a `room`: more is not to be had."""
    return _RAISED.is_inside


def roomy(doing: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: the function runs with `room` to walk its arguments."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with room(doing, *args):
                return function(*args, **kwargs)

        return guarded

    return decorate


# Saying what is too deep

_FRAMEWORK: Final = frozenset({"SeqExpr", "BindingBlock", "DataflowBlock", "VarBinding",
                               "ShapeExpr", "IRModule"})  # fmt: skip
"""Classes that stand between the levels that a person counts."""


def too_deep(doing: str, program: Any) -> NestingError | None:
    """The error for a program that is too deep to be walked; None if it is not so deep."""
    chain = deepest_chain(program)
    counts = Counter(type(x).__name__ for x in chain if type(x).__name__ not in _FRAMEWORK)
    levels = sum(counts.values())
    if levels < _LEAST_LEVELS:
        return None
    place = "".join([f"{text}: " for text in _places(chain)])
    most = max(counts, key=counts.__getitem__)
    return NestingError(
        f"{doing}: {place}nested too deeply, about {levels} levels, most of them {most}; bind "
        "parts of it to variables or move them to functions of their own, or raise Python's limit "
        "by sys.setrecursionlimit"
    )


def _places(chain: list[Any]) -> Iterator[str]:
    """Function, binding and line of source where a chain begins."""
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
    """The nodes on the longest way from a program, or from a syntax tree, down to a leaf."""
    depths: dict[int, int] = {}
    nexts: dict[int, tuple[Any, list[Any]]] = {}  # the parts as well, so that no id is given twice
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
