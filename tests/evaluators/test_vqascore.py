"""VQAScore: what is asked about captions, in the protocols that score them."""

import pytest

from vlc_jax import evaluators
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.benchmarks import PROTOCOL_OF, Benchmark, Case
from vlc_jax.input_pipeline.record import Conversation

PROMPT = {"template": "USER: <image>\n{question} ASSISTANT:", "question": "", "answer": "Yes"}
# image, caption -> log p("Yes") and log p(end)
SCORES = {
    (b"0", "a"): (-1.0, -3.0),
    (b"0", "b"): (-2.0, -0.5),
    (b"1", "a"): (-3.0, 0.0),
    (b"1", "b"): (-1.0, -0.1),
}


@pytest.fixture
def scorer(table_scorer):
    def look_up(image, text):
        ((question, answer),) = text.turns
        assert text.is_scored
        caption = question.split('"')[1]
        assert question == f'Does this figure show "{caption}"? Please answer yes or no.'
        assert answer == "Yes"
        yes, end = SCORES[image, caption]
        return (yes + end) / 2 if text.marks_end else yes

    return table_scorer(look_up).scorer()._replace(prompt=PROMPT)


@pytest.mark.parametrize("name", ["winoground", "naturalbench_retrieval"])
@pytest.mark.parametrize(("eos", "text", "image"), [(True, 0, 0), (False, 1, 1)])
def test_two_images_and_two_captions_with_and_without_the_end_token(scorer, name, eos, text, image):
    benchmark = Benchmark(name, [Case("0", (b"0", b"1"), ("a", "b"))], "v")
    result = evaluators.evaluate(PROTOCOL_OF[name], benchmark, scorer, vqascore={"eos": eos})
    (row,) = result.per_example
    rows = [[SCORES[i, c] for c in "ab"] for i in (b"0", b"1")]
    expected = [[sum(s) / 2 if eos else s[0] for s in each] for each in rows]
    assert row["scores"] == [pytest.approx(each) for each in expected]
    found = [result.metrics[f"{kind}_score"].value for kind in ("text", "image", "group")]
    assert found == [text, image, min(text, image)]
    assert result.details["prompt"] == PROMPT | {
        "question": 'Does this figure show "{}"? Please answer yes or no.',
        "eos": eos,
    }


def test_a_tokenizer_with_a_question_of_its_own_is_asked_that(table_scorer):
    texts = []
    table = table_scorer(lambda image, text: texts.append(text) or 0.0)
    own = PROMPT | {"question": "answer en is it {}?", "answer": "yes"}
    benchmark = Benchmark("b", [Case("0", (b"0",), ("a", "b"))], "v")
    for options, expected in (({}, "yes"), ({"answer": "ja"}, "ja")):
        scorer = table.scorer()._replace(prompt=own)
        result = evaluators.evaluate("choice", benchmark, scorer, vqascore=options)
        assert texts[-1] == Conversation.scored("answer en is it b?", expected)
        assert result.details["prompt"] == own | {"answer": expected, "eos": True}


def test_captions_of_one_image(scorer):
    benchmark = Benchmark("b", [Case(i.decode(), (i,), ("a", "b")) for i in (b"0", b"1")], "v")
    result = evaluators.evaluate("choice", benchmark, scorer, vqascore={})
    assert [row["correct"] for row in result.per_example] == [False, False]
    result = evaluators.evaluate("choice", benchmark, scorer, vqascore={"eos": False})
    assert [row["correct"] for row in result.per_example] == [True, False]


def test_what_cannot_be_asked_is_refused(scorer):
    benchmark = Benchmark("b", [Case("0", (b"0",), ("a", "b"))], "v")
    for wrong, message in (
        ({"question": "Is it?"}, r"place of the caption; got 'Is it\?'"),
        *((kind, r"vqascore is a mapping of some of \('question'") for kind in (True, "eos")),
        ({"end": False}, "unknown option of vqascore 'end'"),
    ):
        with pytest.raises(UsageError, match=message):
            evaluators.evaluate("choice", benchmark, scorer, vqascore=wrong)
    with pytest.raises(UsageError, match="has questions of its own"):
        evaluators.evaluate("choice", benchmark, scorer, protocol="keywords", vqascore={})
    with pytest.raises(UsageError, match="'conversation'"):
        evaluators.evaluate("choice", benchmark, scorer._replace(prompt=None), vqascore={})
