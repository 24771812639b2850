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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import DataError, Record, path_below, read_caption
from vlc_jax.input_pipeline.sources import id_index, order
from vlc_jax.input_pipeline.sources.shard_files import ShardFiles
from vlc_jax.input_pipeline.sources.shard_table import ShardTable
from vlc_jax.input_pipeline.sources.stage import GIGABYTE, Stage
from vlc_jax.input_pipeline.sources.staged_shards import ReadCounts, StagedShards
from vlc_jax.input_pipeline.sources.table_index import TableIndex
from vlc_jax.input_pipeline.stores import any_path, fetch
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath

MANIFEST = "manifest.json"
PREPARE = "vlc-jax prepare"  # the command that writes such folders
FORMAT_VERSION = 2
_INDEX = "shards"  # its name in the index of a manifest
FEATURES = "features"  # the format of shards with features in place of encoded images
_LENGTH = struct.Struct("<I")
# Shards whose sizes are looked up at once, spread over the folder: on a network file system 1,000
# take a second, and all 250,000 of a billion pairs minutes.
_CHECKED = 1_000


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
    # not always: shards without them stay the same bytes
    for name in ("questions", "caption_weights"):
        if values := getattr(record, name):
            header[name] = list(values)
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
    weights = lookup.weights("caption_weights", record.caption_weights)
    if weights and len(weights) != len(record.captions):
        raise ValueError(f"{len(record.captions)} captions with {len(weights)} weights")
    captions = [read_caption(text) for text in record.captions]
    return record if captions == record.captions else dataclasses.replace(record, captions=captions)


def read_manifest(folder: Path, written_by: str = PREPARE) -> dict[str, Any]:
    """Reads a manifest: its "shards" as a ShardTable, the number of "skipped" records, the rest as
    it is. Raises ValueError without one, DataError if damaged or unfinished.

    One of 4 MiB (10,000 shards) or more is parsed once: what it says is then in an index.
    """
    path = folder / MANIFEST
    if not path.is_file():
        names = sorted(folder.iterdir()) if folder.is_dir() else ()
        tables = [path for path in names if path.suffix in (".csv", ".tsv", ".jsonl", ".json")]
        hint = f"; or name the table {tables[0]}" if tables else ""
        raise ValueError(f"{folder} holds no {MANIFEST}; {written_by} writes one{hint}")
    index = TableIndex(path, f"manifest {FORMAT_VERSION}")
    if (stored := index.read(_INDEX)) is not None:
        manifest = json.loads(str(stored.pop("manifest")))
        return {**manifest, "shards": ShardTable(**stored)}
    try:
        manifest = json.loads(path.read_text("utf-8"))
        complete, version = manifest["complete"], manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error!r}") from error
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format {version}, not {FORMAT_VERSION}: prepare the data again into "
            "another folder"
        )
    if not complete:
        raise DataError(
            f"{folder} is unfinished: run the same command ({written_by}) again to complete it"
        )
    try:
        match manifest:
            case {"count": int(), "request": {"split": str(), "format": _}, "shards": list(shards)}:
                manifest["shards"] = ShardTable.of(folder, shards)
            case _:
                raise DataError("it has no count, no request, or no shards")
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from None
    skipped = manifest.pop("skipped", 0)
    manifest["skipped"] = skipped if isinstance(skipped, int) else 0
    rest = json.dumps({k: v for k, v in manifest.items() if k != "shards"})
    index.write(_INDEX, manifest=np.array(rest), **manifest["shards"].arrays())
    return manifest


def damaged_shards(folder: AnyPath, manifest: dict[str, Any]) -> dict[str, str]:
    """Damaged files of a folder with the reason (`damaged_files`)."""
    files = [file for shard in manifest["shards"] for file in (shard, shard["ids"])]
    return damaged_files(folder, files)


def damaged_files(folder: AnyPath, files: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Those of the files (`name`, `bytes`, `sha256`) that are not as they were, with the reason.

    Reads every byte, in an object store only the sizes: an object is written whole, or not.
    """
    wrong = {}
    if isinstance(folder, StorePath):
        sizes = folder.sizes(file["name"] for file in files)
        for file in files:
            if (size := sizes.get(file["name"])) != file["bytes"]:
                has = "missing" if size is None else f"{size} bytes"
                wrong[file["name"]] = f"{has}, should be {file['bytes']} bytes"
        return wrong
    for file in files:
        path = path_below(folder, file["name"])
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
    "train+restval" (COCO) also serves "train". Sizes of up to 1,000 shards are checked at once,
    those of others and counts when they are opened, sha256 by `vlc-jax check`. Raises ValueError
    for a missing folder, another split or features in place of pictures, DataError for missing or
    truncated shards.

    shuffle: the order of training, "global" or "blocks" (order.py).   stage: folder on a local disk
    for copies of the shards in use, up to `stage_gb` (10**9 bytes); None: shards are read in place.
    caption_weights: of the first caption of a record, the second, ..., in place of stored ones.
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
        caption_weights: Sequence[float] | None = None,
    ) -> None:
        if not str(path):
            raise ValueError(f"this source needs `path`, the folder that {self.written_by} wrote")
        # with a stage, shards in a store are copied when they are read
        skip = [".array_record"] if stage is not None else []
        self._fetch = functools.partial(fetch.local, path, skip=skip)
        folder = fetch.local(f"{path}/{MANIFEST}").parent if skip else self._fetch()
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
        # only the content: the same shards have the same, however they were requested
        self.fingerprint = f"shards/{manifest['shards'].content}"
        self._caption_weights = lookup.weights("caption_weights", caption_weights or ())
        if self._caption_weights:
            self.fingerprint += f"/{self._caption_weights}"
        self.has_text_only = manifest["request"].get("text_only", False)
        self._folder = folder
        shards, origin = manifest["shards"], any_path.of(path)
        self._check_sizes(folder, origin)
        if not shards.total:
            raise DataError(f"{folder} holds no records")
        self._counts = ReadCounts()
        self._entries: ShardFiles | StagedShards
        if stage is None:
            self._entries = ShardFiles(folder, shards)
        else:
            local = Stage(stage, stage_gb * GIGABYTE)
            self._entries = StagedShards(origin, shards, local, shuffle, self._counts)
        if len(self._entries) != manifest["count"]:
            raise DataError(
                f"{folder} holds {len(self._entries)} records, its manifest says "
                f"{manifest['count']}; find the damage with vlc-jax check {folder}"
            )

    def _check_sizes(self, folder: Path, origin: AnyPath) -> None:
        """Compares the sizes of some files with the manifest; the others' when they are opened."""
        shards = self.manifest["shards"]
        has_all = len(shards) <= _CHECKED
        is_stored = isinstance(origin, StorePath)
        if is_stored and not has_all:
            return  # neither listed nor copied yet
        objects = origin.files() if is_stored else None
        self._fetch()
        for number in range(0, len(shards), len(shards) // _CHECKED + 1):
            shard = shards[number]
            _check_size(folder, shard, objects)
            _check_size(folder, shard["ids"])

    def _check_format(self, folder: Path, manifest: dict[str, Any]) -> None:
        has_features = manifest["request"]["format"] == FEATURES
        if has_features != self.holds_features:
            content, right = ("features", "features") if has_features else ("pictures", "shards")
            raise ValueError(f"{folder} holds {content}: read it with the source {right!r}")

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Record]:
        # `len`, not the last index: entries of features behind it are those of `find` alone
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Record:
        if not 0 <= index < len(self._entries):
            raise IndexError(f"{self._folder} has {len(self._entries)} records; got index {index}")
        try:
            entry = self._entries[index]
            self._counts.add(bytes_read=len(entry))
            record = decode(entry)
        except (RuntimeError, ValueError, TypeError) as error:  # array_record, JSON, Record
            raise DataError(f"entry {index} of {self._folder} is damaged: {error}") from error
        if not self._caption_weights:
            return record
        if len(record.captions) > len(self._caption_weights):
            raise DataError(
                f"{record.id} has {len(record.captions)} captions, and caption_weights are "
                f"{len(self._caption_weights)} numbers; give one for each"
            )
        weights = self._caption_weights[: len(record.captions)]
        return dataclasses.replace(record, caption_weights=weights)

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
        self._fetch()
        stored = []
        for shard in self.manifest["shards"]:
            _check_size(self._folder, shard["ids"])
            stored.append(np.fromfile(path_below(self._folder, shard["ids"]["name"]), "<u8"))
        return id_index.IdIndex(np.concatenate(stored).astype(np.uint64))


def _text_versions(manifest: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Side -> kind -> version of the generator of the stored texts."""
    texts = manifest["request"].get("texts", {})
    return {side: texts[side] for side in ("negatives", "positives") if texts.get(side)}


def _check_size(
    folder: Path, entry: dict[str, Any], objects: Mapping[str, any_path.Stamp] | None = None
) -> None:
    """objects: of the store that the folder is a copy of."""
    path = folder / entry["name"]
    size = path.stat().st_size if path.is_file() else None
    if objects is not None and entry["name"] in objects:
        size = objects[entry["name"]].size
    if size != entry["bytes"]:
        actual = "is missing" if size is None else f"has {size} bytes"
        raise DataError(f"shard {path} {actual}, the manifest says {entry['bytes']} bytes")
