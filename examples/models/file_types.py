"""Tell what files contain: a trained model in ONNX's format, on files at hand.

    pip download --no-deps magika
    python examples/models/file_types.py magika-*.whl FILE...

The model is Google's magika, which is trained on 100 million files.  It is in the wheel of the
package, which is not installed: relaxvm compiles the model, and numpy prepares the bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

import relaxvm

FOLDER = "magika/models/standard_v3_3"


def features(content: bytes, config: dict[str, Any]) -> np.ndarray:
    """The bytes that the model looks at: those at the beginning and at the end of a file, without
    white space around them, as int32[beg_size + end_size]; 256 stands for no byte."""
    begin = content[: config["block_size"]].lstrip()[: config["beg_size"]]
    end = content[-config["block_size"] :].rstrip()[-config["end_size"] :]
    result = np.full(config["beg_size"] + config["end_size"], config["padding_token"], np.int32)
    result[: len(begin)] = np.frombuffer(begin, np.uint8)
    result[len(result) - len(end) :] = np.frombuffer(end, np.uint8)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="magika-*.whl, of `pip download --no-deps magika`")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()

    with ZipFile(options.wheel) as wheel:
        model = wheel.read(f"{FOLDER}/model.onnx")
        config = json.loads(wheel.read(f"{FOLDER}/config.min.json"))
        kinds = json.loads(wheel.read("magika/config/content_types_kb.min.json"))
    labels = config["target_labels_space"]

    begun = time.perf_counter()
    vm = relaxvm.VirtualMachine(relaxvm.compile(model))
    compiled = time.perf_counter()
    rows = np.stack([features(path.read_bytes(), config) for path in options.files])
    scores = vm.main(bytes=rows)  # float32[files, labels]
    done = time.perf_counter()

    width = max(len(str(path)) for path in options.files)
    for path, row in zip(options.files, scores, strict=True):
        label = labels[row.argmax()]
        print(f"{path!s:{width}}  {kinds[label]['description']:28} {row.max():7.1%}")
    print(f"\n{len(model):,} bytes of model compiled in {compiled - begun:.2f} s, "
          f"{len(rows)} files read and classified in {done - compiled:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
