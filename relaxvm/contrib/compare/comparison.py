"""Values of two programs, compared a few at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import RelaxVMError
from ...executable import VMExecutable
from ...executable.file_kinds import HEAD_BYTES, kind_of
from ...limits import Limits
from ...observe.compare import Tolerance, differ
from ...observe.computed import Computed
from ...vm import VirtualMachine
from .others import OTHERS, Batches

__all__ = ["COUNT", "WITHIN", "Difference", "Value", "compare", "executable_of", "values_of"]

WITHIN: Final = 2e-4
"""How far numbers may be apart, as a part of the largest magnitude in the tensor."""
COUNT: Final = 16
"""Values that are kept at a time, at first; more, if they take little memory."""


class Value(NamedTuple):
    """A tensor that a node makes.

    Attributes:
        name: of the tensor.
        node: the node's name and operator, and the user's line where it is known.
    """

    name: str
    node: str


class Difference(NamedTuple):
    """What was found of a value.

    Attributes:
        value: the value.
        problem: what is different; "" if nothing is.
        distance: the largest distance of two numbers, as a part of the largest magnitude.
    """

    value: Value
    problem: str
    distance: float


def values_of(path: str | os.PathLike[str], limits: Limits | None = None) -> list[Value]:
    """The values of a model's nodes in order.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not a model.
        RelaxVMError: it is a program of another kind.
    """
    return _program(path, limits).values()


def executable_of(path: str | os.PathLike[str], limits: Limits | None = None) -> VMExecutable:
    """A model compiled with the inputs that `compare` takes: the tensors of its graph.

    Raises:
        OSError, FormatError, RelaxVMError: as `compare`.
    """
    return _executable(_program(path, limits).module())


def compare(
    path: str | os.PathLike[str],
    other: str,
    inputs: Sequence[Any],
    *,
    within: float = WITHIN,
    count: int = COUNT,
    limits: Limits | None = None,
    operators: Mapping[Any, Callable[..., Any]] | None = None,
) -> Iterator[Difference]:
    """Run a model by relaxvm and by another package, and compare the values of its nodes in order.

    Args:
        path: of an ``.onnx`` or a ``.pt2`` file.
        other: "onnxruntime" or "reference" for an ONNX model; "torch" for an archive.
        inputs: tensors, in the order of the model's inputs.
        within: how far numbers may be apart, as a part of the largest magnitude in the tensor.
        count: values that are kept at a time, at first; more, if they take little memory.
        limits: bounds for reading the model.
        operators: functions for operators, in place of relaxvm's own, as `from_onnx` and
            `from_exported_program` take them.

    Yields:
        What was found of each value that both sides have as a tensor.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not a model.
        RelaxVMError: the model cannot be imported, or `other` does not run programs of its kind.
        MissingExtraError: the other package is not installed.
    """
    program = _program(path, limits, operators)
    if other not in OTHERS or OTHERS[other].kind != program.kind:
        known = [name for name, each in OTHERS.items() if each.kind == program.kind]
        raise RelaxVMError(
            f"{os.fspath(path)}: expected {' or '.join(known)} to compare with, got {other!r}"
        )
    values = program.values()
    theirs = OTHERS[other](os.fspath(path), list(inputs), [value.name for value in values], count)
    pairs = theirs.values()
    remaining = iter(values)
    batches = Batches([value.name for value in values], count)
    for names in batches:
        ours = program.run(names, inputs)
        batches.took(ours)
        for got in ours:
            value = next(remaining)
            name, expected = next(pairs)
            assert name == value.name
            if isinstance(got, np.ndarray) and isinstance(expected, np.ndarray):
                yield _difference(value, got, expected, within)


class _Onnx:
    """An ONNX model."""

    kind = "onnx"

    def __init__(self, path: str, limits: Limits | None, operators: Any) -> None:
        from ...frontend.onnx.program import read_model

        self._path = path
        self._options: dict[str, Any] = {"limits": limits, "operators": operators}
        model, *_ = read_model(path, limits)
        assert model.graph is not None
        self._outputs = len(model.graph.output)
        self._graph = model.graph

    def values(self) -> list[Value]:
        found = []
        for i, node in enumerate(self._graph.node):
            label = f"node {node.name or i} ({node.op_type})"
            found += [Value(name, label) for name in node.output if name]
        return found

    def module(self, names: Sequence[str] = ()) -> Any:
        from ...frontend.onnx import from_onnx

        return from_onnx(self._path, extra_outputs=names, **self._options)

    def run(self, names: Sequence[str], inputs: Sequence[Any]) -> list[Any]:
        result = _main(self.module(names))(*inputs)
        return list(result[self._outputs :])


class _Archive:
    """A program of ``torch.export``."""

    kind = "pt2"

    def __init__(self, path: str, limits: Limits | None, operators: Any) -> None:
        from ...frontend.torch.places import Places
        from ...frontend.torch.program import open_archive

        self._path = path
        self._options: dict[str, Any] = {"limits": limits, "operators": operators}
        self._places = Places(path)
        self._graph = open_archive(path, limits).program(None)[1].graph_module.graph

    def values(self) -> list[Value]:
        found = []
        for node in self._graph.nodes:
            place = self._places.text_of(node)
            label = f"{node.target.removeprefix('torch.ops.')}{f', {place}' if place else ''}"
            found += [Value(name, label) for name in node.tensors()]
        return found

    def module(self, names: Sequence[str] = ()) -> Any:
        from ...frontend.torch import from_exported_program

        return from_exported_program(
            self._path, flat=True, extra_outputs=names, **self._options
        )

    def run(self, names: Sequence[str], inputs: Sequence[Any]) -> list[Any]:
        _, found = _main(self.module(names))(*inputs)
        return list(found)


def _executable(module: Any) -> VMExecutable:
    from ...compiler import build

    return build.compile(module)


def _main(module: Any) -> Any:
    return VirtualMachine(_executable(module))["main"]


_PROGRAMS: Final[dict[str, type[_Onnx] | type[_Archive]]] = {
    each.kind: each for each in (_Onnx, _Archive)
}


def _program(
    path: str | os.PathLike[str], limits: Limits | None, operators: Any = None
) -> _Onnx | _Archive:
    name = os.fspath(path)
    with open(name, "rb") as file:
        kind = kind_of(file.read(HEAD_BYTES), name)
    program = None if kind is None else _PROGRAMS.get(kind.name)
    if program is None:
        raise RelaxVMError(f"{name}: expected an .onnx or a .pt2 file, got {kind or 'another one'}")
    return program(name, limits, operators)


def _difference(
    value: Value, got: NDArray[Any], expected: NDArray[Any], within: float
) -> Difference:
    found = differ(
        Computed(value.name, got), Computed(value.name, expected), Tolerance(within=within)
    )
    return Difference(value, found.text, found.distance)
