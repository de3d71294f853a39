"""FuseOps: what is fused, what is not, and that results are the same bit for bit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relaxvm as rx
from relaxvm import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

N = 1 << 15


@I.ir_module
class Chain:
    @R.function
    def main(
        x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")
    ) -> R.Tensor(("n",), "float16"):
        with R.dataflow():
            a = R.multiply(x, y)
            b = R.exp(R.negative(R.abs(a)))
            c = R.where(R.greater(a, b), a, R.const(0.5))
            d = R.maximum(R.add(c, b), R.const(0.25))
            e = R.astype(d, "float16")
            R.output(e)
        return e


@I.ir_module
class Shared:
    """`a` is a result as well, and `s` is no elementwise use."""

    @R.function
    def main(x: R.Tensor((32768,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(a, x)
            c = R.sqrt(R.abs(b))
            s = R.sum(c)
            d = R.add(c, s)
            e = R.subtract(d, x)
            R.output(a, e)
        return (a, e)


def fused_calls(mod: Any) -> list[str]:
    """The chains of a module, in order."""
    return re.findall(r'"([^"]*-> %\d+)"', mod.script())


def lowered(mod: Any, **options: Any) -> tuple[Any, Any]:
    """The module with kernels, and with kernels fused."""
    legal = transform.LegalizeOps()(mod)
    return legal, transform.FuseOps(**options)(legal)


def same(mod: Any, *args: Any) -> None:
    apart, together = (rx.VirtualMachine(rx.build(m)).main(*args) for m in lowered(mod))
    for a, b in zip(np.atleast_1d(apart) if isinstance(apart, np.ndarray) else apart,
                    np.atleast_1d(together) if isinstance(together, np.ndarray) else together,
                    strict=True):  # fmt: skip
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_chain_becomes_one_call() -> None:
    _, fused = lowered(Chain)
    (chain,) = fused_calls(fused)
    assert chain.count(";") == 8
    assert chain.startswith("multiply($0, $1)")
    assert rx.analysis.well_formed(fused)


@pytest.mark.parametrize("n", [0, 1, 7, N, N + 3])
def test_results_are_the_same_bit_for_bit(n: int) -> None:
    random = np.random.default_rng(n)
    x, y = (random.standard_normal(n, np.float32) for _ in range(2))
    x[: n // 7] = np.nan
    y[n // 2 : n // 2 + 1] = np.inf
    with np.errstate(all="ignore"):
        same(Chain, x, y)


def test_shared_values_end_a_chain() -> None:
    _, fused = lowered(Shared)
    assert fused_calls(fused) == ["multiply($0, $1); abs(%0); sqrt(%1) -> %2",
                                  "add($0, $1); subtract(%0, $2) -> %1"]  # fmt: skip
    same(Shared, np.linspace(-1, 1, 32768, dtype=np.float32))


def test_small_tensors_are_left() -> None:
    small = transform.BindSymbolicVars({"n": 16})(Chain)
    assert fused_calls(lowered(small)[1]) == []
    assert len(fused_calls(lowered(small, min_elements=1)[1])) == 1


def test_level_0_fuses_nothing() -> None:
    legal, fused = lowered(Chain, fuse_opt_level=0)
    assert fused is legal


def test_only_within_dataflow() -> None:
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a = R.add(x, x)
            b: R.Tensor((n,), "float32") = R.multiply(a, x)
            return b

    assert fused_calls(lowered(Plain)[1]) == []


def test_zero_pipeline_fuses() -> None:
    mod = rx.get_pipeline("zero")(Chain)
    assert len(fused_calls(mod)) == 1
    x = np.linspace(-2, 2, N, dtype=np.float32)
    expected = rx.VirtualMachine(rx.build(Chain)).main(x, x)
    np.testing.assert_array_equal(rx.VirtualMachine(rx.build(mod)).main(x, x), expected)
