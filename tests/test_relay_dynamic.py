"""Relay programs with ``?`` dimensions, and programs as Relay printed or people wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relaxvm
from relaxvm.errors import ParseError
from relaxvm.frontend.relay import from_text, to_text

VERSION = '#[version = "0.0.5"]\n'


def run(text: str, *args: Any) -> Any:
    return relaxvm.VirtualMachine(relaxvm.build(from_text(text)))["main"](*args)


def tensor(*shape: int, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def typed(dims: str) -> str:
    return f"Tensor[({dims},), float32]"


def function(body: str, **params: str) -> str:
    listed = ", ".join(f"%{name}: {ty}" for name, ty in params.items())
    return f"def @main({listed}) {{ {body} }}"


X, Y = tensor(3, 2), tensor(3, 4, seed=1)


# Operators whose operands must have equal dimensions


@pytest.mark.parametrize(
    ("body", "types", "args", "expected"),
    [
        ("concatenate((%x, %y), axis=1)", ["?, ?", "?, ?"], [X, Y], np.concatenate([X, Y], 1)),
        ("concatenate((%x, %y), axis=-2)", ["?, ?", "?, 2"], [X, X], np.concatenate([X, X])),
        ("stack((%x, %y, %x))", ["?, ?", "3, ?"], [X, X], np.stack([X, X, X])),
        ("nn.batch_matmul(%x, %y)", ["?, ?, ?", "?, ?, ?"], [X[None], Y[None, :, :2]],
         (X @ Y[:, :2].T)[None]),
        ("nn.batch_matmul(%x, %y)", ["?, ?, ?", "1, ?, ?"], [tensor(2, 3, 2), X[None]],
         tensor(2, 3, 2) @ X.T),
        ("nn.layer_norm(%x, %y, %y)", ["?, ?", "?"], [Y, np.ones(4, np.float32)],
         (Y - Y.mean(1, keepdims=True)) / np.sqrt(Y.var(1, keepdims=True) + 1e-5) + 1),
        ("nn.batch_norm(%x, %y, %y, %y, %y).0", ["?, ?", "?"], [X, np.ones(2, np.float32)],
         (X - 1) / np.sqrt(1 + 1e-5) + 1),
        ("nn.instance_norm(%x, %y, %y)", ["?, ?, ?", "?"], [Y[None], np.ones(3, np.float32)],
         ((Y - Y.mean(1, keepdims=True)) / np.sqrt(Y.var(1, keepdims=True) + 1e-5) + 1)[None]),
    ],
)  # fmt: skip
def test_dimensions_that_must_be_equal(
    body: str, types: list[str], args: list[Any], expected: Any
) -> None:
    text = function(body, **dict(zip("xy", map(typed, types), strict=True)))
    np.testing.assert_allclose(run(text, *args), expected, rtol=1e-5, atol=1e-6)
    again = to_text(from_text(text))
    np.testing.assert_allclose(run(again, *args), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "types", "args", "message"),
    [
        ("concatenate((%x, %y), axis=0)", ["?, ?", "?, ?"], [X, Y], "expected 2 .*, got 4"),
        ("concatenate((%x, %y), axis=0)", ["?, ?", "?, 3"], [X, Y[:, :3]], "expected 3, got 2"),
        ("stack((%x, %y))", ["?, ?", "?, ?"], [X, Y], "expected 2 .*, got 4"),
        ("nn.batch_norm(%x, %y, %y, %y, %y).0", ["?, ?", "?"], [X, Y[0]], "expected 2 .*, got 4"),
    ],
)
def test_dimensions_that_differ(
    body: str, types: list[str], args: list[Any], message: str
) -> None:
    text = function(body, **dict(zip("xy", map(typed, types), strict=True)))
    with pytest.raises(RuntimeError, match=message):
        run(text, *args)


def test_the_known_dimension_of_two_is_that_of_the_result() -> None:
    text = function("let %z = concatenate((%x, %y)); %z", x=typed("?, ?"), y=typed("?, 2"))
    assert 'R.Tensor((d0 + d0_1, 2), dtype="float32") = R.concat((gv, y))' in str(from_text(text))
    text = function("concatenate((%x, %y))", x=typed("2, 2"), y=typed("2, 3"))
    with pytest.raises(ParseError, match=r"dimension 1 differs: it is 2 in tensors.0. and 3 in"):
        from_text(text)


def test_equal_dimensions_need_no_cast() -> None:
    body = "let %a = concatenate((%x, %x), axis=1); concatenate((%a, nn.relu(%a)))"
    assert "match_cast" not in str(from_text(function(body, x=typed("?, ?"))))


def test_a_tuple_that_is_a_value() -> None:
    pair = f"({typed('?, ?')}, {typed('?, ?')})"
    body = "let %t = if (%c) { %x } else { (%x.1, %x.0) }; concatenate(%t, axis=1)"
    text = function(body, x=pair, c="bool")
    for c in (False, True):
        expected = np.concatenate([X, Y] if c else [Y, X], 1)
        np.testing.assert_array_equal(run(text, (X, Y), np.bool_(c)), expected)


# Dimensions in annotations


@pytest.mark.parametrize(
    "text",
    [
        function("let %z: Tensor[(?, 2), float32] = %x; %z", x=typed("?, ?")),
        function("@f(%x)", x=typed("?, ?")) + "def @f(%y: Tensor[(?, 2), float32]) { %y }",
        "def @main(%x: Tensor[(?, ?), float32]) -> Tensor[(?, 2), float32] { %x }",
        "def @main(%x: Tensor[(?, ?), float32]) { let %f = fn (%y: Tensor[(?, 2), float32]) "
        "{ %y }; %f(%x) }",
        "def @main(%x: Tensor[(?, ?), float32]) { @f((%x, %x)).0 } def @f(%p: (Tensor[(?, ?), "
        "float32], Tensor[(3, ?), float32])) -> (Tensor[(?, 2), float32], _) { %p }",
    ],
)
def test_a_known_dimension_beside_an_unknown_one_is_checked(text: str) -> None:
    np.testing.assert_array_equal(run(text, X), X)
    with pytest.raises(RuntimeError, match=r"dimension 1 of float32.3, 4.: expected 2, got 4"):
        run(text, Y)


# Programs as Relay printed them


def test_a_network_of_version_0_0_4() -> None:
    """Floats in attributes have no suffix."""
    text = """v0.0.4
def @main(%data: Tensor[(1, 3, 8, 8), float32], %gamma: Tensor[(3), float32], %beta: Tensor[(3), float32], %mean: Tensor[(3), float32], %var: Tensor[(3), float32], %conv0_weight: Tensor[(4, 3, 3, 3), float32], %fc1_weight: Tensor[(10, 4), float32], %fc1_bias: Tensor[(10), float32]) -> Tensor[(1, 10), float32] {
  %0 = nn.batch_norm(%data, %gamma, %beta, %mean, %var, epsilon=2e-05, scale=False) /* ty=(Tensor[(1, 3, 8, 8), float32], Tensor[(3), float32], Tensor[(3), float32]) */
  %1 = %0.0
  %2 = nn.conv2d(%1, %conv0_weight, strides=[2, 2], padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]) /* ty=Tensor[(1, 4, 4, 4), float32] */
  %3 = nn.relu(%2)
  %4 = nn.max_pool2d(%3, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])
  %5 = nn.global_avg_pool2d(%4)
  %6 = nn.batch_flatten(%5)
  %7 = nn.dense(%6, %fc1_weight, units=10)
  %8 = nn.bias_add(%7, %fc1_bias, axis=-1)
  nn.softmax(%8)
}
// meta data omitted. you can use show_meta_data=True to include meta data
"""  # noqa: E501
    text = text.replace("\n  %", ";\n  %").replace("{;", "{").replace("\n  nn.soft", ";\n  nn.soft")
    shapes = [(1, 3, 8, 8), (3,), (3,), (3,), (3,), (4, 3, 3, 3), (10, 4), (10,)]
    args = [np.abs(tensor(*shape, seed=i)) for i, shape in enumerate(shapes)]
    x, _, beta, mean, var, weight, fc, bias = args
    x = (x - mean[:, None, None]) / np.sqrt(var + 2e-5)[:, None, None] + beta[:, None, None]
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    x = np.maximum(np.einsum("ncijkl,ockl->noij", windows, weight), 0)
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    x = windows.max((4, 5)).mean((2, 3)) @ fc.T + bias
    x = np.exp(x - x.max())
    np.testing.assert_allclose(run(text, *args), x / x.sum(), rtol=1e-3, atol=1e-6)


def test_a_recursive_sum() -> None:
    text = VERSION + """
def @sum_up(%i: int32, %accum: int32) -> int32 {
  %0 = equal(%i, 0 /* ty=int32 */) /* ty=bool */;
  if (%0) {
    %accum
  } else {
    %1 = subtract(%i, 1 /* ty=int32 */) /* ty=int32 */;
    %2 = add(%accum, %i) /* ty=int32 */;
    @sum_up(%1, %2) /* ty=int32 */
  }
}

def @main(%i: int32, %accum: int32) -> int32 {
  @sum_up(%i, %accum) /* ty=int32 */
}
"""
    assert run(text, np.int32(10), np.int32(0)) == 55


def test_a_loop_that_grows_a_tensor() -> None:
    text = VERSION + """
def @main(%start: Tensor[(?, 1), float32]) {
  let %while_loop = fn (%i: int32, %st: Tensor[(?, 1), float32]) {
    %0 = less(%i, 5);
    if (%0) {
      %1 = add(%i, 1);
      %2 = cast(%i, dtype="float32");
      %3 = reshape(%2, newshape=[1, 1]);
      %4 = (%st, %3);
      %5 = concatenate(%4);
      %while_loop(%1, %5)
    } else {
      (%i, %st)
    }
  };
  %6 = %while_loop(0, %start);
  %6.1
}
"""
    found = run(text, np.full((2, 1), 7, np.float32))
    assert found.tolist() == [[7], [7], [0], [1], [2], [3], [4]]


def test_a_data_type_of_tensors_of_any_rank() -> None:
    """As Relay's arrays of tensors: a constructor for each rank."""
    text = VERSION + """
type tensor_float32_t {
  tensor_nil_float32,
  tensor1_float32(Tensor[(?), float32]),
  tensor2_float32(Tensor[(?, ?), float32]),
}

def @tensor_concatenate_float32(%x: tensor_float32_t, %y: tensor_float32_t) -> tensor_float32_t {
  match? (%x) {
    tensor1_float32(%t1) => match? (%y) {
      tensor1_float32(%t2) => tensor1_float32(concatenate((%t1, %t2))),
    },
    tensor2_float32(%t11) => match? (%y) {
      tensor2_float32(%t21) => tensor2_float32(concatenate((%t11, %t21))),
    },
  }
}

def @tensor_expand_dims_float32(%x: tensor_float32_t) -> tensor_float32_t {
  match? (%x) {
    tensor1_float32(%t) => tensor2_float32(expand_dims(%t, axis=0)),
  }
}

def @main(%a: Tensor[(?), float32], %b: Tensor[(2), float32]) {
  let %x = @tensor_expand_dims_float32(tensor1_float32(%a));
  @tensor_concatenate_float32(%x, @tensor_expand_dims_float32(tensor1_float32(%b)))
}
"""
    found = run(text, X[0], X[1])
    np.testing.assert_array_equal(found.fields[0], X[:2])
    with pytest.raises(RuntimeError, match=r"expected 4 .*, got 2"):
        run(text, Y[0], X[1])


def test_dimensions_that_are_long_expressions_get_names() -> None:
    """Else they would double with every operation."""
    lines = "".join(
        f"let %x = concatenate((%x, strided_slice(%x, begin=[{i}], end=[99], strides=[{i + 1}])));"
        for i in range(1, 41)
    )
    text = f"def @main(%x: Tensor[(?), float32]) {{ {lines} %x }}"
    assert len(str(from_text(text))) < 40_000
    lines = lines[: lines.index("begin=[4]")].rpartition("let")[0]
    text = f"def @main(%x: Tensor[(?), float32]) {{ {lines} %x }}"
    expected = Y[0]
    for i in range(1, 4):
        expected = np.concatenate([expected, expected[i : 99 : i + 1]])
    np.testing.assert_array_equal(run(text, Y[0]), expected)


# Files in the style of Relay's own

CHAIN = """/*
 * A comment stands before the version.
 */
#[version = "0.0.5"]

def @twice[A, B](%f: fn(A) -> B, %g: fn(B) -> A) {
  fn (%x: A) -> A {
    %g(%f(%x))
  }
}

/*
 * `Link(x, c)` puts `x` in front of `c`.
 */
type Chain[A] {
  Link(A, Chain[A]),
  End,
}

/* No result type, a match without all constructors. */
def @front[A](%c: Chain[A]) {
  match? (%c) {
    Link(%x, _) => %x,
  }
}

 // A line comment that is indented.
def @total(%c: Chain[Tensor[(), int32]]) -> int32 {
  let %plus = fn(%x: Tensor[(), int32], %y: Tensor[(), int32]) -> Tensor[(), int32] {
    %x + %y
  };
  @collect(%plus, 0, %c)
}

def @collect[A, B](%f: fn(A, B) -> B, %start: B, %c: Chain[A]) -> B {
  match(%c) {
    Link(%x, %rest) => {
      let %more = @collect(%f, %start, %rest);
      %f(%x, %more)
    },
    End => %start
  }
}

def @pairs[A, B](%a: Chain[A], %b: Chain[B]) -> Chain[(A, B)] {
  match (%a, %b) {
    (Link(%x, %a_rest), Link(%y, %b_rest)) => Link((%x, %y), @pairs(%a_rest, %b_rest)),
    _ => End,
  }
}

def @again[A](%f: fn(A) -> A, %n: Tensor[(), int32]) -> (fn(A) -> A) {
  if (%n == 0) {
    fn (%x) { %x }
  } else {
    fn (%x: A) { %f(@again(%f, %n - 1)(%x)) }
  }
}
"""

COUNT = """// The names of the other file are known where both are imported.
v0.0.4

type count {
    none_,
    more(count),
}

type Cell[T] {
  Full(T),
  Later(fn() -> T)
}

extern type Handle

def @count_of[A](%c: Chain[A]) -> count {
    match %c {
        End => none_,
        Link(_, %rest) => more(@count_of(%rest))
    }
}

def @number(%n: count) -> int32 {
    match %n {
        none_ => 0,
        more(%m) => 1 + @number(%m)
    }
}

def @joined[T](%add: fn(T, T) -> T, %l: Cell[T], %r: Cell[T]) -> Cell[T] {
  match ((%l, %r)) {
    (Later(%f), _) => Full(%add(%f(), @content(%r))),
    (_, Later(%f)) => Full(%add(@content(%l), %f())),
    _ => Full(%add(@content(%l), @content(%r)))
  }
}

def @content[T](%c: Cell[T]) -> T {
  match (%c) {
    Full(%x) => %x,
    Later(%x) => %x()
  }
}
"""


def test_files_in_the_style_of_relays_own(tmp_path: Path) -> None:
    (tmp_path / "chain.rly").write_text(CHAIN)
    (tmp_path / "count.rly").write_text(COUNT)
    (tmp_path / "main.rly").write_text(VERSION + """
import "chain.rly"
import "count.rly"
def @main(%n: int32) {
  let %c = Link(%n, Link(2, Link(3, End)));
  let %later = Later(fn () { %n * 10 });
  (@total(%c), @front(%c), @number(@count_of(%c)), @number(@count_of(@pairs(%c, Link(1f, End)))),
   @again(fn (%x) { %x * 2 }, 3)(%n), @twice(negative, fn (%x) { %x - %n })(%n),
   @content(@joined(add, %later, Full(1))), @content(@joined(add, Full(1), Full(2))))
}
""")
    module = from_text(tmp_path / "main.rly")
    results = relaxvm.VirtualMachine(relaxvm.build(module))["main"](np.int32(7))
    assert [int(x) for x in results] == [12, 7, 3, 1, 56, -14, 71, 3]
    assert len(from_text(tmp_path / "chain.rly").functions) == 6
    with pytest.raises(ParseError, match="unknown constructor End"):
        from_text(tmp_path / "count.rly")
