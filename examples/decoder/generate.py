"""Write text with the decoder, token by token; torch is not needed here.

    python examples/decoder/generate.py [--prompt TEXT] [--count N] [--model decoder.onnx]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import relaxvm


def of_torch(path: str, about: Any) -> Any:
    """A function from tokens and their positions to logits.  The caches are buffers of the program,
    which the VM keeps."""
    return relaxvm.VirtualMachine(path).main


def of_onnx(path: str, about: Any) -> Any:
    """The same for a model whose caches are inputs and outputs: the VM keeps them, too."""
    names = [f"{kind}_{i}" for i in range(about["layers"]) for kind in ("keys", "values")]
    executable = relaxvm.compile(path, caches={name: f"new_{name}" for name in names})
    return relaxvm.VirtualMachine(executable).main


def generated(step: Any, prompt: list[int], count: int, heat: float = 0.7) -> Iterator[int]:
    """Further tokens, drawn by their probabilities."""
    rng = np.random.default_rng(0)
    logits = step(np.array([prompt]), np.arange(len(prompt)))
    for place in range(len(prompt), len(prompt) + count):
        weights = np.exp((logits[0] - logits[0].max()) / heat)
        token = int(rng.choice(len(weights), p=weights / weights.sum()))
        yield token
        logits = step(np.array([[token]]), np.array([place]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompt", default="Return the ")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--model", default="decoder.pt2", help="a .pt2 or an .onnx file")
    options = parser.parse_args()
    path = pathlib.Path(options.model)
    about = json.loads(path.with_suffix(".json").read_text())
    characters = about["characters"]
    step = (of_onnx if path.suffix == ".onnx" else of_torch)(str(path), about)
    prompt = [characters.index(each) for each in options.prompt]
    print(options.prompt, end="", flush=True)
    start = time.perf_counter()
    for token in generated(step, prompt, options.count):
        print(characters[token], end="", flush=True)
    seconds = time.perf_counter() - start
    print(f"\n\n{options.count / seconds:.0f} tokens per second")


if __name__ == "__main__":
    main()
