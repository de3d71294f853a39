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
    of targets and weights.  Only the nodes that rows get to are checked.  Uses memory for the
    nodes."""
    if x.ndim != 2:
        raise WrongValue(f"x: expected 2 axes, got {describe(x)}")
    check_out(out, native(x.dtype), (x.shape[0], count))
    # Copies, which stay as they are checked.
    features, modes, branches, roots, starts, targets = [
        each.astype(np.intp) for each in (features, modes, branches, roots, starts, targets)
    ]
    nodes = len(thresholds) if thresholds.ndim == 1 else 0
    _need("features", features, (nodes,))
    _need("modes", modes, (nodes,))
    _need("branches", branches, (nodes, 2))
    _need("roots", roots, (roots.size,))
    _need("targets", targets, (targets.size,))
    _need("starts", starts, (nodes + 1,))
    _need("weights", weights, (targets.size,))
    x = copy_if_overlapping(x, out)
    ensemble = _Ensemble(thresholds, features, modes, branches, roots)
    rows = max(1, _BLOCK // max(roots.size, 1))
    for first in range(0, x.shape[0], rows):
        check_time()
        leaves = ensemble.leaves(x[first : first + rows])
        part = out[first : first + rows]
        found = np.zeros(part.shape, np.float64)
        if aggregate in ("MIN", "MAX"):
            found[...] = np.inf if aggregate == "MIN" else -np.inf
        row = np.broadcast_to(np.arange(len(leaves))[:, None], leaves.shape)
        at, end = starts[leaves], starts[leaves + 1]
        _within("starts", at, end)
        _within("starts", end, targets.size)
        while (is_there := at < end).any():
            index = at[is_there]
            _within("targets", targets[index], count - 1)
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
        self.modes = modes
        self.branches = branches
        self.roots = roots

    def leaves(self, x: NDArray[Any]) -> NDArray[np.intp]:
        """The leaf that each row gets to in each tree."""
        if len(x):
            _within("roots", self.roots, len(self.modes) - 1)
        row, tree = np.indices((len(x), len(self.roots)))
        place = np.array(np.broadcast_to(self.roots, row.shape))
        row, tree, at = row.reshape(-1), tree.reshape(-1), place.reshape(-1)
        for _ in range(len(self.modes) + 1):
            check_time()
            mode = self.modes[at]
            _within("modes", mode, IF_MISSING + EQUAL)
            goes_on = mode % IF_MISSING != LEAF
            row, tree, at, mode = [each[goes_on] for each in (row, tree, at, mode)]
            if not at.size:
                return place
            if not x.shape[1]:
                raise WrongValue("x: expected columns, got none")
            feature = self.features[at]
            _within("features", feature, x.shape[1] - 1)
            at = self.branches[at, np.where(self._passes(x[row, feature], at, mode), 0, 1)]
            _within("branches", at, len(self.modes) - 1)
            place[row, tree] = at
        raise WrongValue("branches: expected trees, got a cycle")

    def _passes(
        self, given: NDArray[Any], at: NDArray[np.intp], mode: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        bound = self.thresholds[at]
        same, comparison = given == bound, mode % IF_MISSING
        passes = (given <= bound) & ((comparison != LESS) | ~same)
        missing = np.isnan(given) & (mode >= IF_MISSING)
        found: NDArray[np.bool_] = np.where(comparison == EQUAL, same, passes) | missing
        return found


def _need(name: str, tensor: NDArray[Any], shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise WrongValue(f"{name}: expected shape {list(shape)}, got {describe(tensor)}")


def _within(name: str, numbers: NDArray[np.intp], most: int | NDArray[np.intp]) -> None:
    if numbers.size and not ((numbers >= 0) & (numbers <= most)).all():
        raise WrongValue(f"{name}: expected numbers from 0 to {np.max(most)}, got others")
