"""`Predictor`: a model as a function of batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import did_you_mean
from ...executable import VMExecutable
from ...executable.file_kinds import HEAD_BYTES, kind_of
from ...executable.loading import load
from ...limits import Limits
from ...messages import describe, readable
from ...native.stored import with_aligned_constants
from ...serve.interface import Field, Interface
from ...vm.machine import VirtualMachine
from ...vm.program_cache import compile_file
from .columns import BatchError, Columns, columns_of

__all__ = ["Model", "Predictor", "executable_of", "restored"]

Model = VMExecutable | str | os.PathLike[str]
Names = Mapping[str, str | Sequence[str]]
Array = NDArray[Any]

_STATE: Final = "relaxvm.builtin.state_write"


def executable_of(model: Model, limits: Limits | None = None) -> VMExecutable:
    """The executable of a model, with weights mapped from the file that has it, or from the cache
    of compiled programs.

    Raises:
        OSError, FormatError, VerifyError, LimitError: the file cannot be read.
        TypeError: it is no model.
    """
    if isinstance(model, VMExecutable):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"model: expected an executable or a path, got {describe(model)}")
    with open(model, "rb") as file:
        kind = kind_of(file.read(HEAD_BYTES), os.fspath(model))
    if kind is not None and kind.is_program:
        return compile_file(model, limits)
    return with_aligned_constants(load(model, limits=limits, mmap=True))


class Predictor:
    """A model as a function of batches::

        predict = Predictor("iris.onnx", inputs={"X": ["length", "width"]}, keep=["id"])
        table = predict(table)      # the column id, and a column for each output of the model

    Rows must not depend on each other: engines cut data into batches as they like, and a model that
    takes a fixed number of rows gets the last ones with copies of the last row.  One object may be
    used by several threads.  It can be pickled: with a path, the other process opens the file;
    with an executable, the executable is in the pickle, from protocol 5 on in a buffer out of band.

    Args:
        model: the path of a file that `relaxvm.VirtualMachine` takes, or an executable.
        function: what to call.
        inputs: the column for an input, or several columns of numbers, which are put side by side
            along the last dimension.  Inputs that are not here are columns of the same name; a
            single input is the only column of a batch that has one.
        outputs: which outputs become columns: their names, or a dict with the name of a column for
            each, or names of several for the numbers along its last dimension.  None for all.
        keep: the columns that stay.  None for those that are no inputs.
        constants: inputs that are the same for all rows, by name: numbers, arrays.
        limits, functions: as for `relaxvm.VirtualMachine`.

    Raises:
        OSError, FormatError, VerifyError, LimitError, LinkError: as for `relaxvm.VirtualMachine`.
        BatchError: an input or output is unknown, an input is no tensor, a constant is not what the
            model takes, or the function keeps state from call to call, so that its results would
            depend on the order of batches.
        TypeError: `model` is none, or an option is of another kind.
    """

    def __init__(
        self,
        model: Model,
        *,
        function: str = "main",
        inputs: Names | None = None,
        outputs: Names | Iterable[str] | None = None,
        keep: Iterable[str] | None = None,
        constants: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        functions: Mapping[str, Callable[..., Any]] | Iterable[str] | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "function": function, "inputs": inputs, "outputs": outputs, "keep": keep,
            "constants": constants, "limits": limits, "functions": functions,
        }  # fmt: skip
        executable = executable_of(model, limits)
        self._vm = VirtualMachine(executable, limits=limits, functions=functions)
        try:
            self._interface = Interface.of(executable, function)
        except ValueError as error:
            raise BatchError(str(error)) from None
        if any(info.name == _STATE for info in executable.functions):
            raise BatchError(f"{describe_model(model)} keeps state from call to call, so results "
                             f"would depend on the order of batches; compile it with its state as "
                             f"inputs and outputs (functional=True)")  # fmt: skip
        self._inputs = {} if inputs is None else _named("inputs", inputs)
        self._constants = _constants(constants, self._interface, self._inputs)
        self._fields = [f for f in self._interface.inputs if f.name not in self._constants]
        for field in self._fields:
            if field.kind not in ("tensor", "any") or field.dims == ():
                what = "a number" if field.kind in ("scalar", "tensor") else f"a {field.kind}"
                raise BatchError(f"input {readable(field.name)} is {what}, the same for all rows: "
                                 f"it needs a value in constants=")  # fmt: skip
        self._outputs = _output_names(outputs)
        self._keep = None if keep is None else _list_of_names("keep", keep)
        self._rows = self._fixed_rows()
        self._made_of = model
        self._size = _size_of(model)
        self._options = options

    @property
    def executable(self) -> VMExecutable:
        """The executable of the model."""
        return self._vm.executable

    @property
    def interface(self) -> Interface:
        """What the function takes and returns."""
        return self._interface

    @property
    def row_inputs(self) -> list[str]:
        """The names of the inputs that have a row for each row of a batch."""
        return [field.name for field in self._fields]

    def __call__(self, batch: Any) -> Any:
        """The columns that stay, and a column for each output.

        Args:
            batch: a dict of arrays, a pandas DataFrame, or a pyarrow Table or RecordBatch.

        Returns:
            A batch of the same kind.  Rows of outputs with several dimensions are lists or tensors
            of Arrow; in a DataFrame they are arrays.

        Raises:
            BatchError: the batch does not fit the model.
            TypeError: it is of no known kind.
            Exception: what the model raises, with a note on the batch.
        """
        columns = columns_of(batch)
        taken = self._columns_taken(columns)
        arrays = {name: self._gathered(columns, name, names) for name, names in taken.items()}
        results = self.predict(arrays, columns.rows)
        used = {name for names in taken.values() for name in names}
        keep = [n for n in columns.names if n not in used] if self._keep is None else self._keep
        for name in keep:
            if name not in columns.names:
                raise BatchError(f"keep: unknown column {readable(name)}"
                                 f"{did_you_mean(name, columns.names)}")  # fmt: skip
        return columns.replaced(keep, self._as_columns(results, keep))

    def check(self, batch: Any) -> None:
        """Check that columns have data types and shapes that the model takes, as far as a batch
        without rows tells them.

        Raises:
            BatchError, TypeError: as a call.
        """
        columns = columns_of(batch)
        for name, names in self._columns_taken(columns).items():
            field = next(field for field in self._fields if field.name == name)
            if isinstance(self._inputs.get(name, ""), str):
                self.check_arrays({name: columns.find(names[0])})
                continue
            for each in names:
                array = columns.find(each)
                if field.dtype is not None and not array.dtype.hasobject:
                    _converted(array, field.dtype, f"column {readable(each)}")

    def check_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Check data types and shapes of arrays of inputs; those of objects may be anything.

        Raises:
            BatchError: the model does not take them.
        """
        for field in self._fields:
            array = arrays.get(field.name)
            if array is not None and not array.dtype.hasobject:
                _fitted(array, field)

    def predict(self, arrays: Mapping[str, Array], rows: int | None = None) -> dict[str, Array]:
        """The outputs for arrays of inputs, without tables.

        Args:
            arrays: an array for each of `row_inputs`; the first dimension counts rows.
            rows: how many there are; None for those of the arrays.

        Returns:
            All outputs by name, each with that many rows.

        Raises:
            BatchError: they do not fit the model, or an output does not have a row for each row.
            Exception: what the model raises, with a note on the batch.
        """
        for name, array in arrays.items():
            if name not in self.row_inputs:
                raise BatchError(f"unknown input {readable(name)}"
                                 f"{did_you_mean(name, self.row_inputs)}; expected "
                                 f"{', '.join(map(readable, self.row_inputs))}")  # fmt: skip
            if not isinstance(array, np.ndarray):
                raise TypeError(f"input {readable(name)}: expected an array, got "
                                f"{describe(array)}")  # fmt: skip
        counts = {len(array) if array.ndim else -1 for array in arrays.values()}
        if rows is None:
            rows = counts.pop() if len(counts) == 1 else -1
        missing = [name for name in self.row_inputs if name not in arrays]
        if missing:
            raise BatchError(f"inputs are missing: {', '.join(map(readable, missing))}")
        if rows < 0 or counts - {rows}:
            shapes = {name: list(array.shape) for name, array in arrays.items()}
            raise BatchError(f"inputs: expected a first dimension of {max(rows, 0)} rows, got "
                             f"{shapes}")  # fmt: skip
        if rows == 0:  # a row that nobody sees tells the types of the outputs
            row = {field.name: _row_of_zeros(arrays[field.name], field) for field in self._fields}
            return {name: array[:0] for name, array in self._in_pieces(row, 1).items()}
        fitted = {field.name: _fitted(arrays[field.name], field) for field in self._fields}
        return self._in_pieces(fitted, rows)

    def _in_pieces(self, arrays: Mapping[str, Array], rows: int) -> dict[str, Array]:
        """The outputs, in as many calls as the model needs."""
        size = self._rows
        if size is None or size == rows:
            return self._call(arrays, rows)
        pieces = []
        for start in range(0, rows, size):
            piece = {name: array[start : start + size] for name, array in arrays.items()}
            count = min(size, rows - start)
            if count < size:
                piece = {name: _padded(array, size) for name, array in piece.items()}
            results = self._call(piece, size)
            pieces.append({name: array[:count] for name, array in results.items()})
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def _call(self, arrays: Mapping[str, Array], rows: int) -> dict[str, Array]:
        given = {**self._constants, **arrays}
        function = self._interface.function
        args = [given[field.name] for field in self._interface.inputs]
        try:
            result = self._vm[function](*args)
        except Exception as error:
            shown = ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in arrays.items())
            error.add_note(f"in a batch of {rows} rows: {readable(shown)}")
            raise
        try:
            results = self._interface.named(result)
        except ValueError as error:
            raise BatchError(str(error)) from None
        for name, array in results.items():
            if array.ndim == 0 or len(array) != rows:
                raise BatchError(f"output {readable(name)}: expected a row for each of the {rows} "
                                 f"rows, got the shape {list(array.shape)}; its rows depend on "
                                 f"each other")  # fmt: skip
        return results

    def _fixed_rows(self) -> int | None:
        """The number of rows that the model takes, if it is fixed."""
        found: dict[int, str] = {}
        for field in self._fields:
            if field.dims and isinstance(field.dims[0], int):
                found[field.dims[0]] = field.name
        if len(found) > 1:
            raise BatchError(f"inputs: expected one number of rows, got {found}; give those that "
                             f"are the same for all rows in constants=")  # fmt: skip
        (rows,) = found or (None,)
        if rows == 0:
            raise BatchError(f"input {readable(found[0])} takes no rows")
        return rows

    def _columns_taken(self, columns: Columns) -> dict[str, Sequence[str]]:
        """The columns for each input."""
        taken: dict[str, Sequence[str]] = {}
        for field in self._fields:
            names = self._inputs.get(field.name)
            if names is None:
                is_only = len(self._fields) == 1 and len(columns.names) == 1
                names = columns.names[0] if is_only else field.name
                if names not in columns.names:
                    raise BatchError(
                        f"input {readable(field.name)}: the batch has no column of that name"
                        f"{did_you_mean(field.name, columns.names)}; it has "
                        f"{', '.join(map(readable, columns.names)) or 'none'}; say which column "
                        f"by inputs={{{field.name!r}: ...}}"
                    )
            taken[field.name] = [names] if isinstance(names, str) else list(names)
        return taken

    def _gathered(self, columns: Columns, name: str, names: Sequence[str]) -> Array:
        """The array of an input, of one column or of several."""
        if isinstance(self._inputs.get(name, ""), str):
            return columns.find(names[0])
        if columns.rows == 0:
            return np.zeros((0, len(names)))
        parts = []
        for each in names:
            array = columns.find(each)
            if array.dtype.kind not in "biuf":
                raise BatchError(f"column {readable(each)}: expected numbers, since several "
                                 f"columns are input {readable(name)}")  # fmt: skip
            if array.ndim > 2:
                raise BatchError(f"column {readable(each)}: expected a number or a list of numbers "
                                 f"in a row, got the shape {list(array.shape[1:])}")  # fmt: skip
            parts.append(array if array.ndim == 2 else array[:, None])
        dtype = next(field.dtype for field in self._fields if field.name == name)
        if dtype is not None:
            parts = [_converted(part, dtype, f"column {readable(each)}")
                     for part, each in zip(parts, names, strict=True)]  # fmt: skip
        if not parts:
            raise BatchError(f"inputs: expected columns for {readable(name)}")
        return np.concatenate(parts, axis=1)

    def _as_columns(self, results: Mapping[str, Array], keep: Sequence[str]) -> dict[str, Array]:
        """The new columns of a batch."""
        found: dict[str, Array] = {}
        wanted = self._outputs
        if wanted is None:
            wanted = {name: name for name in results}
        for name, target in wanted.items():
            if name not in results:
                raise BatchError(f"unknown output {readable(name)}"
                                 f"{did_you_mean(name, list(results))}; the model has "
                                 f"{', '.join(map(readable, results))}")  # fmt: skip
            array = results[name]
            new = {target: array} if isinstance(target, str) else _spread(array, target, name)
            for column, values in new.items():
                if column in found or column in keep:
                    raise BatchError(f"output {readable(name)}: there is a column "
                                     f"{readable(column)} already; choose another name by "
                                     f"outputs={{{name!r}: ...}}")  # fmt: skip
                found[column] = values
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self._made_of, self._size, self._options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {describe_model(self._made_of)}>"


def describe_model(model: Model) -> str:
    """A model in messages."""
    return repr(model) if isinstance(model, VMExecutable) else readable(os.fspath(model))


def _size_of(model: Model) -> int | None:
    return None if isinstance(model, VMExecutable) else Path(model).stat().st_size


def restored(
    cls: type[Predictor], model: Model, size: int | None, options: dict[str, Any]
) -> Predictor:
    """What another process has pickled."""
    if size is not None:
        here = _size_of(model)
        if here != size:
            raise BatchError(f"{describe_model(model)} is another file on this machine: it has "
                             f"{here} bytes, and {size} where the work was planned")  # fmt: skip
    return cls(model, **options)


def _output_names(outputs: Names | Iterable[str] | None) -> dict[str, str | list[str]] | None:
    if outputs is None:
        return None
    if isinstance(outputs, Mapping):
        return _named("outputs", outputs)
    return {name: name for name in _list_of_names("outputs", outputs)}


def _named(option: str, names: Any) -> dict[str, str | list[str]]:
    """A dict from names to a name or several."""
    if not isinstance(names, Mapping):
        raise TypeError(f"{option}: expected a dict, got {describe(names)}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{option}: expected names, got {describe(name)}")
    return {
        name: each if isinstance(each, str) else _list_of_names(f"{option}: {readable(name)}", each)
        for name, each in names.items()
    }


def _list_of_names(subject: str, names: Any) -> list[str]:
    """Names, none of them twice; one is a list of its own."""
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise TypeError(f"{subject}: expected names, got {describe(names)}")
    found = list(names)
    if not found and subject.startswith("inputs"):
        raise BatchError(f"{subject}: expected the names of columns, got none")
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"{subject}: expected names, got {describe(name)}")
        if found.count(name) > 1 and not subject.startswith("inputs"):
            raise BatchError(f"{subject}: the name {readable(name)} is there twice")
    return found


def _constants(
    constants: Any, interface: Interface, inputs: Mapping[str, object]
) -> dict[str, Any]:
    """The inputs that are the same for all rows, as the model takes them."""
    if constants is not None and not isinstance(constants, Mapping):
        raise TypeError(f"constants: expected a dict, got {describe(constants)}")
    fields = {field.name: field for field in interface.inputs}
    found = {}
    for name in (*inputs, *(constants or ())):
        if name not in fields:
            raise BatchError(f"unknown input {readable(name)}{did_you_mean(name, list(fields))}; "
                             f"the model has {', '.join(map(readable, fields))}")  # fmt: skip
    for name, value in (constants or {}).items():
        if name in inputs:
            raise BatchError(f"input {readable(name)} is in inputs= and in constants=")
        found[name] = _constant(value, fields[name])
    return found


def _constant(value: Any, field: Field) -> Any:
    """A constant as the model takes it."""
    if field.kind != "tensor" or field.dtype is None:
        return value
    subject = f"constants: {readable(field.name)}"
    try:
        array = np.asarray(value)
    except ValueError:
        raise BatchError(f"{subject}: expected an array, got {describe(value)}") from None
    array = _converted(array, field.dtype, subject)
    dims = field.dims
    if dims is not None:
        pairs = zip(dims, array.shape, strict=False)
        if array.ndim != len(dims) or any(isinstance(n, int) and n != size for n, size in pairs):
            raise BatchError(f"{subject}: expected the shape [{_shown(dims)}], got "
                             f"{list(array.shape)}")  # fmt: skip
    return array


def _shown(dims: Iterable[object]) -> str:
    return ", ".join("?" if dim is None else str(dim) for dim in dims)


def _spread(array: Array, names: Sequence[str], output: str) -> dict[str, Array]:
    """A column for each number along the last dimension."""
    if array.ndim != 2 or array.shape[1] != len(names):
        raise BatchError(f"output {readable(output)}: expected {len(names)} numbers in a row, one "
                         f"for each name, got the shape {list(array.shape[1:])}")  # fmt: skip
    return {name: array[:, i] for i, name in enumerate(names)}


def _fitted(array: Array, field: Field) -> Array:
    """The array as the model takes it: of its data type, with a last dimension of 1 if it has one
    more."""
    subject = f"input {readable(field.name)}"
    if field.dtype is not None:
        array = _converted(array, field.dtype, subject)
    if field.dims is None:
        return array
    last = field.dims[-1]
    if array.ndim + 1 == len(field.dims) and (last == 1 or not isinstance(last, int)):
        array = array[..., None]
    sizes = zip(field.dims[1:], array.shape[1:], strict=False)
    if array.ndim == len(field.dims) and all(
        dim == size for dim, size in sizes if isinstance(dim, int)
    ):
        return array
    raise BatchError(f"{subject}: expected the shape [{_shown(field.dims)}], got "
                     f"{list(array.shape)}")  # fmt: skip


def _converted(array: Array, dtype: np.dtype[Any], subject: str) -> Array:
    """The same values in another data type; of floating-point numbers the nearest."""
    if array.dtype == dtype and not dtype.hasobject:
        return array
    if dtype.hasobject:
        if array.dtype.kind == "U":
            return array.astype(object)
        if not array.dtype.hasobject:
            raise BatchError(f"{subject}: expected text, got {array.dtype}")
        other = next((value for value in array.flat if not isinstance(value, str)), None)
        if other is not None:
            raise BatchError(f"{subject}: expected text, got {describe(other)}")
        return array
    is_number = array.dtype.kind in "biuf" or _is_small_float(array.dtype)
    of_float = array.dtype.kind == "f" or _is_small_float(array.dtype)
    to_float = dtype.kind in "fc" or _is_small_float(dtype)
    if not is_number or (of_float and not to_float):
        raise BatchError(f"{subject}: expected {dtype}, got {array.dtype}; convert the column "
                         f"first")  # fmt: skip
    if of_float:
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        found = array.astype(dtype)
        wrong = (found.astype(array.dtype) != array) | ((found < 0) != (array < 0))
        if to_float and array.dtype.kind != "b":  # of a number above the largest one, the way back
            above = 2.0 ** int(np.iinfo(array.dtype).max).bit_length()  # has no fixed result
            wrong |= found.astype(np.complex128).real >= above
    if wrong.any():
        raise BatchError(f"{subject}: expected {dtype}, got {array.dtype} with {array[wrong][0]}, "
                         f"which {dtype} does not have")  # fmt: skip
    return found


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of the floating-point types that numpy itself does not have."""
    return dtype.kind == "V" and dtype.name.startswith(("float", "bfloat"))


def _row_of_zeros(array: Array, field: Field) -> Array:
    """A row as the model takes it.  An array without rows may not know the dimensions of one."""
    dims = field.dims
    if dims is None:
        shape: Sequence[int] = array.shape[1:]
    else:
        own = array.shape if array.ndim == len(dims) else (1,) * len(dims)
        sizes = zip(dims, own, strict=True)
        shape = [dim if isinstance(dim, int) else size for dim, size in sizes][1:]
    dtype = array.dtype if field.dtype is None else field.dtype
    return np.full((1, *shape), "", object) if dtype.hasobject else np.zeros((1, *shape), dtype)


def _padded(array: Array, rows: int) -> Array:
    """The rows, and the last one again until there are enough."""
    last = np.broadcast_to(array[-1:], (rows - len(array), *array.shape[1:]))
    return np.concatenate([array, last])
