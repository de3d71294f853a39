"""``tvm.support``: temporary folders and the C compiler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from ...errors import CompilerError, NoCompilerError
from ...native import toolchain

__all__ = ["TempDirectory", "create_shared", "create_staticlib", "get_cc", "tempdir"]


class TempDirectory:
    """A temporary folder, which exists until it is removed or nothing refers to it.

    Args:
        custom_path: the folder to make, instead of one with a new name; it stays.
        keep_for_debug: whether the folder stays when nothing refers to it.
    """

    def __init__(
        self, custom_path: str | None = None, keep_for_debug: bool | None = None
    ) -> None:
        self.temp_dir = custom_path or tempfile.mkdtemp()
        if custom_path:
            Path(custom_path).mkdir(parents=True, exist_ok=True)
        self._remove = weakref.finalize(self, shutil.rmtree, self.temp_dir, ignore_errors=True)
        if custom_path or keep_for_debug:
            self._remove.detach()

    @property
    def path(self) -> str:
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return str(Path(self.temp_dir) / name)

    def listdir(self) -> list[str]:
        """The names of what is in the folder."""
        return sorted(entry.name for entry in Path(self.temp_dir).iterdir())

    def remove(self) -> None:
        """Remove the folder, also one that is kept."""
        self._remove.detach()
        shutil.rmtree(self.temp_dir, ignore_errors=True)

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __truediv__(self, name: str) -> Path:
        return Path(self.temp_dir) / name


def tempdir(custom_path: str | None = None, keep_for_debug: bool | None = None) -> TempDirectory:
    """Make a temporary folder; see `TempDirectory`."""
    return TempDirectory(custom_path, keep_for_debug)


# tvm.support.cc


def get_cc() -> str | None:
    """The path of the system's C compiler; None if there is none."""
    return toolchain.compiler()


def create_shared(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
) -> None:
    """Link object files to a shared library.

    Args:
        output, objects: the files.
        options: of the compiler.
        cc: the compiler, by default the system's.
        cwd: the folder in which the compiler runs.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: it fails.
    """
    files = ["-o", output, *_listed(objects)]
    _run([_compiler(cc), "-shared", "-fPIC", *files, *(options or ())], cwd)


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


def _run(command: Sequence[str], cwd: str | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
