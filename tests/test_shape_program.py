"""Shape programs: their encoding, their meaning, and their execution by the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import ExecBuilder, Shape, VirtualMachine
from relaxvm.builtins.shape import compute_shape
from relaxvm.errors import InternalError, VerifyError
from relaxvm.executable import shape_program
from relaxvm.executable.formats import binary
from relaxvm.executable.shape_program import (
    BY_NAME,
    OPS,
    Step,
    decode,
    encode,
    evaluate,
    problem,
    text,
)

NAME = "relaxvm.builtin.compute_shape"
LOW, HIGH = -(1 << 63), (1 << 63) - 1

EDGES = st.sampled_from([0, 1, -1, 2, 3, -3, 7, LOW, LOW + 1, HIGH, HIGH - 1, 1 << 31, 1 << 32])
VALUES = EDGES | st.integers(-50, 50) | st.integers(LOW, HIGH)
SLOTS = 4


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> list[Step]:
    """Postfix code that computes one value."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            return [("const", draw(VALUES))]
        return [("load", draw(st.integers(0, SLOTS - 1)))]
    op = draw(st.sampled_from([op for op in OPS if op.compute is not None]))
    steps = [step for _ in range(op.pops) for step in draw(expressions(depth=depth - 1))]
    return [*steps, op.name]


@st.composite
def programs(draw: st.DrawFn) -> Shape:
    """Programs with some assignments to the slots of a small heap."""
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 4))):
        steps += [*draw(expressions()), ("store", draw(st.integers(0, SLOTS - 1)))]
    return encode(steps)


HEAPS = st.lists(VALUES, min_size=SLOTS, max_size=SLOTS)


# The encoding


def test_the_table() -> None:
    assert [op.code for op in OPS] == list(range(len(OPS)))
    assert len(BY_NAME) == len(OPS)


def test_words() -> None:
    program = encode([("load", 0), ("const", 4), "mul", ("store", 1)])
    assert program == Shape((1, 0, 0, 4, 5, 2, 1))
    assert encode([]) == Shape()


@given(programs())
def test_decode_undoes_encode(program: Shape) -> None:
    assert encode(decode(program)) == program
    assert problem(program) is None


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ([("const", -4), ("store", 1)], "h[1] = -4"),
        ([("load", 0), ("load", 1), "add", ("const", 2), "mul", ("store", 3)],
         "h[3] = (h[0] + h[1]) * 2"),
        ([("load", 0), ("load", 1), "min", ("const", 1), "sub", ("const", 8), "max", ("store", 0)],
         "h[0] = max(min(h[0], h[1]) - 1, 8)"),
        ([("load", 0), ("const", 3), "lt", "not", ("const", 1), ("const", 2), "select",
          ("store", 0), ("load", 0), ("store", 1)],
         "h[0] = select(not (h[0] < 3), 1, 2); h[1] = h[0]"),
    ],
)  # fmt: skip
def test_text(steps: list[Step], want: str) -> None:
    assert text(encode(steps)) == want


@given(programs(), HEAPS)
def test_the_text_is_python(program: Shape, heap: list[int]) -> None:
    """Without overflow and division by zero, the text has the same meaning as Python."""
    try:
        want = evaluate(program, heap)
    except (OverflowError, ZeroDivisionError):
        return
    slots: dict[int, Any] = dict(enumerate(heap))
    scope = {"h": slots, "select": lambda cond, a, b: a if cond else b}
    for line in filter(None, text(program).split("; ")):
        target, _, value = line.partition(" = ")
        for word in (" and ", " or "):  # Python returns one of the operands
            if word in value:
                return
        exec(f"{target} = int({value})", scope)
    assert {slot: slots[slot] for slot in want} == want


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((20,), "word 0: expected an operation of 0 to 19, got 20"),
        ((-1,), "word 0: expected an operation of 0 to 19, got -1"),
        ((0,), "word 0: const: expected a value after it, got the end"),
        ((0, 1, 2), "word 2: store: expected a slot after it, got the end"),
        ((1, -1, 2, 0), r"word 1: load: expected a heap slot of 0 to 2\*\*31 - 1, got -1"),
        ((1, 0, 2, 1 << 31), r"word 3: store: expected a heap slot of 0 to 2\*\*31 - 1, got 2147"),
        ((2, 0), "word 0: store: expected 1 values on the stack, got 0"),
        ((1, 0, 3, 2, 0), "word 2: add: expected 2 values on the stack, got 1"),
        ((1, 0, 1, 0, 2, 0), "word 4: store: expected 1 value on the stack, got 2"),
        ((1, 0), "expected a store at the end, got 1 values on the stack"),
        ((1, 0, 0, 1, 19, 2, 0), "word 4: select: expected 3 values on the stack, got 2"),
    ],
)
def test_malformed_programs(words: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^shape program: {message}"):
        decode(words)
    with pytest.raises(InternalError, match=f"^compute_shape: program: {message}"):
        compute_shape(np.zeros(2, np.int64), Shape(words))
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call(NAME, [b.r(0), b.convert_constant(Shape(words))])
        b.emit_ret(b.r(0))
    with pytest.raises(VerifyError, match=f"compute_shape: program: {message}"):
        VirtualMachine(b.get())


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["dup"], "unknown operation 'dup', expected one of const, load"),
        (["load"], "load takes slot, got none"),
        ([("add", 1)], r"add takes no operand, got \[1\]"),
        ([("load", 0)], "expected a store at the end"),
    ],
)
def test_programs_that_cannot_be_encoded(steps: list[Step], message: str) -> None:
    with pytest.raises(ValueError, match=f"^shape program: {message}"):
        encode(steps)


# The meaning


def of(name: str, *values: int) -> int:
    """The result of an operation."""
    steps: list[Step] = [*(("const", value) for value in values), name, ("store", 0)]
    return evaluate(encode(steps), [0])[0]


@pytest.mark.parametrize(
    ("name", "values", "want"),
    [
        ("floordiv", (7, 2), 3), ("floordiv", (-7, 2), -4), ("floordiv", (7, -2), -4),
        ("floordiv", (-7, -2), 3), ("floormod", (7, 3), 1), ("floormod", (-7, 3), 2),
        ("floormod", (7, -3), -2), ("floormod", (-7, -3), -1), ("floormod", (LOW, -1), 0),
        ("min", (2, -3), -3), ("max", (2, -3), 2), ("eq", (2, 2), 1), ("ne", (2, 2), 0),
        ("lt", (1, 2), 1), ("le", (2, 2), 1), ("gt", (1, 2), 0), ("ge", (1, 2), 0),
        ("and", (5, 0), 0), ("and", (5, -1), 1), ("or", (0, 0), 0), ("or", (0, 9), 1),
        ("not", (0,), 1), ("not", (-4,), 0), ("select", (3, 8, 9), 8), ("select", (0, 8, 9), 9),
        ("add", (HIGH - 1, 1), HIGH), ("sub", (LOW + 1, 1), LOW), ("mul", (LOW, 1), LOW),
    ],
)  # fmt: skip
def test_operations(name: str, values: tuple[int, ...], want: int) -> None:
    assert of(name, *values) == want


@pytest.mark.parametrize(
    ("name", "values"),
    [("add", (HIGH, 1)), ("sub", (LOW, 1)), ("mul", (LOW, -1)), ("mul", (1 << 32, 1 << 31)),
     ("floordiv", (LOW, -1))],
)  # fmt: skip
def test_overflow(name: str, values: tuple[int, ...]) -> None:
    with pytest.raises(OverflowError, match=f"^{name}: .* does not fit 64 bits"):
        of(name, *values)


@pytest.mark.parametrize(("name", "sign"), [("floordiv", "//"), ("floormod", "%")])
def test_division_by_zero(name: str, sign: str) -> None:
    with pytest.raises(ZeroDivisionError, match=f"^{name}: 5 {sign} 0, in h.0. = 5 {sign} 0$"):
        of(name, 5, 0)


def test_errors_name_the_assignment() -> None:
    program = encode([("load", 0), ("store", 1), ("const", 7), ("load", 2), ("const", 2), "sub",
                      "floordiv", ("store", 3), ("const", 1), ("store", 4)])  # fmt: skip
    with pytest.raises(ZeroDivisionError, match=r"7 // 0, in h\[3\] = 7 // \(h\[2\] - 2\)$"):
        evaluate(program, [1, 0, 2, 0, 0])


def test_assignments_take_effect_in_order() -> None:
    program = encode([("load", 0), ("const", 1), "add", ("store", 0), ("load", 0), ("store", 1)])
    assert evaluate(program, [4, 9]) == {0: 5, 1: 5}


# In a VM


def machine(program: Shape, optimize: bool = True) -> VirtualMachine:
    """``main(heap)`` runs the program and returns the heap."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call(NAME, [b.r(0), b.convert_constant(program)])
        b.emit_ret(b.r(0))
    return VirtualMachine(b.get(), optimize=optimize)


def outcome(program: Shape, heap: np.ndarray, optimize: bool) -> tuple[Any, list[int]]:
    """Return the class and message of the error, if any, and the contents of the heap."""
    error = None
    try:
        machine(program, optimize)["main"](heap)
    except (OverflowError, ZeroDivisionError, IndexError, ValueError, TypeError) as raised:
        error = (type(raised), str(raised))
    return error, heap.tolist()


@given(programs(), HEAPS)
def test_the_core_computes_the_same(program: Shape, values: list[int]) -> None:
    want_error, want = None, values.copy()
    try:
        for slot, value in evaluate(program, values).items():
            want[slot] = value
    except (OverflowError, ZeroDivisionError) as raised:
        want_error = (type(raised), f"compute_shape: {raised}")
    for optimize in (True, False):
        assert outcome(program, np.array(values), optimize) == (want_error, want)


def test_the_core_does_not_call_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is called only if the guard fails."""
    program = encode([("const", 6), ("load", 0), "floordiv", ("store", 1)])
    vm = machine(program)
    calls = []
    evaluated = shape_program.evaluate
    monkeypatch.setattr(shape_program, "evaluate", lambda *a: calls.append(a) or evaluated(*a))
    assert vm.main(np.array([2, 0])).tolist() == [2, 3]
    assert not calls
    with pytest.raises(ZeroDivisionError, match="compute_shape: floordiv: 6 // 0"):
        vm.main(np.array([0, 0]))
    assert len(calls) == 1


def test_nothing_is_assigned_when_a_later_step_fails() -> None:
    program = encode([("load", 0), ("const", 1), "add", ("store", 0), ("const", 5), ("store", 0),
                      ("const", 1), ("load", 1), "floordiv", ("store", 1)])  # fmt: skip
    for optimize in (True, False):
        error, heap = outcome(program, np.array([3, 0]), optimize)
        assert error is not None
        assert heap == [3, 0]


@pytest.mark.parametrize("depth", [8, 31, 32, 33, 100])
def test_deep_expressions(depth: int) -> None:
    program = encode([("load", 0)] * depth + ["add"] * (depth - 1) + [("store", 1)])
    for optimize in (True, False):
        assert outcome(program, np.array([3, 0]), optimize) == (None, [3, 3 * depth])


@pytest.mark.parametrize("count", [63, 64, 65, 200])
def test_many_assignments(count: int) -> None:
    program = encode([("load", 0), ("const", 1), "add", ("store", 0)] * count)
    for optimize in (True, False):
        assert outcome(program, np.array([3, 0]), optimize) == (None, [3 + count, 0])


def _frozen(heap: np.ndarray) -> np.ndarray:
    heap.flags.writeable = False
    return heap


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(2), lambda: np.arange(8)[::2], lambda: np.arange(2, dtype=">i8"),
        lambda: np.arange(1), lambda: np.arange(2, dtype=np.int32), lambda: np.zeros((2, 2), int),
        lambda: _frozen(np.arange(2)),
    ],
    ids=["plain", "strided", "swapped", "short", "int32", "2-d", "read-only"],
)  # fmt: skip
def test_heaps_of_any_kind(make: Any) -> None:
    program = encode([("const", 7), ("store", 0), ("const", 8), ("store", 1)])
    assert outcome(program, make(), True) == outcome(program, make(), False)


def test_wrong_heaps() -> None:
    program = encode([("const", 7), ("store", 1)])
    with pytest.raises(IndexError, match=r"compute_shape: store: heap slot 1: expected 0 to 0"):
        compute_shape(np.zeros(1, np.int64), program)
    with pytest.raises(TypeError, match=r"compute_shape: expected an int64 shape heap, got float"):
        compute_shape(np.zeros(2), program)
    with pytest.raises(TypeError, match=r"compute_shape: program: expected a Shape, got int"):
        compute_shape(np.zeros(2, np.int64), 1)


def test_a_program_known_only_at_run_time() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call(NAME, [b.r(0), b.r(1)])
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get())
    program = encode([("load", 1), ("store", 0)])
    assert vm.main(np.array([1, 2]), program).tolist() == [2, 2]
    with pytest.raises(InternalError, match="word 0: expected an operation"):
        vm.main(np.array([1, 2]), Shape((99,)))


def test_the_listing_shows_the_words() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call(NAME, [b.r(0), b.convert_constant(encode([("const", 7), ("store", 1)]))])
        b.emit_ret(b.r(0))
    executable = b.get()
    assert "shapetuple[0, 7, 2, 1]" in executable.stats()
    assert f"call  {NAME} in: %0, c[0]     dst: %void" in executable.as_text()
    assert binary.loads(executable.to_bytes()) == executable


def test_long_programs() -> None:
    """Those that a run makes are bounded, too."""
    words = (1, 0, 2, 0) * (1 << 14)
    assert len(decode(words)) == 1 << 15
    with pytest.raises(ValueError, match="expected at most 65,536 words, got 65,540"):
        decode((*words, 1, 0, 2, 0))
    compute_shape(np.zeros(2, np.int64), Shape(words))
    with pytest.raises(InternalError, match="expected at most 65,536 words, got 65,540"):
        compute_shape(np.zeros(2, np.int64), Shape((*words, 1, 0, 2, 0)))
