"""Import time, memory and installed size of relaxvm, numpy alone and TVM.

    python bench/compare_start.py [--repeats N] [--json FILE]
    python bench/compare_start.py --models MODEL.onnx ... [--shape NAME=1,3,48,320] [--value NAME=1]

Every import runs in its own process; they alternate and the minimum time of each counts.  All of
them find compiled .pyc files, as after an installation: a first round, which is not counted, writes
them, whatever the environment variables for .pyc files say.  Needs the extra ``tvm``.

With models it compares starts to the first result of each with onnxruntime instead, which it needs:
see `start_models.compare`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

import clean
import start_models

PROGRAMS = {
    "numpy": "import numpy",
    "relaxvm": "import numpy, relaxvm",
    "relaxvm, first VM": (
        "import numpy, relaxvm\n"
        "b = relaxvm.ExecBuilder()\n"
        "with b.function('main', 1):\n"
        "    b.emit_ret(b.r(0))\n"
        "relaxvm.VirtualMachine(b.get()).main(1)"
    ),
    "TVM": "import tvm, tvm.relax",
    "TVM, first VM": (
        "import tvm\n"
        "from tvm import relax\n"
        "b = relax.ExecBuilder()\n"
        "with b.function('main', 1):\n"
        "    b.emit_ret(b.r(0))\n"
        "relax.VirtualMachine(b.get(), tvm.cpu())['main'](1)"
    ),
}

MEASURED = """
import time; start = time.perf_counter()
{program}
seconds = time.perf_counter() - start
try:
    import resource
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
except ImportError:
    memory = 0
print(seconds, memory)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--models", nargs="+", metavar="MODEL.onnx",
                        help="compare the start of models with onnxruntime")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,48,320",
                        help="the shape of an input whose symbolic dimensions are not 1")
    parser.add_argument("--value", action="append", default=[], metavar="NAME=16000",
                        help="the value of all elements of an input that is not 0")
    options = parser.parse_args()
    if options.models:
        rows = start_models.compare(
            options.models, options.shape, options.value, options.repeats
        )
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
        return 0

    best: dict[str, tuple[float, int]] = {}
    with tempfile.TemporaryDirectory() as bytecode:
        for program in PROGRAMS.values():
            once(program, bytecode)
        for _ in range(options.repeats):
            for name, program in PROGRAMS.items():
                best[name] = min(best.get(name, (float("inf"), 0)), once(program, bytecode))
    sizes = {
        "relaxvm": installed_size(["relaxvm"]),
        "TVM": installed_size(["apache-tvm", "apache-tvm-ffi"]),
    }

    numpy_seconds = best["numpy"][0]
    print(f"{'':20}{'import':>10}{'over numpy':>12}{'peak memory':>13}{'installed':>11}")
    for name, (seconds, memory) in best.items():
        size = f"{sizes[name] / 1e6:.1f} MB" if sizes.get(name) else ""
        print(f"{name:20}{seconds * 1e3:7.0f} ms{(seconds - numpy_seconds) * 1e3:9.0f} ms"
              f"{memory:9} MiB{size:>11}")
    ratio = best["TVM, first VM"][0] / best["relaxvm, first VM"][0]
    print(f"from a cold start to the first result: TVM takes {ratio:.1f} times as long")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"import": best, "installed_bytes": sizes}, file, indent=1)
    return 0


def once(program: str, bytecode: str) -> tuple[float, int]:
    """Return seconds and peak MiB of a program in a new process with its .pyc files in a folder."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = bytecode
    code = MEASURED.format(program=program)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), int(memory)


def installed_size(names: Iterable[str]) -> int:
    """Return the bytes of the files of distributions; 0 for those that are not installed."""
    total = 0
    for name in names:
        try:
            files: Any = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        total += sum(path.stat().st_size for file in files if (path := file.locate()).exists())
    return total


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
