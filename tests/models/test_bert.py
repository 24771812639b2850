"""The encoder of BERT: published sizes, padding, and texts that attend to their own image."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilations import apply
from vlc_jax import errors
from vlc_jax.models import bert

# parameters of transformers' classes without the pooler
PUBLISHED = {
    "bert-base-uncased": ({}, 108_891_648),
    "bert-large-uncased": (
        {"width": 1024, "depth": 24, "heads": 16, "mlp_width": 4096},
        334_092_288,
    ),
    "roberta-base": (
        {"vocab_size": 50_265, "positions": 514, "token_types": 1, "first_position": 2},
        124_055_040,
    ),
    "xlm-roberta-base": (
        {"vocab_size": 250_002, "positions": 514, "token_types": 1, "first_position": 2},
        277_453_056,
    ),
}
TINY = {"vocab_size": 20, "width": 8, "depth": 2, "heads": 2, "mlp_width": 12, "cross": (1,)}


def test_published_sizes_have_the_published_number_of_parameters():
    for name, (sizes, expected) in PUBLISHED.items():
        shapes = jax.eval_shape(
            bert.Encoder(**sizes).init, jax.random.key(0), jnp.zeros((1, 3), jnp.int32)
        )
        assert sum(x.size for x in jax.tree.leaves(shapes)) == expected, name


def test_a_token_sees_its_text_and_its_image_and_no_padding():
    encoder = bert.Encoder(**TINY)
    rng = np.random.default_rng(0)
    ids, ends = rng.integers(1, 20, (4, 5)), np.array([2, 4, 3, 4])
    images = rng.normal(size=(2, 3, 6)).astype(np.float32)
    ids, ends, images = jax.device_put((ids, ends, images))
    params = jax.jit(encoder.init)(jax.random.key(0), ids, ends, images)

    def first(x, images):  # the first token of text 2, whose padding begins at 4
        return encoder.apply(params, x, ends, images, method="blocks")[
            2, 0, 0
        ]  # a whole row sums to 0 after its norm

    x = apply(encoder, params, ids, method="embed")
    of_x, of_images = jax.device_get(jax.jit(jax.grad(first, (0, 1)))(x, images))
    is_seen = np.abs(of_x).max(axis=2) > 0
    expected = np.zeros((4, 5), bool)
    expected[2, :4] = True
    np.testing.assert_array_equal(is_seen, expected)
    np.testing.assert_array_equal(np.abs(of_images).max(axis=2) > 0, [[False] * 3, [True] * 3])
    with pytest.raises(errors.UsageError, match="positions for 4 tokens, got 5"):
        apply(encoder.clone(positions=5, first_position=1), params, ids)
