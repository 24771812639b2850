"""Reads the captions to write texts for: COCO captions JSON, a table or lines."""

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import cells, json_annotations, tables
from vlc_jax.input_pipeline.sources.table_index import sha256
from vlc_jax.input_pipeline.stores import text_file


class Rows(Protocol):
    """Rows by their numbers, each with its captions; pickles to workers.

    digest: of the file and the column.
    """

    @property
    def digest(self) -> str: ...
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> tuple[dict[str, Any], list[str]]: ...


@dataclasses.dataclass(frozen=True)
class TableRows:
    """Rows of a table, read when they are asked for."""

    table: tables.Table
    column: str

    @property
    def digest(self) -> str:
        return f"{self.table.digest} {self.column}"

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: int) -> tuple[dict[str, Any], list[str]]:
        return row_texts(self.table, number, self.column)


@dataclasses.dataclass(frozen=True)
class ListedRows:
    """Captions in memory, each a row of its own, with the row of the file that it is from."""

    captioned: Sequence[tuple[str, dict[str, Any]]]
    digest: str

    def __len__(self) -> int:
        return len(self.captioned)

    def __getitem__(self, number: int) -> tuple[dict[str, Any], list[str]]:
        caption, row = self.captioned[number]
        return row, [caption]


def open_rows(path: Path, column: str = "caption", count: int | None = None) -> Rows:
    """The rows of a file. In memory are those of JSON and of lines, and the first `count` captions.

    Raises as `with_rows`, but for a damaged row of a table when it is read.
    """
    if path.suffix.lower() in (".txt", ".json"):
        return ListedRows(with_rows(path, column)[:count], f"{sha256(path)} {column}")
    table = TableRows(open_table(path, column), column)
    read_rows = (table[number] for number in range(len(table)))
    captioned = ((text, row) for row, texts in read_rows for text in texts)
    first = [*itertools.islice(captioned, 1 if count is None else count)]
    if not any(text.strip() for text, _ in itertools.chain(first, captioned)):
        raise DataError(f"{path} holds no captions")
    return table if count is None else ListedRows(first, table.digest)


def read(path: Path, column: str = "caption") -> list[str]:
    """The captions of a file in its order; a row may have a list of captions. Raises as
    `with_rows`."""
    return [caption for caption, _ in with_rows(path, column)]


def with_rows(path: Path, column: str = "caption") -> list[tuple[str, dict[str, Any]]]:
    """The captions of a file in its order, each with its row.

    Raises ValueError for a wrong file or column, DataError for unreadable content.
    """
    if not path.is_file():
        raise ValueError(f"no file {path}" + (" (it is a folder)" if path.is_dir() else ""))
    captions: dict[int, tuple[str, dict[str, Any]]] = {}
    for row, numbered in rows(path, column):
        captions |= {index: (caption, row) for index, caption in numbered.items()}
    if not any(caption.strip() for caption, _ in captions.values()):
        raise DataError(f"{path} holds no captions")
    # COCO's rows are images, whose annotations may be anywhere in the file
    return [captions[index] for index in range(len(captions))]


def rows(path: Path, column: str = "caption") -> Iterator[tuple[dict[str, Any], dict[int, str]]]:
    """Yields each row of a file and its captions, by their indices in the list of `read`.

    For COCO captions a row is an image (id, image, caption: a list), for lines a caption.
    """
    if path.suffix.lower() == ".txt":
        for index, text in enumerate(text_file.lines(path)):
            yield {"caption": text}, {index: text}
        return
    document = json_annotations.load(path) if path.suffix.lower() == ".json" else None
    if json_annotations.is_coco_captions(document):
        images = json_annotations.coco_rows(path, document)
        numbers = collections.defaultdict(list)
        for index, annotation in enumerate(json_annotations.captioned_annotations(document)):
            numbers[str(annotation["image_id"])].append(index)
        for row in images:
            where = f"image {row['id']} of {path}"
            yield row, _numbered(where, numbers[row["id"]], row["caption"])
        return
    table, first = open_table(path, column), 0
    for number in range(len(table)):
        row, texts = row_texts(table, number, column)
        yield row, dict(enumerate(texts, start=first))
        first += len(texts)


def open_table(path: Path, column: str = "caption") -> tables.Table:
    """A table with this column. Raises ValueError if it has none, DataError for damage."""
    table = tables.open_table(path)
    known = table.columns()
    if known and column not in known:
        raise ValueError(f"{path} has no column {column!r} but {known}; see --column")
    return table


def row_texts(table: tables.Table, number: int, column: str) -> tuple[dict[str, Any], list[str]]:
    """A row and its captions. Raises DataError."""
    row = table[number]
    value = cells.read_captions(row.get(column), column, table.name(number))
    texts = value if isinstance(value, list) else [value]
    return row, [*_numbered(table.name(number), range(len(texts)), texts).values()]


def _numbered(where: str, indices: Any, captions: list[Any]) -> dict[int, str]:
    for caption in captions:
        if not isinstance(caption, str):
            raise DataError(f"{where}: {caption!r} is no caption")
        # half a surrogate pair: JSON can hold it, UTF-8 cannot
        if re.search("[\ud800-\udfff]", caption):
            raise DataError(f"{where}: {caption!r:.80} is not Unicode")
    return dict(zip(indices, captions, strict=True))
