"""Calls that an event loop waits for: ``await vm["main"].async_call(x)``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core._threads import get_num_threads
from .runs import Run

if TYPE_CHECKING:
    from .machine import VirtualMachine

__all__ = ["call"]


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads that calls wait in: as many as kernels use.  The kernels of all of them share the
    kernels' own threads, so that more calls do not mean more work at once."""
    return ThreadPoolExecutor(max(2, get_num_threads()), thread_name_prefix="relaxvm-async")


def call(vm: VirtualMachine, index: int, args: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
    """A coroutine of a call of a VM function, which is checked here and now.

    Where the task is cancelled, the run ends at its next poll: between instructions, and inside of
    long kernels that look at the clock.

    Raises:
        ArityError, TypeError: the arguments do not fit.
    """
    return _wait(Run(vm, index, args, stepped=False))


async def _wait(run: Run) -> Any:
    future = asyncio.get_running_loop().run_in_executor(_pool(), run.result)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        run.cancel()
        future.add_done_callback(_forget)
        raise


def _forget(future: asyncio.Future[Any]) -> None:
    """Take the exception of a run that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
