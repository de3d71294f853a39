"""The evaluator: interprets Relax programs directly, without passes and without a VM.

It walks the expressions of a module and binds variables in a dict.  Operators are their references
(`relax_operators`), PrimFuncs run statement by statement (`tir_evaluator`).  It also supports the
forms that passes lower to, so that it can run a program after every pass: storages, kills, the
builtins of the VM, the shape heap.  There it is stricter than any VM: placing a tensor in a storage
overwrites the old contents with garbage, and a killed value cannot be read.

Every value that is bound is compared with the inferred type of its variable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from relaxvm import ir
from relaxvm.tir import PrimFunc
from relaxvm.values import Shape

from .relax_operators import run_kernel, run_operator
from .tir_evaluator import (
    CheckError,
    Env,
    EvaluationError,
    KindError,
    MismatchError,
    RankError,
    garbage,
    run_prim_func,
    scalar,
    spoil,
)

__all__ = [
    "CheckError",
    "Closure",
    "EvaluationError",
    "Evaluator",
    "KindError",
    "MismatchError",
    "RankError",
    "UnsoundType",
]

CALL_LIMIT = 20_000


class UnsoundType(EvaluationError):
    """A value does not have the type that was inferred for its variable."""


class Closure:
    """A function as a value: a local one with the variables of its scope, or one of the module with
    its trailing arguments."""

    def __init__(self, func: Any, env: Env | None = None, captured: Sequence[Any] = ()) -> None:
        self.func = func
        self.env = {} if env is None else env
        self.captured = tuple(captured)


class Data:
    """A value of a data type."""

    def __init__(self, constructor: Any, fields: Sequence[Any]) -> None:
        self.constructor = constructor
        self.fields = tuple(fields)

    def __repr__(self) -> str:
        return f"{self.constructor.qualified_name}({', '.join(map(repr, self.fields))})"


class Cell:
    """A reference."""

    def __init__(self, value: Any) -> None:
        self.value = value


class NoClause(EvaluationError):
    """No clause of a match fits the value."""


class _Killed:
    """The value of a variable after its kill."""


KILLED = _Killed()


class Storage:
    """Memory in which tensors are placed."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = bytearray(nbytes)

    def place(self, offset: int, shape: Any, dtype: str) -> Any:
        """Place a tensor in the storage; the old contents are overwritten."""
        count = int(np.prod(shape, dtype=int))
        end = offset + count * np.dtype(dtype).itemsize
        if end > len(self.bytes):
            raise EvaluationError(f"{dtype}{list(shape)} does not fit {len(self.bytes)} bytes")
        if not count:
            return np.empty(shape, dtype)
        return spoil(np.frombuffer(self.bytes, dtype, count, offset).reshape(shape))


class Evaluator:
    """Evaluates functions of a module: ``Evaluator(mod, functions)("main", x, y)``.

    Args:
        functions: the packed functions that the program may call, by name.
        types: whether to compare values with the inferred types of their variables.

    Raises, when called:
        CheckError: a value does not have the type of a parameter, a result or a match_cast.
        EvaluationError: the program is not one that a correct compiler makes.
    """

    def __init__(
        self,
        mod: ir.IRModule,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        types: bool = True,
    ) -> None:
        self.mod = mod
        self.functions = dict(functions or {})
        self.types = types
        self.calls = 0

    def __call__(self, name: str, *args: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.apply(self.mod[name], {}, list(args))

    # Functions

    def apply(self, func: Any, env: Env, args: list[Any]) -> Any:
        """Call a function of Relax or TIR; `env` has the outer variables of a local function."""
        if isinstance(func, PrimFunc):
            return run_prim_func(func, args)
        self.calls += 1
        if self.calls > CALL_LIMIT:
            raise EvaluationError("the program does not end")
        if len(args) != len(func.params):
            raise EvaluationError(f"{len(func.params)} parameters, {len(args)} arguments")
        frame = {**env, **dict(zip(func.params, args, strict=True))}
        self.check(zip(args, [p.ty for p in func.params], strict=True), frame)
        result = self.seq(func.body, frame)
        self.check([(result, func.ret_ty)], frame)
        return result

    def invoke(self, callee: Any, args: list[Any]) -> Any:
        """Call a value."""
        if isinstance(callee, ir.Constructor):
            return Data(callee, args)
        if not isinstance(callee, Closure):
            raise KindError(f"{callee!r} is no function")
        return self.apply(callee.func, callee.env, [*args, *callee.captured])

    # Types

    def check(self, pairs: Iterable[tuple[Any, Any]], env: Env) -> None:
        """Check values against types; a dimension that is just a symbolic variable without a value
        binds it."""
        dims: list[tuple[Any, int]] = []
        for value, ty in list(pairs):
            self.check_kind(value, ty, dims)
        open_dims = []
        for dim, extent in dims:
            if isinstance(dim, ir.Var) and dim not in env:
                env[dim] = extent
            else:
                open_dims.append((dim, extent))
        for dim, extent in open_dims:
            if all(v in env for v in ir.free_vars(dim)) and scalar(dim, env) != extent:
                raise MismatchError(f"a dimension is {extent}, it has to be {dim}")

    def check_kind(self, value: Any, ty: Any, dims: list[tuple[Any, int]]) -> None:
        """Check everything except the values of dimensions, which are collected in `dims`."""
        kind = type(ty)
        if kind is ir.TensorType:
            if not isinstance(value, np.ndarray):
                raise KindError(f"expected a tensor, got {value!r}")
            if ty.ndim not in (-1, value.ndim):
                raise RankError(f"expected rank {ty.ndim}, got {value.ndim}")
            if ty.dtype not in (None, str(value.dtype)):
                raise RankError(f"expected {ty.dtype}, got {value.dtype}")
            if type(ty.shape) is ir.ShapeExpr:
                dims.extend(zip(ty.shape.values, value.shape, strict=True))
        elif kind is ir.ShapeType:
            if not isinstance(value, Shape):
                raise KindError(f"expected a shape, got {value!r}")
            if ty.ndim not in (-1, len(value)):
                raise RankError(f"expected {ty.ndim} dimensions, got {len(value)}")
            dims.extend(zip(ty.values or (), value, strict=ty.values is not None))
        elif kind is ir.TupleType:
            if not isinstance(value, tuple) or isinstance(value, Shape):
                raise KindError(f"expected a tuple, got {value!r}")
            if len(value) != len(ty.fields):
                raise RankError(f"expected {len(ty.fields)} elements, got {len(value)}")
            for field, field_ty in zip(value, ty.fields, strict=True):
                self.check_kind(field, field_ty, dims)
        elif kind is ir.PrimType:
            expected = {"b": bool, "i": int, "u": int, "f": float}[np.dtype(ty.dtype).kind]
            if type(value) is not expected:
                raise KindError(f"expected a scalar of {ty.dtype}, got {value!r}")
        elif kind is ir.TypeCall:
            if not isinstance(value, Data) or value.constructor.belong_to.name != ty.func.name:
                raise KindError(f"expected a value of {ty}, got {value!r}")
        elif kind is ir.RefType:
            if not isinstance(value, Cell):
                raise KindError(f"expected a reference, got {value!r}")
        elif kind is ir.NeverType:
            raise KindError(f"expected no value, got {value!r}")
        elif kind is ir.FuncType and not isinstance(value, (Closure, ir.Constructor)):
            raise KindError(f"expected a function, got {value!r}")

    def bind(self, var: Any, value: Any, env: Env) -> None:
        """Bind a variable to a value, which must have its type."""
        env[var] = value
        if not self.types or var.ty is None:
            return
        if type(var.ty) is ir.PrimType and var.ty.dtype == "bool" and type(value) is int:
            return  # a condition from the shape heap
        dims: list[tuple[Any, int]] = []
        try:
            self.check_kind(value, var.ty, dims)
            for dim, extent in dims:
                if all(v in env for v in ir.free_vars(dim)) and scalar(dim, env) != extent:
                    raise MismatchError(f"a dimension is {extent}, not {dim}")
        except CheckError as error:
            raise UnsoundType(f"{var.name}: inferred as {var.ty}, but {error}") from None

    # Expressions

    def seq(self, seq: Any, env: Env) -> Any:
        for block in seq.blocks:
            for binding in block.bindings:
                self.binding(binding, env)
        return self.value(seq.body, env)

    def binding(self, binding: Any, env: Env) -> None:
        var, expr = binding.var, binding.value
        if type(expr) is ir.Function:
            # A local function is in its own scope: it may be recursive.
            self.bind(var, Closure(expr, env), env)
            return
        value = self.value(expr, env)
        if type(binding) is ir.MatchCast:
            self.check([(value, binding.ty)], env)
        self.bind(var, value, env)

    def value(self, expr: Any, env: Env) -> Any:
        """The value of an expression."""
        rule = _RULES.get(type(expr))
        if rule is not None:
            return rule(self, expr, env)
        if ir.is_scalar(expr):
            return scalar(expr, env).item()
        raise EvaluationError(f"no rule for {type(expr).__name__}")

    def var(self, var: Any, env: Env) -> Any:
        if var not in env:
            raise EvaluationError(f"variable {var.name!r} is not bound")
        value = env[var]
        if value is KILLED:
            raise EvaluationError(f"variable {var.name!r} is used after it was killed")
        return value

    def shape(self, expr: Any, env: Env) -> Shape:
        return Shape([int(scalar(v, env)) for v in expr.values])

    def if_(self, expr: Any, env: Env) -> Any:
        condition = self.value(expr.cond, env)
        if isinstance(condition, np.ndarray) and condition.ndim:
            raise EvaluationError(f"the condition is a tensor of rank {condition.ndim}")
        branch = expr.true_branch if condition else expr.false_branch
        return self.seq(branch, env)

    def match(self, expr: Any, env: Env) -> Any:
        """The clauses one after the other, each against the whole value."""
        value = self.value(expr.data, env)
        for clause in expr.clauses:
            bound = _matched(clause.lhs, value)
            if bound is None:
                continue
            inner = {**env, **bound}
            if clause.guard is None or self.value(clause.guard, inner):
                return self.value(clause.rhs, inner)
        raise NoClause(f"no clause for {value!r}")

    def call(self, call: Any, env: Env) -> Any:
        callee = call.op
        kind = type(callee)
        if kind is ir.Op:
            return self.call_op(call, env)
        if kind is ir.ExternFunc:
            args = self.values(call.args, env)
            return self.packed(callee.global_symbol, args, void=_is_void(call))
        if kind is ir.GlobalVar:
            args = self.values(call.args, env)
            result = self.apply(self.mod[callee], {}, args)
            return () if result is None else result
        return self.invoke(self.value(callee, env), self.values(call.args, env))

    def values(self, exprs: Iterable[Any], env: Env) -> list[Any]:
        return [self.value(expr, env) for expr in exprs]

    def call_op(self, call: Any, env: Env) -> Any:
        name = call.op.name.removeprefix("relax.")
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, call, env)
        try:
            return run_operator(call, self.values(call.args, env))
        except KeyError:
            raise EvaluationError(f"no rule for the operator {name}") from None

    # Packed functions

    def packed(self, name: str, args: list[Any], *, void: bool = False) -> Any:
        """Call a packed function."""
        if name.startswith("vm.builtin."):
            rule = _BUILTINS.get(name.removeprefix("vm.builtin."))
            if rule is None:
                raise EvaluationError(f"no rule for the builtin {name}")
            return rule(self, *args)
        if name.startswith("relaxvm.kernel."):
            kernel = name.removeprefix("relaxvm.kernel.")
            run_kernel(kernel, args, _outputs_of(kernel, args))
            return ()
        if name == "relax.run.shape_to_tensor":
            return np.array(args[0], "int64")
        function = self.functions.get(name)
        if function is None:
            raise EvaluationError(f"there is no packed function {name!r}")
        result = function(*args)
        return () if void and result is None else result

    def outputs(self, ty: Any, env: Env) -> list[Any]:
        """New tensors of a type, filled with garbage: one for each tensor of a tuple."""
        if type(ty) is ir.TupleType:
            return [leaf for field in ty.fields for leaf in self.outputs(field, env)]
        return [garbage(self.value(ty.shape, env), ty.dtype)]

    def call_dps(self, call: Any, env: Env) -> Any:
        """call_tir, call_dps_packed and call_tir_inplace."""
        callee, packed, *extents = call.args
        args = list(self.value(packed, env))
        (ty,) = call.ty_args
        outs = self.outputs(ty, env)
        indices = call.attrs.get("inplace_indices") or [-1] * len(outs)
        fresh = [out for out, index in zip(outs, indices, strict=True) if index < 0]
        outs = [out if i < 0 else args[i] for out, i in zip(outs, indices, strict=True)]
        shape = [dim for extent in extents for dim in self.value(extent, env)]
        if type(callee) is ir.GlobalVar:
            self.apply(self.mod[callee], {}, [*args, *fresh, *shape])
        elif callee.global_symbol.startswith("relaxvm.kernel."):
            kernel = callee.global_symbol.removeprefix("relaxvm.kernel.")
            run_kernel(kernel, [*args, *fresh], len(fresh))
        else:
            self.packed(callee.global_symbol, [*args, *fresh, *shape])
        return _rebuilt(ty, iter(outs))


def _rebuilt(ty: Any, leaves: Iterator[Any]) -> Any:
    """Arrange tensors in the tuples of a type."""
    if type(ty) is ir.TupleType:
        return tuple(_rebuilt(field, leaves) for field in ty.fields)
    return next(leaves)


def _is_void(call: Any) -> bool:
    return type(call.ty) is ir.TupleType and not call.ty.fields


def _outputs_of(kernel: str, args: list[Any]) -> int:
    """Return the number of outputs among the arguments of a kernel."""
    if kernel != "split":
        return 1
    where = args[1]
    return where if isinstance(where, int) else len(where) + 1


def _matched(pattern: Any, value: Any) -> Env | None:
    """The variables of a pattern that a value matches; None if it does not."""
    if isinstance(pattern, ir.PatternWildcard):
        return {}
    if isinstance(pattern, ir.PatternVar):
        return {pattern.var: value}
    if isinstance(pattern, ir.PatternTuple):
        parts = value
    elif value.constructor.name_hint != pattern.constructor.name_hint:
        return None
    else:
        parts = value.fields
    bound: Env = {}
    for inner, part in zip(pattern.patterns, parts, strict=True):
        found = _matched(inner, part)
        if found is None:
            return None
        bound.update(found)
    return bound


# Rules by class of expression

Rule = Callable[[Evaluator, Any, Env], Any]


def _function(self: Evaluator, expr: Any, env: Env) -> Any:
    return Closure(expr, env)


def _tuple(self: Evaluator, expr: Any, env: Env) -> Any:
    return tuple(self.values(expr.fields, env))


def _tuple_getitem(self: Evaluator, expr: Any, env: Env) -> Any:
    return self.value(expr.tuple_value, env)[expr.index]


def _global_var(self: Evaluator, expr: Any, env: Env) -> Any:
    return Closure(self.mod[expr])


_RULES: dict[type, Rule] = {
    ir.Var: Evaluator.var,
    ir.DataflowVar: Evaluator.var,
    ir.Constant: lambda self, expr, env: expr.data,
    ir.StringImm: lambda self, expr, env: expr.value,
    ir.DataTypeImm: lambda self, expr, env: expr.value,
    ir.ShapeExpr: Evaluator.shape,
    ir.Tuple: _tuple,
    ir.TupleGetItem: _tuple_getitem,
    ir.If: Evaluator.if_,
    ir.Match: Evaluator.match,
    ir.Constructor: lambda self, expr, env: expr,
    ir.Call: Evaluator.call,
    ir.Function: _function,
    ir.GlobalVar: _global_var,
    ir.SeqExpr: Evaluator.seq,
}


# Rules by operator


def _invoke_closure(self: Evaluator, call: Any, env: Env) -> Any:
    closure, args = call.args
    return self.invoke(self.value(closure, env), list(self.value(args, env)))


def _make_closure(self: Evaluator, call: Any, env: Env) -> Any:
    func, captured = call.args
    return Closure(self.mod[func], captured=self.value(captured, env))


def _call_pure_packed(self: Evaluator, call: Any, env: Env) -> Any:
    func, *args = call.args
    return self.packed(func.global_symbol, self.values(args, env), void=_is_void(call))


def _call_with_context(self: Evaluator, call: Any, env: Env) -> Any:
    func, args = call.args
    return self.packed(func.global_symbol, list(self.value(args, env)), void=_is_void(call))


def _alloc_tensor(self: Evaluator, call: Any, env: Env) -> Any:
    shape, dtype, *_ = call.args
    return garbage(self.value(shape, env), self.value(dtype, env))


def _alloc_storage(self: Evaluator, call: Any, env: Env) -> Any:
    (nbytes,) = self.value(call.args[0], env)
    return Storage(nbytes)


def _place_tensor(self: Evaluator, call: Any, env: Env) -> Any:
    storage, offset, shape, dtype, *_ = self.values(call.args, env)
    return storage.place(offset, shape, dtype)


def _kill(self: Evaluator, call: Any, env: Env) -> Any:
    (var,) = call.args
    self.var(var, env)
    env[var] = KILLED
    return ()


def _ref_write(self: Evaluator, call: Any, env: Env) -> Any:
    cell, value = self.values(call.args, env)
    cell.value = value
    return ()


def _call_tir_dyn(self: Evaluator, call: Any, env: Env) -> Any:
    func, args = call.args
    *tensors, shape = self.value(args, env)
    self.apply(self.mod[func], {}, [*tensors, *shape])
    return ()


def _assert(self: Evaluator, call: Any, env: Env) -> Any:
    condition, *_ = self.values(call.args, env)
    if not condition:
        raise AssertionError(str(call))
    return ()


_SPECIAL: dict[str, Rule] = {
    "ref": lambda self, call, env: Cell(self.value(call.args[0], env)),
    "ref_read": lambda self, call, env: self.value(call.args[0], env).value,
    "ref_write": _ref_write,
    "call_tir": Evaluator.call_dps,
    "call_tir_inplace": Evaluator.call_dps,
    "call_dps_packed": Evaluator.call_dps,
    "call_pure_packed": _call_pure_packed,
    "call_builtin_with_ctx": _call_with_context,
    "invoke_closure": _invoke_closure,
    "invoke_pure_closure": _invoke_closure,
    "make_closure": _make_closure,
    "null_value": lambda self, call, env: None,
    "shape_of": lambda self, call, env: Shape(self.value(call.args[0], env).shape),
    "tensor_to_shape": lambda self, call, env: Shape(self.value(call.args[0], env).tolist()),
    "shape_to_tensor": lambda self, call, env: np.array(self.value(call.args[0], env), "int64"),
    "assert_op": _assert,
    "builtin.alloc_tensor": _alloc_tensor,
    "memory.alloc_storage": _alloc_storage,
    "memory.alloc_tensor": _place_tensor,
    "memory.kill_storage": _kill,
    "memory.kill_tensor": _kill,
    "vm.alloc_storage": _alloc_storage,
    "vm.alloc_tensor": _place_tensor,
    "vm.kill_object": _kill,
    "vm.call_tir_dyn": _call_tir_dyn,
}


# Rules by builtin of the VM.  The VM, which is the first argument of some, is not passed.


def _pairs(codes: Sequence[int]) -> Iterable[tuple[int, int]]:
    return zip(codes[::2], codes[1::2], strict=True)


def _match_dim(dim: int, code: int, operand: int, heap: Any, context: str) -> None:
    if code == 1:
        heap[operand] = dim
    elif code in (0, 3) and dim != (operand if code == 0 else heap[operand]):
        raise MismatchError(f"{context}a dimension is {dim}")


def _match_shape(self: Evaluator, value: Any, heap: Any, count: int, *rest: Any) -> Any:
    *codes, context = rest
    dims = value.shape if isinstance(value, np.ndarray) else value
    if len(dims) != count:
        raise MismatchError(f"{context}there are {len(dims)} dimensions")
    for dim, (code, operand) in zip(dims, _pairs(codes), strict=True):
        _match_dim(dim, code, operand, heap, context)
    return ()


def _match_prim(
    self: Evaluator, value: Any, heap: Any, code: int, operand: int, context: str
) -> Any:
    _match_dim(value, code, operand, heap, context)
    return ()


def _make_shape(self: Evaluator, heap: Any, count: int, *codes: int) -> Shape:
    dims = Shape(o if code == 0 else int(heap[o]) for code, o in _pairs(codes))
    if len(dims) != count:
        raise EvaluationError(f"{len(dims)} dimensions, not {count}")
    return dims


def _make_prim(self: Evaluator, heap: Any, code: int, operand: int) -> int:
    return operand if code == 0 else int(heap[operand])


def _call_dyn(self: Evaluator, func: Any, *args: Any) -> Any:
    *tensors, shape = args
    self.apply(func.func, {}, [*tensors, *shape])
    return ()


def _checker(make: Callable[..., Any]) -> Callable[..., Any]:
    """A builtin that checks a value against a type, which the other arguments describe."""

    def check(self: Evaluator, value: Any, *args: Any) -> Any:
        *details, _context = args
        self.check_kind(value, make(*details), [])
        return ()

    return check


def _check_tuple(self: Evaluator, value: Any, count: int, context: str) -> Any:
    if not isinstance(value, tuple):
        raise KindError(f"{context}expected a tuple, got {value!r}")
    if len(value) != count:
        raise RankError(f"{context}expected {count} elements, got {len(value)}")
    return ()


_BUILTINS: dict[str, Callable[..., Any]] = {
    "alloc_shape_heap": lambda self, size: np.full(size, -1, "int64"),
    "match_shape": _match_shape,
    "match_prim_value": _match_prim,
    "make_shape": _make_shape,
    "make_prim_value": _make_prim,
    "check_tensor_info": _checker(lambda ndim, dtype: ir.TensorType(None, dtype, ndim=ndim)),
    "check_shape_info": _checker(lambda ndim: ir.ShapeType(ndim=ndim)),
    "check_prim_value_info": _checker(ir.PrimType),
    "check_func_info": _checker(lambda: ir.FuncType(None, ir.AnyType())),
    "check_tuple_info": _check_tuple,
    "copy": lambda self, value: value,
    "tuple_getitem": lambda self, value, index: operator.getitem(value, index),
    "make_tuple": lambda self, *fields: fields,
    "reshape": lambda self, x, shape: x.reshape(shape),
    "shape_of": lambda self, x: Shape(x.shape),
    "tensor_to_shape": lambda self, x: Shape(x.tolist()),
    "make_closure": lambda self, func, *captured: Closure(func.func, captured=captured),
    "invoke_closure": lambda self, closure, *args: self.invoke(closure, list(args)),
    "call_tir_dyn": _call_dyn,
    "null_value": lambda self: None,
}
