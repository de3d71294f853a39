"""Places in a program as a user names them: functions, instructions, lines, variables."""

from __future__ import annotations

import re
from typing import Final

from ..errors import did_you_mean
from ..executable import VMExecutable
from ..isa import FuncKind
from ..messages import readable

__all__ = ["find_pcs"]

_LINE: Final = re.compile(r"(.*):(\d+)", re.DOTALL)
_PC: Final = re.compile(r"(?:pc\s*|\*)(\d+)")


def find_pcs(executable: VMExecutable, place: str | int) -> list[int]:
    """The instructions before which a run pauses for a place.

    Args:
        executable: the program.
        place: a pc, as a number or as ``"pc 12"``; ``"file:line"`` or ``":line"``, where the end of
            the file's name is enough; the name of a function of the program, for its beginning; the
            name of a packed function, for every call of it; or that of a variable, for the
            instructions that compute it.  The first of these that exists counts.

    Returns:
        The pcs, ascending.

    Raises:
        ValueError: there is no such place.
        TypeError: `place` is neither a str nor an int.
    """
    if isinstance(place, bool) or not isinstance(place, (int, str)):
        raise TypeError(f"place: expected a pc or a name, got {type(place).__name__}")
    if isinstance(place, int):
        if not 0 <= place < len(executable):
            raise ValueError(f"pc {place}: the program has {len(executable)} instructions")
        return [place]
    names = {info.name: info for info in executable.functions}
    info = names.get(place)
    if info is not None and info.kind == FuncKind.BYTECODE:
        return [info.start_instr]
    if info is not None:
        return _calls_of(executable, place)
    if (match := _PC.fullmatch(place)) is not None:
        return find_pcs(executable, int(match[1]))
    if (match := _LINE.fullmatch(place)) is not None:
        return _line_pcs(executable, match[1], int(match[2]))
    return _variable_pcs(executable, place, list(names))


def _calls_of(executable: VMExecutable, name: str) -> list[int]:
    found = [
        pc for pc, instruction in executable.instructions()
        if instruction.op.name == "call"
        and executable.functions[instruction["func_idx"]].name == name
    ]  # fmt: skip
    if not found:
        raise ValueError(f"{readable(name)}: the program does not call it")
    return found


def _line_pcs(executable: VMExecutable, file: str, line: int) -> list[int]:
    debug = executable.debug
    if debug is None:
        raise ValueError(f"line {line}: the program has no source places; it was built or saved "
                         f"without debug information")
    found = []
    lines = set()
    here = False
    for location in debug:
        span = location.span
        before, here = here, False
        if span is None or not _is_file(span.file, file):
            continue
        lines.add(span.line)
        here = span.line == line
        if here and not before:  # code of one line in one piece is one place
            found.append(location.pc)
    if not found:
        near = min(lines, key=lambda other: abs(other - line), default=None)
        hint = f"; the nearest line with code is {near}" if near is not None else (
            f"; its files are {', '.join(map(readable, debug.files)) or 'not known'}")
        raise ValueError(f"{readable(file)}:{line}: no instruction comes from there{hint}")
    return found


def _is_file(file: str, asked: str) -> bool:
    return file == asked or not asked or file.replace("\\", "/").endswith(f"/{asked.lstrip('/')}")


def _variable_pcs(executable: VMExecutable, name: str, functions: list[str]) -> list[int]:
    debug = executable.debug
    known: tuple[str, ...] = () if debug is None else debug.variables
    if debug is None or name not in known:
        hint = did_you_mean(name, [*functions, *known])
        raise ValueError(f"{readable(name)}: no function or variable of the program has this name"
                         f"{hint}")
    found = []
    previous = None
    for location in debug:
        if location.variable == name and previous != name:
            found.append(location.pc)
        previous = location.variable
    return found
