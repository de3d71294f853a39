"""The text, which is the docstrings of Python's standard library, and models that count it."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from model import ALPHABET

_NUMBER = {char: number for number, char in enumerate(ALPHABET)}


def encode(text: str) -> np.ndarray:
    """Return the indices of a text's characters, int64[n], without those not in the alphabet."""
    return np.array([_NUMBER[char] for char in text if char in _NUMBER], np.int64)


def decode(numbers: np.ndarray) -> str:
    """Return the text of indices, int64[n]."""
    return "".join(ALPHABET[number] for number in numbers)


def documentation() -> tuple[np.ndarray, np.ndarray]:
    """Return the training text, and the held-out text: every tenth module.

    The text depends only on the version of Python.
    """
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    kept: tuple[list[str], list[str]] = ([], [])
    seen: set[str] = set()
    for position, path in enumerate(modules):
        for text in _docstrings(path):
            if text not in seen:  # skip copies: the model would know them from training
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
    """Return the bits per character of a model that predicts a character by how often it followed
    the previous `before` characters in the training text."""
    size = len(ALPHABET)
    counts = np.full(size ** (before + 1), 0.05)  # no probability is 0
    np.add.at(counts, _groups(learned, before), 1)
    table = counts.reshape(-1, size)
    table /= table.sum(axis=1, keepdims=True)
    return float(-np.log2(table.ravel()[_groups(held_out, before)]).mean())


def _groups(text: np.ndarray, before: int) -> np.ndarray:
    """For each character, the number that it and those before it form in base len(ALPHABET)."""
    groups = np.zeros(len(text) - before, np.int64)
    for place in range(before + 1):
        groups = groups * len(ALPHABET) + text[place : len(text) - before + place]
    return groups
