#!/usr/bin/env python3
"""Write the stubs that tell type checkers and editors what ``R`` has: the operators, from their
registry, and the other names that ``relaxvm/script/relax.py`` makes when they are asked for."""

from __future__ import annotations

import inspect
import keyword
import sys
from collections.abc import Callable, Iterable

from generated import Files, main

from relaxvm.op import CONSTRUCTORS
from relaxvm.script import relax

NOTICE = "# Generated from relaxvm/op by scripts/gen_stubs.py - do not edit."
DEVICES = ("cpu", "cuda", "metal", "rocm", "vulkan", "opencl")


def folders() -> list[str]:
    """The modules of operators below ``R``: nn, image, ..."""
    return sorted({name.partition(".")[0] for name in CONSTRUCTORS if "." in name})


def names_in(folder: str) -> list[str]:
    """The operators of a module, or those of ``R`` itself for an empty name."""
    prefix = f"{folder}." if folder else ""
    names = [name.removeprefix(prefix) for name in CONSTRUCTORS if name.startswith(prefix)]
    return sorted(name for name in names if "." not in name)


def declaration(name: str, make: Callable[..., object]) -> str:
    """A function whose parameters have their names and kinds."""
    parts: list[str] = []
    kinds = [parameter.kind for parameter in inspect.signature(make).parameters.values()]
    star = False
    for parameter in inspect.signature(make).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}: Any")
            star = True
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}: Any")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        default = "" if parameter.default is parameter.empty else " = ..."
        parts.append(f"{parameter.name}: Any{default}")
    if parameter_only := [k for k in kinds if k is inspect.Parameter.POSITIONAL_ONLY]:
        parts.insert(len(parameter_only), "/")
    return f"def {name}({', '.join(parts)}) -> Any: ..."


def stub(declarations: Iterable[str], exported: Iterable[str], head: Iterable[str] = ()) -> str:
    listed = "\n".join(f'    "{name}",' for name in sorted(exported))
    lines = [NOTICE, "from typing import Any", *head, "",
             f"__all__ = [\n{listed}\n]", "", *declarations, ""]  # fmt: skip
    return "\n".join(lines)


def operators(folder: str) -> str:
    names = [name for name in names_in(folder) if not keyword.iskeyword(name)]
    prefix = f"{folder}." if folder else ""
    made = {name: declaration(name, CONSTRUCTORS[prefix + name]) for name in names}
    if folder:
        return stub(made.values(), made)
    static = set(relax.__all__)
    made = {name: text for name, text in made.items() if name not in static}
    others = {*relax._NAMED, *DEVICES} - static - set(made)
    made |= {name: f"{name}: Any" for name in sorted(others) if not keyword.iskeyword(name)}
    below = [name for name in folders() if name not in static]
    modules = [f"from . import {name} as {name}" for name in below]
    return stub(made.values(), [*made, *below], modules)


FILES: Files = {
    "relaxvm/script/_operators/__init__.pyi": lambda: operators(""),
    **{f"relaxvm/script/_operators/{name}.pyi": (lambda name=name: operators(name))  # type: ignore[misc]
       for name in folders()},
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(FILES))
