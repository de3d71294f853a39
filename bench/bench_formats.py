"""Loading and saving the binary format with relaxvm and apache-tvm, in one process.

    python bench/bench_formats.py [--mb 100] [--runs 7] [--only TEXT] [--folder DIR] [--json FILE]

Each executable has --mb megabytes of constants, as few large tensors or as many small ones, or of
code; one has 25,000 tensors of four floats.  Both sides read and write the same bytes, which is
checked first.  They alternate, and the minimum time of the runs counts.  `load` and `load bytes`
only read, as TVM does; `load bytes, verified` is `relaxvm.load`.  `load mapped` maps the file into
memory, which TVM does not have; it is compared with TVM's load.  `save` of relaxvm flushes the file
to disk before it replaces the old one; TVM's writes in place and does not flush.  `save to file
object` does not flush either.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean
import numpy as np

import relaxvm
from relaxvm import FunctionInfo, Limits, VMExecutable
from relaxvm.executable.formats import binary
from relaxvm.isa import FuncKind

LIMITS = Limits().but(constants=None, instructions=None, file_bytes=None)


def pool(nbytes: int, size: int) -> VMExecutable:
    """An executable with `nbytes` of tensors, `size` bytes each, and one instruction."""
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 2**32, nbytes // 4, dtype=np.uint32).view(np.float32)
    tensors = whole.reshape(-1, size // 4)
    return VMExecutable(
        [FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 1, 1)], list(tensors), [0], [2, 0]
    )


def code(nbytes: int) -> VMExecutable:
    """An executable with `nbytes` of gotos: two words of code and one of `instr_offset` each; it
    ends with a return."""
    count = nbytes // 24
    words = np.tile([3, 1], count)
    words[-2:] = 2, 0
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, count, 1, 1)
    return VMExecutable([main], [], np.arange(count) * 2, words)


def rows(megabytes: int) -> dict[str, VMExecutable]:
    nbytes = megabytes * 1_000_000
    return {
        "10 tensors": pool(nbytes, nbytes // 10),
        "1,000 tensors": pool(nbytes, nbytes // 1000),
        "tensors of 4 kB": pool(nbytes, 4000),
        "tensors of 16 B": pool(25_000 * 16, 16),
        "code": code(nbytes),
    }


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def both(ours: Callable[[], Any], theirs: Callable[[], Any], runs: int) -> tuple[float, float]:
    """Return the minimum times of two functions, which alternate."""
    pairs = [(timed(ours), timed(theirs)) for _ in range(runs)]
    return min(p[0] for p in pairs), min(p[1] for p in pairs)


def measure(name: str, ex: VMExecutable, folder: Path, runs: int) -> list[dict[str, Any]]:
    import tvm

    read_file = tvm.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")
    read_bytes = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    path, other = folder / "ours.vmexec", folder / "theirs.vmexec"
    data = binary.dumps(ex)
    ex.save(path)
    module = read_file(str(path))
    module.write_to_file(str(other), "")
    assert path.read_bytes() == other.read_bytes() == data
    assert binary.load(path, limits=LIMITS) == binary.load(path, mmap=True, limits=LIMITS) == ex

    def to_file_object() -> None:
        with open(path, "wb") as file:
            binary.save(ex, file)

    def write() -> None:
        module.write_to_file(str(other), "")

    def load() -> None:
        read_file(str(path))

    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "load": (lambda: binary.load(path, limits=LIMITS), load),
        "load bytes": (lambda: binary.loads(data, limits=LIMITS), lambda: read_bytes(data)),
        "load bytes, verified": (
            lambda: relaxvm.load(data, limits=LIMITS), lambda: read_bytes(data)
        ),
        "save": (lambda: ex.save(path), write),
        "save to file object": (to_file_object, write),
        "load mapped": (lambda: binary.load(path, mmap=True, limits=LIMITS), load),
    }
    table = []
    for what, (ours, theirs) in pairs.items():
        mine, other_time = both(ours, theirs, runs)
        table.append({
            "executable": name, "what": what, "bytes": len(data), "relaxvm": mine,
            "tvm": other_time, "ratio": other_time / mine,
        })  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=100, help="megabytes of each executable")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default="", help="executables whose name contains this text")
    parser.add_argument("--folder", help="where the files go (default: a temporary folder)")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()
    try:
        import tvm
    except ImportError:
        print("needs apache-tvm: pip install 'relaxvm[tvm]'", file=sys.stderr)
        return 2
    print(f"CPython {platform.python_version()}, numpy {np.__version__}, apache-tvm "
          f"{tvm.__version__}, {clean.machine()}")
    print(f"{'executable':18}{'what':22}{'relaxvm MB/s':>14}{'TVM MB/s':>12}{'ratio':>9}")
    table: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        chosen = {k: v for k, v in rows(options.mb).items() if options.only in k}
        for name, ex in chosen.items():
            for row in measure(name, ex, Path(folder), options.runs):
                table.append(row)
                speeds = [row["bytes"] / 1e6 / row[side] for side in ("relaxvm", "tvm")]
                print(f"{name:18}{row['what']:22}{speeds[0]:>14,.0f}{speeds[1]:>12,.0f}"
                      f"{row['ratio']:>9.2f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
