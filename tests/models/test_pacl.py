"""PACL against its formula, written with loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilations import apply
from vlc_jax import models, types
from vlc_jax.models import pooling

IMAGES, TEXTS, PATCHES, WIDTH, EMBED = 5, 4, 9, 8, 6


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)
    image = types.ImageFeatures(
        np.zeros((IMAGES, EMBED), "f4"), rng.normal(size=(IMAGES, PATCHES + 1, WIDTH)).astype("f4")
    )
    text = types.TextFeatures(rng.normal(size=(TEXTS, EMBED)).astype("f4"))
    return image, text


def make(**options):
    return models.HEADS["pacl"](width=EMBED, **{"dropout": 0.0, **options})


@functools.partial(jax.jit, static_argnums=0)
def begin(head, features):
    def everything(module, image, text):
        return module.score(module.image(image), module.text(text))

    return head.init(jax.random.key(0), *features, method=everything)


def init(head, features):
    rng = np.random.default_rng(1)  # no parameter is zero
    return jax.tree.map(
        lambda x: np.asarray(x) + 0.3 * rng.normal(size=x.shape).astype("f4"), begin(head, features)
    )


@functools.partial(jax.jit, static_argnums=0, static_argnames=("method", "is_training"))
def scores(head, variables, features, method="score", is_training=False):
    def embed_and_score(module, image, text):
        image, text = module.image(image), module.text(text)
        return getattr(module, method)(image, text, is_training=is_training)

    return head.apply(variables, *features, method=embed_and_score)


def run(*args, **kwargs):
    return np.asarray(scores(*args, **kwargs))


@functools.partial(jax.jit, static_argnums=0)
def embed(head, variables, features):
    def embed(module, image, text):
        return module.image(image).tokens, module.text(text).pooled

    return head.apply(variables, *features, method=embed)


def embedded(head, variables, features):
    """What the formula starts from: embedded patches, and texts of unit length."""
    return (np.asarray(x, np.float64) for x in embed(head, variables, features))


def pooled(patches, text, weigh=lambda s: 1 / (1 + np.exp(-10 * s))):
    total = np.zeros(patches.shape[-1])
    for patch in patches:
        cosine = patch @ text / np.linalg.norm(patch)
        total += weigh(cosine) * patch
    return total / np.linalg.norm(total)


@pytest.mark.parametrize("repeats", [1, 3])  # fewer texts than patches, and more
def test_the_score_is_the_formula(features, repeats):
    head = make()
    image, text = features
    features = image, types.TextFeatures(np.concatenate([text.pooled] * repeats))
    variables = init(head, features)
    patches, texts = embedded(head, variables, features)
    expected = [[pooled(image, text) @ text for text in texts] for image in patches]
    np.testing.assert_allclose(run(head, variables, features), expected, atol=1e-6)
    assert np.ptp(expected) > 0.1


def test_options_are_scored_like_pairs(features):
    head = make()
    variables = init(head, features)
    image, text = features
    options = types.TextFeatures(np.concatenate([text.pooled[:2]] * IMAGES))
    every = run(head, variables, features)[:, :2]
    own = run(head, variables, (image, options), method="score_options")
    np.testing.assert_allclose(own, every, atol=1e-6)


def test_the_gram_matrix_has_the_gradient_of_pooled_vectors():
    rng = np.random.default_rng(0)
    patches, weights, scale = (
        rng.normal(size=shape).astype("f4") for shape in ((2, 5, 3), (2, 5, 4), (2, 4))
    )

    def from_gram(patches, weights):
        gram = jnp.einsum("ipe,iqe->ipq", patches, patches)
        return jnp.sum(scale * pooling.quadratic(gram, weights))

    def from_pooled(patches, weights):
        pooled = jnp.einsum("ipt,ipe->ite", weights, patches)
        return jnp.sum(scale * jnp.sum(pooled**2, axis=-1))

    found, expected = (
        jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(patches, weights)
        for f in (from_gram, from_pooled)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_own_caption_pooling_is_the_pairwise_diagonal(features):
    image, text = features
    image = jax.tree.map(lambda x: x[:TEXTS], image)

    def seen(module, image, text):
        image, text = module.image(image), module.text(text)
        return module.outputs(image, {"text": text})[0]["text"][0]

    own, pairwise = (make(pooling=pooling) for pooling in ("own_caption", "pairwise"))
    variables = init(own, features)
    diagonal, whole = (
        np.asarray(apply(head, variables, image, text, method=seen)) for head in (own, pairwise)
    )
    np.testing.assert_allclose(np.diag(diagonal), np.diag(whole), atol=1e-6)
    patches, texts = embedded(own, variables, (image, text))
    expected = np.stack([pooled(*pair) for pair in zip(patches, texts, strict=True)]) @ texts.T
    np.testing.assert_allclose(diagonal, expected, atol=1e-6)
    assert np.abs(diagonal - whole).max() > 1e-3


def test_uniform_pooling_knows_no_text(features):
    features = jax.tree.map(lambda x: x[:TEXTS], features)
    evaluated, trained, plain = make(eval_pooling="uniform"), make(pooling="uniform"), make()
    variables = init(evaluated, features)
    patches, texts = embedded(evaluated, variables, features)
    expected = [[pooled(image, text, lambda s: 1) @ text for text in texts] for image in patches]
    np.testing.assert_allclose(run(evaluated, variables, features), expected, atol=1e-6)
    np.testing.assert_allclose(
        run(evaluated, variables, features, is_training=True),
        run(plain, variables, features),
        atol=1e-6,
    )

    def train(head, image, text):
        image, text = head.image(image), head.text(text)
        return head.outputs(image, {"text": text})[0]["text"][0]

    found = apply(trained, variables, *features, method=train)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_parts_drop_the_same_out(features):
    variables = init(make(), features)

    @functools.partial(jax.jit, static_argnums=0)
    def embedded(head, image, seed):
        def embed(head, image):
            return head.image(image, is_training=True).tokens

        rngs = {"dropout": jax.random.key(seed)}
        return head.apply(variables, image, method=embed, rngs=rngs)

    whole, parts, other = (
        np.asarray(embedded(make(dropout=0.5, chunk=chunk), features[0], seed))
        for chunk, seed in ((8, 3), (1, 3), (8, 4))
    )
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    assert np.abs(whole - other).max() > 1e-3


@pytest.mark.parametrize("rope", ["none", "feature_1d", "feature_2d"])
@pytest.mark.parametrize("eval_pooling", ["uniform", "sigmoid"])
def test_only_turned_patches_know_their_place(features, rope, eval_pooling):
    head = make(rope=rope, eval_pooling=eval_pooling)
    variables = init(head, features)
    image, text = features
    order = np.array([0, 5, 1, 3, 2, 4, 9, 8, 7, 6])  # the class token stays
    moved = image._replace(tokens=image.tokens[:, order])
    change = np.abs(run(head, variables, (moved, text)) - run(head, variables, features)).max()
    assert (change < 1e-5) == (rope == "none")


def test_the_head_has_the_authors_parameters():
    one = {"depth": 1}  # the head has the width of the towers alone
    model = models.build("pacl", "L/14-336", image=one, text=one)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    sizes = {
        name: sum(leaf.size for leaf in jax.tree.leaves(part))
        for name, part in shapes["head"].items()
    }
    assert sizes == {"patch_embedder": 2_167_040, "text_embedder": 592_128}
