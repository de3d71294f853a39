"""Shape, Device and data types.  `to_value` is tested in test_arrays, `describe` in test_notes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Shape, cpu, device
from relaxvm.dtypes import _ml_dtype as ml_dtype
from relaxvm.dtypes import array_of, as_dtype, dtype_from_dl, dtype_name, dtype_to_dl
from relaxvm.errors import FormatError, MissingExtraError
from relaxvm.values import Device, kind_of


def test_shape_is_a_tuple_with_a_class() -> None:
    shape = Shape([2, np.int64(3)])
    assert shape == (2, 3)
    assert hash(shape) == hash((2, 3))
    assert [type(dim) for dim in shape] == [int, int]
    assert type(shape[:1]) is Shape
    assert shape[-1] == 3
    assert (repr(shape), repr(Shape())) == ("Shape(2, 3)", "Shape()")
    assert np.zeros(shape).shape == shape
    for twin in (copy.copy(shape), copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert twin == shape
        assert type(twin) is Shape


def test_shape_refuses_what_is_not_a_dimension() -> None:
    for dims in ([2.5], ["2"], [None]):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            Shape(dims)  # type: ignore[arg-type]
    assert Shape([-(1 << 63), (1 << 63) - 1])
    for dim in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match=f"dimension {dim} does not fit 64 bits"):
            Shape([dim])


def test_device() -> None:
    assert cpu() == cpu(0) == device("cpu") == device("cpu:0") == Device(1, 0)
    assert cpu(3) != cpu(0)
    assert cpu() != Device("cuda")
    assert cpu() != "cpu"
    assert {cpu(3): 1}[device("cpu:3")] == 1
    assert (cpu(2).type, cpu(2).index, cpu(2).dlpack_device_type()) == ("cpu", 2, 1)
    assert cpu(7).exist
    assert not Device("cuda").exist
    assert repr(device("cuda", 1)) == "cuda(1)"
    assert repr(Device(99)) == "device99(0)"
    assert device(cpu(1)) == cpu(1)
    assert pickle.loads(pickle.dumps(cpu(5))) == cpu(5)
    with pytest.raises(ValueError, match="unknown type 'gpu', expected one of cpu, cuda"):
        device("gpu")
    with pytest.raises(ValueError, match="expected NAME or NAME:INDEX, got 'cpu:x'"):
        device("cpu:x")


@pytest.mark.parametrize(
    ("name", "dl"),
    [
        ("int8", (0, 8, 1)), ("int64", (0, 64, 1)), ("uint16", (1, 16, 1)),
        ("float16", (2, 16, 1)), ("float64", (2, 64, 1)), ("complex64", (5, 64, 1)),
        ("bool", (6, 8, 1)),
    ],
)  # fmt: skip
def test_dtypes_and_dlpack(name: str, dl: tuple[int, int, int]) -> None:
    dtype = as_dtype(name)
    assert dtype_to_dl(dtype) == dl
    assert dtype_from_dl(*dl) is dtype  # the loop compares addresses
    assert dtype_name(dtype) == name
    assert dtype_to_dl(dtype.newbyteorder()) == dl


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu"]
)
def test_ml_dtypes_and_dlpack(name: str) -> None:
    pytest.importorskip("ml_dtypes")
    dtype = as_dtype(name)
    assert dtype_from_dl(*dtype_to_dl(dtype)) == dtype
    assert dtype_name(dtype) == name


def test_a_type_that_ml_dtypes_does_not_have_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("ml_dtypes")
    monkeypatch.delattr(module, "uint1", raising=False)
    monkeypatch.setattr(module, "__version__", "0.5.4")
    message = r"dtype uint1: needs a later version of the package ml_dtypes than 0\.5\.4"
    with pytest.raises(MissingExtraError, match=message):
        ml_dtype("uint1")


@pytest.mark.parametrize("value", [300, -1, [1, 300], [[0], [-1]], 2**64])
def test_ints_that_do_not_fit_a_data_type(value: Any) -> None:
    """numpy before 2 takes them modulo 256."""
    with pytest.raises(OverflowError):
        array_of(value, np.dtype("uint8"))
    with pytest.raises(OverflowError):
        relaxvm.ir.const(value, "uint8")
    assert array_of([0, 255], np.dtype("uint8")).tolist() == [0, 255]


@pytest.mark.parametrize("dtype", ["U3", "S3", "O", "M8[s]", "i4,f4", "V8"])
def test_dtypes_that_dlpack_does_not_know(dtype: str) -> None:
    with pytest.raises(FormatError, match="DLPack has no such type"):
        dtype_to_dl(np.dtype(dtype))


@pytest.mark.parametrize(
    "dl", [(0, 32, 4), (0, 4, 1), (0, 0, 1), (2, 8, 1), (3, 64, 1), (99, 32, 1), (6, 1, 1)]
)
def test_dlpack_types_without_a_dtype(dl: tuple[int, int, int]) -> None:
    with pytest.raises(FormatError, match=f"code {dl[0]}, bits {dl[1]}, lanes {dl[2]}"):
        dtype_from_dl(*dl)


def test_as_dtype() -> None:
    assert as_dtype(np.float32) is np.dtype("float32")
    assert as_dtype(np.dtype("int8")) is np.dtype("int8")
    with pytest.raises(TypeError, match="'float33' is not a data type"):
        as_dtype("float33")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "none"), (True, "bool"), (np.bool_(1), "bool"), (7, "int"), (1.5, "float"),
        ("s", "str"), (np.zeros(2), "tensor"), (Shape((1,)), "shape"), ((1,), "tuple"),
        ([1], "tuple"), (np.dtype("int8"), "dtype"), (cpu(), "device"), ({}, "map"),
        (len, "func"), (object(), "object"),
    ],
)  # fmt: skip
def test_kind_of(value: Any, kind: str) -> None:
    assert kind_of(value) == kind


def test_long_names_of_data_types() -> None:
    """They are refused: a name may be a list of millions of fields."""
    with pytest.raises(TypeError, match="a name of 300000 characters is not a data type"):
        as_dtype("f4," * 100_000)
    for i in range(3000):  # no name is kept for ever
        with pytest.raises(TypeError, match="is not a data type"):
            as_dtype(f"float{i}x")
