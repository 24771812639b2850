"""A captioner: a decoder over image tokens, whose score of an image and a text is the mean log
probability of the text's tokens given the image.

"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025)
compares such a model with the cosine of the same frozen tower. As in LLaVA-1.5 (Liu et al. 2023,
arXiv:2310.03744), a two-layer projector maps image tokens v to the width of the decoder, which
reads them as a prefix of the text y_1 .. y_n, its end token included:

    score = 1/n sum_t log p(y_t | v, y_<t)

exp(-score) is the perplexity of the text. Contrastive losses and evaluators take this score as any
other; losses/caption.py is the usual training loss.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import continuation, flamingo, heads, llava, lm
from vlc_jax.types import ImageFeatures, TextFeatures


class _LanguageHead(heads.Head, kw_only=True):
    """Base of heads with a decoder: its fields and parameters.

    vocab_size, dtype, remat: copied from the towers.
    decoder: a name of lm_variants.VARIANTS (with the vocabulary of the texts), or all fields of a
      decoder (lm.from_sizes); "": a decoder of `width`, `depth`, `attention_heads` and `mlp_width`
      (None is 4 x width).
    param_dtype: dtype of the decoder's parameters: float32 | compute (the dtype of its matrix
      products). A frozen decoder in bfloat16 takes half the memory, with the same results.
    """

    vocab_size: int
    decoder: str | Mapping[str, Any] = ""
    width: int = 128
    depth: int = 3
    attention_heads: int = 4
    mlp_width: int | None = None
    param_dtype: Literal["float32", "compute"] = "float32"
    dtype: Any = jnp.float32
    remat: str = "none"

    @property
    def language_model(self) -> lm.Decoder:
        """The decoder, not bound to parameters. Raises UsageError for an unknown name."""
        # parent=None: methods call this, too, where Flax allows no new submodule
        options = {"vocab": self.vocab_size, "dtype": self.dtype, "remat": self.remat}
        options |= {"parent": None}
        if self.param_dtype == "compute":
            options["param_dtype"] = self.dtype
        if isinstance(self.decoder, Mapping):
            return lm.from_sizes(self.decoder, **options)
        if self.decoder:
            return lm.build(self.decoder, **options)
        return lm.Decoder(
            width=self.width,
            depth=self.depth,
            heads=self.attention_heads,
            mlp_width=self.mlp_width or 4 * self.width,
            **options,
        )

    def _params(self) -> Any:
        """Parameters of the decoder, which is then called as a pure function: lax.map cannot call
        a bound module."""
        # only a call of the bound module creates them
        if self.is_initializing():
            self.lm.text_logits(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))
        return self.lm.variables["params"]


class DecoderHead(_LanguageHead, kw_only=True):
    """Base of heads with a projector and a decoder over image tokens and token ids of texts (there
    is no text tower). All such heads have the same parameters.

    The fields of _LanguageHead, and further ones.
    patches, has_class_token: copied from the image tower; patches includes the class token.
    select: image tokens of the tower, patch | cls | cls_patch as in LLaVA, or pooled (the image
      embedding as a single token, the input of the cosine).
    stage: raw | normed, tokens before or after the tower's last norm.
    positions: adds a trained vector to each image token (ours, not LLaVA's), since tokens of a
      frozen tower may carry little information about their position.
    prefix: token ids that the decoder reads before the image; in a config also a text, to which the
      tokenizer `conversation` adds the start token.
    projection, side: see llava.Projector. With "resampler" the decoder reads no image tokens: it
      looks at the latents of the image from the last token of `prefix`, <image>, on.
    bidirectional: none | image | prompt, tokens with bidirectional attention. The prompt is
      the image and the tokens of a text before its first mark, so that texts cannot share the
      cache of an image.
    """

    patches: int
    has_class_token: bool
    select: Literal["patch", "cls", "cls_patch", "pooled"] = "patch"
    stage: Literal["raw", "normed"] = "normed"
    positions: bool = False
    prefix: tuple[int, ...] = ()
    projection: Literal["mlp", "linear", "pooled", "resampler"] = "mlp"
    side: int | None = None
    bidirectional: Literal["none", "image", "prompt"] = "none"

    @property
    def reads_shared(self) -> bool:
        """False: each text is encoded with its image."""
        return False

    @property
    def start_of_text_only(self) -> int:
        """Number of prefix tokens that the decoder reads in rows without an image, before the
        question and the text."""
        return 0

    def setup(self) -> None:
        is_flamingo = self.projection == "resampler"
        if is_flamingo and (self.positions or not self.prefix):
            raise errors.UsageError(
                "with projection='resampler' the prefix ends with the token <image> and images have"
                f" no positions; got prefix={self.prefix} and positions={self.positions}"
            )
        self.lm = self.language_model.clone(parent=self)
        if is_flamingo != (self.lm.cross_every is not None):
            raise errors.UsageError(
                "a decoder with cross attention and projection='resampler' go together; got "
                f"cross_every={self.lm.cross_every} and projection={self.projection!r}"
            )
        self.projector = llava.Projector(
            self.lm.width, self.dtype, kind=self.projection, side=self.side
        )
        if self.positions:
            shape = (self._num_image_tokens, self.lm.width)
            self.position = self.param("position", nn.initializers.normal(0.02), shape)

    @property
    def _num_image_tokens(self) -> int:
        if self.select == "pooled":
            return 1
        patches = self.patches - self.has_class_token
        return llava.number_selected(patches, self.select, self.side)

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Tokens of the image tower, or its pooled features with select=pooled; ids of texts."""
        is_pooled = self.select == "pooled"
        image = types.POOLED_ONLY if is_pooled else types.FeatureRequest(self.stage)
        return image, types.FeatureRequest("ids")

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: decoder inputs before a text, (images, prefix + patches + question, width);
        `read` is their mask. `media`: latents of a resampler, instead of patches.

        Raises UsageError if a class token is selected and the tower has none, and for a question
        with a decoder that is not causal.
        """
        del is_training
        if features.question is not None and self.bidirectional != "none":
            raise errors.UsageError(
                f"only causal decoders read a question after the image; got bidirectional="
                f"{self.bidirectional!r}: set config.input.question=''"
            )
        if self.select == "pooled":
            tokens = features.pooled[:, None]
        else:
            tokens = llava.selected(features.tokens, self.select, self.has_class_token)
        tokens, media = self.projector(tokens), None
        if self.projection == "resampler":
            media, shape = tokens, (len(tokens), 0, self.lm.width)
            tokens = types.shard_batch(jnp.zeros(shape, tokens.dtype))
        if self.positions:
            tokens = tokens + self.position[None].astype(tokens.dtype)
        if self.prefix:
            # of the tokens' dtype: concatenate would promote bfloat16 to float32
            before = self.lm.embed(jnp.asarray(self.prefix, jnp.int32)).astype(tokens.dtype)
            before = jnp.broadcast_to(before, (len(tokens), *before.shape))
            tokens = jnp.concatenate([types.shard_batch(before), tokens], axis=1)
        if features.question is not None:
            # padding is id 0, as NOT_ASKED is no index of an embedding; `read` leaves it out
            ids = jnp.where(features.question != types.NOT_ASKED, features.question, 0)
            tokens = jnp.concatenate([tokens, self.lm.embed(ids).astype(tokens.dtype)], axis=1)
        return features._replace(tokens=tokens, media=media)

    def read(self, image: ImageFeatures) -> Bool[Array, "images patches"]:
        """Mask of the tokens before a text (`image`): False on padding of questions; in rows
        without an image, True on `start_of_text_only` tokens and the question only."""
        valid = jnp.ones(image.tokens.shape[:2], bool)
        if image.has_image is not None:
            is_first = jnp.arange(valid.shape[1]) < self.start_of_text_only
            valid = image.has_image[:, None] | is_first[None]
        if image.question is None:
            return valid
        is_asked = image.question != types.NOT_ASKED
        return valid.at[:, -is_asked.shape[1] :].set(is_asked)

    def _media(
        self, image: ImageFeatures, length: int, has_image: bool = True
    ) -> flamingo.Media | None:
        """The image of each row, seen by `length` slots from the token <image> on, or by none."""
        if image.media is None:
            return None
        is_seen = has_image & (jnp.arange(length) >= len(self.prefix) - 1)
        is_seen = jnp.broadcast_to(is_seen[None], (len(image.media), length))
        if image.has_image is not None:
            is_seen = is_seen & image.has_image[:, None]
        return flamingo.Media(image.media[:, None], is_seen.astype(jnp.int32))


class Captioner(DecoderHead):
    """A head with a decoder (the fields of DecoderHead) that scores texts by their probability.

    A question about the image (config.input.question, `ImageFeatures.question`) follows the image
    and is neither scored nor trained on: the score is of a text given image and question. A text
    without an image (`ImageFeatures.has_image` is False) contains its own start token: no prefix
    precedes it.

    scores: scored tokens of a text: all | answer (tokens with a mark, TextFeatures.marks). Other
      tokens, such as a question, are context only, in training too. A text without any mark
      scores 0.
    chunk: images scored at a time, each with a cache of its own, for memory.
    """

    scores: Literal["all", "answer"] = "all"
    chunk: int = 64

    @property
    def reads_shared(self) -> bool:
        """True unless image tokens attend to the first tokens of a text."""
        return self.bidirectional != "prompt"

    @property
    def reads_marks(self) -> bool:
        """True if only answers are scored, whose tokens the marks tell."""
        return self.scores == "answer"

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """False for both: the decoder reads image tokens (at least one) and token ids of a text."""
        return False, False

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`mask`: the scored tokens. Raises UsageError if scores=answer and texts have no marks."""
        del is_training
        if self.scores == "all":
            return features
        if features.marks is None:
            raise errors.UsageError(
                "scores=answer scores the tokens with marks, and the texts have no marks: use a "
                "tokenizer that marks answers, or set config.model.head.scores='all'"
            )
        return features._replace(mask=features.marks > 0)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Mean log probability of every text given every image."""

        def scores(prompt: continuation.Prompt, params: Any, *texts: Array) -> Array:
            def part(prompt: continuation.Prompt) -> Array:
                options = (jnp.broadcast_to(x[None], (len(prompt.valid), *x.shape)) for x in texts)
                return self._scores(params, prompt, *options)

            return heads.map_chunks(part, prompt, self.chunk)

        # not types.map_sharded, which would gather a decoder that is split over devices
        scores = types.auto_sharded(scores, splits_rows=True)
        prompt = self._prompt(image, image.tokens, self.read(image))
        return scores(prompt, self.parameters_for(image.tokens), text.ids, text.mask)

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Mean log probability of the k texts of image i, given image i and `text.shared`."""
        tokens, valid = image.tokens, self.read(image)
        ids, mask = (x.reshape(len(tokens), -1, x.shape[-1]) for x in (text.ids, text.mask))
        if text.shared is not None:
            is_token = text.shared != types.NOT_ASKED
            shared = self.lm.embed(jnp.where(is_token, text.shared, 0)).astype(tokens.dtype)
            tokens = jnp.concatenate([tokens, shared], axis=1)
            valid = jnp.concatenate([valid, is_token], axis=1)
        prompt = self._prompt(image, tokens, valid)
        return self._scores(self.parameters_for(image.tokens), prompt, ids, mask)

    def prompt(
        self,
        image: ImageFeatures,
        ids: Int[Array, "images length"],
        valid: Bool[Array, "images length"],
        *,
        has_image: bool = True,
    ) -> continuation.Prompt:
        """Embeddings of the prompt of an answer: each image, and the question `ids` after it.

        valid: True on tokens of `ids`, False on padding.   has_image: False masks the image tokens
        only, or the token <image> (M3ID); tokens before and after them stay.
        """
        tokens, before = image.tokens, len(self.prefix) - (image.media is not None)
        embeds = jnp.concatenate([tokens, self.lm.embed(ids).astype(tokens.dtype)], axis=1)
        slot, behind = jnp.arange(tokens.shape[1]), tokens.shape[1]
        if image.question is not None:
            behind -= image.question.shape[1]
        read = has_image | (slot < before) | (slot >= behind)
        read = read[None] & self.read(image)
        return self._prompt(image, embeds, jnp.concatenate([read, valid], axis=1), has_image)

    def decoder_and_params(self) -> tuple[lm.Decoder, Any]:
        """The decoder and its parameters, for pure functions (`continuation`)."""
        return self.language_model, self._params()

    def parameters_for(self, tokens: Float[Array, "images _ width"]) -> Any:
        """Parameters of the pure function `_scores`; tokens: of any image."""
        del tokens
        return self._params()

    def _scores(
        self,
        params: Any,
        prompt: continuation.Prompt,
        ids: Int[Array, "images options length"],
        mask: Bool[Array, "images options length"],
    ) -> Float[Array, "images options"]:
        """Mean log probability of the texts of each prompt."""
        sees_questions = self.bidirectional == "prompt"
        decoder = self.language_model
        return mean_log_probability(decoder, params, prompt, ids, mask, sees_questions)

    def _prompt(
        self,
        image: ImageFeatures,
        embeds: Float[Array, "images _ width"],
        valid: Bool[Array, "images length"],
        has_image: bool = True,
    ) -> continuation.Prompt:
        """The prompt with tokens `embeds`: those of the image, then those of a question.

        Slots with bidirectional attention are the image tokens, or all of the prompt.
        """
        images, length = valid.shape
        prefix, slot = None, jnp.arange(length)
        if self.bidirectional != "none":
            is_image = (slot >= len(self.prefix)) & (slot < image.tokens.shape[1])
            prefix = is_image if self.bidirectional == "image" else jnp.ones_like(is_image)
            prefix = jnp.broadcast_to(prefix[None], (images, length))
        return continuation.Prompt(embeds, valid, prefix, self._media(image, length, has_image))


def mean_log_probability(
    decoder: lm.Decoder,
    params: Any,
    prompt: continuation.Prompt,
    ids: Int[Array, "images options length"],
    mask: Bool[Array, "images options length"],
    sees_questions: bool = False,
) -> Float[Array, "images options"]:
    """Mean log probability of the tokens of each text under `mask`; 0 for a text without any. The
    first token of a text without a prompt is not counted.

    sees_questions: whether the tokens of a text before its first mark belong to the prompt's
    prefix with bidirectional attention.
    """
    # the first token of a text is predicted from the prompt; without one nothing predicts it
    has_prompt = prompt.valid.any(axis=1)[:, None, None]
    mask = mask & (has_prompt | (jnp.arange(ids.shape[-1]) > 0)[None, None])
    questions = jnp.cumsum(mask, axis=-1) == 0 if sees_questions else None
    log_probabilities = continuation.log_probabilities(
        decoder, params, prompt, ids, questions=questions
    )
    total = jnp.where(mask, log_probabilities, 0.0).sum(axis=-1)
    return total / jnp.maximum(mask.sum(axis=-1), 1)
