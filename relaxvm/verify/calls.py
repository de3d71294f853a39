"""Rules on calls of functions that are known: number, kinds and values of the arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..isa import ArgKind, FieldKind
from ..registry import StaticArg
from .code import Chunk, Rows, is_special
from .image import Image, Words
from .rule import Hits, code_rule
from .signatures import KINDS, SignatureTable

__all__: list[str] = []

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = map(int, ArgKind)


class _Calls(NamedTuple):
    """The calls of a chunk: index of the callee, and whether it exists; where not, it is 0."""

    rows: Rows
    callee: Words
    known: NDArray[np.bool_]


def _calls(chunk: Chunk) -> Iterator[_Calls]:
    total = len(chunk.image.functions)
    for rows in chunk.calls:
        for index in rows.column(FieldKind.FUNC):
            known = (index >= 0) & (index < total)
            if known.any():
                yield _Calls(rows, np.where(known, index, 0), known)


def _name(image: Image, function: int) -> str:
    return image.function_name(function) or f"function {function}"


# Number of arguments


@code_rule("calls")
def call_arity(chunk: Chunk) -> Iterator[Hits]:
    """A call of a function of the executable passes as many arguments as it has parameters."""
    arity = chunk.image.signatures.arity
    for calls in _calls(chunk):
        expected = arity[calls.callee]
        bad = calls.known & (expected >= 0) & (calls.rows.counts != expected)
        yield from _arity_hits(chunk.image, calls, bad)


@code_rule("calls")
def builtin_arity(chunk: Chunk) -> Iterator[Hits]:
    """A call of a packed function with a signature passes a number of arguments that it allows."""
    table = chunk.image.signatures
    for calls in _calls(chunk):
        bad = calls.known & ~_count_allowed(table, calls)
        yield from _arity_hits(chunk.image, calls, bad)


def _count_allowed(table: SignatureTable, calls: _Calls) -> NDArray[np.bool_]:
    counts, callee = calls.rows.counts, calls.callee
    return (counts >= table.least[callee]) & (counts <= table.most[callee])


def _arity_hits(image: Image, calls: _Calls, bad: NDArray[np.bool_]) -> Iterator[Hits]:
    where = np.flatnonzero(bad)

    def message(i: int) -> str:
        at = where[i]
        function = int(calls.callee[at])
        signature = image.signatures.signatures[function]
        arity = image.signatures.arity[function] if signature is None else signature.arity()
        return f"{_name(image, function)} takes {arity} arguments, got {calls.rows.counts[at]}"

    if len(where):
        yield Hits(calls.rows.pc[where], message)


# Kinds of arguments


@code_rule("calls")
def builtin_argument(chunk: Chunk) -> Iterator[Hits]:
    """An argument whose kind the code shows is of a kind that the signature allows there."""
    table = chunk.image.signatures
    for calls in _calls(chunk):
        signed = calls.known & table.signed[calls.callee] & _count_allowed(table, calls)
        args = calls.rows.args
        where = np.flatnonzero(signed[args.row])
        row = args.row[where]
        kinds = table.kinds(args.kind[where], args.value[where])
        params = table.params(calls.callee[row], args.position[where], calls.rows.counts[row])
        bad = ~table.accepts(params, kinds)
        if bad.any():
            yield _argument_hits(chunk.image, calls, where[bad], params[bad], kinds[bad])


def _argument_hits(
    image: Image, calls: _Calls, where: Words, params: Words, kinds: Words
) -> Hits:
    args = calls.rows.args

    def message(i: int) -> str:
        param = image.signatures.param(int(params[i]))
        name = _name(image, int(calls.callee[args.row[where[i]]]))
        return (
            f"argument {args.position[where[i]]} ({param.name}) of {name}: expected "
            f"{' or '.join(sorted(param.kinds))}, got {KINDS[kinds[i]]}"
        )

    return Hits(calls.rows.pc[args.row[where]], message)


# Values of arguments


@code_rule("calls")
def builtin_value(chunk: Chunk) -> Iterator[Hits]:
    """Immediates and constants of a call have values that the packed function allows."""
    table = chunk.image.signatures
    if not table.checked.any():
        return
    for calls in _calls(chunk):
        checked = calls.known & table.checked[calls.callee] & _count_allowed(table, calls)
        where = np.flatnonzero(checked)
        if len(where):
            yield from _value_hits(chunk.image, calls, where)


def _value_hits(image: Image, calls: _Calls, where: Words) -> Iterator[Hits]:
    """Ask the signature's check once for all calls that look the same to it."""
    faults: dict[int, str] = {}
    first, alike = _distinct(calls, where)
    for i in first:
        fault = _value_fault(image, calls, int(where[i]))
        if fault:
            faults[int(i)] = fault
    if faults:
        bad = np.flatnonzero(np.isin(alike, list(faults)))
        yield Hits(calls.rows.pc[where[bad]], lambda i: faults[int(alike[bad[i]])])


def _distinct(calls: _Calls, where: Words) -> tuple[Words, Words]:
    """Group calls that differ in registers and pc only.

    Returns:
        Positions in `where` with one call of each group; and per call the position that stands for
        it.  Grouping goes by a hash and is then compared word for word: where the hash was fooled,
        a call stands for itself.
    """
    args, counts, callee = calls.rows.args, calls.rows.counts[where], calls.callee[where]
    start = (np.cumsum(calls.rows.counts) - calls.rows.counts)[where]
    register = (args.kind == _REGISTER) & ~is_special(args.value)
    words = np.where(register, 0, (args.kind << isa.KIND_SHIFT) ^ args.value)
    total = np.append(0, np.cumsum(_mix(words + args.position * 0x632BE59BD9B4E019)))
    digest = total[start + counts] - total[start] + _mix(callee * 0x3C6EF372FE94F82B + counts)
    _, index, inverse = np.unique(digest, return_index=True, return_inverse=True)
    stands = index[inverse]
    same = (callee == callee[stands]) & (counts == counts[stands])
    run = np.where(same, counts, 0)
    row = np.repeat(np.arange(len(where)), run)
    step = np.arange(len(row)) - np.repeat(np.cumsum(run) - run, run)
    differs = words[start[row] + step] != words[start[stands[row]] + step]
    same[row[differs]] = False
    stands = np.where(same, stands, np.arange(len(where)))
    return np.unique(stands), stands


def _mix(words: Words) -> Words:
    """Spread the bits; wraps."""
    mixed = words * -0x61C8864680B583EB
    mixed ^= mixed >> 29
    return mixed * -0x4B47D0C5A1A6E2B5


def _value_fault(image: Image, calls: _Calls, at: int) -> str:
    """What the signature's check says about a call, in one line; empty if it says nothing."""
    function, count = int(calls.callee[at]), int(calls.rows.counts[at])
    signature = image.signatures.signatures[function]
    if signature is None or signature.check is None:
        return ""
    args = _static_args(image, calls.rows, at)
    params = signature.bind(count) or []
    if not all(param.accepts(kind) for param, (kind, _) in zip(params, args, strict=False)):
        return ""  # the rule on kinds speaks of it
    return "; ".join(f"{_name(image, function)}: {text}" for text in signature.check(args))


def _static_args(image: Image, rows: Rows, at: int) -> list[StaticArg]:
    """The arguments of a call as the code shows them."""
    args, count = rows.args, int(rows.counts[at])
    start = int(rows.counts[:at].sum())
    run = slice(start, start + count)
    kinds = image.signatures.kinds(args.kind[run], args.value[run])
    return [
        (KINDS[code], _static_value(image, int(kind), int(value)))
        for code, kind, value in zip(kinds, args.kind[run], args.value[run], strict=True)
    ]


def _static_value(image: Image, kind: int, value: int) -> object:
    if kind == _IMMEDIATE:
        return value
    if kind == _CONSTANT and 0 <= value < len(image.constants):
        return image.constants[value]
    if kind == _FUNCTION and 0 <= value < len(image.functions):
        return image.function_name(value)
    return None
