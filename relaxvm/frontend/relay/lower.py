"""Typed Relay programs as modules of relaxvm.

Every operation is bound to a variable, in order (A-normal form).  A ``?`` in the type of a
parameter is a symbolic dimension of its own; elsewhere only the rank is known.  Where the type that
Relay infers says more than the one that follows from relaxvm's rules, a match_cast checks it.
"""

from __future__ import annotations

import keyword
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ... import op
from ...core.checkpoints import checkpoint
from ...dtypes import as_dtype, dtype_name
from ...errors import UnreachableClauseWarning, did_you_mean
from ...ir import (
    ANY,
    NEVER,
    BlockBuilder,
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    FuncType,
    GlobalTypeVar,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeVar,
    Var,
    VarBinding,
    constant_of,
    is_base_of,
    pattern_text,
    pattern_vars,
    unreachable_clauses,
)
from . import syntax
from .infer import Annotations
from .operators import OPERATORS, apply
from .scopes import Definitions
from .source import Place
from .types import DataTy, FuncTy, Param, RefTy, TensorTy, TupleTy, Ty, resolved, show

__all__ = ["lower"]

_LONG: Final = 16
"""The most parts of a dimension that is not named."""
_NOT_IN_NAMES: Final = re.compile(r"\W")
_NO_FIELDS: Final = re.compile(r"(\w)\(\)")


def lower(
    definitions: Definitions, public: Iterable[str], params: Mapping[str, Any]
) -> IRModule:
    """Return a program whose types are inferred as a module.

    Args:
        definitions: the functions and data types of the program.
        public: the names of those that can be called from outside.
        params: values of parameters of ``@main`` by name; they become constants.

    Raises:
        ParseError: an operator refuses an operand, a match is not exhaustive, or a parameter has
            another type.
        ValueError: there is no parameter of a name.
    """
    return _Lowering(definitions, frozenset(public), params).run()


class _Names:
    """Names as a script can have them; each is unique."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        """Name -> the number to try next for one that is equal."""

    def of(self, name: str) -> str:
        """A name for one of Relay, the same where possible."""
        checkpoint()
        found = plain = plain_name(name)
        number = self._next.get(plain, 0)
        while found in self._next:
            number += 1
            found = f"{plain}_{number}"
        if number:
            self._next[plain] = number
        self._next[found] = 0
        return found


def plain_name(name: str) -> str:
    """A name of Relay as an identifier of Python."""
    plain = _NOT_IN_NAMES.sub("_", name)
    return f"{plain}_" if keyword.iskeyword(plain) or plain in ("R", "T", "I") else plain


class _Lowering:
    def __init__(
        self, definitions: Definitions, public: frozenset[str], params: Mapping[str, Any]
    ) -> None:
        self._functions = list(definitions.functions.values())
        self._definitions = definitions
        self._public = public
        self._given = params
        self._is_pure = not any(_has_refs(func.function) for func in self._functions)
        self._builder = BlockBuilder()
        self._globals: dict[str, GlobalVar] = {}
        self._values: dict[syntax.Binder | syntax.Bind, Expr] = {}
        self._types: dict[str, GlobalTypeVar] = {}
        self._constructors: dict[str, Constructor] = {}
        self._type_vars: dict[Param, TypeVar] = {}

    def run(self) -> IRModule:
        """The module."""
        module = IRModule()
        for data in self._data_types():
            module.add_type(data)
        names = _Names()
        params: dict[str, list[Var]] = {}
        for func in self._functions:
            params[func.name] = self._params(func)
            ret = self._type(func.ty.ret)
            ty = FuncType([p.ty for p in params[func.name]], ret, self._is_pure,
                          type_params=self._type_params(func.ty))  # fmt: skip
            self._globals[func.name] = GlobalVar(names.of(func.name), ty)
        for func in self._functions:
            checkpoint()
            var = self._globals[func.name]
            attrs = {"global_symbol": var.name_hint} if func.name in self._public else {}
            made = self._function(func.function, params[func.name], attrs)
            module[var] = made
            source = func.place.source
            module.sources[source.file] = source.text
        return module

    # Data types

    def _data_types(self) -> list[TypeData]:
        types = self._definitions.types
        names = _Names()
        self._types = {name: GlobalTypeVar(names.of(name)) for name in types}
        made = []
        for name, definition in types.items():
            known = {param: Param(param) for param in definition.params}
            type_vars = [self._type_var(param) for param in known.values()]
            reader = Annotations(self._definitions, known, holes=False)
            for each in definition.constructors:
                fields = [self._type(reader.read(field)) for field in each.fields]
                self._constructors[each.name] = Constructor(
                    plain_name(each.name), fields, self._types[name], each.place.span
                )
            constructors = [self._constructors[each.name] for each in definition.constructors]
            made.append(TypeData(self._types[name], type_vars, constructors,
                                 definition.place.span))  # fmt: skip
        return made

    # Types

    def _type_var(self, param: Param) -> TypeVar:
        found = self._type_vars.get(param)
        if found is None:
            found = self._type_vars[param] = TypeVar(plain_name(param.name))
        return found

    def _type_params(self, ty: FuncTy) -> list[TypeVar]:
        return [self._type_var(param) for param in ty.type_params]

    def _type(self, ty: Ty, symbolic: bool = False, unknown: Type = ANY) -> Type:
        """A type.

        Args:
            symbolic: whether unknown dimensions of tensors are variables.
            unknown: what a type is that could be any.
        """
        found = resolved(ty)
        if isinstance(found, TensorTy):
            if None not in found.shape:
                return TensorType(found.shape, found.dtype)
            if not symbolic:
                return TensorType(None, found.dtype, ndim=len(found.shape))
            dims = [Var(f"d{i}", "int64") if d is None else d for i, d in enumerate(found.shape)]
            return TensorType(dims, found.dtype)
        if isinstance(found, TupleTy):
            return TupleType([self._type(field, symbolic, unknown) for field in found.fields])
        if isinstance(found, FuncTy):
            params = [self._type(param) for param in found.params]
            return FuncType(params, self._type(found.ret), self._is_pure,
                            type_params=self._type_params(found))  # fmt: skip
        if isinstance(found, DataTy):
            args = [self._type(arg, False, NEVER) for arg in found.args]
            return TypeCall(self._types[found.definition.name], args)
        if isinstance(found, RefTy):
            return RefType(self._type(found.value))
        return self._type_var(found) if isinstance(found, Param) else unknown

    def _fit(self, value: Expr, ty: Ty, place: Place) -> Expr:
        """A value as one of a type that says more than its own."""
        wanted = self._type(ty)
        if value.ty is None:
            value = self._emit(value, "", place)
        checked = _has_unchecked_dims(ty, value.ty)
        if checked or (_is_cast(wanted) and not is_base_of(wanted, value.ty)):
            symbolic = self._type(ty, True) if checked or isinstance(wanted, TensorType) else wanted
            if isinstance(symbolic, TensorType) and isinstance(value.ty, TensorType):
                symbolic = _with_known_dims(symbolic, value.ty)
            try:
                return self._builder.match_cast(value, symbolic, span=place.span)
            except TypeError as error:
                place.fail(str(error))
        return value

    def _with_dims(self, value: Expr, ty: Ty, place: Place) -> Expr:
        """An operand of an operator: if only the rank of a tensor is known, with dimensions that
        have names, so that the operator can allocate its result.  A dimension that is computed by a
        long expression gets a name, too: in Relay it is ``?``, and such expressions can double with
        every operation."""
        found = resolved(ty)
        if isinstance(value, Tuple) and isinstance(found, TupleTy):
            return Tuple([
                self._with_dims(field, field_ty, place)
                for field, field_ty in zip(value.fields, found.fields, strict=True)
            ])  # fmt: skip
        known = value.ty
        if isinstance(found, TupleTy) and isinstance(known, TupleType) and any(
            isinstance(field, TensorType) and (field.dims is None or any(map(_is_long, field.dims)))
            for field in known.fields
        ):  # fmt: skip
            return Tuple([
                self._with_dims(self._emit(TupleGetItem(value, i), "", place), field, place)
                for i, field in enumerate(found.fields)
            ])  # fmt: skip
        if not isinstance(found, TensorTy) or not isinstance(known, TensorType):
            return value
        if known.dims is None:
            return self._builder.match_cast(value, self._type(found, True), span=place.span)
        if any(map(_is_long, known.dims)):
            dims = [Var(f"d{i}", "int64") if _is_long(d) else d for i, d in enumerate(known.dims)]
            return self._cast(value, TensorType(dims, known.dtype), place)
        return value

    def _cast(self, value: Expr, ty: TensorType, place: Place) -> Expr:
        """A tensor with other dimensions, which are checked when the program runs."""
        if not isinstance(value, Var):
            value = self._emit(value, "", place)
        return self._builder.match_cast(value, ty, span=place.span)

    # Functions

    def _params(self, func: syntax.FunctionDef) -> list[Var]:
        """The parameters of a function of the program that are not given as constants."""
        is_main = func.name == "main"
        params = []
        names = _Names()
        known = [param.name for param in func.function.params]
        if is_main:
            for name in self._given:
                if name not in known:
                    raise ValueError(f"params: @main has no parameter {name!r}"
                                     f"{did_you_mean(name, known)}")  # fmt: skip
        for param in func.function.params:
            if is_main and param.name in self._given:
                self._values[param] = self._given_value(param)
                continue
            var = Var(names.of(param.name), self._type(param.ty, True), param.place.span)
            self._values[param] = var
            params.append(var)
        return params

    def _given_value(self, param: syntax.Binder) -> Constant:
        array = np.asarray(self._given[param.name])
        ty = resolved(param.ty)
        if not isinstance(ty, TensorTy) or as_dtype(ty.dtype) != array.dtype or (
            len(ty.shape) != array.ndim or any(
                wanted not in (None, got) for wanted, got in zip(ty.shape, array.shape, strict=True)
            )
        ):  # fmt: skip
            param.place.fail(f"params: %{param.name}: expected {show(ty)}, got a tensor "
                             f"{list(array.shape)} of {dtype_name(array.dtype)}")  # fmt: skip
        return constant_of(array)

    def _function(
        self, func: syntax.Function, params: Sequence[Var], attrs: Mapping[str, Any]
    ) -> Function:
        self._builder.begin_scope(params)
        result = self._fit(self._leaf(func.body), func.ty.ret, func.body.result.place)
        body = self._builder.end_scope(result)
        ret = self._type(func.ty.ret)
        span = func.place.source.span(func.place.start, func.place.end)
        return Function(params, body, ret, self._is_pure, attrs, span,
                        type_params=self._type_params(func.ty))  # fmt: skip

    def _local_function(self, func: syntax.Function) -> Function:
        """A local function.  Its type has no symbolic dimensions, as the types of the values of
        other functions: any function of equal rank can be in its place."""
        names = _Names()
        params = []
        for param in func.params:
            var = Var(names.of(param.name), self._type(param.ty), param.place.span)
            self._values[param] = var
            params.append(var)
        return self._function(func, params, {})

    # Expressions

    def _emit(self, value: Expr, name: str, place: Place) -> Var:
        try:
            return self._builder.emit(value, plain_name(name), place.span)
        except (TypeError, ValueError, IndexError) as error:
            place.fail(self._as_written(str(error)))

    def _leaf(self, expr: syntax.Expr, name: str = "") -> Expr:
        """An expression as a variable, constant, function, or tuple of these."""
        value = self._expr(expr, name)
        if isinstance(value, (Call, If, Match, TupleGetItem, Function)):
            return self._emit(value, name, expr.place)
        return value

    def _expr(self, expr: syntax.Expr, name: str = "") -> Expr:
        if isinstance(expr, (syntax.Constant, syntax.MetaRef)):
            assert expr.data is not None
            return constant_of(expr.data)
        if isinstance(expr, syntax.LocalName):
            assert expr.target is not None
            return self._values[expr.target]
        if isinstance(expr, syntax.GraphName):
            assert expr.target is not None
            return self._values[expr.target]
        if isinstance(expr, syntax.GlobalName):
            return self._globals[expr.name]
        if isinstance(expr, syntax.Name):
            if expr.target is None:
                return self._operator(expr)
            made = self._constructors[expr.name]
            return made if expr.target.fields else Call(made, [], span=expr.place.span)
        if isinstance(expr, syntax.Tuple):
            return Tuple([self._leaf(field) for field in expr.fields])
        if isinstance(expr, syntax.Project):
            value = self._leaf(expr.value)
            return value.fields[expr.index] if isinstance(value, Tuple) else (
                TupleGetItem(value, expr.index))  # fmt: skip
        if isinstance(expr, syntax.Call):
            return self._call(expr)
        if isinstance(expr, syntax.Function):
            return self._local_function(expr)
        if isinstance(expr, syntax.Block):
            return self._block(expr, name)
        if isinstance(expr, syntax.RefOp):
            return self._ref_op(expr)
        if isinstance(expr, syntax.Match):
            return self._match(expr)
        assert isinstance(expr, syntax.If)
        return self._if(expr)

    def _block(self, block: syntax.Block, name: str = "") -> Expr:
        for statement in block.statements:
            checkpoint()
            value = statement.value
            if isinstance(statement, syntax.Bind):
                self._values[statement] = self._leaf(value)
            elif not isinstance(statement, syntax.Let):
                self._leaf(value)
            elif isinstance(value, syntax.Function):
                self._let_function(statement, value)
            else:
                leaf = self._leaf(value, statement.var.name)
                self._values[statement.var] = self._fit(leaf, statement.var.ty, statement.place)
        return self._expr(block.result, name)

    def _let_function(self, let: syntax.Let, func: syntax.Function) -> None:
        name = self._builder.get_unique_name(plain_name(let.var.name))
        var = Var(name, self._type(func.ty), let.place.span)
        self._values[let.var] = var
        made = self._local_function(func)
        var.ty = made.ty
        self._builder.emit_normalized(VarBinding(var, made, let.place.span))

    def _operator(self, expr: syntax.Name) -> Expr:
        """An operator as a value: a function that calls it."""
        ty = resolved(expr.ty)
        assert isinstance(ty, FuncTy)
        params = [Var(f"x{i}", self._type(param)) for i, param in enumerate(ty.params)]
        self._builder.begin_scope(params)
        args = [
            self._with_dims(param, param_ty, expr.place)
            for param, param_ty in zip(params, ty.params, strict=True)
        ]
        result = self._fit(self._applied(expr, args, {}, expr.place), ty.ret, expr.place)
        body = self._builder.end_scope(result)
        return Function(params, body, self._type(ty.ret), self._is_pure, {}, expr.place.span)

    def _applied(
        self, name: syntax.Name, args: Sequence[Expr], attrs: Mapping[str, Any], place: Place
    ) -> Expr:
        try:
            return apply(name.name, args, attrs, lambda x, ty: self._cast(x, ty, place))
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            place.fail(f"operator {name.name}: {error}")

    def _call(self, expr: syntax.Call) -> Expr:
        callee = expr.callee
        if isinstance(callee, syntax.Name) and callee.target is None:
            args = [self._with_dims(self._leaf(arg), arg.ty, arg.place) for arg in expr.args]
            found = OPERATORS[callee.name]
            assert len(args) == found.arity
            value = self._applied(callee, args, expr.attrs, expr.place)
            return value if isinstance(value, (Var, Constant)) else (
                self._emit(value, "", expr.place) if not isinstance(value, Tuple) else value)
        function = self._leaf(callee)
        if isinstance(function, Var) and isinstance(callee, syntax.Name) and not expr.args:
            return function  # Nil()
        ty = resolved(callee.ty)
        assert isinstance(ty, FuncTy)
        args = [
            self._fit(self._leaf(arg), param, arg.place)
            for arg, param in zip(expr.args, ty.params, strict=True)
        ]
        if isinstance(callee, syntax.GlobalName) and callee.name == "main" and self._given:
            known = callee.target.function.params if callee.target else ()
            args = [a for a, p in zip(args, known, strict=True) if p.name not in self._given]
        type_args: list[Type] = []
        if isinstance(callee, (syntax.GlobalName, syntax.LocalName)):
            type_args = [self._type(arg, False, NEVER) for arg in callee.instance]
        return Call(function, args, None, type_args, span=expr.place.span)

    def _if(self, expr: syntax.If) -> Expr:
        cond = self._leaf(expr.cond)
        branches = []
        for block in (expr.then, expr.orelse):
            self._builder.begin_scope()
            result = self._fit(self._leaf(block), expr.ty, block.result.place)
            branches.append(self._builder.end_scope(result))
        then, orelse = branches
        return If(cond, then, orelse, span=expr.place.span)


    def _ref_op(self, expr: syntax.RefOp) -> Expr:
        args = [self._leaf(arg) for arg in expr.args]
        if expr.name == "ref":
            args = [self._as(args[0], expr.args[0])]
        made: Expr = _REF_OPS[expr.name](*args)
        return made

    def _as(self, value: Expr, expr: syntax.Expr) -> Expr:
        """A value as a variable of its type in Relay, if that is a supertype: a reference to an
        empty list can hold other lists, and the patterns of a match are of this type."""
        wanted = self._type(expr.ty)
        if value.ty is None:
            value = self._emit(value, "", expr.place)
        if is_base_of(value.ty, wanted) or not is_base_of(wanted, value.ty):
            return value
        var = Var(self._builder.get_unique_name("gv"), wanted, expr.place.span)
        self._builder.emit_normalized(VarBinding(var, value, expr.place.span))
        return var

    def _match(self, expr: syntax.Match) -> Expr:
        data = self._as(self._leaf(expr.value), expr.value)
        clauses = []
        for clause in expr.clauses:
            pattern = self._pattern(clause.pattern)
            self._builder.begin_scope(pattern_vars(pattern))
            result = self._fit(self._leaf(clause.body), expr.ty, clause.body.result.place)
            body = self._builder.end_scope(result)
            clauses.append(Clause(pattern, body, None, clause.place.span))
        for position in unreachable_clauses(clauses):
            span = expr.clauses[position].pattern.place.span
            warnings.warn_explicit(
                f"the clause {self._as_written(pattern_text(clauses[position].lhs))} is never "
                "reached: the clauses before it match all that it does",
                UnreachableClauseWarning, span.file, span.line,
            )  # fmt: skip
        made = Match(data, clauses, expr.complete, span=expr.place.span)
        return self._emit(made, "", expr.place)

    def _pattern(self, pattern: syntax.Pattern) -> Pattern:
        span = pattern.place.span
        if isinstance(pattern, syntax.VarPattern):
            var = Var(plain_name(pattern.var.name), self._type(pattern.var.ty), span)
            self._values[pattern.var] = var
            return PatternVar(var, span)
        if isinstance(pattern, syntax.TuplePattern):
            return PatternTuple([self._pattern(inner) for inner in pattern.fields], span)
        if isinstance(pattern, syntax.ConstructorPattern):
            fields = [self._pattern(inner) for inner in pattern.fields]
            return PatternConstructor(self._constructors[pattern.name], fields, span)
        return PatternWildcard(span)

    def _as_written(self, message: str) -> str:
        """A message of relaxvm, with the constructors as in Relay: without their type, and without
        parentheses if they have no fields."""
        for name in self._types:
            message = message.replace(f"{name}.", "")
        return _NO_FIELDS.sub(r"\1", message)


_REF_OPS: Final[dict[str, Any]] = {
    "ref": op.ref,
    "ref_read": op.ref_read,
    "ref_write": op.ref_write,
}


def _has_unchecked_dims(ty: Ty, known: Any) -> bool:
    """Whether a type of Relay has dimensions that do not follow from a value's type, beside some
    that are ``?``: the types of relaxvm have all dimensions or none."""
    found = resolved(ty)
    if isinstance(found, TupleTy) and isinstance(known, TupleType):
        parts = zip(found.fields, known.fields, strict=False)
        return _is_cast(known) and any(_has_unchecked_dims(a, b) for a, b in parts)
    if not isinstance(found, TensorTy) or not isinstance(known, TensorType):
        return False
    if None not in found.shape or known.ndim != len(found.shape):
        return False
    if known.dims is None:
        return any(dim is not None for dim in found.shape)
    return any(
        wanted is not None and not (isinstance(dim, IntImm) and dim.value == wanted)
        for wanted, dim in zip(found.shape, known.dims, strict=True)
    )


def _with_known_dims(ty: TensorType, known: TensorType) -> TensorType:
    """A type whose symbols are the dimensions of another one of its rank."""
    if ty.dims is None or known.dims is None or len(ty.dims) != len(known.dims):
        return ty
    pairs = zip(ty.dims, known.dims, strict=True)
    return TensorType([a if isinstance(a, IntImm) else b for a, b in pairs], ty.dtype)


def _is_long(dim: Expr) -> bool:
    return dim.sum_of_parts() > _LONG


def _is_cast(ty: Any) -> bool:
    """Whether a value can be checked to be of a type when the program runs."""
    if isinstance(ty, TupleType):
        return bool(ty.fields) and all(map(_is_cast, ty.fields))
    return isinstance(ty, (TensorType, FuncType))


def _has_refs(function: syntax.Function) -> bool:
    work: list[Any] = [function]
    while work:
        node = work.pop()
        if isinstance(node, syntax.RefOp):
            return True
        work += syntax.parts_of(node)
    return False
