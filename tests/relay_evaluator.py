"""The evaluator of Relay: interprets the syntax tree, without types and without a VM.

It shares nothing with the frontend but the parser: names are looked up in dicts while it runs, and
a graph binding is a value that is computed when it is first used.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxvm.frontend.relay import syntax
from relaxvm.frontend.relay.parser import parse_text
from relaxvm.frontend.relay.source import Source

__all__ = ["Data", "NoClause", "Ref", "assert_same", "evaluate", "from_list", "to_list"]


class NoClause(Exception):
    """No clause of a match fits the value."""


class Data:
    """A value of a data type."""

    def __init__(self, name: str, fields: Sequence[Any]) -> None:
        self.name = name
        self.fields = tuple(fields)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.fields))})"


class Ref:
    """A mutable cell."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Lazy:
    """A graph binding: computed at its first use."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def get(self) -> Any:
        if self._compute is not None:
            compute, self._compute = self._compute, None
            self._value = compute()
        return self._value


def to_list(value: Any) -> list[Any]:
    """The elements of a list of Relay's prelude."""
    found = []
    while value.name == "Cons":
        found.append(value.fields[0])
        value = value.fields[1]
    return found


def from_list(items: Sequence[Any]) -> Data:
    """A list of Relay's prelude."""
    value = Data("Nil", ())
    for item in reversed(items):
        value = Data("Cons", (item, value))
    return value


def evaluate(text: str, *args: Any, function: str = "main", std: str | None = None) -> Any:
    """Call a function of a text; `std` is the text of what it imports."""
    modules = [parse_text(Source(each)) for each in ([text] if std is None else [std, text])]
    result: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            result.append(_Evaluator(modules).run(function, args))
        except BaseException as error:
            failed.append(error)

    limit = sys.getrecursionlimit()
    size = threading.stack_size(256 << 20)
    try:
        sys.setrecursionlimit(200_000)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    if failed:
        raise failed[0]
    return result[0]


def assert_same(found: Any, expected: Any) -> None:
    """Compare a value of a machine with one of the evaluator."""
    work = [(found, expected)]
    while work:
        a, b = work.pop()
        if isinstance(b, Data):
            assert a.constructor.rpartition(".")[2].rstrip("_") == b.name
            work += zip(a.fields, b.fields, strict=True)
        elif isinstance(b, tuple):
            assert isinstance(a, tuple)
            work += zip(a, b, strict=True)
        else:
            b = np.asarray(b)
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


Env = Mapping[Any, Any]


class _Evaluator:
    def __init__(self, modules: Sequence[syntax.Module]) -> None:
        self._functions: dict[str, syntax.Function] = {}
        self._constructors: dict[str, int] = {}
        self._constants: Mapping[str, Any] = {}
        self._expression = None
        for module in modules:
            self._functions.update((f.name, f.function) for f in module.functions)
            for ty in module.types:
                self._constructors.update((c.name, len(c.fields)) for c in ty.constructors)
            self._constants = {**self._constants, **module.constants}
            self._expression = module.expression or self._expression

    def run(self, name: str, args: Sequence[Any]) -> Any:
        if self._expression is not None:
            names = [var.name for var in self._expression.free_vars]
            return self._expr(self._expression, dict(zip(names, args, strict=True)))
        return self._function(self._functions[name], {})(*args)

    def _function(self, func: syntax.Function, env: Env, own: str | None = None) -> Any:
        def call(*args: Any) -> Any:
            inner = dict(env)
            if own is not None:
                inner[own] = call
            inner.update((p.name, a) for p, a in zip(func.params, args, strict=True))
            return self._expr(func.body, inner)

        return call

    def _expr(self, expr: syntax.Expr, env: Env) -> Any:
        match expr:
            case syntax.Constant():
                return expr.data
            case syntax.MetaRef():
                return self._constants[expr.kind][expr.index].tensor
            case syntax.LocalName():
                return env[expr.name]
            case syntax.GraphName():
                return env[expr.number].get()
            case syntax.GlobalName():
                return self._function(self._functions[expr.name], {})
            case syntax.Name() if expr.name in self._constructors:
                if not self._constructors[expr.name]:
                    return Data(expr.name, ())
                return lambda *fields: Data(expr.name, fields)
            case syntax.Name():
                return NUMPY[expr.name]
            case syntax.Tuple():
                return tuple([self._expr(field, env) for field in expr.fields])
            case syntax.Project():
                return self._expr(expr.value, env)[expr.index]
            case syntax.Call():
                callee = self._expr(expr.callee, env)
                args = [self._expr(arg, env) for arg in expr.args]
                if isinstance(callee, Data):
                    return callee
                is_operator = isinstance(expr.callee, syntax.Name) and (
                    expr.callee.name not in self._constructors
                )
                return callee(*args, **(expr.attrs if is_operator else {}))
            case syntax.Function():
                return self._function(expr, env)
            case syntax.If():
                return self._expr(expr.then if self._expr(expr.cond, env) else expr.orelse, env)
            case syntax.Match():
                value = self._expr(expr.value, env)
                for clause in expr.clauses:
                    bound: dict[Any, Any] = {}
                    if _matches(clause.pattern, value, bound):
                        return self._expr(clause.body, {**env, **bound})
                raise NoClause(repr(value))
            case syntax.RefOp():
                args = [self._expr(arg, env) for arg in expr.args]
                if expr.name == "ref":
                    return Ref(args[0])
                if expr.name == "ref_read":
                    return args[0].value
                args[0].value = args[1]
                return ()
            case syntax.Block():
                return self._block(expr, env)
        raise AssertionError(type(expr).__name__)

    def _block(self, block: syntax.Block, env: Env) -> Any:
        inner = dict(env)
        for statement in block.statements:
            value = statement.value
            if isinstance(statement, syntax.Bind):
                now = dict(inner)
                inner[statement.number] = _Lazy(lambda v=value, now=now: self._expr(v, now))
            elif not isinstance(statement, syntax.Let):
                self._expr(value, inner)
            elif isinstance(value, syntax.Function):
                inner[statement.var.name] = self._function(value, dict(inner), statement.var.name)
            else:
                inner[statement.var.name] = self._expr(value, inner)
        return self._expr(block.result, inner)


def _matches(pattern: syntax.Pattern, value: Any, bound: dict[Any, Any]) -> bool:
    match pattern:
        case syntax.Wildcard():
            return True
        case syntax.VarPattern():
            bound[pattern.var.name] = value
            return True
        case syntax.TuplePattern():
            fields: Sequence[Any] = value
        case syntax.ConstructorPattern():
            if value.name != pattern.name:
                return False
            fields = value.fields
        case _:
            raise AssertionError(type(pattern).__name__)
    return all(_matches(p, v, bound) for p, v in zip(pattern.fields, fields, strict=True))


def _divide(x: Any, y: Any) -> Any:
    quotient = np.divide(x, y)
    return np.trunc(quotient).astype(x.dtype) if x.dtype.kind in "iu" else quotient


def _split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return tuple(np.split(x, indices_or_sections, axis))


NUMPY: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "negative": np.negative,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "maximum": np.maximum,
    "mod": np.fmod,
    "logical_not": np.logical_not,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "nn.dense": lambda x, w, units=None: x @ w.T,
    "nn.bias_add": lambda x, b, axis=1: x + b,
    "concatenate": lambda xs, axis=0: np.concatenate(xs, axis),
    "stack": lambda xs, axis=0: np.stack(xs, axis),
    "split": _split,
    "sum": lambda x, axis=None: np.sum(x, None if axis is None else tuple(axis), x.dtype),
    "zeros": lambda shape, dtype: np.zeros(shape, dtype),
    "ones": lambda shape, dtype: np.ones(shape, dtype),
    "expand_dims": lambda x, axis: np.expand_dims(x, axis),
}
"""The operators that the programs of the tests use."""
