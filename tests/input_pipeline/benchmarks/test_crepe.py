"""CREPE: crops, both folders of images, lists of negatives, parts of the sets, wrong rows."""

import pytest

from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import crepe
from vlc_jax.input_pipeline.images import image_ops


def test_a_case_is_a_region_its_caption_and_the_negatives(root):
    case = crepe.crepe_systematicity(root, negatives=("comp",)).cases[0]
    assert case.captions[0] == 'a "big" cup, on a table 7'
    assert case.captions[1:] == ("a comp pan 0", "a comp pan 1", "a comp pan 2")
    assert image_ops.decode(case.images[0]).shape == (16, 20, 3)
    assert case.images[0].box == (4, 6, 24, 22)


def test_images_are_found_in_both_folders(root):
    cases = crepe.crepe_productivity(root).cases
    assert {case.images[0].image.parent.name for case in cases} == {"VG_100K", "VG_100K_2"}


def test_productivity_has_recalls_and_a_mean_over_kinds(root):
    benchmark = crepe.crepe_productivity(root)
    result = evaluators.evaluate("choice", benchmark, random_scorer())
    assert {"recall_at_3", "recall_at_5", "mean_rank", "median_rank"} <= set(result.metrics)
    kinds = [
        result.metrics[f"accuracy/subset={kind}"].value for kind in crepe.PRODUCTIVITY_NEGATIVES
    ]
    assert result.metrics["accuracy_macro"].value == pytest.approx(sum(kinds) / 3)
    assert result.metrics["accuracy"].chance == pytest.approx(1 / 6)
    assert "swap: 18 cases; published are 7,405" in benchmark.notes
    part = crepe.crepe_productivity(root, negatives=("swap",), complexities=(4, 12))
    assert {case.group["file"] for case in part.cases} == {"swap_4", "swap_12"}


def test_systematicity_belongs_to_one_training_set(root):
    other = crepe.crepe_systematicity(root, training="cc12m")
    assert len(other.cases) == 2 * 3 * 2
    assert other.version.split("/")[1] == "12"
    atom, comp = (crepe.crepe_systematicity(root, negatives=(kind,)) for kind in ("atom", "comp"))
    assert atom.version != comp.version  # of the same files, and as many
    with pytest.raises(ValueError, match="training are some of"):
        crepe.crepe_systematicity(root, training="coco")
    with pytest.raises(ValueError, match="negatives are some of"):
        crepe.crepe_systematicity(root, negatives=("swap",))
