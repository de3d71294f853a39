"""Old names of modules, and of names in modules, that have moved.

``import relaxvm.pipeline`` imports `relaxvm.transform.pipelines`, the same module under both names,
and ``relaxvm.values.describe`` is `relaxvm.messages.describe`.  The two tables here are the only
place for such names.

Old names of modules can be imported as soon as ``import relaxvm`` has run.  (While one thread runs
it for the first time, the import system does not yet know them in other threads.)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ["MODULES", "NAMES", "attribute", "install", "target_of"]

MODULES: Final = {
    "exec_builder": "executable.exec_builder",
    "formats": "executable.formats",
    "pipeline": "transform.pipelines",
    "shape_program": "executable.shape_program",
    "tir.elementary": "native.elementary",
    "toolchain": "native.toolchain",
    "topi": "te.topi",
    "vm_build": "compiler.vm_build",
}
"""Old name of a module below relaxvm -> new name.  It also applies to submodules."""

NAMES: Final = {
    "values": {
        "as_dtype": "dtypes.as_dtype",
        "describe": "messages.describe",
        "dtype_from_dl": "dtypes.dtype_from_dl",
        "dtype_name": "dtypes.dtype_name",
        "dtype_to_dl": "dtypes.dtype_to_dl",
        "element_dtype": "dtypes.element_dtype",
        "readable": "messages.readable",
    },
    "isa": {"Op": "isa.InstructionSpec"},
    "executable.shape_program": {"Op": "executable.shape_program.ShapeOp"},
    "te.operators": {"FORMULAS": "te.formulas.FORMULAS"},
}
"""Module below relaxvm -> name that it used to define -> its new module."""

_PACKAGE: Final = __name__.rpartition(".")[0]


def target_of(name: str) -> str | None:
    """Return the full name of the module that an alias denotes; None if it is not an alias."""
    package, _, inner = name.partition(".")
    if package != _PACKAGE:
        return None
    outer, rest = inner, ""
    while outer and outer not in MODULES:
        outer = outer.rpartition(".")[0]
        rest = inner[len(outer) :]
    return f"{_PACKAGE}.{MODULES[outer]}{rest}" if outer else None


class _AliasLoader:  # no base class of importlib.abc, which is slow to import
    """Enters an imported module under a second name."""

    def __init__(self, target: ModuleSpec) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target.name)
        self._spec = module.__spec__  # the import system will overwrite it with that of the alias
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> Any:
        """Called by ``python -m``, where the module's relative imports would fail."""
        raise ImportError(
            f"{fullname} is an old name; run {self._target.name} instead", name=fullname
        )


class _AliasFinder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = target_of(fullname)
        if name is None:
            return None
        from importlib.util import find_spec  # only needed where an old name is used

        found = find_spec(name)
        if found is None:
            return None
        loader: Any = _AliasLoader(found)
        spec = ModuleSpec(fullname, loader, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec


def install() -> None:
    """Make the aliases known to the import system."""
    # First, because the folder of a package that has an alias would be searched for its submodules,
    # which would then be imported a second time.
    if not any(type(finder) is _AliasFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())


def attribute(module: str, name: str) -> Any:
    """Look up a name that a module has by `NAMES`, for the module's ``__getattr__``.

    Raises:
        AttributeError: the table does not have it.
    """
    target = NAMES.get(module.partition(".")[2], {}).get(name)
    if target is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    home, _, new_name = target.rpartition(".")
    return getattr(importlib.import_module(f"{_PACKAGE}.{home}"), new_name)
