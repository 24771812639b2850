"""BiVLC: SugarCrepe's captions and negatives with an image for each of them.

Miranda et al., "BiVLC: Extending vision-language compositionality evaluation with text-to-image
retrieval" (NeurIPS 2024). Packed in Parquet with both images; the file was not to be had: columns
are those of its card (image, caption, negative_image, negative_caption, type, subtype).
"""

from pathlib import Path

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    packed_image,
)
from vlc_jax.input_pipeline.case import Benchmark, Case

ORIGIN = Origin(
    protocol="pairs",
    folder="bivlc",
    files=("**/*.parquet",),
    images="bivlc",
    source="huggingface.co/datasets/imirandam/BiVLC (data/)",
    licence="MIT",
    cases=2_933,
    overlap="COCO val2017",
)


def bivlc(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
) -> Benchmark:
    """2,933 cases of an image and its caption, a negative caption and an image made from it.

    group_score, the headline, text_score (its image-to-text) and image_score (its text-to-image).
    Groups: type (replace, swap, add) and subset, the type with what it changes (replace_att).
    """
    files = PublishedFiles(ORIGIN, root, folder, images)
    texts = ("caption", "negative_caption")
    cases = (
        Case(
            case_id(number, place[2]["type"], place[2]["subtype"]),
            (packed_image(place, "image"), packed_image(place, "negative_image")),
            tuple(place[2][text] for text in texts),
            {"type": place[2]["type"], "subset": f"{place[2]['type']}_{place[2]['subtype']}"},
        )
        for number, place in enumerate(files.packed("**/*.parquet", *texts, "type", "subtype"))
    )
    summary = ("group_score", "text_score", "image_score")
    return files.benchmark("bivlc", cases, count, summary=summary)


READERS = {"bivlc": (bivlc, ORIGIN)}
