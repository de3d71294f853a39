"""Programs for the tests of engines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from relaxvm import ExecBuilder, VMExecutable

ROWS = 400
INPUTS = {"x": ["a", "b", "c", "d"], "y": ["d", "c", "b", "a"]}


def frame() -> Any:
    """A table of pandas: four columns of numbers, and the number of the row."""
    import pandas as pd

    numbers = np.random.default_rng(0).random((ROWS, 4))
    made = pd.DataFrame(numbers, columns=list("abcd"))
    made["id"] = np.arange(ROWS)
    return made


def expected(table: Any) -> np.ndarray:
    """What the program `double` makes of its rows, with `INPUTS`."""
    x = table[list("abcd")].to_numpy(np.float32)
    return 2 * (x + x[:, ::-1])


def counting(last: int) -> VMExecutable:
    """``main(x)``: calls "tests.tick" so many times, and returns ``x`` plus what they add."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        eb.emit_call("vm.builtin.copy", args=[eb.convert_constant(np.array(0))], dst=eb.r(1))
        eb.emit_call("tests.tick", args=[eb.r(1)], dst=eb.r(1))
        end = eb.convert_constant(np.array(last))
        eb.emit_call("tests.is_less", args=[eb.r(1), end], dst=eb.r(2))
        eb.emit_if(eb.r(2), 2)
        eb.emit_goto(-3)
        eb.emit_call("tests.add", args=[eb.r(0), eb.r(1)], dst=eb.r(3))
        eb.emit_ret(eb.r(3))
    return eb.get()


def functions_of_counting(log: Path, seconds: float) -> dict[str, Callable[..., Any]]:
    """What `counting` calls: "tests.tick" takes some time, and writes number and process to a log.
    They are closures, which travel by value."""
    name = os.fspath(log)

    def tick(n):
        import os

        import numpy as np

        with open(name, "a") as file:
            file.write(f"{int(n)} {os.getpid()}\n")
        time.sleep(seconds)
        return np.array(int(n) + 1)

    def is_less(n, last):
        return bool(n < last)

    def add(x, n):
        return x + n

    return {"tests.tick": tick, "tests.is_less": is_less, "tests.add": add}


def ticks(log: Path) -> list[tuple[int, int]]:
    """Number and process of all ticks so far."""
    try:
        lines = log.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(int(number), int(process)) for number, process in map(str.split, lines)]


def wait_until(is_so: Callable[[], object], seconds: float = 600.0) -> None:
    """Wait for a condition; fail when it takes too long."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
