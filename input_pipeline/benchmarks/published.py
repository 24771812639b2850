"""Published evaluation sets: readers of their files."""

import csv
import dataclasses
import functools
import hashlib
import inspect
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.benchmarks import fields as kinds
from vlc_jax.input_pipeline.benchmarks import wordings
from vlc_jax.input_pipeline.benchmarks.origins import ORIGINS, Origin
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError, PackedImage, path_below
from vlc_jax.input_pipeline.sources import json_annotations
from vlc_jax.input_pipeline.stores import text_file

# averages of `Files.benchmark`: accuracy_macro is the mean over subsets
SUBSET_MACRO = {"macro": Average(("subset",))}
_LAST, _ENDS = "\x04", "\r\n"  # end of transmission, which no field of a table is; of lines
# Check of a field's value, a function of `fields`
Kind = Callable[[Any], None]
# summary of pairs of images and captions, as Winoground's metrics are called
PAIR_SCORES = ("group_score", "text_score", "image_score")


class Files:
    """Reads the files of an evaluation set; hashes their content for the benchmark's version.

    Args:
      origin, name: of the set.
      root: the folder ROOT of `Origin`.
      count: maximal number of cases (per subset, if `Origin.cases` has subsets); None: all.
      folder, images: other folders of annotations and images: in `root`, or absolute.

    Methods that read rows take the names of the fields that every row has. Their values are texts;
    `others` has the kind of a field with other values, a function of `fields`. DataErrors name file
    and case.
    """

    def __init__(
        self,
        origin: Origin,
        name: str,
        root: str | Path = "",
        count: int | None = None,
        folder: str | Path | None = None,
        images: str | Path | None = None,
    ) -> None:
        if not str(root):
            raise ValueError(
                f"`root` is needed, the folder of evaluation sets: {origin.how_to_get}"
            )
        self.origin, self.name, self.root, self.count = origin, name, Path(root), count
        self.folder = Path(root) / (folder or origin.folder)
        self.images = Path(root) / (images or origin.images)
        # the last file that was opened, for messages
        self.last_file: Path = self.folder
        self._digest = hashlib.sha256()
        self._hashes: dict[Path, str] = {}
        self._of_subset: dict[str, set[Path]] = {}
        if not self.folder.is_dir():
            raise DataError(f"there is no folder {self.folder}; {origin.how_to_get}")

    @property
    def file(self) -> str:
        """The name of the first annotation file, of most sets the only one."""
        return self.origin.files[0]

    def json(self, name: str) -> Any:
        """A JSON document. Raises DataError if it is missing or damaged."""
        path = self.path(name)
        try:
            return json_annotations.load(path)
        except ValueError as error:
            raise DataError(f"{error}; {self.origin.how_to_get}") from error

    def objects(self, name: str, *fields: str, **others: Kind) -> list[dict[str, Any]]:
        """A JSON list of objects that have all the fields."""
        return self.check(name, self.json(name), fields, **others)

    def lists(self, name: str, *fields: str, **others: Kind) -> list[dict[str, Any]]:
        """A JSON list of lists with one entry per field, as dicts; `others` are among `fields`."""
        rows = self.json(name)
        if not isinstance(rows, list):
            raise DataError(
                f"{self.folder / name} is {json_annotations.describe(rows)}, not a list of cases"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != len(fields):
                raise DataError(
                    f"{self.folder / name}: case {number} is not a list of {', '.join(fields)}; "
                    f"got {kinds.shown(row)}"
                )
        rows = [dict(zip(fields, row, strict=True)) for row in rows]
        return self.check(name, rows, fields, **others)

    def named(self, name: str, *fields: str, **others: Kind) -> list[tuple[str, dict[str, Any]]]:
        """(key, object) of a JSON object of objects that have all the fields."""
        document = self.json(name)
        if not isinstance(document, dict):
            raise DataError(f"{self.last_file} is no object of cases; {self.origin.how_to_get}")
        rows = self.check(name, [*document.values()], fields, **others)
        return [*zip(document, rows, strict=True)]

    def json_lines(self, name: str, *fields: str, **others: Kind) -> list[dict[str, Any]]:
        """One JSON object per line, each with all the fields."""
        rows = []
        for number, line in enumerate(text_file.read(self.path(name)).split("\n"), 1):
            if line.strip():
                try:
                    rows.append(json_annotations.parse(line))
                except (ValueError, RecursionError) as error:
                    raise DataError(f"line {number} of {self.last_file}: {error}") from error
        return self.check(name, rows, fields, **others)

    def table(self, name: str, *fields: str, **others: Kind) -> list[dict[str, str]]:
        """Rows of a CSV file; quoted fields may contain line breaks."""
        # A last row shows whether the rows before it are whole: a quotation mark without its
        # partner swallows it. csv's own strict mode refuses rows that the authors published.
        text = f"{text_file.read(self.path(name)).rstrip(_ENDS)}\n{_LAST}\n"
        # newline="": line breaks inside quoted fields stay as they are
        table = csv.DictReader(io.StringIO(text, newline=""))
        try:
            twice = [field for field in fields if (table.fieldnames or ()).count(field) > 1]
            rows = list(table)
        except csv.Error as error:
            raise DataError(f"line {table.line_num} of {self.last_file}: {error}") from error
        if twice:
            raise DataError(f"{self.last_file} has the column {twice[0]!r} twice")
        if rows and _LAST not in rows.pop().values():
            raise DataError(
                f"{self.last_file} ends inside a quotation: a quotation mark is missing"
            )
        return self.check(name, rows, fields, **others)

    def packed(
        self, pattern: str, *fields: str, **others: Kind
    ) -> list[tuple[Path, int, dict[str, Any]]]:
        """(file, row number, fields) of all rows of the Parquet files of a pattern, sorted by name.

        Images stay in the files (`row_images`)."""
        packed = []
        for path in self.paths(pattern):
            self.remember(path)
            rows = parquet_file.read_rows(path, [*dict.fromkeys((*fields, *others))])
            # relative to the folder if it is there, as in the other messages
            self.check(os.path.relpath(path, self.folder), rows, fields, **others)
            packed += [(path, number, row) for number, row in enumerate(rows)]
        return packed

    def paths(self, pattern: str) -> list[Path]:
        """The files of a pattern, sorted by name. Raises DataError if there is none."""
        paths = sorted(self.folder.glob(pattern))
        if not paths:
            raise DataError(f"there is no {self.folder / pattern}; {self.origin.how_to_get}")
        return paths

    def has(self, pattern: str) -> bool:
        """True if a file of the pattern exists."""
        return any(self.folder.glob(pattern))

    def path(self, name: str) -> Path:
        """The path of a required file; its content becomes part of the version."""
        path = self.folder / name
        if not path.is_file():
            raise DataError(f"there is no file {path}; {self.origin.how_to_get}")
        self.remember(path)
        return path

    def remember(self, path: Path) -> None:
        """Makes the content of a file part of the version."""
        # The bytes, not time or size: copies of a set have the same version.
        self.last_file = path
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        self._digest.update(digest.digest())
        self._hashes[path] = digest.hexdigest()

    def image(self, name: str) -> Path:
        """Path of an image; a missing file raises only when it is decoded.

        Raises DataError for a name that leads out of the folder of images."""
        if not isinstance(name, str):
            raise DataError(f"{self.last_file}: images have names; got {kinds.shown(name)}")
        # no stat here: sets have tens of thousands of images, and storage may be slow
        try:
            return path_below(self.images, name)
        except DataError as error:
            raise DataError(f"{self.last_file} has {error}") from None

    def genome_image(self, name: str) -> Path:
        """Path of an image of Visual Genome: in one of its two folders, or directly in the folder
        of images, as in the archives of some sets."""
        # a stat per folder and image: the annotations do not tell which folder has it
        paths = [self.image(f"{part}{name}") for part in ("VG_100K/", "VG_100K_2/", "")]
        return next((path for path in paths if path.is_file()), paths[0])

    def image_folder(self, *spellings: str) -> str:
        """The first existing folder of images among the spellings; else the first spelling."""
        return next((name for name in spellings if (self.images / name).is_dir()), spellings[0])

    def check(
        self, name: str, rows: Any, fields: Iterable[str], **others: Kind
    ) -> list[dict[str, Any]]:
        """The rows of a file. Raises DataError unless they are objects with all the fields, whose
        values are texts or as in `others`."""
        path, checks = self.folder / name, dict.fromkeys(fields, kinds.text) | others
        if not isinstance(rows, list) or not rows:
            raise DataError(f"{path} is {json_annotations.describe(rows)}, not a list of cases")
        for number, row in enumerate(rows):
            for field, check_value in checks.items():
                if not isinstance(row, dict) or (
                    row.get(field) is None and check_value is not kinds.optional
                ):
                    raise DataError(
                        f"{path}: case {number} has no {field!r}; cases have {', '.join(checks)}; "
                        f"got {kinds.shown(row)}"
                    )
                try:
                    check_value(row[field])
                except DataError as error:
                    raise DataError(f"{path}: case {number}, {field!r}: {error}") from None
        return rows

    def correct_first(
        self, number: int, options: Sequence[str], field: str, place: Any
    ) -> tuple[str, ...]:
        """Options of a case of the last file, the correct one first, as in every case of the
        protocol. Raises DataError unless the value `place` of `field` is the place of one."""
        if type(place) is not int or not 0 <= place < len(options) > 1:
            raise DataError(
                f"{self.last_file}: case {number}: {field} is the place of one of two or more "
                f"options, from 0 on; got {kinds.shown(place)} of {len(options)}"
            )
        return (options[place], *options[:place], *options[place + 1 :])

    def case(
        self,
        number: int,
        image: str,
        captions: Iterable[str],
        group: dict[str, str] | None = None,
        *,
        name: str = "",
        prefix: str = "",
        **meta: Any,
    ) -> Case:
        """A case of a named image, by which intervals count several cases of it as one.

        name: of the id; default: the image's.   prefix: of the id, such as the subset.
        """
        identity = f"{prefix}_{case_id(number, name or image)}".removeprefix("_")
        return Case(
            identity, (self.image(image),), tuple(captions), group, {"record": image, **meta}
        )

    def by_subset(
        self,
        subsets: Sequence[str],
        known: Iterable[str],
        read: Callable[["Files", str], Iterable[Case]],
        **fields: Any,
    ) -> Benchmark:
        """The benchmark of subsets, whose mean is the headline unless `summary` says otherwise.

        read: (files, subset) -> its cases.   known: all subsets; others raise ValueError.
        """
        check_options("subsets", subsets, known)
        parts = (f"accuracy/subset={subset}" for subset in subsets)
        fields = {"summary": ("accuracy_macro", *parts, "accuracy"), **fields}
        cases = (case for subset in subsets for case in read(self, subset))
        return self.benchmark(cases, **{"averages": SUBSET_MACRO, **fields})

    def benchmark(
        self, cases: Iterable[Case], averages: Mapping[str, Average] | None = None, **fields: Any
    ) -> Benchmark:
        """The benchmark of the first `count` cases (per subset); None: all cases.

        Notes a difference from the published number of cases; with `count`, the share taken."""
        lookup.check_count("count", self.count)
        # checked one by one, while `place` is the file of the case
        cases = tuple(map(self._checked, self._first(map(self._noted, cases))))
        notes = tuple(self._differences(cases))
        ids = Counter(case.id for case in cases)
        if twice := next((name for name, times in ids.items() if times > 1), None):
            raise DataError(f"{self.last_file} has the case {twice} twice")
        if blank := sum(not text.strip() for case in cases for text in case.captions):
            notes = (*notes, f"{blank:,} captions are blank")
        # the content too: options select and change cases of the same files
        for case in cases:
            content = (case.id, case.captions, case.group, case.meta)
            self._digest.update(repr(content).encode())
        version = f"{self._digest.hexdigest()[:16]}/{len(cases)}"
        paths = {**self._of_subset, "": self._hashes}
        files = {name: _joined(self._hashes[each] for each in of) for name, of in paths.items()}
        averages = averages or {}
        return Benchmark(
            self.name, cases, version, averages=averages, notes=notes, files=files, **fields
        )

    def _noted(self, case: Case) -> Case:
        """The case, after its subset's files are noted: those that were opened since the cases of
        other subsets, or all, if every file is read before the first case."""
        label = case.group.get("subset") if isinstance(case.group, dict) else None
        if isinstance(label, str):
            known = set().union(*self._of_subset.values())
            opened = self._hashes.keys() - known or self._of_subset.get(label, known)
            self._of_subset.setdefault(label, set()).update(opened)
        return case

    def _checked(self, case: Case) -> Case:
        """The case. Raises DataError unless its captions and labels are texts that can be kept."""
        labels = case.group.values() if isinstance(case.group, dict) else [case.group]
        texts = [label for label in labels if not isinstance(label, int | None)]
        try:
            for text in (*case.captions, *texts, case.meta.get("positive", "")):
                kinds.text(text)
        except DataError as error:
            raise DataError(f"{self.last_file}: case {case.id}: {error}") from None
        return case

    def _first(self, cases: Iterable[Case]) -> Iterable[Case]:
        if self.count is None or not isinstance(self.origin.cases, Mapping):
            return itertools.islice(cases, self.count)
        # Per subset, else a small count would take the first subset only.
        taken: Counter[str] = Counter()
        first = []
        for case in cases:
            subset = case.group["subset"]
            taken[subset] += 1
            if taken[subset] <= self.count:
                first.append(case)
        return first

    def _differences(self, cases: Sequence[Case]) -> Iterable[str]:
        """Yields a note of empty captions, and one per number of cases that differs from the
        published one; with `count`, one of all."""
        empty = sum(not all(map(str.strip, case.captions)) for case in cases)
        if empty:
            yield f"{empty:,} cases with an empty caption"
        published = self.origin.cases
        if self.count is not None:
            whole = sum(published.values()) if isinstance(published, Mapping) else published
            if whole is not None and len(cases) < whole:
                yield f"{len(cases):,} of {whole:,} cases (count={self.count})"
            return
        if isinstance(published, Mapping):
            numbers = Counter(case.group["subset"] for case in cases)
            for subset in numbers:
                if published.get(subset, numbers[subset]) != numbers[subset]:
                    yield (
                        f"{subset}: {numbers[subset]:,} cases; published are {published[subset]:,}"
                    )
        elif published not in (None, len(cases)):
            yield f"{len(cases):,} cases; published are {published:,}"


Reader = Callable[..., Benchmark]
SETS: dict[str, tuple[Reader, Origin]] = {}  # of the modules that were imported


def reader(read: Reader) -> Reader:
    """Decorator: the reader of a set of sets.csv, named like its function, which has `Files` and
    options.

    The options of `Files` (root, count, folder, images) come first in its signature, then `wording`
    (wordings.py; "": as published). SETS has the reader and its origin.
    """
    signature, origin = inspect.signature(read), ORIGINS[read.__name__]

    @functools.wraps(read)
    def read_set(
        root: str | Path = "",
        count: int | None = None,
        folder: str | Path | None = None,
        images: str | Path | None = None,
        wording: str = "",
        **options: Any,
    ) -> Benchmark:
        # Before files are opened: a TypeError for an unknown option.
        signature.bind(None, **options)
        files = Files(origin, read.__name__, root, count, folder, images)
        try:
            benchmark = read(files, **options)
            return wordings.reworded(benchmark, wording) if wording else benchmark
        except RecursionError:  # of repr in a message, and of whoever walks the value
            raise DataError(f"{files.last_file} has a value nested too deep") from None

    common = [*inspect.signature(Files).parameters.values()][2:]  # without origin and name
    common.append(inspect.Parameter("wording", common[0].kind, default="", annotation=str))
    further = [*signature.parameters.values()][1:]
    read_set.__signature__ = signature.replace(parameters=[*common, *further])  # type: ignore
    SETS[read.__name__] = (read_set, origin)
    return read_set


def _joined(hashes: Iterable[str]) -> str:
    """Hash of one file, or of the sorted hashes of several: names and places do not count."""
    hashes = sorted(hashes)
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def case_id(number: int, *parts: object) -> str:
    """A unique id that is a valid file name."""
    # 80 letters: file systems allow 255 bytes for a name, which gets a suffix and a prefix
    tail = re.sub(r"[^0-9A-Za-z.-]+", "_", "_".join(str(part) for part in parts))[-80:]
    return f"{number:06d}_{tail}"


def row_images(row: tuple[Path, int, Any], *columns: str) -> tuple[PackedImage, ...]:
    """The images in columns of a row of `Files.packed`."""
    return tuple(PackedImage(row[0], row[1], column, None) for column in columns)


def amended(benchmark: Benchmark, *notes: str, version: str = "") -> Benchmark:
    """The benchmark with further notes, and with `version` appended to its version."""
    versions = [benchmark.version, version] if version else [benchmark.version]
    return dataclasses.replace(
        benchmark, version="/".join(versions), notes=(*benchmark.notes, *notes)
    )


def check_options(name: str, values: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for an unknown value of the option `name`."""
    for value in values:
        if value not in known:
            raise ValueError(f"{name} are some of {list(known)}; got {value!r}")
