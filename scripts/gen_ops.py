#!/usr/bin/env python3
"""Write the reference page of the operators, ``docs/operators.md``, from their records."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from generated import Files, main

from relaxvm.op import CONSTRUCTORS, OPERATORS, Operator

INTRODUCTION = """\
<!-- Generated from relaxvm/op by scripts/gen_ops.py - do not edit. -->

# Operators

`R.nn.softmax(x, axis=-1)` in a script, and `relaxvm.op.nn.softmax(x, axis=-1)` in Python, is a call
of the operator `relax.nn.softmax`. Names, parameters and defaults are those of TVM's Relax; `expm1`
and `log1p`, which TVM does not have, are relaxvm's own.

A tensor argument is an expression of a tensor type; a Python number becomes a constant of the data
type of the other operand. The operands of a call have the same data type; only `astype` converts.
Shapes broadcast as in numpy. A call whose operands are known to be wrong raises an error that names
the operator and the argument, with the expected and the actual type. Kernels check symbolic
dimensions at run time.

The column *lowered to* names the replacement of a call in `LegalizeOps`: a kernel (see
[kernels](kernels.md)) or another *expression*. It is empty for operators that the compiler handles
itself. The column *loops* says which operators can be compiled to loops, for
`export_library(for_tvm=True)`.

To add an elementwise operator, add one row to the table in `relaxvm/elementwise.py`, which also
defines its kernel. To add any other operator, register it (see the example at the beginning of
`relaxvm/op/registry.py`) and write a kernel in `relaxvm/kernels`;
[adding an operator](adding-an-operator.md) shows both. All need cases in `tests/operators`; the
tests fail without them.
"""


def page() -> str:
    """Return the text of docs/operators.md."""
    out = [INTRODUCTION]
    for module, names in families().items():
        title, _, rest = inspect.cleandoc(sys.modules[module].__doc__ or "").partition("\n")
        out.append(f"## {title.rstrip('.')}\n")
        if rest.strip():
            out.append(markdown(rest.strip()) + "\n")
        out.append("| constructor | | lowered to | loops |\n|---|---|---|---|")
        out += [row(name) for name in names]
        out.append("")
    return "\n".join(out)


def families() -> dict[str, list[str]]:
    """Return module -> names of its constructors, both sorted."""
    found: dict[str, list[str]] = {}
    for name, make in CONSTRUCTORS.items():
        found.setdefault(make.__module__, []).append(name)
    return {module: sorted(found[module]) for module in sorted(found)}


def row(name: str) -> str:
    """Return the table row of a constructor: signature, description, lowering, loops."""
    make = CONSTRUCTORS[name]
    record = OPERATORS.get(name)
    doc = inspect.cleandoc(make.__doc__ or "").partition("\nArgs:")[0]
    notes = "" if record is None or record.op.is_pure else " *Has effects.*"
    meaning = markdown(" ".join(doc.split())).replace("|", "\\|") + notes
    call = f"`{name}({', '.join(parameters(make))})`"
    return f"| {call} | {meaning} | {lowered(record)} | {loops(record)} |"


def parameters(make: object) -> Iterator[str]:
    """Yield the parameters of a constructor, with their defaults."""
    for parameter in inspect.signature(make).parameters.values():  # type: ignore[arg-type]
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        yield f"{star}{parameter.name}{default}".replace("|", "\\|")


def lowered(record: Operator | None) -> str:
    """Return what a call of an operator is legalized to."""
    if record is None:
        return "the operators that it is made of"
    if record.kernel is not None:
        return f"`{record.kernel}`"
    return "" if record.lower is None else "*expression*"


def loops(record: Operator | None) -> str:
    """Return "yes" if a call can be compiled to loops."""
    return "yes" if record is not None and record.loops else ""


def markdown(text: str) -> str:
    """Convert a docstring to Markdown: double backticks to single ones."""
    return text.replace("``", "`")


FILES: Files = {"docs/operators.md": page}


if __name__ == "__main__":
    sys.exit(main(FILES))
