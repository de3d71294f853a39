"""Operators lowered to loops by the pipeline "tvm", in C and in Python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from relaxvm import VirtualMachine, build
from relaxvm.op.registry import OPERATORS as RECORDS
from relaxvm.script import from_source

from .notation import evaluate
from .oracle import exact, operands_of
from .programs import module_of
from .table import OPERATORS, lines
from .test_values import NOT_SYMBOLIC, compare, odd_numbers, odd_row

FORMULAS = {name: record.loops for name, record in RECORDS.items() if record.loops}

FACTOR = 8
"""Loops add up one after the other, and call functions of C: their bounds are so many times those
of the kernels."""

BEYOND = {"take": ("wrap", "clip", "nan", "python")}
"""Words in calls that the formulas do not take."""


WITH_WINDOWS = {
    "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d",
    "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.pad", "nn.batch_norm",
    "nn.group_norm", "strided_slice",
}  # fmt: skip
"""Operators whose formulas differ by attributes: all calls are tested."""


WITH_NUMBERS = {
    **NOT_SYMBOLIC,
    "gather_nd": "the number of coordinates is not known",
}
"""Operators whose shapes have to be known for loops, with the reason."""


def is_taken(name: str, dtype: str) -> bool:
    """Return whether the formula supports operands of a data type."""
    dtypes = FORMULAS[name].dtypes  # type: ignore[union-attr]
    return dtypes is None or dtype in dtypes


def cases_for(name: str, per_type: int, most: int) -> Iterator[str]:
    """Return some calls of each data type that the formula supports, with a maximum number of
    elements per operand."""
    count: dict[str, int] = {}
    for call in OPERATORS[name].calls():
        if not call.startswith(f"{name}(") or any(word in call for word in BEYOND.get(name, ())):
            continue
        _, made = evaluate(call)
        operands = operands_of(call, made, OPERATORS[name]).values()
        dtype = made[0].ty.dtype if made else "float32"  # type: ignore[union-attr]
        if is_taken(name, dtype) and all(x.size <= most for x in operands):
            count[dtype] = count.get(dtype, 0) + 1
            if count[dtype] <= per_type:
                yield call


def odd_calls(name: str) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Return calls with infinities and NaN, and their operands."""
    found = OPERATORS[name]
    if not is_taken(name, "float32"):
        return
    for call in lines(found.odd):
        if any(word in call for word in BEYOND.get(name, ())):
            continue
        yield call, list(odd_row(call, found).values())
    if found.special and f"{name}(f(" in found.values:
        count = len(RECORDS[name].operands)
        x = np.tile(odd_numbers("float32"), (14, 1))
        yield f"{name}({', '.join(['f(14, 14)'] * count)})", [x, x.T.copy()][:count]


def check_loops(name: str, per_type: int, most: int, odd: bool) -> None:
    found = OPERATORS[name]
    runs: list[tuple[str, list[np.ndarray]]] = []
    for call in cases_for(name, per_type, most):
        runs.append((call, list(operands_of(call, evaluate(call)[1], found).values())))
    assert runs
    if odd:
        runs += odd_calls(name)
    calls = {f"f{i}": call for i, (call, _) in enumerate(runs)}
    executable = build(module_of(calls, symbolic=name not in WITH_NUMBERS), relax_pipeline="tvm")
    assert f"relaxvm.kernel.{name}" not in {info.name for info in executable.functions}
    machine = VirtualMachine(executable)
    for function, (call, operands) in zip(calls, runs, strict=True):
        expr, made = evaluate(call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = machine[function](*operands)
        want = exact(expr, dict(zip(made, operands, strict=True)))
        compare(got, want, expr.ty, found, call, FACTOR)


@pytest.mark.parametrize("name", FORMULAS)
def test_loops_in_c(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_CFLAGS", "-O0")  # fast to compile, and the results are the same
    if name in WITH_WINDOWS:
        check_loops(name, 100, 30_000, odd=True)
    else:
        check_loops(name, 1, 200, odd=True)


@pytest.mark.parametrize("name", FORMULAS)
def test_loops_in_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_loops(name, 3, 30, odd=False)


def test_what_has_no_formula_stays_a_kernel() -> None:
    mod = from_source(
        "from relaxvm.script import ir as I, relax as R\n"
        "@R.function\n"
        "def main(x: R.Tensor((3, 4), 'int32'), y: R.Tensor((3, 4), 'bool')):\n"
        "    return R.argmax(x, axis=1), R.divide(x, x), R.add(y, y)\n"
    )
    executable = build(mod, relax_pipeline="tvm")
    names = {info.name for info in executable.functions}
    kernels = {"relaxvm.kernel.argmax", "relaxvm.kernel.divide", "relaxvm.kernel.add"}
    assert names >= kernels
    x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    result = VirtualMachine(executable)["main"](x, x > 3)
    np.testing.assert_array_equal(result[0], [3, 3, 3])
    np.testing.assert_array_equal(result[1], np.ones((3, 4)))
