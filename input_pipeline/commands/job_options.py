"""The command line of a job in which a language model writes hard texts."""

import argparse
from collections.abc import Sequence
from typing import Any

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.hard_texts.llm import prompts
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS, listing

RESULTS = """\
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


def description(command: str) -> str:
    """The help of a command that runs jobs, with the presets."""
    return f"{command}\nPresets:\n\n{listing()}\n\n{RESULTS}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a job."""
    add = parser.add_argument
    add("preset", choices=PRESETS, metavar="PRESET", help="one of those above")
    add("captions", help="COCO captions JSON, a table (JSONL, TSV, CSV, JSON) or a .txt file")
    add("--list", action=_List, help="print the presets and exit")
    add("--column", default="caption", help="of a table; default: caption")
    add("--out", required=True, help="folder of this request")
    add("--prompt", metavar="FILE", help=f"another prompt, with {prompts.PLACE} for the caption")
    add("--max-tokens", type=command_line.positive, help="longest answer; default: the preset's")
    add(
        "--limit",
        type=command_line.positive,
        help="only the first LIMIT captions; a later run goes on",
    )
    add("--dry-run", action="store_true", help="show prompts, tokens and cost; send no request")


class _List(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(listing())
        parser.exit()
