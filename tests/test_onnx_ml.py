"""Operators of ai.onnx.ml, and steps of optimizers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import relaxvm
from relaxvm import VirtualMachine, build
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx_quantized import inputs_of

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ML = "ai.onnx.ml"
RNG = np.random.default_rng(8)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(op_type: str, arrays: dict[str, Any], count: int = 1, version: int = 5,
             domain: str = ML, rows: bool = False, **attributes: Any) -> Any:  # fmt: skip
    """A model of one node; with rows, the first dimension is symbolic."""
    outputs = [f"y{i}" for i in range(count)]
    inputs = inputs_of(**arrays)
    if rows:
        inputs = {name: (code, ["n", *shape[1:]]) for name, (code, shape) in inputs.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, list(arrays), outputs, domain=domain, **attributes)], "graph",
        [helper.make_tensor_value_info(name, *ty) for name, ty in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(op_type: str, arrays: dict[str, Any], count: int = 1, **settings: Any) -> tuple[Any, ...]:
    """Run a node by relaxvm and by the reference evaluator of onnx, and compare."""
    model = model_of(op_type, arrays, count, **settings)
    want = ReferenceEvaluator(model).run(None, arrays)
    got = VirtualMachine(build(from_onnx(model)))["main"](*arrays.values())
    got = got if isinstance(got, tuple) else (got,)
    for a, b in zip(got, want, strict=True):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, 2e-5, 1e-6)
    return got


# Features


def test_features() -> None:
    x = normal(4, 3)
    check("Binarizer", {"x": x}, threshold=0.2)
    check("Scaler", {"x": x}, offset=[1.0, -2.0, 0.5], scale=[3.0, 0.1, -1.0])
    check("Scaler", {"x": x}, offset=[1.0], scale=[3.0])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", {"x": x}, norm=norm)
    check("ArrayFeatureExtractor", {"x": x, "i": np.array([2, 0])})
    check("ArrayFeatureExtractor", {"x": x[0], "i": np.array([2, 0, 1, 1])})


def test_features_side_by_side() -> None:
    arrays = {"a": normal(4, 3), "b": normal(4, 2), "c": normal(4, 4)}
    (y,) = check("FeatureVectorizer", arrays, inputdimensions=[2, 2, 6])
    assert y.shape == (4, 10)


def test_missing_values() -> None:
    x = normal(5, 3)
    x[1, 0] = x[2, 2] = np.nan
    check("Imputer", {"x": x}, imputed_value_floats=[7.0, 8.0, 9.0],
          replaced_value_float=float("nan"))  # fmt: skip
    check("Imputer", {"x": np.arange(6).reshape(3, 2)}, imputed_value_int64s=[-5],
          replaced_value_int64=4)  # fmt: skip


def test_categories() -> None:
    x = np.array([[3, 5], [7, 3]])
    check("OneHotEncoder", {"x": x}, cats_int64s=[5, 3, 9], zeros=1)
    check("LabelEncoder", {"x": x}, version=2, keys_int64s=[3, 7], values_floats=[1.5, 2.5],
          default_float=-1.0)  # fmt: skip
    check("LabelEncoder", {"x": x}, version=2, keys_int64s=[3, 3], values_int64s=[1, 2],
          default_int64=0)  # fmt: skip


def test_nan_is_a_label() -> None:
    x = np.array([1, np.nan, 2], np.float32)
    model = model_of("LabelEncoder", {"x": x}, version=2, keys_floats=[float("nan"), 2.0],
                     values_int64s=[10, 20], default_int64=-7)  # fmt: skip
    assert VirtualMachine(build(from_onnx(model)))["main"](x).tolist() == [-7, 10, 20]


def test_strings() -> None:
    x = np.array([["b", "a"], ["", "né"]], object)
    given = {"keys_strings": ["a", "né", "b"]}
    check_strings("LabelEncoder", x, {**given, "values_int64s": [5, 6, 7], "default_int64": -3},
                  [[7, 5], [-3, 6]])  # fmt: skip
    check_strings("LabelEncoder", x, {**given, "values_strings": ["x", "y", "z"]},
                  [["z", "x"], ["_Unused", "y"]])  # fmt: skip
    check_strings("LabelEncoder", np.array([2, 9]), {"keys_int64s": [9], "values_strings": ["nine"],
                                                     "default_string": "other"},
                  ["other", "nine"])  # fmt: skip
    check_strings("OneHotEncoder", x[0], {"cats_strings": ["a", "c", "b"]},
                  [[0, 0, 1], [1, 0, 0]])  # fmt: skip


def check_strings(op_type: str, x: Any, settings: dict[str, Any], want: Any) -> None:
    model = model_of(op_type, {"x": x}, version=2, **settings)
    got = VirtualMachine(build(from_onnx(model)))["main"](x)
    assert got.tolist() == want


def test_classes_with_names() -> None:
    x = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    model = model_of("LinearClassifier", {"x": x}, 2, coefficients=[1.0, 0.0, 0.0, 1.0, -1.0, 0.0],
                     classlabels_strings=["east", "north", "west"])  # fmt: skip
    labels, _ = VirtualMachine(build(from_onnx(model)))["main"](x)
    assert labels.tolist() == ["east", "north", "west"]


# Linear models and support vectors


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_models(transform: str) -> None:
    x, weights = normal(5, 4), normal(3, 4)
    check("LinearClassifier", {"x": x}, 2, rows=True, coefficients=weights.reshape(-1).tolist(),
          intercepts=[0.1, -0.2, 0.3], classlabels_ints=[4, 7, 1],
          post_transform=transform)  # fmt: skip
    check("LinearRegressor", {"x": x}, coefficients=weights.reshape(-1).tolist(),
          intercepts=[1.0, 2.0, 3.0], targets=3)  # fmt: skip


def test_two_classes_by_one_score() -> None:
    x, weights = normal(6, 4), normal(4)
    labels, scores = check("LinearClassifier", {"x": x}, 2, coefficients=weights.tolist(),
                           intercepts=[0.1], classlabels_ints=[0, 1],
                           post_transform="LOGISTIC")  # fmt: skip
    assert labels.tolist() == (x @ weights + 0.1 > 0).astype(int).tolist()
    np.testing.assert_allclose(scores.sum(1), 1, 1e-6)


def test_probit() -> None:
    """The inverse of the normal distribution, by an approximation of 0.2 %."""
    x = np.array([[0.1], [0.6], [0.9], [0.975]], np.float32)
    model = model_of("LinearRegressor", {"x": x}, coefficients=[1.0], post_transform="PROBIT")
    got = VirtualMachine(build(from_onnx(model)))["main"](x)
    np.testing.assert_allclose(got.ravel(), [-1.2816, 0.25335, 1.2816, 1.95996], 5e-3)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    x, vectors = normal(5, 4), normal(3, 4)
    settings = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0], "rho": [0.25]}
    check("SVMRegressor", {"x": x}, coefficients=[0.5, -1.0, 2.0], n_supports=3,
          support_vectors=vectors.reshape(-1).tolist(), **settings)  # fmt: skip
    check("SVMRegressor", {"x": x}, coefficients=[0.5, -1.0, 2.0], n_supports=3, one_class=1,
          support_vectors=vectors.reshape(-1).tolist(), **settings)  # fmt: skip


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
@pytest.mark.parametrize("count", [3, 4])
def test_classes_by_votes(kernel: str, count: int) -> None:
    x, sizes = normal(9, 4), [2, 1, 3, 2][:count]
    total = sum(sizes)
    labels, _ = check(
        "SVMClassifier", {"x": x}, 2, kernel_type=kernel, kernel_params=[0.3, 0.5, 2.0],
        vectors_per_class=sizes, support_vectors=normal(total * 4).tolist(),
        coefficients=normal(total * (count - 1)).tolist(),
        rho=(normal(count * (count - 1) // 2) / 9).tolist(), classlabels_ints=[7, 3, 5, 1][:count],
        post_transform="NONE",
    )  # fmt: skip
    assert kernel == "RBF" or len(set(labels.tolist())) > 1


# Trees


def forest(modes: str, trees: int = 3, depth: int = 3) -> dict[str, Any]:
    """Full trees with random features and thresholds: attributes of nodes, and the leaves."""
    names = modes.split()
    nodes: dict[str, list[Any]] = {name: [] for name in (
        "falsenodeids", "featureids", "missing_value_tracks_true", "modes", "nodeids", "treeids",
        "truenodeids", "values")}  # fmt: skip
    for tree in range(trees):
        inner = 2**depth - 1
        for i in range(2 * inner + 1):
            is_leaf = i >= inner
            row = {
                "falsenodeids": 0 if is_leaf else 2 * i + 2,
                "featureids": int(RNG.integers(4)),
                "missing_value_tracks_true": int(RNG.integers(2)),
                "modes": "LEAF" if is_leaf else f"BRANCH_{names[i % len(names)]}",
                "nodeids": i,
                "treeids": tree,
                "truenodeids": 0 if is_leaf else 2 * i + 1,
                "values": float(RNG.integers(-2, 3)),
            }
            for name, value in row.items():
                nodes[name].append(value)
    return {f"nodes_{name}": values for name, values in nodes.items()}


def leaves_of(nodes: dict[str, Any], prefix: str, targets: int) -> dict[str, Any]:
    """Two weights for each leaf."""
    places = [(t, n) for t, n, m in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"],
                                        nodes["nodes_modes"], strict=True)
              if m == "LEAF"] * 2  # fmt: skip
    return {
        f"{prefix}_treeids": [t for t, _ in places],
        f"{prefix}_nodeids": [n for _, n in places],
        f"{prefix}_ids": RNG.integers(0, targets, len(places)).tolist(),
        f"{prefix}_weights": normal(len(places)).tolist(),
    }


def rows_of_trees(count: int = 40) -> np.ndarray:
    """Whole numbers, which meet the thresholds, and NaN."""
    x = RNG.integers(-3, 4, (count, 4)).astype(np.float32)
    x[RNG.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("modes", ["LEQ", "LT", "GTE", "GT", "EQ NEQ", "LEQ LT GTE GT EQ NEQ"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_regression_trees(modes: str, aggregate: str) -> None:
    nodes = forest(modes)
    check("TreeEnsembleRegressor", {"x": rows_of_trees()}, rows=True, version=3, n_targets=2,
          base_values=[0.5, -1.0], aggregate_function=aggregate, **nodes,
          **leaves_of(nodes, "target", 2))  # fmt: skip


@pytest.mark.parametrize("aggregate", ["MIN", "MAX"])
def test_extremes_of_trees(aggregate: str) -> None:
    nodes = forest("LEQ")
    leaves = leaves_of(nodes, "target", 1)
    check("TreeEnsembleRegressor", {"x": rows_of_trees()}, version=3, n_targets=1,
          aggregate_function=aggregate, **nodes, **leaves)  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classification_trees(transform: str) -> None:
    nodes = forest("LEQ LT")
    leaves = leaves_of(nodes, "class", 3)
    labels, _ = check("TreeEnsembleClassifier", {"x": rows_of_trees()}, 2, version=3, rows=True,
                      classlabels_int64s=[5, 2, 9], post_transform=transform, **nodes,
                      **leaves)  # fmt: skip
    assert set(labels.tolist()) <= {5, 2, 9}
    assert labels.dtype == np.int64


def test_trees_of_two_classes() -> None:
    """As onnxruntime has it: the score of the second class, and its negative."""
    nodes = forest("LEQ")
    leaves = leaves_of(nodes, "class", 1)
    x = rows_of_trees()
    for transform in ("NONE", "LOGISTIC"):
        model = model_of("TreeEnsembleClassifier", {"x": x}, 2, version=3,
                         classlabels_int64s=[0, 1], post_transform=transform, **nodes,
                         **leaves)  # fmt: skip
        labels, scores = VirtualMachine(build(from_onnx(model)))["main"](x)
        plain = scores if transform == "NONE" else np.log(scores / (1 - scores))
        np.testing.assert_allclose(plain[:, 0], -plain[:, 1], 1e-4, 1e-5)
        assert labels.tolist() == (plain[:, 1] > 0).astype(int).tolist()


def tree_ensemble(**changed: Any) -> dict[str, Any]:
    """``x0 in (1.5, 4) ? 10 : (x1 < 2 ? 20 : 30)``."""
    return {
        "n_targets": 1, "tree_roots": [0], "aggregate_function": 1,
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [2], [6, 1]),
        "nodes_splits": helper.make_tensor("s", FLOAT, [2], [0.0, 2.0]),
        "nodes_featureids": [0, 1],
        "nodes_truenodeids": [0, 1], "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2], "nodes_falseleafs": [0, 1],
        "leaf_targetids": [0, 0, 0],
        "leaf_weights": helper.make_tensor("w", FLOAT, [3], [10.0, 20.0, 30.0]),
        "membership_values": helper.make_tensor("v", FLOAT, [3], [1.5, 4.0, float("nan")]),
        **changed,
    }  # fmt: skip


def test_sets_in_trees() -> None:
    x = np.array([[1.5, 0], [4, 9], [1, 1], [1, 2], [np.nan, 0]], np.float32)
    model = model_of("TreeEnsemble", {"x": x}, **tree_ensemble())
    got = VirtualMachine(build(from_onnx(model)))["main"](x)
    assert got.tolist() == [[10], [10], [20], [30], [20]]


# Optimizers


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("name", ["Adagrad", "Adam", "Momentum"])
def test_optimizers(name: str, step: int) -> None:
    settings: dict[str, Any] = {
        "Adagrad": {"norm_coefficient": 0.01, "epsilon": 1e-4, "decay_factor": 0.1},
        "Adam": {"norm_coefficient": 0.01, "epsilon": 1e-4, "alpha": 0.9, "beta": 0.99,
                 "norm_coefficient_post": 0.02},
        "Momentum": {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": "nesterov"},
    }[name]  # fmt: skip
    arrays = {"r": np.array(0.1, np.float32), "t": np.array(step)}
    for kind in "xgvh"[: 4 if name == "Adam" else 3]:
        for i, shape in enumerate([(3,), (2, 2)]):
            arrays[f"{kind}{i}"] = abs(normal(*shape)) if kind in "vh" else normal(*shape)
    count = 6 if name == "Adam" else 4
    check(name, arrays, count, version=1, domain="ai.onnx.preview.training", **settings)


# What is refused

X = {"x": np.zeros((2, 3), np.float32)}
CYCLE = {"nodes_truenodeids": [0, 0], "nodes_trueleafs": [1, 0]}


@pytest.mark.parametrize(
    ("op_type", "settings", "message"),
    [
        ("TreeEnsemble", tree_ensemble(**CYCLE), "expected trees, but node"),
        ("TreeEnsemble", tree_ensemble(nodes_falsenodeids=[5, 2]), "node 0 leads to no node"),
        ("TreeEnsemble", tree_ensemble(leaf_targetids=[0, 1, 0]),
         "expected targets below 1, got 1"),
        ("TreeEnsemble", tree_ensemble(tree_roots=[2]), "tree_roots: expected nodes"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0]},
         "coefficients: expected 3 for each of 1 rows, as X"),
        ("LinearRegressor", {"coefficients": [1.0] * 3, "post_transform": "TANH"},
         "post_transform: 'TANH' is not a transformation"),
        ("Scaler", {"offset": [1.0, 2.0]}, "offset: expected 1 or 3 numbers, got 2"),
        ("Normalizer", {"norm": "L3"}, "norm: expected MAX, L1 or L2, got 'L3'"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "expected 1 or 3 imputed values, got 2"),
        ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1, "support_vectors": [1.0, 2.0],
                          "rho": [0.0]}, "support_vectors: expected vectors of 3, got 2"),
        ("SVMClassifier", {"coefficients": [1.0], "rho": [0.0], "classlabels_ints": [0, 1],
                           "support_vectors": [1.0] * 6, "vectors_per_class": [1, 1]},
         "expected coefficients and vectors of 2 supports"),
        ("SVMClassifier", {"coefficients": [1.0] * 2, "rho": [0.0], "classlabels_ints": [0, 1],
                           "support_vectors": [1.0] * 6, "vectors_per_class": [1, 1],
                           "prob_a": [1.0]},
         "expected prob_a and prob_b for 1 pairs of classes"),
        ("SVMClassifier", {"coefficients": [1.0] * 2, "rho": [0.0], "classlabels_ints": [0, 1],
                           "support_vectors": [1.0] * 6, "vectors_per_class": [1, 1],
                           "post_transform": "LOGISTIC"},
         "post_transform: 'LOGISTIC' of the scores of two classes is not supported"),
        ("SVMClassifier", {"coefficients": [1.0], "rho": [0.0], "classlabels_ints": [0],
                           "support_vectors": [1.0] * 3, "vectors_per_class": [1]},
         "expected vectors for each class, and a rho for two each, got 1 classes"),
        ("SVMClassifier", {"coefficients": [1.0], "rho": [0.0], "prob_a": [1.0]},
         "probabilities without support vectors are not supported"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]},
         "expected a value for each key, got 1 for 0"),
        ("FeatureVectorizer", {"inputdimensions": [1, 2]},
         "inputdimensions: expected 1 numbers, got 2"),
    ],
)  # fmt: skip
def test_what_is_refused(op_type: str, settings: Any, message: str) -> None:
    version = 2 if op_type == "LabelEncoder" else 5
    with pytest.raises(RelaxVMError, match=re.escape(message)):
        from_onnx(model_of(op_type, X, version=version, **settings))


def test_training_by_gradients_is_refused() -> None:
    model = model_of("Gradient", X, domain="ai.onnx.preview.training", version=1, xs=["x"], y="x")
    message = "ai.onnx.preview.training.Gradient, version 1: there is no such operator"
    with pytest.raises(RelaxVMError, match=message):
        from_onnx(model)


# The kernel


def trees(**changed: Any) -> list[Any]:
    """One tree: x0 <= 1 ? 5 : 7."""
    arguments = {
        "x": np.array([[0], [2]], np.float32), "thresholds": np.array([1, 0, 0], np.float32),
        "features": np.zeros(3, np.int32), "modes": np.array([1, 0, 0], np.int8),
        "branches": np.array([[1, 2], [1, 1], [2, 2]], np.int32), "roots": np.array([0], np.int32),
        "starts": np.array([0, 0, 1, 2], np.int32), "targets": np.zeros(2, np.int32),
        "weights": np.array([5, 7], np.float32), "aggregate": "SUM", "count": 1,
        "out": np.empty((2, 1), np.float32),
    }  # fmt: skip
    return list({**arguments, **changed}.values())


def test_the_kernel() -> None:
    run = relaxvm.get_func("relaxvm.kernel.tree_ensemble")
    arguments = trees()
    run(*arguments)
    assert arguments[-1].tolist() == [[5], [7]]
    over = trees()
    over[-1] = over[0]
    run(*over)
    assert over[-1].tolist() == [[5], [7]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros(2, np.float32)}, "x: expected 2 axes, got"),
        ({"features": np.full(3, 1, np.int32)},
         "features: expected numbers from 0 to 0, got others"),
        ({"branches": np.full((3, 2), 3, np.int32)},
         "branches: expected numbers from 0 to 2, got others"),
        ({"branches": np.zeros((3, 2), np.int32)}, "branches: expected trees, got a cycle"),
        ({"starts": np.zeros(2, np.int32)}, "starts: expected shape [4], got"),
        ({"targets": np.ones(2, np.int32)}, "targets: expected numbers from 0 to 0, got others"),
        ({"weights": np.ones(3, np.float32)}, "weights: expected shape [2], got"),
        ({"out": np.empty((2, 2), np.float32)}, "out: expected float32[2, 1], got"),
    ],
)  # fmt: skip
def test_the_kernel_refuses(changed: Any, message: str) -> None:
    run = relaxvm.get_func("relaxvm.kernel.tree_ensemble")
    with pytest.raises(ValueError, match=re.escape(f"tree_ensemble: {message}")):
        run(*trees(**changed))


def test_labels_of_the_first_version() -> None:
    """The numbers are places in a list; opset 1 of ai.onnx.ml, which converters still write."""

    def run(x: Any, **attributes: Any) -> Any:
        model = model_of("LabelEncoder", {"x": x}, version=1, **attributes)
        return VirtualMachine(build(from_onnx(model)))["main"](x)

    texts = np.array(["b", "é", "z"], object)
    places = run(texts, classes_strings=["a", "b", "é"], default_int64=7)
    assert places.dtype == np.int64
    assert places.tolist() == [1, 2, 7]
    names = run(np.array([[2, 0], [3, -1]]), classes_strings=["a", "b", "é"], default_string="?")
    assert names.tolist() == [["é", "a"], ["?", "?"]]
    with pytest.raises(RelaxVMError, match="expected classes_strings"):
        run(np.array([1]))
