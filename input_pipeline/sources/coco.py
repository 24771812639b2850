"""COCO captions: Karpathy's splits or the official files, with published files of hard texts."""

import collections
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import json_annotations, tables
from vlc_jax.input_pipeline.sources.published import (
    KARPATHY,
    PublishedSource,
    joined_names,
    tail_paths,
)

# line of a caption without a text, in the published files
_NO_TEXT = "None"


class CocoSource(PublishedSource):
    """COCO images with all their captions, by Karpathy's split or the official one.

    annotations: `dataset_coco.json` (splits train, restval, val, test; 82,783, 30,504, 5,000 and
      5,000 images) or `captions_{train,val}{2014,2017}.json` (one split each, train or val).
    images: the folder of train2014, val2014, train2017 or val2017, or one that holds the files.
    train_split: in a config, the split that training reads; the literature trains on
      "train+restval".
    negatives, positives: kind -> a file with a line for every annotation of captions_*.json, in
      their order: a JSON string, "None" for a caption without such a text. Several files of a kind
      are joined by "+" (verbs.jsonl+places.jsonl); each that has a text for a caption is drawn
      equally often. For training only: other splits do not have them.
    Ids are COCO's. `meta` has `image` (folder and file name) and `split`.
    """

    _kind = "coco"
    _expected_file = (
        f"Karpathy's dataset_coco.json ({KARPATHY}) or captions_train2014.json, "
        "captions_val2017.json, ... (https://cocodataset.org/#download, CC BY 4.0)"
    )

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        train_split: str = "train",
        negatives: Mapping[str, str | Path | None] | None = None,
        positives: Mapping[str, str | Path | None] | None = None,
        exclude: str | Path | None = None,
    ) -> None:
        self._files: dict[str, dict[str, str | Path]] = {}
        columns = {}
        for side, files in (("negatives", negatives), ("positives", positives)):
            paths = {kind: path for kind, path in (files or {}).items() if path}
            if paths and split in ("train", "all"):
                self._files[side] = paths
                columns |= {f"{side}_column": side, f"{side[:-1]}_kinds_column": f"{side}_kinds"}
        self._columns = {
            "id_column": "id",
            "split_column": "split",
            "meta_columns": ("image", "split"),
            **columns,
        }
        split = train_split if split == "train" else split
        super().__init__(split, annotations=annotations, images=images, exclude=exclude)

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        document = self._load(path)
        if json_annotations.is_karpathy(document) and document.get("dataset", "coco") == "coco":
            if self._files:
                raise ValueError(
                    f"{path} is Karpathy's split, whose captions have no order that files of "
                    "negatives or positives could follow; annotations must be captions_*.json"
                )
            return tables.MemoryTable(path, json_annotations.karpathy_rows(path, document))
        if not json_annotations.is_coco_captions(document):
            raise self._wrong_file(path, json_annotations.describe(document))
        rows = json_annotations.coco_rows(path, document)
        folders = json_annotations.coco_folders(path, document)
        strange = next((row for row in rows if row["id"] not in folders), None)
        if strange is not None:
            raise self._wrong_file(
                path,
                f"in the form of COCO captions, but {strange['image']!r} is no image of "
                "train2014, val2014, train2017 or val2017 (vlc-jax prepare --source "
                "records reads such files)",
            )
        for row in rows:
            folder = folders[row["id"]]
            row["image"] = f"{folder}/{Path(row['image']).name}"
            row["split"] = folder[:-4]
        for side, files in self._files.items():
            self.digests |= _attach_texts(
                rows, json_annotations.captioned_annotations(document), side, files
            )
        return tables.MemoryTable(path, rows)

    def _candidate_paths(self, image: str) -> list[Path]:
        return tail_paths(self._folder, image)


def _attach_texts(
    rows: list[dict[str, Any]],
    annotations: Sequence[Mapping[str, Any]],
    side: str,
    files: Mapping[str, str | Path],
) -> dict[str, str]:
    """Adds `side` ("negatives", "positives") and `side_kinds` to the rows of COCO captions.

    annotations: the document's list, in its order. files: kind -> files, joined by "+", line k of
    which is a JSON string for annotation k, "None" for no text. Returns path -> sha256 of each.
    Raises ValueError for a missing file, DataError for a line that is not a JSON string and for a
    file that is empty or of another length.
    """
    paths = {kind: [*map(Path, joined_names(names))] for kind, names in files.items()}
    lines = {
        kind: [_read_lines(path, len(annotations)) for path in kind_paths]
        for kind, kind_paths in paths.items()
    }
    texts: dict[str, list[list[str]]] = collections.defaultdict(list)
    kinds: dict[str, list[list[str]]] = collections.defaultdict(list)
    for number, annotation in enumerate(annotations):
        present = [
            (kind, column[number])
            for kind, columns in lines.items()
            for column in columns
            if column[number]
        ]
        texts[str(annotation["image_id"])].append([text for _, text in present])
        kinds[str(annotation["image_id"])].append([kind for kind, _ in present])
    for row in rows:
        row |= {side: texts[row["id"]], f"{side}_kinds": kinds[row["id"]]}
    return {str(path): tables.sha256(path) for kind_paths in paths.values() for path in kind_paths}


def _read_lines(path: Path, count: int) -> list[str]:
    """Reads the `count` texts of a file, "" for no text."""
    if not path.is_file():
        raise ValueError(f"no file {path}")
    content = path.read_bytes()
    if not content.strip():
        raise DataError(f"{path} is empty; a row for each of {count:,} captions is needed")
    # Split as bytes: str.splitlines would also split at U+2028, which a text may hold.
    lines = content.removesuffix(b"\n").split(b"\n")
    if len(lines) != count:
        raise DataError(
            f"{path} has {len(lines):,} rows, but there are {count:,} captions; row k belongs to "
            "the k-th annotation of the captions file, so both must be of the same version"
        )
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            text = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"row {number} of {path} is not JSON: {error}") from error
        if not isinstance(text, str):
            raise DataError(f"row {number} of {path}: a row is a JSON string; got {text!r:.80}")
        texts.append("" if text == _NO_TEXT else text.strip())
    return texts
