"""LLaVA-1.5 (Liu et al. 2023, arXiv:2310.03744): a language model that reads image tokens.

Its image tokens are those of CLIP's image tower before the last block, without the last norm,
mapped to the width of the language model by a two-layer MLP. They replace the embeddings of
image-token ids in the text. LLaMA-3-V and Phi-3-V (LLaVA++) have another language model.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import layers, lm, vit

SELECTIONS = ("patch", "cls", "cls_patch")


class Projector(nn.Module):
    """Linear, exact GELU, Linear."""

    width: int
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes embed"]:
        def dense(name: str) -> layers.Dense:
            init = nn.initializers.lecun_normal()
            return layers.Dense(
                self.width, True, self.dtype, init, param_dtype=self.param_dtype, name=name
            )

        return dense("second")(layers.exact_gelu(dense("first")(x)))


class LLaVA(nn.Module):
    """Image tower, projector and language model; the parameters are {image, projector, lm}.

    image: a tower without the blocks that no token of the wanted layer needs: CLIP's hidden state
      -2 is the output of a tower of depth - 1 blocks (`image_tower`).
    image_id: the token id whose embeddings image tokens replace.
    select: patch (LLaVA) | cls (the class token alone, an ablation of "Exploring How Generative
      MLLMs Perceive More Than CLIP with the Same Vision Encoder", ACL 2025) | cls_patch.
    """

    image: vit.ImageTower
    lm: lm.Decoder
    image_id: int
    select: Literal["patch", "cls", "cls_patch"] = "patch"

    def setup(self) -> None:
        errors.known("selection of image tokens", self.select, SELECTIONS)
        self.projector = Projector(self.lm.width, self.lm.dtype, self.lm.param_dtype)

    @property
    def num_image_tokens(self) -> int:
        """Tokens of an image."""
        return number_selected(self.image.grid**2, self.select)

    def image_tokens(
        self, image: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch patches embed"]:
        """Image tokens in the width of the language model, of normalised pixels."""
        tokens = self.image(image, types.FeatureRequest("raw")).tokens
        return self.projector(selected(tokens, self.select, self.image.pooling == "cls"))

    def embed(
        self,
        ids: Int[Array, "batch length"],
        image_tokens: Float[Array, "batch patches embed"] | None = None,
    ) -> Float[Array, "batch length embed"]:
        """Embeddings of the tokens of texts, with the image tokens of row i at its image slots.

        A row without image slots ignores its image tokens. `check_slots` compares the counts.
        """
        is_image = ids == self.image_id
        # an image id may lie beyond the vocabulary
        embeds = self.lm.embed(jnp.where(is_image, 0, ids))
        if image_tokens is None:
            return embeds
        order = jnp.clip(jnp.cumsum(is_image, axis=1) - 1, 0, image_tokens.shape[1] - 1)
        placed = jnp.take_along_axis(image_tokens.astype(embeds.dtype), order[..., None], axis=1)
        return jnp.where(is_image[..., None], placed, embeds)

    def __call__(
        self,
        image: Float[Array, "batch height width channels"] | None,
        ids: Int[Array, "batch length"],
        valid: Bool[Array, "batch length"],
    ) -> Float[Array, "batch length embed"]:
        """Features after the last norm at every token; `lm.logits` maps them to logits."""
        tokens = None if image is None else self.image_tokens(image)
        return self.lm(self.embed(ids, tokens), valid)[0]

    def text_logits(
        self,
        image: Float[Array, "batch height width channels"] | None,
        ids: Int[Array, "batch length"],
        valid: Bool[Array, "batch length"],
    ) -> Float[Array, "batch length vocab"]:
        """Logits after every token, float32."""
        return self.lm.logits(self(image, ids, valid))


def selected(
    tokens: Float[Array, "images patches embed"], select: str, has_class_token: bool
) -> Float[Array, "images _ embed"]:
    """The tokens of an image tower that `select` names (SELECTIONS); the class token is the first.

    Raises UsageError for a class token of a tower without one.
    """
    if not has_class_token and select != "patch":
        raise errors.UsageError(f"select={select!r} needs a class token; this image tower has none")
    first = int(has_class_token)
    return {"patch": tokens[:, first:], "cls": tokens[:, :1], "cls_patch": tokens}[select]


def number_selected(patches: int, select: str) -> int:
    """How many tokens `select` names of a tower with so many patches and a class token."""
    return {"patch": patches, "cls": 1, "cls_patch": patches + 1}[select]


def image_tower(depth: int, layer: int = -2, **sizes: Any) -> vit.ImageTower:
    """CLIP's image tower whose raw tokens are hidden state `layer` of a tower of `depth` blocks, a
    negative index into the embedding and the outputs of all blocks.

    sizes: further fields of vit.ImageTower.   Raises UsageError for a layer without a block.
    """
    blocks = depth + 1 + layer
    if not 0 < blocks <= depth:
        raise errors.UsageError(
            f"hidden state {layer} of {depth} blocks: give an index from {-depth} to -1"
        )
    clip = {"pre_norm": True, "activation": "quick_gelu", "epsilon": 1e-5, "projection": None}
    return vit.ImageTower(depth=blocks, **(clip | sizes))


def build(sizes: Mapping[str, Any], **options: Any) -> LLaVA:
    """LLaVA with the sizes that `weights.llava.read_sizes` gives; options: dtype, param_dtype and
    remat of the language model, of which the image tower takes dtype."""
    tower = {key: options[key] for key in ("dtype",) if key in options}
    return LLaVA(
        image=image_tower(**sizes["image"], layer=sizes["layer"], **tower),
        lm=lm.from_sizes(sizes["lm"], **options),
        image_id=sizes["image_id"],
        select=sizes["select"],
    )


def init(model: LLaVA, key: jax.Array) -> dict[str, Any]:
    """Random parameters; of `jax.eval_shape`, their shapes."""
    side = model.image.image_size
    ids = jnp.full((1, model.num_image_tokens + 1), model.image_id).at[0, 0].set(0)
    image, valid = jnp.zeros((1, side, side, 3)), jnp.ones(ids.shape, bool)
    return model.init(key, image, ids, valid, method=LLaVA.text_logits)["params"]


def check_slots(ids: np.ndarray, image_id: int, count: int) -> None:
    """Raises UsageError for a row of token ids with any number of image slots but 0 and `count`."""
    found = (np.asarray(ids) == image_id).sum(axis=-1).reshape(-1)
    wrong = np.flatnonzero((found != 0) & (found != count))
    if len(wrong):
        raise errors.UsageError(
            f"an image has {count} tokens, but row {wrong[0]} holds the image token {image_id} "
            f"{found[wrong[0]]} times; repeat it {count} times per image"
        )
