"""The character model as a program in Relax script.

One block of a transformer: attention that sees the last `WINDOW` characters, then two layers.
Batch and length are symbolic.  `forward` runs over a whole text; `step` adds one character to it
and caches its keys and values; `extend` calls `step` and itself until the text is complete.
"""

from __future__ import annotations

import string

from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

ALPHABET = "\n" + string.printable[:95]
"""Characters by number."""

CHARS, WIDTH, HEADS, WINDOW = len(ALPHABET), 64, 8, 64
SIZE, HIDDEN = WIDTH // HEADS, 4 * WIDTH

SHAPES = {
    "embedding": (CHARS, WIDTH),
    "norm1": (WIDTH,),
    "qkv": (WIDTH, 3 * WIDTH),
    "distance": (WINDOW, HEADS),
    "mix": (WIDTH, WIDTH),
    "norm2": (WIDTH,),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
    "norm3": (WIDTH,),
    "head": (WIDTH, CHARS),
}
"""Names and shapes of the weights, all of them float32."""

WEIGHTS = R.Tuple(*[R.Tensor(shape, "float32") for shape in SHAPES.values()])


@I.ir_module
class CharModel:
    @R.function
    def main(
        prompt: R.Tensor(("b", "n"), "int64"),
        uniforms: R.Tensor(("b", "more"), "float32"),
        temperature: R.Tensor((), "float32"),
        embedding: R.Tensor((CHARS, WIDTH), "float32"),
        norm1: R.Tensor((WIDTH,), "float32"),
        qkv: R.Tensor((WIDTH, 3 * WIDTH), "float32"),
        distance: R.Tensor((WINDOW, HEADS), "float32"),
        mix: R.Tensor((WIDTH, WIDTH), "float32"),
        norm2: R.Tensor((WIDTH,), "float32"),
        up: R.Tensor((WIDTH, HIDDEN), "float32"),
        down: R.Tensor((HIDDEN, WIDTH), "float32"),
        norm3: R.Tensor((WIDTH,), "float32"),
        head: R.Tensor((WIDTH, CHARS), "float32"),
    ) -> R.Tensor(("b", "n + more"), "int64"):
        """Extend a prompt by one character per element of uniforms, which chooses it."""
        n = T.int64()
        weights = (embedding, norm1, qkv, distance, mix, norm2, up, down, norm3, head)
        state = CharModel.forward(prompt, weights)
        last = R.squeeze(R.strided_slice(state[0], [1], [n - 1], [n], assume_inbound=True), 1)
        return CharModel.extend(prompt, last, state[1], state[2], uniforms, temperature, weights)

    @R.function
    def logits(
        text: R.Tensor(("b", "n"), "int64"),
        embedding: R.Tensor((CHARS, WIDTH), "float32"),
        norm1: R.Tensor((WIDTH,), "float32"),
        qkv: R.Tensor((WIDTH, 3 * WIDTH), "float32"),
        distance: R.Tensor((WINDOW, HEADS), "float32"),
        mix: R.Tensor((WIDTH, WIDTH), "float32"),
        norm2: R.Tensor((WIDTH,), "float32"),
        up: R.Tensor((WIDTH, HIDDEN), "float32"),
        down: R.Tensor((HIDDEN, WIDTH), "float32"),
        norm3: R.Tensor((WIDTH,), "float32"),
        head: R.Tensor((WIDTH, CHARS), "float32"),
    ) -> R.Tensor(("b", "n", CHARS), "float32"):
        """The logits of the next character after each character of a text."""
        weights = (embedding, norm1, qkv, distance, mix, norm2, up, down, norm3, head)
        return CharModel.forward(text, weights)[0]

    @R.function(private=True)
    def forward(text: R.Tensor(("b", "n"), "int64"), weights: WEIGHTS) -> R.Tuple(
        R.Tensor(("b", "n", CHARS), "float32"),
        R.Tensor(("b", "n", HEADS, SIZE), "float32"),
        R.Tensor(("b", "n", HEADS, SIZE), "float32"),
    ):
        """The logits of a whole text, and its keys and values."""
        b, n = T.int64(), T.int64()
        x = R.take(weights[0], text, axis=0)
        qkv = R.split(R.matmul(R.nn.rms_norm(x, weights[1]), weights[2]), 3, axis=2)
        q = R.reshape(qkv[0], (b, n, HEADS, SIZE))
        k = R.reshape(qkv[1], (b, n, HEADS, SIZE))
        v = R.reshape(qkv[2], (b, n, HEADS, SIZE))
        place = R.arange(n)
        back = R.subtract(R.expand_dims(place, 1), R.expand_dims(place, 0))
        seen = R.logical_and(
            R.greater_equal(back, R.const(0, "int64")), R.less(back, R.const(WINDOW, "int64"))
        )
        bias = R.take(weights[3], R.clip(back, 0, WINDOW - 1), axis=0)
        bias = R.where(R.expand_dims(seen, 2), bias, R.const(-1e9, "float32"))
        bias = R.expand_dims(R.permute_dims(bias, (2, 0, 1)), 0)
        found = R.reshape(R.nn.attention(q, k, v, bias), (b, n, WIDTH))
        return CharModel.finish(x, found, weights), k, v

    @R.function(private=True)
    def step(
        char: R.Tensor(("b", 1), "int64"),
        keys: R.Tensor(("b", "m", HEADS, SIZE), "float32"),
        values: R.Tensor(("b", "m", HEADS, SIZE), "float32"),
        weights: WEIGHTS,
    ) -> R.Tuple(
        R.Tensor(("b", CHARS), "float32"),
        R.Tensor(("b", f"T.min(m, {WINDOW - 1}) + 1", HEADS, SIZE), "float32"),
        R.Tensor(("b", f"T.min(m, {WINDOW - 1}) + 1", HEADS, SIZE), "float32"),
    ):
        """The logits after one more character, and the keys and values of the new window."""
        b, m = T.int64(), T.int64()
        x = R.take(weights[0], char, axis=0)
        qkv = R.split(R.matmul(R.nn.rms_norm(x, weights[1]), weights[2]), 3, axis=2)
        q = R.reshape(qkv[0], (b, 1, HEADS, SIZE))
        k = R.reshape(qkv[1], (b, 1, HEADS, SIZE))
        v = R.reshape(qkv[2], (b, 1, HEADS, SIZE))
        first = T.max(m - (WINDOW - 1), 0)
        k = R.concat((R.strided_slice(keys, [1], [first], [m], assume_inbound=True), k), axis=1)
        v = R.concat((R.strided_slice(values, [1], [first], [m], assume_inbound=True), v), axis=1)
        bias = R.flip(R.strided_slice(weights[3], [0], [0], [m - first + 1]), 0)
        bias = R.expand_dims(R.permute_dims(bias, (1, 0)), [0, 2])
        found = R.reshape(R.nn.attention(q, k, v, bias), (b, 1, WIDTH))
        return R.squeeze(CharModel.finish(x, found, weights), 1), k, v

    @R.function(private=True)
    def finish(
        x: R.Tensor(("b", "n", WIDTH), "float32"),
        found: R.Tensor(("b", "n", WIDTH), "float32"),
        weights: WEIGHTS,
    ) -> R.Tensor(("b", "n", CHARS), "float32"):
        """Compute the logits from the result of attention."""
        x = R.add(x, R.matmul(found, weights[4]))
        hidden = R.nn.relu(R.matmul(R.nn.rms_norm(x, weights[5]), weights[6]))
        x = R.add(x, R.matmul(hidden, weights[7]))
        return R.matmul(R.nn.rms_norm(x, weights[8]), weights[9])

    @R.function(private=True)
    def choose(
        logits: R.Tensor(("b", CHARS), "float32"),
        uniform: R.Tensor(("b", 1), "float32"),
        temperature: R.Tensor((), "float32"),
    ) -> R.Tensor(("b", 1), "int64"):
        """Choose the most likely character if temperature is 0, otherwise sample one: the first
        whose cumulative probability is greater than the uniform number."""
        if R.greater(temperature, R.const(0, "float32")):
            shares = R.nn.softmax(R.divide(logits, temperature), axis=1)
            ends = R.cumsum(shares, axis=1)
            passed = R.sum(R.astype(R.less_equal(ends, uniform), "int64"), axis=1, keepdims=True)
            char = R.minimum(passed, R.const(CHARS - 1, "int64"))
        else:
            char = R.argmax(logits, axis=1, keepdims=True)
        return char

    @R.function(private=True)
    def extend(
        text: R.Tensor(("b", "n"), "int64"),
        logits: R.Tensor(("b", CHARS), "float32"),
        keys: R.Tensor(("b", "m", HEADS, SIZE), "float32"),
        values: R.Tensor(("b", "m", HEADS, SIZE), "float32"),
        uniforms: R.Tensor(("b", "more"), "float32"),
        temperature: R.Tensor((), "float32"),
        weights: WEIGHTS,
    ) -> R.Tensor(("b", "n + more"), "int64"):
        """Extend a text by one character per element of uniforms.  The recursive call is a tail
        call, which the code generator turns into a loop."""
        b, n, more = T.int64(), T.int64(), T.int64()
        if R.prim_value(more == 0):
            done = R.match_cast(text, R.Tensor((b, n + more), "int64"))
        else:
            uniform = R.strided_slice(uniforms, [1], [0], [1], assume_inbound=True)
            rest = R.strided_slice(uniforms, [1], [1], [more], assume_inbound=True)
            char = CharModel.choose(logits, uniform, temperature)
            state = CharModel.step(char, keys, values, weights)
            longer = R.concat((text, char), axis=1)
            done = CharModel.extend(
                longer, state[0], state[1], state[2], rest, temperature, weights
            )
        return done
