"""Pipelines: passes in order, by name.

`LOWERING` is what every program goes through on its way to bytecode.  ``get_pipeline("default")``
is that and nothing else; "zero" optimizes and leaves the program in Relax.

Source: ``relax.pipeline`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from . import transform
from .errors import did_you_mean
from .transform import Pass, Sequential

__all__ = ["LOWERING", "LOWERING_FOR_TVM", "default_build_pipeline", "get_pipeline",
           "register_pipeline", "tvm_pipeline", "zero_pipeline"]  # fmt: skip

LOWERING: Final[tuple[tuple[Callable[[], Pass], str], ...]] = (
    (transform.LambdaLift, "the VM has functions on the top level only"),
    (transform.LegalizeOps, "operators become calls of kernels that write their outputs"),
    (transform.RewriteDataflowReshape, "a reshape that stays inside is a view, not a copy"),
    (transform.ToNonDataflow, "from here on bindings have effects"),
    (transform.RemovePurityChecking, "and functions may have them inside"),
    (transform.CallTIRRewrite, "kernels get their outputs allocated"),
    (transform.WriteInPlace, "elementwise kernels write over inputs that nobody needs any more"),
    (transform.PlanMemory, "allocations share storages"),
    (transform.LowerAllocTensor, "what was not planned gets a storage of its own"),
    (transform.KillAfterLastUse, "memory is let go as early as possible"),
    (transform.LowerRuntimeBuiltin, "operators of the VM become calls of its builtins"),
    (
        partial(transform.ComputePrimValue, use_heap=True),
        "scalar computations become functions, where they are no arithmetic of shapes",
    ),
    (transform.VMShapeLower, "symbolic shapes move to the shape heap, arguments are checked"),
    (transform.ReuseShapes, "equal shapes are made once"),
    (transform.AttachGlobalSymbol, "functions know the names they are called by"),
)
"""(pass, why it is there), in order."""

LOWERING_FOR_TVM: Final[tuple[tuple[Callable[[], Pass], str], ...]] = (
    (transform.LambdaLift, "the VM has functions on the top level only"),
    (transform.LegalizeToLoops, "operators become PrimFuncs: TVM has no kernels of relaxvm"),
    (transform.RewriteDataflowReshape, "a reshape that stays inside is a view, not a copy"),
    (transform.ReshapeInLoops, "other reshapes are PrimFuncs as well"),
    (transform.ToNonDataflow, "from here on bindings have effects"),
    (transform.RemovePurityChecking, "and functions may have them inside"),
    (transform.CallTIRRewrite, "kernels get their outputs allocated"),
    (transform.StaticPlanBlockMemory, "allocations share storages, as TVM plans it"),
    (transform.LowerAllocTensor, "what was not planned gets a storage of its own"),
    (transform.KillAfterLastUse, "memory is let go as early as possible"),
    (transform.LowerRuntimeBuiltin, "operators of the VM become calls of its builtins"),
    (transform.ComputePrimValue, "scalar computations become functions"),
    (transform.VMShapeLower, "symbolic shapes move to the shape heap, arguments are checked"),
    (transform.CompileShapeFunctions, "by functions: TVM has no arithmetic of shapes"),
    (transform.ReuseShapes, "equal shapes are made once"),
    (transform.AttachGlobalSymbol, "functions know the names they are called by"),
)
"""As `LOWERING`, for what TVM has builtins for."""

_PIPELINES: dict[str, Callable[..., Pass]] = {}


def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Decorator: make a function that returns a pass known by a name.

    Raises:
        ValueError: the name is taken.
    """
    if name in _PIPELINES:
        raise ValueError(f"pipeline {name!r} is registered already")

    def decorate(make: Callable[..., Pass]) -> Callable[..., Pass]:
        _PIPELINES[name] = make
        return make

    return decorate


def get_pipeline(name: str = "zero", **options: Any) -> Pass:
    """The pipeline of a name, as one pass.

    Raises:
        ValueError: no pipeline has that name.
    """
    make = _PIPELINES.get(name)
    if make is None:
        raise ValueError(
            f"unknown pipeline {name!r}; there are: {', '.join(sorted(_PIPELINES))}"
            f"{did_you_mean(name, _PIPELINES)}"
        )
    return make(**options)


@register_pipeline("default_build")
def default_build_pipeline() -> Pass:
    """From Relax to what the code generator takes; `LOWERING` in one pass."""
    return Sequential([make() for make, _ in LOWERING], name="default_build")


_PIPELINES["default"] = default_build_pipeline


@register_pipeline("tvm")
def tvm_pipeline() -> Pass:
    """`LOWERING_FOR_TVM` in one pass: programs that TVM's VM runs as well, see
    `VMExecutable.export_library`."""
    return Sequential([make() for make, _ in LOWERING_FOR_TVM], name="tvm")


@register_pipeline("zero")
def zero_pipeline() -> Pass:
    """Optimizes without lowering: constants folded, common subexpressions shared, elementwise
    operators fused, dead code removed."""
    return Sequential(
        [
            transform.CanonicalizeBindings(),
            transform.EliminateCommonSubexpr(),
            transform.FoldConstant(),
            transform.LegalizeOps(),
            transform.FuseOps(),
            transform.DeadCodeElimination(),
        ],
        name="zero",
    )
