"""`vlc-jax leaks --pixels`: training images that look like evaluation images, whatever their names.

Parts of the training data become files of hashes, 40 bytes a record. Each part is then joined with
the evaluation hashes, which are in every worker's memory: 72 bytes per image. Images are the same
if their decoded pixels are, and near if their perceptual hashes are (`images/perceptual_hash.py`),
as they are or mirrored.
"""

import argparse
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.benchmarks import PUBLISHED
from vlc_jax.input_pipeline.commands import command_line, parts
from vlc_jax.input_pipeline.images import image_ops, perceptual_hash
from vlc_jax.input_pipeline.images.perceptual_hash import WORDS, NearHashes
from vlc_jax.input_pipeline.record import (
    Crop,
    DataError,
    ImageLike,
    ImageQuestion,
    ShuffledImage,
    Source,
)
from vlc_jax.input_pipeline.sources import image_list, make_source, shards
from vlc_jax.input_pipeline.sources.image_identity import image_identity
from vlc_jax.input_pipeline.stores import progress

DISTANCE = 10
# kinds of a match, the closest first
KINDS = ("the same pixels", "near", "near when mirrored")
_UNREAD = 0  # in place of the hash of an image's pixels
_MAX_PRINTED = 3  # images per set
_Image = Callable[[int], ImageLike | None]


class Evaluation(NamedTuple):
    """Different images of evaluation sets. sets: title -> positions of its images."""

    images: list[ImageLike]
    sets: dict[str, list[int]]


def hash_rows(
    image: _Image,
    records: Sequence[int],
    threads: int,
    mirrored: bool,
    advance: parts.Advance = lambda done: None,
) -> np.ndarray:
    """Hashes of images, uint64 (records, 1 + WORDS): of the pixels, and the perceptual one.

    image: of a record; None or a DataError: zeros.   mirrored: WORDS more, of the mirrored picture.
    """

    def row(index: int) -> np.ndarray:
        words = np.zeros(1 + WORDS * (1 + mirrored), np.uint64)
        try:
            if (encoded := image(index)) is None:
                return words
            picture = image_ops.open_rgb(encoded)
        except DataError:
            return words
        digest = hashlib.blake2b(str(picture.size).encode(), digest_size=8)
        digest.update(picture.tobytes())
        # 0 is for unreadable images
        words[0] = max(1, int.from_bytes(digest.digest(), "little"))
        words[1 : 1 + WORDS] = perceptual_hash.phash(picture)
        if mirrored:
            flipped = picture.transpose(image_ops.Image.Transpose.FLIP_LEFT_RIGHT)
            words[1 + WORDS :] = perceptual_hash.phash(flipped)
        return words

    rows = []
    with futures.ThreadPoolExecutor(threads) as pool:
        for made in pool.map(row, records):
            rows.append(made)
            advance(len(rows))
    return np.stack(rows)


@dataclasses.dataclass(frozen=True)
class OfTraining:
    """Hashes of training images, as a function of `parts.Parts`."""

    source: Source
    threads: int

    def __call__(self, records: range) -> bytes:
        return hash_rows(lambda i: self.source[i].image, records, self.threads, False).tobytes()


@dataclasses.dataclass(frozen=True)
class Join:
    """Matches of a part of the training images: a line of JSON per record that has any, after a
    line with the number of records that have no readable image.

    hashes: the parts of `OfTraining`.   evaluation: `hash_rows` of its images, mirrored too.
    """

    source: Source
    hashes: parts.Parts
    evaluation: np.ndarray
    distance: int

    def __call__(self, records: range) -> bytes:
        content = self.hashes.content(records.start // self.hashes.size)
        if content is None:
            raise DataError("hashes are missing or damaged; the same command computes them")
        with parts.parsing(self.hashes.out):
            rows = np.frombuffer(content, np.uint64).reshape(len(records), 1 + WORDS)
        lines = [f"{np.count_nonzero(rows[:, 0] == _UNREAD)}\n"]
        for position, matches in self.matches(rows).items():
            record = self.source[records[position]]
            name = record.id
            if isinstance(record.image, Path):
                name = image_identity(str(record.image))
            lines.append(json.dumps([name, sorted(matches.items())]) + "\n")
        return "".join(lines).encode()

    def matches(self, rows: np.ndarray) -> dict[int, dict[int, int]]:
        """Position of a row -> evaluation image -> kind of the match, an index into KINDS."""
        found: dict[int, dict[int, int]] = {}
        for kind, pairs in enumerate((self._same(rows), *self._near(rows))):
            for position, image in pairs[:, :2].tolist():
                found.setdefault(position, {}).setdefault(image, kind)
        return dict(sorted(found.items()))

    def _same(self, rows: np.ndarray) -> np.ndarray:
        order, known = self._by_pixels
        first, last = (np.searchsorted(known, rows[:, 0], side) for side in ("left", "right"))
        first[rows[:, 0] == _UNREAD] = last[rows[:, 0] == _UNREAD]
        pairs = [
            (position, image)
            for position in np.flatnonzero(first < last).tolist()
            for image in order[first[position] : last[position]].tolist()
        ]
        return np.array(pairs, np.int64).reshape(-1, 2)

    def _near(self, rows: np.ndarray) -> list[np.ndarray]:
        return [near.pairs(rows[:, 1:]) for near in self._indices]

    @functools.cached_property
    def _by_pixels(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.evaluation[:, 0], kind="stable")
        return order, self.evaluation[order, 0]

    @functools.cached_property
    def _indices(self) -> list[NearHashes]:
        as_they_are, mirrored = np.split(self.evaluation[:, 1:], 2, axis=1)
        return [NearHashes(hashes, self.distance) for hashes in (as_they_are, mirrored)]


def run(options: argparse.Namespace, engine: parts.Engine | None) -> int:
    """The command; returns the exit code."""
    if options.vg_image_data:
        raise ValueError("--vg-image-data is for names of images, which --pixels does not compare")
    folder = {"image_folder": options.train_images} if options.train_images else {}
    columns = command_line.parse_options(options.option) | folder
    with command_line.naming("image_folder", "--train-images"):
        sources = [_training(Path(path), columns) for path in options.train]
    evaluation = evaluation_images(options)
    threads = parts.threads(options, None)
    numbers = range(len(evaluation.images))
    with progress.bar("evaluation", len(numbers)) as advance:
        hashes = hash_rows(evaluation.images.__getitem__, numbers, threads, True, advance)
    _say_unread(evaluation, hashes)
    with parts.folder(options) as out:
        computed = functools.partial(_computed, engine=engine, options=options)
        threads = parts.threads(options, engine)
        distance = DISTANCE if options.distance is None else options.distance
        work_of = []
        for number, source in enumerate(sources):
            request = {"source": source.fingerprint}
            training_hashes = computed(
                OfTraining(source, threads), out / f"train-{number}", len(source), request
            )
            request |= {"evaluation": _digest(hashes.tobytes())}
            request |= {"distance": distance}
            join = Join(source, training_hashes, hashes, distance)
            folder = out / f"matches-{number}-{_digest(json.dumps(request).encode())[:16]}"
            work_of.append(computed(join, folder, len(source), request))
        shared = _print(evaluation, work_of, options.write)
    return 1 if shared else 0


def _computed(
    function: Callable[[range], bytes],
    out: Path,
    total: int,
    request: dict[str, Any],
    *,
    engine: parts.Engine | None,
    options: argparse.Namespace,
) -> parts.Parts:
    work = parts.Parts(function, out, total, parts.size_of(options, total), request)
    parts.run(work, out.name.partition("-")[0], engine)
    return work


def _training(path: Path, options: dict[str, Any]) -> Source:
    if (path / shards.MANIFEST).is_file():
        return shards.ShardsSource(path=path)
    return make_source("records", "all", path=path, **options)


def evaluation_images(options: argparse.Namespace) -> Evaluation:
    """The images of --eval, folders or tables of images, and of the published sets below --root.

    A set that cannot be read is reported. Raises ValueError if there is no image.
    """
    positions: dict[Any, int] = {}
    images: list[ImageLike] = []
    sets: dict[str, list[int]] = {}

    def add(title: str, set_images: Iterator[ImageLike]) -> None:
        numbers = dict.fromkeys(_position(image, positions, images) for image in set_images)
        if numbers:
            sets[title] = [*numbers]

    for path in map(Path, options.eval or ()):
        with command_line.naming("image_folder", "--eval-images"):
            listed = image_list.read(path, folder=options.eval_images and Path(options.eval_images))
        add(str(path), map(listed.path, listed.names))
    names = options.sets or [*PUBLISHED] if options.root else ()
    lookup.check_known("published set", names, PUBLISHED)
    for name in names:
        try:
            cases = PUBLISHED[name][0](root=Path(options.root)).cases
        except (DataError, ValueError) as error:
            if options.sets:
                raise
            print(f"not read: {name}: {error}")
            continue
        add(name, (image for case in cases for image in case.images))
    if not images:
        raise ValueError("no evaluation images: name folders or tables in --eval, or --root DIR")
    return Evaluation(images, sets)


def whole(image: ImageLike) -> ImageLike:
    """The image of a region, of permuted parts or of a question."""
    while isinstance(image, Crop | ShuffledImage | ImageQuestion):
        image = image.image
    return image


def _position(image: ImageLike, positions: dict[Any, int], images: list[ImageLike]) -> int:
    """Number of an image among the different ones."""
    image = whole(image)  # a region is looked for as its whole image
    key = id(image) if isinstance(image, np.ndarray) else image
    if key not in positions:
        positions[key] = len(images)
        images.append(image)
    return positions[key]


def _say_unread(found: Evaluation, hashes: np.ndarray) -> None:
    unread = np.flatnonzero(hashes[:, 0] == _UNREAD).tolist()
    if len(unread) == len(hashes):
        image_ops.open_rgb(found.images[0])  # raises the reason
    if unread:
        try:
            image_ops.open_rgb(found.images[unread[0]])
        except DataError as error:
            print(f"{len(unread):,} images of evaluations are not compared, the first: {error}")


def _print(found: Evaluation, works: Sequence[parts.Parts], write: str | None) -> int:
    """Prints the overlap of every set, writes the training images; returns their number."""
    kinds = np.full(len(found.images), len(KINDS), np.int8)
    examples: dict[int, tuple[int, str]] = {}
    shared, unread, lines = 0, 0, []
    # written while it is read: it may be long
    out = open(write, "w", encoding="utf-8") if write else None  # noqa: SIM115
    try:
        for work in works:
            for content in parts.contents(work):
                with parts.parsing(work.out):
                    count, *rows = content.splitlines()
                    unread += int(count)
                    for line in rows:
                        name, matches = stores.parse_json(line)
                        shared += 1
                        if out is not None:
                            out.write(f"{name}\n")
                        for image, kind in matches:
                            if kind < kinds[image]:
                                kinds[image] = kind
                                examples[image] = (kind, name)
    finally:
        if out is not None:
            out.close()
    for title, images in found.sets.items():
        counts = np.bincount(kinds[images], minlength=len(KINDS))[: len(KINDS)].tolist()
        by_kind = ", ".join(f"{n:,} {kind}" for n, kind in zip(counts, KINDS, strict=True) if n)
        by_kind = f" ({by_kind})" if by_kind else ""
        lines.append(f"{sum(counts):>7,} of {len(images):>7,}  {title}{by_kind}")
        for image in [each for each in images if each in examples][:_MAX_PRINTED]:
            kind, training_name = examples[image]
            what = f"{_name(found.images[image])} is {training_name} of training"
            lines.append(f"{'':>20}{what}, {KINDS[kind]}")
    total = sum(work.total for work in works)
    print(f"training: {total:,} records")
    if unread:
        print(f"{unread:,} of them have no image that can be read")
    print("\n".join(lines))
    print(f"{shared:,} records of training are in an evaluation")
    if write:
        print(f"written to {write}")
    return shared


def _name(image: ImageLike) -> str:
    if isinstance(image, bytes | np.ndarray):
        return "an image"
    return str(image)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
