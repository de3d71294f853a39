"""Finds the parts of a drawn page."""

import numpy as np
from _picture import picture
from rapid_layout import RapidLayout

page = picture("A TITLE OF A PAGE", 600, 800, 40)
for i in range(12):
    page.paste(picture("lines of text that say nothing at all", 520, 28, 16), (40, 120 + 26 * i))
page.paste((60, 60, 180), (60, 480, 540, 720))
found = RapidLayout()(np.asarray(page)[:, :, ::-1].copy())
for box, name, score in zip(found.boxes, found.class_names, found.scores, strict=True):
    print(name, round(float(score), 3), np.round(box).tolist())
