"""Scores of pooled patches, by rules and by FLAIR's attention, and their gradients, are torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import models, types
from vlc_jax.models import pooling

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def io(there, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pooling")
    there("pooling_reference.py", folder)
    with np.load(folder / "io.npz") as saved:
        return dict(saved)


def of_attention(io, kind):
    """The arrays of torch's attention and norms, by the names of FLAIR's head."""
    tree = {"out": {"kernel": io[f"{kind}/attention.out_proj.weight"].T}}
    tree["out"]["bias"] = io[f"{kind}/attention.out_proj.bias"]
    kernels, biases = (np.split(io[f"{kind}/attention.in_proj_{x}"], 3) for x in ("weight", "bias"))
    for n, name in enumerate(("query", "key", "value")):
        tree[name] = {"kernel": kernels[n].T, "bias": biases[n]}
        tree[f"{name}_norm"] = {"scale": io[f"{kind}/norm.{n}.weight"]}
        tree[f"{name}_norm"]["bias"] = io[f"{kind}/norm.{n}.bias"]
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def test_flairs_attention_is_that_of_torch(io):
    fields = {"attention_heads": 2, "has_class_token": False, "chunk": 3}
    head = models.HEADS["flair"](io["texts"].shape[1], **fields)

    def value(params, patches, texts):
        def local(head):
            image = head.image(types.ImageFeatures(patches[:, 0], patches))
            text = head.text(types.TextFeatures(texts))
            return head.local(image, {"text": text}, jnp.float32(1.0))["text"]

        scores, own = head.apply({"params": params}, method=local)
        return jnp.sum(io["weights"].astype("f4") * scores), (scores, own)

    given = (of_attention(io, "parameter"), *(io[key].astype("f4") for key in ("patches", "texts")))
    slopes, (scores, own) = jax.jit(jax.grad(value, (0, 1, 2), has_aux=True))(*given)
    np.testing.assert_allclose(scores, io["flair"], atol=2e-6)
    assert np.ptp(io["flair"]) > 0.3
    own_texts = 2 * np.arange(len(own))[:, None] + np.arange(2)
    np.testing.assert_allclose(own, np.take_along_axis(io["flair"], own_texts, 1), atol=2e-6)
    expected = (of_attention(io, "flair"), io["flair/patches"], io["flair/texts"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), slopes, expected)


def test_every_rule_gives_the_scores_and_gradients_of_loops(io):
    names = ("patches", "tokens", "texts", "scale")
    leaves = {key: io[key].astype("f4") for key in names}
    mask = np.arange(io["tokens"].shape[1])[None] < io["counts"][:, None]

    def scores(rule, chunk, patches, tokens, texts, scale):
        options = {"scoring": "global", "has_class_token": False, "chunk": chunk}
        head = models.HEADS["pooled"](rule, **options)
        image = types.ImageFeatures(patches[:, 0], patches)
        text = types.TextFeatures(texts, tokens, jnp.asarray(mask))

        def local(head):
            given = head.image(image, is_training=True), head.text(text, is_training=True)
            return head.local(given[0], {"text": given[1]}, scale)["text"]

        return head.apply({}, method=local)

    def everything(leaves):
        found = {}
        for rule in pooling.RULES:
            for chunk in (2, 8) if rule in ("c2lip", "fsc") else (2,):

                def value(leaves, rule=rule, chunk=chunk):
                    found, own = scores(rule, chunk, **leaves)
                    return jnp.sum(io["weights"].astype("f4") * found), (found, own)

                found[rule, chunk] = jax.grad(value, has_aux=True)(leaves)
        return found

    found = jax.jit(everything)(leaves)
    for (rule, chunk), (slopes, (values, own)) in found.items():
        np.testing.assert_allclose(values, io[rule], atol=2e-6, err_msg=f"{rule} {chunk}")
        first = 2 * np.arange(len(own))[:, None]  # each image has two of the texts
        options = np.take_along_axis(io[rule], first + np.arange(2), axis=1)
        np.testing.assert_allclose(own, options, atol=2e-6, err_msg=f"{rule} {chunk}")
        for key in names:
            expected = io.get(f"{rule}/{key}", np.zeros(io[key].shape))
            np.testing.assert_allclose(slopes[key], expected, atol=2e-5, err_msg=f"{rule} {key}")
