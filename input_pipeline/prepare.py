"""Any source -> array_record shards of resized images, with a manifest. Source `shards` reads them.

  python -m input_pipeline.prepare --source records --option path=captions.jsonl \\
      --option image_folder=images --size 224 --out prepared/train

Images are shrunk until their shorter side is `size` (never enlarged, never cropped) and stored as
JPEG of quality 95, or losslessly as PNG. Records that cannot be used are left out and listed in the
manifest. A run that was stopped continues, with the same command, after its last whole shard.
Exit code 0: done; 2: wrong request; 3: too many records cannot be used.
"""

import argparse
import hashlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import input_pipeline
from input_pipeline import image as images
from input_pipeline import progress, usable
from input_pipeline.record import DataError, Record, Source
from input_pipeline.sources import shards

_JPEG_QUALITY = 95
_PNG_UP_TO = 64  # pixels: below, JPEG's 8 x 8 blocks show and a PNG is small anyway
_BLOCK = 64  # records encoded at a time, so that few are held in memory


def prepare(
    source: Source,
    out: Path,
    *,
    size: int,
    image_format: str = "auto",
    shard_size: int = 4096,
    max_bad_share: float = 0.01,
    threads: int = 1,
    request: dict[str, Any] | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Writes the shards of `source` into the folder `out` and returns the manifest.

    image_format: "jpeg", "png" or "auto", which is png up to 64 pixels.
    shard_size: records of the source per shard.
    request: what was asked for; the folder of another request is refused.
    Raises ValueError for such a refusal, DataError when too many records cannot be used.
    """
    if image_format not in ("auto", "jpeg", "png"):
        raise ValueError(f"format must be auto, jpeg or png; got {image_format!r}")
    for name, value in (("size", size), ("shard_size", shard_size), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder for the shards")
    if image_format == "auto":
        image_format = "png" if size <= _PNG_UP_TO else "jpeg"
    request = {"split": "all"} | (request or {})
    request |= {"size": size, "format": image_format, "shard_size": shard_size}
    request |= {"source_fingerprint": source.fingerprint, "source_count": len(source)}
    out.mkdir(parents=True, exist_ok=True)
    manifest = _begin(out, request)
    _save(out, manifest)
    shard_count = math.ceil(len(source) / shard_size)
    with futures.ThreadPoolExecutor(threads) as pool:
        for number in range(len(manifest["shards"]), shard_count):
            first = number * shard_size
            indices = range(first, min(first + shard_size, len(source)))
            name = f"shard-{number:05d}-of-{shard_count:05d}.array_record"
            shard, skipped = _write_shard(pool, source, indices, out / name, request, advance)
            manifest["shards"].append(shard)
            manifest["skipped"] |= skipped
            manifest["count"] += shard["count"]
            _save(out, manifest)
            usable.check_share(manifest["skipped"], max_bad_share * len(source), len(source))
    usable.check_share(manifest["skipped"], max_bad_share * len(source), len(source))
    manifest["complete"] = True
    _save(out, manifest)
    return manifest


def shrink(record: Record, size: int, image_format: str) -> bytes:
    """The record's image with its shorter side at most `size`, encoded. Raises DataError."""
    picture = images.open_rgb(record.image)
    if min(picture.size) > size:
        picture = images.resize_short_side(picture, size)
    encoded = io.BytesIO()
    if image_format == "png":
        picture.save(encoded, "PNG", optimize=False)
    else:
        picture.save(encoded, "JPEG", quality=_JPEG_QUALITY)
    return encoded.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        given = progress.parse_options(options.option)
        source = input_pipeline.make_source(options.source, options.split, **given)
        with progress.bar("preparing", len(source)) as advance:
            manifest = prepare(
                source,
                Path(options.out),
                size=options.size,
                image_format=options.format,
                shard_size=options.shard_size,
                max_bad_share=options.max_bad_share,
                threads=options.threads,
                request={"source": options.source, "split": options.split, "options": given},
                advance=advance,
            )
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = sum(shard["bytes"] for shard in manifest["shards"])
    print(
        f"{manifest['count']:,} records in {len(manifest['shards'])} shards, {size / 1e6:,.1f} MB, "
        f"{len(manifest['skipped'])} left out: {options.out}"
    )
    return 0


def _begin(out: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The manifest of an earlier run of the same request, or a new one."""
    path = out / shards.MANIFEST
    if not path.exists():
        others = [entry.name for entry in out.iterdir() if not entry.name.endswith(".partial")]
        if others:
            raise ValueError(f"{out} is not empty (it holds {others[0]}); choose another folder")
        version = shards.FORMAT_VERSION
        new = {"format_version": version, "complete": False, "count": 0, "request": request}
        return new | {"shards": [], "skipped": {}}
    try:
        manifest = json.loads(path.read_text("utf-8"))
        before = manifest["request"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error!r}; remove {out} and prepare again") from error
    asked = json.loads(json.dumps(request))  # tuples become lists, as in the file
    differing = [key for key in asked | before if asked.get(key) != before.get(key)]
    if differing:
        key = differing[0]
        raise ValueError(
            f"{out} was begun with {key} {before.get(key)!r}, not {asked.get(key)!r}; "
            "use the same options or another folder"
        )
    wrong = shards.damaged_shards(out, manifest)
    if wrong:
        name, reason = next(iter(wrong.items()))
        raise DataError(f"shard {out / name}: {reason}; remove {out} and prepare again")
    return manifest


def _write_shard(
    pool: futures.ThreadPoolExecutor,
    source: Source,
    indices: range,
    path: Path,
    request: dict[str, Any],
    advance: Callable[[int], None],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Writes beside the shard's place and moves it there when it is whole."""
    from array_record.python import array_record_module

    def entry(index: int) -> tuple[str, bytes | None, str]:
        name = f"record {index}"
        try:
            record = source[index]
            name = record.id
            usable.captions(record)
            image = shrink(record, request["size"], request["format"])
            return name, shards.encode(record, image), ""
        except DataError as error:
            return name, None, str(error)

    partial = path.with_name(path.name + ".partial")
    # Group size 1 makes single records readable; encoded images do not compress further.
    writer = array_record_module.ArrayRecordWriter(str(partial), "group_size:1,uncompressed")
    count, skipped = 0, {}
    try:
        for first in range(indices.start, indices.stop, _BLOCK):
            block = range(first, min(first + _BLOCK, indices.stop))
            for name, data, reason in pool.map(entry, block):
                if data is None:
                    skipped[name] = reason
                    continue
                writer.write(data)
                count += 1
            advance(block.stop)
    finally:
        writer.close()
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    shard = {"name": path.name, "count": count, "bytes": partial.stat().st_size, "sha256": digest}
    os.replace(partial, path)
    return shard, skipped


def _save(out: Path, manifest: dict[str, Any]) -> None:
    partial = out / f"{shards.MANIFEST}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, out / shards.MANIFEST)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m input_pipeline.prepare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--source", required=True, help=f"one of {sorted(input_pipeline.SOURCES)}")
    parser.add_argument("--split", default="train", help="of the source; default: train")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, e.g. path=captions.jsonl; may be repeated",
    )
    parser.add_argument("--out", required=True, help="folder for the shards")
    parser.add_argument(
        "--size", type=int, required=True, help="shorter side of the stored images, in pixels"
    )
    parser.add_argument(
        "--format",
        default="auto",
        choices=("auto", "jpeg", "png"),
        help=f"default: png up to {_PNG_UP_TO} pixels, else jpeg of quality {_JPEG_QUALITY}",
    )
    parser.add_argument("--shard-size", type=int, default=4096, help="records; default: 4096")
    parser.add_argument("--max-bad-share", type=float, default=0.01, help="default: 0.01")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
