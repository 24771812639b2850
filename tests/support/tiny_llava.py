"""A LLaVA of a few thousand random numbers, as a folder of Hugging Face's, with its tokenizer."""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tokenizers

from vlc_jax.models import llava
from vlc_jax.weights import llava as weights

WORDS = ("<pad>", "</s>", "<s>", "USER:", "ASSISTANT:", "Yes", "\n", "red", "blue", "Does", "this",
         "figure", "show", '"a', 'circle"?', "Please", "answer", "yes", "or", "no.", "left",
         "right", "on", "under", "A", "B", "(a)", "Is", "the")  # fmt: skip
IMAGE_ID = 29
LM = {"vocab": 30, "width": 16, "depth": 2, "heads": 4, "mlp_width": 24, "kv_heads": 2,
      "head_width": None, "epsilon": 1e-5, "theta": 1e4, "scaling": None, "window": None,
      "is_tied": False, "activation": "silu", "unit_offset": False,
      "scales_embeddings": False}  # fmt: skip
IMAGE = {"width": 16, "depth": 3, "heads": 2, "mlp_width": 24, "image_size": 8, "patch_size": 4,
         "activation": "quick_gelu", "epsilon": 1e-5}  # fmt: skip
SIZES = {"family": "llama", "lm": LM, "image": IMAGE, "layer": -2, "image_id": IMAGE_ID}


def write(folder: Path, select: str = "patch", scale: float = 0.3) -> tuple[llava.LLaVA, Any]:
    """Writes the folder; returns the model and its parameters."""
    sizes = SIZES | {"select": select}
    model = llava.build(sizes)
    shapes = jax.eval_shape(functools.partial(llava.init, model), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes)
    weights.save(params, sizes, folder)
    write_tokenizer(folder)
    return model, params


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json of WORDS, which stand between spaces and line ends; others are <pad>."""
    library = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>")
    )
    split = tokenizers.Regex(r"\n|[^\s]+")
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(split, "removed", invert=True)
    library.save(str(folder / "tokenizer.json"))
