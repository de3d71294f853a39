"""Limits of a run hold around calls of every builtin, with the arguments of its cases."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest

from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.errors import InternalError, LimitError
from relaxvm.executable import VMExecutable

from .builtin_cases import CASES, names, own_builtins

pytestmark = pytest.mark.usefixtures("no_builtin_state")

LIMITS = Limits(fuel=10_000, call_depth=20, live_bytes=1 << 24, alloc_bytes=1 << 20)

WITHOUT = {
    "relaxvm.builtin.fatal": "always raises",
    "relaxvm.builtin.match_failure": "always raises",
    "vm.builtin.invoke_debug_func": "calls a function that the user has registered",
    "vm.builtin.kv_cache_disagg_mark_send": "always raises",
    "vm.builtin.tensor_cache.load": "reads a folder: see test_tensor_cache",
}
"""Builtin -> why no call of it is tried."""

FAIL_AGAIN = {
    "relaxvm.builtin.compute_shape": OverflowError,
    "vm.builtin.attention_kv_cache_array_popn": InternalError,
    "vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes": InternalError,
    "vm.builtin.attention_kv_cache_enable_sliding_window_for_seq": InternalError,
    "vm.builtin.attention_kv_cache_finish_import": InternalError,
    "vm.builtin.attention_kv_cache_import_page_group": InternalError,
    "vm.builtin.kv_cache_disagg_prepare_recv": InternalError,
    "vm.builtin.kv_state_add_sequence": InternalError,
    "vm.builtin.kv_state_begin_forward": InternalError,
    "vm.builtin.kv_state_fork_sequence": InternalError,
    "vm.builtin.kv_state_popn": InternalError,
    "vm.builtin.kv_state_remove_sequence": InternalError,
}
"""Builtins that change an argument so that a later call with it fails, and the error."""


def good_arguments(name: str) -> list[tuple[Any, ...]]:
    """Return the arguments of the lines that have a result."""
    found = []
    for line in CASES[name].strip().splitlines():
        text, expected, *_ = line.split(" | ")
        if not expected.partition(":")[0].endswith(("Error", "Exit")):
            found.append(eval(text, used := names()))
            found[-1] = tuple(VM if each is used["vm"] else each for each in found[-1])
    return found


VM = object()
"""Stands for the state of the VM in arguments."""


def program(name: str, args: tuple[Any, ...]) -> VMExecutable:
    """Functions that call a builtin once, without end, and deeper and deeper."""
    builder = ExecBuilder()
    count = sum(each is not VM for each in args)

    def call() -> None:
        registers = iter([builder.r(i) for i in range(count)])
        operands = [builder.vm_state() if each is VM else next(registers) for each in args]
        builder.emit_call(name, operands, dst=builder.r(count))

    with builder.function("once", num_inputs=count):
        call()
        builder.emit_ret(builder.r(count))
    with builder.function("endless", num_inputs=count):
        call()
        builder.emit_goto(-1)
    with builder.function("deep", num_inputs=count):
        call()
        builder.emit_call("deep", [builder.r(i) for i in range(count)], dst=builder.r(count + 1))
        builder.emit_ret(builder.r(count + 1))
    return builder.get()


def outcome(function: Any, args: tuple[Any, ...]) -> str | None:
    """Call a function; return the limit that ended it, None if it returned."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            function(*[each for each in args if each is not VM])
    except LimitError as error:
        return error.limit
    return None


def test_every_builtin_is_tried() -> None:
    assert set(CASES) == own_builtins()
    assert set(WITHOUT) <= set(CASES)
    assert [name for name in CASES if name not in WITHOUT and not good_arguments(name)] == []


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITHOUT])
def test_limits_hold_around_calls(name: str) -> None:
    for args in good_arguments(name):
        vm = VirtualMachine(program(name, args), limits=LIMITS)
        assert outcome(vm["once"], args) is None
        if name in FAIL_AGAIN:
            with pytest.raises(FAIL_AGAIN[name]):
                vm["endless"](*args)
            continue
        # A call that keeps memory may reach that limit first.
        assert outcome(vm["endless"], args) in ("fuel", "live_bytes")
        assert outcome(vm["deep"], args) == "call_depth"
        assert outcome(vm["once"], args) is None, "the VM cannot be used after a limit"


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITHOUT])
def test_a_call_without_fuel_does_not_happen(name: str) -> None:
    args = good_arguments(name)[0]
    for limits, limit in ((LIMITS.but(fuel=1), "fuel"), (LIMITS.but(call_depth=1), None)):
        vm = VirtualMachine(program(name, args), limits=limits)
        assert outcome(vm["once"], args) == limit
