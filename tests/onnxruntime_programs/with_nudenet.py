"""Looks for parts of bodies in pictures of drawn shapes."""

import numpy as np
from nudenet import NudeDetector
from nudenet.nudenet import _read_image
from PIL import Image, ImageDraw

detector = NudeDetector()
for seed in range(3):
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (360, 280), (90, 110, 130))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        x, y, w, h = rng.integers(20, 200, 4).tolist()
        draw.ellipse((x, y, x + w, y + h), fill=(220, 170 + seed * 10, 150))
    pixels = np.asarray(image)[:, :, ::-1]
    for each in detector.detect(pixels):
        print(each["class"], round(each["score"], 3), each["box"])
    blob = _read_image(np.ascontiguousarray(pixels), detector.input_width)[0]
    (found,) = detector.onnx_session.run(None, {detector.input_name: blob})
    print(found.shape, np.round(found[0, 4:].max(1).astype(float), 3).tolist())
