"""Temporaries of value and gradient as the compiler plans them: those of one tile, however many."""

import jax
import jax.numpy as jnp
import pytest

from tests.losses import conftest
from tests.losses.conftest import make_mesh
from vlc_jax import losses

EMBED, NEGATIVES = 64, 2
ROWS = 64  # of a tile
BY_PAIR = 4 * ROWS * ROWS  # bytes of the logits of a tile of captions, float32


def temporaries(name, rows, mesh, **options):
    """Bytes of one device, with `rows` examples on each of the mesh and 2 hard negatives each."""
    batch = rows * mesh.size
    split = jax.NamedSharding(mesh, jax.P(mesh.axis_names))

    def shape(*axes, dtype=jnp.float32):
        return jax.ShapeDtypeStruct((batch, *axes), dtype, sharding=split)

    unit = [shape(EMBED), shape(EMBED), shape(NEGATIVES, EMBED)]
    has_negative = shape(NEGATIVES, dtype=bool)

    def value(image, text, negative, numbers, mask, negative_mask):
        scale, bias = numbers
        arrays = {"image": image, "text": text, "negative": negative, "positive": negative}
        arrays |= {f"teacher_{key}": arrays[key] for key in ("image", "text", "negative")}
        outputs = conftest.outputs({**arrays, "logit_scale": scale, "logit_bias": bias})
        # dense scores, which nobody reads, are not computed
        texts = {"negative_text": negative, "negative_mask": negative_mask, "mask": mask}
        return losses.total({name: {"weight": 1.0, **options}}, outputs, texts)[0]

    gradient = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2, 3)))
    with jax.set_mesh(mesh):
        numbers = (jax.ShapeDtypeStruct((), jnp.float32),) * 2
        lowered = gradient.lower(*unit, numbers, shape(dtype=bool), has_negative)
        return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.devices
@pytest.mark.parametrize("name", ["negclip", "sigmoid_negatives"])
def test_memory_of_a_ring_does_not_grow_with_its_devices(name):
    two, eight = (temporaries(name, ROWS, make_mesh(n, 1), implementation="ring") for n in (2, 8))
    assert two > BY_PAIR
    # four times as many texts pass by: 200 KB if a device kept them
    assert eight < two + 20_000


@pytest.mark.parametrize("name", ["negclip", "sigmoid_negatives"])
def test_memory_of_chunks_does_not_grow_with_their_number(name):
    one = make_mesh(1, 1)
    few, many = (
        temporaries(name, 1024, one, implementation="chunked", chunk=chunk) for chunk in (256, 4)
    )
    assert few > BY_PAIR * 256 * 1024 / ROWS**2
    # a 64th of the logits at a time, and the slopes of all embeddings; another 1 MB if the columns
    # of every chunk were kept
    assert many < few / 64 + (2 + NEGATIVES) * 4 * EMBED * 1024
