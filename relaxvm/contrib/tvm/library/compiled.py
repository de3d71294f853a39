"""Functions of a program that TVM has compiled to machine code, in a VM of relaxvm.

With ``exec_mode="compiled"`` TVM makes a function ``__vmtir__NAME`` of a Relax function.  It calls
the kernels of its library directly, and other functions by their names.  Each VM finds these among
those that its program may call; one that is missing is noticed when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from ...._core import VMFunction
from ....builtins import is_reference
from ....core._native import NativeFunction
from ....core._vm_tir import FORMS, FunctionByName, VMTIRCode, VMTIRProgram, run_vm_tir
from ....core.ffi import as_packed
from ....errors import LinkError
from ....isa import FuncKind
from ....messages import readable
from . import packed
from .image import VM_TIR

if TYPE_CHECKING:
    from ....vm.linking import Scope
    from ....vm.machine import VirtualMachine

__all__ = ["CompiledFunction", "Programs", "find"]

_INVOKE: Final = "vm.builtin.invoke_closure"


def find(name: str) -> Callable[..., Any] | None:
    """Return a function that the machine code of a program, or a kernel of its library, calls."""
    function = packed.find(name)
    shipped = function is not None and function is packed.PACKED.get(name)
    return function if shipped else FunctionByName(name, packed.find)


class _Packed(dict[str, Callable[..., Any]]):
    """The functions that the program of a VM calls, by name."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, name: str) -> Callable[..., Any]:
        record = self._scope.lookup(name)
        if record is None:
            raise LinkError(
                f"machine code calls {readable(name)!r}: {self._scope.why_missing(name)}; register "
                f"it with relaxvm.register_func(name, func), or pass it to the VM: "
                f"VirtualMachine(..., functions={{name: func}})", (name,)
            )  # fmt: skip
        found = self[name] = as_packed(record.func, name)
        return found


class _Program:
    """A program of a library in one VM."""

    def __init__(self, vm: VirtualMachine, natives: Mapping[str, NativeFunction]) -> None:
        executable = vm.executable
        self._functions = executable.functions
        self._packed = _Packed(vm._scope)
        codes = {
            i: VMTIRCode(natives[VM_TIR + info.name], info)
            for i, info in enumerate(executable.functions)
            if info.kind is FuncKind.COMPILED
        }
        self.codes: Final = {executable.functions[i].name: code for i, code in codes.items()}
        ours = {
            record.name: record.func
            for record in map(vm._scope.lookup, (_INVOKE, *FORMS))
            if record is not None and is_reference(record)
        }
        self.inner: Final = VMTIRProgram(
            executable.constants,
            max(native.alignment for native in natives.values()),
            len(executable.functions),
            codes,
            self._packed,
            ours.get(_INVOKE),
            VMFunction,
            vm.limits.call_depth,
            vm.allocators,
            ours,
        )

    def function(self, vm: VirtualMachine, index: int) -> Any:
        """Return a function of the table as a value."""
        info = self._functions[index]
        if info.kind is FuncKind.PACKED:
            return self._packed[info.name]
        return vm._function(index)


class Programs:
    """The programs with the functions of a library, in the VMs that run them.

    Args:
        natives: the functions in machine code, by the names of their symbols.
    """

    def __init__(self, natives: Mapping[str, NativeFunction]) -> None:
        self._natives = natives
        self._by_vm: WeakKeyDictionary[VirtualMachine, _Program] = WeakKeyDictionary()

        self._last: tuple[Callable[[], VirtualMachine | None], _Program | None] = _nothing, None

    def of(self, vm: VirtualMachine) -> _Program:
        machine, found = self._last
        if found is None or machine() is not vm:
            found = self._by_vm.get(vm)
            if found is None:
                found = self._by_vm[vm] = _Program(vm, self._natives)
            self._last = ref(vm), found
        return found


def _nothing() -> None:
    """A reference to no machine."""


class CompiledFunction:
    """A function of a program in machine code.  VMs call it with themselves and its arguments."""

    __slots__ = ("_name", "_programs")

    def __init__(self, name: str, programs: Programs) -> None:
        self._name = name
        self._programs = programs

    def __call__(self, vm: VirtualMachine, *args: Any) -> Any:
        program = self._programs.of(vm)
        code = program.codes[self._name]
        return run_vm_tir(program.inner, code, vm, program.function, args)

    def __repr__(self) -> str:
        return f"<CompiledFunction {readable(self._name)}>"
