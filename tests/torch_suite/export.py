"""Export the architectures of `tests.torch_suite.models`, with inputs and torch's outputs.

``python -m tests.torch_suite.export FOLDER [PATTERN] [--onnx]`` writes for each of them
``NAME-static.pt2``, ``NAME-dynamic.pt2`` where lengths vary, and the ``.npz`` beside each, which
`tests.torch_suite.score` reads; with ``--onnx`` also ``NAME.onnx``.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .models import MODELS, drawn

__all__ = ["export"]


def _arrays(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        value = list(value.values())
    leaves = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]
    return {f"{prefix}{i}": each.detach().numpy() for i, each in enumerate(leaves)}


def export(folder: Path, name: str, onnx: bool = False) -> None:
    """Write the files of an architecture."""
    with torch.no_grad():
        for kind in ("static", "dynamic"):
            case = drawn(name)
            if kind == "dynamic" and case.dynamic is None:
                continue
            shapes = case.dynamic if kind == "dynamic" else None
            program = torch.export.export(
                case.module, case.args, dynamic_shapes=shapes, strict=False
            )
            path = folder / f"{name}-{kind}"
            torch.export.save(program, f"{path}.pt2")
            args = case.args if kind == "static" else case.others
            expected = case.module(*args)
            np.savez(f"{path}.npz", **_arrays("i", args), **_arrays("o", expected))
        if onnx:
            case = drawn(name)
            with contextlib.redirect_stdout(io.StringIO()):
                torch.onnx.export(
                    case.module, case.args, str(folder / f"{name}-static.onnx"), dynamo=True,
                    external_data=False, verbose=False,
                )  # fmt: skip


def main(folder: str, pattern: str = "", *options: str) -> None:
    """Export all architectures whose names match."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        if re.search(pattern, name):
            try:
                export(Path(folder), name, "--onnx" in options)
                print(f"{name}: exported", flush=True)
            except Exception as error:
                text = str(error).replace("\n", " ")[:200]
                print(f"{name}: {type(error).__name__}: {text}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
