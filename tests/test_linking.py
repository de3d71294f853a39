"""Linking: packed functions by name, allowed names, messages of LinkError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Registry, VirtualMachine, register_func
from relaxvm.errors import LinkError
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.isa import FuncKind
from relaxvm.registry import GLOBAL

from .vm_programs import FUNCTIONS, X, Y, add, calls, keep, last, program


def test_all_missing_functions_are_named_at_once() -> None:
    ex = calls("t.ad", "vm.builtin.copyy", "entirely.else")
    with pytest.raises(LinkError) as caught:
        VirtualMachine(ex, functions={"t.add": add})
    text = str(caught.value)
    assert caught.value.missing == ("t.ad", "vm.builtin.copyy", "entirely.else")
    assert "3 of 3 packed functions missing" in text
    assert "'t.ad', used by main (pc 0): not among `functions`; did you mean 't.add'?" in text
    assert "'vm.builtin.copyy', used by main (pc 1): " in text
    assert "did you mean 'vm.builtin.copy'" in text
    assert "'entirely.else', used by main (pc 2): not among `functions`\n" in text
    assert "functions={name: func}" in text


def test_missing_function_names_callers_and_operands() -> None:
    b = ExecBuilder()
    b.declare_function("nowhere")
    b.declare_function("unused")
    for name in "abcde":
        with b.function(name):
            b.emit_call("vm.builtin.copy", [b.f("nowhere")], dst=b.r(0))
            b.emit_call("nowhere", [b.r(0)], dst=b.r(0))
            b.emit_ret(b.r(0))
    with pytest.raises(LinkError) as caught:
        VirtualMachine(b.get())
    text = str(caught.value)
    assert "'nowhere', used by a (pc 0), b (pc 3), c (pc 6) and" in text
    assert "'unused', never used: not registered" in text


def test_global_registry_is_the_default() -> None:
    register_func("test_vm.twice", lambda x: x + x, override=True)
    try:
        assert VirtualMachine(calls("test_vm.twice")).main(2) == 4
        with pytest.raises(LinkError, match=r"'test_vm\.twise', .*'test_vm\.twice'"):
            VirtualMachine(calls("test_vm.twise"))
    finally:
        GLOBAL.remove("test_vm.twice")


def test_dict_is_a_scope_of_its_own() -> None:
    register_func("test_vm.f", lambda x: "global", override=True)
    try:
        ex = calls("test_vm.f")
        assert VirtualMachine(ex).main(0) == "global"
        assert VirtualMachine(ex, functions={"test_vm.f": lambda x: "own"}).main(0) == "own"
        text = "'test_vm.f', used by main .*: registered, but `functions` does not allow it"
        with pytest.raises(LinkError, match=text):
            VirtualMachine(ex, functions={})
    finally:
        GLOBAL.remove("test_vm.f")


def test_allow_list() -> None:
    register_func("test_vm.f", lambda x: "f", override=True)
    register_func("test_vm.g", lambda x: "g", override=True)
    try:
        assert VirtualMachine(calls("test_vm.f"), functions=["test_vm.f"]).main(0) == "f"
        names = (name for name in ("test_vm.f", "not.registered"))
        assert VirtualMachine(calls("test_vm.f"), functions=names).main(0) == "f"
        with pytest.raises(LinkError, match="`functions` does not allow it") as caught:
            VirtualMachine(calls("test_vm.f", "test_vm.g"), functions={"test_vm.f"})
        assert caught.value.missing == ("test_vm.g",)
    finally:
        GLOBAL.remove("test_vm.f")
        GLOBAL.remove("test_vm.g")


@pytest.mark.parametrize("functions", [{}, [], Registry(), frozenset()])
def test_harmless_builtins_are_always_allowed(functions: Any) -> None:
    assert VirtualMachine(calls("vm.builtin.copy"), functions=functions).main(3) == 3


def test_builtins_with_effects_must_be_named() -> None:
    relaxvm.list_funcs()
    effects = [n for n in GLOBAL.names() if n.startswith("vm.builtin.") and GLOBAL.lookup(n).effect]
    assert "vm.builtin.tensor_cache.load" in effects
    for name in effects:
        b = ExecBuilder()
        b.declare_function(name)
        with b.function("main"):
            b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
            b.emit_ret(b.r(0))
        ex = b.get()
        with pytest.raises(LinkError, match="`functions` does not allow it"):
            VirtualMachine(ex, functions=[])
        VirtualMachine(ex, functions=[name])
        VirtualMachine(ex)


def test_registry_as_functions() -> None:
    parent = Registry({"t.add": add})
    child = Registry({"t.last": last, "t.keep": keep}, parent=parent)
    np.testing.assert_array_equal(VirtualMachine(program(), functions=child).main(X, Y), X + Y)


@pytest.mark.parametrize("functions", ["vm.builtin.copy", b"x", 3, [1], [b"x"]])
def test_functions_of_the_wrong_class(functions: Any) -> None:
    with pytest.raises(TypeError, match="functions: expected"):
        VirtualMachine(program(), functions=functions)
    with pytest.raises(TypeError, match="expected a callable, got int"):
        VirtualMachine(program(), functions={"t.add": 1})  # type: ignore[dict-item]


def test_compiled_functions_are_refused_by_name() -> None:
    kernels = [FunctionInfo(FuncKind.COMPILED, f"kernel_{c}", 0, 0, 1, 3, ("x",)) for c in "ab"]
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 1, 1, ("x",))
    with pytest.raises(LinkError, match=r"without their code: 'kernel_a', 'kernel_b'"):
        VirtualMachine(VMExecutable([*kernels, main], [], [0], [2, 0]))


def test_many_missing_functions_stay_readable() -> None:
    b = ExecBuilder()
    for i in range(5000):
        b.declare_function(f"missing.{i}")
    with b.function("main"):
        b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
        b.emit_ret(b.r(0))
    with pytest.raises(LinkError, match="and 4,900 more") as caught:
        VirtualMachine(b.get())
    assert len(caught.value.missing) == 5000
    assert len(str(caught.value)) < 20_000


def test_long_names_are_cut_in_the_message_only() -> None:
    name = "n" * 60_000
    with pytest.raises(LinkError) as caught:
        VirtualMachine(calls(name), functions=[])
    assert caught.value.missing == (name,)
    assert len(str(caught.value)) < 1_000


def test_linking_runs_nothing() -> None:
    def explode(*args: Any) -> None:
        raise AssertionError("called while linking")

    VirtualMachine(program(), functions=dict.fromkeys(FUNCTIONS, explode))
