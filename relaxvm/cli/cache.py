"""``cache``: the compiled programs that are kept on disk."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ..vm.allocators import format_bytes
from ..vm.program_cache import cache_limit, clear_cache, entries, is_enabled, programs_path
from .console import Console
from .exits import Exit, UsageError, write_error

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    cache = commands.add_parser(
        "cache", parents=[common], help="the compiled programs that are kept on disk",
        description="Show or remove the compiled programs that relaxvm.compile and "
        "VirtualMachine(path) keep on disk. Compiled kernels are left alone.",
    )  # fmt: skip
    cache.add_argument("action", choices=("show", "clear"), nargs="?", default="show",
                       help="show the programs (the default), or remove all of them")  # fmt: skip
    cache.set_defaults(command=_cache)


def _cache(args: argparse.Namespace, console: Console) -> int:
    folder = programs_path()
    if args.action == "clear":
        try:
            removed = clear_cache()
        except OSError as error:
            raise write_error(str(folder), error) from error
        console.text(f"{folder}: removed {format_bytes(removed)}")
        console.result({"directory": str(folder), "removed_bytes": removed})
        return Exit.OK
    try:
        limit = cache_limit()
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = entries()
    total = sum(entry.nbytes for entry in found)
    state = "" if is_enabled() else ", turned off by RELAXVM_CACHE"
    noun = "program" if len(found) == 1 else "programs"
    console.text(f"{folder}: {len(found)} {noun}, {format_bytes(total)} of "
                 f"{format_bytes(limit)}{state}")  # fmt: skip
    for entry in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        console.text(f"  {entry.path.name}  {format_bytes(entry.nbytes):>10}  used {used}")
    console.result({
        "directory": str(folder), "enabled": is_enabled(), "bytes": total, "limit": limit,
        "programs": [{"key": entry.path.name, "bytes": entry.nbytes, "used": entry.used}
                     for entry in found],
    })  # fmt: skip
    return Exit.OK
