"""Types of operators where a shape is a variable, dimensions that can never be equal, and the
classes of operators' errors, as TVM has them."""

from __future__ import annotations

from typing import Any

import pytest

from relaxvm import op
from relaxvm.errors import InternalError, OperatorTypeError, OperatorValueError
from relaxvm.ir import ShapeType, TensorType, Var

N = Var("n", "int64")


def tensor(*dims: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorType(dims, dtype))


def shaped(ndim: int) -> Var:
    """A tensor whose shape is a variable."""
    return Var("x", TensorType(Var("s", ShapeType(ndim=ndim)), "float32"))


@pytest.mark.parametrize(
    ("made", "ndim"),
    [
        (lambda x: op.take(x, Var("i", TensorType((4,), "int64")), axis=0), 2),
        (lambda x: op.expand_dims(x, [0]), 3),
        (lambda x: op.permute_dims(x, [1, 0]), 2),
        (lambda x: op.concat([x, x], axis=0), 2),
        (lambda x: op.flatten(x), 1),
    ],
)
def test_a_shape_that_is_a_variable_leaves_the_rank(made: Any, ndim: int) -> None:
    ty = made(shaped(2)).ty
    assert (ty.shape, ty.ndim, ty.dtype) == (None, ndim, "float32")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: op.concat([tensor(N, 2), tensor(N + 2, 2)], axis=1), "relax.concat"),
        (lambda: op.matmul(tensor(3, N), tensor(N + 1, 3)), "relax.matmul"),
    ],
)
def test_dimensions_that_always_differ(made: Any, message: str) -> None:
    with pytest.raises(OperatorValueError, match=message):
        made()


def test_dimensions_that_may_be_equal_are_checked_at_run_time() -> None:
    other = Var("m", "int64")
    assert op.matmul(tensor(3, N), tensor(other, 3)).ty.dims[0].value == 3


def test_errors_of_operators_have_the_classes_of_tvm_and_of_python() -> None:
    with pytest.raises(OperatorTypeError) as wrong_type:
        op.add(tensor(2), "text")
    with pytest.raises(OperatorValueError) as wrong_value:
        op.permute_dims(tensor(2, 3), [0, 0])
    assert isinstance(wrong_type.value, InternalError)
    assert isinstance(wrong_type.value, TypeError)
    assert isinstance(wrong_value.value, InternalError)
    assert isinstance(wrong_value.value, ValueError)
