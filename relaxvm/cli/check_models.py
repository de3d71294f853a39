"""``check``: whether programs in files can be compiled and run, with all that they lack."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, Final

from ..errors import RelaxVMError
from ..executable.file_kinds import FileKind
from ..isa import FuncKind
from ..limits import Limits
from ..messages import readable
from ..registry import GLOBAL, list_funcs
from ..verify import verify
from .console import Console, describe_error
from .exits import CommandError, Exit, exit_code_of, read_error
from .files import (
    add_file_argument,
    add_kernels_argument,
    import_kernels,
    limits_of,
    open_executable,
    program_kind,
)

__all__ = ["add_commands"]

_SHOWN: Final = 100
"""The most nodes that the text form lists; --json has all."""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    check = commands.add_parser(
        "check", parents=[common], help="whether models and executables run here",
        description="List all nodes of a model whose operators are not supported; compile it if "
        "there are none. Of an executable, verify it and list missing functions. Runs no code of "
        "the files.",
    )  # fmt: skip
    add_file_argument(check, many=True)
    add_kernels_argument(check)
    check.set_defaults(command=_check)


def _check(args: argparse.Namespace, console: Console) -> int:
    limits = limits_of(args)
    import_kernels(args.kernels)
    list_funcs()  # registers the builtins
    rows = []
    worst = Exit.OK
    with console.progress("checking", len(args.files)) as progress:
        for name in args.files:
            try:
                code, row = _check_file(name, limits, console)
            except (CommandError, RelaxVMError) as error:
                code = exit_code_of(error)
                message = describe_error(error)
                console.text(message)
                row = {"error": message}
            rows.append({"file": name, "ok": code == Exit.OK, **row, "exit_code": int(code)})
            worst = max(worst, code)
            progress.step()
    console.result({"ok": worst == Exit.OK, "files": rows})
    return worst


def _check_file(name: str, limits: Limits, console: Console) -> tuple[Exit, dict[str, Any]]:
    try:
        kind = program_kind(name)
    except OSError as error:
        raise read_error(name, error) from error
    row: dict[str, Any] = {"kind": "unknown" if kind is None else kind.name}
    if kind is not None and kind.name in ("onnx", "pt2"):
        row |= _nodes(name, kind, limits, console)
        if row["unsupported"]:
            return Exit.FAILED, row
    try:
        code, more = _compiled(name, kind, limits, console)
    except CommandError as error:
        # A program that is well formed but does not compile.
        if kind is None or not kind.is_program or not isinstance(error.__cause__, RelaxVMError):
            raise
        message = describe_error(error)
        console.text(message)
        return Exit.FAILED, {**row, "error": message}
    return code, {**row, **more}


def _nodes(name: str, kind: FileKind, limits: Limits, console: Console) -> dict[str, Any]:
    """What a model consists of, and what of it is not supported."""
    from ..frontend.onnx.report import report
    from ..frontend.torch.report import report as report_of_torch

    found: Any
    try:
        found = (report if kind.name == "onnx" else report_of_torch)(name, limits=limits)
    except OSError as error:
        raise read_error(name, error) from error
    versions = ", ".join(f"{readable(d)} {v}" for d, v in found.versions.items())
    by = f", written by {readable(found.producer)}" if found.producer else ""
    console.text(f"{name}: {kind.what}, {found.nodes:,} nodes, {versions}{by}")
    if found.unsupported:
        counts = Counter((node.domain, node.operator) for node in found.unsupported)
        most = counts.most_common(_SHOWN)
        counted = ", ".join(f"{readable(d)}.{readable(n)} {c}" for (d, n), c in most)
        console.text(f"nodes that are not supported: {len(found.unsupported):,} ({counted})")
        console.text("\n".join(f"  {node}" for node in found.unsupported[:_SHOWN]))
        if len(found.unsupported) > _SHOWN:
            console.text(f"  ... {len(found.unsupported) - _SHOWN:,} more, shown with --json")
    return {
        "nodes": found.nodes,
        "versions": found.versions,
        "producer": found.producer,
        "metadata": found.metadata,
        "unsupported": [node._asdict() for node in found.unsupported],
    }


def _compiled(
    name: str, kind: FileKind | None, limits: Limits, console: Console
) -> tuple[Exit, dict[str, Any]]:
    """Compile or read the file, and verify the executable."""
    executable = open_executable(name, limits, mapped=True).executable
    report = verify(executable, limits=limits)
    kernels = executable.kernels
    missing = [
        info.name
        for info in executable.functions
        if info.kind == FuncKind.PACKED and info.name not in GLOBAL and info.name not in kernels
    ]
    row = {"problems": [str(problem) for problem in report.problems], "missing": missing}
    if not report.ok:
        console.text("\n".join(f"{name}: {line}" for line in str(report).splitlines()))
        return Exit.FAILED, row
    if missing:
        listed = ", ".join(map(readable, missing[:_SHOWN]))
        console.text(f"{name}: functions are missing: {listed}")
        return Exit.MISSING, row
    done = "compiles and runs" if kind is not None and kind.is_program else "runs"
    console.text(f"{name}: ok, {done} here")
    return Exit.OK, row
