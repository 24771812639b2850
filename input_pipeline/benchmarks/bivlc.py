"""BiVLC: SugarCrepe's captions and negatives, each with an image.

Miranda et al., "BiVLC: Extending vision-language compositionality evaluation with text-to-image
retrieval" (NeurIPS 2024). Parquet with both images. Unverified: the file was not available; column
names are from its card (image, caption, negative_image, negative_caption, type, subtype).
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Benchmark, Case


@published.reader
def bivlc(files: published.Files) -> Benchmark:
    """2,933 cases: an image and its caption, a negative caption and an image generated from it.

    group_score, the headline, text_score (image-to-text in the paper) and image_score
    (text-to-image). Groups: type (replace, swap, add) and subset (replace_att).
    """
    return files.benchmark(_cases(files), summary=published.PAIR_SCORES)


def _cases(files: published.Files) -> Iterator[Case]:
    fields = ("caption", "negative_caption", "type", "subtype")
    for number, packed in enumerate(files.packed("**/*.parquet", *fields)):
        row = packed[2]
        yield Case(
            published.case_id(number, row["type"], row["subtype"]),
            published.row_images(packed, "image", "negative_image"),
            (row["caption"], row["negative_caption"]),
            # the names of SugarCrepe's subsets, so that both sets can be compared
            {"type": row["type"], "subset": f"{row['type']}_{row['subtype']}"},
        )
