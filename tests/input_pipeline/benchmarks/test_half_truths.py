"""Half-truths: the three captions of a case, both accuracies, wrong rows."""

import pytest

from tests.support.sets import half_truths as miniature
from tests.support.sets.files import write_parquet
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import half_truths
from vlc_jax.input_pipeline.record import DataError


def test_the_short_caption_stands_against_the_half_truth(root):
    case = half_truths.half_truths(root).cases[1]
    assert case.captions == ("a cup 1", "a cup 1 under a shelf")
    assert case.meta["positive"] == "a cup 1 on a shelf"
    assert case.group == {"subset": "coco_qwen", "detail": "relation"}


def test_headlines_are_those_of_the_paper(root):
    benchmark = half_truths.half_truths(root)
    result = evaluators.evaluate("triplet", benchmark, random_scorer())
    scores = [row["scores"] for row in result.per_example]  # of the short, half and full truth
    right = sum(short > half for short, half, _ in scores) / len(scores)
    ordered = sum(full > short > half for short, half, full in scores) / len(scores)
    assert result.metrics["original_accuracy"].value == pytest.approx(right)
    assert result.metrics["ordered_accuracy"].value == pytest.approx(ordered)
    assert benchmark.summary[:2] == ("original_accuracy_macro", "ordered_accuracy_macro")
    assert "original_accuracy/detail=entity" in result.metrics


def test_a_row_without_a_text_is_named(tmp_path):
    rows = [miniature.ROWS[0], miniature.ROWS[1] | {"half_truth": None}]
    write_parquet(tmp_path / "half_truths" / "coco_qwen.parquet", rows)
    with pytest.raises(DataError, match=r"coco_qwen\.parquet: case 1 has no 'half_truth'"):
        half_truths.half_truths(tmp_path)
