"""Pictures of two cut-out objects on a background: composites and colour overlays, as DCSM's."""

from typing import NamedTuple

import numpy as np
from PIL import Image

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 50),
    "blue": (40, 70, 220),
    "yellow": (240, 210, 40),
    "orange": (245, 130, 30),
    "purple": (140, 50, 170),
    "pink": (250, 140, 190),
    "brown": (130, 80, 40),
    "white": (250, 250, 250),
    "black": (25, 25, 25),
}
_TINT = 0.8  # share of the colour; the rest keeps the object's own, so that its parts stay visible


class Placed(NamedTuple):
    """An object in a picture: its centre and its longer side, in shares of the picture's side."""

    cut_out: Image.Image  # RGBA, cropped to what is visible
    centre: tuple[float, float]
    side: float


def trimmed(picture: Image.Image) -> Image.Image | None:
    """The RGBA picture of the visible part; None if nothing is transparent, or nothing visible."""
    picture = picture.convert("RGBA")
    alpha = picture.getchannel("A")
    box = alpha.getbbox()
    if box is None or alpha.getextrema()[0] == 255:
        return None
    return picture.crop(box)


def tinted(cut_out: Image.Image, colour: str) -> Image.Image:
    """The object in a colour: its shades between black and white become shades of the colour."""
    rgb = np.asarray(cut_out.convert("RGB"), np.float32)
    grey = np.asarray(cut_out.convert("L"), np.float32)[..., None]
    seen = np.asarray(cut_out.getchannel("A"))[..., None] > 0
    # around the object's own mean: a dark object is red, too
    mean = grey[seen].mean()
    shade = np.array(COLOURS[colour], np.float32) * np.clip(1 + (grey - mean) / 255, 0.4, 1.6)
    pixels = np.clip((1 - _TINT) * rgb + _TINT * shade, 0, 255).astype(np.uint8)
    result = Image.fromarray(pixels).convert("RGBA")
    result.putalpha(cut_out.getchannel("A"))
    return result


def compose(background: Image.Image, objects: tuple[Placed, ...]) -> Image.Image:
    """The RGB picture of the objects on a square background, the first one behind."""
    size = background.width
    picture = background.convert("RGB")
    for cut_out, (x, y), side in objects:
        longer = max(cut_out.size)
        width, height = (max(1, round(side * size * each / longer)) for each in cut_out.size)
        scaled = cut_out.resize((width, height), Image.Resampling.LANCZOS)
        corner = (round(x * size - width / 2), round(y * size - height / 2))
        picture.paste(scaled, corner, scaled)
    return picture
