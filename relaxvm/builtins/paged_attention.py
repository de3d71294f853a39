"""Paged caches of attention: keys and values of many sequences, in pages that they may share.

A pass over new tokens is: `kv_state_begin_forward` with sequences and counts of tokens; for each
layer
one of the functions below with the queries, keys and values of these tokens, all sequences one
after
another; `kv_state_end_forward`.  A token attends to the tokens before it in its sequence and to
itself; in a tree of tokens, to the nodes above it.  ``lse`` is the logarithm, to base 2, of the sum
of
the weights of a query, by which results over parts of the keys are merged.

These are references in numpy: of the kernels that the cache is created with, they call the one that
splits and rotates queries and keys alone, since it knows how positions are scaled.  Everything is
computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InternalError
from ..messages import describe
from ..pieces.cut import PIECE, check_time, copy_pieces
from ..values import Shape
from .arguments import as_array, as_callable, as_float, as_int, as_shape
from .kv_state import KVState
from .page_table import PageTable, Slots, runs_of
from .registration import builtin
from .saved_fields import (
    as_count,
    as_counts,
    as_fields,
    as_flag,
    as_function,
    as_rows,
    as_tensor,
)

__all__ = ["CacheLayout", "PagedAttentionCache", "as_paged"]

Floats = NDArray[np.float32]

MHA: Final = 0
MLA: Final = 1
MHA_SLIDING: Final = 3
KIND_NAMES: Final = {MHA: "mha", MLA: "mla", MHA_SLIDING: "mha_sliding"}
"""Numbers of kinds of attention -> their names; 2 is linear attention."""
ROPE_NAMES: Final = ("none", "normal", "inline")
"""How positions are encoded: not at all; in keys before they are stored; in keys when they are
read."""
_NORMAL: Final = 1
_INLINE: Final = 2

_LOG2_E: Final = 1.4426950408889634
_NO_KEYS: Final = -5e4
"""The logarithm of no weights, which counts for nothing where results are merged."""
_MOST_TREE: Final = 256
"""Nodes of a tree of tokens."""
_MOST_PAGES: Final = 1 << 48
_MOST_NUMBER: Final = 1 << 62
_COUNTS: Final = {
    "page_size": 1, "first_layer": 0, "last_layer": 0, "query_heads": 0, "heads": 0, "head_dim": 0,
    "value_dim": 0, "window": -_MOST_PAGES, "sequences": 0, "tokens": 0,
}  # fmt: skip
"""The fields of a layout that are numbers, and the least of each."""


class CacheLayout(NamedTuple):
    """What a cache holds.

    Attributes:
        page_size: tokens of a page.
        first_layer, last_layer: the layers are from `first_layer` to before `last_layer`.
        query_heads, heads: of queries, and of keys and values.
        head_dim: of keys; values of multi-head attention have it, too.
        value_dim: of the values of latent attention.
        kinds: the kind of attention of each layer.
        rope: 0, 1 or 2; see `ROPE_NAMES`.
        rope_scale, rope_theta: of positions that the cache rotates itself.
        window: tokens that layers with windows see.
        slides: whether sequences may have sliding windows.
        sequences: the most sequences in a pass.
        tokens: the most tokens in a pass.
        dtype: of what is kept.
    """

    page_size: int
    first_layer: int
    last_layer: int
    query_heads: int
    heads: int
    head_dim: int
    value_dim: int
    kinds: tuple[int, ...]
    rope: int
    rope_scale: float
    rope_theta: float
    window: int
    slides: bool
    sequences: int
    tokens: int
    dtype: np.dtype[Any]

    def shape_of(self, kind: int, pages: int) -> tuple[int, ...]:
        """The shape of what a layer keeps."""
        if kind == MLA:
            return (pages, self.page_size, self.head_dim)
        return (pages, 2, self.heads, self.page_size, self.head_dim)

    @classmethod
    def restored(cls, fields: Any) -> CacheLayout:
        """A layout of a saved run.

        Raises:
            ValueError: it is none.
        """
        subject = "layout of a cache"
        found = cls(*as_fields(fields, len(cls._fields), subject))
        for name, least in _COUNTS.items():
            as_count(getattr(found, name), f"{subject}: {name}", _MOST_PAGES, least)
        kinds = as_counts(found.kinds, f"{subject}: kinds", MHA_SLIDING)
        if not set(kinds) <= set(KIND_NAMES) or not found.first_layer <= found.last_layer <= len(
            kinds
        ):
            raise ValueError(f"{subject}: expected kinds of attention, and layers among them")
        as_count(found.rope, f"{subject}: rope", len(ROPE_NAMES) - 1)
        as_flag(found.slides, f"{subject}: slides")
        for value in (found.rope_scale, found.rope_theta):
            if type(value) is not float:
                raise ValueError(f"{subject}: expected a float, got {describe(value)}")
        if not isinstance(found.dtype, np.dtype) or found.dtype.hasobject:
            raise ValueError(f"{subject}: expected a data type, got {describe(found.dtype)}")
        return found


class _Part(NamedTuple):
    """A sequence of the current pass.

    Attributes:
        rows: where its tokens are among those of the pass.
        past: the slots of the tokens before.
        new: the slots of its tokens; -1 for those that a window drops.
        tree: the size of the tree that the tokens before end with, and the ancestors of each new
            token, ``[count, size + count]``; None for chains.
    """

    rows: slice
    past: Slots
    new: Slots
    tree: tuple[int, NDArray[np.bool_]] | None


class PagedAttentionCache(KVState):
    """Keys and values of the layers of a model.

    Attributes:
        layout: what it holds.
        pages: for each layer an array: ``[page, 2, head, place, head_dim]`` with keys and values,
            or
            ``[page, place, head_dim]`` for latent attention.
        table: which pages each sequence has.
        factors: of extended positions; None if there are none.
    """

    def __init__(
        self,
        layout: CacheLayout,
        pages: int,
        rotate: Callable[..., Any] | None,
        factors: NDArray[Any] | None,
    ) -> None:
        self.layout = layout
        self.factors = factors
        self._rotate = rotate
        self.pages = [
            _zeros(layout.shape_of(kind, pages), layout.dtype)
            for kind in layout.kinds[layout.first_layer : layout.last_layer]
        ]
        self.table = PageTable(pages, layout.page_size, layout.slides, self._copy_page)
        self.parts: tuple[_Part, ...] = ()
        self.positions = np.zeros(0, np.int32)
        self.import_of: Any = None
        self._sees_new = False

    # Saved runs, see `relaxvm.vm.saved_runs.states`

    def saved_fields(self) -> tuple[Any, ...]:
        parts = tuple([
            (part.rows.start, part.rows.stop, part.past, part.new, part.tree) for part in self.parts
        ])
        done = None if self.import_of is None else tuple(self.import_of)
        return (
            tuple(self.layout), self.factors, self._rotate, tuple(self.pages), self.table.pages,
            self.table.saved_fields(), tuple(self.batch), tuple(self.counts), parts,
            self.positions, done, self._sees_new,
        )  # fmt: skip

    def restore_fields(self, fields: tuple[Any, ...]) -> None:
        subject = "paged attention cache"
        (
            layout, factors, rotate, pages, count, table, batch, counts, parts, positions, done,
            sees_new,
        ) = as_fields(fields, 12, subject)  # fmt: skip
        self.layout = layout = CacheLayout.restored(layout)
        self.factors = None if factors is None else as_tensor(factors, subject, (None,))
        self._rotate = as_function(rotate, subject)
        total = as_count(count, subject, _MOST_PAGES)
        kinds = layout.kinds[layout.first_layer : layout.last_layer]
        held = as_fields(pages, len(kinds), subject)
        self.pages = [
            as_tensor(each, subject, layout.shape_of(kind, total), layout.dtype, writeable=True)
            for each, kind in zip(held, kinds, strict=True)
        ]
        self.table = PageTable(total, layout.page_size, layout.slides, self._copy_page)
        self.table.restore_fields(table)
        self.batch = as_counts(batch, subject, least=-_MOST_NUMBER)
        self.counts = as_counts(counts, subject)
        self.check_batch(self.batch, self.counts)
        rows = as_rows(parts, subject)
        self.parts = tuple([self._restored_part(part) for part in rows])
        self.positions = as_tensor(positions, subject, (None,), np.int32)
        ends = [0, *(part.rows.stop for part in self.parts)]
        if [part.rows.start for part in self.parts] != ends[:-1] or (
            len(self.positions) != ends[-1] or len(self.parts) not in (0, len(self.batch))
        ):  # fmt: skip
            raise ValueError(f"{subject}: expected the tokens of the pass one after another")
        self.import_of = None
        if done is not None:
            flags = as_fields(done, len(self.pages), subject)
            self.import_of = [as_flag(each, subject) for each in flags]
        self._sees_new = as_flag(sees_new, subject)

    def _restored_part(self, part: Any) -> _Part:
        subject = "paged attention cache: part of the pass"
        start, stop, past, new, tree = as_fields(part, 5, subject)
        rows = slice(as_count(start, subject), as_count(stop, subject))
        slots = self.table.pages * self.layout.page_size
        before = as_tensor(past, subject, (None,), np.int64)
        added = as_tensor(new, subject, (rows.stop - rows.start,), np.int64)
        if rows.stop < rows.start or (before < 0).any() or (before >= slots).any() or (
            (added < -1).any() or (added >= slots).any()
        ):  # fmt: skip
            raise ValueError(f"{subject}: expected slots of the cache")
        if tree is not None:
            size, ancestors = as_fields(tree, 2, subject)
            size = as_count(size, subject, _MOST_TREE)
            tree = size, as_tensor(ancestors, subject, (len(added), size + len(added)), np.bool_)
        return _Part(rows, before, added, tree)

    def _copy_page(self, page: int, other: int, tokens: int) -> None:
        for layer in self.pages:
            copy_pieces(layer[other, ..., :tokens, :], layer[page, ..., :tokens, :])

    # Sequences

    def clear(self) -> None:
        self.table.clear()
        self.import_of = None
        self._forget()

    def _forget(self) -> None:
        """End the current pass: its slots may be those of others now."""
        self.batch = self.counts = ()
        self.parts = ()
        self.positions = np.zeros(0, np.int32)

    def add_sequence(self, number: int) -> None:
        self.table.add(number)

    def remove_sequence(self, number: int) -> None:
        self.table.remove(number)
        self._forget()

    def fork_sequence(self, number: int, child: int, at: int) -> None:
        self.table.fork(number, child, at)

    def popn(self, number: int, count: int) -> None:
        self.table.pop(number, count)
        self._forget()

    # Passes

    def begin_forward(
        self, batch: Sequence[int], counts: Sequence[int], tree: Sequence[int] | None
    ) -> None:
        table, layout = self.table, self.layout
        if self.import_of is not None:
            raise InternalError("begin_forward: finish the import of the checkpoint first")
        self.check_batch(batch, counts)
        if len(batch) > layout.sequences or sum(counts) > layout.tokens:
            raise InternalError(
                f"begin_forward: expected at most {layout.sequences} sequences and {layout.tokens} "
                f"tokens, got {len(batch)} and {sum(counts)}"
            )
        table.check_room(batch, counts)
        trees = self._trees(batch, counts, tree)
        self._sees_new = bool(batch) and not layout.slides and (
            all(count == 1 for count in counts) or any(table[number].tree for number in batch)
        )  # fmt: skip
        parts, positions, start = [], [], 0
        for number, count, nodes in zip(batch, counts, trees, strict=True):
            sequence = table[number]
            past = table.slots(number)
            before = len(sequence.tree)
            first = sequence.length - before
            if nodes is None:
                positions.append(np.arange(first, first + count))
                ancestors = None
            else:
                sequence.tree, sequence.depths = nodes, _depths(nodes)
                positions.append(first + np.array(sequence.depths[before:], np.int64))
                ancestors = before, _ancestors(nodes)[before:]
            new = table.append(number, count)
            parts.append(_Part(slice(start, start + count), past, new, ancestors))
            start += count
        self.batch, self.counts, self.parts = tuple(batch), tuple(counts), tuple(parts)
        self.positions = np.concatenate([*positions, np.zeros(0, np.int64)]).astype(np.int32)

    def _trees(
        self, batch: Sequence[int], counts: Sequence[int], tree: Sequence[int] | None
    ) -> list[list[int] | None]:
        """The trees of sequences with the new nodes; None for chains."""
        table, layout = self.table, self.layout
        if tree is None:
            for number in batch:
                table.check_accepted(number)
            return [None] * len(batch)
        if layout.slides or layout.rope == _INLINE or MLA in layout.kinds:
            raise InternalError(
                "begin_forward: trees of tokens are not supported with sliding windows, positions "
                "inline, and latent attention"
            )
        if len(tree) != sum(counts):
            raise InternalError(
                f"begin_forward: expected a node before each of {sum(counts)} tokens, got "
                f"{len(tree)}"
            )
        found: list[list[int] | None] = []
        start = 0
        for number, count in zip(batch, counts, strict=True):
            nodes = [*table[number].tree, *tree[start : start + count]]
            start += count
            if len(nodes) > _MOST_TREE:
                raise InternalError(
                    f"begin_forward: expected trees of at most {_MOST_TREE} tokens, got "
                    f"{len(nodes)}"
                )
            for i, node in enumerate(nodes):
                if not -1 <= node < i:
                    raise InternalError(
                        f"begin_forward: the node before the node {i} of the sequence {number}: "
                        f"expected -1 to {i - 1}, got {node}"
                    )
            found.append(nodes)
        return found

    def end_forward(self) -> None:
        for number in self.batch:
            self.table[number]

    def commit(self, batch: Sequence[int], leaves: Sequence[int]) -> None:
        """Keep the path of each sequence's tree to a leaf, and remove its other nodes."""
        subject = "attention_kv_cache_commit_accepted_token_tree_nodes"
        if len(batch) != len(leaves) or len(set(batch)) < len(batch):
            raise InternalError(f"{subject}: expected a node for each of {len(batch)} different "
                                f"sequences, got {len(leaves)}")  # fmt: skip
        for number, leaf in zip(batch, leaves, strict=True):
            size = len(self.table[number].tree)
            if not -1 <= leaf < size:
                raise InternalError(f"{subject}: expected -1 to {size - 1}, a node of the sequence "
                                    f"{number}, got {leaf}")  # fmt: skip
        for number, leaf in zip(batch, leaves, strict=True):
            sequence = self.table[number]
            nodes = sequence.tree
            path: list[int] = []
            while leaf != -1:
                path.append(leaf)
                leaf = nodes[leaf]
            path.reverse()
            slots = self.table.slots(number)[sequence.length - len(nodes) :]
            for to, node in enumerate(path):
                if to != node:
                    self._copy_token(int(slots[node]), int(slots[to]))
            sequence.tree, sequence.depths = [], []
            self.popn(number, len(nodes) - len(path))

    def _copy_token(self, slot: int, other: int) -> None:
        size = self.layout.page_size
        for layer in self.pages:
            layer[other // size, ..., other % size, :] = layer[slot // size, ..., slot % size, :]

    # What is kept

    def layer(self, number: int, subject: str, *kinds: int) -> int:
        """The place of a layer in `pages`.

        Raises:
            InternalError: there is no such layer, or it has another kind of attention.
        """
        layout = self.layout
        if not layout.first_layer <= number < layout.last_layer:
            raise InternalError(f"{subject}: expected a layer from {layout.first_layer} to "
                                f"{layout.last_layer - 1}, got {number}")  # fmt: skip
        if layout.kinds[number] not in kinds:
            names = " or ".join(KIND_NAMES[kind] for kind in kinds)
            raise InternalError(f"{subject}: expected a layer of the kind {names}, got "
                                f"{KIND_NAMES[layout.kinds[number]]}")  # fmt: skip
        return number - layout.first_layer

    def kept(self, layer: int, slots: Slots) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values in slots, ``[token, head, dim]``, of multi-head attention."""
        pages, places = np.divmod(slots, self.layout.page_size)
        held = self.pages[layer]
        return held[pages, 0, :, places], held[pages, 1, :, places]

    def latent(self, layer: int, slots: Slots) -> NDArray[Any]:
        """What latent attention keeps in slots, ``[token, head_dim]``."""
        pages, places = np.divmod(slots, self.layout.page_size)
        found: NDArray[Any] = self.pages[layer][pages, places]
        return found

    def keep(self, layer: int, keys: NDArray[Any], values: NDArray[Any]) -> None:
        """Store keys and values of the tokens of the pass."""
        held = self.pages[layer]
        for part in self.parts:
            check_time()
            stored = part.new >= 0
            pages, places = np.divmod(part.new[stored], self.layout.page_size)
            held[pages, 0, :, places] = keys[part.rows][stored]
            held[pages, 1, :, places] = values[part.rows][stored]

    def keep_latent(self, layer: int, data: NDArray[Any]) -> None:
        """Store what latent attention keeps of the tokens of the pass."""
        for part in self.parts:
            check_time()
            pages, places = np.divmod(part.new, self.layout.page_size)
            self.pages[layer][pages, places] = data[part.rows]

    def tokens(self) -> int:
        """How many tokens the pass has."""
        return sum(self.counts)

    # Attention

    def split(self, qkv: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Queries, keys and values of ``qkv: [token, heads, dim]``, rotated by their positions."""
        layout = self.layout
        a, b = layout.query_heads, layout.query_heads + layout.heads
        if self._rotate is not None:
            q, k, v = [
                np.empty((len(qkv), heads, layout.head_dim), layout.dtype)
                for heads in (layout.query_heads, layout.heads, layout.heads)
            ]
            how = int(layout.rope == _NORMAL) if self.factors is None else self.factors
            self._rotate(qkv, self.positions, q, k, v, how)
            return q, k, v
        q, k, v = qkv[:, :a], qkv[:, a:b], qkv[:, b:]
        if layout.rope == _NORMAL:
            q, k = [self._rotated(each, self.positions).astype(layout.dtype) for each in (q, k)]
        return q, k, v

    def _rotated(self, x: NDArray[Any], positions: NDArray[Any], sliding: bool = False) -> Floats:
        """x, ``[token, head, dim]``, with its halves rotated by angles that grow with positions."""
        half = x.shape[-1] // 2
        theta, scale = (10000.0, 1.0) if sliding else (
            self.layout.rope_theta, self.layout.rope_scale)  # fmt: skip
        power = np.float32(theta) ** (np.arange(half, dtype=np.float32) / np.float32(half))
        if self.factors is not None:
            power = power * self.factors.astype(np.float32)
        angles = (positions.astype(np.float32) * np.float32(scale))[:, None, None] / power
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = x[..., :half].astype(np.float32), x[..., half : 2 * half].astype(np.float32)
        found = x.astype(np.float32)
        found[..., :half] = a * cos - b * sin
        found[..., half : 2 * half] = b * cos + a * sin
        return found

    def attend(
        self,
        layer: int,
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any],
        scale: float,
        out: NDArray[Any],
    ) -> None:
        """Write the attention of the pass's tokens to the tokens before and to themselves."""
        sliding = self.layout.kinds[layer + self.layout.first_layer] == MHA_SLIDING
        for part in self.parts:
            keys, values = self.kept(layer, part.past)
            keys = np.concatenate([keys, k[part.rows]])
            values = np.concatenate([values, v[part.rows]])
            found, _ = self._attention(part, q[part.rows], keys, values, scale, sliding,
                                       len(part.past))  # fmt: skip
            copy_pieces(out[part.rows], found.astype(out.dtype))

    def attend_new(
        self, q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], scale: float,
        out: NDArray[Any], lse: NDArray[Any], rotates: bool,
    ) -> None:  # fmt: skip
        """As `attend`, to the tokens of the pass alone."""
        for part in self.parts:
            count = part.rows.stop - part.rows.start
            found, sums = self._attention(
                part, q[part.rows], k[part.rows], v[part.rows], scale, False, 0, rotates,
                np.arange(len(part.past), len(part.past) + count),
            )  # fmt: skip
            copy_pieces(out[part.rows], found.astype(out.dtype))
            lse[part.rows] = sums

    def attend_kept(
        self, layer: int, q: NDArray[Any], scale: float, out: NDArray[Any], lse: NDArray[Any],
        is_latent: bool,
    ) -> None:  # fmt: skip
        """As `attend`, to what is in the cache alone: the tokens before; and in a pass that appends
        one token to each sequence or nodes to trees, the new ones, too."""
        sliding = self.layout.kinds[layer + self.layout.first_layer] == MHA_SLIDING
        for part in self.parts:
            slots = np.concatenate([part.past, part.new]) if self._sees_new else part.past
            if is_latent:
                data = self.latent(layer, slots)[:, None]
                keys, values = data, data[..., : self.layout.value_dim]
            else:
                keys, values = self.kept(layer, slots)
            found, sums = self._attention(part, q[part.rows], keys, values, scale, sliding,
                                          len(part.past), not is_latent)  # fmt: skip
            copy_pieces(out[part.rows], found.astype(out.dtype))
            lse[part.rows] = sums

    def _attention(
        self, part: _Part, q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], scale: float,
        sliding: bool, past: int, rotates: bool = True, key_positions: NDArray[Any] | None = None,
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """The attention of the tokens of a sequence.

        Args:
            past: how many of the keys are of tokens before.
            rotates: whether positions inline are applied here.
            key_positions: of the keys; their places if not given.
        """
        if rotates and self.layout.rope == _INLINE:
            q = self._rotated(q, self.positions[part.rows], sliding)
            places = np.arange(len(k)) if key_positions is None else key_positions
            k = self._rotated(k, places, sliding)
        rows, heads = len(q), q.shape[1]
        group = heads // k.shape[1]
        out = np.zeros((rows, heads, v.shape[2]), np.float32)
        lse = np.full((rows, heads), _NO_KEYS, np.float32)
        factor = np.float32(scale * _LOG2_E)
        for start, end in _chunks(rows, max(len(k), 1)):
            allowed = self._allowed(part, start, end, past, len(k), sliding)
            for head in range(heads):
                check_time()
                keys = k[:, head // group].astype(np.float32)
                scores = q[start:end, head].astype(np.float32) @ keys.T * factor
                out[start:end, head], lse[start:end, head] = _weighed(
                    scores, allowed, v[:, head // group]
                )
        return out, lse

    def _allowed(
        self, part: _Part, start: int, end: int, past: int, keys: int, sliding: bool
    ) -> NDArray[np.bool_]:
        """Which keys each of some tokens of a sequence attends to."""
        place = past + np.arange(start, end)[:, None]
        key = np.arange(keys)
        found: NDArray[np.bool_] = key <= place
        if sliding:
            found &= key > place - self.layout.window
        if part.tree is not None:
            size, ancestors = part.tree
            before = min(size, past)
            first = past - before
            count = keys - first
            found[:, first:] = ancestors[start:end, size - before : size - before + count]
        return found


def _chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(PIECE // columns, 1)
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def _weighed(
    scores: Floats, allowed: NDArray[np.bool_], values: NDArray[Any]
) -> tuple[Floats, Floats]:
    """Values weighed by powers of two, and the logarithm of the weights' sum."""
    if not scores.shape[1]:
        return (np.zeros((len(scores), values.shape[1]), np.float32),
                np.full(len(scores), _NO_KEYS, np.float32))  # fmt: skip
    scores = np.where(allowed, scores, np.float32(-np.inf))
    largest = scores.max(axis=1, keepdims=True)
    largest = np.where(np.isneginf(largest), np.float32(0), largest)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.exp2(scores - largest)
        total = weights.sum(axis=1, keepdims=True)
        found = weights @ values.astype(np.float32) / np.where(total == 0, 1, total)
        lse = np.maximum((np.log2(total) + largest)[:, 0], np.float32(_NO_KEYS))
    return found.astype(np.float32, copy=False), lse.astype(np.float32, copy=False)


def _depths(nodes: Sequence[int]) -> list[int]:
    found: list[int] = []
    for node in nodes:
        found.append(0 if node == -1 else found[node] + 1)
    return found


def _ancestors(nodes: Sequence[int]) -> NDArray[np.bool_]:
    """For each node, which nodes are on its path from the root, itself included."""
    found = np.zeros((len(nodes), len(nodes)), bool)
    for i, node in enumerate(nodes):
        if node != -1:
            found[i] = found[node]
        found[i, i] = True
    return found


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):  # the latter where numpy cannot express the size
        raise MemoryError(
            f"paged_attention_kv_cache_create: cannot reserve {dtype}{list(shape)}"
        ) from None


def as_paged(value: Any, subject: str) -> PagedAttentionCache:
    """Return a paged cache.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, PagedAttentionCache):
        return value
    raise TypeError(f"{subject}: expected a paged cache of attention, got {describe(value)}")


def _tensor(
    value: Any, subject: str, shape: Sequence[int | None], dtype: np.dtype[Any] | type
) -> NDArray[Any]:
    """A tensor of a data type and shape; None stands for any length."""
    found = as_array(value, subject)
    fits = found.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype.newbyteorder("=") != dtype:
        dims = ", ".join("any" if dim is None else str(dim) for dim in shape)
        raise InternalError(f"{subject}: expected {np.dtype(dtype)}[{dims}], got {describe(found)}")
    return found


def _written(
    value: Any, subject: str, shape: Sequence[int | None], dtype: np.dtype[Any] | type
) -> NDArray[Any]:
    found = _tensor(value, subject, shape, dtype)
    if not found.flags.writeable:
        raise ValueError(f"{subject}: expected a tensor to write to, got a read-only one")
    return found


@builtin(
    "paged_attention_kv_cache_create",
    "config: shape|tuple, layers: shape|tuple, query_heads: int, heads: int, head_dim: int, "
    "value_dim: int, kinds: shape|tuple, transfers: int, rope: int, rope_scale: float|int, "
    "rope_theta: float|int, factors: any, init: tensor, *kernels: any",
    result="object",
)
def paged_attention_kv_cache_create(
    config: Any,
    layers: Any,
    query_heads: Any,
    heads: Any,
    head_dim: Any,
    value_dim: Any,
    kinds: Any,
    transfers: Any,
    rope: Any,
    rope_scale: Any,
    rope_theta: Any,
    factors: Any,
    init: Any,
    *kernels: Any,
) -> PagedAttentionCache:
    """Create a paged cache.

    Args:
        config: the most sequences in a pass, tokens in all, the most tokens in a pass, tokens of a
            page, whether sequences may have sliding windows; and the window of layers of the kind
            mha_sliding, 1024 if it is left out.
        layers: ``[first, last]``: the model's layers that the cache has, `last` not included.
        query_heads: of queries.
        heads: of keys and values.
        head_dim: of queries, keys and values.
        value_dim: of the values of latent attention.
        kinds: the kind of each layer: 0 mha, 1 mla, 3 mha_sliding.
        transfers: 0: keys and values cannot be sent to other processes.
        rope: how positions are encoded: 0 not at all, 1 in keys before they are stored, 2 when they
            are read.
        rope_scale: of positions.
        rope_theta: base of the angles of positions.
        factors: ``float32[head_dim / 2]``, by which the lengths of waves grow; anything else for
            none.
        init: its data type is that of the cache.
        kernels: the functions of TVM's signature, 15 or 16 of them.  The 12th, which splits and
            rotates, is called if it is a function: ``f(qkv, positions, q, k, v, rotates)``, or with
            `factors` in place of `rotates`.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: a number does not fit, or is not supported.
        MemoryError: the system does not have the memory.
    """
    subject = "paged_attention_kv_cache_create"
    sizes = as_shape(config, f"{subject}: config")
    if len(sizes) not in (5, 6):
        raise InternalError(f"{subject}: config: expected 5 or 6 numbers, got {describe(sizes)}")
    sequences, capacity, tokens, page_size, slides = sizes[:5]
    window = sizes[5] if len(sizes) == 6 else 1024
    bounds = as_shape(layers, f"{subject}: layers")
    numbers = [as_int(each, subject) for each in (query_heads, heads, head_dim, value_dim)]
    layer_kinds = as_shape(kinds, f"{subject}: kinds")
    how = as_int(rope, f"{subject}: rope")
    tensor = as_array(init, f"{subject}: init")
    if len(bounds) != 2 or not 0 <= bounds[0] < bounds[1] <= len(layer_kinds):
        raise InternalError(f"{subject}: layers: expected two numbers, the first and last of at "
                            f"most {len(layer_kinds)} layers, got {describe(bounds)}")  # fmt: skip
    if not set(layer_kinds) <= set(KIND_NAMES):
        raise InternalError(f"{subject}: kinds: expected 0, 1 or 3, got {describe(layer_kinds)}")
    if min(sequences, tokens, page_size, window, *numbers) <= 0 or capacity < 0:
        raise InternalError(
            f"{subject}: expected positive numbers of sequences, tokens, heads and dimensions, got "
            f"{describe(sizes)} and {numbers}"
        )
    if numbers[0] % numbers[1]:
        raise InternalError(f"{subject}: expected heads of queries that {numbers[1]} heads divide, "
                            f"got {numbers[0]}")  # fmt: skip
    if not 0 <= how < len(ROPE_NAMES):
        raise InternalError(f"{subject}: rope: expected 0, 1 or 2, got {how}")
    if as_int(transfers, f"{subject}: transfers"):
        raise InternalError(f"{subject}: keys and values cannot be sent to other processes")
    if MLA in layer_kinds and slides:
        raise InternalError(f"{subject}: latent attention has no sliding windows")
    if len(kernels) not in (15, 16):
        raise InternalError(f"{subject}: expected 15 or 16 kernels, got {len(kernels)}")
    if slides and how:
        how = _INLINE
    extension = factors if isinstance(factors, np.ndarray) and factors.ndim else None
    if extension is not None:
        if how != _NORMAL:
            raise InternalError(f"{subject}: factors: expected rope 1, got {how}")
        _tensor(extension, f"{subject}: factors", (numbers[2] // 2,), np.float32)
    layout = CacheLayout(
        page_size, bounds[0], bounds[1], numbers[0], numbers[1], numbers[2], numbers[3],
        tuple(layer_kinds), how,
        as_float(rope_scale, f"{subject}: rope_scale"),
        as_float(rope_theta, f"{subject}: rope_theta"), window,
        bool(slides) and MHA_SLIDING not in layer_kinds, sequences, tokens,
        tensor.dtype.newbyteorder("="),
    )  # fmt: skip
    pages = -(-capacity // page_size) + 1 + (2 * sequences if slides else 0)
    split = kernels[11]
    rotate = None if split is None else as_callable(split, f"{subject}: the 12th kernel")
    return PagedAttentionCache(layout, pages, rotate, extension)


@builtin(
    "attention_kv_cache_attention_with_fused_qkv",
    "cache: object, layer: int, scale: float|int, qkv: tensor, out: tensor",
    result="none",
)
def attention_kv_cache_attention_with_fused_qkv(
    cache: Any, layer: Any, scale: Any, qkv: Any, out: Any
) -> None:
    """Store keys and values of the pass's tokens, and write their attention to `out`.

    Args:
        cache: a paged cache.
        layer: a layer of multi-head attention.
        scale: of the products of queries and keys.
        qkv: ``[tokens, query_heads + 2 * heads, head_dim]``; further tokens are ignored.
        out: ``[tokens, query_heads, head_dim]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer, or a tensor does not fit.
        ValueError: `out` is read-only.
    """
    subject = "attention_kv_cache_attention_with_fused_qkv"
    held = as_paged(cache, subject)
    layout = held.layout
    place = held.layer(as_int(layer, f"{subject}: layer"), subject, MHA, MHA_SLIDING)
    factor = as_float(scale, f"{subject}: scale")
    data = _tensor(qkv, f"{subject}: qkv",
                   (None, layout.query_heads + 2 * layout.heads, layout.head_dim),
                   layout.dtype)  # fmt: skip
    result = _written(out, f"{subject}: out", (len(data), layout.query_heads, layout.head_dim),
                      layout.dtype)  # fmt: skip
    tokens = held.tokens()
    if len(data) < tokens:
        raise InternalError(f"{subject}: qkv: expected at least {tokens} tokens, got {len(data)}")
    q, k, v = held.split(data[:tokens])
    held.attend(place, q, k, v, factor, result[:tokens])
    held.keep(place, k, v)


@builtin(
    "attention_kv_cache_self_attention",
    "cache: object, layer: int, scale: float|int, q: tensor, k: tensor, v: tensor, out: tensor, "
    "lse: tensor",
    result="none",
)
def attention_kv_cache_self_attention(
    cache: Any, layer: Any, scale: Any, q: Any, k: Any, v: Any, out: Any, lse: Any
) -> None:
    """Write the attention of the pass's tokens to one another to `out` and `lse`; nothing is
    stored.

    Args:
        cache: a paged cache.
        layer: a layer.
        scale: of the products of queries and keys.
        q: ``[tokens, query_heads, dim]``.
        k: ``[tokens, heads, dim]``.
        v: ``[tokens, heads, value_dim]``.
        out: ``[tokens, query_heads, value_dim]``.
        lse: ``float32[tokens, query_heads]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer, or a tensor does not fit.
        ValueError: a result is read-only.
    """
    subject = "attention_kv_cache_self_attention"
    held = as_paged(cache, subject)
    layout, tokens = held.layout, held.tokens()
    number = as_int(layer, f"{subject}: layer")
    held.layer(number, subject, *KIND_NAMES)
    query = _tensor(q, f"{subject}: q", (tokens, None, None), layout.dtype)
    keys = _tensor(k, f"{subject}: k", (tokens, None, query.shape[2]), layout.dtype)
    values = _tensor(v, f"{subject}: v", (tokens, keys.shape[1], None), layout.dtype)
    if not keys.shape[1] or query.shape[1] % keys.shape[1]:
        raise InternalError(f"{subject}: q: expected heads that {keys.shape[1]} heads divide, got "
                            f"{query.shape[1]}")  # fmt: skip
    shape = (tokens, query.shape[1], values.shape[2])
    result = _written(out, f"{subject}: out", shape, layout.dtype)
    sums = _written(lse, f"{subject}: lse", shape[:2], np.float32)
    held.attend_new(query, keys, values, as_float(scale, f"{subject}: scale"), result, sums,
                    layout.kinds[number] != MLA)  # fmt: skip


@builtin(
    "attention_kv_cache_cross_attention",
    "cache: object, layer: int, scale: float|int, q: tensor, out: tensor, lse: tensor",
    result="none",
)
def attention_kv_cache_cross_attention(
    cache: Any, layer: Any, scale: Any, q: Any, out: Any, lse: Any
) -> None:
    """Write the attention of the pass's tokens to what is in the cache to `out` and `lse`.

    That is the tokens before the pass; in a pass that appends one token to each sequence, that
    token,
    too, which has to be stored first.  With nothing in the cache the results are 0 and -50000.

    Args:
        cache: a paged cache.
        layer: a layer.
        scale: of the products of queries and keys.
        q: ``[tokens, query_heads, head_dim]``.
        out: ``[tokens, query_heads, head_dim]``; ``value_dim`` for latent attention.
        lse: ``float32[tokens, query_heads]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer, or a tensor does not fit.
        ValueError: a result is read-only.
    """
    subject = "attention_kv_cache_cross_attention"
    held = as_paged(cache, subject)
    layout, tokens = held.layout, held.tokens()
    number = as_int(layer, f"{subject}: layer")
    place = held.layer(number, subject, *KIND_NAMES)
    is_latent = layout.kinds[number] == MLA
    heads = layout.query_heads
    query = _tensor(q, f"{subject}: q", (tokens, heads, layout.head_dim), layout.dtype)
    dim = layout.value_dim if is_latent else layout.head_dim
    result = _written(out, f"{subject}: out", (tokens, heads, dim), layout.dtype)
    sums = _written(lse, f"{subject}: lse", (tokens, heads), np.float32)
    held.attend_kept(place, query, as_float(scale, f"{subject}: scale"), result, sums, is_latent)


@builtin(
    "attention_kv_cache_attention_with_shared_kv",
    "cache: object, layer: int, scale: float|int, q: tensor, k: tensor, v: tensor, out: tensor",
    result="none",
)
def attention_kv_cache_attention_with_shared_kv(
    cache: Any, layer: Any, scale: Any, q: Any, k: Any, v: Any, out: Any
) -> None:
    """Write the attention of the pass's tokens to keys and values of another layer to `out`;
    nothing
    is stored.

    Args:
        cache: a paged cache.
        layer: the layer whose keys and values are used, which has stored those of the pass.
        scale: of the products of queries and keys.
        q: ``[tokens, query_heads, head_dim]``.
        k: ``[tokens, heads, head_dim]``: the keys that the layer has for the pass's tokens.
        v: ``[tokens, heads, head_dim]``: its values for them.
        out: ``[tokens, query_heads, head_dim]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer, or a tensor does not fit.
        ValueError: `out` is read-only.
    """
    subject = "attention_kv_cache_attention_with_shared_kv"
    held = as_paged(cache, subject)
    layout, tokens = held.layout, held.tokens()
    place = held.layer(as_int(layer, f"{subject}: layer"), subject, MHA, MHA_SLIDING)
    shape = (tokens, layout.query_heads, layout.head_dim)
    query = _tensor(q, f"{subject}: q", shape, layout.dtype)
    keys, values = [
        _tensor(each, f"{subject}: {name}", (tokens, layout.heads, layout.head_dim), layout.dtype)
        for name, each in (("k", k), ("v", v))
    ]
    result = _written(out, f"{subject}: out", shape, layout.dtype)
    held.attend(place, query, keys, values, as_float(scale, f"{subject}: scale"), result)


@builtin(
    "attention_kv_cache_append_mla_kv", "cache: object, layer: int, kv: tensor", result="object"
)
def attention_kv_cache_append_mla_kv(cache: Any, layer: Any, kv: Any) -> PagedAttentionCache:
    """Store what latent attention keeps of the pass's tokens, ``kv: [tokens, head_dim]``; returns
    the
    cache.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer of latent attention, or the tensor does not fit.
    """
    subject = "attention_kv_cache_append_mla_kv"
    held = as_paged(cache, subject)
    place = held.layer(as_int(layer, f"{subject}: layer"), subject, MLA)
    data = _tensor(kv, f"{subject}: kv", (held.tokens(), held.layout.head_dim), held.layout.dtype)
    held.keep_latent(place, data)
    return held


@builtin(
    "attention_kv_cache_merge_attn_output_inplace",
    "cache: object, out: tensor, lse: tensor, other: tensor, other_lse: tensor",
    result="tuple",
)
def attention_kv_cache_merge_attn_output_inplace(
    cache: Any, out: Any, lse: Any, other: Any, other_lse: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Merge two results of attention over different keys, in place; returns ``(out, lse)``.

    ``out, other: [tokens, heads, dim]``, ``lse, other_lse: float32[tokens, heads]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: a tensor does not fit.
        ValueError: `out` or `lse` is read-only.
    """
    subject = "attention_kv_cache_merge_attn_output_inplace"
    dtype = as_paged(cache, subject).layout.dtype
    first = _written(out, f"{subject}: out", (None, None, None), dtype)
    second = _tensor(other, f"{subject}: other", first.shape, dtype)
    sums = _written(lse, f"{subject}: lse", first.shape[:2], np.float32)
    others = _tensor(other_lse, f"{subject}: other_lse", first.shape[:2], np.float32)
    for start, end in _chunks(len(first), max(first.shape[1] * first.shape[2], 1)):
        check_time()
        rows = slice(start, end)
        a, b = sums[rows], others[rows]
        largest = np.maximum(a, b)
        largest = np.where(np.isneginf(largest), np.float32(0), largest)
        with np.errstate(divide="ignore"):
            x, y = np.exp2(a - largest), np.exp2(b - largest)
            total = x + y
            merged = np.log2(total) + largest
        total = np.where(total == 0, 1, total)
        first[rows] = first[rows] * (x / total)[..., None] + second[rows] * (y / total)[..., None]
        sums[rows] = merged
    return first, sums


@builtin(
    "attention_kv_cache_enable_sliding_window_for_seq",
    "cache: object, sequence: int, window: int, sinks: int",
    result="none",
)
def attention_kv_cache_enable_sliding_window_for_seq(
    cache: Any, sequence: Any, window: Any, sinks: Any
) -> None:
    """Let a sequence keep its first `sinks` tokens and the last ones, `window` tokens in all.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the cache has no sliding windows, there is no such sequence, it has a window
            already, or the numbers do not fit.
    """
    subject = "attention_kv_cache_enable_sliding_window_for_seq"
    held = as_paged(cache, subject)
    number, size, kept = [as_int(each, subject) for each in (sequence, window, sinks)]
    if not held.layout.slides and MHA_SLIDING not in held.layout.kinds:
        raise InternalError(f"{subject}: the cache was created without sliding windows")
    held.table.slide(number, size, kept)


@builtin(
    "attention_kv_cache_commit_accepted_token_tree_nodes",
    "cache: object, sequences: shape|tuple, leaves: shape|tuple",
    result="none",
)
def attention_kv_cache_commit_accepted_token_tree_nodes(
    cache: Any, sequences: Any, leaves: Any
) -> None:
    """Keep the tokens of each sequence's tree that are on the path to a node, and remove the
    others;
    -1 removes all.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such sequence or node, or the arguments do not fit each other.
    """
    subject = "attention_kv_cache_commit_accepted_token_tree_nodes"
    as_paged(cache, subject).commit(
        as_shape(sequences, f"{subject}: sequences"), as_shape(leaves, f"{subject}: leaves")
    )


@builtin("attention_kv_cache_empty", "cache: object", result="bool")
def attention_kv_cache_empty(cache: Any) -> bool:
    """Return whether a cache has no sequences, and all pages are free.

    Raises:
        TypeError: not a paged cache.
    """
    return as_paged(cache, "attention_kv_cache_empty").table.is_empty


@builtin("attention_kv_cache_get_num_available_pages", "cache: object", result="int")
def attention_kv_cache_get_num_available_pages(cache: Any) -> int:
    """Return the number of free pages.

    Raises:
        TypeError: not a paged cache.
    """
    return as_paged(cache, "attention_kv_cache_get_num_available_pages").table.free


@builtin("attention_kv_cache_get_total_sequence_length", "cache: object", result="int")
def attention_kv_cache_get_total_sequence_length(cache: Any) -> int:
    """Return the number of tokens of all sequences; tokens that they share count for each.

    Raises:
        TypeError: not a paged cache.
    """
    table = as_paged(cache, "attention_kv_cache_get_total_sequence_length").table
    return sum(each.length for each in table.sequences.values())


@builtin("attention_kv_cache_get_sequence_length", "cache: object, sequence: int", result="int")
def attention_kv_cache_get_sequence_length(cache: Any, sequence: Any) -> int:
    """Return the number of tokens of a sequence.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such sequence, or a checkpoint is being imported.
    """
    subject = "attention_kv_cache_get_sequence_length"
    held = as_paged(cache, subject)
    if held.import_of is not None:
        raise InternalError(f"{subject}: not known until checkpoint import is finished")
    return held.table[as_int(sequence, f"{subject}: sequence")].length


@builtin("attention_kv_cache_get_query_positions", "cache: object", result="tensor")
def attention_kv_cache_get_query_positions(cache: Any) -> NDArray[np.int32]:
    """Return the positions of the pass's tokens in their sequences, ``int32[tokens]``.

    Raises:
        TypeError: not a paged cache.
    """
    return as_paged(cache, "attention_kv_cache_get_query_positions").positions.copy()


def _kept_of(
    cache: PagedAttentionCache, sequence: Any, start: Any, end: Any, subject: str
) -> Slots:
    number, first, last = [as_int(each, subject) for each in (sequence, start, end)]
    length = cache.table[number].length
    if not 0 <= first < last <= length:
        raise InternalError(f"{subject}: expected two places of 0 to {length}, the second behind "
                            f"the first, got {first} and {last}")  # fmt: skip
    return cache.table.slots(number)[first:last]


@builtin(
    "attention_kv_cache_debug_get_kv",
    "cache: object, sequence: int, start: int, end: int, k: tensor, v: tensor",
    result="none",
)
def attention_kv_cache_debug_get_kv(
    cache: Any, sequence: Any, start: Any, end: Any, k: Any, v: Any
) -> None:
    """Write keys and values of the tokens from `start` to before `end` of a sequence to `k` and
    `v`,
    ``[layers, end - start, heads, head_dim]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there are no such tokens, a layer is of latent attention, or a tensor does
            not
            fit.
        ValueError: a tensor is read-only.
    """
    subject = "attention_kv_cache_debug_get_kv"
    held = as_paged(cache, subject)
    layout = held.layout
    slots = _kept_of(held, sequence, start, end, subject)
    shape = (len(held.pages), len(slots), layout.heads, layout.head_dim)
    keys, values = [
        _written(each, f"{subject}: {name}", shape, layout.dtype)
        for name, each in (("k", k), ("v", v))
    ]
    for layer in range(len(held.pages)):
        held.layer(layer + layout.first_layer, subject, MHA, MHA_SLIDING)
        check_time()
        found = held.kept(layer, slots)
        copy_pieces(keys[layer], found[0])
        copy_pieces(values[layer], found[1])


@builtin(
    "attention_kv_cache_debug_get_kv_mla",
    "cache: object, sequence: int, start: int, end: int, kv: tensor",
    result="none",
)
def attention_kv_cache_debug_get_kv_mla(
    cache: Any, sequence: Any, start: Any, end: Any, kv: Any
) -> None:
    """Write what latent attention keeps of the tokens from `start` to before `end` of a sequence to
    ``kv: [layers, end - start, head_dim]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there are no such tokens, a layer is of another kind of attention, or the
            tensor
            does not fit.
        ValueError: the tensor is read-only.
    """
    subject = "attention_kv_cache_debug_get_kv_mla"
    held = as_paged(cache, subject)
    slots = _kept_of(held, sequence, start, end, subject)
    result = _written(kv, f"{subject}: kv", (len(held.pages), len(slots), held.layout.head_dim),
                      held.layout.dtype)  # fmt: skip
    for layer in range(len(held.pages)):
        held.layer(layer + held.layout.first_layer, subject, MLA)
        check_time()
        copy_pieces(result[layer], held.latent(layer, slots))


@builtin(
    "kv_cache_disagg_prepare_recv", "cache: object, sequence: int, count: int", result="shape"
)
def kv_cache_disagg_prepare_recv(cache: Any, sequence: Any, count: Any) -> Shape:
    """Begin a pass over `count` tokens of a sequence whose keys and values another process will
    write;
    returns their slots as runs: ``[n, first, length, first, length, ...]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such sequence, or the cache is full.
    """
    subject = "kv_cache_disagg_prepare_recv"
    held = as_paged(cache, subject)
    held.begin_forward((as_int(sequence, subject),), (as_int(count, subject),), None)
    return Shape(runs_of(held.parts[0].new))


@builtin(
    "kv_cache_disagg_mark_send",
    "cache: object, sequence: int, start: int, slots: shape|tuple, receiver: int",
    result="none",
)
def kv_cache_disagg_mark_send(
    cache: Any, sequence: Any, start: Any, slots: Any, receiver: Any
) -> None:
    """Refused: keys and values cannot be sent to other processes.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: always, as TVM does where a cache was created without transfers.
    """
    subject = "kv_cache_disagg_mark_send"
    as_paged(cache, subject)
    for each in (sequence, start, receiver):
        as_int(each, subject)
    as_shape(slots, f"{subject}: slots")
    raise InternalError(f"{subject}: the cache was created without transfers to other processes")
