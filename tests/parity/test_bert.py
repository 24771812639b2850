"""Encoders of BERT, RoBERTa and BLIP give the features of transformers, after every block."""

import functools

import jax
import numpy as np
import pytest

from vlc_jax.models import bert
from vlc_jax.weights import bert as names
from vlc_jax.weights import rename

pytestmark = pytest.mark.slow

TOLERANCE = 2e-5
SCRIPT = "bert_reference.py"
SIZES = {"vocab_size": 50, "positions": 16, "width": 24, "depth": 2, "heads": 3, "mlp_width": 40}
CASES = {
    "bert": {},
    "roberta": {"epsilon": 1e-5, "token_types": 1, "first_position": 2},
    "blip": {"token_types": 0, "cross": (0, 1)},
}
BUFFERS = (r"embeddings\.(position_ids|token_type_ids)",)


@functools.partial(jax.jit, static_argnums=0)
def features(encoder, params, ids, ends, images):
    def run(encoder):
        x = encoder.embed(ids)
        found = {"embed_0": x}
        for i in range(encoder.depth):
            x = encoder.blocks(x, ends, images, i, i + 1)
            found[f"block_{i}"] = x
        return found

    return encoder.apply({"params": params}, method=run)


def difference(io, case):
    """Largest difference of the embeddings and of every block, on real tokens."""
    encoder = bert.Encoder(**SIZES, **CASES[case])
    images = io["images"] if case == "blip" else None
    ids, ends = (np.asarray(io[name], np.int32) for name in ("ids", "ends"))
    ids, ends, images = jax.device_put((ids, ends, images))
    shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), ids, ends, images))["params"]
    prefix = f"{case}/weights/"
    theirs = {name.removeprefix(prefix): io[name] for name in io if name.startswith(prefix)}
    flat = {f"x/{path}": leaf.shape for path, leaf in rename.flatten(shapes).items()}
    rules = names.rules("", "x")
    params = rename.load(rules, theirs, flat, BUFFERS)
    again = rename.save(rules, params)
    for name, array in again.items():
        np.testing.assert_array_equal(array, theirs[name])
    found = jax.device_get(features(encoder, rename.unflatten(params)["x"], ids, ends, images))
    is_real = np.arange(ids.shape[1])[None] <= io["ends"][:, None]
    return max(np.abs(x - io[f"{case}/{name}"])[is_real].max() for name, x in found.items())


@pytest.mark.parametrize("case", CASES)
def test_every_block_is_that_of_transformers(io, case):
    assert difference(io, case) < TOLERANCE
