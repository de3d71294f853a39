"""Operators ``relax.nn.*``: the parts of neural networks."""

from __future__ import annotations

from typing import Any

from ..registry import CONSTRUCTORS, offered
from . import (
    activation,
    convolution,
    dot_product_attention,
    loss,
    normalization,
    padding,
    pooling,
    rearranging,
    rectifiers,
    recurrent,
    recurrent_attention,
)

__all__ = [
    "activation",
    "convolution",
    "dot_product_attention",
    "loss",
    "normalization",
    "padding",
    "pooling",
    "rearranging",
    "rectifiers",
    "recurrent",
    "recurrent_attention",
]

_PREFIX = "nn."


def __getattr__(name: str) -> Any:
    return offered(_PREFIX, name)


def __dir__() -> list[str]:
    return sorted(name.removeprefix(_PREFIX) for name in CONSTRUCTORS if name.startswith(_PREFIX))
