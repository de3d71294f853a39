"""Reads a picture, with rapidocr."""

import numpy as np
from _picture import picture
from rapidocr import RapidOCR

found = RapidOCR()(np.array(picture("machines read text\ntwo lines of it", 420, 110, 36)))
for box, text, score in zip(found.boxes, found.txts, found.scores, strict=True):
    print([[round(float(x)) for x in point] for point in box], text, f"{float(score):.3f}")
