"""Towers of text vectors against their formulas in numpy, and what they refuse."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from vlc_jax import models, types
from vlc_jax.errors import UsageError
from vlc_jax.losses import masks
from vlc_jax.models.text_vectors import VectorTower

WIDTH, EMBED, TEXTS = 6, 5, 4
VECTORS = np.random.default_rng(0).normal(size=(TEXTS, WIDTH)).astype(np.float32)


def make(**options):
    """A tower and parameters, all of them random."""
    tower = VectorTower(**{"width": WIDTH, "projection": EMBED, **options})
    return tower, small_models.drawn(tower.init, VECTORS, seed=1).get("params", {})


def run(tower, params):
    """Embeddings of the vectors, of vectors of three times the length, and before their scaling."""

    @jax.jit
    def run(text):
        raw = types.FeatureRequest(is_unit=False)
        requests = ((text, types.POOLED_ONLY), (3 * text, types.POOLED_ONLY), (text, raw))
        return [tower.apply({"params": params}, *request).pooled for request in requests]

    return jax.device_get(run(VECTORS))


def dense(params, x):
    return x @ np.asarray(params["kernel"], np.float64) + np.asarray(params["bias"], np.float64)


def norm(params, x):
    x = x - x.mean(axis=1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)
    return x * np.asarray(params["scale"], np.float64) + np.asarray(params["bias"], np.float64)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def llm2clip(params, x, blocks):
    x = unit(x)
    for i in range(blocks):
        inner = gelu(dense(params[f"block_{i}_up"], norm(params[f"block_{i}_norm"], x)))
        x = x + dense(params[f"block_{i}_down"], inner)
    return dense(params["projection"], norm(params["norm"], x))


FORMULAS = {
    "linear": lambda p, x: dense(p["projection"], x),
    "mlp2x_gelu": lambda p, x: dense(p["projection"], gelu(dense(p["up"], x))),
    "llm2clip": lambda p, x: llm2clip(p, x, 3),
    "none": lambda p, x: x,
}


@pytest.mark.parametrize("connector", FORMULAS)
def test_the_embedding_is_the_formula(connector):
    tower, params = make(connector=connector, blocks=3)
    expected = FORMULAS[connector](params, VECTORS.astype(np.float64))
    found, of_longer, raw = run(tower, params)
    np.testing.assert_allclose(raw, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, unit(expected), atol=1e-5)
    assert raw.shape[1] == tower.embed
    # llm2clip does not see the length of a vector, and those of none have unit length
    assert (np.abs(found - of_longer).max() > 1e-3) == (connector in ("linear", "mlp2x_gelu"))


def shapes(**options):
    model = models.build(**options)
    params = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    return params, models.parameter_counts(params)


def test_the_adapter_of_llm2clip_has_the_published_parameters():
    block = 2 * 4096 + 4096 * 8192 + 8192 + 8192 * 4096 + 4096
    expected = 4 * block + 2 * 4096 + 4096 * 1280 + 1280
    text = {"connector": "llm2clip", "projection": 1280}
    params, counts = shapes(name="pacl", variant="L/14-336", vector_width=4096, text=text)
    assert counts["text"] == expected == 273_769_728
    embedder = sum(x.size for x in jax.tree.leaves(params["head"]["text_embedder"]))
    assert embedder == 2 * 1280 + 1280 * 768 + 768


def test_the_projector_of_llava_has_its_parameters():
    text = {"connector": "mlp2x_gelu"}
    _, counts = shapes(variant="L/14-336", vector_width=4096, text=text)
    assert counts["text"] == (4096 + 1) * 768 + (768 + 1) * 768


def test_vectors_that_go_straight_into_pacl_have_no_tower():
    params, counts = shapes(
        name="pacl", variant="L/14-336", vector_width=1280, text={"connector": "none"}
    )
    assert "text" not in params
    assert set(counts) == {"image", "head", "total"}
    assert params["head"]["text_embedder"]["linear"]["kernel"].shape == (1280, 768)


def test_the_other_options_of_a_model_stay_those_of_the_image():
    model = models.build(
        "clip", "B/32", vector_width=7, activation="gelu", remat="block", dtype="bfloat16"
    )
    assert (model.image.activation, model.image.remat) == ("gelu", "block")
    assert model.text.dtype == jnp.bfloat16
    assert (model.text.width, model.text.embed) == (7, 512)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "dcsm"}, "dcsm reads the tokens of a text.*use clip, labclip or pacl"),
        ({"name": "sparc"}, "sparc reads the tokens of a text"),
        ({"context_length": 9}, "context_length needs a text tower"),
        ({"text": {"conector": "linear"}}, "did you mean 'connector'"),
        ({"text": {"connector": "mlp"}}, "connector of the text tower.*mlp2x_gelu"),
        ({"text": {"depth": 3}}, "option of the text tower"),
        ({"text": {"projection": 40}}, "image tower gives 96 numbers.*vectors 40"),
        ({"text": {"connector": "none"}}, "gives 96 numbers, the connector of the text vectors 7"),
    ],
)
def test_what_does_not_fit_vectors_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        models.build(**{"variant": "mini", "vector_width": 7, **options})


def test_vectors_of_another_width_and_token_ids_are_refused():
    tower, params = make()

    def embed(text, *request):
        return jax.eval_shape(lambda text: tower.apply({"params": params}, text, *request), text)

    for text in (np.zeros((2, WIDTH + 1), np.float32), np.zeros((2, WIDTH), np.int32)):
        with pytest.raises((UsageError, TypeError), match=r"vectors of width 6|Float"):
            embed(text)
    with pytest.raises(UsageError, match="text vectors have no tokens"):
        embed(VECTORS, types.FeatureRequest("projected"))


@pytest.mark.parametrize("name", ["clip", "pacl"])
def test_hard_texts_are_scored_as_texts_of_their_own(name):
    model = models.build(
        *(name, "mini"), vector_width=WIDTH, image={"projection": EMBED}, text={"projection": EMBED}
    )
    if name == "pacl":
        model = model.clone(head=model.head.clone(dropout=0.0))
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jax.device_put(rng.normal(size=shape).astype(np.float32))

    groups = {"text": (4,), "negative_text": (4, 2), "positive_text": (4, 3)}
    texts = {key: normal(*count, WIDTH) for key, count in groups.items()}
    stored = types.ImageFeatures(normal(4, EMBED), normal(4, 10, 96))  # the tower is not run
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    params = {k: jax.tree.map(lambda x: normal(*x.shape), x) for k, x in shapes.items()}
    batch = {"image_pooled": stored.pooled, "image_tokens": stored.tokens, **texts}
    rngs = {"dropout": jax.random.key(1)}
    outputs = jax.jit(lambda batch: model.apply({"params": params}, batch, rngs=rngs))(batch)

    def scores(module, text):
        return module.score(module.head.image(stored), module.encode_text(text))

    @jax.jit
    def alone(texts):
        return {
            key: model.apply({"params": params}, text.reshape(-1, WIDTH), method=scores)
            for key, text in texts.items()
        }

    found = jax.device_get(alone(texts))
    np.testing.assert_allclose(outputs.scores, found["text"], atol=1e-5)
    for kind, count in (("negative", 2), ("positive", 3)):
        expected = found[f"{kind}_text"].reshape(4, 4, count)
        np.testing.assert_allclose(getattr(outputs, f"{kind}_scores"), expected, atol=1e-5)


def test_equal_vectors_have_equal_names_and_others_have_not():
    names = jax.jit(masks.text_hash)
    found = np.asarray(names(VECTORS[[0, 1, 0, 2]]))
    assert (found[0] == found[2]).all()
    assert len({tuple(row) for row in found}) == 3
    assert (found != np.asarray(names(-VECTORS[[0, 1, 0, 2]]))).any(axis=1).all()
