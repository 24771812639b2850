"""Negatives are false, positives are true, over thousands of scenes."""

import collections

import pytest

from tests.support.scene_examples import MINI, WORLDS, two_objects
from vlc_jax.input_pipeline.scenes import contrast, grammar, sample, words
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream

RICH = {"colour": 0.8, "size": 0.5, "texture": 0.5, "count": 0.1, "negation": 0.1, "synonyms": 0.1}
ROLES = ("shape", "colour", "size", "texture", "relation", "place", "number")


def examples(name, count=2000, split="train", **style):
    world = WORLDS[name]
    style = grammar.style_of(world, **{**RICH, **style})
    for i in range(count):
        stream = Stream(f"contrast/{i}")
        scene = sample.sample_scene(world, split, i)
        yield scene, grammar.describe(scene, stream, style), stream


LIST = Caption("list", (Phrase("circle", "purple", "big"), Phrase("square", "blue")))
RELATION = Caption("relation", LIST.phrases, "left of")


def negatives_of(caption, scene, stream):
    """Every kind of negative that is never true."""
    yield "reverse", contrast.reverse(caption, scene)
    for role in ("colour", "size", "texture", "shape"):
        yield f"swap {role}", contrast.swap(caption, scene, role)
    for role in ROLES:
        for draw in ("base_words", "no_true_synonyms"):
            yield f"{role} {draw}", contrast.replace(caption, scene, role, stream, draw)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_negatives_are_false_and_differ(name):
    made = collections.Counter()
    for scene, caption, stream in examples(name, 1000):
        for kind, negative in negatives_of(caption, scene, stream):
            if negative is not None:
                assert not grammar.is_true(negative, scene), (kind, caption.text, negative.text)
                assert negative.text != caption.text
                made[kind] += 1
    kinds = {kind for kind, _ in negatives_of(LIST, two_objects("purple"), Stream(""))}
    assert set(made) == {kind for kind in kinds if name == "64" or "texture" not in kind}
    assert min(made.values()) >= 20


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_positives_are_true_and_differ(name):
    made = collections.Counter()
    for scene, caption, stream in examples(name):
        for role in ("colour", "size", "texture", "relation"):
            for sets in ("a", "b", "ab"):
                positive = contrast.synonym(caption, role, stream, sets)
                if positive is not None:
                    assert grammar.is_true(positive, scene), (caption.text, positive.text)
                    assert positive.text != caption.text
                    made[role] += 1
        positive = contrast.reorder(caption)
        if positive is not None:
            assert grammar.is_true(positive, scene), (caption.text, positive.text)
            made[f"reorder {caption.kind}"] += 1
    assert set(made) >= {"colour", "size", "relation", "reorder list", "reorder relation"}


@pytest.mark.parametrize("kind", contrast.SHUFFLES)
def test_shuffles_keep_the_words_and_are_never_true(kind):
    made = 0
    for scene, caption, stream in examples("mini", 1000):
        text = contrast.shuffle(caption, scene, kind, stream)
        if text is None:
            continue
        made += 1
        assert text != caption.text
        assert sorted(text.split()) == sorted(caption.text.split())
        meaning = grammar.parse(text, scene.world)
        assert meaning is None or not grammar.is_true(meaning, scene)
    assert made > 200


def test_shuffles_move_only_what_they_say():
    scene, tagged = two_objects("purple"), grammar.tags(RELATION)
    for i in range(50):
        shuffled = {
            kind: contrast.shuffle(RELATION, scene, kind, Stream(f"{i}")).split()
            for kind in contrast.SHUFFLES
        }
        for k, (word, tag) in enumerate(tagged):
            if tag in ("NOUN", "ADJ"):
                assert shuffled["all_but_nouns_and_adjectives"][k] == word
            else:
                assert shuffled["nouns_and_adjectives"][k] == word
        original = [word for word, _ in tagged]
        for start in range(0, len(original), 3):
            inside = shuffled["within_trigrams"][start : start + 3]
            assert sorted(inside) == sorted(original[start : start + 3])
            group = " ".join(original[start : start + 3])
            assert group in " ".join(shuffled["trigrams"])


@pytest.mark.parametrize("draw", contrast.DRAWS)
def test_texts_of_ordinary_scenes_never_mention_held_out_pairs(draw):
    for scene, caption, stream in examples("mini", 1500, colour=1.0, negation=0):
        made = [
            contrast.replace(caption, scene, role, stream, draw) for role in ("shape", "colour")
        ]
        made += [contrast.swap(caption, scene, "colour"), contrast.swap(caption, scene, "shape")]
        for negative in filter(None, made):
            assert not any(
                (phrase.shape, words.base(phrase.colour)) in MINI.held_combinations
                for phrase in negative.phrases
            )


def test_scenes_with_held_out_pairs_still_get_negatives():
    made = sum(
        contrast.swap(caption, scene) is not None
        for scene, caption, _ in examples("mini", 300, split="held", colour=1.0)
    )
    assert made > 100


def test_negatives_that_would_be_true_are_not_made():
    scene = two_objects("purple")
    twice = Caption("list", (Phrase("circle"), Phrase("square")))
    assert contrast.swap(twice, scene, "shape") is None  # "a square and a circle" holds too
    copies = scene._replace(objects=(scene.objects[0], scene.objects[0]._replace(x=22)))
    caption = Caption("relation", (Phrase("circle"), Phrase("circle")), "left of")
    assert contrast.reverse(caption, copies) is None


@pytest.mark.parametrize(
    ("role", "word", "synonyms", "others"),
    [("size", "big", 2, 5), ("relation", "left of", 2, 11), ("colour", "blue", 2, 26)],
)
def test_the_uniform_list_draws_synonyms_as_often_as_it_has(role, word, synonyms, others):
    """Of 29 other colour words, three name the colour that is held out for squares (green)."""
    scene, phrase = two_objects("purple"), {"size": 0, "colour": 1, "relation": None}[role]
    draws = [
        contrast.replace(RELATION, scene, role, Stream(f"{i}"), phrase=phrase) for i in range(4000)
    ]
    assert len({caption.text for caption in draws}) == others
    true = sum(grammar.is_true(caption, scene) for caption in draws)
    share = synonyms / others
    assert abs(true - 4000 * share) < 4 * (4000 * share * (1 - share)) ** 0.5
    said = {slot.text for caption in draws for slot in grammar.slots(caption) if slot.role == role}
    assert words.synonyms(word)[0] in said


def test_draws_differ_in_the_words_they_use():
    scene = two_objects("purple")

    def drawn(draw, **options):
        return {
            contrast.replace(
                LIST, scene, "colour", Stream(f"{i}"), draw, phrase=1, **options
            ).phrases[1].colour
            for i in range(600)
        }  # fmt: skip

    assert drawn("base_words") == set(MINI.colours) - {"blue", "green"}
    assert drawn("base_words", absent=True) == set(MINI.colours) - {"blue", "green", "purple"}
    assert drawn("no_true_synonyms") == drawn("uniform_word_list") - {"azure", "navy"}


def test_replaced_shapes_are_absent_from_the_scene():
    for scene, caption, stream in examples("mini", 500):
        negative = contrast.replace(caption, scene, "shape", stream)
        if negative is None:
            continue
        (new,) = {p.shape for p in negative.phrases} - {p.shape for p in caption.phrases}
        assert new not in {obj.shape for obj in scene.objects}


@pytest.mark.parametrize(("sets", "word"), [("a", "huge"), ("b", "large")])
def test_synonym_of_a_synonym_stays_in_the_meaning(sets, word):
    caption = Caption("single", (Phrase("circle", size=word),))
    positive = contrast.synonym(caption, "size", Stream(""), sets)
    assert positive.phrases[0].size == {"a": "large", "b": "huge"}[sets]
    assert contrast.synonym(positive, "size", Stream(""), sets) is None
    assert contrast.synonym(positive, "shape", Stream("")) is None
