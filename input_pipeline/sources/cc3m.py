"""CC3M: tables of downloaded images and captions."""

import re
from pathlib import Path

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.input_pipeline.sources.published import PublishedSource
from vlc_jax.input_pipeline.stores import text_file


class Cc3mSource(PublishedSource):
    """CC3M's captions: a table of downloaded images and captions, one pair per row.

    annotations: columns separated by tabs (commas in a .csv without tabs), either with a header
      that names the image (filepath, file, image, image_path, path) and the caption (title,
      caption, text), fields quoted as pandas writes them; or two columns without header, in any
      order, without quoting.
    images: the folder in which the image names start. The published files hold URLs, not images:
    `img2dataset` downloads them, and the source of that name reads its output.
    """

    _kind = "cc3m"
    _expected_file = (
        "a table of image file names and captions: filepath and title, or two columns without "
        "header"
    )
    _IMAGE = ("filepath", "file", "image", "image_path", "path")
    _CAPTION = ("title", "caption", "text")
    _SUFFIX = re.compile(r"\.(jpe?g|png|webp|gif|bmp|tiff?)$", re.IGNORECASE)

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        first = text_file.first_line(path)
        delimiter = "\t" if "\t" in first or path.suffix == ".tsv" else ","
        names = [name.strip('"') for name in first.split(delimiter)]
        if "neg_caption" in names:
            raise self._wrong_file(path, "a table of NegCLIP (vlc-jax prepare negclip)")
        image = next((name for name in self._IMAGE if name in names), None)
        caption = next((name for name in self._CAPTION if name in names), None)
        if image is not None and caption is not None:
            rows = tables.DelimitedTable(path, delimiter, quoting)
        elif len(names) != 2:
            columns = [name[:40] for name in names[:8]]
            raise self._wrong_file(path, f"a table with the columns {columns}")
        else:
            # without quoting: pairs without header do not escape their quotation marks
            rows = tables.DelimitedTable(path, delimiter, False, header=("first", "second"))
            image, caption = self._which(rows)
        if not len(rows):
            raise DataError(f"{path} holds no rows")
        self.columns.image_column, self.columns.caption_column = image, [caption]
        return rows

    def _which(self, rows: tables.DelimitedTable) -> tuple[str, str]:
        """The columns of image and caption, recognised by the content of the first rows."""
        fields: list[str] = []
        for index in range(min(len(rows), 100)):
            try:
                fields = [*rows[index].values()]
            except DataError:
                continue
            if any("://" in field for field in fields):
                raise ValueError(
                    f"{rows.name(index)} holds an address, not an image: {fields}; download first "
                    "(img2dataset --output_format webdataset), then python -m "
                    "vlc_jax.input_pipeline.commands.prepare img2dataset"
                )
            is_image = [self._SUFFIX.search(field) is not None for field in fields]
            if any(is_image):
                return ("first", "second") if is_image[0] else ("second", "first")
        raise self._wrong_file(rows.path, f"a table whose first rows name no image file: {fields}")
