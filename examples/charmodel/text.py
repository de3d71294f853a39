"""The text: documentation strings of Python's standard library; and what counting makes of it."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from model import ALPHABET

_NUMBER = {char: number for number, char in enumerate(ALPHABET)}


def encode(text: str) -> np.ndarray:
    """The numbers of a text's characters, int64[n]; others than the alphabet's are left out."""
    return np.array([_NUMBER[char] for char in text if char in _NUMBER], np.int64)


def decode(numbers: np.ndarray) -> str:
    """The text of numbers, int64[n]."""
    return "".join(ALPHABET[number] for number in numbers)


def documentation() -> tuple[np.ndarray, np.ndarray]:
    """The text to learn from, and the text to be judged by: every tenth module.

    Which text that is depends on the version of Python only.
    """
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    kept: tuple[list[str], list[str]] = ([], [])
    seen: set[str] = set()
    for position, path in enumerate(modules):
        for text in _docstrings(path):
            if text not in seen:  # copies would be known by heart
                seen.add(text)
                kept[position % 10 == 9].append(text)
    learned, held_out = (encode("\n\n".join(texts)) for texts in kept)
    return learned, held_out


def _docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def bits_by_counting(learned: np.ndarray, held_out: np.ndarray, before: int) -> float:
    """Bits per character of a text if each is foretold by how often it has followed the `before`
    characters in front of it."""
    size = len(ALPHABET)
    counts = np.full(size ** (before + 1), 0.05)  # nothing is impossible
    np.add.at(counts, _groups(learned, before), 1)
    table = counts.reshape(-1, size)
    table /= table.sum(axis=1, keepdims=True)
    return float(-np.log2(table.ravel()[_groups(held_out, before)]).mean())


def _groups(text: np.ndarray, before: int) -> np.ndarray:
    """For each character the number of what is before it and itself, in base len(ALPHABET)."""
    groups = np.zeros(len(text) - before, np.int64)
    for place in range(before + 1):
        groups = groups * len(ALPHABET) + text[place : len(text) - before + place]
    return groups
