"""Mutants of parameters: folders of weights, and the constants in libraries of TVM."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxvm.builtins import read_tensor_cache
from relaxvm.dtypes import dtype_to_dl
from relaxvm.errors import FormatError, RelaxVMError
from relaxvm.executable.formats.const_loader import load_constants

from .changes import Mutant, change_bytes, change_json, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described

__all__ = ["bases", "in_memory", "mutant", "run", "write_folder"]

INDEX: Final = "tensor-cache.json"
_TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F

_DTYPES: Final = ("float32", "float16", "int8", "int64", "bool", "uint8", "float64")


@cache
def bases() -> dict[str, dict[str, bytes]]:
    """Return what to mutate: folders, and single files with constants."""
    found = {}
    for i in range(8):
        rng = random.Random(i)
        tensors = {f"w{k}": _tensor(rng) for k in range(rng.randrange(1, 6))}
        found[f"folder {i}"] = _folder(tensors, shards=1 + i % 3, packed=i % 2 == 1)
        found[f"constants {i}"] = {"constants": _constants(tensors)}
    return found


def _tensor(rng: random.Random) -> np.ndarray:
    dims = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(4))]
    count = int(np.prod(dims, dtype=int))
    return (np.arange(count).reshape(dims) % 2).astype(rng.choice(_DTYPES))


def _folder(tensors: dict[str, np.ndarray], shards: int, packed: bool) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    index: dict[str, Any] = {"metadata": {"ParamSize": len(tensors)}, "records": []}
    names = sorted(tensors)
    for shard in range(shards):
        data, records = b"", []
        for name in names[shard::shards]:
            array = tensors[name]
            halves = packed and array.dtype == np.float32
            stored = (array.view(np.uint32) >> 16).astype("<u2") if halves else array
            records.append(
                {"name": name, "shape": list(array.shape), "dtype": array.dtype.name,
                 "format": "f32-to-bf16" if packed else "raw", "nbytes": stored.nbytes,
                 "byteOffset": len(data)}
            )  # fmt: skip
            data += stored.tobytes()
        path = f"params_shard_{shard}.bin"
        files[path] = data
        index["records"].append(
            {"dataPath": path, "format": "raw-shard", "nbytes": len(data), "records": records}
        )
    return {INDEX: json.dumps(index).encode(), **files}


def _constants(tensors: dict[str, np.ndarray]) -> bytes:
    """Return the content of a module ``const_loader``."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    names = sorted(tensors)
    data = struct.pack("<Q", len(names)) + b"".join(map(text, names))
    data += struct.pack("<Q", len(names))
    for name in names:
        array = tensors[name]
        code, bits, lanes = dtype_to_dl(array.dtype)
        data += struct.pack("<QQiiiBBH", _TENSOR_MAGIC, 0, 1, 0, array.ndim, code, bits, lanes)
        data += b"".join(struct.pack("<q", dim) for dim in array.shape)
        data += struct.pack("<q", array.nbytes) + array.tobytes()
    data += struct.pack("<Q", 1) + text("f")
    return data + struct.pack("<QQ", 1, len(names)) + b"".join(map(text, names))


@cache
def _strings() -> list[str]:
    return [
        *_DTYPES, "bfloat16", "float8_e4m3fn", "object", "float32x4", "<U3", "raw", "f32-to-bf16",
        "raw-shard", "name", "shape", "dtype", "format", "nbytes", "byteOffset", "records",
        "dataPath", "metadata", "w0", "w1", "params_shard_0.bin", "params_shard_1.bin", INDEX, "..",
        "../x", "/etc/passwd", "a/b", ".", "", "a\\b", "C:x",
    ]  # fmt: skip


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("parameters", index, seed)
    base = rng.choice(sorted(bases()))
    files: dict[str, bytes | None] = {**bases()[base]}
    if "constants" in files:
        data, steps = _changed_constants(bases()[base]["constants"], rng)
        return Mutant(base, tuple(steps), data)
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.random()
        if kind < 0.75:
            files[INDEX], step = _changed_index(files[INDEX], rng)
            steps.append(step)
        elif kind < 0.8:
            files[INDEX], more = change_bytes(files[INDEX] or b"", rng)
            steps += more
        else:
            path = rng.choice(sorted(files))
            files[path], more = change_bytes(files[path] or b"", rng)
            steps += more
            if rng.random() < 0.1:
                files[path] = rng.choice((b"", None, files[INDEX]))
    return Mutant(base, tuple(steps), folder=files)


def _changed_index(text: bytes | None, rng: random.Random) -> tuple[bytes | None, str]:
    try:
        index = json.loads(text or b"")
    except (ValueError, RecursionError):
        return text, "nothing"
    records = [
        record for shard in _items(index, "records") for record in _items(shard, "records")
    ]  # fmt: skip
    if records and rng.random() < 0.6:
        step = _change_record(rng.choice(records), rng)
    else:
        step = change_json(index, _strings(), rng)
    return json.dumps(index).encode("utf-8", "surrogatepass"), step


def _items(value: Any, key: str) -> list[Any]:
    items = value.get(key) if isinstance(value, dict) else None
    return items if isinstance(items, list) else []


def _change_record(record: Any, rng: random.Random) -> str:
    """Change fields of a tensor, so that some of them still fit."""
    if not isinstance(record, dict):
        return "nothing"
    step = rng.choice(("shape", "dtype", "byteOffset", "nbytes", "name", "both", "swapped"))
    if step == "shape":
        record["shape"] = [rng.choice((0, 1, 2, 3, number(rng))) for _ in range(rng.randrange(5))]
    elif step == "dtype":
        record["dtype"] = rng.choice(_strings())
    elif step == "name":
        record["name"] = rng.choice(("w0", "w1", "", "\0", "é"))
    elif step == "both":  # a size that agrees with itself, wherever it is
        dims = [rng.choice((0, 1, 2, 3, 1 << 20, 1 << 31)) for _ in range(rng.randrange(4))]
        record |= {"shape": dims, "dtype": "int8", "nbytes": int(np.prod(dims, dtype=object))}
    elif step == "swapped" and isinstance(record.get("shape"), list):
        record["shape"].reverse()
    else:
        record[step] = number(rng)
    return step


def _changed_constants(data: bytes, rng: random.Random) -> tuple[bytes, list[str]]:
    """Change bytes, or whole words where the counts, sizes and dimensions are."""
    if rng.random() < 0.4:
        return change_bytes(data, rng)
    steps = []
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(max(1, len(data) - 7))
        small = data.find(bytes(7), at + 1)  # the high bytes of a number below 256
        at = at if small < 0 else small - 1
        data = data[:at] + struct.pack("<q", number(rng)) + data[at + 8 :]
        steps.append("set_count")
    return data, steps


# Running


def in_memory() -> str | None:
    """Return a folder for temporary files that are not written to a disk, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def write_folder(folder: Path, files: dict[str, bytes | None]) -> None:
    for path, data in files.items():
        place = folder / path
        if data is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(data)


def run(mutant: Mutant, index: int) -> Ending:
    """Read the tensors, and look at every element."""
    try:
        if mutant.folder:
            tensors = _read(mutant)
        else:
            functions = load_constants(mutant.data, LIMITS)
            tensors = [array for arrays in functions.values() for array in arrays]
        _check(tensors)
    except (RelaxVMError, FormatError) as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)
    return Outcome.RESULT, ""


def _read(mutant: Mutant) -> Sequence[np.ndarray]:
    folder = Path(tempfile.mkdtemp(prefix="relaxvm-fuzz-", dir=in_memory()))
    try:
        write_folder(folder, dict(mutant.folder))
        tensors = [*read_tensor_cache(folder).values()]
    finally:
        shutil.rmtree(folder)
    stored = sum(len(data or b"") for data in mutant.folder.values())
    if sum(array.nbytes for array in tensors) > 2 * stored:
        raise AssertionError("the tensors have more bytes than the shards")
    return tensors


def _check(tensors: Sequence[np.ndarray]) -> None:
    for array in tensors:
        if type(array) is not np.ndarray or array.dtype.hasobject:
            raise AssertionError(f"expected a plain array, got {array!r}")
        if array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            raise AssertionError("a bool that is neither 0 nor 1")
        array.tobytes()
