"""Passes of ``tvm.relax.transform`` that relaxvm has in another form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import transform
from ...frontend.nn import ExternModule
from ...ir import IRModule
from ...messages import describe
from ...transform import Pass, PassContext, module_pass
from ...transform.run_codegen import EXTERNAL_MODS

__all__ = ["AttachExternModules", "FoldConstant"]


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
