"""Seconds to open a large table and find a record by id, at the first and the second opening.

  python speed/tables.py

Random captions and 100 small images; CPU seconds of this process. The second opening uses the index
that the first one wrote beside the table.
"""

import argparse
import csv
import json
import os
import platform
import random
import tempfile
import time
from pathlib import Path

from PIL import Image

from vlc_jax.input_pipeline.sources import make_source

WORDS = ("a", "dog", "runs", "along", "the", "water,", "two", "boats", "on", "a", "calm", "sea")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(100):
            Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
        for path in (
            write_csv(folder / "captions.csv", rows),
            write_jsonl(folder / "c.jsonl", rows),
        ):
            for which in ("first", "second"):
                opening, search = open_and_find(path)
                print(
                    f"{path.suffix}, {rows:,} rows, {which} opening: {opening:.2f} s with a "
                    f"holdout, {search:.2f} s more for the first hard image"
                )


def write_csv(path: Path, rows: int) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption"))
        writer.writerows(random_rows(rows))
    return path


def write_jsonl(path: Path, rows: int) -> Path:
    with path.open("w") as file:
        for image, caption in random_rows(rows):
            file.write(json.dumps({"image": image, "caption": caption}) + "\n")
    return path


def random_rows(rows: int):
    rng = random.Random(0)
    for row in range(rows):
        yield f"{row % 100}.png", " ".join(rng.choices(WORDS, k=12))


def open_and_find(path: Path) -> tuple[float, float]:
    """CPU seconds to open the table, and to find its first record by id."""
    times = [time.process_time()]
    source = make_source("records", "train", path=path, holdout=0.1)
    times.append(time.process_time())
    source.find(source[0].id)
    times.append(time.process_time())
    return times[1] - times[0], times[2] - times[1]


if __name__ == "__main__":
    main()
