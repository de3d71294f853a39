"""Run a program as on a processor with fewer instructions: both sides of a comparison obey.

    python bench/limited.py avx2 python bench/compare_models.py mobilenet_v2 --python OTHER

`avx2` hides AVX-512, VNNI and AMX from the program and from all that it starts, `avx512` hides
VNNI, bfloat16, float16 and AMX: relaxvm, numpy, onnxruntime and OpenVINO choose the kernels that
they have for such a processor.  The clock and the caches are those of the real one.  Works on
Linux, x86-64, where the processor can hide CPUID (`cpuid_fault` in /proc/cpuinfo); it needs a C
compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import clean

LIMITS = ("avx2", "avx512")


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in LIMITS:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "limited.so"
        source = Path(__file__).with_suffix(".c")
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        env = {**os.environ, "LD_PRELOAD": str(library), clean.LIMIT: sys.argv[1]}
        return subprocess.run(sys.argv[2:], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
