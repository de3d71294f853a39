"""Models as a deployment of Ray Serve: the server of `relaxvm.serve` in each replica."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...executable import VMExecutable
from ...serve import ModelOptions, Repository, Scheduler
from ..batches.predictor import Model
from .common import received, sent, the_package, use_assigned_processors

if TYPE_CHECKING:
    import ray.serve
    from starlette.applications import Starlette

    from ...serve.service import Service

__all__ = ["deployment"]


class _Replica:
    """What a process of Ray Serve has: the models, and the application that answers requests."""

    def __init__(self, model: Any, name: str, options: ModelOptions, sessions: int) -> None:
        from ...serve.app import Settings, make_app

        use_assigned_processors()
        model = received(model)
        self._folder = tempfile.TemporaryDirectory(prefix="relaxvm-")
        if isinstance(model, VMExecutable):
            path = Path(self._folder.name, f"{name}.vmexec")
            model.save(path)
            model = path
        self._scheduler = Scheduler()
        repository = Repository([model], self._scheduler, options=options)
        self.names = sorted({each.name for each in repository})
        settings = Settings(control=False, sessions=sessions)
        self.app: Starlette = make_app(repository, self._scheduler, settings)
        self.service: Service = self.app.state.service


_replicas: list[_Replica] = []
"""That of this process, which has one at most: an application and its handle share it."""


def _start(model: list[Any], name: str, options: ModelOptions, sessions: int) -> Starlette:
    """The application of this process, which is a replica."""
    _replicas[:] = [_Replica(model[0], name, options, sessions)]
    return _replicas[0].app


async def _infer(inputs: Mapping[str, NDArray[Any]], model: str | None) -> dict[str, NDArray[Any]]:
    """The outputs by name, computed by this process."""
    (replica,) = _replicas
    if model is None:
        if len(replica.names) != 1:
            raise ValueError(f"infer: say which model: {', '.join(replica.names)}")
        (model,) = replica.names
    answer = await replica.service.infer(model, None, inputs)
    return dict(answer.arrays)


def deployment(
    model: Model,
    *,
    name: str = "model",
    num_replicas: int | str = 1,
    num_cpus: float = 1,
    options: ModelOptions | None = None,
    serve_options: Mapping[str, Any] | None = None,
) -> ray.serve.Application:
    """Models as an application for ``ray.serve.run``::

        handle = ray.serve.run(deployment("iris.onnx", num_replicas=2))
        handle.infer.remote({"X": rows}).result()

    Over HTTP it is the server of ``relaxvm serve``: the Open Inference Protocol below the route of
    the application.  Requests on sessions have to reach the process that has the session, so there
    are some with one replica only; `RemoteMachine` is a machine with a state of its own anywhere.

    Args:
        model: a file or folder that every machine has, as for ``relaxvm serve``, or an executable.
        name: of an executable in requests; files have their own names.
        num_replicas: processes, or "auto".
        num_cpus: processors for each, and threads of its kernels.
        options: how the models are served, where their folder does not say.
        serve_options: further arguments of ``ray.serve.deployment``, such as
            ``autoscaling_config`` and ``max_ongoing_requests``.

    Raises:
        MissingExtraError: Ray Serve is not installed.
        OSError, ModelError: there are no such files, or their options are wrong.
    """
    serve = the_package("ray.serve")
    options = ModelOptions() if options is None else options
    if not isinstance(model, VMExecutable):
        with Scheduler(threads=1) as scheduler:  # says here what is wrong
            Repository([model], scheduler, options=options)
    is_one = num_replicas == 1 and "autoscaling_config" not in (serve_options or {})
    arguments = [sent(model)], name, options, 1_000 if is_one else 0

    # These two travel by value, and what they call by its name.
    def build() -> Any:
        return _start(*arguments)

    class Models:
        """The replicas."""

        async def infer(
            self, inputs: Mapping[str, NDArray[Any]], model: str | None = None
        ) -> dict[str, NDArray[Any]]:
            """The outputs by name for inputs by name, of a model; the only one if None."""
            return await _infer(inputs, model)

    served = serve.ingress(build)(Models)
    keywords = {
        "name": "relaxvm", "num_replicas": num_replicas, **(serve_options or {}),
        "ray_actor_options": {
            "num_cpus": num_cpus, **(serve_options or {}).get("ray_actor_options", {})
        },
    }  # fmt: skip
    return serve.deployment(**keywords)(served).bind()
