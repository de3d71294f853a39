"""The text forms: TVM's listing, and parsing."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import isa
from relaxvm.dtypes import as_dtype
from relaxvm.errors import FormatError, ParseError
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.formats import text
from relaxvm.executable.formats._layout import LAYOUTS, FieldLook
from relaxvm.executable.formats.text import as_text, format_instruction, parse_text, stats
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from .corpus import CORPUS
from .format_strategies import STREAM_DTYPES, by_hand, odd_executables, text_constants, with_places
from .strategies import executables


def made(constants: list[Any], *code: list[int], functions: Any = None) -> VMExecutable:
    offsets = np.cumsum([0, *map(len, code)])[:-1]
    if functions is None:
        functions = [FunctionInfo(FuncKind.BYTECODE, "main", 0, len(code), 1, 4)]
    return VMExecutable(functions, constants, offsets, [word for words in code for word in words])


# TVM's listing


def test_golden_forms(golden: Callable[[str, str], None]) -> None:
    ex = by_hand()
    golden("everything.txt", as_text(ex))
    golden("everything.complete.txt", as_text(ex, complete=True))
    golden("everything.stats.txt", stats(ex))


def test_the_listing_pads_as_tvm_does() -> None:
    void, vm = isa.VOID_REGISTER, isa.VM_REGISTER
    arg = isa.encode_arg
    ex = made(
        [],
        [1, 2, 1, 0],
        [1, void, 2, 6, 3, void, vm, arg(1, -(2**55)), arg(2, 7), arg(3, 1)],
        [4, 2, 3], [3, -2], [2, void],
        functions=[FunctionInfo(FuncKind.BYTECODE, "main", 0, 5, 1, 4),
                   FunctionInfo(FuncKind.PACKED, "naïve"),
                   FunctionInfo(FuncKind.PACKED, "a.name.that.is.longer.than.the.column"),
                   FunctionInfo(FuncKind.COMPILED, "k", num_args=3)],
    )  # fmt: skip
    assert as_text(ex) == (
        "@main:\n"
        "  call  naïve           in:              dst: %2\n"
        "  call  a.name.that.is.longer.than.the.column in: "
        "%3, %void, %vm, i-36028797018963968, c[7], f[naïve] dst: %void\n"
        "  If    %2, 3\n"
        "  goto  -2\n"
        "  ret   %void\n"
        "\n"
        "@naïve packed_func;\n\n"
        "@a.name.that.is.longer.than.the.column packed_func;\n\n"
        "@k num_inputs=3 vm_tir_func;\n\n"
    )
    assert as_text(VMExecutable([], [], [], [])) == ""


def test_statistics() -> None:
    constants = [np.zeros((2, 3)), np.array(1), Shape((4, 5)), Shape(), 'say "hi"', 7,
                 np.dtype("float16"), np.dtype(bool), 2.5, True, None]  # fmt: skip
    functions = [FunctionInfo(FuncKind.PACKED, "f"), FunctionInfo(FuncKind.PACKED, "g h")]
    assert stats(VMExecutable(functions, constants, [], [])) == (
        "Relax VM executable statistics:\n"
        '  Constant pool (# 11): [[2, 3], scalar, shapetuple[4, 5], shapetuple[], "say "hi"", 7, '
        "float16, bool, 2.5, true, none]\n"
        "  Globals (#2): [f, g h]\n"
    )


def test_one_instruction() -> None:
    ex = by_hand()
    assert format_instruction(ex, 0) == "call  test.add         in: %0, %1, c[0], i-7 dst: %2"
    assert format_instruction(ex, 1) == 'call  "naïve kernel"  in: %vm, f[main], %void dst: %void'
    assert format_instruction(ex, 2) == "If    %2, 3"
    assert format_instruction(ex, 6) == "ret   %3"


def test_listings_describe_defects_in_place() -> None:
    functions = [FunctionInfo(FuncKind.BYTECODE, "main", -3, 9, 0, 1)]
    ex = VMExecutable(functions, [], [0, 2, 5, 99], [9, 9, 1, 2, 77, 0, 1, 1])
    assert as_text(ex) == (
        "@main:\n"
        "  <word 0: unknown opcode 9>\n"
        "  call  <function 77>    in:              dst: %2\n"
        "  <word 5: unknown opcode 0>\n"
        "  <word 99: expected an instruction, got the end of the code>\n\n"
    )
    assert format_instruction(ex, 0) == "<word 0: unknown opcode 9>"
    assert format_instruction(ex, 1) == 'call  "<function 77>"  in:              dst: %2'
    assert format_instruction(ex, 4).startswith("<")


def test_every_instruction_is_printed() -> None:
    assert LAYOUTS.keys() == {op.name for op in isa.OPS}
    for op in isa.OPS:
        shown = [part.name for part in LAYOUTS[op.name] if isinstance(part, FieldLook)]
        tail = [op.tail.name] if op.tail else []
        assert sorted(shown) == sorted([field.name for field in op.fields] + tail)


def test_overlapping_functions_do_not_multiply_the_listing() -> None:
    functions = [FunctionInfo(FuncKind.BYTECODE, f"f{i}", 0, 3) for i in range(3)]
    ex = VMExecutable(functions, [], [0, 2, 4], [2, 0] * 3)
    with pytest.raises(FormatError, match="overlap: they list 9 instructions, there are 3"):
        as_text(ex)


# Parsing the complete form


@given(executables(savable=False))
def test_text_round_trip(ex: VMExecutable) -> None:
    printed = as_text(ex, complete=True)
    assert parse_text(printed) == ex
    assert as_text(parse_text(printed), complete=True) == printed


@settings(max_examples=200)
@given(odd_executables(text_constants(), codec=None))
def test_text_round_trip_of_any_structure(ex: VMExecutable) -> None:
    printed = as_text(ex, complete=True)
    again = parse_text(printed)
    assert again == ex
    assert again.debug == ex.debug
    assert as_text(again, complete=True) == printed
    # Carriage returns before line feeds, as some editors write, have no effect.
    assert parse_text(printed.replace("\n", "\r\n")) == ex


@pytest.mark.parametrize("case", CORPUS.values(), ids=str)
def test_corpus_round_trips(case: Any) -> None:
    assert parse_text(as_text(case.executable, complete=True)) == case.executable


@pytest.mark.parametrize("name", STREAM_DTYPES)
@pytest.mark.parametrize("size", [64, 65], ids=["numbers", "base64"])
def test_elements_keep_every_bit(name: str, size: int) -> None:
    dtype = as_dtype(name)
    high = 2 if name == "bool" else 256
    bits = np.random.default_rng(7).integers(0, high, size * dtype.itemsize).astype(np.uint8)
    array = bits.view(dtype)
    printed = as_text(made([array], [2, 0]), complete=True)
    assert ("base64" in printed) == (size == 65)
    (got,) = parse_text(printed).constants
    assert got.dtype == dtype
    assert got.tobytes() == array.tobytes()
    assert not got.flags.writeable


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.array([1.0, 0.1, -0.0], np.float32), "tensor float32[3] {1.0, 0.1, -0.0}"),
        (np.array([np.inf, -np.inf, np.nan]), "tensor float64[3] {inf, -inf, nan}"),
        (np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32),
         "tensor float32[2] {0x7fc00001, 0xffc00000}"),
        (np.array([1 + 2j, complex(-0.0, -np.inf)]), "tensor complex128[2] {1.0+2.0j, -0.0-infj}"),
        (np.array([[True], [False]]), "tensor bool[2, 1] {true, false}"),
        (np.array(-5, np.int8), "tensor int8[] {-5}"),
        (np.zeros((0, 2), np.int8), "tensor int8[0, 2] {}"),
        (np.array([1, 2], ">i2"), 'tensor ">i2"[2] base64\n  | AAEAAg=='),
        (np.array(["2020-01-01"], "M8[D]"), 'tensor "<M8[D]"[1] base64\n  | VkcAAAAAAAA='),
        (np.array([1.5, 3e38], as_dtype("bfloat16")), "tensor bfloat16[2] {1.5, 3.00406e+38}"),
        (Shape((2, -1)), "shape [2, -1]"),
        (Shape(), "shape []"),
        ('a "b"\n\\\x00é\u2028\ud800', r'string "a \"b\"\n\\\x00é\u2028\ud800"'),
        (np.dtype("float16"), "dtype float16"),
        (np.dtype(">f4"), 'dtype ">f4"'),
        (as_dtype("float8_e5m2"), "dtype float8_e5m2"),
        (2**64 - 1, "int 18446744073709551615"),
        (-(2**64), "int -0x10000000000000000"),
        (1.5, "float 1.5"),
        (1e300, "float 1e+300"),
        (-np.inf, "float -inf"),
        (struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0], "float 0x7ff8000000000001"),
        (True, "bool true"),
        (None, "none"),
    ],
)  # fmt: skip
def test_literals(value: Any, shown: str) -> None:
    ex = made([value], [2, 0])
    printed = as_text(ex, complete=True)
    assert f"\nc[0] = {shown}\n" in printed
    assert parse_text(printed) == ex


def test_large_integers_take_linear_time() -> None:
    ex = made([10**20_000], [2, 0])
    assert parse_text(as_text(ex, complete=True)) == ex


def test_odd_names_are_quoted() -> None:
    ex = VMExecutable(
        [FunctionInfo(FuncKind.BYTECODE, 'a "b"\n:', 0, 2, 2, 3, ("x y", "")),
         FunctionInfo(FuncKind.PACKED, ""),
         FunctionInfo(FuncKind.PACKED, "cutlass::gemm<float, 16>"),
         FunctionInfo(FuncKind.PACKED, "std::sort")],
        [], [0, 5], [1, 2, 2, 1, isa.encode_arg(3, 0), 1, 2, 3, 0],
    )  # fmt: skip
    printed = as_text(ex, complete=True)
    assert printed == (
        "relaxvm text 1\n\n"
        '@"a \\"b\\"\\n:" num_inputs=2 registers=3 params=["x y", ""]:\n'
        '  call  "cutlass::gemm<float, 16>" in: f["a \\"b\\"\\n:"] dst: %2\n'
        "  call  std::sort        in:              dst: %2\n\n"
        '@"" packed_func;\n\n'
        '@"cutlass::gemm<float, 16>" packed_func;\n\n'
        "@std::sort packed_func;\n\n"
    )
    assert parse_text(printed) == ex


def test_attributes_that_are_not_the_usual_ones() -> None:
    ex = VMExecutable(
        [FunctionInfo(FuncKind.BYTECODE, "second", 1, 2, -2, -5),
         FunctionInfo(FuncKind.PACKED, "p", 1, 2, 3, 4, ("x",)),
         FunctionInfo(FuncKind.BYTECODE, "first", 0, 1, 1, 1),
         FunctionInfo(FuncKind.COMPILED, "k", 0, 9, 2, 8)],
        ["global"], [0, 2], [2, 0, 2, 1], {0: "a b"},
    )  # fmt: skip
    printed = as_text(ex, complete=True)
    assert printed == (
        "relaxvm text 1\n\n"
        'c[0] = string "global"\n'
        'scope c[0] = "a b"\n\n'
        "@second num_inputs=-2 registers=-5 start=1:\n  ret   %1\n\n"
        "@p num_inputs=3 registers=4 params=[x] start=1 end=2 packed_func;\n\n"
        "@first num_inputs=1 registers=1 start=0:\n  ret   %0\n\n"
        "@k num_inputs=2 registers=8 end=9 vm_tir_func;\n\n"
    )
    assert parse_text(printed) == ex


B = FuncKind.BYTECODE


def broken(
    functions: list[FunctionInfo], offsets: list[int], words: list[int]
) -> VMExecutable:
    return VMExecutable(functions, [], offsets, words)


@pytest.mark.parametrize(
    ("ex", "message"),
    [
        (broken([FunctionInfo(B, "f", 0, 1), FunctionInfo(FuncKind.PACKED, "f")], [0], [2, 0]),
         "two functions have the name 'f'"),
        (broken([FunctionInfo(B, "f", 0, 1)], [0, 2], [2, 0, 2, 0]),
         "the functions end at instruction 1, the code at 2"),
        (broken([FunctionInfo(B, "f", 1, 2)], [0, 2], [2, 0, 2, 0]),
         "function 'f' has instructions 1 to 2, expected a start at 0"),
        (broken([FunctionInfo(B, "f", 0, 0), FunctionInfo(B, "g", 0, -1)], [], []),
         "function 'g' has instructions 0 to -1"),
        (broken([FunctionInfo(B, "f", 0, 1)], [0], [7, 0]), "pc 0: word 0: unknown opcode 7"),
        (broken([FunctionInfo(B, "f", 0, 1)], [0], [2, 0, 0]),
         "pc 0: the instruction takes 2 words, up to the next are 3"),
        (broken([FunctionInfo(B, "f", 0, 1)], [1], [0, 2, 0]),
         "there are words before the first instruction"),
        (broken([], [], [0]), "there are words before the first instruction"),
        (broken([FunctionInfo(B, "f", 0, 1)], [0], [1, 0, 5, 0]),
         "pc 0: function 5 is not in the table"),
        (VMExecutable([], [], [], [], {0: "global"}),
         "the memory scope of constant 0, which does not exist"),
        (VMExecutable([], [5, object()], [], []), "^constant 1: a object has no text form"),
        (VMExecutable([], [np.array([None])], [], []), "^constant 0: dtype object has no text"),
        (VMExecutable([], [np.zeros(1, [("a", "i4")])], [], []), "^constant 0: dtype .* has no"),
    ],
)  # fmt: skip
def test_executables_that_the_complete_form_cannot_express(ex: VMExecutable, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        as_text(ex, complete=True)


# Parsing the plain listing, if it has enough information


PLAIN = [
    case
    for case in CORPUS.values()
    if not case.executable.constants
    and all(re.fullmatch(r"[\w.]+", info.name) for info in case.executable.functions)
]


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_plain_listings_without_constants(case: Any) -> None:
    printed = as_text(case.executable)
    again = parse_text(printed)
    assert as_text(again) == printed
    for info in case.executable:
        got, want = (
            [instr for _, instr in ex.instructions(info.name)] for ex in (again, case.executable)
        )
        assert got == want


@pytest.mark.parametrize(
    ("body", "num_inputs", "registers"),
    [
        ("ret %0", 1, 1),
        ("ret %void", 0, 0),
        ("call f in: dst: %0\nret %0", 0, 1),
        ("call f in: %0 dst: %2\nret %2", 2, 3),
        ("call f in: %1 dst: %0\nret %0", 2, 2),
        ("call f in: %0 dst: %0\ncall f in: %0 dst: %1\nret %1", 1, 2),
        ("call f in: dst: %3\ncall f in: dst: %4\nret %4", 3, 5),
        ("call f in: dst: %5\ncall f in: dst: %3\nret %5", 0, 6),
        ("If %2, 2\ngoto 1\nret %2", 3, 3),
        ("call f in: %vm, %void dst: %void\nret %7", 8, 8),
    ],
)
def test_derived_headers(body: str, num_inputs: int, registers: int) -> None:
    info = parse_text(f"@main:\n{body}\n\n@f packed_func;\n").function("main")
    assert (info.num_args, info.register_file_size, info.param_names) == (num_inputs, registers, ())


def test_a_listing_by_hand() -> None:
    ex = parse_text(
        """
        # Blank lines and comments may stand anywhere.
        c[0] = float 0.5  # half
        @main num_inputs=1:
          call scale in:%0,c[0],i-0x10 dst:%1
          if %1, 2  # a small letter will do
          goto -1
          ret %1
        @scale packed_func;
        """
    )
    assert as_text(ex) == (
        "@main:\n  call  scale            in: %0, c[0], i-16 dst: %1\n  If    %1, 2\n"
        "  goto  -1\n  ret   %1\n\n@scale packed_func;\n\n"
    )
    assert ex.constants == (0.5,)


# Errors


def bad_listings() -> dict[str, str]:
    """Return name -> listing with its error marked."""
    path = Path(__file__).with_name("bad_listings.txt")
    _, *cases = path.read_text(encoding="utf-8").split("\n== ")
    return {name: body for name, _, body in (case.partition("\n") for case in cases)}


@pytest.mark.parametrize("name", bad_listings())
def test_errors_name_the_place(name: str) -> None:
    drawn = bad_listings()[name].split("\n")
    (at,) = (i for i, line in enumerate(drawn) if line.lstrip().startswith("^ "))
    column = drawn[at].index("^") + 1
    message = drawn[at][column + 1 :]
    del drawn[at]
    with pytest.raises(ParseError) as caught:
        parse_text("\n".join(drawn), filename="model.rvm")
    error = caught.value
    assert (error.line, error.column) == (at, column)
    head, shown, caret = str(error).split("\n")
    assert head == f"model.rvm:{at}:{column}: {message}"
    assert shown == "  " + drawn[at - 1]
    assert caret == " " * (column + 1) + "^"


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        (f"@f:\nret %0x{'f' * 9000}", 5, r"expected a signed integer of 64 bits, got '0xfff"),
        (f"@f:\nret %{'9' * 9000}", 5, "expected a register, got '%999"),
        (f"\nc[0] = tensor int8[{'1, ' * 99}1] {{1}}", 15, "expected at most .* dimensions"),
        (f"@f:\ncall {'g' * 200} in: dst: %0", 6, "unknown function 'ggg.*\\.\\.\\.'"),
        (f"\nc[0] = tensor float64[1] {{{'1' * 401}}}", 427, "expected ',', got '1}'"),
    ],
)
def test_errors_in_long_lines(source: str, column: int, message: str) -> None:
    with pytest.raises(ParseError, match=rf"^<text>:2:{column}: {message}") as caught:
        parse_text(source)
    assert (caught.value.line, caught.value.column) == (2, column)
    assert len(str(caught.value)) < 400


def test_carets_stand_under_tabs_and_far_to_the_right() -> None:
    with pytest.raises(ParseError) as caught:
        parse_text("@f:\n\tret\t5\n")
    assert str(caught.value).split("\n")[1:] == ["  \tret\t5", "  \t   \t^"]
    wide = "@f:\n call f in: " + ", ".join(["%0"] * 5000) + ", x dst: %0\n"
    with pytest.raises(ParseError) as caught:
        parse_text(wide)
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) <= 102
    assert shown[caret.index("^")] == "x"


# Hostile text


HOSTILE = {
    "long name": "@" + "a" * 1_000_000 + ":\n ret " + "b" * 1_000_000,
    "near names": "".join(f"@{'a' * 90}{i} packed_func;\n" for i in range(3000))
    + "@m:\ncall " + "a" * 90 + " in: dst: %0",
    "brackets": "c[0] = shape " + "[" * 200_000,
    "dimensions": "c[0] = tensor int8[" + "1, " * 200_000 + "1] {1}",
    "elements": "c[0] = tensor float32[200000] {" + "1e308, " * 199_999 + "}",
    "digits": "c[0] = int " + "9" * 1_000_000,
    "decimals": "c[0] = float 1." + "0" * 1_000_000,
    "escapes": 'c[0] = string "' + "\\" * 1_000_001,
    "blanks": " " * 500_000 + "\n" + "\t \t" * 200_000 + "x",
    "comments": "#" * 500_000 + "\n" + "#\n" * 200_000 + "x",
    "quotes": '@"' + '\\"' * 300_000,
    "attributes": "@f " + "start=1 " * 100_000,
    "bars": "c[0] = tensor int8[] base64\n" + "|\n" * 200_000,
    "nulls": "\0" * 500_000,
    "versions": "\n" * 100_000 + "relaxvm text 1\n" * 50_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_rejected_quickly(name: str) -> None:
    start = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse_text(HOSTILE[name])
    assert len(str(caught.value)) < 1000
    # Takes a tenth of a second, or minutes if anything is quadratic.
    assert time.process_time() - start < 30


@settings(max_examples=300)
@given(st.data())
def test_damaged_text_is_read_or_refused(data: st.DataObject) -> None:
    source = as_text(data.draw(st.sampled_from([by_hand(), with_places()])), complete=True)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(source)))
        drop = data.draw(st.integers(0, 8))
        put = data.draw(st.text("0123456789abcdef%@[]{}(),:;=|#\"\\ \n\tixrc.-_é\0", max_size=4))
        source = source[:at] + put + source[at + drop :]
    try:
        ex = parse_text(source)
    except ParseError:
        return
    again = parse_text(as_text(ex, complete=True))
    assert again == ex
    assert again.debug == ex.debug


def test_the_module_offers_the_parser() -> None:
    assert text.parse_text is parse_text
