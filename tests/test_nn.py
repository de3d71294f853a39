"""Models written with `relaxvm.frontend.nn`: export, runs, effects, subroutines, mistakes."""

from __future__ import annotations

import ast
import functools
import inspect
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ir, op
from relaxvm.frontend import nn
from relaxvm.frontend.nn import core, modules, spec
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


def export(model: nn.Module, **arguments: Any) -> tuple[ir.IRModule, list[Any]]:
    mod, params = model.export_tvm({"forward": arguments})
    relaxvm.analysis.check_well_formed(mod)
    return mod, params


def run(mod: ir.IRModule, params: Any, *args: Any, seed: int = 0) -> tuple[Any, list[Any]]:
    """The result of ``forward`` with random weights, and the weights."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=p.shape).astype(p.dtype) for _, p in params]
    machine = relaxvm.VirtualMachine(relaxvm.build(mod))
    return machine["forward"](*args, *weights), weights


def array(*shape: int) -> Any:
    return np.random.default_rng(1).normal(size=shape).astype("float32")


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.up = nn.Linear(4, 8)
        self.layers = nn.ModuleList([nn.ReLU(), nn.Linear(8, 3, bias=False)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.layers(self.up(x))


def test_export() -> None:
    mod, params = export(Mlp(), x=spec.Tensor(["n", 4], "float32"))
    names = ["up.weight", "up.bias", "layers.1.weight"]
    assert [name for name, _ in params] == names

    @I.ir_module
    class Expected:
        @R.function
        def forward(
            x: R.Tensor(("n", 4), "float32"),
            weight: R.Tensor((8, 4), "float32"),
            bias: R.Tensor((8,), "float32"),
            last: R.Tensor((3, 8), "float32"),
        ):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.permute_dims(weight)
                b = R.matmul(x, a)
                c = R.add(b, bias)
                d = R.nn.relu(c)
                e = R.permute_dims(last)
                f = R.matmul(d, e)
                g = f
                R.output(g)
            return g

    ir.assert_structural_equal(mod, Expected)
    assert [param.name for param in mod["forward"].params] == ["x", *names]


def test_run() -> None:
    x = array(5, 4)
    y, (up, bias, last) = run(*export(Mlp(), x=spec.Tensor(["n", 4], "float32")), x)
    np.testing.assert_allclose(y, np.maximum(x @ up.T + bias, 0) @ last.T, rtol=1e-4, atol=1e-5)


def test_an_exported_module_prints_and_parses() -> None:
    mod, _ = export(Mlp(), x=spec.Tensor(["n", 4], "float32"))
    from relaxvm.script import from_source

    ir.assert_structural_equal(from_source(str(mod)), mod)


def test_a_module_may_be_exported_again() -> None:
    model = Mlp()
    first, _ = export(model, x=spec.Tensor([2, 4], "float32"))
    second, _ = export(model, x=spec.Tensor([2, 4], "float32"))
    ir.assert_structural_equal(first, second)
    assert not set(relaxvm.analysis.all_vars(first["forward"])) & set(
        relaxvm.analysis.all_vars(second["forward"])
    )


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.Identity(), (2, 3), lambda x: x),
        (nn.ReLU(), (2, 3), lambda x: np.maximum(x, 0)),
        (nn.SiLU(), (2, 3), lambda x: x / (1 + np.exp(-x))),
        (nn.LayerNorm(3, elementwise_affine=False), (2, 3),
         lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)),
        (nn.LayerNorm(3), (2, 3),
         lambda x, w, b: (x - x.mean(-1, keepdims=True))
         / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b),
        (nn.RMSNorm(3, -1, bias=False), (2, 3),
         lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w),
        (nn.RMSNorm(3, -1), (2, 3),
         lambda x, w, b: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w + b),
        (nn.GroupNorm(1, 3, affine=False), (2, 3, 4),
         lambda x: (x - x.mean((1, 2), keepdims=True))
         / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)),
        (nn.Linear(3, 2), (4, 3), lambda x, w, b: x @ w.T + b),
        (nn.Linear(3, 2, bias=False), (4, 3), lambda x, w: x @ w.T),
        (nn.Conv1D(2, 3, 1), (1, 2, 5),
         lambda x, w, b: np.einsum("ncw,oc->now", x, w[..., 0]) + b[:, None]),
        (nn.Conv2D(2, 3, 1, bias=False), (1, 2, 4, 5),
         lambda x, w: np.einsum("nchw,oc->nohw", x, w[..., 0, 0])),
        (nn.Conv2D(4, 4, 1, groups=4), (1, 4, 3, 3),
         lambda x, w, b: x * w.reshape(4, 1, 1) + b[:, None, None]),
        (modules.Timesteps(4), (2,),
         lambda x: np.stack([np.sin(x), np.sin(x * 1e-4), np.cos(x), np.cos(x * 1e-4)], -1)),
        (modules.Timesteps(3, flip_sin_to_cos=True, downscale_freq_shift=0), (2,),
         lambda x: np.stack([np.cos(x), np.sin(x), 0 * x], -1)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)  # fmt: skip
def test_layer(layer: Any, shape: tuple[int, ...], expected: Any) -> None:
    x = array(*shape)
    y, weights = run(*export(layer, x=spec.Tensor(shape, "float32")), x)
    np.testing.assert_allclose(y, expected(x, *weights), rtol=1e-4, atol=1e-5)


def test_gelu() -> None:
    from math import erf

    x = array(2, 3)
    y, _ = run(*export(nn.GELU(), x=spec.Tensor((2, 3), "float32")), x)
    np.testing.assert_allclose(
        y, x / 2 * (1 + np.vectorize(erf)(x / np.sqrt(2))), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_embedding(shape: tuple[int, ...]) -> None:
    mod, params = export(nn.Embedding(6, 4), x=spec.Tensor(shape, "int32"))
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    y, (table,) = run(mod, params, x)
    np.testing.assert_array_equal(y, table[x])


def test_attention() -> None:
    layer = modules.Attention(6, heads=2, dim_head=3, norm_num_groups=2)
    x = array(1, 4, 6)
    y, _ = run(*export(layer, hidden_states=spec.Tensor((1, 4, 6), "float32")), x)
    assert y.shape == (1, 4, 6)
    other = modules.TimestepEmbedding(4, 5, cond_proj_dim=2, out_dim=3)
    sample, condition = spec.Tensor((2, 4), "float32"), spec.Tensor((2, 2), "float32")
    z, _ = run(*export(other, sample=sample, condition=condition), array(2, 4), array(2, 2))
    assert z.shape == (2, 3)


class Method(nn.Module):
    """A module of one function."""

    def __init__(self, method: Any) -> None:
        self.method = method

    def forward(self, x: nn.Tensor) -> Any:
        return self.method(x)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (lambda x: x + 1, lambda x: x + 1),
        (lambda x: 1 + x, lambda x: 1 + x),
        (lambda x: x - 2, lambda x: x - 2),
        (lambda x: 2 - x, lambda x: 2 - x),
        (lambda x: 3 * x * 2, lambda x: 6 * x),
        (lambda x: x / 2, lambda x: x / 2),
        (lambda x: 2 / x, lambda x: 2 / x),
        (lambda x: -x, lambda x: -x),
        (lambda x: nn.where(x < 0, x, x * 2), lambda x: np.where(x < 0, x, x * 2)),
        (lambda x: nn.where(x >= 0, x, x * 2), lambda x: np.where(x >= 0, x, x * 2)),
        (lambda x: (x <= 0).astype("int32"), lambda x: (x <= 0).astype("int32")),
        (lambda x: (x > 0).astype("int32"), lambda x: (x > 0).astype("int32")),
        (lambda x: x.maximum(0), lambda x: np.maximum(x, 0)),
        (lambda x: x.minimum(x * 2), lambda x: np.minimum(x, x * 2)),
        (lambda x: x.reshape(3, 2), lambda x: x.reshape(3, 2)),
        (lambda x: x.permute_dims(1, 0), lambda x: x.T),
        (lambda x: x.repeat(2, axis=0), lambda x: x.repeat(2, 0)),
        (lambda x: nn.permute(x, None), lambda x: x.T),
        (lambda x: nn.unsqueeze(x, 1), lambda x: x[:, None]),
        (lambda x: nn.squeeze(nn.unsqueeze(x, 0), 0), lambda x: x),
        (lambda x: nn.concat([x, x], 0), lambda x: np.concatenate([x, x])),
        (lambda x: nn.chunk(x, 3, 1)[1], lambda x: x[:, 1:2]),
        (lambda x: nn.split(x, [1], 1)[1], lambda x: x[:, 1:]),
        (lambda x: nn.broadcast_to(nn.unsqueeze(x, 0), [2, 2, 3]), lambda x: np.stack([x, x])),
        (lambda x: nn.sum(x, 1), lambda x: x.sum(1)),
        (lambda x: nn.max(x, 1, True), lambda x: x.max(1, keepdims=True)),
        (lambda x: nn.min(x), lambda x: x.min()),
        (lambda x: nn.cumsum(x, 1), lambda x: x.cumsum(1)),
        (lambda x: nn.sort(x, descending=True), lambda x: -np.sort(-x)),
        (lambda x: nn.argsort(x), lambda x: np.argsort(x).astype("int32")),
        (lambda x: nn.topk(x, 2, ret_type="values"), lambda x: -np.sort(-x)[:, :2]),
        (lambda x: nn.pad(x, [0, 0, 1, 2]), lambda x: np.pad(x, [(0, 0), (1, 2)])),
        (lambda x: nn.softmax(x), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        (lambda x: nn.exp(nn.negative(x)), lambda x: np.exp(-x)),
        (lambda x: nn.sqrt(nn.square(x)), np.abs),
        (lambda x: nn.tanh(nn.floor(x)), lambda x: np.tanh(np.floor(x))),
        (lambda x: nn.log(nn.sigmoid(x)), lambda x: -np.log1p(np.exp(-x))),
        (lambda x: nn.relu6(x * 9), lambda x: np.clip(x * 9, 0, 6)),
        (lambda x: x + nn.arange(3), lambda x: x + np.arange(3)),
        (lambda x: x + nn.full([3], 2.0) + nn.ones([1]) + nn.zeros([1]), lambda x: x + 3),
        (lambda x: nn.equal(x, x).astype("int32"), lambda x: np.ones((2, 3), "int32")),
        (lambda x: nn.not_equal(x, x).astype("int32"), lambda x: np.zeros((2, 3), "int32")),
        (lambda x: nn.matmul(x, nn.permute_dims(x)), lambda x: x @ x.T),
        (lambda x: x.astype("float32"), lambda x: x),
        (lambda x: x + nn.Tensor.from_const(np.arange(3.0)), lambda x: x + np.arange(3)),
    ],
)  # fmt: skip
def test_operation(method: Any, expected: Any) -> None:
    x = array(2, 3)
    y, _ = run(*export(Method(method), x=spec.Tensor((2, 3), "float32")), x)
    np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-5)


def test_functions_of_the_program() -> None:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = a[i] * T.float32(2)

    @T.prim_func(private=True)
    def increase(a: T.Buffer((4,), "float32")):
        for i in range(4):
            a[i] = a[i] + T.float32(1)

    def method(x: nn.Tensor) -> Any:
        out = nn.Tensor.placeholder([4], "float32")
        y = nn.tensor_ir_op(double, "double", [x], out)
        z = nn.tensor_ir_inplace_op(increase, "increase", [y], 0, out)
        return nn.tensor_expr_op(relaxvm.te.topi.add, "te_add", [z, z])

    mod, params = export(Method(method), x=spec.Tensor((4,), "float32"))
    assert sorted(v.name for v in mod) == ["double", "forward", "increase", "te_add"]
    y, _ = run(mod, params, np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(y, [2, 6, 10, 14])


def test_packed_functions() -> None:
    library = nn.ExternModule({"nn_test.scale": lambda x, factor: x})

    class Scaled(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            nn.add_extern(library)
            y = library["nn_test.scale"](x, 3.0)
            return nn.extern("nn_test.scale", [y, 2], x)

    model = Scaled()
    argument = {"forward": {"x": spec.Tensor((2,), "float32")}}
    with pytest.raises(ValueError, match="pass allow_extern=True"):
        model.export_tvm(argument)
    mod, _, externs = model.export_tvm(argument, allow_extern=True)
    assert externs == [library]

    def scale(x: Any, factor: Any, out: Any) -> None:
        out[...] = x * factor

    machine = relaxvm.VirtualMachine(relaxvm.build(mod), functions={"nn_test.scale": scale})
    np.testing.assert_array_equal(machine["forward"](np.ones(2, np.float32)), [6, 6])
    with pytest.raises(KeyError, match=r"no function 'nn_test\.scal'; did you mean"):
        library["nn_test.scal"]


def test_spec() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear("k", 2, bias=False)

        def first(self, x: nn.Tensor, n: ir.Var, pair: Any, unused: int = 3) -> Any:
            a, (b, c) = pair
            return nn.reshape(x, [n, 2]), [a + b, c]

        def second(self, x: nn.Tensor) -> Any:
            return self.linear(x)

    one = spec.Tensor([1], "float32")
    described = spec.ModuleSpec.from_raw(
        {
            "first": {"x": spec.Tensor(["m"], "float32"), "n": "int", "pair": (one, [one, one])},
            "second": {"$": {"param_mode": "packed"}, "x": spec.Tensor(["m", "k"], "float32")},
        },
        Model(),
    )
    assert repr(described) == (
        "ModuleSpec:\n"
        "  first(x: Tensor([m], 'float32'), n: int, pair: (Tensor([1], 'float32'), "
        "[Tensor([1], 'float32'), Tensor([1], 'float32')]))\n"
        "  second(x: Tensor([m, k], 'float32'))"
    )
    mod, params = Model().export_tvm(described)
    assert [name for name, _ in params] == ["linear.weight"]
    assert [p.name for p in mod["second"].params] == ["x", "packed_params"]
    relaxvm.analysis.check_well_formed(mod)
    machine = relaxvm.VirtualMachine(relaxvm.build(mod))
    x, w = array(4), array(2, 3)
    y, (s, c) = machine["first"](x, relaxvm.Shape([2]), (x[:1], [x[1:2], x[2:3]]), w)
    np.testing.assert_array_equal(y, x.reshape(2, 2))
    np.testing.assert_array_equal((s, c), (x[:1] + x[1:2], x[2:3]))
    z = machine["second"](array(1, 3), (w,))
    np.testing.assert_allclose(z, array(1, 3) @ w.T, rtol=1e-5)


def test_modes() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter([2])
            self.cache = nn.KVCache(2, [2])

        def use(self, x: nn.Tensor) -> Any:
            self.cache.append(x)
            return self.cache.view(1)

    argument = {"x": spec.Tensor([1, 2], "float32")}
    for mode in ("plain", "packed"):
        mod, _ = Model().export_tvm({"use": {"$": {"effect_mode": mode}, **argument}})
        relaxvm.analysis.check_well_formed(mod)
        effects = "cache" if mode == "plain" else "packed_effects"
        assert [p.name for p in mod["use"].params] == ["x", effects, "weight"]
        machine = relaxvm.VirtualMachine(relaxvm.build(mod))
        caches = machine["_initialize_effect"]()
        given = caches if mode == "packed" else caches[0]
        rows, _ = machine["use"](np.ones((1, 2), np.float32), given, np.zeros(2, np.float32))
        np.testing.assert_array_equal(rows, [[1, 1]])
    for mode, names in (("packed", ["x", "packed_params"]), ("none", ["x"])):
        given = {"$": {"param_mode": mode}, "x": spec.Tensor([1, 4], "float32")}
        mod, _ = Method(lambda x: x).export_tvm({"forward": given})
        assert [p.name for p in mod["forward"].params] == names


def test_debug(capsys: pytest.CaptureFixture[str]) -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            nn.op.print_(x)
            return x + 1

    argument = {"forward": {"x": spec.Tensor([2], "float32")}}
    with pytest.raises(RuntimeError, match=r"need export_tvm\(..., debug=True\)"):
        Model().export_tvm(argument)
    mod, _ = Model().export_tvm(argument, debug=True)
    machine = relaxvm.VirtualMachine(relaxvm.build(mod))
    (io,) = machine["_initialize_effect"]()
    y, _ = machine["forward"](np.array([3, 4], np.float32), io)
    np.testing.assert_array_equal(y, [4, 5])
    assert "test_nn.py" in capsys.readouterr().out


class Block(nn.Module):
    define_subroutine = True

    def __init__(self, size: int) -> None:
        self.linear = nn.Linear(size, size)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.relu(self.linear(x))


class Blocks(nn.Module):
    def __init__(self, *sizes: int) -> None:
        self.blocks = nn.ModuleList([Block(size) for size in sizes])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.blocks(x)


def test_subroutines() -> None:
    mod, params = export(Blocks(4, 4, 4), x=spec.Tensor([2, 4], "float32"))
    assert sorted(var.name for var in mod) == ["block", "forward"]
    assert "global_symbol" not in mod["block"].attrs
    x = array(2, 4)
    y, weights = run(mod, params, x)
    expected = x
    for w, b in zip(weights[::2], weights[1::2], strict=True):
        expected = np.maximum(expected @ w.T + b, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_subroutines_of_other_types() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.small, self.large = Block(2), Block(3)

        def forward(self, x: nn.Tensor, y: nn.Tensor) -> Any:
            return self.small(x), self.large(y)

    mod, _ = export(Two(), x=spec.Tensor([1, 2], "float32"), y=spec.Tensor([1, 3], "float32"))
    assert sorted(var.name for var in mod) == ["block", "block1", "forward"]


def test_parameters() -> None:
    model = Mlp()
    assert [p.shape for p in model.parameters()] == [[8, 4], [8], [3, 8]]
    weight = model.up.weight
    weight.data = np.ones((8, 4), np.float32)
    assert isinstance(weight.data, np.ndarray)
    other = Mlp()
    for param in model.parameters():
        param.data = np.ones(param.shape, np.float32)
    assert other.load_state_dict(model.state_dict()) == ([], [])
    np.testing.assert_array_equal(other.up.weight.data, weight.data)
    partial = {"up.weight": weight, "extra": weight}
    with pytest.raises(KeyError, match=r"missing: up.bias, layers.1.weight; unexpected: extra"):
        other.load_state_dict(partial)
    assert other.load_state_dict(partial, strict=False) == (
        ["up.bias", "layers.1.weight"], ["extra"]
    )  # fmt: skip


def test_data_types() -> None:
    model = Mlp()
    model.to("float16")
    assert {p.dtype for p in model.parameters()} == {"float16"}
    core.set_default_dtype("float64")
    try:
        assert nn.Parameter([1]).dtype == "float64"
    finally:
        core.set_default_dtype("float32")
    linear = nn.Linear(2, 3, dtype="float16", out_dtype="float32")
    assert (linear.weight.dtype, linear.bias.dtype) == ("float16", "float32")


def test_containers() -> None:
    first, second = nn.Parameter([1]), nn.Parameter([2])
    params = nn.ParameterList([first])
    params.append(second)
    params[0] = second
    assert list(params) == [second, second]
    named = nn.ParameterDict({"a": first})
    named["b"] = second
    assert (list(named), "b" in named, named.get("c")) == (["a", "b"], True, None)
    layers = nn.ModuleDict({"x": nn.ReLU()})
    layers.update({"y": nn.Linear(1, 1)})
    assert len(layers) == 2
    assert [type(layer) for layer in layers] == [nn.ReLU, nn.Linear]
    holder = nn.Module()
    holder.params, holder.named, holder.layers = params, named, layers
    assert [name for name, _ in holder.named_parameters()] == [
        "params.0", "params.1", "named.a", "named.b", "layers.y.weight", "layers.y.bias"
    ]  # fmt: skip
    layers.pop("x")
    named.clear()
    assert (len(layers), len(named)) == (1, 0)


def test_mutator() -> None:
    class Halve(nn.Mutator):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def visit_module(self, name: str, node: nn.Module) -> Any:
            self.seen.append(name)
            if isinstance(node, nn.ReLU):
                return nn.SiLU()
            return self.visit(name, node)

        def visit_param(self, name: str, node: nn.Parameter) -> Any:
            self.seen.append(name)
            return nn.Parameter(node.shape, "float16")

    mutator = Halve()
    model = mutator.visit_module("", Mlp())
    assert mutator.seen == [
        "", "up", "up.weight", "up.bias", "layers.0", "layers.1", "layers.1.weight"
    ]  # fmt: skip
    assert isinstance(model.layers[0], nn.SiLU)
    assert {p.dtype for p in model.parameters()} == {"float16"}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.relu(nn.Tensor.placeholder([1], "float32")), RuntimeError,
         "called by Module.export_tvm"),
        (lambda: nn.Tensor(_expr=ir.Var("x", ir.TensorType(ndim=2, dtype="int8"))), TypeError,
         "known shape and data type"),
        (lambda: nn.Tensor.placeholder([1.5], "float32"), TypeError, "a dimension is an int"),
        (lambda: nn.Tensor.placeholder([-1], "float32"), ValueError, "at least 0, got -1"),
        (lambda: setattr(nn.Parameter([2]), "data", np.zeros(3)), ValueError,
         r"expected shape \(2,\), got \(3,\)"),
        (lambda: setattr(nn.Parameter([2]), "data", np.zeros(2)), ValueError,
         "expected data type float32, got float64"),
        (lambda: setattr(nn.Parameter([2]), "data", "x"), TypeError, "expected an array"),
        (lambda: nn.ModuleList([1]), TypeError, "ModuleList elements must be nn.Module, but got"),
        (lambda: nn.ParameterList([1]), TypeError, "elements must be nn.Parameter, but got int"),
        (lambda: nn.ModuleDict({1: nn.ReLU()}), TypeError, "keys must be strings, but got int"),
        (lambda: nn.ParameterDict({"a": 1}), TypeError, "values must be nn.Parameter, but got"),
        (lambda: nn.Module()(1), NotImplementedError, "module Module has no method 'forward'"),
        (lambda: nn.add_extern(nn.ExternModule({})), RuntimeError, "that is being exported"),
        (lambda: Mlp().export_tvm({"forward": {"y": int}}), ValueError,
         "method 'forward' has no argument 'y'; it has: x"),
        (lambda: Mlp().export_tvm({"forward": {}}), ValueError, "lacks argument 'x'"),
        (lambda: Mlp().export_tvm({"forward": {"x": 3}}), TypeError, "argument 'x': expected int"),
        (lambda: spec.MethodSpec(len, [], [], "plane"), ValueError, "param_mode: expected one of"),
        (lambda: spec.Tuple("x", 3), TypeError, "argument 'x': expected a tuple or list"),
        (lambda: export(Method(lambda x: 3), x=spec.Tensor([1], "float32")), TypeError,
         "a method of a module returns tensors"),
        (lambda: export(Method(lambda x: nn.gelu(x, "fast")), x=spec.Tensor([1], "float32")),
         ValueError, "gelu: approximate: expected"),
        (lambda: export(Method(lambda x: nn.extern("f", [None], x)), x=spec.Tensor([1], "int8")),
         TypeError, "expected a tensor, a number, a string"),
        (lambda: export(Method(lambda x: nn.tensor_ir_op(Mlp, "f", [None], x)),
                        x=spec.Tensor([1], "int8")), TypeError, "expected a function|tensor_ir_op"),
        (lambda: modules.TimestepEmbedding(1, 1, act_fn="relu"), ValueError, "expected the activ"),
        (lambda: nn.KVCache(1, [1]).finalize(), RuntimeError, "no state outside of an export"),
    ],
)  # fmt: skip
def test_mistakes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_parameter_with_values_keeps_its_data_type() -> None:
    param = nn.Parameter([1])
    param.data = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match="that has values cannot be changed"):
        param.to("float16")


def test_a_cache_of_another_data_type() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(2, [2], "float16")

        def forward(self, x: nn.Tensor) -> Any:
            self.cache.append(x)
            return x

    with pytest.raises(TypeError, match="expected rows of float16, got float32"):
        export(Model(), x=spec.Tensor([1, 2], "float32"))


def test_the_current_builder() -> None:
    assert ir.BlockBuilder.current() is None
    outer, inner = ir.BlockBuilder(), ir.BlockBuilder()
    x = ir.Var("x", ir.TensorType((2,), "float32"))
    with outer.function("f", [x]):
        assert ir.BlockBuilder.current() is outer
        assert not outer.current_block_is_dataflow()
        with inner.function("g", [x]):
            assert ir.BlockBuilder.current() is inner
            with inner.dataflow():
                assert inner.current_block_is_dataflow()
            inner.emit_func_output(x)
        assert ir.BlockBuilder.current() is outer
        outer.emit_func_output(outer.emit(op.add(x, x)))
    assert ir.BlockBuilder.current() is None


# Operations made of several operators


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 3), (0, 2), (2, 1, 0)])
def test_triangles_of_unknown_shape(shape: tuple[int, ...], diagonal: int) -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return nn.op.triu(x, diagonal)

    x = array(*shape)
    x.flat[-1:] = np.nan
    dims = [f"d{i}" for i in range(len(shape))]
    y, _ = run(*export(Model(), x=spec.Tensor(dims, "float32")), x)
    np.testing.assert_array_equal(y, np.triu(x, diagonal))


def test_triangles_of_vectors() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return nn.op.triu(x)

    with pytest.raises(ValueError, match="triu: expected at least 2 dimensions, got 1"):
        export(Model(), x=spec.Tensor([3], "float32"))


def test_softplus() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            return nn.op.softplus(x), nn.op.softplus(x, beta=2.0, threshold=3.0)

    x = np.array([-1000, -3, 0, 1.4, 1.6, 19, 21, 1000, np.nan, np.inf, -np.inf], np.float32)
    with np.errstate(over="raise"):
        (y, z), _ = run(*export(Model(), x=spec.Tensor(["n"], "float32")), x)
    with np.errstate(invalid="ignore"):
        one, two = np.logaddexp(0, x), np.logaddexp(0, 2 * x) / 2
    np.testing.assert_allclose(y, one, rtol=1e-5, atol=1e-6)
    expected = np.where(2 * x > 3, x, two)
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 3, 4), 3), ((2, 3, 4), 1), ((4, 2), 2), ((5,), 1)]
)
def test_prelu(shape: tuple[int, ...], size: int) -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor, alpha: nn.Tensor) -> nn.Tensor:
            return nn.op.prelu(x, alpha)

    x, alpha = array(*shape), array(size)
    dims = ["n", *shape[1:]]
    mod, params = export(
        Model(), x=spec.Tensor(dims, "float32"), alpha=spec.Tensor([size], "float32")
    )
    y, _ = run(mod, params, x, alpha)
    factors = alpha.reshape(-1, *[1] * (len(shape) - 2)) if len(shape) > 1 else alpha
    np.testing.assert_array_equal(y, np.where(x < 0, x * factors, x))


def test_convolutions_along_three_axes_and_transposed_ones() -> None:
    class Model(nn.Module):
        def forward(
            self, x: nn.Tensor, w: nn.Tensor, y: nn.Tensor, v: nn.Tensor, b: nn.Tensor
        ) -> tuple[nn.Tensor, nn.Tensor]:
            return nn.op.conv3d(x, w, b), nn.op.conv1d_transpose(y, v, b, stride=2)

    x, w, b = array(1, 2, 3, 4, 5), array(3, 2, 2, 2, 2), array(3)
    y, v = array(1, 2, 4), array(2, 3, 3)
    specs = {
        name: spec.Tensor(list(value.shape), "float32")
        for name, value in zip("xwyvb", (x, w, y, v, b), strict=True)
    }
    (one, two), _ = run(*export(Model(), **specs), x, w, y, v, b)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2, 2), (2, 3, 4))
    expected = np.einsum("ncdhwxyz,ocxyz->nodhw", windows, w) + b.reshape(1, 3, 1, 1, 1)
    np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-5)
    wide = np.zeros((1, 3, 9), np.float32) + b.reshape(1, 3, 1)
    for i in range(4):
        wide[:, :, 2 * i : 2 * i + 3] += np.einsum("nc,cok->nok", y[:, :, i], v)
    np.testing.assert_allclose(two, wide, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("given", [{"size": (4, 6)}, {"scale_factor": 2}])
def test_interpolate(given: dict[str, Any]) -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return nn.op.interpolate(x, **given)

    x = array(1, 2, 2, 3)
    y, _ = run(*export(Model(), x=spec.Tensor([1, 2, 2, 3], "float32")), x)
    rows, columns = [0, 0, 1, 1], [0, 0, 1, 2, 2, 2]  # rounded to even
    np.testing.assert_array_equal(y, x[:, :, rows][..., columns])


def test_multinomial_from_uniform() -> None:
    class Model(nn.Module):
        def forward(self, p: nn.Tensor, u: nn.Tensor) -> nn.Tensor:
            return nn.op.multinomial_from_uniform(p, u)

    p = np.array([[0.25, 0.5, 0.25], [0, 0, 1]], np.float32)
    u = np.array([[0.5], [0.5]], np.float32)
    specs = {"p": spec.Tensor([2, 3], "float32"), "u": spec.Tensor([2, 1], "float32")}
    y, _ = run(*export(Model(), **specs), p, u)
    np.testing.assert_array_equal(y, [[1], [2]])


def test_operators_that_are_called_exist() -> None:
    tree = ast.parse(inspect.getsource(nn.op))
    missing = set()
    for function in tree.body:
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute):
                continue
            parts = ast.unparse(node).split(".")
            if parts[0] == "relax":
                try:
                    functools.reduce(getattr, parts[1:], op)
                except AttributeError:
                    assert isinstance(function, ast.FunctionDef)
                    missing.add(function.name)
    assert not missing


def kept_places(ordered: Any, top_p: Any, top_k: Any) -> list[int]:
    """The place of the last word that is kept, row by row, as one would do it by hand."""
    places = []
    for row, p, k in zip(ordered, top_p[:, 0], top_k[:, 0], strict=True):
        total = np.float32(0)
        for place, value in enumerate(row):
            total += value
            if total >= p or place + 1 >= k or place + 1 == len(row):
                places.append(place)
                break
    return places


def test_words_are_drawn_among_the_most_likely_ones() -> None:
    rng = np.random.default_rng(5)
    prob = rng.random((4, 9)).astype("float32") ** 3
    prob /= prob.sum(1, keepdims=True)
    order = np.argsort(-prob, 1, kind="stable").astype("int32")
    ordered = np.take_along_axis(prob, order, 1)
    top_p = np.array([[0.5], [0.8], [2.0], [0.0]], "float32")
    top_k = np.array([[9], [2], [20], [5]], "int64")
    last = kept_places(ordered, top_p, top_k)

    class Renormalized(nn.Module):
        def forward(self, p: Any, s: Any, top_p: Any, top_k: Any) -> Any:
            return nn.op.renormalize_top_p_top_k_prob(p, s, top_p, top_k)

    table, column, counts = (
        spec.Tensor(("b", 9), "float32"), spec.Tensor(("b", 1), "float32"),
        spec.Tensor(("b", 1), "int64"),
    )  # fmt: skip
    mod, _ = export(Renormalized(), p=table, s=table, top_p=column, top_k=counts)
    found, _ = run(mod, [], prob, ordered, top_p, top_k)
    for row, (place, kept) in enumerate(zip(last, found, strict=True)):
        expected = np.where(prob[row] >= ordered[row, place], prob[row], 0)
        np.testing.assert_allclose(kept, expected / expected.sum(), rtol=1e-5)

    class Drawn(nn.Module):
        def forward(self, s: Any, w: Any, top_p: Any, top_k: Any, u: Any, rows: Any) -> Any:
            return nn.op.sample_top_p_top_k_from_sorted_prob(s, w, top_p, top_k, u, rows)

    mod, _ = export(
        Drawn(), s=table, w=spec.Tensor(("b", 9), "int32"), top_p=column, top_k=counts,
        u=spec.Tensor(("n", 1), "float32"), rows=spec.Tensor(("n", 1), "int64"),
    )  # fmt: skip
    uniform = rng.random((40, 1)).astype("float32")
    rows = np.arange(40).reshape(40, 1) % 4
    drawn, _ = run(mod, [], ordered, order, top_p, top_k, uniform, rows)
    assert drawn.dtype == np.int32
    for word, u, row in zip(drawn[:, 0], uniform[:, 0], rows[:, 0], strict=True):
        totals = np.cumsum(ordered[row, : last[row] + 1])
        place = min(int((totals <= u * totals[-1]).sum()), last[row])
        assert word == order[row, place]
