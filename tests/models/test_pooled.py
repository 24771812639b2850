"""Scores of pooled patches: their queries, equal patches, memory, and the model around them.

Their gradients: tests/parity/test_methods.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilations import apply
from vlc_jax import errors, models, types
from vlc_jax.models import pooling

IMAGES, TEXTS, PATCHES, LENGTH, EMBED = 3, 6, 5, 4, 8


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype("f4")

    mask = np.arange(LENGTH)[None] < np.array([[4], [2], [3], [2], [4], [3]])
    image = types.ImageFeatures(normal(IMAGES, EMBED), normal(IMAGES, PATCHES + 1, EMBED))
    return image, types.TextFeatures(normal(TEXTS, EMBED), normal(TEXTS, LENGTH, EMBED), mask)


def make(rule, **options):
    return models.HEADS["pooled"](rule, **{"scoring": "global", "chunk": 2, **options})


def local(head, image, text):
    image, text = head.image(image, is_training=True), head.text(text, is_training=True)
    return head.local(image, {"text": text}, jnp.float32(7.0))["text"]


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def weights_by_hand(rule, patches, query):
    like = patches @ query
    scaled = (like - like.min()) / (like.max() - like.min())
    return {
        "c2lip": np.exp(like),
        "pacl": 1 / (1 + np.exp(-10 * unit(patches) @ query)),
        "fsc": scaled,
        "sparc": scaled * (scaled >= 1 / len(patches)),
        "maxsim": like == like.max(),
    }[rule]


def by_hand(rule, patches, queries):
    """Cosines of one image with the queries of one text."""
    patches = unit(patches) if pooling.RULES[rule].has_unit_patches else patches
    queries = unit(queries)
    pooled = [unit(weights_by_hand(rule, patches, query) @ patches) for query in queries]
    return np.sum(pooled * queries, axis=1)


def reduced(rule, cosines):
    return np.log(np.exp(7 * cosines).sum()) / 7 if rule == "fsc" else cosines.mean()


def test_every_rule_is_its_formula_for_all_pairs_and_own_texts(features):
    image, text = features
    found = {
        rule: apply(make(rule, has_start_token=True), {}, image, text, method=local)
        for rule in pooling.RULES
    }
    for rule, (every, own) in jax.device_get(found).items():
        is_pooled = pooling.RULES[rule].query == "pooled"
        for i, tokens in enumerate(image.tokens.astype("f8")):
            for j in range(TEXTS):
                # without the class token, the start token and padding
                words = text.tokens[j, 1 : text.mask[j].sum()]
                queries = text.pooled[j][None] if is_pooled else words
                expected = reduced(rule, by_hand(rule, tokens[1:], queries.astype("f8")))
                assert every[i, j] == pytest.approx(expected, abs=1e-5), rule
        own_pairs = every[np.arange(3)[:, None], [[0, 1], [2, 3], [4, 5]]]
        np.testing.assert_allclose(own, own_pairs, rtol=1e-6)  # float32 of two programs


def test_equal_patches_give_finite_gradients(features):
    image, text = features
    same = image._replace(tokens=np.ones_like(image.tokens))

    def value(image, text):
        return apply(make("fsc"), {}, image, text, method=local)[0].sum()

    slopes = jax.jit(jax.grad(value, argnums=(0, 1), allow_int=True))(same, text)
    slopes = [slopes[0].tokens, slopes[1].tokens]
    assert all(np.isfinite(slope).all() for slope in slopes)
    score = apply(make("fsc"), {}, same, text, method=local)[0]
    counts = text.mask.sum(axis=1)
    np.testing.assert_allclose(score, np.tile(np.log(counts) / 7, (IMAGES, 1)), rtol=1e-5)


@pytest.mark.parametrize("rule", ["c2lip", "fsc"])
def test_memory_of_a_gradient_is_that_of_a_block_of_pairs(rule):
    def temporary(images, chunk):
        head = make(rule, chunk=chunk, has_class_token=False)
        pooled = jax.ShapeDtypeStruct((images, 4), "f4")
        image = types.ImageFeatures(pooled, jax.ShapeDtypeStruct((images, 50, 4), "f4"))
        tokens = jax.ShapeDtypeStruct((images, 20, 4), "f4")
        text = types.TextFeatures(pooled, tokens, jax.ShapeDtypeStruct((images, 20), bool))

        def value(image, text):
            scores = head.apply({}, image, text, method=local)[0]
            return jnp.sum(jnp.sin(scores))

        gradient = jax.jit(jax.grad(value, argnums=(0, 1), allow_int=True))
        return gradient.lower(image, text).compile().memory_analysis().temp_size_in_bytes

    block, twice, whole = temporary(64, 8), temporary(128, 8), temporary(64, 64)
    assert twice < 2.2 * block
    assert whole > 8 * block


def test_with_global_scores_the_model_is_clip():
    fields = {"clip": {}, "pooled": {"rule": "fsc", "scoring": "global"}}
    built = {name: models.build(name, "mini", head=head) for name, head in fields.items()}
    shapes = [
        jax.eval_shape(lambda key, model=model: models.init(model, key), jax.random.key(0))
        for model in built.values()
    ]
    assert shapes[0] == shapes[1]
    head = built["pooled"].head
    assert not built["pooled"].has_head
    assert head.reads_pooled == (True, True)
    image = types.ImageFeatures(np.ones((2, 3), "f4"), np.ones((2, 5, 3), "f4"))
    assert jax.eval_shape(head.image, image).tokens is None


def test_a_mapping_starts_as_the_scores_without_it(features):
    image, text = features
    plain, mapped = (
        make("maxsim", scoring="local", mapping=mapping, width=EMBED)
        for mapping in ("none", "linear")
    )

    def score(head, image, text):
        return head.score(head.image(image), head.text(text))

    begin = jax.jit(lambda key, *given: mapped.init_with_output(key, *given, method=score))
    found, variables = begin(jax.random.key(0), image, text)
    np.testing.assert_allclose(found, apply(plain, {}, image, text, method=score), atol=1e-6)
    assert {x.shape for x in jax.tree.leaves(variables)} == {(EMBED, EMBED)}
    with pytest.raises(errors.UsageError, match="mapping='linear' changes scores"):
        make("maxsim", mapping="linear", width=EMBED)


def test_flair_has_the_authors_million_parameters():
    model = models.build("flair", "B/16")
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(shapes["head"])) == 4 * (512**2 + 512) + 6 * 512


def test_flair_gives_a_text_that_no_patch_shows_no_patch():
    """The zero token takes the weight that a softmax over patches alone would have to give away."""
    head = models.HEADS["flair"](width=EMBED, attention_heads=1, has_class_token=False)
    keys, one = np.full((1, PATCHES, 2 * EMBED), -50, "f4"), np.ones((1, EMBED), "f4")
    image = types.ImageFeatures(one, keys)
    weights = jax.jit(lambda *given: head.apply({}, *given, method="patch_maps")["weights"])
    for sign, total in ((1.0, 0.0), (-1.0, 1.0)):
        text = types.TextFeatures(one, np.float32(sign) * one[:, None])
        np.testing.assert_allclose(np.sum(np.asarray(weights(image, text))), total, atol=1e-5)


def test_a_score_with_logits_inside_is_not_for_evaluation():
    with pytest.raises(errors.UsageError, match="scoring='global'"):
        make("fsc", scoring="local")
