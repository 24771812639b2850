"""Annotation files of published evaluation sets: where they come from, and reading them."""

import csv
import dataclasses
import hashlib
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.images import packed_images
from vlc_jax.input_pipeline.record import DataError, PackedImage
from vlc_jax.input_pipeline.sources import json_annotations


@dataclasses.dataclass(frozen=True)
class Origin:
    """An evaluation set as its authors publish it, below a folder ROOT that all sets share.

    protocol: a key of vlc_jax.evaluators.PROTOCOLS.
    folder: of its annotations, in ROOT.   files: the annotations, in `folder`; patterns have *.
    images: the folder where image names start, in ROOT.
    source: address of both.   licence: of the annotations.
    cases: published number of cases, if one is known; of a set of subsets, of each of them: name
      (the label of kind "subset" in `Case.group`) -> number.
    overlap: data sets whose images it shares: training on them is to be checked for leaks.
    """

    protocol: str
    folder: str
    files: tuple[str, ...]
    images: str
    source: str
    licence: str
    cases: int | Mapping[str, int] | None = None
    overlap: str = ""

    @property
    def how_to_get(self) -> str:
        """Instruction for a user who lacks the files."""
        files = ", ".join(self.files)
        return (
            f"put {files} into ROOT/{self.folder} and the images into ROOT/{self.images}; they "
            f"come from {self.source} (licence: {self.licence})"
        )


class PublishedFiles:
    """The files of an evaluation set below a root; remembers what it read, for the version.

    Args:
      origin: of the set.
      root: the folder ROOT of `Origin`.
      folder, images: folders of annotations and images that are elsewhere: in `root`, or absolute.
    """

    def __init__(
        self,
        origin: Origin,
        root: str | Path,
        folder: str | Path | None = None,
        images: str | Path | None = None,
    ) -> None:
        if not str(root):
            raise ValueError(
                f"`root` is needed, the folder of evaluation sets: {origin.how_to_get}"
            )
        self.origin = origin
        self.folder = Path(root) / (folder or origin.folder)
        self._images = Path(root) / (images or origin.images)
        self._digest = hashlib.sha256()
        if not self.folder.is_dir():
            raise DataError(f"there is no folder {self.folder}; {origin.how_to_get}")

    def json(self, name: str) -> Any:
        """A JSON document. Raises DataError if it is missing or damaged."""
        path = self.path(name)
        try:
            return json_annotations.load(path)
        except ValueError as error:
            raise DataError(f"{error}; {self.origin.how_to_get}") from error

    def objects(self, name: str, *fields: str) -> list[dict[str, Any]]:
        """A JSON list of objects that have all the fields."""
        return self.check(name, self.json(name), fields)

    def lists(self, name: str, *fields: str) -> list[dict[str, Any]]:
        """A JSON list of lists of as many entries as there are fields, which name them."""
        rows = self.json(name)
        if not isinstance(rows, list):
            raise DataError(
                f"{self.folder / name} is {json_annotations.describe(rows)}, not a list of cases"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != len(fields):
                raise DataError(
                    f"{self.folder / name}: case {number} is not a list of {', '.join(fields)}; "
                    f"got {row!r:.80}"
                )
        return self.check(name, [dict(zip(fields, row, strict=True)) for row in rows], fields)

    def json_lines(self, name: str, *fields: str) -> list[dict[str, Any]]:
        """One JSON object per line, each with all the fields."""
        rows = []
        for number, line in enumerate(self._text(name).splitlines(), 1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except (ValueError, RecursionError) as error:
                    raise DataError(f"line {number} of {self.path(name)}: {error}") from error
        return self.check(name, rows, fields)

    def table(self, name: str, *fields: str, delimiter: str = ",") -> list[dict[str, str]]:
        """Rows of a CSV or TSV file, whose fields may hold line breaks inside quotes."""
        reader = csv.DictReader(io.StringIO(self._text(name), newline=""), delimiter=delimiter)
        return self.check(name, list(reader), fields)

    def packed(self, pattern: str, *fields: str) -> list[tuple[Path, int, dict[str, Any]]]:
        """(file, row number, the fields) of all Parquet files of a pattern, in order of names; the
        images stay in the files (`PackedImage`)."""
        found = []
        for path in self.paths(pattern):
            self.remember(path)
            rows = packed_images.read_rows(path, fields)
            found += [(path, number, row) for number, row in enumerate(rows)]
        return found

    def paths(self, pattern: str) -> list[Path]:
        """The files of a pattern, in order of names. Raises DataError if there is none."""
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise DataError(f"there is no {self.folder / pattern}; {self.origin.how_to_get}")
        return found

    def has(self, pattern: str) -> bool:
        """True if there is such a file."""
        return any(self.folder.glob(pattern))

    def path(self, name: str) -> Path:
        """A file that must be there; its content belongs to the version."""
        path = self.folder / name
        if not path.is_file():
            raise DataError(f"there is no file {path}; {self.origin.how_to_get}")
        self.remember(path)
        return path

    def remember(self, path: Path) -> None:
        """Makes the content of a file part of the version."""
        # Bytes and not time or size: the same set from another copy has the same version.
        with path.open("rb") as file:
            self._digest.update(hashlib.file_digest(file, "sha256").digest())

    def image(self, name: str) -> Path:
        """Path of an image; that it is there is seen when it is decoded."""
        if not isinstance(name, str):
            raise DataError(f"images of {self.folder} have names; got {name!r:.80}")
        return self._images / name

    def image_folder(self, *spellings: str) -> str:
        """The first of these folders of images that is there; the first of all if none is."""
        return next((name for name in spellings if (self._images / name).is_dir()), spellings[0])

    def check(self, name: str, rows: Any, fields: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of a file. Raises DataError unless they are objects with all the fields."""
        path, fields = self.folder / name, tuple(fields)
        if not isinstance(rows, list) or not rows:
            raise DataError(f"{path} is {json_annotations.describe(rows)}, not a list of cases")
        for number, row in enumerate(rows):
            missing = [f for f in fields if not isinstance(row, dict) or row.get(f) is None]
            if missing:
                raise DataError(
                    f"{path}: case {number} has no {missing[0]!r}; cases have {', '.join(fields)}; "
                    f"got {row!r:.80}"
                )
        return rows

    def benchmark(
        self,
        name: str,
        cases: Iterable[Case],
        count: int | None = None,
        averages: Mapping[str, Average] | None = None,
        **fields: Any,
    ) -> Benchmark:
        """The benchmark of the first `count` cases (of each subset), of all by default; then a
        number other than the published one is a note."""
        if count is not None and count < 1:
            raise ValueError(f"count must be at least 1; got {count}")
        found = tuple(self._first(cases, count))
        # A part of a set is what was asked for: its number says nothing.
        notes = () if count is not None else tuple(self._differences(found))
        for case in found:  # options choose and change cases of the same files
            content = (case.id, case.captions, case.group, case.meta)
            self._digest.update(repr(content).encode())
            if not all(isinstance(caption, str) for caption in case.captions):
                raise DataError(
                    f"captions are texts; case {case.id} of {self.folder} has {case.captions!r:.80}"
                )
        version = f"{self._digest.hexdigest()[:16]}/{len(found)}"
        return Benchmark(name, found, version, averages=averages or {}, notes=notes, **fields)

    def _first(self, cases: Iterable[Case], count: int | None) -> Iterable[Case]:
        if count is None or not isinstance(self.origin.cases, Mapping):
            return itertools.islice(cases, count)
        # Of each subset, or a small count would be of the first subset alone.
        taken: Counter[str] = Counter()
        found = []
        for case in cases:
            subset = case.group["subset"]
            taken[subset] += 1
            if taken[subset] <= count:
                found.append(case)
        return found

    def _differences(self, found: Sequence[Case]) -> Iterable[str]:
        """Subsets whose number of cases is not the published one."""
        published = self.origin.cases
        if isinstance(published, Mapping):
            numbers = Counter(case.group["subset"] for case in found)
            for subset in numbers:
                if published.get(subset, numbers[subset]) != numbers[subset]:
                    yield (
                        f"{subset}: {numbers[subset]:,} cases; published are {published[subset]:,}"
                    )
        elif published not in (None, len(found)):
            yield f"{len(found):,} cases; published are {published:,}"

    def _text(self, name: str) -> str:
        path = self.path(name)
        try:
            return path.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8: {error}") from error


def case_id(number: int, *parts: object) -> str:
    """Unique, and fit for a file name."""
    tail = re.sub(r"[^0-9A-Za-z.-]+", "_", "_".join(str(part) for part in parts))[-80:]
    return f"{number:06d}_{tail}"


def packed_image(place: tuple[Path, int, Any], column: str, item: int | None = None) -> PackedImage:
    """The image in a column of a row that `PublishedFiles.packed` found."""
    return PackedImage(place[0], place[1], column, item)


def amended(benchmark: Benchmark, *notes: str, version: str = "") -> Benchmark:
    """The benchmark with more notes, and with what else its cases depend on in its version."""
    versions = [benchmark.version, version] if version else [benchmark.version]
    return dataclasses.replace(
        benchmark, version="/".join(versions), notes=(*benchmark.notes, *notes)
    )


def check_subsets(asked: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a subset that a set does not have."""
    check_options("subsets", asked, known)


def check_options(name: str, asked: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a value of an option that is none of the known ones."""
    for value in asked:
        if value not in known:
            raise ValueError(f"{name} are some of {list(known)}; got {value!r}")
