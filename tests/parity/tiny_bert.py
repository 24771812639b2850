"""A BERT of few words for scripts that run in an environment with torch."""

from collections.abc import Sequence

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def build(
    words: Sequence[str], **fields: float
) -> tuple[transformers.PreTrainedTokenizerFast, transformers.BertConfig]:
    """A tokenizer of whole words, and a config with these fields; seeds torch."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    library = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, **fields,
    )  # fmt: skip
    return tokenizer, config
