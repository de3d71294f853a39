"""Rules on the parts of an executable, its function table and its constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..executable import MAKE_ADT, SavedPrimFuncs, StoredKernels
from ..isa import FuncKind
from ..values import Shape, is_adt
from .functions import FunctionTable, entry_faults
from .parts import Parts, Words
from .rule import Finding, table_rule
from .text import quoted

__all__ = ["MAX_REGISTERS"]

MAX_REGISTERS: Final = 1 << 31
"""The upper bound of registers of a function, whatever the limits are."""


@table_rule("parts")
def part_types(parts: Parts) -> Iterator[Finding]:
    """Tables are tuples, memory scopes and sections dicts, code is in contiguous read-only int64
    arrays."""
    for fault in parts.faults:
        yield Finding(fault)


@table_rule("parts")
def debug_info(parts: Parts) -> Iterator[Finding]:
    """Debug information refers to existing instructions."""
    if not parts.debug:
        return
    last = int(parts.debug.runs[-1, 0])
    if last >= len(parts.offsets):
        yield Finding(
            f"debug information of instruction {last}: there are {len(parts.offsets)} instructions"
        )


@table_rule("parts")
def prim_funcs(parts: Parts) -> Iterator[Finding]:
    """A PrimFunc of the file has the name of a packed function."""
    kernels = parts.executable.kernels
    saved = kernels.saved if isinstance(kernels, StoredKernels) else kernels
    if not isinstance(saved, SavedPrimFuncs):
        return
    packed = {info.name for info in parts.functions.infos if info.kind == FuncKind.PACKED}
    for name in saved:
        if name not in packed:
            yield Finding(f"PrimFunc {quoted(name)}: expected the name of a packed function")


@table_rule("parts")
def data_types(parts: Parts) -> Iterator[Finding]:
    """Types in definitions of data types name data types and type parameters; a signature is that
    of a function of the program, with as many parameters."""
    found = parts.sections.get("data_types")
    if found is None:
        return
    from ..adt import DataTypes  # here, since most programs have no data types

    if type(found) is not DataTypes:
        yield Finding(f"data types: expected a DataTypes, got {type(found).__name__}")
        return
    for problem in found.problems():
        yield Finding(problem)
    if not found.signatures:
        return
    arities = {
        info.name: info.num_args
        for info in parts.functions.infos
        if info.kind != FuncKind.PACKED
    }
    for name, ty in found.signatures.items():
        expected = arities.get(name)
        if expected is None:
            yield Finding(f"signature of {quoted(name)}: there is no such function")
        elif len(ty.params or ()) != expected:
            yield Finding(
                f"signature of {quoted(name)}: expected {expected} parameters, "
                f"got {len(ty.params or ())}"
            )


# Functions


@table_rule("functions")
def function_types(parts: Parts) -> Iterator[Finding]:
    """An entry is a FunctionInfo whose kind is known, whose names are str and whose numbers are
    64-bit ints."""
    table = parts.functions
    if len(table.index) == len(table):
        return
    for i, entry in enumerate(table.entries):
        for fault in entry_faults(entry):
            yield Finding(f"entry {i} of the function table: {fault}", i)


def _name_faults(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the strings that cannot be names in a file: position and reason."""
    text = "".join(names)
    if text.isascii() and "\0" not in text:
        return
    for i, name in enumerate(names):
        if "\0" in name:
            yield i, "it holds a NUL character"
        elif not _encodable(name):
            yield i, "it is not valid Unicode"


def _encodable(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8, which lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@table_rule("functions")
def function_name(parts: Parts) -> Iterator[Finding]:
    """A function has a name: not empty, valid Unicode, without NUL."""
    table = parts.functions
    empty = ((row, "it is empty") for row, name in enumerate(table.names) if not name)
    for row, fault in chain(empty, _name_faults(table.names)):
        i = int(table.index[row])
        yield Finding(f"name of entry {i} of the function table: {fault}", i)


@table_rule("functions")
def function_unique(parts: Parts) -> Iterator[Finding]:
    """No two functions have the same name."""
    table = parts.functions
    if len(set(table.names)) == len(table.names):
        return
    first: dict[str, int] = {}
    for i, name in zip(table.index.tolist(), table.names, strict=True):
        other = first.setdefault(name, i)
        if other != i:
            yield Finding(f"entry {i} of the function table repeats the name of entry {other}", i)


@table_rule("functions")
def packed_entry(parts: Parts) -> Iterator[Finding]:
    """A packed function has only a name: no instructions, arity, registers or parameters."""
    f = parts.functions
    bad = (f.start != 0) | (f.end != 0) | (f.registers != 0) | (f.num_names != 0)
    bad |= f.num_args != isa.NO_ARITY
    yield from _broken(
        f,
        (f.kind == FuncKind.PACKED) & bad,
        f"packed function: expected instructions 0 to 0, {isa.NO_ARITY} arguments, 0 registers and "
        "0 parameter names, got instructions {} to {}, {} arguments, {} registers and {} names",
        f.start,
        f.end,
        f.num_args,
        f.registers,
        f.num_names,
    )


def _broken(
    table: FunctionTable, bad: NDArray[np.bool_], text: str, *columns: Words
) -> Iterator[Finding]:
    """Yield the functions that `bad` marks; their values in the columns fill the text."""
    for row in np.flatnonzero(bad):
        yield Finding(text.format(*(column[row] for column in columns)), int(table.index[row]))


@table_rule("functions")
def compiled_entry(parts: Parts) -> Iterator[Finding]:
    """A compiled function has no instructions in the executable."""
    f = parts.functions
    bad = (f.kind == FuncKind.COMPILED) & ((f.start != 0) | (f.end != 0))
    text = "compiled function: expected instructions 0 to 0, got {} to {}"
    yield from _broken(f, bad, text, f.start, f.end)


@table_rule("functions")
def function_range(parts: Parts) -> Iterator[Finding]:
    """A bytecode function has a range of at least one instruction, inside the code."""
    f, total = parts.functions, len(parts.offsets)
    bad = (f.start < 0) | (f.start >= f.end) | (f.end > total)
    text = f"expected a range of instructions within 0 to {total}, got {{}} to {{}}"
    yield from _broken(f, (f.kind == FuncKind.BYTECODE) & bad, text, f.start, f.end)


@table_rule("functions")
def function_overlap(parts: Parts) -> Iterator[Finding]:
    """No instruction is in two functions."""
    bodies = parts.bodies
    reach = np.maximum.accumulate(bodies.end[:-1])
    for i in np.flatnonzero(bodies.start[1:-1] < reach[:-1]) + 1:
        place = f"pc {bodies.start[i]}, before the previous function ends, at {reach[i - 1]}"
        yield Finding(f"starts at {place}", int(bodies.index[i]))


@table_rule("functions")
def code_owned(parts: Parts) -> Iterator[Finding]:
    """Every instruction is in a function."""
    for start, end in zip(*parts.bodies.gaps(), strict=True):
        yield Finding(f"the instructions from pc {start} to {end - 1} are in no function")


@table_rule("functions")
def register_count(parts: Parts) -> Iterator[Finding]:
    """The register file holds at least the arguments and has fewer than 2^31 registers."""
    f = parts.functions
    bad = (f.num_args < 0) | (f.num_args > f.registers) | (f.registers >= MAX_REGISTERS)
    text = (
        f"expected 0 <= arguments <= registers < {MAX_REGISTERS}, "
        "got {} arguments and {} registers"
    )
    yield from _broken(f, (f.kind != FuncKind.PACKED) & bad, text, f.num_args, f.registers)


@table_rule("functions")
def param_count(parts: Parts) -> Iterator[Finding]:
    """A function names all of its parameters or none."""
    f = parts.functions
    bad = (f.kind != FuncKind.PACKED) & (f.num_names != 0) & (f.num_names != f.num_args)
    text = "expected {} parameter names or none, got {}"
    yield from _broken(f, bad, text, f.num_args, f.num_names)


@table_rule("functions")
def param_name(parts: Parts) -> Iterator[Finding]:
    """Parameter names are valid Unicode without NUL."""
    every = chain.from_iterable(info.param_names for info in parts.functions.infos)
    if not any(_name_faults(list(every))):
        return
    for i, names in _param_names(parts):
        for k, fault in _name_faults(names):
            yield Finding(f"name of parameter {k}: {fault}", i)


@table_rule("functions", "warning")
def param_unique(parts: Parts) -> Iterator[Finding]:
    """Parameter names are distinct: two with the same name cannot be passed by keyword."""
    for i, names in _param_names(parts):
        if len(set(names)) == len(names):
            continue
        for name, count in Counter(names).items():
            if count > 1:
                yield Finding(f"parameter name {quoted(name)} is used {count} times", i)


def _param_names(parts: Parts) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the functions whose parameters have names: index in the table, names."""
    table = parts.functions
    for row in np.flatnonzero(table.num_names):
        yield int(table.index[row]), table.infos[row].param_names


# Constants

_CONSTANT_TYPES: Final = frozenset({np.ndarray, Shape, str, int, float, bool, type(None)})


@table_rule("constants")
def constant_type(parts: Parts) -> Iterator[Finding]:
    """A constant is an array, Shape, str, int, float, bool, None or dtype, and no subclass; or a
    value of a data type made of these."""
    for i, value in parts.values:
        if type(value) not in _CONSTANT_TYPES and not isinstance(value, np.dtype):
            yield Finding(
                f"constant {i}: expected an array, Shape, str, int, float, bool, None or dtype, "
                f"got {type(value).__name__}"
            )


@table_rule("constants")
def constant_data(parts: Parts) -> Iterator[Finding]:
    """A constant of a data type is made by a constructor of the program's definitions if they have
    its data type.  The function table names `relaxvm.builtin.make_adt`, so TVM refuses it."""
    found = [(i, value) for i, value in parts.odd if is_adt(value)]
    if not found:
        return
    if not any(
        info.name == MAKE_ADT and info.kind == FuncKind.PACKED for info in parts.functions.infos
    ):
        yield Finding(
            f"constant {found[0][0]}: expected the packed function {MAKE_ADT} in the table, which "
            "constants of data types need"
        )
    from ..adt import DataTypes  # here, since most programs have no data types
    from ..executable.flat_values import FlatValues

    types = parts.sections.get("data_types")
    if type(types) is not DataTypes:
        return
    flat = FlatValues()
    for i, value in found:
        before = len(flat.rows)
        try:
            flat.add(value)
        except TypeError:
            return  # what the rule of the types of constants reports
        names = [*flat.constructors]
        for row in flat.rows[before:]:
            fault = types.fault_of(*names[row[0]], len(row) - 1) if row[0] >= 0 else None
            if fault is not None:
                yield Finding(f"constant {i}: {fault}")


def _arrays(parts: Parts) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield the arrays among the constants that are not ordinary."""
    return ((i, v) for i, v in parts.values if type(v) is np.ndarray)


@table_rule("constants")
def constant_readonly(parts: Parts) -> Iterator[Finding]:
    """Constant arrays are read-only, since all runs share them."""
    for i, value in _arrays(parts):
        if value.flags.writeable:
            yield Finding(f"constant {i}: expected a read-only array, got a writable one")


@table_rule("constants")
def constant_bool(parts: Parts) -> Iterator[Finding]:
    """The bytes of a bool array are 0 or 1."""
    for i, value in _arrays(parts):
        if value.dtype == np.bool_ and value.size:
            worst = int(value.view(np.uint8).max())
            if worst > 1:
                yield Finding(f"constant {i}: expected bool bytes 0 or 1, got {worst}")


@table_rule("constants")
def constant_shape(parts: Parts) -> Iterator[Finding]:
    """The dimensions of a Shape constant are 64-bit ints."""
    for i, value in parts.values:
        if type(value) is not Shape:
            continue
        for k, dim in enumerate(tuple.__iter__(value)):
            if type(dim) is not int or not isa.WORD_MIN <= dim <= isa.WORD_MAX:
                yield Finding(f"constant {i}: dimension {k}: expected a 64-bit int, "
                              f"got {type(dim).__name__}")


@table_rule("constants")
def constant_text(parts: Parts) -> Iterator[Finding]:
    """A string constant is valid Unicode."""
    for i, value in parts.values:
        if type(value) is str and not _encodable(value):
            yield Finding(f"constant {i}: expected valid Unicode, got a lone surrogate")


def _number(value: object) -> str:
    """Return an int of at most 64 bits as text, or the type of anything else."""
    small = type(value) is int and isa.WORD_MIN <= value <= isa.WORD_MAX
    return str(value) if small else type(value).__name__


@table_rule("constants")
def memory_scope(parts: Parts) -> Iterator[Finding]:
    """A memory scope is a name, or empty as in TVM's files, and belongs to a constant array."""
    for key, scope in parts.scopes.items():
        if type(key) is not int or not 0 <= key < len(parts.constants):
            yield Finding(f"memory scope: expected the index of one of {len(parts.constants)} "
                          f"constants, got {_number(key)}")
        elif type(parts.constants[key]) is not np.ndarray:
            yield Finding(f"memory scope of constant {key}: expected an array constant, "
                          f"got {type(parts.constants[key]).__name__}")
        elif type(scope) is not str or (scope and any(_name_faults([scope]))):
            shown = quoted(scope) if type(scope) is str else type(scope).__name__
            yield Finding(f"memory scope of constant {key}: expected a name, got {shown}")
