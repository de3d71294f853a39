"""Hostile calls of every builtin and kernel: arguments that fit, some of them changed.

A mutant is a list of arguments.  The program that calls the function with them has some as
parameters and some as constants; it runs under `LIMITS`.
"""

from __future__ import annotations

import contextlib
import io
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

import relaxvm
from relaxvm import Adt, ExecBuilder, Ref, Shape, VirtualMachine
from relaxvm.dtypes import as_dtype
from relaxvm.errors import BugError, LimitError, RelaxVMError
from relaxvm.kernels import PREFIX
from relaxvm.limits import Limits

from .. import builtin_cases, race_attacks
from ..memory_attacks import VM, arguments_of
from ..operators.table import OPERATORS
from .changes import INTERESTING, Mutant, number, seeded, signed
from .outcomes import Ending, Outcome, described, is_from_function

__all__ = ["CALLS", "bases", "mutant", "run"]

LIMITS: Final = Limits.untrusted().but(
    fuel=20_000, wall_time=1.0, live_bytes=64 << 20, alloc_bytes=16 << 20
)
LATE: Final = 1.0
"""Seconds of processor time that a call may take beyond the limit: machines are busy."""
GROWTH: Final = 160 << 20
"""Bytes by which the process may grow: twice the limit, for arguments that were copied, and what
is not counted."""

ERRORS: Final = (TypeError, ValueError, IndexError)
"""What a builtin or kernel raises for arguments that do not fit, besides relaxvm's own."""

ALSO: Final[dict[str, tuple[type[Exception], ...]]] = {
    "relax.run.assert_op": (AssertionError,),
    "relaxvm.builtin.compute_shape": (OverflowError, ZeroDivisionError),
    "relaxvm.builtin.nonzero_divisor": (ZeroDivisionError,),
    "vm.builtin.invoke_closure": (OverflowError,),  # of the function that is called
    "vm.builtin.match_prim_value": (RuntimeError,),
    "vm.builtin.match_shape": (RuntimeError,),
}

WITHOUT: Final = {
    "vm.builtin.invoke_debug_func": "calls functions of other modules",
    "vm.builtin.tensor_cache.load": "reads a folder: see parameters.py",
    "vm.builtin.call_py_func": "calls functions of other modules",
}
"""Function -> why it is not called."""

PER_OPERATOR: Final = 4
"""Calls of each operator."""


def ones(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.ones(shape, dtype)


CALLS: Final[dict[str, Callable[[], list[Any]]]] = {
    "cast": lambda: [ones(4, 5), ones(4, 5, dtype="f8")],
    "reshape": lambda: [ones(4, 6).T, ones(3, 8)],
    "fill": lambda: [1.5, ones(4, 5)],
    "fused": lambda: [ones(4, 5), ones(4, 5), "multiply($0, $1); add(%0, 2.0) -> %1", ones(4, 5)],
    "linear": lambda: [ones(4, 5), ones(6, 5), ones(6), ones(4, 6)],
    "matmul_tn": lambda: [ones(5, 4), ones(5, 6), ones(4, 6)],
    "relu": lambda: [ones(4, 5), ones(4, 5)],
    "mel_weights": lambda: [20, 40, 8000, 0.0, 4000.0, ones(21, 20)],
}
"""Arguments of kernels that no other table calls with small ones."""


@cache
def bases() -> dict[str, Callable[[], list[Any]]]:
    """Return makers of arguments, by the name of the function and a number."""
    found: dict[str, Callable[[], list[Any]]] = {}

    def add(name: str, make: Callable[[], Any]) -> None:
        if name not in WITHOUT:
            count = sum(key.partition(" ")[0] == name for key in found)
            found[f"{name} {count}"] = lambda: list(make())

    for name, text in builtin_cases.CASES.items():
        for line in text.strip().splitlines():
            add(name, lambda line=line: _case(line.split(" | ")[0]))
    for name, makers in race_attacks.CALLS.items():
        for make in makers:
            add(name, make)
    for cases in OPERATORS.values():
        texts = cases.calls()
        for text in texts[:: max(1, len(texts) // PER_OPERATOR)][:PER_OPERATOR]:
            for kernel, args in arguments_of(text, cases):
                add(PREFIX + kernel, lambda args=args: _copied(args))
    for kernel, make in CALLS.items():
        add(PREFIX + kernel, make)
    return found


def _case(text: str) -> list[Any]:
    names = builtin_cases.names()
    return [VM if each is names["vm"] else each for each in eval(text, names)]


def _copied(value: Any) -> Any:
    """Return a value with new arrays, which a mutant may change."""
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index: the state of the generator, from which `run` makes the
    arguments, since not all of them can be written to a file."""
    rng = seeded("calls", index, seed)
    base = rng.choice(sorted(bases()))
    return Mutant(base, ("call",), repr(rng.getrandbits(64)).encode())


def arguments(mutant: Mutant) -> tuple[random.Random, list[Any]]:
    """Return a random generator, and the arguments of a mutant."""
    rng = random.Random(mutant.data)
    args = bases()[mutant.base]()
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        step = rng.random()
        at = rng.randrange(len(args)) if args else 0
        if not args or step < 0.03:
            args.insert(at, _hostile(rng))
        elif step < 0.06:
            del args[at]
        elif step < 0.1:
            other = rng.randrange(len(args))
            args[at] = args[other]
        elif step < 0.15:
            other_args = bases()[rng.choice(sorted(bases()))]()
            if other_args:
                args[at] = rng.choice(other_args)
        elif args[at] is not VM:
            args[at] = _changed(args[at], rng)
    return rng, args


# Values

_DTYPES: Final = (
    "f4", "f8", "f2", "i1", "u1", "i2", "i4", "i8", "u8", "?", ">f4", ">i8", "c8",
    *map(as_dtype, ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn", "int4", "uint2")),
)  # fmt: skip
_WORDS: Final = (
    "", "\0", "x", "x" * 70_000, "{0:>4000000000}", "{0.__class__}", "é", "float32", "int4",
    "bfloat16", "float8_e4m3fn", "NCHW", "NCHW4c", "nearest", "a,b->c", ",".join("ab" * 40),
    "add(%0, %1)", "(x|xx)*" * 20, "../../x", "[" * 5000, "{" * 5000, "1" * 5000, "-1", "nan",
    "sum", "avg", "max", "wrap", "both", "reflect", "SUM", "TF",
)  # fmt: skip


def _hostile(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(12 if depth < 2 else 9)
    if kind <= 1:
        return _integer(rng)
    if kind == 2:
        return rng.choice((0.0, -0.0, 1.5, -1.0, 1e308, 1e-320, float("inf"), float("nan")))
    if kind == 3:
        return rng.choice((None, True, False, Ref(), Ref(3), Adt("Nil", 0), max, b"bytes",
                           np.dtype("f4"), as_dtype("bfloat16"), np.int64(3), np.float32(2)))
    if kind == 4:
        return rng.choice(_WORDS)
    if kind == 5:
        return Shape(_dimension(rng) for _ in range(rng.randrange(7)))
    if kind <= 8:
        return _array(rng)
    if kind == 9:
        shared = _hostile(rng, 2)
        for _ in range(rng.choice((1, 5, 12))):
            shared = (shared,) * rng.choice((1, 2, 16))
        return shared
    if kind == 10:
        nested: Any = 1.0
        for _ in range(rng.choice((3, 300, 20_000))):
            nested = (nested,)
        return nested
    return tuple(_hostile(rng, depth + 1) for _ in range(rng.randrange(5)))


def _integer(rng: random.Random) -> int:
    return number(rng) if rng.random() < 0.8 else rng.choice((1 << 64, -(1 << 70), 10**30))


def _dimension(rng: random.Random) -> int:
    value = rng.choice((0, 1, 2, 3, 4, 7, 64, -1, number(rng), 1 << 31, 3037000500))
    return max(min(value, (1 << 63) - 1), -(1 << 63))


def _array(rng: random.Random) -> np.ndarray:
    shape = [rng.choice((0, 1, 1, 2, 3, 4, 5, 16)) for _ in range(rng.randrange(6))]
    size = int(np.prod(shape, dtype=int))
    made = np.array([rng.randrange(-2, 9) for _ in range(min(size, 99))] or [0])
    with np.errstate(all="ignore"):
        return np.resize(made, shape).astype(rng.choice(_DTYPES))


def _changed(value: Any, rng: random.Random) -> Any:
    """Return a value that resembles this one."""
    if rng.random() < 0.15:
        return _hostile(rng)
    if isinstance(value, np.ndarray):
        return _changed_array(value, rng)
    if isinstance(value, (bool, int, np.integer)):
        how = rng.randrange(6)
        near = int(value) + rng.choice((-2, -1, 1, 2))
        return (near, -near, _integer(rng), float(near), np.int32(near & 0xFFFF),
                np.array(near % (1 << 60)))[how]  # fmt: skip
    if isinstance(value, float):
        return rng.choice((-value, 0.0, float("nan"), float("inf"), -1e308, int(abs(value)) if
                           value == value and abs(value) < 1e9 else 3, str(value)))
    if isinstance(value, str):
        return rng.choice((*_WORDS, value * 2, value[:-1], value.upper(), value + "\0"))
    if isinstance(value, (Shape, tuple, list)):
        return _changed_items(value, rng)
    return _hostile(rng)


def _changed_items(value: Any, rng: random.Random) -> Any:
    items = list(value)
    at = rng.randrange(len(items)) if items else 0
    step = rng.randrange(5)
    if not items or step == 0:
        items.insert(at, _dimension(rng) if isinstance(value, Shape) else _hostile(rng, 1))
    elif step == 1:
        del items[at]
    elif step == 2:
        items *= rng.choice((2, 3, 50))
    elif isinstance(value, Shape):
        items[at] = _dimension(rng)
    else:
        items[at] = _changed(items[at], rng)
    return Shape(items) if isinstance(value, Shape) else tuple(items)


def _changed_array(x: np.ndarray, rng: random.Random) -> np.ndarray:
    if x.size > 1 << 22:  # it has been made large already
        return x
    if x.dtype.kind in "OUT":
        return x[:: rng.choice((1, -1, 2))] if x.ndim else x.reshape(1)
    how = rng.randrange(13)
    if how == 0:
        with np.errstate(all="ignore"), contextlib.suppress(TypeError):
            return x.astype(rng.choice(_DTYPES))
        return x  # ml_dtypes does not convert all of its data types to each other
    if how == 1:
        return x.reshape(-1) if rng.random() < 0.5 else x.reshape(x.shape[::-1])
    if how == 2:
        axis = rng.randrange(x.ndim + 1)
        return np.expand_dims(x, axis)
    if how == 3 and x.ndim:
        return x.take(0, rng.randrange(x.ndim)) if x.size else x.T
    if how == 4 and x.ndim:
        axis = rng.randrange(x.ndim)
        length = rng.choice((0, 1, max(0, x.shape[axis] - 1)))
        return x[(slice(None),) * axis + (slice(0, length),)]
    if how == 5 and x.ndim:
        axis = rng.randrange(x.ndim)
        return x[(slice(None),) * axis + (slice(None, None, rng.choice((-1, 2, -2))),)]
    if how == 6 and x.size:  # as large as it likes, without memory
        shape = list(x.shape) or [1]
        axis = rng.randrange(len(shape))
        shape[axis] = rng.choice((shape[axis] + 1, 1 << 20, 1 << 33, 1 << 45))
        one = x.reshape(-1)[:1].reshape((1,) * len(shape))
        with contextlib.suppress(ValueError):
            return np.broadcast_to(one, shape)
        return x
    if how == 7:
        return x.T
    if how == 8:  # elements that are not aligned
        bytes_ = np.zeros(x.nbytes + 1, np.uint8)
        if not x.size:
            return x
        copy = bytes_[1:].view(x.dtype).reshape(x.shape)
        copy[...] = x
        return copy
    if how == 9:
        x.flags.writeable = False
        return x
    if how == 10 and x.ndim:
        axis = rng.randrange(x.ndim)
        return np.concatenate([x] * 2, axis) if x.nbytes < 1 << 20 else x
    return _other_elements(x, rng)


def _other_elements(x: np.ndarray, rng: random.Random) -> np.ndarray:
    if not x.flags.writeable:
        x = x.copy()
    if not x.size:
        return x
    kind = x.dtype.kind
    values: tuple[Any, ...] = (0, 1)
    if kind == "i":
        info = np.iinfo(x.dtype)
        values = (0, -1, 1, info.min, info.max, *(v for v in map(signed, INTERESTING)
                                                  if info.min <= v <= info.max))
    elif kind == "u":
        values = (0, 1, np.iinfo(x.dtype).max)
    elif kind in "fcV" and "int" not in x.dtype.name:
        values = (0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-40, 6e4)
    with np.errstate(all="ignore"):
        if rng.random() < 0.3:
            x[...] = rng.choice(values)
        else:
            for _ in range(rng.choice((1, 2, 8))):
                place = tuple(rng.randrange(n) for n in x.shape)
                x[place] = rng.choice(values)
    return x


# Running


def run(mutant: Mutant, index: int) -> Ending:
    """Call the function; some with other builtins than the core's, which must end alike."""
    name = mutant.base.partition(" ")[0]
    warnings.simplefilter("ignore")
    try:
        found = _run(name, *arguments(mutant))
        # What the cache of tensors keeps of a call changes the next one.
        is_apart = not name.startswith("vm.builtin.tensor_cache.")
        if index % 8 == 0 and found[0] != Outcome.STRAY_ERROR and is_apart:
            other = _run(name, *arguments(mutant), optimize=False)
            if other != found and "wall_time" not in found[1] + other[1]:
                return Outcome.STRAY_ERROR, f"{name}: differs: {found} {other}"
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    return found


def _run(name: str, rng: random.Random, args: list[Any], optimize: bool = True) -> Ending:
    builder = ExecBuilder()
    constants = [_as_constant(builder, arg) if arg is not VM and rng.random() < 0.4 else None
                 for arg in args]  # fmt: skip
    given = [arg for arg, word in zip(args, constants, strict=True) if word is None and
             arg is not VM]  # fmt: skip
    try:
        with builder.function("main", num_inputs=len(given)):
            registers = iter(range(len(given)))
            words = [
                builder.vm_state() if arg is VM else word if word is not None
                else builder.r(next(registers))
                for arg, word in zip(args, constants, strict=True)
            ]  # fmt: skip
            builder.emit_call(name, words, dst=builder.r(len(given)))
            builder.emit_ret(builder.r(len(given)))
        functions = [name] if not name.startswith(PREFIX) else []
        vm = VirtualMachine(builder.get(), limits=LIMITS, optimize=optimize,
                            functions=functions and {each: relaxvm.get_func(each)
                                                     for each in functions})  # fmt: skip
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    before, started = _peak(), time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            vm.main(*given)
        ending = Outcome.RESULT, ""
    except BugError as error:
        return Outcome.STRAY_ERROR, f"{name}: {described(error)}"
    except RelaxVMError as error:
        ending = Outcome.RELAXVM_ERROR, type(error).__name__
        if isinstance(error, LimitError):
            ending = Outcome.RELAXVM_ERROR, f"LimitError {error.limit}"
    except ERRORS + ALSO.get(name, ()) as error:
        if not is_from_function(error):
            return Outcome.STRAY_ERROR, f"{name}: without a place: {described(error)}"
        ending = Outcome.KERNEL_ERROR, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, f"{name}: {described(error)}"
    seconds = time.process_time() - started
    if seconds > (LIMITS.wall_time or 0) + LATE:
        return Outcome.STRAY_ERROR, f"{name}: {seconds:.1f} seconds"
    if _peak() - before > GROWTH:
        return Outcome.STRAY_ERROR, f"{name}: {(_peak() - before) >> 20} MiB"
    return ending


def _as_constant(builder: ExecBuilder, value: Any) -> int | None:
    """Return the word of a constant or immediate, None if the value can be none."""
    if isinstance(value, np.ndarray) and value.nbytes > 1 << 20:
        return None
    if isinstance(value, (tuple, list)):
        return None
    with contextlib.suppress(TypeError, ValueError, RelaxVMError, OverflowError):
        return builder.convert_constant(value)
    return None


def _peak() -> int:
    """Return the most bytes that the process has ever had in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
