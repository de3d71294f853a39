"""Threads of tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import relaxvm

__all__ = ["cancelling", "run_in_threads"]


def run_in_threads(work: Callable[[int], Any], count: int) -> None:
    """Call ``work(i)`` for each i below `count`, each in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def cancelling(vm: relaxvm.VirtualMachine) -> Iterator[None]:
    """Cancel what a machine runs, again and again: the first time may come before the run."""
    stopped = threading.Event()

    def cancel() -> None:
        while not stopped.wait(0.02):
            vm.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        yield
    finally:
        stopped.set()
        canceller.join()
