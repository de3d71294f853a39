"""Where code comes from: spans of source text, and the debug information of an executable.

A `Span` is a piece of a source file.  The compiler hands one to `ExecBuilder.at` for every binding,
together with the name of the variable that it binds; the executable keeps both in a `DebugInfo`,
from which errors, profiles and listings take them.

Nothing here opens a file: what a span names may be on another machine, and the name may come from a
file of unknown origin.  To show lines of source anyway, `DebugInfo` can hold
the text of the lines that its spans touch.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["DebugInfo", "FusedSpan", "Location", "Span", "short_file"]

MAX_LINE: Final = 1000
"""Characters of a line of source.  `DebugInfo.of` does not keep longer ones: nobody wrote them."""

MAX_NUMBER: Final = (1 << 31) - 1
"""The greatest pc, line or column."""

_LINE_END: Final = r"\r\n|\r|\n"


class Span:
    """A piece of a source file, from its first character to before its end.

    Compares by value; not to be changed once made.

    Attributes:
        file: name of the file, or of what else the text came from.
        line, column: of the first character; both count from 1, columns in characters.
        end_line, end_column: of the character after the last one; by default the piece is one
            character long.
    """

    __slots__ = ("column", "end_column", "end_line", "file", "line")

    def __init__(
        self,
        file: str,
        line: int,
        column: int,
        end_line: int | None = None,
        end_column: int | None = None,
    ) -> None:
        self.file = file
        self.line = line
        self.column = column
        self.end_line = line if end_line is None else end_line
        self.end_column = column + 1 if end_column is None else end_column

    def to(self, last: Span) -> Span:
        """The piece from the start of this one to the end of `last`, in the same file."""
        return Span(self.file, self.line, self.column, last.end_line, last.end_column)

    def _key(self) -> tuple[str, int, int, int, int]:
        return self.file, self.line, self.column, self.end_line, self.end_column

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Span) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __repr__(self) -> str:
        return f"Span({', '.join(map(repr, self._key()))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Span, self._key()


Part = tuple[Span | None, str | None]
"""A binding that has become part of an operation: its place and its variable, as far as known."""


class FusedSpan(Span):
    """The place of an operation that a pass has made of several bindings.

    It is that of the binding whose variable the operation defines, so passes that know nothing of
    parts keep them.

    Attributes:
        place: of that binding, if known; without one, file, line and column mean nothing.
        parts: the other bindings, in the order of the program.
    """

    __slots__ = ("parts", "place")

    def __init__(self, place: Span | None, parts: Iterable[Part]) -> None:
        key = ("?", 1, 1, 1, 2) if place is None else place._key()
        super().__init__(*key)
        self.place = place
        self.parts = tuple(parts)

    @classmethod
    def of(cls, span: Span | None, bindings: Iterable[Part]) -> Span | None:
        """The place of an operation that was made of the binding at `span` and of other ones, which
        may have been made of several themselves."""
        parts: dict[Part, None] = {}
        for place, name in bindings:
            if isinstance(place, FusedSpan):
                parts.update(dict.fromkeys(place.parts))
                place = place.place
            if place is not None or name:
                parts[place, name or None] = None
        if isinstance(span, FusedSpan):
            parts.update(dict.fromkeys(span.parts))
            span = span.place
        return cls(span, parts) if parts else span

    def __repr__(self) -> str:
        return f"FusedSpan({self.place!r}, {self.parts!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FusedSpan, (self.place, self.parts)


class Location(NamedTuple):
    """Where the instructions from `pc` on come from, up to the pc of the next location.

    Attributes:
        pc: counted from the start of the executable.
        span: the binding in the source, if known.
        variable: the variable of the IR that the binding defines, if known.
        parts: place and variable of the other bindings that a pass has put into this operation.
    """

    pc: int
    span: Span | None = None
    variable: str | None = None
    parts: tuple[Part, ...] = ()


def short_file(file: str) -> str:
    """Return a path relative to the working directory if the file is below it, else the last folder
    and the name.  A relative path is returned as it is."""
    from pathlib import Path  # here, since loading and running a program does without

    path = Path(file)
    if not path.is_absolute():
        return file
    below = path.is_relative_to(folder := Path.cwd())
    return path.relative_to(folder).as_posix() if below else "/".join(path.parts[1:][-2:])


class DebugInfo:
    """Source spans and variable names of the instructions of an executable.

    Columns of integers and tables without repetition; equal content has equal columns, so
    instances compare by them.  Immutable.  `of` makes one from locations.

    Attributes:
        runs: int32[n, 3], one row per `Location`: first pc, row of `spans` or -1, index into
            `variables` or -1.  The pcs increase, a row differs from the one before it in more than
            its pc, and the first one is not of nothing.
        parts: int32[j, 3], one row per part of an operation that was made of several: row of
            `runs`, which does not decrease, row of `spans` or -1, index into `variables` or -1.
        spans: int32[k, 5]: index into `files`, line, column, end_line, end_column.
        files, variables: names.  They and the rows of `spans` are distinct, and are in the order
            of their first use.
        line_numbers: int32[m, 2]: index into `files` and line, increasing.
        line_texts: the text of these lines, without their ends.

    Raises:
        ValueError: the columns are not as described.
    """

    __slots__ = ("_file_index", "_line_keys", "_pcs", "files", "line_numbers", "line_texts",
                 "parts", "runs", "spans", "variables")  # fmt: skip

    files: tuple[str, ...]
    variables: tuple[str, ...]
    line_texts: tuple[str, ...]
    runs: NDArray[np.int32]
    spans: NDArray[np.int32]
    parts: NDArray[np.int32]
    line_numbers: NDArray[np.int32]
    _pcs: NDArray[np.int32]
    _file_index: dict[str, int]
    _line_keys: NDArray[np.int64]

    def __init__(
        self,
        runs: ArrayLike,
        spans: ArrayLike,
        files: Sequence[str],
        variables: Sequence[str] = (),
        line_numbers: ArrayLike = (),
        line_texts: Sequence[str] = (),
        parts: ArrayLike = (),
    ) -> None:
        put = object.__setattr__
        put(self, "parts", _table("parts", parts, 3))
        put(self, "runs", _table("runs", runs, 3))
        put(self, "spans", _table("spans", spans, 5))
        put(self, "files", tuple(files))
        put(self, "variables", tuple(variables))
        put(self, "line_numbers", _table("line_numbers", line_numbers, 2))
        put(self, "line_texts", tuple(line_texts))
        put(self, "_pcs", self.runs[:, 0])
        put(self, "_file_index", {name: i for i, name in enumerate(self.files)})
        put(self, "_line_keys", _line_key(*self.line_numbers.astype(np.int64).T))
        _check(self)

    @classmethod
    def of(
        cls,
        locations: Iterable[Place],
        sources: Mapping[str, str | Mapping[int, str]] | None = None,
    ) -> DebugInfo:
        """Debug information from locations.

        Args:
            locations: `Location` or plain tuples (pc, span, variable), to which parts may be
                added; the pcs must not decrease, and of several with the same pc the last one
                counts.
            sources: file -> its text, of which the lines that spans touch are kept, up to
                `MAX_LINE` characters long; or line -> text, which is kept as it is.

        Raises:
            ValueError: pcs decrease or are negative; a span has a line or column below 1 or ends
                before it begins.
        """
        files: dict[str, int] = {}
        variables: dict[str, int] = {}
        spans: dict[_SpanKey, int] = {}


        def numbers_of(span: _SpanKey | None, variable: str | None) -> tuple[int, int]:
            return (
                -1 if span is None else spans.setdefault(span, len(spans)),
                -1 if variable is None else variables.setdefault(variable, len(variables)),
            )

        changes = list(_changes(locations))
        runs = [(pc, *numbers_of(*place[:2])) for pc, place in changes]
        parts = [
            (row, *numbers_of(*part)) for row, (_, place) in enumerate(changes) for part in place[2]
        ]
        table = [
            (files.setdefault(file, len(files)), *map(operator.index, numbers))
            for file, *numbers in spans
        ]
        kept = _kept_lines(table, files, sources or {})
        return cls(
            _columns(runs, 3), _columns(table, 5), tuple(files), tuple(variables),
            _columns(list(kept), 2), tuple(kept.values()), _columns(parts, 3),
        )  # fmt: skip

    @classmethod
    def of_bodies(
        cls,
        bodies: Iterable[tuple[int, int, Iterable[Place]]],
        sources: Mapping[str, str | Mapping[int, str]] | None = None,
    ) -> DebugInfo | None:
        """Debug information of functions, None if nothing is known of any.

        Args:
            bodies: the functions in the order of their code: first pc, the one after the last, and
                locations whose pcs count from the first.  They do not reach into the next function.
            sources: as of `of`.

        Raises:
            ValueError: as `of`.
        """
        locations: list[Place] = []
        for start, end, inside in bodies:
            locations.append((start, None, None))
            locations += [
                Location(start + pc, *place) for pc, *place in inside if start + pc < end
            ]
        return cls.of(locations, sources) or None

    def with_short_files(self) -> DebugInfo:
        """As it may leave this machine: files by `short_file`, if that keeps them apart.  The lines
        that are shown are in `line_texts`; nothing reads the files."""
        short = tuple(map(short_file, self.files))
        if short == self.files or len(set(short)) < len(short):
            return self
        return DebugInfo(
            self.runs, self.spans, short, self.variables, self.line_numbers, self.line_texts,
            self.parts,
        )  # fmt: skip

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"DebugInfo.{name}: debug information is immutable")

    __delattr__ = None  # type: ignore[assignment]

    # Looking up

    def span(self, pc: int) -> Span | None:
        """Where in the source an instruction comes from, if known."""
        return self.location(pc).span

    def variable(self, pc: int) -> str | None:
        """The variable that the binding of an instruction defines, if known."""
        return self.location(pc).variable

    def location(self, pc: int) -> Location:
        """The location that holds for an instruction; its pc may be that of an earlier one."""
        row = int(np.searchsorted(self._pcs, pc, "right")) - 1
        return self._location(row) if row >= 0 else Location(0)

    def within(self, start: int, end: int) -> Iterator[Location]:
        """The locations of a range of instructions; the first one is left out if nothing is known
        of the first instruction."""
        first = self.location(start)
        if first[1:] != _UNKNOWN:
            yield first._replace(pc=start)
        rows = np.searchsorted(self._pcs, (start + 1, max(start + 1, end))).tolist()
        yield from map(self._location, range(*rows))

    def line(self, file: str, line: int) -> str | None:
        """A line of source, without its end, if it is kept."""
        at = Span(file, line, 1)
        return next((text for number, text in self.lines(at)), None)

    def lines(self, span: Span) -> Iterator[tuple[int, str]]:
        """The lines of a span that are kept, each with its number."""
        file = self._file_index.get(span.file)
        if file is None:
            return
        bounds = _line_key(file, span.line), _line_key(file, span.end_line + 1)
        for row in range(*np.searchsorted(self._line_keys, bounds).tolist()):
            yield int(self.line_numbers[row, 1]), self.line_texts[row]

    @property
    def sources(self) -> dict[str, dict[int, str]]:
        """The lines kept: file -> line -> text."""
        found: dict[str, dict[int, str]] = {}
        for (file, line), text in zip(self.line_numbers.tolist(), self.line_texts, strict=True):
            found.setdefault(self.files[file], {})[line] = text
        return found

    def __iter__(self) -> Iterator[Location]:
        """The locations, in order."""
        return map(self._location, range(len(self.runs)))

    def __len__(self) -> int:
        """Number of locations."""
        return len(self.runs)

    def _location(self, row: int) -> Location:
        pc, span, variable = self.runs[row].tolist()
        return Location(
            pc,
            self._span(span) if span >= 0 else None,
            self.variables[variable] if variable >= 0 else None,
            self._parts_of(row) if len(self.parts) else (),
        )

    def _parts_of(self, row: int) -> tuple[Part, ...]:
        return tuple([
            (
                self._span(span) if span >= 0 else None,
                self.variables[variable] if variable >= 0 else None,
            )
            for span, variable in self._rows_of(row).tolist()
        ])  # fmt: skip

    def _rows_of(self, row: int) -> NDArray[np.int32]:
        first, last = np.searchsorted(self.parts[:, 0], (row, row + 1)).tolist()
        return self.parts[first:last, 1:]

    def _span(self, row: int) -> Span:
        file, *numbers = self.spans[row].tolist()
        return Span(self.files[file], *numbers)

    def summary(self) -> str:
        """What there is of each, for people."""
        counts = (
            (len(self.runs), "location"),
            (len(self.spans), "span"),
            (len(self.files), "file"),
            (len(self.variables), "variable"),
            (len(self.line_texts), "line of source", "lines of source"),
        )
        return ", ".join(f"{count} {one if count == 1 else (*many, one + 's')[0]}"
                         for count, one, *many in counts)  # fmt: skip

    def __repr__(self) -> str:
        return f"<DebugInfo: {self.summary()}>"

    # Content

    def _content(self) -> tuple[Any, ...]:
        arrays = self.runs, self.spans, self.line_numbers, self.parts
        return (
            *(array.tobytes() for array in arrays),
            self.files, self.variables, self.line_texts,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DebugInfo):
            return NotImplemented
        return self is other or self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __copy__(self) -> DebugInfo:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DebugInfo:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return DebugInfo, (
            self.runs, self.spans, self.files, self.variables, self.line_numbers, self.line_texts,
            self.parts,
        )  # fmt: skip


Place = tuple[int, Span | None, str | None] | Location
_SpanKey = tuple[str, int, int, int, int]
_Part = tuple[_SpanKey | None, str | None]
_Place = tuple[_SpanKey | None, str | None, tuple[_Part, ...]]
_UNKNOWN: Final[_Place] = (None, None, ())


# From locations to columns


def _changes(
    locations: Iterable[Place],
) -> Iterator[tuple[int, _Place]]:
    """The pcs at which the place changes, and the place from there on."""
    changes: list[tuple[int, _Place]] = []
    last = 0
    for location in locations:
        pc, span, variable, parts = Location(*location)
        if pc < last:
            raise ValueError(f"locations: expected pcs that do not decrease, got {pc} after {last}")
        last = pc
        if changes and changes[-1][0] == pc:
            changes.pop()
        place = (
            *_part(span, variable), tuple([_part(*part) for part in parts])
        )  # fmt: skip
        if place != (changes[-1][1] if changes else _UNKNOWN):
            changes.append((pc, place))
    return iter(changes)


def _part(span: Span | None, variable: str | None) -> _Part:
    return None if span is None else span._key(), variable


def _kept_lines(
    spans: Sequence[tuple[int, ...]],
    files: Mapping[str, int],
    sources: Mapping[str, str | Mapping[int, str]],
) -> dict[tuple[int, int], str]:
    """(file, line) -> text, in order."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for file, line, _, end_line, _ in spans:
        ranges.setdefault(file, []).append((line, end_line))
    kept: dict[tuple[int, int], str] = {}
    for name, file in files.items():
        source = sources.get(name, {})
        found = source if isinstance(source, Mapping) else _touched(source, ranges[file])
        kept.update({(file, line): found[line] for line in sorted(found)})
    return kept


def _touched(source: str, ranges: list[tuple[int, int]]) -> dict[int, str]:
    """The lines of a text that lie in one of the ranges, first and last line included."""
    lines = re.split(_LINE_END, source)
    found: dict[int, str] = {}
    done = 0
    for first, last in sorted(ranges):
        for number in range(max(first, done + 1), min(last, len(lines)) + 1):
            if len(lines[number - 1]) <= MAX_LINE:
                found[number] = lines[number - 1]
        done = max(done, last)
    return found


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> NDArray[np.int64]:
    try:
        return np.array(rows, np.int64).reshape(-1, width)
    except OverflowError:
        raise ValueError(f"debug information: expected numbers up to {MAX_NUMBER}") from None


# Checks of the columns


def _table(what: str, rows: ArrayLike, width: int) -> NDArray[np.int32]:
    wide = np.asarray(rows)
    if not wide.size:
        wide = np.empty((0, width), np.int32)
    if wide.ndim != 2 or wide.shape[1] != width or wide.dtype.kind not in "iu":
        raise ValueError(f"{what}: expected integers [n, {width}], got {wide.dtype}{wide.shape}")
    if wide.min(initial=-1) < -1 or wide.max(initial=-1) > MAX_NUMBER:
        raise ValueError(f"{what}: expected numbers from -1 to {MAX_NUMBER}")
    # Over bytes, an array cannot be made writable.
    raw = np.ascontiguousarray(wide, np.int32).tobytes()
    return np.frombuffer(raw, np.int32).reshape(-1, width)


def _check(info: DebugInfo) -> None:
    runs, spans = info.runs, info.spans
    _check_names("files", info.files)
    _check_names("variables", info.variables)
    if (len(runs) and runs[0, 0] < 0) or np.any(runs[1:, 0] <= runs[:-1, 0]):
        raise ValueError("runs: expected pcs that increase from 0 on")
    owners = info.parts[:, 0]
    if np.any(owners < 0) or np.any(owners >= len(runs)) or np.any(owners[1:] < owners[:-1]):
        raise ValueError(f"parts: expected rows of runs below {len(runs)}, which do not decrease")
    if np.any(np.all(info.parts[:, 1:] < 0, axis=1)):
        raise ValueError("parts: expected each to have a place or a variable")
    if len(runs) and np.all(runs[0, 1:] < 0) and 0 not in owners:
        raise ValueError("runs: expected a first one of something")
    same = np.flatnonzero(np.all(runs[1:, 1:] == runs[:-1, 1:], axis=1)).tolist()
    if any(np.array_equal(info._rows_of(row), info._rows_of(row + 1)) for row in same):
        raise ValueError("runs: expected each to differ from the one before")
    used = np.concatenate([runs[:, 1:], info.parts[:, 1:]])
    _check_use("runs: span", used[:, 0], len(spans))
    _check_use("runs: variable", used[:, 1], len(info.variables))
    _check_use("spans: file", spans[:, 0], len(info.files))
    if np.any(spans < [0, 1, 1, 1, 1]):
        raise ValueError("spans: expected a file, and lines and columns from 1 on")
    _, line, column, end_line, end_column = spans.T
    if np.any((end_line < line) | ((end_line == line) & (end_column < column))):
        raise ValueError("spans: expected each to end where it begins or after that")
    ordered = spans[np.lexsort(spans.T)]
    if np.any(np.all(ordered[1:] == ordered[:-1], axis=1)):
        raise ValueError("spans: expected distinct ones")
    file, line = info.line_numbers.T
    if np.any(file < 0) or np.any(file >= len(info.files)) or np.any(line < 1):
        raise ValueError(
            f"line_numbers: expected files below {len(info.files)}, and lines from 1 on"
        )
    if np.any(info._line_keys[1:] <= info._line_keys[:-1]):
        raise ValueError("line_numbers: expected increasing ones")
    if len(line) != len(info.line_texts):
        raise ValueError(
            f"line_texts: expected {len(line)}, one per line number, got {len(info.line_texts)}"
        )


def _check_names(what: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names) or "" in names:
        raise ValueError(f"{what}: expected distinct names, none of them empty")


def _check_use(what: str, indices: NDArray[np.int32], count: int) -> None:
    """Every one of `count` things is used, in order of its first use; -1 uses none."""
    used, first = np.unique(indices[indices >= 0], return_index=True)
    if not np.array_equal(used, np.arange(count)) or np.any(first[1:] < first[:-1]):
        raise ValueError(
            f"{what}: expected indices below {count}, each used, in order of their first use"
        )


def _line_key(file: Any, line: Any) -> Any:
    """A number that grows with file and line."""
    return (file << 32) + line


# Showing a piece of a line
