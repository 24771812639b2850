import itertools

import numpy as np
import pytest

from vlc_jax import evaluators
from vlc_jax.evaluators import retrieval, ties
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case


def make(protocol):
    """Six cases of a protocol; captions and images are all different."""
    cases = []
    for n in range(6):
        images = (b"%d" % n, b"%d b" % n) if protocol == "pairs" else (b"%d" % n,)
        counts = {"zeroshot": 0, "multilabel": 0, "retrieval": 1, "choice": 11 + n}
        captions = counts.get(protocol, 2)
        meta = {"positive": f"{n} p", "label": n, "labels": (n, (n + 1) % 6)}
        cases.append(Case(f"{n}", images, tuple(f"{n} {k}" for k in range(captions)), None, meta))
    classes = tuple("abcdef") if protocol in ("zeroshot", "multilabel") else ()
    return Benchmark("b", cases, "1", classes)


FRACTIONS = ("strict", "half")
# A linear probe learns from labels, also which class is the most frequent one; the others compare
# features (test_scene_geometry.py).
OF_FEATURES = ("linear_probe", "conditions", "superposition", "binding")
# Those that ask have tests of ties of their own, or no ties.
TIED = [protocol for protocol in evaluators.PROTOCOLS if protocol not in evaluators.ASKING]
OF_SCORES = [protocol for protocol in TIED if protocol not in OF_FEATURES]


@pytest.mark.parametrize("protocol", OF_SCORES)
def test_a_constant_scorer_gets_nothing_if_strict_and_chance_if_ties_are_shared(
    protocol, constant_scorer
):
    evaluate, benchmark = evaluators.PROTOCOLS[protocol].evaluate, make(protocol)
    strict, half = (evaluate(benchmark, constant_scorer, tie=tie) for tie in FRACTIONS)
    for name, metric in half.metrics.items():
        if metric.chance is None:
            continue
        np.testing.assert_allclose(metric.value, metric.chance, err_msg=name)
        if metric.unit == "fraction" and metric.chance < 1:
            assert strict.metrics[name].value == 0, name
            assert strict.metrics[name].ties > 0, name


def broken_at_random(scores, rule):
    """The mean of a rule over tiny disturbances of the scores: all orders of equal scores."""
    disturbances = np.array(list(itertools.permutations(range(scores.shape[1])))) * 1e-6
    return np.mean([rule(scores + each[None]) for each in disturbances], axis=0)


def test_shared_credit_is_that_of_ties_broken_at_random():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (200, 4)).astype(float)
    for rule in (
        lambda s: (s[:, 0] > s[:, 1]) & (s[:, 3] > s[:, 2]),
        lambda s: s[:, 0] > s[:, 1:].max(axis=1),
    ):
        np.testing.assert_allclose(
            ties.credit(scores, rule, "half"), broken_at_random(scores, rule), atol=1e-12
        )


@pytest.mark.parametrize("tie", ties.POLICIES)
def test_places_with_ties_equal_those_of_sorted_options(tie):
    rng = np.random.default_rng(1)
    scores, label = rng.integers(0, 4, (300, 7)).astype(float), rng.integers(0, 7, 300)
    standing = ties.standing(scores, label)
    for k in (1, 2, 5):
        if tie.endswith("_index"):
            step = {"first_index": 1, "last_index": -1}[tie]
            best = np.argsort(-scores[:, ::step], axis=1, kind="stable")[:, :k]
            expected = (np.arange(7)[::step][best] == label[:, None]).any(axis=1)
        else:
            above = (scores > scores[np.arange(300), label][:, None]).sum(axis=1)
            tied = (scores == scores[np.arange(300), label][:, None]).sum(axis=1)
            strict = above + tied <= k
            expected = strict if tie == "strict" else np.clip((k - above) / tied, 0, 1)
        np.testing.assert_allclose(standing.among_best(k, tie), expected)


@pytest.mark.parametrize("cells", [1, 10**6])
@pytest.mark.parametrize("tie", ties.POLICIES)
def test_retrieval_with_ties_equals_a_search_over_all_orders(tie, cells, table_scorer):
    rng = np.random.default_rng(2)
    table = rng.integers(0, 3, (3, 5)).astype(float)
    owner = [0, 0, 1, 2, 2]
    cases = [
        Case(f"{i}", (b"%d" % i,), tuple(f"t {t}" for t in range(5) if owner[t] == i))
        for i in range(3)
    ]
    look_up = lambda image, text: table[int(image), int(text.split()[1])]  # noqa: E731
    scorer = table_scorer(look_up).scorer()
    result = retrieval.evaluate(Benchmark("b", cases, "1"), scorer, tie=tie, cells=cells)
    correct = np.array(owner)[None] == np.arange(3)[:, None]
    for name, scores, right in (
        ("image_to_text", table, correct),
        ("text_to_image", table.T, correct.T),
    ):
        expected = np.mean([recall_at_1(s, r, tie) for s, r in zip(scores, right, strict=True)])
        np.testing.assert_allclose(result.metrics[f"{name}_r1"].value, expected)


def recall_at_1(scores, right, tie):
    best = scores == scores.max()
    if tie == "strict":
        return float(right[best].all())
    if tie == "half":
        return right[best].mean()
    return float(right[np.flatnonzero(best)[{"first_index": 0, "last_index": -1}[tie]]])


def test_last_index_takes_the_second_image_as_mmvps_code_does(table_scorer):
    """Two pairs: a tie of both images for the second caption, and ties for both captions."""
    tables = [[(0.5, 0.2), (0.4, 0.2)], [(0.5, 0.2), (0.5, 0.2)]]  # [pair][image][caption]
    look_up = lambda image, text: tables[int(text[0])][int(image[2:])][int(text[2:])]  # noqa: E731
    cases = [Case(f"{n}", (b"%d-0" % n, b"%d-1" % n), (f"{n}-0", f"{n}-1")) for n in (0, 1)]
    scorer, benchmark = table_scorer(look_up).scorer(), Benchmark("b", cases, "1")
    found = {"image_score": {}, "image_individual_accuracy": {}}
    for tie in ties.POLICIES:
        metrics = evaluators.PROTOCOLS["pairs"].evaluate(benchmark, scorer, tie=tie).metrics
        for name, values in found.items():
            values[tie] = metrics[name].value
    assert found == {
        "image_score": {"strict": 0, "first_index": 0, "last_index": 1 / 2, "half": 3 / 8},
        "image_individual_accuracy": {
            "strict": 1 / 4,
            "first_index": 2 / 4,
            "last_index": 3 / 4,
            "half": 5 / 8,
        },
    }
