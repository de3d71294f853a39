"""What the type parameters of a function stand for where it is used.

Each argument bounds the type parameters in the type of its parameter: from below where a value of
the parameter's type is passed, from above where a function takes one.  A type parameter stands for
the least common ancestor of its lower bounds; if it has none, for its upper bound, and if it has no
bound at all for `NeverType`.  Functions that have type parameters themselves are considered last,
when what they are applied to is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .adt import NEVER, RefType, TypeCall, invariant_params
from .expr import Call, FuncType, TupleType, Type, TypeVar, Var
from .infer import INSTANTIATE, erase_type, substitute_type_vars, type_free_vars, type_lca

__all__ = ["instantiate"]


class _Bounds:
    """The bounds of type parameters."""

    def __init__(self, type_params: Iterable[TypeVar]) -> None:
        self._params = tuple(type_params)
        self._own = frozenset(self._params)
        self._lower: dict[TypeVar, Type] = {}
        self._upper: dict[TypeVar, Type] = {}

    def add(self, param: Any, arg: Any, is_lower: bool = True) -> None:
        """Take bounds from an argument of type `arg` for a parameter of type `param`.  What does
        not fit at all is left to the check of the argument."""
        kind = type(param)
        if kind is TypeVar and param in self._own:
            bounds = self._lower if is_lower else self._upper
            known = bounds.get(param)
            if known is None:
                bounds[param] = arg
            elif is_lower:
                bounds[param] = type_lca(known, arg)
        elif kind is not type(arg):
            return
        elif kind is TypeCall:
            if param.func.name_hint == arg.func.name_hint and len(param.args) == len(arg.args):
                both = invariant_params(param.func)
                for position, (p, a) in enumerate(zip(param.args, arg.args, strict=True)):
                    self.add(p, a, is_lower)
                    if position in both:
                        self.add(p, a, not is_lower)
        elif kind is TupleType:
            if len(param.fields) == len(arg.fields):
                for p, a in zip(param.fields, arg.fields, strict=True):
                    self.add(p, a, is_lower)
        elif kind is RefType:
            self.add(param.value, arg.value, is_lower)
            self.add(param.value, arg.value, not is_lower)
        elif kind is FuncType:
            self._add_function(param, arg, is_lower)

    def _add_function(self, param: FuncType, arg: FuncType, is_lower: bool) -> None:
        if param.params is None or arg.params is None or len(param.params) != len(arg.params):
            return
        if arg.type_params:
            arg = _instance_for(arg, [self.substitute(p) for p in param.params])
        assert arg.params is not None
        own = {v for p in arg.params for v in type_free_vars(p)}
        for p, a in zip(param.params, arg.params, strict=True):
            self.add(p, _without(a, own), not is_lower)
        self.add(param.ret, _without(arg.ret, own), is_lower)

    def solution(self) -> dict[TypeVar, Type]:
        """What each type parameter stands for."""
        return {p: self._lower.get(p, self._upper.get(p, NEVER)) for p in self._params}

    def substitute(self, ty: Type) -> Type:
        """A type in which what is known of the type parameters replaces them."""
        found: Type = substitute_type_vars(ty, self.solution())
        return found


def _without(ty: Type, variables: set[Var]) -> Type:
    """A type without the symbolic variables of a function's own signature."""
    if not variables:
        return ty
    found: Type = erase_type(ty, lambda v: v not in variables)
    return found


def _instance_for(function: FuncType, args: Iterable[Type]) -> FuncType:
    """The type of a function with type parameters, applied to arguments of these types."""
    assert function.params is not None
    bounds = _Bounds(function.type_params)
    pairs = list(zip(function.params, args, strict=True))
    for is_generic in (False, True):
        for param, arg in pairs:
            if (isinstance(arg, FuncType) and bool(arg.type_params)) is is_generic:
                bounds.add(param, arg)
    return instantiate(function, bounds.solution().values())


def instantiate(function: FuncType, type_args: Iterable[Type]) -> FuncType:
    """Return the type of a function with its type parameters replaced by type arguments.

    Raises:
        TypeError: there are not as many as type parameters.
    """
    args = tuple(type_args)
    count = len(function.type_params)
    if len(args) != count:
        raise TypeError(f"{function}: expected {count} type arguments, got {len(args)}")
    known = dict(zip(function.type_params, args, strict=True))
    params = function.params
    return FuncType(
        None if params is None else [substitute_type_vars(p, known) for p in params],
        substitute_type_vars(function.ret, known),
        function.purity,
        function.span,
    )


def _of_call(call: Call, function: FuncType) -> FuncType:
    """The type of the callee in a call: by its type arguments if it has any, else by the types of
    the arguments."""
    assert function.params is not None
    if call.ty_args:
        return instantiate(function, call.ty_args)
    if len(call.args) != len(function.params):
        return instantiate(function, [NEVER] * len(function.type_params))  # refused by the caller
    return _instance_for(function, [arg.ty for arg in call.args])


def _of_expected(function: FuncType, expected: FuncType) -> FuncType:
    """The type of a function where a function of type `expected` is required."""
    if function.params is None or expected.params is None or len(function.params) != len(
        expected.params
    ):  # fmt: skip
        return instantiate(function, [NEVER] * len(function.type_params))
    return _instance_for(function, expected.params)


INSTANTIATE["call"] = _of_call
INSTANTIATE["function"] = _of_expected
