"""Programs for the tests of printer and parser: random well-typed modules."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaxvm import op
from relaxvm.ir import (
    BlockBuilder,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    FuncType,
    If,
    IRModule,
    PrimType,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    const,
    prim,
    prim_value,
)
from relaxvm.ir.infer import function_ret_type

NAMES = st.sampled_from(
    ["x", "y", "lv", "gv", "x_1", "n", "_", "for", "R", "float", "é", "a b", ""]
)
DTYPES = st.sampled_from(["float32", "float64", "int32", "int64", "bool", "float16", "uint8"])


@st.composite
def scalars(draw: Any, variables: list[Var], depth: int = 3) -> Expr:
    """Scalar expressions of int64, folded or not."""
    if depth == 0 or draw(st.booleans()):
        if variables and draw(st.booleans()):
            return draw(st.sampled_from(variables))
        return prim_value(draw(st.integers(-3, 7)))
    cls = draw(st.sampled_from(
        [prim.Add, prim.Sub, prim.Mul, prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max, prim.Div,
         prim.Mod, prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor, prim.LShift, prim.RShift,
         prim.BitwiseNot, prim.Select, prim.Cast]))  # fmt: skip
    a, b = (draw(scalars(variables, depth - 1)) for _ in range(2))
    if cls is prim.BitwiseNot:
        return cls(a)
    if cls is prim.Select:
        return cls(draw(conditions(variables, depth - 1)), a, b)
    if cls is prim.Cast:
        return cls("int64", cls("int32", a))
    return cls(a, b)


@st.composite
def conditions(draw: Any, variables: list[Var], depth: int = 2) -> Expr:
    """Scalar expressions of bool."""
    kind = draw(st.integers(0, 4))
    if depth == 0 or kind == 0:
        return prim_value(draw(st.booleans()))
    if kind == 1:
        return prim.Not(draw(conditions(variables, depth - 1)))
    if kind == 2:
        cls = draw(st.sampled_from([prim.And, prim.Or, prim.EQ, prim.NE, prim.BitwiseAnd]))
        return cls(*(draw(conditions(variables, depth - 1)) for _ in range(2)))
    cls = draw(st.sampled_from([prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE]))
    return cls(*(draw(scalars(variables, depth - 1)) for _ in range(2)))


class Builder:
    """Builds a random module."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.bb = BlockBuilder()
        self.values: list[Var] = []
        self.symbols: list[Var] = []
        self.fuel = 12

    def dim(self) -> Expr:
        if self.draw(st.booleans()):
            return prim_value(self.draw(st.integers(0, 5)))
        return self.draw(scalars(self.symbols, 2))

    def tensor(self) -> TensorType:
        dtype = self.draw(st.one_of(st.none(), DTYPES))
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return TensorType(None, dtype, ndim=self.draw(st.integers(-1, 3)))
        dims = [self.dim() for _ in range(self.draw(st.integers(0, 2)))]
        return TensorType(dims, dtype)

    def type(self, depth: int = 2) -> Type:
        kind = self.draw(st.integers(0, 8))
        if kind == 0 and depth:
            return TupleType([self.type(depth - 1) for _ in range(self.draw(st.integers(0, 2)))])
        if kind == 1:
            return ShapeType([self.dim() for _ in range(self.draw(st.integers(0, 2)))])
        if kind == 2:
            return ShapeType(ndim=self.draw(st.integers(-1, 2)))
        if kind == 3:
            return op.null_value().ty
        if kind == 4 and depth:
            symbols, self.symbols = self.symbols, []
            params = [self.type(depth - 1) for _ in range(self.draw(st.integers(0, 2)))]
            self.symbols = symbols
            return FuncType(params, self.type(depth - 1), self.draw(st.booleans()))
        if kind == 5:
            return FuncType.opaque_func(ret=self.type(0), purity=self.draw(st.booleans()))
        return self.tensor()

    def fresh(self, ty: Any) -> Var:
        return Var(self.draw(NAMES), ty)

    def new_symbols(self, count: int) -> list[Var]:
        return [self.fresh("int64") for _ in range(count)]

    def constant(self) -> Constant:
        dtype = self.draw(DTYPES)
        shape = self.draw(st.sampled_from([(), (3,), (2, 2), (0,), (2, 0), (0, 2), (40,)]))
        size = int(np.prod(shape))
        data = self.draw(st.binary(min_size=size * np.dtype(dtype).itemsize,
                                   max_size=size * np.dtype(dtype).itemsize))  # fmt: skip
        array = np.frombuffer(data, np.uint8)
        array = array & 1 if dtype == "bool" else array
        return Constant(np.frombuffer(array.tobytes(), dtype).reshape(shape))

    def leaf(self) -> Expr:
        kind = self.draw(st.integers(0, 8))
        if kind <= 3 and self.values:
            return self.draw(st.sampled_from(self.values))
        if kind == 4:
            return self.constant()
        if kind == 5:
            return ShapeExpr([self.dim() for _ in range(self.draw(st.integers(0, 2)))])
        if kind == 6:
            return StringImm(self.draw(st.text(max_size=3)))
        if kind == 7:
            return DataTypeImm(self.draw(DTYPES))
        return self.draw(scalars(self.symbols, 2))

    def argument(self) -> Expr:
        if self.draw(st.integers(0, 4)) == 0:
            return Tuple([self.leaf() for _ in range(self.draw(st.integers(0, 2)))])
        return self.leaf()

    def value(self) -> Expr:
        kind = self.draw(st.integers(0, 9))
        args = [self.argument() for _ in range(self.draw(st.integers(0, 3)))]
        tuples = [v for v in self.values if type(v.ty) is TupleType and v.ty.fields]
        if kind == 0:
            return op.call_packed("f", *args, ty_args=self.type())
        if kind == 1:
            return op.call_pure_packed(ExternFunc("g"), *args, ty_args=[self.type(), self.type()])
        if kind == 2:
            return op.call_dps_packed("k", Tuple(args), TensorType([self.dim()], "float32"))
        if kind == 3 and tuples:
            chosen = self.draw(st.sampled_from(tuples))
            return TupleGetItem(chosen, self.draw(st.integers(0, len(chosen.ty.fields) - 1)))
        if kind == 4:
            return op.call_builtin_with_ctx("b", args, ty_args=self.type())
        if kind == 5:
            return op.print(*args, format=self.draw(st.text(max_size=3)))
        if kind == 6:
            return op.memory.alloc_storage(ShapeExpr([self.dim()]), 0, "global", "float32")
        if kind == 7:
            return Tuple([self.leaf() for _ in range(self.draw(st.integers(0, 3)))])
        return self.leaf()

    def emit(self, value: Expr) -> Var:
        var = self.bb.emit(value, self.draw(NAMES))
        self.values.append(var)
        if type(var.ty) is PrimType and var.ty.dtype == "int64":
            self.symbols.append(var)
        return var

    def statements(self, branches: bool) -> None:
        for _ in range(self.draw(st.integers(0, 3))):
            if self.fuel == 0:
                return
            self.fuel -= 1
            kind = self.draw(st.integers(0, 9))
            if kind == 0 and branches:
                self.emit(self.if_())
            elif kind == 1 and branches:
                self.dataflow()
            elif kind == 2:
                self.match_cast()
            elif kind == 3:
                self.emit(self.local_function())
            else:
                self.emit(self.value())

    def match_cast(self) -> None:
        value = op.call_packed("any")
        defined = self.new_symbols(self.draw(st.integers(0, 2)))
        ty: Type = TensorType(defined, "float32") if defined else self.type()
        self.values.append(self.bb.match_cast(value, ty, self.draw(NAMES)))
        self.symbols += defined

    def dataflow(self) -> None:
        outer = list(self.values)
        with self.bb.dataflow():
            self.statements(branches=False)
            outputs = [
                self.bb.emit_output(self.value(), self.draw(NAMES))
                for _ in range(self.draw(st.integers(0, 2)))
            ]
        inner = [s for s in self.symbols if type(s) is not Var]
        self.symbols = [s for s in self.symbols if s not in inner]
        self.values = outer + outputs

    def if_(self) -> If:
        branches = []
        condition = self.draw(st.one_of(st.just(const(True)), conditions(self.symbols, 1)))
        for _ in range(2):
            values, symbols = list(self.values), list(self.symbols)
            self.bb.begin_scope()
            self.statements(branches=True)
            branches.append(self.bb.end_scope(self.value()))
            self.values, self.symbols = values, symbols
        return If(condition, *branches)

    def params(self) -> list[Var]:
        symbols = self.new_symbols(self.draw(st.integers(0, 2)))
        params = [self.fresh(TensorType([symbol], "float32")) for symbol in symbols]
        scalar = [self.fresh("int64") for _ in range(self.draw(st.integers(0, 1)))]
        self.symbols += symbols + scalar
        return (
            params + scalar + [self.fresh(self.type()) for _ in range(self.draw(st.integers(0, 2)))]
        )

    def local_function(self) -> Function:
        outer = list(self.values), list(self.symbols)
        params = self.params()
        self.values = self.values + params
        self.bb.begin_scope(params)
        self.statements(branches=True)
        body = self.bb.end_scope(self.value())
        self.values, self.symbols = outer
        pure = self.draw(st.booleans())
        ret = function_ret_type(params, body, self.symbols)
        return Function(params, body, ret, pure)

    def function(self, name: str) -> None:
        self.symbols = []
        params = self.params()
        self.values = list(params)
        attrs = self.draw(st.dictionaries(st.text(max_size=3), ATTRIBUTES, max_size=2))
        private, pure = self.draw(st.booleans()), self.draw(st.booleans())
        with self.bb.function(name, params, attrs, private=private, pure=pure):
            self.statements(branches=True)
            self.bb.emit_func_output(self.value())


ATTRIBUTES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3),
              st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.tuples(inner),
                            st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=3,
)  # fmt: skip


@st.composite
def modules(draw: Any) -> IRModule:
    """Modules of one to three functions."""
    builder = Builder(draw)
    for index in range(draw(st.integers(1, 3))):
        builder.fuel = 12
        builder.function(f"f{index}")
    return builder.bb.get()
