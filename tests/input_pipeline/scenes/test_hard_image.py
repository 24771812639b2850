"""Hard images: what they show, which captions belong to them, and how they are found."""

import collections

import numpy as np
import pytest

from tests.support.scene_examples import is_true, scene_of
from vlc_jax.input_pipeline.hard_texts import scene_texts as generators
from vlc_jax.input_pipeline.record import DataError, Findable
from vlc_jax.input_pipeline.scenes import draw, grammar
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

BOTH = (("relation", 0.7), ("attribute", 0.3))
ALL = (*BOTH, ("negation", 0.5), ("denial", 0.5))
WORLDS = {
    "mini": {},
    "64": {"world": "scenes-64"},
    "depth": {"world_options": {"depth": 0.7}},
    "copies": {"world_options": {"repeat": 0.4, "counts": (0.1, 0.3, 0.3, 0.3)}},
    "held": {"split": "held"},
}


def make_source(name="mini", count=400, hard_images=BOTH, **options):
    options = {"count": count, "captions": 1, "hard_images": hard_images, **options}
    return ScenesSource(**{**WORLDS[name], **options})


def pairs(source):
    """Each record, its hard image, and the scenes of both."""
    for i in range(len(source)):
        record = source[i]
        (hard_id,) = record.hard_images
        hard = source.find(hard_id)
        yield record, hard, scene_of(record, source.world), scene_of(hard, source.world)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_each_caption_is_true_for_its_own_picture_only(name):
    source = make_source(name, hard_images=ALL)
    kinds = collections.Counter()
    for record, hard, main, other in pairs(source):
        (caption,), (hard_caption,) = record.captions, hard.captions
        assert (record.negatives, hard.negatives) == ([[hard_caption]], [[caption]])
        assert is_true(caption, main)
        assert is_true(hard_caption, other)
        assert not is_true(caption, other)
        assert not is_true(hard_caption, main)
        np.testing.assert_array_equal(hard.image, draw.draw(other))
        assert (record.image != hard.image).any()
        kinds[hard.id.rpartition("~")[2]] += 1
    assert set(kinds) == {name for name, _ in ALL}


@pytest.mark.parametrize(
    ("kind", "generator"),
    [("relation", "scenes_reverse"), ("attribute", "scenes_swap"), ("denial", "scenes_negate")],
)
def test_the_hard_caption_is_what_the_generator_makes(kind, generator):
    """So that a loss which masks equal texts finds the negative among the hard image's captions."""
    make, rng = generators.SCENES_NEGATIVES[generator](), np.random.default_rng(0)
    options = {"size": 0.5, "colour": 0.6, "synonyms": 0.1, "completeness": 0.0}
    for record, hard, *_ in pairs(make_source(hard_images=((kind, 1),), caption_options=options)):
        both = ((record, hard), (hard, record))
        for one, two in both[:1] if kind == "denial" else both:  # a denial is not denied again
            assert two.captions[0] in make(one.captions[0], rng, 10, one.meta["scene"])


def test_only_places_or_only_colours_change():
    for _, hard, main, other in pairs(make_source()):
        assert (main.background, main.noise) == (other.background, other.noise)
        changed = [(a, b) for a, b in zip(main.objects, other.objects, strict=True) if a != b]
        assert len(changed) == 2
        is_relation = hard.id.endswith("~relation")
        for a, b in changed:
            assert b == a._replace(
                **({"x": b.x, "y": b.y} if is_relation else {"colour": b.colour})
            )


def test_captions_of_a_denial_differ_in_what_is_denied():
    for record, hard, main, other in pairs(make_source(hard_images=(("negation", 1),))):
        (caption,), (hard_caption,) = record.captions, hard.captions
        (said, denied), (hard_said, hard_denied) = (
            text.split(" and no ") for text in (caption, hard_caption)
        )
        assert said == hard_said
        ((a, b),) = [(a, b) for a, b in zip(main.objects, other.objects, strict=True) if a != b]
        assert (a.shape, b) == (hard_denied, a._replace(shape=denied))


def test_an_affirming_caption_is_denied_of_another_picture():
    source = make_source(hard_images=(("denial", 1),))
    for record, hard, main, other in pairs(source):
        caption, denial = (grammar.parse(each.captions[0], source.world) for each in (record, hard))
        assert caption.kind in ("list", "relation")
        assert denial.phrases == caption.phrases[:2]
        ((a, b),) = [(a, b) for a, b in zip(main.objects, other.objects, strict=True) if a != b]
        assert a.shape == denial.phrases[1].shape
        assert a._replace(shape=b.shape) == b


def test_kinds_come_by_their_shares():
    source = make_source(count=1500, hard_images=(("relation", 2), ("attribute", 1)))
    share = np.mean([source[i].hard_images[0].endswith("~relation") for i in range(1500)])
    assert abs(share - 2 / 3) < 4 * (2 / 9 / 1500) ** 0.5


@pytest.mark.parametrize("kind", ["attribute", "negation", "denial"])
def test_a_change_never_shows_what_is_held_out(kind):
    source = make_source(count=1500, hard_images=((kind, 1),))
    held = source.world.held_combinations
    for *_, other in pairs(source):
        assert not any((obj.shape, obj.colour) in held for obj in other.objects)


def test_records_do_not_depend_on_the_count():
    few, many = make_source(count=20), make_source(count=400)
    for i in range(20):
        assert few[i].captions == many[i].captions
        assert (few[i].image == many[i].image).all()


def test_every_record_is_found_by_its_id():
    for source in (make_source(count=30), ScenesSource(count=30)):
        assert isinstance(source, Findable)
        for i in range(30):
            record = source[i]
            found = source.find(record.id)
            assert (found.captions, found.meta) == (record.captions, record.meta)
    first = make_source()[0]
    hard = make_source().find(first.hard_images[0])
    assert hard.id == first.hard_images[0]
    assert hard.hard_images == [first.id]


@pytest.mark.parametrize(
    "record_id",
    ["scenes-mini-v1/train/400", "scenes-mini-v1/test/0", "scenes-64-v1/train/0", "0", "x/y/z",
     "scenes-mini-v1/train/0~colour", "scenes-mini-v1/train/0~", "scenes-mini-v1/train/00"],
)  # fmt: skip
def test_unknown_ids_are_refused(record_id):
    with pytest.raises(DataError, match=f"no record '{record_id}'"):
        make_source().find(record_id)


def test_the_kind_that_a_record_does_not_have_is_refused():
    source = make_source()
    other = {"relation": "attribute", "attribute": "relation"}
    main, kind = source[3].hard_images[0].split("~")
    with pytest.raises(DataError, match="no record"):
        source.find(f"{main}~{other[kind]}")
    with pytest.raises(DataError, match="no record"):
        ScenesSource().find(f"{main}~{kind}")


def test_fingerprint_tells_kinds_and_shares():
    made = [BOTH, (("relation", 1),), (("relation", 0.6), ("attribute", 0.4)), ()]
    assert len({make_source(hard_images=each).fingerprint for each in made}) == len(made)
    scaled = (("relation", 7), ("attribute", 3))
    assert make_source(hard_images=scaled).fingerprint == make_source().fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"captions": 4}, "captions=4: set captions=1 and raise count"),
        ({"hard_images": (("relations", 1),)}, "did you mean 'relation'"),
        ({"hard_images": (("relation", 0),)}, "share above 0"),
        ({"hard_images": (("relation", 1), ("relation", 1))}, "each kind once"),
        ({"world_options": {"counts": (1.0,)}}, "none of 1000 scenes.*needs two objects"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_source(**options)
