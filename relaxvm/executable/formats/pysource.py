"""The Python form: a program that rebuilds an executable.

If `relaxvm.ExecBuilder` can express the executable exactly, the program consists of calls of the
builder, as a person would write it; otherwise (gaps between registers, scopes, equal entries in the
pool, ...) it lists the words.  To find out, the builder is tried.  The style follows TVM's
``VMExecutable::AsPython``, whose output cannot be run.
"""

from __future__ import annotations

import base64
import os
import struct
import textwrap
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ... import isa
from ...errors import FormatError, RelaxVMError, RelaxVMWarning
from ...isa import Arg, ArgKind, FuncKind, Instruction
from ...values import Shape, is_adt
from ..debug_info import Location, Span
from ..exec_builder import ExecBuilder
from ..executable import FunctionInfo, VMExecutable, constant_key
from ..flat_values import LEAF, TUPLE, FlatValues
from ._files import replacing
from ._layout import SPECIALS
from ._literals import INLINE, NUMERIC_DTYPES, dtype_text
from ._tensors import little_endian
from .text import format_instruction

if TYPE_CHECKING:
    from ...adt import DataType

__all__ = ["as_python"]

_INDENT: Final = "    "
_BASE64_COLUMNS: Final = 92
_REGISTERS: Final = (isa.FieldKind.REG, isa.FieldKind.DST)
_TENSOR_HELPER: Final = '''
def tensor(dtype, shape, data):
    """A tensor from its little-endian elements in base64."""
    dtype = np.dtype(dtype)
    elements = np.frombuffer(base64.b64decode(data), dtype.newbyteorder("<"))
    return elements.astype(dtype, copy=False).reshape(shape)

'''


def as_python(ex: VMExecutable, *, npz: str | os.PathLike[str] | None = None) -> str:
    """Return a Python program that binds ``ex`` to an executable equal to `ex`.

    Args:
        npz: file to write tensors of more than 64 elements to; the program reads it from the same
            path.  None: these tensors are in the program, in base64.

    Raises:
        FormatError: a constant has no Python form (objects, records); nothing has been written.
        OSError: `npz` cannot be written.
    """
    program = _Program(npz)
    constants = []
    for i, value in enumerate(ex.constants):
        try:
            constants.append(
                program.data(value) if is_adt(value) else program.constant(f"c{i}", value)
            )
        except FormatError as fault:
            raise FormatError(f"constant {i}: {fault}") from None
    built = _builder_lines(ex, constants)
    body = [*program.values, *(_plain_lines(ex, constants) if built is None else built)]
    if npz is not None and program.saved:
        with replacing(npz) as file:
            _write_npz(file, program.saved)
    text = "\n".join(body) + "\n"
    return program.head(uses_numpy="np." in text) + text


def _write_npz(file: IO[bytes], arrays: dict[str, NDArray[Any]]) -> None:
    """Write what `numpy.savez` writes, but without the current time: equal arrays give equal
    bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


class _Program:
    """Collects what a program needs before its body: imports, helpers, saved tensors."""

    def __init__(self, npz: str | os.PathLike[str] | None) -> None:
        self.npz = npz
        self.saved: dict[str, NDArray[Any]] = {}
        self.imports: set[str] = set()
        self.values: list[str] = []
        """Statements that make the parts of constants of data types."""
        self._flat = FlatValues()

    def head(self, uses_numpy: bool) -> str:
        lines = [f"import {name}\n" for name in sorted(self.imports & {"base64", "struct"})]
        lines += ["\n"] if lines else []
        lines += ["import ml_dtypes\n"] if "ml_dtypes" in self.imports else []
        lines += ["import numpy as np\n"] if uses_numpy or self.imports or self.saved else []
        lines += ["import relaxvm as rx\n"]
        if "base64" in self.imports:
            lines += ["\n", _TENSOR_HELPER]
        if self.npz is not None and self.saved:
            lines += [f"\nweights = np.load({os.fspath(self.npz)!r})\n"]
        return "".join(lines) + "\n"

    def data(self, value: Any) -> str:
        """Return an expression for a constant of a data type."""
        start = len(self._flat.rows)
        try:
            root = self._flat.add(value)
        except TypeError as error:
            raise FormatError(str(error)) from None
        constructors = [*self._flat.constructors]
        for number in range(start, len(self._flat.rows)):
            kind, *parts = self._flat.rows[number]
            listed = ", ".join(f"v{part}" for part in parts)
            if kind == LEAF:
                text = self.constant(f"v{number}", self._flat.leaves[parts[0]])
            elif kind == TUPLE:
                text = f"({listed},)" if len(parts) == 1 else f"({listed})"
            else:
                name, tag = constructors[kind]
                text = f"rx.Adt({_quoted(name)}, {tag}, [{listed}])"
            self.values.append(f"v{number} = {text}")
        return f"v{root}"

    def constant(self, key: str, value: Any) -> str:
        """Return an expression for a constant; `key` is its name in the archive of tensors."""
        if isinstance(value, np.ndarray):
            return self.tensor(key, value)
        if isinstance(value, Shape):
            return f"rx.Shape({tuple(value)})"
        if isinstance(value, np.dtype):
            return f"np.dtype({self.dtype(value)})"
        if type(value) is float:
            return self.float(value)
        if type(value) is int:
            return repr(value) if value.bit_length() <= 64 else hex(value)
        if value is None or type(value) in (bool, str):
            return repr(value)
        raise FormatError(f"a {type(value).__name__} has no Python form")

    def float(self, value: float) -> str:
        text = repr(value) if np.isfinite(value) else f'float("{value!r}")'
        if struct.pack("<d", float(repr(value))) == struct.pack("<d", value):
            return text
        self.imports.add("struct")
        return f'struct.unpack("<d", bytes.fromhex("{struct.pack("<d", value).hex()}"))[0]'

    def dtype(self, dtype: np.dtype[Any]) -> str:
        """Return an expression for a dtype argument of numpy's functions."""
        text = dtype_text(dtype)
        if text in NUMERIC_DTYPES and dtype.type.__module__ == "ml_dtypes":
            self.imports.add("ml_dtypes")
            return f"ml_dtypes.{text}"
        return f'"{text}"' if text in NUMERIC_DTYPES else text

    def tensor(self, key: str, array: NDArray[Any]) -> str:
        dtype = self.dtype(array.dtype)
        if array.size == 0:
            return f"np.zeros({array.shape}, {dtype})"
        if array.size <= INLINE:
            literal = _nested(array)
            if literal is not None:
                return f"np.array({literal}, {dtype})"
        elif self.npz is not None:
            return self.saved_tensor(key, array, dtype)
        self.imports.add("base64")
        data = base64.b64encode(little_endian(array).tobytes()).decode()
        starts = range(0, len(data), _BASE64_COLUMNS)
        lines = [f'{_INDENT}"{data[start : start + _BASE64_COLUMNS]}"\n' for start in starts]
        return f"tensor({dtype}, {array.shape}, (\n{''.join(lines)}))"

    def saved_tensor(self, key: str, array: NDArray[Any], dtype: str) -> str:
        """Add a tensor to the archive.  Its format does not have the types of ml_dtypes; these are
        stored as bytes."""
        if not dtype.startswith("ml_dtypes."):
            self.saved[key] = array
            return f'weights["{key}"]'
        raw = np.dtype(f"<u{array.dtype.itemsize}")
        self.saved[key] = array.view(raw)
        return f'weights["{key}"].view({dtype})'


def _nested(array: NDArray[Any]) -> str | None:
    """Return the elements as nested lists of numbers, or None if these do not give the same
    bits."""
    if array.dtype.name not in NUMERIC_DTYPES:
        return None
    if array.dtype.kind in "biu":
        numbers = array.tolist()
    else:
        # The shortest decimal that rounds to the element in its own precision, not as a double.
        read = complex if array.dtype.kind == "c" else float
        flat = np.empty(array.size, object)
        flat[:] = [read(str(x)) for x in array.reshape(-1)]
        numbers = flat.reshape(array.shape).tolist()
    with np.errstate(all="ignore"):
        again = np.array(numbers, array.dtype)
    if constant_key(again) != constant_key(array):
        return None
    return _literal(numbers)


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, complex):
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if isinstance(value, float) and not np.isfinite(value):
        return f"{'-' if value < 0 else ''}np.{'nan' if np.isnan(value) else 'inf'}"
    return repr(value)


# With the builder


def _builder_lines(ex: VMExecutable, constants: Sequence[str]) -> list[str] | None:
    """Return the program as calls of a builder; None if they do not make an equal executable."""
    try:
        declared = ex.functions[: _to_declare(ex)]
        again = _rebuilt(ex, declared)
        same = again == ex and again.debug == ex.debug
    except (RelaxVMError, TypeError, ValueError, IndexError):
        return None  # the builder refuses the program
    return list(_calls(ex, constants, declared)) if same else None


def _bodies(ex: VMExecutable) -> list[FunctionInfo]:
    """Return the functions that have instructions, in the order of their code."""
    bodies = [info for info in ex.functions if info.kind == FuncKind.BYTECODE]
    return sorted(bodies, key=lambda info: info.start_instr)


def _to_declare(ex: VMExecutable) -> int:
    """Return how many functions at the start of the table the program must declare.  The builder's
    table is in order of first mention, and a function that is used as a value must be in it."""
    index_of = {info.name: i for i, info in enumerate(ex.functions)}
    if any(map(is_adt, ex.constants)):
        return len(ex.functions)  # the constants name a function before the code does
    declared = 0
    known = 0  # entries of the table that are declared or mentioned so far
    for info in _bodies(ex):
        mentions = [(index_of[info.name], False)]
        for _, instr in ex.instructions(info):
            mentions += [(a.value, True) for a in instr.args if a.kind == ArgKind.FUNCTION]
            if instr.op.name == "call":
                mentions.append((instr["func_idx"], False))
        for index, is_value in mentions:
            if index >= known:
                if index > known or is_value:
                    declared = index + is_value
                known = index + 1
    return declared if known == len(ex.functions) else len(ex.functions)


def _rebuilt(ex: VMExecutable, declared: Sequence[FunctionInfo]) -> VMExecutable:
    """Return the executable that the program of `_calls` builds."""
    ib = ExecBuilder()
    for info in declared:
        ib.declare_function(info.name, info.kind)
    for value in ex.constants:
        ib.convert_constant(value)
    for data in ex.data_types.values():
        ib.add_data_type(data)
    for name, signature in ex.signatures.items():
        ib.add_signature(name, signature)
    for file, lines in _sources(ex).items():
        ib.add_source(file, lines)
    for info in _bodies(ex):
        places = _places(ex, info)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RelaxVMWarning)
            with ib.function(info.name, info.num_args, info.param_names or None):
                for pc, instr in ex.instructions(info):
                    if pc in places:
                        ib.at(*places[pc][1:])
                    _emit(ib, ex, instr)
    return ib.get()


def _emit(ib: ExecBuilder, ex: VMExecutable, instr: Instruction) -> None:
    """Execute the line of `_call`; the builder may refuse a word that it did not make."""
    kinds = [field.kind for field in instr.op.fields]
    fields = [
        ib.r(value) if kind in _REGISTERS and value not in SPECIALS else value
        for kind, value in zip(kinds, instr.fields, strict=True)
    ]
    if instr.op.name == "call":
        dst, index = fields
        args = [_word(ib, ex, arg) for arg in instr.args]
        ib.emit_call(ex.functions[index].name, args, dst)
    else:
        getattr(ib, f"emit_{instr.op.name}")(*fields)


def _word(ib: ExecBuilder, ex: VMExecutable, arg: Arg) -> int:
    if arg.kind == ArgKind.FUNCTION:
        return ib.f(ex.functions[arg.value].name)
    if arg.kind == ArgKind.REGISTER and arg.value in SPECIALS:
        return arg.value
    makers = {ArgKind.REGISTER: ib.r, ArgKind.IMMEDIATE: ib.imm, ArgKind.CONSTANT: ib.c}
    return makers[arg.kind](arg.value)


def _calls(
    ex: VMExecutable, constants: Sequence[str], declared: Sequence[FunctionInfo]
) -> Iterator[str]:
    yield "ib = rx.ExecBuilder()"
    for info in declared:
        yield f"ib.declare_function({_quoted(info.name)}, rx.FuncKind.{FuncKind(info.kind).name})"
    for i, expression in enumerate(constants):
        yield f"ib.convert_constant({expression})  # c[{i}]"
    for data in ex.data_types.values():
        first, *rest = _data_type(data)
        yield from (f"ib.add_data_type({first}", *rest[:-1], f"{rest[-1]})")
    for name, signature in ex.signatures.items():
        yield f"ib.add_signature({_quoted(name)}, {str(signature)!r})"
    for file, lines in _sources(ex).items():
        yield f"ib.add_source({_quoted(file)}, {{"
        yield from _source_lines(lines, _INDENT)
        yield "})"
    for info in _bodies(ex):
        names = ", ".join(map(_quoted, info.param_names))
        params = f", param_names=[{names}]" if names else ""
        yield f"with ib.function({_quoted(info.name)}, num_inputs={info.num_args}{params}):"
        places = _places(ex, info)
        for pc, instr in ex.instructions(info):
            if pc in places:
                yield f"{_INDENT}ib.at({_place(places[pc])})"
            yield _INDENT + _call(ex, instr)
    yield "ex = ib.get()"


def _call(ex: VMExecutable, instr: Instruction) -> str:
    if instr.op.name == "call":
        args = ", ".join(_operand(ex, arg) for arg in instr.args)
        dst = instr["dst"]
        target = "" if dst == isa.VOID_REGISTER else f", dst={_register(dst)}"
        name = _quoted(ex.functions[instr["func_idx"]].name)
        return f"ib.emit_call({name}, args=[{args}]{target})"
    kinds = [field.kind for field in instr.op.fields]
    fields = [
        _register(value) if kind is isa.FieldKind.REG else str(value)
        for kind, value in zip(kinds, instr.fields, strict=True)
    ]
    return f"ib.emit_{instr.op.name}({', '.join(fields)})"


def _operand(ex: VMExecutable, arg: Arg) -> str:
    if arg.kind == ArgKind.REGISTER:
        return _register(arg.value)
    if arg.kind == ArgKind.IMMEDIATE:
        return f"ib.imm({arg.value})"
    if arg.kind == ArgKind.CONSTANT:
        return f"ib.c({arg.value})"
    return f"ib.f({_quoted(ex.functions[arg.value].name)})"


def _register(register: int) -> str:
    if register == isa.VOID_REGISTER:
        return "ib.void_arg()"
    return "ib.vm_state()" if register == isa.VM_REGISTER else f"ib.r({register})"


def _quoted(name: str) -> str:
    """Return a string literal, in double quotes if the name is plain."""
    return f'"{name}"' if repr(name) == f"'{name}'" and '"' not in name else repr(name)


# With words


def _plain_lines(ex: VMExecutable, constants: Sequence[str]) -> Iterator[str]:
    yield "functions = ["
    for info in ex.functions:
        yield f"{_INDENT}{_function(info)},"
    yield "]"
    yield "constants = ["
    for i, expression in enumerate(constants):
        yield f"{textwrap.indent(expression, _INDENT)},  # c[{i}]"
    yield "]"
    yield "instr_data = ["
    yield from _words(ex)
    yield "]"
    yield "instr_offset = ["
    yield from _rows(ex.instr_offset.tolist())
    yield "]"
    scopes = ", ".join(f"{i}: {scope!r}" for i, scope in sorted(ex.memory_scopes.items()))
    yield f"memory_scopes = {{{scopes}}}"
    parts = "functions, constants, instr_offset, instr_data, memory_scopes"
    if ex.debug is not None:
        yield from _debug(ex)
        parts += ", debug"
    if ex.data_types or ex.signatures:
        yield "types = ["
        for data in ex.data_types.values():
            yield from (f"{_INDENT}{line}" for line in _data_type(data)[:-1])
            yield f"{_INDENT}}}),"
        yield "]"
        yield "signatures = {"
        for name, signature in ex.signatures.items():
            yield f"{_INDENT}{_quoted(name)}: {str(signature)!r},"
        yield "}"
        parts += ', sections={"data_types": rx.adt.DataTypes(types, signatures)}'
    yield f"ex = rx.VMExecutable({parts})"


def _data_type(data: DataType) -> list[str]:
    """Return the lines of an expression for a data type; the last one closes it."""
    params = ", ".join(map(_quoted, data.params))
    lines = [f"rx.adt.DataType({_quoted(data.name)}, [{params}], {{"]
    for name, constructor in data.constructors.items():
        fields = ", ".join(_quoted(str(ty)) for ty in constructor.fields)
        lines.append(f"{_INDENT}{_quoted(name)}: [{fields}],")
    return [*lines, "})"]


def _function(info: FunctionInfo) -> str:
    default = FunctionInfo(info.kind, info.name)
    fields = ("start_instr", "end_instr", "num_args", "register_file_size", "param_names")
    rest = [
        f"{field}={getattr(info, field)!r}"
        for field in fields
        if getattr(info, field) != getattr(default, field)
    ]
    kind = f"rx.FuncKind.{FuncKind(info.kind).name}"
    return f"rx.FunctionInfo({', '.join([kind, _quoted(info.name), *rest])})"


def _words(ex: VMExecutable) -> Iterator[str]:
    """Yield the code, one instruction per line where the offsets allow it."""
    words = ex.instr_data.tolist()
    starts = ex.instr_offset.tolist()
    ends = [*starts[1:], len(words)]
    if starts[:1] == [0] and all(start < end for start, end in zip(starts, ends, strict=True)):
        for pc, (start, end) in enumerate(zip(starts, ends, strict=True)):
            numbers = ", ".join(map(str, words[start:end]))
            yield f"{_INDENT}{numbers},  # {pc}: {format_instruction(ex, pc)}"
    else:
        yield from _rows(words)


def _rows(numbers: Sequence[int]) -> Iterator[str]:
    for start in range(0, len(numbers), 12):
        yield f"{_INDENT}{', '.join(map(str, numbers[start : start + 12]))},"


# Debug information


def _sources(ex: VMExecutable) -> dict[str, dict[int, str]]:
    return {} if ex.debug is None else ex.debug.sources


def _places(ex: VMExecutable, info: FunctionInfo) -> dict[int, Location]:
    """Return the locations of a function that the program has to state, by pc."""
    if ex.debug is None:
        return {}
    return {place.pc: place for place in ex.debug.within(info.start_instr, info.end_instr)}


def _place(place: Location) -> str:
    """Return the arguments for `ExecBuilder.at`."""
    args = [] if place.span is None else [_span(place.span)]
    if place.variable is not None:
        name = _quoted(place.variable)
        args.append(name if args else f"var={name}")
    if place.parts:
        args.append(f"parts={_parts(place)}")
    return ", ".join(args)


def _span(span: Span | None) -> str:
    if span is None:
        return "None"
    numbers = f"{span.line}, {span.column}, {span.end_line}, {span.end_column}"
    return f"rx.Span({_quoted(span.file)}, {numbers})"


def _parts(place: Location) -> str:
    parts = [
        f"({_span(span)}, {None if name is None else _quoted(name)})" for span, name in place.parts
    ]
    return f"[{', '.join(parts)}]"


def _source_lines(lines: Mapping[int, str], indent: str) -> Iterator[str]:
    for number, text in lines.items():
        yield f"{indent}{number}: {_quoted(text)},"


def _debug(ex: VMExecutable) -> Iterator[str]:
    """Yield the debug information for code that the builder would refuse."""
    assert ex.debug is not None
    yield "locations = ["
    for place in ex.debug:
        variable = "None" if place.variable is None else _quoted(place.variable)
        parts = f", {_parts(place)}" if place.parts else ""
        yield f"{_INDENT}({place.pc}, {_span(place.span)}, {variable}{parts}),"
    yield "]"
    yield "sources = {"
    for file, lines in _sources(ex).items():
        yield f"{_INDENT}{_quoted(file)}: {{"
        yield from _source_lines(lines, 2 * _INDENT)
        yield f"{_INDENT}}},"
    yield "}"
    yield "debug = rx.DebugInfo.of(locations, sources)"
