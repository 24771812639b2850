"""Captions that are left out when data are prepared, by length, language and list, with numbers."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.record import (
    Caption,
    Conversation,
    DataError,
    Record,
    Source,
    has_text_only,
)
from vlc_jax.input_pipeline.sources.table_index import sha256
from vlc_jax.input_pipeline.stores import text_file

# lists of a record with an item per caption, or none
_PER_CAPTION = (
    "captions",
    "negatives",
    "positives",
    "negative_kinds",
    "positive_kinds",
    "questions",
    "caption_weights",
)


class LeftOut(DataError):  # noqa: N818 -- no error: it is counted
    """A record of whose captions none is left. counts: of FilteredRecord.left_out."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        super().__init__(f"all captions are left out: {counts}")
        self.counts = counts


@dataclasses.dataclass(frozen=True)
class FilteredRecord(Record):
    """A record without some of its captions. left_out: reason -> number of these."""

    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)


class FilteredSource:
    """A source without the captions that are too short, too long or of another language.

    min_words, max_words: parts between white space, of all turns of a conversation; None: any.
    languages: codes; "en" takes "EN" and "en-GB", too. Empty: any.   language_field: field of
    `Record.meta` with the language: one, or one per caption.
    exclude: a text file of ids of records, one per line, as `vlc-jax leaks --pixels` writes it.

    Reading a record raises LeftOut if no caption is left, DataError for a record without its
    language. `request` has the filters. Raises ValueError for numbers that leave nothing.
    """

    def __init__(
        self,
        source: Source,
        *,
        min_words: int | None = None,
        max_words: int | None = None,
        languages: Sequence[str] = (),
        language_field: str = "",
        exclude: str | Path | None = None,
    ) -> None:
        if max_words is not None and max_words < max(min_words or 0, 1):
            raise ValueError(f"captions of {min_words or 0} to {max_words} words: there are none")
        self._source, self._min, self._max = source, min_words or 0, max_words
        self._languages = [language.casefold() for language in languages]
        self._field = language_field
        self.request = {"min_words": min_words, "max_words": max_words}
        self.request |= {"languages": [*languages], "language_field": language_field}
        self._excluded = frozenset[str]()
        if exclude is not None:
            if not Path(exclude).is_file():
                raise ValueError(
                    f"exclude: no file {exclude}; vlc-jax leaks --write FILE makes such a list"
                )
            self._excluded = frozenset(map(str.strip, text_file.lines(Path(exclude))))
            self.request["exclude"] = sha256(Path(exclude))
        self.has_text_only = has_text_only(source)
        self.text_versions = sampling.stored_versions(source)
        # without the filters, which `request` names
        self.fingerprint = source.fingerprint

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Record:
        record = self._source[index]
        if record.id in self._excluded:
            raise LeftOut({"excluded": len(record.captions)})
        reasons = [self._reason(*each) for each in self._with_languages(record)]
        counts = Counter(filter(None, reasons))
        if not counts:
            return record
        if counts.total() == len(reasons):
            raise LeftOut(counts)
        fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
        for name in _PER_CAPTION:
            if fields[name]:
                pairs = zip(fields[name], reasons, strict=True)
                fields[name] = [value for value, reason in pairs if not reason]
        return FilteredRecord(**fields, left_out=counts)

    def _with_languages(self, record: Record) -> list[tuple[Caption, str]]:
        captions = record.captions
        if not self._languages:
            return [(caption, "") for caption in captions]
        stored: Any = record.meta.get(self._field)
        languages = [stored] * len(captions) if isinstance(stored, str) else stored
        is_list = isinstance(languages, list) and len(languages) == len(captions)
        if not is_list or not all(isinstance(each, str) for each in languages):
            raise DataError(
                f"{self._field!r} of a record is a language, or one per caption; {record.id} has "
                f"{len(captions)} captions and {stored!r:.80}"
            )
        return [*zip(captions, languages, strict=True)]

    def _reason(self, caption: Caption, language: str) -> str:
        """Why a caption is left out; "" if it stays."""
        if isinstance(caption, Conversation):
            caption = " ".join(text for turn in caption.turns for text in turn)
        words = len(caption.split())
        if words < self._min:
            return "short"
        if self._max is not None and words > self._max:
            return "long"
        code = language.casefold().replace("_", "-")
        is_kept = any(f"{code}-".startswith(f"{each}-") for each in self._languages)
        return "" if is_kept or not self._languages else "language"
