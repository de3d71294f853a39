"""The compiled mode: functions as native code; and functions as VM-TIR, which TVM compiles."""

from __future__ import annotations

import os
import pickle
import re
import runpy
import signal
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import relaxvm
from relaxvm import (
    ExecBuilder,
    Limits,
    VirtualMachine,
    build,
    ir,
    script,
    transform,
)
from relaxvm.compiler.vm_build import vmcodegen
from relaxvm.errors import (
    ArityError,
    CancelledError,
    InternalError,
    LimitError,
    LinkError,
    RelaxVMWarning,
)
from relaxvm.isa import FuncKind
from relaxvm.native import toolchain
from relaxvm.native.vm_code import compile_program
from relaxvm.registry import COMPILED_PREFIX
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.vm.machine import VMInstrumentReturnKind
from relaxvm.vm.native_code import HOT

from .relax_generator import generate, packed_functions
from .threads import cancelling

F32 = np.float32


@I.ir_module
class Program:
    """A bit of everything."""

    @T.prim_func(private=True, s_tir=True)
    def double(x: T.handle, y: T.handle):
        n = T.int64()
        A = T.match_buffer(x, (n,), "float32")
        B = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            with T.sblock("b"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)

    @R.function
    def count_down(
        n: R.Tensor((), "int64"), total: R.Tensor((), "int64")
    ) -> R.Tensor((), "int64"):
        is_done = R.less_equal(n, R.const(0, "int64"))
        if is_done:
            result = total
        else:
            less = R.subtract(n, R.const(1, "int64"))
            more = R.add(total, n)
            result = Program.count_down(less, more)
        return result

    @R.function
    def total(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        is_done = R.less_equal(n, R.const(0, "int64"))
        if is_done:
            result = n
        else:
            less = R.subtract(n, R.const(1, "int64"))
            below = Program.total(less)
            result = R.add(below, n)
        return result

    @R.function
    def adder(x: R.Tensor(("n",), "float32")) -> R.Any:
        n = T.int64()

        @R.function
        def add(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.add(x, y)

        return add

    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
        z = R.add(x, y)

        @R.function
        def scale(a: R.Tensor((n, m), "float32")) -> R.Tensor((n, m), "float32"):
            return R.multiply(a, z)

        w = scale(x)
        flat = R.reshape(w, (n * m,))
        twice = R.call_tir(Program.double, (flat,), out_ty=R.Tensor((n * m,), "float32"))
        s = R.call_packed("t.seen", twice, 3, 1.5, "text", ty_args=R.Any)
        return (twice, s, (x, R.shape([n, m + 1])))


@pytest.fixture(scope="module")
def program() -> relaxvm.VMExecutable:
    return build(Program, exec_mode="compiled")


@pytest.fixture(scope="module")
def bytecode() -> relaxvm.VMExecutable:
    return build(Program)


def functions() -> dict[str, Any]:
    return {"t.seen": lambda *args: args[1:]}


def machine(executable: relaxvm.VMExecutable, **options: Any) -> VirtualMachine:
    return VirtualMachine(executable, functions=functions(), **options)


X = np.arange(6, dtype=F32).reshape(2, 3)


# Results


def test_results_are_those_of_bytecode(program: Any, bytecode: Any) -> None:
    for executable in (program, bytecode):
        twice, seen, (x, shape) = machine(executable)["main"](X, X)
        np.testing.assert_array_equal(twice, (X * 2 * X * 2).ravel())
        assert seen == (3, 1.5, "text")
        assert x is X
        assert shape == (2, 4)


def test_the_executable_is_the_bytecode_and_a_mark(program: Any, bytecode: Any) -> None:
    assert program.exec_mode == "compiled"
    assert bytecode.exec_mode == "bytecode"
    assert program.as_text() == bytecode.as_text()
    assert program.with_section("exec_mode", None) == bytecode
    again = relaxvm.loads(program.to_bytes())
    assert again == program
    assert again.exec_mode == "compiled"


def test_functions_that_gain_have_native_code(program: Any, bytecode: Any) -> None:
    code = machine(program).native_code
    assert code is not None
    assert code.problem is None
    assert set(code.functions) >= {"main", "count_down"}
    assert not {"adder", "total"} & set(code.functions)  # a closure, and calls with tensors
    (source,) = code.sources
    assert "/* count_down */" in source
    assert "Python.h" not in source
    assert machine(bytecode).native_code is None


def test_the_code_is_in_the_cache(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(program)
    monkeypatch.setattr(toolchain, "_run", None)  # it would be called to run the compiler
    code = machine(program).native_code
    assert code is not None
    assert code.problem is None


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed: int) -> None:
    made = generate(seed)
    executables = [build(made.module, exec_mode=mode) for mode in ("bytecode", "compiled")]
    for args in made.inputs:
        outcomes = []
        for executable in executables:
            log: list[Any] = []
            vm = VirtualMachine(executable, functions=packed_functions(log))
            try:
                outcome: Any = vm["main"](*args)
            except (RuntimeError, ValueError, TypeError) as error:
                outcome = type(error), str(error), getattr(error, "__notes__", [])
            outcomes.append((outcome, log))
        np.testing.assert_equal(outcomes[1], outcomes[0])


# Recursion, limits, cancellation, closures


def test_a_function_that_calls_itself_last_is_a_loop(program: Any) -> None:
    vm = machine(program, limits=Limits(call_depth=2))
    assert vm["count_down"](np.array(5000), np.array(0)) == 5000 * 5001 // 2


def test_recursion_is_as_deep_as_the_limit(program: Any, bytecode: Any) -> None:
    for executable in (program, bytecode):
        vm = machine(executable, limits=Limits(call_depth=3001))
        assert vm["total"](np.array(3000)) == 3000 * 3001 // 2
        with pytest.raises(LimitError, match="total: calls are nested deeper than 3001") as caught:
            vm["total"](np.array(3001))
        assert caught.value.limit == "call_depth"
        assert any("more frames" in note for note in caught.value.__notes__)
        assert vm["total"](np.array(2)) == 3


@pytest.mark.parametrize(("limit", "value"), [("fuel", 100), ("wall_time", 0.05)])
def test_limits_on_a_run(program: Any, limit: str, value: float) -> None:
    vm = machine(program, limits=Limits(**{limit: value}))
    with pytest.raises(LimitError) as caught:
        vm["count_down"](np.array(10**9), np.array(0))
    assert caught.value.limit == limit


def test_cancel(program: Any) -> None:
    vm = machine(program)
    with cancelling(vm), pytest.raises(CancelledError):
        vm["count_down"](np.array(10**9), np.array(0))


def test_closures(program: Any) -> None:
    vm = machine(program)
    closure = vm["adder"](X[0])
    np.testing.assert_array_equal(closure(X[1]), X[0] + X[1])
    np.testing.assert_array_equal(vm.invoke_closure(closure, X[1]), X[0] + X[1])
    with pytest.raises(ArityError, match="got 3"):
        closure(X[1], X[1])


def test_stateful_and_saved_functions(program: Any) -> None:
    vm = machine(program)
    vm.set_input("count_down", n=np.array(4), total=np.array(0))
    vm.invoke_stateful("count_down")
    assert vm.get_outputs("count_down") == 10
    vm.save_function("total", "saved", np.array(4))
    assert vm["saved"]() == 10
    assert vm.total(n=np.array(4)) == 10
    assert vm.module["get_function_arity"]("main") == 2


def test_wrong_arguments(program: Any) -> None:
    vm = machine(program)
    with pytest.raises(ArityError, match=r"main: expects 2 arguments \(x, y\), got 1"):
        vm["main"](X)
    with pytest.raises(ValueError, match="loc=param"):
        vm["main"](X, X[0])


# Errors


def test_notes_on_an_error_are_those_of_bytecode(program: Any, bytecode: Any) -> None:
    notes = []
    for executable in (program, bytecode):
        vm = VirtualMachine(executable, functions={"t.seen": lambda *args: 1 / 0})
        with pytest.raises(ZeroDivisionError) as caught:
            vm["main"](X, X)
        notes.append(caught.value.__notes__)
        assert caught.traceback[-1].path.name == "test_compiled.py"
    assert notes[0] == notes[1]
    assert re.match(r"in main, pc \d+: call t.seen", notes[0][0])
    assert "float32[6]" in notes[0][0]
    assert "binding s at " in notes[0][0]


@I.ir_module
class Nested:
    @R.function(pure=False)
    def inner(x: R.Tensor((3,), "float32")) -> R.Any:
        y = R.call_packed("t.seen", x, ty_args=R.Any)
        return (x, y)

    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")) -> R.Any:
        y = Nested.inner(x)
        return (y, y)


def test_a_note_per_frame() -> None:
    def fail(x: Any) -> Any:
        raise StopIteration("of the callee")

    vm = VirtualMachine(build(Nested, exec_mode="compiled"), functions={"t.seen": fail})
    with pytest.raises(StopIteration, match="of the callee") as caught:
        vm["main"](X[0])
    assert [note.split(",")[0] for note in caught.value.__notes__] == ["in inner", "in main"]
    assert "with float32[3]" in caught.value.__notes__[1]


def test_a_callback_into_the_vm() -> None:
    executable = build(Nested, exec_mode="compiled")
    depth = 0

    def again(x: Any) -> Any:
        nonlocal depth
        depth += 1
        return vm["main"](x) if depth < 3 else x

    vm = VirtualMachine(executable, functions={"t.seen": again})
    ((x, inner), _) = vm["main"](X[0])
    assert np.shares_memory(x, X)
    assert inner[0][1][0][1] is x

    def fail(x: Any) -> Any:
        nonlocal depth
        depth += 1
        return failing["main"](x) if depth < 6 else [][0]

    failing = VirtualMachine(executable, functions={"t.seen": fail})
    with pytest.raises(IndexError) as caught:
        failing["main"](X[0])
    assert [n.split(",")[0] for n in caught.value.__notes__] == ["in inner", "in main"] * 3


def test_missing_functions_are_reported_before_a_run(program: Any) -> None:
    with pytest.raises(LinkError, match=r"'t.seen', used by main \(pc \d+\)") as caught:
        VirtualMachine(program)
    assert caught.value.missing == ("t.seen",)


def test_compiled_functions_can_be_given() -> None:
    builder = ExecBuilder()
    builder.add_compiled("main", 1, 2, ["x"])
    vm = VirtualMachine(builder.get(), functions={f"{COMPILED_PREFIX}main": lambda vm, x: (x, x)})
    assert vm.main(x=3) == (3, 3)
    with pytest.raises(InternalError, match="defined already"):
        builder.add_compiled("main", 1, 2, ["x"])


def test_pickle(program: Any) -> None:
    again = pickle.loads(pickle.dumps(program))
    assert again == program
    np.testing.assert_array_equal(machine(again)["main"](X, X)[0], (X * 2 * X * 2).ravel())


def test_names_that_are_reserved_in_python() -> None:
    x = ir.Var("for", ir.TensorType((3,), "float32"))
    vm = ir.Var("vm", ir.TensorType((3,), "float32"))
    bb = ir.BlockBuilder()
    with bb.function("class", [x, vm]):
        y = bb.emit(ir.Call(ir.ExternFunc("t.a-b"), [x, vm], ty_args=[ir.ANY]), "c")
        bb.emit_func_output(ir.Tuple([y, x]))
    executable = build(bb.get(), exec_mode="compiled")
    machine = VirtualMachine(executable, functions={"t.a-b": lambda a, b: a + b})
    np.testing.assert_array_equal(machine["class"](X[0], X[1])[0], X[0] + X[1])


# What sees calls


def test_an_instrument_sees_every_call_and_skips(program: Any, bytecode: Any) -> None:
    seen = []
    for executable in (program, bytecode):
        vm = machine(executable)
        calls: list[str] = []

        def instrument(func: Any, name: str, before: bool, ret: Any, *args: Any) -> Any:
            calls.append(name)  # noqa: B023
            skips = before and name == "t.seen"
            return VMInstrumentReturnKind.SKIP_RUN if skips else VMInstrumentReturnKind.NO_OP

        vm.set_instrument(instrument)
        assert vm["main"](X, X)[1] is None
        vm.set_instrument(None)
        assert vm["main"](X, X)[1] == (3, 1.5, "text")
        seen.append(calls)
    assert seen[0] == seen[1]
    assert "t.seen" in seen[0]


def test_a_profile_sees_the_calls(program: Any) -> None:
    vm = machine(program)
    with relaxvm.profile(vm) as profile:
        vm["total"](np.array(3))
    assert "total" in str(profile)


# Without a compiler


def test_without_a_compiler_bytecode_runs(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/compiler")
    message = "no C compiler: .*the functions of this program run as bytecode"
    with pytest.warns(RelaxVMWarning, match=message):
        vm = machine(program)
    assert vm.native_code is not None
    assert vm.native_code.functions == ()
    assert "no C compiler" in (vm.native_code.problem or "")
    assert vm["total"](np.array(4)) == 10


# While it runs


def test_hot_functions_are_compiled_in_the_background(bytecode: Any) -> None:
    vm = machine(bytecode, jit=True)
    code = vm.native_code
    assert code is not None
    assert code.functions == ()
    assert vm["count_down"](np.array(3 * HOT), np.array(0)) == 3 * HOT * (3 * HOT + 1) // 2
    assert code.wait(120)
    assert code.functions == ("count_down",)
    assert code.problem is None
    assert vm["count_down"](np.array(5), np.array(0)) == 15
    assert vm["total"](np.array(4)) == 10


def test_a_loop_goes_on_natively_in_the_same_run(bytecode: Any) -> None:
    vm = machine(bytecode, jit=True, limits=Limits(wall_time=120.0))
    code = vm.native_code
    assert code is not None
    stop = threading.Event()

    def cancel() -> None:
        code.wait(60)
        while not code.functions and not stop.wait(0.05):
            pass
        while not stop.wait(0.05):
            vm.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(CancelledError):
            vm["count_down"](np.array(1 << 60), np.array(0))
    finally:
        stop.set()
        canceller.join()
    assert code.functions == ("count_down",)


def test_an_exception_while_a_compilation_begins_ends_the_run(
    bytecode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a signal handler: it is not lost, and the machine works afterwards."""
    vm = machine(bytecode, jit=True)

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(vm), "_on_hot", interrupted)
        with pytest.raises(KeyboardInterrupt):
            vm["count_down"](np.array(3 * HOT), np.array(0))
    assert vm["count_down"](np.array(5), np.array(0)) == 15


def test_nothing_is_compiled_without_a_compiler(
    bytecode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/no/such/compiler")
    vm = machine(bytecode, jit=True)
    assert vm["count_down"](np.array(2 * HOT), np.array(0)) == HOT * (2 * HOT + 1)
    assert vm.native_code is not None
    assert vm.native_code.wait(60)
    assert vm.native_code.functions == ()
    assert vm["total"](np.array(4)) == 10


def test_a_thread_cannot_be_started(bytecode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    vm = machine(bytecode, jit=True)
    assert vm["count_down"](np.array(2 * HOT), np.array(0)) == HOT * (2 * HOT + 1)
    assert vm.native_code is not None
    assert vm.native_code.wait(60)
    assert vm.native_code.problem is not None
    assert "can't start new thread" in vm.native_code.problem


def test_an_unexpected_error_of_the_compiling_thread(
    bytecode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the program runs on as bytecode."""

    def native_program(*args: object, **options: object) -> None:
        raise ZeroDivisionError("by the generator")

    monkeypatch.setattr(relaxvm.VMExecutable, "_native_program", native_program)
    vm = machine(bytecode, jit=True)
    code = vm.native_code
    assert code is not None
    assert vm["count_down"](np.array(2 * HOT), np.array(0)) == HOT * (2 * HOT + 1)
    assert code.wait(60)
    assert code.problem == (
        "cannot compile in the background: ZeroDivisionError: by the generator"
    )
    assert vm["count_down"](np.array(2 * HOT), np.array(0)) == HOT * (2 * HOT + 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_functions_are_compiled(
    bytecode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child has no thread that compiles: it starts its own when the function is hot again."""
    begun, go_on = threading.Event(), threading.Event()
    original = relaxvm.VMExecutable._native_program
    parent = os.getpid()

    def native_program(*args: Any, **options: Any) -> Any:
        if os.getpid() == parent:
            begun.set()
            assert go_on.wait(60)
        return original(*args, **options)

    monkeypatch.setattr(relaxvm.VMExecutable, "_native_program", native_program)
    vm = machine(bytecode, jit=True)
    code = vm.native_code
    assert code is not None
    vm["count_down"](np.array(2 * HOT), np.array(0))
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            is_right = vm["count_down"](np.array(2 * HOT), np.array(0)) == HOT * (2 * HOT + 1)
            in_time = code.wait(60)
            status = 0 if is_right and in_time and code.functions == ("count_down",) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    go_on.set()
    assert status == 0
    assert code.wait(60)
    assert code.functions == ("count_down",)


def test_a_pickled_machine_compiles_too(bytecode: Any) -> None:
    vm = VirtualMachine(build(Scalars), jit=True)
    assert pickle.loads(pickle.dumps(vm)).native_code is not None


# Tuples and closures of which no object is made


def all_native(executable: relaxvm.VMExecutable) -> VirtualMachine:
    """A machine with native code for all functions, also for those that do not gain by it."""
    vm = VirtualMachine(executable)
    image = vm._translated_for_entries()
    bytecode = [i for i, f in enumerate(executable.functions) if f.kind == FuncKind.BYTECODE]
    program = compile_program(image, bytecode)
    assert program is not None
    program.attach(image)
    vm._use(image)
    return vm


@I.ir_module
class Shared:
    @R.function
    def in_one(x: R.Any) -> R.Any:
        t = (x, x)
        return ((t, t), t)

    @R.function
    def taken_out(x: R.Any) -> R.Any:
        t = (x, x)
        u = (t, x)
        v = u[0]
        w = u[0]
        return (u, v, w)

    @R.function
    def bound_again(x: R.Any) -> R.Any:
        t = (x, x)
        u = (t,)
        v = u
        return (v[0], u[0], v, u)

    @R.function
    def captured(x: R.Any) -> R.Any:
        t = (x, x)

        @R.function
        def inner(y: R.Any) -> R.Any:
            return (t, y)

        a = inner(x)
        b = inner(x)
        return (a[0], b[0])


def sharing(value: Any, seen: dict[int, int]) -> Any:
    """A value with the number of the tuple, in order, in the place of each tuple seen before."""
    if not isinstance(value, tuple):
        return value
    if id(value) in seen:
        return f"tuple {seen[id(value)]}"
    seen[id(value)] = len(seen)
    return tuple(sharing(item, seen) for item in value)


@pytest.mark.parametrize("name", ["in_one", "taken_out", "bound_again", "captured"])
def test_one_tuple_becomes_one_object(name: str) -> None:
    executable = build(Shared)
    vms = [VirtualMachine(executable), all_native(executable)]
    one, other = (vm[name]("x") for vm in vms)
    assert sharing(other, {}) == sharing(one, {})
    assert "tuple" in str(sharing(other, {}))


# Endless loops


@I.ir_module(s_tir=True)
class Endless:
    @R.function
    def scalars(i: R.Prim("int64")) -> R.Prim("int64"):
        if i == -1:
            r: R.Prim("int64") = i
        else:
            r: R.Prim("int64") = Endless.scalars(i)
        return r

    @R.function
    def tuples(i: R.Prim("int64"), x: R.Any, y: R.Any) -> R.Any:
        if i == -1:
            r = (x, y)
        else:
            t = (y, x)
            r = Endless.tuples(i, t[0], t[1])
        return r

    @R.function
    def kernels(x: R.Tensor((8,), "float32"), i: R.Prim("int64")) -> R.Tensor((8,), "float32"):
        if i == -1:
            r: R.Tensor((8,), "float32") = x
        else:
            y: R.Tensor((8,), "float32") = R.add(x, R.const(0, "float32"))
            r: R.Tensor((8,), "float32") = Endless.kernels(y, i)
        return r


@pytest.fixture(scope="module")
def endless() -> relaxvm.VMExecutable:
    return build(Endless, exec_mode="compiled")


class TestEndlessLoops:
    """They end within 100 ms.  That is processor time, so it does not depend on what else runs."""

    WITHIN = 0.1
    ARGS: Final = {"scalars": (1,), "tuples": (1, "a", "b"), "kernels": (np.zeros(8, F32), 1)}

    @pytest.mark.parametrize("name", ARGS)
    def test_cancel(self, endless: Any, name: str) -> None:
        vm = VirtualMachine(endless)
        assert vm.native_code is not None
        assert name in vm.native_code.functions
        cancelled: list[float] = []

        def cancel() -> None:
            time.sleep(0.1)
            cancelled.append(time.process_time())
            vm.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(CancelledError):
            vm[name](*self.ARGS[name])
        assert time.process_time() - cancelled[0] < self.WITHIN
        canceller.join()

    @pytest.mark.parametrize("name", ARGS)
    def test_deadline(self, endless: Any, name: str) -> None:
        vm = VirtualMachine(endless, limits=Limits(wall_time=0.1))
        begin = time.process_time()
        with pytest.raises(LimitError, match="wall_time"):
            vm[name](*self.ARGS[name])
        assert time.process_time() - begin < 0.1 + self.WITHIN

    @pytest.mark.skipif(not hasattr(signal, "ITIMER_PROF"), reason="needs timers")
    @pytest.mark.parametrize("name", ARGS)
    def test_a_signal(self, endless: Any, name: str) -> None:
        """Its handler raises, as that of Ctrl-C does."""
        vm = VirtualMachine(endless)
        before = signal.signal(signal.SIGPROF, signal.default_int_handler)
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                vm[name](*self.ARGS[name])
            assert time.process_time() - begin < 0.1 + self.WITHIN
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


# Scalars


@I.ir_module(s_tir=True)
class Scalars:
    @R.function
    def triangle(i: R.Prim("int64"), a: R.Prim("int64")) -> R.Prim("int64"):
        if i > 0:
            r: R.Prim("int64") = Scalars.triangle(i - 1, a + i)
        else:
            r: R.Prim("int64") = a
        return r

    @R.function
    def fib(n: R.Prim("int64")) -> R.Prim("int64"):
        if n < 2:
            r: R.Prim("int64") = n
        else:
            a: R.Prim("int64") = Scalars.fib(n - 1)
            b: R.Prim("int64") = Scalars.fib(n - 2)
            r: R.Prim("int64") = a + b
        return r

    @R.function
    def power(i: R.Prim("int64"), a: R.Prim("int64")) -> R.Prim("int64"):
        if i > 0:
            r: R.Prim("int64") = Scalars.power(i - 1, a * 3)
        else:
            r: R.Prim("int64") = a
        return r


def test_loops_of_scalars() -> None:
    vm = VirtualMachine(build(Scalars, exec_mode="compiled"))
    assert vm["triangle"](1000, 5) == 500505
    assert vm["fib"](15) == 610
    with pytest.raises(ValueError, match="64 bits"):
        vm["triangle"](0, 1 << 70)
    with pytest.raises(TypeError):
        vm["triangle"]("3", 0)


def test_overflow_is_that_of_bytecode() -> None:
    errors = []
    for mode in ("bytecode", "compiled"):
        vm = VirtualMachine(build(Scalars, exec_mode=mode))
        assert vm["power"](38, 1) == 3**38
        with pytest.raises(OverflowError) as caught:
            vm["power"](39, 1)
        errors.append((str(caught.value), caught.value.__notes__))
    assert errors[0] == errors[1]


def test_recursion_is_deeper_than_the_stack_of_c() -> None:
    @I.ir_module(s_tir=True)
    class Deep:
        @R.function
        def main(n: R.Prim("int64")) -> R.Prim("int64"):
            if n > 0:
                a: R.Prim("int64") = Deep.main(n - 1)
                r: R.Prim("int64") = a + 1
            else:
                r: R.Prim("int64") = n
            return r

    vm = VirtualMachine(build(Deep, exec_mode="compiled"), limits=Limits(call_depth=200_001))
    assert vm["main"](200_000) == 200_000
    with pytest.raises(LimitError, match="nested deeper than 200001 frames"):
        vm["main"](200_001)


# VM-TIR


def lowered(mod: Any) -> ir.IRModule:
    for the_pass in (
        transform.LegalizeOps(), transform.ToNonDataflow(), transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.LowerAllocTensor(), transform.LowerRuntimeBuiltin(), transform.ComputePrimValue(),
        transform.VMShapeLower(), transform.AttachGlobalSymbol(),
    ):  # fmt: skip
        mod = the_pass(mod)
    return mod


def test_vm_tir_of_an_if() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def ife(cond: R.Tensor((), "bool"), x: R.Any) -> R.Any:
            R.func_attr({"global_symbol": "ife"})
            if cond:
                w = R.call_packed("test.identity", x, ty_args=R.Any)
            else:
                w = R.call_packed("test.identity", x, x, ty_args=R.Any)
            return w

    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def __vmtir__ife(ctx_ptr: T.handle, r: T.handle, c: T.handle, f: T.handle):
            T.func_attr({"global_symbol": "__vmtir__ife"})
            if T.Call(
                ir.Op.get("tirx.tvm_call_packed"),
                ["vm.builtin.read_if_cond", T.anylist_getitem(r, T.int32(0))],
                ret_ty="bool",
            ):
                T.anylist_setitem_call_packed(
                    r, T.int32(4), "test.identity", T.anylist_getitem(r, T.int32(1))
                )
                T.anylist_setitem_call_packed(
                    r, T.int32(3), "vm.builtin.copy", T.anylist_getitem(r, T.int32(4))
                )
            else:
                T.anylist_setitem_call_packed(
                    r, T.int32(5), "test.identity", T.anylist_getitem(r, T.int32(1)),
                    T.anylist_getitem(r, T.int32(1)),
                )  # fmt: skip
                T.anylist_setitem_call_packed(
                    r, T.int32(3), "vm.builtin.copy", T.anylist_getitem(r, T.int32(5))
                )
            T.anylist_setitem_call_packed(
                r, T.int32(2), "vm.builtin.copy", T.anylist_getitem(r, T.int32(3))
            )

    builder = ExecBuilder()
    ir.assert_structural_equal(vmcodegen(builder, Mod, "compiled"), Expected)
    info = builder.get().function("ife")
    assert (info.num_args, info.register_file_size) == (2, 6)


def test_vm_tir_prints_and_parses() -> None:
    left = vmcodegen(ExecBuilder(), lowered(transform.LambdaLift()(Program)), "compiled")
    ir.assert_structural_equal(script.from_source(left.script()), left)
    assert {v.name_hint for v in left.get_global_vars()} >= {"__vmtir__main", "double"}


def test_expressions_that_lowering_should_have_removed() -> None:
    for mode in ("compiled", "bytecode"):
        with pytest.raises(TypeError, match="no pass has lowered it"):
            vmcodegen(ExecBuilder(), transform.AttachGlobalSymbol()(Program), mode)


def _tvm_vm_tir(text: str) -> str:
    """TVM's text of VM-TIR, with the information that it omits: conditions are bools."""
    call = r'if T.Call("bool", "tirx.tvm_call_packed", [\1]):'
    return re.sub(r"if T\.call_packed\((.*)\):", call, text)


def _tvm_programs() -> Any:
    try:
        from .tvm_programs import PROGRAMS
    except ImportError:
        return []
    return [name for name in PROGRAMS if name != "constants"]  # its text has no constants


@pytest.mark.parametrize("name", _tvm_programs())
def test_vm_tir_is_that_of_tvm(name: str) -> None:
    tvm = pytest.importorskip("tvm")
    from tvm.relax import transform as passes
    from tvm.relax import vm_build

    from .tvm_programs import PROGRAMS

    mod = passes.LambdaLift()(PROGRAMS[name])
    for the_pass in (
        passes.LegalizeOps(), passes.RewriteDataflowReshape(), passes.ToNonDataflow(),
        passes.RemovePurityChecking(), passes.CallTIRRewrite(), passes.StaticPlanBlockMemory(),
        passes.LowerAllocTensor(), passes.KillAfterLastUse(), passes.LowerRuntimeBuiltin(),
        passes.ComputePrimValue(), passes.VMShapeLower(), passes.AttachGlobalSymbol(),
    ):  # fmt: skip
        mod = the_pass(mod)
    builder = tvm.relax.ExecBuilder()
    theirs = script.from_source(
        _tvm_vm_tir(vm_build._vmcodegen(builder, mod, "compiled").script()),
        check_well_formed=False,
    )
    same = script.from_source(mod.script(), check_well_formed=False)
    order = [var.name_hint for var in mod.functions]
    same = ir.IRModule({same.get_global_var(name): same[name] for name in order})
    own = ExecBuilder()
    ours = vmcodegen(own, same, "compiled")
    names = [var.name_hint for var in theirs.get_global_vars()]
    found = [name for name in names if name.startswith(COMPILED_PREFIX)]
    assert found
    for function in found:
        ir.assert_structural_equal(ours[function], theirs[function])
    assert own.get().as_text() == builder.get().as_text()


# The pages

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [(DOCS / name).read_text(encoding="utf-8") for name in ("compile.md", "compiled-mode.md")]
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", "\n".join(PAGES), re.S)


@pytest.mark.parametrize(("source", "output"), BLOCKS)
def test_the_pages(source: str, output: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "block.py"
    path.write_text(source)
    runpy.run_path(str(path), run_name="block")
    assert capsys.readouterr().out.rstrip() == output.rstrip()
