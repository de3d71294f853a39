"""Pictures of text."""

from PIL import Image, ImageDraw


def picture(text: str, width: int, height: int, size: float) -> Image.Image:
    """Black text on white."""
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((12, 8), text, fill="black", font_size=size)
    return image
