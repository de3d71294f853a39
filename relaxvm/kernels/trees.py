"""Ensembles of decision trees."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time, copy_pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Floats, Integers, Out, a_choice, an_int

__all__ = ["EQUAL", "IF_MISSING", "LEAF", "LESS", "LESS_EQUAL"]

LEAF: Final = 0
LESS_EQUAL: Final = 1
LESS: Final = 2
EQUAL: Final = 3
IF_MISSING: Final = 4
"""Added to a comparison that NaN passes."""

Aggregate: TypeAlias = Annotated[str, a_choice("SUM", "AVERAGE", "MIN", "MAX")]
_BLOCK: Final = 1 << 16
"""Places, one for each row and tree, that are followed at once."""


@kernel("tree_ensemble")
def tree_ensemble(
    x: Floats,
    thresholds: Floats,
    features: Integers,
    modes: Integers,
    branches: Integers,
    roots: Integers,
    starts: Integers,
    targets: Integers,
    weights: Floats,
    aggregate: Aggregate,
    count: Annotated[int, an_int(least=1)],
    out: Out,
) -> None:
    """out[rows, count] = the weights of the leaves that the rows of x[rows, columns] get to, summed
    up, averaged over the trees, or the least or greatest of them; 0 where there are none.

    Node i compares column features[i] with thresholds[i]: modes[i] is 0 for a leaf, 1 for <=, 2 for
    <, 3 for ==, plus 4 if NaN passes, too.  A row that passes goes to branches[i, 0], another to
    branches[i, 1].  Trees begin at roots.  Leaf i has the elements from starts[i] to starts[i + 1]
    of targets and weights.  Uses memory for the nodes."""
    if x.ndim != 2:
        raise WrongValue(f"x: expected 2 axes, got {describe(x)}")
    # Copies, which stay as they were checked.
    features, modes, branches, roots, starts, targets = [
        each.astype(np.intp) for each in (features, modes, branches, roots, starts, targets)
    ]
    nodes = len(thresholds) if thresholds.ndim == 1 else 0
    _need("features", features, (nodes,), 0, max(x.shape[1] - 1, 0))
    _need("modes", modes, (nodes,), 0, IF_MISSING + EQUAL)
    _need("branches", branches, (nodes, 2), 0, nodes - 1)
    _need("roots", roots, (roots.size,), 0, nodes - 1)
    _need("targets", targets, (targets.size,), 0, count - 1)
    _need("starts", starts, (nodes + 1,), 0, targets.size)
    if weights.shape != targets.shape:
        raise WrongValue(f"weights: expected {targets.size} numbers, got {describe(weights)}")
    if not x.shape[1] and np.any(modes % IF_MISSING):
        raise WrongValue(f"x: expected columns, got {describe(x)}")
    dtype = native(x.dtype)
    check_out(out, dtype, (x.shape[0], count))
    x = copy_if_overlapping(x, out)
    ensemble = _Ensemble(thresholds, features, modes, branches, roots)
    begins, ends = starts[:-1], starts[1:]
    slots = int((ends - begins).max(initial=0))
    rows = max(1, _BLOCK // max(roots.size, 1))
    for first in range(0, x.shape[0], rows):
        check_time()
        leaves = ensemble.leaves(x[first : first + rows])
        part = out[first : first + rows]
        found = np.zeros(part.shape, np.float64)
        if aggregate in ("MIN", "MAX"):
            found[...] = np.inf if aggregate == "MIN" else -np.inf
        row = np.broadcast_to(np.arange(len(leaves))[:, None], leaves.shape)
        at, end = begins[leaves], ends[leaves]
        for _ in range(slots):
            is_there = at < end
            index = at[is_there]
            places = (row[is_there], targets[index])
            if aggregate == "MIN":
                np.minimum.at(found, places, weights[index])
            elif aggregate == "MAX":
                np.maximum.at(found, places, weights[index])
            else:
                np.add.at(found, places, weights[index])
            at = at + 1
            check_time()
        if aggregate == "AVERAGE":
            found /= max(roots.size, 1)
        elif aggregate != "SUM":
            found[np.isinf(found)] = 0
        copy_pieces(part, found)


class _Ensemble:
    """Trees whose nodes are arrays of the machine's integers."""

    def __init__(
        self, thresholds: NDArray[Any], features: NDArray[np.intp], modes: NDArray[np.intp],
        branches: NDArray[np.intp], roots: NDArray[np.intp],
    ) -> None:  # fmt: skip
        self.thresholds = thresholds.astype(working_dtype(native(thresholds.dtype)))
        self.features = features
        self.mode = (modes % IF_MISSING).astype(np.int8)
        self.if_missing = modes >= IF_MISSING
        self.has_missing = bool(self.if_missing.any())
        used = set(np.unique(self.mode).tolist())
        self.is_plain = used <= {LEAF, LESS_EQUAL}
        itself = np.arange(len(branches))
        is_leaf = self.mode == LEAF
        self.passed = np.where(is_leaf, itself, branches[:, 0])
        self.failed = np.where(is_leaf, itself, branches[:, 1])
        self.roots = roots

    def leaves(self, x: NDArray[Any]) -> NDArray[np.intp]:
        """The leaf that each row gets to in each tree."""
        row = np.arange(len(x))[:, None]
        place = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        for _ in range(len(self.mode)):
            if not self.mode[place].any():
                return place
            check_time()
            given, bound = x[row, self.features[place]], self.thresholds[place]
            passes = given <= bound
            if not self.is_plain:
                mode, same = self.mode[place], given == bound
                passes = np.where(mode == EQUAL, same, passes & ((mode != LESS) | ~same))
            if self.has_missing:
                passes |= np.isnan(given) & self.if_missing[place]
            place = np.where(passes, self.passed[place], self.failed[place])
        if self.mode[place].any():
            raise WrongValue("branches: expected trees, got a cycle")
        return place


def _need(
    name: str, tensor: NDArray[Any], shape: tuple[int, ...], least: int, most: int
) -> None:
    if tensor.shape != shape:
        raise WrongValue(f"{name}: expected shape {list(shape)}, got {describe(tensor)}")
    if tensor.size and not (least <= int(tensor.min()) and int(tensor.max()) <= most):
        raise WrongValue(f"{name}: expected numbers from {least} to {most}, got others")
