"""FlushSubnormals: weights that are too small to matter do not make products slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import op
from relaxvm.ir import BlockBuilder, Constant, ExprVisitor, TensorType, Var
from relaxvm.transform import FlushSubnormals

from .test_integers import FLOAT, model, node

TINY = np.finfo(np.float32).tiny
BELOW = np.nextafter(TINY, np.float32(0), dtype=np.float32)
LEAST = np.nextafter(np.float32(0), np.float32(1), dtype=np.float32)


def constants(mod: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []

    class Collect(ExprVisitor):
        def visit_constant(self, constant: Constant) -> None:
            found.append(constant.data)

    for func in mod.functions.values():
        Collect().visit(func)
    return found


def program(name: str, *weights: np.ndarray) -> Any:
    bb = BlockBuilder()
    x = Var("x", TensorType([1, 4, 8], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            value: Any = x
            for weight in weights:
                value = bb.emit(getattr(op, name)(value, Constant(weight)))
            out = bb.emit_output(value)
        bb.emit_func_output(out)
    return bb.finalize()


EDGES = np.array([0.0, -0.0, LEAST, -LEAST, BELOW, -BELOW, TINY, -TINY, 1, np.inf, -np.inf, np.nan],
                 np.float32)  # fmt: skip


@pytest.mark.parametrize("size", [96, 1 << 15, (1 << 15) + 8, 3 << 16])
def test_only_subnormal_numbers_become_zero(size: int) -> None:
    weight = np.resize(EDGES, (8, size // 8))
    (got,) = constants(FlushSubnormals()(program("matmul", weight)))
    want = np.where((np.abs(weight) < TINY) & (weight != 0), np.float32(0), weight)
    assert got.tobytes() == want.tobytes()
    assert weight.tobytes() == np.resize(EDGES, (8, size // 8)).tobytes(), "written"


def test_a_transposed_weight() -> None:
    weight = np.resize(EDGES, (5, 8)).T
    (got,) = constants(FlushSubnormals()(program("matmul", weight)))
    np.testing.assert_array_equal(got, np.where(np.abs(weight) < TINY, np.float32(0), weight))


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("matmul", np.ones((8, 3), np.float32)),
        ("matmul", np.zeros((8, 3), np.float32)),
        ("matmul", np.ones((8, 0), np.float32)),
        ("divide", np.full((8,), LEAST)),
        ("maximum", np.full((8,), LEAST)),
    ],
)
def test_what_stays_is_not_copied(name: str, weight: np.ndarray) -> None:
    before = program(name, weight)
    after = FlushSubnormals()(before)
    assert after is before
    (got,) = constants(after)
    assert np.shares_memory(got, weight) or not weight.size


def test_a_weight_of_two_products_is_flushed_once() -> None:
    weight = np.full((8, 8), LEAST)
    shared = Constant(weight)
    bb = BlockBuilder()
    x = Var("x", TensorType([1, 4, 8], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.matmul(bb.emit(op.matmul(x, shared)), shared))
        bb.emit_func_output(out)
    first, second = constants(FlushSubnormals()(bb.finalize()))
    assert np.shares_memory(first, second)
    assert not first.any()


def test_models_are_flushed_unless_they_are_precise() -> None:
    weight = np.full((2, 3, 1, 1), LEAST)
    network = model([node("Conv", "x w", "y")], {"w": weight}, [1, 3, 2, 2], FLOAT)
    x = np.full((1, 3, 2, 2), 1e30, np.float32)
    default = relaxvm.VirtualMachine(relaxvm.compile(network, cache=False)).main(x)
    precise = relaxvm.VirtualMachine(relaxvm.compile(network, cache=False, precise=True)).main(x)
    assert not default.any()
    np.testing.assert_allclose(precise, 3e30 * float(LEAST), rtol=1e-5)
