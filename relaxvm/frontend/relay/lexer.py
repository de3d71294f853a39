"""Tokens of Relay text.  The time is linear in the length of the text."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from ...core.checkpoints import checkpoint
from ...executable.debug_info import Span
from .source import Source

__all__ = ["KEYWORDS", "Token", "tokens_of"]

KEYWORDS: Final = frozenset(
    {
        *("let", "fn", "def", "if", "else", "type", "match", "extern", "free_var", "import"),
        *("ref", "ref_read", "ref_write", "True", "False"),
    }
)


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: "number", "string", "name", "local", "global", "graph", "meta", "version",
            "metadata", "end", or the keyword or sign itself.
        text: for names without ``%`` and ``@``, for strings the contents.
    """

    kind: str
    text: str
    start: int
    end: int


# Repetitions of groups are possessive (*+): otherwise each turn keeps memory for a way back.
_NAME: Final = r"[A-Za-z_][A-Za-z_0-9]*(?:/[A-Za-z_0-9]+)*+"
_TOKEN: Final = re.compile(
    rf"""
      (?P<space>[ \t\r\n\f\v]+ | //[^\n]*)
    | (?P<comment>/\*)
    | (?P<version>v\d+\.\d+\.\d+ | \#\[\s*version\s*=\s*"[^"\n]*"\s*\])
    | (?P<metadata>\#\[\s*metadata\s*\] | METADATA:)
    | meta\[\s*(?P<meta>[\w.]+)\s*\]\s*\[\s*\d+\s*\]
    | (?P<number>(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf(?=f)|nan(?=f))
                 (?:(?:f|i|u|bf)\d*)?(?![A-Za-z_0-9]))
    | (?P<name>{_NAME})
    | %(?P<graph>\d+)(?![A-Za-z_])
    | %(?P<local>{_NAME})
    | @(?P<global>{_NAME})
    | "(?P<string>[^"\\\n]*(?:\\.[^"\\\n]*)*+)"
    | (?P<sign>->|=>|==|!=|<=|>=|[-+*/<>=.,;:(){{}}\[\]?])
    """,
    re.VERBOSE,
)
_INDEX: Final = re.compile(r"[ \t\r\n]*(\d+)")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_ORIGIN: Final = re.compile(r"\bspan=([^\s*]{1,300}?):(\d{1,9}):(\d{1,9})(?![\d:])")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def tokens_of(source: Source) -> tuple[list[Token], dict[int, Span]]:
    """Return the tokens of a text, and the locations that comments name, by the end of the token
    before the comment: ``%x /* span=model.py:3:1 */``.

    Raises:
        ParseError: a character that begins no token, or a comment or string without end.
    """
    text = source.text
    tokens: list[Token] = []
    origins: dict[int, Span] = {}
    at, match = 0, _TOKEN.match
    while at < len(text):
        checkpoint()
        if tokens and tokens[-1].kind == "." and (found := _INDEX.match(text, at)):
            # So that %x.0.1 is not %x and the number 0.1.
            tokens.append(Token("number", found[1], found.start(1), found.end()))
            at = found.end()
            continue
        found = match(text, at)
        if found is None:
            _unknown(source, at)
        start, at = at, found.end()
        kind = found.lastgroup
        assert kind is not None
        if kind == "space":
            continue
        if kind == "comment":
            at = _end_of_comment(source, start)
            origin = _ORIGIN.search(text, start, at)
            if origin is not None and tokens and int(origin[2]) > 0:
                line, column = int(origin[2]), max(int(origin[3]), 1)
                origins[tokens[-1].end] = Span(origin[1], line, column)
            continue
        word = found[kind]
        if kind == "sign":
            kind = word
        elif kind == "meta":
            word = found[0]
        elif kind == "name" and word in KEYWORDS:
            kind = word
            if word == "match" and text.startswith("?", at):
                kind, word, at = "match?", "match?", at + 1
        elif kind == "string" and "\\" in word:
            word = _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[0]), word)
        tokens.append(Token(kind, word, start, at))
        if kind == "metadata":
            tokens.append(Token("end", text[at:], len(text), len(text)))
            return tokens, origins
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens, origins


def _end_of_comment(source: Source, start: int) -> int:
    depth, at = 0, start
    while edge := _COMMENT_EDGE.search(source.text, at):
        checkpoint()
        at = edge.end()
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return at
    source.fail(start, start + 2, "a comment without an end: expected */, got the end of the text")


def _unknown(source: Source, at: int) -> NoReturn:
    char = source.text[at]
    if char == '"':
        source.fail(at, at + 1, 'a string without an end: expected " in the same line')
    if char in "%@":
        source.fail(at, at + 1, f"expected a name after {char}")
    if char.isdigit():
        end = at
        while end < len(source.text) and end < at + 40 and source.text[end].isalnum():
            end += 1
        found = source.text[at:end]
        source.fail(at, end, f"expected a number such as 1, 1i64 or 1.5f, got {found!r}")
    source.fail(at, at + 1, f"unexpected character {char!r}")
