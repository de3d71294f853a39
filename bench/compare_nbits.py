"""MatMulNBits, products with matrices of 4 bits, beside onnxruntime's.

    python bench/compare_nbits.py [--rounds N]

Models of one operator with drawn numbers, in blocks of 32, and rows of float32; processor time of
both sides in one process on one thread, alternating, the least of some runs.  Bytes a second are
those of the packed matrix and its scales.  Needs onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import clean
import numpy as np

SIZES = ((768, 3072), (2048, 2048), (4096, 4096), (4096, 11008))
ROWS = (1, 2, 4, 8, 16, 32, 128, 512)
BLOCK = 32


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    clean.restart()
    import relaxvm

    relaxvm.set_num_threads(1)
    print(clean.machine())
    print(f"{'rows':>5} {'inputs':>7} {'outputs':>8} {'relaxvm':>10} {'onnxruntime':>12} "
          f"{'ratio':>7} {'GB/s':>6}  difference")  # fmt: skip
    for inputs, outputs in SIZES:
        model = matrix(inputs, outputs)
        ours = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))["main"]
        theirs = session(model)
        size = inputs * outputs / 2 + inputs * outputs / BLOCK * 4
        for rows in ROWS:
            x = np.random.default_rng(1).standard_normal((rows, inputs)).astype(np.float32)
            sides = [partial(ours, x), partial(theirs.run, None, {"x": x})]
            got, (want,) = (run() for run in sides)
            apart = float(np.abs(got - want).max() / np.abs(want).max())
            mine, other = least(sides, options.rounds)
            print(f"{rows:5} {inputs:7} {outputs:8} {mine * 1e6:7.0f} us {other * 1e6:9.0f} us "
                  f"{mine / other:7.2f} {size / mine / 1e9:6.1f}  {apart:.1e}",
                  flush=True)  # fmt: skip
    return 0


def matrix(inputs: int, outputs: int) -> Any:
    """A model of one operator, as bytes."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    blocks = inputs // BLOCK
    packed = rng.integers(0, 256, (outputs, blocks, BLOCK // 2)).astype(np.uint8)
    scales = (rng.random(outputs * blocks) / 100).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=inputs, N=outputs, bits=4,
        block_size=BLOCK,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def session(model: bytes) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, settings)


def least(sides: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least processor time of each side, in turns."""
    found = [float("inf")] * len(sides)
    for _ in range(rounds):
        for i, run in enumerate(sides):
            for _ in range(3):
                begun = time.thread_time()
                run()
                found[i] = min(found[i], time.thread_time() - begun)
    return found


if __name__ == "__main__":
    sys.exit(main())
