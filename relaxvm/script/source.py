"""Sources of script: files, texts, and the locations in them that messages point to."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Final, NoReturn

from ..errors import DiagnosticError, NestingError
from ..executable.debug_info import Span
from ..executable.underline import underlined
from ..ir.nesting import deepest_chain, gc_paused

__all__ = ["Source"]

Definition = ast.ClassDef | ast.FunctionDef


class Source:
    """A parsed Python text and the name of its file.

    Lines and columns in syntax trees are those of the file.
    """

    __slots__ = ("_ascii", "_definitions", "_lines", "file", "text", "tree")

    def __init__(self, text: str, file: str = "<script>") -> None:
        self.text = text
        self.file = file
        self._ascii = text.isascii()
        self._lines: list[str] | None = None
        self._definitions: dict[str, list[Definition]] | None = None
        try:
            with gc_paused:
                self.tree = ast.parse(text)
        except SyntaxError as error:
            line, column = error.lineno or 1, max(error.offset or 1, 1)
            self.fail(Span(file, line, column), f"{error.msg}; a script is Python by its syntax")
        except (RecursionError, MemoryError) as error:  # raised by Python's parser for deep nesting
            self.fail(
                Span(file, 1, 1),
                f"nested too deeply for the parser of Python ({error}); bind parts of expressions "
                "to variables",
                kind=NestingError,
            )

    @property
    def lines(self) -> list[str]:
        """The lines, without line ends."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines

    def span(self, node: Any) -> Span:
        """Return the location of a node of the syntax tree."""
        if self._ascii:
            return Span(
                self.file,
                node.lineno,
                node.col_offset + 1,
                node.end_lineno,
                node.end_col_offset + 1,
            )
        return Span(
            self.file,
            node.lineno,
            self._column(node.lineno, node.col_offset),
            node.end_lineno,
            self._column(node.end_lineno, node.end_col_offset),
        )

    def _column(self, line: int, offset: int) -> int:
        """Convert a column from bytes of UTF-8, as in Python's syntax trees, to characters."""
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1

    def error(self, node: Any, message: str) -> NoReturn:
        """Raise a `DiagnosticError` that points to a node of the syntax tree (or to a `Span`)."""
        self.fail(node if isinstance(node, Span) else self.span(node), message)

    def fail(
        self,
        span: Span,
        message: str,
        others: Sequence[str] = (),
        kind: type[DiagnosticError] = DiagnosticError,
    ) -> NoReturn:
        """Raise a `DiagnosticError` with the location, the message, the source line with carets
        under it, and one line for each of the `others`."""
        text = f"{span}: {message}"
        if span.line <= len(self.lines):
            line = self.lines[span.line - 1]
            end = span.end_column if span.end_line == span.line else len(line) + 1
            shown, carets = underlined(line, span.column, end)
            margin = f"{span.line:5} | "
            text += f"\n{margin}{shown}\n{' ' * (len(margin) - 2)}| {carets}"
        raise kind("\n".join([text, *others]))

    def too_deep(self, tree: ast.AST, error: NestingError) -> NoReturn:
        """Raise a `NestingError` that points to the deepest statement of a syntax tree."""
        *_, deepest = [tree, *[n for n in deepest_chain(tree) if isinstance(n, ast.stmt)]]
        self.fail(self.span(deepest), str(error), kind=NestingError)

    @classmethod
    def of_file(cls, file: str, namespace: Mapping[str, Any]) -> Source:
        """Return the source of a file that Python runs; also of a notebook cell or a doctest.

        Raises:
            OSError: the text is not available, as for code that was passed to `exec`.
        """
        linecache.checkcache(file)
        lines = linecache.getlines(file, dict(namespace))
        if not lines:
            raise OSError(f"{file}: there is no source text; pass the text to from_source instead")
        if _LAST and _LAST[0].file == file and _LAST_LINES[0] is lines:
            return _LAST[0]
        source = cls("".join(lines), file)
        _LAST[:], _LAST_LINES[:] = [source], [lines]
        return source

    def function_at(self, code: CodeType) -> ast.FunctionDef:
        """Return the definition of a function that Python has compiled."""
        found = self._defined(ast.FunctionDef, code.co_name, code.co_firstlineno)
        if found is None:
            raise OSError(f"{self.file}: function {code.co_name!r} is no longer in the file")
        assert isinstance(found, ast.FunctionDef)
        return found

    def class_at(self, name: str, line: int, inner_lines: list[int]) -> ast.ClassDef:
        """Return the definition of a class.

        Args:
            line: a line of its decorators or its header, if known.
            inner_lines: lines of functions that are defined in it.
        """
        found = self._defined(ast.ClassDef, name, line)
        if found is None:
            known = [c for c in self._all(name) if isinstance(c, ast.ClassDef)]
            holding = [
                c for c in known
                if inner_lines and all(c.lineno <= i <= (c.end_lineno or 0) for i in inner_lines)
            ]  # fmt: skip
            known = holding or known
            if len(known) != 1:
                raise OSError(f"{self.file}: class {name!r} is not found at line {line}")
            return known[0]
        assert isinstance(found, ast.ClassDef)
        return found

    def _defined(self, kind: type, name: str, line: int) -> Definition | None:
        """The definition of a name whose decorators or header include a line."""
        for node in self._all(name):
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            if type(node) is kind and first <= line <= node.lineno:
                return node
        return None

    def _all(self, name: str) -> list[Definition]:
        """All definitions of a name."""
        if self._definitions is None:
            self._definitions = {}
            for node in _definitions(self.tree.body):
                self._definitions.setdefault(node.name, []).append(node)
        return self._definitions.get(name, [])


def _definitions(statements: list[Any]) -> Iterator[Definition]:
    """All definitions in order; without recursion, since each elif is nested in the if before it.
    """
    work = statements[::-1]
    while work:
        node = work.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node
        for field in ("handlers", "finalbody", "orelse", "body"):
            inner = getattr(node, field, None)
            if inner and isinstance(inner, list):
                work += reversed(inner)


# A cache of one entry: the file that was read last, since one file often contains many programs.
_LAST: Final[list[Source]] = []
_LAST_LINES: Final[list[list[str]]] = []
