"""VirtualMachine: construction, ways to call, state, instruments, pickling, lifetime."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from relaxvm import (
    Closure,
    ExecBuilder,
    Limits,
    Registry,
    Shape,
    VirtualMachine,
    VMInstrumentReturnKind,
    cpu,
    register_func,
)
from relaxvm.errors import (
    ArityError,
    CancelledError,
    InternalError,
    LimitError,
    LinkError,
    VerifyError,
)
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.isa import FuncKind
from relaxvm.registry import GLOBAL
from relaxvm.values import Device

from . import children
from .threads import run_in_threads
from .vm_programs import FUNCTIONS, X, Y, add, calls, forever, last, program


@pytest.fixture
def vm() -> VirtualMachine:
    return VirtualMachine(program(), functions=FUNCTIONS)


# Calling


def test_call_by_item_and_by_attribute(vm: VirtualMachine) -> None:
    np.testing.assert_array_equal(vm["main"](X, Y), X + Y)
    np.testing.assert_array_equal(vm.main(X, Y), X + Y)
    assert vm.five() == 5
    assert vm["ident"](X) is X


@pytest.mark.parametrize(
    "value", [7, 2.5, True, None, "text", Shape((2, 3)), np.dtype("int8"), 1 << 80, (1, 2.0)]
)
def test_scalars_keep_their_value(vm: VirtualMachine, value: object) -> None:
    got = vm["ident"](value)
    assert got == value
    assert type(got) is type(value)


def test_keywords(vm: VirtualMachine) -> None:
    np.testing.assert_array_equal(vm.main(X, weight=Y), X + Y)
    np.testing.assert_array_equal(vm.main(weight=Y, x=X), X + Y)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((X,), {}, ArityError, r"main: expects 2 arguments \(x, weight\), got 1"),
        ((X, Y, X), {}, ArityError, r"main: expects 2 arguments \(x, weight\), got 3"),
        ((), {"x": X}, ArityError, r"expects 2 arguments \(x, weight\), got 1; missing 'weight'"),
        ((X, Y), {"x": X}, TypeError, r"main: two values for the parameter 'x'"),
        ((X,), {"x": X}, TypeError, r"main: two values for the parameter 'x'"),
        ((X,), {"wieght": Y}, TypeError,
         r"unexpected keyword 'wieght', the parameters are \(x, weight\); did you mean 'weight'"),
        ((X, Y, X), {"x": X}, ArityError, r"got 4"),
    ],
)  # fmt: skip
def test_wrong_arguments(
    vm: VirtualMachine, args: Any, kwargs: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        vm["main"](*args, **kwargs)
    assert vm.five() == 5


def test_function_without_parameter_names(vm: VirtualMachine) -> None:
    assert vm.unnamed(1, 2) == (1, 2)
    with pytest.raises(TypeError, match="unexpected keyword 'x', its 2 parameters have no names"):
        vm.unnamed(x=1)
    with pytest.raises(ArityError, match="unnamed: expects 2 arguments, got 1"):
        vm.unnamed(1)


def test_unknown_function(vm: VirtualMachine) -> None:
    with pytest.raises(AttributeError, match=r"VM has no function 'x2'; its functions are '\w+'"):
        vm["x2"]
    with pytest.raises(AttributeError, match="VM has no function 'mian'; did you mean 'main'"):
        vm["mian"]
    with pytest.raises(AttributeError, match=r"VM has no function 'x2'; its functions are '\w+'"):
        vm["x2"]
    with pytest.raises(AttributeError, match="VM has no function 'mian'; did you mean 'main'"):
        vm.mian  # noqa: B018
    with pytest.raises(AttributeError, match=r"'t\.add' is a packed function"):
        vm["t.add"]
    assert not hasattr(vm, "nope")
    assert not hasattr(vm, "__array__")
    assert "main" in vm
    assert "nope" not in vm


def test_signature(vm: VirtualMachine) -> None:
    assert str(vm["main"].signature) == "(x, weight)"
    assert inspect.signature(vm["main"]) == vm["main"].signature
    assert str(vm["unnamed"].signature) == "(arg0, arg1, /)"
    b = ExecBuilder()
    with b.function("f", num_inputs=2, param_names=["class", "x.1"]):
        b.emit_call("t.keep", [b.r(0), b.r(1)], dst=b.r(0))
        b.emit_ret(b.r(0))
    odd = VirtualMachine(b.get(), functions=FUNCTIONS)
    assert str(odd["f"].signature) == "(arg0, arg1, /)"
    assert odd.f(1, **{"x.1": 2}) == (1, 2)


def test_bind(vm: VirtualMachine) -> None:
    by_name = vm["unnamed"].bind(1)
    assert by_name(2) == (1, 2)
    bound = vm["main"].bind(weight=Y)
    np.testing.assert_array_equal(bound(X), X + Y)
    np.testing.assert_array_equal(bound(x=X), X + Y)
    assert str(bound.signature) == "(x)"
    assert inspect.signature(bound) == bound.signature
    np.testing.assert_array_equal(bound.bind(X)(), X + Y)
    np.testing.assert_array_equal(vm["main"].bind(X).bind(weight=Y)(), X + Y)
    assert repr(bound) == "<main bound: x, weight=float32[2]>"
    with pytest.raises(TypeError, match="unexpected keyword 'weight'"):
        bound(X, weight=Y)
    with pytest.raises(ArityError, match=r"main: expects 1 argument \(x\), got 0; missing 'x'"):
        bound()
    with pytest.raises(ArityError, match="got 3"):
        vm["main"].bind(1, 2, 3)
    with pytest.raises(TypeError, match="two values for the parameter 'x'"):
        vm["main"].bind(1, x=2)


def test_bind_with_gaps() -> None:
    b = ExecBuilder()
    with b.function("f", num_inputs=5, param_names=list("abcde")):
        b.emit_call("t.keep", [b.r(i) for i in range(5)], dst=b.r(5))
        b.emit_ret(b.r(5))
    f = VirtualMachine(b.get(), functions=FUNCTIONS)["f"]
    assert f.bind(b=2, d=4)(1, 3, 5) == (1, 2, 3, 4, 5)
    assert f.bind(b=2, d=4)(1, e=5, c=3) == (1, 2, 3, 4, 5)
    assert f.bind(1, e=5)(2, 3, 4) == (1, 2, 3, 4, 5)
    assert f.bind(c=3).bind(1, e=5).bind(d=4)(2) == (1, 2, 3, 4, 5)
    assert str(f.bind(b=2, d=4).signature) == "(a, c, e)"
    with pytest.raises(ArityError, match=r"f: expects 3 arguments \(a, c, e\), got 2; missing 'e'"):
        f.bind(b=2, d=4)(1, 3)


def test_bind_converts_arguments_once(vm: VirtualMachine) -> None:
    class Producer:
        calls = 0

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            Producer.calls += 1
            return X

    bound = vm["main"].bind(Producer())
    bound(Y)
    bound(Y)
    assert Producer.calls == 1


def test_functions_mapping(vm: VirtualMachine) -> None:
    names = ["main", "ident", "unnamed", "five", "nested", "outer", "make", "every_kind"]
    assert list(vm.functions) == names
    assert len(vm.functions) == len(names)
    assert vm.functions["five"]() == 5
    assert vm.functions["main"].param_names == ("x", "weight")
    assert "t.add" not in vm.functions
    with pytest.raises(KeyError):
        vm.functions["nope"]
    assert "main(x, weight)" in repr(vm.functions)
    assert {"main", "five"} <= set(dir(vm))


def test_repr(vm: VirtualMachine) -> None:
    text = repr(vm)
    assert text == ("<VirtualMachine on cpu(0): main(x, weight), ident(x), unnamed(arg0, arg1), "
                    "five(), ... 4 more>")
    assert "main" in vm._repr_html_()


# Arguments and results


def test_every_kind_of_argument(vm: VirtualMachine) -> None:
    seen: list[Any] = []

    def show(*args: Any) -> None:
        seen.extend(args)

    machine = VirtualMachine(program(), functions={**FUNCTIONS, "t.last": show})
    machine.every_kind(X)
    assert seen[0] is X
    assert seen[1:6] == [3, "s", 2.5, np.dtype("float32"), Shape((2, 3))]
    assert isinstance(seen[5], Shape)
    assert seen[6] is machine
    assert seen[7] is None
    np.testing.assert_array_equal(seen[8](X, Y), X + Y)


def test_tuples_come_back_as_tuples(vm: VirtualMachine) -> None:
    (a, b), c = vm.nested(X)
    assert a is b is c is X


def test_kernel_error_passes_through(vm: VirtualMachine) -> None:
    class Odd(Exception):
        pass

    def fails(a: Any, b: Any) -> None:
        raise Odd("from the kernel")

    machine = VirtualMachine(program(), functions={**FUNCTIONS, "t.add": fails})
    with pytest.raises(Odd, match="from the kernel") as caught:
        machine.main(1, 2)
    frame = caught.traceback[-1]
    assert frame.path.name == "test_vm.py"
    assert frame.name == "fails"
    assert machine.five() == 5


def test_a_kernel_may_call_back(vm: VirtualMachine) -> None:
    def callback(a: Any, b: Any) -> Any:
        return machine.five() + a + b

    machine = VirtualMachine(program(), functions={**FUNCTIONS, "t.add": callback})
    assert machine.main(1, 2) == 8
    assert machine.outer(1, 2) == 8


# Construction


@pytest.mark.parametrize("what", [None, b"", object(), ExecBuilder()])
def test_not_an_executable(what: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a relaxvm\.VMExecutable or the path of a f"):
        VirtualMachine(what)


def test_devices() -> None:
    ex = program()
    made = lambda device: VirtualMachine(ex, device, functions=FUNCTIONS).devices  # noqa: E731
    assert made(None) == (cpu(),)
    assert made(cpu(3)) == (cpu(3),)
    assert made([cpu(0), cpu(1)]) == (cpu(0), cpu(1))
    assert made((cpu(0),)) == (cpu(0),)
    given = [Device("cuda")]
    assert made(given) == (Device("cuda"), cpu())
    assert given == [Device("cuda")]
    with pytest.raises(TypeError, match="expected a Device or a list of them, got str 'cpu'"):
        made("cpu")
    with pytest.raises(TypeError, match="expected a list of Device, got str 'cpu' in it"):
        made(["cpu"])
    with pytest.raises(ValueError, match="expected at least one device"):
        made([])


def test_limits_must_be_limits() -> None:
    with pytest.raises(TypeError, match=r"limits: expected relaxvm\.Limits, got str"):
        VirtualMachine(program(), limits="untrusted", functions=FUNCTIONS)  # type: ignore[arg-type]


def test_executable_is_verified_before_anything_runs() -> None:
    ran: list[Any] = []
    bad = VMExecutable(
        [FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 0, 1)], [], [0], [3, 5]
    )  # a jump out of the function
    with pytest.raises(VerifyError, match="main, pc 0"):
        VirtualMachine(bad, functions={"t.add": ran.append})
    assert not ran


def test_limits_are_checked_at_creation() -> None:
    with pytest.raises((LimitError, VerifyError), match="functions"):
        VirtualMachine(program(), limits=Limits(functions=2), functions=FUNCTIONS)


def test_an_executable_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxvm.verify import verifier

    seen: list[VMExecutable] = []
    real = verifier.verify

    def counting(executable: VMExecutable, **kwargs: Any) -> Any:
        seen.append(executable)
        return real(executable, **kwargs)

    monkeypatch.setattr(verifier, "verify", counting)
    ex = program()
    strict = Limits(registers=100)
    VirtualMachine(ex, functions=FUNCTIONS, limits=strict)
    VirtualMachine(ex, functions=FUNCTIONS, limits=strict)
    VirtualMachine(ex, functions=FUNCTIONS, limits=Limits(registers=200))
    VirtualMachine(ex, functions=FUNCTIONS, limits=Limits(registers=None))
    assert len(seen) == 1
    VirtualMachine(ex, functions=FUNCTIONS, limits=Limits(registers=99))
    assert len(seen) == 2
    VirtualMachine(program(), functions=FUNCTIONS, limits=strict)
    assert len(seen) == 3, "an equal executable is another object"
    other = Registry(FUNCTIONS)
    other.register("t.add", add, override=True, signature="a: any, b: any")
    VirtualMachine(ex, functions=other, limits=strict)
    assert len(seen) == 4, "another signature must be checked"


def test_a_rejected_executable_is_rejected_again() -> None:
    bad = VMExecutable([FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 0, 1)], [], [0], [3, 5])
    for _ in range(2):
        with pytest.raises(VerifyError):
            VirtualMachine(bad)


# Closures


def test_invoke_closure(vm: VirtualMachine) -> None:
    closure = vm.make("captured")
    assert isinstance(closure, Closure)
    assert vm.invoke_closure(closure, "arg") == ("arg", "captured")
    assert closure("arg") == ("arg", "captured")
    np.testing.assert_array_equal(vm.invoke_closure(vm["main"], X, Y), X + Y)
    with pytest.raises(ArityError, match="unnamed: expects 2 arguments"):
        vm.invoke_closure(closure)
    for other in (3, add, None, "main"):
        with pytest.raises(TypeError, match="expected a closure or a VM function, got"):
            vm.invoke_closure(other, 1)  # type: ignore[arg-type]


# Saved functions


def test_save_function(vm: VirtualMachine) -> None:
    vm.save_function("main", "saved", X, Y)
    np.testing.assert_array_equal(vm["saved"](), X + Y)
    np.testing.assert_array_equal(vm.saved(), X + Y)
    assert "saved" in vm
    vm.save_function("main", "silent", X, weight=Y, include_return=False)
    assert vm["silent"]() is None


def test_saved_arguments_come_last(vm: VirtualMachine) -> None:
    vm.save_function("unnamed", "saved", "last")
    assert vm["saved"]("first") == ("first", "last")
    vm.save_function("saved", "both", "first")
    assert vm["both"]() == ("first", "last")
    with pytest.raises(ArityError, match="unnamed: expects 2 arguments, got 1"):
        vm["saved"]()
    with pytest.raises(ArityError, match="unnamed: expects 2 arguments, got 3"):
        vm["both"](1)


def test_saved_function_shadows_only_the_lookup(vm: VirtualMachine) -> None:
    vm.save_function("five", "main")
    assert vm["main"]() == 5
    np.testing.assert_array_equal(vm.outer(X, Y), X + Y)
    np.testing.assert_array_equal(vm.functions["main"](X, Y), X + Y)
    vm.set_input("main", X, Y)
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main"), X + Y)


def test_save_function_keywords(vm: VirtualMachine) -> None:
    vm.save_function("unnamed", "tail", 1)
    vm.save_function("main", "kw", weight=Y, x=X)
    np.testing.assert_array_equal(vm["kw"](), X + Y)
    with pytest.raises(ValueError, match="unknown function: VM has no function 'nope'"):
        vm.save_function("nope", "s", X)
    with pytest.raises(TypeError, match="unexpected keyword 'w', the parameters are"):
        vm.save_function("main", "s", X, w=Y)
    with pytest.raises(ArityError, match="missing 'x'"):
        vm.save_function("main", "s", weight=Y)


# The stateful interface


def test_stateful(vm: VirtualMachine) -> None:
    vm.set_input("main", X, Y)
    assert vm.invoke_stateful("main") is None  # type: ignore[func-returns-value]
    np.testing.assert_array_equal(vm.get_outputs("main"), X + Y)
    vm.set_input("nested", X)
    vm.invoke_stateful("nested")
    (a, b), c = vm.get_outputs("nested")
    assert a is b is c is X


def test_stateful_errors(vm: VirtualMachine) -> None:
    with pytest.raises(ValueError, match="main: no inputs are set; call set_input first"):
        vm.invoke_stateful("main")
    with pytest.raises(ValueError, match="main: no output is saved; call invoke_stateful first"):
        vm.get_outputs("main")
    vm.set_input("main", X, Y)
    with pytest.raises(ValueError, match="no output is saved"):
        vm.get_outputs("main")
    with pytest.raises(ArityError, match=r"main: expects 2 arguments \(x, weight\), got 0"):
        vm["main"]()
    with pytest.raises(InternalError, match="expects 2 arguments"):
        vm.set_input("main", X)
    for method in (vm.set_input, vm.invoke_stateful):
        with pytest.raises(ValueError, match="unknown function: VM has no function 'nope'"):
            method("nope")
    with pytest.raises(ValueError, match="no output"):
        vm.get_outputs("nope")


def test_set_input_by_keyword(vm: VirtualMachine) -> None:
    vm.set_input("unnamed", 1, 2)
    vm.set_input("main", Y, x=X)  # the positional argument goes to the parameter without a keyword
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main"), X + Y)
    with pytest.raises(TypeError, match=r"keyword 'wieght'.*did you mean 'weight'"):
        vm.set_input("main", X, weight=Y, wieght=Y)
    with pytest.raises(ArityError, match="got 3"):
        vm.set_input("main", X, Y, weight=Y)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (3, "int32"),
        (True, "int32"),
        (2.5, "float32"),
        (np.float16(1.5), "float16"),
        (np.float64(1.5), "float32"),
        (np.int64(3), "int32"),
        (np.bool_(True), "int32"),
    ],
)
def test_set_input_makes_arrays_of_numbers(vm: VirtualMachine, given: Any, dtype: str) -> None:
    vm.set_input("ident", given)
    vm.invoke_stateful("ident")
    got = vm.get_outputs("ident")
    assert isinstance(got, np.ndarray)
    assert (got.shape, got.dtype) == ((), np.dtype(dtype))
    assert got == given
    vm.save_function("ident", "s", given)
    assert vm["s"]().dtype == np.dtype(dtype)


def test_set_input_other_values(vm: VirtualMachine) -> None:
    def through(value: Any) -> Any:
        vm.set_input("ident", value)
        vm.invoke_stateful("ident")
        return vm.get_outputs("ident")

    assert through(X) is X
    assert through("text") == "text"
    assert through(Shape((2, 3))) == Shape((2, 3))
    assert type(through(Shape((2, 3)))) is Shape
    assert through(np.dtype("int8")) == np.dtype("int8")
    assert through(vm["main"]) == vm["main"]
    one, (two, same) = through([1, (2.5, X)])
    assert (one.dtype, two.dtype) == (np.dtype("int32"), np.dtype("float32"))
    assert same is X
    for value in (None, {}, object(), 1 + 2j, lambda: None):
        if isinstance(value, complex):
            continue
        with pytest.raises(TypeError, match="ident: expected an array, number, string or tuple"):
            vm.set_input("ident", value)
    with pytest.raises(OverflowError, match="ident: int 1099511627776 does not fit int32"):
        vm.set_input("ident", 1 << 40)


def test_failed_set_input_changes_nothing(vm: VirtualMachine) -> None:
    vm.set_input("main", X, Y)
    with pytest.raises(TypeError):
        vm.set_input("main", X, None)
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main"), X + Y)


# Instruments


class Tape:
    """An instrument that records its calls."""

    def __init__(self, **answers: Any) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.answers = answers

    def __call__(self, func: Any, name: str, before: bool, ret: Any, *args: Any) -> Any:
        self.events.append((name, before, ret, args))
        return self.answers.get(name.rpartition(".")[2]) if before else None


def test_instrument_sees_calls_in_order(vm: VirtualMachine) -> None:
    tape = Tape()
    vm.set_instrument(tape)
    vm.outer(1, 2)
    assert tape.events == [
        ("main", True, None, (1, 2)),
        ("t.add", True, None, (1, 2)),
        ("t.add", False, 3, (1, 2)),
        ("main", False, 3, (1, 2)),
    ]
    vm.set_instrument(None)
    vm.outer(1, 2)
    assert len(tape.events) == 4


def test_instrument_sees_builtins_and_closures(vm: VirtualMachine) -> None:
    tape = Tape()
    vm.set_instrument(tape)
    closure = vm.make("c")
    assert [(name, before) for name, before, *_ in tape.events] == [
        ("vm.builtin.make_closure", True),
        ("vm.builtin.make_closure", False),
    ]
    assert tape.events[1][2] is closure
    tape.events.clear()
    vm.invoke_closure(closure, "a")
    assert [event[0] for event in tape.events] == ["t.keep", "t.keep"]


def test_instrument_gets_the_function_and_kinds(vm: VirtualMachine) -> None:
    seen: list[Any] = []

    def instrument(func: Any, name: str, before: bool, ret: Any, *args: Any) -> None:
        seen.append((func, args))

    vm.set_instrument(instrument)
    vm.every_kind(X)
    func, args = seen[0]
    assert func is last
    assert args[0] is X
    assert args[1:6] == (3, "s", 2.5, "float32", Shape((2, 3)))
    assert args[6] is vm
    assert args[7] is None
    assert args[8] == vm["main"]
    assert vm.every_kind(X) == vm["main"]


@pytest.mark.parametrize(
    ("answer", "skips"),
    [
        (VMInstrumentReturnKind.SKIP_RUN, True),
        (1, True),
        (True, True),
        (VMInstrumentReturnKind.NO_OP, False),
        (0, False),
        (None, False),
        (False, False),
        (2, False),
        (-1, False),
        ("x", False),
        (1.0, False),
    ],
)
def test_skip_run(vm: VirtualMachine, answer: Any, skips: bool) -> None:
    tape = Tape(add=answer)
    vm.set_instrument(tape)
    got = vm.outer(1, 2)
    names = [(name, before) for name, before, *_ in tape.events]
    if skips:
        assert got is None
        assert names == [("main", True), ("t.add", True), ("main", False)]
    else:
        assert got == 3
        assert ("t.add", False) in names


def test_skip_run_of_a_vm_function(vm: VirtualMachine) -> None:
    vm.set_instrument(Tape(main=1))
    assert vm.outer(1, 2) is None


def test_instrument_errors_pass_through(vm: VirtualMachine) -> None:
    def fails(*args: Any) -> None:
        raise KeyError("instrument")

    vm.set_instrument(fails)
    with pytest.raises(KeyError, match="instrument"):
        vm.main(1, 2)
    vm.set_instrument(None)
    assert vm.main(1, 2) == 3
    with pytest.raises(TypeError, match="set_instrument: expected a callable, got int 3"):
        vm.set_instrument(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'not\.there' is not registered"):
        vm.set_instrument("not.there")


def test_instrument_by_name(vm: VirtualMachine) -> None:
    seen: list[Any] = []
    machine = VirtualMachine(
        program(), functions={**FUNCTIONS, "t.watch": lambda *args: seen.append(args[1])}
    )
    machine.set_instrument("t.watch")
    machine.main(1, 2)
    assert seen == ["t.add", "t.add"]


def test_hooks_and_instrument_live_together(vm: VirtualMachine) -> None:
    order: list[str] = []
    tape = Tape()

    def hook(pc: int, before: bool, func: Any, name: str, ret: Any, args: Any) -> None:
        if pc >= 0:
            order.append(f"{name} {before}")

    vm._add_hook(hook)
    vm.set_instrument(tape)
    vm.main(1, 2)
    assert order == ["t.add True", "t.add False"]
    assert len(tape.events) == 2
    vm.set_instrument(Tape(add=1))
    assert vm.main(1, 2) is None
    assert order == ["t.add True", "t.add False"], "later hooks do not see a skipped call"
    vm.set_instrument(None)
    vm._remove_hook(hook)
    assert vm.main(1, 2) == 3
    assert len(order) == 2


# Limits, cancellation, threads, processes


def test_limits_of_a_run_and_usable_after() -> None:
    vm = VirtualMachine(forever(), limits=Limits(fuel=1000))
    assert vm.limits.fuel == 1000
    for _ in range(2):
        with pytest.raises(LimitError, match="fuel") as caught:
            vm.spin()
        assert caught.value.limit == "fuel"


def test_cancel_from_another_thread() -> None:
    vm = VirtualMachine(forever())
    failures: list[BaseException] = []
    started = threading.Event()

    def run() -> None:
        started.set()
        try:
            vm.spin()
        except CancelledError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    while thread.is_alive():  # cancelling before the run starts has no effect
        vm.cancel()
        thread.join(0.01)
    assert len(failures) == 1


def test_threads_share_a_vm() -> None:
    vm = VirtualMachine(program(), functions=FUNCTIONS)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in range(300):
            a, b = np.full(4, seed), np.full(4, i)
            if not np.array_equal(vm.outer(a, b), a + b):
                wrong.append((seed, i))
            if vm.invoke_closure(vm.make(i), seed) != (seed, i):
                wrong.append((seed, i))
            try:
                vm.main("text", i)
            except TypeError:
                continue
            wrong.append("no error")

    run_in_threads(work, 6)
    assert not wrong


def test_pickle() -> None:
    ex = calls("vm.builtin.copy")
    vm = VirtualMachine(ex, [cpu(1), cpu()], "naive", limits=Limits(fuel=77), functions=[])
    vm.save_function("main", "saved", X)
    for twin in (pickle.loads(pickle.dumps(vm)), copy.copy(vm), copy.deepcopy(vm)):
        assert twin is not vm
        assert twin.executable == ex
        assert twin.devices == (cpu(1), cpu())
        assert twin.limits == Limits(fuel=77)
        np.testing.assert_array_equal(twin["saved"](), X)
        assert twin.main(3) == 3
        assert type(twin.allocators[0]) is type(vm.allocators[0])


def test_pickle_keeps_the_allow_list() -> None:
    register_func("test_vm.f", lambda x: "f", override=True)
    try:
        data = pickle.dumps(VirtualMachine(calls("test_vm.f"), functions=["test_vm.f"]))
        assert pickle.loads(data).main(0) == "f"
        assert b"test_vm.f" in data
    finally:
        GLOBAL.remove("test_vm.f")
    with pytest.raises(LinkError):
        pickle.loads(data)


def test_own_functions_do_not_pickle(vm: VirtualMachine) -> None:
    with pytest.raises(TypeError, match=r"with its own functions; pickle vm\.executable"):
        pickle.dumps(vm)
    pickle.loads(pickle.dumps(vm.executable))


# Lifetime


def test_context_manager_and_close() -> None:
    with VirtualMachine(program(), functions=FUNCTIONS) as vm:
        main = vm["main"]
        assert main(1, 2) == 3
        vm.save_function("five", "saved")
    for call in (lambda: main(1, 2), lambda: vm["main"](1, 2)):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    vm.close()
    assert "saved" not in vm
    assert "VirtualMachine" in repr(vm)


def test_close_frees_constants() -> None:
    b = ExecBuilder()
    with b.function("main"):
        b.emit_call("t.keep", [b.convert_constant(np.zeros(10))], dst=b.r(0))
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get(), functions=FUNCTIONS)
    held = weakref.ref(vm.main()[0])
    assert held() is not None
    vm.close()
    del vm, b
    gc.collect()
    assert held() is None


def test_a_function_keeps_its_vm_alive() -> None:
    five = VirtualMachine(program(), functions=FUNCTIONS)["five"]
    gc.collect()
    assert five() == 5


def test_machines_are_collected() -> None:
    refs = []
    for _ in range(5):
        vm = VirtualMachine(program(), functions=FUNCTIONS)
        vm.save_function("main", "saved", X, Y)
        vm.set_instrument(lambda *args: None)
        vm.outer(X, Y)
        refs.append(weakref.ref(vm))
    del vm
    gc.collect()
    assert [ref() for ref in refs] == [None] * 5


def test_the_cache_of_verified_executables_is_bounded() -> None:
    from relaxvm.verify.verified import _verified

    ex = program()
    key = id(ex)
    VirtualMachine(ex, functions=FUNCTIONS)
    assert key in _verified
    del ex
    gc.collect()
    assert key not in _verified


def test_importing_the_vm_needs_numpy_alone() -> None:
    code = ("import sys; import relaxvm; relaxvm.VirtualMachine; "
            "print([m for m in ('tvm', 'ml_dtypes', 'ctypes.util') if m in sys.modules])")
    out = children.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
