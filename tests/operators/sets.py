"""Cases of operators whose results have as many elements as the run finds."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import cases


def nonzero_places(x: Any) -> Any:
    x = x.reshape(1) if not x.ndim else x
    found = [index for index in np.ndindex(x.shape) if x[index] != 0]
    return np.array(found, object).reshape(-1, x.ndim).T


def distinct(
    x: Any, is_sorted: Any, index: Any, inverse: Any, counts: Any, axis: int | None = None
) -> Any:
    parts = [x[i] for i in np.ndindex(x.shape)] if axis is None else [*np.moveaxis(x, axis, 0)]
    keys = [tuple(np.asarray(part).reshape(-1).tolist()) for part in parts]
    order = sorted(set(keys)) if is_sorted else [*dict.fromkeys(keys)]
    chosen = np.array([parts[keys.index(key)] for key in order])
    values = chosen if axis is None else np.moveaxis(chosen, 0, axis)
    found = [
        [keys.index(key) for key in order],
        [order.index(key) for key in keys],
        [keys.count(key) for key in order],
    ]
    wanted = [each for each, flag in zip(found, (index, inverse, counts), strict=True) if flag]
    return (values, *[np.array(each, object) for each in wanted]) if wanted else values


cases(
    "nonzero",
    """
nonzero(f(n, m)) | R.Tensor(dtype="int64", ndim=2)
nonzero(tensor()) | R.Tensor(dtype="int64", ndim=2)
""",
    """
nonzero(shape(3)) | TypeError: relax.nonzero: x: expected a tensor
""",
    """
nonzero(b(3, 4))
nonzero(x(7))
nonzero(x(2, 3, 4))
nonzero(b())
nonzero(x(0, 3))
""",
    reference=nonzero_places,
    dtypes="fiju",
    within=(-1, 2),
)
cases(
    "unique",
    """
unique(f(n, m)) | R.Tensor(dtype="float32", ndim=1)
unique(f(n, m), axis=-1) | R.Tensor(dtype="float32", ndim=2)
unique(i(n), False, True, False, True) | R.Tuple(R.Tensor(dtype="int64", ndim=1),
    R.Tensor(dtype="int64", ndim=1), R.Tensor(dtype="int64", ndim=1))
unique(tensor(), True, True, True, True, 0) | R.Tuple(R.Tensor(dtype="float32"),
    R.Tensor(dtype="int64", ndim=1), R.Tensor(dtype="int64", ndim=1),
    R.Tensor(dtype="int64", ndim=1))
""",
    """
unique(f(n, m), axis=2) | ValueError: relax.unique: axis: expected an axis in -2 to 1, got 2
unique(f(n, m), n) | TypeError: relax.unique: sorted: expected a known bool, got n
unique(f(n, m), axis=n) | ValueError: relax.unique: axis: expected a known integer, got n
""",
    """
unique(x(7))
unique(x(3, 4), False)
unique(x(3, 4), True, True, True, True)
unique(x(3, 4), False, True, True, True)
unique(i(5, 2), True, False, True, False, 0)
unique(i(2, 5), False, True, True, True, 1)
unique(x(4, 3), axis=0)
unique(x(0))
""",
    reference=distinct,
    dtypes="fdiju",
    within=(-1, 2),
)
