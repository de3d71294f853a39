"""Types of calls are those that apache-tvm infers, and the calls are made of the same parts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relaxvm.ir import Call, Op

from .op_cases import DEVICES, DTYPES, SYMBOLS, evaluate, lines
from .test_op_types import TYPES

tvm = pytest.importorskip("tvm")

DIFFERENT = {
    "TVM takes no Python numbers as tensors, and takes others for int32": (
        "add(f(n), 1)", "add(2, h(n))", "1.0 - f(n)", "f(n) < 1", "i(n) % 3",
        "floor_divide(i(n), 2)",
        "floor_mod(i(n), 2)", "power(f(n), 2.0)", "bitwise_or(i(n), 1)", "left_shift(i(n), 1)",
        "less(f(n), 0)", "where(b(n), h(n), 0.0)", "full((2, n), 1.0)", "full_like(f(n), 0)",
        'full_like(f(n), 0, "int8")', 'full(shape_var(2), n, "int32")',
    ),
    "a dimension that is neither 1 nor symbolic is that of the result": ("add(f(n, 4), f(3, 4))",),
    "TVM has another name, or none, for the operator in Python": (
        "-f(n)", "~b(n)", 'f(n).astype("int8")', 'wrap_param(f(3), "float16")',
    ),
    "TVM gives the operand's type, which its lowering refuses": ("logical_not(i(n))",),
    "TVM counts wrong where a step is negative or nothing is left": (
        "arange(10, 0, -3)", 'arange(n, 0, -1, "int32")', "arange(3, 0)",
    ),
    "TVM wants to know more": (
        'einsum([f(n, n)], "ii")', 'einsum((rank(2), f(3)), "ij,j->i")',
        "permute_dims(tensor(), [1, 0])", 'nn.pad(tensor(), (1, 1), "reflect")',
        "reshape(f(n, m), -1)",
    ),
    "TVM gives the rank of the operand": ("cumprod(rank(2))",),
    "TVM crashes": (
        'nn.attention_bias(rank(4), f(2, 6, 4, 8), f(2, 6, 4, 8), f(1, 1, 1, 6), 0.5, "TopLeft")',
    ),
    "TVM's own last window lies in the padding": (
        "nn.max_pool2d(f(1, 1, 4, 4), 2, 3, 1, ceil_mode=True)",
    ),
    "TVM normalizes the call to several": (
        "linear(f(n, 4), f(5, 4))", "linear(f(n, 4), f(5, 4), f(5))",
    ),
}  # fmt: skip
"""Cases that TVM answers differently, or not, by the reason."""

CALLS = ("call_", "make_", "invoke_", "null_", "memory.", "vm.", "builtin.", "print(", "assert_op(",
         "to_vdevice(", "hint_on", "shape_of(", "size(", "tensor_to_", "shape_to_")  # fmt: skip
"""What calls begin with that the tests of lowering compare with TVM's."""

CASES = [
    case
    for case, _ in lines(TYPES)
    if not case.startswith(CALLS) and not any(case in cases for cases in DIFFERENT.values())
]


class _Tvm(dict[str, Any]):
    """The names of `op_cases.Namespace`, as of apache-tvm."""

    def __init__(self) -> None:
        from tvm import relax

        super().__init__({name: tvm.tirx.Var(name, "int64") for name in SYMBOLS})
        self.count = 0
        for name, dtype in DTYPES.items():
            self[name] = self._maker(dtype)
        ty = relax.TensorType
        self["rank"] = lambda ndim, dtype="float32": self._var(ty(None, dtype, ndim=ndim))
        self["tensor"] = lambda dtype="float32": self._var(ty(None, dtype))
        self["shape"] = lambda *dims: relax.ShapeExpr(dims)
        self["shape_var"] = lambda ndim: self._var(relax.ShapeType(ndim=ndim))
        self["const"] = relax.const
        self["of_shape"] = lambda shape: self._var(ty(shape, "float32"))
        for place, vdevice in DEVICES.items():
            self[place] = relax.VDevice(vdevice.target, vdevice.vdevice_id)
        self["on"] = lambda vdevice, *dims: self._var(ty(dims, "float32", vdevice))
        self["pair"] = lambda *parts: self._var(relax.TupleType([part.ty for part in parts]))

    def _maker(self, dtype: str | None) -> Any:
        from tvm import relax

        return lambda *dims: self._var(relax.TensorType(dims, dtype))

    def _var(self, ty: Any) -> Any:
        from tvm import relax

        self.count += 1
        return relax.Var("abcdefgh"[self.count - 1], ty)

    def __missing__(self, name: str) -> Any:
        from tvm import relax

        found = getattr(relax.op, name, None)
        if found is None:
            raise KeyError(name)
        return found


class _Script:
    """Reads a type's text for symbols that are numbers.  The device, which both write in their own
    ways, is only there or not."""

    int64 = int32 = int
    min, max = min, max

    @staticmethod
    def Tensor(shape: Any = None, dtype: Any = None, ndim: int = -1, vdevice: Any = None) -> Any:
        return shape, dtype, ndim if shape is None else len(shape), vdevice is None

    @staticmethod
    def vdevice(*place: Any) -> Any:
        return place

    @staticmethod
    def Tuple(*fields: Any) -> Any:
        return fields

    @staticmethod
    def if_then_else(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b


def _read(text: str) -> Any:
    text = re.sub(r"R\.Tensor(?!\()", "R.Tensor()", text)
    names: dict[str, Any] = dict.fromkeys("abcdefgh")  # variables that are shapes
    names |= {"I": _Script, "R": _Script, "T": _Script, "n": 60, "m": 7, "k": 5}
    return eval(text, names)


def _tvm_call(case: str) -> Any:
    from tvm import relax

    names = _Tvm()
    call = eval(case, {}, names)
    return relax.BlockBuilder().normalize(call)


def test_the_differences_are_of_cases() -> None:
    cases = {case for case, _ in lines(TYPES)}
    assert {case for different in DIFFERENT.values() for case in different} <= cases


@pytest.mark.parametrize("case", CASES)
def test_call_and_type_are_those_of_tvm(case: str) -> None:
    ours, _ = evaluate(case)
    theirs = _tvm_call(case)
    assert isinstance(ours, Call)
    assert isinstance(ours.op, Op)
    assert ours.op.name == theirs.op.name
    assert len(ours.args) == len(theirs.args)
    attributes = str(theirs.attrs).partition("(")[2]
    assert set(ours.attrs) == set(re.findall(r"(\w+)=", attributes)), attributes
    assert _read(str(ours.ty)) == _read(str(theirs.ty)), f"{ours.ty} {theirs.ty}"
