"""Shards that `vlc-jax prepare` writes: array_record files and a manifest.

One array_record entry is one record: the length of a JSON header (4 bytes, little endian), the
header (every field of the record but the image) and the encoded image, empty for a text-only
record. The manifest has the number of records, size and sha256 of each shard, the skipped records
with reasons, and the request. Beside each shard is a file with the hashes of its record ids
(uint64, little endian), for lookup by id.
"""

import dataclasses
import functools
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.record import DataError, Record, path_below, read_caption
from vlc_jax.input_pipeline.sources import id_index, order
from vlc_jax.input_pipeline.sources.stage import GIGABYTE, Stage
from vlc_jax.input_pipeline.sources.staged_shards import ReadCounts, StagedShards
from vlc_jax.input_pipeline.stores import fetch

MANIFEST = "manifest.json"
PREPARE = "vlc-jax prepare"  # the command that writes such folders
FORMAT_VERSION = 2
FEATURES = "features"  # the format of shards with features in place of encoded images
_LENGTH = struct.Struct("<I")


def encode(record: Record, image: bytes) -> bytes:
    """Encodes a record as a shard entry. Raises TypeError if `group` or `meta` is not JSON."""
    header = {
        "id": record.id,
        "captions": [str(caption) for caption in record.captions],
        "negatives": [list(texts) for texts in record.negatives],
        "positives": [list(texts) for texts in record.positives],
        "negative_kinds": [list(kinds) for kinds in record.negative_kinds],
        "positive_kinds": [list(kinds) for kinds in record.positive_kinds],
        "hard_images": list(record.hard_images),
        "group": record.group,
        "meta": record.meta,
    }
    if record.questions:
        header["questions"] = list(record.questions)
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text + image


def decode(entry: bytes) -> Record:
    """Decodes a shard entry; the image stays encoded, and is None for a text-only record.

    Raises ValueError if damaged, DataError for a malformed conversation.
    """
    if len(entry) < _LENGTH.size:
        raise ValueError(f"an entry of {len(entry)} bytes")
    end = _LENGTH.size + _LENGTH.unpack_from(entry)[0]
    record = Record(**json.loads(entry[_LENGTH.size : end]), image=entry[end:] or None)
    if not all(isinstance(text, str) for text in record.captions):
        raise TypeError(f"captions are texts; got {record.captions!r:.80}")
    return dataclasses.replace(record, captions=[read_caption(text) for text in record.captions])


def read_manifest(folder: Path, written_by: str = PREPARE) -> dict[str, Any]:
    """Reads a manifest. Raises ValueError without one, DataError if damaged or unfinished."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} holds no {MANIFEST}; {written_by} writes one")
    try:
        manifest = json.loads(path.read_text("utf-8"))
        complete, version = manifest["complete"], manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error!r}") from error
    check_version(path, version)
    if not complete:
        raise DataError(
            f"{folder} is unfinished: run the same command ({written_by}) again to complete it"
        )
    try:
        _check_entries(folder, manifest)
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from None
    return manifest


def _check_entries(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises DataError unless the shards of a manifest have the fields that readers take, and lie
    in its folder."""
    match manifest:
        case {"count": int(), "request": {"split": str(), "format": _}, "shards": list(entries)}:
            pass
        case _:
            raise DataError("it has no count, no request, or no shards")
    for number, entry in enumerate(entries):
        match entry:
            case {
                "name": str(name),
                "count": int(),
                "bytes": int(),
                "sha256": str(),
                "ids": {"name": str(ids), "bytes": int(), "sha256": str()},
            }:
                for file in (name, ids):
                    path_below(folder, file)
            case _:
                raise DataError(f"shard {number} lacks name, count, bytes, sha256 or ids")


def check_version(path: Path, version: int) -> None:
    """Raises DataError for the manifest of another version of this program."""
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format {version}, this version reads {FORMAT_VERSION}; prepare the data "
            "again into another folder"
        )


def damaged_shards(folder: Path, manifest: dict[str, Any]) -> dict[str, str]:
    """Damaged files of a folder with the reason, by the manifest's sha256. Reads every byte."""
    files = [file for shard in manifest["shards"] for file in (shard, shard["ids"])]
    return damaged_files(folder, files)


def damaged_files(folder: Path, files: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Those of the files (`name`, `sha256`) that are not as they were, with the reason."""
    wrong = {}
    for file in files:
        path = folder / file["name"]
        if not path.is_file():
            wrong[file["name"]] = "missing"
            continue
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if digest != file["sha256"]:
            wrong[file["name"]] = f"sha256 {digest[:12]}..., should be {file['sha256'][:12]}..."
    return wrong


class ShardsSource:
    """Records of a prepared folder, in the order of the source they were made from.

    A folder holds one split, named in its manifest: `split` must be this name or "all"; a folder of
    "train+restval" (COCO) also serves "train". Sizes and counts are checked at once, sha256 by
    `vlc-jax check`. Raises ValueError for a missing folder, another split or features in place of
    pictures, DataError for missing, truncated or damaged shards.

    shuffle: the order of training, "global" or "blocks" (order.py).   stage: folder on a local disk
    for copies of the shards in use, up to `stage_gb` (10**9 bytes); None: shards are read in place.
    """

    holds_features = False
    written_by = PREPARE

    def __init__(
        self,
        split: str = "all",
        *,
        path: str | Path,
        shuffle: str = "global",
        stage: str | Path | None = None,
        stage_gb: float = 100.0,
    ) -> None:
        if not str(path):
            raise ValueError(f"this source needs `path`, the folder that {self.written_by} wrote")
        # with a stage, shards in a store are copied when they are read
        folder = fetch.local(path, skip=[".array_record"] if stage is not None else [])
        manifest = read_manifest(folder, self.written_by)
        self._check_format(folder, manifest)
        prepared = manifest["request"]["split"]
        is_training = split == "train" and "train" in prepared.split("+")
        if split not in ("all", prepared) and not is_training:
            raise ValueError(f"{folder} holds the split {prepared!r}; got {split!r}")
        lookup.check_known("shuffle", [shuffle], order.SHUFFLES)
        self.shuffle = shuffle
        self.manifest = manifest
        self.text_versions = _text_versions(manifest)
        self.fingerprint = f"shards/{_digest(manifest)}"
        self.has_text_only = manifest["request"].get("text_only", False)
        self._folder = folder
        full = [shard for shard in manifest["shards"] if shard["count"]]
        origin = stores.folder(path)
        objects = origin.list() if isinstance(origin, stores.StoreFolder) else None
        for shard in manifest["shards"]:
            _check_size(folder, shard, objects)
            _check_size(folder, shard["ids"])
        if not full:
            raise DataError(f"{folder} holds no records")
        self._counts = ReadCounts()
        self._entries: Sequence[bytes] | StagedShards
        if stage is None:
            self._entries = _open(folder, full)
        else:
            local = Stage(stage, stage_gb * GIGABYTE)
            self._entries = StagedShards(origin, full, local, shuffle, self._counts)
        if len(self._entries) != manifest["count"]:
            raise DataError(
                f"{folder} holds {len(self._entries)} records, its manifest says "
                f"{manifest['count']}; find the damage with vlc-jax check {folder}"
            )

    def _check_format(self, folder: Path, manifest: dict[str, Any]) -> None:
        has_features = manifest["request"]["format"] == FEATURES
        if has_features != self.holds_features:
            content, right = ("features", "features") if has_features else ("pictures", "shards")
            raise ValueError(f"{folder} holds {content}: read it with the source {right!r}")

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Record:
        try:
            entry = self._entries[index]
            self._counts.add(bytes_read=len(entry))
            return decode(entry)
        except (RuntimeError, ValueError, TypeError) as error:  # array_record, JSON, Record
            raise DataError(f"entry {index} of {self._folder} is damaged: {error}") from error

    def read_ahead(self, indices: np.ndarray) -> None:
        """Starts to copy the shards of these records, if there is a stage."""
        if isinstance(self._entries, StagedShards):
            self._entries.read_ahead(indices)

    def take_counts(self) -> dict[str, int]:
        """Reads of this process since the last call (ReadCounts)."""
        return self._counts.take()

    def find(self, record_id: str) -> Record:
        """Raises DataError if there is no such record, or if it cannot be read."""
        for index in self._id_index[record_id]:
            record = self[index]
            if record.id == record_id:
                return record
        raise DataError(f"{self._folder} holds no record {record_id!r}")

    @functools.cached_property
    def _id_index(self) -> id_index.IdIndex:
        names = [shard["ids"]["name"] for shard in self.manifest["shards"]]
        stored = [np.fromfile(self._folder / name, "<u8") for name in names]
        return id_index.IdIndex(np.concatenate(stored).astype(np.uint64))


def _open(folder: Path, shards: list[dict[str, Any]]) -> Sequence[bytes]:
    from array_record.python import array_record_data_source

    try:
        return array_record_data_source.ArrayRecordDataSource(
            [folder / shard["name"] for shard in shards]
        )
    except (RuntimeError, ValueError) as error:
        raise DataError(f"a shard of {folder} cannot be opened: {error}") from error


def _text_versions(manifest: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Side -> kind -> version of the generator of the stored texts."""
    texts = manifest["request"].get("texts", {})
    return {side: texts[side] for side in ("negatives", "positives") if texts.get(side)}


def _check_size(
    folder: Path, entry: dict[str, Any], objects: Mapping[str, stores.Object] | None = None
) -> None:
    """objects: of the store that the folder is a copy of."""
    path = folder / entry["name"]
    size = path.stat().st_size if path.is_file() else None
    if objects is not None and entry["name"] in objects:
        size = objects[entry["name"]].size
    if size != entry["bytes"]:
        actual = "is missing" if size is None else f"has {size} bytes"
        raise DataError(f"shard {path} {actual}, the manifest says {entry['bytes']} bytes")


def _digest(manifest: dict[str, Any]) -> str:
    # Only the content: the same shards have the same fingerprint, however they were requested.
    contents = [shard["sha256"] for shard in manifest["shards"]]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:32]
