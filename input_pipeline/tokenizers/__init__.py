"""Strings -> token ids, or vectors. Name -> what `input_pipeline.make_tokenizer` builds."""

from collections.abc import Callable

from input_pipeline.tokenizers import (
    byte_level,
    clip_bpe,
    conversation,
    hugging_face,
    sentence_piece,
    siglip,
    text_vectors,
    word_level,
)
from input_pipeline.tokenizers.tokenizer import Tokenizer

TOKENIZERS: dict[str, Callable[..., Tokenizer | text_vectors.TextVectors]] = {
    "bytes": byte_level.BytesTokenizer,
    "clip": clip_bpe.ClipTokenizer,
    "conversation": conversation.ConversationTokenizer,
    "digits": word_level.digits_tokenizer,
    "hf": hugging_face.HfTokenizer,
    "scenes": word_level.scenes_tokenizer,
    "scenes_conversation": conversation.scenes_conversation,
    "sentencepiece": sentence_piece.SentencePieceTokenizer,
    "siglip": siglip.siglip_tokenizer,
    "vectors": text_vectors.text_vectors,
    "words": word_level.WordTokenizer,
}
# Those that make a ConversationTokenizer, which marks the tokens of answers.
CONVERSATIONS = ("conversation", "scenes_conversation")
