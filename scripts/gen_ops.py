#!/usr/bin/env python3
"""Write the reference page of the operators, ``docs/operators.md``, from their registration.

python scripts/gen_ops.py          write the file if it has changed
python scripts/gen_ops.py --check  write nothing; fail if the file is stale
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if "relaxvm" not in sys.modules:  # run as a script: the operators are those of this checkout
    sys.path.insert(0, str(ROOT))

from relaxvm.op import CONSTRUCTORS, OPERATORS, Operator  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"

INTRODUCTION = """\
<!-- Generated from relaxvm/op by scripts/gen_ops.py - do not edit. -->

# Operators

`R.nn.softmax(x, axis=-1)` in a script, and `relaxvm.op.nn.softmax(x, axis=-1)` in Python, is a call
of the operator `relax.nn.softmax`. Names, parameters and defaults are those of TVM's Relax.

A tensor is an expression of a tensor type; a Python number beside a tensor becomes a constant of
its data type. Tensors that are computed with each other have one data type: nothing is converted
but by `astype`. Shapes broadcast as in numpy. Where dimensions are symbolic, what is not known to
fit is checked when the program runs, by the kernel; what is known not to fit is an error when the
call is made, and names the operator, the argument, what was expected and what it got.

The column *lowered to* says what `LegalizeOps` makes of a call: a kernel (see
[kernels](kernels.md)), something else (*expression*), or nothing, as the compiler knows the
operator itself.

An operator is one registration: `relaxvm/op/registry.py` begins with an example. It and the kernel
in `relaxvm/kernels` are all that a new one needs, and lines in `tests/test_op_types.py` and
`tests/test_op_kernels.py`, without which the tests fail.
"""


def page() -> str:
    """The text of the file."""
    out = [INTRODUCTION]
    for module, names in families().items():
        title, _, rest = inspect.cleandoc(sys.modules[module].__doc__ or "").partition("\n")
        out.append(f"## {title.rstrip('.')}\n")
        if rest.strip():
            out.append(markdown(rest.strip()) + "\n")
        out.append("| constructor | | lowered to |\n|---|---|---|")
        out += [row(name) for name in names]
        out.append("")
    return "\n".join(out)


def families() -> dict[str, list[str]]:
    """Names of the constructors by the module that they are of, all in order."""
    found: dict[str, list[str]] = {}
    for name, make in CONSTRUCTORS.items():
        found.setdefault(make.__module__, []).append(name)
    return {module: sorted(found[module]) for module in sorted(found)}


def row(name: str) -> str:
    """The row of a constructor: how it is called, what it gives, what becomes of it."""
    make = CONSTRUCTORS[name]
    record = OPERATORS.get(name)
    doc = inspect.cleandoc(make.__doc__ or "").partition("\nArgs:")[0]
    notes = "" if record is None or record.op.is_pure else " *Has effects.*"
    meaning = markdown(" ".join(doc.split())).replace("|", "\\|") + notes
    return f"| `{name}({', '.join(parameters(make))})` | {meaning} | {lowered(record)} |"


def parameters(make: object) -> Iterator[str]:
    """The parameters of a constructor, with their defaults."""
    for parameter in inspect.signature(make).parameters.values():  # type: ignore[arg-type]
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        yield f"{star}{parameter.name}{default}".replace("|", "\\|")


def lowered(record: Operator | None) -> str:
    """What a call of an operator is legalized to."""
    if record is None:
        return "the operators it is made of"
    if record.kernel is not None:
        return f"`{record.kernel}`"
    return "" if record.lower is None else "*expression*"


def markdown(text: str) -> str:
    """Text of a docstring as Markdown: double backticks are single ones."""
    return text.replace("``", "`")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    check = parser.parse_args(argv).check
    text = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{'stale' if check else 'wrote'}: {PAGE.relative_to(ROOT)}")
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if check else 0


if __name__ == "__main__":
    sys.exit(main())
