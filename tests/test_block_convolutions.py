"""BlockConvolutions: random networks give equal results with the pass and without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.frontend.onnx import from_onnx
from relaxvm.ir import Call, ExternFunc, IRModule, TensorType, const, post_order_visit
from relaxvm.kernels.cpu import SETS
from relaxvm.op.lowering import kernel_call
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.transform.pipelines import get_pipeline

# Networks of random operators


class Network:
    """A random network of convolutions along one to three axes, and what stands between them."""

    def __init__(self, seed: int, *, axes: int = 2, symbolic: bool = False) -> None:
        self.axes = axes
        self.conv = getattr(R.nn, f"conv{axes}d")
        self.rng = np.random.default_rng(seed)
        self.bb = relaxvm.BlockBuilder()
        channels, side = int(self.rng.choice([1, 3, 16, 24])), int(self.rng.integers(9, 20))
        batch = int(self.rng.integers(1, 3))
        dims: list[Any] = [batch, channels, *[side] * axes]
        if axes == 3:
            dims[2] = int(self.rng.integers(3, 6))
        self.input = self.rng.standard_normal(dims).astype(np.float32)
        if symbolic:
            names = "ncyx"[: 2 + axes] if axes < 3 else "nctyx"
            dims = [dims[i] if name in "ct" else relaxvm.ir.Var(name, relaxvm.ir.PrimType("int64"))
                    for i, name in enumerate(names)]  # fmt: skip
        x = relaxvm.ir.Var("x", TensorType(dims, "float32"))
        with self.bb.function("main", [x]):
            with self.bb.dataflow():
                self.values = [x]
                for _ in range(12):
                    self.values.append(self.step())
                results = [self.bb.emit_output(v) for v in (self.values[-1], self.values[-3])]
            self.bb.emit_func_output(relaxvm.ir.Tuple(results))
        self.mod = self.bb.get()

    def emit(self, call: Any) -> Any:
        return self.bb.emit(call)

    def normal(self, *shape: int) -> Any:
        scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
        return const((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def per_channel(self, count: int) -> Any:
        return self.normal(1, count, *[1] * self.axes)

    def window(self, outputs: int, inputs: int, size: int) -> Any:
        return self.normal(outputs, inputs, *[size] * self.axes)

    def channels(self, value: Any) -> int:
        return int(value.ty.dims[1].value)

    def shuffle(self, value: Any, groups: int) -> Any:
        """Often followed by what takes shuffled channels."""
        batch, channels, *area = value.ty.dims
        count = int(channels.value)
        split = self.emit(R.reshape(value, [batch, groups, count // groups, *area]))
        split = self.emit(R.permute_dims(split, [0, 2, 1, 3, 4]))
        value = self.emit(R.reshape(split, [batch, channels, *area]))
        kind = self.rng.integers(4)
        if kind > 0:
            weight = self.normal(count, 1, 3, 3)
            value = self.emit(R.nn.conv2d(value, weight, padding=1, groups=count))
        if kind > 1:
            value = self.emit(R.add(value, self.normal(1, count, 1, 1)))
        if kind > 2:
            weight = self.normal(24, count // groups, 1, 1)
            value = self.emit(R.nn.conv2d(value, weight, groups=groups))
        return value

    CURVES = ("silu", "gelu", "sigmoid", "leaky", "prelu", "hard swish", "scale", "shift", "over")

    def curve(self, kind: str, value: Any, channels: int) -> Any:
        """What may follow the sums of a convolution."""
        number = const(np.float32(self.rng.choice([-1.5, 0.5, 2])))
        if kind == "leaky":
            return self.emit(R.nn.leakyrelu(value, 0.1))
        if kind == "prelu":
            return self.emit(R.nn.prelu(value, self.normal(int(self.rng.choice([1, channels])))))
        if kind == "hard swish":
            return self.emit(kernel_call("nn.apply", (value, "hard_swish"), value.ty))
        if kind in ("scale", "over"):
            return self.emit((R.multiply if kind == "scale" else R.divide)(value, number))
        if kind == "shift":
            return self.emit(R.add(number, value))
        function = {"silu": R.nn.silu, "gelu": R.nn.gelu, "sigmoid": R.sigmoid}[kind]
        return self.emit(function(value))

    def of_frames(self, value: Any, outputs: int, channels: int, size: int) -> Any:
        """A convolution along three axes whose windows, steps and padding differ by axis."""
        frames = int(value.ty.dims[2].value)
        deep = int(self.rng.integers(1, min(3, frames) + 1))
        dilation = 2 if deep == 2 and frames > 2 and self.rng.random() < 0.5 else 1
        before, after = (int(n) for n in self.rng.integers(0, 3, 2))
        half = size // 2
        return R.nn.conv3d(
            value, self.normal(outputs, channels, deep, size, size),
            strides=[int(self.rng.choice([1, 1, 2])), *[int(self.rng.choice([1, 1, 2]))] * 2],
            padding=[before, half, half, after, half, half], dilation=[dilation, 1, 1],
        )  # fmt: skip

    LARGER = ("resize", "transposed", "excite")

    def larger(self, kind: str, value: Any, channels: int) -> Any:
        """Images of twice the size, and squeeze and excitation."""
        area = value.ty.dims[2:]
        if self.axes != 2 or (kind != "excite" and len(self.values) > 8):
            return self.emit(R.nn.relu(value))
        if kind == "resize":
            method = str(self.rng.choice(["nearest_neighbor", "linear"]))
            size = [2 * length for length in area]
            return self.emit(R.image.resize(value, size, [2, 3], method=method))
        if kind == "transposed":
            outputs, strides = int(self.rng.choice([1, 3, 16, 24])), int(self.rng.choice([1, 2]))
            weight = self.normal(channels, outputs, 2, 2)
            value = self.emit(R.nn.conv2d_transpose(value, weight, strides=strides))
            return self.emit(R.add(value, self.normal(1, outputs, 1, 1)))
        mean = self.emit(R.mean(value, [2, 3], keepdims=True))
        gate = self.emit(self.conv(mean, self.window(channels, channels, 1)))
        gated = self.emit(R.multiply(value, self.emit(R.sigmoid(gate))))
        return self.emit(R.add(value, gated)) if self.rng.random() < 0.5 else gated

    def step(self) -> Any:
        recent = self.values[-4:]
        value = recent[self.rng.integers(len(recent))] if self.rng.random() < 0.3 else recent[-1]
        channels = self.channels(value)
        kind = self.rng.choice(
            ["conv", "conv", "conv", "depthwise", "bias", "relu", "clip", "residual", "pool",
             "concat", "norm", "affine", "most", "least", "tanh", "gate", "mean", "strange",
             "shuffle" if self.axes == 2 else "groups", "groups", *self.CURVES, *self.LARGER]
        )  # fmt: skip
        if kind in self.CURVES:
            return self.curve(kind, value, channels)
        if kind in self.LARGER:
            return self.larger(kind, value, channels)
        if kind == "conv":
            size = int(self.rng.choice([1, 3, 3, 3, 5]))
            outputs = int(self.rng.choice([1, 8, 16, 20, 32]))
            strides = int(self.rng.choice([1, 1, 1, 2]))
            weight = self.window(outputs, channels, size)
            if self.axes == 3:
                return self.emit(self.of_frames(value, outputs, channels, size))
            return self.emit(self.conv(value, weight, strides=strides, padding=size // 2))
        if kind == "depthwise":
            weight = self.window(channels, 1, 3)
            return self.emit(self.conv(value, weight, padding=1, groups=channels))
        if kind == "bias":
            return self.emit(R.add(value, self.per_channel(channels)))
        if kind == "relu":
            return self.emit(R.nn.relu(value))
        if kind == "clip":
            return self.emit(R.clip(value, 0, 6))
        if kind == "residual":
            alike = relaxvm.ir.structural_equal
            same = [v for v in self.values if alike(v.ty.shape, value.ty.shape)]
            return self.emit(R.add(value, same[self.rng.integers(len(same))]))
        if kind == "pool":
            which = "max_pool" if self.rng.random() < 0.5 else "avg_pool"
            pool = getattr(R.nn, f"{which}{self.axes}d")
            return self.emit(pool(value, [3] * self.axes, strides=1, padding=1))
        if kind == "concat":
            return self.emit(R.concat([value, value], axis=1))
        if kind == "norm":
            one = [np.abs(self.rng.standard_normal(channels)).astype(np.float32) for _ in range(4)]
            norm = self.emit(R.nn.batch_norm(value, *map(const, one), axis=1, training=False))
            return self.emit(norm[0])
        if kind == "affine":
            return self.emit(R.multiply(value, self.per_channel(channels)))
        if kind == "groups":
            groups = int(self.rng.choice([n for n in (1, 2, 4) if channels % n == 0]))
            outputs = groups * int(self.rng.choice([3, 6, 8]))
            weight = self.window(outputs, channels // groups, 1)
            return self.emit(self.conv(value, weight, groups=groups))
        if kind == "shuffle":
            fitting = [n for n in (1, 2, 4) if channels % n == 0]
            return self.shuffle(value, int(self.rng.choice(fitting)))
        if kind == "most":
            return self.emit(R.minimum(value, const(np.float32(6))))
        if kind == "least":
            zero = np.zeros([1] * (2 + self.axes), np.float32)
            return self.emit(R.maximum(const(zero), value))
        if kind == "tanh":
            return self.emit(R.tanh(value))
        if kind == "gate":
            return self.emit(R.multiply(value, R.sigmoid(value)))
        if kind == "mean":
            mean = self.emit(R.mean(value, axis=[2, 3][: self.axes], keepdims=True))
            return self.emit(R.multiply(value, mean))
        if self.axes != 2:
            return self.emit(R.flip(value, 2))
        return self.emit(R.permute_dims(value, [0, 1, 3, 2]))


def kernels_of(mod: IRModule) -> list[str]:
    names: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, Call) and isinstance(expr.args[0] if expr.args else None, ExternFunc):
            names.append(expr.args[0].global_symbol.removeprefix("relaxvm.kernel.nn."))

    post_order_visit(mod["main"], visit)
    return names


def run(mod: IRModule, *args: Any) -> list[np.ndarray]:
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    results = vm["main"](*args)
    return [np.array(each) for each in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_random_networks(axes: int, symbolic: bool) -> None:
    counts = {False: 0, True: 0}
    for seed in range(40):
        network = Network(seed, axes=axes, symbolic=symbolic)
        want = run(network.mod, network.input)
        for precise in counts:
            blocked = transform.BlockConvolutions(precise=precise)(network.mod)
            relaxvm.analysis.well_formed(blocked)
            counts[precise] += sum("blocks" in name for name in kernels_of(blocked))
            for got, expected in zip(run(blocked, network.input), want, strict=True):
                scale = max(1.0, float(np.abs(expected).max(initial=0)))
                np.testing.assert_allclose(
                    got, expected, rtol=0, atol=1e-4 * scale, err_msg=f"{seed}, {precise}"
                )
    assert min(counts.values()) > 100


# What becomes one call


def only(mod: IRModule, **options: Any) -> tuple[IRModule, list[str]]:
    blocked = transform.BlockConvolutions(**options)(mod)
    return blocked, kernels_of(blocked)


LARGER = np.random.default_rng(6).standard_normal((16, 16, 2, 2)).astype(np.float32) / 8
WEIGHT = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32) / 12


@I.ir_module
class Residual:
    @R.function
    def main(x: R.Tensor(("n", 16, 9, 9), "float32")) -> R.Tensor(("n", 16, 9, 9), "float32"):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(WEIGHT), padding=1)
            b = R.add(a, R.const(np.ones((1, 16, 1, 1), "float32")))
            c = R.nn.relu(b)
            d = R.nn.conv2d(c, R.const(WEIGHT), padding=1)
            e = R.add(d, x)
            f = R.nn.relu(e)
            R.output(f)
        return f


def test_bias_residual_and_bounds_are_part_of_the_call() -> None:
    blocked, names = only(Residual)
    assert names == ["to_blocks", "conv2d_winograd_blocks", "conv2d_winograd_blocks", "from_blocks"]
    x = np.random.default_rng(1).standard_normal((2, 16, 9, 9)).astype(np.float32)
    np.testing.assert_allclose(run(blocked, x)[0], run(Residual, x)[0], atol=1e-5)


PIXEL = np.random.default_rng(5).standard_normal((16, 16, 1, 1)).astype(np.float32) / 4


@I.ir_module
class Functions:
    @R.function
    def main(x: R.Tensor(("n", 16, 9, 9), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(WEIGHT), padding=1)
            b = R.nn.silu(a)
            c = R.multiply(b, R.const(0.5, "float32"))
            d = R.add(c, R.const(2.0, "float32"))
            e = R.nn.conv2d(d, R.const(PIXEL))
            f = R.nn.prelu(e, R.const(np.linspace(-1, 1, 16).astype("float32")))
            g = R.divide(f, R.const(4.0, "float32"))
            R.output(g)
        return g


def test_functions_and_what_follows_them_are_part_of_the_call() -> None:
    blocked, names = only(Functions)
    assert names == ["to_blocks", "conv2d_winograd_blocks", "conv2d_blocks", "from_blocks"]
    x = np.random.default_rng(1).standard_normal((2, 16, 9, 9)).astype(np.float32)
    np.testing.assert_allclose(run(blocked, x)[0], run(Functions, x)[0], atol=1e-5)
    names = only(Functions, precise=True)[1]
    assert names == ["to_blocks", "conv2d_blocks", "conv2d_blocks", "from_blocks"]


@I.ir_module
class Detector:
    @R.function
    def main(x: R.Tensor(("n", 16, "h", "w"), "float32")):
        h, w = T.int64(), T.int64()
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(PIXEL))
            b = R.mean(a, [2, 3], keepdims=True)
            c = R.nn.conv2d(b, R.const(PIXEL))
            d = R.sigmoid(c)
            e = R.multiply(a, d)
            f = R.add(a, e)
            g = R.image.resize(f, R.shape([h * 2, w * 2]), [2, 3], method="nearest_neighbor")
            i = R.nn.conv2d_transpose(g, R.const(LARGER[:, :10]), strides=2)
            j = R.nn.relu(R.add(i, R.const(LARGER[:1, :10, :1, :1])))
            k = R.nn.conv2d_transpose(j, R.const(LARGER[:10, :1]), strides=2)
            m = R.sigmoid(R.add(k, R.const(LARGER[:1, 3:4, :1, :1])))
            R.output(m)
        return m


def test_images_stay_in_blocks_from_end_to_end() -> None:
    """Squeeze and excitation, resizing, and transposed convolutions whose windows are apart."""
    blocked, names = only(Detector)
    assert names == [
        "to_blocks", "conv2d_blocks", "mean_blocks", "conv2d_blocks", "gate_blocks",
        "conv2d_blocks", "conv2d_blocks", "from_blocks",
    ]  # fmt: skip
    x = np.random.default_rng(1).standard_normal((2, 16, 5, 7)).astype(np.float32)
    np.testing.assert_allclose(run(blocked, x)[0], run(Detector, x)[0], atol=1e-5)


def test_precise_leaves_out_the_transforms() -> None:
    assert "conv2d_winograd_blocks" not in only(Residual, precise=True)[1]


@I.ir_module
class UsedTwice:
    @R.function
    def main(x: R.Tensor((1, 16, 9, 9), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(WEIGHT), padding=1)
            b = R.nn.relu(a)
            c = R.subtract(a, b)
            R.output(a, c)
        return (a, c)


def test_a_result_that_is_used_twice_is_not_part_of_what_follows() -> None:
    blocked, _ = only(UsedTwice)
    x = np.random.default_rng(2).standard_normal((1, 16, 9, 9)).astype(np.float32)
    for got, want in zip(run(blocked, x), run(UsedTwice, x), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


@I.ir_module
class Nested:
    @R.function
    def main(
        x: R.Tensor((1, 16, 9, 9), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor((1, 16, 9, 9), "float32"):
        a = R.nn.conv2d(x, R.const(WEIGHT), padding=1)
        if c:
            b = R.nn.relu(a)
            y = R.nn.conv2d(b, R.const(WEIGHT), padding=1)
        else:
            y = R.tanh(a)
        z = R.nn.relu(y)
        return z


@pytest.mark.parametrize("cond", [False, True])
def test_branches(cond: bool) -> None:
    x = np.random.default_rng(3).standard_normal((1, 16, 9, 9)).astype(np.float32)
    args = x, np.array(cond)
    blocked, names = only(Nested)
    assert names.count("conv2d_winograd_blocks") == 2
    np.testing.assert_allclose(run(blocked, *args)[0], run(Nested, *args)[0], atol=1e-5)


@I.ir_module
class BothBranches:
    @R.function
    def main(
        x: R.Tensor((1, 16, 9, 9), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor((1, 16, 9, 9), "float32"):
        if c:
            y = R.nn.conv2d(x, R.const(WEIGHT), padding=1)
        else:
            y = R.nn.conv2d(R.nn.relu(x), R.const(WEIGHT), padding=1)
        a = R.nn.conv2d(x, R.const(WEIGHT), padding=1)
        z = R.add(a, y)
        return z


@pytest.mark.parametrize("cond", [False, True])
def test_what_one_branch_brings_into_blocks_is_not_there_in_others(cond: bool) -> None:
    x = np.random.default_rng(3).standard_normal((1, 16, 9, 9)).astype(np.float32)
    args = x, np.array(cond)
    blocked, names = only(BothBranches)
    assert names.count("conv2d_winograd_blocks") == 3
    np.testing.assert_allclose(run(blocked, *args)[0], run(BothBranches, *args)[0], atol=1e-5)


@I.ir_module
class BeforeALocalFunction:
    @R.function
    def main(
        x: R.Tensor((1, 16, 9, 9), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor((1, 16, 9, 9), "float32"):
        a = R.nn.conv2d(x, R.const(WEIGHT), padding=1)

        @R.function
        def loop(
            c: R.Tensor((), "bool"), x: R.Tensor((1, 16, 9, 9), "float32")
        ) -> R.Tensor((1, 16, 9, 9), "float32"):
            if c:
                d = R.logical_not(c)
                y: R.Tensor((1, 16, 9, 9), "float32") = loop(d, R.negative(x))
            else:
                y = x
            return y

        b = loop(c, x)
        z = R.add(a, b)
        return z


@pytest.mark.parametrize("cond", [False, True])
def test_a_convolution_before_a_local_function_stays_outside_of_it(cond: bool) -> None:
    x = np.random.default_rng(3).standard_normal((1, 16, 9, 9)).astype(np.float32)
    args = x, np.array(cond)
    blocked, names = only(BeforeALocalFunction)
    assert names.count("conv2d_winograd_blocks") == 1
    expected = run(BeforeALocalFunction, *args)[0]
    np.testing.assert_allclose(run(blocked, *args)[0], expected, atol=1e-5)


@I.ir_module
class Others:
    @R.function
    def main(
        x: R.Tensor((1, 16, 9, 9), "float32"),
        y: R.Tensor((1, 16, 9, 9), "float16"),
        w: R.Tensor((16, 16, 3, 3), "float32"),
    ):
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            b = R.nn.conv2d(y, R.const(WEIGHT.astype("float16")))
            d = R.nn.conv2d(x, R.const(WEIGHT), out_layout="NHWC")
            e = R.nn.conv2d(x, R.const(WEIGHT[:3, :, :1, :1]))
            R.output(a, b, d, e)
        return (a, b, d, e)


def test_other_convolutions_stay() -> None:
    """Weights of the run, other data types, other layouts, few outputs of one pixel each."""
    assert only(Others)[1] == []


VIDEO = np.random.default_rng(7).standard_normal((16, 16, 3, 3, 3)).astype(np.float32) / 20


@I.ir_module
class Video:
    @R.function
    def main(x: R.Tensor(("n", 16, 5, 9, 9), "float32")):
        with R.dataflow():
            a = R.nn.conv3d(x, R.const(VIDEO), padding=1)
            b = R.add(a, R.const(np.ones((1, 16, 1, 1, 1), "float32")))
            c = R.nn.relu(b)
            d = R.nn.conv3d(c, R.const(VIDEO), padding=1)
            e = R.nn.relu(R.add(d, c))
            f = R.nn.conv3d(e, R.const(VIDEO[:, :, :1]), strides=[2, 1, 1])
            R.output(f)
        return f


def test_frames_of_videos_are_images_in_blocks() -> None:
    blocked, names = only(Video)
    assert names == ["to_blocks", *["conv2d_winograd_blocks"] * 3, "from_blocks"]
    x = np.random.default_rng(1).standard_normal((2, 16, 5, 9, 9)).astype(np.float32)
    got, want = run(blocked, x)[0], run(Video, x)[0]
    assert got.shape == (2, 16, 3, 7, 7)
    np.testing.assert_allclose(got, want, atol=2e-5)


@I.ir_module
class OtherVideos:
    @R.function
    def main(
        x: R.Tensor((1, 16, "t", 9, 9), "float32"),
        y: R.Tensor((1, 32, 5, 9, 9), "float32"),
        z: R.Tensor((1, 16, 20, 9, 9), "float32"),
    ):
        with R.dataflow():
            a = R.nn.conv3d(x, R.const(VIDEO))
            b = R.nn.conv3d(y, R.const(VIDEO), groups=2)
            c = R.nn.conv3d(z, R.const(np.ones((16, 16, 17, 1, 1), "float32")))
            R.output(a, b, c)
        return (a, b, c)


def test_other_convolutions_of_videos_stay() -> None:
    """Frames whose number the run knows, groups, windows of many frames."""
    assert only(OtherVideos)[1] == []


# Models


def test_the_pipeline_of_models(tmp_path: Any) -> None:
    """`build` optimizes what a frontend has made of a model, and nothing else."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(WEIGHT, "w")
    norm = [onnx.numpy_helper.from_array(np.full(16, n, np.float32), f"p{n}") for n in (1, 2, 3, 4)]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "p1", "p2", "p3", "p4"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    shape = ["n", 16, "h", "w"]
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, shape)], [info("y", 1, None)], [weight, *norm]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = np.random.default_rng(4).standard_normal((2, 16, 10, 11)).astype(np.float32)
    optimized = relaxvm.compile(model)
    plain = relaxvm.compile(model, relax_pipeline="default_build")
    precise = relaxvm.build(from_onnx(model), relax_pipeline=get_pipeline("model", precise=True))
    assert ("conv2d_winograd_blocks" in optimized.as_text()) == bool(SETS)
    assert "blocks" not in plain.as_text()
    assert "winograd" not in precise.as_text()
    results = [
        np.asarray(relaxvm.VirtualMachine(ex)["main"](x)) for ex in (optimized, plain, precise)
    ]
    for result in results:
        np.testing.assert_allclose(result, results[1], atol=2e-5)
    optimized.save(tmp_path / "model.vmexec")
    loaded = relaxvm.VirtualMachine(relaxvm.load(tmp_path / "model.vmexec"), functions=())
    np.testing.assert_array_equal(loaded["main"](x), results[0])
