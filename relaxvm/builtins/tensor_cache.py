"""Weights by name: a cache shared by the whole process, filled from folders of weights.

A folder holds ``tensor-cache.json`` and *shards*, files of raw bytes::

    {"records": [{"dataPath": "params_shard_0.bin", "format": "raw-shard", "nbytes": 24,
                  "records": [{"name": "w", "shape": [2, 3], "dtype": "float32",
                               "format": "raw", "nbytes": 24, "byteOffset": 0}]}]}

The record format ``f32-to-bf16`` stores the upper halves of float32 words; other data types are
raw in this format too.  Folders are not trusted: a shard must be a plain file inside the folder,
not a link, of the size given in the index, and listed once; its tensors must lie within it and not
overlap.  So the tensors take at most twice the memory of the files.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dtypes import as_dtype, dtype_to_dl
from ..errors import FormatError, InternalError
from ..messages import describe
from .arguments import as_array, as_int, as_sequence, as_str
from .registration import builtin
from .saved_fields import as_fields, as_rows, as_tensor

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ParamModule",
    "param_array_from_cache",
    "param_array_from_cache_by_name",
    "param_array_from_cache_by_name_unpacked",
    "param_module_from_cache",
    "param_module_from_cache_by_name",
    "read_tensor_cache",
    "tensor_cache_clear",
    "tensor_cache_get",
    "tensor_cache_load",
    "tensor_cache_remove",
    "tensor_cache_update",
]

Tensor = NDArray[Any]

INDEX: Final = "tensor-cache.json"
_MAX_INDEX_BYTES: Final = 16 << 20
"""Of the index: 80,000 tensors.  Python's objects take 20 times the memory of such a text."""
_MAX_RANK: Final = 64
_CPU: Final = 1

_tensors: Final[dict[str, Tensor]] = {}
_lock: Final = threading.Lock()


# Reading a folder


def read_tensor_cache(folder: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read all tensors of a folder, by name.

    Raises:
        InternalError: a file cannot be opened.
        FormatError: the index or a shard is malformed, or not inside the folder.
    """
    from pathlib import Path  # here and below, since it is slow to import

    base = Path(folder).resolve()
    tensors: dict[str, Tensor] = {}
    seen: set[tuple[int, int]] = set()
    for shard in _read_index(base):
        with _open_inside(base, shard.path) as file:
            status = os.fstat(file.fileno())
            size, identity = status.st_size, (status.st_dev, status.st_ino)
            if identity in seen:
                raise FormatError(f"{shard.path}: the index lists this shard twice")
            seen.add(identity)
            if size != shard.nbytes:
                raise FormatError(f"{shard.path}: expected {shard.nbytes} bytes as the index says, "
                                  f"got {size}: damaged, or not downloaded completely")
            for record in shard.records:
                if record.name in tensors:
                    raise FormatError(f"{shard.path}: tensor {record.name!r} occurs twice")
                tensors[record.name] = _read_tensor(file, shard, record)
    return tensors


class _Record(NamedTuple):
    """A tensor within a shard; `packed` if only the upper halves of its words are stored."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    packed: bool
    nbytes: int
    offset: int


class _Shard(NamedTuple):
    path: str
    nbytes: int
    records: tuple[_Record, ...]


def _read_index(base: Path) -> list[_Shard]:
    import json

    with _open_inside(base, INDEX) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_INDEX_BYTES:
            raise FormatError(f"{INDEX}: expected at most {_MAX_INDEX_BYTES} bytes, got {size}")
        text = file.readall()
    try:
        index = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"{INDEX}: not JSON: {exc}") from None
    records = _field(_as_dict(index, INDEX), "records", list, INDEX)
    return [_parse_shard(item, f"{INDEX}: shard {i}") for i, item in enumerate(records)]


def _parse_shard(item: Any, place: str) -> _Shard:
    fields = _as_dict(item, place)
    path = _field(fields, "dataPath", str, place)
    if _field(fields, "format", str, place) != "raw-shard":
        raise FormatError(f"{place}: expected the format 'raw-shard', got {fields['format']!r}")
    nbytes = _size(fields, "nbytes", place)
    items = _field(fields, "records", list, place)
    records = tuple(
        _parse_record(record, f"{place}, tensor {i}") for i, record in enumerate(items)
    )
    _check_extents(records, nbytes, place)
    return _Shard(path, nbytes, records)


def _parse_record(item: Any, place: str) -> _Record:
    fields = _as_dict(item, place)
    name = _field(fields, "name", str, place)
    place = f"{place} ({name!r})"
    dims = _field(fields, "shape", list, place)
    if len(dims) > _MAX_RANK or not all(type(dim) is int and 0 <= dim < 2**63 for dim in dims):
        raise FormatError(
            f"{place}: expected a shape of at most {_MAX_RANK} dimensions >= 0, of 64 bits"
        )
    try:
        dtype = as_dtype(_field(fields, "dtype", str, place))
        dtype_to_dl(dtype)
    except (TypeError, FormatError) as exc:
        raise FormatError(f"{place}: {exc}") from None
    form = _field(fields, "format", str, place)
    if form not in ("raw", "f32-to-bf16"):
        raise FormatError(f"{place}: expected the format 'raw' or 'f32-to-bf16', got {form!r}")
    packed = form == "f32-to-bf16" and dtype == np.float32
    nbytes = _size(fields, "nbytes", place)
    need = prod(dims) * (2 if packed else dtype.itemsize)
    if nbytes != need:
        raise FormatError(f"{place}: expected {need} bytes for {dtype}{dims}, got {nbytes}")
    return _Record(name, tuple(dims), dtype, packed, nbytes, _size(fields, "byteOffset", place))


def _check_extents(records: Sequence[_Record], nbytes: int, place: str) -> None:
    """Check that tensors lie within the shard and do not overlap, which bounds the memory."""
    end = 0
    for record in sorted(records, key=lambda r: (r.offset, r.nbytes)):
        if record.nbytes and record.offset < end:
            raise FormatError(f"{place}: tensor {record.name!r} at byte {record.offset} overlaps "
                              f"the one before it, which ends at byte {end}")
        end = max(end, record.offset + record.nbytes)
        if end > nbytes:
            raise FormatError(f"{place}: tensor {record.name!r} ends at byte {end}, "
                              f"the shard at byte {nbytes}")


def _as_dict(value: Any, place: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise FormatError(f"{place}: expected an object, got {type(value).__name__}")


def _field(fields: dict[str, Any], name: str, kind: type, place: str) -> Any:
    if name not in fields:
        raise FormatError(f"{place}: no field {name!r}")
    value = fields[name]
    if type(value) is not kind:
        raise FormatError(f"{place}: expected {name!r} to be a {kind.__name__}, "
                          f"got {type(value).__name__}")
    return value


def _size(fields: dict[str, Any], name: str, place: str) -> int:
    value: int = _field(fields, name, int, place)
    if value < 0:
        raise FormatError(f"{place}: expected {name!r} to be >= 0, got {value}")
    if value >= 2**63:
        raise FormatError(f"{place}: expected {name!r} to be below 2**63, got {describe(value)}")
    return value


def _read_tensor(file: FileIO, shard: _Shard, record: _Record) -> Tensor:
    stored = np.dtype(np.uint16) if record.packed else record.dtype
    try:
        tensor = np.empty(record.shape, stored.newbyteorder("<"))
    except ValueError as exc:  # no elements, but the other dimensions overflow in numpy
        raise FormatError(f"{shard.path}: tensor {record.name!r}: {exc}") from None
    file.seek(record.offset)
    left = tensor.reshape(-1).view(np.uint8).data
    while len(left):  # one system call reads at most 2 GiB
        count = file.readinto(left)
        if not count:
            raise FormatError(f"{shard.path}: tensor {record.name!r}: the file has become shorter")
        left = left[count:]
    if record.packed:
        words = tensor.astype(np.uint32)
        words <<= np.uint32(16)  # in numpy 1 an int would widen a scalar
        return words.view(np.float32)
    if record.dtype == np.bool_ and np.any(tensor.view(np.uint8) > 1):
        raise FormatError(f"{shard.path}: tensor {record.name!r}: expected bytes 0 or 1 for bool")
    return tensor.astype(record.dtype, copy=False)


def _open_inside(base: Path, relative: str) -> FileIO:
    """Open a plain file below `base`, refusing paths that lead out of it or contain a link."""
    path = base
    try:
        for part in _inner_parts(relative):
            path = path / part
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                raise FormatError(f"{relative!r}: expected a file in the folder, {part!r} is a "
                                  f"link")
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise FormatError(f"{relative!r}: expected a plain file with one name")
        file = FileIO(path, opener=_open_unlinked)
    except OSError as exc:
        raise InternalError(f"tensor cache: cannot open {path}: {exc.strerror}") from exc
    opened = os.fstat(file.fileno())
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino):
        file.close()
        raise FormatError(f"{relative!r}: the file was exchanged while it was opened")
    return file


def _open_unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _inner_parts(relative: str) -> tuple[str, ...]:
    """Return the parts of a path that is relative and stays inside on every operating system."""
    from pathlib import PurePosixPath, PureWindowsPath

    windows = PureWindowsPath(relative)
    parts = PurePosixPath(relative).parts
    bad = "\0" in relative or "\\" in relative or windows.drive or windows.root
    if bad or not parts or ".." in parts:
        raise FormatError(f"{relative!r}: expected a path relative to the folder, inside of it")
    try:
        os.fsencode(relative)
    except UnicodeEncodeError as exc:
        raise FormatError(f"{relative!r}: expected the name of a file: {exc.reason}") from None
    return parts


# The cache


@builtin(
    "tensor_cache.load",
    "folder: str, device_type: int, device_id: int",
    result="none",
    effect=True,
)
def tensor_cache_load(folder: Any, device_type: Any, device_id: Any) -> None:
    """Read all tensors of a folder into the cache; tensors with the same names are replaced.

    If any tensor cannot be read, the cache does not change.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: a file cannot be opened, or the device type is not 1 (cpu).
        FormatError: the folder's index or a shard is malformed, or not inside the folder.
    """
    path = as_str(folder, "tensor_cache.load: folder")
    kind = as_int(device_type, "tensor_cache.load: device type")
    as_int(device_id, "tensor_cache.load: device id")
    if kind != _CPU:
        raise InternalError(f"tensor_cache.load: device type {kind}: expected {_CPU} (cpu), "
                            f"tensors live in host memory")
    tensors = read_tensor_cache(path)
    with _lock:
        _tensors.update(tensors)


@builtin("tensor_cache.get", "name: str", result="any", effect=True)
def tensor_cache_get(name: Any) -> Tensor | None:
    """Return the tensor with a name, or None.

    Raises:
        TypeError: not a name.
    """
    return _tensors.get(as_str(name, "tensor_cache.get: name"))


@builtin(
    "tensor_cache.update",
    "name: str, tensor: tensor, override: bool|int = ...",
    result="none",
    effect=True,
)
def tensor_cache_update(name: Any, tensor: Any, override: Any = False) -> None:
    """Add a tensor to the cache, which keeps the object itself, not a copy.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the name exists and `override` is false.
    """
    key = as_str(name, "tensor_cache.update: name")
    value = as_array(tensor, "tensor_cache.update")
    replace = bool(as_int(override, "tensor_cache.update: override"))
    with _lock:
        if key in _tensors and not replace:
            raise InternalError(f"tensor_cache.update: {key!r} is in the cache already; "
                                f"pass override=True to replace it")
        _tensors[key] = value


@builtin("tensor_cache.remove", "name: str", result="none", effect=True)
def tensor_cache_remove(name: Any) -> None:
    """Remove a tensor from the cache, if it exists.

    Raises:
        TypeError: not a name.
    """
    _tensors.pop(as_str(name, "tensor_cache.remove: name"), None)


@builtin("tensor_cache.clear", result="none", effect=True)
def tensor_cache_clear() -> None:
    """Empty the cache."""
    _tensors.clear()


# Parameters


def _numbered(prefix: Any, count: Any, subject: str) -> tuple[Tensor, ...]:
    stem = as_str(prefix, f"{subject}: prefix")
    n = as_int(count, f"{subject}: count")
    return tuple(_until_missing(stem) if n == -1 else _all_of(stem, n, subject))


def _until_missing(stem: str) -> Iterator[Tensor]:
    i = 0
    while (tensor := _tensors.get(f"{stem}_{i}")) is not None:
        yield tensor
        i += 1


def _all_of(stem: str, count: int, subject: str) -> Iterator[Tensor]:
    for i in range(count):
        tensor = _tensors.get(f"{stem}_{i}")
        if tensor is None:
            raise InternalError(f"{subject}: expected {count} tensors in the cache, "
                                f"{stem}_{i} is missing")
        yield tensor


def _named(names: Sequence[Any], subject: str) -> tuple[Tensor, ...]:
    found = []
    for name in names:
        tensor = _tensors.get(as_str(name, f"{subject}: name"))
        if tensor is None:
            raise ValueError(f"{subject}: parameter {name!r} is not in the cache")
        found.append(tensor)
    return tuple(found)


@builtin("param_array_from_cache", "prefix: str, count: int", result="tuple", effect=True)
def param_array_from_cache(prefix: Any, count: Any) -> tuple[Tensor, ...]:
    """Return the tensors ``prefix_0``, ``prefix_1``, ... of the cache: `count` of them, or all if
    `count` is -1.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: one of them is missing.
    """
    return _numbered(prefix, count, "param_array_from_cache")


@builtin("param_array_from_cache_by_name", "names: tuple", result="tuple", effect=True)
def param_array_from_cache_by_name(names: Any) -> tuple[Tensor, ...]:
    """Return the tensors of the cache with the names in a tuple.

    Raises:
        TypeError: not a tuple of names.
        ValueError: one of them is missing.
    """
    subject = "param_array_from_cache_by_name"
    return _named(as_sequence(names, subject), subject)


@builtin("param_array_from_cache_by_name_unpacked", "*names: str", result="tuple", effect=True)
def param_array_from_cache_by_name_unpacked(*names: Any) -> tuple[Tensor, ...]:
    """Return the tensors of the cache with these names.

    Raises:
        TypeError: an argument is not a name.
        ValueError: one of them is missing.
    """
    return _named(names, "param_array_from_cache_by_name_unpacked")


class ParamModule:
    """Parameters with the interface of TVM's module: ``module["get_params"]()``."""

    kind: Final = "param_module"

    def __init__(self, params: tuple[Tensor, ...]) -> None:
        self._params = params

    def saved_fields(self) -> tuple[Any, ...]:
        """See `relaxvm.vm.saved_runs.states`."""
        return (self._params,)

    def restore_fields(self, fields: tuple[Any, ...]) -> None:
        """See `relaxvm.vm.saved_runs.states`."""
        (params,) = as_fields(fields, 1, "parameters")
        rows = as_rows(params, "parameters")
        self._params = tuple([as_tensor(each, "parameter") for each in rows])

    def get_params(self) -> tuple[Tensor, ...]:
        """Return the parameters."""
        return self._params

    def __getitem__(self, name: str) -> Callable[[], tuple[Tensor, ...]]:
        """Return the function with a name.

        Raises:
            AttributeError: the name is not ``get_params``, the only function.
        """
        if name != "get_params":
            raise AttributeError(f"param_module: no function {name!r}, there is 'get_params'")
        return self.get_params

    def __repr__(self) -> str:
        return f"<ParamModule of {len(self._params)} parameters>"


@builtin("param_module_from_cache", "prefix: str, count: int", result="object", effect=True)
def param_module_from_cache(prefix: Any, count: Any) -> ParamModule:
    """Return the tensors of `param_array_from_cache` as a module with a function ``get_params``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: one of them is missing.
    """
    return ParamModule(_numbered(prefix, count, "param_module_from_cache"))


@builtin("param_module_from_cache_by_name", "names: tuple", result="object", effect=True)
def param_module_from_cache_by_name(names: Any) -> ParamModule:
    """Return the tensors of `param_array_from_cache_by_name` as a module with a function
    ``get_params``.

    Raises:
        TypeError: not a tuple of names.
        ValueError: one of them is missing.
    """
    subject = "param_module_from_cache_by_name"
    return ParamModule(_named(as_sequence(names, subject), subject))
