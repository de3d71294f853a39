"""Hypothesis strategies for file formats: every data type, every bit pattern, any name, and
function tables that no builder makes."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from relaxvm import isa
from relaxvm.dtypes import as_dtype
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.debug_info import MAX_NUMBER, DebugInfo, Location, Span
from relaxvm.isa import Arg, ArgKind, FuncKind, Instruction
from relaxvm.values import Shape

STREAM_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bfloat16",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""What TVM's stream holds."""

OWN_DTYPES = tuple(
    name
    for name in ("int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn")
    if hasattr(ml_dtypes, name)
)
"""Further ones that the binary form holds, if this version of ml_dtypes has them."""

TEXT_DTYPES = (">f4", ">i8", ">c8", ">M8[s]", "<M8[us]", "<m8[D]", "<U3", "|S2", "|V5", "<f2")
"""Further ones of numpy, which only the text forms hold."""


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[str, ...] = STREAM_DTYPES) -> np.ndarray:
    """Arrays of rank 0 to 3 with any bits (0 and 1 in a bool, characters in a string)."""
    dtype = as_dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    size = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    if dtype.kind == "U":
        data = bytes(byte if i % 4 == 0 else 0 for i, byte in enumerate(data))
    if size == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape)


def floats() -> st.SearchStrategy[float]:
    """Floats with any bits."""
    bits = st.integers(0, 2**64 - 1).map(lambda n: struct.unpack("<d", struct.pack("<Q", n))[0])
    return st.floats() | bits


def texts(codec: str | None = "utf-8") -> st.SearchStrategy[str]:
    return st.text(st.characters(codec=codec), max_size=12)


def names(codec: str | None = "utf-8") -> st.SearchStrategy[str]:
    """Names, often with characters that have a meaning in a listing."""
    plain = st.from_regex(r"[a-z_][a-z0-9_.]{0,20}", fullmatch=True)
    tricky = st.text(st.sampled_from(" \t\n\r\"'\\[](){},:;=@#%|ci0in:dst:é\u2028\x85"), max_size=6)
    odd = st.text(st.characters(codec=codec, exclude_characters="\0"), max_size=8)
    return plain | tricky | odd


def stream_constants() -> st.SearchStrategy[Any]:
    """Constants that TVM's stream can hold."""
    return st.one_of(
        tensors(),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(Shape),
        texts(),
        st.integers(-(2**63), 2**63 - 1),
        floats(),
        st.sampled_from(STREAM_DTYPES).map(as_dtype),
    )


def text_constants() -> st.SearchStrategy[Any]:
    """Constants that the text formats can hold."""
    return st.one_of(
        stream_constants(),
        tensors(TEXT_DTYPES),
        texts(codec=None),
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**400), 2**400),
        st.sampled_from(TEXT_DTYPES).map(np.dtype),
    )


@st.composite
def debug_infos(draw: st.DrawFn, num_instrs: int, codec: str | None = "utf-8") -> DebugInfo:
    """Locations of some of the instructions, in a few files with some known lines."""
    some_names = st.lists(names(codec).filter(bool), min_size=1, max_size=3)
    files, variables = draw(some_names), draw(some_names)
    line = st.characters(codec=codec, exclude_characters="\0")
    number = st.integers(1, 20) | st.integers(1, MAX_NUMBER)
    ends = st.lists(st.tuples(number, number), min_size=2, max_size=2).map(sorted)
    spans = st.builds(
        lambda file, ends: Span(file, *ends[0], *ends[1]), st.sampled_from(files), ends
    )
    pcs = st.sets(st.integers(0, num_instrs - 1), max_size=6) if num_instrs else st.just(set())
    variable = st.none() | st.sampled_from(variables)
    binding = st.tuples(st.none() | spans, variable)
    parts = st.lists(binding.filter(lambda part: part != (None, None)), max_size=2).map(tuple)
    return DebugInfo.of(
        [Location(pc, *draw(binding), draw(st.just(()) | parts)) for pc in sorted(draw(pcs))],
        {file: draw(st.dictionaries(number, st.text(line, max_size=8), max_size=3))
         for file in files},
    )  # fmt: skip


@st.composite
def odd_executables(
    draw: st.DrawFn, constants: st.SearchStrategy[Any], codec: str | None = "utf-8"
) -> VMExecutable:
    """Executables that need not run: bodies in a different order than the table, any register
    numbers, any attributes of packed and compiled functions, with or without debug information."""
    table_names = draw(st.lists(names(codec), max_size=5, unique=True))
    kinds = [draw(st.sampled_from(list(FuncKind))) for _ in table_names]
    pool = draw(st.lists(constants, max_size=4))
    word = st.integers(isa.WORD_MIN, isa.WORD_MAX)
    table: list[FunctionInfo] = []
    for kind, name in zip(kinds, table_names, strict=True):
        params = tuple(draw(st.lists(names(codec), max_size=3)))
        if kind != FuncKind.BYTECODE and draw(st.booleans()):
            table.append(FunctionInfo(kind, name))
        else:
            numbers = [draw(word) for _ in range(4)]
            table.append(FunctionInfo(kind, name, *numbers, params))
    offsets: list[int] = []
    words: list[int] = []
    bodies = [i for i, kind in enumerate(kinds) if kind == FuncKind.BYTECODE]
    for i in draw(st.permutations(bodies)):
        start = len(offsets)
        for _ in range(draw(st.integers(1, 4))):
            offsets.append(len(words))
            words += isa.encode(draw(_instructions(len(table), len(pool))))
        info = table[i]
        table[i] = FunctionInfo(
            info.kind, info.name, start, len(offsets), info.num_args, info.register_file_size,
            info.param_names,
        )  # fmt: skip
    scopes = draw(st.dictionaries(st.integers(0, len(pool) - 1), names(codec))) if pool else {}
    debug = draw(st.none() | debug_infos(len(offsets), codec))
    return VMExecutable(table, pool, offsets, words, scopes, debug)


@st.composite
def _instructions(draw: st.DrawFn, num_functions: int, num_constants: int) -> Instruction:
    op = draw(st.sampled_from(isa.OPS))
    special = st.sampled_from([isa.VOID_REGISTER, isa.VM_REGISTER])
    register = st.integers(0, 9) | special | st.integers(isa.WORD_MIN, isa.WORD_MAX)
    fields = tuple(
        draw(st.integers(0, num_functions - 1) if f.kind is isa.FieldKind.FUNC else register)
        for f in op.fields
    )
    if op.tail is None:
        return Instruction(op, fields)
    value = st.integers(-isa.VALUE_MAX - 1, isa.VALUE_MAX)
    kinds = [
        st.builds(Arg, st.just(ArgKind.REGISTER), st.integers(0, 9) | special | value),
        st.builds(Arg, st.just(ArgKind.IMMEDIATE), value),
        st.builds(Arg, st.just(ArgKind.FUNCTION), st.integers(0, num_functions - 1)),
    ]
    if num_constants:
        kinds.append(st.builds(Arg, st.just(ArgKind.CONSTANT), st.integers(0, num_constants - 1)))
    return Instruction(op, fields, tuple(draw(st.lists(st.one_of(kinds), max_size=5))))


def by_hand() -> VMExecutable:
    """An executable with everything that TVM's stream can hold; it is in the golden files."""
    a = isa.encode_arg
    code = [
        [1, 2, 1, 4, 0, 1, a(2, 0), a(1, -7)],
        [1, isa.VOID_REGISTER, 3, 3, isa.VM_REGISTER, a(3, 0), isa.VOID_REGISTER],
        [4, 2, 3],
        [1, 3, 0, 2, 2, a(2, 4)],
        [3, 2],
        [1, 3, 1, 0],
        [2, 3],
        [2, 0],
    ]
    offsets = np.cumsum([0, *map(len, code[:-1])])
    functions = [
        FunctionInfo(FuncKind.BYTECODE, "main", 0, 7, 2, 4, ("x", "weight")),
        FunctionInfo(FuncKind.PACKED, "test.add"),
        FunctionInfo(FuncKind.BYTECODE, "identity", 7, 8, 1, 1),
        FunctionInfo(FuncKind.PACKED, "naïve kernel"),
        FunctionInfo(FuncKind.COMPILED, "shape_func", num_args=1, register_file_size=2),
    ]
    constants = [
        np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
        Shape((2, 3)),
        'a "quoted" line\n',
        np.dtype("float16"),
        1.5,
        -(2**60),
        np.array(True),
        np.arange(100, dtype=np.int16),
        np.array([1.0, -0.0], as_dtype("bfloat16")),
        np.frombuffer(b"\x01\x00\xc0\x7f", "<f4"),
    ]
    return VMExecutable(functions, constants, offsets, np.concatenate(code), {0: "global"})


def with_places() -> VMExecutable:
    """`by_hand` with debug information for some of its code; it is in the golden files too."""
    return by_hand().with_debug(DebugInfo.of(
        [
            (0, Span("models/ümlaut.py", 12, 5, 12, 30), "lv0"),
            (2, Span("models/ümlaut.py", 14, 5, 17, 10), "out put"),
            (5, None, "gv"),
            (6, None, None),
            (7, Span("<string>", 1, 1), None),
        ],
        {
            "models/ümlaut.py": {
                12: '    lv0 = R.add(x, "weight")', 14: "    if lv0:\t# \\", 15: "", 17: "        x"
            },
        },
    ))  # fmt: skip
