"""Run a program with onnxruntime's names on relaxvm:
``python -m relaxvm.contrib.onnxruntime program.py [ARG ...]``."""

from __future__ import annotations

import sys

from ..running import run_program
from .finder import install

if __name__ == "__main__":
    install()
    sys.exit(run_program("relaxvm.contrib.onnxruntime", sys.argv[1:]))
