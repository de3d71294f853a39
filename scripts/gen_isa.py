#!/usr/bin/env python3
"""Write what is derived from the instruction table in ``relaxvm/isa.py``.

    python scripts/gen_isa.py          write the files that have changed
    python scripts/gen_isa.py --check  write nothing; fail if a file is stale

The files: ``include/relaxvm/isa.h``, ``relaxvm/_isa.pxd`` and ``docs/isa.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if "relaxvm" not in sys.modules:  # run as a script: the table is that of this checkout
    sys.path.insert(0, str(ROOT))

from relaxvm import isa  # noqa: E402
from relaxvm.formats import binary  # noqa: E402

NOTICE = "Generated from relaxvm/isa.py by scripts/gen_isa.py - do not edit."

ENUMS: tuple[tuple[str, str, type[IntEnum]], ...] = (
    ("OP", "Opcode words.", isa.Opcode),
    ("ARG", "Kinds of an argument word.", isa.ArgKind),
    ("FUNC", "Kinds of an entry of the function table.", isa.FuncKind),
)
"""Prefix of the names, comment, members."""

CONSTANTS: tuple[tuple[str, int, str], ...] = (
    ("VALUE_MAX", isa.VALUE_MAX, "Greatest value of an argument word."),
    ("VALUE_MIN", isa.VALUE_MIN, "Least immediate."),
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
        "The same of older files, which have no section of memory scopes.",
    ),
)


def word_positions() -> Iterator[tuple[str, int, str]]:
    """(name, position in words, comment) of every word of every instruction."""
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
    """``relaxvm/_isa.pxd``: the names of the header, without their prefix.

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


FILES: dict[str, Callable[[], str]] = {
    "include/relaxvm/isa.h": c_header,
    "relaxvm/_isa.pxd": pxd,
}
"""Path from the root of the repository -> what makes its text."""


def stale() -> dict[str, str]:
    """Path -> text of the files that differ from what the table gives."""
    made = {path: make() for path, make in FILES.items()}
    return {
        path: text
        for path, text in made.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text(encoding="utf-8") != text
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate files from the instruction table.")
    parser.add_argument("--check", action="store_true", help="fail if a file is stale")
    check = parser.parse_args().check
    changed = stale()
    for path, text in changed.items():
        if check:
            print(f"{path}: stale; run python scripts/gen_isa.py", file=sys.stderr)
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8", newline="\n")
            print(f"{path}: written")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
