"""Reports of `vlc-jax check` on parts of the data, and their merged report.

A part's result is JSON of one to a few kilobytes: the report, counts of phrases and, for --words,
of words. Merging keeps one of them in memory, whatever the number of records.
"""

import argparse
import collections
import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import record_validation, stores
from vlc_jax.input_pipeline.commands import parts
from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.record import DataError, Record, Source
from vlc_jax.input_pipeline.sources import shards
from vlc_jax.input_pipeline.tokenizers import word_level

# least shards that a part compares
_SHARDS = 4


@dataclasses.dataclass
class Found:
    """Result of a look.   captions: number of those in which phrases were counted.

    phrases, words: number of captions with each phrase ("": with any), and of each word.
    """

    report: inspection.Report
    captions: int
    phrases: collections.Counter[str]
    words: collections.Counter[str]

    def merged(self, later: "Found") -> "Found":
        """The result of these records and of later ones."""
        # in place: the vocabulary of all parts is not copied for each of them
        self.words.update(later.words)
        self.phrases.update(later.phrases)
        report = self.report.merged(later.report)
        return Found(report, self.captions + later.captions, self.phrases, self.words)

    def to_json(self) -> bytes:
        return json.dumps(vars(self) | {"report": self.report.to_json()}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Found":
        values = stores.parse_json(content)
        report = inspection.Report.from_json(values["report"])
        counts = {name: collections.Counter(values[name]) for name in ("phrases", "words")}
        return cls(report, values["captions"], **counts)


@dataclasses.dataclass(frozen=True)
class Look:
    """The look at a part of the first `number` records, as a function of `parts.Parts`."""

    source: Source
    number: int
    threads: int
    phrases: tuple[str, ...] = ()
    counts_words: bool = False

    def found(self, records: range) -> Found:
        """The result of some records."""
        report = inspection.look(self.source, records, threads=self.threads, number=self.number)
        captions = []
        if self.phrases or self.counts_words:
            captions = [*_captions(self.source, records)]
        words = word_level.count_words(captions if self.counts_words else ())
        return Found(report, len(captions), count_phrases(captions, self.phrases), words)

    def __call__(self, records: range) -> bytes:
        return self.found(records).to_json()


def look(
    function: Look, out: Path, options: argparse.Namespace, engine: parts.Engine | None
) -> Found:
    """The result of all records, with progress. Raises as `parts.run` and `parts.contents`."""
    size = parts.size_of(options, function.number)
    request = {"source": function.source.fingerprint, "phrases": function.phrases}
    request |= {"words": function.counts_words}
    work = parts.Parts(function, out / "records", function.number, size, request)
    parts.run(work, "checking", engine)
    # of no records, in case there are none
    with parts.parsing(work.out):
        results = map(Found.from_json, parts.contents(work))
        result = functools.reduce(Found.merged, results, function.found(range(0)))
    # the next check looks again: files may have changed
    parts.remove(work.out)
    return result


def compare_shards(
    folder: Path, manifest: Mapping[str, Any], out: Path, engine: parts.Engine | None
) -> None:
    """Raises DataError unless every file of a prepared folder has the manifest's sha256."""
    table = manifest["shards"]
    request = {"shards": table.content}
    damaged, size = _Damaged(folder.absolute(), table), parts.even_size(len(table), _SHARDS)
    work = parts.Parts(damaged, out / "sha256", len(table), size, request)
    parts.run(work, "comparing shards", engine)
    wrong = dict[str, str]()
    with parts.parsing(work.out):
        for content in parts.contents(work):
            wrong |= stores.parse_json(content)
    parts.remove(work.out)
    for name, why in wrong.items():
        raise DataError(f"{len(wrong)} of {len(table)} shards: {folder / name}: {why}")


@dataclasses.dataclass(frozen=True)
class _Damaged:
    folder: Path
    shards: Sequence[Mapping[str, Any]]

    def __call__(self, numbers: range) -> bytes:
        entries = [self.shards[number] for number in numbers]
        files = [file for shard in entries for file in (shard, shard["ids"])]
        return json.dumps(shards.damaged_files(self.folder, files)).encode()


def count_phrases(captions: Iterable[str], phrases: Sequence[str]) -> collections.Counter[str]:
    """Number of captions with each phrase, and with any (""), as whole words in any case."""
    patterns = {phrase: edit.whole([phrase]) for phrase in phrases}
    counts = collections.Counter[str]()
    for caption in captions:
        matches = [phrase for phrase, pattern in patterns.items() if pattern.search(caption)]
        counts.update([*matches, ""] if matches else ())
    return counts


def usable(source: Source, records: Iterable[int]) -> Iterator[tuple[Record, list[int]]]:
    """Readable ones of the records, with the positions of their usable captions."""
    for index in records:
        try:
            record = source[index]
            captions = record_validation.captions(record)
        except DataError:
            continue
        yield record, captions


def _captions(source: Source, records: Iterable[int]) -> Iterator[str]:
    for record, captions in usable(source, records):
        yield from (str(record.captions[position]) for position in captions)
