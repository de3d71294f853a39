"""Programs of torch.export with inputs and torch's outputs, as files that tests read without torch.

A fixture is an ``.npz`` file: the archive's bytes, the calls in order as JSON, and their tensors.
``python -m tests.torch_models`` makes them with torch.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent / "fixtures" / "torch"


class Call(NamedTuple):
    """A call of a program.

    Attributes:
        args, kwargs: what the user's model is given.
        result: what torch returned.
        after: the arguments after the call, in order, if it changes them; else None.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    after: Any = None


class Fixture(NamedTuple):
    """A program and its calls, which come one after the other."""

    archive: bytes
    calls: list[Call]


def names() -> list[str]:
    """The names of all fixtures."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def save(name: str, fixture: Fixture) -> Path:
    """Write a fixture."""
    arrays: list[np.ndarray] = []
    calls = [_packed(list(call), arrays) for call in fixture.calls]
    found = {"archive": np.frombuffer(fixture.archive, np.uint8),
             "calls": np.array(json.dumps(calls))}  # fmt: skip
    found.update({f"tensor_{i}": array for i, array in enumerate(arrays)})
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.npz"
    data = io.BytesIO()
    np.savez_compressed(data, **found)
    path.write_bytes(data.getvalue())
    return path


def load(name: str) -> Fixture:
    """Read a fixture."""
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as found:
        arrays = {key: found[key] for key in found.files}
    calls = [
        Call(*_unpacked(each, arrays)) for each in json.loads(str(arrays["calls"]))
    ]
    return Fixture(arrays["archive"].tobytes(), calls)


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        arrays.append(value.view(np.uint8) if value.dtype.kind == "V" else value)
        return {"tensor": len(arrays) - 1, "dtype": value.dtype.name}
    if isinstance(value, list):
        return [_packed(each, arrays) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [_packed(each, arrays) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(each, arrays)] for key, each in value.items()]}
    return {"plain": value}


def _unpacked(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpacked(each, arrays) for each in value]
    if "tuple" in value:
        return tuple([_unpacked(each, arrays) for each in value["tuple"]])
    if "dict" in value:
        return {key: _unpacked(each, arrays) for key, each in value["dict"]}
    if "plain" in value:
        return value["plain"]
    array = arrays[f"tensor_{value['tensor']}"]
    if array.dtype.name != value["dtype"]:
        import ml_dtypes

        array = array.view(getattr(ml_dtypes, value["dtype"]))
    return array
