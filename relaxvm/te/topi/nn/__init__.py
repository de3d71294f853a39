"""``topi.nn``: layers of networks.

`layers` has products, convolutions, pools and normalization, `transposed` the convolutions that go
the other way, `spatial` what pads, spreads and rearranges images, `more` other layers.
"""

# ruff: noqa: F403
from .._arguments import check_arguments
from . import layers, more, spatial, transposed
from .layers import *
from .more import *
from .spatial import *
from .transposed import *

for _module in (layers, more, spatial, transposed):
    globals().update(check_arguments(vars(_module)))

__all__ = [*layers.__all__, *more.__all__, *spatial.__all__, *transposed.__all__]
