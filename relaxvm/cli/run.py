"""``run``, ``resume`` and ``bench``: run a function of a file."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .arrays import replacing, write_npz
from .checkpoints import checked_interval, checkpointed, resumed
from .console import Console
from .exits import Exit, UsageError
from .inputs import gather_inputs
from .machines import add_machine_arguments, add_run_arguments, make_machine, make_vm, running
from .outputs import flatten, summarize, summary_line, to_arrays
from .suites import SUITES, run_suite

if TYPE_CHECKING:
    from ..executable import FunctionInfo
    from ..observe import Profile
    from ..vm import VirtualMachine

__all__ = ["add_commands"]

_BENCH_ROUND_SECONDS: Final = 0.02
"""The minimal time of a round of the benchmark, far above the resolution of the clock."""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    run = commands.add_parser(
        "run", parents=[common], help="run a function and summarize what it returns",
        description="Verify the file, run a function on inputs, print a summary of the outputs.",
    )  # fmt: skip
    add_run_arguments(run)
    run.add_argument("--output", metavar="PATH",
                     help="write the outputs: .npz, or .npy for one array")  # fmt: skip
    run.add_argument("--repeat", type=int, default=1, metavar="N",
                     help="run N times on the same arrays and report the times")  # fmt: skip
    run.add_argument("--profile", action="store_true",
                     help="print where the time goes: functions and call sites")  # fmt: skip
    run.add_argument("--trace", metavar="PATH",
                     help="write a timeline for https://ui.perfetto.dev")  # fmt: skip
    run.add_argument("--checkpoint", metavar="PATH",
                     help="save the run to this file now and then, and when it is stopped; "
                          "relaxvm resume goes on with it")  # fmt: skip
    run.add_argument("--every", type=float, metavar="SECONDS",
                     help="between two checkpoints (default 60)")  # fmt: skip
    run.set_defaults(command=_run)

    resume = commands.add_parser(
        "resume", parents=[common], help="go on with a run that was saved",
        description="Go on with a run that relaxvm run --checkpoint or run.save has written.",
    )  # fmt: skip
    resume.add_argument("run", metavar="RUN", help="the saved run")
    add_machine_arguments(resume)
    resume.add_argument("--output", metavar="PATH",
                        help="write the outputs: .npz, or .npy for one array")  # fmt: skip
    resume.add_argument("--checkpoint", metavar="PATH",
                        help="where checkpoints go (default: RUN)")  # fmt: skip
    resume.add_argument("--every", type=float, metavar="SECONDS",
                        help="between two checkpoints (default 60)")  # fmt: skip
    resume.set_defaults(command=_resume)

    bench = commands.add_parser(
        "bench", parents=[common], help="time a function, or the instructions of the machine",
        description="Time a function: rounds of calls, nanoseconds per call. Or time the programs "
        "of a suite.",
    )  # fmt: skip
    add_run_arguments(bench, optional=True)
    bench.add_argument("--suite", choices=list(SUITES), help="programs to time in place of FILE")
    bench.add_argument("--only", metavar="TEXT", default="",
                       help="of a suite, the programs whose names contain this text")  # fmt: skip
    bench.add_argument("--rounds", type=int, default=10, help="rounds (default 10)")
    bench.add_argument("--number", type=int, help="calls per round (default: 20 ms worth)")
    bench.set_defaults(command=_bench)


def _run(args: argparse.Namespace, console: Console) -> int:
    if args.repeat < 1:
        raise UsageError(f"--repeat: expected a number >= 1, got {args.repeat}")
    if args.every is not None and args.checkpoint is None:
        raise UsageError("--every: expected --checkpoint PATH beside it")
    vm, info = make_vm(args, console)
    inputs = gather_inputs(args, vm.executable, info, console)
    function = vm[info.name]
    if args.checkpoint is not None:
        if args.repeat > 1 or args.profile or args.trace:
            raise UsageError("--checkpoint: not together with --repeat, --profile and --trace")
        every = checked_interval(args.every)
        started = vm.functions[info.name].start(*inputs, checkpoint=args.checkpoint, every=every)
        result = checkpointed(started, args.checkpoint, args.file, console)
        return _show(args, result, vm, info, console)
    total = args.repeat if args.repeat > 1 else None
    profile: Profile | None = None
    times = []
    with ExitStack() as stack:
        if args.profile or args.trace:
            profile = stack.enter_context(_profile(vm))
        progress = stack.enter_context(console.progress(f"running {info.name}", total))
        for _ in range(args.repeat):
            begun = time.perf_counter_ns()
            with running(info.name):
                result = function(*inputs)
            times.append(time.perf_counter_ns() - begun)
            progress.step()

    return _show(args, result, vm, info, console, times, profile)


def _resume(args: argparse.Namespace, console: Console) -> int:
    every = checked_interval(args.every)
    vm = make_machine(args, console)
    path = args.checkpoint or args.run
    run = resumed(vm, args.run, path, every)
    result = checkpointed(run, path, args.file, console)
    return _show(args, result, vm, vm.executable.function(run.function), console)


def _show(
    args: argparse.Namespace,
    result: Any,
    vm: VirtualMachine,
    info: FunctionInfo,
    console: Console,
    times: Sequence[int] = (),
    profile: Profile | None = None,
) -> int:
    """Print and save what a run has returned."""
    names = vm.executable.names_of(info.name).outputs
    summaries = [summarize(name, leaf) for name, leaf in flatten(result, names)]
    data: dict[str, Any] = {"function": info.name, "outputs": summaries}
    console.text("\n".join(map(summary_line, summaries)) or "no outputs: an empty tuple")
    if len(times) > 1:
        data["times_ns"] = [*times]
        console.text(f"{len(times)} runs: min {_duration(min(times))}, "
                     f"median {_duration(statistics.median(times))}, max {_duration(max(times))}")
    if args.output is not None:
        _save(args.output, result, names, console)
    if profile is not None:
        _report(args, profile, data, console, of_model=bool(names))
    console.result(data)
    return Exit.OK


def _report(
    args: argparse.Namespace,
    profile: Profile,
    data: dict[str, Any],
    console: Console,
    *,
    of_model: bool,
) -> None:
    if args.trace is not None:
        with replacing(args.trace) as file:
            profile.save_chrome_trace(file)
    if args.profile:
        data["profile"] = profile.to_dict()
        _, _, sites = profile.table(by="site").partition("\n\n")
        _, _, lines = profile.table(by="line").partition("\n\n")
        # The nodes of a model say more than the instructions that they became.
        console.text(f"\n{profile.table()}\n{lines if of_model else sites}")


def _bench(args: argparse.Namespace, console: Console) -> int:
    if args.rounds < 1:
        raise UsageError(f"--rounds: expected a number >= 1, got {args.rounds}")
    if args.number is not None and args.number < 1:
        raise UsageError(f"--number: expected a number >= 1, got {args.number}")
    if (args.file is None) == (args.suite is None):
        raise UsageError("bench: expected either FILE or --suite")
    if args.suite is not None:
        return run_suite(args, console)
    vm, info = make_vm(args, console)
    inputs = gather_inputs(args, vm.executable, info, console)
    function = vm[info.name]
    with running(info.name), console.progress(f"timing {info.name}", args.rounds) as progress:
        number = args.number or _calls_per_round(function, inputs)
        rounds = []
        for _ in range(args.rounds):
            rounds.append(_time(function, inputs, number) / number)
            progress.step()
    figures = {"min": min(rounds), "median": statistics.median(rounds),
               "mean": statistics.fmean(rounds), "max": max(rounds)}  # fmt: skip
    console.text(
        f"{info.name}: {', '.join(f'{name} {_duration(ns)}' for name, ns in figures.items())} "
        f"per call ({args.rounds} rounds of {number} calls)"
    )
    console.result({"function": info.name, "calls_per_round": number, "rounds_ns": rounds,
                    **{f"{name}_ns": ns for name, ns in figures.items()}})  # fmt: skip
    return Exit.OK


def _calls_per_round(function: Callable[..., Any], inputs: list[Any]) -> int:
    """Return the number of calls that take about `_BENCH_ROUND_SECONDS`; measuring it is also the
    warm-up."""
    number = 1
    while True:
        elapsed = _time(function, inputs, number)
        if elapsed >= _BENCH_ROUND_SECONDS * 1e9:
            return number
        number = max(number * 2, min(number * 10, int(number * _BENCH_ROUND_SECONDS * 1e9
                                                      / max(elapsed, 1))))  # fmt: skip


def _time(function: Callable[..., Any], inputs: list[Any], number: int) -> int:
    """Return the nanoseconds of `number` calls."""
    rounds = range(number)
    begun = time.perf_counter_ns()
    for _ in rounds:
        function(*inputs)
    return time.perf_counter_ns() - begun


def _profile(vm: VirtualMachine) -> Profile:
    from ..observe import profile

    return profile(vm)


def _save(path: str, result: Any, names: Sequence[str], console: Console) -> None:
    arrays, left_out = to_arrays(result, names)
    if left_out:
        console.note(f"{path}: no array, not written: {', '.join(left_out)}")
    if not path.endswith(".npy"):
        write_npz(path, arrays)
        return
    if len(arrays) != 1:
        raise UsageError(f"--output {path}: an .npy file holds one array, the outputs are "
                         f"{len(arrays)}; use .npz")
    (array,) = arrays.values()
    if array.dtype.type.__module__ != "numpy":
        raise UsageError(f"--output {path}: an .npy file cannot hold {array.dtype.name}; use .npz")
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)


def _duration(ns: float) -> str:
    """Return a time with four digits, in a unit that keeps it below 10,000."""
    for scale, unit in ((1, "ns"), (1e3, "us"), (1e6, "ms")):
        if ns < 1e4 * scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns / 1e9:.4g} s"
