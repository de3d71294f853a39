"""Long runs as tasks of Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ...limits import Limits
from ..batches.long_runs import run_to_end
from ..batches.predictor import Model
from .common import received, sent, the_package, use_assigned_processors

__all__ = ["long_run"]


def long_run(
    model: Model,
    *args: Any,
    checkpoints: str | os.PathLike[str],
    every: float = 30.0,
    function: str = "main",
    limits: Limits | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    num_cpus: float = 1,
    ray_options: Mapping[str, Any] | None = None,
) -> Any:
    """A call as a task of Ray, which another machine goes on with if one goes away.

    See `relaxvm.contrib.batches.run_to_end` for the arguments, of which references to objects of
    Ray are passed on; `checkpoints` is a folder that all machines share.

    Args:
        num_cpus: processors for the task, and threads of its kernels.
        ray_options: further options of the task.  Without ``max_retries`` it is tried again as
            often as machines go away.

    Returns:
        A reference to the result, for ``ray.get``.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    ray = the_package()
    options = {"num_cpus": num_cpus, "max_retries": -1, **(ray_options or {})}
    task = ray.remote(**options)(_run)
    return task.remote(
        [sent(model)], *args, checkpoints=os.path.abspath(checkpoints), every=every,
        function=function, limits=limits, functions=functions,
    )  # fmt: skip


def _run(model: list[Any], *args: Any, **options: Any) -> Any:
    use_assigned_processors()
    return run_to_end(received(model[0]), *args, **options)
