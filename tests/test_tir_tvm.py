"""Kernels from the same text, compiled by TVM and by relaxvm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm.ir.equality import structural_equal
from relaxvm.native.kernel_library import KernelLibrary
from relaxvm.script import from_source
from relaxvm.tir.build import build_prim_funcs

from . import tir_kernels
from .test_tir_lowering import EXACT, FUNCS

tvm = pytest.importorskip("tvm")

# Overflow, division of the minimum integer and casts out of range are undefined in TVM.
OTHERWISE = {"integer_arithmetic"}
# TVM's build does not support these: thread_binding is for devices, `logic` reads out of bounds,
# and returned values and scans are not for this target.
NOT_THERE = {"loops", "logic", "answer"}
NAMES = sorted(set(EXACT) - OTHERWISE - NOT_THERE)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The text of every kernel."""
    text = Path(tir_kernels.__file__).read_text(encoding="utf-8")
    parts = re.split(r"^(?=@T\.prim_func)", text, flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        name = re.search(r"def (\w+)", part)
        assert name is not None
        found[name[1]] = part.replace("@T.prim_func\n", "@T.prim_func(s_tir=True)\n")
    return found


@pytest.fixture(scope="module")
def library() -> KernelLibrary:
    return build_prim_funcs(FUNCS)


def _tvm_func(text: str) -> Any:
    return tvm.script.from_source("# from tvm.script import tirx as T\n" + text)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_tvms(name: str, texts: dict[str, str], library: KernelLibrary) -> None:
    ours = [a.copy() if isinstance(a, np.ndarray) else a for a in EXACT[name]]
    theirs = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in EXACT[name]]
    library[name](*ours)
    tvm.compile(_tvm_func(texts[name]), target="llvm")(*theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, np.ndarray):
            exact = a.dtype.kind != "f" or name not in ("matmul", "transposed_matmul", "conv2d")
            # TVM may fuse products and sums.
            if exact:
                np.testing.assert_array_equal(a, b.numpy())
            else:
                np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-5)


# In TVM, scalars in memory have a layout; here buffers do not.
@pytest.mark.parametrize("name", sorted(set(FUNCS) - {"bits", "checked", "answer", "control"}))
def test_what_we_print_is_read_by_tvm_as_the_same(name: str, texts: dict[str, str]) -> None:
    printed = FUNCS[name].script()
    # In TVM, dimensions in quotes are int32; int64 variables are declared before the function.
    wide = re.findall(r"^    (\w+) = T\.int64\(\)$", printed, re.M)
    for var in wide:
        printed = f'{var} = TypeVar("{var}")\n' + printed.replace(f"    {var} = T.int64()\n", "")
    theirs = tvm.script.from_source(f"# from tvm.script import tirx as T\n{printed}")
    tvm.ir.assert_structural_equal(theirs, _tvm_func(texts[name]), map_free_vars=True)


@pytest.mark.parametrize("name", sorted(FUNCS))
def test_what_tvm_prints_is_read_as_the_same(name: str, texts: dict[str, str]) -> None:
    printed = _tvm_func(texts[name]).script()
    assert structural_equal(from_source(printed), FUNCS[name])
