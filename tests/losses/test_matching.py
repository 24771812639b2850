"""ITC and ITM: their formulas, shared targets of an image's captions, pairs that do not count."""

import functools

import jax
import numpy as np
import pytest

from tests.losses import oracle
from tests.losses.conftest import gradient, per_example
from vlc_jax import errors, losses


class Oracle(oracle.Oracle):
    """One example and one term at a time."""

    def of_image(self, i):
        return [j for j in self.real if i == j or self.ids[i] == self.ids[j]]

    def compared(self, i):
        same = self.of_image(i)
        return [j for j in self.real if j in same or self.counts(i, j)]

    def itc(self, i):
        same, value = self.of_image(i), 0.0
        for pair in (lambda j: (i, j), lambda j: (j, i)):
            logits = {}
            for j in self.compared(i):
                row, column = pair(j)
                logits[j] = self.logit("image", row, "text", column)
            value += sum(oracle.log_sum(logits.values()) - logits[j] for j in same) / len(same)
        return value / 2

    def itm(self, i):
        own, *others = (
            float(self.vectors["image"][i] @ x)
            for x in (self.vectors["text"][i], *self.vectors["negative"][i, :2])
        )
        values = [oracle.softplus(-own)]
        for j, x in zip(((i + 8) % 24, (i + 11) % 24), others, strict=True):
            if self.mask[j] and j not in self.of_image(i) and self.counts(i, j):
                values.append(oracle.softplus(x))
        return np.mean(values)


@pytest.mark.parametrize("duplicates", ["keep", "mask"])
@pytest.mark.parametrize("name", ["itc", "itm"])
def test_the_loss_of_each_example_is_that_of_its_formula(repeated, name, duplicates):
    reference = Oracle(repeated, duplicates)
    expected = reference.values(getattr(reference, name))
    found = per_example(name, repeated, duplicates=duplicates)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_captions_of_one_image_are_never_negatives(repeated):
    different = {**repeated, "id": np.arange(48, dtype=np.uint32).reshape(24, 2)}
    infonce = per_example("infonce", repeated)
    np.testing.assert_allclose(per_example("itc", different), infonce, rtol=1e-5)
    changed = np.abs(per_example("itc", repeated) - infonce) > 1e-3
    assert [*np.flatnonzero(changed)] == [1, 9]
    # 1 with text 9 is no pair of ITM: what is left is the mean of two
    changed = np.abs(per_example("itm", repeated) - per_example("itm", different)) > 1e-3
    assert [*np.flatnonzero(changed)] == [1]


def test_slopes_of_an_image_are_pulled_to_all_its_captions(repeated):
    """Of ITC, the gradient by a score is that of the formula: shares minus targets."""
    value, slopes = gradient("itc", repeated)
    step = np.random.default_rng(0).normal(size=repeated["image"].shape) * 1e-3
    values = []
    for sign in (1, -1):
        moved = {**repeated, "image": repeated["image"] + sign * step}
        reference = Oracle(moved)
        values.append(reference.values(reference.itc)[reference.mask].mean())
    assert np.sum(slopes["image"] * step) == pytest.approx(
        (values[0] - values[1]) / 2, rel=1e-3, abs=1e-7
    )
    assert float(value) == pytest.approx(np.mean(values), rel=1e-4)


def test_itm_without_a_model_that_draws_pairs_is_refused(all_outputs):
    outputs = all_outputs._replace(matching=None)
    with pytest.raises(errors.UsageError, match=r"model\.name to 'blip' or 'xvlm'.*rngs="):
        jax.eval_shape(functools.partial(losses.total, {"itm": {"weight": 1.0}}), outputs)
