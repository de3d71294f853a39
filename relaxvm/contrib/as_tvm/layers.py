"""``tvm.relax.testing.nn``: layers that emit their calls to the current `BlockBuilder`.

Models of one's own are better written by `relaxvm.frontend.nn`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import op
from ...ir import BlockBuilder, Expr, Function, IntImm, IRModule, ShapeExpr, TensorType, Var
from .runtime import Tensor
from .testing import Placeholder

__all__ = [
    "Linear",
    "LogSoftmax",
    "Module",
    "Parameter",
    "Placeholder",
    "ReLU",
    "Sequential",
    "emit",
    "emit_te",
    "init_params",
]


def _builder() -> BlockBuilder:
    found = BlockBuilder.current()
    if found is None:
        raise RuntimeError("nn: layers are called within `BlockBuilder.function`")
    return found


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Emit a binding to the current builder."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Emit loops to the current builder; see `BlockBuilder.emit_te`."""
    return _builder().emit_te(func, *args, **kwargs)


def Parameter(shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> Var:
    """Return a variable for a weight; one that is an attribute of a layer is one of its weights."""
    return Var(_builder().get_unique_name(name), TensorType(shape, dtype))


class Module:
    """Base of layers: `forward` emits their calls."""

    def parameters(self) -> list[Var]:
        """The weights of the layer and of the layers in it."""
        return _weights(vars(self))

    def forward(self, input: Expr) -> Any:  # noqa: A002
        """Emit the calls; to be overridden."""
        raise NotImplementedError(f"layer {type(self).__name__} has no method 'forward'")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def _weights(value: Any) -> list[Var]:
    if isinstance(value, Var):
        return [value]
    if isinstance(value, Module):
        return value.parameters()
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return list(itertools.chain.from_iterable(map(_weights, value)))
    return []


class Sequential(Module):
    """Layers, one after the other."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def forward(self, input: Expr) -> Any:  # noqa: A002
        for module in self.modules:
            input = module(input)  # noqa: A001
        return input


class ReLU(Module):
    """``R.nn.relu``"""

    def forward(self, input: Expr) -> Var:  # noqa: A002
        return emit(op.nn.relu(input))


class LogSoftmax(Module):
    """``R.nn.log_softmax``"""

    def forward(self, input: Expr) -> Var:  # noqa: A002
        return emit(op.nn.log_softmax(input))


class Linear(Module):
    """A product with a weight of shape (in_features, out_features), and a bias."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:  # noqa: A002
        product = emit(op.matmul(input, self.weight))
        return product if self.bias is None else emit(op.add(product, self.bias))


def _known(dim: Expr) -> int:
    if not isinstance(dim, IntImm):
        raise TypeError(f"init_params: expected a known dimension, got {dim}")
    return dim.value


def init_params(mod: IRModule) -> list[Tensor]:
    """Return zeros for the parameters of "main" whose name does not begin with "data".

    Raises:
        TypeError: "main" is no Relax function, or the shape of a parameter is not known.
    """
    main = mod["main"]
    if not isinstance(main, Function):
        raise TypeError(f"init_params: expected a Relax function main, got {type(main).__name__}")
    found = []
    for param in main.params:
        if param.name.startswith("data"):
            continue
        shape = param.ty.shape if isinstance(param.ty, TensorType) else None
        if not isinstance(shape, ShapeExpr):
            raise TypeError(f"init_params: {param.name}: expected a tensor of known shape, got "
                            f"{param.ty}")  # fmt: skip
        found.append(Tensor(np.zeros(list(map(_known, shape.values)), param.ty.dtype or "float32")))
    return found
