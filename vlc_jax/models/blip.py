"""BLIP (Li et al. 2022, arXiv:2201.12086): image-text contrast (ITC) and image-text matching (ITM).

One BERT encodes texts: alone for ITC, and attending to the tokens of an image for ITM, whose first
token [ENC] tells the pair's two logits, no match and match. The towers are the image tower and
`text_ids.TokenIds`; the encoder lies in the head, since both scores read it.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, UInt32

from vlc_jax import types
from vlc_jax.models import bert, heads, layers
from vlc_jax.types import ImageFeatures, TextFeatures


class _Encoder(NamedTuple):
    """The text encoder and the layer of the two logits as pure functions: lax.map cannot call a
    bound module.

    before: blocks that read a text alone, before its image; 0: all blocks read both, and for ITC
      the text alone.
    """

    bert: bert.Encoder
    match: nn.Module
    params: Mapping[str, Any]
    before: int
    match_id: int | None
    chunk: int

    def alone(
        self, ids: Int[Array, "texts length"], ends: Int[Array, " texts"]
    ) -> Float[Array, "texts length embed"]:
        """Features of texts without images, for ITC."""

        def run(encoder: bert.Encoder, ids: Array, ends: Array) -> Array:
            return encoder.blocks(encoder.embed(ids), ends, stop=self.before or None)

        return self.bert.apply({"params": self.params["bert"]}, ids, ends, method=run)

    def read(self, ids: Int[Array, "texts length"], ends: Int[Array, " texts"]) -> Array:
        """Input of `logits` from texts: all that needs no image, a few texts at a time."""
        ids = ids if self.match_id is None else ids.at[:, 0].set(self.match_id)
        if not self.before:
            return ids
        return heads.map_chunks(lambda part: self.alone(*part), (ids, ends), self.chunk)

    def logits(
        self, read: Array, ends: Int[Array, " texts"], tokens: Float[Array, "images patches width"]
    ) -> Float[Array, "images options 2"]:
        """Logits of no match and of a match of each image with its own texts."""

        def run(encoder: bert.Encoder, x: Array, ends: Array, tokens: Array) -> Array:
            x = x if self.before else encoder.embed(x)
            return encoder.blocks(x, ends, tokens, self.before)

        variables = {"params": self.params["bert"]}
        x = self.bert.apply(variables, read, ends, tokens, method=run)[:, 0]
        logits = self.match.apply({"params": self.params["match"]}, x)
        return logits.reshape(len(tokens), -1, 2)


class BLIP(heads.Head):
    """A head with the text encoder of BLIP.

    width, vocab_size, dtype, remat: copied from the towers; `width` of image tokens.
    scores: itm (logit of a match minus that of no match, the log odds of the probability) | logit
      (of a match alone, X-VLM's authors' score in retrieval) | itc (cosine) | both (logit of a
      match plus cosine, BLIP's authors' score in retrieval, and ARO's of both models).
    encoder: fields of bert.Encoder that differ from BLIP's, BERT-base.
    projection: width of the embeddings of ITC.
    match_id: id that replaces a text's first token in ITM, BLIP's [ENC]; None: the text keeps
      [CLS], as in transformers and in the authors' demo, though not in training and retrieval.
    chunk: pairs of an image and texts that are matched at a time, for memory; changes no result.
    """

    vocab_size: int
    width: int
    scores: Literal["itm", "logit", "itc", "both"] = "itm"
    encoder: Mapping[str, Any] | None = None
    projection: int = 256
    match_id: int | None = 30_523
    chunk: int = 64
    dtype: Any = jnp.float32
    remat: str = "none"

    # no fields: facts of the model
    token_types = 0
    alone = 0.0  # share of the blocks, from the first on, that read a text alone
    floor = 0.0  # added to the shares that negatives are drawn by

    @property
    def text_encoder(self) -> bert.Encoder:
        """The encoder, not bound to parameters."""
        sizes = {"token_types": self.token_types, **(self.encoder or {})}
        depth = sizes.get("depth", bert.Encoder.depth)
        cross = tuple(range(int(self.alone * depth), depth))
        shared = {"vocab_size": self.vocab_size, "dtype": self.dtype, "remat": self.remat}
        # parent=None: methods call this, too, where Flax allows no new submodule
        return bert.Encoder(**{"cross": cross, **sizes, **shared}, parent=None)

    def _matcher(self, **parent: None) -> nn.Module:
        """The layer of the two logits."""
        return layers.Dense(2, **parent)

    def setup(self) -> None:
        self.bert = self.text_encoder.clone(parent=self)
        # float32: a difference of logits in bfloat16 ties
        self.image_projection = layers.Dense(self.projection)
        self.text_projection = layers.Dense(self.projection)
        self.match = self._matcher()

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """All image tokens, for ITC the class token alone; ids of texts. BLIP's and X-VLM's towers
        have no projection: their tokens are normed ones."""
        tokens = "none" if self.scores == "itc" else "projected"
        return types.FeatureRequest(tokens, is_unit=False), types.FeatureRequest("ids")

    @property
    def embed(self) -> int:
        """Width of the embeddings of ITC."""
        return self.projection

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """True for ITC, whose scores are cosines."""
        return (self.scores == "itc",) * 2

    @property
    def reads_shared(self) -> bool:
        """False: each text is encoded with its image."""
        return False

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`pooled`: the embedding of ITC, from the class token."""
        del is_training
        return features._replace(pooled=layers.l2_normalize(self.image_projection(features.pooled)))

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled`: the embedding of ITC, from the first token of the text alone. `tokens`, in
        training: features of the text alone."""
        if self.is_initializing():  # the texts alone create no cross attention
            image = jnp.zeros((1, 1, self.width))
            self.match(self.bert(jnp.zeros((1, 1), jnp.int32), None, image)[:, 0])

        def encode(ids: Array, ends: Array, params: Any) -> Array:
            return self._encoder(params).alone(ids, ends)

        encode = types.auto_sharded(encode, splits_rows=True)
        x = encode(features.ids, _ends(features), self._params())
        pooled = layers.l2_normalize(self.text_projection(x[:, 0]))
        return features._replace(pooled=pooled, tokens=x if is_training else None)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Scores of every image with every text."""
        if self.scores == "itc":
            return heads.dot(image.pooled, text.pooled)
        texts = text.ids, _ends(text), text.pooled

        def share(images: tuple[Array, Array], replicated: tuple) -> Array:
            (ids, ends, pooled), params = replicated
            encoder = self._encoder(params)
            texts = encoder.read(ids, ends), ends, pooled

            def image_scores(image: tuple[Array, Array]) -> Array:
                def chunk_scores(part: tuple[Array, ...]) -> Array:
                    return self._matched(encoder, image, part).T

                return heads.map_chunks(chunk_scores, texts, self.chunk).T

            # one image at a time: its texts share its keys and values in every block. remat in the
            # innermost loop alone, as in heads.map_pairs_in_chunks
            return heads.map_chunks(image_scores, images, 1, remat=len(texts[0]) <= self.chunk)

        images = image.tokens, image.pooled
        return types.map_sharded(share, images, (texts, self._params()))

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Scores of image i with its own k texts."""
        if self.scores == "itc":
            return heads.dot_options(image.pooled, text.pooled)
        count = len(image.tokens)
        options = len(text.ids) // count

        def score(tokens: Array, pooled: Array, params: Any, *texts: Array) -> Array:
            encoder = self._encoder(params)

            def chunk_scores(rows: tuple[Array, ...]) -> Array:
                tokens, pooled, *texts = rows
                ids, ends, text_pooled = (x.reshape(-1, *x.shape[2:]) for x in texts)
                own = encoder.read(ids, ends), ends, text_pooled
                return self._matched(encoder, (tokens, pooled), own)

            rows = tokens, pooled, *(x.reshape(count, options, *x.shape[1:]) for x in texts)
            return heads.map_chunks(chunk_scores, rows, max(1, self.chunk // options))

        texts = text.ids, _ends(text), text.pooled
        score = types.auto_sharded(score, splits_rows=True)
        return score(image.tokens, image.pooled, self._params(), *texts)

    def matching(
        self,
        image: ImageFeatures,
        text: TextFeatures,
        logit_scale: Float[Array, ""],
        ids: UInt32[Array, "images 2"] | None,
        mask: Bool[Array, " images"] | None,
    ) -> types.Matching | None:
        """Pairs for the loss itm, drawn by `negatives`; None without image tokens (scores=itc) and
        without the random stream "dropout". ids: None if all differ. mask: False on padding."""
        if self.scores == "itc" or self.is_initializing() or not self.has_rng("dropout"):
            return None
        images, key = len(image.pooled), self.make_rng("dropout")
        mask = jnp.ones(images, bool) if mask is None else mask

        def draw(key: Array, scores: Array, mask: Array, ids: Array | None) -> tuple[Array, Array]:
            is_other = ~jnp.eye(images, dtype=bool) & mask[:, None] & mask[None]
            if ids is not None:
                is_other &= jnp.any(ids[:, None] != ids[None], axis=-1)
            return negatives(key, scores, is_other, self.floor)

        draw = types.auto_sharded(draw, splits_rows=False)
        drawn = draw(key, logit_scale * heads.dot(image.pooled, text.pooled), mask, ids)
        return types.Matching(self.log_odds(image, text, *drawn), *drawn)

    def log_odds(
        self,
        image: ImageFeatures,
        text: TextFeatures,
        text_index: Int[Array, " images"],
        image_index: Int[Array, " images"],
    ) -> Float[Array, "images 3"]:
        """Log odds of a match of the pairs of `types.Matching`; features as in training."""

        def pair_logits(
            tokens: Array, text: tuple, params: Any, text_index: Array, image_index: Array
        ) -> Array:
            (ids, ends, features), encoder = text, self._encoder(params)
            # with blocks before the image, the features of ITC are theirs
            read = features if encoder.before else encoder.read(ids, ends)
            # own and drawn text of an image side by side, so that they share its keys and values
            both = (jnp.stack([x, x[text_index]], axis=1) for x in (read, ends))
            both = [x.reshape(-1, *x.shape[2:]) for x in both]
            parts = encoder.logits(*both, tokens), encoder.logits(read, ends, tokens[image_index])
            logits = jnp.concatenate(parts, axis=1)
            return logits[..., 1] - logits[..., 0]

        pair_logits = types.auto_sharded(pair_logits, splits_rows=True)
        texts = text.ids, _ends(text), text.tokens
        return pair_logits(image.tokens, texts, self._params(), text_index, image_index)

    def _params(self) -> dict[str, Any]:
        """Parameters of the text encoder and of the logits."""
        return {name: getattr(self, name).variables["params"] for name in ("bert", "match")}

    def _encoder(self, params: Mapping[str, Any]) -> _Encoder:
        encoder, match = self.text_encoder, self._matcher(parent=None)
        before = min(encoder.cross) if self.alone else 0
        return _Encoder(encoder, match, params, before, self.match_id, self.chunk)

    def _matched(
        self,
        encoder: _Encoder,
        image: tuple[Float[Array, "images patches width"], Float[Array, "images embed"]],
        texts: tuple[Array, Int[Array, " texts"], Float[Array, "texts embed"]],
    ) -> Float[Array, "images options"]:
        """The score of each image with its own texts; tokens and embeddings of images, and texts
        of `_Encoder.read`, their ends and embeddings, image by image."""
        (tokens, image_pooled), (read, ends, text_pooled) = image, texts
        logits = encoder.logits(read, ends, tokens)
        if self.scores == "itm":
            return logits[..., 1] - logits[..., 0]
        match = logits[..., 1]
        return (
            match
            if self.scores == "logit"
            else match + heads.dot_options(image_pooled, text_pooled)
        )


def _ends(text: TextFeatures) -> Int[Array, " texts"]:
    """Position of the last token of each text."""
    return text.mask.sum(axis=1) - 1


def negatives(
    key: Array,
    logits: Float[Array, "images texts"],
    is_other: Bool[Array, "images texts"],
    floor: float = 0.0,
) -> tuple[Int[Array, " images"], Int[Array, " texts"]]:
    """Hard negatives of ITM: for each image the index of a text, for each text that of an image.

    They are drawn by the softmax of the logits over the batch, plus `floor`, among the pairs of
    `is_other`: an easy negative of a sure model has a chance, too. An image or text without any
    gets index 0. They depend on key and batch, not on devices.
    """

    def draw(key: Array, logits: Array, is_other: Array) -> Array:
        shares = jnp.logaddexp(jax.nn.log_softmax(logits, axis=1), jnp.log(floor))
        return jax.random.categorical(key, jnp.where(is_other, shares, -jnp.inf), axis=1)

    logits, keys = jax.lax.stop_gradient(logits), jax.random.split(key)
    return draw(keys[0], logits, is_other), draw(keys[1], logits.T, is_other.T)
