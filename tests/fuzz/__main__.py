"""``python -m tests.fuzz --kind all --count 1000000 --seed 0``"""

from __future__ import annotations

import os

# One thread per worker: there are many workers, and threads do not survive a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys

from .campaign import main

if __name__ == "__main__":
    sys.exit(main())
