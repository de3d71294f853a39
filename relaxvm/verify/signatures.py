"""Signatures of functions as columns: a row per function of the table, a row per parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..isa import ArgKind, FuncKind
from ..registry import Param, Registry, Signature
from ..values import kind_of
from .functions import FunctionTable

__all__ = ["KINDS", "SignatureTable"]

Words = NDArray[np.int64]

KINDS: Final = (
    "any", "none", "vm", "int", "func", "bool", "float", "str", "tensor", "shape", "tuple", "dtype",
    "device", "map", "object", "adt",
)  # fmt: skip
"""The kinds of static arguments by code; `any` means that it is only known at run time."""

_CODES: Final = {name: code for code, name in enumerate(KINDS)}
_ANY, _NONE, _VM, _INT, _FUNC = range(5)
_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = map(int, ArgKind)
_CODE_OF_ARG: Final[Words] = np.full(256, _ANY, np.int64)
_CODE_OF_ARG[[_IMMEDIATE, _FUNCTION]] = _INT, _FUNC
_UNLIMITED: Final = 1 << 62
_ANYTHING: Final = Param("argument", frozenset({"any"}))
"""The parameter that stands for all parameters of functions without a signature."""


class SignatureTable:
    """Signatures by index into the function table.

    Attributes:
        signatures: of packed functions, None where there is none.
        arity: int64[f], number of parameters of a function of the executable; -1 for packed ones.
        least, most: int64[f], the numbers of arguments that a signature allows.
        signed, checked: bool[f], whether there is a signature; whether it checks values.
        constant_kinds: int64[c], kinds of the constants, as codes.
    """

    def __init__(
        self,
        functions: FunctionTable,
        num_constants: int,
        odd: Sequence[tuple[int, Any]],
        registry: Registry,
    ) -> None:
        self.signatures: list[Signature | None] = [None] * len(functions)
        for row in np.flatnonzero(functions.kind == FuncKind.PACKED):
            record = registry.lookup(functions.infos[row].name)
            if record is not None:
                self.signatures[functions.index[row]] = record.signature
        takes = np.where(functions.kind == FuncKind.PACKED, -1, functions.num_args)
        self.arity = functions.spread(takes, -1)
        self.constant_kinds: Words = np.full(num_constants, _CODES["tensor"])
        for index, value in odd:
            self.constant_kinds[index] = _CODES[kind_of(value)]
        total = len(functions)
        self.least: Words = np.zeros(total, np.int64)
        self.most: Words = np.full(total, _UNLIMITED)
        self.signed, self.checked = np.zeros((2, total), np.bool_)
        # Where a function's parameters are: first row, number of leading ones, of trailing ones.
        self._first, self._leading, self._trailing = np.zeros((3, total), np.int64)
        self._params: list[Param] = [_ANYTHING]
        for i, signature in enumerate(self.signatures):
            if signature is not None:
                self._add(i, signature)
        self._accepts = np.array([[p.accepts(kind) for kind in KINDS] for p in self._params])

    def _add(self, i: int, signature: Signature) -> None:
        self.signed[i] = True
        self.checked[i] = signature.check is not None
        self.least[i] = signature.min_args
        if signature.max_args is not None:
            self.most[i] = signature.max_args
        self._first[i] = len(self._params)
        self._leading[i] = len(signature.params)
        self._params.extend(signature.params)
        if signature.variadic is not None:
            self._trailing[i] = len(signature.last)
            self._params.extend((signature.variadic, *signature.last))

    def kinds(self, kind: Words, value: Words) -> Words:
        """Return the kinds of argument words, as codes; `any` for constants that do not exist."""
        codes = _CODE_OF_ARG[kind]
        large = np.flatnonzero(value >= isa.VOID_REGISTER)
        special = large[kind[large] == _REGISTER]
        codes[special[value[special] == isa.VOID_REGISTER]] = _NONE
        codes[special[value[special] == isa.VM_REGISTER]] = _VM
        constant = np.flatnonzero(kind == _CONSTANT)
        index = value[constant]
        exists = (index >= 0) & (index < len(self.constant_kinds))
        codes[constant[exists]] = self.constant_kinds[index[exists]]
        return codes

    def params(self, function: Words, position: Words, count: Words) -> Words:
        """Return the row of the parameter for each argument, given the function, the argument's
        position and the number of arguments.  0 if the function has no signature."""
        row: Words = self._first[function] + position
        # After the leading ones: the variadic one, then the trailing ones counted from the end.
        # Functions without a signature have no leading ones, and row 0 as their variadic one.
        late = np.flatnonzero(position >= self._leading[function])
        function = function[late]
        trailing = self._trailing[function]
        from_end = position[late] - (count[late] - trailing)
        extra = np.where((trailing > 0) & (from_end >= 0), 1 + from_end, 0)
        row[late] = self._first[function] + self._leading[function] + extra
        return row

    def accepts(self, params: Words, kinds: Words) -> NDArray[np.bool_]:
        """Return whether parameters accept arguments of these kinds."""
        flags: NDArray[np.bool_] = self._accepts.take(params * len(KINDS) + kinds)
        return flags

    def param(self, row: int) -> Param:
        """Return the parameter of a row."""
        return self._params[row]
