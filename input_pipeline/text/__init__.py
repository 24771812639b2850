"""Strings -> token ids. Name -> tokenizer class; `input_pipeline.make_tokenizer` builds one."""

from collections.abc import Callable

from input_pipeline.text import clip_bpe, tokenizers

TOKENIZERS: dict[str, Callable[..., tokenizers.Tokenizer]] = {
    "bytes": tokenizers.BytesTokenizer,
    "clip": clip_bpe.ClipTokenizer,
    "digits": tokenizers.digits_tokenizer,
    "hf": tokenizers.HfTokenizer,
    "scenes": tokenizers.scenes_tokenizer,
    "sentencepiece": tokenizers.SentencePieceTokenizer,
    "siglip": tokenizers.siglip_tokenizer,
    "words": tokenizers.WordTokenizer,
}
