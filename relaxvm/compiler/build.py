"""build: compile a program to an executable.

Source: ``relax.build`` and ``relax.vm_build`` of apache-tvm 0.27.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from .. import transform
from ..analysis import well_formed
from ..executable import VMExecutable
from ..executable.exec_builder import ExecBuilder
from ..executable.linked_kernels import LinkedKernels, function_of
from ..executable.model_info import ModelInfo
from ..ir import Function, GlobalVar, IRModule
from ..ir.nesting import headroom
from ..isa import FuncKind
from ..limits import Limits
from ..parameters import lists_parameters
from ..tir import PrimFunc
from ..tir.reassociate import asking, check_reassociate
from ..transform import Pass
from ..transform.pass_infra import PassContext
from ..transform.pipelines import check_settings, get_pipeline, registered_pipelines
from ..transform.run_codegen import EXTERNAL_MODS
from ..values import Shape
from ..vm.limited import run_limited
from .codegen import generate_bytecode, symbol_of
from .programs import names_of_model, read_program, section_of_names

__all__ = [
    "EXEC_MODES",
    "build",
    "compile",
    "compile_file",
    "compiles_as_shipped",
    "filter_tir",
    "vmcodegen",
    "vmlink",
]

EXEC_MODES: Final = ("bytecode", "compiled")
_PACKAGE: Final = __name__.partition(".")[0] + "."
_OF_MODELS: Final = ("default", "dataflow")
"""Pipelines that are others for models."""
_TARGETS: Final = ("llvm", "c", "cpu")


def compile(  # noqa: A001  (TVM's name)
    program: Any,
    target: Any = None,
    params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    relax_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    limits: Limits | None = None,
    entry: str | None = None,
    precise: bool = False,
    memory: str = "default",
    precision: str = "default",
    reassociate: bool = False,
    **options: Any,
) -> VMExecutable:
    """Compile a program of any kind, as `relaxvm.compile` does for what is not on disk: see
    `relaxvm.vm.program_cache`."""

    def work() -> VMExecutable:
        mod, values = read_program(
            program, params, limits=limits, entry=entry, options=options
        )
        pipeline = _with_settings(relax_pipeline, precise, memory, precision)
        return _checked(mod, target, values, pipeline, exec_mode, limits, reassociate)

    return run_limited(work, limits, "compile")


@lists_parameters
def build(
    mod: Any,
    target: Any = None,
    params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    relax_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    limits: Limits | None = None,
    precise: bool = False,
    memory: str = "default",
    precision: str = "default",
    reassociate: bool = False,
) -> VMExecutable:
    """Compile a program.

    Args:
        mod: the program, or a single function; or what else `compile` takes.
        target: None or "llvm"; programs run on the CPU.
        params: values of parameters such as weights, by name; they become constants (`BindParams`).
            For a Relay text, also the path of a ``.npz`` or ``.params`` file with them.
        relax_pipeline: the lowering: a name for `get_pipeline`, a pass, or None if the program is
            already lowered.  "default" optimizes what a frontend has made of a model ("model"), and
            lowers other programs as they are ("default_build").  "dataflow" does the same for
            ``VirtualMachine(..., executor="dataflow")``: memory is planned so that calls that are
            independent of each other share none.
        exec_mode: "bytecode", or "compiled" for functions that a VM compiles to native code.
        limits: bounds for a program of unknown origin: its `functions`, the `wall_time` of the
            compilation, and its memory, `live_bytes` and `alloc_bytes`.
        precise: leave out of models what changes results by more than the order of sums:
            Winograd's method, approximated functions, formulas that are put together, quantization
            that is folded.
        memory: "low" leaves out of models what takes more memory to be faster: Winograd's method,
            whose weights take four times as much.
        precision: "bfloat16" keeps the weights of a model's products and convolutions in bfloat16,
            and rounds what they multiply, where the processor has instructions for that; sums are
            float32.  Results then have errors of some 1e-3 to 1e-2 of the largest one; half the
            memory, and more speed.  Not with `precise`.
        reassociate: let generated kernels do sums, products and extremes of floats in another
            order, which vector units can, as `relaxvm.tir.reassociate` states it.

    PrimFuncs are compiled by the system's C compiler; if there is none, they become Python.  Shape
    functions become programs for ``relaxvm.builtin.compute_shape``.

    Raises:
        IllFormedError: the program violates a rule of `relaxvm.analysis.well_formed` that is not
            about types or side effects, such as that each variable is defined once.
        TypeError, ValueError: an argument or the program is invalid; notes name the pass, the
            function and the binding.
        OverflowError: a size of constant dimensions does not fit 64 bits; notes as above.
        NestingError: the program is nested too deeply.
        LimitError: a limit is reached; notes name the pass, the function and the binding.
    """

    def work() -> VMExecutable:
        program, values = read_program(mod, params, limits=limits)
        pipeline = _with_settings(relax_pipeline, precise, memory, precision)
        return _checked(program, target, values, pipeline, exec_mode, limits, reassociate)

    return run_limited(work, limits, "build")


def compile_file(
    path: str | os.PathLike[str], limits: Limits | None = None, relax_pipeline: str = "default"
) -> VMExecutable:
    """Compile the program of a file, other than a Python script, which would run.

    Raises:
        ValueError: it is a script, or no program; otherwise as `compile`.
    """

    def work() -> VMExecutable:
        mod, _ = read_program(path, limits=limits, scripts=False)
        return _checked(mod, None, None, relax_pipeline, "bytecode", limits)

    return run_limited(work, limits, "compile")


def compiles_as_shipped() -> bool:
    """Whether only passes, pipelines and operators of relaxvm take part in a compilation, with
    their usual settings."""
    from ..frontend.onnx.registry import OPERATORS

    makers = [each.convert for versions in OPERATORS.values() for each in versions]
    own = (getattr(made, "__module__", "") for made in (*registered_pipelines(), *makers))
    return not PassContext.is_active() and all(name.startswith(_PACKAGE) for name in own)


def _checked(
    program: Any,
    target: Any,
    values: Any,
    relax_pipeline: str | Pass | _Settings | None,
    exec_mode: str,
    limits: Limits | None,
    reassociate: bool = False,
) -> VMExecutable:
    """Compile what was read."""
    check_reassociate(reassociate)
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f"params: expected values by name, got {type(values).__name__}")
    if limits is not None and isinstance(program, IRModule):
        limits.check("functions", len(program.functions), "the program")
    with headroom("build", program):
        return _build(program, target, values, relax_pipeline, exec_mode, reassociate)


def _build(
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None,
    relax_pipeline: str | Pass | _Settings | None,
    exec_mode: str,
    reassociate: bool,
) -> VMExecutable:
    mod = _as_module(mod)
    names = names_of_model(mod)
    info = ModelInfo.of_attribute(mod.get_attr("model"))
    well_formed(mod, check_ty=False, check_effects=False)
    _check_target(target)
    if exec_mode not in EXEC_MODES:
        raise ValueError(f"exec_mode: expected one of {', '.join(EXEC_MODES)}, got {exec_mode!r}")
    if params:
        mod = transform.BindParams("main", dict(params))(mod)
    if isinstance(relax_pipeline, str):
        relax_pipeline = _Settings(relax_pipeline)
    if isinstance(relax_pipeline, _Settings):
        relax_pipeline = relax_pipeline.pipeline(is_model=bool(names) or info is not None)
    if relax_pipeline is not None:
        if not callable(relax_pipeline):
            raise TypeError(
                "relax_pipeline: expected the name of a pipeline, a pass or None, "
                f"got {type(relax_pipeline).__name__}"
            )
        mod = relax_pipeline(mod)
    if reassociate:
        mod = _asking(mod)
    builder = ExecBuilder()
    programs = _shape_programs(mod)
    rest = generate_bytecode(builder, mod, programs)
    executable = vmlink(builder, target, _without(rest, programs))
    executable = _with_external(executable, mod.get_attr(EXTERNAL_MODS) or ())
    if names:
        own = {info.name: info.param_names for info in executable.functions
               if info.kind != FuncKind.PACKED}  # fmt: skip
        executable = executable.with_section("names", section_of_names(names, own))
    executable = executable.with_section("model", info)
    if exec_mode == "compiled":
        return executable.with_section("exec_mode", exec_mode)
    return executable


def _asking(mod: IRModule) -> IRModule:
    """A module whose PrimFuncs ask for reductions in another order."""
    changed = mod.copy()
    for var, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            changed[var] = asking(func)
    return changed


class _Settings(NamedTuple):
    """A pipeline by its name, with settings for models."""

    name: str
    precise: bool = False
    memory: str = "default"
    precision: str = "default"

    def pipeline(self, *, is_model: bool) -> Pass:
        if is_model and self.name in _OF_MODELS:
            keep_apart = self.name == "dataflow"
            return get_pipeline(
                "model", precise=self.precise, memory=self.memory, precision=self.precision,
                keep_apart=keep_apart,
            )  # fmt: skip
        return get_pipeline(self.name)


def _with_settings(relax_pipeline: Any, precise: bool, memory: str, precision: str) -> Any:
    """A pipeline with settings for models.

    Raises:
        TypeError, ValueError: as `check_settings`, or the pipeline has no such settings.
    """
    check_settings(precise, memory, precision)
    if (precise, memory, precision) != (False, "default", "default"):
        if relax_pipeline not in _OF_MODELS:
            raise ValueError(
                f"precise, memory and precision are for the pipelines {' and '.join(_OF_MODELS)}, "
                f'got {relax_pipeline!r}; for others: relaxvm.get_pipeline("model", precise=..., '
                "memory=..., precision=...)"
            )
        return _Settings(relax_pipeline, precise, memory, precision)
    return relax_pipeline


def _with_external(executable: VMExecutable, modules: Iterable[Any]) -> VMExecutable:
    """Link the functions that external code generators have made; see `RunCodegen`."""
    found: dict[str, Callable[..., Any]] = {}
    for info in executable.functions:
        if info.kind is FuncKind.PACKED and info.name not in executable.kernels:
            for module in modules:
                function = function_of(module, info.name)
                if function is not None:
                    found[info.name] = function
                    break
    if not found:
        return executable
    return executable.with_kernels(LinkedKernels(executable.kernels, found))


def _as_module(mod: Any) -> IRModule:
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (Function, PrimFunc)):
        return IRModule.from_expr(mod)
    raise TypeError(f"build: expected an IRModule or a function, got {type(mod).__name__}")


def _check_target(target: Any) -> None:
    kind = target.get("kind") if isinstance(target, Mapping) else target
    kind = getattr(getattr(kind, "kind", None), "name", kind)
    if kind is None or (isinstance(kind, str) and kind.split()[:1] and kind.split()[0] in _TARGETS):
        return
    raise ValueError(
        f"target: relaxvm runs on the CPU: expected {', '.join(_TARGETS)} or None, got {target!r}; "
        "a program for another device needs TVM built for it"
    )


def _shape_programs(mod: IRModule) -> dict[GlobalVar, tuple[Shape, ...]]:
    """Shape programs for the functions that only compute on the shape heap."""
    from ..tir.shape_func import shape_programs_of

    found: dict[GlobalVar, tuple[Shape, ...]] = {}
    for var, func in mod.functions.items():
        if isinstance(func, PrimFunc) and func.attrs.get("tirx.is_host_func"):
            programs = shape_programs_of(func)
            if programs is not None:
                found[var] = programs
    return found


def _without(mod: IRModule, programs: Mapping[GlobalVar, Any]) -> IRModule:
    rest = mod.copy()
    for var in programs:
        del rest[var]
    return rest


def filter_tir(mod: IRModule) -> IRModule | None:
    """Return a module of the PrimFuncs of a module, or None if there are none."""
    funcs = {var: func for var, func in mod.functions.items() if isinstance(func, PrimFunc)}
    return IRModule(funcs, mod.attrs, mod.global_infos, mod.type_definitions) if funcs else None


def vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Generate code for every Relax function of a lowered module.  Returns the module without them:
    the PrimFuncs, and with "compiled" the functions as VM-TIR.

    Raises:
        ValueError: unknown `exec_mode`.
    """
    if exec_mode == "bytecode":
        return generate_bytecode(builder, mod)
    if exec_mode == "compiled":
        from .vm_tir import generate_vm_tir

        return generate_vm_tir(builder, mod)
    raise ValueError(f"exec_mode: expected one of {', '.join(EXEC_MODES)}, got {exec_mode!r}")


def vmlink(
    builder: ExecBuilder, target: Any = None, tir_mod: IRModule | None = None
) -> VMExecutable:
    """Compile the PrimFuncs and return the executable with them and the generated code."""
    _check_target(target)
    executable = builder.get()
    if executable.debug is not None:
        executable = executable.with_debug(executable.debug.with_short_files())
    funcs = {} if tir_mod is None else {
        symbol_of(func, var): func
        for var, func in tir_mod.functions.items()
        if isinstance(func, PrimFunc)
    }  # fmt: skip
    if not funcs:
        return executable
    from ..tir.build import build_prim_funcs

    return executable.with_kernels(build_prim_funcs(funcs))
