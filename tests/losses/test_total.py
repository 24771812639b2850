"""The table of losses and the weighted sum that training minimises."""

import functools
import inspect

import jax
import numpy as np
import pytest

from tests.losses import oracle
from tests.losses.conftest import make_mesh, total
from vlc_jax import errors, losses, types
from vlc_jax.losses import infonce, masks, sigmoid, tiles


@pytest.fixture
def outputs(arrays):
    return types.Outputs(
        image=types.ImageFeatures(arrays["image"]),
        text=types.TextFeatures(arrays["text"]),
        scores=arrays["image"] @ arrays["text"].T,
        logit_scale=arrays["logit_scale"],
        logit_bias=arrays["logit_bias"],
    )


def total_of(config, outputs, batch):
    return jax.jit(functools.partial(losses.total, config))(outputs, batch)


def test_total_is_the_weighted_sum_of_means_over_real_examples(arrays, outputs):
    config = {"infonce": {"weight": 0.5}, "sigmoid": {"weight": 2.0}}
    value, parts = total_of(config, outputs, arrays)

    @jax.jit
    def sums(scores, scale, bias, arrays):
        pair_masks = masks.pair_masks(arrays)
        softmax = infonce.dense(scores, scale, pair_masks)
        return softmax.sum(), sigmoid.dense(scores, scale, bias, pair_masks).sum()

    given = outputs.scores, arrays["logit_scale"], arrays["logit_bias"], arrays
    softmax_sum, sigmoid_sum = jax.device_get(sums(*given))
    np.testing.assert_allclose(value, 0.5 * softmax_sum / 19 + 2 * sigmoid_sum / 19, rtol=1e-5)
    assert [int(count) for _, count in parts.values()] == [19, 19]
    np.testing.assert_allclose(parts["sigmoid"][0], sigmoid_sum, rtol=1e-6)


TILED = [name for name, loss in losses.LOSSES.items() if len(loss.implementations) > 1]


@pytest.mark.devices
@pytest.mark.parametrize("name", TILED)
def test_every_implementation_in_the_table_gives_the_same_total(batch, name):
    options = [{}, {"implementation": "chunked", "chunk": 7}, {"implementation": "ring"}]
    assert {o.get("implementation", "dense") for o in options} == set(
        losses.LOSSES[name].implementations
    )
    values = [total(name, batch, make_mesh(4, 2), **option) for option in options]
    np.testing.assert_allclose(values, values[0], rtol=1e-5)


def test_without_masks_every_row_is_an_example(all_outputs):
    complete = masks.complete(24, negatives=3, positives=2)

    def values(outputs):
        found = {}
        for name, loss in losses.LOSSES.items():
            inputs = loss.inputs(outputs, complete)
            found[name] = [loss.dense(*inputs)]
            if name != "sparc_local":  # whose mask is that of tokens
                kinds = [getattr(x, "dtype", type(x)) for x in inputs]
                is_mask = [kind in (np.bool_, masks.PairMasks) for kind in kinds]
                alone = [None if m else x for m, x in zip(is_mask, inputs, strict=True)]
                found[name].append(loss.dense(*alone))
        image, text, hard = (x.pooled for x in (outputs.image, outputs.text, outputs.negative_text))
        texts = tiles.Texts(text, hard, masks.complete(24, negatives=3))
        found["negclip"].append(infonce.TILED.chunked(image, texts, outputs.logit_scale, chunk=24))
        return found, losses.total({name: {"weight": 1.0} for name in found}, outputs)[0]

    # unoptimised: compiling all losses would take three times as long
    found, total = jax.jit(values)(all_outputs)
    for name, (first, *others) in found.items():
        assert name == "sparc_local" or np.abs(first).max() > 0  # texts of one token
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-5, err_msg=name)
    means = [np.mean(first) for first, *_ in found.values()]
    np.testing.assert_allclose(total, np.sum(means), rtol=1e-5)


def test_what_a_loss_needs_is_named_with_its_argument(outputs):
    with pytest.raises(
        errors.UsageError, match=r"the batch has none: .*negative_ids to model\.apply"
    ):
        losses.total({"negclip": {"weight": 1.0}}, outputs)
    with pytest.raises(errors.UsageError, match="which has no id and no text: give them"):
        losses.total({"infonce": {"weight": 1.0, "duplicates": "mask"}}, outputs)


@pytest.mark.parametrize("name", oracle.LOCAL)
def test_a_local_loss_is_its_formula_on_the_heads_second_scores(all_outputs, name):
    plain, local = losses.LOSSES[oracle.LOCAL[name]], losses.LOSSES[name]
    complete = masks.complete(24, negatives=3, positives=2)
    second = jax.jit(lambda scores: jax.tree.map(lambda x: 1 + x, scores))(all_outputs.local)
    expected = plain.inputs(all_outputs._replace(**second), complete)
    found = local.inputs(all_outputs._replace(local=second), complete)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert local._replace(inputs=plain.inputs) == plain
    with pytest.raises(errors.UsageError, match="'pooled' or 'flair'"):
        local.inputs(all_outputs._replace(local=None), complete)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"infoNCE": {"weight": 1.0}}, "unknown loss 'infoNCE'; did you mean 'infonce'"),
        ({"infonce": {"wieght": 1.0}}, "'wieght'; did you mean 'weight'"),
        ({"mine": {"weight": 1.0, "loss": "infoNCE"}}, "unknown loss 'infoNCE'; did you mean"),
        ({"loss": {"loss": "infonce", "weight": 1.0}}, "'loss' is another metric"),
        ({"infonce": {"weight": 1.0, "rows": (2, 2)}}, r"= any, or .*rows; got \(2, 2\)"),
        ({"negclip": {"weight": 1.0, "negative_range": (5, 2)}}, r"stop above first.*got \(5, 2\)"),
        ({"negclip": {"weight": 1.0, "negative_range": (-3, 1)}}, r"from 0 on.*got \(-3, 1\)"),
        ({"infonce": {"weight": 1.0, "negative_range": (0, 1)}}, "infonce reads no hard negatives"),
        ({"mine": {"loss": "infonce", "weight": 1.0, "negative_range": (0, 1)}}, "mine reads no"),
        ({"infonce": {"weight": 1.0, "missing": "keep"}}, "infonce reads no .* its missing out"),
        ({"negclip": {"weight": 1.0, "missing": "kept"}}, "did you mean 'keep'"),
        (
            {"infonce": {"weight": 1.0, "direction": "image_to_text", "all_images": True}},
            "all_images is about the sum over images.* direction 'both'",
        ),
        ({"paraphrase": {"weight": 1.0, "margin": -0.1}}, "margin of paraphrase .*; got -0.1"),
        ({"infonce": {}}, "needs a weight"),
        ({"infonce": {"weight": -1.0}}, "needs a weight from 0 on"),
        ({"infonce": {"weight": 1.0, "implementation": "rings"}}, "did you mean 'ring'"),
        ({"infonce": {"weight": 1.0, "implementation": "ring"}}, "mesh"),
        ({"infonce": {"weight": 1.0, "implementation": "chunked"}}, "chunk None"),
        ({"infonce": {"weight": 1.0, "chunk": 8}}, "'dense' and chunk 8"),
        ({"infonce": {"weight": 1.0, "duplicates": "masks"}}, "did you mean 'mask'"),
        ({"negclip": {"weight": 1.0}}, "needs hard negatives.*input.negatives.count"),
        ({"dac_mil": {"weight": 1.0}}, "needs hard positives.*input.positives.count"),
        ({"analogy": {"weight": 1.0, "implementation": "ring"}}, "known: dense"),
    ],
)
def test_a_wrong_config_is_refused_with_the_cure(arrays, outputs, config, message):
    with pytest.raises(errors.UsageError, match=message):
        total_of(config, outputs, arrays)


def test_a_weight_in_place_of_options_is_refused():
    check = inspect.unwrap(losses.check)  # without the types that tests check first
    with pytest.raises(errors.UsageError, match=r"a table of options, {'weight': 1\.0}; got 1\.0"):
        check({"infonce": 1.0})


def test_a_loss_of_other_numbers_of_images_and_texts_is_refused(outputs):
    image = outputs.image._replace(pooled=outputs.image.pooled[:2])
    with pytest.raises(errors.UsageError, match=r"pairs of .*; got 2 images and 24 texts"):
        losses.total({"infonce": {"weight": 1.0}}, outputs._replace(image=image))
    for_scores = inspect.unwrap(masks.for_scores)
    with pytest.raises(errors.UsageError, match=r"\(batch, batch\); got \(2, 24\)"):
        for_scores(None, outputs.scores[:2], None)


def test_sigmoid_without_a_logit_bias_is_refused(arrays, outputs):
    with pytest.raises(errors.UsageError, match="logit_bias_init"):
        total_of({"sigmoid": {"weight": 1.0}}, outputs._replace(logit_bias=None), arrays)
