"""What limits a thousand machines: a simulation of a model over a large table on a cluster.

Workers load the weights, and then take batches from one queue, as Ray Data and Dask give them out.
The program has no engine and no clock in it: it adds up times.  Each scenario changes one thing,
and the table says how long the job takes, against one that wastes nothing.

    python bench/simulate_scaling.py --machines 10 100 1000
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Job:
    """A job, and the cluster on which it runs; times in seconds.

    Attributes:
        machines, workers: machines, and workers on each.
        rows: of the table, for each worker, so that the work grows with the cluster.
        row: the time of a row of the mean length.
        spread: of the lengths of rows: the standard deviation of their logarithm.
        is_sorted: whether batches are made of rows of similar length.
        batch: the rows of a batch, which are padded to the longest one.
        overhead: of a batch, in the engine and in the worker.
        driver: the time for which a batch occupies the one process that gives them out.
        weights: bytes.
        storage: bytes per second that the shared storage gives to all machines together.
        network: bytes per second that a machine takes.
        loads: who reads the weights from the storage: "worker", "machine", or "tree", where one
            machine does, and each that has them gives them to another.
        start: the time for a process to start, and to verify and link the program.
        slow: the part of the machines that are slow.
        slower: by which factor.
        is_static: whether each worker gets its part of the rows at the start.
        failures: of machines, in an hour of one machine.
        restart: the time until a machine that has failed is there again.
        again: whether a batch that is the last one of nobody else is computed twice, if it is late.
    """

    machines: int = 1000
    workers: int = 16
    rows: int = 200_000
    row: float = 0.002
    spread: float = 0.0
    is_sorted: bool = False
    batch: int = 2048
    overhead: float = 0.005
    driver: float = 0.0001
    weights: float = 500e6
    storage: float = 10e9
    network: float = 1.25e9
    loads: str = "machine"
    start: float = 3.0
    slow: float = 0.0
    slower: float = 4.0
    is_static: bool = False
    failures: float = 0.0
    restart: float = 60.0
    again: bool = False


BASE: Final = Job()

SCENARIOS: Final[dict[str, dict[str, Any]]] = {
    "as it should be": {},
    "each worker reads the weights": {"loads": "worker"},
    "weights from machine to machine": {"loads": "tree"},
    "weights of 20 GB": {"weights": 20e9},
    "weights of 20 GB, from machine to machine": {"weights": 20e9, "loads": "tree"},
    "batches of 256 rows": {"batch": 256},
    "batches of 32768 rows": {"batch": 32768},
    "1 % of the machines are 4 times slower": {"slow": 0.01},
    "the same, parts given out at the start": {"slow": 0.01, "is_static": True},
    "the same, late batches computed twice": {"slow": 0.01, "again": True},
    "rows of skewed lengths": {"spread": 1.0},
    "the same, batches of similar lengths": {"spread": 1.0, "is_sorted": True},
    "a machine fails once in 10 hours": {"failures": 0.1},
}  # fmt: skip


def ready_times(job: Job) -> NDArray[np.float64]:
    """When each machine's workers have the weights."""
    machines = np.arange(job.machines)
    own = job.weights / job.network
    if job.loads == "tree":
        # The number of machines that have them doubles with each step.
        return np.asarray(own * np.ceil(np.log2(machines + 2)))
    times = job.workers if job.loads == "worker" else 1
    total = times * job.machines * job.weights
    shared = max(total / job.storage, times * own)
    return np.full(job.machines, shared)


def batch_times(job: Job, rng: np.random.Generator) -> NDArray[np.float64]:
    """The times of all batches on a machine that is not slow."""
    count = job.machines * job.workers * job.rows // job.batch
    if not job.spread:
        return np.full(count, job.batch * job.row + job.overhead)
    # The lengths of a sample of batches; there are more batches than kinds of them.
    sample = min(count, 4096)
    lengths = rng.lognormal(-job.spread**2 / 2, job.spread, (sample, job.batch))
    lengths = lengths.clip(max=8.0)
    if job.is_sorted:
        lengths = np.sort(lengths, axis=None).reshape(sample, job.batch)
        rng.shuffle(lengths)
    times = lengths.max(axis=1) * job.batch * job.row + job.overhead
    return np.resize(times, count)


def useful(job: Job) -> float:
    """The time of the job on workers that waste nothing."""
    mean = 1.0
    if job.spread:  # of lengths that are cut off at 8
        drawn = np.random.default_rng(1).lognormal(-job.spread**2 / 2, job.spread, 1_000_000)
        mean = float(drawn.clip(max=8.0).mean())
    return job.rows * job.row * mean


def simulate(job: Job, seed: int = 0) -> float:
    """The time of a job."""
    rng = np.random.default_rng(seed)
    times = batch_times(job, rng)
    ready = job.start + ready_times(job)
    is_slow = rng.random(job.machines) < job.slow
    speed = np.where(is_slow, job.slower, 1.0)
    fails = (
        rng.exponential(3600 / job.failures, job.machines)
        if job.failures
        else np.full(job.machines, np.inf)
    )
    if job.is_static:
        return _static(job, times, ready, speed)
    return _from_a_queue(job, times.tolist(), ready.tolist(), speed.tolist(), fails.tolist(), rng)


def _static(
    job: Job, times: NDArray[np.float64], ready: NDArray[np.float64], speed: NDArray[np.float64]
) -> float:
    workers = job.machines * job.workers
    parts = np.resize(times, workers * (len(times) // workers)).reshape(workers, -1).sum(axis=1)
    ends = np.repeat(ready, job.workers) + parts * np.repeat(speed, job.workers)
    return float(ends.max())


def _from_a_queue(
    job: Job, times: list[float], ready: list[float], speed: list[float], fails: list[float],
    rng: np.random.Generator,
) -> float:  # fmt: skip
    """Each worker takes the next batch when it has none."""
    free = [(ready[i // job.workers], i) for i in range(job.machines * job.workers)]
    heapq.heapify(free)
    todo = list(reversed(times))
    driver = 0.0
    running: dict[int, tuple[float, float]] = {}  # worker -> its last batch's end, and time
    while todo:
        now, worker = heapq.heappop(free)
        machine = worker // job.workers
        if now >= fails[machine]:
            now = fails[machine] + job.restart + ready[machine]
            fails[machine] = now + rng.exponential(3600 / job.failures)
            heapq.heappush(free, (now, worker))
            continue
        driver = max(driver, now) + job.driver
        time = todo.pop()
        end = driver + time * speed[machine]
        if end > fails[machine]:  # the batch is computed again, by whoever is free
            todo.append(time)
            heapq.heappush(free, (fails[machine], worker))
            continue
        running[worker] = end, time
        heapq.heappush(free, (end, worker))
    if job.again:
        return _last_ones_again(job, free, running, speed)
    return max(end for end, _ in running.values())


def _last_ones_again(
    job: Job, free: list[tuple[float, int]], running: dict[int, tuple[float, float]],
    speed: list[float],
) -> float:  # fmt: skip
    """When all is done if workers without work compute the latest batches of others again."""
    late = sorted(running.items(), key=lambda item: -item[1][0])
    idle = sorted((end, worker) for end, worker in free if speed[worker // job.workers] == 1.0)
    done = 0.0
    spare: Iterator[tuple[float, int]] = iter(idle)
    for _, (end, time) in late:
        now, _ = next(spare, (end, -1))
        done = max(done, min(end, now + time))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machines", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--workers", type=int, default=BASE.workers, help="on each machine")
    parser.add_argument("--rows", type=int, default=BASE.rows, help="for each worker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[int, float]] = {}
    for name, changes in SCENARIOS.items():
        found[name] = {}
        for machines in options.machines:
            job = replace(
                BASE, machines=machines, workers=options.workers, rows=options.rows, **changes
            )
            found[name][machines] = simulate(job, options.seed) / useful(job)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.workers} workers on a machine, {options.rows} rows for each, seed "
          f"{options.seed}: the time of the job, against the useful work")  # fmt: skip
    print("| machines | " + " | ".join(map(str, options.machines)) + " |")
    print("|---|" + "---:|" * len(options.machines))
    for name, ratios in found.items():
        print(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios.values()) + " |")


if __name__ == "__main__":
    main()
