"""One shard of prepared data: a pure function of the source and the shard's number.

Shard k holds the usable ones of the source records k * shard_size to (k + 1) * shard_size - 1, in
this order. Its files are SHARD.array_record, SHARD.ids (id_index) and SHARD.images, the hashes of
its images. SHARD.done, written last, has their sizes and sha256: a shard without it, or whose files
differ from it, is written again. Any number of processes may write shards of one folder, and even
the same shard: each renames whole files of equal content.
"""

import dataclasses
import errno
import hashlib
import io
import logging
import math
import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.commands.caption_filters import LeftOut
from vlc_jax.input_pipeline.commands.parts import DONE, PARTIAL
from vlc_jax.input_pipeline.images import image_ops, transforms
from vlc_jax.input_pipeline.record import DataError, Record, Source
from vlc_jax.input_pipeline.sources import id_index, shards
from vlc_jax.input_pipeline.sources.shard_table import ShardTable
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

JPEG_QUALITY = 95
NO_IMAGE = b""  # in place of the encoded image of a text-only record
IMAGES = ".images"  # of files that are there until the manifest is complete
_RECORDS, _IDS = ".array_record", ".ids"
# Records encoded at a time: `pool.map` submits all of its items at once, and holds their results.
_BLOCK = 64


class Entry(NamedTuple):
    """Encoded record of a shard; data is None for a record without, with the reason if it is bad.

    left_out: reason -> number of captions that filters left out.
    """

    name: str
    data: bytes | None = None
    captions: int = 0
    image_hash: int = 0
    reason: str = ""
    left_out: Mapping[str, int] = {}


class Done(NamedTuple):
    """A whole shard. shard: its entry in the manifest.   skipped: (index, id, reason) of records.

    images: name, size and sha256 of the file of hashes of its images, uint64 (records,).
    """

    number: int
    shard: dict[str, Any]
    skipped: list[tuple[int, str, str]]
    images: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """The shards of `source` in the folder `out`, a `parts.Work`.

    request: of `shard_writer`: size, format, shard_size.   threads: that encode records of a shard.
    """

    source: Source
    out: AnyPath
    request: Mapping[str, Any]
    threads: int = 1

    @property
    def count(self) -> int:
        """Number of shards."""
        return math.ceil(len(self.source) / self.request["shard_size"])

    def indices(self, number: int) -> range:
        """Source records of a shard."""
        first, size = number * self.request["shard_size"], self.request["shard_size"]
        return range(first, min(first + size, len(self.source)))

    def done(self, number: int) -> Done | None:
        """The shard if it is finished; its files may be damaged since."""
        try:
            content = any_path.read_json(self._path(number, DONE))
            shard, images = content["shard"], content["images"]
            ShardTable.of(self.out, [shard, {**shard, "ids": images}])
            skipped = [(int(index), str(name), str(why)) for index, name, why in content["skipped"]]
            return Done(number, shard, skipped, images)
        except (OSError, ValueError, KeyError, TypeError, DataError):
            return None

    def try_again(self) -> None:
        """Reads the skipped records of finished shards again: a shard is written again if one of
        them can be used by now."""
        for number in range(self.count):
            done = self.done(number)
            if done and any(self.entry(index).data is not None for index, *_ in done.skipped):
                self._path(number, DONE).unlink()

    def entry(self, index: int) -> Entry:
        """The encoded record of a source record: a pure function of source, index and request."""
        name = f"record {index}"
        try:
            record = self.source[index]
            name = record.id
            record_validation.captions(record)
            image = shrink(record, self.request["size"], self.request["format"])
            data = shards.encode(record, image)
            left_out = getattr(record, "left_out", {})
            return Entry(name, data, len(record.captions), _hash(image), left_out=left_out)
        except LeftOut as error:
            return Entry(name, left_out=error.counts)
        except DataError as error:
            return Entry(name, reason=str(error))

    def write(
        self,
        number: int,
        is_wanted: Callable[[], bool] = lambda: True,
        advance: Callable[[int], None] = lambda done: None,
    ) -> Done | None:
        """Writes a shard unless it is finished and whole.

        is_wanted: asked before the shard's files get their names; None is returned if it is False.
        advance: called with numbers of the source's records.   Raises OSError.
        """
        if (done := self.done(number)) is not None and self._is_whole(done):
            advance(self.indices(number).stop)
            return done
        # names of this try: another process may write the same shard
        end = f".{uuid.uuid4().hex}{PARTIAL}"
        places = {kind: self._path(number, kind) for kind in (_RECORDS, _IDS, IMAGES)}
        with any_path.drafts([*places.values()], end) as paths:
            parts = dict(zip(places, paths, strict=True))
            entries, skipped = self._write_records(number, parts[_RECORDS], advance)
            left_out = sum((Counter(entry.left_out) for entry in entries), Counter())
            left_out["records"] = sum(not entry.captions for entry in entries)
            entries = [entry for entry in entries if entry.captions]
            ids = id_index.hash_ids(entry.name for entry in entries)
            parts[_IDS].write_bytes(ids.astype("<u8").tobytes())
            hashes = np.array([entry.image_hash for entry in entries], "<u8")
            parts[IMAGES].write_bytes(hashes.tobytes())
            files = {kind: {"name": places[kind].name, **_sealed(parts[kind])} for kind in parts}
            captions = sum(entry.captions for entry in entries)
            shard = {"name": places[_RECORDS].name, "count": len(entries), "captions": captions}
            shard |= files[_RECORDS] | {"ids": files[_IDS]}
            shard |= {"left_out": +left_out} if +left_out else {}  # `+` drops zeros
            if not is_wanted():
                return None
            for kind, part in parts.items():
                any_path.put(part, places[kind])
        done = Done(number, shard, skipped, files[IMAGES])
        # the marker last: the files that it names are on the disk
        any_path.write_json(self._path(number, DONE), done._asdict(), end)
        return done

    def _write_records(
        self, number: int, path: Path, advance: Callable[[int], None]
    ) -> tuple[list[Entry], list[tuple[int, str, str]]]:
        """Entries of a shard, without their data, which are written to `path`, and of records that
        filters left out; skipped records."""
        from array_record.python import array_record_module

        entries, skipped, indices = [], [], self.indices(number)
        # Group size 1 makes single records readable; encoded images do not compress further.
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        try:
            with futures.ThreadPoolExecutor(self.threads) as pool:
                for first in range(indices.start, indices.stop, _BLOCK):
                    block = range(first, min(first + _BLOCK, indices.stop))
                    for index, made in zip(block, pool.map(self.entry, block), strict=True):
                        if made.reason:
                            skipped.append((index, made.name, made.reason))
                            continue
                        if made.data is not None:
                            writer.write(made.data)
                        entries.append(made._replace(data=None))
                    advance(block.stop)
            writer.close()
        except RuntimeError as error:
            raise OSError(errno.EIO, f"cannot write {path}: {error}") from error
        finally:
            if writer.is_open():
                writer.close()
        return entries, skipped

    def _is_whole(self, done: Done) -> bool:
        """False, with a warning, if files of the shard are not those of the marker."""
        files = [done.shard, done.shard["ids"], done.images]
        for name, reason in shards.damaged_files(self.out, files).items():
            logging.getLogger(__name__).warning("%s is written again: %s", self.out / name, reason)
            return False
        return True

    def _path(self, number: int, end: str) -> AnyPath:
        return self.out / f"shard-{number:05d}-of-{self.count:05d}{end}"


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


def num_images(hashes: np.ndarray) -> int:
    """Number of different images by their hashes, uint64 (records,)."""
    return len(np.setdiff1d(hashes, [_hash(NO_IMAGE)]))


def _sealed(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file, after flushing it to the disk."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}


def _hash(image: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(image, digest_size=8).digest(), "little")
