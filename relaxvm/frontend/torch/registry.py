"""The table of ATen operators.

An operator is a function whose parameters are those of its schema, by name::

    @aten("add.Tensor", "add.Scalar")
    def add(c: Graph, self: Value, other: Value | Number, alpha: Number = 1) -> Expr:
        ...

Arguments are given by name; one that a node leaves out has the default of the signature.  They are

- `Value` for a tensor; a list of these for a list of tensors;
- an int, float, bool, or an expression of symbolic dimensions where the program computes it;
- the name of a data type, as "float32"; texts for memory formats, layouts and devices;
- None.

The function returns an expression, a `Value`, an array for elements that are known; or a tuple or
list of these for several results.  What it returns has the data type and the shape that the graph
states; where the type of the expression does not say the shape, the program checks it.

A tensor that it is given has its current content, and what it returns is a new tensor.  So in-place
operators (``add_``) and those with a parameter `out` need no functions of their own: the importer
calls the operator that returns a result, and lets the result stand for the tensor.  An operator
whose result is a part of its first tensor, or another view of it, has a `back`::

    @aten("select.int", back=select_back)
    def select(c: Graph, self: Value, dim: int, index: Size) -> Expr: ...

    def select_back(c: Graph, self: Value, new: Value, dim: int, index: Size) -> Expr:
        \"\"\"`self` with `new` in place of what `select` takes.\"\"\"

Every module of the folder `operators` is imported, so that a new file needs no mention anywhere.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

__all__ = ["OPERATORS", "REQUIRED", "AtenOperator", "aten", "find", "load", "own_operator"]

F = TypeVar("F", bound=Callable[..., Any])

REQUIRED: Final = inspect.Parameter.empty


class AtenOperator(NamedTuple):
    """An operator, or several overloads of it.

    Attributes:
        convert: the function.
        parameters: names with their defaults, or `REQUIRED`, in order.
        kinds: names of parameters -> the kinds of arguments that they take, by their annotations;
            None in place of a kind that is not checked.
        back: for a view: the function that puts new content into the tensor that it is a view of;
            None for other operators.
        is_raw: whether tensors are given as they are named: `relaxvm.frontend.torch.aliases.Tensor`
            in place of `Value`.
        writes: names of parameters: a flag, and tensors that the operator writes to where the flag
            is set; see `relaxvm.frontend.torch.graph.Graph.rewrite`.  Empty for other operators.
        is_variadic: whether the last parameter takes all further arguments that have no name.
        effect: whether the function emits what may raise an error on purpose, such as an assertion.
        doc: the first paragraph of the function's docstring.
    """

    convert: Callable[..., Any]
    parameters: Mapping[str, Any]
    kinds: Mapping[str, str | None]
    back: Callable[..., Any] | None
    effect: bool
    is_raw: bool
    is_variadic: bool
    writes: tuple[str, ...]
    doc: str


OPERATORS: Final[dict[str, AtenOperator]] = {}
"""Name of an operator, such as "aten::add.Tensor" -> its record."""


def aten(
    *names: str,
    back: Callable[..., Any] | None = None,
    effect: bool = False,
    raw: bool = False,
    variadic: bool = False,
    writes: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Decorator: register a function for operators.

    Args:
        names: of the operators: "add.Tensor", "relu" for "relu.default", "other::name.overload" for
            one outside ATen; functions of Python by their names, as "_operator.add".
        back: see the text above.
        effect, raw, variadic, writes: see `AtenOperator`.

    Raises:
        ValueError: an operator has a function already.
    """

    def register(function: F) -> F:
        record = _record(function, back, effect, raw, variadic, writes)
        for name in map(full_name, names):
            if name in OPERATORS:
                raise ValueError(
                    f"{name}: there are two functions for it, "
                    f"{OPERATORS[name].convert.__qualname__} and {function.__qualname__}"
                )
            OPERATORS[name] = record
        return function

    return register


def full_name(name: str) -> str:
    """The name of an operator with namespace and overload."""
    if name.startswith(("_operator.", "math.", "torch.")):
        return name
    if "::" not in name:
        name = f"aten::{name}"
    return name if "." in name.partition("::")[2] else f"{name}.default"


def _record(
    function: Callable[..., Any],
    back: Callable[..., Any] | None = None,
    effect: bool = False,
    raw: bool = False,
    variadic: bool = False,
    writes: tuple[str, ...] = (),
) -> AtenOperator:
    _, *parameters = inspect.signature(function).parameters.values()
    doc = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    defaults = {each.name: each.default for each in parameters}
    kinds = {each.name: _KINDS.get(_annotation(function, each.name)) for each in parameters}
    return AtenOperator(function, defaults, kinds, back, effect, raw, variadic, writes, doc)


_KINDS: Final = {
    "Value": "a tensor",
    "Tensor": "a tensor",
    "messages.Graph": "a graph",
    "Sequence[Value]": "a list",
    "Sequence[Tensor]": "a list",
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "a number",
}
"""Annotation of a parameter -> the kind of its arguments."""


def _annotation(function: Callable[..., Any], name: str) -> str:
    found = getattr(function, "__annotations__", {}).get(name)
    return str(getattr(found, "__name__", found)).removesuffix(" | None")


def own_operator(function: Callable[..., Any]) -> AtenOperator:
    """The record of a function that a user gave for an operator."""
    return _record(function)


def load() -> None:
    """Import all modules of operators, which register themselves."""
    from . import operators

    for module in pkgutil.iter_modules(operators.__path__):
        importlib.import_module(f"{operators.__name__}.{module.name}")


def find(name: str) -> AtenOperator | None:
    """The record of an operator by its full name; None if there is none."""
    return OPERATORS.get(name)
