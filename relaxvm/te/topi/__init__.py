"""Operators on tensor expressions.

Operands may be tensors, numbers and scalars.  `basic` has what works element by element, reductions
and shapes, `arrays` what arranges and finds elements, `nn` the layers of networks.

Source: ``tvm.topi`` of apache-tvm 0.27, the part that programs of Relax use.
"""

# ruff: noqa: F403
from . import arrays, basic, nn
from .arrays import *
from .basic import *

__all__ = [*arrays.__all__, *basic.__all__, "nn"]
