import itertools

import numpy as np
import pytest

from vlc_jax import errors
from vlc_jax.evaluators import retrieval
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError


def benchmark(captions):
    cases = [Case(str(n), (b"%d" % n,), tuple(texts)) for n, texts in enumerate(captions)]
    return Benchmark("b", cases, "1")


def matrix_scorer(table_scorer, scores, captions):
    """scores[image, j] for the j-th distinct caption."""
    column = {text: j for j, text in enumerate(dict.fromkeys(itertools.chain(*captions)))}
    return table_scorer(lambda image, text: scores[int(image), column[text]])


def evaluate(table_scorer, scores, captions, **options):
    scorer = matrix_scorer(table_scorer, np.array(scores), captions).scorer()
    return retrieval.evaluate(benchmark(captions), scorer, **options)


def test_ranks_of_a_hand_made_matrix(table_scorer):
    captions = [["a"], ["b"], ["c"]]
    scores = [
        [0.9, 0.1, 0.5],  # a first
        [0.9, 0.5, 0.5],  # b behind a, tied with c: strict rank 3
        [0.1, 0.8, 0.9],  # c first
    ]
    result = evaluate(table_scorer, scores, captions)
    assert [row["rank"] for row in result.per_example] == [1, 3, 1]
    assert [row["text_ranks"] for row in result.per_example] == [[2], [2], [1]]
    assert ["".join(row["captions"]) for row in result.per_example] == ["acb", "bac", "cba"]
    metrics = result.metrics
    np.testing.assert_allclose(metrics["image_to_text_r1"].value, 2 / 3)
    np.testing.assert_allclose(metrics["text_to_image_r1"].value, 1 / 3)
    np.testing.assert_allclose(metrics["image_to_text_mean_rank"].value, 5 / 3)
    assert metrics["image_to_text_median_rank"].value == 1
    assert metrics["image_to_text_mean_rank"].unit == "rank"
    # Text a ties between images 0 and 1; image 1 ties b with c, but both lose to a.
    np.testing.assert_allclose(metrics["text_to_image_r1"].ties, 1 / 3)
    assert metrics["image_to_text_r1"].ties == 0


def test_any_of_an_images_captions_counts_and_each_is_a_query(table_scorer):
    captions = [["a", "b"], ["c"], ["d", "e", "f"]]
    scores = [
        [0.1, 0.9, 0.5, 0.2, 0.0, 0.3],
        [0.2, 0.1, 0.6, 0.7, 0.3, 0.1],
        [0.3, 0.0, 0.9, 0.8, 0.7, 0.1],
    ]
    result = evaluate(table_scorer, scores, captions)
    assert [row["rank"] for row in result.per_example] == [1, 2, 2]
    assert [row["text_ranks"] for row in result.per_example] == [[3, 1], [2], [1, 1, 3]]
    assert result.metrics["text_to_image_r1"].count == 6
    assert result.metrics["image_to_text_r1"].count == 3


def test_recall_at_k_is_left_out_where_every_scorer_would_reach_it(constant_scorer):
    metrics = retrieval.evaluate(benchmark([[f"text {n}"] for n in range(5)]), constant_scorer)
    assert "image_to_text_r1" in metrics.metrics
    assert "image_to_text_r5" not in metrics.metrics


def test_chance_is_that_of_all_orders():
    for correct, k in itertools.product((1, 2, 3), (1, 2, 4)):
        orders = itertools.permutations(range(5))
        hit = np.mean([min(order[:k]) < correct for order in orders])
        found = retrieval.recall_chance(np.array([correct]), 5, k)
        np.testing.assert_allclose(found, [hit])


def test_chances_of_random_scores_are_reached(table_scorer):
    captions = [[f"{n} {k}" for k in range(1 + n % 3)] for n in range(12)]
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        found.append(evaluate(table_scorer, rng.random((12, 24)), captions).metrics)
    for name in ("image_to_text_r5", "text_to_image_r5", "text_to_image_r1"):
        mean = np.mean([metrics[name].value for metrics in found])
        np.testing.assert_allclose(mean, found[0][name].chance, atol=0.03)
    for name in ("image_to_text_mean_rank", "text_to_image_mean_rank"):
        mean = np.mean([metrics[name].value for metrics in found])
        np.testing.assert_allclose(mean, found[0][name].chance, rtol=0.06)


@pytest.mark.parametrize("duplicates", ["wrong", "correct"])
@pytest.mark.parametrize("cells", [1, 20, 45, 10_000])
def test_chunks_change_nothing_and_bound_the_scores_held(table_scorer, cells, duplicates):
    captions = [[f"{(n * 3 + k) % 11}" for k in range(1 + n % 3)] for n in range(9)]
    scores = np.random.default_rng(1).integers(0, 6, (9, 11)) / 8
    whole = evaluate(table_scorer, scores, captions, duplicates=duplicates)
    chunked = matrix_scorer(table_scorer, scores, captions)
    result = retrieval.evaluate(
        benchmark(captions), chunked.scorer(), cells=cells, duplicates=duplicates
    )
    assert result == whole
    assert chunked.largest <= max(cells, 18)  # one row is the least


def test_duplicate_captions_are_wrong_or_correct_as_asked(table_scorer):
    captions = [["a red circle"], ["a red circle"], ["a star"], ["a moon"]]
    scores = [[0.9, 0.1, 0.2], [0.8, 0.3, 0.1], [0.1, 0.9, 0.0], [0.0, 0.1, 0.9]]
    strict = evaluate(table_scorer, scores, captions)
    assert [row["rank"] for row in strict.per_example] == [2, 2, 1, 1]
    assert [row["text_ranks"] for row in strict.per_example] == [[1], [2], [1], [1]]
    assert strict.metrics["image_to_text_r1"].ties == 0.5
    assert strict.details["duplicate_captions"] == 0.5
    kind = evaluate(table_scorer, scores, captions, duplicates="correct")
    assert [row["rank"] for row in kind.per_example] == [1, 1, 1, 1]
    assert [row["text_ranks"] for row in kind.per_example] == [[1], [1], [1], [1]]
    np.testing.assert_allclose(kind.metrics["image_to_text_r1"].chance, (2 + 2 + 1 + 1) / 16)


def test_two_captions_of_one_image_that_read_alike_are_no_duplicates(table_scorer):
    captions = [["a", "a"], ["b", "c"]]
    result = evaluate(table_scorer, [[0.9, 0.1, 0.2], [0.1, 0.9, 0.8]], captions)
    assert result.details["duplicate_captions"] == 0
    assert result.metrics["image_to_text_r1"].value == 1
    assert result.metrics["text_to_image_r1"].value == 1


def test_captions_of_one_image_are_not_independent(table_scorer):
    captions = [[f"{n} {k}" for k in range(5)] for n in range(30)]
    hit = np.random.default_rng(0).random(30) < 0.5
    look_up = lambda image, text: float(  # noqa: E731
        hit[int(text.split()[0])] and image.decode() == text.split()[0]
    )
    result = retrieval.evaluate(benchmark(captions), table_scorer(look_up).scorer())
    by_image, by_text = (result.metrics[f"{d}_r1"] for d in ("image_to_text", "text_to_image"))
    np.testing.assert_allclose(by_text.value, by_image.value)
    np.testing.assert_allclose(by_text.high - by_text.low, by_image.high - by_image.low, rtol=0.03)


def test_cases_that_cannot_be_retrieved_are_refused_by_name(constant_scorer):
    with pytest.raises(DataError, match="two cases"):
        retrieval.evaluate(benchmark([["a"]]), constant_scorer)
    with pytest.raises(errors.UsageError, match="'maybe'"):
        retrieval.evaluate(benchmark([["a"], ["b"]]), constant_scorer, duplicates="maybe")
