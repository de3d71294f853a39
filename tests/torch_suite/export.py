"""Export the architectures of `tests.torch_suite.models`, with inputs and torch's outputs.

``python -m tests.torch_suite.export FOLDER [PATTERN] [--onnx] [--traced]`` writes for each of them
``NAME-static.pt2``, ``NAME-dynamic.pt2`` where lengths vary, and the ``.npz`` beside each, which
`tests.torch_suite.score` reads; with ``--onnx`` the same in ONNX, too, and with ``--traced`` also
as the older exporter for ONNX writes it, ``NAME-traced.onnx`` and ``NAME-traced-dynamic.onnx``.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from . import further  # noqa: F401 - it registers its architectures
from .models import MODELS, Case, drawn

__all__ = ["export"]


def _arrays(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        value = list(value.values())
    leaves = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]
    return {f"{prefix}{i}": each.detach().numpy() for i, each in enumerate(leaves)}


def export(folder: Path, name: str, options: Sequence[str] = ()) -> Iterator[str]:
    """Write the files of an architecture, and return what went wrong."""
    for kind in ("static", "dynamic"):
        case = drawn(name)
        if kind == "dynamic" and case.dynamic is None:
            continue
        args = case.args if kind == "static" else case.others
        shapes = case.dynamic if kind == "dynamic" else None
        with torch.no_grad():
            expected = case.module(*args)
        arrays = _arrays("i", args) | _arrays("o", expected)
        names = {f"{name}-{kind}.pt2": _export_archive}
        if "--onnx" in options:
            names[f"{name}-{kind}.onnx"] = _export_onnx
        if "--traced" in options:
            names[f"{name}-traced-{kind}.onnx"] = _export_traced
        for file, function in names.items():
            path = folder / file
            case = drawn(name)
            try:
                with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
                    function(path, case, shapes)
            except Exception as error:
                text = str(error).replace("\n", " ")[:200]
                yield f"{file}: {type(error).__name__}: {text}"
            else:
                np.savez(path.with_suffix(".npz"), **arrays)


def _export_archive(path: Path, case: Case, shapes: Any) -> None:
    program = torch.export.export(case.module, case.args, dynamic_shapes=shapes, strict=False)
    torch.export.save(program, str(path))


def _export_onnx(path: Path, case: Case, shapes: Any) -> None:
    torch.onnx.export(
        case.module, case.args, str(path), dynamo=True, external_data=False, verbose=False,
        dynamic_shapes=shapes,
    )  # fmt: skip


def _export_traced(path: Path, case: Case, shapes: Any) -> None:
    tensors = [each for each in pytree.tree_leaves(case.args) if isinstance(each, torch.Tensor)]
    names = [f"x{i}" for i in range(len(tensors))]
    axes: dict[str, Any] = {}
    if shapes is not None:
        found = pytree.tree_leaves(shapes, is_leaf=lambda x: x is None or _is_axes(x))
        axes = {
            key: {i: f"{key}_{i}" for i in each}
            for key, each in zip(names, found, strict=True)
            if each is not None
        }
    torch.onnx.export(
        case.module, case.args, str(path), dynamo=False, input_names=names, dynamic_axes=axes
    )


def _is_axes(x: Any) -> bool:
    return isinstance(x, dict) and all(isinstance(key, int) for key in x)


def main(folder: str, pattern: str = "", *options: str) -> None:
    """Export all architectures whose names match."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        if re.search(pattern, name):
            problems = list(export(Path(folder), name, options))
            print("\n".join(problems) or f"{name}: exported", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
