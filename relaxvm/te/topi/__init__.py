"""Operators on tensor expressions.

Operands may be tensors, numbers and scalars.  `basic` has what works element by element, reductions
and shapes, `arrays` what arranges and finds elements, `places` what selects them, `contraction`
sums of products, `fixed` fixed-point numbers, `sort`, `scan` and `scatter` what statements compute,
and `nn` the layers of networks.  The functions of this package and of `nn` check the types of their
arguments; those of the modules are for operators that have done so.

Source: ``tvm.topi`` of apache-tvm 0.27, without what is for devices.
"""

# ruff: noqa: F403
from . import arrays, basic, contraction, fixed, nn, places, scan, scatter
from . import sort as _sort
from ._arguments import check_arguments
from .arrays import *
from .basic import *
from .contraction import *
from .fixed import *
from .places import *
from .scan import *
from .scatter import *
from .sort import *

for _module in (arrays, basic, contraction, fixed, places, scan, scatter, _sort):
    globals().update(check_arguments(vars(_module)))

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
