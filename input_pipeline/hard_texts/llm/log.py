"""Log of a language model's answers, written on arrival; results are in caption order."""

import collections
import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.hard_texts.llm.answers import Answer, Text
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS
from vlc_jax.input_pipeline.record import DataError

RAW, SUMMARY, TABLE = "raw.jsonl", "summary.json", "table.jsonl"
MISSING = "None"  # a caption without text, in the authors' files
_FORMAT_VERSION = 2
# Version of the parsers in `answers`, a part of the version of texts: raise it with their rules.
_READING = 1
_EXAMPLES, _LETTERS = 3, 200  # unusable answers per reason in the summary; characters of each
# Exceptions of reading a damaged file; RecursionError: deeply nested brackets.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Prices(NamedTuple):
    """Prices per million tokens of prompts and of answers, in any currency; None: unknown."""

    prompts: float | None = None
    answers: float | None = None

    def cost(self, prompts: int, answers: int) -> float | None:
        """Cost of numbers of tokens; None without prices."""
        if self == (None, None):
            return None
        return (prompts * (self.prompts or 0.0) + answers * (self.answers or 0.0)) / 1e6


def version(request: Mapping[str, Any]) -> str:
    """Kind and hash of everything but the captions that determines texts: "dac_dense/1f0c...".

    It changes with the prompt, the model, the sampling and the parsers.
    """
    deciding = {k: v for k, v in request.items() if not k.startswith("captions") and k != "prompt"}
    text = json.dumps([_READING, deciding], sort_keys=True)
    return f"{request['kind']}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Log:
    """The answers so far; `index in log`: caption `index` has an answer, usable or not.

    raw: file descriptor of RAW.
    """

    def __init__(
        self,
        out: Path,
        request: Mapping[str, Any],
        captions: Sequence[str],
        prices: Prices,
        raw: int,
    ) -> None:
        self._out, self._request, self._captions, self._raw = out, request, captions, raw
        self._prices, self._tokens = prices, (0, 0)  # of prompts, of answers
        self._preset = PRESETS[request["kind"]]
        # Only the place of each answer: lists of sentences for millions of captions are gigabytes.
        self._offsets = np.full(len(captions), -1, np.int64)  # of answers in the file; -1: none
        self._end = self._texts = 0  # size of the file in bytes; number of texts
        self._reasons: dict[int, str] = {}  # why an answer has no text
        self._examples: dict[str, list[dict[str, Any]]] = {}  # of unusable answers, by reason
        self._models: collections.Counter[str] = collections.Counter()
        self._endpoints: list[str] = []
        self._read_earlier()

    def __contains__(self, index: int) -> bool:
        return self._offsets[index] >= 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._offsets >= 0))

    def begin(self, where: str) -> None:
        """Writes the summary with the model's address or folder.

        Before the first question: answers of an unknown request could not be continued.
        """
        if where not in self._endpoints:
            self._endpoints.append(where)
        self.save()

    def add(self, index: int, answer: Answer) -> None:
        """Stores an answer; afterwards it survives a kill of the process."""
        line = json.dumps({"line": index + 1, **answer._asdict()}).encode() + b"\n"
        written = os.write(self._raw, line)
        # One write call per line: of a killed process the log has whole lines and perhaps a part of
        # the last. A line that a full disk cut must go, or a later one would continue it.
        if written != len(line):
            os.ftruncate(self._raw, os.fstat(self._raw).st_size - written)
            raise OSError(f"cannot write all of an answer to {self._out / RAW}; is the disk full?")
        self._count(index, answer, len(line))

    def finish(self, count: int, rows: Iterable[tuple[dict[str, Any], dict[int, str]]]) -> str:
        """Writes the results for at least the first `count` captions; returns a line to print.

        Results of an earlier run with a larger limit stay in the files. rows: as `captions.rows`.
        """
        while count < len(self._captions) and (
            count in self or self._preset.unfit(self._captions[count])
        ):
            count += 1
        path = self._out / TABLE
        with (self._out / RAW).open("rb") as raw:
            with stores.replacing(path) as file:
                for row, captions in rows:
                    if all(index < count for index in captions):
                        lists = [self._texts_of(raw, index) for index in captions]
                        file.write(json.dumps(row | self._cells(lists)) + "\n")
            if self._preset.lines:
                path = self._out / self._preset.lines
                with stores.replacing(path) as file:
                    for index in range(count):
                        texts = self._texts_of(raw, index)
                        file.write(json.dumps(texts[0].text if texts else MISSING) + "\n")
        self.save(count)
        cost = self._prices.cost(*self._tokens)
        return (
            f"{len(self) - len(self._reasons):,} of {count:,} captions have texts, "
            f"{self._texts:,} in all; {self._tokens[0]:,} tokens in, {self._tokens[1]:,} out"
            + ("" if cost is None else f", cost {cost:,.2f}")
            + f", {len(self._reasons):,} of {len(self):,} answers unusable: {path}"
        )

    def _texts_of(self, raw: Any, index: int) -> list[Text]:
        if index not in self:
            return []
        raw.seek(self._offsets[index])
        return self._preset.read(_entry(raw.readline())[1], self._captions[index])[0]

    def _cells(self, lists: list[list[Text]]) -> dict[str, Any]:
        """The cells of a row with its captions' texts, in the format of the source `records`."""
        name = version(self._request)

        def cell(of: Callable[[Text], Any]) -> list[Any]:
            # a row with one caption has a list of texts, as the source `records` reads it
            values = [[of(text) for text in texts] for texts in lists]
            return values if len(values) != 1 else values[0]

        cells: dict[str, Any] = {"positives": cell(lambda text: text.text), "positive_kinds": name}
        if any(text.kind for texts in lists for text in texts):
            cells["positive_kinds"] = cell(lambda text: f"{name}:{text.kind}")
        if self._preset.has_foils:
            cells |= {"negatives": cell(lambda text: text.foil)}
            cells |= {"negative_kinds": cells["positive_kinds"]}
        return cells

    def save(self, count: int | None = None) -> None:
        """Writes the summary; `count`: number of captions in the results, None before `finish`."""
        covered = range(len(self._captions) if count is None else count)
        missing = collections.Counter(
            self._reasons.get(index) or self._preset.unfit(self._captions[index])
            for index in covered
            if index in self._reasons or index not in self
        )
        # neither a reason nor an answer: not asked yet
        missing.pop(None, None)
        summary = {
            "format_version": _FORMAT_VERSION,
            "version": version(self._request),
            "complete": count == len(self._captions),
            "lines": count,
            "answers": len(self),
            "captions_with_texts": len(self) - len(self._reasons),
            "texts": self._texts,
            "missing": dict(missing.most_common()),
            "unusable_answers": self._examples,
            "tokens": {"in": self._tokens[0], "out": self._tokens[1]},
            "prices_per_million_tokens": {"in": self._prices.prompts, "out": self._prices.answers},
            "cost": self._prices.cost(*self._tokens),
            "endpoints": self._endpoints,
            "models_that_answered": dict(self._models),
            "request": self._request,
        }
        with stores.replacing(self._out / SUMMARY) as file:
            file.write(json.dumps(summary, indent=1) + "\n")

    def _read_earlier(self) -> None:
        """Continues an earlier run. Raises ValueError for another request, DataError for damage."""
        path, raw = self._out / SUMMARY, self._out / RAW
        if not path.exists():
            if raw.stat().st_size:
                raise DataError(f"{raw} has answers but {path} is missing; choose another folder")
            return
        try:
            summary = json.loads(path.read_text("utf-8"))
            before, self._endpoints = summary["request"], [*summary["endpoints"]]
            differing = [key for key, now in self._request.items() if before.get(key) != now]
        except _DAMAGE as error:
            raise DataError(f"{path} is damaged ({error!r}); choose another folder") from error
        if differing:
            key = differing[0]
            raise ValueError(
                f"{self._out} was begun with another request: {key} was "
                f"{str(before.get(key))[:80]!r}, is {str(self._request[key])[:80]!r}; use the same "
                "options or another folder"
            )
        with raw.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    # the process was killed in the middle of this write
                    break
                try:
                    index, answer = _entry(line)
                    if not 0 <= index < len(self._captions):
                        raise ValueError(f"there is no caption {index + 1}")
                    self._count(index, answer, len(line))
                except _DAMAGE as error:
                    raise DataError(
                        f"row {number} of {raw} is damaged ({error!r}); remove the row, and the "
                        "model is asked about its caption again"
                    ) from error
        os.ftruncate(self._raw, self._end)

    def _count(self, index: int, answer: Answer, size: int) -> None:
        texts, reason = self._preset.read(answer, self._captions[index])
        if index not in self:
            self._offsets[index] = self._end
            self._texts += len(texts)
            if reason is not None:
                self._reasons[index] = reason
                examples = self._examples.setdefault(reason, [])
                if len(examples) < _EXAMPLES:
                    about = {"caption": self._captions[index], "answer": answer.text or ""}
                    cut = {key: text[:_LETTERS] for key, text in about.items()}
                    examples.append({"line": index + 1, **cut})
        self._end += size
        prompts, answers = self._tokens
        self._tokens = prompts + answer.prompt_tokens, answers + answer.completion_tokens
        self._models[answer.model or "unnamed"] += 1


@contextlib.contextmanager
def open_log(
    out: Path, request: Mapping[str, Any], captions: Sequence[str], prices: Prices
) -> Iterator[Log]:
    """Context manager: the log of a new or interrupted run, locked against other processes.

    Raises ValueError if the folder is in use or belongs to another request, DataError for damage.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder")
    if out.exists() and (others := {entry.name for entry in out.iterdir()}) and RAW not in others:
        raise ValueError(f"{out} is not empty (it holds {min(others)}); choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    with (out / RAW).open("ab", buffering=0) as raw:
        try:
            # the kernel releases it when the process ends, however it ends
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"another process writes to {out}; wait for it or stop it") from error
        log = Log(out, request, captions, prices, raw.fileno())
        try:
            yield log
        except BaseException:
            # counts and reasons are what a user looks at before the next start
            log.save()
            raise
        finally:
            os.fsync(raw)


def _entry(line: bytes) -> tuple[int, Answer]:
    """(caption index, answer) of a line of the log."""
    fields = json.loads(line)
    return fields.pop("line") - 1, Answer(**fields)
