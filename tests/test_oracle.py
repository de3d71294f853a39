"""The oracle has the results of the corpus; the corpus and the strategies cover enough."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import isa
from relaxvm._core import QUICKENED
from relaxvm.executable import VMExecutable
from relaxvm.isa import ArgKind, FuncKind
from relaxvm.values import Shape, kind_of
from relaxvm.verify import verify

from .asm import Asm, Reg, r0, r1
from .corpus import CORPUS, KERNELS, Case, Run, all_runs, registry
from .oracle import Oracle, Outcome, OutOfFuel, aliases, assert_same_outcome, compare, meets, truth
from .strategies import Program, executables, programs

RUNS = [pytest.param(case, run, id=f"{case.name}-{i}") for i, (case, run) in enumerate(all_runs())]


@pytest.mark.parametrize(("case", "run"), RUNS)
def test_corpus_expectations(case: Case, run: Run) -> None:
    """Every call of the corpus has the expected result or error."""
    function = Oracle(case.executable, registry())[run.function]
    if run.error is not None:
        with pytest.raises(run.error) as caught:
            function(*run.args())
        assert run.match in str(caught.value)
        return
    got = function(*run.args())
    assert not meets(got, run.expected(run.args()))


# Coverage of the corpus


def test_corpus_is_large_and_reproducible() -> None:
    assert len(CORPUS) >= 50
    for case in CORPUS.values():
        assert case.build() == case.executable
        assert case.runs
        assert set(case.kernels) <= set(KERNELS)


@pytest.mark.parametrize("case", CORPUS.values(), ids=str)
def test_corpus_is_verified(case: Case) -> None:
    report = verify(case.executable, registry=registry())
    assert report.ok, str(report)


def test_corpus_covers_argument_kinds_in_every_position() -> None:
    seen = set()
    for case in CORPUS.values():
        for _, instr in case.executable.instructions():
            for i, arg in enumerate(instr.args):
                position = "first" if i == 0 else "last" if i == len(instr.args) - 1 else "middle"
                special = {isa.VOID_REGISTER: "void", isa.VM_REGISTER: "vm"}
                kind = special.get(arg.value, arg.kind) if arg.kind == 0 else arg.kind
                seen.add((kind, position))
    wanted = {(kind, position) for kind in (*ArgKind, "void", "vm")
              for position in ("first", "middle", "last")}  # fmt: skip
    assert wanted <= seen


def test_corpus_covers_constants_builtins_and_instructions() -> None:
    constants, callees, opcodes = set(), set(), set()
    for case in CORPUS.values():
        executable = case.executable
        constants |= {kind_of(value) for value in executable.constants}
        callees |= {f.name for f in executable.functions if f.kind == FuncKind.PACKED}
        opcodes |= {instr.op.code for _, instr in executable.instructions()}
    assert constants == {"tensor", "shape", "str", "int", "float", "dtype", "bool", "none", "adt"}
    assert callees >= QUICKENED
    assert opcodes == set(isa.Opcode)


# The strategies


@given(executables(savable=False))
def test_any_structure_is_verified(executable: VMExecutable) -> None:
    report = verify(executable, registry=registry())
    assert report.ok, str(report)


@given(programs())
def test_programs_are_verified(program: Program) -> None:
    report = verify(program.executable, registry=registry())
    assert report.ok, str(report)


def test_programs_do_all_sorts_of_things() -> None:
    """Random programs mostly succeed, fail in many ways, and use every quickened builtin."""
    endings: Counter[str] = Counter()
    callees: Counter[str] = Counter()

    @settings(max_examples=400)
    @given(programs())
    def collect(program: Program) -> None:
        callees.update(f.name for f in program.executable.functions)
        oracle = Oracle(program.executable, registry(), fuel=20_000)
        try:
            outcome = Outcome.of(oracle["main"], program.args())
        except OutOfFuel:
            endings["out of fuel"] += 1
            return
        endings["result" if outcome.error is None else type(outcome.error).__name__] += 1

    collect()
    total = sum(endings.values())
    assert endings["result"] > total / 3, endings
    assert endings["out of fuel"] < total / 20, endings
    assert len(endings) > 5, endings
    assert set(callees) >= QUICKENED


# The oracle itself


def _executable(body: str) -> VMExecutable:
    asm = Asm()
    with asm.func("main", 1):
        if body == "unwritten":
            skip = asm.label()
            asm.iff(r0, skip)
            asm.op(r1, ".copy", 1)
            asm.bind(skip)
        asm.ret(r1 if body == "unwritten" else r0)
    return asm.get()


def test_registers_start_as_none() -> None:
    main = Oracle(_executable("unwritten"), registry())["main"]
    assert main(0) is None
    assert main(1) == 1


def test_entry_converts_and_counts_arguments() -> None:
    main = Oracle(_executable("identity"), registry())["main"]
    assert main([1, (2,)]) == (1, (2,))
    assert type(main(np.int64(3))) is int
    with pytest.raises(RuntimeError, match=r"main: expects 1 argument \(p0\), got 2"):
        main(1, 2)


def test_fuel_ends_endless_programs() -> None:
    asm = Asm()
    with asm.func("main"):
        head = asm.label()
        asm.bind(head)
        asm.op(Reg(0), ".null_value")
        asm.go(head)
    with pytest.raises(OutOfFuel):
        Oracle(asm.get(), registry(), fuel=1000)["main"]()


@pytest.mark.parametrize("value", [1, -1, True, 2**70, np.bool_(True), np.int8(3)])
def test_truth(value: object) -> None:
    assert truth(value) is True
    assert truth(type(value)(0)) is False  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [None, 1.0, "x", np.asarray(1), (1,), Shape((1,))])
def test_truth_of_others(value: object) -> None:
    with pytest.raises(TypeError, match=r"read_if_cond"):
        truth(value)


# The comparison of outcomes

X = np.arange(3, dtype=np.float32)
DIFFERENT = [
    (1, True), (1, 1.0), (0.0, -0.0), (X, X.astype(np.float64)), (X, X + 1), (X, X[:2]),
    ((1, 2), Shape((1, 2))), ((1,), (1, 2)), ((1, X), (1, X + 1)), ("a", "b"), (None, 0),
    (np.dtype("int32"), np.dtype("int64")), (X, X.tolist()),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_compare_finds_differences(a: object, b: object) -> None:
    assert compare(a, b)
    assert compare(b, a)
    assert not compare(a, a)


@given(st.floats(), st.integers())
def test_compare_accepts_equal(x: float, i: int) -> None:
    assert not compare((x, [i], Shape((2,))), (x, [i], Shape((2,))))


def test_compare_sees_writability() -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    assert "writeable" in compare(frozen, X.copy())


def test_outcomes_differ_by_aliasing() -> None:
    x = X.copy()
    same = Outcome((x,), result=x)
    view = Outcome((x,), result=x[:])
    copy = Outcome((x,), result=x.copy())
    assert aliases(same) == {(0, 1, "same object")}
    assert aliases(view) == {(0, 1, "shared memory")}
    assert aliases(copy) == set()
    assert_same_outcome(same, same)
    for other in (view, copy):
        with pytest.raises(AssertionError, match="share memory"):
            assert_same_outcome(same, other)


def test_outcomes_differ_by_errors() -> None:
    error = Outcome((), error=ValueError("a"))
    assert_same_outcome(error, Outcome((), error=ValueError("a")))
    others = [Outcome((), error=ValueError("b")), Outcome((), error=TypeError("a")), Outcome(())]
    for other in others:
        with pytest.raises(AssertionError):
            assert_same_outcome(error, other)
        with pytest.raises(AssertionError):
            assert_same_outcome(other, error)
