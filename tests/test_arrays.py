"""Arrays passed to and from a VM: every kind that numpy, DLPack and the buffer protocol have."""

from __future__ import annotations

import array
import ctypes
import mmap
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, Shape, VirtualMachine
from relaxvm.values import to_value


class Wrapper:
    """A tensor of another library, backed by a numpy array."""

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)


class DLPackOnly(Wrapper):
    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.data.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()


class OldDLPack(Wrapper):
    """A producer from before DLPack had versions and a read-only flag."""

    def __dlpack__(self, stream: None = None) -> Any:
        return self.data.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()


class Elsewhere(Wrapper):
    """A tensor on a GPU."""

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("cannot export a tensor of another device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


class ArrayOnly(Wrapper):
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.data


class InterfaceOnly(Wrapper):
    @property
    def __array_interface__(self) -> Any:
        return self.data.__array_interface__


class StructOnly(Wrapper):
    @property
    def __array_struct__(self) -> Any:
        return self.data.__array_struct__


class Refusing(ArrayOnly):
    """Supports DLPack but refuses this tensor; also has the array protocol."""

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("not this one")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    raw = np.zeros(4 * 24 + 1, np.uint8)[1:].view(np.float32).reshape(4, 6)
    raw[:] = base
    frozen = base.copy()
    frozen.flags.writeable = False
    return {
        "contiguous": base,
        "fortran": np.asfortranarray(base),
        "transposed": base.T,
        "strided": base[::2, 1::2],
        "reversed": base[::-1, ::-1],
        "broadcast": np.broadcast_to(base[:1], (4, 6)),
        "read-only": frozen,
        "unaligned": raw,
        "byte-swapped": base.astype(base.dtype.newbyteorder()),
        "0-d": np.array(3.5, np.float32),
        "empty": np.zeros((0, 6), np.float32),
        "empty middle": np.zeros((4, 0, 2), np.float32),
    }


ARRAYS = arrays()

# Before 2.1, numpy does not export read-only memory by DLPack, and imports all memory read-only.
NUMPY = np.lib.NumpyVersion(np.__version__)
FAITHFUL_DLPACK: tuple[type[Wrapper], ...] = (DLPackOnly,) if NUMPY >= "2.1.0" else ()
NAMES = list(ARRAYS)


def double(x: Any) -> Any:
    return x * 2


@pytest.fixture(scope="module", params=[True, False], ids=["optimized", "plain"])
def vm(request: pytest.FixtureRequest) -> VirtualMachine:
    b = ExecBuilder()
    with b.function("ident", num_inputs=1, param_names=["x"]):
        b.emit_ret(b.r(0))
    with b.function("double", num_inputs=1, param_names=["x"]):
        b.emit_call("t.double", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("checked", num_inputs=2, param_names=["x", "ndim"]):
        float32 = b.convert_constant(np.dtype("float32"))
        err = b.convert_constant("x ")
        b.emit_call("vm.builtin.check_tensor_info", [b.r(0), b.r(1), float32, err])
        b.emit_call("vm.builtin.shape_of", [b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))
    with b.function("fill", num_inputs=1, param_names=["x"]):
        b.emit_call("t.fill", [b.r(0)])
        b.emit_ret(b.r(0))
    functions = {"t.double": double, "t.fill": lambda x: x.fill(9)}
    return VirtualMachine(b.get(), functions=functions, optimize=bool(request.param))


@pytest.mark.parametrize("name", NAMES)
def test_arrays_keep_their_identity(vm: VirtualMachine, name: str) -> None:
    x = ARRAYS[name]
    assert vm.ident(x) is x
    assert vm.ident((x, [x]))[1][0] is x
    np.testing.assert_array_equal(vm.double(x), x * 2)


@pytest.mark.parametrize("name", NAMES)
def test_checks_accept_every_layout(vm: VirtualMachine, name: str) -> None:
    x = ARRAYS[name]
    same, shape = vm.checked(x, x.ndim)
    assert same is x
    assert shape == x.shape
    assert type(shape) is Shape


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (wrap, name)
        for wrap in (DLPackOnly, ArrayOnly, InterfaceOnly, StructOnly, Refusing)
        for name in NAMES
        if wrap is not DLPackOnly or ARRAYS[name].dtype.isnative  # DLPack has no byte order
    ],
)
def test_protocols_share_memory(vm: VirtualMachine, wrap: type[Wrapper], name: str) -> None:
    x = ARRAYS[name]
    if wrap is DLPackOnly and not FAITHFUL_DLPACK and not x.flags.writeable:
        pytest.skip("this numpy does not export read-only memory by DLPack")
    got = vm.ident(wrap(x))
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, x)
    assert got.dtype == x.dtype
    assert got.size == 0 or np.shares_memory(got, x)


def test_written_through(vm: VirtualMachine) -> None:
    for wrap in (*FAITHFUL_DLPACK, ArrayOnly, InterfaceOnly, StructOnly, Refusing):
        x = np.zeros(4)
        vm.fill(wrap(x))
        np.testing.assert_array_equal(x, np.full(4, 9.0))


def test_read_only_stays_read_only(vm: VirtualMachine) -> None:
    x = np.zeros(4)
    x.flags.writeable = False
    wrapped = [wrap(x) for wrap in (*FAITHFUL_DLPACK, ArrayOnly, InterfaceOnly)]
    for given in (x, *wrapped, memoryview(x)):
        with pytest.raises(ValueError, match="read-only"):
            vm.fill(given)
    assert not x.any()


def test_old_dlpack(vm: VirtualMachine) -> None:
    x = np.arange(4.0)
    got = vm.ident(OldDLPack(x))
    np.testing.assert_array_equal(got, x)
    assert np.shares_memory(got, x)


def test_a_refused_exchange_names_the_type(vm: VirtualMachine) -> None:
    with pytest.raises((BufferError, RuntimeError, ValueError)) as caught:
        vm.ident(Elsewhere(np.zeros(3)))
    assert caught.value.__notes__ == ["while taking an argument of type Elsewhere by DLPack"]
    with pytest.raises(BufferError) as swapped:
        vm.ident(DLPackOnly(ARRAYS["byte-swapped"]))
    assert "DLPackOnly" in swapped.value.__notes__[0]
    np.testing.assert_array_equal(vm.double(ARRAYS["0-d"]), 7)


def test_memory_lives_as_long_as_the_array(vm: VirtualMachine) -> None:
    got = vm.ident(DLPackOnly(np.arange(1000.0)))
    np.testing.assert_array_equal(got, np.arange(1000.0))
    got = vm.ident(bytearray(b"abc" * 1000))
    assert bytes(got[:3]) == b"abc"


class Sub(np.ndarray):  # type: ignore[type-arg]
    """A subclass with its own arithmetic."""

    def __mul__(self, other: object) -> Any:
        return "not a product"


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_subclasses_become_plain_arrays(vm: VirtualMachine, tmp_path: Path) -> None:
    base = np.arange(6.0).reshape(2, 3)
    stored = np.memmap(tmp_path / "a", np.float64, "w+", shape=(2, 3))
    stored[:] = base
    for x in (base.view(Sub), np.matrix(base), stored, np.ma.masked_array(base)):
        got = vm.ident(x)
        assert type(got) is np.ndarray
        assert np.shares_memory(got, x)
        np.testing.assert_array_equal(vm.double(x), base * 2)
    vm.fill(stored)
    stored.flush()
    assert (np.fromfile(tmp_path / "a") == 9).all()


def test_a_mask_is_not_dropped(vm: VirtualMachine) -> None:
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    with pytest.raises(TypeError, match=r"masked array float64\[2\].*x\.filled"):
        vm.ident(masked)
    np.testing.assert_array_equal(vm.ident(masked.filled(0)), [1, 0])


def test_buffers(vm: VirtualMachine) -> None:
    ints = array.array("i", [1, 2, 3])
    doubles = (ctypes.c_double * 2)(1.5, 2.5)
    with mmap.mmap(-1, 8) as mapped:
        mapped[:3] = b"abc"
        # Drop the array before closing the map: a map with an exported buffer cannot be closed.
        assert bytes(vm.ident(mapped)[:3]) == b"abc"
    for given, want in [
        (ints, np.array([1, 2, 3], np.int32)),
        (doubles, np.array([1.5, 2.5])),
        (bytearray(b"abc"), np.frombuffer(b"abc", np.uint8)),
        (memoryview(b"abc"), np.frombuffer(b"abc", np.uint8)),
        (memoryview(bytearray(16)).cast("d"), np.zeros(2)),
        (memoryview(np.arange(6.0).reshape(2, 3))[::-1], np.arange(6.0).reshape(2, 3)[::-1]),
    ]:
        got = vm.ident(given)
        assert type(got) is np.ndarray
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    vm.fill(ints)
    assert ints.tolist() == [9, 9, 9]


def test_bytes_are_a_value(vm: VirtualMachine) -> None:
    assert vm.ident(b"abc") == b"abc"


@pytest.mark.parametrize(
    ("scalar", "want"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(1.5), 1.5),
        (np.int64(7), 7),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
    ],
)
def test_numpy_scalars_become_python_scalars(vm: VirtualMachine, scalar: Any, want: Any) -> None:
    got = vm.ident(scalar)
    assert got == want
    assert type(got) is type(want)


@pytest.mark.parametrize(
    "scalar", [np.complex64(1j), np.longdouble(1) / 3, np.datetime64("2020-01-01"),
               np.timedelta64(3, "ns")]
)  # fmt: skip
def test_other_numpy_scalars_become_arrays(vm: VirtualMachine, scalar: Any) -> None:
    got = vm.ident(scalar)
    assert (type(got), got.shape, got.dtype) == (np.ndarray, (), scalar.dtype)
    assert got == scalar


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64", "longdouble", "complex64", "complex128", "U3", "S3", "M8[s]", "O",
     "i4,f8"],
)  # fmt: skip
def test_every_dtype_passes(vm: VirtualMachine, dtype: str) -> None:
    x = np.zeros(3, dtype)
    assert vm.ident(x) is x


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_ml_dtypes_pass(vm: VirtualMachine, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.ones(3, getattr(ml_dtypes, dtype))
    assert vm.ident(x) is x
    assert (vm.double(x) == 2).all()
    assert vm.ident(x[0]) == 1.0


def test_tuples_are_converted_inside() -> None:
    inner = (np.zeros(2), Shape((1, 2)))
    assert to_value(inner) is inner, "a tuple with nothing to convert must be the same object"
    got = to_value([1, (ArrayOnly([1.0]), [np.float32(2)])])
    assert got[0] == 1
    assert type(got[1][0]) is np.ndarray
    assert got[1][1] == (2.0,)
    assert type(got[1]) is tuple


def test_other_objects_are_opaque(vm: VirtualMachine) -> None:
    Point = namedtuple("Point", "x y")
    for value in (object(), {"a": [1]}, {1, 2}, Point(1, [2]), DLPackOnly, np.ndarray, len, 1j):
        assert vm.ident(value) is value
