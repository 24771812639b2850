"""Scenes obey the rules of their world and are the same everywhere."""

import collections
import dataclasses
import itertools
import json

import numpy as np
import pytest

from vlc_jax.input_pipeline.scenes import sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.stream import Stream, normal_table
from vlc_jax.input_pipeline.scenes.world import Scene, SceneObject

MINI = worlds.named("scenes-mini")
NAMES = sorted(worlds.WORLDS)


def scenes(world, count, split="train", objects=None):
    return [sample.sample_scene(world, split, i, objects) for i in range(count)]


def thing(x, y, pixels=10, shape="circle", colour="red"):
    return SceneObject(shape, colour, "small", "plain", x, y, pixels, (0, 0, 0))


def scene_of(*objects):
    return Scene(MINI, objects, (200, 200, 200), 0)


def close_to_share(count, total, share):
    """Within four standard deviations of a binomial share."""
    return abs(count - total * share) <= 4 * (total * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("name", NAMES)
def test_objects_stay_inside_apart_and_distinct(name):
    world = worlds.named(name)
    for scene in scenes(world, 1000):
        for obj in scene.objects:
            assert 0 <= obj.x <= world.canvas - obj.pixels
            assert 0 <= obj.y <= world.canvas - obj.pixels
            assert obj.pixels == world.pixels[obj.size]
        for a, b in itertools.combinations(scene.objects, 2):
            assert not worlds.overlaps(a, b)
            assert a.shape != b.shape
            assert a.colour != b.colour


@pytest.mark.parametrize(
    ("name", "any_of_ten", "any_other", "nearest"),
    [("scenes-mini", 1.0, 1.0, 1.0), ("scenes-hues", 0.83, 0.977, 0.93)],
)
def test_colours_are_as_hard_to_tell_apart_as_stated(name, any_of_ten, any_other, nearest):
    """A reader of shades that knows the ten colours, close to the best one there is."""
    world = worlds.named(name)
    known = np.array([worlds.RGB[colour] for colour in world.colours])
    objects = [obj for scene in scenes(world, 5000) for obj in scene.objects]
    colour = np.array([world.colours.index(obj.colour) for obj in objects])
    shade = np.clip(known[colour] + np.array([obj.jitter for obj in objects]), 0, 255)
    distance = np.linalg.norm(shade[:, None] - known, axis=-1)
    rows = np.arange(len(objects))
    is_nearer = distance[rows, colour][:, None] < distance
    between = np.linalg.norm(known[:, None] - known, axis=-1)
    rivals = between.argsort(axis=1)[:, 1:3][colour]
    assert (distance.argmin(axis=1) == colour).mean() == pytest.approx(any_of_ten, abs=0.02)
    assert is_nearer.sum() / (9 * len(rows)) == pytest.approx(any_other, abs=0.01)
    near = is_nearer[rows[:, None], rivals]
    assert near.mean() == pytest.approx(nearest, abs=0.015)


@pytest.mark.parametrize("name", NAMES)
def test_number_of_objects_has_the_stated_probabilities(name):
    world = worlds.named(name)
    counts = collections.Counter(len(scene.objects) for scene in scenes(world, 3000))
    assert set(counts) == set(range(1, len(world.counts) + 1))
    for objects, share in enumerate(world.counts, start=1):
        assert close_to_share(counts[objects], 3000, share)


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_have_a_clear_relation_uniform_of_four(name):
    world = worlds.named(name)
    relations = collections.Counter()
    for scene in scenes(world, 2000, objects=2):
        a, b = scene.objects
        across, along = sorted(
            abs(getattr(a, axis) - getattr(b, axis) + (a.pixels - b.pixels) / 2) for axis in "xy"
        )
        assert world.distance[0] <= along <= world.distance[1] + 0.5
        assert across <= world.offset + 0.5
        relations[scene.relation(0, 1)] += 1
    assert set(relations) == set(worlds.DIRECTIONS)
    assert all(close_to_share(count, 2000, 0.25) for count in relations.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", sample.SPLITS)
def test_held_out_pairs_occur_in_the_held_splits_only(name, split):
    world = worlds.named(name)
    for scene in [*scenes(world, 400, split), *scenes(world, 200, split, 2)]:
        shows = any((obj.shape, obj.colour) in world.held_combinations for obj in scene.objects)
        assert shows == split.startswith("held")


def test_held_out_pairs_are_a_tenth_of_the_mini_world():
    assert len(MINI.held_combinations) == 10
    assert ("circle", "red") in MINI.held_combinations  # (3 * 0 + 7 * 0) % 10
    assert ("square", "green") in MINI.held_combinations  # (3 * 1 + 7 * 1) % 10


def test_every_shape_and_colour_is_about_equally_frequent():
    objects = [obj for scene in scenes(MINI, 2000) for obj in scene.objects]
    for attribute, values in (("shape", MINI.shapes), ("colour", MINI.colours)):
        counts = collections.Counter(getattr(obj, attribute) for obj in objects)
        assert set(counts) == set(values)
        assert all(close_to_share(count, len(objects), 0.1) for count in counts.values())


def test_splits_and_series_are_different_scenes():
    first = {
        (split, objects): sample.sample_scene(MINI, split, 0, objects)
        for split in sample.SPLITS
        for objects in (None, 1, 2, 3)
    }
    assert len(set(first.values())) == len(first)


@pytest.mark.parametrize(
    ("right", "down", "relation"),
    [
        (-8, 0, "left of"),
        (8, 0, "right of"),
        (0, -12, "above"),
        (4, 12, "below"),
        (7, 0, None),  # one less than the margin
        (-20, 13, None),
        (-20, 12, "left of"),
    ],
)
def test_relation_needs_one_axis_to_lead_by_the_margin(right, down, relation):
    world = dataclasses.replace(MINI, small=4, name="tiny")
    a, b = thing(20 + right, 20 + down, pixels=4), thing(20, 20, pixels=4)
    scene = Scene(world, (a, b), (200, 200, 200), 0)
    assert scene.relation(0, 1) == relation
    assert scene.relation(1, 0) == worlds.OPPOSITE.get(relation)


@pytest.mark.parametrize(
    ("x", "y", "place"),
    [(0, 15, "on the left"), (30, 15, "on the right"), (15, 0, "at the top"),
     (15, 30, "at the bottom"), (15, 15, None), (0, 0, None), (5, 9, "on the left"), (5, 8, None)],
)  # fmt: skip
def test_place_is_relative_to_the_middle_of_the_canvas(x, y, place):
    assert scene_of(thing(x, y)).place(0) == place


@pytest.mark.parametrize("depth", [0.0, 1.0])
def test_reversing_a_relation_twice_gives_it_back(depth):
    world = worlds.named("scenes-mini", depth=depth)
    for scene in scenes(world, 500, objects=2):
        other = worlds.reverse_relation(scene, 0, 1)
        assert other.relation(0, 1) == (
            scene.relation(0, 1) if depth else worlds.OPPOSITE[scene.relation(0, 1)]
        )
        if depth:  # of an overlapping pair the order of drawing is exchanged
            assert other.objects == scene.objects[::-1]
        else:
            assert [obj[:4] for obj in other.objects] == [obj[:4] for obj in scene.objects]
            assert not worlds.overlaps(*other.objects)
        assert all(0 <= v <= 40 - obj.pixels for obj in other.objects for v in (obj.x, obj.y))
        assert worlds.reverse_relation(other, 0, 1) == scene


def test_reversing_is_refused_with_a_third_object_in_the_way():
    big, small = thing(0, 0, pixels=15), thing(30, 5)
    beside, under = thing(15, 0), thing(17, 0)  # turned, the big box begins at x = 25
    assert worlds.reverse_relation(scene_of(big, small, beside), 0, 1) is not None
    assert worlds.reverse_relation(scene_of(big, small, under), 0, 1) is None


def test_exchanging_an_attribute_changes_nothing_else():
    scene = sample.sample_scene(MINI, "train", 3, 2)
    a, b = scene.objects
    other = worlds.exchange(scene, 0, 1, "colour")
    assert other.objects == (a._replace(colour=b.colour), b._replace(colour=a.colour))
    assert other._replace(objects=scene.objects) == scene
    with pytest.raises(ValueError, match=r"did you mean 'colour'"):
        worlds.exchange(scene, 0, 1, "color")


def test_depth_makes_pairs_overlap_with_the_later_in_front():
    world = worlds.named("scenes-mini", depth=0.5)
    pairs = scenes(world, 600, objects=2)
    stacked = [scene for scene in pairs if worlds.overlaps(*scene.objects)]
    assert close_to_share(len(stacked), 600, 0.5)
    assert {scene.relation(1, 0) for scene in stacked} == {"in front of"}
    assert {scene.relation(0, 1) for scene in stacked} == {"behind"}


def test_repeat_makes_copies_and_its_absence_none():
    def copies(world):
        return sum(
            a[:2] == b[:2]
            for scene in scenes(world, 300)
            for a, b in itertools.combinations(scene.objects, 2)
        )

    assert copies(MINI) == 0
    assert copies(worlds.named("scenes-mini", repeat=0.5)) > 100


def test_textures_are_drawn_where_the_world_has_them():
    seen = {obj.texture for scene in scenes(worlds.named("scenes-64"), 50) for obj in scene.objects}
    assert seen == {"plain", "striped", "dotted"}
    assert {obj.texture for scene in scenes(MINI, 50) for obj in scene.objects} == {"plain"}


def test_scene_graph_survives_json():
    scene = sample.sample_scene(MINI, "test", 5)
    graph = json.loads(json.dumps(scene.to_json()))
    assert worlds.from_json(graph, MINI) == scene
    with pytest.raises(ValueError, match="not of 'scenes-64-v1'"):
        worlds.from_json(graph, worlds.named("scenes-64"))


def test_world_id_tells_every_change_of_the_rules():
    assert MINI.id == "scenes-mini-v1"
    assert worlds.named("scenes-mini", canvas=40).id == MINI.id
    changes = [
        {"canvas": 48},
        {"shapes": ["circle", "star", "moon", "ring"]},
        {"depth": 0.1},
        {"repeat": 0.1},
        {"version": 2},
    ]
    ids = {worlds.named("scenes-mini", **change).id for change in changes}
    assert len(ids) == 5
    assert MINI.id not in ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"canvass": 48}, "did you mean 'canvas'"),
        ({"shapes": ("circel", "star", "moon", "ring")}, "did you mean 'circle'"),
        ({"colours": ("red", "mauve", "blue", "pink")}, "unknown colour 'mauve'"),
        ({"textures": ("plain", "furry")}, "unknown texture 'furry'"),
        ({"counts": (0.5, 0.6)}, "sum to 1"),
        ({"counts": (1 / 7,) * 7}, "at most 6 objects"),
        ({"shapes": ("circle", "star", "moon")}, "one more must stay absent"),
        ({"distance": (12, 22)}, "boxes do not overlap"),
        ({"canvas": 32}, "enlarge it or lower distance"),
    ],
)
def test_impossible_worlds_are_refused_with_the_cure(change, message):
    with pytest.raises(ValueError, match=message):
        worlds.named("scenes-mini", **change)


def test_unknown_worlds_splits_and_empty_held_splits_are_refused():
    with pytest.raises(ValueError, match=r"did you mean 'scenes-mini'.*known: scenes-mini"):
        worlds.named("scene-mini")
    with pytest.raises(ValueError, match="did you mean 'validation'"):
        sample.sample_scene(MINI, "valid", 0)
    with pytest.raises(ValueError, match="holds nothing out"):
        sample.sample_scene(worlds.named("scenes-mini", held_modulus=0), "held", 0)


def test_stream_is_endless_and_uniform():
    stream = Stream("a key")
    draws = [stream.below(10) for _ in range(5000)]
    again = Stream("a key")
    assert [again.below(10) for _ in range(5000)] == draws
    assert [Stream("another key").below(10) for _ in range(20)] != draws[:20]
    assert all(close_to_share(draws.count(value), 5000, 0.1) for value in range(10))
    assert {stream.between(-2, 2) for _ in range(200)} == {-2, -1, 0, 1, 2}
    firsts = collections.Counter(tuple(stream.sample(4, 2)) for _ in range(2400))
    assert len(firsts) == 12
    assert all(close_to_share(count, 2400, 1 / 12) for count in firsts.values())
    assert close_to_share(sum(stream.chance(0.2) for _ in range(3000)), 3000, 0.2)
    assert close_to_share(
        [stream.weighted((0.1, 0.7, 0.2)) for _ in range(3000)].count(1), 3000, 0.7
    )


def test_normal_table_has_the_asked_sigma_and_no_bias():
    table = normal_table(8.0)
    assert sum(table) == 0
    assert (sum(z * z for z in table) / 256) ** 0.5 == pytest.approx(8.0, rel=0.01)
