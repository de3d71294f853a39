"""Files of parameters, and conversions of values, by TVM's names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from ...frontend.relay.params import read_params, save_params
from .runtime import Tensor, from_tvm, tensor, to_tvm

__all__ = [
    "DataTypeCode",
    "convert",
    "load_param_dict",
    "load_param_dict_from_file",
    "save_param_dict",
    "save_param_dict_to_file",
]


class DataTypeCode(IntEnum):
    """Kinds of data types in DLPack."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    BOOL = 6


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """Return a file of parameters as bytes.

    Raises:
        FormatError: the format has no data type of one.
    """
    return bytearray(save_params({name: from_tvm(value) for name, value in params.items()}))


def load_param_dict(param_bytes: bytes | bytearray | str) -> dict[str, Tensor]:
    """Read a file of parameters from its bytes.

    Raises:
        FormatError: it is malformed.
    """
    data = param_bytes.encode("latin-1") if isinstance(param_bytes, str) else bytes(param_bytes)
    return {name: Tensor(array) for name, array in read_params(data).items()}


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a file of parameters."""
    with open(path, "wb") as file:
        file.write(save_param_dict(params))


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a file of parameters.

    Raises:
        OSError: it cannot be read.
        FormatError: it is malformed.
    """
    return {name: Tensor(array) for name, array in read_params(path).items()}


def convert(value: Any) -> Any:
    """Return a value as functions of TVM get it: an array as a tensor, the rest as it is."""
    return tensor(value) if isinstance(value, np.ndarray) else to_tvm(value)
