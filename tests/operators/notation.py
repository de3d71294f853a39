"""The notation of type tests and kernel tests of operators.

A case is a call as a user writes it, with inline tensors: ``add(f(n, 3), f(3))`` adds a float32
tensor of symbolic shape to a vector.  f, h, d are float32, float16 and float64, i and j int64 and
int32, s int8, u uint8, w uint16, b bool, t an unknown data type; without dimensions they have rank
0.  For ``rank(2)`` only the rank is known, for ``tensor()`` nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxvm import op
from relaxvm.ir import (
    ANY,
    Call,
    Constant,
    Expr,
    ExternFunc,
    FuncType,
    GlobalVar,
    PrimType,
    RefType,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleType,
    Var,
    VDevice,
    const,
    prim,
)

SYMBOLS = {name: Var(name, "int64") for name in ("n", "m", "k")}
DTYPES = {
    "f": "float32", "h": "float16", "d": "float64", "i": "int64", "j": "int32", "s": "int8",
    "u": "uint8", "w": "uint16",
    "b": "bool", "t": None,
}  # fmt: skip
DEVICES = {"here": VDevice("llvm", 0), "there": VDevice("llvm", 1)}


class Namespace(dict[str, Any]):
    """Names that a case may use: makers of tensors, symbols, and the operators.  Collects the
    variables that are made, in order."""

    def __init__(self, symbolic: bool = False, unknown: str = "") -> None:
        super().__init__(SYMBOLS)
        self.unknown = unknown
        self.symbols: dict[int, Var] | None = {} if symbolic else None
        self.made: list[Var] = []
        for name, dtype in DTYPES.items():
            self[name] = self._maker(dtype)
        for name, vdevice in DEVICES.items():
            self[name] = vdevice
        self["on"] = lambda vdevice, *dims: self._var(TensorType(dims, "float32", vdevice))
        self["rank"] = lambda ndim, dtype="float32": self._var(TensorType(None, dtype, ndim=ndim))
        self["tensor"] = lambda dtype="float32": self._var(TensorType(None, dtype))
        self["shape"] = lambda *dims: ShapeExpr(dims)
        self["shape_var"] = lambda ndim: self._var(ShapeType(ndim=ndim))
        self["of_shape"] = lambda shape: self._var(TensorType(shape, "float32"))
        self["pair"] = lambda *types: self._var(TupleType([self._type_of(t) for t in types]))
        self["any"] = lambda: self._var(ANY)
        self["cell"] = lambda of: self._var(RefType(self._type_of(of)))
        self["scalar"] = lambda dtype: self._var(Var("s", dtype).ty)
        self["func"] = lambda: GlobalVar("callee", FuncType.opaque_func())
        self["packed"] = ExternFunc("packed")
        self["const"] = const
        self["T"] = TensorType
        self["array"] = Constant
        self["np"] = np

    def _maker(self, dtype: str | None) -> Any:
        def make(*dims: Any) -> Var:
            if self.unknown == "rank":
                return self._var(TensorType(None, dtype))
            if self.unknown == "dims":
                return self._var(TensorType(None, dtype, ndim=len(dims)))
            return self._var(TensorType([self._dim(dim) for dim in dims], dtype))

        return make

    def _dim(self, dim: Any) -> Any:
        if self.symbols is None or not isinstance(dim, int) or dim < 2:
            return dim
        return self.symbols.setdefault(dim, Var(f"n{dim}", "int64"))

    def _type_of(self, var: Var) -> Any:
        self.made.remove(var)
        return var.ty

    def _var(self, ty: Any) -> Var:
        var = Var("abcdefgh"[len(self.made)], ty)
        self.made.append(var)
        return var

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(op, name)
        except AttributeError:
            raise KeyError(name) from None


def evaluate(
    case: str, symbolic: bool = False, unknown: str = ""
) -> tuple[Expr, list[Var]]:
    """Return the call of a case and its variables.  With `symbolic`, dimensions greater than 1 are
    symbols, one for each length; with `unknown` "dims" only the ranks of tensors are known, with
    "rank" not even these."""
    names = Namespace(symbolic, unknown)
    # Locals come before builtins, so that ``max`` is the operator.
    call = eval(case, {}, names)
    assert isinstance(call, (Call, Tuple))
    return call, names.made


class Script:
    """The part of the script that is used in types, as in ``R.Tensor((n, T.max(m, 1)))``."""

    Any = ANY
    Prim = PrimType
    max, min = staticmethod(prim.maximum), staticmethod(prim.minimum)

    @staticmethod
    def Tensor(
        shape: Any = None, dtype: Any = None, ndim: int = -1, vdevice: Any = None
    ) -> TensorType:
        return TensorType(shape, dtype, vdevice, ndim)

    @staticmethod
    def Ref(value: Any) -> RefType:
        return RefType(value)

    @staticmethod
    def Tuple(*fields: Any) -> TupleType:
        return TupleType(fields)

    @staticmethod
    def Shape(values: Any = None, ndim: int = -1) -> ShapeType:
        return ShapeType(values, ndim)


def type_named(text: str, made: list[Var]) -> Any:
    """Evaluate the text of a type, with symbols, devices and the variables of a case."""
    names = {**SYMBOLS, **DEVICES, **{var.name: var for var in made}, "R": Script, "T": Script}
    return eval(text, names)


def operators_in(call: Expr) -> Iterator[str]:
    """Return the names, without prefix, of the operators that an expression calls."""
    if isinstance(call, Call):
        name = getattr(call.op, "name", "")
        if isinstance(call.op, Expr) and name.startswith("relax."):
            yield name.removeprefix("relax.")
        for arg in call.args:
            yield from operators_in(arg)
    elif isinstance(call, Tuple):
        for field in call.fields:
            yield from operators_in(field)
