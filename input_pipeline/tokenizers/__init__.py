"""Strings -> token ids, or vectors. Name -> what `input_pipeline.make_tokenizer` builds."""

from collections.abc import Callable

from input_pipeline.tokenizers import clip_bpe, text_vectors, tokenizers

TOKENIZERS: dict[str, Callable[..., tokenizers.Tokenizer | text_vectors.TextVectors]] = {
    "bytes": tokenizers.BytesTokenizer,
    "clip": clip_bpe.ClipTokenizer,
    "digits": tokenizers.digits_tokenizer,
    "hf": tokenizers.HfTokenizer,
    "scenes": tokenizers.scenes_tokenizer,
    "sentencepiece": tokenizers.SentencePieceTokenizer,
    "siglip": tokenizers.siglip_tokenizer,
    "vectors": text_vectors.text_vectors,
    "words": tokenizers.WordTokenizer,
}
