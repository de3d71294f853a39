"""Compile the functions of a virtual machine, and let it run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ...core._code import Image
from ...errors import NoCompilerError
from ...isa import FuncKind
from ..functions import addresses_of
from ..toolchain import compile_c, compiler, for_this_machine, why_no_compiler
from .chains import MIN_STEPS, find_chains
from .code import FunctionCode
from .local_tensors import find_local_tensors
from .source import source_of

__all__ = ["MAX_OPS", "NativeProgram", "compile_program"]

MAX_OPS: Final = 4_000
"""The most operations of all functions that are compiled together."""
ENTRY_COST: Final = 20
"""Nanoseconds that entering native code takes at most, also where caches and branches are cold;
functions that gain less run as bytecode."""
STEP_GAIN: Final = 10
"""Nanoseconds that an operation of a chain of kernels gains."""
TENSOR_GAIN: Final = 10
"""Nanoseconds that a tensor without an array gains."""
_MANY_OPS: Final = 1_000
"""More are compiled with fewer optimizations, which takes half of the time."""
_NAME: Final = "program"
_EXACT_FLOATS: Final = ("-ffp-contract=off", "-fno-math-errno")
"""Chains of kernels have the results of numpy's loops."""
_VECTORS: Final = ("-ftree-vectorize", "-fvect-cost-model=dynamic")
_WARNINGS: Final = "-w"
"""The code has variables and labels without use."""


class NativeProgram:
    """Functions of a translated program as a shared library.

    Attributes:
        source: the C source.
        path: the library, in the cache.
        indices: of the functions in the function table.
    """

    __slots__ = ("indices", "path", "source")

    def __init__(self, source: str, path: Path, indices: Sequence[int]) -> None:
        self.source = source
        self.path = path
        self.indices = tuple(indices)

    def attach(self, image: Image) -> None:
        """Let the functions of an image run this code.  The image must be the one that it was made
        from, or one that is translated alike."""
        names = [f"rvm_{kind}_{i}" for i in self.indices for kind in ("enter", "call")]
        found = addresses_of(self.path, names)
        for i in self.indices:
            image.attach(i, found[f"rvm_enter_{i}"], found[f"rvm_call_{i}"])

    def __repr__(self) -> str:
        return f"<NativeProgram of {len(self.indices)} functions in {self.path}>"


def compile_program(
    image: Image,
    indices: Iterable[int] | None = None,
    *,
    all_of_them: bool = True,
    timeout: float = 60.0,
) -> NativeProgram | None:
    """Compile functions of a translated program with the C compiler.

    Functions of which the code is longer than `MAX_OPS` operations together are left out; they run
    as bytecode.

    Args:
        image: translated with `enter` operations.
        indices: of the functions in the function table, which are compiled with those that they
            call; None for all that gain by it, see `FunctionCode.gain`.
        all_of_them: whether to compile the functions of `indices` that gain nothing, too.
        timeout: seconds for the compiler to run.

    Returns:
        The program; None if there is no function to compile.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: it fails; see `relaxvm.native.toolchain.compile_c`.
    """
    if compiler() is None:
        raise NoCompilerError(why_no_compiler())
    chosen = _chosen(image, indices, all_of_them=all_of_them)
    if not chosen:
        return None
    source = source_of(image, chosen)
    level = "-O2" if sum(len(code.ops) for code in chosen.values()) <= _MANY_OPS else "-O1"
    flags = [*for_this_machine(), level, *_EXACT_FLOATS, *_VECTORS, _WARNINGS]
    path = compile_c(source, name=_NAME, flags=flags, timeout=timeout)
    return NativeProgram(source, path, [*chosen])


def _gaining(image: Image, indices: Iterable[int]) -> Iterator[int]:
    """The functions among some that gain by native code.  Chains of kernels are looked for in
    functions of `MAX_OPS` operations together."""
    left = MAX_OPS
    for index in indices:
        code = FunctionCode(image, index)
        gain = code.gain + TENSOR_GAIN * len(find_local_tensors(code))
        if gain <= ENTRY_COST and code.num_ufuncs >= MIN_STEPS and len(code.ops) <= left:
            left -= len(code.ops)
            gain += STEP_GAIN * sum(len(chain.steps) for chain in find_chains(code).values())
        if index in code.callees(image):
            gain *= 3  # it is entered once for several calls
        if gain > ENTRY_COST:
            yield index


def _chosen(
    image: Image, indices: Iterable[int] | None, *, all_of_them: bool
) -> dict[int, FunctionCode]:
    """The functions to compile, by index."""
    if indices is None:
        table = image.executable.functions
        indices = [i for i, info in enumerate(table) if info.kind == FuncKind.BYTECODE]
        all_of_them = False
    if not all_of_them:
        indices = [*_gaining(image, indices)]
    chosen: dict[int, FunctionCode] = {}
    waiting, total = [*indices], 0
    while waiting:
        index = waiting.pop(0)
        if index in chosen:
            continue
        code = FunctionCode(image, index)
        if total + len(code.ops) > MAX_OPS:
            continue  # it runs as bytecode
        total += len(code.ops)
        chosen[index] = code
        waiting += code.callees(image)
    return dict(sorted(chosen.items()))
