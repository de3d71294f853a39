#!/usr/bin/env python3
"""Write ``docs/tvm-names.md``: the public names of TVM, and what they are here.

The names are those of the installed package apache-tvm; without it, those that the page has.
`relaxvm.contrib.as_tvm` says what is there.  Both are asked in processes of their own, since only
one of them can be ``tvm``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from generated import ROOT, Files, main

PAGE = "docs/tvm-names.md"

VERSION = "0.27.0"

SUBJECTS = (
    *("tvm.relax", "tvm.relax.op", "tvm.relax.transform", "tvm.relax.analysis", "tvm.relax.dpl"),
    *("tvm.script.relax", "tvm.runtime", "tvm.tirx", "tvm.te", "tvm.topi", "tvm.topi.nn"),
)
"""Modules of TVM whose names are listed."""

INTRODUCTION = f"""\
<!-- Generated from the packages by scripts/gen_tvm_names.py - do not edit. -->

# TVM's names

The public names of apache-tvm {VERSION}, as `python -m relaxvm.contrib.as_tvm program.py` offers
them to a program that imports `tvm` ([coming from TVM](coming-from-tvm.md#programs-as-they-are)).
In programs for relaxvm itself, the names of `tvm.relax` are in `relaxvm` and `relaxvm.ir`, those of
the other modules in `relaxvm.op`, `relaxvm.transform`, `relaxvm.analysis`, `relaxvm.dpl` and
`relaxvm.script.relax`.
"""

_OF_TVM = """
import importlib, json, sys, types
import tvm
from tvm.script import relax
found = {}
for name in json.loads(sys.argv[1]):
    module = relax if name == "tvm.script.relax" else importlib.import_module(name)
    names = []
    for public in dir(module):
        value = getattr(module, public)
        home = getattr(value, "__module__", None) or type(value).__module__
        if isinstance(value, types.ModuleType):
            home = value.__name__
            if not public.islower() or not hasattr(value, "__path__"):
                continue
        own = public not in ("tvm", "tvm_ffi")
        if name.endswith(("dpl", "topi", "topi.nn")):
            own = home.startswith(name)
        if not public.startswith("_") and own and home.split(".")[0] in ("tvm", "tvm_ffi"):
            names.append(public)
    found[name] = names
print(json.dumps(found))
"""

_OF_US = """
import importlib, json, sys
from relaxvm.contrib.as_tvm.names import MODULES, RENAMED, reason_of
found = {}
for name, names in json.loads(sys.argv[1]).items():
    module = importlib.import_module(name)
    found[name] = states = {}
    for public in names:
        full = f"{name}.{public}"
        is_there = hasattr(module, public) or full in MODULES
        states[public] = [is_there, RENAMED.get(full), reason_of(full)]
print(json.dumps(found))
"""


def _asked(code: str, question: object) -> dict[str, Any] | None:
    command = [sys.executable, "-P", "-c", code, json.dumps(question)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=_environment()
    )
    if done.returncode:
        if "No module named 'tvm'" in done.stderr:
            return None
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _environment() -> dict[str, str]:
    """With the package that this process uses, which may be an installed one."""
    import relaxvm

    return {**os.environ, "PYTHONPATH": str(Path(relaxvm.__file__).parents[1])}


def _names() -> Mapping[str, Sequence[str]]:
    """Module of TVM -> its public names."""
    found = _asked(_OF_TVM, SUBJECTS)
    if found is not None:
        return found
    path = ROOT / PAGE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    sections = re.split(r"^## `(.*)`$", text, flags=re.MULTILINE)[1:]
    return {
        module: sorted(set(re.findall(r"`([A-Za-z]\w*)`", body)))
        for module, body in zip(sections[::2], sections[1::2], strict=True)
    }


def _section(
    module: str, states: Mapping[str, tuple[bool, str | None, str | None]]
) -> Iterator[str]:
    """The section of a module; a state says whether a name is there, its other name, and why it is
    declined."""
    absent = {name: state for name, state in states.items() if not state[0]}
    renamed = {name: other for name, (_, other, _) in absent.items()}
    declined = {name: reason for name, (_, _, reason) in absent.items()}
    lacking = [name for name in absent if not declined[name] and not renamed[name]]
    here = [name for name in states if name not in absent]
    yield f"## `{module}`"
    yield ""
    yield f"There ({len(here)}): {_listed(here)}."
    for name, ours in renamed.items():
        if ours:
            yield ""
            yield f"Under another name: `{name}` is {ours}."
    reasons: dict[str, list[str]] = {}
    for name, reason in declined.items():
        if reason and not renamed[name]:
            reasons.setdefault(reason, []).append(name)
    for reason, group in reasons.items():
        yield ""
        yield f"Declined, since {reason}: {_listed(group)}."
    if lacking:
        yield ""
        yield f"Lacking ({len(lacking)}): {_listed(lacking)}."
    yield ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def page() -> str:
    """Return the text of docs/tvm-names.md."""
    names = _names()
    states = _asked(_OF_US, names)
    assert states is not None
    lines = [INTRODUCTION]
    for module in SUBJECTS:
        lines += _section(module, states[module])
    return "\n".join(lines).rstrip() + "\n"


FILES: Files = {PAGE: page}

if __name__ == "__main__":
    sys.exit(main(FILES))
