"""Flickr30k: Karpathy's splits or the data set's own files."""

import re
from pathlib import Path
from typing import Any, ClassVar

from vlc_jax.input_pipeline.sources import json_annotations, tables
from vlc_jax.input_pipeline.sources.published import KARPATHY, PublishedSource
from vlc_jax.input_pipeline.stores import text_file


class Flickr30kSource(PublishedSource):
    """Flickr30k: images with their five captions.

    annotations: Karpathy's `dataset_flickr30k.json` (splits train, val, test; 29,000, 1,014 and
      1,000 images), or the dataset's own `results_20130124.token` or `results.csv` (31,783 images
      without splits: split="all").
    images: the folder flickr30k-images. Ids are file names without suffix.
    """

    _kind = "flickr30k"
    _expected_file = (
        f"Karpathy's dataset_flickr30k.json ({KARPATHY}), or results_20130124.token or "
        "results.csv of the dataset (https://shannon.cs.illinois.edu/DenotationGraph, by a form, "
        "for research)"
    )
    # name.jpg#0<TAB>caption, or name.jpg| 0| caption; results.csv lacks one of its separators.
    _LINE = re.compile(r"([^|#\t]+\.jpg)\s*[#|]\s*\d+\s*[|\s]\s*(.*)")
    _columns: ClassVar = {"id_column": "id", "split_column": "split"}

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        if path.suffix.lower() in (".token", ".csv", ".txt"):
            return tables.MemoryTable(path, self._token_rows(path))
        document = self._load(path)
        if not json_annotations.is_karpathy(document) or document.get("dataset") != "flickr30k":
            raise self._wrong_file(path, json_annotations.describe(document))
        return tables.MemoryTable(path, json_annotations.karpathy_rows(path, document))

    def _token_rows(self, path: Path) -> list[dict[str, Any]]:
        captions: dict[str, list[str]] = {}
        lines = text_file.read(path, errors="replace").split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip() or (number == 1 and line.startswith("image_name|")):
                continue
            match = self._LINE.fullmatch(line.strip())
            if match is None:
                content = f"a text whose line {number} is {line[:80]!r}, no NAME.jpg#0 CAPTION"
                raise self._wrong_file(path, content)
            captions.setdefault(match[1], []).append(match[2])
        if self._split != "all":
            raise ValueError(
                f"{path} is not divided into splits; take 'all', or Karpathy's "
                f"dataset_flickr30k.json for {self._split!r}"
            )
        return [
            {"id": Path(name).stem, "image": name, "caption": texts, "split": "all"}
            for name, texts in captions.items()
        ]
