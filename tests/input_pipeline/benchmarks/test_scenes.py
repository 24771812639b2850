"""The evaluation sets ask what they say: one right answer, nothing to guess it from."""

import collections
import dataclasses
import functools
import itertools
import json
import math

import numpy as np
import pytest

from tests.support.scene_examples import MINI, is_true, scene_of
from vlc_jax.evaluators import negation
from vlc_jax.input_pipeline.benchmarks import READERS, scene_set
from vlc_jax.input_pipeline.benchmarks import scene_cases as reader
from vlc_jax.input_pipeline.scenes import draw, grammar, questions
from vlc_jax.input_pipeline.scenes import world as worlds

CHOICE = [
    "scenes_objects", "scenes_attributes", "scenes_attribute_swap", "scenes_relation_swap",
    "scenes_replace", "scenes_replace_unseen", "scenes_swap", "scenes_swap_relation",
    "scenes_order", "scenes_negation", "scenes_negation_colour", "scenes_spatial",
    "scenes_held_attribute_swap", "scenes_held_relation_swap",
]  # fmt: skip
FEW = {"shapes": ["ring", "star", "moon"], "colours": ["red", "blue", "pink"], "counts": [0, 1]}
SWAPS = [name for name in CHOICE if "swap" in name] + ["scenes_order"]


@functools.cache
def whole(name):
    """The cases of a set of the default size, without their pictures, made once for all tests."""
    return [dataclasses.replace(case, images=()) for case in READERS[name]().cases]


@pytest.mark.parametrize("name", sorted(reader.READERS))
def test_sets_have_the_asked_cases_and_are_always_the_same(name):
    benchmark = READERS[name](count=60)
    assert benchmark.name == name
    assert len(benchmark.cases) == 60
    assert len({case.id for case in benchmark.cases}) == 60
    scene_set._picture.cache_clear()
    again = READERS[name](count=80)
    assert again.version == benchmark.version
    for case, same in zip(benchmark.cases, again.cases, strict=False):
        assert (case.id, case.captions, case.group) == (same.id, same.captions, same.group)
        assert json.dumps(case.meta) == json.dumps(same.meta)
        for image, other in zip(case.images, same.images, strict=True):
            np.testing.assert_array_equal(image, other)
        np.testing.assert_array_equal(case.images[0], draw.draw(scene_of(case)))
    test = READERS[name](count=60, split="test")
    assert test.version != benchmark.version
    assert not {case.id for case in benchmark.cases} & {case.id for case in test.cases}
    for case, other in zip(benchmark.cases, test.cases, strict=True):
        assert (case.images[0] != other.images[0]).any()


@pytest.mark.parametrize("name", sorted(reader.READERS))
def test_sets_exist_for_the_bigger_world_and_for_changed_ones(name):
    for options in (
        {"world": "scenes-64"},
        {"world_options": {"depth": 0.5}},
        {"world_options": {"repeat": 0.3}},
        {"world_options": {"colours": ["red", "green", "blue", "pink", "black"]}},
    ):
        benchmark = READERS[name](count=20, **options)
        world = scene_set.Where(**options).rules
        assert len(benchmark.cases) == 20
        for case in benchmark.cases:
            scene = scene_of(case, world)
            for caption in case.captions[:1]:
                # the grammar has no denial after a relation
                is_denied = name == "scenes_negated_retrieval"
                assert is_true(caption.split(" and no ")[0] if is_denied else caption, scene)
            if name in CHOICE:
                assert not is_true(case.captions[1], scene)


@pytest.mark.parametrize("name", CHOICE)
def test_first_caption_is_true_and_second_false(name):
    for case in whole(name):
        right, wrong = case.captions
        scene = scene_of(case)
        assert is_true(right, scene)
        meaning = grammar.parse(wrong, MINI)
        assert meaning is not None
        assert not grammar.is_true(meaning, scene)


@pytest.mark.parametrize(
    "name",
    [
        "scenes_replace",
        "scenes_replace_unseen",
        "scenes_swap",
        "scenes_swap_relation",
        "scenes_half_truths",
    ],
)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_hard_positives_are_true_and_new(name, split):
    for case in (
        whole(name) if split == "validation" else READERS[name](count=500, split=split).cases
    ):
        assert is_true(case.meta["positive"], scene_of(case))
        assert case.meta["positive"] not in case.captions


def _pairs(text):
    tokens = ["<", *text.split(), ">"]
    return list(itertools.pairwise(tokens))


@pytest.mark.parametrize("name", CHOICE)
def test_texts_alone_do_not_give_the_answer_away(name):
    """A naive Bayes reader of word pairs, trained on half of the set, is at chance on the rest."""
    cases = whole(name)
    counts = [collections.Counter(), collections.Counter()]
    for case in cases[:1000]:
        for text, counter in zip(case.captions, counts, strict=True):
            counter.update(_pairs(text))

    def liking(text):
        return sum(math.log((counts[0][p] + 1) / (counts[1][p] + 1)) for p in _pairs(text))

    gaps = [liking(right) - liking(wrong) for right, wrong in (c.captions for c in cases[1000:])]
    accuracy = sum((gap > 0) + 0.5 * (gap == 0) for gap in gaps) / len(gaps)
    assert accuracy == pytest.approx(0.5, abs=0.065)


@pytest.mark.parametrize("name", SWAPS)
def test_swaps_use_the_same_words(name):
    for case in READERS[name](count=300).cases:
        right, wrong = case.captions
        assert collections.Counter(right.split()) == collections.Counter(wrong.split())


@pytest.mark.parametrize("name", ["scenes_relation_swap", "scenes_whatsup"])
def test_relations_are_evenly_asked(name):
    cases = whole(name)
    relations = collections.Counter(grammar.parse(case.captions[0], MINI).link for case in cases)
    assert set(relations) == set(worlds.DIRECTIONS)
    assert all(abs(count - 500) < 80 for count in relations.values())
    groups = collections.Counter(case.group for case in cases)
    assert set(groups) == {"left_right", "above_below"}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("scenes_replace", reader.REPLACE_KINDS),
        ("scenes_swap", reader.SWAP_KINDS),
        ("scenes_order", reader.contrast.SHUFFLES),
        ("scenes_swap", ("attribute",)),  # by default, as in the paper
        ("scenes_swap_relation", ("relation",)),
    ],
)
def test_kinds_take_turns(name, kinds):
    options = {} if len(kinds) == 1 else {"kinds": kinds}
    groups = collections.Counter(c.group for c in READERS[name](count=240, **options).cases)
    assert groups == dict.fromkeys(kinds, 240 // len(kinds))


@pytest.mark.parametrize("synonyms", ["a", "b"])
def test_replaced_word_and_its_synonym_stand_in_the_same_place(synonyms):
    which = "ab".index(synonyms)
    for case in READERS["scenes_replace"](count=150, synonyms=synonyms).cases:
        right, wrong = (grammar.parse(text, MINI) for text in case.captions)
        positive = grammar.parse(case.meta["positive"], MINI)
        slots = [grammar.slots(caption) for caption in (right, wrong, positive)]
        changed = [trio for trio in zip(*slots, strict=True) if len(set(trio)) > 1]
        ((was, false, also_true),) = changed
        assert was.role == case.group
        assert also_true.text == reader.words.SYNONYMS[was.text][which]
        assert false.text in reader.words.base_words(MINI, case.group)
        if case.group == "colour":
            assert false.text not in {obj.colour for obj in scene_of(case).objects}


def test_unseen_replacements_have_other_synonyms():
    seen, unseen = (READERS[f"scenes_replace{end}"](count=60).cases for end in ("", "_unseen"))
    for case, other in zip(seen, unseen, strict=True):
        assert (case.id, case.captions) == (other.id, other.captions)
        assert case.meta["positive"] != other.meta["positive"]


@pytest.mark.parametrize("name", ["scenes_retrieval", "scenes_held_retrieval"])
def test_retrieval_captions_are_true_for_their_own_picture_only(name):
    cases = READERS[name](count=250).cases
    parsed = [grammar.parse(case.captions[0], MINI) for case in cases]
    for i, case in enumerate(cases):
        scene = scene_of(case)
        assert [k for k, caption in enumerate(parsed) if grammar.is_true(caption, scene)] == [i]


def test_whatsup_pictures_differ_in_two_places_only():
    for case in READERS["scenes_whatsup"](count=200).cases:
        first, second = scene_of(case), scene_of(case, key="other_scene")
        np.testing.assert_array_equal(case.images[1], draw.draw(second))
        right, wrong = case.captions
        assert is_true(right, first)
        assert not is_true(wrong, first)
        assert is_true(wrong, second)
        assert not is_true(right, second)
        assert [obj[:4] for obj in first.objects] == [obj[:4] for obj in second.objects]
        assert first.background == second.background


def test_spatial_cases_are_the_pictures_of_whatsup_one_by_one():
    pairs = READERS["scenes_whatsup"](count=50).cases
    cases = READERS["scenes_spatial"](count=99).cases
    assert len(cases) == 99
    for number, case in enumerate(cases):
        pair = pairs[number // 2]
        np.testing.assert_array_equal(case.images[0], pair.images[number % 2])
        assert case.group == {"subset": pair.group, "pair": pair.id}
        right, wrong = (grammar.parse(text, MINI) for text in case.captions)
        assert questions.answer(right) == right.link != questions.answer(wrong)
        assert questions.question(right) == questions.question(wrong) == case.meta["question"]


def test_whatsup_asks_for_depth_where_the_world_has_it():
    benchmark = READERS["scenes_whatsup"](count=60, world_options={"depth": 0.5})
    assert {case.group for case in benchmark.cases} == {"left_right", "above_below", "front_behind"}


@pytest.mark.parametrize("attribute", ["shape", "colour"])
def test_zero_shot_labels_are_the_attribute_of_the_only_object(attribute):
    name = {"shape": "scenes_zero_shot_objects", "colour": "scenes_zero_shot_colours"}[attribute]
    benchmark = READERS[name](count=300)
    assert benchmark.classes == reader.words.base_words(MINI, attribute)
    for case in benchmark.cases:
        scene = scene_of(case)
        (obj,) = scene.objects
        label = benchmark.classes[case.meta["label"]]
        assert label == getattr(obj, attribute)
        truths = [is_true(template.format(label), scene) for template in benchmark.templates]
        assert all(truths) if attribute == "shape" else sum(truths) == 1
    labels = collections.Counter(case.meta["label"] for case in benchmark.cases)
    assert len(labels) == 10


def test_held_sets_show_held_out_pairs_and_the_others_never():
    for name in reader.READERS:
        for case in READERS[name](count=40).cases:
            held = any(
                (obj.shape, obj.colour) in MINI.held_combinations for obj in scene_of(case).objects
            )
            expected = "held" in name
            if name == "scenes_held_attribute_swap":  # in turns; the wrong caption in the others
                expected = case.id.startswith("held")
            assert held == expected, name


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_pairs_are_right_and_wrong_in_turns(split):
    cases = READERS["scenes_held_attribute_swap"](count=100, split=split).cases
    for number, case in enumerate(cases):
        right, wrong = (
            reader.contrast.mentions_held_out(grammar.parse(text, MINI), MINI)
            for text in case.captions
        )
        assert (right, wrong) == ((True, False), (False, True))[number % 2]


def test_a_half_truth_has_one_wrong_word_behind_the_caption():
    for case, kind in zip(
        whole("scenes_half_truths")[:200], itertools.cycle(("entity", "relation"))
    ):
        scene, (short, half) = scene_of(case), case.captions
        full = case.meta["positive"]
        assert case.group == kind
        assert [is_true(text, scene) for text in (short, half, full)] == [True, False, True]
        made, right = (grammar.parse(text, MINI) for text in (half, full))
        assert made.phrases[0] == right.phrases[0] == grammar.parse(short, MINI).phrases[0]
        changed = [x != y for x, y in zip(made.phrases[1], right.phrases[1], strict=True)]
        assert (made.link != right.link, sum(changed)) == (kind == "relation", kind == "entity")


def test_confusion_repeats_one_colour_or_shape_of_the_caption():
    for case in READERS["scenes_confusion"](count=60).cases:
        # "a red circle and a blue square"
        at = {"colour": (1, 5), "shape": (2, 6)}[case.group]
        right, *wrong = [caption.split() for caption in case.captions]
        assert right[at[0]] != right[at[1]]
        for repeated, words in zip((right[at[1]], right[at[0]]), wrong, strict=True):
            assert [words[k] for k in at] == [repeated, repeated]
            assert not is_true(" ".join(words), scene_of(case))
            assert [w for k, w in enumerate(words) if k not in at] == [
                w for k, w in enumerate(right) if k not in at
            ]


def test_negation_names_one_present_and_one_absent_shape():
    for case in READERS["scenes_negation"](count=100).cases:
        scene = scene_of(case)
        absent, present = (text.split()[-1] for text in case.captions)
        assert absent not in {obj.shape for obj in scene.objects}
        assert present in {obj.shape for obj in scene.objects}


def test_captions_of_negation_colour_differ_in_a_colour():
    for case in READERS["scenes_negation_colour"](count=100).cases:
        right, wrong = (grammar.parse(text, MINI) for text in case.captions)
        assert right.phrases[1] == wrong.phrases[1]
        assert right.phrases[0]._replace(colour=wrong.phrases[0].colour) == wrong.phrases[0]


def test_negated_retrieval_denies_an_absent_shape():
    plain, negated = (READERS[f"scenes_{name}retrieval"](count=40) for name in ("", "negated_"))
    assert plain.version != negated.version
    for case, other in zip(plain.cases, negated.cases, strict=True):
        assert case.images[0] is other.images[0]
        (caption,), (text,) = case.captions, other.captions
        affirmed, denied = text.split(" and no ")
        assert affirmed == caption
        assert denied in grammar.absent_shapes(scene_of(case))
        assert negation.phrase(text) == denied  # the part that the correction takes out


def test_pictures_of_a_set_cannot_be_changed_by_accident():
    case = READERS["scenes_objects"](count=1).cases[0]
    with pytest.raises(ValueError, match="read-only"):
        case.images[0][0, 0] = 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scenes_objects", {"split": "train"}, "known: validation, test"),
        ("scenes_objects", {"count": 0}, "count is a whole number from 1 to 100,000; got 0"),
        ("scenes_swap", {"count": 10**12}, "count is a whole number from 1 to 100,000; got 1000"),
        ("scenes_objects", {"counts": 10}, "did you mean 'count'"),
        ("scenes_objects", {"held": True}, "unknown option of a scenes benchmark 'held'"),
        ("scenes_objects", {"world": "scenes-46"}, "did you mean 'scenes-64'"),
        ("scenes_replace", {"kinds": ["colours"]}, "did you mean 'colour'"),
        ("scenes_replace", {"synonyms": "c"}, "unknown synonym set 'c'"),
        ("scenes_held_relation_swap", {"world_options": {"held_modulus": 0}}, "holds nothing out"),
        ("scenes_retrieval", {"world_options": FEW, "count": 400}, "offers only"),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        READERS[name](**options)


SHORT = ("objects", "attribute_swap", "relation_swap", "negation")


@pytest.mark.parametrize("name", [*SHORT, "held_attribute_swap", "held_relation_swap"])
def test_the_first_short_answer_is_true_and_the_second_wrong(name):
    for case in READERS[f"scenes_{name}"](count=100).cases:
        scene, short = scene_of(case), case.meta["short"]
        right, wrong = short["answers"]
        colours = {obj.shape: obj.colour for obj in scene.objects}
        assert len(case.captions) == 2
        if name in ("objects", "negation"):
            assert (right in colours, wrong in colours) == (True, False)
            assert {*short["question"].removeprefix("is there a ").split(" or a ")} == {
                right,
                wrong,
            }
            (other,) = {*case.captions[1].split()} - {*case.captions[0].split()}
            # what is denied of the wrong caption is there
            assert other == (wrong if name == "objects" else right)
        elif name.endswith("attribute_swap"):
            shapes = [part.split()[0] for part in short["question"].split("the ")[1:]]
            assert right == " and ".join(colours[shape] for shape in shapes)
            assert wrong == " and ".join(colours[shape] for shape in shapes[::-1])
        else:
            assert wrong == worlds.OPPOSITE[right]
            first, rest = short["question"].removeprefix("is the ").split(" or ")
            one = next(link for link in worlds.OPPOSITE if first.endswith(link))
            second = rest.partition(" the ")[2]
            for link, truth in ((right, True), (wrong, False)):
                assert is_true(f"a {first.removesuffix(one)}{link} a {second}", scene) == truth


def test_a_description_is_to_say_what_the_right_caption_alone_says():
    for case in READERS["scenes_attribute_swap"](count=100, described=True).cases:
        short = case.meta["short"]
        said = [[answer in text for text in case.captions] for answer in short["answers"]]
        assert (short["question"], said) == (questions.ANY, [[True, False], [False, True]])


def test_a_case_whose_captions_have_no_short_answers_has_none():
    assert not any("short" in case.meta for case in READERS["scenes_attributes"](count=20).cases)
