"""Timing a callable: what ``vm.time_evaluator`` returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["BenchmarkResult", "Evaluator"]

_GROWTH = 1.618
"""The minimal factor by which `number` grows after a repeat that was too short.  Source: TVM."""


class BenchmarkResult:
    """Times of a benchmark, in seconds per call.

    Attributes:
        results: one per repeat, each the mean over the calls of the repeat.
        mean, median, min, max, std: over `results`; `std` is that of the population.
    """

    __slots__ = ("max", "mean", "median", "min", "results", "std")

    def __init__(self, results: Sequence[float]) -> None:
        self.results = tuple(results)
        self.mean = float(np.mean(self.results))
        self.median = float(np.median(self.results))
        self.min = min(self.results)
        self.max = max(self.results)
        self.std = float(np.std(self.results))

    def __repr__(self) -> str:
        return (f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, "
                f"max={self.max}, std={self.std}, results={self.results})")

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = " ".join(f"{f'{name} (ms)':^12}" for name in names)
        row = " ".join(f"{getattr(self, name) * 1000:^12.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{row}"


class Evaluator:
    """Calls a function ``1 + number * repeat`` times and returns a `BenchmarkResult`.

    The first call is a warm-up and is not timed.

    Args:
        func: the function.
        number: calls per repeat.
        repeat: number of results.
        min_repeat_ms: a repeat that is shorter is repeated with more calls.
        cooldown_interval_ms: pause after every `repeats_to_cooldown`-th repeat.
        preprocess: called with the arguments before each repeat, outside of the timing.

    Raises:
        ValueError: a count is below 1 or a time below 0.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        preprocess: Callable[..., Any] | None = None,
    ) -> None:
        counts = {"number": number, "repeat": repeat, "repeats_to_cooldown": repeats_to_cooldown}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"time_evaluator: expected {name} >= 1, got {count}")
        times = {"min_repeat_ms": min_repeat_ms, "cooldown_interval_ms": cooldown_interval_ms}
        for name, span in times.items():
            if span < 0:
                raise ValueError(f"time_evaluator: expected {name} >= 0, got {span}")
        self._func = func
        self._number = number
        self._repeat = repeat
        self._min_seconds = min_repeat_ms / 1000
        self._pause_seconds = cooldown_interval_ms / 1000
        self._repeats_to_pause = repeats_to_cooldown
        self._preprocess = preprocess

    def __call__(self, *args: Any) -> BenchmarkResult:
        """Time the function with these arguments; its exceptions are propagated."""
        self._func(*args)
        number = self._number
        results = []
        for i in range(self._repeat):
            if self._preprocess is not None:
                self._preprocess(*args)
            number, seconds = self._one_repeat(number, args)
            results.append(seconds / number)
            if self._pause_seconds and (i + 1) % self._repeats_to_pause == 0:
                time.sleep(self._pause_seconds)
        return BenchmarkResult(results)

    def _one_repeat(self, number: int, args: tuple[Any, ...]) -> tuple[int, float]:
        func = self._func
        while True:
            start = time.perf_counter()
            for _ in range(number):
                func(*args)
            seconds = time.perf_counter() - start
            if seconds >= self._min_seconds:
                return number, seconds
            per_call = max(seconds / number, 1e-9)
            number = int(max(self._min_seconds / per_call + 1, number * _GROWTH + 1))
