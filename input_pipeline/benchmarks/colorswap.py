"""ColorSwap: two images and two captions of the same words, with their colours swapped.

Burapacheep et al., "ColorSwap: A Color and Word Order Dataset for Multimodal Evaluation" (ACL
Findings 2024); the test split, scored like Winoground. Reads the authors' test.json and images, or
the gated Parquet files of huggingface.co/datasets/stanfordnlp/colorswap.
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import ImageLike

PACKED = "test-*.parquet"
_IMAGES = ("image_1", "image_2")
_FIELDS = ("caption_1", "caption_2", "image_source", "caption_source")


@published.reader
def colorswap(files: published.Files) -> Benchmark:
    """300 cases of two images and two captions.

    group_score, the headline, text_score and image_score as in Winoground;
    group_score/image_source=midjourney, group_score/caption_source=human etc.: per group.
    Without test.json it reads test-*.parquet, which contains the images.
    """
    return files.benchmark(_cases(files), summary=published.PAIR_SCORES)


def _cases(files: published.Files) -> Iterator[Case]:
    for number, (row, pictures) in enumerate(_rows(files)):
        yield Case(
            published.case_id(number, row["caption_1"]),
            pictures,
            (row["caption_1"], row["caption_2"]),
            {kind: row[kind] for kind in ("image_source", "caption_source")},
        )


def _rows(files: published.Files) -> Iterator[tuple[dict[str, Any], tuple[ImageLike, ...]]]:
    if not files.has("test.json") and files.has(PACKED):
        for packed in files.packed(PACKED, *_FIELDS):
            yield packed[2], published.row_images(packed, *_IMAGES)
        return
    for row in files.objects("test.json", *_FIELDS, **dict.fromkeys(_IMAGES, fields.image_name)):
        yield row, tuple(files.image(row[name]) for name in _IMAGES)
