"""Programs that never end, that need too much memory, or that fail: they stop with a clear error,
keep no references, and leave the VM usable."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Set
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine
from relaxvm.core.operations import REWRITINGS
from relaxvm.errors import CancelledError, LimitError
from relaxvm.executable import VMExecutable
from relaxvm.executable.formats import binary
from relaxvm.values import Shape

from . import children
from .asm import VM, Asm, Func, r0, r1, r2, r3, r4
from .corpus import CORPUS, registry

KEEPING_FRAMES = frozenset(rewriting.name for rewriting in REWRITINGS) - {"tail_calls"}

pytestmark = pytest.mark.filterwarnings("ignore::relaxvm.errors.RelaxVMWarning")

# Endless programs


def _loop(asm: Asm, *body: Callable[[], None]) -> None:
    head = asm.label()
    asm.bind(head)
    for emit in body:
        emit()
    asm.go(head)


def endless() -> VMExecutable:
    """One function per way of never ending; each takes one argument and keeps it in a register.
    ``fine`` checks that the VM still works."""
    asm = Asm()
    asm.forward("forever", "bounce")
    with asm.func("fine", 1):
        asm.op(r1, "add", r0, r0)
        asm.ret(r1)
    with asm.func("nothing", 1):
        asm.op(r1, ".copy", r0)
        there, back = asm.label(), asm.label()
        asm.bind(back)
        asm.go(there)
        asm.bind(there)
        asm.go(back)
    with asm.func("builtin", 1):
        _loop(asm, lambda: asm.op(r1, ".copy", r0))
    with asm.func("tuples", 1):
        _loop(asm, lambda: asm.op(r1, ".make_tuple", r0, r0))
    with asm.func("kernel", 1):
        _loop(asm, lambda: asm.op(r1, "identity", r0))
    with asm.func("allocation", 1):
        _loop(asm, lambda: asm.alloc(r2, r1, (64,)))
    with asm.func("condition", 1):
        asm.op(r1, ".copy", 1)
        head, end = asm.label(), asm.label()
        asm.bind(head)
        asm.iff(r1, end)
        asm.go(head)
        asm.bind(end)
        asm.ret(r0)
    with asm.func("tensor_condition", 1):
        asm.op(r1, ".copy", np.asarray(1, np.int32))
        head, end = asm.label(), asm.label()
        asm.bind(head)
        asm.op(r2, ".read_if_cond", r1)
        asm.iff(r2, end)
        asm.go(head)
        asm.bind(end)
        asm.ret(r0)
    with asm.func("vm_call", 1):
        _loop(asm, lambda: asm.op(r1, "fine", r0))
    with asm.func("closure", 1):
        asm.op(r1, ".make_closure", Func("fine"))
        _loop(asm, lambda: asm.op(r2, ".invoke_closure", VM, r1, r0))
    with asm.func("tree", 2):  # exponential recursion of bounded depth
        deeper = asm.label()
        asm.op(r2, "is_zero", r1)
        asm.iff(r2, deeper)
        asm.ret(r1)
        asm.bind(deeper)
        asm.op(r2, "sub", r1, 1)
        asm.op(r3, "tree", r0, r2)
        asm.op(r3, "tree", r0, r2)
        asm.ret(r3)
    with asm.func("call_tree", 1):
        asm.op(r1, "tree", r0, 60)
        asm.ret(r1)
    # Unbounded depth.
    with asm.func("forever", 1):
        asm.op(r1, "forever", r0)
        asm.ret(r1)
    with asm.func("bounce", 1):
        asm.op(r1, ".make_closure", Func("bounce"))
        asm.op(r2, ".invoke_closure", VM, r1, r0)
        asm.ret(r2)
    with asm.func("through_python", 1):
        asm.op(r1, "apply", Func("through_python"), r0)
        asm.ret(r1)
    with asm.func("through_closure", 1):
        asm.op(r1, ".make_closure", Func("through_closure"), r0)
        asm.op(r2, "apply", r1)
        asm.ret(r2)
    return asm.get()


LOOPS = ("nothing", "builtin", "tuples", "kernel", "allocation", "condition", "tensor_condition",
         "vm_call", "closure", "call_tree")  # fmt: skip
DEEP = ("forever", "bounce")
THROUGH_PYTHON = ("through_python", "through_closure")



def probe() -> tuple[Any, Callable[[], bool]]:
    """Return a new argument, and a function that checks that it was freed."""
    x = np.arange(4.0)
    ref = weakref.ref(x)

    def gone() -> bool:
        gc.collect()
        return ref() is None

    return x, gone


def stops(
    vm: VirtualMachine,
    function: str,
    error: type[BaseException],
    match: str = "",
    before: Callable[[], None] = lambda: None,
) -> None:
    """Check that a run raises `error` and frees its argument, and that the VM still works."""
    x, gone = probe()
    with pytest.raises(error, match=match or None) as caught:
        before()
        vm[function](x)
    notes = getattr(caught.value, "__notes__", [])
    assert any("pc" in note for note in notes)
    del x, caught
    assert gone()
    assert vm["fine"](21) == 42


def machine(optimize: bool | Set[str] = True, **limits: Any) -> VirtualMachine:
    return VirtualMachine(
        endless(), functions=registry(), optimize=optimize, limits=Limits(**limits)
    )


both = pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
with_frames = pytest.mark.parametrize(
    "optimize", [KEEPING_FRAMES, frozenset()], ids=["optimized", "plain"]
)
"""As `both`, but for calls that come last: they nest."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """``interrupt()``: press Ctrl-C after a while of this process's processor time, so that the
    next call has begun, however busy the machine is."""

    def press(signum: int, frame: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    old = signal.signal(signal.SIGVTALRM, press)
    old_int = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0.02) and None
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, old)
    signal.signal(signal.SIGINT, old_int)


GENEROUS = 20.0
"""Seconds of processor time in which everything below has to stop; the aim is a tenth of one."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
@both
@pytest.mark.parametrize("function", LOOPS)
def test_ctrl_c(function: str, optimize: bool, interrupt: Callable[[], None]) -> None:
    vm = machine(optimize)
    start = time.process_time()
    stops(vm, function, KeyboardInterrupt, before=interrupt)
    assert time.process_time() - start < GENEROUS


@both
@pytest.mark.parametrize("function", LOOPS)
def test_cancel(function: str, optimize: bool) -> None:
    vm = machine(optimize)
    stopped = threading.Event()

    def cancel() -> None:  # again and again: the first may come before the run
        while not stopped.wait(0.02):
            vm.cancel()

    canceller = threading.Thread(target=cancel)
    start = time.process_time()
    try:
        stops(vm, function, CancelledError, "cancelled", before=canceller.start)
    finally:
        stopped.set()
        canceller.join()
    assert time.process_time() - start < GENEROUS


@both
@pytest.mark.parametrize("function", LOOPS)
def test_fuel(function: str, optimize: bool) -> None:
    vm = machine(optimize, fuel=10_000)
    stops(vm, function, LimitError, "fuel")


@both
@pytest.mark.parametrize("function", LOOPS)
def test_wall_time(function: str, optimize: bool) -> None:
    vm = machine(optimize, wall_time=0.02)
    start = time.process_time()
    stops(vm, function, LimitError, "wall_time")
    assert time.process_time() - start < GENEROUS


@pytest.mark.parametrize("depth", [1, 10, 5_000])
@with_frames
@pytest.mark.parametrize("function", ["forever", "bounce"])
def test_call_depth(function: str, optimize: Set[str], depth: int) -> None:
    vm = machine(optimize, call_depth=depth)
    stops(vm, function, LimitError, "call_depth")


@with_frames
def test_call_depth_by_default(optimize: Set[str]) -> None:
    """With default limits, recursion ends too, and the error names the function."""
    stops(machine(optimize), "forever", LimitError, r"forever.*call_depth")
    stops(machine(optimize), "bounce", LimitError, r"bounce.*call_depth")


def test_call_depth_is_exact() -> None:
    vm = VirtualMachine(
        CORPUS["deep_recursion"].executable, functions=registry(), limits=Limits(call_depth=101)
    )
    assert vm["main"](100) == 100
    with pytest.raises(LimitError) as caught:
        vm["main"](101)
    assert caught.value.limit == "call_depth"


@pytest.mark.parametrize("function", THROUGH_PYTHON)
def test_unbounded_reentrancy(function: str) -> None:
    """Python functions that call the VM that called them: Python's recursion limit applies."""
    stops(machine(), function, RecursionError)


@pytest.mark.parametrize("function", [*THROUGH_PYTHON, "forever"])
@pytest.mark.parametrize("limits", [{"fuel": 500}, {"call_depth": 50, "fuel": 10**6}], ids=str)
def test_limits_are_shared_by_nested_runs(function: str, limits: dict[str, Any]) -> None:
    """Calling back does not reset the fuel or the depth of a program."""
    stops(machine(**limits), function, LimitError, next(iter(limits)))


def test_fuel_is_counted_by_instruction() -> None:
    """A program takes the same fuel on every run; one unit less is too little."""
    case = CORPUS["loop"]
    taken = next(
        fuel for fuel in range(1, 1000)
        if _ends(VirtualMachine(case.executable, functions=registry(), limits=Limits(fuel=fuel)))
    )  # fmt: skip
    # 2 copies; 10 rounds of less, if, add, add, goto; less, if, ret
    assert taken == 2 + 10 * 5 + 3


def _ends(vm: VirtualMachine) -> bool:
    try:
        return bool(vm["main"](10) == 45)
    except LimitError:
        return False


def test_limits_do_not_change_results() -> None:
    vm = VirtualMachine(CORPUS["recursion"].executable, functions=registry(),
                        limits=Limits.untrusted())  # fmt: skip
    assert [vm["fib"](n) for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]


def test_kernel_error_inside_nested_runs() -> None:
    """An error that passes through three runs is raised once, with the frames of all of them."""
    asm = Asm()
    with asm.func("bottom", 1):
        asm.op(r1, "fail", "at the bottom")
        asm.ret(r1)
    with asm.func("middle", 1):
        asm.op(r1, "apply", Func("bottom"), r0)
        asm.ret(r1)
    with asm.func("top", 1):
        asm.op(r1, "apply", Func("middle"), r0)
        asm.ret(r1)
    with asm.func("fine", 1):
        asm.op(r1, "add", r0, r0)
        asm.ret(r1)
    vm = VirtualMachine(asm.get(), functions=registry())
    x, gone = probe()
    with pytest.raises(ValueError, match="at the bottom") as caught:
        vm["top"](x)
    notes = "\n".join(caught.value.__notes__)
    places = [notes.index(f"in {name}, pc") for name in ("bottom", "middle", "top")]
    assert places == sorted(places)
    assert notes.count(", pc ") == 3
    del x, caught
    assert gone()
    assert vm["fine"](21) == 42


def test_failing_conversion_of_arguments() -> None:
    """An argument that cannot be converted is an error before anything runs, without leaks."""

    class Bad:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise ZeroDivisionError("no array")

    asm = Asm()
    with asm.func("main", 3):
        asm.op(r3, ".make_tuple", r0, r1, r2)
        asm.ret(r3)
    vm = VirtualMachine(asm.get())
    x, gone = probe()
    for _ in range(2 * sys.getrecursionlimit()):  # a leaked level of recursion would show
        with pytest.raises(ZeroDivisionError, match="no array"):
            vm["main"](x, Bad(), x)
    assert vm["main"](1, 2, 3) == (1, 2, 3)
    del x
    assert gone()


def test_wrong_counts_leak_nothing() -> None:
    vm = machine()
    x, gone = probe()
    for _ in range(2 * sys.getrecursionlimit()):
        with pytest.raises(RuntimeError, match="fine: expects 1 argument"):
            vm["fine"](x, x)
    del x
    assert gone()
    assert vm["fine"](21) == 42


def test_failure_while_an_error_is_described() -> None:
    """Whatever fails while notes are written, the error of the program is raised."""

    class Clumsy(VirtualMachine):
        def _on_error(self, *args: Any) -> None:
            raise self.failure

        failure: BaseException = RecursionError("while writing notes")

    vm = Clumsy(CORPUS["kernel_errors"].executable, functions=registry())
    for _ in range(3):
        with pytest.raises(ValueError, match="deep down"):
            vm["deep"](30)
    assert vm["fine"](5) == 5

    vm.failure = KeyboardInterrupt()  # a KeyboardInterrupt must not be lost
    with pytest.raises(KeyboardInterrupt):
        with contextlib.suppress(ValueError):
            vm["deep"](30)
        for _ in range(1000):
            pass


# Memory


def allocating() -> VMExecutable:
    asm = Asm()
    with asm.func("sized", 1):  # one tensor with that many float32
        asm.op(r1, ".alloc_storage", VM, r0, 0, np.dtype("float32"), "global")
        asm.op(r2, ".alloc_tensor", r1, 0, r0, np.dtype("float32"))
        asm.op(None, "fill", r2, 1)
        asm.ret(r2)
    with asm.func("static"):
        asm.alloc(r1, r0, (256,))
        asm.op(None, "fill", r1, 1)
        asm.ret(r1)
    with asm.func("two_steps"):
        asm.op(r0, ".alloc_storage", VM, Shape((1024,)), 0, np.dtype("uint8"), "global")
        asm.op(r1, ".alloc_tensor", r0, 0, Shape((256,)), np.dtype("float32"))
        asm.op(None, "fill", r1, 1)
        asm.ret(r1)
    with asm.func("pile", 1):  # keep allocating, keep all
        head = asm.label()
        asm.op(r1, ".make_tuple")
        asm.bind(head)
        asm.alloc(r3, r2, (256,))
        asm.op(r1, ".make_tuple", r1, r3)
        asm.go(head)
    with asm.func("churn", 1):  # keep allocating, keep none
        head, body = asm.label(), asm.label()
        asm.bind(head)
        asm.op(r1, "is_zero", r0)
        asm.iff(r1, body)
        asm.ret(r0)
        asm.bind(body)
        asm.alloc(r3, r2, (256,))
        asm.op(r3, ".null_value")
        asm.op(r0, "sub", r0, 1)
        asm.go(head)
    with asm.func("fine", 1):
        asm.op(r1, "add", r0, r0)
        asm.ret(r1)
    return asm.get()


def memory_machine(optimize: bool, **limits: Any) -> VirtualMachine:
    return VirtualMachine(
        allocating(), functions=registry(), optimize=optimize, limits=Limits(**limits)
    )


def _limit_of(call: Callable[[], Any]) -> str:
    with pytest.raises(LimitError) as caught:
        call()
    return caught.value.limit


@both
def test_alloc_bytes(optimize: bool) -> None:
    vm = memory_machine(optimize, alloc_bytes=1024)
    assert vm["sized"](Shape((256,))).shape == (256,)
    assert _limit_of(lambda: vm["sized"](Shape((257,)))) == "alloc_bytes"
    assert vm["static"]().sum() == 256
    small = memory_machine(optimize, alloc_bytes=1023)
    for name in ("static", "two_steps"):
        for _ in range(3):
            assert _limit_of(small[name]) == "alloc_bytes"
    assert small["fine"](21) == 42


@both
def test_live_bytes(optimize: bool) -> None:
    vm = memory_machine(optimize, live_bytes=4096)
    kept = [vm["static"]() for _ in range(2)]
    kept += [vm["two_steps"](), vm["sized"](Shape((256,)))]
    for name in ("static", "two_steps"):
        for _ in range(3):
            assert _limit_of(vm[name]) == "live_bytes"
    assert all(x.sum() == 256 for x in kept)
    kept.pop()
    assert vm["static"]().sum() == 256, "freed memory must be usable again"
    kept.clear()
    assert _limit_of(lambda: vm["pile"](1)) == "live_bytes"
    assert vm["churn"](100) == 0
    assert vm.memory_stats().live_bytes == 0


@both
@pytest.mark.parametrize("size", [2**62, 2**45])
def test_absurd_sizes(size: int, optimize: bool) -> None:
    """Impossible sizes: a clear error, before any allocation or integer overflow."""
    vm = memory_machine(optimize)
    for _ in range(3):
        with pytest.raises(MemoryError):
            vm["sized"](Shape((size, 2**20)))
    assert vm["fine"](21) == 42
    assert _limit_of(lambda: memory_machine(optimize, alloc_bytes=1)["sized"](Shape((size,)))) == (
        "alloc_bytes"
    )


HOLDERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda x: x,
    "slice": lambda x: x[2:],
    "strided": lambda x: x[::2],
    "other shape": lambda x: x.reshape(2, -1),
    "other dtype": lambda x: x.view(np.int32),
    "memoryview": memoryview,
    "data": lambda x: x.data,
    "ctypes": lambda x: (ctypes.c_float * x.size).from_buffer(x),
    "frombuffer": lambda x: np.frombuffer(x, np.float32),
    "dlpack": np.from_dlpack,
    "interface": lambda x: np.asarray(_Interface(x)),
    "storage": lambda x: x.base,
    "view of storage": lambda x: x.base.view(0, x.shape, x.dtype),
    "weakref to array": lambda x: (weakref.ref(x), x[1:]),
}


class _Interface:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def _bytes_of(holder: Any, size: int) -> bytes:
    if type(holder).__name__ == "Storage":
        return bytes(holder.view(0, (size,), np.dtype("float32")))
    if isinstance(holder, tuple):
        return holder[1].tobytes()
    return bytes(holder)


@both
@pytest.mark.parametrize("memory", ["naive", "pooled"])
@pytest.mark.parametrize("how", HOLDERS)
@pytest.mark.parametrize("name", ["static", "two_steps"])
def test_memory_lives_as_long_as_any_view(name: str, how: str, memory: str, optimize: bool) -> None:
    """While any reference to an output exists, its memory is not reused."""
    vm = VirtualMachine(allocating(), memory_cfg=memory, functions=registry(), optimize=optimize)
    vm[name]()  # warm
    out = vm[name]()
    out[...] = np.arange(out.size)
    holder = HOLDERS[how](out)
    size = out.size
    before = _bytes_of(holder, size)
    del out
    later = [vm[name]() for _ in range(3)]
    for array in later:
        array[...] = -1
    del later
    vm[name]()[...] = -2
    assert _bytes_of(holder, size) == before
    vm.close()
    del vm
    gc.collect()
    assert _bytes_of(holder, size) == before


def test_outputs_that_were_changed_in_shape() -> None:
    """A user may reshape or freeze an output in place and drop it: the next one is not affected."""
    vm = VirtualMachine(allocating(), functions=registry())
    for change in ("shape", "dtype", "writeable", "none"):
        out = vm["static"]()
        if change == "shape":
            out.shape = (16, 16)
        elif change == "dtype":
            out.dtype = np.int32
        elif change == "writeable":
            out.flags.writeable = False
        del out
        out = vm["static"]()
        assert (out.shape, out.dtype, out.flags.writeable) == ((256,), np.float32, True)
        assert out.sum() == 256


def test_shape_heaps_are_fresh() -> None:
    """A heap that was returned is not reused, and a new one starts with zeros."""
    asm = Asm()
    with asm.func("main", 1):
        asm.op(r1, ".alloc_shape_heap", VM, 2)
        asm.op(r2, "clone", r1)
        asm.op(None, ".match_shape", r0, r1, 1, 1, 0, "")
        asm.op(r3, ".make_tuple", r1, r2)
        asm.ret(r3)
    vm = VirtualMachine(asm.get(), functions=registry())
    kept = [vm["main"](np.zeros(i)) for i in range(4)]
    views = [vm["main"](np.zeros(9))[0][1:] for _ in range(3)]
    for view in views:
        view[:] = 7
    kept.append(vm["main"](np.zeros(4)))
    for i, (heap, fresh) in enumerate(kept):
        assert heap.tolist() == [i, 0]
        assert fresh.tolist() == [0, 0]


# Long-running processes


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def grows(work: Callable[[int], None], warm_up: int, rounds: int) -> int:
    """Return by how many bytes memory grows in `rounds` rounds, after `warm_up` rounds."""
    for i in range(warm_up):
        work(i)
    gc.collect()
    before = resident_bytes()
    for i in range(rounds):
        work(i)
    gc.collect()
    return resident_bytes() - before


FLAT = 8 << 20


@both
@pytest.mark.parametrize("memory", ["naive", "pooled"])
def test_random_shapes_leave_memory_flat(memory: str, optimize: bool) -> None:
    """10,000 calls; a leak of 1 KiB each would show."""
    vm = VirtualMachine(
        CORPUS["alloc_dynamic"].executable, memory_cfg=memory, functions=registry(),
        optimize=optimize,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = rng.integers(1, 64, (10_000, 2)).tolist()

    def work(i: int) -> None:
        n, m = shapes[i]
        x = np.ones((n, m), np.float32)
        assert vm["main"](x, x)[-1, -1] == 2

    assert grows(work, 2_000, 10_000) < FLAT


def test_loading_and_dropping_leaves_memory_flat() -> None:
    """10,000 executables read and dropped, every tenth of them verified and run."""
    names = ("dense_layer", "closures", "everything_at_once", "tensor_constants", "reentrant")
    streams = [(CORPUS[name].runs[0], binary.dumps(CORPUS[name].executable)) for name in names]
    functions = registry()

    def work(i: int) -> None:
        run, data = streams[i // 10 % len(streams)]
        if i % 10 < 9:
            binary.loads(data)
            return
        vm = VirtualMachine(relaxvm.loads(data), functions=functions)
        vm[run.function](*run.args())

    assert grows(work, 1_000, 10_000) < FLAT


def test_errors_leave_memory_flat() -> None:
    """Failing runs of all kinds, repeatedly."""
    vm = machine(fuel=500, call_depth=20)
    failing = VirtualMachine(CORPUS["kernel_errors"].executable, functions=registry())

    def work(i: int) -> None:
        x = np.ones(1000)
        for name in ("builtin", "kernel", "forever", "through_python", "allocation"):
            with pytest.raises(LimitError):
                vm[name](x)
        with pytest.raises(ValueError, match="deep down"):
            failing["deep"](20)

    assert grows(work, 50, 200) < FLAT


def test_machines_are_collected() -> None:
    """A VM, its executable and its kernels are freed when they are unreachable."""

    class Kernel:
        def __call__(self, x: Any) -> Any:
            return x

    kernel = Kernel()
    asm = Asm()
    with asm.func("main", 1):
        asm.op(r1, ".make_closure", Func("main"))
        asm.op(r2, "own.kernel", r0)
        asm.op(r3, ".shape_of", r2)
        asm.alloc(r4, r1, (4,))
        asm.ret(r3)
    executable = asm.get()
    vm = VirtualMachine(executable, functions={"own.kernel": kernel})
    assert vm["main"](np.zeros(3)) == (3,)
    refs = [weakref.ref(vm), weakref.ref(executable), weakref.ref(kernel)]
    del vm, executable, kernel
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_functions_keep_their_machine() -> None:
    """A function or closure of a VM works when it is the only reference left."""
    function = machine()["fine"]
    asm = Asm()
    with asm.func("pair", 2):
        asm.op(r2, ".make_tuple", r0, r1)
        asm.ret(r2)
    with asm.func("main", 1):
        asm.op(r1, ".make_closure", Func("pair"), r0)
        asm.ret(r1)
    closure = VirtualMachine(asm.get())["main"](2)
    gc.collect()
    assert function(21) == 42
    assert closure(1) == (1, 2)


DEEP_VALUES = """
import sys
from relaxvm import VirtualMachine
from relaxvm.errors import ArityError
from tests.asm import Asm, Func, r0, r1, r2
from tests.corpus import registry

asm = Asm()
with asm.func("f", 1):
    asm.ret(r0)
with asm.func("main", 2):
    head, done = asm.label(), asm.label()
    asm.bind(head)
    asm.op(r2, "is_zero", r0)
    asm.op(r2, "not", r2)
    asm.iff(r2, done)
    asm.op(r1, ".{builtin}", {operands})
    asm.op(r0, "sub", r0, 1)
    asm.go(head)
    asm.bind(done)
    asm.ret(r1)
vm = VirtualMachine(asm.get(), functions=registry())
value = vm["main"](300_000, vm["f"])
if callable(value):
    try:
        value(1)
    except (RecursionError, ArityError):
        pass
del value
print(vm["main"](0, "fine"))
"""


@pytest.mark.parametrize(
    ("builtin", "operands"),
    [
        ("make_tuple", "r1"),
        ("make_tuple", "r1, r1, 1"),
        ("make_closure", "r1"),
        ("make_closure", "r1, 1"),
        ("make_closure", "Func('f'), r1"),
        ("make_closure", "Func('f'), r1, 1"),
    ],
)
def test_deeply_nested_values(builtin: str, operands: str) -> None:
    """A tuple or closure of 300,000 levels is built, called and freed: a stack of 8 MiB would
    overflow if any of that recursed in C."""
    code = DEEP_VALUES.format(builtin=builtin, operands=operands)
    done = children.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr[-2000:]


def test_closed_machines() -> None:
    """After close(), calls raise, and values returned before stay valid."""
    vm = VirtualMachine(allocating(), functions=registry())
    out, function = vm["static"](), vm["fine"]
    vm.close()
    vm.close()
    with pytest.raises(RuntimeError, match="closed"):
        function(1)
    assert out.sum() == 256
