"""Mutated executables: nothing that a file holds may harm the process that loads and runs it.

`mutate` makes the mutants, `execute` loads and runs one, `workers` does that in processes that may
die, `tvm_side` does the same on apache-tvm, and ``python -m tests.fuzz`` counts.  See README.md.
"""
