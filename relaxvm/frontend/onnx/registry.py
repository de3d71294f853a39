"""The table of ONNX operators.

An operator is a function::

    @onnx("Gemm", since=7)
    def gemm(g: Graph, a: Value, b: Value, c: Value | None = None, *, alpha: float = 1.0,
             beta: float = 1.0, transA: int = 0, transB: int = 0) -> Expr:
        ...

Its positional parameters are the inputs, None where the node has none; ``*xs`` takes any number.
Its keyword parameters are the attributes, with the specification's names and defaults; one without
a default is required.  It returns an expression, a `Value`, an array for elements that are known,
or a tuple of these for several outputs.

An operator whose meaning changed has a function for each version that it is written for: a node is
imported by the function with the greatest `since` that is not above the model's version.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from ...support import Unsupported
from .messages import Graph, TypeOf

__all__ = ["MICROSOFT", "ML", "OPERATORS", "OnnxOperator", "find", "onnx", "own_operator"]

F = TypeVar("F", bound=Callable[..., Any])

MICROSOFT: Final = "com.microsoft"
ML: Final = "ai.onnx.ml"


class OnnxOperator(NamedTuple):
    """One version of an operator.

    Attributes:
        since: the first version of the domain that it is for.
        convert: the function.
        fold: computes the elements of the result from known elements, with the same attributes, or
            a `Value` that has them; None if it cannot.
        min_inputs, max_inputs: how many inputs a node may have; None for any number.
        required: for each input whether it has to be there; further ones are like the last.
        attributes: names of the attributes with their defaults.
        kinds: names of attributes -> the types that their values may have.
        doc: the first paragraph of the function's docstring.
    """

    since: int
    convert: Callable[..., Any]
    fold: Callable[..., Any] | None
    min_inputs: int
    max_inputs: int | None
    required: tuple[bool, ...]
    attributes: Mapping[str, Any]
    kinds: Mapping[str, tuple[type, ...]]
    doc: str


OPERATORS: Final[dict[tuple[str, str], list[OnnxOperator]]] = {}
"""(domain, name) -> the versions of an operator, the oldest first."""

REQUIRED: Final = inspect.Parameter.empty


def onnx(
    *names: str, since: int = 1, domain: str = "", fold: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Decorator: register a function for operators.

    Args:
        names: of the operators.
        since: the first version of the domain that the function is for.
        domain: of the operators; "" is ai.onnx.
        fold: see `OnnxOperator`.

    Raises:
        ValueError: an operator has a function for this version already.
    """

    def register(function: F) -> F:
        record = _record(function, since, fold)
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            for each in versions:
                if each.since == since:
                    raise ValueError(
                        f"{domain or 'ai.onnx'}.{name}, version {since}: there are two functions "
                        f"for it, {each.convert.__qualname__} and {function.__qualname__}"
                    )
            versions.append(record)
            versions.sort(key=lambda each: each.since)
        return function

    return register


def _record(
    function: Callable[..., Any], since: int, fold: Callable[..., Any] | None
) -> OnnxOperator:
    least, most = 0, 0
    is_variadic = False
    attributes: dict[str, Any] = {}
    required: list[bool] = []
    _, *parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY:
            attributes[parameter.name] = parameter.default
            continue
        required.append(parameter.annotation == "Value" and parameter.default is REQUIRED)
        if parameter.kind is parameter.VAR_POSITIONAL:
            is_variadic = True
        else:
            most += 1
            least += parameter.default is REQUIRED
    doc = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    annotations = getattr(function, "__annotations__", {})  # functools.partial has none
    kinds = {
        name: kind
        for name in attributes
        if (kind := _KINDS.get(str(annotations.get(name)).removesuffix(" | None")))
    }
    most_inputs = None if is_variadic else most
    return OnnxOperator(
        since, function, fold, least, most_inputs, tuple(required), attributes, kinds, doc
    )


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list[int]": (list,),
    "list[float]": (list,),
    "list[str]": (list,),
    "messages.Graph": (Graph,),
    "messages.TypeOf": (TypeOf,),
    "NDArray[Any]": (np.ndarray,),
}
"""The types of values by the annotation of an attribute; others are not checked."""


def own_operator(function: Callable[..., Any]) -> OnnxOperator:
    """The record of a function that a user gave for an operator.

    Raises:
        TypeError: it is no function, or takes no graph.
    """
    if not callable(function):
        raise TypeError(f"operators: expected functions, got {function!r}")
    if not inspect.signature(function).parameters:
        raise TypeError(f"operators: expected a function whose first parameter is the graph, "
                        f"got {function!r}")  # fmt: skip
    return _record(function, 1, None)


def find(domain: str, name: str, version: int) -> OnnxOperator | Unsupported:
    """The function for an operator in a version of its domain, or why there is none."""
    versions = OPERATORS.get((domain, name))
    if versions is None:
        return Unsupported("there is no such operator")
    position = bisect_right(versions, version, key=lambda each: each.since)
    if not position:
        return Unsupported(
            f"version {version} is older than the first supported one, {versions[0].since}"
        )
    return versions[position - 1]
