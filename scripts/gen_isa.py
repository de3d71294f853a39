#!/usr/bin/env python3
"""Generate the C header, the Cython declarations and the reference page of the instruction table in
``relaxvm/isa.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import IntEnum

from generated import Files, main, table

from relaxvm import isa
from relaxvm.executable import VMExecutable
from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.executable.formats import binary
from relaxvm.executable.formats.text import format_instruction

NOTICE = "Generated from relaxvm/isa.py by scripts/gen_isa.py - do not edit."

ENUMS: tuple[tuple[str, str, type[IntEnum]], ...] = (
    ("OP", "Opcode words.", isa.Opcode),
    ("ARG", "Kinds of an argument word.", isa.ArgKind),
    ("FUNC", "Kinds of an entry of the function table.", isa.FuncKind),
)
"""Prefix of the names, comment, members."""

CONSTANTS: tuple[tuple[str, int, str], ...] = (
    ("VALUE_MAX", isa.VALUE_MAX, "Largest value of an argument word."),
    ("VALUE_MIN", isa.VALUE_MIN, "Smallest immediate."),
    ("VALUE_MASK", isa.VALUE_MASK, "Bits of the value in an argument word."),
    ("VOID_REGISTER", isa.VOID_REGISTER, 'Register number for "no value" and "discard".'),
    ("VM_REGISTER", isa.VM_REGISTER, "Register number of the virtual machine."),
    ("NO_ARITY", isa.NO_ARITY, "num_args of a function whose arity is unknown."),
)

MAGICS: tuple[tuple[str, int, str], ...] = (
    ("FILE_MAGIC", binary.MAGIC, "First word of a file."),
    (
        "FILE_MAGIC_WITHOUT_SCOPES",
        binary.MAGIC_WITHOUT_SCOPES,
        "First word of older files, which have no section of memory scopes.",
    ),
)


def word_positions() -> Iterator[tuple[str, int, str]]:
    """Yield (name, position in words, comment) for every word of every instruction."""
    for op in isa.OPS:
        for i, field in enumerate(op.fields):
            yield f"{op.name}_{field.name}".upper(), 1 + i, field.kind.value
        if op.tail is not None:
            tail = f"{op.name}_{op.tail.name}".upper()
            yield f"{tail}_COUNT", op.fixed_words - 1, f"number of {op.tail.name}"
            yield tail, op.fixed_words, f"first of {op.tail.name}; each: {op.tail.kind.value}"


def c_int(value: int) -> str:
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"


def c_header() -> str:
    """``include/relaxvm/isa.h``"""
    out = [
        f"/* {NOTICE} */",
        "#ifndef RELAXVM_ISA_H_",
        "#define RELAXVM_ISA_H_",
        "",
        "#include <stdint.h>",
    ]
    for prefix, comment, members in ENUMS:
        out += ["", f"/* {comment} */", "enum {"]
        out += [f"  RELAXVM_{prefix}_{m.name} = {m.value}," for m in members]
        out += ["};"]
    out += ["", "/* Position of each word, from the start of its instruction. */", "enum {"]
    out += [f"  RELAXVM_{name} = {at}, /* {text} */" for name, at, text in word_positions()]
    out += ["};", ""]
    for name, value, comment in CONSTANTS:
        out += [f"/* {comment} */", f"#define RELAXVM_{name} {c_int(value)}"]
    out += [
        "",
        f"/* An argument word: kind in the upper {64 - isa.KIND_SHIFT} bits, sign-extended value "
        f"in the lower {isa.KIND_SHIFT}. */",
        f"#define RELAXVM_KIND_SHIFT {isa.KIND_SHIFT}",
        "#define RELAXVM_ARG_WORD(kind, value)                        \\",
        "  ((int64_t)(((uint64_t)(kind) << RELAXVM_KIND_SHIFT) |      \\",
        "             ((uint64_t)(value) & (uint64_t)RELAXVM_VALUE_MASK)))",
        "#define RELAXVM_ARG_KIND(word) ((int)((uint64_t)(word) >> RELAXVM_KIND_SHIFT))",
        "/* (x ^ sign) - sign extends the sign bit without a shift of a negative number. */",
        "#define RELAXVM_ARG_VALUE(word)                                                  \\",
        "  ((int64_t)(((uint64_t)(word) & (uint64_t)RELAXVM_VALUE_MASK) ^                 \\",
        "             (uint64_t)(RELAXVM_VALUE_MAX + 1)) - (RELAXVM_VALUE_MAX + 1))",
        "",
    ]
    for name, value, comment in MAGICS:
        out += [f"/* {comment} */", f"#define RELAXVM_{name} UINT64_C(0x{value:016X})"]
    out += [
        "",
        "#endif /* RELAXVM_ISA_H_ */",
        "",
    ]
    return "\n".join(out)


def pxd() -> str:
    """``relaxvm/core/_isa.pxd``: the names of the header, without their prefix.

    The integers are members of enums, which Cython can turn into cases of a ``switch``.
    """
    out = [
        f"# {NOTICE}",
        "",
        "from libc.stdint cimport int64_t",
        "",
        "",
        'cdef extern from "relaxvm/isa.h" nogil:',
    ]
    for prefix, comment, members in ENUMS:
        out += [f"    # {comment}", "    enum:"]
        out += [f'        {prefix}_{m.name} "RELAXVM_{prefix}_{m.name}"' for m in members]
        out += [""]
    out += ["    # Position of each word, from the start of its instruction.", "    enum:"]
    out += [f'        {name} "RELAXVM_{name}"' for name, _, _ in word_positions()]
    out += ['        KIND_SHIFT "RELAXVM_KIND_SHIFT"', ""]
    out += [f'    const int64_t {name} "RELAXVM_{name}"' for name, _, _ in CONSTANTS]
    out += [
        "",
        '    int64_t ARG_WORD "RELAXVM_ARG_WORD" (int kind, int64_t value)',
        '    int ARG_KIND "RELAXVM_ARG_KIND" (int64_t word)',
        '    int64_t ARG_VALUE "RELAXVM_ARG_VALUE" (int64_t word)',
        "",
    ]
    return "\n".join(out)


# The reference page

INTRODUCTION = """\
The code of an executable is an array of signed 64-bit words. An instruction is a sequence of words:
the opcode, then its fields in the order below; arguments come last, after a word with their number.
`instr_offset` holds the position, in words, of each instruction. `pc` is the index of an
instruction.

Every call of a function has its own register file, `R`. The first registers hold the arguments; the
others read as `None` until they are written. `F` is the function table of the executable and `C`
its constant pool.
"""

KIND_MEANINGS = {
    isa.ArgKind.REGISTER: ("`R[value]`, or a special register", "%3"),
    isa.ArgKind.IMMEDIATE: ("the int `value`, within ±(2<sup>55</sup> - 1)", "i-7"),
    isa.ArgKind.CONSTANT: ("`C[value]`", "c[0]"),
    isa.ArgKind.FUNCTION: ("`F[value]`, as a callable value", "f[main]"),
}

FUNC_MEANINGS = {
    isa.FuncKind.PACKED: "a function outside of the executable, which a virtual machine looks up "
    "by name when it is created",
    isa.FuncKind.BYTECODE: "instructions `start_instr` to `end_instr` of this executable",
    isa.FuncKind.COMPILED: "a function compiled to VM-TIR, in an imported module",
}

NOTES = """\
- The condition of `if` is an int or a bool. A tensor there is a `TypeError`;
  `vm.builtin.read_if_cond` turns one into a bool.
- The offset of `goto` is not 0, that of `if` is at least 2, and both targets are inside the same
  function: the verifier rejects anything else.
- A call of a bytecode function starts a new frame; a call of any other function is a call of a
  Python function. Calls of common `vm.builtin.*` functions run inside the dispatch loop.
"""


def boxes(*labels: str) -> list[str]:
    """Draw the words of an instruction as a row of boxes, numbered from its start."""
    widths = [len(label) + 2 for label in labels]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    row = "|" + "|".join(f" {label} " for label in labels) + "|"
    numbers = "".join(f" {i:<{width}}" for i, width in enumerate(widths)).rstrip()
    return [numbers, rule, row, rule]


def instruction_section(op: isa.Op, example: str) -> list[str]:
    labels = [f"opcode {op.code}", *(field.name for field in op.fields)]
    rows = [(f"`{field.name}`", field.kind.value) for field in op.fields]
    if op.tail is not None:
        labels += ["count", f"{op.tail.name} ..."]
        rows += [("`count`", f"number of {op.tail.name}")]
        rows += [(f"`{op.tail.name}`", op.tail.kind.value)]
    return [
        f"### {op.name}",
        "",
        "```text",
        *boxes(*labels),
        "```",
        "",
        f"`{op.meaning}`",
        "",
        *table(("word", "meaning"), rows),
        "",
        f"Text: `{example.strip()}`",
        "",
    ]


def example() -> VMExecutable:
    """Return an executable with every opcode and every kind of argument."""
    builder = ExecBuilder()
    with builder.function("main", num_inputs=2, param_names=["x", "n"]):
        done = builder.label()
        builder.emit_if(builder.r(1), done)
        less = [builder.r(1), builder.imm(-1)]
        builder.emit_call("demo.add", less, dst=builder.r(2))
        again = [builder.vm_state(), builder.f("main"), builder.convert_constant(0.5), builder.r(2)]
        builder.emit_call("demo.apply", again, dst=builder.r(3))
        end = builder.label()
        builder.emit_goto(end)
        builder.bind(done)
        builder.emit_call("vm.builtin.copy", [builder.r(0)], dst=builder.r(3))
        builder.bind(end)
        builder.emit_ret(builder.r(3))
    return builder.get()


def encoded(executable: VMExecutable) -> list[str]:
    """Return a listing with the words of each instruction."""
    out = []
    for pc, instruction in executable.instructions():
        words = [
            hex(word) if word >> isa.KIND_SHIFT else str(word) for word in isa.encode(instruction)
        ]
        out += [
            f"{pc}  {format_instruction(executable, pc).rstrip()}",
            f"     {' '.join(words)}",
        ]
    return out


def page() -> str:
    """``docs/isa.md``"""
    executable = example()
    lines = {
        instruction.op.name: format_instruction(executable, pc)
        for pc, instruction in executable.instructions()
    }
    kind_bits = 64 - isa.KIND_SHIFT
    out = [f"<!-- {NOTICE} -->", "", "# Instruction set", "", INTRODUCTION, "## Instructions", ""]
    for op in isa.OPS:
        out += instruction_section(op, lines[op.name])
    out += [NOTES, "## Argument words", ""]
    out += [f"The upper {kind_bits} bits hold the kind, the others the value, as a signed integer:"]
    out += ["", "```text"]
    out += [f"63      {isa.KIND_SHIFT} {isa.KIND_SHIFT - 1}{' ' * 46}0"]
    out += [
        "+---------+" + "-" * 49 + "+",
        f"|  kind   |{'value':^49}|",
        "+---------+" + "-" * 49 + "+",
    ]
    out += ["```", ""]
    out += table(
        ("kind", "name", "the argument is", "text"),
        (
            (str(kind.value), kind.name, what, f"`{look}`")
            for kind, (what, look) in KIND_MEANINGS.items()
        ),
    )
    out += ["", "Fields hold plain register numbers, which are argument words of kind 0.", ""]
    out += ["## Special registers", ""]
    out += table(
        ("number", "text", "meaning"),
        [
            (
                "2<sup>54</sup>",
                "`%void`",
                "`None` as an argument or result; as a destination, the result is discarded",
            ),
            ("2<sup>54</sup> + 1", "`%vm`", "the virtual machine; read-only"),
        ],
    )
    out += ["", "## Function table", ""]
    out += table(
        ("kind", "name", "the function is"),
        ((str(kind.value), kind.name, what) for kind, what in FUNC_MEANINGS.items()),
    )
    out += [
        "",
        f"An entry also has the number of arguments ({isa.NO_ARITY} if it is unknown), the number",
        "of registers, and the names of the parameters.",
    ]
    out += [
        "",
        "## An example",
        "",
        "As text, which `as_text()` and TVM print:",
        "",
        "```text",
    ]
    out += executable.as_text().rstrip().splitlines()
    out += ["```", ""]
    out += [
        "With the pc and the words of each instruction; words with a kind are in hexadecimal:",
        "",
    ]
    out += ["```text", *encoded(executable), "```", ""]
    out += [
        "C code finds these numbers in `<relaxvm/isa.h>`, which is in the directory",
        "`relaxvm.get_include()`, Cython code in `relaxvm/core/_isa.pxd`, and Python code in",
        "`relaxvm.isa`.",
        "",
    ]
    return "\n".join(out)


FILES: Files = {
    "include/relaxvm/isa.h": c_header,
    "relaxvm/core/_isa.pxd": pxd,
    "docs/isa.md": page,
}


if __name__ == "__main__":
    sys.exit(main(FILES))
