"""Operators on tensor expressions.

Operands may be tensors, numbers and scalars.  `basic` has what works element by element, reductions
and shapes, `arrays` what arranges and finds elements, `places` what selects them, `contraction`
sums of products, `fixed` fixed-point numbers, `sort`, `scan` and `scatter` what statements compute,
and `nn` the layers of networks.

Source: ``tvm.topi`` of apache-tvm 0.27, without what is for devices.
"""

# ruff: noqa: F403
from . import arrays, basic, contraction, fixed, nn, places, scan, scatter
from . import sort as _sort
from .arrays import *
from .basic import *
from .contraction import *
from .fixed import *
from .places import *
from .scan import *
from .scatter import *
from .sort import *

__all__ = [
    *arrays.__all__,
    *basic.__all__,
    *contraction.__all__,
    *fixed.__all__,
    *places.__all__,
    *scan.__all__,
    *scatter.__all__,
    *_sort.__all__,
    "nn",
]
