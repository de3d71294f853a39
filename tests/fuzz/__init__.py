"""Fuzzing with mutated files: none may harm the process that reads and uses it.

`kinds` lists the kinds of file, each with a module that makes the mutants and uses them; `workers`
does that in processes that may crash, `tvm_side` does it on apache-tvm.  ``python -m tests.fuzz``
runs a campaign.  See README.md.
"""
