"""Results carry how they are shown."""

import pytest

from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import Benchmark
from vlc_jax.report import display, table
from vlc_jax.report.display import DEFAULT


def written(protocol):
    estimate = evaluators.Estimate(0.5, 8, 0.5, 0.2, 0.8, 0.125)
    result = evaluators.EvalResult(dict.fromkeys(["accuracy", "pair_accuracy"], estimate), [])
    return evaluators.to_json(protocol, Benchmark("b", [], "1"), result, reader="b", step=3)


@pytest.mark.parametrize("protocol", evaluators.PROTOCOLS)
def test_every_result_says_how_it_is_shown(protocol):
    assert display.of(written(protocol)) != DEFAULT


def test_a_protocol_that_the_report_has_never_heard_of_brings_its_own():
    result = written("choice")
    result |= {"protocol": "new"}
    result["display"] |= {"order": 0, "correct": "newness"}
    row, *_ = table.rows([written("choice"), result])
    assert (row.protocol, row.display.correct) == ("new", "newness")
    assert display.of({"protocol": "new"}) == DEFAULT
    assert display.of({"protocol": ["unhashable"]}) == DEFAULT


@pytest.mark.parametrize(
    "field", [{"order": "first", "correct": 7, "by_group": "yes", "asks": 1}, {"unknown": 1}, {}]
)
def test_values_of_another_type_are_ignored(field):
    assert display.of({"protocol": "triplet", "display": field}) == DEFAULT
    assert display.of({"protocol": "triplet", "display": [field]}) == DEFAULT
