"""Speed of the character model of the examples on relaxvm, plain numpy and apache-tvm.

    python bench/compare_charmodel.py [--length N] [--repeats N] [--json FILE]

All use one thread and the same random weights, and write the same text, which is compared first.
They alternate, and the minimum CPU time of each counts.  The row of apache-tvm is printed only if
the extra ``tvm`` is installed.
"""

# ruff: noqa: E402  (environment variables and paths must be set before these imports)

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean

if __name__ == "__main__":
    clean.restart()
os.environ.update(OPENBLAS_NUM_THREADS="1", TVM_NUM_THREADS="1")

import numpy as np

EXAMPLE = Path(__file__).parent.parent / "examples" / "charmodel"
sys.path.insert(0, str(EXAMPLE))

import reference
import train
from model import CHARS, HEADS, SIZE, WIDTH, WINDOW

import relaxvm

Write = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Writes text, called with a prompt, uniform numbers and a temperature."""


def with_relaxvm(weights: dict[str, np.ndarray]) -> Write:
    main: Write = relaxvm.VirtualMachine(train.program(weights)).main
    return main


def with_numpy(weights: dict[str, np.ndarray]) -> Write:
    """Runs the whole text again for each character."""
    return lambda prompt, uniforms, temperature: reference.generate(
        weights, prompt, uniforms, float(temperature)
    )


def with_numpy_and_cache(weights: dict[str, np.ndarray]) -> Write:
    """Caches keys and values, as the program does."""
    w = weights

    def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * weight

    def step(char: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
        x = w["embedding"][char]
        q, k, v = np.split(normed(x, w["norm1"]) @ w["qkv"], 3, axis=2)
        shape = (len(char), 1, HEADS, SIZE)
        keys = np.concatenate([keys[:, -WINDOW + 1 :], k.reshape(shape)], axis=1)
        values = np.concatenate([values[:, -WINDOW + 1 :], v.reshape(shape)], axis=1)
        scores = np.matmul(q.reshape(shape).swapaxes(1, 2), keys.transpose(0, 2, 3, 1))
        scores = scores * np.float32(SIZE**-0.5)
        scores += w["distance"][keys.shape[1] - 1 :: -1].T[:, None]
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        shares = powers / powers.sum(-1, keepdims=True)
        found = np.matmul(shares, values.swapaxes(1, 2)).swapaxes(1, 2).reshape(-1, 1, WIDTH)
        x = x + found @ w["mix"]
        x = x + np.maximum(normed(x, w["norm2"]) @ w["up"], 0) @ w["down"]
        return (normed(x, w["norm3"]) @ w["head"])[:, 0], keys, values

    def write(prompt: np.ndarray, uniforms: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        s = reference.forward(w, prompt)
        logits, keys, values = s["logits"][:, -1], s["k"].swapaxes(1, 2), s["v"].swapaxes(1, 2)
        text = prompt
        for uniform in uniforms.T[:, :, None]:
            char = reference.choose(logits, uniform, np.float32(temperature))
            logits, keys, values = step(char, keys, values)
            text = np.concatenate([text, char], axis=1)
        return text

    return write


TVM_VARIABLES = "        b, m, t = T.int64(), T.int64(), T.int64()\n"

ATTENTION = """R.permute_dims(R.matmul(R.nn.softmax(R.add(R.multiply(R.matmul(
            R.permute_dims(q, (0, 2, 1, 3)), R.permute_dims(k, (0, 2, 3, 1))),
            R.const(SIZE**-0.5, "float32")), bias), axis=-1),
            R.permute_dims(v, (0, 2, 1, 3))), (0, 2, 1, 3))"""

CASTS = """        k = R.match_cast(k, R.Tensor((b, t, HEADS, SIZE), "float32"))
        v = R.match_cast(v, R.Tensor((b, t, HEADS, SIZE), "float32"))
        bias = R.match_cast(bias, R.Tensor((t, HEADS), "float32"))
        bias = R.expand_dims(R.permute_dims(bias, (1, 0)), [0, 2])
"""


def script_for_tvm() -> str:
    """Return the script of the example, changed so that apache-tvm 0.27 accepts it.

    Its parser does not accept docstrings, it cannot lower attention if a length is an expression,
    and it needs casts to know that lengths such as min(m, 63) + 1 are equal.
    """
    text = (EXAMPLE / "model.py").read_text(encoding="utf-8")
    text = re.sub(r'\n        """.*?"""(?=\n)', "", text, flags=re.DOTALL)
    for old, new, count in (
        ("from relaxvm.script import tir as T", "from tvm.script import tirx as T", 1),
        ("from relaxvm.script", "from tvm.script", 2),
        ("R.nn.attention(q, k, v, bias)", ATTENTION, 2),
        ("        b, m = T.int64(), T.int64()\n", TVM_VARIABLES, 1),
        ("        bias = R.expand_dims(R.permute_dims(bias, (1, 0)), [0, 2])\n", CASTS, 1),
    ):
        assert text.count(old) == count, old
        text = text.replace(old, new)
    return text


def with_tvm(weights: dict[str, np.ndarray]) -> Write:
    import tvm
    from tvm import relax

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "charmodel_for_tvm.py")
        file.write_text(script_for_tvm(), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("charmodel_for_tvm", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    mod = module.CharModel
    for name in ("main", "logits"):
        mod = relax.transform.BindParams(name, weights)(mod)
    main = relax.VirtualMachine(relax.build(mod, target="llvm"), tvm.cpu())["main"]
    return lambda *args: main(*map(tvm.runtime.tensor, args)).numpy()


SIDES: dict[str, Callable[[dict[str, np.ndarray]], Write]] = {
    "relaxvm": with_relaxvm,
    "numpy, keys and values cached": with_numpy_and_cache,
    "numpy, whole text each time": with_numpy,
    "apache-tvm": with_tvm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=200, metavar="N")
    parser.add_argument("--repeats", type=int, default=7, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    weights = train.initial_weights(rng)
    inputs = (
        rng.integers(0, CHARS, (1, 8)),
        rng.random((1, args.length), np.float32),
        np.array(0.5, np.float32),
    )
    has_tvm = importlib.util.find_spec("tvm") is not None
    writers: dict[str, Write] = {}
    rows: dict[str, dict[str, Any]] = {}
    expected = with_numpy(weights)(*inputs)
    for name, make in SIDES.items():
        if name == "apache-tvm" and not has_tvm:
            continue
        started = time.process_time()
        writers[name] = make(weights)
        rows[name] = {"build_s": time.process_time() - started, "us": float("inf")}
        np.testing.assert_array_equal(writers[name](*inputs), expected)
    for _ in range(args.repeats):
        for name, write in writers.items():
            started = time.process_time()
            write(*inputs)
            each = (time.process_time() - started) / args.length * 1e6
            rows[name]["us"] = min(rows[name]["us"], each)

    own = rows["relaxvm"]["us"]
    print(clean.machine())
    print(f"{'':34}us each  per second     ratio  to build")
    for name, row in rows.items():
        ratio = "" if name == "relaxvm" else f"{row['us'] / own:9.2f}x"
        print(
            f"{name:32}{row['us']:9.1f}{1e6 / row['us']:12,.0f}{ratio:>12}{row['build_s']:8.2f} s"
        )
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
