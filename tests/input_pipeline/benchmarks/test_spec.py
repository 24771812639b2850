"""SPEC: both directions, the correct option first, means of subsets, wrong rows."""

import json

import pytest

from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import spec
from vlc_jax.input_pipeline.record import DataError


def test_the_correct_caption_or_image_comes_first(root):
    cases = {case.id: case for case in spec.spec(root, subsets=("count",)).cases}
    to_text = cases["count_image_to_text_000001_cup_7_right.jpg"]
    assert [each.name for each in to_text.images] == ["right.jpg"]
    assert [text.split()[-1] for text in to_text.captions] == ["right.", "left.", "top."]
    to_image = cases["count_text_to_image_000002_cup_7_top.jpg"]
    assert to_image.captions == ("count: a cup is on the top.",)
    assert [each.name for each in to_image.images] == ["top.jpg", "left.jpg", "right.jpg"]
    assert all(each.is_file() for each in to_image.images)


def test_headlines_are_means_over_subsets_of_each_direction(root):
    benchmark = spec.spec(root)
    metrics = evaluators.evaluate("choice", benchmark, random_scorer()).metrics
    for direction in spec.FILES:
        parts = [metrics[f"accuracy/{direction}={subset}"].value for subset in spec.SUBSETS]
        assert metrics[f"accuracy_{direction}"].value == pytest.approx(sum(parts) / 6)
    assert benchmark.summary == ("accuracy_image_to_text", "accuracy_text_to_image")


@pytest.mark.parametrize(
    "row",
    [
        {"query": "a.jpg", "keys": ["a", "b"], "label": 2},
        {"query": "a.jpg", "keys": ["a", "b"], "label": "0"},
        {"query": "a.jpg", "keys": ["a"], "label": 0},
        {"query": "a.jpg", "keys": "ab", "label": 0},
    ],
)
def test_a_wrong_row_is_named(tmp_path, row):
    (tmp_path / "spec" / "count").mkdir(parents=True)
    (tmp_path / "spec" / "count" / "image2text.json").write_text(json.dumps([row]))
    with pytest.raises(DataError, match=r"count/image2text\.json: case 0 needs two or more texts"):
        spec.spec(tmp_path, subsets=("count",))
