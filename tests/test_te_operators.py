"""Operators as loops: what the pipeline "tvm" makes of them gives what their kernels give."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from relaxvm import VirtualMachine, build
from relaxvm.op.registry import OPERATORS
from relaxvm.script import from_source
from relaxvm.te.operators import FORMULAS

FLOATS = """
exp(x) log(abs(x)) sqrt(abs(x)) rsqrt(abs(x)) tanh(x) sigmoid(x) erf(x) sin(x) cos(x) tan(x)
floor(x) ceil(x) trunc(x) round(x) divide(x,y) power(abs(x),y) mean(x) mean(x,axis=[0])
mean(x,axis=1,keepdims=True) nn.gelu(x) nn.gelu_tanh(x) nn.silu(x) nn.softmax(x)
nn.softmax(x,axis=0) nn.log_softmax(x) nn.layer_norm(x,y,y,axes=[-1]) nn.rms_norm(x,y,axes=[-1])
""".split()  # noqa: SIM905
NUMBERS = """
negative(x) abs(x) square(x) sign(x) add(x,y) subtract(y,x) multiply(x,y) maximum(x,y)
minimum(y,x)
clip(x,-1,2) nn.relu(x) sum(x) sum(x,axis=0) prod(x,axis=[1]) max(x) max(x,axis=-1)
min(x,axis=[0,1])
matmul(x,permute_dims(x)) matmul(x,y) matmul(expand_dims(x,[0]),reshape(x,(n,4,1)))
""".split()  # noqa: SIM905
ANY = """
where(greater(x,y),x,y) equal(x,y) not_equal(x,y) less(x,y) less_equal(x,y) greater_equal(x,y)
astype(x,'float32') astype(x,'int64') concat([x,x],axis=1) concat([x,x]) broadcast_to(y,(3,4))
full((2,3),const(1,'int8')) full_like(x,const(1,D)) zeros((n,),D) zeros_like(x) ones((2,3),D)
ones_like(x,dtype='int8') take(x,const([0,1,1],'int64'),axis=1) reshape(x,(4,n)) flatten(x)
permute_dims(x) squeeze(expand_dims(x,[0]),[0]) split(x,2,axis=1) split(x,[1,2],axis=1)
split(x,1,axis=1) split(x,3,axis=-1)
""".split()  # noqa: SIM905
BOOLS = "logical_and(x,y) logical_or(x,y) logical_xor(x,y) logical_not(x)".split()  # noqa: SIM905
BITS = "bitwise_and(x,y) bitwise_or(x,y) bitwise_xor(x,y) bitwise_not(x)".split()  # noqa: SIM905

CASES = {
    "float32": FLOATS + NUMBERS + ANY,
    "float64": FLOATS + NUMBERS,
    "float16": FLOATS + NUMBERS,
    "int32": NUMBERS + ANY + BITS,
    "int8": NUMBERS + BITS,
    "uint8": [e for e in NUMBERS if "negative" not in e and "clip" not in e] + BITS,
    "bool": ANY + BOOLS,
}
CLOSE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-12}


def values(dtype: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 4)) * 3, rng.normal(size=4) * 2
    if dtype == "bool":
        return [x > 0, y > 0]
    if dtype == "uint8":
        x, y = np.abs(x), np.abs(y)
    return [x.astype(dtype), y.astype(dtype)]


def leaves(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def programs(dtype: str) -> Any:
    """A module with a function for each case."""
    lines = ["from relaxvm.script import ir as I, relax as R, tir as T", "@I.ir_module", "class M:"]
    for i, case in enumerate(CASES[dtype]):
        case = case.replace("D)", f"'{dtype}')")
        expression = re.sub(r"(?<![\w.'])([a-z_]{2,}(?:\.[a-z_]+)?)\(", r"R.\1(", case)
        lines += [
            "    @R.function",
            f"    def f{i}(x: R.Tensor(('n', 4), '{dtype}'), y: R.Tensor((4,), '{dtype}')):",
            "        n = T.int64()",
            "        with R.dataflow():",
            f"            z = {expression}",
            "            R.output(z)",
            "        return z",
        ]
    return from_source("\n".join(lines) + "\n")


@pytest.mark.parametrize("dtype", CASES)
def test_loops_give_what_kernels_give(dtype: str) -> None:
    mod = programs(dtype)
    loops = build(mod, relax_pipeline="tvm")
    left = [info.name for info in loops.functions if info.name.startswith("relaxvm.")]
    assert not left
    theirs, ours = VirtualMachine(build(mod)), VirtualMachine(loops)
    special = values(dtype)
    if dtype.startswith("float"):
        special[0][1] = [np.nan, np.inf, -np.inf, -0.0]
    for args in (values(dtype), special):
        for i, case in enumerate(CASES[dtype]):
            if args is special and ("astype" in case or "float16" in dtype):
                continue  # a NaN as an integer is what the machine makes of it
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, got = (list(leaves(m[f"f{i}"](*args))) for m in (theirs, ours))
            for a, b in zip(got, expected, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), case
                np.testing.assert_allclose(
                    a.astype(float), b.astype(float), rtol=CLOSE.get(dtype, 0),
                    atol=CLOSE.get(dtype, 0), err_msg=case,
                )  # fmt: skip


def test_every_formula_is_of_an_operator_and_tried() -> None:
    assert set(FORMULAS) <= set(OPERATORS)
    tried = " ".join(case for cases in CASES.values() for case in cases)
    assert [name for name in FORMULAS if f"{name}(" not in tried] == []


def test_what_has_no_formula_stays_a_kernel() -> None:
    mod = from_source(
        "from relaxvm.script import ir as I, relax as R\n"
        "@R.function\n"
        "def main(x: R.Tensor((3, 4), 'int32'), y: R.Tensor((3, 4), 'bool')):\n"
        "    return R.argmax(x, axis=1), R.divide(x, x), R.add(y, y)\n"
    )
    executable = build(mod, relax_pipeline="tvm")
    names = {info.name for info in executable.functions}
    kernels = {"relaxvm.kernel.argmax", "relaxvm.kernel.divide", "relaxvm.kernel.add"}
    assert names >= kernels
    x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    result = VirtualMachine(executable)["main"](x, x > 3)
    np.testing.assert_array_equal(result[0], [3, 3, 3])
    np.testing.assert_array_equal(result[1], np.ones((3, 4)))
