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
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.commands import (
    addresses,
    caption_filters,
    command_line,
    generated_texts,
    parts,
    shard_job,
    shard_writer,
)
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.record import Source
from vlc_jax.input_pipeline.sources import SOURCES, make_source, parquet_table
from vlc_jax.input_pipeline.sources.conversation_records import ANSWERS
from vlc_jax.input_pipeline.stores import any_path, fetch

_NO_OPTIONS = "{}"
_FILTERS = ("min_words", "max_words", "languages", "exclude")
# (source, option) of addresses that workers read in parts
_IN_PLACE = (("img2dataset", "tars"), ("records", "path"))
# Pixels, of the named datasets: enough for crops of 224.
_SIZE = 256


class Dataset(NamedTuple):
    """Command line of a named dataset, whose other options are those of its source.

    splits: of its file; none: it has one, and --split is only a name.   choices: of an option.
    """

    example: str
    splits: str = ""
    choices: Mapping[str, Sequence[str]] = {}


DATASETS = {
    "coco": Dataset(
        "--annotations coco/dataset_coco.json --images coco --split train+restval",
        "train, restval, val, test, train+restval (the usual training set) or all",
    ),
    "flickr30k": Dataset(
        "--annotations flickr30k/dataset_flickr30k.json --images flickr30k/flickr30k-images "
        "--split test",
        "train, val, test or all",
    ),
    "negclip": Dataset("--annotations coco/train_neg_clip.tsv --images coco"),
    "cc3m": Dataset("--annotations cc3m/train.tsv --images cc3m"),
    "img2dataset": Dataset("--tars cc3m_tars"),
    "llava": Dataset(
        "--annotations llava/llava_instruct_150k.json --images coco/train2017",
        choices={"answers": ANSWERS},
    ),
}


@functools.partial(addresses.allowed, stay_with="--runner")
def main(words: list[str]) -> int:
    """The command line; returns the exit code."""
    try:
        return command_line.exit_code(_run, words)
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
    request |= {"annotations": getattr(source, "digests", {}), "size": options.size}
    request |= {"format": options.format, "shard_size": options.shard_size}
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
    manifest = shard_writer.write(
        source,
        any_path.of(options.out) if engine else Path(options.out),
        max_bad_share=options.max_bad_share,
        # with a runner the workers are the processes of the cores
        threads=parts.threads(options, engine),
        engine=engine,
        **request,
    )
    print(_summary(manifest, options.out))
    return 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, str, str, dict[str, Any]]:
    """The options of the command; name, split and options of the source."""
    if arguments and not arguments[0].startswith("-"):
        name = arguments[0]
        if name not in DATASETS:
            near, known = lookup.nearest(name, DATASETS), [*DATASETS]
            raise ValueError(f"no dataset {name!r}{near}; known: {known}, or --source")
        options = _dataset_parser(name).parse_args(arguments[1:])
        source_options = {
            option: value
            for option in _dataset_options(name)
            # a flag that is not set is none of the request
            if (value := getattr(options, option)) is not False
        }
        split = options.split if DATASETS[name].splits else "all"
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
        f"{size / 1e6:,.1f} MB, {manifest['skipped']:,} left out: {out}"
        + (f"{filters}the filters ({reasons})" if filtered else "")
    )


def _dataset_options(name: str) -> dict[str, inspect.Parameter]:
    """Options of a named dataset: the files that its source needs, flags, and choices."""
    return {
        option: parameter
        for option, parameter in inspect.signature(SOURCES[name]).parameters.items()
        if parameter.default is parameter.empty
        or parameter.annotation is bool
        or option in DATASETS[name].choices
    }


def _dataset_parser(name: str) -> argparse.ArgumentParser:
    dataset = DATASETS[name]
    arguments = f"prepare {name} \\\n      {dataset.example} \\\n      --out prepared/{name}"
    description = f"{inspect.getdoc(SOURCES[name])}\n\n  vlc-jax {arguments}"
    parser = command_line.parser(f"prepare {name}", description)
    add = parser.add_argument
    for option, parameter in _dataset_options(name).items():
        if parameter.default is parameter.empty:
            add(f"--{option}", required=True, help="see above")
        elif parameter.annotation is bool:
            add(f"--{option.replace('_', '-')}", action="store_true", help="see above")
        else:
            values = dataset.choices[option]
            text = f"one of {', '.join(values)}: see above; default: {parameter.default}"
            add(f"--{option}", choices=values, default=parameter.default, help=text)
    splits = dataset.splits or "name of the split in a run; the shards hold the whole file"
    add("--split", default="train", help=f"{splits}; default: train")
    add("--size", type=int, default=_SIZE, help=f"{_SIZE_HELP}; default: {_SIZE}")
    return _with_common(parser)


def _source_parser() -> argparse.ArgumentParser:
    usage = "%(prog)s DATASET --help\n       %(prog)s --source NAME --size SIZE --out OUT ..."
    parser = command_line.parser("prepare", __doc__, usage=usage)
    add = parser.add_argument
    add("--source", required=True, help=f"one of {sorted(SOURCES)}")
    add("--split", default="train", help="of the source; default: train")
    text = "an option of the source, e.g. path=captions.jsonl; may be repeated"
    add("--option", **command_line.PAIRS, help=text)
    add("--size", type=int, required=True, help=_SIZE_HELP)
    return _with_common(parser)


_SIZE_HELP = "shorter side of the stored images, in pixels"


def _with_common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add, positive = parser.add_argument, command_line.positive
    add("--out", required=True, help="folder for the shards")
    quality = f"jpeg of quality {shard_job.JPEG_QUALITY}"
    text = f"default: png up to {shard_writer.PNG_UP_TO} pixels, else {quality}"
    add("--format", default="auto", choices=("auto", "jpeg", "png"), help=text)
    add("--shard-size", type=int, default=4096, help="records; default: 4096")
    text = "of the records; more unusable ones end the run with exit code 3; default: 0.01"
    add("--max-bad-share", type=float, default=0.01, help=text)
    text = "of every process; default: the number of cores, with --runner 1"
    add("--threads", type=positive, help=text)
    parts.add_runner(parser)
    text = "images or records to leave out (vlc-jax leaks --write)"
    add("--exclude", metavar="TXT", help=text)
    add("--min-words", type=positive, help="shorter captions are left out")
    add("--max-words", type=positive, help="longer captions are left out")
    text = "captions of other languages are left out, by --language-field"
    add("--languages", **command_line.NAMES, metavar="CODE,CODE", help=text)
    text = (
        "column of a table, field of img2dataset's JSON or of a record's `meta` with the language; "
        "default: language"
    )
    add("--language-field", default="language", metavar="NAME", help=text)
    for side in ("negatives", "positives"):
        text = f"generators of hard {side}, whose texts are stored with every caption"
        add(f"--{side}", **command_line.NAMES, metavar="NAME,NAME", help=text)
    text = "most texts per caption and generator; default: 8"
    add("--texts-per-kind", type=int, default=8, help=text)
    add("--text-seed", type=int, default=0, help="of the generators; default: 0")
    text = "options of generators, {GENERATOR: {OPTION: VALUE}}"
    add("--generator-options", default=_NO_OPTIONS, metavar="JSON", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
