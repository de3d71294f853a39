"""The data types of results as torch chooses them.

Three classes of operands count: tensors with dimensions, tensors without, and numbers.  A later
class changes the result only if it has a higher category (bool, integer, float, complex) than the
classes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...dtypes import as_dtype
from ...ir import Expr, PrimType
from ..common.emitter import Problem
from ..common.values import Value

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["as_tensor", "category", "floats", "is_floating", "promoted", "result_type"]

_ORDER: Final = {
    "bool": 0, "uint8": 1, "int8": 1, "int16": 1, "int32": 1, "int64": 1, "uint16": 1,
    "uint32": 1, "uint64": 1, "complex64": 3, "complex128": 3,
}  # fmt: skip
"""The categories of data types that are not floats."""


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    return _ORDER.get(dtype, 2)


def is_floating(dtype: str | None) -> bool:
    """Whether a data type is one of floats."""
    return dtype is not None and category(dtype) == 2


def _number_dtype(value: Any) -> str:
    """The data type that a number has when it decides."""
    if isinstance(value, Expr):
        ty = value.ty
        name = ty.dtype if isinstance(ty, PrimType) else "int64"
        return "float32" if category(name) == 2 else name
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    return "complex64" if isinstance(value, complex) else "float32"


def _joined(a: str | None, b: str) -> str:
    """The smallest data type that has both, as torch's table has it."""
    if a is None or a == b:
        return b
    one, two = category(a), category(b)
    if one != two and max(one, two) < 3:
        return a if one > two else b
    if one == two == 2:
        if as_dtype(a).itemsize == as_dtype(b).itemsize:
            return "float32"  # float16 and bfloat16
        return a if as_dtype(a).itemsize > as_dtype(b).itemsize else b
    if max(one, two) == 3:
        wide = {"complex128", "float64"}
        return "complex128" if a in wide or b in wide else "complex64"
    return str(np.promote_types(a, b).name)


def result_type(*operands: Any) -> str:
    """The data type of a result.

    Args:
        operands: values of tensors, numbers and expressions; None is passed over.
    """
    classes: list[str | None] = [None, None, None]
    for each in operands:
        if isinstance(each, Value):
            if each.dtype is None:
                raise Problem("expected a tensor whose data type is known")
            place, name = (0 if each.ndim else 1), each.dtype
        elif each is None:
            continue
        else:
            place, name = 2, _number_dtype(each)
        classes[place] = _joined(classes[place], name)
    found: str | None = None
    for each in classes:
        if each is not None and (found is None or category(each) > category(found)):
            # A float beside integers has the default data type, whatever its own width, if it is a
            # number; a tensor keeps its own.
            found = each
    return found or "float32"


def as_tensor(g: Graph, value: Any, dtype: str) -> Value:
    """A tensor or number as a tensor of a data type."""
    if isinstance(value, Value):
        return value if value.dtype == dtype else Value(g.op("astype", value, dtype))
    if isinstance(value, Expr):
        return g.scalar(value, dtype)
    return Value(known=np.asarray(value).astype(as_dtype(dtype)))


def promoted(g: Graph, *operands: Any, dtype: str | None = None) -> list[Value]:
    """The operands as tensors of one data type: the given one, or that of the result."""
    name = dtype or result_type(*operands)
    return [as_tensor(g, each, name) for each in operands]


def floats(g: Graph, *operands: Any) -> Sequence[Value]:
    """The operands as tensors of one data type of floats: integers become float32."""
    name = result_type(*operands)
    return promoted(g, *operands, dtype=name if category(name) >= 2 else "float32")
