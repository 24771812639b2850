"""Texts in the answers of a language model, in the order of their captions."""

import collections
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.hard_texts.llm.answers import Text
from vlc_jax.input_pipeline.hard_texts.llm.batch import Answers
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS

SUMMARY, TABLE = "summary.json", "table.jsonl"
MISSING = "None"  # a caption without text, in the authors' files
_FORMAT_VERSION = 3
# Version of the parsers in `answers`, a part of the version of texts: raise it with their rules.
_READING = 1
_EXAMPLES, _LETTERS = 3, 200  # unusable answers per reason in the summary; characters of each


def version(request: Mapping[str, Any], models: Iterable[str]) -> str:
    """Kind and hash of everything but the captions that determines texts: "dac_dense/1f0c...".

    It changes with the prompt, the model, the sampling and the parsers. models: those that
    answered, since a name such as gpt-4o-mini stands for several.
    """
    deciding = {k: v for k, v in request.items() if not k.startswith("captions") and k != "prompt"}
    text = json.dumps([_READING, deciding, sorted(models)], sort_keys=True)
    return f"{request['kind']}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Results:
    """Texts of the first `count` captions, read from their answers."""

    def __init__(
        self, request: Mapping[str, Any], captions: Sequence[str], count: int, answers: Answers
    ) -> None:
        self._request, self._captions, self._answers = request, captions, answers
        self._preset, self._version = PRESETS[request["kind"]], version(request, answers.models)
        self._lines = [MISSING] * count
        self._texts = 0
        self._missing: collections.Counter[str] = collections.Counter()  # captions by reason
        self._examples: dict[str, list[dict[str, Any]]] = {}  # of unusable answers, by reason

    def write(self, out: Path, rows: Iterable[tuple[dict[str, Any], dict[int, str]]]) -> str:
        """Writes the results; returns a line to print. rows: as `captions.rows`."""
        count, path = len(self._lines), out / TABLE
        with stores.replacing(path) as file:
            for row, captions in rows:
                lists = [self._read(index) for index in captions if index < count]
                if len(lists) == len(captions):
                    file.write(json.dumps(row | self._cells(lists)) + "\n")
        if self._preset.lines:
            path = out / self._preset.lines
            with stores.replacing(path) as file:
                file.writelines(json.dumps(text) + "\n" for text in self._lines)
        self._write_summary(out)
        tokens, missing = self._answers.tokens, dict(self._missing.most_common())
        return (
            f"{count - self._missing.total():,} of {count:,} captions have texts, "
            f"{self._texts:,} in all; {tokens[0]:,} tokens in, {tokens[1]:,} out"
            + (f"; without text: {missing}" if missing else "")
            + f": {path}"
        )

    def _read(self, index: int) -> list[Text]:
        """The texts of a caption."""
        caption, answers, texts, said = self._captions[index], self._answers, [], ""
        reason = self._preset.unfit(caption)
        if index in answers:
            answer = answers[index]
            said, (texts, reason) = answer.text or "", self._preset.read(answer, caption)
        elif reason is None:
            said = answers.errors.get(index, "")
            reason = f"error {said.partition(':')[0]}" if said else "no answer"
        if said and reason and len(examples := self._examples.setdefault(reason, [])) < _EXAMPLES:
            about = {"caption": caption[:_LETTERS], "answer": said[:_LETTERS]}
            examples.append({"line": index + 1, **about})
        self._texts += len(texts)
        if reason is not None:
            self._missing[reason] += 1
        elif texts:
            self._lines[index] = texts[0].text
        return texts

    def _cells(self, lists: list[list[Text]]) -> dict[str, Any]:
        """The cells of a row with its captions' texts, in the format of the source `records`."""

        def cell(of: Callable[[Text], Any]) -> list[Any]:
            # a row with one caption has a list of texts, as the source `records` reads it
            values = [[of(text) for text in texts] for texts in lists]
            return values if len(values) != 1 else values[0]

        name = self._version
        cells: dict[str, Any] = {"positives": cell(lambda text: text.text), "positive_kinds": name}
        if any(text.kind for texts in lists for text in texts):
            cells["positive_kinds"] = cell(lambda text: f"{name}:{text.kind}")
        if self._preset.has_foils:
            cells |= {"negatives": cell(lambda text: text.foil)}
            cells |= {"negative_kinds": cells["positive_kinds"]}
        return cells

    def _write_summary(self, out: Path) -> None:
        answers, missing = self._answers, self._missing
        summary = {
            "format_version": _FORMAT_VERSION,
            "version": self._version,
            "lines": len(self._lines),
            "captions_with_texts": len(self._lines) - missing.total(),
            "texts": self._texts,
            "answers": len(answers),
            "missing": dict(missing.most_common()),
            "unusable_answers": self._examples,
            "problems": answers.problems,
            "tokens": dict(zip(("in", "out"), answers.tokens, strict=True)),
            "models_that_answered": dict(answers.models),
            "request": self._request,
        }
        with stores.replacing(out / SUMMARY) as file:
            file.write(json.dumps(summary, indent=1) + "\n")
