"""Tests of operators, all generated from one table of cases.

All files of this folder are imported; those of the families (`elementwise`, `movement`, `nn` and so
on) contain the table, with one entry of `table.cases` per operator; `table.Cases` documents its
fields.  From an entry come

- tests of the type rule (`test_types`), and a comparison with apache-tvm's (`test_tvm`);
- tests of values on the VM, with static and with symbolic shapes (`test_values`);
- tests of the kernels that calls are lowered to: layouts, overlap of results and operands, errors,
  memory, and comparison of C with Python (`test_kernels`);
- tests of the formula, if there is one, as loops in C and in Python (`test_loops`).

**To add an operator**, add one entry.  For an elementwise operator it is a row of
`elementwise._UNARY` or `_BINARY`: its operand types, exact reference, error bound in units in the
last place, range of operands, and whether TVM has it too::

    "log1p": Row(FLOATS, np.log1p, FUNCTION, within=(-0.99, 9), in_tvm=False),

Other operators are described by calls, written as by a user (`notation`), and a short reference::

    cases(
        "flip",
        '''
    flip(f(n, m), -1) | R.Tensor((n, m), "float32")
    ''',
        '''
    flip(f(n, m), 2) | ValueError: relax.flip: axis: expected an axis in -2 to 1, got 2
    ''',
        '''
    flip(x(3, 4), 0)
    flip(x(2, 3, 4), -1)
    ''',
        reference=flipped,
        dtypes="fhdijub",
    )

The reference computes with long doubles and Python's integers (`oracle`); it is never the function
that the kernel calls.  The seed of random operands depends on the call; a failure prints it.

Tests fail for a registered operator without an entry, for an entry without types, errors or values,
and for a kernel that no entry calls.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    if not _module.name.startswith("test_"):
        import_module(f"{__name__}.{_module.name}")
