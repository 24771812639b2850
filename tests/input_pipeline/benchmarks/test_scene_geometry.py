"""Pictures of the geometry sets differ in what they say and in nothing else."""

import collections
import dataclasses

import numpy as np
import pytest

from vlc_jax.input_pipeline.benchmarks import READERS, scene_geometry
from vlc_jax.input_pipeline.scenes import draw, grammar
from vlc_jax.input_pipeline.scenes import world as worlds

MINI = worlds.named("scenes-mini")
NAMES = sorted(scene_geometry.READERS)


@pytest.fixture(autouse=True)
def few_placements(monkeypatch):
    monkeypatch.setattr(scene_geometry, "LEARNED", {"training": 2, "validation": 1})


def scenes_of(case, world=MINI):
    return [worlds.from_json(graph, world) for graph in case.meta["scenes"]]


def graph_of(scene):
    """What a caption can say: without background, noise and shades."""
    return [obj._replace(jitter=(0, 0, 0)) for obj in scene.objects]


def changed(scene, other):
    """Fields of objects that differ between two scenes of as many objects."""
    pairs = zip(graph_of(scene), graph_of(other), strict=True)
    return {
        field for a, b in pairs for field in a._fields if getattr(a, field) != getattr(b, field)
    }


@pytest.mark.parametrize("name", NAMES)
def test_sets_are_always_the_same_and_splits_differ(name):
    few, more = READERS[name](count=20), READERS[name](count=36)
    assert (few.name, few.version, len(few.cases), len(more.cases)) == (name, more.version, 20, 36)
    assert len({case.id for case in more.cases}) == 36
    for case, same in zip(few.cases, more.cases, strict=False):
        assert dataclasses.replace(case, images=()) == dataclasses.replace(same, images=())
        for image, scene in zip(case.images, scenes_of(case), strict=True):
            np.testing.assert_array_equal(image, draw.draw(scene))
    test = READERS[name](count=20, split="test")
    assert test.version != few.version
    for case, other in zip(few.cases, test.cases, strict=True):
        assert (case.images[0] != other.images[0]).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {"world": "scenes-64"},
        {"world_options": {"depth": 0.5, "repeat": 0.3}},
        {"world_options": {"colours": ["red", "green", "blue", "pink", "black"]}},
    ],
)
def test_sets_exist_for_other_worlds_and_show_nothing_held_out(name, options):
    world = worlds.named(options.get("world", "scenes-mini"), **options.get("world_options", {}))
    benchmark = READERS[name](count=20, **options)
    for case in (*benchmark.cases, *benchmark.training):
        for scene in scenes_of(case, world):
            looks = {(obj.shape, obj.colour) for obj in scene.objects}
            assert len(looks) == len(scene.objects)
            assert not looks & world.held_combinations


DIFFERS = {  # condition -> what images 0 and 1, and 0 and 2, differ in
    "1.2a": ({"colour"}, {"colour", "shape"}),
    "1.2b": ({"x", "y"}, {"colour", "shape"}),
    "2.1": ({"colour"}, set()),
    "2.2": ({"colour"}, None),
    "2.3": ({"colour"}, set()),
    "3.1": ({"x", "y"}, set()),
    "3.2": ({"x", "y"}, set()),
    "3.3": ({"colour", "shape"}, {"colour", "shape", "x", "y"}),
}


def test_the_pictures_of_a_condition_differ_in_what_it_is_about():
    cases = READERS["scenes_conditions"](count=160).cases
    groups = collections.Counter(case.group for case in cases)
    assert groups == dict.fromkeys(scene_geometry.CONDITIONS, 10)
    for case in cases:
        first, *others = scenes_of(case)
        for other, fields in zip(others, DIFFERS.get(case.group, ()), strict=False):
            # A place may share one coordinate with the other one.
            assert changed(first, other) - {"x", "y"} == fields - {"x", "y"}
            assert bool({"x", "y"} & fields) == bool({"x", "y"} & changed(first, other))
            assert (draw.draw(first) != draw.draw(other)).any()
        if case.group in ("2.1", "2.3", "3.1", "3.2"):
            assert others[1].noise != first.noise
            assert others[0].noise == first.noise
        if case.group == "3.3":
            relations = [scene.relation(0, 1) for scene in (first, *others)]
            assert relations[0] == relations[1] == worlds.OPPOSITE[relations[2]]


def test_captions_above_are_true_and_those_below_false():
    for case in READERS["scenes_conditions"](count=160).cases:
        if case.group[:3] in ("1.1", "2.2"):
            for (image, text), is_true in (
                *((pair, True) for pair in case.meta["above"]),
                *((pair, False) for pair in case.meta["below"]),
            ):
                caption = grammar.parse(case.captions[int(text[1:])], MINI)
                scene = scenes_of(case)[int(image[1:])]
                assert grammar.is_true(caption, scene) == is_true
        elif case.captions:
            shape = scenes_of(case)[0].objects[0].shape
            assert case.captions[:2] == (f"a {shape}", f"no {shape}")
            assert f"a {shape}" not in case.captions[1:]


def test_superposition_shows_either_object_alone_where_it_was():
    for case in READERS["scenes_superposition"](count=20).cases:
        both, first, second, third, again, swapped = scenes_of(case)
        assert both.objects == (*first.objects, *second.objects)
        assert changed(second, third) == {"shape", "colour"}
        assert graph_of(again) == graph_of(both)
        assert changed(both, swapped) == {"colour"}
        alone = [obj for scene in (first, second, third) for obj in scene.objects]
        assert list(case.captions) == [f"a {obj.colour} {obj.shape}" for obj in alone]


@pytest.mark.parametrize("kind", ["attribute", "relation"])
def test_binding_asks_at_placements_that_no_probe_has_seen(kind):
    benchmark = READERS["scenes_binding"](kind=kind, count=80)
    assert (len(benchmark.training), len(benchmark.validation)) == (80, 40)
    parts = (benchmark.cases, benchmark.training, benchmark.validation)
    noises = [{scenes_of(case)[0].noise for case in part} for part in parts]
    assert not noises[0] & (noises[1] | noises[2])
    assert not noises[1] & noises[2]
    for one, other in zip(benchmark.cases[::2], benchmark.cases[1::2], strict=True):
        assert (one.group, one.meta["label"], other.meta["label"]) == (other.group, 0, 1)
        assert one.captions == other.captions[::-1]
        assert sorted(one.captions[0].split()) == sorted(one.captions[1].split())
        assert changed(*scenes_of(one), *scenes_of(other)) <= (
            {"colour"} if kind == "attribute" else {"x", "y"}
        )
        for case in (one, other):
            scene = scenes_of(case)[0]
            said = [grammar.is_true(grammar.parse(text, MINI), scene) for text in case.captions]
            assert said == [True, False]
            if kind == "relation":
                assert scene.relation(0, 1) == ("right of" if case.meta["label"] else "left of")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scenes_binding", {"kind": "relations"}, "did you mean 'relation'"),
        ("scenes_conditions", {"counts": 3}, "did you mean 'count'"),
        (
            "scenes_superposition",
            {"world_options": {"shapes": ["ring", "star", "moon"], "counts": [0, 1], "depth": 1}},
            "offers only 0 of",
        ),
    ],
)
def test_wrong_requests_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        READERS[name](**{"count": 5, **options})
