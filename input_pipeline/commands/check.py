"""Data check before training: counts, caption lengths, four pictures, damaged records.

  vlc-jax check captions.jsonl --image-folder images --picture check.png

Below each picture are its captions, the hard negatives and positives of its record and, with
--kinds crepe_swap,replace, texts that these generators (docs/texts.md) make of the first caption.
"blind" is, for each kind of hard text, stored or of --kinds, the share of the pairs in which a
classifier of the two texts alone tells the caption, in the first 1,000 records; chance is 50 %. Of
fewer than 50 pairs it is not measured.
--phrases counts captions with "on the left" and similar phrases, or with phrases of your own.
--runner distributes the work over processes or machines (docs/data.md).
Training runs the same check on its first records (`preview`). Exit code 0: training would accept
the data; 3: it would not, or they cannot be read; 2: wrong request.
"""

import argparse
import collections
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline.commands import addresses, check_parts, command_line, parts
from vlc_jax.input_pipeline.hard_texts import balance, sampling, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import Generator
from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.loader.inspection import Sample
from vlc_jax.input_pipeline.record import COLUMNS, Record, Source, find_columns
from vlc_jax.input_pipeline.sources import make_source, parquet_table, shards, tables
from vlc_jax.input_pipeline.sources.records import RecordsSource
from vlc_jax.input_pipeline.tokenizers import word_level

# Share of the images for validation: the default of configs/records.py, so that the counts of both
# splits are those of a run.
HOLDOUT = 0.2


class Line(NamedTuple):
    """A text below a picture. side: "caption", "negatives" or "positives"."""

    side: str
    text: str


COLOURS = {"caption": "black", "negatives": "firebrick", "positives": "darkgreen"}
MAX_TEXTS = 3  # stored texts per side below a picture
STORED = "stored"  # in place of an unknown generator's name
BLIND = 1000  # records whose hard texts the blind classifier reads


def lines(sample: Sample, generators: Mapping[str, tuple[str, Generator]]) -> list[Line]:
    """Texts below a record's picture: its first captions, then hard texts of the first caption.

    The hard texts are the stored ones and one of each generator, name -> (side, generator).
    """
    record, first = sample.record, sample.captions[0]
    result = [Line("caption", str(record.captions[i])) for i in sample.captions[:MAX_TEXTS]]
    for side, name, text in _hard_texts(record, first, generators):
        result.append(Line(side, f"{name}: {'-' if text is None else text}"))
    return result


def _hard_texts(
    record: Record, first: int, generators: Mapping[str, tuple[str, Generator]]
) -> Iterator[tuple[str, str, str | None]]:
    """(side, kind, text) of a caption: the first stored texts, and one of each generator, None if
    it makes none."""
    for side in ("negatives", "positives"):
        texts = getattr(record, side)
        kinds = getattr(record, f"{side.removesuffix('s')}_kinds")
        for number, text in enumerate(texts[first][:MAX_TEXTS] if texts else ()):
            yield side, kinds[first][number] if kinds else STORED, text
        for name, (generator_side, generator) in generators.items():
            if generator_side == side:
                key, scene = f"{record.id}/{side}/{name}", record.meta.get("scene")
                text = sampling.one_text(generator, record.captions[first], key, scene=scene)
                yield side, name, text


def draw_samples(samples: Sequence[tuple[str, np.ndarray, Sequence[Line]]], path: Path) -> None:
    """Writes a picture file: images, their ids, and texts, negatives in red, positives in green."""
    import textwrap
    import warnings

    command_line.import_matplotlib()
    from matplotlib import figure

    sheet = figure.Figure(figsize=(3.2 * len(samples), 4.2))
    for axes, (name, pixels, texts) in zip(
        sheet.subplots(1, len(samples), squeeze=False)[0], samples, strict=True
    ):
        axes.imshow(pixels)
        axes.set_axis_off()
        # an unescaped dollar would begin a formula of matplotlib
        axes.set_title(textwrap.shorten(name, 40).replace("$", r"\$"), fontsize=7)
        below = 6.0  # points
        for side, text in texts:
            wrapped = textwrap.fill(text[:200], 36)
            axes.annotate(
                wrapped.replace("$", r"\$"),
                xy=(0, 0),
                xytext=(0, -below),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=8,
                va="top",
                color=COLOURS[side],
            )
            below += 10 * len(wrapped.splitlines())
    with warnings.catch_warnings():
        # matplotlib warns once per letter that its font lacks and draws a box
        warnings.simplefilter("ignore")
        sheet.savefig(path, dpi=110, bbox_inches="tight")


def _run(words: list[str]) -> int:
    options, engine = parts.parse(_parser(), words)
    path, generators = Path(options.path), _generators(options)
    # a folder of Parquet files is a table
    if path.is_dir() and not any(path.glob(f"*{parquet_table.SUFFIX}")):
        source: Source = _open_prepared(path, options, engine)
    else:
        source_options = command_line.parse_options(options.option)
        if options.image_folder is not None:
            source_options["image_folder"] = options.image_folder
        with command_line.naming("image_folder", "--image-folder"):
            source = _open_table(path, source_options)
    number = len(source) if options.count is None else min(options.count, len(source))
    phrases = [*dict.fromkeys(filter(None, (options.phrases or "").split(",")))]
    threads = parts.threads(options, engine)
    look = check_parts.Look(source, number, threads, tuple(phrases), bool(options.words))
    with parts.folder(options) as out:
        found = check_parts.look(look, out, options, engine)
    report = found.report
    print(report)
    if isinstance(source, RecordsSource):
        if source.rows > len(source):
            print(
                f"{source.rows:,} rows of {len(source):,} images: the rows of one image are one "
                "record (join_rows=False: a record per row)"
            )
        counts = source.images_per_split().items()
        print("different images:", ", ".join(f"{split} {number:,}" for split, number in counts))
    if options.picture and (read := inspection.samples(source, report)):
        samples = [(s.record.id, s.pixels, lines(s, generators)) for s in read]
        draw_samples(samples, Path(options.picture))
        print(f"samples: {options.picture}")
    if table := blind_table(source, min(number, BLIND), generators):
        print(table)
    if options.words:
        words = word_level.frequent(found.words, options.min_count)
        Path(options.words).write_text("\n".join(words) + "\n", "utf-8")
        print(f"{len(words):,} words: {options.words}")
    if options.phrases:
        print(phrase_table(found.phrases, found.captions, phrases))
    # last: the pictures and counts above explain the refusal
    inspection.check_report(report, options.max_bad_share)
    return 0


def blind_table(
    source: Source, number: int, generators: Mapping[str, tuple[str, Generator]]
) -> str:
    """Separability of each kind of hard text, a line each, from the first caption of each of the
    first `number` records; "" if no stored kind has enough texts and there is no generator."""
    pairs: dict[tuple[str, str], dict[str, tuple[str, str]]] = collections.defaultdict(dict)
    for record, captions in check_parts.usable(source, range(number)):
        caption = record.captions[captions[0]]
        if isinstance(caption, str):  # and no conversation
            for side, name, text in _hard_texts(record, captions[0], generators):
                if text not in (None, caption):
                    # the first of each kind
                    pairs[side, name].setdefault(record.id, (caption, text))
    # a kind that was asked for and made no text
    for name, (side, _) in generators.items():
        pairs.setdefault((side, name), {})
    lines = []
    for (side, name), kind_pairs in pairs.items():
        if blind := balance.described([*kind_pairs.values()], [*kind_pairs]):
            lines.append(f"  {name} ({side}): {blind}, {len(kind_pairs):,} pairs")
        elif name in generators:
            lines.append(f"  {name} ({side}): {len(kind_pairs)} pairs, too few to measure blind")
    return "\n".join(["hard texts:", *lines]) if lines else ""


def phrase_table(counts: Mapping[str, int], total: int, phrases: Sequence[str]) -> str:
    """Number of captions, of `total`, with each phrase, and with any phrase.

    Appendix B.2 of "On erroneous agreements of CLIP image embeddings" counts left and right so.
    counts: of `check_parts.count_phrases`.
    """
    rows = [*((phrase, counts[phrase]) for phrase in phrases), ("any of them", counts[""])]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}} {n:>9,} {n / max(total, 1):8.3%}" for name, n in rows]
    return "\n".join([f"captions with a phrase, of {total:,}:", *lines])


def _generators(options: argparse.Namespace) -> dict[str, tuple[str, Generator]]:
    """Name -> (side, generator) of --kinds."""
    options_of = command_line.generator_options(options.generator_options)
    for name in options_of:
        if name not in options.kinds:
            raise ValueError(f"--generator-options of {name!r}, which is not among --kinds")
    return {name: sampling.find_generator(name, options_of.get(name, {})) for name in options.kinds}


def _open_table(path: Path, source_options: dict[str, Any]) -> Source:
    if not path.exists():
        raise ValueError(
            f"{path} does not exist; expected a table ({', '.join(tables.FORMATS)}) or a folder"
        )
    defaults = {"split": "all", "path": path, "holdout": HOLDOUT}
    names = tables.open_table(path).columns()
    known = {*names, *(key.removesuffix("_column") for key in source_options)}
    usual = {name: COLUMNS[name] for name in ("image", "caption") if name not in known}
    found = find_columns(path, names, {}, usual, ())  # of a missing one the source says more
    defaults |= {f"{name}_column": column for name, column in found.items()}
    return make_source("records", **{**defaults, **source_options})


def _open_prepared(path: Path, options: argparse.Namespace, engine: parts.Engine | None) -> Source:
    manifest = shards.read_manifest(path)
    with parts.folder(options) as out:
        check_parts.compare_shards(path, manifest, out, engine)
    print(f"sha256 of {len(manifest['shards'])} shards: as in the manifest")
    if manifest["skipped"]:
        print(f"{manifest['skipped']:,} records were left out when it was prepared")
    return shards.ShardsSource(path=path)


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("check", __doc__)
    add = parser.add_argument
    text = (
        "a JSONL, TSV, CSV or JSON table, COCO captions JSON, or a folder that vlc-jax prepare "
        "wrote"
    )
    add("path", help=text)
    add("--image-folder", help="where image names start; default: the table's folder")
    text = (
        "another option of the source `records`, e.g. caption_column=title; holdout, the share of "
        f"the images for validation, defaults to {HOLDOUT}"
    )
    add("--option", **command_line.PAIRS, help=text)
    text = "look at the first COUNT records; default: all"
    add("--count", type=command_line.positive, help=text)
    text = "write four decoded samples to this file, with their captions and hard texts"
    add("--picture", metavar="PNG", help=text)
    add("--kinds", **command_line.NAMES, help="hard text generators, joined by commas")
    text = "{GENERATOR: {OPTION: VALUE}}"
    add("--generator-options", default="{}", metavar="JSON", help=text)
    text = "write the words of the captions, for tokenizer `words`"
    add("--words", metavar="TXT", help=text)
    text = "rarest word to write, in occurrences; default: 1"
    add("--min-count", type=int, default=1, help=text)
    text = "count captions with these phrases, joined by commas; default: left/right phrases"
    usual = ",".join(word_tables.LEFT_RIGHT)
    add("--phrases", nargs="?", const=usual, metavar="PHRASES", help=text)
    add("--max-bad-share", type=float, default=0.01, help="default: 0.01")
    add("--threads", type=command_line.positive, help="of every process")
    parts.add_arguments(parser)
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
