"""Writer of array_record shards of resized images, with a manifest; resumable.

The manifest has the request, the sha256 of the annotation file and of every shard, the numbers of
records, captions and different images, and the skipped records with reasons.
"""

import errno
import fcntl
import hashlib
import io
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import record_validation, stores
from vlc_jax.input_pipeline.commands.caption_filters import LeftOut
from vlc_jax.input_pipeline.images import image_ops, transforms
from vlc_jax.input_pipeline.record import DataError, Record, Source, has_text_only
from vlc_jax.input_pipeline.sources import id_index, shards

JPEG_QUALITY = 95
# Pixels: below, JPEG's 8 x 8 blocks show and a PNG is small anyway.
PNG_UP_TO = 64
NO_IMAGE = b""  # in place of the encoded image of a text-only record
# Records encoded at a time: `pool.map` submits all of its items at once, and holds their results.
_BLOCK = 64


class _Entry(NamedTuple):
    """Encoded record of a shard; data is None for a record without, with the reason if it is bad.

    left_out: reason -> number of captions that filters left out.
    """

    name: str
    data: bytes | None = None
    captions: int = 0
    image_hash: int = 0
    reason: str = ""
    left_out: Mapping[str, int] = {}


def write(
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

    image_format: "jpeg", "png" or "auto", which is png up to 64 pixels; "features": the source's
      bytes, unchanged.
    shard_size: records of the source per shard.
    request: options that determine the content; a folder with another request is refused.
    Raises ValueError for such a folder, DataError if too many records are unusable; a resumed run
    writes the shard in which that happened again.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder for the shards")
    if threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    if not 0 <= max_bad_share <= 1:
        raise ValueError(f"max_bad_share is a share from 0 to 1; got {max_bad_share}")
    request = _whole_request(source, request or {}, size, image_format, shard_size)
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        return _write(source, out, request, max_bad_share, threads, advance)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Locks the folder. Raises ValueError if another process writes to it."""
    # An flock, not a lock file: the kernel releases it when the process dies, however it dies.
    path = out / "lock.partial"
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The other process may have removed the file between our `open` and our `flock`.
            is_ours = os.fstat(file.fileno()).st_ino == path.stat().st_ino
        except OSError as error:
            raise ValueError(f"another process writes to {out}; wait for it or stop it") from error
        if not is_ours:
            raise ValueError(f"another process has just written to {out}; start again")
        yield
        Path(file.name).unlink()


def _write(
    source: Source,
    out: Path,
    request: dict[str, Any],
    max_bad_share: float,
    threads: int,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    shard_size = request["shard_size"]
    manifest = _begin(out, request)
    limit = max_bad_share * len(source)
    if manifest["complete"]:
        record_validation.check_share(manifest["skipped"], limit, len(source))
        return manifest
    stored = _stored_images(out, manifest)
    _save(out, manifest)
    shard_count = math.ceil(len(source) / shard_size)
    with futures.ThreadPoolExecutor(threads) as pool:
        for number in range(len(manifest["shards"]), shard_count):
            first = number * shard_size
            indices = range(first, min(first + shard_size, len(source)))
            name = f"shard-{number:05d}-of-{shard_count:05d}.array_record"
            # The shard first, then the manifest: every listed shard is complete on disk.
            shard, skipped, hashes = _write_shard(
                pool, source, indices, out / name, request, advance
            )
            _check_share(out, manifest, skipped, limit, len(source))
            manifest["shards"].append(shard)
            manifest["skipped"] |= skipped
            manifest["count"] += shard["count"]
            manifest["captions"] += shard["captions"]
            stored.append(hashes)
            _save(out, manifest)
    manifest["images"] = len(np.setdiff1d(np.concatenate(stored), [_hash(NO_IMAGE)]))
    manifest["complete"] = True
    _save(out, manifest)
    # makes the index of a long one, so that no run has to
    shards.read_manifest(out)
    return manifest


def shrink(record: Record, size: int, image_format: str) -> bytes:
    """Encoded image of the record with its shorter side at most `size`.

    NO_IMAGE for a text-only record. Raises DataError.
    """
    if record.image is None:
        return NO_IMAGE
    if image_format == shards.FEATURES:
        return record.image
    picture = image_ops.open_rgb(record.image)
    if min(picture.size) > size:
        picture = transforms.resize_short_side(picture, size)
    encoded = io.BytesIO()
    if image_format == "png":
        picture.save(encoded, "PNG", optimize=False)
    else:
        picture.save(encoded, "JPEG", quality=JPEG_QUALITY)
    return encoded.getvalue()


def _whole_request(
    source: Source, request: dict[str, Any], size: int, image_format: str, shard_size: int
) -> dict[str, Any]:
    """The request with every option that determines the shards' content. Raises ValueError."""
    if image_format not in ("auto", "jpeg", "png", shards.FEATURES):
        raise ValueError(f"format must be auto, jpeg or png; got {image_format!r}")
    for name, value in (("size", size), ("shard_size", shard_size)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    if image_format == "auto":
        image_format = "png" if size <= PNG_UP_TO else "jpeg"
    complete = {"split": "all"} | request
    complete |= {"size": size, "format": image_format, "shard_size": shard_size}
    complete |= {"text_only": True} if has_text_only(source) else {}
    return complete | {"source_fingerprint": source.fingerprint, "source_count": len(source)}


def _begin(out: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The manifest of an earlier run of the same request, or a new one."""
    path = out / shards.MANIFEST
    if not path.exists():
        others = [entry.name for entry in out.iterdir() if not entry.name.endswith(".partial")]
        if others:
            raise ValueError(f"{out} is not empty (it holds {others[0]}); choose another folder")
        version = shards.FORMAT_VERSION
        new = {"format_version": version, "complete": False, "request": request}
        return new | {"count": 0, "captions": 0, "shards": [], "skipped": {}}
    try:
        manifest = json.loads(path.read_text("utf-8"))
        before, _, version = (manifest[key] for key in ("request", "captions", "format_version"))
        manifest.pop("refused", None)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error!r}; remove {out} and prepare again") from error
    shards.check_version(path, version)
    # tuples become lists, as in the file
    request = json.loads(json.dumps(request))
    differing = [key for key in request | before if request.get(key) != before.get(key)]
    if differing:
        key = differing[0]
        raise ValueError(
            f"{out} was begun with {key} {before.get(key)!r}, not {request.get(key)!r}; "
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
) -> tuple[dict[str, Any], dict[str, str], np.ndarray]:
    """Writes a shard under a temporary name and renames it to `path` when it is complete.

    Returns its manifest entry, the skipped records (id -> reason) and the hashes of its images.
    """
    from array_record.python import array_record_module

    def entry(index: int) -> _Entry:
        name = f"record {index}"
        try:
            record = source[index]
            name = record.id
            record_validation.captions(record)
            image = shrink(record, request["size"], request["format"])
            data = shards.encode(record, image)
            left_out = getattr(record, "left_out", {})
            return _Entry(name, data, len(record.captions), _hash(image), left_out=left_out)
        except LeftOut as error:
            return _Entry(name, left_out=error.counts)
        except DataError as error:
            return _Entry(name, reason=str(error))

    partial = path.with_name(path.name + ".partial")
    # Group size 1 makes single records readable; encoded images do not compress further.
    writer = array_record_module.ArrayRecordWriter(str(partial), "group_size:1,uncompressed")
    captions, hashes, skipped = 0, [], {}
    record_ids: list[str] = []
    left_out: Counter[str] = Counter()  # reason -> captions; "records" without any caption left
    try:
        for first in range(indices.start, indices.stop, _BLOCK):
            block = range(first, min(first + _BLOCK, indices.stop))
            for made in pool.map(entry, block):
                left_out.update(made.left_out)
                if made.data is None:
                    if made.reason:
                        skipped[made.name] = made.reason
                    else:
                        left_out["records"] += 1
                    continue
                writer.write(made.data)
                captions += made.captions
                hashes.append(made.image_hash)
                record_ids.append(made.name)
            advance(block.stop)
        writer.close()
    except RuntimeError as error:
        raise OSError(errno.EIO, f"cannot write {partial}: {error}") from error
    finally:
        if writer.is_open():
            writer.close()
    ids_path = path.with_suffix(".ids")
    ids_path.write_bytes(id_index.hash_ids(record_ids).astype("<u8").tobytes())
    shard = {"name": path.name, "count": len(hashes), "captions": captions}
    shard |= {"left_out": left_out} if left_out else {}
    shard |= _sealed(partial) | {"ids": {"name": ids_path.name, **_sealed(ids_path)}}
    # atomic, and after the ids: a reader that sees the shard finds both whole
    os.replace(partial, path)
    return shard, skipped, np.array(hashes, np.uint64)


def _sealed(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file, after flushing it to the disk."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}


def _check_share(
    out: Path, manifest: dict[str, Any], skipped: dict[str, str], limit: float, total: int
) -> None:
    """Raises DataError if too many records are skipped; lists the new ones in the manifest."""
    try:
        record_validation.check_share(manifest["skipped"] | skipped, limit, total)
    except DataError as error:
        _save(out, manifest | {"refused": skipped})
        raise DataError(
            f"{error}. {out / shards.MANIFEST} lists them (skipped, refused); the same command "
            "continues where it stopped"
        ) from error


def _stored_images(out: Path, manifest: dict[str, Any]) -> list[np.ndarray]:
    """Hashes of the images of every whole shard, uint64 (records,) each."""
    from array_record.python import array_record_data_source

    # A resumed run reads them again to count the different images over all shards.
    stored = [np.empty(0, np.uint64)]
    for shard in manifest["shards"]:
        if shard["count"]:
            entries = array_record_data_source.ArrayRecordDataSource([out / shard["name"]])
            records = (shards.decode(entries[i]) for i in range(len(entries)))
            hashes = [_hash(record.image or NO_IMAGE) for record in records]
            stored.append(np.array(hashes, np.uint64))
    return stored


def _hash(image: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(image, digest_size=8).digest(), "little")


def _save(out: Path, manifest: dict[str, Any]) -> None:
    with stores.replacing(out / shards.MANIFEST) as file:
        json.dump(manifest, file, indent=1)
