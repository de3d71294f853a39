"""The registration of operators: its effects, requirements and errors."""

from __future__ import annotations

import inspect
import pkgutil
import re
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import op
from relaxvm.compiler.vm_build import build
from relaxvm.errors import RelaxVMWarning
from relaxvm.ir import (
    BlockBuilder,
    Call,
    Expr,
    Op,
    TensorType,
    Type,
    Var,
    assert_structural_equal,
    const,
    op_names,
)
from relaxvm.op import CONSTRUCTORS, OPERATORS
from relaxvm.op.kinds import Axis, kind_named
from relaxvm.op.lowering import KERNEL_PREFIX
from relaxvm.op.registry import Operator, operator
from relaxvm.op.rules import need_floats
from relaxvm.registry import GLOBAL, Signature
from relaxvm.script import from_source
from relaxvm.transform import FoldConstant, LegalizeOps, register_legalize

from .generators import load


@pytest.fixture
def registered() -> Any:
    """Operator names that a test registers; they are removed when it ends."""
    from relaxvm.ir.op import _OPS

    names: list[str] = []
    yield names
    for name in names:
        OPERATORS.pop(name, None)
        CONSTRUCTORS.pop(name, None)
        _OPS.pop(f"relax.{name}", None)
        GLOBAL.remove(KERNEL_PREFIX + name)


def test_one_registration_gives_everything(registered: list[str]) -> None:
    """The example of the module's docstring, from type to result."""
    registered.append("nn.softest")

    @operator("nn.softest")
    def softest(data: TensorType, axis: Axis = -1) -> Type:
        """exp(data - max) along an axis."""
        need_floats(data=data)
        return data

    def kernel(data: Any, axis: int, out: Any) -> None:
        np.exp(data - data.max(axis, keepdims=True), out=out)

    takes = Signature.parse("data: tensor, axis: int, out: tensor", "none")
    GLOBAL.register(KERNEL_PREFIX + "nn.softest", kernel, signature=takes)

    x = Var("x", TensorType((Var("n", "int64"), 3), "float32"))
    call = op.nn.softest(x, axis=0)
    assert call.op is Op.get("relax.nn.softest")
    assert call.attrs == {"axis": 0}
    assert call.ty is x.ty
    assert op.nn.softest is softest
    assert str(inspect.signature(softest)) == "(data: 'TensorType', axis: 'Axis' = -1) -> 'Call'"
    assert Op.get("relax.nn.softest").doc == "exp(data - max) along an axis."
    with pytest.raises(ValueError, match=r"relax\.nn\.softest: axis: expected an axis in -2 to 1"):
        op.nn.softest(x, 2)
    a = np.array([[1, 2, 3], [4, 5, 6]], "float32")
    np.testing.assert_allclose(run(call, x)(a), np.exp(a - a.max(0)))


def run(result: Expr, *params: Var) -> Any:
    """Compile an expression and run it."""
    builder = BlockBuilder()
    with builder.function("main", list(params)):
        builder.emit_func_output(builder.emit(result))
    return relaxvm.VirtualMachine(build(builder.get()))["main"]


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match=r"operator 'relax\.exp' is registered twice: 'e to the"):

        @operator("exp")
        def exp(x: TensorType) -> Type:
            """Another one."""
            return x


def test_axes_are_those_of_a_tensor() -> None:
    with pytest.raises(ValueError, match="axes are those of the first operand, which has to be a"):

        @operator("no_tensor_first")
        def rule(axis: Axis, x: TensorType) -> Type:
            """Nothing."""
            return x


def test_a_kind_has_to_be_known() -> None:
    with pytest.raises(ValueError, match="no kind of parameter is named 'Tensor'; there are Tens"):

        @operator("no_such_kind")
        def rule(x: Tensor) -> Type:  # type: ignore[name-defined]  # noqa: F821
            """Nothing."""
            return x

    assert "no_such_kind" not in OPERATORS


def test_operands_that_may_be_left_out_come_last() -> None:
    with pytest.raises(ValueError, match="operands that may be left out come last"):

        @operator("bad_order")
        def rule(x: TensorType | None, y: TensorType) -> Type:
            """Nothing."""
            return y


def test_every_operator_is_documented() -> None:
    for name, record in OPERATORS.items():
        assert record.doc, name
        assert record.doc.rstrip()[-1] in ".`", name
        assert record.op.doc == record.doc.partition("\n\n")[0].replace("\n", " ")


def test_every_operator_is_offered() -> None:
    for name in OPERATORS:
        place: Any = op
        for part in name.split("."):
            place = getattr(place, part)
        assert place is CONSTRUCTORS[name]
        assert Op.get(f"relax.{name}").record is OPERATORS[name]
    named = [n for n in op_names("relax.") if isinstance(Op.get(n).record, Operator)]
    assert {name.removeprefix("relax.") for name in named} == set(OPERATORS)


def test_no_module_hides_an_operator() -> None:
    for package, prefix in ((op, ""), (op.nn, "nn.")):
        modules = {prefix + info.name for info in pkgutil.iter_modules(package.__path__)}
        assert not {name for name in modules if name in CONSTRUCTORS}


def test_unknown_operators() -> None:
    with pytest.raises(AttributeError, match=r"no operator 'nn\.sofmax'; did you mean 'nn\.softm"):
        op.nn.sofmax  # noqa: B018
    with pytest.raises(AttributeError, match="there is no operator 'sqareroot'"):
        op.sqareroot  # noqa: B018
    assert "softmax" in dir(op.nn)
    assert "matmul" in dir(op)


KERNELS = sorted(record.kernel for record in OPERATORS.values() if record.kernel is not None)


@pytest.mark.parametrize("name", sorted({*KERNELS, "matmul_nt"}))
def test_kernels_exist(name: str) -> None:
    record = GLOBAL.lookup(KERNEL_PREFIX + name)
    assert record is not None
    assert record.signature is not None


def test_attributes_are_kinds() -> None:
    assert kind_named("Literal['a', 'b'] | None").convert("x", "b") == "b"
    assert kind_named("int | None").optional
    assert kind_named("Ints").convert("x", 3) == (3,)
    assert kind_named("bool").convert("x", 1) is True
    assert kind_named("DType").convert("x", np.dtype("int8")) == "int8"
    for kind, value in (("float", "x"), ("float", True), ("str", 3), ("bool", 2), ("int", True)):
        with pytest.raises(TypeError, match="x: expected"):
            kind_named(kind).convert("x", value)


# LegalizeOps


def legalized(result: Expr, *params: Var, **options: Any) -> str:
    builder = BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            out = builder.emit_output(result)
        builder.emit_func_output(out)
    return str(LegalizeOps(**options)(builder.get())["main"])


def tensor(*dims: Any, name: str = "x") -> Var:
    return Var(name, TensorType(dims, "float32"))


def test_a_call_becomes_a_call_of_its_kernel() -> None:
    x = tensor(Var("n", "int64"), 3)
    text = legalized(op.nn.softmax(x, axis=0), x)
    assert 'R.call_dps_packed("relaxvm.kernel.nn.softmax", (x, 0), out_ty=R.Tensor((n, 3)' in text


def test_views_need_no_kernel() -> None:
    x = tensor(2, 3)
    for call in (op.flatten(x), op.expand_dims(x, 0), op.squeeze(tensor(1, 2, 3), 0)):
        text = legalized(call, *({v for v in call.args if isinstance(v, Var)}))
        assert "R.reshape(x, R.shape([" in text
        assert "call_dps_packed" not in text


def test_calls_whose_result_cannot_be_allocated_stay() -> None:
    x = Var("x", TensorType(None, "float32"))
    with pytest.warns(RelaxVMWarning, match=r"LegalizeOps: main: relax\.exp is kept, since"):
        text = legalized(op.exp(x), x, enable_warning=True)
    assert "R.exp(x)" in text


def test_dimensions_of_which_either_may_broadcast() -> None:
    """TVM does not legalize such a call; here the dimensions are computed at run time."""
    n, m = Var("n", "int64"), Var("m", "int64")
    x, y = tensor(n, 1), tensor(m, 3, name="y")
    main = run(op.add(x, y), x, y)
    for rows, others in ((1, 4), (4, 1), (4, 4)):
        a, b = np.ones((rows, 1), "float32"), np.ones((others, 3), "float32")
        np.testing.assert_array_equal(main(a, b), a + b)
    with pytest.raises(ValueError, match="expected shapes that broadcast"):
        main(np.ones((2, 1), "float32"), np.ones((3, 3), "float32"))
    u = Var("u", TensorType(None, "float32", ndim=1))
    v = Var("v", TensorType(None, "float32", ndim=1))
    a, b = np.ones(1, "float32"), np.arange(3, dtype="float32")
    np.testing.assert_array_equal(run(op.exp(op.multiply(u, v)), u, v)(a, b), np.exp(b))


def test_a_product_with_a_transposition_makes_no_copy() -> None:
    x, w = tensor(Var("n", "int64"), 3), tensor(5, 3, name="w")
    text = legalized(op.linear(x, w), x, w)
    assert re.findall(r"relaxvm\.kernel\.(\w+)", text) == ["matmul_nt"]
    stack = tensor(2, 5, 3, name="w")
    text = legalized(op.matmul(x, op.permute_dims(stack, [0, 2, 1])), x, stack)
    assert re.findall(r"relaxvm\.kernel\.(\w+)", text) == ["matmul_nt"]
    text = legalized(op.matmul(x, op.permute_dims(tensor(5, 3, 2, name="w"))), x, stack)
    assert re.findall(r"relaxvm\.kernel\.(\w+)", text) == ["permute_dims", "matmul"]


def test_a_transposition_with_other_uses_is_computed() -> None:
    x, w = tensor(3, 3), tensor(3, 3, name="w")
    builder = BlockBuilder()
    with builder.function("main", [x, w]):
        t = builder.emit(op.permute_dims(w))
        builder.emit_func_output((builder.emit(op.matmul(x, t)), t))
    text = str(LegalizeOps()(builder.get())["main"])
    assert re.findall(r"relaxvm\.kernel\.(\w+)", text) == ["permute_dims", "matmul_nt"]


def test_a_transposition_of_a_written_tensor_is_computed() -> None:
    x, w = tensor(3, 3), tensor(3, 3, name="w")
    builder = BlockBuilder()
    with builder.function("main", [x, w], pure=False):
        t = builder.emit(op.permute_dims(w))
        builder.emit(op.call_packed("writes_to_w", w))
        builder.emit_func_output(builder.emit(op.matmul(x, t)))
    text = str(LegalizeOps()(builder.get())["main"])
    assert re.findall(r"relaxvm\.kernel\.(\w+)", text) == ["permute_dims", "matmul"]


def test_names_for_dimensions_are_made_once() -> None:
    x = Var("x", TensorType(None, "float32", ndim=1))
    text = legalized(op.concat([x, op.exp(x), op.add(x, x)]), x)
    assert text.count("match_cast") == 1
    assert "concat" in text
    assert "R.Tensor((x_0 * 3,)" in text


def test_customized() -> None:
    x = tensor(3)
    rules = {"relax.exp": lambda builder, call: op.sqrt(builder.emit(op.exp(call.args[0])))}
    text = legalized(op.exp(x), x, customize_legalize_map=rules)
    assert "R.exp(x)" in text, "the rule's own call of the operator must stay"
    assert "relaxvm.kernel.sqrt" in text
    assert "R.exp(x)" in legalized(op.exp(x), x, skip_ops=["relax.exp"])
    with pytest.raises(ValueError, match=r"unknown operator 'relax\.expp'"):
        LegalizeOps({"relax.expp": rules["relax.exp"]})


def test_register_legalize() -> None:
    try:

        @register_legalize("relax.tan")
        def rule(builder: BlockBuilder, call: Call) -> Expr:
            return op.divide(op.sin(call.args[0]), op.cos(call.args[0]))

        x = tensor(3)
        text = legalized(op.tan(x), x)
        assert re.findall(r"relaxvm\.kernel\.(\w+)", text) == ["sin", "cos", "divide"]
        a = np.array([0.1, 0.2, 0.3], "float32")
        np.testing.assert_allclose(run(op.tan(x), x)(a), np.tan(a), rtol=1e-6)
    finally:
        Op.get("relax.tan").reset_attr("FLegalize")


def test_a_rule_is_an_attribute_of_the_operator() -> None:
    tan = Op.get("relax.tan")
    x = const(np.ones(3, "float32"))
    assert tan.get_attr("FLegalize") is None
    assert not tan.has_attr("FLegalize")

    def rule(builder: BlockBuilder, call: Call) -> Expr:
        return op.divide(op.sin(call.args[0]), op.cos(call.args[0]))

    builder = BlockBuilder()
    with builder.function("main", []), builder.dataflow():
        out = builder.emit_output(op.tan(x))
        builder.emit_func_output(out)
    mod = builder.get()
    register_legalize("relax.tan", rule)
    try:
        assert tan.get_attr("FLegalize") is rule
        assert "R.tan" in FoldConstant()(mod).script(), "the rule says what it computes"
    finally:
        tan.reset_attr("FLegalize")
    assert not tan.has_attr("FLegalize")
    assert "R.tan" not in FoldConstant()(mod).script()


def test_spans_are_kept() -> None:
    x = tensor(2, 3)
    builder = BlockBuilder()
    span = object()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.cumsum(x, dtype="float64"), span=span))
    (block,) = LegalizeOps()(builder.get())["main"].body.blocks
    assert len(block.bindings) > 1
    assert all(binding.span is span for binding in block.bindings)


def test_legalized_programs_stay_the_same_object() -> None:
    x = tensor(2, 3)
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.exp(x)))
    once = LegalizeOps()(builder.get())
    assert LegalizeOps()(once)["main"] is once["main"]


# The page


def test_names_with_dots_are_namespaces(registered: list[str]) -> None:
    """Of operators of other packages, in Python and in scripts."""
    registered += ["otherpkg.shrink", "otherpkg.deep.er"]

    @operator("otherpkg.shrink")
    def shrink(data: TensorType, by: float = 0.5) -> Type:
        """data, smaller."""
        return data

    @operator("otherpkg.deep.er")
    def er(data: TensorType) -> Type:
        """data"""
        return data

    for name in registered:
        relaxvm.register_func(KERNEL_PREFIX + name, lambda *args: None)
    assert repr(OPERATORS["otherpkg.shrink"]) == "<Operator otherpkg.shrink>"
    assert op.otherpkg.shrink is CONSTRUCTORS["otherpkg.shrink"]
    assert op.otherpkg.deep.er is CONSTRUCTORS["otherpkg.deep.er"]
    assert dir(op.otherpkg) == ["deep", "shrink"]
    assert repr(op.otherpkg.deep) == "<operators otherpkg.deep.*>"
    module = from_source(
        "from relaxvm.script import relax as R\n"
        "@R.function\n"
        "def main(x: R.Tensor((3,), 'float32')) -> R.Tensor((3,), 'float32'):\n"
        "    y = R.otherpkg.shrink(x, 2)\n"
        "    z = R.otherpkg.deep.er(y)\n"
        "    return z\n"
    )
    assert "R.otherpkg.shrink(x, by=2.0)" in str(module)
    assert_structural_equal(from_source(str(module)), module)
    with pytest.raises(AttributeError, match=r"no operator 'otherpkg.shrimp'; did you mean 'other"):
        _ = op.otherpkg.shrimp


def test_every_constructor_has_a_row() -> None:
    rows = re.findall(r"^\| `([\w.]+)\(", load("gen_ops").page(), re.MULTILINE)
    assert sorted(rows) == sorted(CONSTRUCTORS)


def test_unknown_arguments_of_operators() -> None:
    """With parameters of their own, and with those of the type rule."""
    x = Var("x", TensorType((1, 3, 8, 8), "float32"))
    hint = "unknown argument 'stride'; did you mean 'strides'.; the arguments are data, weight, "
    with pytest.raises(TypeError, match=f"relax.nn.conv2d: {hint}"):
        op.nn.conv2d(x, x, stride=2)
    with pytest.raises(TypeError, match="missing a required argument: 'weight'"):
        op.nn.conv2d(x)
    hint = "unknown argument 'axes'; did you mean 'axis'.; the arguments are data, axis"
    with pytest.raises(TypeError, match=f"relax.nn.softmax: {hint}"):
        op.nn.softmax(x, axes=1)
