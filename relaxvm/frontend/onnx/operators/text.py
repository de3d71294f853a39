"""Strings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....ir import ANY, Expr, ShapeExpr, StringImm, TensorType, TupleGetItem, TupleType
from ....op.registry import CONSTRUCTORS
from ...common.values import TensorKind, Value, as_expr
from ..graph import Graph, Problem
from ..registry import MICROSOFT, onnx
from ..strings import table_of

__all__ = ["numbers_as_strings", "strings_as_numbers", "strings_equal"]


def _checked(value: Value, name: str) -> Value:
    if value.dtype != "str":
        raise Problem(f"{name}: expected strings, got a tensor of {value.dtype}")
    return value


def _strings(texts: list[str]) -> Value:
    found = np.empty(len(texts), object)
    found[:] = texts
    return Value(known=found, dtype="str")


def _broadcast(g: Graph, a: Value, b: Value, dtype: str) -> TensorKind:
    """What the sum of the indices would be."""
    left, right = table_of(g, a)[1], table_of(g, b)[1]
    return _kind(Value(CONSTRUCTORS["add"](g.expr(left), g.expr(right))), dtype)


def _kind(value: Value, dtype: str) -> TensorKind:
    return TensorKind(dtype, value.ndim, value.dims)


@onnx("StringConcat", since=20)
def string_concat(g: Graph, a: Value, b: Value) -> Value:
    """Each string with another one behind it."""
    result = g.builtin("string_concat", [_checked(a, "X"), _checked(b, "Y")])
    return g.typed(result, _broadcast(g, a, b, "str"))


def strings_equal(g: Graph, a: Value, b: Value) -> Value:
    """Whether strings are equal."""
    result = g.builtin("string_equal", [_checked(a, "A"), _checked(b, "B")])
    return g.typed(result, _broadcast(g, a, b, "bool"))


@onnx("StringNormalizer", since=10)
def string_normalizer(
    g: Graph,
    x: Value,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
) -> Value:
    """Strings in upper or lower case, without some of them."""
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise Problem(
            f"case_change_action: expected NONE, LOWER or UPPER, got {case_change_action!r}"
        )
    words = _strings(stopwords or [])
    result = g.builtin(
        "string_normalize",
        [_checked(x, "X"), StringImm(case_change_action), is_case_sensitive, words],
    )
    return g.typed(result, TensorKind("str", x.ndim))


@onnx("StringSplit", since=20)
def string_split(
    g: Graph, x: Value, *, delimiter: str | None = None, maxsplit: int | None = None
) -> Any:
    """The parts of strings, and how many there are."""
    text = None if delimiter is None else StringImm(delimiter)
    most = -1 if maxsplit is None else maxsplit
    ty = TupleType([ANY, TensorType(None, "int64")])
    call = g.builtin("string_split", [_checked(x, "X"), text, most], ty)
    dims = None if x.dims is None else (*x.dims, None)
    parts = TensorKind("str", -1 if x.ndim < 0 else x.ndim + 1, dims)
    found = g.typed(g.emit(TupleGetItem(call, 0)), parts)
    return found, g.typed(g.emit(TupleGetItem(call, 1)), _kind(x, "int64"))


@onnx("RegexFullMatch", since=20)
def regex_full_match(g: Graph, x: Value, *, pattern: str) -> Value:
    """Whether a regular expression matches the whole of each string, in linear time."""
    result = g.builtin("regex_full_match", [_checked(x, "X"), StringImm(pattern)])
    return g.typed(result, _kind(x, "bool"))


@onnx("Tokenizer", since=1, domain=MICROSOFT)
def tokenizer(
    g: Graph,
    x: Value,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: list[str] | None = None,
    stopwords: list[str] | None = None,
    tokenexp: str | None = None,
) -> Value:
    """The tokens of strings, which a regular expression matches or separates."""
    if stopwords:
        raise Problem("stopwords are not supported")
    if (tokenexp is None) == (separators is None):
        raise Problem("expected separators or tokenexp")
    if mincharnum < 1:
        raise Problem(f"mincharnum: expected 1 or more, got {mincharnum}")
    patterns = [tokenexp] if tokenexp is not None else separators or []
    if patterns == [""]:
        patterns = []  # a token for each character
    result = g.builtin(
        "tokenize",
        [_checked(x, "X"), _strings(patterns), int(tokenexp is None), mincharnum,
         StringImm(pad_value), int(bool(mark))],
    )  # fmt: skip
    dims = None if x.dims is None else (*x.dims, None)
    return g.typed(result, TensorKind("str", -1 if x.ndim < 0 else x.ndim + 1, dims))


@onnx("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    g: Graph,
    x: Value,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Expr:
    """How often n-grams occur."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Problem(f"mode: expected TF, IDF or TFIDF, got {mode!r}")
    pool = Value(known=np.array(pool_int64s or [], np.int64))
    if pool_strings is not None:
        pool = _strings(pool_strings)
    if (pool.dtype == "str") != (x.dtype == "str"):
        raise Problem(f"expected elements of the pool and of X of one kind, got {x.dtype}")
    factors: NDArray[Any] | None = None if weights is None else np.array(weights, np.float32)
    width = as_expr(max(ngram_indexes, default=-1) + 1)
    dims = None if x.dims is None else [*x.dims[:-1], width]
    return g.builtin(
        "tf_idf",
        [x, pool, _shape(ngram_counts), _shape(ngram_indexes), min_gram_length, max_gram_length,
         max_skip_count, StringImm(mode), factors],
        TensorType.of(dims, "float32", ndim=x.ndim),
    )  # fmt: skip


def _shape(numbers: list[int]) -> ShapeExpr:
    return ShapeExpr([as_expr(number) for number in numbers])


def numbers_as_strings(g: Graph, x: Value) -> Value:
    """Numbers as text."""
    return g.typed(g.builtin("number_to_string", [x]), _kind(x, "str"))


def strings_as_numbers(g: Graph, x: Value, dtype: str) -> Value:
    """The numbers that strings spell."""
    return g.typed(g.builtin("string_to_number", [x, StringImm(dtype)]), _kind(x, dtype))
