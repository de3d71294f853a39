"""Arrays in ``.npy`` and ``.npz`` files, including the types of ml_dtypes.

numpy writes a bfloat16 array as raw bytes, without its type.  So such an array is stored as
unsigned integers of the same width, and its key ends in the type: ``x@bfloat16``.
"""

from __future__ import annotations

import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import as_dtype
from .exits import CommandError, Exit, read_error, write_error

__all__ = ["ArrayFile", "open_arrays", "replacing", "write_npz"]

_TYPE_MARK: Final = "@"
_MAGICS: Final = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of files with arrays; the last one is that of an empty archive."""
_LONGEST_MAGIC: Final = 6


class ArrayFile:
    """The arrays of a file by key; each is read on demand.

    A ``.npy`` file has one array, with the key None.
    """

    def __init__(self, name: str, arrays: Any) -> None:
        self.name = name
        self._arrays = arrays
        self._stored: dict[str | None, Any] = {}
        if isinstance(arrays, np.lib.npyio.NpzFile):
            for key in arrays.files:
                self._stored[key.partition(_TYPE_MARK)[0]] = key
        else:
            self._stored[None] = None

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._stored)

    def read(self, key: str | None) -> NDArray[Any]:
        """Read the array with a key.

        Raises:
            CommandError: it cannot be read.
        """
        stored = self._stored[key]
        if stored is None:
            return np.asarray(self._arrays)
        with _reading(f"{self.name}[{key}]"):
            array: NDArray[Any] = self._arrays[stored]
            _, mark, dtype = stored.partition(_TYPE_MARK)
            return array.view(as_dtype(dtype)) if mark else array


@contextmanager
def open_arrays(name: str) -> Iterator[ArrayFile]:
    """Open a ``.npy`` or ``.npz`` file.  Pickled objects are refused.

    Raises:
        CommandError: the file cannot be read, or has another format.
    """
    with _reading(name):
        with open(name, "rb") as file:
            head = file.read(_LONGEST_MAGIC)
        if not head.startswith(_MAGICS):
            raise ValueError(f"the file begins with {head!r}")
        arrays = np.load(name, allow_pickle=False)
    try:
        yield ArrayFile(name, arrays)
    finally:
        if isinstance(arrays, np.lib.npyio.NpzFile):
            arrays.close()


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise read_error(name, error) from error
    except (ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        # numpy's message recommends to unpickle the file.
        reason = "it holds Python objects" if "allow_pickle" in str(error) else error
        message = f"{name}: expected arrays in .npy or .npz form: {reason}"
        raise CommandError(message, Exit.MALFORMED) from error


def write_npz(name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under their keys; the same arrays give the same bytes.

    Raises:
        CommandError: the file cannot be written, or numpy's format cannot hold an array.
    """
    with replacing(name) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for key, array in arrays.items():
            if array.dtype.hasobject:
                raise CommandError(f"{name}: {key} holds Python objects, which are not stored")
            if array.dtype.type.__module__ != "numpy":
                key = f"{key}{_TYPE_MARK}{array.dtype.name}"
                array = array.view(np.dtype(f"u{array.dtype.itemsize}"))
            # The default date of ZipInfo is fixed, so equal arrays give equal bytes.
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@contextmanager
def replacing(name: str) -> Iterator[IO[bytes]]:
    """Open a file to write that appears under its name only if the block ends without an exception.

    Raises:
        CommandError: the file cannot be written.
    """
    path = Path(name)
    if path.exists() and not path.is_file():
        # A device or a pipe is written to directly.
        with _writing(name), path.open("wb") as stream:
            yield stream
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with _writing(name):
            with temporary.open("xb") as file:
                yield file
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(name, error) from error
