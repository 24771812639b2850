"""Inspection of a source: counts, caption lengths, image sizes, samples, bad records."""

import collections
import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import DataError, Mixed, Record, Source, has_text_only
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer, tokenize

_BAR_WIDTH = 40  # characters of the longest bar of the histogram
# share of unknown-word tokens above which a warning is printed
_UNKNOWN_WARNING = 0.05
# ... and an error raised: a tokenizer of another language or data set
_UNKNOWN_LIMIT = 0.5
# share of captions as long as the context above which a warning is printed
_CUT_WARNING = 0.01
# share of captions with several lines up to which a warning is printed: more are no accident
_LINES_WARNING = 0.01


# samples of a report
_SAMPLES = 4
_COUNTERS = ("counts", "words", "sizes", "kinds")  # fields of a report
# texts by which tables mark a missing one, beside those without a letter or digit ("###")
_MARKERS = ("none", "nan", "null", "n/a")


class Sample(NamedTuple):
    """A usable record for display. captions: positions of its usable captions."""

    record: Record
    pixels: np.ndarray
    captions: list[int]


@dataclass
class Report:
    """Result of an inspection; `str(report)` is the printed text. Its size does not depend on the
    number of records.

    counts: of records that were looked at ("looked_at") and of these "bad", "without_image", with
      "negatives" and with "positives"; of "captions" and of these "several_lines"; of texts that
      are "markers"; with a tokenizer of "tokens", "unknown_tokens" and of "full_captions", which
      reach the context length.
    first: name of such a count -> the first one, with the id of its record; "caption", and "other":
      the first that differs from it.
    kinds: "SIDE/KIND" -> hard texts.   sampled: usable records spread over the source.   spare:
      other ones, in place of bad ones.   text_versions: of stored texts.
    """

    total: int  # records of the source
    wordless: str = ""  # a class that is no word, if most are (record_validation.wordless)
    context_length: int = 0
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    first: dict[str, str] = field(default_factory=dict)
    last_bad: str = ""  # "id: reason", as first["bad"]
    words: collections.Counter[int] = field(default_factory=collections.Counter)  # per caption
    sizes: collections.Counter[str] = field(default_factory=collections.Counter)  # of images
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    sampled: list[int] = field(default_factory=list)
    spare: list[int] = field(default_factory=list)
    text_versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def merged(self, later: "Report") -> "Report":
        """The report of these records and of later ones of the same source."""
        return dataclasses.replace(
            self,
            wordless=self.wordless or later.wordless,
            first={"other": later.first.get("caption", "")} | later.first | self.first,
            last_bad=later.last_bad or self.last_bad,
            sampled=self.sampled + later.sampled,
            spare=(self.spare + later.spare)[:_SAMPLES],
            **{name: getattr(self, name) + getattr(later, name) for name in _COUNTERS},
        )

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> "Report":
        values = json.loads(text)
        values["words"] = {int(number): count for number, count in values["words"].items()}
        return cls(**values | {name: collections.Counter(values[name]) for name in _COUNTERS})

    def check_hard_texts(self, sides: Mapping[str, HardTexts]) -> None:
        """Checks the stored hard texts against the sides that training draws from.

        Raises DataError if a side draws from records only and no inspected record has texts, or
        none of a kind that it draws; ValueError if stored texts were made by another version of
        their generator.
        """
        sampling.check_stored(
            {side: texts.generators for side, texts in sides.items()}, self.text_versions
        )
        looked_at = self.counts["looked_at"]
        is_part = looked_at < self.total
        more = "; training looks at more of them with config.input.preview=N" if is_part else ""
        for side, texts in sides.items():
            names = [*texts.shares]
            has = dict.fromkeys(names, self.counts[side])
            has[sampling.OTHER_CAPTIONS] = self.counts["captions"] > looked_at
            is_without = not texts.generators and not any(has[name] for name in names)
            if texts.count and looked_at and is_without:
                raise DataError(
                    f"{side}: {texts.count} texts {' or '.join(map(repr, names))} are required, "
                    f"but none of the {looked_at:,} records looked at has any; name a "
                    f"generator in `generators`, or a column that holds them{more}"
                )
            prefix = f"{sampling.FROM_RECORD}:"
            wanted = [name for name in names if name.startswith(prefix)] if texts.count else []
            found = self._kinds_of(side)
            lacking = [name for name in wanted if name.removeprefix(prefix) not in found]
            if looked_at and lacking:
                raise DataError(
                    f"{side}: none of the {looked_at:,} records looked at has a text for "
                    f"{' and '.join(map(repr, lacking))}; their kinds are {sorted(found)}, which "
                    f"the source's option {side.removesuffix('s')}_kinds_column reads{more}"
                )

    def unused(self, sides: Mapping[str, HardTexts]) -> list[str]:
        """Warnings of sides that take none of the stored hard texts."""
        return [
            f"the {side} in {self.counts[side]:,} of {self.counts['looked_at']:,} records, kinds "
            f"{sorted(self._kinds_of(side))}, are not used, since input.{side}.generators are "
            f"{[*texts.shares]}; {sampling.FROM_RECORD!r} takes texts of any kind"
            for side, texts in sides.items()
            if texts.count
            and self.counts[side]
            and not self._kinds_of(side) & {*texts.shares}
            and not any(name.startswith(sampling.FROM_RECORD) for name in texts.shares)
        ]

    def _kinds_of(self, side: str) -> set[str]:
        return {kind.partition("/")[2] for kind in self.kinds if kind.startswith(f"{side}/")}

    def check_tokenizer(self) -> None:
        """Raises ValueError if the tokenizer does not know most of the words."""
        unknown, tokens = self.counts["unknown_tokens"], self.counts["tokens"]
        if unknown > _UNKNOWN_LIMIT * tokens:
            raise ValueError(
                f"{unknown / tokens:.0%} of the tokens of the first captions "
                'stand for words that the tokenizer does not know: choose another one ("bytes" '
                'knows all; vlc-jax check --words writes a list for "words")'
            )

    def __str__(self) -> str:
        counts = self.counts
        usable_records = counts["looked_at"] - counts["bad"]
        lines = [
            f"{counts['looked_at']:,} of {self.total:,} records looked at: "
            f"{usable_records:,} usable, {counts['bad']:,} bad"
        ]
        if usable_records:
            lines.append(
                f"{counts['captions']:,} captions ({counts['captions'] / usable_records:.2f} per "
                f"record), negatives in {counts['negatives']:,} records, positives in "
                f"{counts['positives']:,}"
            )
            common = ", ".join(f"{size} ({n:,})" for size, n in self.sizes.most_common(3))
            lines.append(f"image sizes: {len(self.sizes):,} different, most often {common}")
            if counts["without_image"]:
                lines.append(f"{counts['without_image']:,} records without an image")
            lines += ["words per caption:", *histogram(self.words)]
        lines += [f"warning: {warning}" for warning in self.warnings()]
        if counts["bad"]:
            lines.append(f"first bad record: {self.first['bad']}")
        return "\n".join(lines)

    def warnings(self) -> list[str]:
        """Warnings about data that can be used but are probably not as intended."""
        lines, counts, captions = [], self.counts, self.counts["captions"]
        if self.wordless:
            lines.append(
                f"classes such as {self.wordless!r} are no words, and their captions have these "
                "names: name the folders of classes (or links to them) by words, or train on a "
                "table of captions"
            )
        if counts["unknown_tokens"] > _UNKNOWN_WARNING * counts["tokens"]:
            lines.append(
                f"{counts['unknown_tokens'] / counts['tokens']:.0%} of the tokens stand for words "
                "unknown to the tokenizer: all of them look the same to the model"
            )
        if counts["full_captions"] > _CUT_WARNING * captions:
            lines.append(
                f"{counts['full_captions'] / captions:.0%} of the captions reach the context "
                f"length of {self.context_length} tokens and may be cut"
            )
        if self.first.get("other", "") in ("", self.first.get("caption")) and captions > 1:
            lines.append(
                f"all {captions:,} captions are {self.first['caption']!r:.60}: nothing can be "
                "learned from them; is it the right caption_column?"
            )
        count = counts["several_lines"]
        if 0 < count <= max(1, _LINES_WARNING * captions):
            lines.append(
                f"{count:,} of {captions:,} captions have several lines, the first that of "
                f"{self.first['several_lines']}; if a quotation mark is not closed there, set "
                "quoting=False"
            )
        if counts["markers"]:
            lines.append(
                f"{counts['markers']:,} captions and hard texts say nothing, first "
                f"{self.first['markers']}, and are trained on as they are: where a text is missing "
                "leave the cell empty"
            )
        return lines


def histogram(counts: collections.Counter[int], lines: int = 10) -> list[str]:
    """Histogram of lengths as text bars; neighbouring lengths share a bar."""
    low, high = min(counts), max(counts)
    width = max(1, math.ceil((high - low + 1) / lines))
    bars: collections.Counter[int] = collections.Counter()
    for length, count in counts.items():
        bars[(length - low) // width] += count
    most = max(bars.values())
    text = []
    for bar in range((high - low) // width + 1):
        start = low + bar * width
        label = f"{start}" if width == 1 else f"{start}-{start + width - 1}"
        blocks = "#" * math.ceil(_BAR_WIDTH * bars[bar] / most)
        text.append(f"{label:>9} {blocks:<{_BAR_WIDTH}} {bars[bar]:,}")
    return text


def inspect(
    source: Source,
    tokenizer: Tokenizer | None = None,
    image_transform: ImageTransform | None = None,
    *,
    count: int | None = None,
    threads: int = 2,
) -> Report:
    """Reads the first `count` records (default: all) in order, images decoded; of a mixture, the
    first ones of every part.
    """
    return look(source, _first(source, count), tokenizer, image_transform, threads)


def look(
    source: Source,
    indices: Sequence[int],
    tokenizer: Tokenizer | None = None,
    image_transform: ImageTransform | None = None,
    threads: int = 2,
    number: int | None = None,
) -> Report:
    """The report of these records.

    number: of records of all parts, of which these are one; their reports are `merged`.
    """
    wordless = record_validation.wordless(getattr(source, "classes", ()))
    report = Report(len(source), wordless, text_versions=sampling.stored_versions(source))
    number = len(indices) if number is None else number
    # Four samples, spread evenly; spare ones replace samples that turn out bad.
    spread = [round(i * max(0, number - 1) / (_SAMPLES - 1)) for i in range(_SAMPLES)]
    all_parts = range(number) if isinstance(indices, range) else indices
    sampled = {all_parts[position] for position in spread} if number else set[int]()

    def read(index: int) -> tuple[str, Sample | None, str]:
        name = f"record {index}"
        try:
            record = source[index]
            name = record.id
            return name, _sample(source, record, image_transform), ""
        except DataError as error:
            return name, None, str(error)

    # Threads read ahead, but the report is filled in order: the same data give the same report.
    for index, (name, sample, reason) in zip(indices, _ahead(read, indices, threads), strict=True):
        report.counts["looked_at"] += 1
        if sample is None:
            report.counts["bad"] += 1
            report.last_bad = f"{name}: {reason}"
            report.first.setdefault("bad", report.last_bad)
            continue
        _count(report, sample, tokenizer)
        if index in sampled:
            report.sampled.append(index)
        elif len(report.spare) < _SAMPLES:
            report.spare.append(index)
    return report


def samples(source: Source, report: Report) -> list[Sample]:
    """Four usable records spread over the source, read again."""
    indices = (report.sampled + report.spare)[:_SAMPLES]
    return [_sample(source, source[index], None) for index in indices]


def _sample(source: Source, record: Record, image_transform: ImageTransform | None) -> Sample:
    """Raises DataError for a record that cannot be used."""
    captions = record_validation.captions(record)
    if record.image is None and has_text_only(source):
        return Sample(record, np.zeros((1, 1, 3), np.uint8), captions)
    if image_transform is None:
        return Sample(record, image_ops.decode(record.image), captions)
    # random crops need random numbers; any will do here
    pixels = image_transform(record.image, np.random.default_rng(0))
    return Sample(record, pixels, captions)


def _first(source: Source, count: int | None) -> Sequence[int]:
    if count is None or not isinstance(source, Mixed):
        return range(len(source) if count is None else min(count, len(source)))
    indices, start = list[int](), 0
    for part in source.parts:
        indices += range(start, start + min(-(-count // len(source.parts)), len(part)))
        start += len(part)
    return indices


def preview(
    source: Source,
    tokenizer: Tokenizer | None,
    image_transform: ImageTransform | None,
    count: int = 256,
    max_bad_share: float = 0.01,
) -> Report:
    """Inspects the first `count` records; training does so before it compiles anything.

    Raises DataError if the bad records exceed `max_bad_share` of the source or, if only a part was
    read, that share of the part by more than three standard deviations: an unlucky beginning does
    not refuse an acceptable source.
    """
    report = inspect(source, tokenizer, image_transform, count=count)
    check_report(report, max_bad_share)
    return report


def check_report(report: Report, max_bad_share: float) -> None:
    """Raises DataError if too many records are bad; see `preview`."""
    limit, looked_at = max_bad_share * report.total, report.counts["looked_at"]
    if looked_at < report.total:
        # mean and, nearly, variance of a binomial
        expected = max_bad_share * looked_at
        limit = min(limit, expected + 3 * math.sqrt(expected))
    record_validation.check_count(report.counts["bad"], report.last_bad, limit, looked_at)


def _count(report: Report, sample: Sample, tokenizer: Tokenizer | None) -> None:
    record, pixels, captions = sample
    texts = [record.captions[position] for position in captions]
    counts = report.counts
    counts["captions"] += len(texts)
    if several := sum(isinstance(text, str) and "\n" in text for text in texts):
        counts["several_lines"] += several
        report.first.setdefault("several_lines", record.id)
    for text in map(str, texts):
        if text != report.first.setdefault("caption", text):
            report.first.setdefault("other", text)
    report.words.update(len(str(text).split()) for text in texts)
    if record.image is None:
        counts["without_image"] += 1
    else:
        # a single number for pooled features
        report.sizes["x".join(map(str, pixels.shape[1::-1]))] += 1
    for text in [*texts, *itertools.chain(*record.negatives, *record.positives)]:
        if isinstance(text, str) and _is_marker(text):
            counts["markers"] += 1
            report.first.setdefault("markers", f"{text!r} of {record.id}")
    for side in ("negatives", "positives"):
        counts[side] += _has_others(record, getattr(record, side))
        kinds = {*itertools.chain(*getattr(record, f"{side.removesuffix('s')}_kinds"))}
        report.kinds.update(f"{side}/{kind}" for kind in kinds)
    if tokenizer is None:
        return
    # also of vectors: raises DataError for a text that has none
    tokens = tokenize(tokenizer, texts)["text"]
    if tokenizer.width:
        return
    report.context_length = tokenizer.context_length
    is_end = tokens == tokenizer.eos_id
    # the end token may be the padding, too (SigLIP): then only the first one ends the text
    counts["full_captions"] += int((is_end[:, -1] & ~is_end[:, :-1].any(axis=1)).sum())
    if tokenizer.unk_id is not None:
        special = (tokens == tokenizer.pad_id) | (tokens == tokenizer.eos_id)
        counts["tokens"] += int((~special).sum())
        counts["unknown_tokens"] += int(((tokens == tokenizer.unk_id) & ~special).sum())


def _is_marker(text: str) -> bool:
    """True for a text that is not blank and stands for a missing one."""
    has_letters = any(map(str.isalnum, text))
    return text.lower() in _MARKERS or (bool(text) and not has_letters)


def _has_others(record: Record, texts: Sequence[Sequence[str]]) -> bool:
    """True if a hard text differs from its caption; an equal one is never drawn."""
    pairs = zip(record.captions, texts, strict=False)
    return any(text != str(caption) for caption, each in pairs for text in each)


def _ahead(function: Any, items: Iterable[Any], threads: int) -> Iterator[Any]:
    """`map` in threads, in order, holding only a few results at a time."""
    items = iter(items)
    with futures.ThreadPoolExecutor(threads) as pool:
        pending = collections.deque(
            pool.submit(function, item) for item in itertools.islice(items, 4 * threads)
        )
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(function, item) for item in itertools.islice(items, 1))
            yield result
