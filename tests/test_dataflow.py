"""The dataflow executor: results, errors and warnings are those of the sequential machine."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import _core, ir, op
from relaxvm.errors import CancelledError, LimitError
from relaxvm.limits import Limits
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.vm.dataflow import Batches

from .children import run_script
from .relax_generator import generate, packed_functions

MIB = 1 << 20


@pytest.fixture(params=[True, False], ids=["always", "by-time"])
def always(request: pytest.FixtureRequest) -> Iterator[None]:
    """Independent calls run side by side in all cases, or where that seems to be faster."""
    _core.always_beside(request.param)
    yield
    _core.always_beside(False)


@pytest.fixture
def beside() -> Iterator[None]:
    _core.always_beside(True)
    yield
    _core.always_beside(False)


def both(
    executable: relaxvm.VMExecutable, threads: int = 3, **options: Any
) -> tuple[relaxvm.VirtualMachine, relaxvm.VirtualMachine]:
    return (
        relaxvm.VirtualMachine(executable, **options),
        relaxvm.VirtualMachine(executable, executor="dataflow", threads=threads, **options),
    )


def batches_of(vm: relaxvm.VirtualMachine) -> Batches:
    found = vm._batches
    assert found is not None
    return found


@I.ir_module
class Branches:
    """Four chains of kernels that join."""

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        ("n", 64), "float32"
    ):  # fmt: skip
        with R.dataflow():
            a = R.matmul(x, w)
            a1 = R.nn.softmax(a)
            b = R.matmul(R.nn.softmax(x), w)
            c = R.nn.softmax(R.matmul(x, R.permute_dims(w)))
            d = R.cumsum(x, axis=1)
            e = R.nn.softmax(d)
            ab = R.matmul(a1, R.permute_dims(b))
            y = R.add(R.matmul(ab, c), e)
            R.output(y)
        return y


def branches(**options: Any) -> relaxvm.VMExecutable:
    return relaxvm.build(Branches, relax_pipeline="dataflow", **options)


def inputs(rows: int = 40, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((rows, 64), dtype=np.float32),
        rng.standard_normal((64, 64), dtype=np.float32),
    )


# ---- results ---------------------------------------------------------------------------------


def test_independent_calls_run_on_several_threads(beside: None) -> None:
    x, w = inputs()
    expected, vm = both(branches())
    with relaxvm.schedule(vm) as schedule:
        got = [vm.main(x, w) for _ in range(20)]
    for each in got:
        np.testing.assert_array_equal(each, expected.main(x, w))
    assert len(schedule.calls) >= 20 * 8
    assert {call.thread for call in schedule.calls} - {0}
    assert all(call.end_ns > call.start_ns >= 0 for call in schedule.calls)


def test_random_programs_give_the_same_results(always: None) -> None:
    batches = 0
    for seed in range(120):
        program = generate(seed)
        pipeline = "dataflow" if seed % 2 else "default"
        logs: list[list[Any]] = [[], []]
        executable = relaxvm.build(program.module, relax_pipeline=pipeline)
        one = relaxvm.VirtualMachine(executable, functions=packed_functions(logs[0]))
        two = relaxvm.VirtualMachine(executable, functions=packed_functions(logs[1]),
                                     executor="dataflow", threads=1 + seed % 4)  # fmt: skip
        batches += len(batches_of(two).joins)
        for args in program.inputs:
            for _ in range(3):
                assert_same(outcome(two, args), outcome(one, args), f"seed {seed}")
        assert len(logs[0]) == len(logs[1]), f"seed {seed}"
    assert batches > 50


def outcome(vm: relaxvm.VirtualMachine, args: list[Any]) -> Any:
    try:
        return vm["main"](*args)
    except (RuntimeError, ValueError) as error:
        return type(error).__name__, str(error), *getattr(error, "__notes__", ())


def assert_same(got: Any, expected: Any, where: str) -> None:
    if isinstance(expected, tuple):
        assert len(got) == len(expected), where
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b, where)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype, where
        np.testing.assert_array_equal(got, expected, err_msg=where)
    elif isinstance(expected, str):
        assert got == expected, where
    else:
        assert type(got) is type(expected), where


def memory_program(seed: int, calls: int = 60) -> tuple[relaxvm.VMExecutable, int]:
    """A program in which random kernels read and write overlapping parts of a few storages."""
    rng = random.Random(seed)
    ib = relaxvm.ExecBuilder()
    storages, elements = 3, 600
    with ib.function("main", num_inputs=1, param_names=["x"]):
        register = iter(range(1, 10_000))
        float32 = ib.convert_constant(np.dtype("float32"))
        held = []
        for _ in range(storages):
            held.append(next(register))
            ib.emit_call("vm.builtin.alloc_storage", [
                ib.vm_state(), relaxvm.Shape([4 * elements]), ib.imm(0), float32,
                ib.convert_constant("global"),
            ], dst=ib.r(held[-1]))  # fmt: skip
        whole = []
        for storage in held:
            whole.append(next(register))
            emit_tensor(ib, storage, 0, elements, whole[-1])
            ib.emit_call("relaxvm.kernel.add", [ib.r(0), ib.imm(storage), ib.r(whole[-1])])
        for _ in range(calls):
            size = rng.choice([50, 100, 200])
            views = []
            for _ in range(3):
                views.append(next(register))
                emit_tensor(ib, rng.choice(held), 4 * rng.randrange(0, elements - size + 1), size,
                            views[-1])  # fmt: skip
            name = rng.choice(["add", "subtract", "maximum"])
            ib.emit_call(f"relaxvm.kernel.{name}", [ib.r(view) for view in views])
            if rng.random() < 0.2:
                ib.emit_call("vm.builtin.null_value", [], dst=ib.r(rng.choice(views)))
        result = next(register)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(each) for each in whole], dst=ib.r(result))
        ib.emit_ret(ib.r(result))
    return ib.get(), elements


def emit_tensor(ib: Any, storage: int, offset: int, size: int, dst: int) -> None:
    ib.emit_call("vm.builtin.alloc_tensor", [
        ib.r(storage), ib.imm(offset), relaxvm.Shape([size]),
        ib.convert_constant(np.dtype("float32")),
    ], dst=ib.r(dst))  # fmt: skip


def test_overlapping_memory_is_written_in_order(beside: None) -> None:
    deferred = 0
    for seed in range(60):
        executable, elements = memory_program(seed)
        one, two = both(executable)
        x = np.random.default_rng(seed).integers(-9, 9, elements).astype(np.float32)
        deferred += len(batches_of(two).calls)
        for _ in range(3):
            for got, expected in zip(two.main(x), one.main(x), strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")
    assert deferred > 1000


def test_arguments_that_are_one_array(beside: None) -> None:
    x, _ = inputs(64)
    one, two = both(branches())
    np.testing.assert_array_equal(two.main(x, x), one.main(x, x))


def test_several_threads_share_a_machine(beside: None) -> None:
    _, vm = both(branches())
    cases = [inputs(rows, rows) for rows in (1, 7, 40, 90)]
    expected = [relaxvm.VirtualMachine(branches()).main(*case) for case in cases]

    def work(which: int) -> None:
        for _ in range(30):
            np.testing.assert_array_equal(vm.main(*cases[which]), expected[which])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [0, 1, 2, 3]))


def test_results_do_not_keep_arguments_alive(beside: None) -> None:
    vm = both(branches())[1]
    x, w = inputs()
    counts = []
    for _ in range(3):
        vm.main(x, w)
        gc.collect()
        live = str(vm.memory_stats()).partition(" at the peak")[0]
        counts.append((sys.getrefcount(x), sys.getrefcount(w), live))
    assert counts == counts[:1] * 3


def test_pickle_and_copy_keep_the_executor() -> None:
    vm = both(branches())[1]
    again = pickle.loads(pickle.dumps(vm))
    assert again.executor == "dataflow"
    x, w = inputs()
    np.testing.assert_array_equal(again.main(x, w), vm.main(x, w))


def test_runs_that_are_stepped_and_saved(beside: None, tmp_path: Any) -> None:
    vm = both(branches())[1]
    x, w = inputs()
    run = vm["main"].start(x, w)
    for _ in range(10):
        run.step()
    run.save(tmp_path / "run")
    again = relaxvm.load_run(tmp_path / "run", vm)
    again.resume()
    np.testing.assert_array_equal(again.result(), vm.main(x, w))


# ---- errors ----------------------------------------------------------------------------------


def failing(first: bool, second: bool) -> relaxvm.VMExecutable:
    """Two chains, of which the first takes longer; one fails where its last kernel gets a tensor of
    another shape."""
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("vm.builtin.alloc_storage", [
            ib.vm_state(), relaxvm.Shape([1 << 20]), ib.imm(0),
            ib.convert_constant(np.dtype("uint8")),
            ib.convert_constant("global"),
        ], dst=ib.r(2))  # fmt: skip
        emit_tensor(ib, 2, 0, 100_000, 3)
        emit_tensor(ib, 2, 400_000, 100_000, 4)
        emit_tensor(ib, 2, 800_000, 10, 5)
        emit_tensor(ib, 2, 800_064, 10, 6)
        ib.emit_call("relaxvm.kernel.exp", [ib.r(0), ib.r(3)])
        ib.emit_call("relaxvm.kernel.exp", [ib.r(3), ib.r(4 if not first else 5)])
        ib.emit_call("relaxvm.kernel.exp", [ib.r(1), ib.r(5 if not second else 4)])
        ib.emit_call("relaxvm.kernel.exp", [ib.r(1), ib.r(6)])
        ib.emit_call("vm.builtin.make_tuple", [ib.r(i) for i in (3, 4, 5, 6)], dst=ib.r(7))
        ib.emit_ret(ib.r(7))
    return ib.get()


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_the_first_error_in_the_order_of_the_program_is_raised(
    always: None, first: bool, second: bool
) -> None:
    x, y = np.zeros(100_000, np.float32), np.zeros(10, np.float32)
    one, two = both(failing(first, second))
    assert batches_of(two).calls
    for _ in range(10):
        with pytest.raises(ValueError) as expected:
            one.main(x, y)
        with pytest.raises(ValueError) as got:
            two.main(x, y)
        assert str(got.value) == str(expected.value)
        assert got.value.__notes__ == expected.value.__notes__


def test_an_error_between_calls_comes_after_theirs(always: None) -> None:
    """An allocation fails while calls before it, which fail as well, are put off."""
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=2, param_names=["x", "shape"]):
        ib.emit_call("vm.builtin.alloc_storage", [
            ib.vm_state(), relaxvm.Shape([4000]), ib.imm(0), ib.convert_constant(np.dtype("uint8")),
            ib.convert_constant("global"),
        ], dst=ib.r(2))  # fmt: skip
        emit_tensor(ib, 2, 0, 10, 3)
        emit_tensor(ib, 2, 64, 11, 4)
        ib.emit_call("relaxvm.kernel.exp", [ib.r(0), ib.r(3)])
        ib.emit_call("relaxvm.kernel.exp", [ib.r(0), ib.r(4)])
        ib.emit_call("vm.builtin.alloc_tensor", [
            ib.r(2), ib.imm(0), ib.r(1), ib.convert_constant(np.dtype("float32")),
        ], dst=ib.r(5))  # fmt: skip
        ib.emit_call("relaxvm.kernel.exp", [ib.r(0), ib.r(5)])
        ib.emit_ret(ib.r(5))
    one, two = both(ib.get())
    x = np.zeros(10, np.float32)
    for vm in (one, two):
        with pytest.raises(ValueError, match=r"got float32\[11\]") as caught:
            vm.main(x, relaxvm.Shape([1 << 40]))
        assert "pc 4" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("action", ["always", "error"])
def test_warnings_come_in_the_order_of_the_program(
    always: None, action: Any
) -> None:
    one, two = both(failing(False, False))
    x = np.full(100_000, 200, np.float32)
    y = np.full(10, 300, np.float32)
    told = []
    for vm in (one, two):
        for _ in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter(action)
                try:
                    vm.main(x, y)
                    error = None
                except RuntimeWarning as raised:
                    error = str(raised)
            told.append(([str(each.message) for each in caught], error))
    assert told == told[:1] * 6
    assert told[0] != ([], None)


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="settings of a thread, not of a context"
)
def test_numpys_settings_hold_on_all_threads(beside: None) -> None:
    one, two = both(failing(False, False))
    x, y = np.full(100_000, 200, np.float32), np.full(10, 300, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(all="ignore"):
            for got, expected in zip(two.main(x, y), one.main(x, y), strict=True):
                np.testing.assert_array_equal(got, expected)
    with np.errstate(over="raise"):
        for vm in (one, two):
            with pytest.raises(FloatingPointError):
                vm.main(x, y)


# ---- limits, hooks, signals ------------------------------------------------------------------


def test_with_limits_calls_run_in_order(beside: None) -> None:
    x, w = inputs()
    executable = branches()
    vm = relaxvm.VirtualMachine(executable, executor="dataflow", threads=2,
                                limits=Limits(fuel=10_000, live_bytes=64 * MIB))  # fmt: skip
    with relaxvm.schedule(vm) as schedule:
        np.testing.assert_array_equal(vm.main(x, w), relaxvm.VirtualMachine(executable).main(x, w))
    assert schedule.calls == ()
    vm = relaxvm.VirtualMachine(executable, executor="dataflow", limits=Limits(fuel=5))
    with pytest.raises(LimitError, match="fuel"):
        vm.main(x, w)


def test_a_run_inside_of_one_with_limits_is_in_order(beside: None) -> None:
    x, w = inputs()
    inner = both(branches())[1]
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("inner", [ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    outer = relaxvm.VirtualMachine(
        ib.get(), functions={"inner": inner["main"]}, limits=Limits(live_bytes=64 * MIB)
    )
    with relaxvm.schedule(inner) as schedule:
        outer.main(x, w)
    assert {call.thread for call in schedule.calls} == {0}


def test_an_instrument_sees_calls_in_order(beside: None) -> None:
    x, w = inputs()
    seen: list[list[tuple[int, str]]] = []
    for vm in both(branches()):
        calls: list[tuple[int, str]] = []
        vm.set_instrument(lambda func, name, before, ret, *args, calls=calls: calls.append(
            (before, name)))  # fmt: skip
        vm.main(x, w)
        seen.append(calls)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 20
    with relaxvm.profile(both(branches())[1]) as profile:
        pass
    assert profile.functions == ()


def long_branches(
    rows: int = 60_000, threads: int = 2
) -> tuple[relaxvm.VirtualMachine, Any, Any]:
    vm = both(branches(), threads=threads)[1]
    x, w = inputs(64)
    vm.main(x, w)
    rng = np.random.default_rng(0)
    return vm, rng.standard_normal((rows, 64), dtype=np.float32), w


def test_a_run_is_cancelled(beside: None) -> None:
    vm, x, w = long_branches()
    failed = []

    def work() -> None:
        try:
            vm["main"](x, w)
        except CancelledError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        vm.cancel()
        time.sleep(0.01)
    thread.join()
    assert len(failed) == 1
    small, _ = inputs(64)
    assert vm.main(small, w).shape == (64, 64)  # the machine goes on


def test_ctrl_c_ends_a_batch() -> None:
    run_script("""
import os, signal, threading, time
import numpy as np
from tests.test_dataflow import long_branches
from relaxvm import _core
_core.always_beside(True)
vm, x, w = long_branches()
def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    while True:
        vm.main(x, w)
except KeyboardInterrupt:
    print("interrupted")
assert vm.main(x[:64], w).shape == (64, 64)
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("threads", [2, 5])
def test_a_handler_of_signals_forks_in_the_middle_of_a_batch(threads: int) -> None:
    run_script(f"threads = {threads}" + """
import os, signal, threading, time
import numpy as np
from tests.test_dataflow import long_branches
from relaxvm import _core
import relaxvm
_core.always_beside(True)
vm, x, w = long_branches(20_000, threads)
x = x[:3_000]
expected = vm.main(x, w)
pids = []
def fork(*_):
    pids.append(os.fork())
signal.signal(signal.SIGALRM, fork)
forks = 0
for attempt in range(200):
    del pids[:]
    signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0003 * (attempt % 20))
    got = vm.main(x, w)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert (got == expected).all()
    for pid in list(pids):
        if pid == 0:
            assert (vm.main(x, w) == expected).all()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        forks += 1
    if forks >= 10:
        break
assert forks >= 10, forks
""")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that send signals")
def test_a_handler_of_signals_runs_the_machine_while_calls_are_put_off() -> None:
    """Its runs find that batches there gain nothing, but the batch that has begun goes on."""
    run_script("""
import signal
import numpy as np
from tests.test_dataflow import both, two_chains
one, vm = both(two_chains(60), threads=2, optimize=False)
x = np.random.default_rng(0).random((5, 8), dtype="float32")
expected = one.main(x)
def run(*_):
    for _ in range(40):
        vm.main(x)
signal.signal(signal.SIGALRM, run)
for attempt in range(60):
    vm = both(vm.executable, threads=2, optimize=False)[1]
    vm.main(x)
    signal.setitimer(signal.ITIMER_REAL, 0.00002 + 0.00002 * (attempt % 30))
    got = vm.main(x)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
""")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that send signals")
def test_ctrl_c_counts_more_than_an_error_of_a_call_that_is_put_off() -> None:
    run_script("""
import signal
import numpy as np
from tests.test_dataflow import both, failing_early
x = np.zeros(10, np.float32)
came = False
def interrupt(signum, frame):
    global came
    came = frame.f_code.co_name == "alloc_tensor"
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
for attempt in range(200):
    vm = both(failing_early(), threads=2, optimize=False)[1]
    came = False
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00002 + 0.00002 * (attempt % 40))
        try:
            vm.main(x)
        except ValueError:
            assert not came
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
""")


def failing_early() -> relaxvm.VMExecutable:
    """A batch whose first call fails, and many allocations before its end."""
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=1, param_names=["x"]):
        ib.emit_call("vm.builtin.alloc_storage", [
            ib.vm_state(), relaxvm.Shape([4000]), ib.imm(0), ib.convert_constant(np.dtype("uint8")),
            ib.convert_constant("global"),
        ], dst=ib.r(1))  # fmt: skip
        emit_tensor(ib, 1, 0, 11, 2)
        emit_tensor(ib, 1, 64, 10, 3)
        ib.emit_call("relaxvm.kernel.exp", [ib.r(0), ib.r(2)])
        for _ in range(300):
            emit_tensor(ib, 1, 128, 10, 4)
        ib.emit_call("relaxvm.kernel.exp", [ib.r(0), ib.r(3)])
        ib.emit_ret(ib.r(3))
    return ib.get()


def two_chains(length: int) -> relaxvm.VMExecutable:
    """A batch of two chains of calls, which are too short to gain from several threads."""
    builder = ir.BlockBuilder()
    x = ir.Var("x", ir.TensorType((5, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = b = x
            for _ in range(length):
                a = builder.emit(op.cumsum(a, axis=1))
                b = builder.emit(op.nn.softmax(b))
            ends = builder.emit_output(ir.Tuple([a, b]))
        builder.emit_func_output(ends)
    return relaxvm.build(builder.get(), relax_pipeline="dataflow")


# ---- arguments and what is found --------------------------------------------------------------


def test_wrong_arguments() -> None:
    executable = branches()
    wrong: Any = "x"
    with pytest.raises(ValueError, match="executor: expected 'sequential' or 'dataflow', got"):
        relaxvm.VirtualMachine(executable, executor=wrong)
    wrongs: list[Any] = [0, -1, 257, True, "2", 1.0]
    for threads in wrongs:
        with pytest.raises(ValueError, match="threads: expected an int from 1 to 256, or None"):
            relaxvm.VirtualMachine(
                executable, executor="dataflow", threads=threads,
            )  # fmt: skip
    with pytest.raises(ValueError, match='threads: for executor="dataflow"'):
        relaxvm.VirtualMachine(executable, threads=2)
    with pytest.raises(ValueError, match='executor: "dataflow" runs bytecode'):
        relaxvm.VirtualMachine(executable, executor="dataflow", jit=True)
    with pytest.raises(ValueError, match="calls in order"):
        relaxvm.schedule(relaxvm.VirtualMachine(executable))
    with pytest.raises(TypeError, match=r"expected a relaxvm\.VirtualMachine"):
        relaxvm.schedule(wrong)


def test_a_chain_is_not_put_off() -> None:
    @I.ir_module
    class Chain:
        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            with R.dataflow():
                a = R.matmul(x, x)
                b = R.nn.softmax(a)
                c = R.matmul(b, b)
                d = R.nn.softmax(c)
                R.output(d)
            return d

    vm = relaxvm.VirtualMachine(
        relaxvm.build(Chain, relax_pipeline="dataflow"), executor="dataflow"
    )
    assert batches_of(vm).calls == {}
    plain = relaxvm.VirtualMachine(vm.executable)
    assert str(vm["main"].translated) == str(plain["main"].translated)


def test_small_calls_are_not_put_off() -> None:
    @I.ir_module
    class Small:
        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            with R.dataflow():
                a = R.matmul(x, x)
                b = R.nn.softmax(x)
                c = R.matmul(a, b)
                R.output(c)
            return c

    vm = relaxvm.VirtualMachine(
        relaxvm.build(Small, relax_pipeline="dataflow"), executor="dataflow"
    )
    assert batches_of(vm).calls == {}


def test_functions_of_the_user_are_not_put_off(beside: None) -> None:
    """They may do anything; kernels of the user of the same name, too."""
    x, w = inputs()
    calls: list[str] = []

    def softmax(*args: Any) -> None:
        calls.append(threading.current_thread().name)
        kernel = relaxvm.get_func("relaxvm.kernel.nn.softmax")
        kernel(*args)

    functions = dict.fromkeys(
        [info.name for info in branches().functions if info.name == "relaxvm.kernel.nn.softmax"],
        softmax,
    )
    vm = relaxvm.VirtualMachine(branches(), functions=functions, executor="dataflow", threads=3)
    vm.main(x, w)
    assert set(calls) <= {threading.current_thread().name}
    assert calls


def test_memory_of_branches_is_kept_apart() -> None:
    apart = both(branches())[1]
    shared = both(relaxvm.build(Branches))[1]
    assert len(batches_of(apart).calls) > 4
    assert len(batches_of(apart).calls) >= len(shared._batches.calls)


def test_the_schedule_is_a_picture(beside: None, tmp_path: Any) -> None:
    vm = both(branches())[1]
    with relaxvm.schedule(vm) as schedule:
        vm.main(*inputs())
    assert "calls" in str(schedule)
    assert schedule.gain >= 1
    trace = schedule.chrome_trace()
    assert len([e for e in trace["traceEvents"] if e["ph"] == "X"]) == len(schedule.calls)
    schedule.save_chrome_trace(tmp_path / "trace.json")
    schedule.timeline().save(tmp_path / "schedule.html")
    assert "the caller" in (tmp_path / "schedule.html").read_text()
    variables = {call.variable for call in schedule.calls}
    assert {"d", "c"} & variables, variables


def test_the_timeline_of_a_profile_has_the_schedule(beside: None) -> None:
    vm = both(branches())[1]
    with relaxvm.profile(vm) as profile:
        vm.main(*inputs())
    with relaxvm.schedule(vm) as schedule:
        vm.main(*inputs())
    own = profile.timeline().lanes
    lanes = profile.timeline(schedule).lanes
    assert lanes[: len(own)] == own
    rows = dict(lanes[len(own) :])
    assert all(name.startswith("side by side, ") for name in rows)
    assert sum(map(len, rows.values())) == len(schedule.calls) > 0
