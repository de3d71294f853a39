"""PrimFunc: a function of loops over buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..ir.expr import (
    BaseFunc,
    Expr,
    FuncType,
    IntImm,
    PrimType,
    TensorType,
    TupleType,
    Type,
    Var,
    int_imm,
)
from ..ir.node import Attrs
from ..ir.prim import cast
from .buffer import Buffer
from .stmt import Evaluate, Stmt

__all__ = ["PrimFunc", "parameter_type"]


class PrimFunc(BaseFunc):
    """A function that is called in destination-passing style: results are written to arguments.

    Attributes:
        params: buffers and scalar variables.  A variable in the shape of a buffer gets its value
            from the argument in whose shape it first appears.
        body: a `Stmt`.
        ret_type: type of a returned scalar, or None for nothing.
        attrs: attributes: "global_symbol", "tirx.noalias" (buffers do not overlap), ...
    """

    __slots__ = ("body", "params", "ret_type")
    FIELDS = ("params", "ret_type", "attrs", "body")
    DEFS = frozenset({"params"})

    params: tuple[Var, ...]
    body: Stmt
    ret_type: Type | None

    def __init__(
        self,
        params: Iterable[Var],
        body: Stmt,
        ret_type: Type | None = None,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        self.params = tuple(params)
        for param in self.params:
            if not isinstance(param, Buffer) and type(param.ty) is not PrimType:
                raise TypeError(
                    f"parameter {param.name!r} of a PrimFunc is a buffer or a scalar, its type is "
                    f"{param.ty}"
                )
        self.body = body
        self.ret_type = ret_type
        self.attrs = Attrs(attrs or {})
        self.span = span
        self.ty = FuncType(
            [parameter_type(param) for param in self.params],
            TupleType(()) if ret_type is None else ret_type,
            purity=type(body) is Evaluate and type(body.value) is IntImm,  # it does nothing
        )

    @property
    def buffer_map(self) -> dict[Var, Buffer]:
        """The buffer parameters; each is both the key and the value."""
        return {param: param for param in self.params if isinstance(param, Buffer)}

    def _with_attrs(self, attrs: Attrs) -> PrimFunc:
        return PrimFunc(self.params, self.body, self.ret_type, attrs, self.span)

    def with_body(self, new_body: Stmt) -> PrimFunc:
        """The function with another body."""
        return PrimFunc(self.params, new_body, self.ret_type, self.attrs, self.span)

    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """Return the function with values substituted for scalar parameters or shape variables;
        these are no longer parameters."""
        from .visitor import specialize

        return specialize(self, param_map)


def parameter_type(param: Var) -> Type:
    """The type of a parameter of a PrimFunc in the type of the function.  Dimensions of types are
    int64: others are converted."""
    if not isinstance(param, Buffer):
        scalar: Type = param.ty
        return scalar
    return TensorType([_dim(dim) for dim in param.ty.shape], param.ty.dtype)


def _dim(dim: Expr) -> Expr:
    return int_imm(dim.value) if type(dim) is IntImm else cast(dim, "int64")
