"""PackLinear: random networks give equal results with the pass and without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.ir import PrimType, TensorType, Tuple, Var, const
from relaxvm.kernels.linear import pack_linear
from relaxvm.registry import GLOBAL
from relaxvm.script import ir as I
from relaxvm.script import relax as R

from .test_block_convolutions import kernels_of, run

# Networks of random operators


class Network:
    """A random network of products and what follows them."""

    def __init__(self, seed: int, *, symbolic: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.bb = relaxvm.BlockBuilder()
        shape = [int(n) for n in self.rng.integers(1, 20, int(self.rng.integers(2, 4)))]
        shape[-1] = int(self.rng.choice([40, 64, 90]))
        self.input = self.rng.standard_normal(shape).astype(np.float32)
        dims: list[Any] = shape
        if symbolic:
            names = "nm"[: len(shape) - 1]
            dims = [*(Var(name, PrimType("int64")) for name in names), shape[-1]]
        x = Var("x", TensorType(dims, "float32"))
        with self.bb.function("main", [x]):
            with self.bb.dataflow():
                self.values = [x]
                for _ in range(12):
                    self.values.append(self.bb.emit(self.step()))
                results = [self.bb.emit_output(v) for v in (self.values[-1], self.values[-3])]
            self.bb.emit_func_output(Tuple(results))
        self.mod = self.bb.get()

    def normal(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def step(self) -> Any:
        recent = self.values[-4:]
        value = recent[self.rng.integers(len(recent))] if self.rng.random() < 0.3 else recent[-1]
        columns = int(value.ty.dims[-1].value)
        kind = self.rng.choice(
            ["product", "product", "transposed", "bias", "row", "number", "relu", "gelu", "tanh",
             "silu", "residual", "erf"]
        )  # fmt: skip
        outputs = int(self.rng.choice([64, 90, 128]))
        if kind == "product":
            return R.matmul(value, const(self.normal(columns, outputs) / np.float32(8)))
        if kind == "transposed":
            weight = const(self.normal(outputs, columns) / np.float32(8))
            return R.matmul(value, R.permute_dims(weight))
        if kind == "bias":
            return R.add(const(self.normal(columns)), value)
        if kind == "row":
            return R.add(value, const(self.normal(1, columns)))
        if kind == "number":
            return R.add(value, const(np.float32(0.5)))
        if kind == "residual":
            alike = relaxvm.ir.structural_equal
            same = [v for v in self.values if alike(v.ty.shape, value.ty.shape)]
            return R.add(value, same[self.rng.integers(len(same))])
        of = {"relu": R.nn.relu, "gelu": R.nn.gelu, "tanh": R.tanh, "silu": R.nn.silu,
              "erf": R.erf}  # fmt: skip
        return of[str(kind)](value)


@pytest.mark.parametrize("symbolic", [False, True])
def test_random_networks(symbolic: bool) -> None:
    counts = {False: 0, True: 0}
    for seed in range(60):
        network = Network(seed, symbolic=symbolic)
        want = run(network.mod, network.input)
        for precise in counts:
            packed = transform.PackLinear(precise=precise)(network.mod)
            relaxvm.analysis.well_formed(packed)
            counts[precise] += kernels_of(packed).count("linear_blocks")
            for got, expected in zip(run(packed, network.input), want, strict=True):
                scale = max(1.0, float(np.abs(expected).max(initial=0)))
                np.testing.assert_allclose(
                    got, expected, rtol=0, atol=1e-4 * scale, err_msg=f"{seed}, {precise}"
                )
    assert min(counts.values()) > 150


# What becomes one call

W = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
X = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)


def only(mod: Any, **options: Any) -> tuple[Any, list[str]]:
    packed = transform.PackLinear(**options)(mod)
    return packed, kernels_of(transform.DeadCodeElimination()(packed))


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        with R.dataflow():
            a = R.matmul(x, R.const(W))
            b = R.add(a, R.const(W[0]))
            c = R.add(x, b)
            d = R.nn.gelu(c)
            R.output(d)
        return d


def test_bias_residual_and_function_are_part_of_the_call() -> None:
    packed, names = only(Layer)
    assert names == ["linear_blocks"]
    np.testing.assert_allclose(run(packed, X)[0], run(Layer, X)[0], atol=1e-5)


def test_precise_leaves_functions() -> None:
    packed, names = only(Layer, precise=True)
    assert names == ["linear_blocks"]
    assert "relax.nn.gelu" in str(packed) or "R.nn.gelu" in str(packed)


@I.ir_module
class UsedTwice:
    @R.function
    def main(x: R.Tensor((5, 64), "float32")):
        with R.dataflow():
            a = R.matmul(x, R.const(W))
            b = R.add(a, R.const(W[0]))
            c = R.multiply(a, b)
            R.output(c)
        return c


def test_a_product_that_is_used_twice_stays() -> None:
    packed, names = only(UsedTwice)
    assert names == ["linear_blocks"]
    assert "R.add" in str(packed)
    np.testing.assert_allclose(run(packed, X)[0], run(UsedTwice, X)[0], atol=1e-4)


@I.ir_module
class Others:
    @R.function
    def main(
        x: R.Tensor((5, 64), "float32"),
        y: R.Tensor((5, 64), "float64"),
        w: R.Tensor((64, 64), "float32"),
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(y, R.const(W.astype("float64")))
            c = R.matmul(R.const(W), w)
            d = R.matmul(x, R.const(W[:, :3]))
            e = R.matmul(x, R.const(np.stack([W, W])))
            f = R.tanh(y)
            R.output(a, b, c, d, e, f)
        return (a, b, c, d, e, f)


@I.ir_module
class Memory:
    @R.function
    def main(x: R.Tensor((4, 2, 64), "float32"), h: R.Tensor((1, 2, 16), "float32")):
        with R.dataflow():
            a = R.nn.lstm(x, R.const(W[None]), R.const(W[None, :, :16]),
                          R.const(W[:2].reshape(1, 128)), h, h)
            b = R.nn.lstm(x, R.const(W[None]), R.const(W[None, :, :16]),
                          R.const(W[:2].reshape(1, 128)), h, h, activations="Tanh;Tanh;Tanh")
            c = R.add(a[0], b[0])
            R.output(c)
        return c


def test_long_short_term_memory() -> None:
    packed, names = only(Memory)
    assert names == ["lstm_blocks"]
    x = np.random.default_rng(0).standard_normal((4, 2, 64)).astype(np.float32)
    h = X[:2, :16][None].copy()
    np.testing.assert_allclose(run(packed, x, h)[0], run(Memory, x, h)[0], atol=1e-5)
    assert only(Memory, precise=True)[1] == []


@I.ir_module
class Units:
    @R.function
    def main(x: R.Tensor((4, 2, 64), "float32"), h: R.Tensor((1, 2, 16), "float32")):
        with R.dataflow():
            a = R.nn.gru(x, R.const(W[None, :48]), R.const(W[None, :48, :16]),
                         R.const(W[:2, :48].reshape(1, 96)), h, linear_before_reset=True)
            b = R.nn.gru(x, R.const(W[None, :48]), R.const(W[None, :48, :16]),
                         R.const(W[:2, :48].reshape(1, 96)), h)
            c = R.nn.gru(x, R.const(W[None, :48]), R.const(W[None, :48, :16]),
                         R.const(W[:2, :48].reshape(1, 96)), h, clip=1.0)
            R.output(a, b, c)
        return (a[0], b[0], c[0])


def test_gated_recurrent_units() -> None:
    packed, names = only(Units)
    assert names == ["gru_blocks"] * 2
    x = np.random.default_rng(0).standard_normal((4, 2, 64)).astype(np.float32)
    h = X[:2, :16][None].copy()
    for got, want in zip(run(packed, x, h), run(Units, x, h), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert only(Units, precise=True)[1] == []


@I.ir_module
class Lengths:
    @R.function
    def main(
        x: R.Tensor((4, 2, 64), "float32"),
        h: R.Tensor((1, 2, 16), "float32"),
        lengths: R.Tensor((2,), "int32"),
    ):
        with R.dataflow():
            a = R.nn.gru(x, R.const(W[None, :48]), R.const(W[None, :48, :16]),
                         R.const(W[:2, :48].reshape(1, 96)), h, lengths, direction="reverse")
            b = R.nn.lstm(x, R.const(W[None]), R.const(W[None, :, :16]),
                          R.const(W[:2].reshape(1, 128)), h, h, lengths)
            R.output(a, b)
        return (a[0], a[1], b[0], b[1], b[2])


@pytest.mark.parametrize("lengths", [[4, 2], [0, 3], [0, 0]])
def test_recurrent_layers_of_sequences_of_several_lengths(lengths: list[int]) -> None:
    packed, names = only(Lengths)
    assert names == ["gru_blocks", "lstm_blocks"]
    x = np.random.default_rng(0).standard_normal((4, 2, 64)).astype(np.float32)
    h = X[:2, :16][None].copy()
    given = np.array(lengths, np.int32)
    for got, want in zip(run(packed, x, h, given), run(Lengths, x, h, given), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_lengths_that_are_no_numbers_of_steps_are_refused() -> None:
    packed, _ = only(Lengths)
    x, h = np.zeros((4, 2, 64), np.float32), np.zeros((1, 2, 16), np.float32)
    with pytest.raises(ValueError, match=r"lengths: expected numbers from 0 to 4, got \[4, 5\]"):
        run(packed, x, h, np.array([4, 5], np.int32))


@I.ir_module
class Rows:
    @R.function
    def main(x: R.Tensor((5, 64), "float32"), g: R.Tensor((64,), "float32")):
        with R.dataflow():
            a = R.nn.softmax(R.divide(x, R.const(np.float32(8))), axis=-1)
            b = R.nn.softmax(x, axis=0)
            c = R.nn.layer_norm(x, g, g, axes=[-1])
            d = R.nn.layer_norm(x, g, g, axes=[1], center=False)
            e = R.nn.softmax(R.multiply(x, x), axis=1)
            R.output(a, b, c, d, e)
        return (a, b, c, d, e)


def test_rows() -> None:
    packed, names = only(Rows)
    assert names == ["softmax_rows", "layer_norm_rows", "layer_norm_rows", "softmax_rows"]
    assert "R.divide" not in str(transform.DeadCodeElimination()(packed))
    for got, want in zip(run(packed, X, W[0]), run(Rows, X, W[0]), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)
    assert only(Rows, precise=True)[1] == []


@I.ir_module
class Small:
    @R.function
    def main(x: R.Tensor((5, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, R.const(W[:8, :8]))
            b = R.add(a, R.const(W[0, :8]))
            c = R.nn.relu(b)
            d = R.matmul(c, R.const(W[:8, :8]))
            e = R.abs(d)
            f = R.multiply(e, R.tanh(x))
            R.output(f)
        return f


def test_small_products_are_packed_with_what_follows() -> None:
    """Such a kernel takes longer than a small product alone, or a short hyperbolic tangent."""
    packed, names = only(Small)
    assert names == ["linear_blocks"]
    rest = str(transform.DeadCodeElimination()(packed))
    assert rest.count("R.matmul") == 1
    assert "R.tanh" in rest
    x = np.ascontiguousarray(X[:, :8])
    np.testing.assert_allclose(run(packed, x)[0], run(Small, x)[0], atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 20, 300])
@pytest.mark.parametrize("columns", [4, 8, 16, 17, 33])
def test_short_layers_have_the_bits_of_long_ones(rows: int, columns: int) -> None:
    """A row does not depend on the others, by whichever way the product is computed."""
    layer = GLOBAL.get("relaxvm.kernel.nn.linear_blocks")
    rng = np.random.default_rng(rows * columns)
    weight = pack_linear(rng.standard_normal((5, columns)).astype(np.float32))
    bias = np.zeros(weight.shape[0] * 16, np.float32)
    bias[:columns] = rng.standard_normal(columns)
    x, more = (rng.standard_normal((1000, n)).astype(np.float32) for n in (5, columns))
    for function in (None, "relu", "tanh"):
        all_rows, some = np.zeros_like(more), np.zeros_like(more[:rows])
        layer(x, weight, bias, more, function, all_rows)
        layer(x[:rows], weight, bias, more[:rows], function, some)
        assert some.tobytes() == all_rows[:rows].tobytes()


def test_other_products_stay() -> None:
    """Weights of the run, other data types, small products, several matrices."""
    assert only(Others)[1] == []
