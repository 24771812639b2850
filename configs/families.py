"""What belongs to pretrained weights beside their numbers: tokenizer, pixels, activation."""

from ml_collections import ConfigDict


def use_clip(config: ConfigDict, variant: str, tokenizer: str, image_size: int = 224) -> None:
    """OpenAI's and open_clip's CLIP. `tokenizer`: bpe_simple_vocab_16e6.txt.gz or tokenizer.json.

    OpenAI's weights and those open_clip calls "-quickgelu" need activation quick_gelu, the other
    ones of open_clip gelu: the variants have OpenAI's.
    """
    config.model.variant = variant
    config.input.image_size = image_size
    config.input.normalisation = "clip"
    config.input.crop = "centre"
    config.text.context_length = 77
    config.text.tokenizer = "clip" if tokenizer.endswith(".gz") else "hf"
    config.text[config.text.tokenizer].path = tokenizer


def use_siglip(config: ConfigDict, variant: str, tokenizer: str, image_size: int = 224) -> None:
    """SigLIP and, with its own tokenizer and vocabulary, SigLIP 2 of fixed resolution.

    `tokenizer`: SentencePiece's .model or tokenizer.json. Texts are padded to 64 tokens, always.
    """
    config.model.variant = variant
    config.input.image_size = image_size
    config.input.normalisation = "siglip"
    config.input.crop = "none"
    config.text.context_length = 64
    config.text.tokenizer = "sentencepiece" if tokenizer.endswith(".model") else "hf"
    config.text[config.text.tokenizer].path = tokenizer
    config.logit_scale_max = None  # published scales are about 117
