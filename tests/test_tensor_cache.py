"""The tensor cache: folders of weights, including hostile ones, and cached parameters."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import get_func
from relaxvm.builtins import read_tensor_cache
from relaxvm.errors import FormatError, InternalError

needs_posix = pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")


def call(name: str, *args: Any) -> Any:
    return get_func("vm.builtin." + name)(*args)


def load(folder: Path) -> None:
    assert call("tensor_cache.load", str(folder), 1, 0) is None


def get(name: str) -> Any:
    return call("tensor_cache.get", name)


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    call("tensor_cache.clear")
    yield
    call("tensor_cache.clear")


def record(name: str, array: np.ndarray, offset: int, form: str = "raw") -> dict[str, Any]:
    packed = form == "f32-to-bf16" and array.dtype == np.float32
    return {
        "name": name,
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "format": form,
        "nbytes": array.nbytes // 2 if packed else array.nbytes,
        "byteOffset": offset,
    }


def stored(array: np.ndarray, form: str) -> bytes:
    if form == "f32-to-bf16" and array.dtype == np.float32:
        return (array.view(np.uint32) >> 16).astype("<u2").tobytes()
    return array.tobytes()


def write(folder: Path, *shards: dict[str, np.ndarray], form: str = "raw") -> dict[str, Any]:
    """Write a folder with one shard per dict; return its index."""
    index: dict[str, Any] = {"metadata": {"ParamSize": 1}, "records": []}
    for i, arrays in enumerate(shards):
        data, records = b"", []
        for name, array in arrays.items():
            records.append(record(name, array, len(data), form))
            data += stored(array, form)
        path = f"params_shard_{i}.bin"
        (folder / path).write_bytes(data)
        index["records"].append({"dataPath": path, "format": "raw-shard", "nbytes": len(data),
                                 "records": records})  # fmt: skip
    write_index(folder, index)
    return index


def write_index(folder: Path, index: Any) -> None:
    text = index if isinstance(index, str) else json.dumps(index)
    (folder / "tensor-cache.json").write_text(text)


ARRAYS = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f16": np.float16([1.5, -2]),
    "i8": np.int8([[1], [-1]]),
    "i64": np.arange(3),
    "bool": np.array([True, False]),
    "scalar": np.array(3, np.float32),
    "empty": np.zeros((0, 3), np.float32),
}


# Reading


@pytest.mark.parametrize("form", ["raw", "f32-to-bf16"])
def test_load(tmp_path: Path, form: str) -> None:
    write(tmp_path, ARRAYS, {"more": np.ones((1, 1), np.float32)}, form=form)
    load(tmp_path)
    for name, array in ARRAYS.items():
        got = get(name)
        assert type(got) is np.ndarray
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert got.tolist() == array.tolist()
        assert got.flags.carray
    assert get("more").tolist() == [[1]]
    assert set(read_tensor_cache(tmp_path)) == {*ARRAYS, "more"}
    assert call("tensor_cache.load", str(tmp_path), 1, 3) is None


def test_packed_floats_lose_their_lower_half(tmp_path: Path) -> None:
    write(tmp_path, {"w": np.float32([1.5, -3.1415926, np.inf])}, form="f32-to-bf16")
    load(tmp_path)
    assert get("w").tolist() == [1.5, -3.140625, np.inf]


def test_bfloat16(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    write(tmp_path, {"w": array}, form="f32-to-bf16")
    load(tmp_path)
    assert get("w").dtype == array.dtype
    assert get("w").tolist() == [1.5, -2]


def test_nested_folders_and_gaps(tmp_path: Path) -> None:
    index = write(tmp_path, {"a": np.float32([1, 2]), "b": np.float32([3])})
    shard = index["records"][0]
    (tmp_path / "sub").mkdir()
    data = (tmp_path / shard["dataPath"]).read_bytes()
    (tmp_path / "sub" / "x.bin").write_bytes(data[:8] + b"gap." + data[8:])
    shard["records"][1]["byteOffset"] = 12
    shard.update(dataPath="sub/x.bin", nbytes=16)
    shard["records"].reverse()
    write_index(tmp_path, index)
    load(tmp_path)
    assert get("a").tolist() == [1, 2]
    assert get("b").tolist() == [3]


@needs_posix
def test_a_link_to_a_folder(tmp_path: Path) -> None:
    """The caller's path may be a link; paths in files must not be."""
    (tmp_path / "real").mkdir()
    write(tmp_path / "real", {"a": np.float32([1])})
    (tmp_path / "link").symlink_to("real")
    load(tmp_path / "link")
    assert get("a").tolist() == [1]


def test_load_replaces(tmp_path: Path) -> None:
    old = np.float32([0])
    call("tensor_cache.update", "a", old)
    write(tmp_path, {"a": np.float32([1])})
    load(tmp_path)
    assert get("a").tolist() == [1]
    assert old.tolist() == [0]


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 40), max_size=6))
def test_any_names_and_sizes(
    tmp_path_factory: pytest.TempPathFactory, sizes: dict[str, int]
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    arrays = {name: np.arange(size, dtype=np.int16) for name, size in sizes.items()}
    write(folder, arrays)
    got = read_tensor_cache(folder)
    assert {name: array.tolist() for name, array in got.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


# Malformed folders


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"cannot open .*tensor-cache\.json: No such file"):
        load(tmp_path)
    with pytest.raises(InternalError, match=r"cannot open .*nowhere"):
        load(tmp_path / "nowhere")
    write(tmp_path, {"a": np.float32([1])})
    (tmp_path / "params_shard_0.bin").unlink()
    with pytest.raises(InternalError, match=r"cannot open .*params_shard_0\.bin: No such file"):
        load(tmp_path)
    with pytest.raises(InternalError, match="cannot open"):
        load(tmp_path / "tensor-cache.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\0\xff", "not JSON"),
        ("[]", "tensor-cache.json: expected an object, got list"),
        ("{}", "no field 'records'"),
        ('{"records": {}}', "expected 'records' to be a list, got dict"),
        ('{"records": [5]}', "shard 0: expected an object, got int"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    write_index(tmp_path, text)
    with pytest.raises(FormatError, match=re.escape(message)):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataPath": None}, "expected 'dataPath' to be a str, got NoneType"),
        ({"format": "zip"}, "expected the format 'raw-shard', got 'zip'"),
        ({"nbytes": 15}, "ends at byte 16, the shard at byte 15"),
        ({"nbytes": 17}, "expected 17 bytes as the index says, got 16"),
        ({"nbytes": -1}, "expected 'nbytes' to be >= 0, got -1"),
        ({"nbytes": 16.0}, "expected 'nbytes' to be a int, got float"),
        ({"nbytes": True}, "expected 'nbytes' to be a int, got bool"),
        ({"records": None}, "expected 'records' to be a list"),
    ],
)
def test_a_shard_that_is_wrong(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    index = write(tmp_path, {"a": np.float32([1, 2]), "b": np.float32([3, 4])})
    index["records"][0].update(change)
    write_index(tmp_path, index)
    with pytest.raises(FormatError, match=re.escape(message)):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 5}, "expected 'name' to be a str, got int"),
        ({"name": "b"}, "tensor 'b' occurs twice"),
        ({"shape": [3]}, "tensor 0 ('a'): expected 12 bytes for float32[3], got 8"),
        ({"shape": [-2]}, "expected a shape of at most 64 dimensions >= 0"),
        ({"shape": [2.0]}, "expected a shape"),
        ({"shape": [True, 2]}, "expected a shape"),
        ({"shape": [1] * 65}, "expected a shape"),
        ({"shape": [1 << 62, 1 << 62], "nbytes": 0}, "got 0"),
        ({"shape": [0, 1 << 62, 1 << 62], "nbytes": 0}, "tensor 'a'"),
        ({"shape": "2"}, "expected 'shape' to be a list"),
        ({"dtype": "no type"}, "'no type' is not a data type"),
        ({"dtype": "object"}, "DLPack has no such type"),
        ({"dtype": "S4"}, "DLPack has no such type"),
        ({"dtype": "float64"}, "expected 16 bytes for float64[2], got 8"),
        ({"format": "gzip"}, "expected the format 'raw' or 'f32-to-bf16', got 'gzip'"),
        ({"format": "f32-to-bf16"}, "expected 4 bytes for float32[2], got 8"),
        ({"nbytes": 4}, "expected 8 bytes for float32[2], got 4"),
        ({"byteOffset": -8}, "expected 'byteOffset' to be >= 0, got -8"),
        ({"byteOffset": 4}, "at byte 8 overlaps the one before it, which ends at byte 12"),
        ({"byteOffset": 12}, "at byte 12 overlaps"),
        ({"byteOffset": 1 << 62}, "the shard at byte 16"),
        ({"byteOffset": 1 << 70}, "to be below 2**63, got int 1180591620717411303424"),
        ({"nbytes": 10**4000}, "expected 'nbytes' to be below 2**63, got int of 13288 bits"),
        ({"shape": [10**4000]}, "expected a shape of at most 64 dimensions >= 0, of 64 bits"),
        ({"shape": [1 << 62] * 64}, "bytes for float32"),
        ({"byteOffset": None}, "expected 'byteOffset' to be a int"),
    ],
)
def test_a_tensor_that_is_wrong(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    index = write(tmp_path, {"a": np.float32([1, 2]), "b": np.float32([3, 4])})
    index["records"][0]["records"][0].update(change)
    write_index(tmp_path, index)
    call("tensor_cache.update", "b", np.zeros(1))
    with pytest.raises(FormatError, match=re.escape(message)):
        load(tmp_path)
    assert get("a") is None
    assert get("b").tolist() == [0]


def test_a_shard_that_is_listed_twice(tmp_path: Path) -> None:
    """Otherwise a small index could name much more data than there is."""
    index = write(tmp_path, {"a": np.float32([1, 2])})
    (again,) = json.loads(json.dumps(index["records"]))
    again["records"][0]["name"] = "b"
    again["dataPath"] = "./params_shard_0.bin"
    write_index(tmp_path, {"records": [*index["records"], again]})
    with pytest.raises(FormatError, match=r"shard_0\.bin: the index lists this shard twice"):
        load(tmp_path)


def test_an_index_that_is_large(tmp_path: Path) -> None:
    write_index(tmp_path, '{"records": [' + "[]," * (6 << 20) + "5]}")
    with pytest.raises(FormatError, match=r"tensor-cache\.json: expected at most 16777216 bytes"):
        load(tmp_path)


@pytest.mark.parametrize("field", ["name", "shape", "dtype", "format", "nbytes", "byteOffset"])
def test_a_field_that_is_missing(tmp_path: Path, field: str) -> None:
    index = write(tmp_path, {"a": np.float32([1, 2])})
    del index["records"][0]["records"][0][field]
    write_index(tmp_path, index)
    with pytest.raises(FormatError, match=f"no field '{field}'"):
        load(tmp_path)


def test_bools_are_0_or_1(tmp_path: Path) -> None:
    write(tmp_path, {"a": np.array([True, True])})
    (tmp_path / "params_shard_0.bin").write_bytes(b"\1\2")
    with pytest.raises(FormatError, match="expected bytes 0 or 1 for bool"):
        load(tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder in `tmp_path`, with the bytes of a shard next to the folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder, {"a": np.float32([1, 2])})
    (tmp_path / "secret.bin").write_bytes(b"password")
    return folder


def refuse(folder: Path, path: str, message: str) -> None:
    index = json.loads((folder / "tensor-cache.json").read_text())
    index["records"][0]["dataPath"] = path
    write_index(folder, index)
    with pytest.raises(FormatError, match=re.escape(message)):
        load(folder)
    assert get("a") is None


@pytest.mark.parametrize(
    "path",
    ["../secret.bin", "sub/../../secret.bin", "..", ".", "", "/etc/hostname", "\\secret.bin",
     "..\\secret.bin", "C:secret.bin", "C:\\secret.bin", "//host/share/x", "a\0b", "./.."],
)  # fmt: skip
def test_paths_that_lead_outside(outside: Path, path: str) -> None:
    refuse(outside, path, f"{path!r}: expected a path relative to the folder, inside of it")


def test_paths_that_are_not_file_names(outside: Path) -> None:
    refuse(outside, "\ud800", r"'\ud800': expected the name of a file: surrogates not allowed")


def test_absolute_paths(outside: Path) -> None:
    refuse(outside, str(outside.parent / "secret.bin"), "relative to the folder")
    refuse(outside, str(outside / "params_shard_0.bin"), "relative to the folder")


@needs_posix
def test_links(outside: Path) -> None:
    (outside / "file").symlink_to("../secret.bin")
    (outside / "inner").symlink_to("params_shard_0.bin")
    (outside / "folder").symlink_to("..")
    (outside / "loop").symlink_to("loop")
    os.link(outside.parent / "secret.bin", outside / "hard")
    for path in ("file", "inner", "folder/secret.bin", "loop"):
        refuse(outside, path, "is a link")
    refuse(outside, "hard", "expected a plain file with one name")


@needs_posix
def test_an_index_that_is_a_link(outside: Path) -> None:
    (outside / "tensor-cache.json").rename(outside.parent / "index.json")
    (outside / "tensor-cache.json").symlink_to("../index.json")
    with pytest.raises(FormatError, match=r"'tensor-cache\.json' is a link"):
        load(outside)


@needs_posix
def test_paths_that_are_not_regular_files(outside: Path) -> None:
    (outside / "folder").mkdir()
    os.mkfifo(outside / "pipe")
    for path in ("folder", "pipe"):
        refuse(outside, path, "expected a plain file")


# The cache


def test_update_get_remove() -> None:
    x, y = np.zeros(1), np.ones(1)
    assert get("w") is None
    assert call("tensor_cache.update", "w", x) is None
    assert get("w") is x
    for override in ((), (False,), (0,)):
        with pytest.raises(InternalError, match="'w' is in the cache already; pass override=True"):
            call("tensor_cache.update", "w", y, *override)
    assert get("w") is x
    call("tensor_cache.update", "w", y, True)
    assert get("w") is y
    for _ in range(2):
        assert call("tensor_cache.remove", "w") is None
        assert get("w") is None
    call("tensor_cache.update", "w", x, False)
    assert call("tensor_cache.clear") is None
    assert get("w") is None


@pytest.mark.parametrize(
    ("error", "name", "args", "message"),
    [
        (TypeError, "update", (5, np.zeros(1)), "update: name: expected a string, got int 5"),
        (TypeError, "update", ("w", 5), "update: expected a tensor, got int 5"),
        (TypeError, "update", ("w", None), "update: expected a tensor, got None"),
        (TypeError, "update", ("w", np.zeros(1), None), "override: expected an int, got None"),
        (TypeError, "update", ("w",), "required positional argument"),
        (TypeError, "get", (5,), "get: name: expected a string"),
        (TypeError, "remove", (None,), "remove: name: expected a string"),
        (TypeError, "load", (5, 1, 0), "folder: expected a string"),
        (TypeError, "load", (".", 1.0, 0), "device type: expected an int"),
        (TypeError, "load", (".", 1), "required positional argument"),
        (InternalError, "load", (".", 2, 0), "device type 2: expected 1 (cpu)"),
    ],
)
def test_cache_errors(
    error: type[Exception], name: str, args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call("tensor_cache." + name, *args)


# Parameters


@pytest.fixture
def params() -> list[np.ndarray]:
    made = [np.full(1, i) for i in range(3)]
    for i, array in enumerate(made):
        call("tensor_cache.update", f"p_{i}", array)
    return made


def same(got: Any, want: list[np.ndarray]) -> bool:
    assert type(got) is tuple
    return len(got) == len(want) and all(a is b for a, b in zip(got, want, strict=True))


def test_params_by_number(params: list[np.ndarray]) -> None:
    for count in (-1, 3):
        assert same(call("param_array_from_cache", "p", count), params)
        module = call("param_module_from_cache", "p", count)
        assert same(module["get_params"](), params)
        assert same(module.get_params(), params)
    assert same(call("param_array_from_cache", "p", 2), params[:2])
    assert call("param_array_from_cache", "p", 0) == ()
    assert call("param_array_from_cache", "q", -1) == ()
    for name in ("param_array_from_cache", "param_module_from_cache"):
        with pytest.raises(InternalError, match=rf"{name}: expected 4 tensors .* p_3 is missing"):
            call(name, "p", 4)


def test_params_by_name(params: list[np.ndarray]) -> None:
    for names in (("p_2", "p_0"), ["p_2", "p_0"]):
        want = [params[2], params[0]]
        assert same(call("param_array_from_cache_by_name", names), want)
        assert same(call("param_array_from_cache_by_name_unpacked", *names), want)
        assert same(call("param_module_from_cache_by_name", names)["get_params"](), want)
    assert call("param_array_from_cache_by_name", ()) == ()
    assert call("param_array_from_cache_by_name_unpacked") == ()
    for name, args in [
        ("param_array_from_cache_by_name", (("p_0", "zz"),)),
        ("param_array_from_cache_by_name_unpacked", ("p_0", "zz")),
        ("param_module_from_cache_by_name", (("p_0", "zz"),)),
    ]:
        with pytest.raises(ValueError, match=f"{name}: parameter 'zz' is not in the cache"):
            call(name, *args)


def test_param_modules(params: list[np.ndarray]) -> None:
    module = call("param_module_from_cache", "p", -1)
    assert repr(module) == "<ParamModule of 3 parameters>"
    with pytest.raises(AttributeError, match="no function 'main', there is 'get_params'"):
        module["main"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("param_array_from_cache", (5, 1)),
        ("param_array_from_cache", ("p", 1.0)),
        ("param_array_from_cache_by_name", ("p_0",)),
        ("param_array_from_cache_by_name", ((5,),)),
        ("param_array_from_cache_by_name_unpacked", (("p_0",),)),
        ("param_module_from_cache_by_name", (5,)),
    ],
)
def test_param_errors(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=rf"{name}: (\w+: )?expected"):
        call(name, *args)
