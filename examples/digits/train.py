"""Train a classifier of handwritten digits on the virtual machine, and save it as an executable.

    python examples/digits/train.py [--out DIR] [--epochs N]

Writes ``digits.vmexec``, an executable with the trained weights, and ``digits_test.npz``, the
held-out images with their labels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from model import inference_program, initial_parameters, training_program

import relaxvm

SEED = 0
HELD_OUT = 360
BATCH = 32
RATE = 0.5


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images as float32[n, 64] with pixels from 0 to 16, and their digits as int64[n]."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        hint = "pip install 'relaxvm[examples]'"
        raise SystemExit(f"the digits come with scikit-learn, which is missing: {hint}") from None
    images, digits = load(return_X_y=True)
    return images.astype(np.float32), digits.astype(np.int64)


def train(
    x: np.ndarray, y: np.ndarray, epochs: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Return the parameters after some epochs.  The VM does the arithmetic, Python shuffles."""
    vm = relaxvm.VirtualMachine(training_program())
    parameters = initial_parameters(rng)
    steps = len(x) // BATCH
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(x))[: steps * BATCH].reshape(steps, BATCH)
        loss, parameters = vm.train_epoch(x, y, order, parameters, RATE)
        print(f"epoch {epoch:2} of {epochs}: loss {loss:.4f}")
    return parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to write")
    parser.add_argument("--epochs", type=int, default=30, metavar="N")
    args = parser.parse_args()

    rng = np.random.default_rng(SEED)
    x, y = load_digits()
    shuffled = rng.permutation(len(x))
    held_out, rest = shuffled[:HELD_OUT], shuffled[HELD_OUT:]
    parameters = train(x[rest], y[rest], args.epochs, rng)

    args.out.mkdir(parents=True, exist_ok=True)
    program, test = args.out / "digits.vmexec", args.out / "digits_test.npz"
    inference_program(parameters).save(program)
    np.savez(test, x=x[held_out], y=y[held_out])

    # Report the accuracy of the saved file.
    accuracy = relaxvm.VirtualMachine(relaxvm.load(program)).accuracy(x[held_out], y[held_out])
    print(f"accuracy on {HELD_OUT} held-out images: {accuracy:.6f}")
    print(
        f"\nnow try:\n"
        f"  relaxvm verify {program}\n"
        f"  relaxvm dis {program}\n"
        f"  relaxvm run {program} --input {test}"
    )


if __name__ == "__main__":
    main()
