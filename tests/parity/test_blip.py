"""BLIP from its files gives the features and scores of transformers: ITC, ITM, every block."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from vlc_jax import weights
from vlc_jax.models import bert, layers
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.weights_config import config_of_weights
from vlc_jax.weights import files

pytestmark = pytest.mark.slow

SCRIPT = "blip_reference.py"
TOLERANCE = 2e-5
KINDS = (layers.Block, bert.Block)
LENGTH = 16


def made(path, tokenizer=None, **head):
    """Setup and parameters of weights."""
    config = config_of_weights(path, tokenizer=tokenizer)
    with config.unlocked():
        config.text.context_length = LENGTH
        config.model.head = ConfigDict({**config.model.head, **head})
    setup = resolve(config, "weights")
    return setup, init_from.load_complete(setup)


def padded(io):
    return np.pad(io["ids"], ((0, 0), (0, LENGTH - io["ids"].shape[1]))).astype(np.int32)


def scores(setup, params, io, heads):
    """Of each head: scores of every image with every text, and of each with all as its own."""

    def run(model, pixels, ids):
        image, text = model.encode_image(pixels), model.encode_text(ids)
        own = jax.tree.map(lambda x: jnp.tile(x, (len(pixels), *[1] * (x.ndim - 1))), text)
        return model.score(image, text), model.score_options(image, own)

    @jax.jit
    def of_all(params, *rows):
        models = (setup.model.clone(head=setup.model.head.clone(**head)) for head in heads)
        return [model.apply({"params": params}, *rows, method=run) for model in models]

    return of_all(params, io["pixels"], padded(io))


@pytest.fixture(scope="module")
def hf(folder):
    return made(folder / "hf")


def test_scores_of_itc_and_itm_with_either_first_token(io, hf):
    expected = {name: io[name][..., 1] - io[name][..., 0] for name in ("cls", "enc")}
    both = io["enc"][..., 1] + io["itc"]
    assert np.abs(expected["cls"] - expected["enc"]).min() > 1e-3
    heads = (
        ({"scores": "itc"}, io["itc"]),
        ({"chunk": 2}, expected["enc"]),  # two blocks of texts
        ({"match_id": None}, expected["cls"]),
        ({"scores": "both"}, both),
    )
    found = scores(*hf, io, [head for head, _ in heads])
    for (every, own), (_, wanted) in zip(found, heads, strict=True):
        np.testing.assert_allclose(every, wanted, atol=TOLERANCE)
        np.testing.assert_allclose(own, wanted, atol=TOLERANCE)


def test_every_block_of_images_of_texts_and_of_both(io, hf):
    setup, params = hf
    seen = {"capture_intermediates": lambda module, _: isinstance(module, KINDS)}

    @jax.jit
    def run(params, pixels, ids, ends):
        model, head = setup.model, setup.model.head
        image = model.image.apply({"params": params["image"]}, pixels, head.requests[0], **seen)
        marked = ids.at[:, 0].set(head.match_id)

        def encoded(ids, images=None):
            of_texts = {"params": params["head"]["bert"]}
            return head.text_encoder.apply(of_texts, ids, ends, images, **seen)

        fused = encoded(marked, image[0].tokens[-1:])
        kinds = {"image": image, "text": encoded(ids), "fused": fused}
        return {
            f"{kind}_{i}": found["intermediates"][f"block_{i}"]["__call__"][0]
            for kind, (_, found) in kinds.items()
            for i in range(2)
        }

    ends, is_real = io["mask"].sum(axis=1) - 1, io["mask"].astype(bool)
    found = run(params, io["pixels"], padded(io), ends)
    of_texts = np.arange(LENGTH)[None] < io["mask"].sum(axis=1)[:, None]
    for name, array in found.items():
        rows, expected = np.asarray(array), io[name]
        if not name.startswith("image"):
            rows, expected = rows[of_texts], expected[is_real]
        np.testing.assert_allclose(rows, expected, atol=TOLERANCE, err_msg=name)


def test_the_authors_checkpoint_has_the_same_weights(folder, hf):
    setup, theirs = made(folder / "authors.pth", tokenizer=str(folder / "hf"), scores="itc")
    assert (setup.model.image.epsilon, hf[0].model.image.epsilon) == (1e-6, 1e-5)
    assert theirs["logit_scale"] == pytest.approx(-np.log(0.05))
    assert hf[1]["logit_scale"] == pytest.approx(-np.log(0.07))
    for part in ("image", "head"):
        jax.tree.map(np.testing.assert_array_equal, theirs[part], hf[1][part])


@pytest.mark.parametrize("name", ["hf", "authors.pth"])
def test_a_file_read_and_written_again_is_the_same(folder, hf, name):
    path = folder / name
    setup, params = hf if name == "hf" else made(path, tokenizer=str(folder / "hf"))
    theirs, form = files.read(path), weights.read(path)[1]
    ours = weights.save(params, form, init_from.architecture(setup.model))
    left = "optimizer|text_queue|image_queue|_m\\.|idx_queue|ptr_queue|position_ids"
    kept = {name for name in theirs if not re.search(left, name)}
    assert ours.keys() == kept
    for name in kept - {"model.temp"}:
        np.testing.assert_array_equal(ours[name], theirs[name])
