"""Conversations about scenes: answers are true, and the text alone does not give them away."""

from collections import Counter

import numpy as np
import pytest

from tests.support.scene_examples import scene_of
from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.record import Conversation
from vlc_jax.input_pipeline.scenes import conversations, grammar, questions
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource
from vlc_jax.input_pipeline.tokenizers import make_tokenizer

ALL = tuple((kind, 1.0) for kind in conversations.KINDS)
PLAIN = {"prefixes": ("",), "colour": 1.0, "size": 0.0, "synonyms": 0.0}
BEFORE, BEHIND = conversations.SHOWS.split("{}")


def source(*kinds, count=400):
    options = {"count": count, "conversations": kinds, "caption_options": PLAIN}
    return ScenesSource(**options)


def statements(records):
    """(caption parsed, scene, answer) of all questions of yes and no."""
    for record in records:
        for text in record.captions:
            if isinstance(text, Conversation):
                for question, answer in text.turns:
                    said = question.removeprefix(BEFORE).removesuffix(BEHIND)
                    scene = scene_of(record, records.world)
                    yield grammar.parse(said, records.world), scene, answer


@pytest.mark.parametrize("kind", ["yes_no", "object"])
def test_yes_is_said_of_what_is_true_and_no_of_what_is_not(kind):
    found = list(statements(source((kind, 1.0))))
    assert len(found) == 4 * 4 * 400  # turns, texts, pictures
    for caption, scene, answer in found:
        assert answer == ("yes" if grammar.is_true(caption, scene) else "no")


@pytest.mark.parametrize(
    ("kind", "expected"), [("yes_no", {"relation", "list", "negation"}), ("object", {"single"})]
)
def test_no_word_of_a_statement_gives_the_answer_away(kind, expected):
    kinds, said = Counter(), Counter()
    for caption, scene, answer in statements(source((kind, 1.0), count=500)):
        kinds[caption.kind, answer] += 1
        said.update((word, answer) for word in {*caption.text.split()})
        held = {(phrase.shape, phrase.colour) for phrase in caption.phrases}
        assert not held & {*scene.world.held_combinations} or answer == "yes"
    assert {kind for kind, _ in kinds} >= expected
    for counts in (kinds, said):
        for thing in {thing for thing, _ in counts}:
            yes, no = counts[thing, "yes"], counts[thing, "no"]
            # four standard deviations of a fair coin
            assert abs(yes - no) < 4 * np.sqrt(yes + no) + 2, (thing, yes, no)


def test_a_question_has_the_answer_of_the_picture():
    records = source(("question", 1.0))
    kinds = Counter()
    for record in records:
        scene = scene_of(record, records.world)
        for number, text in enumerate(record.captions):
            turns = text.turns
            assert [question for question, _ in turns] == [
                *record.questions[number:],
                *record.questions[:number],
            ]
            question, answer = turns[0]
            if question == questions.ANY:
                assert grammar.is_true(grammar.parse(answer, records.world), scene)
            elif " or the " not in question and " and the " in question:
                shapes = [
                    part.split()[0] for part in question.removeprefix("is the ").split("and the ")
                ]
                colours = {obj.shape: obj.colour for obj in scene.objects}
                assert answer == " and ".join(colours[shape] for shape in shapes)
            else:
                first, rest = question.removeprefix("is the ").split(" or ")
                second = rest.partition(" the ")[2]
                one = next(link for link in worlds.OPPOSITE if first.endswith(link))
                stated = f"a {first.removesuffix(one)}{answer} a {second}"
                assert grammar.is_true(grammar.parse(stated, records.world), scene)
            kinds[question.split()[0], len(answer.split())] += 1
    assert len(kinds) > 2


def test_a_description_is_the_caption():
    for talk, plain in zip(source(("describe", 1.0), count=20), source(count=20), strict=True):
        turns = [text.turns[0] for text in talk.captions]
        assert turns == [(questions.ANY, caption) for caption in plain.captions]


def test_one_of_the_two_shapes_that_are_asked_about_is_there():
    records, firsts = source(("presence", 1.0)), 0
    for record in records:
        shapes = {obj.shape for obj in scene_of(record, records.world).objects}
        for text in record.captions:
            for question, answer in text.turns:
                asked_about = question.removeprefix("is there a ").split(" or a ")
                assert asked_about == sorted(asked_about)
                assert [shape for shape in asked_about if shape in shapes] == [answer]
                firsts += asked_about[0] == answer
    assert abs(firsts - 3200) < 4 * 40  # four deviations: the place in the question says nothing


def test_colours_are_asked_of_captions_that_say_none():
    options = {"count": 200, "conversations": (("colours", 1.0),)}
    options["caption_options"] = PLAIN | {"relation": 1.0}
    records = ScenesSource(**options, world_options={"counts": (0.0, 1.0, 0.0)})
    for record in records:
        colours = {obj.shape: obj.colour for obj in scene_of(record, records.world).objects}
        assert len({*colours.values()}) == 2
        for text in record.captions:
            for question, answer in text.turns:
                shapes = [part.split()[0] for part in question.split("the ")[1:]]
                assert shapes == sorted(colours)
                assert answer == " and ".join(colours[shape] for shape in shapes)


def test_kinds_have_their_shares_and_follow_the_index():
    shares = (("caption", 1.0), ("question", 1.0), ("yes_no", 2.0))
    records = source(*shares, count=1000)
    texts = [text for record in records for text in record.captions]
    talks = [text.turns for text in texts if isinstance(text, Conversation)]
    np.testing.assert_allclose(len(talks) / len(texts), 0.75, atol=0.03)
    is_shown = [question.startswith(BEFORE) for talk in talks for question, _ in talk]
    np.testing.assert_allclose(np.mean(is_shown), 2 / 3, atol=0.02)
    again = source(*shares, count=10)
    assert [again[i].captions for i in range(10)] == [records[i].captions for i in range(10)]
    assert source(*ALL).fingerprint not in (source().fingerprint, records.fingerprint)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind of conversation 'yes'"):
        source(("yes", 1.0))
    with pytest.raises(ValueError, match="conversations lists each kind once with a share above 0"):
        source(("yes_no", 0.0))


def test_the_tokenizer_knows_every_word_and_marks_the_answers():
    tokenizer = make_tokenizer("scenes_conversation", 96)
    texts = [text for record in source(*ALL) for text in record.captions]
    ids, marks = tokenizer(texts), tokenizer.marks(texts)
    unknown = tokenizer.vocabulary()["<unk>"]
    assert not (ids == unknown).any()
    assert (ids[:, -1] == tokenizer.pad_id).all()  # none is cut
    for row, marked, text in zip(ids[:200], marks[:200], texts[:200], strict=True):
        said = [answer for _, answer in text.turns] if isinstance(text, Conversation) else [text]
        assert tokenizer.decode(row[marked > 0]) == " ".join(said)


def test_vqascore_asks_what_training_asked():
    assert prompts.VQASCORE == conversations.SHOWS
    tokenizer = make_tokenizer("scenes_conversation", 24)
    question = conversations.SHOWS.replace("{}", "a red circle")
    texts = [Conversation(((question, "yes"),)), Conversation.scored(question, "Yes")]
    first, second = tokenizer(texts)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(*tokenizer.marks(texts))
