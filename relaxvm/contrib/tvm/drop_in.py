"""Run programs that TVM has compiled or loaded in this process.

`from_tvm` creates a VM of relaxvm that runs TVM's kernels::

    vm = relaxvm.from_tvm(tvm.compile(module, "llvm"))
    vm.main(x)                            # arrays in, arrays out

`VirtualMachine` has the interface of ``tvm.relax.VirtualMachine`` and replaces it::

    vm = relaxvm.contrib.tvm.VirtualMachine(executable, tvm.cpu())
    vm["main"](x)                         # tensors of TVM in, tensors of TVM out
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..._core import Closure, VMFunction
from ...core import ffi
from ...core.operations import Optimize
from ...errors import InternalError, LinkError, MissingExtraError
from ...executable import VMExecutable
from ...executable.formats import binary
from ...executable.loading import load_library
from ...isa import FuncKind
from ...limits import Limits
from ...messages import describe
from ...native.functions import native_function
from ...native.stored import with_aligned_constants
from ...nested import convert_nested
from ...registry import GLOBAL, Registry
from ...values import Device
from ...vm.allocators import NAIVE_ALLOCATOR, POOLED_ALLOCATOR, MemoryConfig
from ...vm.calling import Parameters
from ...vm.linking import Functions
from ...vm.machine import VirtualMachine as _VirtualMachine
from .functions import ffi_function, object_of, values_of
from .ir_modules import is_module_of_tvm, module_of_tvm
from .library.image import VM_TIR
from .module import INTERFACE, ExecutableModule, is_tuple
from .vm_members import executable_of

__all__ = ["VMModule", "VirtualMachine", "from_tvm"]

_KIND: Final = "relax.VMExecutable"
_VM_KIND: Final = "relax.VirtualMachine"
_COMPILED: Final = frozenset({"library", "llvm"})
"""Kinds of modules whose functions are machine code that TVM has generated."""
_OF_DEVICES: Final = frozenset(
    {"cuda", "hexagon", "hip", "metal", "opencl", "rocm", "sdaccel", "vulkan", "webgpu"}
)
"""Kinds of modules with code for other devices."""


def _tvm() -> Any:
    try:
        import tvm
    except ImportError:
        raise MissingExtraError(
            "relaxvm.contrib.tvm: needs the package apache-tvm; install relaxvm[tvm]"
        ) from None
    return tvm


def from_tvm(
    executable: Any,
    device: Device | Sequence[Device] | None = None,
    memory_cfg: MemoryConfig = None,
    *,
    limits: Limits | None = None,
    functions: Functions = None,
    optimize: Optimize = True,
) -> _VirtualMachine:
    """Create a VM that runs a program compiled by TVM, with TVM's kernels.

    Its functions take and return arrays; they also accept tensors of TVM.  Packed functions are
    looked up in `functions`, among the compiled kernels, in relaxvm's registry (its builtins
    replace TVM's) and in TVM's registry, in this order.

    Args:
        executable: the result of ``tvm.compile`` or ``relax.build``, a module from
            ``tvm.runtime.load_module``, a ``tvm.relax.VirtualMachine`` of it, which remains usable,
            or the name of a library that TVM has exported; or a ``tvm.IRModule``, which relaxvm
            compiles itself, with its own kernels.
        device, memory_cfg, limits, functions, optimize: as in `VirtualMachine`.  TVM's registry
            counts as a part of the global one.

    Raises:
        TypeError: `executable` is something else.
        OSError, FormatError: a library cannot be read; see `relaxvm.load_library`.
        DiagnosticError: a ``tvm.IRModule`` has something that relaxvm's script does not have.
        LinkError: the program has code for other devices, or packed functions are missing; the
            message names them.
        ValueError: `executable` is a text, not the name of a file.
        VerifyError, LimitError, ValueError: as `VirtualMachine`.
    """
    return _VirtualMachine(
        program_of(executable, limits=limits, functions=functions),
        device,
        memory_cfg,
        limits=limits,
        functions=functions,
        optimize=optimize,
    )


def program_of(
    executable: Any, *, limits: Limits | None = None, functions: Functions = None
) -> VMExecutable:
    """Return the program of TVM that `from_tvm` runs, with its kernels.

    Arguments and errors are those of `from_tvm`.
    """
    if isinstance(executable, str) and "\n" in executable:
        raise ValueError(
            "from_tvm: expected the name of a library, got a text of several lines; a program in "
            "TVM's script is read by relaxvm.script.from_source, and then built"
        )
    if isinstance(executable, (str, os.PathLike)):
        return load_library(executable, limits=limits)
    if is_module_of_tvm(executable):
        from ...compiler.build import build  # here, since most programs compile nothing

        return build(module_of_tvm(executable, limits), limits=limits)
    module = _module_of(executable)
    program = _bytecode_of(module, limits)
    return program.with_kernels(_Kernels(module).of(program, _permitted(functions)))


def _permitted(functions: Functions) -> Callable[[str], bool]:
    """Return a predicate: which names of the global registry `functions` permits."""
    if functions is None:
        return lambda name: True
    if isinstance(functions, (Mapping, Registry)):
        return lambda name: False
    return frozenset(functions).__contains__


_OURS: Final = (VMExecutable, ExecutableModule, _VirtualMachine)


def _module_of(executable: Any) -> Any:
    """Return the module with the executable, and with kernels that can be called."""
    expected = "from_tvm: expected a result of tvm.compile, or a module that TVM has loaded"
    if type(executable) is VirtualMachine:
        return executable.executable
    if isinstance(executable, _OURS):
        raise TypeError(f"{expected}; got {describe(executable)} of relaxvm, which has no need "
                        f"of it")
    module = executable
    if callable(getattr(executable, "jit", None)):
        _refuse_devices(_tree((executable.mod,)))  # TVM can only load them if there is a driver
        module = executable.jit()
    if not hasattr(module, "kind"):
        module = getattr(executable, "module", None)
    kind = getattr(module, "kind", None)
    if kind == _KIND:
        return module
    if kind == _VM_KIND and not isinstance(module, VMModule):
        found = executable_of(module)
        if found is not None:
            return found
        raise TypeError(f"{expected}; got a tvm.relax.VirtualMachine, whose executable cannot be "
                        f"found here: pass the executable that it was made of")
    got = describe(executable) if kind is None else f"a module of kind {kind!r}"
    raise TypeError(f"{expected}, got {got}")


def _bytecode_of(module: Any, limits: Limits | None) -> VMExecutable:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "executable"
        module.write_to_file(str(path), "")
        return with_aligned_constants(binary.load(path, limits=limits))


class _Kernels:
    """The functions in the modules that an executable's module imports."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._roots = tuple(module.imports)
        self._modules = tuple(_tree(self._roots))
        self._alignments = [_alignment(module) for module in self._modules]

    def of(
        self, program: VMExecutable, permitted: Callable[[str], bool]
    ) -> dict[str, Callable[..., Any]]:
        """Return the packed functions of a program that are TVM's, by name.

        Raises:
            LinkError: the program has functions that cannot run here.
        """
        _refuse_devices(self._modules)
        found: dict[str, Callable[..., Any]] = {}
        machine: Any = None
        for info in program.functions:
            if info.kind == FuncKind.COMPILED:
                machine = machine or _MachineOfTVM(self._module)
                found[VM_TIR + info.name] = _OnTVM(machine, info.name)
            if info.kind != FuncKind.PACKED:
                continue
            function = self._compiled(info.name)
            if function is None and permitted(info.name) and GLOBAL.lookup(info.name) is None:
                function = _registered(info.name)
            if function is not None:
                found[info.name] = function
        return found

    def _compiled(self, name: str) -> Callable[..., Any] | None:
        for module, alignment in zip(self._modules, self._alignments, strict=True):
            if module.implements_function(name):
                function = module.get_function(name)
                if module.kind in _COMPILED:
                    return native_function(function, name, writes=None, alignment=alignment)
                return ffi.Function(function, name)
        return None


class _MachineOfTVM:
    """TVM's own machine, for functions in machine code: only it knows them."""

    __slots__ = ("functions", "invoke_closure")

    def __init__(self, executable: Any) -> None:
        self.functions = _tvm().relax.VirtualMachine(executable, _tvm().cpu())
        self.invoke_closure = ffi.Function(
            self.functions.module["invoke_closure"], "invoke_closure"
        )

    def value_of(self, result: Any) -> Any:
        """Return a result of the machine, whose closures can be called."""
        return convert_nested(result, is_tuple, self._closure)

    def _closure(self, value: Any) -> Any:
        return _ClosureOfTVM(value, self) if _is_closure_of_tvm(value) else value


def _is_closure_of_tvm(value: Any) -> bool:
    info = getattr(value, "__tvm_ffi_type_info__", None)
    return getattr(info, "type_key", None) == "relax.vm.Closure"


class _OnTVM:
    """A function in machine code, which TVM's machine runs."""

    __slots__ = ("_function", "machine")

    def __init__(self, machine: _MachineOfTVM, name: str) -> None:
        self.machine = machine
        self._function = ffi.Function(machine.functions[name], name)

    def __call__(self, vm: _VirtualMachine, *args: Any) -> Any:
        return self.machine.value_of(self._function(*args))


class _ClosureOfTVM(ffi.Function):
    """A closure that TVM's machine has made, and calls: an object of TVM as `function`, which
    cannot be called there by itself."""

    __slots__ = ("_machine",)

    def __init__(self, closure: Any, machine: _MachineOfTVM) -> None:
        super().__init__(closure, "a closure of TVM")
        self._machine = machine

    def __call__(self, *args: Any) -> Any:
        return self._machine.value_of(self._machine.invoke_closure(self, *args))


def _refuse_devices(modules: Iterable[Any]) -> None:
    kinds = sorted({module.kind for module in modules} & _OF_DEVICES)
    if kinds:
        raise LinkError(f"from_tvm: the program has code for other devices, relaxvm runs on the "
                        f"CPU alone: modules of kind {', '.join(kinds)}")


def _tree(modules: Sequence[Any]) -> Iterator[Any]:
    """Yield modules and their imports, breadth first."""
    waiting = list(modules)
    for module in waiting:
        yield module
        waiting.extend(module.imports)


def _alignment(module: Any) -> int:
    """Return the alignment in bytes that a module's functions require of tensors: the widest vector
    that its code may load."""
    if not module.implements_function("_get_target_string"):
        return ffi.ALIGNMENT
    target = json.loads(module.get_function("_get_target_string")())
    plain = not {"mcpu", "mattr", "cl-opt"} & target.keys()
    return 16 if plain and target.get("mtriple", "").startswith("x86_64") else ffi.ALIGNMENT


def _registered(name: str) -> Callable[..., Any] | None:
    function = _tvm().get_global_func(name, allow_missing=True)
    return None if function is None else ffi.Function(function, name)


class VirtualMachine:
    """A VM of relaxvm that takes and returns objects of TVM, like ``tvm.relax.VirtualMachine``.

    It passes for one: ``isinstance`` says so.  Its functions are functions of TVM's FFI.  Tensors
    are passed in both directions without a copy, except for a constant of the program, which is
    returned as a copy.  If a function returns one of its arguments, the result is the same tensor.
    The attribute `vm` is the underlying VM of relaxvm, `executable` TVM's module.  Exceptions have
    the classes that they have in TVM, or are derived from them.

    Args:
        rt_mod: an executable or module, as for `from_tvm`.
        device: a CPU of TVM, or a list of them.
        memory_cfg: ``"naive"``, ``"pooled"``, or a dict from devices to `NAIVE_ALLOCATOR` or
            `POOLED_ALLOCATOR`.

    Raises:
        MissingExtraError: TVM is not installed.
        ValueError: `rt_mod` is not an executable, or a device is not a CPU.
        TypeError: `device` is not a device of TVM.
        LinkError: as `from_tvm`.
    """

    NAIVE_ALLOCATOR: Final = NAIVE_ALLOCATOR
    POOLED_ALLOCATOR: Final = POOLED_ALLOCATOR

    def __init__(self, rt_mod: Any, device: Any, memory_cfg: Any = None) -> None:
        tvm = _tvm()
        _derive_errors(tvm.error.InternalError)
        if not isinstance(rt_mod, (tvm.runtime.Module, tvm.runtime.Executable)):
            raise ValueError(f"VirtualMachine: expected a tvm.runtime.Module or Executable, got "
                             f"{describe(rt_mod)}")
        if isinstance(memory_cfg, dict):
            memory_cfg = {_device(key): _ALLOCATORS[kind] for key, kind in memory_cfg.items()}
        self.executable = _module_of(rt_mod)
        self.vm = from_tvm(self.executable, devices_of(device), memory_cfg)
        self.module = VMModule(self.vm, self.executable.imports)

    @property  # type: ignore[misc]  # an object's class can be set, this one cannot
    def __class__(self) -> Any:
        """``tvm.relax.VirtualMachine``, so that ``isinstance`` takes this one for it."""
        return _tvm().relax.VirtualMachine

    def __copy__(self) -> VirtualMachine:
        """Return another object for the same VM, as TVM does."""
        made = object.__new__(VirtualMachine)
        vars(made).update(vars(self))
        return made

    def __reduce__(self) -> Any:
        """Refuse to be pickled, as TVM's VMs do.

        Raises:
            TypeError: always.
        """
        raise TypeError("cannot pickle a VirtualMachine of TVM's interface; export its executable "
                        "by export_library and create the VM where it is needed")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return one of the functions that TVM's VM keeps as attributes, such as `_set_input`."""
        if name.startswith("_") and name[1:] in INTERFACE:
            return self.module.get_function(name[1:])
        raise AttributeError(f"VirtualMachine has no attribute {name!r}")

    def __getitem__(self, key: str) -> Callable[..., Any]:
        """Return the function with a name, a ``tvm_ffi.Function``.

        Raises:
            AttributeError: there is no such function.
        """
        return self.module.get_function(key)

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure that a function has returned."""
        if isinstance(closure, _FUNCTIONS):
            closure = ffi_function(closure)
        if callable(closure):
            return closure(*args)
        return self.module.get_function("invoke_closure")(closure, *args)

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """See `relaxvm.VirtualMachine.save_function`."""
        values = values_of(self._ordered(func_name, args, kwargs))
        self.vm.save_function(func_name, saved_name, *values, include_return=include_return)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """See `relaxvm.VirtualMachine.set_input`.  Unknown keywords only print a warning, as in
        TVM."""
        self.vm.set_input(func_name, *values_of(self._ordered(func_name, args, kwargs)))

    def invoke_stateful(self, func_name: str) -> None:
        """See `relaxvm.VirtualMachine.invoke_stateful`."""
        self.vm.invoke_stateful(func_name)

    def get_outputs(self, func_name: str) -> Any:
        """See `relaxvm.VirtualMachine.get_outputs`."""
        return object_of(self.vm.get_outputs(func_name))

    def set_instrument(self, instrument: Any) -> None:
        """See `relaxvm.VirtualMachine.set_instrument`; a name is looked up in TVM's registry."""
        if isinstance(instrument, str):
            instrument = _tvm().get_global_func(instrument)
        self.vm.set_instrument(None if instrument is None else _instrument(instrument))

    def time_evaluator(self, func_name: str, dev: Any, **options: Any) -> Callable[..., Any]:
        """See `relaxvm.VirtualMachine.time_evaluator`."""
        return self.module.time_evaluator(func_name, dev, **options)

    def _ordered(
        self, func_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sequence[Any]:
        if not kwargs:
            return args
        info = self.vm._info(func_name)
        for name in kwargs.keys() - set(info.param_names):
            print(f'Warning: Keyword argument "{name}" is unused in {func_name}')
            del kwargs[name]
        return Parameters(func_name, info.num_args, info.param_names).fill(args, kwargs)


@functools.cache
def _derive_errors(of_tvm: type[Exception]) -> None:
    """Derive relaxvm's InternalError from TVM's, so that a program that catches the errors of
    TVM's machine catches those of this one.  relaxvm does not import TVM, so it is done late."""
    InternalError.__bases__ = (*InternalError.__bases__, of_tvm)


class VMModule:
    """`VirtualMachine.module`: functions by name, and the modules with the kernels."""

    kind = _VM_KIND

    def __init__(self, vm: _VirtualMachine, imports: Sequence[Any]) -> None:
        self._module = vm.module
        self._vm = vm
        self._made: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        self.imports = imports

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """See `get_function`."""
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function of a name, with `query_imports` also those of the imported modules.

        Raises:
            AttributeError: there is none.
        """
        if query_imports and not self._module.implements_function(name):
            for module in self.imports:
                if module.implements_function(name, True):
                    found: Callable[..., Any] = module.get_function(name, True)
                    return found
        function = (
            self._invoke_closure
            if name == "invoke_closure"
            else self._module.get_function(name)
        )
        known = self._made.get(name)
        if known is not None and known[0] == function:  # not a function saved anew
            return known[1]
        made: Callable[..., Any] = ffi_function(function)
        self._made[name] = function, made
        return made

    def _invoke_closure(self, closure: Any, *args: Any) -> Any:
        if _is_closure_of_tvm(closure):
            kernels = self._vm.executable.kernels.values()
            machine = next((k.machine for k in kernels if isinstance(k, _OnTVM)), None)
            if machine is not None:
                closure = _ClosureOfTVM(closure, machine)
        return self._vm.invoke_closure(closure, *args)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether `get_function` finds it."""
        return self._module.implements_function(name) or (
            query_imports and any(m.implements_function(name, True) for m in self.imports)
        )

    def time_evaluator(self, func_name: str, dev: Any, **options: Any) -> Callable[..., Any]:
        """See `relaxvm.VirtualMachine.time_evaluator`."""
        evaluator = self._module.time_evaluator(func_name, dev, **options)
        return lambda *args: evaluator(*values_of(args))


_FUNCTIONS: Final = (Closure, VMFunction)


def _instrument(instrument: Callable[..., Any]) -> Callable[..., Any]:
    made: dict[int, tuple[Any, Any]] = {}
    """Functions of TVM's FFI by the ``id`` of those that they call, which stay alive here."""

    def hook(func: Any, name: str, before: bool, ret: Any, *args: Any) -> Any:
        known = made.get(id(func))
        if known is None:
            known = made[id(func)] = func, ffi_function(func)
        return instrument(known[1], name, before, *map(object_of, (ret, *args)))

    return hook


_ALLOCATORS: Final = {NAIVE_ALLOCATOR: "naive", POOLED_ALLOCATOR: "pooled"}


def devices_of(device: Any) -> list[Device]:
    """Return the devices of relaxvm for a device of TVM, or a list of them.

    Raises:
        TypeError: `device` is something else.
        ValueError: a device is not a CPU.
    """
    return [_device(item) for item in (device if isinstance(device, (list, tuple)) else [device])]


def _device(device: Any) -> Device:
    if not isinstance(device, _tvm().runtime.Device):
        raise TypeError(f"VirtualMachine: expected a tvm.runtime.Device or a list of them, got "
                        f"{describe(device)}")
    found = Device(device.dlpack_device_type(), device.index)
    if not found.exist:
        raise ValueError(f"VirtualMachine: expected a CPU, got {found}, where relaxvm cannot run")
    return found
