"""Kinds of parameters: what a kernel's annotations say about its arguments.

A kernel is written as a function whose annotations are kinds::

    @kernel("nn.softmax")
    def softmax(x: Floats, axis: Axis, out: OutLike) -> None:
        ...

From them come the kernel's signature, which the verifier reads, and the check of the arguments
before each call.  The body gets converted arguments: an axis counted from the front, a bool for 0
or 1, a tuple of ints for a Shape.  ``Axis | None`` also takes None.  Parameters after ``*tensors``
are the last positional ones: ``concat(*tensors: SameType, axis: Axis, out: Out)`` is called as
``concat(a, b, 0, out)``.

The checks run in a fixed order, each over all parameters: whether tensors are tensors, their data
types, the other arguments, shapes of weights, then `out`.  Checks and body get views of the
tensors, whose shape and data type no other thread changes.  Checks that relate several arguments
are in the body, which raises `WrongType` or `WrongValue` (see `relaxvm.kernels.checks`).  Kinds
with settings are written with ``Annotated``::

    Groups: TypeAlias = Annotated[int, an_int(least=1)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from ..core.floating import reporting
from ..messages import describe
from ..registry import KERNEL_PREFIX, Param, Signature, StaticCheck
from ..values import Shape
from .checks import (
    FLOAT32,
    FLOAT64,
    Dims,
    Wanted,
    WrongType,
    WrongValue,
    as_operand,
    check_out,
    float_dtype,
    native,
    need_numbers,
    result_dtype,
)

__all__ = [
    "Axes",
    "Axis",
    "Bools",
    "Flag",
    "Float",
    "Floats",
    "Int",
    "Integers",
    "Ints",
    "Kind",
    "Number",
    "Numbers",
    "Operand",
    "Out",
    "OutAny",
    "OutLike",
    "Parameter",
    "SameType",
    "Tensor",
    "Text",
    "a_choice",
    "an_axis",
    "an_int",
    "axes_or_all",
    "checked",
    "floats_over",
    "int_or_ints",
    "ints",
    "is_output",
    "operand_like",
    "parameters_of",
    "passed",
    "signature_of",
    "taken_by",
    "to_float",
    "to_int",
    "to_ints",
]

Check = Callable[[list[Any]], None]
"""Checks one or several of a call's arguments and replaces those that it converts."""


class Step(IntEnum):
    """When a check runs."""

    TENSOR = 0
    DTYPE = 1
    VALUE = 2
    SHAPE = 3
    OUT = 4


class Parameter(NamedTuple):
    """A parameter of a kernel.

    Attributes:
        name: of the parameter.
        kind: what its annotation says.
        position: of its argument in the list that checks get; the arguments of ``*name`` are one
            tuple there.
        is_optional: whether it may be None.
        is_variadic: whether it is ``*name``.
    """

    name: str
    kind: Kind
    position: int
    is_optional: bool
    is_variadic: bool

    def tensors(self, arguments: list[Any]) -> Iterator[tuple[str, Any]]:
        """The arguments of this parameter that are not None, each with a name for messages."""
        value = arguments[self.position]
        if self.is_variadic:
            for i, item in enumerate(value):
                yield f"{self.name}[{i}]", item
        elif value is not None or not self.is_optional:
            yield self.name, value


class Kind:
    """A kind of parameter.

    Attributes:
        packed: the kinds of packed values that it takes, as in a signature: ``"int|float"``.
        step: when its check runs.
    """

    packed = "any"
    step = Step.VALUE

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check | None:
        """The check of a parameter, given the others; None if there is nothing to check."""
        raise NotImplementedError


def passed(packed: str) -> Kind:
    """A kind for which the body does the check; `packed` is what the signature says."""
    return _Passed(packed)


class _Passed(Kind):
    def __init__(self, packed: str) -> None:
        self.packed = packed

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check | None:
        return None


# Tensors


class _TensorKind(Kind):
    """A tensor of any data type.  That it is a tensor is checked for all parameters at once."""

    packed = "tensor"
    step = Step.DTYPE

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check | None:
        return None


class _Of(_TensorKind):
    """A tensor with a check of its data type."""

    def __init__(self, expected: str, fits: Callable[[np.dtype[Any]], bool]) -> None:
        self.expected = expected
        self.fits = fits

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        fits, expected = self.fits, self.expected

        def check(arguments: list[Any]) -> None:
            for name, tensor in parameter.tensors(arguments):
                if not fits(tensor.dtype):
                    raise WrongValue(f"{name}: expected {expected}, got {describe(tensor)}")

        return check


class _NumbersKind(_TensorKind):
    """A tensor of integers or floats."""

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        def check(arguments: list[Any]) -> None:
            for name, tensor in parameter.tensors(arguments):
                need_numbers(name, tensor)

        return check


class _TakenBy(_TensorKind):
    def __init__(self, ufunc: np.ufunc, other: str) -> None:
        self.ufunc = ufunc
        self.other = other

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        position, name, other, ufunc = parameter.position, parameter.name, self.other, self.ufunc

        def check(arguments: list[Any]) -> None:
            tensor = arguments[position]
            if tensor.dtype is not FLOAT32 and tensor.dtype is not FLOAT64:
                result_dtype(ufunc, **{name: tensor, other: tensor})

        return check


def taken_by(ufunc: np.ufunc, other: str = "other") -> Kind:
    """A tensor of a data type that a ufunc of two operands takes, both of this data type.  It takes
    float32 and float64.  `other` is what messages call the other operand."""
    return _TakenBy(ufunc, other)


class _FloatsKind(_TensorKind):
    """Floats; all parameters of this kind have one data type."""

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check | None:
        group = [each for each in others if isinstance(each.kind, _FloatsKind)]
        if group[0] is not parameter:
            return None
        first = parameter.position
        rest = [each.position for each in group[1:]]

        def check(arguments: list[Any]) -> None:
            dtype = arguments[first].dtype
            if dtype is FLOAT32 or dtype is FLOAT64:
                for position in rest:
                    other = arguments[position]
                    if other is not None and other.dtype is not dtype:
                        break
                else:
                    return  # nearly always
            float_dtype(**dict(pair for each in group for pair in each.tensors(arguments)))

        return check


class _SameTypeKind(_TensorKind):
    """Tensors of one data type."""

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check | None:
        group = [each for each in others if isinstance(each.kind, _SameTypeKind)]
        if group[0] is not parameter:
            return None

        def check(arguments: list[Any]) -> None:
            first: Any = None
            for each in group:
                for _, tensor in each.tensors(arguments):
                    first = tensor if first is None else first
                    if native(tensor.dtype) != native(first.dtype):
                        raise WrongValue(
                            f"expected tensors of one data type, got {describe(first)} and "
                            f"{describe(tensor)}; {KERNEL_PREFIX}cast converts"
                        )

        return check


class _FloatsOver(_FloatsKind):
    def __init__(self, axes: str) -> None:
        self.axes = axes

    def check_shape(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position = parameter.name, parameter.position
        tensor_of = _first_tensor(others)
        axes_at = _named(self.axes, others).position

        def check(arguments: list[Any]) -> None:
            axes = arguments[axes_at]
            whole = tensor_of(arguments).shape
            shape = (whole[axes],) if type(axes) is int else tuple([whole[axis] for axis in axes])
            if arguments[position].shape != shape:
                raise WrongValue(
                    f"{name}: expected shape {list(shape)}, got {describe(arguments[position])}"
                )

        return check


def floats_over(axes: str) -> Kind:
    """As `Floats`, with the shape that the first tensor has along the axis or axes of another
    parameter."""
    return _FloatsOver(axes)


class _OutLike(_TensorKind):
    step = Step.OUT

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        position, name = parameter.position, parameter.name
        tensor_of = _first_tensor(others)

        def check(arguments: list[Any]) -> None:
            like = tensor_of(arguments)
            check_out(arguments[position], native(like.dtype), like.shape, name=name)

        return check


class _OutAny(_TensorKind):
    step = Step.OUT

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        position, name = parameter.position, parameter.name

        def check(arguments: list[Any]) -> None:
            out = arguments[position]
            if type(out) is Wanted:
                raise WrongValue("shape: expected the shape of the result, got None")
            check_out(out, out.dtype, out.shape, name=name)

        return check


def is_output(kind: Kind) -> bool:
    """Whether a kind is only for outputs."""
    return isinstance(kind, (_OutLike, _OutAny))


def _first_tensor(parameters: Sequence[Parameter]) -> Callable[[list[Any]], Any]:
    """Gives the first tensor of the arguments."""
    first = next(each for each in parameters if isinstance(each.kind, _TensorKind))
    position = first.position
    if first.is_variadic:
        return lambda arguments: arguments[position][0]
    return lambda arguments: arguments[position]


def _named(name: str, parameters: Sequence[Parameter]) -> Parameter:
    return next(each for each in parameters if each.name == name)


class _OperandKind(Kind):
    """A tensor, or a number next to tensors, which becomes a scalar of a data type."""

    packed = "tensor|int|float"

    def __init__(self, like: str | None) -> None:
        self.like = like

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position = parameter.name, parameter.position
        if self.like is not None:
            others = [_named(self.like, others)]
        else:
            others = [each for each in others if isinstance(each.kind, _OperandKind)]

        def check(arguments: list[Any]) -> None:
            value = arguments[position]
            if not isinstance(value, np.ndarray):
                arguments[position] = as_operand(name, value, _shared_dtype(arguments, others))

        return check


def _shared_dtype(arguments: list[Any], parameters: Sequence[Parameter]) -> np.dtype[Any]:
    """The data type of the first tensor among some parameters."""
    for each in parameters:
        value = arguments[each.position]
        if isinstance(value, np.ndarray):
            return np.dtype(value.dtype)
    got = ", ".join(f"{each.name} {describe(arguments[each.position])}" for each in parameters)
    raise WrongType(f"expected at least one tensor, got {got}")


def operand_like(parameter: str) -> Kind:
    """As `Operand`; a number takes the data type of the tensor that is another parameter."""
    return _OperandKind(parameter)


# Plain values


class _Value(Kind):
    """A value that is checked by itself."""

    def __init__(self, packed: str, convert: Callable[[str, Any], Any]) -> None:
        self.packed = packed
        self.convert = convert

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position, convert = parameter.name, parameter.position, self.convert
        is_optional, is_variadic = parameter.is_optional, parameter.is_variadic

        def check(arguments: list[Any]) -> None:
            value = arguments[position]
            if is_variadic:
                arguments[position] = tuple([convert(name, item) for item in value])
            elif value is not None or not is_optional:
                arguments[position] = convert(name, value)

        return check


def an_int(least: int | None = None) -> Kind:
    """An int, not a bool, of at least a number."""

    def convert(name: str, value: Any) -> int:
        return to_int(name, value, least)

    return _Value("int", convert)


def to_int(name: str, value: Any, least: int | None = None) -> int:
    """An int, not a bool.

    Raises:
        WrongType: something else.
        WrongValue: it is below `least`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name}: expected an int, got {describe(value)}")
    if least is not None and value < least:
        raise WrongValue(f"{name}: expected at least {least}, got {value}")
    return value


def ints(count: int | None = None, least: int | None = None, like: str | None = None) -> Kind:
    """Several ints, in a Shape, a tuple or a list; the body gets a tuple.

    Args:
        count: how many there must be.
        least: the least that each may be.
        like: another parameter, of several ints or axes, with equally many.
    """

    def convert(name: str, value: Any) -> Dims:
        return to_ints(name, value, count, least)

    return _Value("shape", convert) if like is None else _IntsLike(like, least)


def to_ints(
    name: str, value: Any, count: int | None = None, least: int | None = None
) -> Dims:
    """A tuple of ints, from a Shape, a tuple or a list.

    Raises:
        WrongType: something else.
        WrongValue: there is another number of ints than `count`, or one is below `least`.
    """
    if type(value) is not Shape and (
        not isinstance(value, (tuple, list)) or not all(type(item) is int for item in value)
    ):
        raise WrongType(f"{name}: expected a shape of ints, got {describe(value)}")
    if count is not None and len(value) != count:
        number = "1 int" if count == 1 else f"{count} ints"
        raise WrongValue(f"{name}: expected {number}, got {list(value)}")
    if least is not None and any(item < least for item in value):
        raise WrongValue(f"{name}: expected ints of at least {least}, got {list(value)}")
    return tuple(value)


class _IntsLike(Kind):
    packed = "shape"

    def __init__(self, like: str, least: int | None) -> None:
        self.like = like
        self.least = least

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position, least = parameter.name, parameter.position, self.least
        is_optional = parameter.is_optional
        like = _named(self.like, others).position

        def check(arguments: list[Any]) -> None:
            value = arguments[position]
            if value is not None or not is_optional:
                arguments[position] = to_ints(name, value, len(arguments[like]), least)

        return check


def int_or_ints(least: int) -> Kind:
    """An int or several, of at least a number; the body gets a tuple."""
    def convert(name: str, value: Any) -> Dims:
        if isinstance(value, int):
            return (to_int(name, value, least),)
        return to_ints(name, value, None, least)

    return _Value("int|shape", convert)


def _to_number(name: str, value: Any) -> int | float:
    to_float(name, value)
    return value  # type: ignore[no-any-return]


def to_float(name: str, value: Any) -> float:
    """A finite number as a float.

    Raises:
        WrongType: it is not a number.
        WrongValue: it is not finite.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise WrongType(f"{name}: expected a number, got {describe(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise WrongValue(f"{name}: expected a finite number, got {describe(value)}")
    return number


def _to_flag(name: str, value: Any) -> bool:
    if not isinstance(value, int):
        raise WrongType(f"{name}: expected a bool, got {describe(value)}")
    if value not in (0, 1):
        raise WrongValue(f"{name}: expected a bool, got {describe(value)}")
    return bool(value)


def _to_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise WrongType(f"{name}: expected a string, got {describe(value)}")
    return value


def a_choice(*choices: str) -> Kind:
    """One of some strings."""
    expected = " or ".join(map(repr, choices))

    def convert(name: str, value: Any) -> str:
        if _to_text(name, value) not in choices:
            raise WrongValue(f"{name}: expected {expected}, got {value!r}")
        return str(value)

    return _Value("str", convert)


# Axes of the first tensor


class _AxisKind(Kind):
    packed = "int"

    def __init__(self, is_new: bool) -> None:
        self.is_new = is_new

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position, is_optional = parameter.name, parameter.position, parameter.is_optional
        tensor_of, is_new = _first_tensor(others), self.is_new

        def check(arguments: list[Any]) -> None:
            value = arguments[position]
            if value is None and is_optional:
                return
            tensor = tensor_of(arguments)
            arguments[position] = _to_axis(name, value, tensor[..., None] if is_new else tensor)

        return check


def an_axis(*, is_new: bool = False) -> Kind:
    """An axis of the first tensor, or a new axis between its axes, counted from the front for the
    body."""
    return _AxisKind(is_new)


def _to_axis(name: str, axis: Any, x: NDArray[Any]) -> int:
    ndim = x.ndim
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise WrongType(f"{name}: expected an int, got {describe(axis)}")
    if not -ndim <= axis < ndim:
        raise WrongValue(f"{name}: expected an axis of {describe(x)}, got {axis}")
    return axis % ndim


def _to_axes(name: str, axes: Sequence[Any], x: NDArray[Any]) -> Dims:
    found = tuple([_to_axis("axis", axis, x) for axis in axes])
    if len(set(found)) < len(found):
        raise WrongValue(f"{name}: expected each axis once, got {list(axes)}")
    return found


class _AxesKind(Kind):
    packed = "shape"

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position = parameter.name, parameter.position
        tensor_of = _first_tensor(others)

        def check(arguments: list[Any]) -> None:
            axes = to_ints(name, arguments[position])
            arguments[position] = _to_axes(name, axes, tensor_of(arguments))

        return check


class _AxesOrAll(Kind):
    packed = "int|shape|none"

    def __init__(self, is_reversed: bool) -> None:
        self.is_reversed = is_reversed

    def check(self, parameter: Parameter, others: Sequence[Parameter]) -> Check:
        name, position, is_reversed = parameter.name, parameter.position, self.is_reversed
        tensor_of = _first_tensor(others)

        def check(arguments: list[Any]) -> None:
            given, x = arguments[position], tensor_of(arguments)
            if not given or (len(given) == 1 and given[0] is None):
                axes = tuple(range(x.ndim))
                arguments[position] = axes[::-1] if is_reversed else axes
                return
            is_shape = len(given) == 1 and isinstance(given[0], tuple)
            arguments[position] = _to_axes(name, given[0] if is_shape else given, x)

        return check


def axes_or_all(*, is_reversed: bool = False) -> Kind:
    """Of ``*axes``: axes of the first tensor as ints or as one Shape; None, or none at all, stands
    for all axes, in reversed order if wanted."""
    return _AxesOrAll(is_reversed)


# The kinds by name

Tensor: TypeAlias = Annotated[NDArray[Any], _TensorKind()]
"""A tensor."""
Floats: TypeAlias = Annotated[NDArray[Any], _FloatsKind()]
"""A tensor of floats of at most 64 bits.  All tensors of this kind have one data type."""
SameType: TypeAlias = Annotated[NDArray[Any], _SameTypeKind()]
"""A tensor.  All tensors of this kind have one data type."""
Integers: TypeAlias = Annotated[
    NDArray[Any], _Of("a tensor of integers", lambda dtype: dtype.kind in "iu")
]
"""A tensor of integers."""
Bools: TypeAlias = Annotated[
    NDArray[Any], _Of("a bool tensor", lambda dtype: dtype.kind == "b")
]
"""A tensor of bools."""
Numbers: TypeAlias = Annotated[NDArray[Any], _NumbersKind()]
"""A tensor of integers or floats."""
Operand: TypeAlias = Annotated[Any, _OperandKind(None)]
"""A tensor or a number.  At least one parameter of this kind is a tensor; the body gets numbers as
scalars of the data type of the first such tensor."""
Out: TypeAlias = Annotated[NDArray[Any], _TensorKind()]
"""A tensor for a result whose data type and shape the body knows: it calls `check_out`."""
OutLike: TypeAlias = Annotated[NDArray[Any], _OutLike()]
"""A tensor for a result of the data type and shape of the first tensor."""
OutAny: TypeAlias = Annotated[NDArray[Any], _OutAny()]
"""A tensor for a result of any data type and shape."""
Int: TypeAlias = Annotated[int, an_int()]
"""An int, not a bool."""
Ints: TypeAlias = Annotated[Dims, ints()]
"""Ints in a Shape, a tuple or a list."""
Number: TypeAlias = Annotated["int | float", _Value("int|float", _to_number)]
"""A finite number."""
Float: TypeAlias = Annotated[float, _Value("int|float", to_float)]
"""A finite number, as a float."""
Flag: TypeAlias = Annotated[bool, _Value("bool|int", _to_flag)]
"""A bool; bytecode passes it as 0 or 1."""
Text: TypeAlias = Annotated[str, _Value("str", _to_text)]
"""A string."""
Axis: TypeAlias = Annotated[int, an_axis()]
"""An axis of the first tensor; the body gets it counted from the front."""
Axes: TypeAlias = Annotated[Dims, _AxesKind()]
"""Axes of the first tensor, each once; the body gets them counted from the front."""


# From annotations to checks


def parameters_of(body: Callable[..., None]) -> tuple[Parameter, ...]:
    """The parameters of a kernel.

    Raises:
        TypeError: an annotation is not a kind.
    """
    code = body.__code__
    count = code.co_argcount
    names = list(code.co_varnames[: count + code.co_kwonlyargcount])
    variadic = ""
    if code.co_flags & 0x04:  # *name stands before the parameters that are keywords
        variadic = code.co_varnames[count + code.co_kwonlyargcount]
        names.insert(count, variadic)
    found = []
    for position, name in enumerate(names):
        kind, is_optional = _kind_of(body, name)
        found.append(Parameter(name, kind, position, is_optional, name == variadic))
    return tuple(found)


def _kind_of(body: Callable[..., None], name: str) -> tuple[Kind, bool]:
    """The kind of a parameter, and whether it may be None."""
    annotation = body.__annotations__.get(name)
    if isinstance(annotation, str):
        known = body.__globals__
        text = annotation
        annotation = known[text] if text in known else eval(text, known)
    options: list[Any] = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        options = [each for each in get_args(annotation) if each is not type(None)]
    kinds = [kind for kind in getattr(options[0], "__metadata__", ()) if isinstance(kind, Kind)]
    if len(options) != 1 or len(kinds) != 1:
        raise TypeError(
            f"{body.__name__}: {name}: expected a kind of parameter as annotation, got "
            f"{annotation!r}"
        )
    return kinds[0], options[0] is not annotation


def signature_of(
    parameters: Sequence[Parameter], check: StaticCheck | None = None
) -> Signature:
    """What the verifier knows of a kernel with these parameters."""
    first: list[Param] = []
    last: list[Param] = []
    variadic: Param | None = None
    for each in parameters:
        packed = each.kind.packed + ("|none" if each.is_optional else "")
        param = Param(each.name, frozenset(packed.split("|")))
        if each.is_variadic:
            variadic = param
        else:
            (first if variadic is None else last).append(param)
    return Signature(tuple(first), variadic, tuple(last), "none", check)


def checked(
    name: str,
    body: Callable[..., Any],
    parameters: Sequence[Parameter],
    ufunc: np.ufunc | None = None,
) -> Callable[..., Any]:
    """A kernel: checks its arguments and calls the body.

    Args:
        name: of the kernel, with which its messages begin.
        body: gets the arguments as the kinds convert them; what it returns is returned.
        parameters: of the body.
        ufunc: that the kernel is, if it is just one; floating-point warnings have its name.
    """
    warned = reporting(body, name if ufunc is None else ufunc.__name__)
    checks = _checks(parameters)
    variadic = next((each for each in parameters if each.is_variadic), None)
    if variadic is None:
        run = _fixed(name, warned, parameters, checks)
    else:
        run = _variadic(name, warned, parameters, checks, variadic)
    run.__name__ = body.__name__
    run.__qualname__ = body.__qualname__
    run.__module__ = body.__module__
    run.__doc__ = body.__doc__
    return run


def _checks(parameters: Sequence[Parameter]) -> tuple[Check, ...]:
    """The checks of the parameters in the order in which they run."""
    steps: list[tuple[Step, Check]] = []
    tensors = _tensor_check(parameters)
    if tensors is not None:
        steps.append((Step.TENSOR, tensors))
    for each in parameters:
        check = each.kind.check(each, parameters)
        if check is not None:
            steps.append((each.kind.step, check))
        if isinstance(each.kind, _FloatsOver):
            steps.append((Step.SHAPE, each.kind.check_shape(each, parameters)))
    steps.sort(key=lambda step: step[0])
    return tuple([check for _, check in steps])


_view: Final = np.ndarray.view


def _tensor_check(parameters: Sequence[Parameter]) -> Check | None:
    """Whether all tensors are tensors.  Puts views in their place, so that shape and data type are
    those that are checked: other threads may set those of an argument whenever numpy computes
    without Python's lock, and some functions of numpy read them then (`searchsorted`, `matmul`,
    `argmax`, `dot`)."""
    tensors = [each for each in parameters if isinstance(each.kind, _TensorKind)]
    takers = [each for each in parameters if "tensor" in each.kind.packed.split("|")]
    if not takers:
        return None
    single = [each.position for each in takers if not each.is_variadic]
    variadic = next((each.position for each in takers if each.is_variadic), None)

    def check(arguments: list[Any]) -> None:
        for position in single:
            value = arguments[position]
            if type(value) is not np.ndarray:
                break
            arguments[position] = _view(value)
        else:
            if variadic is None:
                return  # nearly always
        for each in tensors:
            for name, value in each.tensors(arguments):
                if not isinstance(value, np.ndarray):
                    raise WrongType(f"{name}: expected a tensor, got {describe(value)}")
        for position in single:
            arguments[position] = _own(arguments[position])
        if variadic is not None:
            arguments[variadic] = tuple(map(_own, arguments[variadic]))

    return check


def _own(value: Any) -> Any:
    is_shared = isinstance(value, np.ndarray) and type(value) is not Wanted
    return _view(value) if is_shared else value


def _fixed(
    name: str,
    body: Callable[..., Any],
    parameters: Sequence[Parameter],
    checks: tuple[Check, ...],
) -> Callable[..., Any]:
    count = len(parameters)

    def run(*args: Any, **keywords: Any) -> Any:
        if keywords:
            args = _with_keywords(name, parameters, args, keywords)
        if len(args) != count:
            raise _wrong_count(name, parameters, len(args))
        arguments = list(args)
        try:
            for check in checks:
                check(arguments)
            return body(*arguments)
        except WrongType as error:
            raise TypeError(f"{name}: {error}") from None
        except WrongValue as error:
            raise ValueError(f"{name}: {error}") from None

    return run


def _variadic(
    name: str,
    body: Callable[..., Any],
    parameters: Sequence[Parameter],
    checks: tuple[Check, ...],
    variadic: Parameter,
) -> Callable[..., Any]:
    before = variadic.position
    last = tuple([each.name for each in parameters[before + 1 :]])
    after = len(last)
    # Tensors without a number are inputs or outputs: there is at least one.
    least = before + after + isinstance(variadic.kind, _TensorKind)

    def run(*args: Any, **keywords: Any) -> Any:
        if keywords:
            args = _with_keywords(name, parameters, args, keywords)
        count = len(args)
        if count < least:
            raise _wrong_count(name, parameters, count)
        end = count - after
        arguments = [*args[:before], args[before:end], *args[end:]]
        try:
            for check in checks:
                check(arguments)
            return body(
                *arguments[:before],
                *arguments[before],
                **dict(zip(last, arguments[before + 1 :], strict=True)),
            )
        except WrongType as error:
            raise TypeError(f"{name}: {error}") from None
        except WrongValue as error:
            raise ValueError(f"{name}: {error}") from None

    return run


def _with_keywords(
    kernel: str,
    parameters: Sequence[Parameter],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> tuple[Any, ...]:
    """All arguments by position; those given by keyword are the last ones."""
    known = [each.name for each in parameters]
    for keyword in keywords:
        if keyword not in known:
            raise TypeError(f"{kernel}() got an unexpected keyword argument {keyword!r}")
    return (*args, *[keywords[name] for name in known if name in keywords])


def _wrong_count(name: str, parameters: Sequence[Parameter], count: int) -> TypeError:
    *names, last = [each.name for each in parameters]
    expected = f"{', '.join(names)} and {last}" if names else last
    return TypeError(f"{name}: expected {expected}, got {count} arguments")


