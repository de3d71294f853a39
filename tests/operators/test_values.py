"""Every operator, built and run by the VM, has the results of its reference."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest

import relaxvm
from relaxvm import op
from relaxvm.compiler.vm_build import build
from relaxvm.elementwise import FUNCTIONS
from relaxvm.ir import BlockBuilder, TensorType, TupleType, Var
from relaxvm.op import OPERATORS as RECORDS

from .notation import evaluate
from .oracle import assert_close, exact, leaves, operands_of, seed_of, wide
from .programs import module_of, module_of_results
from .table import OPERATORS, Cases, lines

WITH_VALUES = [name for name, found in OPERATORS.items() if found.values]

NOT_SYMBOLIC = {
    "collapse_sum_to": "lengths have to be equal, or 1, when the program is built, as in TVM",
    "squeeze": "how many axes are left is not known",
    "topk": "of a length that is not known, k is taken as it is",
}


@pytest.mark.parametrize("name", WITH_VALUES)
def test_values(name: str) -> None:
    found = OPERATORS[name]
    run_cases(found, found.calls(), symbolic=False)


@pytest.mark.parametrize("name", [name for name in WITH_VALUES if name not in NOT_SYMBOLIC])
def test_symbolic_shapes(name: str) -> None:
    """Dimensions that are known only at run time."""
    found = OPERATORS[name]
    run_cases(found, found.calls(), symbolic=True)


def run_cases(found: Cases, calls: list[str], symbolic: bool) -> None:
    names = {f"case_{i}": call for i, call in enumerate(calls)}
    machine = relaxvm.VirtualMachine(build(module_of(names, symbolic)))
    for name, call in names.items():
        expr, made = evaluate(call)
        operands = operands_of(call, made, found)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = machine[name](*operands.values())
        compare(got, exact(expr, operands), expr.ty, found, f"{call} (seed {seed_of(call)})")


NOT_WITHOUT_DIMS = {
    "reshape": "-1 stands for a number that is computed when the program is built",
    "topk": NOT_SYMBOLIC["topk"],
    "layout_transform": "its loops are made when the program is built, for the shape",
}
NOT_WITHOUT_RANK = {
    **NOT_WITHOUT_DIMS,
    "nn.batch_norm": "in training, all axes but one are reduced",
    "meshgrid": "the rank of vectors is known",
    "quantize": "parameters are for an axis",
    "dequantize": "parameters are for an axis",
}


@pytest.mark.parametrize("name", [name for name in WITH_VALUES if name not in NOT_WITHOUT_DIMS])
def test_ranks_alone(name: str) -> None:
    """The dimensions of the operands are not known when the program is compiled."""
    run_unknown(name, "dims")


@pytest.mark.parametrize("name", [name for name in WITH_VALUES if name not in NOT_WITHOUT_RANK])
def test_unknown_ranks(name: str) -> None:
    """Nothing is known of the shapes of the operands when the program is compiled."""
    run_unknown(name, "rank")


def run_unknown(name: str, unknown: str) -> None:
    found = OPERATORS[name]
    for call in found.calls():
        expr, made = evaluate(call)
        machine = relaxvm.VirtualMachine(
            build(module_of_results({"main": evaluate(call, unknown=unknown)}))
        )
        operands = operands_of(call, made, found)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = machine["main"](*operands.values())
        compare(got, exact(expr, operands), expr.ty, found, f"{call} (seed {seed_of(call)})")


def compare(got: Any, want: Any, ty: Any, found: Cases, where: str, factor: float = 1) -> None:
    types = ty.fields if isinstance(ty, TupleType) else [ty]
    results, wanted = leaves(got), leaves(want)
    assert len(results) == len(wanted) == len(types), where
    for result, expected, each in zip(results, wanted, types, strict=True):
        assert_close(result, expected, each.dtype, found, where, factor)


def test_every_operator_has_values() -> None:
    for name, found in OPERATORS.items():
        assert bool(found.values) != bool(found.elsewhere), f"{name}: no values"


# Infinities, NaN and the ends of the range

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5]
WITH_SPECIAL = [name for name, found in OPERATORS.items() if found.special]


def odd_numbers(dtype: str) -> np.ndarray:
    info = np.finfo(dtype)
    ends = [info.max, info.min, info.smallest_normal, -info.smallest_subnormal]
    return np.array([*SPECIAL, *ends], dtype)


@pytest.mark.parametrize("name", WITH_SPECIAL)
def test_odd_numbers(name: str) -> None:
    """NaN, infinities, zeros of both signs, and the ends of the range."""
    found = OPERATORS[name]
    letter = {c for c in "fhd" if f"{name}({c}(" in found.values}
    for c in sorted(letter):
        dtype = {"f": "float32", "h": "float16", "d": "float64"}[c]
        x = odd_numbers(dtype)
        operands = [x]
        if len(RECORDS[name].operands) == 2:
            operands = [np.repeat(x, len(x)), np.tile(x, len(x))]
        call = f"{name}({', '.join(f'{c}({len(o)})' for o in operands)})"
        expr, made = evaluate(call)
        machine = relaxvm.VirtualMachine(build(module_of({"main": call})))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = machine["main"](*operands)
        compare(got, exact(expr, dict(zip(made, operands, strict=True))), expr.ty, found, call)


@pytest.mark.parametrize("name", [name for name, found in OPERATORS.items() if found.odd])
def test_odd_rows(name: str) -> None:
    found = OPERATORS[name]
    for call in lines(found.odd):
        operands = odd_row(call, found)
        machine = relaxvm.VirtualMachine(build(module_of({"main": call})))
        expr, made = evaluate(call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = machine["main"](*operands.values())
        want = exact(expr, dict(zip(made, operands.values(), strict=True)))
        compare(got, want, expr.ty, found, call)


def odd_row(call: str, found: Cases) -> dict[Var, np.ndarray]:
    """Return operands; the first one has rows with infinities and NaN."""
    _, made = evaluate(call)
    operands = operands_of(call, made, found)
    operands[made[0]][1, :4] = [np.nan, np.inf, -np.inf, -0.0]
    operands[made[0]][2, :2] = [np.inf, -np.inf]
    return operands


@pytest.mark.parametrize("name", [name for name, found in OPERATORS.items() if found.failures])
def test_failures(name: str) -> None:
    """Calls that raise at run time."""
    for line in lines(OPERATORS[name].failures):
        call, operands, expected = line.split(" | ")
        kind, _, message = expected.partition(": ")
        machine = relaxvm.VirtualMachine(build(module_of({"main": call})))
        _, made = evaluate(call)
        given = eval(f"({operands},)", {"np": np})
        assert len(given) == len(made), line
        with pytest.raises((IndexError, ValueError, FloatingPointError)) as raised:
            machine["main"](*given)
        assert type(raised.value).__name__ == kind, line
        assert str(raised.value).startswith(message), f"{line}: {raised.value}"


def test_dimensions_computed_at_run_time() -> None:
    """If only ranks are known, LegalizeOps computes the dimensions at run time."""
    x, y = Var("x", TensorType(None, "float32", ndim=2)), Var("y", TensorType((3,), "float32"))
    module = module_of_results({"main": (op.nn.softmax(op.add(op.exp(x), y)), [x, y])})
    a, b = np.ones((2, 3), "float32"), np.arange(3, dtype="float32")
    e = np.exp(np.exp(a) + b)
    got = relaxvm.VirtualMachine(build(module))["main"](a, b)
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=2e-5)


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    x = Var("x", TensorType((2,), "int64"))
    machine = machine_of_effects(lambda: (op.print(x, 3, format="{}: {}"), op.print(x, "end")), x)
    machine["main"](np.array([1, 2]))
    assert capsys.readouterr().out == "[1 2]: 3\n[1 2] end\n"


def test_assert_op() -> None:
    x = Var("x", TensorType((), "bool"))
    machine = machine_of_effects(lambda: (op.assert_op(x, [x, 3], format="{} of {}"),), x)
    machine["main"](np.array(True))
    with pytest.raises(AssertionError, match="False of 3"):
        machine["main"](np.array(False))
    machine = machine_of_effects(lambda: (op.assert_op(x),), x)
    with pytest.raises(AssertionError, match="Assertion Failed"):
        machine["main"](np.array(False))


def machine_of_effects(calls: Any, x: Var) -> relaxvm.VirtualMachine:
    builder = BlockBuilder()
    with builder.function("main", [x], pure=False):
        for call in calls():
            builder.emit(call)
        builder.emit_func_output(x)
    return relaxvm.VirtualMachine(build(builder.get()))


def test_a_view_beyond_the_tensor() -> None:
    view = relaxvm.get_func("runtime.TVMTensorCreateView")
    x = np.arange(4, dtype="float32")
    assert view(x, (), None, 0).tolist() == x.tolist()
    with pytest.raises(ValueError, match="expected a view within the 16 bytes"):
        view(x, relaxvm.Shape([4]), None, 4)
    with pytest.raises(ValueError, match="expected a contiguous tensor"):
        view(x[::2], relaxvm.Shape([1]), None, 0)


# The references


class Watched(np.ndarray):
    """An array that notes which loops of ufuncs it takes part in."""

    seen: ClassVar[set[tuple[str, str]]] = set()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Watched) else x for x in inputs]
        self.seen.update((ufunc.__name__, x.dtype.char) for x in plain if hasattr(x, "dtype"))
        found = getattr(ufunc, method)(*plain, **kwargs)
        return found.view(Watched) if isinstance(found, np.ndarray) else found


@pytest.mark.parametrize("name", [name for name, row in FUNCTIONS.items() if row.ufunc])
def test_references_do_not_call_the_loops_of_kernels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ufunc is called for long doubles and Python objects only."""
    found, ufunc = OPERATORS[name], FUNCTIONS[name].ufunc
    assert found.reference is not None
    assert ufunc is not None
    monkeypatch.setattr(Watched, "seen", set())
    for call in found.calls():
        _, made = evaluate(call)
        operands = [wide(x) for x in operands_of(call, made, found).values()]
        if len(operands) == ufunc.nin:
            with np.errstate(all="ignore"):
                found.reference(*[np.asarray(x).view(Watched) for x in operands])
    assert {char for called, char in Watched.seen if called == ufunc.__name__} <= {"g", "O"}
