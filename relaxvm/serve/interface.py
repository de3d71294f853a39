"""What a function of a model takes and returns, as arrays by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contrib.onnxruntime.element_types import dtype_of_type
from ..errors import did_you_mean
from ..executable import VMExecutable
from ..executable.model_info import ValueInfo, is_named
from ..messages import describe, readable
from ..values import Shape
from ..vm.entry_checks import ParamSpec, params_of
from .tensors import RequestError, Wanted, datatype_of

__all__ = ["Field", "Interface", "NotServableError"]

_KINDS: Final = frozenset({"tensor", "scalar", "shape", "any"})
_MAX_OUTPUTS: Final = 4_096

FieldDim = int | str | None
"""A number, the name of a dimension that a call chooses, or None for any."""


class NotServableError(ValueError):
    """A function takes or returns other things than tensors, numbers and text."""


class Field(NamedTuple):
    """An input or output.

    Attributes:
        name: its name.
        dtype: of its elements; None if any will do.
        dims: its dimensions; None if any will do.
        kind: of an input: "tensor", "scalar", "shape" or "any".
    """

    name: str
    dtype: np.dtype[Any] | None
    dims: tuple[FieldDim, ...] | None
    kind: str = "tensor"

    def described(self) -> dict[str, Any]:
        """As the protocol's metadata: -1 stands for a dimension that a call chooses."""
        datatype = None if self.dtype is None else datatype_of(self.dtype)
        dims = () if self.dims is None else self.dims
        return {
            "name": self.name,
            "datatype": datatype or "",
            "shape": [dim if isinstance(dim, int) else -1 for dim in dims],
        }


class Interface(NamedTuple):
    """What a function takes and returns.

    Attributes:
        function: its name.
        inputs: in the order of its parameters.
        outputs: in order, as far as they are known.
    """

    function: str
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]

    @classmethod
    def of(cls, executable: VMExecutable, function: str) -> Interface:
        """The interface of a function.

        Raises:
            NotServableError: there is no such function, or a parameter is a tuple, a function or
                text.
        """
        if not executable.has_function(function):
            known = [info.name for info in executable]
            raise NotServableError(f"there is no function {readable(function)}"
                                   f"{did_you_mean(function, known)}")  # fmt: skip
        info = executable.function(function)
        names = executable.names_of(function)
        specs = params_of(executable, info)
        own = names.inputs if len(names.inputs) == len(specs) else [each.name for each in specs]
        inputs = tuple(map(_input, own, specs))
        model = executable.model if function == "main" else None
        if model is not None:
            declared = {each.name: each for each in model.inputs}
            inputs = tuple([_declared(field, declared.get(field.name)) for field in inputs])
        if model is not None and len(model.outputs) == len(names.outputs):
            outputs = tuple(map(_output, model.outputs))
        else:
            outputs = tuple([Field(name, None, None) for name in names.outputs])
        return cls(function, inputs, outputs)

    def arranged(self, given: Mapping[str, NDArray[Any]]) -> list[Any]:
        """The arguments for inputs by name.

        Raises:
            RequestError: an input is missing, unknown, or of another type.
        """
        known = [field.name for field in self.inputs]
        for name in given:
            if name not in known:
                raise RequestError(f"unknown input {readable(name)}{did_you_mean(name, known)}")
        missing = [name for name in known if name not in given]
        if missing:
            raise RequestError(f"inputs are missing: {', '.join(map(readable, missing))}")
        return [_argument(field, given[field.name]) for field in self.inputs]

    def named(self, result: Any) -> dict[str, NDArray[Any]]:
        """The arrays of a result by the names of the outputs, ``output_0`` and so on if they have
        none.  A list of maps with the same keys, such as the probabilities of classes, is an array
        with a row for each map; the columns have the order of the keys.

        Raises:
            NotServableError: a part is no tensor, number or text.
        """
        leaves = list(_leaves(result))
        fields: Sequence[Field] = self.outputs
        if len(leaves) != len(fields):
            fields = [Field(f"output_{i}", None, None) for i in range(len(leaves))]
        return {
            field.name: _of_maps(field, leaf) if _is_maps(leaf) else _array(field.name, leaf)
            for field, leaf in zip(fields, leaves, strict=True)
        }

    def chosen(
        self, arrays: Mapping[str, NDArray[Any]], wanted: Sequence[Wanted] | None, binary: bool
    ) -> list[tuple[Wanted, NDArray[Any]]]:
        """The outputs that a request asks for.

        Raises:
            RequestError: there is no output of a name, or one is asked for twice.
        """
        if wanted is None:
            return [(Wanted(name, binary), array) for name, array in arrays.items()]
        seen = set()
        for each in wanted:
            if each.name in seen:  # a small request could ask for a huge answer
                raise RequestError(f"output {readable(each.name)} is there twice")
            seen.add(each.name)
            if each.name not in arrays:
                raise RequestError(f"unknown output {readable(each.name)}"
                                   f"{did_you_mean(each.name, list(arrays))}")  # fmt: skip
        return [(each, arrays[each.name]) for each in wanted]

    def check_joinable(self) -> None:
        """Check that calls can be joined along the first dimension.

        Raises:
            NotServableError: they cannot: that has to be one dimension that a call chooses, the
                same for all inputs, and no other one of them.
        """
        firsts = {field.dims[0] if field.dims else None for field in self.inputs}
        (first,) = firsts if len(firsts) == 1 else (None,)
        shown = ", ".join(f"{readable(each.name)}: {_dims_text(each)}" for each in self.inputs)
        if not isinstance(first, str) or (len(self.inputs) > 1 and not is_named(first)):
            raise NotServableError(f"calls cannot be joined: expected one named dimension, which a "
                                   f"call chooses, first in all inputs, got {shown}")  # fmt: skip
        if any(first in str(dim) for field in self.inputs for dim in (field.dims or ())[1:]):
            raise NotServableError(f"calls cannot be joined: the dimension {readable(first)} is "
                                   f"not only the first: {shown}")  # fmt: skip
        for field in self.outputs:
            if field.dims is not None and (not field.dims or isinstance(field.dims[0], int)):
                raise NotServableError(f"calls cannot be joined: output {readable(field.name)} is "
                                       f"{_dims_text(field)}")  # fmt: skip


def _dims_text(field: Field) -> str:
    if field.dims is None:
        return "unknown"
    return f"[{', '.join('?' if dim is None else str(dim) for dim in field.dims)}]"


def _input(name: str, spec: ParamSpec) -> Field:
    if spec.kind not in _KINDS:
        raise NotServableError(f"input {readable(name)} is a {spec.kind}, and no tensor; write a "
                               f"function that takes tensors")  # fmt: skip
    if spec.kind == "scalar":
        return Field(name, spec.dtype or np.dtype("int64"), (), "scalar")
    if spec.kind == "shape":
        count = None if spec.dims is None else len(spec.dims)
        return Field(name, np.dtype("int64"), (count,), "shape")
    dims = None if spec.dims is None else tuple(
        dim if dim is None or isinstance(dim, int) else str(dim) for dim in spec.dims
    )
    return Field(name, spec.dtype, dims, spec.kind)


def _declared(field: Field, said: ValueInfo | None) -> Field:
    """An input with what a model says of it, if it has texts: of these a program knows nothing."""
    if said is None or field.kind != "any" or said.type != "tensor(string)":
        return field
    return Field(field.name, np.dtype(object), said.dims)


def _output(said: ValueInfo) -> Field:
    """An output as a model declares it."""
    values = said.type.removeprefix("seq(map(").partition(",")[2].removesuffix("))")
    if said.type.startswith("seq(map("):
        return Field(said.name, dtype_of_type(values), (None, None))
    return Field(said.name, dtype_of_type(said.type), said.shape)


def _argument(field: Field, array: NDArray[Any]) -> Any:
    subject = f"input {readable(field.name)}"
    if field.dtype is not None and array.dtype != field.dtype:
        expected = datatype_of(field.dtype) or field.dtype
        raise RequestError(f"{subject}: expected {expected}, got {datatype_of(array.dtype)}")
    if field.dims is not None and field.kind != "scalar":
        fits = len(field.dims) == array.ndim and all(
            not isinstance(dim, int) or dim == size
            for dim, size in zip(field.dims, array.shape, strict=False)
        )
        if not fits:
            raise RequestError(
                f"{subject}: expected the shape {_dims_text(field)}, got {list(array.shape)}"
            )
    if field.kind == "scalar":
        if array.size != 1:
            raise RequestError(f"{subject}: expected one number, got the shape "
                               f"{list(array.shape)}")  # fmt: skip
        return array.reshape(()).item()
    if field.kind == "shape":
        return Shape(array.tolist())
    return array


def _leaves(value: Any) -> Iterator[Any]:
    """The parts of nested tuples, of which there are few: a short program can return tuples that
    share their parts, with any number of them."""
    opened = [iter((value,))]
    count = 0
    while opened:
        for item in opened[-1]:
            count += 1
            if count > _MAX_OUTPUTS:
                raise NotServableError(f"the result has more than {_MAX_OUTPUTS} parts")
            is_nested = isinstance(item, (tuple, list)) and not isinstance(item, Shape)
            if is_nested and not _is_maps(item):
                opened.append(iter(item))
                break
            yield item
        else:
            opened.pop()


def _is_maps(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list)) and len(value) > 0
        and all(isinstance(item, Mapping) for item in value)
    )  # fmt: skip


def _of_maps(field: Field, maps: Sequence[Mapping[Any, Any]]) -> NDArray[Any]:
    """The values of maps, with a row for each."""
    keys = list(maps[0])
    if any(each.keys() != maps[0].keys() for each in maps):
        raise NotServableError(f"output {readable(field.name)}: expected maps with the same keys")
    rows = [[each[key] for key in keys] for each in maps]
    found = np.array(rows, field.dtype)
    if found.ndim != 2 or (found.dtype.hasobject and field.dtype is None):
        raise NotServableError(f"output {readable(field.name)}: expected maps to numbers or text")
    return found


def _array(name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Shape):
        return np.array([*value], np.int64)
    if isinstance(value, (bool, int, float, str, np.generic)):
        return np.array(value, object if isinstance(value, str) else None)
    raise NotServableError(f"output {readable(name)} is {describe(value)}, and neither tensor, "
                           f"number nor text")  # fmt: skip
