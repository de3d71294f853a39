"""Saved runs as runs again: `relaxvm.load_run`."""

from __future__ import annotations

import io
import os
from typing import IO, Any

import relaxvm

from ...errors import FormatError
from ...executable import VMExecutable
from ...executable.formats._files import name_of, read_all, size_on_disk
from ...limits import Limits
from ...messages import describe
from ..linking import Functions
from ..machine import VirtualMachine
from ..runs import Run
from .checkpoints import Checkpoints
from .programs import program_of
from .reader import SavedRun, read
from .verifier import check_frames

__all__ = ["load_run"]


def load_run(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes],
    executable: (
        VMExecutable
        | VirtualMachine
        | relaxvm.contrib.tvm.module.ExecutableModule
        | str
        | os.PathLike[str]
    ),
    *,
    functions: Functions = None,
    limits: Limits | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float | None = None,
) -> Run:
    """Return the run that ``run.save`` has written, in this process or another one::

        run = relaxvm.load_run("run.ckpt", executable)
        print(run.result())

    It goes on where it was, with equal results, bit for bit on processors of the same kind.  Arrays
    that shared memory share it again, and an object that stood in two places is one object.

    A file is data, and is checked as an executable is: nothing of it runs before `Run.resume`, and
    nothing but the program that is given here ever does.

    Args:
        source: path, bytes, or a binary file (read from its position to its end).
        executable: what was running: an executable of the same content, anything else that
            `VirtualMachine` takes, or a machine, for its functions and limits.  What the run's
            machine kept in ``vm.state`` is put into the state of this one.
        functions: as for `VirtualMachine`: packed functions of the user, which are not in the file.
        limits: bounds on the file, the executable and the run.  What the run has used of fuel and
            time before it was saved counts if it was limited then.
        checkpoint, every: as for ``vm[name].start``.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is malformed, of another version of the format, or of another executable.
        LimitError: it exceeds a limit.
        MissingExtraError: an array has a data type of ml_dtypes, and that is not installed.
        TypeError: `functions` or `limits` are given beside a machine, or an argument is of the
            wrong class.
        LinkError, VerifyError, ValueError: as for `VirtualMachine`.
    """
    checkpoints = Checkpoints(checkpoint, every) if checkpoint is not None else None
    if every is not None and checkpoint is None:
        raise TypeError("load_run: every: expected a checkpoint beside it")
    if isinstance(executable, VirtualMachine):
        if functions is not None or limits is not None:
            raise TypeError("load_run: a VirtualMachine has functions and limits already; pass the "
                            "executable to set others")  # fmt: skip
        vm = executable
    else:
        vm = VirtualMachine(executable, functions=functions, limits=limits)
    program = program_of(vm.executable)
    found = _read(source, vm, program.digest)
    try:
        check_frames(vm, found.run, found.frames)
        rooms = _rooms_of(found)
    except FormatError as fault:
        raise FormatError(f"{_name(source)}: not a saved run ({fault})") from None
    run = Run._restored(vm, found, checkpoints)
    vm.state.update(found.state)
    vm._rooms.update(rooms)
    return run


def _read(source: Any, vm: VirtualMachine, digest: bytes) -> SavedRun:
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return _read_file(file, os.fsdecode(source), vm, digest)
    if hasattr(source, "read"):
        return _read_file(source, name_of(source), vm, digest)
    try:
        view = memoryview(source).cast("B")
    except TypeError:
        raise TypeError(f"load_run: expected a path, a file or bytes, got "
                        f"{describe(source)}") from None  # fmt: skip
    return read(io.BytesIO(view), "<bytes>", view.nbytes, vm, digest, vm.limits)


def _read_file(file: Any, name: str, vm: VirtualMachine, digest: bytes) -> SavedRun:
    size = size_on_disk(file)
    if size is None:
        data = read_all(file, name, vm.limits)
        return read(io.BytesIO(data), name, len(data), vm, digest, vm.limits)
    return read(file, name, max(0, size - file.tell()), vm, digest, vm.limits)


def _name(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    return name_of(source) if hasattr(source, "read") else "<bytes>"


def _rooms_of(found: SavedRun) -> dict[str, Any]:
    if not found.rooms:
        return {}
    from ...builtins.state import Room  # here, since few programs have any

    rooms = {}
    for name, buffer, used in found.rooms:
        try:
            rooms[name] = Room.restored(buffer, used)
        except (TypeError, ValueError) as error:
            raise FormatError(f"the memory of {name!r}: {error}") from None
    return rooms
