"""Passes about layouts and weights: AlterOpImpl, OptimizeLayoutTransform, FuseTransposeMatmul,
AttachAttrLayoutFreeBuffers; and DecomposeOpsForTraining."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, transform
from relaxvm.errors import InternalError
from relaxvm.ir import IRModule, post_order_visit, structural_equal
from relaxvm.ir.expr import Call
from relaxvm.script import from_source

ADDS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add(a: T.Buffer(({n},), "float32"), b: T.Buffer(({n},), "float32"),
            c: T.Buffer(({n},), "float32")):
        T.func_attr({{"operator_name": "relax.add"}})
        for i in range({n}):
            with T.sblock("T_add"):
                v = T.axis.spatial({n}, i)
                c[v] = a[v] + b[v]

    @R.function
    def main(x: R.Tensor(({n},), "float32"), y: R.Tensor(({n},), "float32")):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.add, (x, y), out_ty=R.Tensor(({n},), "float32"))
            gv = R.call_tir(cls.add, (lv, y), out_ty=R.Tensor(({n},), "float32"))
            R.output(gv)
        return gv
"""
ADD_2D = """
@T.prim_func(private=True)
def add_2d(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"),
           c: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.sblock("T_add"):
            v, w = T.axis.remap("SS", [i, j])
            c[v, w] = a[v, w] + b[v, w]
"""


def rows(i: Any) -> Any:
    return i // 4, i % 4


def called(mod: IRModule) -> list[str]:
    """Operators and PrimFuncs that main calls, in order."""
    found: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, Call):
            callee = expr.args[0] if getattr(expr.op, "name", "") == "relax.call_tir" else expr.op
            found.append(getattr(callee, "name_hint", getattr(callee, "name", "?")))

    post_order_visit(mod["main"], visit)
    return found


def run(mod: IRModule, *args: Any) -> Any:
    return VirtualMachine(relaxvm.build(mod))["main"](*args)


@pytest.mark.parametrize("n", [16, 14])
def test_implementations_in_another_layout(n: int) -> None:
    mod = from_source(ADDS.format(n=n))
    new: Any = transform.AlterOpImpl({"relax.add": from_source(ADD_2D)},
                                     {"relax.add": [rows, rows, rows]})(mod)  # fmt: skip
    func = new["relax_add_replacement"]
    assert func.attrs["operator_name"] == "relax.add"
    assert func.attrs["frozen_layout"]
    moves = "relax.layout_transform"
    back = [moves] if n == 16 else [moves, "remove_pad"]
    assert called(new) == [moves, moves, "relax_add_replacement", *back] * 2
    clean = transform.DeadCodeElimination()
    best: Any = clean(transform.OptimizeLayoutTransform()(clean(new)))
    assert "add" not in {var.name_hint for var in best.functions}
    calls = called(best)
    assert calls.count("relax_add_replacement") == 2
    assert calls.count(moves) == 3  # of x, of y, and of the result
    x, y = np.arange(n, dtype="float32"), np.full(n, 2, "float32")
    for each in (mod, new, best):
        np.testing.assert_array_equal(run(each, x, y), x + 2 * y)


def test_the_same_layout_needs_no_maps() -> None:
    mod = from_source(ADDS.format(n=16))
    func = mod["add"].with_attr("note", 1)
    new = transform.AlterOpImpl({"relax.add": func}, {"relax.add": []})(mod)
    assert called(new) == ["relax_add_replacement"] * 2


def test_maps_that_are_refused() -> None:
    mod = from_source(ADDS.format(n=16))
    alter = transform.AlterOpImpl
    func = from_source(ADD_2D)
    with pytest.raises(InternalError, match="Non bijective transforms on input and output buffers"):
        alter({"relax.add": func}, {"relax.add": [rows, rows, lambda i: (i // 4, i // 2)]})(mod)
    with pytest.raises(ValueError, match="expected a map for each of 2 operands and 1 results, go"):
        alter({"relax.add": func}, {"relax.add": [rows]})(mod)


def test_moves_that_do_not_undo_each_other_are_kept() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            lv = R.layout_transform(x, T.index_map(lambda i, j: (j, i)))
            gv = R.layout_transform(lv, T.index_map(lambda i, j: (i, j)))
            R.output(gv)
        return gv
"""
    mod = from_source(text)
    new = transform.OptimizeLayoutTransform()(mod)
    assert called(new) == ["relax.layout_transform"] * 2
    x = np.arange(16, dtype="float32").reshape(4, 4)
    np.testing.assert_array_equal(run(new, x), x.T)


PRODUCT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), w: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            turned = R.permute_dims(w, {axes})
            gv = R.matmul(x, turned)
            R.output(gv)
        return gv
"""


def test_products_with_a_transposed_matrix() -> None:
    mod = from_source(PRODUCT.format(axes="[1, 0]"))
    new: Any = transform.FuseTransposeMatmul()(mod)
    assert called(new) == ["NT_matmul"]
    expected = from_source("""
@T.prim_func(private=True)
def NT_matmul(x: T.Buffer((T.int64(3), T.int64(5)), "float32"),
              w: T.Buffer((T.int64(4), T.int64(5)), "float32"),
              out: T.Buffer((T.int64(3), T.int64(4)), "float32")):
    T.func_attr({"tirx.noalias": True})
    for i0, i1, k in T.grid(T.int64(3), T.int64(4), T.int64(5)):
        with T.sblock("NT_matmul"):
            a, b, c = T.axis.remap("SSR", [i0, i1, k])
            T.reads(x[a, c], w[b, c])
            T.writes(out[a, b])
            with T.init():
                out[a, b] = T.float32(0)
            out[a, b] = out[a, b] + x[a, c] * w[b, c]
""")
    assert structural_equal(new["NT_matmul"], expected)
    x, w = np.arange(15, dtype="f4").reshape(3, 5), np.arange(20, dtype="f4").reshape(4, 5)
    np.testing.assert_allclose(run(new, x, w), x @ w.T)


def test_other_products_stay() -> None:
    text = PRODUCT.replace("(4, 5)", "(5, 4)").replace("permute_dims(w, {axes})", "exp(w)")
    mod = from_source(text)
    assert structural_equal(transform.FuseTransposeMatmul()(mod), mod)


WEIGHTS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"),
            c: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("T_add"):
                v = T.axis.spatial(4, i)
                c[v] = a[v] + b[v]

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        {attrs}
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.add, (x, w), out_ty=R.Tensor((4,), "float32"))
            lv1 = R.call_tir(cls.add, (w, lv), out_ty=R.Tensor((4,), "float32"))
            lv2 = R.call_tir(cls.add, (lv1, w), out_ty=R.Tensor((4,), "float32"))
            gv = R.call_tir(cls.add, (lv2, R.const([1.0, 2.0, 3.0, 4.0], "float32")),
                            out_ty=R.Tensor((4,), "float32"))
            R.output(gv)
        return gv
"""


def test_arguments_that_are_weights() -> None:
    mod = from_source(WEIGHTS.format(attrs='R.func_attr({"num_input": 1})'))
    new: Any = transform.AttachAttrLayoutFreeBuffers()(mod)
    assert called(new) == ["add1", "add2", "add1", "add1"]
    assert {var.name_hint for var in new.functions} == {"main", "add1", "add2"}
    assert tuple(new["add1"].attrs["layout_free_buffers"]) == (1,)
    assert tuple(new["add2"].attrs["layout_free_buffers"]) == (0,)
    one = np.ones(4, "float32")
    np.testing.assert_array_equal(run(new, one, one), run(mod, one, one))
    plain = from_source(WEIGHTS.format(attrs=""))
    assert structural_equal(transform.AttachAttrLayoutFreeBuffers()(plain), plain)


def test_normalization_of_the_batch() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32"), g: R.Tensor((3,), "float32"),
             b: R.Tensor((3,), "float32"), m: R.Tensor((3,), "float32"),
             v: R.Tensor((3,), "float32"), g2: R.Tensor((4,), "float32")):
        with R.dataflow():
            bn = R.nn.batch_norm(x, g, b, m, v, axis=1, momentum=0.25)
            first = bn[0]
            mean = bn[1]
            var = bn[2]
            ln = R.nn.layer_norm(first, g2, g2, axes=[-1], center=False)
            R.output(ln, mean, var)
        return ln, mean, var
"""
    mod = from_source(text)
    new: Any = transform.DecomposeOpsForTraining("main")(mod)
    assert not {"relax.nn.batch_norm", "relax.nn.layer_norm"} & set(called(new))
    assert called(new)[:2] == ["relax.mean", "relax.variance"]
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 3, 4)).astype("float32")
    g, b, m, v = (rng.uniform(0.5, 2, 3).astype("float32") for _ in range(4))
    g2 = rng.uniform(0.5, 2, 4).astype("float32")
    mean, var = x.mean((0, 2)), x.var((0, 2))
    scaled = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5) * g[:, None] + b[:, None]
    normal = scaled - scaled.mean(-1, keepdims=True)
    normal = normal / np.sqrt(scaled.var(-1, keepdims=True) + 1e-5) * g2
    found = run(new, x, g, b, m, v, g2)
    for got, want in zip(found, (normal, 0.75 * m + 0.25 * mean, 0.75 * v + 0.25 * var),
                         strict=True):  # fmt: skip
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    with pytest.raises(ValueError, match="the module has no function 'mein'; did you mean 'main'"):
        transform.DecomposeOpsForTraining("mein")(mod)
