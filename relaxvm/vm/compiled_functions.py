"""Functions that were compiled to Python source (the compiled mode), and how a VM runs them.

In the source, every function of the executable is a Python function of the VM and its parameters.
It calls a function of the VM by ``yield callee, *args``, which makes it a generator: the code that
runs it keeps the frames of such calls in a list, so that calls may be nested as deeply as in
bytecode.  A function that ends with a call of itself returns `Again` instead.

For the core, each of them is a bytecode function of two instructions, a call of a packed function
and a return: functions, closures and everything around a run are the same in both modes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import isgeneratorfunction
from types import CodeType, FunctionType, GeneratorType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._core import Closure, VMFunction, count_block, pause_conversion
from ..builtins.arguments import as_callable
from ..core._deadlines import check_time
from ..core._translate import QUICKENED
from ..core.conversion import Converter
from ..executable import FunctionInfo, VMExecutable, prim_funcs_of
from ..executable.debug_info import DebugInfo
from ..executable.formats.places import place_note
from ..isa import KIND_SHIFT, VM_REGISTER, ArgKind, FuncKind, Opcode
from ..limits import Limits
from ..messages import describe, readable
from ..registry import COMPILED_PREFIX
from .compiled_limits import Frames, counted, frame_bytes, is_limited

if TYPE_CHECKING:
    from .linking import Linked
    from .machine import VirtualMachine

__all__ = [
    "Again", "CompiledFunctions", "GeneratedCode", "Program", "Tensors", "with_entries"
]  # fmt: skip

_FILE: Final = "<relaxvm compiled functions>"
_NOTE_FRAMES: Final = 8
"""The number of frames described in notes at each end of a long stack."""
_MAX_NOTES: Final = 64
_MAX_TEXT: Final = 200
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


Tensors = bool | Sequence["Tensors"]
"""Whether a parameter is a tensor; of a tuple, whether its elements are."""


class Again(tuple[Any, ...]):
    """A result that requests to call the function again with these arguments."""

    __slots__ = ()


class GeneratedCode:
    """Functions of an executable as Python source.

    Attributes:
        text: the source of a module that defines them.
        functions: name of a function -> its name in the source.
        packed: name of a packed function that the source calls -> its name there.
        debug: locations of the lines of the source, by line number, or None.
        tensors: name of a function -> which of its parameters are tensors.
    """

    __slots__ = ("_code", "_counted", "debug", "functions", "packed", "tensors", "text")

    def __init__(
        self,
        text: str,
        functions: Mapping[str, str],
        packed: Mapping[str, str],
        debug: DebugInfo | None = None,
        tensors: Mapping[str, Sequence[Tensors]] = MappingProxyType({}),
    ) -> None:
        self.text = text
        self.functions = dict(functions)
        self.packed = dict(packed)
        self.debug = debug
        self.tensors = dict(tensors)
        self._code: CodeType | None = None
        self._counted: tuple[CodeType, str] | None = None

    @property
    def code(self) -> CodeType:
        """The source, compiled by Python."""
        if self._code is None:
            self._code = compile(self.text, _FILE, "exec")
        return self._code

    @property
    def counted(self) -> tuple[CodeType, str]:
        """The same for runs with limits, see `relaxvm.vm.compiled_limits`: the code, and the name
        in it of the function that counts."""
        if self._counted is None:
            self._counted = counted(self.text, self.packed, _FILE)
        return self._counted

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.text, self.functions, self.packed, self.debug, self.tensors)
        return GeneratedCode, state

    def __repr__(self) -> str:
        return f"<GeneratedCode of {', '.join(map(readable, self.functions))}>"


class CompiledFunctions(Mapping[str, Callable[..., Any]]):
    """The kernels of an executable in compiled mode: the functions of `code`, each under the name
    ``"__vmtir__" + name``, and other kernels."""

    __slots__ = ("_functions", "code", "kernels")

    def __init__(self, code: GeneratedCode, kernels: Mapping[str, Callable[..., Any]]) -> None:
        self.code = code
        self.kernels = kernels
        self._functions = {COMPILED_PREFIX + name: _Unbound(name) for name in code.functions}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._functions.get(name) or self.kernels[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._functions
        yield from self.kernels

    def __len__(self) -> int:
        return len(self._functions) + len(self.kernels)

    @property
    def prim_funcs(self) -> Mapping[str, str]:
        """The IR of the other kernels, by name."""
        return prim_funcs_of(self.kernels)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledFunctions, (self.code, self.kernels)

    def __repr__(self) -> str:
        return f"<CompiledFunctions: {self.code!r} and {self.kernels!r}>"


class _Unbound:
    """A compiled function that is not yet bound to a VM."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.name}: a compiled function runs in a VirtualMachine only")


def with_entries(executable: VMExecutable) -> VMExecutable:
    """Replace each compiled function of an executable by a bytecode function that calls the packed
    function with its code; return the executable itself if it has none.

    Packed functions that the code calls are added to the function table.
    """
    table = list(executable.functions)
    compiled = [i for i, f in enumerate(table) if f.kind == FuncKind.COMPILED]
    if not compiled:
        return executable
    words: list[int] = []
    offsets: list[int] = []
    for index in compiled:
        info, callee = table[index], len(table)
        table.append(FunctionInfo(FuncKind.PACKED, COMPILED_PREFIX + info.name))
        pc, count = len(executable) + len(offsets), info.num_args
        base = len(executable.instr_data)
        offsets.append(base + len(words))
        words += [Opcode.CALL, count, callee, count + 1, VM_REGISTER]
        words += [(ArgKind.REGISTER << KIND_SHIFT) + i for i in range(count)]
        offsets.append(base + len(words))
        words += [Opcode.RET, count]
        table[index] = FunctionInfo(
            FuncKind.BYTECODE, info.name, pc, pc + 2, count, count + 1, info.param_names
        )
    if isinstance(executable.kernels, CompiledFunctions):
        known = {info.name for info in table}
        packed = executable.kernels.code.packed
        table += [FunctionInfo(FuncKind.PACKED, name) for name in packed if name not in known]
    return executable.but(
        functions=table,
        instr_offset=np.concatenate([executable.instr_offset, np.array(offsets, np.int64)]),
        instr_data=np.concatenate([executable.instr_data, np.array(words, np.int64)]),
    )


class _Function:
    """A function of the source, bound to a VM."""

    __slots__ = ("code", "frame_bytes", "index", "is_generator", "name", "num_args", "run")

    def __init__(self, run: Callable[..., Any], info: FunctionInfo, index: int) -> None:
        self.run = run
        self.code: CodeType = run.__code__
        self.name = info.name
        self.index = index
        self.num_args = info.num_args
        self.is_generator = isgeneratorfunction(run)
        self.frame_bytes = frame_bytes(self.code)


_Frame = tuple[_Function, "GeneratorType[Any, Any, Any]"]
_Note = tuple[_Function, int, Mapping[str, Any]]
"""A frame to describe: function, line of the source, variables."""


class Program:
    """The functions of a `GeneratedCode`, bound to the constants and packed functions of a VM.

    Args:
        code: the functions.
        executable: with entries for them, see `with_entries`.
        linked: the callables of its function table.
        limits: of the VM.

    Attributes:
        callables: the same callables, but with the compiled functions bound to this program.
    """

    def __init__(
        self, code: GeneratedCode, executable: VMExecutable, linked: Linked, limits: Limits
    ) -> None:
        self._code = code
        self._limits = limits
        self._lines: list[str] = []
        self._packed = linked.callables
        # Some programs change tuples in place.
        self._convert = Converter("vm.builtin.tuple_reset_item" in code.packed, pause_conversion)
        names = self._namespace(executable, linked)
        if is_limited(limits):
            compiled, counter = code.counted
            names[counter] = count_block
        else:
            compiled = code.code
        exec(compiled, names)
        functions = [
            _Function(names[code.functions[info.name]], info, index)
            for index, info in enumerate(executable.functions)
            if info.name in code.functions
        ]
        self._by_index = {function.index: function for function in functions}
        self._by_run = {function.run: function for function in functions}
        by_name = {COMPILED_PREFIX + function.name: function for function in functions}
        self.callables = tuple(
            self._entry(by_name[info.name]) if isinstance(func, _Unbound) else func
            for info, func in zip(executable.functions, linked.callables, strict=True)
        )

    @classmethod
    def bound(
        cls, executable: VMExecutable, running: VMExecutable, linked: Linked, limits: Limits
    ) -> tuple[Callable[..., Any] | None, ...]:
        """Return the callables of a function table, with the compiled functions bound to a program.

        Args:
            executable: in compiled mode; without its code, the callables are those that are linked.
            running: the same `with_entries`.
            linked: the callables of its function table.
            limits: of the VM.
        """
        kernels = executable.kernels
        if not isinstance(kernels, CompiledFunctions):
            return linked.callables
        return cls(kernels.code, running, linked, limits).callables

    def _namespace(self, executable: VMExecutable, linked: Linked) -> dict[str, Any]:
        """Return the globals of the source."""
        packed = self._code.packed
        names: dict[str, Any] = {
            "c": executable.constants, "function": self._function_value, "Again": Again,
        }  # fmt: skip
        rows = zip(executable.functions, linked.callables, linked.quick, strict=True)
        for info, func, quick in rows:
            if func is not None and info.name in packed:
                # The results of builtins are run-time values already.
                if isinstance(quick, str):
                    func = func if quick in QUICKENED else _checked(func)
                else:
                    func = _converting(func, self._convert)
                names[packed[info.name]] = func
        return names

    def _entry(self, function: _Function) -> Callable[..., Any]:
        run = self._run

        def entry(vm: VirtualMachine, *args: Any) -> Any:
            return run(vm, function, list(args))

        return entry

    def _function_value(self, vm: VirtualMachine, index: int) -> Any:
        """Return a function of the table as a value."""
        func = self._packed[index]
        return vm._function(index) if func is None else func

    # Running

    def _run(self, vm: VirtualMachine, function: _Function, args: list[Any]) -> Any:
        """Call a function, run all calls that it makes, and return its result."""
        stack: list[_Frame] = []
        running: _Function | None = None
        frames = Frames(self._limits, args)
        try:
            while True:
                # A call of `function` with `args`.
                frames.call(function.name, len(stack), function.frame_bytes)
                running = function
                value = function.run(vm, *args)
                if function.is_generator:
                    stack.append((function, value))
                    value = None
                # Send its result to the waiting frame, which may request another call.
                while type(value) is not Again:
                    if not stack:
                        return value
                    running, frame = stack[-1]
                    try:
                        request = frame.send(value)
                    except StopIteration as done:
                        stack.pop()
                        frames.back(len(stack))
                        function, value = running, done.value
                        continue
                    running = None
                    if type(request) is int:
                        self._census(vm, frames, stack, request)
                        value = None
                        continue
                    callee, *args = request
                    target = self._target(vm, callee, args)
                    if target is not None:
                        function = target
                        break
                    value = self._convert(callee(*args))
                    check_time()
                else:
                    args = list(value)
        except BaseException as error:
            raised = vm._limit_of(error) or _without_wrapping(error)
            with contextlib.suppress(Exception):  # such as a limit of memory; `raised` matters more
                self._add_notes(raised, function, running, stack)
            if raised is error:
                raise
            raise raised from None
        finally:
            if self._convert.known:
                self._convert.known.clear()

    def _census(
        self, vm: VirtualMachine, frames: Frames, stack: Sequence[_Frame], ahead: int
    ) -> None:
        """Count objects, where the innermost frame is going to make `ahead` bytes of them."""
        nbytes = sum(function.frame_bytes for function, _ in stack)
        frames.census(vm, [frame for _, frame in stack], nbytes + ahead)

    def _target(self, vm: VirtualMachine, callee: Any, args: list[Any]) -> _Function | None:
        """Return the function of this program that a call invokes, None if it is another function.
        The captured values of closures are added to the arguments.

        Raises:
            TypeError: `callee` cannot be called.
            ArityError: the number of arguments is wrong.
        """
        given = len(args)
        if type(callee) is FunctionType:
            function = self._by_run.get(callee)
        else:
            function, captured = self._of_closure(vm, callee)
            if function is not None:
                args += captured
        if function is None:
            as_callable(callee, "invoke_closure")
        elif len(args) != function.num_args:
            vm._raise_arity(function.index, given, len(args) - given)
        return function

    def _of_closure(self, vm: VirtualMachine, callee: Any) -> tuple[_Function | None, list[Any]]:
        captured: list[Any] = []
        while type(callee) is Closure:
            captured += callee.captured
            callee = callee.func
        if type(callee) is VMFunction and callee.machine is vm:
            return self._by_index.get(callee.index), captured
        return None, captured

    # Notes on errors

    def _add_notes(
        self,
        error: BaseException,
        function: _Function,
        running: _Function | None,
        stack: Sequence[_Frame],
    ) -> None:
        """Add a note per frame to an exception: its position in the program.  `function` was to be
        called, or was the last that ran."""
        if isinstance(error, (MemoryError, RecursionError)):
            return  # it has the maximal number of notes
        frames = list(_frames(error, running, stack))
        if not frames:
            error.add_note(f"in {readable(function.name)}, at its beginning")
        hidden = len(frames) - 2 * _NOTE_FRAMES
        for i, frame in enumerate(frames):
            if len(getattr(error, "__notes__", ())) >= _MAX_NOTES:
                return
            if hidden <= 0 or not _NOTE_FRAMES <= i < _NOTE_FRAMES + hidden:
                error.add_note(self._describe(*frame))
            elif i == _NOTE_FRAMES:
                error.add_note(f"... {hidden:,} more frames ...")

    def _describe(self, function: _Function, line: int, variables: Mapping[str, Any]) -> str:
        if not self._lines:
            self._lines = self._code.text.splitlines()
        text = self._lines[line - 1].strip()
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]}..."
        note = f"in {readable(function.name)}, line {line} of its Python: {text}"
        read = text.partition(" = ")[2] or text
        shown = [
            f"{name}: {describe(variables[name])}"
            for name in dict.fromkeys(_NAME.findall(read))
            if name in variables and name != "vm"
        ]
        if shown:
            note += f"\n  with {', '.join(shown)}"
        return note + place_note(self._code.debug, line)


def _frames(
    error: BaseException, running: _Function | None, stack: Sequence[_Frame]
) -> Iterator[_Note]:
    """Yield the frames of a failed run, innermost first."""
    if running is not None:
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code is running.code:
                yield running, traceback.tb_lineno, traceback.tb_frame.f_locals
                break
            traceback = traceback.tb_next
    for function, generator in reversed(stack):
        frame = generator.gi_frame
        if frame is not None:  # None for the frame that raised
            yield function, frame.f_lineno, frame.f_locals


def _without_wrapping(error: BaseException) -> BaseException:
    """Return the original exception: Python converts a StopIteration within a generator to a
    RuntimeError."""
    cause = error.__cause__
    if type(error) is RuntimeError and isinstance(cause, StopIteration):
        return cause
    return error


def _converting(func: Callable[..., Any], convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """Wrap a packed function so that its result is converted to a run-time value."""

    def call(*args: Any) -> Any:
        value = convert(func(*args))
        check_time()
        return value

    return call


def _checked(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a builtin so that a run may end after it."""

    def call(*args: Any) -> Any:
        value = func(*args)
        check_time()
        return value

    return call
