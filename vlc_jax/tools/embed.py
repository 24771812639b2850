"""Embeddings of any number of images, or of texts, by a trained model:

  vlc-jax embed --model runs/clip --images photos --out photos.npy
  vlc-jax embed --model runs/clip --images all.jsonl --out all.npy --shard 0/4
  vlc-jax embed --model runs/clip --texts captions.txt --out captions.npy

MODEL: the workdir of a run, an exported folder, or published weights. Images: all below a folder,
or the images listed in a column of a table, each once. Texts: every caption of a table, or every
line of a .txt file, in order. Output: X.npy (float32, unit length, the embeddings of
vlc_jax.load(MODEL)), and beside it

  X.jsonl      the name of the image, or the text, of each row: a JSON string per line
  X.json       model, fingerprints of model and input, number of rows in total and done
  X.bad.jsonl  images that cannot be read, with the reason; their rows are NaN

Rows are appended to X.npy.partial; the same command continues it, and is refused if the model, the
names of the images or the sizes of their files changed. --shard I/N computes the I-th of N equal
parts, on independent hosts or devices, and writes X-0000I-of-0000N.npy; concatenated in order, the
shards are X.npy. Exit codes are those of vlc_jax.main; 130: interrupted.
"""

import argparse
import collections
import contextlib
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

from vlc_jax.devices import runtime
from vlc_jax.encode.inference import Model
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.hard_texts.llm import captions
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import image_list
from vlc_jax.input_pipeline.stores import progress
from vlc_jax.input_pipeline.stores.row_file import RowFile
from vlc_jax.input_pipeline.tokenizers import text_vectors
from vlc_jax.setup.data import usage_errors
from vlc_jax.tools import command

AHEAD = 2  # batches decoded ahead of the one that is embedded

# Embeddings of a batch, and {row: reason} of the items that cannot be read.
Rows = tuple[np.ndarray, dict[int, str]]


class Input(NamedTuple):
    """Items to embed: names of images, or texts, and the fingerprint of the input.

    embed: (model, batch size, first item) -> iterator of the rows of each batch from that item on.
    """

    kind: str
    names: list[str]
    fingerprint: str
    embed: Callable[[Model, int, int], Iterator[Rows]]


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = command_line_parser()
    args = parser.parse_args(arguments)

    def run() -> str:
        runtime.connect(None, None, None)
        return embed(args)

    command.run([parser.prog], run)


def command_line_parser() -> argparse.ArgumentParser:
    """The parser of the options above."""
    parser = argparse.ArgumentParser(
        prog="vlc-jax embed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--images", type=Path, help="folder, or table: JSONL, TSV, CSV, COCO JSON")
    source.add_argument("--texts", type=Path, help="table, or .txt file with a text per line")
    parser.add_argument("--out", required=True, type=Path, metavar="X.npy")
    parser.add_argument("--column", help="of a table; default: image, or caption")
    parser.add_argument("--image_folder", type=Path, help="of a table; default: its own folder")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="counted from 0")
    parser.add_argument("--batch_size", type=command_line.positive, default=256)
    command.add_model(parser)
    return parser


def embed(args: argparse.Namespace) -> str:
    """Runs or resumes the command; returns the summary line."""
    if args.out.suffix != ".npy":
        raise UsageError(f"--out is a file X.npy; got {args.out}")
    with usage_errors():
        items = images(args) if args.images else texts(args)
    model = command.model(args)
    out = shard_path(args.out, args.shard)
    request = {
        "model": model.fingerprint,
        items.kind: items.fingerprint,
        "shard": args.shard,
        "count": len(items.names),
        "width": model.embed_texts([]).shape[1],
    }
    journal = Journal(out, {"path": str(args.model)}, request)
    bad = len(journal.bad)
    if not out.exists():
        bad = write(out, items, model, args.batch_size, journal)
    summary = f"{out}: embeddings of {len(items.names):,} {items.kind}, {request['width']} wide"
    if bad:
        summary += f"; {bad:,} cannot be read, see {journal.bad_path}, and are NaN"
    return summary


def write(out: Path, items: Input, model: Model, batch_size: int, journal: "Journal") -> int:
    """Writes the missing rows; returns the number of images that cannot be read."""
    count, width = journal.request["count"], journal.request["width"]
    header = text_vectors.header(out, count, width, "float32")
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        RowFile(out, header, 4 * width, journal.done) as file,
        progress.bar(items.kind, count, file.done) as advance,
    ):
        journal.begin(file.done)
        write_lines(out.with_suffix(".jsonl"), items.names)
        for rows, bad in items.embed(model, batch_size, file.done):
            bad = {file.done + row: reason for row, reason in bad.items()}
            file.append(rows)  # before the journal, which must never count rows that are missing
            journal.add(file.done, [(row, items.names[row], why) for row, why in bad.items()])
            advance(file.done)
        file.finish()
    return len(journal.bad)


class Journal:
    """X.json and X.bad.jsonl: progress of a file of embeddings, and its unreadable images.

    facts: written for people only.   request: values that must not change between two starts.
    Raises UsageError if they changed, or if other files have these names.
    """

    def __init__(self, out: Path, facts: dict[str, Any], request: dict[str, Any]) -> None:
        self.path, self.bad_path = out.with_suffix(".json"), out.with_suffix(".bad.jsonl")
        self.request, self._facts = request, facts
        self.done, self.bad = 0, list[tuple[int, str, str]]()
        if not self.path.exists():
            # e.g. --out captions.npy must not overwrite a table captions.jsonl
            for path in (out, out.with_suffix(".jsonl"), self.bad_path):
                if path.exists():
                    raise UsageError(f"{path} exists, without {self.path}; name a new file")
            return
        try:
            saved = json.loads(self.path.read_text("utf-8"))
            self.done, count = saved["done"], saved["count"]
            before = {name: saved.get(name) for name in request} | {"count": count}
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{self.path} exists and is no journal of embeddings; name a new file"
            ) from None
        changed = [name for name in request if before[name] != request[name]]
        if changed:
            raise UsageError(
                f"{self.path} was begun with {changes(changed, before, request)}: name a new file, "
                "or remove the files of that name"
            )
        if self.bad_path.exists():
            for line in self.bad_path.read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError):  # the truncated last line of a killed run
                    self.bad.append(tuple(json.loads(line).values()))

    def begin(self, done: int) -> None:
        """Discards bad images from row `done` on: these rows are computed again."""
        self.bad = [each for each in self.bad if each[0] < done]
        self._write_bad(self.bad, "w")
        self._write(done)

    def add(self, done: int, bad: Sequence[tuple[int, str, str]]) -> None:
        """Records `done` rows; `bad`: (row, name, reason) of unreadable images among new rows."""
        self.bad += bad
        self._write_bad(bad, "a")
        self._write(done)

    def _write_bad(self, bad: Sequence[tuple[int, str, str]], mode: str) -> None:
        if self.bad:
            with self.bad_path.open(mode, encoding="utf-8") as file:
                for row, name, reason in bad:
                    line = json.dumps({"row": row, "name": name, "reason": reason})
                    file.write(line + "\n")
        else:
            self.bad_path.unlink(missing_ok=True)

    def _write(self, done: int) -> None:
        self.done = done
        content = self._facts | self.request | {"done": done, "bad": len(self.bad)}
        writing = self.path.with_name(f"{self.path.name}.writing")
        writing.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        writing.replace(self.path)  # atomic: a killed run leaves a complete journal


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

    def rows(model: Model, batch_size: int, first: int) -> Iterator[Rows]:
        paths = [listing.path(name) for name in names[first:]]
        size = model.config["input"]["image_size"]
        blank = np.zeros((size, size, 3), np.uint8)
        for batch in decoded(model, paths, batch_size):
            bad = {row: str(each) for row, each in enumerate(batch) if is_bad(each)}
            pixels = [blank if is_bad(each) else each for each in batch]
            # pad to whole batches: one shape, one compilation
            rows = model.embed_images(pixels + [blank] * (batch_size - len(batch)))[: len(batch)]
            rows[list(bad)] = np.nan
            yield rows, bad

    return Input("images", names, digest.hexdigest()[:32], rows)


def texts(args: argparse.Namespace) -> Input:
    """The shard's texts. Raises ValueError and DataError without texts."""
    all_texts = captions.read(args.texts, args.column or "caption")
    names = all_texts[part(args.shard, len(all_texts))]
    digest = hashlib.sha256(json.dumps(all_texts).encode()).hexdigest()[:32]

    def rows(model: Model, batch_size: int, first: int) -> Iterator[Rows]:
        for start in range(first, len(names), batch_size):
            batch = names[start : start + batch_size]
            rows = model.embed_texts(batch + [""] * (batch_size - len(batch)))
            yield rows[: len(batch)], {}

    return Input("texts", names, digest, rows)


def decoded(
    model: Model, paths: Sequence[Path], batch_size: int
) -> Iterator[list[np.ndarray | DataError]]:
    """Pixels of the images of each batch; the next AHEAD batches are decoded in the background."""

    def pixels(path: Path) -> np.ndarray | DataError:
        try:
            return model.pixels(path)
        except DataError as error:
            return error

    pool = ThreadPoolExecutor(os.cpu_count())  # decoding and resizing release the GIL
    waiting = collections.deque[list[Any]]()
    try:
        for start in range(0, len(paths), batch_size):
            waiting.append(
                [pool.submit(pixels, path) for path in paths[start : start + batch_size]]
            )
            if len(waiting) > AHEAD:
                yield [each.result() for each in waiting.popleft()]
        while waiting:
            yield [each.result() for each in waiting.popleft()]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def is_bad(item: object) -> bool:
    """True for the error of an unreadable image, False for pixels."""
    return isinstance(item, DataError)


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


def write_lines(path: Path, names: Sequence[str]) -> None:
    """Writes a JSON string per line."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(name) + "\n" for name in names)


if __name__ == "__main__":
    sys.exit(main())
