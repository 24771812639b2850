"""Retrieval by long captions: DOCCI and Urban1k, images with a description of several sentences.

CLIP reads 77 tokens, and cuts most of these captions: a model of a longer text tower is needed to
read them whole.
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file

SPLITS = ("test", "train", "qual_dev", "qual_test")


@published.reader
def docci(files: published.Files, split: str = "test") -> Benchmark:
    """5,000 photographs with a description each, by people (Onoe et al., ECCV 2024).

    split: test, train, qual_dev or qual_test. Unverified: the file was not available; its fields
      are those that other projects read.
    """
    published.check_options("split", [split], SPLITS)
    return files.benchmark(_descriptions(files, split))


@published.reader
def urban1k(files: published.Files) -> Benchmark:
    """1,000 images of streets with a long caption each (Zhang et al., "Long-CLIP", ECCV 2024).

    The caption is the first line of its file, as in the authors' code. Unverified: the files were
    not available.
    """
    return files.benchmark(_street_scenes(files))


def _descriptions(files: published.Files, split: str) -> Iterator[Case]:
    rows = files.json_lines(files.file, "split", "description", image_file=fields.image_name)
    for number, row in enumerate(rows):
        if row["split"] not in SPLITS:
            raise DataError(
                f"{files.folder / files.file}: case {number}: split is one of "
                f"{', '.join(SPLITS)}; got {row['split']!r:.40}"
            )
        if row["split"] == split:
            name = row["image_file"]
            yield Case(published.case_id(number, name), (files.image(name),), (row["description"],))


def _street_scenes(files: published.Files) -> Iterator[Case]:
    for number, path in enumerate(files.paths(files.file)):
        files.remember(path)
        caption = text_file.read(path).split("\n")[0]
        if not caption.strip():
            raise DataError(f"{path} has no caption in its first line; {files.origin.how_to_get}")
        name = f"{path.stem}.jpg"
        yield Case(published.case_id(number, name), (files.image(name),), (caption,))
