"""DeGLA's losses: distances from a teacher's features.

The oracle of text_grounded, its masks and permutations: tests/losses/test_hard_texts.py; as
released: tests/parity/test_methods.py.
"""

import jax
import numpy as np
import pytest

from tests.losses import conftest
from tests.losses.conftest import total
from vlc_jax import errors, losses


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
