"""Fit the character model to the documentation of Python's standard library, and save it.

    python examples/charmodel/train.py [--out DIR] [--steps N]

Writes ``charmodel.vmexec``, the program with its weights, and ``prompt.npz``, arguments for it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import reference
from model import HEADS, SHAPES, SIZE, WIDTH, WINDOW, CharModel
from text import bits_by_counting, documentation, encode

import relaxvm
from relaxvm.transform import BindParams

SEED = 0
BATCH, LENGTH = 32, 64
RATE = 2e-2
EVALUATED = 256
"""Length of the pieces of text that the model is evaluated on."""


def initial_weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights, scaled to preserve the variance of the signal.

    Heads look back over different distances: per character of distance, the first head subtracts 1
    from the score, the last one 1/128.
    """
    weights = {
        name: np.float32(rng.standard_normal(shape) * shape[0] ** -0.5)
        for name, shape in SHAPES.items()
    }
    for name in ("norm1", "norm2", "norm3"):
        weights[name] = np.ones(WIDTH, np.float32)
    weights["embedding"] = np.float32(rng.standard_normal(SHAPES["embedding"]))
    slopes = np.float32(0.5 ** np.arange(HEADS))
    weights["distance"] = -np.arange(WINDOW, dtype=np.float32)[:, None] * slopes
    return weights


def loss_and_gradients(
    weights: dict[str, np.ndarray], text: np.ndarray, following: np.ndarray
) -> tuple[float, dict[str, np.ndarray]]:
    """Return the mean cross entropy of the following characters, in nats, and its gradient for each
    weight.  text, following: int64[b, n]."""
    w, s, grads = weights, reference.forward(weights, text), {}
    b, n = text.shape
    places = (*np.indices(text.shape), following)
    powers = np.exp(s["logits"] - s["logits"].max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    loss = -np.log(shares[places]).mean()

    # From here on d<name> is the gradient of the loss for s[name].
    dlogits = shares
    dlogits[places] -= 1
    dlogits /= text.size
    grads["head"] = _outer(s["normed3"], dlogits)
    dz, grads["norm3"] = _back_norm(dlogits @ w["head"].T, s["z"], s["scale3"], w["norm3"])
    grads["down"] = _outer(s["hidden"], dz)
    dhidden = np.where(s["hidden"] > 0, dz @ w["down"].T, 0)
    grads["up"] = _outer(s["normed2"], dhidden)
    dy, grads["norm2"] = _back_norm(dhidden @ w["up"].T, s["y"], s["scale2"], w["norm2"])
    dy += dz

    grads["mix"] = _outer(s["found"], dy)
    dfound = (dy @ w["mix"].T).reshape(b, n, HEADS, SIZE).swapaxes(1, 2)
    dv = s["shares"].swapaxes(-1, -2) @ dfound
    dscores = s["shares"] * (dfound @ s["v"].swapaxes(-1, -2))
    dscores -= s["shares"] * dscores.sum(axis=-1, keepdims=True)
    grads["distance"] = _back_bias(dscores.sum(axis=0))
    dscores /= np.float32(SIZE**0.5)
    dq, dk = dscores @ s["k"], dscores.swapaxes(-1, -2) @ s["q"]
    dqkv = np.stack([dq, dk, dv]).transpose(1, 3, 0, 2, 4).reshape(b, n, 3 * WIDTH)
    grads["qkv"] = _outer(s["normed1"], dqkv)
    dx, grads["norm1"] = _back_norm(dqkv @ w["qkv"].T, s["x"], s["scale1"], w["norm1"])
    dx += dy
    grads["embedding"] = np.zeros_like(w["embedding"])
    np.add.at(grads["embedding"], text, dx)
    return float(loss), grads


def _outer(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """The gradient for w of ``y = x @ w``."""
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


def _back_norm(
    dy: np.ndarray, x: np.ndarray, scale: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients for x and weight of ``y = x * scale * weight``, scale being 1 / rms(x)."""
    unit, dunit = x * scale, dy * weight
    dx = scale * (dunit - unit * (dunit * unit).mean(axis=-1, keepdims=True))
    return dx, (dy * unit).sum(axis=(0, 1))


def _back_bias(dbias: np.ndarray) -> np.ndarray:
    """The gradient for the biases by distance, from those by position: float32[heads, n, n]."""
    grad = np.zeros((WINDOW, HEADS), np.float32)
    for back in range(min(WINDOW, dbias.shape[-1])):
        grad[back] = np.trace(dbias, -back, axis1=1, axis2=2)
    return grad


def fit(text: np.ndarray, steps: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the weights after some steps of Adam on random pieces of a text."""
    weights = initial_weights(rng)
    means = {name: np.zeros_like(weight) for name, weight in weights.items()}
    squares = {name: np.zeros_like(weight) for name, weight in weights.items()}
    started, losses = time.perf_counter(), []
    for step in range(1, steps + 1):
        starts = rng.integers(0, len(text) - LENGTH, BATCH)
        pieces = text[starts[:, None] + np.arange(LENGTH + 1)]
        loss, grads = loss_and_gradients(weights, pieces[:, :-1], pieces[:, 1:])
        rate = RATE * min(1, step / 50) * (1 - 0.95 * step / steps)
        rate *= (1 - 0.99**step) ** 0.5 / (1 - 0.9**step)
        for name, grad in grads.items():
            means[name] += 0.1 * (grad - means[name])
            squares[name] += 0.01 * (grad * grad - squares[name])
            weights[name] -= rate * means[name] / (np.sqrt(squares[name]) + 1e-8)
        losses.append(loss / np.log(2))
        if step % max(1, steps // 10) == 0:
            bits = np.mean(losses[-max(1, steps // 10) :])
            print(f"step {step} of {steps}: {bits:.3f} bits per character, "
                  f"{time.perf_counter() - started:.0f} s")  # fmt: skip
    return weights


def program(weights: dict[str, np.ndarray]) -> relaxvm.VMExecutable:
    """Compile the model, with its weights among the constants.

    `build` binds the parameters of `main`; those of `logits` are bound before.
    """
    return relaxvm.build(BindParams("logits", weights)(CharModel), params=weights)


def bits_per_character(vm: relaxvm.VirtualMachine, text: np.ndarray) -> float:
    """Return the mean cross entropy in bits, over all but the first character of each piece."""
    pieces = text[: len(text) // EVALUATED * EVALUATED].reshape(-1, EVALUATED)
    bits = []
    for batch in np.array_split(pieces, max(1, len(pieces) // BATCH)):
        logits = vm.logits(batch[:, :-1])
        logits -= logits.max(axis=-1, keepdims=True)
        shares = np.take_along_axis(logits, batch[:, 1:, None], axis=-1)[..., 0]
        bits.append((np.log(np.exp(logits).sum(axis=-1)) - shares).ravel() / np.log(2))
    return float(np.concatenate(bits).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to write")
    parser.add_argument("--steps", type=int, default=3000, metavar="N")
    args = parser.parse_args()

    rng = np.random.default_rng(SEED)
    learned, held_out = documentation()
    print(f"{len(learned):,} characters to learn from, {len(held_out):,} held out")
    weights = fit(learned, args.steps, rng)

    args.out.mkdir(parents=True, exist_ok=True)
    file, prompt = args.out / "charmodel.vmexec", args.out / "prompt.npz"
    program(weights).save(file)
    np.savez(
        prompt,
        prompt=encode("\nReturn ")[None],
        uniforms=rng.random((1, 200), np.float32),
        temperature=np.float32(0.5),
    )

    # Evaluate the saved file.
    vm = relaxvm.VirtualMachine(relaxvm.load(file))
    print("bits per character of the text held out:")
    for before, name in enumerate(("frequencies", "pairs counted", "triples counted")):
        print(f"  {name:16}{bits_by_counting(learned, held_out, before):.3f}")
    print(f"  {'the model':16}{bits_per_character(vm, held_out):.3f}")
    print(
        f"\nnow try:\n"
        f"  python {Path(__file__).with_name('generate.py')} {file} --prompt 'Return '\n"
        f"  relaxvm run {file} --input {prompt}"
    )


if __name__ == "__main__":
    main()
