"""Chains of elementwise kernels in the code of a function, which native code runs as one loop.

A chain is a run of operations of one block: ufuncs over arrays of one known shape, the allocations
of their results, and releases of registers.  Its kernels are those of which C has the same results
to the last bit: sums, products, quotients, roots, comparisons, and operations on integers.

Shapes and data types are those that checks and allocations in the code name; where these say
nothing, an operand is expected to be as the result.  Native code compares the arrays with them
before it runs a chain, so they need not be right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ...executable.shape_codes import MatchShapeCode
from .code import FunctionCode, Op, block_starts, live_registers, written_registers

__all__ = ["C_TYPES", "ArrayType", "Chain", "Input", "Step", "find_chains"]

MAX_BYTES: Final = 4096
"""Of an array.  The time of larger ones is that of numpy's loops, not that of calls."""
MAX_LOCAL_BYTES: Final = 8192
"""Of the C stack, for elements that must not be stored before a chain has ended."""
MAX_ENTERING: Final = 16
"""Arrays from outside, of which each that is written is compared with all others."""
MIN_STEPS: Final = 2
MAX_STEPS: Final = 256

C_TYPES: Final = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Data types of chains."""

_DTYPES: Final = {id(np.dtype(name)): name for name in C_TYPES}
"""By the address that stands in code.  Numpy has one object for each, for ever."""

_FLOAT: Final = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}",
    "negative": "-{0}", "square": "{0} * {0}",
}  # fmt: skip
_FLOAT_CALLS: Final = {"absolute": "__builtin_fabs", "sqrt": "__builtin_sqrt"}
_INTEGER: Final = {
    "add": "({u}){0} + ({u}){1}", "subtract": "({u}){0} - ({u}){1}",
    "multiply": "({u}){0} * ({u}){1}", "negative": "-({u}){0}", "square": "({u}){0} * ({u}){0}",
    "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
    "invert": "~{0}", "maximum": "{0} > {1} ? {0} : {1}", "minimum": "{0} < {1} ? {0} : {1}",
}  # fmt: skip
_COMPARED: Final = {
    "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==",
    "not_equal": "!=",
}  # fmt: skip
_LOGICAL: Final = {
    "logical_and": "({0} != 0) & ({1} != 0)", "logical_or": "({0} != 0) | ({1} != 0)",
    "logical_not": "{0} == 0",
}  # fmt: skip
_NAMES: Final = {
    id(getattr(np, name)): name
    for name in (*_FLOAT, *_FLOAT_CALLS, *_INTEGER, *_COMPARED, *_LOGICAL)
}


def _text(name: str, dtype: str) -> str | None:
    """The C of a kernel of operands of a data type, None where it is left to numpy."""
    if name in _COMPARED and dtype != "bool":
        return f"{{0}} {_COMPARED[name]} {{1}}"
    if dtype == "bool":
        return _LOGICAL.get(name)
    if dtype.startswith("float"):
        if name in _FLOAT_CALLS:
            return f"{_FLOAT_CALLS[name]}{'f' if dtype == 'float32' else ''}({{0}})"
        return _FLOAT.get(name)
    text = _INTEGER.get(name)
    # Signed numbers wrap around; those of fewer than 32 bits are computed in 32.
    return text and text.replace("{u}", "uint64_t" if dtype.endswith("64") else "uint32_t")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """What is known of an array.

    Attributes:
        dtype: its data type, a key of `C_TYPES`.
        dims: its shape.
        word: a position in the code of a word that points to the data type.
    """

    dtype: str
    dims: tuple[int, ...]
    word: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def is_float(self) -> bool:
        """Whether it holds floats."""
        return self.dtype.startswith("float")


@dataclass(eq=False, slots=True)
class Array:
    """An array while a chain runs.

    Attributes:
        type: its data type and shape.
        register: that held it when the chain began; None if the chain allocates it.
        allocation: the position of the operation that does.
        value: the step that computed its elements; None if they are those from before the chain.
        input: the index of the input with those, if they are read.
    """

    type: ArrayType
    register: int | None = None
    allocation: int | None = None
    value: int | None = None
    input: int | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """Elements that a chain reads.

    Attributes:
        word: the operand: a register or a constant.
        type: their data type and shape, or that of the chain if it is a single element.
        is_single: whether there is one for all.
    """

    word: int
    type: ArrayType
    is_single: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel of a chain.

    Attributes:
        text: its C, with ``{0}`` and ``{1}`` for the operands.
        dtype: the data type of the result.
        args: the operands: a step if not negative, else the input ``-1 - arg``.
    """

    text: str
    dtype: str
    args: tuple[int, ...]


@dataclass(slots=True)
class Chain:
    """A chain.

    Attributes:
        start, end: the positions of its first operation, and after its last one.
        last: the position of its last one.
        dims: the shape of all arrays but single elements.
        steps, inputs: what is computed, from what.
        arrays: by register, at the end.
        stored: the arrays of which the elements are stored.
        released: the registers that hold nothing at the end.
        has_deadline: whether the clock is to be looked at.
    """

    start: int
    end: int = 0
    last: int = 0
    dims: tuple[int, ...] = ()
    steps: list[Step] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    arrays: dict[int, Array] = field(default_factory=dict)
    stored: list[Array] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    has_deadline: bool = False

    @property
    def unused(self) -> list[int]:
        """The steps whose results nobody uses; they may still set a floating-point status."""
        used = {arg for step in self.steps for arg in step.args}
        used |= {a.value for a in self.stored if a.value is not None}
        return [number for number in range(len(self.steps)) if number not in used]

    @property
    def local_bytes(self) -> int:
        """The bytes of the local arrays that its loop needs."""
        kept = sum(a.type.nbytes for a in self.stored if a.input is not None)
        size = math.prod(self.dims)
        unused = (self.steps[number].dtype for number in self.unused)
        return kept + sum(size * np.dtype(dtype).itemsize for dtype in unused)

    @property
    def entering(self) -> list[int]:
        """The registers that it takes arrays from."""
        found = {i.word for i in self.inputs if i.word >= 0}
        found |= {a.register for a in self.stored if a.register is not None}
        return sorted(found)


def find_chains(code: FunctionCode) -> dict[int, Chain]:
    """The chains of a function by the position of their first operation."""
    return {chain.start: chain for chain in _Finder(code).chains()}


class _Finder:
    def __init__(self, code: FunctionCode) -> None:
        self.code = code
        self.starts = block_starts(code)
        self.live = live_registers(code)
        self.types: dict[int, ArrayType] = {}
        """Those of registers."""
        self.dtypes: dict[int, tuple[int, str]] = {}
        """Data types of registers that were checked: a word, and what it points to."""
        self.chain: Chain | None = None
        self.owners: dict[int, Array | None] = {}
        """The arrays of registers, None for those that were released."""
        self.entered: dict[int, Array] = {}
        self.closed: Chain | None = None
        """The chain up to the last kernel."""

    def chains(self) -> Iterator[Chain]:
        for op in self.code.ops:
            if op.position in self.starts:
                yield from self.finish()
            if not self.add(op):
                yield from self.finish()
                if not self.add(op):
                    self.reset()
            self.note(op)
        yield from self.finish()

    def finish(self) -> Iterator[Chain]:
        chain = self.closed
        self.reset()
        if chain is None or len(chain.steps) < MIN_STEPS or not chain.stored:
            return
        if chain.local_bytes <= MAX_LOCAL_BYTES and len(chain.entering) <= MAX_ENTERING:
            yield chain

    def reset(self) -> None:
        self.chain = self.closed = None
        self.owners, self.entered = {}, {}

    def close(self, op: Op) -> None:
        """The chain may end after this operation."""
        assert self.chain is not None
        live = self.live[op.end]
        chain = Chain(self.chain.start, op.end, op.position, self.chain.dims,
                      list(self.chain.steps), list(self.chain.inputs),
                      has_deadline=self.chain.has_deadline)  # fmt: skip
        for register, array in self.owners.items():
            if array is not None and array.allocation is not None and live >> register & 1:
                chain.arrays[register] = array
            elif array is None or array.register != register:
                chain.released.append(register)
        kept = [*self.entered.values(), *chain.arrays.values()]
        chain.stored = [Array(a.type, a.register, a.allocation, a.value, a.input)
                        for a in kept if a.value is not None]  # fmt: skip
        self.closed = chain

    def note(self, op: Op) -> None:
        """What is known of registers after an operation."""
        for register in _registers(written_registers(op)):
            self.types.pop(register, None)
            self.dtypes.pop(register, None)
        if op.name in ("alloc_static", "alloc_tensor_of"):
            made = self.allocated(op)
            if made is not None:
                self.types[op["dst"]] = made
        elif op.name in ("check_tensor", "check_match", "match_shape") and op["x"] >= 0:
            if op.name != "match_shape" and op["dtype"] in _DTYPES:
                self.dtypes[op["x"]] = op.at("dtype"), _DTYPES[op["dtype"]]
            if op.name != "check_tensor" and op["x"] in self.dtypes:
                codes, dims = op.items[::2], op.items[1::2]
                if all(code == MatchShapeCode.ASSERT_EQUAL_TO_IMM for code in codes):
                    word, dtype = self.dtypes[op["x"]]
                    self.types[op["x"]] = ArrayType(dtype, dims, word)

    def allocated(self, op: Op) -> ArrayType | None:
        dtype = _DTYPES.get(op["dtype"])
        return None if dtype is None else ArrayType(dtype, op.items, op.at("dtype"))

    def add(self, op: Op) -> bool:
        """Make an operation part of the chain, or of a new one; returns whether it can be."""
        if op.name in ("ufunc_1", "ufunc_2"):
            return self.kernel(op)
        if op.name == "alloc_static":
            made = self.allocated(op)
            if made is None or not self.fits(op, made):
                return False
            self.owners[op["storage"]] = None
            self.owners[op["dst"]] = Array(made, allocation=op.position)
            return True
        if self.chain is None:
            return False
        if op.name == "null":
            self.owners[op["dst"]] = None
            return True
        if op.name == "deadline":
            self.chain.has_deadline = True
            if self.closed is not None and self.closed.end == op.position:
                self.close(op)
            return True
        return False

    def fits(self, op: Op, made: ArrayType) -> bool:
        """Begin a chain with the shape of a result, or compare it with that of the chain."""
        if made.size == 0 or made.nbytes > MAX_BYTES:
            return False
        if self.chain is None:
            self.chain = Chain(op.position, dims=made.dims)
        return self.chain.dims == made.dims

    def kernel(self, op: Op) -> bool:
        name = _NAMES.get(op["ufunc"])
        out = self.array(op["out"])
        words = [op["x"]] if op.name == "ufunc_1" else [op["a"], op["b"]]
        if name is None or out is None or not self.fits(op, out.type):
            return False
        assert self.chain is not None
        dtype = self.operand_dtype(name, out.type, words)
        text = None if dtype is None else _text(name, dtype[0])
        if dtype is None or text is None or len(self.chain.steps) == MAX_STEPS:
            return False
        if name == "add" and out.type.is_float and out.type.size == 1:
            return False  # numpy computes a sum in place of one element in another way
        inputs = list(self.chain.inputs)
        args = []
        for word in words:
            arg = self.operand(word, *dtype, out.type.dims)
            if arg is None:
                self.chain.inputs = inputs
                return False
            args.append(arg)
        if all(arg < 0 and self.chain.inputs[-1 - arg].is_single for arg in args):
            self.chain.inputs = inputs
            return False
        out.value = len(self.chain.steps)
        self.chain.steps.append(Step(text, out.type.dtype, tuple(args)))
        if out.register is not None:
            self.owners.setdefault(out.register, out)
        self.close(op)
        return True

    def operand_dtype(
        self, name: str, out: ArrayType, words: Iterable[int]
    ) -> tuple[str, int] | None:
        """The data type of the operands, and a word of the code that points to it."""
        if name not in _COMPARED:
            return out.dtype, out.word
        if out.dtype != "bool":
            return None
        for word in words:
            array = self.array(word)
            if array is not None:
                return array.type.dtype, array.type.word
        return None

    def array(self, word: int) -> Array | None:
        """The array that an operand is, if its type is known."""
        if word < 0:
            return None
        if word in self.owners:
            return self.owners[word]
        if word not in self.types:
            return self.entered.get(word)
        return self.entered.setdefault(word, Array(self.types[word], register=word))

    def operand(self, word: int, dtype: str, at: int, dims: tuple[int, ...]) -> int | None:
        """An operand of a kernel: a step or an input; None if it is neither."""
        assert self.chain is not None
        array = self.array(word)
        if array is not None and array.value is not None:
            return array.value if array.type.dtype == dtype else None
        if array is not None and array.allocation is not None:
            return None  # nobody has written its elements
        if word >= 0 and array is None and word in self.owners:
            return None
        if word >= 0:
            found = array.type if array is not None else ArrayType(dtype, dims, at)
        else:
            value = self.code.constant(word)
            if type(value) is not np.ndarray or id(value.dtype) not in _DTYPES:
                return None
            found = ArrayType(_DTYPES[id(value.dtype)], value.shape, at)
        is_single = found.dims != dims
        if found.dtype != dtype or (
            is_single and (found.size != 1 or len(found.dims) > len(dims))
        ):
            return None
        for number, known in enumerate(self.chain.inputs):
            if known.word == word:
                return -1 - number
        self.chain.inputs.append(Input(word, ArrayType(dtype, dims, at), is_single))
        if word >= 0:
            array = array or self.entered.setdefault(word, Array(found, register=word))
            array.input = len(self.chain.inputs) - 1
        return -len(self.chain.inputs)


def _registers(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
