"""How `VMExecutable.export_library` stores the kernels of an executable in a file.

The file is the binary form, or a shared library that contains it (see
`relaxvm.contrib.tvm.shared_library`).  The kernel section of the binary form has named parts:

=====================  ===========================================================================
``kernels``            JSON: the C and Python source of the PrimFuncs, see `LibraryState`
``native/PLATFORM/I``  the shared library compiled from the I-th C source
``tvm_library...``     instead of these, one shared library compiled from all C sources, in the form
                       in which `relaxvm.contrib.tvm.library` reads it from a file
=====================  ===========================================================================

Reading a file only keeps the parts; `relaxvm.native.stored.load_stored` makes callables from them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..executable import LIBRARY_PART, SavedPrimFuncs, StoredKernels, VMExecutable
from ..executable.formats import binary
from ..executable.formats._files import replacing
from ..messages import describe
from .kernel_library import KernelLibrary, LibraryState
from .stored import KERNELS, CheckedPart, LinkedLibrary, platform_name

__all__ = ["export_library", "parts_of"]


def export_library(
    executable: VMExecutable,
    path: str | os.PathLike[str],
    *,
    debug: bool = True,
    native: bool = True,
    for_tvm: bool | Iterable[str] = False,
    aligned: bool = False,
    workspace_dir: str | os.PathLike[str] | None = None,
) -> None:
    """See `VMExecutable.export_library`."""
    # Imported here and below, since most programs do not use TVM's libraries.
    from ..contrib.tvm.shared_library import is_shared_library, write_library

    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"export_library: expected a path, got {describe(path)}")
    kernels = _as_stored(executable.kernels)
    of_tvm = kernels if isinstance(kernels, StoredKernels) and kernels.is_of_tvm else None
    is_linked = native and is_shared_library(path) and of_tvm is None
    parts = parts_of(kernels, native=native and not is_linked)
    if for_tvm is not False:
        if aligned:
            raise ValueError("export_library: for_tvm: TVM does not read aligned tensors")
        if of_tvm is not None:
            raise ValueError(f"export_library: for_tvm: the kernels are machine code that TVM has "
                             f"compiled, which is not linked again; it is in {of_tvm.source}")
        _check_for_tvm(executable, parts, for_tvm, path, is_linked)
    if workspace_dir is not None:
        _write_sources(_library_state(parts), Path(workspace_dir))
    if not is_linked:
        binary.save(executable, path, debug=debug, kernels=parts, aligned=aligned)
        return
    state = _library_state(parts)
    with replacing(path) as file:
        write_library(
            lambda to: binary.save(executable, to, debug=debug, kernels=parts, aligned=aligned),
            state,
            file,
        )


def _write_sources(state: LibraryState | None, folder: Path) -> None:
    """Write the C sources of the kernels to ``kernels0.c`` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, source in enumerate([] if state is None else state["sources"]):
        (folder / f"kernels{i}.c").write_text(source["text"], encoding="utf-8")


def _as_stored(kernels: Mapping[str, Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    """Return the stored form of the kernels of a TVM library, and a library of the PrimFuncs of a
    file; other kernels unchanged."""
    if isinstance(kernels, SavedPrimFuncs):
        library: KernelLibrary = kernels.library()
        return library
    stored: Mapping[str, Callable[..., Any]] = getattr(kernels, "stored", kernels)
    return stored


def _check_for_tvm(
    executable: VMExecutable,
    parts: Mapping[str, bytes],
    for_tvm: bool | Iterable[str],
    path: str | os.PathLike[str],
    is_linked: bool,
) -> None:
    from ..contrib.tvm.shared_library import SUFFIXES, check_for_tvm

    if not is_linked:
        where = " or ".join(SUFFIXES) or ".so, on other systems than this one"
        raise ValueError(
            f"export_library: for_tvm: TVM loads shared libraries, which native=True writes to "
            f"paths that end in {where}; got {os.fsdecode(path)}"
        )
    if isinstance(for_tvm, str):
        raise TypeError("export_library: for_tvm: expected True or names of functions, got a str")
    registered = () if isinstance(for_tvm, bool) else set(for_tvm)
    check_for_tvm(executable, _library_state(parts), registered)


def _library_state(parts: Mapping[str, bytes]) -> LibraryState | None:
    """Return the state of the library of PrimFuncs, if there is one."""
    if KERNELS not in parts:
        return None
    state: LibraryState = CheckedPart(parts, "export_library", KERNELS).library_state()
    return state


# Storing


def parts_of(kernels: Mapping[str, Callable[..., Any]], *, native: bool = True) -> dict[str, bytes]:
    """Return the kernels of an executable as parts of a file.

    Args:
        kernels: the kernels.
        native: whether to include the machine code for this platform.

    Raises:
        TypeError: a kernel has no source.
    """
    kernels = _as_stored(kernels)
    if isinstance(kernels, StoredKernels):
        return {
            name: part
            for name, part in kernels.parts.items()
            if native or kernels.is_of_tvm or not name.startswith(("native/", LIBRARY_PART))
        }
    parts: dict[str, bytes] = {}
    if isinstance(kernels, KernelLibrary):
        parts[KERNELS] = _json(kernels.state())
        # Code that uses all features of this machine may not run on others.
        if native and "native" not in os.environ.get("RELAXVM_CFLAGS", ""):
            parts |= kernels.image if isinstance(kernels, LinkedLibrary) else _binaries(kernels)
    elif kernels:
        names = ", ".join(sorted(map(repr, kernels))[:3])
        raise TypeError(
            f"export_library: {names}: expected kernels that relaxvm has compiled, got "
            f"{type(kernels).__name__}; leave them out, and pass them to the VirtualMachine"
        )
    return parts


def _binaries(kernels: KernelLibrary) -> dict[str, bytes]:
    return {
        f"native/{platform_name()}/{i}": code if isinstance(code, bytes) else code.read_bytes()
        for i, code in enumerate(kernels.binaries)
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
