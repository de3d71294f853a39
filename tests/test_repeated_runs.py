"""Runs of a compiled network that are repeated ask the system for no memory.

The calls of malloc, calloc, realloc and their like are counted by a library that a child process
loads before the others (``LD_PRELOAD``).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from relaxvm.native import toolchain

from . import children

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD"),
    pytest.mark.skipif(toolchain.compiler() is None, reason="there is no C compiler"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another library counts already"),
]

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#define LARGE 65536
long counted_calls, counted_large;
static void *(*system_malloc)(size_t), *(*system_calloc)(size_t, size_t);
static void *(*system_realloc)(void *, size_t), *(*system_aligned)(size_t, size_t);
static int (*system_memalign)(void **, size_t, size_t);
static char early[4096];
static void find(void) {
    static int is_busy;
    if (system_malloc || is_busy) return;
    is_busy = 1;
    system_calloc = dlsym(RTLD_NEXT, "calloc");
    system_realloc = dlsym(RTLD_NEXT, "realloc");
    system_aligned = dlsym(RTLD_NEXT, "aligned_alloc");
    system_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    system_malloc = dlsym(RTLD_NEXT, "malloc");
}
static void count(size_t size) {
    find();
    __atomic_fetch_add(&counted_calls, 1, __ATOMIC_RELAXED);
    if (size >= LARGE) __atomic_fetch_add(&counted_large, 1, __ATOMIC_RELAXED);
}
void *malloc(size_t size) { return count(size), system_malloc(size); }
void *calloc(size_t n, size_t size) {
    count(n * size);
    return system_calloc ? system_calloc(n, size) : early; /* of dlsym itself */
}
void *realloc(void *old, size_t size) { return count(size), system_realloc(old, size); }
void *aligned_alloc(size_t to, size_t size) { return count(size), system_aligned(to, size); }
int posix_memalign(void **out, size_t to, size_t size) {
    return count(size), system_memalign(out, to, size);
}
"""

RUNS = """
import ctypes, sys
import numpy as np
import relaxvm
from relaxvm.ir import TensorType, Tuple, Var, const
from relaxvm.script import relax as R

rng = np.random.default_rng(0)
normal = lambda *shape: const((rng.standard_normal(shape) * 0.05).astype(np.float32))
bb = relaxvm.BlockBuilder()
x = Var("x", TensorType((1, 3, 64, 64), "float32"))
rows = Var("rows", TensorType((64, 512), "float32"))
with bb.function("main", [x, rows]):
    with bb.dataflow():
        image = bb.emit(R.nn.relu(bb.emit(R.nn.conv2d(x, normal(64, 3, 3, 3), padding=1))))
        image = bb.emit(R.nn.relu(bb.emit(R.nn.conv2d(image, normal(64, 64, 3, 3), padding=1))))
        image = bb.emit(R.nn.conv2d(image, normal(64, 1, 3, 3), padding=1, groups=64))
        image = bb.emit(R.nn.conv2d(image, normal(48, 64, 5, 5), padding=2, strides=2))
        image = bb.emit(R.nn.max_pool2d(image, (2, 2), (2, 2)))
        sums = bb.emit(R.matmul(rows, normal(512, 1024)))
        sums = bb.emit(R.nn.gelu(bb.emit(R.add(sums, normal(1024)))))
        sums = bb.emit(R.nn.softmax(bb.emit(R.matmul(sums, normal(1024, 512)))))
        heads = bb.emit(R.reshape(sums, (1, 64, 8, 64)))
        heads = bb.emit(R.nn.attention(heads, heads, heads))
        image, heads = bb.emit(R.mean(image, [2, 3])), bb.emit(R.sum(heads, [2]))
        results = bb.emit_output(Tuple([image, heads]))
    bb.emit_func_output(results)
relaxvm.set_num_threads(int(sys.argv[1]))
vm = relaxvm.VirtualMachine(relaxvm.compile(bb.get(), relax_pipeline="model"))
image = rng.standard_normal((1, 3, 64, 64)).astype(np.float32)
rows = rng.standard_normal((64, 512)).astype(np.float32)
counts = [ctypes.c_long.in_dll(ctypes.CDLL(None), f"counted_{name}") for name in ("calls", "large")]
for _ in range(5):
    vm["main"](image, rows)
before = [count.value for count in counts]
for _ in range(20):
    vm["main"](image, rows)
print([count.value - old for count, old in zip(counts, before)])
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counter")
    (folder / "counter.c").write_text(COUNTER)
    library = folder / "counter.so"
    compiler = shutil.which("cc") or toolchain.compiler()
    assert compiler
    command = [compiler, "-shared", "-fPIC", "-O1", str(folder / "counter.c"), "-o", str(library)]
    children.run([*command, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("threads", [1, 2])
def test_repeated_runs_ask_for_no_memory(counter: Path, threads: int) -> None:
    printed = children.run_script(RUNS, threads, LD_PRELOAD=str(counter))
    calls, large = map(int, printed.strip().strip("[]").split(","))
    assert large == 0, f"{large} blocks of 64 KiB and more in 20 runs"
    assert calls < 40, f"{calls} blocks in 20 runs"
