"""The question about an image: a template, filled with the question of the record.

The template "Represent the given image with the following question: {}" takes the record's
question; a template without {} is the same question for all images.
"""

from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline.record import DataError, ImageLike, ImageQuestion
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

SLOT = "{}"


def fill(template: str, question: str | None) -> str:
    """The template with the question filled in. Raises DataError if a question is missing."""
    if SLOT not in template:
        return template
    if question is None:
        raise DataError(
            f"an image, or a text-only record, has no question to fill into {template!r}; "
            "take a source or benchmark that has questions, or a template without {} "
            "(config.input.question, text_only_question)"
        )
    return template.replace(SLOT, question)


def image_questions(
    tokenizer: Tokenizer, template: str, images: Sequence[ImageLike]
) -> dict[str, np.ndarray]:
    """{"question": token ids of the question about each image}; {} for an empty template.

    Raises DataError as `fill` does.
    """
    if not template:
        return {}
    questions = (image.question if isinstance(image, ImageQuestion) else None for image in images)
    return {"question": tokenizer([fill(template, question) for question in questions])}
