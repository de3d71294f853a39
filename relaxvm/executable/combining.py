"""`link`: several programs in one executable, under prefixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..isa import Arg, ArgKind, FieldKind, FuncKind, Instruction, Opcode, encode
from ..messages import describe, readable
from .debug_info import DebugInfo, Location, Span
from .executable import FunctionInfo, StoredKernels, VMExecutable, constant_key
from .linked_kernels import LinkedKernels
from .model_names import FunctionNames, ModelNames
from .prim_funcs import SavedPrimFuncs

__all__ = ["STATE_NAMES", "link"]

STATE_NAMES: Final = {
    f"relaxvm.builtin.{name}": 1
    for name in ("cache_extend", "cache_open", "state_open", "state_read", "state_write")
}
"""The builtins that take the name of what a machine keeps, and at which argument."""


def link(executables: Mapping[str, VMExecutable]) -> VMExecutable:
    """Put several programs into one executable.

    The function ``main`` of the program with the prefix ``"encoder"`` becomes ``encoder.main``;
    those of a program with the prefix ``""`` keep their names.  Constants that are equal are there
    once, such as weights that two of the programs have.  What the programs keep in ``vm.state``
    gets the prefix, too: they do not share it.  Functions that they call by name are the same for
    all; PrimFuncs belong to their program, and are compiled anew when a machine is made.

    Args:
        executables: the programs by prefix.

    Raises:
        TypeError: a value is no executable, or a prefix no text.
        ValueError: there are none; two functions, or what two programs keep, would have one name;
            two programs have data types of one name that differ; or a program has native code,
            which is compiled after linking.
    """
    if not executables:
        raise ValueError("link: expected executables, got none")
    for prefix, executable in executables.items():
        if not isinstance(prefix, str):
            raise TypeError(f"link: expected a prefix as text, got {describe(prefix)}")
        if not isinstance(executable, VMExecutable):
            raise TypeError(f"link: {readable(prefix)}: expected a VMExecutable, got "
                            f"{describe(executable)}")  # fmt: skip
        _check_native(prefix, executable)
    return _Linker().of(executables)


def _check_native(prefix: str, executable: VMExecutable) -> None:
    subject = f"link: {readable(prefix)}"
    if isinstance(executable.kernels, StoredKernels):
        raise ValueError(f"{subject}: the file has native code of kernels; load it with "
                         f"native=False, or link before export_library")  # fmt: skip
    compiled = [info.name for info in executable if info.kind == FuncKind.COMPILED]
    if compiled:
        raise ValueError(f"{subject}: {readable(compiled[0])} is native code, which only its own "
                         f"file can run; build it with exec_mode='bytecode'")  # fmt: skip


class _Linker:
    """What the executable is made of, so far."""

    def __init__(self) -> None:
        self.functions: list[FunctionInfo] = []
        self.by_name: dict[str, int] = {}
        self.constants: list[Any] = []
        self.by_content: dict[Any, int] = {}
        self.scopes: dict[int, str] = {}
        self.offsets: list[int] = []
        self.words: list[int] = []
        self.locations: list[Location] = []
        self.lines: dict[str, dict[int, str]] = {}
        self.texts: dict[str, str] = {}
        self.external: dict[str, Callable[..., Any]] = {}
        self.by_caller: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.limits: list[Any] = []

    def of(self, executables: Mapping[str, VMExecutable]) -> VMExecutable:
        own = self._own_names(executables)
        for prefix, executable in executables.items():
            for name in _found_by_caller(executable):
                self.by_caller.setdefault(name, prefix)
        for prefix, executable in executables.items():
            self._add(prefix, executable, own[prefix])
        debug = DebugInfo.of(self.locations, self.lines)
        return VMExecutable(
            self.functions, self.constants, self.offsets, self.words, self.scopes, debug,
            self._kernels(), _sections(executables),
        )  # fmt: skip

    def _own_names(self, executables: Mapping[str, VMExecutable]) -> dict[str, dict[str, str]]:
        """The new names of the functions that each program defines."""
        taken: dict[str, str] = {}
        found: dict[str, dict[str, str]] = {}
        for prefix, executable in executables.items():
            found[prefix] = {}
            for info in executable:
                if info.kind == FuncKind.PACKED:
                    continue
                name = _prefixed(prefix, info.name)
                if name in taken:
                    raise ValueError(f"link: {readable(prefix)} and {readable(taken[name])} both "
                                     f"have a function {readable(name)}")  # fmt: skip
                taken[name] = prefix
                found[prefix][info.name] = name
        return found

    def _add(self, prefix: str, executable: VMExecutable, own: Mapping[str, str]) -> None:
        first_pc = len(self.offsets)
        kernels = self._add_kernels(prefix, executable)
        functions = []
        for info in executable:
            name = own.get(info.name) or kernels.get(info.name, info.name)
            functions.append(self._add_function(prefix, info, name, first_pc))
        constants = [
            self._add_constant(value, executable.memory_scopes.get(index))
            for index, value in enumerate(executable.constants)
        ]
        for _, instruction in executable.instructions():
            moved = self._moved(instruction, functions, constants)
            self.offsets.append(len(self.words))
            self.words += encode(self._with_own_state(prefix, moved))
        self._add_debug(prefix, executable, first_pc)

    def _add_function(self, prefix: str, info: FunctionInfo, name: str, first_pc: int) -> int:
        known = self.by_name.get(name)
        if known is not None and {self.functions[known].kind, info.kind} != {FuncKind.PACKED}:
            raise ValueError(f"link: {readable(prefix)}: {readable(name)} would be a function of "
                             f"the programs and one that they call by name; choose another "
                             f"prefix")  # fmt: skip
        if info.kind == FuncKind.PACKED:
            if known is not None:
                return known
            made = replace(info, name=name)
        else:
            made = replace(
                info, name=name, start_instr=info.start_instr + first_pc,
                end_instr=info.end_instr + first_pc,
            )  # fmt: skip
        self.by_name[name] = len(self.functions)
        self.functions.append(made)
        return len(self.functions) - 1

    def _add_constant(self, value: Any, scope: str | None = None) -> int:
        key = scope, constant_key(value)
        found = self.by_content.get(key)
        if found is None:
            found = self.by_content[key] = len(self.constants)
            self.constants.append(value)
            if scope is not None:
                self.scopes[found] = scope
        return found

    def _add_kernels(self, prefix: str, executable: VMExecutable) -> dict[str, str]:
        """Take the PrimFuncs of a program; return new names of those whose names others have."""
        found = {}
        texts = executable.prim_funcs
        for name, text in texts.items():
            new = name
            if self.texts.get(name, text) != text or name in self.by_caller | self.external:
                new = _prefixed(prefix, name)
                if new in self.texts or new in self.by_caller | self.external:
                    raise ValueError(f"link: {readable(prefix)}: there is a PrimFunc "
                                     f"{readable(new)} already")  # fmt: skip
            self.texts[new] = text
            found[name] = new
        packed = {info.name for info in executable if info.kind == FuncKind.PACKED}
        for name in packed - texts.keys():
            function = executable.kernels.get(name)
            if function is None:
                continue
            if self.external.setdefault(name, function) is not function or name in self.texts:
                raise ValueError(f"link: {readable(prefix)}: the function {readable(name)} was "
                                 f"given to two programs, and differs")  # fmt: skip
            if name in self.by_caller:
                raise ValueError(f"link: the function {readable(name)} was given to "
                                 f"{readable(prefix)}, and {readable(self.by_caller[name])} calls "
                                 f"another of this name")  # fmt: skip
        limits = getattr(executable.kernels, "limits", None)
        if limits is not None and limits not in self.limits:
            self.limits.append(limits)
        return found

    def _kernels(self) -> Mapping[str, Callable[..., Any]]:
        if len(self.limits) > 1:
            raise ValueError("link: the programs with PrimFuncs were read under different limits; "
                             "read all of them under the same")  # fmt: skip
        saved: Mapping[str, Callable[..., Any]] = {}
        if self.texts:
            saved = SavedPrimFuncs(self.texts, limits=self.limits[0] if self.limits else None)
        return LinkedKernels(saved, self.external) if self.external else saved

    def _moved(
        self, instruction: Instruction, functions: Sequence[int], constants: Sequence[int]
    ) -> Instruction:
        """An instruction with the numbers that functions and constants have here."""
        fields = [
            functions[value] if field.kind is FieldKind.FUNC else value
            for field, value in zip(instruction.op.fields, instruction.fields, strict=True)
        ]
        numbers = {ArgKind.FUNCTION: functions, ArgKind.CONSTANT: constants}
        args = [
            Arg(arg.kind, numbers[arg.kind][arg.value]) if arg.kind in numbers else arg
            for arg in instruction.args
        ]
        return Instruction(instruction.op, tuple(fields), tuple(args))

    def _with_own_state(self, prefix: str, instruction: Instruction) -> Instruction:
        """An instruction whose name for what a machine keeps has the prefix, if it has one."""
        if instruction.op.code != Opcode.CALL:
            return instruction
        name = self.functions[instruction["func_idx"]].name
        place = STATE_NAMES.get(name)
        if place is None or place >= len(instruction.args):
            return instruction
        arg = instruction.args[place]
        state = self.constants[arg.value] if arg.kind == ArgKind.CONSTANT else None
        if not isinstance(state, str):
            raise ValueError(f"link: {readable(prefix)}: {name}: expected a name as a constant, so "
                             f"that it can get the prefix")  # fmt: skip
        new = _prefixed(prefix, state)
        owner = self.states.setdefault(new, prefix)
        if owner != prefix:
            raise ValueError(f"link: {readable(prefix)} and {readable(owner)} both keep "
                             f"{readable(new)}; choose another prefix")  # fmt: skip
        args = list(instruction.args)
        args[place] = Arg(ArgKind.CONSTANT, self._add_constant(new))
        return replace(instruction, args=tuple(args))

    def _add_debug(self, prefix: str, executable: VMExecutable, first_pc: int) -> None:
        self.locations.append(Location(first_pc))
        debug = executable.debug
        if debug is None:
            return
        files = self._add_lines(prefix, debug)
        for location in debug.within(0, len(executable)):
            self.locations.append(_in_files(location, files, first_pc))

    def _add_lines(self, prefix: str, debug: DebugInfo) -> dict[str, str]:
        """Take lines of source; return new names of files of which others have another text."""
        lines: dict[str, dict[int, str]] = {}
        for (file, line), text in zip(debug.line_numbers.tolist(), debug.line_texts, strict=True):
            lines.setdefault(debug.files[file], {})[line] = text
        renamed = {}
        for file in debug.files:
            known, own = self.lines.get(file, {}), lines.get(file, {})
            is_other = any(known.get(line, text) != text for line, text in own.items())
            new = f"{prefix}:{file}" if is_other else file
            self.lines.setdefault(new, {}).update(own)
            renamed[file] = new
        return renamed


def _found_by_caller(executable: VMExecutable) -> set[str]:
    """The packed functions that do not come with a program: those of the library, and what the
    caller of a machine gives."""
    packed = {info.name for info in executable if info.kind == FuncKind.PACKED}
    return packed - executable.prim_funcs.keys() - set(executable.kernels)


def _prefixed(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _in_files(location: Location, files: Mapping[str, str], first_pc: int) -> Location:
    """A location with the names that files have here."""

    def moved(span: Span | None) -> Span | None:
        if span is None:
            return None
        return Span(files[span.file], span.line, span.column, span.end_line, span.end_column)

    parts = tuple([(moved(span), variable) for span, variable in location.parts])
    return Location(location.pc + first_pc, moved(location.span), location.variable, parts)


def _sections(executables: Mapping[str, VMExecutable]) -> dict[str, Any]:
    """The sections: names of inputs and outputs, and data types."""
    names: list[FunctionNames] = []
    types: dict[str, Any] = {}
    signatures: dict[str, Any] = {}
    for prefix, executable in executables.items():
        model: ModelNames | None = executable.sections.get("names")
        for each in () if model is None else model.functions:
            names.append(each._replace(function=_prefixed(prefix, each.function)))
        for name, data in executable.data_types.items():
            if types.setdefault(name, data) != data:
                raise ValueError(f"link: {readable(prefix)}: the data type {readable(name)} "
                                 f"differs from another one of this name")  # fmt: skip
        for name, ty in executable.signatures.items():
            signatures[_prefixed(prefix, name)] = ty
    found: dict[str, Any] = {}
    if names:
        found["names"] = ModelNames.of(names)
    if types or signatures:
        from ..adt import DataTypes  # here, since most programs have no data types

        found["data_types"] = DataTypes(types.values(), signatures)
    if all(each.exec_mode == "compiled" for each in executables.values()):
        found["exec_mode"] = "compiled"
    return found
