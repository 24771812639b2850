"""RoBERTa as a text tower: its poolings, its padding, and what belongs to the image tower alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.conftest import encode, make
from vlc_jax import errors, models


@pytest.mark.parametrize(("pooling", "kind"), [("mean", "linear"), ("cls", "mlp")])
def test_pooled_features_are_of_tokens_before_the_padding(pooling, kind):
    model, params, batch = make("roberta", text={"pooling": pooling, "projection_kind": kind})
    params, text = {"text": params["text"]}, np.array(batch["text"])
    # no unit length: a linear projection and a mean commute
    raw = encode(model, params, "text", text, tokens="projected", is_unit=False)
    tokens, mask = np.asarray(raw.tokens), np.asarray(raw.mask)
    np.testing.assert_array_equal(mask.sum(axis=1), [3, 5, 7, 4])
    means = (tokens * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    expected = means if pooling == "mean" else tokens[:, 0]
    np.testing.assert_allclose(raw.pooled, expected, atol=1e-5)
    text[0, 3:], text[1, 5:] = 9, 2  # after the end token
    other = encode(model, params, "text", text, tokens="projected", is_unit=False)
    np.testing.assert_allclose(other.pooled, raw.pooled, atol=1e-6)
    shorter = encode(model, params, "text", text[:2, :5], tokens="projected", is_unit=False)
    np.testing.assert_allclose(shorter.pooled, raw.pooled[:2], atol=1e-6)


def test_activation_and_epsilon_are_of_the_image_tower():
    model = models.build("clip", "roberta-B/32", activation="gelu_tanh", epsilon=1e-3)
    assert (model.image.activation, model.image.epsilon) == ("gelu_tanh", 1e-3)
    assert (model.text.activation, model.text.epsilon) == ("gelu", 1e-5)
    with pytest.raises(errors.UsageError, match="unknown pooling of the text tower 'eos'"):
        models.build("clip", "roberta-B/32", text={"pooling": "eos"})
    with pytest.raises(errors.UsageError, match="takes 77 tokens per text, got 78"):
        model.text.init(jax.random.key(0), jnp.zeros((1, 78), jnp.int32))
