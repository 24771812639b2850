"""CC-Neg: an image of CC3M, its caption, and the caption with a part negated.

Singh et al., "Learning the Power of 'No': Foundation Models with Negations" (WACV 2025); read like
github.com/jaisidhsingh/CoN-CLIP. Unverified: the file was not available; its fields are those that
the authors' code and other projects read.
"""

import pickle
from pathlib import PurePosixPath
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import zips

CASES = 40_000  # the authors evaluate on the last ones and train on the others


@published.reader
def ccneg(files: published.Files) -> Benchmark:
    """The last 40,000 captions, each against itself with a part negated; without commas in the
    negated one, as in the authors' code."""
    rows = files.check(files.file, _rows(files), ("caption", "negated"), **_IMAGE)[-CASES:]
    return files.benchmark(
        files.case(number, row["image"], (row["caption"], row["negated"].replace(",", "")))
        for number, row in enumerate(rows)
    )


_IMAGE = {"image": fields.image_name}


class _Plain(pickle.Unpickler):
    """Reads lists, dicts, texts and numbers: a pickle from the internet could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise DataError(f"it asks to run {module[:50]}.{name[:50]}; texts and numbers are read")

    def persistent_load(self, pid: Any) -> Any:
        raise DataError("it holds tensors; texts and numbers are read")


def _rows(files: published.Files) -> list[dict[str, Any]]:
    """Rows with image, caption and negated; values that are no texts are refused later."""
    path = files.path(files.file)
    try:
        with zips.open_zip(path) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(member) as file:
                document = _Plain(file).load()
        rows = zip(document["image_paths"], document["annotations"], strict=True)
        # two editions: "caption" beside "sop_data", or in an object "json"
        return [
            {
                "image": PurePosixPath(image).name,
                "caption": row.get("json", row)["caption"],
                "negated": row["sop_data"]["negative-prompt"],
            }
            for image, row in rows
        ]
    except (*zips.DAMAGE, MemoryError, DataError) as error:
        raise DataError(
            f"{path} is no file of torch.save with image_paths and annotations "
            f"(caption, sop_data): {error!s:.200}; {files.origin.how_to_get}"
        ) from error
