"""Configs for weights of X-VLM: the authors' checkpoints."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from vlc_jax.errors import WeightsError
from vlc_jax.setup import blip_config
from vlc_jax.weights import xvlm

FORMAT = "xvlm"
CONTEXT_LENGTH = 40  # of the authors' finetuning and evaluation
_TOWER = r"model\.vision_encoder\."


def config_of_xvlm(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    tokenizer: str | None = None,
    image_size: int | None = None,
) -> ConfigDict:
    """The evaluation config for weights of X-VLM, which scores by ITM.

    arrays, tokenizer: as in `blip_config.config_of_blip`.   image_size: by default that of one
    window in the last stage, as the authors have it: 224 for windows of 7, 384 for windows of 12.
    Raises UsageError without a tokenizer, WeightsError for arrays that are no X-VLM's.
    """
    image, text = _image(arrays), blip_config.text_encoder(arrays, {})
    cross = r"model\.text_encoder\.encoder\.layer\.(\d+)\.crossattention\."
    text["cross"] = tuple(sorted(map(int, blip_config.indices(arrays, cross))))
    if not text["cross"]:
        raise WeightsError(f"{path} has no cross attention in its text encoder; X-VLM has")
    config = blip_config.base(path, tokenizer, text.pop("vocab_size"), CONTEXT_LENGTH)
    with config.unlocked():
        config.input.image_size = image_size or image["window"] * image["patch_size"]
        config.model.update({"name": "xvlm", "variant": "Swin-B/32"})
        config.model.image = ConfigDict(image)
        projection = len(blip_config.array(arrays, r"model\.text_proj\.weight"))
        config.model.head = ConfigDict({"encoder": text, "projection": projection})
    return config


def _image(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Fields of the image tower."""
    width = len(blip_config.array(arrays, _TOWER + r"patch_embed\.proj\.weight", axes=4))
    count = len(blip_config.indices(arrays, _TOWER + r"layers\.(\d+)\."))
    stages = tuple(
        len(blip_config.indices(arrays, _TOWER + rf"layers\.{stage}\.blocks\.(\d+)\."))
        for stage in range(count)
    )
    name = r"layers\.0\.blocks\.0\.attn\.relative_position_bias_table"
    table = blip_config.array(arrays, _TOWER + name)
    return {
        "width": width,
        "stages": stages,
        "heads": table.shape[1],
        "window": (math.isqrt(len(table)) + 1) // 2,
        "patch_size": xvlm.PATCH * 2 ** (count - 1),
        "projection": None,
    }
