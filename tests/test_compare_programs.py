"""Capturing and comparing values, running passes, and reducing programs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, ir, op, transform
from relaxvm.compiler.reduce import blame, fails_alike, outcome_of, shrink
from relaxvm.errors import NotFiniteError
from relaxvm.observe.compare import Tolerance, compare_streams, differ
from relaxvm.observe.computed import Computed
from relaxvm.transform.find import find_passes, pass_names

from . import children
from .passes import module

PROGRAM = """
@R.function
def half(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    y = R.multiply(x, R.const(0.5, "float32"))
    return y

@R.function
def main(x: R.Tensor(("n",), "float32"), k: R.Tensor((), "float32")) -> R.Tensor(("n",), "float32"):
    cls = Module
    h = cls.half(x)
    a = R.exp(h)
    b = R.nn.relu(a)
    c = R.add(b, x)
    d = R.multiply(c, k)
    return d
"""
X = np.array([1.0, -2.0, 4.0], np.float32)
K = np.array(2.0, np.float32)


class Wrong(ir.ExprMutator):
    def visit_call(self, call: ir.Call) -> Any:
        new = super().visit_call(call)
        if getattr(new.op, "name", "") == "relax.nn.relu":
            return op.nn.gelu(new.args[0])
        return new


@transform.module_pass(opt_level=0, name="Wrong")
def wrong(mod: ir.IRModule, context: Any) -> ir.IRModule:
    new = mod.copy()
    new["main"] = Wrong().visit(mod["main"])
    return new


@transform.module_pass(opt_level=0, name="Failing")
def failing(mod: ir.IRModule, context: Any) -> ir.IRModule:
    raise ValueError("does not know what to do")


# Comparing


def test_the_same() -> None:
    mod = module(PROGRAM)
    found = relaxvm.compare(relaxvm.build(mod), relaxvm.build(mod), [X, K])
    assert found.same
    assert found.first is None
    assert [row.name for row in found.compared] == ["y", "h", "a", "b", "c", "d", "(result)"]
    assert str(found) == "the same: 7 values compared"


def test_the_first_that_differs() -> None:
    mod = module(PROGRAM)
    a, b = relaxvm.build(mod), relaxvm.build(wrong(mod))
    found = relaxvm.compare(a, b, {"x": X, "k": K})
    first = found.first
    assert first is not None
    assert found.stopped
    assert first.name == "b"
    expected = np.abs(VirtualMachine(a)["main"](X, K) - VirtualMachine(b)["main"](X, K)).max() / 2
    assert first.max_abs == pytest.approx(expected, rel=1e-4)
    assert first.count == 2
    assert "in a: main, pc " in str(first)
    everything = relaxvm.compare(a, b, [X, K], stop=False)
    assert [row.name for row in everything.compared if row] == ["b", "c", "d", "(result)"]
    assert relaxvm.compare(a, b, [X, K], rtol=1, atol=1).same
    assert "! b " in everything.table()


def test_programs_with_other_names() -> None:
    a = relaxvm.build(module(PROGRAM))
    b = relaxvm.build(module(PROGRAM.replace("a = R", "other = R").replace("(a)", "(other)")))
    found = relaxvm.compare(a, b, [X, K])
    assert found.same
    assert (found.only_a, found.only_b) == (["a"], ["other"])
    assert "only in a: a" in str(found)


def test_fused_programs_are_compared_where_names_are_left() -> None:
    mod = module(PROGRAM)
    fused = transform.FuseOps()(transform.LegalizeOps()(mod))
    found = relaxvm.compare(relaxvm.build(mod), relaxvm.build(fused), [X, K])
    assert found.same
    assert found.compared[-1].name == "(result)"


def test_exceptions_are_outcomes() -> None:
    mod = module(PROGRAM)
    a = relaxvm.build(mod)
    assert relaxvm.compare(a, a, [X.astype(np.float64), K]).same
    lenient = relaxvm.build(module("""
@R.function
def main(x: R.Any, k: R.Any) -> R.Any:
    return x
"""))
    found = relaxvm.compare(a, lenient, [X.astype(np.float64), K])
    assert found.first is not None
    assert "a raises" in found.first.text
    assert "b returns float64[3]" in found.first.text


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (np.zeros(3), np.zeros(4), r"shapes \[3\] and \[4\]"),
        (np.zeros(3, np.float32), np.zeros(3, np.int32), ""),
        (np.zeros(3, np.float32), np.zeros(3, bool), "data types"),
        ((1, 2.0), (1, 2.5), r"element 1: 1 of 1 elements differ by up to 0.5"),
        ((1, 2), (1, 2, 3), "tuple of 2 and tuple of 3"),
        ("a", "b", "str 'a' and str 'b'"),
        (np.array([1, np.nan, np.inf]), np.array([1, np.nan, np.inf]), ""),
        (np.array([1, np.nan]), np.array([1, 2.0]), "1 of 2 elements differ by up to inf"),
        (2**53 + 1, 2**53, "1 of 1 elements differ"),
        (np.float32(1), np.float32(1 + 2**-22), ""),
        (np.array([1e9]), np.array([1e9 + 1]), "1 of 1"),
        (relaxvm.Shape((1, 2)), relaxvm.Shape((1, 3)), "element 1"),
        (None, None, ""),
    ],
)
def test_differences(a: Any, b: Any, text: str) -> None:
    found = differ(Computed("v", a), Computed("v", b), Tolerance())
    assert bool(found) == bool(text)
    if text:
        import re

        assert re.search(text, found.text), found.text


def test_streams_keep_only_what_waits() -> None:
    alive = 0

    class Value:
        def __init__(self) -> None:
            nonlocal alive
            alive += 1
            self.most = alive

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    most = 0

    def stream(order: list[int]) -> Iterator[Computed]:
        nonlocal most
        for i in order:
            value = Value()
            most = max(most, value.most)
            yield Computed(str(i), value)

    orders = list(range(200)), [i ^ 1 for i in range(200)]  # neighbours are exchanged
    found = compare_streams(*map(stream, orders))
    assert found.same
    assert len(found.compared) == 200
    assert most < 10


# Capturing


def test_capture() -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    with relaxvm.capture(vm, ["a", "c*"]) as c:
        vm["main"](X, K)
        vm["main"](X + 1, K)
    assert list(c) == ["a", "c"]
    np.testing.assert_allclose(c["a"], np.exp((X + 1) / 2), rtol=1e-6)
    assert len(c.times("a")) == 2
    np.testing.assert_allclose(c.times("c")[0], np.exp(X / 2) + X, rtol=1e-6)  # a copy of then
    vm["main"](X, K)
    assert len(c.times("a")) == 2
    with pytest.raises(KeyError, match="zz: not captured; there are: a, c"):
        c["zz"]


def test_capture_to_a_file(tmp_path: Path) -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    with relaxvm.capture(vm, "*") as c:
        vm["main"](X, K)
        vm["main"](X, K)
    c.save(tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz") as arrays:
        assert {"a", "a#2", "d"} <= set(arrays)
        np.testing.assert_array_equal(arrays["d"], vm["main"](X, K))
    with relaxvm.capture(vm) as nothing:
        vm["main"](X, K)
    with pytest.raises(relaxvm.errors.RelaxVMError, match="nothing was captured"):
        nothing.save(tmp_path / "w.npz")


def test_capture_is_bounded_and_chosen_by_a_function() -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    with relaxvm.capture(vm, lambda item: isinstance(item.value, np.ndarray)
                         and item.value.shape == (3,), max_bytes=30) as c:  # fmt: skip
        vm["main"](X, K)
    assert len(c.items_in_order) == 2
    assert c.dropped > 0


def test_capture_refuses() -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    with pytest.raises(ValueError, match="no variable of the program is 'zz'"):
        relaxvm.capture(vm, "zz")
    with pytest.raises(TypeError, match="expected a VirtualMachine, got int 3"):
        relaxvm.capture(3)
    with pytest.raises(TypeError, match="expected names, got int 3"):
        relaxvm.capture(vm, [3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="no names of variables"):
        relaxvm.capture(VirtualMachine(vm.executable.strip()), "a")


def test_nan_stop() -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    with relaxvm.capture(vm, nan_stop=True):
        vm["main"](X, K)
    large = np.array([1.0, 500.0, 2.0], np.float32)
    with (pytest.raises(NotFiniteError) as caught, relaxvm.capture(vm, nan_stop=True),
          np.errstate(all="ignore")):  # fmt: skip
        vm["main"](large, K)
    error = caught.value
    assert str(error).startswith("relaxvm.kernel.exp computes a, with 1 Inf, the first at [1]")
    assert error.variable == "a"
    np.testing.assert_array_equal(error.inputs[0], large / 2)
    assert "in main, pc" in error.__notes__[0]
    with np.errstate(all="ignore"):
        assert np.isinf(vm["main"](large, K)).any()  # it is off again


def test_nan_stop_at_an_argument_and_not_at_who_passes_it_on() -> None:
    vm = VirtualMachine(relaxvm.build(module(PROGRAM)))
    with (pytest.raises(NotFiniteError, match="main: the argument x has 1 NaN, the first at"),
          relaxvm.capture(vm, nan_stop=True)):  # fmt: skip
        vm["main"](np.array([1, np.nan], np.float32), K)
    masked = VirtualMachine(relaxvm.build(module("""
@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    a = R.add(x, R.const([0.0, float("-inf")], "float32"))
    b = R.nn.softmax(a)
    return b
""")))
    with relaxvm.capture(masked, nan_stop=True):
        np.testing.assert_array_equal(masked["main"](np.ones(2, np.float32)), [1, 0])


# Passes, and reducing


def test_blame() -> None:
    mod = module(PROGRAM)
    assert blame(mod, [X, K], find_passes(["zero"])) is None
    found = blame(mod, [X, K], [transform.FoldConstant(), wrong, transform.FuseOps()])
    assert found is not None
    assert found.name == "Wrong"
    assert "elements differ" in str(found)
    found = blame(mod, [X, K], [failing])
    assert found is not None
    assert str(found) == "Failing: fails: ValueError: does not know what to do"


def test_blame_a_pass_of_the_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxvm.transform import pipelines

    def broken() -> Any:
        @transform.module_pass(opt_level=0, name="ReuseShapes")
        def reuse(mod: ir.IRModule, context: Any) -> ir.IRModule:
            raise ValueError("broken")

        return reuse

    lowering = tuple((broken if make is transform.ReuseShapes else make, why)
                     for make, why in pipelines.LOWERING)  # fmt: skip
    monkeypatch.setattr(pipelines, "LOWERING", lowering)
    found = blame(module(PROGRAM), [X, K])
    assert found is not None
    assert found.name == "ReuseShapes"


def test_shrink_to_what_a_pass_changes() -> None:
    def holds(mod: ir.IRModule, args: list[Any]) -> bool:
        found = blame(mod, args, [wrong])
        return found is not None and found.name == "Wrong"

    small, args = shrink(module(PROGRAM), [X, K], holds, seconds=60)
    assert len(small["main"].params) == 1
    assert len(args) == 1
    text = small.script()
    assert "R.nn.relu" in text
    assert "R.add" not in text
    assert "half" not in text


def test_shrink_a_program_that_fails() -> None:
    mod = module(PROGRAM)
    bad = [X.astype(np.float64), K]
    outcome = outcome_of(mod, bad)
    assert outcome.stage == "run"
    holds = fails_alike(mod, bad)
    small, _ = shrink(mod, bad, holds, seconds=60)
    assert "R.nn.relu" not in small.script()
    with pytest.raises(ValueError, match="the program does not fail"):
        fails_alike(mod, [X, K])


def test_find_passes() -> None:
    assert [each.name for each in find_passes(["FoldConstant", "zero"])] == ["FoldConstant", "zero"]
    assert {"FuseOps", "zero", "DeadCodeElimination"} <= set(pass_names())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # older names
        for name in pass_names():
            find_passes([name])
    with pytest.raises(ValueError, match=r"FuseOp: there is no such pass.*'FuseOps'"):
        find_passes(["FuseOp"])
    with pytest.raises(ValueError, match="BindParams: it needs arguments"):
        find_passes(["BindParams"])


# The commands


def command(*args: str) -> children.CompletedProcess[str]:
    return children.run([sys.executable, "-m", "relaxvm", *args], text=True, capture_output=True)


INPUTS = "--random", "--dim", "n=3"


def test_compare_command(tmp_path: Path) -> None:
    mod = module(PROGRAM)
    relaxvm.build(mod).save(tmp_path / "a.vmexec")
    relaxvm.build(wrong(mod)).save(tmp_path / "b.vmexec")
    a, b = str(tmp_path / "a.vmexec"), str(tmp_path / "b.vmexec")
    same = command("compare", a, a, *INPUTS)
    assert same.returncode == 0, same.stderr
    assert same.stdout == "the same: 7 values compared\n"
    found = command("compare", a, b, *INPUTS)
    assert found.returncode == 1
    assert found.stdout.startswith("the first that differs, of 4 values compared: b: ")
    assert '"same": false' in command("compare", a, b, "--all", "--json", *INPUTS).stdout


def test_opt_command(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(ir.save_json(module(PROGRAM)))
    path = str(tmp_path / "p.json")
    done = command("opt", path, "--passes", "LegalizeOps,DeadCodeElimination", "--print-after")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("# after ") == 2
    assert "call_dps_packed" in done.stdout
    plain = command("opt", path, "-o", str(tmp_path / "q.json"), "--passes", "zero")
    assert plain.returncode == 0, plain.stderr
    assert "main" in ir.load_json((tmp_path / "q.json").read_text())
    wrong_name = command("opt", path, "--passes", "Fuseops")
    assert wrong_name.returncode == 2
    assert "there is no such pass or pipeline; did you mean 'FuseOps'" in wrong_name.stderr


def test_reduce_command(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(ir.save_json(module(PROGRAM)))
    path = str(tmp_path / "p.json")
    done = command("reduce", path, "--passes", "zero", *INPUTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no pass changes the result of main, and none fails\n"
    np.save(tmp_path / "x.npy", X.astype(np.float64))
    small = command("reduce", path, "--input", f"x={tmp_path / 'x.npy'}", "--random",
                    "-o", str(tmp_path / "small.py"))  # fmt: skip
    assert small.returncode == 1, small.stderr
    assert small.stdout.startswith("fails in the run: ")
    assert "R.nn.relu" not in (tmp_path / "small.py").read_text()


def test_compile_without_a_compiler_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.json").write_text(ir.save_json(module(PROGRAM)))
    monkeypatch.setenv("CC", "/nonexistent")
    done = command("compile", str(tmp_path / "p.json"), "-o", str(tmp_path / "p.so"))
    assert done.returncode == 1
    assert "on the command line: --no-native" in done.stderr
    assert command("compile", str(tmp_path / "p.json"), "-o", str(tmp_path / "p.vmexec"),
                   "--no-native").returncode == 0  # fmt: skip
