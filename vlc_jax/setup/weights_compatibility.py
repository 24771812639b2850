"""Checks of a checkpoint's metadata (towers, preprocessing, tokenizer) against ours.

Weights load without an error when one of these is wrong, and then score worse.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import numpy as np
from ml_collections import ConfigDict

from vlc_jax import weights
from vlc_jax.errors import UsageError, WeightsError, usage_errors
from vlc_jax.input_pipeline import tokenizers
from vlc_jax.input_pipeline.images import image_ops, transforms
from vlc_jax.input_pipeline.tokenizers import pretrained_folder
from vlc_jax.models.blip import BLIP
from vlc_jax.models.roberta import RobertaTower
from vlc_jax.models.text import TextTower
from vlc_jax.models.tower import Tower
from vlc_jax.setup.data import Tokenizer, image_transform

# Maximum of embedding rows beyond the tokenizer's ids: tables are padded to round sizes,
# OpenVision's to 32,000 for BERT's 30,522 tokens.
MAX_SPARE_ROWS = 1500
# Maximum share of differing tokens: files of one tokenizer name some special tokens differently.
MAX_DIFFERING = 0.01
# Fields of BLIP's text encoder that the files of weights have.
_ENCODER = ("activation", "epsilon", "heads")


class Metadata(NamedTuple):
    """Metadata of a model's weights, and the config fields that set it.

    values: keys of `weights.metadata.FIELDS` -> value; no text keys without a text tower.
    fields: the same keys -> config field.
    tokenizer, variant: their names in the config, for messages.
    """

    values: Mapping[str, Any]
    fields: Mapping[str, str]
    tokenizer: str
    variant: str


def metadata(config: ConfigDict, model: nn.Module, tokenizer: Tokenizer) -> Metadata:
    """The metadata of weights trained with this config."""
    mean, std = image_ops.NORMALISATIONS[config.input.normalisation]
    values = {
        "image_heads": model.image.heads,
        "mean": mean,
        "std": std,
        "interpolation": config.input.interpolation,
    }
    if isinstance(model.image, Tower):  # of a ResNet or a Swin both are fixed
        values |= {"image_activation": model.image.activation, "image_epsilon": model.image.epsilon}
    crop = image_transform(config, is_training=False).crop
    if crop != "pad":  # LLaVA pads the images of a CLIP that was trained on crops
        values["crop"] = crop
    if has_text_tower(model):
        values |= {
            "text_activation": model.text.activation,
            "text_epsilon": model.text.epsilon,
            "text_heads": model.text.heads,
            "is_causal": model.text.is_causal,
            "text_pooling": model.text.pooling,
            "context_length": model.text.context_length,
            "vocab_size": model.text.vocab_size,
            **_tokenizer_metadata(model, tokenizer),
        }
    fields = {key: _field(config, key) for key in weights.metadata.FIELDS}
    if isinstance(model.head, BLIP):
        encoder = model.head.text_encoder
        text_values = {f"text_{key}": getattr(encoder, key) for key in _ENCODER}
        values |= {**text_values, "vocab_size": encoder.vocab_size}
        fields |= dict.fromkeys(text_values, "config.model.head.encoder")
    return Metadata(values, fields, config.text.tokenizer, config.model.variant)


def check_files(ours: Metadata, model: nn.Module, tokenizer: Tokenizer, path: str | Path) -> None:
    """Raises UsageError if the files beside the weights at `path` contradict the config."""
    if has_text_tower(model) or isinstance(model.head, BLIP):
        folder = weights.metadata.folder(path)
        with usage_errors():
            vocabulary = pretrained_folder.vocabulary(folder) if folder else None
        check_tokenizer(ours, model, tokenizer, vocabulary, path)
    try:
        check_metadata(ours, model, weights.metadata.read(path), path)
    except UsageError:
        # another variant would be the cause; checked only now, since it reads all arrays
        check_sizes(ours, model, _sizes_of_file(path), path)
        raise


def check_sizes(
    ours: Metadata, model: nn.Module, theirs: Mapping[str, int], path: str | Path, variant: str = ""
) -> None:
    """Raises UsageError if the towers at `path` have other sizes (keys of `sizes`).

    They are then of another variant (named `variant`, if known), which may explain all other
    differences.
    """
    differing = [
        f"{name} {theirs[name]}, here {value}"
        for name, value in sizes(model).items()
        if theirs.get(name, value) != value
    ]
    if differing:
        called = f" ({variant})" if variant else ""
        raise UsageError(
            f"the weights at {path} are of another variant{called} than config.model.variant="
            f"{ours.variant}: {'; '.join(differing)}; set config.model.variant to theirs, and "
            "config.model.image and config.model.text where those change it"
        )


def sizes(model: nn.Module) -> dict[str, int]:
    """Widths and depths of the model's towers, and the patch size."""
    image, text = model.image, model.text
    values = {"image width": image.width, "image depth": image.depth}
    if image.patch_size:
        values["patch size"] = image.patch_size
    if has_text_tower(model):
        values |= {"text width": text.width, "text depth": text.depth}
    return values


def _sizes_of_file(path: str | Path) -> dict[str, int]:
    try:
        values = weights.sizes.read(weights.shapes_of(*weights.read(path)))
    except WeightsError:
        return {}
    sizes_ = {"patch size": values.patch_size}
    for part, pair in (("image", values.image), ("text", values.text)):
        sizes_ |= {
            f"{part} {name}": size for name, size in zip(("width", "depth"), pair, strict=False)
        }
    return sizes_


def check_metadata(
    ours: Metadata, model: nn.Module, theirs: Mapping[str, Any], path: str | Path
) -> None:
    """Raises UsageError if the config contradicts metadata of the weights at `path`.

    The message lists each differing value and the config field that sets it.
    """
    values = dict(ours.values)
    if "context_length" in values.keys() & theirs.keys() and may_cut_text(model):
        wanted, found = values["context_length"], theirs["context_length"]
        is_stretched = wanted == weights.position.stretched_length(found)
        values["context_length"] = found if is_stretched else max(wanted, found)
    differing = [
        f"{name} is {theirs[name]}, here {values[name]} ({ours.fields[name]})"
        for name in values.keys() & theirs.keys()
        if not _is_same(theirs[name], values[name])
    ]
    if differing:
        raise UsageError(
            f"the config contradicts the metadata of the weights at {path}: "
            f"{'; '.join(sorted(differing))}; set the fields in brackets accordingly"
        )


def check_tokenizer(
    ours: Metadata,
    model: nn.Module,
    tokenizer: Tokenizer,
    theirs: Mapping[str, int] | None,
    path: str | Path,
) -> None:
    """Raises UsageError if the tokenizer does not belong to the weights at `path`.

    It does not if more than MAX_SPARE_ROWS embedding rows have no id, or if the weights' vocabulary
    `theirs` (token -> id, if known) has other ids for the tokens.
    """
    rows = model.text.vocab_size
    rule = f"use the tokenizer that belongs to {path} (config.text.tokenizer, and its path)"
    if rows - tokenizer.vocab_size > MAX_SPARE_ROWS:
        raise UsageError(
            f"the configured model ({ours.variant}) embeds {rows} tokens, tokenizer "
            f"{ours.tokenizer!r} has {tokenizer.vocab_size}; {rule}, and its model.variant"
        )
    vocabulary = tokenizer.vocabulary()
    differing = [token for token, index in (theirs or {}).items() if vocabulary.get(token) != index]
    if theirs and len(differing) > MAX_DIFFERING * len(theirs):
        # the example is the middle one by id: first and last ids are special tokens
        token = sorted(differing, key=theirs.__getitem__)[len(differing) // 2]
        raise UsageError(
            f"tokenizer {ours.tokenizer!r} is not the one of {path}: {len(differing)} of "
            f"{len(theirs)} tokens differ, as {token!r} ({theirs[token]}, here "
            f"{vocabulary.get(token, 'none')}); {rule}"
        )


def _tokenizer_metadata(model: nn.Module, tokenizer: Tokenizer) -> dict[str, Any]:
    """Treatment of case, punctuation, end token and padding, measured on a tokenizer's ids.

    The padding token only if the text tower reads it (SigLIP).
    """
    values = {"padding_side": "right"}
    plain, capital, points = tokenizer(["a red dog", "A RED Dog", "a red, dog!"])
    values["lower_case"] = bool((plain == capital).all())
    values["strips_punctuation"] = bool((plain == points).all())
    names = {index: token for token, index in tokenizer.vocabulary().items()}
    if tokenizer.eos_id in names:
        values["eos_token"] = names[tokenizer.eos_id]
    if model.text.pooling == "eos":
        values["eos_id"] = tokenizer.eos_id
    if tokenizer.pad_id in names and not may_cut_text(model):
        values["pad_token"] = names[tokenizer.pad_id]
    return values


def may_cut_text(model: nn.Module) -> bool:
    """True if the table of text positions may be cut: a causal tower, pooled at the end token.

    No feature then depends on positions after the end token.
    """
    return has_text_tower(model) and model.text.is_causal and model.text.pooling == "eos"


def has_text_tower(model: nn.Module) -> bool:
    """False if texts are precomputed vectors, or if the head reads token ids itself."""
    return isinstance(model.text, TextTower | RobertaTower)


def normalisation(values: Mapping[str, Any], path: str | Path) -> str | None:
    """Name of the normalisation with the mean and std of metadata; None without either.

    Raises UsageError for moments without a name.
    """
    moments = {key: values[key] for key in ("mean", "std") if key in values}
    for name, (mean, std) in image_ops.NORMALISATIONS.items():
        named = {"mean": mean, "std": std}
        if all(np.allclose(named[key], value) for key, value in moments.items()):
            return name if moments else None
    listed = " and ".join(f"{key} {value}" for key, value in moments.items())
    raise UsageError(
        f"{path}: the images of the weights have {listed}; only those of "
        f"{', '.join(image_ops.NORMALISATIONS)} are supported"
    )


def _field(config: ConfigDict, key: str) -> str:
    """The config field that sets `key`; config.text.tokenizer if it has no such option."""
    field = weights.metadata.FIELDS[key]
    group, _, option = field.rpartition(".")
    known = inspect.signature(tokenizers.TOKENIZERS[config.text.tokenizer]).parameters
    is_missing = group == "config.text.tokenizer_options" and option not in known
    return "config.text.tokenizer" if is_missing else field


def _is_same(a: Any, b: Any) -> bool:
    # the centre crops of two libraries, which differ by a pixel at most, are both accepted
    if isinstance(a, str):
        return a == b or {a, b} == {*transforms.CENTRES}
    return bool(np.allclose(a, b, rtol=1e-4, atol=0))
