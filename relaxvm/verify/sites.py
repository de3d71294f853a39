"""The calls of a chunk with the signatures of their callees; computed once for several rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .lazy import lazy
from .signatures import SignatureTable

if TYPE_CHECKING:
    from .code import Rows

__all__ = ["CallSites", "SignedArgs"]

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]


class SignedArgs(NamedTuple):
    """Arguments of calls whose signature is known and allows their number.

    Attributes:
        where: int64[a], position in `Rows.args`.
        params: int64[a], row of the parameter in the `SignatureTable`.
        kinds: int64[a], code of the kind of the argument.
        bad: bool[a], whether the parameter does not accept that kind.
    """

    where: Words
    params: Words
    kinds: Words
    bad: Flags


class CallSites:
    """The calls of a chunk.

    Attributes:
        rows: the calls.
        callee: int64[m], index of the function; 0 where there is no such function.
        known: bool[m], whether the callee exists.
    """

    def __init__(self, rows: Rows, index: Words, table: SignatureTable) -> None:
        self.rows = rows
        self.known: Flags = (index >= 0) & (index < len(table.arity))
        self.callee: Words = np.where(self.known, index, 0)
        self._table = table

    @lazy
    def count_allowed(self) -> Flags:
        """bool[m]: whether the callee has no signature or one that allows the argument count."""
        counts, table = self.rows.counts, self._table
        allowed: Flags = counts >= table.least[self.callee]
        allowed &= counts <= table.most[self.callee]
        return allowed

    @lazy
    def args(self) -> SignedArgs:
        """The arguments that can be compared with parameters."""
        args, table = self.rows.args, self._table
        signed = self.known & table.signed[self.callee] & self.count_allowed
        where = np.flatnonzero(signed[args.row])
        row = args.row[where]
        kinds = table.kinds(args.kind[where], args.value[where])
        params = table.params(self.callee[row], args.position[where], self.rows.counts[row])
        return SignedArgs(where, params, kinds, ~table.accepts(params, kinds))

    @lazy
    def checked(self) -> Words:
        """The calls whose values are to be checked: those with correct kinds of arguments."""
        wanted = self.known & self._table.checked[self.callee] & self.count_allowed
        args = self.args
        wanted[self.rows.args.row[args.where[args.bad]]] = False
        return np.flatnonzero(wanted)
