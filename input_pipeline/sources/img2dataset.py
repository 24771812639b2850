"""img2dataset's downloads: tar files of KEY.jpg, KEY.txt, KEY.json, read in place."""

import hashlib
import json
import logging
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.stores import text_file

_META_FIELDS = ("url", "sha256", "original_width", "original_height")  # of the JSON, for `meta`
# letters; numpy pads every key to the longest
_MAX_KEY = 255
# bytes: two empty blocks end a tar
_END = 1024
_IMAGE, _TEXT, _JSON = "image", "txt", "json"
# in place of (offset, size): two files of a sample are its image, its .txt or its .json
_TWICE = (-1, 0)
_CUT = "a download that was stopped? img2dataset continues with the same command"


class Img2datasetSource:
    """A record per image of the tar files that img2dataset wrote (`--output_format webdataset`).

    tars: their folder, or one tar. The caption is KEY.txt, else `caption` in KEY.json; `meta` has
    the JSON's url, sha256 and original size. KEY ends at the first dot, as in webdataset, or at the
    last one if nothing is called KEY.jpg, KEY.txt or KEY.json ("photo.1.jpg"). Samples whose status
    is not "success", without an image or with a key of more than 255 letters are left out and
    counted in the log. Ids are the tar's name and the key. A sample that has a part twice, or whose
    JSON is not an object, is a bad record: reading it raises DataError.

    Opening reads the headers and JSON of every tar, half a second per 10,000 samples; the
    fingerprint hashes these. In memory a sample takes 56 bytes and 4 per letter of its key.
    Raises ValueError if there are no tars, DataError for a truncated tar.
    """

    def __init__(self, split: str = "train", *, tars: str | Path) -> None:
        if split not in ("train", "all"):
            raise ValueError(
                f"split {split!r} of {tars}: a folder of tars is not divided; take 'train' or "
                "'all', which are the whole folder"
            )
        self._paths = _tar_files(tars)
        digest = hashlib.sha256()
        keys: list[str] = []
        spans: list[tuple[int, ...]] = []
        left_out: Counter[str] = Counter()
        for number, path in enumerate(self._paths):
            digest.update(path.name.encode())
            for key, parts, status in _samples(path, digest):
                if reason := _reason_to_leave_out(key, parts, status):
                    left_out[reason] += 1
                    continue
                keys.append(key)
                files = [parts.get(kind, (0, 0)) for kind in (_IMAGE, _TEXT, _JSON)]
                spans.append((number, *(value for offset_size in files for value in offset_size)))
        self._keys = np.array(keys, np.str_)
        self._spans = np.array(spans, np.int64).reshape(-1, 7)
        self._mention(left_out, tars)
        self.fingerprint = f"img2dataset/{digest.hexdigest()[:32]}"

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Record:
        """Raises DataError, naming tar and sample, for a sample without caption."""
        number, *offsets_sizes = (int(value) for value in self._spans[index])
        path = self._paths[number]
        record_id = f"{path.stem}/{self._keys[index]}"
        if -1 in offsets_sizes[::2]:
            raise DataError(f"sample {record_id} of {path} has two images, two .txt or two .json")
        try:
            image, text, document = _read(path, offsets_sizes)
            meta = json.loads(document) if document else {}
            if not isinstance(meta, dict):
                raise ValueError(f"its .json holds a {type(meta).__name__} and no object")
            written = text.decode(text_file.encoding(text)).removeprefix("\ufeff")
            caption = written if offsets_sizes[2] else meta.get("caption")
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"sample {record_id} of {path} cannot be read: {error}") from error
        if not isinstance(caption, str):
            raise DataError(f"sample {record_id} of {path} has no .txt and no caption in its .json")
        fields = [key for key in _META_FIELDS if isinstance(meta.get(key), str | int | float)]
        record_meta = {key: meta[key] for key in fields}
        return Record(id=record_id, image=image, captions=[caption], meta=record_meta)

    def _mention(self, left_out: Counter[str], tars: str | Path) -> None:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        total = len(self) + left_out.total()
        if not len(self):
            raise DataError(
                f"{tars}: no image in {len(self._paths)} tars, {total} samples: {reasons}"
            )
        if left_out:
            logging.getLogger(__name__).warning(
                "%s: of %d samples are left out: %s", tars, total, reasons
            )


def _reason_to_leave_out(key: str, parts: dict[str, tuple[int, int]], status: str) -> str:
    """Reason in the log; "" for a sample that is a record."""
    if status != "success":
        return "not downloaded"
    if _IMAGE not in parts:
        return f"without an image ({', '.join(image_ops.suffixes())})"
    return f"with a key of more than {_MAX_KEY} letters" if len(key) > _MAX_KEY else ""


def _tar_files(tars: str | Path) -> list[Path]:
    advice = "tars is the folder that img2dataset --output_format webdataset wrote"
    if not str(tars):
        raise ValueError(f"source 'img2dataset' needs `tars`; {advice}")
    path = Path(tars)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"no folder {path}; {advice}")
    tar_files = sorted(path.glob("*.tar"))
    if not tar_files:
        others = sorted(entry.name for entry in path.iterdir())[:8]
        raise ValueError(f"{path} holds no .tar but {others}; {advice}")
    return tar_files


def _samples(path: Path, digest: Any) -> Iterator[tuple[str, dict[str, tuple[int, int]], str]]:
    """Key, {"image", "txt", "json": (offset, size)} and status of every sample, in order.

    Headers and JSON are added to `digest`.
    """
    samples: dict[str, dict[str, tuple[int, int]]] = {}
    status: dict[str, str] = {}
    # parts by the last dot of their name: of a sample unless the first dot makes one, as in
    # 7.jpg, 7.txt, 7.mask.png
    by_last_dot: list[tuple[str, str, str, tarfile.TarInfo]] = []
    end, length = 0, path.stat().st_size

    def add(key: str, kind: str, name: str, member: tarfile.TarInfo) -> None:
        parts = samples.setdefault(key, {})
        parts[kind] = _TWICE if kind in parts else (member.offset_data, member.size)
        digest.update(f"{name} {member.offset_data} {member.size}\n".encode())
        if kind == _JSON:
            document = os.pread(file.fileno(), member.size, member.offset_data)
            digest.update(document)
            status[key] = _status(document)

    try:
        # "r:" refuses compressed tars, in which offsets would mean nothing.
        with tarfile.open(path, "r:") as tar, path.open("rb") as file:
            for member in tar:
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                # before that many bytes are read
                if not 0 <= member.size <= end <= length:
                    raise EOFError(f"a file of {member.size:,} bytes in {length:,}")
                # tarfile decodes bytes that are not UTF-8 to surrogates, which no log can print
                whole = member.name.encode("utf-8", "surrogateescape")
                whole = whole.decode("utf-8", "backslashreplace")
                folder, slash, name = whole.removeprefix("./").rpartition("/")
                stem, _, suffix = name.partition(".")
                key, kind = folder + slash + stem, _kind(suffix)
                if member.isfile() and kind:
                    add(key, kind, whole, member)
                elif member.isfile() and (kind := _kind(suffix.rpartition(".")[2])):
                    by_last_dot.append((key, kind, whole, member))
            first_keys = {*samples}
            for key, kind, name, member in by_last_dot:
                if key not in first_keys:
                    add(name.removeprefix("./").rpartition(".")[0], kind, name, member)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise DataError(f"{path} is no whole tar: {error}; {_CUT}") from error
    if length < end + _END:
        raise DataError(f"{path} is no whole tar: it ends after {end:,} bytes; {_CUT}")
    for key, parts in samples.items():
        yield key, parts, status.get(key, "success")


def _kind(suffix: str) -> str:
    """The part of a sample that a file is by its suffix; "" for another file."""
    if f".{suffix.lower()}" in image_ops.suffixes():
        return _IMAGE
    return suffix.lower() if suffix.lower() in (_TEXT, _JSON) else ""


def _status(document: bytes) -> str:
    """Status in a sample's JSON; "success" if it is absent or the JSON is damaged."""
    try:
        return json.loads(document).get("status", "success")
    except (ValueError, AttributeError, RecursionError):
        # reading the record raises DataError
        return "success"


def _read(path: Path, offsets_sizes: list[int]) -> list[bytes]:
    """Reads the bytes at (offset, size, offset, size, ...)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [
            os.pread(descriptor, size, offset)
            for offset, size in zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True)
        ]
    finally:
        os.close(descriptor)
