"""Weights of MPT, Otter and OpenFlamingo: names and renaming rules.

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
from vlc_jax.weights import files, huggingface_config, rename
from vlc_jax.weights.openai import norm
from vlc_jax.weights.rename import Rule, rule
from vlc_jax.weights.sections import mapping

KINDS = OTTER, OPEN_FLAMINGO = "otter", "open_flamingo"
CHECKPOINT, LANGUAGE, VISION = "checkpoint.pt", "lang_encoder_path", "clip_vision_encoder_path"
# Tokens that Otter's code adds to MPT's vocabulary, in this order.
TOKENS = ("<|endofchunk|>", "<image>", "<answer>", "<PAD>")
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


def with_parts(config: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """config.json of an OpenFlamingo with the sections that Otter's has, from the files of its
    parts, and the names of these files.

    Raises WeightsError for a part, or the checkpoint, that is missing.
    """
    text, vision = (files.beside(folder, key) / "config.json" for key in (LANGUAGE, VISION))
    places = {"text_config": str(text), "vision_config": str(vision)}
    text = {**mapping(files.read_json(text), str(text)), "vocab_size": _rows(folder)}
    vision = mapping(files.read_json(vision), str(vision))
    vision = huggingface_config.section(vision, "vision_config") or vision
    return {**config, "text_config": text, "vision_config": vision}, places


def _rows(folder: Path) -> int:
    """Rows of the embedding matrix of an OpenFlamingo, to which its tokens were added."""
    arrays = files.read(folder / CHECKPOINT, only_shapes=True)
    name = "lang_encoder.transformer.wte.weight"
    if name not in arrays:
        raise WeightsError(f"{CHECKPOINT} has no {name}: no OpenFlamingo over MPT")
    return arrays[name].shape[0]


def with_frozen(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a checkpoint, and those of the language model that it was trained upon, both by
    their common names. Raises WeightsError for other arrays in both than the token embeddings."""
    if twice := sorted(trained.keys() & frozen.keys() - {"lm.embed_tokens.weight"}):
        raise WeightsError(rename.listing("in both, checkpoint and language model", twice))
    return {**frozen, **trained}


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
