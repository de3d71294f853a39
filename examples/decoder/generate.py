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


def with_state(path: str, about: Any) -> Any:
    """A function from tokens and their positions to logits; the VM keeps the caches."""
    return relaxvm.VirtualMachine(path).main


def with_caches(path: str, about: Any) -> Any:
    """The same for a model whose caches are inputs and outputs."""
    vm = relaxvm.VirtualMachine(path)
    count = len(vm.executable.names_of("main").inputs) - 2
    caches = [np.zeros((1, about["heads"], 0, about["size"]), "float32") for _ in range(count)]

    def step(tokens: Any, positions: Any) -> Any:
        logits, *caches[:] = vm.main(tokens, positions, *caches)
        return logits

    return step


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
    step = (with_caches if path.suffix == ".onnx" else with_state)(str(path), about)
    prompt = [characters.index(each) for each in options.prompt]
    print(options.prompt, end="", flush=True)
    start = time.perf_counter()
    for token in generated(step, prompt, options.count):
        print(characters[token], end="", flush=True)
    seconds = time.perf_counter() - start
    print(f"\n\n{options.count / seconds:.0f} tokens per second")


if __name__ == "__main__":
    main()
