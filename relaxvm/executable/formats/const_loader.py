"""The content of TVM's module ``const_loader``: constants for code made by external compilers.

::

    u64 count, string each          names of constants
    u64 count, tensor each          the constants
    u64 count, string each          functions
    u64 count, each: u64 count, string each     the constants of each function, by name

Source: ``ConstLoaderModuleObj`` of TVM.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ...errors import FormatError
from ...limits import Limits
from ._constants import load_tensor
from ._fields import U64, Reader
from ._streams import BufferStream

__all__ = ["load_constants"]


def load_constants(
    data: bytes | memoryview, limits: Limits, name: str = "<bytes>"
) -> dict[str, list[NDArray[Any]]]:
    """Read the constants of each function, in order.

    Args:
        data: the content of the module.
        limits: bounds on the content.
        name: the subject of error messages.

    Raises:
        FormatError: the content is not well-formed.
        LimitError: the content exceeds `limits`.
    """
    read = Reader(BufferStream(memoryview(data), False), name, limits)
    try:
        read.section = "names of constants"
        names = _strings(read)
        read.section = "constants"
        tensors = [load_tensor(read) for _ in read.entries("constant", read.count(U64.size))]
        read.section = "functions"
        functions = _strings(read)
        used = [_strings(read) for _ in read.entries("function", read.count(U64.size))]
        if len(names) != len(tensors) or len(functions) != len(used):
            raise FormatError("the numbers of names and constants differ")
        if read.left:
            raise FormatError(f"{read.left} bytes follow its end")
        known = dict(zip(names, tensors, strict=True))
        missing = [name for constants in used for name in constants if name not in known]
        if missing:
            raise FormatError(f"constant {missing[0]!r} does not exist")
    except FormatError as error:
        raise FormatError(f"{name}: bad const_loader: {read.place}: {error}") from None
    return {
        function: [known[name] for name in constants]
        for function, constants in zip(functions, used, strict=True)
    }


def _strings(read: Reader) -> list[str]:
    return [read.name_of(read.count(1)) for _ in range(read.count(U64.size))]
