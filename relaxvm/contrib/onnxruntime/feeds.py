"""The values that a run gets, as arrays for the program; errors are those of onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ...executable.model_info import ValueInfo, is_named
from .element_types import dtype_of_type, type_of_dtype
from .errors import Fail, InvalidArgument, status

__all__ = ["check_missing", "converted", "value_for"]

_HINT: Final = "Please fix either the inputs/outputs or the model."


def check_missing(expected: Iterator[str], given: list[Any]) -> None:
    """Check that each input has a value.

    Raises:
        ValueError: some have none.
    """
    missing = [name for name in expected if name not in given]
    if missing:
        raise ValueError(
            f"Required inputs ({missing}) are missing from input feed ({given})."
        )


def converted(value: Any, expected: ValueInfo) -> Any:
    """Return a value as an array, or as a list of arrays for a sequence; its type is not checked.

    Raises:
        RuntimeError: it is of a class that onnxruntime does not take.
        InvalidArgument: it is a sparse tensor.
    """
    if hasattr(value, "_ort_payload"):
        value = value._ort_payload
        if not hasattr(value, "dense_shape"):
            return value
        raise status(
            InvalidArgument,
            f"input with name: '{expected.name}' expected to be of type: {expected.type} but "
            "received a sparse tensor",
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, list):
        if expected.type.startswith(("seq(", "optional(seq(")):
            inner = ValueInfo(expected.name, _inner(expected.type))
            return [converted_element(each, inner) for each in value]
        return np.array(value, dtype_of_type(expected.type))
    if isinstance(value, dict) and expected.type.startswith("map("):
        return _converted_map(value, expected)
    if value is None and expected.type.startswith("optional("):
        return None
    if value is None:
        raise status(Fail, f"Missing Input: {expected.name}")
    raise RuntimeError(f"Unable to handle object of type {type(value)}")


def _converted_map(value: dict[Any, Any], expected: ValueInfo) -> dict[Any, Any]:
    """Return a map with its numbers as the numbers of Python.

    Raises:
        RuntimeError: a key or a value is of another type than the model's.
    """
    key, _, rest = expected.type.removeprefix("map(").partition(",")
    kinds: dict[str, Any] = {"string": str, "int64": (int, np.integer)}
    is_text = rest.startswith("tensor(string)")
    taken: Any = str if is_text else (int, float, np.integer, np.floating)
    for each, number in value.items():
        for name, found, kind in (("key", each, kinds[key]), ("value", number, taken)):
            if not isinstance(found, kind) or isinstance(found, bool):
                raise RuntimeError(
                    f"Unexpected {name} type {type(found)} of map input {expected.name}, expected: "
                    f"({expected.type})"
                )
    numbers = value if is_text else {
        each: number.item() if isinstance(number, np.generic) else number
        for each, number in value.items()
    }  # fmt: skip
    return numbers if key == "string" else {int(each): number for each, number in numbers.items()}


def converted_element(value: Any, expected: ValueInfo) -> Any:
    """Return an element of a sequence as an array.

    Raises:
        RuntimeError: it is no tensor, or has another type.
    """
    if not (isinstance(value, np.ndarray) or hasattr(value, "_ort_payload")):
        raise RuntimeError("CreateSequenceOfTensors: Input is not a tensor")
    found = converted(value, expected)
    if isinstance(found, np.ndarray) and type_of_dtype(found.dtype) != expected.type:
        raise RuntimeError(
            f"Unexpected input data type. Actual: ({type_of_dtype(found.dtype)}) , expected: "
            f"({expected.type})"
        )
    return found


def _inner(text: str) -> str:
    text = text.removeprefix("optional(").removeprefix("seq(")
    return text.rstrip(")") + ")" if text.startswith("tensor(") else text


def value_for(value: Any, expected: ValueInfo) -> Any:
    """Check a converted value, and return it as the program takes it.

    Raises:
        InvalidArgument: its type, rank or a dimension is not that of the input.
        RuntimeError: its elements are of a type that no model has.
    """
    if not isinstance(value, np.ndarray):
        if isinstance(value, list):
            inner = ValueInfo(expected.name, _inner(expected.type))
            return tuple([value_for(each, inner) for each in value])
        return value
    actual = type_of_dtype(value.dtype)
    if actual is None:
        raise RuntimeError(f"Numpy_type {value.dtype.num} can't be converted to MLDataType.")
    wanted = expected.type.removeprefix("optional(") if expected.type else actual
    if actual != wanted and f"{actual})" != wanted:
        raise status(
            InvalidArgument,
            f"Unexpected input data type. Actual: ({actual}) , expected: ({expected.type})",
        )
    # A model that declares a scalar gets any shape, as with onnxruntime.
    if expected.shape:
        _check_shape(value.shape, expected)
    if actual == "tensor(string)":
        return _as_texts(value)
    if not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value


def _check_shape(shape: tuple[int, ...], expected: ValueInfo) -> None:
    dims = expected.shape or ()
    if len(shape) != len(dims):
        raise status(
            InvalidArgument,
            f"Invalid rank for input: {expected.name} Got: {len(shape)} Expected: {len(dims)} "
            f"{_HINT}",
        )
    wrong = [
        f" index: {i} Got: {got} Expected: {want}"
        for i, (got, want) in enumerate(zip(shape, dims, strict=True))
        if isinstance(want, int) and got != want
    ]
    if wrong:
        lines = "\n".join(wrong)
        raise status(
            InvalidArgument,
            f"Got invalid dimensions for input: {expected.name} for the following indices\n"
            f"{lines}\n {_HINT}",
        )


def _as_texts(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    texts = np.empty(value.size, object)
    texts[:] = [
        each if isinstance(each, str) else str(each, "utf-8") if isinstance(each, bytes)
        else str(each) for each in value.reshape(-1).tolist()
    ]  # fmt: skip
    return texts.reshape(value.shape)


def symbols_agree(inputs: Mapping[str, tuple[ValueInfo, Any]]) -> bool:
    """Whether each symbolic dimension has one value."""
    known: dict[str, int] = {}
    for expected, value in inputs.values():
        if isinstance(value, np.ndarray) and expected.shape:
            for name, size in zip(expected.shape, value.shape, strict=True):
                if not isinstance(name, str) or known.setdefault(name, size) == size:
                    continue
                if is_named(name):
                    return False
    return True
