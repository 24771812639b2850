"""Tables of every format on disk, with real image files beside them."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet

from tests.support import helpers

CAPTIONS = [f"photo number {i}, with a comma and a “quote”" for i in range(12)]
KINDS = ["jsonl", "csv", "tsv", "json", "parquet"]


def write_images(folder: Path) -> Path:
    """p00.jpg ... p11.jpg, each of its own grey level; returns the folder."""
    for i in range(12):
        pixels = np.full((20, 30, 3), 20 * i, np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i:02d}.jpg", quality=95)
    return folder


def table(**extra):
    """Twelve rows; `extra` adds columns, each a list or a function of the row number."""
    made = []
    for i in range(12):
        row = {"image": f"p{i:02d}.jpg", "caption": CAPTIONS[i]}
        for name, values in extra.items():
            row[name] = values(i) if callable(values) else values[i]
        made.append(row)
    return made


def write_delimited(path, table_rows):
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table_rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(table_rows)
    return path


def write_coco(path):
    numbers = [*range(12)]
    document = {
        "images": [{"id": 100 + i, "file_name": f"p{i:02d}.jpg", "width": 30} for i in numbers],
        "annotations": [
            {"id": j, "image_id": 100 + i, "caption": f"{CAPTIONS[i]} {j}"}
            for j in range(2)
            for i in reversed(numbers)
        ],
    }
    path.write_text(json.dumps(document), "utf-8")
    return path


def write(folder, kind, rows=None):
    """captions.KIND with the rows; default: those of `table`."""
    path, rows = folder / f"captions.{kind}", rows or table()
    if kind == "jsonl":
        return helpers.write_rows(path, rows)
    if kind == "json":
        path.write_text(json.dumps(rows), "utf-8")
        return path
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    return write_delimited(path, rows)
