"""COCO-spatial and GQA-spatial: prepositions, the left/right subset, images by id."""

import shutil

import pytest

from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, spatial


@pytest.mark.parametrize(
    ("name", "prepositions"),
    [
        ("coco_spatial_one", ["left", "right", "top", "bottom"]),
        ("coco_spatial_two", ["left", "above", "below"]),
        ("gqa_spatial_one", ["left", "right", "top", "bottom"]),
        ("gqa_spatial_two", ["right", "front", "top"]),
    ],
)
def test_left_right_is_a_subset_of_the_prepositions(name, prepositions, root):
    benchmark = PUBLISHED[name][0](root)
    assert [case.group["preposition"] for case in benchmark.cases] == prepositions
    metrics = evaluators.evaluate("choice", benchmark, random_scorer()).metrics
    horizontal = sum(p in ("left", "right") for p in prepositions)
    assert metrics["accuracy/subset=left_right"].count == horizontal
    assert metrics["accuracy"].chance == 1 / 2


def test_images_of_coco_have_twelve_digits(root):
    names = [case.images[0].name for case in spatial.coco_spatial_one(root).cases]
    assert names[0] == "000000000139.jpg"


def test_images_of_visual_genome_are_found_in_any_folder(root):
    both = [case.images[0] for case in spatial.gqa_spatial_one(root).cases]
    assert [path.parent.name for path in both] == ["VG_100K", "VG_100K_2"] * 2
    archive = root / "whatsup" / "vg_images"
    archive.mkdir()
    for path in both:
        shutil.copy(path, archive)
    flat = spatial.gqa_spatial_one(root, images="whatsup/vg_images").cases
    assert [case.images[0] for case in flat] == [archive / path.name for path in both]
