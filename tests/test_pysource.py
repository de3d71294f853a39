"""The Python form: a program that runs and rebuilds an equal executable."""

from __future__ import annotations

import ast
import os
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from relaxvm import ExecBuilder, isa
from relaxvm.dtypes import as_dtype
from relaxvm.errors import FormatError, RelaxVMWarning
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.formats import binary, pysource
from relaxvm.executable.formats.pysource import as_python
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from . import children
from .corpus import CORPUS
from .format_strategies import OWN_DTYPES, STREAM_DTYPES, by_hand, odd_executables, text_constants
from .strategies import executables


def run(program: str) -> Any:
    """Run the program and return the value of ``ex``."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxVMWarning)  # about unused inputs
        exec(compile(program, "<program>", "exec"), names)
    return names["ex"]


def with_constants(*constants: Any) -> VMExecutable:
    return VMExecutable([FunctionInfo(FuncKind.PACKED, "f")], constants, [], [])


# Round trips


@given(executables(savable=False))
def test_python_round_trip(ex: VMExecutable) -> None:
    assert run(as_python(ex)) == ex


@settings(max_examples=200)
@given(odd_executables(text_constants(), codec=None))
def test_python_round_trip_of_any_structure(ex: VMExecutable) -> None:
    again = run(as_python(ex))
    assert again == ex
    assert again.debug == ex.debug


@pytest.mark.parametrize("case", CORPUS.values(), ids=str)
def test_corpus_round_trips(case: Any) -> None:
    program = as_python(case.executable)
    assert run(program) == case.executable
    assert program == as_python(case.build())


def test_what_the_builder_made_is_written_with_the_builder() -> None:
    built = [case for case in CORPUS.values() if "ExecBuilder" in as_python(case.executable)]
    assert len(built) > 0.9 * len(CORPUS)


def test_invalid_executables_have_a_program_too() -> None:
    words = [9, 9, 1, 2, 77, 0, 1, 1]
    functions = [FunctionInfo(FuncKind.BYTECODE, "main", -3, 9, 0, 1),
                 FunctionInfo(FuncKind.BYTECODE, "main", 0, 0)]  # fmt: skip
    for offsets in ([0, 2, 5, 99], [0, 2, 6], [3, 1], [2], []):
        ex = VMExecutable(functions, [], offsets, words, {7: "global"})
        assert run(as_python(ex)) == ex


def test_a_word_that_the_builder_takes_but_does_not_make() -> None:
    immediate = isa.encode_arg(isa.ArgKind.IMMEDIATE, isa.VALUE_MIN - 1)
    functions = [FunctionInfo(FuncKind.BYTECODE, "main", 0, 2, 0, 1),
                 FunctionInfo(FuncKind.PACKED, "f")]  # fmt: skip
    ex = VMExecutable(functions, [], [0, 5], [1, 0, 1, 1, immediate, 2, 0])
    assert run(as_python(ex)) == ex


# Text


def test_golden_programs(golden: Callable[[str, str], None]) -> None:
    golden("everything.py.txt", as_python(by_hand()))
    ib = ExecBuilder()
    weights = ib.convert_constant(np.array([[1.5, -0.0], [np.inf, 0.1]], np.float32))
    ib.declare_function("helper", FuncKind.BYTECODE)
    with ib.function("main", num_inputs=2, param_names=["x", "w"]):
        ib.emit_call("test.mul", [ib.r(0), weights], dst=ib.r(2))
        ib.emit_call("test.show", [ib.r(1), ib.imm(-3), Shape((2, 2)), ib.vm_state()])
        ib.emit_call("test.map", [ib.f("helper"), ib.void_arg()], dst=ib.r(3))
        ib.emit_if(ib.r(3), 3)
        ib.emit_call("helper", [ib.r(2)], dst=ib.r(2))
        ib.emit_goto(1)
        ib.emit_ret(ib.r(2))
    with ib.function("helper", num_inputs=1):
        ib.emit_ret(ib.r(0))
    golden("built.py.txt", as_python(ib.get()))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.array([0.1, 1e-45], np.float32), 'np.array([0.1, 1e-45], "float32")'),
        (np.array([np.inf, -np.inf, np.nan, -0.0]),
         'np.array([np.inf, -np.inf, np.nan, -0.0], "float64")'),
        (np.array([[True], [False]]), 'np.array([[True], [False]], "bool")'),
        (np.array(7, np.uint8), 'np.array(7, "uint8")'),
        (np.zeros((0, 3), np.int8), 'np.zeros((0, 3), "int8")'),
        (np.array([complex(1.0, -0.0)]), 'np.array([complex(1.0, -0.0)], "complex128")'),
        (np.array([1.5], as_dtype("bfloat16")), "np.array([1.5], ml_dtypes.bfloat16)"),
        (np.array([0x7FC00001], np.uint32).view(np.float32),
         'tensor("float32", (1,), (\n    "AQDAfw=="\n))'),
        (np.array([1], ">i2"), 'np.array([1], ">i2")'),
        (np.array(["x"]), 'tensor("<U1", (1,), (\n    "eAAAAA=="\n))'),
        (np.dtype("float16"), 'np.dtype("float16")'),
        (as_dtype("float8_e5m2"), "np.dtype(ml_dtypes.float8_e5m2)"),
        (np.dtype(">f4"), 'np.dtype(">f4")'),
        (Shape((2, 3)), "rx.Shape((2, 3))"),
        ("it's \u2028", '"it\'s \\u2028"'),
        (2**63, "9223372036854775808"),
        (-(2**70), "-0x400000000000000000"),
        (float("inf"), 'float("inf")'),
        (-0.0, "-0.0"),
        (struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0],
         'struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]'),
        (None, "None"),
        (True, "True"),
    ],
)  # fmt: skip
def test_constants(value: Any, shown: str) -> None:
    ex = with_constants(value)
    program = as_python(ex)
    assert f"{shown})  # c[0]" in program or f"{shown},  # c[0]" in program
    assert run(program) == ex


@pytest.mark.parametrize("name", STREAM_DTYPES + OWN_DTYPES)
@pytest.mark.parametrize("size", [64, 65])
def test_elements_keep_every_bit(name: str, size: int, tmp_path: Path) -> None:
    dtype = as_dtype(name)
    high = 2 if name == "bool" else 256
    bits = np.random.default_rng(3).integers(0, high, size * dtype.itemsize).astype(np.uint8)
    array = bits.view(dtype)
    for npz in (None, tmp_path / "it.npz"):
        (got,) = run(as_python(with_constants(array), npz=npz)).constants
        assert got.dtype == dtype
        assert got.tobytes() == array.tobytes()


def test_names_cannot_inject_code() -> None:
    """No name or string can escape from its literal or its comment."""
    evil = '"]); raise SystemExit("gone")  #\n\r\u2028\x85\x0craise SystemExit("gone")\\'
    functions = [FunctionInfo(FuncKind.BYTECODE, evil, 0, 1, 1, 2, (evil,)),
                 FunctionInfo(FuncKind.PACKED, evil + "2")]  # fmt: skip
    for registers in (2, 3):  # with the builder, and with words
        functions[0] = FunctionInfo(FuncKind.BYTECODE, evil, 0, 2, 1, registers, (evil,))
        ex = VMExecutable(functions, [evil], [0, 5], [1, 1, 1, 1, 2 << 56, 2, 1])
        program = as_python(ex)
        assert ("ExecBuilder" in program) == (registers == 2)
        assert run(program) == ex
        calls = [node.func for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call)]
        assert {call.attr for call in calls if isinstance(call, ast.Attribute)} <= {
            "ExecBuilder", "convert_constant", "declare_function", "function", "emit_call",
            "emit_ret", "r", "c", "get", "FunctionInfo", "VMExecutable",
        }  # fmt: skip


def test_constants_without_a_python_form() -> None:
    for value, message in [
        (object(), "constant 1: a object has no Python form"),
        (np.array([None]), "constant 1: dtype object has no text form"),
        (np.zeros(1, [("a", "i4")]), r"constant 1: dtype \[\('a', '<i4'\)\] has no text form"),
    ]:
        with pytest.raises(FormatError, match=f"^{message}"):
            as_python(with_constants(1, value))


# Large tensors in a separate file


def large() -> VMExecutable:
    rng = np.random.default_rng(5)
    return with_constants(
        rng.random((8, 9)).astype(np.float32), "small", np.arange(3),
        rng.random(100).astype(as_dtype("bfloat16")), rng.random((10, 7)).T,
        np.arange(70).astype(">u2"), np.array(["a", "bc"] * 40),
        np.arange(70).astype(as_dtype("float8_e4m3fn")),
    )  # fmt: skip


def test_large_tensors_go_to_a_file(tmp_path: Path) -> None:
    ex = large()
    path = tmp_path / "weights.npz"
    program = as_python(ex, npz=path)
    assert f"weights = np.load({str(path)!r})" in program
    assert 'weights["c3"].view(ml_dtypes.bfloat16)' in program
    assert "base64" not in program
    with np.load(path, allow_pickle=False) as saved:
        assert sorted(saved.files) == ["c0", "c3", "c4", "c5", "c6", "c7"]
    assert run(program) == ex
    first = path.read_bytes()
    assert as_python(ex, npz=path) == program
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["weights.npz"]


def test_without_a_file_they_stand_in_the_program() -> None:
    program = as_python(large())
    assert max(map(len, program.split("\n"))) <= 120
    assert run(program) == large()


def test_no_file_without_large_tensors(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    program = as_python(with_constants(np.arange(3)), npz=path)
    assert "np.load" not in program
    assert not path.exists()


def test_a_failed_archive_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.npz"
    as_python(large(), npz=path)
    old = path.read_bytes()

    def fail(file: Any, arrays: Any) -> None:
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(pysource, "_write_npz", fail)
    with pytest.raises(OSError, match="no space left"):
        as_python(with_constants(np.arange(100)), npz=path)
    with pytest.raises(FormatError):
        as_python(with_constants(np.arange(100), object()), npz=path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["weights.npz"]


def test_the_program_runs_by_itself(tmp_path: Path) -> None:
    ex = CORPUS["tensor_constants"].executable
    script = tmp_path / "program.py"
    script.write_text(as_python(ex) + "ex.save('it.vmexec')\n", encoding="utf-8")
    children.run([sys.executable, "-W", "error", str(script)], cwd=tmp_path, check=True)
    assert binary.load(tmp_path / "it.vmexec") == ex


def test_large_programs_take_linear_time() -> None:
    array = np.arange(3_000_000)
    assert run(as_python(with_constants(array))) == with_constants(array)
