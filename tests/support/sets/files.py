"""Small files for evaluation sets in miniature."""

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(path: Path) -> Path:
    """Writes a JPEG of 40 x 32 pixels that depends on the file's name alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture_bytes(path.name))
    return path


def picture_bytes(name: str) -> bytes:
    """An encoded picture of blocks of colours drawn from a name."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(blocks.repeat(8, axis=0).repeat(8, axis=1)).save(file, "JPEG")
    return file.getvalue()


def write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """A CSV file as pandas writes it: lists as Python shows them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """A Parquet file of rows; a value {"bytes": ..., "path": ...} is an image as Hugging Face
    packs it."""
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
