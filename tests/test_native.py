"""Native functions: arguments of C kernels, results, errors, threads, Ctrl-C."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Shape, VirtualMachine
from relaxvm.core._native import (
    BIG_CALL,
    QUICK_CALLS,
    NativeFunction,
    host_address,
    to_dlpack,
)
from relaxvm.dtypes import dtype_to_dl
from relaxvm.errors import InternalError, LinkError, RelaxVMError
from relaxvm.native import toolchain
from relaxvm.native.functions import load_function, load_kernels, native_function
from relaxvm.values import Device

from . import children
from .threads import run_in_threads

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="there is no C compiler")

SOURCE = Path(__file__).parent / "native_kernels.c"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")

Kernels = dict[str, NativeFunction]


@pytest.fixture(scope="module")
def library() -> Path:
    return toolchain.compile_c(SOURCE.read_text("utf-8"), name="kernels", flags=WARNINGS)


@pytest.fixture(scope="module")
def kernels(library: Path) -> Kernels:
    return load_kernels(library)


def load(library: Path, symbol: str, /, **options: Any) -> NativeFunction:
    return load_function(library, symbol, **options)


def described(kernel: NativeFunction, x: Any) -> dict[str, Any]:
    """Return the description of a tensor by the kernel ``describe``."""
    out = np.full(6 + 2 * 32, -7, np.int64)
    assert kernel(x, out) is None
    code, bits, lanes, rank, strided, address = out[:6].tolist()
    return {
        "dtype": (code, bits, lanes),
        "shape": tuple(out[6 : 6 + rank].tolist()),
        "strides": tuple(out[6 + rank : 6 + 2 * rank].tolist()) if strided else None,
        "address": address,
    }


# The header


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_header_has_the_layout_of_tvm_ffi(language: str, tmp_path: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    pairs = {
        "RvmAny": ("TVMFFIAny", "type:type_index short_size:small_str_len as_int:v_int64 "
                   "as_float:v_float64 as_pointer:v_ptr as_text:v_c_str as_object:v_obj "
                   "as_dtype:v_dtype as_device:v_device short_bytes:v_bytes"),
        "RvmTensor": ("DLTensor", "data:data device:device ndim:ndim dtype:dtype shape:shape "
                      "strides:strides byte_offset:byte_offset"),
        "RvmDtype": ("DLDataType", "code:code bits:bits lanes:lanes"),
        "RvmDevice": ("DLDevice", "type:device_type index:device_id"),
        "RvmBytes": ("TVMFFIByteArray", "data:data size:size"),
        "RvmObject": ("TVMFFIObject", "counts:combined_ref_count type:type_index destroy:deleter"),
    }  # fmt: skip
    numbers = {
        "RVM_NONE": "kTVMFFINone", "RVM_INT": "kTVMFFIInt", "RVM_BOOL": "kTVMFFIBool",
        "RVM_REAL": "kTVMFFIFloat", "RVM_POINTER": "kTVMFFIOpaquePtr",
        "RVM_DTYPE": "kTVMFFIDataType", "RVM_DEVICE": "kTVMFFIDevice",
        "RVM_TENSOR": "kTVMFFIDLTensorPtr", "RVM_TEXT": "kTVMFFIRawStr",
        "RVM_BYTES": "kTVMFFIByteArrayPtr", "RVM_SHORT_TEXT": "kTVMFFISmallStr",
        "RVM_SHORT_BYTES": "kTVMFFISmallBytes", "RVM_OBJECT": "kTVMFFIObject",
        "RVM_TEXT_OBJECT": "kTVMFFIStr", "RVM_BYTES_OBJECT": "kTVMFFIBytes",
        "RVM_SHAPE": "kTVMFFIShape", "RVM_TENSOR_OBJECT": "kTVMFFITensor",
        "RVM_CPU": "kDLCPU", "RVM_SIGNED": "kDLInt",
        "RVM_UNSIGNED": "kDLUInt", "RVM_FLOAT": "kDLFloat", "RVM_BFLOAT": "kDLBfloat",
        "RVM_COMPLEX": "kDLComplex", "RVM_BOOLEAN": "kDLBool",
        "RVM_FLOAT8_E3M4": "kDLFloat8_e3m4", "RVM_FLOAT8_E4M3": "kDLFloat8_e4m3",
        "RVM_FLOAT8_E4M3B11FNUZ": "kDLFloat8_e4m3b11fnuz",
        "RVM_FLOAT8_E4M3FN": "kDLFloat8_e4m3fn", "RVM_FLOAT8_E4M3FNUZ": "kDLFloat8_e4m3fnuz",
        "RVM_FLOAT8_E5M2": "kDLFloat8_e5m2", "RVM_FLOAT8_E5M2FNUZ": "kDLFloat8_e5m2fnuz",
        "RVM_FLOAT8_E8M0FNU": "kDLFloat8_e8m0fnu",
        "RVM_WHAT_STRONG": "kTVMFFIObjectDeleterFlagBitMaskStrong",
        "RVM_WHAT_WEAK": "kTVMFFIObjectDeleterFlagBitMaskWeak",
    }  # fmt: skip
    same = []
    for ours, (theirs, fields) in pairs.items():
        same.append((f"sizeof({ours})", f"sizeof({theirs})"))
        for field in fields.split():
            a, b = field.split(":")
            same.append((f"offsetof({ours}, {a})", f"offsetof({theirs}, {b})"))
            same.append((f"sizeof((({ours} *)0)->{a})", f"sizeof((({theirs} *)0)->{b})"))
    # A string or a shape follows the header of its object.
    same += [
        ("offsetof(RvmBytesObject, bytes)", "sizeof(TVMFFIObject)"),
        ("offsetof(RvmTensorObject, tensor)", "sizeof(TVMFFIObject)"),
        ("offsetof(RvmShape, dims) - 24", "offsetof(TVMFFIShapeCell, data)"),
        ("offsetof(RvmShape, ndim) - 24", "offsetof(TVMFFIShapeCell, size)"),
        *((f"(int){ours}", f"(int){theirs}") for ours, theirs in numbers.items()),
    ]
    word = "static_assert" if language == "c++" else "_Static_assert"
    lines = [f'{word}({a} == {b}, "{a}");'.replace("\\", "") for a, b in same]
    text = "\n".join([
        "#include <tvm/ffi/c_api.h>",
        "#include <relaxvm/kernel.h>",
        "enum { RVM_WHAT_STRONG = 1, RVM_WHAT_WEAK = 2 };",
        *lines,
        "RvmFunction takes_the_same(TVMFFISafeCallType f) { return (RvmFunction)f; }",
    ])  # fmt: skip
    (tmp_path / "layout.c").write_text(text)
    include = Path(tvm_ffi.__file__).parent / "include"
    done = children.run(
        [*str(toolchain.compiler()).split(), "-x", language, "-fsyntax-only", "-Wall",
         "-Wno-cast-function-type", f"-I{relaxvm.get_include()}", f"-I{include}", "layout.c"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_kernel_runs_and_fails_under_tvm_ffi(library: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    module = tvm_ffi.load_module(str(library))
    x = np.arange(4, dtype=np.float64)
    module.bump(tvm_ffi.from_dlpack(x))
    assert x.tolist() == [1, 2, 3, 4]
    assert module.sum(1, 2, 3) == 6
    texts = ("", "short", "not so short", b"bytes")
    assert [module.length(text) for text in texts] == [0, 5, 12, 5]
    assert module.volume(tvm_ffi.Shape((2, 3, 4))) == 24
    with pytest.raises(ValueError, match="no good"):
        module.fail("ValueError", "no good")
    # The same library of the same process, under relaxvm and in between.
    with pytest.raises(IndexError, match="here"):
        load(library, "fail")("IndexError", "here")
    with pytest.raises(ValueError, match="there"):
        module.fail("ValueError", "there")


AFTERWARDS = """
import sys
import relaxvm
relaxvm.load_kernels(sys.argv[1], ["fail"])
import tvm_ffi
try:
    tvm_ffi.load_module(sys.argv[1]).fail("ValueError", "no good")
except ValueError as error:
    print(error)
"""


def test_tvm_ffi_may_be_loaded_after_a_library(library: Path) -> None:
    pytest.importorskip("tvm_ffi")
    done = children.run([sys.executable, "-c", AFTERWARDS, str(library)],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout == "no good\n", done.stderr


@pytest.mark.parametrize("standard", ["c99", "c11", "c++11", "c++20"])
def test_the_header_is_of_the_standard(standard: str, tmp_path: Path) -> None:
    language = "c++" if "+" in standard else "c"
    text = '#include <relaxvm/kernel.h>\nRVM_KERNEL(f) { return rvm_error("TypeError", "no"); }\n'
    (tmp_path / "kernel.c").write_text(text)
    done = children.run(
        [*str(toolchain.compiler()).split(), "-x", language, f"-std={standard}", "-fsyntax-only",
         *WARNINGS, f"-I{relaxvm.get_include()}", "kernel.c"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# Tensors


DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "longdouble", "complex64", "complex128", "intc", "longlong", "ulonglong",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_data_types(dtype: str, kernels: Kernels) -> None:
    x = np.zeros((2, 3), dtype)
    seen = described(kernels["describe"], x)
    assert seen["dtype"] == dtype_to_dl(x.dtype)
    assert seen["shape"] == (2, 3)
    assert seen["strides"] is None
    assert seen["address"] == x.ctypes.data % 256


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_data_types_of_ml_dtypes(name: str, kernels: Kernels) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(1, 5).astype(getattr(ml_dtypes, name))
    for _ in range(2):  # the first call registers the type
        assert described(kernels["describe"], x)["dtype"] == dtype_to_dl(x.dtype)
    out = np.zeros_like(x)
    kernels["copy"](x, out)
    assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize(
    "x",
    [
        np.array(["a"]),
        np.array([object()]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, np.clongdouble),
        *([np.zeros(2, np.dtypes.StringDType())] if hasattr(np.dtypes, "StringDType") else []),
    ],
    ids=lambda x: str(x.dtype),
)
def test_data_types_that_c_does_not_know(x: Any, kernels: Kernels) -> None:
    with pytest.raises(TypeError, match=r"count: argument 1: data type .* cannot be passed to C"):
        kernels["count"](0, x)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,), (1,) * 8, (1,) * 9, (2,) * 15])
@pytest.mark.parametrize("strided", [False, True])
def test_shapes(shape: tuple[int, ...], strided: bool, library: Path) -> None:
    x = np.zeros(shape, np.float32)
    seen = described(load(library, "describe", strided=strided), x)
    assert seen["shape"] == shape
    if not strided:
        assert seen["strides"] is None
    elif x.size:
        assert seen["strides"] == tuple(step // 4 for step in x.strides)


VIEWS = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[0], x.shape),
    "rank 10": lambda x: x.T.reshape((2, 1, 1, 1, 1, 1, 1, 1, 4, 3)[::-1])[..., ::-1],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_are_copied_for_a_kernel_that_wants_contiguous_data(
    view: Any, kernels: Kernels
) -> None:
    x = view(np.arange(24.0).reshape(4, 6))
    seen = described(kernels["describe"], x)
    assert (seen["shape"], seen["strides"]) == (x.shape, None)
    assert seen["address"] % 64 == 0
    out = np.zeros(x.shape)
    kernels["copy"](x, out)
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_strided_kernel_gets_views_as_they_are(view: Any, library: Path) -> None:
    x = view(np.arange(24.0).reshape(4, 6))
    seen = described(load(library, "describe", strided=True), x)
    assert seen["shape"] == x.shape
    assert seen["strides"] == tuple(step // 8 for step in x.strides)
    assert seen["address"] == x.__array_interface__["data"][0] % 256
    if x.ndim == 2:
        assert load(library, "strided_sum", strided=True, writes=())(x) == x.sum()


def misaligned(shape: int, dtype: str) -> Any:
    dtype_size = np.dtype(dtype).itemsize
    return np.zeros(shape * dtype_size + 1, np.uint8)[1:].view(dtype)


def steps_of_no_whole_element() -> Any:
    records = np.zeros(5, [("tag", "u1"), ("value", "f4")])
    records["value"] = range(5)
    return records["value"]


@pytest.mark.parametrize("strided", [False, True])
def test_arrays_that_c_cannot_read_are_copied(strided: bool, library: Path) -> None:
    describe = load(library, "describe", strided=strided)
    for x in (misaligned(5, "f4"), np.zeros(5, ">f4"), steps_of_no_whole_element()):
        seen = described(describe, x)
        assert seen["dtype"] == (2, 32, 1)
        assert seen["address"] % 64 == 0
        assert seen["strides"] == ((1,) if strided else None)


def test_copies_have_the_values(kernels: Kernels) -> None:
    for x in (misaligned(5, "f4"), np.zeros(5, ">f4")):
        x[:] = range(5)
        out = np.zeros(5, np.float32)
        kernels["copy"](x, out)
        assert out.tolist() == [0, 1, 2, 3, 4]
    kernels["copy"](steps_of_no_whole_element(), out)
    assert out.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("alignment", [64, 256, 4096])
def test_alignment(alignment: int, library: Path) -> None:
    describe = load(library, "describe", alignment=alignment)
    room = np.zeros(3 * alignment, np.uint8)
    start = -room.ctypes.data % alignment
    assert described(describe, room[start:])["address"] == (room.ctypes.data + start) % 256
    assert described(describe, room[start + 16 :])["address"] % min(alignment, 256) == 0


# Writing


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(5),
        lambda: np.zeros(10)[::2],
        lambda: np.zeros(5)[::-1],
        lambda: np.zeros(5, ">f8"),
        lambda: misaligned(5, "f8"),
        lambda: np.asfortranarray(np.zeros((5, 3))),
        lambda: np.zeros((2, 3, 4)).transpose(1, 0, 2),
        lambda: np.zeros(()),
    ],
)
def test_writes_of_the_kernel_are_visible(make: Any, kernels: Kernels) -> None:
    x = make()
    x[...] = np.arange(x.size).reshape(x.shape)
    before = x.copy()
    kernels["bump"](x)
    np.testing.assert_array_equal(x, before + 1)


def test_only_tensors_that_are_written_must_be_writable(library: Path) -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    out = np.zeros(3)
    load(library, "copy")(x, out)
    assert out.tolist() == [0, 1, 2]
    message = "copy: argument 1: the kernel writes it, and the array is read-only"
    with pytest.raises(ValueError, match=message):
        load(library, "copy")(out, x)
    with pytest.raises(ValueError, match=message.replace("1", "0")):
        load(library, "copy", writes=[0, 1])(x, out)
    with pytest.raises(ValueError, match=message.replace("1", "0")):
        load(library, "copy", writes=[-2])(x[::-1], out)
    load(library, "copy", writes=[])(x, out)
    assert load(library, "copy", writes=[0, -1]).writes == (0, -1)


READ_ONLY: dict[str, Callable[[Path], Any]] = {
    "array": lambda _: np.arange(8.0),
    "bytes": lambda _: np.frombuffer(np.arange(8.0).tobytes()),
    "file": lambda folder: np.memmap(folder / "x", np.float64, "r", shape=(8,)),
    "broadcast": lambda _: np.broadcast_to(np.float64(3), (8,)),
    "misaligned": lambda _: np.frombuffer(b"." + np.arange(8.0).tobytes(), offset=1),
    "view": lambda _: np.arange(16.0)[::2],
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_read_only_arrays_for_kernels_that_may_write_anything(
    name: str, library: Path, tmp_path: Path
) -> None:
    np.arange(8.0).tofile(tmp_path / "x")
    x = READ_ONLY[name](tmp_path)
    x.flags.writeable = False
    before, out = np.array(x), np.empty(8)
    bump, copy = (load(library, symbol, writes=None) for symbol in ("bump", "copy"))
    one = VirtualMachine(program("bump", count=1), functions={"bump": bump}).main
    two = VirtualMachine(program("copy"), functions={"copy": copy}).main
    for call in (bump, one):
        with pytest.raises(ValueError, match="argument 0: the kernel writes it, and the array is "
                                             "read-only"):  # fmt: skip
            call(x)
        assert np.array_equal(x, before)
        writable = before.copy()
        call(writable)
        assert np.array_equal(writable, before + 1)
    for call in (copy, two):
        out[...] = 0
        call(x, out)
        assert np.array_equal(out, before)


def test_a_read_only_array_is_copied_once_per_call(library: Path) -> None:
    """It is compared with the copy itself; that of a writable view needs another copy."""
    copy = load(library, "copy", writes=None)
    limits = relaxvm.Limits(live_bytes=1 << 30)
    frozen, out = np.arange(1 << 20, dtype="i8"), np.empty(1 << 20, "i8")
    frozen.flags.writeable = False
    for x, copies in ((frozen, 1), (frozen[:][::-1], 2), (np.arange(2 << 20)[::2], 2)):
        vm = VirtualMachine(program("copy"), functions={"copy": copy}, limits=limits)
        vm.main(x, out)
        assert np.array_equal(out, x)
        peak = vm.memory_stats().peak_bytes
        assert copies * out.nbytes <= peak < (copies + 0.5) * out.nbytes


@pytest.mark.parametrize("count", [1, 17])
@pytest.mark.parametrize("optimize", [True, False])
def test_constants_are_passed_as_they_are(optimize: bool, count: int, library: Path) -> None:
    """Constants of the program, in any register; but not arguments of its functions."""
    where = load(library, "where", writes=None)
    b = ExecBuilder()
    with b.function("inner", num_inputs=1):
        b.emit_call("where", [b.r(0)] * count, dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("main", num_inputs=1):
        constant = b.convert_constant(np.arange(64.0))
        b.emit_call("where", [constant] * count, dst=b.r(1))
        b.emit_call("inner", [constant], dst=b.r(2))
        b.emit_call("inner", [b.r(0)], dst=b.r(3))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2), b.r(3)], dst=b.r(4))
        b.emit_ret(b.r(4))
    executable = b.get()
    vm = VirtualMachine(executable, functions={"where": where}, optimize=optimize)
    (array,) = [x for x in executable.constants if isinstance(x, np.ndarray)]
    assert not array.flags.writeable
    view = array[:]
    for hook in (None, lambda *_: 0):
        vm.set_instrument(hook)
        *constant_at, argument_at = vm.main(view)
        assert constant_at == [array.ctypes.data] * 2
        assert argument_at != array.ctypes.data


def test_positions_that_are_written_with_many_arguments(library: Path) -> None:
    frozen = np.zeros(1)
    frozen.flags.writeable = False
    for count in (1, 2, 16, 17, 64, 65, 100):
        args: list[Any] = [0] * count
        for position, writes in ((0, [0]), (count - 1, [-1]), (min(count, 64) - 1, [63])):
            args[position] = frozen
            assert load(library, "count", writes=[])(*args) == count
            if position >= 64 and writes[0] >= 0:
                continue
            if writes == [63] and position != 63:
                assert load(library, "count", writes=writes)(*args) == count
            else:
                with pytest.raises(ValueError, match=f"argument {position}: the kernel writes it"):
                    load(library, "count", writes=writes)(*args)
            args[position] = 0


def test_nothing_is_written_back_when_the_kernel_fails(library: Path) -> None:
    x = np.arange(6.0)[::2]
    with pytest.raises(ValueError, match="spoilt"):
        load(library, "spoil")(x)
    assert x.tolist() == [0, 2, 4]


# Other arguments


def test_kinds(kernels: Kernels) -> None:
    values = [None, 1, True, 1.5, np.dtype("int8"), Device("cpu"), np.zeros(1), "a", b"a"]
    assert [kernels["kinds"](value) for value in values] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert kernels["kinds"](Shape((1, 2))) == 69
    assert kernels["kinds"](1, None, 1.5) == 1_00_03


def test_values_pass_unchanged(kernels: Kernels) -> None:
    same = kernels["same"]
    for value in (None, 0, -1, 2**63 - 1, -(2**63), True, False, 0.1, float("inf"), -0.0):
        got = same(value)
        assert type(got) is type(value)
        assert repr(got) == repr(value)
    assert same(np.dtype("float32")) == np.dtype("float32")
    assert same(Device("cuda", 3)) == Device("cuda", 3)
    assert kernels["half"](7) == 3.5
    assert kernels["negate"](False) is True


def test_numbers_that_do_not_fit(kernels: Kernels) -> None:
    for value in (2**63, -(2**63) - 1, 10**40):
        with pytest.raises(ValueError, match=r"same: argument 0: int .* does not fit 64 bits"):
            kernels["same"](value)


def test_texts_and_shapes(kernels: Kernels) -> None:
    length = kernels["length"]
    assert length("") == 0
    assert length("naïve") == 6
    assert length(b"a\0b") == 3
    assert kernels["volume"](Shape((2, 3, 7))) == 42
    assert kernels["volume"](Shape()) == 1
    with pytest.raises(ValueError, match="argument 0: C cannot take a str with a zero character"):
        length("a\0b")


def test_objects_that_convert_to_numbers(kernels: Kernels) -> None:
    class Number(int):
        pass

    kinds = kernels["kinds"]
    assert kinds(np.float32(1), np.int8(1), np.bool_(True), np.float16(1)) == 3_01_02_03
    assert kinds(Number(3)) == 1
    assert kernels["same"](Number(3)) == 3
    assert kernels["same"](np.float64(1.5)) == 1.5
    x = array.array("d", [1, 2, 3])
    out = np.zeros(3)
    kernels["copy"](x, out)
    assert out.tolist() == [1, 2, 3]


def test_arrays_of_subclasses(kernels: Kernels, tmp_path: Path) -> None:
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=3)
    kernels["bump"](x)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [(1, 2), [1], {}, object, len, 1j, int], ids=repr)
def test_objects_that_c_does_not_know(value: Any, kernels: Kernels) -> None:
    message = r"count: argument 1: expected a tensor, number, str, .* or None, got "
    with pytest.raises(TypeError, match=message):
        kernels["count"](0, value)


def test_a_kernel_cannot_write_to_a_copy(kernels: Kernels) -> None:
    class Copies:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.zeros(3)

    with pytest.raises(TypeError, match="argument 1: the kernel writes it; expected an array"):
        kernels["copy"](np.zeros(3), Copies())


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 300])
def test_many_arguments(count: int, kernels: Kernels) -> None:
    assert kernels["count"](*([None] * count)) == count
    assert kernels["sum"](*range(count)) == sum(range(count))
    assert kernels["count"](*([np.zeros(3)[::2]] * count)) == count


def test_keywords(kernels: Kernels) -> None:
    with pytest.raises(TypeError, match="noop: a native function takes no keyword arguments"):
        kernels["noop"](x=1)
    assert kernels["noop"](**dict[str, int]()) is None


# Results


def test_results_that_are_objects(kernels: Kernels) -> None:
    assert kernels["short_text"]() == "abc"
    assert kernels["object"](65) == "some text"
    assert kernels["object"](66) == b"some text"
    shape = kernels["object"](69)
    assert (type(shape), shape) == (Shape, (2, 3))
    assert kernels["alive"]() == 0


def test_a_tensor_object_becomes_an_array_over_its_memory(kernels: Kernels) -> None:
    x = kernels["object"](70)
    assert (x.dtype, x.strides) == (np.float32, (4, 8))
    assert x.tolist() == [[1, 3, 5], [2, 4, 6]]
    row = x[1]
    again = kernels["object"](70)
    x[0, 0] = 9
    assert again[0, 0] == 9
    x[0, 0] = 1
    del x, again
    assert kernels["alive"]() == 1
    assert row.tolist() == [2, 4, 6]
    del row
    assert kernels["alive"]() == 0


def test_a_tensor_object_on_another_device(kernels: Kernels) -> None:
    with pytest.raises(TypeError, match=r"object: expected a tensor in host memory, got .*cuda"):
        kernels["object"](70, 0)
    assert kernels["alive"]() == 0


@pytest.mark.parametrize("kind", [67, 68, 72, 128])
def test_results_that_python_does_not_know(kind: int, kernels: Kernels) -> None:
    message = f"object: the kernel returned a value of kind {kind}; expected None, an int, "
    with pytest.raises(TypeError, match=message):
        kernels["object"](kind)
    assert kernels["alive"]() == 0


def test_a_tensor_is_not_a_result(kernels: Kernels) -> None:
    with pytest.raises(TypeError, match="kind 7"):
        kernels["same"](np.zeros(1))


# Errors


@pytest.mark.parametrize(
    "cls", [TypeError, ValueError, IndexError, KeyError, MemoryError, RuntimeError, OSError,
            NotImplementedError, ZeroDivisionError, OverflowError, InternalError],
)  # fmt: skip
def test_errors_have_the_class_that_the_kernel_names(
    cls: type[Exception], kernels: Kernels
) -> None:
    with pytest.raises(cls, match="x has 3 rows, naïve") as caught:
        kernels["fail"](cls.__name__, "x has 3 rows, naïve")
    assert type(caught.value) is cls
    assert caught.value.__notes__ == ["in native function fail"]


@pytest.mark.parametrize("kind", ["", "NoSuchError", "SystemExit", "KeyboardInterrupt", "print"])
def test_errors_of_an_unknown_class(kind: str, kernels: Kernels) -> None:
    with pytest.raises(RelaxVMError) as caught:
        kernels["fail"](kind, "text")
    assert str(caught.value) == (f"{kind}: text" if kind else "text")


def test_a_long_message_is_cut(kernels: Kernels) -> None:
    with pytest.raises(ValueError) as caught:
        kernels["fail"]("ValueError", "x" * 5000)
    assert str(caught.value) == "x" * 1023


def test_the_last_error_is_raised(kernels: Kernels) -> None:
    with pytest.raises(ValueError, match="second"):
        kernels["fail_twice"]()


@pytest.mark.parametrize("code", [-1, 1, -2, 77])
def test_a_kernel_that_fails_without_an_error(code: int, kernels: Kernels) -> None:
    assert kernels["think_better"]() is None  # its message must not be used for this one
    with pytest.raises(RelaxVMError, match=f"code: the kernel failed with code {code} and did"):
        kernels["code"](code)
    assert kernels["code"](0) is None


def test_messages_of_the_header(kernels: Kernels) -> None:
    out = np.zeros(9, np.int64)
    with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
        kernels["describe"](out)
    with pytest.raises(TypeError, match="argument 1: expected a tensor"):
        kernels["describe"](out, 1)
    with pytest.raises(
        TypeError,
        match=r"argument 1: expected data type \(code 0, bits 64\), got "
        r"\(2, 32\)",
    ):
        kernels["describe"](out, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="argument 1: expected rank 1, got 2"):
        kernels["describe"](out, np.zeros((3, 3), np.int64))
    with pytest.raises(TypeError, match="argument 0: expected an int"):
        kernels["sum"](1.5)
    with pytest.raises(TypeError, match="argument 0: expected a float"):
        kernels["half"]("x")


Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


@pytest.mark.parametrize("release_gil", [False, True])
def test_calls_within_calls(release_gil: bool, library: Path) -> None:
    call = load(library, "call", release_gil=release_gil)
    depths: list[object] = []

    @Callback
    def back(depth: int) -> int:
        depths.append(depth)
        if depth == 0:
            return 1
        try:
            call(address, depth - 1)
        except RuntimeError as error:
            depths.append(str(error))
            return 1
        return 0

    address = ctypes.cast(back, ctypes.c_void_p).value
    assert address is not None
    with pytest.raises(RuntimeError, match="outer 3"):
        call(address, 3)
    assert depths == [3, 2, 1, 0, "outer 0", "outer 1", "outer 2"]


def test_no_reference_is_lost(kernels: Kernels) -> None:
    x = np.arange(10.0)
    view, out, text = x[::2], np.zeros(5), "text" * 3
    values = [x, view, out, text, None]
    gc.collect()  # otherwise garbage of earlier tests is collected in between
    before = [sys.getrefcount(value) for value in values]
    for _ in range(100):
        kernels["copy"](view, out)
        kernels["count"](x, view, text, Shape((1, 2)), None)
        with pytest.raises(ValueError):
            kernels["fail"]("ValueError", text, x, view)
        with pytest.raises(TypeError):
            kernels["count"](x, text, object())
    after = [sys.getrefcount(value) for value in values]
    assert after[:-1] == before[:-1]
    assert abs(after[-1] - before[-1]) < 50


# Programs


def program(name: str, *, count: int = 2) -> relaxvm.VMExecutable:
    b = ExecBuilder()
    with b.function("main", num_inputs=count):
        b.emit_call(name, [b.r(i) for i in range(count)], dst=b.r(count))
        b.emit_ret(b.r(count))
    return b.get()


def test_a_program_calls_a_kernel(kernels: Kernels) -> None:
    vm = VirtualMachine(program("copy"), functions=kernels)
    out = np.zeros((3, 4))
    vm.main(np.arange(12.0).reshape(4, 3).T, out)
    np.testing.assert_array_equal(out, np.arange(12.0).reshape(4, 3).T)


def test_an_error_in_a_program_names_the_place(kernels: Kernels) -> None:
    vm = VirtualMachine(program("fail"), functions=kernels)
    with pytest.raises(ValueError, match="no") as caught:
        vm.main("ValueError", "no")
    assert caught.value.__notes__[0] == "in native function fail"
    assert caught.value.__notes__[1].startswith("in main, pc 0: call fail in: %0, %1 dst: %2")


class Holder:
    """A DLPack producer that keeps a reference to its capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: object) -> object:
        return self.capsule


def test_a_capsule_that_ends_while_an_exception_is_raised() -> None:
    def taken() -> object:
        holder: Any = Holder(to_dlpack(np.zeros(3)))
        np.from_dlpack(holder)
        return holder.capsule

    def untaken() -> object:
        return to_dlpack(np.zeros(3))

    for capsule in taken, untaken:
        with pytest.raises(ZeroDivisionError):
            print(capsule(), 1 // len(""))


# Threads


class Meddler:
    """An array that changes another one when its DLPack capsule is requested."""

    def __init__(self, array: np.ndarray, meddle: Callable[[], None]) -> None:
        self.array, self.meddle = array, meddle

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        self.meddle()
        return self.array.__dlpack__(**options)


writes_by_dlpack = pytest.mark.skipif(
    not np.from_dlpack(np.zeros(1)).flags.writeable,
    reason="numpy 1 makes read-only arrays of what comes by DLPack",
)


@writes_by_dlpack
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("shape", [(24,), (1,) * 9 + (24,)])
def test_an_array_that_changes_while_others_are_converted(
    library: Path, strided: bool, shape: tuple[int, ...]
) -> None:
    x, out = np.zeros((2, 3, 4)), np.full(6 + 2 * 32, -7, np.int64)

    def reshape() -> None:
        x.shape = shape
        taken.extend(np.zeros((9, 9, 0)) for _ in range(50))  # use memory of the old shape

    taken: list[np.ndarray] = []
    load(library, "describe", strided=strided)(x, Meddler(out, reshape))
    assert out[3] == len(shape)
    assert tuple(out[6 : 6 + len(shape)]) == shape


@writes_by_dlpack
def test_an_array_that_becomes_invalid(library: Path) -> None:
    x, out = np.zeros(8, "complex64"), np.full(6 + 2 * 32, -7, np.int64)

    def change() -> None:
        x.dtype = np.dtype(">f4")

    with pytest.raises(ValueError, match="describe: argument 0: the array was changed while other"):
        load(library, "describe")(x, Meddler(out, change))


def test_threads_that_share_a_function(library: Path) -> None:
    for release_gil in (False, True, "auto"):
        bump = load(library, "bump", release_gil=release_gil)
        fail = load(library, "fail", release_gil=release_gil)
        wrong: list[object] = []

        def work(
            number: int,
            bump: NativeFunction = bump,
            fail: NativeFunction = fail,
            wrong: list[object] = wrong,
        ) -> None:
            x = np.full(1000, float(number))[::2]
            for _ in range(50):
                bump(x)
                try:
                    fail("ValueError", f"of {number}")
                except ValueError as error:
                    if str(error) != f"of {number}":
                        wrong.append(error)
            if x.tolist() != [number + 50.0] * 500:
                wrong.append(x)

        run_in_threads(work, 8)
        assert not wrong


def test_other_threads_run_while_the_lock_is_released(library: Path) -> None:
    flag = np.zeros(1, np.int64)
    wait = load(library, "wait", release_gil=True)
    setter = threading.Timer(0.05, lambda: flag.__setitem__(0, 1))
    setter.start()
    assert wait(flag, 60_000, 1) > 0
    setter.join()


def is_held(wait: NativeFunction, flag: Any, milliseconds: int = 3_000) -> bool:
    """Whether no other thread runs while the kernel waits.

    The other thread asks for the lock before the kernel is called.  It gets the lock only from a
    kernel that releases it: this thread does nothing else in between that would, and is not asked
    to within the switch interval, however busy the machine is.  Then it lets the kernel wait, so
    that the call is none of the quick ones.
    """
    go, flag[0] = threading.Event(), 0

    def work() -> None:
        go.wait()
        time.sleep(0.005)
        flag[0] = 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    setter = threading.Thread(target=work)
    try:
        setter.start()
        go.set()
        wait(flag, milliseconds, 1)
    except AssertionError:
        return True
    finally:
        sys.setswitchinterval(before)
        go.set()
        setter.join()
        assert flag[0] == 1
    return False


def test_the_lock_is_released_by_size(library: Path) -> None:
    wait = load(library, "wait")
    assert wait.release_gil == "auto"
    flag = np.zeros(BIG_CALL // 8, np.int64)
    assert not is_held(wait, flag, 60_000)
    assert is_held(wait, flag[1:], 50)


def hold(wait: NativeFunction, flag: Any) -> None:
    """Let calls be quick until they hold the lock.  On a busy machine one may seem slow."""
    for _ in range(100):
        flag[0] = 1
        for _ in range(2 * QUICK_CALLS):
            wait(flag, 1, 1)
        if is_held(wait, flag):
            return
    pytest.fail("the lock is always released")


def test_the_lock_is_held_where_big_calls_are_quick(library: Path) -> None:
    wait = load(library, "wait")
    flag, more = np.zeros(BIG_CALL // 8, np.int64), np.zeros(BIG_CALL // 8 + 1, np.int64)
    assert not is_held(wait, flag)
    hold(wait, flag)
    assert not is_held(wait, more), "more bytes than any quick call had"
    assert not is_held(wait, flag), "the last call that was measured was slow"
    hold(wait, flag)
    flag[0] = 0
    for _ in range(50):  # one of them is measured
        with pytest.raises(AssertionError):
            wait(flag, 1, 1)
    assert not is_held(wait, flag)
    always = load(library, "wait", release_gil=True)
    flag[0] = 1
    for _ in range(5 * QUICK_CALLS):
        always(flag, 1, 1)
    assert not is_held(always, flag)


@pytest.mark.parametrize("release_gil", [True, "auto"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_tensors_of_more_bytes_than_an_int_counts(
    count: int, release_gil: bool, library: Path
) -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 59,), (8,))
    wait = load(library, "wait", release_gil=release_gil)
    vm = VirtualMachine(program("wait", count=3 + count), functions={"wait": wait})
    for call in (wait, vm.main):
        flag = np.zeros(1, np.int64)
        setter = threading.Timer(0.02, lambda flag=flag: flag.__setitem__(0, 1))
        setter.start()
        call(flag, 5_000, 1, *[huge] * count)  # fails if no other thread runs
        setter.join()


def test_shapes_without_the_lock(library: Path) -> None:
    describe = load(library, "describe", release_gil=True)
    assert described(describe, np.zeros((2, 3)))["shape"] == (2, 3)
    assert described(describe, np.zeros((1,) * 12))["shape"] == (1,) * 12


CTRL_C = """
import os, signal, sys, threading
import numpy as np
from relaxvm.native.functions import load_function

flag = np.zeros(1, np.int64)
release = sys.argv[2] == "release"
wait = load_function(sys.argv[1], "wait", release_gil=release)
signal.signal(signal.SIGALRM, signal.default_int_handler)
delay, notes = 0.1, ()
while not notes:  # on a busy machine the signal may come before the function runs
    try:
        if release:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            signal.setitimer(signal.ITIMER_REAL, delay)
        wait(flag, 600_000, int(sys.argv[3]))
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", ())
    delay *= 4
print("interrupted", *notes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("policy", ["release", "hold"])
@pytest.mark.parametrize("fails", [0, 1])
def test_ctrl_c(policy: str, fails: int, library: Path) -> None:
    done = children.run(
        [sys.executable, "-c", CTRL_C, str(library), policy, str(fails)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "interrupted in native function wait\n", done.stderr


def test_asking_for_ctrl_c_outside_of_a_call_is_harmless(library: Path) -> None:
    loaded = ctypes.PyDLL(str(library))
    loaded.relaxvm_attach(ctypes.c_void_p(host_address()))
    assert signal.getsignal(signal.SIGINT) is not None
    flag = np.ones(1, np.int64)
    assert load(library, "wait")(flag, 1, 1) == 0


# Loading


def test_functions_by_address(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    address = ctypes.cast(loaded.plain, ctypes.c_void_p).value
    assert address is not None
    plain = NativeFunction(address, "plain", loaded)
    assert plain(1, 2, 3) == 3
    assert plain.address == address
    assert NativeFunction(address, "plain", loaded, self_address=40)(1, 2) == 42
    assert load(library, "plain")(1) == 1


# Function pointers of other packages

SAFE_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)


def test_functions_of_ctypes(library: Path) -> None:
    count = native_function(ctypes.CDLL(str(library)).__tvm_ffi_count)
    assert (count.name, count(1, 2, 3)) == ("__tvm_ffi_count", 3)

    @SAFE_CALL
    def seven(self: Any, args: Any, num_args: int, ret: Any) -> int:
        ctypes.c_int32.from_address(ret).value = 1
        ctypes.c_int64.from_address(ret + 8).value = 7 + num_args
        return 0

    kept = native_function(seven, "seven", writes=())
    del seven
    gc.collect()
    assert (kept.name, kept.writes, kept("x", None)) == ("seven", (), 9)
    held = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda self: 0)
    assert native_function(held).release_gil is False
    with pytest.raises(ValueError, match="null pointer"):
        native_function(SAFE_CALL())


def test_functions_of_cffi(library: Path) -> None:
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef("int __tvm_ffi_sum(void *, const void *, int32_t, void *);")
    opened = ffi.dlopen(str(library))
    for pointer in (opened.__tvm_ffi_sum, ffi.addressof(opened, "__tvm_ffi_sum"),
                    ffi.cast("void *", opened.__tvm_ffi_sum)):  # fmt: skip
        assert native_function(pointer, "sum")(1, 2, 3) == 6
    with pytest.raises(TypeError, match=r"expected a pointer to a function, got int \*"):
        native_function(ffi.new("int *"))
    with pytest.raises(ValueError, match="null pointer"):
        native_function(ffi.NULL)


@pytest.mark.parametrize("package", ["ctypes", "cffi"])
def test_errors_of_functions_of_other_packages(package: str) -> None:
    pytest.importorskip(package)
    # A library that is not loaded yet.
    source = (
        "#include <relaxvm/kernel.h>\n"
        f'RVM_KERNEL(fail) {{ return rvm_error("ValueError", "{package} knows why"); }}\n'
    )
    path = str(toolchain.compile_c(source, name=f"fails_of_{package}"))
    if package == "ctypes":
        function = ctypes.CDLL(path)["__tvm_ffi_fail"]
    else:
        import cffi

        ffi = cffi.FFI()
        ffi.cdef("int __tvm_ffi_fail(void *, const void *, int32_t, void *);")
        opened = ffi.dlopen(path)
        function = opened.__tvm_ffi_fail
    with pytest.raises(ValueError, match=f"{package} knows why"):
        native_function(function, "fail")()


def test_functions_of_numba() -> None:
    numba = pytest.importorskip("numba")
    t = numba.types

    @numba.cfunc(t.int32(t.voidptr, t.voidptr, t.int32, t.CPointer(t.int64)))
    def many(self, args, num_args, ret):  # type: ignore[no-untyped-def]
        ret[0] = 1
        ret[1] = num_args * 10
        return 0

    assert native_function(many)(1, 2, 3) == 30
    with pytest.raises(TypeError, match=r"expected a function of .* got CPUDispatcher"):
        native_function(numba.njit(lambda x: x))


@pytest.mark.parametrize("what", [None, 3, len, "sum", lambda: 0])
def test_objects_that_are_not_function_pointers(what: Any) -> None:
    message = r"expected a function of ctypes, cffi, numba\.cfunc or tvm_ffi, got "
    with pytest.raises(TypeError, match=message):
        native_function(what)


def test_a_function_keeps_its_library(kernels: Kernels) -> None:
    class Owner:
        pass

    owner, gone = Owner(), []
    weakref.finalize(owner, gone.append, 1)
    function = NativeFunction(kernels["count"].address, "count", owner)
    del owner
    assert function(1, 2) == 2
    assert not gone
    del function
    assert gone


def test_attributes_of_a_native_function(library: Path) -> None:
    function = load(library, "noop", name="my.noop", release_gil=True, strided=True, alignment=32)
    assert function.name == function.__name__ == "my.noop"
    assert repr(function) == "<NativeFunction my.noop>"
    assert (function.release_gil, function.strided, function.alignment) == (True, True, 32)
    assert load(library, "noop", release_gil=False).release_gil is False
    with pytest.raises(TypeError, match=r"cannot pickle native function 'my.noop'"):
        pickle.dumps(function)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"address": 0}, ValueError, "expected an address, got 0"),
        ({"address": -1}, ValueError, "expected an address, got -1"),
        ({"address": "x"}, TypeError, "integer"),
        ({"name": 3}, TypeError, "expected a name, got int 3"),
        ({"release_gil": "sometimes"}, ValueError, "expected release_gil True, False or 'auto'"),
        ({"release_gil": 1}, ValueError, "expected release_gil True, False or 'auto', got 1"),
        ({"alignment": 0}, ValueError, "power of two up to 4096, got 0"),
        ({"alignment": 48}, ValueError, "power of two up to 4096, got 48"),
        ({"alignment": 8192}, ValueError, "power of two up to 4096, got 8192"),
        ({"writes": [64]}, ValueError, "positions in writes from -64 to 63, got 64"),
        ({"writes": [-65]}, ValueError, "positions in writes from -64 to 63, got -65"),
    ],
)
def test_arguments_of_a_native_function(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        NativeFunction(**{"address": 4096, "name": "f", **arguments})


def test_kernels_that_are_asked_for_by_name(library: Path) -> None:
    assert list(load_kernels(library, ["sum", "noop"])) == ["sum", "noop"]
    assert load_kernels(library, []) == {}
    with pytest.raises(LinkError, match=r"has no kernel 'nope', 'none'") as caught:
        load_kernels(library, ["sum", "nope", "none"])
    assert caught.value.missing == ("nope", "none")
    with pytest.raises(LinkError, match="has no kernel 'nope'"):
        load_function(library, "nope")
    with pytest.raises(TypeError, match=r"expected names of kernels, got a str; pass \['sum'\]"):
        load_kernels(library, "sum")
    no_path: Any = 3
    with pytest.raises(TypeError, match=r"expected str, bytes or os\.PathLike object, not int"):
        load_kernels(no_path)


def test_libraries_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"cannot load .*nothing\.so"):
        load_kernels(tmp_path / "nothing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(LinkError, match=r"cannot load .*text\.so"):
        load_function(tmp_path / "text.so", "f")


def test_a_library_that_does_not_list_its_kernels() -> None:
    text = "#include <relaxvm/kernel.h>\nRVM_KERNEL(one) { return rvm_return_int(ret, 1); }\n"
    library = toolchain.compile_c(text, name="one", flags=["-fvisibility=hidden"])
    with pytest.raises(LinkError, match=r"does not list its kernels; pass `names`, or add RVM_KER"):
        load_kernels(library)
    assert load_kernels(library, ["one"])["one"]() == 1


def test_libraries_without_the_header() -> None:
    text = "int f(void *self, const void *args, int n, void *ret) { return n == 1 ? 0 : -1; }\n"
    f = load_function(toolchain.compile_c(text, name="bare"), "f")
    assert f(1) is None
    with pytest.raises(RelaxVMError, match="f: the kernel failed with code -1 and did not say why"):
        f(1, 2)


def test_the_public_names() -> None:
    assert relaxvm.load_kernels is load_kernels
    assert relaxvm.NativeFunction is NativeFunction


# The example


def test_the_example() -> None:
    example = Path(__file__).parent.parent / "examples" / "native_kernel"
    library = toolchain.compile_c(
        (example / "kernels.c").read_text("utf-8"), name="kernels", flags=["-Wall", "-Werror"]
    )
    done = children.run(
        [sys.executable, "-W", "error", str(example / "run.py"), str(library)],
        capture_output=True, text=True, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "saxpy, norm, collatz\n"
        "steps to 1 from 1 ... 10: [0, 1, 7, 2, 5, 8, 16, 3, 19, 6]\n"
        "norm: 5.0\n"
        "3 * 1 + 2 = [5. 5. 5. 5.]\n"
        "ValueError: saxpy: expected vectors of 5 elements, got 4 and 4\n"
        "  in native function saxpy\n"
        "  in main, pc 0: call saxpy in: i3, %0, %1, %2 dst: %void\n"
        "  with int 3, float32[4], float32[4], float32[5]\n"
    )
