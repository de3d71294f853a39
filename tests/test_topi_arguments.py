"""Arguments of `topi` that do not fit: an error that names the function, in bounded time."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from relaxvm import te
from relaxvm.errors import RelaxVMError
from relaxvm.ir import Var
from relaxvm.te import topi

OPERATORS = {
    **{name: getattr(topi, name) for name in topi.__all__ if name != "nn"},
    **{f"nn.{name}": getattr(topi.nn, name) for name in topi.nn.__all__},
}
ERRORS = (TypeError, ValueError, OverflowError, NotImplementedError, RelaxVMError)
"""NotImplementedError: what TVM has and relaxvm says it has not.  OverflowError: a number that does
not fit a data type."""
DTYPES = ("float32", "float64", "int32", "int64", "bool", "uint8", "float16", "bfloat16", "int4")


A = te.placeholder((3, 4), "float32", "a")
S = te.placeholder((), "int32", "s")
E = te.placeholder((0,), "float32", "e")


def tensor(rng: random.Random) -> te.Tensor:
    dims = [rng.choice((0, 1, 2, 3, 4, 4, 8, 1 << 33)) for _ in range(rng.randrange(6))]
    if rng.random() < 0.1 and dims:
        dims[0] = Var("n", "int64")  # type: ignore[call-overload]
    return te.placeholder(dims, rng.choice(DTYPES), "x")


def argument(parameter: inspect.Parameter, rng: random.Random) -> Any:
    """An argument, most of the time one of the right type."""
    kind = str(parameter.annotation)
    if rng.random() < 0.8:
        if kind.startswith("Tensor"):
            return tensor(rng)
        if kind.startswith("Sequence[Tensor]"):
            return [tensor(rng) for _ in range(rng.randrange(4))]
        if "dtype" in parameter.name:
            return rng.choice((*DTYPES, "nonsense"))
    return rng.choice((
        0, 1, 2, 3, -1, -9, 1 << 33, 1 << 70, 0.5, float("nan"), None, True, (1, 1), (2, 2),
        (0, 0), (0, -1), (1, 1, 1, 1), [2, 3], [], "NCHW", "x", [tensor(rng)], tensor(rng),
        tensor(rng), (1 << 31, 3), A[0], A[0, 0], object(),
    ))  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_hostile_arguments(name: str) -> None:
    rng = random.Random(name)
    function = OPERATORS[name]
    parameters = [p for p in inspect.signature(function).parameters.values()
                  if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]  # fmt: skip
    for _ in range(40):
        given = {p.name: argument(p, rng) for p in parameters
                 if p.default is p.empty or rng.random() < 0.5}  # fmt: skip
        try:
            function(**given)
        except ERRORS as error:
            text = "\n".join((str(error), *getattr(error, "__notes__", ())))
            assert name.rpartition(".")[2] in text, (given, text)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a tensor": (lambda: topi.flip(3), TypeError, "topi.flip: a: expected a te.Tensor, got int 3"),
    "a list of tensors": (
        lambda: topi.stack([A, 3]), TypeError, r"topi.stack: tensors[1]: expected a te.Tensor",
    ),
    "tensors": (lambda: topi.concatenate(A), TypeError, "a_tuple: expected a list of te.Tensor"),
    "no tensors": (lambda: topi.elemwise_sum([]), ValueError, "xs: expected at least one"),
    "a text": (
        lambda: topi.eye(3, dtype=None), TypeError, "topi.eye: dtype: expected a str, got None",
    ),
    "an integer": (lambda: topi.flip(A, 0.5), TypeError, "topi.flip: axis: expected an integer"),
    "a shape": (
        lambda: topi.dyn_tile(A, A, 2), TypeError, "topi.dyn_tile: new_shape: expected a list of",
    ),
    "an axis of a list": (
        lambda: topi.squeeze(A, ["x"]), TypeError, "squeeze: axis: expected an integer, got str",
    ),
    "an axis of a scalar": (
        lambda: topi.gather(S, 0, S), ValueError, "gather: axis 0 of a tensor of 0 dimensions",
    ),
    "a batch axis": (
        lambda: topi.reverse_sequence(A, S, 1, 7), ValueError, "batch_axis: axis 7 of a tensor",
    ),
    "matrices": (lambda: topi.matmul(A, S), ValueError, "matmul: expected two matrices"),
    "coordinates": (lambda: topi.gather_nd(A, S), ValueError, "gather_nd: expected indices whose"),
    "places": (lambda: topi.scatter_nd(A, S, A), ValueError, "scatter_nd: indices: expected"),
    "updates": (lambda: topi.scatter_nd(A, A, S), ValueError, "scatter_nd: indices: expected at"),
    "a vector": (lambda: topi.unravel_index(A, S), ValueError, "shape: expected a vector"),
    "numbers": (lambda: topi.const_vector([]), ValueError, "const_vector: vector: expected"),
    "ranks": (lambda: topi.stack([A, S]), ValueError, "stack: tensors[1]: expected the rank of"),
    "axes": (lambda: topi.tensordot(A, A, 1 << 33), ValueError, "tensordot: axes: expected 0 to 2"),
    "new axes": (
        lambda: topi.expand_dims(A, 0, 1 << 33), ValueError, "num_newaxis: expected 0 to 65535",
    ),
    "parts": (lambda: topi.split(E, 1 << 33), ValueError, "split: 8589934592 parts, more than"),
    "blocks": (
        lambda: topi.nn.space_to_batch_nd(A, [2, 2], [0, 0], [0, 0]), ValueError,
        "space_to_batch_nd: block_shape: expected a size of at least 1 for some of the axes",
    ),
    "crops": (
        lambda: topi.nn.batch_to_space_nd(A, [2], [0, 0], [0]), ValueError, "got 2 and 1",
    ),
    "a kernel": (
        lambda: topi.nn.depthwise_conv2d_nhwc(A, A, 1, 0, 1), ValueError, "Filter: expected 4",
    ),
    "bool": (lambda: topi.sign(te.placeholder((2,), "bool")), TypeError, "sign: x: expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, kind, message = REFUSED[name]
    with pytest.raises(kind, match=re.escape(message)):
        make()


def test_a_note_names_the_function() -> None:
    with pytest.raises(OverflowError, match="does not fit uint8") as caught:
        topi.full_like(te.placeholder((2,), "uint8"), -1)
    assert caught.value.__notes__ == ["in topi.full_like"]


def test_tensors_are_not_iterated_without_end() -> None:
    for each in (A, A[0]):
        with pytest.raises(TypeError, match="not iterable"):
            list(each)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        assert 3 in A  # type: ignore[operator]
