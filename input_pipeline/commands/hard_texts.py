"""Command: prints captions of a table with their hard negatives and hard positives.

  vlc-jax hard_texts --table captions.jsonl --kinds replace,swap,svlc_rule
  vlc-jax hard_texts --table captions.jsonl --kinds svlc_rule --balance .6 --out balanced.jsonl

KINDS are generators of docs/texts.md. A generator with two modes runs in mode `clean`; --mode
authors follows the papers' code. Counts are over the first --count captions: captions with a text;
"blind", the share of the pairs in which a classifier of the two texts alone finds the caption,
fitted on other images; and words that occur in no caption, which reveal errors of a generator.

--balance drops the texts of each kind that such a classifier recognizes most clearly, until it is
right in at most this share of the pairs that are left; with --candidates it first tries other texts
of the generator in their place. It writes the table OUT (JSONL), a row per caption with its texts
in the columns negatives, positives and their kinds. Training reads it as a table of records, or by
the generator from_table. The filter is fitted on --sample rows, and all rows go through it in
blocks, --runner NAME -- FLAGS: by workers of Apache Beam, which see the table, the generators'
files and OUT. A larger sample filters better and takes more memory (docs/texts.md). Finished
blocks lie in OUT.parts; the same command fits the filter again and continues. OUT.json has the
request and the counts. Without --balance no file is written. Exit code 0: done; 2: wrong request;
3: captions that cannot be read; 30: a worker is lost (the same command continues).
"""

import argparse
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.commands import (
    addresses,
    balanced_table,
    candidates_of,
    command_line,
    parts,
)
from vlc_jax.input_pipeline.hard_texts import balance, sampling
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files

COUNT = 1000  # captions read by default; with --balance all


def _run(words: list[str]) -> int:
    options, engine = parts.parse(_parser(), words)
    _check(options, engine)
    count = options.count or (COUNT if options.balance is None else None)
    rows = caption_files.open_rows(Path(options.table), options.column, count)
    of = candidates_of.CandidatesOf(_generators(options), options.candidates, options.seed)
    if options.balance is None:
        captions = balanced_table.read(rows, range(len(rows)))
        made = of(captions.texts, captions.keys)
        _show(captions.texts[: options.show], made)
        blind = {name: _blind(each, captions, of.seed) for name, each in made.items()}
        counts = candidates_of.counted(made, captions.texts, has_words=True)
        print(*candidates_of.described(counts, blind), sep="\n")
        return 0
    captions = balanced_table.read(rows, range(min(options.show, len(rows))))
    _show(captions.texts[: options.show], of(captions.texts, captions.keys))
    size, out = options.sample or balanced_table.SAMPLE, Path(options.out)
    fit = balanced_table.Fit(rows, of, options.balance, size)
    counts = balanced_table.write(fit, out, engine)
    with parts.parsing(out.with_name(f"{out.name}.json")):
        # the filter prints how far texts give themselves away
        lines = [*candidates_of.described(counts, {}), f"\nbalanced to {options.balance:g}:"]
        lines += balanced_table.described(counts, options.balance)
    print(*lines, f"table: {out}", sep="\n")
    return 0


def _check(options: argparse.Namespace, engine: parts.Engine | None) -> None:
    """Raises ValueError for options that do not go together."""
    if not 0 <= options.seed < 2**64:
        raise ValueError(f"--seed must be at least 0 and below 2**64; got {options.seed}")
    if (options.balance is None) != (options.out is None):
        raise ValueError("--balance SHARE and --out FILE, the table that it writes, go together")
    if options.balance is not None:
        balance.check_target(options.balance)
        balanced_table.check_out(Path(options.out), Path(options.table))
    elif options.candidates > 1:
        raise ValueError(f"--candidates {options.candidates} is for --balance; set it, too")
    elif options.sample:
        raise ValueError(f"--sample {options.sample} is for --balance; set it, too")
    elif engine:
        raise ValueError("--runner distributes the blocks of --balance; set it, too")
    if options.sample and options.sample < balanced_table.LEAST:
        raise ValueError(
            f"--sample must be at least {balanced_table.LEAST}: of fewer captions the classifier "
            f"learns little; got {options.sample}"
        )


def _show(captions: Sequence[str], made: Mapping[str, candidates_of.Texts]) -> None:
    for index, caption in enumerate(captions):
        print(caption)
        for name, (side, candidates) in made.items():
            print(f"  {name} ({side.removesuffix('s')}): {next(iter(candidates[index]), '-')}")


def _blind(texts: candidates_of.Texts, captions: balanced_table.Captions, seed: int) -> str:
    """The separability of texts in words."""
    indices, pairs = texts.options(captions.texts)
    few = f"blind not measured, of fewer than {balance.FEW} pairs" if pairs else ""
    return balance.described(pairs, [captions.images[index] for index in indices], seed) or few


def _generators(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Name of each generator of --kinds -> its options."""
    kinds = options.kinds
    options_of = command_line.parse_options(options.option)
    for name in options_of:
        if name not in kinds:
            raise ValueError(f"--option {name}=...: no such generator in --kinds {','.join(kinds)}")
    modes = {name: {"mode": options.mode} if _has_mode(name) else {} for name in kinds}
    return {name: modes[name] | options_of.get(name, {}) for name in kinds}


def _has_mode(name: str) -> bool:
    """True if a generator has an authors' mode."""
    tables = [sampling.generator_table(side) for side in ("negatives", "positives")]
    return any(
        "mode" in inspect.signature(table[name]).parameters for table in tables if name in table
    )


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("hard_texts", __doc__)
    add, positive = parser.add_argument, command_line.positive
    add("--table", required=True, help="JSONL, TSV, CSV, COCO captions JSON, .txt")
    text = "generators (docs/texts.md), joined by commas"
    add("--kinds", **command_line.NAMES, required=True, help=text)
    add("--column", default="caption", help="of a table; default: caption")
    add("--mode", choices=("clean", "authors"), default="clean")
    text = 'options of a generator, such as negclip=\'{"tagger": "spacy:en_core_web_sm"}\''
    add("--option", **command_line.PAIRS | {"metavar": "KIND=JSON"}, help=text)
    add("--show", type=positive, default=20, help="captions printed")
    text = f"captions read; default: {COUNT:,}, with --balance all"
    add("--count", type=positive, help=text)
    text = "largest separability of the texts that are kept, above .5 and below 1"
    add("--balance", type=float, metavar="SHARE", help=text)
    text = "texts per caption and kind from which --balance chooses one; default: 1"
    add("--candidates", type=positive, default=1, help=text)
    add("--out", metavar="JSONL", help="table of the texts that are kept")
    text = f"rows that the filter is fitted on, at most; default: {balanced_table.SAMPLE:,}"
    add("--sample", type=positive, metavar="ROWS", help=text)
    add("--seed", type=int, default=0)
    parts.add_runner(parser)
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
