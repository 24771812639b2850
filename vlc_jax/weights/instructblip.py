"""InstructBLIP in Hugging Face's folders: renaming rules, and config.json <-> sizes."""

from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import bert, config_keys, huggingface_config, rename
from vlc_jax.weights.openai import dense, norm, packed
from vlc_jax.weights.rename import Rule, rule

KIND = "instructblip"
# Defaults of transformers' classes, which a config.json may omit.
_IMAGE_DEFAULTS = {
    "hidden_size": 1408,
    "num_hidden_layers": 39,
    "num_attention_heads": 16,
    "intermediate_size": 6144,
    "image_size": 224,
    "patch_size": 14,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
}
# Our fields -> theirs.
_QFORMER = {
    "vocab_size": "vocab_size",
    "positions": "max_position_embeddings",
    **huggingface_config.SIZES,
    "cross_every": "cross_attention_frequency",
    "activation": "hidden_act",
    "epsilon": "layer_norm_eps",
}
_QFORMER_DEFAULTS = {
    "vocab_size": 30_522,
    "max_position_embeddings": 512,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "cross_attention_frequency": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
# Fields of vit.ImageTower that its EVA shares with no other tower of a LLaVA. Hugging Face stores a
# bias of keys, which is 0.
_TOWER = {"pre_norm": False, "patch_bias": True, "pooling": "cls"}
_HARMLESS = config_keys.TRANSFORMERS | config_keys.names(
    """attention_probs_dropout_prob classifier_dropout hidden_dropout_prob hidden_size
    qformer_config_dict text_config"""
)


def rules(patch_size: int) -> list[Rule]:
    """Rules of the image tower, the Q-Former and the projector, by the names of transformers."""
    image, text = "vision_model.embeddings", "qformer.embeddings"
    return [
        rule(f"{image}.class_embedding", "image/class_embedding", rename.LEADING_ONES),
        rule(f"{image}.position_embedding", "image/position_embedding", rename.LEADING_ONE),
        rule(
            f"{image}.patch_embedding.weight",
            "image/patch_embedding/kernel",
            rename.convolution(patch_size),
        ),
        rule(f"{image}.patch_embedding.bias", "image/patch_embedding/bias"),
        *_image_block("vision_model.encoder.layers.{i}", "image/block_{i}"),
        *norm("vision_model.post_layernorm", "image/norm"),
        rule("query_tokens", "reader/query", rename.LEADING_ONE),
        rule(f"{text}.word_embeddings.weight", "reader/token_embedding/embedding"),
        rule(f"{text}.position_embeddings.weight", "reader/position_embedding/embedding"),
        *norm(f"{text}.layernorm", "reader/embedding_norm"),
        *_reader_block("qformer.encoder.layer.{i}", "reader/block_{i}"),
        *dense("language_projection", "projector/linear"),
    ]


def _image_block(theirs: str, ours: str) -> list[Rule]:
    return [
        *norm(f"{theirs}.layer_norm1", f"{ours}/attention_norm"),
        *packed(f"{theirs}.self_attn.qkv.", f"{ours}/attention"),
        *dense(f"{theirs}.self_attn.projection", f"{ours}/attention/out"),
        *norm(f"{theirs}.layer_norm2", f"{ours}/mlp_norm"),
        *dense(f"{theirs}.mlp.fc1", f"{ours}/mlp/up"),
        *dense(f"{theirs}.mlp.fc2", f"{ours}/mlp/down"),
    ]


def _reader_block(theirs: str, ours: str) -> list[Rule]:
    block = [
        *bert.attention(f"{theirs}.attention", f"{ours}/attention", "attention"),
        *bert.attention(f"{theirs}.crossattention", f"{ours}/cross", "attention"),
    ]
    for end, mlp, mlp_norm in (("", "mlp", "mlp_norm"), ("_query", "query_mlp", "query_norm")):
        block += dense(f"{theirs}.intermediate{end}.dense", f"{ours}/{mlp}/up")
        block += dense(f"{theirs}.output{end}.dense", f"{ours}/{mlp}/down")
        block += norm(f"{theirs}.output{end}.LayerNorm", f"{ours}/{mlp_norm}")
    return block


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of a config.json beside those of its language model: those of the image tower, and
    `qformer` (fields of models.qformer.QFormer), see `llava_sizes.read`."""
    config_keys.check(
        config,
        "config.json",
        read=("image_token_id", "image_token_index", "num_query_tokens", "qformer_config"),
        fixed={"use_decoder_only_language_model": (True,)},
        harmless=(*_HARMLESS, "vision_config"),
    )
    image = _section(
        config,
        "vision_config",
        huggingface_config.IMAGE,
        _IMAGE_DEFAULTS,
        {"qkv_bias": (True,)},
        ("num_channels",),
    )
    reader = _section(
        config,
        "qformer_config",
        _QFORMER,
        _QFORMER_DEFAULTS,
        {"position_embedding_type": ("absolute",)},
        ("encoder_hidden_size",),
    )
    return {
        "kind": KIND,
        "image": image | _TOWER,
        "layer": -1,
        "image_id": config.get("image_token_index", config.get("image_token_id")),
        "select": "cls_patch",
        "qformer": {"queries": config.get("num_query_tokens", 32), **reader},
    }


def _section(
    config: Mapping[str, Any],
    name: str,
    names: Mapping[str, str],
    defaults: Mapping[str, Any],
    fixed: Mapping[str, tuple[Any, ...]],
    shown: tuple[str, ...],
) -> dict[str, Any]:
    """Our fields of a section. shown: further keys that show in the shapes of arrays."""
    section = config.get(name) or {}
    if not isinstance(section, Mapping):
        raise WeightsError(f"{name} holds the fields of a part of the model; got {section!r}")
    read = (*names.values(), *shown)
    config_keys.check(section, f"config.json, {name}", read=read, fixed=fixed, harmless=_HARMLESS)
    filled = {**defaults, **section}
    fields = {ours: filled[theirs] for ours, theirs in names.items()}
    activation = huggingface_config.ACTIVATIONS.get(fields["activation"])
    if activation is None:
        raise WeightsError(
            f"config.json, {name}: hidden_act {fields['activation']!r} is unknown; known: "
            f"{', '.join(huggingface_config.ACTIVATIONS)}"
        )
    return fields | {"activation": activation}


def write(sizes: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `read`, around the config of the language model."""
    return {
        "architectures": ["InstructBlipForConditionalGeneration"],
        "model_type": KIND,
        "text_config": text,
        "vision_config": {
            "model_type": "instructblip_vision_model",
            **huggingface_config.write_section(sizes["image"], huggingface_config.IMAGE),
        },
        "qformer_config": {
            "model_type": "instructblip_qformer",
            **huggingface_config.write_section(sizes["qformer"], _QFORMER),
            "encoder_hidden_size": sizes["image"]["width"],
        },
        "num_query_tokens": sizes["qformer"]["queries"],
        "image_token_index": sizes["image_id"],
        "tie_word_embeddings": sizes["lm"]["is_tied"],
    }
