"""Running a Python program, after something was prepared for it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["run_program"]


def run_program(door: str, args: Sequence[str]) -> int:
    """Run the program that arguments name, as Python itself would: a file, ``-m MODULE`` or
    ``-c CODE``, with the rest of them as ``sys.argv``.

    Args:
        door: the module whose command this is, for messages.
        args: the arguments.

    Returns:
        The exit code; 2 for wrong usage.
    """
    usage = f"usage: python -m {door} [-m MODULE | -c CODE | FILE] [ARG ...]"
    if not args or args[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    first, rest = args[0], list(args[1:])
    if first in ("-m", "-c"):
        if not rest:
            print(f"{first}: expected an argument\n{usage}", file=sys.stderr)
            return 2
        what, *rest = rest
        sys.path[0:0] = [] if "" in sys.path else [""]
        if first == "-m":
            sys.argv = [what, *rest]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.argv = ["-c", *rest]
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        return 0
    if first.startswith("-"):
        print(f"unknown option {first}\n{usage}", file=sys.stderr)
        return 2
    sys.argv = [first, *rest]
    sys.path.insert(0, str(Path(first).resolve().parent))
    runpy.run_path(first, run_name="__main__")
    return 0
