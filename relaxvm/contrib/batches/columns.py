"""The columns of a batch as arrays, and arrays as columns, for each kind of table.

The first dimension of an array counts rows.  Numbers in Arrow's memory and in numpy's are not
copied.  pandas and pyarrow are imported only if a batch is theirs.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RelaxVMError, did_you_mean
from ...messages import describe, readable

__all__ = ["BatchError", "Columns", "columns_of"]

Array = NDArray[Any]


class BatchError(RelaxVMError, ValueError):
    """A batch does not fit a model: a column is missing, or its values are none that the model
    takes."""


class Columns(ABC):
    """A batch, by columns.

    Attributes:
        names: of the columns, in order.
        rows: how many there are.
    """

    names: Sequence[str]
    rows: int

    @abstractmethod
    def array(self, name: str) -> Array:
        """A column as an array with a row for each row of the batch.

        Raises:
            BatchError: values are missing, or rows differ in their shapes.
        """

    @abstractmethod
    def replaced(self, keep: Sequence[str], new: Mapping[str, Array]) -> Any:
        """A batch of the same kind with some of the columns, followed by new ones."""

    def find(self, name: str) -> Array:
        """The array of a column.

        Raises:
            BatchError: there is no such column; otherwise as `array`.
        """
        if name not in self.names:
            known = ", ".join(map(readable, self.names)) or "none"
            raise BatchError(f"unknown column {readable(name)}{did_you_mean(name, self.names)}; "
                             f"the batch has {known}")  # fmt: skip
        return self.array(name)


def columns_of(batch: Any) -> Columns:
    """The columns of a batch.

    Raises:
        TypeError: it is of no known kind.
        BatchError: its columns have several lengths, or two have one name.
    """
    if isinstance(batch, Mapping):
        return _Arrays(batch)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(batch, pandas.DataFrame):
        return _Frame(batch)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(batch, (arrow.Table, arrow.RecordBatch)):
        return _Arrow(batch)
    raise TypeError(f"batch: expected a dict of arrays, a pandas DataFrame, or a pyarrow Table or "
                    f"RecordBatch, got {describe(batch)}")  # fmt: skip


def _check_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise BatchError(f"columns: expected names, got {describe(name)}")
        if list(names).count(name) > 1:
            raise BatchError(f"two columns have the name {readable(name)}")


def _stacked(values: Sequence[Any], name: str) -> Array:
    """The array of a column of Python objects: numbers, text, or arrays of one shape."""
    subject = f"column {readable(name)}"
    has_text = any(isinstance(value, (str, bytes)) for value in values)
    missing = sum(_is_missing(value, has_text) for value in values)
    if missing:
        raise _missing(name, missing, len(values))
    if not len(values) or all(isinstance(value, (str, bytes)) for value in values):
        found = np.empty(len(values), object)
        found[:] = values
        return found
    try:
        arrays = [np.asarray(value) for value in values]
    except ValueError:
        raise BatchError(
            f"{subject}: a row is a nested list whose parts differ in length"
        ) from None
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise BatchError(f"{subject}: expected rows of one shape, got {list(first)} and "
                         f"{list(second)}; pad them, or use a batch for each shape")  # fmt: skip
    kinds = {array.dtype.kind for array in arrays}
    if not kinds <= set("biufc") and not kinds <= set("SU"):
        other = next(value for value, a in zip(values, arrays, strict=True)
                     if a.dtype.kind not in ("SU" if has_text else "biufc"))  # fmt: skip
        if has_text:
            raise BatchError(f"{subject}: expected text in all rows, got {describe(other)}")
        raise BatchError(f"{subject}: expected numbers, arrays of numbers, or text, got "
                         f"{describe(other)}")  # fmt: skip
    return np.stack(arrays)


def _is_missing(value: object, is_text: bool) -> bool:
    """Whether a Python object stands for no value; among texts NaN does, too."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return is_text and isinstance(value, float) and value != value


def _missing(name: str, count: int, rows: int) -> BatchError:
    return BatchError(f"column {readable(name)}: {count} of {rows} values are missing; fill them, "
                      f"or remove these rows first")  # fmt: skip


class _Arrays(Columns):
    """A dict of arrays."""

    def __init__(self, batch: Mapping[Any, Any]) -> None:
        _check_names(list(batch))
        self._batch = batch
        self.names = list(batch)
        lengths = {name: _length(name, value) for name, value in batch.items()}
        if len(set(lengths.values())) > 1:
            raise BatchError(f"columns: expected one length, got {lengths}")
        self.rows = next(iter(lengths.values()), 0)

    def array(self, name: str) -> Array:
        value = self._batch[name]
        pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
        if pandas is not None and isinstance(value, pandas.Series):
            return _of_series(value, name)
        if arrow is not None and isinstance(value, (arrow.Array, arrow.ChunkedArray)):
            return _of_arrow_column(value, name)
        if isinstance(value, np.ma.MaskedArray):
            missing = int(np.ma.getmaskarray(value).sum())
            if missing:
                raise _missing(name, missing, value.size)
            value = value.data
        array: Array | None = value if isinstance(value, np.ndarray) else None
        if array is None or (array.dtype.hasobject and array.ndim == 1):
            return _stacked(value, name)
        return array

    def replaced(self, keep: Sequence[str], new: Mapping[str, Array]) -> dict[str, Any]:
        return {**{name: self._batch[name] for name in keep}, **new}


def _length(name: str, value: Any) -> int:
    """The number of rows of a column."""
    is_one = isinstance(value, (str, bytes, Mapping, Set)) or getattr(value, "ndim", 1) == 0
    if is_one or not hasattr(value, "__len__"):
        raise BatchError(f"column {readable(name)}: expected an array or a list with a value for "
                         f"each row, got {describe(value)}")  # fmt: skip
    return len(value)


class _Frame(Columns):
    """A pandas DataFrame."""

    def __init__(self, frame: Any) -> None:
        self.names = list(frame.columns)
        _check_names(self.names)
        self._frame = frame
        self.rows = len(frame)

    def array(self, name: str) -> Array:
        return _of_series(self._frame[name], name)

    def replaced(self, keep: Sequence[str], new: Mapping[str, Array]) -> Any:
        import pandas

        found = self._frame[list(keep)]
        index = self._frame.index
        text = pandas.Series(np.array([""], object)).dtype  # what pandas makes of text
        columns = {
            name: pandas.Series(
                _nested(array), index=index,
                dtype=text if array.ndim == 1 and array.dtype.hasobject else None,
            )
            for name, array in new.items()
        }  # fmt: skip
        return found.assign(**columns) if columns else found


def _of_series(series: Any, name: str) -> Array:
    """The numbers, texts or arrays of a Series of pandas."""
    if isinstance(series.dtype, np.dtype) and not series.dtype.hasobject:
        return np.asarray(series)
    if not isinstance(series.dtype, np.dtype):
        missing = int(series.isna().sum())
        if missing:
            raise _missing(name, missing, len(series))
        own = getattr(series.dtype, "numpy_dtype", None)  # of nullable and of Arrow's numbers
        if isinstance(own, np.dtype) and own.kind in "biufc":
            return np.asarray(series.to_numpy(dtype=own))
    return _stacked(series.to_numpy(dtype=object), name)


def _nested(array: Array) -> Any:
    """The values of a column of a DataFrame: those of one dimension as they are, else an object for
    each row: an array, or lists of arrays, which Parquet can store."""
    if array.ndim == 1:
        return array
    found = np.empty(len(array), object)
    found[:] = [row if row.ndim == 1 else list(_nested(row)) for row in array]
    return found


class _Arrow(Columns):
    """A pyarrow Table or RecordBatch."""

    def __init__(self, table: Any) -> None:
        self.names = list(table.schema.names)
        _check_names(self.names)
        self._table = table
        self.rows = table.num_rows

    def array(self, name: str) -> Array:
        return _of_arrow_column(self._table.column(name), name)

    def replaced(self, keep: Sequence[str], new: Mapping[str, Array]) -> Any:
        import pyarrow as pa

        arrays = [self._table.column(name) for name in keep]
        fields = [self._table.schema.field(name) for name in keep]
        for name, array in new.items():
            arrays.append(_to_arrow(array))
            fields.append(pa.field(name, arrays[-1].type))
        schema = pa.schema(fields, metadata=self._table.schema.metadata)
        return type(self._table).from_arrays(arrays, schema=schema)


def _of_arrow_column(column: Any, name: str) -> Array:
    """The numbers, texts or tensors of a column of Arrow."""
    import pyarrow as pa

    rows = len(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # what some types become
            parts = [_of_arrow(chunk, name, rows) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.empty(0, object)
    return _of_arrow(column, name, rows)


def _of_arrow(array: Any, name: str, rows: int) -> Array:
    """The numbers, texts or tensors of an Arrow array."""
    import pyarrow as pa

    types = pa.types
    if array.null_count:
        raise _missing(name, array.null_count, rows)
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        to_tensor = getattr(array, "to_numpy_ndarray", None)
        if to_tensor is not None:  # Arrow's own tensors of one shape
            found: Array = to_tensor()
            return found
        if hasattr(type(array), "from_numpy"):  # Ray's tensors
            tensors = array.to_numpy(zero_copy_only=False)
            return _stacked(tensors, name) if tensors.dtype.hasobject else np.asarray(tensors)
        return _of_arrow(array.storage, name, rows)
    if types.is_dictionary(kind):
        return _of_arrow(array.dictionary_decode(), name, rows)
    if types.is_fixed_size_list(kind):
        values = _of_arrow(array.flatten(), name, rows)
        return values.reshape(len(array), kind.list_size, *values.shape[1:])
    if types.is_list(kind) or types.is_large_list(kind):
        lengths = np.diff(array.offsets.to_numpy())
        if len(lengths) and lengths.min() != lengths.max():
            raise BatchError(
                f"column {readable(name)}: expected rows of one length, got {lengths.min()} to "
                f"{lengths.max()}; pad them, or use a batch for each length"
            )
        values = _of_arrow(array.flatten(), name, rows)
        return values.reshape(len(array), lengths[0] if len(lengths) else 0, *values.shape[1:])
    if types.is_integer(kind) or types.is_floating(kind):
        return np.asarray(array.to_numpy(zero_copy_only=True))
    if types.is_boolean(kind) or types.is_temporal(kind):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    return _stacked(array.to_pylist(), name)


def _to_arrow(array: Array) -> Any:
    """An Arrow array with a value for each row: lists of a fixed size for two dimensions, tensors
    for more."""
    import pyarrow as pa

    if array.dtype.kind == "V":  # the small floating-point types, of which Arrow has none
        array = array.astype(np.float32)
    if array.ndim == 1:  # of text, even if there are no rows
        return pa.array(array, pa.string() if array.dtype.hasobject else None)
    array = np.ascontiguousarray(array)
    if array.ndim == 2 and array.shape[1] and not array.dtype.hasobject:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
    if array.dtype.hasobject or not array.size:
        element = pa.string() if array.dtype.hasobject else pa.from_numpy_dtype(array.dtype)
        for _ in range(array.ndim - 1):
            element = pa.list_(element)
        return pa.array(array.tolist(), element)
    return pa.FixedShapeTensorArray.from_numpy_ndarray(array)
