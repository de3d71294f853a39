"""Fuzzing with mutated executables: no file may harm the process that loads and runs it.

`mutate` makes the mutants, `execute` loads and runs one, `workers` does that in processes that may
crash, `tvm_side` does the same on apache-tvm, and ``python -m tests.fuzz`` runs a campaign.  See
README.md.
"""
