"""A Flamingo of a few thousand random numbers, as a folder of Otter's with a tokenizer without its
special tokens."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.support import plain_llava, small_models
from vlc_jax.models import flamingo, llava, lm
from vlc_jax.weights import llava as weights
from vlc_jax.weights import rename

TEXT = {"model_type": "mpt", "d_model": 16, "n_heads": 4, "n_layers": 4, "vocab_size": 30,
        "attn_config": {"alibi": True}}  # fmt: skip
VISION = {"model_type": "clip_vision_model", "hidden_size": 16, "num_hidden_layers": 2,
          "num_attention_heads": 2, "intermediate_size": 24, "image_size": 8, "patch_size": 4,
          "hidden_act": "quick_gelu"}  # fmt: skip
CONFIG = {"model_type": "otter", "cross_attn_every_n_layers": 2, "text_config": TEXT,
          "vision_config": VISION, "only_attend_previous": True}  # fmt: skip
WORDS = ("<pad>", "User:", "GPT:", "Yes", "red", "blue", "Does", "this", "figure", "show", '"a',
         'circle"?', "Please", "answer", "yes", "or", "no.", "on", "under", "A", "B", "(a)",
         "Is", "the")  # fmt: skip
# Common names -> Otter's.
_BLOCK = r"lang_encoder.transformer.blocks.\1."
_NAMES = (
    (r"vision_model\.", "vision_encoder.vision_model."),
    (r"projector\.", "perceiver."),
    (r"lm\.embed_tokens", "lang_encoder.transformer.wte"),
    (r"lm\.norm", "lang_encoder.transformer.norm_f"),
    (r"lm\.layers\.(\d+)\.", rf"{_BLOCK}decoder_layer."),
    (r"lm\.cross\.(\d+)\.", rf"{_BLOCK}gated_cross_attn_layer."),
)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """A resampler of one block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flamingo, "DEPTH", 1)
        yield


def write_config(folder: Path, **fields: Any) -> None:
    """config.json and the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | fields))
    small_models.write_tokenizer(folder, WORDS, "<pad>", r"[^\s]+")


def write(folder: Path, scale: float = 0.6) -> tuple[tuple[Any, Any, lm.Decoder], Any]:
    """Writes the folder; returns image tower, resampler and decoder, and the parameters."""
    write_config(folder)
    sizes = weights.read_sizes(folder)
    tower = plain_llava.image_tower(**sizes["image"], layer=-1)
    resampler, decoder = llava.Projector(0, kind="resampler"), lm.from_sizes(sizes["lm"])
    key, pixels = jax.random.key(0), jnp.zeros((1, 8, 8, 3))
    shapes = {
        "image": jax.eval_shape(tower.init, key, pixels)["params"],
        "projector": jax.eval_shape(resampler.init, key, jnp.zeros((1, 4, 16)))["params"],
        "lm": jax.eval_shape(functools.partial(lm.init, decoder), key),
    }
    params = small_models.normal(shapes, scale)
    safetensors.numpy.save_file(arrays(params, sizes), folder / "model.safetensors")
    return (tower, resampler, decoder), params


def arrays(params: Any, sizes: dict[str, Any]) -> dict[str, np.ndarray]:
    """The parameters in Otter's names."""
    saved = rename.saved(weights.rules(sizes, is_fused=False), rename.flatten(params))
    return {_theirs(name): array for name, array in saved}


def _theirs(name: str) -> str:
    for ours, theirs in _NAMES:
        if re.match(ours, name):
            return re.sub(f"^{ours}", theirs, name)
    raise ValueError(name)
