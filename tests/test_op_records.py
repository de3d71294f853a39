"""The record of an operator: every field has a value or a reason why it has none."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, build, op, transform
from relaxvm.elementwise import FUNCTIONS
from relaxvm.ir import BlockBuilder, IRModule, Op, TensorType, Var
from relaxvm.ir.op import _OPS
from relaxvm.kernels import PREFIX, ChainStep, kernel, record_of
from relaxvm.kernels._kernel import _records
from relaxvm.kernels.implementations import IMPLEMENTATIONS
from relaxvm.op import OPERATORS, Loops, Operator, Unsupported
from relaxvm.op.elementwise import unary
from relaxvm.op.registry import CONSTRUCTORS, NO_LOOPS
from relaxvm.op.rules import need_floats
from relaxvm.registry import GLOBAL
from relaxvm.te import compute
from relaxvm.tir import intrinsics

from . import children

FIELDS = ("fusable", "in_place", "native", "loops")
SENTENCE = re.compile(r"[A-Z][^.]*(?:\.\w[^.]*)*\.", re.DOTALL)

NATIVE = {*(impl.name for impl in IMPLEMENTATIONS), "loop", "chain"}


def of_this_package() -> list[Operator]:
    return [r for r in OPERATORS.values() if not r.name.startswith("testing.")]


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_a_value_or_a_reason(field: str) -> None:
    for record in of_this_package():
        value = getattr(record, field)
        if isinstance(value, Unsupported):
            assert SENTENCE.fullmatch(value.reason), (record.name, value)
            assert value is not NO_LOOPS, f"{record.name} is registered without `loops`"
        elif field == "loops":
            assert isinstance(value, Loops), record.name
            assert callable(value.formula), record.name
        elif field == "native":
            assert value, record.name
            assert set(value) <= NATIVE, record.name
        else:
            assert value is True, (record.name, field)


def test_every_kernel_that_an_operator_names_is_there() -> None:
    for record in of_this_package():
        if record.kernel is not None:
            assert record_of(PREFIX + record.kernel) is not None, record.name


def test_elementwise_operators_have_everything() -> None:
    """Elementwise operators have all fields, with the exceptions listed here, the formulas that
    rows do without, and operators that are made of others."""
    lacking = {
        (record.name, field)
        for record in of_this_package()
        for field in FIELDS
        if record.is_elementwise and not getattr(record, field)
    }
    made = "nn.leakyrelu", "nn.selu", "nn.softplus"
    assert all(OPERATORS[name].lower for name in made)
    lacking -= {(name, field) for name in made for field in FIELDS}
    lacking -= {(row.name, "loops") for row in FUNCTIONS.values() if row.no_loops}
    assert lacking == {
        ("astype", "in_place"),
        ("wrap_param", "in_place"),
        ("where", "in_place"),
        ("clip", "fusable"),
    }


def test_a_row_is_a_kernel_and_an_operator() -> None:
    for name, function in FUNCTIONS.items():
        record, found = OPERATORS[name], record_of(PREFIX + name)
        assert found is not None
        assert found.ufunc is function.ufunc
        assert record.is_elementwise
        assert record.kernel == name
        operands = [p.name for p in record.parameters]
        assert len(operands) == function.arity
        assert record.doc == function.doc_for(*operands)
        if function.alias:
            assert record_of(PREFIX + function.alias) is found


def test_unsupported_is_false_and_says_why() -> None:
    unsupported = Unsupported("It is not.")
    assert not unsupported
    assert unsupported.reason == "It is not."
    assert str(unsupported) == "not supported: It is not."


def test_a_missing_formula() -> None:
    record = OPERATORS["exp"]
    other = Operator.__new__(Operator)
    other.kernel, other.lower, other._loops = record.kernel, None, "no_such_function"
    with pytest.raises(ValueError, match="there is no formula 'no_such_function'"):
        _ = other.loops


def test_operators_are_imported_without_kernels_and_formulas() -> None:
    code = (
        "import sys, relaxvm.op\n"
        "loaded = {'relaxvm.kernels', 'relaxvm.te', 'relaxvm.tir'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    children.run([sys.executable, "-c", code], check=True)


# log1p and expm1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_log1p_and_expm1_are_accurate_near_zero(dtype: str) -> None:
    x = np.array([0.0, -0.0, 1e-4, -1e-4, 3e-8, 0.5], dtype)
    for name in ("log1p", "expm1"):
        out = np.empty_like(x)
        relaxvm.get_func(PREFIX + name)(x, out)
        want = getattr(np, name)(x.astype(np.float64))
        np.testing.assert_allclose(out.astype(float), want, rtol=4 * np.finfo(dtype).eps)
        assert np.signbit(out[:2]).tolist() == [False, True]
    assert OPERATORS["log1p"].op is Op.get("relax.log1p")


def test_division_of_integers_by_zero_in_loops() -> None:
    """As in numpy, the result is 0; the minimum integer divided by -1 does not crash."""
    x = Var("x", TensorType((4,), "int32"))
    y = Var("y", TensorType((4,), "int32"))
    builder = BlockBuilder()
    with builder.function("main", [x, y]):
        results = [op.floor_divide(x, y), op.floor_mod(x, y), op.mod(x, y)]
        builder.emit_func_output(tuple(builder.emit(r) for r in results))
    a = np.array([7, -7, -(2**31), 5], np.int32)
    b = np.array([0, 0, -1, -2], np.int32)
    got = VirtualMachine(build(builder.get(), relax_pipeline="tvm"))["main"](a, b)
    with np.errstate(all="ignore"):
        want = [np.floor_divide(a, b), np.remainder(a, b), np.fmod(a, b)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


# Operators of other packages


@pytest.fixture(autouse=True, scope="module")
def without_the_kernels_of_this_file() -> Iterator[None]:
    yield
    for name in [name for name in _records if name.startswith(f"{PREFIX}testing.")]:
        GLOBAL.remove(name)
        del _records[name]


def softsign_chain(dtype: np.dtype[Any]) -> str | None:
    return "abs($0); add(%0, 1); divide($0, %1) -> %2"


@pytest.fixture(scope="module")
def softsign() -> Iterator[Any]:
    """An operator, its kernel and its formula, as another package would define them."""

    @kernel(
        "testing.softsign",
        signature="x: tensor, out: tensor",
        step=ChainStep(chain=softsign_chain),
        in_place=True,
    )
    def run(x: Any, out: Any) -> None:
        """x / (1 + |x|)"""
        np.divide(x, 1 + np.abs(x), out=out)

    def formula(x: Any) -> Any:
        def element(*i: Any) -> Any:
            return x[i] / (intrinsics.const(1.0, x.dtype) + intrinsics.abs(x[i]))

        return compute(x.shape, element, "softsign")

    make = unary("testing.softsign", need_floats, "``x / (1 + |x|)``", loops=Loops(formula))
    yield make
    del OPERATORS["testing.softsign"], CONSTRUCTORS["testing.softsign"]
    del _OPS["relax.testing.softsign"]


def chain_of(make: Any, count: int) -> IRModule:
    """exp(make(make(x) * x)), large enough to be fused."""
    x = Var("x", TensorType((count,), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.multiply(builder.emit(make(x)), x))
            result = builder.emit_output(op.exp(builder.emit(make(y))))
        builder.emit_func_output(result)
    return builder.get()


def expected(x: Any) -> Any:
    y = x / (1 + np.abs(x)) * x
    return np.exp(y / (1 + np.abs(y)))


def test_an_operator_of_another_package(softsign: Any) -> None:
    record = OPERATORS["testing.softsign"]
    assert record.fusable is True
    assert record.in_place is True
    assert record.native == ("chain",)
    assert isinstance(record.loops, Loops)
    x = np.linspace(-3, 3, 1 << 15).astype(np.float32)
    mod = chain_of(softsign, len(x))

    fused = transform.FuseOps()(transform.LegalizeOps()(mod))
    chain = "testing.softsign($0); multiply(%0, $0); testing.softsign(%1); exp(%2) -> %3"
    assert chain in str(fused)
    np.testing.assert_allclose(VirtualMachine(build(mod))["main"](x), expected(x), rtol=1e-6)

    one_by_one = [relaxvm.get_func(PREFIX + name) for name in ("testing.softsign", "multiply")]
    first, second = np.empty_like(x), np.empty_like(x)
    one_by_one[0](x, first)
    one_by_one[1](first, x, second)
    out = np.empty_like(x)
    text = "testing.softsign($0); multiply(%0, $0) -> %1"
    relaxvm.get_func(PREFIX + "fused")(x, text, out)
    np.testing.assert_array_equal(out, second)


def test_an_operator_of_another_package_works_in_place(softsign: Any) -> None:
    x = np.linspace(-3, 3, 8).astype(np.float32)
    mod = chain_of(softsign, len(x))  # too small to be fused
    executable = build(mod)
    text = executable.as_text()
    assert text.count("testing.softsign") >= 2
    allocations = re.findall(r"call +vm\.builtin\.alloc_tensor", text)
    assert len(allocations) == 1, "all kernels must share one tensor"
    np.testing.assert_allclose(VirtualMachine(executable)["main"](x), expected(x), rtol=1e-6)


def test_an_operator_of_another_package_as_loops(softsign: Any) -> None:
    x = np.linspace(-3, 3, 8).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a C compiler the loops run as Python
        executable = build(chain_of(softsign, len(x)), relax_pipeline="tvm")
    assert not [f.name for f in executable.functions if f.name.startswith(PREFIX)]
    np.testing.assert_allclose(VirtualMachine(executable)["main"](x), expected(x), rtol=1e-6)


def test_a_kernel_of_another_package_that_is_a_ufunc() -> None:
    """A kernel with a ufunc is fused and works in place by default."""

    @kernel("testing.cbrt", signature="x: tensor, out: tensor", ufunc=np.cbrt)
    def run(x: Any, out: Any) -> None:
        """The cube root."""
        np.cbrt(x, out=out)

    record = record_of(PREFIX + "testing.cbrt")
    assert record is not None
    assert record.step == ChainStep(1)
    assert record.in_place is True
    x, out = np.linspace(0, 9, 5000), np.empty(5000)
    relaxvm.get_func(PREFIX + "fused")(x, "testing.cbrt($0); add(%0, 1) -> %1", out)
    np.testing.assert_array_equal(out, np.cbrt(x) + 1)


def test_a_restricted_machine_does_not_find_kernels_of_other_packages() -> None:
    @kernel("testing.plain", signature="x: tensor, out: tensor")
    def run(x: Any, out: Any) -> None:
        """A copy."""
        np.copyto(out, x)

    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=2):
        builder.emit_call(PREFIX + "testing.plain", [builder.r(0), builder.r(1)], dst=builder.r(2))
        builder.emit_ret(builder.r(1))
    executable = builder.get()
    x = np.ones(2)
    assert VirtualMachine(executable)["main"](x, np.zeros(2)).tolist() == [1, 1]
    with pytest.raises(relaxvm.errors.LinkError, match="does not allow it"):
        VirtualMachine(executable, functions=["nothing"])
