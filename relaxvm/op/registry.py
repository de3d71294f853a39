"""The one registration of an operator.

An operator is registered by its type rule, a function that is written like the operator's
constructor: its parameters are the operands and attributes, with their names, order and defaults;
its annotations say what each of them is (see `kinds`); its body takes the types of the operands and
the values of the attributes, checks them, and gives the type of the result; its docstring is the
operator's documentation::

    @operator("nn.softmax")
    def softmax(data: TensorType, axis: int = -1) -> TensorType:
        \"\"\"exp(data - max) / sum along an axis, in floats.\"\"\"
        need_floats(data=data)
        axis_of("axis", axis, data)
        return data

That is all.  From it come: the `Op` "relax.nn.softmax" that types are inferred by; the constructor
``relaxvm.op.nn.softmax(x, axis=-1)``, which is ``R.nn.softmax`` in a script and what the decorator
returns; the checks of attributes and their messages; the legalization to the kernel
"relaxvm.kernel.nn.softmax", which takes operands, attributes and outputs in this order; the row in
docs/operators.md; and the demand of the tests that there are cases for its rule and its kernel.
Where an operator needs more, `arguments`, `takes` and `lower` of the decorator say so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..errors import did_you_mean
from ..ir.expr import ANY, Call, Expr, GlobalVar, TupleType, Type
from ..ir.infer import infer_type
from ..ir.op import Op
from .kinds import OPERAND, IllTyped, IllValued, Kind, constants_beside, kind_named

__all__ = [
    "CONSTRUCTORS",
    "OPERATORS",
    "PREFIX",
    "Constructor",
    "Lower",
    "Operator",
    "Parameter",
    "composite",
    "constructor",
    "make_call",
    "offered",
    "operator",
    "type_of_results",
]

PREFIX: Final = "relax."
"""What the name of every operator begins with."""

Constructor = Callable[..., Any]
Rule = Callable[..., Type]
Takes = Callable[[Call], Sequence[Any]]
Lower = Callable[[Any, Call], Expr]
"""A legalization: takes a `BlockBuilder` and a call, gives what the call is lowered to."""

OPERATORS: Final[dict[str, Operator]] = {}
"""Every operator by its name without the prefix."""

CONSTRUCTORS: Final[dict[str, Constructor]] = {}
"""What `relaxvm.op` and the script's R offer, by name: the constructors of the operators, and
functions that are made of several."""


class Parameter(NamedTuple):
    """A parameter of a constructor: operand or attribute."""

    name: str
    kind: Kind
    default: Any

    @property
    def is_operand(self) -> bool:
        """Whether it is an argument of the call, not an attribute."""
        return self.kind.view is not None


REQUIRED: Final = inspect.Parameter.empty


class Operator:
    """What is registered of an operator.

    Attributes:
        name: without the prefix: "nn.softmax".
        op: what calls of it call.
        make: its constructor.
        doc: its documentation.
        parameters: operands and attributes in the order of the rule's parameters; empty if the
            constructor is written by hand.
        lower: its legalization, if that is more than a call of `kernel`.
        kernel: name, without prefix, of the kernel that the legalization calls; None if it calls
            none, or there is none as the compiler knows the operator.
        takes: gives what the kernel takes before the outputs; None if that is the operands, tuples
            element by element and without shapes, and the attributes.
        is_elementwise: every element of the result depends on the elements of the operands at the
            same place alone.
    """

    __slots__ = (
        "doc",
        "is_elementwise",
        "kernel",
        "lower",
        "make",
        "name",
        "op",
        "parameters",
        "takes",
    )

    make: Constructor

    def __init__(
        self,
        name: str,
        infer: Callable[[Call], Type],
        doc: str | None,
        *,
        is_pure: bool,
        parameters: tuple[Parameter, ...] = (),
        lower: Lower | None = None,
        kernel: str | None = None,
        takes: Takes | None = None,
        is_elementwise: bool = False,
    ) -> None:
        self.name = name
        self.doc = inspect.cleandoc(doc or "")
        self.parameters = parameters
        self.lower = lower
        self.kernel = kernel
        self.takes = takes
        self.is_elementwise = is_elementwise
        summary = self.doc.partition("\n\n")[0].replace("\n", " ")
        self.op = Op.register(PREFIX + name, infer, doc=summary, is_pure=is_pure, record=self)
        OPERATORS[name] = self

    def construct_by(self, make: Constructor, offer: bool = True) -> Constructor:
        """Set the constructor, and offer it."""
        self.make = self.op.make = make
        return _offer(self.name, make) if offer else make

    @property
    def operands(self) -> tuple[Parameter, ...]:
        """The parameters that are arguments of the call."""
        return tuple([p for p in self.parameters if p.is_operand])

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the parameters that are attributes of the call."""
        return tuple([p.name for p in self.parameters if not p.is_operand])


def operator(
    name: str,
    *,
    pure: bool = True,
    kernel: str | bool = True,
    takes: Takes | None = None,
    lower: Lower | None = None,
    arguments: Callable[..., tuple[Any, ...]] | None = None,
    elementwise: bool = False,
    offer: bool = True,
) -> Callable[[Rule], Constructor]:
    """Decorator: register an operator by its type rule; gives its constructor.

    Args:
        name: without "relax.".
        pure: whether a call has no effect but its result.
        kernel: name of the kernel if it is not the operator's; False if there is none, which with
            `lower` goes without saying.
        takes: gives what the kernel takes before the outputs, if that is not the operands, tuples
            element by element and without shapes, and then the attributes, all in order.
        lower: the legalization, if it is not a call of the kernel.
        arguments: has the constructor's parameters, if they are not the rule's, and gives values
            for the rule's.
        elementwise: see `Operator`.
        offer: whether the constructor is offered under the operator's name; if not, something else
            is, by `composite`.
    """
    if kernel is True:
        kernel = name if lower is None else False

    def register(rule: Rule) -> Constructor:
        parameters = _parameters_of(rule)
        record = Operator(
            name,
            _inference(PREFIX + name, rule, parameters),
            rule.__doc__,
            is_pure=pure,
            parameters=parameters,
            lower=lower,
            kernel=None if kernel is False else str(kernel),
            takes=takes,
            is_elementwise=elementwise,
        )
        make: Any = _constructor(record, arguments)
        make.__name__ = make.__qualname__ = name.rpartition(".")[2]
        make.__module__ = rule.__module__
        make.__doc__ = record.doc
        signature = inspect.signature(rule if arguments is None else arguments)
        make.__signature__ = signature.replace(return_annotation="Call")
        return record.construct_by(make, offer)

    return register


def constructor(
    name: str, infer: Callable[[Call], Type], *, pure: bool = True, lower: Lower | None = None
) -> Callable[[Constructor], Constructor]:
    """Decorator: register an operator by a constructor that is written by hand, for the few whose
    arguments are of no kind; it calls `make_call`.

    Args:
        name: without "relax.".
        infer: the type rule, of the call.
        pure: whether a call has no effect but its result.
        lower: the legalization, if there is one.
    """

    def register(make: Constructor) -> Constructor:
        infer_named = _named(PREFIX + name, infer)
        record = Operator(name, infer_named, make.__doc__, is_pure=pure, lower=lower)
        return record.construct_by(make)

    return register


def composite(name: str) -> Callable[[Constructor], Constructor]:
    """Decorator: offer a function beside the constructors that makes its result of several."""
    return lambda make: _offer(name, make)


def _offer(name: str, make: Constructor) -> Constructor:
    if name in CONSTRUCTORS:
        raise ValueError(f"{name!r} is registered twice: {CONSTRUCTORS[name].__doc__!r}")
    CONSTRUCTORS[name] = make
    return make


def offered(prefix: str, name: str) -> Constructor:
    """What a namespace of `relaxvm.op` offers under a name.

    Raises:
        AttributeError: nothing.
    """
    found = CONSTRUCTORS.get(prefix + name)
    if found is None:
        raise AttributeError(
            f"there is no operator {prefix + name!r}{did_you_mean(prefix + name, CONSTRUCTORS)}"
        )
    return found


def make_call(
    name: str,
    args: Sequence[Expr],
    attrs: Mapping[str, Any] | None = None,
    ty_args: Sequence[Type] = (),
) -> Call:
    """A call of an operator, with its type.

    A function of the module that has no type yet may be among the arguments: what is called by name
    may be defined later.

    Raises:
        TypeError, ValueError: the arguments do not fit.
    """
    op = Op.get(PREFIX + name)
    call = Call(op, args, attrs, ty_args)
    for arg in args:
        if arg.ty is None and type(arg) is not GlobalVar:
            infer_type(arg)
    call.ty = op.infer(call)
    return call


def type_of_results(call: Call) -> Type:
    """The type of a call that says by its type arguments what it gives: that type if it is one, a
    tuple if there are several, any value if there is none."""
    types = call.ty_args
    if len(types) == 1:
        return types[0]
    return TupleType(types) if types else ANY


# Rules and constructors


def _parameters_of(rule: Rule) -> tuple[Parameter, ...]:
    found = [
        Parameter(p.name, kind_named(p.annotation), p.default)
        for p in inspect.signature(rule).parameters.values()
    ]
    operands = [p for p in found if p.is_operand]
    if operands != sorted(operands, key=lambda p: p.kind.optional):
        raise ValueError("operands that may be left out come last")
    return tuple(found)


def _named(name: str, infer: Callable[[Call], Type]) -> Callable[[Call], Type]:
    """A rule, in whose errors the operator is named."""

    def infer_named(call: Call) -> Type:
        try:
            return infer(call)
        except IllTyped as error:
            raise TypeError(f"{name}: {error}") from None
        except IllValued as error:
            raise ValueError(f"{name}: {error}") from None

    return infer_named


def _inference(name: str, rule: Rule, parameters: tuple[Parameter, ...]) -> Callable[[Call], Type]:
    views = [(p.name, p.kind.view, p.default) for p in parameters]
    operands = [p for p in parameters if p.is_operand]
    most = len(operands)
    least = sum(not p.kind.optional for p in operands)

    def infer(call: Call) -> Type:
        args = call.args
        if not least <= len(args) <= most:
            names = ", ".join(p.name for p in operands)
            raise IllTyped(f"expected {most} operands ({names}), got {len(args)}")
        position = 0
        values: list[Any] = []
        for parameter, view, default in views:
            if view is None:
                values.append(call.attrs.get(parameter, default))
            elif position < len(args):
                values.append(view(parameter, args[position]))
                position += 1
            else:
                values.append(None)
        return rule(*values)

    return _named(name, infer)


def _constructor(record: Operator, arguments: Callable[..., tuple[Any, ...]] | None) -> Constructor:
    op, parameters = record.op, record.parameters

    def build(*args: Any, **kwargs: Any) -> Call:
        if arguments is not None:
            args, kwargs = arguments(*args, **kwargs), {}
        operands, attrs = _bind(parameters, args, kwargs)
        return Call(op, operands, attrs)

    def make(*args: Any, **kwargs: Any) -> Call:
        try:
            call = build(*args, **kwargs)
        except IllTyped as error:
            raise TypeError(f"{op.name}: {error}") from None
        except IllValued as error:
            raise ValueError(f"{op.name}: {error}") from None
        for arg in call.args:
            if arg.ty is None:
                infer_type(arg)
        call.ty = op.infer(call)
        return call

    return make


def _bind(
    parameters: tuple[Parameter, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Expr], dict[str, Any]]:
    """Operands and attributes, of the values that a constructor is given."""
    if len(args) > len(parameters):
        raise IllTyped(f"expected at most {len(parameters)} arguments, got {len(args)}")
    operands: list[Any] = []
    attrs: dict[str, Any] = {}
    numbers: list[int] = []  # positions of operands that may be numbers
    used = 0
    for position, (name, kind, default) in enumerate(parameters):
        if position < len(args):
            value = args[position]
        elif name in kwargs:
            value = kwargs[name]
            used += 1
        elif default is REQUIRED:
            raise IllTyped(f"argument {name!r} is missing")
        else:
            value = default
        if value is None and kind.optional:
            if kind.view is None:
                attrs[name] = None
            continue
        value = kind.convert(name, value)
        if kind.view is None:
            attrs[name] = value
        else:
            if kind is OPERAND:
                numbers.append(len(operands))
            operands.append(value)
    if used < len(kwargs):
        names = [p.name for p in parameters]
        for name in kwargs:
            if name in names[: len(args)]:
                raise IllTyped(f"argument {name!r} is given twice")
            if name not in names:
                raise IllTyped(f"unknown argument {name!r}{did_you_mean(name, names)}")
    if any(not isinstance(operands[i], Expr) for i in numbers):
        constants_beside(operands, numbers)
    return operands, attrs
