"""Scoring heads: a head computes scores from the features of the two towers.

models.HEADS lists them by name. The parameters of a head lie below "head"; its scores are not yet
multiplied by logit_scale, and logit_bias is not yet added.

is_training switches between training and evaluation, such as dropout, whose random numbers (the
stream "dropout") come from the train step. Running statistics of a head are in the mutable
collection "batch_stats", below "head"; `outputs` updates them.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import types
from vlc_jax.models import continuation, lm
from vlc_jax.types import ImageFeatures, TextFeatures

# kind of texts -> scores of all images with all texts, and of each image with its own texts
Scores = dict[str, tuple[Float[Array, "images _"], Float[Array, "images _"]]]


class Head(nn.Module):
    """Base of all heads, and the head of CLIP and SigLIP: cosine similarity, the dot product of
    pooled features of unit length.

    A head scores: `requests`, `image`, `text`, `score` and `score_options`. The other members have
    a default that most heads keep: `reads_pooled` and `embed` describe its features, `patch_maps`
    explains its scores, `outputs`, `is_row_wise` and `reads_marks` are for training. Some heads
    also implement a protocol below: `Local`, `Matching` or `Prototypes` for losses on more than
    scores, `Decoding` with a decoder, `Generating` where it writes text.
    """

    # a field of DCSM: words with a vector of their own
    num_functional_words = 0

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """The requested features of the image tower and of the text tower."""
        return types.POOLED_ONLY, types.POOLED_ONLY

    @property
    def embed(self) -> int | None:
        """Width of the head's pooled features; None for the width of the towers' embeddings."""
        return None

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """True if scores use pooled features only; one value for images and one for texts."""
        return tuple(request.tokens == "none" for request in self.requests)

    @property
    def is_dot(self) -> bool:
        """True if the score is the dot product of the towers' pooled features: the model is
        exported as CLIP. Parameters of such a head are for training alone."""
        return type(self) is Head

    @property
    def reads_marks(self) -> bool:
        """True if the head needs the marks of a text's tokens (`TextFeatures.marks`)."""
        return self.num_functional_words > 0

    @property
    def is_row_wise(self) -> bool:
        """True if `image` and `text` compute the pooled features of each row independently and
        without random numbers; config.microbatch then splits them into micro-batches, too."""
        return False

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """Image features for scoring: all work that needs no text."""
        del is_training
        return features

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """Text features for scoring: all work that needs no image."""
        del is_training
        return features

    def outputs(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures]
    ) -> tuple[Scores, dict[str, Array]]:
        """Scores of each kind of texts in a training batch, and further fields of types.Outputs.

        texts: "text", the captions, one per image, and the kinds of hard texts.
        """
        return {kind: self.training_scores(image, text) for kind, text in texts.items()}, {}

    def training_scores(self, image: ImageFeatures, text: TextFeatures) -> tuple[Array, Array]:
        """`score` and `score_options` in training."""
        return self.score(image, text), self.score_options(image, text)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Scores of every image with every text."""
        return dot(image.pooled, text.pooled)

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Scores of image i with its own k texts, rows `i * k` to `i * k + k - 1` of `text`."""
        return dot_options(image.pooled, text.pooled)

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """Patch-level weights behind the evaluation score of image i with text i, for
        visualisation; {} for scores of pooled features.

        Patches are in raster order, after the class token if there is one. Possible keys:

        weights     (pairs, patches), the weight of each patch for the text
        groups      (pairs, patches, length), the weight of each patch for each token
        similarity  (pairs, patches, length), the input of a network; with it
        columns     (pairs, length), the content of each column: the index of a token of the text,
                    or -k for the vector of the k-th functional word
        """
        del image, text
        return {}


@runtime_checkable
class Local(Protocol):
    """A head with second scores, of the tokens and not of the pooled features."""

    def local(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures], logit_scale: Float[Array, ""]
    ) -> Scores:
        """Second scores of each kind of texts in a training batch (`types.Outputs.local`)."""


@runtime_checkable
class Matching(Protocol):
    """A head that matches images and texts."""

    @property
    def matching(self) -> Callable[..., types.Matching | None]:
        """Pairs of image-text matching in a training batch, as `BLIP.matching` has it."""


@runtime_checkable
class Prototypes(Protocol):
    """A head with prototypes (models.self_distilled)."""

    def view_logits(
        self,
        image: ImageFeatures,
        crops: Float[Array, "images crops embed"] | None = None,
        masked: Float[Array, "images _ width"] | None = None,
        masked_patches: Int[Array, "images masked"] | None = None,
    ) -> types.ViewLogits:
        """Logits of images, and of crops and masked patches of them, over prototypes."""


@runtime_checkable
class Decoding(Protocol):
    """A head with a decoder over image tokens and token ids.

    It reads a question after the image (`ImageFeatures.question`), and rows without an image
    (`ImageFeatures.has_image`).
    """

    @property
    def language_model(self) -> lm.Decoder:
        """The decoder, not bound to parameters."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """Token ids that the decoder reads before the image."""

    @property
    def reads_shared(self) -> bool:
        """True if `score_options` encodes the common prefix of an image's texts only once
        (`TextFeatures.shared`)."""


@runtime_checkable
class Generating(Decoding, Protocol):
    """A head whose decoder writes answers to a prompt (models/decode.py)."""

    @property
    def prompt(self) -> Callable[..., continuation.Prompt]:
        """Embeddings of each image and of a question after it, as `Captioner.prompt` has it."""

    def decoder_and_params(self) -> tuple[lm.Decoder, Any]:
        """The decoder and its parameters, for pure functions (`continuation`)."""


class Tokens(Head):
    """The dot product of pooled features, with all projected tokens beside them: for diagnostics of
    the towers. Scores do not use the tokens."""

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """All tokens in the shared embedding."""
        return types.FeatureRequest("projected"), types.FeatureRequest("projected")


def dot(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images texts"]:
    """Dot product of every image with every text."""
    # highest: accelerators would round float32 operands to bfloat16 or TF32
    product = functools.partial(jnp.einsum, "ie,te->it", precision="highest")
    return types.auto_sharded(product, splits_rows=True)(image, text)


def dot_options(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images options"]:
    """Dot product of image i with its own k texts, rows `i * k` to `i * k + k - 1` of `text`."""

    def product(image: Array, text: Array) -> Array:
        options = text.reshape(len(image), -1, image.shape[1])
        return jnp.einsum("ie,ioe->io", image, options, precision="highest")

    return types.auto_sharded(product, splits_rows=True)(image, text)


def map_chunks(
    score: Callable[[Any], Float[Array, " part *axes"]], rows: Any, chunk: int, remat: bool = True
) -> Float[Array, " images *axes"]:
    """`score` of all rows of a tree of arrays: lax.map over chunks of about `chunk` rows.

    remat: recompute each chunk in the backward pass, so that only the activations of one chunk are
      in memory.
    """
    count = len(jax.tree.leaves(rows)[0])
    chunks = -(-count // chunk)
    if chunks == 1:
        return score(rows)
    padding = -count % chunks

    def split(x: Array) -> Array:
        # copies of the last row, not zeros: a standard deviation of 0 gives 0 / 0
        if padding:
            x = jnp.pad(x, [(0, padding), *[(0, 0)] * (x.ndim - 1)], mode="edge")
        # round-robin: row r goes to chunk r % chunks, so that where rows are sharded every device
        # has a share of every chunk
        return jnp.swapaxes(x.reshape(-1, chunks, *x.shape[1:]), 0, 1)

    body = jax.checkpoint(score) if remat else score
    scores = jax.lax.map(body, jax.tree.map(split, rows))
    scores = jnp.swapaxes(scores, 0, 1)
    scores = scores.reshape(count + padding, *scores.shape[2:])
    return scores[:count] if padding else scores


def map_pairs_in_chunks(
    score: Callable[[Any, Any], Float[Array, "part texts"]], image: Any, text: Any, chunk: int
) -> Float[Array, "images texts"]:
    """`score` of all images with all texts (rows of two trees of arrays), in chunks of about
    `chunk` images and `chunk` texts (`map_chunks`)."""
    texts = len(jax.tree.leaves(text)[0])

    def image_scores(part: Any) -> Array:
        return map_chunks(lambda other: score(part, other).T, text, chunk).T

    # remat once, in the innermost loop: nested checkpoints would run the forward pass three times
    return map_chunks(image_scores, image, chunk, remat=texts <= chunk)


def map_pairs(
    score: Callable[[Any, Any, Any], Float[Array, "part texts"]],
    image: Any,
    text: Any,
    replicated: Any,
    chunk: int,
) -> Float[Array, "images texts"]:
    """`score(images, texts, replicated)` of all images with all texts, on each device in chunks of
    its images and of texts; `score` gets texts (1, texts, ...), the same for all its images."""

    def share(images: Any, rest: tuple) -> Array:
        texts, replicated = rest

        def part(images: Any, texts: Any) -> Array:
            return score(images, jax.tree.map(lambda x: x[None], texts), replicated)

        return map_pairs_in_chunks(part, images, texts, chunk)

    return types.map_sharded(share, image, (text, replicated))


def map_options(
    score: Callable[[Any, Any, Any], Float[Array, "part options"]],
    image: Any,
    text: Any,
    replicated: Any,
    chunk: int,
) -> Float[Array, "images options"]:
    """`score` of `map_pairs` of image i with its own k texts, rows `i * k` to `i * k + k - 1` of
    `text`; it gets texts (images, k, ...)."""
    images = len(jax.tree.leaves(image)[0])
    # reshaped before the rows are split: a device has the texts of its images
    own = jax.tree.map(lambda x: x.reshape(images, -1, *x.shape[1:]), text)

    def share(rows: tuple, replicated: Any) -> Array:
        return map_chunks(lambda part: score(*part, replicated), rows, chunk)

    return types.map_sharded(share, (image, own), replicated)
