"""Train a small decoder on the docstrings of Python's library, and export it (needs torch).

    python examples/decoder/train.py [--steps N]

Writes ``decoder.pt2``, ``decoder.onnx`` and ``decoder.json``: the characters, and how many layers.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys

import torch
from model import Decoder, Shape, export

CONTEXT = 128


def text() -> str:
    """Docstrings of modules of Python's library."""
    folder = pathlib.Path(json.__file__).parent.parent
    parts = []
    for path in sorted(folder.glob("*.py")):
        found = path.read_text("utf-8", errors="ignore").split('"""')
        parts += found[1::2]
    return "\n".join(part for part in parts if part.isascii())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--style", choices=("gpt2", "llama"), default="llama")
    options = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    corpus = text()
    characters = sorted(set(corpus))
    numbers = torch.tensor([characters.index(each) for each in corpus])
    shape = Shape(len(characters), 128, 4, 2, 3, 512, options.style)
    decoder = Decoder(shape)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, options.steps)
    for step in range(options.steps):
        starts = [random.randrange(len(numbers) - CONTEXT - 1) for _ in range(16)]
        batch = torch.stack([numbers[start : start + CONTEXT + 1] for start in starts])
        logits = decoder.trained(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1}: {loss.item() / 0.6931:.2f} bits per character", flush=True)
    export(decoder, "decoder")
    about = {"characters": characters, "layers": shape.layers}
    pathlib.Path("decoder.json").write_text(json.dumps(about))
    print("decoder.pt2, decoder.onnx and decoder.json: written")


if __name__ == "__main__":
    sys.exit(main())
