"""Models compiled by TVM, run by relaxvm with TVM's kernels, in processes with and without TVM."""

from __future__ import annotations

import json
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.contrib.tvm.library.vectors import alignment_of
from relaxvm.errors import FormatError, LinkError
from relaxvm.native import toolchain

from . import children, tvm_free
from .tvm_free import same

tvm = pytest.importorskip("tvm")
tvm_ffi = pytest.importorskip("tvm_ffi")
relax = pytest.importorskip("tvm.relax")

from . import tvm_models, tvm_side  # noqa: E402
from .tvm_models import MODELS, Model  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels of ELF libraries")

CPU = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
RUNNABLE = [model for model in MODELS.values() if not model.cpu or " avx2 " in CPU]
each_model = pytest.mark.parametrize("model", RUNNABLE, ids=str)


@pytest.fixture(scope="module")
def executables() -> dict[str, Any]:
    """The executables of the models, compiled by TVM."""
    return {model.name: model.compile() for model in RUNNABLE}


@pytest.fixture(scope="module")
def exported(executables: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exported library of every model."""
    folder = tmp_path_factory.mktemp("models")
    for model in RUNNABLE:
        tvm_models.export(model, folder, executables[model.name])
    return folder


@pytest.fixture(scope="module")
def elsewhere(exported: Path) -> children.CompletedProcess[str]:
    """The process without TVM that ran all models; its results are in the same folder."""
    command = [sys.executable, "-m", "tests.tvm_free", str(exported)]
    return children.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wanted(exported: Path) -> dict[str, list[Any]]:
    """The results of the exported libraries on TVM's VM."""
    for name, function in tvm_free.PACKED.items():
        adapted = tvm_side._adapted(function)
        tvm.register_global_func(name, adapted, override=True)
    return {model.name: on_tvm(model, exported) for model in RUNNABLE}


def on_tvm(model: Model, folder: Path) -> list[Any]:
    module = tvm.runtime.load_module(str(folder / f"{model.name}.so"))
    machine = relax.VirtualMachine(module, tvm.cpu())
    return [
        plain(tvm_side.from_tvm(machine[function](*map(to_tvm, args))))
        for function, args in model.arguments()
    ]


def to_tvm(value: Any) -> Any:
    return tvm_side.to_tvm(tvm_free.to_relaxvm(value))


def plain(value: Any) -> Any:
    return tvm_free.from_relaxvm(value)


def results(model: Model, folder: Path, ran: children.CompletedProcess[str]) -> dict[str, Any]:
    path = folder / f"{model.name}.results"
    assert path.exists(), f"the process without TVM returned {ran.returncode}: {ran.stderr[-3000:]}"
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    assert "failed" not in found, found["failed"]
    return found


# In a process without TVM


def test_tvm_is_not_in_the_process(elsewhere: children.CompletedProcess[str]) -> None:
    assert elsewhere.returncode == 0, elsewhere.stderr[-3000:]
    assert json.loads(elsewhere.stdout) == []


@each_model
def test_same_as_on_tvm(
    model: Model,
    exported: Path,
    elsewhere: children.CompletedProcess[str],
    wanted: dict[str, list[Any]],
) -> None:
    found = results(model, exported, elsewhere)
    for how in ("results", "misaligned", "strided"):
        assert same(found[how], wanted[model.name]), f"{how}: {found[how]}\n{wanted[model.name]}"


@each_model
def test_eight_threads(
    model: Model, exported: Path, elsewhere: children.CompletedProcess[str]
) -> None:
    assert results(model, exported, elsewhere)["threads"]


@each_model
def test_wrong_arguments(
    model: Model, exported: Path, elsewhere: children.CompletedProcess[str]
) -> None:
    errors = results(model, exported, elsewhere)["errors"]
    for (_, _, words), (kind, message) in zip(model.wrong(), errors, strict=True):
        assert kind, f"no error, expected one with {words}"
        assert all(word in message for word in words), f"{kind}: {message}\nexpected: {words}"


# In a process with TVM


@each_model
def test_in_a_process_with_tvm(
    model: Model, executables: dict[str, Any], wanted: dict[str, list[Any]]
) -> None:
    """`relaxvm.from_tvm` of the result of ``tvm.compile``."""
    vm = relaxvm.from_tvm(executables[model.name])
    found = tvm_free.run(vm, model.arguments(), [])
    assert found["threads"]
    for how in ("results", "misaligned", "strided"):
        assert same(found[how], wanted[model.name]), f"{how}: {found[how]}\n{wanted[model.name]}"


@pytest.mark.parametrize("name", ["add_dynamic", "topk", "functions", "mlp_static"])
def test_modules(name: str, exported: Path, wanted: dict[str, list[Any]]) -> None:
    """`relaxvm.from_tvm` of a module that TVM loaded."""
    vm = relaxvm.from_tvm(tvm.runtime.load_module(str(exported / f"{name}.so")))
    calls = MODELS[name].arguments()
    found = [plain(vm[function](*tvm_free.to_relaxvm(args))) for function, args in calls]
    assert same(found, wanted[name])


def test_machines(exported: Path, wanted: dict[str, list[Any]]) -> None:
    """`relaxvm.from_tvm` of a TVM VM that runs a library."""
    module = tvm.runtime.load_module(str(exported / "add_static.so"))
    vm = relaxvm.from_tvm(relax.VirtualMachine(module, tvm.cpu()))
    calls = MODELS["add_static"].arguments()
    found = [plain(vm[function](*tvm_free.to_relaxvm(args))) for function, args in calls]
    assert same(found, wanted["add_static"])


@each_model
def test_files_with_tvm(model: Model, exported: Path, wanted: dict[str, list[Any]]) -> None:
    """`relaxvm.load_library` in a process that also has TVM."""
    ex = relaxvm.load_library(exported / f"{model.name}.so")
    vm = relaxvm.VirtualMachine(ex, functions=tvm_free.PACKED)
    calls = model.arguments()
    found = [plain(vm[function](*tvm_free.to_relaxvm(args))) for function, args in calls]
    assert same(found, wanted[model.name])


# Arguments of kernels


def test_alignment_follows_from_the_code(exported: Path) -> None:
    """Tensors are copied only if the kernels' instructions would fault on them."""
    for path in exported.glob("*.so"):
        kernels = relaxvm.load_library(path).kernels.values()
        wanted = 32 if path.stem == "mlp_avx2" else 16
        assert {kernel.alignment for kernel in kernels} == {wanted}, path.stem


@pytest.mark.parametrize(
    ("code", "alignment"),
    [
        ("0f 28 06", 16),  # movaps (%rsi), %xmm0
        ("c5 f8 28 06", 16),  # vmovaps (%rsi), %xmm0
        ("c5 fc 10 06", 16),  # vmovups (%rsi), %ymm0
        ("c5 fc 28 c1", 16),  # vmovaps %ymm1, %ymm0
        ("c5 fc 28 06", 32),  # vmovaps (%rsi), %ymm0
        ("90 c5 fd 7f 46 20 c3", 32),  # vmovdqa %ymm0, 32(%rsi)
        ("c4 c1 7c 28 04 24", 32),  # vmovaps (%r12), %ymm0
        ("c4 41 7d e7 04 24", 32),  # vmovntdq %ymm8, (%r12)
        ("c4 e2 7d 2a 06", 32),  # vmovntdqa (%rsi), %ymm0
        ("62 e1 7c 28 28 06", 32),  # vmovaps (%rsi), %ymm16
        ("62 f1 7c 48 28 06", 64),  # vmovaps (%rsi), %zmm0
        ("62 f1 7d 48 7f 46 01", 64),  # vmovdqa32 %zmm0, 64(%rsi)
        ("62 51 fd c9 6f 04 24", 64),  # vmovdqa64 (%r12), %zmm8 {%k1} {z}
        ("62 f1 7e 48 6f 06", 16),  # vmovdqu32 (%rsi), %zmm0
    ],
)
def test_instructions_that_fault(code: str, alignment: int) -> None:
    assert alignment_of("x86_64", [memoryview(bytes.fromhex(code))]) == alignment


def test_read_only_arguments_are_not_changed(tmp_path: Path) -> None:
    path, file = tmp_path / "it.so", tmp_path / "x.npy"
    tvm.compile(tvm_models.InPlaceArgument, target="llvm").export_library(str(path))
    main = relaxvm.VirtualMachine(relaxvm.load_library(path)).main
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.save(file, x)
    mapped, copied = np.load(file, mmap_mode="r"), np.load(file, mmap_mode="c")
    frozen = x.copy()
    frozen.flags.writeable = False
    held = np.frombuffer(x.tobytes(), "float32").reshape(2, 3)
    repeated = np.broadcast_to(x[:1], (2, 3))
    for argument in (mapped, frozen, held, repeated):
        before = np.array(argument)
        with pytest.raises(ValueError, match="accumulate: argument 0: the kernel writes it, and "
                                             "the array is read-only"):  # fmt: skip
            main(argument, x)
        assert np.array_equal(argument, before)
        assert np.array_equal(main(x.copy(), argument), x + before)
    assert np.array_equal(main(copied, mapped), 2 * x)
    assert np.array_equal(np.load(file), x)


# Errors


def test_functions_of_the_host_are_named(exported: Path) -> None:
    ex = relaxvm.load_library(exported / "host_function.so")
    with pytest.raises(LinkError, match=r"'tests\.models\.half'"):
        relaxvm.VirtualMachine(ex)


def test_native_code_is_loaded_only_on_request(exported: Path) -> None:
    """`load` reads only data; native code is loaded only on request."""
    path = exported / "add_static.so"
    with pytest.raises((FormatError, LinkError), match=r"native=True|load_library"):
        relaxvm.VirtualMachine(relaxvm.load(path))
    x = np.arange(4, dtype="float32")
    vm = relaxvm.VirtualMachine(relaxvm.load(path, native=True))
    assert np.array_equal(vm.main(x, x), x + x)


@pytest.fixture(scope="module")
def library(exported: Path) -> bytes:
    """A small library, byte by byte."""
    return (exported / "add_static.so").read_bytes()


def section(data: bytes, name: bytes) -> tuple[int, int]:
    """Return the positions of the header of an ELF section and of the section."""
    table, size, count, names = struct.unpack_from("<Q10xHHH", data, 40)
    headers = [table + i * size for i in range(count)]
    texts = struct.unpack_from("<Q", data, headers[names] + 24)[0]
    for header in headers:
        at = texts + struct.unpack_from("<I", data, header)[0]
        if data[at : data.index(b"\0", at)] == name:
            return header, struct.unpack_from("<Q", data, header + 24)[0]
    raise AssertionError(f"no section {name!r}")


def blob_at(data: bytes) -> int:
    """Return the position of the executable in a library: the first kind of its import tree."""
    return data.index(struct.pack("<Q", 0xD225DE2F4214151E))


def refused(path: Path, data: bytes, match: str) -> None:
    path.write_bytes(data)
    for read in (relaxvm.load, relaxvm.load_library):
        with pytest.raises((FormatError, LinkError), match=match):
            read(path)


@pytest.mark.parametrize("length", [0, 1, 4, 16, 63, 64, 500, 4096, 9000, 0.5, 0.9])
def test_truncated_files(library: bytes, tmp_path: Path, length: float) -> None:
    end = length if isinstance(length, int) else int(len(library) * length)
    refused(tmp_path / "it.so", library[:end], "it.so")


def test_files_of_other_kinds(library: bytes, tmp_path: Path) -> None:
    for data in (b"MZ" + library[2:], b"\xcf\xfa\xed\xfe" + library[4:], b"hello " * 100):
        refused(tmp_path / "it.so", data, "it.so")


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [(18, 0xB7, "aarch64|AArch64|architecture|machine"), (18, 0x9999, "architecture|machine"),
     (4, 1, "64"), (5, 2, "endian"), (16, 1, "shared")],
    ids=["aarch64", "unknown machine", "32 bits", "big endian", "object file"],
)  # fmt: skip
def test_other_platforms(library: bytes, tmp_path: Path, at: int, value: int, words: str) -> None:
    data = bytearray(library)
    data[at : at + (2 if at >= 16 else 1)] = value.to_bytes(2 if at >= 16 else 1, "little")
    path = tmp_path / "it.so"
    path.write_bytes(data)
    if at == 18:  # as data it can be read on any platform
        relaxvm.load(path)
    with pytest.raises((FormatError, LinkError), match=words):
        relaxvm.load_library(path)


def test_libraries_without_an_executable(tmp_path: Path) -> None:
    """A shared library from C, and a library from TVM that has only kernels."""
    path = tmp_path / "it.so"
    tvm.compile(MODELS["scalars"].module["scale"], target="llvm").export_library(str(path))
    for data in (
        path.read_bytes(),
        toolchain.compile_c("int f(void) { return 1; }", name="f").read_bytes(),
    ):
        refused(path, data, r"(?s)it\.so.*(program|load_kernels)")


def test_unknown_kinds_of_modules(library: bytes, tmp_path: Path) -> None:
    data = library.replace(b"relax.VMExecutable", b"metal.TurboLibrary")
    refused(tmp_path / "it.so", data, "metal.TurboLibrary")


def test_flipped_bytes(library: bytes, tmp_path: Path) -> None:
    """Bytes of the executable are changed one by one: it is rejected, or still an executable."""
    start = blob_at(library)
    rng = np.random.default_rng(11)
    path = tmp_path / "it.so"
    outcomes = set()
    for at in sorted(set(rng.integers(start, start + 1500, 150).tolist())):
        data = bytearray(library)
        data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            relaxvm.load(path)
        except relaxvm.errors.RelaxVMError as error:
            outcomes.add(type(error).__name__)
        else:
            outcomes.add("read")
    assert "FormatError" in outcomes
