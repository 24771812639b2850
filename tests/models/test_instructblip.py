"""InstructBLIP: its image tokens depend on the question, and on nothing else of a row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.support import instructblip, small_models
from vlc_jax import types
from vlc_jax.errors import UsageError
from vlc_jax.weights import llava_sizes

LENGTH = 24  # half of it for the question
ASKED = [-4, -6, -7, -5]  # [CLS], two words, [SEP]


@pytest.fixture(scope="module")
def model():
    return instructblip.build(instructblip.SIZES, LENGTH, chunk=2)


@pytest.fixture(scope="module")
def params(model):
    return jax.device_put(small_models.parameters(model, 0.8))


def rows(*texts):
    """Rows of ids, of pairs (question, text)."""
    half, found = LENGTH // 2, np.zeros((len(texts), LENGTH), np.int32)
    found[:, :half] = types.NOT_ASKED
    for row, (asked, text) in zip(found, texts, strict=True):
        row[: len(asked)], row[half : half + len(text)] = asked, text
    return found


@pytest.fixture(scope="module")
def images():
    pixels = np.random.default_rng(2).normal(size=(3, 8, 8, 3))
    return jax.device_put(pixels.astype(np.float32))


@pytest.fixture(scope="module")
def scores_of(model, params, images):
    """Scores of all images with the rows, and of each image with them as its own options."""

    @jax.jit
    def both(ids):
        def call(model, ids):
            image, text = model.encode_image(images), model.encode_text(ids)
            own = jax.tree.map(lambda x: jnp.concatenate([x] * len(images)), text)
            return model.score(image, text), model.score_options(image, own)

        return nn.apply(call, model)({"params": params}, ids)

    return both


TEXT = [3, 4, 5, 1]


def test_the_question_changes_the_score_of_the_same_text(scores_of):
    other = [*ASKED[:1], *ASKED[2:0:-1], *ASKED[3:]]  # another order of the words
    scores, own = scores_of(rows((ASKED, TEXT), (other, TEXT), ([], TEXT)))
    np.testing.assert_allclose(own, scores, atol=1e-5)
    assert np.ptp(scores, axis=1).min() > 1e-3
    assert np.abs(np.diff(np.sort(scores, axis=1), axis=1)).min() > 1e-4
    assert np.ptp(scores, axis=0).min() > 1e-3  # and the image


def test_the_padding_of_a_question_changes_nothing(model, params, images):
    """Also of a row that is longer: no token of the Q-Former sees it."""

    @jax.jit
    def tokens(ids):
        def call(model):
            return model.head.image_tokens(model.encode_image(images).tokens, ids)

        return nn.apply(call, model)({"params": params})

    short = rows(*[(ASKED, TEXT)] * 3)
    longest = rows(*[(ASKED * 3, TEXT)] * 3)
    padded, cut = tokens(short), tokens(short[:, : len(ASKED)])
    np.testing.assert_allclose(padded, cut, atol=1e-5)
    assert np.abs(padded - tokens(longest)).max() > 1e-2
    assert padded.shape == (3, instructblip.QFORMER["queries"], instructblip.SIZES["lm"]["width"])


def test_a_question_that_is_attached_to_an_image_is_refused(model, images):
    with pytest.raises(UsageError, match=r"the question of a text.*set config\.input\.question=''"):
        jax.eval_shape(
            lambda x, ids: model.init(jax.random.key(0), x, ids, method="encode_image"),
            images,
            rows(*[(ASKED, TEXT)] * 3),
        )


def test_published_sizes():
    """Numbers of the tensors that transformers builds from the published config.json."""
    shapes = instructblip.shapes(llava_sizes.read(instructblip.PUBLISHED))
    count = {part: sum(x.size for x in jax.tree.leaves(tree)) for part, tree in shapes.items()}
    assert count == {
        "image": 985_952_256,
        "reader": 185_684_736,
        "projector": 3_149_824,
        "lm": 6_738_423_808,
    }
