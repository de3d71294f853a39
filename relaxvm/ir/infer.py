"""Types of expressions: inference, the subtype relation, least common ancestor, erasure.

`infer_type` fills in the types of an expression and its subexpressions.  In a call of a function,
the types of the arguments bind the symbolic variables of the callee's signature.  What cannot be
expressed in the caller's variables is erased: of a shape only the rank remains.

Source: the rules of Relax in apache-tvm 0.27 (StructInfoBaseCheck, StructInfoLCA,
EraseToWellDefined).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from ..errors import TypeSizeError
from .adt import (
    NEVER,
    Constructor,
    Match,
    NeverType,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefType,
    TypeCall,
    invariant_params,
    pattern_vars,
)
from .arith import free_vars, prove_equal, substitute
from .coverage import missing_patterns, pattern_text
from .equality import structural_equal
from .expr import (
    ANY,
    AnyType,
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IntImm,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    TypeVar,
    Var,
)
from .nesting import has_headroom, headroom
from .node import class_table
from .op import Op
from .prim import Cast, cast

__all__ = [
    "DERIVE",
    "BaseCheckResult",
    "UntypedVariable",
    "base_check",
    "bind_pattern",
    "bind_type",
    "check_exhaustive",
    "declared_ret_type",
    "dimensions",
    "erase_type",
    "field_types",
    "function_ret_type",
    "get_shape_of",
    "infer_type",
    "is_base_of",
    "seq_defines",
    "substitute_type",
    "substitute_type_vars",
    "type_free_vars",
    "type_lca",
    "type_of_call",
]


class BaseCheckResult(IntEnum):
    """The degree to which one type is a subtype of another; see `base_check`."""

    FAIL_L0 = 0
    """No value has both types."""
    FAIL_L1 = 1
    """Some values do: a match_cast is required."""
    FAIL_L2 = 2
    """Only dimensions may differ; they are checked at run time."""
    PASS = 3
    """Every value of the derived type has the base type."""


_FAIL_L0, _FAIL_L1, _FAIL_L2, _PASS = BaseCheckResult


Prove = Callable[[Expr, Expr], bool]
"""Checks whether two dimensions are provably equal."""


def base_check(base: Any, derived: Any, prove: Prove = prove_equal) -> BaseCheckResult:
    """Check whether every value of type `derived` also has type `base`.  `prove` compares the
    dimensions of tensors, shapes and tuples of them, called with those of `base` first."""
    if base is derived:
        return _PASS
    kind = type(base)
    if kind is AnyType or type(derived) is NeverType:
        return _PASS
    if type(derived) is AnyType:
        return _FAIL_L1
    if kind is not type(derived):
        return _FAIL_L0
    if kind is TensorType:
        return _check_tensor(base, derived, prove)
    if kind is PrimType:
        return _PASS if base.dtype == derived.dtype else _FAIL_L0
    if kind is ShapeType:
        return _check_dims(base.values, base.ndim, derived.values, derived.ndim, prove)
    if kind is TupleType:
        if len(base.fields) != len(derived.fields):
            return _FAIL_L0
        return _weakest(
            [base_check(b, d, prove) for b, d in zip(base.fields, derived.fields, strict=True)]
        )
    if kind is FuncType:
        return _check_func(base, derived)
    if kind is TypeCall:
        return _check_type_call(base, derived, prove)
    if kind is RefType:
        return _check_same(base.value, derived.value, prove)
    return _FAIL_L0


def _check_type_call(base: TypeCall, derived: TypeCall, prove: Prove) -> BaseCheckResult:
    if base.func.name_hint != derived.func.name_hint or len(base.args) != len(derived.args):
        return _FAIL_L0
    invariant = invariant_params(base.func)
    return _weakest([
        (_check_same if position in invariant else base_check)(b, d, prove)
        for position, (b, d) in enumerate(zip(base.args, derived.args, strict=True))
    ])  # fmt: skip


def _check_same(base: Any, derived: Any, prove: Prove) -> BaseCheckResult:
    """Check the type of what is both read and written: each must be a subtype of the other.

    That is checked of the parts, since two checks at each level would take exponential time.  The
    parameters and the result of a function are not compared alone, so functions in references in
    functions are bounded.

    Raises:
        TypeSizeError: there are too many of these in each other.
    """
    kind = type(base)
    if base is derived:
        return _PASS
    if kind is type(derived):
        if kind is RefType:
            return _check_same(base.value, derived.value, prove)
        if kind is TupleType or kind is TypeCall:
            pairs = (base.fields, derived.fields) if kind is TupleType else (
                base.args, derived.args)  # fmt: skip
            known = kind is TupleType or base.func.name_hint == derived.func.name_hint
            if not known or len(pairs[0]) != len(pairs[1]):
                return _FAIL_L0
            return _weakest([_check_same(b, d, prove) for b, d in zip(*pairs, strict=True)])
    if kind is not FuncType:
        return min(base_check(base, derived, prove), base_check(derived, base, prove))
    if _SPLIT.levels >= _MOST_SPLITS:
        raise TypeSizeError(
            f"a type of references to functions of references and so on: expected at most "
            f"{_MOST_SPLITS} functions in each other"
        )
    _SPLIT.levels += 1
    try:
        return min(base_check(base, derived, prove), base_check(derived, base, prove))
    finally:
        _SPLIT.levels -= 1


class _Split(threading.local):
    """The checks of functions in both directions that are under way in this thread."""

    levels = 0


_SPLIT: Final = _Split()
_MOST_SPLITS: Final = 10


def is_base_of(base: Type, derived: Type) -> bool:
    """Check whether `derived` is provably a subtype of `base`."""
    return base_check(base, derived) is _PASS


def _weakest(results: Iterable[BaseCheckResult]) -> BaseCheckResult:
    return min(results, default=_PASS)


def _check_tensor(base: TensorType, derived: TensorType, prove: Prove) -> BaseCheckResult:
    result = _PASS
    if base.dtype is not None and base.dtype != derived.dtype:
        if derived.dtype is not None:
            return _FAIL_L0
        result = _FAIL_L1
    if base.vdevice is not None and base.vdevice is not derived.vdevice:
        other = derived.vdevice
        if other is None:
            result = min(result, _FAIL_L1)
        elif (base.vdevice.target, base.vdevice.vdevice_id, base.vdevice.memory_scope) != (
            other.target, other.vdevice_id, other.memory_scope):  # fmt: skip
            return _FAIL_L0
    if base.shape is None:
        if base.ndim in (-1, derived.ndim):
            return result
        return _FAIL_L0 if derived.ndim != -1 else min(result, _FAIL_L1)
    if base.shape is derived.shape:
        return result
    return min(result, _check_dims(base.dims, base.ndim, derived.dims, derived.ndim, prove))


def _check_dims(
    base: tuple[Expr, ...] | None,
    base_ndim: int,
    derived: tuple[Expr, ...] | None,
    ndim: int,
    prove: Prove,
) -> BaseCheckResult:
    if base_ndim == -1:
        return _PASS
    if ndim != base_ndim:
        return _FAIL_L1 if ndim == -1 else _FAIL_L0
    if base is None or base is derived:
        return _PASS
    if derived is None:
        return _FAIL_L2
    return _weakest([_check_dim(b, d, prove) for b, d in zip(base, derived, strict=True)])


def _check_dim(a: Expr, b: Expr, prove: Prove = prove_equal) -> BaseCheckResult:
    if a is b or prove(a, b):
        return _PASS
    return _FAIL_L0 if type(a) is IntImm and type(b) is IntImm else _FAIL_L2


def _check_func(base: FuncType, derived: FuncType) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return _FAIL_L0
    if derived.type_params and not base.type_params:
        derived = INSTANTIATE["function"](derived, base)
    if base.params is None:
        if base.derive_func is not None and not _derive_alike(base, derived):
            return _FAIL_L1
        return base_check(base.ret, derived.ret)
    if derived.params is None:
        return _FAIL_L1
    if len(base.params) != len(derived.params):
        return _FAIL_L0
    variables: dict[Var, Expr] = {}
    result = _weakest(
        bind_type(theirs, ours, variables)
        for theirs, ours in zip(derived.params, base.params, strict=True)
    )
    return min(result, base_check(base.ret, substitute_type(derived.ret, variables)))


def _derive_alike(base: FuncType, derived: FuncType) -> bool:
    ours, theirs = base.derive_func, derived.derive_func
    return ours is not None and theirs is not None and ours.name == theirs.name


def bind_type(param: Any, arg: Any, variables: dict[Var, Expr]) -> BaseCheckResult:
    """Check whether an argument of type `arg` may be passed for a parameter of type `param`.  The
    symbolic variables of `param` are bound where they first appear and added to `variables`."""
    kind = type(param)
    if kind is AnyType or type(arg) is NeverType:
        return _PASS
    if type(arg) is AnyType:
        return _FAIL_L1
    if kind is not type(arg):
        # A PrimFunc may take a tensor by its handle.
        is_handle = kind is PrimType and param.dtype == "handle" and type(arg) is TensorType
        return _PASS if is_handle else _FAIL_L0
    if kind is TensorType:
        dims = param.dims
        if dims is None:
            return base_check(param, arg)
        unshaped = base_check(TensorType(None, param.dtype, param.vdevice, len(dims)), arg)
        if unshaped is _FAIL_L0:
            return _FAIL_L0
        return min(unshaped, _bind_dims(dims, arg.dims, variables))
    if kind is ShapeType:
        if param.values is None or arg.values is None:
            return base_check(param, arg)
        if len(param.values) != len(arg.values):
            return _FAIL_L0
        return _bind_dims(param.values, arg.values, variables)
    if kind is TupleType:
        if len(param.fields) != len(arg.fields):
            return _FAIL_L0
        return _weakest(
            bind_type(p, a, variables) for p, a in zip(param.fields, arg.fields, strict=True)
        )
    return base_check(param, arg)


def _bind_dims(
    params: tuple[Expr, ...], args: tuple[Expr, ...] | None, variables: dict[Var, Expr]
) -> BaseCheckResult:
    if args is None:
        return _FAIL_L2
    result = _PASS
    for param, arg in zip(params, args, strict=True):
        if isinstance(param, Var) and param not in variables:
            variables[param] = arg
            continue
        inner = param.value if isinstance(param, Cast) else None
        if isinstance(inner, Var) and inner not in variables:
            variables[inner] = cast(arg, inner.ty.dtype)  # a variable of a PrimFunc
            continue
        known = substitute(param, variables)
        result = min(result, _check_dim(known, arg))
    return result


def get_shape_of(expr: Expr) -> Expr:
    """Return the shape of a tensor as an expression: from its type, or a call of ``R.shape_of``.

    Raises:
        TypeError: not a tensor.
    """
    ty = expr.ty
    if type(ty) is not TensorType:
        raise TypeError(f"get_shape_of: {expr} is of type {ty}, expected a tensor")
    if ty.shape is not None:
        return ty.shape
    make: Any = Op.get("relax.shape_of").make
    shape: Expr = make(expr)
    return shape


def substitute_type(ty: Any, variables: Mapping[Var, Expr]) -> Any:
    """Return a type with symbolic variables replaced; the same object if none occurs."""
    if not variables:
        return ty
    kind = type(ty)
    if kind is TensorType:
        if ty.shape is None:
            return ty
        shape = _substitute_shape(ty.shape, variables)
        return ty if shape is ty.shape else TensorType(shape, ty.dtype, ty.vdevice, span=ty.span)
    if kind is ShapeType:
        if ty.values is None:
            return ty
        values = tuple([substitute(v, variables) for v in ty.values])
        return ty if _all_same(values, ty.values) else ShapeType(values, span=ty.span)
    if kind is TupleType:
        if variables.keys().isdisjoint(type_free_vars(ty)):
            return ty
        fields = tuple([substitute_type(f, variables) for f in ty.fields])
        return ty if _all_same(fields, ty.fields) else TupleType(fields, ty.span)
    if kind is FuncType and ty.params is not None:
        if variables.keys().isdisjoint(type_free_vars(ty)):
            return ty
        own = {v for p in ty.params for v in type_free_vars(p)}
        outer = {v: e for v, e in variables.items() if v not in own}
        ret = substitute_type(ty.ret, outer)
        return ty if ret is ty.ret else _with_ret(ty, ret)
    if kind is TypeCall or kind is RefType:
        if variables.keys().isdisjoint(type_free_vars(ty)):
            return ty
        return _map_args(ty, lambda arg: substitute_type(arg, variables))
    return ty


def _with_ret(ty: FuncType, ret: Type) -> FuncType:
    return FuncType(ty.params, ret, ty.purity, ty.span, type_params=ty.type_params,
                    derive_func=ty.derive_func)  # fmt: skip


def _map_args(ty: Any, convert: Callable[[Any], Any]) -> Any:
    """A `TypeCall` or a `RefType` with its arguments converted; the same if none changes."""
    if type(ty) is RefType:
        value = convert(ty.value)
        return ty if value is ty.value else RefType(value, ty.span)
    args = tuple([convert(arg) for arg in ty.args])
    return ty if _all_same(args, ty.args) else TypeCall(ty.func, args, ty.span)


def _substitute_shape(shape: Expr, variables: Mapping[Var, Expr]) -> Expr:
    if not isinstance(shape, ShapeExpr):
        return variables.get(shape, shape) if isinstance(shape, Var) else shape
    values = tuple([substitute(v, variables) for v in shape.values])
    return shape if _all_same(values, shape.values) else ShapeExpr(values, shape.span)


def _all_same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))


def type_free_vars(ty: Any) -> list[Var]:
    """Return the symbolic variables in a type, in order of first appearance."""
    found: dict[Var, None] = {}
    _collect(ty, found)
    return list(found)


def _collect(ty: Any, found: dict[Var, None]) -> None:
    kind = type(ty)
    if kind is TensorType or kind is ShapeType:
        dims = ty.dims if kind is TensorType else ty.values
        for dim in dims or ():
            if type(dim) is IntImm:
                continue
            if isinstance(dim, Var):
                found[dim] = None
            else:
                found.update(dict.fromkeys(free_vars(dim)))
        if kind is TensorType and isinstance(ty.shape, Var):
            found[ty.shape] = None
    elif kind in _COMPOUND:
        if ty._vars is None:  # cached, since types are shared
            ty._vars = _COMPOUND[kind](ty)
        found.update(ty._vars)


def _vars_of(types: Iterable[Type]) -> dict[Var, None]:
    found: dict[Var, None] = {}
    for ty in types:
        _collect(ty, found)
    return found


def _vars_of_function(ty: FuncType) -> dict[Var, None]:
    own: dict[Var, None] = {}
    for param in ty.params or ():
        _collect(param, own)
    found: dict[Var, None] = {}
    _collect(ty.ret, found)
    return {var: None for var in found if var not in own}


_COMPOUND: dict[type, Callable[[Any], dict[Var, None]]] = {
    TupleType: lambda ty: _vars_of(ty.fields),
    TypeCall: lambda ty: _vars_of(ty.args),
    RefType: lambda ty: _vars_of((ty.value,)),
    FuncType: _vars_of_function,
}
"""Types that contain others -> the symbolic variables in them."""


def dimensions(types: Iterable[Type]) -> Iterator[Var]:
    """Yield the variables that are a whole dimension of a tensor; their values are not negative."""
    for ty in types:
        if type(ty) is TupleType:
            yield from dimensions(ty.fields)
        elif type(ty) is TensorType:
            yield from (dim for dim in ty.dims or () if isinstance(dim, Var))


def erase_type(ty: Any, known: Callable[[Var], bool]) -> Any:
    """Return a type that mentions only variables for which `known` is true: a shape with any other
    variable is reduced to its rank."""
    kind = type(ty)
    if kind is TensorType:
        if ty.shape is None or all(map(known, type_free_vars(ty))):
            return ty
        return TensorType(None, ty.dtype, ty.vdevice, ty.ndim, ty.span)
    if kind is ShapeType:
        if ty.values is None or all(map(known, type_free_vars(ty))):
            return ty
        return ShapeType(ndim=ty.ndim, span=ty.span)
    if kind is TupleType:
        if all(map(known, type_free_vars(ty))):
            return ty
        fields = tuple([erase_type(f, known) for f in ty.fields])
        return ty if _all_same(fields, ty.fields) else TupleType(fields, ty.span)
    if kind is FuncType:
        own = {v for p in ty.params or () for v in type_free_vars(p)}
        ret = erase_type(ty.ret, lambda v: v in own or known(v))
        return ty if ret is ty.ret else _with_ret(ty, ret)
    if kind is TypeCall or kind is RefType:
        return _map_args(ty, lambda arg: erase_type(arg, known))
    return ty


def type_lca(lhs: Any, rhs: Any) -> Any:
    """Return the least common ancestor: the smallest type of which both are subtypes."""
    if lhs is rhs or is_base_of(lhs, rhs):
        return lhs
    if is_base_of(rhs, lhs):
        return rhs
    kind = type(lhs)
    if kind is not type(rhs):
        return ANY
    if kind is TensorType:
        shape = lhs.shape if _same_dims(lhs, rhs) else None
        return TensorType(
            shape,
            lhs.dtype if lhs.dtype == rhs.dtype else None,
            lhs.vdevice if lhs.vdevice is rhs.vdevice else None,
            lhs.ndim if shape is None and lhs.ndim == rhs.ndim else -1,
        )
    if kind is ShapeType:
        return ShapeType(ndim=lhs.ndim if lhs.ndim == rhs.ndim else -1)
    if kind is TupleType and len(lhs.fields) == len(rhs.fields):
        return TupleType(map(type_lca, lhs.fields, rhs.fields))
    if kind is FuncType:
        purity = lhs.purity and rhs.purity
        if lhs.type_params or rhs.type_params:
            return FuncType.opaque_func(purity=purity)
        if _derive_alike(lhs, rhs):
            return FuncType.opaque_func(derive_func=lhs.derive_func, purity=purity)
        if lhs.params is None or rhs.params is None or len(lhs.params) != len(rhs.params) or any(
            map(_differ, lhs.params, rhs.params)
        ):  # fmt: skip
            return FuncType.opaque_func(ret=type_lca(lhs.ret, rhs.ret), purity=purity)
        return FuncType(lhs.params, type_lca(lhs.ret, rhs.ret), purity)
    if (
        kind is TypeCall
        and lhs.func.name_hint == rhs.func.name_hint
        and len(lhs.args) == len(rhs.args)
    ):
        invariant = invariant_params(lhs.func)
        if any(_differ(lhs.args[position], rhs.args[position]) for position in invariant):
            return ANY
        return TypeCall(lhs.func, map(type_lca, lhs.args, rhs.args))
    return ANY


def _differ(a: Type, b: Type) -> bool:
    return not (is_base_of(a, b) and is_base_of(b, a))


def _same_dims(a: TensorType, b: TensorType) -> bool:
    x, y = a.dims, b.dims
    return x is not None and y is not None and len(x) == len(y) and all(map(prove_equal, x, y))


# Inference

INSTANTIATE: dict[str, Callable[[Any, FuncType], FuncType]] = {}
"""How the type parameters of a function are found: "call" for a call of it, "function" where a
value of another function type is expected.  Filled by `relaxvm.ir.instantiate`."""


DERIVE: dict[str, Callable[[Call, Any], Type]] = {}
"""How the `FuncType.derive_func` of a function finds the type of a call: "call".  Filled by
`relaxvm.ir.derive`."""


def infer_type(expr: Any, in_scope: Collection[Var] = ()) -> Any:
    """Infer the types of an expression and its subexpressions that have none; returns the
    expression.

    Args:
        in_scope: symbolic variables that are defined outside of the expression; they are kept in
            the type of a branch with a match_cast that mentions them.

    Raises:
        TypeError, ValueError: the expression is ill-typed.
    """
    if expr.ty is None:
        try:
            _infer(expr, in_scope)
        except RecursionError:
            if has_headroom():
                raise
            with headroom("type inference", expr):
                _infer(expr, in_scope)
    return expr


def _infer(expr: Any, in_scope: Collection[Var]) -> None:
    work = [expr]
    while work:
        inner = work[-1]
        untyped = [
            part for part in _operands(inner) if part.ty is None and not isinstance(part, Op)
        ]
        if untyped:
            work += reversed(untyped)
            continue
        work.pop()
        if inner.ty is None:
            _INFER.get(type(inner), _no_rule)(inner, in_scope)


def _operands(expr: Any) -> tuple[Any, ...]:
    """The operands that need a type before an expression can get one, of the nodes that may be
    nested deeply: calls in calls, tuples in tuples."""
    if isinstance(expr, Call):
        return expr.args if isinstance(expr.op, Op) else (expr.op, *expr.args)
    if isinstance(expr, Tuple):
        return expr.fields
    return (expr.tuple_value,) if isinstance(expr, TupleGetItem) else ()


class UntypedVariable(TypeError):
    """The type of an expression cannot be inferred, since a variable in it has none."""


def _no_rule(expr: Expr, in_scope: Collection[Var]) -> None:
    kind = UntypedVariable if isinstance(expr, Var) else TypeError
    raise kind(f"{type(expr).__name__} {expr} has no type")


def _infer_tuple(expr: Tuple, in_scope: Collection[Var]) -> None:
    expr.ty = TupleType([field.ty for field in expr.fields])


def _infer_tuple_getitem(expr: TupleGetItem, in_scope: Collection[Var]) -> None:
    ty = expr.tuple_value.ty
    if type(ty) is TupleType:
        if not 0 <= expr.index < len(ty.fields):
            raise IndexError(
                f"tuple {expr.tuple_value} has {len(ty.fields)} elements, index is {expr.index}"
            )
        expr.ty = ty.fields[expr.index]
    elif type(ty) is AnyType:
        expr.ty = ANY
    else:
        raise TypeError(f"{expr.tuple_value} is not a tuple: its type is {ty}")


def _infer_call(call: Call, in_scope: Collection[Var]) -> None:
    call.ty = type_of_call(call)


def type_of_call(call: Call) -> Type:
    """Return the type of a call whose arguments have types.

    Raises:
        TypeError, ValueError: the arguments do not match the callee's parameters.
    """
    op = call.op
    if isinstance(op, Op):
        return op.infer(call)
    if isinstance(op, ExternFunc):
        if len(call.ty_args) > 1:
            return TupleType(call.ty_args)
        if call.ty_args:
            return call.ty_args[0]
        if type(op.ty) is not FuncType or op.ty.params is not None:
            return ANY
    signature = infer_type(op).ty
    if type(signature) is not FuncType:
        raise TypeError(f"{op} is called, but is not a function: its type is {signature}")
    if signature.type_params and signature.params is not None:
        signature = INSTANTIATE["call"](call, signature)
    if signature.params is None:
        if signature.derive_func is not None and not call.ty_args:
            return DERIVE["call"](call, signature.derive_func)
        return call.ty_args[0] if call.ty_args else signature.ret
    return _type_of_function_call(call, signature, signature.params)


def _type_of_function_call(call: Call, signature: FuncType, params: tuple[Type, ...]) -> Type:
    name = _name_of(call.op)
    if len(params) != len(call.args):
        raise TypeError(
            f"{name}: expected {len(params)} argument{'s' * (len(params) != 1)}, "
            f"got {len(call.args)}"
        )
    variables: dict[Var, Expr] = {}
    for position, (param, arg) in enumerate(zip(params, call.args, strict=True)):
        check = bind_type(param, arg.ty, variables)
        if check <= _FAIL_L1:
            hint = "" if check is _FAIL_L0 else "; R.match_cast narrows it"
            raise TypeError(
                f"{name}: argument {position} is {arg} of type {arg.ty}, expected {param}{hint}"
            )
    mentioned = {v for p in params for v in type_free_vars(p)}
    ret = signature.ret
    if isinstance(call.op, GlobalVar):  # the caller knows the variables of parameters' types only
        mentioned.update(type_free_vars(ret))
    unknown = mentioned.difference(variables)
    if unknown:
        ret = erase_type(ret, lambda v: v not in unknown)
    return substitute_type(ret, variables)  # type: ignore[no-any-return]


def _name_of(op: Expr) -> str:
    return str(getattr(op, "name_hint", None) or op)


def _infer_if(expr: If, in_scope: Collection[Var]) -> None:
    cond = infer_type(expr.cond, in_scope).ty
    if not is_condition(cond):
        raise TypeError(
            f"the condition {expr.cond} of an If is of type {cond}; expected a bool scalar or a "
            "bool tensor of rank 0"
        )
    branches = [
        _type_outside(infer_type(branch, in_scope), in_scope)
        for branch in (expr.true_branch, expr.false_branch)
    ]
    expr.ty = type_lca(*branches)


def is_condition(ty: Any) -> bool:
    """Check whether a value of this type may be the condition of an `If`."""
    if type(ty) is PrimType:
        return bool(ty.dtype == "bool")
    if type(ty) is TensorType:
        return ty.dtype in (None, "bool") and ty.ndim in (-1, 0)
    return type(ty) is AnyType


def seq_defines(seq: SeqExpr) -> set[Var]:
    """Return the variables that a sequence may define and that its type may mention: symbolic
    variables of match_casts, and variables bound to scalars and shapes."""
    found: set[Var] = set()
    for block in seq.blocks:
        for binding in block.bindings:
            if isinstance(binding, MatchCast):
                found.update(type_free_vars(binding.ty))
            if type(binding.var.ty) in (PrimType, ShapeType):
                found.add(binding.var)
    return found


def _type_outside(seq: Any, in_scope: Collection[Var]) -> Any:
    if not type_free_vars(seq.ty):
        return seq.ty
    inner = seq_defines(seq).difference(in_scope)
    return erase_type(seq.ty, lambda v: v not in inner) if inner else seq.ty


def function_ret_type(params: Iterable[Var], body: Any, in_scope: Collection[Var] = ()) -> Any:
    """Return the result type of a function as its caller sees it: in terms of the symbolic
    variables in the parameters' types, and `in_scope`.  The parameters themselves are not part of
    the type of a function."""
    known = {v for p in params for v in type_free_vars(p.ty)}
    return erase_type(body.ty, lambda v: v in known or v in in_scope)


def declared_ret_type(declared: Any, params: Iterable[Var], body: Any) -> Any:
    """Return the declared result type of a function, or the inferred one if that is more precise.
    """
    inferred = function_ret_type(params, body)
    if not is_base_of(declared, inferred) or structural_equal(declared, inferred):
        return declared
    return inferred


def _infer_constructor(constructor: Constructor, in_scope: Collection[Var]) -> None:
    constructor.belong_to.definition[constructor.name_hint]  # gives it a type
    if constructor.ty is None:
        raise TypeError(
            f"constructor {constructor.qualified_name} is not the one of its data type's definition"
        )


def _infer_match(expr: Match, in_scope: Collection[Var]) -> None:
    data = infer_type(expr.data, in_scope).ty
    types: list[Any] = []
    for clause in expr.clauses:
        bind_pattern(clause.lhs, data)
        guard = clause.guard
        if guard is not None and not is_condition(infer_type(guard, in_scope).ty):
            raise TypeError(
                f"the guard {guard} of a clause is of type {guard.ty}; expected a bool scalar or a "
                "bool tensor of rank 0"
            )
        bound = pattern_vars(clause.lhs)
        rhs = infer_type(clause.rhs, in_scope)
        types.append(_without(_type_outside(rhs, in_scope), bound))
    if expr.complete:
        check_exhaustive(expr)
    expr.ty = NEVER if not types else types[0]
    for ty in types[1:]:
        expr.ty = type_lca(expr.ty, ty)


def _without(ty: Any, variables: Collection[Var]) -> Any:
    return erase_type(ty, lambda v: v not in variables) if variables else ty


def check_exhaustive(expr: Match) -> None:
    """Check that the clauses of a match cover every value.

    Raises:
        TypeError: they do not; lists the missing patterns.
    """
    missing = missing_patterns(expr.clauses, _MOST_MISSING + 1)
    if missing:
        shown = ", ".join(map(pattern_text, missing[:_MOST_MISSING]))
        more = " and others" if len(missing) > _MOST_MISSING else ""
        raise TypeError(f"the match is not exhaustive; it has no clause for {shown}{more}")


_MOST_MISSING: Final = 8


def bind_pattern(pattern: Pattern, ty: Any) -> None:
    """Give types to the variables of a pattern that a value of type `ty` is matched with.

    Raises:
        TypeError: no value of this type matches the pattern.
    """
    if isinstance(pattern, PatternVar):
        var = pattern.var
        if var.ty is None:
            var.ty = ty
        elif base_check(var.ty, ty) is _FAIL_L0:
            raise TypeError(f"pattern variable {var.name!r} of type {var.ty} is matched with a "
                            f"value of type {ty}")
    elif isinstance(pattern, PatternConstructor):
        for inner, field in zip(
            pattern.patterns, field_types(pattern.constructor, ty), strict=True
        ):
            bind_pattern(inner, field)
    elif isinstance(pattern, PatternTuple):
        count = len(pattern.patterns)
        if type(ty) is AnyType or type(ty) is NeverType:
            fields: tuple[Any, ...] = (ty,) * count
        elif type(ty) is TupleType and len(ty.fields) == count:
            fields = ty.fields
        else:
            raise TypeError(f"a pattern of a tuple of {count} elements never matches a value of "
                            f"type {ty}")
        for inner, field in zip(pattern.patterns, fields, strict=True):
            bind_pattern(inner, field)


def field_types(constructor: Constructor, ty: Any) -> tuple[Type, ...]:
    """Return the types of the fields that a constructor has in a value of type `ty`.

    Raises:
        TypeError: no value of this type is made by the constructor.
    """
    if constructor.tag < 0:
        raise TypeError(f"constructor {constructor.qualified_name} is not part of a TypeData")
    type_vars = constructor.belong_to.definition.type_vars
    if type(ty) is AnyType or type(ty) is NeverType:
        args: tuple[Type, ...] = (ty,) * len(type_vars)
    elif type(ty) is TypeCall and ty.func.name_hint == constructor.belong_to.name_hint:
        args = ty.args
    else:
        name = constructor.qualified_name
        raise TypeError(f"constructor {name} never makes a value of type {ty}")
    if len(args) != len(type_vars):
        raise TypeError(f"type {ty}: expected {len(type_vars)} type arguments, got {len(args)}")
    known = dict(zip(type_vars, args, strict=True))
    return tuple([substitute_type_vars(field, known) for field in constructor.inputs])


def substitute_type_vars(ty: Any, known: Mapping[TypeVar, Type]) -> Any:
    """Return a type with type parameters replaced; the same object if none occurs."""
    if not known:
        return ty
    kind = type(ty)
    if kind is TypeVar:
        return known.get(ty, ty)
    if kind is TypeCall or kind is RefType:
        return _map_args(ty, lambda arg: substitute_type_vars(arg, known))
    if kind is TupleType:
        fields = tuple([substitute_type_vars(f, known) for f in ty.fields])
        return ty if _all_same(fields, ty.fields) else TupleType(fields, ty.span)
    if kind is FuncType:
        inner = {v: t for v, t in known.items() if v not in ty.type_params}
        params = None if ty.params is None else tuple(
            [substitute_type_vars(p, inner) for p in ty.params])  # fmt: skip
        ret = substitute_type_vars(ty.ret, inner)
        if ret is ty.ret and (params is None or _all_same(params, ty.params)):
            return ty
        return FuncType(params, ret, ty.purity, ty.span, type_params=ty.type_params,
                        derive_func=ty.derive_func)  # fmt: skip
    return ty


def _infer_seq(seq: SeqExpr, in_scope: Collection[Var]) -> None:
    for block in seq.blocks:
        for binding in block.bindings:
            infer_type(binding.value, in_scope)
            if binding.var.ty is None:
                binding.var.ty = binding.ty if isinstance(binding, MatchCast) else binding.value.ty
    seq.ty = infer_type(seq.body, in_scope).ty


def _infer_function(func: Function, in_scope: Collection[Var]) -> None:
    infer_type(func.body, in_scope)
    func.ty = FuncType([p.ty for p in func.params], func.ret_ty, func.is_pure,
                       type_params=func.type_params)  # fmt: skip


def _infer_constant(constant: Constant, in_scope: Collection[Var]) -> None:
    constant.ty = Constant(constant.data).ty


def _infer_global_var(var: GlobalVar, in_scope: Collection[Var]) -> None:
    raise TypeError(f"function {var.name_hint!r} has no type yet: is it in a module?")


_INFER: dict[type, Callable[[Any, Collection[Var]], None]] = class_table({
    Tuple: _infer_tuple,
    TupleGetItem: _infer_tuple_getitem,
    Call: _infer_call,
    If: _infer_if,
    Match: _infer_match,
    Constructor: _infer_constructor,
    SeqExpr: _infer_seq,
    Function: _infer_function,
    Constant: _infer_constant,
    GlobalVar: _infer_global_var,
})  # fmt: skip
