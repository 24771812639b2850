"""LABCLIP against its formula."""

import functools

import jax
import numpy as np

from tests.support.compilations import apply
from vlc_jax import models, types

IMAGES, TEXTS, EMBED = 5, 4, 6


def unit(rng, *shape):
    x = rng.normal(size=shape)
    return np.float32(x / np.linalg.norm(x, axis=-1, keepdims=True))


def scores(head, variables, image, text):
    def score(module, image, text):
        return module.score(module.image(image), module.text(text))

    features = types.ImageFeatures(image), types.TextFeatures(text)
    return np.asarray(apply(head, variables, *features, method=score))


def test_score_is_the_cosine_of_image_and_mapped_text():
    rng = np.random.default_rng(0)
    head, image, text = models.HEADS["labclip"](width=EMBED), *(unit(rng, n, EMBED) for n in (5, 4))
    init = jax.jit(functools.partial(head.init, method="text"))
    variables = init(jax.random.key(0), types.TextFeatures(text))
    # the identity: the scores of the towers
    np.testing.assert_allclose(scores(head, variables, image, text), image @ text.T, atol=1e-6)
    a = rng.normal(size=(EMBED, EMBED))
    variables = {"params": {"alignment": {"kernel": np.float32(a.T)}}}
    expected = np.zeros((IMAGES, TEXTS))
    for i, v in enumerate(np.asarray(image, np.float64)):
        for j, t in enumerate(np.asarray(text, np.float64)):
            expected[i, j] = v @ (a @ t) / np.linalg.norm(a @ t)
    np.testing.assert_allclose(scores(head, variables, image, text), expected, atol=1e-6)


def test_the_map_is_all_that_is_trained_between_frozen_towers():
    model = models.build("labclip", "mini")
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    assert jax.tree.map(lambda x: x.shape, shapes["head"]) == {
        "alignment": {"kernel": (model.image.embed, model.text.embed)}
    }
