"""BiVLC, COCO-Counterfactuals and COLA: what is special about each."""

import os
from pathlib import Path

import pytest

from tests.support import sets
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks.bivlc import bivlc
from vlc_jax.input_pipeline.benchmarks.coco_counterfactuals import coco_counterfactuals
from vlc_jax.input_pipeline.benchmarks.cola import cola
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError

DATA = os.environ.get("VLC_BENCHMARK_DATA")
NEEDS_DATA = pytest.mark.skipif(not DATA, reason="VLC_BENCHMARK_DATA names no folder")


def test_bivlc_has_each_caption_beside_its_own_image_and_groups_of_types(all_sets):
    benchmark = bivlc(all_sets)
    first = benchmark.cases[0]
    assert first.captions == ("0 cups on a table", "a table on 0 cups")
    assert [picture.column for picture in first.images] == ["image", "negative_image"]
    metrics = evaluators.evaluate("pairs", benchmark, random_scorer()).metrics
    assert metrics["group_score/type=replace"].count == 2
    assert metrics["group_score/subset=replace_att"].count == 1


def test_captions_made_from_one_of_coco_are_one_cluster(all_sets):
    cases = coco_counterfactuals(all_sets).cases
    assert [case.meta["record"] for case in cases] == ["158", "158", "164"]


def test_cola_finds_images_in_both_folders_of_visual_genome(all_sets):
    for case in cola(all_sets).cases:
        assert all(image_ops.decode(picture).size for picture in case.images)


@pytest.mark.parametrize("row", [["a.jpg", "x", "b.jpg"], "row", ["a.jpg", "x", "b.jpg", None]])
def test_a_wrong_row_of_cola_is_named(tmp_path, row):
    sets.cola.write(tmp_path)
    file = tmp_path / "cola" / "COLA_multiobjects_matching_benchmark.json"
    sets.files.write_json(file, [["a.jpg", "x", "b.jpg", "y"], row])
    with pytest.raises(DataError, match=r"COLA_multi.*case 1 "):
        cola(tmp_path)


@NEEDS_DATA
def test_the_published_files_have_the_published_counts():
    assert len(cola(DATA).cases) == 210
    found = coco_counterfactuals(DATA, folder=Path(DATA) / "t2v_metrics")
    assert (len(found.cases), found.notes) == (17_410, ())
