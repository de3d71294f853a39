"""Calls while other threads write, reshape or free what they use; see `race_attacks`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from relaxvm import list_funcs
from relaxvm.kernels import PREFIX
from relaxvm.native.toolchain import compiler
from relaxvm.registry import GLOBAL

from . import children
from .builtin_cases import own_builtins

ROOT = Path(__file__).parents[1]
SEED = 12


def python(text: str, *args: str, **environment: str) -> str:
    """Run a program in a process with the same relaxvm; return its standard output."""
    # Not by -m, which would import the relaxvm of the checkout instead of the installed one.
    start = f"import sys; sys.path.append({str(ROOT)!r})\n"
    done = children.run(
        [sys.executable, "-P", "-X", "faulthandler", "-W", "ignore", "-c", start + text, *args],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{args}: {done.stdout[-300:]}\n{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def called() -> set[str]:
    """The functions that were called while their operands changed."""
    return attacked()


def attacked(*args: str, **environment: str) -> set[str]:
    """The functions that `race_attacks` has called in a process of its own."""
    text = "import runpy; runpy.run_module('tests.race_attacks', run_name='__main__')"
    # LAPACK may print what it thinks of the numbers in between.
    rows = re.findall(r"@(\S+)\t(\d+)\t(\d+)\n", python(text, str(SEED), *args, **environment))
    assert all(int(count) > 0 for _, count, _ in rows)
    return {name for name, _, _ in rows}


def test_kernels_in_numpy_survive(called: set[str]) -> None:
    """Without implementations in C.  Some of numpy's functions read shape and data type of an
    argument without the lock; kernels have views, so that nobody changes those."""
    kernels = {name for name in called if name.startswith(PREFIX)}
    assert kernels <= attacked(RELAXVM_CPU="numpy")


def test_every_kernel_survives(called: set[str]) -> None:
    kernels = {name for name in list_funcs() if name.startswith(PREFIX)}
    without_tensors = {"arange", "mel_weights"}
    aliases = {"fill", "linear", "relu", "remainder", "matmul_tn", "expand_dims", "squeeze",
               "flatten", "reshape", "cast", "fused"}  # fmt: skip
    missing = {name.removeprefix(PREFIX) for name in kernels - called}
    assert missing <= without_tensors | aliases


def test_every_builtin_that_takes_a_tensor_survives(called: set[str]) -> None:
    takes = set()
    for name in own_builtins():
        record = GLOBAL.lookup(name)
        assert record is not None
        assert record.signature is not None
        if "tensor" in str(record.signature).split(" -> ")[0] and not record.effect:
            takes.add(name)
    assert takes <= called


MIXTURES = """
import threading, time
import numpy as np
import relaxvm

n = 1 << 17
over = False


def write(array, values):
    while not over:
        for value in values:
            np.copyto(array, value)


def attack(array, values, call, seconds=0.5):
    # Call while a thread writes each of the values to the array, without Python's lock.
    global over
    over = False
    writer = threading.Thread(target=write, args=(array, values), daemon=True)
    writer.start()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            call()
    finally:
        over = True
        writer.join()


sys.setswitchinterval(1e-5)
get = relaxvm.get_func
inside = np.arange(n) % 100
wild = np.full(n, 2**62)
wild[::3] = -(2**40)
x = np.arange(1000.0, 1100.0)


def taking(function, size, *mode):
    indices, out = inside[:size].copy(), np.zeros(size)
    modes = dict(wrap=lambda i: x[i % 100], clip=lambda i: x[np.clip(i, 0, 99)],
                 nan=lambda i: np.where(i == inside[:size], x[i % 100], np.nan))
    answers = [x[inside[:size]]]
    if mode:
        answers += [modes[mode[0]](wild[:size])]

    def call():
        try:
            function(x, indices, *([0, *mode] if mode != (None,) else []), out)
        except IndexError:
            assert not mode or mode == (None,)
            return
        right = [(out == answer) | (np.isnan(out) & np.isnan(answer)) for answer in answers]
        assert np.logical_or.reduce(right).all()

    return indices, [inside[:size], wild[:size]], call
"""

TAKE = MIXTURES + """
for mode in ((), ("wrap",), ("clip",), ("nan",)):
    attack(*taking(get("relaxvm.kernel.take"), n, *mode))
attack(*taking(get("relaxvm.kernel.take"), 8000))  # in C
"""

LOOPS = MIXTURES + """
from relaxvm.script import from_source
from relaxvm.tir.build import compile_prim_func

for body in ("x[i[k]]", "x[T.max(T.min(i[k], T.int64(99)), T.int64(0))]",
             "T.if_then_else(i[k] >= 0 and i[k] < 100, x[i[k]], T.float64(1000))"):
    checked = body == "x[i[k]]"
    module = from_source(f'''
@I.ir_module
class Module:
    @T.prim_func
    def f(x: T.Buffer((100,), "float64"), i: T.Buffer(({n},), "int64"),
          out: T.Buffer(({n},), "float64")):
        for k in range({n}):
            out[k] = {body}
''')
    function = compile_prim_func(module["f"], prefer="c")
    indices, out = inside.copy(), np.zeros(n)

    def call():
        try:
            function(x, indices, out)
        except IndexError:
            return
        assert out.min() >= 1000 and out.max() < 1100
        if checked:
            assert (out == x[inside]).all()

    attack(indices, [inside, wild], call)
"""

ORDERS = MIXTURES + """
for dtype in ("i1", "u2", "i4", "f4"):
    a = (np.arange(n) * 7919 % 101).astype(dtype)
    b = np.full(n, 100, dtype)
    b[: n // 2] = 3
    keys, order, values = a.copy(), np.zeros(n, "i8"), a.copy()

    def argsort():
        get("relaxvm.kernel.argsort")(keys, 0, False, order)
        assert (np.bincount(order, minlength=n) == 1).all()

    def sort():
        get("relaxvm.kernel.sort")(keys, 0, False, values)
        assert (np.diff(values.astype("f8")) >= 0).all()

    attack(keys, [a, b], argsort, 0.2)
    attack(keys, [a, b], sort, 0.1)

few, many = np.arange(n) % 20 == 0, np.ones(n, "?")
bad = np.full(n, 0xFE, "u1").view("?")
flags = few.copy()


def nonzero():
    (found,) = get("relax.run.nonzero")(flags)
    assert (np.diff(found) > 0).all() and 0 <= found[0] <= found[-1] < n


attack(flags, [few, many, bad], nonzero)
"""


FILES = """
import json, os, random, threading, time
import numpy as np
import relaxvm
from relaxvm.builtins.tensor_cache import read_tensor_cache
from relaxvm.errors import RelaxVMError

path, folder, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
draw = random.Random(seed)
b = relaxvm.ExecBuilder()
with b.function("main", num_inputs=0):
    for k in range(20):
        b.emit_call("f", [b.convert_constant(np.full(5000, k))], dst=b.r(k))
    b.emit_ret(b.r(0))
data = b.get().to_bytes()
shard = np.arange(50000, dtype="f4").tobytes()
tensor = dict(name="w", shape=[50000], dtype="float32", format="raw", nbytes=200000, byteOffset=0)
index = dict(records=[dict(dataPath="w.bin", format="raw-shard", nbytes=200000, records=[tensor])])
with open(os.path.join(folder, "tensor-cache.json"), "w") as file:
    json.dump(index, file)
files = {path: data, os.path.join(folder, "w.bin"): shard}
over = False


def cut():
    while not over:
        for name, content in files.items():
            with open(name, "r+b" if os.path.exists(name) else "wb") as file:
                file.truncate(draw.randrange(len(content)))
                file.write(content)


writer = threading.Thread(target=cut, daemon=True)
writer.start()
sys.setswitchinterval(1e-5)
counts = dict(read=0, refused=0)
end = time.monotonic() + 2
while time.monotonic() < end:
    for reader in (lambda: relaxvm.load(path, limits=relaxvm.Limits.untrusted()),
                   lambda: read_tensor_cache(folder)):
        try:
            reader()
            counts["read"] += 1
        except (RelaxVMError, FileNotFoundError):
            counts["refused"] += 1
over = True
writer.join()
assert counts["refused"], counts
"""


def test_files_that_change_while_they_are_read(tmp_path: Path) -> None:
    python(FILES, str(tmp_path / "it.vmexec"), str(tmp_path), str(SEED))


@pytest.mark.parametrize("attack", ["TAKE", "ORDERS"])
def test_results_are_right_for_what_was_read(attack: str) -> None:
    python(globals()[attack])


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_compiled_loops_read_an_index_once() -> None:
    python(LOOPS)


def test_the_data_type_changes_while_numpy_searches() -> None:
    """numpy reads size and data type of what it looks for after it has released the lock."""
    python(
        """
import sys, threading, time
import numpy as np
from relaxvm.registry import GLOBAL

bucketize = GLOBAL.get("relaxvm.kernel.bucketize")
sys.setswitchinterval(1e-5)
x, bounds, out = np.linspace(-2, 2, 4000), np.linspace(-1, 1, 50), np.empty(4000, np.int64)
end = time.monotonic() + 3


def change():
    while time.monotonic() < end:
        x.dtype = np.uint8
        time.sleep(0)
        x.dtype = np.float64
        time.sleep(0)


thread = threading.Thread(target=change)
thread.start()
while time.monotonic() < end:
    try:
        bucketize(x, bounds, 0, out)
    except ValueError:
        pass
thread.join()
"""
    )
