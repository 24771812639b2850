"""Random embeddings, with hard negatives and positives too, meshes, and losses by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from vlc_jax import losses, types
from vlc_jax.losses import masks


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def arrays():
    """24 examples, the last 5 of them padding."""
    rng = np.random.default_rng(0)
    return {
        "image": jnp.asarray(unit(rng.normal(size=(24, 6))), jnp.float32),
        "text": jnp.asarray(unit(rng.normal(size=(24, 6))), jnp.float32),
        "logit_scale": jnp.float32(7.0),
        "logit_bias": jnp.float32(-3.0),
        "mask": jnp.arange(24) < 19,
    }


@pytest.fixture
def batch(arrays):
    """`arrays` with texts: 3 hard negatives and 2 hard positives, of which some are missing.

    Examples 3 and 7 have neither, 4 and 20 (padding) have all.
    """
    rng = np.random.default_rng(2)
    more = {}
    for kind, count in (("negative", 3), ("positive", 2)):
        mask = rng.random((24, count)) < 0.7
        mask[[3, 7]], mask[[4, 20]] = False, True
        more[kind] = jnp.asarray(unit(rng.normal(size=(24, count, 6))), jnp.float32)
        more[f"{kind}_mask"] = jnp.asarray(mask)
        more[f"{kind}_text"] = jnp.asarray(rng.integers(0, 99, (24, count, 5)), jnp.int32)
    tokens = jnp.asarray(rng.integers(0, 99, (24, 5)), jnp.int32)
    record_id = jnp.asarray(rng.integers(0, 2**32, (24, 2)), jnp.uint32)
    return {**arrays, **more, "tokens": tokens, "id": record_id}


@pytest.fixture
def repeated(batch):
    """`batch` with pairs that are no true negatives."""
    tokens, ids = batch["tokens"], batch["id"]
    negative, positive = batch["negative_text"], batch["positive_text"]
    has_negative = (
        batch["negative_mask"].at[4, 0].set(True).at[5].set(jnp.array([False, True, False]))
    )
    has_positive = batch["positive_mask"].at[8, 0].set(True).at[11, 1].set(True)
    tokens = tokens.at[2].set(tokens[5]).at[21].set(tokens[0])  # 21 is padding
    return {
        **batch,
        "tokens": tokens,
        "id": ids.at[1].set(ids[9]).at[13, 0].set(ids[14, 0]),  # half a hash is none
        "negative_text": negative.at[4, 0].set(tokens[6]).at[5, 1].set(tokens[5]),
        "negative_mask": has_negative,
        "positive_text": positive.at[8, 0].set(tokens[10]).at[11, 1].set(tokens[11]),
        "positive_mask": has_positive,
    }


EMBEDDINGS = ("image", "text", "negative", "positive")


def outputs(batch):
    """What a model would give: all scores are dot products."""
    image, text, negative, positive = (batch[key] for key in EMBEDDINGS)
    return types.Outputs(
        image=types.ImageFeatures(image),
        text=types.TextFeatures(
            *(text, text[:, None], jnp.ones((len(text), 1), bool)),
            ids=jnp.zeros((len(text), 1), jnp.int32),
        ),
        scores=image @ text.T,
        logit_scale=batch["logit_scale"],
        logit_bias=batch["logit_bias"],
        own_scores=jnp.einsum("ie,ie->i", image, text),
        negative_text=types.TextFeatures(negative),
        negative_scores=jnp.einsum("ie,tne->itn", image, negative),
        own_negative_scores=jnp.einsum("ie,ine->in", image, negative),
        positive_text=types.TextFeatures(positive),
        positive_scores=jnp.einsum("ie,tpe->itp", image, positive),
        own_positive_scores=jnp.einsum("ie,ipe->ip", image, positive),
        token_groups=image[:, None],
    )


def contract(batch):
    """The batch as the input pipeline makes it: "text" are tokens, not embeddings."""
    return {**batch, "text": batch["tokens"]}


@functools.cache  # one compilation for all tests of a loss
def _per_example(name, implementation, duplicates, options):
    def values(batch):
        pair_masks = masks.pair_masks(contract(batch), duplicates)
        return losses.LOSSES[name].values(
            implementation, outputs(batch), pair_masks, **dict(options)
        )

    return jax.jit(values)


@pytest.fixture
def per_example():
    """per_example(name, batch, implementation="dense", duplicates="keep", **options) -> values."""

    def call(name, batch, implementation="dense", duplicates="keep", **options):
        return _per_example(name, implementation, duplicates, tuple(options.items()))(batch)

    return call


@functools.cache
def _total(config, mesh):
    config = {name: dict(options) for name, options in config}
    return jax.jit(lambda batch: losses.total(config, outputs(batch), contract(batch), mesh)[0])


@pytest.fixture
def weighted():
    """weighted({name: weight}, batch) -> what is minimised."""

    def call(weights, batch):
        config = tuple((name, (("weight", weight),)) for name, weight in weights.items())
        return _total(config, None)(batch)

    return call


@pytest.fixture
def total():
    """total(name, batch, **options) -> the mean that is minimised."""

    def call(name, batch, mesh=None, **options):
        config = ((name, (("weight", 1.0), *options.items())),)
        return _total(config, mesh)(batch)

    return call


@functools.cache
def _gradient(name, mesh, options):
    def value(inputs, batch):
        config = {name: {"weight": 1.0, **dict(options)}}
        batch = {**batch, **inputs}
        return losses.total(config, outputs(batch), contract(batch), mesh)[0]

    return jax.jit(jax.value_and_grad(value))


@pytest.fixture
def gradient():
    """gradient(name, batch, **options) -> the mean and its slopes by embeddings, scale and bias."""

    def call(name, batch, mesh=None, **options):
        inputs = {key: batch[key] for key in (*EMBEDDINGS, "logit_scale", "logit_bias")}
        return _gradient(name, mesh, tuple(options.items()))(inputs, batch)

    return call


@functools.cache
def _slopes_of_scores(name, options):
    def value(outputs, batch):
        pair_masks = masks.pair_masks(contract(batch))
        return losses.LOSSES[name].values("dense", outputs, pair_masks, **dict(options)).sum()

    return jax.jit(jax.grad(value, allow_int=True))  # the padding mask of tokens is bool


@pytest.fixture
def slopes_of_scores():
    """slopes_of_scores(name, batch, **options) -> Outputs of the sum's gradient by its arrays."""

    def call(name, batch, **options):
        return _slopes_of_scores(name, tuple(options.items()))(outputs(batch), batch)

    return call


@pytest.fixture
def make_mesh():
    def make(data, fsdp):
        axes = ("data", "fsdp")
        devices = jax.devices()[: data * fsdp]
        return jax.make_mesh((data, fsdp), axes, (AxisType.Auto,) * 2, devices=devices)

    return make


@functools.cache
def _value_and_gradient(loss):
    weights = jnp.linspace(0.5, 1.5, 24)

    def weighted(inputs, mask):
        return jnp.sum(weights * loss(**inputs, mask=mask))

    return jax.jit(jax.value_and_grad(weighted))


@pytest.fixture
def value_and_gradient():
    """A differently weighted sum of per-example losses, and its gradients by every real input."""

    def make(loss):
        def call(arrays):
            inputs = {k: v for k, v in arrays.items() if k != "mask"}
            return _value_and_gradient(loss)(inputs, arrays["mask"])

        return call

    return make
