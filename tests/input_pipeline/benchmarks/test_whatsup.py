"""What'sUp: pairs and sets, the two-way form, swapped images, names that say nothing."""

import numpy as np
import pytest

from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, whatsup
from vlc_jax.types import ImageFeatures


def scorer_that_misses(*names):
    """Gives the correct caption of an image the highest score, except for images of these names."""

    def embed_images(images):
        return ImageFeatures(np.array([[path.stem not in names] for path in images], np.float32))

    def options(images, texts):
        scores = np.zeros((len(images.pooled), len(texts.pooled) // len(images.pooled)))
        scores[:, 0] = 2 * images.pooled[:, 0] - 1
        return scores

    return random_scorer()._replace(embed_images=embed_images, score_options=options)


def test_one_miss_costs_a_pair_and_a_set(root):
    benchmark = whatsup.whatsup_a(root)
    scorer = scorer_that_misses("tea-pot_left_of_side-table")
    metrics = evaluators.evaluate("choice", benchmark, scorer).metrics
    assert metrics["accuracy"].value == 7 / 8
    assert metrics["pair_accuracy"].value == 3 / 4
    assert metrics["pair_accuracy/subset=on_under"].value == 1
    assert metrics["set_accuracy"].value == 1 / 2
    chances = [metrics[f"{kind}accuracy"].chance for kind in ("", "pair_", "set_")]
    assert chances == [1 / 4, 1 / 16, 1 / 256]


@pytest.mark.parametrize("name", ["whatsup_a_two_way", "whatsup_b_two_way"])
def test_two_way_keeps_the_caption_with_the_opposite_preposition(name, root):
    four_way = PUBLISHED[name.removesuffix("_two_way")][0](root).cases
    two_way = PUBLISHED[name][0](root)
    for case, whole in zip(two_way.cases, four_way, strict=True):
        assert case.images == whole.images
        assert case.captions[0] == whole.captions[0]
        opposite = whatsup.OPPOSITES[case.group["preposition"]]
        assert [c for c in whole.captions if opposite in c.split()] == [case.captions[1]]
    metrics = evaluators.evaluate("choice", two_way, scorer_that_misses()).metrics
    assert metrics["accuracy"].chance == 1 / 2
    assert metrics["pair_accuracy"].chance == 1 / 4
    assert "set_accuracy" not in metrics


@pytest.mark.parametrize("name", ["whatsup_a", "whatsup_a_two_way"])
def test_label_fixes_swap_two_images_and_change_the_version(name, root):
    reader = PUBLISHED[name][0]
    plain, fixed = reader(root), reader(root, label_fixes=True)
    changed = {
        case.images[0].name: other.images[0].name
        for case, other in zip(plain.cases, fixed.cases, strict=True)
        if case != other
    }
    assert changed == whatsup.LABEL_FIXES
    assert [case.captions for case in plain.cases] == [case.captions for case in fixed.cases]
    assert plain.version != fixed.version
    assert any("pillow" in note for note in fixed.notes)


def test_set_b_has_no_label_fixes(root):
    with pytest.raises(TypeError, match="label_fixes"):
        whatsup.whatsup_b(root, label_fixes=True)


def test_incomplete_pairs_and_sets_are_not_counted(root):
    benchmark = whatsup.whatsup_b(root, count=3)  # left, right, front of one set
    metrics = evaluators.evaluate("choice", benchmark, scorer_that_misses()).metrics
    assert metrics["accuracy"].count == 3
    assert metrics["pair_accuracy"].count == 1
    assert "set_accuracy" not in metrics


def test_dcsms_wording_has_two_dimensions_but_for_its_baselines(root):
    published = whatsup.whatsup_a(root), whatsup.whatsup_b(root)
    of_head = whatsup.whatsup_a(root, wording="dcsm"), whatsup.whatsup_b(root, wording="dcsm")
    a, b = (benchmark.cases[3].captions for benchmark in of_head)  # under, behind
    assert a[0] == "An image of A pillow below a chair"
    assert b[0] == "An image of A mug above a plate"
    assert {text.split()[5] for text in (*a, *b)} == {"below", "above", "to"}
    baseline = whatsup.whatsup_b(root, wording="dcsm_baseline")
    assert baseline.cases[3].captions[0] == "An image of A mug behind a plate"
    for before, after in zip(published, of_head, strict=True):
        assert after.version == f"{before.version}/dcsm"
        assert after.files == before.files
        assert "wording dcsm" in after.notes[-1]
    with pytest.raises(ValueError, match="wording is one of dcsm, dcsm_baseline; got 'flat'"):
        whatsup.whatsup_a(root, wording="flat")
