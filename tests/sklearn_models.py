"""Models of scikit-learn, LightGBM and XGBoost as their converters write them, and the results that
onnxruntime has for them.

``python -m tests.sklearn_models`` needs these packages, skl2onnx, onnxmltools, pandas and
onnxruntime (and the locale en_US.UTF-8, for texts), and writes golden/sklearn.npz; the tests
compare relaxvm with that file, and need none of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["RESULTS", "load", "names"]

RESULTS = Path(__file__).parent / "golden" / "sklearn.npz"


def _stored(value: Any) -> np.ndarray:
    """A value without pickle: strings as numpy's, maps and lists of maps as JSON."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value
    if isinstance(value, np.ndarray):
        return value.astype(str)
    maps = [value] if isinstance(value, dict) else value
    pairs = [[list(each), [float(v) for v in each.values()]] for each in maps]
    return np.array(json.dumps([isinstance(value, dict), pairs]))


def _read(value: np.ndarray) -> Any:
    if value.ndim or value.dtype.kind != "U":
        return value.astype(object) if value.dtype.kind == "U" else value
    is_one, pairs = json.loads(str(value))
    maps = tuple(dict(zip(*pair, strict=True)) for pair in pairs)
    return maps[0] if is_one else maps


def names() -> list[str]:
    """The names of the models."""
    with np.load(RESULTS) as found:
        return sorted(name.removesuffix("/model") for name in found if name.endswith("/model"))


def load(name: str) -> tuple[bytes, dict[str, Any], list[Any]]:
    """Return a model, its inputs by name, and the outputs."""
    with np.load(RESULTS) as found:
        parts = {key.removeprefix(f"{name}/"): found[key] for key in found
                 if key.startswith(f"{name}/")}  # fmt: skip
    inputs = {k.removeprefix("in/"): _read(v) for k, v in parts.items() if k.startswith("in/")}
    outputs = [_read(parts[f"out/{i}"]) for i in range(len(parts) - len(inputs) - 1)]
    return parts["model"].tobytes(), inputs, outputs


# Making the file


def _models() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    import lightgbm
    import pandas as pd
    import xgboost
    from onnxmltools import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType as FloatColumns
    from skl2onnx import to_onnx
    from skl2onnx.common import data_types as types
    from sklearn import compose, datasets, ensemble, linear_model, neighbors, svm
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    flowers, kinds = datasets.load_iris(return_X_y=True)
    flowers = flowers.astype(np.float32)
    kind_names = np.array(["setosa", "versicolor", "virginica"])[kinds]
    some = {"X": flowers[::15]}
    for name, model, labels in (
        ("logistic", linear_model.LogisticRegression(max_iter=500), kinds),
        ("logistic of strings", linear_model.LogisticRegression(max_iter=500), kind_names),
        ("forest", ensemble.RandomForestClassifier(4, max_depth=3, random_state=0), kind_names),
        ("boosting", ensemble.GradientBoostingClassifier(n_estimators=4, max_depth=2), kinds > 0),
        ("neighbors", neighbors.KNeighborsClassifier(3), kind_names),
        ("network", MLPClassifier((5,), max_iter=200, random_state=0), kind_names),
        ("svm", svm.SVC(random_state=0), kinds),
        ("svm with probabilities", svm.SVC(probability=True, random_state=0), kind_names),
        ("svm of two", svm.SVC(kernel="poly", random_state=0), kinds > 1),
        ("svm of two with probabilities", svm.SVC(probability=True, random_state=0), kinds > 1),
        ("svm of outliers", svm.OneClassSVM(), kinds),
    ):
        labels = labels.astype(int) if labels.dtype == bool else labels
        yield name, to_onnx(model.fit(flowers, labels), flowers[:1]), some

    texts = np.array([
        "the cat sat on the mat", "A dog", "cats AND dogs are here", "the quick brown fox",
        "hello world, hello", "Don't stop - it's 2024!",
    ])  # fmt: skip
    column = [("X", types.StringTensorType([None, 1]))]
    for name, vectorizer in (
        ("words", TfidfVectorizer(ngram_range=(1, 2))),
        ("characters", CountVectorizer(analyzer="char", ngram_range=(1, 2))),
    ):
        model = make_pipeline(vectorizer, linear_model.LogisticRegression())
        model.fit(texts, ["a", "b", "b", "a", "c", "c"])
        yield name, to_onnx(model, initial_types=column), {"X": texts.reshape(-1, 1).astype(object)}
    records = [{"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 1.0}]
    entry = types.DictionaryType(types.StringType(), types.FloatTensorType([1]))
    model = DictVectorizer(sparse=False).fit(records)
    yield "dict", to_onnx(model, initial_types=[("X", entry)]), {"X": records[1]}

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "a": flowers[:, 0], "b": flowers[:, 1],
        "c": np.array(["u", "v", "w"], object)[rng.integers(0, 3, len(flowers))],
        "d": rng.integers(0, 4, len(flowers)),
    })  # fmt: skip
    columns = [
        ("a", types.FloatTensorType([None, 1])), ("b", types.FloatTensorType([None, 1])),
        ("c", types.StringTensorType([None, 1])), ("d", types.Int64TensorType([None, 1])),
    ]  # fmt: skip
    for name, encoder in (("one-hot", OneHotEncoder()), ("ordinal", OrdinalEncoder())):
        prepared = compose.ColumnTransformer(
            [("scaled", StandardScaler(), ["a", "b"]), ("coded", encoder, ["c"]),
             ("numbers", encoder, ["d"])]
        )  # fmt: skip
        model = make_pipeline(prepared, linear_model.LogisticRegression(max_iter=500))
        model.fit(frame, kinds)
        inputs = {key: frame[[key]].values[::15] for key in frame}
        yield f"columns, {name}", to_onnx(model, initial_types=columns), inputs
    features = [("X", FloatColumns([None, 4]))]
    boosted = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1)
    yield "lightgbm", convert_lightgbm(boosted.fit(flowers, kinds), initial_types=features), some
    trees = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(flowers, kinds)
    yield "xgboost", convert_xgboost(trees, initial_types=features), some


def _main() -> int:
    import onnxruntime

    arrays = {}
    for name, model, inputs in _models():
        data = model.SerializeToString()
        outputs = onnxruntime.InferenceSession(data).run(None, inputs)
        arrays[f"{name}/model"] = np.frombuffer(data, np.uint8)
        arrays |= {f"{name}/in/{key}": _stored(value) for key, value in inputs.items()}
        arrays |= {f"{name}/out/{i}": _stored(value) for i, value in enumerate(outputs)}
        print(f"{name}: {len(data)} bytes")
    np.savez_compressed(RESULTS, **arrays)
    print(RESULTS.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
