"""Every loss with hard negatives or positives: its formula, its symmetries, its masks."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy import special

from tests.losses import oracle
from tests.losses.conftest import (
    assert_close,
    contract,
    gradient,
    make_mesh,
    outputs,
    per_example,
    total,
    weighted,
)
from vlc_jax import errors, losses
from vlc_jax.losses import masks, svlc

LOSSES = [name for name in losses.LOSSES if name not in oracle.LOCAL]
WITH_TEXTS = tuple(name for name in LOSSES if losses.LOSSES[name].needs)
OF_TEXTS = {"intra_modal", "text_grounded", "paraphrase"}  # which compare texts with texts
KINDS = ("negative", "positive")
TILED = ("negclip", "sigmoid_negatives")  # also chunked, and over devices
SOME_ROWS = {"negclip": {"rows": (0, 2), "all_images": True}}
EMBEDDINGS = ("image", "text", "negative", "positive")
SCORES = [f"{own}{kind}scores" for own in ("", "own_") for kind in ("", "negative_", "positive_")]
# smoothed labels have a best probability below 1, beyond which the signs of the slopes change
UNSMOOTHED = {"hn_focal": {"label_smoothing": 0.0}}


class Found(NamedTuple):
    """A loss with its default options on a batch, as numpy arrays."""

    values: dict[str, Any]  # duplicates -> of each example
    mean: Any
    slopes: dict[str, Any]  # of the mean, by embeddings, scale and bias
    by_scores: dict[str, Any]  # slopes of the sum by SCORES, and by the pooled "text"


@jax.jit
def _every_loss(batch):
    """All losses in one program, which compiles in a third of the time of one for each."""
    made = outputs(batch)

    def found(name):
        def values(outputs, duplicates="keep", **options):
            pair_masks = masks.pair_masks(contract(batch), duplicates)
            return losses.LOSSES[name].values("dense", outputs, pair_masks, **options)

        def mean(inputs):
            moved = {**batch, **inputs}
            return losses.total({name: {"weight": 1.0}}, outputs(moved), contract(moved))[0]

        def total(outputs):
            return values(outputs, **UNSMOOTHED.get(name, {})).sum()

        inputs = {key: batch[key] for key in (*EMBEDDINGS, "logit_scale", "logit_bias")}
        by_outputs = jax.grad(total, allow_int=True)(made)  # the padding mask of tokens is bool
        by_scores = {key: getattr(by_outputs, key) for key in SCORES}
        return Found(
            {duplicates: values(made, duplicates) for duplicates in ("keep", "mask")},
            *jax.value_and_grad(mean)(inputs),
            {**by_scores, "text": by_outputs.text.pooled},
        )

    return {name: found(name) for name in LOSSES}


@functools.cache
def _every_loss_of(names, *arrays):
    shaped = (np.frombuffer(raw, dtype).reshape(shape) for raw, dtype, shape in arrays)
    return jax.device_get(_every_loss(dict(zip(names, shaped, strict=True))))


@pytest.fixture
def every_loss():
    """every_loss(batch) -> Found by the name of the loss."""

    def call(batch):
        raw = ((x.tobytes(), x.dtype, x.shape) for x in map(np.asarray, batch.values()))
        return _every_loss_of((*batch,), *raw)

    return call


def counted(name, batch):
    """Boolean mask of the examples in the mean of a loss."""
    mask, loss = batch["mask"], losses.LOSSES[name]
    for kind in loss.needs if loss.mean_over == "examples_with_hard_texts" else ():
        mask = mask & batch[f"{kind}_mask"].any(axis=1)
    return mask


@pytest.mark.parametrize("duplicates", ["keep", "mask"])
@pytest.mark.parametrize("name", WITH_TEXTS)
def test_dense_equals_numpy(repeated, every_loss, name, duplicates):
    reference = oracle.Oracle(repeated, duplicates)
    expected = reference.values(getattr(reference, name))
    values = every_loss(repeated)[name].values[duplicates]
    np.testing.assert_allclose(values, expected, rtol=2e-5, atol=1e-5)
    assert np.count_nonzero(expected) >= 13
    assert np.all(expected >= 0)


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_gradient_is_the_slope_of_the_numpy_formula(batch, every_loss, name):
    slopes = every_loss(batch)[name].slopes
    rng = np.random.default_rng(3)
    wide = {key: np.asarray(batch[key], np.float64) for key in slopes}
    directions = {key: rng.normal(size=np.shape(x)) for key, x in wide.items()}

    def mean(step):
        moved = {key: x + step * directions[key] for key, x in wide.items()}
        reference = oracle.Oracle({**batch, **moved})
        return reference.values(getattr(reference, name))[counted(name, batch)].mean()

    expected = (mean(1e-5) - mean(-1e-5)) / 2e-5
    found = sum(np.sum(directions[key] * slope) for key, slope in slopes.items())
    assert abs(expected) > 0.05
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_mean_is_over_the_examples_that_have_the_texts_it_needs(batch, every_loss, name):
    mask, found = counted(name, batch), every_loss(batch)[name]
    assert 10 < mask.sum() <= 19
    assert mask[3] == (losses.LOSSES[name].mean_over == "batch")
    np.testing.assert_allclose(found.mean, found.values["keep"][mask].mean(), rtol=1e-5)


@pytest.mark.parametrize("name", ["svlc_negative", "negclip"])
def test_negative_range_selects_hard_negatives_by_their_index(batch, name):
    @jax.jit
    def totals(batch):
        pairs = []
        for negative_range, part in (((0, 1), slice(0, 1)), ((1, None), slice(1, None))):
            keys = ("negative", "negative_text", "negative_mask")
            fewer = {**batch, **{key: batch[key][:, part] for key in keys}}
            pairs.append((total(name, batch, negative_range=negative_range), total(name, fewer)))
        return total(name, batch), pairs

    every, pairs = jax.device_get(totals(batch))
    for some, fewer in pairs:
        np.testing.assert_allclose(some, fewer, rtol=1e-6)
        assert abs(some - every) > 1e-3


def test_the_hinge_between_texts_is_that_of_numpy(repeated):
    for duplicates in ("keep", "mask"):
        reference = oracle.Oracle(repeated, duplicates)
        found = per_example("paraphrase", repeated, duplicates, margin=0.3)
        for i in reference.real:
            costs = []
            for k in reference.own("positive", i):
                positive = reference.vectors["positive"][i, k]
                cosines = reference.vectors["text"] @ positive
                others = [j for j in reference.seen_by(i, k) if j != i]
                costs.append(np.maximum(0.3 + cosines[others] - cosines[i], 0).sum())
            np.testing.assert_allclose(found[i], np.mean(costs or [0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["negclip", "intra_modal"])
def test_missing_negatives_that_are_kept_count_like_others(batch, name):
    option = {"as_released": True} if name == "intra_modal" else {}
    every = {**batch, "negative_mask": np.ones_like(batch["negative_mask"])}

    @jax.jit
    def totals(batch, every):
        ranges = [option, {**option, "negative_range": (1, 2)}]
        pairs = [(total(name, batch, missing="keep", **x), total(name, every, **x)) for x in ranges]
        return total(name, batch, **option), pairs

    without, pairs = jax.device_get(totals(batch, every))
    for kept, expected in pairs:
        np.testing.assert_allclose(kept, expected, rtol=1e-6)
    assert abs(pairs[0][0] - without) > 1e-2


def test_a_loss_of_some_rows_is_that_of_these_rows_alone(batch):
    for start in (0, 1):
        some = {key: x[start::2] if x.ndim else x for key, x in batch.items()}
        found = total("negclip", batch, rows=(start, 2))
        np.testing.assert_allclose(found, total("negclip", some), rtol=1e-6)
    own = {"loss": "negclip", "weight": 2.0, "rows": (1, 2)}
    both = {"negclip": {"weight": 1.0, "rows": (0, 2)}, "other": own}
    value, parts = jax.jit(functools.partial(losses.total, both))(outputs(batch), contract(batch))
    assert {name: int(count) for name, (_, count) in parts.items()} == {"negclip": 10, "other": 9}
    np.testing.assert_allclose(value, total("negclip", batch, rows=(0, 2)) + 2 * found, rtol=1e-6)


def test_an_example_with_duplicate_negatives_does_not_count(repeated, every_loss):
    mask = counted("svlc_negative", repeated)
    assert mask[5]
    mask[5] = False
    values = every_loss(repeated)["svlc_negative"].values["mask"]
    found = total("svlc_negative", repeated, duplicates="mask")
    np.testing.assert_allclose(found, values[mask].mean(), rtol=1e-5)


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_permuting_the_examples_permutes_the_values(repeated, every_loss, name):
    order = np.random.default_rng(1).permutation(24)
    moved = {k: v[order] if v.ndim else v for k, v in repeated.items()}
    found, expected = (every_loss(x)[name].values for x in (moved, repeated))
    for duplicates in ("keep", "mask"):
        np.testing.assert_allclose(
            found[duplicates], expected[duplicates][order], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_padding_and_missing_texts_change_nothing(batch, every_loss, name):
    """Whatever they hold: the values stay, and their own gradient is 0, not NaN."""
    other, is_there = dict(batch), {}
    for key in EMBEDDINGS:
        has = batch.get(f"{key}_mask", np.ones(24, bool))
        is_there[key] = has & batch["mask"].reshape((-1,) + (1,) * (has.ndim - 1))
        other[key] = np.where(is_there[key][..., None], batch[key], np.float32(50.0))
    found, changed = every_loss(batch)[name], every_loss(other)[name]
    np.testing.assert_allclose(changed.mean, found.mean, rtol=1e-6)
    for key in EMBEDDINGS:
        np.testing.assert_allclose(changed.slopes[key], found.slopes[key], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(found.slopes[key][~is_there[key]], 0.0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_of_padding_gives_zero_not_nan(batch, every_loss, name):
    found = every_loss({**batch, "mask": np.zeros(24, bool)})[name]
    assert float(found.mean) == 0.0
    for slope in found.slopes.values():
        np.testing.assert_array_equal(slope, 0.0)


@pytest.mark.devices
@pytest.mark.slow
@pytest.mark.parametrize("name", ["infonce", "sigmoid", *TILED])
def test_chunks_and_rings_equal_dense(repeated, name):
    given = {"duplicates": "mask", **SOME_ROWS.get(name, {})}
    expected = gradient(name, repeated, **given)
    for how in (
        {"implementation": "chunked", "chunk": 5},
        {"implementation": "ring", "mesh": make_mesh(4, 2)},
    ):
        assert_close(gradient(name, repeated, **given, **how), expected)


@pytest.mark.devices
@pytest.mark.slow
@pytest.mark.parametrize("name", TILED)
def test_ring_passes_the_negatives_on_and_never_gathers(batch, name):
    mesh = make_mesh(4, 2)
    split = jax.sharding.NamedSharding(mesh, jax.P(("data", "fsdp")))
    arrays = {key: jax.device_put(x, split) if x.ndim else x for key, x in batch.items()}
    slope = jax.grad(lambda x, batch: total(name, {**batch, **x}, mesh, implementation="ring"))
    hlo = jax.jit(slope).lower({key: arrays[key] for key in EMBEDDINGS}, arrays).compile().as_text()
    assert "collective-permute" in hlo
    assert "all-gather" not in hlo


@pytest.mark.devices
@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_TEXTS)
def test_a_batch_on_eight_devices_equals_one(repeated, name):
    expected = gradient(name, repeated, duplicates="mask")
    split = jax.sharding.NamedSharding(make_mesh(2, 4), jax.P(("data", "fsdp")))
    spread = {key: jax.device_put(x, split) if x.ndim else x for key, x in repeated.items()}
    assert_close(gradient(name, spread, duplicates="mask"), expected)


@pytest.mark.parametrize("name", TILED)
def test_without_any_negative_it_is_the_plain_loss(batch, every_loss, name):
    found = every_loss({**batch, "negative_mask": np.zeros((24, 3), bool)})
    plain = found[{"negclip": "infonce", "sigmoid_negatives": "sigmoid"}[name]]
    assert_close((found[name].mean, found[name].slopes), (plain.mean, plain.slopes))


def test_negclip_adds_to_the_rows_of_images_only(batch, every_loss):
    """log(a + b) - log(a) = softplus(log b - log a) is all it adds, so its columns are CLIP's."""
    mask = batch["mask"]
    logits = 7.0 * (batch["image"] @ batch["text"].T)[:, mask]
    negative = batch["negative"][mask][batch["negative_mask"][mask]]
    more = special.logsumexp(7.0 * batch["image"] @ negative.T, axis=1)
    added = np.logaddexp(0.0, more - special.logsumexp(logits, axis=1)) / 2
    negclip, infonce = (every_loss(batch)[name].values["keep"] for name in ("negclip", "infonce"))
    found = negclip - infonce
    np.testing.assert_allclose(found[:19], added[:19], rtol=1e-4, atol=1e-5)


def test_one_own_negative_costs_softplus_of_the_difference():
    rng = np.random.default_rng(4)
    own, wrong = rng.uniform(-1, 1, (2, 6)).astype(np.float32)
    loss = jax.jit(svlc.negative)
    value = loss(own, wrong[:, None], np.float32(100.0), np.ones((6, 1), bool))
    np.testing.assert_allclose(value, np.logaddexp(0, 100.0 * (wrong - own)), rtol=1e-4, atol=1e-6)


def test_analogy_with_captions_as_positives_is_half_of_clip(batch):
    """Both of its terms, given the images' scores, are then CLIP's loss from image to text."""
    scores = batch["image"] @ batch["text"].T
    expected = special.logsumexp(7.0 * scores, axis=1) - 7.0 * np.diag(scores)
    given = scores[..., None], scores[..., None], np.float32(7.0), np.ones((24, 24, 1), bool)
    value = jax.jit(svlc.analogy)(*given)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    both = jax.jit(svlc.analogy_symmetric)(*given)
    turned = special.logsumexp(7.0 * scores, axis=0) - 7.0 * np.diag(scores)
    np.testing.assert_allclose(both, (expected + turned) / 2, rtol=1e-4, atol=1e-5)


def test_mil_costs_at_least_ln_2_and_no_more_for_a_perfect_bag(batch, every_loss):
    values = every_loss(batch)["dac_mil"].values["keep"][counted("dac_mil", batch)]
    assert np.all(values > np.log(2))
    eye = np.eye(24, dtype=np.float32)
    perfect = {**batch, "image": eye, "text": eye, "negative": np.zeros((24, 3, 24), np.float32)}
    perfect["positive"] = np.broadcast_to(eye[:, None], (24, 2, 24))
    values = per_example("dac_mil", {**perfect, "logit_scale": np.float32(100.0)})
    np.testing.assert_allclose(values[counted("dac_mil", batch)], np.log(2), rtol=1e-5)


@pytest.mark.parametrize("weights", [{"infonce": 1.0}, {"infonce": 1.0, "svlc_negative": 0.0}])
def test_negatives_of_weight_0_have_no_gradient(batch, weights):
    def slopes(weights):
        return weighted(weights, batch)[1]["negative"]

    np.testing.assert_array_equal(slopes(weights), 0.0)
    for other in ({**weights, "svlc_negative": 0.5}, {"negclip": 1.0}):
        assert np.abs(slopes(other)[:3]).max() > 1e-4


@pytest.mark.parametrize("name", LOSSES)
def test_the_record_says_which_hard_texts_meet_all_images(batch, every_loss, name):
    slopes, loss = every_loss(batch)[name].by_scores, losses.LOSSES[name]
    all_images = {kind: np.any(slopes[f"{kind}_scores"]) for kind in KINDS}
    assert {kind for kind in KINDS if all_images[kind]} == set(loss.contrasts_all)


@pytest.mark.parametrize("name", sorted({*WITH_TEXTS} - OF_TEXTS))
def test_gradient_raises_the_own_texts_and_lowers_the_others(batch, every_loss, name):
    slopes = every_loss(batch)[name].by_scores
    real = batch["mask"]
    has = {kind: batch[f"{kind}_mask"] & real[:, None] for kind in KINDS}
    is_own, is_pair = np.eye(24, dtype=bool), real[:, None] & real[None]
    lowered, raised = [], []
    if name in TILED:
        lowered = [(slopes["negative_scores"], is_pair[..., None] & has["negative"][None])]
        raised = [(slopes["scores"], is_own & is_pair)]
    elif name == "cross_modal_rank":
        # beyond its threshold, at most 10 and at least 0, a gap costs nothing
        margin = np.clip(np.array([oracle.THRESHOLDS]), 0, 10)
        gap = 7.0 * (np.einsum("ie,ie->i", batch["image"], batch["text"])[:, None]
                     - np.einsum("ie,ine->in", batch["image"], batch["negative"]))  # fmt: skip
        is_near = has["negative"] & (gap < margin)
        assert 0 < is_near.sum() < has["negative"].sum()
        lowered = [(slopes["own_negative_scores"], is_near)]
        raised = [(slopes["own_scores"], is_near.any(axis=1))]
    elif name in ("svlc_negative", "hn_focal"):
        lowered = [(slopes["own_negative_scores"], has["negative"])]
        raised = [(slopes["own_scores"], has["negative"].any(axis=1))]
    elif name == "units":  # the last two negatives are foils
        has_foil = has["positive"] & has["negative"][:, 1:]
        lowered = [(slopes["own_negative_scores"][:, 1:], has_foil)]
        raised = [(slopes["positive_scores"], is_own[..., None] & has_foil[None])]
    elif name == "clic_negative":
        lowered = [(slopes["own_negative_scores"], has["negative"])]
        raised = [
            (slopes["own_positive_scores"], has["positive"] & has["negative"].any(1)[:, None])
        ]
    elif name == "clic_distance":  # of two texts, whatever the image
        apart = 2 * (batch["text"] - batch["positive"][:, 0]) * has["positive"][:, :1]
        np.testing.assert_allclose(slopes["text"], apart, rtol=1e-5, atol=1e-6)
    elif name == "sigmoid_own_positives":
        raised = [(slopes["own_positive_scores"], has["positive"])]
    elif name == "dac_negative_bag":
        has_both = has["negative"].any(axis=1) & has["positive"].any(axis=1)
        lowered = [(slopes["own_negative_scores"], has["negative"] & has_both[:, None])]
        raised = [(slopes["own_positive_scores"], has["positive"] & has_both[:, None])]
    else:
        own = is_own[..., None] & has["positive"][None]
        assert np.all(slopes["positive_scores"][~own] >= 0)
        raised = [(slopes["positive_scores"], own)]
    for slope, where in lowered:
        assert np.all(slope[where] > 0)
        np.testing.assert_array_equal(slope[~where], 0.0)
    for slope, where in raised:
        assert np.all(slope[where] < 0)


def test_a_negative_range_behind_the_last_negative_is_refused(batch):
    with pytest.raises(errors.UsageError, match=r"\(3, None\) of a loss leaves none of .* 3 hard"):
        total("negclip", batch, negative_range=(3, None))
