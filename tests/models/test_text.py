"""The text tower: causality, pooling, padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.conftest import encode, make
from vlc_jax import errors, types
from vlc_jax.models import text

end_of_text = jax.jit(text.end_of_text, static_argnums=1)
real_tokens = jax.jit(text.real_tokens, static_argnums=1)
PROJECTED = types.FeatureRequest("projected")


def seen_by(model, params, tokens):
    """Sizes of the gradients of output positions (rows) with respect to input positions."""
    tower = model.text
    table = params["text"]["token_embedding"]["embedding"]
    length = tokens.shape[1]
    # every position gets a row of the table of its own, so that gradients do not mix
    embedding = np.asarray(table)[tokens[0]]
    params = {**params["text"], "token_embedding": {"embedding": embedding}}
    wide = tower.clone(vocab_size=length)

    def outputs(params):
        features = wide.apply({"params": params}, jnp.arange(length)[None], PROJECTED)
        return features.tokens[0, :, 0]

    gradient = jax.jit(jax.jacrev(outputs))(params)["token_embedding"]["embedding"]
    return np.abs(np.asarray(gradient)).max(axis=2)


@pytest.mark.parametrize("padding_mask", [False, True])
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_token_sees_none_that_causality_or_padding_hides(kind, padding_mask):
    model, params, batch = make(kind)
    end = batch["text"].shape[1] - 1
    if padding_mask:
        end = 4  # `seen_by` numbers the tokens
        model = model.clone(text=model.text.clone(padding_mask=True, eos_id=end))
    for position, gradient in enumerate(seen_by(model, params, batch["text"])):
        last = min(position, end) if model.text.is_causal else end
        assert np.all(gradient[: last + 1] > 0)
        # a token of padding has itself in the residual stream, and no neighbour of its kind
        np.testing.assert_array_equal(np.delete(gradient, [*range(last + 1), position]), 0.0)


def test_a_padding_mask_changes_padding_alone_if_causal():
    model, params, batch = make("clip")
    apply = jax.jit(
        lambda tower, text: tower.apply({"params": params["text"]}, text, PROJECTED),
        static_argnums=0,
    )
    towers = (model.text, model.text.clone(padding_mask=True))
    plain, other = jax.device_get([apply(tower, batch["text"]) for tower in towers])
    np.testing.assert_array_equal(other.pooled, plain.pooled)
    np.testing.assert_array_equal(other.tokens[plain.mask], plain.tokens[plain.mask])
    first = np.cumsum(~plain.mask, axis=1) == 1  # padding that sees the text and itself
    later = ~plain.mask & ~first
    assert later.any()
    assert np.all(np.abs(other.tokens - plain.tokens)[later].max(axis=-1) > 0)


def test_what_follows_the_end_of_text_changes_nothing():
    model, params, batch = make("clip")
    padded = np.asarray(batch["text"])
    is_padding = ~np.asarray(real_tokens(padded, 2))
    assert is_padding.any()
    other = np.where(is_padding, np.int32(9), padded)
    again = np.where(is_padding, np.int32(2), padded)  # CLIP's own padding may be the end token
    expected = encode(model, params, "text", padded)
    for tokens in (other, again):
        result = encode(model, params, "text", tokens)
        np.testing.assert_array_equal(result.pooled, expected.pooled)
        np.testing.assert_array_equal(result.mask, expected.mask)


def test_shorter_texts_may_be_cut_to_their_length():
    model, params, batch = make("clip")
    whole = np.asarray(batch["text"])[:2]
    cut = whole[:, :5]  # their end tokens are at 2 and 4
    expected = encode(model, params, "text", whole).pooled
    np.testing.assert_allclose(encode(model, params, "text", cut).pooled, expected, atol=1e-6)


def test_end_of_text_is_the_first_end_token_or_the_last_position():
    rows = np.int32([[5, 2, 2, 0], [2, 7, 0, 0], [5, 6, 7, 2], [5, 6, 7, 8]])
    np.testing.assert_array_equal(end_of_text(rows, 2), [1, 0, 3, 3])
    expected = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    np.testing.assert_array_equal(real_tokens(rows, 2), expected)


def test_end_of_text_is_argmax_of_ids_for_clips_vocabulary():
    rows = np.random.default_rng(0).integers(1, 49406, (5, 12), np.int32)
    for row, end in enumerate((3, 5, 7, 9, 11)):
        rows[row, end:] = 0
        rows[row, end] = 49407
    found = end_of_text(rows, 49407)
    np.testing.assert_array_equal(found, rows.argmax(axis=1))


@pytest.mark.parametrize(
    ("family", "pooling"), [("clip", "eos"), ("clip", "last"), ("siglip", "last")]
)
def test_pooled_is_the_token_at_the_pooled_position(family, pooling):
    model, params, batch = make(family, text={"pooling": pooling})
    short = encode(model, params, "text", batch["text"])
    full = jax.device_get(encode(model, params, "text", batch["text"], tokens="projected"))
    assert short.tokens is None
    position = [2, 4, 6, 3] if pooling == "eos" else [6] * 4
    np.testing.assert_allclose(full.pooled, full.tokens[np.arange(4), position], atol=1e-6)
    np.testing.assert_allclose(short.pooled, full.pooled, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(full.tokens, axis=-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "length", "pooling"),
    [("clip", 8, "eos"), ("clip", 6, "last"), ("siglip", 6, "last"), ("siglip", 8, "last")],
)
def test_a_length_the_tower_cannot_take_is_refused(family, length, pooling):
    model, params, _ = make(family, text={"pooling": pooling})
    with pytest.raises(errors.UsageError, match=f"takes 7 tokens per text, got {length}"):
        encode(model, params, "text", np.zeros((1, length), np.int32))
