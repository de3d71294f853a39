"""The import of TVM's modules: `install` has ``import tvm`` find relaxvm.

A module of TVM becomes a `TvmModule`.  It has no names of its own: each is looked up in the modules
of relaxvm that `names.MODULES` lists for it, in order, and remembered.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from ...op.registry import Namespace
from .names import FUNCTIONS, MODULES, ROOTS, why_missing
from .operators import Operators

__all__ = ["TvmModule", "install", "lookup"]

_PACKAGE: Final = __name__.split(".", 1)[0]
_MISSING: Final = object()


class TvmModule(ModuleType):
    """A module of TVM: the names of some modules of relaxvm."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            if name == "__all__":
                return [public for public in dir(self) if not public.startswith("_")]
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        value = lookup(self.__name__, name)
        if value is _MISSING:
            raise AttributeError(why_missing(self.__name__, name), name=name, obj=self)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system sets a module as an attribute of its package, also where TVM has a
        # function of the same name there: ``nn.extern`` is one, and a module.
        if isinstance(value, TvmModule) and f"{self.__name__}.{name}" in FUNCTIONS:
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        prefix = f"{self.__name__}."
        found = {
            name[len(prefix) :]
            for name in MODULES
            if name.startswith(prefix) and "." not in name[len(prefix) :]
        }
        for source in MODULES[self.__name__]:
            module, _, single = source.partition(":")
            names = _public(importlib.import_module(module)) if not single else ()
            found.update(names or [single.partition("=")[0]])
        return sorted(found)


def lookup(module: str, name: str) -> Any:
    """Return what a name of a module of TVM denotes here; a mark that is no value if nothing."""
    full = f"{module}.{name}"
    if full in MODULES and full not in FUNCTIONS:
        return importlib.import_module(full)
    for source in MODULES[module]:
        home, _, single = source.partition(":")
        if single:
            single, _, original = single.partition("=")
            if single == name:
                return getattr(importlib.import_module(home), original or single)
            continue
        found = importlib.import_module(home)
        # Some modules of relaxvm find names, such as those of operators, when they are asked for.
        if name in _public(found) or (not name.startswith("_") and "__getattr__" in vars(found)):
            value = getattr(found, name, _MISSING)
            if value is not _MISSING and not _is_foreign(value):
                return value
    return _MISSING


def _is_foreign(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.split(".", 1)[0] != _PACKAGE


def _public(module: ModuleType) -> frozenset[str]:
    """The names that a module of relaxvm offers."""
    found = _PUBLIC.get(module.__name__)
    if found is None:
        listed = getattr(module, "__all__", None)
        names = set(listed or ()) | {
            name
            for name in dir(module)
            if not name.startswith("_") and _is_offered(module, name, listed is not None)
        }
        found = _PUBLIC[module.__name__] = frozenset(names)
    return found


_PUBLIC: Final[dict[str, frozenset[str]]] = {}


def _is_offered(module: ModuleType, name: str, has_list: bool) -> bool:
    # What a module imports for itself is not offered, except where ``__getattr__`` adds names.
    if name not in vars(module):
        return True
    value = vars(module)[name]
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return not has_list and isinstance(home, str) and home.split(".", 1)[0] == _PACKAGE


class _Loader:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = spec.name
        if name in MODULES:
            return TvmModule(name, f"The names of TVM's module {name}, on relaxvm.")
        parent, _, last = name.rpartition(".")
        self._own = getattr(sys.modules[parent], last)  # a module of relaxvm
        if isinstance(self._own, (Namespace, Operators)):
            return Operators(name, self._own)
        self._spec = self._own.__spec__
        module: ModuleType = self._own
        return module

    def exec_module(self, module: ModuleType) -> None:
        if not isinstance(module, (TvmModule, Operators)):
            module.__spec__ = self._spec  # the import system has replaced it


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root not in ROOTS:
            return None
        if fullname not in MODULES:
            parent, _, last = fullname.rpartition(".")
            known = getattr(sys.modules.get(parent), last, None) if rest else None
            if not isinstance(known, (ModuleType, Namespace)):
                # Without the name, which ``from module import name`` would take as a reason to say
                # less.
                raise ModuleNotFoundError(why_missing(parent, last))
        loader: Any = _Loader()
        return ModuleSpec(fullname, loader, origin=f"{_PACKAGE}.contrib.as_tvm", is_package=True)


def install() -> None:
    """Have ``import tvm`` and ``import tvm_ffi`` find relaxvm.  A second call changes nothing.

    Raises:
        ImportError: one of the packages is imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    loaded = [root for root in ROOTS if root in sys.modules]
    if loaded:
        raise ImportError(
            f"relaxvm.contrib.as_tvm: TVM's own package {loaded[0]!r} is imported already; import "
            "relaxvm.contrib.as_tvm before it, or use relaxvm.from_tvm to run TVM's programs"
        )
    sys.meta_path.insert(0, _Finder())
