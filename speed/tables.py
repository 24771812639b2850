"""Seconds to open a large table and find a record by id, at the first and the second opening.

  python speed/tables.py

Random captions and 100 small images; CPU seconds of this process. The second opening uses the index
that the first one wrote beside the table.
"""

import csv
import json
import random
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax.input_pipeline.sources import make_source

WORDS = ("a", "dog", "runs", "along", "the", "water,", "two", "boats", "on", "a", "calm", "sea")


def main(rows: int = 1_000_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), rows):
            for which in ("first", "second"):
                source, opening = harness.timed(
                    lambda path=path: make_source("records", "train", path=path, holdout=0.1)
                )
                _, search = harness.timed(lambda source=source: source.find(source[0].id))
                print(
                    f"{path.suffix}, {rows:,} rows, {which} opening: {opening['CPU s']:.2f} s with "
                    f"a holdout, {search['CPU s']:.2f} s more for the first hard image"
                )


def write(folder: Path, rows: int) -> tuple[Path, Path]:
    """Writes images, and the same captions in two formats."""
    for number in range(100):
        Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
    rng, paths = random.Random(0), (folder / "captions.csv", folder / "c.jsonl")
    with paths[0].open("w", newline="") as table, paths[1].open("w") as lines:
        writer = csv.writer(table)
        writer.writerow(("image", "caption"))
        for row in range(rows):
            image, caption = f"{row % 100}.png", " ".join(rng.choices(WORDS, k=12))
            writer.writerow((image, caption))
            lines.write(json.dumps({"image": image, "caption": caption}) + "\n")
    return paths


if __name__ == "__main__":
    harness.command(main)
