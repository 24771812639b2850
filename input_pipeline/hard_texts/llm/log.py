"""Log of answers of a language model: each on disk as it comes, the results in caption order."""

import collections
import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from input_pipeline.hard_texts.llm import prompts
from input_pipeline.hard_texts.llm.prompts import Answer
from input_pipeline.record import DataError

RAW, SUMMARY = "raw.jsonl", "summary.json"
_FORMAT_VERSION = 1
# What reading a damaged file raises; RecursionError: nested brackets without end.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_EVERY = 1.0  # seconds between two states of the progress line of a terminal
_EVERY_IN_A_FILE = 60.0  # and between two lines of progress elsewhere

Prices = tuple[float | None, float | None]  # of a million tokens: of prompts, of answers


def cost(tokens: tuple[int, int], prices: Prices) -> float | None:
    """Cost of the tokens in the currency of the prices; None where no price is given."""
    if prices == (None, None):
        return None
    return sum(count * (price or 0.0) / 1e6 for count, price in zip(tokens, prices, strict=True))


class Log:
    """The answers so far; `index in log` says if caption `index` has one, usable or not."""

    def __init__(
        self, out: Path, request: dict[str, Any], captions: Sequence[str], prices: Prices, raw: int
    ) -> None:
        self.tokens = (0, 0)  # of prompts, of answers
        self.missing = 0  # answers that hold no hard positive
        self.prices = prices
        self._out, self._request, self._captions, self._raw = out, request, captions, raw
        self._unfit = prompts.KINDS[request["kind"]].unfit
        self._texts: dict[int, str | None] = {}
        self._reasons: dict[int, str] = {}  # why a text is None
        self._models: collections.Counter[str] = collections.Counter()
        self._endpoints: list[str] = []

    def __contains__(self, index: int) -> bool:
        return index in self._texts

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, index: int, answer: Answer) -> None:
        """Stores an answer: once this returns, killing the process does not lose it."""
        line = json.dumps({"line": index + 1, **answer._asdict()}).encode() + b"\n"
        written = os.write(self._raw, line)
        if written != len(line):  # nothing may be appended to a piece of a line
            os.ftruncate(self._raw, os.fstat(self._raw).st_size - written)
            raise OSError(f"cannot write all of an answer to {self._out / RAW}; is the disk full?")
        self._count(index, answer)

    def begin(self, base_url: str) -> None:
        """Writes the summary with the endpoint that is about to be asked."""
        if base_url not in self._endpoints:
            self._endpoints.append(base_url)
        self.save()

    def finish(self, count: int) -> str:
        """Writes the result for at least the first `count` captions; returns a line to print.

        A run with a smaller limit does not shorten what an earlier one wrote.
        """
        while count < len(self._captions) and (
            count in self._texts or self._unfit(self._captions[count])
        ):
            count += 1
        texts = [self._texts.get(index) for index in range(count)]
        path = self._out / f"{self._request['kind']}_hp.jsonl"
        lines = (json.dumps(prompts.MISSING if text is None else text) for text in texts)
        _write(path, "".join(f"{line}\n" for line in lines))
        self.save(count)
        written = count - texts.count(None)
        return f"{written:,} hard positives of {count:,} captions; {self.state()}: {path}"

    def state(self) -> str:
        """Tokens, cost and unusable answers in one line."""
        price = cost(self.tokens, self.prices)
        return (
            f"{self.tokens[0]:,} tokens in, {self.tokens[1]:,} out"
            + ("" if price is None else f", cost {price:,.2f}")
            + f", {self.missing:,} of {len(self):,} answers unusable"
        )

    def save(self, count: int | None = None) -> None:
        """The summary; `count` is the number of lines of the result where there is one."""
        covered = range(len(self._captions) if count is None else count)
        missing = collections.Counter(
            self._reasons.get(index) or self._unfit(self._captions[index])
            for index in covered
            if self._texts.get(index) is None
        )
        missing.pop(None, None)  # not asked yet
        summary = {
            "format_version": _FORMAT_VERSION,
            "complete": count == len(self._captions),
            "lines": count,
            "answers": len(self),
            "hard_positives": sum(self._texts.get(index) is not None for index in covered),
            "missing": dict(missing.most_common()),
            "tokens": {"in": self.tokens[0], "out": self.tokens[1]},
            "prices_per_million_tokens": {"in": self.prices[0], "out": self.prices[1]},
            "cost": cost(self.tokens, self.prices),
            "endpoints": self._endpoints,
            "models_that_answered": dict(self._models),
            "request": self._request,
        }
        _write(self._out / SUMMARY, json.dumps(summary, indent=1) + "\n")

    def read(self) -> None:
        """Continues an earlier run. Raises ValueError for another request, DataError for damage."""
        path, raw = self._out / SUMMARY, self._out / RAW
        if not path.exists():
            if raw.stat().st_size:
                raise DataError(f"{raw} has answers but {path} is missing; choose another folder")
            return
        try:
            summary = json.loads(path.read_text("utf-8"))
            before, self._endpoints = summary["request"], [*summary["endpoints"]]
            differing = [key for key in self._request if before[key] != self._request[key]]
        except _DAMAGE as error:
            raise DataError(f"{path} is damaged ({error!r}); choose another folder") from error
        if differing:
            key = differing[0]
            raise ValueError(
                f"{self._out} was begun with another request: {key} was {str(before[key])[:80]!r}, "
                f"is {str(self._request[key])[:80]!r}; use the same options or another folder"
            )
        self._read_answers(raw)

    def _read_answers(self, path: Path) -> None:
        whole = 0  # bytes
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # written when the process was killed
                whole += len(line)
                try:
                    entry = json.loads(line)
                    index = entry.pop("line") - 1
                    if not 0 <= index < len(self._captions):
                        raise ValueError(f"there is no caption {index + 1}")
                    self._count(index, Answer(**entry))
                except _DAMAGE as error:
                    raise DataError(
                        f"row {number} of {path} is damaged ({error!r}); remove the row, and its "
                        "caption is asked about again"
                    ) from error
        os.ftruncate(self._raw, whole)

    def _count(self, index: int, answer: Answer) -> None:
        text, reason = prompts.clean(answer, self._captions[index])
        self._texts[index] = text
        if reason is not None:
            self._reasons[index] = reason
            self.missing += 1
        self.tokens = (
            self.tokens[0] + answer.prompt_tokens,
            self.tokens[1] + answer.completion_tokens,
        )
        self._models[answer.model or "unnamed"] += 1


@contextlib.contextmanager
def open_log(
    out: Path, request: dict[str, Any], captions: Sequence[str], prices: Prices
) -> Iterator[Log]:
    """The log of a new or a stopped run; no other process may write to it meanwhile.

    Raises ValueError where the folder is in use or of another request, DataError for damage.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder")
    if out.exists() and (others := {entry.name for entry in out.iterdir()}) and RAW not in others:
        raise ValueError(f"{out} is not empty (it holds {min(others)}); choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    raw = os.open(out / RAW, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)  # dies with the process
        except OSError as error:
            raise ValueError(f"another process writes to {out}; wait for it or stop it") from error
        log = Log(out, request, captions, prices, raw)
        log.read()
        yield log
        os.fsync(raw)
    finally:
        os.close(raw)


class Meter:
    """Progress on stderr: a line that changes on a terminal, a line per minute in a file."""

    def __init__(self, log: Log, total: int) -> None:
        self._log, self._total = log, total
        self._begun, self._answers = time.monotonic(), len(log)
        self._is_terminal = sys.stderr.isatty()
        self._next = self._begun + _EVERY

    def show(self) -> None:
        """Prints the progress if it is due."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_EVERY if self._is_terminal else _EVERY_IN_A_FILE)
        rate = (len(self._log) - self._answers) / (now - self._begun)
        left = max(self._total - len(self._log), 0) / rate if rate else float("inf")
        text = (
            f"{len(self._log):,} of {self._total:,} answers, {rate:,.1f} per second, "
            f"{_duration(left)} left, {self._log.state()}"
        )
        if self._is_terminal:  # a line that wraps could not be written over
            text = f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}"
        else:
            text += "\n"
        print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Ends the line of a terminal."""
        if self._is_terminal:
            print(file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "unknown time"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _write(path: Path, text: str) -> None:
    """Writes a file atomically: a killed process leaves the old one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
