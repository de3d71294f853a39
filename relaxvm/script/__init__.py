"""Relax script: programs as text, with a parser and a printer.

::

    from relaxvm.script import ir as I, relax as R, tir as T

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            y = R.add(x, x)
            return y

`from_source` parses a text, ``node.script()`` and `printer.as_script` print one.
"""

from __future__ import annotations

from . import ir, relax, tir
from .entry import from_source
from .ir import ir_module
from .printer import as_script

__all__ = ["as_script", "from_source", "ir", "ir_module", "relax", "tir"]
