"""``verify`` and ``versions``."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import RelaxVMError
from ..executable import SavedPrimFuncs, StoredKernels, VMExecutable
from ..limits import Limits
from ..registry import list_funcs
from ..verify import Report, verify
from ..versions import versions
from .console import Console, describe_error
from .exits import CommandError, Exit, exit_code_of
from .files import (
    add_file_argument,
    add_kernels_argument,
    import_kernels,
    limits_of,
    open_executable,
)

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    check = commands.add_parser(
        "verify", parents=[common], help="check files against all rules",
        description="Check whether files are valid; report every problem. Does not run their code.",
    )  # fmt: skip
    add_file_argument(check, many=True)
    add_kernels_argument(check)
    check.add_argument("--strict", action="store_true", help="fail on warnings too")
    check.set_defaults(command=_verify)

    about = commands.add_parser(
        "versions", parents=[common], help="what is installed, for bug reports",
        description="Print the versions of relaxvm, Python, numpy and the platform.",
    )  # fmt: skip
    about.set_defaults(command=_versions)


def _verify(args: argparse.Namespace, console: Console) -> int:
    limits = limits_of(args)
    import_kernels(args.kernels)
    list_funcs()  # registers the builtins
    rows = []
    worst = Exit.OK
    with console.progress("verifying", len(args.files)) as progress:
        for name in args.files:
            code, row = _verify_file(name, limits, args, console)
            rows.append(row)
            worst = max(worst, code)
            progress.step()
    console.result({"ok": worst == Exit.OK, "files": rows})
    return worst


def _verify_file(
    name: str, limits: Limits, args: argparse.Namespace, console: Console
) -> tuple[Exit, dict[str, Any]]:
    """Check one file; an error while reading it is reported, so that the other files are checked
    too."""
    try:
        opened = open_executable(name, limits, mapped=True)
        report = verify(opened.executable, limits=limits)
        _check_prim_funcs(opened.executable, limits)
    except (CommandError, RelaxVMError) as error:
        code = exit_code_of(error)
        if len(args.files) == 1:
            raise
        message = describe_error(error)
        console.text(message)
        return code, {"file": name, "ok": False, "error": message, "exit_code": int(code)}
    code = Exit.OK if _passes(report, args) else Exit.FAILED
    console.text("\n".join(f"{opened.name}: {line}" for line in str(report).splitlines()))
    return code, {"file": opened.name, **report.to_dict(), "exit_code": int(code)}


def _check_prim_funcs(executable: VMExecutable, limits: Limits) -> None:
    """Check the PrimFuncs of a file as a VM does before it compiles them."""
    kernels = executable.kernels
    saved = kernels.saved if isinstance(kernels, StoredKernels) else kernels
    if isinstance(saved, SavedPrimFuncs):
        saved.check(limits)


def _passes(report: Report, args: argparse.Namespace) -> bool:
    return report.ok and not (args.strict and report.warnings)


def _versions(args: argparse.Namespace, console: Console) -> int:
    found = versions()
    width = max(map(len, found))
    console.text("\n".join(f"{name:<{width}}  {value}" for name, value in found.items()))
    console.result(found)
    return Exit.OK
