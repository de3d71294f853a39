"""The same program and calls on TVM's VirtualMachine and on relaxvm's: the observations are equal.

Each scenario is a function of a `Side`; it runs once per side and returns a list of observations.
The observation of an error is its class, where TVM's InternalError and ours (with subclasses) are
the same.  A separate test at the end lists the intended differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import errors

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402

X = np.array([1.0, 2.0], np.float32)
Y = np.array([10.0, 20.0], np.float32)

BUILTIN_ERRORS = (ValueError, TypeError, IndexError, AttributeError, KeyError)


class Side:
    """One of the two packages."""

    name: str
    ExecBuilder: Any
    VirtualMachine: Any
    cpu: Any

    def __init__(self) -> None:
        self.log: list[Any] = []

    def tensor(self, array: np.ndarray[Any, Any]) -> Any:
        raise NotImplementedError

    def plain(self, value: Any) -> Any:
        """Convert a value to data that both sides have."""
        raise NotImplementedError

    def is_internal(self, error: Exception) -> bool:
        raise NotImplementedError

    def register(self, name: str, func: Callable[..., Any]) -> None:
        raise NotImplementedError

    def see(self, label: str, thunk: Callable[[], Any]) -> Any:
        """Call a function and log its result or the class of its error; return the result."""
        try:
            result = thunk()
        except Exception as error:
            self.log.append((label, "raises", self.class_of(error)))
            return None
        self.log.append((label, self.plain(result)))
        return result

    def class_of(self, error: Exception) -> str:
        if self.is_internal(error):
            return "InternalError"
        known = [cls.__name__ for cls in BUILTIN_ERRORS if isinstance(error, cls)]
        return known[0] if known else type(error).__name__

    def kernel(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Make a packed function from a function on numpy arrays."""
        return lambda *args: self.tensor(func(*map(self.array, args)))

    def array(self, value: Any) -> Any:
        raise NotImplementedError


class Tvm(Side):
    name = "tvm"
    ExecBuilder = relax.ExecBuilder
    VirtualMachine = relax.VirtualMachine
    cpu = staticmethod(tvm.cpu)
    skip = relax.VMInstrumentReturnKind.SKIP_RUN if hasattr(
        relax, "VMInstrumentReturnKind") else 1

    def tensor(self, array: np.ndarray[Any, Any]) -> Any:
        return tvm.runtime.tensor(array)

    def array(self, value: Any) -> Any:
        return value.numpy()

    def plain(self, value: Any) -> Any:
        if isinstance(value, tvm.runtime.Tensor):
            return "tensor", str(value.dtype), value.numpy().tolist()
        if type(value).__name__ in ("Array", "tuple", "list"):
            return tuple(map(self.plain, value))
        if type(value).__name__ == "c_void_p":
            return "vm"
        if type(value).__name__ in ("Function", "Closure", "method"):
            return "function"
        if isinstance(value, str):
            return str(value)
        if type(value).__name__ == "dtype":
            return str(value)
        return value

    def is_internal(self, error: Exception) -> bool:
        return isinstance(error, tvm.error.InternalError)

    def register(self, name: str, func: Callable[..., Any]) -> None:
        tvm.register_global_func(name, func, override=True)


class Ours(Side):
    name = "relaxvm"
    ExecBuilder = relaxvm.ExecBuilder
    VirtualMachine = relaxvm.VirtualMachine
    cpu = staticmethod(relaxvm.cpu)
    skip = relaxvm.VMInstrumentReturnKind.SKIP_RUN

    def tensor(self, array: np.ndarray[Any, Any]) -> Any:
        return np.array(array)

    def array(self, value: Any) -> Any:
        return value

    def plain(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return "tensor", str(value.dtype), value.tolist()
        if isinstance(value, relaxvm.VirtualMachine):
            return "vm"
        if isinstance(value, (tuple, list)):
            return tuple(map(self.plain, value))
        if isinstance(value, np.dtype):
            return str(value)
        if callable(value):
            return "function"
        return value

    def is_internal(self, error: Exception) -> bool:
        return isinstance(error, errors.InternalError)

    def register(self, name: str, func: Callable[..., Any]) -> None:
        relaxvm.register_func(name, func, override=True)


def build(side: Side) -> Any:
    side.register("diff.add", side.kernel(lambda a, b: a + b))
    side.register("diff.same", lambda *args: args[0] if args else None)

    def fail(*args: Any) -> None:
        raise ValueError("kernel")

    side.register("diff.fail", fail)
    b = side.ExecBuilder()
    with b.function("main", num_inputs=2, param_names=["x", "w"]):
        b.emit_call("diff.add", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("ident", num_inputs=1, param_names=["x"]):
        b.emit_call("diff.same", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("nested", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(0)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("five", num_inputs=0):
        b.emit_call("diff.same", [b.imm(5)], dst=b.r(0))
        b.emit_ret(b.r(0))
    with b.function("kinds", num_inputs=1, param_names=["x"]):
        args = [b.r(0), b.imm(3), b.convert_constant("s"), b.convert_constant(2.5),
                b.convert_constant((2, 3)), b.vm_state(), b.void_arg(), b.f("main")]  # fmt: skip
        b.emit_call("diff.same", args, dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("outer", num_inputs=2, param_names=["x", "y"]):
        b.emit_call("main", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("make", num_inputs=1, param_names=["c"]):
        b.emit_call("vm.builtin.make_closure", [b.f("main"), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("closure", num_inputs=2, param_names=["x", "y"]):
        b.emit_call("vm.builtin.make_closure", [b.f("main"), b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(2), b.r(1)], dst=b.r(3))
        b.emit_ret(b.r(3))
    with b.function("fails", num_inputs=1, param_names=["x"]):
        b.emit_call("diff.fail", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    return b.get()


def calling(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    s.see("main", lambda: vm["main"](x, y))
    s.see("nested", lambda: vm["nested"](x))
    s.see("five", lambda: vm["five"]())
    for value in (3, 2.5, True, None, "text", (1, 2)):
        s.see(f"ident {value!r}", lambda value=value: vm["ident"](value))
    s.see("too few", lambda: vm["main"](x))
    s.see("too many", lambda: vm["main"](x, y, y))
    s.see("unknown", lambda: vm["nope"])
    s.see("kernel error", lambda: vm["fails"](x))
    s.see("usable after", lambda: vm["main"](x, y))
    s.see("numpy argument", lambda: vm["ident"](np.ones(3)))


def identity(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x = s.tensor(X)
    same = lambda a: a is x if s.name == "relaxvm" else a == x  # noqa: E731
    s.see("direct", lambda: same(vm["ident"](x)))
    s.see("in a tuple", lambda: same(vm["nested"](x)[0][1]))
    vm.set_input("ident", x)
    vm.invoke_stateful("ident")
    s.see("stateful", lambda: same(vm.get_outputs("ident")))
    vm.save_function("ident", "saved", x)
    s.see("saved", lambda: same(vm["saved"]()))


def stateful(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    s.see("early", lambda: vm.invoke_stateful("main"))
    s.see("no output", lambda: vm.get_outputs("main"))
    s.see("too few", lambda: vm.set_input("main", x))
    s.see("unknown", lambda: vm.set_input("nope", x))
    s.see("unknown invoke", lambda: vm.invoke_stateful("nope"))
    s.see("unknown output", lambda: vm.get_outputs("nope"))
    s.see("set", lambda: vm.set_input("main", x, y))
    s.see("still no output", lambda: vm.get_outputs("main"))
    s.see("invoke", lambda: vm.invoke_stateful("main"))
    s.see("output", lambda: vm.get_outputs("main"))
    s.see("again", lambda: vm.invoke_stateful("main"))
    s.see("output again", lambda: vm.get_outputs("main"))
    s.see("plain call needs arguments", lambda: vm["main"]())
    s.see("keywords", lambda: vm.set_input("main", w=y, x=x))
    s.see("mixed", lambda: vm.set_input("main", y, x=x))
    vm.invoke_stateful("main")
    s.see("mixed output", lambda: vm.get_outputs("main"))
    vm.set_input("nested", x)
    vm.invoke_stateful("nested")
    s.see("nested output", lambda: vm.get_outputs("nested"))
    s.see("kernel error", lambda: (vm.set_input("fails", x), vm.invoke_stateful("fails")))


def conversions(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x = s.tensor(X)
    values = [3, -1, True, 2.5, np.float16(1.5), np.float64(0.1), np.int64(7), "text",
              [1, 2.5, (x,)], (1, 2), np.ones(3), X, None, {}, object(), lambda: None,
              1 + 2j]  # fmt: skip
    for i, value in enumerate(values):

        def through(value: Any = value) -> Any:
            vm.set_input("ident", value)
            vm.invoke_stateful("ident")
            return vm.get_outputs("ident")

        s.see(f"set_input {i}", through)
        s.see(f"save {i}", lambda value=value: vm.save_function("ident", "saved", value))
        s.see(f"saved {i}", lambda: vm["saved"]())


def saved_functions(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    s.see("save", lambda: vm.save_function("main", "saved", x, y))
    s.see("call", lambda: vm["saved"]())
    s.see("one too many", lambda: vm["saved"](x))
    s.see("partial", lambda: vm.save_function("main", "partial", x))
    s.see("partial without", lambda: vm["partial"]())
    s.see("partial with", lambda: vm["partial"](y))
    s.see("no return", lambda: vm.save_function("main", "mute", x, y, include_return=False))
    s.see("no return call", lambda: vm["mute"]())
    s.see("keywords", lambda: vm.save_function("main", "kw", w=y, x=x))
    s.see("keywords call", lambda: vm["kw"]())
    s.see("unknown", lambda: vm.save_function("nope", "s", x))
    s.see("of a saved one", lambda: vm.save_function("partial", "both", y))
    s.see("both", lambda: vm["both"]())
    s.see("shadow", lambda: vm.save_function("five", "main"))
    s.see("shadowed lookup", lambda: vm["main"]())
    s.see("not inside", lambda: vm["outer"](x, y))
    s.see("not in set_input", lambda: vm.set_input("main", x, y))


def closures(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    s.see("in the program", lambda: vm["closure"](x, y))
    s.see("by hand", lambda: vm.invoke_closure(vm["make"](x), y))
    s.see("too few", lambda: vm.invoke_closure(vm["make"](x)))
    s.see("not a closure", lambda: vm.invoke_closure(3, y))


def instruments(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    answers: dict[tuple[str, bool], Any] = {}

    def instrument(func: Any, name: str, before: bool, ret: Any, *args: Any) -> Any:
        kinds = tuple(map(s.plain, args))
        s.log.append(("event", name, bool(before), s.plain(ret), kinds))
        return answers.get((name, bool(before)))

    vm.set_instrument(instrument)
    for name, args in [("main", (x, y)), ("nested", (x,)), ("kinds", (2,)), ("five", ()),
                       ("outer", (x, y)), ("make", (x,)), ("closure", (x, y))]:  # fmt: skip
        s.see(name, lambda name=name, args=args: vm[name](*args))
    for answer in (s.skip, 0, 1, None, True, False, 2, -1, "x", 1.0):
        answers[("diff.add", True)] = answer
        s.see(f"answer {answer!r}", lambda: vm["outer"](x, y))
    answers.clear()
    answers[("main", True)] = 1
    s.see("skip a VM function", lambda: vm["outer"](x, y))
    answers.clear()
    answers[("diff.add", False)] = 1
    s.see("answer after", lambda: vm["main"](x, y))
    answers.clear()
    vm.save_function("main", "saved", x)
    s.see("saved", lambda: vm["saved"](y))
    s.see("invoke_closure", lambda: vm.invoke_closure(vm["make"](x), y))
    s.see("kernel error", lambda: vm["fails"](x))

    def fails(*args: Any) -> None:
        raise KeyError("instrument")

    vm.set_instrument(fails)
    s.see("instrument error", lambda: vm["main"](x, y))


def modules(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    module = vm.module
    s.see("kind", lambda: str(module.kind))
    vm.set_input("nested", x)
    vm.invoke_stateful("nested")
    vm.set_input("main", x, y)
    vm.invoke_stateful("main")
    requests: list[tuple[str, tuple[Any, ...]]] = [
        ("get_function_arity", ("main",)),
        ("get_function_arity", ("nope",)),
        ("get_function_param_name", ("main", 0)),
        ("get_function_param_name", ("main", 2)),
        ("get_output_arity", ("nested",)),
        ("get_output_arity", ("nested", 0)),
        ("get_output_arity", ("nested", 7)),
        ("get_output_arity", ("main",)),
        ("get_output_arity", ("five",)),
        ("get_output", ("nested", 0, 1)),
        ("get_output", ("nested", 1)),
        ("get_output", ("nested",)),
        ("get_output", ("nested", 5)),
        ("get_output", ("main",)),
        ("invoke_stateful", ("main",)),
        ("set_input", ("main", x, y)),
        ("save_function", ("main", "mute", 0, x, y)),
        ("mute", ()),
        ("main", (x, y)),
        ("nope", ()),
    ]
    for name, args in requests:
        s.see(f"{name} {len(args)}", lambda name=name, args=args: module[name](*args))
    s.see("get_function", lambda: module.get_function("main"))
    s.see("get_function nope", lambda: module.get_function("nope"))


def construction(s: Side) -> None:
    ex = build(s)
    made = lambda *args: s.VirtualMachine(ex, *args)["five"]()  # noqa: E731
    s.see("object", lambda: s.VirtualMachine(object(), s.cpu()))
    s.see("bytes", lambda: s.VirtualMachine(b"x", s.cpu()))
    s.see("device as text", lambda: made("cpu"))
    s.see("one", lambda: made(s.cpu()))
    s.see("list", lambda: made([s.cpu()]))
    s.see("tuple", lambda: made((s.cpu(0), s.cpu(0))))
    s.see("cpu 3", lambda: made(s.cpu(3)))
    for cfg in (None, "naive", "pooled", {}, {s.cpu(): 1}, {s.cpu(): 2}):
        s.see("memory", lambda cfg=cfg: made(s.cpu(), cfg))
    s.see("memory 3", lambda: made(s.cpu(), 3))
    b = s.ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("diff.missing", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    s.see("missing function", lambda: s.VirtualMachine(b.get(), s.cpu()))


def timing(s: Side) -> None:
    vm = s.VirtualMachine(build(s), s.cpu())
    x, y = s.tensor(X), s.tensor(Y)
    vm.save_function("main", "saved", x, y)
    vm.set_input("main", x, y)
    for name, args in (("main", (x, y)), ("saved", ()), ("invoke_stateful", ("main",))):
        result = vm.time_evaluator(name, s.cpu(), number=2, repeat=3)(*args)
        figures = [result.mean, result.median, result.min, result.max, result.std]
        s.log.append((name, len(result.results), type(result.results).__name__,
                      type(result).__name__, all(f >= 0 for f in figures)))
        s.log.append(str(result).splitlines()[:2][0])
        s.log.append(str(result).splitlines()[1].split())
    s.see("unknown", lambda: vm.time_evaluator("nope", s.cpu())())
    s.see("wrong arguments", lambda: vm.time_evaluator("main", s.cpu())(x))


SCENARIOS = [calling, identity, stateful, conversions, saved_functions, closures, instruments,
             modules, construction, timing]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_same_as_tvm(scenario: Callable[[Side], None]) -> None:
    theirs, ours = Tvm(), Ours()
    scenario(theirs)
    scenario(ours)
    assert theirs.log, "the scenario made no observations"
    for want, got in zip(theirs.log, ours.log, strict=False):
        assert got == want
    assert len(ours.log) == len(theirs.log)


def _outcome(side: Side, act: Callable[[Side, Any], Any]) -> Any:
    vm = side.VirtualMachine(build(side), side.cpu())
    side.see("it", lambda: act(side, vm))
    return side.log[-1][1:]


def test_intended_differences(capsys: pytest.CaptureFixture[str]) -> None:
    """Intended differences of relaxvm; `docs/coming-from-tvm.md` lists the same."""

    def both(act: Callable[[Side, Any], Any]) -> tuple[Any, Any]:
        return _outcome(Tvm(), act), _outcome(Ours(), act)

    tensor = ("tensor", "float32", [11.0, 22.0])
    assert both(lambda s, vm: vm["main"](s.tensor(X), w=s.tensor(Y))) == (
        ("raises", "TypeError"), (tensor,))  # keywords on a direct call
    assert both(lambda s, vm: vm.set_input("main", s.tensor(X), s.tensor(Y), z=s.tensor(X))) == (
        ((None,)), ("raises", "TypeError"))  # an unknown keyword
    assert "unused" in capsys.readouterr().out
    assert both(lambda s, vm: vm.set_input("main", w=s.tensor(X))) == (
        ("raises", "AssertionError"), ("raises", "InternalError"))  # a missing keyword
    assert both(lambda s, vm: vm["make"](s.tensor(X))(s.tensor(Y))) == (
        ("raises", "TypeError"), (tensor,))  # closures are callable
    assert both(lambda s, vm: vm["diff.add"]) == (
        ("raises", "InternalError"), ("raises", "AttributeError"))  # a packed function as vm[...]
    assert both(lambda s, vm: s.VirtualMachine(build(s), None)["five"]()) == (
        ("raises", "TypeError"), (5,))  # no device is the CPU
    naive = lambda s: {s.cpu(): "naive"}  # noqa: E731
    assert both(lambda s, vm: s.VirtualMachine(build(s), s.cpu(), naive(s))["five"]()) == (
        ("raises", "TypeError"), (5,))  # allocators by name, as TVM's documentation says
