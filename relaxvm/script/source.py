"""Where script comes from: files, texts, and the places in them that messages point to."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Final, NoReturn

from ..errors import DiagnosticError, NestingError
from ..ir.nesting import deepest_chain, uncollected
from ..source import Span, underlined

__all__ = ["Source"]

Definition = ast.ClassDef | ast.FunctionDef


class Source:
    """A text of Python, parsed, and the name of the file that it is of.

    Lines and columns of syntax trees are those of the file.
    """

    __slots__ = ("_ascii", "_definitions", "_lines", "file", "text", "tree")

    def __init__(self, text: str, file: str = "<script>") -> None:
        self.text = text
        self.file = file
        self._ascii = text.isascii()
        self._lines: list[str] | None = None
        self._definitions: dict[str, list[Definition]] | None = None
        try:
            with uncollected:
                self.tree = ast.parse(text)
        except SyntaxError as error:
            line, column = error.lineno or 1, max(error.offset or 1, 1)
            self.fail(Span(file, line, column), f"{error.msg}; a script is Python by its syntax")
        except (RecursionError, MemoryError) as error:  # Python says either of what is too deep
            self.fail(
                Span(file, 1, 1),
                f"nested too deeply for the parser of Python ({error}); bind parts of expressions "
                "to variables",
                kind=NestingError,
            )

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

    def fail(
        self,
        span: Span,
        message: str,
        others: Sequence[str] = (),
        kind: type[DiagnosticError] = DiagnosticError,
    ) -> NoReturn:
        """Raise a `DiagnosticError`: the place, the message, the line and carets under it, and
        lines of what else is wrong."""
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

    def class_at(self, name: str, line: int, inner_lines: list[int]) -> ast.ClassDef:
        """The definition of a class.

        Args:
            line: one of its decorators or of its header, if known.
            inner_lines: of functions that are defined in it.
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
        """The definition of a name whose decorators and header hold a line."""
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
    """All definitions in order, without recursion: an elif is nested in the if before it."""
    work = statements[::-1]
    while work:
        node = work.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node
        for field in ("handlers", "finalbody", "orelse", "body"):
            inner = getattr(node, field, None)
            if inner and isinstance(inner, list):
                work += reversed(inner)


# The file that was read last, as one file often holds many programs, with the lines it was made of.
_LAST: Final[list[Source]] = []
_LAST_LINES: Final[list[list[str]]] = []
