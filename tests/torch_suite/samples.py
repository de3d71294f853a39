"""Modules of single operators, made from the samples that PyTorch tests its own operators with.

``python -m tests.torch_suite.samples FOLDER [PATTERN]`` exports them: for each operator and data
type a file ``NAME.pt2`` with all samples in one module, and ``NAME.npz`` with inputs and outputs.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils import _pytree as pytree

__all__ = ["export_samples"]

DTYPES: Final = (torch.float32, torch.int64, torch.bool)
MOST_SAMPLES: Final = 8
"""Samples of an operator for each data type, spread over those that there are."""
MOST_ELEMENTS: Final = 20_000


class Samples(torch.nn.Module):
    """Calls an operator once for each sample; its inputs are the tensors of all samples."""

    def __init__(self, op: Any, calls: list[tuple[list[Any], Any]]) -> None:
        super().__init__()
        self.op = op
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        given = iter(tensors)
        found: list[torch.Tensor] = []
        for leaves, spec in self.calls:
            filled = [next(given) if each is torch.Tensor else each for each in leaves]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            results = pytree.tree_leaves(self.op(*args, **kwargs))
            found += [each for each in results if isinstance(each, torch.Tensor)]
        return tuple(found)


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    found = []
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        if sum(each.numel() for each in tensors) <= MOST_ELEMENTS and all(
            each.layout is torch.strided for each in tensors
        ):
            found.append(sample)
        if len(found) >= 200:
            break
    step = max(1, len(found) / MOST_SAMPLES)
    return [found[int(i * step)] for i in range(min(MOST_SAMPLES, len(found)))]


def _module(info: Any, samples: list[Any]) -> tuple[Samples, list[torch.Tensor]]:
    calls, tensors = [], []
    for sample in samples:
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        for i, each in enumerate(leaves):
            if isinstance(each, torch.Tensor):
                tensors.append(each.detach().clone(memory_format=torch.contiguous_format))
                leaves[i] = torch.Tensor
        calls.append((leaves, spec))
    return Samples(info.op, calls), tensors


def _exported(module: Samples, tensors: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor], bool]:
    """The exported program, its outputs, and whether they are the same each time."""
    inputs = [each.clone() for each in tensors]
    torch.manual_seed(1)
    first = module(*[each.clone() for each in tensors])
    torch.manual_seed(2)
    second = module(*[each.clone() for each in tensors])
    same = all(
        torch.equal(torch.nan_to_num(a) if a.is_floating_point() else a,
                    torch.nan_to_num(b) if b.is_floating_point() else b)
        for a, b in zip(first, second, strict=True)
    )  # fmt: skip
    program = torch.export.export(module, tuple(inputs), strict=False)
    return program, list(first), same


def _infos(pattern: str) -> Iterator[tuple[str, Any]]:
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        name = info.name.replace("/", "_") + (
            "-" + info.variant_test_name if info.variant_test_name else ""
        )
        if re.search(pattern, name) and not re.search("jiterator|sparse|nested|to_padded", name):
            yield name, info


def export_samples(folder: Path, pattern: str = "") -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, info in _infos(pattern):
        for dtype in DTYPES:
            if dtype not in info.dtypes:
                continue
            path = folder / f"{name}-{str(dtype)[6:]}"
            if path.with_suffix(".npz").exists() or path.with_suffix(".skip").exists():
                continue
            try:
                samples = _samples(info, dtype)
                if not samples:
                    continue
                kept, programs = _exportable(info, samples)
                if kept and programs[2]:
                    torch.export.save(programs[0], str(path) + ".pt2")
            except Exception as error:
                print(f"{path.name}: {type(error).__name__}: {str(error)[:100]!r}", flush=True)
                path.with_suffix(".skip").write_text(str(error))
                continue
            if not kept or not programs[2]:
                print(f"{path.name}: not exportable: {programs}", flush=True)
                path.with_suffix(".skip").write_text(str(programs))
                continue
            _, tensors, outputs, same = programs
            arrays = {f"i{i}": _array(each) for i, each in enumerate(tensors)}
            arrays |= {f"o{i}": _array(each) for i, each in enumerate(outputs)}
            np.savez(str(path) + ".npz", same=np.array(same), **arrays)


def _array(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy()


def _exportable(info: Any, samples: list[Any]) -> tuple[list[Any], Any]:
    """The samples that can be exported, in one module."""
    with torch.no_grad():
        try:
            module, tensors = _module(info, samples)
            return samples, (lambda p, o, s: (p, tensors, o, s))(*_exported(module, tensors))
        except Exception as error:
            if len(samples) == 1:
                return [], f"{type(error).__name__}: {str(error)[:200]}"
        kept = []
        problem: Any = None
        for sample in samples[:4]:
            found, problem = _exportable(info, [sample])
            kept += found
        if not kept:
            return [], problem
        module, tensors = _module(info, kept)
        return kept, (lambda p, o, s: (p, tensors, o, s))(*_exported(module, tensors))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    export_samples(Path(sys.argv[1]), *sys.argv[2:3])
