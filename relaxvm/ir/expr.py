"""The nodes of a program: types, expressions, bindings, functions.

`Expr` is the class of tensors and of scalars: a symbolic dimension is an expression of `PrimType`
and may be used wherever an expression may.  Every expression has a type `ty`, which is None only
until it is inferred (`relaxvm.ir.infer_type`).

Source: Relax IR of apache-tvm 0.27, with its names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..dtypes import array_of, as_dtype, dtype_name, element_dtype
from ..errors import DimensionError, TypeSizeError
from ..messages import describe
from ..values import is_sealed
from .node import MOST_ELEMENTS, Attrs, Node, check_nested
from .parts import MOST_PROGRAM_PARTS, check_parts

if TYPE_CHECKING:
    from .module import VDevice

__all__ = [
    "ANY",
    "EXTERN_TYPE",
    "MOST_AXES",
    "MOST_TYPE_PARTS",
    "AnyType",
    "BaseFunc",
    "Binding",
    "BindingBlock",
    "Call",
    "Constant",
    "DataTypeImm",
    "DataflowBlock",
    "DataflowVar",
    "EnvFunc",
    "Expr",
    "ExternFunc",
    "FloatImm",
    "FuncType",
    "Function",
    "GlobalVar",
    "If",
    "IntImm",
    "MatchCast",
    "ObjectType",
    "PrimType",
    "PrimValue",
    "SeqExpr",
    "ShapeExpr",
    "ShapeType",
    "StringImm",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "TypeVar",
    "Var",
    "VarBinding",
    "const",
    "constant_of",
    "convert_to_expr",
    "extern",
    "int_imm",
    "is_scalar",
    "joined_blocks",
    "prim_type",
    "prim_value",
]

# Types


MOST_TYPE_PARTS: Final = 65_535
"""The largest number of types and parts of dimensions in a type, itself included; what is shared
counts once per use.

``y1 = (x, x)``, ``y2 = (y1, y1)`` and so on double the type with every line.  The time to walk a
type is proportional to this number, so it is bounded.  A call cannot build a larger tuple either:
that many arguments is its limit."""


class Type(Node):
    """What is known about a value at compile time.  ``==`` is structural equality; a symbolic
    variable is only equal to itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Type):
            return NotImplemented
        from .equality import structural_equal  # here, since it needs the classes of this module

        return structural_equal(self, other)

    def is_base_of(self, derived: Type) -> bool:
        """Whether every value of the type `derived` is known to be of this type, too."""
        from .infer import is_base_of

        return is_base_of(self, derived)

    def is_missing(self) -> bool:
        """False: TVM's programs ask whether a type is one that says that there is none, which is
        None here."""
        return False

    def __hash__(self) -> int:
        from .equality import structural_hash

        return structural_hash(self)


def _count_parts(types: Iterable[Type]) -> int:
    parts = 1
    for ty in types:
        parts += ty._parts
    if parts > MOST_TYPE_PARTS:
        raise TypeSizeError(
            f"a type of {parts} parts: a type has at most {MOST_TYPE_PARTS}, where shared parts "
            "count once per use; keep large values in separate variables instead of tuples of "
            "tuples"
        )
    return parts


class AnyType(Type):
    """The type of any value: every type is a subtype of it."""

    __slots__ = ()

    def __init__(self, span: Any = None) -> None:
        self.span = span


ObjectType = AnyType
"""TVM's older name of `AnyType`."""


class PrimType(Type):
    """A scalar: bool, an integer or a float of a known data type; also "handle"."""

    __slots__ = ("dtype",)
    FIELDS = ("dtype",)

    dtype: str

    def __init__(self, dtype: str, span: Any = None) -> None:
        if not isinstance(dtype, str):
            raise TypeError(f"PrimType: expected the name of a data type, got {describe(dtype)}")
        self.dtype = dtype
        self.span = span


_PRIM_TYPES: Final[dict[str, PrimType]] = {}


def prim_type(dtype: str) -> PrimType:
    """The shared `PrimType` of a data type."""
    found = _PRIM_TYPES.get(dtype)
    if found is None:
        found = _PRIM_TYPES[dtype] = PrimType(str(dtype))
    return found


class ShapeType(Type):
    """A shape value: its dimensions, or only how many, or neither.

    Attributes:
        values: tuple of integer scalars, or None.
        ndim: number of dimensions, -1 if unknown.
    """

    __slots__ = ("_parts", "ndim", "values")
    FIELDS = ("values", "ndim")

    values: tuple[Expr, ...] | None
    ndim: int

    def __init__(
        self, values: Sequence[Any] | None = None, ndim: int = -1, span: Any = None
    ) -> None:
        self.span = span
        if values is None:
            self.values = None
            self.ndim = ndim
            self._parts = 1
            return
        self.values, self._parts = _dims(values)
        self.ndim = len(self.values)
        if ndim != -1:
            raise ValueError(
                f"ShapeType: ndim is for a shape whose values are not known, got ndim={ndim} "
                f"beside {self.ndim} values"
            )

    def sum_of_parts(self) -> int:
        return 1 if self.values is None else _dims(self.values)[1]


MOST_AXES: Final = 1024
"""Dimensions of a type.  Arrays have up to 64, and passes make a variable for each dimension."""


class TensorType(Type):
    """A tensor.

    Attributes:
        shape: `ShapeExpr`, a `Var` of `ShapeType`, or None where at most the rank is known.
        dtype: name of the data type, or None if unknown, which may be written as "", too.
        ndim: rank, -1 if unknown.
        vdevice: the `VDevice` it lives on, or None.

    Raises:
        TypeError: `dtype` is not a data type of tensors.
        ValueError: `ndim` is given beside a shape, or is below -1.
    """

    __slots__ = ("dtype", "ndim", "shape", "vdevice")
    FIELDS = ("shape", "dtype", "ndim", "vdevice")

    shape: Expr | None
    dtype: str | None
    ndim: int
    vdevice: VDevice | None

    def __init__(
        self,
        shape: Any = None,
        dtype: str | None = None,
        vdevice: VDevice | None = None,
        ndim: int = -1,
        span: Any = None,
    ) -> None:
        self.span = span
        self.dtype = None if dtype is None or dtype == "" else element_dtype(dtype)
        self.vdevice = vdevice
        if shape is not None and not isinstance(shape, Expr):
            shape = ShapeExpr(shape)
        self.shape = shape
        if shape is None:
            if ndim < -1:
                raise ValueError(f"TensorType: ndim: expected a rank, or -1 if unknown, got {ndim}")
            self.ndim = ndim
        elif ndim != -1:
            raise ValueError(
                f"TensorType: ndim is for a tensor whose shape is not known, got ndim={ndim} "
                f"beside the shape {shape}"
            )
        else:
            self.ndim = shape.ty.ndim if type(shape.ty) is ShapeType else -1
        if self.ndim > MOST_AXES:
            raise ValueError(
                f"TensorType: expected at most {MOST_AXES} dimensions, got {self.ndim}"
            )

    @classmethod
    def of(
        cls, shape: Any, dtype: str | None, vdevice: VDevice | None = None, ndim: int = -1
    ) -> TensorType:
        """Return the type of a shape, or of the rank `ndim` where the shape is None."""
        return cls(shape, dtype, vdevice, ndim if shape is None else -1)

    @property
    def _parts(self) -> int:  # type: ignore[override]
        return 1 if self.shape is None else self.shape._parts

    @property
    def dims(self) -> tuple[Expr, ...] | None:
        """The dimensions if `shape` is a `ShapeExpr`, else None."""
        shape = self.shape
        if isinstance(shape, ShapeExpr):
            return shape.values
        if shape is not None and type(shape.ty) is ShapeType:
            return shape.ty.values
        return None


class TupleType(Type):
    """A tuple of known length; `fields` are the types of its elements.

    Raises:
        TypeSizeError: the type has more than `MOST_TYPE_PARTS` parts.
    """

    __slots__ = ("_parts", "_vars", "fields")
    FIELDS = ("fields",)

    fields: tuple[Type, ...]
    _vars: Mapping[Var, None] | None
    """The symbolic variables that it mentions, once they were asked for."""

    def __init__(self, fields: Iterable[Type] = (), span: Any = None) -> None:
        self.fields = tuple(fields)
        self._parts = _count_parts(self.fields)
        self._vars = None
        self.span = span


class TypeVar(Type):
    """A type parameter of a function or of a data type.  They are compared by identity; the name is
    a hint for printing."""

    __slots__ = ("name_hint",)
    FIELDS = ("name_hint",)

    name_hint: str

    def __init__(self, name_hint: str, span: Any = None) -> None:
        self.name_hint = name_hint
        self.span = span

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        """The name."""
        return self.name_hint


class EnvFunc(Node):
    """A function of the process, by the name under which it is registered."""

    __slots__ = ("name",)
    FIELDS = ("name",)

    name: str

    def __init__(self, name: str, span: Any = None) -> None:
        self.name = name
        self.span = span

    @classmethod
    def get(cls, name: str) -> EnvFunc:
        """Return the function with a name, which is looked up when it is called."""
        return cls(name)


class FuncType(Type):
    """A function.

    Attributes:
        type_params: the type parameters; a call finds out what they stand for.
        params: types of the parameters, or None if they are not known.
        ret: type of the result.
        purity: whether a call has no side effects.
        derive_func: the function that finds the type of a call, if `params` are not known: it is
            called with the `Call` and a `BlockBuilder`.  None for the type `ret`.

    Raises:
        TypeSizeError: the type has more than `MOST_TYPE_PARTS` parts.
    """

    __slots__ = ("_parts", "_vars", "derive_func", "params", "purity", "ret", "type_params")
    FIELDS = ("type_params", "params", "ret", "purity", "derive_func")
    DEFS = frozenset({"type_params", "params"})
    DEFAULTS = MappingProxyType({"type_params": ()})

    type_params: tuple[TypeVar, ...]
    params: tuple[Type, ...] | None
    ret: Type
    purity: bool
    derive_func: EnvFunc | None
    _vars: Mapping[Var, None] | None
    """The symbolic variables that it mentions, once they were asked for."""

    def __init__(
        self,
        params: Iterable[Type] | None,
        ret: Type,
        purity: bool = True,
        span: Any = None,
        *,
        type_params: Iterable[TypeVar] = (),
        derive_func: EnvFunc | None = None,
    ) -> None:
        if derive_func is not None and params is not None:
            raise ValueError("a function type with parameters has no derive_func")
        self.derive_func = derive_func
        self.type_params = tuple(type_params)
        self.params = None if params is None else tuple(params)
        self._parts = _count_parts((ret, *(self.params or ())))
        self._vars = None
        self.ret = ret
        self.purity = purity
        self.span = span

    @classmethod
    def opaque_func(
        cls,
        *,
        ret: Type | None = None,
        derive_func: str | EnvFunc | None = None,
        purity: bool = False,
        span: Any = None,
    ) -> FuncType:
        """Return the type of a function whose parameters are not known.

        Args:
            ret: the type of its results; `AnyType` if not given.
            derive_func: the function that finds the type of a call, or its name.
            purity: whether a call has no side effects.

        Raises:
            ValueError: both `ret` and `derive_func` are given.
        """
        if ret is not None and derive_func is not None:
            raise ValueError("opaque_func: expected ret or derive_func, got both")
        if isinstance(derive_func, str):
            derive_func = EnvFunc(derive_func)
        return cls(None, ANY if ret is None else ret, purity, span, derive_func=derive_func)


ANY: Final = AnyType()


def is_scalar(expr: Expr) -> bool:
    """Check whether an expression is a scalar, that is of `PrimType`."""
    return type(expr.ty) is PrimType


# Expressions

Operator = Callable[..., Any]

SCALAR_OPERATORS: Final[dict[str, Operator]] = {}
"""Python operator -> its implementation for scalars; filled by `relaxvm.ir.prim`."""

TENSOR_OPERATORS: Final[dict[str, Operator]] = {}
"""Python operator -> its implementation for tensors; filled by `relaxvm.op`."""


def _operator(name: str, *given: Any) -> Any:
    operands = [x.as_expr() if isinstance(x, Operators) else x for x in given]
    for operand in operands:
        if isinstance(operand, Expr) and not is_scalar(operand):
            if isinstance(operand.ty, TensorType) and name in TENSOR_OPERATORS:
                return TENSOR_OPERATORS[name](*operands)
            return NotImplemented
    operator = SCALAR_OPERATORS.get(name)
    return NotImplemented if operator is None else operator(*operands)


class Operators:
    """Mixin: Python's operators, for expressions and for objects that convert to one."""

    __slots__ = ()

    def as_expr(self) -> Any:
        """The expression."""
        return self

    def __add__(self, other: Any) -> Any:
        return _operator("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _operator("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _operator("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operator("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _operator("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _operator("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _operator("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operator("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _operator("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _operator("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return _operator("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _operator("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return _operator("power", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _operator("power", other, self)

    def __neg__(self) -> Any:
        return _operator("negative", self)

    def __lt__(self, other: Any) -> Any:
        return _operator("less", self, other)

    def __le__(self, other: Any) -> Any:
        return _operator("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return _operator("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return _operator("greater_equal", self, other)

    def __and__(self, other: Any) -> Any:
        return _operator("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return _operator("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return _operator("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return _operator("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return _operator("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return _operator("bitwise_xor", other, self)

    def __invert__(self) -> Any:
        return _operator("bitwise_not", self)

    def __lshift__(self, other: Any) -> Any:
        return _operator("left_shift", self, other)

    def __rshift__(self, other: Any) -> Any:
        return _operator("right_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _operator("left_shift", other, self)

    def __rrshift__(self, other: Any) -> Any:
        return _operator("right_shift", other, self)


class Expr(Operators, Node):
    """Base of all expressions.  Python's operators return scalar expressions for scalars, and calls
    of Relax operators for tensors; ``t[i]`` is an element of a tuple, ``f(x)`` is a call.

    ``==`` of scalars is an expression too, and its truth value is structural equality.  For other
    expressions ``==`` is identity.
    """

    __slots__ = ("ty",)

    ty: Any
    """The `Type`; None until inferred."""

    @property
    def dtype(self) -> str:
        """Data type of a scalar or tensor.

        Raises:
            AttributeError: the expression is neither a scalar nor a tensor of known data type.
        """
        ty = self.ty
        if isinstance(ty, (PrimType, TensorType)) and ty.dtype is not None:
            return ty.dtype
        raise AttributeError(f"{self} has no data type: its type is {ty}")

    # By identity.  The method of object is in C; dictionaries of variables call it very often.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True if type(self.ty) is not PrimType else SCALAR_OPERATORS["eq"](self, other)
        if type(self.ty) is PrimType and isinstance(other, (Expr, int, float)):
            return _operator("eq", self, other)
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        if type(self.ty) is PrimType and isinstance(other, (Expr, int, float)):
            return _operator("ne", self, other)
        return self is not other

    def astype(self, dtype: str) -> Any:
        """Return the value converted to another data type."""
        return (
            _operator("astype", self, str(dtype))
            if is_scalar(self)
            else TENSOR_OPERATORS["astype"](self, dtype)
        )

    def __call__(self, *args: Any, attrs: Mapping[str, Any] | None = None) -> Call:
        if not isinstance(self.ty, FuncType) and not isinstance(self, (GlobalVar, ExternFunc)):
            raise TypeError(f"{self} is not a function: its type is {self.ty}")
        return Call(self, [convert_to_expr(arg) for arg in args], attrs)

    def __getitem__(self, index: Any) -> Expr:
        ty = self.ty
        if not isinstance(ty, TupleType):
            raise TypeError(f"{self} cannot be indexed: its type is {ty}; only tuples can")
        try:
            position = operator.index(index)
        except TypeError:
            raise TypeError(f"index of tuple {self}: expected an int, got {index!r}") from None
        if not 0 <= position < len(ty.fields):
            # Python's tuple unpacking relies on this being an IndexError.
            raise IndexError(f"tuple {self} has {len(ty.fields)} elements, index is {position}")
        return TupleGetItem(self, position)

    def __iter__(self) -> Iterator[Expr]:
        if not isinstance(self.ty, TupleType):
            raise TypeError(f"{self} cannot be iterated over: its type is {self.ty}")
        return (self[i] for i in range(len(self.ty.fields)))

    def __bool__(self) -> bool:
        if type(self.ty) is PrimType:
            raise TypeError(
                f"the truth value of {self} is not known before the program runs; prove it "
                "(relaxvm.ir.Analyzer) or write it as an expression"
            )
        return True


class IntImm(Expr):
    """An integer or bool constant."""

    __slots__ = ("value",)
    FIELDS = ("value", "ty")

    value: int

    def __init__(self, dtype: str, value: SupportsIndex, span: Any = None) -> None:
        self.value = value.__index__()
        self.ty = prim_type(dtype)
        self.span = span

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __bool__(self) -> bool:
        return self.value != 0


class FloatImm(Expr):
    """A float constant."""

    __slots__ = ("value",)
    FIELDS = ("value", "ty")

    value: float

    def __init__(self, dtype: str, value: float, span: Any = None) -> None:
        self.value = float(value)
        self.ty = prim_type(dtype)
        self.span = span

    def __float__(self) -> float:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0


_SMALL_INTS: Final = tuple(IntImm("int64", i) for i in range(1025))


def int_imm(value: SupportsIndex) -> IntImm:
    """An int64 constant.

    Raises:
        TypeError: not an integer.
        OverflowError: it does not fit int64.
    """
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"expected an integer, got {describe(value)}") from None
    if 0 <= number <= 1024:
        return _SMALL_INTS[number]
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} does not fit int64")
    return IntImm("int64", number)


class StringImm(Expr):
    """A string."""

    __slots__ = ("value",)
    FIELDS = ("value",)

    value: str

    def __init__(self, value: str, span: Any = None) -> None:
        self.value = value
        self.ty = ANY
        self.span = span


class DataTypeImm(Expr):
    """A data type as a value."""

    __slots__ = ("value",)
    FIELDS = ("value",)

    value: str

    def __init__(self, value: str, span: Any = None) -> None:
        self.value = dtype_name(as_dtype(value))
        self.ty = ANY
        self.span = span


class Var(Expr):
    """A variable: of a binding, a parameter, or (of `PrimType`) a symbolic dimension.  Variables
    are compared by identity; the name is only a hint for printing.

    `ty` is a `Type`, or the name of a data type for a scalar.
    """

    __slots__ = ("name",)

    name: str

    def __init__(
        self,
        name: str | None = None,
        ty: Type | str | None = None,
        span: Any = None,
        *,
        name_hint: str | None = None,
    ) -> None:
        if name is None or name_hint is not None:
            name = _one_name(name, name_hint)
        self.name = name
        self.ty = prim_type(ty) if isinstance(ty, str) else ty
        self.span = span


def _one_name(name: str | None, name_hint: str | None) -> str:
    """The name of a variable, which TVM's older programs call `name_hint`."""
    if name is not None and name_hint is not None:
        raise TypeError("Var: Specify either name or name_hint, not both")
    found = name_hint if name is None else name
    if found is None:
        raise TypeError("Var: expected a name")
    return found


class DataflowVar(Var):
    """A variable that is visible only in its `DataflowBlock`."""

    __slots__ = ()


class GlobalVar(Expr):
    """A function of the module, by name."""

    __slots__ = ("name_hint",)
    FIELDS = ("name_hint",)

    name_hint: str

    def __init__(self, name_hint: str, ty: Type | None = None, span: Any = None) -> None:
        self.name_hint = name_hint
        self.ty = ty
        self.span = span

    @property
    def name(self) -> str:
        """The name."""
        return self.name_hint


class Constant(Expr):
    """A constant tensor.

    Attributes:
        data: the array, read-only.  It is a view of the argument; pass a copy if the argument may
            still be written, as `constant_of` does.
    """

    __slots__ = ("data",)
    FIELDS = ("data",)

    data: NDArray[Any]

    def __init__(self, data: NDArray[Any], ty: Type | None = None, span: Any = None) -> None:
        array = data.view()
        array.flags.writeable = False
        self.data = array
        self.ty = TensorType(array.shape, dtype_name(array.dtype)) if ty is None else ty
        self.span = span


class ShapeExpr(Expr):
    """A shape of the given dimensions."""

    __slots__ = ("_parts", "values")
    FIELDS = ("values",)

    values: tuple[Expr, ...]

    def __init__(self, values: Sequence[Any], span: Any = None) -> None:
        self.ty = ty = ShapeType(values)
        assert ty.values is not None
        self.values = ty.values
        self._parts = ty._parts
        self.span = span

    def sum_of_parts(self) -> int:
        return _dims(self.values)[1]

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.values[index]
        except IndexError:
            raise IndexError(
                f"ShapeExpr index out of range: {index}, of {len(self.values)} dimensions"
            ) from None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.values)


class Tuple(Expr):
    """A tuple of expressions."""

    __slots__ = ("fields",)
    FIELDS = ("fields",)

    fields: tuple[Expr, ...]

    def __init__(self, fields: Iterable[Any] = (), span: Any = None) -> None:
        self.fields = tuple(f if isinstance(f, Expr) else convert_to_expr(f) for f in fields)
        types = [field.ty for field in self.fields]
        self.ty = None if None in types else TupleType(types)
        self.span = span

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: Any) -> Expr:
        try:
            return self.fields[operator.index(index)]
        except TypeError:
            raise TypeError(f"index of tuple {self}: expected an int, got {index!r}") from None
        except IndexError:
            # Python's tuple unpacking relies on this being an IndexError.
            raise IndexError(
                f"Tuple index out of range: {index}, of {len(self.fields)} elements"
            ) from None


class TupleGetItem(Expr):
    """Element `index` of a tuple."""

    __slots__ = ("index", "tuple_value")
    FIELDS = ("tuple_value", "index")

    tuple_value: Expr
    index: int

    def __init__(self, tuple_value: Expr, index: int, span: Any = None) -> None:
        self.tuple_value = tuple_value
        self.index = index
        self.span = span
        ty = tuple_value.ty
        if type(ty) is TupleType:
            if not 0 <= index < len(ty.fields):
                raise IndexError(
                    f"tuple {tuple_value} has {len(ty.fields)} elements, index is {index}"
                )
            self.ty = ty.fields[index]
        else:
            self.ty = None if ty is None else ANY


class Call(Expr):
    """A call of an operator, a function or a packed function.

    Attributes:
        op: an `Op`, `GlobalVar`, `ExternFunc` or an expression of `FuncType`.
        args: the arguments.
        attrs: the operator's attributes.
        ty_args: type arguments; for a packed call, the type of its result.
        ty: the type of the result, which is given as `ret_ty`.
    """

    __slots__ = ("_parts", "args", "attrs", "op", "ty_args")
    FIELDS = ("op", "args", "attrs", "ty_args")
    MOST_PARTS = MOST_PROGRAM_PARTS  # it may have any number of operands

    op: Expr
    args: tuple[Expr, ...]
    attrs: Attrs
    ty_args: tuple[Type, ...]

    def __init__(
        self,
        op: Expr,
        args: Iterable[Expr] = (),
        attrs: Mapping[str, Any] | None = None,
        ty_args: Iterable[Type] | None = None,
        span: Any = None,
        ret_ty: Type | None = None,
    ) -> None:
        if op is None:
            raise ValueError("Call: expected a defined operator or function, got None")
        self.op = op
        self.args = tuple(args)
        self.attrs = NO_ATTRS if attrs is None else _attrs(attrs)
        self.ty_args = () if ty_args is None else tuple(ty_args)
        if type(ret_ty) is PrimType:  # a part of scalars
            self._parts = check_parts(1 + sum([arg._parts for arg in self.args]), self.MOST_PARTS)
        else:
            self._parts = 1
        self.ty = ret_ty
        self.span = span

    def sum_of_parts(self) -> int:
        return super().sum_of_parts() if type(self.ty) is PrimType else 1


NO_ATTRS: Final = Attrs()


def _attrs(attrs: Mapping[str, Any] | None) -> Attrs:
    if type(attrs) is Attrs:
        return attrs
    return Attrs(attrs) if attrs else NO_ATTRS


class If(Expr):
    """A conditional; each branch is a `SeqExpr`."""

    __slots__ = ("cond", "false_branch", "true_branch")
    FIELDS = ("cond", "true_branch", "false_branch")

    cond: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr

    def __init__(
        self,
        cond: Expr,
        true_branch: Expr,
        false_branch: Expr,
        span: Any = None,
        *,
        ty: Type | None = None,
    ) -> None:
        self.cond = cond
        self.true_branch = _as_seq(true_branch)
        self.false_branch = _as_seq(false_branch)
        self.ty = ty
        self.span = span


class Binding(Node):
    """Base of bindings.

    Attributes:
        var: the variable.
        value: the expression that it is bound to.
    """

    __slots__ = ("value", "var")
    var: Var
    value: Expr


class VarBinding(Binding):
    """``var = value``"""

    __slots__ = ()
    FIELDS = ("value", "var")
    DEFS = frozenset({"var"})

    def __init__(self, var: Var, value: Expr, span: Any = None) -> None:
        self.var = var
        self.value = value
        self.span = span


class MatchCast(Binding):
    """``var = match_cast(value, ty)``: check at run time that the value has the type `ty`, and
    define the symbolic variables that appear in `ty` for the first time."""

    __slots__ = ("ty",)
    FIELDS = ("value", "ty", "var")
    DEFS = frozenset({"var", "ty"})

    ty: Type

    def __init__(self, var: Var, value: Expr, ty: Type, span: Any = None) -> None:
        self.var = var
        self.value = value
        self.ty = ty
        self.span = span


class BindingBlock(Node):
    """Bindings that are evaluated in order; side effects are allowed."""

    __slots__ = ("bindings",)
    FIELDS = ("bindings",)

    bindings: tuple[Binding, ...]

    def __init__(self, bindings: Iterable[Binding] = (), span: Any = None) -> None:
        self.bindings = tuple(bindings)
        self.span = span


class DataflowBlock(BindingBlock):
    """Bindings without side effects and control flow.  Its variables of class `DataflowVar` are not
    visible outside."""

    __slots__ = ()


class SeqExpr(Expr):
    """Blocks of bindings, then the value `body`."""

    __slots__ = ("blocks", "body")
    FIELDS = ("blocks", "body")

    blocks: tuple[BindingBlock, ...]
    body: Expr

    def __init__(
        self,
        blocks: Iterable[BindingBlock],
        body: Expr,
        span: Any = None,
        *,
        ty: Type | None = None,
    ) -> None:
        self.blocks = tuple(blocks)
        self.body = body
        self.ty = body.ty if ty is None else ty
        self.span = span


def joined_blocks(blocks: Iterable[BindingBlock]) -> list[BindingBlock]:
    """Drop empty blocks and join adjacent blocks of one kind."""
    joined: list[BindingBlock] = []
    for block in blocks:
        if not block.bindings:
            continue
        kind = DataflowBlock if isinstance(block, DataflowBlock) else BindingBlock
        if joined and isinstance(joined[-1], DataflowBlock) == (kind is DataflowBlock):
            last = joined[-1]
            joined[-1] = kind((*last.bindings, *block.bindings), last.span)
        else:
            joined.append(block)
    return joined


def _as_seq(expr: Expr) -> SeqExpr:
    return expr if isinstance(expr, SeqExpr) else SeqExpr((), expr, span=expr.span)


class ExternFunc(Expr):
    """A packed function, by its registered name."""

    __slots__ = ("global_symbol",)
    FIELDS = ("global_symbol",)

    global_symbol: str

    def __init__(self, global_symbol: str, ty: Type | None = None, span: Any = None) -> None:
        self.global_symbol = global_symbol
        self.ty = EXTERN_TYPE if ty is None else ty
        self.span = span

    @property
    def attrs(self) -> Attrs:
        """No attributes: as a member of a module it has what the functions there have."""
        return _NO_ATTRS


EXTERN_TYPE: Final = FuncType.opaque_func()
"""The type of an `ExternFunc` that has no other."""
_NO_ATTRS: Final = Attrs()


class BaseFunc(Expr):
    """Base of the functions of a module, `Function` and `PrimFunc`; `attrs` are its attributes."""

    __slots__ = ("attrs",)

    attrs: Attrs

    def _with_attrs(self, attrs: Attrs) -> Any:
        raise TypeError(f"attributes of a {type(self).__name__} cannot be changed")

    def with_attr(self, attr_key_or_dict: str | Mapping[str, Any], attr_value: Any = None) -> Any:
        """Return the function with attributes set: one by name, or all those of a mapping."""
        if isinstance(attr_key_or_dict, Mapping):
            more = attr_key_or_dict
        else:
            more = {attr_key_or_dict: attr_value}
        return self._with_attrs(Attrs({**self.attrs, **more}))

    def with_attrs(self, attr_map: Mapping[str, Any]) -> Any:
        """Return the function with these attributes and no others."""
        return self._with_attrs(Attrs(attr_map))

    def without_attr(self, attr_key: str) -> Any:
        """Return the function without an attribute."""
        return self._with_attrs(Attrs({k: v for k, v in self.attrs.items() if k != attr_key}))


class Function(BaseFunc):
    """A Relax function.

    Attributes:
        type_params: the type parameters.
        params: the parameters.
        body: a `SeqExpr`.
        ret_ty: type of the result.
        is_pure: whether a call has no side effects.
        attrs: attributes, such as "global_symbol".
    """

    __slots__ = ("body", "is_pure", "params", "ret_ty", "type_params")
    FIELDS = ("type_params", "params", "body", "ret_ty", "is_pure", "attrs")
    DEFS = frozenset({"type_params", "params"})
    DEFAULTS = MappingProxyType({"type_params": ()})

    type_params: tuple[TypeVar, ...]
    params: tuple[Var, ...]
    body: SeqExpr
    ret_ty: Any
    is_pure: bool

    def __init__(
        self,
        params: Iterable[Var],
        body: Expr,
        ret_ty: Type | None = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
        *,
        type_params: Iterable[TypeVar] = (),
    ) -> None:
        self.type_params = tuple(type_params)
        self.params = tuple(params)
        self.body = _as_seq(body)
        self.ret_ty = self.body.ty if ret_ty is None else ret_ty
        self.is_pure = is_pure
        self.attrs = attrs if type(attrs) is Attrs else _attrs(attrs)
        self.span = span
        for param in self.params:
            if param.ty is None:
                raise TypeError(f"parameter {param.name!r} has no type")
        self.ty = FuncType([p.ty for p in self.params], ANY if self.ret_ty is None else self.ret_ty,
                           is_pure, type_params=self.type_params)  # fmt: skip

    def _with_attrs(self, attrs: Attrs) -> Function:
        return Function(self.params, self.body, self.ret_ty, self.is_pure, attrs, self.span,
                        type_params=self.type_params)  # fmt: skip

    def replace(
        self,
        *,
        params: Iterable[Var] | None = None,
        body: Expr | None = None,
        ret_ty: Type | None = None,
        is_pure: bool | None = None,
    ) -> Function:
        """Return the function with some fields replaced."""
        return Function(
            self.params if params is None else params,
            self.body if body is None else body,
            self.ret_ty if ret_ty is None else ret_ty,
            self.is_pure if is_pure is None else is_pure,
            self.attrs,
            self.span,
            type_params=self.type_params,
        )

    def bind_symbolic_vars(self, binding_map: Mapping[Any, Any]) -> Function:
        """Return the function with symbolic variables replaced by values; see
        `relaxvm.transform.BindSymbolicVars`.

        Raises:
            BindError: the parameters mention no such variable, or several of the name; a variable
                is bound twice; a value mentions a variable that no parameter defines.
        """
        from ..transform.bind_params import bind_symbolic_vars

        return bind_symbolic_vars(self, binding_map)

    def bind_params(self, binding_map: Mapping[Any, Any]) -> Function:
        """Return the function with parameters replaced by values; see
        `relaxvm.transform.BindParams`.

        Raises:
            BindError: there is no such parameter, or several of the name.
            TypeError: a value does not have the type of the parameter.
        """
        from ..transform.bind_params import bind_params

        return bind_params(self, binding_map)

    def inline_functions(self, function_map: Mapping[Any, Function]) -> Function:
        """Return the function with calls of other functions of its module replaced by their
        bodies.

        Args:
            function_map: `GlobalVar` or its name -> the function.

        Raises:
            ValueError: a function is given twice, or calls itself.
        """
        from ..transform.inline_private_functions import inline_functions

        return inline_functions(self, function_map)


# Expressions from Python values


def prim_value(value: Any, dtype: str | None = None) -> Expr:
    """Return a scalar as an expression: int64, float64, bool, or the scalar expression itself.
    Scalars of numpy become these, too, as in TVM.

    Args:
        value: the scalar.
        dtype: the data type of a number, if it is to be another one.

    Raises:
        TypeError: not a scalar, or an expression of another data type.
    """
    if isinstance(value, Expr):
        if is_scalar(value):
            if dtype is not None and value.ty.dtype != dtype:
                raise TypeError(f"prim_value: {value} is of {value.ty.dtype}, got dtype {dtype}")
            return value
        raise TypeError(f"prim_value: Cannot convert {value} of type {value.ty} to a scalar")
    if isinstance(value, (bool, np.bool_, float, np.floating, int, np.integer)):
        if dtype is not None:
            from .prim import immediate

            return immediate(dtype, value.item() if isinstance(value, np.generic) else value)
        if isinstance(value, (bool, np.bool_)):
            return IntImm("bool", int(value))
        if isinstance(value, (float, np.floating)):
            return FloatImm("float64", float(value))
        return int_imm(int(value))
    raise TypeError(f"prim_value: expected a scalar, got {type(value).__name__}")


PrimValue = prim_value
"""TVM's older node for a scalar in Relax; scalars themselves are expressions now."""


def const(value: Any, dtype: Any = None) -> Constant:
    """Return a constant tensor.  Python floats become float32 and ints int32 unless `dtype` is
    given; numpy values keep their data type.  A writable array is copied, so that writing to it
    later does not change the program.

    Raises:
        ExprSizeError: nested lists or tuples have more than 2^24 elements; a numpy array may have
            more.
        OverflowError: an int does not fit the data type, which is int32 unless `dtype` is given.
        TypeError, ValueError: numpy cannot convert the value to a tensor.
    """
    if isinstance(value, (tuple, list)):
        check_nested(value, MOST_ELEMENTS, "const")
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is None and not isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        wanted = {"f": np.dtype("float32"), "i": np.dtype("int32")}.get(array.dtype.kind)
    if wanted is None or (isinstance(value, np.ndarray) and value.dtype == wanted):
        array, is_new = np.asarray(value), False
    else:
        array, is_new = array_of(value, wanted), True
    if array.dtype.kind == "O" and isinstance(value, int):
        raise OverflowError(f"const: {value} does not fit int64")
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"const: expected numbers, got {type(value).__name__}")
    if is_new:
        array.flags.writeable = False
    return constant_of(array)


def constant_of(array: NDArray[Any]) -> Constant:
    """Return an array as a constant tensor.  A writable array is copied, so that writing to it
    later does not change the program."""
    if not is_sealed(array):
        array = array.copy()
        array.flags.writeable = False  # so that nothing copies it again
    return Constant(array)


def extern(name: str, ty: Type | None = None) -> ExternFunc:
    """Return a packed function, by name."""
    return ExternFunc(name, ty)


def convert_to_expr(value: Any) -> Expr:
    """Return a Python value as an expression: numbers as scalars, strings, data types, lists and
    tuples as tuples, arrays as constants.

    Raises:
        TypeError: the value has no such form.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (bool, int, float, np.generic)):
        return prim_value(value)
    if isinstance(value, np.ndarray):
        return constant_of(value)
    if isinstance(value, np.dtype):
        return DataTypeImm(dtype_name(value))
    if isinstance(value, (tuple, list)):
        return Tuple([convert_to_expr(item) for item in value])
    raise TypeError(
        f"expected an expression, a number, a string, a data type, an array or a tuple of these, "
        f"got {type(value).__name__}"
    )


def _dim(value: Expr) -> Expr:
    """A dimension: int64, to which constants of other integer types are converted."""
    ty = value.ty
    if type(ty) is PrimType and ty.dtype == "int64":
        return value
    if isinstance(value, IntImm) and ty.dtype != "bool":
        return int_imm(value.value)
    raise DimensionError(
        f"a dimension is an integer scalar, got {value} of type {ty}: the value in ShapeType can "
        "only have dtype of int64; convert it by astype"
    )


_FEW_DIMS: Final = 64
"""The parts of shapes with more dimensions are bounded like those of scalars."""


def _dims(values: Any) -> tuple[tuple[Expr, ...], int]:
    """The dimensions of a shape, and the number of its parts, of which plain dimensions are none.

    Raises:
        DimensionError: a value is not an int64 scalar.  Constants of other integer types become
            int64.
        ExprSizeError: there are too many parts.
    """
    if isinstance(values, (str, Expr)) and not isinstance(values, ShapeExpr):
        raise TypeError(f"a shape is a sequence of dimensions, got {values!r}")
    dims = tuple([v if isinstance(v, Expr) else int_imm(v) for v in values])
    parts = 1
    for dim in dims:
        ty = dim.ty
        if type(ty) is not PrimType or ty.dtype != "int64":
            return _dims([_dim(value) for value in dims])
        parts += dim._parts - 1
    if len(dims) > _FEW_DIMS:
        check_parts(parts)
    return dims, parts
