"""Answers in words: which preposition they name, and what counts as right."""

from dataclasses import replace

import pytest

from vlc_jax.errors import UsageError
from vlc_jax.evaluators import keywords
from vlc_jax.evaluators.scorer import Decoding
from vlc_jax.input_pipeline.benchmarks import READERS, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError, ImageQuestion

LEFT_RIGHT, ON_UNDER, FRONT_BEHIND = ("left", "right"), ("on", "under"), ("front", "behind")
FOUR, FOUR_B = (*LEFT_RIGHT, *ON_UNDER), (*LEFT_RIGHT, *FRONT_BEHIND)
STRINGS = [
    ("Left.", LEFT_RIGHT, "left"),
    ("The mug is to the RIGHT of the plate", LEFT_RIGHT, "right"),
    ("right, not left", LEFT_RIGHT, None),
    ("neither", LEFT_RIGHT, None),
    ("", LEFT_RIGHT, None),
    ("on the left side", LEFT_RIGHT, "left"),
    ("bright", LEFT_RIGHT, None),
    ("left left", LEFT_RIGHT, "left"),
    ("on", ON_UNDER, "on"),
    ("It is under-neath", ON_UNDER, "under"),
    ("underneath", ON_UNDER, None),
    ("On top of it", ON_UNDER, "on"),
    ("on the table, under the lamp", ON_UNDER, None),
    ("Behind!", FRONT_BEHIND, "behind"),
    ("in front", ON_UNDER, None),  # "front" does not say "on"
    ("top", ("top", "bottom"), "top"),
    ("above\nthe cat", ("above", "below"), "above"),
    ("on the left", FOUR, "left"),
    ("On the table", FOUR, "on"),
    ("to the left, under it", FOUR, None),
    ("on the right", FOUR_B, "right"),
    ("on it", FOUR_B, None),
    ("dark red", ("red", "dark red"), "dark red"),
    ("It is dark-red.", ("dark red", "red"), "dark red"),
    ("a red one", ("red", "dark red"), "red"),
    ("red and dark red", ("red", "dark red"), None),
    ("not to the left", LEFT_RIGHT, None),
    ("It isn't left", LEFT_RIGHT, None),
    ("left is wrong", LEFT_RIGHT, None),
    ("It is not clear: left", LEFT_RIGHT, "left"),
    ("No, it is not there", ("yes", "no"), "no"),
    ("it's not red", ("red", "not red"), "not red"),
]


@pytest.mark.parametrize(("answer", "options", "expected"), STRINGS)
def test_an_answer_names_one_option_in_whole_words_or_none(answer, options, expected):
    assert keywords.parse(answer, options) == expected


def case(name, preposition, pair, captions=2):
    phrases = {"left": "to the left of", "right": "to the right of", "on": "on", "under": "under"}
    order = sorted(phrases, key=lambda word: word != preposition)
    subset = "left_right" if preposition in LEFT_RIGHT else "on_under"
    opposite = {"left": "right", "right": "left", "on": "under", "under": "on"}[preposition]
    words = order if captions == 4 else [preposition, opposite]
    return Case(
        name,
        (name.encode(),),
        tuple(f"A mug {phrases[word]} a table" for word in words),
        {"subset": subset, "preposition": preposition, "pair": pair},
    )


def benchmark(captions=2):
    pairs = [("left", "1"), ("right", "1"), ("left", "2"), ("right", "2"), ("on", "3")]
    pairs.append(("under", "3"))
    cases = [case(str(n), *pair, captions) for n, pair in enumerate(pairs)]
    return Benchmark("b", cases, "v", together=("pair",))


def writing(table_scorer, answers, asked):
    """A scorer that writes answers; questions and their decoding are added to `asked`."""
    table = table_scorer(lambda image, text: 0.0)

    def written(images, questions, how):
        asked.extend([*questions, how])
        return [answers[int(table.images[int(i)])] for i in images.pooled[:, 0]]

    return table.scorer()._replace(answers=written)


def evaluate(table_scorer, answers, cases, asked=None):
    scorer = writing(table_scorer, answers, [] if asked is None else asked)
    return keywords.evaluate(Benchmark("b", cases, "v"), scorer)


@pytest.mark.parametrize("chunk", [2, 99])
def test_individual_pair_and_unparsed_of_a_hand_made_table(table_scorer, chunk):
    answers = ["left", "Right.", "to the left", "left", "on", "no idea"]
    asked = []
    scorer = writing(table_scorer, answers, asked)
    result = keywords.evaluate(benchmark(), scorer, chunk=chunk, max_tokens=5)
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["accuracy"] == pytest.approx(4 / 6)
    assert value["accuracy/subset=left_right"] == pytest.approx(3 / 4)
    assert value["accuracy/preposition=under"] == 0
    assert value["pair_accuracy"] == pytest.approx(1 / 3)
    assert value["unparsed"] == pytest.approx(1 / 6)
    assert result.metrics["accuracy"].chance == 1 / 2
    assert result.metrics["pair_accuracy"].chance == 1 / 4
    assert asked[0].endswith("Answer left or right.")
    assert asked[-1] == Decoding(max_tokens=5)
    assert result.details["prompt"]["question"] == asked[0]
    row = result.per_example[3]
    assert (row["answer"], row["parsed"], row["correct"]) == ("left", "left", False)
    assert row["scores"] == [0.0, 1.0]
    assert result.per_example[5]["scores"] == [0.0, 0.0]


def test_four_ways_have_one_question_and_a_quarter_as_chance(table_scorer):
    asked = []
    answers = ["on the left", "on", "left", "right", "on the table", "under"]
    scorer = writing(table_scorer, answers, asked)
    result = keywords.evaluate(benchmark(4), scorer, decoding="m3id", first_step=0)
    assert [row["correct"] for row in result.per_example] == [True, False, *[True] * 4]
    assert result.metrics["accuracy"].chance == 1 / 4
    assert result.per_example[1]["scores"] == [0.0, 0.0, 1.0, 0.0]  # captions: right, left, on, ...
    assert set(asked[:-1]) == {
        "Is the mug to the left of, to the right of, on, or under the table? Answer left, right, "
        "on or under."
    }
    assert (asked[-1].kind, asked[-1].first_step) == ("m3id", 0)


def test_a_case_of_the_scenes_is_asked_its_own_question(table_scorer):
    cases = READERS["scenes_spatial"](count=2).cases
    first, second = keywords.options_of(cases[0])
    cases = [replace(case, images=(str(n).encode(),)) for n, case in enumerate(cases)]
    asked = []
    said = [keywords.parse(cases[0].captions[0], (first, second)), "neither"]
    result = evaluate(table_scorer, said, cases, asked)
    assert [row["correct"] for row in result.per_example] == [True, False]
    assert asked[:2] == [case.meta["question"] for case in cases]


def test_a_case_with_short_answers_is_read_by_them(table_scorer):
    said = {"question": "is the circle red or blue and the square red or blue"}
    said["answers"] = ["red and blue", "blue and red"]
    texts = ("a red circle and a blue square", "a blue circle and a red square")
    cases = [Case(str(n), (str(n).encode(),), texts, None, {"short": said}) for n in range(5)]
    answers = ["Red and blue.", "blue and red", "red and blue and red", "red", "it is red and blue"]
    asked = []
    result = evaluate(table_scorer, answers, cases, asked)
    rows = result.per_example
    assert [row["correct"] for row in rows] == [True, False, False, False, True]
    assert [row["parsed"] is None for row in rows] == [False, False, True, True, False]
    assert [row["scores"] for row in rows[:3]] == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    assert {*asked[:-1]} == {said["question"]}
    assert result.metrics["accuracy"].chance == 1 / 2
    said = {"question": "?", "answers": ["2 T-shirts", "Red"]}
    cases = [Case("0", (b"0",), ("a", "b"), None, {"short": said})]
    assert evaluate(table_scorer, ["2 t-shirts!"], cases).per_example[0]["correct"]
    with pytest.raises(DataError, match="3 captions and 2 short answers"):
        evaluate(table_scorer, ["red"], [replace(cases[0], captions=("a", "b", "c"))])


def test_an_image_that_comes_with_a_question_is_asked_at_the_image_alone(table_scorer):
    asked, shown = [], []
    scorer = writing(table_scorer, ["left"] * 6, asked)

    def embed_images(images):
        shown.extend(images)
        return scorer.embed_images([image.image for image in images])

    cases = [replace(c, images=(ImageQuestion(c.images[0], "?"),)) for c in benchmark().cases]
    told = scorer._replace(embed_images=embed_images)
    result = keywords.evaluate(Benchmark("b", cases, "v"), told)
    assert asked[:-1] == [""] * 6
    assert [image.question for image in shown] == [row["question"] for row in result.per_example]
    assert shown[0].question.endswith("Answer left or right.")


def test_cases_without_a_question_are_counted_or_refused(table_scorer):
    top = Case("0", (b"0",), ("A photo of a lamp on top of a sofa",) * 2, {"subset": "top_bottom"})
    other = Case("1", (b"1",), ("a red mug", "a blue mug"), {"subset": "left_right"})
    one = Case("2", (b"2",), ("A photo of a dog on the top", "x"), {"subset": "top_bottom"})
    answers = ["top", "left", "top"]
    result = evaluate(table_scorer, answers, [top, other, one])
    assert (result.metrics["accuracy"].count, result.details["left_out"]) == (1, 2)
    with pytest.raises(DataError, match="no case of What'sUp's kind"):
        evaluate(table_scorer, answers, [top, other])


def test_a_model_that_writes_nothing_and_an_unknown_decoding_are_refused(table_scorer):
    scorer = table_scorer(lambda image, text: 0.0).scorer()
    with pytest.raises(UsageError, match="this model writes nothing"):
        keywords.evaluate(benchmark(), scorer)
    with pytest.raises(UsageError, match="unknown decoding 'beam'"):
        keywords.evaluate(benchmark(), scorer, decoding="beam")
