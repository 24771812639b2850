"""Table of tokenizers: captions -> token ids, or precomputed text vectors."""

from typing import Any

from vlc_jax import errors
from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.tokenizers import (
    byte_level,
    clip_bpe,
    conversation,
    hugging_face,
    instruction,
    sentence_piece,
    siglip,
    text_vectors,
    word_level,
)
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

_OWN = {
    "bytes": byte_level.BytesTokenizer,
    "clip": clip_bpe.ClipTokenizer,
    "conversation": conversation.ConversationTokenizer,
    "digits": word_level.digits_tokenizer,
    "hf": hugging_face.HfTokenizer,
    "instruction": instruction.InstructionTokenizer,
    "scenes": word_level.scenes_tokenizer,
    "scenes_conversation": conversation.ScenesConversationTokenizer,
    "sentencepiece": sentence_piece.SentencePieceTokenizer,
    "siglip": siglip.siglip_tokenizer,
    "vectors": text_vectors.text_vectors,
    "words": word_level.WordTokenizer,
}
TOKENIZERS = errors.Table(
    "TOKENIZERS",
    _OWN,
    "a class that inherits vlc_jax.input_pipeline.tokenizers.tokenizer.Tokenizer",
    lambda x: isinstance(x, type) and Tokenizer in x.__mro__,  # of a protocol no issubclass
)


def make_tokenizer(name: str, context_length: int, **options: Any) -> Tokenizer:
    """Builds the tokenizer `name` of `TOKENIZERS` with its options.

    "vectors" reads precomputed text vectors from a file instead.

    Raises ValueError for an unknown name, an unknown option or an unsuitable file, DataError for
    unusable vectors.
    """
    return lookup.build("tokenizer", TOKENIZERS, name, context_length=context_length, **options)
