"""The blind classifier of texts."""

import random

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from vlc_jax.input_pipeline.hard_texts import blind

COLOURS, THINGS = ("red", "green", "blue", "grey", "pink"), ("cup", "car", "dog", "hat", "box")


def phrases(count, seed=0):
    """Random "red cup and blue dog", and the same with its colours exchanged."""
    draw, pairs = random.Random(seed), []
    while len(pairs) < count:
        a, b = draw.sample(COLOURS, 2)
        x, y = draw.sample(THINGS, 2)
        pairs.append((f"{a} {x} and {b} {y}", f"{b} {x} and {a} {y}"))
    return pairs


def found(pairs, groups):
    """Share of pairs whose caption is found, ties half."""
    return blind.credit(blind.option_scores(pairs, groups)).mean()


def test_texts_that_are_exchangeable_are_near_chance():
    pairs = phrases(800)
    assert 0.44 < found(pairs, range(800)) < 0.56


@pytest.mark.parametrize("mark", [" .", " not", "X"])
def test_a_mark_of_the_made_texts_is_found(mark):
    pairs = [(caption, wrong + mark) for caption, wrong in phrases(200)]
    assert found(pairs, range(200)) > 0.98


def test_a_preference_among_bindings_is_found():
    """Cups that are always red: a pair of words, the same words in both texts."""
    pairs = [(f"a red cup, a {c} {t}", f"a {c} cup, a red {t}")
             for c in COLOURS[1:] for t in THINGS[1:]] * 5  # fmt: skip
    assert found(pairs, range(len(pairs))) == 1


def test_equal_texts_share_the_credit():
    assert found([("a cup", "a cup")] * 20, range(20)) == 0.5
    options = [("a cup", "a cup", "a cup", "a cup")] * 20
    assert blind.credit(blind.option_scores(options, range(20))).tolist() == [0.25] * 20


def test_credit_of_ties_with_and_below_the_first():
    scores = [[2.0, 1], [1, 2], [2, 2], [2, 2, 1], [1, 2, 2], [0, 0, 0]]
    expected = [1, 0, 1 / 2, 1 / 2, 0, 1 / 3]
    assert blind.credit([np.array(s) for s in scores]) == pytest.approx(expected)


def test_a_group_is_scored_without_its_own_cases():
    """Each image has a word of its own that only its correct captions have: no other helps."""
    pairs = [(f"{caption} {name * 3}", wrong)
             for name, pair in zip("abcdefghij", phrases(10), strict=True)
             for caption, wrong in [pair] * 30]  # fmt: skip
    pairs = [(caption, wrong + " xxx") for caption, wrong in pairs]
    same = [image for image in range(10) for _ in range(30)]
    of_images = blind.option_scores(pairs, same)
    alone = blind.option_scores(pairs, range(len(pairs)))
    assert np.mean([s[0] - s[1] for s in alone]) > np.mean([s[0] - s[1] for s in of_images]) + 0.5


def test_folds_hold_whole_groups_and_are_equally_large():
    groups = [f"image {number % 37}" for number in range(400)]
    folds = blind.folds(groups)
    by_group = {group: {f for f, g in zip(folds, groups, strict=True) if g == group}
                for group in groups}  # fmt: skip
    assert all(len(each) == 1 for each in by_group.values())
    number = np.bincount([each.pop() for each in by_group.values()])
    assert number.tolist() == [8, 8, 7, 7, 7]
    assert (blind.folds(groups[::-1])[::-1] == folds).all()
    assert (blind.folds(groups, seed=1) != folds).any()


def test_the_bits_depend_on_neither_threads_nor_repetition():
    pairs = [(caption, wrong + " .") for caption, wrong in phrases(100)]
    first = blind.option_scores(pairs, range(100))
    with threadpool_limits(1):
        assert np.array_equal(np.array(first), np.array(blind.option_scores(pairs, range(100))))


def test_more_wrong_options_are_each_compared():
    options = [(a, b, f"{a} ?", f"? {b}") for a, b in phrases(300)]
    right = blind.credit(blind.option_scores(options, range(300))).mean()
    assert 0.4 < right < 0.6  # the marked ones are never chosen


def test_a_fold_is_fitted_on_a_limited_number_of_cases(monkeypatch):
    pairs = [(caption, f"{wrong} {n % 7}") for n, (caption, wrong) in enumerate(phrases(300))]
    seen, fit = [], blind.fit
    monkeypatch.setattr(blind, "MOST", 50)
    monkeypatch.setattr(blind, "fit", lambda x, f, n: seen.append(len(f)) or fit(x, f, n))
    found(pairs, range(300))
    assert seen == [50] * blind.FOLDS


@pytest.mark.parametrize(
    ("options", "groups", "message"),
    [
        ([("a", "b")], [], "each case has a group; got 1 cases, 0 groups"),
        ([("a", "b"), ("a",)], [0, 1], "a case needs two texts; case 1 has 1"),
    ],
)
def test_wrong_cases_are_refused(options, groups, message):
    with pytest.raises(ValueError, match=message):
        blind.option_scores(options, groups)


def test_no_pair_has_no_score_and_few_have_one():
    assert blind.option_scores([], []) == []
    assert found([("a", "b")], [0]) == 0.5  # no other fold to learn from
    assert found([("", "!"), ("", "!")], [0, 1]) == 1
