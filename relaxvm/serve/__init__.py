"""Many models in one process, and a server for them.

`Scheduler` runs calls of many programs on a few threads: fair, with priorities, deadlines, quotas
and back-pressure.  `Repository` loads models from folders when they are needed.  ``relaxvm serve``
and `make_app` answer the Open Inference Protocol over HTTP, and `RemoteMachine` is a machine behind
such a server.

The server needs the extra ``serve``; `Scheduler`, `Repository` and `RemoteMachine` do not.
Every name below is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from ..errors import MissingExtraError

if TYPE_CHECKING:
    from .app import Settings, make_app
    from .client import RemoteError, RemoteMachine
    from .hosting import JsonFormatter, listen, serve
    from .models import Model, ModelError, ModelOptions, Repository, UnknownModelError
    from .scheduling import Job, Scheduler, Share

__all__ = [
    "Job",
    "JsonFormatter",
    "Model",
    "ModelError",
    "ModelOptions",
    "RemoteError",
    "RemoteMachine",
    "Repository",
    "Scheduler",
    "Settings",
    "Share",
    "UnknownModelError",
    "listen",
    "make_app",
    "serve",
]

_MODULES: Final = {
    "Job": "scheduling", "Scheduler": "scheduling", "Share": "scheduling",
    "Model": "models", "ModelError": "models", "ModelOptions": "models", "Repository": "models",
    "UnknownModelError": "models",
    "RemoteError": "client", "RemoteMachine": "client",
    "Settings": "app", "make_app": "app",
    "JsonFormatter": "hosting", "listen": "hosting", "serve": "hosting",
}  # fmt: skip
_WITH_EXTRA: Final = frozenset({"app", "hosting"})


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        if module not in _WITH_EXTRA or (error.name or "").startswith("relaxvm"):
            raise
        raise MissingExtraError(
            f"the server needs the package {error.name}; install relaxvm[serve]"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
