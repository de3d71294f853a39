"""Operators of ai.onnx.ml on numbers: features and linear models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....ir import Expr, IntImm
from ....op.registry import CONSTRUCTORS
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import ML, onnx
from ..strings import moved, table_of
from .attention import dims_of, length_of
from .classes import as_float, dtype_of_numbers, labelled, texts_at, transformed
from .ranks import at_least, in_shape, rank_of, shape_vector
from .text import strings_equal

__all__: list[str] = []


# Features


@onnx("ArrayFeatureExtractor", since=1, domain=ML)
def array_feature_extractor(g: Graph, x: Value, y: Value) -> Expr:
    """Elements along the last axis, by index."""
    if x.ndim == 0:
        raise Problem(f"X: expected a tensor with axes, got {x.type}")
    return g.op("take", at_least(g, x, 2), g.op("flatten", y), -1)


@onnx("Binarizer", since=1, domain=ML)
def binarizer(g: Graph, x: Value, *, threshold: float = 0.0) -> Expr:
    """1 where x is above the threshold, else 0."""
    above = g.op("greater", x, np.array(threshold, dtype_of_numbers(x)))
    return g.op("astype", above, x.dtype)


@onnx("FeatureVectorizer", since=1, domain=ML)
def feature_vectorizer(g: Graph, *xs: Value, inputdimensions: list[int]) -> Expr:
    """All inputs side by side, each cut or filled up with zeros to its number of columns."""
    if len(xs) != len(inputdimensions) or not xs:
        raise Problem(f"inputdimensions: expected {len(xs)} numbers, got {len(inputdimensions)}")
    parts = []
    for x, want in zip(xs, inputdimensions, strict=True):
        matrix = Value(g.op("expand_dims", x, (1,))) if rank_of(x, "x", 1, 2) == 1 else x
        rows, columns = dims_of(g, matrix, 2, "x")
        have = length_of(columns)
        part: Any = matrix
        if have is None:
            rest = g.op("zeros", (rows, want), x.dtype)
            part = g.op("strided_slice", g.op("concat", [matrix, rest], 1), [1], [0], [want])
        elif have > want:
            part = g.op("strided_slice", matrix, [1], [0], [want])
        elif have < want:
            part = g.op("nn.pad", matrix, [0, 0, 0, want - have])
        parts.append(g.expr(part))
    return g.op("concat", parts, 1) if len(parts) > 1 else parts[0]


@onnx("Imputer", since=1, domain=ML)
def imputer(
    g: Graph,
    x: Value,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Expr:
    """Other values, one for all columns or for each, in place of one value, which may be NaN."""
    values: list[Any] = imputed_value_floats or imputed_value_int64s or []
    replaced: Any = replaced_value_float if imputed_value_floats else replaced_value_int64
    columns = length_of(dims_of(g, x, 2, "X")[1])
    if not values or (columns is not None and len(values) not in (1, columns)):
        raise Problem(f"expected 1 or {columns} imputed values, got {len(values)}")
    if math.isnan(replaced):
        missing = g.op("isnan", x)
    else:
        missing = g.op("equal", x, np.array(replaced, dtype_of_numbers(x)))
    return g.op("where", missing, np.array(values, dtype_of_numbers(x)), x)


@onnx("Normalizer", since=1, domain=ML)
def normalizer(g: Graph, x: Value, *, norm: str = "MAX") -> Expr:
    """Rows divided by their greatest absolute value, the sum of these, or their length."""
    x = as_float(g, x)
    if norm == "MAX":
        size = g.op("max", g.op("abs", x), [-1], True)
    elif norm == "L1":
        size = g.op("sum", g.op("abs", x), [-1], True)
    elif norm == "L2":
        size = g.op("sqrt", g.op("sum", g.op("multiply", x, x), [-1], True))
    else:
        raise Problem(f"norm: expected MAX, L1 or L2, got {norm!r}")
    return g.op("divide", x, g.op("maximum", size, np.array(1e-30, dtype_of_numbers(x))))


@onnx("Scaler", since=1, domain=ML)
def scaler(
    g: Graph, x: Value, *, offset: list[float] | None = None, scale: list[float] | None = None
) -> Expr:
    """(x - offset) * scale, with a number for all columns or for each; float32."""
    columns = length_of(x.dims[-1]) if x.dims else None
    for name, given in (("offset", offset), ("scale", scale)):
        if given and columns is not None and len(given) not in (1, columns):
            raise Problem(f"{name}: expected 1 or {columns} numbers, got {len(given)}")
    found: Any = g.expr(x) if x.dtype == "float32" else g.op("astype", x, "float32")
    if offset:
        found = g.op("subtract", found, np.array(offset, np.float32))
    return g.op("multiply", found, np.array(scale, np.float32)) if scale else found


def _codes(g: Graph, x: Value, keys: NDArray[Any]) -> Expr:
    """For each element and key, whether they are equal, along a last axis; NaN is equal to NaN."""
    if keys.dtype == object:
        if x.ndim < 0:
            (flat,) = moved(g, [x], lambda given: [Value(g.op("reshape", given[0], (-1,)))])
            assert flat is not None
            codes = Value(_codes(g, flat, keys))
            shape = shape_vector(g, table_of(g, x)[1])
            dims = g.op("concat", [shape, np.array([len(keys)])], 0)
            return g.expr(in_shape(g, codes, dims))
        texts = Value(known=keys.reshape(-1, *[1] * x.ndim), dtype="str")
        found = g.expr(strings_equal(g, texts, x))
        return g.op("permute_dims", found, (*range(1, x.ndim + 1), 0))
    apart = g.op("expand_dims", x, (-1,))
    same = g.op("equal", apart, keys)
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        both = g.op("logical_and", g.op("isnan", apart), np.isnan(keys))
        same = g.op("logical_or", same, both)
    return same


def _texts(texts: list[str]) -> NDArray[Any]:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


@onnx("OneHotEncoder", since=1, domain=ML)
def one_hot_encoder(
    g: Graph,
    x: Value,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> Expr:
    """For each element and category, 1 if they are equal, else 0; with zeros=0, elements of no
    category raise an AssertionError."""
    if x.dtype == "str":
        categories = _texts(cats_strings or [])
    else:
        categories = np.array(cats_int64s or [], np.int64)
        x = x if x.dtype == "int64" else Value(g.op("astype", x, "int64"))
    if not len(categories):
        raise Problem("expected categories of the data type of X")
    codes = _codes(g, x, categories)
    if not zeros:
        hits = g.op("max", g.op("astype", codes, "int64"), [-1])
        misses = g.op("sum", g.op("subtract", np.array(1), hits))
        condition = g.op("equal", misses, np.array(0))
        g.context.effects += 1
        g.emit(CONSTRUCTORS["assert_op"](condition, [], "X: an element is none of the categories"))
    return g.op("astype", codes, "float32")


@onnx("LabelEncoder", since=1, domain=ML)
def label_encoder_of_classes(
    g: Graph,
    x: Value,
    *,
    classes_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Expr | Value:
    """The place of each string in a list, or the string at each place; a default for others."""
    classes = classes_strings or []
    if not classes:
        raise Problem("expected classes_strings")
    places = list(range(len(classes)))
    if x.dtype == "str":
        # Of equal strings the last one counts, as in version 2.
        return label_encoder(
            g, x, keys_strings=classes, values_int64s=places, default_int64=default_int64
        )
    return label_encoder(
        g, x, keys_int64s=places, values_strings=classes, default_string=default_string
    )


@onnx("LabelEncoder", since=2, domain=ML)
def label_encoder(
    g: Graph,
    x: Value,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: NDArray[Any] | None = None,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: NDArray[Any] | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: NDArray[Any] | None = None,
) -> Expr | Value:
    """The value of each element that is a key, a default for the others."""
    if keys_tensor is not None:
        keys = keys_tensor.reshape(-1)
    elif x.dtype == "str":
        keys = _texts(keys_strings or [])
    else:
        keys = np.array(keys_floats or keys_int64s or [], dtype_of_numbers(x))
    default: Any = default_float
    values = np.array(values_floats or [], np.float32)
    if values_int64s:
        default, values = default_int64, np.array(values_int64s, np.int64)
    if values_strings:
        default, values = default_string, _texts(values_strings)
    if values_tensor is not None:
        values = values_tensor.reshape(-1)
        default = {"f": -0.0, "O": "_Unused"}.get(values.dtype.kind, -1)
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    if len(keys) != len(values) or not len(keys):
        raise Problem(f"expected a value for each key, got {len(values)} for {len(keys)}")
    if keys.dtype != (object if x.dtype == "str" else dtype_of_numbers(x)):
        raise Problem(f"expected keys of the data type of X, {x.dtype}, got {keys.dtype}")
    # Of equal keys the last one counts.
    same = g.op("astype", _codes(g, x, keys[::-1].copy()), "int8")
    place = g.op("argmax", same, x.ndim)
    is_key = g.op("astype", g.op("max", same, [x.ndim], False), "bool")
    if values.dtype == object:
        place = g.op("where", is_key, place, np.array(len(values), np.int64))
        return texts_at(g, [*values[::-1].tolist(), default], place)
    chosen = g.op("take", values[::-1].copy(), place, 0)
    return g.op("where", is_key, chosen, np.array(default, values.dtype))


# Linear models


@onnx("LinearRegressor", since=1, domain=ML)
def linear_regressor(
    g: Graph,
    x: Value,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Expr:
    """x @ coefficients^T + intercepts."""
    scores = _linear(g, x, coefficients, intercepts, targets)
    found = transformed(g, scores, post_transform)
    return found if found.ty.dtype == "float32" else g.op("astype", found, "float32")


def _linear(
    g: Graph, x: Value, coefficients: list[float], intercepts: list[float] | None, rows: int
) -> Expr:
    x = as_float(g, x)
    if x.ndim == 1:
        x = Value(g.op("expand_dims", x, (0,)))
    if rows < 1 or len(coefficients) % rows:
        raise Problem(f"coefficients: expected a multiple of {rows}, got {len(coefficients)}")
    weights = np.array(coefficients, dtype_of_numbers(x)).reshape(rows, -1).T.copy()
    columns = dims_of(g, x, 2, "X")[1]
    if isinstance(columns, IntImm) and columns.value != len(weights):
        raise Problem(
            f"coefficients: expected {columns} for each of {rows} rows, as X is {x.type}, got "
            f"{len(weights)}"
        )
    scores = g.op("matmul", x, weights)
    if not intercepts:
        return scores
    if len(intercepts) not in (1, rows):
        raise Problem(f"intercepts: expected {rows} numbers, got {len(intercepts)}")
    return g.op("add", scores, np.array(intercepts, dtype_of_numbers(x)))


@onnx("LinearClassifier", since=1, domain=ML)
def linear_classifier(
    g: Graph,
    x: Value,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Any:
    """The class with the greatest score, and the scores, x @ coefficients^T + intercepts."""
    labels = classlabels_ints or classlabels_strings or [0]
    rows = len(intercepts) if intercepts else len(labels)
    scores = _linear(g, x, coefficients, intercepts, rows)
    return labelled(g, scores, classlabels_ints, classlabels_strings, post_transform)


# Optimizers

TRAINING: Final = "ai.onnx.preview.training"


def _groups(xs: tuple[Value, ...], parts: int) -> list[tuple[Value, ...]]:
    """For each tensor that is optimized its operands, which come one kind after the other."""
    if not xs or len(xs) % parts:
        raise Problem(f"expected {parts} inputs for each tensor, got {len(xs)}")
    count = len(xs) // parts
    return [tuple(xs[i + k * count] for k in range(parts)) for i in range(count)]


class _Arithmetic:
    """Arithmetic of tensors and numbers."""

    def __init__(self, g: Graph, like: Value) -> None:
        self.g = g
        self.dtype = dtype_of_numbers(like)

    def __call__(self, name: str, *operands: Any) -> Value:
        """A call of an operator."""
        return Value(self.g.op(name, *[
            each if isinstance(each, (Value, Expr)) else np.array(each, self.dtype)
            for each in operands
        ]))  # fmt: skip


def _regularized(f: _Arithmetic, x: Value, gradient: Value, norm: float) -> Value:
    return f("add", f("multiply", x, norm), gradient) if norm else gradient


def _outputs(results: Sequence[tuple[Value, ...]]) -> tuple[Value, ...]:
    return tuple(each for kind in zip(*results, strict=True) for each in kind)


@onnx("Adagrad", since=1, domain=TRAINING)
def adagrad(
    g: Graph,
    r: Value,
    t: Value,
    *xs: Value,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    """A step of Adagrad: the learning rate divided by the length of all gradients so far."""
    results = []
    for x, gradient, squares in _groups(xs, 3):
        f = _Arithmetic(g, x)
        count = Value(g.op("astype", t, x.dtype))
        rate = f("divide", r, f("add", f("multiply", count, decay_factor), 1))
        slope = _regularized(f, x, gradient, norm_coefficient)
        total = f("add", squares, f("multiply", slope, slope))
        size = f("add", f("sqrt", total), epsilon)
        step = f("divide", f("multiply", rate, slope), size)
        results.append((f("subtract", x, step), total))
    return _outputs(results)


@onnx("Adam", since=1, domain=TRAINING)
def adam(
    g: Graph,
    r: Value,
    t: Value,
    *xs: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    """A step of Adam: running means of gradients and of their squares."""
    results = []
    for x, gradient, mean, squares in _groups(xs, 4):
        f = _Arithmetic(g, x)
        slope = _regularized(f, x, gradient, norm_coefficient)
        mean = f("add", f("multiply", mean, alpha), f("multiply", slope, 1 - alpha))
        square = f("multiply", slope, slope)
        squares = f("add", f("multiply", squares, beta), f("multiply", square, 1 - beta))
        size = f("add", f("sqrt", squares), epsilon)
        count = Value(g.op("astype", t, x.dtype))
        is_first = f("less_equal", count, 0)
        root = f("sqrt", f("subtract", 1, f("power", beta, count)))
        part = f("where", is_first, 1, f("subtract", 1, f("power", alpha, count)))
        factor = f("where", is_first, 1, f("divide", root, part))
        step = f("multiply", f("multiply", r, factor), f("divide", mean, size))
        moved = f("multiply", f("subtract", x, step), 1 - norm_coefficient_post)
        results.append((moved, mean, squares))
    return _outputs(results)


@onnx("Momentum", since=1, domain=TRAINING)
def momentum(
    g: Graph,
    r: Value,
    t: Value,
    *xs: Value,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """A step along the running sum of gradients; "nesterov" looks a step ahead."""
    if mode not in ("standard", "nesterov"):
        raise Problem(f"mode: expected standard or nesterov, got {mode!r}")
    results = []
    for x, gradient, speed in _groups(xs, 3):
        f = _Arithmetic(g, x)
        slope = _regularized(f, x, gradient, norm_coefficient)
        count = Value(g.op("astype", t, x.dtype))
        share = f("where", f("greater", count, 0), beta, 1)
        speed = f("add", f("multiply", speed, alpha), f("multiply", share, slope))
        step = speed
        if mode == "nesterov":
            step = f("add", slope, f("multiply", speed, alpha))
        results.append((f("subtract", x, f("multiply", r, step)), speed))
    return _outputs(results)
