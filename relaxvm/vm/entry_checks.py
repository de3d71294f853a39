"""What the checks at the entry of a function say of its parameters.

A compiled function begins with calls that check its arguments: ``check_tensor_info`` has rank and
data type, ``match_shape`` the dimensions, each a number or a slot of the shape heap.  A slot is a
symbolic dimension; its name is in the error text of the check where the compiler wrote one.

`params_of` follows these calls through the entry block, for signatures.  It only reads: nothing is
run, and malformed code just ends the search.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..executable import FunctionInfo, VMExecutable
from ..executable.shape_codes import ANNOTATED_DIMS, MatchShapeCode
from ..isa import Arg, ArgKind, Instruction, Opcode

__all__ = [
    "Dim",
    "ParamSpec",
    "Symbol",
    "Tensors",
    "params_of",
    "tensors_of",
    "with_tensors",
]

Tensors = bool | Sequence["Tensors"]
"""Whether a parameter is a tensor; of a tuple, whether its elements are."""

_BUILTIN: Final = "vm.builtin."

# Bounds of what is read from a file that may be malformed.
_MAX_RANK: Final = 256
_MAX_ITEMS: Final = 4096
"""Items of all tuples together."""
_MAX_DEPTH: Final = 16
_MAX_INSTRUCTIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic dimension: a slot of the shape heap and its name."""

    slot: int
    name: str

    def __str__(self) -> str:
        return self.name


Dim = int | Symbol | None
"""A dimension: a number, a symbol, or anything."""


@dataclass(slots=True)
class ParamSpec:
    """What is known of a parameter, or of an item of one.

    Attributes:
        name: the parameter's name; items are ``name.0``, ``name.1``.
        kind: "tensor", "shape", "tuple", "scalar", "str", "func" or "any".
        dtype: of a tensor or scalar, if known.
        dims: of a tensor or shape, if the rank is known.
        items: of a tuple.
        depth: tuples around it.
    """

    name: str
    kind: str = "any"
    dtype: np.dtype[Any] | None = None
    dims: list[Dim] | None = None
    items: list[ParamSpec] = field(default_factory=list)
    depth: int = 0

    def __str__(self) -> str:
        """``float32[n, 4]``, ``(int32[2], any)``; as little as is known."""
        if self.kind == "tuple":
            return f"({', '.join(map(str, self.items))}{',' if len(self.items) == 1 else ''})"
        if self.kind == "tensor":
            return f"{self.dtype or 'tensor'}[{self._dims()}]"
        if self.kind == "shape":
            return f"Shape({self._dims()})"
        if self.kind == "scalar" and self.dtype is not None:
            return str(self.dtype)
        return self.kind

    def _dims(self) -> str:
        if self.dims is None:
            return "..."
        return ", ".join("?" if dim is None else str(dim) for dim in self.dims)

    def symbols(self) -> Iterator[Symbol]:
        """The symbolic dimensions, those of items included."""
        for dim in self.dims or ():
            if isinstance(dim, Symbol):
                yield dim
        for item in self.items:
            yield from item.symbols()


def params_of(executable: VMExecutable, info: FunctionInfo) -> list[ParamSpec]:
    """The parameters of a bytecode function, one each, with what its entry block tells."""
    count = max(info.num_args, 0)
    names = info.param_names if len(info.param_names) == count else ()
    specs = [ParamSpec(names[i] if names else f"arg{i}") for i in range(count)]
    _EntryBlock(executable, specs).follow(info)
    return specs


def tensors_of(executable: VMExecutable, info: FunctionInfo) -> Sequence[Tensors]:
    """Which parameters of a function are tensors."""
    return [_tensors(spec) for spec in params_of(executable, info)]


def _tensors(spec: ParamSpec) -> Tensors:
    return [_tensors(item) for item in spec.items] if spec.items else spec.kind == "tensor"


def with_tensors(value: Any, tensors: Tensors) -> Any:
    """An argument with arrays of rank 0 in place of numpy's scalars where a tensor is expected."""
    if isinstance(value, np.generic) and tensors is True:
        return np.asarray(value)
    is_tuple = isinstance(value, (tuple, list)) and not hasattr(value, "_fields")
    if is_tuple and isinstance(tensors, Sequence) and len(value) == len(tensors):
        items = tuple(map(with_tensors, value, tensors))
        return value if all(map(operator.is_, items, value)) else items
    return value


class _EntryBlock:
    """Follows parameters through the first instructions of a function."""

    def __init__(self, executable: VMExecutable, specs: Sequence[ParamSpec]) -> None:
        self._executable = executable
        self._specs = specs
        self._held: dict[int, ParamSpec] = dict(enumerate(specs))
        self._names: dict[int, str] = {}
        self._items_left = _MAX_ITEMS

    def follow(self, info: FunctionInfo) -> None:
        executable = self._executable
        start = max(info.start_instr, 0)
        end = min(info.end_instr, len(executable), start + _MAX_INSTRUCTIONS)
        for pc in range(start, end):
            try:
                instruction = executable.instruction(pc)
            except ValueError:
                break
            if instruction.op.code != Opcode.CALL:
                break
            result = self._call(instruction)
            dst = instruction["dst"]
            self._held.pop(dst, None)
            if result is not None:
                self._held[dst] = result
        for spec in self._specs:
            self._rename(spec)

    def _call(self, instruction: Instruction) -> ParamSpec | None:
        """Learn from a call; returns the spec that its destination holds."""
        functions = self._executable.functions
        index = instruction["func_idx"]
        if not 0 <= index < len(functions) or not instruction.args:
            return None
        name = functions[index].name
        spec = self._spec_of(instruction.args[0])
        if spec is None or not name.startswith(_BUILTIN):
            return None
        learn = _LEARN.get(name.removeprefix(_BUILTIN))
        return learn(self, spec, instruction.args) if learn is not None else None

    def _spec_of(self, arg: Arg) -> ParamSpec | None:
        return self._held.get(arg.value) if arg.is_register() else None

    def _value(self, arg: Arg) -> Any:
        """An immediate or constant; None where only the run knows it."""
        if arg.kind == ArgKind.IMMEDIATE:
            return arg.value
        constants = self._executable.constants
        if arg.kind == ArgKind.CONSTANT and 0 <= arg.value < len(constants):
            return constants[arg.value]
        return None

    def _count(self, arg: Arg, most: int) -> int | None:
        value = self._value(arg)
        return value if isinstance(value, int) and 0 <= value <= most else None

    def _grow(self, spec: ParamSpec, size: int) -> bool:
        """Make a tuple have at least `size` items; return False if the bounds forbid it."""
        missing = size - len(spec.items)
        if spec.kind not in ("any", "tuple") or spec.depth >= _MAX_DEPTH:
            return False
        if missing > self._items_left:
            return False
        spec.kind = "tuple"
        for i in range(len(spec.items), size):
            self._items_left -= 1
            spec.items.append(ParamSpec(f"{spec.name}.{i}", depth=spec.depth + 1))
        return True

    # What each builtin tells

    def _check_tensor_info(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        spec.kind = "tensor"
        if len(args) >= 2:
            self._rank(spec, args[1])
        if len(args) >= 3:
            dtype = self._value(args[2])
            if isinstance(dtype, np.dtype):
                spec.dtype = dtype

    def _check_shape_info(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        if spec.kind == "any":
            spec.kind = "shape"
        if len(args) >= 2:
            self._rank(spec, args[1])

    def _rank(self, spec: ParamSpec, arg: Arg) -> None:
        rank = self._count(arg, _MAX_RANK)
        if rank is not None and spec.dims is None:
            spec.dims = [None] * rank

    def _check_tuple_info(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        size = self._count(args[1], _MAX_ITEMS) if len(args) >= 2 else None
        if size is not None:
            self._grow(spec, size)

    def _tuple_getitem(self, spec: ParamSpec, args: Sequence[Arg]) -> ParamSpec | None:
        index = self._count(args[1], _MAX_ITEMS) if len(args) >= 2 else None
        if index is None or not self._grow(spec, index + 1):
            return None
        return spec.items[index]

    def _check_prim_value_info(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        spec.kind = "scalar"
        dtype = self._value(args[1]) if len(args) >= 2 else None
        if isinstance(dtype, np.dtype):
            spec.dtype = dtype

    def _match_prim_value(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        spec.kind = "scalar"
        if len(args) >= 4:
            spec.dims = [self._dim(self._value(args[2]), self._value(args[3]))]

    def _check_string_info(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        spec.kind = "str"

    def _check_func_info(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        spec.kind = "func"

    def _match_shape(self, spec: ParamSpec, args: Sequence[Arg]) -> None:
        rank = self._count(args[2], _MAX_RANK) if len(args) >= 3 else None
        if rank is None or len(args) < 3 + 2 * rank:
            return
        values = [self._value(arg) for arg in args[3 : 3 + 2 * rank]]
        dims = [self._dim(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
        if spec.kind == "any":
            spec.kind = "tensor"
        if spec.dims is None or len(spec.dims) != rank:
            spec.dims = dims
        else:
            # A later match with less to say (code 2, "anything") takes nothing away.
            spec.dims = [new if new is not None else old
                         for old, new in zip(spec.dims, dims, strict=True)]  # fmt: skip
        if len(args) > 3 + 2 * rank:
            self._learn_names(dims, self._value(args[3 + 2 * rank]))

    def _shape_of(self, spec: ParamSpec, args: Sequence[Arg]) -> ParamSpec | None:
        # What a match tells of the shape, it tells of the tensor.
        if spec.kind in ("any", "tensor"):
            spec.kind = "tensor"
            return spec
        return None

    def _copy(self, spec: ParamSpec, args: Sequence[Arg]) -> ParamSpec:
        return spec

    # Symbols

    def _dim(self, code: Any, value: Any) -> Dim:
        if not isinstance(value, int):
            return None
        if code == MatchShapeCode.ASSERT_EQUAL_TO_IMM:
            return value
        if code in (MatchShapeCode.STORE_TO_HEAP, MatchShapeCode.ASSERT_EQUAL_TO_LOAD):
            return Symbol(value, f"s{value}")
        return None

    def _learn_names(self, dims: Sequence[Dim], context: Any) -> None:
        found = re.search(ANNOTATED_DIMS, context) if isinstance(context, str) else None
        if found is None:
            return
        texts = [text.strip() for text in found[1].split(",") if text.strip()]
        if len(texts) != len(dims):
            return
        for dim, text in zip(dims, texts, strict=True):
            if isinstance(dim, Symbol):
                self._names.setdefault(dim.slot, text)

    def _rename(self, spec: ParamSpec) -> None:
        if spec.dims is not None:
            spec.dims = [
                Symbol(dim.slot, self._names.get(dim.slot, dim.name))
                if isinstance(dim, Symbol) else dim
                for dim in spec.dims
            ]  # fmt: skip
        for item in spec.items:
            self._rename(item)


_LEARN: Final = {
    "check_tensor_info": _EntryBlock._check_tensor_info,
    "check_shape_info": _EntryBlock._check_shape_info,
    "check_tuple_info": _EntryBlock._check_tuple_info,
    "check_prim_value_info": _EntryBlock._check_prim_value_info,
    "check_string_info": _EntryBlock._check_string_info,
    "check_func_info": _EntryBlock._check_func_info,
    "match_shape": _EntryBlock._match_shape,
    "match_prim_value": _EntryBlock._match_prim_value,
    "tuple_getitem": _EntryBlock._tuple_getitem,
    "shape_of": _EntryBlock._shape_of,
    "copy": _EntryBlock._copy,
}
