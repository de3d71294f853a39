"""Requests on models: what a server answers, without the wire."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from ..errors import CancelledError, DeadlineError
from ..messages import readable
from ..vm.machine import VirtualMachine
from .batching import Arrays, Batcher
from .interface import Interface
from .models import Model, Repository
from .scheduling import Job, Scheduler
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
        self._loading: dict[Model, list[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
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
        model = await self.acquire(name, version)
        try:
            yield model
        finally:
            self.repository.release(model)

    async def acquire(self, name: str, version: str | None = None) -> Model:
        """As `use`; `Repository.release` has to be called afterwards."""
        repository = self.repository
        model = repository.find(name, version)
        if repository.try_acquire(model):
            return model
        # Requests that wait for one model take one of the few threads.
        waiting = self._loading.get(model)
        if waiting is None:
            waiting = self._loading[model] = []
            task = asyncio.get_running_loop().create_task(self._load(model, waiting))
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._tasks.discard)
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(loaded)
        try:
            await loaded
        except asyncio.CancelledError:
            if loaded.done() and not loaded.cancelled() and loaded.exception() is None:
                repository.release(model)
            raise
        return model

    async def _load(self, model: Model, waiting: list[asyncio.Future[None]]) -> None:
        """Load a model for those that wait for it; each of them has a use of it afterwards."""
        repository = self.repository
        error = None
        try:
            await self.in_loader(repository.acquire_model, model)
        except Exception as raised:
            error = raised
        finally:
            del self._loading[model]
        for loaded in waiting:
            if loaded.done():
                continue
            if error is not None:
                loaded.set_exception(error)
            else:
                repository.acquire_again(model)
                loaded.set_result(None)
        if error is None:
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
            options, repository = model.options, self.repository
            reference = weakref.ref(model)  # the batchers' dictionary holds it weakly, too

            async def compute(arrays: Arrays) -> Arrays:
                used = reference()
                # Those who wait use this very model, also where its file has changed since.  If
                # all of them have been given up, nobody needs the result.
                if used is None or not repository.acquire_again(used):
                    raise CancelledError("nobody waits for the call")
                try:
                    return await self.call(
                        used, used.vm, used.interface, arrays, options.priority,
                        self.timeout if options.timeout is None else options.timeout,
                    )  # fmt: skip
                finally:
                    repository.release(used)

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
        """Run a function of a machine of a model; see `infer`.

        If it is cancelled, it waits until the run has ended: it uses the machine and the model.
        """
        args = interface.arranged(inputs)
        function = vm.functions[interface.function]
        job = self.scheduler.submit(
            model.share, lambda: function.start(*args), priority=priority,
            timeout=max(0.0, timeout),
        )  # fmt: skip
        statistics = self.statistics_of(model)
        try:
            return interface.named(await asyncio.wrap_future(job))
        except asyncio.CancelledError:
            await _ended(job)
            raise
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


async def _ended(job: Job) -> None:
    """Wait until a cancelled job has ended, whatever happens meanwhile."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(ended.set)

    job.add_done_callback(tell)
    while not ended.is_set():
        with suppress(asyncio.CancelledError):
            await ended.wait()
