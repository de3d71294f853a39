"""StaticPlanBlockMemory: share storages between tensors with disjoint lifetimes.

The plan is made in two steps.  `_Liveness` finds the allocations that may be planned and counts
their uses; `_Planner` walks the program again, assigns storages, and releases those whose tensor
has had its last use.

Source: the pass of the same name in apache-tvm 0.27, except where that one overwrites memory that
is still read: it reuses the memory of an argument while the result of a packed function is live,
which may be that argument; and it uses a storage outside of the branch that allocates it.
`PlanMemory` shares more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..analysis.allocations import uses
from ..dtypes import as_dtype
from ..errors import RelaxVMWarning, did_you_mean
from ..ir import (
    ANY,
    Analyzer,
    Binding,
    Call,
    DataTypeImm,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    int_imm,
    prove_equal,
    type_free_vars,
)
from ..ir.arith import free_vars, substitute
from ..ir.prim import Add, Mul
from ..op import memory
from ..tir import PrimFunc
from ._memory_calls import constant_bytes
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["StaticPlanBlockMemory"]

_ALLOC: Final = Op.get("relax.builtin.alloc_tensor")
_CALL_TIR_DYN: Final = Op.get("relax.vm.call_tir_dyn")
_VIEWS: Final = frozenset({"relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset"})
_PACKED_VIEWS: Final = frozenset({"vm.builtin.reshape"})
_RANGE: Final = 16
"""A storage is used for a tensor only if it is at most this many times larger."""
DYNAMIC_OUTPUT: Final = "relax.memory_plan_dynamic_func_output"


class _Token:
    """An allocation to plan."""

    __slots__ = ("block", "dtype", "is_result", "nbytes", "scope", "shape", "storage", "uses")

    def __init__(
        self, block: int, shape: ShapeExpr, nbytes: Expr, dtype: str, scope: tuple[Any, ...]
    ) -> None:
        self.block = block
        self.is_result = False
        self.shape = shape
        self.nbytes = nbytes
        self.dtype = dtype
        self.scope = scope
        self.uses = 0
        self.storage: _Storage | None = None


class _Storage:
    """Memory that tokens share one after the other.  It is allocated in sequence `seq`."""

    __slots__ = ("nbytes", "seq", "var")

    def __init__(self, nbytes: Expr, seq: SeqExpr) -> None:
        self.nbytes = nbytes
        self.seq = seq
        self.var: Var | None = None


_Tokens = Any
"""The value of a variable: a token, a tuple of these, or None."""


def _each(tokens: _Tokens) -> Iterator[_Token]:
    if type(tokens) is _Token:
        yield tokens
    elif type(tokens) is tuple:
        for item in tokens:
            yield from _each(item)


class SizeBounds:
    """Sizes in bytes, using the bounds that a function declares for its symbolic variables."""

    def __init__(self, func: Function) -> None:
        self.analyzer = Analyzer()
        upper = _attribute(func, "tir_var_upper_bound")
        lower = _attribute(func, "tir_var_lower_bound")
        non_negative = {str(name) for name in func.attrs.get("tir_non_negative_var", ())}
        self._bounded: set[Var] = set()
        symbols = dict.fromkeys(v for p in func.params for v in type_free_vars(p.ty))
        for attribute, names in (
            ("tir_var_upper_bound", upper),
            ("tir_var_lower_bound", lower),
            ("tir_non_negative_var", non_negative),
        ):
            _warn_of_unknown(func, attribute, names, {var.name for var in symbols})
        for var in symbols:
            low = lower.get(var.name, 0)
            if var.name in upper:
                self.analyzer.bind(var, low, upper[var.name])
                self._bounded.add(var)
            elif var.name in lower or var.name in non_negative:
                self.analyzer.bind(var, low, None)

    def bind_dimension(self, var: Var) -> None:
        """Record that a variable is a dimension of a tensor."""
        if self.analyzer.const_bounds(var)[0] < 0:
            self.analyzer.bind(var, 0, None)

    def nbytes(self, shape: ShapeExpr, dtype: str) -> Expr:
        """The size of a tensor, with the upper bound of each bounded dimension.

        Raises:
            OverflowError: the constants among the dimensions exceed 64 bits.
        """
        dims = list(map(self._greatest, shape.values))
        constant = constant_bytes(dims, dtype)
        rest: Expr | None = None
        for dim in dims:
            if type(dim) is not IntImm:
                rest = dim if rest is None else rest * dim
        if rest is None or constant == 0:
            return int_imm(constant)
        return rest if constant == 1 else int_imm(constant) * rest

    def nbytes_of_result(self, shape: ShapeExpr, dtype: str) -> Expr:
        """The same, in the form that is used for results."""
        size: Any = int_imm(1)
        for dim in map(self._greatest, shape.values):
            size = size * dim
        total: Expr = size * int_imm(as_dtype(dtype).itemsize)
        return total

    def _greatest(self, dim: Expr) -> Expr:
        if type(dim) is IntImm or not self._bounded:
            return dim
        high = self.analyzer.const_bounds(dim)[1]
        if high != math.inf:
            return int_imm(int(high))
        greatest = {
            var: int_imm(int(self.analyzer.const_bounds(var)[1]))
            for var in free_vars(dim)
            if var in self._bounded
        }
        if not greatest or not self._is_sum_of_products(dim):
            return dim
        bounded: Expr = substitute(_constants_last(dim), greatest)
        return bounded

    def _is_sum_of_products(self, dim: Expr) -> bool:
        """Whether an expression consists of sums and products of what is not negative: it is
        greatest where its variables are."""
        work = [dim]
        while work:
            part: Any = work.pop()
            if type(part) in (Add, Mul):
                work += (part.a, part.b)
            elif not isinstance(part, (Var, IntImm)) or self.analyzer.const_bounds(part)[0] < 0:
                return False
        return True


def _constants_last(dim: Any) -> Any:
    """Write ``2 * n`` as ``n * 2``, as TVM does where it bounds a size."""
    if isinstance(dim, Add):
        return _constants_last(dim.a) + _constants_last(dim.b)
    if isinstance(dim, Mul):
        a, b = _constants_last(dim.a), _constants_last(dim.b)
        return b * a if isinstance(a, IntImm) else a * b
    return dim


def _attribute(func: Function, name: str) -> Mapping[str, int]:
    value = func.attrs.get(name, {})
    if not isinstance(value, Mapping):
        raise TypeError(f"attribute {name}: expected a dict of names and ints, got {value!r}")
    return {str(key): int(bound) for key, bound in value.items()}


def _warn_of_unknown(
    func: Function, attribute: str, names: Iterable[str], known: set[str]
) -> None:
    """Warn about names in an attribute that are not variables.  TVM ignores them silently; most are
    misspelt, and memory is planned without the bound."""
    for name in sorted(set(names) - known):
        hint = did_you_mean(name, known)
        warnings.warn(
            f"function {func.attrs.get('global_symbol', '')!r}: {attribute} names {name!r}, which "
            f"is not a symbolic variable of its parameters{hint}",
            RelaxVMWarning,
            stacklevel=2,
        )


class _Liveness:
    """Finds the allocations to plan.  A token is discarded if it is used in another block than its
    own, or in a way that makes its uses impossible to count.  Blocks are numbered."""

    def __init__(self, func: Function, mod: IRModule) -> None:
        self._mod = mod
        self._bounds = SizeBounds(func)
        self._plans_outputs = bool(func.attrs.get(DYNAMIC_OUTPUT))
        self._tokens: dict[Var, _Tokens] = {}
        self._block = 0
        self._num_blocks = 0
        self._discarded: set[_Token] = set()
        self._used: set[Var] = _used_variables(func)
        self.of_binding: dict[Var, _Token] = {}
        self._seq(func.body)
        for token in _each(self._of(func.body.body)):
            if self._plans_outputs and any(type(dim) is not IntImm for dim in token.shape.values):
                token.is_result = True
                token.uses += 1  # never released
                token.nbytes = self._bounds.nbytes_of_result(token.shape, token.dtype)
            else:
                self._discarded.add(token)
        self.of_binding = {
            var: token for var, token in self.of_binding.items() if token not in self._discarded
        }

    def tokens(self, expr: Expr) -> Iterator[_Token]:
        """The planned tokens that an expression holds."""
        return (t for t in _each(self._of(expr)) if t not in self._discarded)

    def _of(self, expr: Expr) -> _Tokens:
        if isinstance(expr, Var):
            return self._tokens.get(expr)
        if isinstance(expr, Tuple):
            return tuple([self._of(field) for field in expr.fields])
        if isinstance(expr, TupleGetItem):
            inner = self._of(expr.tuple_value)
            return inner[expr.index] if type(inner) is tuple else inner
        return None

    def _discard(self, expr: Expr) -> None:
        self._discarded.update(_each(self._of(expr)))

    def _seq(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            outer = self._block
            self._num_blocks += 1
            self._block = self._num_blocks
            for binding in block.bindings:
                self._binding(binding)
            self._block = outer

    def _binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(binding, MatchCast):
            self._tokens[binding.var] = self._seen(value)
        elif isinstance(value, Call):
            self._tokens[binding.var] = self._call(binding.var, value)
        elif isinstance(value, If):
            self._discard(value.cond)
            for branch in (value.true_branch, value.false_branch):
                self._seq(branch)
                self._discard(branch.body)
        elif not isinstance(value, Function):
            self._tokens[binding.var] = self._seen(value)

    def _seen(self, expr: Expr) -> _Tokens:
        """The tokens of an expression, which is used at this point."""
        tokens = self._of(expr)
        for token in _each(tokens):
            if token.block != self._block:
                self._discarded.add(token)
        return tokens

    def _call(self, var: Var, call: Call) -> _Tokens:
        op = call.op
        if op is _ALLOC:
            return self._alloc(var, call)
        if isinstance(op, Op) and op.name in _VIEWS:
            return self._seen(call.args[0])
        if isinstance(op, ExternFunc) and op.global_symbol in _PACKED_VIEWS:
            return self._seen(call.args[0])
        counted = (
            (isinstance(op, ExternFunc) and var not in self._used)
            or (isinstance(op, GlobalVar) and isinstance(self._mod.functions.get(op), PrimFunc))
            or op is _CALL_TIR_DYN
        )
        for arg in call.args:
            if not counted:
                self._discard(arg)
                continue
            for token in _each(self._seen(arg)):
                token.uses += 1
        return None

    def _alloc(self, var: Var, call: Call) -> _Tokens:
        shape, dtype, device, scope = call.args
        if not isinstance(shape, ShapeExpr) or not isinstance(dtype, DataTypeImm):
            return None
        nbytes = self._bounds.nbytes(shape, dtype.value)
        where = (int(device), scope.value)  # type: ignore[call-overload, attr-defined]
        token = _Token(self._block, shape, nbytes, dtype.value, where)
        self.of_binding[var] = token
        return token


def _used_variables(func: Function) -> set[Var]:
    found: set[Var] = set()

    def walk(seq: SeqExpr) -> None:
        for block in seq.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, If):
                    found.update(uses(value.cond))
                    walk(value.true_branch)
                    walk(value.false_branch)
                else:
                    found.update(uses(value))
        found.update(uses(seq.body))

    walk(func.body)
    return found


class _Planner:
    """Assigns storages in program order."""

    def __init__(self, func: Function, liveness: _Liveness) -> None:
        self._liveness = liveness
        self._free: dict[Any, list[_Storage]] = {}
        self._inside: list[SeqExpr] = []
        self._seq(func.body)

    def _seq(self, seq: SeqExpr) -> None:
        self._inside.append(seq)
        for block in seq.blocks:
            for binding in block.bindings:
                self._binding(binding)
        self._inside.pop()

    def _binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, If):
            self._seq(value.true_branch)
            self._seq(value.false_branch)
            return
        if not isinstance(value, Call):
            return
        token = self._liveness.of_binding.get(binding.var)
        if token is not None:
            token.storage = self._take(token)
            if token.uses == 0:
                self._release(token)
        elif value.op is not _ALLOC and not _is_view(value):
            for arg in value.args:
                for used in self._liveness.tokens(arg):
                    used.uses -= 1
                    if used.uses == 0:
                        self._release(used)

    def _take(self, token: _Token) -> _Storage:
        if token.is_result:
            return _Storage(token.nbytes, self._inside[-1])
        free = self._free.get((token.scope, token.dtype), [])
        # A storage that a branch allocates does not exist outside of it.
        there = [s for s in free if any(s.seq is seq for seq in self._inside)]
        found = _fitting(there, token.nbytes)
        if found is None:
            return _Storage(token.nbytes, self._inside[-1])
        free.remove(found)
        if type(found.nbytes) is IntImm and found.nbytes.value < int(token.nbytes):  # type: ignore[call-overload]
            found.nbytes = token.nbytes
        return found

    def _release(self, token: _Token) -> None:
        assert token.storage is not None
        self._free.setdefault((token.scope, token.dtype), []).append(token.storage)


def _fitting(free: list[_Storage], nbytes: Expr) -> _Storage | None:
    """The free storage to use.  For a known size: the smallest that is large enough, or else the
    largest, which will grow.  For a symbolic size: one of provably the same size."""
    if type(nbytes) is not IntImm:
        return next((s for s in free if prove_equal(s.nbytes, nbytes)), None)
    size = nbytes.value
    known = [(s.nbytes.value, i) for i, s in enumerate(free) if type(s.nbytes) is IntImm]
    larger = [(n, i) for n, i in known if size <= n <= size * _RANGE]
    if larger:
        return free[min(larger)[1]]
    smaller = [(n, i) for n, i in known if size // _RANGE <= n < size]
    return free[max(smaller)[1]] if smaller else None


def _is_view(call: Call) -> bool:
    if isinstance(call.op, Op):
        return call.op.name in _VIEWS
    return isinstance(call.op, ExternFunc) and call.op.global_symbol in _PACKED_VIEWS


class _Rewriter(ExprMutator):
    def __init__(self, liveness: _Liveness) -> None:
        super().__init__()
        self._liveness = liveness

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        token = self._liveness.of_binding.get(binding.var)
        if token is None or token.storage is None:
            return super().visit_binding(binding)
        call: Any = binding.value
        shape, dtype, device, scope = self.visit_all(call.args)
        storage = token.storage
        new: list[Binding] = []
        if storage.var is None:
            storage.var = Var("storage", ANY)
            alloc = memory.alloc_storage(ShapeExpr([storage.nbytes]), device, scope, dtype)
            new.append(VarBinding(storage.var, alloc, binding.span))
        tensor = memory.alloc_tensor(storage.var, 0, shape, dtype, device)
        return [*new, self.rebind(binding, tensor)]


def StaticPlanBlockMemory() -> Pass:
    """Replace builtin.alloc_tensor by memory.alloc_storage and memory.alloc_tensor.  Tensors of the
    same data type and scope share a storage if the last use of one is before the allocation of the
    other, in the same block.

    Not planned are tensors that are returned, used in another block, the condition or the result of
    an If, or passed to anything but a PrimFunc or a packed function whose result is not used.
    Storages of symbolic size are shared if the sizes are provably equal.

    The function attributes "tir_var_upper_bound" and "tir_var_lower_bound" (name of a symbolic
    variable of the signature -> int) and "tir_non_negative_var" (names) bound dimensions.  With
    "relax.memory_plan_dynamic_func_output" results of dynamic shape are planned too, and the
    attribute is removed.
    """

    @function_pass(name="StaticPlanBlockMemory")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        liveness = _Liveness(func, mod)
        if liveness.of_binding:
            _Planner(func, liveness)
            func = _Rewriter(liveness).visit(func)
        return func.without_attr(DYNAMIC_OUTPUT) if DYNAMIC_OUTPUT in func.attrs else func

    return run
