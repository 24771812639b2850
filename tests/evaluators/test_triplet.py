import itertools

import numpy as np

from vlc_jax.evaluators import triplet
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case

HAND_MADE = {  # (c, n, p) -> its place in triplet.ORDERS
    (0.9, 0.1, 0.8): 0,
    (0.9, 0.1, 0.9): 0,  # c and p alike: both are correct
    (0.9, 0.5, 0.1): 1,
    (0.1, 0.5, 0.9): 2,
    (0.1, 0.9, 0.5): 3,
    (0.5, 0.9, 0.5): 3,
    (0.5, 0.5, 0.9): 4,
    (0.9, 0.5, 0.5): 4,
    (0.1, 0.5, 0.5): 4,
    (0.4, 0.4, 0.4): 4,
}


def make_benchmark(scores, groups=None):
    """Case n has the captions n.c, n.n and n.p; a scorer looks their scores up."""
    cases = []
    for n in range(len(scores)):
        captions, meta = (f"{n} c", f"{n} n"), {"positive": f"{n} p"}
        cases.append(Case(f"{n}", (b"%d" % n,), captions, groups and groups[n], meta))

    def look_up(image, text):
        n, which = text.split()
        return scores[int(n)]["cnp".index(which)] if image == n.encode() else np.nan

    return Benchmark("b", cases, "1"), look_up


def evaluate(table_scorer, scores, groups=None, **options):
    benchmark, look_up = make_benchmark(scores, groups)
    return triplet.evaluate(benchmark, table_scorer(look_up).scorer(), **options)


def test_metrics_of_a_hand_made_matrix_with_ties(table_scorer):
    result = evaluate(table_scorer, list(HAND_MADE))
    found = {name: (e.value, e.ties) for name, e in result.metrics.items() if e.unit == "fraction"}
    assert found == {
        "augmented_accuracy": (2 / 10, 4 / 10),
        "original_accuracy": (4 / 10, 2 / 10),  # also where only p ties with n
        "brittleness": (2 / 10, 4 / 10),
        "ordered_accuracy": (0.0, 6 / 10),  # also where c ties with p
        "text_accuracy": (0.0, 1.0),  # this scorer's texts are all alike
    }
    assert list(result.details["orders"].values()) == [2, 1, 1, 2, 4]
    assert [row["correct"] for row in result.per_example] == [v == 0 for v in HAND_MADE.values()]
    assert [row["tie"] for row in result.per_example] == [v == 4 for v in HAND_MADE.values()]
    np.testing.assert_allclose([row["scores"] for row in result.per_example], list(HAND_MADE))
    assert result.per_example[3]["captions"] == ["3 c", "3 n", "3 p"]


def test_random_scores_land_on_chance_and_agree_with_a_plain_count(table_scorer):
    scores = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32)
    metrics = evaluate(table_scorer, scores).metrics
    original = augmented = brittle = ordered = 0
    for c, n, p in scores:
        original += c > n
        augmented += c > n and p > n
        brittle += c > n > p or p > n > c
        ordered += p > c > n
    counted = {"original_accuracy": original, "augmented_accuracy": augmented}
    counted |= {"brittleness": brittle, "ordered_accuracy": ordered}
    chances = {"original_accuracy": 1 / 2, "ordered_accuracy": 1 / 6}
    for name, count in counted.items():
        assert metrics[name].value == count / 3000
        assert metrics[name].chance == chances.get(name, 1 / 3)
        assert metrics[name].low < metrics[name].chance < metrics[name].high


def test_chances_are_the_shares_of_the_orders_of_three_scores():
    orders = np.array(list(itertools.permutations([0.1, 0.2, 0.3])))
    found = triplet.orders(orders).mean(axis=0)
    np.testing.assert_allclose(found[0], triplet.CHANCE["augmented_accuracy"])
    np.testing.assert_allclose(found[1] + found[2], triplet.CHANCE["brittleness"])
    np.testing.assert_allclose(found[0] + found[1], triplet.CHANCE["original_accuracy"])


def test_mean_scores_have_a_normal_interval_and_no_chance(table_scorer):
    scores = np.random.default_rng(1).normal(0.2, 0.05, size=(400, 3)).astype(np.float32)
    metrics = evaluate(table_scorer, scores - np.float32(0.3)).metrics
    for k, name in enumerate(("correct", "negative", "positive")):
        estimate = metrics[f"mean_score_{name}"]
        column = (scores - np.float32(0.3))[:, k].astype(np.float64)
        half = 1.959964 * np.sqrt(np.sum((column - column.mean()) ** 2) / 399 / 400)
        np.testing.assert_allclose(estimate.value, column.mean())
        expected = [column.mean() - half, column.mean() + half]
        np.testing.assert_allclose([estimate.low, estimate.high], expected, rtol=1e-6)
        assert (estimate.chance, estimate.ties, estimate.unit) == (None, None, "score")
