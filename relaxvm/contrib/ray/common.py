"""What the parts for Ray have in common."""

from __future__ import annotations

import importlib
import math
import os
from typing import Any

from ...core._threads import set_num_threads
from ...errors import MissingExtraError
from ...executable import VMExecutable
from ..batches.predictor import Model

__all__ = ["received", "sent", "the_package", "use_assigned_processors"]


def the_package(name: str = "ray") -> Any:
    """Ray, or a module of it.

    Raises:
        MissingExtraError: it is not installed, or lacks what the module needs.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise MissingExtraError(
            f"relaxvm.contrib.ray needs the package {package}; install relaxvm[ray]"
        ) from error


def sent(model: Model) -> Any:
    """A model on its way to other processes.  An executable is in Ray's shared memory: all
    processes of a machine use the weights there."""
    if isinstance(model, VMExecutable):
        return the_package().put(model)
    return os.path.abspath(model) if isinstance(model, (str, os.PathLike)) else model


def received(model: Any) -> Model:
    """What `sent` has sent."""
    ray = the_package()
    found: Model = ray.get(model) if isinstance(model, ray.ObjectRef) else model
    return found


def use_assigned_processors() -> None:
    """Let kernels run on as many threads as the actor or task has processors, unless the
    environment says how many."""
    if "RELAXVM_NUM_THREADS" in os.environ:
        return
    assigned = the_package().get_runtime_context().get_assigned_resources().get("CPU", 1)
    set_num_threads(max(1, math.floor(assigned)))
