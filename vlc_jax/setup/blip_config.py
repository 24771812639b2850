"""Configs for weights of BLIP: the authors' checkpoints and folders of transformers."""

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from vlc_jax import weights
from vlc_jax.configs import default
from vlc_jax.errors import UsageError, WeightsError, usage_errors
from vlc_jax.input_pipeline.tokenizers.hugging_face import open_hf

FORMATS = ("blip", "hf_blip")
CONTEXT_LENGTH = 35  # of the authors' finetuning and evaluation
# BERT's files name no end token.
TOKENS = {"eos_token": "[SEP]", "pad_token": "[PAD]"}
# The authors' heads are 64 wide and their epsilons timm's and BERT's. Folders have their own.
_HEAD_WIDTH, _EPSILON = 64, 1e-6


def config_of_blip(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    tokenizer: str | None = None,
    image_size: int | None = None,
) -> ConfigDict:
    """The evaluation config for weights of BLIP, which scores by ITM.

    arrays: of `weights.read`, or their placeholders.   tokenizer: tokenizer.json of
    bert-base-uncased or its folder, by default the folder of the weights.   image_size: by default
    that of the files.
    Raises UsageError without a tokenizer, WeightsError for arrays that are no BLIP's.
    """
    metadata = weights.metadata.read(path)
    image, text = _image(arrays, metadata), text_encoder(arrays, metadata)
    grid = math.isqrt(len(array(arrays, r".*(pos_embed|position_embedding)")[0]) - 1)
    config = base(path, tokenizer, text.pop("vocab_size"), CONTEXT_LENGTH)
    with config.unlocked():
        config.input.image_size = image_size or grid * image["patch_size"]
        config.input.interpolation = metadata.get("interpolation", "bicubic")
        config.model.update({"name": "blip", "variant": "B/16"})
        config.model.image = ConfigDict(image)
        projection = len(array(arrays, r"(model\.)?text_proj\.weight"))
        config.model.head = ConfigDict(
            {"encoder": text, "projection": projection, "match_id": _match_id(config)}
        )
    return config


def base(
    path: str | Path, tokenizer: str | None, vocab_size: int, context_length: int
) -> ConfigDict:
    """Config that BLIP and X-VLM share: pixels, and ids of BERT, which the head reads."""
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(path)
        config.input.crop, config.input.normalisation = "none", "clip"
        config.input.interpolation = "bicubic"
        config.text.tokenizer, config.text.context_length = "hf", context_length
        config.text.tokenizer_options = ConfigDict({"path": _tokenizer(path, tokenizer), **TOKENS})
        config.model.text_tower, config.model.vocab_size = False, vocab_size
        config.evals = ConfigDict()
    return config


def _match_id(config: ConfigDict) -> int | None:
    """Id of [ENC], the last of the tokens that the authors add to BERT's and its file lacks. None,
    with a warning, where the file has another token there: these weights have no [ENC]."""
    path, last = config.text.tokenizer_options.path, config.model.vocab_size - 1
    with usage_errors():
        token = open_hf(path)[0].id_to_token(last)
    if token in (None, "[ENC]"):
        return last
    logging.warning(
        "the last token of the weights is %r in %s, not [ENC]: a text keeps [CLS] "
        "(config.model.head.match_id=None)", token, path,
    )  # fmt: skip
    return None


def _image(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the image tower: a ViT without CLIP's first norm, with a bias of its patches."""
    width, _, patch, _ = array(arrays, r".*patch_embed(\.proj|ding)\.weight", axes=4).shape
    block = r"(model\.visual_encoder\.blocks|vision_model\.encoder\.layers)\.(\d+)\."
    return {
        "width": width,
        "depth": len(indices(arrays, block)),
        "heads": metadata.get("image_heads", width // _HEAD_WIDTH),
        "mlp_width": len(array(arrays, block.replace(r"\d+", "0") + r"mlp\.fc1\.weight")),
        "patch_size": patch,
        "patch_bias": True,
        "pre_norm": False,
        "projection": None,
        "activation": metadata.get("image_activation", "gelu"),
        "epsilon": metadata.get("image_epsilon", _EPSILON),
    }


def text_encoder(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the text encoder, and vocab_size."""
    rows, width = array(
        arrays, r"(model\.)?text_encoder\.embeddings\.word_embeddings\.weight"
    ).shape
    block = r"(?:model\.)?text_encoder\.encoder\.layer\.(\d+)\."
    return {
        "vocab_size": rows,
        "positions": len(
            array(arrays, r"(model\.)?text_encoder\.embeddings\.position_embeddings\.weight")
        ),
        "width": width,
        "depth": len(indices(arrays, block)),
        "heads": metadata.get("text_heads", width // _HEAD_WIDTH),
        "mlp_width": len(
            array(arrays, block.replace(r"\d+", "0") + r"intermediate\.dense\.weight")
        ),
        "activation": metadata.get("text_activation", "gelu"),
        "epsilon": metadata.get("text_epsilon", 1e-12),
    }


def indices(arrays: Mapping[str, np.ndarray], block: str) -> set[str]:
    """Indices in the names that begin like `block`, whose last group they are."""
    matches = (re.match(block, name) for name in arrays)
    return {match[match.lastindex] for match in matches if match}


def array(arrays: Mapping[str, np.ndarray], pattern: str, axes: int = 2) -> np.ndarray:
    """The one array named like `pattern`. Raises WeightsError for several, none, or other axes."""
    names = [name for name in arrays if re.fullmatch(pattern, name)]
    names = [name for name in names if "_m." not in name]  # of momentum encoders
    if len(names) != 1 or arrays[names[0]].ndim < axes:
        raise WeightsError(f"the weights have {len(names)} arrays of {axes} axes named {pattern}")
    return arrays[names[0]]


def _tokenizer(path: str | Path, tokenizer: str | None) -> str:
    """Path of the tokenizer. Raises UsageError if there is none."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    file = Path(tokenizer or folder)
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.exists():
        raise UsageError(
            f"this model reads the ids of bert-base-uncased, and there is no {file}: name its "
            "tokenizer.json, or the folder, as tokenizer=..."
        )
    return str(file)
