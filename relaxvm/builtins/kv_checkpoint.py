"""Checkpoints of paged caches: a sequence is copied from one cache to another of the same layout.

A checkpoint is a text of JSON and, for each layer, a tensor ``[1, pages, 2, heads, page_size,
head_dim]``; both are those of apache-tvm 0.27, which reads the ones written here and the other way
round.  Of a cache only the sequence 0 can be copied.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InternalError
from ..pieces.cut import copy_pieces
from .arguments import as_array, as_int, as_str, size_of
from .paged_attention import KIND_NAMES, MHA, ROPE_NAMES, PagedAttentionCache, as_paged
from .registration import builtin

__all__ = ["layout_hash"]

_TYPE: Final = "relax.vm.PagedAttentionKVCache"
_VERSION: Final = 1
_GROUP_LAYOUT: Final = "1,num_logical_pages,2,num_kv_heads,page_size,qk_head_dim"


def _check(cache: PagedAttentionCache, subject: str) -> None:
    layout = cache.layout
    problem = (
        "only supports full-context MHA/GQA layers" if set(layout.kinds) != {MHA} else
        "requires qk_head_dim to equal v_head_dim" if layout.head_dim != layout.value_dim else
        "does not support sliding-window cache layouts" if layout.slides else
        "does not support RoPE extension factors" if cache.factors is not None else ""
    )  # fmt: skip
    if problem:
        raise InternalError(f"{subject}: checkpointing {problem}")


def _check_sequence(cache: PagedAttentionCache, number: int, subject: str) -> None:
    if number != 0:
        raise InternalError(f"{subject}: checkpointing only supports sequence id 0, got {number}")
    sequence = cache.table[number]
    if sequence.tree:
        raise InternalError(f"{subject}: checkpointing requires committed token-chain state")
    if sequence.window is not None:
        raise InternalError(
            f"{subject}: checkpointing does not support sequences with sliding window"
        )


def _fields(cache: PagedAttentionCache) -> dict[str, Any]:
    """What two caches have to have in common."""
    layout = cache.layout
    return {
        "format_version": _VERSION,
        "cache_type": _TYPE,
        "page_size": layout.page_size,
        "num_layers": len(cache.pages),
        "layer_begin": layout.first_layer,
        "layer_end": layout.last_layer,
        "num_qo_heads": layout.query_heads,
        "num_kv_heads": layout.heads,
        "qk_head_dim": layout.head_dim,
        "v_head_dim": layout.value_dim,
        "dtype": layout.dtype.name,
        "rope_mode": ROPE_NAMES[layout.rope],
        "rotary_scale": layout.rope_scale,
        "rotary_theta": layout.rope_theta,
        "has_rope_ext_factors": False,
        "support_sliding_window": False,
        "support_layer_sliding_window": False,
        "page_group_layout": _GROUP_LAYOUT,
        "attn_kinds": [KIND_NAMES[kind] for kind in layout.kinds],
    }


def layout_hash(cache: PagedAttentionCache) -> str:
    """A hash of what two caches have to have in common: FNV-1a of 64 bits of ``key=value;...``."""
    texts = []
    for key, value in _fields(cache).items():
        if isinstance(value, bool):
            value = int(value)
        elif isinstance(value, float):
            value = f"{value:.17g}"
        elif isinstance(value, list):
            value = ",".join(value)
        texts.append(f"{key}={value}")
    found = 0xCBF29CE484222325
    for byte in ";".join(texts).encode():
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{found:016x}"


def _group_shape(cache: PagedAttentionCache, pages: int) -> tuple[int, ...]:
    layout = cache.layout
    return (1, pages, 2, layout.heads, layout.page_size, layout.head_dim)


def _pages(cache: PagedAttentionCache, length: int) -> int:
    return -(-length // cache.layout.page_size)


@builtin("attention_kv_cache_get_layout_hash", "cache: object", result="str")
def attention_kv_cache_get_layout_hash(cache: Any) -> str:
    """Return a hash that is equal for caches between which checkpoints can be copied.

    Raises:
        TypeError: not a paged cache.
        InternalError: the cache has windows, latent attention or factors of positions.
    """
    subject = "attention_kv_cache_get_layout_hash"
    held = as_paged(cache, subject)
    _check(held, subject)
    return layout_hash(held)


@builtin(
    "attention_kv_cache_get_checkpoint_metadata", "cache: object, sequence: int", result="str"
)
def attention_kv_cache_get_checkpoint_metadata(cache: Any, sequence: Any) -> str:
    """Return what a checkpoint of a sequence has, as JSON.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the cache or the sequence cannot be copied, or a checkpoint is being
            imported.
    """
    subject = "attention_kv_cache_get_checkpoint_metadata"
    held, number = as_paged(cache, subject), as_int(sequence, f"{subject}: sequence")
    _check_export(held, number, subject)
    layout, length = held.layout, held.table[number].length
    size, pages = layout.page_size, _pages(held, held.table[number].length)
    shape = _group_shape(held, pages)
    fields = _fields(held)
    kinds, dtype = fields.pop("attn_kinds"), fields["dtype"]
    first = dict(list(fields.items())[:10])
    last = dict(list(fields.items())[11:])
    return json.dumps(
        {
            **first,
            "reserved_num_seqs": layout.sequences,
            "num_total_pages": held.table.pages,
            "prefill_chunk_size": layout.tokens,
            "dtype": dtype,
            "attn_kinds": kinds,
            **last,
            "layout_hash": layout_hash(held),
            "seq_id": number,
            "seq_length": length,
            "logical_pages": [
                {
                    "logical_page_index": i, "start_pos": i * size,
                    "length": min(size, length - i * size),
                }
                for i in range(pages)
            ],
            "groups": [
                {
                    "group_index": i, "layer_begin": layout.first_layer + i,
                    "layer_end": layout.first_layer + i + 1, "num_logical_pages": pages,
                    "dtype": dtype, "shape": list(shape),
                    "nbytes": size_of(shape, layout.dtype.itemsize),
                }
                for i in range(len(held.pages))
            ],
        },
        separators=(",", ":"),
    )  # fmt: skip


def _check_export(cache: PagedAttentionCache, number: int, subject: str) -> None:
    if cache.import_of is not None:
        raise InternalError(f"{subject}: checkpoint import must be finished first")
    _check(cache, subject)
    _check_sequence(cache, number, subject)


def _group(
    cache: PagedAttentionCache, group: int, data: NDArray[Any], pages: int, subject: str, name: str
) -> None:
    if not 0 <= group < len(cache.pages):
        raise InternalError(
            f"{subject}: group id: expected 0 to {len(cache.pages) - 1}, got {group}"
        )
    shape = _group_shape(cache, pages)
    if data.shape != shape:
        raise InternalError(f"{name} expects a tensor {list(shape)}, got {list(data.shape)}")
    if data.dtype.newbyteorder("=") != cache.layout.dtype:
        raise InternalError(f"{name}: The dtype mismatches, expected {cache.layout.dtype}, got "
                            f"{data.dtype}")  # fmt: skip


@builtin(
    "attention_kv_cache_export_page_group",
    "cache: object, sequence: int, group: int, out: tensor",
    result="none",
)
def attention_kv_cache_export_page_group(cache: Any, sequence: Any, group: Any, out: Any) -> None:
    """Write the pages of a layer to ``out: [1, pages, 2, heads, page_size, head_dim]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the cache or the sequence cannot be copied, there is no such group, or the
            tensor does not fit.
        ValueError: `out` is read-only.
    """
    subject = "attention_kv_cache_export_page_group"
    held = as_paged(cache, subject)
    number, index = as_int(sequence, subject), as_int(group, subject)
    data = as_array(out, f"{subject}: out")
    _check_export(held, number, subject)
    length, size = held.table[number].length, held.layout.page_size
    _group(held, index, data, _pages(held, length), subject, "ExportPageGroup")
    if not data.flags.writeable:
        raise ValueError(f"{subject}: out: expected a tensor to write to, got a read-only one")
    slots = held.table.slots(number)
    for i in range(_pages(held, length)):
        part = slots[i * size : (i + 1) * size]
        pages, places = np.divmod(part, size)
        found = held.pages[index][pages, :, :, places]  # [place, 2, head, dim]
        copy_pieces(data[0, i, :, :, : len(part)], found.transpose(1, 2, 0, 3))
        data[0, i, :, :, len(part) :] = 0


@builtin(
    "attention_kv_cache_prepare_import",
    "cache: object, sequence: int, metadata: str",
    result="none",
)
def attention_kv_cache_prepare_import(cache: Any, sequence: Any, metadata: Any) -> None:
    """Begin to import a checkpoint: the cache is empty afterwards but for room for the sequence.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the text is none of `attention_kv_cache_get_checkpoint_metadata`, or one of
            another layout, or there are not enough pages.
    """
    subject = "attention_kv_cache_prepare_import"
    held, number = as_paged(cache, subject), as_int(sequence, f"{subject}: sequence")
    text = as_str(metadata, f"{subject}: metadata")
    if number != 0:
        raise InternalError(
            f"{subject}: checkpoint import only supports sequence id 0, got {number}"
        )
    _check(held, subject)
    length = _length_of(held, text, subject)
    pages = _pages(held, length)
    if pages > held.table.pages:
        raise InternalError(
            f"{subject}: the checkpoint has {pages} pages, the cache only has "
            f"{held.table.pages} pages"
        )
    held.clear()
    held.add_sequence(number)
    if length:
        held.table.check_room((number,), (length,))
        held.table.append(number, length)
    held.import_of = [False] * len(held.pages)


def _length_of(cache: PagedAttentionCache, text: str, subject: str) -> int:
    """Check the text of a checkpoint; the number of tokens."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InternalError(f"{subject}: metadata: {error}") from None
    if not isinstance(found, dict):
        raise InternalError(f"{subject}: metadata: expected a JSON object")

    def check(name: str, where: Any, expected: Any) -> None:
        if not isinstance(where, dict) or where.get(name) != expected:
            got = where.get(name) if isinstance(where, dict) else where
            raise InternalError(
                f"{subject}: metadata: {name}: expected {expected!r}, got {_short(got)}"
            )

    for name, value in _fields(cache).items():
        check(name, found, value)
    given, own = found.get("layout_hash"), layout_hash(cache)
    if given != own:
        raise InternalError(
            f"{subject}: metadata: layout hash mismatch: expected {own}, got {_short(given)}"
        )
    check("seq_id", found, 0)
    length = found.get("seq_length")
    if type(length) is not int or not 0 <= length < 1 << 31:
        raise InternalError(f"{subject}: metadata: seq_length: expected a number of tokens, got "
                            f"{_short(length)}")  # fmt: skip
    pages, size = found.get("logical_pages"), cache.layout.page_size
    if not isinstance(pages, list) or len(pages) != _pages(cache, length):
        raise InternalError(f"{subject}: metadata: logical_pages do not cover the sequence length "
                            f"{length}")  # fmt: skip
    for i, page in enumerate(pages):
        check("logical_page_index", page, i)
        check("start_pos", page, i * size)
        check("length", page, min(size, length - i * size))
    groups = found.get("groups")
    if not isinstance(groups, list) or len(groups) != len(cache.pages):
        raise InternalError(f"{subject}: metadata: groups: expected {len(cache.pages)} of them")
    shape = _group_shape(cache, len(pages))
    for i, group in enumerate(groups):
        check("group_index", group, i)
        check("layer_begin", group, cache.layout.first_layer + i)
        check("layer_end", group, cache.layout.first_layer + i + 1)
        check("num_logical_pages", group, len(pages))
        check("dtype", group, cache.layout.dtype.name)
        check("shape", group, list(shape))
        check("nbytes", group, size_of(shape, cache.layout.dtype.itemsize))
    return length


def _short(value: Any) -> str:
    return repr(value)[:80]


def _importing(cache: PagedAttentionCache, number: int, subject: str) -> list[bool]:
    if cache.import_of is None:
        raise InternalError(f"{subject}: checkpoint import has not been prepared")
    if number != 0:
        raise InternalError(
            f"{subject}: checkpoint import only supports sequence id 0, got {number}"
        )
    found: list[bool] = cache.import_of
    return found


@builtin(
    "attention_kv_cache_import_page_group",
    "cache: object, sequence: int, group: int, data: tensor",
    result="none",
)
def attention_kv_cache_import_page_group(cache: Any, sequence: Any, group: Any, data: Any) -> None:
    """Read the pages of a layer from ``data: [1, pages, 2, heads, page_size, head_dim]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: no import is prepared, the group is not there or imported already, or the
            tensor does not fit.
    """
    subject = "attention_kv_cache_import_page_group"
    held = as_paged(cache, subject)
    number, index = as_int(sequence, subject), as_int(group, subject)
    tensor = as_array(data, f"{subject}: data")
    done = _importing(held, number, subject)
    slots = held.table.slots(number)
    size = held.layout.page_size
    _group(held, index, tensor, _pages(held, len(slots)), subject, "ImportPageGroup")
    if done[index]:
        raise InternalError(f"{subject}: the group {index} is imported already")
    for i in range(_pages(held, len(slots))):
        part = slots[i * size : (i + 1) * size]
        pages, places = np.divmod(part, size)
        group_page = tensor[0, i, :, :, : len(part)]  # [2, head, place, dim]
        held.pages[index][pages, :, :, places] = group_page.transpose(2, 0, 1, 3)
    done[index] = True


@builtin(
    "attention_kv_cache_finish_import", "cache: object, sequence: int", result="none"
)
def attention_kv_cache_finish_import(cache: Any, sequence: Any) -> None:
    """End the import of a checkpoint.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: no import is prepared, or a group is missing.
    """
    subject = "attention_kv_cache_finish_import"
    held, number = as_paged(cache, subject), as_int(sequence, subject)
    done = _importing(held, number, subject)
    if not all(done):
        raise InternalError(f"{subject}: the import is missing group {done.index(False)}")
    held.import_of = None
