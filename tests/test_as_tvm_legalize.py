"""``LegalizeOps`` under TVM's names: PrimFuncs with TVM's names and loops."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, transform
from relaxvm.contrib.tvm.legalize import LegalizeOps
from relaxvm.ir import Call, Expr, IntImm, IRModule, structural_equal
from relaxvm.ir.op import Op
from relaxvm.script import from_source
from relaxvm.tir import PrimFunc

from . import children
from .legalize_programs import PROGRAMS


def read(text: str) -> Any:
    return from_source(text)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """TVM's functions for the programs; in another process, because TVM stays in memory."""
    pytest.importorskip("tvm")
    path = tmp_path_factory.mktemp("tvm") / "legalized.json"
    children.run(
        [sys.executable, "-m", "tests.tvm_legalize", str(path)],
        cwd=Path(__file__).parent.parent,
        check=True,
        capture_output=True,
    )
    found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_and_loops_are_those_of_tvm(name: str, theirs: dict[str, dict[str, str]]) -> None:
    mod = LegalizeOps()(read(PROGRAMS[name]))
    assert {var.name_hint for var in mod.functions} == set(theirs[name])
    for func, text in theirs[name].items():
        if func != "main":
            expected = read(text)
            assert structural_equal(mod[func], expected), f"{mod[func]}\n{expected}"


VALUES = (
    "abs", "isfinite", "isinf", "sign", "round", "nn.softplus", "nn.gelu", "nn.gelu_tanh",
    "nn.selu",
    "floor_mod of float32", "floor_divide of float32", "mod of float32", "log_add_exp of float32",
    "greater_equal of float32 and a constant", "where", "tril", "triu", "reshape", "flatten",
    "expand_dims", "squeeze", "concat", "stack", "split", "split_n2", "strided_slice", "take",
    "gather_elements", "gather_nd", "one_hot", "repeat0", "tile", "collapse_sum_to", "red_mean",
    "reda_variance", "redk_std", "red_argmax", "einsum", "outer", "matmul", "conv2d", "conv2d_t",
    "conv1d_t", "max_pool2d_c", "adaptive_avg_pool2d", "softmax", "log_softmax", "ce2", "nll",
    "batch_norm_i", "layer_norm", "group_norm", "instance_norm", "rms_norm", "resize2d",
    "resize2d_l", "gn16", "rms16", "nll_now", "nll_none", "softplus2", "dq16", "gelu_16",
    "flip1", "take_1d", "take_clip", "take_wrap", "tril_s", "triu_s", "pad_c", "absi", "split_i_s",
    "repeat_s0", "one_hot_ax", "gather_nd_b", "rz_hp", "quantize",
    "dequantize", "meshgrid", "full_like", "eye", "eye_like", "affine_grid", "attention",
    "attention0", "attentionc", "attentioncb", "avg_pool1d", "avg_pool2d", "avg_pool2d_c",
    "avg_pool2d_i", "avg_pool3d", "avg_pool2d_s", "avg_pool_1", "avg_pool_2", "avg_pool_4",
    "avg_pool_5", "avg_pool_6", "avg_pool_7", "avg_pool_8", "pad_ci", "pad_rep", "argmax_k",
    "trunc", "index_tensor2", "take_nan",
)  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_loops_compute_what_kernels_compute(name: str) -> None:
    mod = read(PROGRAMS[name])
    rng = np.random.default_rng(7)
    args = []
    for param in mod["main"].params:
        shape = [dim.value if isinstance(dim, IntImm) else 3 for dim in param.ty.dims]
        kind = np.dtype(param.ty.dtype)
        if kind.kind == "f":
            args.append(rng.uniform(0.5, 2.0, shape).astype(kind))
        else:
            args.append(rng.integers(0, 2, shape).astype(kind))
    loops = LegalizeOps()(mod)
    assert any(isinstance(func, PrimFunc) for func in loops.functions.values())
    expected = VirtualMachine(relaxvm.build(mod))["main"](*args)
    found = VirtualMachine(relaxvm.build(loops))["main"](*args)
    for a, b in zip(flat(found), flat(expected), strict=True):
        assert a.dtype == b.dtype
        bounds = (2e-2, 2e-2) if a.dtype == "float16" else (1e-4, 1e-5)
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), *bounds)


def flat(value: Any) -> list[Any]:
    return [part for each in value for part in flat(each)] if type(value) is tuple else [value]


ADD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor({shape}, "float32")):
        return R.nn.relu(R.add(x, x))
"""


def functions(mod: IRModule) -> set[str]:
    return {var.name_hint for var in mod.functions}


def test_rules_of_the_user_come_first() -> None:
    def as_product(builder: Any, call: Call) -> Expr:
        return relaxvm.op.multiply(call.args[0], relaxvm.ir.const(2.0))

    mod = read(ADD.format(shape="(2, 3)"))
    assert functions(LegalizeOps()(mod)) == {"main", "add", "relu"}
    assert functions(LegalizeOps({"relax.add": as_product})(mod)) == {"main", "multiply", "relu"}
    assert functions(LegalizeOps(skip_ops=["relax.add"])(mod)) == {"main", "relu"}
    transform.register_legalize("relax.add", as_product)
    try:
        assert functions(LegalizeOps()(mod)) == {"main", "multiply", "relu"}
    finally:
        Op.get("relax.add").reset_attr("FLegalize")


def test_operators_that_are_not_in_the_table_call_kernels() -> None:
    mod = read(ADD.format(shape="(2, 3)").replace("R.nn.relu", "R.sort"))
    text = LegalizeOps()(mod).script()
    assert "relaxvm.kernel.sort" in text
    assert "T_add" in text


def test_shapes_that_are_not_known_leave_it_to_kernels() -> None:
    mod = read(ADD.format(shape="None").replace("R.Tensor(None, ", "R.Tensor(ndim=2, dtype="))
    x = np.ones((2, 3), "float32")
    assert np.array_equal(VirtualMachine(relaxvm.build(LegalizeOps()(mod)))["main"](x), x + x)


def test_builds_legalize_to_kernels() -> None:
    mod = read(ADD.format(shape="(2, 3)"))
    assert functions(transform.LegalizeOps()(mod)) == {"main"}
