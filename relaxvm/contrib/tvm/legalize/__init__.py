"""``tvm.relax.transform.LegalizeOps``: operators become PrimFuncs, as in TVM.

Programs for TVM look at these PrimFuncs: they find them by name in the module, fuse them, or change
their loops.  So the names and the loops are TVM's.  Builds do not use this: their legalization, of
`relaxvm.transform`, calls kernels, which are faster and more exact in a few corners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....ir.op import attrs_of_ops
from ....transform import LegalizeOps as _LegalizeOps
from ....transform import Pass
from . import arrays, attention, elementwise, nn, reductions, windows  # noqa: F401  (fill the table)
from .rules import rules_of_table

__all__ = ["LegalizeOps"]


def LegalizeOps(
    customize_legalize_map: Mapping[str, Callable[..., Any]] | None = None,
    skip_ops: Iterable[str] | None = None,
    enable_warning: bool = False,
) -> Pass:
    """Replace calls of operators by ``R.call_tir`` of PrimFuncs with TVM's names and loops.

    Operators that are not in the table, and calls whose shapes are not known, are legalized as by
    `relaxvm.transform.LegalizeOps`.  Rules of `register_legalize` and of `customize_legalize_map`
    come first.
    """
    registered = attrs_of_ops("FLegalize")
    rules = {name: rule for name, rule in rules_of_table().items() if name not in registered}
    return _LegalizeOps({**rules, **(customize_legalize_map or {})}, skip_ops, enable_warning)
