"""RecognizeOps: every formula, in the forms that exporters write, and what only looks like one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.ir import IRModule, TensorType, Var, const
from relaxvm.script import relax as R

from .test_block_convolutions import run

Make = Callable[[Any, Any], Any]


def program(make: Make, shape: tuple[int, ...] = (3, 8)) -> IRModule:
    """A function of x that emits what `make` says."""
    bb = relaxvm.BlockBuilder()
    x = Var("x", TensorType(shape, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            result = bb.emit_output(make(bb.emit, x))
        bb.emit_func_output(result)
    return bb.get()


def number(value: float) -> Any:
    return const(np.float32(value))


ROOT = math.sqrt(2)
GELU: dict[str, Make] = {
    "the product first, then one half": lambda emit, x: emit(R.multiply(emit(R.multiply(
        x, emit(R.add(emit(R.erf(emit(R.divide(x, number(ROOT))))), number(1))))), number(0.5))),
    "one half of x": lambda emit, x: emit(R.multiply(emit(R.multiply(x, number(0.5))), emit(R.add(
        number(1), emit(R.erf(emit(R.multiply(x, number(1 / ROOT))))))))),
    "one half of the weight": lambda emit, x: emit(R.multiply(x, emit(R.multiply(number(0.5), emit(
        R.add(emit(R.erf(emit(R.multiply(number(0.70710677), x)))), number(1))))))),
}  # fmt: skip
SILU: dict[str, Make] = {
    "sigmoid last": lambda emit, x: emit(R.multiply(x, emit(R.sigmoid(x)))),
    "sigmoid first": lambda emit, x: emit(R.multiply(emit(R.sigmoid(x)), x)),
}


def hard_swish(emit: Any, x: Any, *, form: str, by: float = 6.0, offset: float = 3.0) -> Any:
    """With the sixth at the end, at the gate, before it, or as a factor; clipped at once or not."""
    if form == "before":
        gate = emit(R.add(emit(R.multiply(x, number(1 / by))), number(offset / by)))
        return emit(R.multiply(x, emit(R.clip(gate, 0, 1))))
    gate = emit(R.add(number(offset), x))
    if form == "steps":
        gate = emit(R.minimum(emit(R.maximum(gate, number(0))), number(6)))
    else:
        gate = emit(R.clip(gate, 0, 6))
    if form == "gate":
        return emit(R.multiply(emit(R.divide(gate, number(by))), x))
    product = emit(R.multiply(x, gate))
    if form == "factor":
        return emit(R.multiply(product, number(1 / by)))
    return emit(R.divide(product, number(by)))


def swish(form: str, **others: Any) -> Make:
    return lambda emit, x: hard_swish(emit, x, form=form, **others)


SWISH = {form: swish(form) for form in ("steps", "clip", "gate", "before", "factor")}
SCALE = np.linspace(-1, 2, 8, dtype=np.float32)


def norm(
    emit: Any, x: Any, *, square: str = "multiply", root: str = "rsqrt", scale: Any = SCALE,
    offset: bool = True, axis: int = -1, other: int = -1, exponent: float = 2.0,
) -> Any:  # fmt: skip
    mean = emit(R.mean(x, [axis], keepdims=True))
    distance = emit(R.subtract(x, mean))
    if square == "power":
        squared = emit(R.power(distance, number(exponent)))
    elif square == "square":
        squared = emit(R.square(distance))
    else:
        squared = emit(R.multiply(distance, distance))
    spread = emit(R.add(emit(R.mean(squared, [other], keepdims=True)), number(1e-5)))
    if root == "rsqrt":
        normal = emit(R.multiply(distance, emit(R.rsqrt(spread))))
    else:
        normal = emit(R.divide(distance, emit(R.sqrt(spread))))
    scaled = emit(R.multiply(normal, const(scale)))
    return emit(R.add(scaled, const(SCALE))) if offset else scaled


NORM: dict[str, Make] = {
    "products": norm,
    "powers and roots": lambda emit, x: norm(emit, x, square="power", root="sqrt"),
    "squares": lambda emit, x: norm(emit, x, square="square"),
    "no offset": lambda emit, x: norm(emit, x, offset=False),
    "the last axis from the front": lambda emit, x: norm(emit, x, axis=1, other=1),
}

def lrn(
    emit: Any, x: Any, *, size: int = 3, power: float | None = None, step: int = 1, more: int = 0,
    other: bool = False, fill: float = 0.0,
) -> Any:  # fmt: skip
    """Over columns; as roots, or as a power."""
    square = emit(R.multiply(x, emit(R.exp(x)) if other else x))
    widths = [0, 0, (size - 1) // 2, size // 2 + more]
    padded = emit(R.nn.pad(square, widths, "constant", fill))
    total = None
    for i in range(size):
        part = emit(R.strided_slice(padded, [1], [i * step], [8 + i * step]))
        total = part if total is None else emit(R.add(total, part))
    base = emit(R.add(emit(R.multiply(total, number(0.5))), number(1.5)))
    if power is not None:
        return emit(R.divide(x, emit(R.power(base, number(power)))))
    root = emit(R.sqrt(base))
    return emit(R.divide(x, emit(R.multiply(root, emit(R.sqrt(root))))))


LRN: dict[str, Make] = {
    "three columns": lrn,
    "five columns": lambda emit, x: lrn(emit, x, size=5),
    "a power": lambda emit, x: lrn(emit, x, power=0.6),
    "one half": lambda emit, x: lrn(emit, x, size=5, power=0.5),
}

FORMS = [
    *(("R.nn.gelu(", name, make) for name, make in GELU.items()),
    *(("R.nn.silu(", name, make) for name, make in SILU.items()),
    *(("nn.apply", name, make) for name, make in SWISH.items()),
    *(("R.nn.layer_norm(", name, make) for name, make in NORM.items()),
    *(("nn.lrn", name, make) for name, make in LRN.items()),
]


@pytest.mark.parametrize(
    ("found", "make"), [(f, m) for f, _, m in FORMS], ids=[name for _, name, _ in FORMS]
)
def test_formulas(found: str, make: Make) -> None:
    mod = program(make)
    recognized = transform.RecognizeOps()(mod)
    relaxvm.analysis.well_formed(recognized)
    text = str(recognized)
    assert text.count(found) == 1
    assert text.count("= R.") == 1  # and nothing else
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(run(recognized, x)[0], run(mod, x)[0], atol=2e-6)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize(("power", "products"), [(2.0, 1), (3.0, 2), (2.5, 0), (4.0, 0)])
def test_powers(power: float, products: int, shape: tuple[int, ...]) -> None:
    exponent = const(np.full(shape, power, np.float32))
    mod = program(lambda emit, x: emit(R.power(emit(R.exp(x)), exponent)))
    recognized = transform.RecognizeOps()(mod)
    relaxvm.analysis.well_formed(recognized)
    assert str(recognized).count("R.multiply(") == products
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(run(recognized, x)[0], run(mod, x)[0], rtol=3e-7)


def test_a_power_of_more_axes_stays() -> None:
    exponent = const(np.full((1, 1, 1), 2.0, np.float32))
    mod = program(lambda emit, x: emit(R.power(x, exponent)))
    assert "R.multiply" not in str(transform.RecognizeOps()(mod))


OTHERS: dict[str, Make] = {
    "another root": lambda emit, x: emit(R.multiply(emit(R.multiply(
        x, emit(R.add(emit(R.erf(emit(R.divide(x, number(1.5))))), number(1))))), number(0.5))),
    "another summand": lambda emit, x: emit(R.multiply(emit(R.multiply(
        x, emit(R.add(emit(R.erf(emit(R.divide(x, number(ROOT))))), number(2))))), number(0.5))),
    "not one half": lambda emit, x: emit(R.multiply(emit(R.multiply(
        x, emit(R.add(emit(R.erf(emit(R.divide(x, number(ROOT))))), number(1))))), number(0.25))),
    "sigmoid of another": lambda emit, x: emit(R.multiply(x, emit(R.sigmoid(emit(R.exp(x)))))),
    "over 5": swish("clip", by=5.0),
    "another offset": swish("gate", offset=2.0),
    "cubes": lambda emit, x: norm(emit, x, square="power", exponent=3.0),
    "the first axis": lambda emit, x: norm(emit, x, axis=0, other=0),
    "two axes": lambda emit, x: norm(emit, x, other=0),
    "a scale for each element": lambda emit, x: norm(emit, x, scale=np.ones((3, 8), np.float32)),
    "one scale": lambda emit, x: norm(emit, x, scale=np.ones(1, np.float32)),
    "products of two": lambda emit, x: lrn(emit, x, other=True),
    "ones around": lambda emit, x: lrn(emit, x, fill=1.0),
    "one slice again and again": lambda emit, x: lrn(emit, x, step=0),
    "more zeros": lambda emit, x: lrn(emit, x, more=1),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_like_a_formula(name: str) -> None:
    mod = program(OTHERS[name])
    text = str(transform.RecognizeOps()(mod))
    assert "R.nn." not in text.replace("R.nn.pad(", "")
    assert "nn.lrn" not in text
