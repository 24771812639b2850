"""FSC-CLIP's hard-negative loss: its two options, and where it meets plain cross-entropy.

Its oracle, masks and permutations: tests/losses/test_hard_texts.py; as released:
tests/parity/test_methods.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.losses import oracle
from tests.losses.conftest import assert_close, gradient, per_example, total
from vlc_jax import errors
from vlc_jax.losses.hn_focal import hn_focal

PLAIN = {"gamma": 0.0, "label_smoothing": 0.0}


def test_without_focus_and_smoothing_it_is_svlcs_negative_loss(repeated):
    found, expected = gradient("hn_focal", repeated, **PLAIN), gradient("svlc_negative", repeated)
    assert_close(found, expected)


@pytest.mark.parametrize("options", [{"gamma": 3.5}, {"label_smoothing": 0.3}, {"gamma": 0.0}])
def test_options_of_the_config_reach_the_formula(batch, options):
    reference = oracle.Oracle(batch)
    expected = reference.values(lambda i: reference.hn_focal(i, **options))
    np.testing.assert_allclose(
        per_example("hn_focal", batch, **options), expected, rtol=2e-5, atol=1e-5
    )
    has_negative = batch["mask"] & batch["negative_mask"].any(axis=1)
    found = float(total("hn_focal", batch, **options))
    np.testing.assert_allclose(found, expected[has_negative].mean(), rtol=1e-5)
    assert abs(found - float(total("hn_focal", batch))) > 1e-3


@functools.partial(jax.jit, static_argnames=("gamma", "label_smoothing"))
@jax.grad
def slope(logit, **options):
    none, one = jnp.zeros((1, 1)), jnp.ones((1, 1), bool)
    return hn_focal(logit[None], none, jnp.float32(1.0), one, **options)[0]


def probability_slope(logit, **options):
    """The slope by the own logit, with one hard negative of logit 0."""
    return float(slope(np.float32(logit), **options))


def test_easy_negatives_weigh_little():
    hard, easy = -1.0, 4.0  # p = .27 and .98
    plain = {x: probability_slope(x, **PLAIN) for x in (hard, easy)}
    focal = {x: probability_slope(x, gamma=2.0, label_smoothing=0.0) for x in (hard, easy)}
    assert all(slope < 0 for slope in (*plain.values(), *focal.values()))
    assert abs(focal[easy] / focal[hard]) < 0.1 * abs(plain[easy] / plain[hard])
    # where the label is .99, a probability of .9999 is too much, one of .5 too little
    assert probability_slope(9.0) > 0 > probability_slope(0.0)


@pytest.mark.parametrize("logit", [-200.0, 0.0, 30.0, 200.0])
@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_gradient_is_finite_where_the_softmax_saturates(logit, gamma):
    assert np.isfinite(probability_slope(logit, gamma=gamma))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"gama": 2.0}, "unknown option of the loss hn_focal 'gama'; did you mean 'gamma'"),
        ({"gamma": "big"}, "the option 'gamma' is a number; got 'big', str"),
        ({"gamma": 0.5}, "gamma of hn_focal is 0 or at least 1; got 0.5"),
        ({"label_smoothing": 1.0}, "at least 0 and below 1; got 1.0"),
        ({"implementation": "ring"}, "known: dense"),
    ],
)
def test_wrong_options_are_refused(batch, option, message):
    with pytest.raises(errors.UsageError, match=message):
        total("hn_focal", batch, **option)


def test_an_option_of_one_loss_is_unknown_to_another(batch):
    with pytest.raises(errors.UsageError, match=r"svlc_negative 'gamma'; known: .*negative_range"):
        total("svlc_negative", batch, gamma=2.0)
