"""The allowed keys of ``PassContext(config=...)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..errors import did_you_mean

__all__ = ["register_config_option"]

WITHOUT_EFFECT: Final = frozenset(
    [
        "relax.backend.use_cuda_graph",
        "relax.fallback_device_type",
        "relax.transform.apply_legalize_ops",
        "s_tir.HoistExpression",
        "s_tir.HoistIfThenElse",
        "s_tir.InjectDoubleBuffer",
        "s_tir.LoopPartition",
        "s_tir.instr_siblings",
        "s_tir.lwp_disable_func_prof",
        "s_tir.lwp_max_depth",
        "s_tir.lwp_min_height",
        "s_tir.reset_start_id",
        "testing.immutable_module",
        "tirx.RemoveNoOp",
        "tirx.StmtSimplify",
        "tirx.UnrollLoop",
        "tirx.debug_keep_trivial_loop",
        "tirx.disable_assert",
        "tirx.disable_cse_tir",
        "tirx.disable_storage_rewrite",
        "tirx.disable_vectorize",
        "tirx.enable_buffer_level_predication",
        "tirx.enable_debug",
        "tirx.enable_fast_math",
        "tirx.instrument_bound_checkers",
        "tirx.instrument_lwp",
        "tirx.is_entry_func",
        "tirx.merge_static_smem",
        "tirx.noalias",
        "tirx.s_tir.ldg32",
        "tirx.use_async_copy",
        "tirx.vtcm_capacity",
    ]
)
"""Keys of apache-tvm 0.27 that tune TVM's own passes; they are accepted and ignored, since they do
not change results.  "tirx.add_lower_pass" is not among them, since it adds passes."""

_registered: set[str] = set()


def register_config_option(key: str) -> None:
    """Declare a key of `PassContext.config`, for user-defined passes.  May be called repeatedly
    with the same key.

    Raises:
        TypeError: the key is not a string.
        ValueError: it is a key of TVM, which would have no effect.
    """
    if not isinstance(key, str):
        raise TypeError(f"register_config_option: key: expected a string, got {type(key).__name__}")
    if key in WITHOUT_EFFECT:
        raise ValueError(f"register_config_option: {key!r} is a key of TVM; choose another one")
    _registered.add(key)


def check_config_keys(keys: Iterable[str]) -> None:
    """Check that all keys are known.

    Raises:
        AttributeError: a key is unknown.
    """
    for key in keys:
        if key not in WITHOUT_EFFECT and key not in _registered:
            hint = did_you_mean(str(key), WITHOUT_EFFECT | _registered)
            raise AttributeError(
                f"PassContext: config: unknown key {key!r}"
                f"{hint or '; register_config_option makes one known'}"
            )
