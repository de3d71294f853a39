"""Finds by which angle a page is turned, and turns it back."""

import numpy as np
from _picture import picture
from occular_deskew import deskew, detect_angle

lines = "\n".join(["lines of text on a page that was scanned"] * 12)
page = picture(lines, 640, 420, 24)
for angle in (0, 90, 184, 273, 7):
    turned = page.rotate(angle, expand=True, fillcolor="white")
    print(angle, detect_angle(turned), np.asarray(deskew(turned)).shape)
