"""ColorSwap: two images and two captions of the same words, with their colours swapped.

Burapacheep et al., "ColorSwap: A Color and Word Order Dataset for Multimodal Evaluation" (ACL
Findings 2024); the test split, scored like Winoground. Reads the authors' test.json and images, or
the gated Parquet files of huggingface.co/datasets/stanfordnlp/colorswap.
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    packed_image,
    published,
)
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import ImageLike

PACKED = "test-*.parquet"
ORIGIN = Origin(
    protocol="pairs",
    folder="colorswap",
    files=("test.json",),
    images="colorswap",
    source=(
        "github.com/Top34051/colorswap (test.json and images/) or "
        f"huggingface.co/datasets/stanfordnlp/colorswap (data/{PACKED})"
    ),
    licence="MIT",
    cases=300,
)
_FIELDS = ("caption_1", "caption_2", "image_source", "caption_source")


@published(ORIGIN)
def colorswap(files: PublishedFiles) -> Benchmark:
    """300 cases of two images and two captions.

    group_score, the headline, text_score and image_score as in Winoground;
    group_score/image_source=midjourney, group_score/caption_source=human etc.: per group.
    Without test.json it reads test-*.parquet, which contains the images.
    """
    summary = ("group_score", "text_score", "image_score")
    return files.benchmark("colorswap", _cases(files), summary=summary)


def _cases(files: PublishedFiles) -> Iterator[Case]:
    for number, (row, pictures) in enumerate(_rows(files)):
        yield Case(
            case_id(number, row["caption_1"]),
            pictures,
            (row["caption_1"], row["caption_2"]),
            {kind: row[kind] for kind in ("image_source", "caption_source")},
        )


def _rows(
    files: PublishedFiles,
) -> Iterator[tuple[dict[str, Any], tuple[ImageLike, ImageLike]]]:
    if not files.has("test.json") and files.has(PACKED):
        for packed in files.packed(PACKED, *_FIELDS):
            yield packed[2], (packed_image(packed, "image_1"), packed_image(packed, "image_2"))
        return
    for row in files.objects("test.json", *_FIELDS, "image_1", "image_2"):
        yield row, (files.image(row["image_1"]), files.image(row["image_2"]))


READERS = {"colorswap": (colorswap, ORIGIN)}
