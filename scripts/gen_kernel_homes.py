#!/usr/bin/env python3
"""Write relaxvm/kernels/_homes.py: the module of each kernel, from the modules themselves."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
from generated import Files, main

from relaxvm import kernels, registry
from relaxvm.kernels import _chains, _kernel, _tiles

PATH = "relaxvm/kernels/_homes.py"

CHILD = "import relaxvm, gen_kernel_homes; print(gen_kernel_homes.made(), end='')"


def homes() -> dict[str, str]:
    """Full name of a kernel or of its other form -> the module that registers it."""
    found: dict[str, str] = {}
    package = f"{kernels.__name__}."
    real = registry.Registry.register

    def register(self: registry.Registry, name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith((registry.KERNEL_PREFIX, registry.RESULT_PREFIX)):
            frame = sys._getframe(1)
            while frame is not None and frame.f_back is not None:
                module = str(frame.f_globals.get("__name__"))
                if module.startswith(package) and frame.f_code.co_name == "<module>":
                    found[name] = module.removeprefix(package)
                    break
                frame = frame.f_back
        return real(self, name, *args, **kwargs)

    registry.Registry.register = register  # type: ignore[method-assign]
    try:
        for each in iter_modules(kernels.__path__):
            if not each.name.startswith("_"):
                importlib.import_module(package + each.name)
        waiting = {name: kernel.module for name, kernel in _kernel.waiting().items()}
        kernels.import_all()
    finally:
        registry.Registry.register = real  # type: ignore[method-assign]
    names = {*registry.GLOBAL.names()}
    return found | {name: module for name, module in waiting.items() if name in names}


def text() -> str:
    """The file, made in a process that has imported no kernels yet."""
    # The process imports the same relaxvm, which may be another one than that of this folder.
    folders = [Path(kernels.__file__).parents[2], Path(__file__).resolve().parent]
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return done.stdout


def made() -> str:
    modules: dict[str, list[str]] = defaultdict(list)
    found = homes()
    for name, module in sorted(found.items()):
        plain = name.removeprefix(registry.KERNEL_PREFIX)
        if plain == name:
            kernel = registry.KERNEL_PREFIX + name.removeprefix(registry.RESULT_PREFIX)
            if found.get(kernel) == module:
                continue  # the other form of a kernel beside it
        modules[module].append(plain)
    aliases, ufuncs = facts()
    lines = [
        '"""The kernels of each module.  Written by scripts/gen_kernel_homes.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any, Final",
        "",
        '__all__ = ["ALIASES", "KERNELS", "STEPS", "UFUNCS"]',
        "",
        "KERNELS: Final = {",
    ]
    for module, names in sorted(modules.items()):
        lines.append(f'    "{module}": (')
        lines += [f'        "{name}",' for name in sorted(names)]
        lines.append("    ),")
    about = "Module -> names of kernels without their prefix; also of other forms, if elsewhere."
    lines += ["}", f'"""{about}"""', ""]
    lines += ["ALIASES: Final = {", *[f'    "{a}": "{b}",' for a, b in sorted(aliases.items())]]
    lines += ["}", '"""Other name of a kernel -> its name."""', ""]
    lines += ["UFUNCS: Final = {", *[f'    "{a}": "{b}",' for a, b in sorted(ufuncs.items())]]
    lines += ["}", '"""Kernel that is a ufunc -> the name that numpy has for it."""', ""]
    lines += ["STEPS: Final[dict[str, tuple[Any, ...]]] = {"]
    lines += [f'    "{name}": {_written(form)},' for name, form in sorted(steps().items())]
    about = "Step of a fused chain -> the fields of `relaxvm.kernels._chains.Form`."
    lines += ["}", f'"""{about}"""', ""]
    return "\n".join(lines)


def steps() -> dict[str, tuple[Any, ...]]:
    """The steps of fused chains, by the names of their kernels."""
    found = {}
    for full in registry.GLOBAL.names():
        name = full.removeprefix(registry.KERNEL_PREFIX)
        step = None if name == full else _kernel.step_of(name)
        if step is not None:
            chain = None if step.chain is None else step.chain(np.dtype(np.float32))
            if chain is not None and not _runs_in_tiles(chain):
                chain = None
            form = (step.arity, step.takes_dtype, step.choices, step.chain is not None, chain)
            found[name] = form
    return found


def _runs_in_tiles(chain: str) -> bool:
    names = {step.name.removeprefix("numpy.") for step in _chains.inner_chain(chain).steps}
    return names <= {*_tiles.STEPS}


def _written(form: tuple[Any, ...]) -> str:
    """A tuple without the last fields that have their defaults, in lines that are not long."""
    defaults = (None, False, (), False, None)
    while form[-1] == defaults[len(form) - 1]:
        form = form[:-1]
    items = [json.dumps(x) if isinstance(x, str) else _texts(x) for x in form]
    line = f"({', '.join(items)},)" if len(items) == 1 else f"({', '.join(items)})"
    if len(line) < 70:
        return line
    return "(\n" + "".join(f"        {item},\n" for item in items) + "    )"


def _texts(value: Any) -> str:
    return repr(value).replace("'", '"')


def facts() -> tuple[dict[str, str], dict[str, str]]:
    """Other names of kernels, and the ufuncs that kernels are."""
    aliases, ufuncs = {}, {}
    for full in registry.GLOBAL.names():
        record = kernels.record_of(full)
        if record is None:
            continue
        name = full.removeprefix(registry.KERNEL_PREFIX)
        if record.name != name:
            aliases[name] = record.name
        if record.ufunc is not None:
            ufunc = record.ufunc.__name__
            assert getattr(np, ufunc) is record.ufunc, name
            ufuncs[name] = ufunc
    return aliases, ufuncs


FILES: Files = {PATH: text}


if __name__ == "__main__":
    sys.exit(main(FILES))
