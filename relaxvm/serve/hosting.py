"""Run a server: models from folders, over HTTP, until a signal ends it.

The server takes no more connections then, answers what it has accepted, and ends.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Final

import uvicorn

from .app import Settings, make_app
from .models import ModelOptions, Repository
from .scheduling import Scheduler

__all__ = ["JsonFormatter", "listen", "serve"]


_READING: Final = 30.0
"""Seconds that clients have to read answers, when the server ends."""
_LONGEST: Final = 86_400.0


class JsonFormatter(logging.Formatter):
    """Writes a record as a line of JSON: time, level, message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        data |= getattr(record, "fields", {})
        if record.exc_info:
            data["traceback"] = self.formatException(record.exc_info)
        return json.dumps(data, default=str)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 takes a free one.

    Raises:
        OSError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol asyncio sends small answers at once (TCP_NODELAY).
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)
    except BaseException:
        made.close()
        raise
    return made


def serve(
    folders: Iterable[str | os.PathLike[str]],
    door: socket.socket,
    *,
    settings: Settings | None = None,
    options: ModelOptions | None = None,
    memory: int | None = None,
    threads: int | None = None,
    run_memory: int | None = None,
    swap: str | os.PathLike[str] | None = None,
    preload: bool = False,
    on_start: Callable[[], object] = lambda: None,
) -> None:
    """Serve models until SIGTERM or Ctrl-C.

    Args:
        folders: where the models are; see `relaxvm.serve.models`.
        door: the socket, of `listen`.
        settings: of the server.
        options: of models that do not say.
        memory: bytes of weights above which models are unloaded.
        threads, run_memory, swap: of the scheduler.
        preload: load all models first.
        on_start: is called when requests are taken.

    Raises:
        OSError: a folder cannot be read.
        ModelError: options are wrong, or with `preload` a model cannot be loaded.
    """
    with Scheduler(threads=threads, memory=run_memory, swap=swap) as scheduler:
        repository = Repository(folders, scheduler, memory=memory, options=options)
        if preload:
            for model in repository:
                with repository.use(model.name, model.version):
                    pass
        app = make_app(repository, scheduler, settings)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, date_header=True,
            lifespan="on", ws="none", timeout_keep_alive=30,
            timeout_graceful_shutdown=_patience(repository, settings or Settings()),
        )  # fmt: skip
        with closing(door):
            _Server(config, on_start).run(sockets=[door])


def _patience(repository: Repository, settings: Settings) -> int:
    """Seconds that the end of the server waits for requests, all of which end before, and for
    clients that do not read their answers, which may never do."""
    timeouts = [model.options.timeout or 0.0 for model in repository]
    return math.ceil(min(_LONGEST, max([settings.timeout, *timeouts]) + _READING))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_start: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()
