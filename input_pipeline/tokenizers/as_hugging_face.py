"""Files of the equivalent Hugging Face tokenizer, for exports of tokenizers without a file."""

import json
from typing import Any

PAD, UNKNOWN, END = "<|pad|>", "<|unk|>", "<|endoftext|>"


def files(library: Any, context_length: int, special: dict[str, int]) -> dict[str, str]:
    """File name -> content of a folder that transformers.AutoTokenizer loads.

    library: a `tokenizers.Tokenizer` without special tokens.   special: token -> id, END included,
      which is appended to every text.
    """
    from tokenizers import processors

    library.add_special_tokens(list(special))
    ends = [(END, special[END])]
    library.post_processor = processors.TemplateProcessing(f"$A {END}", f"$A $B {END}", ends)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "padding_side": "right",
        "eos_token": END,
        "pad_token": PAD,
        **({"unk_token": UNKNOWN} if UNKNOWN in special else {}),
    }
    return {
        "tokenizer.json": library.to_str(),
        "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
    }
