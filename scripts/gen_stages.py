#!/usr/bin/env python3
"""Write docs/relax-compilation.md: the program of examples/stages.py at every compilation stage."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

from generated import ROOT, Files, main

EXAMPLE = ROOT / "examples" / "stages.py"

HEAD = """\
<!-- generated from examples/stages.py by scripts/gen_stages.py - do not edit -->

# A program on its way to bytecode

[examples/stages.py](../examples/stages.py) has `tirexp`, a loop over a buffer, and a Relax function
that calls `tirexp` and then the packed function "flatten". The shape of the matrix, (n, m), is
symbolic: it is known only at run time. The program prints as:
"""

WHY = """
The virtual machine cannot run two parts of it. First, `call_tir` and `call_dps_packed` return
tensors, but kernels write into a tensor that the caller allocates (destination-passing style), so
memory must be planned, allocated and freed. Second, `n` and `m` are symbolic variables, which the
bytecode does not have, so they are stored in a small int64 tensor, the *shape heap*. Each pass of
the pipeline does one step. The passes of `relaxvm.transform.pipelines.LOWERING` that change this
program follow, each with `myfunc` after the pass.
"""

TAIL = """
Now every binding is a call of a builtin or a kernel, and the code generator assigns a register to
each:
"""

END = """
`shape_func` is not called as a kernel: its arithmetic is a constant of the executable, the words
of a *shape program*, which `relaxvm.builtin.compute_shape` runs inside the dispatch loop.
`tirexp` was compiled by the system's C compiler; the bytecode calls it as a packed function.

Any of these stages can be printed, checked (`relaxvm.analysis.well_formed`) and built separately
(`relaxvm.build(mod, relax_pipeline=...)`); `RELAXVM_DUMP_IR=folder` writes all of them to files.
"""


def page() -> Iterator[str]:
    example = _example()
    yield HEAD
    yield from _block("python", example.MyIRModule.script())
    yield WHY
    for name, reason, text in example.stages():
        yield f"\n## {name}\n\n{reason[0].upper()}{reason[1:]}.\n"
        yield from _block("python", text)
    yield TAIL
    import relaxvm

    executable = relaxvm.build(example.MyIRModule)
    listing = executable.as_text()
    yield from _block("text", listing[: listing.index("\n@vm.builtin")].rstrip())
    yield END


def _block(language: str, text: str) -> Iterator[str]:
    skip = "<!-- skip: as it is printed -->\n" if language == "python" else ""
    yield f"\n{skip}```{language}\n{text.rstrip()}\n```\n"


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("stages", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stages"] = module
    spec.loader.exec_module(module)
    return module


FILES: Files = {"docs/relax-compilation.md": lambda: "".join(page())}


if __name__ == "__main__":
    sys.exit(main(FILES))
