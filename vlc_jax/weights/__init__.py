"""Import and export of other projects' weights: `load`, `save` and the table FORMATS."""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import (
    big_vision,
    blip,
    dcsm,
    files,
    huggingface,
    llava,
    llm2clip,
    long_clip,
    metadata,
    naflex,
    open_clip,
    openai,
    peft,
    position,
    rename,
    sizes,
    xvlm,
)
from vlc_jax.weights.rename import Rule, flatten, unflatten

__all__ = [
    "FORMATS",
    "Architecture",
    "Format",
    "centre_crop",
    "dcsm",
    "detect",
    "fitted",
    "flatten",
    "llava",
    "llm2clip",
    "load",
    "metadata",
    "naflex",
    "peft",
    "position",
    "read",
    "save",
    "shapes_of",
    "sizes",
    "unflatten",
]


class Architecture(NamedTuple):
    """Properties of a model that the shapes of its parameters do not show."""

    heads: dict[str, int]  # of "image" and "text"
    may_cut_text: bool = False  # causal with end-of-text pooling: later positions are never read
    # start of the bias of models with one, for weights of CLIP, which have none; None: no bias
    logit_bias: float | None = None
    antialias: bool = True  # how image positions are resampled; False: DINOv2 without registers
    context_length: int = 0  # tokens; FG-CLIP has other arrays for long texts
    is_naflex: bool = False  # the tower takes images of any aspect ratio
    # sine-cosine positions of the image tower's patches, which checkpoints of OpenVision lack
    sincos: Callable[[], np.ndarray] | None = None


class Format(NamedTuple):
    """A weights format.

    names: array names that identify the format; a file must have them all.
    make: makes renaming rules, of the fields of Architecture that `reads` names.
    ignored: regular expressions of names in its files that are no parameters, beside BUFFERS.
    matrix: a name of which the array has two axes, where another format has a convolution.
    unpack, pack: arrays of a file -> arrays with the names of `rules`, and back; None: identity.
    """

    names: tuple[str, ...]
    make: Callable[..., list[Rule]]
    ignored: tuple[str, ...] = ()
    unpack: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    pack: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    matrix: str | None = None
    reads: tuple[str, ...] = ()

    def rules(self, architecture: Architecture) -> list[Rule]:
        """Renaming rules for a model."""
        return self.make(**{name: getattr(architecture, name) for name in self.reads})


# Buffers and settings in TorchScript archives and state dicts that are no parameters.
# num_batches_tracked: torch's counter of training batches, which no ResNet reads.
BUFFERS = (
    r".*attn_mask",
    r".*\.(position|token_type)_ids",
    "input_resolution",
    "context_length",
    "vocab_size",
    r"visual\..*\.num_batches_tracked",
)
_BIG_VISION = ("params/img/MAPHead_0/probe", "params/txt/Embed_0/embedding")
_BIG_VISION_SCAN = (
    "params/img/MAPHead_0/probe",
    "params/img/Transformer/encoderblock/LayerNorm_0/scale",
)
_NAFLEX = partial(big_vision.rules, patches=naflex.FLAX_PATCHES, positions=naflex.POSITIONS)
_TEXT = "text.token_embedding.weight"
_SIGLIP = ("vision_model.head.probe", "text_model.head.weight")

# Order matters: `detect` returns the first format whose names are all in the file.
FORMATS: dict[str, Format] = {
    "openai_resnet": Format(
        ("visual.layer1.0.conv1.weight", "token_embedding.weight"), openai.resnet_rules
    ),
    "pe": Format(
        ("visual.attn_pool.probe", "visual.conv1.weight", "token_embedding.weight"),
        openai.pe_rules,
        unpack=openai.with_projection_bias,
    ),
    "open_clip": Format(("visual.conv1.weight", _TEXT), partial(openai.rules, "text.")),
    "openai": Format(
        ("visual.conv1.weight", "token_embedding.weight"), openai.rules, unpack=long_clip.one_table
    ),
    "open_clip_roberta": Format(
        ("visual.conv1.weight", "text.transformer.embeddings.word_embeddings.weight"),
        open_clip.roberta_rules,
    ),
    "open_clip_pe": Format(
        ("visual.trunk.attn_pool.latent", "visual.trunk.norm_pre.weight"), open_clip.pe_rules
    ),
    "open_clip_siglip": Format(("visual.trunk.attn_pool.latent", _TEXT), open_clip.siglip_rules),
    "open_clip_eva02": Format(
        ("visual.trunk.blocks.0.mlp.fc1_g.weight", _TEXT), open_clip.eva02_rules
    ),
    "open_clip_eva01": Format(("visual.trunk.blocks.0.attn.q_bias", _TEXT), open_clip.eva01_rules),
    "hf_fg_clip": Format(
        long_clip.NAMES,
        long_clip.rules,
        long_clip.IGNORED,
        unpack=long_clip.with_long_table,
        reads=("context_length",),
    ),
    "hf_clip": Format(
        ("vision_model.embeddings.class_embedding", "text_projection.weight"),
        huggingface.clip_rules,
    ),
    "hf_siglip2_naflex": Format(
        _SIGLIP, partial(huggingface.siglip_rules, naflex.TORCH_PATCHES), matrix=naflex.HUGGING_FACE
    ),
    "hf_siglip": Format(_SIGLIP, huggingface.siglip_rules),
    "hf_dinov2": Format(
        ("embeddings.cls_token", "encoder.layer.0.mlp.fc1.weight"),
        huggingface.dinov2_mlp_rules,
        huggingface.DINOV2_IGNORED,
    ),
    "hf_dinov2_swiglu": Format(
        ("embeddings.cls_token", "encoder.layer.0.mlp.weights_in.weight"),
        huggingface.dinov2_swiglu_rules,
        huggingface.DINOV2_IGNORED,
    ),
    "hf_llm2clip": Format(llm2clip.NAMES, llm2clip.rules),
    "blip": Format(blip.AUTHORS, partial(blip.rules, is_authors=True), blip.IGNORED),
    "hf_blip": Format(
        blip.HUGGING_FACE,
        partial(blip.rules, is_authors=False),
        blip.IGNORED,
        unpack=blip.with_temperature,
        pack=blip.without_temperature,
    ),
    "xvlm": Format(xvlm.NAMES, xvlm.rules, xvlm.IGNORED, unpack=xvlm.unpacked),
    "big_vision_naflex_scan": Format(
        _BIG_VISION_SCAN,
        _NAFLEX,
        unpack=big_vision.unstacked,
        pack=big_vision.stacked,
        matrix=naflex.BIG_VISION,
        reads=("heads",),
    ),
    "big_vision_naflex": Format(_BIG_VISION, _NAFLEX, matrix=naflex.BIG_VISION, reads=("heads",)),
    "big_vision_scan": Format(
        _BIG_VISION_SCAN,
        big_vision.rules,
        unpack=big_vision.unstacked,
        pack=big_vision.stacked,
        reads=("heads",),
    ),
    "big_vision": Format(_BIG_VISION, big_vision.rules, reads=("heads",)),
    "openvision": Format(
        ("params/img/cls", "params/txt/Embed_0/embedding"),
        big_vision.openvision_rules,
        (r"params/txt_decoder/.*",),  # the captioner of the training
        reads=("sincos",),
    ),
}


def detect(arrays: Mapping[str, np.ndarray]) -> str:
    """Name of the format of `arrays`, by their names. Raises WeightsError for an unknown format."""
    for name, candidate in FORMATS.items():
        if all(array in arrays for array in candidate.names) and (
            candidate.matrix is None or getattr(arrays.get(candidate.matrix), "ndim", 0) == 2
        ):
            return name
    raise WeightsError(
        f"weights of no known format ({', '.join(FORMATS)}); the first names are "
        f"{', '.join(list(arrays)[: rename.SHOWN])}"
    )


def centre_crop(name: str) -> str:
    """The centre crop (transforms.CENTRES) of the library that a format belongs to."""
    return "centre_torchvision" if name.startswith("open") else "centre"  # openai, open_clip


def read(path: str | Path, *, only_shapes: bool = False) -> tuple[dict[str, np.ndarray], str]:
    """Arrays of a file or folder, with the names of its format's rules, and the format's name.

    only_shapes: placeholders instead of arrays, from the headers only (`sizes.placeholder`).
    Raises WeightsError for a damaged file and an unknown format.
    """
    arrays = files.read(path, only_shapes=only_shapes)
    try:
        naflex.check_names(arrays)
        name = detect(arrays)
        unpack = FORMATS[name].unpack
        return (unpack(arrays) if unpack else arrays), name
    except WeightsError as error:
        raise files.naming(path, error) from error


def shapes_of(arrays: Mapping[str, np.ndarray], name: str | None = None) -> sizes.Shapes:
    """Shapes of our parameters in arrays of `read`, of the format `name` or the detected one."""
    rules = FORMATS[name or detect(arrays)].rules(Architecture({"image": 1, "text": 1}))
    return sizes.Shapes(arrays, rules)


def load(
    path: str | Path, shapes: Mapping[str, Any], architecture: Architecture, *, is_cut: bool = False
) -> tuple[dict[str, Any], str]:
    """Parameters of a file or folder, a float32 tree like `shapes`, and the name of their format.

    shapes: our parameter tree, of arrays or jax.ShapeDtypeStruct, or its image tower only.
    is_cut: the image tower has fewer blocks than the file, and no projection.
    Loading is strict: raises WeightsError for names left over or missing, other shapes, NaN or
    infinity, and damaged files. Position embeddings are resampled to the model's resolution and
    cut to its context length (`position.fit`).
    """
    arrays, name = read(path)
    expected = {key: tuple(value.shape) for key, value in flatten(shapes).items()}
    try:
        if name in naflex.FORMATS and not architecture.is_naflex:
            raise WeightsError(
                "weights of SigLIP 2 NaFlex, whose images have any aspect ratio: set "
                "config.model.variant to SigLIP2-B/16-naflex or SigLIP2-SO400M/16-naflex"
            )
        rules = FORMATS[name].rules(architecture)
        ignored = (*BUFFERS, *FORMATS[name].ignored)
        biases = [theirs for r in rules if r.ours == (_BIAS,) for theirs in r.theirs]
        has_bias = any(bias in arrays for bias in biases)
        if "text" in shapes:
            _check_bias(has_bias, expected)
        if not has_bias and architecture.logit_bias is not None and not _is_sigmoid(name):
            expected.pop(_BIAS, None)
        # the file may hold both towers, or a head: their arrays are no leftovers
        if not {"text", "head"} & shapes.keys():
            unused = [r for r in rules if not r.is_of("image") or (is_cut and _is_late(r))]
            ignored = (*ignored, *rename.names(unused))
        flat = rename.load(rules, arrays, expected, ignored)
        return fitted(unflatten(flat), shapes, architecture), name
    except WeightsError as error:
        raise WeightsError(f"{path} ({name}): {error}") from error


_BIAS = "logit_bias"


def _is_sigmoid(name: str) -> bool:
    """True for formats of models that were trained with the sigmoid loss."""
    return "siglip" in name or "big_vision" in name


def _check_bias(has_bias: bool, expected: Mapping[str, Any]) -> None:
    """Raises WeightsError if weights have a bias of logits and the model has none."""
    if has_bias and _BIAS not in expected:
        raise WeightsError(
            "the weights have a logit_bias (they were trained with the sigmoid loss), the model "
            "has none: set config.model.logit_bias_init, such as -10.0; softmax losses ignore it"
        )


# ln 1000: published scales are at most 100, SigLIP's 118. A linear scale, such as 14.3 or 100, is
# no logarithm.
_MAX_LOGIT_SCALE = 6.9


def _check_scale(params: Mapping[str, Any]) -> None:
    """Raises WeightsError for a logit_scale that cannot be the logarithm of a scale."""
    if "logit_scale" in params and (scale := float(params["logit_scale"])) > _MAX_LOGIT_SCALE:
        raise WeightsError(
            f"logit_scale is {scale:g}, a scale of exp({scale:g}): the parameter is a logarithm, "
            "published ones are at most ln 100 = 4.61, SigLIP's 4.77; store the logarithm of the "
            "scale"
        )


def _is_late(rule: Rule) -> bool:
    """True for rules of blocks and of the projection of the image tower."""
    return any(re.match(r"image/(block_|projection/)", path) for path in rule.ours)


def fitted(
    params: Mapping[str, Any], shapes: Mapping[str, Any], architecture: Architecture
) -> dict[str, Any]:
    """`params` with position embeddings resampled or cut to the lengths in `shapes`, then checked.

    A logit_bias that only the model has starts at architecture.logit_bias.
    Raises WeightsError for names or shapes that differ from `shapes`, for NaN or infinity, and for
    a logit_scale that is no logarithm.
    """
    flat = flatten(params)
    expected = {key: tuple(value.shape) for key, value in flatten(shapes).items()}
    _check_bias(_BIAS in flat, expected)
    if _BIAS in expected and _BIAS not in flat and architecture.logit_bias is not None:
        flat[_BIAS] = np.array(architecture.logit_bias, np.float32)
        logging.info("the weights have no logit_bias: it starts at %g", architecture.logit_bias)
    rename.check_names(flat, expected)
    # before the check of shapes, which the position embedding passes only after this
    flat = position.fit(
        flat, expected, may_cut_text=architecture.may_cut_text, antialias=architecture.antialias
    )
    rename.check_values(flat, expected)
    _check_scale(flat)
    return unflatten(flat)


def save(params: Mapping[str, Any], name: str, architecture: Architecture) -> dict[str, np.ndarray]:
    """Our parameters as arrays of the format `name`. Raises WeightsError if it cannot hold all."""
    arrays = rename.save(FORMATS[name].rules(architecture), flatten(params))
    pack = FORMATS[name].pack
    return pack(arrays) if pack else arrays
