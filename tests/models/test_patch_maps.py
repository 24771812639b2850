"""What heads show of a pair: where a patch is what the text says, and what the score is made of."""

import functools

import jax
import numpy as np
import pytest

from vlc_jax import models, types

PAIRS, PATCHES, LENGTH, EMBED, WORDS = 3, 9, 5, 16, 2
PLACES = np.array([4, 0, 7])  # per pair, the patch that is like the text
TOKEN = 2  # of the text that it is like


@pytest.fixture(scope="module")
def pair():
    """Features as heads score them; patch PLACES[i] of image i is token TOKEN of text i."""
    rng = np.random.default_rng(0)
    patches, tokens = (
        rng.normal(size=(PAIRS, count, EMBED)).astype("f4") for count in (PATCHES, LENGTH)
    )
    patches, tokens = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (patches, tokens))
    patches[np.arange(PAIRS), PLACES] = tokens[:, TOKEN]
    marks = np.zeros((PAIRS, LENGTH), np.int8)
    marks[1, 3] = 2
    image = types.ImageFeatures(patches.mean(1), patches)
    mask = np.ones((PAIRS, LENGTH), bool)
    return image, types.TextFeatures(tokens[:, TOKEN], tokens, mask, marks)


def run(head, method, *features, **params):
    @jax.jit
    def apply(*features):
        return head.apply({"params": params}, *features, method=method)

    return jax.tree.map(np.asarray, apply(*features))


def dcsm_maps(image, text, **options):
    """Of a head with these vectors of words, and what these are; no map reads its network."""
    options = {"num_functional_words": WORDS, "has_class_token": False, "network": "mlp", **options}
    head = models.HEADS["dcsm"](PATCHES, LENGTH, **options)
    init = functools.partial(head.init, method="score")
    shapes = jax.eval_shape(init, jax.random.key(0), image, text)
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes["params"])
    vectors = np.random.default_rng(1).random((WORDS, PATCHES)).astype("f4")

    def maps(module, image, text):
        return module.patch_maps(image, module.text(text))

    return run(head, maps, image, text, **{**params, "functional_words": vectors}), vectors


def test_pacl_weighs_the_patch_that_is_the_text_most(pair):
    head = models.HEADS["pacl"](width=EMBED)
    weights = run(head, "patch_maps", *pair)["weights"]
    assert weights.shape == (PAIRS, PATCHES)
    assert weights.argmax(1).tolist() == PLACES.tolist()
    np.testing.assert_allclose(weights.max(1), 1 / (1 + np.exp(-10)), rtol=1e-6)
    pooled = np.einsum("ip,ipe->ie", weights, pair[0].tokens)
    cosine = np.sum(pooled * pair[1].pooled, axis=1) / np.linalg.norm(pooled, axis=1)
    scores = run(head, "score_options", *pair)[:, 0]
    np.testing.assert_allclose(scores, cosine, atol=1e-6)


def test_sparc_groups_the_patch_that_is_the_token_most(pair):
    head = models.HEADS["sparc"](width=EMBED)
    groups = run(head, "patch_maps", *pair)["groups"]
    assert groups.shape == (PAIRS, PATCHES, LENGTH)
    assert groups[:, :, TOKEN].argmax(1).tolist() == PLACES.tolist()
    np.testing.assert_allclose(groups.sum(1), 1, atol=1e-5)
    grouped = np.einsum("ipl,ipe->ile", groups, pair[0].tokens)
    grouped /= np.linalg.norm(grouped, axis=-1, keepdims=True)
    one, other = grouped.mean(1), pair[1].tokens.mean(1)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    expected = np.sum(one * other, axis=1) / norms
    np.testing.assert_allclose(run(head, "score_options", *pair)[:, 0], expected, atol=1e-5)


def test_dcsm_shows_similarities_and_the_vectors_of_words(pair):
    found, vectors = dcsm_maps(*pair)
    similarity = found["similarity"]
    assert similarity[:, :, TOKEN].argmax(1).tolist() == PLACES.tolist()
    np.testing.assert_allclose(similarity[:, :, TOKEN].max(1), 1, atol=1e-5)
    np.testing.assert_allclose(similarity[1, :, 3], vectors[1])
    expected = np.tile(np.arange(LENGTH), (PAIRS, 1))
    expected[1, 3] = -2
    np.testing.assert_array_equal(found["columns"], expected)


def test_a_word_in_front_of_its_token_moves_the_others_on(pair):
    image, text = pair
    found, vectors = dcsm_maps(image, text, functional_words="insert")
    assert found["columns"][1].tolist() == [0, 1, 2, -2, 3]
    plain = np.einsum("pd,td->pt", image.tokens[1], text.tokens[1])
    np.testing.assert_allclose(found["similarity"][1, :, [0, 1, 2, 4]], plain[:, :4].T, atol=1e-6)
    np.testing.assert_allclose(found["similarity"][1, :, 3], vectors[1])


@pytest.mark.parametrize(
    ("name", "options"),
    [("clip", {}), ("pacl", {"eval_pooling": "uniform"}), ("sparc", {"scoring": "global"})],
)
def test_a_score_of_pooled_features_has_nothing_to_show(pair, name, options):
    width = {} if name == "clip" else {"width": EMBED}
    assert run(models.HEADS[name](**width, **options), "patch_maps", *pair) == {}
