"""Registers of the source that share registers of the frame."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm import Limits, VirtualMachine, VMExecutable
from relaxvm.core.operations import REWRITINGS
from relaxvm.core.translated import Place
from relaxvm.errors import LimitError

from .asm import Asm, Reg, r0, r1, r2, r3, r4
from .kernels import registry

ALL = {rewriting.name for rewriting in REWRITINGS}
WITHOUT = ALL - {"registers"}


def assemble(emit: Callable[[Asm], None]) -> VMExecutable:
    asm = Asm()
    emit(asm)
    return asm.get()


def places(executable: VMExecutable, **options: Any) -> dict[int, Place]:
    vm = VirtualMachine(executable, functions=registry(), **options)
    return dict(vm.functions["main"].translated.places)


def frame_size(executable: VMExecutable, **options: Any) -> int:
    vm = VirtualMachine(executable, functions=registry(), **options)
    return vm.functions["main"].translated.frame_size


# What shares


def chain(length: int) -> VMExecutable:
    def emit(a: Asm) -> None:
        with a.func("main", 2):
            for i in range(length):
                a.op(Reg(i + 2), "add", Reg(i + 1 if i else 0), r1)
            a.ret(Reg(length + 1))

    return assemble(emit)


@pytest.mark.parametrize("length", [3, 600, 20_000])
def test_a_chain_takes_three_places(length: int) -> None:
    executable = chain(length)
    assert frame_size(executable) == 3
    assert frame_size(executable, optimize=WITHOUT) == length + 2
    vm = VirtualMachine(executable, functions=registry())
    assert vm["main"](1.0, 2.0) == 1.0 + 2.0 * length
    listing = str(vm.functions["main"].translated)
    assert listing.startswith(f"@main: 2 parameters, {length + 2} registers at 3 places\n")


def test_listings_name_the_registers_of_the_source() -> None:
    executable = chain(5)
    operands = [
        [[(row.values["dst"], row.values["args"]) for row in code if "args" in row.values]
         for code in [VirtualMachine(executable, functions=registry(), optimize=names)
                      .functions["main"].translated]]
        for names in (ALL, WITHOUT)
    ]  # fmt: skip
    assert operands[0] == operands[1]
    assert executable.as_text() == chain(5).as_text()


def test_parameters_have_the_first_places() -> None:
    found = places(chain(5))
    assert (found[0].frame, found[1].frame) == (0, 1)
    assert (found[0].first, found[0].last) == (0, 0)
    assert found[1].last == 4


def test_a_result_has_not_the_place_of_an_argument() -> None:
    found = places(chain(5))
    for dst in range(3, 7):
        assert found[dst].frame != found[dst - 1].frame
        assert found[dst].first == found[dst - 1].last


def loop(a: Asm) -> None:
    """%2 is needed in every round, %3 only within one."""
    with a.func("main", 1):
        again, done = a.label(), a.label()
        a.op(r1, ".copy", 10)
        a.op(r2, ".copy", 0)
        a.bind(again)
        a.emit_if(a.r(1), done)
        a.op(r3, "add", r2, r0)
        a.op(r2, ".copy", r3)
        a.op(r4, "sub", r1, 1)
        a.op(r1, ".copy", r4)
        a.go(again)
        a.bind(done)
        a.ret(r2)


def test_values_that_go_around_a_loop() -> None:
    executable = assemble(loop)
    found = places(executable)
    assert found[3].frame == found[4].frame
    assert len({found[i].frame for i in (0, 1, 2, 3)}) == 4
    assert found[0].last >= 7  # read in the next round
    assert VirtualMachine(executable, functions=registry())["main"](3) == 30


def never_written_on_one_path(a: Asm) -> None:
    with a.func("main", 1):
        skip = a.label()
        a.op(r1, ".copy", 5)
        a.op(None, "none", r1)
        a.emit_if(a.r(0), skip)
        a.op(r2, ".copy", 7)
        a.bind(skip)
        a.ret(r2)


def test_a_register_that_may_not_have_been_written_reads_as_none() -> None:
    vm = VirtualMachine(assemble(never_written_on_one_path), functions=registry())
    assert vm["main"](True) == 7
    assert vm["main"](False) is None


def test_a_kill_of_a_register_whose_place_another_has() -> None:
    """%1 is killed late: its place is its own until then."""

    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r1, "add", r0, 1)
            a.op(r2, "add", r0, 2)
            a.op(r3, "add", r2, 3)
            a.op(r1, ".null_value")
            a.ret(r3)

    vm = VirtualMachine(assemble(emit), functions=registry())
    assert vm["main"](1) == 6


def test_functions_without_registers() -> None:
    def emit(a: Asm) -> None:
        with a.func("main"):
            a.op(None, "none", 1)
            a.op(r0, ".copy", 2)
            a.ret(r0)

    executable = assemble(emit)
    assert frame_size(executable) == 1
    assert VirtualMachine(executable, functions=registry())["main"]() == 2


# Random programs


class Spy:
    """A kernel that keeps what it is called with, and returns a new array each time.

    Attributes:
        calls: the number and the arguments of each call, arrays by their number.
        alive: which arrays were alive at each call.
    """

    def __init__(self, calls: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.alive: list[set[int]] = []
        self._left = calls
        self._arrays: dict[int, weakref.ref[Any]] = {}

    def __call__(self, *args: Any) -> Any:
        self.calls.append(tuple(int(a) if isinstance(a, np.ndarray) else a for a in args))
        self.alive.append({n for n, array in self._arrays.items() if array() is not None})
        if len(self.calls) == self._left:
            raise StopIteration
        made = np.array(len(self.calls))
        self._arrays[len(self.calls)] = weakref.ref(made)
        return made


def random_program(random: random.Random) -> VMExecutable:
    """Calls of ``test.spy`` with any registers, jumps anywhere, kills and tuples."""
    asm = Asm()
    size = random.randint(3, 60)
    jumps = random.choice([0.05, 0.15])
    registers = [Reg(i) for i in range(random.randint(2, 30))]
    with asm.func("main", 2):
        for register in registers[2:]:  # the builder wants to see one before it is read
            if random.random() < 0.7:
                asm.op(register, ".null_value")
            else:
                asm.op(register, "test.spy", -1)
        labels = [asm.label() for _ in range(size)]
        for i in range(size):
            asm.bind(labels[i])
            kind = random.random()
            args = random.choices(registers, k=random.randint(0, 3))
            dst = random.choice([None, *registers * 2])
            if kind < jumps:
                asm.op(None, "test.spy", i)  # so that no loop is without calls
                asm.emit_goto(labels[random.randrange(size)])
            elif kind < 2 * jumps:
                asm.op(registers[-1], "test.spy", i)
                asm.op(registers[-1], "test.parity", registers[-1])
                asm.emit_if(asm.r(registers[-1].index), labels[random.randrange(size)])
            elif kind < 0.45:
                asm.op(random.choice(registers), ".null_value")
            elif kind < 0.55:
                asm.op(random.choice(registers), ".copy", random.choice(registers))
            else:
                asm.op(dst, "test.spy", i, *args)
        asm.op(registers[0], ".make_tuple", *random.sample(registers, 2))
        asm.ret(registers[0])
    return asm.get()


def run(executable: VMExecutable, names: set[str], **options: Any) -> tuple[Spy, Any]:
    spy = Spy(300)
    functions = {"test.spy": spy, "test.parity": lambda x: int(x) % 2 == 0}
    vm = VirtualMachine(executable, functions=functions, optimize=names, **options)
    try:
        found = vm["main"](1, 2)
        return spy, [None if x is None else int(x) for x in found]
    except (StopIteration, LimitError) as error:
        return spy, type(error)


@pytest.mark.parametrize("seed", range(300))
def test_random_programs(seed: int) -> None:
    """The same calls with the same arguments, and no array lives longer."""
    executable = random_program(random.Random(seed))
    options: dict[str, Any] = {"limits": Limits(fuel=400)} if seed % 4 == 0 else {}
    spy, found = run(executable, ALL, **options)
    wanted_spy, wanted = run(executable, WITHOUT, **options)
    assert found == wanted
    assert spy.calls == wanted_spy.calls
    assert all(a <= b for a, b in zip(spy.alive, wanted_spy.alive, strict=True))


def test_random_programs_share_registers() -> None:
    made = [random_program(random.Random(seed)) for seed in range(100)]
    functions = {"test.spy": print, "test.parity": print}
    code = [VirtualMachine(ex, functions=functions).functions["main"].translated for ex in made]
    assert sum(c.frame_size < len(c.places) for c in code) > 20


def test_many_blocks_take_linear_time() -> None:
    """Each of many registers is alive in many blocks, more than the search looks at."""
    count = 2000

    def emit(a: Asm) -> None:
        with a.func("main", 1):
            for i in range(1, count):
                a.op(Reg(i), "add", r0, i)
            labels = [a.label() for _ in range(count)]
            for i in range(1, count):
                a.emit_if(a.r(0), labels[i])
                a.bind(labels[i])
            for i in range(1, count):
                a.op(r0, "add", r0, Reg(i))
            a.ret(r0)

    executable = assemble(emit)
    assert frame_size(executable) == count
    vm = VirtualMachine(executable, functions=registry())
    assert vm["main"](1) == 1 + sum(range(1, count)) + count - 1


# Errors


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def test_errors_show_the_arguments_of_the_call() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r1, "add", r0, 1)
            a.op(r2, "add", r1, 1)
            a.op(r3, "fail", r2, r0)
            a.ret(r3)

    def fail(*args: Any) -> None:
        raise ValueError("no")

    shown = []
    for names in (ALL, WITHOUT):
        functions = registry()
        functions.register("test.fail", fail, override=True)
        vm = VirtualMachine(assemble(emit), functions=functions, optimize=names)
        with pytest.raises(ValueError, match="no") as caught:
            vm["main"](40)
        shown.append(notes_of(caught.value))
    assert shown[0] == shown[1]
    assert "%2" in shown[0]
    assert "42" in shown[0]


def test_an_error_after_a_call_shows_its_arguments() -> None:
    """A limit that is noticed when the result has been stored."""
    vm_of = {}
    for names in (ALL, WITHOUT):
        functions = registry()

        def cancel(x: Any) -> Any:
            vm_of["vm"].cancel()
            return x + 1

        functions.register("test.cancel", cancel, override=True)

        def emit(a: Asm) -> None:
            with a.func("main", 1):
                a.op(r1, "add", r0, 1)
                a.op(r2, "test.cancel", r1)
                a.ret(r2)

        vm_of["vm"] = VirtualMachine(assemble(emit), functions=functions, optimize=names)
        with pytest.raises(Exception, match="cancelled") as caught:
            vm_of["vm"]["main"](40)
        vm_of[frozenset(names)] = notes_of(caught.value)
    assert vm_of[frozenset(ALL)] == vm_of[frozenset(WITHOUT)]
    assert "41" in vm_of[frozenset(ALL)]


def test_instruments_see_the_registers_of_the_source() -> None:
    executable = chain(5)
    seen = []
    for names in (ALL, WITHOUT):
        vm = VirtualMachine(executable, functions=registry(), optimize=names)
        found: list[Any] = []
        vm.set_instrument(
            lambda func, name, before, ret, *args, to=found: to.append((name, args)))
        vm["main"](1.0, 2.0)
        seen.append(found)
    assert seen[0] == seen[1]


# Frames


def test_deep_recursion_takes_less_memory() -> None:
    """A function of many registers, few of which are alive at the call of itself."""

    def emit(a: Asm) -> None:
        with a.func("main", 1):
            done = a.label()
            a.emit_if(a.r(0), done)
            a.op(Reg(1), "add", r0, 0)
            for i in range(2, 500):
                a.op(Reg(i), "add", Reg(i - 1), 0)
            a.op(Reg(500), "sub", Reg(499), 1)
            a.op(Reg(501), "main", Reg(500))
            a.ret(Reg(501))
            a.bind(done)
            a.ret(r0)

    executable = assemble(emit)
    limits = Limits(live_bytes=2_000_000, call_depth=2000)
    assert VirtualMachine(executable, functions=registry(), limits=limits)["main"](1000) == 0
    vm = VirtualMachine(executable, functions=registry(), limits=limits, optimize=WITHOUT)
    with pytest.raises(LimitError, match="live_bytes"):
        vm["main"](1000)
