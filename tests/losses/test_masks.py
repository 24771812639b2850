"""Masks of pairs: hashes of texts, and duplicates in every role."""

import functools
import itertools

import jax
import numpy as np
import pytest

from vlc_jax import errors
from vlc_jax.losses import masks


def text_hash(texts):
    return np.asarray(jax.jit(masks.text_hash)(np.asarray(texts, np.int32)))


def hashes(texts):
    return [tuple(row) for row in text_hash(texts).tolist()]


def test_hashes_of_texts_are_equal_exactly_if_their_tokens_are():
    rng = np.random.default_rng(0)
    texts = rng.integers(0, 4, (10_000, 5))  # 1024 different ones
    found = hashes(texts)
    assert len(set(found)) == len({tuple(text) for text in texts.tolist()}) == 4**5
    assert len({*zip(map(tuple, texts.tolist()), found, strict=True)}) == 4**5


def test_either_half_of_a_hash_tells_orders_apart():
    orders = np.array(list(itertools.permutations([320, 736, 2368, 537, 49407, 0, 32768])))
    found = hashes(orders)
    for half in (0, 1):
        assert len({one[half] for one in found}) == len(orders)


def test_padding_that_tokens_follow_is_part_of_a_text():
    assert len(set(hashes([[0, 0, 0], [5, 0, 0], [0, 5, 0], [0, 0, 5], [5, 5, 0]]))) == 5


def test_hashes_of_many_texts_per_example_are_those_of_each():
    texts = np.random.default_rng(1).integers(0, 50, (3, 4, 7))
    found = text_hash(texts)
    assert found.shape == (3, 4, 2)
    np.testing.assert_array_equal(found[2, 1], text_hash(texts[2, 1]))


BATCH = {
    "mask": np.array([True, True, True, False]),
    "text": np.array([[1, 2], [3, 4], [1, 2], [3, 4]], np.int32),
    "id": np.array([[0, 7], [0, 8], [0, 9], [0, 7]], np.uint32),
    "negative_text": np.array([[[3, 4]], [[3, 4]], [[5, 6]], [[5, 6]]], np.int32),
    "negative_mask": np.ones((4, 1), bool),
    "positive_text": np.array([[[1, 2]], [[1, 2]], [[5, 6]], [[5, 6]]], np.int32),
    "positive_mask": np.array([[True], [True], [False], [True]]),
}


@functools.partial(jax.jit, static_argnames="duplicates")
def masks_of(batch, duplicates="keep"):
    """Name of the function -> the mask that it makes."""
    pair_masks = masks.pair_masks(batch, duplicates)
    return {
        "captions": masks.captions(pair_masks, pair_masks),
        "negatives": masks.negatives(pair_masks, pair_masks),
        "own_negatives": masks.own_negatives(pair_masks),
        "positives": masks.positives(pair_masks),
        "own_positives": masks.own_positives(pair_masks),
    }


def test_duplicates_are_kept_unless_asked_for():
    found = jax.device_get(masks_of({key: x for key, x in BATCH.items() if key != "id"}))
    real = np.outer(BATCH["mask"], BATCH["mask"])
    np.testing.assert_array_equal(found["captions"], real)
    np.testing.assert_array_equal(found["negatives"][..., 0], real)
    np.testing.assert_array_equal(found["positives"][..., 0], real & [True, True, False, True])


def test_masked_duplicates_leave_each_example_its_own_texts():
    found = jax.device_get(masks_of(BATCH, "mask"))
    captions = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(found["captions"], captions)
    negatives = [[1, 1, 1, 0], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(found["negatives"][..., 0], negatives)
    np.testing.assert_array_equal(found["own_negatives"][:, 0], [1, 0, 1, 0])
    positives = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(found["positives"][..., 0], positives)
    np.testing.assert_array_equal(found["own_positives"][:, 0], [1, 1, 0, 0])


def test_a_record_twice_in_a_batch_is_no_negative_of_itself():
    ids = np.array([[1, 7], [1, 7], [2, 7], [1, 8]], np.uint32)  # both halves count
    text = np.arange(8, dtype=np.int32).reshape(4, 2)

    @jax.jit
    def captions(batch):
        pair_masks = masks.pair_masks(batch, "mask")
        return masks.captions(pair_masks, pair_masks)

    found = captions({"mask": np.ones(4, bool), "text": text, "id": ids})
    expected = np.ones((4, 4), bool)
    expected[0, 1] = expected[1, 0] = False
    np.testing.assert_array_equal(found, expected)


def test_an_unknown_way_with_duplicates_is_refused():
    with pytest.raises(errors.UsageError, match="did you mean 'mask'"):
        masks_of(BATCH, "masked")
