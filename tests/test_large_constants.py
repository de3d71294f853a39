"""Weights: how often they are copied, compared, and what keeps them."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.frontend.onnx import from_onnx
from relaxvm.script import ir as I
from relaxvm.script import relax as R

from .test_onnx import FLOAT, model_of, node

SIZE = 256


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor((1, 256), "float32"), w: R.Tensor((256, 256), "float32")):
        return R.matmul(x, w)


def weight(seed: int = 0, dtype: str = "float32") -> Any:
    array = np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(dtype)
    array.flags.writeable = False
    return array


def constants(executable: relaxvm.VMExecutable) -> list[Any]:
    return [each for each in executable.constants
            if isinstance(each, np.ndarray) and each.nbytes > 1 << 16]  # fmt: skip


def test_a_read_only_weight_is_not_copied() -> None:
    w = weight()
    (found,) = constants(relaxvm.build(Product, params={"w": w}))
    assert np.shares_memory(found, w)
    executable = relaxvm.build(Product, params={"w": w})
    x = np.ones((1, SIZE), np.float32)
    np.testing.assert_array_equal(relaxvm.VirtualMachine(executable).main(x), x @ w)


def test_writing_to_a_weight_does_not_change_the_program() -> None:
    w = weight().copy()
    (found,) = constants(relaxvm.build(Product, params={"w": w}))
    before = w.copy()
    w[:] = 0
    np.testing.assert_array_equal(found, before)


def pool(*arrays: Any) -> tuple[list[int], ExecBuilder]:
    builder = ExecBuilder()
    return [builder.convert_constant(each) for each in arrays], builder


def test_equal_large_arrays_are_kept_once() -> None:
    words, _ = pool(weight(0), weight(1), weight(0).copy(), weight(1), weight(0, "float64"))
    assert words[0] == words[2]
    assert words[1] == words[3]
    assert len(set(words)) == 3


def test_arrays_that_look_alike_are_compared_as_a_whole() -> None:
    base = np.zeros(1 << 20, np.uint8)
    others = []
    for place in (300_001, 300_003, 300_001):  # not among the bytes that are compared first
        other = base.copy()
        other[place] = 1
        others.append(other)
    words, builder = pool(base, *others, base.copy())
    assert words[0] == words[4]
    assert words[1] == words[3]
    assert len(set(words)) == 3
    assert len(builder._look_alikes) == 1


def test_strided_and_unaligned_arrays() -> None:
    strided = np.arange(1 << 16, dtype=np.float32)[::2]
    raw = np.frombuffer(b"\0" + weight(2).tobytes(), np.uint8)[1:]
    unaligned = raw.view("<f4") if raw.ctypes.data % 4 else raw[0:].view("<f4")
    assert not unaligned.flags.aligned
    builder = ExecBuilder()
    with builder.function("main", num_inputs=0):
        for each in (strided, unaligned):
            builder.emit_call("vm.builtin.copy", [builder.convert_constant(each)], builder.r(0))
        builder.emit_ret(builder.r(0))
    first, second = constants(builder.get())
    np.testing.assert_array_equal(first, strided)
    np.testing.assert_array_equal(second, unaligned)
    assert second.flags.aligned
    assert not second.flags.writeable


class Watched(np.ndarray):
    """An array whose end can be watched."""


@pytest.mark.parametrize("way", ["build", "params"])
def test_no_cycle_keeps_a_weight(way: str) -> None:
    def work() -> weakref.ref[Any]:
        w = weight(3).view(Watched)
        mod = Product
        if way == "build":
            relaxvm.build(relaxvm.transform.BindParams("main", {"w": w})(mod))
        else:
            relaxvm.build(mod, params={"w": w})
        return weakref.ref(w)

    work()
    gc.collect()
    gc.disable()
    try:
        assert work()() is None
    finally:
        gc.enable()


def test_no_cycle_keeps_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = model_of([node("MatMul", "x w", "y")], {"x": (FLOAT, [1, SIZE])}, ["y"],
                     {"w": weight()})  # fmt: skip
    path.write_bytes(model.SerializeToString())
    from_onnx(path)
    gc.collect()
    gc.disable()
    try:
        from_onnx(path)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_packed_weights_are_not_copied_again() -> None:
    """What passes make of weights goes into the executable as it is."""
    array = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32)
    model = model_of([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 2048])}, ["y"], {"w": array})
    module = from_onnx(model)
    relaxvm.build(module)  # imports what is needed
    tracemalloc.start()
    try:
        executable = relaxvm.build(module)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert any(each.ndim == 3 for each in constants(executable)), "the weight is not packed"
    assert peak < 1.5 * array.nbytes
    x = np.ones((1, 2048), np.float32)
    got = relaxvm.VirtualMachine(executable).main(x)
    np.testing.assert_allclose(got, x @ array, rtol=1e-3, atol=1e-3)
