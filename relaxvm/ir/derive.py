"""Types of calls that a function finds: `FuncType.derive_func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..messages import describe
from ..registry import get_func
from .block_builder import BlockBuilder
from .expr import ANY, Call, EnvFunc, TupleType, Type
from .infer import DERIVE
from .op import CONTEXT, Op

__all__: list[str] = []


def _by_ty_args(call: Call, builder: BlockBuilder) -> Type:
    """The types that the call was given; any type if there are none."""
    types = call.ty_args
    if len(types) == 1:
        return types[0]
    return TupleType(types) if types else ANY


def _of_view(call: Call, builder: BlockBuilder) -> Type:
    """The type of a view; the arguments are those of ``R.memory.view``."""
    return Op.get("relax.memory.view").infer(call)


_KNOWN: Final[dict[str, Callable[[Call, BlockBuilder], Type]]] = {
    "tvm.relax.type.infer_by_ty_args": _by_ty_args,
    "tvm.relax.type.infer_view_ty": _of_view,
}
"""TVM's own functions, by name."""


def _type_of_call(call: Call, func: EnvFunc) -> Type:
    name = func.name
    derive = _KNOWN.get(name) or get_func(name)
    found = derive(call, CONTEXT["builder"]())
    if not isinstance(found, Type):
        raise TypeError(f"{name}: expected a type for {call}, got {describe(found)}")
    return found


DERIVE["call"] = _type_of_call
