"""Embeddings of any number of images, or of texts, by a trained model:

  vlc-jax embed --model runs/clip --images photos --out photos.npy
  vlc-jax embed --model runs/clip --texts captions.txt --out captions.npy

MODEL: the workdir of a run, an exported folder, or published weights. Images: all below a folder,
or the images listed in a column of a table, each once. Texts: every caption of a table, or every
line of a .txt file, in order. Output: X.npy (float32, unit length, the embeddings of
vlc_jax.load(MODEL)), and beside it

  X.jsonl      the name of the image, or the text, of each row: a JSON string per line
  X.json       model, fingerprints of model and input, number of rows
  X.bad.jsonl  images that cannot be read, with the reason; their rows are NaN

Rows are computed in parts, which lie in X.npy.parts until X.npy is complete. The same command
continues a killed one, and is refused if the model, the names of the images or the sizes of their
files changed.

  vlc-jax embed --model runs/clip --images all.jsonl --out all.npy --runner DirectRunner \\
      -- --direct_num_workers=4 --direct_running_mode=multi_processing

writes the same file with several workers, by a runner of Apache Beam and its own flags (behind
`--`). All workers see the model, the input and X.npy; one process per accelerator. Exit codes are
those of vlc_jax.main; 130: interrupted.
"""

import argparse
import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.encode.batches import read_ahead
from vlc_jax.encode.inference import Model
from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import addresses, command_line, parts, vector_file
from vlc_jax.input_pipeline.commands.vector_file import Rows
from vlc_jax.input_pipeline.hard_texts.llm import captions
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import image_list
from vlc_jax.input_pipeline.stores import any_path, text_file
from vlc_jax.tools import command

BATCHES = 8  # of a part


class Input(NamedTuple):
    """Items to embed: names of images, or texts, and the fingerprint of the input.

    embed: (model, batch size, range of items) -> iterator of the rows of each batch.
    """

    kind: str
    names: list[str]
    fingerprint: str
    embed: Callable[[Model, int, range], Iterator[Rows]]


def command_line_parser() -> argparse.ArgumentParser:
    """The parser of the options above."""
    parser = command_line.parser("embed", __doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--images", type=Path, help="folder, or table: JSONL, TSV, CSV, COCO JSON")
    source.add_argument("--texts", type=Path, help="table, or .txt file with a text per line")
    parser.add_argument("--out", required=True, type=Path, metavar="X.npy")
    parser.add_argument("--column", help="of a table; default: image, or caption")
    parser.add_argument("--image_folder", type=Path, help="of a table; default: its own folder")
    parser.add_argument("--batch_size", type=command_line.positive, default=256)
    command.add_model(parser)
    parts.add_runner(parser)
    return parser


def embed(args: argparse.Namespace, engine: parts.Engine | None = None) -> str:
    """Runs or resumes the command; returns the summary line. engine: of --runner."""
    if args.out.suffix != ".npy":
        raise UsageError(f"--out is a file X.npy; got {args.out}")
    with usage_errors():
        items = images(args) if args.images else texts(args)
    model = command.shared_model(args, is_alone=engine is None)
    request = {
        "count": len(items.names),
        items.kind: items.fingerprint,
        "model": model.fingerprint,
        "width": (model.embed_images if args.images else model.embed_texts)([]).shape[1],
    }
    work = parts.Parts(
        functools.partial(part_rows, args, items, model.fingerprint),
        parts.beside(args.out),
        total=len(items.names),
        size=BATCHES * args.batch_size,
        request={**request, "batch_size": args.batch_size},
    )
    with usage_errors():
        check_request(args.out, request)
        if not args.out.exists():
            parts.run(work, items.kind, engine)
            write(args.out, items, work, {"path": str(args.model), **request})
    parts.remove(work.out)
    summary = (
        f"{args.out}: embeddings of {len(items.names):,} {items.kind}, {request['width']} wide"
    )
    if bad := text_file.whole_lines(bad_file(args.out)):
        summary += f"; {len(bad):,} cannot be read, see {bad_file(args.out)}, and are NaN"
    return summary


def part_rows(args: argparse.Namespace, items: Input, fingerprint: str, rows: range) -> bytes:
    """A part of the rows. The batches are the same whoever computes it, so that the bits are, too.

    fingerprint: of the model. Raises DataError if a worker finds another one.
    """
    model = command.shared_model(args)
    if model.fingerprint != fingerprint:
        raise DataError(
            f"{args.model} is another model on a worker than where the command started: --model is "
            "a path that all workers see, with the same files"
        )
    return vector_file.content(
        (np.ascontiguousarray(batch, np.float32), bad)
        for batch, bad in items.embed(model, args.batch_size, rows)
    )


def write(out: Path, items: Input, work: parts.Parts, request: dict[str, Any]) -> None:
    """Writes the rows of the finished parts, after the files beside them."""
    merged = vector_file.merge(work, out)
    # the request first: without it the other files are not those of this command
    any_path.write_json(out.with_suffix(".json"), request, indent=1)
    with stores.replacing(out.with_suffix(".jsonl")) as file:
        file.writelines(json.dumps(name) + "\n" for name in items.names)
    bad_file(out).unlink(missing_ok=True)
    if merged.bad:
        with stores.replacing(bad_file(out)) as file:
            for row, reason in merged.bad.items():
                line = {"row": row, "name": items.names[row], "reason": reason}
                file.write(json.dumps(line) + "\n")
    merged.draft.replace(out)


def check_request(out: Path, request: dict[str, Any]) -> None:
    """Raises ValueError unless the files of `out` are new, or an earlier call wrote them with this
    request."""
    path = out.with_suffix(".json")
    if not path.exists():
        # e.g. --out captions.npy must not overwrite a table captions.jsonl
        for other in (out, out.with_suffix(".jsonl"), bad_file(out)):
            if other.exists():
                raise ValueError(f"{other} exists, without {path}; name a new file")
        return
    try:
        before = dict(any_path.read_json(path))
        before.pop("path")
    except (OSError, ValueError, TypeError, KeyError):
        raise ValueError(
            f"{path} exists and is no request of embeddings; name a new file"
        ) from None
    parts.check_request(path, before, request)


def bad_file(out: Path) -> Path:
    """X.bad.jsonl: row, name and reason of each unreadable image."""
    return out.with_suffix(".bad.jsonl")


def images(args: argparse.Namespace) -> Input:
    """The images to embed. Raises ValueError and DataError without images."""
    listing = image_list.read(args.images, args.column or "image", args.image_folder)
    digest = hashlib.sha256()
    for name in listing.names:
        digest.update(json.dumps(name).encode())
    for name in listing.names:
        digest.update(b"%d," % file_size(listing.path(name)))

    embed = functools.partial(image_rows, listing)
    return Input("images", listing.names, digest.hexdigest()[:32], embed)


def image_rows(
    listing: image_list.ImageList, model: Model, batch_size: int, items: range
) -> Iterator[Rows]:
    """Embeddings of the images of `items`, a batch at a time."""
    paths = [listing.path(listing.names[item]) for item in items]
    size = model.config["input"]["image_size"]
    blank = np.zeros((size, size, 3), np.uint8)
    for batch in read_ahead(decoded(model, paths, batch_size)):
        bad = {row: str(x) for row, x in enumerate(batch) if isinstance(x, DataError)}
        pixels = [blank if row in bad else x for row, x in enumerate(batch)]
        # pad to whole batches: one shape, one compilation
        rows = model.embed_images(pixels + [blank] * (batch_size - len(batch)))[: len(batch)]
        # NaN instead of no row: row i is item i
        rows[list(bad)] = np.nan
        yield rows, bad


def texts(args: argparse.Namespace) -> Input:
    """The texts to embed. Raises ValueError and DataError without texts."""
    names = captions.read(args.texts, args.column or "caption")
    digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]
    return Input("texts", names, digest, functools.partial(text_rows, names))


def text_rows(names: Sequence[str], model: Model, batch_size: int, items: range) -> Iterator[Rows]:
    """Embeddings of the texts of `items`, all at once: so texts of one length share batches."""
    yield model.embed_texts(names[items.start : items.stop]), {}


def decoded(
    model: Model, paths: Sequence[Path], batch_size: int
) -> Iterator[list[np.ndarray | DataError]]:
    """Pixels of the images of each batch, or the error of an unreadable image."""

    def pixels(path: Path) -> np.ndarray | DataError:
        try:
            return model.pixels(path)
        except DataError as error:
            return error

    # threads, since decoding and resizing release the GIL
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(paths), batch_size):
            yield list(pool.map(pixels, paths[start : start + batch_size]))


def file_size(path: Path) -> int:
    """Size in bytes; -1 for a missing file."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return -1


@addresses.allowed
def main(arguments: list[str]) -> None:
    """The command line."""
    words, flags = parts.split(arguments)

    def do(args: argparse.Namespace) -> str:
        return embed(args, command.engine(args.runner, words, flags))

    command.main(command_line_parser, do, is_computing=True)(words)


if __name__ == "__main__":
    sys.exit(main())
