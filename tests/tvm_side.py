"""Run programs of the tests on apache-tvm's VM, for comparison.

Import this only after ``pytest.importorskip("tvm")``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from relaxvm.errors import InternalError
from relaxvm.registry import get_func
from relaxvm.values import Shape

from .kernels import KERNELS


def load(data: bytes) -> relax.VirtualMachine:
    """Load an executable into TVM's VM, and register the kernels and relaxvm's own builtin."""
    own = "relaxvm.builtin.compute_shape"
    for name, kernel in {**KERNELS, own: get_func(own)}.items():
        tvm.register_global_func(name, _adapted(kernel), override=True)
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    return relax.VirtualMachine(read(data), tvm.cpu())


def call(machine: relax.VirtualMachine, function: str, args: tuple[Any, ...]) -> Any:
    """Call a function and return its result as values of relaxvm."""
    return from_tvm(machine[function](*map(to_tvm, args)))


def to_tvm(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tvm.runtime.tensor(value)
    if isinstance(value, Shape):
        return tvm_ffi.Shape(value)
    if isinstance(value, (tuple, list)):
        return tvm_ffi.Array([to_tvm(item) for item in value])
    if isinstance(value, np.dtype):
        return tvm_ffi.dtype(value.name)
    return _adapted(value) if callable(value) and not isinstance(value, tvm_ffi.Function) else value


def from_tvm(value: Any) -> Any:
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy()
    if isinstance(value, tvm_ffi.Shape):
        return Shape(value)
    if isinstance(value, (tvm_ffi.Array, tuple, list)):
        return tuple(map(from_tvm, value))
    if isinstance(value, tvm_ffi.dtype):
        return np.dtype(str(value))
    return str(value) if isinstance(value, str) else value


def _adapted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a kernel to TVM's tensors: its writes are copied back, and if it returns an argument,
    the result is the same object."""

    def adapted(*args: Any) -> Any:
        inside = [from_tvm(arg) for arg in args]
        origin = {id(x): arg for x, arg in zip(inside, args, strict=True)}
        before = {id(x): x.copy() for x in inside if isinstance(x, np.ndarray)}
        result = kernel(*inside)
        for x in inside:
            if isinstance(x, np.ndarray) and x.tobytes() != before[id(x)].tobytes():
                origin[id(x)].copyfrom(x)
        return origin[id(result)] if id(result) in origin else to_tvm(result)

    return adapted


def error_like(error: type[BaseException]) -> type[BaseException]:
    """Return the class that TVM raises where relaxvm raises `error`."""
    return tvm.error.InternalError if issubclass(error, InternalError) else error
