"""The Open Inference Protocol, version 2, over HTTP: an application for ASGI servers.

Source: the Open Inference Protocol's specification of KServe, "Predict Protocol - Version 2", and
Triton's extensions "binary tensor data", "classification", "model configuration", "model
repository", "schedule policy" and "statistics".  Beyond them: sessions, for the stateful interface.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import __version__
from ..errors import (
    BugError,
    CancelledError,
    DeadlineError,
    LimitError,
    QueueFullError,
    RelaxVMError,
)
from ..messages import readable
from .interface import Interface, NotServableError
from .metrics import CONTENT_TYPE_LATEST, Metrics
from .models import Model, ModelError, Repository, UnknownModelError
from .scheduling import Scheduler
from .service import Service, Statistics
from .sessions import Session, Sessions, UnknownSessionError
from .tensors import HEADER_LENGTH, RequestError, Wanted, encode, parse
from .tensors import Request as Wish

__all__ = ["Settings", "make_app"]

_LOG: Final = logging.getLogger("relaxvm.serve")
_EXTENSIONS: Final = [
    "binary_tensor_data", "classification", "model_configuration", "model_repository",
    "schedule_policy", "statistics",
]  # fmt: skip
_IN_THREAD_BYTES: Final = 256 << 10
"""Bodies above this are read and written in threads, so that the event loop goes on."""
_COMPRESSED_BYTES: Final = 1024
"""Answers above this are compressed, if the client asks for it."""
_NO_LOAD: Final = frozenset({"/v2/health/live", "/v2/health/ready"})
"""What answers without a token."""
_LOGGED_ID: Final = 200
"""Characters of a client's name for a request in logs."""
_CLOSED: Final = 499
"""The status in logs and metrics of a request whose client has gone."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a server.

    Attributes:
        token: what clients have to send as ``Authorization: Bearer TOKEN``; None for nothing.
        request_bytes: the most bytes of a request, also once it is decompressed.
        total_bytes: the most bytes of all requests at a time, and of the inputs that sessions keep.
        timeout: seconds for a request whose model does not say.
        control: whether clients may load and unload models.
        uploads: whether they may send models.
        session_expiry: seconds without a call after which a session is closed.
        sessions: the most sessions.
    """

    token: str | None = None
    request_bytes: int = 64 << 20
    total_bytes: int = 1 << 30
    timeout: float = 60.0
    control: bool = True
    uploads: bool = False
    session_expiry: float = 600.0
    sessions: int = 1_000


class _HTTPError(Exception):
    """Ends a request with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_app(
    repository: Repository, scheduler: Scheduler, settings: Settings | None = None
) -> Starlette:
    """Return the application, which closes its sessions and threads when it ends, and waits for the
    calls that go on.

    Args:
        repository: the models.
        scheduler: runs them; closed by its owner.
        settings: of the server.
    """
    return _Server(repository, scheduler, Settings() if settings is None else settings).app


class _Server:
    def __init__(self, repository: Repository, scheduler: Scheduler, settings: Settings) -> None:
        self._settings = settings
        self._repository = repository
        self._scheduler = scheduler
        self._service = Service(repository, scheduler, timeout=settings.timeout)
        self._sessions = Sessions(
            self._service, expiry=settings.session_expiry, most=settings.sessions,
            most_bytes=settings.total_bytes,
        )  # fmt: skip
        self._metrics = Metrics(self._service, self._sessions)
        self._is_open = False
        self._bytes = 0  # of requests that are being read or answered
        one = "/v2/models/{name}"
        session = one + "/sessions/{session}"
        table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "/v2/health/live", self._live),
            ("GET", "/v2/health/ready", self._ready),
            ("GET", "/v2", self._server_metadata),
            ("GET", "/v2/models/stats", self._all_statistics),
            ("POST", "/v2/repository/index", self._index),
            ("POST", "/v2/repository/models/{name}/load", self._load),
            ("POST", "/v2/repository/models/{name}/unload", self._unload),
            ("GET", "/metrics", self._metrics_text),
            ("POST", one + "/sessions", self._open_session),
            ("POST", one + "/versions/{version}/sessions", self._open_session),
            ("DELETE", session, self._close_session),
            ("POST", session + "/set_input/{function}", self._set_input),
            ("POST", session + "/invoke_stateful/{function}", self._invoke_stateful),
            ("GET", session + "/get_outputs/{function}", self._get_outputs),
        ]
        for prefix in (one, one + "/versions/{version}"):
            table += [
                ("GET", prefix, self._metadata),
                ("GET", prefix + "/ready", self._model_ready),
                ("GET", prefix + "/config", self._config),
                ("GET", prefix + "/stats", self._model_statistics),
                ("POST", prefix + "/infer", self._infer),
            ]
        routes = [
            Route(path, partial(self._answer, handler), methods=[method])
            for method, path, handler in table
        ]
        self.app = Starlette(
            routes=routes, lifespan=self._lifespan,
            exception_handlers={404: _no_route, 405: _no_route},
        )  # fmt: skip
        self.app.state.service = self._service  # for hosts that call models beside the protocol
        self.app.add_middleware(_Door, token=settings.token)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        sweep = asyncio.create_task(self._sessions.sweep())
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            sweep.cancel()
            with suppress(asyncio.CancelledError):
                await sweep
            self._sessions.close_all()
            self._service.close()

    # Every request

    async def _answer(
        self, handler: Callable[[Request], Awaitable[Response]], request: Request
    ) -> Response:
        """Handle a request; errors become answers, and every request is logged."""
        begun = time.perf_counter()
        fields: dict[str, Any] = {"method": request.method, "path": _logged_path(request.url.path)}
        request.state.fields = fields
        request.state.held = 0
        try:
            response = await handler(request)
            status = response.status_code
        except ClientDisconnect:
            status, response = _CLOSED, Response(status_code=400)
        except Exception as error:
            status, message = _status_of(error)
            if status >= 500 and not isinstance(error, (ModelError, RelaxVMError)):
                _LOG.exception("request failed: %s", error)
            fields["error"] = message
            # JSON is written as UTF-8, and names of files need not be.
            message = message.encode("utf-8", "backslashreplace").decode()
            response = JSONResponse({"error": message}, status)
            if status == 503:
                response.headers["retry-after"] = "1"
            if status == 408:  # the rest of it may never come
                response.headers["connection"] = "close"
            if status == 401:
                response.headers["www-authenticate"] = "Bearer"
        finally:
            self._bytes -= request.state.held
        seconds = time.perf_counter() - begun
        fields |= {"status": status, "ms": round(1000 * seconds, 3)}
        if "model" in fields:
            model, version = fields["model"], fields["version"]
            self._metrics.requests.labels(model, version, str(status)).inc()
            if status == 200:
                self._metrics.seconds.labels(model, version).observe(seconds)
        _LOG.log(logging.INFO if status < 500 else logging.WARNING, "request",
                 extra={"fields": fields})  # fmt: skip
        return response

    async def _body(self, request: Request) -> bytes:
        """The body of a request, decompressed."""
        most = self._settings.request_bytes
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip", "deflate"):
            raise _HTTPError(415, f"content-encoding: expected gzip or deflate, got "
                                  f"{readable(encoding)}")  # fmt: skip
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.timeout):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise _HTTPError(413, f"the request has more than {most} bytes")
                    self._hold(request, len(part))
                    parts.append(part)
        except TimeoutError:
            raise _HTTPError(408, "the request has not arrived in time") from None
        body = b"".join(parts)
        if encoding == "identity" or not body:
            return body
        self._hold(request, most)
        try:
            opened = await asyncio.to_thread(_decompressed, body, most)
        except zlib.error as error:
            raise RequestError(f"the request is not {encoding}: {error}") from None
        if opened is None:
            raise _HTTPError(413, f"the request has more than {most} bytes")
        return opened

    def _hold(self, request: Request, count: int) -> None:
        if self._bytes + count > self._settings.total_bytes:
            raise QueueFullError("too many bytes of requests are in work; try again later")
        self._bytes += count
        request.state.held += count

    async def _wish(self, request: Request) -> Wish:
        """The inference that a request asks for."""
        body = await self._body(request)
        length = request.headers.get(HEADER_LENGTH)
        if length is not None and not (length.isascii() and length.isdigit() and len(length) < 16):
            raise RequestError(f"{HEADER_LENGTH}: expected a number, got {readable(length)}")
        count = None if length is None else int(length)
        if len(body) > _IN_THREAD_BYTES:
            return await asyncio.to_thread(parse, body, count)
        return parse(body, count)

    async def _json(self, request: Request) -> dict[str, Any]:
        """The JSON object of a request, empty if it has no body."""
        body = await self._body(request)
        if not body.strip():
            return {}
        try:
            data = await asyncio.to_thread(json.loads, body)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the request is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise RequestError("the request: expected a JSON object")
        return data

    async def _tensors(
        self, request: Request, head: Mapping[str, Any], chosen: Any, names: Mapping[str, str]
    ) -> Response:
        """An answer with tensors."""
        large = sum(array.nbytes for _, array in chosen) > _IN_THREAD_BYTES
        work = partial(_encoded, head, chosen)
        body, json_bytes = await asyncio.to_thread(work) if large else work()
        headers = dict(names)
        media = "application/json"
        if json_bytes is not None:
            headers[HEADER_LENGTH] = str(json_bytes)
            media = "application/octet-stream"
        # Clients that would take anything name several; those that want it name one.
        accepted = request.headers.get("accept-encoding", "").strip().lower()
        if accepted in ("gzip", "deflate") and len(body) > _COMPRESSED_BYTES:
            body = await asyncio.to_thread(_compressed, body, accepted)
            headers["content-encoding"] = accepted
        return Response(body, headers=headers, media_type=media)

    def _name(self, request: Request) -> tuple[str, str | None]:
        name: str = request.path_params["name"]
        return name, request.path_params.get("version")

    # Health and metadata

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, request: Request) -> Response:
        return JSONResponse({"ready": self._is_open}, 200 if self._is_open else 503)

    async def _server_metadata(self, request: Request) -> Response:
        return JSONResponse(
            {"name": "relaxvm", "version": __version__, "extensions": _EXTENSIONS}
        )

    async def _metrics_text(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _model_ready(self, request: Request) -> Response:
        model = self._repository.find(*self._name(request))
        is_ready = self._is_open and model.is_wanted and not model.reason
        data = {"name": model.name, "ready": is_ready}
        if model.reason:
            data["error"] = model.reason
        return JSONResponse(data, 200 if is_ready else 503)

    async def _metadata(self, request: Request) -> Response:
        name, version = self._name(request)
        async with self._service.use(name, version) as model:
            interface = model.interface
            return JSONResponse({
                "name": name,
                "versions": [each.version for each in self._repository.versions(name)],
                "platform": f"relaxvm_{model.kind}",
                "inputs": [field.described() for field in interface.inputs],
                "outputs": [field.described() for field in interface.outputs],
            })  # fmt: skip

    async def _config(self, request: Request) -> Response:
        async with self._service.use(*self._name(request)) as model:
            return JSONResponse(_config_of(model))

    async def _model_statistics(self, request: Request) -> Response:
        name, version = self._name(request)
        models = self._repository.versions(name)
        if version is not None:
            models = [self._repository.find(name, version)]
        return self._statistics(models)

    async def _all_statistics(self, request: Request) -> Response:
        return self._statistics(list(self._repository))

    def _statistics(self, models: list[Model]) -> Response:
        return JSONResponse({
            "model_stats": [
                _statistics_of(model, self._service.statistics_of(model)) for model in models
            ]
        })  # fmt: skip

    # Inference

    async def _infer(self, request: Request) -> Response:
        name, version = self._name(request)
        model = self._repository.find(name, version)
        request.state.fields |= {"model": name, "version": model.version}
        wish = await self._wish(request)
        if wish.id:
            request.state.fields["id"] = readable(wish.id, _LOGGED_ID)
        answer = await _unless_gone(
            request, self._service.infer(name, version, wish.inputs, wish.parameters)
        )
        head: dict[str, Any] = {"model_name": name, "model_version": answer.model.version}
        if wish.id is not None:
            head["id"] = wish.id
        chosen = answer.interface.chosen(answer.arrays, wish.outputs, wish.binary)
        return await self._tensors(request, head, chosen, {})

    # The repository

    async def _index(self, request: Request) -> Response:
        data = await self._json(request)
        await self._service.in_loader(self._repository.scan)
        found = []
        for model in self._repository:
            is_ready = model.is_loaded and model.is_wanted
            if is_ready or not data.get("ready"):
                found.append({
                    "name": model.name, "version": model.version,
                    "state": "READY" if is_ready else "UNAVAILABLE", "reason": model.reason,
                })  # fmt: skip
        return JSONResponse(found)

    async def _load(self, request: Request) -> Response:
        name, _ = self._name(request)
        self._check_control()
        parameters = (await self._json(request)).get("parameters") or {}
        if not isinstance(parameters, dict):
            raise RequestError("parameters: expected an object")
        files = {key.removeprefix("file:"): value for key, value in parameters.items()
                 if key.startswith("file:")}  # fmt: skip
        others = set(parameters) - {f"file:{path}" for path in files} - {"config"}
        if others:
            raise RequestError(f"unknown parameters: {', '.join(map(readable, sorted(others)))}")
        if files:
            if not self._settings.uploads:
                raise _HTTPError(403, "this server takes no models: relaxvm serve "
                                      "--allow-uploads does")  # fmt: skip
            batch, delay = _batch_of(name, parameters.get("config"))
            decoded = await self._service.in_loader(_decoded, files)
            await self._service.in_loader(self._repository.upload, name, decoded, batch, delay)
        elif "config" in parameters:
            raise RequestError("config: expected files beside it; the options of models that are "
                               "there are in their files")  # fmt: skip
        await self._service.in_loader(self._repository.load, name)
        _LOG.info("loaded", extra={"fields": {"model": name, "upload": bool(files)}})
        return JSONResponse({})

    async def _unload(self, request: Request) -> Response:
        name, _ = self._name(request)
        self._check_control()
        await self._json(request)
        await self._service.in_loader(self._repository.unload, name)
        return JSONResponse({})

    def _check_control(self) -> None:
        if not self._settings.control:
            raise _HTTPError(403, "this server lets nobody load and unload models")

    # Sessions

    async def _open_session(self, request: Request) -> Response:
        name, version = self._name(request)
        await self._json(request)
        session = await self._sessions.open(name, version)
        functions = {}
        for info in session.vm.functions:
            with suppress(NotServableError):
                functions[info] = _described(session.interface(info))
        return JSONResponse({
            "id": session.id, "model_name": name, "model_version": session.model.version,
            "expires_in": self._sessions.expiry, "functions": functions,
        })  # fmt: skip

    def _session(self, request: Request) -> Session:
        name, _ = self._name(request)
        session = self._sessions.find(request.path_params["session"], name)
        request.state.fields |= {"model": name, "version": session.model.version}
        return session

    async def _close_session(self, request: Request) -> Response:
        await self._sessions.close(self._session(request))
        return JSONResponse({})

    async def _set_input(self, request: Request) -> Response:
        session = self._session(request)
        wish = await self._wish(request)
        await self._sessions.set_input(session, request.path_params["function"], wish.inputs)
        return JSONResponse({})

    async def _invoke_stateful(self, request: Request) -> Response:
        session = self._session(request)
        await self._json(request)
        function = request.path_params["function"]
        await _unless_gone(request, self._sessions.invoke_stateful(session, function))
        return JSONResponse({})

    async def _get_outputs(self, request: Request) -> Response:
        session = self._session(request)
        function = request.path_params["function"]
        arrays = session.get_outputs(function)
        binary = request.query_params.get("binary", "false") == "true"
        chosen = session.interface(function).chosen(arrays, None, binary)
        head = {"model_name": session.model.name, "model_version": session.model.version}
        return await self._tensors(request, head, chosen, {})


class _Door:
    """Lets in who has the token."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._expected and scope["path"] not in _NO_LOAD:
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, found = given.partition(b" ")
            is_right = hmac.compare_digest(found, self._expected)
            if scheme.lower() != b"bearer" or not is_right:
                _log_refused(scope["method"], scope["path"], 401)
                response = JSONResponse(
                    {"error": "expected the header Authorization: Bearer TOKEN"}, 401,
                    {"www-authenticate": "Bearer"},
                )  # fmt: skip
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _log_refused(method: str, path: str, status: int) -> None:
    """Log a request that has reached no handler."""
    fields = {"method": method, "path": _logged_path(path), "status": status}
    _LOG.info("request", extra={"fields": fields})


def _logged_path(path: str) -> str:
    """A path without the id of a session, which is a secret."""
    before, mark, _ = path.partition("/sessions/")
    return f"{before}{mark}..." if mark else path


async def _no_route(request: Request, error: Exception) -> Response:
    status: int = getattr(error, "status_code", 404)
    _log_refused(request.method, request.url.path, status)
    path = readable(request.url.path)
    message = f"there is nothing at {path}"
    if status == 405:
        message = f"{path} does not take {request.method}"
    return JSONResponse({"error": message}, status, getattr(error, "headers", None))


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """The result of some work, which is cancelled when the client goes away."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, gone):
            if not each.done():
                each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_OF_PROGRAMS: Final = (
    RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, AssertionError, MemoryError,
)  # fmt: skip
"""What a program raises for inputs that it does not take: of these, the checks of shapes."""


def _status_of(error: Exception) -> tuple[int, str]:
    """The status and the message for an error."""
    message = "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())[:1]])
    if isinstance(error, _HTTPError):
        return error.status, message
    if isinstance(error, (UnknownModelError, UnknownSessionError)):
        return 404, message
    if isinstance(error, (ModelError, QueueFullError, CancelledError)):
        return 503, message
    if isinstance(error, DeadlineError):
        return 504, message
    if isinstance(error, LimitError):
        return (504 if error.limit == "wall_time" else 422), message
    if isinstance(error, (RequestError, NotServableError)):
        return 400, message
    if isinstance(error, BugError):
        return 500, message
    if isinstance(error, _OF_PROGRAMS):
        return 400, message
    return 500, f"{type(error).__name__}: {message}"


def _encoded(
    head: Mapping[str, Any], chosen: Iterable[tuple[Wanted, NDArray[Any]]]
) -> tuple[bytes, int | None]:
    parts, json_bytes = encode(head, chosen)
    return b"".join(parts), json_bytes


def _decompressed(body: bytes, most: int) -> bytes | None:
    """What gzip or deflate has packed; None if it is more than `most` bytes."""
    # 32: the header says which of gzip and zlib it is.
    unpacker = zlib.decompressobj(32 + zlib.MAX_WBITS)
    data = unpacker.decompress(body, most + 1)
    if len(data) > most or unpacker.unconsumed_tail:
        return None
    if not unpacker.eof:
        raise zlib.error("it ends too early")
    return data


def _compressed(body: bytes, encoding: str) -> bytes:
    bits = zlib.MAX_WBITS + (16 if encoding == "gzip" else 0)
    packer = zlib.compressobj(1, wbits=bits)
    return packer.compress(body) + packer.flush()


def _decoded(files: Mapping[str, Any]) -> dict[str, bytes]:
    return {path: _base64(path, value) for path, value in files.items()}


def _base64(path: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise RequestError(f"file {readable(path)}: expected base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(f"file {readable(path)}: expected base64") from None


_CONFIG_KEYS: Final = frozenset({
    "name", "platform", "backend", "max_batch_size", "dynamic_batching"
})  # fmt: skip


def _batch_of(name: str, config: Any) -> tuple[int, float]:
    """The rows and the delay of a Triton configuration that came with files."""
    if config is None:
        return 1, 0.002
    try:
        data = json.loads(config)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"config: expected JSON: {error}") from None
    if not isinstance(data, dict) or data.get("name", name) != name:
        raise RequestError(f"config: expected an object of the model {readable(name)}")
    unknown = sorted(set(data) - _CONFIG_KEYS)
    if unknown:
        raise RequestError(f"config: not supported: {', '.join(map(readable, unknown))}; expected "
                           f"{', '.join(sorted(_CONFIG_KEYS))}")  # fmt: skip
    rows = data.get("max_batch_size", 0)
    batching = data.get("dynamic_batching") or {}
    delay = batching.get("max_queue_delay_microseconds", 2000) if isinstance(batching, dict) else -1
    if type(rows) is not int or not 0 <= rows <= 1 << 20:
        raise RequestError("config: max_batch_size: expected a number >= 0")
    if type(delay) is not int or not 0 <= delay <= 10_000_000:
        raise RequestError("config: dynamic_batching: expected max_queue_delay_microseconds")
    return max(1, rows), delay / 1e6


def _described(interface: Interface) -> dict[str, Any]:
    return {
        "inputs": [field.described() for field in interface.inputs],
        "outputs": [field.described() for field in interface.outputs],
    }


def _config_of(model: Model) -> dict[str, Any]:
    """The model's configuration in Triton's words."""
    options = model.options
    config: dict[str, Any] = {
        "name": model.name,
        "platform": f"relaxvm_{model.kind}",
        "backend": "relaxvm",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": options.batch if options.batch > 1 else 0,
        "input": [_config_field(each.described()) for each in model.interface.inputs],
        "output": [_config_field(each.described()) for each in model.interface.outputs],
        "default_model_filename": model.path.name,
        "parameters": {
            "function": {"string_value": options.function},
            "weight": {"string_value": str(options.weight)},
            "slots": {"string_value": str(options.slots)},
            "queue": {"string_value": str(options.queue)},
        },
    }
    if options.batch > 1:
        delay = round(options.batch_delay * 1e6)
        config["dynamic_batching"] = {"max_queue_delay_microseconds": delay}
    return config


def _config_field(described: Mapping[str, Any]) -> dict[str, Any]:
    datatype = described["datatype"]
    kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype or 'INVALID'}"
    return {"name": described["name"], "data_type": kind, "dims": described["shape"]}


def _statistics_of(model: Model, found: Statistics) -> dict[str, Any]:
    """The statistics of a model in Triton's words."""
    done = found.requests

    def duration(count: int, seconds: float) -> dict[str, int]:
        return {"count": count, "ns": round(seconds * 1e9)}

    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(found.last * 1000),
        "inference_count": done,
        "execution_count": found.runs,
        "inference_stats": {
            "success": duration(done, found.total),
            "fail": duration(found.failures, found.failed),
            "queue": duration(found.runs, found.queue),
            "compute_input": duration(done, 0.0),
            "compute_infer": duration(found.runs, found.compute),
            "compute_output": duration(done, 0.0),
            "cache_hit": duration(0, 0.0),
            "cache_miss": duration(0, 0.0),
        },
        "batch_stats": [],
    }
