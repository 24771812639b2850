"""Every loss with hard negatives or positives: its formula, its symmetries, its masks."""

import numpy as np
import pytest

from tests.losses import oracle
from vlc_jax import losses

OF_TEXTS = tuple(losses.TEXTS)
SPREAD = ("negclip", "sigmoid_negatives")  # over chunks and devices
KINDS = ("negative", "positive")


@pytest.mark.parametrize("name", OF_TEXTS)
def test_dense_equals_numpy(batch, per_example, name):
    judge = oracle.Oracle(batch)
    expected = judge.values(getattr(judge, name))
    np.testing.assert_allclose(per_example(name, batch), expected, rtol=2e-5, atol=1e-5)
    assert np.count_nonzero(expected) >= 15


@pytest.mark.parametrize("name", OF_TEXTS)
def test_mean_is_over_the_examples_the_loss_is_about(batch, per_example, total, name):
    mask = np.asarray(batch["mask"])
    if name in losses.OF_OWN_TEXTS:
        for kind in losses.TEXTS[name]:
            mask = mask & np.asarray(batch[f"{kind}_mask"]).any(axis=1)
        assert not mask[3]
        assert 10 < mask.sum() < 18
    expected = np.asarray(per_example(name, batch))[mask].mean()
    np.testing.assert_allclose(total(name, batch), expected, rtol=1e-5)


def test_slots_choose_hard_negatives_by_their_place(batch, total):
    every = float(total("svlc_negative", batch))
    for slots, part in (((0, 1), slice(0, 1)), ((1, None), slice(1, None))):
        keys = ("negative", "negative_text", "negative_mask")
        fewer = {**batch, **{key: batch[key][:, part] for key in keys}}
        some = float(total("svlc_negative", batch, slots=slots))
        np.testing.assert_allclose(some, total("svlc_negative", fewer), rtol=1e-6)
        assert abs(some - every) > 1e-3
