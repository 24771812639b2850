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


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    harness.print_machine()
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), rows):
            for which in ("first", "second"):
                opening, search = open_and_find(path)
                print(
                    f"{path.suffix}, {rows:,} rows, {which} opening: {opening:.2f} s with a "
                    f"holdout, {search:.2f} s more for the first hard image"
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


def open_and_find(path: Path) -> tuple[float, float]:
    """CPU seconds to open the table, and to find its first record by id."""
    source, opening = harness.timed(lambda: make_source("records", "train", path=path, holdout=0.1))
    _, search = harness.timed(lambda: source.find(source[0].id))
    return opening["cpu"], search["cpu"]


if __name__ == "__main__":
    main()
