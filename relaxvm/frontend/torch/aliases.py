"""Tensors that share memory while a graph is imported.

Programs of relaxvm have no tensor that changes.  So each name of a graph is a `Tensor`: a storage,
or a view of another tensor.  What an in-place operator writes becomes the content of the storage;
views are made anew when they are read after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.checkpoints import checkpoint
from ..common.values import Value

__all__ = ["Tensor"]


class Tensor:
    """What the name of a tensor stands for.

    Args:
        content: what it has at first.
        base: the tensor that it is a view of; None for a storage.
        take: makes the content of the view from that of the base.
        put: makes the content of the base from its content and that of the view.

    Attributes:
        storage: the tensor with the memory.
        version: how often a storage was written to.
        key: of a view, what it takes of its base: axis, start, end and step of a slice, or axis and
            index; None for other views.
        is_kept: whether a storage is memory that the VM keeps, to which a program may write.
        is_used: whether an operator has computed something from a storage.
        placed: the content that a write in place made; None before that.
        repeats: whether a view may have one element of its base in several places, so that a write
            to one changes the others.
        is_lazy: whether the elements are the conjugates of those in memory, which `resolve_conj`
            copies.
    """

    __slots__ = (
        "_base", "_content", "_put", "_seen", "_take", "is_kept", "is_lazy", "is_used", "key",
        "placed", "repeats", "storage", "version",
    )  # fmt: skip

    def __init__(
        self,
        content: Value,
        base: Tensor | None = None,
        take: Callable[[Value], Value] | None = None,
        put: Callable[[Value, Value], Value] | None = None,
    ) -> None:
        self._content = content
        self._base = base
        self._take = take
        self._put = put
        self.version = 0
        self.key: tuple[Any, ...] | None = None
        self.is_kept = self.is_used = self.repeats = self.is_lazy = False
        self.placed: Value | None = None
        self.storage: Tensor = self if base is None else base.storage
        self._seen = self.storage.version

    def read(self) -> Value:
        """The current content."""
        version = self.storage.version
        chain: list[Tensor] = []
        found = self
        while found._base is not None and found._seen != version:
            chain.append(found)
            found = found._base
        for each in reversed(chain):
            checkpoint()
            assert each._base is not None
            assert each._take is not None
            each._content = each._take(each._base._content)
            each._seen = version
        return self._content

    def write(self, content: Value) -> None:
        """Let the tensor have another content, and so all that share its memory."""
        chain: list[tuple[Tensor, Value]] = []
        found = self
        while found._base is not None:
            checkpoint()
            chain.append((found, content))
            assert found._put is not None
            content = found._put(found._base.read(), content)
            found = found._base
        found._content = content
        found.version += 1
        for each, value in reversed(chain):
            if each.repeats:
                break
            each._content, each._seen = value, found.version

    def keys(self) -> list[tuple[Any, ...]] | None:
        """What it takes of its storage, the outermost part first; None if that is not known."""
        found: list[tuple[Any, ...]] = []
        view = self
        while view._base is not None:
            if view.key is None:
                return None
            found.append(view.key)
            view = view._base
        return found[::-1]

    def is_written(self) -> bool:
        """Whether anything wrote to its memory."""
        return self.storage.version > 0
