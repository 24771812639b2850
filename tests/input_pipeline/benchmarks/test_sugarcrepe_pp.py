"""SugarCrepe++: both tasks from one case, and wrong rows."""

import json

import pytest

from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import sugarcrepe
from vlc_jax.input_pipeline.record import DataError


def test_the_second_caption_is_the_hard_positive(root):
    case = sugarcrepe.sugarcrepe_pp(root).cases[1]
    assert case.captions[0] == "A dog replace_att chases a cat 2."
    assert case.captions[1] == "A cat replace_att chases a dog 2."
    assert case.meta["positive"] == "A cat replace_att is chased by a dog 2."
    assert case.id == "replace_att_000001_000000000002.jpg"


def test_headlines_are_means_over_subsets_of_both_tasks(root):
    benchmark = sugarcrepe.sugarcrepe_pp(root, subsets=("swap_att", "swap_obj"))
    result = evaluators.evaluate("triplet", benchmark, random_scorer())
    for task in ("augmented_accuracy", "text_accuracy"):
        parts = [result.metrics[f"{task}/subset=swap_{of}"].value for of in ("att", "obj")]
        assert result.metrics[f"{task}_macro"].value == pytest.approx(sum(parts) / 2)
    assert benchmark.summary[:2] == ("augmented_accuracy_macro", "text_accuracy_macro")


def test_a_number_of_cases_that_is_not_the_published_one_is_said(root):
    notes = sugarcrepe.sugarcrepe_pp(root).notes
    assert "swap_obj: 2 cases; published are 245" in notes


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("caption2", None, r"swap_obj\.json: case 1 has no 'caption2'"),
        ("caption", 7, "captions are texts; case swap_obj_000001_000000000002.jpg of"),
        ("filename", 7, "images of .*sugarcrepe_pp have names; got 7"),
    ],
)
def test_a_wrong_row_is_named(root, tmp_path, field, value, message):
    (tmp_path / "sugarcrepe_pp").mkdir()
    rows = json.loads((root / "sugarcrepe_pp" / "swap_obj.json").read_text())
    rows[1][field] = value
    (tmp_path / "sugarcrepe_pp" / "swap_obj.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match=message):
        sugarcrepe.sugarcrepe_pp(tmp_path, subsets=("swap_obj",))
