"""Recall, false positives and cost of `vlc-jax leaks --pixels`.

  python speed/near_leaks.py

Copies of 400 pictures of overlapping discs ("dead leaves", a model of natural images) and of 120
parts, 64 x 64 pixels, of the two photographs that come with scikit-learn: the share of the copies
that are near their original, and pairs of different pictures that are near, per million. Then CPU
milliseconds per image of one core.
"""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance
from sklearn.datasets import load_sample_images

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax.input_pipeline.images.perceptual_hash import WORDS, NearHashes, phash

DISTANCES = (6, 8, 10)
EVALUATION, TRAINING = 100_000, 20_000  # random hashes that are joined


def leaves(seed: int, side: int = 320) -> Image.Image:
    """Discs whose radii have a density of r ** -3, the last one on top."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (side, side))
    draw, base = ImageDraw.Draw(picture), rng.integers(0, 256, 3)
    for share in rng.random(700):
        radius = 1 / np.sqrt((1 - share) / 4**2 + share / 150**2)
        x, y = rng.uniform(0, side, 2)
        colour = np.clip(base * rng.random() + rng.normal(0, 70, 3) + 60 * rng.random(), 0, 255)
        box = (x - radius, y - radius, x + radius, y + radius)
        draw.ellipse(box, fill=tuple(colour.astype(int).tolist()))
    return picture


def parts(side: int = 64) -> list[Image.Image]:
    """Disjoint parts of two photographs, enlarged to 256 x 256 pixels."""
    pictures = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    return [
        picture.crop((x, y, x + side, y + side)).resize((256, 256))
        for picture in pictures
        for x in range(0, picture.width - side + 1, side)
        for y in range(0, picture.height - side + 1, side)
    ]


def jpeg(picture: Image.Image, quality: int) -> Image.Image:
    encoded = io.BytesIO()
    picture.save(encoded, "JPEG", quality=quality)
    return Image.open(encoded).convert("RGB")


def cropped(picture: Image.Image, left: float, right: float) -> Image.Image:
    """Without these shares of both sides."""
    width, height = picture.size
    box = (left * width, left * height, (1 - right) * width, (1 - right) * height)
    return picture.crop(tuple(map(round, box)))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "resized to 3/8, JPEG 90": lambda p: jpeg(p.resize((p.width * 3 // 8, p.height * 3 // 8)), 90),
    "JPEG 50": lambda p: jpeg(p, 50),
    "JPEG 20": lambda p: jpeg(p, 20),
    "without 1 % of each side": lambda p: cropped(p, 0.01, 0.01),
    "without 2 % at the left and top": lambda p: cropped(p, 0.02, 0.0),
    "brightness + 25 %": lambda p: ImageEnhance.Brightness(p).enhance(1.25),
    "brightness - 25 %": lambda p: ImageEnhance.Brightness(p).enhance(0.75),
    "mirrored": lambda p: p.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def hashes(pictures: Sequence[Image.Image]) -> np.ndarray:
    return np.stack([phash(picture) for picture in pictures])


def measure(title: str, pictures: Sequence[Image.Image]) -> None:
    """Prints recall of each kind of copy, and false pairs."""
    both = hashes(pictures), hashes([COPIES["mirrored"](picture) for picture in pictures])
    copies = {kind: hashes([*map(copy, pictures)]) for kind, copy in COPIES.items()}
    for distance in DISTANCES:
        indices = [NearHashes(each, distance) for each in both]

        def near(queries: np.ndarray, indices: Sequence[NearHashes] = indices) -> np.ndarray:
            return np.unique(np.concatenate([i.pairs(queries)[:, :2] for i in indices]), axis=0)

        pairs, count = near(both[0]), len(pictures)
        wrong = (pairs[:, 0] != pairs[:, 1]).sum()
        million = 1e6 * wrong / (count * (count - 1))
        print(f"{title}, distance {distance}: {million:.1f} false per million pairs ({wrong})")
        for kind, queries in copies.items():
            found = near(queries)
            print(f"  {100 * (found[:, 0] == found[:, 1]).sum() / count:5.1f} %  {kind}")


def cpu(function: Callable[[], object], images: int) -> str:
    return f"{1000 * harness.timed(function)[1]['CPU s'] / images:.2f} ms"


def main() -> None:
    measure("dead leaves", [leaves(seed) for seed in range(400)])
    measure("parts of photographs", parts())
    picture, encoded = leaves(0, 256), io.BytesIO()
    picture.save(encoded, "JPEG", quality=95)
    decode = cpu(lambda: [Image.open(encoded).convert("RGB") for _ in range(200)], 200)
    hashed = cpu(lambda: hashes([picture] * 200), 200)
    rng = np.random.default_rng(0)
    known, queries = (
        rng.integers(1, 2**63, (count, WORDS), dtype=np.uint64) for count in (EVALUATION, TRAINING)
    )
    indices = [NearHashes(known, DISTANCES[-1]) for _ in range(2)]
    joined = cpu(lambda: [index.pairs(queries) for index in indices], TRAINING)
    print(f"a JPEG of 256 pixels: decoded in {decode}, hashed in {hashed}")
    print(f"joined with {EVALUATION:,} evaluation images and their mirrored ones in {joined}")


if __name__ == "__main__":
    harness.command(main)
