"""Make the fixtures with torch: ``python -m tests.torch_models [NAME ...]``."""

from __future__ import annotations

import copy
import importlib
import io
import pkgutil
import sys
from typing import Any

import torch

from tests.torch_fixtures import Call, Fixture, save

from . import CASES, Case, __path__


def as_arrays(value: Any) -> Any:
    """A structure with arrays in place of tensors; what is no dict, list or tuple by its fields."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype in (torch.bfloat16,):
            import ml_dtypes

            return value.view(torch.uint16).numpy().copy().view(ml_dtypes.bfloat16)
        return value.numpy().copy()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple([as_arrays(each) for each in value])
    if isinstance(value, list):
        return [as_arrays(each) for each in value]
    if isinstance(value, dict):
        return {key: as_arrays(each) for key, each in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "_asdict"):
        return {key: as_arrays(each) for key, each in value._asdict().items()}
    fields = sorted(vars(value).items(), key=lambda item: item[1] is None)
    return {key: as_arrays(each) for key, each in fields}


def make(case: Case) -> Fixture:
    """Export a model, and call it."""
    model = case.model.train(case.training)
    calls = [each if isinstance(each[-1], dict) and len(each) == 2 and isinstance(each[0], tuple)
             else (each, {}) for each in case.calls]  # fmt: skip
    args, kwargs = copy.deepcopy(calls[0])
    program = torch.export.export(
        copy.deepcopy(model), args, kwargs, dynamic_shapes=case.dynamic_shapes, strict=case.strict
    )
    if case.decompositions:
        program = program.run_decompositions()
    data = io.BytesIO()
    torch.export.save(program, data)
    found = []
    for args, kwargs in calls:
        args, kwargs = copy.deepcopy((args, kwargs))
        before = as_arrays(args)
        with torch.no_grad():
            result = as_arrays(model(*args, **kwargs))
        after = as_arrays(args)
        changed = str(before) != str(after)
        found.append(Call(before, as_arrays(kwargs), result, after if changed else None))
    return Fixture(data.getvalue(), found)


def main(wanted: list[str]) -> None:
    for module in pkgutil.iter_modules(__path__):
        if module.name != "__main__":
            importlib.import_module(f"{__package__}.{module.name}")
    for name, function in CASES.items():
        if not wanted or name in wanted:
            torch.manual_seed(0)
            path = save(name, make(function()))
            print(f"{path.name}: {path.stat().st_size} bytes")


main(sys.argv[1:])
