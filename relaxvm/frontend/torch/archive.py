"""The archives of ``torch.export.save``: programs as JSON, and their tensors as raw bytes.

Nothing of an archive is unpickled or executed.  Tensors are views of the file.

Source: the public specification of PT2 archives, version 0, as torch 2.9 and later write it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dtypes import as_dtype
from ...errors import FormatError, RelaxVMError
from ...limits import Limits
from ...messages import readable
from . import messages
from .stored import Member, members

__all__ = ["SCALAR_TYPES", "Archive", "dtype_of"]

SCALAR_TYPES: Final = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
"""The numbers of data types in a file, and their names."""

_STRIDED: Final = 7
_FORMAT: Final = b"pt2"
_ARCHIVE_VERSION: Final = b"0"
_SCHEMA: Final = 8
"""The major version of the schema."""
_MOST_RANK: Final = 64
_MOST_REPEATED: Final = 1 << 28
"""The most bytes of a tensor that repeats elements of a smaller payload."""
_MOST_JSON: Final = 1 << 29
_SAVE_AGAIN: Final = (
    "save it again with torch 2.9 or later: "
    "torch.export.save(torch.export.load('old.pt2'), 'new.pt2')"
)


def dtype_of(number: int, subject: str) -> str:
    """The name of a data type by its number in a file.

    Raises:
        FormatError: there is no such data type.
    """
    name = SCALAR_TYPES.get(number)
    if name is None:
        raise FormatError(f"{subject}: there is no data type {number}")
    return name


class Archive:
    """An archive, whose versions are checked.

    Args:
        data: the whole file.
        name: of the file, for messages of errors.
        limits: bounds of the JSON in it.

    Attributes:
        names: of the programs in it.

    Raises:
        FormatError: it is not an archive of this format, or is damaged.
    """

    def __init__(self, data: memoryview, name: str, limits: Limits | None = None) -> None:
        self.name = name
        self._limits = limits or Limits()
        found = members(data, name)
        _refuse_older(found, name)
        roots = {each.partition("/")[0] for each in found}
        if len(roots) != 1 or not all("/" in each for each in found):
            raise FormatError(f"{name}: expected an archive of PyTorch, with one folder in it")
        root = f"{roots.pop()}/"
        self._members = {each.removeprefix(root): member for each, member in found.items()}
        self._check_versions()
        self.names = [
            each.removeprefix("models/").removesuffix(".json")
            for each in self._members
            if each.startswith("models/") and each.endswith(".json")
        ]
        if not self.names:
            if any(each.startswith("data/aotinductor/") for each in self._members):
                raise FormatError(
                    f"{name}: the archive has machine code of AOTInductor and no program; save the "
                    f"program itself with torch.export.save"
                )
            raise FormatError(f"{name}: the archive has no program")
        self._arrays: dict[tuple[Any, ...], NDArray[Any]] = {}

    def _check_versions(self) -> None:
        for path, expected in (("archive_format", _FORMAT), ("archive_version", _ARCHIVE_VERSION)):
            if path not in self._members:
                raise FormatError(f"{self.name}: expected an archive of PyTorch, it has no {path}")
            got = bytes(self._members[path].data[:40]).strip()
            if got != expected:
                raise FormatError(
                    f"{self.name}: {path}: expected {expected.decode()!r}, "
                    f"got {readable(str(got, 'latin1'))!r}"
                )
        order = "little"
        if "byteorder" in self._members:
            order = str(self._members["byteorder"].data[:40], "latin1").strip()
        if order not in ("little", "big"):
            raise FormatError(
                f"{self.name}: byteorder: expected 'little' or 'big', got {readable(order)!r}"
            )
        self._is_swapped = order != sys.byteorder

    def _member(self, path: str) -> Member:
        found = self._members.get(path)
        if found is None:
            raise FormatError(f"{self.name}: the archive has no {readable(path)}")
        return found

    def _json(self, path: str) -> Any:
        """The content of a JSON file."""
        subject = f"{self.name}: {path}"
        member = self._member(path)
        size = len(member.data)
        if size > _MOST_JSON:
            raise FormatError(f"{subject}: expected at most {_MOST_JSON} bytes, got {size}")
        self._limits.check("file_bytes", size, subject)
        if self._limits.live_bytes is not None:
            # An object of the reader takes up to this many times the bytes of its text.
            self._limits.check("live_bytes", 40 * size, subject)
        try:
            return json.loads(bytes(member.checked(self.name)))
        except RecursionError:
            raise FormatError(f"{subject}: it is nested too deeply") from None
        except ValueError as error:
            raise FormatError(f"{subject}: expected JSON: {error}") from None

    def program(self, model: str | None = None) -> tuple[str, messages.ExportedProgram]:
        """A program and its name.

        Args:
            model: its name; None for the only one.

        Raises:
            FormatError: it is malformed, or of a version that is not supported.
            RelaxVMError: there are several, or none of this name.
        """
        if model is None and len(self.names) > 1:
            names = ", ".join(map(repr, map(readable, self.names)))
            raise RelaxVMError(f"{self.name}: the archive has several programs ({names}): pass "
                               f"model=NAME")  # fmt: skip
        model = self.names[0] if model is None else model
        if model not in self.names:
            names = ", ".join(map(repr, map(readable, self.names)))
            raise RelaxVMError(
                f"{self.name}: the archive has no program {readable(model)!r}, it has {names}"
            )
        path = f"models/{model}.json"
        data = self._json(path)
        subject = f"{self.name}: {path}"
        _check_schema(data, subject)
        program: messages.ExportedProgram = messages.read(messages.ExportedProgram, data, subject)
        return model, program

    def tensors(self, model: str) -> dict[str, NDArray[Any]]:
        """The parameters, buffers and constants of a program by name."""
        found: dict[str, NDArray[Any]] = {}
        for kind in ("weights", "constants"):
            path = f"data/{kind}/{model}_{kind}_config.json"
            if f"data/{kind}/{model}.pt" in self._members:
                raise FormatError(
                    f"{self.name}: data/{kind}/{model}.pt: the archive has pickled tensors, as "
                    f"torch 2.8 wrote them; {_SAVE_AGAIN}"
                )
            config: messages.PayloadConfig = messages.read(
                messages.PayloadConfig, self._json(path), f"{self.name}: {path}"
            )
            for name, payload in config.config.items():
                found[name] = self._tensor(f"data/{kind}/", name, payload)
        return found

    def _tensor(self, folder: str, name: str, payload: messages.PayloadMeta) -> NDArray[Any]:
        subject = f"{self.name}: tensor {readable(name)!r}"
        if payload.path_name.startswith(("custom_obj_", "opaque_obj_")):
            raise FormatError(
                f"{self.name}: {readable(name)!r} is an object of a class that only torch has, "
                f"which is not supported"
            )
        if payload.use_pickle or payload.tensor_meta is None:
            raise FormatError(
                f"{subject}: it is pickled, which is never read; use a plain dense tensor and "
                f"export again"
            )
        meta = payload.tensor_meta
        dtype = dtype_of(meta.dtype, subject)
        if meta.layout != _STRIDED:
            raise FormatError(f"{subject}: expected a dense tensor, got layout {meta.layout}")
        sizes = _numbers(meta.sizes, f"{subject}: sizes")
        strides = _numbers(meta.strides, f"{subject}: strides")
        (offset,) = _numbers([meta.storage_offset], f"{subject}: storage_offset")
        if len(sizes) != len(strides) or len(sizes) > _MOST_RANK:
            raise FormatError(
                f"{subject}: expected as many strides as sizes, at most {_MOST_RANK}, "
                f"got {len(sizes)} sizes and {len(strides)} strides"
            )
        key = (folder, payload.path_name, dtype, tuple(sizes), tuple(strides), offset)
        found = self._arrays.get(key)
        if found is None:
            data = self._member(folder + payload.path_name).data
            found = self._arrays[key] = self._array(data, dtype, sizes, strides, offset, subject)
        return found

    def _array(
        self, data: memoryview, name: str, sizes: list[int], strides: list[int], offset: int,
        subject: str,
    ) -> NDArray[Any]:  # fmt: skip
        dtype = as_dtype(name)
        if 0 in sizes:
            if math.prod([max(1, size) for size in sizes]) * dtype.itemsize > _MOST_REPEATED:
                raise FormatError(f"{subject}: sizes of {sizes} are not supported")
            return np.empty(sizes, dtype)
        # The stride of an axis of one element means nothing, and may be any number.
        strides = [step if n > 1 else 0 for n, step in zip(sizes, strides, strict=True)]
        last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        if (last + 1) * dtype.itemsize > len(data):
            raise FormatError(
                f"{subject}: its last element is {last}, the payload has {len(data)} bytes of "
                f"{name}"
            )
        size = math.prod(sizes) * dtype.itemsize
        if size > max(len(data), _MOST_REPEATED):
            raise FormatError(f"{subject}: it would be {size} bytes of a payload of {len(data)}")
        itemsize = dtype.itemsize
        found: NDArray[Any] = np.ndarray(
            sizes, dtype, data, offset * itemsize, [step * itemsize for step in strides]
        )
        if self._is_swapped:
            found = found.byteswap()
        # A tensor that is not contiguous, or not aligned, is copied.
        return np.require(found, requirements=["C_CONTIGUOUS", "ALIGNED"])


def _numbers(sizes: list[messages.Sized], subject: str) -> list[int]:
    """Sizes that are numbers, not below 0."""
    found = []
    for kind, value in sizes:
        if kind != "as_int" or value < 0:
            raise FormatError(f"{subject}: expected numbers >= 0, got {readable(str(value))}")
        found.append(value)
    return found


def _check_schema(data: Any, subject: str) -> None:
    """Check the version before anything else: what another version has is not known."""
    version = data.get("schema_version") if type(data) is dict else None
    major = version.get("major") if type(version) is dict else None
    if type(major) is not int:
        raise FormatError(f"{subject}: expected a program of torch.export, it has no version")
    if major != _SCHEMA:
        writer = data.get("torch_version")
        by = f", as torch {readable(writer)} writes it" if type(writer) is str else ""
        hint = f"; {_SAVE_AGAIN}" if major < _SCHEMA else ""
        raise FormatError(
            f"{subject}: expected version {_SCHEMA} of the schema, got {readable(str(major))}{by}"
            f"{hint}"
        )


def _refuse_older(found: Mapping[str, Member], name: str) -> None:
    """Refuse the archives before PT2, by the names of their members."""
    for each in found:
        if each.rpartition("/")[2] == "serialized_exported_program.json":
            raise FormatError(
                f"{name}: the archive has pickled tensors, as torch 2.7 and earlier wrote them; "
                f"{_SAVE_AGAIN}"
            )
        if each.endswith("/data.pkl"):
            raise FormatError(
                f"{name}: the file is a pickle of torch.save or a program of TorchScript, which "
                f"are never read; export the model: "
                f"torch.export.save(torch.export.export(model, args), 'model.pt2')"
            )
