"""The instruction table, its encoding, and the files generated from it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import get_include, isa
from relaxvm.isa import Arg, ArgKind, FieldKind, FuncKind, Instruction, Op, Opcode

from . import children

ROOT = Path(__file__).parent.parent


WORDS = st.integers(isa.WORD_MIN, isa.WORD_MAX)
ARGS = st.builds(Arg, st.sampled_from(ArgKind), st.integers(-isa.VALUE_MAX - 1, isa.VALUE_MAX))


def instructions(ops: tuple[Op, ...] = isa.OPS) -> st.SearchStrategy[Instruction]:
    """Instructions with arbitrary words in their fields."""

    def of(op: Op) -> st.SearchStrategy[Instruction]:
        fields = st.tuples(*[WORDS] * len(op.fields))
        tail = st.lists(ARGS, max_size=5).map(tuple) if op.tail is not None else st.just(())
        return st.builds(Instruction, st.just(op), fields, tail)

    return st.sampled_from(ops).flatmap(of)


# The table


def test_opcode_enum_is_the_table() -> None:
    assert {op.name.upper(): op.code for op in isa.OPS} == {o.name: o.value for o in Opcode}
    assert isa.OP_BY_CODE == {op.code: op for op in isa.OPS}
    assert isa.OP_BY_NAME == {op.name: op for op in isa.OPS}


@pytest.mark.parametrize("op", isa.OPS, ids=lambda op: op.name)
def test_row_is_complete(op: Op) -> None:
    names = [field.name for field in op.fields]
    assert len(set(names)) == len(names)
    assert [op.word_of(name) for name in names] == list(range(1, 1 + len(names)))
    assert op.tail is None or op.tail.kind is FieldKind.ARG
    for name in [*names, *([op.tail.name] if op.tail else [])]:
        # The pseudo-code mentions every word by its name.
        assert re.search(rf"\b{name}\b", op.meaning), (op.name, name)
    with pytest.raises(KeyError, match=f"instruction '{op.name}' has no field 'nope'"):
        op.word_of("nope")


def test_special_registers_are_values_of_an_argument_word() -> None:
    assert (isa.VOID_REGISTER, isa.VM_REGISTER) == (2**54, 2**54 + 1)
    for register in (isa.VOID_REGISTER, isa.VM_REGISTER):
        assert isa.encode_arg(ArgKind.REGISTER, register) == register
        assert not Arg(ArgKind.REGISTER, register).is_register()
    assert Arg(ArgKind.REGISTER, 3).is_register()
    assert not Arg(ArgKind.IMMEDIATE, 3).is_register()


# Argument words


@given(st.integers(0, 127), st.integers(-isa.VALUE_MAX - 1, isa.VALUE_MAX))
def test_argument_round_trip(kind: int, value: int) -> None:
    word = isa.encode_arg(kind, value)
    assert isa.WORD_MIN <= word <= isa.WORD_MAX
    assert isa.decode_arg(word) == (kind, value)


@given(WORDS)
def test_every_word_decodes(word: int) -> None:
    kind, value = isa.decode_arg(word)
    assert 0 <= kind < 256
    assert -isa.VALUE_MAX - 1 <= value <= isa.VALUE_MAX
    if kind < 128:
        assert isa.encode_arg(kind, value) == word
    if kind > max(ArgKind):
        with pytest.raises(ValueError, match=f"{kind} is not a valid ArgKind"):
            Arg.from_word(word)
    else:
        assert Arg.from_word(word).word == word


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        (ArgKind.REGISTER, 5, 0x0000_0000_0000_0005),
        (ArgKind.REGISTER, 1 << 54, 0x0040_0000_0000_0000),
        (ArgKind.IMMEDIATE, 0, 0x0100_0000_0000_0000),
        (ArgKind.IMMEDIATE, -1, 0x01FF_FFFF_FFFF_FFFF),
        (ArgKind.IMMEDIATE, isa.VALUE_MAX, 0x017F_FFFF_FFFF_FFFF),
        (ArgKind.IMMEDIATE, isa.VALUE_MIN, 0x0180_0000_0000_0001),
        (ArgKind.CONSTANT, 3, 0x0200_0000_0000_0003),
        (ArgKind.FUNCTION, 9, 0x0300_0000_0000_0009),
    ],
)
def test_bits_of_an_argument_word(kind: ArgKind, value: int, word: int) -> None:
    assert isa.encode_arg(kind, value) == Arg(kind, value).word == word


@pytest.mark.parametrize("value", [0, 1, -1, 77, isa.VALUE_MAX, isa.VALUE_MIN])
def test_argument_words_are_those_of_tvm(value: int) -> None:
    relax = pytest.importorskip("tvm.relax")
    builder = relax.ExecBuilder()
    assert builder.r(value) == isa.encode_arg(ArgKind.REGISTER, value)
    assert builder.imm(value) == isa.encode_arg(ArgKind.IMMEDIATE, value)
    assert builder.c(value) == isa.encode_arg(ArgKind.CONSTANT, value)
    assert (builder.void_arg(), builder.vm_state()) == (isa.VOID_REGISTER, isa.VM_REGISTER)


@pytest.mark.parametrize("kind", [-1, 128, 256])
def test_argument_kind_out_of_range(kind: int) -> None:
    with pytest.raises(ValueError, match=rf"argument kind: expected 0\.\.127, got {kind}"):
        isa.encode_arg(kind, 0)


@pytest.mark.parametrize("value", [isa.VALUE_MAX + 1, -isa.VALUE_MAX - 2, 1 << 80])
def test_argument_value_out_of_range(value: int) -> None:
    with pytest.raises(ValueError, match=f"expected a signed 56-bit integer, got {value}"):
        isa.encode_arg(ArgKind.IMMEDIATE, value)


# Instructions


@given(instructions(), st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3))
def test_instruction_round_trip(instr: Instruction, before: list[int], after: list[int]) -> None:
    words = isa.encode(instr)
    assert len(words) == instr.num_words
    assert isa.decode([*before, *words, *after], len(before)) == instr


@given(st.lists(WORDS | st.integers(0, 6), max_size=8), st.integers(-2, 9))
def test_decoding_any_words(words: list[int], offset: int) -> None:
    """The result is an instruction that encodes to the same words, or a ValueError."""
    try:
        instr = isa.decode(words, offset)
    except ValueError:
        return
    assert isa.encode(instr) == words[offset : offset + instr.num_words]


@pytest.mark.parametrize("op", isa.OPS, ids=lambda op: op.name)
def test_every_truncation_is_refused(op: Op) -> None:
    args = (Arg(ArgKind.REGISTER, 1), Arg(ArgKind.IMMEDIATE, -2)) if op.tail else ()
    words = isa.encode(Instruction(op, tuple(range(len(op.fields))), args))
    for count in range(len(words)):
        with pytest.raises(ValueError, match=r"word 0: .*(expected an instruction|left)"):
            isa.decode(words[:count])


@pytest.mark.parametrize(
    ("words", "offset", "message"),
    [
        ([], 0, "word 0: expected an instruction, got the end of the code"),
        ([2, 0], 2, "word 2: expected an instruction, got the end of the code"),
        ([2, 0], -1, "word -1: expected an instruction"),
        ([0, 0], 0, "word 0: unknown opcode 0"),
        ([2, 0, 5], 2, "word 2: unknown opcode 5"),
        ([-1], 0, "word 0: unknown opcode -1"),
        ([4, 0], 0, "word 0: if needs 3 words, 2 are left"),
        ([1, 0, 0], 0, "word 0: call needs 4 words, 3 are left"),
        ([1, 0, 0, -1], 0, "word 0: call has an argument count of -1, 0 words are left"),
        ([1, 0, 0, 3, 0, 0], 0, "word 0: call has an argument count of 3, 2 words are left"),
        ([1, 0, 0, 1, 9 << 56], 0, "9 is not a valid ArgKind"),
    ],
)
def test_malformed_instructions(words: list[int], offset: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        isa.decode(words, offset)


def test_fields_by_name() -> None:
    instr = isa.decode([1, 7, 3, 1, isa.encode_arg(ArgKind.CONSTANT, 2)])
    assert (instr["dst"], instr["func_idx"], instr.args) == (7, 3, (Arg(ArgKind.CONSTANT, 2),))
    with pytest.raises(KeyError, match="instruction 'call' has no field 'cond'"):
        instr["cond"]


# Generated files


def c_values(expressions: list[str], tmp_path: Path) -> list[int]:
    """Evaluate expressions over the header with a C compiler."""
    lines = "\n".join(f'  printf("%lld\\n", (long long)({e}));' for e in expressions)
    source = tmp_path / "values.c"
    source.write_text(
        f"#include <stdio.h>\n#include <relaxvm/isa.h>\nint main(void) {{\n{lines}\n}}\n"
    )
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    command = [
        compiler,
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{get_include()}",
        str(source),
    ]
    children.run([*command, "-o", str(tmp_path / "values")], check=True)
    run = children.run([str(tmp_path / "values")], check=True, capture_output=True, text=True)
    return list(map(int, run.stdout.split()))


def test_header_in_c(tmp_path: Path) -> None:
    expected: dict[str, Any] = {
        **{f"RELAXVM_OP_{o.name}": o.value for o in Opcode},
        **{f"RELAXVM_ARG_{k.name}": k.value for k in ArgKind},
        **{f"RELAXVM_FUNC_{k.name}": k.value for k in FuncKind},
        "RELAXVM_VALUE_MAX": isa.VALUE_MAX,
        "RELAXVM_VALUE_MIN": isa.VALUE_MIN,
        "RELAXVM_VOID_REGISTER": isa.VOID_REGISTER,
        "RELAXVM_VM_REGISTER": isa.VM_REGISTER,
        "RELAXVM_NO_ARITY": isa.NO_ARITY,
        "RELAXVM_CALL_ARGS": isa.OP_BY_NAME["call"].fixed_words,
        "RELAXVM_CALL_FUNC_IDX": isa.OP_BY_NAME["call"].word_of("func_idx"),
        "RELAXVM_IF_FALSE_OFFSET": isa.OP_BY_NAME["if"].word_of("false_offset"),
    }
    for kind in ArgKind:
        for value in (0, 1, -1, isa.VALUE_MAX, isa.VALUE_MIN, -isa.VALUE_MAX - 1):
            word = isa.encode_arg(kind, value)
            text = f"(-INT64_C({-value}))" if value < 0 else f"INT64_C({value})"
            expected[f"RELAXVM_ARG_WORD({kind}, {text})"] = word
            expected[f"RELAXVM_ARG_KIND(INT64_C({word}))"] = kind
            expected[f"RELAXVM_ARG_VALUE(INT64_C({word}))"] = value
    assert c_values(list(expected), tmp_path) == list(expected.values())
