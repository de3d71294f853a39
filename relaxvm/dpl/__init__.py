"""The pattern language: find expressions of a shape of your choice, and replace them.

`pattern` has the patterns, `matcher` matches one expression, `context` and `graph` a dataflow block
as a graph, `rewrite` replaces what matches.  Names are those of ``tvm.relax.dpl``.

Passes find patterns, and rewriting ends with passes; so `rewrite` is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import context, pattern
from .context import PatternContext
from .matcher import Matcher, extract_matched_expr, match_expr
from .pattern import *  # noqa: F403

if TYPE_CHECKING:
    from .rewrite import (
        ExprPatternRewriter,
        OrRewriter,
        PatternMatchingRewriter,
        rewrite_bindings,
        rewrite_call,
        rewrite_calls,
    )

_REWRITING = (
    "ExprPatternRewriter",
    "OrRewriter",
    "PatternMatchingRewriter",
    "rewrite_bindings",
    "rewrite_call",
    "rewrite_calls",
)

__all__ = [
    *pattern.__all__,
    *context.__all__,
    "ExprPatternRewriter",
    "Matcher",
    "OrRewriter",
    "PatternContext",
    "PatternMatchingRewriter",
    "extract_matched_expr",
    "match_expr",
    "rewrite_bindings",
    "rewrite_call",
    "rewrite_calls",
]


def __getattr__(name: str) -> Any:
    if name in _REWRITING:
        from . import rewrite

        return getattr(rewrite, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
