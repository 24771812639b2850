"""big_vision's files of PaliGemma: sizes, dtypes, memory, what is refused."""

import functools

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.support import helpers, plain_llava
from tests.support import paligemma as theirs
from tests.support.small_models import GEMMA, LM, SIGLIP, normal
from vlc_jax.errors import WeightsError
from vlc_jax.weights import llava as weights
from vlc_jax.weights import paligemma

SIZES = {
    "family": "gemma",
    "lm": LM | GEMMA | {"kv_heads": 1, "epsilon": 1e-6},
    "kind": "paligemma",
    "image": SIGLIP,
    "layer": -1,
    "image_id": 60,
    "select": "patch",
}


def drawn(sizes=SIZES, dtype=np.float32):
    init = functools.partial(plain_llava.init, plain_llava.build(sizes))
    shapes = jax.eval_shape(init, jax.random.key(0))
    return shapes, normal(shapes, dtype=dtype)


def write(path, arrays, prefix="params/"):
    np.savez(path, **{prefix + name: x for name, x in arrays.items()})
    return path


@pytest.mark.parametrize("prefix", ["params/", ""])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_file_is_read_in_its_dtype(tmp_path, dtype, prefix):
    shapes, params = drawn(dtype=dtype)
    path = write(tmp_path / "tiny.npz", theirs.arrays(params, SIZES), prefix)
    assert paligemma.is_paligemma(path)
    assert weights.read_sizes(path) == SIZES
    loaded = weights.load(path, SIZES, shapes)
    assert {x.dtype for x in jax.tree.leaves(loaded)} == {np.dtype(dtype)}
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    whole = weights.load(path, SIZES, shapes, dtype=np.float32)
    assert {x.dtype for x in jax.tree.leaves(whole)} == {np.dtype(np.float32)}


def test_it_is_written_for_transformers(tmp_path):
    shapes, params = drawn()
    path = write(tmp_path / "tiny.npz", theirs.arrays(params, SIZES))
    weights.save(weights.load(path, SIZES, shapes), SIZES, tmp_path / "folder")
    assert weights.read_sizes(tmp_path / "folder") == SIZES
    loaded = weights.load(tmp_path / "folder", SIZES, shapes)
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


def test_host_memory_is_that_of_one_array_and_its_parameters(tmp_path):
    sizes = SIZES | {
        "lm": SIZES["lm"] | {"width": 128, "mlp_width": 512, "depth": 8, "vocab": 8192}
    }
    shapes, params = drawn(sizes)
    path = write(tmp_path / "large.npz", theirs.arrays(params, sizes))
    total = sum(x.nbytes for x in jax.tree.leaves(params))
    largest = 2 * params["lm"]["blocks"]["gate"]["kernel"].nbytes  # gate and up are one there
    del params
    assert 2.2 * largest < total
    with helpers.memory_below(2.2 * largest):
        weights.load(path, sizes, shapes, put=lambda path, array: path)


NAME = "llm/layers/attn/q_einsum/w"
BLOCK = "img/Transformer/encoderblock/LayerNorm_0/scale"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop(NAME), "3 not in the file: llm/layers_0/attn/q_einsum"),
        (lambda a: a.update({NAME: a[NAME][1:]}), "1 not in the file: llm/layers_2/attn/q_einsum"),
        (lambda a: a.update({NAME: a[NAME][0]}), "no parameter of this model: llm/layers_3/attn"),
        (lambda a: a.update({BLOCK: a[BLOCK][1:]}), "not in the file: img/.*block_2/"),
        (
            lambda a: a.update({BLOCK: a[BLOCK][[0, 1, 2, 2]]}),
            "no parameter of this model: img/.*block_3/",
        ),
        (lambda a: a.update({NAME: a[NAME].astype(np.int32)}), "one array has dtype int32"),
        (lambda a: a.update({f"params/{NAME}": a[NAME]}), "holds a parameter twice"),
    ],
    ids=["missing", "layer", "axis", "block", "block_3", "int", "twice"],
)
def test_files_that_do_not_fit_are_refused(tmp_path, change, message):
    shapes, params = drawn()
    arrays = theirs.arrays(params, SIZES)
    change(arrays)
    with pytest.raises(WeightsError, match=message):
        weights.load(write(tmp_path / "tiny.npz", arrays, ""), SIZES, shapes)


def test_another_file_is_no_paligemma(tmp_path):
    path = write(tmp_path / "other.npz", {"img/embedding/kernel": np.zeros((4, 4, 3, 8))})
    assert not paligemma.is_paligemma(path)
    assert not paligemma.is_paligemma(tmp_path)
    with pytest.raises(WeightsError, match="is no PaliGemma of big_vision"):
        weights.read_sizes(path)
