"""Requests that are computed together: their rows are joined along the first dimension."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batcher"]

Arrays = Mapping[str, NDArray[Any]]


class _Group:
    """Requests that can be joined: their arrays differ in the first dimension only."""

    def __init__(self) -> None:
        self.requests: list[tuple[Arrays, int, asyncio.Future[Arrays]]] = []
        self.rows = 0
        self.timer: asyncio.TimerHandle | None = None


class Batcher:
    """Joins requests of a model, in an event loop.

    A group of requests is computed as soon as it has enough rows, or its first request has waited
    long enough.  Where the computation of a group fails, each of its requests is computed by
    itself, so that one that is wrong does no harm to others.

    Args:
        compute: computes the outputs of inputs.
        most: the most rows of a group.  A request with more is computed by itself.
        delay: seconds that a request waits for others.
    """

    def __init__(
        self, compute: Callable[[Arrays], Awaitable[Arrays]], most: int, delay: float
    ) -> None:
        self._compute = compute
        self._most = most
        self._delay = delay
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_splittable = True
        """False once a result did not have a row for each row of the inputs."""

    async def infer(self, arrays: Arrays) -> Arrays:
        """The outputs for the inputs of a request."""
        sizes = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
        rows = sizes.pop() if len(sizes) == 1 else -1
        if not self.is_splittable or not 0 < rows < self._most:
            return await self._compute(arrays)
        key = tuple([(name, a.dtype, a.shape[1:]) for name, a in sorted(arrays.items())])
        group = self._groups.get(key)
        if group is not None and group.rows + rows > self._most:
            self._close(key, group)
            group = None
        loop = asyncio.get_running_loop()
        if group is None:
            group = self._groups[key] = _Group()
            group.timer = loop.call_later(self._delay, self._close, key, group)
        future: asyncio.Future[Arrays] = loop.create_future()
        group.requests.append((arrays, rows, future))
        group.rows += rows
        if group.rows == self._most:
            self._close(key, group)
        return await future

    def _close(self, key: tuple[Any, ...], group: _Group) -> None:
        """Compute a group; later requests are of another one."""
        if self._groups.get(key) is group:
            del self._groups[key]
        if group.timer is not None:
            group.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._run(group))
        self._tasks.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._tasks.discard)

    async def _run(self, group: _Group) -> None:
        requests = [each for each in group.requests if not each[2].done()]
        if len(requests) > 1:
            try:
                await self._run_joined(requests)
            except Exception:
                pass  # each of them says what is wrong
            else:
                return
        await asyncio.gather(*(self._run_alone(each) for each in requests))

    async def _run_joined(
        self, requests: Sequence[tuple[Arrays, int, asyncio.Future[Arrays]]]
    ) -> None:
        joined = {
            name: np.concatenate([arrays[name] for arrays, _, _ in requests])
            for name in requests[0][0]
        }
        work = asyncio.ensure_future(self._compute(joined))
        results = await _unless_all_cancelled(work, [future for *_, future in requests])
        total = sum(rows for _, rows, _ in requests)
        if any(array.ndim == 0 or array.shape[0] != total for array in results.values()):
            self.is_splittable = False
            raise ValueError("the outputs do not have a row for each row of the inputs")
        start = 0
        for _, rows, future in requests:
            if not future.done():
                end = start + rows
                future.set_result({name: array[start:end] for name, array in results.items()})
            start += rows

    async def _run_alone(self, request: tuple[Arrays, int, asyncio.Future[Arrays]]) -> None:
        arrays, _, future = request
        if future.done():
            return
        work = asyncio.ensure_future(self._compute(arrays))
        try:
            result = await _unless_all_cancelled(work, [future])
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            if not future.done():
                future.set_result(result)


async def _unless_all_cancelled(
    work: asyncio.Future[Arrays], futures: Sequence[asyncio.Future[Arrays]]
) -> Arrays:
    """The result of some work, which is cancelled when nobody waits for it any more."""

    def look(_: object) -> None:
        if all(future.cancelled() for future in futures):
            work.cancel()

    for future in futures:
        future.add_done_callback(look)
    try:
        return await work
    except asyncio.CancelledError:
        if all(future.cancelled() for future in futures):
            return {}
        raise
    finally:
        for future in futures:
            future.remove_done_callback(look)
