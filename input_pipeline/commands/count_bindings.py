"""Bindings of training captions, counted: for `vlc-jax report RUN --train OUT.npy`.

  vlc-jax bindings prepared/cc12m --out cc12m.npy
  vlc-jax bindings captions.jsonl --out bindings.npy --runner DirectRunner \\
      -- --direct_num_workers=8 --direct_running_mode=multi_processing

CAPTIONS is a prepared folder or a table. OUT.npy holds the sorted hashes of the bindings and the
numbers of captions that have them, int64 (2, bindings); OUT.json the tagger and the number of
captions. A small table needs no counts: --train reads it whole. --runner distributes the work
(docs/data.md). Exit code 0: done; 2: wrong request; 3: captions that cannot be read; 30: the disk
is full, or a worker is lost (the same command continues).
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import addresses, binding_parts, command_line, parts
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.input_pipeline.record import DataError


def _run(words: list[str]) -> int:
    options, engine = parts.parse(_parser(), words)
    out = Path(options.out)
    if out.suffix != bindings.COUNTS:
        raise ValueError(f"--out {out}: name a file that ends in {bindings.COUNTS}")
    captions = binding_parts.open_captions(Path(options.captions), options.column)
    by = bindings.described(bindings.make_tagger(options.tagger))
    with parts.folder(options) as folder:
        size = parts.size_of(options, len(captions))
        request = {"captions": captions.digest, "by": by}
        count = binding_parts.Count(captions, options.tagger)
        work = parts.Parts(count, folder, len(captions), size, request)
        parts.run(work, "counting", engine)
        sizes = (work.path(number).stat().st_size for number in range(work.count))
        partial = out.with_name(f"{out.name}{parts.PARTIAL}")
        with parts.parsing(folder):
            number = binding_parts.merge(parts.contents(work), sum(sizes), folder, partial)
    if not number:
        partial.unlink()
        raise DataError(f"{options.captions} holds no captions")
    partial.replace(out)
    with stores.replacing(out.with_suffix(".json")) as file:
        json.dump({"by": by, "captions": number, "of": options.captions}, file)
    different = np.load(out, mmap_mode="r").shape[1]
    print(f"{different:,} different bindings in {number:,} captions, found by {by}: {out}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("bindings", __doc__)
    parser.add_argument("captions", help="prepared folder, JSONL, TSV, CSV, COCO JSON or .txt")
    parser.add_argument("--out", required=True, metavar="OUT.npy")
    parser.add_argument("--column", default="caption", help="of a table; default: caption")
    parser.add_argument(
        "--tagger",
        default="",
        help="KIND:ARGUMENT, or words; default: spacy:en_core_web_sm if it is installed",
    )
    parts.add_arguments(parser)
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
