"""Maps of indices, and the layouts that results ask of blocks and operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm.analysis import suggest_layout_transforms
from relaxvm.errors import InternalError
from relaxvm.ir import Analyzer, Var
from relaxvm.ir.arith import evaluate, prove_equal, simplify
from relaxvm.op.rules import shape_text
from relaxvm.script import from_source
from relaxvm.tir import IndexMap, PrimFunc

MAPS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "moved": (lambda n, c, h: (n, h, c), (2, 3, 4), (2, 4, 3)),
    "blocked": (lambda n, c, h: (n, c // 4, h, c % 4), (2, 8, 3), (2, 2, 3, 4)),
    "joined": (lambda a, b: a * 8 + b, (4, 8), (32,)),
    "blocks of other blocks": (
        lambda C, h, c: (C * 2 + c // 4, h, c % 4), (3, 5, 8), (6, 5, 4),
    ),
    "split twice": (lambda i: (i // 12, i // 4 % 3, i % 4), (36,), (3, 3, 4)),
    "digits in another order": (lambda i: (i // 6 * 3 + i % 3, i // 3 % 2), (24,), (12, 2)),
    "an axis of length 1": (lambda a, b: (b, a), (1, 3), (3, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_bijections(name: str) -> None:
    function, shape, result = MAPS[name]
    made = IndexMap.from_func(function)
    assert [int(dim) for dim in made.map_shape(shape)] == list(result)  # type: ignore[call-overload]
    assert made.is_bijective(shape)
    array = np.arange(np.prod(shape)).reshape(shape)
    moved = made.map_tensor(array)
    assert sorted(moved.ravel().tolist()) == array.ravel().tolist()
    for place in np.ndindex(*shape):
        target = function(*place)
        assert moved[target if isinstance(target, tuple) else (target,)] == array[place]
    back = made.inverse(shape)
    np.testing.assert_array_equal(back.map_tensor(moved), array)
    assert back.inverse(result) is made


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda n, c: (n, c // 5, c % 5), (32, 64)),
        (lambda a, b: a * 8 + b, (4, 9)),
        (lambda a, b: a * 8 + b, (4, 7)),
        (lambda a, b: (a, a), (4, 4)),
        (lambda a, b: a * b, (4, 4)),
        (lambda a, b: (a,), (4, 4)),
        (lambda i: i * 2, (4,)),
        (lambda i: i // 2, (4,)),
    ],
)
def test_no_bijections(function: Any, shape: tuple[int, ...]) -> None:
    made = IndexMap.from_func(function)
    assert not made.is_bijective(shape)
    with pytest.raises(ValueError, match="is no bijection from the indices of shape"):
        made.inverse(shape)


def test_shapes_with_padding_and_of_symbols() -> None:
    made = IndexMap.from_func(lambda n, c: (n, c // 5, c % 5))
    assert [int(d) for d in made.map_shape((2, 64))] == [2, 13, 5]  # type: ignore[call-overload]
    padded = made.map_tensor(np.arange(1, 15).reshape(2, 7))
    np.testing.assert_array_equal(padded[0], [[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]])
    n = Var("n", "int64")
    moved = IndexMap.from_func(lambda a, b: (b, a))
    assert moved.map_shape([n, 4])[1] is n
    assert moved.is_bijective([n, 4])
    assert not IndexMap.from_func(lambda a: (a // 4, a % 4)).is_bijective([n])
    assert Analyzer().prove_equal(
        IndexMap.from_func(lambda a, b: a * 4 + b).map_shape([n, 4])[0], n * 4
    )


def test_other_ways_to_make_and_compare_maps() -> None:
    turned = IndexMap.from_func(lambda *i: i[::-1], ndim=3)
    assert str(turned) == "IndexMap(lambda i_0, i_1, i_2: (i_2, i_1, i_0))"
    joined = IndexMap.from_func(lambda a, b: a * 8 + b)
    assert joined.is_equivalent_to(IndexMap.from_func(lambda x, y: y + x * 8))
    assert not joined.is_equivalent_to(IndexMap.from_func(lambda x, y: y + x * 9))
    assert not joined.is_equivalent_to(turned)
    given = IndexMap.from_func(lambda i: i // 2, inverse_index_map=lambda j: j * 2)
    assert str(given.inverse([4])) == "IndexMap(lambda j: (j * 2))"
    with pytest.raises(ValueError, match=r"takes \*i: ndim is needed"):
        IndexMap.from_func(lambda *i: i)
    with pytest.raises(ValueError, match=r"takes \*\*names"):
        IndexMap.from_func(lambda **names: 0)
    with pytest.raises(TypeError, match="expected scalars from the function, got str"):
        IndexMap.from_func(lambda i: "i")
    with pytest.raises(ValueError, match="expected 2 dimensions, got 1"):
        joined.map_shape([4])


# Suggestions.  Each was compared with those of TVM 0.27.

HEAD = "@T.prim_func(private=True, s_tir=True)\ndef f({}):\n"
BLOCK = """    for {loops} in T.grid({sizes}):
        with T.sblock("b"):
            {names} = T.axis.remap("{kinds}", [{loops}])
            {store}
"""


def program(params: dict[str, Any], sizes: str, kinds: str, store: str) -> PrimFunc:
    buffers = ", ".join(f'{name}: T.Buffer({shape}, "float32")' for name, shape in params.items())
    count = len(kinds)
    names = ", ".join(f"v{k}" for k in range(count))
    loops = ", ".join(f"i{k}" for k in range(count))
    text = HEAD.format(buffers) + BLOCK.format(
        loops=loops, sizes=sizes, names=names, kinds=kinds, store=store
    )
    func: PrimFunc = from_source(text)
    return func


def suggested(func: PrimFunc, *maps: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for block, changes in suggest_layout_transforms(func, maps).items():
        for of, change in changes.items():
            name = "block" if of is block else of.name
            finals = [str(i).replace("T.int32(4)", "4") for i in change.final_indices]
            found[name] = ", ".join(finals)
    return found


def blocked(n: Any, c: Any, h: Any) -> Any:
    return n, h, c // 4, c % 4


IMAGE = (2, 8, 6)


def test_operands_in_the_order_of_the_result() -> None:
    func = program({"a": IMAGE, "b": (8, 6), "out": IMAGE}, "2, 8, 6", "SSS",
                   "out[v0, v1, v2] = a[v0, v1, v2] + b[v1, v2]")  # fmt: skip
    assert suggested(func, blocked) == {
        "block": "n, h, c // 4, c % 4",
        "out": "n, h, c // 4, c % 4",
        "a": "n, h, c // 4, c % 4",
        "b": "h, c // 4, c % 4",
    }


def test_reduced_axes_stay_where_they_are() -> None:
    func = program({"a": (2, 5, 8, 3), "out": (2, 8)}, "2, 5, 8, 3", "SRSR",
                   "out[v0, v2] = out[v0, v2] + a[v0, v1, v2, v3]")  # fmt: skip
    found = suggested(func, lambda n, c: (n, c // 4, c % 4))
    assert found["block"] == found["a"] == "n, d, c // 4, d, c % 4"


def test_windows_and_offsets() -> None:
    func = program({"a": (2, 8, 13), "out": IMAGE}, "2, 8, 6, 3", "SSSR",
                   "out[v0, v1, v2] = T.max(out[v0, v1, v2], a[v0, v1, v2 * 2 + v3])")  # fmt: skip
    assert suggested(func, lambda n, c, h: (n, h, c))["a"] == "n, h, c"


@pytest.mark.parametrize("access", ["a[v0, v2, v1]", "a[v0, v0, v2]", "a[v0, v1, T.min(v2, 3)]"])
def test_operands_without_a_suggestion(access: str) -> None:
    func = program({"a": (8, 8, 8), "out": IMAGE}, "2, 8, 6", "SSS",
                   f"out[v0, v1, v2] = {access}")  # fmt: skip
    assert list(suggested(func, blocked)) == ["block", "out"]


NONE = {
    "no map": (program({"a": (8,), "out": (8,)}, "8, 1", "SS", "out[v0] = a[v0]"), ()),
    "no bijection": (
        program({"a": (8,), "out": (8,)}, "8, 1", "SS", "out[v0] = a[v0]"),
        (lambda i: (i // 5, i % 5),),
    ),
    "a sum of variables": (
        program({"a": (4, 4), "out": (16,)}, "4, 4", "SS", "out[v0 * 4 + v1] = a[v0, v1]"),
        (lambda i: (i // 4, i % 4),),
    ),
    "a product of variables": (
        program({"a": (4, 4), "out": (16, 4)}, "4, 4", "SS", "out[v0 * v1, v1] = a[v0, v1]"),
        (lambda i, j: (j, i),),
    ),
    "nested blocks": (
        from_source("""@T.prim_func(private=True, s_tir=True)
def f(a: T.Buffer((4, 4), "float32"), out: T.Buffer((4, 4), "float32")):
    for i in range(4):
        with T.sblock("outer"):
            v = T.axis.spatial(4, i)
            for j in range(4):
                with T.sblock("inner"):
                    w = T.axis.spatial(4, j)
                    out[v, w] = a[v, w]
"""),
        (lambda i, j: (j, i),),
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_no_suggestions(name: str) -> None:
    func, maps = NONE[name]
    assert suggested(func, *maps) == {}


SHAPES = [
    (lambda i, j: (i, j // 3, j % 3), "(a, (b - b % -3) // 3, 3)", "(2, 3, 3)"),
    (lambda i, j: (j // 16, j % 16 // 4, j % 4, i), "((b - b % -16) // 16, 4, 4, a)",
     "(1, 4, 4, 2)"),
    (lambda i, j: (i * 2, j), "(a * 2, b)", "(4, 7)"),
    (lambda i, j: (i * 8 + j // 4, j % 4), "(a * 8 + (b - 1) // 4 - 7, 4)", "(10, 4)"),
]  # fmt: skip
"""Maps, and the shapes that TVM gives their results, of (a, b) and of (2, 7)."""


@pytest.mark.parametrize(("function", "symbolic", "known"), SHAPES)
def test_shapes_are_those_of_whole_tiles(function: Any, symbolic: str, known: str) -> None:
    made = IndexMap.from_func(function)
    a, b = Var("a", "int64"), Var("b", "int64")
    dims = made.map_shape([a, b])
    assert shape_text(dims) == symbolic
    assert shape_text(made.map_shape([2, 7])) == known
    for i in range(2):
        for j in range(7):
            for place, dim in zip(function(i, j), dims, strict=True):
                assert place < evaluate(dim, {a: i + 1, b: j + 1})


def test_multiples_are_simple() -> None:
    n = Var("n", "int64")
    padded: Any = n - n % -3
    assert str(simplify(padded // 3)) == "(n + 2) // 3"
    assert prove_equal(padded, (n + 2) // 3 * 3)
    assert str(simplify(n % -3)) == "n % -3"
    assert prove_equal(n, n // -3 * -3 + n % -3)


def test_mistakes() -> None:
    func = program({"a": (8,), "out": (8,)}, "8, 1", "SS", "out[v0] = a[v0]")
    with pytest.raises(InternalError, match="Incompatible PrimFunc and write_transformations"):
        suggest_layout_transforms(func, [lambda i: i] * 3)
    with pytest.raises(InternalError, match="Mismatch between output buffer shape and index map"):
        suggest_layout_transforms(func, [lambda i, j: (j, i)])
    with pytest.raises(AssertionError, match="expected an IndexMap or a function"):
        suggest_layout_transforms(func, [2])  # type: ignore[list-item]
