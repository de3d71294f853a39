"""Reads a captcha with three models."""

import io

import ddddocr
from _picture import picture

data = io.BytesIO()
picture("8aXk", 120, 40, 24).save(data, "PNG")
for options in ({}, {"old": True}):
    print(ddddocr.DdddOcr(show_ad=False, **options).classification(data.getvalue()))
print(ddddocr.DdddOcr(det=True, show_ad=False).detection(data.getvalue()))
