"""CE-CLIP's losses: thresholds that follow the gaps, and the released intra-modal loss.

Their oracles, masks and permutations: tests/losses/test_hard_texts.py.
"""

import functools

import jax
import numpy as np
import pytest
from scipy import special

from tests.losses import conftest
from vlc_jax import errors, losses
from vlc_jax.losses import ce_clip

RANK = {"cross_modal_rank": {"weight": 1.0, "negative_range": (0, 2)}}


def test_thresholds_are_mean_gaps_of_those_with_a_negative(batch, all_outputs):
    batch = {**batch, "negative_mask": batch["negative_mask"].copy()}
    batch["negative_mask"][:19, 1] = False  # only padding is left
    found = jax.jit(
        lambda batch: losses.thresholds(RANK, conftest.outputs(batch), conftest.contract(batch))
    )(batch)
    has = batch["mask"] & batch["negative_mask"][:, 0]
    own, negative = batch["text"][has], batch["negative"][has, 0]
    gap = 7.0 * np.einsum("ie,ie->i", batch["image"][has], own - negative).mean()
    # without examples, and outside of negative_range, those of the step before
    np.testing.assert_allclose(found, [gap, -1.0, 20.0], rtol=1e-5)
    assert losses.thresholds({"infonce": {"weight": 1.0}}, all_outputs) is None


def test_as_released_a_threshold_is_the_gap_from_all_captions(batch):
    batch = {**batch, "negative": batch["negative"].copy()}
    batch["negative"][4, 0] = 0.0  # a negative whose logit is 0
    config = {"cross_modal_rank": {"weight": 1.0, "as_released": True}}
    found = jax.jit(
        lambda batch: losses.thresholds(config, conftest.outputs(batch), conftest.contract(batch))
    )(batch)
    image, has = batch["image"], batch["negative_mask"] & batch["mask"][:, None]
    assert has[4].all()
    has[4, 0] = False
    own = np.einsum("ie,ie->i", image, batch["text"])[batch["mask"]].mean()
    wrong = np.einsum("ie,ine->in", image, batch["negative"])
    expected = [7.0 * (own - wrong[has[:, k], k].mean()) for k in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_at_its_threshold_a_gap_costs_nothing():
    own, negative = np.float32([0.5, 0.5]), np.float32([[0.3, 0.1], [0.45, 0.1]])
    call = jax.jit(functools.partial(ce_clip.cross_modal_rank, upper_bound=30.0))
    values = call(own, negative, np.float32(100.0), np.float32([20.0, 50.0]))
    np.testing.assert_allclose(values, [0.0, 15.0 / 2], atol=1e-4)


def test_as_released_the_target_is_the_first_negative(batch):
    text, negative, mask = (batch[key] for key in ("text", "negative", "negative_mask"))
    mask = mask & batch["mask"][:, None]
    mask[0, 0] = True
    given = text, negative, np.zeros(24, np.float32), np.float32(7.0), mask
    found = jax.jit(lambda *given: ce_clip.intra_modal(*given, as_released=True))(*given)
    logits = 7.0 * text @ negative[mask].T
    np.testing.assert_allclose(
        found, special.logsumexp(logits, axis=1) - logits[:, 0], rtol=1e-4, atol=1e-5
    )


def test_a_loss_without_thresholds_is_refused(all_outputs):
    with pytest.raises(errors.UsageError, match=r"thresholds of the step before.*zeros\(negatives"):
        jax.eval_shape(functools.partial(losses.total, RANK), all_outputs._replace(thresholds=None))
    for bound in (-1.0, float("inf"), float("nan")):
        with pytest.raises(errors.UsageError, match=f"number from 0 on; got {bound}"):
            losses.check({"cross_modal_rank": {"weight": 1.0, "upper_bound": bound}})
