"""The registration of operators: one record each.

An operator is registered by its type rule, a function with the parameters of the operator's
constructor: operands and attributes, with their names, order and defaults.  The annotations name
the kind of each parameter (see `kinds`).  The body receives the types of the operands and the
values of the attributes, checks them, and returns the type of the result.  The docstring is the
operator's documentation::

    @operator("nn.softmax", loops="nn.softmax")
    def softmax(data: TensorType, axis: Axis = -1) -> Type:
        \"\"\"exp(data) / the sum of exp(data) along an axis.\"\"\"
        need_floats(data=data)
        return data

From this come the `Op` "relax.nn.softmax"; the constructor ``relaxvm.op.nn.softmax(x, axis=-1)``,
which is ``R.nn.softmax`` in a script and the value that the decorator returns; the checks of the
attributes and their messages; the legalization to the kernel "relaxvm.kernel.nn.softmax", which
takes operands, attributes and outputs in this order; and the row in docs/operators.md.  The tests
require cases for the rule and for the kernel.

What the kernel supports (fused chains, writing in place, C implementations) is registered with the
kernel: see `relaxvm.kernels.kernel`.  The operator's record looks it up by the kernel's name, so
other packages add an operator with one `operator` and one `kernel`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from ..errors import OperatorTypeError, OperatorValueError, did_you_mean
from ..ir.expr import ANY, Call, Expr, GlobalVar, TupleType, Type
from ..ir.infer import UntypedVariable, infer_type
from ..ir.op import Normalizer, Op
from ..registry import KERNEL_PREFIX
from ..support import Unsupported
from .kinds import OPERAND, IllTyped, IllValued, Kind, constants_beside, kind_named

__all__ = [
    "CONSTRUCTORS",
    "OPERATORS",
    "PREFIX",
    "Constructor",
    "Loops",
    "Lower",
    "Namespace",
    "Operator",
    "Parameter",
    "Returns",
    "Takes",
    "Unsupported",
    "attributes_of",
    "composite",
    "constructor",
    "make_call",
    "offered",
    "operator",
    "type_of_results",
]

PREFIX: Final = "relax."
"""Prefix of the names of operators."""

Constructor = Callable[..., Any]
Rule = Callable[..., Type]
Takes = Callable[[Call], Sequence[Any]]
Returns = Callable[[Call], tuple[str, Sequence[Any]]]
Lower = Callable[[Any, Call], Expr]
"""A legalization: takes a `BlockBuilder` and a call, returns what replaces the call."""

OPERATORS: Final[dict[str, Operator]] = {}
"""All operators by name, without the prefix."""

CONSTRUCTORS: Final[dict[str, Constructor]] = {}
"""The functions that `relaxvm.op` and the script's R offer, by name: the constructors of the
operators, and functions that call several of them."""


class Parameter(NamedTuple):
    """A parameter of a constructor: operand or attribute."""

    name: str
    kind: Kind
    default: Any

    @property
    def is_operand(self) -> bool:
        """Whether it is an argument of the call rather than an attribute."""
        return self.kind.view is not None


REQUIRED: Final = inspect.Parameter.empty


class Loops(NamedTuple):
    """The formula by which an operator becomes loops (see `relaxvm.te`).

    Attributes:
        formula: takes the operands as te tensors, shapes as lists of scalars, and the attributes by
            name; returns the result as a te tensor, or a list of them.
        dtypes: data types of the first operand that it is for; None for all.
    """

    formula: Callable[..., Any]
    dtypes: frozenset[str] | None = None


_COMPILERS_OWN: Final = Unsupported("It has no kernel: passes of the compiler handle its calls.")
_LOWERED: Final = Unsupported("It has no kernel: its calls are lowered to other calls.")
_UNREGISTERED: Final = Unsupported("Its kernel is not registered by relaxvm.kernels.kernel.")
_NUMPY_ONLY: Final = Unsupported("Its kernel is written in Python with numpy only.")
NO_LOOPS: Final = Unsupported("Its registration has no formula.")
"""`Operator.loops` where `operator` was called without `loops`."""


class Operator:
    """The record of an operator.

    `fusable`, `in_place` and `native` are facts of the kernel; `loops` is of the compiler.  Each is
    a value, or an `Unsupported` with the reason.

    Attributes:
        name: name without the prefix: "nn.softmax".
        op: the `Op` of its calls.
        make: its constructor.
        untyped: makes a call like `make`, but without its type, whose rule is not asked; None if
            the constructor is written by hand.
        doc: its documentation.
        parameters: operands and attributes in the order of the rule's parameters; empty if the
            constructor is written by hand.
        lower: its legalization, if that is not just a call of `kernel`.
        kernel: name, without prefix, of the kernel that the legalization calls; None if there is no
            such kernel.
        takes: returns the arguments of the kernel before the outputs; None if these are the
            operands (tuples element by element, shapes left out) and then the attributes, with axes
            counted from the front.
        returns: returns the name of the result form, and its inputs, for calls whose result cannot
            be allocated before it is computed; None if that is the form of `kernel` with the
            arguments that `takes` returns.
        is_elementwise: whether each element of the result depends only on the elements of the
            operands at the same place.
        attribute_names: names of the parameters that are attributes of the call.
    """

    __slots__ = (
        "_axes",
        "_loops",
        "attribute_names",
        "doc",
        "is_elementwise",
        "kernel",
        "lower",
        "make",
        "name",
        "op",
        "parameters",
        "returns",
        "takes",
        "untyped",
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
        returns: Returns | None = None,
        is_elementwise: bool = False,
        loops: str | Loops | Unsupported = NO_LOOPS,
    ) -> None:
        self.name = name
        self.doc = inspect.cleandoc(doc or "")
        self.parameters = parameters
        self.attribute_names = frozenset([p.name for p in parameters if not p.is_operand])
        self.lower = lower
        self.kernel = kernel
        self.takes = takes
        self.returns = returns
        self.is_elementwise = is_elementwise
        self.untyped: Constructor | None = None
        self._loops = loops
        self._axes = [(p.name, p.kind.from_front) for p in parameters if p.kind.from_front]
        summary = self.doc.partition("\n\n")[0].replace("\n", " ")
        self.op = Op.register(PREFIX + name, infer, doc=summary, is_pure=is_pure, record=self)
        OPERATORS[name] = self

    def construct_by(self, make: Constructor, offer: bool = True) -> Constructor:
        """Set the constructor, and offer it."""
        self.make = self.op.make = make
        return _offer(self.name, make) if offer else make

    @property
    def fusable(self) -> Literal[True] | Unsupported:
        """Whether calls of the kernel may be fused with others into one kernel."""
        kernel = self._kernel()
        if isinstance(kernel, Unsupported):
            return kernel
        return kernel.step if isinstance(kernel.step, Unsupported) else True

    @property
    def in_place(self) -> Literal[True] | Unsupported:
        """Whether the kernel may write its result over an operand of the same shape and type."""
        kernel = self._kernel()
        return kernel if isinstance(kernel, Unsupported) else kernel.in_place

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"

    @property
    def native(self) -> tuple[str, ...] | Unsupported:
        """The implementations of the kernel in C."""
        kernel = self._kernel()
        if isinstance(kernel, Unsupported):
            return kernel
        return kernel.native or _NUMPY_ONLY

    @property
    def loops(self) -> Loops | Unsupported:
        """The formula by which calls become loops."""
        loops = self._loops
        if loops is NO_LOOPS and self.kernel is None:
            return self._without_kernel
        if isinstance(loops, str):
            from ..te.operators import formula_named  # only needed where loops are made

            loops = self._loops = formula_named(loops)
        return loops

    @property
    def _without_kernel(self) -> Unsupported:
        return _COMPILERS_OWN if self.lower is None else _LOWERED

    def _kernel(self) -> Any:
        """The record of the kernel, or why there is none."""
        if self.kernel is None:
            return self._without_kernel
        from ..kernels import record_of  # importing the kernels takes longer than the operators

        return record_of(KERNEL_PREFIX + self.kernel) or _UNREGISTERED

    @property
    def operands(self) -> tuple[Parameter, ...]:
        """The parameters that are arguments of the call."""
        return tuple([p for p in self.parameters if p.is_operand])

    def attributes(self, call: Call) -> Mapping[str, Any]:
        """The attributes of a call, with axes counted from the front if the rank is known."""
        if not self._axes:
            return call.attrs
        attrs = dict(call.attrs)
        ndim = _rank(call.args[0])
        for name, from_front in self._axes:
            if attrs[name] is not None:
                attrs[name] = from_front(name, attrs[name], ndim)
        return attrs



def operator(
    name: str,
    *,
    pure: bool = True,
    kernel: str | bool = True,
    takes: Takes | None = None,
    returns: Returns | None = None,
    lower: Lower | None = None,
    arguments: Callable[..., tuple[Any, ...]] | None = None,
    elementwise: bool = False,
    loops: str | Loops | Unsupported = NO_LOOPS,
    offer: bool = True,
    normalizer: Normalizer | None = None,
) -> Callable[[Rule], Constructor]:
    """Decorator: register an operator by its type rule; returns its constructor.

    Args:
        name: name without "relax.".
        pure: whether a call has no effect other than its result.
        kernel: name of the kernel, without its prefix, if it is not the operator's; False if there
            is none, which is the default with `lower`.
        takes: returns the arguments of the kernel before the outputs, if these are not the operands
            (tuples element by element, shapes left out) followed by the attributes, with axes
            counted from the front (see `attributes_of`).
        returns: see `Operator`.
        lower: the legalization, if it is not a call of the kernel.
        arguments: a function with the constructor's parameters, if these are not the rule's;
            returns values for the rule's parameters.
        elementwise: see `Operator`.
        loops: the formula that calls become loops by: the name of one of `relaxvm.te.operators`, or
            a `Loops`; an `Unsupported` if there is none.
        offer: whether the constructor is offered under the operator's name; if not, `composite`
            offers another function under it.
        normalizer: the normal form of its calls beyond that of all calls; see `Op`.
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
            returns=returns,
            is_elementwise=elementwise,
            loops=loops,
        )
        record.op.normalizer = normalizer
        make: Any = _constructor(record, arguments)
        make.__name__ = make.__qualname__ = name.rpartition(".")[2]
        make.__module__ = rule.__module__
        make.__doc__ = record.doc
        signature = inspect.signature(rule if arguments is None else arguments)
        make.__signature__ = signature.replace(return_annotation="Call")
        return record.construct_by(make, offer)

    return register


def constructor(
    name: str,
    infer: Callable[[Call], Type],
    *,
    pure: bool = True,
    lower: Lower | None = None,
    normalizer: Normalizer | None = None,
) -> Callable[[Constructor], Constructor]:
    """Decorator: register an operator by a constructor that is written by hand and calls
    `make_call`, for operators with arguments that `kinds` does not describe.

    Args:
        name: name without "relax.".
        infer: the type rule: takes a call, returns its type.
        pure: whether a call has no effect other than its result.
        lower: the legalization, if there is one.
        normalizer: the normal form of its calls beyond that of all calls; see `Op`.
    """

    def register(make: Constructor) -> Constructor:
        infer_named = _named(PREFIX + name, infer)
        record = Operator(name, infer_named, make.__doc__, is_pure=pure, lower=lower)
        record.op.normalizer = normalizer
        return record.construct_by(make)

    return register


def composite(name: str) -> Callable[[Constructor], Constructor]:
    """Decorator: offer a function that calls several constructors under a name of its own."""
    return lambda make: _offer(name, make)


def _offer(name: str, make: Constructor) -> Constructor:
    if name in CONSTRUCTORS:
        raise ValueError(f"{name!r} is registered twice: {CONSTRUCTORS[name].__doc__!r}")
    CONSTRUCTORS[name] = make
    return make


class Namespace:
    """The operators whose names begin with a prefix: ``relaxvm.op.example`` has those that another
    package has registered as "example.shrink" and so on."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return offered(self._prefix, name)

    def __dir__(self) -> list[str]:
        names = (name.removeprefix(self._prefix) for name in CONSTRUCTORS if self._has(name))
        return sorted({name.partition(".")[0] for name in names})

    def _has(self, name: str) -> bool:
        return name.startswith(self._prefix)

    def __repr__(self) -> str:
        return f"<operators {self._prefix}*>"


def offered(prefix: str, name: str) -> Constructor | Namespace:
    """What a namespace of `relaxvm.op` offers under a name.

    Raises:
        AttributeError: there is no such operator or namespace.
    """
    full_name = prefix + name
    if full_name in CONSTRUCTORS:
        return CONSTRUCTORS[full_name]
    if any(each.startswith(f"{full_name}.") for each in CONSTRUCTORS):
        return Namespace(f"{full_name}.")
    hint = did_you_mean(full_name, CONSTRUCTORS)
    raise AttributeError(f"there is no operator {full_name!r}{hint}")


def make_call(
    name: str,
    args: Sequence[Expr],
    attrs: Mapping[str, Any] | None = None,
    ty_args: Sequence[Type] = (),
) -> Call:
    """A call of an operator, with its type.

    An argument may be a global function without a type, as it may be defined later.  A call of a
    variable without a type has none.

    Raises:
        TypeError, ValueError: the arguments do not fit.
    """
    op = Op.get(PREFIX + name)
    call = Call(op, args, attrs, ty_args)
    if not _is_untyped(args):
        call.ty = op.infer(call)
    return call


def _is_untyped(args: Sequence[Expr]) -> bool:
    """Infer the types of arguments.  Whether one of them depends on a variable without a type: a
    pattern or a template, which gets types later."""
    for arg in args:
        if arg.ty is None and not isinstance(arg, GlobalVar):
            try:
                infer_type(arg)
            except UntypedVariable:
                return True
    return False


def attributes_of(call: Call) -> Mapping[str, Any]:
    """The attributes of a call of an operator, with axes counted from the front."""
    assert isinstance(call.op, Op)
    attrs: Mapping[str, Any] = call.op.record.attributes(call)
    return attrs


def type_of_results(call: Call) -> Type:
    """The type of a call whose type arguments are the types of its results: the type if there is
    one, a tuple type if there are several, `ANY` if there are none."""
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
    if any(p.kind.from_front for p in found) and found[0].kind is not kind_named("TensorType"):
        raise ValueError("axes are those of the first operand, which has to be a tensor")
    operands = [p for p in found if p.is_operand]
    if operands != sorted(operands, key=lambda p: p.kind.optional):
        raise ValueError("operands that may be left out come last")
    return tuple(found)


def _rank(operand: Expr) -> int:
    """The rank of a tensor; -1 if it is not known."""
    ndim: int = operand.ty.ndim
    return ndim


def _named(name: str, infer: Callable[[Call], Type]) -> Callable[[Call], Type]:
    """The rule, with the operator's name in front of its error messages."""

    def infer_named(call: Call) -> Type:
        try:
            return infer(call)
        except IllTyped as error:
            raise OperatorTypeError(f"{name}: {error}") from None
        except IllValued as error:
            raise OperatorValueError(f"{name}: {error}") from None

    return infer_named


def _inference(name: str, rule: Rule, parameters: tuple[Parameter, ...]) -> Callable[[Call], Type]:
    views = [(p.name, p.kind.view, p.kind.from_front, p.default) for p in parameters]
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
        for parameter, view, from_front, default in views:
            if view is None:
                value = call.attrs.get(parameter, default)
                if from_front is not None and value is not None:
                    value = from_front(parameter, value, _rank(args[0]))
                values.append(value)
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
            args, kwargs = _rearranged(arguments, args, kwargs), {}
        operands, attrs = _bind(parameters, args, kwargs)
        return Call(op, operands, attrs)

    def untyped(*args: Any, **kwargs: Any) -> Call:
        try:
            return build(*args, **kwargs)
        except IllTyped as error:
            raise OperatorTypeError(f"{op.name}: {error}") from None
        except IllValued as error:
            raise OperatorValueError(f"{op.name}: {error}") from None

    def make(*args: Any, **kwargs: Any) -> Call:
        call = untyped(*args, **kwargs)
        if not _is_untyped(call.args):
            call.ty = op.infer(call)
        return call

    record.untyped = untyped
    return make


def _rearranged(
    arguments: Callable[..., tuple[Any, ...]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """``arguments(*args, **kwargs)``, whose errors about the call have its own parameters."""
    try:
        return arguments(*args, **kwargs)
    except TypeError:
        signature = inspect.signature(arguments)
        for name in kwargs:
            if name not in signature.parameters:
                names = list(signature.parameters)
                raise IllTyped(f"unknown argument {name!r}{did_you_mean(name, names)}; the "
                               f"arguments are {', '.join(names)}") from None  # fmt: skip
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise IllTyped(str(error)) from None
        raise


def _bind(
    parameters: tuple[Parameter, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Expr], dict[str, Any]]:
    """The operands and attributes for the arguments of a constructor."""
    if len(args) > len(parameters):
        raise IllTyped(f"expected at most {len(parameters)} arguments, got {len(args)}")
    operands: list[Any] = []
    attrs: dict[str, Any] = {}
    numbers: list[int] = []  # positions of operands that may be Python numbers
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
                raise IllTyped(f"unknown argument {name!r}{did_you_mean(name, names)}; the "
                               f"arguments are {', '.join(names)}")  # fmt: skip
    if any(not isinstance(operands[i], Expr) for i in numbers):
        constants_beside(operands, numbers)
    return operands, attrs
