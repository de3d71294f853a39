"""RunCodegen: give functions to code generators of others, and call what those make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ..errors import did_you_mean
from ..ir import (
    Call,
    Constant,
    ExprMutator,
    ExprVisitor,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    TensorType,
    TupleType,
)
from ..op.base import call_dps_packed
from ..registry import get_func, list_funcs
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["RunCodegen"]

PREFIX: Final = "relax.ext."
"""What the names of registered code generators begin with."""

EXTERNAL_MODS: Final = "external_mods"
"""The attribute of a module for what code generators returned; `relaxvm.build` links it."""


def RunCodegen(
    target_options: Mapping[str, Mapping[str, Any]] | None = None,
    entry_functions: Sequence[str] | None = None,
    *,
    codegens: Mapping[str, Callable[..., Any]] | None = None,
) -> Pass:
    """Replace functions with the attribute "Codegen" by what the code generator of that name makes.

    A code generator is called once with all functions for it: ``generator(functions, options,
    constant_names)``, where the last are names for the constants of the functions.  It returns
    modules: mappings from names to functions, or objects with TVM's ``get_function(name)``.  A
    function of the program becomes a call, in destination-passing style, of the function of its
    "global_symbol" there, or of the one that is registered by that name when a VM is created.

    Args:
        target_options: options by code generator.
        entry_functions: see `DeadCodeElimination`; accepted for compatibility and ignored.
        codegens: code generators by name, before those registered as "relax.ext." and a name.

    Raises:
        ValueError: there is no code generator of a name; it returns something else; or the shape
            of a result is not known.
    """
    del entry_functions
    options, own = dict(target_options or {}), dict(codegens or {})

    @module_pass(name="RunCodegen")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        external: dict[GlobalVar, str] = {}
        by_codegen: dict[str, list[Function]] = {}
        for var, func in mod.functions.items():
            name = func.attrs.get("Codegen")
            if isinstance(func, Function) and name is not None:
                symbol = str(func.attrs.get("global_symbol", var.name_hint))
                external[var] = symbol
                named = func.with_attr("global_symbol", symbol)
                by_codegen.setdefault(str(name), []).append(named)
        if not external:
            return mod
        made: list[Any] = list(mod.get_attr(EXTERNAL_MODS) or ())
        for name, functions in by_codegen.items():
            generator = own.get(name) or _registered(name)
            names = _constant_names(functions)
            made += _modules(generator(functions, dict(options.get(name, {})), names), name)
        caller = _Caller(external)
        new = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
        new.sources, new.span = mod.sources, mod.span
        for var, func in mod.functions.items():
            if var not in external:
                new[var] = caller.visit(func) if isinstance(func, Function) else func
        return new.with_attr(EXTERNAL_MODS, tuple(made)) if made else new

    return run


def _registered(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = get_func(PREFIX + name, allow_missing=True)
    if found is None:
        known = [each for each in list_funcs() if each.startswith(PREFIX)]
        raise ValueError(
            f"RunCodegen: there is no code generator {name!r}: register one as {PREFIX + name!r}, "
            f"or pass codegens={{{name!r}: function}}{did_you_mean(PREFIX + name, known)}"
        )
    return found


def _modules(made: Any, name: str) -> list[Any]:
    modules = [made] if isinstance(made, Mapping) or hasattr(made, "get_function") else made
    if modules is None:
        return []
    if isinstance(modules, Iterable):
        found = list(modules)
        if all(isinstance(m, Mapping) or hasattr(m, "get_function") for m in found):
            return found
    raise ValueError(
        f"RunCodegen: code generator {name!r}: expected a list of modules, which are mappings or "
        f"have get_function, got {made!r}"
    )


class _Constants(ExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Constant, None] = {}

    def visit_constant(self, constant: Constant) -> None:
        self.found[constant] = None


def _constant_names(functions: Iterable[Function]) -> dict[Constant, str]:
    names: dict[Constant, str] = {}
    for func in functions:
        constants = _Constants()
        constants.visit(func)
        for number, constant in enumerate(constants.found):
            names.setdefault(constant, f"{func.attrs['global_symbol']}_const_{number}")
    return names


class _Caller(ExprMutator):
    """Replaces calls of functions by calls in destination-passing style."""

    def __init__(self, external: Mapping[GlobalVar, str]) -> None:
        super().__init__()
        self._external = external

    def visit_call(self, call: Call) -> Any:
        new: Any = super().visit_call(call)
        symbol = self._external.get(new.op) if isinstance(new.op, GlobalVar) else None
        if symbol is None:
            return new
        types = new.ty.fields if isinstance(new.ty, TupleType) else [new.ty]
        for ty in types:
            if not isinstance(ty, TensorType) or ty.shape is None or ty.dtype is None:
                raise ValueError(
                    f"RunCodegen: the result of {symbol!r} is of type {new.ty}: expected tensors "
                    "of known shape and data type, which the caller allocates"
                )
        packed = call_dps_packed(ExternFunc(symbol), list(new.args), list(types))
        packed.span = call.span
        return packed
