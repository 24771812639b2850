"""Winoground's files, in its authors' form and in two others."""

import csv
from pathlib import Path
from typing import Any

from tests.support.helpers import write_rows
from tests.support.sets.files import picture, picture_bytes, write_json, write_parquet

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "image_0": f"ex_{number}_img_0",
        "image_1": f"ex_{number}_img_1",
        "caption_0": f"{number} cups on a table",
        "caption_1": f"a table on {number} cups",
        "tag": tag,
        "secondary_tag": "" if number else "Series",
        "num_main_preds": 1 + number % 2,
        "collapsed_tag": collapsed,
    }
    for number, (tag, collapsed) in enumerate([("Noun", "Object"), ("Scope", "Relation")])
]
_IMAGES = ("image_0", "image_1")


def write(root: Path) -> None:
    folder = root / "winoground"
    for row in ROWS:
        for field in _IMAGES:
            picture(folder / "images" / f"{row[field]}.png")
    (folder / "data").mkdir()
    write_rows(folder / "data" / "examples.jsonl", ROWS)


def write_t2v(folder: Path) -> None:
    """As github.com/linzhiqiu/t2v_metrics has it."""
    for row in ROWS:
        for field in _IMAGES:
            picture(folder / "images" / f"{row[field]}.png")
    write_rows(folder / "examples.jsonl", ROWS)
    fields = ("id", *_IMAGES, "caption_0", "caption_1")
    with (folder / "metadata.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(row | {f: f"images/{row[f]}.png" for f in _IMAGES} for row in ROWS)
    write_json(folder / "why_winoground_hard.json", {"0": ["UnusualImage", "UnusualText"], "1": []})


def write_packed(folder: Path) -> None:
    """As Hugging Face converts it."""
    rows = [
        row | {f: {"bytes": picture_bytes(f"{row[f]}.png"), "path": None} for f in _IMAGES}
        for row in ROWS
    ]
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", rows)
