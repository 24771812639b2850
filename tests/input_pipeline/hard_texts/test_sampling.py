"""Which hard texts a caption gets: shares, stand-ins, no repetition, and names that are wrong."""

import collections

import numpy as np
import pytest

from tests.support import generators
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts

STORED = ["a", "b", "c", " "]
KINDS = ["x", "x", "y", "y"]
TABLE = {"x": generators.Reversal, "y": generators.Reversal, "z": generators.Reversal}


def draw(texts, seed=0, stored=STORED, kinds=KINDS, caption="one two three"):
    return sampling.draw(texts, caption, stored, kinds, np.random.default_rng(seed), None)


def make(side="negatives", **options):
    return sampling.make_hard_texts(side, table=TABLE, **options)


def test_given_texts_are_all_but_blank_ones_whatever_their_kind():
    assert sorted(draw(HardTexts(5))) == ["a", "b", "c"]
    assert sorted(draw(HardTexts(5), kinds=())) == ["a", "b", "c"]
    assert {draw(HardTexts(1), seed)[0] for seed in range(40)} == {"a", "b", "c"}


def test_a_kind_takes_what_was_prepared_of_it_and_else_makes_it():
    assert sorted(draw(make(count=3, generators={"x": 1.0}))) == ["a", "b"]
    assert draw(make(count=3, generators={"z": 1.0})) == ["three two one"]
    assert draw(make(count=3, generators={"x": 1.0}), kinds=()) == ["three two one"]


def test_kinds_come_as_often_as_their_shares_say():
    texts = make(count=1, generators={"x": 3.0, "z": 1.0})
    counts = collections.Counter(draw(texts, seed)[0] for seed in range(2000))
    assert counts["three two one"] / 2000 == pytest.approx(0.25, abs=0.03)
    assert counts["a"] / 2000 == pytest.approx(0.375, abs=0.035)


@pytest.mark.parametrize("seed", range(20))
def test_no_text_comes_twice(seed):
    texts = make(count=4, generators={"from_record": 1.0, "x": 1.0, "y": 1.0}, fallback="replace")
    drawn = draw(texts, seed)
    assert sorted(drawn) == ["a", "b", "c"]


def test_what_is_missing_is_skipped_or_replaced():
    assert draw(make(count=2, generators={"from_record": 1.0}), stored=[], kinds=[]) == []
    silent = {"from_record": 1.0, "z": 0.0}  # a share of 0 never comes first
    replaced = draw(make(count=2, generators=silent, fallback="replace"), stored=[], kinds=[])
    assert replaced == ["three two one"]
    themselves = make("positives", count=2, fallback="self")
    assert draw(themselves, stored=["a"], kinds=["x"]) == ["a", "one two three"]


def test_one_of_each_kind_stands_in_its_place():
    shares = {"z": 1.0, "x": 3.0, "y": 1.0}
    texts = make(count=3, generators=shares, fallback="one_each")
    for seed in range(8):
        first, second, third = draw(texts, seed)
        assert (first in ("a", "b"), second, third) == (True, "c", "three two one")
    # z repeats what y gave, and a second text of a kind has no place
    assert draw(texts, stored=["a"], kinds=["x"]) == ["a", "three two one", ""]


def test_a_kind_of_the_record_has_its_texts_alone():
    texts = make(
        count=3,
        generators={"from_record:x": 1.0, "from_record:q": 1.0, "x": 1.0},
        fallback="one_each",
    )
    assert not texts.generators.keys() & {"from_record:x", "from_record:q"}
    first, second, third = draw(texts)
    assert (first, {second, third}) == ("", {"a", "b"})


def test_other_captions_of_the_record_are_positives():
    texts = make("positives", count=2, generators={"other_captions": 1.0})
    rng, others = np.random.default_rng(0), ["one", "one two", "two"]
    drawn = [sampling.draw(texts, "one two", STORED, KINDS, rng, None, others) for _ in range(20)]
    assert {tuple(sorted(each)) for each in drawn} == {("one", "two")}
    assert draw(texts) == []  # the only caption


def test_a_held_text_that_equals_its_caption_is_not_taken():
    held = [" one two three", "a", "one two three"]
    assert draw(HardTexts(3), stored=held, kinds=()) == ["a"]
    assert draw(make(count=2, generators={"x": 1.0}), stored=held[:1], kinds=["x"]) == [
        "three two one"
    ]
    themselves = make("positives", count=2, fallback="self")
    assert draw(themselves, stored=held, kinds=()) == ["a", "one two three"]


def test_a_stand_in_is_chosen_by_the_shares_of_the_others():
    options = {"prefix": {"prefix": "not "}}
    table = {**TABLE, "prefix": generators.Prefix}
    shares = {"from_record": 1.0, "prefix": 3.0, "z": 1.0}
    texts = sampling.make_hard_texts(
        "negatives", count=1, generators=shares, fallback="replace", options=options, table=table
    )
    rng = np.random.default_rng(0)
    drawn = [sampling.draw(texts, "one two", [], [], rng, None)[0] for _ in range(2000)]
    share = drawn.count("not one two") / 2000  # 3/5, or 1/5 times 3/4
    assert share == pytest.approx(0.75, abs=0.03)
    assert set(drawn) == {"not one two", "two one"}


GENERATORS = [  # generators, message
    ({"zz": 1.0}, r"unknown generator of negatives 'zz'.*known: x"),
    ({"given": 1.0}, "'given' is called 'from_record'"),
    ({"x": -1.0, "y": 2.0}, "shares of at least 0"),
    ({"x": 0.0}, "one of them above"),
    ({"x": "1"}, "share of a generator is a number; got '1' of 'x'"),
    ({"x": None}, "share of a generator is a number; got None"),
    ({"x": True}, "share of a generator is a number; got True"),
    ({"x": 1.0, "z": 0.0}, "'z' of share 0 and fallback='skip'"),
]
X = {"generators": {"x": 1.0}}


@pytest.mark.parametrize(
    ("side", "options", "message"),
    [
        *[("negatives", {"generators": shares}, message) for shares, message in GENERATORS],
        ("positives", X | {"options": {"x": {"sise": 1}}}, "unknown option of .*'sise'"),
        ("negatives", {"options": {"x": {}}}, "options for 'x', which is not among"),
        ("negatives", {"fallback": "self"}, "is for positives"),
        ("negatives", {"fallback": "replace"}, "needs a second generator"),
        ("negatives", {"fallback": "drop"}, "fallback is one of"),
        ("negatives", X | {"count": 2, "fallback": "one_each"}, "needs a count of 1, .* got 2 and"),
        ("negatives", X | {"of_positives": 1, "fallback": "one_each"}, "and no of_positives; got"),
        ("negatives", {"generators": {"other_captions": 1.0}}, "is for positives: they are right"),
        ("positives", {"generators": {"x": 1, "z": 0}, "fallback": "self"}, "only stands in for"),
        ("negatives", {"count": -1}, "count is an integer, at least 0"),
        ("negatives", {"count": 1.5}, "count is an integer, .* got 1.5"),
        ("negatives", {"count": True}, "count is an integer, .* got True"),
        ("negatives", X | {"of_positives": 0.5}, "of_positives is an integer"),
        ("positives", X | {"of_positives": 1}, "of_positives is for negatives"),
        ("negatives", {"of_positives": 1}, "needs a generator; got .'from_record'."),
    ],
)
def test_what_does_not_fit_is_refused(side, options, message):
    with pytest.raises(ValueError, match=message):
        make(side, **{"count": 1} | options)


def test_versions_name_side_and_generator():
    texts = {
        "negatives": make(count=1, generators={"z": 1.0, "from_record": 1.0}),
        "positives": HardTexts(),
    }
    assert sampling.versions(texts) == {"negatives/z": "reversal 1"}


def test_nothing_is_made_where_no_text_is_asked_for():
    assert (
        sampling.make_hard_texts("negatives", count=0, generators={"negclip": 1.0}).generators == {}
    )
    assert draw(HardTexts()) == []
