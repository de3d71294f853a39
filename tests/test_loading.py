"""load, loads and parse_text read, then verify."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits
from relaxvm.errors import FormatError, LimitError, ParseError, RelaxVMWarning, VerifyError
from relaxvm.executable import FunctionInfo, VMExecutable, loading
from relaxvm.isa import FuncKind

from .corpus import CORPUS

GOOD = CORPUS["tensor_constants"].executable
BAD = VMExecutable([FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 1, 1)], [], [0], [2, 5])
"""Well-formed, but returns a register that the function does not have."""


def test_loaded_executables_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "good.vmexec"
    GOOD.save(path)
    data = GOOD.to_bytes()
    for ex in (
        relaxvm.load(path), relaxvm.load(str(path), mmap=True), relaxvm.load(io.BytesIO(data)),
        relaxvm.load(data), relaxvm.loads(data), relaxvm.loads(memoryview(data), mmap=True),
        loading.parse_text(GOOD.as_text(complete=True)),
    ):  # fmt: skip
        assert ex == GOOD


def test_invalid_executables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.vmexec"
    BAD.save(path)
    for load in (
        lambda: relaxvm.load(path),
        lambda: relaxvm.load(path, mmap=True),
        lambda: relaxvm.loads(BAD.to_bytes()),
        lambda: loading.parse_text(BAD.as_text(complete=True)),
    ):
        with pytest.raises(VerifyError, match="main"):
            load()


def test_limits_apply_to_reading_and_verifying() -> None:
    data = GOOD.to_bytes()
    with pytest.raises(LimitError, match="file_bytes=10"):
        relaxvm.loads(data, limits=Limits().but(file_bytes=10))
    for load in (
        lambda: relaxvm.loads(data, limits=Limits().but(registers=0)),
        lambda: loading.parse_text(GOOD.as_text(complete=True), limits=Limits().but(registers=0)),
    ):
        with pytest.raises((LimitError, VerifyError), match="registers"):
            load()


def test_errors_of_the_formats_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "model.vmexec"
    path.write_bytes(GOOD.to_bytes()[:-1])
    with pytest.raises(FormatError, match=r"model\.vmexec: bad executable \(instruction words"):
        relaxvm.load(path)
    path.write_bytes(GOOD.to_bytes() + b"x")
    with pytest.warns(RelaxVMWarning, match="1 bytes follow") as given:
        assert relaxvm.load(path, strict=False) == GOOD
    assert given[0].filename == __file__  # the user's line
    with pytest.warns(RelaxVMWarning, match="1 bytes follow"):
        assert relaxvm.loads(path.read_bytes(), strict=False) == GOOD
    with pytest.raises(ParseError, match=r"^asm\.txt:1:1: "):
        loading.parse_text("?", filename="asm.txt")
    with pytest.raises(FileNotFoundError):
        relaxvm.load(tmp_path / "nothing")
    with pytest.raises(FormatError, match=r"<bytes>: .* got 0x\w+ \(b'models/a'\)"):
        relaxvm.load(b"models/a.relaxvm")  # bytes are the content, not a path


def test_a_mapped_file_runs(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("test.formats.add", [ib.r(0), np.arange(5.0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    ib.get().save(path)
    registry = {"test.formats.add": np.add}
    vm = relaxvm.VirtualMachine(relaxvm.load(path, mmap=True), relaxvm.cpu(), functions=registry)
    np.testing.assert_array_equal(vm["main"](np.ones(5)), np.arange(5.0) + 1)


def test_other_kernels_do_not_need_another_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxvm.verify import verified, verifier

    ex = relaxvm.loads(GOOD.to_bytes())
    monkeypatch.setattr(verifier, "verify", lambda *_, **__: pytest.fail("verified again"))
    again = verified.passes_as(ex.with_kernels({"kernel": print}), ex)
    verified.ensure_verified(again)
    with pytest.raises(pytest.fail.Exception, match="verified again"):
        verified.ensure_verified(ex.with_kernels({"kernel": print}))
    with pytest.raises(pytest.fail.Exception, match="verified again"):
        verified.ensure_verified(again, limits=Limits(functions=1))


def test_tensors_of_a_large_section_are_read_in_place(tmp_path: Path) -> None:
    """The section is larger than what is read at once; its tensors are parts of one array."""
    b = ExecBuilder()
    weights = [np.arange(200_000 + i, dtype=np.float32) for i in range(3)]
    with b.function("main", num_inputs=0):
        args = [b.convert_constant(weight) for weight in weights]
        b.emit_call("vm.builtin.make_tuple", args, dst=b.r(0))
        b.emit_ret(b.r(0))
    path = tmp_path / "big.rvm"
    b.get().export_library(path, aligned=True)
    found = [c for c in relaxvm.load(path).constants if isinstance(c, np.ndarray)]
    addresses = [array.ctypes.data for array in found]
    assert all(address % 64 == 0 for address in addresses)
    assert 0 < max(addresses) - min(addresses) < sum(array.nbytes for array in found)
    for array, weight in zip(found, weights, strict=True):
        np.testing.assert_array_equal(array, weight)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_large_section_that_is_cut_off(tmp_path: Path) -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=0):
        weight = b.convert_constant(np.zeros(200_000, np.float32))
        b.emit_call("vm.builtin.copy", [weight], dst=b.r(0))
        b.emit_ret(b.r(0))
    path = tmp_path / "big.rvm"
    b.get().export_library(path, aligned=True)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match="truncated"):
        relaxvm.load(path)
