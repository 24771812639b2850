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
from vlc_jax.models import continuation, heads, llava, lm


class DecoderHead(heads.Head):
    """Projector and decoder over the tokens of the image tower, and over token ids of texts, which
    no text tower reads. All such heads have the same parameters.

    vocab_size, patches, has_class_token, dtype, remat: of the text and of the image tower; patches
      with the class token.
    decoder: a name of lm_variants.VARIANTS, with the text's vocabulary, or all fields of one
      (lm.from_sizes); "": one of `width`, `depth`, `attention_heads` and `mlp_width` (None is 4 x
      width).
    select: patch | cls | cls_patch, of the tower's tokens as in LLaVA, or pooled (the image's
      embedding alone, as one token: what the cosine sees).
    stage: raw | normed, before or behind the tower's last norm.
    positions: adds a trained vector to each image token, as not in LLaVA: what the tokens of a
      frozen tower have kept of where they are may be little.
    prefix: token ids that the decoder reads before the image; in a config their text may stand for
      them, to which the tokenizer `conversation` adds the start token.
    projection, side: see llava.Projector.
    bidirectional: none | image | prompt: of the decoder, what sees itself in both directions, see
      llava.LLaVA. A prompt is the image and a text's tokens before its first mark, so that no two
      texts share the cache of an image.
    param_dtype: of the decoder's parameters: float32 | compute, the type of its matrix products.
      A frozen decoder takes half the memory in bfloat16, with the same results.
    """

    vocab_size: int
    patches: int
    has_class_token: bool
    decoder: str | Mapping[str, Any] = ""
    width: int = 128
    depth: int = 3
    attention_heads: int = 4
    mlp_width: int | None = None
    select: Literal["patch", "cls", "cls_patch", "pooled"] = "patch"
    stage: Literal["raw", "normed"] = "normed"
    positions: bool = False
    prefix: tuple[int, ...] = ()
    projection: Literal["mlp", "linear", "pooled"] = "mlp"
    side: int | None = None
    bidirectional: Literal["none", "image", "prompt"] = "none"
    param_dtype: Literal["float32", "compute"] = "float32"
    dtype: Any = jnp.float32
    remat: str = "none"

    @property
    def language_model(self) -> lm.Decoder:
        """The decoder, not bound to parameters. Raises UsageError for an unknown name."""
        sizes = {
            "width": self.width,
            "depth": self.depth,
            "heads": self.attention_heads,
            "mlp_width": self.mlp_width or 4 * self.width,
        }
        more = {"vocab": self.vocab_size, "dtype": self.dtype, "remat": self.remat}
        if self.param_dtype == "compute":
            more["param_dtype"] = self.dtype
        if isinstance(self.decoder, Mapping):
            # parent=None: methods ask for it, too, where Flax allows no new submodule
            return lm.from_sizes(self.decoder, **more, parent=None)
        if self.decoder:
            return lm.build(self.decoder, **more, parent=None)
        return lm.Decoder(**{**sizes, **more}, parent=None)

    @property
    def reads_question(self) -> bool:
        """True: a question is read behind the image."""
        return True

    @property
    def reads_text_only(self) -> bool:
        """True: without an image `start_of_text_only` and the question are read before a text."""
        return True

    @property
    def start_of_text_only(self) -> int:
        """Number of tokens of the prefix that are read where there is no image."""
        return 0

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values, by which an axis "tensor" of a mesh splits the decoder."""
        return self.language_model.groups

    def setup(self) -> None:
        self.lm = self.language_model.clone(parent=self)
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
        """Tokens of the image tower unless the pooled features are selected; ids of texts."""
        is_pooled = self.select == "pooled"
        image = types.POOLED_ONLY if is_pooled else types.FeatureRequest(self.stage)
        return image, types.FeatureRequest("ids")

    def image(
        self, features: types.ImageFeatures, *, is_training: bool = False
    ) -> types.ImageFeatures:
        """`tokens`: what the decoder reads before a text, the question included, (images, prefix +
        patches + question, width); `read` says which of them it reads.

        Raises UsageError for a class token of a tower without one, and for a question that no
        causal decoder reads.
        """
        del is_training
        if features.question is not None and self.bidirectional != "none":
            raise errors.UsageError(
                f"a question behind the image is read by causal decoders; got bidirectional="
                f"{self.bidirectional!r}: set config.input.question=''"
            )
        if self.select == "pooled":
            tokens = features.pooled[:, None]
        else:
            tokens = llava.selected(features.tokens, self.select, self.has_class_token)
        tokens = self.projector(tokens)
        if self.positions:
            tokens = tokens + self.position[None].astype(tokens.dtype)
        if self.prefix:
            before = self.lm.embed(jnp.asarray(self.prefix, jnp.int32)).astype(tokens.dtype)
            before = jnp.broadcast_to(before, (len(tokens), *before.shape))
            tokens = jnp.concatenate([before, tokens], axis=1)
        if features.question is not None:
            # padding is id 0, as NOT_ASKED is no index of an embedding; `read` leaves it out
            ids = jnp.where(features.question != types.NOT_ASKED, features.question, 0)
            tokens = jnp.concatenate([tokens, self.lm.embed(ids).astype(tokens.dtype)], axis=1)
        return features._replace(tokens=tokens)

    def read(self, image: types.ImageFeatures) -> Bool[Array, "images patches"]:
        """Mask of the tokens before a text that are read: not the padding of questions, and of a
        text alone `start_of_text_only` and the question."""
        valid = jnp.ones(image.tokens.shape[:2], bool)
        if image.has_image is not None:
            is_first = jnp.arange(valid.shape[1]) < self.start_of_text_only
            valid = image.has_image[:, None] | is_first[None]
        if image.question is None:
            return valid
        is_asked = image.question != types.NOT_ASKED
        return valid.at[:, -is_asked.shape[1] :].set(is_asked)

    def _params(self) -> Any:
        """Parameters of the decoder, which is called as a function of them: lax.map cannot call a
        module that is bound to its parameters."""
        if self.is_initializing():  # only a call of the bound module makes parameters
            self.lm.text_logits(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))
        return self.lm.variables["params"]

    def _forward_flops(self, sizes: heads.FlopInputs, reads: int, attends: int) -> int:
        """FLOPs of the projector and of a decoder that reads so many tokens, each of which attends
        to others, `attends` pairs in all; without the logits."""
        c, patches = self.language_model, self._num_image_tokens
        projector = patches * c.width * (sizes.image + c.width * (self.projection == "mlp"))
        block = 2 * c.width * c.head * (c.heads + c.groups) + 3 * c.width * c.mlp_width
        return 2 * (projector + c.depth * (reads * block + 2 * attends * c.heads * c.head))


class Captioner(DecoderHead):
    """A head with a decoder (the fields of DecoderHead) that scores texts by their probability.

    What is asked of an image (config.input.question, `ImageFeatures.question`) is read behind it,
    and neither scored nor trained on: the score is of a text given image and question. A text alone
    (`ImageFeatures.has_image` is False) is read by itself and brings its own beginning: no prefix
    is before it.

    scores: all | answer: of a text, all tokens, or those with a mark (TextFeatures.marks); the
      others, such as a question, are read and neither scored nor trained on. A text without any
      mark scores 0.
    chunk: images whose scores with all texts are computed at a time, for memory: a cache each.
    """

    scores: Literal["all", "answer"] = "all"
    chunk: int = 64

    @property
    def reads_shared(self) -> bool:
        """True unless a text's first tokens change what the image's see."""
        return self.bidirectional != "prompt"

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """False for both: a decoder reads tokens of an image, if only one, and ids of a text."""
        return False, False

    def text(
        self, features: types.TextFeatures, *, is_training: bool = False
    ) -> types.TextFeatures:
        """`mask`: the tokens that count. Raises UsageError if they are those with marks, and the
        texts have none."""
        del is_training
        if self.scores == "all":
            return features
        if features.marks is None:
            raise errors.UsageError(
                "scores=answer counts the tokens with marks, and the texts have none: take a "
                "tokenizer that marks answers, or set config.model.head.scores='all'"
            )
        return features._replace(mask=features.marks > 0)

    def score(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images texts"]:
        """Mean log probability of every text given every image."""
        del is_training
        decoder = self.language_model

        def scores(tokens: Array, valid: Array, params: Any, *texts: Array) -> Array:
            def part(rows: tuple[Array, Array]) -> Array:
                tokens, valid = rows
                options = (jnp.broadcast_to(x[None], (len(tokens), *x.shape)) for x in texts)
                given = (tokens, valid, *options)
                return mean_log_probability(decoder, params, *given, **self._seen(tokens))

            return heads.map_chunks(part, (tokens, valid), self.chunk)

        # no types.map_sharded, which would gather a decoder that is split over devices
        scores = types.auto_sharded(scores, splits_rows=True)
        return scores(image.tokens, self.read(image), self._params(), text.ids, text.mask)

    def score_options(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images options"]:
        """Mean log probability of its own k texts given image i and `text.shared`."""
        del is_training
        tokens, valid = image.tokens, self.read(image)
        ids, mask = (x.reshape(len(tokens), -1, x.shape[-1]) for x in (text.ids, text.mask))
        seen = self._seen(tokens)
        if text.shared is not None:
            is_asked = text.shared != types.NOT_ASKED
            asked = self.lm.embed(jnp.where(is_asked, text.shared, 0)).astype(tokens.dtype)
            seen["prefix"] = self._prefix(*tokens.shape[:2], asked.shape[1])
            tokens = jnp.concatenate([tokens, asked], axis=1)
            valid = jnp.concatenate([valid, is_asked], axis=1)
        given = (self.language_model, self._params(), tokens, valid, ids, mask)
        return mean_log_probability(*given, **seen)

    def prompt(
        self,
        image: types.ImageFeatures,
        ids: Int[Array, "images length"],
        valid: Bool[Array, "images length"],
        *,
        has_image: bool = True,
    ) -> continuation.Prompt:
        """Embeddings before an answer: of each image, and of a question behind it.

        valid: which ids are tokens.   has_image: without it, the image tokens alone are left out
        (M3ID), and what stands before and behind them is read.
        """
        tokens = image.tokens
        embeds = jnp.concatenate([tokens, self.lm.embed(ids).astype(tokens.dtype)], axis=1)
        slot, behind = jnp.arange(tokens.shape[1]), tokens.shape[1]
        if image.question is not None:
            behind -= image.question.shape[1]
        read = has_image | (slot < len(self.prefix)) | (slot >= behind)
        read = read[None] & self.read(image)
        prefix = self._prefix(*tokens.shape[:2], ids.shape[1])
        return continuation.Prompt(embeds, jnp.concatenate([read, valid], axis=1), prefix)

    def decoder_and_params(self) -> tuple[lm.Decoder, Any]:
        """The decoder and its parameters, for functions that are no methods (`continuation`)."""
        return self.language_model, self._params()

    def _seen(self, tokens: Float[Array, "images patches width"]) -> dict[str, Any]:
        """Further arguments of `mean_log_probability`."""
        prefix = self._prefix(*tokens.shape[:2])
        return {"prefix": prefix, "sees_questions": self.bidirectional == "prompt"}

    def _prefix(
        self, images: int, before: int, behind: int = 0
    ) -> Bool[Array, "images slots"] | None:
        """Slots that see each other in both directions, of tokens up to the image's last and of
        those of a question behind it."""
        slot = jnp.arange(before + behind)
        if self.bidirectional == "none":
            return None
        is_image = (slot >= len(self.prefix)) & (slot < before)
        seen = is_image if self.bidirectional == "image" else jnp.ones_like(is_image)
        return jnp.broadcast_to(seen[None], (images, len(slot)))

    def flops(self, sizes: heads.FlopInputs) -> int:
        """FLOPs of the projector and of the decoder over the image's own texts; those of a loss
        that contrasts all pairs are not counted, nor gradients of matrices that are not trained."""
        c, before = self.language_model, self._num_image_tokens + len(self.prefix) + sizes.question
        # how often the image is read
        prompts = sizes.texts if self.bidirectional == "prompt" else 1
        reads = prompts * before + sizes.texts * sizes.length
        attends = prompts * before**2 + sizes.texts * sizes.length * (before + sizes.length)
        logits = 2 * sizes.texts * sizes.length * c.width * self.vocab_size
        forward = self._forward_flops(sizes, reads, attends) + logits
        return round((2 + sizes.trained) * forward)


def mean_log_probability(
    decoder: lm.Decoder,
    params: Any,
    tokens: Float[Array, "images patches width"],
    valid: Bool[Array, "images patches"],
    ids: Int[Array, "images options length"],
    mask: Bool[Array, "images options length"],
    prefix: Bool[Array, "images patches"] | None = None,
    sees_questions: bool = False,
) -> Float[Array, "images options"]:
    """The mean over the tokens of each text that `mask` marks; 0 for a text without any. The first
    token of a text before which nothing is read does not count.

    prefix, sees_questions: tokens of the image that see each other in both directions, and whether
    those of a text before its first mark are among them.
    """
    # the first token of a text is predicted by what is before it; of a text alone nothing is
    has_prompt = valid.any(axis=1)[:, None, None]
    mask = mask & (has_prompt | (jnp.arange(ids.shape[-1]) > 0)[None, None])
    prompt = continuation.Prompt(tokens, valid, prefix)
    questions = jnp.cumsum(mask, axis=-1) == 0 if sees_questions else None
    found = continuation.log_probabilities(decoder, params, prompt, ids, questions=questions)
    total = jnp.where(mask, found, 0.0).sum(axis=-1)
    return total / jnp.maximum(mask.sum(axis=-1), 1)
