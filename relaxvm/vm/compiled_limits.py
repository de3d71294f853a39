"""Limits on runs of compiled functions.

`check_time` ends a run that was cancelled or whose time is over; it is called after each packed
function and before each function of the program.  `Frames` bounds the depth of calls.

A VM with limits runs another version of the source, which `counted` makes.  There, each block of
statements begins with::

    if count(vm, instructions, nbytes):
        yield nbytes

`count_block` counts instructions and the most bytes of objects that the block makes.  When these
may be too many, it asks for a census: the function yields an int, so that it is suspended like its
callers, and all that their variables lead to can be visited.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import CodeType, GeneratorType
from typing import Any, Final

from .._core import count_frame, count_objects, run_state
from ..core._deadlines import check_time
from ..core._translate import bytes_of_call
from ..errors import LimitError
from ..limits import Limits

__all__ = ["Frames", "counted", "frame_bytes", "is_limited"]

_FRAME_BYTES: Final = 256
"""Of a generator, approximately, without its variables and its stack."""


def is_limited(limits: Limits) -> bool:
    """Whether a run can exceed one of the limits, other than the depth of calls."""
    bounds = limits.fuel, limits.wall_time, limits.live_bytes, limits.alloc_bytes
    return any(bound is not None for bound in bounds)


def frame_bytes(code: CodeType) -> int:
    """About the bytes of the frame of a generator."""
    return _FRAME_BYTES + 8 * (code.co_nlocals + code.co_stacksize)


class Frames:
    """What counts the frames of one run.

    Args:
        limits: of the VM.
        args: of the function that was called first; the caller keeps them alive.
    """

    __slots__ = ("_args", "_base", "_max_depth", "_objects")

    def __init__(self, limits: Limits, args: Sequence[Any]) -> None:
        self._args = tuple(args)
        self._max_depth = limits.call_depth
        self._base, self._objects = run_state()

    def call(self, name: str, depth: int, nbytes: int) -> None:
        """Check that a function may be called.

        Args:
            name: of the function.
            depth: the number of frames in this run that wait for it.
            nbytes: about the bytes of its frame.

        Raises:
            LimitError, CancelledError: it may not.
        """
        depth += self._base
        if depth > self._max_depth:
            raise LimitError(
                f"{name}: calls are nested deeper than {self._max_depth} frames (limit call_depth)",
                "call_depth",
            )
        count_frame(depth, nbytes)
        check_time()

    def back(self, depth: int) -> None:
        """Note that a function has returned, and `depth` frames are left."""
        count_frame(self._base + max(depth - 1, 0), 0)

    def census(
        self, vm: Any, generators: Sequence[GeneratorType[Any, Any, Any]], nbytes: int
    ) -> None:
        """Count all objects that suspended frames lead to.

        Args:
            nbytes: of the frames, and of objects that the last of them is going to make.

        Raises:
            LimitError: they are above the limit `live_bytes`.
        """
        count_objects(vm, self._objects + nbytes, (self._args, *generators))


def counted(text: str, packed: Mapping[str, str], file: str) -> tuple[CodeType, str]:
    """Compile source whose functions count what they do.

    Args:
        text: the source.
        packed: name of a packed function -> its name in the source.
        file: the name of the source.

    Returns:
        The code, and the name of the function in it that counts: `count_block`.
    """
    counter = "count"
    while counter in text:
        counter = f"_{counter}"
    module = ast.parse(text, file)
    writer = _Counting(counter, {short: name for name, short in packed.items()})
    for function in module.body:
        if isinstance(function, ast.FunctionDef):
            function.body = writer.block(function.body)
    return compile(module, file, "exec"), counter


class _Counting:
    """Adds the statements that count."""

    def __init__(self, counter: str, packed: Mapping[str, str]) -> None:
        self._counter = counter
        self._packed = packed

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A list of statements with one more at each place where a block begins: at its start,
        after each `if`, and after each call of a function of the program, since a census there
        forgets what was counted before."""
        made: list[ast.stmt] = []
        block: list[ast.stmt] = []
        for statement in statements:
            block.append(statement)
            if isinstance(statement, ast.If):
                made += self._count(block)
                made += block
                statement.body = self.block(statement.body)
                statement.orelse = self.block(statement.orelse)
                block = []
            elif any(isinstance(node, ast.Yield) for node in ast.walk(statement)):
                made += self._count(block)
                made += block
                block = []
        return [*made, *self._count(block), *block]

    def _count(self, block: Sequence[ast.stmt]) -> list[ast.stmt]:
        if not block:
            return []
        nbytes = sum(map(self._bytes, block))
        source = f"if {self._counter}(vm, {len(block)}, {nbytes}):\n    yield {nbytes}"
        (statement,) = ast.parse(source).body
        for node in ast.walk(statement):
            ast.copy_location(node, block[0])
        return [statement]

    def _bytes(self, statement: ast.stmt) -> int:
        root: ast.AST = statement
        if isinstance(statement, ast.If):
            root = statement.test
        total = 0
        for node in ast.walk(root):
            if isinstance(statement, ast.Expr) and node is statement.value:
                continue  # its result is dropped
            if isinstance(node, ast.Tuple):
                total += bytes_of_call("vm.builtin.make_tuple", len(node.elts))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                # `Again` and `function` are not packed functions.
                name = self._packed.get(node.func.id, "")
                total += bytes_of_call(name, len(node.args))
        return total
