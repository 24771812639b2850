"""LLaVA-1.5 (Liu et al. 2023, arXiv:2310.03744) and relatives: a language model over image tokens.

Image tokens are the inputs of the last block of CLIP's image tower (no last norm), mapped to the
width of the language model by a two-layer MLP. They replace the embeddings of image-token ids in
the text. LLaMA-3-V and Phi-3-V (LLaVA++) use other language models.

PaliGemma (Beyer et al. 2024, arXiv:2407.07726) and Gemma 3 (arXiv:2503.19786) use the tokens of
SigLIP's tower after its last norm, with bidirectional attention in part of the prompt (`KINDS`).
"""

import math
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
# Fields of LLaVA, and of models.captioner.Captioner, by the model_type of Hugging Face.
KINDS: dict[str, dict[str, str]] = {
    "llava": {"stage": "raw", "projection": "mlp", "bidirectional": "none"},
    "paligemma": {"stage": "normed", "projection": "linear", "bidirectional": "prompt"},
    "gemma3": {"stage": "normed", "projection": "pooled", "bidirectional": "image"},
}


class Projector(nn.Module):
    """Image tokens in the width of the language model.

    kind: mlp (LLaVA: linear, exact GELU, linear) | linear (PaliGemma) | pooled (Gemma 3: the means
      of side x side equal squares of patches, RMSNorm, a matrix).
    """

    width: int
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    kind: Literal["mlp", "linear", "pooled"] = "mlp"
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


class LLaVA(nn.Module):
    """Image tower, projector and language model; the parameters are {image, projector, lm}.

    The plain reference model of the tests. Runs use the head captioner over the image tower.

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
        errors.known("selection of image tokens", self.select, SELECTIONS)
        kinds = (self.lm.dtype, self.lm.param_dtype)
        self.projector = Projector(self.lm.width, *kinds, self.projection, self.side)

    @property
    def num_image_tokens(self) -> int:
        """Number of tokens of an image."""
        return number_selected(self.image.grid**2, self.select, self.side)

    def image_tokens(
        self, image: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch patches embed"]:
        """Image tokens in the width of the language model, of normalised pixels."""
        tokens = self.image(image, types.FeatureRequest(self.stage)).tokens
        return self.projector(selected(tokens, self.select, self.image.pooling == "cls"))

    def embed(
        self,
        ids: Int[Array, "batch length"],
        image_tokens: Float[Array, "batch patches embed"] | None = None,
    ) -> Float[Array, "batch length embed"]:
        """Embeddings of token ids, with the image tokens of row i at its image slots.

        A row without image slots ignores its image tokens. The number of image slots is not checked
        here, see `check_slots`.
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

    def text_logits(
        self,
        image: Float[Array, "batch height width channels"] | None,
        ids: Int[Array, "batch length"],
        valid: Bool[Array, "batch length"],
        is_answer: Bool[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length vocab"]:
        """Logits after every token, float32."""
        return self.lm.logits(self(image, ids, valid, is_answer))


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


def image_tower(depth: int, layer: int = -2, **sizes: Any) -> vit.ImageTower:
    """CLIP's image tower, cut so that its raw tokens are hidden state `layer` of `depth` blocks (a
    negative index into the embedding and the outputs of all blocks); for the reference model LLaVA
    (setup.llava_config computes the same depth for runs).

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
    """The reference model LLaVA with the sizes returned by `weights.llava.read_sizes`.

    options: dtype, param_dtype and remat of the language model; dtype also of the image tower.
    """
    tower = {key: options[key] for key in ("dtype",) if key in options}
    return LLaVA(
        image=image_tower(**sizes["image"], layer=sizes["layer"], **tower),
        lm=lm.from_sizes(sizes["lm"], **options),
        image_id=sizes["image_id"],
        select=sizes["select"],
        side=sizes.get("side"),
        **KINDS[sizes.get("kind", "llava")],
    )


def init(model: LLaVA, key: jax.Array) -> dict[str, Any]:
    """Random parameters of LLaVA; under `jax.eval_shape` their shapes."""
    side = model.image.image_size
    ids = jnp.full((1, model.num_image_tokens + 1), model.image_id).at[0, 0].set(0)
    image, valid = jnp.zeros((1, side, side, 3)), jnp.ones(ids.shape, bool)
    return model.init(key, image, ids, valid, method=LLaVA.text_logits)["params"]


def check_slots(ids: np.ndarray, image_id: int, count: int) -> None:
    """Raises UsageError unless every row of token ids has 0 or `count` image slots."""
    counts = (np.asarray(ids) == image_id).sum(axis=-1).reshape(-1)
    wrong = np.flatnonzero((counts != 0) & (counts != count))
    if len(wrong):
        raise errors.UsageError(
            f"an image has {count} tokens, but row {wrong[0]} holds the image token {image_id} "
            f"{counts[wrong[0]]} times; repeat it {count} times per image"
        )
