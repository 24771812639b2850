"""Captions are true, can be read back, and have the stated statistics."""

import collections
import dataclasses
import hashlib

import pytest

from tests.support.scene_examples import MINI, WORLDS, is_true, two_objects
from vlc_jax.input_pipeline.scenes import grammar, sample, words
from vlc_jax.input_pipeline.scenes import shapes as draw_shapes
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream

EVERYTHING = {"negation": 0.2, "count": 0.2, "synonyms": 0.3, "texture": 0.5}


def captions(world, scenes, per_scene=1, **style):
    style = grammar.style_of(world, **style)
    for i in range(scenes):
        scene = sample.sample_scene(world, "train", i)
        stream = Stream(f"test/{i}")
        for _ in range(per_scene):
            yield scene, grammar.describe(scene, stream, style)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_every_drawn_caption_is_true(name):
    kinds = set()
    for scene, caption in captions(WORLDS[name], 2000, **EVERYTHING):
        assert grammar.is_true(caption, scene), (caption.text, scene)
        kinds.add(caption.kind)
    assert kinds == {"single", "place", "relation", "list", "negation", "count"}


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_reading_a_text_back_gives_the_caption(name):
    for _, caption in captions(WORLDS[name], 1000, **EVERYTHING):
        assert grammar.parse(caption.text, WORLDS[name]) == caption


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_vocabulary_holds_every_word_and_is_sorted(name):
    vocabulary = words.vocabulary(WORLDS[name])
    assert list(vocabulary) == sorted(set(vocabulary))
    said = {word for _, caption in captions(WORLDS[name], 1000, **EVERYTHING)
            for word in caption.text.split()}  # fmt: skip
    assert said <= set(vocabulary)


def test_vocabulary_does_not_depend_on_the_options_of_captions():
    assert words.vocabulary(WORLDS["depth"]) == words.vocabulary(MINI)
    assert {"no", "two", "circles", "behind", "crimson"} <= set(words.vocabulary(MINI))
    assert "striped" not in words.vocabulary(MINI)
    assert "striped" in words.vocabulary(WORLDS["64"])


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a red circle", True),
        ("a photo of a huge crimson circle", True),
        ("a red square", False),
        ("a small red circle", False),
        ("a blue circle and a red square", False),
        ("a square and a circle", True),
        ("a circle and a circle", False),  # two phrases, two objects
        ("a red circle left of a blue square", True),
        ("a red circle to the left of a azure square", True),
        ("a blue square left of a red circle", False),
        ("a blue square right of a red circle", True),
        ("a red circle above a blue square", False),
        ("a circle on the left", True),
        ("a circle on the right", False),
        ("a red circle and no star", True),
        ("a red circle and no square", False),
        ("a star and no moon", False),
        ("one shape", False),
        ("two shapes", True),
        ("three shapes", False),
        ("one red shape", True),
        ("one big circle", True),
        ("two circles", False),
    ],
)
def test_truth_of_captions_about_a_known_scene(text, truth):
    assert is_true(text, two_objects()) is truth


@pytest.mark.parametrize(
    "text",
    ["", "a", "circle", "a circle red", "a red", "a red circle left of", "a photo of", "a shape",
     "a circle and", "a circle and no", "two circle", "one circles", "a striped circle",
     "a circle and a square left of a star", "the circle"],
)  # fmt: skip
def test_texts_outside_the_grammar_are_not_read(text):
    assert grammar.parse(text, MINI) is None


def test_default_captions_have_the_stated_probabilities():
    drawn = [(s, c) for s, c in captions(MINI, 3000, per_scene=2) if len(s.objects) == 2]
    total = len(drawn)

    def share(condition):
        return sum(condition(scene, caption) for scene, caption in drawn) / total

    assert share(lambda s, c: c.prefix == "") == pytest.approx(3 / 7, abs=0.03)
    assert share(lambda s, c: bool(c.phrases[0].colour)) == pytest.approx(0.25, abs=0.03)
    assert share(lambda s, c: bool(c.phrases[0].size)) == pytest.approx(0.2, abs=0.03)
    assert share(lambda s, c: words.base(c.phrases[0].shape) == s.objects[0].shape) == (
        pytest.approx(0.5, abs=0.03)  # order of mention is free
    )
    kinds = collections.Counter(caption.kind for _, caption in drawn)
    clear = share(lambda s, c: s.place(0) is not None)  # object 0 stands for both
    places = kinds["place"] / total
    assert places == pytest.approx(0.15 * clear, abs=0.02)
    assert kinds["single"] / total == pytest.approx((1 - places) * 0.15, abs=0.03)
    assert kinds["relation"] / total == pytest.approx((1 - places) * 0.85 * 0.35, abs=0.03)
    assert set(kinds) == {"place", "single", "relation", "list"}


def test_three_objects_are_listed_in_full_six_times_of_ten():
    lists = [c for s, c in captions(MINI, 4000) if len(s.objects) == 3 and c.kind == "list"]
    full = sum(len(caption.phrases) == 3 for caption in lists) / len(lists)
    assert full == pytest.approx(0.6, abs=0.07)
    assert {len(caption.phrases) for caption in lists} == {2, 3}


def test_captions_of_the_named_worlds_stay_what_they_are():
    texts = hashlib.blake2b(digest_size=8)
    for name in sorted(worlds.WORLDS):
        for _, caption in captions(worlds.named(name), 500):
            texts.update(f"{caption.text}\n".encode())
    assert texts.hexdigest() == "feb92b9e3922dcbf"


def named(scene, caption):
    """Indices of the objects that a caption names; shapes of a scene differ."""
    shapes = [obj.shape for obj in scene.objects]
    return [shapes.index(phrase.shape) for phrase in caption.phrases]


@pytest.mark.parametrize(
    ("completeness", "counts"),
    [
        (0.0, {1: {1: 1.0}, 2: {1: 1.0}, 3: {1: 1.0}}),
        (0.5, {1: {1: 1.0}, 2: {1: 1.0}, 3: {1: 0.5, 2: 0.5}}),
        (0.75, {1: {1: 1.0}, 2: {1: 0.5, 2: 0.5}, 3: {2: 0.75, 3: 0.25}}),
        (1.0, {1: {1: 1.0}, 2: {2: 1.0}, 3: {3: 1.0}}),
    ],
)
def test_captions_name_the_stated_share_of_the_objects(completeness, counts):
    said = {size: collections.Counter() for size in counts}
    for scene, caption in captions(MINI, 2000, completeness=completeness):
        assert grammar.is_true(caption, scene)
        assert grammar.parse(caption.text, MINI) == caption
        said[len(scene.objects)][len({*named(scene, caption)})] += 1
    for size, shares in counts.items():
        drawn = {number: times / said[size].total() for number, times in said[size].items()}
        assert drawn == pytest.approx(shares, abs=0.06)  # the rest of 1.0 is exact: no other keys


def test_captions_of_a_share_have_the_kinds_they_name():
    said = collections.Counter(
        (len(caption.phrases), caption.kind)
        for _, caption in captions(MINI, 2000, completeness=0.75, place=0.5, relation=0.5)
    )
    assert {*said} == {
        (1, "single"), (1, "place"), (2, "list"), (2, "relation"), (3, "list")
    }  # fmt: skip


def extent(obj):
    """Pixels of a picture that an object covers, behind the side of its box."""
    return obj.pixels, int(draw_shapes.mask(obj.shape, obj.pixels).sum())


@pytest.mark.parametrize("saliency", [0.0, 0.5, 1.0])
def test_incomplete_captions_name_the_biggest_as_often_as_stated(saliency):
    is_named, is_first = collections.defaultdict(list), []
    style = {"completeness": 0.67, "saliency": saliency, "relation": 0.0}
    for scene, caption in captions(MINI, 2000, **style):
        order, size = named(scene, caption), len(scene.objects)
        biggest = max(range(size), key=lambda i: extent(scene.objects[i]))
        if len(order) < size:
            is_named[len(order), size].append(biggest in order)
            if len(order) > 1 and biggest in order:
                is_first.append(order[0] == biggest)
    assert {*is_named} == {(1, 2), (2, 3)}
    for (part, size), each in is_named.items():
        expected = saliency + (1 - saliency) * part / size
        tolerance = 0 if saliency == 1 else 0.06
        assert sum(each) / len(each) == pytest.approx(expected, abs=tolerance)
    assert sum(is_first) / len(is_first) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("density", [0.0, 0.25, 1.0])
def test_the_share_of_colours_does_not_depend_on_completeness(density):
    for completeness in (0.5, 1.0):
        drawn = [
            bool(phrase.colour)
            for _, caption in captions(MINI, 1000, colour=density, completeness=completeness)
            for phrase in caption.phrases
        ]
        tolerance = 0 if density in (0.0, 1.0) else 0.05
        assert sum(drawn) / len(drawn) == pytest.approx(density, abs=tolerance)


def test_a_world_has_a_style_of_its_own():
    mini, synonyms = (
        grammar.style_of(worlds.named(f"scenes-{name}")) for name in ("mini", "synonyms")
    )
    assert (mini.synonyms, synonyms.synonyms) == (0.002, 0.15)
    assert dataclasses.replace(synonyms, synonyms=0.002) == mini


def test_synonyms_come_at_their_rate_and_both_sets_alike():
    said = collections.Counter(
        slot.text
        for _, caption in captions(MINI, 4000, synonyms=0.4)
        for slot in grammar.slots(caption)
        if slot.role == "colour"
    )
    total = said.total()
    for which in (0, 1):
        part = sum(said[words.SYNONYMS[colour][which]] for colour in MINI.colours) / total
        assert part == pytest.approx(0.2, abs=0.03)


def test_each_word_means_one_thing():
    everything = [word for base, pair in words.SYNONYMS.items() for word in (base, *pair)]
    assert len(everything) == len(set(everything))
    assert [len(words.word_list(MINI, role)) for role in ("size", "relation", "colour")] == [
        6,
        12,
        30,
    ]
    assert words.base("to the left of") == "left of"
    assert words.base("circle") == "circle"


def test_articles_never_betray_the_next_word():
    for _, caption in captions(MINI, 1000, synonyms=0.3):
        tokens = caption.text.removeprefix("an image of ").split()
        assert "an" not in tokens


def test_captions_of_the_mini_world_fit_a_context_of_twenty():
    style = {"colour": 1, "size": 1, "synonyms": 1, "relation": 1, "place": 0, "single": 0}
    longest = max(len(c.text.split()) for _, c in captions(MINI, 2000, 2, **style))
    assert longest <= 18  # and room for an end token
    assert max(len(c.text.split()) for _, c in captions(MINI, 2000, 2)) <= 17


def test_tags_name_the_part_of_speech_of_every_word():
    caption = Caption(
        "relation", (Phrase("circle", "red", "tiny"), Phrase("star")), "to the left of", "we see"
    )
    assert caption.text == "we see a tiny red circle to the left of a star"
    assert [tag for _, tag in grammar.tags(caption)] == [
        "PRON", "VERB", "DET", "ADJ", "ADJ", "NOUN", "ADP", "ADP", "ADP", "ADP", "DET", "NOUN",
    ]  # fmt: skip


def test_slots_point_to_their_phrase():
    caption = Caption("negation", (Phrase("circle", "red"), Phrase("cross")))
    assert [tuple(slot) for slot in grammar.slots(caption)] == [
        ("article", "a", 0), ("colour", "red", 0), ("shape", "circle", 0), ("and", "and", -1),
        ("no", "no", -1), ("shape", "cross", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"color": 0.5}, "did you mean 'colour'"),
        ({"colour": 1.5}, r"colour is a probability in \[0, 1\]; got 1.5"),
        ({"prefixes": ["a picture of"]}, "unknown prefix 'a picture of'"),
        ({"completeness": 1.5}, r"completeness is a probability in \[0, 1\]; got 1.5"),
        ({"saliency": 0.5}, "saliency=0.5 .* set completeness"),
    ],
)
def test_impossible_styles_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        grammar.style_of(MINI, **change)
