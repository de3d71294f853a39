"""Names of ``tvm.relax`` that relaxvm spells in another way."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Expr, IRModule, ShapeExpr
from ...ir import TensorType as _TensorType
from ...transform import Pass
from ...transform.pipelines import get_pipeline

__all__ = ["TensorType", "detach_params", "get_default_pipeline", "make_shape", "update_type"]


class _TypeOfTensors(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _TensorType)

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, _TensorType)


class TensorType(metaclass=_TypeOfTensors):
    """The type of a tensor, of float32 if no data type is given; `dtype=None` is an unknown one."""

    def __new__(
        cls,
        shape: Any = None,
        dtype: Any = "float32",
        vdevice: Any = None,
        ndim: int = -1,
        span: Any = None,
    ) -> Any:
        """Make the `relaxvm.ir.TensorType`."""
        return _TensorType(shape, dtype, vdevice, ndim, span)


def update_type(expr: Expr, ty: Any) -> None:
    """Set the type of an expression that is under construction."""
    expr.ty = ty


def get_default_pipeline(target: Any) -> Pass:
    """Return the pipeline that lowers a program for a target, the CPU.

    Raises:
        ValueError: the target is another device.
    """
    from .target import Target

    chosen = target if isinstance(target, Target) else Target(target)
    if chosen.get_target_device_type() != 1:
        raise ValueError(
            f"get_default_pipeline: expected a target for the CPU, such as 'llvm', got {chosen}"
        )
    return get_pipeline("default")


def make_shape(shape: Any) -> Expr:
    """Return a shape as an expression; an expression as it is."""
    return shape if isinstance(shape, Expr) else ShapeExpr(shape)


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """Return a module without the parameters that its functions carry as the attribute "params",
    and those parameters by the name of the function."""
    from .runtime import Tensor

    detached = mod.copy()
    params: dict[str, list[Any]] = {}
    for var, func in mod.items():
        found = func.attrs.get("params") if func.attrs else None
        if found is None:
            continue
        arrays = [found] if isinstance(found, np.ndarray) else list(found)
        params[var.name_hint] = [a if isinstance(a, Tensor) else Tensor(a) for a in arrays]
        detached[var] = func.without_attr("params")
    return detached, params
