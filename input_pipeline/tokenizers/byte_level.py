"""Byte-level tokenizer: one id per byte of the UTF-8 text."""

import hashlib
from collections.abc import Sequence

from vlc_jax.input_pipeline.tokenizers import clean as cleaning
from vlc_jax.input_pipeline.tokenizers import tokenizer


class BytesTokenizer(tokenizer.Tokenizer):
    """The UTF-8 bytes of a text: any language, no vocabulary file.

    Ids: 0 padding, 1 + byte, 257 EOS (the largest id, as in CLIP). A cut may fall inside a
    character.
    """

    pad_id = 0
    eos_id = 257
    vocab_size = 258
    fingerprint = hashlib.sha256(b"utf-8 bytes + 1").hexdigest()

    def __init__(self, context_length: int) -> None:
        self.context_length = tokenizer.check_length(context_length)

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = (cleaning.without_surrogates(text).encode("utf-8") for text in texts)
        return [[byte + 1 for byte in text[: self.context_length]] for text in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; an incomplete character becomes U+FFFD."""
        return bytes(int(i) - 1 for i in ids if 0 < int(i) < self.eos_id).decode("utf-8", "replace")
