"""The table of the loop's operations: what is generated from it, listings, rewritings, entries, and
for each operation programs that take its fast path and its fallback."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import (
    Adt,
    Closure,
    ExecBuilder,
    Limits,
    Shape,
    VirtualMachine,
    cpu,
    kernels,
    load_kernels,
    toolchain,
)
from relaxvm.core.operations import (
    BUILTINS,
    BY_NAME,
    OPERATIONS,
    REWRITINGS,
    OperandKind,
    Operation,
    enabled_rewritings,
)
from relaxvm.core.translated import FunctionName, Register, Row, TranslatedFunction
from relaxvm.errors import InternalError
from relaxvm.executable import VMExecutable
from relaxvm.executable.shape_codes import MatchShapeCode
from relaxvm.isa import FuncKind, Opcode
from relaxvm.registry import GLOBAL, Registry
from relaxvm.vm.allocators import make_allocators
from relaxvm.vm.dataflow import find_batches
from relaxvm.vm.linking import link, scope_of

from .asm import VM, Asm, Func, Reg, r0, r1, r2, r3, r4
from .corpus import CORPUS, Case, registry
from .generators import load
from .oracle import Oracle, Outcome, assert_same_outcome

ROOT = Path(__file__).parent.parent
FLOAT32 = np.dtype("float32")
STORE, IMM, SLOT = 1, 0, 1
JUMPS = ("goto", "goto_back", "if", "read_if", "if_tag", "ret", "tail_call_vm",
         "tail_invoke_closure")  # fmt: skip


# The table


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
def test_row_is_complete(operation: Operation) -> None:
    positions = operation.positions()
    names = [operand.name for operand in operation.fixed]
    names += [operation.tail.name] if operation.tail else []
    assert list(positions) == names, "two operands have one name"
    at = 1
    for operand in operation.fixed:
        assert positions[operand.name] == at
        at += operand.words
    assert operation.fixed_words == at
    kinds = [operand.kind for operand in operation.operands]
    assert kinds.count(OperandKind.FALLBACK) == bool(operation.fallback)
    assert kinds.count(OperandKind.DST) == operation.has_dst <= 1
    if operation.fallback:
        assert operation.operands[0].kind is OperandKind.FALLBACK
    for name in names:
        # The pseudo-code has every operand but those that are of the implementation alone.
        if name not in ("fallback", "count", "site", "last_slot"):
            assert re.search(rf"\b{name}\b", operation.meaning), name


def test_names_and_codes() -> None:
    assert len(BY_NAME) == len(OPERATIONS)
    assert [operation.code for operation in OPERATIONS] == list(range(1, 1 + len(OPERATIONS)))
    assert len({rewriting.name for rewriting in REWRITINGS}) == len(REWRITINGS)
    assert set(BUILTINS) <= set(GLOBAL.names())


def test_both_hooks_have_their_operands_at_the_same_positions() -> None:
    before, after = (BY_NAME[name].positions() for name in ("hook_before", "hook_after"))
    for name in ("callee", "pc", "count", "args"):
        assert before[name] == after[name]


def test_no_position_is_written_by_hand() -> None:
    for name in ("_core.pyx", "core/_translate.pyx"):
        text = (ROOT / "relaxvm" / name).read_text(encoding="utf-8")
        assert not re.findall(r"\bip\[\d|\bip \+ \d|_word\(\w+(?: \+ \d)?, \d", text), name


# Generated files


# Listings


def assemble(emit: Callable[[Asm], None]) -> VMExecutable:
    asm = Asm()
    emit(asm)
    return asm.get()


def example(a: Asm) -> None:
    """The example of docs/operations.md."""
    with a.func("main", params=["x"]):
        a.op(None, ".check_tensor_info", r0, 2, FLOAT32, "x")
        a.op(None, ".match_shape", r0, None, 2, IMM, 2, MatchShapeCode.NO_OP, 0, "x")
        a.op(r1, ".shape_of", r0)
        a.ret(r1)


def test_example_of_the_page() -> None:
    listing = str(VirtualMachine(assemble(example)).functions["main"].translated)
    assert load("gen_operations").EXAMPLE_LISTING == listing


def test_calls_name_the_implementations_that_they_try() -> None:
    builder = ExecBuilder()
    with builder.function("main", num_inputs=2):
        for name in ("nn.softmax", "sort"):
            args = [builder.r(0), 0, *([0] if name == "sort" else []), builder.r(1)]
            builder.emit_call(f"relaxvm.kernel.{name}", args)
        builder.emit_ret(builder.r(1))
    listing = str(VirtualMachine(builder.get()).functions["main"].translated)
    assert "callee=f[relaxvm.kernel.nn.softmax: norms.softmax]" in listing
    assert "callee=f[relaxvm.kernel.sort]" in listing


def test_translated_function() -> None:
    vm = VirtualMachine(assemble(example))
    translated = vm.functions["main"].translated
    assert translated.name == "main"
    assert len(translated) == len(translated.rows) == len(list(translated))
    assert repr(translated) == str(translated)
    row = translated[0]
    assert (row.position, row.pc, row.is_fallback) == (0, 0, False)
    assert row.operation is BY_NAME["check_match"]
    assert row.values["x"] == Register(0)
    assert row.values["dtype"] == FLOAT32
    assert row.values["dims"] == (
        (MatchShapeCode.ASSERT_EQUAL_TO_IMM, 2), (MatchShapeCode.NO_OP, 0))  # fmt: skip
    fallback = next(r for r in translated if r.position == row.values["fallback"])
    assert fallback.is_fallback
    assert fallback.operation is BY_NAME["check_tensor"]
    callees = [r.values["callee"] for r in translated if r.operation.name == "call_void"]
    assert callees == [FunctionName("vm.builtin.check_tensor_info"), "vm.builtin.match_shape"]


def test_a_closed_machine_has_no_listing() -> None:
    vm = VirtualMachine(assemble(example))
    function = vm.functions["main"]
    vm._close()
    with pytest.raises(InternalError, match="closed"):
        function.translated  # noqa: B018


def test_an_instrument_is_in_the_listing() -> None:
    vm = VirtualMachine(assemble(example))
    vm.set_instrument(lambda *args: None)
    names = Counter(row.operation.name for row in vm.functions["main"].translated)
    assert names["hook_before"] == names["hook_after"] == names["call"] == 3
    vm.set_instrument(None)
    assert "hook_before" not in [r.operation.name for r in vm.functions["main"].translated]


# Rewritings


def test_enabled_rewritings() -> None:
    names = {rewriting.name for rewriting in REWRITINGS}
    assert enabled_rewritings(True) == names
    assert enabled_rewritings(False) == enabled_rewritings(()) == frozenset()
    assert enabled_rewritings(["read_if", "quicken"]) == {"read_if", "quicken"}


def test_a_rewriting_that_does_not_exist() -> None:
    executable = assemble(example)
    message = "optimize: there is no rewriting 'reed_if'; did you mean 'read_if'"
    with pytest.raises(ValueError, match=message):
        VirtualMachine(executable, optimize={"reed_if"})
    with pytest.raises(TypeError, match=r"optimize: expected a bool or a set of names .* got str"):
        VirtualMachine(executable, optimize="read_if")
    with pytest.raises(TypeError, match="expected names of rewritings, got int"):
        VirtualMachine(executable, optimize=[1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"optimize: expected names of rewritings, got list"):
        VirtualMachine(executable, optimize=[[1]])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"optimize: expected a bool or a set .* got dict"):
        VirtualMachine(executable, optimize={"quicken": False})
    with pytest.raises(ValueError, match=r"there is no rewriting 'x{37}\.\.\.'; expected"):
        VirtualMachine(executable, optimize={"x" * 100_000})


SIGNS: Mapping[str, Callable[[VMExecutable, TranslatedFunction], bool]] = {
    # `null` also clears the scratch register, `copy` puts there what a `ret` has in no register,
    # and `invoke_closure` is always there.
    "quicken": lambda ex, code: any(
        r.operation.builtin and ex.instruction(r.pc).op.code == Opcode.CALL
        and r.operation.name not in ("null", "invoke_closure") for r in code
    ),
    "own_heaps": lambda ex, code: any(r.values.get("last_slot") == -2 for r in code),
    "ufuncs": lambda ex, code: any(r.operation.name.startswith("ufunc_") for r in code),
    "kernels": lambda ex, code: any(
        is_call_of(ex, r.pc, "relaxvm.kernel.nn.softmax") and not r.values["callee"].implementations
        for r in code
        if r.operation.name == "call_void"
    ),
    "read_if": lambda ex, code: any(r.operation.name == "read_if" for r in code),
    "if_tag": lambda ex, code: any(r.operation.name == "if_tag" for r in code),
    "tail_calls": lambda ex, code: any(r.operation.name.startswith("tail_") for r in code),
    "check_match": lambda ex, code: any(r.operation.name == "check_match" for r in code),
    "alloc_static": lambda ex, code: any(r.operation.name == "alloc_static" for r in code),
    # A null_value of the source that no operation of the main part stands for.
    "kills": lambda ex, code: any(
        is_call_of(ex, pc, "vm.builtin.null_value")
        and pc not in {r.pc for r in code if not r.is_fallback}
        for pc in code.entries
    ),
    "registers": lambda ex, code: code.frame_size < len(code.places),
    # A goto of the source that no operation stands for.
    "thread_jumps": lambda ex, code: any(
        ex.instruction(pc).op.code == Opcode.GOTO and pc not in {r.pc for r in code}
        for pc in code.entries
    ),
}
"""What shows in a listing that a rewriting was at work."""


def is_call_of(executable: VMExecutable, pc: int, name: str) -> bool:
    instruction = executable.instruction(pc)
    return (
        instruction.op.code == Opcode.CALL
        and executable.functions[instruction.fields[1]].name == name
    )


NEEDS = {"kills": "alloc_static", "own_heaps": "quicken"}
"""Rewriting -> another one that it works with."""


def programs() -> list[tuple[VMExecutable, Registry | None]]:
    found = [(case.executable, registry()) for case in CORPUS.values()]
    found += [(assemble(p.emit), p.functions()) for p in PROGRAMS.values()]
    return [*found, (softmax((200, 100)), None)]


def softmax(shape: tuple[int, ...], *, jumps: bool = False) -> VMExecutable:
    """A program with a kernel that writes to a new tensor of this shape, or with a jump to the call
    of the kernel, to one that the caller may pass."""
    ib = ExecBuilder()
    with ib.function("main", 2):
        x, out, storage = ib.r(0), ib.r(1), ib.r(2)
        call = ib.label()
        if jumps:
            other = ib.label()
            ib.emit_call("vm.builtin.read_if_cond", [ib.r(1)], ib.r(3))
            ib.emit_if(ib.r(3), other)
            ib.emit_call("vm.builtin.copy", [x], out)
            ib.emit_goto(call)
            ib.bind(other)
        nbytes = Shape((4 * math.prod(shape),))
        place = [ib.imm(0), np.dtype("uint8"), ib.convert_constant("global")]
        ib.emit_call("vm.builtin.alloc_storage", [ib.vm_state(), nbytes, *place], storage)
        made = [storage, ib.imm(0), Shape(shape), np.dtype("float32")]
        ib.emit_call("vm.builtin.alloc_tensor", made, out)
        ib.bind(call)
        ib.emit_call("relaxvm.kernel.nn.softmax", [x, ib.imm(1), out])
        ib.emit_ret(out)
    return ib.get()


@pytest.mark.parametrize(
    ("shape", "jumps", "chosen"),
    [
        ((8, 4), False, ("norms.softmax",)),
        ((200, 100), False, ()),
        ((0, 100), False, ("norms.softmax",)),
        ((200, 100), True, ("norms.softmax",)),  # it may be another tensor: left to each call
    ],
)
def test_kernels_are_chosen_where_the_result_is_known(
    shape: tuple[int, int], jumps: bool, chosen: tuple[str, ...]
) -> None:
    executable = softmax(shape, jumps=jumps)
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    for optimize, expected in ((True, chosen), (False, ("norms.softmax",))):
        vm = VirtualMachine(executable, optimize=optimize)
        (row,) = [
            r for r in vm["main"].translated
            if is_call_of(executable, r.pc, "relaxvm.kernel.nn.softmax")
        ]  # fmt: skip
        assert row.values["callee"].implementations == expected
        np.testing.assert_allclose(vm["main"](x, False), want, rtol=1e-5)


@pytest.mark.parametrize("name", [rewriting.name for rewriting in REWRITINGS])
def test_a_rewriting_is_on_where_its_name_is_given(name: str) -> None:
    others = {rewriting.name for rewriting in REWRITINGS} - {name}
    with_it = without_it = 0
    for executable, functions in programs():
        for vm_of, names in (("with", {name, NEEDS.get(name, name)}), ("without", others)):
            vm = VirtualMachine(executable, functions=functions, optimize=names)
            for function in vm.functions:
                found = SIGNS[name](executable, vm.functions[function].translated)
                with_it += found and vm_of == "with"
                without_it += found and vm_of == "without"
    assert with_it > 0
    assert without_it == 0


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[Outcome]]:
    """Case of the corpus -> outcomes of its runs by the oracle."""
    return {
        name: [
            Outcome.of(Oracle(case.executable, registry())[run.function], run.args())
            for run in case.runs
        ]
        for name, case in CORPUS.items()
    }


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "all others"])
@pytest.mark.parametrize("name", [rewriting.name for rewriting in REWRITINGS])
def test_results_do_not_depend_on_a_rewriting(
    name: str, alone: bool, wanted: dict[str, list[Outcome]]
) -> None:
    names = {rewriting.name for rewriting in REWRITINGS}
    for key, case in CORPUS.items():
        vm = VirtualMachine(
            case.executable, functions=registry(), optimize={name} if alone else names - {name}
        )
        for run, want in zip(case.runs, wanted[key], strict=True):
            for _ in range(2):
                assert_same_outcome(Outcome.of(vm[run.function], run.args()), want)


# Entries

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "none": {"optimize": False},
    "fusion": {"optimize": {"read_if", "check_match", "alloc_static", "kills"}},
    "no kills": {"optimize": {"quicken", "alloc_static"}},
    "limits": {"limits": Limits(fuel=10**6)},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("case", CORPUS.values(), ids=str)
def test_every_pc_has_an_entry(case: Case, options: str) -> None:
    """The operation there is the first of the instruction; where a `goto` was dropped, that of the
    instruction it led to."""
    executable = case.executable
    vm = VirtualMachine(executable, functions=registry(), **OPTIONS[options])
    for hooked in (False, True):
        if hooked:
            vm.set_instrument(lambda *args: None)
        for info in executable.functions:
            if info.kind != FuncKind.BYTECODE:
                continue
            code = vm.functions[info.name].translated
            fused = inside_of_fused_runs(code)
            first: dict[int, Row] = {}
            for row in code:
                first.setdefault(row.position, row)
            assert list(code.entries) == list(range(info.start_instr, info.end_instr))
            for pc, position in code.entries.items():
                row = first[position]
                dropped = pc
                while row.pc != dropped:
                    assert executable.instruction(dropped).op.code == Opcode.GOTO
                    dropped += 1
                assert row.is_fallback == (pc in fused)


def test_a_kill_by_itself() -> None:
    """Without `kills`, the storage's `null_value` runs after `alloc_static`."""
    executable = assemble(static)
    names = {rewriting.name for rewriting in REWRITINGS}
    kill = next(
        pc for pc in range(len(executable.instr_offset))
        if is_call_of(executable, pc, "vm.builtin.null_value")
    )  # fmt: skip
    for on in (True, False):
        vm = VirtualMachine(executable, optimize=names if on else names - {"kills"})
        code = vm.functions["main"].translated
        ran = [row.operation.name for row in code if row.pc == kill and not row.is_fallback]
        assert ran == ([] if on else ["null"])
        assert vm["main"]() == (None, (2, 3))  # the storage's register, and the array's shape


def inside_of_fused_runs(code: TranslatedFunction) -> set[int]:
    """The pcs in a fused run that are not its first."""
    lengths = {"read_if": 2, "if_tag": 2, "check_match": 2, "alloc_static": 3,
               "tail_call_vm": 2, "tail_invoke_closure": 2}  # fmt: skip
    main_part = [row for row in code if not row.is_fallback]
    return {
        row.pc + i for row in main_part for i in range(1, lengths.get(row.operation.name, 1))
    }.difference(row.pc for row in main_part)  # the kill, where `kills` is off


# Fast paths and fallbacks


@dataclass
class Program:
    """A program whose run takes an operation.

    Attributes:
        emit: emits ``main``.
        fast: makes arguments with which the fast path is taken.
        fallback: makes arguments with which the fallback is taken; None if there is none.
        rewritings: those that are on.
        reference: the function that the fallback calls; that of the operation if empty.
        kernels: functions of the program's own.
        limits: of runs.
        starve: memory runs out in the run that takes the fallback.
        hook: whether a hook is set.
        enters: whether native code may be entered.
        steps: whether it runs as a `relaxvm.vm.Run`.
        batches: whether calls are put off, as by the dataflow executor.
        emit_fallback: emits the ``main`` that takes the fallback, if it is another one.
    """

    emit: Callable[[Asm], None]
    fast: Callable[[], tuple[Any, ...]] = tuple
    fallback: Callable[[], tuple[Any, ...]] | None = None
    rewritings: frozenset[str] = frozenset({"quicken"})
    reference: str = ""
    kernels: Callable[[], dict[str, Callable[..., Any]]] = dict
    limits: Limits = field(default_factory=Limits)
    starve: bool = False
    hook: bool = False
    enters: bool = False
    steps: bool = False
    batches: bool = False
    emit_fallback: Callable[[Asm], None] | None = None

    def functions(self) -> Registry:
        return Registry(self.kernels(), parent=GLOBAL)


def main(inputs: int, *lines: tuple[Any, ...], result: Any = None) -> Callable[[Asm], None]:
    """``main`` of calls, each given as (dst, name, arguments...); returns the last dst."""

    def emit(a: Asm) -> None:
        with a.func("main", inputs):
            for dst, name, *args in lines:
                a.op(dst, name, *args)
            a.ret(lines[-1][0] if result is None else result)

    return emit


def with_callee(inputs: int, *lines: tuple[Any, ...]) -> Callable[[Asm], None]:
    """The same beside ``pair``, which returns its two arguments."""

    def emit(a: Asm) -> None:
        with a.func("pair", 2):
            a.op(r2, ".make_tuple", r0, r1)
            a.ret(r2)
        main(inputs, *lines)(a)

    return emit


def jumps(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".copy", r0)
        a.go(2)
        a.ret(r1)
        a.op(r1, ".make_tuple", r0, 7)
        a.go(-2)


def branch(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".copy", 1)
        a.iff(r0, 2)
        a.ret(r1)
        a.ret(r0)


def read_branch(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".read_if_cond", r0)
        a.iff(r1, 2)
        a.ret(r0)
        a.ret(r1)


def tag_branch(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, f"{OWN}tag_is", r0, 7)
        a.iff(r1, 2)
        a.ret(r0)
        a.ret(r1)


def wide(a: Asm) -> None:
    """``main`` calls a function whose frame does not fit where its own one is."""
    with a.func("wide", 1):
        a.op(r1, "test.note", r0)
        a.op(Reg(2000), ".copy", r1)
        a.ret(Reg(2000))
    with a.func("main", 1):
        a.op(r1, "wide", r0)
        a.ret(r1)


def static(a: Asm) -> None:
    with a.func("main", 0):
        a.alloc(r0, r1, (2, 3))
        a.op(r2, ".shape_of", r0)
        a.op(r3, ".make_tuple", r1, r2)
        a.ret(r3)


def array(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def native() -> dict[str, Callable[..., Any]]:
    if toolchain.compiler() is None:
        pytest.skip("there is no C compiler")
    source = (ROOT / "tests" / "native_kernels.c").read_text("utf-8")
    found = load_kernels(toolchain.compile_c(source, name="kernels"), release_gil=False)
    return {"test.sum": found["sum"]}


def choosing(other: Any) -> dict[str, Callable[..., Any]]:
    """``test.choose(flag, value)`` gives the value, or `other` where the flag is 0."""
    return {"test.choose": lambda flag, value: value if flag else other}


OWN = "relaxvm.builtin."
HEAP = (r1, ".alloc_shape_heap", VM, 4)
STORAGE = (r1, ".alloc_storage", VM, Shape([64]), 0, np.dtype("uint8"), "global")
INDEPENDENT = (
    (r1, ".alloc_storage", VM, Shape([1 << 15]), 0, np.dtype("uint8"), "global"),
    (r2, ".alloc_tensor", r1, 0, Shape([1 << 12]), FLOAT32),
    (r3, ".alloc_tensor", r1, 1 << 14, Shape([1 << 12]), FLOAT32),
    (None, "relaxvm.kernel.add", r0, r0, r2),
    (None, "relaxvm.kernel.add", r0, r0, r3),
    (r4, ".make_tuple", r2, r3),
)
ADD, EXP = kernels.PREFIX + "add", kernels.PREFIX + "exp"

PROGRAMS: dict[str, Program] = {
    "ret": Program(main(1, (r1, ".copy", r0)), lambda: (3,)),
    "goto": Program(jumps, lambda: (3,)),
    "goto_back": Program(jumps, lambda: (3,)),
    "if": Program(branch, lambda: (0,)),
    "call": Program(main(1, (r1, "test.twice", r0)), lambda: (3,),
                    kernels=lambda: {"test.twice": lambda x: 2 * x}),
    "call_void": Program(main(1, (None, "test.fill_with_3", r0), (r1, ".copy", r0)),
                         lambda: (array(2),),
                         kernels=lambda: {"test.fill_with_3": lambda x: x.fill(3)}),
    "call_native": Program(main(1, (r1, "test.sum", r0, 4)), lambda: (3,), kernels=native),
    "call_vm": Program(with_callee(1, (r1, "pair", r0, 4)), lambda: (3,)),
    "tail_call_vm": Program(
        with_callee(1, (r1, "pair", r0, 4)), lambda: (3,), lambda: (3,), frozenset({"tail_calls"}),
        "test.note", kernels=lambda: {"test.note": lambda x: x}, emit_fallback=wide),
    "copy": Program(main(1, (r1, ".copy", r0)), lambda: (array(2),)),
    "null": Program(main(1, (r0, ".null_value")), lambda: (3,)),
    "make_tuple": Program(main(1, (r1, ".make_tuple", r0, 2)), lambda: (3,)),
    "tuple_getitem": Program(main(1, (r1, ".tuple_getitem", r0, 1)), lambda: ((3, 4),),
                             lambda: (Shape((3, 4)),)),
    "make_adt": Program(main(1, (r1, f"{OWN}make_adt", "List.Cons", 1, r0, 2)), lambda: (3,)),
    "adt_tag": Program(main(1, (r1, f"{OWN}adt_tag", r0)), lambda: (Adt("C", 5),), lambda: (5,)),
    "match_tag": Program(
        main(1, (r1, f"{OWN}match_tag", r0, "N", 0, "C", 1)), lambda: (Adt("C", 1, (5,)),),
        lambda: (Adt("D", 1, (5,)),)),
    "adt_field": Program(main(1, (r1, f"{OWN}adt_field", r0, 1)), lambda: (Adt("C", 0, (3, 4)),),
                         lambda: (Adt("C", 0, (3,)),)),
    "tag_is": Program(main(1, (r1, f"{OWN}tag_is", r0, 7)), lambda: (7,), lambda: (1 << 40,)),
    "if_tag": Program(tag_branch, lambda: (8,), lambda: ("7",), frozenset({"quicken", "if_tag"}),
                      f"{OWN}tag_is"),
    "shape_of": Program(main(1, (r1, ".shape_of", r0)), lambda: (array(2, 3),),
                        lambda: (array(*[1] * 9),)),
    "make_shape": Program(
        main(1, (r1, ".make_shape", r0, 2, SLOT, 1, IMM, 5)), lambda: (array(4, dtype="int64"),),
        lambda: (array(4, dtype="int32"),)),
    "match_shape": Program(
        main(2, (None, ".match_shape", r0, r1, 2, STORE, 0, IMM, 3, "x"), (r2, ".copy", r1)),
        lambda: (array(2, 3), array(4, dtype="int64")),
        lambda: (array(2, 4), array(4, dtype="int64"))),
    "check_tensor": Program(
        main(1, (None, ".check_tensor_info", r0, 2, FLOAT32, "x"), result=r0),
        lambda: (array(2, 3),), lambda: (array(2, 3, dtype="int32"),)),
    "check_match": Program(
        main(2, (None, ".check_tensor_info", r0, 2, FLOAT32, "x"),
             (None, ".match_shape", r0, r1, 2, STORE, 0, IMM, 3, "x"), result=r1),
        lambda: (array(2, 3), array(4, dtype="int64")),
        lambda: (array(2, 4), array(4, dtype="int64")),
        frozenset({"check_match"}), "vm.builtin.match_shape"),
    "check_shape": Program(main(1, (None, ".check_shape_info", r0, 2, "x"), result=r0),
                           lambda: (Shape((2, 3)),), lambda: (Shape((2,)),)),
    "check_tuple": Program(main(1, (None, ".check_tuple_info", r0, 2, "x"), result=r0),
                           lambda: ((2, 3),), lambda: ((2,),)),
    "check_func": Program(
        with_callee(1, (r1, ".make_closure", Func("pair")), (r1, "test.choose", r0, r1),
                    (None, ".check_func_info", r1, "x"), (r2, ".copy", r0)),
        lambda: (1,), lambda: (0,), kernels=lambda: choosing(5)),
    "check_prim": Program(main(1, (None, ".check_prim_value_info", r0, np.dtype("int64"), "x"),
                               result=r0), lambda: (3,), lambda: (2.5,)),
    "match_prim": Program(main(2, (None, ".match_prim_value", r0, r1, STORE, 2, "x"), result=r1),
                          lambda: (7, array(4, dtype="int64")), lambda: (1 << 70, array(4))),
    "make_prim": Program(main(1, (r1, ".make_prim_value", r0, SLOT, 2)),
                         lambda: (array(4, dtype="int64"),), lambda: (array(4, dtype="int32"),)),
    "read_cond": Program(main(1, (r1, ".read_if_cond", r0)), lambda: (np.array([1]),),
                         lambda: (np.array(1.5),)),
    "read_if": Program(read_branch, lambda: (np.array(0),), lambda: (np.array(1.5),),
                       frozenset({"read_if"}), "vm.builtin.read_if_cond"),
    "compute_shape": Program(
        main(1, (None, "relaxvm.builtin.compute_shape", r0, Shape((1, 0, 1, 1, 6, 2, 2))),
             result=r0),
        lambda: (np.array([7, 2, 0]),), lambda: (np.array([7, 0, 0]),)),
    "alloc_heap": Program(main(0, HEAP)),
    "alloc_storage": Program(main(0, STORAGE), tuple, tuple, starve=True),
    "alloc_storage_dyn": Program(
        main(1, (r1, ".alloc_storage", VM, r0, 0, np.dtype("uint8"), "global")),
        lambda: (Shape((4, 5)),), lambda: (Shape((4, -5)),)),
    "alloc_tensor": Program(
        main(1, STORAGE, (r2, ".alloc_tensor", r1, 0, r0, FLOAT32), (r3, ".shape_of", r2)),
        lambda: (Shape((4, 4)),), lambda: (Shape((4, 5)),)),
    "alloc_tensor_of": Program(
        main(1, (r1, ".alloc_storage", VM, r0, 0, np.dtype("uint8"), "global"),
             (r2, ".alloc_tensor", r1, 0, Shape((4, 4)), FLOAT32), (r3, ".shape_of", r2)),
        lambda: (Shape((64,)),), lambda: (Shape((63,)),)),
    "alloc_static": Program(static, tuple, tuple, frozenset({"alloc_static"}),
                            "vm.builtin.alloc_storage", starve=True),
    "reshape": Program(main(2, (r2, ".reshape", r0, r1)), lambda: (array(2, 3), Shape((3, 2))),
                       lambda: (array(2, 3).T, Shape((2, 3)))),
    "load_function": Program(
        with_callee(0, (r0, ".make_tuple", Func("pair"), Func("main"), Func("pair")),
                    (r1, ".tuple_getitem", r0, 2), (r2, ".invoke_closure", VM, r1, 5, 6))),
    "make_closure_of": Program(
        with_callee(1, (r1, ".make_closure", Func("pair"), r0),
                    (r2, ".make_closure", Func("pair"), r0, 5),
                    (r1, ".invoke_closure", VM, r1, 6), (r2, ".invoke_closure", VM, r2),
                    (r3, ".make_tuple", r1, r2)),
        lambda: (7,)),
    "make_closure": Program(
        with_callee(1, (r1, ".copy", Func("pair")), (r1, "test.choose", r0, r1),
                    (r2, ".make_closure", r1, 5), (r3, ".invoke_closure", VM, r2, 6)),
        lambda: (1,), lambda: (0,), kernels=lambda: choosing(lambda x, y: (y, x))),
    "invoke_closure": Program(
        with_callee(1, (r1, ".make_closure", Func("pair"), 5), (r1, "test.choose", r0, r1),
                    (r2, ".invoke_closure", VM, r1, 6)),
        lambda: (1,), lambda: (0,),
        kernels=lambda: choosing(Closure(lambda x, y: (y, x), (5,)))),
    "tail_invoke_closure": Program(
        with_callee(1, (r1, ".make_closure", Func("pair"), 5), (r1, "test.choose", r0, r1),
                    (r2, ".invoke_closure", VM, r1, 6)),
        lambda: (1,), lambda: (0,), frozenset({"quicken", "tail_calls"}),
        "vm.builtin.invoke_closure",
        kernels=lambda: choosing(Closure(lambda x, y: (y, x), (5,)))),
    "ufunc_1": Program(main(2, (r2, EXP, r0, r1), (r2, ".copy", r1)),
                       lambda: (array(4), array(4)), lambda: (array(4)[::2], array(2)),
                       frozenset({"ufuncs"}), EXP),
    "ufunc_2": Program(main(3, (r3, ADD, r0, r1, r2), (r3, ".copy", r2)),
                       lambda: (array(4), array(4), array(4)),
                       lambda: (array(4), array(4)[::2], array(2)), frozenset({"ufuncs"}), ADD),
    "fuel": Program(main(1, (r1, ".copy", r0)), lambda: (3,), limits=Limits(fuel=10)),
    "deadline": Program(main(1, (r1, "test.twice", r0)), lambda: (3,),
                        kernels=lambda: {"test.twice": lambda x: 2 * x},
                        limits=Limits(wall_time=60)),
    "enter": Program(main(1, (r1, ".copy", r0)), lambda: (3,), enters=True),
    "step": Program(main(1, (r1, ".copy", r0)), lambda: (3,), steps=True),
    "defer": Program(main(1, *INDEPENDENT), lambda: (array(1 << 12),), batches=True),
    "join": Program(main(1, *INDEPENDENT), lambda: (array(1 << 12),), batches=True),
    "hook_before": Program(main(1, (r1, ".copy", r0)), lambda: (3,), hook=True),
    "hook_after": Program(main(1, (r1, ".copy", r0)), lambda: (3,), hook=True),
}  # fmt: skip
"""Operation -> a program that takes it.  Every operation has one, and arguments for its fallback if
it has that."""


def follow(code: TranslatedFunction) -> list[str]:
    """Operations that run for sure: from the entry on, up to the first branch or return."""
    at = {row.position: i for i, row in enumerate(code)}
    i, names = 0, []
    while True:
        row = code[i]
        names.append(row.operation.name)
        if row.operation.name in ("goto", "goto_back") and names.count("goto_back") < 2:
            i = at[row.values["distance"]]
        elif row.operation.name in JUMPS:
            return names
        else:
            i += 1


def spied(program: Program, *, starved: bool) -> tuple[VirtualMachine, list[str]]:
    """A machine for a program, and the names of the packed functions that its runs call.

    The loop takes the builtins' operations although what it would call in their place is a spy, so
    a call of a builtin's reference shows that a fallback was taken.
    """
    executable = assemble(program.emit)
    functions = program.functions()
    vm = VirtualMachine(
        executable, functions=functions, limits=program.limits, optimize=program.rewritings
    )
    linked = link(executable, scope_of(functions))
    called: list[str] = []

    def spy(name: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if function is None or name == "test.sum":  # a spy is no native function
            return function

        def call(*args: Any) -> Any:
            called.append(name)
            return function(*args)

        return call

    names = [info.name for info in executable.functions]
    spies = [spy(*pair) for pair in zip(names, linked.callables, strict=True)]
    limits = Limits(live_bytes=8) if starved else Limits()
    allocators = make_allocators((cpu(),), None, limits)
    batches = None
    if program.batches:
        batches = find_batches(executable, linked.callables, linked.quick, scope_of(functions))
    vm._setup(executable, spies, linked.quick, allocators, program.limits, program.rewritings,
              batches, 2)  # fmt: skip
    vm._allocators = allocators  # of the references
    if program.enters:
        vm._use(vm._translated_for_entries())
    if program.hook:
        vm._set_hook(lambda *args: False)
    return vm, called


def outcomes(
    program: Program, make: Callable[[], tuple[Any, ...]], *, starved: bool = False
) -> tuple[VirtualMachine, list[str]]:
    """Run a program on arguments, three times as sites remember, and compare with the oracle."""
    vm, called = spied(program, starved=starved)
    limits = Limits(live_bytes=8) if starved else Limits()
    for _ in range(3):
        oracle = Oracle(assemble(program.emit), program.functions(), limits=limits)
        want = Outcome.of(oracle["main"], make())
        function = step_through(vm) if program.steps else vm["main"]
        assert_same_outcome(Outcome.of(function, make()), want)
    return vm, called


def step_through(vm: VirtualMachine) -> Callable[..., Any]:
    def main(*args: Any) -> Any:
        run = vm["main"].start(*args)
        while run.step() is not None:
            pass
        return run.result()

    return main


def code_of(vm: VirtualMachine, program: Program) -> TranslatedFunction:
    """What runs."""
    function = vm.functions["main"]
    if program.steps:
        return function.start(*program.fast())._translated(function.index)
    return function.translated


def reference_of(operation: Operation, program: Program) -> str:
    return program.reference or operation.builtin


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
def test_fast_path(operation: Operation) -> None:
    assert operation.name in PROGRAMS, "write a program that takes the operation"
    program = PROGRAMS[operation.name]
    vm, called = outcomes(program, program.fast)
    assert operation.name in follow(code_of(vm, program))
    if not program.hook:
        assert reference_of(operation, program) not in called


@pytest.mark.parametrize(
    "operation", [op for op in OPERATIONS if op.fallback], ids=lambda op: op.name
)
def test_fallback(operation: Operation) -> None:
    program = PROGRAMS[operation.name]
    assert program.fallback is not None, "write arguments that make it take its fallback"
    if program.emit_fallback is not None:
        program = replace(program, emit=program.emit_fallback)
    vm, called = outcomes(program, program.fallback, starved=program.starve)
    assert operation.name in follow(vm.functions["main"].translated)
    assert called.count(reference_of(operation, program)) == 3


def test_programs_are_of_operations() -> None:
    assert list(PROGRAMS) == [operation.name for operation in OPERATIONS]
    for name, program in PROGRAMS.items():
        assert (program.fallback is not None) == bool(BY_NAME[name].fallback), name


# Shape heaps


DIMS = (None, ".match_shape", r0, r1, 2, STORE, 0, STORE, 1, "x")
MADE = (r2, ".make_shape", r1, 2, SLOT, 1, SLOT, 0)


@pytest.mark.parametrize(
    ("emit", "own"),
    [
        (main(1, HEAP, DIMS, MADE), True),
        (main(1, (r2, ".copy", r0), HEAP, DIMS, MADE), True),
        (main(1, HEAP, DIMS, MADE, (r3, ".copy", r1), result=r2), False),
        (main(1, HEAP, DIMS, MADE, (None, "test.shrink", r1), MADE), False),
        (main(1, HEAP, DIMS, MADE, (r1, ".null_value"), result=r2), False),
        (main(2, (r2, ".make_tuple", r1), HEAP, DIMS, MADE), False),
        (main(1, (r1, ".alloc_shape_heap", VM, 2), DIMS, MADE,
              (None, "relaxvm.builtin.compute_shape", r1, Shape((1, 0, 2, 1))), result=r2), True),
        (main(1, HEAP, DIMS, MADE, result=r1), False),
        (main(2, DIMS, MADE), False),
    ],
    ids=["used", "second", "copied", "passed", "killed", "read before", "exact", "returned",
         "argument"],
)  # fmt: skip
def test_a_heap_is_checked_unless_only_the_function_has_it(
    emit: Callable[[Asm], None], own: bool
) -> None:
    executable = assemble(emit)
    vm = VirtualMachine(executable, functions={"test.shrink": lambda heap: heap.resize(1)})
    slots = [r.values["last_slot"] for r in vm["main"].translated if "last_slot" in r.values]
    assert slots
    assert all((last == -2) is own for last in slots)


def test_a_heap_that_a_jump_leads_past_is_checked() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 2):
            a.op(r3, ".copy", r0)
            a.iff(r3, 2)
            a.op(*HEAP)
            a.op(r2, ".make_shape", r1, 1, SLOT, 1)
            a.ret(r2)

    main = VirtualMachine(assemble(emit))["main"]
    assert all(r.values.get("last_slot") != -2 for r in main.translated)
    assert main(1, None) == (0,)
    with pytest.raises(TypeError, match="make_shape"):
        main(0, 5)
