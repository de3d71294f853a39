"""A training loop that is killed at random moments, and resumed from its checkpoints.

``python -m tests.killed_training --count 200`` kills processes with SIGKILL so many times, and
checks that the weights at the end are those of a run that nobody has disturbed.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VMExecutable

from . import children

EVERY: Final = 0.02
"""Seconds between checkpoints."""
LONGEST: Final = 0.5
"""Seconds from the beginning of a run to the moment when it is killed, at most."""
_CHILD: Final = """
import runpy, sys
sys.path.append(sys.argv.pop(1))  # last, so that an installed relaxvm is the one that runs
runpy.run_module("tests.killed_training", run_name="__main__")
"""
FINAL: Final = "weights.npy"
CHECKPOINT: Final = "run.ckpt"


def program(steps: int) -> VMExecutable:
    """``main(weights, targets)``: so many steps of stochastic gradient descent of a linear model on
    inputs from a random generator; the weights are changed in place."""
    eb = ExecBuilder()
    weights, targets = eb.r(0), eb.r(1)

    def call(name: str, *args: Any, dst: int | None = None) -> None:
        eb.emit_call(name, args=[*args], dst=None if dst is None else eb.r(dst))

    def constant(value: Any) -> int:
        return eb.convert_constant(value)

    with eb.function("main", num_inputs=2, param_names=["weights", "targets"]):
        call("relaxvm.builtin.random_generator", eb.imm(3), dst=2)
        call("vm.builtin.copy", constant(np.array(0)), dst=3)
        call("vm.builtin.copy", constant(np.array(1)), dst=4)
        call("vm.builtin.alloc_storage", eb.vm_state(), (512,), eb.imm(0), np.dtype("uint8"),
             constant("global"), dst=5)  # fmt: skip
        for place, dst in ((0, 6), (64, 7), (128, 8)):
            call("vm.builtin.alloc_tensor", eb.r(5), eb.imm(place), (8,), np.dtype("float64"),
                 dst=dst)  # fmt: skip
        call("vm.builtin.alloc_tensor", eb.r(5), eb.imm(192), (), np.dtype("int64"), dst=9)
        call("vm.builtin.alloc_tensor", eb.r(5), eb.imm(256), (), np.dtype("bool"), dst=10)
        call("relaxvm.builtin.random_normal", eb.r(2), (8,), constant(0.0), constant(1.0),
             constant("float64"), dst=11)  # fmt: skip
        call("relaxvm.kernel.subtract", weights, targets, eb.r(6))
        call("relaxvm.kernel.add", eb.r(6), eb.r(11), eb.r(7))
        call("relaxvm.kernel.multiply", eb.r(7), constant(np.array(0.003)), eb.r(8))
        call("relaxvm.kernel.subtract", weights, eb.r(8), weights)
        call("relaxvm.kernel.add", eb.r(3), eb.r(4), eb.r(9))
        call("vm.builtin.copy", eb.r(9), dst=3)
        call("relaxvm.kernel.less", eb.r(9), constant(np.array(steps)), eb.r(10))
        call("vm.builtin.read_if_cond", eb.r(10), dst=12)
        eb.emit_if(eb.r(12), 2)
        eb.emit_goto(-10)
        eb.emit_ret(weights)
    return eb.get()


def arguments() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.zeros(8), np.arange(8.0)


def child(folder: Path, steps: int) -> None:
    """Begin or go on, and write the weights at the end."""
    vm = relaxvm.VirtualMachine(program(steps))
    path = folder / CHECKPOINT
    if path.exists():
        run = relaxvm.load_run(path, vm, checkpoint=path, every=EVERY)
    else:
        run = vm["main"].start(*arguments(), checkpoint=path, every=EVERY)
    print(run.position, flush=True)
    weights = run.result()
    with (folder / "new.npy").open("wb") as file:
        np.save(file, weights)
    (folder / "new.npy").rename(folder / FINAL)


def killed(kills: int, steps: int, seed: int = 0) -> tuple[int, int]:
    """Kill a training so many times, and let it end.

    Returns:
        How many processes were killed, and how many of them went on from a checkpoint.

    Raises:
        AssertionError: the weights are others than without kills.
    """
    rng = random.Random(seed)
    expected = relaxvm.VirtualMachine(program(steps))["main"](*arguments())
    done = resumed = 0
    with tempfile.TemporaryDirectory(prefix="relaxvm-killed-") as name:
        folder = Path(name)
        while not (folder / FINAL).exists():
            command = [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parent.parent),
                       "--child", name, "--steps", str(steps)]  # fmt: skip
            with children.start(command, stdout=children.PIPE) as p:
                assert p.stdout is not None
                first = p.stdout.readline()
                resumed += first not in (b"", b"0\n")
                if done < kills:
                    time.sleep(rng.random() * LONGEST)
                    p.send_signal(signal.SIGKILL)
                p.wait(children.DEADLINE)
                assert p.returncode in (0, -signal.SIGKILL), p.returncode
                done += p.returncode == -signal.SIGKILL
        found = np.load(folder / FINAL)
    assert found.tobytes() == expected.tobytes(), (found, expected)
    return done, resumed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="kills (default 200)")
    parser.add_argument("--steps", type=int, default=20_000_000, help="of the training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(Path(options.child), options.steps)
        return 0
    done, resumed = killed(options.count, options.steps, options.seed)
    print(f"{done} processes killed, {resumed} went on from a checkpoint: the weights are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
