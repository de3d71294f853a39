"""Tensors of complex numbers, as tensors of real ones.

Programs have no tensors of complex numbers: a name of the graph that is one stands for a tensor of
real numbers, with real and imaginary parts along a further axis, the last one.  So nodes with a
complex operand or result have a table of their own, `COMPLEX`, whose functions get a `Pair` for
each complex operand; and what changes shapes and places alone is done to both parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ..common.emitter import Problem
from ..common.values import Value
from .archive import dtype_of

if TYPE_CHECKING:
    from . import messages
    from .graph import Graph
    from .registry import AtenOperator

__all__ = ["BY_PARTS", "COMPLEX", "COMPLEX_BACK", "Pair", "call_complex", "complex_op",
           "has_complex", "is_complex", "parts_of", "put_complex"]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


class Pair(NamedTuple):
    """A tensor of complex numbers: what computes its real and imaginary parts."""

    real: Any
    imaginary: Any


_TRANSFORM: Final = re.compile(r"\.aten\.fft_i?[hr]?fft[2n]?\.")
COMPLEX: Final[dict[str, Callable[..., Any]]] = {}
"""Name of an operator of ATen without its overload -> its function for complex numbers."""

BY_PARTS: Final = frozenset({
    "view", "reshape", "_unsafe_view", "_reshape_alias", "transpose", "permute", "unsqueeze", "t",
    "squeeze", "slice", "select", "index", "expand", "cat", "stack", "clone", "contiguous",
    "flatten", "unflatten", "roll", "flip", "repeat", "split", "chunk", "neg", "sum", "mean",
    "alias", "detach", "index_select", "gather", "constant_pad_nd", "pad", "movedim", "swapaxes",
    "narrow", "unbind", "mT", "numpy_T", "lift_fresh_copy", "expand_as", "view_as", "tril", "triu",
    "split_with_sizes", "tile", "diagonal", "cumsum", "take", "hstack", "vstack", "unfold",
    "fft_fftshift", "fft_ifftshift", "resolve_conj", "resolve_neg", "broadcast_to", "copy",
    "index_add", "index_copy", "index_put", "scatter_add", "select_scatter", "slice_scatter",
    "diag", "diag_embed", "trace", "rot90", "fliplr", "flipud", "repeat_interleave", "swapdims",
    "column_stack", "dstack", "masked_fill", "_assert_tensor_metadata",
})  # fmt: skip
"""Operators that do to real and imaginary parts what they do to numbers."""
_NUMBERS: Final = ("tensors", "src", "source", "value", "values")
"""Parameters of these whose arguments are numbers, too: where they are real, their imaginary part
is 0."""


COMPLEX_BACK: Final[dict[str, Callable[..., Any]]] = {}
"""Name of an operator of `COMPLEX` that returns a view -> what puts new content into the tensor
that it is a view of; see `relaxvm.frontend.torch.registry`."""


def complex_op(
    *names: str, back: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Decorator: a function for operators where a tensor is complex, and its `back`."""

    def register(function: F) -> F:
        COMPLEX.update(dict.fromkeys(names, function))
        if back is not None:
            COMPLEX_BACK.update(dict.fromkeys(names, back))
        return function

    return register


def is_complex(graph: messages.Graph, name: str) -> bool:
    """Whether a tensor of a graph is complex."""
    meta = graph.tensor_values.get(name)
    return meta is not None and dtype_of(meta.dtype, name).startswith("complex")


def has_complex(graph: messages.Graph, node: messages.Node) -> bool:
    """Whether an operand or a result of a node is complex, or what it computes on the way: inverse
    transforms take real numbers, too."""
    if _TRANSFORM.search(node.target):
        return True
    return any(is_complex(graph, name) for name in [*node.operands(), *node.tensors()])


def parts_of(dtype: str) -> str:
    """The data type of the parts of complex numbers."""
    return "float64" if dtype == "complex128" else "float32"


def call_complex(
    graph: Graph,
    name: str,
    operator: AtenOperator | None,
    arguments: Mapping[str, Any],
    complex_names: frozenset[int],
) -> Any:
    """What an operator returns for complex numbers: values, the complex ones with their parts along
    the last axis.

    Args:
        name: of the operator, without namespace and overload.
        operator: the one for real numbers, by which those of `BY_PARTS` are done.
        arguments: tensors as they are named.
        complex_names: the identities of the tensors that are complex.

    Raises:
        Problem: it is not supported.
    """
    from .aliases import Tensor

    def given(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [given(each) for each in value]
        if not isinstance(value, Tensor):
            return value
        found = value.read()
        return _pair(graph, found) if id(value) in complex_names else found

    operands = {key: given(value) for key, value in arguments.items()}
    function = COMPLEX.get(name)
    if function is not None:
        return _joined(graph, function(graph, **operands))
    if name not in BY_PARTS or operator is None:
        raise Problem(f"{name}: complex numbers are not supported")
    complex_dtype = next(
        (each.real.dtype for value in operands.values() for each in _leaves(value)
         if isinstance(each, Pair)), "float32",
    )  # fmt: skip
    for key in operands.keys() & _NUMBERS:
        operands[key] = _as_pairs(graph, operands[key], complex_dtype)
    results = [
        graph.call(operator, {key: _part(value, i) for key, value in operands.items()})
        for i in range(2)
    ]
    if isinstance(results[0], (list, tuple)):
        return [_joined(graph, Pair(*each)) for each in zip(*results, strict=True)]
    return _joined(graph, Pair(*results))


def put_complex(
    graph: Graph,
    name: str,
    operator: AtenOperator | None,
    old: tuple[Value, bool],
    new: tuple[Value, bool],
    rest: Mapping[str, Any],
) -> Value:
    """The content of a tensor after a view of it was written to.

    Args:
        name, operator: as of `call_complex`.
        old, new: the content of the tensor and of the view, and whether that is complex.
        rest: the other arguments of the operator; numbers.
    """
    parts: list[Any] = [_pair(graph, x) if is_pair else x for x, is_pair in (old, new)]
    self, content = parts
    back = COMPLEX_BACK.get(name)
    if back is not None:
        found = _joined(graph, back(graph, self, content))
    else:
        assert operator is not None
        assert operator.back is not None
        both = [operator.back(graph, self[i], content[i], **rest) for i in range(2)]
        found = _joined(graph, Pair(*both))
    assert isinstance(found, Value)
    return found


def _pair(graph: Graph, x: Value) -> Pair:
    dims = list(x.dims or ())
    last = len(dims) - 1
    parts = []
    for i in range(2):
        part = graph.op("strided_slice", x, [last], [i], [i + 1], [1])
        parts.append(graph.value(graph.reshaped(Value(part), dims[:-1])))
    return Pair(*parts)


def _leaves(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _as_pairs(graph: Graph, value: Any, dtype: str) -> Any:
    """Real numbers as complex ones."""
    if isinstance(value, list):
        return [_as_pairs(graph, each, dtype) for each in value]
    if isinstance(value, Value):
        real = graph.value(graph.op("astype", value, dtype)) if value.dtype != dtype else value
        return Pair(real, graph.value(graph.op("zeros_like", real)))
    if isinstance(value, (int, float, complex)):
        return Pair(complex(value).real, complex(value).imag)
    return value


def _part(value: Any, i: int) -> Any:
    if isinstance(value, Pair):
        return value[i]
    if isinstance(value, list):
        return [_part(each, i) for each in value]
    return value


def _joined(graph: Graph, value: Any) -> Any:
    """Results as values."""
    if isinstance(value, list):
        return [_joined(graph, each) for each in value]
    if isinstance(value, Pair):
        parts = [graph.value(part) for part in value]
        rank = parts[0].ndim
        wide = [graph.op("expand_dims", part, rank) for part in parts]
        return Value(graph.op("concat", wide, rank))
    return graph.value(value)
