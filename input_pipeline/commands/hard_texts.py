"""Command: prints captions of a table with their hard negatives and hard positives.

  vlc-jax hard_texts --table captions.jsonl --kinds replace,swap,svlc_rule

KINDS are generators of docs/texts.md. A generator with two modes runs in mode `clean`; --mode
authors follows the papers' code. Counts are over the first --count captions: captions with a text,
and words that occur in no caption, which reveal errors of a generator. Writes no file. Exit code 0:
done; 2: wrong request; 3: captions that cannot be read.
"""

import argparse
import collections
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files

FEW = 0.5  # share of captions with a text below which a warning is printed
NEW_WORDS = 6  # printed per kind


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return command_line.exit_code(_run, _parser().parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    if not 0 <= options.seed < 2**64:
        raise ValueError(f"--seed must be at least 0 and below 2**64; got {options.seed}")
    captions = caption_files.read(Path(options.table), options.column)[: options.count]
    kinds = [name for name in options.kinds.split(",") if name]
    options_of = command_line.parse_options(options.option)
    for name in options_of:
        if name not in kinds:
            raise ValueError(f"--option {name}=...: no such generator in --kinds {options.kinds}")
    modes = {name: {"mode": options.mode} if _has_mode(name) else {} for name in kinds}
    generators = {
        name: sampling.find_generator(name, modes[name] | options_of.get(name, {}))
        for name in kinds
    }
    made = {
        name: [
            sampling.one_text(generator, caption, f"{index}/{side}/{name}", options.seed)
            for index, caption in enumerate(captions)
        ]
        for name, (side, generator) in generators.items()
    }
    for index, caption in enumerate(captions[: options.show]):
        print(caption)
        for name in kinds:
            side, text = generators[name][0].removesuffix("s"), made[name][index]
            print(f"  {name} ({side}): {'-' if text is None else text}")
    known = {word for caption in captions for word in _words(caption)}
    print(f"\nof {len(captions):,} captions:")
    for name in kinds:
        print(_count(name, made[name], captions, known))
    return 0


def _has_mode(name: str) -> bool:
    """True if a generator has an authors' mode."""
    tables = [sampling.generator_table(side) for side in ("negatives", "positives")]
    return any(
        "mode" in inspect.signature(table[name]).parameters for table in tables if name in table
    )


def _count(name: str, made: Sequence[str | None], captions: Sequence[str], known: set[str]) -> str:
    """One line: captions with a text, warnings, words that occur in no caption."""
    texts = [text for text in made if text is not None]
    line = f"  {name}: {len(texts):,} have a text"
    if len(texts) < FEW * len(captions):
        line += "; WARNING: most have none, and take no part in the loss"
    same = sum(text == caption for text, caption in zip(made, captions, strict=True))
    if same:
        line += f"; WARNING: {same:,} are the caption itself"
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
    parser.add_argument("--count", type=command_line.positive, default=1000, help="captions read")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
