"""The classifier as VM programs: one that trains it, one that holds the trained weights.

The network has one hidden layer: ``logits = relu(x / 16 @ w1 + b1) @ w2 + b2``.  Images are rows of
64 pixels from 0 to 16, labels are digits from 0 to 9.  A call takes N images, where N is known only
at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from emitter import Dim, Emitter

import relaxvm

PIXELS, HIDDEN, CLASSES = 64, 64, 10
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
"""Shapes of the parameters w1, b1, w2, b2."""

N = Dim("n", slot=0)
STEPS, BATCH = Dim("steps", slot=1), Dim("batch", slot=2)


def initial_parameters(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Random weights, scaled to preserve the variance of the signal; biases of zero."""
    return tuple(
        np.float32(rng.standard_normal(shape) * np.sqrt(2 / shape[0]))
        if len(shape) == 2
        else np.zeros(shape, np.float32)
        for shape in SHAPES
    )


def training_program() -> relaxvm.VMExecutable:
    """An executable with `train_step` and `train_epoch`."""
    ib = relaxvm.ExecBuilder()
    _emit_train_step(ib)
    _emit_train_epoch(ib)
    return ib.get()


def inference_program(parameters: Sequence[np.ndarray]) -> relaxvm.VMExecutable:
    """An executable with `predict`, `accuracy` and `main`, the weights among its constants."""
    ib = relaxvm.ExecBuilder()
    _emit_predict(ib, parameters)
    _emit_accuracy(ib, "accuracy")
    _emit_accuracy(ib, "main")  # the function that `relaxvm run` calls by default
    return ib.get()


# The network


def _emit_forward(f: Emitter, x: int, params: Sequence[int]) -> tuple[int, int, int]:
    """Emit the forward pass; return the scaled images, the hidden layer and the logits."""
    w1, b1, w2, b2 = params
    scaled = f.kernel("multiply", x, f.ib.convert_constant(1 / 16), f.tensor(N, PIXELS))
    hidden = f.kernel("matmul", scaled, w1, f.tensor(N, HIDDEN))
    f.kernel("add", hidden, b1, hidden)
    f.kernel("relu", hidden, hidden)
    logits = f.kernel("matmul", hidden, w2, f.tensor(N, CLASSES))
    f.kernel("add", logits, b2, logits)
    return scaled, hidden, logits


def _emit_log_softmax(f: Emitter, logits: int) -> None:
    """Replace logits by the logarithms of the class probabilities, row by row, in place."""
    along_row = f.ib.imm(1)
    # Subtract the greatest logit first, or exp would overflow.
    row = f.kernel("max", logits, along_row, f.tensor(N, 1))
    f.kernel("subtract", logits, row, logits)
    powers = f.kernel("exp", logits, f.tensor(N, CLASSES))
    f.kernel("sum", powers, along_row, row)
    f.kernel("log", row, row)
    f.kernel("subtract", logits, row, logits)


# Training


def _emit_train_step(ib: relaxvm.ExecBuilder) -> None:
    """``train_step(x, y, params, rate) -> (loss, params)``: one step down the gradient."""
    names = ["x", "y", "params", "rate"]
    with ib.function("train_step", len(names), names):
        f = Emitter(ib, "train_step", names, slots=1)
        x, y, _, rate = f.inputs
        f.check_tensor(0, "float32", (N, PIXELS))
        f.check_tensor(1, "int64", (N,))
        params = f.unpack(2, len(SHAPES))

        scaled, hidden, scores = _emit_forward(f, x, params)
        _emit_log_softmax(f, scores)
        wanted = _emit_one_hot(f, y)
        loss = _emit_loss(f, scores, wanted)
        grads = _emit_backward(f, scaled, hidden, params[2], scores, wanted)
        updated = []
        for param, grad, shape in zip(params, grads, SHAPES, strict=True):
            f.kernel("multiply", grad, rate, grad)
            updated.append(f.kernel("subtract", param, grad, f.tensor(*shape)))
        new_params = f.call("vm.builtin.make_tuple", *updated)
        ib.emit_ret(f.call("vm.builtin.make_tuple", loss, new_params))


def _emit_one_hot(f: Emitter, y: int) -> int:
    """One row per label with a 1 in the column of its digit: rows of the identity matrix."""
    identity = f.ib.convert_constant(np.eye(CLASSES, dtype=np.float32))
    return f.kernel("take", identity, y, f.ib.imm(0), f.tensor(N, CLASSES))


def _emit_loss(f: Emitter, log_probabilities: int, wanted: int) -> int:
    """Mean cross entropy: minus the mean log probability of the right digits."""
    picked = f.kernel("multiply", log_probabilities, wanted, f.tensor(N, CLASSES))
    by_image = f.kernel("sum", picked, f.ib.imm(1), f.tensor(N))
    loss = f.kernel("mean", by_image, f.tensor())
    return f.kernel("negative", loss, loss)


def _emit_backward(
    f: Emitter, scaled: int, hidden: int, w2: int, log_probabilities: int, wanted: int
) -> list[int]:
    """The gradients of the loss for w1, b1, w2, b2."""
    down = f.ib.imm(0)
    # The gradient for the logits is (probabilities - one_hot(labels)) / n.
    error = f.kernel("exp", log_probabilities, f.tensor(N, CLASSES))
    f.kernel("subtract", error, wanted, error)
    f.kernel("divide", error, f.size(N), error)
    grad_w2 = f.kernel("matmul_tn", hidden, error, f.tensor(HIDDEN, CLASSES))
    grad_b2 = f.kernel("sum", error, down, f.tensor(CLASSES))
    # Back through the hidden layer; the gradient is 0 where relu's input was negative.
    back = f.kernel("matmul_nt", error, w2, f.tensor(N, HIDDEN))
    active = f.kernel("greater", hidden, f.ib.imm(0), f.tensor(N, HIDDEN, dtype="bool"))
    f.kernel("where", active, back, f.ib.imm(0), back)
    grad_w1 = f.kernel("matmul_tn", scaled, back, f.tensor(PIXELS, HIDDEN))
    grad_b1 = f.kernel("sum", back, down, f.tensor(HIDDEN))
    return [grad_w1, grad_b1, grad_w2, grad_b2]


def _emit_train_epoch(ib: relaxvm.ExecBuilder) -> None:
    """``train_epoch(x, y, order, params, rate) -> (mean loss, params)``.

    One step per row of `order`; a row holds the indices of the images of a batch.
    """
    names = ["x", "y", "order", "params", "rate"]
    with ib.function("train_epoch", len(names), names):
        f = Emitter(ib, "train_epoch", names, slots=3)
        x, y, order, params, rate = f.inputs
        f.check_tensor(0, "float32", (N, PIXELS))
        f.check_tensor(1, "int64", (N,))
        f.check_tensor(2, "int64", (STEPS, BATCH))
        zero, one, first = ib.imm(0), ib.imm(1), ib.imm(0)

        steps = f.size(STEPS)
        step = f.kernel("fill", zero, f.tensor(dtype="int64"))
        total = f.kernel("fill", zero, f.tensor())
        more = f.tensor(dtype="bool")
        state = f.call("vm.builtin.copy", params)
        loop, done = ib.label("loop"), ib.label("done")

        ib.bind(loop)
        f.kernel("less", step, steps, more)
        ib.emit_if(f.call("vm.builtin.read_if_cond", more), done)
        rows = f.kernel("take", order, step, first, f.tensor(BATCH, dtype="int64"))
        images = f.kernel("take", x, rows, first, f.tensor(BATCH, PIXELS))
        labels = f.kernel("take", y, rows, first, f.tensor(BATCH, dtype="int64"))
        result = f.call("train_step", images, labels, state, rate)
        f.kernel("add", total, f.item(result, 0), total)
        ib.emit_call("vm.builtin.tuple_getitem", [result, one], dst=state)
        f.kernel("add", step, one, step)
        ib.emit_goto(loop)

        ib.bind(done)
        f.kernel("divide", total, steps, total)
        ib.emit_ret(f.call("vm.builtin.make_tuple", total, state))


# Inference


def _emit_predict(ib: relaxvm.ExecBuilder, parameters: Sequence[np.ndarray]) -> None:
    """``predict(x) -> int64[n]``: the digits of images."""
    with ib.function("predict", 1, ["x"]):
        f = Emitter(ib, "predict", ["x"], slots=1)
        f.check_tensor(0, "float32", (N, PIXELS))
        weights = [ib.convert_constant(parameter) for parameter in parameters]
        _, _, logits = _emit_forward(f, f.inputs[0], weights)
        ib.emit_ret(f.kernel("argmax", logits, ib.imm(1), f.tensor(N, dtype="int64")))


def _emit_accuracy(ib: relaxvm.ExecBuilder, name: str) -> None:
    """``name(x, y) -> float64[]``: the share of images whose digit is recognised."""
    with ib.function(name, 2, ["x", "y"]):
        f = Emitter(ib, name, ["x", "y"], slots=1)
        x, y = f.inputs
        f.check_tensor(0, "float32", (N, PIXELS))
        f.check_tensor(1, "int64", (N,))
        hits = f.kernel("equal", f.call("predict", x), y, f.tensor(N, dtype="bool"))
        numbers = f.kernel("cast", hits, f.tensor(N, dtype="float64"))
        ib.emit_ret(f.kernel("mean", numbers, f.tensor(dtype="float64")))
