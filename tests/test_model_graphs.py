"""Random networks, compiled with and without each pass; see `tests.model_graphs`.

``python -m tests.model_graphs --count 1000`` draws more of them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from . import model_graphs
from .model_graphs import BOUND, NEEDED, Maker, failures, passes, results_of, worst

COUNT, CHUNK = 32, 4


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_each_pass_can_be_left_out(first: int) -> None:
    names = passes()
    found = [line for seed in range(first, first + CHUNK) for line in failures(seed, names)]
    assert not found, "\n".join(found)


def test_what_graphs_have() -> None:
    steps = Counter(step for seed in range(COUNT) for step in Maker(seed).graph().steps)
    for step in (*Maker.IMAGES, *Maker.SEQUENCES, "n", "to a sequence"):
        assert steps[step] >= 3, step


def test_needed_passes_are_named() -> None:
    """Without one of them there is an error that says what is missing."""
    graph = Maker(6).graph()
    assert "n" in graph.steps
    for name in NEEDED:
        with pytest.raises((TypeError, RuntimeError), match=r"run \w+ first|no pass has lowered it|"
                           r"cannot be called by the VM|LowerRuntimeBuiltin"):  # fmt: skip
            results_of(graph, name)


def test_wrong_results_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Maker(0).graph()
    assert worst(graph, results_of(graph)) <= BOUND
    graph.wanted[0] = graph.wanted[0] * 1.001
    assert worst(graph, results_of(graph)) > BOUND
    monkeypatch.setattr(model_graphs, "BOUND", -1.0)
    # Whole, three settings and one left out; the other one does not change this graph.
    assert len(list(failures(0, ["PackLinear", "FoldScaleToConv"]))) == 5


def test_a_permutation_before_a_kernel_with_a_text() -> None:
    """Found by seed 1242: MovePermutations left it out, since the kernel's operands are a tuple
    of a tensor and a text."""
    assert not list(failures(1242, ["MovePermutations", "RecognizeOps"]))


def test_a_pool_of_shuffled_channels() -> None:
    """Found by seed 1307: BlockConvolutions took the image before it was there."""
    assert not list(failures(1307, ["BlockConvolutions"]))
