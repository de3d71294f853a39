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


def steps_of_archive(path: str) -> Any:
    """A function from tokens and their positions to logits; the VM keeps the caches."""
    vm = relaxvm.VirtualMachine(path)
    return vm.main


def steps_of_onnx(path: str) -> Any:
    """The same for a model whose caches are inputs and outputs."""
    vm = relaxvm.VirtualMachine(path)
    names = vm.executable.names_of("main").inputs[2:]
    caches: list[Any] = []

    def step(tokens: Any, positions: Any) -> Any:
        if not caches:
            shapes = [dict(params)[name] for name in names]
            caches.extend(np.zeros((1, shape[1], 0, shape[3]), "float32") for shape in shapes)
        logits, *caches[:] = vm.main(tokens, positions, *caches)
        return logits

    params = [(each.name, each.shape) for each in relaxvm_inputs(vm)]
    return step


def relaxvm_inputs(vm: relaxvm.VirtualMachine) -> Any:
    """The parameters of main with their shapes."""
    from relaxvm.vm.entry_checks import params_of

    (info,) = [each for each in vm.executable.functions if each.name == "main"]
    return params_of(vm.executable, info)


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
    characters = json.loads(path.with_suffix(".json").read_text())
    step = (steps_of_onnx if path.suffix == ".onnx" else steps_of_archive)(str(path))
    prompt = [characters.index(each) for each in options.prompt]
    print(options.prompt, end="", flush=True)
    start = time.perf_counter()
    for token in generated(step, prompt, options.count):
        print(characters[token], end="", flush=True)
    seconds = time.perf_counter() - start
    print(f"\n\n{options.count / seconds:.0f} tokens per second")


if __name__ == "__main__":
    main()
