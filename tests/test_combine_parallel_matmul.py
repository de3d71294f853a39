"""CombineParallelMatmul: what it combines, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.ir import Call, IRModule
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.transform import CombineParallelMatmul

from .passes import apply, run, unchanged

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("float32")


def calls(mod: IRModule, name: str) -> int:
    return sum(
        isinstance(binding.value, Call) and getattr(binding.value.op, "name", "") == name
        for block in mod["main"].body.blocks
        for binding in block.bindings
    )


def combined(before: IRModule, *args: Any, check: Any = None) -> IRModule:
    after = apply(CombineParallelMatmul(check), before)
    for x, y in zip(run(before, *args), run(after, *args), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    return after


@I.ir_module
class Biases:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4), "float32"),
        v: R.Tensor((4, 5), "float32"),
        w: R.Tensor((4, 6), "float32"),
        a: R.Tensor((5,), "float32"),
        b: R.Tensor((6,), "float32"),
    ):
        with R.dataflow():
            p = R.add(R.matmul(x, v), a)
            q = R.add(R.matmul(x, w), b)
            y = R.nn.relu(p)
            z = R.nn.relu(q)
            R.output(y, z)
        return (y, z)


ARGS = array(2, 3, 4), array(4, 5), array(4, 6), array(5), array(6)


def test_biases_and_activations_are_combined() -> None:
    after = combined(Biases, *ARGS)
    names = ("matmul", "add", "nn.relu", "split")
    assert [calls(after, f"relax.{name}") for name in names] == [1, 1, 1, 1]


def test_different_activations_follow_the_split() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"),
            v: R.Tensor((4, 5), "float32"),
            w: R.Tensor((4, 5), "float32"),
            a: R.Tensor((5,), "float32"),
        ):
            with R.dataflow():
                y = R.nn.relu(R.add(R.matmul(x, v), a))
                z = R.nn.silu(R.matmul(x, w))
                R.output(y, z)
            return (y, z)

    after = combined(Before, array(2, 4), array(4, 5), array(4, 5), array(5))
    assert (calls(after, "relax.matmul"), calls(after, "relax.add")) == (1, 1)
    assert (calls(after, "relax.nn.relu"), calls(after, "relax.nn.silu")) == (1, 1)


def test_products_that_are_used_twice_keep_their_value() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"),
            v: R.Tensor((4, 5), "float32"),
            w: R.Tensor((4, 5), "float32"),
        ):
            with R.dataflow():
                p = R.matmul(x, v)
                q = R.matmul(x, w)
                y = R.nn.relu(p)
                z = R.add(R.nn.relu(q), p)
                R.output(y, z)
            return (y, z)

    after = combined(Before, array(2, 4), array(4, 5), array(4, 5))
    assert (calls(after, "relax.matmul"), calls(after, "relax.nn.relu")) == (1, 2)


def test_one_symbolic_width_goes_last() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"),
            u: R.Tensor((4, "m"), "float32"),
            v: R.Tensor((4, 5), "float32"),
            w: R.Tensor((4, "n"), "float32"),
        ):
            with R.dataflow():
                a = R.matmul(x, u)
                b = R.matmul(x, v)
                c = R.matmul(x, w)
                R.output(a, b, c)
            return (a, b, c)

    after = combined(Before, array(2, 4), array(4, 3), array(4, 5), array(4, 7))
    assert calls(after, "relax.matmul") == 2


def test_weights_may_be_computed_later() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                t = R.permute_dims(w)
                b = R.matmul(x, t)
                R.output(a, b)
            return (a, b)

    assert calls(combined(Before, array(2, 4), array(4, 4)), "relax.matmul") == 1


def test_a_check_declines() -> None:
    seen: list[Any] = []

    def check(*found: Any) -> bool:
        seen.append(found)
        return False

    after = CombineParallelMatmul(check)(Biases)
    assert after["main"] is Biases["main"]
    ((lhs, rhs, biases, values),) = seen
    assert [lhs.name, *(v.name for v in rhs), *(v.name for v in biases)] == list("xvwab")
    assert len(values) == 6


def test_what_stays() -> None:
    unchanged(
        CombineParallelMatmul(),
        """
        @R.function
        def main(
            x: R.Tensor((3, 4), "float32"),
            y: R.Tensor((3, 4), "float32"),
            u: R.Tensor((4, 4), "float32"),
            v: R.Tensor((2, 4, 4), "float32"),
            w: R.Tensor((3, 3, 4, 4), "float32"),
        ):
            with R.dataflow():
                a = R.matmul(x, u)
                b = R.matmul(x, v)
                c = R.matmul(x, w)
                d = R.matmul(y, u)
                R.output(a, b, c, d)
            e = R.matmul(x, u)
            f = R.matmul(x, u)
            return (a, b, c, d, e, f)
        """,
    )


def test_weights_that_depend_on_a_product() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.matmul(x, a)
                R.output(a, b)
            return (a, b)

    combined(Before, array(4, 4), array(4, 4))
