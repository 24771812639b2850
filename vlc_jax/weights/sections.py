"""Sections of config files beside weights as tables: our fields, their keys, supported values.

A switch of a config file may change features and no shape (pooling, a causal mask, the scale of
pixels), so that the arrays load and the embeddings are wrong. Each key of a section is therefore
read, refused with other values than the supported ones, known to be harmless, or warned of.
"""

import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from vlc_jax.errors import WeightsError


def names(text: str) -> frozenset[str]:
    """The names in a text, at spaces and line breaks."""
    return frozenset(text.split())


# Keys that change no features, of all libraries: of training, generation, tokens and processors,
# or of sizes that the arrays show. A section that reads or fixes one of them does so nevertheless.
HARMLESS = names(
    """_attn_implementation_autoset _commit_hash _name_or_path _valid_processor_keys _vocab_size
    add_cross_attention apply_layernorm architectures attention_dropout
    attention_probs_dropout_prob attn_impl attn_implementation attn_pdrop attn_pooler_heads
    attn_pooler_queries bad_words_ids begin_suppress_tokens boi_token_id boi_token_index
    bos_token_id cast_dtype chunk_size_feed_forward classifier_dropout cross_attention_hidden_size
    custom_text data_format decoder_start_token_id default_to_square device disable_grouping
    diversity_penalty do_convert_rgb do_sample drop_path_rate dropout dtype early_stopping
    emb_pdrop embd_pdrop embedding_fraction encoder_hidden_size encoder_no_repeat_ngram_size
    eoi_token_id eoi_token_index eos_token_id exponential_decay_length_penalty fill_color
    finetuning_task forced_bos_token_id forced_eos_token_id freeze_mm_mlp_adapter
    freeze_mm_vision_resampler gradient_checkpointing hf_model_pretrained hf_proj_type
    hf_tokenizer_name hidden_dropout_prob hidden_size id2label ignore_index image_crop_resolution
    image_grid_pinpoints image_seq_length image_split_resolution image_text_hidden_size init_config
    init_device init_logit_bias init_logit_scale initializer_factor initializer_range
    input_data_format intermediate_size is_decoder is_encoder_decoder label2id label_smoothing
    layerscale_value learned_pos_emb length_penalty logit_scale_init_value max_length max_seq_len
    min_length mm_hidden_size mm_projector_lr mm_use_im_patch_token mm_vision_tower_lr
    model_input_names model_type no_repeat_ngram_size nonscalar_logit_scale num_beam_groups
    num_beams num_channels num_hidden_layers num_image_tokens num_patches num_positions
    num_return_sequences only_attend_previous out_features out_indices output_attentions
    output_dict output_hidden_states output_scores output_tokens pad_id pad_token_id
    pan_and_scan_max_num_crops pan_and_scan_min_crop_size pan_and_scan_min_ratio_to_activate
    patch_dropout patch_size prefix pretraining_tp problem_type processor_class projection_dim
    projection_size qformer_config_dict remove_invalid_values repetition_penalty resid_pdrop
    reshape_hidden_states return_dict return_dict_in_generate return_tensors sep_token_id
    stage_names suppress_tokens task_specific_params temperature text_config tf_legacy_loss
    tie_encoder_decoder tie_word_embeddings timm_drop timm_drop_path timm_model_pretrained
    tokenizer_class tokenizer_mode tokenizer_model_max_length tokenizer_name
    tokenizer_padding_side top_k top_p torch_dtype torchscript transformers_version
    tune_mm_mlp_adapter tune_mm_vision_resampler typical_p unfreeze_mm_vision_tower use_bfloat16
    use_cache use_fast use_mask_token use_media_placement_augmentation use_mm_proj verbose
    video_token_id vision_config vision_end_token_id vision_start_token_id vlc_jax vocab_size"""
)


def _is_number(value: Any, least: float = -1e20) -> bool:
    return type(value) in (int, float) and least <= value < 1e20  # no NaN either


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


# Type of a default -> the values of such a key, in words and as a check.
_KINDS: dict[type, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda x: isinstance(x, bool)),
    int: ("a whole number above 0", lambda x: _is_whole(x) and x > 0),
    float: ("a number, at least 0,", lambda x: _is_number(x, 0)),
    str: ("a text", lambda x: isinstance(x, str) and len(x) < 1000),
    tuple: ("a list of numbers", lambda x: isinstance(x, list | tuple) and all(map(_is_number, x))),
    type(None): ("a whole number", _is_whole),
}
Values = Mapping[Any, Any] | range


class Key(NamedTuple):
    """A key of a section that holds one of our fields.

    default: where a section leaves the key out, as the library's class has it; values have its
      type. None: a whole number that may be missing. A type: the key may not be left out.
    values: their value -> ours, or the range of numbers that are supported.
    other: a second name of the key.
    """

    name: str
    default: Any = None
    values: Values | None = None
    other: str = ""

    def read(self, section: Mapping[str, Any], where: str) -> Any:
        """Our value of the key. Raises WeightsError for one of another type or beyond `values`."""
        name = self.name if section.get(self.name) is not None or not self.other else self.other
        value = section.get(name)
        if value is None and isinstance(self.default, type):
            raise WeightsError(f"{where} lacks {name}")
        if value is None:
            value = self.default
            is_coded = isinstance(self.values, Mapping) and value in self.values
            return self.values[value] if is_coded else value
        if self.values is not None:
            kinds = (int,) if isinstance(self.values, range) else (int, str, bool)
            if type(value) not in kinds or value not in self.values:
                raise _unsupported(where, name, value, f"{_listed(self.values)} is supported")
            return self.values[value] if isinstance(self.values, Mapping) else value
        kind = self.default if isinstance(self.default, type) else type(self.default)
        words, is_one = _KINDS[kind]
        if not is_one(value):
            raise _unsupported(where, name, value, f"{words} is supported")
        return kind(value) if kind in (float, tuple) else value

    def write(self, value: Any) -> Any:
        """The inverse of `read`; of several values of theirs the first."""
        if isinstance(self.values, Mapping) and value is not None:
            return next(theirs for theirs, ours in self.values.items() if ours == value)
        return value


class Section(NamedTuple):
    """A section of a config file.

    fields: our fields -> their keys.   fixed: key -> its supported values; None (null) always is
    one.   constant: our fields that the file does not hold.   shown: keys that the caller reads, or
    that show in the shapes of arrays.
    """

    fields: Mapping[str, Key] = {}
    fixed: Mapping[str, tuple[Any, ...]] = {}
    constant: Mapping[str, Any] = {}
    shown: Collection[str] = ()

    def read(self, content: Any, where: str, others: Collection[str] = ()) -> dict[str, Any]:
        """Our fields of a section; null and a missing section have the defaults.

        where: name of the file, or of file and section, for messages.   others: keys of another
        table for the same section.   Raises WeightsError for content that is not supported; other
        keys are warned of once: they are ignored.
        """
        content = mapping(content, where)
        for key, supported in self.fixed.items():
            if (value := content.get(key)) is not None and value not in supported:
                rule = f"{_listed(supported)} is supported, and another value would change the "
                raise _unsupported(where, key, value, f"{rule}features without an error")
        if unknown := sorted(content.keys() - {*self.keys, *HARMLESS, *others}):
            _warn(
                f"{where} has keys that are not known here and are ignored: "
                f"{', '.join(f'{key} = {_shown(content[key])}' for key in unknown)}; if one of "
                "them changes features, the embeddings are wrong"
            )
        read = {field: key.read(content, where) for field, key in self.fields.items()}
        return {**self.constant, **read}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The section with `fields`, the inverse of `read`."""
        keys = self.fields.items()
        return {key.name: key.write(fields[field]) for field, key in keys if field in fields}

    @property
    def keys(self) -> set[str]:
        """All keys of the table."""
        named = {name for key in self.fields.values() for name in (key.name, key.other)}
        return {*named, *self.fixed, *self.shown}

    def but(
        self,
        fields: Mapping[str, Key] | None = None,
        fixed: Mapping[str, tuple[Any, ...]] | None = None,
        constant: Mapping[str, Any] | None = None,
        **defaults: Any,
    ) -> "Section":
        """A copy with more or other fields, fixed keys, constants, and defaults of keys."""
        changed = {
            field: key._replace(default=defaults.get(key.name, key.default))
            for field, key in {**self.fields, **(fields or {})}.items()
        }
        fixed = {**self.fixed, **(fixed or {})}
        return Section(changed, fixed, {**self.constant, **(constant or {})}, self.shown)


def mapping(content: Any, where: str) -> Mapping[str, Any]:
    """`content`, {} for null. Raises WeightsError for anything but a JSON object."""
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise WeightsError(f"{where} is {_shown(content)}; only a JSON object is supported")
    return content


def square_root(number: int, key: str, where: str) -> int:
    """The root of the number under a key. Raises WeightsError for a number that is no square."""
    side = math.isqrt(number)
    if side**2 != number:
        rule = "a square, such as 256, 576 and 1024, is supported"
        raise _unsupported(where, key, number, rule)
    return side


def _unsupported(where: str, key: str, value: Any, rule: str) -> WeightsError:
    return WeightsError(f"{where}: {key} is {_shown(value)}; only {rule}")


def _listed(values: Collection[Any]) -> str:
    """The supported values of a key; codes with their meaning."""
    if isinstance(values, range):
        return f"{values[0]} to {values[-1]}"
    meanings = values if isinstance(values, Mapping) else {}
    words = [f"{x} ({meanings[x]})" if type(x) is int and meanings else repr(x) for x in values]
    return " or ".join(words) or "null"


@functools.cache
def _warn(message: str) -> None:
    logging.warning("%s", message)  # once per process: a file is read by several callers


def _shown(value: Any) -> str:
    # only the type of a list or dict: repr fails on deep nesting
    return repr(value)[:50] if isinstance(value, int | float | str) else type(value).__name__
