"""The question that is asked of an image: a template, filled with the question of the record.

"Represent the given image with the following question: {}" asks the record's question; a template
without {} asks the same of all images.
"""

from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline.record import AskedImage, DataError, ImageLike
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

SLOT = "{}"


def fill(template: str, question: str | None) -> str:
    """The question in its template. Raises DataError for a template that misses one."""
    if SLOT not in template:
        return template
    if question is None:
        raise DataError(
            f"an image, or a text alone, comes without the question that {template!r} asks for; "
            "take a source or benchmark that has questions, or a template without {} "
            "(config.input.question, text_only_question)"
        )
    return template.replace(SLOT, question)


def of_images(
    tokenizer: Tokenizer, template: str, images: Sequence[ImageLike]
) -> dict[str, np.ndarray]:
    """{"question": token ids of what is asked of each image}; {} for an empty template.

    Raises DataError as `fill`.
    """
    if not template:
        return {}
    asked = (image.question if isinstance(image, AskedImage) else None for image in images)
    return {"question": tokenizer([fill(template, question) for question in asked])}
