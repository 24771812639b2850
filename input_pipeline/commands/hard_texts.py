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
the generator from_table. OUT.rounds.jsonl has the rounds of the filter; the same command continues
it. --runner NAME -- FLAGS makes the candidates by workers of Apache Beam, which see the generators'
files and OUT; finished parts of them lie in OUT.parts. Without --balance no file is written. Exit
code 0: done; 2: wrong request; 3: captions that cannot be read; 30: a worker is lost (the same
command continues).
"""

import argparse
import collections
import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vlc_jax.input_pipeline.commands import (
    addresses,
    balanced_table,
    candidates_of,
    command_line,
    parts,
)
from vlc_jax.input_pipeline.hard_texts import balance, sampling
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.stores import progress

FEW = 0.5  # share of captions with a text below which a warning is printed
NEW_WORDS = 6  # printed per kind
SIZE = 4096  # captions of a part of --runner
COUNT = 1000  # captions read by default; with --balance all


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return command_line.exit_code(_run, sys.argv[1:] if arguments is None else [*arguments])


def _run(words: list[str]) -> int:
    words, flags = parts.split(words)
    options = _parser().parse_args(words)
    engine = parts.engine(options.runner, words, flags)
    if not 0 <= options.seed < 2**64:
        raise ValueError(f"--seed must be at least 0 and below 2**64; got {options.seed}")
    if (options.balance is None) != (options.out is None):
        raise ValueError("--balance SHARE and --out FILE, the table that it writes, go together")
    if options.candidates > 1 and options.balance is None:
        raise ValueError(f"--candidates {options.candidates} is for --balance; set it, too")
    if engine and options.balance is None:
        raise ValueError("--runner makes the candidates of --balance; set it, too")
    if options.balance is not None:
        balance.check_target(options.balance)
        balanced_table.check_out(Path(options.out), Path(options.table))
    count = options.count or (COUNT if options.balance is None else None)
    captioned = caption_files.with_rows(Path(options.table), options.column)[:count]
    captions, rows = [caption for caption, _ in captioned], [row for _, row in captioned]
    made = _made(options, captions, engine)
    for index, caption in enumerate(captions[: options.show]):
        print(caption)
        for name, (side, _, candidates) in made.items():
            print(f"  {name} ({side.removesuffix('s')}): {next(iter(candidates[index]), '-')}")
    known = {word for caption in captions for word in _words(caption)}
    images = balanced_table.images_of(rows)
    print(f"\nof {len(captions):,} captions:")
    if 2 * len(set(captions)) <= len(captions):
        print(
            f"  WARNING: only {len(set(captions)):,} of the captions are different: others are in "
            "several images, so the classifier knows them by heart and blind is too high"
        )
    for name, texts in made.items():
        blind = ""
        # the filter prints it
        if options.balance is None:
            indices, pairs = texts.options(captions)
            few = f"blind not measured, of fewer than {balance.FEW} pairs" if pairs else ""
            groups = [images[index] for index in indices]
            blind = balance.described(pairs, groups, options.seed) or few
        print(_count(name, texts.candidates, captions, known, blind))
    if options.balance is not None:
        out = Path(options.out)
        lines = balanced_table.write(made, captions, rows, options.balance, options.seed, out)
        parts.remove(parts.beside(out))
        print(f"\nbalanced to {options.balance:g}:", *lines, f"table: {out}", sep="\n")
    return 0


def _made(
    options: argparse.Namespace, captions: Sequence[str], engine: parts.Engine | None
) -> dict[str, balanced_table.Texts]:
    """Name -> the texts of each generator of --kinds. engine: of --runner."""
    kinds = [name for name in options.kinds.split(",") if name]
    if not kinds:
        raise ValueError(f"--kinds {options.kinds!r} names no generator; see docs/texts.md")
    options_of = command_line.parse_options(options.option)
    for name in options_of:
        if name not in kinds:
            raise ValueError(f"--option {name}=...: no such generator in --kinds {options.kinds}")
    modes = {name: {"mode": options.mode} if _has_mode(name) else {} for name in kinds}
    generators = {name: modes[name] | options_of.get(name, {}) for name in kinds}
    of = candidates_of.CandidatesOf([*captions], generators, options.candidates, options.seed)
    found = [
        balanced_table.Texts(side, generator, []) for side, generator in of.generators.values()
    ]
    made = [of(range(len(captions)))] if engine is None else _by_workers(of, options.out, engine)
    for of_part in made:
        for texts, candidates in zip(found, of_part, strict=True):
            texts.candidates.extend(candidates)
    return dict(zip(generators, found, strict=True))


def _by_workers(
    of: candidates_of.CandidatesOf, out: str, engine: parts.Engine
) -> Iterator[list[list[list[str]]]]:
    """The candidates of each part of the captions, as `of` gives them."""
    total = len(of.captions)
    work = parts.Parts(of.json, parts.beside(Path(out)), total, SIZE, request=of.request)
    with progress.bar("making texts", total) as advance:
        parts.run(work, engine, advance)
    return map(json.loads, parts.contents(work))


def _has_mode(name: str) -> bool:
    """True if a generator has an authors' mode."""
    tables = [sampling.generator_table(side) for side in ("negatives", "positives")]
    return any(
        "mode" in inspect.signature(table[name]).parameters for table in tables if name in table
    )


def _count(
    name: str, made: Sequence[str | None], captions: Sequence[str], known: set[str], blind: str
) -> str:
    """One line: captions with a text, warnings, separability, words that occur in no caption."""
    texts = [candidates[0] for candidates in made if candidates]
    line = f"  {name}: {len(texts):,} have a text"
    if len(texts) < FEW * len(captions):
        line += "; WARNING: most have none, and take no part in the loss"
    pairs = zip(made, captions, strict=True)
    same = sum(caption in candidates[:1] for candidates, caption in pairs)
    if same:
        line += f"; WARNING: {same:,} are the caption itself"
    line += f"; {blind}" if blind else ""
    new = collections.Counter(word for text in texts for word in _words(text) if word not in known)
    if new:
        most_common = ", ".join(word for word, _ in new.most_common(NEW_WORDS))
        line += f"; new words: {len(new):,}, such as {most_common}"
    return line


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("hard_texts", __doc__)
    parser.add_argument("--table", required=True, help="JSONL, TSV, CSV, COCO captions JSON, .txt")
    parser.add_argument("--kinds", required=True, help="generators, joined by commas")
    parser.add_argument("--column", default="caption", help="of a table; default: caption")
    parser.add_argument("--mode", choices=("clean", "authors"), default="clean")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KIND=JSON",
        help='options of a generator, such as negclip=\'{"tagger": "spacy:en_core_web_sm"}\'',
    )
    parser.add_argument("--show", type=command_line.positive, default=20, help="captions printed")
    count = f"captions read; default: {COUNT:,}, with --balance all"
    parser.add_argument("--count", type=command_line.positive, help=count)
    share = "largest separability of the texts that are kept, above .5 and below 1"
    parser.add_argument("--balance", type=float, metavar="SHARE", help=share)
    candidates = "texts per caption and kind from which --balance chooses one; default: 1"
    parser.add_argument("--candidates", type=command_line.positive, default=1, help=candidates)
    parser.add_argument("--out", metavar="JSONL", help="table of the texts that are kept")
    parser.add_argument("--seed", type=int, default=0)
    parts.add_runner(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
