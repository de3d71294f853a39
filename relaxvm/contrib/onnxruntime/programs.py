"""The programs of a model: one, and others for calls that it does not take.

onnxruntime looks at the ranks and the fixed dimensions of inputs alone.  relaxvm's program for a
model also has each symbolic dimension once, which makes it faster, and constants where the model
has defaults of inputs.  A call that gives one symbolic dimension two values, or replaces a default,
is rare; the first one compiles a program of its own.  So does the first call for some of the
outputs: that program computes nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...errors import FormatError, RelaxVMError
from ...executable.file_kinds import HEAD_BYTES, KINDS, kind_of
from ...executable.model_info import ModelInfo, ValueInfo
from ...limits import Limits
from ...vm import VirtualMachine
from ...vm.program_cache import compile as compile_program
from .errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    status,
)
from .errors import NotImplemented as NotSupported

__all__ = ["Programs", "Variant"]

_ORT_FORMAT: Final = b"ORTM"
_EXECUTABLES: Final = (bytes.fromhex("1e1514422fde25d2"), bytes.fromhex("1d1514422fde25d2"))

_MOST: Final = 16
"""From how many programs on there are no further ones for some of the outputs."""


class Variant(NamedTuple):
    """What a call needs that most calls do not.

    Attributes:
        constants: the names of the defaults that it replaces.
        shapes: inputs whose shapes are not those of the model, with a number of dimensions that
            mean nothing; None for all inputs, each with its own dimensions.
        is_loose: whether symbolic dimensions of the same name may differ.
        outputs: the outputs that it asks for, in the order of the model; None for all.
    """

    constants: frozenset[str] = frozenset()
    ranks: tuple[tuple[str, int], ...] = ()
    is_loose: bool = False
    outputs: tuple[str, ...] | None = None


class Programs:
    """The programs of a model, by `Variant`.

    Args:
        model: a path or bytes.
        dimensions: numbers of symbolic dimensions by name.
        given: what else every program of the model is compiled with.

    Attributes:
        info: what the model says of itself.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidArgument, InvalidGraph, NotImplemented, Fail: the model
            cannot be read or compiled.
    """

    def __init__(
        self,
        model: str | bytes,
        dimensions: Mapping[str, int],
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._model = model
        self._given = given
        self._lock = threading.Lock()
        self._machines: dict[Variant, VirtualMachine] = {}
        self._overrides: dict[str, list[int | str]] = {}
        self._is_compiled = False
        machine = self._made({})
        info = machine.executable.model
        if info is None:
            raise status(InvalidGraph, f"{self._subject}the file does not describe its model")
        self.info = info
        if dimensions:
            self._overrides = _with_numbers(info, dimensions)
            if self._overrides:
                machine = self._made({"shape_dict": self._overrides})
                self.info = info = _info_with(info, self._overrides)
        self._machines[Variant()] = machine

    @property
    def _subject(self) -> str:
        return f"Load model from {self._model} failed:" if isinstance(self._model, str) else ""

    def supported(self, variant: Variant) -> Variant:
        """A variant for which there is, or can be, a program.  One that was compiled before the
        session was made computes all outputs; so do calls for yet other outputs, if there are many
        programs already."""
        if variant.outputs is None or variant in self._machines:
            return variant
        if self._is_compiled or len(self._machines) > _MOST:
            return variant._replace(outputs=None)
        return variant

    def machine(self, variant: Variant) -> VirtualMachine:
        """The machine for a variant."""
        found = self._machines.get(variant)
        if found is None:
            with self._lock:
                found = self._machines.get(variant)
                if found is None:
                    found = self._machines[variant] = self._made(self._options(variant))
        return found

    def _options(self, variant: Variant) -> dict[str, Any]:
        shapes: dict[str, list[int | str]] = dict(self._overrides)
        ranks = dict(variant.ranks)
        for value in (*self.info.inputs, *self.info.constants):
            if value.name in ranks:
                shapes[value.name] = _free(value.name, [None] * ranks[value.name])
            elif variant.is_loose and value.shape:
                shapes[value.name] = _free(value.name, value.shape)
        options: dict[str, Any] = {}
        if shapes:
            options["shape_dict"] = shapes
        if variant.outputs is not None:
            options["outputs"] = list(variant.outputs)
        if variant.constants:
            options["constants_as_inputs"] = sorted(variant.constants)
        return options

    def _made(self, options: Mapping[str, Any]) -> VirtualMachine:
        """A machine for the model, compiled with options."""
        subject = self._subject
        model = self._model
        is_executable = False
        try:
            head = _head(model)
            is_executable = self._is_compiled = head.startswith(_EXECUTABLES)
            if is_executable:
                if options or self._given:
                    names = ", ".join([*options, *self._given])
                    raise status(NotSupported, f"{subject}{names}: this file is "
                                 "compiled already")  # fmt: skip
                from ...executable.loading import load

                return VirtualMachine(load(model))
            if head[4:8] == _ORT_FORMAT:
                raise status(NotSupported, f"{subject}models in the ORT format are not supported; "
                             "the ONNX model that it was made of is")  # fmt: skip
            program: Any = model
            if not _is_program(model):
                program = _Bytes(_content(model))
            return VirtualMachine(
                compile_program(program, cache=not self._given, **self._given, **options)
            )
        except FileNotFoundError as error:
            if isinstance(model, bytes) or os.path.exists(model):
                raise status(
                    Fail, f"{subject}External data path does not exist: {error.filename!r}"
                ) from None
            raise status(
                NoSuchFile, f"{subject}Load model {model!s} failed. File doesn't exist"
            ) from None
        except IsADirectoryError:
            raise status(InvalidProtobuf, f"{subject}Protobuf parsing failed.") from None
        except OSError as error:
            raise status(Fail, f"{subject}system error: {error.strerror or error}") from error
        except (FormatError, ValueError) as error:
            # Other errors are about dimensions that the session's options have numbers for.
            is_file = isinstance(error, FormatError) or not options.get("shape_dict")
            if not is_executable and is_file:
                raise self._refused(error) from error
            raise status(InvalidGraph, f"{subject}{error}") from error
        except RelaxVMError as error:
            kind = NotSupported if "not supported" in str(error) else InvalidGraph
            raise status(kind, f"{subject}{error}") from error

    def _refused(self, error: Exception) -> Exception:
        """The exception for a file that is no model, or a malformed one."""
        from ...frontend.onnx import messages
        from ...frontend.onnx.wire import read

        subject, model = self._subject, self._model
        try:
            graph = read(messages.Model, _content(model), "<model>").graph
        except RelaxVMError:
            text = "Protobuf" if subject else "Failed to load model because protobuf"
            return status(InvalidProtobuf, f"{subject}{text} parsing failed.")
        if graph is None:
            return status(InvalidArgument, f"{subject}No graph was found in the protobuf.")
        return status(Fail, subject + str(error).removeprefix(f"{model!s}: "))


def _head(model: str | bytes) -> bytes:
    if isinstance(model, bytes):
        return model[:HEAD_BYTES]
    with open(model, "rb") as file:
        os.fstat(file.fileno())
        return file.read(HEAD_BYTES)


def _content(model: str | bytes) -> Any:
    from ...frontend.common.files import file_content

    return model if isinstance(model, bytes) else file_content(model, Limits())


def _is_program(model: str | bytes) -> bool:
    """Whether `relaxvm.compile` takes a model for one.  A session has no other programs: a script
    is not run, and the end of a name says nothing."""
    name = "" if isinstance(model, bytes) else model
    kind = kind_of(_head(model), name)
    return kind is KINDS["onnx"]


class _Bytes:
    """The bytes of a model, as ``onnx.ModelProto`` gives them."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def SerializeToString(self) -> Any:
        """The bytes."""
        return self._data


def _free(name: str, dims: Any) -> list[int | str]:
    """The dimensions of an input, of which those that are no numbers mean nothing else."""
    return [dim if isinstance(dim, int) else f"{name}.{i}" for i, dim in enumerate(dims)]


def _with_numbers(info: ModelInfo, dimensions: Mapping[str, int]) -> dict[str, list[int | str]]:
    """The shapes of the inputs that have some of the symbolic dimensions, with these numbers."""
    return {
        value.name: [
            dimensions.get(dim, dim) if isinstance(dim, str) else f"{value.name}.{i}"
            if dim is None else dim
            for i, dim in enumerate(value.shape)
        ]
        for value in info.inputs
        if value.shape and any(dim in dimensions for dim in value.shape if isinstance(dim, str))
    }  # fmt: skip


def _info_with(info: ModelInfo, shapes: Mapping[str, list[int | str]]) -> ModelInfo:
    def changed(value: ValueInfo) -> ValueInfo:
        found = shapes.get(value.name)
        if found is None or value.dims is None:
            return value
        dims = [None if old is None else new for old, new in zip(value.dims, found, strict=True)]
        return value._replace(dims=tuple(dims))

    return info._replace(inputs=tuple(map(changed, info.inputs)))
