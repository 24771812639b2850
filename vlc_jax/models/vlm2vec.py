"""VLM2Vec: a language model over image tokens as an embedder (Jiang et al. 2024, arXiv:2410.05160).

An image is embedded with a question, which the decoder reads after the image tokens v; a text is
embedded alone:

    q = h(v, question),  t = h(text),  score = cos(q, t)

where h is the hidden state at the last token, after the last norm. The embedding of an image thus
depends on the question. The published code appends no end token and uses no chat template;
"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025)
trains such an embedder from LLaVA-1.5, with "Represent the given image with the following
question:" before the question. Its loss is the cross-entropy of each image over the texts of the
batch: infonce with direction=image_to_text.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax import errors, types
from vlc_jax.models import captioner, continuation, layers, lm
from vlc_jax.types import ImageFeatures, TextFeatures


class VLM2Vec(captioner.DecoderHead):
    """A head with a decoder (the fields of DecoderHead) that embeds texts, and images with their
    questions (`ImageFeatures.question`; without a question, at the last image token). A text query
    is a question without an image (`ImageFeatures.has_image`).

    The output matrix of the decoder (its logits) is a parameter without gradient. Raises UsageError
    for a decoder with bidirectional attention.
    """

    def setup(self) -> None:
        if self.projection == "resampler":
            raise errors.UsageError(
                "vlm2vec reads the tokens of an image, and Flamingo (projection='resampler') has "
                "none: use LLaVA, or the model captioner"
            )
        if self.bidirectional != "none":
            raise errors.UsageError(
                f"vlm2vec needs a causal decoder; got bidirectional={self.bidirectional!r} "
                "(PaliGemma, Gemma 3): use LLaVA, or the model captioner"
            )
        super().setup()

    @property
    def embed(self) -> int:
        """Width of the embeddings, the width of the decoder."""
        return self.language_model.width

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """True for both: scores are cosines of the pooled features."""
        return True, True

    @property
    def is_row_wise(self) -> bool:
        """True: each row is embedded independently."""
        return True

    @property
    def start_of_text_only(self) -> int:
        """The whole prefix (the start token): a question has no start token of its own."""
        return len(self.prefix)

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`pooled`: the embedding of each image with its question, float32, of unit length."""
        image = super().image(features, is_training=is_training)
        return ImageFeatures(self._embedding(image.tokens, self.read(image)))

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled`: the embedding of each text, float32, of unit length."""
        del is_training
        length = features.ids.shape[1]
        # without the end token, except for an empty text (a missing negative), which is only that
        is_text = jnp.pad(features.mask[:, 1:], ((0, 0), (0, 1))) | (jnp.arange(length) == 0)[None]
        # from the ids: on a mesh of explicit axes all parts of a concatenation are sharded alike
        prefix = jnp.asarray(self.prefix, features.ids.dtype)
        before = jnp.zeros_like(features.ids[:, :1]) + prefix[None]
        ids = jnp.concatenate([before, features.ids], axis=1)
        valid = jnp.concatenate([jnp.ones_like(before, bool), is_text], axis=1)
        return TextFeatures(self._embedding(self.lm.embed(ids), valid))

    def _embedding(
        self,
        embeds: Float[Array, "batch length width"],
        valid: Bool[Array, "batch length"],
        picture: lm.Picture | None = None,
    ) -> Float[Array, "batch width"]:
        """The hidden state at the last token."""
        decoder = self.language_model

        def last(embeds: Array, valid: Array, params: Any, picture: lm.Picture | None) -> Array:
            hidden, _ = continuation.apply(decoder, params, embeds, valid, picture=picture)
            at = continuation.Prompt(embeds, valid).last
            # the last real token, not the last slot: questions and texts are padded
            return layers.l2_normalize(layers.at(hidden, at)[:, 0])

        return types.auto_sharded(last, splits_rows=True)(embeds, valid, self._params(), picture)
