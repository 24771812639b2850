"""Multiple choice by perplexity and by letters, and the relaxed pair with its sign."""

import numpy as np
import pytest

from vlc_jax.errors import UsageError
from vlc_jax.evaluators import multiple_choice
from vlc_jax.evaluators.multiple_choice import letter, relaxed
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

# S / n of option c given image i -> whether the pair is right
RELAXED = [
    ([[-1.0, -2.0], [-2.0, -1.0]], True),
    ([[-2.0, -1.0], [-1.0, -2.0]], False),
    ([[-1.0, -1.2], [-1.0, -1.1]], True),  # both prefer option 0, image 0 more
    ([[-1.0, -1.1], [-1.0, -1.2]], False),
    ([[-5.0, -9.0], [-1.0, -2.0]], True),
    ([[-900.0, -901.0], [-1.0, -1.5]], True),  # whose exponentials are 0 or infinite
]


@pytest.mark.parametrize(("scores", "is_right"), RELAXED)
def test_relaxed_pair_of_a_hand_made_table(scores, is_right):
    found = relaxed(np.array([scores]))
    first, second = found["relaxed_pair"][0]
    assert (first > second) == is_right
    first, second = found["relaxed_pair_literal"][0]
    assert (first > second) == (not is_right)


def test_relaxed_pair_is_the_ratio_of_perplexities_as_printed_and_its_reverse():
    scores = -np.random.default_rng(0).exponential(1.0, (50, 2, 2))
    for sign, name in ((-1, "relaxed_pair_literal"), (1, "relaxed_pair")):
        s = np.exp(sign * scores)  # perplexities, or one over them
        expected = s[:, 0, 0] / s[:, 0].sum(axis=1) > s[:, 1, 0] / s[:, 1].sum(axis=1)
        first, second = relaxed(scores)[name].T
        np.testing.assert_array_equal(first > second, expected)
        assert 0 < expected.sum() < 50


OPTIONS = ("Open", "Closed")
# index of the option -> answers that name it; None: no option or several
ANSWERS = {
    0: """A|a|a.|a)|(a)|'A'|"a"|[A]|a: open|A - Open|A Open|A open door is shown|A is correct
        |A because it is not closed|A, since the wings are spread|I'd say A|Answer: A|Answer:a
        |The answer is a|the correct option is a.|The answer is: A|Option A shows a closed door
        |open|A's door is open|<b>Open</b>|Both are open|A butterfly with open wings""",
    1: """B| b.|B)|(B)|B.|[B]|**B**|`B`|_B_|$B$|\\boxed{B}|<b>B</b>|B: closed|(B) Closed|B.Closed
        |B B|Answer: B|The answer is B|The answer is (b)|The correct answer is B.|Option B|I take b
        |B because it is shut|B. It is not open|B, not open|I am not sure, maybe B
        |A dog is there, so B|A closed door|A DOOR IS CLOSED""",
    None: """ |?|C|(c)|enclosed|a butterfly|A dog is on the table|The answer is a butterfly
        |It is shown with a|open or closed|A or B|(a) or (b)|(a) and (b)|A B|a/b|between a and b
        |A) Open B) Closed|neither A nor B|Not A|not (b)|A, not B|It isn't B|The answer is not B.
        |B is not correct|(b) is wrong|B isn’t right|A cannot be right|A. Closed|(b) Open
        |The door is not closed|It isn't open|closed is wrong""",
}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(each.strip(), k) for k, answers in ANSWERS.items() for each in answers.split("|")],
)
def test_a_letter_is_found_in_an_answer(answer, expected):
    assert letter(answer, OPTIONS) == expected


def question(answer):
    return {
        "question": "Open or closed?",
        "text": "(a) Open (b) Closed",
        "options": OPTIONS,
        "answer": answer,
    }


def benchmark(answers=((0, 1), (1, 0), (0, 1))):
    cases = [
        Case(
            str(n),
            (f"{n}a".encode(), f"{n}b".encode()),
            (f"Open or closed? {OPTIONS[a]}", f"Open or closed? {OPTIONS[b]}"),
            {"category": "x" if n else "y"},
            {"questions": (question(a), question(b))},
        )
        for n, (a, b) in enumerate(answers)
    ]
    return Benchmark("b", cases, "v")


# image -> S / n of (a), of (b)
SCORES = {b"0a": (-1, -2), b"0b": (-3, -1), b"1a": (-2, -1), b"1b": (-2, -1), b"2a": (-2, -1),
          b"2b": (-9, -1)}  # fmt: skip


def asked(table_scorer, texts):
    def look_up(image, text):
        texts.append(text)
        ((_, answer),) = text.turns
        return SCORES[image]["ab".index(answer.strip("()")[0].lower())]

    return table_scorer(look_up).scorer()._replace(prompt={"template": "<image>{question}"})


@pytest.mark.parametrize("answer", ["letters", "options"])
def test_individual_pair_and_relaxed_accuracy_of_a_hand_made_table(table_scorer, answer):
    texts = []
    scorer = asked(table_scorer, texts)
    result = multiple_choice.evaluate(benchmark(), scorer, answer=answer, chunk=2)
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["pair_accuracy"] == pytest.approx(1 / 3)
    assert value["individual_accuracy"] == pytest.approx(4 / 6)
    assert value["pair_accuracy/category=y"] == 1
    # pair 1 has the same preference twice: a tie; pair 2: image 0 prefers (a) by -1, image 1 by -8
    assert value["relaxed_pair"] == pytest.approx(2 / 3)
    assert value["relaxed_pair_literal"] == 0
    assert result.metrics["relaxed_pair"].chance == 1 / 2
    assert result.metrics["pair_accuracy"].chance == 1 / 4
    assert [row["correct"] for row in result.per_example] == [True, False, False]
    expected = {"letters": ["A", "B"], "options": ["(a) Open", "(b) Closed"]}[answer]
    assert [text.turns[0][1] for text in texts[:2]] == expected
    question = texts[0].turns[0][0]
    assert question == (
        "Open or closed? (a) Open (b) Closed\n"
        "Answer with the option's letter from the given choices directly."
    )
    assert texts[0].is_scored
    assert texts[0].marks_end
    assert result.details["prompt"] == {"template": "<image>{question}", "question": question}


def test_ties_are_errors_unless_shared(table_scorer):
    scorer = table_scorer(lambda image, text: -1.0).scorer()._replace(prompt={"template": "x"})
    for tie, values in (("strict", (0, 0, 0)), ("half", (1 / 4, 1 / 2, 1 / 2))):
        metrics = multiple_choice.evaluate(benchmark(), scorer, tie=tie).metrics
        names = ("pair_accuracy", "individual_accuracy", "relaxed_pair")
        assert tuple(metrics[name].value for name in names) == values
        assert metrics["pair_accuracy"].ties == 1
    # an argmax takes the first option, which is not always right
    asked = benchmark(((0, 1), (0, 0), (1, 1)))
    metrics = multiple_choice.evaluate(asked, scorer, tie="first_index").metrics
    assert metrics["individual_accuracy"].value == 3 / 6  # of every (a)
    assert metrics["pair_accuracy"].value == pytest.approx(1 / 3)


def test_letters_that_a_model_writes(table_scorer):
    table = table_scorer(lambda image, text: 0.0)
    written = {b"0a": "A", b"0b": "(b)", b"1a": "A.", b"1b": "A", b"2a": "a wing", b"2b": "B"}

    def answers(images, questions, how):
        return [written[table.images[int(i)]] for i in images.pooled[:, 0]]

    scorer = table.scorer()._replace(answers=answers)
    result = multiple_choice.evaluate(benchmark(), scorer, decoding="greedy", tie="half")
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["pair_accuracy"] == pytest.approx(1 / 3)
    assert value["individual_accuracy"] == pytest.approx(4 / 6)  # "a wing" earns nothing
    assert value["unparsed"] == pytest.approx(1 / 6)
    assert "relaxed_pair" not in value
    assert result.per_example[2]["answers"] == ["a wing", "B"]
    assert result.details["tie"] == "strict"
    with pytest.raises(UsageError, match="answer='options' is of decoding='perplexity'"):
        multiple_choice.evaluate(benchmark(), scorer, decoding="greedy", answer="options")


def test_models_without_questions_and_cases_without_are_refused(table_scorer):
    scorer = table_scorer(lambda image, text: 0.0).scorer()
    with pytest.raises(UsageError, match="scores answers to questions"):
        multiple_choice.evaluate(benchmark(), scorer)
    with pytest.raises(UsageError, match="writes nothing"):
        multiple_choice.evaluate(benchmark(), scorer, decoding="m3id")
    plain = Benchmark("b", [Case("0", (b"a", b"b"), ("x", "y"))], "v")
    with pytest.raises(DataError, match="set texts='questions'"):
        multiple_choice.evaluate(plain, scorer)
