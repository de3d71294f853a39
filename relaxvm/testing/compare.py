"""`assert_same`: two programs compute the same."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..compiler.build import build, compile_file
from ..executable import VMExecutable
from ..executable.loading import load
from ..ir import Function, IRModule
from ..messages import describe
from ..observe.compare import Comparison, compare
from ..vm import VirtualMachine

__all__ = ["assert_same"]


def assert_same(
    a: Any,
    b: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    function: str = "main",
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Check that two programs compute the same on inputs.

    Args:
        a, b: VMs, executables, modules or functions (which are built), or paths of files.
        inputs: the arguments, in order or by name; each side gets copies.
        function: the function to run.
        rtol, atol: how far elements may be apart; by default sixteen units in the last place.

    Returns:
        What was compared.

    Raises:
        AssertionError: they differ.  The message names the first variable that does, by how much,
            and where both programs compute it.
        TypeError: `a` or `b` is no program.
    """
    found = compare(_program(a), _program(b), inputs, function=function, rtol=rtol, atol=atol)
    if not found.same:
        raise AssertionError(str(found))
    return found


def _program(value: Any) -> VirtualMachine | VMExecutable:
    if isinstance(value, (VirtualMachine, VMExecutable)):
        return value
    if isinstance(value, (IRModule, Function)):
        return build(value)
    if isinstance(value, (str, os.PathLike)):
        name = os.fspath(value)
        programs = (".onnx", ".pt2", ".json", ".relay", ".rly")
        return compile_file(name) if name.endswith(programs) else load(name)
    raise TypeError(f"assert_same: expected a VM, an executable, a module or a path, got "
                    f"{describe(value)}")
