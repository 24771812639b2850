"""Configs for weights of BLIP and X-VLM, which score by ITM: the authors' checkpoints, and BLIP's
folders of transformers."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vlc_jax import weights
from vlc_jax.configs import default
from vlc_jax.errors import UsageError, WeightsError, usage_errors
from vlc_jax.input_pipeline.tokenizers.hugging_face import open_hf
from vlc_jax.weights import xvlm
from vlc_jax.weights.sizes import Shapes

FORMATS, XVLM = ("blip", "hf_blip"), "xvlm"
# Tokens of a text in the authors' finetuning and evaluation.
BLIP_LENGTH, XVLM_LENGTH = 35, 40
# BERT's files name no end token.
TOKENS = {"eos_token": "[SEP]", "pad_token": "[PAD]"}
# The authors' heads are 64 wide and their epsilons timm's and BERT's. Folders have their own.
_HEAD_WIDTH, _EPSILON = 64, 1e-6


def config_of_blip(
    path: str | Path, shapes: Shapes, tokenizer: str | None = None, image_size: int | None = None
) -> ConfigDict:
    """The evaluation config for weights of BLIP.

    shapes: of the arrays in `path`.   tokenizer: tokenizer.json of bert-base-uncased or its folder,
    by default the folder of the weights.   image_size: by default that of the files.
    Raises UsageError without a tokenizer, WeightsError for arrays that are no BLIP's.
    """
    metadata = weights.metadata.read(path)
    width, patch_size = shapes.patches()
    config = _config(path, shapes, tokenizer, BLIP_LENGTH, metadata)
    with config.unlocked():
        grid = math.isqrt(shapes("image/position_embedding")[0] - 1)
        config.input.image_size = image_size or grid * patch_size
        config.input.interpolation = metadata.get("interpolation", "bicubic")
        config.model.update({"name": "blip", "variant": "B/16"})
        # a ViT without CLIP's first norm, with a bias of its patches
        config.model.image = ConfigDict(
            {
                "width": width,
                "depth": len(shapes.indices(r"image/block_(\d+)/")),
                "heads": metadata.get("image_heads", width // _HEAD_WIDTH),
                "mlp_width": shapes("image/block_0/mlp/up/kernel")[1],
                "patch_size": patch_size,
                "patch_bias": True,
                "pre_norm": False,
                "projection": None,
                "activation": metadata.get("image_activation", "gelu"),
                "epsilon": metadata.get("image_epsilon", _EPSILON),
            }
        )
        config.model.head.match_id = _match_id(config)
    return config


def config_of_xvlm(
    path: str | Path, shapes: Shapes, tokenizer: str | None = None, image_size: int | None = None
) -> ConfigDict:
    """The evaluation config for weights of X-VLM.

    shapes, tokenizer: as in `config_of_blip`.   image_size: by default that of one window in the
    last stage, as the authors have it: 224 for windows of 7, 384 for windows of 12.
    Raises UsageError without a tokenizer, WeightsError for arrays that are no X-VLM's.
    """
    config = _config(path, shapes, tokenizer, XVLM_LENGTH, {})
    cross = shapes.indices(r"head/bert/block_(\d+)/cross/")
    if not cross:
        raise WeightsError(f"{path} has no cross attention in its text encoder; X-VLM has")
    stages = shapes.indices(r"image/stage_(\d+)_block_")
    blocks = [shapes.indices(rf"image/stage_{stage}_block_(\d+)/") for stage in stages]
    rows, heads = shapes("image/stage_1_block_0/attention/position_bias")
    window, patch_size = (math.isqrt(rows) + 1) // 2, xvlm.PATCH * 2 ** (len(stages) - 1)
    with config.unlocked():
        config.input.image_size = image_size or window * patch_size
        config.model.update({"name": "xvlm", "variant": "Swin-B/32"})
        config.model.image = ConfigDict(
            {
                "width": shapes.patches()[0],
                "stages": tuple(map(len, blocks)),
                "heads": heads,
                "window": window,
                "patch_size": patch_size,
                "projection": None,
            }
        )
        config.model.head.encoder.cross = tuple(cross)
    return config


def _config(
    path: str | Path,
    shapes: Shapes,
    tokenizer: str | None,
    context_length: int,
    metadata: Mapping[str, Any],
) -> ConfigDict:
    """The config but for the image tower: pixels, and ids of BERT, which the head reads."""
    bert, config = "head/bert", default.get_config()
    vocab_size, width = shapes(f"{bert}/token_embedding/embedding")
    encoder = {
        "positions": shapes(f"{bert}/position_embedding/embedding")[0],
        "width": width,
        "depth": len(shapes.indices(rf"{bert}/block_(\d+)/")),
        "heads": metadata.get("text_heads", width // _HEAD_WIDTH),
        "mlp_width": shapes(f"{bert}/block_0/mlp/up/kernel")[1],
        "activation": metadata.get("text_activation", "gelu"),
        "epsilon": metadata.get("text_epsilon", 1e-12),
    }
    projection = shapes("head/text_projection/kernel")[1]
    with config.unlocked():
        config.init_from = str(path)
        config.input.crop, config.input.normalisation = "none", "clip"
        config.input.interpolation = "bicubic"
        config.text.tokenizer, config.text.context_length = "hf", context_length
        config.text.tokenizer_options = ConfigDict({"path": _tokenizer(path, tokenizer), **TOKENS})
        config.model.text_tower, config.model.vocab_size = False, vocab_size
        config.model.head = ConfigDict({"encoder": encoder, "projection": projection})
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
