"""Reads a picture, with rapidocr-onnxruntime."""

import numpy as np
from _picture import picture
from rapidocr_onnxruntime import RapidOCR

found, _ = RapidOCR()(np.array(picture("machines read text\ntwo lines of it", 420, 110, 36)))
for box, text, score in found:
    print([[round(float(x)) for x in point] for point in box], text, f"{float(score):.3f}")
