"""Mutants of saved runs: checked when they are loaded, and then run to their end."""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache
from typing import Any, Final

import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine
from relaxvm.builtins.lm import AttentionKVCache
from relaxvm.builtins.random_numbers import RandomGenerator
from relaxvm.errors import InternalError, RelaxVMError
from relaxvm.values import Shape
from relaxvm.vm.saved_runs.layout import HEAD, Head, padding

from ..corpus import CORPUS, registry
from ..hopping import saved
from .changes import Mutant, change_bytes, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described, is_from_function

__all__ = ["bases", "mutant", "run"]

_CASES: Final = ("everything_at_once", "loop_with_buffers", "recursion_through_closure", "tuples")
_POINTS: Final = (0, 1, 3, 7, 12, 20)


@cache
def _machines() -> dict[str, VirtualMachine]:
    found = {
        name: VirtualMachine(CORPUS[name].executable, functions=registry(), limits=LIMITS)
        for name in _CASES
    }
    found["values"] = VirtualMachine(_values_program(), functions=registry(), limits=LIMITS)
    return found


def _values_program() -> Any:
    """``main(x)``: makes all kinds of objects of it."""
    eb = ExecBuilder()
    with eb.function("add", num_inputs=2):
        eb.emit_call("vm.builtin.make_tuple", args=[eb.r(0), eb.r(1)], dst=eb.r(2))
        eb.emit_ret(eb.r(2))
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.make_closure", args=[eb.f("add"), eb.r(0)], dst=eb.r(1))
        eb.emit_call("vm.builtin.invoke_closure", args=[eb.vm_state(), eb.r(1), eb.r(0)],
                     dst=eb.r(2))  # fmt: skip
        eb.emit_call("vm.builtin.tuple_getitem", args=[eb.r(2), eb.imm(0)], dst=eb.r(3))
        eb.emit_ret(eb.r(3))
    return eb.get()


def _values() -> tuple[Any, ...]:
    cell = relaxvm.Ref()
    cell.value = (cell, 1)
    whole = np.arange(24.0).reshape(4, 6)
    cache = AttentionKVCache(Shape((4, 2)), np.dtype("float32"))
    cache.append(np.ones((3, 2), np.float32))
    return (
        1 << 70, -3, 0.5, "text", b"bytes", True, None, np.dtype("float32"), relaxvm.cpu(1),
        whole[1:, ::2], whole.T, whole, np.array(["a", "b"], object), {"key": 1, 2: (3,)},
        relaxvm.Adt("Cons", 1, (1, relaxvm.Adt("Nil", 0))), cell, Shape((2, 3)), cache,
        RandomGenerator(3), np.zeros((0, 2)),
    )  # fmt: skip


@cache
def bases() -> dict[str, bytes]:
    """Return the saved runs to mutate."""
    found = {}
    for name, vm in _machines().items():
        calls = (
            [("main", (_values(),))] if name == "values" else
            [(run.function, run.args()) for run in CORPUS[name].runs[:2]]
        )  # fmt: skip
        for number, (function, args) in enumerate(calls):
            for point in _POINTS:
                run = vm[function].start(*args)
                try:
                    if point:
                        run.resume(fuel=point)
                    if not run.done:
                        found[f"{name} {number} {point}"] = saved(run)
                except (RelaxVMError, ValueError, TypeError):
                    continue  # runs of the corpus that fail
    return found


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index: most of them have checksums that fit."""
    rng = seeded("run", index, seed)
    base = rng.choice(sorted(bases()))
    data = bases()[base]
    if rng.random() < 0.2:
        data, steps = change_bytes(data, rng)
        return Mutant(base, tuple(steps), data)
    head = Head(*HEAD.unpack_from(data))
    end = HEAD.size + head.parts_bytes
    parts, memory = data[HEAD.size : end], data[end + padding(end) :]
    fixed = parts[:32]  # the digest
    if memory and rng.random() < 0.2:
        at = rng.randrange(len(memory))
        memory = memory[:at] + rng.randbytes(1) + memory[at + 1 :]
        changed, steps = parts[32:], ["memory"]
    elif rng.random() < 0.6:
        changed, steps = _change_word(parts[32:], rng)
    else:
        changed, steps = change_bytes(parts[32:], rng)
    parts = fixed + changed
    new = head._replace(
        parts_bytes=len(parts), parts_crc=zlib.crc32(parts), memory_crc=zlib.crc32(memory)
    )
    gap = bytes(padding(HEAD.size + len(parts)))
    return Mutant(base, ("parts", *steps), HEAD.pack(*new) + parts + gap + memory)


def _change_word(parts: bytes, rng: random.Random) -> tuple[bytes, list[str]]:
    """Change numbers a little: references, counts, places."""
    changed = bytearray(parts)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(max(1, len(changed) - 7))
        (word,) = struct.unpack_from("<q", changed, at)
        word = word + rng.choice((-8, -2, -1, 1, 2, 8)) if rng.random() < 0.7 else rng.randrange(40)
        struct.pack_into("<q", changed, at, max(min(word, (1 << 63) - 1), -1 << 63))
    return bytes(changed), ["word"]


def run(mutant: Mutant, index: int) -> Ending:
    """Load a mutant, save it again, and run it to its end."""
    vm = _machines()[mutant.base.split()[0]]
    try:
        found = relaxvm.load_run(mutant.data, vm)
        again = saved(found)
        if saved(relaxvm.load_run(again, vm)) != again:
            return Outcome.STRAY_ERROR, "differs: after saving and loading"
    except InternalError as error:
        return Outcome.STRAY_ERROR, described(error)
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)
    try:
        found.resume(fuel=10_000)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, f"run: {described(error)}"
    return Outcome.RESULT, ""
