"""Attributes of operators by TVM's names, and the normal forms that operators have of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relaxvm.analysis import IllFormedError, check_well_formed, well_formed
from relaxvm.ir import (
    ANY,
    BlockBuilder,
    Call,
    Expr,
    IRModule,
    Op,
    PyExprMutator,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
    const,
    register_op_attr,
    structural_equal,
)
from relaxvm.op import add
from relaxvm.script import from_source
from relaxvm.transform import LegalizeOps, Normalize

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"
NAME = "example.doubled"
VECTOR = TensorType((4,), "float32")
KEYS = ("FInferType", "FPurity", "FNormalize", "FLegalize")


def of_first(call: Call, builder: BlockBuilder) -> Type:
    assert isinstance(builder, BlockBuilder)
    ty: Type = call.args[0].ty
    return ty


def with_factor(builder: BlockBuilder, call: Call) -> Expr:
    """The normal form has two operands: a call with one gets a factor."""
    return call if len(call.args) == 2 else Call(call.op, [call.args[0], const(2.0, "float32")])


@pytest.fixture
def doubled() -> Iterator[Op]:
    register_op_attr(NAME, "FInferType", of_first)
    register_op_attr(NAME, "FPurity", True)
    register_op_attr(NAME, "FNormalize", with_factor)
    op = Op.get(NAME)
    yield op
    for key in KEYS:
        op.reset_attr(key)


def program(op: Op, *more: Expr, raw: bool = True) -> IRModule:
    """A module that calls the operator once; `raw` keeps the call as it is."""
    builder = BlockBuilder(applies_normalizers=not raw)
    x = Var("x", VECTOR)
    with builder.function("main", [x]), builder.dataflow():
        y = builder.emit_output(Call(op, [x, *more]))
        builder.emit_func_output(y)
    return builder.get()


def operands(mod: IRModule) -> tuple[Expr, ...]:
    main: Any = mod["main"]
    found: tuple[Expr, ...] = main.body.blocks[0].bindings[-1].value.args
    return found


def test_attributes_are_fields_of_the_operator(doubled: Op) -> None:
    assert doubled.get_attr("FNormalize") is doubled.normalizer is with_factor
    assert doubled.get_attr("FInferType") is of_first
    assert doubled.is_pure
    assert doubled.get_attr("FPurity") is True
    doubled.set_attr("Example", 3)
    assert doubled.has_attr("Example")
    assert doubled.get_attr("Example") == 3
    for key in (*KEYS, "Example"):
        doubled.reset_attr(key)
        doubled.reset_attr(key)  # nothing is left to undo
    assert not doubled.has_attr("Example")
    assert not doubled.has_attr("FNormalize")
    assert doubled.get_attr("FPurity") is False
    assert doubled.infer(Call(doubled, [Var("x", VECTOR)])) is ANY


def test_reset_restores_what_was_replaced() -> None:
    op = Op.get("relax.call_tir")
    before = op.normalizer
    assert before is not None
    op.set_attr("FNormalize", lambda builder, call: call)
    op.set_attr("FNormalize", lambda builder, call: call)
    op.reset_attr("FNormalize")
    assert op.normalizer is before


def test_register_as_decorator(doubled: Op) -> None:
    decorate = register_op_attr(NAME, "FLegalize")
    assert decorate is not None

    @decorate
    def lower(builder: BlockBuilder, call: Call) -> Expr:
        doubled_sum: Expr = add(call.args[0], call.args[0])
        return doubled_sum

    expected = LegalizeOps()(added())
    assert structural_equal(LegalizeOps()(program(doubled, raw=False)), expected)
    assert lower is doubled.get_attr("FLegalize")


def added() -> IRModule:
    builder = BlockBuilder()
    x = Var("x", VECTOR)
    with builder.function("main", [x]), builder.dataflow():
        builder.emit_func_output(builder.emit_output(add(x, x)))
    return builder.get()


@pytest.mark.parametrize("key", ["FInferType", "FNormalize", "FLegalize"])
def test_functions_are_required(doubled: Op, key: str) -> None:
    with pytest.raises(TypeError, match=rf"example\.doubled: {key}: expected a function, got 3"):
        doubled.set_attr(key, 3)
    with pytest.raises(TypeError, match=r"FPurity: expected a bool, got 1"):
        doubled.set_attr("FPurity", 1)


def test_builder_applies_the_normalizer(doubled: Op) -> None:
    assert len(operands(program(doubled, raw=False))) == 2
    assert len(operands(program(doubled))) == 1


def test_passes_and_mutators_apply_it(doubled: Op) -> None:
    raw = program(doubled)
    assert len(operands(Normalize()(raw))) == 2
    func = PyExprMutator(raw).visit_expr(raw["main"])
    assert len(operands(IRModule({"main": func}))) == 2


def test_a_normalizer_may_emit_bindings(doubled: Op) -> None:
    def emits(builder: BlockBuilder, call: Call) -> Expr:
        if len(call.args) == 2:
            return call
        return Call(call.op, [builder.emit(add(call.args[0], call.args[0])), call.args[0]])

    doubled.set_attr("FNormalize", emits)
    mod = Normalize()(program(doubled))
    main: Any = mod["main"]
    assert [b.value.op.name for b in main.body.blocks[0].bindings] == ["relax.add", NAME]
    assert well_formed(mod)


def test_a_normalizer_may_return_a_call_of_another_operator(doubled: Op) -> None:
    doubled.set_attr("FNormalize", lambda builder, call: add(call.args[0], call.args[0]))
    assert structural_equal(Normalize()(program(doubled)), added())


def test_a_normalizer_that_never_settles_is_reported(doubled: Op) -> None:
    doubled.set_attr("FNormalize", lambda builder, call: Call(call.op, [*call.args, call.args[0]]))
    mod = Normalize()(program(doubled))
    assert len(operands(mod)) == 2
    assert not check_well_formed(mod)


def test_a_normalizer_that_returns_no_expression(doubled: Op) -> None:
    doubled.set_attr("FNormalize", lambda builder, call: None)
    mod = program(doubled)
    with pytest.raises(TypeError, match="FNormalize: expected an expression, got None"):
        Normalize()(mod)
    with pytest.raises(IllFormedError, match=r"has no normal form: .*got None"):
        well_formed(mod)


def test_a_call_that_would_change_is_ill_formed(doubled: Op) -> None:
    raw = program(doubled)
    with pytest.raises(IllFormedError, match="call_has_own_form"):
        well_formed(raw)
    assert well_formed(program(doubled, const(3.0, "float32")))
    doubled.reset_attr("FNormalize")
    assert well_formed(raw)


CALL_TIR = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def twice(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main({param}):
        {binding}
        return R.call_tir(Module.twice, args, R.Tensor((4,), "float32"))
"""


@pytest.mark.parametrize(
    ("param", "binding"),
    [
        ('x: R.Tensor((4,), "float32")', "args = (x,)"),
        ('args: R.Tuple(R.Tensor((4,), "float32"))', "y = args"),
    ],
)
def test_the_arguments_of_call_tir_become_inline(param: str, binding: str) -> None:
    text = HEADER + CALL_TIR.format(param=param, binding=binding)
    raw: Any = from_source(text, check_well_formed=False)
    assert isinstance(operands(raw)[1], Var)
    assert type(operands(raw)[1].ty) is TupleType
    assert not check_well_formed(raw)
    parsed: Any = from_source(text)
    normalized = Normalize()(raw)
    assert isinstance(operands(parsed)[1], Tuple)
    assert structural_equal(parsed, normalized)
    assert well_formed(normalized)
