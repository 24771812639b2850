"""Which pairs of an image and a text a loss compares: real ones, own ones, no duplicates.

Rows are images and columns are texts, of the whole batch or of a chunk or a device's share of it.
A pair of the batch may be no true negative: the same record drawn twice, two captions that are
equal, or a hard negative that is another example's caption. Published training code takes all of
them as negatives (duplicates="keep"); "mask" leaves them out.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from vlc_jax import errors

DUPLICATES = ("keep", "mask")


class Names(NamedTuple):
    """64-bit names of records and of texts: what has the same name is taken for the same."""

    record: UInt32[Array, "batch 2"]
    text: UInt32[Array, "batch 2"]
    negative: UInt32[Array, "batch negatives 2"] | None = None
    positive: UInt32[Array, "batch positives 2"] | None = None


class Members(NamedTuple):
    """What is known of the examples of a batch besides scores and embeddings.

    `mask` is False on padding, the other two where an example lacks a text; `index` is the place
    in the batch. Without `names` no pair is taken for a duplicate.
    """

    mask: Bool[Array, "batch"]
    index: Int[Array, "batch"]
    negative_mask: Bool[Array, "batch negatives"] | None = None
    positive_mask: Bool[Array, "batch positives"] | None = None
    names: Names | None = None


def members(
    batch: Mapping[str, Array],
    duplicates: str = "keep",
    slots: tuple[int, int | None] = (0, None),
) -> Members:
    """The members of a batch (input_pipeline/batch.py); its "id" is uint32 (batch, 2) here.

    Hard negatives whose places are not in range(*slots) are taken for missing. Raises UsageError
    unless `duplicates` is "keep" or "mask".
    """
    errors.known("value of duplicates", duplicates, DUPLICATES)
    names = None
    if duplicates == "mask":
        texts = (batch.get(key) for key in ("text", "negative_text", "positive_text"))
        names = Names(batch["id"], *(None if text is None else name(text) for text in texts))
    mask, negative_mask = batch["mask"], batch.get("negative_mask")
    if negative_mask is not None:
        places = jnp.arange(negative_mask.shape[1])
        first, stop = slots
        is_in = (places >= first) & (places < (len(places) if stop is None else stop))
        negative_mask &= is_in[None]
    return Members(
        mask,
        jnp.arange(len(mask)),
        negative_mask,
        batch.get("positive_mask"),
        names,
    )


def name(
    text: Int[Array, "*texts length"] | Float[Array, "*texts width"],
) -> UInt32[Array, "*texts 2"]:
    """Two 32-bit hashes of each text: sums of a mix of token, or bits of a vector, and position."""
    if jnp.issubdtype(text.dtype, jnp.floating):
        text = jax.lax.bitcast_convert_type(text.astype(jnp.float32), jnp.int32)

    def mix(x: Array) -> Array:  # the finaliser of MurmurHash3 (Appleby, public domain)
        x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
        return x ^ (x >> 16)

    def one(seed: int) -> Array:
        tokens = mix(text.astype(jnp.uint32) + jnp.uint32(seed))
        position = jnp.arange(text.shape[-1], dtype=jnp.uint32)
        position = position.reshape((1,) * (text.ndim - 1) + (-1,))
        return jnp.sum(mix(tokens + position), axis=-1, dtype=jnp.uint32)

    return jnp.stack([one(0x9E3779B9), one(0x7F4A7C15)], axis=-1)


def is_own(rows: Members, columns: Members) -> Bool[Array, "images texts"]:
    """Whether image and caption belong to the same example."""
    return rows.index[:, None] == columns.index[None]


def captions(rows: Members, columns: Members) -> Bool[Array, "images texts"]:
    """Which pairs of an image and a caption count."""
    real = rows.mask[:, None] & columns.mask[None]
    if rows.names is None:
        return real
    return real & (is_own(rows, columns) | ~_is_duplicate(rows.names, columns.names))


def negatives(rows: Members, columns: Members) -> Bool[Array, "images texts negatives"]:
    """Which pairs of an image and a hard negative count, those of its own example among them."""
    present = columns.mask[:, None] & columns.negative_mask
    real = rows.mask[:, None, None] & present[None]
    if rows.names is None:
        return real
    return real & ~_equal(rows.names.text[:, None, None], columns.names.negative[None])


def positives(members: Members) -> Bool[Array, "images texts positives"]:
    """Which pairs of an image and a hard positive count in a whole batch."""
    real = captions(members, members)[:, :, None]
    real = real & (members.mask[:, None] & members.positive_mask)[None]
    if members.names is None:
        return real
    equal = _equal(members.names.text[:, None, None], members.names.positive[None])
    return real & (is_own(members, members)[:, :, None] | ~equal)


def own_negatives(members: Members) -> Bool[Array, "batch negatives"]:
    """Which of the own hard negatives of each example count."""
    real = members.mask[:, None] & members.negative_mask
    if members.names is None:
        return real
    return real & ~_equal(members.names.text[:, None], members.names.negative)


def own_positives(members: Members) -> Bool[Array, "batch positives"]:
    """Which of the own hard positives of each example are there."""
    return members.mask[:, None] & members.positive_mask


def _is_duplicate(rows: Names, columns: Names) -> Bool[Array, "images texts"]:
    is_record = _equal(rows.record[:, None], columns.record[None])
    return is_record | _equal(rows.text[:, None], columns.text[None])


def _equal(a: UInt32[Array, "*a 2"], b: UInt32[Array, "*b 2"]) -> Bool[Array, "*both"]:
    return jnp.all(a == b, axis=-1)
