"""DeGLA's losses: the released mask of the text-grounded loss, and a teacher's features.

The oracle of text_grounded, its masks and permutations: tests/losses/test_hard_texts.py.
"""

import jax
import numpy as np
import pytest

from tests.losses import conftest, oracle
from tests.losses.conftest import total
from vlc_jax import errors, losses
from vlc_jax.losses import teacher as teachers


def test_as_released_captions_meet_negatives_of_other_captions(batch):
    text, teacher, negative = batch["text"], batch["teacher_text"], batch["negative"]
    mask = batch["negative_mask"]
    call = jax.jit(lambda *given: teachers.text_grounded(*given, as_released=True))
    found = call(text, teacher, negative, mask)
    flat, has = negative.reshape(-1, 6), mask.reshape(-1)  # in the order of captions
    for i in range(24):
        places = [place for place in range(72) if place % 24 == i and has[place]]
        logits = [10 * text[i] @ teacher[i], *(10 * text[i] @ flat[place] for place in places)]
        np.testing.assert_allclose(found[i], oracle.log_sum(logits) - logits[0], atol=2e-5)
    assert [place // 3 for place in range(72) if place % 24 == 7] != [7, 7, 7]


def test_distillation_is_squared_distance_and_leaves_the_teacher(batch):
    expected = 0.0
    has = batch["negative_mask"][batch["mask"]]
    for key in ("image", "text", "negative"):
        distance = np.square(batch[key] - batch[f"teacher_{key}"])[batch["mask"]].sum(axis=-1)
        expected += (
            np.sum(distance[has] if key == "negative" else distance) * 24 / 19
        )  # of 24 rows 5 are padding
    np.testing.assert_allclose(total("distill", batch), expected, rtol=1e-5)

    def value(part, batch):
        batch = {**batch, **part}
        config = {"distill": {"weight": 1.0}}
        return losses.total(config, conftest.outputs(batch), conftest.contract(batch))[0]

    keys = ("image", "text", "negative", "teacher_image", "teacher_text", "teacher_negative")
    slopes = jax.jit(jax.grad(value))({key: batch[key] for key in keys}, batch)
    for key in keys:
        assert np.any(slopes[key]) != key.startswith("teacher"), key


def test_a_batch_without_negatives_is_distilled_too(all_outputs):
    teacher = all_outputs.teacher._replace(negative_text=None)
    outputs = all_outputs._replace(negative_text=None, teacher=teacher)
    config = {"distill": {"weight": 1.0}}
    value, _ = jax.jit(lambda outputs: losses.total(config, outputs))(outputs)
    difference = outputs.image.pooled - teacher.image.pooled
    difference_of_texts = outputs.text.pooled - teacher.text.pooled
    expected = np.square(difference).sum() + np.square(difference_of_texts).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_a_loss_without_its_teacher_is_refused(all_outputs):
    for name in ("distill", "text_grounded"):
        with pytest.raises(errors.UsageError, match=r"need a teacher.*config\.losses\.distill"):
            losses.total({name: {"weight": 1.0}}, all_outputs._replace(teacher=None))
    with pytest.raises(errors.UsageError, match=r"a share in \[0, 1\]; got 1\.5"):
        losses.check({"distill": {"weight": 1.0, "decay": 1.5}})
    two = {"distill": {"weight": 1.0}, "again": {"loss": "distill", "weight": 1.0}}
    with pytest.raises(errors.UsageError, match=r"has one entry of it; got 2"):
        losses.check(two)
    assert losses.teacher_decay({"d": {"weight": 0.0, "loss": "distill"}}) == 0.9996
    assert losses.teacher_decay({"distill": {"weight": 0.0, "decay": 0.5}}) == 0.5
    assert losses.teacher_decay({"infonce": {"weight": 1.0}}) is None


def test_a_range_of_negatives_is_for_distances_too():
    losses.check({"mine": {"loss": "distill", "weight": 0.005, "negative_range": (0, 1)}})
