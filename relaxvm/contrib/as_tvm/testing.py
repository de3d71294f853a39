"""``tvm.testing`` and ``tvm.relax.testing``: what TVM's own tests, and tests like them, use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...ir import TensorType, Var
from ...ir.arith import prove_equal
from ...transform import ModulePass
from ...values import to_value
from .runtime import Tensor, VirtualMachine, register_global_func

__all__ = [
    "ApplyEmptyCppMutator",
    "Placeholder",
    "assert_allclose",
    "assert_prim_expr_equal",
    "check_saved_func",
    "device_enabled",
    "enabled_targets",
    "env",
    "fixture",
    "main",
    "parameter",
    "parameters",
    "run_with_gpu_lock",
    "skip_if_wheel_test",
    "slow",
    "strided_slice_python",
]


def assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Check that two arrays have the same shape and nearly the same elements.

    Raises:
        AssertionError: they have not.
    """
    left, right = np.asarray(to_value(actual)), np.asarray(to_value(desired))
    np.testing.assert_equal(left.shape, right.shape)
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, verbose=verbose)


def strided_slice_python(
    data: Any,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Any:
    """The slice ``data[begin:end:strides]`` of an array along `axes`, by default the first ones.

    With `slice_mode` "size", `end` has the numbers of elements, negative for all that follow, and
    the strides are 1.
    """
    array = np.asarray(to_value(data))
    index = [slice(None)] * array.ndim
    for i, axis in enumerate(range(len(begin)) if axes is None else axes):
        start, stop, step = begin[i], end[i], strides[i] if i < len(strides) else 1
        if slice_mode == "size":
            stop, step = (array.shape[axis] if stop < 0 else start + stop), 1
        index[axis] = slice(start, stop, step)
    return array[tuple(index)]


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Check that two scalars are provably equal.

    Raises:
        ValueError: they are not.
    """
    if not prove_equal(lhs, rhs):
        raise ValueError(f"{lhs} and {rhs} are not equal")


def main() -> None:
    """Run the tests of the calling file."""
    import pytest

    sys.exit(pytest.main([sys._getframe(1).f_globals["__file__"], *sys.argv[1:]]))


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: Any = None) -> Any:
    """Define a fixture of pytest with one value per test."""
    import pytest

    if by_dict is not None:
        names, values = zip(*by_dict.items(), strict=True)
        ids = [str(name) for name in names]

    @pytest.fixture(params=values, ids=ids)
    def value(request: Any) -> Any:
        return request.param

    return value


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> Any:
    """Define several fixtures whose values change together."""
    import pytest

    indices = range(len(value_sets))

    def of(position: int) -> Any:
        @pytest.fixture(params=indices, ids=ids)
        def value(request: Any) -> Any:
            return value_sets[request.param][position]

        return value

    return tuple(of(position) for position in range(len(value_sets[0])))


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """Define a fixture of pytest."""
    import pytest

    return pytest.fixture(func) if func is not None else pytest.fixture


def slow(function: Any) -> Any:
    """Mark a test as slow: it runs like any other."""
    return function


def skip_if_wheel_test(function: Any) -> Any:
    """Mark a test that TVM's wheel cannot run: it runs like any other."""
    return function


def device_enabled(target: Any) -> bool:
    """Whether programs for a target can run: those for the CPU."""
    return str(getattr(getattr(target, "kind", target), "name", target)).split()[0] in ("llvm", "c")


def enabled_targets() -> list[tuple[str, Any]]:
    """The targets that can be tested, with their devices."""
    from ...values import cpu

    return [("llvm", cpu())]


def run_with_gpu_lock(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Refuse: there is no GPU.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("run_with_gpu_lock: relaxvm runs on the CPU")


_NOTHING = (
    *("adreno_opencl", "cublas", "cuda", "cuda_arch", "cuda_compute", "cudagraph", "cudnn", "gpu"),
    *("hexagon", "hexagon_toolchain", "hipblas", "matrixcore", "metal", "multi_gpu", "nccl"),
    *("nvcc_version", "nvptx", "nvshmem", "opencl", "rocm", "vulkan"),
)
env = SimpleNamespace(
    **{f"has_{feature}": lambda *args, **kwargs: False for feature in _NOTHING},
    has_llvm=lambda: True,
    has_cpu_feature=lambda *args: False,
    has_llvm_min_version=lambda *args: True,
    has_x86_avx512=lambda: False,
    has_x86_vnni=lambda: False,
    build_flag_enabled=lambda *args: False,
)
"""What this machine has, as ``tvm.testing.env`` asks: a CPU."""


# tvm.relax.testing


def Placeholder(shape: Any, dtype: str = "float32", name: str = "data") -> Var:
    """Return a variable for a tensor of a shape and data type."""
    return Var(name, TensorType(shape, dtype))


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: Any) -> Any:
    """Call a function directly and as a saved one, check that the results agree, return the second.

    Raises:
        AssertionError: they do not.
    """
    direct = vm[func_name](*inputs)
    name = f"{func_name}_saved"
    vm.save_function(func_name, name, *inputs)
    saved = vm[name]()
    _check_same(direct, saved)
    return saved


def _check_same(direct: Any, saved: Any) -> None:
    if isinstance(direct, tuple):
        assert len(direct) == len(saved)
        for one, other in zip(direct, saved, strict=True):
            _check_same(one, other)
    elif isinstance(direct, Tensor):
        np.testing.assert_allclose(to_value(direct), to_value(saved), rtol=1e-7, atol=1e-7)
    else:
        assert direct == saved


def ApplyEmptyCppMutator() -> ModulePass:
    """A pass that visits every function and rewrites nothing, except into normal form."""
    from ...ir import Function, IRModule, PyExprMutator

    def rewrite(mod: IRModule, context: Any) -> IRModule:
        new = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                new[var] = PyExprMutator(mod).visit_expr(func)
        return new

    return ModulePass(rewrite, "ApplyEmptyCppMutator")


# Packed functions that TVM's tests call by name


@register_global_func("test.vm.identity", override=True)
def _identity(source: Any, target: Any) -> None:
    target.copyfrom(source)


@register_global_func("test.vm.move", override=True)
def _move(source: Any) -> Any:
    return source


@register_global_func("test.vm.add", override=True)
def _add(left: Any, right: Any) -> Any:
    return Tensor(np.asarray(left.numpy() + right.numpy()))


@register_global_func("test.vm.mul", override=True)
def _mul(left: Any, right: Any) -> Any:
    return Tensor(np.asarray(left.numpy() * right.numpy()))


@register_global_func("test.vm.equal_zero", override=True)
def _equal_zero(value: Any) -> Any:
    return Tensor(np.asarray((value.numpy() == 0).all()))


@register_global_func("test.vm.subtract_one", override=True)
def _subtract_one(value: Any) -> Any:
    return Tensor(np.asarray(value.numpy() - np.ones((), value.numpy().dtype)))


@register_global_func("test.vm.tile", override=True)
def _tile(source: Any, target: Any) -> None:
    target.copyfrom(np.tile(source.numpy(), (1, 2)))


@register_global_func("test.vm.check_if_defined", override=True)
def _check_if_defined(value: Any) -> bool:
    return value is not None


@register_global_func("test.vm.add_scalar", override=True)
def _add_scalar(left: Any, right: Any) -> Any:
    return left + right


@register_global_func("test.vm.get_device_id", override=True)
def _get_device_id(device: Any) -> int:
    return int(device.index)


@register_global_func("test.vm.check_device_id", override=True)
def _check_device_id(device: Any, index: int) -> bool:
    return int(device.index) == index
