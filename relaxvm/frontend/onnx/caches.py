"""Caches that the VM keeps, in place of inputs and outputs.

A decoder that was exported with a cache takes the keys and values of earlier tokens as inputs, and
returns them with those of the new tokens behind: each such output is a Concat of an input and of
something new.  As state of the VM, the new rows are written behind the old ones, which are neither
passed nor copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...ir import Expr, StringImm, TensorType, int_imm
from ...ir.arith import simplify
from ...messages import readable
from ...op.registry import CONSTRUCTORS
from ..common.emitter import BUILTIN_PREFIX
from ..common.values import TensorKind, Value
from . import messages
from .graph import Context, Graph, Problem
from .operators.movement import concat
from .registry import OnnxOperator, find

__all__ = ["Caches"]

_CONCAT: Final = "", "Concat"


class Caches:
    """The caches of a graph.

    Args:
        name: of the model, for messages.
        graph: the graph.
        pairs: name of an input -> name of the output that continues it.

    Raises:
        TypeError: the pairs are no mapping.
        ValueError: a name is not that of an input or output, or the output is no Concat of the
            input and of something else.
    """

    def __init__(self, name: str, graph: messages.Graph, pairs: Mapping[str, str]) -> None:
        if not isinstance(pairs, Mapping):
            raise TypeError(
                f"{name}: caches: expected a mapping from names of inputs to names of outputs, "
                f"such as {{'past': 'present'}}, got {pairs!r:.80}"
            )
        self._pairs = dict(pairs)
        self._kinds: dict[str, TensorKind] = {}
        constants = {tensor.name for tensor in graph.initializer}
        inputs = [each.name for each in graph.input if each.name not in constants]
        outputs = [each.name for each in graph.output]
        makers = {output: node for node in graph.node for output in node.output}
        for past, present in self._pairs.items():
            for which, names in ((past, inputs), (present, outputs)):
                if which not in names:
                    kind = "an input" if names is inputs else "an output"
                    raise ValueError(
                        f"{name}: caches: expected the name of {kind} "
                        f"({', '.join(map(readable, names)) or 'there is none'}), got {which!r}"
                    )
            node = makers.get(present)
            if (
                node is None or (node.domain or "", node.op_type) != _CONCAT
                or len(node.input) < 2 or node.input[0] != past or past in list(node.input)[1:]
            ):  # fmt: skip
                made = "an input"
                if node is not None:
                    operands = ", ".join(map(readable, list(node.input)[:8]))
                    made = f"made by {readable(node.op_type)} of {operands}"
                raise ValueError(
                    f"{name}: caches: expected the output {readable(present)!r} to be a Concat of "
                    f"{readable(past)!r} and of something new, it is {made}"
                )
        if len({*self._pairs.values()}) < len(self._pairs):
            raise ValueError(f"{name}: caches: an output continues two inputs")
        self._outputs = {present: past for past, present in self._pairs.items()}
        self._axes = {
            past: next((a.i for a in makers[present].attribute if a.name == "axis"), 0)
            for past, present in self._pairs.items()
        }

    def __contains__(self, name: object) -> bool:
        return name in self._pairs or name in self._outputs

    def use(self, context: Context) -> None:
        """Have Concat import what continues a cache.

        Raises:
            ValueError: the user has an operator of that name.
        """
        if _CONCAT in context.own:
            raise ValueError("caches: Concat cannot be an operator of your own, too")
        found = find("", "Concat", context.versions[""])
        assert isinstance(found, OnnxOperator)
        context.own[_CONCAT] = found._replace(convert=self.concat)

    def keep(self, name: str, kind: Any) -> None:
        """Note what an input is, which becomes no parameter.

        Raises:
            Problem: it is no tensor of a known number of dimensions.
        """
        if not isinstance(kind, TensorKind) or not kind.dims or not kind.dtype:
            raise Problem(f"caches: {readable(name)!r}: expected a tensor with dimensions")
        self._kinds[name] = kind

    def open(self, top: Graph) -> None:
        """Bind the caches at the beginning of a function."""
        for name, kind in self._kinds.items():
            assert kind.dims is not None
            assert kind.dtype is not None
            axis = self._axes[name]
            if not -len(kind.dims) <= axis < len(kind.dims):
                raise Problem(f"caches: {readable(name)!r}: Concat has the axis {axis}")
            dims: list[Any] = list(kind.dims)
            dims[axis] = int_imm(0)
            empty = top.op("zeros", dims, kind.dtype)
            found = _call(top, "cache_open", [name, empty, axis], kind.dtype, len(dims))
            cast = top.context.builder.match_cast(found, TensorType(kind.dims, kind.dtype))
            top[name] = Value(cast)

    def concat(self, g: Graph, *xs: Value, axis: int) -> Any:
        """The operator Concat: what continues a cache is written behind it."""
        output = g.node.output[0] if g.node is not None else ""
        past = self._outputs.get(output)
        if past is None:
            return concat(g, *xs, axis=axis)
        first, *rest = xs
        new = rest[0] if len(rest) == 1 else Value(g.op("concat", rest, axis))
        found = _call(g, "cache_extend", [past, g.expr(new), axis], first.dtype or "", first.ndim)
        if first.dims is None or new.dims is None:
            return Value(found)
        dims = list(first.dims)
        dims[axis] = simplify(dims[axis] + new.dims[axis])
        return Value(g.context.builder.match_cast(found, TensorType(dims, first.dtype)))


def _call(g: Graph, name: str, args: list[Any], dtype: str, ndim: int) -> Expr:
    """Bind a call of a builtin that changes the state of the VM."""
    g.context.effects += 1
    text, tensor, axis = args
    operands = [StringImm(text), tensor, int_imm(axis)]
    call = CONSTRUCTORS["call_builtin_with_ctx"](
        f"{BUILTIN_PREFIX}{name}", operands, ty_args=TensorType(None, dtype, ndim=ndim)
    )
    return g.emit(call, text)
