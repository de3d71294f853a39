"""OrtValue and OrtDevice: values of models that a program keeps.

Source: ``OrtValue``, ``OrtValueVector`` and ``OrtDevice`` of onnxruntime 1.32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .element_types import dtype_of_code, element_of, element_type, type_of_dtype

__all__ = ["OrtDevice", "OrtValue", "OrtValueVector", "check_device", "dtype_of_element"]

_KNOWN: Final = {
    "cpu": 0, "cuda": 1, "npu": 2, "fpga": 3, "dml": 1, "webgpu": 1, "cann": 2, "gpu": 1,
}  # fmt: skip


def check_device(name: str) -> None:
    """Check that a device is the CPU.

    Raises:
        RuntimeError: it is another device.
        Exception: there is no such device.
    """
    if name.lower() not in _KNOWN:
        raise Exception(f"Unsupported device type: {name}")
    if name.lower() != "cpu":
        raise RuntimeError(
            "Can't allocate memory on the device using this package of OnnxRuntime. relaxvm runs "
            f"on the CPU: expected the device 'cpu', got {name!r}"
        )


def dtype_of_element(kind: Any) -> np.dtype[Any]:
    """The dtype of an element type: a number of ONNX, or what ``numpy.dtype`` takes.

    Raises:
        RuntimeError: there is no such number.
    """
    try:
        return dtype_of_code(kind) if isinstance(kind, int) else np.dtype(kind)
    except ValueError:
        raise RuntimeError(f"tensor type {kind} is not supported") from None


class OrtDevice:
    """A device; there is the CPU alone."""

    def __init__(self, name: str = "cpu", index: int = 0) -> None:
        check_device(name)
        self._index = index

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return the device of a name."""
        return OrtDevice(ort_device_name, device_id)

    @staticmethod
    def cpu() -> int:
        """The number of this kind of device."""
        return 0

    @staticmethod
    def default_memory() -> int:
        """The number of this kind of memory."""
        return 0

    def device_id(self) -> int:
        return self._index

    def device_type(self) -> int:
        return 0

    def device_mem_type(self) -> int:
        return 0

    def device_vendor_id(self) -> int:
        return 0

    def _get_c_device(self) -> OrtDevice:
        return self


class OrtValue:
    """A value: an array, or a list of arrays.

    It is over the memory of the array that it was made of.
    """

    __slots__ = ("_ort_payload",)

    def __init__(self, value: Any) -> None:
        self._ort_payload = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: NDArray[Any], /, device_type: str = "cpu", device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:  # fmt: skip
        """Return a value over the memory of an array.

        Raises:
            RuntimeError: it is no array, or one of strings; or the device is not the CPU.
        """
        check_device(device_type)
        is_array = isinstance(numpy_obj, np.ndarray)
        if not is_array or element_of(numpy_obj.dtype) in (None, "string"):
            raise RuntimeError(
                "Creation of OrtValues is currently only supported from non-string numpy arrays"
            )
        if numpy_obj.flags.c_contiguous and numpy_obj.dtype.isnative:
            return cls(numpy_obj)
        return cls(np.ascontiguousarray(numpy_obj, numpy_obj.dtype.newbyteorder("=")))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: NDArray[Any], /, onnx_element_type: int
    ) -> OrtValue:
        """Return a value over the memory of an array whose bits are elements of another type."""
        dtype = dtype_of_element(onnx_element_type)
        if data.dtype.itemsize != dtype.itemsize:
            raise RuntimeError(f"expected elements of {dtype.itemsize} bytes, got {data.dtype}")
        return cls(data.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0,
        vendor_id: int = -1, memory_info: Any = None,
    ) -> OrtValue:  # fmt: skip
        """Return a value with a new array, whose elements are not set.

        Args:
            shape: its shape.
            element_type: a dtype, or a number of ONNX.

        Raises:
            RuntimeError: there are no elements of this type, or they are strings.
        """
        check_device(device_type)
        dtype = dtype_of_element(element_type)
        if element_of(dtype) in (None, "string"):
            raise RuntimeError(
                "Creation of OrtValues is currently only supported from non-string numpy arrays"
            )
        return cls(np.empty(tuple(shape), dtype))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """Return a value that is a `SparseTensor`; no run takes it."""
        return cls(sparse_tensor)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Return a value over the memory of a tensor of another package, on the CPU."""
        return cls(np.from_dlpack(data))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        # numpy 1 has no such argument of asarray: it copies only where the data type changes.
        if copy is None:
            return np.asarray(self._array, dtype)
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self._array.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._array.__dlpack_device__()
        return device

    def as_sparse_tensor(self) -> Any:
        """The `SparseTensor`.

        Raises:
            RuntimeError: it is another value.
        """
        if not self.is_sparse_tensor():
            raise RuntimeError("This OrtValue does not contain a sparse tensor")
        return self._ort_payload

    @property
    def _array(self) -> NDArray[Any]:
        if not isinstance(self._ort_payload, np.ndarray):
            raise RuntimeError("Only OrtValues that are Tensors are currently supported")
        return self._ort_payload

    def _get_c_value(self) -> OrtValue:
        return self

    def numpy(self) -> NDArray[Any]:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        """The dimensions."""
        if self.is_sparse_tensor():
            return list(self._ort_payload.dense_shape())
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type: ``tensor(float)``, for example."""
        value = self._ort_payload
        if isinstance(value, list):
            inner = value[0].dtype if value else np.dtype(np.float32)
            return f"seq({type_of_dtype(inner)})"
        if self.is_sparse_tensor():
            return str(value.data_type())
        return type_of_dtype(self._array.dtype) or ""

    def element_type(self) -> int:
        """The number in ONNX of the type of the elements."""
        return element_type(self.data_type().removeprefix("sparse_"))

    def device_name(self) -> str:
        """The kind of device."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the elements."""
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        """Whether there is a value; an optional output may have none."""
        return self._ort_payload is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self._ort_payload, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return hasattr(self._ort_payload, "dense_shape")

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._ort_payload, list)

    def update_inplace(self, data: Any) -> None:
        """Copy an array, or another value, into the memory of this one.

        Raises:
            TypeError: it is neither.
            RuntimeError: it has another number of elements.
            ValueError: it has another data type.
        """
        if not isinstance(data, (np.ndarray, OrtValue)):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        new = data._array if isinstance(data, OrtValue) else np.asarray(data)
        if new.size != self._array.size:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue."
            )
        if new.dtype != self._array.dtype:
            raise ValueError(
                f"update_inplace: expected elements of {self._array.dtype}, got {new.dtype}"
            )
        np.copyto(self._array, new.reshape(self._array.shape))


class OrtValueVector(list[OrtValue]):
    """A list of values, with the names of the vector of onnxruntime."""

    def push_back(self, value: Any) -> None:
        """Add a value, or a tensor of another package by DLPack."""
        self.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value))

    def reserve(self, count: int) -> None:
        """Accepted: a list grows by itself."""

    def shrink_to_fit(self) -> None:
        """Accepted."""

    def element_type_at(self, idx: int) -> int:
        """The number in ONNX of the elements of a value."""
        return self[idx].element_type()

    def dlpack_at(self, idx: int) -> Any:
        """A value as a capsule of DLPack."""
        return self[idx].__dlpack__()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None = None) -> list[Any]:
        """All values as capsules of DLPack, or what a function makes of these."""
        capsules = [value.__dlpack__() for value in self]
        return capsules if to_tensor is None else [to_tensor(each) for each in capsules]
