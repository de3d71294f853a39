"""Models on Ray: over datasets, as deployments of Ray Serve, as actors, and long runs as tasks.

::

    import ray
    from relaxvm.contrib.ray import map_batches

    dataset = ray.data.read_parquet("in/")
    map_batches(dataset, "iris.onnx", inputs={"X": ["length", "width"]}).write_parquet("out/")

Needs the extra ``ray``, and relaxvm on all machines of the cluster.  Every name below is imported
on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .data import Predictor, map_batches
    from .machines import RemoteMachine
    from .runs import long_run
    from .serving import deployment

__all__ = ["Predictor", "RemoteMachine", "deployment", "long_run", "map_batches"]

_MODULES: Final = {
    "Predictor": "data", "map_batches": "data", "RemoteMachine": "machines", "long_run": "runs",
    "deployment": "serving",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
