"""Reads captchas with captcha-whisperer."""

import io

from _picture import picture
from captcha_whisperer import CaptchaRecognizer

recognizer = CaptchaRecognizer()
for text in ("a3f9k", "HELLO", "27xyz"):
    data = io.BytesIO()
    picture(text, 160, 60, 36).save(data, "PNG")
    found = recognizer.recognize_bytes(data.getvalue())
    print(found["text"], f"{found['confidence']:.3f}")
