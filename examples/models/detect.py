"""Find the characters of a picture: a detector in ONNX's format, with non-maximum suppression.

    pip download --no-deps ddddocr
    python examples/models/detect.py ddddocr-*.whl

The model is the detector of ddddocr, a network of the YOLOX family.  The program draws a picture of
its own, with characters on noise, in other places for each --seed, and prints the boxes beside the
places where it has drawn.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from zipfile import ZipFile

import numpy as np

import relaxvm

SIZE = 416
"""Rows and columns of the model's input."""
STRIDES = (8, 16, 32)
"""Pixels between the places that the model has predictions for: one for each, in this order."""
HEIGHT, WIDTH, PIXEL = 160, 320, 6
GLYPHS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "K": "10001 10010 10100 11000 10100 10010 10001",
}


def picture(seed: int) -> tuple[np.ndarray, list[tuple[str, int, int]]]:
    """A picture, float32[rows, columns, colors], and its characters with their corners x, y."""
    rng = np.random.default_rng(seed)
    image = 235 + rng.integers(-12, 12, (HEIGHT, WIDTH, 3)).astype(np.float32)
    drawn = []
    for i, (letter, rows) in enumerate(GLYPHS.items()):
        bits = np.array([list(map(int, row)) for row in rows.split()])
        shape = np.kron(bits, np.ones((PIXEL, PIXEL))) > 0
        x = 20 + 78 * i + int(rng.integers(0, 30))
        y = int(rng.integers(10, HEIGHT - 10 - len(shape)))
        part = image[y : y + shape.shape[0], x : x + shape.shape[1]]
        part[shape] = rng.integers(0, 130, 3)
        drawn.append((letter, x, y))
    for _ in range(4):  # soft edges, as in photographs
        around = [np.roll(image, step, axis) for axis in (0, 1) for step in (1, -1)]
        image = (image + np.add.reduce(around)) / 5
    return image, drawn


def detect(vm: relaxvm.VirtualMachine, image: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Boxes (x, y, right, bottom) in pixels of the image, with their scores, the best first."""
    ratio = min(SIZE / image.shape[0], SIZE / image.shape[1])
    rows, columns = (
        (np.arange(int(length * ratio)) / ratio).astype(int) for length in image.shape[:2]
    )
    padded = np.full((SIZE, SIZE, 3), 114, np.float32)
    padded[: len(rows), : len(columns)] = image[rows][:, columns]
    (found,) = vm.main(np.ascontiguousarray(padded.transpose(2, 0, 1))[None])

    # Each row has a center and a size, in strides from its place, and two probabilities.
    places, steps = [], []
    for stride in STRIDES:
        count = SIZE // stride
        y, x = np.divmod(np.arange(count * count), count)
        places.append(np.stack([x, y], 1))
        steps.append(np.full((count * count, 1), stride))
    step = np.concatenate(steps)
    centers = (found[:, :2] + np.concatenate(places)) * step
    sizes = np.exp(found[:, 2:4]) * step
    scores = found[:, 4] * found[:, 5]

    # The kernel of ONNX's NonMaxSuppression: one image, one class.
    boxes = np.concatenate([centers, sizes], 1, dtype=np.float32)[None]
    select = relaxvm.get_func("relaxvm.result.vision.select_boxes")
    most, overlap, least = np.array(100), np.float32([0.45]), np.float32([0.3])
    chosen = select(boxes, scores[None, None], most, overlap, least, 1, None, "int64")
    corners = np.concatenate([centers - sizes / 2, centers + sizes / 2], 1) / ratio
    return [(corners[i], float(scores[i])) for _, _, i in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="ddddocr-*.whl")
    parser.add_argument("--seed", type=int, default=0, help="for another picture")
    options = parser.parse_args()

    with ZipFile(options.wheel) as wheel:
        model = wheel.read("ddddocr/common_det.onnx")
    image, drawn = picture(options.seed)
    begun = time.perf_counter()
    vm = relaxvm.VirtualMachine(relaxvm.compile(model))
    compiled = time.perf_counter()
    boxes = detect(vm, image)
    done = time.perf_counter()

    for box, score in sorted(boxes, key=lambda each: each[0][0]):
        x, y = (box[:2] + box[2:]) / 2
        inside = [
            letter for letter, left, top in drawn
            if abs(left + 2.5 * PIXEL - x) < 10 and abs(top + 3.5 * PIXEL - y) < 10
        ]
        corners = ", ".join(f"{n:3.0f}" for n in box)
        print(f"box ({corners})  {score:4.0%}  around {' '.join(inside) or 'nothing'}")
    print(f"{len(drawn)} characters drawn, {len(boxes)} boxes")
    print(f"compiled in {compiled - begun:.2f} s, found in {done - compiled:.2f} s")


if __name__ == "__main__":
    main()
