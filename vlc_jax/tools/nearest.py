"""Hard images to train on: the images nearest to each, by stored features.

  vlc-jax embed --model ViT-B-32.pt --images captions.jsonl --out photos.npy
  vlc-jax nearest --features photos.npy --table captions.jsonl --out hard_images.jsonl

NegCLIP takes three images per image, by the cosine of CLIP's image embeddings (Yuksekgonul et al.
2023), and never the image itself. Features: X.npy of vlc-jax embed or of any other model, one row
per image, and beside it X.jsonl with the name of each row's image, a JSON string per line. Rows
with NaN, infinity or length 0 have no neighbours and are none. Names are those of the table's
column.

OUT has the rows of the table, with the columns

  id           that of the table, else the name of the image
  hard_images  ids of the nearest images, nearest first, the earlier of two equally near ones
  cosines      their cosines; 1: probably a copy of the image (see --below)

and training reads it as a table of records, with id_column=id and hard_images_column=hard_images
(docs/methods.md). Image names stay as they are: set image_folder if OUT lies elsewhere. Features
are read in blocks of --block rows, so memory does not grow with their number. A killed command
leaves no OUT and starts over. Exit codes are those of vlc_jax.main.
"""

import argparse
import functools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.input_pipeline.stores import progress, text_file
from vlc_jax.tools import command

COUNT = 3  # NegCLIP's
ROWS = 2048  # queries at a time: their scores with a block of 8,192 are 64 MB
NAMES = ("hard_images", "cosines")


def command_line_parser() -> argparse.ArgumentParser:
    """The parser of the options above."""
    parser = command_line.parser("nearest", __doc__)
    parser.add_argument("--features", required=True, type=Path, metavar="X.npy")
    parser.add_argument("--table", required=True, type=Path, help="JSONL, TSV, CSV, COCO JSON")
    parser.add_argument("--out", required=True, type=Path, metavar="OUT.jsonl")
    parser.add_argument("--column", default="image", help="of image names; default: image")
    count = f"nearest images of each; default: {COUNT}"
    parser.add_argument("--count", type=command_line.positive, default=COUNT, help=count)
    below = "only neighbours of a smaller cosine: leaves out copies of the image; default: all"
    parser.add_argument("--below", type=float, default=math.inf, metavar="COSINE", help=below)
    parser.add_argument("--block", type=command_line.positive, default=8192, help="default: 8192")
    return parser


class Features(NamedTuple):
    """Rows of a file, of images by name."""

    matrix: Float[np.ndarray, "images width"]
    names: list[str]

    def block(self, start: int, count: int) -> Float[np.ndarray, "count width"]:
        """`count` rows from `start` on, of unit length; NaN for unusable rows and behind the end.

        Never fewer: one shape is one compilation.
        """
        rows = np.full((count, self.matrix.shape[1]), np.nan, np.float32)
        stored = self.matrix[start : start + count]
        rows[: len(stored)] = stored
        with np.errstate(invalid="ignore", divide="ignore"):
            return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mine(args: argparse.Namespace) -> str:
    """Runs the command; returns the summary line."""
    if args.out.exists():
        raise UsageError(f"{args.out} exists; name a new file, or remove it")
    with usage_errors():
        features = read_features(args.features)
        table = tables.open_table(args.table)
        ids = ids_of_images(table, args.column)
    places = {name: row for row, name in enumerate(features.names)}
    check_names(ids, places, args)
    is_known = np.array([name in ids for name in features.names])
    chosen: dict[str, tuple[list[str], list[float]]] = {}
    with progress.bar("images", len(features.names)) as advance:
        blocks = neighbours(features, is_known, args.count, args.below, args.block)
        for start, cosines, nearest in blocks:
            for row, (values, indices) in enumerate(zip(cosines, nearest, strict=True)):
                valid = [(v, i) for v, i in zip(values, indices, strict=True) if v > -np.inf]
                chosen[features.names[start + row]] = (
                    [ids[features.names[index]] for _, index in valid],
                    [round(float(value), 4) for value, _ in valid],
                )
            advance(start + len(cosines))
    rows = write(args.out, table, args.column, ids, chosen)
    neighbour_ids = [indices for name, (indices, _) in chosen.items() if name in ids]
    few = sum(len(indices) < args.count for indices in neighbour_ids)
    damaged = sum(row is None for row in table.rows())
    summary = (
        f"{args.out}: {rows:,} rows, each with the {args.count} nearest of {len(ids):,} images"
    )
    summary += f"; {few:,} images have fewer" if few else ""
    return f"{summary}; {damaged:,} rows cannot be read and are left out" if damaged else summary


def read_features(path: Path) -> Features:
    """X.npy and the names beside it. Raises DataError if they do not agree."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise DataError(
            f"{path} is no matrix of floats, a row per image; it is {matrix.dtype} of shape "
            f"{matrix.shape}"
        )
    beside = path.with_suffix(".jsonl")
    names = [json.loads(line) for line in text_file.lines(beside) if line.strip()]
    if len(names) != len(matrix):
        raise DataError(f"{beside} has {len(names):,} names, {path} {len(matrix):,} rows")
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"the names in {beside} are JSON strings, one per line")
    if len({*names}) < len(names):
        raise DataError(f"the images of {path} have one row each; some names are there twice")
    return Features(matrix, names)


def ids_of_images(table: tables.Table, column: str) -> dict[str, str]:
    """Name of each image -> its id: the table's column id in its first row, else the name."""
    columns = table.columns()
    if column not in columns:
        raise ValueError(f"{table.path} has no column {column!r} (--column); columns: {columns}")
    if taken := [name for name in NAMES if name in columns]:
        raise ValueError(f"{table.path} has the column {taken[0]!r} already; leave it out")
    ids: dict[str, str] = {}
    for row in filter(None, table.rows()):
        ids.setdefault(str(row.get(column)), str(row.get("id", row.get(column))))
    return ids


def check_names(ids: dict[str, str], places: dict[str, int], args: argparse.Namespace) -> None:
    """Raises UsageError unless every image of the table has a row of features."""
    missing = [name for name in ids if name not in places]
    if missing:
        raise UsageError(
            f"{len(missing):,} of {len(ids):,} images of {args.table} have no features, such as "
            f"{missing[0]!r}: vlc-jax embed --images {args.table} names them alike"
        )


def neighbours(
    features: Features,
    is_known: Bool[np.ndarray, " images"],
    count: int,
    below: float = math.inf,
    block: int = 8192,
    rows: int = ROWS,
) -> Iterator[tuple[int, Float[np.ndarray, "rows count"], Int[np.ndarray, "rows count"]]]:
    """Blocks of (first image, cosines, indices) of the images, nearest first.

    is_known: images that may be neighbours.   below: upper bound of a neighbour's cosine.
    A cosine of -inf stands for no neighbour.
    """
    total = len(features.names)
    # of a small set: no block larger than the set
    rows, block = min(rows, total), min(block, total)
    for start in range(0, total, rows):
        queries = jnp.asarray(features.block(start, rows))
        best = (jnp.full((rows, count), -jnp.inf), jnp.full((rows, count), -1, jnp.int32))
        for first in range(0, total, block):
            allowed = np.zeros(block, bool)
            allowed[: total - first] = is_known[first : first + block]
            best = merge(best, queries, start, features.block(first, block), first, allowed, below)
        length = min(rows, total - start)
        yield start, *(np.asarray(each)[:length] for each in best)


@functools.partial(jax.jit, donate_argnums=0)
def merge(
    best: tuple[Float[Array, "rows count"], Int[Array, "rows count"]],
    queries: Float[Array, "rows width"],
    start: Int[Array, ""] | int,
    block: Float[Array, "block width"],
    first: Int[Array, ""] | int,
    allowed: Bool[Array, " block"],
    below: Float[Array, ""] | float,
) -> tuple[Float[Array, "rows count"], Int[Array, "rows count"]]:
    """The best cosines and indices after a further block of images.

    start, first: index of the first query, and of the block's first image.
    """
    count = best[0].shape[1]
    # full precision: TF32 and bfloat16 cosines of similar images are equal in the digits that count
    cosines = jnp.matmul(queries, block.T, precision=jax.lax.Precision.HIGHEST)
    index = first + jnp.arange(len(block), dtype=jnp.int32)
    is_itself = (start + jnp.arange(len(queries)))[:, None] == index[None]
    # a comparison with NaN is False: unusable images, and rows behind the end
    is_wanted = (cosines < below) & allowed[None] & ~is_itself
    cosines = jnp.where(is_wanted, cosines, -jnp.inf)
    index = jnp.broadcast_to(index[None], cosines.shape)
    # earlier blocks first: of equal cosines top_k takes the first
    cosines = jnp.concatenate([best[0], cosines], axis=1)
    index = jnp.concatenate([best[1], index], axis=1)
    values, places = jax.lax.top_k(cosines, count)
    return values, jnp.take_along_axis(index, places, axis=1)


def write(
    out: Path,
    table: tables.Table,
    column: str,
    ids: dict[str, str],
    chosen: dict[str, tuple[list[str], list[float]]],
) -> int:
    """Writes the rows of the images in `found`; returns their number."""
    out.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with stores.replacing(out) as file:
        for row in filter(None, table.rows()):
            name = str(row.get(column))
            if name in chosen:
                further = dict(zip(NAMES, chosen[name], strict=True))
                file.write(json.dumps({"id": ids[name], **row, **further}) + "\n")
                count += 1
    return count


main = command.main(command_line_parser, mine, is_computing=True)

if __name__ == "__main__":
    sys.exit(main())
