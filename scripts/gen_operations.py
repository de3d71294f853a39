#!/usr/bin/env python3
"""Generate the Cython declarations, the emitters and the reference page of the operations in
``relaxvm/core/operations.py``.

This runs before the core is built, so it does not import extension modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from generated import Files, main, table

from relaxvm.core.operations import (
    BUILTINS,
    OPERATIONS,
    REWRITINGS,
    Operand,
    OperandKind,
    Operation,
)

NOTICE = "Generated from relaxvm/core/operations.py by scripts/gen_operations.py - do not edit."

POINTERS: Final = {
    OperandKind.OBJECT: "PyObject*",
    OperandKind.UFUNC: "PyObject*",
    OperandKind.FUNCTION: "rvm_func*",
    OperandKind.SITE: "rvm_site*",
}
"""C types of the operands that are pointers."""


def builtin_member(name: str) -> str:
    """The enum member of a builtin: how the translator treats a call of it."""
    return f"AS_{name.rpartition('.')[2].upper()}"


def predicate(name: str, argument: str, question: str, members: Iterable[str]) -> list[str]:
    lines = [
        "",
        "",
        f"cdef inline bint {name}({argument}) noexcept:",
        f'    """{question}"""',
        f"    return {argument.split()[-1]} in (",
    ]
    return [*lines, *(f"        {member}," for member in members), "    )"]


def operations_pxd() -> str:
    """``relaxvm/core/_operations.pxd``"""
    out = [
        f"# {NOTICE}",
        "",
        "from libc.stdint cimport int64_t",
        "",
        "# The first word of an operation.",
        "cdef enum:",
        *(f"    OP_{op.name.upper()} = {op.code}" for op in OPERATIONS),
        "",
        "# Positions that are the same in all operations: of the first word, and of the distance",
        "# to the fallback in operations that have one.",
        "cdef enum:",
        "    OPCODE = 0",
        "    FALLBACK = 1",
        "",
        "# Positions of the other operands, from the start of the operation.  A tail stands after",
        "# its count; NAME_WORDS is the length of an operation without tail.",
        "cdef enum:",
    ]
    for op in OPERATIONS:
        for operand, position in op.positions().items():
            if operand == "fallback":
                assert position == 1, op
            else:
                out.append(f"    {op.name.upper()}_{operand.upper()} = {position}")
        if op.tail is None:
            out.append(f"    {op.name.upper()}_WORDS = {op.fixed_words}")
    out += [
        "",
        "# What the translator may do with an instruction; see REWRITINGS.",
        "cdef enum:",
        *(f"    REWRITE_{r.name.upper()} = {1 << i}" for i, r in enumerate(REWRITINGS)),
        "",
        "# How a call is translated: as a call, or, of a builtin, as its operation.",
        "cdef enum:",
        *(f"    {name}" for name in ("AS_CALL", "AS_VM", "AS_NATIVE", "AS_UFUNC")),
        f"    AS_FIRST_BUILTIN  # that of BUILTINS[0], {BUILTINS[0]}",
    ]
    out += [
        f"    {builtin_member(name)} = AS_FIRST_BUILTIN + {i}" for i, name in enumerate(BUILTINS)
    ]
    out += predicate("has_fallback", "int64_t op", "Whether an operation has a fallback.",
                     (f"OP_{op.name.upper()}" for op in OPERATIONS if op.fallback))  # fmt: skip
    out += predicate("has_dst", "int64_t op", "Whether an operation has a result.",
                     (f"OP_{op.name.upper()}" for op in OPERATIONS if op.has_dst))  # fmt: skip
    with_result = {op.builtin for op in OPERATIONS if op.has_dst}
    out += predicate("is_check", "int kind", "Whether the operation for a builtin has no result.",
                     (builtin_member(b) for b in BUILTINS if b not in with_result))  # fmt: skip
    reading = {op.builtin for op in OPERATIONS for operand in op.operands
               if operand.kind is OperandKind.SOURCE}  # fmt: skip
    out += predicate("reads_register", "int kind",
                     "Whether the operation for a builtin reads an argument from a register.",
                     (builtin_member(b) for b in BUILTINS if b in reading))  # fmt: skip
    return "\n".join([*out, ""])


def quickened_py() -> str:
    """``relaxvm/core/_quickened.py``"""
    return "\n".join([
        f'"""{NOTICE}"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        '__all__ = ["BUILTINS"]',
        "",
        "BUILTINS: Final = (",
        *(f'    "{name}",' for name in BUILTINS),
        ")",
        '"""`operations.BUILTINS`: the translator takes them from here, without the table."""',
        "",
    ])  # fmt: skip


def emitter(op: Operation) -> list[str]:
    """The function that emits an operation, up to the count of its tail."""
    parameters = ["Words* words"]
    stores = [f"    at[OPCODE] = OP_{op.name.upper()}"]
    positions = op.positions()
    for operand in op.fixed:
        position = f"{op.name.upper()}_{operand.name.upper()}"
        value = operand.name
        if operand.kind is OperandKind.FALLBACK:
            position, value = "FALLBACK", "0"
        elif operand.kind in POINTERS:
            parameters.append(f"{POINTERS[operand.kind]} {operand.name}")
            value = f"<int64_t>{operand.name}"
        else:
            parameters.append(f"int64_t {operand.name}")
        stores.append(f"    at[{position}] = {value}")
        for more in range(1, operand.words):
            stores.append(f"    at[{position} + {more}] = 0")
    length = f"{op.name.upper()}_{op.tail.name.upper() if op.tail else 'WORDS'}"
    assert op.tail is None or positions[op.tail.name] == op.fixed_words
    head = f"cdef inline int emit_{op.name}("
    return [
        "",
        "",
        *wrapped(head, parameters, ") except -1:"),
        f"    cdef int64_t* at = extend(words, {length})",
        *stores,
        "    return 0",
    ]


def wrapped(head: str, items: list[str], end: str) -> list[str]:
    """Lines of at most 100 characters, with the items below each other's start."""
    lines = [head]
    for i, item in enumerate(items):
        text = item + (end if i == len(items) - 1 else ",")
        space = " " if lines[-1] != head and not lines[-1].endswith("(") else ""
        if len(lines[-1]) + len(space) + len(text) > 100:
            lines.append(" " * len(head) + text)
        else:
            lines[-1] += space + text
    return lines


def emit_pxd() -> str:
    """``relaxvm/core/_emit.pxd``"""
    out = [
        f"# {NOTICE}",
        '"""Emitters: append an operation to the code.',
        "",
        "The distance to a fallback is 0 until the fallback is there.  The caller appends the",
        "items of a variadic operation, as many as `count` says.",
        '"""',
        "",
        "from cpython.object cimport PyObject",
        "from libc.stdint cimport int64_t",
        "",
        "from ._code cimport rvm_func, rvm_site",
        "from ._operations cimport *",
        "from ._words cimport Words, extend",
    ]
    for op in OPERATIONS:
        out += emitter(op)
    return "\n".join([*out, ""])


# The reference page

INTRODUCTION = """\
An executable's four [instructions](isa.md) are not what runs. When a virtual machine is created,
the translator turns them into the *operations* on this page, which the dispatch loop of the core
runs: jumps, calls with their callee resolved, and one operation for each builtin that the loop can
run by itself. They are an implementation detail of this version: no file holds them, and they may
change in any release.

An operation is a run of signed 64-bit words: its code, its operands in the order given here, and
for a variadic one a count and that many items. `relaxvm dis --translated FILE` and
`vm["main"].translated` show the operations of a function.

A function's code is its *main part*, in the order of the source, and then its *fallbacks*. An
operation with a fallback takes it where its operands are not of the expected kind. The fallback
does the same work by a call of the builtin's Python reference, which gives the result or raises
the error, and jumps back to the end of the operation. So an operation with a fallback never raises.
"""

EXAMPLE_LISTING = """\
@main: 1 parameter, 2 registers
   0  pc 0  check_match       x=%0 ndim=2 dtype=float32 heap=None last_slot=-1 dims=(= 2, any)  fallback @21
  12  pc 2  shape_of          dst=%1 tensor=%0 site=#0  fallback @38
  17  pc 3  ret               result=%1 registers=1
fallbacks:
  21  pc 0  check_tensor      x=%0 ndim=2 dtype=float32  fallback @46
  26  pc 1  match_shape       x=%0 heap=None last_slot=-1 dims=(= 2, any)  fallback @56
  36  pc 1  goto              distance=@12
  38  pc 2  call              dst=%1 callee=f[vm.builtin.shape_of] area=3 args=(%0)
  44  pc 2  goto              distance=@17
  46  pc 0  call_void         callee=f[vm.builtin.check_tensor_info] area=3 args=(%0, 2, float32, 'x')
  54  pc 0  goto              distance=@26
  56  pc 1  call_void         callee=f[vm.builtin.match_shape] area=3 args=(%0, None, 2, 0, 2, 2, 0, 'x')
  68  pc 1  goto              distance=@36
"""  # noqa: E501
"""What `str(vm["main"].translated)` prints for the function in the example; a test compares."""

EXAMPLE = f"""\
An example: `main(x)` returns its argument if that is a float32 matrix, and raises the reference's
error otherwise. Two instructions have become one operation. The numbers in front are positions in
words, and the pc is that of the instruction that an operation comes from.

```text
{EXAMPLE_LISTING}```
"""

REWRITINGS_INTRODUCTION = """\
What the translator does beyond one call for each instruction. `VirtualMachine(..., optimize=True)`
has all of them on, `False` none, and a set has those on that it names, as in `optimize={"quicken",
"read_if"}`. Results are the same in every case. Calls of VM functions and of native functions are
direct in any case.
"""


REGISTERS = """\
Compilers give each value a register of its own. With `registers`, registers whose values are never
needed at the same time share one of the frame, so a frame is as large as what is alive at once:
300 times a `matmul` and an `add` name 601 registers, at 3 places of the frame. A register has one
place in all of its function. Listings, errors, profiles and instruments name the registers of the
source; `vm["main"].translated.places` has the place of each. A value is released where its register
is written again, as without sharing, or earlier, where another register of its place is written.
While an instrument or a profiler is set, each register has its own place.
"""


def operand_text(operand: Operand) -> str:
    kind = operand.kind.name.lower()
    return f"`{operand.name}`" if operand.name == kind else f"`{operand.name}` {kind}"


def operation_row(op: Operation) -> tuple[str, ...]:
    operands = [operand_text(operand) for operand in op.fixed if operand.name != "count"]
    if op.tail is not None:
        operands.append(f"{operand_text(op.tail)} ...")
    return (
        str(op.code), f"`{op.name}`", ", ".join(operands), f"`{op.meaning}`",
        op.fallback, f"`{op.builtin}`" if op.builtin else "",
    )  # fmt: skip


def page() -> str:
    """``docs/operations.md``"""
    out = [f"<!-- {NOTICE} -->", "", "# Operations of the core", "", INTRODUCTION, EXAMPLE]
    out += ["## Table", ""]
    out += table(
        ("code", "name", "operands", "meaning", "takes its fallback if", "builtin"),
        map(operation_row, OPERATIONS),
    )
    out += ["", "## Kinds of operands", ""]
    out += table(
        ("kind", "the operand is"),
        ((kind.name.lower(), f"{kind.value}") for kind in OperandKind),
    )
    out += ["", "## Rewritings", "", REWRITINGS_INTRODUCTION]
    out += table(("name", "what it does"), ((f"`{r.name}`", r.meaning) for r in REWRITINGS))
    out += ["", "## Registers", "", REGISTERS.rstrip()]
    return "\n".join([*out, ""])


FILES: Files = {
    "relaxvm/core/_operations.pxd": operations_pxd,
    "relaxvm/core/_emit.pxd": emit_pxd,
    "relaxvm/core/_quickened.py": quickened_py,
    "docs/operations.md": page,
}


if __name__ == "__main__":
    sys.exit(main(FILES))
