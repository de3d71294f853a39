"""The generators in `scripts`, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["ROOT", "load"]

ROOT = Path(__file__).parent.parent
_FOLDER = ROOT / "scripts"


def load(name: str) -> ModuleType:
    """Import a module of `scripts`."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if name != "generated":
        load("generated")  # which all of them import
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
