"""Mutants of the IR of kernels in files: the PrimFunc section, with a checksum that fits.

Kernels are made of what is accepted, and called: as Python, and one mutant in `COMPILED_EVERY` in
C, too, since a compiler takes as long as many mutants.  Arguments have margins, which must stay as
they are.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm.dtypes import as_dtype
from relaxvm.errors import RelaxVMError
from relaxvm.executable import FunctionInfo, SavedPrimFuncs, VMExecutable
from relaxvm.executable.formats import binary
from relaxvm.ir import IntImm, Var
from relaxvm.ir.json import save_json
from relaxvm.isa import FuncKind
from relaxvm.limits import Limits
from relaxvm.native import toolchain
from relaxvm.tir import Buffer, PrimFunc
from relaxvm.vm import VirtualMachine

from .. import tir_kernels
from .changes import Mutant, change_bytes, seeded
from .ir_json import change_document
from .outcomes import Ending, Outcome, described, is_from_function
from .parameters import in_memory

__all__ = ["bases", "mutant", "run"]

COMPILED_EVERY: Final = 40
LIMITS: Final = Limits.untrusted().but(wall_time=3.0, live_bytes=256 << 20, alloc_bytes=64 << 20)
MARGIN: Final = 256
"""Bytes before and after the elements of an argument."""
_FILL: Final = 0x5A
_DIM: Final = 5
"""The length of a dimension that is a variable."""


@cache
def _functions() -> dict[str, PrimFunc]:
    found = {
        name: function
        for name, function in vars(tir_kernels).items()
        if isinstance(function, PrimFunc) and all(map(_has_plain_dims, function.params))
    }
    assert len(found) > 20
    return found


def _has_plain_dims(param: Var) -> bool:
    return not isinstance(param, Buffer) or all(
        type(dim) is IntImm or isinstance(dim, Var) for dim in param.shape
    )


@cache
def bases() -> dict[str, str]:
    """Return the IR to mutate."""
    return {name: save_json(func, spans=False) for name, func in _functions().items()}


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("prim_funcs", index, seed)
    base = rng.choice(sorted(bases()))
    text = bases()[base]
    if rng.random() < 0.05:
        raw, steps = change_bytes(text.encode(), rng)
        text = raw.decode("utf-8", "replace")
    else:
        document = json.loads(text)
        steps = change_document(document, rng)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    kernels = SavedPrimFuncs({"kernel": text.encode("utf-8", "replace").decode()})
    return Mutant(base, tuple(steps), _program(base).with_kernels(kernels).to_bytes())


@cache
def _program(base: str) -> VMExecutable:
    """``main`` calls ``kernel`` with its arguments."""
    count = len(_functions()[base].params)
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, 2, count, count + 1)
    words = [1, count, 1, count, *range(count), 2, count]
    return VMExecutable(
        [main, FunctionInfo(FuncKind.PACKED, "kernel")], [], [0, 4 + count], words
    )  # fmt: skip


# Running


def run(mutant: Mutant, index: int) -> Ending:
    """Read a file, make its kernel under `LIMITS` and call it."""
    try:
        executable = binary.loads(mutant.data, limits=LIMITS)
        if executable.to_bytes() != mutant.data:
            return Outcome.STRAY_ERROR, "differs: after reading and writing"
        endings = [_run(executable, mutant.base, "no-such-compiler")]
        if index % COMPILED_EVERY == 0 and toolchain.compiler() is not None:
            again = binary.loads(mutant.data, limits=LIMITS)
            endings.append(_run(again, mutant.base, None))
        return max(endings)
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)


def _run(executable: VMExecutable, base: str, compiler: str | None) -> Ending:
    before = {name: os.environ.get(name) for name in ("CC", "RELAXVM_CACHE_DIR")}
    with tempfile.TemporaryDirectory(prefix="relaxvm-fuzz-", dir=in_memory()) as folder:
        os.environ["RELAXVM_CACHE_DIR"] = folder
        if compiler is not None:
            os.environ["CC"] = compiler
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                vm = VirtualMachine(executable, limits=LIMITS, functions={})
            return _call(vm, base)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _call(vm: VirtualMachine, base: str) -> Ending:
    memories: list[np.ndarray[Any, Any]] = []
    args = [_argument(param, memories) for param in _functions()[base].params]
    ending: Ending = Outcome.RESULT, "returned"
    try:
        vm["main"](*args)
    except RelaxVMError as error:
        ending = Outcome.RELAXVM_ERROR, type(error).__name__
    except Exception as error:
        if not is_from_function(error):
            return Outcome.STRAY_ERROR, described(error)
        ending = Outcome.KERNEL_ERROR, type(error).__name__
    if any((m[:MARGIN] != _FILL).any() or (m[-MARGIN:] != _FILL).any() for m in memories):
        return Outcome.STRAY_ERROR, "wrote outside of an argument"
    return ending


def _argument(param: Var, memories: list[np.ndarray[Any, Any]]) -> Any:
    """An argument of a function; the memory of an array is added to `memories`."""
    if not isinstance(param, Buffer):
        return 3.0 if param.ty.dtype.startswith("float") else 3
    shape = [dim.value if type(dim) is IntImm else _DIM for dim in param.shape]
    dtype = as_dtype(param.ty.dtype)
    nbytes = int(np.prod(shape, dtype=int)) * dtype.itemsize
    memory = np.full(nbytes + 2 * MARGIN, _FILL, np.uint8)
    array = memory[MARGIN : MARGIN + nbytes].view(dtype).reshape(shape)
    array[...] = (np.arange(array.size) % 4).astype(dtype).reshape(shape)
    memories.append(memory)
    return array

