"""Captions to the arrays of a batch: token ids or vectors, and marks of functional words
or answers."""

from collections.abc import Sequence

import numpy as np

from input_pipeline.tokenizers.conversation import ConversationTokenizer
from input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from input_pipeline.tokenizers.text_vectors import TextVectors
from input_pipeline.tokenizers.tokenizer import Tokenizer


def tokenize(
    tokenizer: Tokenizer | TextVectors, texts: Sequence[str], name: str = "text"
) -> dict[str, np.ndarray]:
    """{`name`: token ids or vectors}, and {`name`_marks: marks} of one that marks tokens."""
    arrays = {name: tokenizer(texts)}
    if isinstance(tokenizer, FunctionalWordTokenizer | ConversationTokenizer):
        arrays[f"{name}_marks"] = tokenizer.marks(texts)
    return arrays
