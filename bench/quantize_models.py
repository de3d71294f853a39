"""Write models of 8 bits for `compare_models.py`, quantized by onnxruntime.

    python bench/quantize_models.py FOLDER [--networks FOLDER]

Networks of `onnx_models.py` with drawn weights: mobilenet_v2, resnet18 and resnet50 with weights of
each channel by itself and uint8 activations, calibrated on two drawn images, once with pairs of
QuantizeLinear and DequantizeLinear (``_qdq``) and once with operators of their own (``_qop``); BERT
and a multilayer perceptron with activations that are quantized at run time (``_dyn``).  Needs
onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATIC = ("mobilenet_v2", "resnet18", "resnet50")
DYNAMIC = ("bert_16", "bert_128", "mlp_64")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", type=Path, help="where networks with drawn weights are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    from onnxruntime.quantization import (
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    with tempfile.TemporaryDirectory() as temporary:
        networks = options.networks or Path(temporary)
        maker = Path(__file__).with_name("onnx_models.py")
        command = [sys.executable, str(maker), str(networks), *STATIC, *DYNAMIC]
        subprocess.run(command, check=True)
        for name in STATIC:
            source = str(networks / f"{name}.onnx")
            for suffix, form in (("qdq", QuantFormat.QDQ), ("qop", QuantFormat.QOperator)):
                quantize_static(
                    source, str(options.folder / f"{name}_{suffix}.onnx"), Images(source),
                    quant_format=form, per_channel=True, activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                )  # fmt: skip
        for name in DYNAMIC:
            source = str(networks / f"{name}.onnx")
            quantize_dynamic(
                source, str(options.folder / f"{name}_dyn.onnx"), weight_type=QuantType.QInt8
            )
    return 0


class Images:
    """Two drawn inputs, to find the ranges of activations."""

    def __init__(self, path: str) -> None:
        import onnxruntime

        (given,) = onnxruntime.InferenceSession(path).get_inputs()
        shape = [dim if isinstance(dim, int) else 1 for dim in given.shape]
        self._left = self._drawn(given.name, shape)

    @staticmethod
    def _drawn(name: str, shape: list[int]) -> Iterator[dict[str, Any]]:
        import numpy as np

        rng = np.random.default_rng(0)
        for _ in range(2):
            yield {name: rng.standard_normal(shape).astype(np.float32)}

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


if __name__ == "__main__":
    sys.exit(main())
