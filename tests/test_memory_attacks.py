"""What builtins and kernels allocate with large operands is counted: see `memory_attacks`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from relaxvm import list_funcs
from relaxvm.kernels import PREFIX
from relaxvm.registry import GLOBAL

from . import children
from .builtin_cases import own_builtins
from .memory_attacks import BUILTINS, GROWTH, LIMITS, WITHOUT, without

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

ROOT = Path(__file__).parents[1]
RUN = """
import runpy, sys
sys.path.append(sys.argv[1])
runpy.run_module("tests.memory_attacks", run_name="__main__")
"""


class Outcome(NamedTuple):
    """Of a call: what was called, growth of memory in bytes, "result" or an error, the call."""

    name: str
    growth: int
    outcome: str
    call: str


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    environment = dict(os.environ)
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        environment[name] = str(128 * 1024)  # fixed: what is freed goes back to the system
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        environment[name] = "1"
    # Not by -m, which would import the relaxvm of the checkout instead of the installed one.
    done = children.run(
        [sys.executable, "-P", "-W", "ignore", "-c", RUN, str(ROOT)], env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [Outcome(name, int(growth), outcome, call) for name, growth, outcome, call in rows]


def test_memory_stays_within_the_limit(outcomes: list[Outcome]) -> None:
    live = LIMITS.live_bytes
    assert live is not None
    assert live < GROWTH <= live + (4 << 20)
    assert [each for each in outcomes if each.growth > GROWTH] == []


def test_calls_end_in_a_result_or_the_limit(outcomes: list[Outcome]) -> None:
    allowed = {"result", "LimitError"}
    others = [each for each in outcomes if each.outcome not in allowed]
    assert [each.name for each in others] == ["relax.run.assert_op"], "which is to fail"


def test_much_is_refused(outcomes: list[Outcome]) -> None:
    """The arguments are large enough: these make more than the limit."""
    refused = {each.name for each in outcomes if each.outcome == "LimitError"}
    for name in ("alloc_heap", "alloc_shape_heap", "alloc_storage", "to_device", "reshape",
                 "tensor_to_shape", "attention_kv_cache_create",
                 "attention_kv_cache_append", "sample_top_p_from_prob"):  # fmt: skip
        assert f"vm.builtin.{name}" in refused
    for name in ("relaxvm.builtin.compute_shape", "relax.run.nonzero", "relax.run.unique",
                 "relax.run.shape_to_tensor", f"{PREFIX}argsort", f"{PREFIX}nn.attention"):
        assert name in refused  # fmt: skip


def test_every_kernel_is_called(outcomes: list[Outcome]) -> None:
    kernels = {name for name in list_funcs() if name.startswith(PREFIX)}
    called = {each.name for each in outcomes}
    hint = "write a `large` call in the cases of the operator, or a line in tests/memory_attacks.py"
    assert not kernels - called, hint
    assert called == kernels | set(BUILTINS)


def test_every_builtin_has_a_call_or_a_reason() -> None:
    reasons = [name for reason in WITHOUT for name in without(reason)]
    assert sorted(reasons) == sorted(set(reasons))
    assert set(BUILTINS).isdisjoint(reasons)
    assert own_builtins() == {*BUILTINS, *reasons}


def test_what_needs_trust_has_an_effect() -> None:
    (reason,) = [reason for reason in WITHOUT if "trusted" in reason]
    for name in without(reason):
        record = GLOBAL.lookup(name)
        assert record is not None
        assert record.effect, name
