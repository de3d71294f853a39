"""The import of onnxruntime's modules: `install` has ``import onnxruntime`` find relaxvm."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ["install"]

_ROOT: Final = "onnxruntime"
_PACKAGE: Final = __name__.rpartition(".")[0]


class _Loader:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._own = importlib.import_module(_PACKAGE + spec.name.removeprefix(_ROOT))
        self._spec = self._own.__spec__
        return self._own

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root != _ROOT:
            return None
        own = _PACKAGE + (f".{rest}" if rest else "")
        if importlib.util.find_spec(own) is None:
            raise ModuleNotFoundError(
                f"relaxvm has no module {fullname!r}: it runs models, as onnxruntime's "
                f"InferenceSession does", name=fullname,
            )  # fmt: skip
        loader: Any = _Loader()
        return ModuleSpec(fullname, loader, origin=_PACKAGE, is_package=True)

    def find_distributions(self, context: Any = None) -> list[Any]:
        """For ``importlib.metadata``, which programs ask whether a package is installed."""
        name = getattr(context, "name", None)
        if name is not None and name.lower() != _ROOT:
            return []
        from .distribution import OnnxRuntime  # here, since importlib.metadata takes long to import

        return [OnnxRuntime()]


def install() -> None:
    """Have ``import onnxruntime`` find relaxvm.  A second call changes nothing.

    Raises:
        ImportError: onnxruntime itself is imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if _ROOT in sys.modules:
        raise ImportError(
            "relaxvm.contrib.onnxruntime: the package onnxruntime is imported already; call "
            "install() before it is, or import relaxvm.contrib.onnxruntime as onnxruntime"
        )
    sys.meta_path.insert(0, _Finder())
