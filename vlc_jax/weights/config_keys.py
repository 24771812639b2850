"""Checks that every key of a config file beside weights is understood.

A switch of a config file may change features and no shape (pooling, a causal mask, the scale of
pixels), so that the arrays load and the embeddings are wrong.
"""

import functools
import logging
from collections.abc import Collection, Mapping
from typing import Any

from vlc_jax.errors import WeightsError


def names(text: str) -> frozenset[str]:
    """The names in a text, at spaces and line breaks."""
    return frozenset(text.split())


# Of every config class of transformers, and of the generation settings that its older versions
# wrote beside them: none changes the features of a tower.
TRANSFORMERS = names(
    """_attn_implementation_autoset _commit_hash _name_or_path add_cross_attention architectures
    attention_dropout attention_probs_dropout_prob attn_implementation bad_words_ids
    begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size
    decoder_start_token_id diversity_penalty do_sample dropout dtype early_stopping
    encoder_hidden_size encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    hidden_dropout_prob id2label image_text_hidden_size initializer_factor initializer_range
    is_decoder is_encoder_decoder label2id label_smoothing length_penalty logit_scale_init_value
    max_length min_length model_type no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences output_attentions output_hidden_states output_scores pad_token_id prefix
    problem_type projection_dim remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature
    tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p torch_dtype
    torchscript transformers_version typical_p use_bfloat16 use_cache"""
)


def check(
    section: Mapping[str, Any],
    where: str,
    *,
    read: Collection[str],
    fixed: Mapping[str, Collection[Any]],
    harmless: Collection[str] = (),
) -> None:
    """Checks the keys of one section of a config file.

    where: name of the file, or of the file and the section, for messages.
    read: keys that the caller uses, or that show in the shapes of arrays.
    fixed: key -> the supported values; None (null) always is one.
    harmless: keys that change no features.
    Raises WeightsError for another value of a fixed key. Other keys are warned of once: they are
    ignored.
    """
    for key, supported in fixed.items():
        if (value := section.get(key)) is not None and value not in supported:
            raise WeightsError(
                f"{where}: {key} is {_shown(value)}; only {' or '.join(map(repr, supported))} is "
                "supported, and another value would change the features without an error"
            )
    known = {*read, *fixed, *harmless}
    unknown = [f"{key} = {_shown(section[key])}" for key in sorted(section.keys() - known)]
    if unknown:
        _warn(
            f"{where} has keys that are not known here and are ignored: {', '.join(unknown)}; if "
            "one of them changes features, the embeddings are wrong"
        )


@functools.cache
def _warn(message: str) -> None:
    logging.warning("%s", message)  # once per process: a file is read by several callers


def _shown(value: Any) -> str:
    # only the type of a list or dict: repr fails on deep nesting
    return repr(value)[:50] if isinstance(value, int | float | str) else type(value).__name__
