"""Models over Dask's dataframes and arrays, and long runs as tasks of Dask.

::

    import dask.dataframe as dd
    from relaxvm.contrib.dask import map_partitions

    frame = dd.read_parquet("in/")
    map_partitions(frame, "iris.onnx", inputs={"X": ["length", "width"]}).to_parquet("out/")

Needs the extra ``dask``.  A model by its path is opened by each process of the cluster, which maps
its weights; an executable travels to each process once.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..core._threads import set_num_threads
from ..errors import MissingExtraError, did_you_mean
from ..executable import VMExecutable
from ..limits import Limits
from ..messages import describe, readable
from . import batches
from .batches import BatchError
from .batches.predictor import Model, restored

if TYPE_CHECKING:
    import dask.array
    import dask.dataframe
    from dask.delayed import Delayed

__all__ = ["Predictor", "long_run", "map_blocks", "map_partitions"]

_KEPT: Final = 8
"""The predictors of paths that a process keeps."""


class Predictor(batches.Predictor):
    """A `relaxvm.contrib.batches.Predictor` for workers of Dask.

    A process makes a machine for a path once, however many tasks it runs.

    Args:
        model: the path of a file that `relaxvm.VirtualMachine` takes, or an executable.
        threads: on how many threads each kernel runs in a worker, which runs several tasks side by
            side; see `relaxvm.set_num_threads`.  None leaves the worker's setting.
        options: of `relaxvm.contrib.batches.Predictor`.
    """

    def __init__(self, model: Model, *, threads: int | None = 1, **options: Any) -> None:
        if isinstance(model, (str, os.PathLike)):  # workers have other working directories
            model = os.path.abspath(model)
        super().__init__(model, **options)
        self._threads = threads
        self._options["threads"] = threads
        self._token = _token(self)

    def predict(
        self, arrays: Mapping[str, NDArray[Any]], rows: int | None = None
    ) -> dict[str, NDArray[Any]]:
        _set_threads(self._threads)
        return super().predict(arrays, rows)

    def __dask_tokenize__(self) -> Any:
        return self._token

    def __reduce__(self) -> tuple[Any, ...]:
        make, args = super().__reduce__()
        if isinstance(self._made_of, VMExecutable):
            return make, args
        return _restored, (self._token, args)


def _token(predictor: batches.Predictor) -> str:
    """What tells a predictor from others for Dask, which computes equal things once."""
    tokenize = _dask("dask.tokenize").tokenize
    model = predictor._made_of
    options = dict(predictor._options)  # functions by what they do: their addresses occur again
    options["constants"] = dict(options["constants"] or {})
    if isinstance(model, VMExecutable):
        from ..executable.formats.binary import digest

        stamp: Any = digest(model)
    else:
        status = os.stat(model)
        stamp = os.path.abspath(model), status.st_size, status.st_mtime_ns
    found: str = tokenize(type(predictor).__name__, stamp, options)
    return found


_lock = threading.Lock()
_predictors: OrderedDict[str, batches.Predictor] = OrderedDict()


def _restored(token: str, args: tuple[Any, ...]) -> batches.Predictor:
    """The predictor of a path, which a process makes once."""
    with _lock:  # others wait for the one that makes it
        found = _predictors.get(token)
        if found is None:
            found = _predictors[token] = restored(*args)
        _predictors.move_to_end(token)
        while len(_predictors) > _KEPT:
            _predictors.popitem(last=False)
        return found


_set: int | None = None


def _set_threads(count: int | None) -> None:
    """In a worker, the number of threads of a kernel, unless the environment says it."""
    global _set
    if count is None or count == _set or "RELAXVM_NUM_THREADS" in os.environ:
        return
    try:
        _dask("distributed").get_worker()
    except (ImportError, ValueError):  # this is no worker
        return
    set_num_threads(count)
    _set = count


def map_partitions(
    frame: dask.dataframe.DataFrame, model: Model | batches.Predictor, **options: Any
) -> dask.dataframe.DataFrame:
    """The outputs of a model for the rows of a dataframe, as columns.

    Args:
        frame: of Dask.
        model: the path of a file that `relaxvm.VirtualMachine` takes, an executable, or a
            `Predictor`.
        options: of `Predictor`, where `model` is none: which columns are inputs, and so on.

    Raises:
        BatchError: the columns do not fit the model; before anything is computed.
        MissingExtraError: Dask is not installed.
        Exception: as for `Predictor`.
    """
    _dask("dask.dataframe")
    predictor = _predictor(model, options)
    if not hasattr(frame, "map_partitions") or not hasattr(frame, "_meta"):
        raise TypeError(f"map_partitions: expected a dataframe of Dask, got {describe(frame)}")
    source: Any = frame
    predictor.check(source._meta)
    meta = predictor(source._meta)
    found: dask.dataframe.DataFrame = source.map_partitions(
        _apply, _argument(predictor), meta=meta
    )
    return found


def _apply(partition: Any, later: _Later) -> Any:
    return later.predictor()(partition)


def _argument(predictor: batches.Predictor) -> Any:
    """A predictor as an argument of tasks: one with weights in it is a task of its own, whose
    result goes to each process once."""
    token = predictor._token if isinstance(predictor, Predictor) else _token(predictor)
    later = _Later(token, batches.Predictor.__reduce__(predictor)[1], predictor)
    if isinstance(predictor._made_of, VMExecutable):
        return _dask("dask.delayed").delayed(later, pure=True, traverse=False)
    return later


class _Later:
    """A predictor that a process makes when a task needs it: what goes wrong then is an error of
    the task, whereas one that occurs while a worker reads a message ends its connection."""

    def __init__(
        self, token: str, args: tuple[Any, ...], predictor: batches.Predictor | None = None
    ) -> None:
        self._token = token
        self._args = args
        self._predictor = predictor
        self._lock = threading.Lock()

    def predictor(self) -> batches.Predictor:
        """The predictor.

        Raises:
            Exception: as for `Predictor`.
        """
        with self._lock:
            if self._predictor is None:
                is_path = not isinstance(self._args[1], VMExecutable)
                self._predictor = (
                    _restored(self._token, self._args) if is_path else restored(*self._args)
                )
            return self._predictor

    def __dask_tokenize__(self) -> Any:
        return self._token

    def __reduce__(self) -> tuple[Any, ...]:
        return _Later, (self._token, self._args)


def _predictor(model: Any, options: Mapping[str, Any]) -> batches.Predictor:
    if not isinstance(model, batches.Predictor):
        return Predictor(model, **options)
    if options:
        raise TypeError(f"{', '.join(options)}: the predictor has its options already")
    return model


def map_blocks(
    array: dask.array.Array | Mapping[str, dask.array.Array],
    model: Model | batches.Predictor,
    *,
    outputs: str | Iterable[str] | None = None,
    **options: Any,
) -> dask.array.Array | dict[str, dask.array.Array]:
    """The outputs of a model for the rows of arrays.

    Args:
        array: an array of Dask, or one for each input by name.  The first dimension counts rows;
            the others have to be in one chunk.
        model: the path of a file that `relaxvm.VirtualMachine` takes, an executable, or a
            `Predictor`.
        outputs: the name of an output, or several; None for all.
        options: of `Predictor`, where `model` is none.

    Returns:
        An array of Dask with the chunks of rows of `array`; where `outputs` are several, a dict of
        them by name, which are computed together.

    Raises:
        BatchError: the arrays do not fit the model; before anything is computed.
        TypeError: `array` is no array of Dask.
        MissingExtraError: Dask is not installed.
        Exception: as for `Predictor`.
    """
    da = _dask("dask.array")
    delayed = _dask("dask.delayed").delayed
    predictor = _predictor(model, options)
    arrays = _by_input(array, predictor)
    for name, each in arrays.items():
        if not isinstance(each, da.Array):
            raise TypeError(f"map_blocks: expected an array of Dask, got {describe(each)}")
        if each.ndim < 1 or any(len(chunks) != 1 for chunks in each.chunks[1:]):
            raise BatchError(f"input {readable(name)}: expected one chunk in all dimensions but "
                             f"the first, got {each.chunks}; call rechunk({{1: -1}})")  # fmt: skip
    rows = [each.chunks[0] for each in arrays.values()]
    if any(not _same(first, rows[0]) for first in rows):
        raise BatchError("inputs: expected equal chunks of rows, got different ones; rechunk them")
    empty = {name: np.empty((0, *each.shape[1:]), each.dtype) for name, each in arrays.items()}
    predictor.check_arrays(empty)
    kinds = predictor.predict(empty, 0)
    wanted = [outputs] if isinstance(outputs, str) else outputs
    if wanted is not None and not isinstance(wanted, Iterable):
        raise TypeError(f"outputs: expected names, got {describe(wanted)}")
    names = list(kinds) if wanted is None else list(wanted)
    for name in names:
        if name not in kinds:
            raise BatchError(f"unknown output {readable(name)}{did_you_mean(name, list(kinds))}")
    argument = _argument(predictor)
    blocks = [each.to_delayed().reshape(-1) for each in arrays.values()]
    results = [
        delayed(_predict, pure=True)(argument, list(arrays), *parts)
        for parts in zip(*blocks, strict=True)
    ]
    found = {
        name: da.concatenate([
            da.from_delayed(part[name], (count, *kinds[name].shape[1:]), kinds[name].dtype)
            for part, count in zip(results, rows[0], strict=True)
        ], allow_unknown_chunksizes=True)
        for name in names
    }  # fmt: skip
    is_one = isinstance(outputs, str) or (outputs is None and len(names) == 1)
    return found[names[0]] if is_one else found


def _predict(
    later: _Later, names: list[str], *parts: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    return later.predictor().predict(dict(zip(names, parts, strict=True)))


def _by_input(array: Any, predictor: batches.Predictor) -> dict[str, Any]:
    inputs = predictor.row_inputs
    if isinstance(array, Mapping):
        missing = [name for name in inputs if name not in array]
        if missing:
            raise BatchError(f"inputs are missing: {', '.join(map(readable, missing))}")
        for name in array:
            if name not in inputs:
                raise BatchError(f"unknown input {readable(str(name))}"
                                 f"{did_you_mean(str(name), inputs)}; expected "
                                 f"{', '.join(map(readable, inputs))}")  # fmt: skip
        return {name: array[name] for name in inputs}
    if len(inputs) != 1:
        raise BatchError(f"expected an array for each input, as a dict: "
                         f"{', '.join(map(readable, inputs))}")  # fmt: skip
    return {inputs[0]: array}


def _same(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Whether chunks are equal; unknown ones may be."""
    if len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(a == b or math.isnan(a) or math.isnan(b) for a, b in pairs)


def long_run(
    model: Model,
    *args: Any,
    checkpoints: str | os.PathLike[str],
    every: float = 30.0,
    function: str = "main",
    limits: Limits | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Delayed:
    """A call as a task of Dask, which another worker goes on with if one goes away.

    Dask runs a task again whose worker has gone, as often as ``distributed.scheduler``'s setting
    ``allowed-failures`` says.  See `relaxvm.contrib.batches.run_to_end` for the arguments;
    `checkpoints` is a folder that all workers share.

    Raises:
        MissingExtraError: Dask is not installed.
    """
    delayed = _dask("dask.delayed").delayed
    target = delayed(batches.run_to_end, pure=False, traverse=False)
    if isinstance(model, (str, os.PathLike)):
        model = os.path.abspath(model)
    found: Delayed = target(
        model, *args, checkpoints=os.path.abspath(checkpoints), every=every, function=function,
        limits=limits, functions=functions,
    )  # fmt: skip
    return found


def _dask(name: str) -> Any:
    """A module of Dask.

    Raises:
        MissingExtraError: it is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise MissingExtraError(
            f"relaxvm.contrib.dask needs the package {package}; install relaxvm[dask]"
        ) from error
