"""Heads: what makes scores of the features of two towers.

models.HEADS lists them by name. The parameters of a head lie below "head", its scores are those
before logit_scale and logit_bias.

is_training: what differs between training and evaluation, such as dropout, whose random numbers
(the stream "dropout") the train step gives.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import types


class Work(NamedTuple):
    """What the operations of a head depend on, for one image of a batch.

    patches, length: tokens of an image and of a text.   image, text: widths of the features taken.
    texts: of the image itself, its caption among them.   pairs: texts that it is scored with.
    is_fixed: whether no gradient goes into the image tower, and into the text tower.
    """

    patches: int
    length: int
    image: int
    text: int
    texts: int
    pairs: int
    is_fixed: tuple[bool, bool]


class Head(nn.Module):
    """The dot product of pooled features, which have unit length: CLIP's and SigLIP's. Other heads
    replace some of its methods."""

    @property
    def wanted(self) -> tuple[types.Wanted, types.Wanted]:
        """What it takes of the image tower and of the text tower."""
        return types.POOLED, types.POOLED

    def image(
        self, features: types.ImageFeatures, *, is_training: bool = False
    ) -> types.ImageFeatures:
        """Features of a tower -> what is scored; all work that needs no text."""
        del is_training
        return features

    def text(
        self, features: types.TextFeatures, *, is_training: bool = False
    ) -> types.TextFeatures:
        """Features of a tower -> what is scored; all work that needs no image."""
        del is_training
        return features

    def of_pairs(self, image: types.ImageFeatures, text: types.TextFeatures) -> types.ImageFeatures:
        """In training: the images as all texts of the batch see them; row i of both is a pair."""
        del text
        return image

    def all_scores(
        self, image: types.ImageFeatures, texts: Mapping[str, types.TextFeatures]
    ) -> dict[str, tuple[Float[Array, "images _"], Float[Array, "images _"]]]:
        """In training, for each kind of texts of the batch: `score` and `score_options`."""
        return {
            kind: (
                self.score(image, text, is_training=True),
                self.score_options(image, text, is_training=True),
            )
            for kind, text in texts.items()
        }

    def outputs(self, image: types.ImageFeatures, text: types.TextFeatures) -> dict[str, Any]:
        """In training: further fields of types.Outputs; row i of both arguments is a pair."""
        del image, text
        return {}

    def flops(self, work: Work) -> int:
        """Floating-point operations for one image of a training step, forward and backward, as
        models/flops.py counts them; of the dot product none."""
        del work
        return 0

    def score(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images texts"]:
        """The score of every image with every text."""
        del is_training
        return dot(image.pooled, text.pooled)

    def score_options(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images options"]:
        """The score of image i with its own k texts, rows i*k to i*k + k - 1 of `text`."""
        del is_training
        return dot_options(image.pooled, text.pooled)


def averaged(
    params: Mapping[str, Any], statistics: Mapping[str, Float[Array, ""]], steps: int = 1000
) -> dict[str, Any]:
    """`params` with the statistics of a step taken into the averages in "head".

    An average is the mean over the first `steps` training steps, then one that forgets slowly.
    """
    if not statistics:
        return dict(params)
    head = params["head"]
    share = 1 / jnp.minimum(head["steps"] + 1, steps)
    new = {name: head[name] + share * (value - head[name]) for name, value in statistics.items()}
    return {**params, "head": {**head, **new, "steps": head["steps"] + 1}}


def dot(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images texts"]:
    """Dot product of every image with every text."""
    # HIGHEST: accelerators would round float32 operands to bfloat16 or TF32
    return jnp.einsum("ie,te->it", image, text, precision="highest")


def dot_options(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images options"]:
    """Dot product of image i with its own k texts, rows i*k to i*k + k - 1 of `text`."""
    images, embed = image.shape
    options = text.reshape(images, -1, embed)
    return jnp.einsum("ie,ioe->io", image, options, precision="highest")


def in_chunks(
    score: Callable[[Any], Float[Array, "part *axes"]],
    rows: Any,
    chunk: int,
    is_remade: bool = True,
) -> Float[Array, "images *axes"]:
    """`score` of all rows of a tree of arrays, about `chunk` of them at a time; the backward pass
    makes each part again (is_remade). Rows are dealt out in turn: where they are split over
    devices, every device has a share of a part.
    """
    count = len(jax.tree.leaves(rows)[0])
    parts = -(-count // chunk)
    if parts == 1:
        return score(rows)
    padding = -count % parts

    def deal(x: Array) -> Array:
        if padding:  # by copies, no zeros: 0 / 0
            x = jnp.pad(x, [(0, padding), *[(0, 0)] * (x.ndim - 1)], mode="edge")
        return jnp.swapaxes(x.reshape(-1, parts, *x.shape[1:]), 0, 1)

    body = jax.checkpoint(score) if is_remade else score
    scores = jax.lax.map(body, jax.tree.map(deal, rows))
    scores = jnp.swapaxes(scores, 0, 1)
    scores = scores.reshape(count + padding, *scores.shape[2:])
    return scores[:count] if padding else scores


def in_blocks(
    score: Callable[[Any, Any], Float[Array, "part texts"]], image: Any, text: Any, chunk: int
) -> Float[Array, "images texts"]:
    """`score` of all images with all texts, rows of two trees of arrays, about `chunk` of each at a
    time, as `in_chunks`."""
    texts = len(jax.tree.leaves(text)[0])

    def row(part: Any) -> Array:
        return in_chunks(lambda other: score(part, other).T, text, chunk).T

    # made again once, by the innermost that has parts
    return in_chunks(row, image, chunk, is_remade=texts <= chunk)
