"""Evaluation of the Python expressions of a script, on values of Python and of the IR.

A tree walk is several times faster than compiling every expression separately, and knows the source
location of an error.  Expressions that are rare in scripts (comprehensions, lambdas, formatted
strings) are compiled and evaluated by Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NoReturn

from ..core import checkpoints
from ..errors import DiagnosticError, did_you_mean
from ..ir import prim
from ..ir.adt import Constructor
from ..ir.expr import (
    SCALAR_OPERATORS,
    Call,
    Constant,
    Expr,
    GlobalVar,
    PrimType,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    convert_to_expr,
)
from ..ir.infer import infer_type
from .earlier import today
from .scope import MISSING, Scope
from .source import Source
from .type_forms import types_of

__all__ = ["Evaluator"]

_BINARY: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}

_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

_SCALAR_COMPARE: Final = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}

_UNARY: Final[dict[type, Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}

_PLAIN: Final = (TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""Errors whose message is clear without the name of their class."""

_SPANNED: Final = frozenset({Call, Tuple, TupleGetItem, ShapeExpr, Constant})
"""Classes of expressions of which each occurrence is a new object and so has its own span."""


_METADATA: Final = (
    ": TVM leaves constants out of the text that it prints; pass them as extra_vars={'metadata': "
    "{'ir.GenericConst': [arrays]}}"
)


class Evaluator:
    """Evaluates expressions of one source in a scope."""

    __slots__ = ("scope", "source")

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    def eval(self, node: Any) -> Any:
        """Return the value of an expression.

        Raises:
            DiagnosticError: the evaluation failed; points to the subexpression that did.
        """
        if checkpoints.running:
            checkpoints.checkpoint()
        method = _METHODS.get(type(node))
        return self._eval_in_python(node) if method is None else method(self, node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        name = node.id
        found = self.scope.vars.get(name, MISSING)
        if found is not MISSING:
            return found
        found = self.scope.get(name)
        if found is MISSING:
            self.undefined(node, name)
        return found

    def undefined(self, node: Any, name: str) -> NoReturn:
        """Raise the error for an undefined name."""
        why = self.scope.out_of_scope.get(name)
        if why is not None:
            hint = f": it was defined {why}"
        elif name == "metadata":
            hint = _METADATA
        else:
            hint = today("", name) or did_you_mean(
                name, [*self.scope.vars, *self.scope.outside]
            )
            if not hint and self.scope.in_signature:
                hint = f'; as a dimension in quotes, "{name}", it declares a symbolic variable'
        self.source.error(node, f"undefined variable {name!r}{hint}")

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.eval(node.value)
        try:
            return getattr(value, node.attr)
        except Exception as error:
            if isinstance(value, Expr) and isinstance(error, AttributeError):
                has = hasattr(value.ty, node.attr)
                hint = f"; its type has, as in x.ty.{node.attr}" if has else ""
                error = AttributeError(f"{_called(value)} has no attribute {node.attr!r}{hint}")
            elif isinstance(value, ModuleType):
                hint = today(value.__name__.rpartition(".")[2], node.attr)
                error = AttributeError(f"{error}{hint}") if hint else error
            self.failed(node, error)

    def _call(self, node: ast.Call) -> Any:
        func = self.eval(node.func)
        evaluate = self.eval
        args: list[Any] = []
        for arg in node.args:
            if type(arg) is ast.Starred:
                args += self._elements(arg.value)
            else:
                args.append(evaluate(arg))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = evaluate(keyword.value)
            if keyword.arg is None:
                self._update(kwargs, value, keyword.value)
            else:
                kwargs[keyword.arg] = value
        try:
            if isinstance(func, Expr):
                value = call_expr(func, args, kwargs)
            else:
                value = func(*args, **kwargs)
        except Exception as error:
            self.failed(node, error)
        if type(value) in _SPANNED and value.span is None:
            value.span = self.source.span(node)
        return value

    def failed(self, node: Any, error: Exception) -> NoReturn:
        """Raise a diagnostic for an error that was raised while a node was evaluated."""
        if isinstance(error, (DiagnosticError, RecursionError)):
            raise error
        text = str(error) or type(error).__name__
        if isinstance(error, SyntaxError):
            text = error.msg
        elif not isinstance(error, _PLAIN):
            text = f"{type(error).__name__}: {error}"
        try:
            self.source.error(node, text)
        except DiagnosticError as diagnostic:
            raise diagnostic from error

    def _elements(self, node: ast.expr) -> list[Any]:
        value = self.eval(node)
        try:
            return list(value)
        except Exception as error:
            self.failed(node, error)

    def _sequence(self, node: ast.Tuple | ast.List) -> list[Any]:
        values: list[Any] = []
        for item in node.elts:
            if type(item) is ast.Starred:
                values += self._elements(item.value)
            else:
                values.append(self.eval(item))
        return values

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._sequence(node))

    def _dict(self, node: ast.Dict) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            more = self.eval(value)
            if key is not None:
                more = ((self.eval(key), more),)
            self._update(found, more, key or value)
        return found

    def _update(self, found: dict[Any, Any], more: Any, node: ast.expr) -> None:
        try:
            found.update(more)
        except Exception as error:
            self.failed(node, error)

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.eval(node.value)
        if isinstance(value, tuple) and any(isinstance(item, Expr) for item in value):
            value = convert_to_expr(value)
        index = self.eval(node.slice)
        form = today("", getattr(node.value, "attr", ""))
        if form and callable(value) and not hasattr(value, "__getitem__"):
            self.source.error(node, f"{ast.unparse(node.value)} has no elements{form}")
        try:
            item = value[index]
        except Exception as error:
            self.failed(node, error)
        if isinstance(item, TupleGetItem) and item.span is None:
            item.span = self.source.span(node)
        return item

    def _slice(self, node: ast.Slice) -> Any:
        parts = (node.lower, node.upper, node.step)
        return slice(*[None if part is None else self.eval(part) for part in parts])

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.eval(node.left), self.eval(node.right)
        if type(node.op) is ast.MatMult and (isinstance(left, Expr) or isinstance(right, Expr)):
            self.source.error(node, "@ has no meaning in a script; write R.matmul")
        try:
            value = _BINARY[type(node.op)](left, right)
        except Exception as error:
            self.failed(node, error)
        if isinstance(value, Call) and value.span is None:
            value.span = self.source.span(node)
        return value

    def _unary(self, node: ast.UnaryOp) -> Any:
        operand = self.eval(node.operand)
        try:
            if type(node.op) is ast.Not:
                return prim.logical_not(operand) if isinstance(operand, Expr) else not operand
            value = _UNARY[type(node.op)](operand)
        except Exception as error:
            self.failed(node, error)
        if isinstance(value, Call) and value.span is None:
            value.span = self.source.span(node)
        return value

    def _bool(self, node: ast.BoolOp) -> Any:
        is_and = type(node.op) is ast.And
        value = self.eval(node.values[0])
        for place, operand in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, Expr) and self._truth(place, value) != is_and:
                return value
            other = self.eval(operand)
            if not isinstance(value, Expr) and not isinstance(other, Expr):
                value = other
                continue
            try:
                value = (prim.logical_and if is_and else prim.logical_or)(value, other)
            except Exception as error:
                self.failed(node, error)
        return value

    def _compare(self, node: ast.Compare) -> Any:
        left = self.eval(node.left)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.eval(comparator)
            try:
                one = self._compared(op, left, right)
                result = one if result is True else prim.logical_and(result, one)
            except Exception as error:
                self.failed(node, error)
            if result is False:
                return False
            left = right
        if isinstance(result, Call) and result.span is None:
            result.span = self.source.span(node)
        return result

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        if type(op) in (ast.Eq, ast.NotEq) and any(
            isinstance(side, Expr) and type(side.ty) is not PrimType for side in (left, right)
        ):
            instead = "equal" if type(op) is ast.Eq else "not_equal"
            raise TypeError(f"== and != compare scalars; write R.{instead} for tensors")
        name = _SCALAR_COMPARE.get(type(op))
        if name is not None and isinstance(right, Expr) and not isinstance(left, Expr):
            return SCALAR_OPERATORS[name](left, right)  # Python might swap the operands
        return _COMPARE[type(op)](left, right)

    def _if(self, node: ast.IfExp) -> Any:
        test = self.eval(node.test)
        if isinstance(test, Expr):
            self.source.error(
                node.test,
                "a value that is known only at run time cannot be a condition here; write an if "
                "statement, or T.Select for scalars",
            )
        return self.eval(node.body if self._truth(node.test, test) else node.orelse)

    def _truth(self, node: ast.expr, value: Any) -> bool:
        """The truth value of a Python value."""
        try:
            return bool(value)
        except Exception as error:
            self.failed(node, error)

    def _eval_in_python(self, node: Any) -> Any:
        """Evaluate an expression by Python's own compiler."""
        if not isinstance(node, ast.expr):
            self.source.error(node, f"expected an expression, got {type(node).__name__}")
        try:
            code = compile(ast.Expression(node), self.source.file, "eval")
            return eval(code, {**self.scope.outside, **self.scope.vars})
        except Exception as error:
            self.failed(node, error)


def _called(value: Expr) -> str:
    """The description of an expression in a message."""
    return f"{value.name if isinstance(value, Var) else 'a value'} of type {value.ty}"


def call_expr(func: Expr, args: list[Any], kwargs: dict[str, Any]) -> Expr:
    """Return a call of a function of the program, with its type."""
    if not isinstance(func, (GlobalVar, Var, Constructor)):
        return func(*args, **kwargs)
    types = types_of(kwargs.pop("ty_args", ()))
    if kwargs:
        raise TypeError(f"{func}: expected arguments by position, got {', '.join(kwargs)}=")
    call = Call(func, [convert_to_expr(arg) for arg in args], None, types)
    return infer_type(call)  # type: ignore[no-any-return]


_METHODS: Final[dict[type, Callable[[Evaluator, Any], Any]]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Call: Evaluator._call,
    ast.Tuple: Evaluator._tuple,
    ast.List: Evaluator._sequence,
    ast.Dict: Evaluator._dict,
    ast.Subscript: Evaluator._subscript,
    ast.Slice: Evaluator._slice,
    ast.BinOp: Evaluator._binary,
    ast.UnaryOp: Evaluator._unary,
    ast.BoolOp: Evaluator._bool,
    ast.Compare: Evaluator._compare,
    ast.IfExp: Evaluator._if,
}
