"""The examples with trained models, on small models with the same inputs and outputs."""

from __future__ import annotations

import json
import os
import sys
import wave
from pathlib import Path
from zipfile import ZipFile

import numpy as np

import relaxvm

from . import children
from .test_onnx import FLOAT, INT64, model_of, node

INT32 = 6
"""The number of the data type in ONNX's format."""

FOLDER = Path(__file__).parent.parent / "examples" / "models"


def run(folder: Path, *command: object) -> str:
    package = str(Path(relaxvm.__file__).parent.parent)
    done = children.run(
        [sys.executable, *map(str, command)], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": package},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def file_types_wheel(path: Path) -> None:
    """A model that says whether a file begins with a "#": scores of two labels."""
    weights = np.zeros((8, 2), "float32")
    weights[0] = [1, -1]
    nodes = [
        node("Cast", "bytes", "floats", to=1),
        node("MatMul", "floats weights", "sums"),
        node("Add", "sums bias", "scores"),
        node("Softmax", "scores", "target_label", axis=-1),
    ]
    constants = {"weights": weights, "bias": np.array([-35.5, 35.5], "float32")}
    model = model_of(nodes, {"bytes": (INT32, ["batch", 8])}, ["target_label"], constants)
    config = {"beg_size": 4, "end_size": 4, "block_size": 16, "padding_token": 256,
              "target_labels_space": ["large", "small"]}  # fmt: skip
    kinds = {"large": {"description": "A large byte"}, "small": {"description": "A small byte"}}
    with ZipFile(path, "w") as wheel:
        wheel.writestr("magika/models/standard_v3_3/model.onnx", model.SerializeToString())
        wheel.writestr("magika/models/standard_v3_3/config.min.json", json.dumps(config))
        wheel.writestr("magika/config/content_types_kb.min.json", json.dumps(kinds))


def test_file_types(tmp_path: Path) -> None:
    file_types_wheel(tmp_path / "model.whl")
    (tmp_path / "a").write_bytes(b"  zzz")
    (tmp_path / "b").write_bytes(b"\n!")
    (tmp_path / "empty").write_bytes(b"")
    out = run(tmp_path, FOLDER / "file_types.py", "model.whl", "a", "b", "empty").splitlines()
    assert out[0].startswith("a      A large byte")
    assert out[1].startswith("b      A small byte")
    assert out[2].startswith("empty  A large byte")
    assert "3 files read and classified" in out[4]


def speech_wheel(path: Path) -> None:
    """A model for which loud pieces are speech, and whose state counts the calls."""
    nodes = [
        node("Abs", "input", "loud"),
        node("ReduceMax", "loud axes", "output", keepdims=1),
        node("Cast", "sr", "rate", to=1),
        node("Div", "rate rate", "one"),
        node("Add", "state one", "stateN"),
    ]
    inputs = {
        "input": (FLOAT, ["batch", "samples"]), "state": (FLOAT, [2, "batch", 128]),
        "sr": (INT64, []),
    }  # fmt: skip
    constants = {"axes": np.array([1], "int64")}
    model = model_of(nodes, inputs, ["output", "stateN"], constants)
    with ZipFile(path, "w") as wheel:
        wheel.writestr("silero_vad/data/silero_vad.onnx", model.SerializeToString())


def test_speech(tmp_path: Path) -> None:
    speech_wheel(tmp_path / "model.whl")
    sound = np.zeros(16_000, "<i2")
    sound[8_000:9_000] = 30_000
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(sound.tobytes())
    out = run(tmp_path, FOLDER / "speech.py", "model.whl", "sound.wav")
    assert "speech from 0.48 s to 0.58 s" in out
    assert "1.0 s of sound" in out
    assert "5.2 s of sound" in run(tmp_path, FOLDER / "speech.py", "model.whl")


def test_detection(tmp_path: Path) -> None:
    """Of two boxes in about the same place, the better one is kept."""
    found = np.zeros((1, 3549, 6), "float32")
    found[0, [0, 1, 60], 5] = 1
    found[0, [0, 1, 60], 4] = 0.8, 0.9, 0.5
    found[0, [0, 1], :2] = [[3, 3], [2.1, 3]]  # around the column 3 and the row 3 of stride 8
    found[0, [0, 1, 60], 2:4] = np.log(4)
    nodes = [
        node("ReduceMean", "images", "mean", axes=[1, 2, 3], keepdims=0),
        node("Mul", "mean zero", "nothing"),
        node("Add", "nothing found", "output"),
    ]
    constants = {"zero": np.zeros((), "float32"), "found": found}
    inputs = {"images": (FLOAT, [1, 3, 416, 416])}
    model = model_of(nodes, inputs, ["output"], constants, 13)
    with ZipFile(tmp_path / "model.whl", "w") as wheel:
        wheel.writestr("ddddocr/common_det.onnx", model.SerializeToString())
    text = run(tmp_path, FOLDER / "detect.py", "model.whl")
    lines = text.splitlines()
    assert [line.split(")")[0] for line in lines[:2]] == ["box (  7,   6,  31,  31",
                                                         "box ( 37,  -6,  62,  18"]  # fmt: skip
    assert ["   90% ", "   50% "] == [line.split(")")[1][:7] for line in lines[:2]]
    assert lines[2] == "4 characters drawn, 2 boxes"
