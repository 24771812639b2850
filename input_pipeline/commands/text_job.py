"""A job: the questions of a file of captions and a preset, and a run that stores the answers.

An `answers.Complete` answers them: an endpoint (vlc-jax write_hard_texts) or a language model in
this process (vlc-jax write_texts).
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.hard_texts.llm import log, prompts
from vlc_jax.input_pipeline.hard_texts.llm.answers import Answer, Complete, Question
from vlc_jax.input_pipeline.hard_texts.llm.meter import Meter
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS, Preset

_LETTERS_PER_TOKEN = 4  # English, a rule of thumb for --dry-run


class Job(NamedTuple):
    """A request for texts about captions. `request`: everything that determines the answers."""

    path: Path
    column: str
    captions: Sequence[str]
    preset: Preset
    request: Mapping[str, Any]
    out: Path
    limit: int | None
    prices: log.Prices

    @property
    def count(self) -> int:
        """Number of captions of this run, answered ones included."""
        return len(self.captions) if self.limit is None else min(self.limit, len(self.captions))


def make(
    options: argparse.Namespace,
    model: str,
    form: str,
    fields: Mapping[str, Any],
    prices: log.Prices = (None, None),
) -> Job:
    """The job of command line options. fields: request fields beside max_tokens.

    Raises ValueError for a wrong file, DataError for unreadable captions.
    """
    preset, path = PRESETS[options.preset], Path(options.captions)
    captions = caption_files.read(path, options.column)
    _check_columns(path, options.column, preset)
    prompt = Path(options.prompt).read_text("utf-8") if options.prompt else preset.prompt
    if prompts.PLACE not in prompt:
        raise ValueError(f"{options.prompt} has no {prompts.PLACE}, the place of the caption")
    fields = {"max_tokens": options.max_tokens or preset.max_tokens, **fields}
    request = {
        "kind": options.preset,
        "model": model,
        "form": form,
        "fields": {name: value for name, value in fields.items() if value is not None},
        "captions": len(captions),
        "captions_sha256": _sha256(json.dumps(captions)),
        "prompt_sha256": _sha256(prompt),
        "prompt": prompt,
    }
    out = Path(options.out)
    return Job(path, options.column, captions, preset, request, out, options.limit, prices)


def _check_columns(path: Path, column: str, preset: Preset) -> None:
    """Raises ValueError if a result would overwrite a column of the table."""
    row, _ = next(caption_files.rows(path, column))
    written = ["positives", "positive_kinds"]
    written += ["negatives", "negative_kinds"] * preset.has_foils
    if there := [name for name in written if name in row]:
        raise ValueError(
            f"{path} already has a column {there[0]!r}, which the result would overwrite; rename "
            "it, or use the original table"
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def questions(job: Job, answered: log.Log | None = None) -> Iterator[Question]:
    """Yields a question per caption that suits the preset and has no answer yet.

    Each has its own seed, seed + line - 1: equal draws would make the texts alike.
    """
    for index in range(job.count):
        if job.preset.unfit(job.captions[index]) is None and (
            answered is None or index not in answered
        ):
            fields = dict(job.request["fields"])
            if isinstance(fields.get("seed"), int):
                fields["seed"] += index
            yield Question(index, prompts.fill(job.request["prompt"], job.captions[index]), fields)


def run(job: Job, complete: Complete, where: str) -> str:
    """Sends the unanswered questions and writes the results; returns a line to print.

    where: address or folder of the model behind `complete`, for the summary.
    """
    with log.open_log(job.out, dict(job.request), job.captions, job.prices) as answers:
        meter = Meter(answers, sum(job.preset.unfit(c) is None for c in job.captions[: job.count]))

        def store(index: int, answer: Answer) -> None:
            answers.add(index, answer)
            meter.show()

        if any(True for _ in questions(job, answers)):
            answers.begin(where)
            try:
                complete(questions(job, answers), store)
            finally:
                meter.end()
                answers.save()
        return answers.finish(job.count, partial(caption_files.rows, job.path, job.column))


def dry_run(job: Job) -> str:
    """Example prompts, tokens and cost of a job; sends and writes nothing."""
    examples, letters, longest, count = [], 0, 0, 0
    for question in questions(job):
        if count < 3:
            examples.append(f"--- line {question.index + 1}, {question.fields}\n{question.prompt}")
        count += 1
        letters += len(question.prompt)
        longest += question.fields.get("max_tokens", job.preset.max_tokens)
    tokens = letters // _LETTERS_PER_TOKEN, longest
    price = log.cost(tokens, job.prices)
    return "\n".join(
        [
            *examples,
            f"---\n{job.count:,} captions, {count:,} to ask; about {tokens[0]:,} tokens in (at "
            f"{_LETTERS_PER_TOKEN} letters a token) and at most {tokens[1]:,} out, "
            + ("no prices given" if price is None else f"cost at most about {price:,.2f}"),
        ]
    )
