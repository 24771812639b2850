import numpy as np
import pytest

from vlc_jax.evaluators import choice, ties
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case

SCORES = np.array(
    [
        [0.9, 0.1, 0.2],  # right
        [0.3, 0.3, 0.1],  # tie with one
        [0.4, 0.4, 0.4],  # tie with both
        [0.1, 0.2, 0.0],  # wrong
        [0.2, 0.1, 9.0],  # right: the high score is padding
        [0.1, 0.5, 0.5],  # wrong; the tie is among wrong captions
    ]
)
MASK = np.array([[True, True, i != 4] for i in range(6)])


@pytest.mark.parametrize(
    ("tie", "expected"),
    [
        ("strict", [1, 0, 0, 0, 1, 0]),
        ("first_index", [1, 1, 1, 0, 1, 0]),
        ("last_index", [1, 0, 0, 0, 1, 0]),
        ("half", [1, 1 / 2, 1 / 3, 0, 1, 0]),
    ],
)
def test_tie_policies_on_a_hand_made_matrix_with_padding(tie, expected):
    standing = ties.standing(np.where(MASK, SCORES, -np.inf), np.zeros(6, int))
    np.testing.assert_allclose(standing.among_best(1, tie), expected)
    np.testing.assert_array_equal(standing.tied(1), [False, True, True, False, False, False])


def cases(counts, group=None):
    return [
        Case(
            str(n),
            (b"image%d" % n,),
            tuple(f"caption {n} {k}" for k in range(count)),
            group=group and group[n],
        )
        for n, count in enumerate(counts)
    ]


def test_each_image_meets_its_own_captions(table_scorer):
    def look_up(image, text):
        n, k = text.split()[1:]
        return float(image == b"image" + n.encode() and k == "0")

    benchmark = Benchmark("b", cases([2, 4, 3, 2, 2]), "1")
    result = choice.evaluate(benchmark, table_scorer(look_up).scorer(), chunk=2)
    assert result.metrics["accuracy"].value == 1.0
    assert [row["scores"] for row in result.per_example] == [
        [1.0] + [0.0] * (count - 1) for count in (2, 4, 3, 2, 2)
    ]
    assert result.per_example[2]["captions"] == list(benchmark.cases[2].captions)


def test_a_caption_that_repeats_the_correct_one_ties_with_it_exactly(table_scorer):
    case = Case("0", (b"i",), ("same", "other", "same"))
    calls = iter(np.linspace(0.5, 0.6, 100))  # the same text comes out different each time
    drifting = lambda image, text: 0.1 if text == "other" else -next(calls)  # noqa: E731
    result = choice.evaluate(Benchmark("b", [case], "1"), table_scorer(drifting).scorer())
    scores = result.per_example[0]["scores"]
    assert scores[0] == scores[2]


def test_captions_of_one_image_are_no_independent_cases(table_scorer):
    """Five cases that ask the same of each image say as much as one: the interval is that wide."""
    once = [Case(f"{n}", (b"%d" % n,), ("x", "y"), meta={"record": str(n)}) for n in range(30)]
    # right of every third image
    look_up = lambda image, text: float((text == "x") == (int(image) % 3 == 0))  # noqa: E731
    first, second = (
        choice.evaluate(Benchmark("b", cases, "1"), table_scorer(look_up).scorer()).metrics[
            "accuracy"
        ]
        for cases in (once, 5 * once)
    )
    assert (second.value, second.count) == (pytest.approx(first.value), 5 * first.count)
    assert second.high - second.low >= 0.99 * (first.high - first.low)
