"""What programs for TVM hold at run time: tensors, functions, virtual machines.

A VM of relaxvm takes and returns arrays; programs for TVM expect a `Tensor`, which is a handle of
an array, and functions that take and return such handles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._core import Closure, VMFunction
from ...dtypes import as_dtype, dtype_name
from ...errors import RelaxVMError
from ...executable.loading import load_library
from ...nested import convert_nested
from ...registry import GLOBAL, get_func
from ...values import Device, Shape, is_tuple_of_values, take_from, to_value
from ...vm.allocators import NAIVE_ALLOCATOR, POOLED_ALLOCATOR
from ...vm.machine import VirtualMachine as _VirtualMachine
from ...vm.machine import VMInstrumentReturnKind as VMInstrumentReturnKind
from ..tvm.module import _Module

__all__ = [
    "DataType",
    "Device",
    "Function",
    "Module",
    "Shape",
    "ShapeTuple",
    "Tensor",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "cpu",
    "cuda",
    "device",
    "device_from_target",
    "empty",
    "enabled",
    "from_dlpack",
    "get_global_func",
    "load_module",
    "metal",
    "num_threads",
    "opencl",
    "register_global_func",
    "remove_global_func",
    "rocm",
    "system_lib",
    "tensor",
    "vulkan",
]

ShapeTuple = Shape


class DataType(str):
    """A data type by its name, as in TVM: ``tensor.dtype == "float32"``."""

    __slots__ = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of numpy."""
        return as_dtype(str(self))

    @property
    def bits(self) -> int:
        """The number of bits of an element."""
        return 1 if self == "bool" else 8 * as_dtype(str(self)).itemsize

    @property
    def itemsize(self) -> int:
        """The number of bytes of an element."""
        return as_dtype(str(self)).itemsize

    @property
    def lanes(self) -> int:
        """The number of elements of a vector: always 1."""
        return 1


class Tensor:
    """A tensor of TVM: a handle of an array.

    Two handles are equal if they are of the same array.  ``numpy()`` is a copy; ``np.asarray`` and
    DLPack share the memory.
    """

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> DataType:
        return DataType(dtype_name(self._array.dtype))

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in elements."""
        return tuple(stride // self._array.itemsize for stride in self._array.strides)

    @property
    def device(self) -> Device:
        return Device("cpu")

    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in C order."""
        return self._array.flags.c_contiguous

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.ctypes.data

    def numpy(self) -> NDArray[Any]:
        """Return the elements as a new array."""
        return self._array.copy()

    asnumpy = numpy  # an earlier name

    def copyfrom(self, source_array: Any) -> Tensor:
        """Copy the elements of an array of the same shape, and return the tensor.

        Raises:
            ValueError: the shape is another one.
        """
        array = np.asarray(to_value(source_array), self._array.dtype)
        if array.shape != self._array.shape:
            raise ValueError(f"copyfrom: expected an array of shape {tuple(self._array.shape)}, "
                             f"got {array.shape}")
        self._array[...] = array
        return self

    def copyto(self, target: Any, mem_scope: str | None = None) -> Tensor:
        """Copy the elements to a tensor, or to a new one on a device.

        Raises:
            TypeError: `target` is neither.
        """
        if isinstance(target, Tensor):
            return target.copyfrom(self)
        if isinstance(target, Device):
            return Tensor(_on(target, self._array.copy()))
        raise TypeError(f"copyto: expected a Tensor or a Device, got {type(target).__name__}")

    def same_as(self, other: object) -> bool:
        """Whether both are handles of one array."""
        return self == other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self._array is other._array

    def __hash__(self) -> int:
        return hash(id(self._array))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[key] = to_value(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._array.astype(dtype or self._array.dtype, copy=bool(copy))

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __reduce__(self) -> Any:
        return Tensor, (self._array,)

    def __repr__(self) -> str:
        return f"<Tensor shape={tuple(self.shape)}, {self.dtype}, {self.device}>\n{self._array}"


take_from(lambda value: isinstance(value, Tensor), lambda value: value._array)


def to_tvm(value: Any) -> Any:
    """Return what a program for TVM expects in place of a run-time value."""
    if isinstance(value, np.ndarray):
        return Tensor(value)
    if is_tuple_of_values(value):
        return convert_nested(value, is_tuple_of_values, to_tvm)
    if isinstance(value, (Closure, VMFunction)):
        return Function(value)
    if isinstance(value, np.dtype):
        return DataType(dtype_name(value))
    return value


class Function:
    """A function of TVM: it takes and returns what programs for TVM do.

    Args:
        function: a function of relaxvm, which takes and returns run-time values.
    """

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        if isinstance(function, _OfProgram):
            return function.function(*args)
        values = [to_value(arg) for arg in args]
        return to_tvm(function(*values, **{key: to_value(kwargs[key]) for key in kwargs}))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._function == other._function

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return f"<Function {getattr(self._function, '__name__', self._function)!r}>"


class _OfProgram:
    """A function of a program for TVM, as relaxvm calls it: with values, which it wraps."""


    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__module__ = getattr(function, "__module__", None) or __name__
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: Any) -> Any:
        return from_tvm(self.function(*map(to_tvm, args)))


def from_tvm(value: Any) -> Any:
    """Return the run-time value that an object of a program for TVM stands for."""
    if isinstance(value, Function):
        return value._function
    if isinstance(value, Tensor):
        return value._array
    if isinstance(value, DataType):
        return as_dtype(str(value))
    return value


F = TypeVar("F", bound=Callable[..., Any])


@overload
def register_global_func(func_name: F) -> F: ...
@overload
def register_global_func(func_name: str, f: F, override: bool = ...) -> F: ...
@overload
def register_global_func(
    func_name: str, f: None = ..., override: bool = ...
) -> Callable[[F], F]: ...
def register_global_func(func_name: Any, f: Any = None, override: bool = False) -> Any:
    """Register a packed function; also a decorator.  See `relaxvm.register_func`.

    It receives tensors as `Tensor`.

    Raises:
        ValueError: the name exists and `override` is false.
    """
    if callable(func_name):
        return register_global_func(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        packed = function._function if isinstance(function, Function) else _OfProgram(function)
        try:
            GLOBAL.register(func_name, packed, override=override)
        except RelaxVMError as error:
            raise ValueError(str(error)) from None
        return function

    return register if f is None else register(f)


def remove_global_func(name: str) -> None:
    """Remove a registered function.

    Raises:
        KeyError: there is none.
    """
    GLOBAL.remove(name)


def get_global_func(name: str, allow_missing: bool = False) -> Function | None:
    """Return the registered function with a name.

    Raises:
        ValueError: the name is unknown; with `allow_missing` None is returned instead.
    """
    found = get_func(name, allow_missing)
    return None if found is None else Function(found)


# Devices

_ELSEWHERE: Final = (
    "relaxvm runs on the CPU: use tvm.cpu() and target='llvm'; a program for another device needs "
    "TVM built for it, which can export the program, and relaxvm.contrib.tvm for its CPU parts"
)


def _on(device: Device | None, array: NDArray[Any]) -> NDArray[Any]:
    if device is not None and not device.exist:
        raise RuntimeError(f"{device}: {_ELSEWHERE}")
    return array


def cpu(dev_id: int = 0) -> Device:
    """The host as a device."""
    return Device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A device that does not exist here: its `exist` is False."""
    return Device("cuda", dev_id)


def rocm(dev_id: int = 0) -> Device:
    """A device that does not exist here: its `exist` is False."""
    return Device("rocm", dev_id)


def opencl(dev_id: int = 0) -> Device:
    """A device that does not exist here: its `exist` is False."""
    return Device("opencl", dev_id)


def metal(dev_id: int = 0) -> Device:
    """A device that does not exist here: its `exist` is False."""
    return Device("metal", dev_id)


def vulkan(dev_id: int = 0) -> Device:
    """A device that does not exist here: its `exist` is False."""
    return Device("vulkan", dev_id)


def device(device_type: str | Device, index: int | None = None) -> Device:
    """A device from its name, such as "cpu", "cpu:1", or "llvm" for the CPU."""
    from ...values import device as of

    name = device_type.split()[0] if isinstance(device_type, str) else device_type
    return of({"llvm": "cpu", "c": "cpu"}.get(name, name) if isinstance(name, str) else name, index)


def device_from_target(target: Any, index: int | None = None) -> Device:
    """The device that a target is for."""
    return device(getattr(getattr(target, "kind", None), "name", target), index)


def enabled(target: str) -> bool:
    """Whether programs can be compiled for a target: for the CPU alone."""
    return str(target).split()[0] in ("llvm", "c", "cpu")


def num_threads() -> int:
    """The number of threads of a kernel."""
    from ...core._threads import get_num_threads

    return get_num_threads()


# Tensors


def tensor(arr: ArrayLike | Tensor, device: Device | None = None, mem_scope: Any = None) -> Tensor:
    """Return a tensor with a copy of an array's elements.

    Raises:
        RuntimeError: the device is not a CPU.
    """
    array = np.array(to_value(arr) if isinstance(arr, Tensor) else arr, order="C")
    return Tensor(_on(device, array))


def empty(
    shape: Sequence[int],
    dtype: str = "float32",
    device: Device | None = None,
    mem_scope: Any = None,
) -> Tensor:
    """Return a tensor whose elements are not set.

    Raises:
        RuntimeError: the device is not a CPU.
    """
    return Tensor(_on(device, np.empty(tuple(map(int, shape)), as_dtype(dtype))))


def from_dlpack(
    ext_tensor: Any, *, require_alignment: int = 0, require_contiguous: bool = False
) -> Tensor:
    """Return a tensor over the memory of an object with DLPack.

    Raises:
        RuntimeError: its memory does not begin at a multiple of `require_alignment` bytes, or it is
            not contiguous and `require_contiguous` asks for that.
    """
    array = np.from_dlpack(ext_tensor)
    if require_alignment and array.__array_interface__["data"][0] % require_alignment:
        raise RuntimeError(f"from_dlpack: the memory is not aligned to {require_alignment} bytes")
    if require_contiguous and not array.flags.c_contiguous:
        raise RuntimeError("from_dlpack: the tensor is not contiguous")
    return Tensor(array)


# Modules and machines


Module = _Module
"""The base class of modules, which have functions by name."""


def load_module(path: str | os.PathLike[str], keep_module_alive: bool = True) -> Any:
    """Load a library that was exported by `export_library`.

    Args:
        path: the file.
        keep_module_alive: taken as in TVM; a library stays as long as one of its functions does.

    Raises:
        OSError, FormatError: it cannot be read; see `relaxvm.load_library`.
    """
    return load_library(path).mod


def system_lib(symbol_prefix: str = "") -> Any:
    """Refuse: relaxvm does not link programs into the process.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("system_lib: relaxvm links no programs into the process; export the program "
                       "by export_library('model.so') and load it by load_module('model.so')")


class VirtualMachine:
    """``tvm.relax.VirtualMachine``: a VM of relaxvm that takes and returns tensors of TVM.

    Attributes:
        vm: the VM of relaxvm.

    Raises:
        ValueError: `rt_mod` is not an executable, or a device is not a CPU.
        TypeError: `device` is not a device.
        LinkError, VerifyError: as `relaxvm.VirtualMachine`.
    """

    NAIVE_ALLOCATOR: Final = NAIVE_ALLOCATOR
    POOLED_ALLOCATOR: Final = POOLED_ALLOCATOR

    def __init__(
        self,
        rt_mod: Any,
        device: Device | Sequence[Device] | None = None,
        memory_cfg: str | Mapping[Device, Any] | None = None,
        profile: bool = False,
    ) -> None:
        devices = [device] if isinstance(device, Device) else list(device or [Device("cpu")])
        for one in devices:
            if isinstance(one, Device) and not one.exist:
                raise ValueError(f"VirtualMachine: {one}: {_ELSEWHERE}")
        self.vm = _VirtualMachine(rt_mod, devices, memory_cfg)

    @property
    def module(self) -> VMModule:
        """The VM with TVM's module interface."""
        return VMModule(self.vm.module)

    def __getitem__(self, key: str) -> Function:
        return Function(self.vm[key])

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure that a function has returned."""
        return to_tvm(self.vm.invoke_closure(from_tvm(closure), *map(from_tvm, args)))

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """See `relaxvm.VirtualMachine.save_function`."""
        named = {key: from_tvm(value) for key, value in kwargs.items()}
        self.vm.save_function(
            func_name, saved_name, *map(from_tvm, args), include_return=include_return, **named
        )

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """See `relaxvm.VirtualMachine.set_input`."""
        named = {key: from_tvm(value) for key, value in kwargs.items()}
        self.vm.set_input(func_name, *map(from_tvm, args), **named)

    def invoke_stateful(self, func_name: str) -> None:
        """See `relaxvm.VirtualMachine.invoke_stateful`."""
        self.vm.invoke_stateful(func_name)

    def get_outputs(self, func_name: str) -> Any:
        """See `relaxvm.VirtualMachine.get_outputs`."""
        return to_tvm(self.vm.get_outputs(func_name))

    def set_instrument(self, instrument: Any) -> None:
        """See `relaxvm.VirtualMachine.set_instrument`."""
        if isinstance(instrument, str):
            instrument = get_global_func(instrument)
        if not callable(instrument):
            self.vm.set_instrument(instrument)
            return

        def hook(func: Any, name: str, before: bool, ret: Any, *args: Any) -> Any:
            return instrument(to_tvm(func), name, before, *map(to_tvm, (ret, *args)))

        self.vm.set_instrument(hook)

    def time_evaluator(
        self,
        func_name: str,
        dev: Any = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., Any]:
        """See `relaxvm.VirtualMachine.time_evaluator`."""
        evaluator = self.vm.time_evaluator(func_name, dev, number, repeat, min_repeat_ms,
                                           cooldown_interval_ms, repeats_to_cooldown,
                                           f_preproc)  # fmt: skip
        return lambda *args: evaluator(*map(from_tvm, args))

    def profile(self, func_name: str, *args: Any) -> Any:
        """Run a function and return a report of where its time went; see `relaxvm.profile`."""
        from ...observe.profiler import profile

        with profile(self.vm) as report:
            self.vm[func_name](*map(from_tvm, args))
        return report

    def __repr__(self) -> str:
        return repr(self.vm)


class VMModule:
    """A VM with TVM's module interface, whose functions take and return tensors of TVM."""

    kind = "relax.VirtualMachine"

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getitem__(self, name: str) -> Function:
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Function:
        """Return the function with a name.

        Raises:
            AttributeError: there is none.
        """
        return Function(self._module.get_function(name, query_imports))

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Return whether `get_function` finds the function."""
        return bool(self._module.implements_function(name, query_imports))

    @property
    def imports(self) -> Sequence[Any]:
        """The modules with the packed functions that the VM is linked to."""
        return tuple(VMModule(module) for module in self._module.imports)

    def time_evaluator(self, func_name: str, dev: Any = None, **options: Any) -> Callable[..., Any]:
        """See `relaxvm.VirtualMachine.time_evaluator`."""
        evaluator = self._module.time_evaluator(func_name, dev, **options)
        return lambda *args: evaluator(*map(from_tvm, args))
