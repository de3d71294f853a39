"""Files that have not changed are found in the cache by their state, without reading them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine
from relaxvm.compiler import build
from relaxvm.limits import Limits
from relaxvm.verify import verifier
from relaxvm.vm import cache_index
from relaxvm.vm.program_cache import programs_path

from .onnxruntime_cases import GOLDEN, models_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files have no change times")

MODELS = models_of(json.loads(GOLDEN.read_text(encoding="utf-8")))
FEED = {"x": np.ones((2, 3), "f4"), "m": np.ones((3, 2), "f4")}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RELAXVM_CACHE", raising=False)
    monkeypatch.setattr(cache_index, "_SETTLED", -60.0)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done: "compiled", "verified", "read" for a checksum."""
    done: list[str] = []

    def watch(module: Any, name: str, what: str) -> None:
        real = getattr(module, name)

        def spy(*args: Any, **kwargs: Any) -> Any:
            done.append(what)
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, spy)

    watch(build, "compile", "compiled")
    watch(verifier, "verify", "verified")
    watch(hashlib, "sha256", "read")
    return done


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that the index knows."""
    path = tmp_path / "affine.onnx"
    path.write_bytes(MODELS["affine"])
    for _ in range(2):
        relaxvm.compile(path)
    return path


def run(path: Path, **options: Any) -> Any:
    return VirtualMachine(relaxvm.compile(path, **options)).main(**FEED)[0]


def entry() -> Path:
    (found,) = [path for path in programs_path().iterdir() if path.name[0] != "."]
    return found / "program.rvm"


def records() -> list[Path]:
    return sorted((programs_path() / ".index").iterdir())


def test_nothing_is_read_that_has_not_changed(model: Path, seen: list[str]) -> None:
    first = run(model)
    assert seen == []
    assert len(records()) == 1
    shutil.rmtree(programs_path() / ".index")
    np.testing.assert_array_equal(run(model), first)
    assert "read" in seen
    assert "compiled" not in seen


def test_a_file_that_was_changed_just_now_has_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_index, "_SETTLED", 60.0)
    path = tmp_path / "affine.onnx"
    path.write_bytes(MODELS["affine"])
    for _ in range(3):
        relaxvm.compile(path)
    assert not (programs_path() / ".index").exists()


def test_a_model_that_changed_back_its_time(model: Path, seen: list[str]) -> None:
    old = model.stat()
    data = bytearray(model.read_bytes())
    where = data.find(np.float32(1).tobytes())
    assert where > 0
    data[where : where + 4] = np.float32(2).tobytes()
    before = run(model)
    with open(model, "r+b") as file:
        file.write(data)
    os.utime(model, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert model.stat().st_mtime_ns == old.st_mtime_ns
    after = run(model)
    assert "compiled" in seen
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("change", ["a bit", "shorter", "replaced", "gone", "a link"])
def test_an_entry_that_changed_back_its_time(change: str, model: Path, seen: list[str]) -> None:
    expected = run(model)
    file = entry()
    old = file.stat()
    data = bytearray(file.read_bytes())
    if change == "a bit":
        data[-1] ^= 1
        file.write_bytes(data)
    elif change == "shorter":
        file.write_bytes(data[:-8])
    elif change == "replaced":
        file.rename(file.with_name("old"))
        file.write_bytes(data[:-1] + b"\1")
    else:
        file.rename(file.with_name("old"))
        if change == "a link":
            file.symlink_to(file.with_name("old"))
    if file.exists() and change != "a link":
        os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    np.testing.assert_array_equal(run(model), expected)
    assert "compiled" in seen


@pytest.mark.parametrize(
    "text", [b"", b"\n\n\n", b"\xff\xfe", b"x" * 100_000, b"['a']\n../../x\n1,2,3,4,5\n"]
)
def test_a_broken_record_is_replaced(text: bytes, model: Path, seen: list[str]) -> None:
    (record,) = records()
    good = record.read_bytes()
    for broken in (text, good.split(b"\n")[0] + b"\n" + text, good.replace(b",", b";")):
        record.write_bytes(broken)
        run(model)
        assert "compiled" not in seen
        assert "read" in seen
        assert record.read_bytes() == good
        seen.clear()


def test_a_record_that_is_a_link(model: Path, tmp_path: Path, seen: list[str]) -> None:
    (record,) = records()
    record.rename(tmp_path / "elsewhere")
    record.symlink_to(tmp_path / "elsewhere")
    run(model)
    assert "read" in seen
    assert not record.is_symlink()


def test_options_and_places_are_other_questions(
    model: Path, tmp_path: Path, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    relaxvm.compile(model, exec_mode="compiled")
    assert "compiled" in seen
    seen.clear()
    shutil.copy2(model, tmp_path / "other.onnx")
    relaxvm.compile(tmp_path / "other.onnx")
    assert "read" in seen
    seen.clear()
    monkeypatch.chdir(tmp_path)
    relaxvm.compile("affine.onnx")
    assert seen == []


def test_limits_are_kept(model: Path, seen: list[str]) -> None:
    with pytest.raises(relaxvm.errors.LimitError, match="registers"):
        VirtualMachine(relaxvm.compile(model), limits=Limits(registers=1))
    with pytest.raises(relaxvm.errors.LimitError):
        relaxvm.compile(model, limits=Limits(functions=0))
    assert "verified" in seen


def test_another_signature_is_verified(model: Path, seen: list[str]) -> None:
    executable = relaxvm.compile(model)
    kernel = next(
        info.name for info in executable.functions if info.name.startswith("relaxvm.kernel.")
    )
    old = relaxvm.registry.GLOBAL.lookup(kernel)
    assert old is not None
    relaxvm.register_func(kernel, print, override=True, signature="x: int")
    try:
        with pytest.raises(relaxvm.errors.VerifyError, match="takes 1 arguments, got 3"):
            VirtualMachine(relaxvm.compile(model))
        assert "verified" in seen
    finally:
        relaxvm.registry.GLOBAL.register(
            kernel, old.func, override=True, signature=old.signature, effect=old.effect,
            doc=old.doc,
        )  # fmt: skip
