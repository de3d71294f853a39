"""Saving and loading a suspended run, beside pickle, numpy.savez and safetensors of its tensors.

    python bench/bench_suspend.py [--mib N] [--rounds N] [--folder PATH]

All write the same float32 tensors to a file of the same folder and read them back into memory of
their own.  Only `run.save` flushes the file to the disk and checks what it reads, so the row
"bytes" shows it with a file object, which it does not flush, as the others.  The best of some
rounds.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of the tensors (default 512)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where files go (default: the folder for temporary files)")
    options = parser.parse_args()

    count = 16
    size = options.mib * (1 << 20) // 4 // count
    rng = np.random.default_rng(0)
    tensors = tuple(rng.standard_normal(size, np.float32) for _ in range(count))
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.copy", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    vm = VirtualMachine(eb.get())
    run = vm["main"].start(tensors)
    run.step()

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        path = Path(name, "file")
        ways = {"run.save": (lambda: run.save(path), lambda: loaded(vm, path))}
        ways["run.save, bytes"] = (lambda: saved(run, path), lambda: loaded(vm, path))
        ways["pickle"] = (lambda: dump(tensors, path), lambda: unpickled(path))
        ways["numpy.savez"] = (lambda: savez(tensors, path), lambda: unzipped(path))
        try:
            import safetensors.numpy as st
        except ImportError:
            print("safetensors is not installed: its row is left out", file=sys.stderr)
        else:
            named = {f"t{i}": t for i, t in enumerate(tensors)}
            ways["safetensors"] = (
                lambda: st.save_file(named, path),
                lambda: in_order(st.load_file(path)),
            )
        times: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for way, (save, load) in ways.items():
                path.unlink(missing_ok=True)
                row = [clocked(save), clocked(lambda load=load: check(load(), tensors))]
                times[way] = [min(a, b) for a, b in zip(times.get(way, row), row, strict=True)]
    nbytes = sum(t.nbytes for t in tensors)
    base = times["run.save, bytes"]
    print(f"{nbytes / 1e9:.2f} GB in {count} tensors; the ratio is over the row of bytes")
    print(f"{'':20}{'save GB/s':>12}{'ratio':>8}{'load GB/s':>12}{'ratio':>8}")
    for way, row in times.items():
        cells = [f"{nbytes / t / 1e9:12.2f}{b / t:8.2f}" for t, b in zip(row, base, strict=True)]
        print(f"{way:20}{''.join(cells)}")
    return 0


def clocked(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def check(found: Any, tensors: tuple[Any, ...]) -> None:
    assert len(found) == len(tensors)
    assert all(a[-1] == b[-1] for a, b in zip(found, tensors, strict=True))


def in_order(found: dict[str, Any]) -> list[Any]:
    return [found[f"t{i}"] for i in range(len(found))]


def saved(run: Any, path: Path) -> None:
    with path.open("wb") as file:
        run.save(file)


def loaded(vm: VirtualMachine, path: Path) -> Any:
    return relaxvm.load_run(path, vm).frames[0].registers[0]


def dump(tensors: tuple[Any, ...], path: Path) -> None:
    with path.open("wb") as file:
        pickle.dump(tensors, file, protocol=5)


def unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def savez(tensors: tuple[Any, ...], path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, *tensors)


def unzipped(path: Path) -> Any:
    with np.load(path) as found:
        return [found[name] for name in found.files]


if __name__ == "__main__":
    sys.exit(main())
