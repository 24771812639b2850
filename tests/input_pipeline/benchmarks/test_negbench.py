"""NegBench: the correct caption first, images by name, both retrieval sets, wrong rows."""

import pytest

from tests.support.sets import negbench as miniature
from tests.support.sets.files import write_table
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import negbench


def question(**change):
    captions = {f"caption_{k}": f"caption {k}" for k in range(4)}
    row = {"image_path": r"C:\data\7.jpg", "correct_answer": 0, "correct_answer_template": "hybrid"}
    return captions | row | change


def test_images_are_the_sets_whatever_the_path_in_the_table(root):
    cases = negbench.negbench(root).cases
    places = {case.group["subset"]: case.images[0].relative_to(root) for case in cases}
    assert str(places["coco"]) == "coco/val2017/000007.jpg"
    assert str(places["voc2007"]) == "VOCdevkit/VOC2007/JPEGImages/000007.jpg"


def test_the_correct_caption_comes_first(tmp_path):
    write_table(tmp_path / "negbench/images" / negbench.FILES["coco"], [question(correct_answer=2)])
    (case,) = negbench.negbench(tmp_path, subsets=("coco",)).cases
    assert case.captions == ("caption 2", "caption 0", "caption 1", "caption 3")
    assert case.meta["record"] == "coco/val2017/7.jpg"


def test_results_are_by_data_set_and_template(root):
    benchmark = negbench.negbench(root)
    metrics = evaluators.evaluate("choice", benchmark, random_scorer()).metrics
    parts = [metrics[f"accuracy/subset={subset}"].value for subset in ("coco", "voc2007")]
    assert metrics["accuracy_macro"].value == pytest.approx(sum(parts) / 2)
    assert {f"accuracy/template={template}" for template in miniature.TEMPLATES} <= set(metrics)


def test_retrieval_is_with_or_without_negation(root):
    negated, plain = (negbench.negbench_retrieval(root, negated=flag) for flag in (True, False))
    assert negated.cases[2].captions[1] == "No pan is there. A cup 2 beside a pot 1."
    assert plain.cases[2].captions[1] == "A cup 2 beside a pot 1."
    assert negated.version != plain.version
