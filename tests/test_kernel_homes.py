"""Modules with kernels are imported when one of their kernels is looked up."""

from __future__ import annotations

import sys

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
