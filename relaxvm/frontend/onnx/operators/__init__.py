"""The ONNX operators, one file for each family; importing them registers them."""

from . import control, creation, elementwise, movement, neural, products, recurrent, reductions

__all__ = [
    "control",
    "creation",
    "elementwise",
    "movement",
    "neural",
    "products",
    "recurrent",
    "reductions",
]
