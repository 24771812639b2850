"""The words for array axes, and the named tuples every room of vlc_jax passes around.

Axis words (jaxtyping signatures use them, einsum letters are their initials):
  batch                    examples of the global training batch
  images, texts            rows and columns of a score matrix
  height, width, channels  pixels
  patches                  image tokens, the class token included if there is one
  length                   text tokens
  embed                    width of an embedding or of a tower
  heads, head              attention heads, and the width of one
  options                  captions to choose from
  negatives, positives     hard negatives, hard positives of one example

`scores[i, j]` is always image i against text j.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int, UInt8

Image = UInt8[Array, "batch height width channels"]
Text = Int[Array, "batch length"] | Float[Array, "batch width"]  # token ids, or vectors


class Wanted(NamedTuple):
    """What a head takes of a tower besides `pooled`.

    tokens: none | raw (as the last block leaves them) | normed (after the last norm) | projected
      (into the shared embedding).
    is_unit: whether `pooled` and projected tokens are scaled to unit length.
    """

    tokens: Literal["none", "raw", "normed", "projected"] = "none"
    is_unit: bool = True


POOLED = Wanted()


class ImageFeatures(NamedTuple):
    """What an image tower gives; `pooled` has unit length for CLIP and SigLIP."""

    pooled: Float[Array, "images embed"]
    tokens: Float[Array, "images patches embed"] | None = None


class TextFeatures(NamedTuple):
    """What a text tower gives; `mask` is True on real tokens, the end-of-text token included.

    `marks` says which word of a list is written there, counted from 1
    (input_pipeline/tokenizers/functional_words.py).
    """

    pooled: Float[Array, "*texts embed"]
    tokens: Float[Array, "*texts length embed"] | None = None
    mask: Bool[Array, "*texts length"] | None = None
    marks: Int[Array, "*texts length"] | None = None


class Outputs(NamedTuple):
    """Everything a loss may want from one forward pass; None where the model or the batch lacks it.

    `scores` are similarities (cosines for CLIP) before `logit_scale` and `logit_bias`; both are
    in linear space: logits = logit_scale * scores + logit_bias.

    Hard negatives and positives are texts with an axis more, `pooled` (texts, negatives, embed):
    `negative_scores[i, j, k]` is image i against negative k of example j, `own_negative_scores[i,
    k]` image i against its own, `own_scores[i]` against its caption. XLA drops the computation of
    those that no loss reads.

    token_groups: the patches that each token of the own caption picks (SPARC), of unit length.
    statistics: of the batch; evaluation reads their average over steps (models.heads.averaged).
    """

    image: ImageFeatures
    text: TextFeatures
    scores: Float[Array, "images texts"] | None
    logit_scale: Float[Array, ""]
    logit_bias: Float[Array, ""] | None = None
    own_scores: Float[Array, "images"] | None = None
    negative_text: TextFeatures | None = None
    negative_scores: Float[Array, "images texts negatives"] | None = None
    own_negative_scores: Float[Array, "images negatives"] | None = None
    positive_text: TextFeatures | None = None
    positive_scores: Float[Array, "images texts positives"] | None = None
    own_positive_scores: Float[Array, "images positives"] | None = None
    token_groups: Float[Array, "texts length embed"] | None = None
    statistics: Mapping[str, Float[Array, ""]] | None = None


Rows = Any  # a tree of arrays that have axis 0 in common


class Placement(NamedTuple):
    """What models mean by the batch axis on devices; `sharding` says it.

    pin: the same array, its axis 0 split over the devices.
    each: (f, rows, whole) -> f(rows, whole), each device doing its share of the rows.
    """

    pin: Callable[[jax.Array], jax.Array]
    each: Callable[[Callable[[Rows, Any], jax.Array], Rows, Any], jax.Array]


ANYWHERE = Placement(lambda x: x, lambda f, rows, whole: f(rows, whole))
_placement: ContextVar[Placement] = ContextVar("placement", default=ANYWHERE)


def pin_batch(x: jax.Array) -> jax.Array:
    """Marks axis 0 of an activation as the batch; what that means on devices, `sharding` says.

    With sharded parameters the compiler may otherwise replicate activations on every device.
    """
    return _placement.get().pin(x)


def on_each_device(f: Callable[[Rows, Any], jax.Array], rows: Rows, whole: Any) -> jax.Array:
    """f(rows, whole), which makes of each row one row of its result, from the rows where they lie.

    Every device gets `whole`, all other arrays that `f` reads. The compiler may otherwise send the
    rows around.
    """
    return _placement.get().each(f, rows, whole)


@contextmanager
def placing(placement: Placement) -> Iterator[None]:
    """Gives `pin_batch` and `on_each_device` their meaning while a model is traced inside."""
    token = _placement.set(placement)
    try:
        yield
    finally:
        _placement.reset(token)
