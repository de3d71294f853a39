"""An evaluator of scalars and PrimFuncs, node by node.

It is the reference for `relaxvm.tir`: nothing is normalized, a loop runs as a loop.  Values of
scalars are numpy scalars of the expression's data type, so that integers wrap and float32 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm import ir, tir
from relaxvm.ir import prim

Env = dict[Any, Any]


class EvaluationError(Exception):
    """The program reads a value that was never written or was killed, or calls an unknown function.
    A correct compiler never makes such a program."""


class CheckError(Exception):
    """A value fails a type check of the program at run time."""


class MismatchError(CheckError, RuntimeError):
    """A dimension has the wrong value."""


class RankError(CheckError, ValueError):
    """The rank, data type or number of elements is wrong."""


class KindError(CheckError, TypeError):
    """The kind of value is wrong."""


class Returned(Exception):
    """Raised by ``T.ret`` with its value."""


def number(dtype: str, value: Any) -> Any:
    """Convert a value to a numpy scalar of a data type; integers wrap."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        bits = kind.itemsize * 8
        value = int(value) & (2**bits - 1)
        if kind.kind == "i" and value >> (bits - 1):
            value -= 2**bits
    return kind.type(value)


def _trunc_div(a: Any, b: Any) -> Any:
    quotient = abs(int(a)) // abs(int(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide(a: Any, b: Any) -> Any:
    return a / b if isinstance(a, np.floating) else _trunc_div(a, b)


def _remainder(a: Any, b: Any) -> Any:
    return np.fmod(a, b) if isinstance(a, np.floating) else int(a) - int(b) * _trunc_div(a, b)


def _exact(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Apply a function to Python integers; only the result wraps."""

    def compute(a: Any, b: Any) -> Any:
        if isinstance(a, np.integer):
            a, b = int(a), int(b)
        return function(a, b)

    return compute


BINARY: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: _exact(lambda a, b: a + b),
    prim.Sub: _exact(lambda a, b: a - b),
    prim.Mul: _exact(lambda a, b: a * b),
    prim.Div: _divide,
    prim.Mod: _remainder,
    prim.FloorDiv: _exact(lambda a, b: a // b),
    prim.FloorMod: _exact(lambda a, b: a % b),
    prim.Min: lambda a, b: a if a < b else b,
    prim.Max: lambda a, b: a if a > b else b,
    prim.BitwiseAnd: lambda a, b: a & b,
    prim.BitwiseOr: lambda a, b: a | b,
    prim.BitwiseXor: lambda a, b: a ^ b,
    prim.LShift: _exact(lambda a, b: a << b),
    prim.RShift: _exact(lambda a, b: a >> b),
    prim.LT: lambda a, b: a < b,
    prim.LE: lambda a, b: a <= b,
    prim.GT: lambda a, b: a > b,
    prim.GE: lambda a, b: a >= b,
    prim.EQ: lambda a, b: a == b,
    prim.NE: lambda a, b: a != b,
    prim.And: lambda a, b: bool(a) and bool(b),
    prim.Or: lambda a, b: bool(a) or bool(b),
}

INTRINSICS: dict[str, Callable[..., Any]] = {
    "tirx.exp": np.exp,
    "tirx.sqrt": np.sqrt,
    "tirx.tanh": np.tanh,
    "tirx.fabs": np.abs,
    "tirx.floor": np.floor,
    "tirx.ceil": np.ceil,
    "tirx.log": np.log,
    "tirx.pow": np.power,
    "tirx.isnan": np.isnan,
    "tirx.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tirx.rsqrt": lambda x: 1 / np.sqrt(x),
    "prim.likely": lambda x: x,
    "tirx.popcount": lambda x: int(x).bit_count(),
}


def scalar(expr: Any, env: Env) -> Any:
    """Return the value of a scalar expression.

    Raises:
        EvaluationError: a variable has no value, or there is no rule for the expression.
    """
    kind = type(expr)
    if kind is ir.IntImm or kind is ir.FloatImm:
        return number(expr.dtype, expr.value)
    if isinstance(expr, ir.Var):
        if expr not in env:
            raise EvaluationError(f"variable {expr.name!r} has no value here")
        return number(expr.ty.dtype, env[expr])
    if kind in BINARY:
        with np.errstate(all="ignore"):
            return number(expr.dtype, BINARY[kind](scalar(expr.a, env), scalar(expr.b, env)))
    rule = _RULES.get(kind)
    if rule is None:
        raise EvaluationError(f"no rule for the scalar {expr} ({kind.__name__})")
    return rule(expr, env)


def _cast(expr: Any, env: Env) -> Any:
    value = scalar(expr.value, env)
    if isinstance(value, np.floating) and not expr.dtype.startswith("float"):
        value = bool(value) if expr.dtype == "bool" else math.trunc(float(value))
    return number(expr.dtype, value)


def _select(expr: Any, env: Env) -> Any:
    return scalar(expr.true_value if scalar(expr.condition, env) else expr.false_value, env)


def _let(expr: Any, env: Env) -> Any:
    return scalar(expr.body, {**env, expr.var: scalar(expr.value, env)})


def _load(expr: Any, env: Env) -> Any:
    return env[expr.buffer][_place(expr.buffer, expr.indices, env)]


def _place(buffer: Any, indices: Any, env: Env) -> tuple[int, ...]:
    place = tuple(int(scalar(index, env)) for index in indices)
    array = env[buffer]
    if any(not 0 <= i < n for i, n in zip(place, array.shape, strict=True)):
        raise EvaluationError(f"{buffer.name}{list(place)} is outside of shape {array.shape}")
    return place


def _call(expr: Any, env: Env) -> Any:
    name = expr.op.name
    if name == "prim.if_then_else":
        condition, then, orelse = expr.args
        return scalar(then if scalar(condition, env) else orelse, env)
    if name not in INTRINSICS:
        raise EvaluationError(f"no rule for the intrinsic {name}")
    with np.errstate(all="ignore"):
        return number(expr.dtype, INTRINSICS[name](*[scalar(arg, env) for arg in expr.args]))


_RULES: dict[type, Callable[[Any, Env], Any]] = {
    prim.Cast: _cast,
    prim.Select: _select,
    prim.Let: _let,
    prim.Not: lambda expr, env: number("bool", not scalar(expr.a, env)),
    prim.BitwiseNot: lambda expr, env: number(expr.dtype, ~scalar(expr.a, env)),
    tir.BufferLoad: _load,
    ir.Call: _call,
}


def garbage(shape: Any, dtype: str) -> Any:
    """A new array of garbage, which no program should read."""
    return spoil(np.empty(shape, np.dtype(dtype)))


def spoil(array: Any) -> Any:
    """Overwrite an array with garbage, which no program should read."""
    if array.dtype.kind == "f":
        array.fill(np.nan)
    else:
        array.fill(1 if array.dtype.kind == "b" else 85)
    return array


def run_prim_func(func: tir.PrimFunc, args: list[Any]) -> Any:
    """Call a PrimFunc on arrays and scalars; return the value of ``T.ret``, or None."""
    if len(args) != len(func.params):
        raise EvaluationError(f"{len(func.params)} parameters, {len(args)} arguments: {func}")
    env: Env = {}
    open_dims: list[tuple[Any, int]] = []
    for param, arg in zip(func.params, args, strict=True):
        if not isinstance(param, tir.Buffer):
            env[param] = arg
            continue
        if not isinstance(arg, np.ndarray) or arg.dtype != np.dtype(param.dtype):
            raise EvaluationError(f"parameter {param.name}: {param.dtype} expected, got {arg!r}")
        if arg.ndim != len(param.shape):
            raise EvaluationError(f"parameter {param.name} has {len(param.shape)} dimensions")
        env[param] = arg
        for dim, extent in zip(param.shape, arg.shape, strict=True):
            if isinstance(dim, ir.Var) and dim not in env:
                env[dim] = extent
            else:
                open_dims.append((dim, extent))
    for dim, extent in open_dims:
        if scalar(dim, env) != extent:
            raise EvaluationError(f"a dimension is {dim}, which is not {extent}")
    try:
        run(func.body, env)
    except Returned as returned:
        return returned.args[0]
    return None


def run(stmt: Any, env: Env) -> None:
    """Run a statement."""
    rule = _STATEMENTS.get(type(stmt))
    if rule is None:
        raise EvaluationError(f"no rule for the statement {type(stmt).__name__}")
    rule(stmt, env)


def _for(stmt: Any, env: Env) -> None:
    first, extent = int(scalar(stmt.min, env)), int(scalar(stmt.extent, env))
    step = 1 if stmt.step is None else int(scalar(stmt.step, env))
    for value in range(first, first + extent, step):
        env[stmt.loop_var] = value
        run(stmt.body, env)


def _while(stmt: Any, env: Env) -> None:
    while scalar(stmt.condition, env):
        run(stmt.body, env)


def _store(stmt: Any, env: Env) -> None:
    place = _place(stmt.buffer, stmt.indices, env)
    env[stmt.buffer][place] = scalar(stmt.value, env)


def _bind(stmt: Any, env: Env) -> None:
    env[stmt.var] = scalar(stmt.value, env)


def _alloc(stmt: Any, env: Env) -> None:
    _new_buffer(stmt.buffer, env)


def _new_buffer(buffer: Any, env: Env) -> None:
    env[buffer] = garbage([int(scalar(d, env)) for d in buffer.shape], buffer.dtype)


def _seq(stmt: Any, env: Env) -> None:
    for each in stmt.seq:
        run(each, env)


def _if(stmt: Any, env: Env) -> None:
    if scalar(stmt.condition, env):
        run(stmt.then_case, env)
    elif stmt.else_case is not None:
        run(stmt.else_case, env)


def _assert(stmt: Any, env: Env) -> None:
    if not scalar(stmt.condition, env):
        raise RuntimeError("".join(part.value for part in stmt.message_parts))


def _evaluate(stmt: Any, env: Env) -> None:
    value = stmt.value
    if isinstance(value, ir.Call) and value.op.name == "tirx.ret":
        raise Returned(scalar(value.args[0], env).item())
    scalar(value, env)


def _realize(stmt: Any, env: Env) -> None:
    if not scalar(stmt.predicate, env):
        return
    block = stmt.block
    is_first = True
    for iter_var, value in zip(block.iter_vars, stmt.iter_values, strict=True):
        env[iter_var.var] = scalar(value, env)
        if iter_var.iter_type == tir.IterVar.COMM_REDUCE and iter_var.dom is not None:
            is_first = is_first and env[iter_var.var] == scalar(iter_var.dom.min, env)
    for buffer in block.alloc_buffers:
        _new_buffer(buffer, env)
    for match in block.match_buffers:
        region = match.source.region
        starts = [int(scalar(r.min, env)) for r in region]
        ends = [s + int(scalar(r.extent, env)) for s, r in zip(starts, region, strict=True)]
        part = env[match.source.buffer][tuple(map(slice, starts, ends))]
        env[match.buffer] = part.reshape([int(scalar(d, env)) for d in match.buffer.shape])
    if block.init is not None and is_first:
        run(block.init, env)
    run(block.body, env)


_STATEMENTS: dict[type, Callable[[Any, Env], None]] = {
    tir.For: _for,
    tir.While: _while,
    tir.BufferStore: _store,
    tir.Bind: _bind,
    tir.AllocBuffer: _alloc,
    tir.SeqStmt: _seq,
    tir.IfThenElse: _if,
    tir.AssertStmt: _assert,
    tir.AttrStmt: lambda stmt, env: run(stmt.body, env),
    tir.Evaluate: _evaluate,
    tir.SBlockRealize: _realize,
}
