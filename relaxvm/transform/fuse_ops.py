"""FuseOps: put calls that can run as one into one function, or into one kernel."""

from __future__ import annotations

from typing import Any, Final

from ..ir import (
    BindingBlock,
    DataflowBlock,
    ExprMutator,
    Function,
    IRModule,
    TupleType,
    Var,
)
from ._fusion_groups import fusion_groups
from ._grouping import Functions, Group, grouped_block
from ._kernel_chains import MIN_ELEMENTS, fuse_kernels
from .config import register_config_option
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["FuseOps"]

MAX_DEPTH: Final = "relax.FuseOps.max_depth"
register_config_option(MAX_DEPTH)
MOST_CALLS: Final = 256
"""The greatest number of calls in a group, unless the option `MAX_DEPTH` says otherwise."""


class _Grouper(ExprMutator):
    """Makes functions of groups of calls of PrimFuncs in the dataflow blocks of a function."""

    def __init__(self, func: Function, functions: Functions, most: int) -> None:
        super().__init__()
        self._functions = functions
        self._most = most
        self._packed = _packed_params(func)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        visited = super().visit_block(block)
        if not isinstance(visited, DataflowBlock):
            return visited
        groups = []
        for bindings in fusion_groups(visited, self._functions.mod, self._packed, self._most):
            group = Group({"Primitive": True})
            group.bindings = bindings
            groups.append(group)
        if not groups:
            return visited
        return grouped_block(visited, groups, self._functions, {}, bind_constants=False)


def _packed_params(func: Function) -> frozenset[Var]:
    """The parameters after the inputs that are tuples, as `LiftTransformParams` makes them."""
    num_input = func.attrs.get("num_input")
    if num_input is None:
        return frozenset()
    weights = func.params[int(num_input) :]
    return frozenset([param for param in weights if isinstance(param.ty, TupleType)])


def FuseOps(
    fuse_opt_level: int = -1,
    *,
    min_length: int = 2,
    min_elements: int = MIN_ELEMENTS,
    in_tiles: bool = False,
) -> Pass:
    """In dataflow blocks, put calls that can run as one together.

    Calls of PrimFuncs: those with the attribute "op_pattern", which `AnnotateTIROpPattern` sets,
    are put into private functions with the attribute "Primitive"; `FuseTIR` makes a PrimFunc of
    each.  A convolution or product takes the elementwise functions of its result, elementwise and
    injective functions take each other.  What is computed for nothing in such a group is dropped.

    Kernels: elementwise kernels whose results have no other use become one with the kernels that
    use them: a call of ``relaxvm.kernel.fused``, which processes memory in blocks, so that
    intermediate results stay in the cache.  Results are equal bit for bit.  All results in such a
    chain have the same shape; its inputs may broadcast.

    Requires: for PrimFuncs AnnotateTIROpPattern, for kernels LegalizeOps.

    Args:
        fuse_opt_level: 0 disables fusion; -1 is the level of the `PassContext`.
        min_length: the minimum number of kernels in a chain.
        min_elements: the minimum number of elements of its result, if known: small tensors stay in
            the cache anyway, and calling a chain costs more than calling a few kernels.
        in_tiles: chains of float32 will run in C, tile by tile and on several threads, as they do
            where there are kernels for the processor's instructions: so one kernel with a large
            result is a chain, too.

    The option "relax.FuseOps.max_depth" of the `PassContext` is the greatest number of calls of
    PrimFuncs in a group, 256 by default.

    Source: ``relax.transform.FuseOps`` of apache-tvm 0.27; chains of kernels are relaxvm's.
    """

    @module_pass(name="FuseOps", opt_level=1)
    def run(mod: IRModule, ctx: PassContext) -> Any:
        if (ctx.opt_level if fuse_opt_level == -1 else fuse_opt_level) == 0:
            return mod
        most = int(ctx.config.get(MAX_DEPTH, MOST_CALLS))
        functions = Functions(mod)
        is_changed = False
        for var, func in mod.items():
            if not isinstance(func, Function):
                continue
            try:
                new = func
                if not {"Primitive", "Codegen"} & set(func.attrs):
                    new = _Grouper(func, functions, most).visit(func)
                new = fuse_kernels(new, min_length, min_elements, in_tiles)
            except Exception as error:
                error.add_note(f"in function {var.name_hint!r}")
                raise
            if new is not func:
                functions.mod[var] = new
                is_changed = True
        return functions.mod if is_changed else mod

    return run
