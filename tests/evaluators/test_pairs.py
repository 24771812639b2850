import itertools

import numpy as np
import pytest

from vlc_jax.evaluators import pairs
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case

MATRICES = np.array(
    [
        [[0.9, 0.1], [0.2, 0.8]],  # all right
        [[0.9, 0.1], [0.95, 0.99]],  # both images right; caption 0 prefers image 1
        [[0.5, 0.6], [0.1, 0.7]],  # image 0 wrong; captions find their images
        [[0.9, 0.1], [0.9, 0.1]],  # one image right, one caption ties ... nothing else
        [[0.5, 0.5], [0.5, 0.5]],  # all tied
    ]
)


def met(scores, comparisons):
    """Where image k's score with caption l, at 2 k + l, is above the other of each comparison."""
    flat = scores.reshape(-1, 4)
    return np.all([flat[:, above] > flat[:, below] for above, below in comparisons], axis=0)


def test_chances_are_those_of_all_orders_of_four_scores():
    orders = np.array(list(itertools.permutations(range(4))), float).reshape(-1, 2, 2)
    for name, comparisons in pairs.COMPARISONS.items():
        np.testing.assert_allclose(met(orders, comparisons).mean(), pairs.CHANCE[name])
    for queries in pairs.INDIVIDUAL.values():
        assert [met(orders, (query,)).mean() for query in queries] == [1 / 2, 1 / 2]


def benchmark(count):
    cases = [Case(str(n), (b"%d 0" % n, b"%d 1" % n), (f"{n} 0", f"{n} 1")) for n in range(count)]
    return Benchmark("b", cases, "1")


def look_up(image, text):
    (n, k), (m, c) = image.decode().split(), text.split()
    assert n == m  # images only meet captions of their own case
    return MATRICES[int(n), int(k), int(c)]


@pytest.mark.parametrize("chunk", [1, 2, 256])
def test_scores_of_hand_made_matrices(table_scorer, chunk):
    result = pairs.evaluate(benchmark(5), table_scorer(look_up).scorer(), chunk=chunk)
    assert {name: (e.value, e.chance) for name, e in result.metrics.items()} == {
        "pair_accuracy": (2 / 5, 1 / 4),
        "individual_accuracy": (6 / 10, 1 / 2),
        "text_score": (2 / 5, 1 / 4),
        "image_score": (2 / 5, 1 / 4),
        "image_individual_accuracy": (5 / 10, 1 / 2),
        "group_score": (1 / 5, 1 / 6),
        "group_match": (3 / 5, 1 / 2),
        "relaxed_pair": (3 / 5, 1 / 2),
    }
    assert result.metrics["pair_accuracy"].ties == 1 / 5
    assert result.metrics["image_score"].ties == 2 / 5
    assert [row["correct"] for row in result.per_example] == [True, True, False, False, False]
    np.testing.assert_allclose(result.per_example[1]["scores"], MATRICES[1], rtol=1e-6)


def test_always_the_first_caption_is_half_individual_and_no_pair(table_scorer):
    first = table_scorer(lambda image, text: 1.0 - int(text.split()[1])).scorer()
    metrics = pairs.evaluate(benchmark(4), first).metrics
    assert metrics["individual_accuracy"].value == 0.5
    assert metrics["pair_accuracy"].value == 0.0


def test_equal_captions_tie(table_scorer):
    case = Case("0", (b"x", b"y"), ("same", "same"))
    calls = iter(np.linspace(0.5, 0.9, 100))
    drifting = table_scorer(lambda image, text: next(calls)).scorer()
    metrics = pairs.evaluate(Benchmark("b", [case], "1"), drifting).metrics
    assert metrics["individual_accuracy"].value == 0.0
    assert metrics["individual_accuracy"].ties == 1.0


def test_two_images_of_a_pair_are_not_independent(table_scorer):
    right = table_scorer(lambda image, text: float(image.decode() == text)).scorer()
    metrics = pairs.evaluate(benchmark(10), right).metrics
    assert metrics["individual_accuracy"].count == 20
    assert metrics["individual_accuracy"].low == metrics["pair_accuracy"].low
