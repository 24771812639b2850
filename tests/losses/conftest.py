"""Random embeddings, with hard negatives and positives too, meshes, and losses by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from tests.losses import oracle
from vlc_jax import losses, types
from vlc_jax.losses import masks


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def arrays():
    """24 examples, the last 5 of them padding."""
    rng = np.random.default_rng(0)
    return {
        "image": unit(rng.normal(size=(24, 6))).astype(np.float32),
        "text": unit(rng.normal(size=(24, 6))).astype(np.float32),
        "logit_scale": np.float32(7.0),
        "logit_bias": np.float32(-3.0),
        "mask": np.arange(24) < 19,
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
        more[kind] = unit(rng.normal(size=(24, count, 6))).astype(np.float32)
        more[f"{kind}_mask"] = mask
        more[f"{kind}_text"] = rng.integers(0, 99, (24, count, 5)).astype(np.int32)
    for key in ("image", "text", "negative"):
        shape = (24, 3, 6) if key == "negative" else (24, 6)
        more[f"teacher_{key}"] = unit(rng.normal(size=shape)).astype(np.float32)
    tokens = rng.integers(0, 99, (24, 5)).astype(np.int32)
    record_id = rng.integers(0, 2**32, (24, 2)).astype(np.uint32)
    return {**arrays, **more, "tokens": tokens, "id": record_id}


@pytest.fixture
def repeated(batch):
    """`batch` with pairs that are no true negatives."""
    found = {key: np.copy(x) for key, x in batch.items()}
    tokens, ids = found["tokens"], found["id"]
    tokens[2], tokens[21] = tokens[5], tokens[0]  # 21 is padding
    ids[1], ids[13, 0] = ids[9], ids[14, 0]  # half a hash is none
    negative, positive = found["negative_text"], found["positive_text"]
    negative[4, 0], negative[5, 1] = tokens[6], tokens[5]
    positive[8, 0], positive[11, 1] = tokens[10], tokens[11]
    positive[4, 1] = positive[11, 0]
    found["negative_mask"][4, 0], found["negative_mask"][5] = True, [False, True, False]
    positive[12, 1] = positive[15, 0]  # a phrase of both
    found["positive_mask"][[8, 11, 11, 12, 15], [0, 1, 0, 1, 0]] = True
    found["negative_mask"][11] = True
    return found


EMBEDDINGS = ("image", "text", "negative", "positive")


def outputs(batch):
    """What a model would give: all scores are dot products."""
    image, text, negative, positive = (batch[key] for key in EMBEDDINGS)
    own, others = (jnp.einsum("ie,ite->it", image, x) for x in (text[:, None], negative))
    index = jnp.arange(len(text))
    made = types.Outputs(
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
        # drawn by hand: 1 and 9 have the same image in `repeated`, and the last five are padding
        matching=types.Matching(
            jnp.concatenate([own, others[:, :2]], axis=1), (index + 8) % 24, (index + 11) % 24
        ),
        teacher=types.Outputs(
            image=types.ImageFeatures(batch["teacher_image"]),
            text=types.TextFeatures(batch["teacher_text"]),
            scores=None,
            logit_scale=batch["logit_scale"],
            negative_text=types.TextFeatures(batch["teacher_negative"]),
            view_logits=types.ViewLogits(
                batch["teacher_image"][:, :3],
                batch["teacher_negative"][..., :3],
                batch["teacher_text"][:, :3],
            ),
        ),
        # three prototypes; a teacher reads the first two arrays, a student the others
        view_logits=types.ViewLogits(
            image[:, :3], negative[..., :3], image[:, :3], positive[..., :3], negative[..., :3]
        ),
        centres={name: jnp.array(oracle.CENTRE) for name in losses.CENTRED},
        thresholds=jnp.array(oracle.THRESHOLDS),
    )
    kinds = ("scores", "negative_scores", "positive_scores")
    return made._replace(
        local={
            f"{own}{kind}": getattr(made, f"{own}{kind}") for own in ("", "own_") for kind in kinds
        }
    )


@pytest.fixture
def all_outputs(batch):
    """What a model would give for `batch`."""
    return jax.jit(outputs)(batch)


def contract(batch):
    """The batch as the input pipeline makes it: "text" are tokens, not embeddings."""
    return {**batch, "text": batch["tokens"]}


@functools.cache  # one compilation for all tests of a loss, with duplicates and without
def _per_example(name, options):
    def values(batch):
        loss, made = losses.LOSSES[name], outputs(batch)
        return {
            duplicates: loss.values(
                "dense", made, masks.pair_masks(contract(batch), duplicates), **dict(options)
            )
            for duplicates in ("keep", "mask")
        }

    return jax.jit(values)


def per_example(name, batch, duplicates="keep", **options):
    """Values of the dense loss."""
    return np.asarray(_per_example(name, tuple(options.items()))(batch)[duplicates])


def _hashable(config):
    return tuple((name, tuple(options.items())) for name, options in config.items())


@functools.cache
def _total(config, mesh):
    config = {name: dict(options) for name, options in config}
    return jax.jit(lambda batch: losses.total(config, outputs(batch), contract(batch), mesh)[0])


def total(name, batch, mesh=None, **options):
    """The mean that is minimised."""
    return _total(_hashable({name: {"weight": 1.0, **options}}), mesh)(batch)


@functools.cache
def _gradient(config, mesh):
    config = {name: dict(options) for name, options in config}

    def value(inputs, batch):
        batch = {**batch, **inputs}
        return losses.total(config, outputs(batch), contract(batch), mesh)[0]

    return jax.jit(jax.value_and_grad(value))


def _value_and_slopes(config, mesh, batch):
    inputs = {key: batch[key] for key in (*EMBEDDINGS, "logit_scale", "logit_bias")}
    return jax.device_get(_gradient(config, mesh)(inputs, batch))


def weighted(weights, batch):
    """What is minimised with {name: weight}, and its slopes as `gradient` has."""
    config = _hashable({name: {"weight": weight} for name, weight in weights.items()})
    return _value_and_slopes(config, None, batch)


def gradient(name, batch, mesh=None, **options):
    """The mean and its slopes by embeddings, scale and bias."""
    return _value_and_slopes(_hashable({name: {"weight": 1.0, **options}}), mesh, batch)


def make_mesh(data, fsdp):
    axes = ("data", "fsdp")
    devices = jax.devices()[: data * fsdp]
    return jax.make_mesh((data, fsdp), axes, (AxisType.Auto,) * 2, devices=devices)


def assert_close(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), found, expected
    )


@functools.cache
def _value_and_gradient(loss):
    weights = np.linspace(0.5, 1.5, 24, dtype=np.float32)

    def weighted(inputs, mask):
        return jnp.sum(weights * loss(**inputs, mask=mask))

    return jax.jit(jax.value_and_grad(weighted))


def value_and_gradient(loss):
    """A differently weighted sum of per-example losses, and its gradients by every real input."""

    def call(arrays):
        inputs = {k: v for k, v in arrays.items() if k != "mask"}
        return jax.device_get(_value_and_gradient(loss)(inputs, arrays["mask"]))

    return call
