"""Modules with kernels are imported when one of their kernels is looked up."""

from __future__ import annotations

import sys

import pytest

from relaxvm.kernels.cpu import CPU, SETS

from . import children

ALL = """
from relaxvm import kernels
from relaxvm.registry import GLOBAL, KERNEL_PREFIX, RESULT_PREFIX
kernels.import_all()
print(*[name for name in GLOBAL.names() if name.startswith((KERNEL_PREFIX, RESULT_PREFIX))])
"""

ONE_BY_ONE = """
import sys
from relaxvm import kernels
from relaxvm.registry import GLOBAL
def fail():
    raise SystemExit("all modules were imported")
kernels.import_all = fail
for name in sys.argv[1:]:
    assert GLOBAL.lookup(name) is not None, name
"""

ONE = """
import sys
from relaxvm import get_func
get_func("relaxvm.kernel.add")
print(*sorted(m for m in sys.modules if m.startswith("relaxvm.kernels.")))
from relaxvm.kernels import _families
_families._homes().clear()  # a new kernel, which is not in the table yet
print(get_func("relaxvm.kernel.nn.softmax") is not None, get_func("relaxvm.kernel.no_such", True))
"""


CHAIN = """
import sys
import numpy as np
from relaxvm.kernels import _families
run, _ = _families.deferred("relaxvm.kernel.fused")
x, out = np.full(4096, 4, np.float32), np.empty(4096, np.float32)
run(x, "relu($0); rsqrt(%0); multiply(%1, 2) -> %2", out)
print(out[0], "relaxvm.kernels.fused" in sys.modules or "relaxvm.kernels._kernel" in sys.modules)
"""


def run(code: str, *args: str) -> str:
    done = children.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_every_kernel_is_in_the_table() -> None:
    run(ONE_BY_ONE, *run(ALL).split())


def test_other_modules_are_not_imported() -> None:
    imported, found = run(ONE).splitlines()
    assert "relaxvm.kernels.elementwise" in imported.split()
    assert "relaxvm.kernels.convolution" not in imported.split()
    assert found == "True None"


@pytest.mark.skipif(CPU not in SETS, reason="no kernels in C")
def test_a_chain_in_c_imports_no_kernels() -> None:
    assert run(CHAIN).split() == ["1.0", "False"]
