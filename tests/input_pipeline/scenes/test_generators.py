"""Generators of the scenes: exact, drawn through rng alone, and as often as their shares say."""

import collections
import inspect
import itertools
import pickle

import numpy as np
import pytest

from tests.support.scene_examples import MINI, is_true, two_objects
from vlc_jax.input_pipeline.hard_texts import scene_texts as generators
from vlc_jax.input_pipeline.scenes import grammar, words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

ALL = generators.SCENES_NEGATIVES | generators.SCENES_POSITIVES
RICH = {"colour": 0.8, "size": 0.5, "synonyms": 0.05}
PAIR = "a big red circle and a small blue square"  # of SCENE
LEFT = "a red circle left of a blue square"
SCENE = two_objects().to_json()


def rng(seed=0):
    return np.random.default_rng(seed)


def captions(count, **style):
    source = ScenesSource(count=count, captions=1, caption_options={**RICH, **style})
    for record in map(source.__getitem__, range(count)):
        scene = record.meta["scene"]
        yield record.captions[0], scene, worlds.from_json(scene, source.world)


def test_word_lists_make_some_negatives_that_are_true():
    generator, draws, truths = ALL["scenes_replace"](roles={"size": 1.0}), rng(), []
    for caption, graph, scene in captions(600):
        texts = generator(caption, draws, 3, graph)
        assert len({caption, *texts}) == 1 + len(texts) <= 4
        truths += [is_true(text, scene) for text in texts[:1]]
    assert 0.3 < np.mean(truths) < 0.5  # two synonyms among five other words


@pytest.mark.parametrize(
    ("name", "caption", "options", "expected"),
    [
        ("scenes_swap", PAIR, {}, {"a big blue circle and a small red square"}),
        ("scenes_swap", PAIR, {"roles": ["size", "shape"]},
         {"a small red circle and a big blue square", "a big red square and a small blue circle"}),
        ("scenes_swap", "a circle and a square", {}, set()),
        ("scenes_negate", PAIR, {}, {"a big red circle and no small blue square"}),
        ("scenes_negate", "a red circle", {}, set()),
        ("scenes_reverse", LEFT, {}, {"a blue square left of a red circle"}),
        ("scenes_reverse", PAIR, {}, set()),
        ("scenes_reorder", LEFT, {}, {"a blue square right of a red circle"}),
        ("scenes_reorder", PAIR, {}, {"a small blue square and a big red circle"}),
        (
            *("scenes_units", LEFT, {}),
            {"a red circle", "a blue square", "a circle left of a square"},
        ),
        ("scenes_units", "a circle", {}, set()),
        ("scenes_reorder", "a circle", {}, set()),
        ("scenes_synonym", LEFT, {"roles": {"relation": 1}, "sets": "b"},
         {"a red circle on the left side of a blue square"}),
        ("scenes_synonym", LEFT, {"roles": {"size": 1}}, set()),
        ("scenes_replace", LEFT, {"roles": {"relation": 1}, "draw": "base_words"},
         {f"a red circle {link} a blue square" for link in ("right of", "above", "below")}),
        ("scenes_replace", LEFT, {"roles": {"size": 1}}, set()),
    ],
)  # fmt: skip
def test_generators_do_what_they_say(name, caption, options, expected):
    generator, draws = ALL[name](**options), rng()
    found = [generator(caption, draws, 8, SCENE) for _ in range(8)]
    assert set(itertools.chain(*found)) == expected


def test_three_objects_are_swapped_in_every_pair():
    three = next(
        (caption, graph)
        for caption, graph, _ in captions(3000, colour=1, size=0, place=0, single=0, relation=0)
        if caption.count(" and ") == 2
    )
    pairs, draws = set(), rng()
    original = grammar.parse(three[0], MINI).phrases
    for _ in range(30):
        (text,) = ALL["scenes_swap"]()(three[0], draws, 1, three[1])
        swapped = grammar.parse(text, MINI).phrases
        pairs.add(tuple(i for i in range(3) if swapped[i] != original[i]))
    assert pairs <= {(0, 1), (0, 2), (1, 2)}
    assert len(pairs) >= 2


def test_roles_are_drawn_by_their_shares():
    generator = ALL["scenes_replace"](roles={"size": 3, "colour": 1, "place": 5}, draw="base_words")
    draws, drawn = rng(), collections.Counter()
    for _ in range(2000):
        (text,) = generator(PAIR, draws, 1, SCENE)
        sizes = {phrase.size for phrase in grammar.parse(text, MINI).phrases}
        drawn["size" if sizes != {"big", "small"} else "colour"] += 1
    assert abs(drawn["size"] / 2000 - 0.75) < 0.04


def test_a_paraphrase_keeps_the_content_in_another_sentence():
    generator, draws, seen = ALL["scenes_paraphrase"](sets="a"), rng(), collections.Counter()
    for caption, graph, scene in captions(400):
        for text in generator(caption, draws, 2, graph):
            old, new = (grammar.parse(each, MINI) for each in (caption, text))
            assert text != caption
            assert is_true(text, scene) or not is_true(caption, scene)
            assert (new.kind, len(new.phrases)) == (old.kind, len(old.phrases))
            changed = sum(a != b for a, b in zip(caption.split(), text.split(), strict=False))
            seen["texts"] += 1
            seen["prefix"] += new.prefix != old.prefix
            seen["order"] += [p.shape for p in new.phrases] != [p.shape for p in old.phrases]
            seen["words"] += changed > 1
            spoken = {phrase.colour for phrase in (*old.phrases, *new.phrases)}
            seen["set b"] += any(
                word == words.synonyms(words.base(word))[-1] and word not in caption
                for word in spoken if word and words.base(word) != word
            )  # fmt: skip
    assert min(seen[name] for name in ("prefix", "words")) > 0.6 * seen["texts"]
    assert 0.2 * seen["texts"] < seen["order"] < 0.6 * seen["texts"]
    assert seen["set b"] == 0


def test_sets_of_synonyms_stay_apart():
    for sets, index in (("a", 0), ("b", 1)):
        generator, draws = ALL["scenes_synonym"](roles={"colour": 1}, sets=sets), rng()
        texts = {generator(PAIR, draws, 1, SCENE)[0] for _ in range(30)}
        said = {phrase.colour for text in texts for phrase in grammar.parse(text, MINI).phrases}
        assert said == {"red", "blue", words.synonyms("red")[index], words.synonyms("blue")[index]}


@pytest.mark.parametrize("name", sorted(ALL))
def test_output_is_a_function_of_rng_and_survives_pickling(name):
    generator = ALL[name]()
    assert generator.name == name
    copy, rows = pickle.loads(pickle.dumps(generator)), list(captions(100))
    one, two = rng(5), rng(5)
    assert copy.version == generator.version == f"{generators.VERSION}-scenes-mini-v1"
    for caption, graph, _ in rows:
        assert generator(caption, one, 2, graph) == copy(caption, two, 2, graph)


def test_other_draws_make_other_texts():
    generator = ALL["scenes_replace"]()
    assert len({generator(PAIR, rng(seed), 1, SCENE)[0] for seed in range(20)}) > 5


def test_other_worlds_are_named_by_options():
    source = ScenesSource("scenes-64", count=40, world_options={"canvas": 72})
    generator = ALL["scenes_reorder"](world="scenes-64", world_options={"canvas": 72})
    assert source.world.id in generator.version
    found = [
        generator(caption, rng(), 1, source[i].meta["scene"])
        for i in range(40)
        for caption in source[i].captions
    ]
    assert sum(map(len, found)) > 40


@pytest.mark.parametrize("name", sorted(ALL))
def test_scenes_and_captions_that_do_not_belong_are_refused(name):
    assert {"world", "world_options"} <= set(inspect.signature(ALL[name]).parameters)
    with pytest.raises(ValueError, match=f"{name} needs the scene graph.*source 'scenes'"):
        ALL[name]()(LEFT, rng(), 1)
    with pytest.raises(ValueError, match=r"made for world 'scenes-64-v1'.*'scenes-mini-v1'"):
        ALL[name](world="scenes-64")(LEFT, rng(), 1, SCENE)
    with pytest.raises(ValueError, match=r"no caption of world.*'the cat'"):
        ALL[name]()("the cat", rng(), 1, SCENE)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scenes_swap", {"roles": ["colours"]}, "did you mean 'colour'"),
        ("scenes_replace", {"roles": {"colors": 1}}, "unknown role 'colors'"),
        ("scenes_replace", {"roles": {}}, "shares above 0; got {}"),
        ("scenes_replace", {"roles": {"size": 0}}, "shares above 0"),
        ("scenes_replace", {"draw": "base"}, "unknown draw 'base'"),
        ("scenes_synonym", {"sets": "c"}, "unknown synonym set 'c'"),
        ("scenes_synonym", {"roles": {"shape": 1}}, "unknown role with synonyms 'shape'"),
        ("scenes_reverse", {"world": "scenes"}, "unknown world 'scenes'"),
    ],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        ALL[name](**options)
