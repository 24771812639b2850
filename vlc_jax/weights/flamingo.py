"""Weights of MPT, Otter and OpenFlamingo: their config.json -> sizes, names and renaming rules.

Otter is a folder of Hugging Face. OpenFlamingo's `checkpoint.pt` holds only what was trained: the
resampler, the cross attention and the token embeddings. The rest is read from a folder of MPT and
one of CLIP, which a config.json beside it names by the arguments of the authors'
`create_model_and_transforms`:

    {"model_type": "open_flamingo", "lang_encoder_path": "mosaicml/mpt-7b",
     "clip_vision_encoder_path": "openai/clip-vit-large-patch14", "cross_attn_every_n_layers": 4}

Each path is a folder, or its last part the name of a folder beside that of the checkpoint.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, huggingface_config, llava_sizes, rename
from vlc_jax.weights.openai import norm
from vlc_jax.weights.rename import Rule, rule
from vlc_jax.weights.sections import Key, Section, mapping

MPT, OTTER, OPEN_FLAMINGO = "mpt", "otter", "open_flamingo"
CHECKPOINT, LANGUAGE, VISION = "checkpoint.pt", "lang_encoder_path", "clip_vision_encoder_path"
# Tokens that the authors' code adds to MPT's vocabulary, in this order.
TOKENS = {
    OTTER: ("<|endofchunk|>", "<image>", "<answer>", "<PAD>"),
    OPEN_FLAMINGO: ("<|endofchunk|>", "<image>", "<PAD>"),
}
# Regular expressions of prefixes -> common prefix, see llava.one_name. In OpenFlamingo the parts of
# a block of the resampler are 0 and 1, and feed_forward is ff.
NAMES = (
    (r"vision_encoder\.(vision_model\.)?", "vision_model."),
    (r"perceiver\.layers\.(\d+)\.0\.(?=[nt])", r"projector.layers.\1."),
    (r"perceiver\.layers\.(\d+)\.1\.(?=\d)", r"projector.layers.\1.feed_forward."),
    (r"perceiver\.", "projector."),
    (
        r"lang_encoder\.transformer\.blocks\.(\d+)\.gated_cross_attn_layer\.(ff\.|feed_forward\.)",
        r"lm.cross.\1.feed_forward.",
    ),
    (r"lang_encoder\.transformer\.blocks\.(\d+)\.gated_cross_attn_layer\.", r"lm.cross.\1."),
    (r"lang_encoder\.transformer\.blocks\.(\d+)\.decoder_layer\.", r"lm.layers.\1."),
    (r"transformer\.blocks\.", "lm.layers."),
    (r"(lang_encoder\.)?transformer\.wte\.", "lm.embed_tokens."),
    (r"(lang_encoder\.)?transformer\.norm_f\.", "lm.norm."),
)
_MPT = Section(
    {
        "vocab": Key("vocab_size", 50_368),
        "width": Key("d_model", 2048),
        "depth": Key("n_layers", 24, range(1, huggingface_config.MAX_DEPTH + 1)),
        "heads": Key("n_heads", 16),
        "mlp_width": Key("expansion_ratio", 4),
        "epsilon": Key("layer_norm_epsilon", 1e-5),
    },
    fixed={
        "no_bias": (True,),
        "norm_type": ("low_precision_layernorm", "layernorm"),
        "logit_scale": (),
        "pruned_heads": ({},),
        "tie_word_embeddings": (True,),
    },
    constant={
        "scaling": None,
        "activation": "gelu",
        "is_tied": True,
        "is_centred": True,
        "is_gated": False,
    },
    shown=("attn_config",),
)
_ATTENTION = Section(
    {"alibi": Key("alibi_bias_max", 8.0)},
    fixed={
        "alibi": (True,),
        "attn_type": ("multihead_attention",),
        "attn_uses_sequence_id": (False,),
        "clip_qkv": (),
        "prefix_lm": (False,),
        "qk_ln": (False,),
        "softmax_scale": (),
    },
)
_TOP = Section({"cross_every": Key("cross_attn_every_n_layers", 4)}, shown=(LANGUAGE, VISION))
# of Otter for videos, and not merged
_OTTER = _TOP.but(fixed={"max_num_frames": (), "lora_config": ()})
_TOWER = llava_sizes.CLIP.but(  # defaults of transformers' CLIPVisionConfig
    fixed={"pruned_heads": ({},)},
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=12,
    patch_size=32,
    image_size=224,
)


def read(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Sizes of a folder of MPT, Otter or OpenFlamingo, as `llava_sizes.read` gives them.

    Raises WeightsError for another architecture, and for a missing file that the sizes come from.
    """
    kind = config["model_type"]
    if kind == MPT:
        return {"family": MPT, "lm": _language_model(config, "config.json")}
    top = (_OTTER if kind == OTTER else _TOP).read(config, "config.json")
    if kind == OTTER:
        text, where = config.get("text_config"), "config.json, text_config"
        vision = config.get("vision_config")
    else:
        text = files.read_json(files.beside(folder, LANGUAGE) / "config.json")
        where = f"{config[LANGUAGE]}/config.json"
        vision = files.read_json(files.beside(folder, VISION) / "config.json")
        vision = huggingface_config.section(vision, "vision_config") or vision
    text = mapping(text, where)
    if (theirs := text.get("model_type")) != MPT:
        raise WeightsError(f"{where} is of {str(theirs)[:50]!r}; only MPT is supported here")
    lm, image = _language_model(text, where), _TOWER.read(vision, "vision_config")
    if top["cross_every"] > lm["depth"]:
        raise WeightsError(
            f"cross_attn_every_n_layers is 1 to {lm['depth']}; got {top['cross_every']}"
        )
    if kind == OPEN_FLAMINGO:
        lm["vocab"] = _vocabulary(folder)
    lm |= top | {"cross_width": image["width"]}
    more = {"image": image, "layer": -1, "image_id": None, "select": "patch"}
    return {"family": MPT, "kind": kind, "lm": lm, **more}


def _language_model(text: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields of models.lm.Decoder."""
    fields = _MPT.read(text, where)
    attention = _ATTENTION.read(text.get("attn_config"), f"{where}, attn_config")
    return {**fields, "mlp_width": fields["mlp_width"] * fields["width"], **attention}


def with_frozen(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a checkpoint, and those of the language model that it was trained upon, both by
    their common names. Raises WeightsError for other arrays in both than the token embeddings."""
    if twice := sorted(trained.keys() & frozen.keys() - {"lm.embed_tokens.weight"}):
        raise WeightsError(rename.listing("in both, checkpoint and language model", twice))
    return {**frozen, **trained}


def _vocabulary(folder: Path) -> int:
    """Rows of the embedding matrix of an OpenFlamingo, to which its tokens were added."""
    arrays = files.read(folder / CHECKPOINT, only_shapes=True)
    name = "lang_encoder.transformer.wte.weight"
    if name not in arrays:
        raise WeightsError(f"{CHECKPOINT} has no {name}: no OpenFlamingo over MPT")
    return arrays[name].shape[0]


def _matrix(theirs: str, ours: str) -> Rule:
    return rule(f"{theirs}.weight", f"{ours}/kernel", rename.TRANSPOSED)


def _attention(theirs: str, ours: str) -> list[Rule]:
    """Rules of the attention in a block of the resampler or of cross attention."""
    key_value = [f"{ours}/{name}/kernel" for name in ("key", "value")]
    return [
        _matrix(f"{theirs}.to_q", f"{ours}/query"),
        rule(f"{theirs}.to_kv.weight", key_value, rename.stacked(2)),
        _matrix(f"{theirs}.to_out", f"{ours}/out"),
    ]


def _mlp(theirs: str, ours: str) -> list[Rule]:
    return [
        *norm(f"{theirs}.0", f"{ours}/mlp_norm"),
        _matrix(f"{theirs}.1", f"{ours}/up"),
        _matrix(f"{theirs}.3", f"{ours}/down"),
    ]


_BLOCK, _OURS = "projector.layers.{i}", "projector/resampler/block_{i}"
RESAMPLER = [
    rule("projector.latents", "projector/resampler/latents"),
    *norm(f"{_BLOCK}.norm_media", f"{_OURS}/norm"),
    *norm(f"{_BLOCK}.norm_latents", f"{_OURS}/latent_norm"),
    *_attention(_BLOCK, _OURS),
    *_mlp(f"{_BLOCK}.feed_forward", _OURS),
    *norm("projector.norm", "projector/resampler/norm"),
]


def blocks(sizes: Mapping[str, Any]) -> list[Rule]:
    """Rules of MPT's blocks and, if there is one, of the cross attention before them."""
    theirs, ours = "lm.layers.{i}", "lm/blocks"
    query_key_value = [f"{ours}/{name}/kernel" for name in ("query", "key", "value")]
    rules = [
        rule(f"{theirs}.norm_1.weight", f"{ours}/attention_norm/scale"),
        rule(f"{theirs}.attn.Wqkv.weight", query_key_value, rename.stacked(3)),
        _matrix(f"{theirs}.attn.out_proj", f"{ours}/out"),
        rule(f"{theirs}.norm_2.weight", f"{ours}/mlp_norm/scale"),
        _matrix(f"{theirs}.ffn.up_proj", f"{ours}/up"),
        _matrix(f"{theirs}.ffn.down_proj", f"{ours}/down"),
    ]
    depth, every = sizes["lm"]["depth"], sizes["lm"].get("cross_every")
    rules = [each._replace(layers=range(depth)) for each in rules]
    if not every:
        return rules
    theirs, ours = "lm.cross.{i}", "lm/cross"
    cross = [
        *norm(f"{theirs}.attn.norm", f"{ours}/norm"),
        *_attention(f"{theirs}.attn", ours),
        rule(f"{theirs}.attn_gate", f"{ours}/attention_gate"),
        *_mlp(f"{theirs}.feed_forward", ours),
        rule(f"{theirs}.ff_gate", f"{ours}/mlp_gate"),
    ]
    return rules + [each._replace(layers=range(every - 1, depth, every)) for each in cross]
