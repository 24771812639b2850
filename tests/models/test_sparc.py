"""SPARC's grouping and local loss against loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilations import apply
from vlc_jax import models, types
from vlc_jax.losses import sparc as loss
from vlc_jax.models import sparc

grouped = jax.jit(sparc.grouped)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def by_hand(patches, tokens):
    groups = []
    for token in tokens:
        similarity = np.array([token @ patch for patch in patches])
        scaled = (similarity - similarity.min()) / (similarity.max() - similarity.min())
        kept = np.where(scaled >= 1 / len(patches), scaled, 0)
        groups.append(sum(weight * patch for weight, patch in zip(kept, patches, strict=True)))
    return unit(np.array(groups))


def test_a_token_that_is_one_patch_picks_it():
    patches = np.eye(5, 6, dtype="f4")
    np.testing.assert_allclose(grouped(patches, patches[1:3]), patches[1:3], atol=1e-6)


def test_equal_patches_give_no_group_and_finite_gradients():
    patches, tokens = np.ones((5, 6), "f4"), np.ones((2, 6), "f4")
    np.testing.assert_array_equal(grouped(patches, tokens), 0)
    gradient = jax.jit(jax.grad(lambda p, t: sparc.grouped(p, t).sum()))(patches, tokens)
    assert np.isfinite(gradient).all()


def test_the_local_loss_is_the_mean_over_all_real_tokens():
    rng = np.random.default_rng(0)
    groups, tokens = unit(rng.normal(size=(3, 5, 4))), rng.normal(size=(3, 5, 4))
    mask = np.arange(5)[None] < np.array([[5], [2], [3]])
    terms = []
    for c, t, real in zip(groups, unit(tokens), mask, strict=True):
        logits = 10 * (c[real] @ t[real].T)
        for matrix in (logits, logits.T):
            shares = np.exp(matrix) / np.exp(matrix).sum(1, keepdims=True)
            terms += list(-np.log(np.diag(shares)))
    arrays = (x.astype("f4") for x in (groups, tokens))
    per_example = np.asarray(jax.jit(loss.local)(*arrays, mask, np.float32(10)))
    np.testing.assert_allclose(per_example.mean(), np.mean(terms), rtol=1e-5)


def test_padding_changes_neither_the_local_loss_nor_its_gradient():
    rng = np.random.default_rng(0)
    groups, tokens = (rng.normal(size=(2, 5, 4)).astype("f4") for _ in range(2))
    mask = np.arange(5)[None] < np.array([[3], [2]])
    other = np.where(mask[..., None], tokens, np.float32(7))

    def value(groups, tokens):
        return loss.local(groups, tokens, jnp.asarray(mask), jnp.float32(10)).sum()

    both = jax.jit(jax.value_and_grad(value, argnums=(0, 1)))
    for a, b in zip(
        jax.tree.leaves(both(groups, tokens)), jax.tree.leaves(both(groups, other)), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("mask_global_text", [True, False])
@pytest.mark.parametrize("chunk", [2, 8])
def test_scores_are_cosines_of_means(mask_global_text, chunk):
    rng = np.random.default_rng(0)
    head = models.HEADS["sparc"](
        6, mask_global_text=mask_global_text, has_class_token=False, dropout=0.0, chunk=chunk
    )
    image = types.ImageFeatures(np.zeros((5, 6), "f4"), rng.normal(size=(5, 9, 8)).astype("f4"))
    mask = np.arange(4)[None] < np.array([[4], [2], [3]])
    text = types.TextFeatures(np.zeros((3, 6), "f4"), rng.normal(size=(3, 4, 7)).astype("f4"), mask)

    def everything(module, image, text):
        image, text = module.image(image), module.text(text)
        pairs = jax.tree.map(lambda x: x[:3], image), text
        return image, text, module.score(image, text), module.training_scores(*pairs)[0]

    begin = jax.jit(functools.partial(head.init, method=everything))
    variables = begin(jax.random.key(0), image, text)
    arrays = apply(head, variables, image, text, method=everything)
    image, text, local, whole = jax.device_get(arrays)
    counts = mask if mask_global_text else np.ones_like(mask)
    for i, patches in enumerate(image.tokens):
        for j, (tokens, real) in enumerate(zip(text.tokens, counts, strict=True)):
            mean = unit(tokens)[real].mean(0)
            expected = unit(by_hand(patches, tokens)[real].mean(0)) @ unit(mean)
            assert local[i, j] == pytest.approx(expected, abs=1e-5)
            if i < len(whole):
                assert whole[i, j] == pytest.approx(unit(patches.mean(0)) @ unit(mean), abs=1e-5)
