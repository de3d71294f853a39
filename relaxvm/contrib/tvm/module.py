"""`vm.module` and `executable.mod`: TVM's module interface, in which functions are found by name.

Programs written for TVM call ``vm.module["get_output"]("main", 0)`` or look up a kernel in
``vm.module.imports``; new programs should use the methods of `VirtualMachine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...builtins.registration import PREFIX
from ...errors import InternalError, did_you_mean
from ...messages import describe
from ...values import Device, Shape
from ...vm.timing import Evaluator

if TYPE_CHECKING:
    from ..._core import Closure, VMFunction
    from ...executable import VMExecutable
    from ...vm.machine import VirtualMachine

__all__ = ["INTERFACE", "ExecutableModule", "KernelModule", "LibraryModule", "VMModule", "is_tuple"]


class _Module:
    """The base class of modules: functions by name."""

    kind: ClassVar[str]

    def _find(self, name: str) -> Callable[..., Any] | None:
        raise NotImplementedError

    def _names(self) -> list[str]:
        raise NotImplementedError

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function with a name, like `get_function`."""
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """Return the function with a name; with `query_imports` also search imported modules.

        Raises:
            AttributeError: there is no such function.
        """
        found = self._find(name)
        if found is None and query_imports:
            found = next(filter(None, (module._find(name) for module in self.imports)), None)
        if found is None:
            raise AttributeError(f"module {self.kind!r} has no function {name!r}"
                                 f"{did_you_mean(name, self._names())}")
        return found

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Return whether `get_function` finds the function."""
        modules = [self, *self.imports] if query_imports else [self]
        return any(module._find(name) is not None for module in modules)

    @property
    def imports(self) -> tuple[_Module, ...]:
        return ()

    def __call__(self, *args: Any) -> Any:
        """Call the function "main".

        Raises:
            AttributeError: there is none.
        """
        return self["main"](*args)

    def time_evaluator(
        self,
        func_name: str,
        dev: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Evaluator:
        """See `VirtualMachine.time_evaluator`."""
        func = self._find(func_name)
        if func is None:
            raise InternalError(f"time_evaluator: unknown function {func_name!r}"
                                f"{did_you_mean(func_name, self._names())}")
        return Evaluator(
            func,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            preprocess=self._preprocessing(f_preproc) if f_preproc else None,
        )

    def _preprocessing(self, name: str) -> Callable[..., Any] | None:
        """The function with a name that `time_evaluator` calls before each repeat."""
        return self._find(name)

    def __repr__(self) -> str:
        return f"<Module {self.kind}: {len(self._names())} functions>"


class KernelModule(_Module):
    """The packed functions that a VM is linked to, without the builtins."""

    kind = "relaxvm.Kernels"

    def __init__(self, vm: VirtualMachine) -> None:
        self._vm = vm

    def _find(self, name: str) -> Callable[..., Any] | None:
        return None if name.startswith(PREFIX) else self._vm._packed.get(name)

    def _names(self) -> list[str]:
        return [name for name in self._vm._packed if not name.startswith(PREFIX)]


class LibraryModule(_Module):
    """The kernels that were compiled with an executable."""

    kind = "relaxvm.Kernels"

    def __init__(self, kernels: Mapping[str, Callable[..., Any]]) -> None:
        self._kernels = kernels

    def _find(self, name: str) -> Callable[..., Any] | None:
        return self._kernels.get(name)

    def _names(self) -> list[str]:
        return list(self._kernels)


class ExecutableModule(_Module):
    """An executable with TVM's module interface; `VirtualMachine` accepts it as an executable."""

    kind = "relax.VMExecutable"

    def __init__(self, executable: VMExecutable) -> None:
        self.executable = executable

    def _find(self, name: str) -> Callable[..., Any] | None:
        if name in ("vm_load_executable", "vm_profiler_load_executable"):
            return self._vm
        if name in _OF_EXECUTABLE:
            method: Callable[..., Any] = getattr(self.executable, name)
            return method
        return self.executable.kernels.get(name)

    def _names(self) -> list[str]:
        own = [*_OF_EXECUTABLE, "vm_load_executable", "vm_profiler_load_executable"]
        return [*own, *self.executable.kernels]

    def __call__(self, *args: Any) -> Any:
        """Call the kernel "main", or the only one that was compiled.

        Raises:
            AttributeError: there are several, or none.
        """
        kernels = list(self.executable.kernels)
        return self[kernels[0] if len(kernels) == 1 else "main"](*args)

    def _vm(self) -> VMModule:
        """Return the module of a VM on the CPU."""
        from ...vm.machine import VirtualMachine

        return VirtualMachine(self.executable).module

    @property
    def imports(self) -> tuple[_Module, ...]:
        """One module with the kernels that were compiled with the executable, if there are any."""
        kernels = self.executable.kernels
        return (LibraryModule(kernels),) if kernels else ()

    def export_library(self, path: str | PathLike[str], **options: Any) -> None:
        """See `VMExecutable.export_library`."""
        self.executable.export_library(path, **options)


_OF_EXECUTABLE: Final = (
    "as_text",
    "as_python",
    "stats",
    "has_function",
    "get_function_arity",
    "get_function_param_name",
)
"""Methods of an executable that its module also has."""


class VMModule(_Module):
    """A VM with TVM's module interface: its functions, saved functions and the ones below."""

    kind = "relax.VirtualMachine"

    def __init__(self, vm: VirtualMachine) -> None:
        self._vm = vm

    def _find(self, name: str) -> Callable[..., Any] | None:
        if name in INTERFACE:
            method: Callable[..., Any] = getattr(self, f"_{name}")
            return method
        if name in self._vm:
            return self._vm[name]
        return None

    def _names(self) -> list[str]:
        return [*INTERFACE, *self._vm.functions]

    @property
    def imports(self) -> tuple[_Module, ...]:
        """One module, with the packed functions that the VM is linked to."""
        return (KernelModule(self._vm),)

    def _preprocessing(self, name: str) -> Callable[..., Any] | None:
        found: Callable[..., Any] | None = self._vm._scope.get(name)
        return found

    # The interface.  Names and arguments are TVM's.

    def _get_function_arity(self, func_name: str) -> int:
        return self._vm._info(func_name).num_args

    def _get_function_param_name(self, func_name: str, index: int) -> str:
        names = self._vm._info(func_name).param_names
        if not 0 <= index < len(names):
            raise ValueError(f"{func_name}: expected the index of a parameter below {len(names)}, "
                             f"got {index}")
        return names[index]

    def _set_input(self, func_name: str, *args: Any) -> None:
        self._vm.set_input(func_name, *args)

    def _invoke_stateful(self, func_name: str) -> None:
        self._vm.invoke_stateful(func_name)

    def _get_output_arity(self, func_name: str, *indices: int) -> int:
        """Return the number of items of an output, -1 if it is not a tuple."""
        value = self._output(func_name, indices)
        return len(value) if is_tuple(value) else -1

    def _get_output(self, func_name: str, *indices: int) -> Any:
        """Return an output that is not a tuple, or the item selected by the indices."""
        value = self._output(func_name, indices)
        if is_tuple(value):
            raise ValueError(f"get_output: {func_name} returned a {describe(value)}, expected one "
                             f"more index")
        return value

    def _output(self, func_name: str, indices: tuple[int, ...]) -> Any:
        value = self._vm.get_outputs(func_name)
        for index in indices:
            if not is_tuple(value):
                raise IndexError(f"output of {func_name}: index {index} into {describe(value)}")
            if not 0 <= index < len(value):
                raise IndexError(f"output of {func_name}: expected an index below {len(value)}, "
                                 f"got {index}")
            value = value[index]
        return value

    def _save_function(
        self, func_name: str, saved_name: str, include_return: int, *args: Any
    ) -> None:
        self._vm.save_function(func_name, saved_name, *args, include_return=bool(include_return))

    def _invoke_closure(self, closure: Closure | VMFunction, *args: Any) -> Any:
        return self._vm.invoke_closure(closure, *args)

    def _vm_initialization(self, *args: int) -> None:
        """Let the module run its program on other devices: the type, the index and the kind of
        allocator of each.

        What was set before (inputs, saved functions, an instrument) is forgotten, as in TVM.

        Raises:
            ValueError: not three numbers for each device, or an unknown kind of allocator.
        """
        from ...vm.machine import VirtualMachine

        if not args or len(args) % 3:
            raise ValueError(f"vm_initialization: expected three numbers for each device (its "
                             f"type, its index, the kind of its allocator), got {len(args)}")
        devices = [Device(kind, index) for kind, index in zip(args[::3], args[1::3], strict=True)]
        self._vm = VirtualMachine(
            self._vm.executable,
            devices,
            dict(zip(devices, args[2::3], strict=True)),
            limits=self._vm.limits,
            functions=self._vm._scope.given,
        )

    def _set_instrument(self, instrument: Any) -> None:
        self._vm.set_instrument(instrument)


INTERFACE: Final = frozenset(
    {
        "get_function_arity",
        "get_function_param_name",
        "get_output",
        "get_output_arity",
        "invoke_closure",
        "invoke_stateful",
        "save_function",
        "set_input",
        "set_instrument",
        "vm_initialization",
    }
)
"""Names of the functions that are methods of `VMModule`; the methods have an underscore."""


def is_tuple(value: object) -> bool:
    """Whether it is a tuple, not a shape."""
    return isinstance(value, tuple) and not isinstance(value, Shape)
