"""A tower whose blocks are one loop equals the unrolled one, in value and gradient."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import tiny
from tests.support.marks import slow_but
from vlc_jax import models
from vlc_jax.configs import hp_hn
from vlc_jax.devices import sharding
from vlc_jax.setup import plan_search, resolve
from vlc_jax.setup.state import init_state, state_shapes
from vlc_jax.train import compiled_step

SMALL = {"depth": 2, "width": 32, "heads": 2}
PIXELS = SMALL | {"stem": (), "patch_size": 8}
KINDS = {
    "clip": {"image": PIXELS | {"depth": 3}},  # two blocks in the loop, whose order counts
    "siglip": {
        "variant": "SigLIP-B/16",
        "image_size": 32,
        "context_length": 8,
        "image": PIXELS | {"sub_norm": True, "activation": "swiglu"},
        "text": SMALL | {"projection": 32},
    },
    "rope": {
        "image": PIXELS | {"rope": "qk_2d", "pooling": "mean"},
        "text": SMALL | {"padding_mask": True},
    },
    "tokens": {"name": "sparc"},
    "bfloat16": {"dtype": "bfloat16"},  # kernels and their gradients are stacked in 16 bits
}


def pair(**options):
    """The unrolled model and the one in loops."""
    options = {"image": PIXELS, "text": SMALL, "image_size": 24} | options
    options["image"], options["text"] = PIXELS | options["image"], SMALL | options["text"]
    return tuple(models.build(**options, scan_layers=is_scanned) for is_scanned in (False, True))


def value_and_gradient(model, params, batch):
    def total(params):
        rngs = {"dropout": jax.random.key(1)}
        outputs = model.apply({"params": params}, batch, rngs=rngs)
        return jnp.sum(jnp.sin(outputs.scores)) + jnp.sum(outputs.image.pooled[:, 0])

    with jax.default_matmul_precision("highest"):
        return jax.jit(jax.value_and_grad(total))(params)


@functools.cache
def unrolled(kind):
    """Parameters of the plain model, a batch, and its value and gradient."""
    model = pair(**KINDS[kind])[0]
    rng = np.random.default_rng(0)
    size, length = model.image.image_size, model.text.context_length
    batch = {
        "image": rng.standard_normal((4, size, size, 3)).astype(np.float32),
        "text": rng.integers(1, model.text.vocab_size, (4, length)).astype(np.int32),
        "mask": np.ones(4, bool),
    }
    shapes = jax.eval_shape(functools.partial(models.init, model), jax.random.key(0))
    params = jax.tree.map(lambda x: (0.2 * rng.normal(size=x.shape)).astype(x.dtype), shapes)
    params, batch = jax.device_put((params, batch))
    return params, batch, value_and_gradient(model, params, batch)


def test_a_loop_starts_from_the_parameters_of_unrolled_blocks():
    one, other = (str(jax.make_jaxpr(partial(models.init, x))(jax.random.key(0))) for x in pair())
    assert one == other
    assert "random_bits" in one


def test_one_block_is_no_loop():
    """Its program is that of a model without loops."""
    one, other = pair(image={"depth": 1}, text={"depth": 1})
    params = jax.eval_shape(partial(models.init, one), jax.random.key(0))
    batch = jax.eval_shape(lambda: models.example_batch(one, 2))
    one, other = (str(jax.make_jaxpr(x.apply)({"params": params}, batch)) for x in (one, other))
    assert one == other


@pytest.mark.parametrize(
    ("kind", "remat"),
    slow_but(
        (("clip", "none"), ("tokens", "none"), ("bfloat16", "none")),
        [
            *(("clip", "none"), ("tokens", "none"), ("bfloat16", "none")),
            *(("clip", "block"), ("siglip", "block"), ("rope", "block")),
        ],
    ),
)
def test_value_and_gradient_are_those_of_unrolled_blocks(kind, remat):
    scanned = pair(**KINDS[kind], remat=remat)[1]
    params, batch, (other, theirs) = unrolled(kind)
    one, ours = value_and_gradient(scanned, params, batch)
    # of bfloat16 relative to the largest number of each leaf: some leaves are small
    error, least = (5e-2, 0.0) if kind == "bfloat16" else (2e-5, 1.0)
    np.testing.assert_allclose(one, other, rtol=error / 2)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=error * max(least, float(jnp.abs(b).max())))


@pytest.mark.slow
@pytest.mark.devices
def test_a_step_on_eight_devices_with_hard_texts_is_the_same():
    new, state = {}, None
    for is_scanned in (False, True):
        config = tiny.get_config()
        given = hp_hn.get_config()
        with config.unlocked():
            config.losses = given.losses
            config.input.negatives, config.input.positives = (
                given.input.negatives,
                given.input.positives,
            )
            config.model.image, config.model.text = PIXELS, SMALL
            config.model.scan_layers = is_scanned
            config.mesh.data, config.mesh.fsdp = 2, 4
        setup = resolve(config, "train")
        shardings = jax.tree.map(lambda x: x.sharding, state_shapes(setup, {}))
        if state is None:
            state = jax.device_get(jax.jit(partial(init_state, setup))({}))
        rng = np.random.default_rng(0)
        shapes = plan_search.batch_shapes(config, setup.mesh, setup.parameters)
        batch = {
            key: np.ones(shape.shape, bool)
            if shape.dtype == bool
            else rng.integers(0, 40, shape.shape).astype(shape.dtype)
            for key, shape in shapes.items()
        }
        batch = sharding.put_batch(setup.mesh, batch)
        placed = jax.device_put(state, shardings)
        compiled = compiled_step.compile_step(setup, placed, {}, batch)
        new[is_scanned] = jax.device_get(compiled(placed, {}, batch))
    (new_state, metrics), (other, theirs) = new[True], new[False]
    np.testing.assert_allclose(metrics["loss"], theirs["loss"], rtol=1e-5)
    np.testing.assert_allclose(metrics["grad_norm"], theirs["grad_norm"], rtol=1e-4)
    for a, b in zip(jax.tree.leaves(new_state.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_the_program_has_one_block_and_not_all():
    sizes = []
    for model in pair(image=PIXELS | {"depth": 8}, text=SMALL | {"depth": 8}):
        params = jax.eval_shape(lambda m=model: models.init(m, jax.random.key(0)))
        image = jax.ShapeDtypeStruct((2, model.image.image_size, model.image.image_size, 3), "f4")
        text = jax.ShapeDtypeStruct((2, model.text.context_length), "i4")
        mask = jax.ShapeDtypeStruct((2,), bool)
        lowered = jax.jit(model.apply).lower(
            {"params": params}, {"image": image, "text": text, "mask": mask}
        )
        sizes.append(lowered.as_text().count("dot_general"))
    assert sizes[1] < sizes[0] / 3
