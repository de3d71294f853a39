"""A program at every stage of its compilation: script, lowering pass by pass, bytecode, results.

The program is the example of the design document of Relax's compilation. It calls `tirexp`, a loop
over a buffer, and then the packed function "flatten", on a matrix whose shape (n, m) is known only
at run time.  ``--texts`` prints each stage; docs/relax-compilation.md shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from relaxvm.pipeline import LOWERING

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module(s_tir=True)
class MyIRModule:
    @T.prim_func(private=True, s_tir=True)
    def tirexp(x: T.handle, y: T.handle):
        n, m = T.int64(), T.int64()
        X = T.match_buffer(x, (n, m))
        Y = T.match_buffer(y, (n, m))
        for i, j in T.grid(n, m):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.exp(X[vi, vj])

    @R.function
    def myfunc(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        cls = MyIRModule
        with R.dataflow():
            lv0 = R.call_tir(cls.tirexp, (x,), out_ty=R.Tensor((n, m), "float32"))
            gv0 = R.call_dps_packed("flatten", (lv0,), out_ty=R.Tensor((n * m,), "float32"))
            R.output(gv0)
        return gv0


@relaxvm.register_func("flatten")
def flatten(x: np.ndarray, out: np.ndarray) -> None:
    out[...] = x.reshape(-1)


def stages() -> Iterator[tuple[str, str, str]]:
    """Yield (pass, its purpose, `myfunc` after it) for each pass that changed `myfunc`."""
    mod = MyIRModule
    text = mod["myfunc"].script()
    for make, reason in LOWERING:
        lowering = make()
        mod = lowering(mod)
        before, text = text, mod["myfunc"].script()
        if text != before:
            yield lowering.name, reason, text
    yield "the shape function", "what VMShapeLower computes on the heap", mod["shape_func"].script()


def main() -> None:
    for name, reason, text in stages():
        print(f"{name}: {reason}")
        if "--texts" in sys.argv:
            print(f"{text}\n")
    vm = relaxvm.VirtualMachine(relaxvm.build(MyIRModule))
    for n, m in [(2, 3), (1, 1), (5, 0), (64, 100)]:
        x = np.linspace(-1, 1, n * m, dtype=np.float32).reshape(n, m)
        result = vm.myfunc(x)
        assert result.shape == (n * m,)
        assert np.allclose(result, np.exp(x).ravel())
        print(f"myfunc of float32[{n}, {m}] is right: float32[{n * m}]")


if __name__ == "__main__":
    main()
