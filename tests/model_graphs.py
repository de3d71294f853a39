"""Random networks of the operators that models use, with and without each pass.

A graph is drawn from a seed: convolutions with normalization and activation, pools, branches that
are added or concatenated, slices and permutations of images; products, normalizations and attention
of sequences, as operators and in the parts that exporters write.  Each step also computes what it
should give, in plain numpy with float64, which no code of relaxvm takes part in.

``python -m tests.model_graphs --count 100`` compiles graphs with the pipeline for models, whole and
with each of the passes that change them left out by name, and compares the results with numpy's.  A
pass without which a program cannot be compiled must be one of `NEEDED`; a pass that compiles and
gives something else is a failure.  ``--threads 2`` runs them on two threads.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import relaxvm
from relaxvm import ir, op
from relaxvm.transform import PassContext, PassInstrument

__all__: list[str] = []

BOUND: Final = 2e-4
"""Of a result's largest element: graphs have up to a dozen layers of float32, and Winograd's method
in them."""

NEEDED: Final = frozenset({
    "LegalizeOps", "ToNonDataflow", "CallTIRRewrite", "LowerAllocTensor", "LowerRuntimeBuiltin",
    "VMShapeLower",
})  # fmt: skip
"""Passes that lower what the code generator does not take; the last where a size is unknown."""

Array = NDArray[np.float64]


@dataclass
class Value:
    """An expression, and what it should be."""

    expr: Any
    want: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.want.shape


@dataclass
class Graph:
    module: ir.IRModule
    inputs: list[NDArray[np.float32]]
    wanted: list[Array]
    steps: list[str]


def erf(x: Array) -> Array:
    """Its series of Maclaurin; to 2e-8, what is left beyond 4."""
    clipped = np.clip(x, -4, 4)
    total, term = np.zeros_like(x), clipped.copy()
    for n in range(80):
        total += term / (2 * n + 1)
        term = -term * clipped**2 / (n + 1)
    return np.where(np.abs(x) > 4, np.sign(x), total * 2 / np.sqrt(np.pi))


def windows(
    x: Array, kernel: int, stride: int, padding: int, fill: float, dilation: int = 1
) -> Array:
    """[n, c, h, w, kernel, kernel]"""
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)),
                  constant_values=fill)  # fmt: skip
    reach = dilation * (kernel - 1) + 1
    found = sliding_window_view(wide, (reach, reach), axis=(2, 3))
    return found[:, :, ::stride, ::stride, ::dilation, ::dilation]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Maker:
    """Draws one graph."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.builder = relaxvm.BlockBuilder()
        self.steps: list[str] = []
        self.batch: Any = None
        """The first dimension, a number or a variable."""

    # Values

    def weight(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> Value:
        values = (self.numbers.standard_normal(shape) * scale + offset).astype(np.float32)
        return Value(ir.const(values), values.astype(np.float64))

    def emit(self, expr: Any, want: Array) -> Value:
        return Value(self.builder.emit(expr), want)

    def reshaped(self, x: Value, *shape: int) -> Value:
        return self.emit(op.reshape(x.expr, (self.batch, *shape[1:])), x.want.reshape(shape))

    def permuted(self, x: Value, *axes: int) -> Value:
        return self.emit(op.permute_dims(x.expr, axes), x.want.transpose(axes))

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    # Images

    def conv(self, x: Value) -> Value:
        c, size = x.shape[1], min(x.shape[2:])
        groups = self.pick(1, 1, 1, c, 2 if c % 2 == 0 else 1)
        kernel = self.pick(*(k for k in (1, 1, 3, 3, 5) if k <= size))
        stride = self.pick(1, 1, 2)
        dilation = self.pick(1, 1, 1, 2) if (kernel - 1) * 2 < size else 1
        padding = self.pick(0, kernel // 2)
        if groups == c:
            outs = c
        else:
            outs = self.pick(4, 8, 16, 19, 24, 64) if groups == 1 else self.pick(4, 8, 16)
        w = self.weight(outs, c // groups, kernel, kernel,
                        scale=1.0 / np.sqrt(c // groups * kernel * kernel))  # fmt: skip
        taps = windows(x.want, kernel, stride, padding, 0.0, dilation)
        parts = [
            np.einsum("nchwij,ocij->nohw", taps[:, g * c // groups : (g + 1) * c // groups],
                      w.want[g * outs // groups : (g + 1) * outs // groups], optimize=True)
            for g in range(groups)
        ]  # fmt: skip
        expr = op.nn.conv2d(x.expr, w.expr, strides=stride, padding=padding, dilation=dilation,
                            groups=groups)  # fmt: skip
        made = self.emit(expr, np.concatenate(parts, 1))
        if self.rng.random() < 0.5:
            made = self.bias(made)
        if self.rng.random() < 0.5:
            made = self.batch_norm(made)
        return self.activation(made) if self.rng.random() < 0.6 else made

    def bias(self, x: Value) -> Value:
        b = self.weight(1, x.shape[1], 1, 1)
        return self.emit(op.add(x.expr, b.expr), x.want + b.want)

    def scaled(self, x: Value) -> Value:
        s = self.weight(1, x.shape[1], 1, 1, scale=0.2, offset=1.0)
        return self.emit(op.multiply(x.expr, s.expr), x.want * s.want)

    def batch_norm(self, x: Value) -> Value:
        c = x.shape[1]
        gamma, beta, mean = (self.weight(c, scale=0.3, offset=o) for o in (1.0, 0.0, 0.0))
        variance = (self.numbers.standard_normal(c) ** 2 + 0.5).astype(np.float32)
        spread = variance.astype(np.float64)
        expr = op.nn.batch_norm(x.expr, gamma.expr, beta.expr, mean.expr, ir.const(variance), 1,
                                epsilon=1e-3, training=False)  # fmt: skip
        result = self.builder.emit(expr)
        column = (slice(None), None, None)
        want = (x.want - mean.want[column]) / np.sqrt(spread[column] + 1e-3)
        want = want * gamma.want[column] + beta.want[column]
        return self.emit(ir.TupleGetItem(result, 0), want)

    def activation(self, x: Value) -> Value:
        def sigmoid(v: Array) -> Array:
            return 1 / (1 + np.exp(-v))

        name = self.pick("relu", "relu", "silu", "sigmoid", "tanh", "gelu", "leaky", "clip",
                         "swish", "hard", "gelu of parts")  # fmt: skip
        v, want = x.expr, x.want
        if name == "relu":
            return self.emit(op.nn.relu(v), np.maximum(want, 0))
        if name == "silu":
            return self.emit(op.nn.silu(v), want * sigmoid(want))
        if name == "sigmoid":
            return self.emit(op.sigmoid(v), sigmoid(want))
        if name == "tanh":
            return self.emit(op.tanh(v), np.tanh(want))
        if name == "gelu":
            return self.emit(op.nn.gelu(v), want / 2 * (1 + erf(want / np.sqrt(2))))
        if name == "leaky":
            return self.emit(op.nn.leakyrelu(v, 0.1), np.where(want > 0, want, 0.1 * want))
        if name == "clip":
            return self.emit(op.clip(v, 0, 6), np.clip(want, 0, 6))
        one, two, half, three, six = (ir.const(np.float32(n)) for n in (1, 2, 0.5, 3, 6))
        if name == "swish":
            gate = self.builder.emit(op.sigmoid(v))
            return self.emit(op.multiply(v, gate), want * sigmoid(want))
        if name == "hard":
            inner = self.builder.emit(op.clip(op.add(v, three), 0, 6))
            return self.emit(op.divide(op.multiply(v, inner), six),
                             want * np.clip(want + 3, 0, 6) / 6)  # fmt: skip
        root = self.builder.emit(op.divide(v, op.sqrt(two)))
        inner = self.builder.emit(op.add(op.erf(root), one))
        return self.emit(op.multiply(op.multiply(v, inner), half),
                         want / 2 * (1 + erf(want / np.sqrt(2))))  # fmt: skip

    def pool(self, x: Value) -> Value:
        size = min(x.shape[2:])
        kernel = self.pick(*(k for k in (2, 3) if k <= size), 1)
        stride, padding = self.pick(1, 2), self.pick(0, kernel // 2)
        kind = self.pick("max", "avg", "avg, padding counts", "global")
        if kind == "max":
            want = windows(x.want, kernel, stride, padding, -np.inf).max((-1, -2))
            return self.emit(op.nn.max_pool2d(x.expr, kernel, stride, padding), want)
        if kind == "global":
            want = x.want.mean((2, 3), keepdims=True)
            gate = self.emit(op.nn.adaptive_avg_pool2d(x.expr, 1), want)
            return self.emit(op.multiply(x.expr, gate.expr), x.want * want)
        total = windows(x.want, kernel, stride, padding, 0.0).sum((-1, -2))
        counts = windows(np.ones_like(x.want), kernel, stride, padding, 0.0).sum((-1, -2))
        includes = kind != "avg"
        expr = op.nn.avg_pool2d(x.expr, kernel, stride, padding, count_include_pad=includes)
        return self.emit(expr, total / (kernel * kernel if includes else counts))

    def residual(self, x: Value) -> Value:
        """A branch of the same shape, added; the sum may have a relu."""
        c = x.shape[1]
        w = self.weight(c, c, 3, 3, scale=0.3 / np.sqrt(c))
        taps = windows(x.want, 3, 1, 1, 0.0)
        made = self.emit(op.nn.conv2d(x.expr, w.expr, padding=1),
                         np.einsum("nchwij,ocij->nohw", taps, w.want, optimize=True))  # fmt: skip
        if self.rng.random() < 0.5:
            made = self.batch_norm(made)
        pair = (made, x) if self.rng.random() < 0.5 else (x, made)
        total = self.emit(op.add(pair[0].expr, pair[1].expr), made.want + x.want)
        if self.rng.random() < 0.5:
            return self.emit(op.nn.relu(total.expr), np.maximum(total.want, 0))
        return total

    def concat(self, x: Value) -> Value:
        """Branches of channels, as of inception and densenet."""
        parts = [x]
        for _ in range(self.pick(1, 2)):
            outs = self.pick(4, 8, 12)
            w = self.weight(outs, x.shape[1], 1, 1, scale=1 / np.sqrt(x.shape[1]))
            part = self.emit(op.nn.conv2d(x.expr, w.expr),
                             np.einsum("nchw,oc->nohw", x.want, w.want[:, :, 0, 0]))  # fmt: skip
            parts.append(self.activation(part) if self.rng.random() < 0.5 else part)
        self.rng.shuffle(parts)
        return self.emit(op.concat([p.expr for p in parts], 1),
                         np.concatenate([p.want for p in parts], 1))  # fmt: skip

    def slice(self, x: Value) -> Value:
        axis = self.pick(*range(1, x.want.ndim))
        length = x.shape[axis]
        first = self.rng.randrange(0, max(1, length // 2))
        last = self.rng.randrange(first + 1, length + 1)
        index = [slice(None)] * x.want.ndim
        index[axis] = slice(first, last)
        return self.emit(op.strided_slice(x.expr, [axis], [first], [last]), x.want[tuple(index)])

    def split(self, x: Value) -> Value:
        if x.shape[1] % 2 or x.shape[1] < 2:
            return self.slice(x)
        halves = self.builder.emit(op.split(x.expr, 2, 1))
        a, b = np.split(x.want, 2, 1)
        first = self.emit(ir.TupleGetItem(halves, 0), a)
        second = self.emit(ir.TupleGetItem(halves, 1), b)
        if self.rng.random() < 0.5:
            return self.emit(op.concat([second.expr, first.expr], 1), np.concatenate([b, a], 1))
        return self.emit(op.multiply(first.expr, second.expr), a * b)

    def shuffle(self, x: Value) -> Value:
        """Channels of two groups in turns, as shufflenet has them."""
        n, c, h, w = x.shape
        if c % 2:
            return self.pad(x)
        turned = self.permuted(self.reshaped(x, n, 2, c // 2, h, w), 0, 2, 1, 3, 4)
        return self.reshaped(turned, n, c, h, w)

    def pad(self, x: Value) -> Value:
        widths = (0, 0, 0, 0, self.pick(0, 1), 1, 1, self.pick(0, 1))
        pairs = list(zip(widths[::2], widths[1::2], strict=True))
        return self.emit(op.nn.pad(x.expr, widths), np.pad(x.want, pairs))

    def channels_last(self, x: Value) -> Value:
        """An elementwise operator between permutations to NHWC and back."""
        return self.permuted(self.activation(self.permuted(x, 0, 2, 3, 1)), 0, 3, 1, 2)

    # Sequences

    def linear(self, x: Value, outs: int | None = None) -> Value:
        d = x.shape[-1]
        outs = outs or self.pick(8, 16, 20, 32, 48)
        w = self.weight(d, outs, scale=1 / np.sqrt(d))
        expr = op.matmul(x.expr, w.expr)
        if self.rng.random() < 0.3:  # as torch writes it
            turned = ir.const(np.ascontiguousarray(w.want.T.astype(np.float32)))
            expr = op.matmul(x.expr, self.builder.emit(op.permute_dims(turned, (1, 0))))
        made = self.emit(expr, x.want @ w.want)
        if self.rng.random() < 0.6:
            b = self.weight(outs)
            made = self.emit(op.add(made.expr, b.expr), made.want + b.want)
        return made

    def feed_forward(self, x: Value) -> Value:
        inner = self.activation(self.linear(x, self.pick(24, 64)))
        outer = self.linear(inner, x.shape[-1])
        return self.emit(op.add(x.expr, outer.expr), x.want + outer.want)

    def gated(self, x: Value) -> Value:
        """Two products of the same operand, as of Llama's layers."""
        inner = self.pick(16, 24)
        a, b = self.linear(x, inner), self.linear(x, inner)
        gate = self.activation(a)
        both = self.emit(op.multiply(gate.expr, b.expr), gate.want * b.want)
        return self.linear(both, x.shape[-1])

    def layer_norm(self, x: Value) -> Value:
        d = x.shape[-1]
        gamma, beta = self.weight(d, scale=0.2, offset=1.0), self.weight(d, scale=0.2)
        mean = x.want.mean(-1, keepdims=True)
        variance = x.want.var(-1, keepdims=True)
        want = (x.want - mean) / np.sqrt(variance + 1e-5) * gamma.want + beta.want
        if self.rng.random() < 0.5:
            return self.emit(op.nn.layer_norm(x.expr, gamma.expr, beta.expr, [-1], 1e-5), want)
        emit = self.builder.emit
        centred = emit(op.subtract(x.expr, emit(op.mean(x.expr, -1, True))))
        spread = emit(op.mean(op.multiply(centred, centred), -1, True))
        root = emit(op.sqrt(op.add(spread, ir.const(np.float32(1e-5)))))
        scaled = emit(op.multiply(emit(op.divide(centred, root)), gamma.expr))
        return self.emit(op.add(scaled, beta.expr), want)

    def rms_norm(self, x: Value) -> Value:
        gamma = self.weight(x.shape[-1], scale=0.2, offset=1.0)
        want = x.want / np.sqrt((x.want**2).mean(-1, keepdims=True) + 1e-5) * gamma.want
        if self.rng.random() < 0.5:
            return self.emit(op.nn.rms_norm(x.expr, gamma.expr, [-1], 1e-5), want)
        emit = self.builder.emit
        spread = emit(op.mean(op.multiply(x.expr, x.expr), -1, True))
        root = emit(op.rsqrt(op.add(spread, ir.const(np.float32(1e-5)))))
        return self.emit(op.multiply(emit(op.multiply(x.expr, root)), gamma.expr), want)

    def attention(self, x: Value) -> Value:
        """In the parts that exporters write, some with a mask."""
        n, t, _ = x.shape
        heads, d = self.pick(1, 2, 4), self.pick(4, 8)
        emit = self.builder.emit

        def head(kind: str) -> Value:
            flat = self.linear(x, heads * d)
            apart = self.reshaped(flat, n, t, heads, d)
            axes = (0, 2, 3, 1) if kind == "k" else (0, 2, 1, 3)
            return self.permuted(apart, *axes)

        q, k, v = head("q"), head("k"), head("v")
        scale = np.float32(1 / np.sqrt(d))
        scores = emit(op.multiply(op.matmul(q.expr, k.expr), ir.const(scale)))
        want = q.want @ k.want * np.float64(scale)
        if self.rng.random() < 0.4:
            mask = np.triu(np.full((t, t), -1e9, np.float32), 1)[None, None]
            scores, want = emit(op.add(scores, ir.const(mask))), want + mask
        weights = emit(op.nn.softmax(scores, -1))
        mixed = self.emit(op.matmul(weights, v.expr), softmax(want) @ v.want)
        flat = self.reshaped(self.permuted(mixed, 0, 2, 1, 3), n, t, heads * d)
        out = self.linear(flat, x.shape[-1])
        return self.emit(op.add(x.expr, out.expr), x.want + out.want)

    def join(self, x: Value) -> Value:
        """Rows in front, as of tokens for classes."""
        if not isinstance(self.batch, int):
            return self.linear(x)
        rows = self.weight(x.shape[0], 2, x.shape[2])
        return self.emit(op.concat([rows.expr, x.expr], 1), np.concatenate([rows.want, x.want], 1))

    # Graphs

    IMAGES: Final = ("conv", "conv", "conv", "scaled", "activation", "pool", "residual", "concat",
                     "slice", "split", "shuffle", "pad", "channels_last", "bias")  # fmt: skip
    SEQUENCES: Final = ("linear", "feed_forward", "gated", "layer_norm", "rms_norm", "attention",
                        "activation", "slice", "join")  # fmt: skip

    def taken(self, names: tuple[str, ...], x: Value, count: int) -> Value:
        for _ in range(count):
            name = self.rng.choice(names)
            if x.want.ndim == 4 and x.want.size > 40_000:
                name = "pool"
            self.steps.append(name)
            x = getattr(self, name)(x)
            largest = float(np.abs(x.want).max())
            if largest > 30:  # products of activations grow
                self.steps.append("tanh")
                x = self.emit(op.tanh(x.expr), np.tanh(x.want))
        return x

    def graph(self) -> Graph:
        is_image = self.rng.random() < 0.65
        if is_image:
            shape: tuple[int, ...] = (self.pick(1, 1, 2), self.pick(3, 4, 8, 16),
                                      self.rng.randint(5, 17), self.rng.randint(5, 17))  # fmt: skip
        else:
            shape = (self.pick(1, 2), self.rng.randint(1, 18), self.pick(8, 16, 24))
        data = self.numbers.standard_normal(shape).astype(np.float32)
        self.batch = shape[0]
        if self.rng.random() < 0.25:
            self.batch = ir.Var("n", "int64")
            self.steps.append("n")
        parameter = ir.Var("x", ir.TensorType((self.batch, *shape[1:]), "float32"))
        wanted = []
        with self.builder.function("main", [parameter]):
            x = Value(parameter, data.astype(np.float64))
            if is_image:
                x = self.taken(self.IMAGES, x, self.rng.randint(2, 7))
                if self.rng.random() < 0.4:
                    n, c, h, w = x.shape
                    x = self.permuted(self.reshaped(x, n, c, h * w), 0, 2, 1)
                    self.steps.append("to a sequence")
                    x = self.taken(self.SEQUENCES, x, self.rng.randint(1, 3))
            else:
                x = self.taken(self.SEQUENCES, x, self.rng.randint(2, 6))
            results = [x.expr]
            wanted.append(x.want)
            if self.rng.random() < 0.3:
                axis = self.pick(-1, 1)
                other = self.emit(op.mean(x.expr, axis), x.want.mean(axis))
                results.append(other.expr)
                wanted.append(other.want)
            made = results[0] if len(results) == 1 else ir.Tuple(results)
            self.builder.emit_func_output(made)
        return Graph(self.builder.get(), [data], wanted, self.steps)


# ---- running -------------------------------------------------------------------------------


def passes() -> list[str]:
    """The names of the passes of the pipeline for models, each once, in their order."""
    found: dict[str, None] = {}

    def walk(one: Any) -> None:
        parts = getattr(one, "passes", None)
        for part in parts or ():
            walk(part)
        if parts is None:
            found[one.name] = None

    walk(relaxvm.get_pipeline("model"))
    return list(found)


class Changing(PassInstrument):
    """Which passes change a program: a compilation without one of the others is the same again."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._before: list[ir.IRModule] = []

    def run_before_pass(self, mod: ir.IRModule, info: Any) -> None:
        self._before.append(mod)

    def run_after_pass(self, mod: ir.IRModule, info: Any) -> None:
        if not ir.structural_equal(self._before.pop(), mod):
            self.names.add(info.name)


def changing(graph: Graph) -> set[str]:
    """The passes that change a graph."""
    instrument = Changing()
    with PassContext(instruments=[instrument]):
        relaxvm.build(graph.module, relax_pipeline=relaxvm.get_pipeline("model"))
    return instrument.names


def results_of(graph: Graph, without: str | None = None, **options: Any) -> list[NDArray[Any]]:
    """What a compiled graph gives."""
    disabled = [] if without is None else [without]
    with PassContext(disabled_pass=disabled):
        pipeline = relaxvm.get_pipeline("model", **options)
        executable = relaxvm.build(graph.module, relax_pipeline=pipeline)
    got = relaxvm.VirtualMachine(executable)["main"](*graph.inputs)
    return list(got) if isinstance(got, tuple) else [got]


def worst(graph: Graph, got: list[NDArray[Any]]) -> float:
    """The largest error of results, over the largest element of each."""
    if [g.shape for g in got] != [w.shape for w in graph.wanted]:
        return float("inf")
    errors = [float(np.abs(g - w).max() / max(np.abs(w).max(), 1e-3)) if w.size else 0.0
              for g, w in zip(got, graph.wanted, strict=True)]  # fmt: skip
    return max(errors) if all(np.isfinite(errors)) else float("inf")


SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "precise": {"precise": True},
    "low memory": {"memory": "low"},
    "for dataflow": {"keep_apart": True},
}


def failures(seed: int, names: list[str]) -> Iterator[str]:
    """Compile a graph whole, with other settings, and without each pass that changes it; say what
    is wrong."""
    graph = Maker(seed).graph()
    changed = changing(graph)
    what = f"seed {seed} ({', '.join(graph.steps)})"
    runs: list[tuple[str, Callable[[], list[NDArray[Any]]], bool]] = [
        ("all passes", lambda: results_of(graph), False),
        *((name, partial(results_of, graph, **options), False)
          for name, options in SETTINGS.items()),
        *((f"without {name}", partial(results_of, graph, name), name in NEEDED)
          for name in names if name in changed),
    ]  # fmt: skip
    for where, run, may_fail in runs:
        try:
            error = worst(graph, run())
        except Exception as problem:
            if not may_fail:
                yield f"{what}, {where}: {type(problem).__name__}: {str(problem)[:300]}"
            continue
        if not error <= BOUND:
            yield f"{what}, {where}: the error is {error:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--without", action="append", metavar="PASS", help="only this pass")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads is not None:
        relaxvm.set_num_threads(options.threads)
    names = options.without or passes()
    found, begun = 0, time.perf_counter()
    for seed in range(options.seed, options.seed + options.count):
        for line in failures(seed, names):
            found += 1
            print(line, flush=True)
    print(f"{options.count} graphs, {len(names)} passes: {found} failures, "
          f"{time.perf_counter() - begun:.0f} s")  # fmt: skip
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
