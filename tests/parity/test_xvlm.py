"""X-VLM from the authors' files gives the scores of transformers' Swin and BERT, block by block."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parity.test_blip import LENGTH, TOLERANCE, made, padded, scores
from tests.parity.xvlm_negatives import IMAGE_NEGATIVES, PAIRS, TEXT_NEGATIVES
from vlc_jax import losses, types, weights
from vlc_jax.models import swin
from vlc_jax.setup import init_from
from vlc_jax.weights import files

pytestmark = pytest.mark.slow

SCRIPT = "xvlm_reference.py"


@pytest.fixture(scope="module")
def finetuned(folder):
    return made(folder / "checkpoint.pth")


def test_scores_of_itc_and_itm(io, finetuned):
    match, none = io["itm"][..., 1], io["itm"][..., 0]
    heads = (
        ({"scores": "itc"}, io["itc"]),
        ({"chunk": 2}, match - none),  # two blocks of texts
        ({"scores": "logit"}, match),
        ({"scores": "both"}, match + io["itc"]),
    )
    found = scores(*finetuned, io, [head for head, _ in heads])
    for (every, own), (_, wanted) in zip(found, heads, strict=True):
        np.testing.assert_allclose(every, wanted, atol=TOLERANCE)
        np.testing.assert_allclose(own, wanted, atol=TOLERANCE)


def test_every_block_of_images_of_texts_and_of_both(io, finetuned):
    setup, params = finetuned
    seen = {"capture_intermediates": lambda module, _: isinstance(module, swin.Block)}

    @jax.jit
    def run(params, pixels, ids, ends):
        tower, head = setup.model.image, setup.model.head
        image, found = tower.apply({"params": params["image"]}, pixels, head.requests[0], **seen)
        found = found["intermediates"]
        blocks = [found[name]["__call__"][0] for name in sorted(found)]
        of_texts = {"params": params["head"]["bert"]}
        tokens = jnp.concatenate([image.pooled[-1:, None], image.tokens[-1:]], axis=1)

        def texts(encoder):
            alone = encoder.blocks(encoder.embed(ids), ends, stop=1)
            return alone, encoder.blocks(alone, ends, tokens, start=1)

        return blocks, image.pooled, head.text_encoder.apply(of_texts, method=texts)

    ends, is_real = io["mask"].sum(axis=1) - 1, io["mask"].astype(bool)
    blocks, pooled, of_both = run(params, io["pixels"], padded(io), ends)
    for index, array in enumerate(blocks):
        np.testing.assert_allclose(array, io[f"image_{index}"], atol=TOLERANCE)
    np.testing.assert_allclose(pooled, io["pooled"], atol=TOLERANCE)
    of_texts = np.arange(LENGTH)[None] < io["mask"].sum(axis=1)[:, None]
    for name, array in zip(("text_0", "fused_0"), of_both, strict=True):
        np.testing.assert_allclose(
            np.asarray(array)[of_texts], io[name][is_real], atol=TOLERANCE, err_msg=name
        )


def test_a_finetuned_checkpoint_is_written_as_it_was_read(folder, finetuned):
    setup, params = finetuned
    assert params["logit_scale"] == pytest.approx(-np.log(0.05))
    pretrained = made(folder / "pretrained.th")[1]
    jax.tree.map(np.testing.assert_array_equal, pretrained, params)
    theirs = files.read(folder / "checkpoint.pth")
    ours = weights.save(params, "xvlm", init_from.architecture(setup.model))
    assert ours.keys() == {x for x in theirs if not re.search("position_i|attn_mask", x)}
    for name in ours.keys() - {"model.temp"}:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_losses_of_itc_and_itm_and_their_gradient(io, folder, finetuned):
    setup, params = finetuned
    pixels, ids = jax.device_put((io["pixels"][PAIRS], padded(io)))
    names = {name: {"weight": 1.0} for name in ("itc", "itm")}

    def forward(model, index):
        image = model._training_image({"image": pixels})
        text = model._training_texts({"text": ids})["text"]
        return image, text, model.head.log_odds(image, text, *index)

    @jax.jit
    def run(params, index, images):
        def value(params):
            model, variables = setup.model, {"params": params}
            image, text, odds = model.apply(variables, index, method=forward)
            matching = types.Matching(odds, *index)
            scale = jnp.exp(params["logit_scale"])
            outputs = types.Outputs(image, text, None, scale, matching=matching)
            total, parts = losses.total(names, outputs, {"id": images})
            return total, {name: whole / count for name, (whole, count) in parts.items()}

        return jax.value_and_grad(value, has_aux=True)(params)

    same = np.stack([PAIRS, PAIRS], axis=1).astype(np.uint32)
    index = np.asarray(TEXT_NEGATIVES), np.asarray(IMAGE_NEGATIVES)
    (_, found), slopes = run(params, index, same)
    for name in names:
        np.testing.assert_allclose(found[name], io[f"loss_{name}"], atol=TOLERANCE)
    # ours is the logarithm of 1 / temperature
    assert float(slopes.pop("logit_scale")) == pytest.approx(-0.05 * io["temp"], abs=TOLERANCE)
    wanted = weights.load(folder / "gradient.pth", params, init_from.architecture(setup.model))[0]
    for path, slope in weights.flatten(slopes).items():
        expected = weights.flatten(wanted)[path]
        atol = TOLERANCE * max(1, np.abs(expected).max())
        np.testing.assert_allclose(slope, expected, atol=atol, err_msg=path)
    # 1 and 2 taken for one image; an own text as negative, another text
    taken = same.copy()
    taken[2] = 1
    (_, other), _ = run(params, index, taken)
    assert abs(float(other["itc"]) - io["loss_itc"]) > 1e-3
    for text in (0, 2):
        drawn = index[0].copy()
        drawn[0] = text
        (_, other), _ = run(params, (drawn, index[1]), same)
        assert abs(float(other["itm"]) - io["loss_itm"]) > 1e-3
