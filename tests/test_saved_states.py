"""Saved runs with caches and recurrent states, a run that is kept as a file, and the commands."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine
from relaxvm.errors import FormatError, LinkError, RelaxVMError, SuspendedError
from relaxvm.isa import FuncKind

from . import children
from .hopping import bits, counter, hopping, outcome, saved

GOLDEN = Path(__file__).parent / "golden" / "saved_run.bin"
HEADS, DIM = 2, 4


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def check(eb: ExecBuilder, args: Any, functions: Any = None) -> Any:
    """Check that the result of main is the same bits with hops at every instruction; return it."""
    executable = eb.get()
    plain, one, other = (VirtualMachine(executable, functions=functions) for _ in range(3))
    refused: list[str] = []
    expected = outcome(plain["main"], [np.copy(a) if a is not None else a for a in args])
    got = outcome(hopping(one, "main", other, refused=refused),
                  [np.copy(a) if a is not None else a for a in args])  # fmt: skip
    assert expected[0] == "tuple", expected
    assert got == expected
    assert refused == []
    return expected


@pytest.mark.parametrize("rotates", [False, True])
def test_a_paged_cache(rotates: bool) -> None:
    """Two sequences, of which one is forked from the other, and a token that is taken back."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=6):
        none, kind, first, second, out, out_2 = (eb.r(i) for i in range(6))
        cache = eb.r(6)
        kernels: list[Any] = [none] * 15
        if rotates:
            eb.declare_function("rotate", FuncKind.PACKED)
            kernels[11] = eb.f("rotate")
        eb.emit_call("vm.builtin.paged_attention_kv_cache_create", dst=cache, args=[
            (4, 32, 64, 4, 0), (0, 1), eb.imm(HEADS), eb.imm(HEADS), eb.imm(DIM), eb.imm(DIM),
            (0,), eb.imm(0), eb.imm(0), eb.convert_constant(1.0), eb.convert_constant(1e4),
            none, kind, *kernels])

        def forward(sequences: Any, counts: Any, qkv: Any, result: Any) -> None:
            eb.emit_call("vm.builtin.kv_state_begin_forward", args=[cache, sequences, counts])
            eb.emit_call("vm.builtin.attention_kv_cache_attention_with_fused_qkv", args=[
                cache, eb.imm(0), eb.convert_constant(0.5), qkv, result])
            eb.emit_call("vm.builtin.kv_state_end_forward", args=[cache])

        eb.emit_call("vm.builtin.kv_state_add_sequence", args=[cache, eb.imm(7)])
        forward((7,), (5,), first, out)
        eb.emit_call("vm.builtin.kv_state_fork_sequence", args=[
            cache, eb.imm(7), eb.imm(9), eb.imm(-1)])
        forward((7, 9), (1, 2), second, out_2)
        eb.emit_call("vm.builtin.kv_state_popn", args=[cache, eb.imm(9), eb.imm(1)])
        eb.emit_call("vm.builtin.attention_kv_cache_get_sequence_length", dst=eb.r(7), args=[
            cache, eb.imm(9)])
        eb.emit_call("vm.builtin.make_tuple", dst=eb.r(8), args=[out, out_2, eb.r(7)])
        eb.emit_ret(eb.r(8))

    def rotate(qkv: Any, positions: Any, q: Any, k: Any, v: Any, rotates: Any) -> None:
        q[...], k[...] = qkv[:, :2], qkv[:, 2:4]
        v[...] = qkv[:, 4:] + positions[:, None, None]

    args = [None, np.zeros((), "float32"), numbers(5, 6, 4), numbers(3, 6, 4),
            np.zeros((5, 2, 4), "float32"), np.zeros((3, 2, 4), "float32")]  # fmt: skip
    _, (out, out_2, length) = check(eb, args, {"rotate": rotate} if rotates else None)
    assert length == ("int", 6)
    assert any(out[-1])
    assert any(out_2[-1])


def test_a_recurrent_state() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=5):
        none, initial, one, two, out, state = eb.r(0), eb.r(1), eb.r(2), eb.r(3), eb.r(4), eb.r(6)
        eb.emit_call("vm.builtin.make_tuple", args=[none], dst=eb.r(7))
        eb.emit_call("vm.builtin.make_tuple", args=[initial], dst=eb.r(8))
        eb.emit_call("vm.builtin.rnn_state_create", dst=state, args=[
            eb.imm(1), eb.imm(2), eb.imm(3), eb.r(7), eb.r(7), eb.r(8)])
        eb.emit_call("vm.builtin.kv_state_add_sequence", args=[state, eb.imm(4)])
        for data in (one, two):
            eb.emit_call("vm.builtin.kv_state_begin_forward", args=[state, (4,), (1,)])
            eb.emit_call("vm.builtin.rnn_state_get", args=[state, eb.imm(0), eb.imm(0), out])
            eb.emit_call("vm.builtin.rnn_state_set", dst=state, args=[
                state, eb.imm(0), eb.imm(0), data])
            eb.emit_call("vm.builtin.kv_state_end_forward", args=[state])
        eb.emit_call("vm.builtin.rnn_state_debug_get", dst=eb.r(9), args=[
            state, eb.imm(0), eb.imm(0), eb.imm(4)])
        eb.emit_call("vm.builtin.kv_state_popn", args=[state, eb.imm(4), eb.imm(1)])
        eb.emit_call("vm.builtin.rnn_state_debug_get", dst=eb.r(10), args=[
            state, eb.imm(0), eb.imm(0), eb.imm(4)])
        eb.emit_call("vm.builtin.make_tuple", args=[out, eb.r(9), eb.r(10)], dst=eb.r(11))
        eb.emit_ret(eb.r(11))
    one, two = np.full((1, 3), 1.5, "float32"), np.full((1, 3), 2.5, "float32")
    args = [None, np.ones(3, "float32"), one, two, np.zeros((1, 3), "float32")]
    _, results = check(eb, args)
    assert [data for *_, data in results] == [one.tobytes(), two.tobytes(), one.tobytes()]


def cached() -> ExecBuilder:
    """main(first, more): rows in a cache of attention that grows and then wraps; nothing is
    computed, so all platforms have the same bytes."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=2):
        eb.emit_call("vm.builtin.attention_kv_cache_create", dst=eb.r(2), args=[
            eb.r(0), (2, 3), eb.imm(-1)])
        eb.emit_call("vm.builtin.attention_kv_cache_append", dst=eb.r(2), args=[eb.r(2), eb.r(1)])
        eb.emit_call("vm.builtin.attention_kv_cache_view", dst=eb.r(3), args=[eb.r(2)])
        eb.emit_call("vm.builtin.copy", dst=eb.r(4), args=[eb.r(3)])
        eb.emit_call("vm.builtin.attention_kv_cache_window_override_with_sinks", dst=eb.r(2), args=[
            eb.r(2), eb.r(1), eb.imm(6), eb.imm(1)])
        eb.emit_call("vm.builtin.attention_kv_cache_view", dst=eb.r(5), args=[eb.r(2)])
        eb.emit_call("vm.builtin.make_tuple", dst=eb.r(6), args=[eb.r(3), eb.r(4), eb.r(5)])
        eb.emit_ret(eb.r(6))
    return eb


FIRST = np.arange(6, dtype="<f4").reshape(2, 3)
MORE = np.arange(6, 15, dtype="<f4").reshape(3, 3)


def test_a_cache_of_attention() -> None:
    _, (_, _, after) = check(cached(), [FIRST, MORE])
    assert np.frombuffer(after[-1], "<f4").reshape(-1, 3)[0].tolist() == [0, 1, 2]


# A file that is kept


def test_a_run_is_the_bytes_that_are_kept(golden: Callable[[str, str | bytes], None]) -> None:
    run = VirtualMachine(cached().get())["main"].start(FIRST.copy(), MORE.copy())
    run.step(3)
    golden(GOLDEN.name, saved(run))


def test_a_run_that_is_kept_goes_on() -> None:
    executable = cached().get()
    run = relaxvm.load_run(GOLDEN, executable)
    assert (run.function, run.position) == ("main", 3)
    expected = VirtualMachine(executable)["main"](FIRST.copy(), MORE.copy())
    assert bits(run.result()) == bits(expected)


def test_no_damaged_byte_of_a_run_that_is_kept_passes() -> None:
    """Whether it is cut off, or a bit of it is another one."""
    data = GOLDEN.read_bytes()
    vm = VirtualMachine(cached().get())
    for end in range(len(data)):
        with pytest.raises(FormatError):
            relaxvm.load_run(data[:end], vm)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(FormatError):
            relaxvm.load_run(bytes(damaged), vm)
    with pytest.raises(FormatError, match="too long"):
        relaxvm.load_run(data + b"\0", vm)


# Threads, and functions that are not there


def test_two_threads_suspend_one_run() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.copy", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_call("next", args=[eb.r(1)], dst=eb.r(1))
        eb.emit_goto(-1)
    vm = VirtualMachine(eb.get(), functions={"next": lambda n: n + 1})
    run = vm["main"].start(0)
    suspended: list[bool] = []
    for _ in range(5):
        begun = run.position
        caught: list[BaseException] = []

        def work(caught: list[BaseException] = caught) -> None:
            try:
                run.result()
            except SuspendedError as error:
                caught.append(error)

        runner = threading.Thread(target=work)
        runner.start()
        while not run._is_running and runner.is_alive():
            time.sleep(0.001)
        others = [
            threading.Thread(target=lambda: suspended.append(run.suspend(60))) for _ in range(2)
        ]
        for thread in others:
            thread.start()
        for thread in (*others, runner):
            thread.join()
        assert len(caught) == 1
        assert run.position >= begun
        relaxvm.load_run(saved(run), vm)
    assert suspended == [True] * 10


def test_a_run_in_progress_is_not_saved(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go_on.wait(60)

    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("wait", args=[])
        eb.emit_ret(eb.r(0))
    run = VirtualMachine(eb.get(), functions={"wait": wait})["main"].start(3)
    runner = threading.Thread(target=run.result)
    runner.start()
    try:
        assert inside.wait(60)
        with pytest.raises(RelaxVMError, match="in progress in another thread; suspend"):
            run.save(tmp_path / "run.ckpt")
        assert list(tmp_path.iterdir()) == []
    finally:
        go_on.set()
        runner.join()
    assert run.result() == 3


def test_a_request_to_pause_that_comes_too_late_is_forgotten() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go_on.wait(60)

    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("wait", args=[])
        eb.emit_call("vm.builtin.copy", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    run = VirtualMachine(eb.get(), functions={"wait": wait})["main"].start(3)
    runner = threading.Thread(target=run.step)

    class Late(list[threading.Event]):
        def append(self, event: threading.Event) -> None:
            go_on.set()
            runner.join()  # the run pauses by itself between the look at it and the request
            super().append(event)

    run._waiting = Late()
    runner.start()
    assert inside.wait(60)
    assert run.suspend(60)
    assert run.resume(until=lambda _: False) is None
    assert run.result() == 3


def test_functions_that_are_missing() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("mine", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    executable = eb.get()
    run = VirtualMachine(executable, functions={"mine": abs})["main"].start(-3)
    with pytest.raises(LinkError, match="mine"):
        relaxvm.load_run(saved(run), executable)
    again = relaxvm.load_run(saved(run), executable, functions={"mine": lambda x: x * 2})
    assert again.result() == -6


# The command line

KERNELS = """
import os, time
import relaxvm

@relaxvm.register_func("savedtest.next", override=True)
def following(x):
    time.sleep(float(os.environ.get("SAVEDTEST_SLEEP", "0")))
    return x + 1

@relaxvm.register_func("savedtest.goes_on", override=True)
def goes_on(x):
    return bool(x[0] < int(os.environ["SAVEDTEST_END"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    counter("savedtest.next", "savedtest.goes_on").save(tmp_path / "count.vmexec")
    cached().get().save(tmp_path / "other.vmexec")
    (tmp_path / "kernels.py").write_text(KERNELS)
    np.save(tmp_path / "x.npy", np.array([0, 5]))
    return tmp_path


def command(*args: str) -> list[str]:
    return [sys.executable, "-P", "-m", "relaxvm", *args]


def resume(folder: Path, *args: str) -> Any:
    return children.run(
        command("resume", *args, "--json"), cwd=folder, capture_output=True, text=True,
        env={**os.environ, "SAVEDTEST_END": "50"},
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to catch")
def test_a_command_that_is_stopped_and_resumed(folder: Path) -> None:
    checkpoint = folder / "run.ckpt"
    run = command("run", "count.vmexec", "--kernels", "kernels.py", "--input", "x.npy",
                  "--checkpoint", "run.ckpt", "--every", "0.02")  # fmt: skip
    env = {**os.environ, "SAVEDTEST_END": str(1 << 40), "SAVEDTEST_SLEEP": "0.005"}
    with children.start(run, cwd=folder, env=env, stdout=children.PIPE, stderr=children.PIPE,
                        text=True) as process:  # fmt: skip
        while not checkpoint.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=children.DEADLINE)
    assert process.returncode == 130, err
    assert "relaxvm resume run.ckpt count.vmexec" in err
    done = resume(folder, "run.ckpt", "count.vmexec", "--kernels", "kernels.py",
                  "--output", "y.npy")  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = np.load(folder / "y.npy").tolist()
    assert first >= 50
    assert second == first + 5


def test_what_resume_refuses(folder: Path) -> None:
    kept = GOLDEN.read_bytes()
    (folder / "run.ckpt").write_bytes(kept)
    (folder / "damaged.ckpt").write_bytes(kept[:-1] + b"\1")
    (folder / "cut.ckpt").write_bytes(kept[:-64])
    kernels = ("--kernels", "kernels.py")
    for args, code, text in (
        (("run.ckpt", "other.vmexec"), 0, ""),
        (("run.ckpt", "count.vmexec", *kernels), 3, "a run of another executable"),
        (("damaged.ckpt", "other.vmexec"), 3, "not a saved run"),
        (("cut.ckpt", "other.vmexec"), 3, "truncated"),
        (("other.vmexec", "other.vmexec"), 3, "expected the magic"),
        (("nowhere.ckpt", "other.vmexec"), 3, "nowhere.ckpt"),
        (("run.ckpt", "nowhere.vmexec"), 3, "nowhere.vmexec"),
        (("run.ckpt", "count.vmexec"), 4, "savedtest"),
        (("run.ckpt", "other.vmexec", "--every", "0"), 2, "--every"),
    ):
        done = resume(folder, *args)
        assert done.returncode == code, (args, done.stdout, done.stderr)
        if code:
            assert text in json.loads(done.stdout)["error"]["message"], args


def test_runs_that_are_not_saved_import_nothing_for_it() -> None:
    children.run_script("""
import sys
import relaxvm
eb = relaxvm.ExecBuilder()
with eb.function("main", num_inputs=1):
    eb.emit_call("vm.builtin.copy", args=[eb.r(0)], dst=eb.r(1))
    eb.emit_ret(eb.r(1))
vm = relaxvm.VirtualMachine(eb.get())
assert vm["main"](3) == 3
assert vm["main"].start(3).result() == 3
found = [name for name in sys.modules if name.startswith("relaxvm.vm.saved_runs")]
assert not found, found
""")
