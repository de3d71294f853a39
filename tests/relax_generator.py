"""Random well-typed programs of Relax, from a seed.

A program is a module, whose function "main" calls the others, and arguments for it.  It is built
with `BlockBuilder` and `relaxvm.op`, as a user would.  Rounding must not affect decisions: the
generator knows for every value whether its elements are integers (float sums are then exact in any
order) and how large they may be, so that two correct implementations return the same results.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relaxvm import ir, op
from relaxvm.ir import arith, prim
from relaxvm.values import Shape

from . import tir_examples

__all__ = ["Program", "generate", "packed_functions"]

MAX_ELEMENTS = 2000
MAX_VALUE = 5000.0
SMALL_VALUE = 16.0
"""What callees may rely on for the elements of their arguments."""
CALLEE_DIM = 12
MAIN_DIM = 5
FLOATS = ("float32", "float32", "float32", "float64")
DTYPES = (*FLOATS, "int32", "int64", "bool")


class Skip(Exception):
    """This step is not possible with the values in scope."""


@dataclass
class Program:
    """A random program.

    Attributes:
        module: the program; the entry function is "main".
        inputs: the arguments of several runs.
    """

    seed: int
    module: ir.IRModule
    inputs: list[list[Any]]


def packed_functions(log: list[Any]) -> dict[str, Callable[..., Any]]:
    """The packed functions that programs call; those with effects append to a log."""

    def record(*values: Any) -> None:
        log.append(copy.deepcopy(list(values)))  # as they are now, also in tuples

    def scale_into(x: Any, factor: Any, out: Any) -> None:
        np.multiply(x, out.dtype.type(factor), out=out)

    def both_into(x: Any, more: Any, less: Any) -> None:
        np.add(x, x.dtype.type(1), out=more)
        np.subtract(x, x.dtype.type(1), out=less)

    return {
        "test.log": record,
        "test.scale_into": scale_into,
        "test.both_into": both_into,
        "test.flipped": lambda x: np.array(np.flip(x)),
        "test.same": lambda x: x,
        "test.pair": lambda x: (np.asarray(x + x.dtype.type(1)), x),
        "test.count": lambda shape: len(shape),
        "test.scaled": lambda x, factor, name, dtype: np.asarray(
            x * x.dtype.type(factor + len(name))
        ),
    }


@dataclass(frozen=True)
class Facts:
    """What is known about a value in addition to its type.

    Attributes:
        bound: maximum of the absolute values of its numbers.
        exact: whether all its floats are integers.
        limits: of a tensor, upper bounds of its dimensions.
        own: it was made in this function and has no other references: it may be overwritten.
        fields: of a tuple, the facts of its fields.
        result: of a function, the facts of its result.
        is_pure: of a function.
    """

    bound: float = 1.0
    exact: bool = True
    limits: tuple[int, ...] = ()
    own: bool = False
    fields: tuple[Facts, ...] = ()
    result: Facts | None = None
    is_pure: bool = True


@dataclass(frozen=True)
class Item:
    """A value that the program can use."""

    expr: Any
    facts: Facts

    @property
    def ty(self) -> Any:
        return self.expr.ty


@dataclass
class Scope:
    """The values that can be used at a point in a function."""

    items: list[Item] = field(default_factory=list)
    dims: list[ir.Var] = field(default_factory=list)
    is_dataflow: bool = False
    is_pure: bool = True
    depth: int = 0

    def inner(self, **changes: Any) -> Scope:
        """An inner scope, which can use all values of this one but not overwrite them."""
        items = [replace(item, facts=replace(item.facts, own=False)) for item in self.items]
        return replace(self, items=items, dims=list(self.dims),
                       **{"depth": self.depth + 1, **changes})  # fmt: skip


def _is_tensor(ty: Any) -> bool:
    return type(ty) is ir.TensorType


def _same_dims(a: Any, b: Any) -> bool:
    return (
        a is not None and b is not None and len(a) == len(b)
        and all(map(ir.prove_equal, a, b))
    )  # fmt: skip


def _same_type(a: Any, b: Any) -> bool:
    return ir.is_base_of(a, b) and ir.is_base_of(b, a)


class Generator:
    """Generates one program."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.bb = ir.BlockBuilder()
        self.max_of: dict[ir.Var, int] = {}
        self.callees: list[Item] = []
        self.kernels: dict[Any, ir.GlobalVar] = {}
        self.size = self.rng.choice([4, 8, 8, 14, 20, 30])

    # Chances

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def pick(self, choices: Sequence[Any]) -> Any:
        if not choices:
            raise Skip
        return self.rng.choice(choices)

    # Dimensions

    def limit(self, dim: Any) -> int:
        """Return an upper bound of a dimension; all dimensions grow with their variables."""
        if isinstance(dim, ir.IntImm):
            return dim.value
        return int(arith.simplify(arith.substitute(dim, self._maxima(dim))).value)

    def _maxima(self, dim: Any) -> dict[ir.Var, Any]:
        return {v: ir.int_imm(self.max_of[v]) for v in arith.free_vars(dim)}

    def limits(self, dims: Sequence[Any]) -> tuple[int, ...]:
        limits = tuple(self.limit(dim) for dim in dims)
        if np.prod(limits, dtype=int) > MAX_ELEMENTS:
            raise Skip
        return limits

    def new_dim(self, limit: int, name: str = "k") -> ir.Var:
        var = ir.Var(f"{name}{len(self.max_of)}", "int64")
        self.max_of[var] = limit
        return var

    def dim(self, scope: Scope) -> Any:
        """A dimension in terms of the variables that are defined here."""
        kind = self.rng.random()
        if kind < 0.3 or not scope.dims:
            return ir.int_imm(self.rng.randint(1, 4))
        var = self.pick(scope.dims)
        if kind < 0.75:
            return var
        other = self.pick(scope.dims)
        return self.pick(
            [var + 1, var * 2, var + other, var // 2, prim.minimum(var, other), var + other * 2,
             prim.maximum(var, 2), (var + 3) // 4 * 4]
        )  # fmt: skip

    def dims(self, scope: Scope, ndim: int | None = None) -> list[Any]:
        count = self.rng.choice([0, 1, 1, 2, 2, 3]) if ndim is None else ndim
        return [self.dim(scope) for _ in range(count)]

    # Values

    def known(self, expr: Any, facts: Facts) -> Facts:
        """Facts, with the limits that follow from the type."""
        ty = expr.ty
        if _is_tensor(ty) and ty.dims is not None:
            return replace(facts, limits=self.limits(ty.dims))
        return facts

    def emit(self, scope: Scope, expr: Any, facts: Facts, **options: Any) -> Item:
        """Bind an expression and record its facts."""
        facts = self.known(expr, facts) if getattr(expr, "ty", None) is not None else facts
        var = self.bb.emit(expr, **options)
        item = Item(var, self.known(var, facts))
        scope.items.append(item)
        return item

    def tensors(self, scope: Scope, test: Callable[[Item], bool] = lambda item: True) -> list[Item]:
        """Tensors of known shape."""
        return [i for i in scope.items if _is_tensor(i.ty) and i.ty.dims is not None and test(i)]

    def tensor(self, scope: Scope, test: Callable[[Item], bool] = lambda item: True) -> Item:
        """A tensor of known shape, preferably a recent one."""
        found = self.tensors(scope, test)
        if len(found) > 4 and self.maybe(0.6):
            found = found[-4:]
        return self.pick(found)

    def number(self, dtype: str) -> Any:
        if dtype == "bool":
            return self.maybe(0.5)
        value = self.rng.randint(-3, 3)
        return float(value) if dtype.startswith("float") else value

    def array(self, shape: Sequence[int], dtype: str) -> Any:
        values = [self.number(dtype) for _ in range(int(np.prod(shape, dtype=int)))]
        return np.array(values, dtype).reshape(shape)

    def make(self, scope: Scope, ty: Any) -> Item:
        """A value of a type, an existing or a new one; its numbers are small and exact."""
        kind = type(ty)
        if kind is ir.TensorType:
            there = [
                i for i in self.tensors(scope, lambda i: i.ty.dtype == ty.dtype)
                if _same_dims(i.ty.dims, ty.dims) and i.facts.exact
            ]  # fmt: skip
            if there and self.maybe(0.8):
                return self.small(scope, self.pick(there))
            if ty.dims is None:
                raise Skip
            value = ir.const(self.number(ty.dtype), ty.dtype)
            return self.emit(scope, op.full(list(ty.dims), value, ty.dtype), Facts(3.0))
        if kind is ir.ShapeType and ty.values is not None:
            return self.emit(scope, ir.ShapeExpr(ty.values), Facts())
        if kind is ir.PrimType:
            return Item(self.scalar(scope), Facts())
        if kind is ir.TupleType:
            items = [self.make(scope, f) for f in ty.fields]
            return self.emit(scope, ir.Tuple([i.expr for i in items]),
                             Facts(fields=tuple(i.facts for i in items)))  # fmt: skip
        if kind is ir.FuncType:
            return self.function_of(scope, ty)
        raise Skip

    def scalar(self, scope: Scope) -> Any:
        """A small int64 scalar that is not negative."""
        found = [d for d in scope.dims if self.limit(d) <= MAIN_DIM]
        if not found or self.maybe(0.3):
            return ir.int_imm(self.rng.randint(0, 4))
        return self.pick(found)

    def small(self, scope: Scope, item: Item) -> Item:
        """The tensor, clamped if its numbers may be large."""
        if item.facts.bound <= SMALL_VALUE or item.ty.dtype == "bool":
            return item
        dtype = item.ty.dtype
        least, most = (ir.const(v, dtype) for v in (-SMALL_VALUE, SMALL_VALUE))
        clamped = op.minimum(op.maximum(item.expr, least), most)
        return self.emit(scope, clamped, replace(item.facts, bound=SMALL_VALUE, own=False))

    # Steps: each emits a value that can be used afterwards

    def unary(self, scope: Scope) -> None:
        x = self.tensor(scope)
        dtype, facts = x.ty.dtype, replace(x.facts, own=True)
        if dtype == "bool":
            self.emit(scope, op.logical_not(x.expr), facts)
            return
        make = self.pick([op.abs, op.negative, op.nn.relu, op.square, op.sign, op.tanh, op.sigmoid])
        if make is op.square:
            facts = self._bounded(facts, facts.bound**2)
        elif make in (op.tanh, op.sigmoid):
            if not dtype.startswith("float"):
                raise Skip
            facts = replace(facts, bound=1.0, exact=False)
        elif make is op.nn.relu and not dtype.startswith("float"):
            raise Skip
        elif make is op.sign:
            if not x.facts.exact:
                raise Skip
            facts = replace(facts, bound=1.0)
        self.emit(scope, make(x.expr), facts)

    def _bounded(self, facts: Facts, bound: float) -> Facts:
        if bound > MAX_VALUE:
            raise Skip
        return replace(facts, bound=bound)

    def _operand_for(self, scope: Scope, x: Item) -> Item:
        """A tensor or constant that broadcasts with a tensor."""
        if self.maybe(0.25):
            value = self.number(x.ty.dtype)
            return Item(ir.const(value, x.ty.dtype), Facts(abs(float(value))))
        return self.tensor(
            scope, lambda y: y.ty.dtype == x.ty.dtype and self._broadcasts(x.ty.dims, y.ty.dims)
        )

    @staticmethod
    def _broadcasts(a: Sequence[Any], b: Sequence[Any]) -> bool:
        def is_one(dim: Any) -> bool:
            return isinstance(dim, ir.IntImm) and dim.value == 1

        return all(
            is_one(x) or is_one(y) or ir.prove_equal(x, y)
            for x, y in zip(reversed(a), reversed(b), strict=False)
        )

    def binary(self, scope: Scope) -> None:
        x = self.tensor(scope)
        y = self._operand_for(scope, x)
        if x.ty.dtype == "bool":
            make = self.pick([op.logical_and, op.logical_or, op.logical_xor])
            self.emit(scope, make(x.expr, y.expr), Facts(own=True))
            return
        make = self.pick([op.add, op.subtract, op.multiply, op.maximum, op.minimum, op.add])
        a, b = x.facts.bound, y.facts.bound
        bound = a * b if make is op.multiply else max(a, b)
        bound = a + b if make in (op.add, op.subtract) else bound
        exact = x.facts.exact and y.facts.exact
        facts = self._bounded(Facts(exact=exact, own=True), bound)
        left, right = (x, y) if self.maybe(0.7) else (y, x)
        self.emit(scope, make(left.expr, right.expr), facts)

    def with_scalar(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.dtype == "int64")
        scalar = self.scalar(scope)
        self.emit(scope, op.add(x.expr, scalar),
                  self._bounded(Facts(own=True), x.facts.bound + MAIN_DIM))  # fmt: skip

    def division(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.dtype != "bool" and x.facts.exact)
        divisor = ir.const(self.pick([2, 3, 4]), x.ty.dtype)
        make = self.pick([op.floor_divide, op.floor_mod])
        self.emit(scope, make(x.expr, divisor), replace(x.facts, bound=x.facts.bound + 4, own=True))

    def comparison(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.facts.exact and x.ty.dtype != "bool")
        y = self._operand_for(scope, x)
        if not y.facts.exact:
            raise Skip
        make = self.pick([op.less, op.less_equal, op.greater, op.greater_equal, op.equal,
                          op.not_equal])  # fmt: skip
        self.emit(scope, make(x.expr, y.expr), Facts(own=True))

    def where(self, scope: Scope) -> None:
        condition = self.tensor(scope, lambda c: c.ty.dtype == "bool")
        x = self.tensor(scope, lambda x: self._broadcasts(condition.ty.dims, x.ty.dims))
        y = self._operand_for(scope, x)
        if y.ty.dims and not self._broadcasts(condition.ty.dims, y.ty.dims):
            raise Skip
        facts = Facts(max(x.facts.bound, y.facts.bound), x.facts.exact and y.facts.exact, own=True)
        self.emit(scope, op.where(condition.expr, x.expr, y.expr), facts)

    def astype(self, scope: Scope) -> None:
        x = self.tensor(scope)
        dtype = self.pick(DTYPES)
        if dtype == x.ty.dtype or (not x.facts.exact and not dtype.startswith("float")):
            raise Skip
        self.emit(scope, op.astype(x.expr, dtype), replace(x.facts, own=True))

    def clip(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.dtype != "bool")
        low, high = (-2, 3) if not x.ty.dtype.startswith("float") else (-2.0, 3.0)
        self.emit(scope, op.clip(x.expr, low, high), replace(x.facts, bound=3.0, own=True))

    def reshape(self, scope: Scope) -> None:
        x = self.tensor(scope)
        dims = list(x.ty.dims)
        total = arith.simplify(ir.int_imm(1))
        for dim in dims:
            total = arith.simplify(total * dim)
        choices: list[list[Any]] = [[total], [1, total], [*dims, 1], list(reversed(dims))]
        if len(dims) > 1:
            choices.append([arith.simplify(dims[0] * dims[1]), *dims[2:]])
        shape: Any = ir.ShapeExpr(self.pick(choices))  # where a dimension of 0 stays 0
        shapes = [s.expr for s in scope.items if type(s.ty) is ir.ShapeType
                  and s.ty.values and not isinstance(s.expr, ir.DataflowVar)]  # fmt: skip
        for candidate in shapes:
            product = ir.int_imm(1)
            for dim in candidate.ty.values:
                product = product * dim
            if self.maybe(0.7) and ir.prove_equal(product, total):
                shape = candidate
        self._disown(scope, [x])
        self.emit(scope, op.reshape(x.expr, shape), replace(x.facts, own=False, limits=()))

    def rearrange(self, scope: Scope) -> None:
        x = self.tensor(scope)
        ndim = x.ty.ndim
        axis = self.rng.randrange(ndim) if ndim else 0
        facts = replace(x.facts, own=False)
        kind = self.pick(["permute", "expand", "flip", "squeeze", "flatten", "tile", "repeat"])
        if kind == "expand":
            expr = op.expand_dims(x.expr, self.pick([0, -1, axis]))
        elif not ndim:
            raise Skip
        elif kind == "permute":
            axes = None if self.maybe(0.5) else self.rng.sample(range(ndim), ndim)
            expr = op.permute_dims(x.expr, axes)
        elif kind == "flip":
            expr = op.flip(x.expr, self.pick([axis, axis - ndim]))
        elif kind == "squeeze":
            ones = [i for i, d in enumerate(x.ty.dims) if isinstance(d, ir.IntImm) and d.value == 1]
            expr = op.squeeze(x.expr, [self.pick(ones)])
        elif kind == "flatten":
            expr = op.flatten(x.expr)
        elif kind == "tile":
            expr = op.tile(x.expr, [self.rng.randint(1, 2) for _ in range(ndim)])
        else:
            expr = op.repeat(x.expr, 2, axis)
        self._disown(scope, [x])
        self.emit(scope, expr, facts)

    def concat(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.ndim > 0)
        axis = self.rng.randrange(x.ty.ndim)

        def fits(y: Item) -> bool:
            return y.ty.dtype == x.ty.dtype and y.ty.ndim == x.ty.ndim and all(
                i == axis or ir.prove_equal(a, b)
                for i, (a, b) in enumerate(zip(x.ty.dims, y.ty.dims, strict=True))
            )  # fmt: skip

        others = [self.tensor(scope, fits) for _ in range(self.rng.randint(1, 2))]
        items = [x, *others]
        facts = Facts(max(i.facts.bound for i in items), all(i.facts.exact for i in items),
                      own=True)  # fmt: skip
        make = op.concat
        if self.maybe(0.3) and all(_same_dims(x.ty.dims, o.ty.dims) for o in others):
            make = op.stack
        self.emit(scope, make([i.expr for i in items], axis), facts)

    def split(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.ndim > 0)
        axis = self.rng.randrange(x.ty.ndim)
        where = self.pick([2, [1], 2]) if isinstance(x.ty.dims[axis], ir.IntImm) else 2
        if isinstance(x.ty.dims[axis], ir.IntImm) and x.ty.dims[axis].value < 2:
            raise Skip
        parts = op.split(x.expr, where, axis)
        facts = [self.known(Item(ir.Var("part", f), Facts()).expr, replace(x.facts, own=False))
                 for f in parts.ty.fields]  # fmt: skip
        self._disown(scope, [x])
        self.emit(scope, parts, Facts(fields=tuple(facts)))

    def reduce(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.dtype != "bool")
        ndim = x.ty.ndim
        axis = self.pick([None, *range(ndim)])
        axes = range(ndim) if axis is None else [axis]
        count = np.prod([self.limit(x.ty.dims[a]) for a in axes], dtype=int)
        kind = self.pick(["sum", "sum", "max", "min", "cumsum"])
        facts = replace(x.facts, own=True, limits=())
        if kind == "cumsum":
            if axis is None or not x.facts.exact:
                raise Skip
            facts = self._bounded(facts, x.facts.bound * max(1, count))
            self.emit(scope, op.cumsum(x.expr, axis), facts)
            return
        if kind == "sum":
            facts = self._bounded(facts, x.facts.bound * max(1, count))
        elif not all(isinstance(x.ty.dims[a], ir.IntImm) and x.ty.dims[a].value for a in axes):
            raise Skip
        self.emit(scope, getattr(op, kind)(x.expr, axis, self.maybe(0.3)), facts)

    def find(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.ndim > 0 and x.facts.exact and x.ty.dtype != "bool")
        axes = [i for i, d in enumerate(x.ty.dims) if isinstance(d, ir.IntImm) and d.value]
        self.emit(scope, op.argmax(x.expr, self.pick(axes)), Facts(20.0, own=True))

    def matmul(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.ndim == 2 and x.ty.dtype in FLOATS)
        y = self.tensor(
            scope, lambda y: y.ty.ndim == 2 and y.ty.dtype == x.ty.dtype
            and ir.prove_equal(x.ty.dims[1], y.ty.dims[0])
        )  # fmt: skip
        bound = x.facts.bound * y.facts.bound * max(1, self.limit(x.ty.dims[1]))
        facts = self._bounded(Facts(exact=x.facts.exact and y.facts.exact, own=True), bound)
        self.emit(scope, op.matmul(x.expr, y.expr), facts)

    def slice(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.ndim > 0)
        axes = [i for i, d in enumerate(x.ty.dims) if isinstance(d, ir.IntImm) and d.value > 1]
        axis = self.pick(axes)
        begin = self.rng.randint(0, 1)
        end = self.rng.randint(begin + 1, x.ty.dims[axis].value)
        facts = replace(x.facts, own=False)
        self._disown(scope, [x])
        if self.maybe(0.5):
            self.emit(scope, op.strided_slice(x.expr, [axis], [begin], [end]), facts)
        else:
            indices = ir.const(np.array([begin, 0, end - 1], "int64"))
            self.emit(scope, op.take(x.expr, indices, axis), facts)

    def broadcast_to(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.ndim < 3)
        dims = [self.dim(scope), *x.ty.dims]
        self.limits(dims)
        self._disown(scope, [x])
        self.emit(scope, op.broadcast_to(x.expr, dims), replace(x.facts, own=False))

    def create(self, scope: Scope) -> None:
        dims = self.dims(scope)
        self.limits(dims)
        dtype = self.pick(DTYPES)
        if self.maybe(0.3):
            self.emit(scope, op.arange(self.dim(scope)), Facts(float(CALLEE_DIM * 4)))
        elif self.maybe(0.5):
            self.emit(scope, self.pick([op.zeros, op.ones])(dims, dtype), Facts(own=True))
        else:
            value = ir.const(self.number(dtype), dtype)
            self.emit(scope, op.full(dims, value, dtype), Facts(3.0, own=True))

    def constant(self, scope: Scope) -> None:
        shape = [self.rng.randint(1, 3) for _ in range(self.rng.randint(0, 2))]
        value = ir.const(self.array(shape, self.pick(DTYPES)))
        if self.maybe(0.5):
            self.emit(scope, value, Facts(3.0))
        else:
            scope.items.append(Item(value, self.known(value, Facts(3.0))))

    def tuple(self, scope: Scope) -> None:
        items = [self.pick(self._data(scope)) for _ in range(self.rng.randint(1, 3))]
        facts = Facts(fields=tuple(i.facts for i in items))
        self._disown(scope, items)
        self.emit(scope, ir.Tuple([i.expr for i in items]), facts)

    def _data(self, scope: Scope) -> list[Item]:
        """Values that are not functions."""
        return [i for i in scope.items if _is_data(i.ty)]

    @staticmethod
    def _disown(scope: Scope, items: Sequence[Item]) -> None:
        """Record that other variables refer to these items from now on."""
        for position, item in enumerate(scope.items):
            if any(item is i for i in items):
                scope.items[position] = replace(item, facts=replace(item.facts, own=False))

    def getitem(self, scope: Scope) -> None:
        x = self.pick([i for i in scope.items if type(i.ty) is ir.TupleType and i.ty.fields])
        index = self.rng.randrange(len(x.ty.fields))
        self.emit(scope, ir.TupleGetItem(x.expr, index), replace(x.facts.fields[index], own=False))

    def alias(self, scope: Scope) -> None:
        item = self.pick([i for i in scope.items if isinstance(i.expr, ir.Var)])
        self._disown(scope, [item])
        self.emit(scope, item.expr, replace(item.facts, own=False))

    def shape(self, scope: Scope) -> None:
        if self.maybe(0.5):
            self.emit(scope, op.shape_of(self.tensor(scope).expr), Facts())
        else:
            self.emit(scope, ir.ShapeExpr(self.dims(scope, self.rng.randint(1, 3))), Facts())

    def shape_as_tensor(self, scope: Scope) -> None:
        shape = self.pick([i for i in scope.items if type(i.ty) is ir.ShapeType and i.ty.values])
        self.emit(scope, op.shape_to_tensor(shape.expr), Facts(100.0))

    def tensor_as_shape(self, scope: Scope) -> None:
        """A shape computed from data, and the dimensions that it defines."""
        values = ir.const(np.array([self.rng.randint(0, 4) for _ in range(2)], "int64"))
        shape = self.emit(scope, op.tensor_to_shape(values), Facts())
        dims = [self.new_dim(4), self.new_dim(4)]
        self.bb.match_cast(shape.expr, ir.ShapeType(dims))
        scope.dims += dims

    def match_cast(self, scope: Scope) -> None:
        x = self.pick([i for i in scope.items if _is_tensor(i.ty) and i.ty.ndim > 0])
        limits = x.facts.limits
        if len(limits) != x.ty.ndim:
            raise Skip
        dims: list[Any] = []
        for i, limit in enumerate(limits):
            known = None if x.ty.dims is None else x.ty.dims[i]
            if known is not None and (isinstance(known, ir.IntImm) or self.maybe(0.3)):
                dims.append(known)
            else:
                dims.append(self.new_dim(limit))
        if self.maybe(0.04) and not isinstance(dims[-1], ir.IntImm):
            dims[-1] = dims[0]  # may fail at run time
        ty = ir.TensorType(dims, x.ty.dtype)
        self._disown(scope, [x])
        var = self.bb.match_cast(x.expr, ty)
        scope.dims += [d for d in dims if isinstance(d, ir.Var) and d not in scope.dims]
        scope.items.append(Item(var, replace(x.facts, own=False)))

    def scalar_value(self, scope: Scope) -> None:
        if scope.is_dataflow:
            raise Skip
        var = self.pick(scope.dims)
        value = self.pick([var + 1, var * 2, var // 2])
        bound = self.bb.emit(value)
        self.max_of[bound] = self.limit(value)
        if self.limit(value) <= CALLEE_DIM:
            scope.dims.append(bound)

    def opaque(self, scope: Scope) -> None:
        """A value of unknown type, and a cast that restores its type."""
        x = self.tensor(scope, lambda x: x.ty.ndim > 0)
        self._disown(scope, [x])
        any_value = self.bb.emit(op.call_pure_packed("test.same", x.expr, ty_args=ir.AnyType()))
        dims = [self.new_dim(limit) for limit in self.limits(x.ty.dims)]
        dtype, wrong = x.ty.dtype, self.rng.random()
        if wrong < 0.02:
            dtype = "int8"  # fails at run time
        elif wrong < 0.04:
            dims.append(dims[0])
        var = self.bb.match_cast(any_value, ir.TensorType(dims, dtype))
        if wrong >= 0.04:
            scope.dims += dims
            scope.items.append(Item(var, replace(x.facts, own=False)))

    # Packed functions and PrimFuncs

    def packed(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.dtype != "bool" and x.facts.exact)
        ty, facts = x.ty, replace(x.facts, own=True)
        kind = self.pick(["scale", "both", "flipped", "same", "pair", "count", "scaled"])
        call = op.call_pure_packed if scope.is_pure or self.maybe(0.5) else op.call_packed
        if kind == "scale":
            factor = self.scalar(scope)
            self.emit(scope, op.call_dps_packed("test.scale_into", (x.expr, factor), ty),
                      self._bounded(facts, facts.bound * MAIN_DIM))  # fmt: skip
        elif kind == "both":
            more = replace(self._bounded(facts, facts.bound + 1), own=False)
            self.emit(scope, op.call_dps_packed("test.both_into", (x.expr,), [ty, ty]),
                      Facts(fields=(more, more)))  # fmt: skip
        elif kind == "flipped":
            self.emit(scope, call("test.flipped", x.expr, ty_args=ty), facts)
        elif kind == "same":
            self._disown(scope, [x])
            self.emit(scope, call("test.same", x.expr, ty_args=ty), replace(facts, own=False))
        elif kind == "pair":
            self._disown(scope, [x])
            both = ir.TupleType([ty, ty])
            more = replace(self._bounded(facts, facts.bound + 1), own=False)
            self.emit(scope, call("test.pair", x.expr, ty_args=both), Facts(fields=(more, more)))
        elif kind == "count":
            if scope.is_dataflow:
                raise Skip
            shape = ir.ShapeExpr(self.dims(scope, 2))
            count = self.bb.emit(call("test.count", shape, ty_args=ir.PrimType("int64")))
            self.max_of[count] = 3
            scope.dims.append(count)
        else:
            factor = self.scalar(scope) + 1
            value = call("test.scaled", x.expr, factor, "ab", np.dtype("float32"), ty_args=ty)
            self.emit(scope, value, self._bounded(facts, facts.bound * (MAIN_DIM + 3)))

    def log(self, scope: Scope) -> None:
        if scope.is_pure or scope.is_dataflow:
            raise Skip
        items = [i for i in self._data(scope) if _is_exact(i.facts)]
        values = [self.pick(items).expr for _ in range(self.rng.randint(1, 2))]
        scalar = self.scalar(scope)
        extra = self.pick([3, "text", scalar, scalar + 2, scalar * 2 > 3, scalar < 1, 2.5])
        self.bb.emit(op.call_packed("test.log", *values, extra, ty_args=ir.TupleType([])))

    def kernel(self, maker: Callable[..., Any], *args: Any, **options: Any) -> ir.GlobalVar:
        """The PrimFunc of a maker, once for each module."""
        key = (maker.__name__, args, tuple(options.items()))
        if key not in self.kernels:
            name = "_".join(map(str, ["tir", maker.__name__, *args]))
            self.kernels[key] = self.bb.add_func(maker(*args, **options), name)
        return self.kernels[key]

    def call_tir(self, scope: Scope) -> None:
        x = self.tensor(scope, lambda x: x.ty.dtype != "bool" and x.facts.exact)
        dtype, ndim, ty = x.ty.dtype, x.ty.ndim, x.ty
        facts = replace(x.facts, own=True)
        plain = ir.TensorType(ty.dims, dtype)
        kind = self.pick(["elementwise", "elementwise", "add", "transpose", "row_sums", "shifted",
                          "two_results", "joined", "clamped"])  # fmt: skip
        kernel = self.kernel
        if kind == "elementwise":
            which = self.pick(["double", "next", "relu", "abs"])
            func = kernel(tir_examples.elementwise, dtype, ndim, which, block=self.maybe(0.5))
            self.emit(scope, op.call_tir(func, (x.expr,), plain),
                      self._bounded(facts, facts.bound * 2 + 1))  # fmt: skip
        elif kind == "add":
            y = self.tensor(scope, lambda y: y.ty.dtype == dtype and y.facts.exact
                            and _same_dims(ty.dims, y.ty.dims))  # fmt: skip
            self.emit(scope, op.call_tir(kernel(tir_examples.add, dtype, ndim),
                                         (x.expr, y.expr), plain),
                      self._bounded(facts, facts.bound + y.facts.bound))  # fmt: skip
        elif kind == "shifted":
            func = kernel(tir_examples.shifted, dtype, ndim)
            extent = self.pick([self.scalar(scope), self.scalar(scope) + 1])
            self.emit(scope, op.call_tir(func, (x.expr,), plain, tir_vars=[extent]),
                      self._bounded(facts, facts.bound + MAIN_DIM + 1))  # fmt: skip
        elif kind == "two_results":
            func = kernel(tir_examples.two_results, dtype, ndim)
            more = replace(self._bounded(facts, facts.bound + 1), own=False)
            self.emit(scope, op.call_tir(func, (x.expr,), [plain, plain]),
                      Facts(fields=(more, more)))  # fmt: skip
        elif kind == "transpose" and ndim == 2:
            out = ir.TensorType([ty.dims[1], ty.dims[0]], dtype)
            self.emit(scope, op.call_tir(kernel(tir_examples.transpose, dtype), (x.expr,), out),
                      facts)  # fmt: skip
        elif kind == "row_sums" and ndim == 2 and isinstance(ty.dims[1], ir.IntImm):
            out = ir.TensorType([ty.dims[0]], dtype)
            self.emit(scope, op.call_tir(kernel(tir_examples.row_sums, dtype), (x.expr,), out),
                      self._bounded(facts, facts.bound * self.limit(ty.dims[1])))  # fmt: skip
        elif kind == "clamped" and ndim == 1:
            self.emit(scope, op.call_tir(kernel(tir_examples.clamped, dtype), (x.expr,), plain),
                      facts)  # fmt: skip
        elif kind == "joined" and ndim == 1:
            y = self.tensor(scope, lambda y: y.ty.dtype == dtype and y.ty.ndim == 1
                            and y.facts.exact)  # fmt: skip
            out = ir.TensorType([arith.simplify(ty.dims[0] + y.ty.dims[0])], dtype)
            self.limits(out.dims)
            bound = max(facts.bound, y.facts.bound)
            self.emit(scope, op.call_tir(kernel(tir_examples.joined, dtype), (x.expr, y.expr), out),
                      replace(facts, bound=bound))  # fmt: skip
        else:
            raise Skip

    def in_place(self, scope: Scope) -> None:
        """Overwrite a tensor that nothing else refers to, and that is not used any more."""
        x = self.tensor(
            scope, lambda x: x.facts.own and x.ty.dtype != "bool" and x.facts.exact
            and isinstance(x.expr, ir.Var)
        )  # fmt: skip
        scope.items[:] = [i for i in scope.items if i is not x]
        dtype, ndim = x.ty.dtype, x.ty.ndim
        ty = ir.TensorType(x.ty.dims, dtype)
        facts = self._bounded(x.facts, x.facts.bound * 2 + 1)
        if self.maybe(0.5):
            func = self.kernel(tir_examples.in_place, dtype, ndim)
            self.emit(scope, op.call_tir_inplace(func, (x.expr,), 0, ty), facts)
        else:
            func = self.kernel(tir_examples.in_place, dtype, ndim, second=True)
            call = op.call_tir_inplace(func, (x.expr,), [0, -1], [ty, ty])
            item = replace(facts, own=False)
            self.emit(scope, call, Facts(fields=(item, item)))

    # Control flow

    def condition(self, scope: Scope) -> Any:
        kind = self.rng.random()
        if kind < 0.3 and scope.dims:
            var = self.pick(scope.dims)
            return self.pick([var > 2, var < 3, prim.equal(var % 2, 0), var >= 1])
        if kind < 0.35:
            return ir.const(self.maybe(0.5))
        found = self.tensors(scope, lambda c: c.ty.dtype == "bool" and not c.ty.dims)
        if found and kind < 0.6:
            return self.pick(found).expr
        x = self.tensor(scope, lambda x: x.ty.dtype != "bool" and x.facts.exact)
        total = x.expr if not x.ty.dims else self.bb.emit(op.sum(x.expr))
        return self.bb.emit(op.less(total, ir.const(self.number(x.ty.dtype), x.ty.dtype)))

    def if_(self, scope: Scope) -> None:
        if scope.is_dataflow or scope.depth > 3:
            raise Skip
        condition = self.condition(scope)
        first, then = self.branch(scope, lambda inner: self.result(inner, scope))
        second, orelse = self.branch(scope, lambda inner: self.matching(inner, first))
        facts = _either(first.facts, second.facts)
        self._disown(scope, scope.items)
        self.emit(scope, ir.If(condition, then, orelse), replace(facts, own=False))

    def branch(self, scope: Scope, choose: Callable[[Scope], Item]) -> tuple[Item, ir.SeqExpr]:
        self.bb.begin_scope()
        inner = scope.inner()
        self.steps(inner, self.rng.randint(0, 4))
        item = choose(inner)
        return item, self.bb.end_scope(item.expr)

    def result(self, inner: Scope, outer: Scope) -> Item:
        """A value for a branch to return, preferably a recent one."""
        new = [i for i in self._data(inner)[-4:] if all(map(_has_limits, _leaves(i)))]
        return self.pick(new or self._data(outer))

    def matching(self, inner: Scope, first: Item) -> Item:
        """A value that a branch can return if another branch returns `first`."""
        ty = first.ty
        if _is_tensor(ty):
            found = [i for i in inner.items if _is_tensor(i.ty) and i.ty.dtype == ty.dtype
                     and i.ty.ndim == ty.ndim and i is not first and _has_limits(i)]  # fmt: skip
            if found and self.maybe(0.5):
                return self.pick(found[-4:])
        same = [i for i in self._data(inner) if _same_type(i.ty, ty)]
        if same:
            return self.pick(same)
        if not set(ir.type_free_vars(ty)) <= set(inner.dims):
            return self._erased_match(inner, ty)
        return self.make(inner, ty)

    def _erased_match(self, inner: Scope, ty: Any) -> Item:
        """As `make`, for a type with dimensions that are not known in this branch."""
        if not _is_tensor(ty):
            return self.emit(inner, ir.Tuple([]), Facts())
        dims = self.dims(inner, ty.ndim)
        self.limits(dims)
        return self.make(inner, ir.TensorType(dims, ty.dtype))

    def dataflow(self, scope: Scope) -> None:
        if scope.is_dataflow:
            raise Skip
        inner = scope.inner(is_dataflow=True)
        before = len(inner.items)
        with self.bb.dataflow():
            self.steps(inner, self.rng.randint(2, max(3, self.size // 2)))
            new = [i for i in self._data(inner)[before:] if isinstance(i.expr, ir.DataflowVar)]
            outputs = self.rng.sample(new, min(len(new), self.rng.randint(1, 3)))
            if not all(item.facts.own for item in outputs):
                self._disown(scope, scope.items)
            for item in outputs:
                var = self.bb.emit_output(item.expr)
                scope.items.append(Item(var, replace(item.facts, own=False)))
        scope.dims += [d for d in inner.dims if d not in scope.dims
                       and not isinstance(d, ir.DataflowVar)]  # fmt: skip

    # Functions

    def param_type(self, scope: Scope, kinds: str = "tensor") -> Any:
        kind = self.rng.random()
        if kind < 0.75 or kinds == "tensor":
            dims = self.dims(scope)
            self.limits(dims)
            return ir.TensorType(dims, self.pick(DTYPES))
        if kind < 0.82:
            return ir.ShapeType(self.dims(scope, self.rng.randint(1, 2)))
        if kind < 0.88:
            return ir.PrimType("int64")
        count = self.rng.randint(0, 3)
        return ir.TupleType([self.param_type(scope, "tensor") for _ in range(count)])

    def params(self, limit: int, own_dims: int) -> tuple[list[ir.Var], Scope]:
        """Parameters of a function, and its scope.  Every symbolic variable is a whole dimension
        somewhere."""
        scope = Scope(dims=[self.new_dim(limit, "n") for _ in range(own_dims)])
        count = self.rng.randint(1, 4)
        types = [self.param_type(scope, "all") for _ in range(count)]
        mentioned = {v for ty in types for v in ir.type_free_vars(ty)}
        alone = {v for ty in types for v in _standing_alone(ty)}
        open_dims = [d for d in scope.dims if d in mentioned and d not in alone]
        if open_dims:
            types.insert(self.rng.randint(0, len(types)), ir.TensorType(open_dims, "float32"))
        scope.dims = [d for d in scope.dims if d in mentioned]
        params = [ir.Var(f"p{i}", ty) for i, ty in enumerate(types)]
        for param in params:
            self.limits_of_type(param.ty)
            if type(param.ty) is ir.PrimType:
                self.max_of[param] = MAIN_DIM
                scope.dims.append(param)
            else:
                scope.items.append(Item(param, self.facts_of_type(param.ty)))
        return params, scope

    def limits_of_type(self, ty: Any) -> None:
        if type(ty) is ir.TupleType:
            for each in ty.fields:
                self.limits_of_type(each)
        elif _is_tensor(ty):
            self.limits(ty.dims)

    def facts_of_type(self, ty: Any) -> Facts:
        """The facts that hold for any argument of a type."""
        if type(ty) is ir.TupleType:
            return Facts(fields=tuple(map(self.facts_of_type, ty.fields)))
        if _is_tensor(ty):
            return Facts(1.0 if ty.dtype == "bool" else SMALL_VALUE, limits=self.limits(ty.dims))
        return Facts()

    def helper(self, number: int) -> None:
        """A function of the module that others can call."""
        is_pure = self.maybe(0.75)
        params, scope = self.params(CALLEE_DIM, self.rng.randint(0, 2))
        scope.is_pure = is_pure
        name = f"helper{number}"
        with self.bb.function(name, params, private=self.maybe(0.5), pure=is_pure):
            self.steps(scope, self.rng.randint(1, self.size))
            if self.maybe(0.2):
                item = self.closure(scope, alone=True)
            else:
                item = self.pick([i for i in self._data(scope)[-5:]
                                  if all(map(_has_limits, _leaves(i)))])  # fmt: skip
            gv = self.bb.emit_func_output(item.expr)
        facts = Facts(result=_shared(item.facts), is_pure=is_pure)
        self.callees.append(Item(gv, facts))

    def recursive(self, number: int) -> None:
        """A function that calls itself as many times as its first argument says."""
        dims = [self.new_dim(CALLEE_DIM, "n") for _ in range(self.rng.randint(0, 2))]
        dtype = self.pick(("float32", "int32"))
        is_pure = self.maybe(0.8)
        grows = bool(dims) and len(dims) == 1 and self.maybe(0.3)
        by_scalar = self.maybe(0.4)
        counter_ty = ir.PrimType("int64") if by_scalar else ir.TensorType((), "int32")
        ty = ir.TensorType(dims or [self.rng.randint(1, 3)], dtype)
        ret = ir.TensorType(None, dtype, ndim=ty.ndim) if grows else ty
        gv = ir.GlobalVar(f"recursive{number}", ir.FuncType([counter_ty, ty], ret, is_pure))
        counter, x = ir.Var("counter", counter_ty), ir.Var("x", ty)
        func = self._recursive_function(gv, counter, x, ret, is_pure, grows)
        self.bb.update_func(gv, func)
        limits = (CALLEE_DIM * 2**5,) if grows else self.facts_of_type(ty).limits
        facts = Facts(result=Facts(SMALL_VALUE, limits=limits), is_pure=is_pure)
        self.callees.append(Item(gv, facts))

    def _recursive_function(
        self, callee: Any, counter: ir.Var, x: ir.Var, ret: Any, is_pure: bool, grows: bool
    ) -> ir.Function:
        bb = self.bb
        bb.begin_scope([counter, x])
        by_scalar = type(counter.ty) is ir.PrimType
        done = counter <= 0 if by_scalar else bb.emit(op.less_equal(counter, ir.const(0)))
        dims = [d for d in x.ty.dims if isinstance(d, ir.Var)]
        scope = Scope([Item(x, self.facts_of_type(x.ty))], dims, is_pure=is_pure, depth=2)
        bb.begin_scope()
        then = bb.end_scope(x)
        bb.begin_scope()
        self.steps(scope, self.rng.randint(0, 4))
        less = counter - 1 if by_scalar else bb.emit(op.subtract(counter, ir.const(1)))
        same = [i for i in scope.items if _is_tensor(i.ty) and _same_type(i.ty, x.ty)
                and i.facts.exact]  # fmt: skip
        again = self.small(scope, self.pick(same)).expr
        if grows:
            again = bb.emit(op.concat([again, again]))
        again = ir.Call(callee, [less, again])
        result = bb.emit(again)
        if self.maybe(0.5) and not grows:
            result = self.small(scope, self.emit(scope, op.add(result, x),
                                                 Facts(2 * SMALL_VALUE))).expr  # fmt: skip
        orelse = bb.end_scope(result)
        value = bb.emit(ir.If(done, then, orelse))
        return ir.Function([counter, x], bb.end_scope(value), ret, is_pure)

    def closure(self, scope: Scope, *, alone: bool = False) -> Item:
        """A local function, bound to a variable; `alone` if its signature must not mention outer
        dimensions, because its callers do not know them."""
        if scope.depth > 2:
            raise Skip
        is_pure = scope.is_pure or self.maybe(0.7)
        outside = scope.inner(is_dataflow=False, is_pure=is_pure, depth=scope.depth + 2)
        outside.items = [replace(i, facts=_shared(i.facts)) for i in outside.items
                         if not isinstance(i.expr, ir.DataflowVar)]  # fmt: skip
        outside.dims = [d for d in outside.dims if not isinstance(d, ir.DataflowVar)]
        own = Scope(dims=[*outside.dims] if self.maybe(0.3) and not alone else [])
        if self.maybe(0.5):
            own.dims.append(self.new_dim(CALLEE_DIM, "m"))
        types = []
        for _ in range(self.rng.randint(1, 2)):
            dims = [self.pick([*own.dims, ir.int_imm(2)])
                    for _ in range(self.rng.randint(0, 2))]  # fmt: skip
            self.limits(dims)
            types.append(ir.TensorType(dims, self.pick(("float32", "int32", "int64"))))
        return self._local(scope, outside, [ir.Var(f"a{i}", ty) for i, ty in enumerate(types)],
                           is_pure)  # fmt: skip

    def _local(
        self, scope: Scope, outside: Scope, params: list[ir.Var], is_pure: bool,
        ret: Any = None,
    ) -> Item:  # fmt: skip
        outside.items += [Item(p, self.facts_of_type(p.ty)) for p in params]
        mentioned = [v for p in params for v in ir.type_free_vars(p.ty)]
        outside.dims += [v for v in dict.fromkeys(mentioned) if v not in outside.dims]
        self.bb.begin_scope(params)
        self.steps(outside, self.rng.randint(1, 5))
        if ret is None:
            found = [i for i in self._data(outside)[-4:] if all(map(_has_limits, _leaves(i)))]
            item = self.pick(found)
        else:
            item = self.make(outside, ret)
        body = self.bb.end_scope(item.expr)
        known = [v for v in scope.dims if not isinstance(v, ir.DataflowVar)]
        ret_ty = ir.function_ret_type(params, body, known)
        func = ir.Function(params, body, ret_ty, is_pure)
        self._disown(scope, scope.items)
        facts = Facts(result=_shared(item.facts), is_pure=is_pure)
        return self.emit(scope, func, facts, name_hint=self.pick(["inner", "f", "local"]))

    def function_of(self, scope: Scope, ty: ir.FuncType) -> Item:
        """A function of a type, whose parameters are tensors of known shape."""
        if scope.depth > 2 or ty.params is None:
            raise Skip
        outside = scope.inner(is_dataflow=False, is_pure=True, depth=scope.depth + 2)
        outside.items = [replace(i, facts=_shared(i.facts)) for i in outside.items
                         if not isinstance(i.expr, ir.DataflowVar)]  # fmt: skip
        outside.dims = [d for d in outside.dims if not isinstance(d, ir.DataflowVar)]
        params = [ir.Var(f"a{i}", p) for i, p in enumerate(ty.params)]
        return self._local(scope, outside, params, True, ty.ret)

    def local_function(self, scope: Scope) -> None:
        self.closure(scope)

    def local_recursion(self, scope: Scope) -> None:
        """A local function that calls itself and captures variables."""
        if scope.depth > 1 or scope.is_dataflow:
            raise Skip
        y = self.tensor(scope, lambda y: y.ty.dtype in ("float32", "int32") and y.facts.exact)
        y = self.small(scope, y)
        counter = ir.Var("counter", ir.TensorType((), "int32"))
        x = ir.Var("x", ir.TensorType(y.ty.dims, y.ty.dtype))
        f = ir.Var("loop", ir.FuncType([counter.ty, x.ty], x.ty, True))
        bb = self.bb
        bb.begin_scope([counter, x])
        done = bb.emit(op.less_equal(counter, ir.const(0)))
        bb.begin_scope()
        then = bb.end_scope(x)
        bb.begin_scope()
        inner = scope.inner(depth=4)
        total = self.emit(inner, op.add(x, y.expr), Facts(2 * SMALL_VALUE))
        less = bb.emit(op.subtract(counter, ir.const(1)))
        orelse = bb.end_scope(bb.emit(ir.Call(f, [less, self.small(inner, total).expr])))
        body = bb.end_scope(bb.emit(ir.If(done, then, orelse)))
        self._disown(scope, scope.items)
        bb.emit_normalized(ir.VarBinding(f, ir.Function([counter, x], body, x.ty, True)))
        count = ir.const(self.rng.randint(0, 4))
        self.emit(scope, ir.Call(f, [count, y.expr]), Facts(SMALL_VALUE))

    def call(self, scope: Scope) -> None:
        """Call a function: of the module, or a value."""
        local = [i for i in scope.items if type(i.ty) is ir.FuncType]
        callee = self.pick(local if local and self.maybe(0.6) else self.callees)
        self._call(scope, callee)

    def _call(self, scope: Scope, callee: Item) -> None:
        if not callee.facts.is_pure and (scope.is_pure or scope.is_dataflow):
            raise Skip
        if callee.facts.result is None:
            raise Skip
        # A local function may mention outer dimensions, which are the same here.
        mentioned = {v for p in callee.ty.params for v in ir.type_free_vars(p)}
        variables: dict[ir.Var, Any] = {d: d for d in scope.dims if d in mentioned}
        args = []
        recursive = isinstance(callee.expr, ir.GlobalVar) and "recursive" in callee.expr.name_hint
        for position, param in enumerate(callee.ty.params):
            if recursive and position == 0 and _is_tensor(param):
                args.append(ir.const(self.rng.randint(0, 5)))
                continue
            arg = self.argument(scope, param, variables)
            if _is_tensor(arg.ty) or type(arg.ty) is ir.TupleType:
                self._disown(scope, [arg])
            args.append(arg.expr)
        for limit in map(self.limit, variables.values()):
            if limit > CALLEE_DIM:
                raise Skip
        result = callee.facts.result
        call = ir.Call(callee.expr, args)
        self.emit(scope, call, replace(result, own=False))

    def argument(self, scope: Scope, param: Any, variables: dict[ir.Var, Any]) -> Item:
        """A value for a parameter; binds the symbolic variables of its type."""
        if _is_tensor(param) and self.maybe(0.8):
            for item in self.rng.sample(scope.items, len(scope.items)):
                bound = dict(variables)
                if _is_tensor(item.ty) and item.ty.dtype == param.dtype and item.facts.exact and (
                    ir.bind_type(param, item.ty, bound) == ir.BaseCheckResult.PASS
                ) and all(self.limit(e) <= CALLEE_DIM for e in bound.values()):  # fmt: skip
                    variables.update(bound)
                    return self.small(scope, item)
        for var in ir.type_free_vars(param):
            if var not in variables and type(param) is not ir.FuncType:
                choices = [d for d in scope.dims if self.limit(d) <= CALLEE_DIM]
                fixed = ir.int_imm(self.rng.randint(1, 3))
                variables[var] = self.pick(choices) if choices and self.maybe(0.7) else fixed
        return self.make(scope, ir.substitute_type(param, variables))

    def higher_order(self, number: int) -> None:
        """A function that takes a function."""
        vector = ir.TensorType((3,), "float32")
        f = ir.Var("f", ir.FuncType([vector], vector, True))
        x = ir.Var("x", vector)
        with self.bb.function(f"apply{number}", [f, x], private=True):
            once = self.bb.emit(ir.Call(f, [x]))
            result = self.bb.emit(op.add(once, x))
            if self.maybe(0.5):
                result = self.bb.emit(ir.Call(f, [result]))
            gv = self.bb.emit_func_output(result)
        result_facts = Facts(2 * SMALL_VALUE, exact=True, limits=(3,))
        self.callees.append(Item(gv, Facts(result=result_facts)))

    # Programs

    def steps(self, scope: Scope, count: int) -> None:
        """Try a number of random steps."""
        for _ in range(count):
            for _ in range(8):
                step = self.rng.choices(_STEPS, _WEIGHTS)[0]
                if self.attempt(lambda step=step: step(self, scope)):
                    break

    def program(self) -> Program:
        makers = [self.helper, self.helper, self.recursive, self.higher_order]
        for number in range(self.rng.choice([0, 0, 1, 2, 3])):
            self.attempt(lambda n=number: self.rng.choice(makers)(n))
        while not self.attempt(self.main):
            pass
        module = self.bb.get()
        main = module["main"]
        inputs = [self.arguments(main.params, dims) for dims in self.assignments(main.params)]
        return Program(self.seed, module, inputs)

    def attempt(self, make: Callable[[], Any]) -> bool:
        """Try to generate something; discard functions and branches that failed."""
        scopes = len(self.bb._scopes)
        try:
            make()
        except Skip:
            del self.bb._scopes[scopes:]
            return False
        return True

    def main(self) -> None:
        is_pure = self.maybe(0.6)
        params, scope = self.params(MAIN_DIM, self.rng.randint(0, 3))
        scope.is_pure = is_pure
        with self.bb.function("main", params, pure=is_pure):
            self.steps(scope, self.size)
            for callee in self.callees:
                self.attempt(lambda callee=callee: self._call(scope, callee))
            items = [i for i in self._data(scope) if all(map(_has_limits, _leaves(i)))]
            new = items[-6:]
            chosen = self.rng.sample(new, min(len(new), self.rng.randint(1, 4)))
            if not chosen:
                raise Skip
            result = chosen[0].expr if len(chosen) == 1 else [i.expr for i in chosen]
            self.bb.emit_func_output(result)

    # Arguments

    def assignments(self, params: Sequence[ir.Var]) -> list[dict[ir.Var, int]]:
        """Values of the symbolic variables: all 0, all 1, and random ones."""
        variables = list(dict.fromkeys(v for p in params for v in ir.type_free_vars(p.ty)))
        chosen: list[dict[ir.Var, int]] = [
            {v: self.rng.randint(0, MAIN_DIM) for v in variables} for _ in range(2)
        ]
        if variables:
            chosen += [dict.fromkeys(variables, 0), dict.fromkeys(variables, 1)]
        return chosen

    def arguments(self, params: Sequence[ir.Var], dims: dict[ir.Var, int]) -> list[Any]:
        return [self.value_of(p.ty, dims) for p in params]

    def value_of(self, ty: Any, dims: dict[ir.Var, int]) -> Any:
        values = {v: ir.int_imm(n) for v, n in dims.items()}

        def extents(expressions: Sequence[Any]) -> list[int]:
            return [arith.simplify(arith.substitute(e, values)).value for e in expressions]

        if type(ty) is ir.TupleType:
            return tuple(self.value_of(f, dims) for f in ty.fields)
        if type(ty) is ir.ShapeType:
            return Shape(extents(ty.values))
        if type(ty) is ir.PrimType:
            return self.rng.randint(0, MAIN_DIM)
        return self.array(extents(ty.dims), ty.dtype)


def _is_data(ty: Any) -> bool:
    if type(ty) is ir.TupleType:
        return all(map(_is_data, ty.fields))
    return type(ty) in (ir.TensorType, ir.ShapeType)


def _is_exact(facts: Facts) -> bool:
    return facts.exact and all(map(_is_exact, facts.fields))


def _leaves(item: Item) -> list[tuple[Any, Facts]]:
    def walk(ty: Any, facts: Facts) -> list[tuple[Any, Facts]]:
        if type(ty) is ir.TupleType:
            return list(itertools.chain(*map(walk, ty.fields, facts.fields)))
        return [(ty, facts)]

    return walk(item.ty, item.facts)


def _has_limits(leaf: Any) -> bool:
    ty, facts = leaf if isinstance(leaf, tuple) else (leaf.ty, leaf.facts)
    return not _is_tensor(ty) or len(facts.limits) == ty.ndim


def _shared(facts: Facts) -> Facts:
    return replace(facts, own=False, fields=tuple(map(_shared, facts.fields)))


def _either(a: Facts, b: Facts) -> Facts:
    """Facts of a value for which one of two facts holds."""
    return Facts(
        max(a.bound, b.bound),
        a.exact and b.exact,
        tuple(map(max, a.limits, b.limits)) if len(a.limits) == len(b.limits) else (),
        fields=tuple(map(_either, a.fields, b.fields)),
    )


def _standing_alone(ty: Any) -> list[ir.Var]:
    if type(ty) is ir.TupleType:
        return [v for f in ty.fields for v in _standing_alone(f)]
    dims = ty.dims if _is_tensor(ty) else getattr(ty, "values", None)
    return [d for d in dims or () if isinstance(d, ir.Var)]


_CHOICES: dict[Callable[[Generator, Scope], None], int] = {
    Generator.unary: 6,
    Generator.binary: 10,
    Generator.with_scalar: 1,
    Generator.division: 2,
    Generator.comparison: 3,
    Generator.where: 3,
    Generator.astype: 3,
    Generator.clip: 1,
    Generator.reshape: 4,
    Generator.rearrange: 4,
    Generator.concat: 3,
    Generator.split: 2,
    Generator.reduce: 4,
    Generator.find: 1,
    Generator.matmul: 3,
    Generator.slice: 2,
    Generator.broadcast_to: 2,
    Generator.create: 4,
    Generator.constant: 2,
    Generator.tuple: 4,
    Generator.getitem: 6,
    Generator.alias: 3,
    Generator.shape: 3,
    Generator.shape_as_tensor: 1,
    Generator.tensor_as_shape: 1,
    Generator.match_cast: 4,
    Generator.scalar_value: 2,
    Generator.opaque: 1,
    Generator.packed: 6,
    Generator.log: 3,
    Generator.call_tir: 5,
    Generator.in_place: 3,
    Generator.if_: 5,
    Generator.dataflow: 4,
    Generator.local_function: 3,
    Generator.local_recursion: 1,
    Generator.call: 6,
}
_STEPS = list(_CHOICES)
_WEIGHTS = list(_CHOICES.values())


def generate(seed: int) -> Program:
    """Generate the program of a seed."""
    return Generator(seed).program()
