"""TVM's names on relaxvm: programs written for Apache TVM run as they are.

::

    python -m relaxvm.contrib.as_tvm program.py         # or -m pytest ..., or -c "..."

or, as the first line of a program::

    import relaxvm.contrib.as_tvm

From then on ``import tvm`` and ``import tvm_ffi``, and their submodules, find relaxvm.  `names` has
the one table that says which module of relaxvm stands behind which module of TVM; `finder` makes
the modules.  What only programs for TVM need, such as ``tvm.runtime.Tensor``, is defined in the
other modules here.

A name that is not there raises an AttributeError that says whether relaxvm has it under another
name, declines it, or lacks it.

Raises:
    ImportError: TVM itself is imported already.
"""

from __future__ import annotations

from .finder import install

__all__ = ["install"]

install()
