"""Image tokens of LLaVA-1.5 (Liu et al. 2023, arXiv:2310.03744) and relatives.

Image tokens are the inputs of the last block of CLIP's image tower (no last norm), mapped to the
width of the language model by a two-layer MLP; models/captioner.py has the language model.
LLaMA-3-V and Phi-3-V (LLaVA++) use other language models.

PaliGemma (Beyer et al. 2024, arXiv:2407.07726) and Gemma 3 (arXiv:2503.19786) use the tokens of
SigLIP's tower after its last norm, with bidirectional attention in part of the prompt (`KINDS`).
Otter and OpenFlamingo resample the patches of CLIP's last block (models/flamingo.py).
"""

import math
from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import errors
from vlc_jax.models import flamingo, layers, lm

SELECTIONS = ("patch", "cls", "cls_patch")
_FLAMINGO = {"stage": "raw", "projection": "resampler", "bidirectional": "none"}
# Fields of models.captioner.Captioner by the model_type of Hugging Face.
KINDS: dict[str, dict[str, str]] = {
    "llava": {"stage": "raw", "projection": "mlp", "bidirectional": "none"},
    "paligemma": {"stage": "normed", "projection": "linear", "bidirectional": "prompt"},
    "gemma3": {"stage": "normed", "projection": "pooled", "bidirectional": "image"},
    # of models.instructblip.InstructBLIP
    "instructblip": {"stage": "normed", "projection": "linear", "bidirectional": "none"},
    "otter": _FLAMINGO,
    "open_flamingo": _FLAMINGO,
}


class Projector(nn.Module):
    """Image tokens in the width of the language model, or latents of the image (resampler).

    kind: mlp (LLaVA: linear, exact GELU, linear) | linear (PaliGemma) | pooled (Gemma 3: the means
      of side x side equal squares of patches, RMSNorm, a matrix) | resampler (Flamingo: 64 latents
      in the width of the patches, models.flamingo).
    """

    width: int
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    kind: Literal["mlp", "linear", "pooled", "resampler"] = "mlp"
    side: int | None = None

    @nn.compact
    def __call__(
        self, x: Float[Array, "images patches features"]
    ) -> Float[Array, "images _ embed"]:
        def dense(name: str, use_bias: bool = True) -> layers.Dense:
            init = nn.initializers.lecun_normal()
            return layers.Dense(
                self.width, use_bias, self.dtype, init, param_dtype=self.param_dtype, name=name
            )

        if self.kind == "resampler":
            return flamingo.Resampler(self.dtype, self.param_dtype, name="resampler")(x)
        if self.kind == "linear":
            return dense("linear")(x)
        if self.kind == "pooled":
            # 1e-6: the epsilon of the image tower's layer norms
            norm = lm.RMSNorm(1e-6, True, self.dtype, self.param_dtype, name="norm")
            return dense("linear", use_bias=False)(norm(square_means(x, self.side)))
        return dense("second")(layers.exact_gelu(dense("first")(x)))


def square_means(
    tokens: Float[Array, "images patches embed"], side: int
) -> Float[Array, "images _ embed"]:
    """Mean pooling of an image's patches to a grid of side x side.

    Raises UsageError if `side` does not divide the side of the patch grid.
    """
    images, patches, width = tokens.shape
    grid = math.isqrt(patches)
    if grid**2 != patches or grid % side:
        raise errors.UsageError(
            f"{patches} patches cannot be pooled to {side} x {side} equal squares"
        )
    squares = tokens.reshape(images, side, grid // side, side, grid // side, width)
    return squares.mean(axis=(2, 4)).reshape(images, side**2, width)


def selected(
    tokens: Float[Array, "images patches embed"], select: str, has_class_token: bool
) -> Float[Array, "images _ embed"]:
    """The tokens of an image tower selected by `select` (SELECTIONS); the class token comes first.

    Raises UsageError if `select` needs a class token and the tower has none.
    """
    if not has_class_token and select != "patch":
        raise errors.UsageError(f"select={select!r} needs a class token; this image tower has none")
    first = int(has_class_token)
    return {"patch": tokens[:, first:], "cls": tokens[:, :1], "cls_patch": tokens}[select]


def number_selected(patches: int, select: str, side: int | None = None) -> int:
    """Number of selected tokens of a tower with `patches` patches and a class token.

    side: see Projector.
    """
    return side**2 if side else {"patch": patches, "cls": 1, "cls_patch": patches + 1}[select]
