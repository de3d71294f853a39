"""The score of exported programs in a folder.

``python -m tests.torch_suite.score FOLDER [PATTERN]`` prints what is not equal, and the numbers.  A
program is a file ``NAME.pt2`` or ``NAME.onnx``, beside ``NAME.npz`` with inputs ``i0``, ``i1`` and
so on, and with torch's outputs ``o0`` and so on; `tests.torch_suite.samples` and
`tests.torch_suite.export` make them.  PyTorch itself is not needed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import relaxvm
from relaxvm.frontend.torch import from_exported_program

__all__ = ["problem_of", "score"]

WITHIN = 2e-4
"""How far results may be from torch's, as a part of the largest magnitude of an output."""


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in _leaves(each)]
    return [np.asarray(value)]


def _difference(got: Any, expected: Any) -> str:
    if got.dtype.name == "bfloat16":  # which files of numpy do not have
        got = got.astype(expected.dtype)
    if got.dtype != expected.dtype and not (expected.dtype == bool and got.dtype == np.uint8):
        return f"expected {expected.dtype}, got {got.dtype}"
    if got.shape != expected.shape:
        return f"expected the shape {expected.shape}, got {got.shape}"
    if expected.dtype.kind in "biu":
        count = int((got != expected).sum())
        return f"{count} of {expected.size} elements differ" if count else ""
    a, b = got.astype(np.complex128), expected.astype(np.complex128)
    scale = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
    if np.allclose(a, b, rtol=0, atol=WITHIN * scale, equal_nan=True):
        return ""
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "other elements are infinite or NaN"
    finite = np.isfinite(b)
    return f"differs by {np.abs(a[finite] - b[finite]).max(initial=0) / scale:.2g} of {scale:.3g}"


def problem_of(path: Path) -> str:
    """What is wrong with the results of a program; "" if nothing is."""
    with np.load(path.with_suffix(".npz")) as found:
        arrays = {key: found[key] for key in found.files}
    inputs = [arrays[f"i{i}"] for i in range(sum(key[0] == "i" for key in arrays))]
    outputs = [arrays[f"o{i}"] for i in range(sum(key[0] == "o" for key in arrays))]
    is_archive = path.suffix == ".pt2"
    program: Any = from_exported_program(str(path)) if is_archive else str(path)
    vm = relaxvm.VirtualMachine(relaxvm.compile(program))
    results = _leaves(vm["main"](*inputs))
    if len(results) != len(outputs):
        return f"expected {len(outputs)} results, got {len(results)}"
    problems = []
    for i, (got, expected) in enumerate(zip(results, outputs, strict=True)):
        if "same" in arrays and not arrays["same"]:  # drawn at random
            if (got.shape, got.dtype) != (expected.shape, expected.dtype):
                problems.append(f"output {i}: expected {expected.dtype}{expected.shape}, got "
                                f"{got.dtype}{got.shape}")  # fmt: skip
        elif difference := _difference(got, expected):
            problems.append(f"output {i}: {difference}")
    return "; ".join(problems[:3])


def score(folder: Path, pattern: str = "") -> None:
    """Print the programs that fail, and how many pass."""
    counts: Counter[str] = Counter()
    for path in sorted([*folder.glob("*.pt2"), *folder.glob("*.onnx")]):
        if not re.search(pattern, path.name) or not path.with_suffix(".npz").exists():
            continue
        try:
            problem = problem_of(path)
        except Exception as error:
            text = str(error).replace("\n", " ")
            problem = f"{type(error).__name__}: {text}"
        counts["equal" if not problem else "different"] += 1
        if problem:
            print(f"{path.name}: {problem[:400]}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))


if __name__ == "__main__":
    score(Path(sys.argv[1]), *sys.argv[2:3])
