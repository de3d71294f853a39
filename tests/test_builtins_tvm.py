"""The builtins compared with apache-tvm's: results, changes to arguments, and error classes.

Calls that crash TVM or read out of bounds there are left out; the tests of relaxvm's builtins cover
them.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import ExecBuilder, Shape, VirtualMachine, from_tvm, get_func, list_funcs
from relaxvm.builtins import PREFIX
from relaxvm.errors import InternalError

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402

from . import tvm_side  # noqa: E402

F32 = np.float32
CTX = "ErrorContext(fn=main, loc=return) "


def theirs(name: str) -> Callable[..., Any]:
    return tvm.get_global_func(PREFIX + name)


def ours(name: str) -> Callable[..., Any]:
    return get_func(PREFIX + name)


def outcome(func: Callable[..., Any], args: list[Any]) -> Any:
    """Return the result, or the class of the exception."""
    try:
        return func(*args)
    except Exception as exc:
        return type(exc)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and np.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)
        )  # fmt: skip
    if isinstance(a, (tuple, list)):
        return (
            isinstance(b, (tuple, list)) and isinstance(a, Shape) == isinstance(b, Shape)
            and len(a) == len(b) and all(map(same, a, b))
        )  # fmt: skip
    return type(a) is type(b) and bool(a == b)


def compare(name: str, *args: Any) -> Any:
    """Call both; results, errors and what is left in the arguments have to agree.  Returns what
    came out of ours."""
    mine = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    other = [tvm_side.to_tvm(arg) for arg in args]
    got = outcome(ours(name), mine)
    want = outcome(theirs(name), other)
    if isinstance(want, type):
        assert isinstance(got, type), f"{name}{args}: got {got!r}, TVM raises {want.__name__}"
        assert tvm_side.error_like(got) is want, f"{name}{args}: {got.__name__}, {want.__name__}"
    else:
        want = tvm_side.from_tvm(want)
        assert same(got, want), f"{name}{args}: got {got!r}, TVM gives {want!r}"
    for a, b in zip(mine, other, strict=True):
        if isinstance(a, np.ndarray):
            assert same(a, tvm_side.from_tvm(b)), f"{name}{args}: left {a}, TVM leaves {b}"
    return got


def f32(*values: float) -> np.ndarray:
    return np.array([values], F32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


X = np.arange(6, dtype=F32).reshape(2, 3)
HEAP = np.array([2, 3, 0], np.int64)
S = Shape
INT, FLOAT, BOOL = np.dtype("i4"), np.dtype("f4"), np.dtype("?")


def function(*args: Any) -> int:
    return len(args)


CASES: dict[str, list[tuple[Any, ...]]] = {
    "match_shape": [
        (X, HEAP, 2, 0, 2, 0, 3, CTX), (X, HEAP, 2, 0, 2, 0, 4, CTX),
        (X, HEAP, 2, 3, 0, 3, 1, CTX), (X, HEAP, 2, 3, 1, 3, 0, CTX),
        (X, HEAP, 2, 1, 2, 3, 2, CTX), (S([4, 4]), HEAP, 2, 1, 2, 3, 2, CTX),
        (S([4, 4]), HEAP, 2, 1, 2, 3, 2),
        (S([4, 4]), HEAP, 2, 2, 0, 2, 0, 5), (S([4, 4]), HEAP, 3, 2, 0, 2, 0, 2, 0, CTX),
        (S([4, 4]), HEAP, 1, 2, 0, CTX), (S([4, 4]), None, 0, CTX), (S([]), None, 0, CTX),
        (S([4]), None, 1, 0, 4, CTX), (S([4]), None, 1, 2, 0, CTX), (S([4]), HEAP, 1, 4, 0, CTX),
        (S([4]), HEAP, 1, -1, 0, CTX), (S([4]), HEAP, 1, True, False, CTX),
        (S([4]), HEAP, True, 1, 0, CTX), (S([4]), HEAP, 1, 1.0, 0, CTX), (5, HEAP, 1, 1, 0, CTX),
        ("ab", HEAP, 1, 1, 0, CTX), ((4,), HEAP, 1, 1, 0, CTX), ((4, "a"), HEAP, 1, 1, 0, CTX),
        (np.array(F32(1)), HEAP, 0, CTX), (X, HEAP, 2.0, 2, 0, 2, 0, CTX),
    ],
    "match_prim_value": [
        (3, HEAP, 0, 3, CTX), (3, HEAP, 0, 4, CTX), (3, HEAP, 1, 2, CTX), (3, HEAP, 2, 0, CTX),
        (3, HEAP, 3, 1, CTX), (3, HEAP, 3, 0, CTX), (3, HEAP, 4, 0, CTX), (3, None, 0, 3, CTX),
        (3, None, 1, 0, CTX), (True, HEAP, 0, 1, CTX), (3.0, HEAP, 0, 3, CTX),
        (None, HEAP, 0, 3, CTX), ("x", HEAP, 0, 3, CTX), (X, HEAP, 0, 3, CTX), (3, HEAP, 0, 3),
        (3, HEAP, 0, 3, CTX, 1), (3, HEAP, 0, 3, None), (3, HEAP, 0, 3, 5),
    ],
    "make_shape": [
        (HEAP, 2, 0, 5, 1, 1), (None, 2, 0, 5, 0, 0), (None, 0), (HEAP, 1, 2, 0), (HEAP, 1, 3, 0),
        (HEAP, -1), (HEAP, 1, 0, -7), (HEAP, 1.0, 0, 1), (HEAP, True, False, True),
    ],
    "make_prim_value": [
        (HEAP, 0, 5), (HEAP, 1, 1), (HEAP, 2, 0), (None, 0, 5), (None, 1, 0), (HEAP, True, 0),
        (HEAP, 0), (HEAP, 0, 5.0),
    ],
    "check_tensor_info": [
        (X, 2, FLOAT, CTX), (X, 2, "float32", CTX), (X, 3, FLOAT, CTX), (X, 2, INT, CTX),
        (X, -1, None, CTX), (X, -1, INT, CTX), (X, 2, CTX), (X, 3, CTX), (X, -1, CTX),
        (X, -2, CTX), (5, 2, FLOAT, CTX), (None, 2, FLOAT, CTX), (S([1]), 2, CTX),
        (X, 2, None, None), (X, 2, FLOAT, None), (X, 2.0, CTX), (X, True, CTX), (X, 2, 5, CTX),
        (X, 2, FLOAT, 5), ((X,), 2, CTX), (function, 2, CTX), (X, 3, None), (X, 2, FLOAT),
    ],
    "check_shape_info": [
        (S([1, 2]), 2, CTX), (S([1, 2]), 3, CTX), (S([1, 2]), -1, CTX), ((1, 2), 2, CTX),
        (X, 2, CTX), (5, 2, CTX), (S([1, 2]), 2, None), (S([1, 2]), 2), (S([1, 2]), -5, CTX),
        (S([1, 2]), True, CTX), ("a", 1, CTX), (S([1, 2]), 2, CTX, 1),
    ],
    "check_tuple_info": [
        ((1, 2), 2, CTX), ((1, 2), 3, CTX), ((1, 2), -1, CTX), (S([1, 2]), 2, CTX), (X, 2, CTX),
        (5, 2, CTX), ((), 0, None), ((), 0), ("a", 1, CTX),
    ],
    "check_func_info": [
        (function, CTX), (X, CTX), (5, CTX), (function, None), (function,), ((function,), CTX),
        ("name", CTX), (function, CTX, 1),
    ],
    "check_prim_value_info": [
        (value, dtype, CTX)
        for value in (1, -1, True, 1.5, "a", X, S([1]), (1,), function, 1 << 40)
        for dtype in (INT, BOOL, FLOAT, np.dtype("u1"), "int64")
    ] + [(1, None, CTX), (1, INT, None), (1, INT), (1, 5, CTX), ("x", INT, None)],
    "check_string_info": [
        ("a", CTX), ("a" * 100, CTX), (1, CTX), (None, CTX), (X, CTX), ("a", None), ("a",),
    ],
    "shape_of": [(X,), (S([1]),), (5,), ((1, 2),), (np.array(F32(1)),), (X, X), ()],
    "tensor_to_shape": [
        *[(np.array([1, 2], dtype),) for dtype in ("i1", "i2", "i4", "i8", "u1", "u8", "f4", "?")],
        (np.array(3),), (np.array([[1, 2]]),), (np.array([-1]),), (np.zeros(0, np.int64),), (5,),
        ((1, 2),), (S([1]),), (),
    ],
    "reshape": [
        *[(X, S(dims)) for dims in
          [(6,), (3, 2), (4,), (7,), (), (0,), (-1, 6), (-1,), (2, -3), (6, 1, 1)]],
        (X, (3, 2)), (X, 6), (X, None), (X, X), (5, S([1])), (X,), (X, S([6]), 1), (S([1]), S([1])),
    ],
    "ensure_zero_offset": [(X,), (5,), ((X,),), ()],
    "to_device": [
        (X, 1, 0), (X, 1, 3), (X, 2, 0), (X, 1, 0, "global"), (X, 1, 0, "global.vtcm"), (5, 1, 0),
        (X, 1, -1), (X, 1, 0, None), (X, 1.0, 0), (X, 1, 0, 5),
    ],
    "copy": [(X,), (None,), (5,), ("a",), (True,), (1.5,), (S([1]),), ((1, (2,)),), (), (1, 2)],
    "null_value": [(), (1,)],
    "read_if_cond": [
        *[(value,) for value in (1, 0, True, False, -1, 1 << 40, 1.0, "a", "", S([1]), (), (1,))],
        *[(np.array(value, dtype),) for value in (0, 1)
          for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "f4", "f2", "f8")],
        (np.array(256, np.int16),), (np.array([0, 1]),), (np.array([2, 0]),), (np.array([[1]]),),
        (X,), (function,), (1, 1), (),
    ],
    "tuple_getitem": [
        *[((1, 2, 3), i) for i in (0, 2, 3, -1, True, 1.0, None, "a", 1 << 40)],
        *[(other, 0) for other in (S([1, 2]), X, 5, None, "abc")], ((1,),), ((1,), 0, 0),
    ],
    "tuple_reset_item": [
        *[([1, 2, 3], i) for i in (0, 2, 3, -1, True, 1.0)],
        *[(other, 0) for other in (S([1, 2]), X, 5, None, "abc")],
    ],
    "make_tuple": [(), (1, X, None, (1, 2), S([1]))],
    "call_tir_dyn": [
        (function, 1, 2, S([3, 4])), (function, S([])), (function,), (function, 1, 2),
        (5, S([3])), (function, X, (3, 4)), ("name", S([1])),
    ],
    "invoke_closure": [(None, 5, 1, 2)],
    "make_closure": [(5, 1)],
    "register_py_func": [("p", function), (5, function), ("p", 5), ("p",)],
    "get_py_func": [("nope",), (5,), ()],
    "clear_py_func_registry": [(), (1,)],
    "call_py_func": [
        (("nope", (1,)),), (("p",),), (("p", 1, 2),), ((),), (5,), (), ("p",), ((5, (1,)),),
    ],
    "invoke_debug_func": [
        (None, "test.not.registered", "line"), (X, "test.not.registered", "line"),
        (None, "test.not.registered", 5), (None, "test.not.registered"), (None, 5, "line"), (),
    ],
    "memory_manager.clear": [(), (1,)],
    "multinomial_from_uniform": [
        (f32(.25, .5, .25), f32(u)) for u in (0, .1, .25, .5, .75, .99, 1.5)
    ] + [
        (np.repeat(f32(.2, .5, .3), 3, 0), f32(.1, .6, .9).T), (f32(np.nan, .5), f32(.2)),
        (f32(.2, .5), f32(np.nan)), (f32(0, 0), f32(0)), (np.zeros((0, 3), F32), f32().T),
        (f32(1),), (f32(1), 5),
    ],
    "sample_top_p_from_logits": [
        (f32(1, 5, 3), t, p, u) for t in (0, 1e-7, .5, 1, 2.0) for p in (0.0, .5, .9, .99, 1, 2.0)
        for u in (0, .3, .8, .9, .95, .999)
    ] + [
        (f32(1, 5, 3)[0], 1, 1, 0), (f32(1, 5, 3)[None], 1, 1, 0), (f32(1, 5).T, 1, 1, 0),
        (f32(1, 5).astype("f8"), 1, 1, 0), (f32(1, np.nan, 3), 1, 1.0, .5),
        (f32(np.inf, 3, 1), 1, 1.0, .5), (f32(-np.inf, 3, 1), 1, 1.0, .5),
        (f32(-np.inf, -np.inf), 1, 1.0, .5), (f32(1, 5), "a", 1.0, .5), (f32(1, 5), 1, 1),
        (5, 1, 1, 1), (f32(1, 5), 1, 1, np.nan), (f32(1, 5), np.nan, 1, .5),
        (f32(1, 5), 1, 1, 2.0), (f32(1, 5), -1.0, 2.0, .999),
    ],
    "sample_top_p_from_prob": [
        (f32(.2, .5, .3), p, u) for p in (0.0, .1, .5, .6, .7, .9, .99, 1, 2.0)
        for u in (0, .3, .49, .51, .7, .72, .79, .81, .95, .999)
    ] + [
        (f32(.2, .8)[0], 1, .1), (f32(.2, .8).T, 1, .1), (f32(.2, .8).astype("f8"), 1, .1),
        (f32(np.nan, np.nan), 1.0, .5), (f32(np.nan, .5), 1.0, .6), (5, 1, 1),
    ],
    "apply_repetition_penalty": [
        (f32(1, -2, 0, 4), i32(0, 1), 2.0), (f32(1, -2, 0, 4), i32(0, 1, 0, 1), 2.0),
        (f32(1, -2, 0, 4), i32(0, 1).reshape(1, 2), 2), (f32(1, -2, 0, 4)[0], i32(3), 0.3),
        (f32(1, -2, 0, 4), np.array([0, 1]), 2.0), (f32(1, 2).astype("f8"), i32(0), 2.0),
        (f32(1, 2), i32(), 2.0), (f32(1, 2), 5, 3.0), (f32(1, 2), i32(0), "a"),
    ],
    "apply_presence_and_frequency_penalty": [
        (f32(1, -2, 0, 4), i32(0, 1), i32(1, 2), .5, .25),
        (f32(1, -2, 0, 4), i32(0, 1), i32(0, -2), .5, .25),
        (f32(1, -2, 0, 4), i32(0, 0), i32(1, 2), .3, .7),
        (f32(1, -2, 0, 4)[0], i32(3), i32(1000), 1, 2),
        (f32(1, 2), i32(0), np.array([1]), .5, .25), (f32(1, 2), i32(0), f32(1)[0], .5, .25),
    ],
    "apply_softmax_with_temperature": [
        (f32(1, -2, 0, 4), t) for t in (1, .5, 2.0, 1e-8, 100.0)
    ] + [
        (f32(1, -2)[0], 2.0), (f32(1, -2)[None], 2.0), (f32(1, -2).astype("f8"), 1.0),
        (f32(1, -2).astype("f2"), 1.0), (f32(np.nan, 1), 1.0), (f32(np.inf, 1), 1.0),
        (f32(-np.inf, 1), 1.0), (f32(-np.inf, -np.inf), 1.0), (5, 1.0),
    ],
    "tensor_cache.get": [("nope",), (5,), ()],
    "tensor_cache.remove": [("nope",), (5,)],
    "tensor_cache.update": [(5, X), ("w", 5), ("w", X, None)],
    "tensor_cache.clear": [(), (1,)],
    "tensor_cache.load": [("/nowhere", 1, 0), (5, 1, 0), (".", 1)],
    "param_array_from_cache": [("q", -1), ("q", 0), ("q", 1), (5, 1), ("q", -3)],
    "param_array_from_cache_by_name": [((),), (("zz",),), ("zz",)],
    "param_array_from_cache_by_name_unpacked": [(), ("zz",)],
    "param_module_from_cache": [("q", 1)],
    "param_module_from_cache_by_name": [(("zz",),)],
}  # fmt: skip

BY_PROGRAM = {"alloc_shape_heap", "alloc_storage", "alloc_tensor"}
"""Builtins that take the VM state: compared in programs."""
STATES = ("attention_kv_cache_", "kv_state_", "kv_cache_disagg_", "rnn_state_",
          "paged_attention_kv_cache_create")  # fmt: skip
IN_SEQUENCE = {name for name in list_funcs() if name.removeprefix(PREFIX).startswith(STATES)}
"""Builtins on caches and states: compared in sequences of calls, here and in test_kv_state_tvm."""
PRINTS = {"debug_print"}


@pytest.mark.parametrize("name", CASES)
def test_like_tvm(name: str) -> None:
    for args in CASES[name]:
        compare(name, *args)


def test_every_builtin_that_tvm_has_is_compared() -> None:
    known = set(tvm.ffi.registry.list_global_func_names()) if hasattr(tvm, "ffi") else set()
    if not known:
        import tvm_ffi

        known = set(tvm_ffi.registry.list_global_func_names())
    shared = {n.removeprefix(PREFIX) for n in list_funcs() if n in known and n.startswith(PREFIX)}
    compared = CASES.keys() | BY_PROGRAM | PRINTS
    compared |= {name.removeprefix(PREFIX) for name in IN_SEQUENCE}
    assert shared == compared


def test_debug_print() -> None:
    text = []
    for func, x in ((ours("debug_print"), X), (theirs("debug_print"), tvm_side.to_tvm(X))):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert func("main:3", x) is None
        text.append(out.getvalue())
    assert text[0] == text[1]


# Random arguments


PAIRS = st.tuples(st.integers(0, 3), st.integers(0, 2))
DIMS = st.lists(st.integers(1, 3), max_size=4)


@settings(max_examples=200)
@given(DIMS, st.data())
def test_match_shape(dims: list[int], data: st.DataObject) -> None:
    heap = np.array(data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3)), np.int64)
    count = data.draw(st.integers(max(0, len(dims) - 1), len(dims) + 1)) if dims else 0
    pairs = data.draw(st.lists(PAIRS, min_size=count, max_size=count))
    pattern = [word for pair in pairs for word in pair]
    x: Any = np.zeros(dims, F32) if data.draw(st.booleans()) else Shape(dims)
    compare("match_shape", x, heap, count, *pattern, "ctx")


@given(st.data())
def test_make_shape(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5))
    compare("make_shape", HEAP, len(pairs), *[word for pair in pairs for word in pair])


VALUES = st.sampled_from(
    [0, 1, -3, True, 1.5, "text", X, i32(1, 2), np.array(1), S([1, 2]), S([]), (1, 2), (), (X, 1)]
)


@settings(max_examples=300)
@given(
    st.sampled_from(["check_shape_info", "check_tuple_info", "tuple_getitem"]),
    VALUES, st.integers(-2, 3),
)  # fmt: skip
def test_values_of_any_kind(name: str, value: Any, number: int) -> None:
    compare(name, value, number, *(["ctx"] if name.startswith("check") else []))


@settings(max_examples=200)
@given(VALUES, st.integers(-2, 3), st.sampled_from([None, INT, FLOAT, np.dtype("i8")]))
def test_check_tensor_info(value: Any, ndim: int, dtype: Any) -> None:
    compare("check_tensor_info", value, ndim, dtype, "ctx")


@settings(max_examples=200)
@given(st.lists(st.integers(-1, 4), max_size=4), st.lists(st.integers(0, 4), max_size=4))
def test_reshape(dims: list[int], given_dims: list[int]) -> None:
    size = int(np.prod(given_dims))
    x = np.arange(size, dtype=F32).reshape(given_dims)
    if min(dims, default=0) < 0:
        # TVM accepts the product of two negative dimensions as a valid size.
        assert outcome(ours("reshape"), [x, Shape(dims)]) is ValueError
    else:
        compare("reshape", x, Shape(dims))


def distinct(rng: np.random.Generator, count: int) -> np.ndarray:
    """Distinct probabilities: the order of equal ones is not defined."""
    prob = rng.permutation(np.arange(1, count + 1)) + rng.random(count) / 4
    return (prob / prob.sum()).astype(F32)


@settings(max_examples=300)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 5, 40, 3000]),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_sampling(seed: int, count: int, top_p: float, uniform: float) -> None:
    """Equal, except for samples within rounding of the boundary between two tokens."""
    prob = distinct(np.random.default_rng(seed), count)
    for name, x, extra in (
        ("sample_top_p_from_prob", prob, ()),
        ("sample_top_p_from_logits", np.log(prob), (1.0,)),
    ):
        want = {
            theirs(name)(tvm_side.to_tvm(x), *extra, p, u)
            for p in (top_p - 1e-5, top_p, top_p + 1e-5)
            for u in (max(uniform - 2e-5, 0), uniform, min(uniform + 2e-5, 1 - 1e-6))
        } if uniform < 1 - 1e-4 else None  # fmt: skip
        if want is not None:
            assert ours(name)(x, *extra, top_p, uniform) in want


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 30))
def test_multinomial(seed: int, batch: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    prob = np.stack([distinct(rng, count) for _ in range(batch)])
    uniform = rng.random((batch, 1)).astype(F32)
    compare("multinomial_from_uniform", prob, uniform)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 90))
def test_penalties(seed: int, count: int, history: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (4 * rng.standard_normal((1, count))).astype(F32)
    ids = rng.integers(0, count, history).astype(np.int32)
    freqs = rng.integers(0, 9, history).astype(np.int32)
    once = np.unique(ids)
    compare("apply_repetition_penalty", logits, once, float(rng.uniform(0.2, 3)))
    compare("apply_presence_and_frequency_penalty", logits, once, freqs[: len(once)], 0.6, 0.3)
    compare("apply_softmax_with_temperature", logits, float(rng.uniform(0.2, 3)))
    # TVM rounds each of several penalties of a token, relaxvm only their sum.
    mine, other = logits.copy(), tvm_side.to_tvm(logits)
    ours("apply_repetition_penalty")(mine, ids, 1.25)
    theirs("apply_repetition_penalty")(other, tvm_side.to_tvm(ids), 1.25)
    assert np.allclose(mine, other.numpy(), rtol=1e-4)


# Caches


class Caches:
    """A cache of relaxvm and one of TVM, with the same calls."""

    def __init__(self, initial: np.ndarray, reserve: Shape, count: int) -> None:
        args = [initial, reserve, count]
        self.mine = ours("attention_kv_cache_create")(*args)
        self.other = theirs("attention_kv_cache_create")(*map(tvm_side.to_tvm, args))

    def call(self, name: str, *args: Any, array: bool = False) -> None:
        def on(cache: Any) -> Any:
            return [cache] if array else cache

        full = "attention_kv_cache_" + name
        got = outcome(ours(full), [on(self.mine), *args])
        want = outcome(theirs(full), [on(self.other), *map(tvm_side.to_tvm, args)])
        if isinstance(want, type):
            assert isinstance(got, type)
            assert tvm_side.error_like(got) is want
        elif isinstance(want, tvm.runtime.Tensor):
            assert same(got, want.numpy())
        else:
            assert got is (None if array else self.mine)
        self.check()

    def check(self) -> None:
        view = theirs("attention_kv_cache_view")(self.other).numpy()
        assert same(ours("attention_kv_cache_view")(self.mine), view)


def rows(first: int, count: int, width: int = 2, dtype: Any = F32) -> np.ndarray:
    return np.arange(first * width, (first + count) * width).reshape(count, width).astype(dtype)


def test_caches() -> None:
    caches = Caches(rows(0, 2), S([4, 2]), -1)
    caches.call("append", rows(2, 1))
    caches.call("append", rows(3, 5))
    for shape in (S([8, 2]), S([3, 2]), S([8, 1])):
        caches.call("view", shape)
    caches.call("view")
    caches.call("append", rows(0, 1, 3))
    caches.call("append", rows(0, 1, 2, np.float64))
    caches.call("append", rows(0, 0))
    caches.call("append", 5)
    caches.call("append")
    caches.call("update", rows(50, 8))
    caches.call("update", rows(50, 7))
    caches.call("update", rows(50, 9))
    caches.call("update", rows(50, 8, 2, np.float64))
    caches.call("append", rows(20, 40))
    caches.call("array_popn", 3, array=True)
    caches.call("array_popn", 100, array=True)
    caches.call("array_popn", -1, array=True)
    caches.call("array_popn", 1.0, array=True)
    caches.call("array_popn", 1)
    caches.call("array_clear")
    caches.call("array_clear", array=True)
    caches.call("append", rows(0, 1))


@pytest.mark.parametrize("count", [-7, -1, 0, 1, 2])
@pytest.mark.parametrize("reserve", [1, 2, 5])
def test_created_caches(count: int, reserve: int) -> None:
    caches = Caches(rows(0, 2), S([reserve, 2]), count)
    caches.check()
    caches.call("append", rows(7, 3))


@settings(max_examples=150)
@given(st.integers(1, 8), st.integers(0, 3), st.integers(1, 9), st.data())
def test_rings(size: int, sinks: int, reserve: int, data: st.DataObject) -> None:
    """A cache that is only written through its ring.  After appending or popping, TVM continues at
    the old position and returns rows that were never written; if it must grow while the ring is
    full, it writes out of bounds."""
    start = data.draw(st.integers(0, min(size, reserve)))
    caches = Caches(rows(0, reserve), S([reserve, 2]), start)
    for step in range(data.draw(st.integers(1, 8))):
        most = 5 if reserve >= size else 1
        added = rows(100 * step + 100, data.draw(st.integers(0, most)))
        if sinks:
            caches.call("window_override_with_sinks", added, size, sinks)
        else:
            caches.call("window_override", added, size)


def test_ring_errors() -> None:
    caches = Caches(rows(0, 4), S([4, 2]), 3)
    for args in [
        (rows(10, 1, 3), 4), (rows(10, 1, 2, np.float64), 4), (rows(10, 0), 4), (rows(10, 1), 0),
        (rows(10, 1), -1), (rows(10, 5), 4), (5, 4), (rows(10, 1),),
    ]:  # fmt: skip
        caches.call("window_override", *args)
    for args in [(rows(10, 1), 4, 4), (rows(10, 1), 4, 5), (rows(10, 1), 4)]:
        caches.call("window_override_with_sinks", *args)


# With the VM state


def programs(name: str, *args: Any, then: tuple[Any, ...] | None = None) -> tuple[Any, Any]:
    """Return the outcome of a call with the VM state on both VMs; `then` are arguments of an
    alloc_tensor on its result."""
    results = []
    for builder, machine in (
        (ExecBuilder(), VirtualMachine),
        (relax.ExecBuilder(), lambda ex: relax.VirtualMachine(ex, tvm.cpu(), "naive")),
    ):
        convert = (lambda x: x) if builder.__class__ is ExecBuilder else tvm_side.to_tvm
        with builder.function("main", num_inputs=0):
            words = [builder.convert_constant(convert(arg)) for arg in args]
            words.insert(0, builder.vm_state())
            builder.emit_call(PREFIX + name, words, dst=builder.r(0))
            if then is not None:
                words = [builder.convert_constant(convert(arg)) for arg in then]
                words.insert(0, builder.r(0))
                builder.emit_call(PREFIX + "alloc_tensor", words, dst=builder.r(0))
            builder.emit_ret(builder.r(0))
        executable = builder.get()
        results.append(outcome(lambda e=executable, m=machine: m(e)["main"](), []))
    return results[0], results[1]


@pytest.mark.parametrize("count", [0, 1, 4, True])
def test_alloc_shape_heap(count: int) -> None:
    got, want = programs("alloc_shape_heap", count)
    assert (got.shape, str(got.dtype)) == (tuple(want.shape), str(want.dtype))


U8 = np.dtype("u1")


@pytest.mark.parametrize(
    ("storage", "tensor"),
    [
        ((S([24]), 0, U8, "global"), (0, S([2, 3]), FLOAT)),
        ((S([24]), 0, U8, "global"), (0, S([2, 3]), FLOAT, "global")),
        ((S([24]), 0, "uint8", ""), (4, S([2]), "float32", "foo")),
        ((S([24]), 0, U8, "global"), (0, S([7]), FLOAT)),
        ((S([24]), 0, U8, "global"), (4, S([6]), FLOAT)),
        ((S([24]), 0, U8, "global"), (24, S([0]), FLOAT)),
        ((S([24]), 0, U8, "global"), (25, S([0]), FLOAT)),
        ((S([24]), 0, U8, "global"), (2, S([1]), FLOAT)),
        ((S([24]), 0, U8, "global"), (0, S([-1]), FLOAT)),
        ((S([24]), 0, U8, "global"), (0, S([]), FLOAT)),
        ((S([24]), 0, U8, "global"), (0, S([24]), BOOL)),
        ((S([2, 3]), 0, FLOAT, "global"), (0, S([24]), U8)),
        ((S([2, 3]), 0, FLOAT, "global"), (0, S([25]), U8)),
        ((S([]), 0, FLOAT, "global"), (0, S([4]), U8)),
        ((S([]), 0, FLOAT, "global"), (0, S([5]), U8)),
        ((S([0]), 0, FLOAT, "global"), (0, S([0, 9]), FLOAT)),
        ((S([3]), 0, np.dtype("f8"), "global"), (16, S([1]), np.dtype("f8"))),
        ((S([3]), 0, np.dtype("f8"), "global"), (24, S([1]), np.dtype("f8"))),
    ],
)
def test_storages_have_the_size_that_tvm_gives_them(
    storage: tuple[Any, ...], tensor: tuple[Any, ...]
) -> None:
    got, want = programs("alloc_storage", *storage, then=tensor)
    if isinstance(want, type):
        # Errors visible in the code are reported when the VM is created.
        assert issubclass(got, RuntimeError)
        assert want is tvm.error.InternalError
    else:
        assert (got.shape, str(got.dtype)) == (tuple(want.shape), str(want.dtype))


# The tensor cache


@pytest.fixture
def empty_caches() -> Iterator[None]:
    for side in (ours, theirs):
        side("tensor_cache.clear")()
    yield
    for side in (ours, theirs):
        side("tensor_cache.clear")()


@pytest.mark.usefixtures("empty_caches")
@pytest.mark.parametrize("form", ["raw", "f32-to-bf16"])
def test_folders_of_tvm(tmp_path: Path, form: str) -> None:
    from tvm.contrib import tvmjs

    rng = np.random.default_rng(0)
    arrays = {
        **{f"p_{i}": rng.standard_normal((100, i + 1)).astype(F32) for i in range(4)},
        "i64": rng.integers(-9, 9, (3, 4)), "f16": rng.random(5).astype(np.float16),
        "bool": np.array([True, False]), "scalar": np.array(3, F32),
    }  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        tvmjs.dump_tensor_cache(arrays, str(tmp_path), encode_format=form, show_progress=False)
    for side in (ours, theirs):
        assert side("tensor_cache.load")(str(tmp_path), 1, 0) is None
    for name in arrays:
        want = theirs("tensor_cache.get")(name).numpy()
        got = ours("tensor_cache.get")(name)
        assert got.tobytes() == want.tobytes()
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
    for count in (-1, 4, 2, 5):
        compare("param_array_from_cache", "p", count)
    compare("param_array_from_cache_by_name", ("f16", "p_1"))
    compare("param_array_from_cache_by_name", ("f16", "nope"))
    compare("param_array_from_cache_by_name_unpacked", "f16", "p_1")
    modules = [side("param_module_from_cache")("p", 2) for side in (ours, theirs)]
    assert same(modules[0]["get_params"](), tvm_side.from_tvm(modules[1]["get_params"]()))


@pytest.mark.usefixtures("empty_caches")
def test_updates() -> None:
    for args in [
        ("w", X), ("w", X), ("w", X, False), ("w", X[:1], True), ("w", X, 0), ("w", X[:1], 1),
        ("new", X, False),
    ]:  # fmt: skip
        compare("tensor_cache.update", *args)
        compare("tensor_cache.get", "w")
    for _ in range(2):
        compare("tensor_cache.remove", "w")
        compare("tensor_cache.get", "w")
    compare("tensor_cache.clear")
    compare("tensor_cache.get", "new")


# Intended differences


def test_differences() -> None:
    """Each with TVM's behaviour, so that a change of TVM is noticed."""
    batch = np.log(f32(.2, .8, .4, .6).reshape(2, 2))
    other = tvm_side.to_tvm(batch)
    theirs("apply_softmax_with_temperature")(other, 1.0)
    assert np.allclose(other.numpy()[1], batch[1])  # only the first row
    ours("apply_softmax_with_temperature")(batch, 1.0)
    assert np.allclose(batch, [[.2, .8], [.4, .6]])

    assert theirs("sample_top_p_from_prob")(tvm_side.to_tvm(f32(0, 0)), 1.0, .5) == 1
    assert outcome(ours("sample_top_p_from_prob"), [f32(0, 0), 1.0, .5]) is InternalError
    assert theirs("sample_top_p_from_logits")(tvm_side.to_tvm(f32(np.nan, 1)), 0, 1.0, .5) == 0
    assert outcome(ours("sample_top_p_from_logits"), [f32(np.nan, 1), 0, 1.0, .5]) is InternalError

    # A sample of 1 selects a token that is not among the kept ones.
    assert theirs("sample_top_p_from_prob")(tvm_side.to_tvm(f32(.2, .5, .3)), .5, 1.0) == 0
    assert ours("sample_top_p_from_prob")(f32(.2, .5, .3), .5, 1.0) == 1

    penalised = tvm_side.to_tvm(f32(1, 2))
    theirs("apply_repetition_penalty")(penalised, tvm_side.to_tvm(i32(0)), 0.0)
    assert penalised.numpy().tolist() == [[np.inf, 2]]
    assert outcome(ours("apply_repetition_penalty"), [f32(1, 2), i32(0), 0.0]) is ValueError


# Builtins that operators are lowered to


@pytest.mark.parametrize("axis", [(), (0,), (1,), (-1,)], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_unique(dtype: str, axis: tuple[int, ...]) -> None:
    x = np.array([[2, 1, 0, 1], [2, 1, 0, 1], [0, 0, 3, 0]]).astype(dtype)
    function, reference = get_func("relax.run.unique"), tvm.get_global_func("relax.run.unique")
    for is_sorted, *flags in itertools.product((0, 1), repeat=4):
        given = (is_sorted, *flags, *axis)
        wanted, got = reference(tvm.runtime.tensor(x), *given), function(x, *given)
        if not any(flags):
            wanted, got = (wanted,), (got,)
        wanted = [part.numpy() for part in wanted]
        if flags[1] and not axis:  # declared to be of rank 1; numpy gives it x's shape
            wanted[1 + flags[0]] = wanted[1 + flags[0]].reshape(-1)
        assert len(got) == len(wanted) == 1 + sum(flags)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_unique_of_wrong_arguments() -> None:
    unique = get_func("relax.run.unique")
    with pytest.raises(TypeError, match="unique: expected a tensor, got int 3"):
        unique(3, 1, 0, 0, 0)
    with pytest.raises(TypeError, match="unique: axis: expected an int, got str 'x'"):
        unique(np.ones(3), 1, 0, 0, 0, "x")
    with pytest.raises(ValueError, match="axis 1 is out of bounds"):
        unique(np.ones(3), 1, 0, 0, 0, 1)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).integers(0, 2, shape)
    wanted = tvm.get_global_func("relax.run.nonzero")(tvm.runtime.tensor(np.asarray(x))).numpy()
    np.testing.assert_array_equal(get_func("relax.run.nonzero")(np.asarray(x)), wanted, strict=True)


def test_programs_with_positions_that_depend_on_values() -> None:
    from tvm.script import ir as I
    from tvm.script import relax as R

    @I.ir_module
    class Positions:
        @R.function
        def main(x: R.Tensor((3, 4), "int64")):
            with R.dataflow():
                p = R.nonzero(x)
                u = R.unique(x, True, return_counts=True)
                R.output(p, u)
            return p, u

    executable = tvm.compile(Positions, "llvm")
    x = np.random.default_rng(1).integers(0, 3, (3, 4))
    wanted = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    positions, (elements, counts) = from_tvm(executable).main(x)
    for a, b in ((positions, wanted[0]), (elements, wanted[1][0]), (counts, wanted[1][1])):
        np.testing.assert_array_equal(a, b.numpy(), strict=True)
