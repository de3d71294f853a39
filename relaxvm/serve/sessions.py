"""Sessions: machines with a state of their own, for the stateful interface over a wire.

``set_input``, ``invoke_stateful`` and ``get_outputs`` do what they do on a `VirtualMachine`.
Outputs stay with the server until they are asked for.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from numpy.typing import NDArray

from ..errors import QueueFullError
from ..messages import readable
from ..vm.machine import VirtualMachine
from .interface import Interface
from .models import Model
from .service import Service
from .tensors import RequestError

__all__ = ["Session", "Sessions", "UnknownSessionError"]

_SWEEP_SECONDS: Final = 1.0


class UnknownSessionError(RequestError):
    """There is no such session, or it has expired."""


class Session:
    """A machine of a client.

    Attributes:
        id: its secret name.
        model: which runs in it.
        vm: its machine.
        input_bytes: of the inputs that it keeps, by function.
    """

    def __init__(self, model: Model, vm: VirtualMachine) -> None:
        self.id = secrets.token_urlsafe(24)
        self.model = model
        self.vm = vm
        self.lock = asyncio.Lock()  # one call at a time, in the order of their arrival
        self.used = time.monotonic()
        self.is_closed = False
        self.input_bytes: dict[str, int] = {}
        self._interfaces: dict[str, Interface] = {}
        self._inputs: dict[str, dict[str, NDArray[Any]]] = {}
        self._outputs: dict[str, Mapping[str, NDArray[Any]]] = {}

    def interface(self, function: str) -> Interface:
        """What a function takes and returns.

        Raises:
            NotServableError: there is no such function, or the protocol cannot express it.
        """
        found = self._interfaces.get(function)
        if found is None:
            found = self._interfaces[function] = Interface.of(self.vm.executable, function)
        return found

    def get_outputs(self, function: str) -> Mapping[str, NDArray[Any]]:
        """The outputs of the last `Sessions.invoke_stateful` of a function.

        Raises:
            NotServableError, RequestError: there is no such function, or no output of it.
        """
        self.interface(function)
        outputs = self._outputs.get(function)
        if outputs is None:
            raise RequestError(f"{readable(function)}: no output is saved; call invoke_stateful "
                               f"first")  # fmt: skip
        return outputs


class Sessions:
    """The sessions of a server.

    Args:
        service: runs their calls.
        expiry: seconds without a call after which a session is closed.
        most: the most sessions of all models.
        most_bytes: the most bytes of the inputs that they keep.
    """

    def __init__(
        self,
        service: Service,
        *,
        expiry: float = 600.0,
        most: int = 1_000,
        most_bytes: int = 1 << 30,
    ) -> None:
        self._service = service
        self._expiry = expiry
        self._most = most
        self._most_bytes = most_bytes
        self._sessions: dict[str, Session] = {}
        self._opening: Counter[str] = Counter()  # by model

    @property
    def expiry(self) -> float:
        """Seconds without a call after which a session is closed."""
        return self._expiry

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, name: str, version: str | None = None) -> Session:
        """A new session of a model.

        Raises:
            UnknownModelError, ModelError: there is no such model, or it cannot be loaded.
            QueueFullError: there are as many sessions as may be.
        """
        self.close_expired()
        service = self._service
        model = service.repository.find(name, version)
        own = sum(session.model.name == name for session in self._sessions.values())
        own += self._opening[name]
        count = len(self._sessions) + self._opening.total()
        if own >= model.options.sessions or count >= self._most:
            raise QueueFullError(
                f"{readable(name)}: there are {own} sessions already, and {count} "
                f"of all models, the most that may be"
            )
        self._opening[name] += 1
        try:
            model = await service.acquire(name, version)
            try:
                session = Session(model, await service.in_loader(model.new_machine))
            except BaseException:
                service.repository.release(model)
                raise
        finally:
            self._opening[name] -= 1
            if not self._opening[name]:
                del self._opening[name]
        self._sessions[session.id] = session
        return session

    def find(self, id_: str, name: str) -> Session:
        """A session of a model.

        Raises:
            UnknownSessionError: there is none.
        """
        session = self._sessions.get(id_)
        if session is None or session.model.name != name:
            raise UnknownSessionError(
                f"there is no session {readable(id_)} of {readable(name)}; one without calls "
                f"expires after {self._expiry:g} s"
            )
        session.used = time.monotonic()
        return session

    async def set_input(
        self, session: Session, function: str, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Keep the inputs of a function for `invoke_stateful`.

        Raises:
            NotServableError, RequestError: there is no such function, or the inputs do not fit.
            QueueFullError: the sessions would keep too many bytes.
        """
        session.interface(function).arranged(arrays)
        has_texts = any(array.dtype.hasobject for array in arrays.values())
        count = await asyncio.to_thread(_nbytes, arrays) if has_texts else _nbytes(arrays)
        held = sum(sum(each.input_bytes.values()) for each in self._sessions.values())
        if held - session.input_bytes.get(function, 0) + count > self._most_bytes:
            raise QueueFullError(f"the inputs of all sessions would take more than "
                                 f"{self._most_bytes} bytes")  # fmt: skip
        session._inputs[function] = dict(arrays)
        session.input_bytes[function] = count

    async def invoke_stateful(self, session: Session, function: str) -> None:
        """Call a function with the inputs of `set_input`.

        Raises:
            RequestError: no inputs are set.
            Exception: as for `Service.infer`.
        """
        async with session.lock:
            if session.is_closed:
                raise UnknownSessionError("the session was closed")
            interface = session.interface(function)
            inputs = session._inputs.get(function)
            if inputs is None and interface.inputs:
                raise RequestError(f"{readable(function)}: no inputs are set; call set_input first")
            options = session.model.options
            timeout = self._service.timeout if options.timeout is None else options.timeout
            session._outputs[function] = await self._service.call(
                session.model, session.vm, interface, inputs or {}, options.priority, timeout
            )
            session.used = time.monotonic()

    async def close(self, session: Session) -> None:
        """Close a session, once its calls have ended."""
        async with session.lock:
            self._close(session)

    def _close(self, session: Session) -> None:
        if not session.is_closed:
            session.is_closed = True
            self._sessions.pop(session.id, None)
            session.vm.close()
            self._service.repository.release(session.model)

    def close_expired(self) -> None:
        """Close sessions that were not used for long."""
        oldest = time.monotonic() - self._expiry
        for session in list(self._sessions.values()):
            if session.used < oldest and not session.lock.locked():
                self._close(session)

    async def sweep(self) -> None:
        """Close sessions when they expire, until it is cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.close_expired()

    def close_all(self) -> None:
        """Close all sessions."""
        for session in list(self._sessions.values()):
            self._close(session)


def _nbytes(arrays: Mapping[str, NDArray[Any]]) -> int:
    """The bytes of arrays, with those of their strings."""
    texts = [array.ravel() for array in arrays.values() if array.dtype.hasobject]
    return sum(array.nbytes for array in arrays.values()) + sum(
        sum(map(len, each)) for each in texts
    )
