"""Requests on models: what a server answers, without the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from ..errors import DeadlineError
from ..messages import readable
from ..vm.machine import VirtualMachine
from .batching import Arrays, Batcher
from .interface import Interface
from .models import Model, Repository
from .scheduling import Scheduler
from .tensors import RequestError

__all__ = ["Answer", "Service", "Statistics"]

_LOADERS: Final = 2
"""Threads that load models."""


@dataclass(slots=True)
class Statistics:
    """Of a version of a model, since the start; times in seconds.

    Attributes:
        requests: that were answered.
        failures: requests that were not, because of an error.
        runs: of its function: fewer than requests where requests were joined.
        queue: the time that requests have waited.
        compute: the time of turns in threads.
        total: the time of requests from their arrival to their answer.
        failed: the same for failures.
        last: when it was last used, in seconds since 1970.
    """

    requests: int = 0
    failures: int = 0
    runs: int = 0
    queue: float = 0.0
    compute: float = 0.0
    total: float = 0.0
    failed: float = 0.0
    last: float = 0.0


class Answer(NamedTuple):
    """What a model has answered.

    Attributes:
        model: which it was.
        interface: of its function.
        arrays: the outputs by name.
    """

    model: Model
    interface: Interface
    arrays: Mapping[str, NDArray[Any]]


class Service:
    """Computes requests in an event loop, by the threads of a scheduler.

    Args:
        repository: the models.
        scheduler: runs them.
        timeout: seconds for a request whose model does not say.
    """

    def __init__(
        self, repository: Repository, scheduler: Scheduler, *, timeout: float = 60.0
    ) -> None:
        self.repository = repository
        self.scheduler = scheduler
        self.timeout = timeout
        self.statistics: dict[tuple[str, str], Statistics] = {}
        self._batchers: WeakKeyDictionary[Model, Batcher] = WeakKeyDictionary()
        self._loaders = ThreadPoolExecutor(_LOADERS, thread_name_prefix="relaxvm-load")

    def statistics_of(self, model: Model) -> Statistics:
        """The statistics of a version of a model."""
        return self.statistics.setdefault((model.name, model.version), Statistics())

    async def in_loader(self, work: Any, *args: Any) -> Any:
        """Do what takes long, such as loading, in a thread for such work."""
        return await asyncio.get_running_loop().run_in_executor(self._loaders, work, *args)

    @asynccontextmanager
    async def use(self, name: str, version: str | None = None) -> AsyncIterator[Model]:
        """A model, which is loaded first if need be; see `Repository.use`."""
        repository = self.repository
        model = repository.find(name, version)
        if not repository.try_acquire(model):
            model = await self.in_loader(repository.acquire, name, version)
        try:
            yield model
        finally:
            repository.release(model)

    async def infer(
        self,
        name: str,
        version: str | None,
        inputs: Arrays,
        parameters: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Compute the outputs of a model.

        Args:
            name, version: the model; the newest version if None.
            inputs: arrays by name.
            parameters: ``priority``, and ``timeout`` in microseconds, which only shortens the
                model's own.

        Raises:
            UnknownModelError, ModelError: there is no such model, or it cannot be loaded.
            RequestError: the inputs or parameters do not fit.
            QueueFullError: too many requests wait.
            DeadlineError: it took too long.
            Exception: what the program raises.
        """
        arrived = time.monotonic()
        async with self.use(name, version) as model:
            statistics = self.statistics_of(model)
            try:
                interface = model.interface
                interface.arranged(inputs)  # before others are joined with it
                priority, timeout = self._terms(model, parameters or {})
                left = timeout - (time.monotonic() - arrived)
                arrays = await self._computed(model, inputs, priority, left)
            except BaseException:
                statistics.failures += 1
                statistics.failed += time.monotonic() - arrived
                raise
            statistics.requests += 1
            statistics.total += time.monotonic() - arrived
            statistics.last = time.time()
            return Answer(model, interface, arrays)

    async def _computed(
        self, model: Model, inputs: Arrays, priority: int, timeout: float
    ) -> Arrays:
        own_priority = priority == model.options.priority
        if model.options.batch <= 1 or not own_priority:
            return await self.call(model, model.vm, model.interface, inputs, priority, timeout)
        try:
            async with asyncio.timeout(max(0.0, timeout)):
                return await self._batcher(model).infer(inputs)
        except TimeoutError as error:
            if isinstance(error, DeadlineError):
                raise
            raise DeadlineError(
                f"the call of {readable(model.name)} has not ended in its time"
            ) from None

    def _batcher(self, model: Model) -> Batcher:
        batcher = self._batchers.get(model)
        if batcher is None:
            options, name, version = model.options, model.name, model.version

            async def compute(arrays: Arrays) -> Arrays:
                # It may be computed after the requests of the group have been given up.
                async with self.use(name, version) as used:
                    return await self.call(
                        used, used.vm, used.interface, arrays, options.priority,
                        self.timeout if options.timeout is None else options.timeout,
                    )  # fmt: skip

            batcher = Batcher(compute, options.batch, options.batch_delay)
            self._batchers[model] = batcher
        return batcher

    async def call(
        self,
        model: Model,
        vm: VirtualMachine,
        interface: Interface,
        inputs: Arrays,
        priority: int,
        timeout: float,
    ) -> Arrays:
        """Run a function of a machine of a model; see `infer`."""
        args = interface.arranged(inputs)
        function = vm.functions[interface.function]
        job = self.scheduler.submit(
            model.share, lambda: function.start(*args), priority=priority,
            timeout=max(0.0, timeout),
        )  # fmt: skip
        statistics = self.statistics_of(model)
        try:
            return interface.named(await asyncio.wrap_future(job))
        finally:
            statistics.runs += 1
            statistics.queue += job.queued or 0.0
            statistics.compute += job.used

    def _terms(self, model: Model, parameters: Mapping[str, Any]) -> tuple[int, float]:
        """The priority and the timeout of a request."""
        priority = parameters.get("priority", model.options.priority)
        if type(priority) is not int or not -1_000 <= priority <= 1_000:
            raise RequestError("priority: expected a number from -1000 to 1000")
        options = model.options
        timeout = self.timeout if options.timeout is None else options.timeout
        asked = parameters.get("timeout")
        if asked is not None:
            if type(asked) is not int or asked < 0:
                raise RequestError("timeout: expected microseconds, a number >= 0")
            if asked:
                timeout = min(timeout, asked / 1e6)
        return priority, timeout

    def close(self) -> None:
        """End the threads that load models.  The scheduler is closed by its owner."""
        self._loaders.shutdown()
