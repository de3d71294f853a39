"""Differential tests: the oracle, the core in all its modes, and apache-tvm.

Results, errors with their messages, changes to the arguments, sharing of arrays, and reference
counts must be the same for every program of the corpus and for random ones.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from relaxvm import Limits, VirtualMachine
from relaxvm.executable import VMExecutable
from relaxvm.executable.formats import binary
from relaxvm.isa import FuncKind
from relaxvm.native.vm_code import compile_program
from relaxvm.values import Shape

from .asm import VM, Asm, Func, r0, r1, r2, r3, r4
from .corpus import CORPUS, Case, Run, registry
from .oracle import Oracle, Outcome, OutOfFuel, assert_same_outcome, leaves, meets
from .strategies import Program, programs

pytestmark = pytest.mark.filterwarnings("ignore::relaxvm.errors.RelaxVMWarning")

Make = Callable[[VMExecutable], VirtualMachine]


def _hooked(executable: VMExecutable) -> VirtualMachine:
    vm = VirtualMachine(executable, functions=registry())
    vm.set_instrument(lambda *args: None)
    return vm


def _compiled(executable: VMExecutable, **options: Any) -> VirtualMachine:
    """Native code for all functions, also for those that do not gain by it."""
    vm = VirtualMachine(executable, functions=registry(), **options)
    image = vm._translated_for_entries()
    indices = [i for i, info in enumerate(executable.functions) if info.kind == FuncKind.BYTECODE]
    program = compile_program(image, indices)
    if program is not None:  # None for a function that is too long
        program.attach(image)
        vm._use(image)
    return vm


MODES: dict[str, Make] = {
    "optimized": lambda ex: VirtualMachine(ex, functions=registry()),
    "plain": lambda ex: VirtualMachine(ex, functions=registry(), optimize=False),
    "naive memory": lambda ex: VirtualMachine(ex, memory_cfg="naive", functions=registry()),
    "limited": lambda ex: VirtualMachine(
        ex, functions=registry(), limits=Limits(fuel=10**7, wall_time=600)
    ),
    "limited plain": lambda ex: VirtualMachine(
        ex, functions=registry(), limits=Limits(fuel=10_000_000), optimize=False
    ),
    "instrumented": _hooked,
    "compiled": _compiled,
    "compiled limited": lambda ex: _compiled(ex, limits=Limits(fuel=10**7, wall_time=600)),
}
"""Ways of running that must not differ in what they do."""

cases = pytest.mark.parametrize("case", CORPUS.values(), ids=str)
modes = pytest.mark.parametrize("mode", MODES)


def oracle_outcome(case: Case, run: Run) -> Outcome:
    return Outcome.of(Oracle(case.executable, registry())[run.function], run.args())


# The corpus


@modes
@cases
def test_corpus(case: Case, mode: str) -> None:
    """Equal to the oracle, with cold and with warm caches, with all earlier results alive."""
    vm = MODES[mode](case.executable)
    wanted = [oracle_outcome(case, run) for run in case.runs]
    kept: list[tuple[Outcome, Outcome]] = []
    for _ in range(3):
        for run, want in zip(case.runs, wanted, strict=True):
            got = Outcome.of(vm[run.function], run.args())
            assert_same_outcome(got, want)
            kept.append((got, want))
    for got, want in kept:  # later runs did not change them
        assert_same_outcome(got, want)


@modes
@cases
def test_outputs_never_alias(case: Case, mode: str) -> None:
    """The results of different calls share no memory, except constants, and writing to one does not
    change later results."""
    vm = MODES[mode](case.executable)
    for run in case.runs:
        want = oracle_outcome(case, run)
        if want.error is not None:
            continue
        outcomes = [Outcome.of(vm[run.function], run.args()) for _ in range(3)]
        arrays = [[a for a in leaves(o.result) if a.flags.writeable] for o in outcomes]
        for i, ours in enumerate(arrays):
            for theirs in arrays[:i]:
                assert not any(np.may_share_memory(a, b) for a in ours for b in theirs)
        for array in arrays[0]:
            array[...] = 99
        for array in arrays[1]:
            array[...] = 98
        assert_same_outcome(outcomes[2], want)
        outcomes[0] = Outcome(())
        assert_same_outcome(Outcome.of(vm[run.function], run.args()), want)


def _counts(values: tuple[Any, ...]) -> list[int]:
    return [sys.getrefcount(obj) for obj in _objects(values)]


def _objects(value: Any) -> Iterator[Any]:
    """The objects in the arguments whose references can be counted."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        if value:
            yield value
        for item in value:
            yield from _objects(item)


@pytest.mark.parametrize("mode", ["optimized", "plain", "limited", "instrumented", "compiled"])
@cases
def test_reference_counts(case: Case, mode: str) -> None:
    """A run keeps no references: while its result is alive the counts are those of the oracle, and
    afterwards those before the run, on error paths too."""
    vm = MODES[mode](case.executable)
    for run in case.runs:
        expected = _counts_after_oracle(case, run)
        for _ in range(3):
            args = run.args()
            before = _counts(args)
            outcome = Outcome.of(vm[run.function], args)
            alive = _counts(args)
            assert alive == expected
            del outcome
            gc.collect(0)
            assert _counts(args) == before


def _counts_after_oracle(case: Case, run: Run) -> list[int]:
    args = run.args()
    outcome = Outcome.of(Oracle(case.executable, registry())[run.function], args)
    gc.collect(0)
    counts = _counts(args)
    del outcome
    return counts


@pytest.mark.parametrize("mode", ["optimized", "plain", "limited", "instrumented", "compiled"])
def test_no_memory_is_leaked(mode: str) -> None:
    """Running the corpus repeatedly does not leak memory."""
    machines = [(MODES[mode](case.executable), case) for case in CORPUS.values()]

    def everything() -> None:
        for vm, case in machines:
            for run in case.runs:
                if case.name not in SLOW:
                    Outcome.of(vm[run.function], run.args())

    # What caches keep of the first rounds is no leak: one of the later rounds needs nothing more.
    blocks, nones = [], []
    for _ in range(7):
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        nones.append(sys.getrefcount(None))
        for _ in range(5):
            everything()
    assert min(after - before for before, after in itertools.pairwise(blocks)) < 20, blocks
    assert abs(nones[-1] - nones[1]) < 100, nones


SLOW = {"loop", "deep_recursion", "recursion"}
"""Cases that take long and whose instructions other cases have as well."""


# Values that only kernels can return


@pytest.mark.parametrize("mode", ["optimized", "plain"])
@pytest.mark.parametrize(
    "value",
    [[1, 2], (1, [2]), (np.float64(2.5),), Shape((4,)), {"a": 1}, b"raw", object, 2**80,
     float("nan"), np.float32(1.5), np.int64(7), np.bool_(True), np.arange(3, dtype=">i4"),
     np.arange(6).reshape(2, 3)[:, ::2]],
    ids=repr,
)  # fmt: skip
def test_odd_kernel_results(value: Any, mode: str) -> None:
    """Unusual results of kernels pass correctly through registers, tuples, calls and closures."""
    asm = Asm()
    with asm.func("pair", 2):
        asm.op(r2, ".make_tuple", r0, r1)
        asm.ret(r2)
    with asm.func("main"):
        asm.op(r1, "make")
        asm.op(r2, "pair", r1, r1)
        asm.op(r3, ".make_closure", Func("pair"), r1)
        asm.op(r3, ".invoke_closure", VM, r3, r1)
        asm.op(r4, ".make_tuple", r1, r2, r3)
        asm.ret(r4)
    with asm.func("condition"):
        otherwise = asm.label()
        asm.op(r0, "make")
        asm.op(r1, ".read_if_cond", r0)
        asm.iff(r1, otherwise)
        asm.ret(r1)
        asm.bind(otherwise)
        asm.op(r2, ".copy", 2)
        asm.ret(r2)
    for name, builtin in (("shape", ".shape_of"), ("first", ".tuple_getitem")):
        with asm.func(name):
            asm.op(r0, "make")
            asm.op(r1, builtin, r0, *([0] if name == "first" else []))
            asm.ret(r1)
    with asm.func("branch"):
        otherwise = asm.label()
        asm.op(r0, "make")
        asm.iff(r0, otherwise)
        asm.op(r1, ".copy", 1)
        asm.ret(r1)
        asm.bind(otherwise)
        asm.op(r1, ".copy", 2)
        asm.ret(r1)
    executable = asm.get()
    functions = registry()
    functions.register("make", lambda: value)
    vm = VirtualMachine(executable, functions=functions, optimize=mode == "optimized")
    for name in ("main", "condition", "shape", "first", "branch"):
        want = Outcome.of(Oracle(executable, functions)[name], ())
        for _ in range(2):
            got = Outcome.of(vm[name], ())
            assert (got.error is None) == (want.error is None), (name, got.describe())
            if want.error is None:
                assert repr(got.result) == repr(want.result), name
            else:
                assert got.describe() == want.describe(), name


# Random programs


@settings(max_examples=max(150, settings.default.max_examples))
@given(programs())
def test_random_programs(program: Program) -> None:
    limits = Limits(alloc_bytes=1 << 20)
    oracle = Oracle(program.executable, registry(), fuel=20_000, limits=limits)
    try:
        want = Outcome.of(oracle["main"], program.args())
    except OutOfFuel:
        assume(False)
    assume(not isinstance(want.error, RecursionError))
    for optimize in (True, False):
        for fuel in (None, 1_000_000):
            vm = VirtualMachine(
                program.executable, functions=registry(), optimize=optimize,
                limits=limits.but(fuel=fuel),
            )  # fmt: skip
            kept = [Outcome.of(vm["main"], program.args()) for _ in range(3)]
            vm.set_instrument(lambda *args: None)
            kept.append(Outcome.of(vm["main"], program.args()))
            for got in kept:
                assert_same_outcome(got, want)


@settings(max_examples=max(15, settings.default.max_examples // 10))
@given(programs())
def test_random_programs_compiled(program: Program) -> None:
    """As in bytecode, with the notes on errors."""
    limits = Limits(alloc_bytes=1 << 20, fuel=50_000)
    outcomes = []
    for make in (partial(VirtualMachine, functions=registry()), _compiled):
        vm = make(program.executable, limits=limits)
        outcomes.append([Outcome.of(vm["main"], program.args()) for _ in range(2)])
    for want, got in zip(*outcomes, strict=True):
        assert_same_outcome(got, want)
        assert _notes(got) == _notes(want)


def _notes(outcome: Outcome) -> list[str]:
    return getattr(outcome.error, "__notes__", [])


# apache-tvm


@pytest.mark.parametrize(
    "case", [c for c in CORPUS.values() if c.savable and c.name != "data_types"], ids=str
)
def test_corpus_on_tvm(case: Case) -> None:
    """The same bytes have the same results on TVM's VM; the corpus explains the exceptions."""
    pytest.importorskip("tvm")
    from . import tvm_side

    machine = tvm_side.load(binary.dumps(case.executable))
    for run in case.runs:
        if run.no_tvm:
            continue
        if run.error is not None:
            with pytest.raises(tvm_side.error_like(run.error)):
                tvm_side.call(machine, run.function, run.args())
            continue
        got = tvm_side.call(machine, run.function, run.args())
        assert not meets(got, run.expected(run.args()))
        ours = VirtualMachine(case.executable, functions=registry())[run.function](*run.args())
        assert not meets(_as_tuples(ours), _as_tuples(got))


def test_tvm_names_the_builtins_of_data_types_that_it_lacks() -> None:
    pytest.importorskip("tvm")
    from . import tvm_side

    with pytest.raises(Exception, match=r"relaxvm\.builtin\.(make_adt|\w+_tag|adt_field|tag_is)"):
        tvm_side.load(binary.dumps(CORPUS["data_types"].executable))


def _as_tuples(value: Any) -> Any:
    """Convert shapes to tuples: an array of ints in TVM can be either."""
    if isinstance(value, Shape):
        return tuple(value)
    return tuple(map(_as_tuples, value)) if isinstance(value, tuple) else value


def test_scalars_of_numpy() -> None:
    """They are tensors for functions that expect a tensor, and numbers otherwise."""
    for checks in (True, False):
        asm = Asm()
        with asm.func("main", 1):
            if checks:
                asm.op(r1, ".shape_of", r0)
            asm.ret(r0)
        executable = asm.get()
        inputs = (np.float32(2),)
        want = Outcome.of(Oracle(executable, registry())["main"], inputs)
        assert isinstance(want.result, np.ndarray if checks else float)
        for make in MODES.values():
            assert_same_outcome(Outcome.of(make(executable)["main"], inputs), want)
