"""InstructBLIP (Dai et al. 2023, arXiv:2305.06500): a captioner whose image tokens depend on the
question.

    image tokens, question -> Q-Former (models/qformer.py) -> 32 tokens -> a matrix -> the decoder

The Q-Former reads the question in the vocabulary of BERT, the decoder in its own, so that a text
has both: the first half of a row of ids is the question for the Q-Former, the second half the text
for the decoder (input_pipeline/tokenizers/instruction.py). The image tower runs once per image,
Q-Former and decoder for every pair of an image and a text.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax.core import FrozenDict
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import captioner, continuation, llava
from vlc_jax.models.qformer import QFormer
from vlc_jax.types import ImageFeatures

# A token i of the Q-Former is FIRST - i in a row of ids: below 0, so that no id of the decoder is
# taken for it, and below types.NOT_ASKED, which is its padding.
FIRST = types.NOT_ASKED - 1


class InstructBLIP(captioner.Captioner):
    """A Captioner with a Q-Former between image tower and projector.

    qformer: fields of qformer.QFormer.
    length: columns of a row of ids, copied from the text tower; even.
    """

    qformer: Mapping[str, Any] = FrozenDict()
    length: int = 0

    @property
    def reads_shared(self) -> bool:
        """False: image tokens depend on the text."""
        return False

    def setup(self) -> None:
        super().setup()
        self.reader = self._qformer.clone(parent=self)

    @property
    def _qformer(self) -> QFormer:
        # parent=None: methods call this, too, where Flax allows no new submodule
        return QFormer(**self.qformer, dtype=self.dtype, remat=self.remat, parent=None)

    @property
    def _num_image_tokens(self) -> int:
        return self._qformer.queries

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: the selected tokens of the image tower, which the Q-Former attends to.

        Raises UsageError for a question attached to the image: the Q-Former reads that of a text.
        """
        del is_training
        if features.question is not None:
            raise errors.UsageError(
                "InstructBLIP reads the question of a text, and none is attached to the image: set "
                "config.input.question=''"
            )
        tokens = llava.selected(features.tokens, self.select, self.has_class_token)
        return features._replace(tokens=tokens)

    def read(self, image: ImageFeatures) -> Bool[Array, "images queries"]:
        """Mask of the image tokens of the decoder: False in rows without an image."""
        valid = jnp.ones((len(image.tokens), self._num_image_tokens), bool)
        return valid if image.has_image is None else valid & image.has_image[:, None]

    def image_tokens(
        self, tokens: Float[Array, "images patches width"], ids: Int[Array, "images length"]
    ) -> Float[Array, "images queries embed"]:
        """Image tokens in the width of the decoder, for image i and the question in row i of `ids`
        (rows of the tokenizer, or their first half)."""
        ids = ids[:, : self.length // 2]
        is_token = ids <= FIRST
        asked = jnp.where(is_token, FIRST - ids, 0)
        return self.projector(self.reader(tokens, asked, is_token.sum(axis=1)))

    def prompt(
        self,
        image: ImageFeatures,
        ids: Int[Array, "images length"],
        valid: Bool[Array, "images length"],
        *,
        has_image: bool = True,
    ) -> continuation.Prompt:
        """Embeddings of the prompt of an answer: the image tokens for the question in `ids`, and
        its second half. Arguments as in `Captioner.prompt`."""
        half = self.length // 2
        tokens = self.image_tokens(image.tokens, ids)
        embeds = self.lm.embed(ids[:, half:]).astype(tokens.dtype)
        read = self.read(image) & has_image
        return continuation.Prompt(
            jnp.concatenate([tokens, embeds], axis=1),
            jnp.concatenate([read, valid[:, half:]], axis=1),
        )

    def parameters_for(self, tokens: Float[Array, "images patches width"]) -> Any:
        """All parameters of the head; tokens: of any image."""
        self._params()
        if self.is_initializing():
            self.image_tokens(tokens[:1], jnp.zeros((1, self.length), jnp.int32))
        return self.variables["params"]

    def _scores(
        self,
        params: Any,
        prompt: continuation.Prompt,
        ids: Int[Array, "images options length"],
        mask: Bool[Array, "images options length"],
    ) -> Float[Array, "images options"]:
        """Mean log probability of each text of an image; one text of all images at a time.

        prompt: the tokens that the Q-Former attends to, with the mask of its queries.
        """
        head, decoder, half = self.clone(parent=None), self.language_model, self.length // 2

        def text_scores(text: tuple[Array, Array]) -> Array:
            ids, mask = (x[:, None] for x in text)
            read = head.apply({"params": params}, prompt.embeds, ids[:, 0], method="image_tokens")
            own = continuation.Prompt(read, prompt.valid)
            texts = ids[..., half:], mask[..., half:]
            return captioner.mean_log_probability(decoder, params["lm"], own, *texts)[:, 0]

        by_text = (jnp.swapaxes(x, 0, 1) for x in (ids, mask))
        return jnp.swapaxes(jax.lax.map(text_scores, tuple(by_text)), 0, 1)
