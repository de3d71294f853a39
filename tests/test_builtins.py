"""The builtins as Python functions: results, identity, errors, registration, documentation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import ExecBuilder, Limits, Shape, VirtualMachine, get_func, list_funcs, verify
from relaxvm.builtins import OWN_PREFIX, PREFIX, RUN_PREFIX, RUNTIME_PREFIX, is_reference
from relaxvm.errors import InternalError, LimitError, RelaxVMError
from relaxvm.registry import GLOBAL, Registry
from relaxvm.values import kind_of

from .generators import load

CTX = "ErrorContext(fn=main, loc=param[0]) "


def call(name: str, *args: Any) -> Any:
    return get_func(PREFIX + name)(*args)


def heap(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def odd_arrays() -> dict[str, np.ndarray]:
    """The same int32 values, [2, 3], in every layout that numpy has."""
    plain = np.arange(6, dtype=np.int32).reshape(2, 3)
    wide = np.zeros((4, 6), np.int32)
    wide[::2, ::2] = plain
    read_only = plain.copy()
    read_only.flags.writeable = False
    unaligned = np.zeros(25, np.uint8)[1:].view(np.int32).reshape(2, 3)
    unaligned[...] = plain
    return {
        "plain": plain,
        "fortran": np.asfortranarray(plain),
        "strided": wide[::2, ::2],
        "reversed": plain[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": read_only,
        "big-endian": plain.astype(">i4"),
        "unaligned": unaligned,
    }


ODD = pytest.mark.parametrize("x", odd_arrays().values(), ids=odd_arrays())


@pytest.fixture
def vm() -> VirtualMachine:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_ret(ib.r(0))
    return VirtualMachine(ib.get())


# The shape heap


def test_alloc_shape_heap(vm: VirtualMachine) -> None:
    for made in (
        call("alloc_shape_heap", vm, 4), call("alloc_shape_heap", 4), call("alloc_heap", 4)
    ):  # fmt: skip
        assert made.dtype == np.int64
        assert made.tolist() == [0, 0, 0, 0]
        assert made.flags.writeable
    assert len(call("alloc_shape_heap", vm, 0)) == 0
    assert len(call("alloc_shape_heap", vm, True)) == 1
    assert call("alloc_shape_heap", 2) is not call("alloc_shape_heap", 2)


@pytest.mark.parametrize("size", [-1, 1 << 31, 1 << 70])
def test_alloc_shape_heap_refuses_sizes(vm: VirtualMachine, size: int) -> None:
    for args in ((vm, size), (size,)):
        with pytest.raises(InternalError, match=rf"expected 0 to 2\*\*31 - 1 slots, got {size}"):
            call("alloc_shape_heap", *args)


def test_alloc_shape_heap_keeps_limits() -> None:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.alloc_shape_heap", [ib.vm_state(), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    for field, slots in (("alloc_bytes", 73), ("live_bytes", 73 + 8192)):
        machine = VirtualMachine(ib.get(), limits=Limits().but(**{field: 640}))
        assert len(machine["main"](slots)) == slots
        with pytest.raises(LimitError, match=f"limit .*{field}=640"):
            machine["main"](slots + 1)


@pytest.mark.parametrize("args", [(None, 1), (1.5,), ("a",), (5, 5)])
def test_alloc_shape_heap_refuses_kinds(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"alloc_shape_heap: .*expected"):
        call("alloc_shape_heap", *args)


def test_store_and_load_shape() -> None:
    slots = heap(0, 0, 0, 0)
    assert call("store_shape", Shape([32, 16]), slots, 3, 1) is None
    assert slots.tolist() == [0, 16, 0, 32]
    loaded = call("load_shape", slots, 1, 3, 0)
    assert type(loaded) is Shape
    assert loaded == (16, 32, 0)
    assert call("load_shape", slots) == ()
    assert all(type(dim) is int for dim in loaded)


def test_store_and_load_shape_errors() -> None:
    with pytest.raises(InternalError, match="a slot for each of 2 dimensions, got 1 slots"):
        call("store_shape", Shape([1, 2]), heap(0), 0)
    for slot in (1, -1):
        with pytest.raises(IndexError, match=f"store_shape: heap slot {slot}: expected 0 to 0"):
            call("store_shape", Shape([1]), heap(0), slot)
        with pytest.raises(IndexError, match=f"load_shape: heap slot {slot}: expected 0 to 0"):
            call("load_shape", heap(0), slot)
    with pytest.raises(TypeError, match=r"int64 shape heap, got int32\[1\]"):
        call("load_shape", np.zeros(1, np.int32), 0)
    with pytest.raises(TypeError, match="store_shape: shape: expected a Shape, got int 5"):
        call("store_shape", 5, heap(0), 0)


# Matching


def test_match_shape_codes() -> None:
    slots = heap(7, 0, 0)
    x = np.zeros((2, 3, 7, 3))
    for value in (x, Shape(x.shape), x.shape, list(x.shape)):
        slots[1:] = 0
        assert call("match_shape", value, slots, 4, 0, 2, 1, 1, 3, 0, 3, 1, CTX) is None
        assert slots.tolist() == [7, 3, 0]
    assert call("match_shape", x, None, 4, 2, 0, 2, 0, 2, 0, 0, 3, CTX) is None
    assert call("match_shape", np.float32([1]), None, True, False, True, CTX) is None
    assert call("match_shape", np.zeros(()), None, 0, CTX) is None
    assert call("match_shape", Shape(), None, 0) is None
    assert call("match_shape", Shape(), None, 0, None) is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(3), None, 1, 0, 2, CTX), "dimension 0 of float64[3]: expected 2, got 3"),
        ((Shape([4, 3]), heap(5), 2, 2, 0, 3, 0, CTX),
         "dimension 1 of Shape(4, 3): expected 5 (a dimension known before), got 3"),
        ((np.zeros((2, 3)), None, 1, 2, 0, CTX), "expected 1 dimensions, got 2 in float64[2, 3]"),
        ((Shape(), None, 1, 2, 0, CTX), "expected 1 dimensions, got 0 in Shape()"),
    ],
)  # fmt: skip
def test_match_shape_mismatch(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(message)) as info:
        call("match_shape", *args)
    assert type(info.value) is RuntimeError
    assert str(info.value).startswith(CTX + "match_shape: ")


@pytest.mark.parametrize("x", [5, None, "ab", 1.5, {}, np.float32(1)])
def test_match_shape_needs_a_tensor_or_shape(x: Any) -> None:
    with pytest.raises(TypeError, match="match_shape: expected a tensor or a Shape") as info:
        call("match_shape", x, None, 0, CTX)
    assert str(info.value).startswith(CTX)


@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (InternalError, (), "got 0 arguments"),
        (InternalError, (Shape(), None), "got 2 arguments"),
        (InternalError, (Shape([1]), None, 1, CTX), "for each of 1 dimensions"),
        (InternalError, (Shape([1]), None, 1, 2, 0, CTX, 1), "for each of 1 dimensions"),
        (InternalError, (Shape([1]), None, -1, CTX), "for each of -1 dimensions"),
        (InternalError, (Shape([1]), heap(0), 1, 4, 0, CTX), "shape code of 0 to 3, got 4"),
        (InternalError, (Shape([1]), heap(0), 1, -1, 0, CTX), "shape code of 0 to 3, got -1"),
        (TypeError, (Shape([1]), heap(0), 1, 1.0, 0, CTX), "code: expected an int, got float"),
        (TypeError, (Shape([1]), heap(0), 1.0, 1, 0, CTX), "expected an int, got float"),
        (TypeError, (Shape([1]), None, 1, 1, 0, CTX), "int64 shape heap, got None"),
        (TypeError, (Shape([1]), None, 1, 3, 0, CTX), "int64 shape heap, got None"),
        (TypeError, (Shape([1]), np.zeros(1), 1, 3, 0, CTX), "heap, got float64[1]"),
        (TypeError, (Shape([1]), np.zeros((1, 1), int), 1, 3, 0, CTX), "heap, got int64[1, 1]"),
        (TypeError, (Shape([1]), None, 1, 2, 0, 5), "error context: expected a string"),
        (TypeError, ((1, "a"), None, 2, 2, 0, 2, 0, CTX), "dimension 1: expected an int"),
        (IndexError, (Shape([1]), heap(0), 1, 1, 1, CTX), "heap slot 1: expected 0 to 0"),
        (IndexError, (Shape([1]), heap(0), 1, 3, -1, CTX), "heap slot -1: expected 0 to 0"),
    ],
)
def test_match_shape_errors(
    error: type[Exception], args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call("match_shape", *args)


def test_match_shape_stores_up_to_the_first_mismatch() -> None:
    slots = heap(0, 0)
    with pytest.raises(RuntimeError):
        call("match_shape", Shape([1, 2, 3]), slots, 3, 1, 0, 0, 9, 1, 1, CTX)
    assert slots.tolist() == [1, 0]


@given(st.lists(st.integers(0, 9), max_size=5), st.data())
def test_match_shape_then_make_shape(dims: list[int], data: st.DataObject) -> None:
    slots = data.draw(st.permutations(range(len(dims))))
    cells = heap(*[-1] * len(dims))
    store = [word for slot in slots for word in (1, slot)]
    compare = [word for slot in slots for word in (3, slot)]
    call("match_shape", Shape(dims), cells, len(dims), *store, "")
    call("match_shape", np.zeros(dims), cells, len(dims), *compare, "")
    assert call("make_shape", cells, len(dims), *store) == tuple(dims)
    assert [call("make_prim_value", cells, 1, slot) for slot in slots] == dims


def test_match_prim_value() -> None:
    slots = heap(0)
    for x in (5, np.int32(5)):
        assert call("match_prim_value", x, slots, 1, 0, CTX) is None
        assert call("match_prim_value", x, slots, 3, 0, CTX) is None
        assert call("match_prim_value", x, slots, 0, 5, CTX) is None
        assert call("match_prim_value", x, slots, 2, 0, None) is None
    assert slots.tolist() == [5]
    assert call("match_prim_value", True, slots, 0, 1, CTX) is None
    with pytest.raises(RuntimeError, match="match_prim_value: expected 4, got 5"):
        call("match_prim_value", 5, slots, 0, 4, CTX)
    with pytest.raises(RuntimeError, match=r"expected 5 \(heap slot 0\), got 4") as info:
        call("match_prim_value", 4, slots, 3, 0, CTX)
    assert str(info.value).startswith(CTX)


@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (TypeError, (5, None, 0, 5, CTX), "shape heap: expected a tensor, got None"),
        (TypeError, (5.0, heap(0), 0, 5, CTX), "expected an int, got float 5.0"),
        (TypeError, (None, heap(0), 0, 5, CTX), "expected an int, got None"),
        (TypeError, (np.array(5), heap(0), 0, 5, CTX), "expected an int, got int64[]"),
        (InternalError, (5, heap(0), 4, 5, CTX), "shape code of 0 to 3, got 4"),
        (IndexError, (5, heap(0), 1, 5, CTX), "heap slot 5: expected 0 to 0"),
        (ValueError, (1 << 63, heap(0), 1, 0, CTX), "a value of 64 bits for heap slot 0"),
    ],
)
def test_match_prim_value_errors(
    error: type[Exception], args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)) as info:
        call("match_prim_value", *args)
    assert str(info.value).startswith(CTX)


# Making


def test_make_shape() -> None:
    made = call("make_shape", heap(7, 8), 3, 0, 5, 1, 1, 0, -7)
    assert type(made) is Shape
    assert made == (5, 8, -7)
    assert all(type(dim) is int for dim in made)
    assert call("make_shape", None, 0) == ()
    assert call("make_shape", None, 1, 0, 4) == (4,)
    assert call("make_prim_value", heap(7, 8), 1, 0) == 7
    assert call("make_prim_value", heap(7), 0, 9) == 9
    assert type(call("make_prim_value", heap(7), 1, 0)) is int


@pytest.mark.parametrize(
    ("error", "name", "args", "message"),
    [
        (InternalError, "make_shape", (heap(0), 2, 1, 0), "each of 2 dimensions, got 2 arg"),
        (InternalError, "make_shape", (heap(0), 1, 1, 0, 0), "each of 1 dimensions, got 3 arg"),
        (InternalError, "make_shape", (heap(0), -1), "each of -1 dimensions"),
        (InternalError, "make_shape", (heap(0), 1, 2, 0), "shape code of 0 or 1, got 2"),
        (InternalError, "make_prim_value", (heap(0), 3, 0), "shape code of 0 or 1, got 3"),
        (TypeError, "make_shape", (None, 1, 1, 0), "int64 shape heap, got None"),
        (TypeError, "make_shape", (heap(0), 1.0, 1, 0), "expected an int, got float"),
        (TypeError, "make_prim_value", (None, 0, 5), "shape heap: expected a tensor, got None"),
        (TypeError, "make_prim_value", (np.zeros(2), 1, 0), "heap, got float64[2]"),
        (IndexError, "make_shape", (heap(0), 1, 1, 1), "dimension 0: heap slot 1"),
        (IndexError, "make_prim_value", (heap(), 1, 0), "heap slot 0: expected 0 to -1"),
    ],
)
def test_make_errors(
    error: type[Exception], name: str, args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)) as info:
        call(name, *args)
    assert str(info.value).startswith(name)


@pytest.mark.parametrize("order", ["<", ">"])
def test_heaps_of_any_layout(order: str) -> None:
    wide = np.zeros(8, f"{order}i8")
    cells = wide[::2]
    call("store_shape", Shape([3, 4]), cells, 0, 2)
    assert call("make_shape", cells, 2, 1, 2, 1, 0) == (4, 3)
    cells.flags.writeable = False
    assert call("load_shape", cells, 0) == (3,)
    with pytest.raises(ValueError, match="read-only"):
        call("store_shape", Shape([5]), cells, 0)


# Shapes and tensors


@ODD
def test_shape_of(x: np.ndarray) -> None:
    assert call("shape_of", x) == (2, 3)
    assert type(call("shape_of", x)) is Shape


def test_shape_of_any_rank() -> None:
    assert call("shape_of", np.array(1.0)) == ()
    assert call("shape_of", np.zeros((0, 5))) == (0, 5)
    assert call("shape_of", np.zeros((1,) * 20)) == (1,) * 20
    for other in (Shape([1]), (1,), 5, None, np.float32(1)):
        with pytest.raises(TypeError, match="shape_of: expected a tensor, got"):
            call("shape_of", other)


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", ">i4", ">i2"])
def test_tensor_to_shape(dtype: str) -> None:
    made = call("tensor_to_shape", np.array([3, -1, 300], dtype)[::-1])
    assert type(made) is Shape
    assert made == (300, -1, 3)
    assert call("tensor_to_shape", np.zeros(0, dtype)) == ()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "uint64", "float32", "bool"])
def test_tensor_to_shape_refuses_types(dtype: str) -> None:
    with pytest.raises(InternalError, match=rf"got {dtype}\[1\]"):
        call("tensor_to_shape", np.zeros(1, dtype))


def test_tensor_to_shape_refuses_ranks_and_kinds() -> None:
    for x in (np.array(1), np.zeros((1, 1), int)):
        with pytest.raises(InternalError, match=r"expected int16\[n\]"):
            call("tensor_to_shape", x)
    for other in (5, (1,), Shape([1]), None):
        with pytest.raises(TypeError, match="expected a tensor"):
            call("tensor_to_shape", other)


@ODD
@pytest.mark.parametrize("dims", [(6,), (3, 2), (6, 1), (2, 3), (4,), (), (0,), (0, 9), (5, 1)])
def test_reshape_takes_elements_in_order(x: np.ndarray, dims: tuple[int, ...]) -> None:
    count = int(np.prod(dims))
    for shape in (Shape(dims), dims, list(dims)):
        made = call("reshape", x, shape)
        assert made.shape == dims
        assert made.dtype == x.dtype
        assert made.ravel().tolist() == list(range(6))[:count]


def test_reshape_shares_memory() -> None:
    x = np.zeros((2, 3))
    for dims in [(6,), (3, 2), (4,), (), (2, 3)]:
        made = call("reshape", x, Shape(dims))
        assert np.shares_memory(made, x)
        made[...] = len(dims)
        assert x[0, 0] == len(dims)
    strided = np.zeros((4, 3))[::2]
    assert np.shares_memory(call("reshape", strided, Shape([2, 3, 1])), strided)
    assert call("reshape", np.zeros((0, 3)), Shape([3, 0])).shape == (3, 0)


@pytest.mark.parametrize("dims", [(7,), (4, 2), (-1,), (-1, 6), (-2, -3), (2, -1, 0), (1 << 62, 8)])
def test_reshape_refuses_sizes(dims: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"at most 6 elements of float64\[2, 3\], got Shape"):
        call("reshape", np.zeros((2, 3)), Shape(dims))


def test_reshape_refuses_kinds() -> None:
    for x, shape in ((5, Shape([1])), (np.zeros(1), 1), (np.zeros(1), None), (None, Shape())):
        with pytest.raises(TypeError, match=r"reshape: (shape: )?expected"):
            call("reshape", x, shape)


# Checks


@pytest.mark.parametrize("err", ["", CTX, None])
def test_checks_that_hold(err: str | None) -> None:
    x = np.zeros((2, 3), np.float32)
    f32 = np.dtype(np.float32)
    for args in [
        (x, 2, f32), (x, -1, f32), (x, 2, None), (x, -1, None), (x, 2), (x, -1),
        (x, 2, "float32"), (x.astype(">f4"), 2, f32), (np.array(1.0), 0), (x[::2, ::2], 2, f32),
    ]:  # fmt: skip
        assert call("check_tensor_info", *args, err) is None
    for ndim in (2, -1):
        assert call("check_shape_info", Shape([1, 2]), ndim, err) is None
    assert call("check_tuple_info", (1, 2), 2, err) is None
    assert call("check_tuple_info", [1, 2], 2, err) is None
    assert call("check_tuple_info", (), 0, err) is None
    assert call("check_func_info", print, err) is None
    assert call("check_func_info", call("make_closure", print, 1), err) is None
    assert call("check_string_info", "a", err) is None
    assert call("check_string_info", "", err) is None


@pytest.mark.parametrize("err", ["", CTX, "ends in a line\n", "no blank", "100 % {x} \\", None])
@pytest.mark.parametrize(
    ("error", "name", "args", "message"),
    [
        (ValueError, "check_tensor_info", (np.zeros(2), 3), " ndim 3, got ndim 1 in float64[2]"),
        (ValueError, "check_tensor_info", (np.zeros(2), -2), " ndim -2, got ndim 1"),
        (ValueError, "check_tensor_info", (np.zeros(2), 1, np.dtype("i4")),
         " dtype int32, got dtype float64 in float64[2]"),
        (ValueError, "check_tensor_info", (np.zeros(2, ">i2"), 1, "int32"), " dtype int32, got "),
        (TypeError, "check_tensor_info", (Shape([2]), 1), "expected a tensor, got Shape(2)"),
        (TypeError, "check_tensor_info", (None, -1, None), "expected a tensor, got None"),
        (ValueError, "check_shape_info", (Shape([1, 2]), 3), " ndim 3, got ndim 2 in Shape(1, 2)"),
        (TypeError, "check_shape_info", ((1, 2), 2), "expected a Shape, got tuple of 2"),
        (TypeError, "check_shape_info", (np.zeros(2), 2), "expected a Shape, got float64[2]"),
        (ValueError, "check_tuple_info", ((1, 2), 3), "tuple of 3 elements, got 2 elements"),
        (ValueError, "check_tuple_info", ((1, 2), -1), "tuple of -1 elements, got 2 elements"),
        (TypeError, "check_tuple_info", (Shape([1, 2]), 2), "expected a tuple, got Shape(1, 2)"),
        (TypeError, "check_tuple_info", ({1: 2}, 1), "expected a tuple, got dict"),
        (TypeError, "check_func_info", (5,), "expected a function or closure, got int 5"),
        (TypeError, "check_func_info", (None,), "expected a function or closure, got None"),
        (TypeError, "check_string_info", (b"a",), "expected a string, got bytes"),
        (TypeError, "check_prim_value_info", (1.5, np.dtype("i4")), "dtype int32, got float 1.5"),
        (TypeError, "check_prim_value_info", (None, "int32"), "dtype int32, got None"),
    ],
)  # fmt: skip
def test_checks_that_fail(
    error: type[Exception], name: str, args: tuple[Any, ...], message: str, err: str | None
) -> None:
    with pytest.raises(error, match=re.escape(message)) as info:
        call(name, *args, err)
    assert type(info.value) is error
    separated = err if not err or err[-1].isspace() else err + " "
    assert str(info.value).startswith(f"{separated or ''}{name}: ")


SCALARS: dict[str, Any] = {
    "int": 1, "bool": True, "huge": 1 << 70, "float": 1.5, "str": "1", "none": None,
    "tensor": np.array(1), "shape": Shape([1]), "np.int32": np.int32(1),
    "np.float32": np.float32(1), "np.bool": np.bool_(True),
}  # fmt: skip
INTEGERS = {"int", "bool", "huge", "np.int32", "np.bool"}
FLOATS = {"float", "np.float32"}


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [
        ("int32", INTEGERS), ("uint8", INTEGERS), ("bool", INTEGERS),
        ("float32", INTEGERS | FLOATS), ("float16", INTEGERS | FLOATS), ("S3", set()),
    ],
)  # fmt: skip
def test_check_prim_value_info(name: str, dtype: str, allowed: set[str]) -> None:
    if name in allowed:
        assert call("check_prim_value_info", SCALARS[name], np.dtype(dtype), CTX) is None
    else:
        with pytest.raises(TypeError, match="check_prim_value_info: ") as info:
            call("check_prim_value_info", SCALARS[name], np.dtype(dtype), CTX)
        assert str(info.value).startswith(CTX)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("check_tensor_info", (np.zeros(1), 1)),
        ("check_tensor_info", (np.zeros(1), 1, None, "", 1)),
        ("check_tensor_info", (np.zeros(1), 1.0, "")),
        ("check_tensor_info", (np.zeros(1), 1, np.dtype("f4"))),
        ("check_tensor_info", (np.zeros(1), 1, 5, "")),
        ("check_tensor_info", (np.zeros(1), 1, "no type", "")),
        ("check_shape_info", (Shape([1]), 1)),
        ("check_shape_info", (Shape([1]), 1.0, "")),
        ("check_tuple_info", ((1,), None, "")),
        ("check_prim_value_info", (1, None, "")),
        ("check_string_info", ("a",)),
        ("check_func_info", (print, 5)),
    ],
)
def test_checks_called_wrongly(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        call(name, *args)


# Memory


F32 = np.dtype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool", "float64", "complex128"])
@pytest.mark.parametrize("dims", [(), (0,), (24,), (2, 3), (5, 0, 1 << 60)])
def test_alloc_storage_size(vm: VirtualMachine, dims: tuple[int, ...], dtype: str) -> None:
    want = int(np.prod(dims)) * np.dtype(dtype).itemsize
    for shape in (Shape(dims), dims):
        for kind in (dtype, np.dtype(dtype)):
            assert call("alloc_storage", vm, shape, 0, kind, "global").nbytes == want
    assert call("alloc_storage", vm, Shape(dims), -1, F32).device == vm.devices[-1]
    assert call("alloc_storage", vm, Shape(dims), 0, F32, "").scope == "global"


@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (InternalError, (Shape([-4]), 0, F32, "global"), "dimensions >= 0, got Shape(-4)"),
        (InternalError, (Shape([-4, -4]), 0, F32, "global"), "dimensions >= 0"),
        (InternalError, (Shape([4]), 1, F32, "global"), "device index 1: expected -1 (the host)"),
        (InternalError, (Shape([4]), -2, F32, "global"), "device index -2: expected"),
        (InternalError, (Shape([4]), 0, F32, "global.texture"), "memory scope 'global'"),
        (TypeError, (4, 0, F32, "global"), "size: expected a Shape, got int 4"),
        (TypeError, (Shape([4]), 0.0, F32, "global"), "device index: expected an int"),
        (TypeError, (Shape([4]), 0, None, "global"), "dtype: expected a dtype, got None"),
        (TypeError, (Shape([4]), 0, "no type", "global"), "is not a data type"),
        (TypeError, (Shape([4]), 0, F32, 5), "scope: expected a string"),
        (TypeError, (Shape([4]), 0), "required positional argument"),
    ],
)
def test_alloc_storage_errors(
    vm: VirtualMachine, error: type[Exception], args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call("alloc_storage", vm, *args)


def test_alloc_storage_absurd_sizes(vm: VirtualMachine) -> None:
    for dims in ((1 << 48,), (1 << 60,)):
        with pytest.raises(MemoryError, match="cannot allocate"):
            call("alloc_storage", vm, Shape(dims), 0, F32, "global")
    with pytest.raises((MemoryError, LimitError), match=str(1 << 126)):
        call("alloc_storage", vm, Shape([1 << 62, 1 << 62]), 0, F32, "global")
    with pytest.raises(TypeError, match="alloc_storage: ctx: expected the VM state, got None"):
        call("alloc_storage", None, Shape([1]), 0, F32, "global")


def test_sizes_of_shapes_with_many_dimensions(vm: VirtualMachine) -> None:
    """The product of dimensions is not computed if it is far too large anyway."""
    long = Shape([(1 << 62) + 1] * 30_000)
    storage = call("alloc_storage", vm, Shape([4]), 0, F32, "global")
    for error, call_it in [
        ((MemoryError, LimitError), lambda: call("alloc_storage", vm, long, 0, F32, "global")),
        (InternalError, lambda: call("alloc_tensor", storage, 0, long, F32)),
        (ValueError, lambda: call("reshape", np.zeros(4), long)),
    ]:
        with pytest.raises(error) as info:
            call_it()
        assert len(str(info.value)) < 300
    empty = Shape([*long, 0])
    assert call("alloc_storage", vm, empty, 0, F32, "global").nbytes == 0


def test_alloc_tensor(vm: VirtualMachine) -> None:
    storage = call("alloc_storage", vm, Shape([24]), 0, "uint8", "global")
    whole = call("alloc_tensor", storage, 0, Shape([2, 3]), F32)
    part = call("alloc_tensor", storage, 8, (2,), "int32", "global")
    assert (whole.shape, whole.dtype) == ((2, 3), F32)
    whole[...] = 0
    part[...] = np.float32(7).view(np.int32)
    assert whole.ravel().tolist() == [0, 0, 7, 7, 0, 0]
    assert call("alloc_tensor", storage, 24, Shape([0]), F32).shape == (0,)
    assert call("alloc_tensor", storage, 2, Shape([5]), F32).shape == (5,)
    assert call("alloc_tensor", storage, 20, Shape([]), F32).shape == ()
    live = vm.memory_stats().live_bytes
    del storage, whole
    assert vm.memory_stats().live_bytes == live
    del part
    assert vm.memory_stats().live_bytes == 0


@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (InternalError, (0, Shape([7]), F32), "float32 Shape(7) at byte 0 needs 28 bytes"),
        (InternalError, (4, Shape([6]), F32), "float32 Shape(6) at byte 4 needs 24 bytes"),
        (InternalError, (-4, Shape([1]), F32), "at byte -4 needs 4 bytes, the storage has 24"),
        (InternalError, (25, Shape([0]), F32), "at byte 25 needs 0 bytes"),
        (InternalError, (1 << 62, Shape([2]), F32), "the storage has 24"),
        (InternalError, (0, Shape([1 << 62, 4]), F32), "the storage has 24"),
        (InternalError, (0, Shape([-2, -3]), F32), "dimensions >= 0, got Shape(-2, -3)"),
        (TypeError, (0, 6, F32), "shape: expected a Shape, got int 6"),
        (TypeError, (0.0, Shape([6]), F32), "offset: expected an int"),
        (TypeError, (0, Shape([6]), None), "dtype: expected a dtype"),
        (TypeError, (0, Shape([6]), F32, 5), "scope: expected a string"),
        (TypeError, (0, Shape([3]), "object"), "Python objects"),
    ],
)
def test_alloc_tensor_errors(
    vm: VirtualMachine, error: type[Exception], args: tuple[Any, ...], message: str
) -> None:
    storage = call("alloc_storage", vm, Shape([24]), 0, "uint8", "global")
    with pytest.raises(error, match=re.escape(message)):
        call("alloc_tensor", storage, *args)


def test_alloc_tensor_needs_a_storage() -> None:
    for other in (None, 5, np.zeros(24, np.uint8), bytearray(24)):
        with pytest.raises(TypeError, match="alloc_tensor: expected a storage, got"):
            call("alloc_tensor", other, 0, Shape([1]), F32)
        with pytest.raises(TypeError, match="free_storage: expected a storage, got"):
            call("free_storage", other)


def test_free_leaves_what_is_in_use(vm: VirtualMachine) -> None:
    storage = call("alloc_storage", vm, Shape([4]), 0, F32, "global")
    x = call("alloc_tensor", storage, 0, Shape([4]), F32)
    x[...] = 3
    assert call("free_storage", storage) is None
    assert call("free_tensor", x) is None
    assert x.tolist() == [3, 3, 3, 3]
    with pytest.raises(TypeError, match="free_tensor: expected a tensor"):
        call("free_tensor", storage)


def test_memory_manager_clear(vm: VirtualMachine) -> None:
    del_me = call("alloc_storage", vm, Shape([1000]), 0, F32, "global")
    del del_me
    assert vm.memory_stats().cached_bytes >= 4000
    assert call("memory_manager.clear") is None
    assert vm.memory_stats().cached_bytes == 0


@ODD
def test_to_device_copies(x: np.ndarray) -> None:
    for args in ((1, 0), (1, 3), (1, 0, "global"), (1, 0, "")):
        made = call("to_device", x, *args)
        assert made.tolist() == x.tolist()
        assert not np.shares_memory(made, x)
        assert made.dtype == np.int32
        assert made.flags.carray


@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (InternalError, (np.zeros(1), 2, 0), "device type 2: expected 1 (cpu)"),
        (InternalError, (np.zeros(1), 99, 0), "device type 99: expected 1 (cpu)"),
        (InternalError, (np.zeros(1), 1, 0, "global.vtcm"), "memory scope 'global'"),
        (TypeError, (np.zeros(1), 1, 0, None), "scope: expected a string"),
        (TypeError, (np.zeros(1), 1.0, 0), "device type: expected an int"),
        (TypeError, (5, 1, 0), "to_device: expected a tensor, got int 5"),
        (TypeError, (np.zeros(1), 1), "device_id"),
    ],
)
def test_to_device_errors(error: type[Exception], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call("to_device", *args)


@ODD
def test_references_stay_the_same_object(x: np.ndarray) -> None:
    assert call("copy", x) is x
    assert call("move", x) is x
    assert call("ensure_zero_offset", x) is x
    assert call("make_tuple", x, x)[1] is x
    assert call("tuple_getitem", (1, x), 1) is x
    assert call("invoke_closure", None, call("make_closure", lambda *args: args, x), 1)[1] is x


def test_null_value() -> None:
    assert call("null_value") is None
    with pytest.raises(TypeError):
        call("null_value", 1)
    with pytest.raises(TypeError, match="ensure_zero_offset: expected a tensor"):
        call("ensure_zero_offset", None)


# Data


def test_tuples() -> None:
    assert call("make_tuple") == ()
    assert type(call("make_tuple", 1, 2)) is tuple
    for items in ((1, 2, 3), [1, 2, 3]):
        assert [call("tuple_getitem", items, i) for i in (0, 2, True, np.int64(1))] == [1, 3, 2, 2]
        for i in (3, -1, 1 << 40):
            for name in ("tuple_getitem", "tuple_reset_item"):
                with pytest.raises(IndexError, match=f"{name}: index {i}: expected 0 to 2"):
                    call(name, items, i)


@pytest.mark.parametrize("name", ["tuple_getitem", "tuple_reset_item"])
@pytest.mark.parametrize("items", [Shape([1, 2]), np.zeros(2), 5, None, "ab", {0: 1}])
def test_tuples_only(name: str, items: Any) -> None:
    with pytest.raises(TypeError, match=f"{name}: expected a tuple, got"):
        call(name, items, 0)
    with pytest.raises(TypeError, match="index: expected an int"):
        call(name, (1,), 0.0)


@pytest.mark.parametrize("kind", [tuple, list])
def test_tuple_reset_item_is_in_place(kind: Callable[..., Any]) -> None:
    first, second = np.zeros(1), np.ones(1)
    items = kind([first, second])
    other = items
    before = sys.getrefcount(first), sys.getrefcount(second)
    assert call("tuple_reset_item", items, 0) is None
    assert other[0] is None
    assert other[1] is second
    assert (sys.getrefcount(first), sys.getrefcount(second)) == (before[0] - 1, before[1])
    call("tuple_reset_item", items, 0)
    assert items == kind([None, second])


def test_tuple_reset_item_in_a_program() -> None:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("vm.builtin.copy", [ib.r(2)], dst=ib.r(3))
        ib.emit_call("vm.builtin.tuple_reset_item", [ib.r(2), ib.imm(1)])
        ib.emit_ret(ib.r(3))
    for optimize in (True, False):
        vm = VirtualMachine(ib.get(), optimize=optimize)
        for _ in range(3):
            assert vm["main"]("a", "b") == ("a", None)


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (1, True), (0, False), (-1, True), (True, True), (False, False), (1 << 70, True),
        (np.bool_(True), True), (np.int8(0), False), (np.array(1), True), (np.array(False), False),
        (np.array([0, 1]), False), (np.array([[2, 0]], np.uint8), True),
        (np.array(256, ">i2"), True),
        (np.array([256, 0, 0], np.int16)[::2], True), (np.array(1 << 63, np.uint64), True),
    ],
)  # fmt: skip
def test_read_if_cond(x: Any, want: bool) -> None:
    assert call("read_if_cond", x) is want


@pytest.mark.parametrize("x", [1.0, 0.0, None, "a", "", Shape([1]), (), (1,), print, np.float32(1)])
def test_read_if_cond_refuses_kinds(x: Any) -> None:
    with pytest.raises(TypeError, match="read_if_cond: expected a bool, an int or a tensor"):
        call("read_if_cond", x)


@pytest.mark.parametrize("x", [np.array(1.0), np.zeros(0, int), np.array(1j), np.array(["a"])])
def test_read_if_cond_refuses_tensors(x: np.ndarray) -> None:
    with pytest.raises(InternalError, match="a tensor with an integer or bool element, got"):
        call("read_if_cond", x)


# Calls


def test_closures() -> None:
    def pack(*args: Any) -> tuple[Any, ...]:
        return args

    inner = call("make_closure", pack, "x", "y")
    outer = call("make_closure", inner, "z")
    assert call("invoke_closure", None, inner, 1, 2) == (1, 2, "x", "y")
    assert call("invoke_closure", None, outer, 1) == (1, "z", "x", "y")
    assert call("invoke_closure", None, pack) == ()
    for other in (5, None, (pack,), "pack"):
        with pytest.raises(TypeError, match="make_closure: expected a closure or function"):
            call("make_closure", other, 1)
        with pytest.raises(TypeError, match="invoke_closure: expected a closure or function"):
            call("invoke_closure", None, other, 1)


def test_call_tir_dyn() -> None:
    seen: list[Any] = []
    x = np.zeros(2)
    call("call_tir_dyn", lambda *args: seen.extend(args), x, 5, Shape([3, 4]))
    assert seen[0] is x
    assert seen[1:] == [5, 3, 4]
    assert call("call_tir_dyn", lambda *args: len(args), ()) == 0
    for args in ((print,), (print, 1), (5, Shape([1])), (), (print, Shape([1]), None)):
        with pytest.raises(TypeError):
            call("call_tir_dyn", *args)


@pytest.fixture
def py_funcs() -> Any:
    yield
    call("clear_py_func_registry")


@pytest.mark.usefixtures("py_funcs")
def test_py_funcs() -> None:
    def join(*args: Any) -> str:
        return "-".join(map(str, args))

    assert call("register_py_func", "join", join) is None
    assert call("get_py_func", "join") is join
    assert call("call_py_func", "join", (1, 2)) == "1-2"
    assert call("call_py_func", ("join", (1, 2))) == "1-2"
    assert call("call_py_func", "join", []) == ""
    call("register_py_func", "join", print)
    assert call("get_py_func", "join") is print
    call("clear_py_func_registry")
    with pytest.raises(InternalError, match="no Python function 'join' is registered"):
        call("get_py_func", "join")


@pytest.mark.usefixtures("py_funcs")
@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (InternalError, ("jion", (1,)), "did you mean 'join'"),
        (InternalError, (), "expected a name and a tuple of arguments, got 0 values"),
        (InternalError, (("join",),), "got 1 values"),
        (InternalError, (("join", 1, 2),), "got 3 values"),
        (InternalError, ("join", (1,), 2), "got 3 values"),
        (TypeError, ("join", 5), "arguments: expected a tuple, got int 5"),
        (TypeError, (5, (1,)), "name: expected a string, got int 5"),
        (TypeError, ("join",), "expected a tuple, got str"),
    ],
)
def test_call_py_func_errors(error: type[Exception], args: tuple[Any, ...], message: str) -> None:
    call("register_py_func", "join", print)
    with pytest.raises(error, match=re.escape(message)):
        call("call_py_func", *args)
    for bad in ((5, print), ("name", 5)):
        with pytest.raises(TypeError, match="register_py_func"):
            call("register_py_func", *bad)


@pytest.mark.usefixtures("py_funcs")
def test_errors_of_python_functions_pass_unchanged() -> None:
    class OwnError(Exception):
        pass

    def fail(*args: Any) -> None:
        raise OwnError(args)

    call("register_py_func", "fail", fail)
    with pytest.raises(OwnError) as info:
        call("call_py_func", "fail", (1,))
    assert info.traceback[-1].name == "fail"
    GLOBAL.register("test.debug.fail", fail)
    try:
        with pytest.raises(OwnError):
            call("invoke_debug_func", None, "test.debug.fail", "line")
    finally:
        GLOBAL.remove("test.debug.fail")


def test_invoke_debug_func() -> None:
    seen: list[Any] = []
    GLOBAL.register("test.debug.see", lambda *args: seen.append(args) or 7)
    try:
        assert call("invoke_debug_func", None, "test.debug.see", "main:3", 1, 2) is None
        assert seen == [("main:3", 1, 2)]
        for error, args, message in [
            (ValueError, (5, "test.debug.see", "l"), "expected None as the first argument"),
            (ValueError, (None, "test.debug.sea", "l"), "did you mean 'test.debug.see'"),
            (InternalError, (None, "test.debug.see"), "got 2 arguments"),
            (InternalError, (), "got 0 arguments"),
            (TypeError, (None, 5, "l"), "name: expected a string"),
            (TypeError, (None, "test.debug.see", 5), "line information: expected a string"),
        ]:
            with pytest.raises(error, match=message):
                call("invoke_debug_func", *args)
    finally:
        GLOBAL.remove("test.debug.see")


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("print", np.arange(2), "text", 3) is None
    assert call("debug_print", "main:3", np.zeros((1, 2), np.float32)) is None
    assert call("print") is None
    want = "[0 1] text 3\nmain:3: shape = (1, 2), dtype = float32, data =\n[[0. 0.]]\n\n"
    assert capsys.readouterr().out == want
    for args in ((5, np.zeros(1)), ("l", 5)):
        with pytest.raises(TypeError, match="debug_print: "):
            call("debug_print", *args)


def test_printing_tuples(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(value: Any) -> str:
        call("print", value)
        return capsys.readouterr().out.rstrip("\n")

    for value in [(), (1,), (1, ("a", [2.5, None])), [], [(1,)], Shape([1, 2]), "text", {1: (2,)}]:
        assert printed(value) == str(value)
    assert printed((np.arange(2), Shape([3]))) == "(array([0, 1]), Shape(3))"
    wide: Any = (7,)
    deep: Any = ()
    for _ in range(200):
        wide, deep = (wide, wide), (deep,)
    assert len(printed(wide)) < 10_000
    assert printed(deep) == "(" * 51 + "...," + ",".join(")" * 51)
    assert printed(tuple(range(2000))) == str(tuple(range(1000)))[:-1] + ", ...)"


def test_time_goes_forward() -> None:
    first, second = call("time"), get_func("time")()
    assert type(first) is float
    assert second >= first


# Registration


def test_names_of_a_program_take_precedence() -> None:
    """Names without the prefix, which the design documents use, are not reserved."""
    shipped = GLOBAL.lookup("time")
    assert shipped is not None
    assert get_func("vm.move") is get_func("vm.builtin.move")
    try:
        GLOBAL.register("time", lambda: 5)
        assert get_func("time")() == 5
        assert GLOBAL.lookup("vm.builtin.time").func is shipped.func
        with pytest.raises(RelaxVMError, match="'time' is already registered"):
            GLOBAL.register("time", lambda: 6)
    finally:
        GLOBAL.register("time", shipped.func, signature=shipped.signature, override=True,
                        doc=shipped.doc, weak=True)  # fmt: skip


def test_builtins_are_not_replaced_silently() -> None:
    with pytest.raises(RelaxVMError, match=r"'vm\.builtin\.copy' is already registered"):
        GLOBAL.register("vm.builtin.copy", lambda x: x)


def test_is_reference() -> None:
    own = Registry({"vm.builtin.copy": lambda x: x}, parent=GLOBAL)
    assert is_reference(GLOBAL.lookup("vm.builtin.copy"))
    assert not is_reference(own.lookup("vm.builtin.copy"))
    assert is_reference(own.lookup("vm.builtin.move"))


def builtins() -> list[str]:
    prefixes = (PREFIX, OWN_PREFIX, RUN_PREFIX, RUNTIME_PREFIX)
    return [name for name in list_funcs() if name.startswith(prefixes)]


@pytest.mark.parametrize("name", builtins())
def test_every_builtin_is_described(name: str) -> None:
    record = GLOBAL.lookup(name)
    assert record is not None
    assert record.signature is not None
    assert re.match(r"[A-Z].*[.;:,\w`]$", record.doc.splitlines()[0])
    kinds = {"none", "bool", "int", "float", "str", "tensor", "shape", "tuple", "dtype", "func",
             "object", "any", "vm", "storage", "closure", "adt"}  # fmt: skip
    params = [*record.signature.params, *record.signature.last]
    if record.signature.variadic is not None:
        params.append(record.signature.variadic)
    assert {kind for param in params for kind in param.kinds} <= kinds
    assert record.signature.result in kinds


@pytest.mark.parametrize("name", builtins())
def test_no_builtin_takes_other_numbers_of_arguments(name: str) -> None:
    """The function rejects what its signature rejects: the verifier rejects no valid call."""
    record = GLOBAL.lookup(name)
    most = record.signature.max_args
    counts = [*range(record.signature.min_args), *([] if most is None else [most + 1])]
    for count in counts:
        with pytest.raises((TypeError, InternalError)):
            record.func(*[None] * count)


def test_effects() -> None:
    """Builtins that access files, the standard output, process-wide caches and registries, or any
    function by name have effects."""
    effect = {name.removeprefix(PREFIX) for name in builtins() if GLOBAL.lookup(name).effect}
    families = ("tensor_cache.", "param_")
    assert {name for name in effect if not name.startswith(families)} == {
        "call_py_func", "clear_py_func_registry", "debug_print", "get_py_func",
        "invoke_debug_func", "print", "register_py_func", "relax.run.print",
    }  # fmt: skip
    for name in builtins():
        short = name.removeprefix(PREFIX)
        assert GLOBAL.lookup(name).effect or not short.startswith(families)


# Errors that the verifier finds


def report_of(name: str, *args: Any) -> str:
    """The verifier's report of one call: ints are immediates, None is void, "vm" the VM state,
    ``r`` an argument of the function, anything else a constant."""
    ib = ExecBuilder()
    words = {"vm": ib.vm_state(), "r": ib.r(0)}
    with ib.function("main", num_inputs=1):
        operands = []
        for arg in args:
            if isinstance(arg, str) and arg in words:
                operands.append(words[arg])
            elif arg is None:
                operands.append(ib.void_arg())
            else:
                operands.append(ib.imm(arg) if type(arg) is int else ib.convert_constant(arg))
        ib.emit_call(PREFIX + name, operands)
        ib.emit_ret(ib.r(0))
    report = verify(ib.get())
    return "" if report.ok else str(report)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("match_shape", ("r", "r", 2, 0, 1, 3, 0, "ctx")),
        ("match_shape", ("r", None, 2, 0, -1, 2, 0, "ctx")),
        ("match_shape", ("r", "r", 1, "r", 9, "ctx")),
        ("match_shape", ("r", "r", 1, 0, 9)),
        ("match_shape", ("r", "r", "r", 0, 9)),
        ("match_shape", (Shape([1]), None, 0, None)),
        ("match_prim_value", ("r", "r", 3, 0, "ctx")),
        ("match_prim_value", (5, "r", 0, 5, None)),
        ("make_shape", (None, 2, 0, 1, 0, 2)),
        ("make_shape", ("r", 2, 0, 1, 1, 2)),
        ("make_prim_value", ("r", 1, 0)),
        ("alloc_shape_heap", ("vm", 4)),
        ("alloc_shape_heap", (4,)),
        ("alloc_shape_heap", ("r", "r")),
        ("store_shape", ("r", "r", 0, 1)),
        ("check_tensor_info", ("r", -1, np.dtype("f4"), "ctx")),
        ("check_tensor_info", ("r", 2, "ctx")),
        ("check_tensor_info", ("r", 2, None, "ctx")),
        ("check_tensor_info", ("r", 2, "float32", None)),
        ("check_shape_info", (Shape([1]), -1, "")),
        ("alloc_storage", ("vm", Shape([4]), -1, np.dtype("u1"), "global")),
        ("alloc_storage", ("vm", "r", 0, "uint8", "global")),
        ("alloc_storage", ("vm", "r", 0, "r", "r")),
        ("alloc_tensor", ("r", 0, Shape([4]), np.dtype("f4"))),
        ("alloc_tensor", ("r", 0, Shape([4]), np.dtype("f4"), "any scope")),
        ("to_device", ("r", 1, 3)),
        ("to_device", ("r", 2, 0, "global.texture-weight")),
        ("alloc_storage", ("vm", "r", 1, "uint8", "global.vtcm")),
        ("call_tir_dyn", ("r", "r", Shape([1]))),
        ("invoke_closure", ("vm", "r", 1)),
        ("tuple_getitem", ("r", 0)),
        ("read_if_cond", (1,)),
        ("sample_top_p_from_prob", ("r", 1, 0.5)),
    ],
)
def test_the_verifier_accepts(name: str, args: tuple[Any, ...]) -> None:
    assert report_of(name, *args) == ""


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("match_shape", ("r", "r", 1, 4, 0, "ctx"), "shape code of 0 to 3, got 4"),
        ("match_shape", ("r", "r", 1, 1, -1, "ctx"), "heap slot of 0 to 2**31 - 1, got -1"),
        ("match_shape", ("r", "r", 1, 3, 1 << 31, "ctx"), "heap slot of 0 to"),
        ("match_shape", ("r", None, 1, 3, 0, "ctx"), "but the shape heap is None"),
        ("match_shape", ("r", "r", 2, 3, 0, "ctx"), "for each of 2 dimensions"),
        ("match_shape", ("r", "r", -1, "ctx"), "for each of -1 dimensions"),
        ("match_shape", ("r", "r", 1, 3, 0, "ctx", 1), "for each of 1 dimensions"),
        ("match_shape", ("r", "r", 1, 0.5, 0, "ctx"), "argument 3: expected int, got float"),
        ("match_shape", ("r", "r", 1, 0, 1, 5), "error context: expected str, got int"),
        ("match_prim_value", ("r", "r", 4, 0, "ctx"), "shape code of 0 to 3, got 4"),
        ("match_prim_value", ("r", None, 0, 0, "ctx"), "expected tensor, got none"),
        ("make_shape", ("r", 1, 2, 0), "shape code of 0 to 1, got 2"),
        ("make_shape", ("r", 1, 1, 0, 5), "for each of 1 dimensions, got 3"),
        ("make_shape", (None, 1, 1, 0), "but the shape heap is None"),
        ("make_prim_value", ("r", 1, -1), "heap slot of 0 to"),
        ("alloc_shape_heap", ("vm", -1), "expected 0 to 2**31 - 1 slots, got -1"),
        ("alloc_shape_heap", (1 << 31,), "slots, got 2147483648"),
        ("alloc_shape_heap", ("vm",), "got the VM state only"),
        ("alloc_shape_heap", (4, 4), "expected the VM state before the size"),
        ("check_tensor_info", ("r", -2, "ctx"), "ndim: expected -1 (any) or more, got -2"),
        ("check_tensor_info", ("r", 1, np.dtype("f4")), "error context: expected str, got dtype"),
        ("check_tensor_info", ("r", 1, "no type", "ctx"), "'no type' is not a data type"),
        ("check_shape_info", ("r", -2, "ctx"), "ndim: expected -1"),
        ("alloc_storage", ("vm", Shape([-1]), 0, "uint8", "global"), "dimensions >= 0"),
        ("alloc_storage", ("vm", Shape([1]), -2, "uint8", "global"), "device index: expected -1"),
        ("alloc_storage", ("vm", Shape([1]), 0, "no type", "global"), "is not a data type"),
        ("alloc_storage", ("vm", Shape([1]), 0, "uint8", "vtcm"), "scope: expected 'global' or"),
        ("alloc_storage", ("r", 4, 0, "uint8", "global"), "(size) of"),
        ("alloc_tensor", ("r", -1, Shape([1]), "uint8"), "byte offset: expected 0 or more"),
        ("alloc_tensor", ("r", 0, Shape([-1]), "uint8"), "dimensions >= 0"),
        ("alloc_tensor", ("r", 0, Shape([1]), "no type"), "is not a data type"),
        ("to_device", ("r", 0, 0), "device type: expected 1 to 36"),
        ("to_device", ("r", 99, 0), "got 99"),
        ("to_device", ("r", 1, 0, "vtcm"), "scope: expected 'global' or"),
        ("shape_of", (5,), "(x) of vm.builtin.shape_of: expected tensor, got int"),
        ("copy", (5, 5), "takes 1 arguments, got 2"),
    ],
)
def test_the_verifier_refuses(name: str, args: tuple[Any, ...], message: str) -> None:
    assert message in report_of(name, *args)


# The design documents' examples


def test_example_of_the_text_form(capsys: pytest.CaptureFixture[str]) -> None:
    ib = ExecBuilder()
    with ib.function("func0", num_inputs=2):
        ib.emit_call("vm.op.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("time", dst=ib.r(100))
        ib.emit_call("vm.builtin.move", args=[ib.r(2)], dst=ib.r(3))
        ib.emit_call("time", dst=ib.r(101))
        ib.emit_call("vm.builtin.print", args=[ib.r(3)])
        ib.emit_ret(ib.r(3))
    functions = Registry({"vm.op.add": lambda a, b: a + b}, parent=GLOBAL)
    vm = VirtualMachine(ib.get(), functions=functions)
    assert vm["func0"](np.float32([1, 2]), np.float32([3, 4])).tolist() == [4, 6]
    assert capsys.readouterr().out == "[4. 6.]\n"


def test_example_of_the_builder() -> None:
    ib = ExecBuilder()
    two = ib.convert_constant(np.float32([2]))
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.move", [two], dst=ib.r(1))
        ib.emit_call("vm.add", [ib.r(0), ib.imm(10)], dst=ib.r(2))
        ib.emit_call("vm.mul", [ib.r(2), ib.r(1)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    own = {"vm.add": lambda a, b: a + b, "vm.mul": lambda a, b: a * b}
    vm = VirtualMachine(ib.get(), functions=Registry(own, parent=GLOBAL))
    assert vm["main"](np.float32([1, 2])).tolist() == [22, 24]


def test_example_of_the_shape_heap() -> None:
    ib = ExecBuilder()
    x = np.random.default_rng(0).random((32, 16))
    with ib.function("main", num_inputs=0):
        ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.imm(2)], dst=ib.r(0))
        ib.emit_call("vm.builtin.shape_of", args=[x], dst=ib.r(1))
        ib.emit_call("vm.builtin.store_shape", args=[ib.r(1), ib.r(0), ib.imm(0), ib.imm(1)])
        ib.emit_call("vm.builtin.load_shape", args=[ib.r(0), ib.imm(0), ib.imm(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    for optimize in (True, False):
        result = VirtualMachine(ib.get(), optimize=optimize)["main"]()
        assert result == (32, 16)
        assert kind_of(result) == "shape"


# The reference page


@pytest.fixture(scope="module")
def page() -> str:
    return load("gen_builtins").page()


def test_the_page_has_every_builtin(page: str) -> None:
    entries = re.findall(r"^### (\S+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted(name.removeprefix(PREFIX) for name in builtins())
