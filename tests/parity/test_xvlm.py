"""X-VLM from the authors' files gives the scores of transformers' Swin and BERT, block by block."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parity.test_blip import FAST, LENGTH, TOLERANCE, made, padded, scores
from vlc_jax import weights
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


@pytest.fixture
def wrong_towers(monkeypatch):
    """Functions of a tower and its parameters that give a slightly other tower."""

    def unmasked(tower, params):
        monkeypatch.setattr(swin, "MASKED", 0.0)
        return tower, params

    def transposed(tower, params):
        monkeypatch.undo()
        right = swin.relative_positions
        monkeypatch.setattr(swin, "relative_positions", lambda side: right(side).T)
        return tower, params

    def by_rows(tower, params):
        monkeypatch.undo()
        kernel = params["merge_1"]["kernel"]
        rows = kernel.reshape(2, 2, -1, kernel.shape[-1]).swapaxes(0, 1).reshape(kernel.shape)
        return tower, {**params, "merge_1": {"kernel": rows}}

    def approximate(tower, params):
        return tower.clone(activation="gelu_tanh"), params

    return unmasked, transposed, by_rows, approximate


def test_every_block_of_images_of_texts_and_of_both(io, finetuned, wrong_towers):
    setup, params = finetuned
    seen = {"capture_intermediates": lambda module, _: isinstance(module, swin.Block)}

    @functools.partial(jax.jit, compiler_options=FAST)
    def run(params, pixels, ids, ends):
        tower, head = setup.model.image, setup.model.head
        image, found = tower.apply({"params": params["image"]}, pixels, head.requests[0], **seen)
        found = found["intermediates"]
        blocks = [found[name]["__call__"][0] for name in sorted(found)]
        encoder, of_texts = head.text_encoder, {"params": params["head"]["bert"]}
        tokens = jnp.concatenate([image.pooled[-1:, None], image.tokens[-1:]], axis=1)

        def texts(encoder):
            alone = encoder.blocks(encoder.embed(ids), ends, stop=1)
            return alone, encoder.blocks(alone, ends, tokens, start=1)

        of_both = encoder.apply(of_texts, method=texts)
        others = [encoder.clone(**x) for x in ({"token_types": 0}, {"epsilon": 1e-3})]
        wrong = [other.apply(of_texts, method=texts)[1] for other in others]
        pooled = []
        for change in wrong_towers:
            other, changed = change(tower, params["image"])
            pooled.append(other.apply({"params": changed}, pixels, head.requests[0]).pooled)
        return blocks, image.pooled, of_both, wrong, pooled

    ends, is_real = jnp.asarray(io["mask"].sum(axis=1) - 1), io["mask"].astype(bool)
    blocks, pooled, of_both, wrong, others = run(
        params, jnp.asarray(io["pixels"]), padded(io), ends
    )
    for index, array in enumerate(blocks):
        np.testing.assert_allclose(array, io[f"image_{index}"], atol=TOLERANCE)
    np.testing.assert_allclose(pooled, io["pooled"], atol=TOLERANCE)
    of_texts = np.arange(LENGTH)[None] < io["mask"].sum(axis=1)[:, None]
    for name, array in zip(("text_0", "fused_0"), of_both, strict=True):
        np.testing.assert_allclose(
            np.asarray(array)[of_texts], io[name][is_real], atol=TOLERANCE, err_msg=name
        )
    for array in wrong:
        assert np.abs(np.asarray(array)[of_texts] - io["fused_0"][is_real]).max() > 5 * TOLERANCE
    for array in others:
        assert np.abs(np.asarray(array) - io["pooled"]).max() > 5 * TOLERANCE


def test_a_pretrained_checkpoint_is_read_and_a_finetuned_one_written_as_it_was(folder, finetuned):
    setup, params = finetuned
    assert params["logit_scale"] == pytest.approx(-np.log(0.05))
    pretrained = made(folder / "pretrained.th")[1]
    jax.tree.map(np.testing.assert_array_equal, pretrained, params)
    theirs = files.read(folder / "checkpoint.pth")
    ours = weights.save(params, "xvlm", init_from.architecture(setup.model))
    assert ours.keys() == {x for x in theirs if not re.search("position_i|attn_mask", x)}
    for name in ours.keys() - {"model.temp"}:
        np.testing.assert_array_equal(ours[name], theirs[name])
