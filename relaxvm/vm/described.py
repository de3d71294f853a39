"""A function of a program in words, for ``help`` and ``inspect.signature``."""

from __future__ import annotations

from ..executable import FunctionInfo, VMExecutable
from ..messages import readable
from .entry_checks import params_of

__all__ = ["description", "types_of"]


def types_of(executable: VMExecutable, info: FunctionInfo) -> list[str | None]:
    """What the code of a function checks of each parameter, such as ``float32[n, 3]``; None for one
    that may be anything."""
    specs = params_of(executable, info)
    return [None if spec.kind == "any" else readable(str(spec)) for spec in specs]


def description(executable: VMExecutable, info: FunctionInfo) -> str:
    """The parameters of a function with what its code checks, and the names of its results."""
    names = executable.names_of(info.name)
    specs = params_of(executable, info)
    own = ", ".join(readable(spec.name) for spec in specs)
    outputs = ", ".join(map(readable, names.outputs))
    lines = [f"{readable(info.name)}({own}){f' -> {outputs}' if outputs else ''}"]
    if specs:
        lines += ["", "Parameters:"]
    for i, spec in enumerate(specs):
        original = names.inputs[i] if len(names.inputs) == len(specs) else spec.name
        other = f", {readable(original)!r} in the model" if original != spec.name else ""
        lines.append(f"    {readable(spec.name)}: {readable(str(spec))}{other}")
    if len(names.outputs) > 1:
        lines += ["", f"The result is a tuple of {len(names.outputs)} values."]
    dims = sorted({str(symbol) for spec in specs for symbol in spec.symbols()})
    if dims:
        lines += ["", f"Dimensions that a call chooses: {', '.join(map(readable, dims))}."]
    return "\n".join(lines)
