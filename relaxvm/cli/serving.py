"""``serve``: models over HTTP."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..vm.program_cache import size_of
from .console import Console
from .exits import CommandError, Exit, UsageError, read_error

__all__ = ["add_commands"]

_TOKEN: Final = "RELAXVM_SERVE_TOKEN"


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    serve = commands.add_parser(
        "serve", parents=[common], help="serve models over HTTP",
        description="Serve the models of folders over HTTP, by the Open Inference Protocol "
        "version 2, until SIGTERM or Ctrl-C. Logs go to stderr, a line of JSON each. Needs the "
        "extra serve.",
    )  # fmt: skip
    serve.add_argument("folders", nargs="+", metavar="FOLDER",
                       help="has NAME.onnx, or NAME/VERSION/model.onnx; .pt2, .vmexec, .json and "
                            "Relay programs, too; or one such file")  # fmt: skip
    serve.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="port; 0 for a free one")
    serve.add_argument("--threads", type=int, metavar="N",
                       help="calls that go on at a time (default: cores, at least 2)")  # fmt: skip
    serve.add_argument("--memory", type=_size, metavar="BYTES",
                       help="of weights, above which models are unloaded: 500M, 4G")  # fmt: skip
    serve.add_argument("--run-memory", type=_size, metavar="BYTES",
                       help="of runs, above which those that wait go to --swap")  # fmt: skip
    serve.add_argument("--swap", metavar="FOLDER", help="for runs that wait")
    serve.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                       help="for a request (default 60)")  # fmt: skip
    serve.add_argument("--request-bytes", type=_size, default=64 << 20, metavar="BYTES",
                       help="the most of a request (default 64M)")  # fmt: skip
    serve.add_argument("--total-bytes", type=_size, default=1 << 30, metavar="BYTES",
                       help="the most of all requests at a time (default 1G)")  # fmt: skip
    serve.add_argument("--token-file", metavar="PATH",
                       help=f"has the token of clients; else the variable {_TOKEN}")  # fmt: skip
    serve.add_argument("--preload", action="store_true",
                       help="load all models first, and end if one cannot be")  # fmt: skip
    serve.add_argument("--no-control", action="store_true",
                       help="let nobody load and unload models")  # fmt: skip
    serve.add_argument("--allow-uploads", action="store_true",
                       help="take models from clients, into the first folder")  # fmt: skip
    serve.add_argument("--trust", action="store_true",
                       help="let models call all registered functions, without limits, unless "
                            "their options say otherwise")  # fmt: skip
    serve.set_defaults(command=_serve)


def _size(text: str) -> int:
    size = size_of(text)
    if size is None:
        raise argparse.ArgumentTypeError(f"expected bytes, or a number with K, M, G or T, "
                                         f"got {text!r}")  # fmt: skip
    return size


def _serve(args: argparse.Namespace, console: Console) -> int:
    from .. import serve
    from ..serve import JsonFormatter, ModelError, ModelOptions, Settings

    if not 0 <= args.port < 1 << 16:
        raise UsageError(f"--port: expected 0 to 65535, got {args.port}")
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads: expected a number >= 1, got {args.threads}")
    if not 0 < args.timeout < 1e9:
        raise UsageError(f"--timeout: expected seconds above 0, got {args.timeout:g}")
    if args.run_memory is not None and args.swap is None:
        raise UsageError("--run-memory: expected --swap FOLDER beside it")
    if args.swap is not None and not os.path.isdir(args.swap):
        raise UsageError(f"--swap: {args.swap} is no folder")
    settings = Settings(
        token=_token(args.token_file), request_bytes=args.request_bytes,
        total_bytes=args.total_bytes, timeout=args.timeout, control=not args.no_control,
        uploads=args.allow_uploads,
    )  # fmt: skip
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("relaxvm.serve")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    errors = logging.getLogger("uvicorn.error")
    errors.handlers[:] = [handler]
    errors.propagate = False
    errors.setLevel(logging.WARNING)
    try:
        door = serve.listen(args.host, args.port)
    except OSError as error:
        raise CommandError(f"cannot listen at {args.host} port {args.port}: "
                           f"{error.strerror or error}") from error  # fmt: skip
    url = _url(door)

    def on_start() -> None:
        console.text(f"serving at {url}")
        console.result({"url": url})
        console.flush()

    try:
        serve.serve(
            args.folders, door, settings=settings, memory=args.memory, threads=args.threads,
            options=replace(ModelOptions(), trusted=args.trust), run_memory=args.run_memory,
            swap=args.swap, preload=args.preload, on_start=on_start,
        )  # fmt: skip
    except ModelError as error:
        raise CommandError(str(error), Exit.FAILED) from error
    except OSError as error:
        raise read_error(error.filename or args.folders[0], error) from error
    return Exit.OK


def _url(door: socket.socket) -> str:
    host, port = door.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _token(path: str | None) -> str | None:
    if path is None:
        token = os.environ.get(_TOKEN)
        source = _TOKEN
    else:
        source = path
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise read_error(path, error) from error
    if token is not None and (not token.isascii() or not token.isprintable() or len(token) < 16):
        raise UsageError(f"{source}: expected a token of at least 16 printable ASCII characters")
    return token
