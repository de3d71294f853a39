"""Kernels that the core runs with numpy's inner loops behave as if they were called."""

from __future__ import annotations

import io
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import ExecBuilder, Limits, VirtualMachine, kernels
from relaxvm.core.floating import report_status
from relaxvm.errors import LimitError
from relaxvm.registry import list_funcs

UFUNCS = {name: kernels.ufunc_of(name) for name in list_funcs() if name.startswith(kernels.PREFIX)}
UFUNCS = {name: ufunc for name, ufunc in UFUNCS.items() if ufunc is not None}
DTYPES = [np.dtype(c) for c in "?bBhHiIlLqQefdgFD"]
ADD, EXP = kernels.PREFIX + "add", kernels.PREFIX + "exp"

_machines: dict[tuple[str, bool], VirtualMachine] = {}


def machine(name: str, optimize: bool) -> VirtualMachine:
    """``main(inputs..., out)`` calls the kernel."""
    key = name, optimize
    if key not in _machines:
        b = ExecBuilder()
        count = UFUNCS[name].nin + 1
        with b.function("main", num_inputs=count):
            b.emit_call(name, [b.r(i) for i in range(count)], dst=b.r(count))
            b.emit_ret(b.r(count))
        _machines[key] = VirtualMachine(b.get(), optimize=optimize)
    return _machines[key]


def outcome(vm: VirtualMachine, *args: Any) -> tuple[Any, ...]:
    """Return the error, the warnings, and the bytes of all arrays afterwards."""
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            assert vm.main(*args) is None
        except Exception as raised:
            error = type(raised), str(raised)
    said = [(w.category, str(w.message).partition(" (main, pc ")[0]) for w in caught]
    return error, said, [a.tobytes() if isinstance(a, np.ndarray) else a for a in args]


def assert_same(name: str, make: Callable[[], tuple[Any, ...]]) -> Any:
    """Check that both ways to run have the same outcome on new arguments, twice."""
    want = outcome(machine(name, False), *make())
    for _ in range(2):
        got = outcome(machine(name, True), *make())
        assert got == want
    return want


def assert_same_on(name: str, *args: Any) -> None:
    """Check copies of these arguments; an array that occurs twice stays one array."""

    def make() -> tuple[Any, ...]:
        copies = {id(a): a.copy() for a in args if isinstance(a, np.ndarray)}
        return tuple(copies.get(id(a), a) for a in args)

    assert_same(name, make)


def kernel_calls(call: Callable[[], Any]) -> int:
    """Count calls of Python code of the kernels."""
    count = 0

    def watch(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.endswith("elementwise.py")

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def special_values(dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, info.max, info.min, info.max - 1], dtype)
    info = np.finfo(dtype)
    return np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny,
                     info.smallest_subnormal, 88.9, -104.0, 1e-3], dtype)  # fmt: skip


def samples(dtype: np.dtype[Any], size: int, seed: int = 0) -> np.ndarray:
    """Ordinary values and all special ones."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, size).astype(bool)
    if dtype.kind in "iu":
        values = rng.integers(max(np.iinfo(dtype).min, -9), 10, size).astype(dtype)
    else:
        values = (rng.standard_normal(size) * 3).astype(dtype)
    where = rng.random(size) < 0.3
    values[where] = rng.choice(special_values(dtype), size)[where]
    return values


def result_like(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An output of the ufunc's result data type, or of `dtype` if the ufunc has no such loop."""
    ufunc = UFUNCS[name]
    try:
        found = ufunc.resolve_dtypes((*[dtype] * ufunc.nin, None))[-1]
    except TypeError:
        found = dtype
    return np.full(shape, 7, found)


# All kernels, all data types


def test_the_kernels_that_are_ufuncs() -> None:
    assert {"add", "multiply", "exp", "less", "logical_not", "maximum"} <= {
        name.removeprefix(kernels.PREFIX) for name in UFUNCS
    }
    assert all(ufunc.nin <= 2 and ufunc.nout == 1 for ufunc in UFUNCS.values())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UFUNCS)
def test_every_kernel(name: str, dtype: np.dtype[Any]) -> None:
    nin = UFUNCS[name].nin
    for size in (1, 3, 4, 17, 100):
        inputs = [samples(dtype, size, seed) for seed in range(nin)]
        out = result_like(name, dtype, (size,))
        assert_same_on(name, *inputs, out)
        if out.dtype == dtype:
            assert_same_on(name, *inputs, inputs[0])


@pytest.mark.parametrize("name", UFUNCS)
def test_one_value_at_a_time(name: str) -> None:
    """The warnings of each special value alone, and of each pair of them."""
    for dtype in (np.dtype("f4"), np.dtype("f8"), np.dtype("i4")):
        values = np.concatenate([special_values(dtype), samples(dtype, 8)])
        for value in values:
            x, out = np.array([value], dtype), result_like(name, dtype, (1,))
            if UFUNCS[name].nin == 1:
                assert_same_on(name, x, out)
                continue
            for other in values:
                assert_same_on(name, x, np.array([other], dtype), out)


def test_the_core_does_not_call_the_reference() -> None:
    x, out = np.ones(4, "f4"), np.empty(4, "f4")
    for name, args in ((ADD, (x, x, out)), (EXP, (x, out)), (ADD, (x, x[:1].copy(), out))):
        assert kernel_calls(lambda args=args, name=name: machine(name, True).main(*args)) == 0
    assert out.tolist() == [2.0] * 4
    assert kernel_calls(lambda: machine(EXP, False).main(x, out)) == 1


def test_data_types_may_change_from_run_to_run() -> None:
    vm = machine(ADD, True)
    for dtype in (*DTYPES, *DTYPES[::-1]):
        x, out = np.array([3, 4], dtype), np.zeros(2, dtype)
        vm.main(x, x, out)
        assert np.array_equal(out, np.add(x, x))


# Shapes, layouts, overlap

LAYOUTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "no elements": lambda: (np.ones((2, 0), "f4"), np.ones((2, 0), "f4"), np.ones((2, 0), "f4")),
    "no dimensions": lambda: (np.array(2.0), np.array(3.0), np.array(0.0)),
    "three dimensions": lambda: (np.ones((2, 3, 4)), np.ones((2, 3, 4)), np.zeros((2, 3, 4))),
    "one element for all": lambda: (np.ones((2, 3)), np.array(3.0), np.zeros((2, 3))),
    "one element first": lambda: (np.ones((1, 1)), np.ones((2, 3)), np.zeros((2, 3))),
    "one element of more dimensions": lambda: (np.ones((1, 1, 1)), np.ones(3), np.zeros(3)),
    "one element each": lambda: (np.ones((1, 1)), np.ones(1), np.zeros((1, 1))),
    "both one element": lambda: (np.ones(1), np.ones(()), np.zeros(3)),
    "one element, none in the result": lambda: (np.ones(1), np.ones((0,)), np.zeros((0,))),
    "rows": lambda: (np.ones((2, 3)), np.arange(3.0), np.zeros((2, 3))),
    "columns": lambda: (np.ones((2, 3)), np.ones((2, 1)), np.zeros((2, 3))),
    "result of another shape": lambda: (np.ones(3), np.ones(3), np.zeros((1, 3))),
    "result too short": lambda: (np.ones(3), np.ones(3), np.zeros(2)),
    "input with steps": lambda: (np.arange(8.0)[::2], np.ones(4), np.zeros(4)),
    "result with steps": lambda: (np.arange(4.0), np.ones(4), np.zeros(8)[::2]),
    "transposed": lambda: (np.ones((3, 2)).T, np.ones((2, 3)), np.zeros((2, 3))),
    "swapped bytes": lambda: (np.ones(3, ">f8"), np.ones(3, ">f8"), np.zeros(3, ">f8")),
    "unaligned": lambda: (_unaligned(3), np.ones(3), _unaligned(3)),
    "read-only result": lambda: (np.ones(3), np.ones(3), _frozen(np.zeros(3))),
    "read-only input": lambda: (_frozen(np.ones(3)), np.ones(3), np.zeros(3)),
    "other data types": lambda: (np.ones(3), np.ones(3, "f4"), np.zeros(3)),
    "result of another data type": lambda: (np.ones(3), np.ones(3), np.zeros(3, "f4")),
    "objects": lambda: (np.array([1, 2], object), np.array([1, 2], object), np.zeros(2, object)),
    "dates": lambda: (np.zeros(2, "M8[s]"), np.zeros(2, "M8[s]"), np.zeros(2, "M8[s]")),
    "matrix class": lambda: (np.ones(3).view(np.memmap), np.ones(3), np.zeros(3)),
    "a float": lambda: (np.ones(3, "f4"), 0.1, np.zeros(3, "f4")),
    "a float first": lambda: (0.1, np.ones(3, "f4"), np.zeros(3, "f4")),
    "numbers only": lambda: (1, 2.0, np.zeros(3)),
    "not a tensor": lambda: (np.ones(3), "x", np.zeros(3)),
    "no result": lambda: (np.ones(3), np.ones(3), None),
}  # fmt: skip


def _unaligned(size: int) -> np.ndarray:
    return np.zeros(8 * size + 1, np.int8)[1:].view(np.float64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", ["add", "less"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, name: str) -> None:
    assert_same(kernels.PREFIX + name, LAYOUTS[layout])


def test_layouts_of_one_input() -> None:
    for make in LAYOUTS.values():
        assert_same(EXP, lambda make=make: make()[1:])


@pytest.mark.parametrize("dtype", ["f4", "i2", "f8"])
@pytest.mark.parametrize("offset", [-9, -3, -1, 0, 1, 3, 9])
def test_overlap(offset: int, dtype: str) -> None:
    """The result is as if the inputs had been read first, for any overlap."""

    def shifted(both: bool) -> tuple[Any, ...]:
        memory = np.arange(40).astype(dtype)
        x, out = memory[10:20], memory[10 + offset : 20 + offset]
        return (x, x if both else np.ones(10, dtype), out)

    def one_for_all() -> tuple[Any, ...]:
        memory = np.arange(40).astype(dtype)
        return (memory[15:16], np.ones(10, dtype), memory[10 + offset : 20 + offset])

    assert_same(ADD, lambda: shifted(True))
    assert_same(ADD, lambda: shifted(False))
    assert_same(ADD, one_for_all)
    assert_same(kernels.PREFIX + "negative", lambda: shifted(True)[1:])


def test_a_result_of_smaller_items_over_its_input() -> None:
    def make() -> tuple[Any, ...]:
        x = np.arange(16, dtype=np.int64) - 8
        return (x, x, x.view(np.bool_)[:16])

    assert_same(kernels.PREFIX + "less", make)


NUMBERS = [0, 1, -1, 127, 128, -128, 255, 256, 1 << 31, (1 << 53) + 1, 1 << 63, -(1 << 63), 0.0,
           -0.0, 0.1, 1e30, 1e39, 1e300, 1e-40, 1e-50, float("inf"), float("nan"),
           True]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_take_the_data_type_of_the_tensor(number: Any) -> None:
    for dtype in DTYPES:
        x = samples(dtype, 5)
        for name in (ADD, kernels.PREFIX + "maximum", kernels.PREFIX + "less"):
            out = result_like(name, dtype, (5,))
            assert_same_on(name, x, number, out)
            assert_same_on(name, number, x, out)


@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.floats())
def test_any_floats(values: list[float], number: float) -> None:
    x = np.array(values, np.float32)
    for name in ("exp", "sqrt", "log", "tanh", "sign"):
        assert_same_on(kernels.PREFIX + name, x, np.zeros_like(x))
    for name in ("multiply", "divide", "power", "floor_divide", "remainder"):
        assert_same_on(kernels.PREFIX + name, x, x[::-1].copy(), np.zeros_like(x))
        assert_same_on(kernels.PREFIX + name, x, number, np.zeros_like(x))


@pytest.mark.parametrize("size", [1000, 1024, 1025, 16384, 16385, 100_000])
def test_sizes(size: int) -> None:
    """Sizes around thresholds."""
    for dtype in ("f4", "f8", "i4"):
        x, y = samples(np.dtype(dtype), size), samples(np.dtype(dtype), size, 1)
        for name in ("add", "divide", "less", "power"):
            full = kernels.PREFIX + name
            assert_same_on(full, x, y, result_like(full, x.dtype, (size,)))
    x = samples(np.dtype("f4"), size)
    assert_same_on(EXP, x, np.zeros_like(x))


# Floating-point errors

TROUBLE = {
    "divide": (np.array([1.0, 0, 1e300]), np.array([0.0, 0, 1e-300])),
    "multiply": (np.array([1e300, 1e-300, np.inf]), np.array([1e300, 1e-300, 0])),
    "floor_divide": (np.array([3, -(1 << 31)], np.int32), np.array([0, -1], np.int32)),
    "power": (np.array([2, 3]), np.array([-1, 2])),
    "log": (np.array([0.0, -1.0]),),
    "exp": (np.array([1000.0, -1000.0]),),
    "subtract": (np.array([np.inf, 1.0]), np.array([np.inf, 1.0])),
}


@pytest.mark.parametrize("setting", ["ignore", "warn", "raise", "print", "call", "log"])
@pytest.mark.parametrize("name", TROUBLE)
def test_errstate(name: str, setting: Any, capfd: pytest.CaptureFixture[str]) -> None:
    if setting == "print" and np.__version__.startswith("1."):
        pytest.skip("numpy 1 prints the first of several warnings")
    inputs = TROUBLE[name]
    seen: list[Any] = []

    class Log(io.StringIO):
        def __call__(self, words: str, status: int) -> None:
            seen.append((words, status))

    def run(optimize: bool, copies: int) -> Any:
        seen.clear()
        log = Log()
        args = [np.tile(x, copies) for x in inputs]
        with np.errstate(all=setting, call=log):
            got = outcome(machine(kernels.PREFIX + name, optimize), *args, np.zeros_like(args[0]))
        return got, list(seen), log.getvalue(), capfd.readouterr().err

    for copies in (1, 3000):
        assert run(True, copies) == run(False, copies)


@pytest.mark.parametrize("setting", ["call", "log"])
def test_errstate_without_a_callback(setting: Any) -> None:
    x = np.array([0.0])
    with np.errstate(all=setting, call=None):
        error, _, _ = assert_same(kernels.PREFIX + "log", lambda: (x, np.zeros(1)))
    assert error is not None
    assert error[0] is NameError


def test_settings_differ_by_kind() -> None:
    x = np.array([0.0, -1.0])
    for divide in ("ignore", "warn", "raise"):
        for invalid in ("ignore", "warn", "raise"):
            with np.errstate(divide=divide, invalid=invalid):
                assert_same_on(kernels.PREFIX + "log", x, np.zeros(2))


def test_earlier_floating_point_errors_are_not_reported() -> None:
    """Python's arithmetic leaves the overflow status set."""
    one = np.ones(4)
    for make in (lambda: (one, one, np.zeros(4)), lambda: (one * 1, one, None)):
        x, y, out = make()
        out = x if out is None else out
        huge = 1e308
        assert huge * 10 == float("inf")
        with np.errstate(all="raise"):
            machine(ADD, True).main(x, y, out)
        assert out.tolist() == [2.0] * 4


def test_in_place_errors_are_reported_once() -> None:
    x = np.array([-1.0, 4.0])
    vm = machine(kernels.PREFIX + "sqrt", True)
    with pytest.warns(RuntimeWarning, match="invalid value encountered in sqrt") as caught:
        vm.main(x, x)
    assert len(caught) == 1
    assert x[1] == 2.0
    vm.main(np.ones(2), x)  # and not again later


def test_an_error_names_its_place() -> None:
    vm = machine(kernels.PREFIX + "log", True)
    wanted = pytest.raises(FloatingPointError, match="divide by zero encountered in log")
    with np.errstate(all="raise"), wanted as caught:
        vm.main(np.zeros(1), np.zeros(1))
    assert any("main" in note and "relaxvm.kernel.log" in note for note in caught.value.__notes__)


def test_report_status_is_silent_on_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_status(0, "add")
        with pytest.raises(RuntimeWarning, match="overflow encountered in add"):
            report_status(2, "add")


# References, threads, instruments


def test_the_result_register_is_none() -> None:
    assert machine(ADD, True).main(np.ones(2), np.ones(2), np.zeros(2)) is None


def test_references() -> None:
    x, y, out = np.ones(2), np.ones(2), np.zeros(2)
    before = [sys.getrefcount(a) for a in (x, y, out)]
    for _ in range(50):
        machine(ADD, True).main(x, y, out)
    assert [sys.getrefcount(a) for a in (x, y, out)] == before


def test_other_threads_run_during_long_loops() -> None:
    """A thread makes progress while another one runs a very long kernel."""
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        for _ in range(50):
            b.emit_call(EXP, [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    vm = VirtualMachine(b.get())
    x = np.ones(1 << 18, "f4")
    outs = [np.zeros_like(x) for _ in range(3)]
    threads = [threading.Thread(target=vm.main, args=(x, out)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        assert out.tobytes() == np.exp(x).tobytes()


def test_an_instrument_sees_the_call() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call(EXP, [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    vm = VirtualMachine(b.get())
    names = []
    vm.set_instrument(lambda func, name, before, ret, *args: names.append(name))
    vm.main(np.ones(2), np.ones(2))
    assert EXP in names


def test_a_kernel_given_to_the_vm_is_called() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call(EXP, [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    calls = []
    vm = VirtualMachine(b.get(), functions={EXP: lambda x, out: calls.append(1)})
    assert vm.main(np.ones(2), np.zeros(2)).tolist() == [0.0, 0.0]
    assert calls == [1]


def test_wall_time_and_cancellation_are_checked() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call(EXP, [b.r(0), b.r(1)])
        b.emit_goto(-1)
        b.emit_ret(b.r(1))
    x = np.ones(1000)
    vm = VirtualMachine(b.get(), limits=Limits(wall_time=0.05))
    with pytest.raises(LimitError, match="wall_time"):
        vm.main(x, np.zeros_like(x))
