#!/usr/bin/env python3
"""Write the reference pages of the builtins and kernels, ``docs/builtins.md`` and
``docs/kernels.md``, from their registration."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator

from generated import Files, main

from relaxvm import kernels
from relaxvm.builtins import (
    OWN_PREFIX,
    PREFIX,
    RUN_PREFIX,
    RUNTIME_PREFIX,
)
from relaxvm.registry import GLOBAL, PackedFunc, Signature

FAMILIES = (
    *("shape", "shape_tensors", "checks", "allocation", "data", "adt", "call", "run", "lm"),
    "kv_state", "paged_attention", "kv_checkpoint", "rnn_state", "tensor_cache",
    "numbers", "operands", "random_numbers", "state", "trees", "sequences", "strings", "maps",
    "classes", "relay",
)
"""Modules of relaxvm.builtins, in the order of the page."""

_PREFIXES = (PREFIX, OWN_PREFIX, RUN_PREFIX, RUNTIME_PREFIX)

INTRODUCTION = """\
<!-- Generated from relaxvm/builtins by scripts/gen_builtins.py - do not edit. -->

# Builtins

The packed functions that every virtual machine has: TVM's `vm.builtin.*`, `relax.run.*` and
`runtime.*`, and `relaxvm.builtin.*`, which TVM does not have. `relaxvm.get_func(name)` returns any
of them as a Python function.

Signatures are written as in `relaxvm.registry`: `name: kind`, alternatives separated by `|`,
`*name` for any number of arguments, `= ...` for an optional argument. The verifier checks the calls
of a file against them before anything runs. The kinds are those of `relaxvm.values.kind_of`, and
`vm` (the VM state register), `storage`, `closure` and `any`. A bool is accepted as an int, and a
tuple of ints as a shape.

Functions marked *effect* have side effects outside of their arguments: on files, or on state that
programs of the process share. If the caller of a VM lists the functions that a file may use, these
must be in the list; the others are always allowed.

An *error context*, `err`, is a string that begins the error message if the check fails. It may be
None.
"""


def page() -> str:
    """Return the text of docs/builtins.md."""
    out = [INTRODUCTION]
    for family in FAMILIES:
        module = importlib.import_module(f"relaxvm.builtins.{family}")
        title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n")
        out.append(f"## {title.rstrip('.')}\n")
        if rest.strip():
            out.append(markdown(rest.strip()) + "\n")
        out += [entry(record, aliases) for record, aliases in records(module.__name__)]
    return "\n".join(out)


def records(module: str) -> Iterator[tuple[PackedFunc, list[str]]]:
    """Yield the builtins that a module defines, in order of definition, each with its aliases."""
    names: dict[Callable[..., object], list[str]] = {}
    for name in GLOBAL.names():
        func = GLOBAL.get(name)
        if getattr(func, "__module__", "") == module:
            names.setdefault(func, []).append(name)
    for func in sorted(names, key=lambda f: inspect.getsourcelines(f)[1]):
        (own,) = (name for name in names[func] if name.startswith(_PREFIXES))
        record = GLOBAL.lookup(own)
        assert record is not None
        yield record, [name for name in names[func] if name != own]


def entry(record: PackedFunc, aliases: list[str]) -> str:
    """Return the section of one function."""
    out = [f"### {record.name.removeprefix(PREFIX)}\n", f"```\n{heading(record)}\n```\n"]
    if record.effect:
        out.append("*Effect.*\n")
    out.append(markdown(record.doc) + "\n")
    if aliases:
        also = ", ".join(f"`{name}`" for name in aliases)
        out.append(f"Also registered as {also}, unless a program uses that name itself.\n")
    return "\n".join(out)


def heading(record: PackedFunc) -> str:
    """Return the name and signature, on several lines if they are long."""
    signature = record.signature or Signature()
    line = f"{record.name}{signature}"
    if len(line) <= 96:
        return line
    inner, _, result = str(signature)[1:].rpartition(") -> ")
    params = ",\n".join(f"    {param}" for param in inner.split(", "))
    return f"{record.name}(\n{params}\n) -> {result}"


SECTION = re.compile(r"^(Raises|Args|Attributes):$")
ITEM = re.compile(r"^    (\w+): (.*)$")


def markdown(doc: str) -> str:
    """Convert a docstring to Markdown: sections to lists, double backticks to single ones."""
    out: list[str] = []
    section = False
    for line in doc.splitlines():
        item = ITEM.match(line) if section else None
        if SECTION.match(line):
            section = True
            out += [line, ""]
        elif item:
            out.append(f"- `{item[1]}`: {item[2]}")
        elif section and line.strip():
            out.append("  " + line.strip())
        else:
            section = False
            out.append(line)
    return re.sub(r"::$", ":", "\n".join(out).replace("``", "`"), flags=re.MULTILINE)


KERNEL_FAMILIES = (
    "elementwise", "composite", "fused", "reductions", "search", "products", "movement",
    "creation", "gather", "nn", "channels", "convolution", "pooling", "blocks", "linear",
    "bfloat16", "integers", "recurrent", "recurrent_attention", "resize", "sampling", "detection",
    "trees", "cache", "packed", "spectral", "folding", "matrices", "spectra", "suppression",
    "special",
)  # fmt: skip
"""Modules of relaxvm.kernels, in the order of the page."""


def kernels_page() -> str:
    """Return the text of docs/kernels.md."""
    title, _, rules = inspect.cleandoc(kernels.__doc__ or "").partition("\n")
    out = [
        "<!-- Generated from relaxvm/kernels by scripts/gen_builtins.py - do not edit. -->\n",
        "# Kernels\n",
        markdown(f"{title}\n{rules}") + "\n",
        "The verifier checks the number of arguments and, where it can see them, their kinds.\n",
        "Many kernels also have implementations in C for small contiguous tensors, which return\n"
        "the same results: [adding a C kernel](adding-a-c-kernel.md).\n",
    ]
    for family in KERNEL_FAMILIES:
        module = importlib.import_module(f"relaxvm.kernels.{family}")
        title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n")
        out.append(f"## {title.rstrip('.')}\n")
        if rest.strip():
            out.append(markdown(rest.strip()) + "\n")
        out.append("| kernel | arguments | |\n|---|---|---|")
        out += [kernel_row(record) for record in kernel_records(module.__name__)]
        out.append("")
    return "\n".join(out)


def kernel_records(module: str) -> Iterator[PackedFunc]:
    """Yield the kernels that a module registers, sorted by name."""
    for name in GLOBAL.names():
        record = GLOBAL.lookup(name)
        assert record is not None
        if kernels.is_kernel(record) and record.func.__module__ == module:
            yield record


def kernel_row(record: PackedFunc) -> str:
    """Return the table row of a kernel: name, arguments, description."""
    arguments = str(record.signature)[1:].rpartition(") -> ")[0].replace("|", "\\|")
    meaning = markdown(" ".join(record.doc.split())).replace("|", "\\|")
    return f"| `{record.name}` | `{arguments}` | {meaning} |"


FILES: Files = {"docs/builtins.md": page, "docs/kernels.md": kernels_page}


if __name__ == "__main__":
    sys.exit(main(FILES))
