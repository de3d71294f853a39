"""The debugger: its methods, its prompt, and the command."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine
from relaxvm.observe.debugger import Debugger, DebuggerError
from relaxvm.observe.debugger_prompt import Prompt

from . import children
from .passes import module

PROGRAM = """
@R.function
def half(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    y = R.multiply(x, R.const(0.5, "float32"))
    return y

@R.function
def inverse(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    y = R.divide(R.const(1.0, "float32"), x)
    return y


@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    cls = Module
    h = cls.half(x)
    a = R.exp(h)
    b = R.sqrt(a)
    c = R.add(b, x)
    return c
"""
INVERSE = """
@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = R.divide(R.const(1.0, "float32"), x)
    return y
"""
X = np.array([1.0, 2.0, 4.0], np.float32)
H = X / 2


@pytest.fixture
def vm() -> VirtualMachine:
    return VirtualMachine(relaxvm.build(module(PROGRAM)))


@pytest.fixture
def d(vm: VirtualMachine) -> Debugger:
    return relaxvm.debug(vm)


def test_without_stops_it_is_a_call(vm: VirtualMachine, d: Debugger) -> None:
    stop = d.run("main", X)
    assert (stop.reason, stop.frame) == ("end", None)
    np.testing.assert_array_equal(stop.cause, vm["main"](X))
    assert str(stop).startswith("main has returned float32[3]")


def test_break_at_each_kind_of_place(d: Debugger) -> None:
    exp = d.break_("relaxvm.kernel.exp")
    half = d.break_("half")
    variable = d.break_("c")
    order = [d.run("main", X).cause]
    pc = d.frame.pc
    order += [d.continue_().cause, d.continue_().cause]
    assert order == [half, exp, variable]
    assert d.continue_().reason == "end"
    assert [point.hits for point in d.breakpoints] == [1, 1, 1]
    line = d.vm.executable.debug.span(exp.pcs[0]).line
    d.delete()
    at_line, at_pc = d.break_(f":{line}"), d.break_(pc)
    d.enable(at_line.number, False)
    assert at_line.pcs == [p for p in at_line.pcs if d.vm.executable.debug.span(p).line == line]
    assert d.run("main", X).cause is at_pc
    d.enable(at_line.number)
    assert d.continue_().cause is at_line


def test_conditions(d: Debugger) -> None:
    d.break_("relaxvm.kernel.exp", when="h.max() > 5")
    assert d.run("main", X).reason == "end"
    assert d.run("main", X * 4).reason == "breakpoint"
    d.delete()
    d.break_("relaxvm.kernel.exp", when=lambda frame: frame.variables["h"][0] == 0.5)
    assert d.run("main", X).reason == "breakpoint"
    d.delete()
    d.break_("half", when="%0[2] == 4 and np.all(x > 0)")
    assert d.run("main", X).reason == "breakpoint"
    d.delete()
    d.break_("half", when="unknown > 3")
    with pytest.raises(DebuggerError, match="condition of breakpoint 4: NameError"):
        d.run("main", X)
    with pytest.raises(DebuggerError, match="no expression"):
        d.break_("half", when="x >")


def test_once_and_disabled(d: Debugger) -> None:
    d.break_("half", once=True)
    assert d.run("main", X).reason == "breakpoint"
    assert d.run("main", X).reason == "end"
    point = d.break_("half")
    d.enable(point.number, False)
    assert d.run("main", X).reason == "end"
    assert "disabled" in repr(point)
    d.enable(point.number)
    assert d.run("main", X).cause is point
    with pytest.raises(DebuggerError, match="no breakpoint or watch 77; there are: 2"):
        d.delete(77)


def test_steps(d: Debugger) -> None:
    d.start("main", X)
    assert d.position == 0
    functions = set()
    while d.next().reason != "end":
        functions.add(d.frame.function)
    assert functions == {"main"}
    d.restart()
    d.until("half")
    assert d.backtrace().splitlines()[0].startswith("-> #0 half(x=float32[3]), pc ")
    assert d.finish().frame.function == "main"
    d.restart()
    d.until("half")
    d.up()
    assert d.finish().reason == "end"  # of the frame that is looked at
    d.restart()
    assert d.step(3).reason == "step"
    assert d.position == 3


def test_a_step_stops_at_breakpoints(d: Debugger) -> None:
    point = d.break_("relaxvm.kernel.multiply")
    d.start("main", X)
    while (stop := d.next()).reason == "step":
        pass
    assert stop.cause is point
    assert stop.frame.function == "half"


def test_looking(d: Debugger) -> None:
    d.break_("relaxvm.kernel.multiply")
    d.run("main", X)
    np.testing.assert_array_equal(d.variables()["x"], X)
    assert "float32[3]  min 1  max 4  mean 2.33333  [1, 2, 4]" in repr(d.variables())
    assert repr(d.registers()).splitlines()[0].startswith("%0  float32[3]")
    assert "#1 main" in d.up()
    assert d.frame.function == "main"
    assert "#0 half" in d.down()
    with pytest.raises(DebuggerError, match="no frame 2: they are 0 to 1"):
        d.select(2)
    np.testing.assert_array_equal(d.print("x + %0"), X + X)
    with pytest.raises(DebuggerError, match=r"xx: NameError.*did you mean 'x'"):
        d.print("xx")
    listing = d.list().splitlines()
    assert sum(line.startswith("->*") for line in listing) == 1


def test_many_frames() -> None:
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("t.leaf", [b.r(0)], dst=b.r(1))
        b.emit_call("main", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    d = relaxvm.debug(VirtualMachine(b.get(), functions={"t.leaf": lambda x: x}))
    d.start("main", 1)
    d.step(400)
    text = d.backtrace(5)
    assert text.splitlines()[-1] == f"   ... {d.current.depth - 5:,} more frames"


def test_assign(d: Debugger) -> None:
    d.break_("b")
    d.run("main", X)
    d.assign("a", np.full(3, 9, np.float32))
    np.testing.assert_array_equal(d.continue_().cause, 3 + X)
    d.run("main", X)
    register = d.frame.register_of["a"]
    d.assign(f"%{register}", np.full(3, 16, np.float32))
    np.testing.assert_array_equal(d.continue_().cause, 4 + X)
    d.run("main", X)
    with pytest.raises(DebuggerError, match="main has no variable 'nothing' here"):
        d.assign("nothing", 1)
    with pytest.raises(DebuggerError, match="no register 99"):
        d.assign(99, 1)


def test_watch(d: Debugger) -> None:
    watch = d.watch("b")
    stop = d.run("main", X)
    assert (stop.reason, stop.cause) == ("watch", watch)
    np.testing.assert_allclose(d.print("b"), np.sqrt(np.exp(H)), rtol=1e-6)
    assert str(stop).startswith("watch 1: b is now float32[3]")
    assert d.continue_().reason == "end"
    assert watch.hits == 1
    d.delete()
    d.watch(lambda frame: frame.function)
    functions = []
    stop = d.run("main", X)
    while stop.reason == "watch":
        functions.append(stop.frame.function)
        stop = d.continue_()
    assert functions == ["half", "main"]


def test_a_watch_sees_writes_in_place() -> None:
    b = ExecBuilder()
    with b.function("main", 1, param_names=["x"]):
        for _ in range(3):
            b.emit_call("t.bump", [b.r(0)], dst=b.void_arg())
        b.emit_ret(b.r(0))

    def bump(x: Any) -> None:
        x += 1

    d = relaxvm.debug(VirtualMachine(b.get(), functions={"t.bump": bump}))
    d.watch("x[0]")
    x = np.zeros(2, np.float32)
    values = []
    stop = d.run("main", x)
    while stop.reason == "watch":
        values.append(float(d.print("x[0]")))
        stop = d.continue_()
    assert values == [1, 2, 3]
    np.testing.assert_array_equal(x, 0)  # the debugger runs on a copy


# Back


def test_back_to_every_position(d: Debugger) -> None:
    d.start("main", X)
    seen: list[Any] = []
    while d.step().reason != "end":
        seen.append((d.frame.pc, d.current.depth, repr(d.variables())))
    end = d.position
    for position in range(len(seen), 0, -1):
        d.go_to(position)
        assert (d.frame.pc, d.current.depth, repr(d.variables())) == seen[position - 1]
    d.go_to(end - 1)
    assert d.back(2).frame.pc == seen[end - 4][0]
    assert d.back(10_000).frame.pc == d.vm.executable.function("main").start_instr
    assert d.position == 0
    with pytest.raises(DebuggerError, match="at least 1"):
        d.back(0)


def test_back_keeps_what_was_assigned_before(d: Debugger) -> None:
    d.break_("b")
    d.run("main", X)
    d.assign("a", np.full(3, 9, np.float32))
    d.next()
    d.back()
    np.testing.assert_array_equal(d.print("a"), np.full(3, 9, np.float32))
    d.back()  # to before it was assigned
    d.delete()
    np.testing.assert_array_equal(d.continue_().cause, d.vm["main"](X))


def test_reverse_continue(d: Debugger) -> None:
    half, exp = d.break_("half"), d.break_("relaxvm.kernel.exp")
    d.run("main", X)
    d.continue_()
    d.delete(exp.number)
    d.continue_()
    stop = d.reverse_continue()
    assert stop.cause is half
    assert stop.frame.function == "half"
    assert d.reverse_continue().frame.pc == d.vm.executable.function("main").start_instr
    assert d.position == 0


def test_back_into_a_run_that_failed() -> None:
    b = ExecBuilder()
    with b.function("main", 1, param_names=["x"]):
        b.emit_call("vm.builtin.copy", [b.r(0)], dst=b.r(1))
        b.emit_call("t.fail", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    def fail(x: Any) -> Any:
        raise ValueError("no")

    d = relaxvm.debug(VirtualMachine(b.get(), functions={"t.fail": fail}))
    stop = d.run("main", 3)
    assert stop.reason == "error"
    assert isinstance(stop.cause, ValueError)
    assert "in main, pc 1" in str(stop)
    with pytest.raises(DebuggerError, match="the run has ended: `back` goes back"):
        d.variables()
    assert d.back().frame.pc == 1
    assert d.registers() == {0: 3, 1: 3}


def test_state_is_put_back() -> None:
    b = ExecBuilder()
    with b.function("main"):
        for _ in range(3):
            b.emit_call("t.count", [b.vm_state()], dst=b.r(0))
        b.emit_ret(b.r(0))

    def count(vm: Any) -> int:
        vm.state["n"] = vm.state.get("n", np.zeros((), np.int64)) + 1
        return int(vm.state["n"])

    vm = VirtualMachine(b.get(), functions={"t.count": count})
    d = relaxvm.debug(vm)
    assert d.run("main").cause == 3
    d.back(2)
    assert d.continue_().cause == 3


def test_errors() -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    d = relaxvm.debug(vm)
    with pytest.raises(DebuggerError, match="nothing is being run"):
        d.step()
    with pytest.raises(DebuggerError, match=r"mian: no function of the program; did you mean"):
        d.run("mian")
    with pytest.raises(relaxvm.errors.ArityError, match="main: expects 1 argument"):
        d.run("main")
    with pytest.raises(DebuggerError, match="no function or variable of the program"):
        d.break_("nothing")
    with pytest.raises(TypeError, match="debug: expected a VirtualMachine, got int 3"):
        relaxvm.debug(3)


# The prompt


def commands(vm: VirtualMachine, *lines: str, **inputs: Any) -> str:
    out: list[str] = []
    stdin = io.StringIO("".join(f"{line}\n" for line in lines))
    Prompt(relaxvm.debug(vm), lambda name: [X], out.append, stdin).cmdloop()
    return "".join(out)


def test_commands(vm: VirtualMachine) -> None:
    text = commands(vm, "b relaxvm.kernel.exp if h[0] == 0.5", "run", "bt", "p h", "set h = h * 0",
                    "watch a", "c", "p a.sum()", "info b", "back", "c", "fin", "q")  # fmt: skip
    lines = text.splitlines()
    assert lines[0].startswith("#1 break at relaxvm.kernel.exp (pc ")
    assert "breakpoint 1 at relaxvm.kernel.exp" in lines
    assert "watch 2: a is now float32[3]  min 1  max 1  mean 1  [1, 1, 1]" in text
    assert "#2 watch a: 1 changes" in text
    assert "error" not in text


def test_wrong_commands_are_answered(vm: VirtualMachine) -> None:
    text = commands(vm, "step", "run", "b nowhere", "delete 9", "step x", "info what", "frame 3",
                    "restart", "nonsense here", "p 1 / 0")  # fmt: skip
    for part in (
        "error: nothing is being run", "error: nowhere: no function or variable",
        "error: there is no breakpoint or watch 9", "error: the run has ended",
        "expected a number, got 'x'", "expected one of breakpoints, functions",
        "error: nonsense here: no expression", "error: 1 / 0: ZeroDivisionError",
    ):  # fmt: skip
        assert part in text


def test_what_info_tells(vm: VirtualMachine) -> None:
    said = commands(vm, "break half", "run", "info locals", "info registers", "info watchpoints",
                    "info position", "info everything")  # fmt: skip
    for text in ("x  float32", "%0  float32", "#1 break at half"):
        assert text in said
    assert "instructions have run" in said
    assert "error: info everything: expected one of breakpoints, functions, locals, pos" in said


def test_a_warning_is_an_answer() -> None:
    """Without a line of Python, which would be one of the module `cmd`."""
    vm = VirtualMachine(relaxvm.build(module(INVERSE)))
    out: list[str] = []
    stdin = io.StringIO("run\n")
    Prompt(relaxvm.debug(vm), lambda name: [np.zeros(2, np.float32)], out.append, stdin).cmdloop()
    (line,) = [line for line in "".join(out).splitlines() if "divide by zero" in line]
    assert line.startswith("warning: divide by zero encountered")
    assert "main, pc" in line


def test_every_command_has_help(vm: VirtualMachine) -> None:
    prompt = Prompt(relaxvm.debug(vm), stdin=io.StringIO())
    names = [name for name in prompt.get_names() if name.startswith("do_") and name != "do_help"]
    for name in names:
        doc = getattr(prompt, name).__doc__
        assert doc.startswith(name[3:].replace("_", "-")), name


def test_completion(vm: VirtualMachine) -> None:
    prompt = Prompt(relaxvm.debug(vm), lambda name: [X], lambda text: None, io.StringIO())
    assert prompt.completenames("rev") == ["reverse-continue"]
    assert prompt.complete_run("ha") == ["half"]
    assert "relaxvm.kernel.exp" in prompt.complete_break("relaxvm.kernel.e")
    assert prompt.complete_print("x") == []
    prompt.onecmd("start")
    assert prompt.complete_print("x") == ["x"]


# The command


def relaxvm_debug(*args: str, stdin: str = "") -> children.CompletedProcess[str]:
    return children.run([sys.executable, "-m", "relaxvm", "debug", *args], input=stdin, text=True,
                        capture_output=True)  # fmt: skip


@pytest.fixture
def file(vm: VirtualMachine, tmp_path: Path) -> str:
    vm.executable.save(tmp_path / "main.rvm")
    return str(tmp_path / "main.rvm")


def test_debug_command(file: str) -> None:
    done = relaxvm_debug(file, "--random", "--dim", "n=3", "-x", "break half",
                         stdin="run\nbt\nc\nq\n")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "breakpoint 1 at half" in done.stdout
    assert "#1 main(x=float32[3])" in done.stdout
    assert "main has returned float32[3]" in done.stdout


def test_debug_command_in_batch(file: str) -> None:
    done = relaxvm_debug(file, "--random", "--dim", "n=3", "-x", "run", "-x", "nothing", "--batch")
    assert done.returncode == 1
    assert "main has returned" in done.stdout
    assert "error: " in done.stdout
    assert relaxvm_debug(file, "--json").returncode == 2


def test_debug_command_on_a_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x) => (float[3] y) { a = Exp(x)  y = Sqrt(a) }
    """)
    onnx.save(model, tmp_path / "m.onnx")
    done = relaxvm_debug(str(tmp_path / "m.onnx"), "--random", "-x", "break a", "-x", "run",
                         "-x", "finish", "--batch")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "breakpoint 1 at a" in done.stdout
