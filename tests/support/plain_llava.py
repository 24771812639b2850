"""LLaVA as its authors write it, the plain reference of the captioner, and its prompts.

Image tokens replace the embeddings of image-token ids in the text; the head captioner, which runs
use, puts them before the text.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import llava, lm, vit
from vlc_jax.models.continuation import Prompt


class LLaVA(nn.Module):
    """Image tower, projector and language model; the parameters are {image, projector, lm}.

    image: the image tower up to the selected layer: hidden state -2 of CLIP is the output of a
      tower of depth - 1 blocks (`image_tower`).
    image_id: the token id whose embeddings are replaced by image tokens.
    select: patch (LLaVA) | cls (the class token alone, an ablation of "Exploring How Generative
      MLLMs Perceive More Than CLIP with the Same Vision Encoder", ACL 2025) | cls_patch.
    stage: raw | normed, tokens before or after the tower's last norm.
    projection, side: see Projector.
    bidirectional: tokens with bidirectional attention: none | image | prompt (all but the answer).
    """

    image: vit.ImageTower
    lm: lm.Decoder
    image_id: int
    select: Literal["patch", "cls", "cls_patch"] = "patch"
    stage: Literal["raw", "normed"] = "raw"
    projection: Literal["mlp", "linear", "pooled"] = "mlp"
    side: int | None = None
    bidirectional: Literal["none", "image", "prompt"] = "none"

    def setup(self) -> None:
        errors.known("selection of image tokens", self.select, llava.SELECTIONS)
        kinds = (self.lm.dtype, self.lm.param_dtype)
        self.projector = llava.Projector(self.lm.width, *kinds, self.projection, self.side)

    @property
    def num_image_tokens(self) -> int:
        """Number of tokens of an image."""
        return llava.number_selected(self.image.grid**2, self.select, self.side)

    def image_tokens(
        self, image: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch patches embed"]:
        """Image tokens in the width of the language model, of normalised pixels."""
        tokens = self.image(image, types.FeatureRequest(self.stage)).tokens
        return self.projector(llava.selected(tokens, self.select, self.image.pooling == "cls"))

    def embed(
        self,
        ids: Int[Array, "batch length"],
        image_tokens: Float[Array, "batch patches embed"] | None = None,
    ) -> Float[Array, "batch length embed"]:
        """Embeddings of token ids, with the image tokens of row i at its image slots.

        A row without image slots ignores its image tokens. The number of slots is not checked.
        """
        is_image = ids == self.image_id
        # an image id may lie beyond the vocabulary
        embeds = self.lm.embed(jnp.where(is_image, 0, ids))
        if image_tokens is None:
            return embeds
        order = jnp.clip(jnp.cumsum(is_image, axis=1) - 1, 0, image_tokens.shape[1] - 1)
        placed = jnp.take_along_axis(image_tokens.astype(embeds.dtype), order[..., None], axis=1)
        return jnp.where(is_image[..., None], placed, embeds)

    def prefix(
        self, ids: Int[Array, "batch length"], is_answer: Bool[Array, "batch length"] | None = None
    ) -> Bool[Array, "batch length"] | None:
        """Mask of slots with bidirectional attention, see lm.Decoder; None for a causal model.
        is_answer: None for a prompt without an answer."""
        if self.bidirectional == "none":
            return None
        if self.bidirectional == "image":
            return ids == self.image_id
        return jnp.ones(ids.shape, bool) if is_answer is None else ~is_answer

    def __call__(
        self,
        image: Float[Array, "batch height width channels"] | None,
        ids: Int[Array, "batch length"],
        valid: Bool[Array, "batch length"],
        is_answer: Bool[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length embed"]:
        """Features after the last norm at every token; `lm.logits` maps them to logits."""
        tokens = None if image is None else self.image_tokens(image)
        return self.lm(self.embed(ids, tokens), valid, prefix=self.prefix(ids, is_answer))[0]

    def text_logits(self, *inputs: Any, **more: Any) -> Float[Array, "batch length vocab"]:
        """Logits after every token, float32; inputs: of `__call__`."""
        return self.lm.logits(self(*inputs, **more))


def image_tower(depth: int, layer: int = -2, **sizes: Any) -> vit.ImageTower:
    """CLIP's image tower, cut so that its raw tokens are hidden state `layer` of `depth` blocks (a
    negative index into the embedding and the outputs of all blocks).

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
    """LLaVA with the sizes returned by `weights.llava.read_sizes`.

    options: dtype, param_dtype and remat of the language model; dtype also of the image tower.
    """
    tower = {key: options[key] for key in ("dtype",) if key in options}
    return LLaVA(
        image=image_tower(**sizes["image"], layer=sizes["layer"], **tower),
        lm=lm.from_sizes(sizes["lm"], **options),
        image_id=sizes["image_id"],
        select=sizes["select"],
        side=sizes.get("side"),
        **llava.KINDS[sizes.get("kind", "llava")],
    )


def init(model: LLaVA, key: jax.Array) -> dict[str, Any]:
    """Random parameters of LLaVA; under `jax.eval_shape` their shapes."""
    side = model.image.image_size
    ids = jnp.full((1, model.num_image_tokens + 1), model.image_id).at[0, 0].set(0)
    image, valid = jnp.zeros((1, side, side, 3)), jnp.ones(ids.shape, bool)
    return model.init(key, image, ids, valid, method=LLaVA.text_logits)["params"]


@partial(jax.jit, static_argnames="model")
def image_tokens(
    model: LLaVA, params: Any, image: Float[Array, "batch height width channels"]
) -> Float[Array, "batch patches embed"]:
    """Image tokens of normalised pixels, which prompts with the same image can share."""
    return model.apply({"params": params}, image, method="image_tokens")


@partial(jax.jit, static_argnames="model")
def embed_prompt(
    model: LLaVA,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
    tokens: Float[Array, "batch patches embed"] | None,
) -> Prompt:
    """Prompts of token ids, with the image tokens of row i at its image slots.

    tokens: None for prompts without their images, as M3ID needs them; the image slots then hold no
      token.
    """
    if tokens is None:
        valid = valid & (ids != model.image_id)
    embeds = model.apply({"params": params}, ids, tokens, method="embed")
    return Prompt(embeds, valid, model.prefix(ids))
