"""Run a program written for TVM: ``python -m relaxvm.contrib.as_tvm program.py [ARG ...]``.

``-m MODULE`` runs a module and ``-c CODE`` a text, as with Python itself.
"""

from __future__ import annotations

import sys

from ..running import run_program
from . import install as install  # the import of the package has done it

if __name__ == "__main__":
    sys.exit(run_program("relaxvm.contrib.as_tvm", sys.argv[1:]))
