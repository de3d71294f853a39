"""Models for `compare_models.py`: networks with drawn weights, as ONNX files.

    python bench/onnx_models.py FOLDER [NAME ...]

Needs the package onnx.  Weights are drawn so that activations keep their size from layer to layer
(He et al., "Delving deep into rectifiers", 2015): results are neither all 0 nor infinite, and
comparing them means something.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def main() -> None:
    folder, *names = sys.argv[1:]
    for name, make in MODELS.items():
        path = Path(folder) / f"{name}.onnx"
        if (not names or name in names) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            onnx.save(make(), path)


# The light networks of the package onnx: their weights are made by ConstantOfShape


def light(name: str) -> Any:
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    graph = model.graph
    known = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    users = {(value, i): node for node in graph.node for i, value in enumerate(node.input)}
    rng = np.random.default_rng(0)
    nodes, drawn = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in known:
            nodes.append(node)
            continue
        shape = tuple(int(n) for n in known[node.input[0]])
        is_variance = any(
            name == node.output[0] and i == 4 and user.op_type == "BatchNormalization"
            for (name, i), user in users.items()
        )
        drawn.append(numpy_helper.from_array(weight(rng, shape, is_variance), node.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(drawn)
    used = {value for node in nodes for value in node.input}
    for each in [each for each in graph.initializer if each.name not in used]:
        graph.initializer.remove(each)
    constants = {each.name for each in graph.initializer}
    for each in list(graph.input):
        if each.name in constants or each.name not in used:
            graph.input.remove(each)
    model.ir_version = max(model.ir_version, 4)
    return model


def weight(rng: np.random.Generator, shape: tuple[int, ...], is_variance: bool = False) -> Any:
    if len(shape) > 1:
        size = np.sqrt(2 / np.prod(shape[1:]))
        return (rng.standard_normal(shape) * size).astype(np.float32)
    if is_variance:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.uniform(-0.1, 0.1, shape).astype(np.float32) + np.float32(0.5)


# Networks that are written here


class Network:
    """A graph under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: str, *inputs: Any, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [name], name=name, **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> Any:
        return weight(self.rng, shape)

    def matrix(self, inputs: int, outputs: int) -> Any:
        scale = np.float32(1 / np.sqrt(inputs))
        return self.rng.standard_normal((inputs, outputs)).astype(np.float32) * scale

    def vector(self, count: int, around: float = 0.0) -> Any:
        return (self.rng.standard_normal(count) * 0.1 + around).astype(np.float32)

    def model(self, shape: list[int], result: str) -> Any:
        graph = helper.make_graph(
            self.nodes, "model", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], self.constants,
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def mlp(batch: int) -> Any:
    """784, 1024, 1024, 512, 10."""
    net = Network()
    x, sizes = "x", (784, 1024, 1024, 512, 10)
    for inputs, outputs in pairwise(sizes):
        weights = net.matrix(inputs, outputs).T.copy()
        x = net.add("Gemm", x, weights, net.vector(outputs), transB=1)
        x = net.add("Relu", x) if outputs != sizes[-1] else net.add("Softmax", x)
    return net.model([batch, sizes[0]], x)


def bert(steps: int, layers: int = 4, hidden: int = 768, heads: int = 12) -> Any:
    """An encoder as torch exports it: gelu by Erf, attention by products, norms as operators."""
    net = Network()
    x, size = "x", hidden // heads

    def linear(x: str, inputs: int, outputs: int) -> str:
        product = net.add("MatMul", x, net.matrix(inputs, outputs))
        return net.add("Add", product, net.vector(outputs))

    def split(x: str, order: list[int]) -> str:
        parts = net.add("Reshape", x, np.array([1, steps, heads, size]))
        return net.add("Transpose", parts, perm=order)

    def norm(x: str) -> str:
        return net.add("LayerNormalization", x, net.vector(hidden, 1), net.vector(hidden))

    for _ in range(layers):
        q, k, v = (linear(x, hidden, hidden) for _ in range(3))
        scores = net.add("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
        scores = net.add("Softmax", net.add("Div", scores, np.float32(size**0.5)), axis=-1)
        mixed = net.add("MatMul", scores, split(v, [0, 2, 1, 3]))
        mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = net.add("Reshape", mixed, np.array([1, steps, hidden]))
        x = norm(net.add("Add", linear(mixed, hidden, hidden), x))
        wide = linear(x, hidden, 4 * hidden)
        erf = net.add("Erf", net.add("Div", wide, np.float32(2**0.5)))
        wide = net.add("Mul", wide, net.add("Add", erf, np.float32(1)))
        wide = net.add("Mul", wide, np.float32(0.5))
        x = norm(net.add("Add", linear(wide, 4 * hidden, hidden), x))
    return net.model([1, steps, hidden], x)


def lstm(steps: int, hidden: int = 128) -> Any:
    net = Network()
    w = net.matrix(hidden, 4 * hidden).T.copy()[None]
    r = net.matrix(hidden, 4 * hidden).T.copy()[None]
    x = net.add("LSTM", "x", w, r, net.vector(8 * hidden)[None], hidden_size=hidden)
    return net.model([steps, 1, hidden], x)


def mobilenet_v2() -> Any:
    """Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018."""
    net = Network()

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int, groups: int = 1) -> str:
        return net.add(
            "Conv", x, net.weight(outputs, inputs // groups, size, size), net.vector(outputs),
            kernel_shape=[size, size], strides=[stride] * 2, pads=[size // 2] * 4, group=groups,
        )  # fmt: skip

    def clip(x: str) -> str:
        return net.add("Clip", x, np.float32(0), np.float32(6))

    x, channels = clip(conv("x", 3, 32, 3, 2)), 32
    for expand, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            y, wide = x, channels * expand
            if expand > 1:
                y = clip(conv(y, channels, wide, 1, 1))
            y = clip(conv(y, wide, wide, 3, stride if i == 0 else 1, wide))
            y = conv(y, wide, outputs, 1, 1)
            x = net.add("Add", x, y) if i else y
            channels = outputs
    x = net.add("GlobalAveragePool", clip(conv(x, channels, 1280, 1, 1)))
    x = net.add("Flatten", x)
    x = net.add("Gemm", x, net.matrix(1280, 1000).T.copy(), net.vector(1000), transB=1)
    return net.model([1, 3, 224, 224], x)


def resnet18() -> Any:
    """He et al., "Deep residual learning for image recognition", 2015; batch norm is folded."""
    net = Network()

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int) -> str:
        return net.add(
            "Conv", x, net.weight(outputs, inputs, size, size) * np.float32(0.7),
            net.vector(outputs), kernel_shape=[size, size], strides=[stride] * 2,
            pads=[size // 2] * 4,
        )  # fmt: skip

    x = net.add("Relu", conv("x", 3, 64, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for outputs in (64, 128, 256, 512):
        for i in range(2):
            stride = 2 if i == 0 and outputs > 64 else 1
            y = net.add("Relu", conv(x, channels, outputs, 3, stride))
            y = conv(y, outputs, outputs, 3, 1)
            x = conv(x, channels, outputs, 1, stride) if channels != outputs else x
            x = net.add("Relu", net.add("Add", y, x))
            channels = outputs
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    x = net.add("Gemm", x, net.matrix(512, 1000).T.copy(), net.vector(1000), transB=1)
    return net.model([1, 3, 224, 224], x)


MODELS: dict[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: light(name)
        for name in ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50",
                     "shufflenet", "squeezenet", "vgg19", "zfnet512")
    },
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "mlp_1": lambda: mlp(1),
    "mlp_64": lambda: mlp(64),
    "bert_128": lambda: bert(128),
    "bert_16": lambda: bert(16),
    "lstm_50": lambda: lstm(50),
}  # fmt: skip


if __name__ == "__main__":
    main()
