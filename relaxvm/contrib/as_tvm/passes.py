"""Passes of ``tvm.relax`` that relaxvm has in another form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import transform
from ...frontend.nn import ExternModule
from ...ir import BlockBuilder, Call, Expr, IRModule
from ...messages import describe
from ...op.registry import OPERATORS, PREFIX
from ...te import topi
from ...transform import Pass, PassContext, module_pass
from ...transform.run_codegen import EXTERNAL_MODS

__all__ = ["AttachExternModules", "DispatchSampling", "DispatchSortScan", "FoldConstant"]


def AttachExternModules(extern_modules: Sequence[Any]) -> Pass:
    """Add functions from outside to a module, which `relaxvm.build` links.

    Args:
        extern_modules: external modules.  ``load()`` of one returns its functions: a mapping, or an
            object with ``get_function(name)``, which may be given themselves, too.  A plain
            `nn.ExternModule` only has names; its functions are registered or passed to the machine.

    Raises:
        TypeError: something else is given, or loaded.
    """

    @module_pass(name="AttachExternModules", opt_level=0)
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        loaded = [found for each in extern_modules if (found := _loaded(each)) is not None]
        known = tuple(mod.get_attr(EXTERNAL_MODS) or ())
        return mod.with_attr(EXTERNAL_MODS, (*known, *loaded)) if loaded else mod

    return run


def _loaded(module: Any) -> Any:
    load = getattr(module, "load", None)
    found = module if load is None else load()
    if isinstance(found, Mapping) or hasattr(found, "get_function"):
        return found
    if isinstance(found, ExternModule) and load is None:
        return None
    raise TypeError(
        "AttachExternModules: expected external modules, mappings of functions or modules with "
        f"get_function, got {describe(found)}"
    )


def FoldConstant() -> Pass:
    """See `relaxvm.transform.FoldConstant`; TVM folds in dataflow blocks alone."""
    return transform.FoldConstant(only_dataflow=True)


def _sort(builder: BlockBuilder, call: Call) -> Expr:
    return builder.call_te(
        topi.sort, call.args[0], axis=call.attrs["axis"], is_ascend=not call.attrs["descending"]
    )


def _argsort(builder: BlockBuilder, call: Call) -> Expr:
    return builder.call_te(
        topi.argsort, call.args[0], axis=call.attrs["axis"],
        is_ascend=not call.attrs["descending"], dtype=call.attrs["dtype"],
    )  # fmt: skip


def _topk(builder: BlockBuilder, call: Call) -> Expr:
    attrs = call.attrs
    return builder.call_te(
        topi.topk, call.args[0], k=attrs["k"], axis=attrs["axis"], ret_type=attrs["ret_type"],
        is_ascend=not attrs["largest"], dtype=attrs["dtype"],
    )  # fmt: skip


def _scan(scan: Any) -> Any:
    def rule(builder: BlockBuilder, call: Call) -> Expr:
        attrs = call.attrs
        return builder.call_te(
            scan, call.args[0], axis=attrs["axis"], dtype=attrs["dtype"],
            exclusive=attrs["exclusive"],
        )  # fmt: skip

    return rule


_DISPATCHED = {
    "relax.sort": _sort,
    "relax.argsort": _argsort,
    "relax.topk": _topk,
    "relax.cumsum": _scan(topi.cumsum),
    "relax.cumprod": _scan(topi.cumprod),
}


def DispatchSortScan() -> Pass:
    """Replace sorting and scans by PrimFuncs, those of ``tvm.topi``."""
    others = [f"{PREFIX}{name}" for name in OPERATORS if f"{PREFIX}{name}" not in _DISPATCHED]
    return transform.LegalizeOps(_DISPATCHED, skip_ops=others)


def DispatchSampling() -> Pass:
    """Replace sampling by what a GPU does; on the CPU nothing changes."""

    @module_pass(name="DispatchSampling", opt_level=0)
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return mod

    return run
