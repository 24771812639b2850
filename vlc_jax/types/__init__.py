"""Axis names, and the named tuples of arrays that models, losses and evaluation share.

Axis words of jaxtyping signatures; einsum letters are their initials:
  batch                    examples of the global training batch
  images, texts            rows and columns of a score matrix
  height, width, channels  pixels; without a height, width is of a decoder or of text vectors
  patches                  image tokens, the class token included if there is one
  length                   text tokens
  embed                    width of an embedding or of a tower
  heads, head              attention heads, and the width of one
  groups                   key-value heads of a decoder
  layers, slots            blocks of a decoder, and positions of its cache or of a padded text
  vocab                    token ids of a decoder, one per logit
  steps, ends              tokens of an answer, and ids that end it
  maps                     similarity maps of image-text pairs, in DCSM's network
  options                  captions to choose from
  negatives, positives     hard negatives, hard positives of one example
  cases, examples          cases of a benchmark, and the decisions that a metric averages
  crops, masked            further views of an image, and its masked patches
  prototypes               outputs of a projection that a student and its teacher compare
  queries                  rows whose options are ranked; in attention, tokens that attend

`scores[i, j]` is always image i against text j.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int

Text = Int[Array, "batch length"] | Float[Array, "batch width"]  # token ids, or vectors
Scalar = Float[Array, ""] | float  # a logit scale or bias


class FeatureRequest(NamedTuple):
    """The features a head needs from a tower, besides `pooled`.

    tokens: none | raw (output of the last block) | normed (after the last layer norm) | projected
      (into the shared embedding) | ids (token ids of texts; the tower does not run).
    is_unit: whether `pooled` and projected tokens are scaled to unit length.
    """

    tokens: Literal["none", "raw", "normed", "projected", "ids"] = "none"
    is_unit: bool = True

    @property
    def has_tokens(self) -> bool:
        """True if a tower returns the features of every token."""
        return self.tokens not in ("none", "ids")


POOLED_ONLY = FeatureRequest()


NOT_ASKED = -1  # padding of the token ids of a question


class ImageFeatures(NamedTuple):
    """Features of images; `pooled` has unit length for CLIP and SigLIP.

    question: token ids of the question about each image, padded with NOT_ASKED; only for heads that
      read it.
    has_image: False for a row without an image (text only); None: all rows have one.
    media: latents of the image that a decoder's cross attention reads (models.flamingo).
    grid: rows and columns of patches, of towers that keep an image's aspect ratio.
    """

    pooled: Float[Array, "images embed"]
    tokens: Float[Array, "images patches embed"] | None = None
    question: Int[Array, "images length"] | None = None
    has_image: Bool[Array, " images"] | None = None
    media: Float[Array, "images latents features"] | None = None
    grid: Int[Array, "images 2"] | Float[Array, "images 2"] | None = None


class TextFeatures(NamedTuple):
    """Features of texts; `mask` is True on real tokens, the end-of-text token included.

    marks: 1 + index of the functional word at a token, 0 for other tokens
      (input_pipeline/tokenizers/functional_words.py); in conversations, 1 on the tokens of answers;
      only for heads that read it.
    ids: only for heads that request them.
    shared: ids of the common prefix of all texts of an image, padded on the left with NOT_ASKED, a
      row per image; only for heads that read the prefix once (`Decoding.reads_shared`).
    """

    pooled: Float[Array, "*texts embed"]
    tokens: Float[Array, "*texts length embed"] | None = None
    mask: Bool[Array, "*texts length"] | None = None
    marks: Int[Array, "*texts length"] | None = None
    ids: Int[Array, "*texts length"] | None = None
    shared: Int[Array, "images _"] | None = None


class Matching(NamedTuple):
    """The pairs of image-text matching in a training batch, three of each example: its own, its
    image with the text of example `text[i]`, its text with the image of example `image[i]`.

    log_odds: of a match, in this order.
    """

    log_odds: Float[Array, "images 3"]
    text: Int[Array, " images"]
    image: Int[Array, " images"]


class ViewLogits(NamedTuple):
    """Logits over prototypes (models.self_distilled) of an image and of further views of it.

    image, patches: of the whole image, which a teacher sees; `patches` are those at
      `masked_patches` of the batch, all without this key.
    mean_patch: the mean over all patches of the whole image.
    crops, masked: of its crops, and of its masked patches where only the others are visible, which
      a student sees; None if the batch has none.
    """

    image: Float[Array, "images prototypes"]
    patches: Float[Array, "images _ prototypes"]
    mean_patch: Float[Array, "images prototypes"]
    crops: Float[Array, "images crops prototypes"] | None = None
    masked: Float[Array, "images masked prototypes"] | None = None


class Outputs(NamedTuple):
    """Everything a loss may need from one forward pass; None if the model or the batch lacks it.

    `scores` are similarities (cosines for CLIP) before `logit_scale` and `logit_bias`:
    logits = logit_scale * scores + logit_bias. `logit_scale` here is linear, 1 / temperature; the
    parameter of that name is its logarithm, as in OpenAI's checkpoints.

    Hard negatives and positives are texts with another axis, `pooled` (texts, negatives, embed):
    `negative_scores[i, j, k]` is image i against negative k of example j, `own_negative_scores[i,
    k]` image i against negative k of example i, `own_scores[i]` image i against its caption. XLA
    removes the computation of fields that no loss reads.

    token_groups: SPARC's language-grouped patch embedding of each token of the image's caption, of
      unit length.
    matching: pairs of BLIP and X-VLM, drawn with the random numbers "dropout" of `apply`.
    teacher: of the same batch, by the teacher of the losses `distill`, `self_distill` and
      `masked_patches` (`State.memory`), without gradient; no model sets it.
    thresholds: of the loss `cross_modal_rank`, from the step before (`losses.thresholds`).
    centres: of the losses `self_distill` and `masked_patches`, by their names, likewise
      (`losses.centres`).
    view_logits: of the model `self_distilled`.
    local: a head's second scores (heads.Head.local), by the names of the fields here.
    """

    image: ImageFeatures
    text: TextFeatures
    scores: Float[Array, "images texts"] | None
    logit_scale: Float[Array, ""]
    logit_bias: Float[Array, ""] | None = None
    own_scores: Float[Array, " images"] | None = None
    negative_text: TextFeatures | None = None
    negative_scores: Float[Array, "images texts negatives"] | None = None
    own_negative_scores: Float[Array, "images negatives"] | None = None
    positive_text: TextFeatures | None = None
    positive_scores: Float[Array, "images texts positives"] | None = None
    own_positive_scores: Float[Array, "images positives"] | None = None
    token_groups: Float[Array, "texts length embed"] | None = None
    matching: Matching | None = None
    teacher: "Outputs | None" = None
    thresholds: Float[Array, " negatives"] | None = None
    centres: dict[str, Array] | None = None
    view_logits: ViewLogits | None = None
    local: dict[str, Array] | None = None


class State(NamedTuple):
    """Training state between two steps: the content of a checkpoint. `step` counts updates.

    `params` are the trained parameters: all parameters, those that are not frozen, or an adapter
    (`models.lora`) of frozen ones. `batch_stats` are the running statistics of the model (Flax's
    mutable collection of that name), which the optimizer does not update; {} if there are none.
    `guard` is the state of the spike guard (`train.spike_guard`); {} without one.
    `memory` holds what losses keep between steps; {} if they keep nothing. "teacher": an average of
    `params` over steps, for `distill`, `self_distill` and `masked_patches`; "centres": of each of
    the last two, (prototypes,); "thresholds": (negatives,), for `cross_modal_rank`.
    """

    step: Array
    params: Any
    opt_state: Any
    batch_stats: Any
    guard: Mapping[str, Array] = {}
    memory: Mapping[str, Any] = {}


BATCH_AXES = ("data", "fsdp")  # mesh axes that axis 0 of every batch is split over


def batch_axes(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> tuple[str, ...]:
    """Axes of a mesh that batches are split over: all but "tensor", which splits matrices."""
    return tuple(name for name in mesh.axis_names if name != "tensor")


def _batch_axes() -> tuple[str, ...]:
    return batch_axes(jax.sharding.get_abstract_mesh())


def _splits(rows: Any) -> bool:
    """True inside `jax.set_mesh` of several devices whose number divides `rows`, an integer or,
    outside of a mesh, a symbolic dimension (jax.export)."""
    mesh = jax.sharding.get_abstract_mesh()
    if jax.sharding.AxisType.Manual in mesh.axis_types:  # inside shard_map: rows of one device
        return False
    size = math.prod(mesh.shape[name] for name in _batch_axes())
    return not mesh.empty and size > 1 and rows % size == 0


def _has_explicit_axes() -> bool:
    return jax.sharding.AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types


def shard_batch(x: jax.Array) -> jax.Array:
    """The same array with axis 0 sharded over the mesh, if there is a mesh that divides it.

    Models apply it to the activations of each block: with sharded parameters the compiler may
    otherwise replicate activations on every device.
    """
    if not _splits(x.shape[0]):
        return x
    spec = jax.P(_batch_axes())
    # on Explicit axes a constraint only asserts the present sharding, so reshard
    return (
        jax.sharding.reshard(x, spec)
        if _has_explicit_axes()
        else jax.lax.with_sharding_constraint(x, spec)
    )


def auto_sharded(f: Callable[..., Any], *, splits_rows: bool) -> Callable[..., Any]:
    """f with shardings chosen by the compiler, also on a mesh with Explicit axes.

    splits_rows: on Explicit axes, whether axis 0 of the result is sharded over the batch axes, as
      axis 0 of f's first argument; otherwise the result is replicated.
    """
    if not _has_explicit_axes():
        return f

    def call(*args: Any) -> Any:
        rows = splits_rows and _splits(jax.tree.leaves(args[0])[0].shape[0])
        spec = jax.P(_batch_axes()) if rows else jax.P()
        return jax.sharding.auto_axes(f, out_sharding=spec)(*args)

    return call


def map_sharded(f: Callable[[Any, Any], jax.Array], rows: Any, replicated: Any) -> jax.Array:
    """f(rows, replicated) by shard_map: each device computes f on its shard of the rows.

    f is row-wise: axis 0 of its result is axis 0 of `rows` (a tree of arrays); `replicated` holds
    all other arrays that f reads. Without a mesh, or if its devices do not divide the rows, f is
    called directly. Without shard_map the compiler may move the rows between devices.
    """
    if not _splits(jax.tree.leaves(rows)[0].shape[0]):
        return f(rows, replicated)
    split = jax.P(_batch_axes())
    if _has_explicit_axes():  # shard_map does not reshard its inputs there
        rows = jax.sharding.reshard(rows, split)
        replicated = jax.sharding.reshard(replicated, jax.P())
    # check_vma=False: f's custom derivatives do not declare the axes over which results vary
    mapped = jax.shard_map(f, in_specs=(split, jax.P()), out_specs=split, check_vma=False)
    return mapped(rows, replicated)
