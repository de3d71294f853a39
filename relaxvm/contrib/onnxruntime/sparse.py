"""SparseTensor: the elements of a tensor that are not zero, and their places.

Models take and return dense tensors; a program may keep these and look at them.

Source: ``SparseTensor`` of onnxruntime 1.32.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .element_types import element_of
from .memory import OrtSparseFormat

__all__ = ["SparseBlockSparseView", "SparseCooView", "SparseCsrView", "SparseTensor"]


class SparseCooView:
    """The places of elements: numbers in the flat tensor, or pairs of row and column."""

    def __init__(self, indices: NDArray[np.int64]) -> None:
        self._indices = indices

    def indices(self) -> NDArray[np.int64]:
        """The places."""
        return self._indices


class SparseCsrView:
    """The columns of elements, and where rows begin among them."""

    def __init__(self, inner: NDArray[np.int64], outer: NDArray[np.int64]) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> NDArray[np.int64]:
        """The column of each element."""
        return self._inner

    def outer(self) -> NDArray[np.int64]:
        """For each row, and for the end, the number of elements before it."""
        return self._outer


class SparseBlockSparseView:
    """The places of blocks.  No tensor made here has any."""


class SparseTensor:
    """A tensor by the elements that are not zero; made by the two class methods."""

    def __init__(
        self, shape: NDArray[np.int64], values: NDArray[Any], view: SparseCooView | SparseCsrView
    ) -> None:
        self._shape, self._values, self._view = shape, values, view

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: ArrayLike, values: NDArray[Any], coo_indices: NDArray[np.int64],
        ort_device: Any,
    ) -> SparseTensor:  # fmt: skip
        """Return a tensor by the places of its elements.

        Args:
            dense_shape: its shape.
            values: its elements, an array of one axis.
            coo_indices: the places, int64: numbers in the flat tensor, or pairs of row and column.
            ort_device: the CPU.

        Raises:
            RuntimeError: there is another number of places, or one is not in the tensor.
        """
        shape, elements = _checked(dense_shape, values)
        indices = np.asarray(coo_indices, np.int64)
        if indices.size not in (len(elements), 2 * len(elements)):
            raise RuntimeError(
                f"Index size: {indices.size} must be equal to or twice the values size: "
                f"{len(elements)}"
            )
        pairs = indices.size != len(elements)
        bounds = shape if pairs and len(shape) == 2 else [int(np.prod(shape))]
        places = indices.reshape(-1, len(bounds)) if len(elements) else indices.reshape(0, 1)
        if ((places < 0) | (places >= bounds)).any():
            raise RuntimeError(f"Index out of bounds of the dense shape {shape.tolist()}")
        return cls(shape, elements, SparseCooView(indices.reshape(-1, 2) if pairs else indices))

    @classmethod
    def sparse_csr_from_numpy(
        cls, dense_shape: ArrayLike, values: NDArray[Any], inner_indices: NDArray[np.int64],
        outer_indices: NDArray[np.int64], ort_device: Any,
    ) -> SparseTensor:  # fmt: skip
        """Return a matrix by rows.

        Args:
            dense_shape: rows and columns.
            values: the elements, an array of one axis.
            inner_indices: the column of each, int64.
            outer_indices: for each row, and for the end, the number of elements before it.
            ort_device: the CPU.

        Raises:
            RuntimeError: the numbers do not fit each other.
        """
        shape, elements = _checked(dense_shape, values)
        inner, outer = (np.asarray(each, np.int64) for each in (inner_indices, outer_indices))
        if len(shape) != 2 or inner.shape != elements.shape or outer.shape != (shape[0] + 1,):
            raise RuntimeError(
                f"expected a matrix, a column for each of {len(elements)} elements, and a start "
                f"for each row and the end, got the shape {shape.tolist()}, {inner.size} columns "
                f"and {outer.size} starts"
            )
        ends = np.concatenate([[0], outer, [len(elements)]])
        if outer[0] or outer[-1] != len(elements) or (np.diff(ends) < 0).any():
            raise RuntimeError(f"outer_indices: expected growing numbers up to {len(elements)}")
        if ((inner < 0) | (inner >= shape[1])).any():
            raise RuntimeError(f"inner_indices: expected columns below {shape[1]}")
        return cls(shape, elements, SparseCsrView(inner, outer))

    def values(self) -> NDArray[Any]:
        """The elements."""
        return self._values

    def as_coo_view(self) -> SparseCooView:
        """The places of elements.

        Raises:
            RuntimeError: it is a tensor by rows.
        """
        if not isinstance(self._view, SparseCooView):
            raise RuntimeError("This sparse tensor does not contain COO format")
        return self._view

    def as_csrc_view(self) -> SparseCsrView:
        """The columns of elements, and the starts of rows.

        Raises:
            RuntimeError: it is a tensor by places.
        """
        if not isinstance(self._view, SparseCsrView):
            raise RuntimeError("This sparse tensor does not contain CSR(C) format")
        return self._view

    def as_blocksparse_view(self) -> NoReturn:
        """Refused: there are no blocks."""
        raise RuntimeError("This sparse tensor does not contain BlockSparse format")

    def to_cuda(self, ort_device: Any) -> NoReturn:
        """Refused: there is the CPU alone."""
        raise RuntimeError("Cuda is not available in this build")

    def format(self) -> OrtSparseFormat:
        """How the places are given."""
        if isinstance(self._view, SparseCooView):
            return OrtSparseFormat.ORT_SPARSE_COO
        return OrtSparseFormat.ORT_SPARSE_CSRC

    def dense_shape(self) -> list[int]:
        """The shape."""
        return [int(dim) for dim in self._shape]

    def data_type(self) -> str:
        """The type: ``sparse_tensor(float)``, for example."""
        return f"sparse_tensor({element_of(self._values.dtype)})"

    def device_name(self) -> str:
        """The kind of device."""
        return "cpu"


def _checked(shape: ArrayLike, values: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    dims, elements = np.asarray(shape, np.int64), np.asarray(values)
    if dims.ndim != 1 or (dims < 0).any():
        raise RuntimeError(f"dense_shape: expected lengths of axes, got {shape!r}")
    if elements.ndim != 1 or element_of(elements.dtype) is None:
        raise RuntimeError(f"values: expected an array with one axis, got {elements.dtype}"
                           f"{list(elements.shape)}")  # fmt: skip
    return dims, elements
