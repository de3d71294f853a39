"""Run a program written for TVM: ``python -m relaxvm.contrib.as_tvm program.py [ARG ...]``.

``-m MODULE`` runs a module and ``-c CODE`` a text, as with Python itself.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from . import install as install  # the import of the package has done it

USAGE = "usage: python -m relaxvm.contrib.as_tvm [-m MODULE | -c CODE | FILE] [ARG ...]"


def main(args: Sequence[str]) -> int:
    """Run what the arguments name, with the rest of them as ``sys.argv``."""
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    first, rest = args[0], list(args[1:])
    if first in ("-m", "-c"):
        if not rest:
            print(f"{first}: expected an argument\n{USAGE}", file=sys.stderr)
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
        print(f"unknown option {first}\n{USAGE}", file=sys.stderr)
        return 2
    sys.argv = [first, *rest]
    sys.path.insert(0, str(Path(first).resolve().parent))
    runpy.run_path(first, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
