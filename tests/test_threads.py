"""One virtual machine in many threads, in forked processes, and executables in worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from relaxvm import VirtualMachine
from relaxvm.errors import CancelledError
from relaxvm.executable import VMExecutable

from . import children
from .asm import Asm, Reg, r0, r1, r2
from .corpus import CORPUS, Run, registry
from .oracle import Oracle, Outcome, assert_same_outcome, meets

THREADS = 8
MIXED = ("kernel_errors", "alloc_static", "alloc_two", "alloc_in_loop", "alloc_dynamic", "closures",
         "function_values", "reentrant", "recursion", "shape_heap", "match_shape_codes", "tuples",
         "tuple_kept_across_loop", "check_tensor_info", "read_if_cond", "dense_layer", "in_place",
         "loop_with_buffers", "everything_at_once", "mutual_recursion", "if_register")  # fmt: skip


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Make threads switch much more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Return the results of ``work(0) ... work(count - 1)``, run by threads that start together."""
    barrier = threading.Barrier(count)

    def started(i: int) -> Any:
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(started, range(count)))


Job = tuple[VirtualMachine, Run, Outcome]


def jobs(optimize: bool = True) -> list[Job]:
    """Calls of many functions on VMs that all threads share, with the expected outcomes."""
    found = []
    for name in MIXED:
        case = CORPUS[name]
        vm = VirtualMachine(case.executable, functions=registry(), optimize=optimize)
        for run in case.runs:
            oracle = Oracle(case.executable, registry())
            found.append((vm, run, Outcome.of(oracle[run.function], run.args())))
    return found


def run_jobs(todo: list[Job], seed: int, rounds: int) -> None:
    order = random.Random(seed)
    for _ in range(rounds):
        kept = []
        for vm, run, want in order.sample(todo, len(todo)):
            got = Outcome.of(vm[run.function], run.args())
            assert_same_outcome(got, want)
            kept.append((got, want))
        for got, want in kept:
            assert_same_outcome(got, want)


@pytest.mark.parametrize("optimize", [True, False])
def test_mixed_functions_and_errors(optimize: bool) -> None:
    todo = jobs(optimize)
    in_threads(lambda i: run_jobs(todo, i, rounds=5))


def test_setting_and_removing_an_instrument() -> None:
    """Threads get correct results while another one sets and removes the instrument."""
    todo = jobs()
    machines = {id(vm): vm for vm, _, _ in todo}.values()
    seen: set[str] = set()
    stop = threading.Event()

    def switch() -> None:
        while not stop.is_set():
            for vm in machines:
                vm.set_instrument(lambda func, name, *rest: seen.add(name))
            for vm in machines:
                vm.set_instrument(None)

    switcher = threading.Thread(target=switch)
    switcher.start()
    try:
        in_threads(lambda i: run_jobs(todo, i, rounds=3), count=4)
    finally:
        stop.set()
        switcher.join()
    assert any(name.startswith("vm.builtin.") for name in seen)


def endless() -> VMExecutable:
    """``spin`` never ends; ``double`` does."""
    asm = Asm()
    with asm.func("spin", 1):
        head = asm.label()
        asm.bind(head)
        asm.op(r1, ".copy", r0)
        asm.go(head)
    with asm.func("double", 1):
        asm.op(r1, "add", r0, r0)
        asm.ret(r1)
    return asm.get()


def test_cancel_stops_all_threads() -> None:
    """Runs in progress end with CancelledError, even while other threads call other functions;
    later runs are not affected."""
    vm = VirtualMachine(endless(), functions=registry())
    done = threading.Event()

    def work(i: int) -> str:
        if i == 0:
            while not done.wait(0.02):
                vm.cancel()
            return "cancelled others"
        if i < 5:
            with pytest.raises(CancelledError):
                vm["spin"](i)
            return "was cancelled"
        for j in range(200):
            x = np.full(3, j)
            with contextlib.suppress(CancelledError):  # this run may be cancelled too
                assert (vm["double"](x) == 2 * x).all()
        return "went on"

    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(work, i) for i in range(THREADS)]
        results = [future.result() for future in futures[1:]]
        done.set()
        assert futures[0].result() == "cancelled others"
    assert results == ["was cancelled"] * 4 + ["went on"] * 3
    assert vm["double"](21) == 42


def test_a_busy_run_lets_other_threads_run() -> None:
    """A loop without Python code lets other threads run."""
    vm = VirtualMachine(endless(), functions=registry())
    spinner = threading.Thread(target=lambda: Outcome.of(vm["spin"], (1,)))
    spinner.start()
    try:
        assert sum(range(10_000)) == 49_995_000
        assert [vm["double"](i) for i in range(50)] == [2 * i for i in range(50)]
    finally:
        while spinner.is_alive():  # a run that has not begun is not cancelled
            vm.cancel()
            spinner.join(0.02)


def test_making_machines_in_threads() -> None:
    """Verification, translation and the first runs of one executable in all threads at once."""
    case = CORPUS["everything_at_once"]
    run = case.runs[0]
    want = Outcome.of(Oracle(case.executable, registry())[run.function], run.args())

    def work(i: int) -> None:
        for _ in range(20):
            vm = VirtualMachine(case.executable, functions=registry())
            assert_same_outcome(Outcome.of(vm[run.function], run.args()), want)

    in_threads(work)


def test_results_travel_between_threads() -> None:
    """Tensors that one thread allocated are freed by another while both use the VM."""
    case = CORPUS["alloc_static"]
    vm = VirtualMachine(case.executable, functions=registry())
    ours: list[list[Any]] = [[] for _ in range(THREADS)]

    def work(i: int) -> None:
        for j in range(300):
            x = np.full((2, 3), i * 1000 + j, np.float32)
            out = vm["main"](x, x)
            ours[(i + 1) % THREADS].append((out, 2 * x))
            if len(ours[i]) > 5:
                got, want = ours[i].pop(0)
                assert (got == want).all()

    in_threads(work)
    for pending in ours:
        for got, want in pending:
            assert (got == want).all()


# Processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork() -> None:
    """A VM with warm caches works in a forked child, and the child does not affect the parent's."""
    todo = jobs()
    run_jobs(todo, 0, rounds=1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(children.DEADLINE))  # ends the child if it hangs
            run_jobs(todo, 1, rounds=1)
            status = 0
        finally:
            os._exit(status)
    try:
        run_jobs(todo, 2, rounds=1)
    finally:
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def run_in_worker(executable: VMExecutable, function: str, args: tuple[Any, ...]) -> Any:
    return VirtualMachine(executable, functions=registry())[function](*args)


def test_worker_processes() -> None:
    """Executables are pickled to new processes, which return results."""
    names = ("dense_layer", "shape_heap", "closures", "tensor_constants", "odd_names", "recursion")
    todo = [(CORPUS[name].executable, run) for name in names for run in CORPUS[name].runs[:1]]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        futures = [pool.submit(run_in_worker, ex, run.function, run.args()) for ex, run in todo]
        for (_, run), future in zip(todo, futures, strict=True):
            assert not meets(future.result(), run.expected(run.args()))


@pytest.mark.parametrize("name", [c.name for c in CORPUS.values() if c.savable])
def test_pickled_executables_are_equal(name: str) -> None:
    executable = CORPUS[name].executable
    copy = pickle.loads(pickle.dumps(executable))
    assert copy is not executable
    assert copy == executable


def test_machines_of_global_functions_pickle() -> None:
    asm = Asm()
    with asm.func("main", 1):
        asm.op(r2, ".make_tuple", r0, Reg(0))
        asm.ret(r2)
    vm = pickle.loads(pickle.dumps(VirtualMachine(asm.get())))
    assert vm["main"](3) == (3, 3)
