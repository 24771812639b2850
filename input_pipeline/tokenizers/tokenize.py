"""Captions -> arrays of a batch: token ids or vectors, and marks of functional words or answers."""

from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.conversation import ConversationTokenizer
from vlc_jax.input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer


def tokenize(
    tokenizer: Tokenizer | TextVectors, texts: Sequence[str], name: str = "text"
) -> dict[str, np.ndarray]:
    """{`name`: token ids or vectors}; a tokenizer that marks tokens adds {`name`_marks: marks}."""
    arrays = {name: tokenizer(texts)}
    if isinstance(tokenizer, FunctionalWordTokenizer | ConversationTokenizer):
        arrays[f"{name}_marks"] = tokenizer.marks(texts)
    return arrays


def prompt_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Prompt ids between an image and generated text, without an end token: a question in the
    template of a ConversationTokenizer, else the first words of a caption.

    Raises DataError for a prompt that fills the tokenizer's context_length.
    """
    if isinstance(tokenizer, ConversationTokenizer):
        return tokenizer.prompt(text)
    row = tokenizer([text])[0]
    length = int(np.argmax(row == tokenizer.eos_id))
    if length == len(row) - 1:  # full, or cut
        raise DataError(
            f"the text {text[:60]!r} fills all {len(row)} tokens of config.text.context_length: "
            "shorten it"
        )
    return row[:length].tolist()
