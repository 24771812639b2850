"""Reads the captions to write texts for: COCO captions JSON, a table or lines."""

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import json_annotations, tables


def read(path: Path, column: str = "caption") -> list[str]:
    """The captions of a file in its order; a row may have a list of captions.

    Raises ValueError for a wrong file or column, DataError for unreadable content.
    """
    if not path.is_file():
        raise ValueError(f"no file {path}" + (" (it is a folder)" if path.is_dir() else ""))
    if path.suffix.lower() == ".txt":
        captions = _read_lines(path)
    elif (document := _coco(path)) is not None:
        captions = [_coco_caption(path, *entry) for entry in enumerate(document["annotations"])]
        json_annotations.coco_rows(path, document)  # raises now, not after all texts are written
    else:
        captions = _read_column(tables.open_table(path), column)
    if not any(caption.strip() for caption in captions):
        raise DataError(f"{path} holds no captions")
    return captions


def rows(path: Path, column: str = "caption") -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yields each row of a file and the indices of its captions in the list of `read`.

    For COCO captions a row is an image (id, image, caption: a list), for lines a caption.
    """
    if path.suffix.lower() == ".txt":
        yield from (({"caption": text}, [k]) for k, text in enumerate(_read_lines(path)))
        return
    if (document := _coco(path)) is not None:
        of_image: dict[str, list[int]] = collections.defaultdict(list)
        for index, annotation in enumerate(document["annotations"]):
            of_image[str(annotation["image_id"])].append(index)
        for row in json_annotations.coco_rows(path, document):
            yield row, of_image[row["id"]]
        return
    table, first = tables.open_table(path), 0
    for number in range(len(table)):
        row = table[number]
        count = len(row[column]) if isinstance(row[column], list) else 1
        yield row, [*range(first, first + count)]
        first += count


def _coco(path: Path) -> dict[str, Any] | None:
    """The document of COCO captions JSON; None for any other file."""
    if path.suffix.lower() != ".json":
        return None
    document = json_annotations.load(path)
    return document if json_annotations.is_coco_captions(document) else None


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason}") from error
    return text.removesuffix("\n").split("\n")


def _coco_caption(path: Path, index: int, entry: Any) -> str:
    caption = entry.get("caption") if isinstance(entry, dict) else None
    if not isinstance(caption, str):
        raise DataError(f"annotation {index + 1} of {path} has no caption")
    return caption


def _read_column(table: tables.Table, column: str) -> list[str]:
    known = table.columns()
    if known and column not in known:
        raise ValueError(f"{table.path} has no column {column!r} but {known}; see --column")
    captions: list[str] = []
    for index in range(len(table)):
        value = table[index].get(column)
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(caption, str) for caption in values):
            raise DataError(f"{table.name(index)}: {column!r} is no caption but {value!r}")
        captions += values
    return captions
