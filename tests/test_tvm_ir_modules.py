"""Programs of TVM that relaxvm compiles: `relaxvm.from_tvm` with a ``tvm.IRModule``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits
from relaxvm.errors import DiagnosticError, LimitError, LinkError
from relaxvm.native import toolchain

tvm = pytest.importorskip("tvm")
relax = pytest.importorskip("tvm.relax")

from tvm.script import ir as I  # noqa: E402
from tvm.script import relax as R  # noqa: E402
from tvm.script import tirx as T  # noqa: E402

from relaxvm.contrib.tvm import module_of_tvm  # noqa: E402

from . import tvm_side  # noqa: E402
from .tvm_free import PACKED, to_relaxvm  # noqa: E402
from .tvm_models import MODELS, Model  # noqa: E402

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or toolchain.compiler() is None, reason="Linux, with a C compiler"
)


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    for name, function in PACKED.items():
        tvm.register_global_func(name, tvm_side._adapted(function), override=True)


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-4) -> None:
    """Values are equal but for rounding: the kernels are not the same."""
    if isinstance(ours, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        tolerance = 0 if ours.dtype.kind in "iub" else tolerance
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    elif isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_close(mine, other, tolerance)
    else:
        assert ours == theirs


def module_of(model: Model) -> Any:
    if not model.params:
        return model.module
    params = {name: tvm.runtime.tensor(value) for name, value in model.params.items()}
    return relax.transform.BindParams("main", params)(model.module)


@pytest.mark.parametrize("model", MODELS.values(), ids=str)
def test_same_results_as_the_build_of_tvm(model: Model) -> None:
    ours = relaxvm.from_tvm(module_of(model), functions={**PACKED})
    theirs = relax.VirtualMachine(model.compile(), tvm.cpu())
    for function, args in model.arguments():
        values = [to_relaxvm(arg) for arg in args]
        wanted = theirs[function](*[tvm_side.to_tvm(to_relaxvm(arg)) for arg in args])
        got = ours[function](*values)
        assert_close(got, tvm_side.from_tvm(wanted), 2e-3 if model.name == "float16" else 1e-4)


@I.ir_module
class Everything:
    @T.prim_func(private=True, s_tir=True)
    def scale(a: T.handle, b: T.handle):
        T.func_attr({"tirx.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i in range(n):
            with T.sblock("b"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.Cast("float32", n)

    @R.function
    def zebra(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(x, R.const(np.array([1], "float32")))

    @R.function
    def apple(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.multiply(x, R.const(np.array([10], "float32")))

    @R.function
    def main(
        x: R.Tensor(("n",), "float32"), s: R.Shape(["n", 2]), t: R.Tuple(R.Tensor(), R.Object)
    ) -> R.Tuple(R.Any, R.Tensor(("n",), "float32"), R.Tensor(ndim=1), R.Shape(ndim=2), R.Any):
        n = T.int64()
        cls = Everything
        with R.dataflow():
            same = R.const(np.array([[1, 2], [3, 4]], "float32"))
            y = R.call_tir(cls.scale, (x,), R.Tensor((n,), "float32"))
            z: R.Tensor((n,), "float32") = cls.zebra(y)
            w: R.Tensor((n,), "float32") = cls.apple(z)
            u = R.matmul(same, R.const(np.array([[1, 0], [0, 2]], "float32")))
            v = R.matmul(u, same)
            d = R.std(v, axis=0)
            R.output(w, d, y)
        return (d, w, y, R.shape([n, n + 1]), t[1])


def test_a_module_with_everything() -> None:
    """Constants of equal shapes in several functions, in other than alphabetical order, and twice
    in one; PrimFuncs; an operator that relaxvm does not have."""
    if not hasattr(R, "Any"):
        pytest.skip("TVM before 0.27 writes types differently")
    x = np.arange(3, dtype=np.float32)
    args: tuple[Any, ...] = (x, relaxvm.Shape((3, 2)), (x, "text"))
    ours = relaxvm.from_tvm(Everything)
    theirs = relax.VirtualMachine(relax.build(Everything, "llvm"), tvm.cpu())
    wanted = theirs["main"](*map(tvm_side.to_tvm, args))
    assert_close(ours.main(*args), tvm_side.from_tvm(wanted))
    np.testing.assert_array_equal(ours.zebra(x), x + 1)
    np.testing.assert_array_equal(ours.apple(x), x * 10)
    vm = relaxvm.VirtualMachine(Everything, tvm.cpu())
    np.testing.assert_array_equal(vm.zebra(x), x + 1)


def test_the_program_as_data() -> None:
    module = module_of_tvm(module_of(MODELS["mlp_static"]))
    assert isinstance(module, relaxvm.ir.IRModule)
    assert "R.matmul" in module.script()


@I.ir_module
class Wrong:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.call_dps_packed("f", (x,), R.Tensor((2,), "float32"))
        return y


def test_what_cannot_be_compiled_or_linked() -> None:
    with pytest.raises(LinkError, match="'f'"):
        relaxvm.from_tvm(Wrong)
    with pytest.raises(LimitError):
        relaxvm.from_tvm(Wrong, limits=Limits(file_bytes=10))


def test_a_program_that_relaxvm_has_no_form_for() -> None:
    @I.ir_module(check_well_formed=False)
    class Odd:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            if x:
                y = x
            else:
                y = R.add(x, x)
            return y

    with pytest.raises(DiagnosticError, match="condition"):
        relaxvm.from_tvm(Odd)


def test_the_text_of_a_program_is_not_the_name_of_a_file() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            return R.add(x, x)

    text = Module.script()
    with pytest.raises(ValueError, match=r"got a text of several lines; .*script\.from_source"):
        relaxvm.from_tvm(text)
    vm = relaxvm.VirtualMachine(relaxvm.build(relaxvm.script.from_source(text)))
    np.testing.assert_array_equal(vm["main"](np.ones(3, "float32")), np.full(3, 2, "float32"))
