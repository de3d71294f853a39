"""``R.layout_transform``: types, text, JSON, and results, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, op
from relaxvm.ir import (
    BlockBuilder,
    IRModule,
    TensorType,
    Var,
    load_json,
    save_json,
    structural_equal,
)
from relaxvm.ir.index_map import IndexMap
from relaxvm.script import from_source


def program(shape: Any, index_map: Any, dtype: str = "float32", **options: Any) -> IRModule:
    builder = BlockBuilder()
    x = Var("x", TensorType(shape, dtype))
    with builder.function("main", [x]):
        result = builder.emit(op.layout_transform(x, index_map, **options))
        builder.emit_func_output(result)
    return builder.get()


def moved(x: np.ndarray[Any, Any], index_map: Callable[..., Any], fill: float) -> Any:
    """What the operator does, element by element."""
    places = {at: index_map(*at) for at in np.ndindex(*x.shape)}
    places = {at: to if isinstance(to, tuple) else (to,) for at, to in places.items()}
    shape = np.max(list(places.values()), axis=0) + 1
    full = IndexMap.from_func(index_map, ndim=x.ndim).map_shape(x.shape)
    result = np.full([int(dim) for dim in full], fill, x.dtype)  # type: ignore[call-overload]
    assert all(np.less_equal(shape, result.shape))
    for at, to in places.items():
        result[to] = x[at]
    return result


CASES: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "order": ((2, 3, 4), lambda a, b, c: (c, a, b)),
    "blocks": ((2, 8), lambda a, b: (a, b // 4, b % 4)),
    "blocks that do not fit": ((2, 7, 3), lambda a, b, c: (a, c, b // 4, b % 4)),
    "both axes": ((5, 7), lambda a, b: (a // 2, b // 3, a % 2, b % 3)),
    "flat": ((2, 3, 4), lambda a, b, c: a * 12 + b * 4 + c),
    "digits of digits": ((24,), lambda a: (a // 12, a // 3 % 4, a % 3)),
    "with holes": ((3, 4), lambda a, b: (a * 2, b)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fill", [None, 7])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_elements_go_where_the_map_says(name: str, fill: int | None, dtype: str) -> None:
    shape, index_map = CASES[name]
    x = np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)
    mod = program(shape, index_map, dtype, pad_value=fill)
    expected = moved(x, index_map, fill or 0)
    found = VirtualMachine(relaxvm.build(mod))["main"](x)
    np.testing.assert_array_equal(found, expected)
    assert mod["main"].ret_ty.shape.values == expected.shape


def test_shapes_of_the_run() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        gv = R.layout_transform(
            x, T.index_map(lambda i, j: (j // 4, i, j % 4)), pad_value=T.float32(-1)
        )
        return gv
"""
    vm = VirtualMachine(relaxvm.build(from_source(text)))
    for shape in ((2, 8), (3, 5), (1, 4)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        expected = moved(x, lambda i, j: (j // 4, i, j % 4), -1)
        np.testing.assert_array_equal(vm["main"](x), expected)


def test_maps_are_printed_and_saved() -> None:
    inverse = IndexMap.from_func(lambda i, j: (i, j), inverse_index_map=lambda i, j: (i, j))
    for index_map in (lambda a, b: (a, b // 3, b % 3), lambda a, b: a * 20 + b, inverse):
        mod = program((10, 20), index_map, pad_value=2)
        text = mod.script()
        assert "T.index_map(lambda" in text
        assert structural_equal(from_source(text), mod)
        assert structural_equal(load_json(save_json(mod)), mod)
        assert relaxvm.ir.structural_hash(load_json(save_json(mod))) == (
            relaxvm.ir.structural_hash(mod)
        )
    assert not structural_equal(
        program((4, 4), lambda a, b: (a, b)), program((4, 4), lambda a, b: (b, a))
    )


def test_shapes_that_are_not_known_have_a_rank() -> None:
    x = Var("x", TensorType(None, "float32", ndim=2))
    call = op.layout_transform(x, lambda a, b: (a, b // 2, b % 2))
    assert str(call.ty) == 'R.Tensor(dtype="float32", ndim=3)'


@pytest.mark.parametrize(
    ("index_map", "options", "kind", "message"),
    [
        (lambda a: a, {}, ValueError, r"index_map: expected one for 2 dimensions"),
        (lambda a, b: (a, b), {"pad_value": 2.5}, TypeError, r"pad_value: expected a number of ty"),
        (lambda a, b: (a - b,), {}, ValueError, r"index_map: .*greatest value of a - b"),
        (3, {}, TypeError, r"index_map: expected a function, got int 3"),
    ],
)
def test_what_is_refused(index_map: Any, options: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=rf"relax\.layout_transform: {message}"):
        program((4, 4), index_map, "int32", **options)
