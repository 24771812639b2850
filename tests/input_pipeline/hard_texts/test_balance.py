"""Adversarial filtering of hard texts."""

import random

import numpy as np
import pytest

from vlc_jax.input_pipeline.hard_texts import balance

COLOURS, THINGS = ("red", "green", "blue", "grey", "pink"), ("cup", "car", "dog", "hat", "box")
COUNT = 900
MARKED = np.arange(COUNT) % 3 == 0


def options(count, others=False):
    """Captions with exchanged colours; every third of these texts ends with a mark that no caption
    has. others: a second candidate without the mark."""
    draw, made = random.Random(0), []
    for number in range(count):
        (a, b), (x, y) = draw.sample(COLOURS, 2), draw.sample(THINGS, 2)
        wrong = f"{b} {x} and {a} {y}"
        texts = [wrong + " .", wrong] if number % 3 == 0 else [wrong]
        made.append([f"{a} {x} and {b} {y}", *texts[: 2 if others else 1]])
    return made


def test_a_mark_is_filtered_and_the_other_texts_stay():
    pairs, rounds = balance.Pairs(options(COUNT), range(COUNT)), []
    kept = pairs.balanced(0.55, 0, rounds.append) >= 0
    assert rounds[0].separability > 0.63
    assert kept[MARKED].mean() < 0.35
    assert kept[~MARKED].mean() > 0.75
    assert pairs.separability(np.where(kept, 0, -1)) < 0.58
    left = [each.left for each in rounds]
    assert left == sorted(left, reverse=True)
    assert [each.number for each in rounds] == [*range(1, len(rounds) + 1)]


def test_another_candidate_replaces_a_text_that_tells():
    pairs = balance.Pairs(options(COUNT, others=True), range(COUNT))
    choice = pairs.balanced(0.55)
    assert (choice[MARKED] == 1).mean() > 0.3
    assert not (choice[~MARKED] > 0).any()
    assert pairs.separability(choice) < 0.58


def test_captions_that_were_not_fitted_go_through_the_filter():
    every, half = options(2 * COUNT, others=True), slice(0, COUNT)
    choice, fitted = balance.Pairs(every[half], range(COUNT)).filtered(0.55)
    outside = fitted.choice(every[COUNT:])
    for each in (choice, outside):
        assert (each[MARKED] == 1).mean() > 0.3
        assert (each[~MARKED] == 0).mean() > 0.75
    assert abs((outside >= 0).mean() - (choice >= 0).mean()) < 0.1
    assert fitted.choice([]).shape == (0,)


def test_a_filter_that_leaves_too_few_pairs_drops_others():
    rows = [[f"a cat {n}", f"no cat {n}"] for n in range(400)]
    choice, fitted = balance.Pairs(rows[:200], range(200)).filtered(0.6)
    assert (choice == -1).all()
    assert (fitted.choice(rows[200:]) == -1).all()
    assert (balance.DROPS_ALL.choice(rows) == -1).all()


def test_the_result_is_a_function_of_texts_target_and_seed():
    first, second = (balance.Pairs(options(200, others=True), range(200)) for _ in range(2))
    assert (first.balanced(0.6, 3) == second.balanced(0.6, 3)).all()
    assert (first.balanced(0.6, 3) != first.balanced(0.6, 4)).any()


def test_texts_below_the_target_all_stay():
    colours = [(a, b) for a in COLOURS for b in COLOURS if a != b]
    rows = [(f"a {a} {x}", f"a {b} {x}") for a, b in colours for x in THINGS]
    assert (balance.Pairs(rows, range(len(rows))).balanced(0.9) == 0).all()


def test_texts_that_all_give_themselves_away_are_all_dropped():
    rows = [(f"a {a} {x}", f"no {a} {x}") for a in COLOURS for x in THINGS] * 3
    assert (balance.Pairs(rows, range(len(rows))).balanced(0.6) == -1).all()


@pytest.mark.parametrize("target", [0.5, 1.0, 60])
def test_a_target_that_is_no_share_above_chance_is_refused(target):
    with pytest.raises(ValueError, match=f"which is chance, and below 1; got {target:g}"):
        balance.Pairs(options(2), range(2)).balanced(target)
