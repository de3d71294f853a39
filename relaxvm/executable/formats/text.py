"""The text forms: TVM's listing, the complete form that can be read back, and the statistics.

``as_text(ex)`` prints TVM's listing, which leaves out constants and most of a function's header.
``as_text(ex, complete=True)`` prints a form that `parse_text` reads back to an equal executable;
its grammar is in ``docs/format.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ... import isa
from ...dtypes import dtype_name
from ...errors import FormatError
from ...isa import ArgKind, FieldKind, FuncKind, Instruction
from ...values import Shape, is_adt
from ..debug_info import Location
from ..executable import FunctionInfo, VMExecutable
from ..flat_values import LEAF, TUPLE, FlatValues
from ._assembler import parse_text
from ._layout import LAYOUTS, MNEMONIC_WIDTH, MNEMONICS, SPECIALS, FieldLook, padded
from ._literals import constant_lines, name_text, quote

__all__ = ["as_text", "format_instruction", "name_text", "parse_text", "stats"]

VERSION_LINE: Final = "relaxvm text 1"


def as_text(ex: VMExecutable, complete: bool = False) -> str:
    """Return the listing of an executable.

    Args:
        complete: print a form that `parse_text` reads back to an equal executable, instead of
            TVM's.

    Raises:
        FormatError: functions overlap; or, with `complete`, the executable is malformed in a way
            that the form cannot express, or a constant has no text form (objects, records).
    """
    _check_overlap(ex)
    lines = _complete_listing(ex) if complete else _listing(ex)
    return "".join(f"{line}\n" for line in lines)


def format_instruction(ex: VMExecutable, pc: int) -> str:
    """Return one instruction as in the complete listing, without indentation.  Never raises: a
    malformed instruction is described in angle brackets."""
    try:
        instr = ex.instruction(pc)
    except (IndexError, ValueError) as error:
        return f"<{error}>"
    return _instruction_text(instr, lambda index: name_text(_name_of(ex.functions, index)))


# Instructions


def _instruction_text(instr: Instruction, name_of: Callable[[int], str]) -> str:
    kinds = {field.name: field.kind for field in instr.op.fields}
    parts = [MNEMONICS[instr.op.name].ljust(MNEMONIC_WIDTH)]
    for part in LAYOUTS[instr.op.name]:
        if not isinstance(part, FieldLook):
            parts.append(part)
        elif part.name in kinds:
            text = _field_text(kinds[part.name], instr[part.name], name_of)
            parts.append(padded(text, part.width))
        else:
            args = ", ".join([_arg_text(arg, name_of) for arg in instr.args])
            parts.append(padded(args, part.width))
    return "".join(parts)


def _field_text(kind: FieldKind, value: int, name_of: Callable[[int], str]) -> str:
    if kind is FieldKind.FUNC:
        return name_of(value)
    return str(value) if kind is FieldKind.PC else _register_text(value)


def _arg_text(arg: isa.Arg, name_of: Callable[[int], str]) -> str:
    if arg.kind == ArgKind.REGISTER:
        return _register_text(arg.value)
    if arg.kind == ArgKind.IMMEDIATE:
        return f"i{arg.value}"
    if arg.kind == ArgKind.CONSTANT:
        return f"c[{arg.value}]"
    return f"f[{name_of(arg.value)}]"


def _register_text(register: int) -> str:
    return f"%{SPECIALS.get(register, register)}"


def _name_of(functions: Sequence[FunctionInfo], index: int) -> str:
    return functions[index].name if 0 <= index < len(functions) else f"<function {index}>"


# TVM's listing


def _listing(ex: VMExecutable) -> Iterator[str]:
    words = ex.instr_data.tolist()
    for info in ex.functions:
        name = _one_line(info.name)
        if info.kind == FuncKind.PACKED:
            yield f"@{name} packed_func;"
        elif info.kind == FuncKind.COMPILED:
            yield f"@{name} num_inputs={info.num_args} vm_tir_func;"
        else:
            yield f"@{name}:"
            for pc in _body(ex, info):
                yield f"  {_lenient_text(ex, words, pc)}"
        yield ""


def _body(ex: VMExecutable, info: FunctionInfo) -> range:
    return range(max(info.start_instr, 0), min(info.end_instr, len(ex)))


def _lenient_text(ex: VMExecutable, words: Sequence[int], pc: int) -> str:
    try:
        instr = isa.decode(words, int(ex.instr_offset[pc]))
    except ValueError as error:
        return f"<{error}>"
    return _instruction_text(instr, lambda index: _one_line(_name_of(ex.functions, index)))


def _one_line(name: str) -> str:
    """Return a name as TVM prints it, escaped if it could imitate other lines of the listing."""
    return name if name.isprintable() else quote(name)


def _check_overlap(ex: VMExecutable) -> None:
    """Check that functions do not overlap: a small malformed file must not make a listing whose
    size is the product of functions and instructions."""
    bodies = (len(_body(ex, info)) for info in ex.functions if info.kind == FuncKind.BYTECODE)
    total = sum(bodies)
    if total > len(ex):
        raise FormatError(f"functions overlap: they list {total} instructions, there are {len(ex)}")


# The complete form


def _complete_listing(ex: VMExecutable) -> Iterator[str]:
    _check_expressible(ex)
    yield VERSION_LINE
    yield ""
    yield from _data_type_lines(ex)
    flat = FlatValues() if any(map(is_adt, ex.constants)) else None
    for i, value in enumerate(ex.constants):
        try:
            if flat is not None and is_adt(value):
                yield from _rows(flat, value)
                yield f"c[{i}] = v[{flat.add(value)}]"
                continue
            first, *rest = constant_lines(value)
        except FormatError as fault:
            raise FormatError(f"constant {i}: {fault}") from None
        yield f"c[{i}] = {first}"
        yield from rest
        if i in ex.memory_scopes:
            yield f"scope c[{i}] = {quote(ex.memory_scopes[i])}"
    if ex.constants:
        yield ""
    yield from _source_lines(ex)
    names = [name_text(info.name) for info in ex.functions]
    words = ex.instr_data.tolist()
    position = 0
    for info, name in zip(ex.functions, names, strict=True):
        yield _header(info, name, position)
        if info.kind == FuncKind.BYTECODE:
            places = _places(ex, info)
            for pc in _body(ex, info):
                if pc in places:
                    yield f"  {_place_text(places[pc])}"
                yield f"  {_strict_text(ex, words, names, pc)}"
            position = info.end_instr
        yield ""


def _header(info: FunctionInfo, name: str, position: int) -> str:
    """Return the header of a function; `position` is the end of the previous body in the
    listing."""
    bytecode = info.kind == FuncKind.BYTECODE
    fresh = FunctionInfo(info.kind, info.name)
    parts = [f"@{name}"]
    if info.kind != FuncKind.PACKED or info.num_args != fresh.num_args:
        parts.append(f"num_inputs={info.num_args}")
    if bytecode or info.register_file_size:
        parts.append(f"registers={info.register_file_size}")
    if info.param_names:
        parts.append(f"params=[{', '.join(map(name_text, info.param_names))}]")
    if info.start_instr != (position if bytecode else 0):
        parts.append(f"start={info.start_instr}")
    if bytecode:
        return " ".join(parts) + ":"
    if info.end_instr:
        parts.append(f"end={info.end_instr}")
    parts.append("packed_func;" if info.kind == FuncKind.PACKED else "vm_tir_func;")
    return " ".join(parts)


def _data_type_lines(ex: VMExecutable) -> Iterator[str]:
    from ...field_types import quoted_name  # here, since most programs have no data types

    for data in ex.data_types.values():
        params = f"[{', '.join(map(quoted_name, data.params))}]" if data.params else ""
        yield f"type {quoted_name(data.name)}{params}"
        for name, constructor in data.constructors.items():
            fields = ", ".join(map(str, constructor.fields))
            yield f"  constructor {quoted_name(name)}({fields})"
    for name, signature in ex.signatures.items():
        yield f"signature {name_text(name)} = {signature}"
    if ex.data_types or ex.signatures:
        yield ""


def _rows(flat: FlatValues, value: Any) -> Iterator[str]:
    """Yield the lines of the parts of a constant of a data type that have not been printed."""
    start = len(flat.rows)
    try:
        flat.add(value)
    except TypeError as error:
        raise FormatError(str(error)) from None
    constructors = [*flat.constructors]
    for number in range(start, len(flat.rows)):
        kind, *parts = flat.rows[number]
        if kind == LEAF:
            first, *rest = constant_lines(flat.leaves[parts[0]])
            yield f"v[{number}] = {first}"
            yield from rest
            continue
        listed = ", ".join(f"v[{part}]" for part in parts)
        if kind == TUPLE:
            yield f"v[{number}] = tuple [{listed}]"
        else:
            name, tag = constructors[kind]
            yield f"v[{number}] = data {quote(name)} {tag} [{listed}]"


def _source_lines(ex: VMExecutable) -> Iterator[str]:
    if ex.debug is None or not ex.debug.line_texts:
        return
    for file, lines in ex.debug.sources.items():
        for number, text in lines.items():
            yield f"source {quote(file)} {number} = {quote(text)}"
    yield ""


def _places(ex: VMExecutable, info: FunctionInfo) -> dict[int, Location]:
    """Return the locations that are printed in a function, by pc."""
    if ex.debug is None:
        return {}
    return {place.pc: place for place in ex.debug.within(info.start_instr, info.end_instr)}


def _place_text(place: Location) -> str:
    parts = ["at"]
    if place.span is not None:
        span = place.span
        extent = f"{span.line}:{span.column}-{span.end_line}:{span.end_column}"
        parts.append(f"{quote(span.file)} {extent}")
    if place.variable is not None:
        parts.append(f"var {name_text(place.variable)}")
    for part in place.parts:
        parts.append("of" + _place_text(Location(place.pc, *part))[2:])
    return " ".join(parts)


def _strict_text(
    ex: VMExecutable, words: Sequence[int], names: Sequence[str], pc: int
) -> str:
    start = int(ex.instr_offset[pc])
    end = int(ex.instr_offset[pc + 1]) if pc + 1 < len(ex) else len(words)
    try:
        instr = isa.decode(words, start)
    except ValueError as error:
        raise _no_form(f"pc {pc}: {error}") from None
    if start + instr.num_words != end:
        raise _no_form(f"pc {pc}: the instruction takes {instr.num_words} words, up to the next "
                       f"are {end - start}")

    def name_of(index: int) -> str:
        if not 0 <= index < len(names):
            raise _no_form(f"pc {pc}: function {index} is not in the table")
        return names[index]

    return _instruction_text(instr, name_of)


def _check_expressible(ex: VMExecutable) -> None:
    names: set[str] = set()
    for info in ex.functions:
        if info.name in names:
            raise _no_form(f"two functions have the name {info.name!r}")
        names.add(info.name)
    for index in ex.memory_scopes:
        if not 0 <= index < len(ex.constants):
            raise _no_form(f"the memory scope of constant {index}, which does not exist")
    if (int(ex.instr_offset[0]) if len(ex) else len(ex.instr_data)) != 0:
        raise _no_form("there are words before the first instruction")
    position = 0
    bodies = [f for f in ex.functions if f.kind == FuncKind.BYTECODE]
    for info in sorted(bodies, key=lambda f: (f.start_instr, f.end_instr)):
        if info.start_instr != position or info.end_instr < position:
            raise _no_form(f"function {info.name!r} has instructions {info.start_instr} to "
                           f"{info.end_instr}, expected a start at {position}")
        position = info.end_instr
    if position != len(ex):
        raise _no_form(f"the functions end at instruction {position}, the code at {len(ex)}")
    if ex.debug is not None and (last := int(ex.debug.runs[-1, 0])) >= len(ex):
        raise _no_form(f"debug information of instruction {last}, which does not exist")


def _no_form(what: str) -> FormatError:
    return FormatError(f"the complete text form cannot express this executable: {what}")


# Statistics


def stats(ex: VMExecutable) -> str:
    """Return a summary of constants and globals, as TVM prints it.  (TVM prints an empty shape as
    ``shapetupl]`` and a float as nothing.)"""
    constants = ", ".join(map(_constant_summary, ex.constants))
    names = ", ".join([info.name for info in ex.functions])
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(ex.constants)}): [{constants}]\n"
        f"  Globals (#{len(ex.functions)}): [{names}]\n"
    )


def _constant_summary(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"[{', '.join(map(str, value.shape))}]" if value.ndim else "scalar"
    if isinstance(value, Shape):
        return f"shapetuple[{', '.join(map(str, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value)
