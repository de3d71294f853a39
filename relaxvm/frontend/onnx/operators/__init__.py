"""The ONNX operators, one file for each family; importing them registers them."""

from . import (
    attention,
    control,
    conversions,
    creation,
    elementwise,
    gathering,
    images,
    movement,
    neural,
    products,
    quantized,
    recurrent,
    reductions,
    sequences,
    windows,
)

__all__ = [
    "attention",
    "control",
    "conversions",
    "creation",
    "elementwise",
    "gathering",
    "images",
    "movement",
    "neural",
    "products",
    "quantized",
    "recurrent",
    "reductions",
    "sequences",
    "windows",
]
