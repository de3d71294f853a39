"""Tests of programs and passes: comparisons that name the variable, strategies, a pytest plugin.

    from relaxvm.testing import assert_same

    assert_same(Module, MyPass()(Module), [x])

`relaxvm.testing.strategies` has hypothesis strategies for programs, executables and inputs; it
needs the extra ``test``.  pytest loads `relaxvm.testing.plugin` where relaxvm is installed.
"""

from __future__ import annotations

from .compare import assert_same

__all__ = ["assert_same"]
