"""TFLocal: a small transformer reads the patches of an image and the tokens of a text together.

After "Revisiting Compositionality in Dual-Encoder Vision-Language Models: The Role of Inference"
(Miranda et al. 2026, arXiv:2604.11496): towers are frozen, and a light transformer learns the
alignment of patches and tokens. With v_p and u_t the projected tokens of the towers, v and u their
pooled features, of unit length,

    x = [c, A v + a_0, A v_p + a_p, B u + b_0, B u_t + b_t]
    score = w . LN(transformer(x)_c) + w_0

with a learned token c, linear maps A and B and learned positions a and b. The paper's text was not
at hand: this input, the sizes and the readout are ours.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import heads, layers
from vlc_jax.types import ImageFeatures, TextFeatures

EPSILON = 1e-5


class Transformer(nn.Module):
    """Scores of pairs from their tokens, image before text; the learned token c stands first."""

    depth: int
    attention_heads: int

    @nn.compact
    def __call__(
        self,
        image: Float[Array, "images patches embed"],
        text: Float[Array, "images_or_1 texts length embed"],
        ends: Int[Array, "images_or_1 texts"],
    ) -> Float[Array, "images texts"]:
        """Scores of images with texts, or with the image's own texts.

        ends: the last token of each text that is read.
        """
        (images, patches, width), texts = image.shape, text.shape[1]
        first = self.param("class_token", nn.initializers.normal(0.02), (width,))

        def each_pair(x: Array) -> Array:
            return jnp.broadcast_to(x, (images, texts, *x.shape[2:])).reshape(-1, *x.shape[2:])

        parts = first.reshape(1, 1, 1, width), image[:, None], text
        x = jnp.concatenate([each_pair(part) for part in parts], axis=1)
        # the text last: no token reads behind its end
        ends = each_pair(ends) + 1 + patches
        initial = layers.initialisers("clip", width, self.depth)
        for number in range(self.depth):
            sizes = self.attention_heads, 4 * width, False, "gelu", EPSILON, initial
            # of the last block only c is read
            positions = jnp.zeros_like(ends) if number == self.depth - 1 else None
            block = layers.Block(*sizes, name=f"block_{number}")
            x = block(x, positions=positions, ends=ends)
        x = layers.layer_norm(EPSILON, jnp.float32, "norm")(x[:, 0])
        return layers.Dense(1, name="out")(x).reshape(images, texts)


class TFLocal(heads.Head):
    """The transformer's score of every pair.

    patches, length: tokens of an image and of a text, copied from the towers.
    has_class_token: whether the tower's first token is a class token, which is dropped.
    hidden, depth, attention_heads: sizes of the transformer. 512, 4 and 8 have 13.2 million
      parameters on a ViT-B/32.
    chunk: images and texts at a time on each device, for memory; changes no result.
    """

    patches: int
    length: int
    has_class_token: bool = True
    hidden: int = 512
    depth: int = 4
    attention_heads: int = 8
    chunk: int = 16

    def setup(self) -> None:
        heads_ = self.attention_heads
        if self.depth < 1 or heads_ < 1 or self.hidden % heads_:
            raise errors.UsageError(
                "depth of the model tflocal is from 1 on, and hidden a multiple of attention_heads;"
                f" got depth {self.depth}, hidden {self.hidden}, attention_heads {heads_}"
            )
        self.image_map, self.text_map = layers.Dense(self.hidden), layers.Dense(self.hidden)
        normal = nn.initializers.normal(0.02)
        # one more for the pooled features, first
        counts = self.patches - self.has_class_token + 1, self.length + 1
        self.image_positions = self.param("image_positions", normal, (counts[0], self.hidden))
        self.text_positions = self.param("text_positions", normal, (counts[1], self.hidden))
        self.transformer = Transformer(self.depth, self.attention_heads)

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Projected tokens of both towers."""
        return types.FeatureRequest("projected"), types.FeatureRequest("projected")

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: what the transformer reads of an image."""
        del is_training
        patches = features.tokens[:, int(self.has_class_token) :]
        tokens = jnp.concatenate([features.pooled[:, None], patches], axis=1)
        tokens = self.image_map(tokens) + self.image_positions[None]
        return ImageFeatures(features.pooled, tokens)

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`tokens`: what the transformer reads of a text, where `mask` is True."""
        del is_training
        tokens = jnp.concatenate([features.pooled[:, None], features.tokens], axis=1)
        tokens = self.text_map(tokens) + self.text_positions[None, : tokens.shape[1]]
        mask = jnp.pad(features.mask, [(0, 0), (1, 0)], constant_values=True)
        return TextFeatures(features.pooled, tokens, mask)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Scores of every image with every text."""
        texts = text.tokens, _ends(text)
        if self.is_initializing():  # lax.map cannot create parameters
            return self.transformer(image.tokens, *(x[None] for x in texts))

        variables = self.transformer.variables
        return heads.map_pairs(self._score, image.tokens, texts, variables, self.chunk)

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Scores of image i with its own k texts."""
        texts, variables = (text.tokens, _ends(text)), self.transformer.variables
        return heads.map_options(self._score, image.tokens, texts, variables, self.chunk)

    def _score(self, images: Array, texts: tuple[Array, Array], variables: dict) -> Array:
        return self.transformer.clone(parent=None).apply(variables, images, *texts)


def _ends(text: TextFeatures) -> Int[Array, " texts"]:
    """The last token of each text."""
    return text.mask.shape[1] - 1 - jnp.argmax(text.mask[:, ::-1], axis=1)
