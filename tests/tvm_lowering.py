"""apache-tvm's side of the comparison of passes. Run as a program, it writes TVM's output for
`lowering_programs.PROGRAMS`: the text after each pass, the code, the results.

    python -m tests.tvm_lowering OUT.pickle
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from .lowering_programs import FUNCTIONS, PROGRAMS, Program

STAGES = (
    "LambdaLift",
    "ToNonDataflow",
    "RemovePurityChecking",
    "CallTIRRewrite",
    "StaticPlanBlockMemory",
    "LowerAllocTensor",
    "KillAfterLastUse",
    "LowerRuntimeBuiltin",
    "ComputePrimValue",
    "VMShapeLower",
    "AttachGlobalSymbol",
)
"""The passes, in the order of TVM's pipeline.  Operators are not legalized: the kernels differ."""


def lowered(program: Program) -> dict[str, Any]:
    """Return the texts by stage, the text of the code, and the results, or messages of errors."""
    import tvm
    from tvm import relax

    answer: dict[str, Any] = {"stages": []}
    try:
        mod = tvm.script.from_source(program.text, extra_vars=_names(), check_well_formed=False)
        answer["stages"].append(("input", mod.script()))
        with tvm.target.Target("llvm"):
            for name in STAGES:
                mod = getattr(relax.transform, name)()(mod)
                answer["stages"].append((name, mod.script()))
            builder = relax.ExecBuilder()
            relax.vm_build._vmcodegen(builder, mod, "bytecode")
            answer["code"] = builder.get().as_text()
            if program.calls is not None:
                passes = [tvm.transform.Sequential([])]
                built = relax.build(mod, "llvm", relax_pipeline=passes[0])
                machine = relax.VirtualMachine(built, tvm.cpu())
                answer["results"] = [_result(machine, *call) for call in program.calls]
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def _names() -> dict[str, Any]:
    from tvm.script import ir as I
    from tvm.script import relax as R
    from tvm.script import tirx as T

    return {"I": I, "R": R, "T": T}


def _result(machine: Any, name: str, *args: Any) -> Any:
    from .tvm_side import from_tvm, to_tvm

    return _plain(from_tvm(machine[name](*[to_tvm(_value(arg)) for arg in args])))


def _value(arg: Any) -> Any:
    from relaxvm.values import Shape

    if isinstance(arg, list):
        return Shape(arg)
    return tuple(map(_value, arg)) if isinstance(arg, tuple) else arg


def _plain(value: Any) -> Any:
    """Convert a value to classes of Python and numpy; a shape becomes a list."""
    from relaxvm.values import Shape

    if isinstance(value, Shape):
        return list(value)
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def main(path: str) -> None:
    import tvm

    from .tvm_side import _adapted

    for name, function in FUNCTIONS.items():
        tvm.register_global_func(name, _adapted(function), override=True)
    found = {name: lowered(program) for name, program in PROGRAMS.items()}
    Path(path).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
