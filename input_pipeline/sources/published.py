"""Base class of sources that read the published annotation file of a data set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from vlc_jax.input_pipeline.record import DataError, path_below
from vlc_jax.input_pipeline.sources import json_annotations, tables
from vlc_jax.input_pipeline.sources.records import RecordsSource

KARPATHY = "in caption_datasets.zip of https://cs.stanford.edu/people/karpathy/deepimagesent"


class PublishedSource(RecordsSource):
    """Base class of data sets: a published annotation file and a folder of images.

    Subclasses describe the file (`_expected_file`), convert it to a table (`_open`) and name its
    columns (`_columns`, options of `RecordsSource`).

    annotations: the published file. images: the folder in which its image names start; a record
    whose image lies outside is a DataError. exclude: see `RecordsSource`. Raises ValueError for a
    missing file or folder and for a file of another dataset, DataError for damage.
    """

    _folder_option = "images"
    _joins_rows = False
    _split_advice = "the file is not divided; take 'train' or 'all', which are the whole file"
    _expected_file: ClassVar[str]  # the annotation file and where it comes from
    _columns: Mapping[str, Any] = {}

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        exclude: str | Path | None = None,
    ) -> None:
        for option, value in (("annotations", annotations), ("images", images)):
            if not str(value):
                raise ValueError(f"source {self._kind!r} needs `{option}`; {self._advice()}")
        self._check_file(Path(annotations))
        options = {"path": annotations, "image_folder": images, "exclude": exclude}
        super().__init__(split, **options, **self._columns)

    def _check_file(self, path: Path) -> None:
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "no file"
            raise ValueError(f"{path} is {kind}; {self._advice()}")

    def _advice(self) -> str:
        return (
            f"annotations is {self._expected_file}; "
            "images is the folder where its image names start"
        )

    def _image_name(self, row: dict[str, Any], name: str) -> str:
        image = super()._image_name(row, name)
        try:
            # the file is somebody else's: it must not reach the files of this machine
            path_below(self._folder, image)
        except DataError as error:
            raise DataError(
                f"{name}: {self.columns.image_column!r}: {error}; the source records reads tables "
                "of your own, whose images may be elsewhere"
            ) from None
        return image

    def _load(self, path: Path) -> Any:
        try:
            return json_annotations.load(path)
        except ValueError as error:
            raise ValueError(f"{error}; {self._advice()}") from error

    def _delimited(
        self, path: Path, delimiter: str, quoting: bool, needed: Sequence[str]
    ) -> tables.DelimitedTable:
        """A CSV or TSV table with rows, and with the needed columns."""
        rows = tables.DelimitedTable(path, delimiter, quoting)
        columns = rows.columns()
        missing = [name for name in needed if name not in columns]
        if missing:
            first = [name[:40] for name in columns[:8]]
            raise self._wrong_file(path, f"a table without the columns {missing}; it has {first}")
        if not len(rows):
            raise DataError(f"{path} holds no rows")
        return rows

    def _wrong_file(self, path: Path, content: str) -> ValueError:
        return ValueError(f"{path} is {content}; {self._advice()}")


def tail_paths(folder: Path, image: str) -> list[Path]:
    """Paths of a name in a folder, then of its tails: coco/val2014/a.jpg, val2014/a.jpg, a.jpg."""
    parts: Sequence[str] = Path(image).parts
    return [folder.joinpath(*parts[start:]) for start in range(len(parts))]


def joined_names(names: str | Path) -> list[str]:
    """Names joined by "+"; the name of an existing file or folder is not split."""
    return [str(names)] if Path(names).exists() else str(names).split("+")
