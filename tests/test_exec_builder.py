"""ExecBuilder: the emitted code, errors, and comparison with TVM's builder."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relaxvm
from relaxvm import ExecBuilder, FuncKind, Shape, VMExecutable, isa
from relaxvm.errors import InternalError, RelaxVMWarning
from relaxvm.executable.formats import binary

from .threads import run_in_threads

BIG = isa.VALUE_MAX


@pytest.fixture
def ib() -> ExecBuilder:
    return ExecBuilder()


@contextmanager
def function(ib: ExecBuilder, name: str = "main", num_inputs: int = 2) -> Iterator[ExecBuilder]:
    """An open function whose instructions do not matter; it ends without checks."""
    with pytest.raises(_StopError), ib.function(name, num_inputs):
        yield ib
        raise _StopError


class _StopError(Exception):
    pass


def simple(ib: ExecBuilder, name: str = "main") -> None:
    with ib.function(name, num_inputs=1):
        ib.emit_ret(ib.r(0))


def body(
    executable: VMExecutable, name: str = "main"
) -> list[tuple[str, tuple[int, ...], list[str]]]:
    """(mnemonic, fields, arguments) of each instruction of a function."""
    return [
        (i.op.name, i.fields, [f"{a.kind.name[0].lower()}{a.value}" for a in i.args])
        for _, i in executable.instructions(name)
    ]


# Operands


def test_operands_are_plain_ints(ib: ExecBuilder) -> None:
    ib.declare_function("g")
    words = [ib.r(3), ib.imm(-7), ib.c(2), ib.f("g"), ib.void_arg(), ib.vm_state()]
    assert [type(word) for word in words] == [int] * 6
    assert [isa.decode_arg(word) for word in words] == [
        (isa.ArgKind.REGISTER, 3),
        (isa.ArgKind.IMMEDIATE, -7),
        (isa.ArgKind.CONSTANT, 2),
        (isa.ArgKind.FUNCTION, 0),
        (isa.ArgKind.REGISTER, isa.VOID_REGISTER),
        (isa.ArgKind.REGISTER, isa.VM_REGISTER),
    ]


@pytest.mark.parametrize("value", [0, 1, -1, BIG, -BIG, True, np.int8(-3)])
def test_imm_keeps_its_value(ib: ExecBuilder, value: Any) -> None:
    assert isa.decode_arg(ib.imm(value)) == (isa.ArgKind.IMMEDIATE, int(value))


@pytest.mark.parametrize("value", [BIG + 1, -BIG - 1, 1 << 70])
def test_imm_out_of_range(ib: ExecBuilder, value: int) -> None:
    with pytest.raises(InternalError, match=rf"immediate: expected an int within .* got {value}"):
        ib.imm(value)


@pytest.mark.parametrize("make", ["r", "c"])
@pytest.mark.parametrize("value", [-1, BIG + 1])
def test_index_out_of_range(ib: ExecBuilder, make: str, value: int) -> None:
    with pytest.raises(InternalError, match=rf"(register|constant index): expected .* got {value}"):
        getattr(ib, make)(value)


@pytest.mark.parametrize("make", ["r", "imm", "c"])
def test_index_of_wrong_type(ib: ExecBuilder, make: str) -> None:
    with pytest.raises(TypeError, match=r"expected an int, got float 1\.5"):
        getattr(ib, make)(1.5)


def test_f_needs_a_known_function(ib: ExecBuilder) -> None:
    ib.declare_function("vm.add")
    with pytest.raises(InternalError, match=r"function 'vm\.ad': .* did you mean 'vm\.add'"):
        ib.f("vm.ad")
    with pytest.raises(TypeError, match="function: expected a name, got int 3"):
        ib.f(3)  # type: ignore[arg-type]


# Constants


class _Code(IntEnum):
    ONE = 1


@pytest.mark.parametrize("value", [0, -5, BIG, -BIG, np.int64(3), np.uint8(255), _Code.ONE])
def test_small_int_constant_is_an_immediate(ib: ExecBuilder, value: int) -> None:
    assert ib.convert_constant(value) == ib.imm(value)
    simple(ib)
    assert ib.get().constants == ()


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (True, True),
        (np.bool_(False), False),
        (2.5, 2.5),
        (np.float32(0.5), 0.5),
        (BIG + 1, BIG + 1),
        (-BIG - 1, -BIG - 1),
        (isa.WORD_MIN, isa.WORD_MIN),
        ("text", "text"),
        (np.str_("text"), "text"),
        (np.dtype("int8"), np.dtype("int8")),
        (Shape((2, 3)), Shape((2, 3))),
        ((2, 3), Shape((2, 3))),
        ([2, np.int64(3)], Shape((2, 3))),
        ((), Shape()),
    ],
)
def test_constant_goes_to_the_pool(ib: ExecBuilder, value: Any, kept: Any) -> None:
    assert ib.convert_constant(value) == ib.c(0)
    (constant,) = ib.get().constants
    assert type(constant) is type(kept)
    assert constant == kept


@pytest.mark.parametrize(
    "value",
    [object(), b"bytes", 1j, {"a": 1}, (1, 2.5), (True, False), ("a",), np.float32, print],
    ids=lambda value: type(value).__name__,
)
def test_constant_of_a_kind_that_the_pool_lacks(ib: ExecBuilder, value: Any) -> None:
    with pytest.raises(TypeError, match="constant: expected an array, dtype, shape"):
        ib.convert_constant(value)
    assert ib.get().constants == ()


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_constant_int_out_of_range(ib: ExecBuilder, value: int) -> None:
    with pytest.raises(
        InternalError, match=f"constant: expected an int that fits 64 bits, got {value}"
    ):
        ib.convert_constant(value)


def test_equal_constants_share_a_slot(ib: ExecBuilder) -> None:
    groups: list[list[Any]] = [
        [np.array([1, 2], "int32"), np.array([1, 2], "int32"), np.array([1, 0, 2], "int32")[::2]],
        [np.array([1, 2], "int64")],
        [np.array([[1, 2]], "int32")],
        [np.array([1, 2], ">i4")],
        [np.zeros(1), np.zeros(1)],
        [np.array([-0.0])],
        [np.zeros(500), np.zeros(500)],
        [True, np.True_],
        [1.0, np.float64(1)],
        [float("nan"), float("nan")],
        [0.0],
        [-0.0],
        [None, None],
        ["1", "1"],
        [(1,), Shape([1]), [1]],
        [np.dtype("int32"), np.dtype(np.int32)],
    ]
    for i, group in enumerate(groups):
        assert [ib.convert_constant(value) for value in group] == [ib.c(i)] * len(group)


def test_writable_array_is_copied(ib: ExecBuilder) -> None:
    array = np.arange(3.0)
    view = array[:]
    view.flags.writeable = False  # read-only itself, but a view of writable memory
    ib.convert_constant(array)
    ib.convert_constant(np.broadcast_to(array[:1], (4,)))
    ib.convert_constant(view[1:])
    array[:] = 9
    for constant, expected in zip(ib.get().constants, ([0, 1, 2], [0] * 4, [1, 2]), strict=True):
        np.testing.assert_array_equal(constant, expected)
        assert not constant.flags.writeable


def test_read_only_array_is_kept(ib: ExecBuilder, tmp_path: Path) -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    np.save(tmp_path / "a.npy", np.ones((4, 4)))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    ib.convert_constant(array)
    ib.convert_constant(mapped)
    first, second = ib.get().constants
    assert first is array
    assert np.shares_memory(second, mapped)


def test_array_protocols(ib: ExecBuilder) -> None:
    memory = np.array([1, 2], "float32")
    locked = memory.copy()
    locked.flags.writeable = False

    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return locked

    assert ib.convert_constant(Lazy()) == ib.convert_constant(memory) == ib.c(0)
    # The flag does not restrict the owner of the memory.
    assert not np.shares_memory(ib.get().constants[0], locked)


def test_object_arrays_are_compared_by_identity(ib: ExecBuilder) -> None:
    words = [ib.convert_constant(np.array([i, None], object)) for i in range(20)]
    assert words == [ib.c(i) for i in range(20)]


# Emission


def test_registers_are_numbered_in_the_order_of_first_writes(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=2):
        ib.emit_call("f", [ib.r(0), ib.r(1)], dst=ib.r(10000))
        ib.emit_call("f", [ib.r(10000)], dst=ib.r(100))
        ib.emit_call("f", [ib.r(100), ib.r(1)], dst=ib.r(1))
        ib.emit_call("f", [ib.r(1), ib.vm_state(), ib.void_arg()], dst=ib.r(10000))
        ib.emit_if(ib.r(100), 2)
        ib.emit_call("f", dst=ib.void_arg())
        ib.emit_ret(ib.r(10000))
    executable = ib.get()
    assert body(executable) == [
        ("call", (2, 1), ["r0", "r1"]),
        ("call", (3, 1), ["r2"]),
        ("call", (1, 1), ["r3", "r1"]),
        ("call", (2, 1), ["r1", f"r{isa.VM_REGISTER}", f"r{isa.VOID_REGISTER}"]),
        ("if", (3, 2), []),
        ("call", (isa.VOID_REGISTER, 1), []),
        ("ret", (2,), []),
    ]
    assert executable.function("main").register_file_size == 4


def test_value_arguments_become_constants(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=0):
        ib.emit_call("f", args=[np.zeros(2), (3, 4), Shape([5]), np.dtype("int8")], dst=ib.r(0))
        ib.emit_call("f", (ib.r(i) for i in (0,)), ib.r(1))
        ib.emit_call("f", [np.int64(ib.imm(4)), np.zeros(2)])
        ib.emit_ret(ib.r(1))
    executable = ib.get()
    assert [args for _, _, args in body(executable)] == [
        ["c0", "c1", "c2", "c3"],
        ["r0"],
        ["i4", "c0"],
        [],
    ]
    assert executable.constants[1:] == (Shape([3, 4]), Shape([5]), np.dtype("int8"))


@pytest.mark.parametrize(
    "value", [None, True, np.bool_(True), 1.5, "text", [1, 2], np.float32, object()]
)
def test_values_that_cannot_be_operands(ib: ExecBuilder, value: Any) -> None:
    message = (
        r"function 'main', pc 0: call f: argument 1: expected a word, .*convert_constant\(value\)"
    )
    with function(ib), pytest.raises(TypeError, match=message):
        ib.emit_call("f", [ib.r(0), value])


@pytest.mark.parametrize("word", [-1, 4 << 56, 7 << 56, 1 << 62, -(1 << 63), 1 << 80])
def test_ints_that_cannot_be_operands(ib: ExecBuilder, word: int) -> None:
    with (
        function(ib),
        pytest.raises(InternalError, match=rf"call f: argument 0: expected a word .* {word};"),
    ):
        ib.emit_call("f", [word])


def test_function_table_is_in_order_of_first_mention(ib: ExecBuilder) -> None:
    with ib.function("a", num_inputs=1):
        ib.emit_call("x", [ib.r(0)], ib.r(1))
        ib.emit_call("b", [ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    ib.declare_function("y")
    with ib.function("b", num_inputs=1, param_names=["p"]):
        ib.emit_call("y", [ib.r(0), ib.f("a")], ib.r(1))
        ib.emit_ret(ib.r(1))
    ib.declare_function("z", FuncKind.COMPILED)
    executable = ib.get()
    assert [(f.name, f.kind) for f in executable] == [
        ("a", FuncKind.BYTECODE),
        ("x", FuncKind.PACKED),
        ("b", FuncKind.BYTECODE),  # called before it was defined
        ("y", FuncKind.PACKED),
        ("z", FuncKind.COMPILED),
    ]
    b = executable.function("b")
    assert (b.start_instr, b.end_instr, b.num_args, b.param_names) == (3, 5, 1, ("p",))
    assert executable.function("x").num_args == isa.NO_ARITY


def test_get_any_number_of_times(ib: ExecBuilder) -> None:
    assert len(ib.get()) == 0
    simple(ib, "a")
    first = ib.get()
    assert ib.get() == first
    simple(ib, "b")
    assert [f.name for f in first] == ["a"]
    assert [f.name for f in ib.get()] == ["a", "b"]


def test_many_instructions(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=1):
        for i in range(20_000):
            ib.emit_call("f", [ib.r(i)], ib.r(i + 1))
        ib.emit_ret(ib.r(20_000))
    executable = ib.get()
    assert len(executable) == 20_001
    assert executable.function("main").register_file_size == 20_001


# Rules


@pytest.mark.parametrize(
    "emit",
    [
        lambda ib: ib.emit_call("f"),
        lambda ib: ib.emit_ret(ib.r(0)),
        lambda ib: ib.emit_goto(1),
        lambda ib: ib.emit_if(ib.r(0), 2),
        lambda ib: ib.label(),
    ],
)
def test_emitting_outside_of_a_function(
    ib: ExecBuilder, emit: Callable[[ExecBuilder], Any]
) -> None:
    with pytest.raises(ValueError, match="expected an open function"):
        emit(ib)
    simple(ib)
    with pytest.raises(ValueError, match="expected an open function"):
        emit(ib)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (
            lambda ib: ib.emit_call("f", [ib.r(7)]),
            r"register %7 is read before .*inputs are %0\.\.%1",
        ),
        (lambda ib: ib.emit_call("f", [ib.r(3)], ib.r(3)), "register %3 is read before"),
        (lambda ib: ib.emit_ret(ib.r(2)), "register %2 is read before"),
        (lambda ib: ib.emit_if(ib.r(9), 2), "register %9 is read before"),
        (lambda ib: ib.emit_call("f", [(1 << 56) - 1]), "register %-1 is read before"),
        (
            lambda ib: ib.emit_call("f", [], ib.imm(1)),
            r"dst: expected a register made by r\(i\), got word",
        ),
        (lambda ib: ib.emit_call("f", [], ib.c(1)), "dst: expected a register"),
        (lambda ib: ib.emit_call("f", [], -1), "dst: expected a register .* got word -1"),
        (lambda ib: ib.emit_call("f", [], ib.vm_state()), "dst: expected .* got the VM register"),
        (lambda ib: ib.emit_ret(ib.imm(0)), "ret: result: expected a register"),
        (lambda ib: ib.emit_ret(ib.convert_constant(2.5)), "ret: result: expected a register"),
        (lambda ib: ib.emit_if(ib.imm(1), 2), "if: condition: expected a register"),
        (lambda ib: ib.emit_if(ib.void_arg(), 2), "if: condition: .* got the void register"),
        (lambda ib: ib.emit_if(ib.vm_state(), 2), "if: condition: .* got the VM register"),
        (lambda ib: ib.emit_if(ib.r(0), 1), "if: expected an offset of at least 2, got 1"),
        (lambda ib: ib.emit_if(ib.r(0), -2), "if: expected an offset of at least 2, got -2"),
        (lambda ib: ib.emit_goto(0), "goto: expected an offset other than 0"),
        (lambda ib: ib.emit_call(""), "call: function: expected a name, got an empty string"),
    ],
)
def test_rules_of_an_instruction(
    ib: ExecBuilder, emit: Callable[[ExecBuilder], None], message: str
) -> None:
    simple(ib, "first")
    with function(ib):
        ib.emit_goto(1)
        with pytest.raises(InternalError, match=message) as caught:
            emit(ib)
        if "empty string" not in message:
            assert "function 'main', pc 2" in str(caught.value)  # counted over the executable
        ib.emit_ret(ib.r(0))  # the failed one had no effect


@pytest.mark.parametrize(
    "make",
    [
        lambda ib: ib.emit_goto(1.5),
        lambda ib: ib.emit_if(ib.r(0), "x"),
        lambda ib: ib.emit_ret(None),
        lambda ib: ib.emit_call("f", [], 2.5),
        lambda ib: ib.emit_call(3),
    ],
)
def test_operands_of_wrong_type(ib: ExecBuilder, make: Callable[[ExecBuilder], None]) -> None:
    with function(ib), pytest.raises(TypeError, match=r"expected (an int|a name), got"):
        make(ib)


def test_failed_emission_has_no_effect(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=1):
        with pytest.raises(InternalError):
            ib.emit_call("unknown", [ib.r(0), ib.r(5)], ib.r(1))
        label = ib.label()
        with pytest.raises(InternalError):
            ib.emit_if(ib.r(5), label)
        ib.emit_goto(label)
        ib.bind(label)
        ib.emit_ret(ib.r(0))
    executable = ib.get()
    assert [f.name for f in executable] == ["main"]
    assert body(executable) == [("goto", (1,), []), ("ret", (0,), [])]


def test_rules_of_a_function(ib: ExecBuilder) -> None:
    message = "function 'main': expected at least one instruction"
    with pytest.raises(InternalError, match=message), ib.function("main"):
        pass
    simple(ib)
    with pytest.raises(InternalError, match="function 'main': defined already"):
        simple(ib)
    with pytest.raises(InternalError, match=r"expected 2 parameter names, got 1 \(x\)"):
        ib.function("f", 2, ["x"])
    with pytest.raises(InternalError, match="expected distinct parameter names, got x, x"):
        ib.function("f", 2, ["x", "x"])
    with pytest.raises(
        InternalError, match="function 'f': parameter: expected a name, got an empty"
    ):
        ib.function("f", 1, [""])
    with pytest.raises(InternalError, match=r"number of inputs: expected an int within 0 \.\."):
        ib.function("f", -1)
    with pytest.raises(TypeError, match="number of inputs: expected an int, got None"):
        ib.function("f", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="function: expected a name, got int 1"):
        ib.function(1)  # type: ignore[arg-type]
    assert [f.name for f in ib.get()] == ["main"]


def test_functions_do_not_nest(ib: ExecBuilder) -> None:
    with (
        function(ib, "outer"),
        pytest.raises(InternalError, match="'inner': begun before 'outer' has ended"),
    ):
        simple(ib, "inner")
    assert len(ib.get().functions) == 0


def test_declarations(ib: ExecBuilder) -> None:
    ib.declare_function("p")
    ib.declare_function("p", FuncKind.PACKED)
    ib.declare_function("c", 2)
    with pytest.raises(
        InternalError, match="'p': declared as bytecode, but the table has it as packed"
    ):
        ib.declare_function("p", FuncKind.BYTECODE)
    with pytest.raises(InternalError, match=r"'q': expected a kind of 0 \(packed\), .* got 7"):
        ib.declare_function("q", 7)
    with pytest.raises(InternalError, match="'c': declared as compiled, got a bytecode definition"):
        simple(ib, "c")
    simple(ib, "p")
    assert [(f.name, f.kind.name) for f in ib.get()] == [("p", "BYTECODE"), ("c", "COMPILED")]
    ib.declare_function("b", FuncKind.BYTECODE)
    with pytest.raises(InternalError, match="'b': declared as bytecode, but never defined"):
        ib.get()
    simple(ib, "b")
    assert len(ib.get()) == 2


def test_get_inside_of_a_function(ib: ExecBuilder) -> None:
    with function(ib), pytest.raises(InternalError, match="get: function 'main' has not ended"):
        ib.get()


@pytest.mark.parametrize("kind", ["constant", "function"])
def test_index_of_an_undefined_function(ib: ExecBuilder, kind: str) -> None:
    word = isa.encode_arg(isa.ArgKind[kind.upper()], 4)
    with ib.function("main", num_inputs=1):
        ib.emit_call("f", [ib.r(0), word], ib.r(1))
        ib.emit_ret(ib.r(1))
    message = rf"'main', pc 0: call f: argument 1: expected a {kind} index below \d, got 4"
    with pytest.raises(InternalError, match=message):
        ib.get()
    for i in range(5):
        ib.convert_constant(float(i))
        ib.declare_function(f"f{i}")
    assert body(ib.get())[0][2] == ["r0", f"{kind[0]}4"]


def test_unused_input_warns(ib: ExecBuilder) -> None:
    message = r"'main': never uses input %0 \(x\), %2 \(z\)$"
    with (
        pytest.warns(RelaxVMWarning, match=message) as caught,
        ib.function("main", 3, ["x", "y", "z"]),
    ):
        ib.emit_call("f", [ib.r(1)], ib.r(0))
        ib.emit_ret(ib.r(1))
    assert caught[0].filename == __file__
    message = r"'many': never uses input %0, %1, %2, \.\.\.$"
    with pytest.warns(RelaxVMWarning, match=message), ib.function("many", 1 << 40):
        ib.emit_ret(ib.void_arg())


def test_used_inputs_do_not_warn(ib: ExecBuilder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ib.function("main", num_inputs=3):
            ib.emit_call("f", [], ib.r(0))
            ib.emit_call("f", [ib.r(0)], ib.r(5))  # on another path it may be the input
            ib.emit_if(ib.r(1), 2)
            ib.emit_ret(ib.r(5))
            ib.emit_ret(ib.r(2))


def test_warning_as_error_drops_the_function(ib: ExecBuilder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RelaxVMWarning), ib.function("main", num_inputs=1):
            ib.emit_ret(ib.void_arg())
    simple(ib)
    assert len(ib.get()) == 1


def test_failed_body_is_dropped(ib: ExecBuilder) -> None:
    simple(ib, "first")
    with pytest.raises(ZeroDivisionError), ib.function("second", num_inputs=1):
        ib.emit_call("only.there", [ib.r(0)], ib.r(1))
        raise ZeroDivisionError
    assert [f.name for f in ib.get()] == ["first"]
    simple(ib, "second")
    assert [f.name for f in ib.get()] == ["first", "second"]


def test_failed_body_keeps_constants_and_functions(ib: ExecBuilder) -> None:
    with pytest.raises(ZeroDivisionError), ib.function("main", num_inputs=1):
        ib.emit_call("g", [ib.r(0)], ib.r(1))
        words = [ib.f("g"), ib.convert_constant(2.5)]
        ib.emit_call("h", words)
        raise ZeroDivisionError
    with ib.function("main", num_inputs=1):
        ib.emit_call("k", [ib.r(0), *words], ib.r(1))
        ib.emit_ret(ib.r(1))
    executable = ib.get()
    assert [f.name for f in executable] == ["main", "g", "k"]
    assert executable.constants == (2.5,)
    assert body(executable)[0] == ("call", (1, 2), ["r0", "f1", "c0"])


# Labels


def test_labels(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=2):
        top, orelse, done = ib.label("top"), ib.label(), ib.label("done")
        ib.bind(top)
        ib.emit_if(ib.r(0), orelse)
        ib.emit_call("f", [ib.r(1)], ib.r(2))
        ib.emit_goto(done)
        ib.bind(orelse)
        ib.emit_call("g", [ib.r(1)], ib.r(2))
        ib.emit_if(ib.r(2), done)
        ib.emit_goto(top)
        ib.bind(done)
        ib.emit_ret(ib.r(2))
    assert [(name, fields[-1]) for name, fields, _ in body(ib.get()) if name != "call"] == [
        ("if", 3),
        ("goto", 4),
        ("if", 2),
        ("goto", -5),
        ("ret", 2),
    ]


def test_if_to_an_earlier_label(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=1):
        top = ib.label()
        ib.bind(top)
        ib.emit_call("f", [ib.r(0)], ib.r(1))
        ib.emit_if(ib.r(1), top)
        ib.emit_ret(ib.r(1))
    assert [(name, fields[-1]) for name, fields, _ in body(ib.get())] == [
        ("call", 1),
        ("if", 2),  # false: skips the next instruction
        ("goto", 2),
        ("goto", -3),
        ("ret", 1),
    ]


def test_if_that_skips_nothing(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=1):
        after = ib.label()
        ib.emit_if(ib.r(0), after)
        ib.bind(after)
        ib.emit_goto(here := ib.label())
        ib.bind(here)
        ib.emit_ret(ib.r(0))
    assert [(name, fields[-1]) for name, fields, _ in body(ib.get())] == [
        ("if", 2),
        ("goto", 1),
        ("goto", 1),
        ("ret", 0),
    ]


def test_rules_of_labels(ib: ExecBuilder) -> None:
    message = "'main', pc 0: jump to label 'out', which is never bound"
    with pytest.raises(InternalError, match=message), ib.function("main", num_inputs=1):
        ib.emit_goto(ib.label("out"))
        ib.emit_ret(ib.r(0))
    message = "'main', pc 1: expected an instruction after label #0"
    with pytest.raises(InternalError, match=message), ib.function("main", num_inputs=1):
        ib.emit_goto(end := ib.label())
        ib.bind(end)
    with function(ib):
        twice = ib.label("twice")
        ib.bind(twice)
        with pytest.raises(InternalError, match="label 'twice' is bound already, at pc 0"):
            ib.bind(twice)
        with pytest.raises(InternalError, match="goto: expected an offset other than 0"):
            ib.emit_goto(twice)
    with function(ib, "next"):
        message = (
            "'next', pc 0: expected a label of this function, got label 'twice' of function 'main'"
        )
        for use in (ib.bind, ib.emit_goto, lambda label: ib.emit_if(ib.r(0), label)):
            with pytest.raises(InternalError, match=message):
                use(twice)
    other = ExecBuilder()
    with function(other), function(ib):
        label = other.label()
        with pytest.raises(InternalError, match="expected a label of this function"):
            ib.bind(label)


def test_unused_labels_are_harmless(ib: ExecBuilder) -> None:
    with ib.function("main", num_inputs=1):
        ib.label()
        bound = ib.label()
        ib.emit_ret(ib.r(0))
        ib.bind(bound)
    assert len(ib.get()) == 1


# Several builders


def test_builders_do_not_share_an_open_function() -> None:
    a, b = ExecBuilder(), ExecBuilder()
    with a.function("a", num_inputs=1):
        with pytest.raises(ValueError, match="expected an open function"):
            b.emit_ret(b.r(0))
        with b.function("b", num_inputs=1):
            a.emit_call("f", [a.r(0)], a.r(1))
            b.emit_ret(b.r(0))
        a.emit_ret(a.r(1))
    assert [len(x.get()) for x in (a, b)] == [2, 1]


def test_builders_in_threads() -> None:
    def build(n: int, pause: Callable[[], Any]) -> VMExecutable:
        ib = ExecBuilder()
        for name in ("f", "g"):
            with ib.function(name, num_inputs=1):
                for i in range(50):
                    ib.emit_call(f"k{n}", [ib.r(i), ib.convert_constant(float(i * n))], ib.r(i + 1))
                    pause()
                ib.emit_ret(ib.r(50))
        return ib.get()

    barrier = threading.Barrier(4)
    made: dict[int, VMExecutable] = {}

    def work(n: int) -> None:
        made[n] = build(n, barrier.wait)

    run_in_threads(work, 4)
    assert made == {n: build(n, lambda: None) for n in range(4)}


# Against TVM's builder


def by_tvm(program: Callable[[Any], None], tmp_path: Path) -> tuple[VMExecutable, str, str]:
    """Return the executable of TVM's builder, its listing and its statistics."""
    from tvm import relax

    builder = relax.ExecBuilder()
    program(builder)
    executable = builder.get()
    path = tmp_path / "x.vmexec"
    executable.mod.write_to_file(str(path), "")
    return binary.loads(path.read_bytes()), executable.as_text(), executable.stats()


def by_us(program: Callable[[Any], None]) -> VMExecutable:
    builder = ExecBuilder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxVMWarning)  # about unused inputs; TVM logs a line
        program(builder)
    return builder.get()


def _straight(ib: Any) -> None:
    with ib.function("main", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("test.add", args=[ib.r(0), ib.r(1)], dst=ib.r(10))
        ib.emit_call(
            "test.mul", [ib.r(10), ib.imm(-3), ib.c(0), ib.void_arg(), ib.vm_state()], ib.r(4)
        )
        ib.convert_constant("early")
        ib.emit_call("test.print", args=[ib.r(4)])
        ib.emit_ret(ib.r(4))


def _branches(ib: Any) -> None:
    with ib.function("main", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("f", [ib.r(1)], ib.r(9))
        ib.emit_goto(2)
        ib.emit_call("f", [ib.r(2)], ib.r(9))
        ib.emit_call("f", [ib.r(9)], ib.r(0))
        ib.emit_call("f", [], ib.r(7))
        ib.emit_goto(-6)
        ib.emit_ret(ib.void_arg())


def _constants(ib: Any) -> None:
    with ib.function("main", num_inputs=0):
        words = [
            ib.convert_constant(v)
            for v in (1, -(1 << 55), "s", "s", "", "x" * 40, 1 << 60, (1 << 55) - 1)
        ]
        ib.emit_call("f", [*words, (1, 2), (2**40,), (1, 2)], ib.r(0))
        ib.emit_ret(ib.r(0))


def _table(ib: Any) -> None:
    ib.declare_function("late", 1)
    ib.declare_function("kernel", 2)
    with ib.function("first", num_inputs=1):
        ib.emit_call("late", [ib.f("first"), ib.f("late"), ib.r(0)], ib.r(1))
        ib.emit_call("kernel", [ib.r(1)])
        ib.emit_call("packed", [ib.r(1), ib.f("kernel")], ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("late", num_inputs=3):
        ib.emit_call("packed2", [ib.r(2)], ib.r(3))
        ib.emit_ret(ib.r(3))


def _many_registers(ib: Any) -> None:
    with ib.function("main", num_inputs=4):
        for i in range(60):
            ib.emit_call("f", [ib.r(i % 4), ib.r(1000 - i + 1) if i else ib.r(0)], ib.r(1000 - i))
        for i in range(60):
            ib.emit_call("f", [ib.r(1000 - i)], ib.r(i * 7 % 4))
        ib.emit_ret(ib.r(3))


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda ib: ib.emit_goto(3), r"'f', pc 1: jump by 3 instructions: expected at most 2, to"),
        (lambda ib: ib.emit_if(ib.r(0), 7), r"pc 1: jump by 7 instructions: expected at most 2"),
        (lambda ib: ib.emit_goto(-2), r"pc 1: goto: expected an offset of at least -1, the start"),
        (lambda ib: ib.emit_if(ib.r(0), -2), r"pc 1: if: expected an offset of at least 2, got -2"),
    ],
)
def test_jumps_stay_in_the_function(emit: Callable[[Any], None], message: str) -> None:
    builder = ExecBuilder()
    with (
        pytest.raises(InternalError, match=message),
        builder.function("f", num_inputs=1),
    ):
        builder.emit_call("g", [builder.r(0)])
        emit(builder)
        builder.emit_call("g", [builder.r(0)])
        builder.emit_ret(builder.r(0))


@pytest.mark.parametrize(
    "emit",
    [lambda ib: ib.emit_call("g", []), lambda ib: ib.emit_if(ib.r(0), 2)],
    ids=["call", "if"],
)
def test_control_does_not_leave_a_function_at_its_end(emit: Callable[[Any], None]) -> None:
    builder = ExecBuilder()
    with (
        pytest.raises(InternalError, match=r"'f', pc [01]: .*(ret or goto|expected at most)"),
        builder.function("f", num_inputs=1),
    ):
        emit(builder)


@pytest.mark.parametrize(
    "program", [_straight, _branches, _constants, _table, _many_registers, lambda ib: None]
)
def test_same_as_tvm(program: Callable[[Any], None], tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    theirs, text, stats = by_tvm(program, tmp_path)
    ours = by_us(program)
    assert ours == theirs
    assert ours.as_text() == text
    assert ours.stats() == stats


def test_same_constants_as_tvm(tmp_path: Path) -> None:
    tvm = pytest.importorskip("tvm")
    arrays = [
        np.arange(6, dtype="int32").reshape(2, 3),
        np.array(3.5, "float32"),
        np.zeros((0, 2)),
        np.array([True, False]),
    ]

    def program(
        tensor: Callable[[np.ndarray], Any], dtype: Callable[[str], Any]
    ) -> Callable[[Any], None]:
        def emit(ib: Any) -> None:
            with ib.function("main", num_inputs=0):
                ib.emit_call("f", [tensor(a) for a in arrays], ib.r(0))
                ib.emit_call(
                    "f", [*(tensor(a.copy()) for a in arrays), dtype("int8"), dtype("float64")]
                )
                ib.emit_ret(ib.r(0))

        return emit

    theirs, text, stats = by_tvm(program(tvm.runtime.tensor, tvm.DataType), tmp_path)
    ours = by_us(program(np.asarray, np.dtype))
    assert ours == theirs
    assert (ours.as_text(), ours.stats()) == (text, stats)


REGISTERS = st.sampled_from([*range(6), 50, 1 << 40])
Emission = tuple[Any, ...]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, int, list[Emission]]]]:
    """String constants, and functions as (name, number of inputs, method and operands of each
    instruction).  One in three is *wild*: its operands may break the rules that TVM checks."""
    constants = draw(st.lists(st.text(max_size=3), max_size=3, unique=True))
    wild = draw(st.integers(0, 2)) == 2
    functions: list[tuple[str, int, list[Emission]]] = []
    for name in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=not wild)):
        num_inputs = draw(st.integers(0, 3))
        # A name that is called before its definition stays packed in TVM.
        callees = ["f", "vm.builtin.copy", name, *(known for known, _, _ in functions)]
        written = set(range(num_inputs))
        emissions: list[Emission] = []
        for _ in range(draw(st.integers(0 if wild else 1, 8))):
            emission = _emission(draw, callees, written, len(constants), wild, len(emissions))
            emissions.append(emission)
            if emission[0] == "emit_call" and emission[3] not in (None, isa.VOID_REGISTER):
                written.add(emission[3])
        # TVM takes functions that control leaves at the end, which the builder refuses.
        emissions += [("emit_ret", isa.VOID_REGISTER)] * (4 * bool(emissions))
        functions.append((name, num_inputs, emissions))
    return constants, functions


def _emission(
    draw: st.DrawFn, callees: list[str], written: set[int], num_constants: int, wild: bool, pc: int
) -> Emission:
    readable = REGISTERS if wild else st.sampled_from(sorted(written)) if written else st.nothing()
    immediates = st.integers(-BIG, BIG).map(lambda v: isa.encode_arg(isa.ArgKind.IMMEDIATE, v))
    pool = st.integers(0, num_constants - 1 + wild)
    words = st.one_of(
        readable,
        st.sampled_from([isa.VOID_REGISTER, isa.VM_REGISTER]),
        immediates,
        pool.map(lambda i: isa.encode_arg(isa.ArgKind.CONSTANT, i))
        if num_constants
        else st.nothing(),
        st.integers(0, 3 if wild else 0).map(lambda i: isa.encode_arg(isa.ArgKind.FUNCTION, i)),
    )
    results = st.one_of(readable, st.just(isa.VOID_REGISTER), *([immediates] if wild else []))
    kinds = ["emit_call"] * 3 + ["emit_ret", "emit_goto"] + ["emit_if"] * (wild or bool(written))
    method = draw(st.sampled_from(kinds))
    if method == "emit_call":
        target = draw(REGISTERS | st.sampled_from([None, isa.VOID_REGISTER]))
        return method, draw(st.sampled_from(callees)), draw(st.lists(words, max_size=4)), target
    if method == "emit_ret":
        return method, draw(results)
    offsets = st.integers(max(-3, -pc), 4).filter(lambda n: wild or n > 1)
    return (
        (method, draw(offsets))
        if method == "emit_goto"
        else (method, draw(readable), draw(offsets))
    )


@given(drawn=programs())
def test_random_programs_same_as_tvm(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    """Equal words and text, or an error of the same class."""
    pytest.importorskip("tvm")
    constants, functions = drawn

    def program(ib: Any) -> None:
        for constant in constants:
            ib.convert_constant(constant)
        for name, num_inputs, emissions in functions:
            with ib.function(name, num_inputs):
                for method, *operands in emissions:
                    getattr(ib, method)(*operands)

    def outcome(build: Callable[[], Any]) -> Any:
        try:
            return build()
        except Exception as error:
            return type(error).__name__

    theirs = outcome(lambda: by_tvm(program, tmp_path_factory.getbasetemp()))
    ours = outcome(lambda: by_us(program))
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
    else:
        assert (ours, ours.as_text()) == theirs[:2]


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def test_constants_over_memory_that_others_write_are_copied(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(8))
    room = bytearray(8)
    own = np.zeros(2, np.float32)
    written = [
        _read_only(np.frombuffer(room, np.float32)),
        _read_only(np.frombuffer(memoryview(room), np.float32)),
        _read_only(own[:]),
        _read_only(np.from_dlpack(own)),
        _read_only(np.memmap(path, np.float32, "r+")),
    ]
    kept = [
        np.frombuffer(bytes(8), np.float32),
        np.frombuffer(memoryview(bytes(8)), np.float32),
        np.memmap(path, np.float32, "r"),
        _read_only(np.zeros(2, np.float32))[1:],
    ]
    for array, is_kept in [(x, False) for x in written] + [(x, True) for x in kept]:
        builder = ExecBuilder()
        with builder.function("main"):
            word = builder.convert_constant(array)
            builder.emit_call("vm.builtin.copy", [word], dst=builder.r(0))
            builder.emit_ret(builder.r(0))
        (constant,) = builder.get().constants
        assert np.shares_memory(constant, array) == is_kept


def test_a_constant_of_a_program_is_copied_once() -> None:
    weight = np.ones((64, 64), np.float32)

    def built(value: Any) -> tuple[Any, Any]:
        x = relaxvm.ir.Var("x", relaxvm.ir.TensorType([64], "float32"))
        made = relaxvm.ir.const(value)
        bb = relaxvm.ir.BlockBuilder()
        with bb.function("main", [x]), bb.dataflow():
            bb.emit_func_output(bb.emit_output(relaxvm.op.add(x, made)))
        executable = relaxvm.build(bb.finalize())
        (found,) = [c for c in executable.constants if isinstance(c, np.ndarray) and c.size > 64]
        return made.data, found

    data, found = built(weight)
    assert np.shares_memory(data, found)
    assert not np.shares_memory(data, weight)
    assert not data.flags.writeable
    weight.flags.writeable = False
    data, found = built(weight)
    assert np.shares_memory(data, weight)
    assert np.shares_memory(found, weight)


def test_a_constant_that_does_not_fit_its_data_type() -> None:
    with pytest.raises(OverflowError, match="1099511627776 out of bounds for int32"):
        relaxvm.ir.const(2**40)
    assert relaxvm.ir.const(2**40, "int64").data == 2**40
