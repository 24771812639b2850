"""Qwen3-VL as an embedder: padding, rows without an image, positions, sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from tests.support.compilations import apply
from vlc_jax import models, setup, types
from vlc_jax.configs.llava import vlm2vec
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.images import naflex, native
from vlc_jax.models import lm, qwen3_vl, rope

DECODER = {"width": 8, "depth": 2, "heads": 2, "mlp_width": 12, "qk_norm": True, "is_tied": True,
           "scaling": None, "sections": (1, 1, 0)}  # fmt: skip
TOWER = {"width": 16, "depth": 2, "heads": 2, "mlp_width": 16, "out_width": 8, "deepstack": (0,),
         "position_grid": 3}  # fmt: skip
EOS, GRIDS = 11, ((2, 4), (6, 2), (2, 2))
TEXTS = np.array([[1, 2, 3, EOS, 0, 0], [4, EOS, 1, 1, 1, 1], [EOS, 0, 0, 0, 0, 0]], np.int32)


@pytest.fixture(scope="module")
def model():
    """A model for mosaics of 4 x 4 patches, and its parameters."""
    net = models.build(
        "qwen3_vl",
        "Qwen3-VL-2B",
        head={"decoder": DECODER, "prefix": (7, 3), "suffix": (9, 8), "marks": (5, 6)},
        text_tower=False,
        vocab_size=12,
        context_length=6,
        eos_id=EOS,
        image_size=64,
        image=TOWER,
    )
    return net, {"params": jax.device_put(small_models.parameters(net, 0.4))}


@pytest.fixture(scope="module")
def mosaics():
    """Normalised mosaics of pictures of noise, of the grids GRIDS."""
    rng = np.random.default_rng(0)
    pictures = (
        rng.integers(0, 256, (16 * rows, 16 * columns, 3), dtype=np.uint8)
        for rows, columns in GRIDS
    )
    return np.stack([naflex.mosaic(x, 16, 64) for x in pictures]).astype(np.float32) / 127.5 - 1


def test_padding_changes_nothing_whether_it_is_cut_off_or_filled(model, mosaics):
    net, variables = model
    encode = jax.jit(functools.partial(net.apply, method="encode_image"))
    whole = encode(variables, mosaics).pooled
    cut = encode(variables, mosaics[:, :49]).pooled  # 12 patches, the most
    np.testing.assert_allclose(cut, whole, atol=1e-6)
    filled = mosaics.copy()
    filled[0, 33:], filled[1, 49:], filled[2, 17:] = 3.0, -2.0, 5.0
    again = encode(variables, filled).pooled
    np.testing.assert_array_equal(again, whole)
    assert np.abs(np.asarray(whole) - np.asarray(whole)[::-1])[0].max() > 0.05


def test_a_row_without_an_image_is_the_text_that_it_asks(model, mosaics):
    question = np.full_like(TEXTS, types.NOT_ASKED)
    question[0, :3], question[1, 0] = TEXTS[0, :3], TEXTS[1, 0]

    def embed(module, pixels, question, texts):
        features = module.image(pixels, module.head.requests[0])
        has_image = jnp.array([False, False, True])
        features = features._replace(question=question, has_image=has_image)
        return module.head.image(features).pooled, module.encode_text(texts).pooled

    images, texts = apply(*model, *(mosaics, question, TEXTS), method=embed)
    np.testing.assert_allclose(images[:2], texts[:2], atol=1e-6)
    assert np.abs(np.asarray(images[2]) - np.asarray(texts[2])).max() > 0.1


def test_every_parameter_learns_from_a_batch(model, mosaics):
    net, variables = model

    def loss(params, batch):
        return (net.apply({"params": params}, batch).scores ** 2).sum()

    gradients = jax.jit(jax.grad(loss))(variables["params"], {"image": mosaics, "text": TEXTS})
    sums = jax.tree.map(lambda x: float(np.abs(np.asarray(x)).sum()), gradients)
    learns = jax.tree_util.tree_flatten_with_path(sums)[0]
    # the scale multiplies the scores in a loss; biases of keys cancel
    still = [jax.tree_util.keystr(path) for path, x in learns if not 0 < x < np.inf]
    assert still == ["['logit_scale']"]


def test_positions_of_an_image_are_its_rows_and_columns():
    valid = np.array([[1] * 3 + [1] * 6 + [0] * 2 + [0, 1, 1], [1, 1, 0] + [0] * 8 + [1, 1, 1]])
    grid, has_image = np.array([[2, 3], [1, 4]]), np.array([True, False])
    of = functools.partial(qwen3_vl.positions, first=3, count=8)
    found = np.asarray(jax.jit(of)(*jax.device_put((valid > 0, grid)), has_image=has_image))
    square = [[3, 3 + r, 3 + c] for r in range(2) for c in range(3)]
    expected = [[i] * 3 for i in range(3)] + square + [[i] * 3 for i in (6, 7)]
    np.testing.assert_array_equal(found[0][valid[0] > 0], expected)
    np.testing.assert_array_equal(found[1][valid[1] > 0], [[i] * 3 for i in range(5)])


def test_sections_take_turns_until_rows_and_columns_have_theirs():
    axes = rope.axes((24, 20, 20), 64)
    assert np.bincount(axes).tolist() == [24, 20, 20]
    assert axes[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert axes[-4:].tolist() == [0, 0, 0, 0]


def test_the_training_config_has_the_published_parameters():
    config = vlm2vec.get_config("model=qwen3_vl,weights=x")
    made = setup.resolve(config, "plan")
    count = models.parameter_counts(made.parameters.shapes)["total"]
    # as transformers counts; a still image needs one matrix for both frames, and has a logit scale
    assert count + 768 * 1024 - 1 == 2_127_532_032
    assert made.model.image.embed == made.model.head.embed == 2048
    assert made.model.head.language_model == lm.build(
        "qwen3_vl_2b", dtype=made.model.image.dtype, param_dtype=made.model.image.dtype,
        remat="block", parent=None,
    )  # fmt: skip


def test_images_of_another_form_are_refused(model, mosaics):
    net, variables = model
    for wrong in (mosaics[:, :40], mosaics[:, :, :48], mosaics[:, 1:]):
        with pytest.raises(UsageError, match="takes mosaics of shape"):
            jax.eval_shape(functools.partial(net.apply, method="encode_image"), variables, wrong)
    config = vlm2vec.get_config("model=qwen3_vl,weights=x")
    config.input.crop = "none"
    with pytest.raises(UsageError, match="any aspect ratio: set it to native"):
        setup.validate.check_crop(config, "eval", net)
    assert net.image.patch_size == native.PATCH
