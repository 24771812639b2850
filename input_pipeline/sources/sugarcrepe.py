"""SugarCrepe's JSON files: images with a caption and a hard negative."""

from pathlib import Path
from typing import ClassVar

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import json_annotations, tables
from vlc_jax.input_pipeline.sources.published import PublishedSource, tail_paths


class SugarcrepeSource(PublishedSource):
    """SugarCrepe's JSON objects: index -> filename, caption and negative_caption.

    annotations: the JSON file. images: the folder where the file names, or tails of them, begin.
    Ids are the keys of the object.
    """

    _kind = "sugarcrepe"
    _expected_file = (
        "an object {index: {filename, caption, negative_caption}}, in the form of SugarCrepe's "
        "(github.com/RAIVNLab/sugar-crepe)"
    )
    _FIELDS = ("filename", "caption", "negative_caption")
    _columns: ClassVar = {
        "image_column": "filename",
        "id_column": "id",
        "negatives_column": "negative_caption",
    }

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        document = self._load(path)
        entries = document if isinstance(document, dict) else {}
        first = next(iter(entries.values()), None)
        if not isinstance(first, dict) or not {*self._FIELDS} & first.keys():
            raise self._wrong_file(path, json_annotations.describe(document))
        rows = []
        for key, entry in entries.items():
            for field in self._FIELDS:
                if not isinstance(entry, dict) or not isinstance(entry.get(field), str):
                    raise DataError(
                        f"{path}: entry {key!r} has no text {field!r}; got {entry!r:.80}"
                    )
            rows.append({"id": key} | {field: entry[field] for field in self._FIELDS})
        return tables.MemoryTable(path, rows)

    def _candidate_paths(self, image: str) -> list[Path]:
        return tail_paths(self._folder, image)
