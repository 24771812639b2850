"""Byte-level tokenizer: one id per byte of the UTF-8 text."""

import hashlib
from collections.abc import Sequence

from vlc_jax.input_pipeline.tokenizers import as_hugging_face, clip_bpe, tokenizer
from vlc_jax.input_pipeline.tokenizers import clean as cleaning


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

    def vocabulary(self) -> dict[str, int]:
        """Byte (in GPT-2's alphabet) or special token -> id."""
        letters = {letter: 1 + byte for byte, letter in clip_bpe.letters_of_bytes().items()}
        return letters | self._special

    @property
    def _special(self) -> dict[str, int]:
        return {as_hugging_face.PAD: self.pad_id, as_hugging_face.END: self.eos_id}

    def files(self) -> dict[str, str]:
        """Files of the equivalent Hugging Face tokenizer: name -> content."""
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        library = tokenizers.Tokenizer(models.BPE(vocab=self.vocabulary(), merges=[]))
        split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        library.pre_tokenizer, library.decoder = split, decoders.ByteLevel()
        return as_hugging_face.files(library, self.context_length, self._special)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; an incomplete character becomes U+FFFD."""
        return bytes(int(i) - 1 for i in ids if 0 < int(i) < self.eos_id).decode("utf-8", "replace")
