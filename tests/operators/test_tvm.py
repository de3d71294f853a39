"""Calls have the types that apache-tvm infers, and the same operands and attributes."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from relaxvm.ir import Call, Op

from .notation import DEVICES, DTYPES, SYMBOLS, evaluate
from .table import OPERATORS, pairs

tvm = pytest.importorskip("tvm")

DIFFERENT = {
    "TVM takes no Python numbers as tensors, and takes others for int32": (
        r"\w+\(\w\(n\), [123]\)", r"\w+\([123], \w\(n\)\)", r".* [-<%] .*", r"1.0 - f\(n\)",
        r"where\(b\(n\), h\(n\), 0\.0\)", r"full\(\(2, n\), 1\.0\)", r"full_like\(f\(n\), 0.*",
        r'full\(shape_var\(2\), n, "int32"\)', r"nn\.relu6\(.*",
    ),
    "a dimension that is neither 1 nor symbolic is that of the result": (
        r".*\(\w\(n, 4\), \w\(3, 4\)\)",
    ),
    "TVM has another name, or none, for the operator in Python": (
        r"[-~]\w\(n\)", r'f\(n\)\.astype\("int8"\)', r"wrap_param\(.*",
    ),
    "TVM gives the operand's type, which its lowering refuses": (r"logical_\w+\((?!b).*",),
    "TVM counts wrong where a step is negative or nothing is left": (
        r"arange\(10, 0, -3\)", r'arange\(n, 0, -1, "int32"\)', r"arange\(3, 0\)",
        r"strided_slice\(f\(8\), \[0\], \[0\], \[8\], \[n\]\)",
    ),
    "TVM wants to know more": (
        r'einsum\(\[f\(n, n\)\], "ii"\)', r'einsum\(\(rank\(2\), f\(3\)\), "ij,j->i"\)',
        r"permute_dims\(tensor\(\), \[1, 0\]\)", r'nn\.pad\(tensor\(\), \(1, 1\), "reflect"\)',
        r"reshape\((tensor\(\)|rank\(2\)), \(.*-1\)\)",
    ),
    "TVM gives the rank of the operand": (r"cumprod\(rank\(2\)\)",),
    "TVM crashes": (
        r"nn\.attention_bias\(rank\(4\), .*", r"vision\.all_class_non_max_suppression\(rank.*",
    ),
    "TVM's type has room for all boxes, and its result those that are kept": (
        r"vision\.all_class_non_max_suppression\(f.*",
    ),
    "TVM's own last window lies in the padding": (
        r"nn\.max_pool2d\(f\(1, 1, 4, 4\), 2, 3, 1, ceil_mode=True\)",
    ),
    "TVM normalizes the call to several": (r"linear\(.*", r"masked_fill\(.*"),
}  # fmt: skip
"""Patterns of cases that TVM answers differently, or not, by the reason."""

UNPRINTED = {"axis_separators", "input_axis_separators"}
"""Attributes that TVM does not print where they are not given."""

CALLS = ("call_", "make_", "invoke_", "null_", "memory.", "vm.", "builtin.", "print(", "assert_op(",
         "to_vdevice(", "hint_on", "shape_of(", "size(", "tensor_to_", "shape_to_")  # fmt: skip
"""What calls begin with that the tests of lowering compare with TVM's."""

ALL = [case for found in OPERATORS.values() for case, _ in pairs(found.types)]
SAME = [
    name for name, found in OPERATORS.items()
    if found.in_tvm and not name.startswith(CALLS) and not f"{name}(".startswith(CALLS)
]  # fmt: skip


def is_different(case: str) -> bool:
    return any(re.fullmatch(p, case) for patterns in DIFFERENT.values() for p in patterns)


class _Tvm(dict[str, Any]):
    """The names of `notation.Namespace` for apache-tvm."""

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


class Script:
    """Evaluates the text of a type, with numbers for symbols.  Of the device, which both print
    differently, only the presence is compared."""

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
    def Shape(values: Any = None, ndim: int = -1) -> Any:
        return values, ndim

    @staticmethod
    def if_then_else(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b

    Select = if_then_else


def read_type(text: str, values: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The value of the text of a type, with numbers for symbols."""
    text = re.sub(r"R\.Tensor(?!\()", "R.Tensor()", text)
    names: dict[str, Any] = dict.fromkeys("abcdefgh")  # variables that are shapes
    names |= {"I": Script, "R": Script, "T": Script, "n": 60, "m": 7, "k": 5}
    return eval(text, names | dict(values))


def _tvm_call(case: str) -> Any:
    from tvm import relax

    names = _Tvm()
    call = eval(case, {}, names)
    return relax.BlockBuilder().normalize(call)


def test_the_differences_are_of_cases() -> None:
    for pattern in (p for patterns in DIFFERENT.values() for p in patterns):
        assert any(re.fullmatch(pattern, case) for case in ALL), pattern


def is_in_tvm(name: str) -> bool:
    from tvm import relax

    try:
        return callable(functools.reduce(getattr, name.split("."), relax.op))
    except AttributeError:
        return False


def test_operators_that_tvm_lacks() -> None:
    lacking = {name for name, found in OPERATORS.items() if not found.in_tvm}
    assert not [name for name in lacking if is_in_tvm(name)]


@pytest.mark.parametrize("name", SAME)
def test_calls_and_types_are_those_of_tvm(name: str) -> None:
    for case, _ in pairs(OPERATORS[name].types):
        if not is_different(case):
            compare(case)


def compare(case: str) -> None:
    ours, _ = evaluate(case)
    name = case.partition("(")[0]
    if name in OPERATORS and not is_in_tvm(name):
        pytest.fail(f"TVM has no relax.op.{name}: write in_tvm=False in its cases")
    theirs = _tvm_call(case)
    assert isinstance(ours, Call)
    assert isinstance(ours.op, Op)
    assert ours.op.name == theirs.op.name
    assert len(ours.args) == len(theirs.args)
    attributes = str(theirs.attrs).partition("(")[2]
    assert set(ours.attrs) - UNPRINTED == set(re.findall(r"(\w+)=", attributes)), attributes
    assert read_type(str(ours.ty)) == read_type(str(theirs.ty)), f"{case}: {ours.ty} {theirs.ty}"
