"""Models over datasets of Ray Data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import batches
from ..batches.predictor import Model
from .common import received, sent, the_package, use_assigned_processors

if TYPE_CHECKING:
    import ray.data

__all__ = ["Predictor", "map_batches"]


class Predictor(batches.Predictor):
    """A `relaxvm.contrib.batches.Predictor` for ``Dataset.map_batches``::

        dataset.map_batches(Predictor, fn_constructor_args=("iris.onnx",), batch_format="pyarrow",
                            compute=ray.data.ActorPoolStrategy(size=4))

    Each actor makes one, once.  Kernels run on as many threads as the actor has processors.

    Args:
        model: the path of a file that every machine has, an executable, or a reference to one in
            Ray's shared memory (``ray.put(executable)``), whose weights all actors of a machine
            use there.
        options: of `relaxvm.contrib.batches.Predictor`.
    """

    def __init__(self, model: Model | ray.ObjectRef[Any], **options: Any) -> None:
        if the_package().is_initialized():
            model = received(model)
            use_assigned_processors()
        super().__init__(model, **options)


def map_batches(
    dataset: ray.data.Dataset,
    model: Model,
    *,
    workers: int | tuple[int, int] | None = None,
    batch_size: int | None = 1024,
    batch_format: str = "pyarrow",
    num_cpus: float = 1,
    ray_options: dict[str, Any] | None = None,
    **options: Any,
) -> ray.data.Dataset:
    """The outputs of a model for the rows of a dataset, as columns.

    Actors compute batches.  Ray starts an actor whose machine has gone anew, and gives its batches
    to others.

    Args:
        dataset: of Ray Data.
        model: the path of a file that every machine has, or an executable, which goes to the shared
            memory of each machine once.
        workers: the number of actors, or the least and the most; None lets Ray choose.
        batch_size: the most rows of a batch; None for those of a block.
        batch_format: "pyarrow", "numpy" or "pandas".
        num_cpus: the processors of an actor, and threads of its kernels.
        ray_options: further arguments of ``Dataset.map_batches``, such as ``memory`` and
            ``max_restarts``.
        options: of `relaxvm.contrib.batches.Predictor`: which columns are inputs, and so on.

    Raises:
        BatchError: the options do not fit the model; before anything is computed.
        MissingExtraError: Ray is not installed.
        Exception: as for `relaxvm.contrib.batches.Predictor`.
    """
    data = the_package("ray.data")
    batches.Predictor(model, **options)  # says here what is wrong
    if isinstance(workers, tuple):
        least, most = workers
        pool = data.ActorPoolStrategy(min_size=least, max_size=most)
    else:
        pool = data.ActorPoolStrategy(size=workers)
    return dataset.map_batches(
        Predictor, fn_constructor_args=(sent(model),), fn_constructor_kwargs=options,
        batch_size=batch_size, batch_format=batch_format, num_cpus=num_cpus, compute=pool,
        **(ray_options or {}),
    )  # fmt: skip
