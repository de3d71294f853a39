"""A campaign: run many mutants in parallel batches and count the outcomes."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from .changes import Mutant
from .kinds import KINDS
from .outcomes import Outcome
from .workers import Budget, Result, run_batch

__all__ = ["Summary", "main", "run"]

BATCH: Final = 1000
"""Mutants per worker process."""
TVM_BUDGET: Final = Budget(cpu=3.0, silence=60.0)


@dataclass
class Summary:
    """Counts of a campaign.

    Attributes:
        outcomes: number of mutants by outcome; ``signal``, ``exit`` and ``hang`` for processes.
        errors: number of mutants by outcome and class of the exception.
        bad: the results that must not happen, at most a thousand.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    bad: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> bool:
        """Count a result; return whether it is acceptable."""
        name, _, detail = result.line.partition(" ")
        self.outcomes[name] += 1
        if detail:
            self.errors[f"{name} {detail.partition(':')[0]}"] += 1
        good = not result.died and name != Outcome.STRAY_ERROR.name
        if not good and len(self.bad) < 1000:
            self.bad.append(result)
        return good

    @property
    def clean(self) -> bool:
        """Whether no process died and every exception was an expected one."""
        return not self.bad

    def to_dict(self) -> dict[str, Any]:
        return {
            "mutants": self.outcomes.total(),
            "outcomes": dict(sorted(self.outcomes.items())),
            "errors": dict(sorted(self.errors.items())),
            "bad": [vars(result) for result in self.bad],
        }

    def __str__(self) -> str:
        total = max(1, self.outcomes.total())
        lines = [
            f"{name:<16}{count:>10}{100 * count / total:>8.2f} %"
            for name, count in self.outcomes.most_common()
        ]
        lines += [f"    {name:<40}{count:>10}" for name, count in self.errors.most_common()]
        alike: dict[str, list[str]] = {}
        for result in self.bad:
            alone = "" if not result.died or result.alone else " (not when it runs alone)"
            alike.setdefault(result.line + alone, []).append(str(result.index))
        lines.extend(f"{line}: mutants {', '.join(where[:5])}" for line, where in alike.items())
        return "\n".join(lines)


def run(
    indices: range,
    seed: int = 0,
    *,
    kind: str = "vmexec",
    tvm: bool = False,
    jobs: int = 2,
    memory: int | None = Budget.memory,
) -> Iterator[Result]:
    """Yield the results of mutants, in order.

    Args:
        indices: the mutants to run.
        seed: of the campaign.
        kind: a key of `KINDS`.
        tvm: run them on apache-tvm, each in its own process.
        jobs: number of parallel batches.
        memory: limit on the address space of a worker, in bytes, or None.
    """
    batches = [indices[i : i + BATCH] for i in range(0, len(indices), BATCH)]
    batch = _Batch(kind, seed, tvm, memory)
    batch.warm_up()
    gc.collect()
    gc.freeze()  # or every worker would copy these pages
    # Each process of the pool forks the workers of one batch after the other.
    with multiprocessing.get_context("fork").Pool(jobs, _leave_signals) as pool:
        for found in pool.imap(batch, batches):
            yield from found


def _leave_signals() -> None:
    """Ignore signals in a process of the pool: the campaign handles SIGINT and ends the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@dataclass(frozen=True)
class _Batch:
    kind: str
    seed: int
    tvm: bool
    memory: int | None = None

    def __call__(self, indices: range) -> list[Result]:
        budget = replace(TVM_BUDGET if self.tvm else Budget(), memory=self.memory)
        return list(run_batch(self.job, indices, budget, isolate=self.tvm))

    def mutant(self, index: int) -> Mutant:
        return KINDS[self.kind].make(index, self.seed)

    def job(self, index: int) -> str:
        made = self.mutant(index)
        if self.tvm:
            from . import tvm_side

            return tvm_side.execute(made, index)
        outcome, detail = KINDS[self.kind].run(made, index)
        shown = "" if outcome == Outcome.RESULT else detail.replace("\n", " ")
        return f"{outcome.name} {shown}".strip()

    def warm_up(self) -> None:
        """Import and cache what every worker needs, before the first fork."""
        KINDS[self.kind].warm_up()
        self.mutant(0)
        if self.tvm:
            from . import tvm_side  # noqa: F401
        else:
            import relaxvm.vm  # noqa: F401


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 if no result was bad, 1 otherwise; with ``--tvm`` always 0.
    """
    options = _parsed(argv)
    if options.show is not None:
        return _show(_Batch(options.kind[0], options.seed, options.tvm), options.show)
    # A job in the background of a script ignores SIGINT, so both end the campaign with its counts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    summaries: dict[str, Summary] = {}
    try:
        for kind in options.kind:
            summaries[kind] = Summary()
            _campaign(kind, options, summaries[kind])
    except KeyboardInterrupt:
        print("\nstopped; the counts so far:", file=sys.stderr)
    if options.save is not None:
        for kind, summary in summaries.items():
            _save(_Batch(kind, options.seed, options.tvm), summary.bad, options.save)
    if options.json:
        print(json.dumps({kind: summary.to_dict() for kind, summary in summaries.items()}))
    else:
        for kind, summary in summaries.items():
            print(f"{kind}: {summary.outcomes.total():,} mutants, seed {options.seed}\n{summary}")
    return 0 if options.tvm or all(summary.clean for summary in summaries.values()) else 1


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--kind", type=_kinds, default=["vmexec"], metavar="KIND,...",
        help=f"kinds of file, or 'all': {', '.join(KINDS)} (default: vmexec)",
    )  # fmt: skip
    parser.add_argument("--count", type=int, default=20_000, help="number of mutants of each kind")
    parser.add_argument("--first", type=int, default=0, help="index of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--tvm", action="store_true", help="run executables on apache-tvm")
    parser.add_argument(
        "--memory", type=int, default=6, metavar="GIB",
        help="address space of a worker; 0 for no limit, which sanitizers need",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--show", type=int, metavar="INDEX", help="run one mutant here and now")
    parser.add_argument("--save", type=Path, metavar="DIR", help="where bad mutants are written")
    options = parser.parse_args(argv)
    if options.tvm and options.kind != ["vmexec"]:
        parser.error("--tvm: only executables (--kind vmexec) run on apache-tvm")
    return options


def _kinds(text: str) -> list[str]:
    names = list(KINDS) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown kind {unknown[0]!r}, expected some of {', '.join(KINDS)}"
        )
    return names


def _campaign(kind: str, options: argparse.Namespace, summary: Summary) -> None:
    """Run the mutants of a kind and count their outcomes."""
    indices = range(options.first, options.first + options.count)
    memory = options.memory << 30 if options.memory else None
    started = time.monotonic()
    for result in run(
        indices, options.seed, kind=kind, tvm=options.tvm, jobs=options.jobs, memory=memory
    ):
        if not summary.add(result) and not options.tvm:
            print(f"\n{kind} mutant {result.index}: {result.line}", file=sys.stderr)
        done = summary.outcomes.total()
        if done % 1000 == 0 or done == options.count:
            _progress(kind, done, options.count, time.monotonic() - started, len(summary.bad))


def _show(batch: _Batch, index: int) -> int:
    """Run one mutant in this process, for use with a debugger."""
    batch.warm_up()
    made = batch.mutant(index)
    print(f"mutant {index} of {made.base}: {', '.join(made.steps)}", flush=True)
    print(batch.job(index))
    return 0


def _save(batch: _Batch, bad: Sequence[Result], folder: Path) -> None:
    """Write mutants to files, and those that are folders to folders."""
    suffix = KINDS[batch.kind].suffix
    for result in bad:
        made = batch.mutant(result.index)
        path = folder / f"{batch.kind}-{batch.seed}-{result.index}{suffix}"
        for name, data in (made.folder or {"": made.data}).items():
            place = path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(data)


def _progress(kind: str, done: int, total: int, seconds: float, bad: int) -> None:
    rate = done / seconds if seconds else 0.0
    end = "\n" if done == total else ""
    text = f"\r{kind}: {done:,} of {total:,}, {rate:.0f} per second, {bad} bad"
    print(text, end=end, file=sys.stderr, flush=True)
