"""Mutations of bytes, of text and of JSON values, for all kinds of file.

Every function takes a value and a random generator and returns the mutated value.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "BYTES", "INTERESTING", "SMALL", "Mutant", "Words", "as_text", "change_bytes", "change_json",
    "change_text", "delete", "flip_bit", "insert", "number", "repeat", "seeded", "set_byte",
    "set_small_word", "set_word", "signed", "truncate",
]  # fmt: skip

INTERESTING: Final = (
    0, 1, 2, 7, 255, 1 << 31, 1 << 32, 1 << 40, 1 << 54, (1 << 54) + 1, 1 << 55, 1 << 62,
    (1 << 63) - 1, (1 << 64) - 1, (1 << 64) - 2,
)  # fmt: skip
"""64-bit words that have broken readers before."""

SMALL: Final = (*range(-3, 10), 16, 255, 256, 65535, 65536)

_WORD: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Mutant:
    """A mutated file and its origin.

    Attributes:
        base: the name of the file it was made from.
        steps: the names of the mutations.
        data: the content of the file.
        folder: for a folder of files instead: path -> content, None for a directory.
    """

    base: str
    steps: tuple[str, ...]
    data: bytes = b""
    folder: Mapping[str, bytes | None] = field(default_factory=dict)


def seeded(kind: str, index: int, seed: int) -> random.Random:
    """Return the random generator of a mutant."""
    return random.Random(f"{kind}:{seed}:{index}")


def signed(word: int) -> int:
    """Return the int64 with the bits of a word."""
    word &= _WORD
    return word - (1 << 64) if word >= 1 << 63 else word


def number(rng: random.Random) -> int:
    return signed(rng.choice(INTERESTING)) if rng.random() < 0.3 else rng.choice(SMALL)


def as_text(data: bytes) -> str:
    """Return the text of a mutant, which need not be valid Unicode."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


# Bytes


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def set_byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def set_word(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    word = rng.choice(INTERESTING) if rng.random() < 0.8 else rng.getrandbits(64)
    return data[:at] + struct.pack("<Q", word) + data[at + 8 :]


def set_small_word(data: bytes, rng: random.Random) -> bytes:
    at = 4 * rng.randrange(len(data) // 4 + 1)
    return data[:at] + struct.pack("<i", rng.choice(SMALL)) + data[at + 4 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 8))) + data[at:]


def delete(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 4, 8, 16)) :]


def repeat(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[: at + rng.choice((1, 8, 40))] + data[at:]


BYTES: Final = (flip_bit, set_byte, set_word, set_word, set_small_word, truncate, insert, delete,
                repeat)  # fmt: skip


def change_bytes(data: bytes, rng: random.Random) -> tuple[bytes, list[str]]:
    """Apply one to three mutations of bytes; return their names, too."""
    steps = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        change = rng.choice(BYTES)
        data = change(data, rng)
        steps.append(change.__name__)
    return data, steps


# Text: mutations of tokens and of lines

_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\w.$]+|[^\w\s]|[ \t]+|\n')


@dataclass(frozen=True)
class Words:
    """What texts of a kind consist of.

    Attributes:
        tokens: all different tokens.
        lines: all different lines.
    """

    tokens: tuple[str, ...]
    lines: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str], more: Sequence[str] = ()) -> Words:
        tokens = {token for text in texts for token in _TOKEN.findall(text)}
        lines = {line for text in texts for line in text.splitlines()}
        return cls((*sorted(tokens), *more), tuple(sorted(lines)))


_ODD_TOKENS: Final = (
    '""', '"', "'", "\\", "\0", "\ud800", "é", "\N{SNOWMAN}", "\r", "\x85", "\u2028", "nan", "-inf",
    "1e400", "0x1p-1074", "-0", "1_0", "0b", "9" * 30, "9" * 5000, "(" * 300, "[" * 3000, "{", "}",
    ")", "]", "%", "@", "#", "...", "\t",
)  # fmt: skip


def _new_token(words: Words, rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(words.tokens)
    return str(number(rng)) if rng.random() < 0.7 else rng.choice(_ODD_TOKENS)


def change_text(text: str, words: Words, rng: random.Random) -> tuple[str, list[str]]:
    """Apply one to three mutations of tokens or lines; return their names, too."""
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(_TEXT)
        text = change(text, words, rng)
        steps.append(change.__name__)
    return text, steps


def _spots(text: str, rng: random.Random, count: int = 1) -> list[tuple[int, int]]:
    """Return where random tokens are: not blanks, mostly."""
    found = []
    for _ in range(count):
        at = rng.randrange(len(text) + 1)
        while at > 0 and text[at - 1] not in " \n(,":  # the start of a token
            at -= 1
        match = _TOKEN.search(text, at)
        found.append(match.span() if match else (len(text), len(text)))
    return found


def change_token(text: str, words: Words, rng: random.Random) -> str:
    ((start, end),) = _spots(text, rng)
    return text[:start] + _new_token(words, rng) + text[end:]


def insert_token(text: str, words: Words, rng: random.Random) -> str:
    ((start, _),) = _spots(text, rng)
    return text[:start] + _new_token(words, rng) + rng.choice((" ", "", ", ")) + text[start:]


def drop_token(text: str, words: Words, rng: random.Random) -> str:
    ((start, end),) = _spots(text, rng)
    return text[:start] + text[end:]


def copy_token(text: str, words: Words, rng: random.Random) -> str:
    (start, end), (low, high) = _spots(text, rng, 2)
    return text[:start] + text[low:high] + text[end:]


def change_number(text: str, words: Words, rng: random.Random) -> str:
    """Replace a number after a random position."""
    match = re.compile(r"-?\d+").search(text, rng.randrange(len(text) + 1))
    if match is None:
        return text
    value = int(match[0][:20]) + rng.choice((-1, 1)) if rng.random() < 0.4 else number(rng)
    return text[: match.start()] + str(value) + text[match.end() :]


def _line(text: str, rng: random.Random) -> tuple[int, int]:
    at = rng.randrange(len(text) + 1)
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return start, len(text) if end < 0 else end + 1


def drop_line(text: str, words: Words, rng: random.Random) -> str:
    start, end = _line(text, rng)
    return text[:start] + text[end:]


def copy_line(text: str, words: Words, rng: random.Random) -> str:
    start, end = _line(text, rng)
    at, _ = _line(text, rng)
    return text[:at] + text[start:end] + text[at:]


def add_line(text: str, words: Words, rng: random.Random) -> str:
    at, _ = _line(text, rng)
    return f"{text[:at]}{rng.choice(words.lines)}\n{text[at:]}"


def change_line(text: str, words: Words, rng: random.Random) -> str:
    start, end = _line(text, rng)
    return f"{text[:start]}{rng.choice(words.lines)}\n{text[end:]}"


def change_character(text: str, words: Words, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0xD7FF)))) + text[at + 1 :]


def cut(text: str, words: Words, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


_TEXT: Final[tuple[Callable[[str, Words, random.Random], str], ...]] = (
    change_token, change_token, change_token, insert_token, drop_token, copy_token, change_number,
    change_number, change_number, drop_line, copy_line, add_line, change_line, change_character,
    cut,
)  # fmt: skip


# JSON


def change_json(document: Any, names: Sequence[str], rng: random.Random) -> str:
    """Change a JSON value in place, somewhere; return the name of the mutation."""
    container, key = _place(document, rng)
    if container is None:
        return "nothing"
    change = rng.choice(_JSON)
    change(container, key, names, rng)
    return change.__name__


def _place(value: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return a random container in a JSON value, and a key of it; None, None if there is none."""
    found: tuple[Any, Any] = None, None
    while isinstance(value, (dict, list)) and value:
        key = rng.choice([*value]) if isinstance(value, dict) else rng.randrange(len(value))
        found = value, key
        value = value[key]
        if rng.random() < 0.15:
            break
    return found


def any_json(names: Sequence[str], rng: random.Random, depth: int = 0) -> Any:
    """Return a random JSON value, whose strings are mostly `names`."""
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind < 3:
        return number(rng)
    if kind < 5:
        return rng.choice(names) if rng.random() < 0.8 else rng.choice(_ODD_TOKENS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return rng.choice((0.5, -0.0, 1e308, float("nan"), float("inf"), 1 << 70, -(10**400)))
    if kind == 7:
        return rng.choice(([], {}, [[]], "", [0], [[[[[[]]]]]]))
    items = [any_json(names, rng, depth + 1) for _ in range(rng.randrange(4))]
    return items if kind < 10 else {rng.choice(names): item for item in items}


def change_value(container: Any, key: Any, names: Sequence[str], rng: random.Random) -> None:
    container[key] = any_json(names, rng)


def change_similar(container: Any, key: Any, names: Sequence[str], rng: random.Random) -> None:
    """Replace a value by one of the same kind."""
    old = container[key]
    if isinstance(old, bool) or old is None:
        container[key] = rng.choice((True, False, None, 0, 1))
    elif isinstance(old, int):
        container[key] = old + rng.choice((-1, 1, 2)) if rng.random() < 0.5 else number(rng)
    elif isinstance(old, float):
        container[key] = rng.choice((-old, 0.0, float("nan"), 1e300))
    elif isinstance(old, str):
        container[key] = rng.choice(names) if rng.random() < 0.7 else old[: len(old) // 2] + "x"
    elif isinstance(old, list):
        rng.shuffle(old)
    else:
        container[key] = dict(reversed(old.items()))


def drop_value(container: Any, key: Any, names: Sequence[str], rng: random.Random) -> None:
    del container[key]


def copy_value(container: Any, key: Any, names: Sequence[str], rng: random.Random) -> None:
    """Put a value in the place of one beside it, or add it again."""
    if isinstance(container, dict):
        container[rng.choice([*container, *names])] = container[key]
    elif rng.random() < 0.5:
        container.insert(rng.randrange(len(container) + 1), container[key])
    else:
        container[rng.randrange(len(container))] = container[key]


def wrap_value(container: Any, key: Any, names: Sequence[str], rng: random.Random) -> None:
    """Nest a value deeply, or just once."""
    value = container[key]
    name = rng.choice(names)
    for _ in range(rng.choice((1, 1, 1, 2, 50, 400))):
        value = [value] if rng.random() < 0.8 else {name: value}
    container[key] = value


def rename_key(container: Any, key: Any, names: Sequence[str], rng: random.Random) -> None:
    if isinstance(container, dict):
        container[rng.choice(names)] = container.pop(key)
    else:
        change_similar(container, key, names, rng)


_JSON: Final[tuple[Callable[[Any, Any, Sequence[str], random.Random], None], ...]] = (
    change_value, change_similar, change_similar, change_similar, drop_value, copy_value,
    copy_value, wrap_value, rename_key,
)  # fmt: skip
