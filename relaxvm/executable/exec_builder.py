"""ExecBuilder: emit instructions, get an executable.

The instructions of a function are emitted inside ``with builder.function(...)``.  They are checked
and *formalized* as they are emitted: a register must be written before it is read, registers get
dense numbers in the order in which they are first written (inputs keep theirs), and labels become
offsets.  The builder reports the mistakes that it can attribute to a line of the caller; whether
the complete executable is safe to run is checked by `relaxvm.verify`.

Source: TVM's ``relax.ExecBuilder``; labels are ours.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Final, SupportsIndex

import numpy as np

from ..adt import DataType
from ..dtypes import dtype_name
from ..errors import InternalError, RelaxVMWarning, did_you_mean
from ..field_types import FunctionField
from ..isa import (
    KIND_SHIFT,
    OP_BY_CODE,
    OP_BY_NAME,
    OPS,
    VALUE_MAX,
    VALUE_MIN,
    VM_REGISTER,
    VOID_REGISTER,
    WORD_MAX,
    WORD_MIN,
    ArgKind,
    FieldKind,
    FuncKind,
    InstructionSpec,
    decode_arg,
    encode_arg,
)
from ..messages import describe, readable
from ..values import Shape, is_adt, is_sealed, to_value
from .debug_info import DebugInfo, Location, Part, Span
from .executable import MAKE_ADT, FunctionInfo, VMExecutable, constant_key

__all__ = ["ExecBuilder", "Label"]

_CALL, _RET, _GOTO, _IF = (OP_BY_NAME[name] for name in ("call", "ret", "goto", "if"))
_LARGE: Final = 1 << 16
"""Arrays of this many bytes are only read as a whole where another one looks like them."""
_SAMPLES: Final = 256
"""The parts of an array that are compared first."""

_READS: Final = {
    op.code: tuple(i for i, field in enumerate(op.fields) if field.kind is FieldKind.REG)
    for op in OPS
}
_WRITES: Final = {
    op.code: tuple(i for i, field in enumerate(op.fields) if field.kind is FieldKind.DST)
    for op in OPS
}
_IMMEDIATES: Final = ArgKind.IMMEDIATE << KIND_SHIFT
"""The smallest word of an immediate; the words of registers are below it."""
_CONSTANTS: Final = ArgKind.CONSTANT << KIND_SHIFT
_WORDS_END: Final = (max(ArgKind) + 1) << KIND_SHIFT
_SPECIAL: Final = {VOID_REGISTER: "the void register", VM_REGISTER: "the VM register"}


class Label:
    """A jump target: created by `ExecBuilder.label`, placed by `ExecBuilder.bind`."""

    __slots__ = ("_function", "_is_target", "_jumps", "_pc", "name")

    def __init__(self, function: _OpenFunction, name: str) -> None:
        self.name = name
        self._function = function
        self._pc: int | None = None
        self._jumps: list[tuple[int, int]] = []  # patched by `bind`: pc, index of the word
        self._is_target = False

    def __repr__(self) -> str:
        return f"<Label {self.name} of function {self._function.name!r}>"


class _OpenFunction:
    """A function that is being built.  Its pcs and word offsets count from its own start."""

    __slots__ = ("jumps", "labels", "locations", "mark", "name", "num_inputs", "num_registers",
                 "offsets", "param_names", "registers", "start", "unresolved", "warn_unused",
                 "words")  # fmt: skip

    def __init__(
        self,
        name: str,
        num_inputs: int,
        param_names: tuple[str, ...],
        start: int,
        mark: int,
        warn_unused: bool,
    ) -> None:
        self.name = name
        self.num_inputs = num_inputs
        self.param_names = param_names
        self.start = start
        """pc of the first instruction in the executable."""
        self.mark = mark
        """Length of the function table before this function."""
        self.warn_unused = warn_unused
        self.words: list[int] = []
        self.offsets: list[int] = []
        self.labels: list[Label] = []
        self.jumps: list[tuple[int, int]] = []
        """Jumps forward by a number of instructions: pc, and the pc where they lead."""
        self.num_registers = num_inputs
        self.registers = {VOID_REGISTER: VOID_REGISTER, VM_REGISTER: VM_REGISTER}
        """The caller's register number -> number in the code: registers written, inputs read."""
        self.unresolved: list[_UnresolvedArg] = []
        self.locations: list[Location] = []

    def place(self, pc: int | None = None) -> str:
        """Name an instruction in a message; by default the one that is about to be emitted."""
        return (
            f"function {self.name!r}, pc {self.start + (len(self.offsets) if pc is None else pc)}"
        )


@dataclass(frozen=True, slots=True)
class _UnresolvedArg:
    """An argument that refers to a constant or function that did not exist when it was emitted."""

    place: str
    kind: ArgKind
    index: int


@dataclass(frozen=True, slots=True)
class _Body:
    """A finished function."""

    info: FunctionInfo
    words: np.ndarray[Any, np.dtype[np.int64]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    unresolved: tuple[_UnresolvedArg, ...]
    locations: tuple[Location, ...]


class _Scope:
    """The context manager of `ExecBuilder.function`."""

    __slots__ = ("_begin", "_builder")

    def __init__(self, builder: ExecBuilder, *begin: Any) -> None:
        self._builder = builder
        self._begin = begin

    def __enter__(self) -> None:
        self._builder._begin_function(*self._begin)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None:
                self._builder._end_function()
        finally:
            self._builder._drop_function()


class ExecBuilder:
    """Builds a `VMExecutable`, one function after the other::

        ib = ExecBuilder()
        with ib.function("main", num_inputs=2):
            ib.emit_call("test.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
            ib.emit_ret(ib.r(2))
        executable = ib.get()

    Operands are *words*, plain ints made by `r`, `imm`, `c`, `f`, `void_arg`, `vm_state` and
    `convert_constant`.  The function table is in order of first mention.  A name that is called
    before it is defined is a packed function until its definition comes.

    Builders share no state: several may be in use at once, also in different threads.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, FuncKind] = {}  # the function table, in order
        self._index: dict[str, int] = {}
        self._unnamed: set[str] = set()  # in the table, but no word for it was handed out
        self._constants: list[Any] = []
        self._constant_index: dict[tuple[Any, ...], int] = {}
        self._look_alikes: dict[tuple[Any, ...], list[int]] = {}
        self._large_keys: dict[int, tuple[Any, ...]] = {}
        self._bodies: dict[str, _Body] = {}
        self._compiled: dict[str, FunctionInfo] = {}
        self._sources: dict[str, str | Mapping[int, str]] = {}
        self._data_types: dict[str, DataType] = {}
        self._signatures: dict[str, FunctionField | str] = {}
        self._open: _OpenFunction | None = None
        self._num_instructions = 0

    # Operands

    def r(self, idx: SupportsIndex) -> int:
        """Return the word of register `idx` of the frame; the first registers hold the inputs.

        Raises:
            InternalError: `idx` is not within 0 .. 2**55 - 1.
        """
        return _value("register", idx, least=0)

    def imm(self, value: SupportsIndex) -> int:
        """Return the word of an immediate: an integer that is stored in the instruction.

        Raises:
            InternalError: `value` is not within ±(2**55 - 1).
        """
        return encode_arg(ArgKind.IMMEDIATE, _value("immediate", value))

    def c(self, idx: SupportsIndex) -> int:
        """Return the word of constant `idx` of the pool.  It must exist when `get` is called.

        Raises:
            InternalError: `idx` is not within 0 .. 2**55 - 1.
        """
        return encode_arg(ArgKind.CONSTANT, _value("constant index", idx, least=0))

    def f(self, name: str) -> int:
        """Return the word of a function that is used as a value.

        Raises:
            InternalError: the function is not in the table; `declare_function` adds it.
        """
        index = self._index.get(_name("function", name))
        if index is None:
            raise InternalError(
                f"function {name!r}: expected a declared or defined function"
                f"{did_you_mean(name, self._index)}"
            )
        self._unnamed.discard(name)
        return encode_arg(ArgKind.FUNCTION, index)

    def void_arg(self) -> int:
        """Return the word of the void register: None as an argument, "discard" as a destination."""
        return VOID_REGISTER

    def vm_state(self) -> int:
        """Return the word of the register that holds the virtual machine."""
        return VM_REGISTER

    def convert_constant(self, const: Any) -> int:
        """Return the word of a constant.

        An int within ±(2**55 - 1) becomes an immediate.  Anything else is added to the pool, which
        keeps equal constants of the same kind once: None, bool, float, larger ints, str, dtypes,
        shapes (also tuples and lists of ints), arrays and anything that converts to an array, and
        values of data types.  A writable array is copied, and so is one whose elements are not
        aligned, which kernels would copy whenever they run; others are kept as they are.

        Raises:
            TypeError: the pool cannot hold such a value.
            InternalError: an int does not fit 64 bits.
        """
        value = _constant(const)
        if type(value) is int and VALUE_MIN <= value <= VALUE_MAX:
            return encode_arg(ArgKind.IMMEDIATE, value)
        is_array = isinstance(value, np.ndarray)
        if is_array and value.dtype.hasobject:
            value = _sealed_copy(value)  # its key is its id, which must not be reused
        if is_adt(value):
            self.declare_function(MAKE_ADT)  # which TVM does not have, so it refuses the program
        is_large = (
            is_array
            and value.nbytes >= _LARGE
            and value.flags.c_contiguous
            and not value.dtype.hasobject
        )
        key = _sample_key(value) if is_large else constant_key(value)
        index = self._constant_index.get(key)
        if is_large and index is not None:
            # Only arrays that look alike are read as a whole.
            for known in (index, *self._look_alikes.get(key, ())):
                if self._key_of(known) == constant_key(value):
                    return encode_arg(ArgKind.CONSTANT, known)
            self._look_alikes.setdefault(key, []).append(len(self._constants))
        if index is None or is_large:
            # Memory that came through a protocol may be changed by its owner, whatever its flags.
            is_kept = not is_array or (
                isinstance(const, np.ndarray) and is_sealed(value) and value.flags.aligned
            )
            index = len(self._constants)
            self._constant_index.setdefault(key, index)
            self._constants.append(value if is_kept else _sealed_copy(value))
        return encode_arg(ArgKind.CONSTANT, index)

    def _key_of(self, index: int) -> tuple[Any, ...]:
        """The key of a large constant, which is only made where another one looks like it."""
        key = self._large_keys.get(index)
        if key is None:
            key = self._large_keys[index] = constant_key(self._constants[index])
        return key

    # Functions

    def declare_function(self, func_name: str, kind: FuncKind | int = FuncKind.PACKED) -> None:
        """Add a function to the table, for example to use it as a value before it is defined.

        A function declared as packed may still be defined; it then becomes a bytecode function.

        Raises:
            InternalError: the kind is unknown, or the name is in the table with another kind.
        """
        subject = f"function {_name('function', func_name)!r}"
        try:
            kind = FuncKind(kind)
        except ValueError:
            kinds = ", ".join(f"{k} ({k.name.lower()})" for k in FuncKind)
            raise InternalError(f"{subject}: expected a kind of {kinds}, got {kind!r}") from None
        old = self._kinds.get(func_name, kind)
        if old != kind:
            raise InternalError(
                f"{subject}: declared as {kind.name.lower()}, but the table has it as "
                f"{old.name.lower()}"
            )
        self._declare(func_name, kind)
        self._unnamed.discard(func_name)

    def function(
        self,
        func_name: str,
        num_inputs: SupportsIndex = 0,
        param_names: Sequence[str] | None = None,
        *,
        warn_unused: bool = True,
    ) -> _Scope:
        """Context manager: the instructions emitted inside are the body of a function.

        The first `num_inputs` registers hold the inputs.  If the block raises, the function is
        discarded and the builder continues as if it had never been started.

        Args:
            func_name: its name.
            num_inputs: number of parameters.
            param_names: their names.
            warn_unused: whether to warn about an input that no instruction reads.

        Raises:
            InternalError: the parameter names do not fit `num_inputs`.  At the start of the block:
                another function is open, or the name is already defined or declared as compiled.
                At its end: there are no instructions, or a jump target has no instruction.

        Warns:
            RelaxVMWarning: an input is never used, unless `warn_unused` is false.
        """
        subject = f"function {_name('function', func_name)!r}"
        count = _value(f"{subject}: number of inputs", num_inputs, least=0)
        if param_names is None:
            return _Scope(self, func_name, count, (), warn_unused)
        names = tuple(_name(f"{subject}: parameter", name) for name in param_names)
        if len(names) != count:
            raise InternalError(
                f"{subject}: expected {count} parameter names, got {len(names)} "
                f"({', '.join(names)})"
            )
        if len(set(names)) < count:
            raise InternalError(
                f"{subject}: expected distinct parameter names, got {', '.join(names)}"
            )
        return _Scope(self, func_name, count, names, warn_unused)

    def add_compiled(
        self, func_name: str, num_inputs: int, num_registers: int, param_names: Sequence[str]
    ) -> None:
        """Define a function whose code is not in the executable.

        Args:
            func_name: its name; the code is looked up under ``"__vmtir__" + func_name``.
            num_inputs: number of parameters.
            num_registers: registers that its code uses, parameters included.
            param_names: one per parameter.

        Raises:
            InternalError: the name is declared as another kind of function, or already defined.
        """
        if func_name in self._compiled:
            raise InternalError(f"function {func_name!r}: defined already")
        self.declare_function(func_name, FuncKind.COMPILED)
        self._compiled[func_name] = FunctionInfo(
            FuncKind.COMPILED, func_name, 0, 0, num_inputs, num_registers, tuple(param_names)
        )

    def label(self, name: str | None = None) -> Label:
        """Create a label of the open function.  Its name is only used in messages.

        Raises:
            ValueError: no function is open.
        """
        function = self._opened("label")
        made = Label(function, f"#{len(function.labels)}" if name is None else repr(name))
        function.labels.append(made)
        return made

    def bind(self, label: Label) -> None:
        """Place a label: it denotes the instruction that is emitted next.

        Raises:
            ValueError: no function is open.
            InternalError: the label is already bound, or belongs to another function.
            TypeError: `label` is not a label.
        """
        function = self._opened("bind")
        if not isinstance(label, Label):
            raise TypeError(
                f"{function.place()}: bind: expected a label made by label(), got {describe(label)}"
            )
        _check_owner(function, label)
        if label._pc is not None:
            raise InternalError(
                f"{function.place()}: label {label.name} is bound already, at pc "
                f"{function.start + label._pc}"
            )
        follows_jump = label._jumps and label._jumps[-1][0] == len(function.offsets) - 1
        if follows_jump and function.words[function.offsets[-1]] == _IF.code:
            # The offset of an `if` is at least 2: one that would skip nothing skips a `goto 1`.
            self.emit_goto(1)
        label._pc = len(function.offsets)
        for pc, word in label._jumps:
            function.words[word] = label._pc - pc
        label._jumps.clear()

    # Instructions

    def emit_call(
        self, name: str, args: Iterable[Any] | None = None, dst: SupportsIndex | None = None
    ) -> None:
        """Emit a call; the result is written to register `dst`, or discarded.

        Args:
            name: of any function.  A name that is not in the table is added as a packed function.
            args: words; also arrays, dtypes, `Shape` and tuples of ints, which become constants.
            dst: a register; None and `void_arg` discard the result.

        Raises:
            ValueError: no function is open.
            TypeError: an argument is neither a word nor one of these constants.
            InternalError: an argument or `dst` is not a valid word; a register is read before any
                instruction has written it.
        """
        function = self._opened("emit_call")
        target = VOID_REGISTER if dst is None else _register(function, "dst", dst, VOID_REGISTER)
        if args is None:
            words = []
        elif type(args) is list or (isinstance(args, Iterable) and not isinstance(args, str)):
            words = list(args)  # the first test is the fast one
        else:
            raise TypeError(
                f"{function.place()}: call {name}: args: expected a list of words, "
                f"got {describe(args)}"
            )
        registers = function.registers
        for i, word in enumerate(words):
            if type(word) is not int:
                words[i] = word = self._word(function, name, i, word)
            if 0 <= word < _IMMEDIATES:
                words[i] = registers[word] if word in registers else _read(function, word)
            elif not _IMMEDIATES <= word < _CONSTANTS:
                self._check_reference(function, name, i, word)
        index = self._index.get(name)
        if index is None:
            index = self._declare(_name("call: function", name), FuncKind.PACKED)
            self._unnamed.add(name)
        self._emit(function, _CALL, [target, index], words)

    def emit_ret(self, result: SupportsIndex) -> None:
        """Emit a return of the value of a register; `void_arg` returns None.

        Raises:
            ValueError: no function is open.
            InternalError: `result` is not a register, or not written yet.
        """
        function = self._opened("emit_ret")
        register = _register(function, "ret: result", result, VOID_REGISTER, VM_REGISTER)
        self._emit(function, _RET, [register])

    def emit_goto(self, pc_offset: SupportsIndex | Label) -> None:
        """Emit a jump by `pc_offset` instructions, counted from this one, or to a label.

        Raises:
            ValueError: no function is open.
            InternalError: the offset is 0, or leads to before the function; the label belongs to
                another function.
        """
        function = self._opened("emit_goto")
        if isinstance(pc_offset, Label):
            offset = _distance(function, pc_offset, _GOTO, "pc_offset")
        else:
            offset = _offset(function, "goto", pc_offset)
        if offset == 0:
            raise InternalError(
                f"{function.place()}: goto: expected an offset other than 0, which "
                f"would jump to itself forever"
            )
        self._emit(function, _GOTO, [offset])

    def emit_if(self, cond: SupportsIndex, false_offset: SupportsIndex | Label) -> None:
        """Emit a branch: continue with the next instruction if register `cond` is true, else jump
        by `false_offset` instructions, counted from this one, or to a label.

        The register holds an int or a bool; ``vm.builtin.read_if_cond`` converts a tensor.  An `if`
        can only jump forward: for a label at an earlier pc the builder adds two gotos.

        Raises:
            ValueError: no function is open.
            InternalError: `cond` is not a register, or not written yet; the offset is below 2; the
                label belongs to another function.
        """
        function = self._opened("emit_if")
        register = _register(function, "if: condition", cond)
        _read(function, register)  # must not fail once the label knows of this jump
        if isinstance(false_offset, Label):
            offset = _distance(function, false_offset, _IF, "false_offset")
        else:
            offset = _offset(function, "if", false_offset, 2)
        if offset >= 1:
            self._emit(function, _IF, [register, offset])
        else:
            self._emit(function, _IF, [register, 2])
            self.emit_goto(2)
            self.emit_goto(false_offset)

    # Debug information

    def at(
        self, span: Span | None = None, var: str | None = None, parts: Iterable[Part] = ()
    ) -> None:
        """Set the source location of the instructions that follow, up to the next `at` or the end
        of the function.

        Args:
            span: the binding in the source; None where there is none.
            var: name of the variable that the binding defines; None where it defines none.
            parts: place and variable of other bindings that the instructions compute too.

        Raises:
            ValueError: no function is open.
            TypeError: a place is not a `Span`, or a variable not a str.
            InternalError: the name is empty.
        """
        function = self._opened("at")
        others = tuple([(place, name) for place, name in parts])
        for place, name in ((span, var), *others):
            if place is not None and not isinstance(place, Span):
                raise TypeError(f"{function.place()}: at: expected a Span, got {describe(place)}")
            if name is not None and (not isinstance(name, str) or not name):
                _name(f"{function.place()}: at: variable", name)
        function.locations.append(Location(len(function.offsets), span, var, others))

    def add_source(self, file: str, source: str | Mapping[int, str]) -> None:
        """Add the text of a source file, so that errors can show lines of it.

        Args:
            file: its name, spelled as in the spans.
            source: the whole text, of which the executable keeps the lines that spans touch; or
                line -> text, which is kept as it is.
        """
        self._sources[_name("source file", file)] = source

    # Data types

    def add_data_type(self, data: DataType) -> None:
        """Add the definition of a data type, so that the executable's users can make values of it.

        Raises:
            TypeError: it is not a `relaxvm.adt.DataType`.
            InternalError: there is another data type of this name.
        """
        from ..adt import DataType  # here, since most programs have no data types

        if not isinstance(data, DataType):
            raise TypeError(f"add_data_type: expected a DataType, got {describe(data)}")
        if self._data_types.setdefault(data.name, data) != data:
            raise InternalError(f"data type {data.name!r}: there is another one of this name")

    def add_signature(self, func_name: str, ty: FunctionField | str) -> None:
        """Set the type of a function in the program, where it mentions data types.  The function
        must be defined when `get` is called.

        Args:
            func_name: the function.
            ty: its type, or the text of it: ``"R.Callable((List[A],), A, True, ...)"``.
        """
        self._signatures[_name("signature: function", func_name)] = ty

    # Result

    def get(self) -> VMExecutable:
        """Return the executable of the functions built so far.  May be called repeatedly.

        Raises:
            InternalError: a function is open, or declared as bytecode and not defined; an argument
                refers to a constant or function that does not exist.
            FormatError: a signature is not the type of a function.
        """
        if self._open is not None:
            raise InternalError(f"get: function {self._open.name!r} has not ended")
        for name, kind in self._kinds.items():
            if kind == FuncKind.BYTECODE and name not in self._bodies:
                raise InternalError(f"function {name!r}: declared as bytecode, but never defined")
        bodies = list(self._bodies.values())
        for body in bodies:
            for arg in body.unresolved:
                self._check_unresolved(arg)
        for name in self._signatures:
            if name not in self._bodies and name not in self._compiled:
                raise InternalError(f"signature of {name!r}: there is no such function")
        debug = None
        if any(body.locations for body in bodies):
            debug = DebugInfo.of_bodies(
                ((body.info.start_instr, body.info.end_instr, body.locations) for body in bodies),
                self._sources,
            )
        starts = np.cumsum([0, *(len(body.words) for body in bodies)], dtype=np.int64)
        return VMExecutable(
            [
                self._info(name, kind) for name, kind in self._kinds.items()
            ],
            self._constants,
            _join([body.offsets + start for body, start in zip(bodies, starts, strict=False)]),
            _join([body.words for body in bodies]),
            debug=debug,
            sections=self._sections(),
        )

    def _sections(self) -> dict[str, Any]:
        if not self._data_types and not self._signatures:
            return {}
        from ..adt import DataTypes

        return {"data_types": DataTypes(self._data_types.values(), self._signatures)}

    def _info(self, name: str, kind: FuncKind) -> FunctionInfo:
        if name in self._bodies:
            return self._bodies[name].info
        return self._compiled.get(name) or FunctionInfo(kind, name)

    def __repr__(self) -> str:
        now = "" if self._open is None else f", inside of {readable(self._open.name)!r}"
        return (
            f"<ExecBuilder: {len(self._bodies)} functions with {self._num_instructions} "
            f"instructions, {len(self._constants)} constants{now}>"
        )

    # Inside

    def _declare(self, name: str, kind: FuncKind) -> int:
        self._kinds.setdefault(name, kind)
        return self._index.setdefault(name, len(self._index))

    def _begin_function(
        self, name: str, num_inputs: int, param_names: tuple[str, ...], warn_unused: bool
    ) -> None:
        if self._open is not None:
            raise InternalError(f"function {name!r}: begun before {self._open.name!r} has ended")
        if name in self._bodies:
            raise InternalError(f"function {name!r}: defined already")
        if self._kinds.get(name) == FuncKind.COMPILED:
            raise InternalError(
                f"function {name!r}: declared as compiled, got a bytecode definition"
            )
        mark = len(self._index)
        if name not in self._index:
            self._declare(name, FuncKind.BYTECODE)
            self._unnamed.add(name)
        self._open = _OpenFunction(
            name, num_inputs, param_names, self._num_instructions, mark, warn_unused
        )

    def _end_function(self) -> None:
        function = self._opened("end of function")
        if not function.offsets:
            raise InternalError(f"function {function.name!r}: expected at least one instruction")
        for label in function.labels:
            if label._jumps:
                raise InternalError(
                    f"{function.place(label._jumps[0][0])}: jump to label {label.name}, "
                    f"which is never bound"
                )
            if label._is_target and label._pc == len(function.offsets):
                raise InternalError(
                    f"{function.place()}: expected an instruction after label "
                    f"{label.name}, got the end of the function"
                )
        _check_end(function)
        if function.warn_unused:
            _warn_unused(function)
        end = function.start + len(function.offsets)
        self._bodies[function.name] = _Body(
            FunctionInfo(
                FuncKind.BYTECODE,
                function.name,
                function.start,
                end,
                function.num_inputs,
                function.num_registers,
                function.param_names,
            ),
            np.array(function.words, np.int64),
            np.array(function.offsets, np.int64),
            tuple(function.unresolved),
            tuple(function.locations),
        )
        self._kinds[function.name] = FuncKind.BYTECODE
        self._num_instructions = end
        self._unnamed.clear()
        self._open = None

    def _drop_function(self) -> None:
        """Discard the open function, if any, and the names that only it has added to the table."""
        if self._open is None:
            return
        for name in reversed(list(self._index)[self._open.mark :]):
            if name not in self._unnamed:
                break  # the caller holds its index, so the entries up to it must stay
            del self._index[name], self._kinds[name]
        self._unnamed.clear()
        self._open = None

    def _opened(self, what: str) -> _OpenFunction:
        if self._open is None:
            raise ValueError(
                f"{what}: expected an open function, got none; emit inside of "
                f"`with builder.function(name, num_inputs):`"
            )
        return self._open

    def _emit(
        self,
        function: _OpenFunction,
        op: InstructionSpec,
        fields: list[int],
        args: Sequence[int] = (),
    ) -> None:
        """Append an instruction; the registers in `args` have their final numbers."""
        for i in _READS[op.code]:
            fields[i] = _read(function, fields[i])
        for i in _WRITES[op.code]:
            fields[i] = _written(function, fields[i])
        words = function.words
        function.offsets.append(len(words))
        words.append(op.code)
        words += fields
        if op.tail is not None:
            words.append(len(args))
            words += args

    def _word(self, function: _OpenFunction, name: str, i: int, arg: Any) -> int:
        """Return the word of an argument that is not an int."""
        is_constant = isinstance(arg, (np.ndarray, np.dtype, tuple)) or hasattr(arg, "__dlpack__")
        if is_constant or _named_dtype(arg) is not None:
            return self.convert_constant(arg)
        if isinstance(arg, (bool, np.bool_)) or not hasattr(arg, "__index__"):
            got = f"list of {len(arg)}" if isinstance(arg, list) else describe(arg)
            raise TypeError(
                f"{function.place()}: call {name}: argument {i}: expected a word, array, "
                f"dtype, Shape or tuple of ints, got {got}; pass "
                f"convert_constant(value), or imm(value) for an int"
            )
        return operator.index(arg)

    def _check_reference(self, function: _OpenFunction, name: str, i: int, word: int) -> None:
        """Check the kind of an argument that is neither register nor immediate; record an index
        that is out of range so far, to be checked by `get`."""
        if not _CONSTANTS <= word < _WORDS_END:
            raise InternalError(
                f"{function.place()}: call {name}: argument {i}: expected a word made by "
                f"r, imm, c or f, got {word}; pass imm({word}) for an int"
            )
        kind, index = decode_arg(word)
        known = self._constants if kind == ArgKind.CONSTANT else self._index
        if not 0 <= index < len(known):
            place = f"{function.place()}: call {name}: argument {i}"
            function.unresolved.append(_UnresolvedArg(place, ArgKind(kind), index))

    def _check_unresolved(self, arg: _UnresolvedArg) -> None:
        known = self._constants if arg.kind == ArgKind.CONSTANT else self._index
        if not 0 <= arg.index < len(known):
            what = arg.kind.name.lower()
            raise InternalError(
                f"{arg.place}: expected a {what} index below {len(known)}, got {arg.index}"
            )


def _read(function: _OpenFunction, register: int) -> int:
    """Return the number in the code of a register that is read."""
    number = function.registers.get(register)
    if number is None:
        if not 0 <= register < function.num_inputs:
            inputs = (
                f"inputs are %0..%{function.num_inputs - 1}" if function.num_inputs else "no inputs"
            )
            _, value = decode_arg(register)
            raise InternalError(
                f"{function.place()}: register %{value} is read before any instruction "
                f"has written it ({inputs})"
            )
        number = function.registers[register] = register
    return number


def _written(function: _OpenFunction, register: int) -> int:
    """Return the number in the code of a register that is written, assigning it if it is new."""
    number = function.registers.get(register)
    if number is None:
        if register < function.num_inputs:
            return register  # not recorded: that would mark it as an input that was read
        number = function.registers[register] = function.num_registers
        function.num_registers += 1
    return number


def _register(function: _OpenFunction, what: str, word: SupportsIndex, *special: int) -> int:
    """Return the number of an ordinary register or of one of the `special` ones."""
    number = word if type(word) is int else _value(f"{function.place()}: {what}", word)
    if (0 <= number <= VALUE_MAX and number not in _SPECIAL) or number in special:
        return number
    raise InternalError(
        f"{function.place()}: {what}: expected a register made by r(i), got "
        f"{_SPECIAL.get(number, f'word {number}')}"
    )


def _check_owner(function: _OpenFunction, label: Label) -> None:
    if label._function is not function:
        raise InternalError(
            f"{function.place()}: expected a label of this function, got label "
            f"{label.name} of function {label._function.name!r}"
        )


def _distance(function: _OpenFunction, label: Label, op: InstructionSpec, field: str) -> int:
    """Return the offset from the next instruction to a label; 1 as a placeholder if unbound."""
    _check_owner(function, label)
    label._is_target = True
    pc = len(function.offsets)
    if label._pc is not None:
        return label._pc - pc
    label._jumps.append((pc, len(function.words) + op.word_of(field)))
    return 1


def _offset(
    function: _OpenFunction, what: str, value: SupportsIndex, least: int | None = None
) -> int:
    """Return the number of instructions that a jump skips, which must not lead out of the function;
    where it leads forward, `_check_end` checks that."""
    offset = _value(f"{what}: offset", value)
    pc = len(function.offsets)
    bound, where = (-pc, ", the start of the function") if least is None else (least, "")
    if offset < bound:
        raise InternalError(
            f"{function.place()}: {what}: expected an offset of at least {bound}{where}, got "
            f"{offset}"
        )
    if offset > 0:
        function.jumps.append((pc, pc + offset))
    return offset


def _check_end(function: _OpenFunction) -> None:
    """Check that control does not leave the function at its end."""
    count = len(function.offsets)
    for pc, target in function.jumps:
        if target >= count:
            raise InternalError(
                f"{function.place(pc)}: jump by {target - pc} instructions: expected at most "
                f"{count - 1 - pc}, to the last instruction of the function"
            )
    last = OP_BY_CODE[function.words[function.offsets[-1]]]
    if last not in (_RET, _GOTO):
        raise InternalError(
            f"{function.place(count - 1)}: expected ret or goto at the end of the function, got "
            f"{last.name}"
        )


def _warn_unused(function: _OpenFunction) -> None:
    unused = (i for i in range(function.num_inputs) if i not in function.registers)
    first = [
        f"%{i} ({function.param_names[i]})" if function.param_names else f"%{i}"
        for i in islice(unused, 4)
    ]
    if first:
        names = ", ".join(first[:3]) + (", ..." if len(first) > 3 else "")
        # stacklevel 4 is the caller of _Scope.__exit__: the end of the `with` block.
        warnings.warn(
            f"function {function.name!r}: never uses input {names}", RelaxVMWarning, stacklevel=4
        )


def _name(what: str, name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected a name, got {describe(name)}")
    if not name:
        raise InternalError(f"{what}: expected a name, got an empty string")
    return name


def _value(what: str, value: SupportsIndex, least: int = VALUE_MIN) -> int:
    """Return `value` as an int after checking that it fits the 56 bits of a word."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{what}: expected an int, got {describe(value)}")
    number = operator.index(value)
    if not least <= number <= VALUE_MAX:
        raise InternalError(f"{what}: expected an int within {least} .. {VALUE_MAX}, got {number}")
    return number


def _constant(const: Any) -> Any:
    """Return a constant other than an array in the form that the pool keeps."""
    value = to_value(const)
    if value is None or isinstance(value, (bool, np.ndarray, np.dtype)):
        return value
    if isinstance(value, int):
        if not WORD_MIN <= value <= WORD_MAX:
            raise InternalError(f"constant: expected an int that fits 64 bits, got {value}")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _named_dtype(value) or str(value)
    if is_adt(value):
        return _constant_of_data(value)
    if isinstance(value, tuple) and all(type(dim) is int for dim in value):
        return Shape(value)
    raise TypeError(
        f"constant: expected an array, dtype, shape (tuple of ints), str, int, float, bool "
        f"or None, got {describe(const)}"
    )


def _named_dtype(value: Any) -> np.dtype[Any] | None:
    """The data type that a name stands for, if it says so by a `dtype`, as `numpy.dtype` takes it:
    TVM's data types are such names."""
    found = getattr(value, "dtype", None) if isinstance(value, str) else None
    return found if isinstance(found, np.dtype) else None


def _constant_of_data(value: Any) -> Any:
    """Return a value of a data type in the form that the pool keeps: no one can write to it."""
    from .flat_values import convert_leaves, is_leaf

    def sealed(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
            return leaf if is_sealed(leaf) else _sealed_copy(leaf)
        if not is_leaf(leaf):
            raise TypeError(
                f"constant: {value.constructor} contains {describe(leaf)}; expected arrays, "
                "shapes, numbers of 64 bits, strings, dtypes, None and tuples of them"
            )
        return leaf

    return convert_leaves(value, sealed)


def _sample_key(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return a key that differs for most arrays that differ: of a few parts of the memory."""
    data = array.reshape(-1).view(np.uint8)
    step = max(len(data) // _SAMPLES, 1)
    ends = data[:_SAMPLES].tobytes() + data[-_SAMPLES:].tobytes()
    middle = data[::step].tobytes()
    return "large", dtype_name(array.dtype), array.dtype.str, array.shape, ends, middle


def _sealed_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = np.array(array, copy=True, order="C")
    copy.flags.writeable = False
    return copy


def _join(parts: list[np.ndarray[Any, np.dtype[np.int64]]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
