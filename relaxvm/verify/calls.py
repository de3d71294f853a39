"""Rules on calls of known functions: the number, kinds and values of the arguments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..isa import ArgKind
from ..registry import StaticArg
from .code import Chunk, is_special
from .parts import Parts, Words
from .rule import Hits, code_rule
from .signatures import KINDS
from .sites import CallSites

__all__: list[str] = []

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = map(int, ArgKind)


def _name(parts: Parts, function: int) -> str:
    return parts.function_name(function) or f"function {function}"


# Number of arguments


@code_rule("calls")
def call_arity(chunk: Chunk) -> Iterator[Hits]:
    """A call of a function of the executable passes as many arguments as it has parameters."""
    arity = chunk.parts.signatures.arity
    for sites in chunk.sites:
        expected = arity[sites.callee]
        bad = sites.known & (expected >= 0) & (sites.rows.counts != expected)
        yield from _arity_hits(chunk.parts, sites, bad)


@code_rule("calls")
def builtin_arity(chunk: Chunk) -> Iterator[Hits]:
    """A call of a packed function with a signature passes a number of arguments it allows."""
    for sites in chunk.sites:
        yield from _arity_hits(chunk.parts, sites, sites.known & ~sites.count_allowed)


def _arity_hits(parts: Parts, sites: CallSites, bad: NDArray[np.bool_]) -> Iterator[Hits]:
    where = np.flatnonzero(bad)

    def message(i: int) -> str:
        at = where[i]
        function = int(sites.callee[at])
        signature = parts.signatures.signatures[function]
        arity = parts.signatures.arity[function] if signature is None else signature.arity()
        return f"{_name(parts, function)} takes {arity} arguments, got {sites.rows.counts[at]}"

    if len(where):
        yield Hits(sites.rows.pc[where], message)


# Kinds of arguments


@code_rule("calls")
def builtin_argument(chunk: Chunk) -> Iterator[Hits]:
    """An argument whose kind is known from the code has a kind that the signature allows."""
    for sites in chunk.sites:
        bad = np.flatnonzero(sites.args.bad)
        if len(bad):
            yield _argument_hits(chunk.parts, sites, bad)


def _argument_hits(parts: Parts, sites: CallSites, bad: Words) -> Hits:
    args, signed = sites.rows.args, sites.args
    where = signed.where[bad]

    def message(i: int) -> str:
        param = parts.signatures.param(int(signed.params[bad[i]]))
        name = _name(parts, int(sites.callee[args.row[where[i]]]))
        return (
            f"argument {args.position[where[i]]} ({param.name}) of {name}: expected "
            f"{' or '.join(sorted(param.kinds))}, got {KINDS[signed.kinds[bad[i]]]}"
        )

    return Hits(sites.rows.pc[args.row[where]], message)


# Values of arguments


@code_rule("calls")
def builtin_value(chunk: Chunk) -> Iterator[Hits]:
    """Immediates and constants of a call have values that the packed function allows."""
    if chunk.parts.signatures.checked.any():
        for sites in chunk.sites:
            if len(sites.checked):
                yield from _value_hits(chunk.parts, sites)


def _value_hits(parts: Parts, sites: CallSites) -> Iterator[Hits]:
    """Run the signature's check once for each group of calls that it cannot tell apart."""
    where, faults = sites.checked, {}
    first, group = _distinct(sites)
    rows = where[first]
    for i, row, args in zip(first.tolist(), rows, _static_args(parts, sites, rows), strict=True):
        function = int(sites.callee[row])
        signature = parts.signatures.signatures[function]
        if signature is not None and signature.check is not None:
            texts = tuple(signature.check(args))
            if texts:
                faults[i] = f"{_name(parts, function)}: {'; '.join(texts)}"
    if faults:
        bad = np.flatnonzero(np.isin(group, list(faults)))
        yield Hits(sites.rows.pc[where[bad]], lambda i: faults[int(group[bad[i]])])


def _distinct(sites: CallSites) -> tuple[Words, Words]:
    """Group the calls to check: calls that differ only in registers and pc are equal.

    Returns:
        Positions in `sites.checked` with one call of each group; and per call the position of its
        group's representative.  Calls are grouped by a hash and then compared word for word: on a
        hash collision a call is its own representative.
    """
    where = sites.checked
    counts, callee = sites.rows.counts[where], sites.callee[where]
    args = sites.rows.args.at(sites.rows.run_of(where))
    register = (args.kind == _REGISTER) & ~is_special(args.value)
    words = np.where(register, 0, (args.kind << isa.KIND_SHIFT) ^ args.value)
    total = np.append(0, np.cumsum(_mix(words + args.position * 0x632BE59BD9B4E019)))
    end = np.cumsum(counts)
    digest = total[end] - total[end - counts] + _mix(callee * 0x3C6EF372FE94F82B + counts)
    _, index, inverse = np.unique(digest, return_index=True, return_inverse=True)
    stands = index[inverse]
    same = (callee == callee[stands]) & (counts == counts[stands])
    # Compare each word with its counterpart; where the counts differ, `same` is already False.
    row = np.repeat(np.arange(len(where)), counts)
    other = (end - counts)[stands[row]] + args.position
    differs = words != words.take(other, mode="clip")
    same[row[differs]] = False
    stands = np.where(same, stands, np.arange(len(where)))
    chosen = np.zeros(len(where), np.bool_)
    chosen[stands] = True
    return np.flatnonzero(chosen), stands


def _mix(words: Words) -> Words:
    """Mix the bits for hashing, with arithmetic that wraps."""
    mixed = words * -0x61C8864680B583EB
    mixed ^= mixed >> 29
    mixed *= -0x4B47D0C5A1A6E2B5
    return mixed


def _static_args(parts: Parts, sites: CallSites, rows: Words) -> Iterator[list[StaticArg]]:
    """Yield the arguments of each call as far as the code determines them: kind and value."""
    args = sites.rows.args.at(sites.rows.run_of(rows))
    codes = parts.signatures.kinds(args.kind, args.value).tolist()
    kinds, values = args.kind.tolist(), args.value.tolist()
    start = 0
    for end in np.cumsum(sites.rows.counts[rows]).tolist():
        yield [
            (KINDS[codes[i]], _static_value(parts, kinds[i], values[i])) for i in range(start, end)
        ]
        start = end


def _static_value(parts: Parts, kind: int, value: int) -> object:
    if kind == _IMMEDIATE:
        return value
    if kind == _CONSTANT and 0 <= value < len(parts.constants):
        return parts.constants[value]
    info = parts.functions.get(value) if kind == _FUNCTION else None
    return None if info is None else info.name
