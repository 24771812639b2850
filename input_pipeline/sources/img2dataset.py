"""img2dataset's downloads: tar files of KEY.jpg, KEY.txt, KEY.json, read in place."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import tar_samples
from vlc_jax.input_pipeline.sources.table_index import TableIndex
from vlc_jax.input_pipeline.stores import any_path, text_file
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath

_META_FIELDS = ("url", "sha256", "original_width", "original_height")  # of the JSON, for `meta`
# letters; numpy pads every key to the longest
_MAX_KEY = 255
_TEXT, _JSON = "txt", "json"
# that read the headers of tars in a store
_THREADS = 16
_CUT = "a download that was stopped? img2dataset continues with the same command"


class Img2datasetSource:
    """A record per image of the tar files that img2dataset wrote (`--output_format webdataset`).

    tars: their folder, or one tar; in an object store they are read in place. The caption is
    KEY.txt, else `caption` in KEY.json; `meta` has the JSON's url, sha256 and original size. KEY
    ends at the first dot, as in webdataset, or at the last one if nothing is called KEY.jpg,
    KEY.txt or KEY.json ("photo.1.jpg"). Samples whose status is not "success", without an image or
    with a key of more than 255 letters are left out and counted in the log. Ids are the tar's name
    and the key. A sample that has a part twice, or whose JSON is not an object, is a bad record:
    reading it raises DataError. meta_columns: further fields of the JSON for `meta`.

    The first opening reads the headers and JSON of every tar, half a second per 10,000 samples, and
    caches an index of each (`table_index`); the fingerprint hashes what was read. In
    memory a sample takes 56 bytes and 4 per letter of its key.
    Raises ValueError if there are no tars, DataError for a truncated tar.
    """

    def __init__(
        self, split: str = "train", *, tars: str | Path, meta_columns: Sequence[str] = ()
    ) -> None:
        if split not in ("train", "all"):
            raise ValueError(
                f"split {split!r} of {tars}: a folder of tars is not divided; take 'train' or "
                "'all', which are the whole folder"
            )
        self._fields = (*_META_FIELDS, *meta_columns)
        self._paths = _tar_files(tars)
        with ThreadPoolExecutor(_THREADS if isinstance(self._paths[0], StorePath) else 1) as pool:
            read = list(pool.map(_samples, self._paths))
        self._keys = np.concatenate([each.keys for each in read])
        self._spans = np.concatenate([each.spans for each in read])
        self._tars = np.repeat(np.arange(len(read)), [len(each.keys) for each in read])
        left_out = sum((Counter(each.left_out) for each in read), Counter[str]())
        names = [(path.name, each.digest) for path, each in zip(self._paths, read, strict=True)]
        digest = hashlib.sha256(json.dumps(names).encode())
        self._mention(left_out, tars)
        self.fingerprint = "/".join(("img2dataset", digest.hexdigest()[:32], *meta_columns))

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Record:
        """Raises DataError, naming tar and sample, for a sample without caption."""
        offsets_sizes = [int(value) for value in self._spans[index]]
        path = self._paths[self._tars[index]]
        record_id = f"{path.stem}/{self._keys[index]}"
        if tar_samples.TWICE[0] in offsets_sizes[::2]:
            raise DataError(f"sample {record_id} of {path} has two images, two .txt or two .json")
        try:
            image, text, document = any_path.read(path, offsets_sizes)
            meta = json.loads(document) if document else {}
            if not isinstance(meta, dict):
                raise ValueError(f"its .json holds a {type(meta).__name__} and no object")
            written = text.decode(text_file.encoding(text)).removeprefix("\ufeff")
            caption = written if offsets_sizes[2] else meta.get("caption")
        except stores.StoreError:
            # no bad record: its store is away
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"sample {record_id} of {path} cannot be read: {error}") from error
        if not isinstance(caption, str):
            raise DataError(f"sample {record_id} of {path} has no .txt and no caption in its .json")
        fields = [key for key in self._fields if isinstance(meta.get(key), str | int | float)]
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


class _Samples(NamedTuple):
    """Samples of a tar. spans: int64 (samples, 6), offset and size of image, text and JSON.

    left_out: numbers of other samples by reason.   digest: of headers and JSON.
    """

    keys: np.ndarray
    spans: np.ndarray
    left_out: dict[str, int]
    digest: str


def _samples(path: AnyPath) -> _Samples:
    """The samples of a tar by its index, or else by its headers, which are then indexed."""
    index = TableIndex(path, " ".join(("samples 3", *image_ops.suffixes())), is_hashed=False)
    if (stored := index.read("samples")) is not None:
        facts = json.loads(str(stored["facts"]))
        return _Samples(stored["keys"], stored["spans"], *facts)
    digest, left_out = hashlib.sha256(), Counter[str]()
    keys: list[str] = []
    spans: list[list[int]] = []
    for sample in tar_samples.samples(path, digest, (_TEXT, _JSON), (_JSON,), _CUT):
        if reason := _reason_to_leave_out(sample):
            left_out[reason] += 1
            continue
        keys.append(sample.key)
        kinds = (tar_samples.IMAGE, _TEXT, _JSON)
        spans.append([value for kind in kinds for value in sample.parts.get(kind, (0, 0))])
    offsets_sizes = np.array(spans, np.int64).reshape(-1, 6)
    samples = _Samples(np.array(keys, np.str_), offsets_sizes, dict(left_out), digest.hexdigest())
    facts = np.array(json.dumps([samples.left_out, samples.digest]))
    index.write("samples", keys=samples.keys, spans=samples.spans, facts=facts)
    return samples


def _reason_to_leave_out(sample: tar_samples.Sample) -> str:
    """Reason in the log; "" for a sample that is a record."""
    if _JSON in sample.documents and _status(sample.documents[_JSON]) != "success":
        return "not downloaded"
    if tar_samples.IMAGE not in sample.parts:
        return f"without an image ({', '.join(image_ops.suffixes())})"
    return f"with a key of more than {_MAX_KEY} letters" if len(sample.key) > _MAX_KEY else ""


def _tar_files(tars: str | Path) -> Sequence[AnyPath]:
    advice = "tars is the folder that img2dataset --output_format webdataset wrote"
    if not str(tars):
        raise ValueError(f"source 'img2dataset' needs `tars`; {advice}")
    path = any_path.of(tars)
    if path.is_file():
        return [path]
    if isinstance(path, Path) and not path.is_dir():
        raise ValueError(f"no folder {path}; {advice}")
    tar_files = sorted(tar for tar in path.glob("*.tar") if not tar.name.startswith("._"))
    if not tar_files:
        others = sorted(entry.name for entry in path.iterdir())[:8] or "nothing"
        raise ValueError(f"{path} holds no .tar but {others}; {advice}")
    return tar_files


def _status(document: bytes) -> str:
    """Status in a sample's JSON; "success" if it is absent or the JSON is damaged."""
    try:
        return json.loads(document).get("status", "success")
    except (ValueError, AttributeError, RecursionError):
        # reading the record raises DataError
        return "success"
