"""Ensembles of decision trees of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....ir import Expr, TensorType, int_imm
from ....kernels.trees import EQUAL, IF_MISSING, LEAF, LESS, LESS_EQUAL
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import ML, onnx
from .attention import dims_of
from .classes import labelled, transformed

__all__: list[str] = []

_COMPARISONS: Final = {
    "BRANCH_LEQ": (LESS_EQUAL, False),
    "BRANCH_LT": (LESS, False),
    "BRANCH_GTE": (LESS, True),
    "BRANCH_GT": (LESS_EQUAL, True),
    "BRANCH_EQ": (EQUAL, False),
    "BRANCH_NEQ": (EQUAL, True),
}
"""Comparisons, and whether the branches change places."""
_BY_NUMBER: Final = (*[f"BRANCH_{name}" for name in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")],
                     "MEMBER")  # fmt: skip


_MOST_FEATURES: Final = (1 << 31) - 1


class _Nodes:
    """The table of nodes that the kernel takes, while it grows.

    Attributes:
        thresholds, features, modes: of each node; of leaves 0, 0 and `LEAF`.
        branches: the nodes that follow; a leaf follows itself.
        leaves: triples of a leaf, a target and a weight.
    """

    def __init__(self) -> None:
        self.thresholds: Any = []
        self.features: Any = []
        self.modes: Any = []
        self.branches: Any = []
        self.leaves: Any = []

    def leaf(self) -> int:
        """A new leaf; its number."""
        return self._add(0.0, 0, LEAF)

    def node(self, mode: str, threshold: float, feature: int, if_missing: bool) -> int:
        """A new node, whose branches are set later; its number."""
        comparison, swaps = _COMPARISONS[mode]
        passes = if_missing != swaps
        return self._add(threshold, feature, comparison + IF_MISSING * passes)

    def _add(self, threshold: float, feature: int, mode: int) -> int:
        self.thresholds.append(threshold)
        self.features.append(feature)
        self.modes.append(mode)
        self.branches.append([len(self.branches)] * 2)
        return len(self.modes) - 1

    def weights_of_one_target(self) -> None:
        """Let all weights count for the first target."""
        places, _, weights = self._columns()
        self.leaves = (places, np.zeros_like(places), weights)

    def _columns(self) -> Any:
        return self.leaves if isinstance(self.leaves, tuple) else tuple(
            np.array(column, kind) for column, kind in zip(
                zip(*self.leaves, strict=True) if self.leaves else ((), (), ()),
                (np.int64, np.int64, np.float64), strict=True,
            )
        )  # fmt: skip

    def connect(self, at: int, mode: str, if_true: int, if_false: int) -> None:
        """Set the branches of a node."""
        swaps = _COMPARISONS[mode][1]
        self.branches[at] = [if_false, if_true] if swaps else [if_true, if_false]

    def run(
        self, g: Graph, x: Value, roots: Sequence[int], aggregate: str, count: int
    ) -> Expr:
        """The call of the kernel."""
        self._check(roots)
        if aggregate not in ("SUM", "AVERAGE", "MIN", "MAX"):
            raise Problem(f"aggregate_function: expected SUM, AVERAGE, MIN or MAX, got {aggregate}")
        dtype = np.dtype(x.dtype)
        places, targets, weights = self._columns()
        order = np.argsort(places, kind="stable")
        places, targets, weights = places[order], targets[order], weights[order]
        wrong = targets[(targets < 0) | (targets >= count)]
        if len(wrong):
            raise Problem(f"expected targets below {count}, got {wrong[0]}")
        features = np.array(self.features, np.int64)
        far = features[(features < 0) | (features > _MOST_FEATURES)]
        if len(far):
            raise Problem(f"expected numbers of features up to {_MOST_FEATURES}, got {far[0]}")
        tables: list[NDArray[Any]] = [
            np.array(self.thresholds, dtype),
            features.astype(np.int32),
            np.array(self.modes, np.int8),
            np.array(self.branches, np.int32).reshape(-1, 2),
            np.array(roots, np.int32),
            np.searchsorted(places, np.arange(len(self.modes) + 1)).astype(np.int32),
            targets.astype(np.int32),
            weights.astype(dtype),
        ]
        rows = dims_of(g, x, 2, "X")[0]
        ty = TensorType((rows, int_imm(count)), x.dtype)
        return g.run("tree_ensemble", [x, *tables, aggregate, count], ty, str(x.dtype))

    def _check(self, roots: Sequence[int]) -> None:
        """Refuse nodes that form a cycle, or have two parents in a tree, which would take time."""
        modes = np.array(self.modes, np.int8)
        followers = np.array(self.branches, np.int64).reshape(-1, 2)[modes != LEAF].reshape(-1)
        inner = np.concatenate([followers[modes[followers] != LEAF], np.array(roots, np.int64)])
        if np.bincount(inner, minlength=1).max() < 2:
            return  # no node follows two others, and none leads back to a root
        for root in roots:
            waiting, seen = [root], {root}
            while waiting:
                at = waiting.pop()
                for follower in self.branches[at] if self.modes[at] else ():
                    if self.modes[follower] == LEAF:
                        continue
                    if follower in seen:
                        raise Problem(f"expected trees, but node {follower} has two parents")
                    seen.add(follower)
                    waiting.append(follower)


def _floats(g: Graph, x: Value) -> Value:
    """x as floats, and as rows."""
    if x.ndim == 1:
        x = Value(g.op("expand_dims", x, (0,)))
    return x if x.dtype in ("float32", "float64") else Value(g.op("astype", x, "float32"))


def _numbers(listed: list[float] | None, tensor: NDArray[Any] | None, count: int) -> list[float]:
    found = listed if tensor is None else tensor.reshape(-1).tolist()
    return found if found is not None else [0.0] * count


def _listed(
    falses: list[int], features: list[int], missing: list[int] | None, modes: list[str],
    node_ids: list[int], tree_ids: list[int], trues: list[int], values: list[float],
    leaf_nodes: list[int], leaf_trees: list[int], leaf_ids: list[int], weights: list[float],
) -> tuple[_Nodes, list[int]]:  # fmt: skip
    """The table of nodes of the older operators, and the roots."""
    count = len(modes)
    missing = missing or [0] * count
    lists = (falses, features, node_ids, tree_ids, trues, values, missing)
    if any(len(each) != count for each in lists):
        raise Problem(f"expected {count} numbers for the nodes, as nodes_modes has")
    if not len(leaf_nodes) == len(leaf_trees) == len(leaf_ids) == len(weights):
        raise Problem("expected equally many numbers for the leaves")
    kinds = {mode: number for number, mode in enumerate(("LEAF", *_COMPARISONS))}
    unknown = next((mode for mode in modes if mode not in kinds), None)
    if unknown is not None:
        raise Problem(f"nodes_modes: {unknown!r} is not a mode")
    kind = np.array([kinds[mode] for mode in modes], np.int64)
    comparisons = np.array([LEAF, *[code for code, _ in _COMPARISONS.values()]])
    swaps = np.array([False, *[swap for _, swap in _COMPARISONS.values()]])[kind]
    is_leaf = kind == 0
    nodes = _Nodes()
    nodes.thresholds = np.where(is_leaf, 0.0, np.array(values, np.float64))
    nodes.features = np.where(is_leaf, 0, np.array(features, np.int64))
    passes = (np.array(missing, np.int64) != 0) != swaps
    nodes.modes = np.where(is_leaf, LEAF, comparisons[kind] + IF_MISSING * passes)
    find = _finder(tree_ids, node_ids)
    trees = np.array(tree_ids, np.int64)
    own = np.arange(count)
    ends = []
    for followers in (trues, falses):
        places = np.where(is_leaf, own, find(trees, np.array(followers, np.int64)))
        ends.append(places)
    lost = np.flatnonzero((ends[0] < 0) | (ends[1] < 0))
    if len(lost):
        at = lost[0]
        raise Problem(f"node {node_ids[at]} of tree {tree_ids[at]} leads to no node")
    if_true, if_false = ends
    nodes.branches = np.stack(
        [np.where(swaps, if_false, if_true), np.where(swaps, if_true, if_false)], 1
    )
    of_leaves = find(np.array(leaf_trees, np.int64), np.array(leaf_nodes, np.int64))
    lost = np.flatnonzero(of_leaves < 0)
    if len(lost):
        raise Problem(f"there is no node {leaf_nodes[lost[0]]} of tree {leaf_trees[lost[0]]}")
    nodes.leaves = of_leaves, np.array(leaf_ids, np.int64), np.array(weights, np.float64)
    _, roots = np.unique(trees, return_index=True)
    return nodes, sorted(roots.tolist())


def _finder(
    tree_ids: list[int], node_ids: list[int]
) -> Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]:
    """A function that returns the places of nodes, by the numbers of tree and node; -1 where there
    is none.  Of several nodes of the same numbers, it is the last."""
    trees, of_tree = np.unique(np.array(tree_ids, np.int64), return_inverse=True)
    names, of_node = np.unique(np.array(node_ids, np.int64), return_inverse=True)
    keys = of_tree * max(1, len(names)) + of_node
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]

    def find(tree: NDArray[Any], node: NDArray[Any]) -> NDArray[Any]:
        if not len(keys):
            return np.full(tree.shape, -1)
        row = np.searchsorted(trees, tree).clip(max=len(trees) - 1)
        column = np.searchsorted(names, node).clip(max=len(names) - 1)
        wanted = row * len(names) + column
        last = (np.searchsorted(ordered, wanted, "right") - 1).clip(min=0)
        is_there = (trees[row] == tree) & (names[column] == node) & (ordered[last] == wanted)
        return np.where(is_there, order[last], -1)

    return find


@onnx("TreeEnsembleRegressor", since=1, domain=ML)
def tree_ensemble_regressor(
    g: Graph,
    x: Value,
    *,
    aggregate_function: str = "SUM",
    base_values: list[float] | None = None,
    base_values_as_tensor: NDArray[Any] | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: list[float] | None = None,
    nodes_hitrates_as_tensor: NDArray[Any] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: NDArray[Any] | None = None,
    post_transform: str = "NONE",
    target_ids: list[int],
    target_nodeids: list[int],
    target_treeids: list[int],
    target_weights: list[float] | None = None,
    target_weights_as_tensor: NDArray[Any] | None = None,
) -> Expr:
    """The sum, mean, least or greatest of the weights of the leaves that each row gets to."""
    x = _floats(g, x)
    nodes, roots = _listed(
        nodes_falsenodeids, nodes_featureids, nodes_missing_value_tracks_true, nodes_modes,
        nodes_nodeids, nodes_treeids, nodes_truenodeids,
        _numbers(nodes_values, nodes_values_as_tensor, len(nodes_modes)),
        target_nodeids, target_treeids, target_ids,
        _numbers(target_weights, target_weights_as_tensor, len(target_ids)),
    )  # fmt: skip
    scores = nodes.run(g, x, roots, aggregate_function, n_targets)
    scores = _with_base(g, scores, base_values, base_values_as_tensor, n_targets)
    found = transformed(g, scores, post_transform)
    return found if found.ty.dtype == "float32" else g.op("astype", found, "float32")


def _with_base(
    g: Graph, scores: Expr, base: list[float] | None, tensor: NDArray[Any] | None, count: int
) -> Expr:
    if not base and tensor is None:
        return scores
    numbers = _numbers(base, tensor, 0)
    if len(numbers) not in (1, count):
        raise Problem(f"base_values: expected {count} numbers, got {len(numbers)}")
    return g.op("add", scores, np.array(numbers, scores.ty.dtype))


@onnx("TreeEnsembleClassifier", since=1, domain=ML)
def tree_ensemble_classifier(
    g: Graph,
    x: Value,
    *,
    base_values: list[float] | None = None,
    base_values_as_tensor: NDArray[Any] | None = None,
    class_ids: list[int],
    class_nodeids: list[int],
    class_treeids: list[int],
    class_weights: list[float] | None = None,
    class_weights_as_tensor: NDArray[Any] | None = None,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: list[float] | None = None,
    nodes_hitrates_as_tensor: NDArray[Any] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: NDArray[Any] | None = None,
    post_transform: str = "NONE",
) -> Any:
    """The class with the greatest sum of weights of leaves, and the sums."""
    x = _floats(g, x)
    weights = _numbers(class_weights, class_weights_as_tensor, len(class_ids))
    nodes, roots = _listed(
        nodes_falsenodeids, nodes_featureids, nodes_missing_value_tracks_true, nodes_modes,
        nodes_nodeids, nodes_treeids, nodes_truenodeids,
        _numbers(nodes_values, nodes_values_as_tensor, len(nodes_modes)),
        class_nodeids, class_treeids, class_ids, weights,
    )  # fmt: skip
    count = len(classlabels_int64s or classlabels_strings or ())
    is_binary = count == 2 and len(set(class_ids)) == 1
    if is_binary:  # one score stands for both classes
        nodes.weights_of_one_target()
    columns = 1 if is_binary else max(count, 1)
    scores = nodes.run(g, x, roots, "SUM", columns)
    base = _numbers(base_values, base_values_as_tensor, 0)
    scores = _with_base(g, scores, base[-1:] if is_binary else base, None, columns)
    positive = is_binary and all(weight >= 0 for weight in weights)
    return labelled(g, scores, classlabels_int64s, classlabels_strings, post_transform, positive)


@onnx("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(
    g: Graph,
    x: Value,
    *,
    aggregate_function: int = 1,
    leaf_targetids: list[int],
    leaf_weights: NDArray[Any],
    membership_values: NDArray[Any] | None = None,
    n_targets: int = 1,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: NDArray[Any] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: NDArray[Any],
    nodes_splits: NDArray[Any],
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    post_transform: int = 0,
    tree_roots: list[int],
) -> Expr:
    """The weights of the leaves that each row gets to, aggregated."""
    x = _floats(g, x)
    nodes = _Nodes()
    modes = [int(mode) for mode in nodes_modes.reshape(-1)]
    splits, count = nodes_splits.reshape(-1), len(modes)
    missing = nodes_missing_value_tracks_true or [0] * count
    per_node = (splits, nodes_featureids, nodes_trueleafs, nodes_falseleafs, nodes_truenodeids,
                nodes_falsenodeids, missing)  # fmt: skip
    if any(len(each) != count for each in per_node) or not set(modes) <= set(range(7)):
        raise Problem(f"expected {count} numbers for the nodes, and modes from 0 to 6")
    leaves = []
    for target, weight in zip(leaf_targetids, leaf_weights.reshape(-1).tolist(), strict=True):
        leaves.append(nodes.leaf())
        nodes.leaves.append((leaves[-1], target, weight))
    sets = _members(membership_values)
    chains: list[list[int]] = []
    for i, mode in enumerate(modes):
        name = "BRANCH_EQ" if _BY_NUMBER[mode] == "MEMBER" else _BY_NUMBER[mode]
        values = [float(splits[i])]
        if _BY_NUMBER[mode] == "MEMBER":
            if not sets:
                raise Problem("membership_values: expected a set for each node that tests one")
            values = sets.pop(0)
        chains.append([nodes.node(name, value, nodes_featureids[i], bool(missing[i]))
                       for value in values])  # fmt: skip
    for i, chain in enumerate(chains):
        name = "BRANCH_EQ" if _BY_NUMBER[modes[i]] == "MEMBER" else _BY_NUMBER[modes[i]]
        ends = []
        for to, is_leaf in ((nodes_truenodeids[i], nodes_trueleafs[i]),
                            (nodes_falsenodeids[i], nodes_falseleafs[i])):  # fmt: skip
            if not 0 <= to < (len(leaves) if is_leaf else count):
                raise Problem(f"node {i} leads to no node")
            ends.append(leaves[to] if is_leaf else chains[to][0])
        for at, after in zip(chain, [*chain[1:], ends[1]], strict=True):
            nodes.connect(at, name, ends[0], after)
    if any(not 0 <= root < count for root in tree_roots):
        raise Problem("tree_roots: expected nodes")
    names = ("AVERAGE", "SUM", "MIN", "MAX")
    if not 0 <= aggregate_function < 4 or not 0 <= post_transform < 5:
        raise Problem("expected an aggregate_function below 4 and a post_transform below 5")
    roots = [chains[root][0] for root in tree_roots]
    scores = nodes.run(g, x, roots, names[aggregate_function], n_targets)
    transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[post_transform]
    return transformed(g, scores, transform)


def _members(values: NDArray[Any] | None) -> list[list[float]]:
    """The sets, which end with NaN each."""
    found: list[list[float]] = [[]]
    for value in [] if values is None else values.reshape(-1).tolist():
        if value == value:
            found[-1].append(value)
        else:
            found.append([])
    return [each for each in found if each]
