"""Tensor expressions: topi compared with numpy, and the functions that `emit_te` makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, ir, te, tir, topi
from relaxvm.ir.block_builder import BlockBuilder
from relaxvm.ir.equality import assert_structural_equal
from relaxvm.script import from_source
from relaxvm.te import topi as operators
from relaxvm.tir.build import build_prim_funcs, compile_prim_func
from relaxvm.values import Shape

RNG = np.random.default_rng(7)
A = RNG.standard_normal((4, 5)).astype("float32")
B = RNG.standard_normal((5,)).astype("float32")
C = RNG.standard_normal((4, 1)).astype("float32")
I = np.array([2, 0, 3], "int64")  # noqa: E741


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "add": (topi.add, np.add, (A, B)),
    "subtract": (topi.subtract, np.subtract, (A, C)),
    "multiply": (lambda x: 2.0 * x, lambda x: x * 2, (A,)),
    "divide": (topi.divide, np.divide, (A, B)),
    "maximum": (topi.maximum, np.maximum, (C, A)),
    "minimum": (lambda x: topi.minimum(x, 0), lambda x: np.minimum(x, 0), (A,)),
    "power": (lambda x: topi.power(topi.abs(x), 2.0), lambda x: np.abs(x) ** 2, (A,)),
    "floor_divide": (lambda i: topi.floor_divide(i, 2), lambda i: i // 2, (I,)),
    "mod": (lambda i: topi.mod(topi.negative(i), 3), lambda i: -i % 3, (I,)),
    "clip": (lambda x: topi.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5), (A,)),
    "cast": (lambda x: x.astype("int32"), lambda x: x.astype("int32"), (A,)),
    "exp": (topi.exp, np.exp, (A,)),
    "tanh": (topi.tanh, np.tanh, (A,)),
    "sigmoid": (topi.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (A,)),
    "rsqrt": (lambda x: topi.rsqrt(x * x), lambda x: 1 / np.sqrt(x * x), (A,)),
    "floor": (topi.floor, np.floor, (A,)),
    "where": (
        lambda x, y: topi.where(topi.greater(x, y), x, 0.0),
        lambda x, y: np.where(x > y, x, np.float32(0)),
        (A, C),
    ),
    "logic": (
        lambda x: topi.logical_not(
            topi.logical_and(x > 0 if False else topi.greater(x, 0.0), topi.less(x, 1.0))
        ),
        lambda x: ~((x > 0) & (x < 1)),
        (A,),
    ),
    "full": (lambda x: topi.full_like(x, 3), lambda x: np.full_like(x, 3), (A,)),
    "transpose": (topi.transpose, np.transpose, (A,)),
    "reshape": (lambda x: topi.reshape(x, (2, 10)), lambda x: x.reshape(2, 10), (A,)),
    "expand_dims": (lambda x: topi.expand_dims(x, 1), lambda x: x[:, None], (A,)),
    "squeeze": (topi.squeeze, np.squeeze, (C,)),
    "broadcast_to": (
        lambda x: topi.broadcast_to(x, (2, 4, 5)),
        lambda x: np.broadcast_to(x, (2, 4, 5)),
        (C,),
    ),
    "concatenate": (
        lambda x, y: topi.concatenate((x, y, x), 1),
        lambda x, y: np.concatenate((x, y, x), 1),
        (A, C),
    ),
    "take": (lambda x, i: topi.take(x, i, 0), lambda x, i: x[i], (A, I)),
    "take_flat": (topi.take, lambda x, i: x.ravel()[i], (A, I)),
    "strided_slice": (
        lambda x: topi.strided_slice(x, (1, 0), (4, 5), (1, 2)),
        lambda x: x[1:4, 0:5:2],
        (A,),
    ),
    "sum": (lambda x: topi.sum(x, 1), lambda x: x.sum(1), (A,)),
    "sum_all": (topi.sum, np.sum, (A,)),
    "max_keep": (lambda x: topi.max(x, -1, True), lambda x: x.max(-1, keepdims=True), (A,)),
    "min": (lambda x: topi.min(x, (0, 1)), np.min, (A,)),
    "prod": (lambda x: topi.prod(x, 0), lambda x: x.prod(0), (A,)),
    "matmul": (lambda x: topi.matmul(x, x, transp_b=True), lambda x: x @ x.T, (A,)),
    "relu": (topi.nn.relu, lambda x: np.maximum(x, 0), (A,)),
    "softmax": (topi.nn.softmax, _softmax, (A,)),
}


def _func(make: Callable[..., Any], args: tuple[Any, ...]) -> tir.PrimFunc:
    inputs = [te.placeholder(a.shape, a.dtype.name, f"x{i}") for i, a in enumerate(args)]
    return te.create_prim_func([*inputs, make(*inputs)])


@pytest.fixture(scope="module")
def library() -> Any:
    return build_prim_funcs({name: _func(make, args) for name, (make, _, args) in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_topi_is_numpy(name: str, library: Any) -> None:
    make, reference, args = CASES[name]
    expected = np.asarray(reference(*args))
    func = _func(make, args)
    for function in (library[name], compile_prim_func(func, name, prefer="python")):
        out = np.empty(expected.shape, func.params[-1].dtype)
        function(*args, out)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    assert_structural_equal(from_source(func.script()), func)


def test_emit_te_passes_variables_that_shapes_do_not_have() -> None:
    n, m = ir.Var("n", "int64"), ir.Var("m", "int64")
    x = ir.Var("x", ir.TensorType([n, m], "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit_te(
            lambda a: te.compute((n + m,), lambda i: a[0, tir.floordiv(i, 2)], "half"), x
        )
        z = builder.emit_te(topi.add, x, x)
        again = builder.emit_te(topi.add, z, z)
        w = builder.emit_te(lambda a, s: te.compute((4,), lambda i: a[i, 0] * s), x, 3.0,
                            primfunc_name_hint="scaled")  # fmt: skip
        builder.emit_func_output([y, again, w])
    module = builder.get()
    assert [v.name_hint for v in module.get_global_vars()] == ["half", "add", "scaled", "main"]
    half = module["half"]
    assert [p.name for p in half.params] == ["x", "n", "m", "half"]
    assert "global_symbol" not in half.attrs
    calls = [
        b.value for b in module["main"].body.blocks[0].bindings if isinstance(b.value, ir.Call)
    ]
    assert [str(arg) for arg in calls[0].args[1].fields] == ["x", "n", "m"]
    assert str(calls[0].ty) == 'R.Tensor((n + m,), dtype="float32")'
    assert calls[1].args[0] is calls[2].args[0]
    assert_structural_equal(from_source(module.script()), module)


@pytest.mark.parametrize("name", ["relu", "softmax"])
def test_emit_te_names_functions_of_nn(name: str) -> None:
    x = ir.Var("x", ir.TensorType([4], "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(getattr(topi.nn, name), x))
    assert {var.name for var in builder.get().get_global_vars()} == {"main", name}


def test_emit_te_takes_a_tensor_whose_shape_is_a_variable() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["a", "b"])):
        return R.exp(R.reshape(x, s))
"""
    vm = VirtualMachine(relaxvm.build(from_source(text), relax_pipeline="tvm"))
    out = vm["main"](np.ones(6, "f"), Shape((2, 3)))
    np.testing.assert_allclose(out, np.full((2, 3), np.e), 1e-6)


def test_emit_te_takes_a_dimension_that_is_an_expression() -> None:
    n = ir.Var("n", "int64")
    x = ir.Var("x", ir.TensorType([n + 1], "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, ir.Var("s", ir.ShapeType([n]))]):
        y = builder.emit_te(lambda a: te.compute((a.shape[0],), lambda i: a[i]), x)
        builder.emit_func_output(y)
    func = builder.get()["compute"]
    assert [p.name for p in func.params] == ["x", "n", "compute"]
    out = np.zeros(4, "float32")
    compile_prim_func(func, "f")(np.arange(4, dtype="float32"), 3, out)
    assert out.tolist() == [0, 1, 2, 3]


def test_emit_te_refuses_unsupported_arguments() -> None:
    x = ir.Var("x", ir.TensorType(None, "float32", ndim=2))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with pytest.raises(TypeError, match="dimensions and data type of x have to be known"):
            builder.emit_te(topi.exp, x)
        with pytest.raises(TypeError, match="expected tensors, shapes, scalars"):
            builder.emit_te(topi.exp, object())
        with pytest.raises(TypeError, match="expected a te tensor or several as the result"):
            builder.emit_te(lambda: [1])
        builder.emit_func_output(x)


def _convolution(x: Any, w: Any) -> Any:
    r = te.reduce_axis((0, 3), "r")
    return te.compute((3,), lambda i: te.sum(x[i + r] * w[2 - r] * (r + 1), axis=r), "conv")


def _sum_of_even(x: Any) -> Any:
    r = te.reduce_axis((0, x.shape[0]), "r")
    return te.compute((1,), lambda _: te.sum(x[r], axis=r, where=r % 2 == 0), "even")


def test_axes_in_arithmetic() -> None:
    """Reduction axes in indices, values and conditions."""
    x, w = RNG.standard_normal(5).astype("float32"), RNG.standard_normal(3).astype("float32")
    bb = BlockBuilder()
    params = [relaxvm.ir.Var(n, ir.TensorType((d,), "float32")) for n, d in (("x", 5), ("w", 3))]
    with bb.function("main", params):
        conv = bb.emit_te(_convolution, *params)
        bb.emit_func_output((conv, bb.emit_te(_sum_of_even, params[0])))
    conv, even = VirtualMachine(relaxvm.build(bb.get())).main(x, w)
    weights = w[::-1] * np.arange(1, 4, dtype=np.float32)
    np.testing.assert_allclose(conv, np.correlate(x, weights), rtol=1e-5)
    np.testing.assert_allclose(even, [x[::2].sum()], rtol=1e-5)


def _parameters(function: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]


def test_parameters_are_those_of_tvm() -> None:
    """Names, order and TVM's defaults are equal; some functions lack parameters of TVM's."""
    theirs = pytest.importorskip("tvm.topi")
    names = [name for name in operators.__all__ if name != "nn"]
    pairs = [(getattr(topi, name), getattr(theirs, name)) for name in names]
    pairs += [(getattr(topi.nn, name), getattr(theirs.nn, name)) for name in topi.nn.__all__]
    for mine, other in pairs:
        for own, its in zip(_parameters(mine), _parameters(other), strict=False):
            assert own[0] == its[0], mine.__name__
            assert its[1] in (inspect.Parameter.empty, own[1]), mine.__name__
        assert len(_parameters(mine)) <= len(_parameters(other)), mine.__name__
