"""Weights that passes make lie where kernels read them fastest, and are not copied again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.ir import TensorType, Var, const
from relaxvm.script import relax as R
from relaxvm.transform.pipelines import get_pipeline

# Matrices of 1 MB to 256 KB share a block of memory; those of 50 KB and of 8 MB have their own.
SIZES = [(512, 512), (256, 256), (128, 100), (1448, 1448), (300, 257)]


def program(sizes: list[tuple[int, int]], seed: int) -> tuple[relaxvm.VMExecutable, list[Any]]:
    """A product by a matrix of each size, and the matrices."""
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal(size).astype(np.float32) for size in sizes]
    inputs = [Var(f"x{i}", TensorType([5, n], "float32")) for i, (n, _) in enumerate(sizes)]
    bb = relaxvm.BlockBuilder()
    with bb.function("main", inputs):
        with bb.dataflow():
            results = [
                bb.emit_output(R.matmul(x, const(matrix)))
                for x, matrix in zip(inputs, matrices, strict=True)
            ]
        bb.emit_func_output(relaxvm.ir.Tuple(results))
    return relaxvm.build(bb.get(), relax_pipeline=get_pipeline("model")), matrices


def packed_in(executable: relaxvm.VMExecutable) -> list[np.ndarray[Any, Any]]:
    arrays = [each for each in executable.constants if isinstance(each, np.ndarray)]
    return [each for each in arrays if each.ndim == 3 and each.shape[-1] == 16]


def check(executable: relaxvm.VMExecutable, matrices: list[Any]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((5, len(each))).astype(np.float32) for each in matrices]
    results = relaxvm.VirtualMachine(executable)["main"](*inputs)
    for result, x, matrix in zip(results, inputs, matrices, strict=True):
        np.testing.assert_allclose(result, x @ matrix, rtol=1e-4, atol=1e-3)


def test_weights_begin_at_a_line_of_the_cache() -> None:
    executable, matrices = program(SIZES, 1)
    weights = packed_in(executable)
    assert len(weights) == len(SIZES)
    for weight in weights:
        assert weight.ctypes.data % 64 == 0
        assert weight.flags.c_contiguous
    check(executable, matrices)


def test_weights_cannot_be_written() -> None:
    executable, _ = program(SIZES, 2)
    for weight in packed_in(executable):
        with pytest.raises(ValueError, match="read-only"):
            weight[0] = 0


def test_weights_of_several_programs_do_not_overlap() -> None:
    programs = [program([(512, 512)] * 3, seed) for seed in range(8)]
    weights = [each for executable, _ in programs for each in packed_in(executable)]
    assert len(weights) == 24
    for i, weight in enumerate(weights):
        assert not any(np.shares_memory(weight, other) for other in weights[:i])
    for executable, matrices in programs:
        check(executable, matrices)


def test_a_program_that_was_built_before_others_ended_still_has_its_weights() -> None:
    kept, matrices = program([(256, 256)] * 2, 3)
    for seed in range(4, 8):
        program([(512, 512)] * 5, seed)  # dropped
    check(kept, matrices)
