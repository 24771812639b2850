"""Parts of a config that must fit together, looked at before anything is made of them."""

import flax.linen as nn
from ml_collections import ConfigDict

import input_pipeline
from vlc_jax.errors import UsageError, known


def check_frozen(config: ConfigDict) -> None:
    """Raises UsageError for a part that cannot be frozen, or one that has nowhere to come from, or
    a head without its towers."""
    for part in config.frozen:
        known("part of the model that can be frozen", part, ("image", "text"))
    if config.frozen and not config.init_from and not config.pretrain:
        raise UsageError("config.frozen keeps pretrained towers as they are: set config.init_from")
    if config.input.source == "features" and not config.init_from:
        raise UsageError(
            "config.input.source=features holds what frozen towers gave: set config.init_from to "
            "the same towers"
        )
    if config.head_from and (config.lora.targets or not (config.init_from or config.pretrain)):
        raise UsageError(
            "config.head_from is the head of towers at config.init_from: set that, and no "
            "config.lora.targets"
        )
    if config.frozen and config.lora.targets:
        raise UsageError(
            "config.lora freezes all it does not name (config.lora.full): leave config.frozen empty"
        )


def check_positive(config: ConfigDict) -> None:
    """Raises UsageError for a count that must be at least 1."""
    counts = {
        "batch_size": config.batch_size,
        "log_every": config.log_every,
        "eval.batch_size": config.eval.batch_size,
        "checkpoint.keep_last": config.checkpoint.keep_last,
    }
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"config.{name} must be at least 1; got {value}")


def check_functional_words(config: ConfigDict, model: nn.Module) -> None:
    """Raises UsageError unless the head has a vector for each of config.text.functional_words."""
    words = len(config.text.functional_words.words)
    vectors = getattr(model.head, "num_functional_words", 0)
    if words != vectors:
        raise UsageError(
            f"config.text.functional_words.words are {words}, the head {config.model.name} has "
            f"{vectors} of them: set config.model.head.num_functional_words to their number (dcsm "
            "alone reads them)"
        )


def check_vocabulary(tokenizer: input_pipeline.Tokenizer, vocab_size: int) -> None:
    """Raises UsageError if any id of the tokenizer lies beyond the model's embedding table."""
    needed = max(tokenizer.vocab_size, tokenizer.pad_id + 1, tokenizer.eos_id + 1)
    if needed > vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} ids (pad {tokenizer.pad_id}, end-of-text "
            f"{tokenizer.eos_id}) but the model embeds {vocab_size}; use the model's own tokenizer "
            f"or set config.model.vocab_size={needed}"
        )
