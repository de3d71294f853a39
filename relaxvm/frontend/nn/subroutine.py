"""Modules whose ``forward`` becomes a function of its own."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from ...ir import BlockBuilder, TupleType, Var, copy_with_new_vars, structural_equal

__all__ = ["SubroutineMixin"]

_MADE: Final[WeakKeyDictionary[BlockBuilder, list[Any]]] = WeakKeyDictionary()
"""Builder -> the subroutines that its module has: the method, the types, the function."""


class SubroutineMixin:
    """With ``define_subroutine = True``, ``forward`` is exported as a private function, once per
    class and types of the arguments and parameters; every use of the module is a call of it."""

    define_subroutine: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward = cls.__dict__.get("forward")
        if forward is not None:
            setattr(cls, "forward", _dispatching(forward))  # noqa: B010


def _dispatching(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def dispatch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        return _call(self, forward, args, kwargs)

    return dispatch


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", name).lower()


def _call(module: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    from .core import Tensor, builder, expr_of, wrap_nested

    outer = builder()
    bound = inspect.signature(forward).bind(module, *args, **kwargs).arguments
    named = dict(list(bound.items())[1:])  # without the module
    weights = [expr_of(param) for param in module.parameters()]
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"module {type(module).__name__} is a subroutine: argument {name!r}: expected a "
                f"tensor, got {type(value).__name__}"
            )
    arguments = [*map(expr_of, named.values()), *weights]
    types = TupleType([argument.ty for argument in arguments])
    made = _MADE.setdefault(outer, [])
    var = next((v for f, t, v in made if f is forward and structural_equal(t, types, True)), None)
    if var is None:
        var = _define(module, forward, outer, named, weights)
        made.append((forward, types, var))
    name = f"{var.name_hint}_output"
    return wrap_nested(outer.emit(var(*arguments), name), name)


def _define(
    module: Any,
    forward: Callable[..., Any],
    outer: BlockBuilder,
    named: dict[str, Any],
    weights: list[Any],
) -> Any:
    from .core import Tensor, expr_of

    params = [Var(name, expr_of(value).ty) for name, value in named.items()]
    inner = BlockBuilder(outer.get())
    _MADE[inner] = _MADE[outer]
    name = inner.get().unique_name(_snake_case(type(module).__name__))
    with inner.function(name, [*params, *weights], private=True):
        with inner.dataflow():
            result = _exprs(forward(module, *[Tensor(_expr=param) for param in params]))
            output = inner.emit_output(result)
        inner.emit_func_output(output)
    for var, func in inner.get().items():
        if var.name_hint not in outer.get():
            outer.update_func(var, func)
    var = outer.get().get_global_var(name)
    # The parameters of the module are those of the caller as well.
    outer.update_func(var, copy_with_new_vars(outer.get()[var]))
    return var


def _exprs(value: Any) -> Any:
    from .core import expr_of

    return [_exprs(v) for v in value] if isinstance(value, (list, tuple)) else expr_of(value)
