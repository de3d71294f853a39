"""``tvm.support``: temporary folders and the C compiler."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...errors import CompilerError, NoCompilerError
from ...native import toolchain

__all__ = ["TempDirectory", "create_shared", "create_staticlib", "get_cc", "tempdir"]


class TempDirectory:
    """A temporary folder, which exists until it is removed or nothing refers to it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    @property
    def path(self) -> str:
        return self._folder.name

    @property
    def temp_dir(self) -> str:
        return self._folder.name

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return str(Path(self._folder.name) / name)

    def listdir(self) -> list[str]:
        """The names of what is in the folder."""
        return sorted(entry.name for entry in Path(self._folder.name).iterdir())

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __truediv__(self, name: str) -> Path:
        return Path(self._folder.name) / name


def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """Make a temporary folder."""
    return TempDirectory()


# tvm.support.cc


def get_cc() -> str | None:
    """The path of the system's C compiler; None if there is none."""
    return toolchain.compiler()


def create_shared(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link object files to a shared library.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: it fails.
    """
    _run([_compiler(cc), "-shared", "-fPIC", "-o", output, *_listed(objects), *(options or ())])


def create_staticlib(output: str, inputs: str | Sequence[str], ar: str | None = None) -> None:
    """Put object files into a static library.

    Raises:
        CompilerError: the archiver fails.
    """
    _run([ar or "ar", "qcs", output, *_listed(inputs)])


def _listed(files: str | Sequence[str]) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


def _compiler(cc: str | None) -> str:
    found = cc or get_cc()
    if found is None:
        raise NoCompilerError(toolchain.why_no_compiler())
    return found


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
