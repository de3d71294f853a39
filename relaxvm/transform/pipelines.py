"""Pipelines: named sequences of passes.

`LOWERING` are the passes that lower a program to a form for the code generator.
``get_pipeline("default")`` is exactly these passes; "zero" optimizes and leaves the program in
Relax.

Source: ``relax.pipeline`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from .. import transform
from ..errors import did_you_mean
from . import Pass, Sequential
from ._kernel_chains import MIN_IN_TILES

__all__ = ["LOWERING", "LOWERING_FOR_TVM", "check_settings", "default_build_pipeline",
           "get_pipeline", "model_pipeline", "register_pipeline", "tvm_pipeline",
           "zero_pipeline"]  # fmt: skip

_MEMORY: Final = ("default", "low")
"""Whether a model may take more memory to be faster."""
_PRECISION: Final = ("default", "bfloat16")
"""Of the operands of a model's products."""

LOWERING: Final[tuple[tuple[Callable[[], Pass], str], ...]] = (
    (transform.LowerDataTypes, "values of data types and matches become calls of builtins and ifs"),
    (transform.LambdaLift, "the VM has only top-level functions"),
    (transform.LegalizeOps, "operators are replaced by calls of kernels that write their outputs"),
    (transform.ReturnResults, "kernels allocate results whose shape only they find"),
    (transform.RewriteDataflowReshape, "reshapes inside a dataflow block become views"),
    (transform.ToNonDataflow, "later passes add side effects"),
    (transform.RemovePurityChecking, "from here on, pure functions may have side effects inside"),
    (transform.CallTIRRewrite, "outputs of kernels are allocated explicitly"),
    (transform.ConcatInPlace, "parts of a concatenation are computed at their places in it"),
    (transform.WriteInPlace, "elementwise kernels overwrite inputs that are no longer used"),
    (transform.PlanMemory, "tensors share storages"),
    (transform.LowerAllocTensor, "tensors that were not planned get their own storage"),
    (transform.KillAfterLastUse, "memory is released as early as possible"),
    (transform.LowerRuntimeBuiltin, "operators of the VM are replaced by calls of its builtins"),
    (
        partial(transform.ComputePrimValue, use_heap=True),
        "scalar computations become functions, unless they compute shapes",
    ),
    (transform.VMShapeLower, "symbolic shapes move to the shape heap, arguments are checked"),
    (transform.ReuseShapes, "equal shapes are created only once"),
    (transform.AttachGlobalSymbol, "functions get the names that they have at run time"),
)
"""(pass, reason), in order."""

LOWERING_FOR_TVM: Final[tuple[tuple[Callable[[], Pass], str], ...]] = (
    (transform.LowerDataTypes, "values of data types and matches become calls of builtins and ifs"),
    (transform.LambdaLift, "the VM has only top-level functions"),
    (transform.LegalizeToLoops, "operators become PrimFuncs: TVM does not have our kernels"),
    (transform.RewriteDataflowReshape, "reshapes inside a dataflow block become views"),
    (transform.ReshapeInLoops, "other reshapes become PrimFuncs too"),
    (transform.ToNonDataflow, "later passes add side effects"),
    (transform.RemovePurityChecking, "from here on, pure functions may have side effects inside"),
    (transform.CallTIRRewrite, "outputs of kernels are allocated explicitly"),
    (transform.StaticPlanBlockMemory, "tensors share storages, planned as by TVM"),
    (transform.LowerAllocTensor, "tensors that were not planned get their own storage"),
    (transform.KillAfterLastUse, "memory is released as early as possible"),
    (transform.LowerRuntimeBuiltin, "operators of the VM are replaced by calls of its builtins"),
    (transform.ComputePrimValue, "scalar computations become functions"),
    (transform.VMShapeLower, "symbolic shapes move to the shape heap, arguments are checked"),
    (transform.CompileShapeFunctions, "TVM does not have shape programs"),
    (transform.ReuseShapes, "equal shapes are created only once"),
    (transform.AttachGlobalSymbol, "functions get the names that they have at run time"),
)
"""As `LOWERING`, with only those builtins that TVM has."""

_PIPELINES: dict[str, Callable[..., Pass]] = {}


def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Decorator: register a function that returns a pass as a pipeline.

    Raises:
        ValueError: the name is taken.
    """
    if name in _PIPELINES:
        raise ValueError(f"pipeline {name!r} is already registered")

    def decorate(make: Callable[..., Pass]) -> Callable[..., Pass]:
        _PIPELINES[name] = make
        return make

    return decorate


def registered_pipelines() -> list[Callable[..., Pass]]:
    """The functions that return the pipelines."""
    return list(_PIPELINES.values())


def get_pipeline(name: str = "zero", **options: Any) -> Pass:
    """Return a pipeline as one pass.

    Raises:
        ValueError: there is no pipeline of that name.
    """
    make = _PIPELINES.get(name)
    if make is None:
        raise ValueError(
            f"unknown pipeline {name!r}; there are: {', '.join(sorted(_PIPELINES))}"
            f"{did_you_mean(name, _PIPELINES)}"
        )
    return make(**options)


@register_pipeline("default_build")
def default_build_pipeline(*, keep_apart: bool = False) -> Pass:
    """Lower a program for the code generator: `LOWERING` as one pass.

    Args:
        keep_apart: plan memory for the dataflow executor, see `PlanMemory`.
    """
    return Sequential(_lowering(keep_apart), name="default_build")


def _lowering(keep_apart: bool) -> list[Pass]:
    return [
        transform.PlanMemory(keep_apart=keep_apart) if make is transform.PlanMemory else make()
        for make, _ in LOWERING
    ]


_PIPELINES["default"] = default_build_pipeline


@register_pipeline("tvm")
def tvm_pipeline() -> Pass:
    """Lower a program for TVM's VM: `LOWERING_FOR_TVM` as one pass; see
    `VMExecutable.export_library`."""
    return Sequential([make() for make, _ in LOWERING_FOR_TVM], name="tvm")


@register_pipeline("dataflow")
def dataflow_pipeline() -> Pass:
    """What "default_build" does, for ``VirtualMachine(..., executor="dataflow")``; `build` takes
    "model" with `keep_apart` in its place for models of other frontends."""
    return Sequential(_lowering(keep_apart=True), name="dataflow")


@register_pipeline("zero")
def zero_pipeline() -> Pass:
    """Optimize without lowering: fold constants, share common subexpressions, fuse elementwise
    operators, remove dead code."""
    return Sequential(
        [
            transform.CanonicalizeBindings(),
            transform.EliminateCommonSubexpr(),
            transform.CanonicalizeBindings(),  # values that were shared have two names
            transform.FoldConstant(),
            transform.LegalizeOps(),
            transform.FuseOps(),
            transform.DeadCodeElimination(),
        ],
        name="zero",
    )


def check_settings(precise: bool, memory: str, precision: str) -> None:
    """Check the settings of the pipeline for models.

    Raises:
        TypeError: `precise` is no bool.
        ValueError: there is no such setting, or `precise` and `precision` exclude each other.
    """
    if not isinstance(precise, bool):
        raise TypeError(f"precise: expected a bool, got {type(precise).__name__}")
    for name, value, known in (("memory", memory, _MEMORY), ("precision", precision, _PRECISION)):
        if value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    if precise and precision != "default":
        raise ValueError(
            f"precise=True and precision={precision!r} exclude each other: the one is for results "
            "that are as exact as those of numpy, the other for speed"
        )


@register_pipeline("model")
def model_pipeline(
    *,
    precise: bool = False,
    keep_apart: bool = False,
    round_halves: bool = False,
    memory: str = "default",
    precision: str = "default",
) -> Pass:
    """Optimize a model and lower it: what "zero" does, with float16 computed in float32,
    normalizations folded into convolutions and convolutions in blocks of channels, and then
    `LOWERING`.

    Args:
        precise: leave out what changes results by more than the order of sums does.
        keep_apart: plan memory for the dataflow executor, see `PlanMemory`.
        round_halves: round what each operator of float16 computes, as the ONNX standard defines
            it, instead of what is stored; see `ComputeInFloat32`.  `precise` does so, too.
        memory: "low" leaves out Winograd's method, whose weights take four times the memory.
        precision: "bfloat16" keeps weights of products and convolutions in bfloat16, and rounds
            what they multiply, where the processor has instructions for that; sums are float32.

    `build` takes this pipeline for models of other frontends.
    """
    from ..kernels.cpu import CPU, SETS, has_amx

    check_settings(precise, memory, precision)
    is_bfloat16 = precision == "bfloat16"
    # bfloat16 is rounded by each operator, as the ONNX standard defines it.
    passes = [] if precise or round_halves else [transform.ComputeInFloat32(["float16"])]
    passes += [
        transform.CanonicalizeBindings(),
        transform.EliminateCommonSubexpr(),
        transform.CanonicalizeBindings(),
    ]
    if not precise and CPU in SETS:
        passes.append(transform.FoldQuantization())
    passes.append(transform.FoldConstant())
    if not precise:
        passes += [
            transform.RecognizeAttention(),
            transform.RecognizeOps(),
            transform.MovePermutations(),
            transform.FoldBatchnormToConv2D(),
            transform.FoldConstant(),
            transform.FoldScaleToConv(),
            transform.FlushSubnormals(),
        ]
    if CPU in SETS:  # else the kernels run in numpy, and are slower than without the pass
        passes += [
            # Tiles in one instruction are faster than a quarter of the products in float32.
            transform.BlockConvolutions(
                precise=precise, winograd=memory != "low" and not (is_bfloat16 and has_amx()),
                bfloat16=is_bfloat16,
            ),
            transform.PackLinear(precise=precise, bfloat16=is_bfloat16),
        ]
    passes += [
        transform.LegalizeOps(),
        transform.DeadCodeElimination(),  # a result that nobody uses ends a chain
        # Frontends of models make no dataflow blocks; a single kernel may be a chain, too.
        transform.ConvertToDataflow(min_size=1),
        transform.FuseOps(min_elements=MIN_IN_TILES, in_tiles=True)
        if CPU in SETS
        else transform.FuseOps(),
    ]
    return Sequential([*passes, *_lowering(keep_apart)], name="model")
