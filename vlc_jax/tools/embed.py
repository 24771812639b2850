"""Embeddings of any number of images, or of texts, by a trained model:

  vlc-jax embed --model runs/clip --images photos --out photos.npy
  vlc-jax embed --model runs/clip --images all.jsonl --out all.npy --shard 0/4
  vlc-jax embed --model runs/clip --texts captions.txt --out captions.npy

MODEL: the workdir of a run, an exported folder, or published weights. Images: all below a folder,
or the images listed in a column of a table, each once. Texts: every caption of a table, or every
line of a .txt file, in order. Output: X.npy (float32, unit length, the embeddings of
vlc_jax.load(MODEL)), and beside it

  X.jsonl      the name of the image, or the text, of each row: a JSON string per line
  X.json       model, fingerprints of model and input, number of rows
  X.bad.jsonl  images that cannot be read, with the reason; their rows are NaN

Rows are appended to X.npy.partial; the same command continues it, and is refused if the model, the
names of the images or the sizes of their files changed. --shard I/N computes the I-th of N equal
parts, on independent hosts or devices, and writes X-0000I-of-0000N.npy; concatenated in order, the
shards are X.npy.

  vlc-jax embed --model runs/clip --images all.jsonl --out all.npy --runner DirectRunner \\
      -- --direct_num_workers=4 --direct_running_mode=multi_processing

writes the same file with several workers, by a runner of Apache Beam and its own flags (behind
`--`): parts of it lie in X.npy.parts, and those that are finished are not computed again. All
workers see the model, the input and X.npy; one process per accelerator. Exit codes are those of
vlc_jax.main; 130: interrupted.
"""

import argparse
import functools
import hashlib
import json
import os
import re
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
from vlc_jax.input_pipeline.commands import addresses, command_line, parts
from vlc_jax.input_pipeline.hard_texts.llm import captions
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import image_list
from vlc_jax.input_pipeline.stores import progress, text_file
from vlc_jax.input_pipeline.stores.row_file import RowFile
from vlc_jax.input_pipeline.tokenizers import text_vectors
from vlc_jax.run import workdir_files
from vlc_jax.tools import command

# Batches of a part of --runner.
BATCHES = 16
# Embeddings of a batch, and {row: reason} of the items that cannot be read.
Rows = tuple[np.ndarray, dict[int, str]]


class Input(NamedTuple):
    """Items to embed: names of images, or texts, and the fingerprint of the input.

    embed: (model, batch size, range of items) -> iterator of the rows of each batch.
    """

    kind: str
    names: list[str]
    fingerprint: str
    embed: Callable[[Model, int, range], Iterator[Rows]]


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    words, flags = parts.split(sys.argv[1:] if arguments is None else arguments)

    def do(args: argparse.Namespace) -> str:
        return embed(args, command.engine(args.runner, words, flags))

    command.compute(do, command_line_parser(), words)


def command_line_parser() -> argparse.ArgumentParser:
    """The parser of the options above."""
    parser = command_line.parser("embed", __doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--images", type=Path, help="folder, or table: JSONL, TSV, CSV, COCO JSON")
    source.add_argument("--texts", type=Path, help="table, or .txt file with a text per line")
    parser.add_argument("--out", required=True, type=Path, metavar="X.npy")
    parser.add_argument("--column", help="of a table; default: image, or caption")
    parser.add_argument("--image_folder", type=Path, help="of a table; default: its own folder")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="counted from 0")
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
    model = command.shared_model(args) if engine else command.model(args)
    out = shard_path(args.out, args.shard)
    request = {
        "model": model.fingerprint,
        items.kind: items.fingerprint,
        "shard": args.shard,
        "count": len(items.names),
        "width": (model.embed_images if args.images else model.embed_texts)([]).shape[1],
    }
    is_resumed = check_request(out, request)
    work = parts.Parts(
        functools.partial(part_rows, args, items, model.fingerprint),
        parts.beside(out),
        total=len(items.names),
        size=BATCHES * args.batch_size,
        request={**request, "batch_size": args.batch_size},
    )
    if engine and not out.exists():
        with progress.bar(items.kind, work.total) as advance, usage_errors():
            parts.run(work, engine, advance)
        items = items._replace(embed=functools.partial(stored, work))
    if not out.exists():
        write(out, items, model, args.batch_size, {"path": str(args.model), **request}, is_resumed)
    parts.remove(work.out)
    summary = f"{out}: embeddings of {len(items.names):,} {items.kind}, {request['width']} wide"
    if bad := read_bad(out):
        summary += f"; {len(bad):,} cannot be read, see {bad_file(out)}, and are NaN"
    return summary


def part_rows(args: argparse.Namespace, items: Input, fingerprint: str, rows: range) -> bytes:
    """Some rows, computed by a worker: a line of JSON with the reasons of bad ones by their number
    in the part, and the rows. The batches are those of one process, so that the bits are, too.

    fingerprint: of the model. Raises DataError if the worker finds another one.
    """
    model = command.shared_model(args)
    if model.fingerprint != fingerprint:
        raise DataError(
            f"{args.model} is another model on a worker than where the command started: --model is "
            "a path that all workers see, with the same files"
        )
    reasons, arrays, done = dict[int, str](), [], 0
    for batch, bad in items.embed(model, args.batch_size, rows):
        reasons |= {done + row: reason for row, reason in bad.items()}
        arrays.append(np.ascontiguousarray(batch, np.float32))
        done += len(batch)
    return json.dumps(reasons).encode() + b"\n" + b"".join(array.tobytes() for array in arrays)


def stored(work: parts.Parts, model: Model, batch_size: int, rows: range) -> Iterator[Rows]:
    """The rows of finished parts, as `Input.embed` computes them."""
    del model, batch_size
    for number, content in enumerate(parts.contents(work)):
        indices = work.indices(number)
        skip = max(0, rows.start - indices.start)
        if skip >= len(indices):
            continue
        with parts.parsing(work.out):
            head, _, data = content.partition(b"\n")
            array = np.frombuffer(data, np.float32).reshape(len(indices), -1)
            reasons = {int(row) - skip: why for row, why in stores.parse_json(head).items()}
        yield array[skip:], {row: reason for row, reason in reasons.items() if row >= 0}


def write(
    out: Path,
    items: Input,
    model: Model,
    batch_size: int,
    request: dict[str, Any],
    is_resumed: bool,
) -> None:
    """Writes the missing rows, and the files beside them."""
    count, width = request["count"], request["width"]
    out.parent.mkdir(parents=True, exist_ok=True)
    workdir_files.replace(out.with_suffix(".json"), json.dumps(request, indent=1) + "\n")
    with out.with_suffix(".jsonl").open("w", encoding="utf-8") as names:
        names.writelines(json.dumps(name) + "\n" for name in items.names)
    header = text_vectors.header(out, count, width, "float32")
    with (
        RowFile(out, header, 4 * width, count if is_resumed else 0) as file,
        progress.bar(items.kind, count, file.done) as advance,
    ):
        known = [each for each in read_bad(out) if each["row"] < file.done]
        bad_file(out).unlink(missing_ok=True)
        add_bad(out, known)
        for rows, bad in items.embed(model, batch_size, range(file.done, count)):
            # before the rows: a row of NaN without a reason would stay without one
            add_bad(
                out,
                [
                    {"row": file.done + row, "name": items.names[file.done + row], "reason": reason}
                    for row, reason in bad.items()
                ],
            )
            file.append(rows)
            advance(file.done)
        file.finish()


def check_request(out: Path, request: dict[str, Any]) -> bool:
    """True if an earlier call began the files of `out` with this request.

    Raises UsageError if it was another request, or if other files have these names.
    """
    path = out.with_suffix(".json")
    if not path.exists():
        # e.g. --out captions.npy must not overwrite a table captions.jsonl
        for other in (out, out.with_suffix(".jsonl"), bad_file(out)):
            if other.exists():
                raise UsageError(f"{other} exists, without {path}; name a new file")
        return False
    try:
        saved = json.loads(path.read_text("utf-8"))
        before = {"count": saved["count"]} | {name: saved.get(name) for name in request}
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} exists and is no request of embeddings; name a new file"
        ) from None
    if changed := [name for name in request if before[name] != request[name]]:
        raise UsageError(
            f"{path} was begun with {changes(changed, before, request)}: name a new file, or "
            "remove the files of that name"
        )
    return True


def bad_file(out: Path) -> Path:
    """X.bad.jsonl: row, name and reason of each unreadable image."""
    return out.with_suffix(".bad.jsonl")


def read_bad(out: Path) -> list[dict[str, Any]]:
    """The content of X.bad.jsonl."""
    return [json.loads(line) for line in text_file.whole_lines(bad_file(out))]


def add_bad(out: Path, bad: Sequence[dict[str, Any]]) -> None:
    """Appends to X.bad.jsonl, which exists only if there are bad images."""
    if bad:
        with bad_file(out).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in bad)


def changes(names: Sequence[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    """Describes the changed values of a request."""
    if "images" in names or "texts" in names:
        return f"other images or texts ({before['count']:,} then, {now['count']:,} now)"
    if names == ["model"]:
        return "other weights, preprocessing or tokenizer"
    return " and ".join(f"{name} {before[name]} (now {now[name]})" for name in names)


def images(args: argparse.Namespace) -> Input:
    """The shard's images. Raises ValueError and DataError without images."""
    listing = image_list.read(args.images, args.column or "image", args.image_folder)
    names = listing.names[part(args.shard, len(listing.names))]
    digest = hashlib.sha256()
    for name in listing.names:  # of all shards, which must be parts of one list
        digest.update(json.dumps(name).encode())
    for name in names:
        digest.update(b"%d," % file_size(listing.path(name)))

    embed = functools.partial(image_rows, listing, names)
    return Input("images", names, digest.hexdigest()[:32], embed)


def image_rows(
    listing: image_list.ImageList, names: Sequence[str], model: Model, batch_size: int, items: range
) -> Iterator[Rows]:
    """Embeddings of the images of `items`, a batch at a time."""
    paths = [listing.path(names[item]) for item in items]
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
    """The shard's texts. Raises ValueError and DataError without texts."""
    all_texts = captions.read(args.texts, args.column or "caption")
    names = all_texts[part(args.shard, len(all_texts))]
    digest = hashlib.sha256(json.dumps(all_texts).encode()).hexdigest()[:32]

    return Input("texts", names, digest, functools.partial(text_rows, names))


def text_rows(names: Sequence[str], model: Model, batch_size: int, items: range) -> Iterator[Rows]:
    """Embeddings of the texts of `items`, a batch at a time."""
    for start in range(items.start, items.stop, batch_size):
        batch = [*names[start : min(start + batch_size, items.stop)]]
        rows = model.embed_texts(batch + [""] * (batch_size - len(batch)))
        yield rows[: len(batch)], {}


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


def part(shard: str, count: int) -> slice:
    """The items of shard "I/N" of `count` items; consecutive shards are adjacent."""
    index, total = shard_numbers(shard)
    if total > count:
        raise UsageError(f"--shard {shard}: there are only {count:,} items")
    return slice(index * count // total, (index + 1) * count // total)


def shard_numbers(shard: str) -> tuple[int, int]:
    """(I, N) of "I/N". Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", shard)
    if not match or int(match[1]) >= int(match[2]):
        raise UsageError(f"--shard is I/N with I from 0 to N - 1, such as 0/4; got {shard!r}")
    return int(match[1]), int(match[2])


def shard_path(out: Path, shard: str) -> Path:
    """X-00000-of-00004.npy for shard 0/4; X.npy itself for 0/1."""
    index, total = shard_numbers(shard)
    return out if total == 1 else out.with_stem(f"{out.stem}-{index:05d}-of-{total:05d}")


if __name__ == "__main__":
    sys.exit(main())
