#!/usr/bin/env python3
"""Write relaxvm/builtins/_homes.py: the module of each builtin, from the modules themselves."""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from pkgutil import iter_modules

from generated import Files, main

from relaxvm import builtins
from relaxvm.registry import GLOBAL

PATH = "relaxvm/builtins/_homes.py"


def text() -> str:
    """The file."""
    names: dict[str, list[str]] = defaultdict(list)
    at_once: list[str] = []
    for each in iter_modules(builtins.__path__):
        if not each.name.startswith("_"):
            importlib.import_module(f"{builtins.__name__}.{each.name}")
    for name in GLOBAL.names():
        package, _, module = str(GLOBAL.get(name).__module__).rpartition(".")
        if package == builtins.__name__:
            names[module].append(name)
            record = GLOBAL.lookup(name)
            assert record is not None
            if record.effect or not builtins.is_reference(record):
                at_once.append(name)
    lines = [
        '"""The builtins of each module.  Written by scripts/gen_builtin_homes.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        '__all__ = ["AT_ONCE", "BUILTINS"]',
        "",
        "BUILTINS: Final = {",
    ]
    for module in sorted(names):
        lines.append(f'    "{module}": (')
        lines += [f'        "{name}",' for name in sorted(names[module])]
        lines.append("    ),")
    lines += ["}", '"""Module -> full names of its builtins, aliases among them."""', ""]
    lines += ["AT_ONCE: Final = frozenset(", "    {"]
    lines += [f'        "{name}",' for name in at_once]
    about = "Those with effects, and aliases, which programs link with their module."
    lines += ["    }", ")", f'"""{about}"""', ""]
    return "\n".join(lines)


FILES: Files = {PATH: text}


if __name__ == "__main__":
    sys.exit(main(FILES))
