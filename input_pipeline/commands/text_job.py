"""Jobs in which a language model writes texts about captions: options, questions, run.

An `answers.Complete` answers the questions: an endpoint (vlc-jax write_hard_texts) or a language
model in this process (vlc-jax write_texts).
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.hard_texts.llm import log, prompts
from vlc_jax.input_pipeline.hard_texts.llm.answers import Answer, Complete, Question
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS, Preset, listing
from vlc_jax.input_pipeline.stores import progress, text_file

# Of English, OpenAI's rule of thumb: --dry-run needs no tokenizer.
_LETTERS_PER_TOKEN = 4
_EXAMPLES = 3  # prompts that --dry-run shows
_RESULTS = """\
Captions come from COCO captions JSON (in the order of its annotations), from a column of a JSONL,
TSV, CSV or JSON table, or from a .txt file with a caption in each line. OUT holds

  replace_hp.jsonl, swap_hp.jsonl   of presets with one text per caption: line k is the text of
                caption k as a JSON string, or "None". The format of the authors' files, for COCO
  table.jsonl   the rows of the captions' file with a column "positives" (and "negatives", the
                foils), and in "positive_kinds" the preset and a hash of prompt, model and sampling
  raw.jsonl     the unchanged answers, in order of arrival
  summary.json  the request and its version, counts, why captions have no text, with examples,
                tokens, cost

Every answer is on disk before the next request is sent: a run that was stopped or killed continues
with the same command and repeats no request."""


def parser(command: str, about: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """The parser of a command that runs jobs, with the options of a job."""
    description = f"{about}\nPresets:\n\n{listing()}\n\n{_RESULTS}"
    made = command_line.parser(command, description, epilog=epilog)
    add, positive = made.add_argument, command_line.positive
    add("preset", choices=PRESETS, metavar="PRESET", help="one of those above")
    add("captions", help="COCO captions JSON, a table (JSONL, TSV, CSV, JSON) or a .txt file")
    # "version" prints a text and exits, without the required arguments
    add("--list", action="version", version=listing(), help="print the presets and exit")
    add("--column", default="caption", help="of a table; default: caption")
    add("--out", required=True, help="folder of this request")
    add("--prompt", metavar="FILE", help=f"another prompt, with {prompts.PLACE} for the caption")
    add("--max-tokens", type=positive, help="longest answer; default: the preset's")
    add("--limit", type=positive, help="only the first LIMIT captions; a later run goes on")
    add("--dry-run", action="store_true", help="show prompts, tokens and cost; send no request")
    return made


class Job(NamedTuple):
    """A request for texts about captions. `request`: everything that determines the answers."""

    path: Path
    column: str
    captions: Sequence[str]
    preset: Preset
    request: Mapping[str, Any]
    out: Path
    count: int  # captions of this run, answered ones included
    prices: log.Prices


def make(
    options: argparse.Namespace,
    model: str,
    form: str,
    fields: Mapping[str, Any],
    prices: log.Prices | None = None,
) -> Job:
    """The job of command line options. fields: request fields beside max_tokens.

    Raises ValueError for a wrong file, DataError for unreadable captions.
    """
    preset, path = PRESETS[options.preset], Path(options.captions)
    captions = caption_files.read(path, options.column)
    # before the first question: texts that cannot be written down would be paid for
    row, _ = next(caption_files.rows(path, options.column))
    for name in ("positives", "positive_kinds", "negatives", "negative_kinds"):
        if name in row and (preset.has_foils or name.startswith("positive")):
            raise ValueError(
                f"{path} already has a column {name!r}, which the result would overwrite; rename "
                "it, or use the original table"
            )
    prompt = text_file.read(Path(options.prompt)) if options.prompt else preset.prompt
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
    return Job(
        path=path,
        column=options.column,
        captions=captions,
        preset=preset,
        request=request,
        out=Path(options.out),
        count=min(options.limit or len(captions), len(captions)),
        prices=prices or log.Prices(),
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _suitable(job: Job) -> list[int]:
    """Indices of the captions that suit the preset."""
    return [k for k, text in enumerate(job.captions[: job.count]) if job.preset.unfit(text) is None]


def _questions(job: Job, indices: Sequence[int]) -> Iterator[Question]:
    for index in indices:
        fields = dict(job.request["fields"])
        if isinstance(fields.get("seed"), int):
            # equal draws for all captions would make the texts alike
            fields["seed"] += index
        yield Question(index, prompts.fill(job.request["prompt"], job.captions[index]), fields)


def run(job: Job, complete: Complete, where: str) -> str:
    """Sends the unanswered questions and writes the results; returns a line to print.

    where: address or folder of the model behind `complete`, for the summary.
    """
    with log.open_log(job.out, job.request, job.captions, job.prices) as answers:
        suitable = _suitable(job)
        waiting = [index for index in suitable if index not in answers]
        if waiting:
            answers.begin(where)
            done = len(suitable) - len(waiting)
            with progress.bar("writing texts", len(suitable), done) as advance:

                def store(index: int, answer: Answer) -> None:
                    nonlocal done
                    answers.add(index, answer)
                    done += 1
                    advance(done)

                complete(_questions(job, waiting), store)
        return answers.finish(job.count, caption_files.rows(job.path, job.column))


def dry_run(job: Job) -> str:
    """Example prompts, tokens and cost of a job; sends and writes nothing."""
    examples, letters, longest = [], 0, 0
    suitable = _suitable(job)
    for question in _questions(job, suitable):
        if len(examples) < _EXAMPLES:
            examples.append(f"--- line {question.index + 1}, {question.fields}\n{question.prompt}")
        letters += len(question.prompt)
        longest += question.fields.get("max_tokens", job.preset.max_tokens)
    tokens = letters // _LETTERS_PER_TOKEN
    cost = job.prices.cost(tokens, longest)
    priced = "no prices given" if cost is None else f"cost at most about {cost:,.2f}"
    total = (
        f"---\n{job.count:,} captions, {len(suitable):,} to ask; about {tokens:,} tokens in (at "
        f"{_LETTERS_PER_TOKEN} letters a token) and at most {longest:,} out, {priced}"
    )
    return "\n".join([*examples, total])
