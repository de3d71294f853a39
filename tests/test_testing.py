"""`relaxvm.testing`: what other people's tests use."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaxvm
from relaxvm import ir, transform
from relaxvm.executable import VMExecutable
from relaxvm.testing import assert_same
from relaxvm.testing.strategies import executables, inputs_of, programs

from . import children
from .passes import module
from .test_compare_programs import PROGRAM, K, X, wrong


def test_assert_same(tmp_path: Path) -> None:
    mod = module(PROGRAM)
    found = assert_same(mod, relaxvm.build(mod), [X, K])
    assert len(found.compared) == 7
    relaxvm.build(mod).save(tmp_path / "a.vmexec")
    assert_same(tmp_path / "a.vmexec", relaxvm.VirtualMachine(relaxvm.build(mod)), {"x": X, "k": K})
    with pytest.raises(AssertionError, match="first that differs, of 4 values compared: b: 2 of"):
        assert_same(mod, wrong(mod), [X, K])
    assert_same(mod, wrong(mod), [X, K], rtol=1, atol=1)
    with pytest.raises(TypeError, match="expected a VM, an executable, a module or a path"):
        assert_same(3, mod)


@settings(max_examples=60, deadline=None)
@given(programs(), st.data())
def test_programs_and_passes(mod: ir.IRModule, data: st.DataObject) -> None:
    inputs = data.draw(inputs_of(relaxvm.build(mod)))
    result = relaxvm.VirtualMachine(relaxvm.build(mod))["main"](*inputs)
    for leaf in result if isinstance(result, tuple) else (result,):
        assert np.isfinite(leaf).all()
    optimized = transform.Sequential([transform.FoldConstant(), transform.DeadCodeElimination()])
    assert_same(mod, optimized(mod), inputs)


@settings(max_examples=10, deadline=None)
@given(executables(max_bindings=3))
def test_executables(executable: VMExecutable) -> None:
    assert relaxvm.loads(executable.to_bytes()) == executable


def test_programs_are_of_all_sorts() -> None:
    seen: set[str] = set()

    @settings(max_examples=200, deadline=None)
    @given(programs())
    def collect(mod: ir.IRModule) -> None:
        text = mod.script()
        words = "R.matmul", "R.sum", "R.add", "cls.helper", "R.tanh", "n = T.int64"
        seen.update(word for word in words if word in text)

    collect()
    assert len(seen) == 6


def test_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text('''
import numpy as np
import relaxvm
from relaxvm.script import relax as R, ir as I

def build(number):
    b = relaxvm.ExecBuilder()
    with b.function("main", 1):
        b.emit_call("t.f", [b.r(0), b.imm(number)], dst=b.r(1))
        b.emit_ret(b.r(1))
    return b.get()

def test_equal():
    assert build(1) == build(2)

def test_same(assert_same):
    assert_same(build(1), build(1), [3])
''')
    done = children.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:relaxvm", "-p", "relaxvm.testing.plugin",
         "-p", "no:cacheprovider", str(tmp_path)],
        text=True, capture_output=True,
    )  # fmt: skip
    assert "executables differ:" in done.stdout
    assert "-  call  t.f" in done.stdout.replace("E       ", "")
