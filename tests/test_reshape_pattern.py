"""PrimFuncs that are reshapes: recognition, agreement with TVM, and calls that become views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.analysis import has_reshape_pattern
from relaxvm.script import from_source

SERIAL = """
for i in range(T.int64(24)):
    with T.sblock("r"):
        vi = T.axis.spatial(T.int64(24), i)
        b[vi] = {}
"""
GRID = """
for i, j in T.grid(T.int64(6), T.int64(4)):
    with T.sblock("r"):
        vi, vj = T.axis.remap("SS", [i, j])
        b[{}] = a[{}]
"""
FLAT = 'b: T.Buffer((T.int64(24),), "float32")'
DEEP = 'b: T.Buffer((T.int64(6), T.int64(4)), "float32")'
A_FLAT, A_DEEP = FLAT.replace("b:", "a:"), DEEP.replace("b:", "a:")
INDICES = "vi // T.int64(4), vi % T.int64(4)"

RESHAPES = {
    "flattened": (f"{A_DEEP}, {FLAT}", SERIAL.format(f"a[{INDICES}]")),
    "flattened, int32": (
        f"{A_DEEP}, {FLAT}".replace("T.int64", ""),
        SERIAL.format(f"a[{INDICES}]").replace("T.int64", ""),
    ),
    "split": (f"{A_FLAT}, {DEEP}", GRID.format("vi, vj", "vi * T.int64(4) + vj")),
    "scattered": (f"{A_DEEP}, {FLAT}", GRID.format("vi * T.int64(4) + vj", "vi, vj")),
    "a copy": (f"{A_DEEP}, {DEEP}", GRID.format("vi, vj", "vi, vj")),
    "as te.compute writes it": (
        f'{A_DEEP}, b: T.Buffer((T.int64(2), T.int64(12)), "float32")',
        """
for i, j in T.grid(T.int64(2), T.int64(12)):
    with T.sblock("r"):
        vi, vj = T.axis.remap("SS", [i, j])
        b[vi, vj] = a[((vi * T.int64(12) + vj) // T.int64(4)) % T.int64(6),
                      (vi * T.int64(12) + vj) % T.int64(4)]
""",
    ),
    "loops that the block joins": (
        f"{A_DEEP}, {FLAT}",
        f"""
for i, j in T.grid(T.int64(6), T.int64(4)):
    with T.sblock("r"):
        vi = T.axis.spatial(T.int64(24), i * T.int64(4) + j)
        b[vi] = a[{INDICES}]
""",
    ),
    "dynamic": (
        "va: T.handle, vb: T.handle",
        f"""
n = T.int64()
a = T.match_buffer(va, (n, T.int64(4)), "float32")
b = T.match_buffer(vb, (n * T.int64(4),), "float32")
for i in range(n * T.int64(4)):
    with T.sblock("r"):
        vi = T.axis.spatial(n * T.int64(4), i)
        b[vi] = a[{INDICES}]
""",
    ),
    "remainders by a dimension": (
        "va: T.handle, vb: T.handle",
        """
n = T.int64()
a = T.match_buffer(va, (n, T.int64(4)), "float32")
b = T.match_buffer(vb, (T.int64(1), n, T.int64(4)), "float32")
for i, j, k in T.grid(T.int64(1), n, T.int64(4)):
    with T.sblock("r"):
        vi, vj, vk = T.axis.remap("SSS", [i, j, k])
        b[vi, vj, vk] = a[(vk // T.int64(4) + vi * n + vj) % n, vk % T.int64(4)]
""",
    ),
}
"""Parameters and body."""

OTHERS = {
    "transposed": (
        A_DEEP + ', b: T.Buffer((T.int64(4), T.int64(6)), "float32")',
        GRID.format("vj, vi", "vi, vj"),
    ),
    "in another order": (f"{A_FLAT}, {DEEP}", GRID.format("vi, vj", "vj * T.int64(6) + vi")),
    "turned": (
        f"{A_FLAT}, {DEEP}",
        GRID.format("vi, vj", "(vi * T.int64(4) + vj + T.int64(1)) % T.int64(24)"),
    ),
    "turned by a dimension": (
        "va: T.handle, vb: T.handle",
        """
n = T.int64()
a = T.match_buffer(va, (n,), "float32")
b = T.match_buffer(vb, (T.int64(1), n), "float32")
for i, j in T.grid(T.int64(1), n):
    with T.sblock("r"):
        vi, vj = T.axis.remap("SS", [i, j])
        b[vi, vj] = a[(vj + T.int64(1)) % n]
""",
    ),
    "a cast": (
        f"{A_DEEP}, {FLAT.replace('float32', 'int32')}",
        SERIAL.format(f'T.Cast("int32", a[{INDICES}])'),
    ),
    "negated": (f"{A_DEEP}, {FLAT}", SERIAL.format(f"-a[{INDICES}]")),
}

UNSOUND = {
    "half of the output": (
        f"{A_DEEP}, {FLAT}",
        SERIAL.format(f"a[{INDICES}]").replace("T.int64(24)", "T.int64(12)"),
    ),
    "set before": (
        f"{A_DEEP}, {FLAT}",
        SERIAL.format(f"a[{INDICES}]").replace(
            "        b[vi]",
            "        with T.init():\n            b[vi] = T.float32(0)\n        b[vi]",
        ),
    ),
    "under a condition": (
        f"{A_DEEP}, {FLAT}",
        SERIAL.format(f"a[{INDICES}]").replace(
            "        b[vi]", "        T.where(i < T.int64(3))\n        b[vi]"
        ),
    ),
}
"""What is none, although the indices agree, which is all that TVM looks at."""


def text_of(params: str, body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    return (
        "@I.ir_module(s_tir=True)\nclass Module:\n"
        f"    @T.prim_func(private=True, s_tir=True)\n    def f({params}):\n{lines}"
    )


@pytest.mark.parametrize("name", [*RESHAPES, *OTHERS, *UNSOUND])
def test_which_functions_are_reshapes(name: str) -> None:
    program = {**RESHAPES, **OTHERS, **UNSOUND}[name]
    assert has_reshape_pattern(from_source(text_of(*program))["f"]) == (name in RESHAPES)


@pytest.mark.parametrize("name", [*RESHAPES, *OTHERS])
def test_tvm_says_the_same(name: str) -> None:
    tvm_script = pytest.importorskip("tvm.script")
    from tvm.relax.analysis import has_reshape_pattern as of_tvm

    program = {**RESHAPES, **OTHERS}[name]
    assert of_tvm(tvm_script.from_source(text_of(*program))["f"]) == (name in RESHAPES)


def caller(name: str, x: str, y: str, inside: bool = True) -> Any:
    """A module in which `main` returns the reshaped ``x + x``, or the sum of its elements."""
    result = "gv = R.sum(y)\n            R.output(gv)\n        return gv"
    if not inside:
        result = "R.output(y)\n        return y"
    return from_source(
        text_of(*RESHAPES[name])
        + f"""
    @R.function
    def main(x: R.Tensor({x}, "float32")):
        cls = Module
        n = T.int64()
        with R.dataflow():
            lv = R.add(x, x)
            y = R.call_tir(cls.f, (lv,), out_ty=R.Tensor({y}, "float32"))
            {result}
""".replace("        n = T.int64()\n", "        n = T.int64()\n" if "n" in x else "")
    )


@pytest.mark.parametrize(
    ("name", "x", "y"), [("flattened", "(6, 4)", "(24,)"), ("dynamic", '("n", 4)', "(n * 4,)")]
)
def test_a_call_becomes_a_view(name: str, x: str, y: str) -> None:
    mod = caller(name, x, y)
    assert "R.reshape(lv" in transform.RewriteDataflowReshape()(mod).script()
    executable = relaxvm.build(mod)
    assert "vm.builtin.reshape" in executable.as_text()
    assert relaxvm.VirtualMachine(executable)["main"](np.ones((6, 4), "float32")) == 48


def test_a_result_of_the_block_is_copied() -> None:
    mod = caller("flattened", "(6, 4)", "(24,)", inside=False)
    assert "R.reshape" not in transform.RewriteDataflowReshape()(mod).script()
    x = np.arange(24, dtype="float32").reshape(6, 4)
    y = relaxvm.VirtualMachine(relaxvm.build(mod))["main"](x)
    assert np.asarray(y).tolist() == (x + x).reshape(24).tolist()
