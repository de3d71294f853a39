"""Where script comes from: files, texts, and the places in them that messages point to."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, Final, NoReturn

from ..errors import DiagnosticError
from ..source import Span, underlined

__all__ = ["Source"]

_NAMED = (ast.ClassDef, ast.FunctionDef)


class Source:
    """A text of Python, parsed, and the name of the file that it is of.

    Lines and columns of syntax trees are those of the file.
    """

    __slots__ = ("_ascii", "_lines", "file", "text", "tree")

    def __init__(self, text: str, file: str = "<script>") -> None:
        self.text = text
        self.file = file
        self._ascii = text.isascii()
        self._lines: list[str] | None = None
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            line, column = error.lineno or 1, max(error.offset or 1, 1)
            self.fail(Span(file, line, column), f"{error.msg}; a script is Python by its syntax")

    @property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines

    def span(self, node: Any) -> Span:
        """The place of a node of the syntax tree."""
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
        """Python counts columns in bytes of UTF-8; we do in characters."""
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1

    def error(self, node: Any, message: str) -> NoReturn:
        """Raise a `DiagnosticError` that points to a node of the syntax tree (or to a `Span`)."""
        self.fail(node if isinstance(node, Span) else self.span(node), message)

    def fail(self, span: Span, message: str) -> NoReturn:
        """Raise a `DiagnosticError`: the place, the message, the line and carets under it."""
        text = f"{span}: {message}"
        if span.line <= len(self.lines):
            line = self.lines[span.line - 1]
            end = span.end_column if span.end_line == span.line else len(line) + 1
            shown, carets = underlined(line, span.column, end)
            margin = f"{span.line:5} | "
            text += f"\n{margin}{shown}\n{' ' * (len(margin) - 2)}| {carets}"
        raise DiagnosticError(text)

    @classmethod
    def of_file(cls, file: str, namespace: Mapping[str, Any]) -> Source:
        """The text of a file that Python runs, also of a cell of a notebook or an example of
        doctest.

        Raises:
            OSError: it is not to be had, as of code that was given to `exec`.
        """
        linecache.checkcache(file)
        lines = linecache.getlines(file, dict(namespace))
        if not lines:
            raise OSError(f"{file}: there is no source text; give it to from_source instead")
        if _LAST and _LAST[0].file == file and _LAST_LINES[0] is lines:
            return _LAST[0]
        source = cls("".join(lines), file)
        _LAST[:], _LAST_LINES[:] = [source], [lines]
        return source

    def function_at(self, code: CodeType) -> ast.FunctionDef:
        """The definition of a function that Python has compiled."""
        found = self._defined(ast.FunctionDef, code.co_name, code.co_firstlineno)
        if found is None:
            raise OSError(f"{self.file}: function {code.co_name!r} is not in the file any more")
        assert isinstance(found, ast.FunctionDef)
        return found

    def class_at(self, cls: type, frame: FrameType) -> ast.ClassDef:
        """The definition of a class that is being decorated in a frame."""
        line = vars(cls).get("__firstlineno__", frame.f_lineno)
        found = self._defined(ast.ClassDef, cls.__name__, line)
        if found is None:
            raise OSError(f"{self.file}: class {cls.__name__!r} is not at line {line}")
        assert isinstance(found, ast.ClassDef)
        return found

    def _defined(self, kind: type, name: str, line: int) -> ast.AST | None:
        """The definition of a name whose decorators and header hold a line."""
        for node in ast.walk(self.tree):
            if type(node) is kind and isinstance(node, _NAMED) and node.name == name:
                first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
                if first <= line <= node.lineno:
                    return node
        return None


# The file that was read last, as one file often holds many programs, with the lines it was made of.
_LAST: Final[list[Source]] = []
_LAST_LINES: Final[list[list[str]]] = []
