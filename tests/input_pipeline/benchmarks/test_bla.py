"""BLA: pairs of a right and a wrong sentence, groups of four, wrong rows."""

import json

import pytest

from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import bla
from vlc_jax.input_pipeline.record import DataError


def test_each_right_sentence_stands_against_the_wrong_one_of_its_number(root):
    first, second = bla.bla(root, subsets=("coordination",), count=2).cases
    assert first.captions == (
        "coordination 0: the cook in white holds a pot",
        "coordination 0: the cook in white holds a pan",
    )
    assert second.captions[0] == "coordination 0: the cook in blue holds a pan"
    assert first.group["four"] == second.group["four"]


def test_four_sentences_count_as_one_beside_the_pairs(root):
    benchmark = bla.bla(root)
    metrics = evaluators.evaluate("choice", benchmark, random_scorer()).metrics
    assert metrics["accuracy"].count == 18
    assert metrics["four_accuracy"].count == 9
    assert metrics["four_accuracy"].chance == pytest.approx(1 / 4)
    assert not any("four=" in name for name in metrics)


def test_the_authors_first_group_of_an_image_is_an_option(root):
    assert len(bla.bla(root, first_group=True).cases) == 3 * 2 * 2


@pytest.mark.parametrize("groups", [{"True1": "a"}, [{"True1": "a", "False1": "b"}], ["a"]])
def test_a_wrong_group_is_named(tmp_path, groups):
    folder = tmp_path / "BLA_Benchmark" / "annotations"
    folder.mkdir(parents=True)
    rows = [{"image_id": 7, "caption_group": groups}]
    (folder / "active_passive_captions.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"active_passive_captions\.json: case 0 needs a list of"):
        bla.bla(tmp_path)
