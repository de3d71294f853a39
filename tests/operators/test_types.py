"""The type rule of every operator: types of calls, and error messages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relaxvm.ir import BlockBuilder, Call, Op, ShapeType, TensorType, Var, infer_type, is_base_of
from relaxvm.op import CONSTRUCTORS
from relaxvm.op import OPERATORS as RECORDS
from relaxvm.registry import GLOBAL
from relaxvm.transform import LegalizeOps

from .notation import evaluate, operators_in, type_named
from .table import OPERATORS, pairs


@pytest.mark.parametrize("name", OPERATORS)
def test_types(name: str) -> None:
    for case, expected in pairs(OPERATORS[name].types):
        call, made = evaluate(case)
        assert same(call.ty, type_named(expected, made)), f"{case}: {call.ty}"


def same(a: Any, b: Any) -> bool:
    """Return whether two types have the same values."""
    return is_base_of(a, b) and is_base_of(b, a)


@pytest.mark.parametrize("name", OPERATORS)
def test_errors(name: str) -> None:
    for case, expected in pairs(OPERATORS[name].errors):
        kind, _, message = expected.partition(": ")
        with pytest.raises((TypeError, ValueError)) as raised:
            evaluate(case)
        found = type(raised.value).__name__.removeprefix("Operator")
        assert found == kind, f"{case}: {raised.value!r}"
        assert str(raised.value).startswith(message), f"{case}: {raised.value}"


@pytest.mark.parametrize("name", OPERATORS)
def test_a_call_without_type_gets_the_same_one(name: str) -> None:
    """Calls rebuilt by passes get the same type as those of constructors."""
    for case, expected in pairs(OPERATORS[name].types):
        call, made = evaluate(case)
        if isinstance(call, Call) and type(call.op) is Op:
            again = infer_type(Call(call.op, call.args, call.attrs, call.ty_args))
            assert same(again.ty, type_named(expected, made)), case


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_take_what_they_are_given(name: str) -> None:
    """The legalized call matches the signature of its kernel."""
    for case, _ in pairs(OPERATORS[name].types):
        call, made = evaluate(case)
        if not isinstance(call, Call) or type(call.op) is not Op or call.op.record.kernel is None:
            continue
        builder = BlockBuilder()
        with builder.function("main", made):
            builder.emit_func_output(builder.emit(call))
        for block in LegalizeOps()(builder.get())["main"].body.blocks:
            for value in (binding.value for binding in block.bindings):
                if isinstance(value, Call) and value.op is Op.get("relax.call_dps_packed"):
                    check_arguments(value, case)


def check_arguments(call: Any, case: str) -> None:
    outputs = len(getattr(call.ty, "fields", (call.ty,)))
    count = len(call.args[1].fields) + outputs
    record = GLOBAL.lookup(call.args[0].global_symbol)
    assert record is not None, case
    signature = record.signature
    assert signature is not None, case
    assert signature.min_args <= count, case
    assert signature.max_args is None or count <= signature.max_args, case


def test_every_operator_has_type_cases() -> None:
    assert set(OPERATORS) == {*RECORDS, *CONSTRUCTORS}
    for name, found in OPERATORS.items():
        calls = [case for case, _ in pairs(found.types)]
        assert calls, f"{name}: no types"
        called = {each for case in calls for each in operators_in(evaluate(case)[0])}
        assert name in called or name not in RECORDS, f"{name}: its types call {called}"
        assert found.errors, f"{name}: no errors"


def test_operands_of_one_shape_variable() -> None:
    shape: Any = Var("s", ShapeType(ndim=2))
    x = Var("x", TensorType(shape, "float32"))
    assert (x + x).ty.shape is shape


def test_a_call_with_too_few_operands() -> None:
    x = Var("x", TensorType((3,), "float32"))
    with pytest.raises(
        TypeError, match=re.escape("relax.add: expected 2 operands (x1, x2), got 1")
    ):
        infer_type(Call(Op.get("relax.add"), [x]))
