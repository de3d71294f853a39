"""Files and listings, exchanged with apache-tvm in both directions, byte for byte."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Adt
from relaxvm.dtypes import as_dtype
from relaxvm.errors import FormatError
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.formats import binary
from relaxvm.executable.formats.text import as_text, parse_text, stats
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from .corpus import CORPUS
from .format_strategies import STREAM_DTYPES, by_hand

tvm = pytest.importorskip("tvm")
tvm_ffi = pytest.importorskip("tvm_ffi")
relax = pytest.importorskip("tvm.relax")

from . import tvm_programs  # noqa: E402

SAVABLE = [case for case in CORPUS.values() if case.savable]
read_by_tvm = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")


def written_by_tvm(module: Any, folder: Path) -> bytes:
    path = folder / "by_tvm.vmexec"
    module.write_to_file(str(path), "")
    return path.read_bytes()


def check_listings(ex: VMExecutable, module: Any) -> None:
    assert as_text(ex) == module["as_text"]()
    # TVM prints no statistics where there is a float, damages those with an empty shape, and sees
    # names of constructors in the place of values of data types.
    if not any(isinstance(value, (float, Adt)) or value == () for value in ex.constants
               if not isinstance(value, np.ndarray)):  # fmt: skip
        assert stats(ex) == module["stats"]()


# TVM reads our files


@pytest.mark.parametrize("case", SAVABLE, ids=str)
def test_tvm_reads_the_corpus(case: Any, tmp_path: Path) -> None:
    ex = case.executable
    data = ex.to_bytes()
    if any(isinstance(value, np.ndarray) and 0 in value.shape[1:] for value in ex.constants):
        with pytest.raises(tvm.error.InternalError, match="Invalid DLTensor file format"):
            read_by_tvm(data)  # TVM writes such a tensor but cannot read it
        return
    module = read_by_tvm(data)
    sections = binary.read_buffer(data).sections
    stream = data[: sections[0].offset] if sections else data
    assert written_by_tvm(module, tmp_path) == stream
    check_listings(ex, module)


def test_tvm_reads_everything_by_hand(tmp_path: Path) -> None:
    ex = by_hand()
    module = read_by_tvm(ex.to_bytes())
    assert written_by_tvm(module, tmp_path) == ex.to_bytes()
    check_listings(ex, module)


def test_tvm_reads_a_saved_file(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    by_hand().save(path)
    read = tvm.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")
    assert read(str(path))["as_text"]() == as_text(by_hand())


CONSTANTS: dict[str, Any] = {
    **{name: np.arange(6).astype(as_dtype(name)).reshape(2, 3)
       for name in STREAM_DTYPES if not name.startswith(("complex", "float8_e8m0"))},
    "float8_e8m0fnu": np.array([1, 2, 4]).astype(as_dtype("float8_e8m0fnu")),
    "scalar": np.array(2.5, np.float32),
    "shape": Shape((2, 0, 7)),
    "empty shape": Shape(),
    "string": 'naïve "text"\n',
    "long string": "x" * 1000,
    "int": 2**62,
    "small int": -5,
    "float": 0.1,
    "nan": float("nan"),
    **{f"dtype {name}": as_dtype(name) for name in STREAM_DTYPES if not name.startswith("complex")},
}  # fmt: skip


def returning(value: Any) -> VMExecutable:
    """``main()`` returns the constant."""
    functions = [FunctionInfo(FuncKind.BYTECODE, "main", 0, 2, 0, 1),
                 FunctionInfo(FuncKind.PACKED, "vm.builtin.copy")]  # fmt: skip
    return VMExecutable(functions, [value], [0, 5], [1, 0, 1, 1, 2 << 56, 2, 0])


def same(theirs: Any, ours: Any) -> bool:
    if isinstance(ours, np.ndarray):
        got = theirs.numpy()
        return str(theirs.dtype) == ours.dtype.name and got.tobytes() == ours.tobytes()
    if isinstance(ours, Shape):
        return isinstance(theirs, tvm_ffi.Shape) and tuple(theirs) == ours
    if isinstance(ours, np.dtype):
        return isinstance(theirs, tvm_ffi.dtype) and str(theirs) == ours.name
    if isinstance(ours, float):
        return struct.pack("<d", theirs) == struct.pack("<d", ours)
    return theirs == ours and isinstance(theirs, type(ours))


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_type_of_constant_runs_on_both(name: str, tmp_path: Path) -> None:
    value = CONSTANTS[name]
    ex = returning(value)
    module = read_by_tvm(ex.to_bytes())
    assert written_by_tvm(module, tmp_path) == ex.to_bytes()
    assert same(relax.VirtualMachine(module, tvm.cpu())["main"](), value)
    ours = relaxvm.VirtualMachine(relaxvm.loads(ex.to_bytes()), relaxvm.cpu())["main"]()
    if isinstance(value, np.ndarray):
        assert (ours.dtype, ours.shape) == (value.dtype, value.shape)
        assert ours.tobytes() == value.tobytes()
    else:
        assert type(ours) is type(value)
        assert ours == value or name == "nan"


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_tvm_keeps_data_types_without_operations(name: str, tmp_path: Path) -> None:
    ex = returning(np.array([1 + 2j], name))
    assert written_by_tvm(read_by_tvm(ex.to_bytes()), tmp_path) == ex.to_bytes()


def test_memory_scopes_mean_the_same(tmp_path: Path) -> None:
    """TVM writes them in the order of a hash table; sorted, they are equal to ours."""
    ex = VMExecutable([], [1, 2, 3], [], [], {0: "global", 1: "local", 2: "texture"})
    again = binary.loads(written_by_tvm(read_by_tvm(ex.to_bytes()), tmp_path))
    assert again == ex
    assert again.to_bytes() == ex.to_bytes()


def test_tvm_reads_the_older_magic_as_we_do() -> None:
    data = by_hand().to_bytes()
    ex = VMExecutable(by_hand().functions, by_hand().constants, by_hand().instr_offset,
                      by_hand().instr_data)  # fmt: skip
    new = ex.to_bytes()
    start = new.index(struct.pack("<QQ", 0, len(ex.constants)))
    old = b"\x1d" + new[1:start] + new[start + 8 :]
    assert binary.loads(old) == ex
    assert read_by_tvm(old)["as_text"]() == as_text(ex)
    assert data != new


# We read TVM's files


@pytest.fixture(scope="module")
def compiled() -> dict[str, bytes]:
    """Streams of TVM's compiler, in both execution modes if possible."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            f"{name} {mode}": tvm_programs.stream(program, mode)
            for name, program in tvm_programs.PROGRAMS.items()
            for mode in ("bytecode", "compiled")
        }


def test_we_read_what_tvm_compiles(compiled: dict[str, bytes]) -> None:
    assert len(compiled) >= 10
    for name, data in compiled.items():
        ex = binary.loads(data)
        assert ex.to_bytes() == data, name
        assert relaxvm.loads(data) == ex, name
        assert binary.loads(data, mmap=True) == ex, name
        check_listings(ex, read_by_tvm(data))
        assert parse_text(as_text(ex, complete=True)) == ex, name
        names: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(ex.as_python(), names)
        assert names["ex"] == ex, name


def test_we_read_what_tvms_builder_writes(tmp_path: Path) -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("test.mixed", [
            ib.r(0), ib.imm(-(2**55) + 1), ib.vm_state(), ib.void_arg(), ib.f("main"),
            ib.convert_constant("text"), ib.convert_constant(2.5), ib.convert_constant(2**60),
            ib.convert_constant(tvm.DataType("float16")), ib.convert_constant(tvm_ffi.Shape([4])),
            ib.convert_constant(tvm.runtime.tensor(np.arange(4, dtype="int8"))),
        ], dst=ib.r(5))  # fmt: skip
        ib.emit_if(ib.r(5), 2)
        ib.emit_goto(1)
        ib.emit_ret(ib.r(1))
    theirs = ib.get()
    data = written_by_tvm(theirs.mod, tmp_path)
    ex = binary.loads(data)
    assert ex.to_bytes() == data
    assert as_text(ex) == theirs.as_text()
    assert ex.function("main").param_names == ("x", "y")
    values = [*ex.constants]
    assert np.array_equal(values.pop(), np.arange(4, dtype="int8"))
    assert values == ["text", 2.5, 2**60, np.dtype("float16"), Shape((4,))]
    assert parse_text(as_text(ex, complete=True)) == ex


def test_data_types_that_numpy_lacks_are_named(tmp_path: Path) -> None:
    for name, shown in [("float32x4", "lanes 4"), ("handle", "code 3"), ("int4", "bits 4")]:
        ib = relax.ExecBuilder()
        with ib.function("main"):
            ib.emit_call("f", [ib.convert_constant(tvm.DataType(name))], dst=ib.r(0))
            ib.emit_ret(ib.r(0))
        with pytest.raises(FormatError, match=f"constant 0: data type .*{shown}.*: no numpy dtype"):
            binary.loads(written_by_tvm(ib.get().mod, tmp_path))


def test_a_library_holds_the_same_executable(tmp_path: Path) -> None:
    program = next(iter(tvm_programs.PROGRAMS.values()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = relax.build(relax.transform.LambdaLift()(program), target="llvm")
    path = tmp_path / "model.so"
    built.export_library(str(path))
    assert as_text(relaxvm.load(path)) == built.as_text()
    built.mod.write_to_file(str(tmp_path / "model.vmexec"), "")
    assert as_text(relaxvm.load(tmp_path / "model.vmexec")) == built.as_text()
