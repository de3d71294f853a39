"""A model run by relaxvm and by another package, node by node.

`compare` takes an ONNX model and onnxruntime or the reference evaluator of the package onnx, or an
archive of ``torch.export`` and torch.  Both sides compute the values of a few nodes at a time,
which are dropped after that: memory does not grow with the number of nodes.  On relaxvm's side the
program is compiled as always, with these values as further results.

`relaxvm.contrib.compare.others` has one class for each of the other packages.
"""

from __future__ import annotations

from .comparison import COUNT, WITHIN, Difference, Value, compare, executable_of, values_of
from .others import OTHERS

__all__ = [
    "COUNT",
    "OTHERS",
    "WITHIN",
    "Difference",
    "Value",
    "compare",
    "executable_of",
    "values_of",
]
