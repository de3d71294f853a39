"""Decoders: tokens per second of relaxvm, torch and onnxruntime.

    python bench/compare_decoders.py [--python OTHER] [--tokens N] [--repeats N] [--shape NAME ...]
                                      [--width N] [--precision bfloat16] [--threads N]
                                      [--texts N]

Decoders of the shapes of GPT-2 and Llama at reduced size, with drawn weights, from
``examples/decoder/model.py``, are exported in two forms: a .pt2 file whose caches are buffers, and
an ONNX file whose caches are inputs and outputs; relaxvm runs that in this way, and with caches
that the VM keeps (``caches=``), without a copy per token.  Each side takes a prompt of 16 tokens
and then one token at a time; the sides alternate, each in a process of its own with one thread, and
the least processor time counts, which other work on the machine changes least; with more threads,
the least time on the clock.  With `--texts` each process writes the text some times over.  `OTHER`
is an interpreter with torch and onnxruntime; the caches of torch are buffers, too.  All have to
choose the same tokens, the most likely ones, unless `--precision` lets relaxvm compute in bfloat16:
then the share of the tokens that are those of onnxruntime is printed.  Of relaxvm's sides there are
also the kilobytes of the storages that the machine allocates for a token: a cache that is an input
is copied into its output, one that the machine keeps is not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean

Step = Callable[..., Any]
Load = Callable[[], tuple[Step, Any]]

FOLDER = Path(__file__).parent.parent / "examples" / "decoder"
SIDES = ("relaxvm .pt2", "relaxvm .onnx", "relaxvm kept", "torch", "onnxruntime")
SHAPES = {
    "gpt2": {"words": 2000, "width": 256, "heads": 8, "kept_heads": 8, "layers": 6},
    "llama": {"words": 2000, "width": 256, "heads": 8, "kept_heads": 4, "layers": 6},
}
PROMPT = 16


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--shape", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--precision", default="default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--texts", type=int, default=1, help="texts that a process writes")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for shape in SHAPES.values():
        shape["width"] = options.width
    if options.child:
        what, folder, name = options.child
        if what == "export":
            export(Path(folder), name, options.tokens)
        else:
            found = measured(what, Path(folder), name, options)
            print(json.dumps(found))
        return 0
    print(clean.machine())
    print(
        f"{'decoder':10}{'side':16}{'tokens/s':>12}{'to onnxruntime':>18}{'KB per token':>16}"
    )
    for name in options.shape:
        with tempfile.TemporaryDirectory() as folder:
            child(options.python, "export", folder, name, options)
            best: dict[str, float] = {}
            allocated: dict[str, float] = {}
            texts: dict[str, list[int]] = {}
            for _ in range(options.repeats):
                for side in SIDES:
                    python = sys.executable if side.startswith("relaxvm") else options.python
                    found = json.loads(child(python, side, folder, name, options))
                    texts[side] = found["tokens"]
                    best[side] = max(best.get(side, 0), found["rate"])
                    allocated[side] = found["allocated"]
            wanted = texts["onnxruntime"]
            if options.precision != "default":
                for side, text in texts.items():
                    same = sum(a == b for a, b in zip(text, wanted, strict=True)) / len(wanted)
                    print(f"{name:10}{side:16}{same:12.1%} of the tokens")
            elif any(text != wanted for text in texts.values()):
                raise SystemExit(f"{name}: the sides have chosen different tokens")
        for side, rate in best.items():
            ratio = rate / best["onnxruntime"]
            size = f"{allocated[side] / 1e3:.0f}" if allocated[side] else "-"
            print(f"{name:10}{side:16}{rate:12.0f}{ratio:18.2f}{size:>16}", flush=True)
    return 0


def child(
    python: str, what: str, folder: str, name: str, options: argparse.Namespace
) -> str:
    """Run this script in a process of its own."""
    threads = "RELAXVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    done = subprocess.run(
        [python, __file__, f"--tokens={options.tokens}", f"--width={options.width}",
         f"--precision={options.precision}", f"--threads={options.threads}",
         f"--texts={options.texts}", "--child", what, folder, name],
        env={**os.environ, **dict.fromkeys(threads, str(options.threads))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr}")
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def _decoder(name: str, tokens: int) -> Any:
    import torch

    sys.path.insert(0, str(FOLDER))
    from model import Decoder, Shape

    torch.manual_seed(0)
    return Decoder(Shape(**SHAPES[name], length=PROMPT + tokens, style=name)).eval()


def export(folder: Path, name: str, tokens: int) -> None:
    """Write the files of a decoder."""
    decoder = _decoder(name, tokens)
    from model import export as write

    write(decoder, str(folder / name))


def measured(
    side: str, folder: Path, name: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Tokens per second after the prompt, the tokens, and the bytes of storages of the last one."""
    import numpy as np

    tokens = options.tokens
    clock = time.process_time if options.threads == 1 else time.perf_counter
    load = _loaded(side, folder / name, name, options)
    rate = 0.0
    for _ in range(options.texts):
        step, vm = load()
        logits = step(np.arange(PROMPT)[None], np.arange(PROMPT))
        found = []
        start = clock()
        for place in range(PROMPT, PROMPT + tokens - 1):
            token = int(np.argmax(np.asarray(logits)))
            found.append(token)
            logits = step(np.array([[token]]), np.array([place]))
        rate = max(rate, (tokens - 1) / (clock() - start))
    allocated = 0

    def instrument(func: Any, name: str, before: bool, result: Any, *args: Any) -> None:
        nonlocal allocated
        if before and name == "vm.builtin.alloc_storage":
            allocated += int(np.prod(args[1]))

    if vm is not None:
        vm.set_instrument(instrument)
    step(np.array([[token]]), np.array([PROMPT + tokens - 1]))
    return {"rate": rate, "tokens": found, "allocated": allocated}


def _loaded(side: str, path: Path, name: str, options: argparse.Namespace) -> Load:
    """What begins a text: a function of a step, and the machine that runs it, if it is ours."""
    if side == "torch":
        import torch

        torch.set_num_threads(options.threads)

        def with_torch() -> tuple[Step, Any]:
            decoder = _decoder(name, options.tokens)

            def step(ids: Any, positions: Any) -> Any:
                with torch.inference_mode():
                    return decoder(torch.from_numpy(ids), torch.from_numpy(positions)).numpy()

            return step, None

        return with_torch
    if side == "onnxruntime":
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        session = onnxruntime.InferenceSession(f"{path}.onnx", settings)
        inputs = [each.name for each in session.get_inputs()]

        def run(*values: Any) -> Any:
            return session.run(None, dict(zip(inputs, values, strict=True)))

        return lambda: (_with_caches(run, name), None)
    import relaxvm

    kept = {}
    if side.endswith("kept"):
        names = [f"{k}_{i}" for i in range(SHAPES[name]["layers"]) for k in ("keys", "values")]
        kept["caches"] = {each: f"new_{each}" for each in names}
    file = f"{path}.pt2" if side.endswith(".pt2") else f"{path}.onnx"
    executable = relaxvm.compile(file, precision=options.precision, **kept)

    def with_relaxvm() -> tuple[Step, Any]:
        vm = relaxvm.VirtualMachine(executable)
        return (_with_caches(vm.main, name) if side.endswith(".onnx") else vm.main), vm

    return with_relaxvm


def _with_caches(run: Step, name: str) -> Step:
    """A step of a model whose caches are inputs and outputs."""
    import numpy as np

    shape = SHAPES[name]
    size = (1, shape["kept_heads"], 0, shape["width"] // shape["heads"])
    caches = [np.zeros(size, "float32") for _ in range(2 * shape["layers"])]

    def step(ids: Any, positions: Any) -> Any:
        logits, *caches[:] = run(ids, positions, *caches)
        return logits

    return step


if __name__ == "__main__":
    sys.exit(main())
