"""Operations: how tensors came about, as programs look at them through ``tensor.op``.

Source: ``tvm.te.PlaceholderOp``, ``ComputeOp`` and ``ExternOp`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..ir.expr import Expr
from ..ir.node import Attrs
from ..tir.buffer import IterVar

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "TagScope", "tag_scope"]


class Operation:
    """What one or several tensors are the results of.

    Attributes:
        outputs: the tensors.
    """

    def __init__(self, outputs: tuple[Tensor, ...]) -> None:
        self.outputs = outputs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self.outputs[0] is other.outputs[0]

    def __hash__(self) -> int:
        return hash(self.outputs[0])

    def __repr__(self) -> str:
        return f"te.{type(self).__name__}({self.name})"

    @property
    def name(self) -> str:
        """A hint: what its blocks are called."""
        name = self.outputs[0].name
        return name.removesuffix("_v0") if len(self.outputs) > 1 else name

    @property
    def tag(self) -> str:
        """The word that `te.compute` or `tag_scope` marked it with, or ""."""
        return self.outputs[0].tag

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Annotations of its blocks."""
        return Attrs({})

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors that it reads, in order of first use."""
        return []

    @property
    def num_outputs(self) -> int:
        """The number of its results."""
        return len(self.outputs)

    def output(self, index: int) -> Tensor:
        """One of its results."""
        return self.outputs[index]


class PlaceholderOp(Operation):
    """An input."""

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The dimensions of the input."""
        return self.outputs[0].shape

    @property
    def dtype(self) -> str:
        """The data type of the input."""
        return self.outputs[0].dtype


class ComputeOp(Operation):
    """A formula for each element."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        attrs: Mapping[str, Any] = self._computes[0].attrs
        return attrs

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The axes of the results."""
        axes: tuple[IterVar, ...] = self._computes[0].axis
        return axes

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes that are reduced."""
        axes: tuple[IterVar, ...] = self._computes[0].reduce_axis
        return axes

    @property
    def body(self) -> tuple[Expr, ...]:
        """The formula of each result."""
        return tuple([compute.body for compute in self._computes])

    @property
    def input_tensors(self) -> list[Tensor]:
        from .create import inputs_of

        return inputs_of(self.outputs)

    @property
    def _computes(self) -> list[Any]:
        return [tensor.compute for tensor in self.outputs]


class ExternOp(Operation):
    """Statements that write the results."""

    @property
    def body(self) -> Any:
        """The statements."""
        return self._extern.body

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        inputs: tuple[Tensor, ...] = self._extern.inputs
        return inputs

    @property
    def input_tensors(self) -> list[Tensor]:
        return list(self.inputs)

    @property
    def _extern(self) -> Any:
        return self.outputs[0].compute


# Tags

_TAG: ContextVar[str] = ContextVar("relaxvm_te_tag", default="")


class TagScope:
    """Marks the operations that are made within: a context, or a decorator of a function."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._tokens: list[Any] = []

    def __enter__(self) -> TagScope:
        if _TAG.get():
            raise ValueError(f"tag_scope: {self.tag!r} within {_TAG.get()!r}: tags do not nest")
        self._tokens.append(_TAG.set(self.tag))
        return self

    def __exit__(self, *error: object) -> None:
        _TAG.reset(self._tokens.pop())

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def tagged(*args: Any, **kwargs: Any) -> Any:
            with TagScope(self.tag):
                return function(*args, **kwargs)

        return tagged

    @staticmethod
    def get_current() -> TagScope | None:
        """The scope that is active, or None."""
        return TagScope(_TAG.get()) if _TAG.get() else None


tag_scope = TagScope


def tag_of(given: str) -> str:
    """The tag of a new operation.

    Raises:
        ValueError: it has one of its own within a `tag_scope`.
    """
    if given and _TAG.get():
        raise ValueError(f"tag {given!r} within tag_scope({_TAG.get()!r}): tags do not nest")
    return given or _TAG.get()
