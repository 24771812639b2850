"""NCD squares' images, whose names are the annotations."""

from pathlib import Path

from tests.support.sets.files import picture

NAMES = (
    "blue_corn_red_plum_2.png",  # what follows the second object is a number
    "red_apple_blue_corn.png",
    "MIRROR_red_apple_blue_corn.png",
)


def write(root: Path) -> None:
    for name in NAMES:
        picture(root / "NCD_colorful_composite_squares" / name)
