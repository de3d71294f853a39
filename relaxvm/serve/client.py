"""A machine behind a server: the stateful interface over HTTP, with the names of `VirtualMachine`.

Needs nothing but the standard library and numpy.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from ..errors import RelaxVMError
from ..messages import describe, readable
from .tensors import HEADER_LENGTH, Wanted, encode, parse_response

__all__ = ["RemoteError", "RemoteMachine"]

_NAMES: Final = ("http", "https")


class RemoteError(RelaxVMError):
    """A server has answered with an error.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RemoteMachine:
    """A session of a model on a server: a machine with a state of its own.

    ::

        with RemoteMachine("http://localhost:8000", "counter") as vm:
            vm.set_input("main", x)
            vm.invoke_stateful("main")
            print(vm.get_outputs("main"))

    Outputs stay with the server until they are asked for.  The session ends when the machine is
    closed, or has not been used for long.  Not for several threads at once.

    Args:
        url: of the server.
        model: its name.
        version: of the model; the newest one if None.
        token: that the server asks for.
        timeout: seconds for the server to answer.

    Raises:
        ValueError: `url` is no address.
        OSError: there is no server.
        RemoteError: it refuses: there is no such model, or there are too many sessions.
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _NAMES or parts.hostname is None:
            raise ValueError(f"RemoteMachine: expected the URL of a server, such as "
                             f"http://localhost:8000, got {url!r}")  # fmt: skip
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        at = f"{parts.path.rstrip('/')}/v2/models/{quote(model, safe='')}"
        self._base = f"{at}/sessions"
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._id: str | None = None
        if version is not None:
            at += f"/versions/{quote(version, safe='')}"
        opened = self._json("POST", f"{at}/sessions")
        self._id = opened["id"]
        self._functions: dict[str, Any] = opened["functions"]

    @property
    def functions(self) -> dict[str, Any]:
        """The functions by name, with their inputs and outputs as the protocol describes them."""
        return self._functions

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the arguments for `invoke_stateful`; see `relaxvm.VirtualMachine.set_input`.

        Raises:
            ValueError: the function is unknown.
            TypeError: the arguments do not fit its parameters.
            RemoteError: the server refuses them.
        """
        described = self._functions.get(func_name)
        if described is None:
            raise ValueError(f"unknown function: the model has no function {readable(func_name)}")
        names = [each["name"] for each in described["inputs"]]
        free = [name for name in names if name not in kwargs]
        if len(args) > len(free):
            raise TypeError(f"{func_name}: expected {len(names)} arguments, got "
                            f"{len(args) + len(kwargs)}")  # fmt: skip
        given = {**dict(zip(free, args, strict=False)), **kwargs}
        arrays = [(Wanted(name, binary=True), _array(value)) for name, value in given.items()]
        body, count = encode({}, arrays, "inputs")
        headers = {} if count is None else {HEADER_LENGTH: str(count)}
        self._call("POST", f"set_input/{quote(func_name, safe='')}", b"".join(body), headers)

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments of `set_input`; see
        `relaxvm.VirtualMachine.invoke_stateful`.

        Raises:
            RemoteError: the server refuses it, or the program fails.
        """
        self._call("POST", f"invoke_stateful/{quote(func_name, safe='')}")

    def get_outputs(self, func_name: str) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Return the result of the last `invoke_stateful` of a function: an array, or a tuple of
        several.

        Raises:
            RemoteError: there is none.
        """
        path = f"get_outputs/{quote(func_name, safe='')}?binary=true"
        body, headers = self._call("GET", path)
        length = headers.get(HEADER_LENGTH)
        arrays = tuple(parse_response(body, None if length is None else int(length)).values())
        return arrays[0] if len(arrays) == 1 else arrays

    def close(self) -> None:
        """End the session.  Closing twice is allowed."""
        if self._id is not None:
            # Where the server is gone, or slow, the session ends by itself.
            with suppress(OSError, RemoteError, http.client.HTTPException):
                self._call("DELETE", "")
            self._id = None
        self._connection.close()

    def __enter__(self) -> RemoteMachine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        if self._id is None:
            raise RelaxVMError("the session was closed")
        return self._request(method, f"{self._base}/{self._id}/{path}".rstrip("/"), body, headers)

    def _json(self, method: str, path: str) -> Any:
        return json.loads(self._request(method, path)[0])

    def _request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        if _is_dropped(self._connection.sock):  # servers close connections that nobody uses
            self._connection.close()
        self._connection.request(method, path, body, {**self._headers, **(headers or {})})
        response = self._connection.getresponse()
        data = response.read()
        if response.status != 200:
            try:
                message = str(json.loads(data)["error"])
            except (ValueError, KeyError, TypeError):
                message = f"the server has answered {response.status} {response.reason}"
            raise RemoteError(message, response.status)
        return data, {name.lower(): value for name, value in response.getheaders()}


def _is_dropped(connection: socket.socket | None) -> bool:
    """Whether the other side has closed a connection on which nothing is due."""
    if connection is None:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _array(value: Any) -> NDArray[Any]:
    """Convert an argument as `relaxvm.VirtualMachine.set_input` does."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (bool, int)):
        return np.array(value, np.int32)
    if isinstance(value, float):
        return np.array(value, np.float32)
    if isinstance(value, str):
        return np.array(value, object)
    array = np.asarray(value)
    if array.dtype.kind not in "biufV":
        raise TypeError(f"set_input: expected an array, a number or text, got {describe(value)}")
    return array
