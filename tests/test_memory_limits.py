"""What a run under limits makes is counted, and stays within them."""

from __future__ import annotations

import _thread
import gc
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.core.operations import REWRITINGS
from relaxvm.errors import CancelledError, LimitError
from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.executable.formats._tensors import MAX_RANK
from relaxvm.limits import Limits
from relaxvm.vm import VirtualMachine

from . import children

MIB = 1 << 20
SLACK = 64 * 1024
"""So far the arrays of numpy may go beyond the limit of live bytes."""


def machine(call: Callable[..., Any] | None = None, **limits: Any) -> VirtualMachine:
    """``main(x)`` calls a function on x and returns what that gives."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("t.call", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    functions = {"t.call": np.zeros if call is None else call}
    return VirtualMachine(b.get(), limits=Limits(**limits), functions=functions)


def live(vm: VirtualMachine) -> int:
    return vm.memory_stats().live_bytes


def test_an_array_counts_from_when_it_is_made_until_it_is_gone() -> None:
    vm = machine(live_bytes=4 * MIB)
    kept = [vm.main(MIB // 8) for _ in range(4)]
    assert live(vm) == 4 * MIB
    with pytest.raises(LimitError, match=f"131072 bytes: {4 * MIB} are live") as caught:
        vm.main(MIB // 64)
    assert caught.value.limit == "live_bytes"
    assert caught.value.__notes__, "it says where"
    view = kept.pop()[5:7]
    gc.collect()
    assert live(vm) == 4 * MIB, "the view keeps it"
    del view
    assert live(vm) == 3 * MIB
    assert len(vm.main(MIB // 8)) == MIB // 8
    kept.clear()
    assert live(vm) == 0
    assert vm.memory_stats().peak_bytes == 4 * MIB


def test_a_single_allocation() -> None:
    vm = machine(alloc_bytes=MIB)
    assert vm.main(MIB // 8).nbytes == MIB
    with pytest.raises(LimitError, match=f"{MIB + 8} bytes: above the limit") as caught:
        vm.main(MIB // 8 + 1)
    assert caught.value.limit == "alloc_bytes"


@pytest.mark.parametrize("limits", [{"alloc_bytes": MIB}, {"live_bytes": MIB}])
def test_every_way_to_make_an_array(limits: dict[str, int]) -> None:
    count = 2 * MIB
    big = np.ones(count, np.uint8)
    ways: list[Callable[[Any], Any]] = [
        lambda x: np.empty(count, np.uint8),
        lambda x: np.zeros(count, np.uint8),
        lambda x: x + x,
        lambda x: np.fromiter((1 for _ in range(count)), np.uint8),
        lambda x: x[:100].copy().resize(count),
        lambda x: np.sort(x),
        lambda x: np.argsort(x),
        lambda x: x.nonzero(),
        lambda x: np.unique(x.view(np.float32), return_inverse=True),
        lambda x: x.tolist() and np.array([7] * count),
        lambda x: np.einsum("i,j->ij", x[:3000], x[:3000]),
        lambda x: np.stack([x, x]),
        lambda x: x.reshape(2, -1).T.reshape(-1),
        lambda x: x[::2][np.arange(count // 2)],
    ]
    for way in ways:
        with pytest.raises(LimitError):
            machine(way, **limits).main(big)


def test_absurd_sizes() -> None:
    for size in (1 << 40, 1 << 59, (1 << 60) - 1):
        with pytest.raises((LimitError, ValueError)):
            machine(live_bytes=MIB).main(size)


def test_arrays_from_outside_do_not_count() -> None:
    vm = machine(lambda x: x[1:], live_bytes=MIB)
    assert vm.main(np.zeros(4 * MIB, np.uint8)).size == 4 * MIB - 1
    assert live(vm) == 0


def test_without_limits_nothing_is_counted() -> None:
    vm = machine()
    kept = vm.main(MIB)
    assert kept.nbytes == 8 * MIB
    assert live(vm) == 0


def test_counting_ends_with_the_run() -> None:
    def fail(x: int) -> None:
        np.zeros(x)
        raise KeyError("no")

    vm = machine(live_bytes=MIB)
    bad = machine(fail, live_bytes=MIB)
    for _ in range(3):
        with pytest.raises(LimitError):
            vm.main(MIB)
        with pytest.raises(KeyError):
            bad.main(8)
        assert np.ones(4 * MIB).sum() == 4 * MIB, "not in a run"
        assert live(vm) == live(bad) == 0


def test_a_run_inside_a_run_counts_for_its_own_machine() -> None:
    inner = machine(live_bytes=MIB)

    def call(x: int) -> Any:
        first = np.zeros(x)
        second = inner.main(x)
        return first, second, np.zeros(x)

    outer = machine(call, live_bytes=2 * MIB)
    kept = outer.main(100_000)
    assert (live(outer), live(inner)) == (1_600_000, 800_000)
    with pytest.raises(LimitError, match=f"live_bytes={2 * MIB}"):
        outer.main(100_000)
    del kept
    assert (live(outer), live(inner)) == (0, 0)


def test_a_memory_error_of_the_system_stays_one() -> None:
    def fail(x: Any) -> None:
        raise MemoryError("really")

    with pytest.raises(MemoryError, match="really") as caught:
        machine(fail, live_bytes=MIB).main(1)
    assert not isinstance(caught.value, LimitError)


def test_a_function_may_live_with_less() -> None:
    def call(x: int) -> Any:
        try:
            return np.zeros(x)
        except MemoryError:
            return np.zeros(x // 100)

    assert machine(call, live_bytes=MIB).main(MIB).size == MIB // 100


def test_small_arrays_at_the_limit() -> None:
    """A limit that storages fill exactly leaves room for the small arrays of numpy."""
    vm = machine(live_bytes=MIB)
    kept = vm.main(MIB // 8)
    small = [vm.main(1) for _ in range(SLACK // 8)]
    with pytest.raises(LimitError, match="live_bytes"):
        vm.main(1)
    assert kept.size
    assert len(small) == SLACK // 8


def test_the_result_outlives_its_machine() -> None:
    kept = machine(live_bytes=MIB).main(10)
    gc.collect()
    kept += 1
    assert kept.tolist() == [1.0] * 10


def test_threads_count_for_the_machine_they_run() -> None:
    vm = machine(live_bytes=64 * MIB)
    kept: list[Any] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(200):
            vm.main(1000)
        kept.append(vm.main(1000))
        np.zeros(1000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live(vm) == 4 * 8000
    kept.clear()
    assert live(vm) == 0


def test_what_a_pool_keeps_is_bounded() -> None:
    """Storages of ever other sizes, one after the other."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["shape"]):
        kind = b.convert_constant(np.dtype("uint8"))
        b.emit_call(
            "vm.builtin.alloc_storage", [b.vm_state(), b.r(0), b.imm(-1), kind], dst=b.r(1)
        )
        b.emit_ret(b.r(1))
    vm = VirtualMachine(b.get(), limits=Limits(live_bytes=8 * MIB))
    for size in range(4 * MIB, 8 * MIB, MIB // 2):
        vm.main(relaxvm.Shape([size]))
        assert vm.memory_stats().cached_bytes <= MIB
    for _ in range(3):
        vm.main(relaxvm.Shape([MIB // 2]))
        assert vm.memory_stats().cached_bytes == MIB // 2, "small ones are used again"


# Objects that are not arrays


def loop(body: Callable[[ExecBuilder], None], *, keep: bool = True) -> relaxvm.VMExecutable:
    """``main(x)``: an endless loop over a body that changes register 1, which begins as None."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.null_value", [], dst=b.r(1))
        again = b.label()
        b.bind(again)
        body(b)
        if not keep:
            b.emit_call("vm.builtin.null_value", [], dst=b.r(1))
        b.emit_goto(again)
        b.emit_ret(b.r(0))
    return b.get()


def pair(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(1))


def wide_tuples(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.make_tuple", [b.r(0)] * 1000, dst=b.r(2))
    pair(b)


def closures(b: ExecBuilder) -> None:
    for _ in range(10):
        b.emit_call("vm.builtin.make_closure", [b.f("main"), b.r(1)], dst=b.r(1))


def shapes(b: ExecBuilder) -> None:
    dims = [b.imm(0), b.imm(1 << 40)] * 60
    b.emit_call("vm.builtin.make_shape", [b.void_arg(), b.imm(60), *dims], dst=b.r(2))
    pair(b)


def views(b: ExecBuilder) -> None:
    one = b.convert_constant(np.zeros(1))
    shape = b.convert_constant(relaxvm.Shape([1] * min(60, MAX_RANK)))
    for _ in range(20):
        b.emit_call("vm.builtin.reshape", [one, shape], dst=b.r(2))
        pair(b)


def strings(b: ExecBuilder) -> None:
    text, lengths = b.convert_constant("x" * 6_000), b.convert_constant((3_000, 3_000))
    b.emit_call("relaxvm.builtin.strings_from", [text, lengths], dst=b.r(2))
    pair(b)


def views_of_strings(b: ExecBuilder) -> None:
    text, lengths = b.convert_constant("x" * 6_000), b.convert_constant(relaxvm.Shape([6_000]))
    b.emit_call("relaxvm.builtin.strings_from", [text, lengths], dst=b.r(2))
    shape = b.convert_constant(relaxvm.Shape([1, 1]))
    b.emit_call("vm.builtin.reshape", [b.r(2), shape], dst=b.r(2))
    pair(b)


def maps(b: ExecBuilder) -> None:
    rows, keys = b.convert_constant(np.ones((2, 20))), b.convert_constant(np.arange(20))
    b.emit_call("relaxvm.builtin.maps_from", [rows, keys], dst=b.r(2))
    pair(b)


BODIES = [wide_tuples, closures, shapes, views, strings, views_of_strings, maps]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_objects_in_a_loop_are_counted(
    body: Callable[[ExecBuilder], None], optimize: bool
) -> None:
    limits = Limits(live_bytes=8 * MIB, fuel=3_000_000)
    vm = VirtualMachine(loop(body), limits=limits, functions={}, optimize=optimize)
    for _ in range(2):
        with pytest.raises(LimitError, match=f"limit .*{8 * MIB}") as caught:
            vm.main(7)
        assert caught.value.limit == "live_bytes"


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_objects_that_are_gone_do_not_count(body: Callable[[ExecBuilder], None]) -> None:
    limits = Limits(live_bytes=4 * MIB, fuel=200_000)
    vm = VirtualMachine(loop(body, keep=False), limits=limits, functions={})
    with pytest.raises(LimitError) as caught:
        vm.main(7)
    assert caught.value.limit == "fuel", "it ran to the end of its fuel"


def test_a_shared_object_counts_once() -> None:
    """Each pass makes a tuple of a thousand times the same tuple, and forgets the one before."""
    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.make_tuple", [b.r(0)] * 1000, dst=b.r(1))
        for _ in range(8):
            b.emit_call("vm.builtin.make_tuple", [b.r(1)] * 1000, dst=b.r(1))

    limits = Limits(live_bytes=4 * MIB, fuel=100_000)
    with pytest.raises(LimitError) as caught:
        VirtualMachine(loop(body, keep=False), limits=limits, functions={}).main(7)
    assert caught.value.limit == "fuel"


def test_the_objects_of_callers_count() -> None:
    """A function that calls itself holds a wide tuple in each of its frames, and one more after
    the call."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.make_tuple", [b.r(0)] * 1000, dst=b.r(1))
        b.emit_call("main", [b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))
    vm = VirtualMachine(b.get(), limits=Limits(live_bytes=8 * MIB), functions={})
    with pytest.raises(LimitError) as caught:
        vm.main(7)
    assert caught.value.limit == "live_bytes"


@pytest.mark.parametrize("same", [True, False])
def test_objects_of_a_run_inside_a_run(same: bool) -> None:
    """They count for the outer run if it is one of the same machine."""
    machines: list[VirtualMachine] = []

    def call(x: Any) -> Any:
        return machines[0]["inner"](x)

    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.null_value", [], dst=b.r(1))
        again = b.label()
        b.bind(again)
        for _ in range(20):
            b.emit_call("t.call", [b.r(0)], dst=b.r(2))
            pair(b)
        b.emit_goto(again)
        b.emit_ret(b.r(1))
    with b.function("inner", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.make_tuple", [b.r(0)] * 1000, dst=b.r(1))
        b.emit_ret(b.r(1))
    limits = Limits(live_bytes=4 * MIB)
    machines += [VirtualMachine(b.get(), limits=limits, functions={"t.call": call})
                 for _ in range(2)]  # fmt: skip
    with pytest.raises(LimitError) as caught:
        machines[0 if same else 1].main(7)
    assert caught.value.limit == "live_bytes", "also what another machine gave is in its registers"
    assert len(machines[0]["inner"](7)) == 1000


def test_big_shapes_are_refused_before_they_are_made() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.tensor_to_shape", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    vm = VirtualMachine(b.get(), limits=Limits(live_bytes=8 * MIB), functions={})
    assert len(vm.main(np.ones(1000, np.int64))) == 1000
    with pytest.raises(LimitError, match="bytes of objects") as caught:
        vm.main(np.ones(MIB, np.int64))
    assert caught.value.limit == "live_bytes"
    assert len(vm.main(np.ones(1000, np.int64))) == 1000


def use_registers(b: ExecBuilder, count: int) -> None:
    for i in range(1, count):
        b.emit_call("vm.builtin.null_value", [], dst=b.r(i))


UNSHARED = {rewriting.name for rewriting in REWRITINGS} - {"registers"}
"""Rewritings with which a frame has as many registers as the code names."""


def wide_recursion(registers: int) -> relaxvm.VMExecutable:
    """``main(x)`` calls itself without end, with so many registers in each frame."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        use_registers(b, registers)
        b.emit_call("main", [b.r(0)], dst=b.r(0))
        b.emit_ret(b.r(0))
    return b.get()


@pytest.mark.parametrize("registers", [10, 60_000])
def test_registers_of_deep_recursion_count(registers: int) -> None:
    limits = Limits(live_bytes=4 * MIB, call_depth=1_000_000)
    vm = VirtualMachine(wide_recursion(registers), limits=limits, optimize=UNSHARED)
    for _ in range(2):
        with pytest.raises(LimitError, match="frames") as caught:
            vm.main(1)
        assert caught.value.limit == "live_bytes"
    assert live(vm) == 0


def test_one_frame_that_is_too_wide() -> None:
    limits = Limits(live_bytes=1024)
    vm = VirtualMachine(wide_recursion(140_000), limits=limits, optimize=UNSHARED)
    with pytest.raises(LimitError, match="main: a frame of 11") as caught:
        vm.main(1)
    assert caught.value.limit == "live_bytes"


def test_frames_do_not_count_once_they_are_gone() -> None:
    b = ExecBuilder()
    with b.function("down", num_inputs=1):
        done = b.label()
        use_registers(b, 30_000)
        b.emit_call("t.more", [b.r(0)], dst=b.r(1))
        b.emit_if(b.r(1), done)
        b.emit_call("t.less", [b.r(0)], dst=b.r(0))
        b.emit_call("down", [b.r(0)], dst=b.r(0))
        b.bind(done)
        b.emit_ret(b.r(0))
    with b.function("main", num_inputs=1):
        for _ in range(3):
            b.emit_call("down", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    functions = {"t.more": lambda n: n > 0, "t.less": lambda n: n - 1}
    limits = Limits(live_bytes=4 * MIB)
    vm = VirtualMachine(b.get(), limits=limits, functions=functions, optimize=UNSHARED)
    assert vm.main(15) == 0  # 3.7 MiB each time
    with pytest.raises(LimitError, match="frames"):
        vm.main(25)


def census_program() -> relaxvm.VMExecutable:
    """``main(x, values)`` calls a function on x and then makes so many tuples that a census is due.
    It has no jump back, where the loop would look at signals as well."""
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call("t.call", [b.r(0)], dst=b.r(2))
        done = b.label()
        b.emit_if(b.r(0), done)
        for _ in range(150):
            b.emit_call("vm.builtin.make_tuple", [b.r(0)] * 1000, dst=b.r(3))
        b.bind(done)
        b.emit_ret(b.r(1))
    return b.get()


MANY = (("shared",),) * 100_000


def census_machine(call: Callable[..., Any]) -> VirtualMachine:
    limits = Limits(live_bytes=4 * MIB)
    return VirtualMachine(census_program(), limits=limits, functions={"t.call": call})


@pytest.mark.parametrize("cancels", [False, True])
def test_a_census_ends_with_ctrl_c_and_with_a_cancellation(cancels: bool) -> None:
    """The signal is there when the function returns.  If the census did not handle it, Python would
    do so after the run."""

    def handle(*args: Any) -> None:
        if cancels:
            vm.cancel()
        else:
            raise KeyboardInterrupt

    vm = census_machine(lambda x: None)
    assert vm.main(signal.SIGINT, MANY) is MANY
    vm = census_machine(_thread.interrupt_main)
    old = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(CancelledError if cancels else KeyboardInterrupt) as caught:
            vm.main(signal.SIGINT, MANY)
    finally:
        signal.signal(signal.SIGINT, old)
    assert "main" in caught.value.__notes__[0], "in the run"


def test_a_census_ends_with_the_time_of_its_run() -> None:
    """The program calls no function and does not jump back, so nothing else looks at the clock."""
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        for _ in range(150):
            b.emit_call("vm.builtin.make_tuple", [b.r(0)] * 1000, dst=b.r(2))
        b.emit_ret(b.r(1))
    limits = Limits(live_bytes=4 * MIB, wall_time=1e-6)
    vm = VirtualMachine(b.get(), limits=limits, functions={})
    assert vm.main(1, ()) == ()
    with pytest.raises(LimitError, match="took longer than 1e-06 s") as caught:
        vm.main(1, MANY)
    assert caught.value.limit == "wall_time"
    assert "main" in caught.value.__notes__[0], "in the run"


SMALL = """
import resource, sys
import numpy as np
from relaxvm import ExecBuilder, Limits, Shape, VirtualMachine

b = ExecBuilder()
with b.function("main", num_inputs=0):
    one, shape = b.convert_constant(np.zeros((1, 1), "f4")), b.convert_constant(Shape([1, 1]))
    kind = b.convert_constant(np.dtype("u1"))
    b.emit_call("vm.builtin.null_value", [], dst=b.r(1))
    again = b.label()
    b.bind(again)
    for _ in range(20):
        if sys.argv[1] == "storages":
            name, args = "alloc_storage", [b.vm_state(), shape, b.imm(0), kind]
        elif sys.argv[1] == "heaps":
            name, args = "alloc_shape_heap", [b.vm_state(), b.imm(0)]
        else:
            name, args = "attention_kv_cache_create", [one, shape, b.imm(1)]
        b.emit_call(f"vm.builtin.{name}", args, dst=b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(1))
    b.emit_goto(again)
    b.emit_ret(b.r(1))
vm = VirtualMachine(b.get(), limits=Limits(live_bytes=32 << 20), functions={})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    vm.main()
except Exception as error:
    print(error.limit, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maxrss in KiB")
@pytest.mark.parametrize("kind", ["storages", "heaps", "caches"])
def test_what_small_objects_take(kind: str) -> None:
    """Many storages, heaps and caches of a few bytes each take more than these bytes."""
    done = children.run(
        [sys.executable, "-P", "-c", SMALL, kind], capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    limit, mebibytes = done.stdout.split()
    assert limit == "live_bytes"
    assert int(mebibytes) < 60
