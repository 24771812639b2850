"""Boolean masks of the image-text pairs that a loss compares.

Rows are images and columns are texts, of the whole batch or of a chunk or a device's share of it.
A pair that is not matched may still be no true negative: the same record drawn twice, two captions
that are equal, or a hard negative that is another example's caption. Published training code takes
all of them as negatives (duplicates="keep"); "mask" leaves them out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from vlc_jax import errors, types

DUPLICATES = ("keep", "mask")
MISSING = ("mask", "keep")
# exp underflows to 0; finite, because the difference of two logsumexps with every logit masked
# would be -inf - (-inf) = NaN
MASKED_LOGIT = -1e30


class Hashes(NamedTuple):
    """64-bit hashes of record ids and of texts: equal hashes are taken for duplicates.

    As two 32-bit halves, since JAX has no 64-bit integers unless jax_enable_x64 is set.
    """

    record: UInt32[Array, "batch 2"]
    text: UInt32[Array, "batch 2"]
    negative: UInt32[Array, "batch negatives 2"] | None = None
    positive: UInt32[Array, "batch positives 2"] | None = None


class PairMasks(NamedTuple):
    """Validity masks and hashes of examples, to exclude padding and false negatives.

    A formula without masks takes those of `complete`: every row is an example, no text is missing.

    `mask` is False on padding rows of the batch, `negative_mask` and `positive_mask` where an
    example lacks a hard text; `index` is the row in the batch. Without `hashes` no pair is taken
    for a duplicate. `image` is a 64-bit hash of the example's image; None: all images differ.
    `image_mask` is `mask` before `rows` of a loss leaves rows out; None: `mask`.
    """

    mask: Bool[Array, " batch"]
    index: Int[Array, " batch"]
    negative_mask: Bool[Array, "batch negatives"] | None = None
    positive_mask: Bool[Array, "batch positives"] | None = None
    hashes: Hashes | None = None
    image: UInt32[Array, "batch 2"] | None = None
    image_mask: Bool[Array, " batch"] | None = None


def complete(batch: int, negatives: int | None = None, positives: int | None = None) -> PairMasks:
    """The masks of a batch without padding, in which every example has all its hard texts.

    negatives, positives: their number per example; None: the batch has none.
    """
    negative_mask, positive_mask = (
        None if count is None else jnp.ones((batch, count), bool)
        for count in (negatives, positives)
    )
    return PairMasks(jnp.ones(batch, bool), jnp.arange(batch), negative_mask, positive_mask)


def completed(batch: Mapping[str, Array], outputs: types.Outputs) -> dict[str, Array]:
    """The batch with the masks that it lacks, all True. Raises UsageError without pairs."""
    images, texts = len(outputs.image.pooled), len(outputs.text.pooled)
    if images != texts:
        raise errors.UsageError(
            f"a loss takes pairs of an image and its caption; got {images} images and {texts} texts"
        )
    complete = {"mask": jnp.ones(images, bool)}
    for kind in ("negative", "positive"):
        text = getattr(outputs, f"{kind}_text")
        if text is not None:
            complete[f"{kind}_mask"] = jnp.ones(text.pooled.shape[:2], bool)
    return complete | dict(batch)


def for_scores(
    pair_masks: PairMasks | None,
    scores: Float[Array, "batch batch"],
    negative_scores: Float[Array, "batch batch negatives"] | None,
) -> PairMasks:
    """The masks; without them, those of a complete batch with these scores.

    Raises UsageError unless the scores are a square.
    """
    if scores.shape[0] != scores.shape[1]:
        raise errors.UsageError(
            "a loss takes scores of pairs of an image and its caption, (batch, batch); got "
            f"{scores.shape}"
        )
    if pair_masks is not None:
        return pair_masks
    return complete(len(scores), None if negative_scores is None else negative_scores.shape[2])


def or_ones(mask: Bool[Array, "..."] | None, scores: Float[Array, "..."]) -> Bool[Array, "..."]:
    """The mask; without one, True for each of the scores."""
    return jnp.ones(scores.shape, bool) if mask is None else mask


def check(
    duplicates: str,
    rows: tuple[int, int] = (0, 1),
    rows_per_example: int | None = None,
    negative_range: tuple[int, int | None] = (0, None),
    missing: str = "mask",
) -> None:
    """Raises UsageError unless `duplicates` and `missing` are "keep" or "mask", and `rows` and
    `negative_range` are possible.

    rows: (start, step), every step-th row from `start`.
    negative_range: (first, stop), stop above first, or None: the number of negatives.
    rows_per_example: 1 + its hard images, the only step above 1; None: any.
    """
    errors.known("value of duplicates", duplicates, DUPLICATES)
    errors.known("value of missing", missing, MISSING)
    is_slice = len(rows) == 2 and 0 <= rows[0] < rows[1]
    if not is_slice or rows[1] not in (1, rows_per_example or rows[1]):
        raise errors.UsageError(
            "rows of a loss is (start, step), every step-th row from start: start is below step, "
            f"step is 1 + config.input.hard_images = {rows_per_example or 'any'}, or 1 for all "
            f"rows; got {tuple(rows)}"
        )
    first, stop = negative_range if len(negative_range) == 2 else (0, 0)
    if not 0 <= first < (math.inf if stop is None else stop):
        raise errors.UsageError(
            "negative_range of a loss is (first, stop), from 0 on with stop above first, or None "
            f"for all from first on; got {tuple(negative_range)}"
        )


def pair_masks(
    batch: Mapping[str, Array],
    duplicates: str = "keep",
    negative_range: tuple[int, int | None] = (0, None),
    rows: tuple[int, int] = (0, 1),
    missing: str = "mask",
) -> PairMasks:
    """The masks of a batch (input_pipeline/batch.py); its "id" is uint32 (batch, 2) here.

    Hard negatives outside [first, stop) of negative_range count as missing; a stop of None is their
    number. With rows = (start, step) all rows but every step-th from `start` count as padding.
    missing: "mask" leaves missing hard negatives out; "keep" takes the text in their place, the
    empty one, for a negative, as published code does that masks none.
    Raises UsageError unless `duplicates` and `missing` are "keep" or "mask".
    """
    check(duplicates, missing=missing)
    hashes = None
    if duplicates == "mask":
        if lacking := [key for key in ("id", "text") if key not in batch]:
            raise errors.UsageError(
                "duplicates='mask' compares the ids of records and the texts of the batch, which "
                f"has no {' and no '.join(lacking)}: give them, or take duplicates='keep'"
            )
        texts = (batch.get(key) for key in ("text", "negative_text", "positive_text"))
        hashes = Hashes(batch["id"], *(None if x is None else text_hash(x) for x in texts))
    mask, negative_mask = batch["mask"], batch.get("negative_mask")
    if negative_mask is not None:
        index = jnp.arange(negative_mask.shape[1])
        first, stop = negative_range
        if first >= len(index):
            raise errors.UsageError(
                f"negative_range {tuple(negative_range)} of a loss leaves none of the batch's "
                f"{len(index)} hard negatives: lower it, or raise config.input.negatives.count"
            )
        is_in_range = (index >= first) & (index < (len(index) if stop is None else stop))
        if missing == "keep":
            negative_mask = jnp.ones(negative_mask.shape, bool)
        negative_mask &= is_in_range[None]
    hard, index = (negative_mask, batch.get("positive_mask")), jnp.arange(len(mask))
    image_mask = mask if rows[1] > 1 else None
    if rows[1] > 1:
        mask = mask & (index % rows[1] == rows[0])
    return PairMasks(mask, index, *hard, hashes, batch.get("id"), image_mask)


def all_images(pair_masks: PairMasks) -> PairMasks:
    """The masks of images with those that `rows` leaves out."""
    image_mask = pair_masks.mask if pair_masks.image_mask is None else pair_masks.image_mask
    return pair_masks._replace(mask=image_mask)


def text_hash(
    text: Int[Array, "*texts length"] | Float[Array, "*texts width"],
) -> UInt32[Array, "*texts 2"]:
    """Two 32-bit hashes of each text: sums over the mixed tokens (or vector bits) and positions."""
    if jnp.issubdtype(text.dtype, jnp.floating):
        text = jax.lax.bitcast_convert_type(text.astype(jnp.float32), jnp.int32)

    def mix(x: Array) -> Array:  # the finaliser of MurmurHash3 (Appleby, public domain)
        x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
        return x ^ (x >> 16)

    def half(seed: int) -> Array:
        # mixed before and after the position is added: a plain sum of tokens is the same for a
        # caption and its reordered words, a common hard negative
        tokens = mix(text.astype(jnp.uint32) + jnp.uint32(seed))
        position = jnp.arange(text.shape[-1], dtype=jnp.uint32)
        position = position.reshape((1,) * (text.ndim - 1) + (-1,))
        return jnp.sum(mix(tokens + position), axis=-1, dtype=jnp.uint32)

    # any two different seeds would do: the halves of 2^64 / golden ratio
    return jnp.stack([half(0x9E3779B9), half(0x7F4A7C15)], axis=-1)


def is_own(rows: PairMasks, columns: PairMasks) -> Bool[Array, "images texts"]:
    """Boolean mask of the matched pairs: image and caption of one example."""
    return rows.index[:, None] == columns.index[None]


def captions(rows: PairMasks, columns: PairMasks) -> Bool[Array, "images texts"]:
    """Boolean mask of the image-caption pairs that enter the loss."""
    real = rows.mask[:, None] & columns.mask[None]
    if rows.hashes is None:
        return real
    # the matched pair is always a duplicate of itself, and must stay
    return real & (is_own(rows, columns) | ~_is_duplicate(rows.hashes, columns.hashes))


def same_image(pair_masks: PairMasks) -> Bool[Array, "images texts"]:
    """Boolean mask of the pairs of an image and a caption of it, in a whole batch: the matched
    pairs, and those of examples with the same image."""
    is_same, image = is_own(pair_masks, pair_masks), pair_masks.image
    if image is not None:
        is_same |= _equal(image[:, None], image[None])
    return is_same & pair_masks.mask[:, None] & pair_masks.mask[None]


def drawn(
    pair_masks: PairMasks, text: Int[Array, " batch"], image: Int[Array, " batch"]
) -> Bool[Array, "batch 3"]:
    """Boolean mask of the pairs of ITM: own, image i with text `text[i]`, and image `image[i]` with
    text i. A drawn pair counts if its text is of another image."""
    is_other = captions(pair_masks, pair_masks) & ~same_image(pair_masks)
    parts = [is_other[pair_masks.index, text], is_other[image, pair_masks.index]]
    return jnp.stack([pair_masks.mask, *parts], axis=1)


def negatives(rows: PairMasks, columns: PairMasks) -> Bool[Array, "images texts negatives"]:
    """Boolean mask of the pairs of an image and a hard negative, its own ones included."""
    present = columns.mask[:, None] & columns.negative_mask
    real = rows.mask[:, None, None] & present[None]
    if rows.hashes is None:
        return real
    return real & ~_equal(rows.hashes.text[:, None, None], columns.hashes.negative[None])


def positives(pair_masks: PairMasks) -> Bool[Array, "images texts positives"]:
    """Boolean mask of the pairs of an image and a hard positive, in a whole batch."""
    real = captions(pair_masks, pair_masks)[:, :, None]
    real = real & (pair_masks.mask[:, None] & pair_masks.positive_mask)[None]
    if pair_masks.hashes is None:
        return real
    equal = _equal(pair_masks.hashes.text[:, None, None], pair_masks.hashes.positive[None])
    # an own positive may equal the caption, the stand-in for a missing one (fallback "self")
    return real & (is_own(pair_masks, pair_masks)[:, :, None] | ~equal)


def unshared_positives(pair_masks: PairMasks) -> Bool[Array, "images texts positives"]:
    """`positives`, without the hard positives of other examples that equal one of the image's own:
    a phrase or unit that two images share is no negative of either."""
    real, hashes = positives(pair_masks), pair_masks.hashes
    if hashes is None:
        return real
    # image i, its positive m, and positive k of example j
    equal = _equal(hashes.positive[:, :, None, None], hashes.positive[None, None])
    shared = (equal & own_positives(pair_masks)[:, :, None, None]).any(axis=1)
    return real & (is_own(pair_masks, pair_masks)[:, :, None] | ~shared)


def own_negatives(pair_masks: PairMasks) -> Bool[Array, "batch negatives"]:
    """Boolean mask of each example's own hard negatives."""
    real = pair_masks.mask[:, None] & pair_masks.negative_mask
    if pair_masks.hashes is None:
        return real
    return real & ~_equal(pair_masks.hashes.text[:, None], pair_masks.hashes.negative)


def own_positives(pair_masks: PairMasks) -> Bool[Array, "batch positives"]:
    """Boolean mask of each example's own hard positives."""
    return pair_masks.mask[:, None] & pair_masks.positive_mask


def _is_duplicate(rows: Hashes, columns: Hashes) -> Bool[Array, "images texts"]:
    is_same_record = _equal(rows.record[:, None], columns.record[None])
    return is_same_record | _equal(rows.text[:, None], columns.text[None])


def _equal(a: UInt32[Array, "*a 2"], b: UInt32[Array, "*b 2"]) -> Bool[Array, "*both"]:
    return jnp.all(a == b, axis=-1)


def with_texts(pair_masks: PairMasks, kinds: Sequence[str]) -> Bool[Array, " batch"]:
    """The real examples that have hard texts of each kind, "negative" or "positive"."""
    is_counted, own = pair_masks.mask, {"negative": own_negatives, "positive": own_positives}
    for kind in kinds:
        is_counted &= own[kind](pair_masks).any(axis=1)
    return is_counted
