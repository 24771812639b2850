"""Data preparation: a dataset -> array_record shards of resized images, for source `shards`.

  vlc-jax prepare coco --annotations dataset_coco.json --images coco \\
      --split train+restval --out prepared/coco
  vlc-jax prepare --source records --option path=captions.jsonl \\
      --option image_folder=images --size 256 --out prepared/train

The first form knows the files of coco, flickr30k, negclip, cc3m, img2dataset and llava; DATASET
--help lists them. The second takes any source of a config with its options.

Images are shrunk until their shorter side is `size` (never enlarged, never cropped) and stored as
JPEG of quality 95, or losslessly as PNG. Records that cannot be used are left out and listed in the
manifest. A run that was stopped continues, with the same command, after its last whole shard.
--negatives and --positives store hard texts that generators make of every caption; training selects
them by the generators' names. --min-words, --max-words and --languages leave captions out, and
records without any other one; the last line counts them.

  vlc-jax prepare img2dataset --tars tars --out prepared/train --runner DirectRunner \\
      -- --direct_num_workers=8 --direct_running_mode=multi_processing

writes the same bytes with several workers, by a runner of Apache Beam and its own flags (behind
`--`). The source and OUT are on a file system of all workers, or in an object store: then tars, and
Parquet with images inside, are read in place, and OUT gets whole shards.
Exit code 0: done; 2: wrong request; 3: too many records cannot be used; 30: the disk is
full or broken, or a worker is lost (the same command continues); 130: interrupted.
"""

import argparse
import dataclasses
import difflib
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import (
    addresses,
    caption_filters,
    command_line,
    generated_texts,
    parts,
    shard_job,
    shard_writer,
    skipped_records,
)
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.record import Source
from vlc_jax.input_pipeline.sources import SOURCES, make_source, parquet_table
from vlc_jax.input_pipeline.sources.conversation_records import ANSWERS
from vlc_jax.input_pipeline.stores import any_path, fetch, progress

_NO_OPTIONS = "{}"
_FILTERS = ("min_words", "max_words", "languages", "exclude")
# (source, option) of addresses that workers read in parts
_IN_PLACE = (("img2dataset", "tars"), ("records", "path"))
# Pixels, of the named datasets: enough for crops of 224.
_SIZE = 256


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Command line of a named dataset: the options that name its files, its splits, an example."""

    files: tuple[str, ...]
    splits: str  # help text of --split
    divided: bool  # True if the file has several splits; otherwise --split is only a name
    example: str
    choices: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # of options
    flags: tuple[str, ...] = ()  # boolean options


_ANNOTATED = ("annotations", "images")
_ONE_SPLIT = "name of the split in a run; the shards hold the whole file; default: train"
DATASETS = {
    "coco": Dataset(
        _ANNOTATED,
        "train, restval, val, test, train+restval (the usual training set) or all; default: train",
        True,
        "--annotations coco/dataset_coco.json --images coco --split train+restval",
    ),
    "flickr30k": Dataset(
        _ANNOTATED,
        "train, val, test or all; default: train",
        True,
        "--annotations flickr30k/dataset_flickr30k.json --images flickr30k/flickr30k-images "
        "--split test",
    ),
    "negclip": Dataset(
        _ANNOTATED,
        _ONE_SPLIT,
        False,
        "--annotations coco/train_neg_clip.tsv --images coco",
        flags=("as_released",),
    ),
    "cc3m": Dataset(_ANNOTATED, _ONE_SPLIT, False, "--annotations cc3m/train.tsv --images cc3m"),
    "img2dataset": Dataset(("tars",), _ONE_SPLIT, False, "--tars cc3m_tars"),
    "llava": Dataset(
        _ANNOTATED,
        _ONE_SPLIT,
        False,
        "--annotations llava/llava_instruct_150k.json --images coco/train2017",
        {"answers": ANSWERS},
        ("text_only",),
    ),
}


@functools.partial(addresses.allowed, stay_with="--runner")
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    try:
        return command_line.exit_code(_run, sys.argv[1:] if arguments is None else [*arguments])
    except KeyboardInterrupt:
        line = "interrupted; the same command continues after the last whole shard"
        raise KeyboardInterrupt(line) from None


def _run(words: list[str]) -> int:
    words, flags = parts.split(words)
    options, name, split, source_options = _parse(words)
    engine = parts.engine(options.runner, words, flags)
    if engine is not None:
        source_options = _for_workers(name, source_options, options.runner)
    source = make_source(name, split, **source_options)
    if getattr(source, "finds_more", False):
        raise ValueError(
            f"{name}: shards hold the records of a source, and its hard images are none; train on "
            "it in place, without preparation"
        )
    request = {"source": name, "split": options.split, "options": source_options}
    request["annotations"] = getattr(source, "digests", {})
    source = _filtered(source, options, request)
    if options.negatives or options.positives:
        options_of = command_line.generator_options(options.generator_options)
        generators = generated_texts.make(options.negatives, options.positives, options_of)
        source = generated_texts.GeneratedSource(
            source, generators, count=options.texts_per_kind, seed=options.text_seed
        )
        # before anything is written: a wrong generator must not leave a begun folder
        source.try_one()
        request["texts"] = source.request | {"options": options.generator_options}
    elif options.generator_options != _NO_OPTIONS:
        raise ValueError(
            f"--generator-options {options.generator_options} belongs to generators; name them in "
            "--negatives or --positives"
        )
    # shards of shards: the versions of texts that were stored before stay in the manifest
    elif stored := sampling.stored_versions(source):
        request["texts"] = stored
    with progress.bar("preparing", len(source)) as advance:
        manifest = shard_writer.write(
            source,
            any_path.of(options.out) if engine else Path(options.out),
            size=options.size,
            image_format=options.format,
            shard_size=options.shard_size,
            max_bad_share=options.max_bad_share,
            # with a runner the workers are the processes of the cores
            threads=parts.threads(options, engine),
            request=request,
            advance=advance,
            engine=engine,
        )
    print(_summary(manifest, options.out))
    return 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, str, str, dict[str, Any]]:
    """The options of the command; name, split and options of the source."""
    if arguments and not arguments[0].startswith("-"):
        name = arguments[0]
        if name not in DATASETS:
            near = difflib.get_close_matches(name, DATASETS, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"no dataset {name!r}{hint}; known: {[*DATASETS]}, or --source")
        options = _dataset_parser(name).parse_args(arguments[1:])
        dataset = DATASETS[name]
        names = (*dataset.files, *dataset.choices)
        source_options = {option: getattr(options, option) for option in names}
        source_options |= {flag: True for flag in dataset.flags if getattr(options, flag)}
        split = options.split if dataset.divided else "all"
    else:
        options = _source_parser().parse_args(arguments)
        name, split = options.source, options.split
        source_options = command_line.parse_options(options.option)
    # `make_source` refuses an unknown name
    known = inspect.signature(SOURCES[name]).parameters if name in SOURCES else {}
    # by the images' names, in other sources by the ids of records
    if options.exclude and "exclude" in known:
        source_options["exclude"], options.exclude = options.exclude, None
    # the filter needs the language in `meta`
    if options.languages and "meta_columns" in known:
        columns = source_options.get("meta_columns", [])
        source_options["meta_columns"] = [*columns, options.language_field]
    return options, name, split, source_options


def _for_workers(name: str, options: dict[str, Any], runner: str) -> dict[str, Any]:
    """Options of a source whose addresses workers read, or which are copies on this machine."""
    new = dict(options)
    for option, value in options.items():
        if not stores.is_url(value):
            continue
        is_table = name == "records" and Path(value).suffix not in ("", parquet_table.SUFFIX)
        if (name, option) in _IN_PLACE and not is_table and not stores.is_hub(value):
            continue
        if runner != parts.DIRECT:
            raise ValueError(
                f"{option}={value} would be copied to this machine, which workers of {runner} do "
                "not see: of an object store they read tars of img2dataset and Parquet with "
                "images inside; or name a path of a file system that all of them mount"
            )
        new[option] = str(fetch.local(value))
    return new


def _filtered(source: Source, options: argparse.Namespace, request: dict[str, Any]) -> Source:
    """The source with the filters of the command line, which it adds to the request."""
    filters = {name: getattr(options, name) for name in _FILTERS if getattr(options, name)}
    if not filters:
        return source
    field = options.language_field if options.languages else ""
    filtered = caption_filters.FilteredSource(source, **filters, language_field=field)
    request["filters"] = filtered.request
    return filtered


def _summary(manifest: dict[str, Any], out: str) -> str:
    size = sum(shard["bytes"] for shard in manifest["shards"])
    filtered = sum((Counter(shard.get("left_out", {})) for shard in manifest["shards"]), Counter())
    records = filtered.pop("records", 0)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(filtered.items()))
    filters = f"; {filtered.total():,} captions and with them {records:,} records did not pass "
    return (
        f"{manifest['count']:,} records ({manifest['captions']:,} captions, "
        f"{manifest['images']:,} different images) in {len(manifest['shards'])} shards, "
        f"{size / 1e6:,.1f} MB, {skipped_records.number(manifest)} left out: {out}"
        + (f"{filters}the filters ({reasons})" if filtered else "")
    )


def _dataset_parser(name: str) -> argparse.ArgumentParser:
    dataset = DATASETS[name]
    arguments = f"prepare {name} \\\n      {dataset.example} \\\n      --out prepared/{name}"
    description = f"{inspect.getdoc(SOURCES[name])}\n\n  vlc-jax {arguments}"
    parser = command_line.parser(f"prepare {name}", description)
    for file in dataset.files:
        parser.add_argument(f"--{file}", required=True, help="see above")
    for option, values in dataset.choices.items():
        help_text = f"one of {', '.join(values)}: see above; default: {values[0]}"
        parser.add_argument(f"--{option}", choices=values, default=values[0], help=help_text)
    for flag in dataset.flags:
        parser.add_argument(f"--{flag.replace('_', '-')}", action="store_true", help="see above")
    parser.add_argument("--split", default="train", help=dataset.splits)
    parser.add_argument("--size", type=int, default=_SIZE, help=f"{_SIZE_HELP}; default: {_SIZE}")
    return _with_common(parser)


def _source_parser() -> argparse.ArgumentParser:
    usage = "%(prog)s DATASET --help\n       %(prog)s --source NAME --size SIZE --out OUT ..."
    parser = command_line.parser("prepare", __doc__, usage=usage)
    parser.add_argument("--source", required=True, help=f"one of {sorted(SOURCES)}")
    parser.add_argument("--split", default="train", help="of the source; default: train")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, e.g. path=captions.jsonl; may be repeated",
    )
    parser.add_argument("--size", type=int, required=True, help=_SIZE_HELP)
    return _with_common(parser)


_SIZE_HELP = "shorter side of the stored images, in pixels"


def _with_common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--out", required=True, help="folder for the shards")
    parser.add_argument(
        "--format",
        default="auto",
        choices=("auto", "jpeg", "png"),
        help=f"default: png up to {shard_writer.PNG_UP_TO} pixels, else jpeg of quality "
        f"{shard_job.JPEG_QUALITY}",
    )
    parser.add_argument("--shard-size", type=int, default=4096, help="records; default: 4096")
    parser.add_argument(
        "--max-bad-share",
        type=float,
        default=0.01,
        help="of the records; more unusable ones end the run with exit code 3; default: 0.01",
    )
    parser.add_argument(
        "--threads",
        type=command_line.positive,
        help="of every process; default: the number of cores, with --runner 1",
    )
    parts.add_runner(parser)
    _add_filters(parser)
    _add_generators(parser)
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    """Options of images and captions that are left out."""
    parser.add_argument(
        "--exclude", metavar="TXT", help="images or records to leave out (vlc-jax leaks --write)"
    )
    positive = command_line.positive
    parser.add_argument("--min-words", type=positive, help="shorter captions are left out")
    parser.add_argument("--max-words", type=positive, help="longer captions are left out")
    parser.add_argument(
        "--languages",
        type=command_line.names,
        action="extend",
        default=[],
        metavar="CODE,CODE",
        help="captions of other languages are left out, by --language-field",
    )
    parser.add_argument(
        "--language-field",
        default="language",
        metavar="NAME",
        help="column of a table, field of img2dataset's JSON or of a record's `meta` with the "
        "language; default: language",
    )


def _add_generators(parser: argparse.ArgumentParser) -> None:
    """Options of hard texts that are stored with the captions."""
    for side in ("negatives", "positives"):
        parser.add_argument(
            f"--{side}",
            type=command_line.names,
            action="extend",
            default=[],
            metavar="NAME,NAME",
            help=f"generators of hard {side}, whose texts are stored with every caption",
        )
    parser.add_argument(
        "--texts-per-kind",
        type=int,
        default=8,
        help="most texts per caption and generator; default: 8",
    )
    parser.add_argument("--text-seed", type=int, default=0, help="of the generators; default: 0")
    parser.add_argument(
        "--generator-options",
        default=_NO_OPTIONS,
        metavar="JSON",
        help="options of generators, {GENERATOR: {OPTION: VALUE}}",
    )


if __name__ == "__main__":
    sys.exit(main())
